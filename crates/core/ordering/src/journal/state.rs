//! The journal's state in memory: the records that each block needs, the freed blocks, the
//! operations under way.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use ordo_block::BlockError;
use ordo_cache::{BufKey, BufRef, Buffer, BufferClass};
use ordo_runtime::Runtime;
use ordo_runtime::sync::{Mutex, Notify};
use ordo_wafs::{DeviceFlush, LogError, Wafs};

use super::commit::Bases;
use super::moves::{Due, Moved, Moves};
use super::ops::{Number, Ops, Ticket};
use super::record::{self, BlockRecord, LogEntry};
use super::{BLOCK_MAX, JournalOptions, JournalRules};
use crate::{DeferredFree, OpKind};

/// Counters of a journal since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// The number of operations that changed something.
    pub operations: u64,
    /// Times a block had to wait for the log.
    pub write_ahead: u64,
    /// Times that an operation waited for another one whose rollback would have rolled it back too.
    pub waits: u64,
    /// Checkpoints that were forced because space was short.
    pub forced_checkpoints: u64,
}

/// The log's records about a block that is not in its place yet.
pub(super) struct DirtyPage {
    pub buf: BufRef,
    /// The first record that a crash now would need.
    pub low: u64,
    /// The end of the last record.
    pub high: u64,
    /// Writes that are under way, or not known to be durable.
    pub images: Vec<Written>,
    /// The address that the last record names.
    pub address: Option<u64>,
    /// The version that the log has whole, or by differences.
    pub logged: Option<u64>,
}

/// A write of a block that is under way, or not known to be durable.
pub(super) struct Written {
    pub version: u64,
    /// The log's end when the write was made. The write contains every record about the block
    /// before it.
    pub end: u64,
    /// The address and the length of the write, in bytes. The block may have moved or grown since.
    pub at: u64,
    pub len: u64,
}

/// The *log owner*: the file system whose log this is, as the journal keeps it in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogOwner {
    pub id: u64,
    pub stamp: i64,
    pub before: i64,
}

impl LogOwner {
    pub fn encode(self) -> [u8; 64] {
        let mut out = [0; 64];
        out[..8].copy_from_slice(&self.id.to_le_bytes());
        out[8..16].copy_from_slice(&self.stamp.to_le_bytes());
        out[16..24].copy_from_slice(&self.before.to_le_bytes());
        out
    }

    pub fn decode(bytes: [u8; 64]) -> LogOwner {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        LogOwner { id: word(0), stamp: word(8).cast_signed(), before: word(16).cast_signed() }
    }
}

pub(super) struct State {
    pub runtime: Runtime,
    pub log: Wafs,
    pub options: JournalOptions,
    pub dirty_pages: RefCell<BTreeMap<BufKey, DirtyPage>>,
    /// Records that are still needed although their block is gone. Each pair has the first such
    /// record, and the LSN up to which the log must be certain and durable before the block's end
    /// is certain.
    pub pinned_ranges: RefCell<Vec<(u64, u64)>>,
    /// Freed fragments, each with the log's end when it was freed.
    pub freed: RefCell<BTreeMap<u64, u64>>,
    freed_order: RefCell<VecDeque<(u64, u64, u32)>>,
    /// Blocks of files with records in the log: by byte address, the length and the end of the last
    /// record.
    pub logged: RefCell<BTreeMap<u64, (u64, u64)>>,
    /// Blocks that are durable in their places, but not recorded in the log as such: by address,
    /// the length, and the LSN before which all records about the block are on the device.
    pub placed: RefCell<BTreeMap<u64, (u64, u64)>>,
    /// The same for contents of files, where the journal follows these: a recovery would write
    /// older contents, or zeros, over blocks that are not recorded.
    pub written_contents: RefCell<BTreeMap<u64, (u64, u64)>>,
    /// Blocks of metadata that have changed since the last commit, where commits log whole blocks.
    pub changed: RefCell<BTreeMap<BufKey, BufRef>>,
    /// The versions of blocks that the log has.
    pub bases: RefCell<Bases>,
    /// The commit that goes on, in a tangled journal.
    pub compound: Mutex<()>,
    /// The number of commits by callers of a tangled journal that have begun.
    pub begun: Cell<u64>,
    /// Whether the last of them left out contents that were held back.
    pub left_out: Cell<bool>,
    /// Inodes without a name that are not freed yet, each with the LSN of the record about it.
    pub orphans: RefCell<BTreeMap<u64, u64>>,
    pub owner: Cell<LogOwner>,
    pub fragment: Cell<u64>,
    /// Bytes in a block.
    pub block: Cell<u64>,
    /// Operations that are not certain.
    ops: RefCell<Ops>,
    /// Bytes of log that operations under way may need.
    reserved: Cell<u64>,
    /// Whether an operation waits for space.
    pub short: Cell<bool>,
    /// Pairs of LSNs: when the log is durable up to the first, all records before the second are
    /// certain.
    certain: RefCell<VecDeque<(u64, u64)>>,
    /// The LSN before which every record is certain and durable, with all records on which it
    /// depends.
    pub safe: Cell<u64>,
    /// Signals that an operation has become certain.
    pub settled: Notify,
    pub work: Rc<Notify>,
    pub idle: Cell<bool>,
    pub space: Notify,
    pub closed: Cell<bool>,
    /// File contents that have moved.
    pub moves: RefCell<Moves>,
    /// The end of the last record that says that moved contents are in their new place.
    pub landed: Cell<u64>,
    /// Frees that are due.
    pub due: RefCell<VecDeque<DeferredFree>>,
    pub ready: Rc<Notify>,
    /// The number of frees that the core has done, and the signal that it has done one.
    pub taken: Cell<u64>,
    pub was_taken: Notify,
    pub failure: Cell<Option<BlockError>>,
    pub scratch: RefCell<Vec<u8>>,
    pub stats: Cell<JournalStats>,
}

