//! The rows of a recording that has parts: what goes over from one part to the next.
//!
//! When a part ends, its rows get the owners and names that are known by then, and leave memory. A
//! later pointer may still show the owner of some of them. The requests of these are carried over,
//! and when their owners change, the change of each file's traffic is told with the part in which
//! it became known. The sum over all parts is then the traffic that the whole recording shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use ordo_trace::{RequestOp, Trace};
use ordo_watcher::{Class, Watch};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Collector, NOBODY, NONE, Waits};
use crate::files::{PARTS, Piece, split};
use crate::rows::{BlockRow, FileShare, Known};

/// The most rows that are carried over. Of more, the oldest stay as they are: their number is told.
const CARRIED_MAX: usize = 1 << 17;

/// A file in one life of its inode: the number of the life, and the inode.
type Life = (u64, u64);
/// The traffic of one request by file and part of [`crate::files::FileTraffic`].
type Traffic = BTreeMap<(Option<Life>, usize), u64>;
/// For each part: bytes, and requests.
pub(crate) type Numbers = [(i64, i64); PARTS];

/// Adds numbers to a sum. What a damaged file says may be more than there is.
pub(crate) fn add_numbers(sum: &mut Numbers, more: Numbers) {
    for (sum, (bytes, requests)) in sum.iter_mut().zip(more) {
        *sum = (sum.0.saturating_add(bytes), sum.1.saturating_add(requests));
    }
}

/// A change of the traffic of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The number of the file's life among the lifetimes of all inodes; `None` for the bytes of no
    /// file.
    pub life: Option<u64>,
    /// The inode.
    pub inode: Option<u64>,
    /// The last path that is known.
    pub path: Option<Arc<str>>,
    /// The part of the recording whose traffic changes.
    pub part: u32,
    /// The bytes and the requests that are added: contents, metadata, journal, reads.
    pub(crate) numbers: Numbers,
}

/// The rows of a part.
#[derive(Debug, Default)]
pub struct PartRows {
    /// A row for each block, with the numbers of requests within the part.
    pub rows: Vec<BlockRow>,
    /// Shares of files.
    pub shares: Vec<FileShare>,
    /// The traffic of files in this part, and the changes in earlier parts, in order.
    pub files: Vec<FileChange>,
    /// The number of rows whose owner may still have changed, but which were too many to carry
    /// over.
    pub not_carried: u64,
}

/// A request that is carried over.
#[derive(Debug)]
struct CarriedRequest {
    op: RequestOp,
    part: u32,
    /// The traffic as it was told.
    told: Traffic,
}

/// A file whose life has ended: the life, the inode, the last path, and the path told before.
type Ended = (u64, u64, Option<Arc<str>>, Option<Option<Arc<str>>>);

/// The state that goes over from one part to the next.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// The present part.
    part: u32,
    /// The number of rows, and of shares, that are of earlier parts.
    rows: usize,
    shares: usize,
    requests: BTreeMap<u64, CarriedRequest>,
    /// Files whose life has ended in this part.
    pub(super) ended: Vec<Ended>,
    pub(super) pointers_come_late: bool,
}

/// Whether a later pointer may change a row.
pub(super) fn may_change(row: &BlockRow, pointers_come_late: bool) -> bool {
    match (row.ino, row.known) {
        (None, _) => row.guess || is_of_files(row.home.map_or(row.kind, |(_, kind)| kind)),
        (Some(_), Some(Known::Pointer)) => pointers_come_late && row.home.is_none(),
        _ => false,
    }
}

/// Whether blocks of a kind lie where a file has them, and not at a place of their own.
fn is_of_files(kind: Class) -> bool {
    matches!(
        kind,
        Class::Directory
            | Class::Indirect
            | Class::ExtentNode
            | Class::FileData
            | Class::Symlink
            | Class::ExtendedAttributes
            | Class::Quota
            | Class::Orphans
            | Class::Unknown
    )
}

/// The last path of each file with a life in this part, and whether it was told before in another
/// form.
type Paths = FxHashMap<u64, (u64, Option<Arc<str>>, bool)>;

impl Collector {
    /// A collector for a recording with parts.
    pub fn in_parts() -> Collector {
        Collector { carried: Some(Carried::default()), ..Collector::default() }
    }

    /// The number of files so far, each use of an inode counted.
    pub(crate) fn lifetimes(&self) -> u64 {
        self.began
    }

