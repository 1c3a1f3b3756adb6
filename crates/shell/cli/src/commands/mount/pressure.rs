//! Memory that a mount gives back when the machine is short of it.
//!
//! Once a second it looks for signs. On the machine: almost no memory is available, or little is
//! while programs wait for memory (`/proc/pressure/memory`, where the kernel has it). In the
//! mount's own control group and those around it (version 2): almost nothing is left of a limit, or
//! programs of its own group wait. A shortage without waits is a sign too: without swap nobody
//! waits until the last page is taken, and then the kernel kills a program. Each time, the cache
//! gets half of the size that it had, and frees the rest. After ten seconds without a sign it gets
//! twice that size again, up to what `cache=` says.

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

/// The part of the time for which programs wait for memory that counts as a sign: one over this
/// number.
const WAITING: u64 = 10;

/// The usual size of the cache, in bytes.
const CACHE: u64 = 256 << 20;

/// The percentage of memory below which there is little, if programs wait for it, and in any case.
const LITTLE: u128 = 10;
const VERY_LITTLE: u128 = 5;

/// Bytes with which nothing is short, if no program waits: a twentieth of a large machine is more
/// than a cache.
const ENOUGH: u64 = 1 << 30;

/// A folder that stands for `/` in tests.
const ROOT: &str = "ORDO_PRESSURE_ROOT";

