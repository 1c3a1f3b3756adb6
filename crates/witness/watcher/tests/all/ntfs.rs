//! NTFS: a volume that mkntfs made, a log that Windows wrote, files that ntfs-3g wrote.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use crate::common::{
    Recorded, WatchResult, all_is_known, damaged, name_of, output, trace, watched,
};
use ordo_format::ntfs;
use ordo_trace::Trace;
use ordo_watcher::kind::BlockMeaning;
use ordo_watcher::{Class, Watch};

const PAGE: usize = 4096;
const BYTES: u64 = 32 << 20;
/// The offset of the log on a volume of this size, as `ntfsinfo` prints it.
const LOG: usize = 4096 * PAGE;

/// An empty volume.
fn volume(folder: &Path) -> Option<Vec<u8>> {
    let path = folder.join("volume");
    std::fs::File::create(&path).unwrap().set_len(BYTES).unwrap();
    let name = path.to_str().unwrap();
    // A volume in a file has no disk geometry, so mkntfs needs these options.
    let args = ["-F", "-q", "-Q", "-s", "512", "-p", "0", "-H", "0", "-S", "0", name];
    output("mkntfs", &args)?;
    Some(std::fs::read(&path).unwrap())
}

fn number(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

/// A new volume, and the log that Windows wrote as if it were written there now: its pages in the
/// order of their newest records, tail copies before full pages.
fn windows() -> Option<Recorded> {
    let log = ordo_testkit::real_input("images/windows-ntfs-logfile.bin")?;
    let folder = tempfile::tempdir().unwrap();
    let start = volume(folder.path())?;
    let mut pages: Vec<(u64, usize, &[u8])> = log
        .chunks_exact(PAGE)
        .enumerate()
        .map(|(i, page)| match &page[..4] {
            // A tail copy has its place in the field where others have their newest record.
            b"RCRD" if number(page, 8) < 1 << 21 && i < 4 => (number(page, 32), i, page),
            b"RCRD" => (number(page, 8), i, page),
            _ => (0, i, page),
        })
        .collect();
    pages.sort_by_key(|(lsn, i, _)| (*lsn, *i));
    let trace = trace(pages.iter().map(|(_, i, page)| (LOG + i * PAGE, page.to_vec())));
    Some(Recorded { start, trace })
}

/// The records by `ntfsrecover`: the LSN, the previous LSN of the transaction, the transaction's
/// place, the redo operation, the undo operation, and the next LSN to roll back.
fn judged(image: &[u8]) -> Option<BTreeMap<u64, [u64; 5]>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    std::fs::write(&path, image).unwrap();
    let text = output("ntfsrecover", &["-f", "-n", "-v", path.to_str().unwrap()])?;
    let mut all = BTreeMap::new();
    let (mut lsn, mut record, mut kind) = (0, [0; 5], 0);
    let value = |line: &str| {
        let word = line.split_whitespace().nth(1)?;
        u64::from_str_radix(word, 16).ok()
    };
    for line in text.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let Some(value) = value(line) else { continue };
        match name {
            "this_lsn" => (lsn, record, kind) = (value, [0; 5], 0),
            "client_previous_lsn" => record[0] = value,
            "client_undo_next_lsn" => record[4] = value,
            "record_type" => kind = value,
            "transaction_id" => record[1] = value,
            "redo_operation" => record[2] = value,
            "undo_operation" => {
                record[3] = value;
                // Bytes beyond a page's end are remains and not records.
                if kind == 1 && record[2] < 38 && record[0] < lsn {
                    all.insert(lsn, record);
                }
            }
            _ => {}
        }
    }
    Some(all)
}

fn played(recorded: &Recorded) -> WatchResult {
    let said = watched(&recorded.start, &recorded.trace).unwrap();
    assert_eq!(said.system, "ntfs");
    said
}

/// The cluster at which `mkntfs` puts `$MFT`, with four file records of 1024 bytes.
const MFT_AT: u64 = 4;
/// Operations on file records: initialise, free, write its end, make and remove attributes, change
/// values, runs and sizes.
const ON_RECORDS: [u16; 8] = [2, 3, 4, 5, 6, 7, 9, 11];

