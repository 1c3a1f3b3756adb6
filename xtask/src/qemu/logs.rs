//! `make test-qemu-logs`: the bytes that NILFS2, F2FS and Ordo's LFS write for each byte that a
//! program overwrites.
//!
//! The program (`overwrite.rs`) is the same everywhere, and so are its seed, the sizes and the
//! disk. The kernel's systems run in a guest whose disk `ordo trace serve` serves; Ordo's is
//! mounted here, over `ordo trace attach`. A first mount fills the file and overwrites as much as
//! is free; only the second is counted. Logs stay in `target/qemu`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;

use super::guest::{self, AT_THE_END};
use super::{Guest, Prepared, emulate, number, prepare, shell};

/// Bytes of the disk.
const DISK: u64 = 256 << 20;
/// Bytes of a block of the program.
const BLOCK: u64 = 4096;
/// The size of the file.
#[derive(Clone, Copy)]
enum FileSize {
    /// A part of the space that the file system offers, in percent.
    Part(u64),
    /// The same bytes everywhere, in MB: the same part of the disk, whatever a file system keeps
    /// for itself.
    Same(u64),
}

impl FileSize {
    /// The size as the table has it.
    fn words(self) -> String {
        match self {
            FileSize::Part(percent) => format!("{percent} %"),
            FileSize::Same(mb) => format!("{mb} MB"),
        }
    }

    /// The blocks of the file, and the blocks that are called free, where the system offers `room`
    /// KB. Beside a file of the same size everywhere the rest of the disk is called free.
    fn room(self, room: u64) -> Room {
        match self {
            FileSize::Part(percent) => {
                let blocks = room * percent / 400;
                Room { blocks, free: room / 4 - blocks }
            }
            FileSize::Same(mb) => {
                let blocks = (mb << 20) / BLOCK;
                Room { blocks, free: DISK / BLOCK - blocks }
            }
        }
    }
}

/// The runs: the size of the file, and the program's choice of blocks with its name.
const RUNS: [(FileSize, &str, &str); 5] = [
    (FileSize::Part(50), "uniform", "uniform"),
    (FileSize::Part(75), "uniform", "uniform"),
    (FileSize::Part(85), "uniform", "uniform"),
    (FileSize::Part(75), "hot", "90/10"),
    (FileSize::Same(128), "uniform", "uniform"),
];
const SEED: u64 = 21;
/// The time limit of a mount, in seconds.
const SECONDS: &str = "300";
/// The programs that are needed, each with its Debian package.
const NEEDED: [(&str, &str); 7] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mkfs.nilfs2", "nilfs-tools"),
    ("nilfs_cleanerd", "nilfs-tools"),
    ("mkfs.f2fs", "f2fs-tools"),
    ("fsck.f2fs", "f2fs-tools"),
    ("timeout", "coreutils"),
    ("rustc", "rustc"),
];
/// The cleaner daemon's settings: no checkpoint is kept back, and it cleans without a pause as soon
/// as less than a twentieth of the segments is clean, until a tenth is.
const CLEANERD: &str = "protection_period 0
min_clean_segments 5%
max_clean_segments 10%
clean_check_interval 1
selection_policy timestamp
nsegments_per_clean 4
mc_nsegments_per_clean 8
cleaning_interval 0
mc_cleaning_interval 0
retry_interval 1
min_reclaimable_blocks 1%
mc_min_reclaimable_blocks 1%
use_set_suinfo
use_mmap
log_priority err
";
const CLEANERD_PATH: &str = "/usr/sbin/nilfs_cleanerd";
/// Shell lines of the guest before the program, and after it.
const START_CLEANERD: &str = "ln -s /proc/mounts /etc/mtab
mkdir /dev/shm
mount -t tmpfs none /dev/shm
/usr/sbin/nilfs_cleanerd -c /etc/nilfs_cleanerd.conf /dev/vda /mnt
sleep 1
cleaner=$(pidof nilfs_cleanerd)";
const END_CLEANERD: &str = "kill $cleaner
while kill -0 $cleaner 2>/dev/null; do sleep 1; done";

