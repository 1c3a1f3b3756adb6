//! XFS: a trace that a kernel made, images that mkfs.xfs made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::common::{all_is_known, damaged, name_of, output, recorded, watched};
use ordo_trace::{Trace, TraceRequest};
use ordo_watcher::journal::Transaction;
use ordo_watcher::kind::BlockMeaning;
use ordo_watcher::{Class, ClassifiedRange, Watch};

/// Committed transactions, each with the inodes and the buffers' first sectors that were logged for
/// it, as xfs_logprint finds them.
type Logged = BTreeSet<(u64, u64)>;

fn judged(image: &Path) -> Option<(Logged, BTreeSet<u64>)> {
    let text = output("xfs_logprint", &[image.to_str()?])?;
    let (mut logged, mut commits) = (BTreeSet::new(), BTreeSet::new());
    let mut id = 0;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let after = |word: &str| {
            let i = words.iter().position(|w| *w == word)?;
            Some(words.get(i + 1)?.trim_end_matches(','))
        };
        if line.starts_with("Oper (") {
            id = u64::from_str_radix(after("tid:")?, 16).ok()?;
            if line.contains("COMMIT") {
                commits.insert(id);
            }
        } else if line.starts_with("BUF:") {
            logged
                .insert((id, words[words.iter().position(|w| *w == "blkno:")? + 1].parse().ok()?));
        } else if line.trim_start().starts_with("blkno:") {
            logged.insert((id, after("blkno:")?.parse().ok()?));
        }
    }
    Some((logged, commits))
}

/// Free blocks, counted from the device's start, as xfs_db lists them.
fn free(image: &str, group_blocks: u64) -> Option<BTreeSet<u64>> {
    let text = output("xfs_db", &["-r", "-c", "freesp -d", image])?;
    let mut free = BTreeSet::new();
    for line in text.lines().skip(1) {
        let numbers: Vec<u64> = line.split_whitespace().map_while(|w| w.parse().ok()).collect();
        let [group, block, len] = numbers[..] else { break };
        free.extend((0..len).map(|i| group * group_blocks + block + i));
    }
    Some(free)
}

/// Whether parts have an owner other than a tree of free space: xfs_db lists the free list's blocks
/// as free, too.
fn owned(parts: &[ClassifiedRange]) -> bool {
    let spare = |what: &BlockMeaning| matches!(what, BlockMeaning::Piece(name, _) if name.contains("free list of"));
    parts.iter().all(|part| part.what != BlockMeaning::Unclaimed && !spare(&part.what))
}

/// All inodes with paths, as xfs_db finds them: at least `least` inodes.
fn named(image: &str, least: usize) -> Option<BTreeMap<u64, Vec<String>>> {
    let text = output("xfs_db", &["-r", "-c", "blockget -n", "-c", "ncheck", image])?;
    let lines = text.lines().filter_map(|line| line.trim_start().split_once(' '));
    let mut named = BTreeMap::<u64, Vec<String>>::new();
    for (ino, path) in lines {
        // A directory's path ends with "/.".
        let path = format!("/{}", path.trim_start().trim_end_matches("/."));
        if path != "/." {
            named.entry(ino.parse().ok()?).or_default().push(path);
        }
    }
    assert!(named.len() >= least, "{text}");
    Some(named)
}

/// A kernel made an XFS, filled, overwrote and removed files. Every block must have a name that is
/// no guess. Every transaction and every buffer and inode in the log must be those that
/// xfs_logprint finds, and each is later written at its fixed location. At the end a block has an
/// owner exactly where the trees of free space do not have it.
#[test]
fn every_block_of_a_kernels_xfs_trace_is_named() {
    let Some(recorded) = recorded("xfs", "xfs") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    assert_eq!(said.system, "xfs");
    all_is_known(&said, "xfs");
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let after = recorded.after(recorded.trace.requests().len());
    std::fs::write(&image, &after).unwrap();
    let Some((logged, commits)) = judged(&image) else { return };
    assert!(logged.len() > 50 && commits.len() > 10, "{} {}", logged.len(), commits.len());
    let ours: BTreeSet<u64> =
        said.transactions.iter().filter(|t| t.commit.is_some()).map(|t| t.id).collect();
    assert_eq!(ours, commits);
    let homes: BTreeSet<u64> = logged.iter().map(|(_, sector)| *sector).collect();
    let written: BTreeSet<u64> = said.checkpoints.iter().map(|(_, sector, _)| *sector).collect();
    assert_eq!(written, homes, "what is logged is written where it belongs, before the unmount");
    assert!(said.checkpoints.iter().all(|(_, sector, id)| logged.contains(&(*id, *sector))));

    let Some(free) = free(image.to_str().unwrap(), 20480) else { return };
    for (block, data) in after.chunks_exact(4096).enumerate() {
        // The first block of a group holds its headers, which are named sector by sector.
        let parts = name_of(&said.watch, block as u64 * 4096, data);
        let owned = owned(&parts);
        assert_eq!(owned, !free.contains(&(block as u64)), "block {block}: {parts:?}");
    }
    let fresh = Watch::over(&&after[..]).unwrap();
    for (ino, paths) in named(image.to_str().unwrap(), 3).unwrap() {
        for watch in [&said.watch, &fresh] {
            let found = watch.path(ino);
            // One file got a second name and lost it again; the watcher that saw the trace from its
            // start still has that name.
            let is_one = |found: &str| paths.iter().any(|p| p == found) || found == "/d/h3";
            assert!(found.as_deref().is_some_and(is_one), "inode {ino}: {found:?} of {paths:?}");
        }
    }
}

