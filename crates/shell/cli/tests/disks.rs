//! Whole disks as a user records them: partition tables, swap areas, file systems that are made
//! while they are watched.
//!
//! Tables are written byte by byte, file systems and swap areas by the kernel and its tools. Would
//! catch a partition whose blocks are named by another one's file system, a file system that is not
//! found because the command made it, requests that are lost at the edges, and a disk that is
//! recorded while something else writes to it. Skipped with a message where there is no
//! pseudo-device.

mod judging;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ordo_annotate::store;
use ordo_trace::{RequestEnd, Trace, TraceRequest, dm_log_writes};
use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::Value;

use judging::{MB, ORDO, data, json, ordo, owners, records, tool};

/// An entry of an MBR or of a sector in the chain of logical partitions, with places in megabytes.
fn entry(disk: &File, sector_mb: u64, slot: u64, kind: u8, first_mb: u64, len_mb: u64) {
    let mut bytes = [0; 16];
    bytes[4] = kind;
    bytes[8..12].copy_from_slice(&((first_mb * 2048) as u32).to_le_bytes());
    bytes[12..].copy_from_slice(&((len_mb * 2048) as u32).to_le_bytes());
    disk.write_all_at(&bytes, sector_mb * MB + 446 + 16 * slot).unwrap();
    disk.write_all_at(&[0x55, 0xaa], sector_mb * MB + 510).unwrap();
}

/// An image of a disk with a chain: an ext4 on p1, a swap area on p5, an empty p6.
fn disk(folder: &Path) -> PathBuf {
    let path = folder.join("disk.img");
    let file = File::create_new(&path).unwrap();
    file.set_len(120 * MB).unwrap();
    entry(&file, 0, 0, 0x83, 1, 32);
    entry(&file, 0, 1, 0x05, 40, 80);
    entry(&file, 40, 0, 0x82, 1, 16);
    entry(&file, 40, 1, 0x05, 20, 40);
    entry(&file, 60, 0, 0x83, 1, 40);
    let at = |offset: u64, name: &str, program: &str, args: &[&str], mb: u64| {
        let part = folder.join(name);
        File::create_new(&part).unwrap().set_len(mb * MB).unwrap();
        tool(program, &[args, &[part.to_str().unwrap()]].concat());
        file.write_all_at(&fs::read(&part).unwrap(), offset * MB).unwrap();
    };
    at(1, "ext4.part", "mke2fs", &["-q", "-F", "-t", "ext4"], 32);
    at(41, "swap.part", "mkswap", &[], 16);
    path
}

/// Writes files to p1, uses the swap area if the machine lets it, and makes a file system on p6 and
/// writes to it.
fn script(folder: &Path, mkfs: &str) -> String {
    let dir = folder.join("mnt");
    fs::create_dir_all(&dir).unwrap();
    let m = dir.display();
    format!(
        "set -e; D=$ORDO_DEVICE; B='head -c 50000 /dev/urandom'; mount ${{D}}p1 {m}; mkdir {m}/one; \
         for i in 1 2 3; do $B > {m}/one/f$i; done; umount {m}; \
         dd if=${{D}}p5 of=/dev/null bs=64k count=2 2>/dev/null; {mkfs} ${{D}}p6; mount ${{D}}p6 {m}; mkdir {m}/six; \
         for i in 1 2 3; do $B > {m}/six/g$i; done; umount {m}; echo mark done > $ORDO_MARK"
    )
}

