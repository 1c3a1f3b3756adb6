//! F2FS: a trace that a kernel made, and images that its own tools fill.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::common::{
    Recorded, all_is_known, damaged, name_of, output, recorded, turned, watched, write,
};
use ordo_runtime::Time;
use ordo_trace::{Flags, RequestOp, Trace, TraceRequest};
use ordo_watcher::kind::{BlockMeaning, ClassifiedRange, Reason};
use ordo_watcher::{Class, Watch};
use rand::{RngExt, SeedableRng};

const BLOCK: usize = 4096;
/// Offsets in a node block: its number, its inode, its flags, and the next node's address.
const NID: usize = 4072;
const INO: usize = 4076;
const FLAG: usize = 4080;
const NEXT: usize = 4092;
/// The next block for nodes of files at the end of the recorded trace.
const FREE_NODE: u64 = 4608 + 65;

/// The facts that f2fs-tools report about an image.
struct Judged {
    main: u64,
    /// Blocks of the main area that are in use.
    valid: BTreeSet<u64>,
    /// The number of these that fsck.f2fs counts.
    count: u64,
    /// For each node block, number and inode.
    nodes: BTreeMap<u64, (u64, u64)>,
    /// For each data block, the node that points to it.
    parents: BTreeMap<u64, u64>,
    version: u64,
}

/// The number in brackets after a name, as in `name   [0x   1000 : 4096]`.
fn bracket(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split(" : ").nth(1)?.trim_end_matches(']').trim().parse().ok()
}

fn word_after(line: &str, name: &str) -> Option<u64> {
    line.split(name).nth(1)?.split_whitespace().next()?.parse().ok()
}

fn judged(bytes: &[u8]) -> Option<Judged> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, bytes).unwrap();
    let mut dump = Command::new("dump.f2fs");
    dump.args(["-d", "1", "-s", "0~-1", "-n", "0~-1", "-a", "0~-1"]).arg(&image);
    let Ok(said) = dump.current_dir(folder.path()).output() else {
        ordo_testkit::skip("dump.f2fs is not installed");
        return None;
    };
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let text = output("fsck.f2fs", &["--dry-run", image.to_str()?])?;
    Some(parsed(folder.path(), &said, &text).expect("what the tools print has another form"))
}

/// The facts from the files that dump.f2fs leaves in a folder, from its output, and from that of
/// fsck.f2fs.
fn parsed(folder: &Path, said: &str, text: &str) -> Option<Judged> {
    let file = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let main = bracket(said, "main_blkaddr")?;
    let (mut valid, mut segment) = (BTreeSet::new(), 0);
    let mut at = 0;
    for line in file("dump_sit").lines().skip(1) {
        if line.starts_with("segno") {
            (segment, at) = (word_after(line, "segno:")?, 0);
            continue;
        }
        for byte in line.split_whitespace().filter_map(|b| u8::from_str_radix(b, 16).ok()) {
            let used = (0..8).filter(|bit| byte >> (7 - bit) & 1 != 0);
            valid.extend(used.map(|bit| main + segment * 512 + at + bit));
            at += 8;
        }
    }
    let node = |line: &str| {
        let at = word_after(line, "blkaddr:")?;
        Some((at, (word_after(line, "nid:")?, word_after(line, "ino:")?)))
    };
    let nodes = file("dump_nat").lines().filter_map(node).collect();
    let (mut parents, mut segment) = (BTreeMap::new(), None);
    for line in file("dump_ssa").lines() {
        if let Some(rest) = line.strip_prefix("segno: ") {
            // This file alone has hexadecimal numbers.
            let number = u64::from_str_radix(rest.split(',').next()?, 16).ok()?;
            segment = rest.contains("Data").then_some(number);
        }
        let (Some(segment), true) = (segment, line.starts_with('[')) else { continue };
        for pair in line.split(']').filter_map(|p| p.trim_start_matches('[').split_once(':')) {
            let Ok(at) = pair.0.trim().parse::<u64>() else { continue };
            let nid = u64::from_str_radix(pair.1.trim(), 16).ok()?;
            parents.insert(main + segment * 512 + at, nid);
        }
    }
    let hex = |name: &str| {
        let line = text.lines().find(|l| l.contains(name))?;
        let digits = line.rsplit(['=', 'x']).next()?.trim().trim_end_matches(']');
        u64::from_str_radix(digits, 16).ok()
    };
    let (count, version) = (hex("valid_block_count matching")?, hex("CKPT version")?);
    Some(Judged { main, valid, count, nodes, parents, version })
}

