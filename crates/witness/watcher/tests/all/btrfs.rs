//! btrfs: images that mkfs.btrfs filled, written in any order, damaged, and made hostile. Kernel
//! traces are tested in `crates/host/kernelfs/tests/btrfs.rs`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use crate::common::{Recorded, all_is_known, damaged, name_of, output, trace, watched, write};
use ordo_format::Endian::Little as LE;
use ordo_watcher::kind::BlockMeaning;
use ordo_watcher::{Class, Watch};

/// The superblock's offset on the device, and the offsets in it of its generation, the roots and
/// the system chunks.
const SUPERBLOCK: usize = 64 << 10;
const UUID: &str = "6f2c0d1e-3b5a-4c7d-8e9f-a0b1c2d3e4f5";
/// The sizes of tree blocks and of data blocks.
const NODE: usize = 16 << 10;
const SECTOR: usize = 4096;

/// An image of one device; with files, if a folder is given.
fn made(folder: &Path, args: &[&str], files: Option<&Path>) -> Option<Vec<u8>> {
    let path = folder.join("image");
    let _ = std::fs::remove_file(&path);
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    let mut all = vec!["-q", "-f", "-U", UUID];
    all.extend(args);
    if let Some(files) = files {
        all.extend(["--rootdir", files.to_str().unwrap()]);
    }
    all.push(path.to_str().unwrap());
    let said = output("mkfs.btrfs", &all)?;
    let image = std::fs::read(&path).unwrap();
    assert_eq!(&image[SUPERBLOCK + 64..][..8], b"_BHRfS_M", "{said}");
    Some(image)
}

/// Files by their paths.
type Files = BTreeMap<String, Vec<u8>>;

/// Files of many sizes, in two directories.
fn files(folder: &Path) -> Files {
    let mut all = BTreeMap::new();
    for i in 0..120usize {
        let name = format!("/{}/a file with number {i}", ["one", "two"][i % 2]);
        let contents: Vec<u8> = (0..i * 997).map(|n| (n * (i + 3) / 7 % 251) as u8).collect();
        let path = folder.join(&name[1..]);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &contents).unwrap();
        all.insert(name, contents);
    }
    all
}

/// An empty file system and one with files, as the writes that make the second from the first.
fn filled(args: &[&str]) -> Option<(Recorded, Vec<u8>, Files)> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let contents = files(&root);
    let start = made(folder.path(), args, None)?;
    let after = made(folder.path(), args, Some(&root))?;
    let unit = if args.contains(&"4096") { SECTOR } else { NODE };
    let pieces = start.chunks(unit).zip(after.chunks(unit)).enumerate();
    // Remains of the first one in free space are never written.
    let changed = pieces.filter(|(_, (old, new))| old != new && new.iter().any(|b| *b != 0));
    let trace = trace(changed.map(|(i, (_, new))| match i * unit {
        // Superblocks are smaller than tree blocks, and written by themselves.
        at if [SUPERBLOCK, 64 << 20].contains(&at) => (at, new[..SECTOR].to_vec()),
        at => (at, new.to_vec()),
    }));
    Some((Recorded { start, trace }, after, contents))
}

/// The same writes in another order.
fn turned(recorded: &Recorded) -> Recorded {
    let all = recorded.trace.requests().iter().rev();
    let writes = all.map(|r| (r.offset as usize, recorded.trace.data(r).unwrap().to_vec()));
    Recorded { start: recorded.start.clone(), trace: trace(writes) }
}

/// The path and inode of each file, as a watcher names reads of the whole image.
fn paths(watch: &Rc<Watch>, image: &[u8]) -> BTreeMap<String, u64> {
    let (inodes, paths) = (Rc::new(RefCell::new(BTreeSet::new())), Rc::default());
    let into: (_, Rc<RefCell<BTreeMap<String, u64>>>) = (inodes, Rc::clone(&paths));
    for (i, piece) in image.chunks(1 << 20).enumerate() {
        for part in name_of(watch, (i << 20) as u64, piece) {
            if let BlockMeaning::Blocks { ino, .. } = part.what {
                into.0.borrow_mut().insert(ino);
            }
        }
    }
    let (inodes, found) = into;
    watch.listen(move |told| {
        for ino in inodes.borrow().iter() {
            found.borrow_mut().extend(told.path(*ino).map(|path| (path.to_string(), *ino)));
        }
    });
    write(watch, 0, 0, &[0; 512]);
    paths.take()
}

