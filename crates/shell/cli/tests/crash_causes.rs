//! The cause that `ordo crash -- COMMAND` names is the true one: programs with one mistake that is
//! easily taken for another, and their correct twins.
//!
//! Fault model: a disk with a volatile cache that loses any subset of writes that were not flushed,
//! in units of 4,096 bytes. The first cause must be the program's mistake, about the right file. A
//! twin must never be accused. `tests/programs/causes.py` has the programs.
//!
//! The tests need root, FUSE, loop devices, strace, python3, cc and the mkfs programs.

mod programs;

use std::path::Path;

use programs::{TOOLS, crash, crash_row, is_possible};
use serde_json::Value;

/// A program, the first cause, and the beginning of the file's name.
type Known = (&'static str, &'static str, &'static str);

const KNOWN: [Known; 8] = [
    ("synced-writes", "rename-without-directory-sync", "state"),
    ("mapped", "mapped-without-sync", "index"),
    ("mapped-pages", "mapped-without-sync", "index"),
    ("ring", "ring-without-sync", "log"),
    ("renamed-directory", "directory-renamed-unsynced", "set-"),
    ("removed", "remove-without-directory-sync", "in/"),
    ("appended-part", "no-sync", "log"),
    ("second-fsync", "no-sync", "index"),
];

/// A mistake whose search found nothing lost on a file system. The reason is not known.
const HARMLESS: [(&str, &str); 1] = [("mapped-pages", "btrfs")];

/// Runs a search. Returns the exit status, the first row, and all that was printed.
fn crashed(dir: &Path, args: &[&str], command: &[&str]) -> (i32, Value, String) {
    let more = ["--json", "--quiet", "--recovery-every", "0", "--save", "f.json"];
    let args = [args, &more, &["--"], command].concat();
    crash_row(dir, &args)
}

/// One of the programs of `causes.py`, or its twin, on a file system.
fn judged(dir: &Path, fs: &str, name: &str, twin: bool, more: &[&str]) -> (i32, Value, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/causes.py");
    let script = script.to_str().unwrap();
    let check = format!("python3 {script} check {name}");
    let args = [&["--fs", fs, "--check", &check, "--states", "80"][..], more].concat();
    let mut command = vec!["python3", script, "run", name];
    command.extend(twin.then_some("twin"));
    crashed(dir, &args, &command)
}

/// Whether a correct program kept its promises. A state that a busy machine could not mount judges
/// nobody.
fn is_kept(code: i32, row: &Value) -> bool {
    code != 1 && row["promise_broken"] == 0 && row["promises"] == 3 && row["command_status"] == 0
}

/// The first cause of each broken promise: mistake, file, and whether it is sure.
fn first_causes(row: &Value) -> Vec<(String, String, bool)> {
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let first = |finding: &Value| {
        let cause = &finding["causes"][0];
        (text(&cause["mistake"]), text(&cause["path"]), cause["sure"] == true)
    };
    let findings = row["findings"].as_array().unwrap().iter();
    findings.filter(|finding| finding["wrong"] != "unsound").map(first).collect()
}

/// Judges programs and twins on a file system. Each first cause must be the known one.
fn judge(fs: &str, programs: &[Known]) {
    let dir = tempfile::tempdir().unwrap();
    for (name, mistake, path) in programs.iter().filter(|one| !HARMLESS.contains(&(one.0, fs))) {
        let (code, row, said) = judged(dir.path(), fs, name, false, &["--syscalls"]);
        let causes = first_causes(&row);
        // Where the kernel tells nothing of rings, the cause is a guess.
        let right = |(found, file, is_sure): &(String, String, bool)| {
            found == mistake && file.starts_with(path) && (*is_sure || *name == "ring")
        };
        assert_eq!(code, 1, "{name} on {fs}: {said}");
        assert!(causes.iter().all(right), "{name} on {fs}: {causes:?}\n{said}");
        let (code, row, said) = judged(dir.path(), fs, name, true, &["--syscalls"]);
        assert!(
            is_kept(code, &row),
            "the twin of {name} on {fs}: {:?}\n{said}",
            first_causes(&row)
        );
    }
}

/// On ext4 each program's first cause is its mistake, in the file that lacks something; the file
/// that comes first in the alphabet, and is never synced, is not blamed.
///
/// Would catch: `O_DSYNC` taken for no sync at all; a mapping, a ring or a renamed directory that
/// nobody follows; a second fsync taken for the wrong descriptor; a cause by alphabet.
#[test]
fn the_first_cause_is_the_true_one() {
    if is_possible(&TOOLS) {
        judge("ext4", &KNOWN);
    }
}

/// The same on XFS and btrfs, and on ext4 in its weaker modes.
#[test]
#[ignore = "takes minutes; the same on ext4 is always run"]
fn the_first_cause_is_the_true_one_on_every_file_system() {
    if !is_possible(&[&TOOLS[..], &["mkfs.xfs", "mkfs.btrfs"]].concat()) {
        return;
    }
    for fs in ["xfs", "btrfs", "ext4:data=writeback", "ext4:noauto_da_alloc"] {
        judge(fs, &KNOWN);
    }
}

/// A correct program on a file system that sends no flush: the verdict is the file system's fault,
/// and not a mistake of the program.
///
/// Would catch a program that is blamed for what its fsync promised it.
#[test]
fn a_file_system_that_does_not_flush_is_to_blame() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let more = ["--syscalls", "--neighbour", "0"];
    let (code, row, said) = judged(dir.path(), "ext4:nobarrier", "second-fsync", true, &more);
    assert_eq!(code, 1, "{said}");
    let causes = first_causes(&row);
    let is_right = |(found, file, is_sure): &(String, String, bool)| {
        found == "file-system" && file == "index" && *is_sure
    };
    assert!(causes.iter().any(is_right), "{causes:?}\n{said}");
    let blames = |(found, _, is_sure): &(String, String, bool)| found != "file-system" && *is_sure;
    assert!(!causes.iter().any(blames), "{causes:?}\n{said}");
}

