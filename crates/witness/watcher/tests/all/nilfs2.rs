//! NILFS2: a trace that a kernel made.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::{
    Recorded, all_is_known, damaged, name_of, output, recorded, turned, watched, write,
};
use ordo_format::nilfs2::checksum;
use ordo_watcher::kind::{BlockMeaning, Reason};
use ordo_watcher::{Class, Watch};

const BLOCK: usize = 4096;
const SEGMENTS: u64 = 31;
/// The block at which the log of the recorded trace ends; the next constant is that of its next
/// segment.
const LOG_END: u64 = 518;
const NEXT_SEGMENT: u64 = 2048;

/// The facts that nilfs-tools report about an image; the tools only read block devices.
struct Judged {
    /// For each block, the file and its logical block; `None` for a node.
    files: BTreeMap<u64, (u64, Option<u64>)>,
    /// The first block of every partial segment, and its number of blocks.
    partials: Vec<(u64, u64)>,
    last_checkpoint: u64,
    last_partial: u64,
}

fn number(line: &str, key: &str) -> Option<u64> {
    let rest = line.split(key).nth(1)?.trim_start_matches([' ', '=', ':', '\t']);
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn judged(image: &Path) -> Option<Judged> {
    let device = Command::new("losetup").args(["-r", "-f", "--show"]).arg(image).output();
    let device = String::from_utf8(device.ok()?.stdout).ok()?.trim().to_string();
    if device.is_empty() {
        ordo_testkit::skip("no loop device here, which dumpseg needs");
        return None;
    }
    let said = (0..SEGMENTS).map(|n| output("dumpseg", &[&device, &n.to_string()]));
    let said: Option<Vec<String>> = said.collect();
    let tuned = output("nilfs-tune", &["-l", &device]);
    Command::new("losetup").args(["-d", &device]).output().unwrap();
    let (said, tuned) = (said?.concat(), tuned?);
    Some(parsed(&said, &tuned).expect("what the tools print has another form"))
}

fn parsed(said: &str, tuned: &str) -> Option<Judged> {
    let (mut files, mut partials) = (BTreeMap::new(), Vec::new());
    let (mut ino, mut left) = (0, 0);
    for line in said.lines().map(str::trim) {
        if line.starts_with("partial segment") {
            partials.push((number(line, "blocknr")?, number(line, "nblocks")?));
        } else if line.starts_with("ino") {
            (ino, left) = (number(line, "ino")?, number(line, "ndatblk")?);
        } else if let Some(block) = line.split(", blocknr = ").nth(1) {
            let lbn = if left > 0 { number(line, "blkoff") } else { None };
            left = left.saturating_sub(1);
            files.insert(block.parse().ok()?, (ino, lbn));
        }
    }
    Some(Judged {
        files,
        partials,
        last_checkpoint: number(tuned, "Last checkpoint #")?,
        last_partial: number(tuned, "Last block address")?,
    })
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn block(image: &[u8], at: u64) -> &[u8] {
    &image[at as usize * BLOCK..][..BLOCK]
}

/// The places that a watcher gives for a file's contents: by logical block, the block of the
/// device.
fn places(watch: &Watch, ino: u64) -> BTreeMap<u64, u64> {
    let size = BLOCK as u64;
    let of = |c: ordo_watcher::decoder::Contents| {
        (0..c.len / size).map(move |i| (c.at / size + i, c.offset / size + i))
    };
    watch.contents(ino).into_iter().flat_map(of).collect()
}

/// The file and logical block that a watcher gives for a block of the device.
fn owner(watch: &Watch, image: &[u8], at: u64) -> Option<(u64, Option<u64>)> {
    let [part] = &name_of(watch, at * BLOCK as u64, block(image, at))[..] else { panic!() };
    match part.what {
        BlockMeaning::Blocks { ino, first, .. } => Some((ino, Some(first))),
        BlockMeaning::Indirect { ino, .. } => Some((ino, None)),
        BlockMeaning::Inodes { .. } => Some((6, None)),
        BlockMeaning::Piece("inode bitmap of group", _) => Some((6, None)),
        BlockMeaning::Only("descriptors of groups of inodes") => Some((6, None)),
        _ => None,
    }
}

fn played() -> Option<(Recorded, crate::common::WatchResult, Vec<u8>)> {
    let recorded = recorded("nilfs2", "nilfs2")?;
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    let after = recorded.after(recorded.trace.requests().len());
    Some((recorded, said, after))
}

/// A kernel made a NILFS2, filled, overwrote and removed files. Every block must have a name that
/// is no guess. At the end every block of the log must be what dumpseg prints of its summary: no
/// block more, none less. Catches a summary entry of the wrong size, one that spans the end of a
/// block, and a super root taken for data.
#[test]
fn every_block_of_a_kernels_nilfs2_trace_is_named() {
    let Some((_, said, after)) = played() else { return };
    assert_eq!(said.system, "nilfs2");
    all_is_known(&said, "nilfs2");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("image"), &after).unwrap();
    let Some(judged) = judged(&folder.path().join("image")) else { return };
    assert_eq!(judged.partials.len(), 15);
    assert_eq!(judged.partials.last().map(|(at, n)| at + n), Some(LOG_END));
    let transactions: Vec<_> = said.transactions.iter().map(|t| (t.id, t.bytes)).collect();
    let expected: Vec<_> = judged.partials.iter().map(|(_, n)| n * BLOCK as u64).collect();
    assert_eq!(transactions, (1..).zip(expected).skip(1).collect::<Vec<_>>());
    assert_eq!(transactions.last().unwrap().0, judged.last_checkpoint);
    assert_eq!(judged.partials.last().unwrap().0, judged.last_partial);
    assert!(said.transactions.iter().all(|t| t.commit.is_some() && t.bad_checksums == 0));

    let mut inside = judged.partials.iter().copied().flat_map(|(at, n)| at..at + n).peekable();
    for at in 0..after.len() as u64 / BLOCK as u64 {
        let [part] = &name_of(&said.watch, at * BLOCK as u64, block(&after, at))[..] else {
            panic!()
        };
        let logged = inside.next_if_eq(&at).is_some();
        let ours = owner(&said.watch, &after, at);
        let expected = judged.files.get(&at).copied();
        let lbn_is_said = ours.is_none_or(|(ino, _)| ino != 6);
        let expected = expected.map(|(ino, lbn)| (ino, lbn.filter(|_| lbn_is_said)));
        assert_eq!(ours, expected, "block {at}: {part:?}");
        let summary = judged.partials.iter().any(|(first, _)| *first == at);
        assert!(!summary || part.class == Class::SegmentSummary, "block {at}: {part:?}");
        let super_root = judged.partials.iter().any(|(first, n)| first + n == at + 1);
        let says = matches!(part.what, BlockMeaning::Piece("super root of checkpoint", _));
        assert_eq!(says, super_root, "block {at}: {part:?}");
        let fixed = matches!(part.class, Class::Superblock | Class::SuperblockCopy);
        // The last blocks are too few for another segment, so they are never written.
        let behind =
            at >= SEGMENTS * 2048 && part.what == BlockMeaning::Unknown(Reason::NotUnderstood);
        assert_eq!(
            part.what != BlockMeaning::Unclaimed,
            logged || fixed || behind,
            "block {at}: {part:?}"
        );
    }
}

/// Other block sizes, as mkfs makes them, from the device alone: each block is what dumpseg says,
/// and both superblocks are at their places. Catches code that holds only for blocks of 4096 bytes.
#[test]
fn other_sizes_of_blocks_are_known() {
    for size in [1024_u64, 2048] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let path = image.to_str().unwrap();
        let bytes = size.to_string();
        let Some(_) = output("mkfs.nilfs2", &["-q", "-b", &bytes, "-B", "256", path]) else {
            return;
        };
        let all = std::fs::read(&image).unwrap();
        let Some(judged) = judged(&image) else { return };
        assert!(judged.files.len() >= 9 && judged.partials.len() == 1, "{size}");
        let watch = Watch::over(&&all[..]).unwrap();
        let mut seen = BTreeMap::new();
        for (at, data) in all.chunks_exact(size as usize).enumerate() {
            let [part] = &name_of(&watch, at as u64 * size, data)[..] else { panic!() };
            *seen.entry(part.class).or_insert(0) += 1;
            let expected = judged.files.get(&(at as u64));
            match part.what {
                BlockMeaning::Blocks { ino, first, .. } => {
                    assert_eq!(expected, Some(&(ino, Some(first))))
                }
                BlockMeaning::Unclaimed => assert_eq!(expected, None, "block {at}"),
                _ => assert!(expected.is_none_or(|(ino, _)| *ino == 6), "block {at}: {part:?}"),
            }
            assert!(part.class != Class::Superblock || at as u64 == 1024 / size);
        }
        for class in [Class::GroupDescriptors, Class::InodeBitmap, Class::Superblock] {
            assert_eq!(seen.get(&class), Some(&1), "{size}: {class}");
        }
    }
}

