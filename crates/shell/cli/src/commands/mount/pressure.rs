//! Memory that a mount gives back when the machine is short of it.
//!
//! Once a second it looks for two signs: little memory is available on the machine while programs wait for memory
//! (`/proc/pressure/memory`, where the kernel has it), or programs of the mount's own control group wait. Each time, the cache
//! gets half of the size that it had, and frees the rest. After ten seconds without a sign it gets twice that size again, up
//! to what `cache=` says.

use std::fs;
use std::path::{Path, PathBuf};

use ordo_runtime::{Duration, IoBuf, Runtime, Time};
use ordo_systems::Mounted;

use super::tell::MessageSink;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The looks without a sign after which the cache grows again.
const CALM: u32 = 10;

/// The least size of the cache, in percent of its configured size.
const LEAST: usize = 6;

/// The part of the time for which programs wait for memory that counts as a sign: one over this number.
const WAITING: u64 = 10;

/// The percentage of memory below which a machine has little, if programs wait for it, and if that is not known.
const LITTLE: u64 = 10;
const VERY_LITTLE: u64 = 5;

/// A folder that stands for `/` in tests.
const ROOT: &str = "ORDO_PRESSURE_ROOT";

/// Starts to look. The task ends with the executor.
pub fn watch(runtime: &Runtime, mounted: &Mounted, tell: &MessageSink) {
    let root = std::env::var_os(ROOT).map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let (rt, mounted, tell) = (runtime.clone(), mounted.clone(), tell.clone());
    runtime.spawn_daemon("the machine's memory", async move {
        let mut signs = Signs::new(&root, rt.now());
        let mut size = Size::default();
        loop {
            rt.sleep(LOOK_EVERY).await;
            let before = size.percent;
            size.note(signs.is_short(rt.now()));
            if size.percent == before {
                continue;
            }
            if before == 100 {
                tell.notice("the machine is short of memory: the cache shrinks");
            } else if size.percent == 100 {
                tell.notice("the cache may have its whole size again");
            }
            mounted.limit_memory(size.percent).await;
            if size.percent < before {
                IoBuf::free_unused();
            }
        }
    });
}

/// The size of the cache over time.
struct Size {
    percent: usize,
    calm: u32,
}

impl Default for Size {
    fn default() -> Size {
        Size { percent: 100, calm: 0 }
    }
}

impl Size {
    /// Notes whether memory was short at a look.
    fn note(&mut self, is_short: bool) {
        if is_short {
            self.calm = 0;
            self.percent = (self.percent / 2).max(LEAST);
        } else {
            self.calm += 1;
            if self.calm >= CALM {
                self.calm = 0;
                self.percent = (self.percent * 2).min(100);
            }
        }
    }
}

/// The files with the signs, and their last contents.
struct Signs {
    root: PathBuf,
    at: Time,
    machine: Waits,
    own: Option<Waits>,
}

impl Signs {
    fn new(root: &Path, now: Time) -> Signs {
        let machine = Waits::new(root.join("proc/pressure/memory"));
        let group = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        // The group of version 2; the root group is the machine.
        let group = group.lines().find_map(|line| line.strip_prefix("0::/"));
        let own = group.filter(|group| !group.is_empty()).map(|group| {
            Waits::new(root.join("sys/fs/cgroup").join(group).join("memory.pressure"))
        });
        Signs { root: root.to_owned(), at: now, machine, own }
    }

    /// Whether memory has been short since the last look.
    fn is_short(&mut self, now: Time) -> bool {
        let time = now.since(std::mem::replace(&mut self.at, now)).as_nanos() as u64 / 1000;
        let waited = self.machine.since_last();
        let in_group = self.own.as_mut().and_then(Waits::since_last);
        let is_long = |waited: u64| waited > time / WAITING;
        if in_group.is_some_and(is_long) {
            return true;
        }
        let info = fs::read_to_string(self.root.join("proc/meminfo")).unwrap_or_default();
        let available = available_percent(&info).unwrap_or(100);
        match waited {
            Some(waited) => is_long(waited) && available < LITTLE,
            None => available < VERY_LITTLE,
        }
    }
}

