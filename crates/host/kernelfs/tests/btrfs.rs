//! This kernel's btrfs while it is used, compared with the output of its own tools.
//!
//! Fault model: a kernel with writes that the decoder does not expect. Skipped with a message
//! without root, btrfs, or its tools.

#[path = "../../../witness/watcher/tests/all/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Recorded, all_is_known, name_of, output, watched, write};
use ordo_kernelfs::WatchOptions;
use ordo_kernelfs::kernel::{KernelMount, LiveSystem};
use ordo_recorder::DeviceSetup;
use ordo_trace::RequestOp;
use ordo_watcher::kind::{BlockMeaning, ClassifiedRange};
use ordo_watcher::{Class, Watch};

const BYTES: u64 = 512 << 20;

/// A lock for one test at a time: loop devices and mounts belong to the whole machine, and
/// mkfs.btrfs looks at all of them.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
const SECTOR: usize = 4096;
const SUPERBLOCK: u64 = 64 << 10;

/// A way to make and mount a file system.
struct Case {
    mkfs: &'static str,
    options: &'static str,
}

const CASES: [Case; 7] = [
    Case { mkfs: "", options: "defaults" },
    Case { mkfs: "-m dup -d dup", options: "discard" },
    Case { mkfs: "-m single -R ^free-space-tree", options: "space_cache=v1" },
    Case { mkfs: "-n 4096 --mixed", options: "defaults" },
    Case { mkfs: "-n 65536 -O ^no-holes", options: "compress-force=zstd" },
    Case { mkfs: "--csum xxhash -m single", options: "nodatacow" },
    Case { mkfs: "-R quota", options: "defaults" },
];

fn run(program: &str, args: &[&str]) {
    let out = Command::new(program).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {said}");
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

/// Bytes that zstd cannot compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 & 0x3f
    };
    (0..len).map(|_| byte()).collect()
}

/// Creates files, syncs them one by one, and grows, overwrites, truncates, links, shares, renames
/// and removes them, in two subvolumes and snapshots of one.
fn work(dir: &Path) {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    let sync = || run("sync", &["-f", dir.to_str().unwrap()]);
    std::fs::create_dir(dir.join("d")).unwrap();
    run("btrfs", &["subvolume", "create", &path(dir, "sub")]);
    for i in 0..150usize {
        std::fs::write(dir.join(format!("d/file-{i}")), noise(i as u64, 700 * i)).unwrap();
        std::fs::write(dir.join(format!("sub/file-{i}")), noise(i as u64, 301 * i)).unwrap();
    }
    std::fs::write(dir.join("big"), noise(1, 6 << 20)).unwrap();
    sync();
    for name in ["log", "sub/log"] {
        let mut log = std::fs::File::create(dir.join(name)).unwrap();
        for i in 0..12u64 {
            log.write_all(&noise(i, 3000)).unwrap();
            log.sync_all().unwrap();
        }
    }
    run("btrfs", &["subvolume", "snapshot", &path(dir, "sub"), &path(dir, "snap")]);
    run("btrfs", &["subvolume", "snapshot", "-r", &path(dir, "sub"), &path(dir, "old")]);
    let big = std::fs::File::options().write(true).open(dir.join("big")).unwrap();
    big.write_all_at(&noise(2, 300_000), 1 << 20).unwrap();
    big.sync_all().unwrap();
    big.set_len(5 << 20).unwrap();
    run("cp", &["--reflink=always", &path(dir, "big"), &path(dir, "twin")]);
    run("fallocate", &["-l", "2M", &path(dir, "sub/kept")]);
    std::fs::write(dir.join("snap/file-149"), noise(7, 60_000)).unwrap();
    sync();
    for i in 0..75 {
        std::fs::remove_file(dir.join(format!("d/file-{}", i * 2))).unwrap();
        let (from, to) = (format!("snap/file-{i}"), format!("snap/renamed-{i}"));
        std::fs::rename(dir.join(from), dir.join(to)).unwrap();
    }
    std::fs::hard_link(dir.join("d/file-3"), dir.join("another")).unwrap();
    std::os::unix::fs::symlink("x".repeat(150), dir.join("link")).unwrap();
    run("btrfs", &["subvolume", "delete", "-c", &path(dir, "old")]);
    run("btrfs", &["subvolume", "sync", dir.to_str().unwrap()]);
    sync();
    // Freed space is used again.
    for i in 0..4 {
        std::fs::write(dir.join("again"), noise(100 + i, 9 << 20)).unwrap();
        sync();
        std::fs::remove_file(dir.join("again")).unwrap();
        sync();
    }
    run("fstrim", &[dir.to_str().unwrap()]);
    // Two chunks, or one that is of both kinds, are relocated.
    let dir_name = dir.to_str().unwrap();
    run("btrfs", &["balance", "start", "-dlimit=1", "-mlimit=1", dir_name]);
    // This much space needs a new chunk.
    std::fs::write(dir.join("large"), noise(50, 70 << 20)).unwrap();
    let last = std::fs::File::options().append(true).open(dir.join("snap/file-140")).unwrap();
    (&last).write_all(&noise(9, 5000)).unwrap();
    last.sync_all().unwrap();
}