/// Log records are written concurrently. Pairs of them, swapped, must be read in their own order,
/// and give the same inodes and buffers for the same transactions. Catches lost operations that
/// continue in the next record.
#[test]
fn records_that_come_in_another_order_are_read_in_theirs() {
    let Some(recorded) = recorded("xfs", "xfs") else { return };
    let is_record = |r: &TraceRequest| {
        recorded.trace.data(r).is_some_and(|d| d.starts_with(&[0xfe, 0xed, 0xba, 0xbe]))
    };
    let mut requests = recorded.trace.requests().to_vec();
    let mut turned = 0;
    let log: Vec<usize> = (0..requests.len()).filter(|i| is_record(&requests[*i])).collect();
    for pair in log.chunks_exact(2) {
        // The later record goes right before the other, so that the blocks that either announces
        // come after both.
        requests[pair[0]..=pair[1]].rotate_right(1);
        turned += 1;
    }
    assert!(turned > 3, "{turned} of {}", log.len());
    let mut trace = Trace::new(recorded.trace.sector(), false);
    for r in requests {
        let data = recorded.trace.data(&r).map(|data| trace.keep(data));
        trace.push(TraceRequest { data, ..r });
    }
    let (said, other) = (
        watched(&recorded.start, &recorded.trace).unwrap(),
        watched(&recorded.start, &trace).unwrap(),
    );
    let told = |t: &Transaction| (t.id, t.bytes, t.records, t.commit.is_some());
    let [ours, theirs] =
        [&said, &other].map(|s| s.transactions.iter().map(told).collect::<Vec<_>>());
    assert_eq!(ours, theirs);
    assert_eq!(other.stats.unclaimed, 0);
}

/// Images of the shapes that mkfs.xfs makes, with files from a prototype file: a block has an owner
/// exactly where the trees of free space do not have it.
#[test]
fn every_used_block_has_a_name_and_no_free_one() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let path = image.to_str().unwrap();
    let content = folder.path().join("content");
    std::fs::write(&content, vec![9; 3 << 20]).unwrap();
    let mut proto = String::from("/stand/diskboot\n4096 100\nd--755 0 0\n");
    for i in 0..400 {
        proto += &format!("file-with-a-long-name-{i} ---644 0 0 {}\n", content.display());
    }
    proto += "sub d--755 0 0\nlink l--777 0 0 target\n$\n$\n";
    let prototype = folder.path().join("proto");
    std::fs::write(&content, vec![9; 30_000]).unwrap();
    std::fs::write(&prototype, proto).unwrap();
    for options in
        ["-m crc=1", "-m crc=0", "-m crc=1,rmapbt=1,reflink=1", "-m crc=1 -i size=512 -b size=1024"]
    {
        std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
        let mut args = vec!["-q", "-f", "-p", prototype.to_str().unwrap()];
        args.extend(options.split(' '));
        args.push(path);
        if ordo_testkit::judge("mkfs.xfs", &args).is_none() {
            return;
        }
        let bytes = std::fs::read(&image).unwrap();
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let (size, group_blocks) = (word(4) as usize, u64::from(word(84)));
        let Some(free) = free(path, group_blocks) else { return };
        let watch = Watch::over(&&bytes[..]).unwrap();
        let mut kinds = BTreeSet::new();
        for (block, data) in bytes.chunks_exact(size).enumerate() {
            let parts = name_of(&watch, (block * size) as u64, data);
            let owned = owned(&parts);
            let expected = !free.contains(&(block as u64));
            assert_eq!(owned, expected, "{options}, block {block}: {parts:?}");
            kinds.extend(parts.iter().map(|part| part.class));
        }
        // With larger directory blocks, the names in the first block of each are known.
        let named = named(path, 400).unwrap();
        let known: Vec<_> =
            named.iter().filter_map(|(ino, paths)| Some((paths, watch.path(*ino)?))).collect();
        let is_one =
            |(paths, found): &(&Vec<String>, Arc<str>)| paths.iter().any(|p| **p == **found);
        assert!(known.iter().all(is_one), "{options}: {known:?}");
        let all = if size == 4096 { named.len() } else { named.len() / 6 };
        assert!(known.len() >= all, "{options}: {} of {}", known.len(), named.len());
        for kind in [
            Class::Directory,
            Class::FileData,
            Class::InodeBlock,
            Class::SpaceTree,
            Class::InodeMap,
        ] {
            assert!(kinds.contains(&kind), "{options}: no {kind}");
        }
    }
}

/// Flipped bits in all important places: names or "unknown", never a panic.
#[test]
fn changed_bytes_of_xfs_and_its_trace_never_panic() {
    let Some(recorded) = recorded("xfs", "xfs") else { return };
    let interesting = [(0, 2048), (8 * 512, 16384), (128 * 512, 16384), (327_728 * 512, 4096)];
    for seed in 0..6 {
        damaged(&recorded, seed, &interesting);
    }
}

/// The log's space that the kernel clears ahead of its records counts as a kind of its own, and not
/// as traffic to the journal.
#[test]
fn clearing_the_log_is_no_journal_traffic() {
    let Some(recorded) = recorded("xfs", "xfs") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    let cleared = |part: &ClassifiedRange| {
        matches!(part.what, BlockMeaning::Only("empty log records" | "zeros in the log"))
    };
    let bytes: u64 = said.parts.iter().filter(|(_, p)| cleared(p)).map(|(_, p)| p.len).sum();
    assert!(bytes > 0);
    assert_eq!(said.stats.writes[Class::LogClearing].bytes, bytes);
    let analysis = ordo_watcher::analysis::Analysis::of(&said.watch);
    let records = said.stats.writes[Class::JournalRecords].bytes;
    assert_eq!(analysis.journal.bytes, records);
    let all = said.stats.writes.total().bytes;
    assert_eq!(analysis.fixed.bytes, all - records - bytes);
}
