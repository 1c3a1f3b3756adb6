//! All parts of a recording, analysed together. Parts are read in parallel, as many at once as
//! there are processors, and only their sums are kept.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ordo_watcher::Stats;
use ordo_watcher::analysis::{Analysis, GatheredTransactions};
use ordo_watcher::journal::{MOST, Transaction};
use ordo_watcher::parts::Earlier;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{CHANGES, CONTINUED, EARLIER, PartHead, read_changes, read_earlier};
use crate::counting::{count_traffic, on_all};
use crate::files::{self, FileTraffic};
use crate::findings::{Closing, TRANSACTIONS, read_transactions};
use crate::owners::{FileChange, Numbers, add_numbers};
use crate::reading::{REQUESTS, Reading, StoreError};
use crate::store::is_trace;

/// The end of the name of a directory whose part is being written.
pub(crate) const UNDER_WAY: &str = ".writing";
/// The deepest level at which parts are looked for.
const DEPTH_MAX: usize = 16;

/// A part that was not used.
#[derive(Debug)]
pub struct SetAside {
    /// Its directory.
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

/// The parts of one recording.
#[derive(Debug, Default)]
pub struct PartedRecording {
    /// Its name.
    pub name: String,
    /// The directories of the parts, by number.
    pub parts: BTreeMap<u32, PathBuf>,
    /// Whether it ended in order.
    pub has_end: bool,
    /// How much of the time is recorded; `None` if all of it is.
    pub sample: Option<String>,
}

/// The contents of a directory.
#[derive(Debug, Default)]
pub struct Found {
    /// The recordings, by name.
    pub recordings: Vec<PartedRecording>,
    /// Traces that are no parts of a recording.
    pub whole: Vec<PathBuf>,
    /// Directories of traces that cannot be read.
    pub aside: Vec<SetAside>,
    /// Directories of parts that were being written when their recorder was stopped.
    pub under_way: Vec<PathBuf>,
}

/// Looks for the parts of recordings in a directory, at any depth.
///
/// # Errors
/// A directory cannot be read.
pub fn find(dir: &Path) -> Result<Found, StoreError> {
    let (mut found, mut all) = (Found::default(), BTreeMap::<String, PartedRecording>::new());
    look(dir, 0, &mut found, &mut all)?;
    found.recordings = all.into_values().collect();
    Ok(found)
}

fn look(
    dir: &Path,
    depth: usize,
    found: &mut Found,
    all: &mut BTreeMap<String, PartedRecording>,
) -> Result<(), StoreError> {
    if dir.file_name().is_some_and(|name| name.to_string_lossy().ends_with(UNDER_WAY)) {
        found.under_way.push(dir.to_owned());
        return Ok(());
    }
    if is_trace(dir) {
        take(dir, found, all);
        return Ok(());
    }
    let io = |error| StoreError::Io { path: dir.to_owned(), error };
    let mut below = Vec::new();
    let (mut has_tables, mut is_empty) = (false, true);
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        is_empty = false;
        has_tables |= entry.path().extension().is_some_and(|e| e == "parquet");
        // Links are not followed, so there are no circles.
        if entry.file_type().map_err(io)?.is_dir() {
            below.push(entry.path());
        }
    }
    if has_tables || (is_empty && depth > 0) {
        let why = "requests.parquet is missing".to_owned();
        found.aside.push(SetAside { path: dir.to_owned(), why });
    }
    below.sort();
    below.iter().filter(|_| depth < DEPTH_MAX).try_for_each(|d| look(d, depth + 1, found, all))
}

