//! `ordo crash -- COMMAND` on Ordo's own file systems: the program runs on their mount, and a power
//! cut's states are recovered by their own recovery.
//!
//! The tests need root and FUSE; the last one lends `/dev/fuse` to an ordinary user, who needs
//! `fusermount3`.

mod programs;

use std::path::Path;
use std::process::Command;

use ordo_systems::System;
use programs::crash;
use serde_json::Value;

/// A file replaced by rename, with waiting, and without any.
const CORRECT: &str =
    "for n in 1 2 3; do echo $n >new; sync new; mv new db; sync .; echo $n >\"$ORDO_MARK\"; done";
const MISTAKE: &str = "for n in 1 2 3; do echo $n >new; mv new db; echo $n >\"$ORDO_MARK\"; done";
/// The newest promised round is in the file, which is never empty.
const CHECK: &str = "n=$(tail -n 1 \"$ORDO_ACKED\"); test -z \"$n\" || test \"$(cat db)\" -ge \"$n\" || \
    { echo lost; exit 1; }";

fn is_possible() -> bool {
    let root = ordo_testkit::judge("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    let possible = root && Path::new("/dev/fuse").exists();
    if !possible {
        ordo_testkit::skip("mounting needs root and /dev/fuse");
    }
    possible
}

/// Crashes a program on a system. Returns the exit status, the row, and the errors.
fn crashed(dir: &Path, system: &str, run: &str) -> (i32, Value, String) {
    let mut args = vec!["--fs", system, "--states", "60", "--recovery-every", "6", "--json"];
    args.extend(["--check", CHECK, "--save", "f.json", "--", "sh", "-c", run]);
    let (code, out, err) = crash(dir, &args);
    let value = serde_json::from_str::<Value>(&out);
    let mut value = value.unwrap_or_else(|_| panic!("{system}: {out}{err}"));
    (code, value["rows"][0].take(), err)
}

/// Every system keeps what a correct program waited for, also if the power fails again during its
/// own recovery. A program that waits for nothing is found on every system: even those that write
/// names at once write contents later.
///
/// Would catch a device that ignores flushes (a correct program is accused), states that are the
/// disk as it is at the end (no mistake is found), and a recovery that is left out (the state
/// cannot be mounted).
#[test]
fn programs_are_crashed_on_every_system() {
    if !is_possible() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut cut = 0;
    for system in System::runnable() {
        let name = system.name();
        let (code, row, err) = crashed(dir.path(), name, CORRECT);
        assert_eq!((code, &row["promise_broken"]), (0, &Value::from(0)), "{name}: {row}{err}");
        assert!(row["states"].as_u64() > Some(10) && row["trees"].as_u64() > Some(2), "{row}");
        cut += row["in_recovery"].as_u64().unwrap();
        let (code, row, err) = crashed(dir.path(), name, MISTAKE);
        assert_eq!((code, &row["unsound"]), (1, &Value::from(0)), "{name}: {row}{err}");
        assert!(row["lost_durable"].as_u64() > Some(0), "{name}: {row}{err}");
    }
    assert!(cut > 50, "{cut} states of cut recoveries");
}

/// A failure on such a system is repeated, and written as an image that Ordo's check reads.
#[test]
fn failures_on_own_systems_are_repeated() {
    if !is_possible() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (code, row, err) = crashed(dir.path(), "ffs-none", MISTAKE);
    assert_eq!(code, 1, "{row}{err}");
    // Nobody is asked without a terminal, so the command in the file does not run; it is shown.
    let (code, out, err) = crash(dir.path(), &["replay", "f.json"]);
    assert!(code == 2 && out.is_empty() && err.contains("--yes"), "{code} {out}{err}");
    assert!(err.contains("tail -n 1") && err.contains("ffs-none of"), "{err}");
    let (code, out, err) = crash(dir.path(), &["replay", "f.json", "--yes"]);
    assert!(code == 1 && out.contains("| lost"), "{code} {out}{err}");
    let (code, _, err) = crash(dir.path(), &["image", "f.json", "-o", "state.img"]);
    assert_eq!(code, 0, "{err}");
    let mut info = assert_cmd::Command::cargo_bin("ordo").unwrap();
    info.current_dir(dir.path()).args(["info", "state.img"]).assert().success();
    let (code, _, err) =
        crash(dir.path(), &["--fs", "ffs-sync", "--mkfs", "-x", "--check", "true", "--", "true"]);
    assert!(code != 0 && err.contains("kernel's"), "{code} {err}");
}

/// An ordinary user crashes a program. Killed in the middle, the search leaves no mount behind, and
/// no folder.
#[test]
fn an_ordinary_user_needs_no_root() {
    if !is_possible() {
        return;
    }
    if Command::new("fusermount3").arg("-V").output().is_err() {
        return ordo_testkit::skip("an ordinary user needs fusermount3");
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "set -e; mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse; mkdir work; \
        chmod 777 . work; cd work; TMPDIR=$PWD; export TMPDIR; as='setpriv --reuid 65534 --regid 65534 --clear-groups'; \
        $as test -x \"$ORDO\" || { echo out of reach; exit 0; }; c=0; \
        $as \"$ORDO\" crash --fs ffs-soft-updates --states 30 --quiet --check \"$CHECK\" \
          -- sh -c \"$RUN\" || c=$?; echo first $c; \
        $as \"$ORDO\" crash --fs ffs-soft-updates --states 30 --threads 2 --quiet --check 'sleep 60' \
          -- sh -c \"$RUN\" & pid=$!; n=0; \
        until grep -q ordo-state /proc/self/mountinfo || test $n = 300; do sleep 0.1; n=$((n+1)); done; \
        sleep 1; grep -c ordo-state /proc/self/mountinfo; kill -KILL $pid; wait; n=0; \
        while grep -q ordo-state /proc/self/mountinfo && test $n != 100; do sleep 0.1; n=$((n+1)); done; \
        grep -c ordo-state /proc/self/mountinfo || true; \
        while ls -d ordo-run-* 2>/dev/null && test $n != 100; do sleep 0.1; n=$((n+1)); done >&2; \
        ls | grep -c ordo-run- || true";
    let out = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .current_dir(dir.path())
        .env("ORDO", assert_cmd::cargo::cargo_bin("ordo"))
        .env("CHECK", CHECK)
        .env("RUN", CORRECT)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, err) = (text(&out.stdout), text(&out.stderr));
    if said.contains("out of reach") {
        return ordo_testkit::skip("an ordinary user cannot reach the program");
    }
    let said: Vec<&str> = said.lines().collect();
    let [.., first, mounted, left, folders] = said[..] else { panic!("{said:?} {err}") };
    assert!(first == "first 0" && mounted != "0" && left == "0", "{said:?} {err}");
    assert_eq!(folders, "0", "{said:?} {err}");
}
