//! ReiserFS: traces that a kernel made in its three modes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{all_is_known, damaged, logged, name_of, output, recorded, watched, write};
use ordo_watcher::kind::BlockMeaning;
use ordo_watcher::{Class, Watch};

const MODES: [&str; 3] = ["reiserfs-ordered", "reiserfs-journal", "reiserfs-writeback"];

/// The transactions from number 10 on with the blocks that were logged for them, as debugreiserfs
/// finds them.
fn judged(image: &Path) -> Option<Vec<(u64, u64)>> {
    let path = image.to_str()?;
    let text = output("debugreiserfs", &["-j", path, path])?;
    let mut id = 0;
    let mut pairs = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Mountid ") {
            id = rest.split("transid ").nth(1)?.split(',').next()?.parse().ok()?;
        } else if line.starts_with('#') && line.contains("->") {
            for word in line.split_whitespace().filter_map(|w| w.split_once("->")) {
                pairs.push((id, word.1.trim_end_matches('B').parse().ok()?));
            }
        }
    }
    Some(pairs)
}

/// Blocks in use, from lines such as "Busy (0-8217)".
fn busy(image: &Path) -> Option<BTreeSet<u64>> {
    let text = output("debugreiserfs", &["-m", image.to_str()?])?;
    let mut busy = BTreeSet::new();
    for line in text.lines().filter(|l| l.starts_with('#')) {
        for range in line.split("Busy(").flat_map(|r| r.split("Busy (")).skip(1) {
            let (first, rest) = range.split_once('-')?;
            let last: u64 = rest.split(')').next()?.parse().ok()?;
            busy.extend(first.parse::<u64>().ok()?..=last);
        }
    }
    Some(busy)
}

/// In each mode every block has a name that is no guess, and every copy the transaction and the
/// place that debugreiserfs gives it. At the end a block has an owner exactly where the bitmap
/// calls it used. Catches a misread leaf, a copy that came before its descriptor and was lost, and
/// a claim that was not given up.
#[test]
fn every_block_of_a_kernels_reiserfs_trace_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for mode in MODES {
        let Some(recorded) = recorded("reiserfs", mode) else { return };
        let said = watched(&recorded.start, &recorded.trace).unwrap();
        assert_eq!(said.system, "reiserfs");
        all_is_known(&said, mode);
        let after = recorded.after(recorded.trace.requests().len());
        std::fs::write(&image, &after).unwrap();
        let Some(expected) = judged(&image) else { return };
        assert!(expected.len() > 60, "{mode}: {expected:?}");
        let transactions = said.transactions.iter().map(|t| (t.id, t.copies));
        let mut ids: Vec<u64> = expected.iter().map(|(id, _)| *id).collect();
        ids.dedup();
        let counted =
            ids.iter().map(|id| (*id, expected.iter().filter(|(of, _)| of == id).count() as u64));
        assert!(transactions.eq(counted), "{mode}");
        assert!(said.transactions.iter().all(|t| t.commit.is_some()), "{mode}");
        // Copies that came before their descriptor had no name when they were written.
        let pairs: BTreeSet<_> = expected.into_iter().collect();
        let named = logged(&said, 12);
        assert!(named.iter().all(|pair| pairs.contains(pair)), "{mode}");
        assert!(named.len() + 12 > pairs.len(), "{mode}: {} of {}", named.len(), pairs.len());

        let busy = busy(&image).unwrap();
        for (block, data) in after.chunks_exact(4096).enumerate() {
            let [part] = &name_of(&said.watch, block as u64 * 4096, data)[..] else { panic!() };
            let owned = part.what != BlockMeaning::Unclaimed;
            assert_eq!(owned, busy.contains(&(block as u64)), "{mode}, block {block}: {part:?}");
        }
    }
}