    /// Ends a part of the recording, whose first request has the number `first`; `trace` has its
    /// requests. Requests under way belong to no part. After the `last` part nothing more is added.
    pub fn end_part(&mut self, watch: &Watch, trace: &Trace, first: u64, last: bool) -> PartRows {
        if last {
            watch.end_names();
        }
        let mut carried = self.carried.take().unwrap_or_default();
        let paths = self.paths(watch, &mut carried);
        let op = |request: u64| {
            let at = request.checked_sub(first).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| Some(trace.requests().get(at)?.op))
        };
        let traffic = self.traffic(|request| {
            op(request).or_else(|| carried.requests.get(&request).map(|old| old.op))
        });
        let mut changes = Changes::default();
        for (request, traffic) in &traffic {
            match carried.requests.get(request) {
                Some(old) => {
                    changes.add(old.part, &old.told, -1);
                    changes.add(old.part, traffic, 1);
                }
                None => changes.add(carried.part, traffic, 1),
            }
        }
        let files = changes.told(&paths, carried.part);
        let (kept, not_carried) = if last { Default::default() } else { self.to_carry(&carried) };
        let requests = traffic.into_iter().filter(|(request, _)| kept.contains(request));
        let requests = requests.filter_map(|(request, told)| {
            let old = carried.requests.get(&request);
            let part = old.map_or(carried.part, |old| old.part);
            let op = old.map(|old| old.op).or_else(|| op(request))?;
            Some((request, CarriedRequest { op, part, told }))
        });
        let requests = requests.collect();
        let (rows, shares) = self.take_rows(&kept, &carried, &paths, first);
        self.carried = Some(Carried {
            part: carried.part + 1,
            rows: self.rows.len(),
            shares: self.shares.len(),
            requests,
            ended: Vec::new(),
            pointers_come_late: carried.pointers_come_late,
        });
        PartRows { rows, shares, files, not_carried }
    }

    /// The last known path of each file that is open, or has ended in this part.
    fn paths(&mut self, watch: &Watch, carried: &mut Carried) -> Paths {
        let mut paths = Paths::default();
        for (life, ino, path, told) in carried.ended.drain(..) {
            let is_news = told.is_some_and(|told| told != path);
            paths.insert(life, (ino, path, is_news));
        }
        for (ino, file) in &mut self.open {
            let path = watch.path(*ino).or_else(|| file.path.clone());
            let is_news = file.told.as_ref().is_some_and(|told| *told != path);
            file.told = Some(path.clone());
            paths.insert(file.life, (*ino, path, is_news));
        }
        paths
    }

    /// The traffic of every request that has rows here, by its number.
    fn traffic(&self, op: impl Fn(u64) -> Option<RequestOp>) -> BTreeMap<u64, Traffic> {
        let mut rows: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut shares: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (i, row) in self.rows.iter().enumerate() {
            rows.entry(row.request).or_default().push(i);
        }
        for (i, share) in self.shares.iter().enumerate() {
            shares.entry(share.request).or_default().push(i);
        }
        let mut all = BTreeMap::new();
        let (mut pieces, mut parts) = (Vec::new(), Vec::new());
        for (request, rows) in rows {
            let Some(op) = op(request) else { continue };
            pieces.clear();
            parts.clear();
            pieces.extend(rows.into_iter().map(|i| self.piece(i)));
            let shares = shares.get(&request).into_iter().flatten();
            parts.extend(shares.map(|i| {
                let share = &self.shares[*i];
                (share.offset, share.bytes, (self.lifetimes[1][*i], share.ino))
            }));
            parts.sort_by_key(|(offset, _, (_, ino))| (*offset, *ino));
            let mut traffic = Traffic::new();
            split(op, &pieces, &parts, |life, part, bytes| {
                *traffic.entry((life, part)).or_default() += bytes;
            });
            all.insert(request, traffic);
        }
        all
    }

    fn piece(&self, row: usize) -> Piece<Life> {
        let this = &self.rows[row];
        let owner = this.ino.map(|ino| (self.lifetimes[0][row], ino));
        Piece { offset: this.offset, len: this.len, kind: this.final_kind, owner }
    }

    /// The requests of rows that a later pointer may change, and the number of such rows that are
    /// too many.
    fn to_carry(&self, carried: &Carried) -> (FxHashSet<u64>, u64) {
        let mut open: BTreeMap<u64, u64> = BTreeMap::new();
        for head in self.last.values() {
            let mut row = *head;
            while row != NONE {
                let this = &self.rows[row as usize];
                if !may_change(this, carried.pointers_come_late) {
                    break;
                }
                *open.entry(this.request).or_default() += 1;
                row = self.before[row as usize];
            }
        }
        let mut sizes: FxHashMap<u64, usize> = FxHashMap::default();
        for row in &self.rows {
            *sizes.entry(row.request).or_default() += 1;
        }
        let (mut kept, mut rows, mut too_many) = (FxHashSet::default(), 0, 0);
        for (request, changeable) in open.into_iter().rev() {
            rows += sizes.get(&request).copied().unwrap_or(0);
            if rows > CARRIED_MAX {
                too_many += changeable;
            } else {
                kept.insert(request);
            }
        }
        (kept, too_many)
    }

    /// Takes the rows and shares of the part, and keeps those of the requests that are carried
    /// over.
    fn take_rows(
        &mut self,
        kept: &FxHashSet<u64>,
        carried: &Carried,
        paths: &Paths,
        first: u64,
    ) -> (Vec<BlockRow>, Vec<FileShare>) {
        let (mut rows, mut shares) =
            (std::mem::take(&mut self.rows), std::mem::take(&mut self.shares));
        let lifetimes = std::mem::take(&mut self.lifetimes);
        let before = std::mem::take(&mut self.before);
        let path = |life: u64| paths.get(&life).and_then(|(_, path, _)| path.clone());
        let mut new_row = vec![NONE; rows.len()];
        for (i, row) in rows.iter().enumerate().filter(|(_, row)| kept.contains(&row.request)) {
            new_row[i] = self.rows.len() as u32;
            self.rows.push(BlockRow { path: None, ..row.clone() });
            self.lifetimes[0].push(lifetimes[0][i]);
            let before = before[i];
            self.before.push(if before == NONE { NONE } else { new_row[before as usize] });
        }
        let mut new_share = vec![NONE; shares.len()];
        for (i, share) in shares.iter().enumerate().filter(|(_, s)| kept.contains(&s.request)) {
            new_share[i] = self.shares.len() as u32;
            self.shares.push(FileShare { path: None, ..share.clone() });
            self.lifetimes[1].push(lifetimes[1][i]);
        }
        self.renumber(&new_row, &new_share);
        for (row, life) in rows.iter_mut().zip(&lifetimes[0]).skip(carried.rows) {
            row.path = path(*life);
            row.request -= first;
        }
        for (share, life) in shares.iter_mut().zip(&lifetimes[1]).skip(carried.shares) {
            share.path = path(*life);
            share.request -= first;
        }
        let (mut rows, mut shares) =
            (rows.split_off(carried.rows), shares.split_off(carried.shares));
        rows.sort_by_key(|row| row.request);
        shares.sort_by_key(|share| (share.request, share.offset, share.ino));
        (rows, shares)
    }

    /// Gives rows and shares their new numbers everywhere, and forgets those that are gone.
    fn renumber(&mut self, new_row: &[u32], new_share: &[u32]) {
        let row = |old: u32| Some(new_row[old as usize]).filter(|new| *new != NONE);
        self.last.retain(|_, last| {
            *last = new_row[*last as usize];
            *last != NONE
        });
        let looks = std::mem::take(&mut self.looks);
        self.looks = looks.into_iter().filter_map(|(old, l)| Some((row(old)?, l))).collect();
        for rows in self.unconfirmed.values_mut() {
            *rows = rows.iter().filter_map(|old| row(*old)).collect();
        }
        self.unconfirmed.retain(|_, rows| !rows.is_empty());
        for file in self.open.values_mut() {
            let waiting = file.waiting.iter().filter_map(|what| {
                let (new, make): (u32, fn(u32) -> Waits) = match what {
                    Waits::Row(old) => (new_row[*old as usize], Waits::Row),
                    Waits::Share(old) => (new_share[*old as usize], Waits::Share),
                };
                Some(make(new)).filter(|_| new != NONE)
            });
            file.waiting = waiting.collect();
        }
    }
}