/// The file system's own files, read from the places that the watcher gives, must agree with
/// everything else that it says. The sufile has the number of blocks in each segment, the DAT every
/// live block, and the ifile the number of blocks of each file. Catches a place that was not given
/// up, a removed file that still has places, and a wrong group of the DAT.
#[test]
fn the_file_systems_own_files_agree() {
    let Some((_, said, after)) = played() else { return };
    let watch = &said.watch;
    // Entries have 16 bytes and follow a head of 24, which takes the space of two entries.
    let sufile = block(&after, places(watch, 5)[&0]);
    let used = |n: u64| word(sufile, 32 + n as usize * 16 + 8) & 0xffff_ffff;
    for segment in 0..SEGMENTS {
        let first = (segment * 2048).max(1);
        let named = (first..(segment + 1) * 2048).filter(|at| {
            let [part] = &name_of(watch, at * BLOCK as u64, block(&after, *at))[..] else {
                panic!()
            };
            part.what != BlockMeaning::Unclaimed
        });
        assert_eq!(used(segment), named.count() as u64, "segment {segment}");
    }
    // One group: descriptors, bitmap, entries.
    let dat = places(watch, 3);
    let mut live = BTreeMap::new();
    let mut nodes = 0;
    for (_, at) in dat.range(2..) {
        for entry in block(&after, *at).chunks_exact(32) {
            let (at, end) = (word(entry, 0), word(entry, 16));
            if at == 0 || end != u64::MAX {
                continue;
            }
            let (ino, _) = owner(watch, &after, at).expect("a live block has an owner");
            *live.entry(ino).or_insert(0) += 1;
            let [part] = &name_of(watch, at * BLOCK as u64, block(&after, at))[..] else {
                panic!()
            };
            if part.class == Class::Indirect {
                nodes += 1;
            } else {
                assert!(places(watch, ino).values().any(|b| *b == at), "{part:?} is live");
            }
        }
    }
    let placed: usize = (2..200).filter(|ino| *ino != 3).map(|ino| places(watch, ino).len()).sum();
    assert_eq!(placed + nodes, live.values().sum::<usize>());
    let mut files = 0;
    for (lbn, at) in places(watch, 6).range(2..) {
        for (i, inode) in block(&after, *at).chunks_exact(128).enumerate() {
            let ino = (lbn - 2) * 32 + i as u64;
            // Bytes 50 and 51 are the link count. The file system's own files are not kept here.
            if ino >= 11 || ino == 2 {
                let named = inode[50] | inode[51] != 0;
                // The count is in units of 512 bytes, except in the root, where mkfs counts blocks.
                let blocks = if named { word(inode, 0).div_ceil(8) } else { 0 };
                assert_eq!(live.get(&ino).copied().unwrap_or(0), blocks as usize, "inode {ino}");
                files += u64::from(named);
            }
        }
    }
    assert!(files > 40, "{files}");
}

