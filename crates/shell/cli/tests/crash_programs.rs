//! `ordo crash -- COMMAND` as a user runs it: programs with one well-known mistake each, and their
//! correct twins.
//!
//! Fault model: a disk with a volatile cache that loses any subset of writes that were not flushed,
//! in units of 4,096 bytes. Each mistake must be found, with its cause; a twin must never be
//! accused. `tests/programs/mistakes.c`, `.rs` and `.py` have the programs.
//!
//! The tests need root, FUSE, loop devices, strace, python3, cc, rustc and the mkfs programs.

mod programs;

use std::path::Path;

use programs::{TOOLS, crash, is_possible};
use serde_json::Value;

/// A program with a mistake: its name, its language, and the mistake that must be found.
type Mistaken = (&'static str, Language, &'static str);

#[derive(Clone, Copy, Debug)]
enum Language {
    C,
    Python,
    Rust,
}

const MISTAKES: [Mistaken; 10] = [
    ("rename-without-file-sync", Language::Rust, "rename-without-file-sync"),
    ("rename-without-dir-sync", Language::Rust, "rename-without-directory-sync"),
    ("create-without-dir-sync", Language::Rust, "create-without-directory-sync"),
    ("remove-without-dir-sync", Language::Python, "remove-without-directory-sync"),
    ("wrong-descriptor", Language::C, "wrong-descriptor"),
    ("no-sync", Language::Python, "no-sync"),
    ("sync-file-range", Language::C, "sync-file-range"),
    ("append-unchecked", Language::C, "append-unchecked"),
    ("overwrite-in-place", Language::C, "overwrite-in-place"),
    ("truncate-in-place", Language::Python, "truncate-in-place"),
];

/// Mistakes that do no harm on a file system, so that nothing may be found: writing back journaled
/// data commits the transaction, and flushes.
const HARMLESS: [(&str, &str); 1] = [("sync-file-range", "ext3:data=journal")];

const BUILD_TOOLS: [&str; 5] = ["mke2fs", "strace", "python3", "cc", "rustc"];

fn source(kind: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join("mistakes");
    path.with_extension(kind).to_string_lossy().into_owned()
}