fn block(image: &[u8], at: u64) -> &[u8] {
    &image[at as usize * BLOCK..][..BLOCK]
}

fn part(watch: &Watch, image: &[u8], at: u64) -> ClassifiedRange {
    let mut parts = name_of(watch, at * BLOCK as u64, block(image, at));
    assert_eq!(parts.len(), 1);
    parts.remove(0)
}

/// Asserts that a block of the main area has an owner exactly where the SIT calls it used, that a
/// node is where the NAT has it and of the NAT's inode, and that data are of the file whose node
/// the SSA names.
fn agrees(watch: &Watch, image: &[u8], judged: &Judged) {
    let inodes: BTreeMap<u64, u64> = judged.nodes.values().copied().collect();
    let mut owned = 0;
    for at in judged.main..(image.len() / BLOCK) as u64 {
        let part = part(watch, image, at);
        let has = !matches!(part.what, BlockMeaning::Unclaimed | BlockMeaning::Unknown(_));
        assert_eq!(has, judged.valid.contains(&at), "block {at}: {part:?}");
        owned += u64::from(has);
        let ours = match part.what {
            BlockMeaning::Inodes { first, .. } => Some((first, true)),
            BlockMeaning::Indirect { ino, .. } | BlockMeaning::Attributes { ino } => {
                Some((ino, false))
            }
            _ => None,
        };
        let theirs = judged.nodes.get(&at).map(|(nid, ino)| (*ino, nid == ino));
        assert_eq!(ours, theirs, "block {at}: {part:?}");
        if let BlockMeaning::Blocks { ino, .. } = part.what {
            let of = judged.parents.get(&at).and_then(|nid| inodes.get(nid));
            assert_eq!(Some(&ino), of, "block {at}: {part:?}");
        }
    }
    assert_eq!(owned, judged.count);
}

/// Asserts that a late watcher agrees with one from the start about every block, all contents, and
/// all present paths.
fn same(late: &Watch, watch: &Watch, image: &[u8]) {
    for at in 0..(image.len() / BLOCK) as u64 {
        assert_eq!(part(late, image, at), part(watch, image, at), "block {at}");
    }
    for ino in 0..800 {
        assert_eq!(late.contents(ino), watch.contents(ino), "inode {ino}");
        let path = late.path(ino);
        assert!(path.is_none() || path == watch.path(ino), "inode {ino}");
    }
}

fn played() -> Option<(Recorded, crate::common::WatchResult, Vec<u8>)> {
    let recorded = recorded("f2fs", "f2fs")?;
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    let after = recorded.after(recorded.trace.requests().len());
    Some((recorded, said, after))
}

/// A kernel made an F2FS, filled, overwrote and removed files. Every block must have a name that is
/// no guess. At the end the tools must find as many blocks in use, at the same places, of the same
/// files. Catches an old place of a node that was kept, a removed file that still owns blocks, and
/// a checkpoint's journal that was not read.
#[test]
fn every_block_of_a_kernels_f2fs_trace_is_named() {
    let Some((recorded, said, after)) = played() else { return };
    assert_eq!(said.system, "f2fs");
    all_is_known(&said, "f2fs");
    let Some(judged) = judged(&after) else { return };
    assert_eq!(judged.count, 59);
    agrees(&said.watch, &after, &judged);
    // Versions are consecutive up to the one that the tools find, each with its commit.
    let ids: Vec<u64> = said.transactions.iter().map(|t| t.id).collect();
    assert_eq!(ids, (judged.version - 7..=judged.version).collect::<Vec<_>>());
    assert!(said.transactions.iter().all(|t| t.commit.is_some() && t.bad_checksums == 0));
    // A flush comes before each commit, and the request is the pack's last block.
    for t in &said.transactions {
        let commit = t.commit.unwrap();
        assert!(commit.epoch > t.first.epoch, "{t:?}");
        assert_eq!(recorded.trace.requests()[commit.request as usize].len, BLOCK as u64);
    }
    // The records of fsyncs are counted by hand in the contents of the trace.
    // The first three segments are node segments here.
    let places = judged.main..judged.main + 3 * 512;
    let nodes = recorded.trace.requests().iter().filter(|r| places.contains(&(r.offset >> 12)));
    let nodes = nodes.filter_map(|r| recorded.trace.data(r)).flat_map(|d| d.chunks_exact(BLOCK));
    let marked = nodes.filter(|b| b[FLAG] & 2 != 0 && b[NID..INO] == b[INO..FLAG]).count() as u64;
    assert_eq!(said.transactions.iter().map(|t| t.records).sum::<u64>(), marked);
    assert_eq!(marked, 10);
}