/// The most bytes that an operation logs besides full blocks: changed bytes, bitmaps, blocks that
/// are nearly all zeros.
const NEARLY_ZERO: u64 = 8 << 10;

/// The capacity from which on a log has space for every operation on blocks of this size, in bytes.
pub(super) fn least_capacity(block: u64) -> u64 {
    // An eighth of the log is spare, and one operation's allocations may take a sixteenth.
    (2 * block + NEARLY_ZERO) * 16 / 13
}

impl State {
    pub fn new(runtime: &Runtime, log: Wafs, options: JournalOptions) -> State {
        let end = log.end();
        State {
            runtime: runtime.clone(),
            log,
            options,
            dirty_pages: RefCell::default(),
            pinned_ranges: RefCell::default(),
            freed: RefCell::default(),
            freed_order: RefCell::default(),
            logged: RefCell::default(),
            placed: RefCell::default(),
            written_contents: RefCell::default(),
            changed: RefCell::default(),
            bases: RefCell::default(),
            compound: Mutex::new((), "a commit", 0),
            begun: Cell::new(0),
            left_out: Cell::new(false),
            orphans: RefCell::default(),
            owner: Cell::default(),
            fragment: Cell::new(512),
            block: Cell::new(4096),
            ops: RefCell::default(),
            reserved: Cell::new(0),
            short: Cell::new(false),
            certain: RefCell::default(),
            safe: Cell::new(end),
            settled: Notify::new("the end of an operation on which another depends", 0),
            work: Rc::new(Notify::new("something logged", 0)),
            idle: Cell::new(false),
            space: Notify::new("log space", 0),
            closed: Cell::new(false),
            moves: RefCell::default(),
            landed: Cell::new(0),
            due: RefCell::default(),
            ready: Rc::new(Notify::new("frees that are due", 0)),
            taken: Cell::new(0),
            was_taken: Notify::new("a free that was due", 0),
            failure: Cell::new(None),
            scratch: RefCell::default(),
            stats: Cell::default(),
        }
    }

    /// Empties the log after a recovery. It ends at a quiescent point.
    pub fn start_over(&self) {
        self.certain.borrow_mut().clear();
        self.safe.set(self.log.end());
    }

    pub fn is_on(&self, rule: JournalRules) -> bool {
        self.options.rules.contains(rule)
    }