/// A file system with its settings.
struct Log {
    name: &'static str,
    /// The module of the guest's kernel; none for Ordo's.
    module: Option<&'static str>,
    /// Arguments of mkfs. The image is appended.
    make: &'static str,
    options: &'static str,
    before: &'static str,
    after: &'static str,
    check: &'static str,
}

const fn f2fs(name: &'static str, options: &'static str, before: &'static str) -> Log {
    Log {
        name,
        module: Some("f2fs"),
        make: "mkfs.f2fs -q -f",
        options,
        before,
        after: "",
        check: "fsck.f2fs --dry-run",
    }
}

const fn lfs(name: &'static str, options: &'static str) -> Log {
    Log {
        name,
        module: None,
        make: "$ORDO mkfs --fs lfs --size 256m --segment-size 1m --block-size 4k --frag-size 4k",
        options,
        before: "",
        after: "",
        check: "$ORDO fsck -f",
    }
}

const LOGS: [Log; 6] = [
    Log {
        name: "NILFS2",
        module: Some("nilfs2"),
        make: "mkfs.nilfs2 -q -f -B 256",
        options: "rw",
        before: START_CLEANERD,
        after: END_CLEANERD,
        check: "true",
    },
    f2fs("F2FS as mounted", "rw", ""),
    f2fs("F2FS, ipu_policy=16", "rw", "echo 16 > /sys/fs/f2fs/vda/ipu_policy"),
    f2fs("F2FS, mode=lfs", "mode=lfs", ""),
    lfs("LFS, cost-benefit", "cleaner=cost-benefit"),
    lfs("LFS, hot-cold", "cleaner=hot-cold"),
];

/// The counts of the second mount.
struct Seen {
    analysis: Value,
    room: Room,
    /// The number of calls that were refused for want of space and tried again.
    refused: u64,
    seconds: f64,
}

/// The places of everything that a run needs.
struct Bench {
    prepared: Prepared,
    program: PathBuf,
    /// The files that the guest needs besides BusyBox.
    files: Vec<(String, Vec<u8>)>,
}

