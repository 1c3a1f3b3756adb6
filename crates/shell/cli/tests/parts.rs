//! Recordings in parts, as a user makes and analyses them.
//!
//! Fault model: a recorder that is killed, or whose disk is full; memory that grows with the
//! recording; parts that are damaged; a sum of parts that is not the whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn ordo(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ordo")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// All parts below a folder, in order.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.join("requests.parquet").exists()
            && path.extension().is_none_or(|e| e != "writing")
            && !path.to_string_lossy().ends_with(".writing")
        {
            all.push(path);
        } else if path.is_dir() {
            all.extend(parts(&path));
        }
    }
    all.sort();
    all
}

/// Whether a pseudo-device cannot be had here; says so.
fn cannot_record(out: &Output) -> bool {
    let no = out.status.code() == Some(1) && out.stdout.is_empty();
    if no {
        ordo_testkit::skip(&format!("no pseudo-device: {}", text(&out.stderr).trim()));
    }
    no
}

/// A trace that is imported in parts gives, byte for byte, what the whole trace gives. With a
/// damaged part the rest is given, the part is named, and the exit status is 1. Would catch a
/// command that reads the first of several traces, and says nothing of the others.
#[test]
fn imported_parts_give_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (start, log) in [("ext3", "ext3"), ("reiserfs", "reiserfs-journal")] {
        let Some(image) = ordo_testkit::real_input(&format!("traces/{start}-start.img")) else {
            return;
        };
        let Some(bytes) = ordo_testkit::real_input(&format!("traces/{log}.dmlogwrites")) else {
            return;
        };
        fs::write(at("start"), image).unwrap();
        fs::write(at("log"), bytes).unwrap();
        let (whole, cut) = (at(&format!("{log}.whole")), at(&format!("{log}.parts")));
        let import = ["trace", "import", &at("log"), "--start", &at("start"), "-o"];
        assert!(ordo(&[&import[..], &[&whole]].concat()).status.success());
        assert!(ordo(&[&import[..], &[&cut, "--rotate", "64k"]].concat()).status.success());
        let dirs = parts(Path::new(&cut));
        assert!(dirs.len() > 3, "{dirs:?}");
        for how in [&["--json"][..], &[]] {
            let one = ordo(&[&["analyze", &whole], how].concat());
            let many = ordo(&[&["analyze", &cut], how].concat());
            assert_eq!((many.status.code(), text(&many.stderr)), (Some(0), String::new()));
            assert_eq!(text(&many.stdout), text(&one.stdout), "{log}");
        }
        // The parts one by one, as a shell's pattern gives them, are the whole too; some of them
        // are not.
        let each: Vec<&str> = dirs.iter().map(|dir| dir.to_str().unwrap()).collect();
        let out = ordo(&[&["analyze"], &each[..]].concat());
        assert_eq!(text(&out.stdout), text(&ordo(&["analyze", &whole]).stdout), "{log}");
        let out = ordo(&[&["analyze"], &each[1..]].concat());
        assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), String::new()));
        assert!(text(&out.stderr).contains("parts of a recording"), "{}", text(&out.stderr));
        for command in [&["analyze"][..], &["whatif"], &["trace", "show"]] {
            let out = ordo(&[command, &[&whole, each[0]]].concat());
            assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), String::new()));
            assert!(text(&out.stderr).contains("different traces"), "{}", text(&out.stderr));
        }
        let file = dirs[1].join("blocks.parquet");
        let good = fs::read(&file).unwrap();
        fs::write(&file, &good[..good.len() - 9]).unwrap();
        let out = ordo(&["analyze", &cut]);
        assert_eq!(out.status.code(), Some(1));
        let said = text(&out.stderr);
        assert!(said.contains("set aside") && said.contains("blocks.parquet"), "{said}");
        assert!(text(&out.stdout).contains("transactions, committed"));
        let out = ordo(&["analyze", &cut, "--again"]);
        assert!(text(&out.stderr).contains("take one part"), "{}", text(&out.stderr));
    }
    let out = ordo(&["analyze", folder.path().to_str().unwrap()]);
    assert!(text(&out.stderr).contains("give one trace"), "{}", text(&out.stderr));
}

/// An option that a recording in parts does not have is refused before anything is made, with its
/// name and the reason; the reason is not that of another option.
#[test]
fn refused_options_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("traces");
    let run = ["trace", "run", "--fs", "ext4", "-o", into.to_str().unwrap()];
    for parts in [["--rotate", "64m"], ["--sample", "1s/1min"]] {
        for (option, why) in [
            (&["--force"][..], "none is replaced"),
            (&["--last", "100"], "parts bound the memory"),
            (&["--rule", "delay file_data 1s"], "parts are for devices in use"),
            (&["--calls"], "sought in the whole recording"),
        ] {
            let out = ordo(&[&run[..], &parts, option, &["--", "true"]].concat());
            let said = text(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "{said}");
            assert!(said.contains(option[0]) && said.contains(why), "{said}");
        }
    }
    assert!(!into.exists());
}