/// Paths come from entries in blocks and in inodes. The kernel also keeps a file's name in its
/// inode, which the decoder does not read: the two must agree. Catches a slot that is off by one,
/// and a rename of which only one half was seen.
#[test]
fn files_have_paths() {
    let Some((_, said, after)) = played() else { return };
    for (ino, path) in [(3, "/"), (4, "/d"), (5, "/d/e"), (7, "/d/e/g1"), (56, "/big")] {
        assert_eq!(said.watch.path(ino).as_deref(), Some(path), "inode {ino}");
    }
    let mut files = 0;
    for at in 4096..(after.len() / BLOCK) as u64 {
        let BlockMeaning::Inodes { first: ino, .. } = part(&said.watch, &after, at).what else {
            continue;
        };
        let inode = block(&after, at);
        let name = &inode[92..92 + usize::from(inode[88])];
        let path = said.watch.path(ino).unwrap();
        // One file has two names.
        if ino != 3 && inode[12] == 1 {
            assert_eq!(path.rsplit('/').next().unwrap().as_bytes(), name, "{path}");
            files += 1;
        }
    }
    assert!(files >= 50, "{files}");
}

/// A decoder that learns everything from the final device must agree with one that watched from the
/// start; the same at each checkpoint on the way.
#[test]
fn a_watcher_that_starts_late_knows_as_much() {
    let Some((recorded, said, after)) = played() else { return };
    let late = Watch::over(&&after[..]).unwrap();
    same(&late, &said.watch, &after);
    // Half way: a checkpoint has just ended, and the NAT lacks the changes in the checkpoint's
    // journal. Later fsyncs have made a file durable that no checkpoint has.
    for half in [23, 42] {
        half_way(&recorded, half);
    }
}

fn half_way(recorded: &Recorded, half: usize) {
    let image = recorded.after(half);
    let mut trace = Trace::new(recorded.trace.sector(), false);
    for r in &recorded.trace.requests()[..half] {
        let mut same = *r;
        same.data = recorded.trace.data(r).map(|data| trace.keep(data));
        trace.push(same);
    }
    let watching = watched(&recorded.start, &trace).unwrap();
    let late = Watch::over(&&image[..]).unwrap();
    for at in 4096..(image.len() / BLOCK) as u64 {
        assert_eq!(part(&late, &image, at), part(&watching.watch, &image, at), "block {at}");
    }
    let path = watching.watch.path(57);
    assert_eq!(path.as_deref(), Some("/log").filter(|_| half > 23));
    assert_eq!(late.path(57), path);
}

/// Blocks are written one at a time, the last of each request first, so a pack's first block comes
/// after the others. The final counts must be as before.
#[test]
fn a_pack_may_begin_last() {
    let Some((recorded, said, after)) = played() else { return };
    let slow = watched(&recorded.start, &turned(&recorded.trace, BLOCK)).unwrap();
    assert_eq!(slow.stats.unclaimed, 0);
    for (class, counts) in said.stats.writes.iter() {
        let of = &slow.stats.writes[class];
        assert_eq!((of.blocks, of.bytes), (counts.blocks, counts.bytes), "{class}");
    }
    let all = |said: &crate::common::WatchResult| -> Vec<_> {
        said.transactions.iter().map(|t| (t.id, t.bytes, t.records, t.commit.is_some())).collect()
    };
    assert_eq!(all(&slow), all(&said));
    same(&slow.watch, &said.watch, &after);
}

/// Names and contents.
type Files = Vec<(String, Vec<u8>)>;