/// Runs everything. Returns whether every run came to its end with sound counts.
///
/// # Errors
/// A program or a file cannot be had, or the page cannot be written.
pub fn run(ordo: &Path) -> Result<bool, String> {
    let Some(prepared) = prepare("test-qemu-logs", &NEEDED, ordo)? else { return Ok(true) };
    let program = prepared.folder.join("overwrite");
    build_overwrite(&program)?;
    let files = guest_files(&program)?;
    let bench = Bench { prepared, program, files };
    let (mut rows, mut failed) = (String::new(), false);
    for (size, shape, words) in RUNS {
        for log in &LOGS {
            let seen = bench.measure(log, size, shape);
            if let Err(why) = &seen {
                eprintln!("{}, {}, {words}: {why}", log.name, size.words());
                // A system that has no room for the file, or cleans without end, is a result.
                failed |= !why.starts_with(NO_ROOM) && !why.starts_with(TOO_SLOW);
            }
            let row = row(log, size, words, &seen);
            eprint!("{row}");
            rows += &row;
        }
    }
    let page = page(&bench, &rows)?;
    print!("{page}");
    if !failed {
        let file = crate::tidy::root().join("docs/results/lfs-beside.md");
        fs::write(&file, page).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(!failed)
}

/// Builds the program that overwrites, without libraries.
///
/// # Errors
/// The compiler's.
pub fn build_overwrite(to: &Path) -> Result<(), String> {
    let source = crate::tidy::root().join("xtask/src/qemu/overwrite.rs");
    let (from, to) = (source.display(), to.display());
    shell(&format!("rustc --edition 2024 -O -C target-feature=+crt-static -o {to} {from}"))?;
    Ok(())
}

/// The first words about a system in which the file finds no room.
const NO_ROOM: &str = "no room";
/// The first words about a system that did not end in the time limit.
const TOO_SLOW: &str = "not at its end after";
/// The status of timeout(1) when it ended its command.
const TIMED_OUT: i32 = 124;

/// The program, and the cleaner daemon with its libraries and settings.
fn guest_files(program: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = guest::with_libraries(&[(CLEANERD_PATH.to_owned(), &CLEANERD_PATH[1..])])?;
    let bytes = fs::read(program).map_err(|e| format!("{}: {e}", program.display()))?;
    files.push(("overwrite".to_owned(), bytes));
    files.push(("etc/nilfs_cleanerd.conf".to_owned(), CLEANERD.into()));
    Ok(files)
}

impl Bench {
    /// Fills the file and wears the log, then counts a second mount.
    fn measure(&self, log: &Log, size: FileSize, shape: &str) -> Result<Seen, String> {
        let image = self.prepared.folder.join("log.img");
        let path = image.display();
        let ordo = self.prepared.ordo.display();
        let setting = format!("export ORDO={ordo} PATH=$PATH:/usr/sbin:/sbin");
        shell(&format!("{setting}; rm -f {path}; truncate -s {DISK} {path}; {} {path}", log.make))?;
        // The shell works out the numbers of blocks from what `df` says on the first mount.
        let room = "room=$(df -Pk MOUNT | tail -1 | awk '{ print $4 }')\necho \"room: $room\"";
        let numbers = match size {
            FileSize::Part(percent) => {
                format!("blocks=$((room * {percent} / 400))\nfree=$((room / 4 - blocks))")
            }
            FileSize::Same(_) => {
                let Room { blocks, free } = size.room(0);
                format!("blocks={blocks}\nfree={free}")
            }
        };
        let offered = format!("{room}\n{numbers}");
        let fill = "overwrite fill MOUNT/file $blocks";
        let wear = format!("overwrite {shape} MOUNT/file $blocks {SEED} 0 $free");
        let (_, said) = self.mounted(log, &image, &[&offered, fill, &wear], "worn")?;
        let room = size.room(after(&said, "room: ").ok_or("df printed nothing")?);
        let Room { blocks, free } = room;
        let count = format!("overwrite {shape} MOUNT/file {blocks} {SEED} {free} {free}");
        let begun = Instant::now();
        let (out, said) = self.mounted(
            log,
            &image,
            &[&count],
            &format!("{}-{shape}", size.words().replace([' ', '%'], "")),
        )?;
        let seconds = begun.elapsed().as_secs_f64();
        shell(&format!("{setting}; {} {path}", log.check))?;
        let refused = after(&said, "tried again: ").ok_or("the program printed no count")?;
        let analysis: Value = serde_json::from_slice(&out.stdout).map_err(|e| e.to_string())?;
        judge(&analysis, free * BLOCK)?;
        let _ = fs::remove_file(&image);
        Ok(Seen { analysis, room, refused, seconds })
    }

    /// Runs the program on a mount. Returns Ordo's output, and the program's.
    fn mounted(
        &self,
        log: &Log,
        image: &Path,
        calls: &[&str],
        run: &str,
    ) -> Result<(Output, String), String> {
        let name: String = log.name.chars().filter(char::is_ascii_alphanumeric).collect();
        let file = |end: &str| self.prepared.folder.join(format!("{name}-{run}.{end}"));
        let (out, said) = match log.module {
            Some(module) => {
                let work = guest_work(log, calls);
                let extra: &[&str] = if module == "f2fs" { &["crc32_generic"] } else { &[] };
                let mount = (module, log.options);
                let archive = self.prepared.kernel.initramfs(mount, &work, extra, &self.files)?;
                let (initramfs, serial) = (file("cpio"), file("serial"));
                fs::write(&initramfs, archive).map_err(|e| e.to_string())?;
                let guest =
                    Guest { seconds: SECONDS, serve: &["--without-contents"], ..Guest::default() };
                let out = emulate(
                    &self.prepared.ordo,
                    &self.prepared.kernel,
                    &initramfs,
                    image,
                    &serial,
                    &guest,
                )?;
                let _ = fs::remove_file(&initramfs);
                let said = fs::read(&serial).unwrap_or_default();
                (out, String::from_utf8_lossy(&said).into_owned())
            }
            None => self.mounted_here(log, image, calls)?,
        };
        fs::write(file("json"), &out.stdout).map_err(|e| e.to_string())?;
        let error = String::from_utf8_lossy(&out.stderr);
        match said.contains(AT_THE_END) && out.status.success() {
            true => Ok((out, said)),
            false if said.contains("StorageFull") => Err(format!("{NO_ROOM} for the file")),
            false if out.status.code() == Some(TIMED_OUT) => Err(too_slow(&out.stdout)),
            false => Err(format!("{}: {}\n{said}", out.status, error.trim())),
        }
    }

    /// The program on Ordo's own mount.
    fn mounted_here(
        &self,
        log: &Log,
        image: &Path,
        calls: &[&str],
    ) -> Result<(Output, String), String> {
        let mount = std::env::temp_dir().join(format!("ordo-logs-{}", std::process::id()));
        fs::create_dir_all(&mount).map_err(|e| format!("{}: {e}", mount.display()))?;
        let (ordo, at) = (self.prepared.ordo.display(), mount.display());
        let program = self.program.parent().unwrap_or(Path::new("/")).display();
        // The analysis is on the standard output, so the program's words go beside it.
        let said = self.prepared.folder.join("log.said");
        let mut script = format!(
            "exec >{} 2>&1\ntrap 'umount {at}' EXIT\n{ordo} mount -q -o {} $ORDO_DEVICE {at}\n",
            said.display(),
            log.options
        );
        for call in calls {
            let call = call.replace("overwrite ", &format!("{program}/overwrite "));
            let _ = writeln!(script, "{}", call.replace("MOUNT", &at.to_string()));
        }
        let _ = writeln!(script, "echo {AT_THE_END}");
        let mut attach = Command::new(&self.prepared.ordo);
        attach.args(["trace", "attach", "--json", "--without-contents"]).arg(image);
        attach.args(["--", "timeout", "-k", "10", SECONDS, "bash", "-e", "-c", &script]);
        let out = attach.output().map_err(|e| format!("{ordo}: {e}"))?;
        let _ = fs::remove_dir(&mount);
        let said = fs::read(&said).unwrap_or_default();
        Ok((out, String::from_utf8_lossy(&said).into_owned()))
    }
}

/// The blocks of the file, and the blocks that are called free: as many are overwritten in each
/// mount.
#[derive(Clone, Copy)]
struct Room {
    blocks: u64,
    free: u64,
}

/// The number after some words.
fn after(said: &str, words: &str) -> Option<u64> {
    said.split(words).nth(1)?.split_whitespace().next()?.parse().ok()
}

/// The guest's work: mount, program, unmount.
fn guest_work(log: &Log, calls: &[&str]) -> String {
    let mut work = format!(
        "mkdir -p /sys\nmount -t sysfs none /sys\nmount -t $1 -o $2 /dev/vda /mnt\n{}\n",
        log.before
    );
    for call in calls {
        let call = call.replace("overwrite ", "/overwrite ");
        let _ = writeln!(work, "{}", call.replace("MOUNT", "/mnt"));
    }
    let _ = writeln!(work, "{}\numount /mnt\necho AT_THE_END", log.after);
    work
}

/// The words about a system that did not end in the time limit, with what it wrote until then.
fn too_slow(counts: &[u8]) -> String {
    let analysis: Value = serde_json::from_slice(counts).unwrap_or_default();
    let kinds = analysis["writes"].as_object();
    let all: u64 = kinds.into_iter().flatten().map(|(_, counts)| number(counts, "/bytes")).sum();
    format!("{TOO_SLOW} {SECONDS} s and {} MB", all >> 20)
}

/// Checks the counts: every block is known, and the program's bytes are among those that were
/// written.
fn judge(analysis: &Value, program: u64) -> Result<(), String> {
    if !analysis["unknown"].as_object().is_some_and(|unknown| unknown.is_empty()) {
        return Err(format!("unknown blocks: {}", analysis["unknown"]));
    }
    let contents = written(analysis, "file_data");
    // A block that is written twice between two fsyncs is written to the disk once.
    match contents * 10 >= program * 9 {
        true => Ok(()),
        false => Err(format!("{contents} bytes of contents were seen, of {program}")),
    }
}

/// The bytes of a kind that were written.
fn written(analysis: &Value, kind: &str) -> u64 {
    number(analysis, &format!("/writes/{kind}/bytes"))
}

/// A line of the table.
fn row(log: &Log, size: FileSize, shape: &str, seen: &Result<Seen, String>) -> String {
    let head = format!("| {} | {shape} | {} |", size.words(), log.name);
    let seen = match seen {
        Ok(seen) => seen,
        Err(why) => {
            let why = why.lines().next().unwrap_or_default();
            return format!("{head} | {why} | | | | | |\n");
        }
    };
    let program = (seen.room.free * BLOCK) as f64;
    let each = |bytes: u64| bytes as f64 / program;
    let writes = seen.analysis["writes"].as_object();
    let mut kinds: Vec<(&str, u64)> =
        writes.into_iter().flatten().map(|(k, v)| (k.as_str(), number(v, "/bytes"))).collect();
    kinds.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), *name));
    let all: u64 = kinds.iter().map(|(_, bytes)| bytes).sum();
    let contents = written(&seen.analysis, "file_data") + written(&seen.analysis, "cleaner");
    let others: Vec<String> = kinds
        .iter()
        .filter(|(name, bytes)| *name != "file_data" && each(*bytes) >= 0.005)
        .map(|(name, bytes)| format!("{} {:.2}", name.replace('_', " "), each(*bytes)))
        .collect();
    format!(
        "{head} {}, {} | {:.2} | {:.2} | {:.2} | {} | {} | {:.0} |\n",
        (seen.room.blocks * BLOCK) >> 20,
        (seen.room.free * BLOCK) >> 20,
        each(all),
        each(contents) - 1.0,
        each(all - contents),
        others.join(", "),
        seen.refused,
        seen.seconds
    )
}