/// Paths come from the directories that were written, those of renamed and linked files included.
/// Catches an entry read at the wrong place, and names learned before it was known that they are
/// names.
#[test]
fn files_have_paths() {
    let Some((_, said, after)) = played() else { return };
    for (ino, path) in [(2, "/"), (12, "/d"), (13, "/d/e"), (64, "/big"), (65, "/log")] {
        assert_eq!(said.watch.path(ino).as_deref(), Some(path), "inode {ino}");
    }
    // A symbolic link that replaced a file.
    let link = said.parts.iter().find(|(_, part)| part.class == Class::Symlink).unwrap();
    let BlockMeaning::Blocks { ino, .. } = link.1.what else { panic!("{link:?}") };
    let path = said.watch.path(ino).unwrap();
    let dir = block(&after, places(&said.watch, 12)[&0]);
    let name = path.strip_prefix("/d/").unwrap().as_bytes();
    assert!(dir.windows(name.len()).any(|w| w == name), "{path}");
}

/// A decoder that learns everything from the final device must agree with one that watched from the
/// start. Catches facts that are learned only by watching, and priming from segments that are over.
#[test]
fn a_watcher_that_starts_late_knows_as_much() {
    let Some((_, said, after)) = played() else { return };
    let late = Watch::over(&&after[..]).unwrap();
    for at in 0..after.len() as u64 / BLOCK as u64 {
        let names = |watch| name_of(watch, at * BLOCK as u64, block(&after, at));
        assert_eq!(names(&late), names(&said.watch), "block {at}");
    }
    for ino in 0..200 {
        assert_eq!(late.contents(ino), said.watch.contents(ino), "inode {ino}");
        assert_eq!(late.path(ino), said.watch.path(ino), "inode {ino}");
    }
}