/// Files for the tool that fills images: some with direct and indirect nodes, a directory of
/// several blocks, and links.
fn tree(folder: &Path) -> Files {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(11);
    let mut files = Vec::new();
    std::fs::create_dir_all(folder.join("many")).unwrap();
    std::fs::create_dir_all(folder.join("deep/er")).unwrap();
    for (name, blocks) in [("big", 5000), ("deep/er/middle", 1500), ("deep/small", 1)] {
        let bytes: Vec<u8> = (0..blocks * BLOCK).map(|_| rng.random()).collect();
        files.push((name.to_string(), bytes));
    }
    for i in 0..600 {
        files.push((format!("many/a-name-of-more-than-one-slot-{i}"), vec![i as u8; 5]));
    }
    for (name, bytes) in &files {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(4000), folder.join("link")).unwrap();
    files
}

/// An image, empty and filled.
fn filled(folder: &Path, features: &str) -> Option<(Vec<u8>, Vec<u8>, Files)> {
    let files = tree(&folder.join("tree"));
    let image = folder.join("image");
    std::fs::File::create(&image).unwrap().set_len(160 << 20).unwrap();
    let name = image.to_str()?;
    let made = match features {
        "" => output("mkfs.f2fs", &["-q", name])?,
        _ => output("mkfs.f2fs", &["-q", "-O", features, name])?,
    };
    assert!(!made.contains("Error"), "{made}");
    let empty = std::fs::read(&image).unwrap();
    output("sload.f2fs", &["-f", folder.join("tree").to_str()?, name])?;
    output("fsck.f2fs", &["-f", name])?;
    Some((empty, std::fs::read(&image).unwrap(), files))
}

/// Features that move fields in an inode. `flexible_inline_xattr` is not among them: the tool
/// writes addresses first and then reserves space for attributes over them.
const FEATURES: [&str; 2] = ["", "extra_attr,inode_checksum,inode_crtime,sb_checksum"];

/// An image that the tool filled, with and without more fields in inodes: the decoder must find
/// each file at its path with its contents, and agree with the tools on every block. Catches a
/// count of addresses that is off by some fields, direct nodes in a wrong order, and an indirect
/// node taken for a direct one.
#[test]
fn files_written_by_the_tools_are_found() {
    for features in FEATURES {
        let folder = tempfile::tempdir().unwrap();
        let Some((_, image, files)) = filled(folder.path(), features) else { return };
        let Some(judged) = judged(&image) else { return };
        let watch = Watch::over(&&image[..]).unwrap();
        agrees(&watch, &image, &judged);
        let inodes: BTreeSet<u64> = judged.nodes.values().map(|(_, ino)| *ino).collect();
        let paths: BTreeMap<_, _> =
            inodes.iter().filter_map(|ino| Some((watch.path(*ino)?, *ino))).collect();
        assert_eq!(paths.len(), inodes.len(), "{features}");
        for (name, bytes) in &files {
            let ino = paths[format!("/{name}").as_str()];
            let mut found = vec![0; bytes.len()];
            let mut have = 0;
            for c in watch.contents(ino) {
                let len = (c.len as usize).min(bytes.len() - c.at as usize);
                found[c.at as usize..][..len].copy_from_slice(&image[c.offset as usize..][..len]);
                have += len;
            }
            // Small files are in their inodes.
            if bytes.len() >= BLOCK {
                assert!(have == bytes.len() && found == *bytes, "{features}: {name}");
            }
        }
        let levels = |of: u8| {
            let is = |at: &&u64| matches!(part(&watch, &image, **at).what, BlockMeaning::Indirect { level, .. } if level == of);
            judged.nodes.keys().filter(is).count()
        };
        assert!(levels(1) > 3 && levels(2) == 1, "{features}");
    }
}

