//! Causes of small runs.

use super::*;

/// Calls, a millisecond apart, from lines such as `name file [other] [offset len]`.
fn calls(text: &str) -> Vec<Syscall> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let call = |(n, line): (usize, &str)| {
        let (line, error) = match line.strip_suffix(" EIO") {
            Some(line) => (line, Some("EIO".to_owned())),
            None => (line, None),
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, flags) = words[0].split_once(':').unwrap_or((words[0], ""));
        let file = words.get(1).map(|w| if *w == "." { String::new() } else { (*w).into() });
        let number = |n: usize| words.get(n).and_then(|w| w.parse::<u64>().ok());
        let other = words.get(2).filter(|_| matches!(name, "rename" | "link")).map(|w| (*w).into());
        Syscall {
            pid: 1,
            began: n as i64 * 1000,
            ended: n as i64 * 1000 + 500,
            name: name.into(),
            file,
            other,
            fd: None,
            offset: number(2),
            len: number(3).unwrap_or(0),
            flags: flags.into(),
            error,
            outcome: None,
        }
    };
    lines.enumerate().map(call).collect()
}

/// The causes of a failure right after the last call, in files of which nothing else is known.
fn causes_of(text: &str, wrong: Wrong, paths: &[&str]) -> Vec<Cause> {
    let unknown = |path: &&str| Differing { path: (*path).to_owned(), defect: Defect::Unknown };
    let differing: Vec<Differing> = paths.iter().map(unknown).collect();
    judged(text, wrong, "", &differing, &[])
}

/// The causes of a failure right after the last call.
fn judged(
    text: &str,
    wrong: Wrong,
    said: &str,
    differing: &[Differing],
    present: &[&str],
) -> Vec<Cause> {
    let calls = calls(text);
    let end = calls.len() as i64 * 1000;
    let present = present.iter().map(|path| (*path).to_owned()).collect();
    let failure = CauseFailure {
        wrong,
        said,
        differing,
        present: &present,
        existing: &[],
        promised: Some(end),
        cut: end,
        right: Some(end),
    };
    by_calls(&calls, &failure)
}

fn found(text: &str, wrong: Wrong, paths: &[&str]) -> Option<Mistake> {
    causes_of(text, wrong, paths).first().map(|cause| cause.mistake)
}

const REPLACE: &str = "openat:O_CREAT|O_TRUNC t\n write t 0 10\n";

/// Each mistake is recognised from the missing call, and from nothing else.
#[test]
fn promises_that_are_not_durable() {
    let lost = |text: &str, path: &str| found(text, Wrong::LostDurable, &[path]);
    let no_file = format!("{REPLACE} rename t a\n fsync .");
    assert_eq!(lost(&no_file, "a"), Some(Mistake::RenameWithoutFileSync));
    let no_dir = format!("{REPLACE} fsync t\n rename t a");
    assert_eq!(lost(&no_dir, "a"), Some(Mistake::RenameWithoutDirectorySync));
    assert_eq!(lost(&format!("{no_dir}\n fsync ."), "a"), None);
    assert_eq!(lost(REPLACE, "t"), Some(Mistake::NoSync));
    assert_eq!(lost(&format!("{REPLACE} sync_file_range t"), "t"), Some(Mistake::SyncFileRange));
    let other = "openat:O_CREAT b\n fsync b\n openat:O_CREAT a\n write a 0 5\n fsync b";
    assert_eq!(lost(other, "a"), Some(Mistake::WrongDescriptor));
    // The other file had data to write, so its sync was not meant for this one.
    let both = "openat:O_CREAT b\n openat:O_CREAT a\n write a 0 5\n write b 0 5\n fsync b";
    assert_eq!(lost(both, "a"), Some(Mistake::NoSync));
    assert_eq!(
        lost(&format!("{REPLACE} fsync t EIO\n fsync t"), "t"),
        Some(Mistake::SyncErrorIgnored)
    );
    assert_eq!(lost("mkdir d", "d"), Some(Mistake::CreateWithoutDirectorySync));
    assert_eq!(lost("mkdir d\n fsync .", "d"), None);
    assert_eq!(lost("unlink x", "x"), Some(Mistake::RemoveWithoutDirectorySync));
    assert_eq!(lost("unlink x\n syncfs", "x"), None);
}