/// Blocks are written one at a time, each before its summary: a summary of two blocks comes in two
/// requests, and no block has a name when it is written. The final counts must be as before.
#[test]
fn a_summary_may_come_last() {
    let Some((recorded, said, after)) = played() else { return };
    let slow = watched(&recorded.start, &turned(&recorded.trace, BLOCK)).unwrap();
    assert_eq!(slow.stats.unclaimed, 0);
    assert!(slow.stats.settled > 450, "{}", slow.stats.settled);
    for (class, counts) in said.stats.writes.iter() {
        let of = &slow.stats.writes[class];
        assert_eq!((of.blocks, of.bytes), (counts.blocks, counts.bytes), "{class}");
    }
    let all = |said: &crate::common::WatchResult| -> Vec<_> {
        said.transactions.iter().map(|t| (t.id, t.bytes, t.commit.is_some())).collect()
    };
    assert_eq!(all(&slow), all(&said));
    for at in 0..after.len() as u64 / BLOCK as u64 {
        let names = |watch| name_of(watch, at * BLOCK as u64, block(&after, at));
        assert_eq!(names(&slow.watch), names(&said.watch), "block {at}");
    }
    for ino in 0..200 {
        assert_eq!(slow.watch.contents(ino), said.watch.contents(ino), "inode {ino}");
        assert_eq!(slow.watch.path(ino), said.watch.path(ino), "inode {ino}");
    }
}

/// A partial segment made by hand, with right checksums.
struct Made {
    flags: u16,
    seq: u64,
    nblocks: u32,
    sumbytes: Option<u32>,
    /// Files: inode, blocks, data blocks, and the bytes that name the blocks.
    files: Vec<(u64, u32, u32, Vec<u64>)>,
    data: Vec<Vec<u8>>,
}