/// The changes of all files, by part and file.
#[derive(Default)]
struct Changes(BTreeMap<(u32, Option<Life>), Numbers>);

impl Changes {
    /// Adds the traffic of one request, or takes it off.
    fn add(&mut self, part: u32, traffic: &Traffic, sign: i64) {
        for ((life, of), bytes) in traffic {
            let numbers =
                self.0.entry((part, life.filter(|(life, _)| *life != NOBODY))).or_default();
            numbers[*of].0 += sign * bytes.cast_signed();
            numbers[*of].1 += sign;
        }
    }

    /// The rows to write: changes, and new paths of files of earlier parts.
    fn told(mut self, paths: &Paths, part: u32) -> Vec<FileChange> {
        for (life, (ino, _, is_news)) in paths {
            if *is_news {
                self.0.entry((part, Some((*life, *ino)))).or_default();
            }
        }
        let is_news = |life: &Option<Life>| {
            life.and_then(|(life, _)| paths.get(&life)).is_some_and(|(.., is_news)| *is_news)
        };
        let all = self.0.into_iter();
        let all = all.filter(|((_, life), n)| *n != Numbers::default() || is_news(life));
        all.map(|((part, life), numbers)| FileChange {
            life: life.map(|(life, _)| life),
            inode: life.map(|(_, ino)| ino),
            path: life.and_then(|(life, _)| paths.get(&life)?.1.clone()),
            part,
            numbers,
        })
        .collect()
    }
}
