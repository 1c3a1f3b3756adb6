//! `make test-qemu-pressure`: a mount on a machine that is short of memory, in QEMU.
//!
//! A guest with little memory mounts an image of Ordo's, fills the cache with blocks at random
//! places, and then runs out of memory. In one run another program takes all of it (pages in tmpfs,
//! which without swap never leave memory). In the other the mount's control group gets a limit
//! (`memory.high`). The mount must give memory back within the time limit, every byte must be as it
//! was written, before and after another mount, and a check must find nothing. In a third run the
//! mount looks for signs where there are none: it must keep its memory, or the other runs would
//! show nothing. `ORDERINGS` selects orderings, separated by spaces; then no page is written. Logs
//! stay in `target/qemu`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::guest::{self, AT_THE_END};
use super::{Guest, Prepared, emulate, prepare, shell};

/// The size of the disk, as `ordo mkfs` takes it.
const DISK: &str = "400m";
/// The memory of the guest in MB.
const MEMORY: &str = "640";
/// The time limit of a guest, in seconds.
const SECONDS: &str = "400";
/// The cache of the mount in MB, and the seconds in which half of it must go back.
const CACHE: u32 = 96;
const LIMIT: u32 = 40;
/// The programs that are needed, each with its Debian package.
const NEEDED: [(&str, &str); 3] =
    [("qemu-system-x86_64", "qemu-system-x86"), ("timeout", "coreutils"), ("rustc", "rustc")];
const ORDERINGS: [&str; 4] = ["soft-updates", "journal", "sync", "none"];

/// A way in which memory becomes short.
struct Shortage {
    name: &'static str,
    /// Shell lines before the mount, and while memory is short; the latter run several times a
    /// second.
    before: &'static str,
    short: &'static str,
    /// Whether the mount can see it.
    seen: bool,
}

/// Takes 2 MB more while more than a twentieth of the memory is available.
const TAKE: &str =
    "[ $(available) -lt 5 ] || dd if=/dev/zero of=/tmp/taken-$tries bs=1M count=2 2>/dev/null";

const SHORTAGES: [Shortage; 3] = [
    Shortage { name: "the machine", before: "", short: TAKE, seen: true },
    Shortage {
        name: "its control group",
        before: "mount -t cgroup2 none /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/mount
echo 0 > /sys/fs/cgroup/mount/cgroup.procs",
        short: "[ $tries != 0 ] || echo $((full * 3 / 4))k > /sys/fs/cgroup/mount/memory.high",
        seen: true,
    },
    Shortage {
        name: "the machine, unseen",
        before: "export ORDO_PRESSURE_ROOT=/nowhere",
        short: TAKE,
        seen: false,
    },
];

/// The guest's work; `$2` is the ordering. The program overwrites each block of the file about
/// once, in random order.
const WORK: &str = r#"mkdir /sys /tmp
mount -t sysfs none /sys
mount -t tmpfs -o size=95% none /tmp
memory() { sed -n "s/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p" /proc/$server/status; }
available() { awk '/^MemTotal/ { all = $2 } /^MemAvailable/ { print int(100 * $2 / all) }' /proc/meminfo; }
waited() { awk '/^some/ { sub("total=", "", $5); print int($5 / 1000) }' /proc/pressure/memory; }
overwrite() { /overwrite fill $1 BLOCKS; /overwrite uniform $1 BLOCKS 7 0 BLOCKS; }
overwrite /tmp/file
md5sum < /tmp/file > /sum
rm /tmp/file
(
BEFORE
exec /ordo mount -f -o ordering=$2,cache=CACHEm /dev/vda /mnt
) &
server=$!
until grep -q " /mnt " /proc/mounts; do sleep 1; done
overwrite /mnt/file
yes | head -c 3000000 | dd of=/mnt/late bs=4096 2>/dev/null
echo 3 > /proc/sys/vm/drop_caches
full=$(memory)
echo "full: $full"
tries=0
now=$full
start=$(cut -d. -f1 /proc/uptime)
seconds=0
while [ $seconds -lt LIMIT ] && [ $now -gt $((full - CACHE * 512)) ]; do
  SHORT
  tries=$((tries + 1))
  sleep 0.1
  now=$(memory)
  seconds=$(($(cut -d. -f1 /proc/uptime) - start))
  [ $((tries % 10)) != 0 ] || echo "$seconds s: $now kB, $(available) % available, waited $(waited) ms"
done
echo "then: $now"
echo "seconds: $seconds"
rm -f /tmp/taken-*
md5sum < /mnt/file | cmp - /sum
yes | head -c 3000000 | cmp - /mnt/late
umount /mnt
wait $server
/ordo mount -o ro /dev/vda /mnt
md5sum < /mnt/file | cmp - /sum
yes | head -c 3000000 | cmp - /mnt/late
umount /mnt
echo AT_THE_END
"#;

/// The findings of a run: memory in kB, and the seconds until half of the cache was back.
struct Seen {
    full: u64,
    then: u64,
    seconds: u64,
}

impl Seen {
    /// The fault, if there is one.
    fn judge(&self, seen: bool) -> Result<(), String> {
        let half = u64::from(CACHE) * 512;
        let back = self.then + half <= self.full;
        match (self.full > u64::from(CACHE) * 768, seen == back) {
            (false, _) => Err(format!("the cache was never full: {} kB", self.full)),
            (_, true) => Ok(()),
            _ if seen => Err(format!("it kept its memory: {} kB of {} kB", self.then, self.full)),
            _ => Err("it gave memory back without a sign: the other runs show nothing".to_owned()),
        }
    }
}

