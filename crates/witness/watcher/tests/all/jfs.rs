//! JFS: a trace that a kernel made.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{all_is_known, damaged, name_of, recorded, watched};
use ordo_format::jfs;
use ordo_trace::{RequestOp, Trace, TraceRequest};
use ordo_watcher::journal::Transaction;
use ordo_watcher::kind::BlockMeaning;
use ordo_watcher::{Class, Watch};

/// For each transaction, the number of page changes and whether it is committed, as jfs_logdump
/// finds them in an image.
fn judged(image: &[u8]) -> Option<BTreeMap<u64, (u64, bool)>> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("image"), image).unwrap();
    let image = folder.path().join("image");
    let run = Command::new("jfs_logdump").arg("-a").arg(image).current_dir(folder.path()).output();
    if run.is_err() {
        ordo_testkit::skip("jfs_logdump is not installed");
        return None;
    }
    let text = std::fs::read_to_string(folder.path().join("jfslog.dmp")).unwrap();
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|l| l.contains("logtid = d")) {
        let id = line.split("logtid = d").nth(1)?.split_whitespace().next()?.parse().ok()?;
        let entry: &mut (u64, bool) = all.entry(id).or_default();
        entry.0 += u64::from(line.starts_with("LOG_REDOPAGE"));
        entry.1 |= line.starts_with("LOG_COMMIT");
    }
    Some(all)
}

/// Blocks in use, by the block allocation map on the device: its bitmap pages are blocks 20 and 21
/// here.
fn used(image: &[u8]) -> BTreeSet<u64> {
    let mut used = BTreeSet::new();
    for page in 0..2u64 {
        let bits = &image[(20 + page as usize) * 4096 + 3072..][..1024];
        for (word, raw) in bits.chunks_exact(4).enumerate() {
            let word_bits = u32::from_le_bytes(raw.try_into().unwrap());
            let first = page * 8192 + word as u64 * 32;
            used.extend((0..32).filter(|i| word_bits & (1 << (31 - i)) != 0).map(|i| first + i));
        }
    }
    used
}

/// A kernel made a JFS, filled, overwrote and removed files. Every block must have a name that is
/// no guess, every transaction as many records as jfs_logdump finds. At the end a block must have
/// an owner exactly where the block allocation map calls it used. Catches a record read from the
/// wrong end, and an inode in the log that was not used.
#[test]
fn every_block_of_a_kernels_jfs_trace_is_named() {
    let Some(recorded) = recorded("jfs", "jfs") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    assert_eq!(said.system, "jfs");
    all_is_known(&said, "jfs");
    let after = recorded.after(recorded.trace.requests().len());
    let Some(judged) = judged(&after) else { return };
    let ours: BTreeMap<_, _> =
        said.transactions.iter().map(|t| (t.id, (t.records, t.commit.is_some()))).collect();
    assert!(ours.len() > 100, "{}", ours.len());
    for (id, of) in &ours {
        assert_eq!(judged.get(id), Some(of), "transaction {id}");
    }
    let newest = judged.keys().next_back();
    assert_eq!(ours.keys().next_back(), newest);

    let used = used(&after);
    // Fsck's workspace and the log lie behind the aggregate.
    for (block, data) in after.chunks_exact(4096).enumerate().take(128_608 / 8) {
        let [part] = &name_of(&said.watch, block as u64 * 4096, data)[..] else { panic!() };
        let owned = part.what != BlockMeaning::Unclaimed;
        assert_eq!(owned, used.contains(&(block as u64)), "block {block}: {part:?}");
    }
    for class in [Class::JournalRecords, Class::InodeMap, Class::BlockBitmap, Class::Directory] {
        assert!(said.stats.writes[class].blocks > 0, "no {class}");
    }
}

/// The numbers of the inodes in a record's bytes, behind their stamps and file sets, each as four
/// bytes in hexadecimal.
fn inodes_in(record: &str) -> BTreeSet<u64> {
    let rows = record.lines().filter(|line| line.trim_start().starts_with("0x"));
    // Four words follow the address; then come the characters.
    let words: Vec<&str> = rows.flat_map(|row| row.split_whitespace().skip(1).take(4)).collect();
    let inodes = words.windows(3).filter(|w| w[0] == STAMP && w[1] == "10000000");
    inodes.map(|w| u32::from_str_radix(w[2], 16).unwrap().swap_bytes().into()).collect()
}

/// The stamp of every inode of the file system.
const STAMP: &str = "2DEC006B";

/// For each inode, the number of its page changes in these transactions, as jfs_logdump finds them
/// in an image, and the number of changes whose bytes do not say the inode.
fn changes_of_inodes(
    image: &[u8],
    transactions: &BTreeSet<u64>,
) -> Option<(BTreeMap<u64, u64>, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, image).unwrap();
    Command::new("jfs_logdump").arg("-a").arg(path).current_dir(folder.path()).output().ok()?;
    let text = std::fs::read_to_string(folder.path().join("jfslog.dmp")).unwrap();
    let after = |record: &str, name: &str| -> Option<u64> {
        record.split(name).nth(1)?.split_whitespace().next()?.parse().ok()
    };
    let (mut all, mut silent) = (BTreeMap::<u64, u64>::new(), 0);
    for record in text.split("logrec d ").filter(|record| record.contains("LOG_REDOPAGE")) {
        if !transactions.contains(&after(record, "logtid = d ").unwrap()) {
            continue;
        }
        let inodes = match (after(record, "fileset = d "), record.contains("REDOPAGE:INODE\n")) {
            (_, true) => inodes_in(record),
            (Some(16), false) => after(record, "inode = d ").into_iter().collect(),
            _ => continue,
        };
        silent += u64::from(inodes.is_empty());
        inodes.into_iter().for_each(|ino| *all.entry(ino).or_default() += 1);
    }
    Some((all, silent))
}