/// Paths of all objects that have a name, as debugreiserfs prints the tree's directories.
fn named(image: &Path) -> Option<BTreeMap<u64, String>> {
    let text = output("debugreiserfs", &["-d", image.to_str()?])?;
    let mut parents = BTreeMap::new();
    let mut dir = 0;
    for line in text.lines() {
        // |  1|1 2 0x1 DIR (3), len 48, ...
        if let Some((key, _)) = line.split_once(" DIR (3)") {
            dir = key.rsplit('|').next()?.split(' ').nth(1)?.parse().ok()?;
        // 0: "name    "(  4)    [1 2]    0    1, loc 40, state 4 not set
        } else if line.contains(", loc ")
            && let Some((_, rest)) = line.split_once(": \"")
        {
            let (name, rest) = rest.split_once("\"(")?;
            let key = rest.split_once('[')?.1.split_once(']')?.0;
            let object: u64 = key.split(' ').nth(1)?.parse().ok()?;
            if !matches!(name.trim_end(), "." | "..") {
                parents.insert(object, (dir, name.trim_end().to_owned()));
            }
        }
    }
    let path = |mut at: u64| {
        let mut path = String::new();
        while let Some((dir, name)) = parents.get(&at) {
            path = format!("/{name}{path}");
            at = *dir;
        }
        path
    };
    Some(parents.keys().map(|object| (*object, path(*object))).collect())
}

/// After each quarter of a trace every object has the path that the tree gives it, both for a
/// watcher from the start and for one that reads the device only then. Catches names cut at the
/// wrong place, removed entries, and objects taken for another's.
#[test]
fn paths_are_those_of_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let Some(recorded) = recorded("reiserfs", "reiserfs-ordered") else { return };
    let all = recorded.trace.requests().len();
    let mut seen = 0;
    for quarter in 1..=4 {
        // Blocks not yet checkpointed are in the journal, where only the mounted file system would
        // find them.
        let until = quarter * all / 4;
        let after = recorded.after(until);
        std::fs::write(&image, &after).unwrap();
        let Some(expected) = named(&image) else { return };
        let fresh = Watch::over(&&after[..]).unwrap();
        for (object, path) in &expected {
            assert_eq!(fresh.path(*object).as_deref(), Some(path.as_str()), "{object}, {until}");
        }
        seen += expected.len();
        if quarter == 4 {
            let said = watched(&recorded.start, &recorded.trace).unwrap();
            for (object, path) in &expected {
                let found = said.watch.path(*object);
                assert_eq!(found.as_deref(), Some(path.as_str()), "{object}");
            }
        }
    }
    assert!(seen > 20, "{seen} names");
}

/// The bytes of each item of a leaf, by object and key, after the heads of 24 bytes each behind the
/// leaf's own.
fn items(leaf: &[u8]) -> BTreeMap<(u64, u64), Vec<u8>> {
    let number = |at: usize, len: usize| {
        leaf[at..at + len].iter().rev().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
    };
    let each = (0..number(2, 2) as usize).map(|i| {
        let head = 24 + 24 * i;
        let (from, len) = (number(head + 20, 2) as usize, number(head + 18, 2) as usize);
        ((number(head + 4, 4), number(head + 8, 8)), leaf[from..from + len].to_vec())
    });
    each.collect()
}

/// A copy of a leaf in the journal belongs to the objects whose items differ from those of the copy
/// before, or of the leaf at the start; a copy of a file's block to that file. Would catch a whole
/// leaf that is given to all of its objects, or to none.
#[test]
fn copies_belong_to_the_objects_that_changed() {
    let mut compared = 0;
    for mode in MODES {
        let Some(recorded) = recorded("reiserfs", mode) else { return };
        let said = watched(&recorded.start, &recorded.trace).unwrap();
        said.shares_fit();
        let mut leaves = BTreeMap::<u64, BTreeMap<(u64, u64), Vec<u8>>>::new();
        let all = recorded.trace.requests();
        // Replays count a preflush as a request, so requests are found by their order.
        let writes: Vec<_> = all.iter().filter(|r| r.op == ordo_trace::RequestOp::Write).collect();
        let mut ids: Vec<u64> = said.parts.iter().map(|(id, _)| *id).collect();
        ids.dedup();
        assert_eq!(ids.len(), writes.len());
        for (id, part) in &said.parts {
            let r = writes[ids.binary_search(id).unwrap()];
            let data = recorded.trace.data(r).unwrap();
            let bytes = &data[(part.offset - r.offset) as usize..][..part.len as usize];
            let (home, is_copy) = match part.what {
                BlockMeaning::Journal { home: Some((byte, Class::TreeLeaf)), .. } => (byte, true),
                BlockMeaning::Journal { home: Some((_, Class::FileData)), .. } => {
                    assert_eq!(said.owners(*id, part.offset).len(), 1, "{mode}: {part:?}");
                    continue;
                }
                _ if part.class == Class::TreeLeaf => (part.offset, false),
                _ => continue,
            };
            let now = items(bytes);
            let start = &recorded.start[home as usize..][..4096];
            let first = || match start[0] {
                1 => items(start),
                _ => BTreeMap::new(),
            };
            let before = leaves.remove(&home).unwrap_or_else(first);
            if is_copy {
                let keys = before.keys().chain(now.keys());
                let changed = keys.filter(|key| before.get(key) != now.get(key));
                let wanted: BTreeSet<u64> = changed.map(|(object, _)| *object).collect();
                assert_eq!(said.owners(*id, part.offset), wanted, "{mode}: request {id}");
                compared += usize::from(!wanted.is_empty());
            }
            leaves.insert(home, now);
        }
    }
    assert!(compared > 40, "{compared} copies");
}

