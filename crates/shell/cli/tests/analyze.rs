//! `ordo analyze` and `ordo trace`, as a user runs them, on a trace that a kernel made.

use std::fs;
use std::path::PathBuf;

use assert_cmd::Command;

/// The files of a trace and its start image; `None`, with a message, where they are absent.
fn input(folder: &tempfile::TempDir) -> Option<(PathBuf, PathBuf)> {
    let (start, log) = (folder.path().join("start"), folder.path().join("log"));
    fs::write(&start, ordo_testkit::real_input("traces/ext3-start.img")?).unwrap();
    fs::write(&log, ordo_testkit::real_input("traces/ext3.dmlogwrites")?).unwrap();
    Some((start, log))
}

fn ordo(args: &[&str]) -> (i32, String, String) {
    let out = Command::cargo_bin("ordo").unwrap().args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_trace_is_analyzed_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let Some((start, log)) = input(&folder) else { return };
    let (start, log) = (start.to_str().unwrap(), log.to_str().unwrap());
    let (code, out, errors) = ordo(&["analyze", log, "--start", start]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    let line = |name: &str| {
        let found = out.lines().find(|l| l.trim_start().starts_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {out}")).to_owned()
    };
    assert!(line("transactions, committed").ends_with("14, 14"), "{out}");
    assert!(line("journal data").contains("61"), "{out}");
    assert!(line("blocks that nothing pointed to").ends_with(" 0"), "{out}");

    let (_, out, _) = ordo(&["analyze", log, "--start", start, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["transactions"]["committed"], 14);

    let (_, out, _) = ordo(&["trace", "show", log, "--start", start]);
    assert!(out.contains("journal commit of transaction 2\n"), "{out}");
    assert!(out.contains("group descriptors, block 0 <- transaction 2\n"), "{out}");
    let (_, out, _) = ordo(&["trace", "show", log, "--start", start, "--json"]);
    let mut flushes = 0;
    for line in out.lines() {
        let part: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(part["kind"].is_string() && part["means"].is_string());
        flushes += u64::from(part["op"] == "flush");
    }
    assert_eq!(json["flushes"], flushes, "{json}");
}

/// Without a file system requests are counted; other files are told what is taken; a log that is
/// cut is read as far as it goes.
#[test]
fn traces_without_a_known_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let Some((start, log)) = input(&folder) else { return };
    let (start, path) = (start.to_str().unwrap(), log.to_str().unwrap());
    let zeros = folder.path().join("zeros");
    fs::write(&zeros, vec![0; 1 << 20]).unwrap();
    let (code, out, errors) = ordo(&["analyze", path, "--start", zeros.to_str().unwrap()]);
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("no known file system") && out.contains("write"), "{errors}{out}");
    let (code, _, errors) = ordo(&["analyze", path, "--html", "--start", zeros.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(errors.contains("no known file system"), "{errors}");
    let (code, _, errors) = ordo(&["analyze", start, "--start", start]);
    assert_eq!(code, 1);
    assert!(errors.contains("no trace in a form that is read"), "{errors}");
    assert!(errors.contains("dm-log-writes") && errors.contains("perf script"), "{errors}");
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    let (code, out, errors) = ordo(&["analyze", path, "--start", start]);
    assert_eq!(code, 0);
    assert!(errors.contains("truncated"), "{errors}");
    assert!(out.contains("transactions, committed"), "{out}");
}

/// The bytes written before the command, by it, and after it, each counted by itself, are those of
/// the whole trace; files have the names that they got before their part. Catches a request that is
/// counted twice or in no part, and a part that knows nothing of what went before.
fn parts_are_the_whole(log: &str) {
    let (begin, end) = ("ordo: the command begins", "ordo: the command ends");
    let parts: [&[&str]; 4] =
        [&[], &["--until", begin], &["--from", begin, "--until", end], &["--from", end]];
    let sums = parts.map(|part| {
        let (code, out, errors) = ordo(&[&["analyze", log, "--again", "--json"], part].concat());
        assert_eq!(code, 0, "{part:?}: {errors}");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        let kinds = json["writes"].as_object().unwrap().values();
        let bytes: u64 = kinds.map(|kind| kind["bytes"].as_u64().unwrap()).sum();
        (bytes, json["flushes"].as_u64().unwrap(), json)
    });
    let [whole, before, during, after] = &sums;
    assert_eq!(whole.0, before.0 + during.0 + after.0, "bytes written");
    assert_eq!(whole.1, before.1 + during.1 + after.1, "flushes");
    assert!(during.0 > 0 && during.0 < whole.0, "{} of {}", during.0, whole.0);
    assert_eq!(during.2["system"], "ext3");
    let files = during.2["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file["path"] == "/a"), "{files:?}");
    let (code, _, errors) = ordo(&["analyze", log, "--from", "no such mark"]);
    assert!(code == 1 && errors.contains("no mark 'no such mark'"), "{errors}");
    let (_, out, _) = ordo(&["analyze", log, "--requests"]);
    assert!(out.contains("latency") && out.contains("of the bytes written are journal"), "{out}");
}

/// The whole sequence on this machine, where that is allowed: a file system is made, mounted, used,
/// and analyzed; the kept trace gives the same analysis again.
#[test]
fn a_command_is_recorded_on_a_pseudo_device() {
    let folder = tempfile::tempdir().unwrap();
    let (start, log) = (folder.path().join("start"), folder.path().join("log"));
    let (start, log) = (start.to_str().unwrap(), log.to_str().unwrap());
    let script = "echo hello > a; sync -f a; exit 3";
    let run = [
        "trace",
        "run",
        "--fs",
        "ext3",
        "--size",
        "32m",
        "--mount-opts",
        "data=journal",
        "-o",
        log,
    ];
    let rest = ["--start", start, "--json", "--", "sh", "-c", script];
    let (code, out, errors) = ordo(&[&run[..], &rest].concat());
    if code == 1 {
        return ordo_testkit::skip(&format!("no pseudo-device: {}", errors.trim()));
    }
    assert_eq!(code, 3, "the command's own status: {errors}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["system"], "ext3");
    assert!(json["transactions"]["data_copies"].as_u64().unwrap() > 0, "{out}");
    let exported = folder.path().join("exported");
    let exported = exported.to_str().unwrap();
    let (_, again, _) = ordo(&["analyze", log, "--json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again, json);
    // The text is the same, whether it is counted from the tables or named again.
    let (_, counted, _) = ordo(&["analyze", log]);
    assert_eq!(ordo(&["analyze", log, "--again"]).1, counted);
    assert!(json["transactions"]["nanos_to_commit"]["greatest"].as_u64().unwrap() > 0, "{out}");
    let page = folder.path().join("page.html");
    let html = ["analyze", log, "--html", "-o", page.to_str().unwrap()];
    assert_eq!(ordo(&html).0, 0);
    assert!(fs::read_to_string(&page).unwrap().contains("Writes outstanding"));
    let (code, out, _) = ordo(&["analyze", log, "--expect"]);
    assert_eq!((code, out.as_str()), (0, ""), "ext3 keeps to write-ahead logging");
    let without = folder.path().join("without");
    let without = without.to_str().unwrap();
    let blind = ["trace", "run", "--fs", "ext3", "--size", "32m", "--without-contents", "-o"];
    let (_, counted, _) =
        ordo(&[&blind[..], &[without, "--", "sh", "-c", "echo > a; sync"]].concat());
    let html = ["analyze", without, "--html", "-o", page.to_str().unwrap()];
    assert_eq!(ordo(&html).0, 0);
    let shown = fs::read_to_string(&page).unwrap();
    assert!(counted.contains("journal commit") && shown.contains("journal commit"), "{counted}");
    for line in counted.lines().filter(|line| line.contains("journal")) {
        assert!(shown.contains(line), "the page has the names that blocks got: {line}");
    }
    let (code, _, errors) = ordo(&["analyze", without, "--expect"]);
    assert!(code == 1 && errors.contains("cannot be seen"), "nothing passes unseen: {errors}");
    parts_are_the_whole(log);
    // A log of dm-log-writes has everything but times and reads.
    let to = ["trace", "export", log, "--to", "dm-log-writes", "-o", exported];
    assert_eq!(ordo(&to).0, 0);
    let (_, again, _) = ordo(&["analyze", exported, "--start", start, "--json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["writes"], json["writes"]);
    let (code, _, errors) = ordo(&["trace", "run", "--fs", "zfs", "--", "true"]);
    assert_eq!(code, 1);
    assert!(errors.contains("there are ext2, ext3"), "{errors}");
}

/// An image is attached, and one is served over NBD. The requests of a command are recorded, named,
/// and done. Rules drop writes; texts that are no rules are refused.
#[test]
fn images_are_attached_and_served() {
    let folder = tempfile::tempdir().unwrap();
    let (image, trace) = (folder.path().join("image"), folder.path().join("trace"));
    let (image, trace) = (image.to_str().unwrap(), trace.to_str().unwrap());
    fs::write(image, vec![0; 16 << 20]).unwrap();
    let mke2fs = ["-q", "-F", "-t", "ext4", image];
    if ordo_testkit::judge("mke2fs", &mke2fs).is_none() {
        return;
    }
    let socket = folder.path().join("socket");
    let script = "nbdcopy \"$ORDO_URI\" /dev/null; exit 4";
    let serve =
        ["trace", "serve", image, "--socket", socket.to_str().unwrap(), "--json", "-o", trace];
    let (code, out, errors) = ordo(&[&serve[..], &["--", "sh", "-c", script]].concat());
    if code == 4 {
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["system"], "ext4");
        assert!(json["reads"]["inode_block"]["bytes"].as_u64().unwrap() > 0, "{out} {errors}");
        assert_eq!(ordo(&["analyze", trace]).0, 0);
    }
    let script = "tune2fs -L named $ORDO_DEVICE; e2label $ORDO_DEVICE";
    let attach = ["trace", "attach", image, "--rule", "drop superblock", "--", "sh", "-c", script];
    let (code, out, errors) = ordo(&attach);
    if code == 1 && errors.contains("ordo:") && out.is_empty() {
        return ordo_testkit::skip(&format!("no pseudo-device: {}", errors.trim()));
    }
    assert!(errors.contains("dropped"), "{errors}");
    let label = ordo_testkit::judge("e2label", &[image]).unwrap();
    assert_eq!(label.trim(), "", "the write of the superblock was dropped");
    let (code, _, errors) = ordo(&["trace", "attach", image, "--rule", "drop it", "--", "true"]);
    assert_eq!(code, 2);
    assert!(errors.contains("no kind of block"), "{errors}");
}