/// Builds the programs in C and Rust in a directory.
fn build(dir: &Path) {
    let at = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let c = ["-O1", "-Wall", "-Wextra", "-Werror", "-o", &at("mistakes-c"), &source("c")];
    let rust = ["--edition", "2024", "-o", &at("mistakes-rust"), &source("rs")];
    for (compiler, args) in [("cc", &c[..]), ("rustc", &rust[..])] {
        let out = std::process::Command::new(compiler).args(args).output().unwrap();
        assert!(out.status.success(), "{compiler}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// The words that run a program.
fn command(dir: &Path, name: &str, language: Language) -> Vec<String> {
    let at = |file: &str| dir.join(file).to_string_lossy().into_owned();
    match language {
        Language::C => vec![at("mistakes-c"), name.to_owned()],
        Language::Rust => vec![at("mistakes-rust"), name.to_owned()],
        Language::Python => vec!["python3".into(), source("py"), "run".into(), name.to_owned()],
    }
}

/// Crashes one of the programs, or its twin, on several file systems. Returns the rows.
fn crashed(
    dir: &Path,
    fs: &str,
    (name, language, _): Mistaken,
    twin: bool,
    states: &str,
) -> (i32, Vec<Value>, String) {
    let check = format!("TWIN={} python3 {} check {name}", u8::from(twin), source("py"));
    let words = command(dir, name, language);
    let mut args = vec!["--fs", fs, "--check", &check, "--states", states, "--syscalls", "--json"];
    args.extend(["--save", "failure.json", "--"]);
    args.extend(words.iter().map(String::as_str));
    if twin {
        args.push("twin");
    }
    let (code, out, err) = crash(dir, &args);
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{name}: {out}{err}"));
    (code, value["rows"].as_array().unwrap().clone(), err)
}

/// The mistakes in a row: the most likely one of each failure.
fn mistakes(row: &Value) -> Vec<String> {
    let causes = row["causes"].as_array().unwrap();
    causes.iter().map(|cause| cause["mistake"].as_str().unwrap().to_owned()).collect()
}

fn judge_program(dir: &Path, fs: &str, program: Mistaken, states: &str) -> Vec<String> {
    let (name, _, mistake) = program;
    let mut wrong = Vec::new();
    let (code, rows, err) = crashed(dir, fs, program, false, states);
    for row in &rows {
        let found = mistakes(row);
        if HARMLESS.iter().any(|harmless| harmless.0 == name && row["system"] == harmless.1) {
            if row["promise_broken"] != 0 {
                wrong.push(format!("{name} on {} does no harm, but {found:?}", row["system"]));
            }
        } else if row["promise_broken"] == 0 || !found.iter().any(|m| m == mistake) {
            wrong.push(format!(
                "{name} on {}: {mistake} not found, but {found:?}\n{err}",
                row["system"]
            ));
        }
    }
    if code != 1 {
        wrong.push(format!("{name}: exit status {code}\n{err}"));
    }
    let (code, rows, err) = crashed(dir, fs, program, true, states);
    for row in rows.iter().filter(|row| row["promise_broken"] != 0) {
        wrong.push(format!("the twin of {name} on {}: {:?}\n{err}", row["system"], mistakes(row)));
    }
    if code != 0 {
        wrong.push(format!("the twin of {name}: exit status {code}\n{err}"));
    }
    wrong
}

/// A frequent mistake in each language, on ext4; and the twins.
///
/// Would catch impossible states (a twin is accused), missing states (a mistake is not found), and
/// wrong causes.
#[test]
fn usual_mistakes_are_found_and_twins_are_not_accused() {
    if !is_possible(&BUILD_TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    build(dir.path());
    for program in [MISTAKES[1], MISTAKES[4], MISTAKES[9]] {
        let wrong = judge_program(dir.path(), "ext4", program, "80");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// All mistakes on every file system, which takes a quarter of an hour. `make crash-mistakes`
/// judges the same with an optimised build, and prints it.
#[test]
#[ignore = "takes a quarter of an hour; make crash-mistakes does the same"]
fn all_mistakes_on_all_file_systems() {
    if !is_possible(&[&BUILD_TOOLS[..], &["mkfs.xfs", "mkfs.btrfs"]].concat()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    build(dir.path());
    let fs = std::env::var("ORDO_PROGRAM_FS")
        .unwrap_or("ext4,ext3,ext3-journal,ext3-writeback,xfs,btrfs".into());
    let only = std::env::var("ORDO_PROGRAMS").unwrap_or_default();
    let mut wrong = Vec::new();
    for program in MISTAKES.iter().filter(|(name, ..)| name.contains(&only)) {
        wrong.extend(judge_program(dir.path(), &fs, *program, "150"));
        eprintln!("{}: {} wrong so far", program.0, wrong.len());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A failure is saved, repeated, written as an image, and reported as an HTML page and as JUnit
/// XML. Exit statuses of checks are distinguished.
#[test]
fn failures_are_saved_repeated_and_reported() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = "for n in 1 2; do echo $n >>log; echo $n >\"$ORDO_MARK\"; done";
    let check = "cat log 2>/dev/null | cmp -s - \"$ORDO_ACKED\" || { echo lost; exit 1; }";
    let more = ["--html", "page.html", "--junit", "junit.xml", "--save", "f.json", "--quiet"];
    let mut args = vec!["--fs", "ext4:data=journal,nobarrier", "--states", "60", "--check", check];
    args.extend(more);
    args.extend(["--", "sh", "-c", run]);
    let (code, out, err) = crash(dir.path(), &args);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("ext4:data=journal,nobarrier"), "{out}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(read("page.html").contains("<svg") && read("page.html").contains("lost"));
    assert!(read("junit.xml").contains("failures=\"1\""), "{}", read("junit.xml"));
    let (code, out, err) = crash(dir.path(), &["replay", "f.json", "--yes"]);
    assert!(code == 1 && out.contains("| lost"), "{code} {out}{err}");
    let (code, _, err) = crash(dir.path(), &["image", "f.json", "-o", "state.img"]);
    assert_eq!(code, 0, "{err}");
    let checked =
        ordo_testkit::judge("dumpe2fs", &["-h", &dir.path().join("state.img").to_string_lossy()]);
    assert!(checked.is_some_and(|text| text.contains("has_journal")));
    // A file that was cut short is refused.
    std::fs::write(dir.path().join("cut.json"), &read("f.json")[..2000]).unwrap();
    let (code, _, err) = crash(dir.path(), &["replay", "cut.json"]);
    assert!(code == 2 && err.contains("damaged"), "{code} {err}");
    // A check that itself fails accuses no program.
    let args = ["--states", "20", "--quiet", "--check", "exit 7", "--", "true"];
    let (code, out, err) = crash(dir.path(), &args);
    assert!(code == 3 && out.contains("exit status 7"), "{code} {out}{err}");
}

/// The report names a program that continues after a failed fsync.
#[test]
fn an_ignored_error_is_reported() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = "import os\nfd = os.open('log', os.O_RDWR | os.O_CREAT)\nos.fsync(fd)\nos.write(fd, b'x' * 8192)\n\
               try:\n    os.fsync(fd)\nexcept OSError:\n    os.fsync(fd)\nopen(os.environ['ORDO_MARK'], 'w').write('done\\n')\n";
    let check = "test ! -s \"$ORDO_ACKED\" || test \"$(tr -d '\\0' <log | wc -c)\" = 8192 || { echo lost; exit 1; }";
    let mut args = vec!["--states", "60", "--syscalls", "--json", "--quiet", "--neighbour", "0"];
    args.extend(["--fail", "fsync of file_data 1", "--check", check, "--", "python3", "-c", run]);
    let (code, out, err) = crash(dir.path(), &args);
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    let row = &value["rows"][0];
    assert_eq!(row["writes_failed"], 1, "{out}{err}");
    assert_eq!(code, 1, "{out}{err}");
    assert_eq!(mistakes(row), ["sync-error-ignored"], "{out}{err}");
}