/// Takes in one trace.
fn take(dir: &Path, found: &mut Found, all: &mut BTreeMap<String, PartedRecording>) {
    let head = Reading::open(dir, REQUESTS).and_then(|file| PartHead::read(&file));
    let why = match head {
        Ok(None) => return found.whole.push(dir.to_owned()),
        Ok(Some(head)) => {
            let recording = all.entry(head.recording.clone()).or_default();
            recording.name = head.recording;
            recording.sample = head.sample;
            match recording.parts.get(&head.part) {
                None => {
                    recording.has_end |= head.is_last;
                    recording.parts.insert(head.part, dir.to_owned());
                    return;
                }
                Some(other) => format!("part {} is in {} too", head.part, other.display()),
            }
        }
        Err(error) => error.to_string(),
    };
    found.aside.push(SetAside { path: dir.to_owned(), why });
}

/// The analysis of a recording.
#[derive(Debug)]
pub struct JoinedParts {
    /// The summary.
    pub analysis: Analysis,
    /// The traffic of files, the greatest first.
    pub files: Vec<FileTraffic>,
    /// The number of parts that are counted.
    pub parts: usize,
    /// The parts that are not.
    pub aside: Vec<SetAside>,
    /// The numbers of parts that are missing among the others.
    pub missing: Vec<u32>,
    /// The number of rows that were too many to carry from one part to the next: their files may be
    /// unknown.
    pub not_carried: u64,
}

/// The contents of one part, reduced.
struct PartSums {
    head: PartHead,
    system: String,
    stats: Stats,
    orphans: u64,
    earlier: Earlier,
    began: Vec<Transaction>,
    continued: Vec<(u64, Transaction)>,
    files: Vec<FileChange>,
}

fn read_part(dir: &Path) -> Result<Option<PartSums>, StoreError> {
    let Some(closing) = Closing::read(dir)? else { return Ok(None) };
    let Some(head) = PartHead::read(&closing.open(dir, REQUESTS)?)? else { return Ok(None) };
    let groups = |name: &str| -> Result<(Reading, Vec<Transaction>), StoreError> {
        let file = closing.open(dir, name)?;
        let mut all = Vec::new();
        for group in 0..file.table.groups() {
            all.extend(read_transactions(&file, group)?);
        }
        Ok((file, all))
    };
    let (_, began) = groups(TRANSACTIONS)?;
    let (file, continued) = groups(CONTINUED)?;
    let continued = file.ints("transaction_number")?.into_iter().zip(continued).collect();
    let earlier = read_earlier(&closing.open(dir, EARLIER)?)?;
    let files = read_changes(&closing.open(dir, CHANGES)?)?;
    let stats = count_traffic(dir, &closing)?;
    let (system, orphans) = (closing.system, closing.orphan_blocks);
    Ok(Some(PartSums { head, system, stats, orphans, earlier, began, continued, files }))
}

/// The sums of all parts so far, taken from the last part to the first.
#[derive(Default)]
struct Sums {
    system: Option<String>,
    stats: Stats,
    earlier: Vec<Earlier>,
    orphans: u64,
    /// The guesses and orphans of the whole recording, as the last part says.
    so_far: Option<(u64, u64)>,
    gathered: GatheredTransactions,
    /// Transactions whose end is known, but not yet the part in which they began.
    continued: FxHashMap<u64, Transaction>,
    files: FxHashMap<Option<u64>, FileSum>,
    /// Changes of files in parts that are not counted yet: all of them are earlier.
    changes: FxHashMap<u32, Vec<FileChange>>,
    used: FxHashSet<u32>,
    not_carried: u64,
}

/// The traffic of one life of an inode.
#[derive(Default)]
struct FileSum {
    inode: Option<u64>,
    path: Option<Arc<str>>,
    numbers: Numbers,
}