/// Lets the changes of file records in a page of the log be changes of the new volume's first four.
/// Adds to `wanted` the record of each, by its LSN.
fn moved_to_our_volume(page: &mut [u8], bits: u32, wanted: &mut BTreeMap<u64, u64>) {
    let word = |page: &[u8], at: usize| u64::from(u16::from_le_bytes([page[at], page[at + 1]]));
    for at in (64..page.len() - 88).step_by(8) {
        let lsn = number(page, at);
        let place = (lsn & ((1 << bits) - 1)) << 3;
        let (action, list) = (at + 48, at + 80);
        let is_record = lsn != 0
            && place % PAGE as u64 == at as u64
            && number(page, at + 8) < lsn
            && page[at + 32..at + 36] == [1, 0, 0, 0];
        let redo = word(page, action) as u16;
        // The last two bytes of each sector are elsewhere.
        let is_whole = list % 512 != 504 && (action + 20) % 512 < 508;
        if is_record && is_whole && ON_RECORDS.contains(&redo) && word(page, action + 14) == 1 {
            page[list..list + 8].copy_from_slice(&MFT_AT.to_le_bytes());
            wanted.insert(lsn, word(page, action + 20) / 2);
        }
    }
}

/// A record of the log belongs to the file whose record it changes, and no byte of a page is given
/// away twice. The log is that of Windows; its changes of file records are moved to the clusters
/// where the new volume has its own. Would catch the cluster taken for the record, and records
/// without a file.
#[test]
fn records_of_the_log_belong_to_files() {
    let Some(recorded) = windows() else { return };
    let first = recorded.trace.requests().iter().find_map(|r| {
        let page = recorded.trace.data(r)?;
        (page.starts_with(b"RSTR")).then(|| ntfs::unprotected(page))?
    });
    let bits = ntfs::LogShape::read(&first.unwrap()).unwrap().place_bits;
    let mut wanted = BTreeMap::new();
    let pages = recorded.trace.requests().iter().map(|r| {
        let mut page = recorded.trace.data(r).unwrap().to_vec();
        if page.starts_with(b"RCRD") {
            moved_to_our_volume(&mut page, bits, &mut wanted);
        }
        (r.offset as usize, page)
    });
    let trace = trace(pages.collect::<Vec<_>>());
    let said = played(&Recorded { start: recorded.start, trace });
    said.shares_fit();
    let count = |inodes: &mut dyn Iterator<Item = u64>| {
        let mut all = BTreeMap::<u64, u64>::new();
        inodes.for_each(|ino| *all.entry(ino).or_default() += 1);
        all
    };
    let ours = count(&mut said.shares.iter().map(|(_, share)| share.ino));
    let judged = count(&mut wanted.into_values());
    assert_eq!(judged.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    for (ino, judged) in &judged {
        // A record of which no byte is left of its page, or whose clusters are in the next page, is
        // not told.
        let ours = ours.get(ino).copied().unwrap_or(0);
        assert!(ours <= *judged && ours * 100 >= judged * 95, "{ino}: {ours} of {judged}");
    }
}

/// The log that Windows wrote: no page may be unknown. The transactions must be those that
/// `ntfsrecover` finds, each committed exactly where it ended without a rollback. Catches a last
/// record that is cut at a page's end, and one that is left from an older round.
#[test]
fn a_log_written_by_windows_is_read() {
    let Some(recorded) = windows() else { return };
    let said = played(&recorded);
    all_is_known(&said, "the log of Windows");
    let after = recorded.after(recorded.trace.requests().len());
    let Some(mut judged) = judged(&after) else { return };
    // `ntfsrecover` takes remains behind a page's end for records; they are newer than the newest
    // one, which the restart page names.
    let newest = number(&after[LOG + 48..], 0);
    judged.retain(|lsn, _| *lsn <= newest);

    let (mut open, mut theirs) = (BTreeMap::new(), BTreeMap::<u64, bool>::new());
    let mut rolled_back = BTreeMap::new();
    for (lsn, [previous, place, redo, undo, undo_next]) in judged {
        if (29..=32).contains(&redo) {
            continue;
        }
        let fresh = previous == 0 || !open.contains_key(&place);
        let first = if fresh { *open.entry(place).insert_entry(lsn).get() } else { open[&place] };
        let of = theirs.entry(first).or_default();
        if redo == 27 {
            *of = rolled_back.remove(&place) != Some(true);
            open.remove(&place);
        } else {
            rolled_back.insert(place, undo == 1 && undo_next == 0);
        }
    }
    let ours: BTreeMap<u64, bool> =
        said.transactions.iter().map(|t| (t.id, t.commit.is_some())).collect();
    assert!(ours.len() > 2000, "{}", ours.len());
    let differ: Vec<_> = theirs.iter().filter(|(id, done)| ours.get(id) != Some(done)).collect();
    assert!(differ.is_empty(), "{} of {}: {differ:x?}", differ.len(), theirs.len());
    assert_eq!(ours.len(), theirs.len());
    assert!(said.transactions.iter().any(|t| t.commit.is_none()), "some were undone");
}

/// The writes that turn one image into another: every cluster that differs.
fn difference(before: &[u8], after: &[u8]) -> Trace {
    let clusters = before.chunks_exact(PAGE).zip(after.chunks_exact(PAGE)).enumerate();
    let changed = clusters.filter(|(_, (old, new))| old != new);
    trace(changed.map(|(i, (_, new))| (i * PAGE, new.to_vec())))
}

/// A volume before and after ntfs-3g filled it: files of many sizes, one in many runs, directories
/// with an index of their own, names, a symbolic link, and extended attributes.
fn filled() -> Option<Recorded> {
    let folder = tempfile::tempdir().unwrap();
    let start = volume(folder.path())?;
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let (image, place) = (folder.path().join("volume"), root.to_str().unwrap());
    let mount = Command::new("ntfs-3g").arg(&image).arg(place).output();
    if !mount.is_ok_and(|out| out.status.success()) {
        ordo_testkit::skip("ntfs-3g cannot mount here: not installed, no FUSE, or not root");
        return None;
    }
    let filled = fill(&root);
    // A process that another test is just starting may still have a file of this one open.
    let unmounted = (0..100).any(|_| {
        let done = Command::new("umount").arg(place).status().is_ok_and(|status| status.success());
        if !done {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        done
    });
    assert!(unmounted, "{place} stays busy");
    filled.unwrap();
    // The file system's server process ends a moment after the unmount.
    let mut after = std::fs::read(&image).unwrap();
    for _ in 0..200 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let now = std::fs::read(&image).unwrap();
        if std::mem::replace(&mut after, now.clone()) == now {
            break;
        }
    }
    let trace = difference(&start, &after);
    Some(Recorded { start, trace })
}

fn fill(root: &Path) -> std::io::Result<()> {
    let dir = root.join("a directory");
    std::fs::create_dir(&dir)?;
    for i in 0..300usize {
        std::fs::write(
            dir.join(format!("a file with a long name {i}")),
            vec![(i % 250) as u8 + 1; i * 40],
        )?;
    }
    // Two files that grow in turns have many runs each.
    let (mut one, mut two) =
        (std::fs::File::create(root.join("one"))?, std::fs::File::create(root.join("two"))?);
    for i in 0..60 {
        use std::io::Write as _;
        one.write_all(&vec![i + 1; 3 * PAGE])?;
        two.write_all(&vec![i + 101; 2 * PAGE])?;
        one.sync_all()?;
        two.sync_all()?;
    }
    for i in (0..300).step_by(3) {
        std::fs::remove_file(dir.join(format!("a file with a long name {i}")))?;
    }
    std::fs::rename(root.join("two"), dir.join("renamed"))?;
    std::os::unix::fs::symlink("one", root.join("link"))
}

/// The writes of ntfs-3g: no block may be unknown, and none a guess except those of removed files.
/// At the end a cluster must have an owner exactly where `$Bitmap` calls it used. Catches runs that
/// are read wrongly, and records that are not read at all.
#[test]
fn clusters_in_use_have_owners() {
    let Some(recorded) = filled() else { return };
    let said = played(&recorded);
    assert_eq!(said.stats.writes[Class::Unknown].blocks, 0);
    for class in [Class::InodeBlock, Class::InodeBitmap, Class::BlockBitmap, Class::Directory] {
        assert!(said.stats.writes[class].blocks > 0, "no {class}");
    }
    let data = said.stats.writes[Class::FileData].blocks;
    assert!(data > 400, "{data}");
    let after = recorded.after(recorded.trace.requests().len());
    let names: Vec<_> = after
        .chunks_exact(PAGE)
        .enumerate()
        .map(|(i, data)| name_of(&said.watch, (i * PAGE) as u64, data))
        .collect();
    let bitmap = names.iter().position(|parts| parts[0].class == Class::BlockBitmap).unwrap();
    let in_use = |i: usize| after[bitmap * PAGE + i / 8] & (1 << (i % 8)) != 0;
    let removed = recorded.trace.requests().iter().filter(|r| !in_use(r.offset as usize / PAGE));
    assert_eq!(said.stats.unclaimed, removed.count() as u64, "what was removed, and no more");
    // The last cluster is shortened by the copy of the first sector, and belongs to no file.
    for (i, parts) in names[..names.len() - 1].iter().enumerate() {
        assert_eq!(parts[0].what != BlockMeaning::Unclaimed, in_use(i), "cluster {i}: {parts:?}");
    }
    assert_eq!(names[names.len() - 1].last().unwrap().class, Class::SuperblockCopy);
}

/// Paths come from the names in file records: a renamed file has its new one.
#[test]
fn files_have_paths() {
    let Some(recorded) = filled() else { return };
    let watch = Watch::over(&&recorded.start[..]).unwrap();
    let paths = Rc::new(RefCell::new(BTreeSet::new()));
    let into = paths.clone();
    watch.listen(move |told| {
        for part in &told.named.parts {
            if let BlockMeaning::Blocks { ino, .. } = part.what {
                into.borrow_mut().extend(told.path(ino).map(|p| p.to_string()));
            }
        }
    });
    // The second replay begins with everything known that the first one learned late.
    ordo_trace::replay(&recorded.trace, &watch);
    ordo_trace::replay(&recorded.trace, &watch);
    let paths = paths.borrow();
    for path in ["/one", "/a directory/renamed", "/a directory/a file with a long name 299"] {
        assert!(paths.contains(path), "{path}: {paths:?}");
    }
}

/// Flipped bits in all important places: names or "unknown", never a panic.
#[test]
fn changed_bytes_of_ntfs_and_its_trace_never_panic() {
    let interesting = [(0, 84), (4 << 12, 32 << 10), (LOG as u64, 3 << 12)];
    for recorded in [windows(), filled()].into_iter().flatten() {
        for seed in 0..20 {
            damaged(&recorded, seed, &interesting);
        }
    }
}

/// A torn log page, a page of a log whose shape is not known, and a torn file record: they are
/// unknown, and nothing is learned from them.
#[test]
fn torn_records_are_unknown() {
    let Some(recorded) = windows() else { return };
    for (page, before) in [(40, true), (40, false), (0, true)] {
        let requests = recorded.trace.requests();
        let at = (LOG + page * PAGE) as u64;
        let writes = requests.iter().filter(|r| before && r.offset == LOG as u64 && page != 0);
        let mut writes: Vec<_> =
            writes.map(|r| (LOG, recorded.trace.data(r).unwrap().to_vec())).collect();
        let of = requests.iter().find(|r| r.offset == at).unwrap();
        let mut torn = recorded.trace.data(of).unwrap().to_vec();
        if before {
            torn[1023] ^= 1;
        }
        writes.push((LOG + page * PAGE, torn));
        let trace = trace(writes);
        let said = watched(&recorded.start, &trace).unwrap();
        assert_eq!(said.stats.writes[Class::Unknown].blocks, 1, "page {page}");
        assert!(said.transactions.is_empty());
    }
    let mut record = recorded.start[4 * PAGE..5 * PAGE].to_vec();
    record[511] ^= 1;
    let said = watched(&recorded.start, &trace([(4 * PAGE, record)])).unwrap();
    assert_eq!(said.stats.writes[Class::Unknown].bytes, PAGE as u64);
}