/// Incomplete contents are recognised from the way in which they were written.
#[test]
fn incomplete_contents_are_recognised() {
    let torn = |text: &str, path: &str| found(text, Wrong::NotAtomic, &[path]);
    let base = "openat:O_CREAT a\n write a 0 9000\n fsync a\n fsync .\n";
    assert_eq!(torn(&format!("{base} pwrite64 a 0 9000"), "a"), Some(Mistake::OverwriteInPlace));
    assert_eq!(torn(&format!("{base} write a 9000 10"), "a"), Some(Mistake::AppendUnchecked));
    let cut = format!("{base} openat:O_TRUNC a\n write a 0 10");
    assert_eq!(torn(&cut, "a"), Some(Mistake::TruncateInPlace));
    let renamed = format!("{base} {REPLACE} rename t a");
    assert_eq!(torn(&renamed, "a"), Some(Mistake::RenameWithoutFileSync));
    assert_eq!(torn(base, "a"), None);
}

/// A sync that had not ended at the power cut has made nothing durable.
#[test]
fn a_sync_under_way_counts_for_nothing() {
    let calls = calls("openat a\n write a 0 10\n fsync a");
    let differing = [Differing { path: "a".to_owned(), defect: Defect::Unknown }];
    let mut failure = CauseFailure {
        wrong: Wrong::NotAtomic,
        said: "",
        differing: &differing,
        present: &BTreeSet::new(),
        existing: &[],
        promised: None,
        cut: 2200,
        right: None,
    };
    assert_eq!(by_calls(&calls, &failure)[0].mistake, Mistake::AppendUnchecked);
    failure.cut = 2600;
    assert!(by_calls(&calls, &failure).is_empty());
}

fn changed(path: &str, spans: &[Span]) -> Differing {
    let defect = Defect::Changed { spans: spans.to_vec(), is_described: false };
    Differing { path: path.to_owned(), defect }
}

fn missing(path: &str) -> Differing {
    Differing { path: path.to_owned(), defect: Defect::Missing }
}

fn extra(path: &str) -> Differing {
    Differing { path: path.to_owned(), defect: Defect::Extra }
}

/// Mistakes and paths, the first cause first; guesses have a question mark.
fn told(causes: &[Cause]) -> Vec<String> {
    let tell = |cause: &Cause| {
        let guess = if cause.sure { "" } else { "?" };
        format!("{:?}{guess} {}", cause.mistake, cause.path)
    };
    causes.iter().map(tell).collect()
}

/// A write through a descriptor of `O_DSYNC`, and one with `RWF_DSYNC`, is durable when it returns:
/// only the rename is not. A flag of another name syncs nothing.
///
/// Would catch a log that syncs each write and is told that it never syncs.
#[test]
fn synced_writes_are_durable() {
    let lost = |text: &str, path: &str| told(&causes_of(text, Wrong::LostDurable, &[path]));
    let renamed = "openat:O_CREAT|O_TRUNC|O_DSYNC t\n write t 0 8\n rename t a";
    assert_eq!(lost(renamed, "a"), ["RenameWithoutDirectorySync a"]);
    let log = |flag: &str| format!("openat:O_CREAT|{flag} a\n fsync .\n write a 0 8");
    assert!(lost(&log("O_DSYNC"), "a").is_empty() && lost(&log("O_SYNC"), "a").is_empty());
    assert_eq!(lost(&log("O_ASYNC"), "a"), ["NoSync a"]);
    let with_flag = "openat:O_CREAT a\n fsync .\n pwritev2:RWF_DSYNC a 0 8";
    assert!(lost(with_flag, "a").is_empty());
    // Another part of the file is not durable by it.
    let both = "openat:O_CREAT a\n fsync .\n write a 0 8\n pwritev2:RWF_DSYNC a 8 8";
    assert_eq!(lost(both, "a"), ["NoSync a"]);
}

