//! `ordo crash -- COMMAND`: searches that are stopped and go on, and power cuts during recovery.
//!
//! The tests need root, FUSE, loop devices, strace, python3 and the mkfs programs.

mod programs;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use programs::{TOOLS, crash, is_possible};
use serde_json::Value;

/// A program that forgets to wait for its log, which is found, and a check that counts its own runs
/// in `$ORDO_ORIGIN`.
const RUN: &str = "echo run >>\"$ORDO_ORIGIN/runs\"; for n in 1 2 3 4; do echo $n >>log; sync log; \
    echo $n >>unsynced; echo $n >\"$ORDO_MARK\"; done";
const CHECK: &str = "echo check >>\"$ORDO_ORIGIN/checks\"; sleep 0.05; \
    cat unsynced 2>/dev/null | cmp -s - \"$ORDO_ACKED\" || { echo lost; exit 1; }";

fn args<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["--fs", "ext4", "--states", "150", "--check", CHECK, "--json"];
    args.extend(["--recovery-every", "40", "--no-shrink", "--save", "f.json", "-o", "r.json"]);
    args.extend(more);
    args.extend(["--", "sh", "-c", RUN]);
    args
}

/// The lines of a file; none if there is no such file.
fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Starts a search, and waits until its log has the results of some states.
fn started(dir: &Path) -> Child {
    started_in(dir, &std::env::temp_dir())
}

/// The same, with another directory for temporary files.
fn started_in(dir: &Path, temporary: &Path) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("ordo"));
    command.env("TMPDIR", temporary);
    command.current_dir(dir).arg("crash").args(args(&[]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while lines(&dir.join("r.json.search")) < 20 {
        assert!(Instant::now() < until, "the log did not grow");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Continues a search. Returns its only row, without the duration, and its errors.
fn resumed(dir: &Path) -> (Value, String) {
    let (code, out, err) = crash(dir, &args(&["--resume"]));
    assert_eq!(code, 1, "{out}{err}");
    let mut row = serde_json::from_str::<Value>(&out).unwrap()["rows"][0].take();
    row["seconds"].take();
    (row, err)
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(done.unwrap().success());
}

/// A search is stopped by a signal in the middle: it ends with status 130 and with the results so
/// far. It goes on where it was: the command is not run again, no state is judged twice, and two
/// continuations from there agree in every number.
///
/// Would catch states that are left out or counted twice, results of the first part that are
/// forgotten, and a second recording.
#[test]
fn a_stopped_search_goes_on_where_it_was() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let child = started(dir.path());
    signal(&child, "-INT");
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(130));
    let row = serde_json::from_slice::<Value>(&stopped.stdout).unwrap()["rows"][0].take();
    let judged = row["states"].as_u64().unwrap();
    assert!(judged >= 19 && judged < row["planned"].as_u64().unwrap(), "{row}");
    // The log has a line for the recording and one for each pick.
    assert_eq!(lines(&at("r.json.search")) as u64, judged + 1);
    std::fs::copy(at("r.json.search"), at("log")).unwrap();
    // A pick in the middle of which the signal came is not counted, though a check may have run for
    // it.
    let (counted, run) = (row["checks"].as_u64().unwrap(), lines(&at("checks")) as u64);
    assert!(counted > 0 && (counted..counted + 40).contains(&run), "{counted} of {run}");

    let (first, err) = resumed(dir.path());
    assert!(err.contains(&format!("continued after {judged} states")), "{err}");
    assert_eq!(first["states"], first["planned"]);
    assert!(!at("r.json.search").exists());
    assert_eq!(lines(&at("runs")), 1);
    assert!(first["promise_broken"].as_u64() > Some(0));

    // The last line was cut short by a kill: that pick is judged again.
    std::fs::remove_file(at("r.json")).unwrap();
    let log = std::fs::read(at("log")).unwrap();
    std::fs::write(at("r.json.search"), &log[..log.len() - 7]).unwrap();
    let (second, err) = resumed(dir.path());
    assert!(err.contains(&format!("continued after {} states", judged - 1)), "{err}");
    for key in ["states", "planned", "promise_broken", "lost_durable", "recoveries", "in_recovery"]
    {
        assert_eq!(first[key], second[key], "{key}");
    }
    assert_eq!(first["findings"][0]["alike"], second["findings"][0]["alike"]);

    // Another search is refused, and finished results are not searched again.
    std::fs::write(at("r.json.search"), &log).unwrap();
    std::fs::remove_file(at("r.json")).unwrap();
    let (_, _, err) = crash(dir.path(), &args(&["--resume", "--seed", "2"]));
    assert!(err.contains("another search"), "{err}");
    let (again, _) = resumed(dir.path());
    let (finished, _) = resumed(dir.path());
    assert_eq!(again["states"], finished["states"]);
    assert_eq!(lines(&at("runs")), 1);
}

/// A killed search leaves no device that hangs, and its log.
#[test]
fn a_killed_search_goes_on() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let child = started(dir.path());
    signal(&child, "-KILL");
    child.wait_with_output().unwrap();
    let (row, err) = resumed(dir.path());
    assert!(err.contains("continued after"), "{err}");
    assert_eq!(row["states"], row["planned"]);
    assert_eq!(lines(&dir.path().join("runs")), 1);
}