/// mkfs fills an image. Every file's contents must be at the places that the watcher gives, byte
/// for byte, under its path, whether the superblock is written before all else or after. Catches an
/// assumption about the order of writes, names of another directory, and places that are off by a
/// block.
#[test]
fn files_are_where_they_are_said_to_be() {
    for args in
        [&["-m", "single"][..], &["-m", "dup"], &["--mixed", "-n", "4096"], &["--csum", "blake2"]]
    {
        let Some((recorded, after, contents)) = filled(args) else { return };
        for (recorded, what) in
            [(turned(&recorded), "superblock last"), (recorded, "superblock first")]
        {
            let what = format!("{args:?}, {what}");
            let said = watched(&recorded.start, &recorded.trace).unwrap();
            assert_eq!(said.system, "btrfs");
            assert!(said.stats.unknown.is_empty(), "{what}: {:?}", said.stats.unknown);
            let paths = paths(&said.watch, &after);
            for (path, expected) in contents.iter().filter(|(_, c)| c.len() > SECTOR) {
                let ino =
                    *paths.get(path).unwrap_or_else(|| panic!("{what}: no {path}: {paths:?}"));
                let mut found = vec![0; expected.len().next_multiple_of(SECTOR)];
                for c in said.watch.contents(ino) {
                    let there = &after[c.offset as usize..][..c.len as usize];
                    found[c.at as usize..][..there.len()].copy_from_slice(there);
                }
                assert!(found.starts_with(expected), "{what}: {path}");
            }
        }
    }
}

/// The offset of a tree block on the device, by its owner and level: these images have one of each.
fn node(image: &[u8], owner: u64, level: u8) -> usize {
    let fsid = &image[SUPERBLOCK + 32..][..16];
    let is = |at: &usize| {
        let raw = &image[*at..];
        &raw[32..48] == fsid && LE.get_u64(raw, 88) == owner && raw[100] == level
    };
    let newest = |at: &usize| LE.get_u64(&image[*at..], 80);
    let all = (1 << 20..image.len() - NODE).step_by(NODE).filter(is);
    all.max_by_key(newest).unwrap_or_else(|| panic!("no block of tree {owner}"))
}

/// Makes a checksum right.
fn seal(block: &mut [u8]) {
    let sum = !ordo_format::check_hash(&[&block[32..]]);
    LE.put_u32(block, 0, sum);
}

fn changed(block: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = block.to_vec();
    change(&mut block);
    seal(&mut block);
    block
}

/// A block that is torn, names another address, or has an impossible level or count: it is unknown,
/// and nothing is learned from it, though its checksum is right.
#[test]
fn contradictory_blocks_are_unknown() {
    let Some((recorded, after, _)) = filled(&["-m", "single"]) else { return };
    let at = node(&after, 5, 0);
    let block = &after[at..at + NODE];
    let mut torn = block.to_vec();
    torn[NODE - 1] ^= 1;
    let cases = [
        torn,
        changed(block, |b| LE.put_u64(b, 48, LE.get_u64(b, 48) + NODE as u64)),
        changed(block, |b| b[100] = 8),
        changed(block, |b| b[100] = 255),
        changed(block, |b| LE.put_u32(b, 96, (NODE - 101) as u32 / 25 + 1)),
        changed(block, |b| LE.put_u32(b, 96, u32::MAX)),
        changed(block, |b| b[40] ^= 1),
    ];
    for (i, case) in cases.into_iter().enumerate() {
        let said = watched(&recorded.start, &trace([(at, case)])).unwrap();
        assert_eq!(said.stats.writes[Class::Unknown].bytes, NODE as u64, "case {i}");
        assert_eq!(said.stats.writes.total().bytes, NODE as u64, "case {i}");
    }
    let said = watched(&recorded.start, &trace([(at, block.to_vec())])).unwrap();
    assert_eq!(said.stats.writes[Class::Unknown].bytes, 0, "the block itself is known");
}