/// Pages that were changed through a mapping: the file that was never msynced is blamed, and so
/// are pages outside of what was. A file whose pages were synced is only doubted.
#[test]
fn mappings_without_msync_are_found() {
    let base = "openat:O_CREAT a\n write a 0 8192\n openat:O_CREAT b\n write b 0 8192\n sync\n\
                mmap a 0 8192\n mmap b 0 8192\n msync:MS_SYNC a 0 8192\n";
    let lost = |text: &str, said: &str, differing: &[Differing]| {
        judged(text, Wrong::LostDurable, said, differing, &["a", "b"])
    };
    let both = [changed("a", &[(0, 8192)]), changed("b", &[(0, 8192)])];
    assert_eq!(told(&lost(base, "b is old", &both)), ["MappedWithoutSync b"]);
    let part = format!("{base} msync:MS_SYNC b 0 4096");
    let causes = lost(&part, "", &[changed("b", &[(4096, 8192)])]);
    assert_eq!(told(&causes), ["MappedWithoutSync b"]);
    assert!(causes[0].text.contains("bytes 4096 to 8191 are lost"), "{}", causes[0].text);
    let synced = format!("{base} fsync b");
    assert_eq!(told(&lost(&synced, "", &both[1..])), ["MappedWithoutSync? b"]);
    let asked = format!("{base} msync:MS_ASYNC b 0 8192");
    assert!(lost(&asked, "", &both[1..])[0].text.contains("MS_ASYNC"));
}

/// Writes through a ring count as writes, and fsyncs through it as fsyncs. A ring that could not be
/// seen leaves a guess.
#[test]
fn rings_are_seen_or_guessed() {
    let lost = |text: &str| {
        let log = changed("log", &[(0, 4096)]);
        told(&judged(text, Wrong::LostDurable, "log is short", &[log], &["log"]))
    };
    let base = "io_uring_setup:seen\n openat:O_CREAT log\n fsync log\n fsync .\n";
    let written = format!("{base} io_uring_write log\n");
    assert_eq!(lost(&written), ["RingWithoutSync log"]);
    let synced = format!("{written} io_uring_fsync log");
    assert!(!lost(&synced).iter().any(|told| told.starts_with("Ring")), "{:?}", lost(&synced));
    assert_eq!(lost(&format!("{written} io_uring_fsync")), ["RingWithoutSync? log"]);
    assert_eq!(lost(&base.replace(":seen", "")), ["RingWithoutSync? log"]);
}

/// A directory is renamed, and its files were never synced: the files are blamed under their new
/// names. If the directory itself is gone, its rename is.
#[test]
fn files_of_a_renamed_directory_are_followed() {
    let text = "mkdir d\n fsync .\n openat:O_CREAT d/f\n write d/f 0 9\n rename d e\n fsync .";
    let lost = |text: &str, one: Differing, present: &[&str]| {
        told(&judged(text, Wrong::LostDurable, "", &[one], present))
    };
    let empty = changed("e/f", &[(0, 9)]);
    assert_eq!(lost(text, empty.clone(), &["e", "e/f"]), ["DirectoryRenamedUnsynced e/f"]);
    assert_eq!(lost(text, missing("e/f"), &["e"]), ["DirectoryRenamedUnsynced e/f"]);
    let synced = text.replace("rename", "fsync d/f\n fsync d\n rename");
    assert_eq!(lost(&synced, empty, &["e", "e/f"]), ["FileSystem e/f"]);
    let unnamed = synced.replace("e\n fsync .", "e");
    let gone = lost(&unnamed, missing("e/f"), &["d", "d/f"]);
    assert_eq!(gone, ["RenameWithoutDirectorySync e"]);
}

/// A removed name that is back is a removal without fsync; one that was renamed away, a rename.
/// What is there rightly is not blamed.
#[test]
fn names_that_should_be_gone() {
    let lost =
        |text: &str, one: Differing| told(&judged(text, Wrong::LostDurable, "", &[one], &["x"]));
    let base = "openat:O_CREAT x\n write x 0 4\n sync\n";
    assert_eq!(lost(&format!("{base} unlink x"), extra("x")), ["RemoveWithoutDirectorySync x"]);
    assert_eq!(lost(&format!("{base} rename x y"), extra("x")), ["RenameWithoutDirectorySync x"]);
    assert!(lost("openat:O_CREAT x\n write x 0 4", extra("x")).is_empty());
}

