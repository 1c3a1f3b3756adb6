//! `ordo whatif` as a user calls it first, without marks and options: recorded in a guest kernel on
//! one disk, predicted for another, and really run there. Guests have no noise, so that the whole
//! difference is the model's.
//!
//! Fault model: a prediction that is bound to the recorded time, as one that measures the unmount,
//! or processes that begin when they began. It agrees with its own trace and with nothing else.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

/// Appends of one process, each with an fsync.
const APPENDS: &str = "import os
f = os.open('f', os.O_CREAT | os.O_WRONLY)
for i in range(40):
    os.pwrite(f, b'x' * 4096, i * 4096)
    os.fsync(f)
";
/// Processes one after the other: a shell and its commands, with contents, names and logs.
const SHELL: &str = "\
for i in $(seq 1 30); do echo line $i >> app.log; sync app.log; done
for i in $(seq 1 20); do echo $i > new; sync new; mv new state; sync .; done
";

/// Runs Ordo in a folder, which a guest sees too.
fn ordo(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let out = Command::cargo_bin("ordo").unwrap().current_dir(folder).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

/// Records a program on a file system and disk in a guest.
fn record(folder: &Path, (fs, disk): (&str, &str), (name, more): (&str, &[&str])) -> PathBuf {
    let trace = folder.join(format!("{fs}-{disk}-{name}"));
    let program = folder.join(name);
    // ext4 writes its tables of inodes in the background, for as long as the disk needs.
    let mkfs = if fs == "ext4" { "--mkfs=-E lazy_itable_init=0" } else { "--mkfs=" };
    let how = ["trace", "run", "--kernel", "guest", "--fs", fs, mkfs, "--disk", disk, "-o"];
    let interpreter = if name.ends_with(".py") { "python3" } else { "sh" };
    let command = [trace.to_str().unwrap(), "--", interpreter, program.to_str().unwrap()];
    let (code, _, errors) = ordo(folder, &[&how[..], &command[..1], more, &command[1..]].concat());
    assert_eq!(code, 0, "{errors}");
    trace
}

fn predicted(trace: &Path, more: &[&str]) -> Value {
    let (_, out, errors) =
        ordo(trace, &[&["whatif", trace.to_str().unwrap(), "--json"], more].concat());
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{errors}"))
}

/// Another disk, slower and faster, for one process and for a shell with its commands, with calls
/// and without. Would catch predictions of 1.000 for a change that takes three times as long.
#[test]
fn another_disk_is_predicted_without_marks() {
    if !ordo_testkit::has_guest(env!("CARGO_BIN_EXE_ordo")) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("appends.py"), APPENDS).unwrap();
    std::fs::write(folder.path().join("work.sh"), SHELL).unwrap();
    for (program, more) in
        [("appends.py", &[][..]), ("appends.py", &["--calls"]), ("work.sh", &["--calls"])]
    {
        for fs in ["ext4", "xfs"] {
            let [slow, fast] =
                ["hdd-4tb", "nvme"].map(|disk| record(folder.path(), (fs, disk), (program, more)));
            for (from, to, disk) in [(&slow, &fast, "nvme"), (&fast, &slow, "hdd-4tb")] {
                let told = predicted(from, &["--disk", disk, "--made", to.to_str().unwrap()]);
                let row = &told["rows"][0];
                let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
                let what = format!("{fs}, {program} {more:?} to {disk}: {row}");
                assert!(number("error").abs() < 0.1, "{what}");
                let ratio = number("ratio");
                assert!(if disk == "nvme" { ratio < 0.7 } else { ratio > 1.4 }, "{what}");
                assert!(told["refused"].is_null(), "{told}");
            }
            for trace in [slow, fast] {
                std::fs::remove_dir_all(trace).unwrap();
            }
        }
    }
}

/// A program that waits for the clock alone takes as long on any disk, and the prediction says so;
/// a disk that gets its first volatile cache needs flushes that the trace does not show.
#[test]
fn what_a_trace_does_not_show_is_refused() {
    if !ordo_testkit::has_guest(env!("CARGO_BIN_EXE_ordo")) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("appends.py"), APPENDS).unwrap();
    std::fs::write(folder.path().join("sleeps.sh"), "sleep 20; date > f; sync f; sleep 20")
        .unwrap();
    let sleeps = record(folder.path(), ("ext4", "hdd-4tb"), ("sleeps.sh", &[]));
    let told = predicted(&sleeps, &["--disk", "nvme"]);
    let ratio = told["rows"][0]["ratio"].as_f64().unwrap();
    assert!(ratio > 0.99 && ratio <= 1.0, "{told}");
    assert!(told["unchanged"]["spent_seconds"]["think"].as_f64().unwrap() > 39.9, "{told}");
    let bare = record(folder.path(), ("ext4", "viking"), ("appends.py", &[]));
    let (code, _, errors) =
        ordo(folder.path(), &["whatif", bare.to_str().unwrap(), "--disk", "hdd-4tb"]);
    assert!(code != 0 && errors.contains("has no volatile cache"), "{errors}");
    // To a disk without a cache, the flushes are there and cost nothing.
    let told = predicted(&sleeps, &["--disk", "viking"]);
    assert_eq!(told["rows"].as_array().map(Vec::len), Some(1), "{told}");
}