fn recorded(case: &Case) -> Option<Recorded> {
    let mkfs = case.mkfs.split_whitespace().map(str::to_owned).collect();
    let (name, options) = ("btrfs".into(), case.options.into());
    let system = LiveSystem { name, mkfs, options, bytes: BYTES };
    let mounted =
        match KernelMount::new(&system, WatchOptions::default(), DeviceSetup::in_memory(BYTES)) {
            Ok(mounted) => mounted,
            Err(error) => {
                ordo_testkit::skip(&format!("no btrfs on a pseudo-device: {error}"));
                return None;
            }
        };
    work(mounted.dir());
    let (recording, seen) = mounted.finish().unwrap();
    assert_eq!(seen.analysis.system, "btrfs");
    Some(Recorded { start: recording.start, trace: recording.trace })
}

/// Applies one request to a device's image.
fn apply(image: &mut [u8], recorded: &Recorded, request: usize) {
    let r = &recorded.trace.requests()[request];
    let range = r.offset as usize..(r.offset + r.len) as usize;
    match (r.op, recorded.trace.data(r)) {
        (RequestOp::Write, Some(data)) => image[range].copy_from_slice(data),
        (RequestOp::Discard, _) => image[range].fill(0),
        _ => {}
    }
}

/// The facts in the output of `btrfs inspect-internal dump-tree`.
#[derive(Default)]
struct Dump {
    /// For each address of a tree block: its level, generation and owner.
    nodes: BTreeMap<u64, (u8, u64, u64)>,
    /// For each address of a data block, the files and logical blocks to which it belongs.
    data: BTreeMap<u64, BTreeSet<(u64, u64)>>,
    /// For each address of a compressed extent, the files to which it belongs.
    packed: BTreeMap<u64, BTreeSet<u64>>,
    /// Addresses of blocks in use.
    used: BTreeSet<u64>,
    /// Chunks: address, length, whether trees are in it, stripes.
    chunks: Vec<(u64, u64, bool, Vec<u64>)>,
}

fn owner(word: &str) -> u64 {
    match word {
        "ROOT_TREE" => 1,
        "EXTENT_TREE" => 2,
        "CHUNK_TREE" => 3,
        "DEV_TREE" => 4,
        "FS_TREE" => 5,
        "CSUM_TREE" => 7,
        "QUOTA_TREE" => 8,
        "UUID_TREE" => 9,
        "FREE_SPACE_TREE" => 10,
        "BLOCK_GROUP_TREE" => 11,
        "DATA_RELOC_TREE" => -9i64 as u64,
        number => number.parse().unwrap_or_else(|_| panic!("tree {number}")),
    }
}

/// The number by which Ordo knows a file.
fn file(of: u64, ino: u64) -> u64 {
    if of == 5 { ino } else { of << 40 | ino }
}

/// The number that follows a word.
fn after(line: &str, word: &str) -> Option<u64> {
    let mut words = line.split(word).nth(1)?.split([' ', ')', '(']).filter(|w| !w.is_empty());
    words.next()?.parse().ok()
}