/// Searches that are killed leave temporary folders. `ordo trace cleanup` finds and removes them,
/// and so does the next search. Folders of a search under way are left alone, and it goes on.
///
/// Would catch folders that nobody finds, and a cleanup that takes a living search for a dead one.
#[test]
fn folders_of_killed_searches_are_removed() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let names = |of: &Path| -> Vec<String> {
        let all = std::fs::read_dir(of).unwrap();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let ordo = |args: &[&str]| {
        let mut command = assert_cmd::Command::cargo_bin("ordo").unwrap();
        command.current_dir(dir.path()).env("TMPDIR", &temporary).args(args).output().unwrap()
    };
    let killed = || {
        let child = started_in(dir.path(), &temporary);
        signal(&child, "-KILL");
        child.wait_with_output().unwrap();
        std::fs::remove_file(dir.path().join("r.json.search")).unwrap();
    };
    killed();
    let left = names(&temporary);
    let [run] = &left[..] else { panic!("{left:?}") };
    let inside = names(&temporary.join(run));
    assert!(inside.iter().any(|found| found.starts_with("ordo-state-")), "{inside:?}");
    let path = temporary.join(run);
    let listed = |args: &[&str]| -> Value {
        let out = ordo(args);
        let text = String::from_utf8_lossy(&out.stdout);
        let listed: Value = serde_json::from_str(&text).unwrap();
        let of_path = |found: &&Value| found["path"] == path.to_str().unwrap();
        listed.as_array().unwrap().iter().find(of_path).unwrap_or_else(|| panic!("{text}")).clone()
    };
    let found = listed(&["trace", "cleanup", "--dry-run", "--json"]);
    assert!(found["removed"].is_null() && path.exists(), "{found}");
    let found = listed(&["trace", "cleanup", "--json"]);
    assert!(found["removed"] == true && !path.exists(), "{found}");
    let living = started_in(dir.path(), &temporary);
    let out = ordo(&["trace", "cleanup"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(names(&temporary).len(), 1, "the folder of the search under way");
    let ended = living.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "it goes on to its end");
    assert_eq!(names(&temporary), [] as [&str; 0]);
    killed();
    assert_eq!(names(&temporary).len(), 1);
    let out = ordo(&[
        "crash",
        "--states",
        "2",
        "--quiet",
        "--allow-no-promise",
        "--check",
        "true",
        "--",
        "true",
    ]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(names(&temporary), [] as [&str; 0]);
}

/// The loop devices with their files.
fn loops() -> Vec<(String, String)> {
    let all = std::fs::read_dir("/sys/block").unwrap().flatten();
    let of = |entry: std::fs::DirEntry| {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((entry.file_name().into_string().ok()?, file))
    };
    all.filter_map(of).collect()
}

/// A search is killed while the program runs. When the program has ended too, its device is gone.
///
/// Would catch a loop device over the dead server's file that stays for ever, which only a reboot
/// or `losetup` removes.
#[test]
fn a_killed_recording_leaves_no_device() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("ordo"));
    command.current_dir(dir.path()).env("TMPDIR", dir.path());
    command.args(["crash", "--quiet", "--check", "true", "--", "sh", "-c"]);
    let mut child = command.arg("touch \"$ORDO_ORIGIN/runs\"; sleep 2").spawn().unwrap();
    let wait = |what: &str, reached: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !reached() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait("the program does not run", &|| dir.path().join("runs").exists());
    let ours = |(_, file): &(String, String)| Path::new(file).starts_with(dir.path());
    let used: Vec<String> = loops().into_iter().filter(ours).map(|(name, _)| name).collect();
    assert_eq!(used.len(), 1);
    signal(&child, "-KILL");
    child.wait().unwrap();
    // The file of a dead server has a short name, or the old one while somebody has it mounted.
    let is_left = |(name, file): &(String, String)| {
        *name == used[0] && (file.trim() == "/device" || Path::new(file).starts_with(dir.path()))
    };
    wait("the loop device is left", &|| !loops().iter().any(is_left));
}