/// Runs everything. Returns whether every run came to its end as it should.
///
/// # Errors
/// A program or a file cannot be had, or the page cannot be written.
pub fn run(ordo: &Path) -> Result<bool, String> {
    let Some(prepared) = prepare("test-qemu-pressure", &NEEDED, ordo)? else { return Ok(true) };
    let program = prepared.folder.join("overwrite");
    super::logs::build_overwrite(&program)?;
    let (here, there) = (prepared.ordo.display().to_string(), program.display().to_string());
    let mut files = guest::with_libraries(&[(here, "ordo")])?;
    let bytes = fs::read(&program).map_err(|e| format!("{there}: {e}"))?;
    files.push(("overwrite".to_owned(), bytes));
    let only = std::env::var("ORDERINGS").unwrap_or_default();
    let is_wanted = |ordering: &&str| only.is_empty() || only.split(' ').any(|o| o == *ordering);
    let (mut rows, mut sound) = (String::new(), true);
    for shortage in &SHORTAGES {
        for ordering in ORDERINGS.into_iter().filter(is_wanted) {
            let seen = measure(&prepared, &files, ordering, shortage);
            let judged = seen.as_ref().map_err(String::clone).and_then(|s| s.judge(shortage.seen));
            if let Err(why) = judged {
                eprintln!("FAILED: {ordering}, {}: {why}", shortage.name);
                sound = false;
            }
            let Ok(Seen { full, then, seconds }) = seen else { continue };
            let row = format!(
                "| {} | {ordering} | {} | {} | {seconds} |\n",
                shortage.name,
                full >> 10,
                then >> 10
            );
            eprint!("{row}");
            rows += &row;
        }
    }
    if sound && only.is_empty() {
        let file = crate::tidy::root().join("docs/results/pressure.md");
        let page = page(&prepared, &rows)?;
        fs::write(&file, page).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(sound)
}

/// Runs one guest, and checks its disk.
fn measure(
    prepared: &Prepared,
    files: &[(String, Vec<u8>)],
    ordering: &str,
    shortage: &Shortage,
) -> Result<Seen, String> {
    let folder = &prepared.folder;
    let name = format!("pressure-{ordering}-{}", shortage.name.replace([' ', ','], "-"));
    let file = |end: &str| folder.join(format!("{name}{end}"));
    let (image, serial, initramfs) = (file(".img"), file(".serial"), file(".cpio"));
    let work = WORK
        .replace("BEFORE", shortage.before)
        .replace("SHORT", shortage.short)
        .replace("BLOCKS", &(CACHE << 8).to_string())
        .replace("CACHE", &CACHE.to_string())
        .replace("LIMIT", &LIMIT.to_string());
    let archive = prepared.kernel.initramfs(("fuse", ordering), &work, &[], files)?;
    fs::write(&initramfs, archive).map_err(|e| format!("{}: {e}", initramfs.display()))?;
    let (path, ordo) = (image.display(), prepared.ordo.display());
    let log = if ordering == "journal" { "--journal file --journal-size 16m" } else { "" };
    shell(&format!("rm -f {path}; {ordo} mkfs --size {DISK} {log} {path}"))?;
    let guest = Guest { seconds: SECONDS, memory: MEMORY, ..Guest::default() };
    let out = emulate(&prepared.ordo, &prepared.kernel, &initramfs, &image, &serial, &guest)?;
    let said = String::from_utf8_lossy(&fs::read(&serial).unwrap_or_default()).into_owned();
    if !said.contains(AT_THE_END) || !out.status.success() {
        let error = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{}: {}; see {}", out.status, error.trim(), serial.display()));
    }
    shell(&format!("{ordo} fsck -f -n {path}"))?;
    for made in [&initramfs, &image] {
        let _ = fs::remove_file(made);
    }
    let number = |key: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(key));
        line.and_then(|n| n.trim().parse().ok()).ok_or(format!("no line {key}"))
    };
    Ok(Seen { full: number("full:")?, then: number("then:")?, seconds: number("seconds:")? })
}

fn page(prepared: &Prepared, rows: &str) -> Result<String, String> {
    let version = shell("qemu-system-x86_64 --version")?;
    let mut page = format!(
        "# A mount on a machine that is short of memory\n\n\
         Written by `make test-qemu-pressure`: Linux {} in {}, emulated in software, with {MEMORY} MB of memory and no swap.\n\
         The mount has `cache={CACHE}m`, filled with blocks at random places.\n\n",
        prepared.kernel.release,
        version.lines().next().unwrap_or_default(),
    );
    let _ = write!(
        page,
        "| short of memory | ordering | memory of the mount, MB | then, MB | after, s |\n|---|---|---:|---:|---:|\n{rows}"
    );
    page.push_str(
        "\nThe seconds are from the first 2 MB that the other program takes, some ten times a second, or from the group's limit, until\n\
         half of the cache is back. On the machine no program waited for memory before that, by the kernel's `/proc/pressure/memory`.\n\
         In each run every byte is as it was written, in the mount and after another mount, and a check finds nothing.\n\
         \"Unseen\" is the control: the mount looks for the kernel's signs in an empty folder, and keeps its memory.\n",
    );
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch a target that accepts a mount that kept its memory, a cache that was never full,
    /// and a control run that shows nothing.
    #[test]
    fn each_planted_fault_is_reported() {
        let judge = |full, then, seen| Seen { full, then, seconds: 3 }.judge(seen).is_ok();
        assert!(judge(150_000, 90_000, true));
        assert!(judge(150_000, 149_000, false));
        assert!(!judge(150_000, 149_000, true));
        assert!(!judge(150_000, 90_000, false));
        assert!(!judge(60_000, 5_000, true));
    }
}
