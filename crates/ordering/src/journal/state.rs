//! What a journal knows in memory: which records each block needs, what was freed, who is under way.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use ordo_block::{BlockError, Fault, Operation};
use ordo_cache::{BufKey, BufRef, Buffer, Verdict};
use ordo_log::Log;
use ordo_log::record::{self, Block, Entry};
use ordo_runtime::Runtime;
use ordo_runtime::sync::Notify;

use super::ops::{Number, Ops, Ticket};
use super::{JournalOptions, JournalRules};
use crate::{Deferred, OpKind};

/// Blocks in one record of those that are in their places.
const PLACED_MAX: usize = 256;

/// What a journal did since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Operations that changed something.
    pub operations: u64,
    /// Times a block had to wait for the log.
    pub write_ahead: u64,
    /// Times that somebody waited for an operation of another's, whose undoing would have undone his own.
    pub waits: u64,
    /// Checkpoints that were forced because space was short.
    pub forced_checkpoints: u64,
}

/// What the log has about a block that is not in its place.
pub(super) struct Track {
    pub buf: BufRef,
    /// The first record that a crash now would need.
    pub low: u64,
    /// The end of the last record.
    pub high: u64,
    /// Writes under way, or not known to be durable.
    images: Vec<Written>,
}

/// A write of a block, under way or not known to be durable.
struct Written {
    version: u64,
    /// Where the log ended then: what it had until then about the block is in the write.
    end: u64,
    /// Where the write went, and how long it is, in bytes: the block may have moved, or grown, since.
    at: u64,
    len: u64,
}

/// What an image of the file system's device is kept with in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Client {
    pub id: u64,
    pub stamp: i64,
    pub before: i64,
}

impl Client {
    pub fn encode(self) -> [u8; 64] {
        let mut out = [0; 64];
        out[..8].copy_from_slice(&self.id.to_le_bytes());
        out[8..16].copy_from_slice(&self.stamp.to_le_bytes());
        out[16..24].copy_from_slice(&self.before.to_le_bytes());
        out
    }

    pub fn decode(bytes: [u8; 64]) -> Client {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Client { id: word(0), stamp: word(8).cast_signed(), before: word(16).cast_signed() }
    }
}

pub(super) struct State {
    pub runtime: Runtime,
    pub log: Log,
    pub options: JournalOptions,
    pub tracks: RefCell<BTreeMap<BufKey, Track>>,
    /// Records that are needed though their block is gone: the first, and up to where the log must be
    /// quiet and durable for it to be certain.
    zombies: RefCell<Vec<(u64, u64)>>,
    /// Fragments that were freed: where the log ended then.
    freed: RefCell<BTreeMap<u64, u64>>,
    freed_order: RefCell<VecDeque<(u64, u64, u32)>>,
    /// Blocks of files that the log has records about: byte address; length, end of the last record.
    pub logged: RefCell<BTreeMap<u64, (u64, u64)>>,
    /// Blocks that are durable in their places, which the log does not say yet: by address; length, and the LSN before
    /// which all about them is there.
    pub placed: RefCell<BTreeMap<u64, (u64, u64)>>,
    /// Inodes without a name that are not freed yet, and where the log says so.
    pub orphans: RefCell<BTreeMap<u64, u64>>,
    pub client: Cell<Client>,
    pub fragment: Cell<u64>,
    /// Operations that are not certain.
    ops: RefCell<Ops>,
    /// Bytes of log that operations under way may need.
    reserved: Cell<u64>,
    /// Somebody waits for space.
    pub short: Cell<bool>,
    /// Where the log ended when all records before a place had become certain, and that place.
    certain: RefCell<VecDeque<(u64, u64)>>,
    /// Everything before it is certain, and durable with all that makes it so.
    pub safe: Cell<u64>,
    /// Something has become certain.
    pub settled: Notify,
    pub work: Rc<Notify>,
    pub idle: Cell<bool>,
    pub space: Notify,
    pub closed: Cell<bool>,
    pub recovered: RefCell<VecDeque<Deferred>>,
    pub ready: Rc<Notify>,
    pub failure: Cell<Option<BlockError>>,
    scratch: RefCell<Vec<u8>>,
    pub stats: Cell<JournalStats>,
}

/// What there is when the log has no room, which begins see to that it has.
const NO_ROOM: BlockError =
    BlockError { op: Operation::Write, offset: 0, len: 0, fault: Fault::Io(28) };