/// The same work as writes in any order: nodes before their inodes, names before their directories,
/// nodes in segments of which nothing is known. With the checkpoint at the end, everything must be
/// known as if read from the image.
#[test]
fn any_order_within_a_checkpoint_will_do() {
    for (seed, features) in (5..).zip(FEATURES) {
        let folder = tempfile::tempdir().unwrap();
        let Some((empty, image, _)) = filled(folder.path(), features) else { return };
        let Some(judged) = judged(&image) else { return };
        // A node that was written twice has an older copy too; it is left out, so that all orders
        // mean the same.
        let counts = |at: &u64| *at < judged.main || judged.valid.contains(at);
        let mut changed: Vec<u64> = (2..(image.len() / BLOCK) as u64)
            .filter(|at| counts(at) && block(&empty, *at) != block(&image, *at))
            .collect();
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        // Checkpoints are before everything else: blocks 512 to 1535.
        let packs: Vec<u64> = changed.extract_if(.., |at| (512..1536).contains(at)).collect();
        for i in (1..changed.len()).rev() {
            changed.swap(i, rng.random_range(0..=i));
        }
        let mut trace = Trace::new(512, false);
        for at in changed.into_iter().chain(packs) {
            let data = Some(trace.keep(block(&image, at)));
            let (offset, len) = (at * BLOCK as u64, BLOCK as u64);
            let (op, flags, issued, epoch, end) =
                (RequestOp::Write, Flags::empty(), Time::ZERO, 0, None);
            trace.push(TraceRequest { op, flags, offset, len, issued, epoch, end, data });
        }
        let said = watched(&empty, &trace).unwrap();
        assert_eq!(said.stats.unclaimed, 0, "{features}");
        assert!(said.stats.unknown.is_empty(), "{:?}", said.stats.unknown);
        let late = Watch::over(&&image[..]).unwrap();
        same(&late, &said.watch, &image);
    }
}

/// A file may hold a copy of a node of its own file system: in a data segment it must not be taken
/// for a node.
#[test]
fn a_copy_of_a_node_in_a_file_is_data() {
    let Some((_, said, after)) = played() else { return };
    let data = said.watch.contents(56);
    let place = data[0].offset;
    let node = (4096..6000).find(|at| {
        matches!(part(&said.watch, &after, *at).what, BlockMeaning::Inodes { first: 56, .. })
    });
    let mut copy = block(&after, node.unwrap()).to_vec();
    // The copy has another length, which would show if the copy were trusted.
    copy[360..].iter_mut().take(8).for_each(|byte| *byte = 0);
    write(&said.watch, 1000, place, &copy);
    assert_eq!(said.watch.contents(56), data);
    // In a node segment the same bytes are a node.
    write(&said.watch, 1001, FREE_NODE * BLOCK as u64, &copy);
    assert_ne!(said.watch.contents(56), data);
}