/// Without system calls a cause is a guess. The table calls it so.
#[test]
fn the_table_calls_a_guess_a_guess() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = "for n in 1 2; do echo $n >log; echo $n >\"$ORDO_MARK\"; done";
    let check = "test ! -s \"$ORDO_ACKED\" || test -s log || { echo log is empty; exit 1; }";
    let args = ["--states", "40", "--quiet", "--save", "f.json", "--check", check];
    let (code, out, err) = crash(dir.path(), &[&args[..], &["--", "sh", "-c", run]].concat());
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("perhaps promised before fsync"), "{out}{err}");
}

/// The programs of `shared/cases/programs` with a known cause, and their fixed twins.
#[test]
fn known_programs_have_their_known_causes() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared");
    let shared = std::env::var("ORDO_SHARED").unwrap_or_else(|_| root.into());
    let Ok(cases) = Path::new(&shared).join("cases/programs").canonicalize() else {
        ordo_testkit::skip("shared/cases/programs is absent");
        return;
    };
    if !is_possible(&[&TOOLS[..], &["cc"]].concat()) {
        return;
    }
    let known = [
        ("dsync", "rename-without-directory-sync", "state", true),
        ("mmap", "mapped-without-sync", "B", true),
        ("uring", "ring-without-sync", "log", true),
        ("redundant_fsync", "no-sync", "index", false),
    ];
    for (name, mistake, path, has_twin) in known {
        let dir = tempfile::tempdir().unwrap();
        let at = |file: &str| cases.join(name).join(file).to_str().unwrap().to_owned();
        let program = dir.path().join("prog").to_str().unwrap().to_owned();
        let built = ordo_testkit::judge("cc", &["-O1", "-w", "-o", &program, &at("prog.c")]);
        assert!(built.is_some(), "{name}");
        let check = format!("sh {}", at("check.sh"));
        let args = ["--fs", "ext4", "--states", "60", "--syscalls", "--check", &check];
        let (code, row, said) = crashed(dir.path(), &args, &[&program, "broken"]);
        let causes = first_causes(&row);
        let right = |cause: &(String, String, bool)| (&*cause.0, &*cause.1) == (mistake, path);
        assert!(code == 1 && causes.iter().all(right), "{name}: {causes:?}\n{said}");
        if has_twin {
            let (code, row, said) = crashed(dir.path(), &args, &[&program, "fixed"]);
            assert!(is_kept(code, &row), "the twin of {name}: {said}");
        }
    }
}