impl Made {
    fn bytes(&self, seed: u32) -> Vec<u8> {
        let mut summary = vec![0; BLOCK];
        let mut at = 64;
        for (ino, blocks, data, words) in &self.files {
            summary[at..at + 8].copy_from_slice(&ino.to_le_bytes());
            summary[at + 16..at + 20].copy_from_slice(&blocks.to_le_bytes());
            summary[at + 20..at + 24].copy_from_slice(&data.to_le_bytes());
            at += 24;
            for word in words {
                summary[at..at + 8].copy_from_slice(&word.to_le_bytes());
                at += 8;
            }
        }
        let sumbytes = self.sumbytes.unwrap_or(at as u32);
        let mut put =
            |at: usize, bytes: &[u8]| summary[at..at + bytes.len()].copy_from_slice(bytes);
        put(8, &0x1eaf_fa11_u32.to_le_bytes());
        put(12, &64_u16.to_le_bytes());
        put(14, &self.flags.to_le_bytes());
        put(16, &self.seq.to_le_bytes());
        put(40, &self.nblocks.to_le_bytes());
        put(44, &(self.files.len() as u32).to_le_bytes());
        put(48, &sumbytes.to_le_bytes());
        put(56, &16_u64.to_le_bytes());
        let counted = (sumbytes as usize).min(BLOCK);
        let sum = checksum(seed, &summary[8..counted]);
        summary[4..8].copy_from_slice(&sum.to_le_bytes());
        let mut all = summary;
        self.data.iter().for_each(|block| all.extend(block));
        let sum = checksum(seed, &all[4..]);
        all[..4].copy_from_slice(&sum.to_le_bytes());
        all
    }
}

fn seed(image: &[u8]) -> u32 {
    u32::from_le_bytes(image[1036..1040].try_into().unwrap())
}

/// The cleaner moves outdated blocks as well as live ones, and its summaries do not tell them
/// apart. So a block that it moves is not a file's newest until the DAT says so. Catches a file
/// whose contents go back to an older state.
#[test]
fn blocks_moved_by_the_cleaner_are_at_the_dats_addresses() {
    let Some((_, said, after)) = played() else { return };
    let watch = &said.watch;
    let was = places(watch, 65)[&0];
    let files = vec![(65, 1, 1, vec![290, 0])];
    let data = vec![vec![7; BLOCK]];
    let moved = Made { flags: 16, seq: 1, nblocks: 2, sumbytes: None, files, data };
    write(watch, 1000, NEXT_SEGMENT * 4096, &moved.bytes(seed(&after)));
    assert_eq!(owner(watch, &after, NEXT_SEGMENT + 1), Some((65, Some(0))));
    assert_eq!(places(watch, 65)[&0], was);
    // The DAT block that holds its own entry, with another address.
    let (lbn, mut entries) = places(watch, 3)
        .range(2..)
        .find_map(|(lbn, at)| {
            let bytes = block(&after, *at).to_vec();
            let live = |e: &[u8]| word(e, 0) == was && word(e, 16) == u64::MAX;
            bytes.chunks_exact(32).any(live).then_some((*lbn, bytes))
        })
        .unwrap();
    for entry in entries.chunks_exact_mut(32).filter(|e| word(e, 0) == was) {
        entry[..8].copy_from_slice(&(NEXT_SEGMENT + 1).to_le_bytes());
    }
    let files = vec![(3, 1, 1, vec![lbn])];
    let dat = Made { flags: 16, seq: 1, nblocks: 2, sumbytes: None, files, data: vec![entries] };
    write(watch, 1001, (NEXT_SEGMENT + 2) * 4096, &dat.bytes(seed(&after)));
    assert_eq!(places(watch, 65)[&0], NEXT_SEGMENT + 1);
    assert_eq!(places(watch, 3)[&lbn], NEXT_SEGMENT + 3);
}

/// A segment is used again: its old blocks lose their names and places even before the new summary
/// is written.
#[test]
fn a_segment_is_used_again() {
    let Some((_, said, after)) = played() else { return };
    let watch = &said.watch;
    let at = places(watch, 65)[&0];
    let files = vec![(65, 2, 2, vec![900, 0, 901, 1])];
    let data = vec![vec![7; BLOCK], vec![8; BLOCK]];
    let again = Made { flags: 3, seq: 9, nblocks: 3, sumbytes: None, files, data };
    let bytes = again.bytes(seed(&after));
    write(watch, 1000, 2 * 4096, &bytes[BLOCK..]);
    assert_eq!(owner(watch, &after, 3), None);
    assert_eq!(places(watch, 65).get(&0), None, "was at {at}");
    write(watch, 1001, 4096, &bytes[..BLOCK]);
    assert_eq!(places(watch, 65).into_iter().collect::<Vec<_>>(), [(0, 2), (1, 3)]);
    assert_eq!(owner(watch, &after, at), None);
}

