//! `ordo trace attach` over both devices of a DualFS, as a user runs it.
//!
//! A pair that was made and mounted by Ordo is copied to through two pseudo-devices. Would catch a
//! data device whose blocks have no files because its metadata is on the other device, devices in
//! the wrong order, and recordings with clocks of their own.

use std::collections::BTreeMap;
use std::fs;

use assert_cmd::Command;

fn ordo(args: &[&str]) -> (i32, String, String) {
    let out = Command::cargo_bin("ordo").unwrap().args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

const FILES: usize = 5;
const LEN: u64 = 100_000;

/// Mounts the pair through its pseudo-devices, writes files and unmounts. `new` gets the inode of
/// `old`.
fn script() -> String {
    let exe = assert_cmd::cargo::cargo_bin("ordo");
    let bytes = "head -c 100000 /dev/urandom";
    format!(
        "set -e; m=$(mktemp -d); {} mount $ORDO_DEVICE_2 $m --meta-device $ORDO_DEVICE -q; mkdir $m/dir; \
         for i in $(seq {FILES}); do {bytes} > $m/dir/file$i; done; {bytes} > $m/old; sync; rm $m/old; sync; \
         {bytes} > $m/new; sync; umount $m; rmdir $m",
        exe.display()
    )
}

/// The bytes of file data written on the data device, by path.
fn data(json: &serde_json::Value) -> BTreeMap<String, u64> {
    let files = json["files"].as_array().unwrap().iter();
    let each = files.map(|file| {
        let path = file["path"].as_str().unwrap_or("?").to_owned();
        (path, file["data"]["bytes"].as_u64().unwrap())
    });
    each.filter(|(_, bytes)| *bytes > 0).collect()
}

#[test]
fn both_devices_of_a_pair_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (meta, image, both) = (path("meta.img"), path("data.img"), path("both"));
    let made = ["mkfs", "--fs", "dualfs", "--size", "64m", &image, "--meta-device", &meta];
    let (code, _, errors) = ordo(&made);
    assert_eq!(code, 0, "{errors}");
    let script = script();
    let attach =
        ["trace", "attach", &meta, &image, "--json", "-o", &both, "--", "sh", "-c", &script];
    let (code, out, errors) = ordo(&attach);
    if code == 1 && out.is_empty() && (errors.contains("/dev/fuse") || errors.contains("root")) {
        return ordo_testkit::skip(&format!("no pseudo-device: {}", errors.trim()));
    }
    assert_eq!(code, 0, "{errors}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let (on_meta, on_data) = (&json["meta.img"], &json["data.img"]);
    assert_eq!(data(on_meta), BTreeMap::new(), "no contents on the metadata device: {out}");
    assert!(on_meta["writes"]["segment_summary"]["bytes"].as_u64() > Some(0), "{out}");
    let named = data(on_data);
    let mut wanted: Vec<String> = (1..=FILES).map(|n| format!("/dir/file{n}")).collect();
    wanted.extend(["/new".to_owned(), "/old".to_owned()]);
    assert_eq!(named.keys().collect::<Vec<_>>(), wanted.iter().collect::<Vec<_>>());
    assert!(named.values().all(|bytes| (LEN..LEN + 8192).contains(bytes)), "{named:?}");
    assert_eq!(on_data["data_bytes"], on_data["data_bytes_with_path"], "{out}");

    // Parts of both are recordings of their own.
    let (parts, script) =
        (path("parts"), "dd if=/dev/urandom of=$ORDO_DEVICE_2 bs=4k count=3 seek=9 2>/dev/null");
    let attach = ["trace", "attach", &meta, &image, "--rotate", "1m", "--json", "-o", &parts];
    let (code, out, errors) = ordo(&[&attach[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(code, 0, "{errors}");
    let in_parts: serde_json::Value = serde_json::from_str(&out).unwrap();
    let written = |name: &str| in_parts[name]["writes"]["file_data"]["bytes"].as_u64().unwrap_or(0);
    assert_eq!((written("meta.img"), written("data.img")), (0, 3 * 4096), "{out}");

    // Both traces are traces by themselves.
    for name in ["meta.img", "data.img"] {
        let dir = folder.path().join("both").join(name);
        let (code, out, errors) = ordo(&["analyze", dir.to_str().unwrap(), "--json"]);
        assert_eq!(code, 0, "{errors}");
        let alone: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(alone, json[name], "{name}");
    }
}

#[test]
fn a_device_is_not_recorded_twice() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    let image = image.to_str().unwrap();
    let (code, _, errors) = ordo(&["trace", "attach", image, image, "--", "true"]);
    assert_eq!(code, 1);
    assert!(errors.contains("the device is given twice"), "{errors}");
    let counted = ["trace", "attach", image, "/dev/null", "--counters", "/dev/null", "--", "true"];
    let (code, _, errors) = ordo(&counted);
    assert_eq!(code, 1);
    assert!(errors.contains("give one device"), "{errors}");
}