/// Starts to look. The task ends with the executor.
pub fn watch(runtime: &Runtime, mounted: &Mounted, tell: &MessageSink) {
    let root = root();
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
            IoBuf::keep_unused(size.percent == 100);
            mounted.limit_memory(size.percent).await;
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

/// The cache of a mount that is not told a size, in bytes: the usual one, but at most a quarter of
/// the memory that is there for this process: the machine's, or less if a control group limits it.
pub fn default_cache() -> u64 {
    default_cache_at(&root())
}

fn default_cache_at(root: &Path) -> u64 {
    let groups = groups(root);
    let limited = groups.iter().filter_map(|group| Capacity::of_group(group));
    let whole = limited.chain(Capacity::of_machine(root)).map(|memory| memory.all).min();
    whole.map_or(CACHE, |whole| CACHE.min(whole / 4))
}

fn root() -> PathBuf {
    std::env::var_os(ROOT).map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// The folders of this process's control group and of those around it, if they can have limits: the
/// outermost group of a machine cannot, that of a container can.
fn groups(root: &Path) -> Vec<PathBuf> {
    let known = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(own) = known.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let folders = Path::new(own).ancestors().map(|group| root.join("sys/fs/cgroup").join(group));
    folders.filter(|folder| folder.join("memory.max").exists()).collect()
}

/// The files with the signs, and their last contents.
struct Signs {
    root: PathBuf,
    at: Time,
    machine: Waits,
    groups: Vec<PathBuf>,
    own: Option<Waits>,
}

impl Signs {
    fn new(root: &Path, now: Time) -> Signs {
        let machine = Waits::new(root.join("proc/pressure/memory"));
        let groups = groups(root);
        let own = groups.first().map(|group| Waits::new(group.join("memory.pressure")));
        Signs { root: root.to_owned(), at: now, machine, groups, own }
    }

    /// Whether memory has been short since the last look.
    fn is_short(&mut self, now: Time) -> bool {
        let time = now.since(std::mem::replace(&mut self.at, now)).as_nanos() as u64 / 1000;
        let is_long = |waited: u64| waited > time / WAITING;
        let in_machine = self.machine.since_last().is_some_and(is_long);
        if self.own.as_mut().and_then(Waits::since_last).is_some_and(is_long) {
            return true;
        }
        let machine = Capacity::of_machine(&self.root);
        let mut groups = self.groups.iter().filter_map(|group| Capacity::of_group(group));
        machine.is_some_and(|memory| memory.is_short(in_machine))
            || groups.any(|memory| memory.is_short(false))
    }
}

/// The memory of a machine in bytes, or of this process's control group if that has less. `None`
/// if it is not known.
pub(crate) fn memory(root: &Path) -> Option<u64> {
    let groups = groups(root);
    let limits = groups.iter().filter_map(|group| Capacity::of_group(group));
    limits.chain(Capacity::of_machine(root)).map(|memory| memory.all).min()
}

/// Memory in bytes: all of a machine or of a group's limit, and how much of it can be had without
/// taking it from a program.
struct Capacity {
    all: u64,
    available: u64,
}

impl Capacity {
    fn of_machine(root: &Path) -> Option<Capacity> {
        let info = fs::read_to_string(root.join("proc/meminfo")).ok()?;
        let bytes = |name| number(&info, name)?.checked_mul(1024);
        Some(Capacity { all: bytes("MemTotal:")?, available: bytes("MemAvailable:")? })
    }

    /// The memory of a group with a limit. Pages of files and the kernel's caches can be had.
    fn of_group(folder: &Path) -> Option<Capacity> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let bytes = |name| read(name)?.trim().parse::<u64>().ok();
        let all = bytes("memory.high").into_iter().chain(bytes("memory.max")).min()?;
        let parts = read("memory.stat").unwrap_or_default();
        let free = ["active_file", "inactive_file", "slab_reclaimable"];
        let free = free.into_iter().filter_map(|name| number(&parts, name));
        let free = free.fold(0, u64::saturating_add);
        let used = bytes("memory.current")?.saturating_sub(free);
        Some(Capacity { all, available: all.saturating_sub(used) })
    }

    fn is_short(&self, programs_wait: bool) -> bool {
        let is_below = |percent| u128::from(self.available) * 100 < u128::from(self.all) * percent;
        is_below(VERY_LITTLE) && self.available < ENOUGH || programs_wait && is_below(LITTLE)
    }
}

/// A file of pressure-stall information, with the total time for which some program waited, in
/// microseconds.
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

/// The number after a name at the beginning of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next())?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=";

    /// The cache shrinks with each sign, down to its least size, and grows again after ten looks
    /// without one. Would catch a cache that stays small for ever, and one that vanishes.
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

    /// A folder that stands for `/`.
    struct Root(tempfile::TempDir);

    impl Root {
        fn new() -> Root {
            Root(tempfile::tempdir().unwrap())
        }

        fn put(&self, name: &str, text: &str) {
            let file = self.0.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
        }

        fn available(&self, percent: u64) {
            let text = format!("MemTotal: 1000 kB\nMemAvailable: {} kB\n", 10 * percent);
            self.put("proc/meminfo", &text);
        }

        fn signs(&self) -> Signs {
            Signs::new(self.0.path(), second(0))
        }
    }

    fn second(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000_000)
    }

    /// The machine's files are read, with and without each of them, and with contents that make no
    /// sense. Would catch a sign that is seen on an idle machine, one that is seen only when
    /// programs wait already, and a file that ends the mount.
    #[test]
    fn a_machine_is_short_of_memory_with_waits_or_without() {
        let root = Root::new();
        let mut none = root.signs();
        assert!(!none.is_short(second(1)), "nothing is known");
        root.available(4);
        assert!(none.is_short(second(2)), "very little memory");
        root.put("proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable: 1048577 kB\n");
        assert!(!none.is_short(second(3)), "a large machine with 1 GB");
        root.put("proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable: 1048575 kB\n");
        assert!(none.is_short(second(4)));
        root.put("proc/meminfo", "MemTotal: x\nMemAvailable: 99999999999999999999 kB");
        assert!(!none.is_short(second(5)));

        root.put("proc/pressure/memory", &format!("{SOME}1000000\nfull total=1\n"));
        root.available(9);
        let mut signs = root.signs();
        assert!(!signs.is_short(second(1)), "nobody waited");
        root.put("proc/pressure/memory", &format!("{SOME}1200000\n"));
        assert!(signs.is_short(second(2)), "200 ms in one second");
        root.put("proc/pressure/memory", &format!("{SOME}1250000\n"));
        assert!(!signs.is_short(second(3)), "50 ms in one second");
        root.available(11);
        root.put("proc/pressure/memory", &format!("{SOME}2250000\n"));
        assert!(!signs.is_short(second(4)), "there is memory: others wait for their own reasons");
    }

    /// The files of control groups. Would catch a limit that is seen only when programs wait, pages
    /// of files that count as taken, the limit of a group around the mount's that is not seen, and
    /// waits of the whole machine that count as the group's.
    #[test]
    fn a_control_group_is_short_of_memory_with_waits_or_without() {
        let root = Root::new();
        let own = "sys/fs/cgroup/a/b";
        root.available(50);
        root.put("proc/self/cgroup", "5:memory:/old\n0::/a/b\n");
        root.put(&format!("{own}/memory.pressure"), &format!("{SOME}5\n"));
        assert!(root.signs().own.is_none(), "the group has no limits to set");
        root.put(&format!("{own}/memory.max"), "max\n");
        let mut signs = root.signs();
        assert!(!signs.is_short(second(1)));
        root.put(&format!("{own}/memory.pressure"), &format!("{SOME}200005\n"));
        assert!(signs.is_short(second(2)), "programs of the group wait");
        for text in ["", "some", "some total=", "some total=-1", "full total=9"] {
            root.put(&format!("{own}/memory.pressure"), text);
            assert!(!signs.is_short(second(3)), "{text:?}");
        }
        for group in ["sys/fs/cgroup/a", own] {
            let put = |name: &str, text: &str| root.put(&format!("{group}/{name}"), text);
            put("memory.max", "2000\n");
            put("memory.high", "1000\n");
            put("memory.current", "990\n");
            let mut signs = root.signs();
            put("memory.stat", "anon 900\ninactive_file 40\nactive_file 1\n");
            assert!(!signs.is_short(second(1)), "{group}: pages of files can be had");
            put("memory.stat", "anon 980\ninactive_file 39\n");
            assert!(signs.is_short(second(2)), "{group}");
            put("memory.current", "1200\n");
            assert!(signs.is_short(second(3)), "{group}: more than the limit");
            put("memory.stat", "anon -1\ninactive_file 99999999999999999999\nactive_file");
            put("memory.current", "x\n");
            assert!(!signs.is_short(second(4)), "{group}");
        }
        root.put("proc/self/cgroup", "0::/\n");
        assert!(root.signs().own.is_none(), "the machine's outermost group");
        root.put("sys/fs/cgroup/memory.max", "max\n");
        assert!(root.signs().own.is_some(), "a container's");
    }

    /// Would catch a mount that plans with 256 MB where a machine or a group has less, and one
    /// without a cache where the kernel says nothing.
    #[test]
    fn a_small_machine_or_group_gets_a_smaller_cache() {
        let root = Root::new();
        let cache = || default_cache_at(root.0.path()) >> 20;
        assert_eq!(cache(), 256);
        root.put("proc/meminfo", "MemTotal: 25165824 kB\nMemAvailable: 25000000 kB\n");
        assert_eq!(cache(), 256);
        root.put("proc/meminfo", "MemTotal: 524288 kB\nMemAvailable: 500000 kB\n");
        assert_eq!(cache(), 128);
        root.put("proc/self/cgroup", "0::/a/b\n");
        root.put("sys/fs/cgroup/a/memory.max", "134217728\n");
        root.put("sys/fs/cgroup/a/memory.current", "1000\n");
        assert_eq!(cache(), 32);
    }
}
