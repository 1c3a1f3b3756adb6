//! `ordo crash -- COMMAND` on file systems of several devices: an external journal or log, a
//! mirrored btrfs. Each device is recorded, and loses the writes that were not flushed to it.
//!
//! The tests need root, FUSE, loop devices and the mkfs programs.

mod programs;

use std::path::Path;
use std::process::Command;

use programs::{crash, is_possible};
use serde_json::Value;

/// A file replaced by rename, with waiting, and without any.
const CORRECT: &str =
    "for n in 1 2 3; do echo $n >new; sync new; mv new db; sync .; echo $n >\"$ORDO_MARK\"; done";
const MISTAKE: &str = "for n in 1 2 3; do echo $n >new; mv new db; echo $n >\"$ORDO_MARK\"; done";
/// The newest promised round is in the file, which is never empty.
const CHECK: &str = "n=$(tail -n 1 \"$ORDO_ACKED\"); test -z \"$n\" || test \"$(cat db)\" -ge \"$n\" || \
    { echo lost; exit 1; }";

/// Crashes a program on a system. Returns the exit status, the row, and the errors.
fn crashed(dir: &Path, (system, mkfs): (&str, &str), run: &str) -> (i32, Value, String) {
    let mut args = vec!["--fs", system, "--mkfs", mkfs, "--states", "60", "--json", "--quiet"];
    args.extend(["--recovery-every", "20", "--check", CHECK, "--save", "f.json", "--"]);
    args.extend(["sh", "-c", run]);
    let (code, out, err) = crash(dir, &args);
    let value = serde_json::from_str::<Value>(&out);
    let mut value = value.unwrap_or_else(|_| panic!("{system}: {out}{err}"));
    (code, value["rows"][0].take(), err)
}