/// A kernel's file system is recorded in parts. What the recorder prints at its end is what its
/// parts give; each part is a trace by itself; marks are in them; contents are those that were
/// written. An idle device ends its part in time.
#[test]
fn a_run_is_recorded_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let script = "for i in 1 2 3 4 5; do mkdir d$i; head -c 700k /dev/urandom > d$i/a; sync; \
        mv d$i/a d$i/b; echo mark m$i > $ORDO_MARK; done; sync; rm -r d1; sync; sleep 3; date > z; sync; exit 5";
    let run =
        ["trace", "run", "--fs", "ext3", "--size", "32m", "--rotate", "256k", "--rotate", "1s"];
    let out = ordo(&[&run[..], &["-o", dir, "--json", "--", "sh", "-c", script]].concat());
    if cannot_record(&out) {
        return;
    }
    assert_eq!(out.status.code(), Some(5), "{}", text(&out.stderr));
    let dirs = parts(folder.path());
    assert!(dirs.len() > 5, "{dirs:?}");
    let again = ordo(&["analyze", dir, "--json"]);
    assert_eq!((again.status.code(), text(&again.stderr)), (Some(0), String::new()));
    assert_eq!(text(&again.stdout), text(&out.stdout));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(json["writes"]["file_data"]["bytes"].as_u64().unwrap() >= 5 * 700 * 1024, "{json}");
    let paths = json["files"].to_string();
    assert!(paths.contains("/d2/b") && !paths.contains("/d2/a"), "the last name: {paths}");
    let (mut requests, mut marks) = (0, Vec::new());
    for dir in &dirs {
        let part = ordo(&["analyze", dir.to_str().unwrap(), "--json", "--again"]);
        assert!(part.status.success(), "{}: {}", dir.display(), text(&part.stderr));
        let stored = ordo_annotate::store::read(dir).unwrap().trace;
        requests += stored.requests().len();
        for r in stored.requests() {
            assert!(r.end.is_some() || r.op == ordo_trace::RequestOp::Mark, "{r:?}");
            let data = stored.data(r);
            if r.op == ordo_trace::RequestOp::Mark {
                marks.push(text(data.unwrap()));
            } else if r.op == ordo_trace::RequestOp::Write {
                assert_eq!(data.unwrap().len() as u64, r.len);
            }
        }
    }
    assert!(requests > 50, "{requests}");
    let (begins, ends) = (ordo_trace::COMMAND_BEGINS, ordo_trace::COMMAND_ENDS);
    assert_eq!(marks, [begins, "m1", "m2", "m3", "m4", "m5", ends]);
    // The mount's day and the device are folders.
    let path = dirs[0].to_str().unwrap();
    assert!(path.contains("/device=memory/fs=ext3/day=2"), "{path}");
}