/// Wrong checksums in the summary, over a whole partial segment, and in its super root: with the
/// first, the partial segment does not count; the others are counted.
#[test]
fn wrong_checksums_are_seen() {
    let Some((recorded, ..)) = played() else { return };
    // A request of the trace, the byte to change, whether the summary still counts, and the number
    // of wrong checksums.
    for (byte, stands, wrong) in
        [(100, false, 0), (2 * BLOCK + 9, true, 1), (15 * BLOCK + 50, true, 2)]
    {
        let watch = Watch::over(&&recorded.start[..]).unwrap();
        let mut data = recorded.trace.data(&recorded.trace.requests()[3]).unwrap().to_vec();
        data[byte] ^= 1;
        write(&watch, 1, 12 * 4096, &data);
        let seen = watch.transactions(|all| all.iter().map(|t| t.bad_checksums).sum::<u64>());
        assert_eq!(seen, wrong, "byte {byte}");
        assert_eq!(watch.transactions(<[_]>::len), usize::from(stands));
        assert_eq!(watch.finish().unknown.contains_key(&Reason::NotUnderstood), !stands);
    }
}

/// Summaries with impossible values, each with a right checksum: none is trusted.
#[test]
fn absurd_summaries_are_not_believed() {
    let Some((recorded, ..)) = played() else { return };
    let two = || vec![vec![7; BLOCK]];
    let made = |nblocks, sumbytes, files: Vec<(u64, u32, u32, Vec<u64>)>| Made {
        flags: 3,
        seq: 1,
        nblocks,
        sumbytes,
        files,
        data: two(),
    };
    let planted = [
        ("more blocks than the segment", made(4000, None, vec![(65, 3999, 3999, vec![1, 0])])),
        ("more blocks than it says what they are", made(9, None, vec![(65, 1, 1, vec![1, 0])])),
        ("a file of more blocks", made(2, None, vec![(65, u32::MAX, 1, vec![1, 0])])),
        ("more data than blocks", made(2, None, vec![(65, 1, 2, vec![1, 0, 2, 1])])),
        ("a summary larger than it all", made(2, Some(u32::MAX), vec![(65, 1, 1, vec![1, 0])])),
        ("entries beyond the summary", made(2, Some(80), vec![(65, 1, 1, vec![1, 0])])),
        ("no room for a block", made(1, None, vec![])),
    ];
    for (what, made) in planted {
        let watch = Watch::over(&&recorded.start[..]).unwrap();
        write(&watch, 1, NEXT_SEGMENT * 4096, &made.bytes(seed(&recorded.start)));
        assert!(watch.transactions(<[_]>::is_empty), "{what}");
        assert_eq!(owner(&watch, &recorded.start, NEXT_SEGMENT + 1), None, "{what}");
    }
    // The last block that a file can have, and impossible addresses in the DAT.
    let watch = Watch::over(&&recorded.start[..]).unwrap();
    let files = vec![(65, 1, 1, vec![1, u64::MAX]), (3, 1, 1, vec![u64::MAX]), (3, 1, 1, vec![2])];
    let data = vec![vec![0xff; BLOCK]; 3];
    let made = Made { flags: 3, seq: 1, nblocks: 4, sumbytes: None, files, data };
    write(&watch, 1, NEXT_SEGMENT * 4096, &made.bytes(seed(&recorded.start)));
    assert_eq!(watch.transactions(<[_]>::len), 1);
    assert!(watch.contents(65).is_empty());
}

/// Flipped bits in all important places: names or "unknown", never a panic.
#[test]
fn changed_bytes_of_nilfs2_and_its_trace_never_panic() {
    let Some(recorded) = recorded("nilfs2", "nilfs2") else { return };
    let interesting =
        [(1024, 280), (4096, 400), (6 << 12, 4 << 12), (8 << 12, 12288), (11 << 12, 400)];
    for seed in 0..20 {
        damaged(&recorded, seed, &interesting);
    }
    let turned = turned(&recorded.trace, BLOCK);
    let turned = Recorded { trace: turned, ..recorded };
    for seed in 20..25 {
        damaged(&turned, seed, &interesting);
    }
}