    pub fn count(&self, change: impl FnOnce(&mut JournalStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    pub fn check(&self) -> Result<(), BlockError> {
        self.failure.get().map_or(Ok(()), Err)
    }

    // Appending.

    pub fn append(&self, bytes: &[u8]) -> (u64, u64) {
        if self.idle.replace(false) {
            self.work.notify_one();
        }
        self.runtime.cpu().log_record(bytes.len());
        match self.log.append(bytes) {
            Ok(at) => (at.lsn, at.end),
            Err(error) => {
                // No block can be written any more, because the log lacks changes that memory has.
                // State::begin reserves space, so that the log is never full here.
                self.failure.set(Some(error.into()));
                self.settled.notify_all();
                (self.log.end(), self.log.end())
            }
        }
    }

    /// Appends the record that `fill` makes.
    pub fn append_with(&self, fill: impl FnOnce(&mut Vec<u8>)) -> (u64, u64) {
        let mut out = self.scratch.take();
        out.clear();
        fill(&mut out);
        let at = self.append(&out);
        self.scratch.replace(out);
        at
    }

    /// Gives an operation that will log something its number.
    pub fn enter(&self, ticket: &mut Ticket) -> Number {
        self.ops.borrow_mut().enter(ticket, self.log.end())
    }

    pub fn append_short(&self, number: Number, entry: &LogEntry<'_>) -> (u64, u64) {
        let mut out = self.scratch.take();
        record::short(entry, &mut out);
        record::set_owner(number, &mut out);
        let at = self.append(&out);
        self.scratch.replace(out);
        at
    }

    /// Notes that an inode without a name has been freed, or has got a name again.
    pub fn keep(&self, number: Number, ino: u64) {
        let Some(orphaned) = self.orphans.borrow_mut().remove(&ino) else { return };
        self.append_short(number, &LogEntry::Kept(ino));
        // If this operation is lost in a crash, recovery needs the record of the orphan.
        self.pinned_ranges.borrow_mut().push((orphaned, self.log.end() + 1));
    }

    /// Logs the bytes of a block that changed.
    pub fn append_patch(&self, op: Number, buf: &BufRef, ranges: &[Range<usize>], old: &[u8]) {
        let Some(address) = buf.address() else { return };
        let mut out = self.scratch.take();
        if record::patch(address, &buf.read(), ranges, old, &mut out) {
            let mut ops = self.ops.borrow_mut();
            for range in ranges {
                ops.touch(op, address + range.start as u64..address + range.end as u64);
            }
            drop(ops);
            record::set_owner(op, &mut out);
            let at = self.append(&out);
            self.page(buf, at);
        }
        self.scratch.replace(out);
    }

    /// Notes that an operation changes bytes of the device.
    pub fn touch(&self, op: Number, range: Range<u64>) {
        self.ops.borrow_mut().touch(op, range);
    }

    /// Makes an operation depend on every one that is not certain.
    pub fn need_all(&self, op: Number) {
        self.ops.borrow_mut().need_all(op);
    }

    /// Logs that bytes of a new block of a file are zeros. Recovery redoes that, until the log says
    /// that the block has been written.
    pub fn append_zeros(&self, op: Number, buf: &BufRef, range: Range<u64>) {
        if range.is_empty() || !self.is_on(JournalRules::ZEROS) {
            return;
        }
        self.touch(op, range.clone());
        self.bases.borrow_mut().void(range.clone());
        let (len, at) = ((range.end - range.start) as usize, range.start);
        let lsn = self.append_with(|out| {
            record::zeros(at, len, out);
            record::set_owner(op, out);
        });
        self.page(buf, lsn);
    }

    /// Notes that the log has this version of a block.
    pub fn note_logged(&self, buf: &BufRef) {
        if let Some(page) = self.dirty_pages.borrow_mut().get_mut(&buf.key()) {
            page.logged = Some(buf.version());
            // A crash can lose contents for which a caller has waited.
            buf.set_stored();
        }
    }

    /// Whether the log has the block as it is, at its place.
    pub fn is_logged(&self, buf: &BufRef) -> bool {
        let dirty_pages = self.dirty_pages.borrow();
        let page = dirty_pages.get(&buf.key());
        page.is_some_and(|p| p.logged == Some(buf.version()) && p.address == buf.address())
    }

    /// Logs all bytes of a part of a block.
    pub fn append_fresh(&self, op: Number, buf: &BufRef, range: Range<usize>) {
        let Some(address) = buf.address() else { return };
        let place = address + range.start as u64..address + range.end as u64;
        self.bases.borrow_mut().void(place.clone());
        self.ops.borrow_mut().touch(op, place);
        let mut out = self.scratch.take();
        record::fresh(address, range.start, &buf.read()[range], &mut out);
        record::set_owner(op, &mut out);
        let at = self.append(&out);
        self.scratch.replace(out);
        self.page(buf, at);
    }

    pub fn page(&self, buf: &BufRef, (lsn, end): (u64, u64)) {
        if self.options.mode.logs_images() && buf.class() != BufferClass::Data {
            self.changed.borrow_mut().insert(buf.key(), buf.clone());
        }
        let mut dirty_pages = self.dirty_pages.borrow_mut();
        let page = dirty_pages.entry(buf.key()).or_insert_with(|| DirtyPage {
            buf: buf.clone(),
            low: lsn,
            high: end,
            images: Vec::new(),
            address: None,
            logged: None,
        });
        debug_assert!(Rc::ptr_eq(&page.buf, buf), "one buffer for each key");
        page.high = end;
        page.address = buf.address();
        drop(dirty_pages);
        if buf.key().file != 0
            && let Some(address) = buf.address()
        {
            let len = buf.len() as u64;
            let mut logged = self.logged.borrow_mut();
            let known = logged.entry(address).or_insert((len, end));
            *known = (known.0.max(len), end);
        }
    }

    /// Notes that a block has moved. The records about its old place are needed until the move is
    /// certain.
    pub fn moved(&self, buf: &Buffer) {
        if let Some(page) = self.dirty_pages.borrow().get(&buf.key()) {
            self.pinned_ranges.borrow_mut().push((page.low, self.log.end() + 1));
        }
    }

    // File contents that move.

    /// Notes that an operation has moved file contents from fragments to a new place. Returns the
    /// first place of contents that recovery would have to copy from there.
    pub fn move_contents(
        &self,
        number: Number,
        (address, frags): (u64, u32),
        to: u64,
        buf: &BufRef,
    ) -> Option<u64> {
        let size = self.fragment.get();
        let (at, len) = (address * size, u64::from(frags) * size);
        let mut moves = self.moves.borrow_mut();
        if !self.is_on(JournalRules::LAND) || !moves.matters(at, buf) {
            return None;
        }
        let moved = moves.note((at, frags), to * size, len, (buf, self.log.end()));
        drop(moves);
        self.append_short(number, &LogEntry::Moved(moved));
        Some(moved.from)
    }

    /// Notes that a write of a block is durable. If the block's contents had moved, they have
    /// landed.
    pub fn land(&self, block: &Buffer, version: u64) {
        let Some((moved, due)) = self.moves.borrow_mut().written(block, version) else { return };
        if !self.closed.get() && self.failure.get().is_none() {
            let mut out = self.scratch.take();
            let Moved { to: at, len, .. } = moved;
            record::placed(&[BlockRecord { at, len, lsn: self.log.end() }], &mut out);
            self.landed.set(self.append(&out).1);
            self.scratch.replace(out);
        }
        self.give(due);
    }

    /// Notes the end of an operation that had moved contents from a place, or had dropped the move.
    pub fn move_ended(&self, from: u64) {
        let due = self.moves.borrow_mut().ended(from);
        self.give(due);
    }

    fn give(&self, due: Option<Due>) {
        let Some((from, frags)) = due else { return };
        let address = from / self.fragment.get();
        self.due.borrow_mut().push_back(DeferredFree::FreeBlock { address, frags });
        self.ready.notify_one();
    }

    /// The number of moves that may wait for their writes: their records must fit in the spare part
    /// of the log.
    fn moves_max(&self) -> usize {
        (self.log.capacity() / 256) as usize
    }

    /// Whether so many moves wait for their writes that these should be made now.
    pub fn has_many_moves(&self) -> bool {
        self.moves.borrow().pending() >= self.moves_max() / 2
    }

    /// Notes that fragments have been freed. Returns the first places of contents that had moved
    /// there, and that recovery need not copy any more.
    pub fn freed(&self, op: Number, address: u64, frags: u32) -> Vec<u64> {
        let size = self.fragment.get();
        let (at, len) = (address * size, u64::from(frags) * size);
        self.ops.borrow_mut().touch(op, at..at + len);
        let mut moves = self.moves.borrow_mut();
        let (dropped, has_moved) = moves.freed(at, len);
        let gone = moves.gone(at);
        drop(moves);
        let mut logged = self.logged.borrow_mut();
        self.bases.borrow_mut().void(at..at + len);
        let is_gone = |buf: &BufRef| buf.address().is_some_and(|a| (at..at + len).contains(&a));
        self.changed.borrow_mut().retain(|_, buf| !is_gone(buf));
        let hit: Vec<u64> = logged
            .range(at.saturating_sub(BLOCK_MAX)..at + len)
            .filter(|(start, known)| **start + known.0 > at)
            .map(|(start, _)| *start)
            .collect();
        for start in &hit {
            if *start >= at {
                logged.remove(start);
            }
        }
        drop(logged);
        if !hit.is_empty() || has_moved || gone.is_some() {
            self.append_short(op, &LogEntry::Revoke { at, len });
        }
        if let Some(lsn) = gone {
            // If this operation is lost in a crash, recovery needs the record of the move.
            self.pinned_ranges.borrow_mut().push((lsn, self.log.end() + 1));
        }
        let end = self.log.end();
        let mut freed = self.freed.borrow_mut();
        for frag in address..address + u64::from(frags) {
            freed.insert(frag, end);
        }
        self.freed_order.borrow_mut().push_back((end, address, frags));
        dropped
    }

    // Operations.

    /// The most bytes that an operation of this kind may log. The bound counts the blocks that one
    /// operation may allocate or free ([`blocks_max`](crate::OrderingPolicy::blocks_max)), and new
    /// blocks that are full: the moved end of a directory, two blocks of attributes. Other new
    /// blocks (of inodes, pointers, a short directory) are nearly all zeros, and zeros are not
    /// logged. In a log that is smaller than [`least_capacity`] an operation reserves a quarter at
    /// most, so the log may become full.
    fn most(&self, kind: OpKind) -> u64 {
        let (capacity, block) = (self.log.capacity(), self.block.get());
        if capacity < least_capacity(block) {
            return (4096 + 2 * block).min(capacity / 4);
        }
        match kind {
            OpKind::Write | OpKind::Truncate | OpKind::Free => capacity / 16 + block + NEARLY_ZERO,
            OpKind::Attributes => 2 * block + NEARLY_ZERO,
            _ => block + NEARLY_ZERO,
        }
    }

    /// Waits until the log has space for this operation beside all that are under way. Returns the
    /// operation's ticket and the bytes reserved for it.
    pub async fn begin(&self, kind: OpKind) -> Result<(Ticket, u64), BlockError> {
        loop {
            if let Some(begun) = self.try_begin(kind)? {
                return Ok(begun);
            }
            self.short.set(true);
            self.idle.set(false);
            self.work.notify_one();
            self.space.notified().await;
        }
    }

    /// Begins an operation as [`begin`](Self::begin) does; `None` if the log lacks space for it
    /// now.
    pub fn try_begin(&self, kind: OpKind) -> Result<Option<(Ticket, u64)>, BlockError> {
        self.check()?;
        let most = self.most(kind);
        // A free must not wait for operations that wait for space.
        let spare = self.log.capacity() / 8;
        let has_space = self.log.free_space() >= self.reserved.get() + most + spare
            && self.moves.borrow().pending() < self.moves_max();
        if kind != OpKind::Housekeeping && !has_space {
            return Ok(None);
        }
        self.reserved.set(self.reserved.get() + most);
        Ok(Some((self.ops.borrow().begin(), most)))
    }

    /// Ends an operation, which had `reserved` bytes of log. Returns the LSN behind its last
    /// record.
    pub fn end(&self, kind: OpKind, ticket: &mut Ticket, reserved: u64, wrote: bool) -> u64 {
        self.reserved.set(self.reserved.get() - reserved);
        if self.short.get() {
            self.space.notify_all();
        }
        if wrote {
            let number = self.enter(ticket);
            let mut ops = self.ops.borrow_mut();
            let (quiescent, needs) = (ops.is_last(number), ops.needs(number));
            let mut out = self.scratch.take();
            record::end(quiescent, kind as u8, if quiescent { &[] } else { &needs }, &mut out);
            record::set_owner(number, &mut out);
            drop(ops);
            self.append(&out);
            self.scratch.replace(out);
            ops = self.ops.borrow_mut();
            let any = ops.end(number);
            let horizon = ops.horizon();
            drop(ops);
            self.count(|stats| stats.operations += 1);
            let end = self.log.end();
            self.certain.borrow_mut().push_back((end, horizon.unwrap_or(end)));
            if any {
                self.settled.notify_all();
            }
        }
        self.log.end()
    }

    /// Logs facts that belong to no operation, as an operation that ends at once. Returns the
    /// records' LSNs.
    pub fn append_aside(&self, entries: impl IntoIterator<Item = LogEntry<'static>>) -> Vec<u64> {
        let mut ticket = self.ops.borrow().begin();
        let number = self.enter(&mut ticket);
        let places = entries.into_iter().map(|entry| self.append_short(number, &entry).0).collect();
        self.end(OpKind::Housekeeping, &mut ticket, 0, true);
        places
    }

    /// Makes a quiescent point behind the last end, where no operation is under way but a freed
    /// block waits for such a point.
    pub fn end_behind(&self) {
        if self.ops.borrow().horizon().is_none() && !self.pinned_ranges.borrow().is_empty() {
            self.append_aside([]);
        }
    }

    /// Waits until these operations are certain.
    async fn settle(&self, mut tickets: Vec<Ticket>) -> Result<(), BlockError> {
        let mut has_waited = false;
        loop {
            self.check()?;
            {
                let ops = self.ops.borrow();
                tickets.retain(|ticket| !ops.is_certain(ticket));
            }
            if tickets.is_empty() {
                return Ok(());
            }
            if !std::mem::replace(&mut has_waited, true) {
                self.count(|stats| stats.waits += 1);
            }
            self.settled.notified().await;
        }
    }

    /// Waits until an ended operation, whose end lies before `behind`, is certain and durable.
    pub async fn commit(&self, ticket: Ticket, behind: u64) -> Result<(), BlockError> {
        if self.ops.borrow().is_certain(&ticket) {
            return self.force(behind).await;
        }
        self.settle(vec![ticket]).await?;
        self.force(self.log.end()).await
    }

    /// Waits until all operations that have ended are certain and durable.
    pub async fn commit_all(&self) -> Result<(), BlockError> {
        let tickets = self.ops.borrow().uncertain(false);
        self.settle(tickets).await?;
        self.force(self.log.end()).await
    }

    /// Does the same for a caller that has written blocks to the log's device: `flush` makes both
    /// durable. It is not called if the log is durable already.
    pub async fn commit_all_with(&self, flush: DeviceFlush<'_>) -> Result<(), BlockError> {
        let tickets = self.ops.borrow().uncertain(false);
        self.settle(tickets).await?;
        self.check()?;
        let forced = self.log.force_with(self.log.end(), flush).await;
        self.note_forced(forced)
    }

    /// Waits until everything in the log is certain and durable, the records of operations under
    /// way included.
    pub async fn commit_more(&self) -> Result<(), BlockError> {
        let tickets = self.ops.borrow().uncertain(true);
        self.settle(tickets).await?;
        self.force(self.log.end()).await
    }

    /// Makes the log durable up to `lsn`, whether the operations there are complete or not.
    pub async fn force(&self, lsn: u64) -> Result<(), BlockError> {
        self.check()?;
        let forced = self.log.force(lsn.min(self.log.end())).await;
        self.note_forced(forced)
    }

    fn note_forced(&self, forced: Result<(), LogError>) -> Result<(), BlockError> {
        let forced = forced.map_err(BlockError::from);
        if let Err(error) = forced {
            self.failure.set(Some(error));
            self.settled.notify_all();
            self.space.notify_all();
        }
        self.forced();
        forced
    }

    /// Notes that more of the log may be durable, and so more of it certain.
    pub fn forced(&self) {
        let durable = self.log.durable();
        let mut certain = self.certain.borrow_mut();
        while let Some((_, place)) = certain.front().copied().filter(|(end, _)| *end <= durable) {
            certain.pop_front();
            self.safe.set(self.safe.get().max(place));
        }
        drop(certain);
        let safe = self.safe.get();
        let (mut order, mut freed) = (self.freed_order.borrow_mut(), self.freed.borrow_mut());
        while let Some((end, address, frags)) = order.front().copied().filter(|f| f.0 <= safe) {
            order.pop_front();
            for frag in address..address + u64::from(frags) {
                // A fragment that was freed again meanwhile has a later end, which is not certain
                // yet.
                if freed.get(&frag) == Some(&end) {
                    freed.remove(&frag);
                }
            }
        }
        self.pinned_ranges.borrow_mut().retain(|(_, until)| *until > safe);
    }

    /// The first record that a recovery would need if the crash came now.
    pub fn oldest(&self) -> u64 {
        if !self.is_on(JournalRules::KEEP) {
            return self.safe.get();
        }
        let low = self.dirty_pages.borrow().values().map(|page| page.low).min();
        let pinned = self.pinned_ranges.borrow().iter().map(|(low, _)| *low).min();
        let orphan = self.orphans.borrow().values().copied().min();
        let moved = self.moves.borrow().oldest();
        [low, pinned, orphan, moved].into_iter().flatten().fold(self.safe.get(), u64::min)
    }
}
