//! `make infer-qemu`: `ordo infer` in a guest whose kernel has JFS and ReiserFS, and what it finds
//! beside what "Analysis and Evolution of Journaling File Systems" (2005) found in Linux 2.4.
//!
//! Everything runs in the guest: the pseudo-device, mkfs, the experiments. The machine is emulated
//! in software, so the times of single requests mean nothing; delays and timers are many times
//! longer. Writes docs/results/infer-papers.md.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::guest::{self, AT_THE_END};
use super::{Prepared, prepare, shell};

/// The time limit of a guest, in seconds.
const SECONDS: &str = "1500";
/// The number of guests at once.
const AT_ONCE: usize = 2;
/// The memory of the guest in MB: a device, a copy of it, and what the recording keeps.
const MEMORY: &str = "1536";
/// The programs that are needed, each with its Debian package.
const NEEDED: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mkfs.jfs", "jfsutils"),
    ("mkfs.reiserfs", "reiserfsprogs"),
    ("mke2fs", "e2fsprogs"),
    ("timeout", "coreutils"),
];
/// The programs of the guest besides `ordo` and BusyBox.
const PROGRAMS: [&str; 7] =
    ["mkfs.jfs", "fsck.jfs", "mkfs.reiserfs", "mke2fs", "mount", "umount", "sync"];
/// The guest's work. What follows the first marker is the findings.
const WORK: &str = "mkdir -p /tmp /sys /etc
mount -t sysfs none /sys
export PATH=/usr/bin:/bin
/ordo infer --fs NAME --mkfs 'MKFS' --mount-opts $2 --size 128m --wait 60 --json > /findings
echo FINDINGS
cat /findings
echo AT_THE_END
";
const MARKER: &str = "FINDINGS";

/// A file system, its mount, and what the paper found.
struct Studied {
    /// The name, as `ordo infer` takes it.
    name: &'static str,
    /// The kernel's module.
    module: &'static str,
    mkfs: &'static str,
    options: &'static str,
    published: &'static [Published],
}

/// A finding of the paper.
struct Published {
    question: &'static str,
    said: &'static str,
    section: &'static str,
    agrees: Agrees,
}

/// The factor between the ends of an interval from which on it says too little to agree with
/// anything.
const NARROW: f64 = 2.0;