impl State {
    pub fn new(runtime: &Runtime, log: Log, options: JournalOptions) -> State {
        let end = log.end();
        State {
            runtime: runtime.clone(),
            log,
            options,
            tracks: RefCell::default(),
            zombies: RefCell::default(),
            freed: RefCell::default(),
            freed_order: RefCell::default(),
            logged: RefCell::default(),
            placed: RefCell::default(),
            orphans: RefCell::default(),
            client: Cell::default(),
            fragment: Cell::new(512),
            ops: RefCell::default(),
            reserved: Cell::new(0),
            short: Cell::new(false),
            certain: RefCell::default(),
            safe: Cell::new(end),
            settled: Notify::new("an operation that another hangs on", 0),
            work: Rc::new(Notify::new("something logged", 0)),
            idle: Cell::new(false),
            space: Notify::new("log space", 0),
            closed: Cell::new(false),
            recovered: RefCell::default(),
            ready: Rc::new(Notify::new("inodes to be freed after recovery", 0)),
            failure: Cell::new(None),
            scratch: RefCell::default(),
            stats: Cell::default(),
        }
    }

    /// Everything in the log was recovered, and is given up: it ends at a quiet place.
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

    fn append(&self, bytes: &[u8]) -> (u64, u64) {
        if self.idle.replace(false) {
            self.work.notify_one();
        }
        self.runtime.cpu().log_record(bytes.len());
        match self.log.append(bytes) {
            Some(at) => at,
            None => {
                // Nothing can be written any more: what is in memory is not in the log.
                self.failure.set(Some(NO_ROOM));
                self.settled.notify_all();
                (self.log.end(), self.log.end())
            }
        }
    }

    /// The number of an operation that is about to log something.
    pub fn enter(&self, ticket: &mut Ticket) -> Number {
        self.ops.borrow_mut().enter(ticket, self.log.end())
    }

    pub fn append_short(&self, number: Number, entry: &Entry<'_>) -> (u64, u64) {
        let mut out = self.scratch.take();
        record::short(entry, &mut out);
        record::set_owner(number, &mut out);
        let at = self.append(&out);
        self.scratch.replace(out);
        at
    }

    /// An inode without a name has been freed, or has a name again.
    pub fn keep(&self, number: Number, ino: u64) {
        if self.orphans.borrow_mut().remove(&ino).is_some() {
            self.append_short(number, &Entry::Kept(ino));
        }
    }