/// The power fails again during the kernel's recovery. On a disk that tears sectors of 512 bytes,
/// ext4's superblock, which the recovery writes, can be torn then; no other state of this search
/// has a torn superblock, because the rule keeps all of them. The failure says that it needs both
/// cuts, and can be repeated.
///
/// Would catch cuts that are not made (nothing is unmountable), recovered disks that are judged in
/// place of the cut ones, and failures that are saved without the recovery.
#[test]
fn the_power_fails_again_during_recovery() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = "for n in 1 2 3; do echo $n >log$n; sync; echo $n >\"$ORDO_MARK\"; done";
    let check = "for n in $(cat \"$ORDO_ACKED\"); do test -s log$n || { echo lost; exit 1; }; done";
    let mut args = vec!["--fs", "ext4", "--states", "24", "--check", check, "--json", "--quiet"];
    args.extend(["--save", "f.json", "--neighbour", "0", "--recovery-every", "1"]);
    let torn = [&args[..], &["--sector", "512", "--rule", "keep superblock"]].concat();
    let torn = [&torn[..], &["--", "sh", "-c", run]].concat();
    let (code, out, err) = crash(dir.path(), &torn);
    let row = serde_json::from_str::<Value>(&out).unwrap()["rows"][0].take();
    let number = |key: &str| row[key].as_u64().unwrap();
    assert_eq!(code, 3, "{out}{err}");
    assert!(number("recoveries") > 0 && number("in_recovery") > number("recoveries"), "{row}");
    assert!(number("torn_superblock") > 0, "{row}");
    assert_eq!(number("unsound"), number("torn_superblock"), "{row}");
    let cut = &row["findings"][0]["recoveries"][0];
    let fates: Vec<_> = cut["writes"].as_array().unwrap().iter().map(|w| &w["fate"]).collect();
    assert!(fates.iter().any(|fate| *fate == "torn"), "{row}");
    let (code, out, err) = crash(dir.path(), &["replay", "f.json", "--yes"]);
    assert!(code == 1 && out.contains("power cut again"), "{code} {out}{err}");
    // A whole sector of 4,096 bytes is never torn: every recovery can be cut anywhere.
    let (code, out, err) = crash(dir.path(), &[&args[..], &["--", "sh", "-c", run]].concat());
    assert_eq!(code, 0, "{out}{err}");
    let row = serde_json::from_str::<Value>(&out).unwrap()["rows"][0].take();
    assert!(row["in_recovery"].as_u64() > Some(20), "{row}");
}

/// Only states of the wanted manners are judged. A state that several manners have is judged if one
/// of them is wanted.
///
/// Would catch a restriction that is ignored, and prefixes that are left out because they are other
/// states too.
#[test]
fn states_are_restricted_to_some_manners() {
    if !is_possible(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = "for n in 1 2 3; do echo $n >>log; echo $n >\"$ORDO_MARK\"; done";
    let check = "cmp -s log \"$ORDO_ACKED\" || test ! -s \"$ORDO_ACKED\" || { echo lost; exit 1; }";
    for manner in ["amnesia", "prefix"] {
        let mut args = vec!["--only", manner, "--check", check, "--no-shrink", "--json", "--quiet"];
        args.extend(["--save", "f.json", "--", "sh", "-c", run]);
        let (code, out, err) = crash(dir.path(), &args);
        assert_eq!(code, 1, "{manner}: {out}{err}");
        let row = serde_json::from_str::<Value>(&out).unwrap()["rows"][0].take();
        let findings = row["findings"].as_array().unwrap();
        assert!(findings.iter().all(|found| found["pick"]["manner"] == manner), "{row}");
    }
    let (code, _, err) = crash(dir.path(), &["--only", "luck", "--check", "true", "--", "true"]);
    assert!(code == 2 && err.contains("amnesia"), "{code} {err}");
}