/// A file of pressure-stall information, with the total time for which some program waited, in microseconds.
struct Waits {
    file: PathBuf,
    total: Option<u64>,
}

impl Waits {
    fn new(file: PathBuf) -> Waits {
        let mut waits = Waits { file, total: None };
        waits.since_last();
        waits
    }

    /// The microseconds of waiting since the last call; `None` if they are not known.
    fn since_last(&mut self) -> Option<u64> {
        let text = fs::read_to_string(&self.file).ok();
        let now = text.as_deref().and_then(total_wait);
        let before = std::mem::replace(&mut self.total, now);
        Some(now?.saturating_sub(before?))
    }
}

/// The total of the line `some` of pressure-stall information.
fn total_wait(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// The percentage of the machine's memory that is available.
fn available_percent(info: &str) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(':')?.split_whitespace().next()?.parse().ok()
    };
    let (all, available) = (number("MemTotal")?, number("MemAvailable")?);
    available.checked_mul(100)?.checked_div(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=";

    /// The cache shrinks with each sign, down to its least size, and grows again after ten looks without one. Would catch a cache
    /// that stays small for ever, and one that vanishes.
    #[test]
    fn the_cache_shrinks_with_each_sign_and_grows_again() {
        let mut size = Size::default();
        let percents: Vec<usize> = (0..6)
            .map(|_| {
                size.note(true);
                size.percent
            })
            .collect();
        assert_eq!(percents, [50, 25, 12, 6, 6, 6]);
        (0..CALM - 1).for_each(|_| size.note(false));
        assert_eq!(size.percent, 6);
        size.note(false);
        assert_eq!(size.percent, 12);
        (0..4 * CALM).for_each(|_| size.note(false));
        assert_eq!(size.percent, 100);
    }

    /// The kernel's files are read, with and without each of them, and with contents that make no sense. Would catch a sign that is
    /// seen on an idle machine, a group's wait that is not seen, and a file that ends the mount.
    #[test]
    fn the_signs_are_those_of_the_kernels_files() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let memory = |percent: u64| {
            put("proc/meminfo", &format!("MemTotal: 1000 kB\nMemAvailable: {} kB\n", 10 * percent));
        };
        let second = |n: u64| Time::from_nanos(n * 1_000_000_000);
        let mut none = Signs::new(root.path(), second(0));
        assert!(!none.is_short(second(1)), "nothing is known");
        memory(4);
        assert!(none.is_short(second(2)), "no pressure-stall information, very little memory");
        put("proc/meminfo", "MemTotal: x\nMemAvailable: 99999999999999999999 kB");
        assert!(!none.is_short(second(3)));

        put("proc/self/cgroup", "5:memory:/old\n0::/a/b\n");
        put("proc/pressure/memory", &format!("{SOME}1000000\nfull total=1\n"));
        put("sys/fs/cgroup/a/b/memory.pressure", &format!("{SOME}5\n"));
        memory(9);
        let mut signs = Signs::new(root.path(), second(0));
        assert!(!signs.is_short(second(1)), "nobody waited");
        put("proc/pressure/memory", &format!("{SOME}1200000\n"));
        assert!(signs.is_short(second(2)), "200 ms in one second");
        put("proc/pressure/memory", &format!("{SOME}1250000\n"));
        assert!(!signs.is_short(second(3)), "50 ms in one second");
        memory(11);
        put("proc/pressure/memory", &format!("{SOME}2250000\n"));
        assert!(!signs.is_short(second(4)), "there is memory: others wait for their own reasons");
        put("sys/fs/cgroup/a/b/memory.pressure", &format!("{SOME}200005\n"));
        assert!(signs.is_short(second(5)), "the mount's own group");
        for text in ["", "some", "some total=", "some total=-1", "full total=9"] {
            put("sys/fs/cgroup/a/b/memory.pressure", text);
            assert!(!signs.is_short(second(6)), "{text:?}");
        }
    }
}