/// The descriptions of the writes in a row's failures, with their fates.
fn writes(row: &Value) -> Vec<(String, String)> {
    let findings = row["findings"].as_array().unwrap().iter();
    let writes = findings.flat_map(|finding| finding["writes"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    writes.map(|write| (text(&write["fate"]), text(&write["what"]))).collect()
}

/// File systems with a second device, and arguments for their mkfs.
const SYSTEMS: [(&str, &str); 4] = [
    ("ext4:external-journal", ""),
    ("ext3:external-journal=16m,data=journal", "-b 1024"),
    ("xfs:external-log", ""),
    ("btrfs:devices=2", "-m raid1 -d raid1"),
];

/// A correct program is never accused, also if the power fails again during the recovery of both
/// devices; a mistake is found. A state whose second device held something else could not be
/// mounted.
#[test]
fn programs_are_crashed_on_several_devices() {
    if !is_possible(&["mke2fs", "mkfs.xfs", "mkfs.btrfs"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for system in SYSTEMS {
        let (code, row, err) = crashed(dir.path(), system, CORRECT);
        assert_eq!((code, &row["promise_broken"]), (0, &Value::from(0)), "{system:?}: {row}{err}");
        assert_eq!(row["system"], system.0);
        assert!(row["trees"].as_u64() > Some(2) && row["in_recovery"].as_u64() > Some(5), "{row}");
        let (code, row, err) = crashed(dir.path(), system, MISTAKE);
        assert_eq!((code, &row["unsound"]), (1, &Value::from(0)), "{system:?}: {row}{err}");
        assert!(row["lost_durable"].as_u64() > Some(0), "{system:?}: {row}{err}");
    }
}

/// Without barriers nothing makes the journal's device keep a commit block for which the program
/// waited: the loss is found, and named as a block of the second disk's journal. The state becomes
/// two images, which the kernel mounts.
///
/// Would catch a second device that never loses anything, whose blocks have no meaning, or whose
/// image is another state.
#[test]
fn writes_of_the_second_device_are_lost_named_and_written() {
    if !is_possible(&["mke2fs"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let system = ("ext4:external-journal,nobarrier", "");
    let (code, row, err) = crashed(dir.path(), system, CORRECT);
    assert_eq!(code, 1, "{row}{err}");
    let writes = writes(&row);
    let lost = |what: &str| {
        let is_it = |(fate, said): &&(String, String)| fate != "kept" && said.starts_with(what);
        writes.iter().find(is_it).is_some_and(|(_, said)| said.ends_with(" of disk 1"))
    };
    let journal = ["journal commit", "commit block", "journal descriptor", "journal data"];
    assert!(journal.into_iter().any(lost), "{writes:?}");
    assert!(writes.iter().any(|(_, what)| !what.ends_with(" of disk 1")), "{writes:?}");
    let (code, out, err) = crash(dir.path(), &["image", "f.json", "-o", "state.img"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("state.img: file system"), "{out}");
    assert!(out.contains("state.img.1: external journal"), "{out}");
    let script = "set -e; d=$(losetup -f --show state.img); j=$(losetup -f --show state.img.1); mkdir m; \
        trap 'umount m; losetup -d $d $j' EXIT; mount -o journal_path=$j $d m; test -d m/work";
    let mut mounting = Command::new("unshare");
    let mounted = mounting.args(["-m", "sh", "-c", script]).current_dir(dir.path()).output();
    let mounted = mounted.unwrap();
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let (code, out, err) = crash(dir.path(), &["replay", "f.json", "--yes"]);
    assert!(code == 1 && out.contains("of disk 1"), "{code} {out}{err}");
}

/// Every disk of a mirrored btrfs is written, and every one of Ordo's own DualFS.
#[test]
fn all_disks_of_a_state_are_written() {
    if !is_possible(&["mkfs.btrfs"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (code, row, err) = crashed(dir.path(), SYSTEMS[3], MISTAKE);
    assert_eq!(code, 1, "{row}{err}");
    let (code, _, err) = crash(dir.path(), &["image", "f.json", "-o", "b.img"]);
    assert_eq!(code, 0, "{err}");
    for (name, number) in [("b.img", "1"), ("b.img.1", "2")] {
        let image = at(name).to_string_lossy().into_owned();
        let said = ordo_testkit::judge("btrfs", &["inspect-internal", "dump-super", &image]);
        let said = said.unwrap_or_default();
        let has = |key, value| said.lines().any(|l| l.split_whitespace().eq([key, value]));
        assert!(has("num_devices", "2") && has("dev_item.devid", number), "{name}: {said}");
    }
    let mut args = vec!["--fs", "dualfs-2", "--states", "60", "--quiet", "--check", CHECK];
    args.extend(["--save", "d.json", "--", "sh", "-c", MISTAKE]);
    let (code, out, err) = crash(dir.path(), &args);
    assert_eq!(code, 1, "{out}{err}");
    let (code, out, err) = crash(dir.path(), &["image", "d.json", "-o", "d.img"]);
    assert!(code == 0 && out.lines().count() == 2, "{out}{err}");
    assert!(at("d.img").exists() && at("d.img.1").exists() && !at("d.img.2").exists());
}

/// Options that cannot be are refused before anything runs, with a word about what can.
#[test]
fn options_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |fs: &str, mkfs: &str| {
        let args = ["--fs", fs, "--mkfs", mkfs, "--check", "true", "--", "touch", "ran"];
        let (code, _, err) = crash(dir.path(), &args);
        assert_eq!(code, 2, "{fs} {mkfs}: {err}");
        err
    };
    assert!(refused("ext2:external-journal", "").contains("one device"));
    assert!(refused("ext4:data=journal,btrfs:external-journal", "").contains("devices=2"));
    assert!(refused("xfs:logdev=/dev/sda", "").contains("external-log"));
    assert!(refused("ext4:external-journal=5k", "").contains("MiB"));
    assert!(refused("ext4", "-J device=/dev/sda").contains("external-journal"));
    assert!(refused("btrfs", "/dev/sda").contains("devices=2"));
    assert!(!dir.path().join("ran").exists());
}
