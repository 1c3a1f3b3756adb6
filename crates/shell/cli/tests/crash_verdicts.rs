//! `ordo crash -- COMMAND`: nothing is green that was not judged, and nobody is accused by a check
//! that is wrong.
//!
//! Fault model: the user's own mistakes. A command that does not run, a check that does not work,
//! fails now and then, or looks at an owner; and a server that never ends.
//!
//! The tests need root, FUSE, loop devices, python3 and mke2fs.

mod programs;

use std::path::Path;

use programs::{crash, crash_row, is_possible};

const TOOLS: [&str; 2] = ["mke2fs", "python3"];

/// Crashes a program on a small ext4. Returns the exit status and everything that was said.
fn crashed(dir: &Path, more: &[&str], run: &[&str]) -> (i32, String) {
    let args = ["--size", "16m", "--states", "6", "--recovery-every", "0", "--neighbour", "0"];
    let args = [&args[..], &["--save", "f.json", "--junit", "junit.xml"], more, &["--"], run];
    let (code, out, err) = crash(dir, &args.concat());
    (code, out + &err)
}

/// A program that keeps a promise, in the words of a shell.
const KEPT: &str = "echo 1 >f; sync f; sync .; echo 1 >\"$ORDO_MARK\"";

/// A run that proves nothing ends with status 3, an error in the JUnit file and a reason; an option
/// says that it is wanted. Errors end with status 2.
///
/// Would catch a job in continuous integration that is green while its command is missing.
#[test]
fn a_run_that_proves_nothing_is_not_green() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let junit = || std::fs::read_to_string(dir.path().join("junit.xml")).unwrap();
    let fails = format!("{KEPT}; exit 7");
    let fills = format!("{KEPT}; dd if=/dev/zero of=all bs=64k 2>/dev/null; true");
    let server = format!("{KEPT}; sleep 60 & setsid sleep 60");
    let check = ["--check", "true"];
    let none: [&[&str]; 4] =
        [&["/no/such/command"], &["sh", "-c", &fails], &["sh", "-c", &fills], &["true"]];
    for (run, why) in
        none.into_iter().zip(["cannot be run", "status 7", "no space left", "promised nothing"])
    {
        let (code, said) = crashed(dir.path(), &check, run);
        assert!(code == 3 && said.contains(why), "{run:?}: {code} {said}");
        assert!(junit().contains("errors=\"1\"") && junit().contains("<error"), "{}", junit());
    }
    for (option, run) in [
        ("--allow-failure", none[1]),
        ("--allow-failure", none[2]),
        ("--allow-no-promise", none[3]),
    ] {
        let (code, said) = crashed(dir.path(), &[&check[..], &[option]].concat(), run);
        assert_eq!(code, 0, "{option}: {said}");
        assert!(junit().contains("errors=\"0\""), "{}", junit());
    }
    let empty = ["--check", "true", "--shard", "5000/5000"];
    let (code, said) = crashed(dir.path(), &empty, &["sh", "-c", KEPT]);
    assert!(code == 3 && said.contains("no state was judged"), "{code} {said}");
    let late = ["--check", "true", "--timeout", "1"];
    let (code, said) = crashed(dir.path(), &late, &["sh", "-c", &server]);
    assert!(code == 2 && said.contains("--until-timeout"), "{code} {said}");
    assert!(junit().contains("<error"), "{}", junit());
    let until = [&late[..], &["--until-timeout"]].concat();
    let (code, said) = crashed(dir.path(), &until, &["sh", "-c", &server]);
    assert_eq!(code, 0, "{said}");
    let (code, _, err) = crash(dir.path(), &["replay", "missing.json"]);
    assert!(code == 2 && err.contains("missing.json"), "{code} {err}");
}

/// A check that does not pass after a clean end is told as such: it accuses no program, and no
/// cause is invented.
///
/// Would catch a path that is wrong in the check, which loses every promise in every state.
#[test]
fn a_check_that_cannot_pass_accuses_nobody() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let check = ["--json", "--check", "test -e elsewhere || { echo nothing there; exit 1; }"];
    let (code, said) = crashed(dir.path(), &check, &["sh", "-c", KEPT]);
    assert!(code == 3 && said.contains("nothing there"), "{code} {said}");
    assert!(said.contains("\"states\": 0") && said.contains("\"causes\": []"), "{said}");
    assert!(!dir.path().join("f.json").exists());
}

/// A check that fails in one of its runs, for no reason, accuses nobody: the state is judged again,
/// and counted as flaky.
///
/// Would catch a server of the check that was slow once and costs its program a promise.
#[test]
fn a_flaky_check_accuses_nobody() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let check = "echo >>\"$ORDO_ORIGIN/runs\"; test $(wc -l <\"$ORDO_ORIGIN/runs\") != 3 || { echo slow; exit 1; }";
    let args = ["--json", "--threads", "1", "--check", check];
    let (code, said) = crashed(dir.path(), &args, &["sh", "-c", KEPT]);
    assert!(code == 3 && !said.contains("\"flaky\": 0"), "{code} {said}");
    assert!(said.contains("\"promise_broken\": 0") && said.contains("slow"), "{said}");
}

/// The owner of a file is another one for a while after it was promised. The states differ by that
/// alone, and are found.
///
/// Would catch a verdict that is taken over from a state with the same contents.
#[test]
fn a_lost_owner_is_found() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = "\
import os, time
fd = os.open('f', os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b'hello')
os.fchown(fd, 1234, 1234)
os.fsync(fd)
os.fsync(os.open('.', os.O_RDONLY))
os.write(os.open(os.environ['ORDO_MARK'], os.O_WRONLY), b'owner\\n')
time.sleep(.1)
os.fchown(fd, 0, 0)
os.fsync(fd)
time.sleep(.1)
os.fchown(fd, 1234, 1234)
os.fsync(fd)
";
    let check = "! grep -q owner \"$ORDO_ACKED\" || test $(stat -c %u f) = 1234 || \
        { echo owner is $(stat -c %u f); exit 1; }";
    let args = ["--states", "100", "--recovery-every", "0", "--json", "--check", check, "--"];
    let args = [&args[..], &["python3", "-c", run]].concat();
    let (code, row, _) = crash_row(dir.path(), &args);
    assert!(code == 1 && row["lost_durable"].as_u64() > Some(0), "{code} {row}");
    let told = row["findings"][0].to_string();
    assert!(told.contains("f belongs to 0:0, not 1234:1234"), "{told}");
}