/// Nodes continue in a segment that had no block in use: the last node in the old one links there,
/// before any checkpoint does. A node that is written before that link waits for it. Catches a node
/// that counts as data until the next checkpoint.
#[test]
fn nodes_go_on_in_a_new_segment() {
    let Some((_, said, after)) = played() else { return };
    let watch = &said.watch;
    let inode = (4096..6000)
        .find(|at| matches!(part(watch, &after, *at).what, BlockMeaning::Inodes { first: 56, .. }))
        .map(|at| block(&after, at).to_vec())
        .unwrap();
    let empty = 4096 + 20 * 512;
    let made = |nid: u32, next: u64| {
        let mut node = inode.clone();
        node[360..372].fill(0);
        for (at, word) in [(NID, nid), (INO, nid), (NEXT, next as u32)] {
            node[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        node
    };
    write(watch, 1000, (empty + 1) * BLOCK as u64, &made(101, empty + 2));
    assert_eq!(part(watch, &after, empty + 1).what, BlockMeaning::Unclaimed);
    write(watch, 1001, FREE_NODE * BLOCK as u64, &made(100, empty));
    for (at, ino) in [(FREE_NODE, 100), (empty + 1, 101)] {
        let BlockMeaning::Inodes { first, .. } = part(watch, &after, at).what else {
            panic!("block {at}")
        };
        assert_eq!(first, ino);
    }
    assert_eq!(watch.finish().unclaimed, 0);
}

/// A file was truncated before any node pointed to its data: the segment's summary settles the
/// data's kind.
#[test]
fn a_summary_settles_what_no_node_points_to() {
    let Some((_, said, after)) = played() else { return };
    let watch = &said.watch;
    let (segment, at) = (19, 4096 + 19 * 512 + 7);
    write(watch, 1000, at * BLOCK as u64, &[3; BLOCK]);
    assert_eq!(watch.finish().unclaimed, 1);
    let settled = watch.finish().settled;
    let mut summary = vec![0; BLOCK];
    summary[7 * 7] = 56;
    write(watch, 1001, (3584 + segment) * BLOCK as u64, &summary);
    assert_eq!((watch.finish().unclaimed, watch.finish().settled), (0, settled + 1));
    assert_eq!(part(watch, &after, at).what, BlockMeaning::Unclaimed, "nobody has it");
}

/// Impossible values, each in an otherwise valid block: they lead nowhere, and earlier knowledge
/// stays.
#[test]
fn absurd_nodes_lead_nowhere() {
    let Some((_, said, after)) = played() else { return };
    let watch = &said.watch;
    let at = (4096..6000)
        .find(|at| matches!(part(watch, &after, *at).what, BlockMeaning::Inodes { first: 56, .. }))
        .unwrap();
    let node = block(&after, at).to_vec();
    let free = FREE_NODE * BLOCK as u64;
    type Words = &'static [(usize, u32)];
    let planted: [(&str, Words, usize); 6] = [
        ("a node number beyond the NAT", &[(NID, u32::MAX), (INO, u32::MAX)], 1),
        ("an inode that is not the first node", &[(FLAG, 8 << 3)], 1),
        ("the last node that a file can have", &[(NID, 57), (FLAG, 0xffff_fff0)], 1),
        ("addresses beyond the device", &[(360, u32::MAX - 2), (364, 40), (368, 0)], 0),
        ("more fields than there is room", &[(0, 0x2000_81a4), (360, 0xffff)], 0),
        ("the next node beyond the device", &[(NEXT, u32::MAX)], 1),
    ];
    for (what, words, keeps) in planted {
        let watch = Watch::over(&&after[..]).unwrap();
        let mut bytes = node.clone();
        if what.starts_with("the last node") {
            bytes[..NID].fill(0);
        }
        for (at, word) in words {
            bytes[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        write(&watch, 1, free, &bytes);
        assert_eq!(watch.contents(56).len(), keeps, "{what}");
    }
    let watch = Watch::over(&&after[..]).unwrap();
    write(&watch, 1, free, &[0; BLOCK]);
    assert_eq!(watch.finish().unknown.get(&Reason::NotUnderstood), Some(&1));
}

/// A checkpoint whose first block is damaged does not count. One whose last block is damaged, or of
/// another version, is not committed.
#[test]
fn a_checkpoint_wants_both_ends() {
    let Some((recorded, ..)) = played() else { return };
    let requests = recorded.trace.requests();
    let data = |n: usize| recorded.trace.data(&requests[n]).unwrap().to_vec();
    let older = data(5);
    for (what, first, last, committed) in [
        ("as it was", data(10), data(12), true),
        ("last damaged", data(10), [&data(12)[..100], &[9], &data(12)[101..]].concat(), false),
        ("last of another version", data(10), older, false),
        ("first damaged", [&data(10)[..100], &[9], &data(10)[101..]].concat(), data(12), false),
    ] {
        let watch = Watch::over(&&recorded.after(10)[..]).unwrap();
        write(&watch, 1, requests[10].offset, &first);
        write(&watch, 2, requests[12].offset, &last);
        let done = watch.transactions(|all| all.iter().any(|t| t.commit.is_some()));
        assert_eq!(done, committed, "{what}");
        let wrong = watch.transactions(|all| all.iter().map(|t| t.bad_checksums).sum::<u64>());
        assert_eq!(wrong, u64::from(what.starts_with("last")), "{what}");
        let unknown = watch.finish().unknown.contains_key(&Reason::NotUnderstood);
        assert_eq!(unknown, what.starts_with("first"), "{what}");
    }
}

/// Flipped bits in all important places: names or "unknown", never a panic.
#[test]
fn changed_bytes_of_f2fs_and_its_trace_never_panic() {
    let Some((recorded, said, _)) = played() else { return };
    assert!(said.stats.writes[Class::InodeBlock].blocks > 0);
    let interesting =
        [(1024, 3072), (5120, 2000), (512 << 12, 8192), (1024 << 12, 8192), (4096 << 12, 4096)];
    for seed in 0..25 {
        damaged(&recorded, seed, &interesting);
    }
}