/// Trees that lead to themselves, items outside their leaf, and chunks of absurd sizes or over each
/// other: reading ends, and every write is covered.
#[test]
fn circles_and_absurd_chunks_end() {
    let Some((recorded, after, _)) = filled(&["-m", "single"]) else { return };
    let (root, chunks) = (node(&after, 1, 0), node(&after, 3, 0));
    let with = |at: usize, change: &dyn Fn(&mut [u8])| {
        let mut image = after.clone();
        let new = changed(&image[at..at + NODE], |b| change(b));
        image[at..at + NODE].copy_from_slice(&new);
        image
    };
    let item = |block: &mut [u8], i: usize| 101 + LE.get_u32(block, 101 + i * 25 + 17) as usize;
    let each = |block: &mut [u8], kind: u8, change: &dyn Fn(&mut [u8], usize)| {
        for i in 0..LE.get_u32(block, 96) as usize {
            if block[101 + i * 25 + 8] == kind {
                let at = item(block, i);
                change(block, at);
            }
        }
    };
    let mut images = vec![
        // Every tree root points to the root tree's leaf itself.
        with(root, &|b| {
            let (address, generation) = (LE.get_u64(b, 48), LE.get_u64(b, 80));
            each(b, 132, &|b, at| {
                LE.put_u64(b, at + 160, generation);
                LE.put_u64(b, at + 176, address);
                b[at + 238] = 0;
            });
        }),
        // The leaf becomes a node that leads to itself.
        with(root, &|b| {
            let (address, generation) = (LE.get_u64(b, 48), LE.get_u64(b, 80));
            b[100] = 1;
            for i in 0..LE.get_u32(b, 96) as usize {
                LE.put_u64(b, 101 + i * 33 + 17, address);
                LE.put_u64(b, 101 + i * 33 + 25, generation);
            }
        }),
        with(root, &|b| (0..20).for_each(|i| LE.put_u32(b, 101 + i * 25 + 17, u32::MAX - 50))),
    ];
    // Chunks that are too long, empty, over each other, behind the device, or of too many stripes.
    let lengths: [u64; 5] = [u64::MAX, 1 << 62, 0, 3, 1 << 40];
    for length in lengths {
        images.push(with(chunks, &|b| each(b, 228, &|b, at| LE.put_u64(b, at, length))));
    }
    images.push(with(chunks, &|b| each(b, 228, &|b, at| LE.put_u64(b, at + 56, 1 << 20))));
    images.push(with(chunks, &|b| each(b, 228, &|b, at| LE.put_u64(b, at + 56, u64::MAX - 9))));
    images.push(with(chunks, &|b| each(b, 228, &|b, at| LE.put_u16(b, at + 44, u16::MAX))));
    images.push(with(chunks, &|b| each(b, 228, &|b, at| LE.put_u64(b, at + 16, 1))));
    for flags in [1 << 3, 1 << 6, 1 << 7, u64::MAX] {
        images.push(with(chunks, &|b| each(b, 228, &|b, at| LE.put_u64(b, at + 24, flags))));
    }
    for image in images {
        watched(&image, &recorded.trace).unwrap();
        // The same blocks as writes.
        let differ = image.chunks(NODE).zip(recorded.start.chunks(NODE)).enumerate();
        let differ = differ.filter(|(_, (a, b))| a != b);
        watched(&recorded.start, &trace(differ.map(|(i, (a, _))| (i * NODE, a.to_vec())))).unwrap();
    }
    // The system chunks in the superblock: the array begins with a key.
    for (field, value) in [(17, u64::MAX), (17, 1), (17 + 56, 1 << 50), (9, u64::MAX)] {
        let mut image = after.clone();
        let sb = changed(&image[SUPERBLOCK..][..SECTOR], |b| LE.put_u64(b, 811 + field, value));
        image[SUPERBLOCK..][..SECTOR].copy_from_slice(&sb);
        watched(&image, &recorded.trace).unwrap();
    }
}