    /// Logs what changed in a block.
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
            self.track(buf, at);
        }
        self.scratch.replace(out);
    }

    /// Logs all of a part of a block.
    pub fn append_fresh(&self, op: Number, buf: &BufRef, range: Range<usize>) {
        let Some(address) = buf.address() else { return };
        let place = address + range.start as u64..address + range.end as u64;
        self.ops.borrow_mut().touch(op, place);
        let mut out = self.scratch.take();
        record::fresh(address, range.start, &buf.read()[range], &mut out);
        record::set_owner(op, &mut out);
        let at = self.append(&out);
        self.scratch.replace(out);
        self.track(buf, at);
    }

    fn track(&self, buf: &BufRef, (lsn, end): (u64, u64)) {
        let mut tracks = self.tracks.borrow_mut();
        let track = tracks.entry(buf.key()).or_insert_with(|| Track {
            buf: buf.clone(),
            low: lsn,
            high: end,
            images: Vec::new(),
        });
        debug_assert!(Rc::ptr_eq(&track.buf, buf), "one buffer for each key");
        track.high = end;
        drop(tracks);
        if buf.key().file != 0
            && let Some(address) = buf.address()
        {
            let len = buf.len() as u64;
            let mut logged = self.logged.borrow_mut();
            let known = logged.entry(address).or_insert((len, end));
            *known = (known.0.max(len), end);
        }
    }

    /// The block has moved: what the log has about its old place is needed until that is certain.
    pub fn moved(&self, buf: &Buffer) {
        if let Some(track) = self.tracks.borrow().get(&buf.key()) {
            self.zombies.borrow_mut().push((track.low, self.log.end() + 1));
        }
    }

    /// Fragments have been freed.
    pub fn freed(&self, op: Number, address: u64, frags: u32) {
        let size = self.fragment.get();
        let (at, len) = (address * size, u64::from(frags) * size);
        self.ops.borrow_mut().touch(op, at..at + len);
        let mut logged = self.logged.borrow_mut();
        let hit: Vec<u64> = logged
            .range(at.saturating_sub(1 << 16)..at + len)
            .filter(|(start, known)| **start + known.0 > at)
            .map(|(start, _)| *start)
            .collect();
        for start in &hit {
            if *start >= at {
                logged.remove(start);
            }
        }
        drop(logged);
        if !hit.is_empty() {
            self.append_short(op, &Entry::Revoke { at, len });
        }
        let end = self.log.end();
        let mut freed = self.freed.borrow_mut();
        for frag in address..address + u64::from(frags) {
            freed.insert(frag, end);
        }
        self.freed_order.borrow_mut().push_back((end, address, frags));
    }

    // Blocks on their way to the disk.

    pub fn before_write(&self, block: &Buffer) -> Verdict {
        if self.failure.get().is_some() {
            return Verdict::WaitFor(u64::MAX);
        }
        let mut tracks = self.tracks.borrow_mut();
        let Some(track) = tracks.get_mut(&block.key()) else { return Verdict::Write };
        if track.high > self.log.durable() && self.is_on(JournalRules::WRITE_AHEAD) {
            self.count(|stats| stats.write_ahead += 1);
            return Verdict::WaitFor(track.high);
        }
        let Some(at) = block.address() else { return Verdict::Write };
        let (version, len) = (block.version(), block.len() as u64);
        let now = Written { version, end: self.log.end(), at, len };
        match track.images.last_mut() {
            Some(last) if last.version == version => (last.at, last.len) = (at, len),
            _ => track.images.push(now),
        }
        Verdict::Write
    }

    pub fn written(&self, block: &Buffer, version: u64) {
        let mut tracks = self.tracks.borrow_mut();
        let Some(track) = tracks.get_mut(&block.key()) else { return };
        if !std::ptr::eq(&raw const *track.buf, block) {
            return;
        }
        let image = track.images.iter().find(|image| image.version == version);
        if let Some(Written { end, at, len, .. }) = image {
            self.placed.borrow_mut().insert(*at, (*len, *end));
            // Whatever was logged since the image was taken is not in it.
            track.low = track.low.max(*end);
        }
        if block.version() == version {
            tracks.remove(&block.key());
            return;
        }
        track.images.retain(|image| image.version > version);
    }

    /// Logs which blocks have come to be durable in their places, as far as the log has records about them, and there is
    /// much room: a recovery leaves them alone.
    pub fn append_placed(&self) {
        let placed = self.placed.take().into_iter();
        if self.closed.get() {
            return;
        }
        let (mut out, start) = (self.scratch.take(), self.log.start());
        let mut blocks: Vec<Block> = Vec::new();
        for (at, (len, lsn)) in placed.filter(|(_, (_, lsn))| *lsn > start) {
            // Addresses may overlap where a block was given away meanwhile: the later one is left out.
            if blocks.last().is_none_or(|last| last.at + last.len <= at) {
                blocks.push(Block { at, len, lsn });
            }
        }
        for some in blocks.chunks(PLACED_MAX) {
            record::placed(some, &mut out);
            if self.log.room() < self.log.capacity() / 2 {
                break;
            }
            self.append(&out);
        }
        self.scratch.replace(out);
    }

    pub fn forget(&self, block: &Buffer) {
        let mut tracks = self.tracks.borrow_mut();
        let ours = |track: &Track| std::ptr::eq(&raw const *track.buf, block);
        if tracks.get(&block.key()).is_some_and(ours)
            && let Some(track) = tracks.remove(&block.key())
        {
            // The operation that gives the block up may yet be undone.
            self.zombies.borrow_mut().push((track.low, self.log.end() + 1));
        }
    }

    pub fn is_held(&self, block: &Buffer) -> bool {
        let freed = self.freed.borrow();
        if freed.is_empty() || !self.is_on(JournalRules::HOLD) {
            return false;
        }
        let Some(address) = block.address() else { return false };
        let size = self.fragment.get();
        let frags = address / size..(address + block.len() as u64).div_ceil(size);
        freed.range(frags).next().is_some()
    }

    // Operations.

    /// What an operation of this kind may log at most, in bytes: as many blocks as one may take or give back
    /// ([`blocks_max`](crate::OrderingPolicy::blocks_max)), and two blocks that are new and full: of those of names, inodes
    /// and pointers that an operation may need, most are nearly all zeros, which are not logged.
    fn most(&self, kind: OpKind) -> u64 {
        let blocks = match kind {
            OpKind::Write | OpKind::Truncate | OpKind::Free => self.log.capacity() / 16,
            _ => 4096,
        };
        let new = 2 * 8 * self.fragment.get();
        (blocks + new).min(self.log.capacity() / 4)
    }

    /// Waits until there is space for all that an operation may log, beside what those under way may. How much that is.
    pub async fn begin(&self, kind: OpKind) -> Result<(Ticket, u64), BlockError> {
        let most = self.most(kind);
        loop {
            self.check()?;
            // What gives space back must not wait for those who wait for space.
            let spare = self.log.capacity() / 8;
            let is_room = self.log.room() >= self.reserved.get() + most + spare;
            if kind == OpKind::Housekeeping || is_room {
                break;
            }
            self.short.set(true);
            self.idle.set(false);
            self.work.notify_one();
            self.space.notified().await;
        }
        self.reserved.set(self.reserved.get() + most);
        Ok((self.ops.borrow().begin(), most))
    }

    /// An operation has ended, which had so much reserved; the place in the log behind it.
    pub fn end(&self, kind: OpKind, ticket: &mut Ticket, reserved: u64, wrote: bool) -> u64 {
        self.reserved.set(self.reserved.get() - reserved);
        if self.short.get() {
            self.space.notify_all();
        }
        if wrote {
            let number = self.enter(ticket);
            let mut ops = self.ops.borrow_mut();
            let (quiet, needs) = (ops.is_last(number), ops.needs(number));
            let mut out = self.scratch.take();
            record::end(quiet, kind as u8, if quiet { &[] } else { &needs }, &mut out);
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

    /// Logs facts that belong to no operation, as one that ends at once.
    pub fn append_aside(&self, entries: impl IntoIterator<Item = Entry<'static>>) -> Vec<u64> {
        let mut ticket = self.ops.borrow().begin();
        let number = self.enter(&mut ticket);
        let places = entries.into_iter().map(|entry| self.append_short(number, &entry).0).collect();
        self.end(OpKind::Housekeeping, &mut ticket, 0, true);
        places
    }

    /// Where nobody is under way, but something waits for a place behind the last end: such a place.
    pub fn end_behind(&self) {
        if self.ops.borrow().horizon().is_none() && !self.zombies.borrow().is_empty() {
            self.append_aside([]);
        }
    }

    /// Waits until these are certain.
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

    /// Waits until an operation that has ended, with its end before `behind`, is certain and durable.
    pub async fn commit(&self, ticket: Ticket, behind: u64) -> Result<(), BlockError> {
        if self.ops.borrow().is_certain(&ticket) {
            return self.force(behind).await;
        }
        self.settle(vec![ticket]).await?;
        self.force(self.log.end()).await
    }

    /// Waits until everything that has ended is certain and durable.
    pub async fn commit_all(&self) -> Result<(), BlockError> {
        let tickets = self.ops.borrow().uncertain(false);
        self.settle(tickets).await?;
        self.force(self.log.end()).await
    }

    /// Waits until everything that has been logged is certain and durable, that of operations under way, too.
    pub async fn commit_more(&self) -> Result<(), BlockError> {
        let tickets = self.ops.borrow().uncertain(true);
        self.settle(tickets).await?;
        self.force(self.log.end()).await
    }

    /// Makes the log durable up to `lsn`, complete there or not.
    pub async fn force(&self, lsn: u64) -> Result<(), BlockError> {
        self.check()?;
        let forced = self.log.force(lsn.min(self.log.end())).await;
        if let Err(error) = forced {
            self.failure.set(Some(error));
            self.settled.notify_all();
            self.space.notify_all();
        }
        self.forced();
        forced
    }

    /// The log may be durable further than it was: what was waiting for that is certain now.
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
                // Freed again meanwhile: that is not certain yet.
                if freed.get(&frag) == Some(&end) {
                    freed.remove(&frag);
                }
            }
        }
        self.zombies.borrow_mut().retain(|(_, until)| *until > safe);
    }

    /// The oldest record that a crash now would need.
    pub fn oldest(&self) -> u64 {
        if !self.is_on(JournalRules::KEEP) {
            return self.safe.get();
        }
        let low = self.tracks.borrow().values().map(|track| track.low).min();
        let zombie = self.zombies.borrow().iter().map(|(low, _)| *low).min();
        let orphan = self.orphans.borrow().values().copied().min();
        [low, zombie, orphan].into_iter().flatten().fold(self.safe.get(), u64::min)
    }
}
