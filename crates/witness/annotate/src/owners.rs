//! Rows of blocks with their owners, including owners that only a later pointer or name shows.
//!
//! Most file data are written before the inode that points to them, and most inodes before the
//! directory that names them. A [`Collector`] keeps the rows that lack an owner by their block, and
//! fills them in when a request shows it. It keeps the rows of each file by their inode, and gives
//! them the last path that the file had: when the inode is freed or used again, and at the end of
//! the trace.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use ordo_block::Operation;
use ordo_trace::Trace;
use ordo_watcher::decoder::{Claim, Share};
use ordo_watcher::kind::Looks;
use ordo_watcher::names::NameEvent;
use ordo_watcher::{ClassifiedEvent, Watch};

use crate::rows::{BlockRow, FileShare, Known, of_event};

mod carry;

pub use carry::{FileChange, PartRows};
pub(crate) use carry::{Numbers, add_numbers};

/// No row before this one.
const NONE: u32 = u32::MAX;
/// The life of no file.
const NOBODY: u64 = u64::MAX;

/// Something that waits for a path.
#[derive(Clone, Copy, Debug)]
enum Waits {
    Row(u32),
    Share(u32),
}

/// A file in the present life of its inode.
#[derive(Debug, Default)]
struct Open {
    /// The number of this life of the inode, counted over all inodes.
    life: u64,
    /// The path that an ended part of the recording gave for the file, if one did.
    told: Option<Option<Arc<str>>>,
    /// The rows and shares of the file, which get its last path.
    waiting: Vec<Waits>,
    /// The last path that is known.
    path: Option<Arc<str>>,
    /// The inode whose name is missing for a path, if it is listed in [`Collector::awaited`].
    awaits: Option<u64>,
}

/// The rows so far.
#[derive(Debug, Default)]
pub struct Collector {
    rows: Vec<BlockRow>,
    shares: Vec<FileShare>,
    /// For each row, the previous write of the same block.
    before: Vec<u32>,
    /// The last write of each block, and the last copy of it in a journal.
    last: FxHashMap<u64, u32>,
    /// The looks of rows that were guesses and cannot be of every kind.
    looks: FxHashMap<u32, Looks>,
    /// The files with rows or shares, by inode.
    open: FxHashMap<u64, Open>,
    /// Inodes with rows that lack a path, by the inode whose name is missing.
    awaited: FxHashMap<u64, Vec<u64>>,
    /// Rows whose owner a late pointer may still change: for each inode, the rows with its blocks
    /// since it was last written.
    unconfirmed: FxHashMap<u64, Vec<u32>>,
    /// For each row, and for each share, the life of the inode to which it belongs.
    lifetimes: [Vec<u64>; 2],
    /// The number of lifetimes so far.
    began: u64,
    /// The state that goes over from one part of a recording to the next; `None` if the recording
    /// has no parts.
    carried: Option<carry::Carried>,
}

/// The key of a block at its place, or of its copy in a journal.
fn key(block: u64, is_copy: bool) -> u64 {
    block << 1 | u64::from(is_copy)
}

impl Collector {
    /// Adds the request with the number `request`.
    pub fn add_event(&mut self, request: u64, event: &ClassifiedEvent<'_>) {
        for change in event.name_events() {
            if let NameEvent::Ended { ino, path } = change {
                self.close(*ino, path.as_ref().filter(|_| !event.pointers_come_late));
                // Some of these blocks may be the next file's in the same inode.
                for row in self.unconfirmed.remove(ino).unwrap_or_default() {
                    self.rows[row as usize].known = Some(Known::Guess);
                }
            }
        }
        if event.has_other_system {
            // No pointer of the new file system leads to blocks of the old one.
            (self.last, self.looks, self.unconfirmed) = Default::default();
        }
        for ino in event.inodes {
            self.unconfirmed.remove(ino);
        }
        if let Some(carried) = &mut self.carried {
            carried.pointers_come_late = event.pointers_come_late;
        }
        let first = self.rows.len();
        of_event(request, event, &mut self.rows);
        self.before.resize(self.rows.len(), NONE);
        self.lifetimes[0].resize(self.rows.len(), NOBODY);
        for (at, looks) in event.looks {
            let row = first + self.rows[first..].partition_point(|row| row.offset < *at);
            self.looks.insert(row as u32, *looks);
        }
        for share in event.shares {
            self.share(request, first, share, event);
        }
        let is_write = event.named.op == Operation::Write;
        for row in first..self.rows.len() {
            if is_write {
                self.note(row, event.claim_shift);
            }
            if let Some(ino) = self.rows[row].ino {
                self.name(Waits::Row(row as u32), event);
                if event.pointers_come_late && is_write {
                    self.unconfirmed.entry(ino).or_default().push(row as u32);
                }
            }
        }
        for claim in event.claims {
            self.settle(claim, event);
        }
        for change in event.name_events() {
            if let NameEvent::Added(ino) = change {
                self.named(*ino, event);
            }
        }
    }