fn dump(image: &[u8], node_size: u64) -> Option<Dump> {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("image");
    std::fs::write(&name, image).unwrap();
    let text = output("btrfs", &["inspect-internal", "dump-tree", name.to_str().unwrap()])?;
    let mut dump = Dump::default();
    let (mut of, mut key) = (0, Vec::new());
    let (mut disk, mut part) = ((0, 0), (0, 0));
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["leaf" | "node", address, .., "owner", name] => {
                of = owner(name);
                let level = after(line, "level ").unwrap_or(0) as u8;
                let address = address.parse().unwrap();
                dump.nodes.insert(address, (level, after(line, "generation ")?, of));
            }
            ["item", _, "key", object, kind, offset, ..] => {
                key = vec![object.trim_matches('(').to_owned(), kind.into()];
                key.push(offset.trim_matches(')').to_owned());
                let len = match kind {
                    "EXTENT_ITEM" => key[2].parse().ok(),
                    "METADATA_ITEM" => Some(node_size),
                    _ => None,
                };
                if let (Some(len), Ok(start)) = (len, key[0].parse::<u64>()) {
                    dump.used.extend((start..start + len).step_by(SECTOR));
                }
            }
            ["length", length, "owner", .., kind] if key[1] == "CHUNK_ITEM" => {
                let trees = kind.contains("METADATA") || kind.contains("SYSTEM");
                let start = key[2].parse().unwrap();
                dump.chunks.push((start, length.parse().unwrap(), trees, Vec::new()));
            }
            ["stripe", _, "devid", "1", "offset", offset] if key[1] == "CHUNK_ITEM" => {
                dump.chunks.last_mut()?.3.push(offset.parse().unwrap());
            }
            ["extent", "data", "disk", "byte", start, "nr", len] => {
                disk = (start.parse().unwrap(), len.parse::<u64>().unwrap());
            }
            ["prealloc", "data", "disk", "byte", start, "nr", len] => {
                disk = (start.parse().unwrap(), len.parse().unwrap());
            }
            ["extent" | "prealloc", "data", "offset", offset, "nr", len, ..] => {
                part = (offset.parse::<u64>().unwrap(), len.parse::<u64>().unwrap());
                if words[0] == "prealloc" {
                    dump.part(of, &key, disk, part, false);
                }
            }
            ["extent", "compression", kind, ..] => dump.part(of, &key, disk, part, kind != "0"),
            _ => {}
        }
    }
    Some(dump)
}

impl Dump {
    /// Adds a part of a file that is a part of an extent.
    fn part(
        &mut self,
        of: u64,
        key: &[String],
        (start, disk_len): (u64, u64),
        (offset, len): (u64, u64),
        packed: bool,
    ) {
        let Ok(ino) = key[0].parse::<u64>() else { return };
        if start == 0 || key[1] != "EXTENT_DATA" || std::mem::take(&mut { len }) == 0 {
            return;
        }
        let first: u64 = key[2].parse().unwrap();
        if packed {
            for at in (start..start + disk_len).step_by(SECTOR) {
                self.packed.entry(at).or_default().insert(file(of, ino));
            }
            return;
        }
        for i in 0..len / SECTOR as u64 {
            let at = start + offset + i * SECTOR as u64;
            let block = first / SECTOR as u64 + i;
            self.data.entry(at).or_default().insert((file(of, ino), block));
        }
    }

    /// The places of an address on the device.
    fn places(&self, address: u64) -> Vec<u64> {
        let (start, .., stripes) = self
            .chunks
            .iter()
            .find(|(start, len, ..)| (*start..start + len).contains(&address))
            .unwrap_or_else(|| panic!("no chunk for {address}"));
        stripes.iter().map(|at| at + (address - start)).collect()
    }
}

/// The name of each data block of the device, by reads of a megabyte.
fn names(watch: &Watch, image: &[u8]) -> Vec<ClassifiedRange> {
    let mut all = Vec::new();
    for (i, piece) in image.chunks(1 << 20).enumerate() {
        for part in name_of(watch, (i as u64) << 20, piece) {
            for n in 0..part.len.div_ceil(SECTOR as u64) {
                let what = match part.what {
                    BlockMeaning::Blocks { ino, first, .. } => {
                        BlockMeaning::Blocks { ino, first: first + n, count: 1 }
                    }
                    ref other => other.clone(),
                };
                let offset = part.offset + n * SECTOR as u64;
                all.push(ClassifiedRange { class: part.class, offset, len: SECTOR as u64, what });
            }
        }
    }
    all
}