fn page(bench: &Bench, rows: &str) -> Result<String, String> {
    let versions = shell(
        "export PATH=$PATH:/usr/sbin:/sbin; qemu-system-x86_64 --version | head -1; \
         mkfs.f2fs -V 2>&1 | head -1; mkfs.nilfs2 -V 2>&1 | head -1; git rev-parse --short HEAD",
    )?;
    let mut versions = versions.lines().map(str::trim);
    let mut version = || versions.next().unwrap_or_default();
    let (qemu, f2fs, nilfs, commit) = (version(), version(), version(), version());
    let mut out = format!(
        "# LFS beside NILFS2 and F2FS\n\nWritten by `make test-qemu-logs` at {commit}: Linux {} in {qemu}, emulated in \
         software; {f2fs}; {nilfs}.\n\n",
        bench.prepared.kernel.release
    );
    out.push_str(BEGINNING);
    let _ = write!(out, "```\n{CLEANERD}```\n\n");
    out.push_str(
        "| full | blocks | system | MB: file, free | written for each byte | contents moved | metadata | kinds other than file data | refused \
         | seconds |\n|---:|---|---|---:|---:|---:|---:|---|---:|---:|\n",
    );
    out.push_str(rows);
    out.push_str(END);
    Ok(out)
}

/// The text above the table.
const BEGINNING: &str = "One program overwrites random blocks of 4 KB in one file, with an fsync after every 64, from one seed (21). The disk has \
256 MB; the file takes the given part of the space that `df` offers on the new file system, and the rest of that is called free. \
A first mount fills the file and overwrites as many bytes as are free, so that the log has gone around. Only the second mount \
is counted, with its mount and unmount: it overwrites as many bytes once more. The last rows have a file of the same size \
everywhere, half of the disk; the other half is called free. \"90/10\" sends nine writes of ten to every tenth \
block. All have blocks of 4 KB (LFS: fragments of 4 KB too); NILFS2 and LFS have segments of 1 MB, F2FS of 2 MB.