/// Of a file that was overwritten and appended to, the part that the state lacks is blamed.
#[test]
fn the_part_that_differs_is_blamed() {
    let base = "openat:O_CREAT a\n write a 0 9000\n fsync a\n fsync .\n";
    let both = format!("{base} pwrite64 a 0 100\n write a 9000 10");
    let torn = |text: &str, spans: &[Span]| {
        told(&judged(text, Wrong::NotAtomic, "", &[changed("a", spans)], &["a"]))
    };
    assert_eq!(torn(&both, &[(9000, 9010)]), ["AppendUnchecked a"]);
    assert_eq!(torn(&both, &[(20, 30)]), ["OverwriteInPlace a"]);
    let lost = |spans: &[Span]| {
        let text = format!("{base} pwrite64 a 0 100\n fsync a\n write a 9000 10");
        judged(&text, Wrong::LostDurable, "", &[changed("a", spans)], &["a"])
    };
    assert_eq!(told(&lost(&[(9000, 9010)])), ["NoSync a"]);
    assert!(lost(&[(9000, 9010)])[0].text.contains("bytes 9000 to 9009"));
    assert_ne!(told(&lost(&[(20, 30)])), ["NoSync a"]);
}

/// An fsync that had nothing to do is no mistake of another file.
#[test]
fn a_second_fsync_is_not_the_wrong_descriptor() {
    let text = "openat:O_CREAT wal\n openat:O_CREAT index\n sync\n write index 0 1\n\
                write wal 0 1\n fsync wal\n fsync wal";
    let differing = [changed("index", &[(0, 1)]), changed("wal", &[(1, 3)])];
    let causes = judged(text, Wrong::LostDurable, "index has 0", &differing, &["index", "wal"]);
    assert_eq!(told(&causes), ["NoSync index"]);
}

/// The file that the check names comes first, whatever its name and its mistake.
#[test]
fn the_named_file_comes_first() {
    let text = "openat:O_CREAT a\n write a 0 9\n openat:O_CREAT|O_TRUNC t\n write t 0 9\n\
                fsync t\n rename t z.db";
    let differing = [changed("a", &[(0, 9)]), changed("z.db", &[(0, 9)])];
    let first = |said: &str| {
        told(&judged(text, Wrong::LostDurable, said, &differing, &["a", "z.db"])).remove(0)
    };
    assert_eq!(first("round 1 is not in 'z.db'."), "RenameWithoutDirectorySync z.db");
    assert_eq!(first("./z.db: short"), "RenameWithoutDirectorySync z.db");
    assert_eq!(first("a: short"), "NoSync a");
    assert!(names("see z.db.", "z.db") && !names("xz.db", "z.db") && !names("z.db2", "z.db"));
}

/// The file system is blamed if fsync returned, nothing touched the file since, and it is not
/// there; not if it was changed later, or if its name was not synced.
#[test]
fn a_file_system_that_loses_what_was_synced() {
    let lost = |text: &str, one: Differing, present: &[&str]| {
        told(&judged(text, Wrong::LostDurable, "", &[one], present))
    };
    let base = "openat:O_CREAT a\n write a 0 9\n fsync a\n fsync .\n";
    assert_eq!(lost(base, missing("a"), &["."]), ["FileSystem a"]);
    assert_eq!(lost(base, changed("a", &[(0, 9)]), &["a"]), ["FileSystem a"]);
    let later = format!("{base} pwrite64:O a 0 9");
    assert_eq!(lost(&later, changed("a", &[(0, 9)]), &["a"]), ["NoSync a"]);
    let unnamed = "openat:O_CREAT a\n write a 0 9\n fsync a";
    assert_eq!(lost(unnamed, missing("a"), &["."]), ["CreateWithoutDirectorySync a"]);
    // A synced file is under its old name or under the new one.
    let renamed = format!("{base} rename a b\n fsync b");
    assert_eq!(lost(&renamed, missing("b"), &["."]), ["FileSystem b"]);
    assert_eq!(lost(&renamed, missing("b"), &["a"]), ["RenameWithoutDirectorySync b"]);
    assert_eq!(lost(&renamed, extra("a"), &["a", "b"]), ["FileSystem a"]);
}

/// Without the system calls everything is a guess, and is called so.
#[test]
fn guesses_are_called_guesses() {
    let lost = [LostWrite { is_data: true, torn: false, path: Some("a") }];
    let differing = [changed("a", &[(0, 9)]), changed("b", &[(0, 9)])];
    let causes = by_writes(Wrong::LostDurable, &lost, "b is short", &differing);
    assert_eq!(told(&causes), ["NoSync? b"]);
    assert_eq!(causes[0].in_words(), "perhaps promised before fsync");
}