/// Compares a watcher with the dump of the device that it watched.
fn judge(watch: &Watch, image: &[u8], dump: &Dump, what: &str) {
    let names = names(watch, image);
    let at = |place: u64| &names[place as usize / SECTOR];
    assert!(dump.nodes.len() > 15 && dump.data.len() + dump.packed.len() > 1000, "{what}");
    for (address, (level, generation, owner)) in &dump.nodes {
        for place in dump.places(*address) {
            let BlockMeaning::TreeBlock { number, level: l, generation: g, .. } = at(place).what
            else {
                panic!("{what}: {address} of tree {owner}: {:?}", at(place));
            };
            assert_eq!((l, g, number), (*level, *generation, *owner), "{what}: {address}");
        }
    }
    for (address, files) in &dump.data {
        for place in dump.places(*address) {
            match at(place).what {
                BlockMeaning::Blocks { ino, first, .. } => {
                    assert!(files.contains(&(ino, first)), "{what}: {address}: {files:?}");
                }
                BlockMeaning::Piece(name, ino) => {
                    assert!(name.starts_with("free space cache"), "{what}: {address}");
                    assert!(files.iter().any(|(of, _)| *of == file(1, ino)), "{what}: {address}");
                }
                ref other => panic!("{what}: {address} is {other:?}, and of {files:?}"),
            }
        }
    }
    for (address, files) in &dump.packed {
        for place in dump.places(*address) {
            let BlockMeaning::Packed { ino, .. } = at(place).what else {
                panic!("{what}: {address} is {:?}, and of {files:?}", at(place));
            };
            assert!(files.contains(&ino), "{what}: {address}");
        }
    }
    for (start, len, ..) in &dump.chunks {
        for address in (*start..start + len).step_by(SECTOR) {
            for place in dump.places(address) {
                let part = at(place);
                if matches!(part.class, Class::Superblock | Class::SuperblockCopy) {
                    continue;
                }
                let owned = part.what != BlockMeaning::Unclaimed;
                assert_eq!(owned, dump.used.contains(&address), "{what}: {address}: {part:?}");
            }
        }
    }
}

/// A kernel's work: no block is unknown. At the end every tree block and all data have the name
/// that btrfs's own dump gives them; free space by its extent tree has no owner, and used space has
/// one. A watcher that reads the final device agrees. Catches a shared node that is given up with
/// one of its users, data found at another's place, and roots that become current too late.
#[test]
fn every_block_of_a_kernels_btrfs_trace_is_named() {
    let _alone = alone();
    for case in &CASES {
        let what = format!("mkfs.btrfs {} -o {}", case.mkfs, case.options);
        let Some(recorded) = recorded(case) else { return };
        let said = watched(&recorded.start, &recorded.trace).unwrap();
        all_is_known(&said, &what);
        assert!(said.stats.settled > 1000, "{what}: {} settled", said.stats.settled);
        for class in [Class::TreeLeaf, Class::RootTree, Class::SpaceTree, Class::JournalRecords] {
            assert!(said.stats.writes[class].blocks > 0, "{what}: no {class}");
        }
        let mut image = recorded.start.clone();
        (0..recorded.trace.requests().len()).for_each(|r| apply(&mut image, &recorded, r));
        let word = |at| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        let node_size = word(SUPERBLOCK as usize + 148);
        let Some(dump) = dump(&image, node_size.into()) else { return };
        judge(&said.watch, &image, &dump, &what);
        let fresh = Watch::over(&&image[..]).unwrap();
        judge(&fresh, &image, &dump, &format!("{what}, read afterwards"));
        let (then, now) = (names(&said.watch, &image), names(&fresh, &image));
        assert!(then == now, "{what}: {:?}", then.iter().zip(&now).find(|(a, b)| a != b));
    }
}

/// At several superblocks of a run, those of fsyncs included, a watcher that reads the device at
/// that point must agree with one from the start. Catches errors that later superblocks hide, and a
/// log tree that a later fsync has superseded.
#[test]
fn priming_at_any_superblock_gives_the_same_names() {
    let _alone = alone();
    for case in [&CASES[0], &CASES[2]] {
        let Some(recorded) = recorded(case) else { return };
        let watch = Watch::over(&&recorded.start[..]).unwrap();
        let mut image = recorded.start.clone();
        let (mut superblocks, mut logs) = (0, 0);
        for (i, r) in recorded.trace.requests().iter().enumerate() {
            apply(&mut image, &recorded, i);
            let (RequestOp::Write, Some(data)) = (r.op, recorded.trace.data(r)) else { continue };
            write(&watch, i as u64, r.offset, data);
            superblocks += u64::from(r.offset == SUPERBLOCK);
            if r.offset != SUPERBLOCK || superblocks % 5 != 0 {
                continue;
            }
            let logged = image[SUPERBLOCK as usize + 96..][..8] != [0; 8];
            logs += u64::from(logged);
            let fresh = Watch::over(&&image[..]).unwrap();
            let (then, now) = (names(&watch, &image), names(&fresh, &image));
            let differ: Vec<_> = then.iter().zip(&now).filter(|(a, b)| a != b).take(3).collect();
            assert!(differ.is_empty(), "{}, request {i}: {differ:?}", case.mkfs);
        }
        assert!(superblocks > 30 && logs > 2, "{superblocks} {logs}");
    }
}