/// Tree blocks in a chunk that has not been seen yet are guesses until the chunk tree's leaf is
/// written. Catches blocks that are lost when a chunk and its contents are written in the wrong
/// order.
#[test]
fn tree_blocks_are_guesses_until_their_chunk_is_known() {
    let Some((_, after, _)) = filled(&["-m", "single"]) else { return };
    let (chunks, root, leaf) = (node(&after, 3, 0), node(&after, 1, 0), node(&after, 5, 0));
    let mut start = after.clone();
    let whole = after[chunks..chunks + NODE].to_vec();
    // The leaf without the chunk for trees other than the system's.
    let less = changed(&whole, |b| {
        for i in 0..LE.get_u32(b, 96) as usize {
            let head = 101 + i * 25;
            let at = 101 + LE.get_u32(b, head + 17) as usize;
            if b[head + 8] == 228 && LE.get_u64(b, at + 24) & 4 != 0 {
                b[head + 8] = 0;
            }
        }
    });
    start[chunks..chunks + NODE].copy_from_slice(&less);
    let block = |at: usize| (at, after[at..at + NODE].to_vec());
    let said = watched(&start, &trace([block(root), block(leaf)])).unwrap();
    assert_eq!(said.stats.unclaimed, 2 * (NODE / SECTOR) as u64);
    let said = watched(&start, &trace([block(root), block(leaf), (chunks, whole)])).unwrap();
    all_is_known(&said, "a chunk that is told of later");
    let named = name_of(&said.watch, leaf as u64, &after[leaf..leaf + NODE]);
    assert!(matches!(named[0].what, BlockMeaning::TreeBlock { number: 5, .. }), "{named:?}");
}

/// A superblock with a wrong checksum, of another file system, or with unknown features makes no
/// root current; a device with such a one is not recognised as btrfs.
#[test]
fn a_superblock_that_is_not_understood_changes_nothing() {
    let Some((recorded, after, _)) = filled(&["-m", "single"]) else { return };
    let sb = &after[SUPERBLOCK..][..SECTOR];
    let mut torn = sb.to_vec();
    torn[72] ^= 0x40;
    let zoned = changed(sb, |b| LE.put_u64(b, 188, LE.get_u64(b, 188) | 1 << 12));
    let moved = changed(sb, |b| LE.put_u64(b, 48, 64 << 20));
    let nodes = changed(sb, |b| LE.put_u32(b, 148, 12345));
    let level = changed(sb, |b| b[198] = 8);
    let array = changed(sb, |b| LE.put_u32(b, 160, 2049));
    for (i, bad) in [torn, zoned, moved, nodes, level, array].into_iter().enumerate() {
        let mut image = after.clone();
        image[SUPERBLOCK..][..SECTOR].copy_from_slice(&bad);
        assert!(Watch::over(&&image[..]).is_none(), "case {i}");
        let said = watched(&recorded.start, &trace([(SUPERBLOCK, bad)])).unwrap();
        assert!(said.transactions.is_empty(), "case {i}: nothing is committed");
    }
    let said = watched(&recorded.start, &trace([(SUPERBLOCK, sb.to_vec())])).unwrap();
    assert_eq!(said.transactions.len(), 1);
}

/// Flipped bits in all important places: names or "unknown", never a panic. No checksum is verified
/// here, so the damage reaches the code that reads items.
#[test]
fn changed_bytes_of_btrfs_and_its_trace_never_panic() {
    for args in [&["-m", "single"][..], &["--csum", "xxhash", "-m", "single"]] {
        let Some((recorded, after, _)) = filled(args) else { return };
        let trees = [1, 3, 5, 2].map(|owner| (node(&after, owner, 0) as u64, NODE as u64));
        let superblock = (SUPERBLOCK as u64, 1000);
        let interesting = [superblock, trees[0], trees[1], trees[2], trees[3]];
        for seed in 0..6 {
            // Both the device's contents and the writes are damaged.
            let recorded = Recorded { start: after.clone(), trace: turned(&recorded).trace };
            damaged(&recorded, seed, &interesting);
        }
    }
}