impl Sums {
    fn add(&mut self, part: PartSums) {
        let PartSums { head, system, mut stats, orphans, earlier, began, continued, files } = part;
        self.system.get_or_insert(system);
        let found = &head.found;
        self.so_far.get_or_insert((found.unclaimed_so_far, found.orphans_so_far));
        stats.settled += found.settled_earlier;
        add_stats(&mut self.stats, &stats);
        self.orphans += orphans;
        self.earlier.push(earlier);
        for (number, transaction) in continued {
            self.continued.entry(number).or_insert(transaction);
        }
        for (i, transaction) in began.into_iter().enumerate() {
            let number = found.first_transaction + i as u64;
            let whole = self.continued.remove(&number).unwrap_or(transaction);
            if number < MOST as u64 {
                self.gathered.add(&whole);
            }
        }
        for change in files {
            match change.part == head.part {
                true => self.change(change),
                // The last path that is known counts, whether that part is used or not.
                false => self.changes.entry(change.part).or_default().push(change),
            }
        }
        for change in self.changes.remove(&head.part).unwrap_or_default() {
            self.change(change);
        }
        self.used.insert(head.part);
        self.not_carried += head.not_carried;
    }

    fn change(&mut self, change: FileChange) {
        let file = self.files.entry(change.life).or_default();
        file.inode = file.inode.or(change.inode);
        add_numbers(&mut file.numbers, change.numbers);
        // Parts come from the last to the first: the path that came first is the last one.
        if file.path.is_none() {
            file.path = change.path;
        }
    }

    fn finish(mut self, is_whole: bool) -> (Analysis, Vec<FileTraffic>, u64) {
        for ((part, was, kind), counts) in self.earlier.iter().flatten() {
            if self.used.contains(part) {
                // A damaged part may claim more than there is, which then stays as it was counted.
                let _ = self.stats.reclassify(counts, *was, *kind);
            }
        }
        if let Some((unclaimed, orphans)) = self.so_far.filter(|_| is_whole) {
            (self.stats.unclaimed, self.orphans) = (unclaimed, orphans);
        }
        let system = self.system.unwrap_or_default();
        let transactions = self.gathered.finish();
        let files = self.files.into_values().map(|file| (file.inode, file.path, file.numbers));
        let files = files::joined(files);
        (Analysis::with(system, self.stats, self.orphans, transactions), files, self.not_carried)
    }
}

fn add_stats(sum: &mut Stats, more: &Stats) {
    for (class, counts) in more.writes.iter() {
        sum.writes[class].add(counts);
    }
    for (class, counts) in more.reads.iter() {
        sum.reads[class].add(counts);
    }
    for (why, count) in &more.unknown {
        *sum.unknown.entry(*why).or_default() += count;
    }
    sum.flushes += more.flushes;
    sum.discards += more.discards;
    sum.settled += more.settled;
    sum.unclaimed += more.unclaimed;
    sum.without_contents += more.without_contents;
}

impl PartedRecording {
    /// Analyses all parts. Those that are damaged are set aside. `None` if no part can be counted.
    pub fn joined(&self) -> Option<JoinedParts> {
        let parts: Vec<(&u32, &PathBuf)> = self.parts.iter().rev().collect();
        let at_once = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (mut sums, mut aside) = (Sums::default(), Vec::new());
        for some in parts.chunks(at_once) {
            // An error of one part does not stop the others.
            let read = on_all(some.len(), |i| Ok(read_part(some[i].1))).unwrap_or_default();
            for ((_, path), part) in some.iter().zip(read) {
                let why = match part {
                    Ok(Some(part)) => {
                        sums.add(part);
                        continue;
                    }
                    Ok(None) => "its tables have no counts; ordo analyze --again names the blocks \
                                 of a part again"
                        .to_owned(),
                    Err(error) => error.to_string(),
                };
                aside.push(SetAside { path: path.to_path_buf(), why });
            }
        }
        aside.reverse();
        let last = self.parts.keys().last().copied().unwrap_or(0);
        let missing: Vec<u32> = (0..last).filter(|n| !self.parts.contains_key(n)).collect();
        if sums.used.is_empty() {
            return None;
        }
        let parts = sums.used.len();
        let (analysis, files, not_carried) = sums.finish(aside.is_empty() && missing.is_empty());
        Some(JoinedParts { analysis, files, parts, aside, missing, not_carried })
    }
}