/// A recording of a disk with an extended partition. Each partition has its own names, also the one
/// whose file system the command made; debugfs finds the same owner of each block of data; naming
/// the stored traces again gives the same numbers.
#[test]
fn each_partition_has_its_own_file_system() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = disk(folder.path());
    let (image, out) = (image.to_str().unwrap(), folder.path().join("out"));
    let script = script(folder.path(), "mke2fs -q -F -t ext4 -b 1024");
    let attach = [
        "trace",
        "attach",
        image,
        "--json",
        "-o",
        out.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &script,
    ];
    let (code, text, errors) = ordo(&attach);
    assert_eq!(code, Some(0), "{errors}");
    let live = json(&text);
    let systems: BTreeMap<&str, &str> = live
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, one)| (&**name, one["system"].as_str().unwrap()))
        .collect();
    let wanted = [("p1", "ext4"), ("p5", "swap"), ("p6", "ext4"), ("rest", "partition table")];
    assert_eq!(systems, BTreeMap::from(wanted));
    let names = |dir: &str, letter: char| -> Vec<String> {
        (1..=3).map(|i| format!("/{dir}/{letter}{i}")).collect()
    };
    for (part, wanted) in [("p1", names("one", 'f')), ("p6", names("six", 'g'))] {
        assert_eq!(data(&live[part]).into_keys().collect::<Vec<_>>(), wanted, "{text}");
        assert_eq!(live[part]["data_bytes"], live[part]["data_bytes_with_path"], "{text}");
    }
    assert_eq!(live["p1"]["writes"]["unknown"], Value::Null, "{text}");
    // The kernel reads ahead.
    assert!(live["p5"]["reads"]["swap"]["bytes"].as_u64() >= Some(2 * 65536 - 4096), "{text}");
    assert_eq!(live["rest"]["writes"], serde_json::json!({}), "{text}");

    let out_dir = out.to_str().unwrap();
    for again in [&[][..], &["--again"]] {
        let (code, text, errors) = ordo(&[&["analyze", out_dir, "--json"], again].concat());
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(json(&text), live, "{again:?}");
    }
    debugfs_agrees(Path::new(image), &out.join("p1"), (1, 32, 1024), folder.path());
    debugfs_agrees(Path::new(image), &out.join("p6"), (61, 40, 1024), folder.path());
    is_named_in_a_whole_trace(folder.path(), &out, &live);
}

/// Compares the owners of blocks of data in the rows with debugfs: the partition's first megabyte,
/// its size in megabytes, and the size of its blocks in bytes.
fn debugfs_agrees(image: &Path, trace: &Path, (first, mb, block): (u64, u64, u64), folder: &Path) {
    let mut bytes = vec![0; (mb * MB) as usize];
    File::open(image).unwrap().read_exact_at(&mut bytes, first * MB).unwrap();
    let part = folder.join("judged.part");
    fs::write(&part, bytes).unwrap();
    let text = tool(ORDO, &["trace", "export", trace.to_str().unwrap(), "--to", "text"]);
    assert!(text.contains("file data") || text.contains("file_data"), "{text}");
    let opened = ordo_annotate::input::open(
        &[trace.to_path_buf()],
        None,
        ordo_annotate::input::WhichPart::default(),
    )
    .unwrap();
    let rows = ordo_annotate::owners::of_trace(&opened.trace, &opened.watch.unwrap());
    let written = |row: &&ordo_annotate::BlockRow| {
        opened.trace.requests()[row.request as usize].op == ordo_trace::RequestOp::Write
    };
    let ours: BTreeMap<u64, String> = rows
        .iter()
        .filter(written)
        .filter(|row| row.final_kind == ordo_watcher::Class::FileData)
        .map(|row| (row.offset / block, row.path.as_deref().unwrap_or("?").to_owned()))
        .collect();
    assert!(ours.len() > 100, "{} blocks of data", ours.len());
    let blocks: Vec<u64> = ours.keys().copied().collect();
    assert_eq!(ours, owners(&part, &blocks));
}