/// A recorder is killed in the middle of its work: the parts until then are whole, and their sum is
/// given.
#[test]
fn a_killed_recorder_loses_the_part_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let (image, dir) = (folder.path().join("image"), folder.path().join("traces"));
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let (name, into) = (image.to_str().unwrap(), dir.to_str().unwrap());
    if ordo_testkit::judge("mke2fs", &["-q", "-F", "-t", "ext4", name]).is_none() {
        return;
    }
    let script = "i=0; while [ $i -lt 4000 ]; do dd if=/dev/urandom of=$ORDO_DEVICE bs=64k seek=$((i % 400)) \
        count=16 oflag=direct conv=notrunc status=none || exit 0; i=$((i + 16)); done";
    let attach = ["trace", "attach", name, "--rotate", "2m", "-o", into, "--", "sh", "-c", script];
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_ordo"))
        .args(attach)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while parts(&dir).len() < 4 && Instant::now() < until {
        if recorder.try_wait().unwrap().is_some() {
            let out = recorder.wait_with_output().unwrap();
            if !cannot_record(&out) {
                panic!("it ended before it was killed: {}", text(&out.stderr));
            }
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let whole = parts(&dir);
    assert!(whole.len() >= 4, "{whole:?}");
    let out = ordo(&["analyze", into, "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("did not end in order"), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let total: u64 =
        json["writes"].as_object().unwrap().values().map(|c| c["bytes"].as_u64().unwrap()).sum();
    let each = |dir: &PathBuf| {
        let trace = ordo_annotate::store::read(dir).unwrap().trace;
        let writes = trace.requests().iter().filter(|r| r.op == ordo_trace::RequestOp::Write);
        writes.map(|r| r.len).sum::<u64>()
    };
    assert_eq!(total, whole.iter().map(each).sum::<u64>());
    assert!(total >= (whole.len() as u64 - 1) * (1 << 20), "{total}");
    // The killed recorder's device and mount go away.
    let _ = ordo(&["trace", "cleanup"]);
}

/// The disk of the traces becomes full: the recorder says so and stops recording, the command goes
/// on to its end, and the parts until then are whole.
#[test]
fn a_full_disk_ends_the_recording_and_not_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    fs::create_dir(&small).unwrap();
    let dir = small.to_str().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none", dir]).output();
    if !mounted.is_ok_and(|out| out.status.success()) {
        return ordo_testkit::skip("a small tmpfs cannot be mounted: root is needed");
    }
    let script = "for i in 1 2 3 4 5 6 7 8; do head -c 1m /dev/urandom > f$i; sync; done; ls | wc -l > n; exit 7";
    let run = ["trace", "run", "--fs", "ext4", "--size", "32m", "--rotate", "512k", "-o", dir];
    let out = ordo(&[&run[..], &["--", "sh", "-c", script]].concat());
    let found = parts(&small);
    let analysis = ordo(&["analyze", dir]);
    let left =
        text(&Command::new("find").args([dir, "-name", "*.writing"]).output().unwrap().stdout);
    assert!(Command::new("umount").arg(dir).status().unwrap().success());
    if cannot_record(&out) {
        return;
    }
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(7), "the command's own status: {said}");
    assert!(said.contains("the recording has ended, with"), "{said}");
    assert!(said.contains("No space left") || said.contains("os error 28"), "{said}");
    assert!((2..12).contains(&found.len()), "{found:?}");
    assert_eq!(
        (analysis.status.code(), left.as_str()),
        (Some(0), ""),
        "{}",
        text(&analysis.stderr)
    );
    assert!(text(&analysis.stderr).contains("did not end in order"));
}

/// Counters alone: the file has the counts while the device is used, as the analysis at the end has
/// them, and nothing else is written.
#[test]
fn counters_are_written_while_a_device_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ordo.prom");
    let name = file.to_str().unwrap();
    let script = format!(
        "head -c 300k /dev/zero > a; sync; sleep 7; cp {name} {name}.seen; mkdir d; sync; exit 3"
    );
    let run = ["trace", "run", "--fs", "ext4", "--size", "32m", "--counters", name, "--json", "--"];
    let out = ordo(&[&run[..], &["sh", "-c", &script]].concat());
    if cannot_record(&out) {
        return;
    }
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let value = |text: &str, start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
    };
    let (seen, end) =
        (fs::read_to_string(format!("{name}.seen")).unwrap(), fs::read_to_string(&file).unwrap());
    let data = "ordo_written_bytes_total{device=\"memory\",fs=\"ext4\",kind=\"file_data\"}";
    assert_eq!(value(&seen, data), Some(300 << 10), "{seen}");
    for (kind, counts) in json["writes"].as_object().unwrap() {
        let line = data.replace("file_data", kind);
        assert_eq!(value(&end, &line), counts["bytes"].as_u64(), "{kind}: {end}");
    }
    assert_eq!(value(&end, "ordo_flushes_total"), json["flushes"].as_u64());
    assert!(value(&seen, "ordo_flushes_total") < value(&end, "ordo_flushes_total"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// A sample of the time is recorded: some of the writes and not others, with the names of files
/// that were made in between.
#[test]
fn a_sample_of_the_time_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let script = "i=0; while [ $i -lt 60 ]; do head -c 64k /dev/urandom > f$i; sync; sleep 0.1; i=$((i+1)); done";
    let run = ["trace", "run", "--fs", "ext4", "--size", "32m", "--sample", "500ms/2s", "-o", dir];
    let out = ordo(&[&run[..], &["--json", "--", "sh", "-c", script]].concat());
    if cannot_record(&out) {
        return;
    }
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let again = ordo(&["analyze", dir, "--json"]);
    assert_eq!(text(&again.stdout), text(&out.stdout));
    let said = text(&again.stderr);
    assert!(said.contains("a sample, 500ms/2s") && again.status.success(), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let data = json["writes"]["file_data"]["bytes"].as_u64().unwrap();
    assert!((1..=40).contains(&(data >> 16)), "{} of 60 files", data >> 16);
    let with_path = json["data_bytes_with_path"].as_u64().unwrap();
    assert!(with_path * 10 >= data * 8, "{with_path} of {data} bytes have a path");
    assert!(parts(folder.path()).len() >= 3);
}

/// The recorder's memory does not grow with the recording: with eight times as much in parts of 4
/// MB, it takes less than a third of the difference more.
#[test]
fn memory_does_not_grow_with_the_recording() {
    let mut peaks = Vec::new();
    for rounds in [2, 16] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_str().unwrap();
        let script = format!(
            "for i in $(seq {rounds}); do head -c 16m /dev/urandom > f; sync; rm f; done; \
             grep VmHWM /proc/$PPID/status >&2"
        );
        let run = ["trace", "run", "--fs", "ext4", "--size", "64m", "--rotate", "4m", "-o", dir];
        let out = ordo(&[&run[..], &["--", "sh", "-c", &script]].concat());
        if cannot_record(&out) {
            return;
        }
        let said = text(&out.stderr);
        let peak = said.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.unwrap().trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        peaks.push((peak, parts(folder.path()).len()));
    }
    let (few, many) = (peaks[0], peaks[1]);
    assert!(many.1 > 5 * few.1, "{peaks:?}");
    assert!(many.0 < few.0 + ((14 * 16) << 10) / 3, "{peaks:?}");
}