/// When an answer agrees with the paper's.
enum Agrees {
    /// The answer has these words.
    Says(&'static str),
    /// The answer's interval has a value of this range, and is narrower than a factor of
    /// [`NARROW`].
    Within(f64, f64),
}

const fn published(
    question: &'static str,
    said: &'static str,
    section: &'static str,
    agrees: Agrees,
) -> Published {
    Published { question, said, section, agrees }
}

const BLOCKS: Published =
    published("what is logged", "whole blocks", "3.3.5, 4.1", Agrees::Says("whole blocks"));
const TANGLED: Published = published(
    "compound transactions",
    "one transaction has all processes' changes (tangled synchrony)",
    "3.2.1, 4.2.1",
    Agrees::Says("changes of all processes"),
);
const SERIAL: Published = published(
    "journal and fixed-location writes overlap",
    "no: falsely limited parallelism",
    "3.2.2, 4.2.2",
    Agrees::Within(0.0, 0.05),
);
const ORDERED: Published = published(
    "journaling mode",
    "data are written before their transaction is",
    "3.1, 4.2.2",
    Agrees::Says("a commit waits for data"),
);
const DATA: Published = published(
    "journaling mode",
    "data go to the journal",
    "3.1, 4.2.1",
    Agrees::Says("data and metadata are journaled"),
);
const WRITEBACK: Published = published(
    "journaling mode",
    "no order between data and metadata",
    "3.1, 4.2.1",
    Agrees::Says("no order"),
);
const EXT3_COMMIT: Published =
    published("commit threshold", "a quarter of the journal", "3.2.2", Agrees::Within(0.25, 0.25));
const EXT3_CHECKPOINT: Published = published(
    "checkpoint trigger",
    "between a quarter and a half of the journal",
    "3.2.3",
    Agrees::Within(0.25, 0.5),
);
const EXT3_TIMER: Published = published("commit timer", "5 s", "3.2.2", Agrees::Within(5.0, 5.0));
// A journal of ReiserFS has 8,192 blocks unless mkfs is told otherwise.
const REISER_COMMIT: Published = published(
    "commit threshold",
    "about 900 blocks of a journal over 8 MB: 0.11 of 32 MB",
    "4.2.2",
    Agrees::Within(0.09, 0.13),
);
const REISER_CHECKPOINT: Published = published(
    "checkpoint trigger",
    "before 7/8 of the journal, or after 128 transactions",
    "4.2.3",
    Agrees::Within(0.0, 0.875),
);
const REISER_TIMER: Published =
    published("commit timer", "within the first five seconds", "4.2.3", Agrees::Within(0.0, 5.0));

const STUDIED: [Studied; 7] = [
    Studied {
        name: "ext3",
        module: "ext4",
        mkfs: "-J size=8",
        options: "data=ordered",
        published: &[ORDERED, BLOCKS, TANGLED, SERIAL, EXT3_COMMIT, EXT3_CHECKPOINT, EXT3_TIMER],
    },
    Studied {
        name: "ext3",
        module: "ext4",
        mkfs: "-J size=8",
        options: "data=journal",
        published: &[DATA, BLOCKS, TANGLED, EXT3_COMMIT, EXT3_CHECKPOINT, EXT3_TIMER],
    },
    Studied {
        name: "ext3",
        module: "ext4",
        mkfs: "-J size=8",
        options: "data=writeback",
        published: &[WRITEBACK, BLOCKS, TANGLED, EXT3_COMMIT, EXT3_TIMER],
    },
    Studied {
        name: "reiserfs",
        module: "reiserfs",
        mkfs: "",
        options: "data=ordered",
        published: &[
            ORDERED,
            BLOCKS,
            TANGLED,
            SERIAL,
            REISER_COMMIT,
            REISER_CHECKPOINT,
            REISER_TIMER,
        ],
    },
    Studied {
        name: "reiserfs",
        module: "reiserfs",
        mkfs: "",
        options: "data=journal",
        published: &[DATA, BLOCKS, TANGLED, REISER_COMMIT, REISER_CHECKPOINT, REISER_TIMER],
    },
    Studied {
        name: "reiserfs",
        module: "reiserfs",
        mkfs: "",
        options: "data=writeback",
        published: &[WRITEBACK, BLOCKS, TANGLED, REISER_COMMIT, REISER_TIMER],
    },
    Studied {
        name: "jfs",
        module: "jfs",
        mkfs: "",
        options: "defaults",
        published: &[
            published(
                "journaling mode",
                "ordered: data are written before the metadata are",
                "5",
                Agrees::Says("(ordered)"),
            ),
            published(
                "what is logged",
                "records: only the structure that changed",
                "5",
                Agrees::Says("records of changes"),
            ),
            published(
                "compound transactions",
                "concurrent updates are not grouped by default",
                "5",
                Agrees::Says("does not write the changes of others"),
            ),
            published(
                "commit timer",
                "none: journal writes are delayed without end",
                "5",
                Agrees::Within(1e300, f64::INFINITY),
            ),
        ],
    },
];

/// Runs all guests. Returns whether each came to its end.
///
/// # Errors
/// A program or a file cannot be had.
pub fn run(ordo: &Path) -> Result<bool, String> {
    let Some(prepared) = prepare("infer-qemu", &NEEDED, ordo)? else { return Ok(true) };
    let files = guest_files(&prepared)?;
    let only = std::env::var("ONLY").unwrap_or_default();
    let is_chosen =
        |studied: &&Studied| format!("{} {}", studied.name, studied.options).contains(&only);
    let mut sound = true;
    let chosen: Vec<&Studied> = STUDIED.iter().filter(is_chosen).collect();
    // A guest waits for most of its time.
    for some in chosen.chunks(AT_ONCE) {
        let found = std::thread::scope(|scope| {
            let (prepared, files) = (&prepared, &files);
            let run = |studied| scope.spawn(move || findings(prepared, files, studied));
            let guests: Vec<_> = some.iter().copied().map(run).collect();
            guests.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        for (studied, found) in some.iter().zip(found) {
            if let Err(why) = found.unwrap_or_else(|_| Err("it panicked".into())) {
                eprintln!("FAILED: {} {}: {why}", studied.name, studied.options);
                sound = false;
            }
        }
    }
    let mut rows = String::new();
    for studied in &STUDIED {
        match kept(&prepared.folder, studied) {
            Some(all) => rows += &table(studied, &all),
            None => sound = false,
        }
    }
    let page = page(&prepared.kernel.release, &rows)?;
    print!("{page}");
    if sound {
        let file = crate::tidy::root().join("docs/results/infer-papers.md");
        fs::write(&file, page).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(sound)
}

/// The command and the other programs, with their libraries.
fn guest_files(prepared: &Prepared) -> Result<Vec<(String, Vec<u8>)>, String> {
    // Names of lines are of no use in the guest, and many times as large as the rest.
    let small = prepared.folder.join("ordo");
    shell(&format!("strip -o {} {}", small.display(), prepared.ordo.display()))?;
    let mut programs = vec![(small.display().to_string(), "ordo".to_owned())];
    for name in PROGRAMS {
        let path = shell(&format!("PATH=$PATH:/usr/sbin:/sbin command -v {name}"))?;
        programs.push((path.trim().to_owned(), format!("usr/bin/{name}")));
    }
    let programs: Vec<(String, &str)> =
        programs.iter().map(|(path, name)| (path.clone(), name.as_str())).collect();
    guest::with_libraries(&programs)
}

/// A file of one guest.
fn file_of(folder: &Path, studied: &Studied, end: &str) -> PathBuf {
    folder.join(format!("infer-{}-{}{end}", studied.name, studied.options.replace('=', "-")))
}

/// The findings of the last guest with this file system.
fn kept(folder: &Path, studied: &Studied) -> Option<Vec<Value>> {
    let said = fs::read(file_of(folder, studied, ".serial")).ok()?;
    found_in(&String::from_utf8_lossy(&said)).ok()
}

/// The findings that a guest printed.
fn found_in(said: &str) -> Result<Vec<Value>, String> {
    let json = said.split_once(MARKER).and_then(|(_, rest)| rest.split_once(AT_THE_END));
    let (json, _) = json.ok_or("the guest did not come to its end")?;
    serde_json::from_str(json.trim()).map_err(|e| format!("its findings are no JSON: {e}"))
}

/// Runs one guest, whose findings are then in the file of its console.
fn findings(
    prepared: &Prepared,
    files: &[(String, Vec<u8>)],
    studied: &Studied,
) -> Result<(), String> {
    let file = |end: &str| file_of(&prepared.folder, studied, end);
    let (serial, initramfs) = (file(".serial"), file(".cpio"));
    let work = WORK.replace("NAME", studied.name).replace("MKFS", studied.mkfs);
    let of = (studied.module, studied.options);
    let archive =
        prepared.kernel.initramfs(of, &work, &["fuse", "loop", "crc32c_generic"], files)?;
    fs::write(&initramfs, archive).map_err(|e| format!("{}: {e}", initramfs.display()))?;
    let _ = fs::remove_file(&serial);
    let mut guest = Command::new("timeout");
    guest.args(["-k", "10", SECONDS, "qemu-system-x86_64"]);
    guest.args(["-machine", "q35,accel=tcg", "-smp", "2", "-m", MEMORY, "-nodefaults"]);
    guest.args(["-no-reboot", "-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
    guest.args(["-display", "none", "-serial"]).arg(format!("file:{}", serial.display()));
    guest.arg("-kernel").arg(&prepared.kernel.image).arg("-initrd").arg(&initramfs);
    let status = guest.stdin(Stdio::null()).status().map_err(|e| format!("the emulator: {e}"))?;
    let said = fs::read(&serial).unwrap_or_default();
    let _ = fs::remove_file(&initramfs);
    let found = found_in(&String::from_utf8_lossy(&said));
    found.map(drop).map_err(|why| format!("{why} ({status}), see {}", serial.display()))
}

/// Whether an answer is a number, and too vague to say whether it agrees.
fn is_vague(rule: &Agrees, finding: &Value) -> bool {
    let at = |n: usize| finding["interval"][n].as_f64();
    matches!(rule, Agrees::Within(low, high)
        if at(0).zip(at(1)).is_some_and(|ends| is_wide(ends) && ends.0 <= *high && ends.1 >= *low))
}

fn agrees(rule: &Agrees, finding: &Value) -> bool {
    match rule {
        Agrees::Says(words) => {
            finding["answer"].as_str().is_some_and(|answer| answer.contains(words))
        }
        Agrees::Within(low, high) => {
            let at = |n: usize| finding["interval"][n].as_f64();
            at(0).zip(at(1)).is_some_and(|ends| ends.0 <= *high && ends.1 >= *low && !is_wide(ends))
        }
    }
}

/// Whether an interval is too wide to agree with a number. One that begins near zero may be:
/// nothing is below it.
fn is_wide((from, to): (f64, f64)) -> bool {
    /// The values that count as none.
    const NONE: f64 = 0.05;
    to > NONE && to >= from * NARROW
}

/// A table row for each finding of the paper, and for each other answer.
fn table(studied: &Studied, all: &[Value]) -> String {
    let mut rows = String::new();
    let system = format!("{} {} {}", studied.name, studied.mkfs, studied.options);
    let system = system.split_whitespace().collect::<Vec<_>>().join(" ");
    for finding in all {
        let question = finding["question"].as_str().unwrap_or_default();
        let answer = finding["answer"].as_str().unwrap_or_default();
        let known = studied.published.iter().find(|published| published.question == question);
        let (said, same) = known.map_or((String::new(), ""), |published| {
            let same = match answer {
                _ if answer.starts_with("not reached") => "not shown",
                _ if agrees(&published.agrees, finding) => "yes",
                _ if is_vague(&published.agrees, finding) => "not shown",
                _ => "no",
            };
            (format!("{} ({})", published.said, published.section), same)
        });
        let _ = writeln!(rows, "| {system} | {question} | {answer} | {said} | {same} |");
    }
    rows
}

fn page(release: &str, rows: &str) -> Result<String, String> {
    let version = shell("qemu-system-x86_64 --version")?;
    let version = version.lines().next().unwrap_or_default();
    let ends =
        |word: &str| rows.lines().filter(|row| row.ends_with(&format!("| {word} |"))).count();
    let (same, other, open) = (ends("yes"), ends("no"), ends("not shown"));
    Ok(format!(
        "# Policies beside the paper's\n\nWritten by `make infer-qemu`: `ordo infer` in Linux {release} in {version}, emulated in \
         software on {} processors. The paper is\n\"Analysis and Evolution of Journaling File Systems\" (2005), which studied Linux 2.4; \
         the number in brackets is its section. Where the\npaper gives a number, \"yes\" means that the interval has it and is narrower than a factor of two. [How each is \
         found](../analysis.md#policies).\n\n\
         | file system | question | found in Linux {release} | found in 2005 | same |\n|---|---|---|---|---|\n{rows}\n\
         Of {} findings of the paper {same} are the same, {other} are others, and {open} are not shown: their thresholds were not \
         reached, or\nthe interval is too wide to say.\n",
        shell("nproc")?.trim(),
        same + other + open,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer agrees by its words or by its interval, and a table counts both outcomes. Would
    /// catch a comparison that always agrees.
    #[test]
    fn answers_agree_or_do_not() {
        let finding = |answer: &str, interval: Value| {
            serde_json::json!({
            "question": "commit timer", "answer": answer, "interval": interval })
        };
        let five = finding("4 to 6 s", serde_json::json!([4.0, 6.0]));
        assert!(agrees(&EXT3_TIMER.agrees, &five));
        assert!(!agrees(&EXT3_TIMER.agrees, &finding("", serde_json::json!([5.5, 6.0]))));
        assert!(!agrees(&EXT3_TIMER.agrees, &finding("no timer", Value::Null)));
        let vague = finding("0.03 to 0.88", serde_json::json!([0.03, 0.88]));
        assert!(!agrees(&EXT3_CHECKPOINT.agrees, &vague), "almost anything says nothing");
        assert!(agrees(&Agrees::Says("no timer"), &finding("no timer was seen", Value::Null)));
        let wide = finding("1 to 9 s", serde_json::json!([1.0, 9.0]));
        let rows = table(&STUDIED[0], &[five, finding("no timer", Value::Null), wide]);
        for word in ["yes", "no", "not shown"] {
            assert_eq!(rows.matches(&format!("| {word} |")).count(), 1, "{rows}");
        }
    }
}