/// The same requests as a trace of the whole disk, as dm-log-writes would have it: `--start` has
/// the table, and the analysis of p1 is the same. A partition that is not there is named. The log
/// has requests in the order in which they completed, which decides how many continue the one
/// before; so each completes here as it is issued, however busy the machine was.
fn is_named_in_a_whole_trace(folder: &Path, out: &Path, live: &Value) {
    let part = store::read(&out.join("p1")).unwrap().trace;
    let mut whole = Trace::new(512, false);
    for (order, r) in (0..).zip(part.requests()) {
        let data = part.data(r).map(|bytes| whole.keep(bytes));
        let offset = if r.len == 0 { 0 } else { r.offset + MB };
        let end = r.end.map(|end| RequestEnd { at: r.issued, order, ..end });
        whole.push(TraceRequest { offset, data, end, ..*r });
    }
    let mut log = Vec::new();
    dm_log_writes::export(&whole, &mut log).unwrap();
    let path = folder.join("log");
    fs::write(&path, log).unwrap();
    let before = folder.join("before");
    fs::create_dir_all(&before).unwrap();
    let before = disk(&before);
    // The identifiers of a file system that is made again differ, but not the places of its
    // metadata.
    let (log, before) = (path.to_str().unwrap(), before.to_str().unwrap());
    let (code, text, errors) =
        ordo(&["analyze", log, "--start", before, "--partition", "p1", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(json(&text)["writes"], live["p1"]["writes"]);
    let (code, text, errors) = ordo(&["analyze", log, "--start", before, "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let all = json(&text);
    assert_eq!(all["p1"]["writes"], live["p1"]["writes"]);
    assert_eq!(all.as_object().unwrap().len(), 4, "{text}");
    let (code, _, errors) = ordo(&["analyze", log, "--start", before, "--partition", "7"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("no partition 7; there are: p1, p5, p6, rest"), "{errors}");
    let (code, _, errors) = ordo(&["trace", "show", log, "--start", before]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("choose one with --partition"), "{errors}");
}

/// XFS and btrfs that a command makes where ext4 was, or nothing; the files are named, the earlier
/// file system's names are not mixed with them.
#[test]
fn a_file_system_that_the_command_makes_is_recognised() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mnt = folder.path().join("mnt");
    fs::create_dir_all(&mnt).unwrap();
    for (mkfs, system, mb) in [
        ("mkfs.xfs -q -f", "xfs", 320),
        ("mkfs.btrfs -q -f", "btrfs", 128),
        ("mke2fs -q -F -t ext3", "ext3", 16),
    ] {
        let _ = fs::remove_file(&image);
        File::create_new(&image).unwrap().set_len(mb * MB).unwrap();
        tool("mke2fs", &["-q", "-F", "-t", "ext4", image.to_str().unwrap()]);
        let m = mnt.display();
        let script = format!(
            "set -e; D=$ORDO_DEVICE; mount $D {m}; head -c 30000 /dev/zero | tr '\\0' a > {m}/old; umount {m}; {mkfs} $D > /dev/null; \
             mount $D {m}; head -c 30000 /dev/zero | tr '\\0' b > {m}/new; sync; umount {m}"
        );
        let attach =
            ["trace", "attach", image.to_str().unwrap(), "--json", "--", "sh", "-c", &script];
        let (code, text, errors) = ordo(&attach);
        assert_eq!(code, Some(0), "{mkfs}: {errors}");
        let live = json(&text);
        assert_eq!(live["system"], system);
    }
    // With a trace the files of both are in it.
    let out = folder.path().join("out");
    let m = mnt.display();
    let script = format!(
        "set -e; D=$ORDO_DEVICE; mount $D {m}; head -c 30000 /dev/urandom > {m}/old; umount {m}; mke2fs -q -F -t ext4 $D; \
         mount $D {m}; head -c 30000 /dev/urandom > {m}/new; umount {m}"
    );
    let (image, out) = (image.to_str().unwrap(), out.to_str().unwrap());
    let attach = ["trace", "attach", image, "--json", "-o", out, "--", "sh", "-c", &script];
    let (code, text, errors) = ordo(&attach);
    assert_eq!(code, Some(0), "{errors}");
    let live = json(&text);
    let named: Vec<String> = data(&live).into_keys().collect();
    assert_eq!(named, ["/new", "/old"], "{text}");
    let (code, text, errors) = ordo(&["analyze", out, "--again", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(json(&text), live);
}

/// `--offset` where there is no table, `trace run --image` on a partition, and the errors of both.
#[test]
fn a_place_is_given_by_hand() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let whole = disk(folder.path());
    let image = whole.to_str().unwrap();
    let run = |more: &[&str]| {
        let command = ["--", "sh", "-c", "head -c 40000 /dev/urandom > by-hand"];
        ordo(&[&["trace", "run", "--image", image, "--json"], more, &command].concat())
    };
    let (code, text, errors) = run(&["--partition", "1"]);
    assert_eq!(code, Some(0), "{errors}");
    let written = |json: &Value| json["writes"]["file_data"]["bytes"].as_u64();
    assert!(written(&json(&text)["p1"]) >= Some(40_000), "{text}");
    // The only partition with a file system is taken.
    let (code, text, errors) = run(&[]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(written(&json(&text)["p1"]) >= Some(40_000), "{text}");
    let (code, _, errors) = run(&["--partition", "9"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("there is no partition 9; there are: p1, p5, p6"), "{errors}");
    // The table is lost.
    let file = File::options().write(true).open(&whole).unwrap();
    file.write_all_at(&[0; 512], 0).unwrap();
    let (code, text, errors) = run(&["--offset", "1m"]);
    assert_eq!(code, Some(0), "{errors}");
    let live = json(&text);
    let at = &live["at-1048576"];
    assert_eq!(at["system"], "ext4");
    assert!(written(at) >= Some(40_000), "{text}");
    let (code, _, errors) = run(&["--offset", "1g"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("no volume begins at byte 1073741824"), "{errors}");
}

/// Tables with faults: said in words, and the sound partitions are recorded.
#[test]
fn faults_of_tables_are_told() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = disk(folder.path());
    let file = File::options().write(true).open(&image).unwrap();
    let image = image.to_str().unwrap();
    let attach = || ordo(&["trace", "attach", image, "--json", "--", "true"]);
    // A chain that leads back to its beginning, an entry over another one, and one beyond the end.
    entry(&file, 60, 1, 0x05, 20, 40);
    entry(&file, 0, 2, 0x83, 20, 10);
    entry(&file, 0, 3, 0x83, 110, 100);
    let (code, text, errors) = attach();
    assert_eq!(code, Some(0), "{errors}");
    for said in [
        "the chain of logical partitions leads back to byte 62914560",
        "partition 3 lies over partition 1: it is left out",
        "partition 4 ends at byte 220200960, beyond the end of the disk at 125829120",
    ] {
        assert!(errors.contains(said), "{said}: {errors}");
    }
    let names: Vec<String> = json(&text).as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["p1", "p5", "p6", "rest"]);
}

/// A disk in use is refused, with what uses it and what to do: by a loop device, a mount, a virtual
/// machine's lock.
#[test]
fn a_disk_in_use_is_refused() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    File::create_new(&image).unwrap().set_len(8 * MB).unwrap();
    let path = image.to_str().unwrap();
    tool("mke2fs", &["-q", "-F", path]);
    let attach = |path: &str| {
        let (code, _, errors) = ordo(&["trace", "attach", path, "--", "true"]);
        (code, errors)
    };
    let device = tool("losetup", &["-f", "--show", path]).trim().to_owned();
    let (code, errors) = attach(path);
    assert_eq!(code, Some(1));
    assert!(errors.contains(&format!("first losetup -d {device}")), "{errors}");
    let mnt = folder.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    let dir = mnt.to_str().unwrap();
    tool("mount", &[&device, dir]);
    for busy in [path, &device] {
        let (code, errors) = attach(busy);
        assert_eq!(code, Some(1));
        assert!(errors.contains(&format!("mounted on {dir}")), "{errors}");
        assert!(errors.contains(&format!("first umount {dir}")), "{errors}");
    }
    tool("umount", &[dir]);
    tool("losetup", &["-d", &device]);
    let file = File::options().read(true).write(true).open(&image).unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let (code, errors) = attach(path);
    assert_eq!(code, Some(1));
    assert!(errors.contains("another process has locked it"), "{errors}");
    drop(file);
    assert_eq!(attach(path).0, Some(0));
}