/// The modes differ in where the data goes.
#[test]
fn the_modes_differ_in_what_is_logged() {
    const MIB: u64 = 1 << 20;
    for mode in MODES {
        let Some(recorded) = recorded("reiserfs", mode) else { return };
        let said = watched(&recorded.start, &recorded.trace).unwrap();
        let journal = said.stats.writes[Class::JournalData].bytes;
        let data = said.stats.writes[Class::FileData].bytes;
        // In one mode a megabyte went to the journal, since the file was removed before its
        // checkpoint.
        match mode {
            "reiserfs-journal" => assert!(journal > MIB && data < MIB / 8, "{journal} {data}"),
            _ => assert!(journal < MIB && data >= MIB, "{mode}: {journal} {data}"),
        }
    }
}

/// A transaction of more copies than a descriptor can name: the commit block names the places of
/// the rest.
#[test]
fn a_long_transaction_is_told_by_two_blocks() {
    let Some(recorded) = recorded("reiserfs", "reiserfs-ordered") else { return };
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    let (first, capacity) = (18 + 200, 1018);
    let word =
        |block: &mut [u8], at: usize, n: u32| block[at..at + 4].copy_from_slice(&n.to_le_bytes());
    let (mut descriptor, mut commit) = (vec![0; 4096], vec![0; 4096]);
    for (at, n) in [(0, 77), (4, capacity + 3), (8, 10)] {
        word(&mut descriptor, at, n);
    }
    descriptor[4084..4092].copy_from_slice(b"ReIsErLB");
    (0..capacity).for_each(|i| word(&mut descriptor, 12 + i as usize * 4, 9000 + i));
    for (at, n) in [(0, 77), (4, capacity + 3), (8, 12001), (12, 12002), (16, 12003)] {
        word(&mut commit, at, n);
    }
    write(&said.watch, 1000, first * 4096, &descriptor);
    let copies = vec![3; (capacity as usize + 3) * 4096];
    write(&said.watch, 1001, (first + 1) * 4096, &copies);
    write(&said.watch, 1002, (first + 1 + u64::from(capacity) + 3) * 4096, &commit);
    let last = said.watch.transactions(|all| all.last().cloned()).unwrap();
    assert_eq!((last.id, last.copies, last.commit.is_some()), (77, u64::from(capacity) + 3, true));
    write(&said.watch, 1003, 12003 * 4096, &[3; 4096]);
    let last = said.watch.transactions(|all| all.last().cloned()).unwrap();
    assert_eq!(last.checkpointed, 1);
}

/// Flipped bits in all important places: names or "unknown", never a panic.
#[test]
fn changed_bytes_of_reiserfs_and_its_trace_never_panic() {
    let Some(recorded) = recorded("reiserfs", "reiserfs-journal") else { return };
    let interesting = [(65536, 204), (8211 * 4096, 4096), (18 * 4096, 40960), (8210 * 4096, 64)];
    for seed in 0..40 {
        damaged(&recorded, seed, &interesting);
    }
}