NILFS2 and F2FS run in the guest; `ordo trace serve` serves and watches their disk. LFS is mounted through FUSE on the host, on a \
device that `ordo trace attach` watches. \"Contents moved\" are the bytes of file data and of the cleaner's segments, less the \
program's: contents that a cleaner wrote again (a little below 0 where a block was overwritten twice before an \
fsync). Ordo's own decoder tells the cleaner's partial segments apart (\"cleaner\", with \
their summaries and metadata). \"Refused\" counts calls that failed for want of clean space (ENOSPC) and were tried again 100 ms \
later. Seconds say only how long the run took here.

NILFS2's cleaner daemon runs in the guest with these settings:

";

/// The text below the table.
const END: &str = "
The systems differ first in the space that they keep for themselves. Of the 256 MB, F2FS offers 169, LFS 216, NILFS2 240, so that 75 % \
full means 50, 63 and 70 % of the disk, and cleaning costs more the fuller the disk is; the rows with a file of the same size \
leave this out. They differ next in what a written block \
drags along. An fsync of 64 scattered blocks also writes their indirect blocks: LFS has one for each 512 blocks (addresses of 8 \
bytes), F2FS one node for each 1,018 (4 bytes), found by number, so that nothing above it changes. NILFS2 writes nodes of its tree, and \
blocks of its address map, which changes for every block that is written, dies or moves. Checkpoints and summaries are small in all three. They \
differ last in the cleaner. On a disk of less than 16 GB F2FS overwrites in place, so the row \"as mounted\" measures no log. With \
`ipu_policy=16`, which larger disks get, it writes elsewhere, but into holes of used segments, and moves nothing. Only with \
`mode=lfs` does it need clean segments, as LFS and NILFS2 always do; that is the row to compare. NILFS2's daemon takes the oldest \
segments, whatever is live in them, and does not stop while less than a twentieth is clean, also while the program waits. Its \
figures are as much its settings' as the system's.
";