/// Images as loop devices and their mount point, which are removed when dropped.
struct Loops(Vec<String>, PathBuf);

impl Drop for Loops {
    fn drop(&mut self) {
        // The unmount is lazy, and fails if the mount is already gone, as after a successful run.
        let _ = Command::new("umount").arg("-l").arg(&self.1).output();
        for device in &self.0 {
            let _ = Command::new("losetup").args(["-d", device]).output();
        }
    }
}

/// Files that a kernel wrote to several devices; the result is the image of each device.
fn several(folder: &Path, layout: &[&str], count: usize) -> Option<Vec<Vec<u8>>> {
    let dir = folder.join("mounted");
    let mut loops = Loops(Vec::new(), dir.clone());
    let images: Vec<_> = (0..count).map(|i| folder.join(format!("image-{i}"))).collect();
    for image in &images {
        std::fs::File::create(image).unwrap().set_len(BYTES / 2).unwrap();
        let out = Command::new("losetup").args(["-f", "--show"]).arg(image).output();
        match out {
            Ok(out) if out.status.success() => {
                loops.0.push(String::from_utf8_lossy(&out.stdout).trim().to_owned());
            }
            _ => {
                ordo_testkit::skip("no loop devices here");
                return None;
            }
        }
    }
    let devices: Vec<&str> = loops.0.iter().map(String::as_str).collect();
    run("mkfs.btrfs", &[&["-q", "-f"], layout, &devices].concat());
    std::fs::create_dir(&dir).unwrap();
    let all: Vec<_> = devices.iter().map(|device| format!("device={device}")).collect();
    run("mount", &["-t", "btrfs", "-o", &all.join(","), devices[0], dir.to_str().unwrap()]);
    for i in 0..6 {
        std::fs::write(dir.join(format!("file-{i}")), noise(i, 3 << 20)).unwrap();
    }
    run("umount", &[dir.to_str().unwrap()]);
    run("sync", &[]);
    Some(images.iter().map(|image| std::fs::read(image).unwrap()).collect())
}

/// Several devices: wherever the watcher places a block of a file, the block must be there, and
/// together they must hold each block as often as their profile says. With parity no place is
/// claimed. Catches columns that are counted wrongly.
#[test]
fn blocks_are_on_the_devices_that_the_chunks_name() {
    let _alone = alone();
    let cases: [(&[&str], usize, u64); 5] = [
        (&["-d", "raid0", "-m", "raid1"], 2, 1),
        (&["-d", "raid1", "-m", "raid1"], 2, 2),
        (&["-d", "raid10", "-m", "raid1c4"], 4, 2),
        (&["-d", "raid1c3", "-m", "raid1c3"], 3, 3),
        (&["-d", "raid5", "-m", "raid1c3"], 3, 0),
    ];
    for (layout, count, copies) in cases {
        let folder = tempfile::tempdir().unwrap();
        let Some(images) = several(folder.path(), layout, count) else { return };
        let mut blocks = 0;
        for image in &images {
            let watch = Watch::over(&&image[..]).unwrap();
            let names = names(&watch, image);
            let parity =
                names.iter().filter(|p| matches!(p.what, BlockMeaning::Unknown(_))).count();
            assert_eq!(parity > 0, copies == 0, "{layout:?}: {parity}");
            for ino in 257..263 {
                let expected = noise(ino - 257, 3 << 20);
                for c in watch.contents(ino) {
                    let there = &image[c.offset as usize..][..c.len as usize];
                    let right = &expected[c.at as usize..][..c.len as usize];
                    assert!(there == right, "{layout:?}: inode {ino} at {}", c.at);
                    blocks += c.len / SECTOR as u64;
                }
            }
        }
        assert_eq!(blocks, copies * 6 * (3 << 20) / SECTOR as u64, "{layout:?}");
    }
}