    /// The number of rows so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Ends the trace. All rows and shares are in the order of requests: reads are reported when
    /// they complete.
    pub fn finish(mut self, watch: &Watch) -> (Vec<BlockRow>, Vec<FileShare>) {
        watch.end_names();
        let open: Vec<u64> = self.open.keys().copied().collect();
        open.into_iter().for_each(|ino| self.close(ino, watch.path(ino).as_ref()));
        self.rows.sort_by_key(|row| row.request);
        self.shares.sort_by_key(|share| (share.request, share.offset, share.ino));
        (self.rows, self.shares)
    }

    fn note(&mut self, row: usize, shift: u32) {
        let block = &self.rows[row];
        let key = match block.home {
            Some((byte, _)) => key(byte >> shift, true),
            None if block.kind.is_journal() => return,
            None => key(block.offset >> shift, false),
        };
        self.before[row] = self.last.insert(key, row as u32).unwrap_or(NONE);
    }

    /// Gives a range of the request to a file: the whole rows if it is their only owner, otherwise
    /// a share of them.
    fn share(&mut self, request: u64, first: usize, share: &Share, event: &ClassifiedEvent<'_>) {
        let end = share.offset + share.len;
        if share.bytes == share.len {
            let rows = self.rows[first..].iter_mut();
            for row in rows.filter(|r| r.offset >= share.offset && r.offset + r.len <= end) {
                row.ino = Some(share.ino);
                row.file_block = share.file_block;
                row.known = Some(Known::Pointer);
            }
            return;
        }
        let Share { offset, ino, bytes, .. } = *share;
        self.shares.push(FileShare { request, offset, ino, bytes, path: None });
        self.lifetimes[1].push(NOBODY);
        self.name(Waits::Share(self.shares.len() as u32 - 1), event);
    }

    /// Lets a row or share with an inode wait for the last path of its file.
    fn name(&mut self, what: Waits, event: &ClassifiedEvent<'_>) {
        let ino = match what {
            Waits::Row(row) => self.rows[row as usize].ino.unwrap_or(0),
            Waits::Share(share) => self.shares[share as usize].ino,
        };
        let began = &mut self.began;
        let file = self.open.entry(ino).or_insert_with(|| {
            *began += 1;
            Open { life: *began - 1, ..Open::default() }
        });
        file.waiting.push(what);
        match what {
            Waits::Row(row) => self.lifetimes[0][row as usize] = file.life,
            Waits::Share(share) => self.lifetimes[1][share as usize] = file.life,
        }
        self.look_up(ino, event);
    }

    /// Notes the present path of an open file. If there is none, notes the inode whose name is
    /// missing.
    fn look_up(&mut self, ino: u64, event: &ClassifiedEvent<'_>) {
        let Some(file) = self.open.get_mut(&ino) else { return };
        if let Some(path) = event.path(ino) {
            // If pointers come late, a directory may name the next file in an inode before the
            // inode is written.
            if !event.pointers_come_late || file.path.is_none() {
                file.path = Some(path);
            }
        } else if let Some(missing) = event.missing(ino)
            && file.awaits.replace(missing) != Some(missing)
        {
            self.awaited.entry(missing).or_default().push(ino);
        }
    }

    /// Ends the life of an inode: all of its rows get the last path that is known.
    fn close(&mut self, ino: u64, path: Option<&Arc<str>>) {
        let Some(Open { waiting, path: last, life, told, .. }) = self.open.remove(&ino) else {
            return;
        };
        let path = path.or(last.as_ref());
        if let Some(carried) = &mut self.carried {
            carried.ended.push((life, ino, path.cloned(), told));
        }
        for what in waiting {
            match what {
                Waits::Row(row) => {
                    let row = &mut self.rows[row as usize];
                    // A later pointer may have given the block to another file.
                    if row.ino == Some(ino) {
                        row.path = path.cloned();
                    }
                }
                Waits::Share(share) => self.shares[share as usize].path = path.cloned(),
            }
        }
    }