/// Each record of the log belongs to the inode that jfs_logdump finds in it. Would catch records of
/// inodes that are given to the file that holds the inodes, and bytes that are given away twice.
#[test]
fn records_of_the_log_belong_to_inodes() {
    let Some(recorded) = recorded("jfs", "jfs") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    said.shares_fit();
    let after = recorded.after(recorded.trace.requests().len());
    let ids = said.transactions.iter().map(|t| t.id).collect();
    let Some((judged, silent)) = changes_of_inodes(&after, &ids) else { return };
    let of_log: BTreeSet<(u64, u64)> = said
        .parts
        .iter()
        .filter(|(_, part)| part.class == Class::JournalRecords)
        .map(|(id, part)| (*id, part.offset))
        .collect();
    let mut ours = BTreeMap::<u64, u64>::new();
    for (_, share) in said.shares.iter().filter(|(id, s)| of_log.contains(&(*id, s.offset))) {
        *ours.entry(share.ino).or_default() += 1;
    }
    assert!(judged.len() > 10, "{judged:?}");
    assert_eq!((ours, silent), (judged, 0));
}

/// All inodes with paths, as jfs_debugfs lists directories.
fn named(image: &[u8]) -> Option<BTreeMap<u64, Vec<String>>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, image).unwrap();
    let mut named = BTreeMap::<u64, Vec<String>>::new();
    let mut todo = vec![(2, String::new())];
    while let Some((dir, above)) = todo.pop() {
        let mut command = Command::new("jfs_debugfs");
        command.arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut run) = command.spawn() else {
            ordo_testkit::skip("jfs_debugfs is not installed");
            return None;
        };
        let mut stdin = run.stdin.take().unwrap();
        writeln!(stdin, "directory {dir}\nx\nq").unwrap();
        drop(stdin);
        let text = String::from_utf8_lossy(&run.wait_with_output().unwrap().stdout).into_owned();
        for (ino, name) in text.lines().filter_map(|line| line.split_once('\t')) {
            let Ok(ino) = ino.trim_start_matches(['>', ' ']).parse() else { continue };
            let path = format!("{above}/{name}");
            named.entry(ino).or_default().push(path.clone());
            todo.push((ino, path));
        }
    }
    Some(named)
}

/// Every inode has a path that the directories give it, both for a watcher from the start and for
/// one that reads the final device. Catches names cut at a slot's end, free slots that are read,
/// and a page's names given to another directory.
#[test]
fn paths_are_those_of_the_directories() {
    let Some(recorded) = recorded("jfs", "jfs") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    let after = recorded.after(recorded.trace.requests().len());
    let fresh = Watch::over(&&after[..]).unwrap();
    let Some(named) = named(&after) else { return };
    assert!(named.len() > 30, "{named:?}");
    for (ino, paths) in named {
        let found = [said.watch.path(ino), fresh.path(ino)];
        let is_one = |found: &str| paths.iter().any(|path| path == found);
        assert!(
            found.iter().all(|f| f.as_deref().is_some_and(is_one)),
            "{ino}: {found:?} {paths:?}"
        );
    }
}

/// The log alone, cut out of the trace as if it had a device of its own: the transactions must be
/// as many and as long as with the rest of the file system. Catches pages counted from the wrong
/// place, and records kept from an earlier reading.
#[test]
fn a_log_elsewhere_is_read() {
    let Some(recorded) = recorded("jfs", "jfs") else { return };
    let place = jfs::Superblock::read(&recorded.start[jfs::SUPERBLOCK_AT as usize..]).unwrap().log;
    let log = place.0 * 4096..(place.0 + place.1) * 4096;
    let image = &recorded.start[log.start as usize..log.end as usize];
    let mut trace = Trace::new(recorded.trace.sector(), false);
    for r in recorded.trace.requests() {
        if log.contains(&r.offset) || r.op == RequestOp::Flush {
            let data = recorded.trace.data(r).map(|data| trace.keep(data));
            trace.push(TraceRequest { offset: r.offset.saturating_sub(log.start), data, ..*r });
        }
    }
    let (alone, whole) =
        (watched(image, &trace).unwrap(), watched(&recorded.start, &recorded.trace).unwrap());
    assert_eq!(alone.system, "jfs log");
    all_is_known(&alone, "the log alone");
    let told = |t: &Transaction| (t.id, t.bytes, t.records, t.commit.is_some());
    let [alone, whole] =
        [&alone, &whole].map(|s| s.transactions.iter().map(told).collect::<Vec<_>>());
    assert!(alone.len() > 100);
    assert_eq!(alone, whole);
}

/// JFS sends no flush before the unmount: only the order of issue separates a commit from what it
/// commits.
#[test]
fn jfs_sends_no_flush() {
    let Some(recorded) = recorded("jfs", "jfs") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    assert_eq!(said.stats.flushes, 1);
    assert!(said.transactions.iter().all(|t| t.commit.is_none_or(|c| c.epoch == 0)));
}

/// Flipped bits in all important places: names or "unknown", never a panic.
#[test]
fn changed_bytes_of_jfs_and_its_trace_never_panic() {
    let Some(recorded) = recorded("jfs", "jfs") else { return };
    let interesting = [(0x8000, 184), (0xb000, 16384), (16 << 12, 24 << 12), (29 << 12, 12 << 12)];
    for seed in 0..40 {
        damaged(&recorded, seed, &interesting);
    }
}
