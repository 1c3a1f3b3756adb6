//! `ordo analyze` and `ordo whatif` on traces of other programs, as a user has them: compressed,
//! from a pipe, of several devices, and of volumes whose file system is not known.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use serde_json::Value;

const ORDO: &str = env!("CARGO_BIN_EXE_ordo");

fn ordo(args: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut command = Command::new(ORDO);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input);
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Two devices: `sync` writes 40 times 4 KB one behind the other to 8,0 with 1 ms each, and jbd2
/// flushes it four times with 10 ms each; `dd` reads once from 8,16.
fn perf() -> String {
    let mut text = String::new();
    let mut at = 1.0;
    let mut add = |device: &str, name: &str, kind: &str, sector: u64, sectors: u64, took: f64| {
        let cmd = sectors * 512;
        text += &format!(
            "{name} 7 [001] {at:.6}: block:block_rq_issue: {device} {kind} {cmd} () {sector} + {sectors} [{name}]\n"
        );
        at += took;
        text += &format!(
            "swapper 0 [001] {at:.6}: block:block_rq_complete: {device} {kind} () {sector} + {sectors} [0]\n"
        );
    };
    for i in 0..40 {
        add("8,0", "sync", "WS", 2048 + i * 8, 8, 0.001);
        if i % 10 == 9 {
            add("8,0", "jbd2/sda-8", "FF", 0, 0, 0.010);
        }
    }
    add("8,16", "dd", "R", 0, 256, 0.002);
    text
}

/// A text of perf through a pipe: refused while it has two devices, counted for one of them,
/// without a file system. Catches numbers of the wrong device, and a flush that is no flush.
#[test]
fn requests_are_counted_without_a_file_system() {
    let text = perf();
    let (code, _, errors) = ordo(&["analyze", "-"], text.as_bytes());
    assert_eq!(code, Some(1));
    assert!(errors.contains("8,0 (44), 8,16 (1)") && errors.contains("--only"), "{errors}");

    let (code, out, errors) = ordo(&["analyze", "-", "--only", "8,0"], text.as_bytes());
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("no known file system"), "{errors}");
    assert!(out.contains("4 flushes take 50% of the time of all requests"), "{out}");
    assert!(out.contains("sync sends 100% of the bytes"), "{out}");
    let (_, out, _) = ordo(&["analyze", "-", "--only", "8,0", "--json"], text.as_bytes());
    let json: Value = serde_json::from_str(&out).unwrap();
    let writes = &json["requests"]["writes"];
    assert_eq!((&writes["requests"], &writes["bytes"]), (&40.into(), &(40 * 4096).into()));
    assert_eq!(writes["sequential"], 39, "{out}");
    assert_eq!(writes["latency"]["p50"], 1_000_000);
    assert_eq!(json["requests"]["flushes"]["latency"]["most"], 10_000_000);
    let names = json["requests"]["processes"].as_array().unwrap().iter();
    let names: Vec<&str> = names.filter_map(|one| one["process"].as_str()).collect();
    assert_eq!(names, ["sync", "jbd2/sda-8"]);
    assert_eq!(json["requests"]["queue_most"], 1);

    // The last 20 writes and the two flushes behind them.
    let window = ["analyze", "-", "--only", "8,0", "--json", "--from", "40ms", "--until", "1s"];
    let (_, out, errors) = ordo(&window, text.as_bytes());
    let json: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {errors}"));
    assert_eq!(json["requests"]["writes"]["requests"], 20, "{out}");
    let (code, _, errors) =
        ordo(&["analyze", "-", "--only", "8,0", "--from", "9s"], text.as_bytes());
    assert_eq!(code, Some(1));
    assert!(errors.contains("no request between --from and --until"), "{errors}");
}

/// The same text packed with gzip and zstd, with a name that says nothing, is the same trace; a
/// playback on another disk takes it; and sums and other files are told what is taken.
#[test]
fn packed_traces_and_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let plain = perf();
    let whole = ordo(&["analyze", "-", "--only", "8,0"], plain.as_bytes()).1;
    for program in ["gzip", "zstd"] {
        let path = folder.path().join("trace");
        let mut packer = Command::new(program);
        let packer = packer.arg("-qc").stdin(Stdio::piped()).stdout(File::create(&path).unwrap());
        let Ok(mut packer) = packer.spawn() else {
            ordo_testkit::skip(&format!("{program} is not installed"));
            continue;
        };
        packer.stdin.take().unwrap().write_all(plain.as_bytes()).unwrap();
        assert!(packer.wait().unwrap().success());
        let (code, out, errors) = ordo(&["analyze", path.to_str().unwrap(), "--only", "8,0"], b"");
        assert_eq!((code, &out), (Some(0), &whole), "{program}: {errors}");
    }
    let args = ["whatif", "-", "--only", "8,0", "--json", "-q"];
    let (code, out, errors) = ordo(&args, plain.as_bytes());
    assert_eq!(code, Some(0), "{out}{errors}");
    let json: Value = serde_json::from_str(&out).unwrap();
    let measured = json["unchanged"]["measured_seconds"].as_f64().unwrap();
    assert!((measured - 0.080).abs() < 0.001, "{out}");
    let spc: String = (0..50).map(|i| format!("0,{},4096,w,{}.5\n", i * 997, i)).collect();
    let args = ["whatif", "-", "--recorded-on", "hdd-4tb", "--disk", "nvme", "--depth", "4", "-q"];
    let (code, out, errors) = ordo(&args, spc.as_bytes());
    assert_eq!(code, Some(0), "{out}{errors}");
    let (code, _, errors) = ordo(&["analyze", "-"], b"Device  r/s  w/s\nsda 1 2\n");
    assert_eq!(code, Some(1));
    assert!(errors.contains("iostat") && errors.contains("biosnoop"), "{errors}");
    let (code, _, errors) = ordo(&["analyze", "-"], b"hello\n");
    assert_eq!(code, Some(1));
    assert!(errors.contains("MSR Cambridge") && errors.contains("perf script"), "{errors}");
    let (_, help, _) = ordo(&["analyze", "--help"], b"");
    let help: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("Alibaba's tables") && help.contains("the table of biosnoop"), "{help}");
}

/// A volume without a known file system is named by its signature: LUKS, LVM, ZFS, md, qcow2.
/// Catches numbers beside which nobody learns why blocks have no names.
#[test]
fn unknown_volumes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let volumes: [(&str, u64, &[u8]); 4] = [
        ("a LUKS volume", 0, b"LUKS\xba\xbe\0\x02"),
        ("an LVM2 physical volume", 512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001"),
        ("a ZFS pool member", 128 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
        ("a qcow2 image", 0, b"QFI\xfb\0\0\0\x03"),
    ];
    for (name, at, bytes) in volumes {
        fs::remove_file(&image).ok();
        let file = File::create(&image).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(bytes, at).unwrap();
        let start = image.to_str().unwrap();
        let args = ["analyze", "-", "--only", "8,0", "--start", start];
        let (code, out, errors) = ordo(&args, perf().as_bytes());
        assert_eq!(code, Some(0), "{errors}");
        assert!(out.starts_with(&format!("no known file system: {name}")), "{out}");
        let (_, out, _) = ordo(&[&args[..], &["--json"]].concat(), perf().as_bytes());
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["holds"][0], name);
    }
}