#[cfg(test)]
mod tests {
    use super::*;

    /// A right analysis passes, and one without the program's bytes or with unknown blocks does
    /// not. Would catch a page of figures from a run in which nothing was written.
    #[test]
    fn counts_without_the_programs_bytes_are_refused() {
        let mut analysis =
            serde_json::json!({"unknown": {}, "writes": {"file_data": {"bytes": 950}}});
        assert_eq!(judge(&analysis, 1000), Ok(()));
        assert!(judge(&analysis, 2000).is_err());
        analysis["unknown"] = serde_json::json!({"damaged": 1});
        assert!(judge(&analysis, 1000).is_err());
        assert!(judge(&Value::Null, 1000).is_err());
    }

    /// A run that was ended says how much was written until then. Would catch a row that hides a
    /// system without an end.
    #[test]
    fn a_run_that_was_ended_tells_its_bytes() {
        let counts =
            br#"{"writes": {"file_data": {"bytes": 2097152}, "inode_map": {"bytes": 1048576}}}"#;
        assert_eq!(too_slow(counts), "not at its end after 300 s and 3 MB");
    }

    /// The row's figures are the counted bytes over the program's. Would catch contents that are
    /// counted twice, or the cleaner's among the metadata.
    #[test]
    fn a_row_divides_by_the_programs_bytes() {
        let room = Room { blocks: 1 << 15, free: 1 << 10 };
        let program = room.free * BLOCK;
        let analysis = serde_json::json!({"writes": {
            "file_data": {"bytes": program}, "cleaner": {"bytes": program / 2}, "inode_map": {"bytes": program / 4},
            "superblock": {"bytes": 512},
        }});
        let seen = Ok(Seen { analysis, room, refused: 3, seconds: 7.0 });
        let row = row(&LOGS[4], FileSize::Part(75), "uniform", &seen);
        let expected = "| 75 % | uniform | LFS, cost-benefit | 128, 4 | 1.75 | 0.50 | 0.25 | cleaner 0.50, inode map 0.25 | 3 | 7 |\n";
        assert_eq!(row, expected);
    }
}
