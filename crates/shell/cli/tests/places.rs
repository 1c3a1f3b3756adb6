//! `ordo where`: the file at a sector, and the sectors of a file, judged by what the kernel and the
//! file systems' own tools say about the same blocks.
//!
//! A file system of each kind that this kernel mounts gets files with several extents and a hole.
//! Would catch an owner that is off by a block, a partition's offset that is forgotten or added
//! twice, a hole that is filled by its neighbour, and a range that loses its end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const ORDO: &str = env!("CARGO_BIN_EXE_ordo");
const MB: u64 = 1 << 20;
const SECTOR: u64 = 512;

/// Runs the command, and returns its exit code, output and errors.
fn ordo(args: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(ORDO).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Runs a tool, which must succeed.
fn tool(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output();
    let out = out.unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The extents of a file as the kernel tells them: byte of the file, byte of the device, length.
type Extents = Vec<(u64, u64, u64)>;

/// An image of a file system with files, and the extents of each by its path; `None`, with a
/// message, where it cannot be mounted here.
fn filled(folder: &Path, mkfs: &[&str]) -> Option<(PathBuf, BTreeMap<String, Extents>)> {
    let image = folder.join("fs.img");
    File::create(&image).unwrap().set_len(320 * MB).unwrap();
    let path = image.to_str().unwrap();
    let made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(path).output();
    if !made.as_ref().is_ok_and(|out| out.status.success()) {
        ordo_testkit::skip(&format!("{mkfs:?} failed: {made:?}"));
        return None;
    }
    let at = folder.join("mnt");
    fs::create_dir_all(&at).unwrap();
    let mount = Command::new("mount").args(["-o", "loop", path, at.to_str().unwrap()]).output();
    if !mount.as_ref().is_ok_and(|out| out.status.success()) {
        ordo_testkit::skip(&format!("{mkfs:?}: no mount here: {mount:?}"));
        return None;
    }
    let mut files = BTreeMap::new();
    fs::create_dir_all(at.join("one/two")).unwrap();
    let bytes: Vec<u8> = (0..300_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    fs::write(at.join("one/whole"), &bytes).unwrap();
    let holes = File::create(at.join("one/two/holes")).unwrap();
    for block in [0u64, 1, 5, 40, 41, 900] {
        holes.write_all_at(&bytes[..4096], block * 4096).unwrap();
        holes.sync_all().unwrap();
    }
    drop(holes);
    fs::write(at.join("last"), &bytes[..70_000]).unwrap();
    tool("sync", &[]);
    for name in ["one/whole", "one/two/holes", "last"] {
        let said = tool("filefrag", &["-v", "-b512", at.join(name).to_str().unwrap()]);
        files.insert(format!("/{name}"), extents(&said));
    }
    tool("umount", &[at.to_str().unwrap()]);
    Some((image, files))
}

/// Lines as `   0:        0..     583:      67584..     68167:    584:             last,eof`.
fn extents(said: &str) -> Extents {
    let lines = said.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let _number: u64 = fields.next()?.trim().parse().ok()?;
        let mut first =
            || -> Option<u64> { fields.next()?.split("..").next()?.trim().parse().ok() };
        let (at, on) = (first()?, first()?);
        let len: u64 = fields.next()?.trim().parse().ok()?;
        Some((at * SECTOR, on * SECTOR, len * SECTOR))
    });
    lines.collect()
}

/// The physical place of a btrfs address, as its own tool maps it.
fn of_btrfs(image: &Path, address: u64) -> u64 {
    let args = ["-l", &address.to_string(), image.to_str().unwrap()];
    let said = tool("btrfs-map-logical", &args);
    let (_, rest) = said.split_once("physical ").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// Joins neighbours, so that two ways to cut one range are the same.
fn joined(mut all: Extents) -> Extents {
    all.sort_unstable();
    let mut out: Extents = Vec::new();
    for (at, on, len) in all {
        match out.last_mut() {
            Some(last) if last.0 + last.2 == at && last.1 + last.2 == on => last.2 += len,
            _ => out.push((at, on, len)),
        }
    }
    out
}

/// Asks for sectors in the middle and at both ends of each extent, and for each file, and compares
/// with the kernel's answers.
fn judged(image: &Path, files: &BTreeMap<String, Extents>, base: u64, more: &[&str]) {
    let path = image.to_str().unwrap();
    let ask = |args: &[&str]| {
        let args = [&["where", path, "--json"], args, more].concat();
        let (code, out, errors) = ordo(&args);
        assert_eq!(code, Some(0), "{args:?}: {errors}");
        json(&out).as_array().unwrap().clone()
    };
    for (name, extents) in files {
        assert!(!extents.is_empty(), "{name}");
        for (at, on, len) in extents {
            for within in [0, len / 2 / SECTOR * SECTOR, len - SECTOR] {
                let sector = ((base + on + within) / SECTOR).to_string();
                let found = ask(&[&sector]);
                assert_eq!(found[0]["path"], name.as_str(), "sector {sector}: {found:?}");
                assert_eq!(found[0]["file_offset"], at + within, "sector {sector}: {found:?}");
            }
            // The whole extent, and a sector on either side, which is nobody's or another's.
            let range = format!("{}+{}", (base + on) / SECTOR, len / SECTOR);
            let all = ask(&[&range]);
            assert!(all.iter().all(|one| one["path"] == name.as_str()), "{range}: {all:?}");
            let sum: u64 = all.iter().map(|one| one["len"].as_u64().unwrap()).sum();
            assert_eq!(sum, *len, "{range}: {all:?}");
        }
        let places = ask(&["--file", name]);
        let places = places.iter().map(|one| {
            let number = |field: &str| one[field].as_u64().unwrap();
            (number("file_offset"), number("offset") - base, number("len"))
        });
        // The last block of a file may count as far as the file's end.
        let whole = |all: Extents| {
            let up = |(at, on, len): (u64, u64, u64)| (at, on, len.next_multiple_of(4096));
            joined(all.into_iter().map(up).collect())
        };
        assert_eq!(whole(places.collect()), whole(extents.clone()), "{name}");
    }
}

/// ext2, ext3, ext4, XFS and btrfs, as the kernel writes them.
#[test]
fn the_kernels_file_systems_agree_with_fiemap() {
    let all: [&[&str]; 5] = [
        &["mke2fs", "-q", "-F", "-t", "ext4"],
        &["mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024"],
        &["mke2fs", "-q", "-F", "-t", "ext3"],
        &["mkfs.xfs", "-q", "-f"],
        &["mkfs.btrfs", "-q", "-f", "-m", "single"],
    ];
    for mkfs in all {
        let folder = tempfile::tempdir().unwrap();
        let Some((image, mut files)) = filled(folder.path(), mkfs) else { continue };
        if mkfs[0] == "mkfs.btrfs" {
            for (_, on, _) in files.values_mut().flatten() {
                *on = of_btrfs(&image, *on);
            }
        }
        eprintln!("{mkfs:?}");
        judged(&image, &files, 0, &[]);
    }
}

/// Metadata and free space of ext4, by debugfs: a directory's block, the table of inodes, bitmaps,
/// the journal, and a block that its bitmap calls free.
#[test]
fn metadata_of_ext4_agrees_with_debugfs() {
    let folder = tempfile::tempdir().unwrap();
    let mkfs = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096"];
    let Some((image, _)) = filled(folder.path(), &mkfs) else { return };
    let path = image.to_str().unwrap();
    let debugfs = |command: &str| tool("debugfs", &["-R", command, path]);
    let at = |block: u64| {
        let block = block.to_string();
        let (code, out, errors) = ordo(&["where", path, &block, "--unit", "4k", "--json"]);
        assert_eq!(code, Some(0), "{errors}");
        json(&out)[0].clone()
    };
    let dir: u64 = debugfs("blocks /one").split_whitespace().next().unwrap().parse().unwrap();
    let found = at(dir);
    assert_eq!((&found["kind"], &found["path"]), (&"directory".into(), &"/one".into()), "{found}");
    let stats = debugfs("stats -h") + &debugfs("stats");
    let group = |what: &str| -> u64 {
        let (_, rest) = stats.split_once(&format!("{what} at ")).unwrap();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    assert_eq!(at(group("block bitmap"))["kind"], "block_bitmap");
    assert_eq!(at(group("inode bitmap"))["kind"], "inode_bitmap");
    assert_eq!(at(group("inode table"))["kind"], "inode_block");
    let journal = debugfs("blocks <8>");
    let journal: u64 = journal.split_whitespace().nth(5).unwrap().parse().unwrap();
    let kind = at(journal)["kind"].as_str().unwrap().to_owned();
    assert!(kind.starts_with("journal"), "{kind}");
    let free = (20_000..80_000u64)
        .rev()
        .find(|block| debugfs(&format!("testb {block}")).contains("not in use"));
    let found = at(free.unwrap());
    assert!(found["path"].is_null() && found["inode"].is_null(), "{found}");
}

/// A disk with partitions: sectors count from the disk's beginning, or from that of the partition
/// that is chosen; a sector between them and one of the table are told apart.
#[test]
fn partitions_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let mkfs = ["mke2fs", "-q", "-F", "-t", "ext4"];
    let Some((image, files)) = filled(folder.path(), &mkfs) else { return };
    let disk = folder.path().join("disk.img");
    let file = File::create(&disk).unwrap();
    file.set_len(400 * MB).unwrap();
    let mut entry = [0; 16];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&(8u32 * 2048).to_le_bytes());
    entry[12..].copy_from_slice(&(320u32 * 2048).to_le_bytes());
    file.write_all_at(&entry, 446 + 16).unwrap();
    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
    file.write_all_at(&fs::read(&image).unwrap(), 8 * MB).unwrap();
    judged(&disk, &files, 8 * MB, &[]);
    judged(&disk, &files, 0, &["--partition", "2"]);
    judged(&disk, &files, 0, &["--offset", "8m"]);
    let path = disk.to_str().unwrap();
    let (_, out, errors) = ordo(&["where", path, "0-3", "819100", "--json"]);
    let all = json(&out);
    assert_eq!(all[0]["kind"], "partition_table", "{out}{errors}");
    assert_eq!(all.as_array().unwrap().last().unwrap()["volume"], "rest", "{out}");
    // The table of partitions has a column for them.
    let (_, out, _) = ordo(&["where", path, "0"]);
    assert!(out.starts_with("volume") && out.contains("partition table"), "{out}");
}

/// Every other decoder answers for the place of its superblock.
#[test]
fn every_format_answers() {
    let all: [(&[&str], u64); 6] = [
        (&["mkfs.f2fs", "-q", "-f"], 1024),
        (&["mkfs.jfs", "-q"], 32_768),
        (&["mkfs.nilfs2", "-q", "-f"], 1024),
        (&["mkfs.ntfs", "-q", "-F", "-f"], 0),
        (&["mkreiserfs", "-q", "-f", "-f"], 65_536),
        (&[ORDO, "mkfs", "--fs", "ufs2"], 65_536),
    ];
    for (mkfs, at) in all {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("fs.img");
        File::create(&image).unwrap().set_len(256 * MB).unwrap();
        let path = image.to_str().unwrap();
        let made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(path).output();
        if !made.as_ref().is_ok_and(|out| out.status.success()) {
            ordo_testkit::skip(&format!("{mkfs:?} failed: {made:?}"));
            continue;
        }
        let sector = (at / SECTOR).to_string();
        let (code, out, errors) = ordo(&["where", path, &sector, "--json"]);
        assert_eq!(code, Some(0), "{mkfs:?}: {errors}");
        let kind = json(&out)[0]["kind"].as_str().unwrap().to_owned();
        assert!(kind == "superblock" || kind == "boot_area", "{mkfs:?}: {out}");
    }
}

/// Places that are none: beyond the end, too many, a file that is not there, no file system, a
/// mapped volume by its name. Each error says what to do next.
#[test]
fn wrong_places_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("fs.img");
    File::create(&image).unwrap().set_len(32 * MB).unwrap();
    let path = image.to_str().unwrap();
    let refused = |args: &[&str], words: &str| {
        let (code, _, errors) = ordo(&[&["where", path], args].concat());
        assert_ne!(code, Some(0), "{args:?}");
        assert!(errors.contains(words), "{args:?}: {errors}");
    };
    refused(&["0"], "no known file system");
    refused(&["9-7"], "ends before it begins");
    let label = File::options().write(true).open(&image).unwrap();
    label.write_all_at(b"LUKS\xba\xbe\0\x02", 0).unwrap();
    refused(&["0"], "a LUKS volume");
    label.write_all_at(&[0; 8], 0).unwrap();
    tool("mke2fs", &["-q", "-F", "-t", "ext4", path]);
    refused(&["65536"], "beyond the end");
    refused(&["18446744073709551615"], "beyond the end");
    refused(&["--file", "/nothing"], "no file is called /nothing");
    refused(&["0", "--partition", "3"], "there are: none");
    refused(&["0", "--unit", "0"], "beyond the end");
}