    /// Notes that an inode has got a name: it, and files below it, may have a path now.
    fn named(&mut self, ino: u64, event: &ClassifiedEvent<'_>) {
        for waiting in self.awaited.remove(&ino).unwrap_or_default() {
            if let Some(file) = self.open.get_mut(&waiting) {
                file.awaits = None;
            }
            self.look_up(waiting, event);
        }
        self.look_up(ino, event);
    }

    /// Notes that a pointer shows the owner of blocks.
    fn settle(&mut self, claim: &Claim, event: &ClassifiedEvent<'_>) {
        let end = claim.block.saturating_add(claim.blocks);
        let mut rows: Vec<(u64, u32)> = Vec::new();
        if claim.blocks.saturating_mul(2) <= self.last.len() as u64 {
            for block in claim.block..end {
                let both = [key(block, false), key(block, true)];
                rows.extend(both.iter().filter_map(|key| Some((block, *self.last.get(key)?))));
            }
        } else {
            let inside =
                self.last.iter().filter(|(key, _)| (claim.block..end).contains(&(*key >> 1)));
            rows.extend(inside.map(|(key, row)| (key >> 1, *row)));
            rows.sort_unstable();
        }
        for (block, row) in rows {
            self.settle_one(claim, block, row, event);
        }
    }

    fn settle_one(&mut self, claim: &Claim, block: u64, last: u32, event: &ClassifiedEvent<'_>) {
        // If pointers come late, kept contents of a map may belong to another file.
        let is_doubtful = claim.is_old && event.pointers_come_late;
        let (mut row, mut known) = (last, if is_doubtful { Known::Guess } else { Known::Later });
        while row != NONE {
            let this = &mut self.rows[row as usize];
            let before = self.before[row as usize];
            if !carry::may_change(this, event.pointers_come_late) {
                break;
            }
            // Contents that cannot be of that kind, and a write that reaches beyond the claim, were
            // another file's.
            let looks = self.looks.get(&row).copied().unwrap_or(Looks::Unjudged);
            let end = claim.block.saturating_add(claim.blocks) << event.claim_shift;
            let reaches_beyond = this.home.is_none() && this.offset + this.len > end;
            if this.guess && (reaches_beyond || !looks.can_be(claim.class)) {
                break;
            }
            if this.guess && this.ino.is_none() {
                this.final_kind = claim.class;
            }
            if this.ino.is_none()
                && let Some((_, kind)) = &mut this.home
            {
                *kind = claim.class;
            }
            let Some(owner) = claim.owner else { break };
            match (this.ino, this.known) {
                (None, _) => {}
                // An earlier owner may have lost the block before this write.
                (Some(ino), Some(Known::Pointer))
                    if event.pointers_come_late && ino != owner.ino && this.home.is_none() =>
                {
                    known = Known::Guess;
                }
                _ => break,
            }
            let blocks = (block - claim.block) >> (event.block_shift - event.claim_shift);
            let within = if owner.packed { 0 } else { blocks };
            this.ino = Some(owner.ino);
            this.file_block = owner.first.map(|first| first.saturating_add(within));
            this.known = Some(known);
            this.path = None;
            self.name(Waits::Row(row), event);
            // The pointer may be in a block that was another file's until now.
            if event.pointers_come_late && !event.inodes.contains(&owner.ino) {
                self.unconfirmed.entry(owner.ino).or_default().push(row);
            }
            // Writes of the same block before the last one may have been another file's.
            (row, known) = (before, Known::Guess);
        }
    }
}

/// Replays a trace to a watcher, and returns the rows.
pub fn of_trace(trace: &Trace, watch: &Rc<Watch>) -> Vec<BlockRow> {
    with_shares(trace, watch).0
}

/// Replays a trace to a watcher, and returns the rows, and the shares of files in blocks that they
/// share.
pub fn with_shares(trace: &Trace, watch: &Rc<Watch>) -> (Vec<BlockRow>, Vec<FileShare>) {
    let rows = Rc::new(RefCell::new(Collector::default()));
    let number = Rc::new(Cell::new(0));
    let (into, request) = (rows.clone(), number.clone());
    watch.listen(move |event| into.borrow_mut().add_event(request.get(), event));
    watch.number_by(number.clone());
    ordo_trace::replay_numbered(trace, watch, &number);
    watch.listen(|_| {});
    rows.take().finish(watch)
}
