//! The journal as an ordering: the log records of each change.

use std::rc::Rc;

use ordo_block::{BlockError, Device};
use ordo_cache::{BufKey, BufRef, BufferClass, Cache};
use ordo_runtime::MaybeFuture;
use ordo_runtime::sync::Notify;

use super::ops::Ticket;
use super::record::LogEntry;
use super::state::{State, least_capacity};
use super::{JournalOrder, JournalRules, LogContents, checkpointer, commit, replay};
use crate::{
    Begun, BlockFuture, Change, DeferredFree, Image, OpKind, OrderingOp, OrderingPolicy, PointerTo,
    RecoverError, Recovery, SyncedInode, What,
};

/// The most bytes of records about a block that is allocated or freed: pointer, bitmap, revocation.
const BLOCK_RECORDS: u64 = 256;

/// An operation under way. If it is dropped without an end, it has rolled back its own changes, and
/// counts as ended.
struct JournalOp {
    state: Rc<State>,
    kind: OpKind,
    ticket: Ticket,
    /// The number of bytes of log that are reserved for the operation.
    reserved: u64,
    /// The number of bytes of log that the operation has taken.
    taken: u64,
    wrote: bool,
    ended: bool,
    /// Blocks whose first contents the operation has logged, with their addresses at that time.
    fresh: Vec<(BufKey, u64)>,
    /// The places from which the operation has moved file contents, or whose move it has dropped.
    moved: Vec<u64>,
}

impl JournalOp {
    fn new(state: Rc<State>, kind: OpKind, (ticket, reserved): (Ticket, u64)) -> Box<JournalOp> {
        let (fresh, moved) = (Vec::new(), Vec::new());
        let op = JournalOp {
            state,
            kind,
            ticket,
            reserved,
            taken: 0,
            wrote: false,
            ended: false,
            fresh,
            moved,
        };
        Box::new(op)
    }

    fn finish(&mut self) -> u64 {
        self.ended = true;
        let behind = self.state.end(self.kind, &mut self.ticket, self.reserved, self.wrote);
        self.moved.drain(..).for_each(|from| self.state.move_ended(from));
        behind
    }
}

impl Drop for JournalOp {
    fn drop(&mut self) {
        if !self.ended {
            self.finish();
        }
    }
}

/// Whether the paper's synchronous log makes an operation of this kind durable before it returns.
fn is_forced(kind: OpKind) -> bool {
    matches!(kind, OpKind::Make | OpKind::Link | OpKind::Remove | OpKind::Rename)
}

impl JournalOp {
    /// Logs the contents of a block that a pointer is set to, if they are metadata.
    fn log_target(&mut self, what: &What<'_>) {
        let What::SetPointer { old, new, to, init, .. } = *what else { return };
        if to == PointerTo::Data {
            return self.log_contents(what.moves_contents(), (old, new), init);
        }
        let Some(address) = init.address() else { return };
        if old.0 == new.0 && to == PointerTo::Directory {
            return;
        }
        if old.0 != 0 && to == PointerTo::Directory {
            self.state.moved(init);
        }
        self.log_whole(init, address);
    }

    /// Logs what a crash may show in a new place of file contents: zeros, or the contents that the
    /// log has of the old place.
    fn log_contents(&mut self, moves: bool, (old, new): ((u64, u32), (u64, u32)), init: &BufRef) {
        let state = self.state.clone();
        let mode = state.options.mode;
        if !mode.follows_contents() {
            return;
        }
        let number = state.enter(&mut self.ticket);
        // Contents that the device or the log has are logged again. They never move by many blocks
        // at once.
        if moves && init.is_stored() {
            // Records about the old place are needed until the move is certain.
            state.moved(init);
            if state.is_on(JournalRules::RELOG) {
                state.append_fresh(number, init, 0..init.len());
            }
            return;
        }
        let size = state.fragment.get();
        let place = new.0 * size..(new.0 + u64::from(new.1)) * size;
        let kept = if old.0 == new.0 { u64::from(old.1) } else { 0 };
        state.append_zeros(number, init, place.start + kept * size..place.end);
    }

    fn log_whole(&mut self, buf: &BufRef, address: u64) {
        if !self.fresh.contains(&(buf.key(), address)) {
            self.fresh.push((buf.key(), address));
            let number = self.state.enter(&mut self.ticket);
            self.state.append_fresh(number, buf, 0..buf.len());
        }
    }

    /// Logs a change.
    fn enter(&mut self, change: &Change<'_>) {
        let state = self.state.clone();
        match change.what {
            // The superblock is not logged: its sums are recomputed at mount.
            What::Summary => return,
            What::GroupCounts { .. } if !state.is_on(JournalRules::SUMMARY) => return,
            // The device may hold other old bytes than memory had, so the whole block is logged.
            What::InitDirectory { .. } | What::InitInodeBlock { .. } => {
                self.wrote = true;
                let whole = std::slice::from_ref(&(0..change.buf.len())) == change.ranges;
                if whole && let Some(address) = change.buf.address() {
                    self.log_whole(change.buf, address);
                    return;
                }
                if change.old.is_empty() {
                    let number = state.enter(&mut self.ticket);
                    for range in change.ranges {
                        state.append_fresh(number, change.buf, range.clone());
                    }
                    return;
                }
            }
            _ => {}
        }
        self.wrote = true;
        self.log_target(&change.what);
        let number = state.enter(&mut self.ticket);
        state.append_patch(number, change.buf, change.ranges, change.old);
        match change.what {
            What::FreeBlock { address, frags } => {
                self.moved.extend(state.freed(number, address, frags));
            }
            What::SetPointer { old, new, init, .. }
                if change.what.moves_contents() && !state.options.mode.follows_contents() =>
            {
                self.moved.extend(state.move_contents(number, old, new.0, init));
            }
            What::SetLinkCount { ino, new: 0, .. } => {
                let (lsn, _) = state.append_short(number, &LogEntry::Orphan(ino));
                state.orphans.borrow_mut().insert(ino, lsn);
            }
            What::SetLinkCount { ino, old: 0, .. } | What::ClearInode { ino } => {
                state.keep(number, ino)
            }
            _ => {}
        }
    }
}

/// The dirty contents of a file. Its directory blocks and indirect blocks need not be written for
/// an fsync: the log has them.
fn dirty_contents(cache: &Cache, ino: u64) -> Vec<BufRef> {
    let mut dirty = cache.dirty_of(ino);
    dirty.retain(|buf| buf.class() == BufferClass::Data);
    dirty
}

/// Makes the contents of a file durable. If some have moved, the log has a record afterwards that
/// they have landed.
async fn write_contents(state: &State, cache: &Cache, ino: u64) -> Result<(), BlockError> {
    cache.write_all(dirty_contents(cache, ino), !cache.is_volatile()).await?;
    cache.barrier().await?;
    let_moves_land(state, cache, ino).await
}

/// Waits until the log has a record that a file's contents, which are durable, have landed. Another
/// task's flush may cover them, say so at its end, and not have ended.
async fn let_moves_land(state: &State, cache: &Cache, ino: u64) -> Result<(), BlockError> {
    let is_pending = state.moves.borrow().has_pending(ino);
    if is_pending { cache.barrier_if_needed().await } else { Ok(()) }
}

/// Makes contents of a file, and all operations that have ended, durable. The contents that nothing
/// holds back go first, and one flush covers them and the log. Without contents in the log, neither
/// need be durable before the other.
async fn write_together(state: &State, cache: &Cache, ino: u64) -> Result<(), BlockError> {
    let contents = dirty_contents(cache, ino);
    cache.write_all(contents.clone(), !cache.is_volatile()).await?;
    // Another task may write these as soon as the commit lets it, after the flush below began.
    let is_left = |buf: &BufRef| buf.is_dirty();
    let were_left = contents.iter().any(is_left);
    let written = cache.write_epoch();
    if state.options.shares_device && cache.is_volatile() {
        state.commit_all_with(&|| Box::pin(cache.barrier_after_another())).await?;
    } else {
        state.commit_all().await?;
    }
    cache.barrier_of(written).await?;
    if were_left || contents.iter().any(is_left) {
        // Some were held back, or have changed meanwhile. After the commit the others can be
        // written.
        wait_while_held(state, cache, ino).await?;
        return write_contents(state, cache, ino).await;
    }
    let_moves_land(state, cache, ino).await
}

/// Waits until nothing holds a file's contents back. A file may write to fragments that were freed
/// only once the free is committed. One commit may not be enough: an operation that began before
/// the free, and still runs, keeps the free out of the commit.
async fn wait_while_held(state: &State, cache: &Cache, ino: u64) -> Result<(), BlockError> {
    while dirty_contents(cache, ino).iter().any(|buf| state.is_held(buf)) {
        state.commit_more().await?;
    }
    Ok(())
}

impl OrderingPolicy for JournalOrder {
    fn name(&self) -> &'static str {
        "journal"
    }

    fn needs_check(&self) -> bool {
        false
    }

    fn whole_inodes(&self) -> bool {
        true
    }

    fn keeps_summary(&self) -> bool {
        true
    }

    fn keeps_synced_size(&self) -> bool {
        self.state.is_on(JournalRules::DATASYNC_KEEPS_SIZE)
    }

    fn writes_behind(&self) -> bool {
        self.state.options.mode.contents != LogContents::Data
    }

    fn blocks_max(&self) -> u64 {
        // Each operation under way has this share of the log.
        (self.state.log.capacity() / 16 / BLOCK_RECORDS).max(1)
    }

    fn begin<'a>(&'a self, _cache: &'a Cache, kind: OpKind) -> Begun<'a> {
        let state = &self.state;
        match state.try_begin(kind) {
            Ok(Some(begun)) => MaybeFuture::ready(Ok(JournalOp::new(state.clone(), kind, begun))),
            Err(error) => MaybeFuture::ready(Err(error)),
            Ok(None) => MaybeFuture::boxed(async move {
                let begun = state.begin(kind).await?;
                Ok(JournalOp::new(state.clone(), kind, begun) as Box<dyn OrderingOp>)
            }),
        }
    }

    fn fsync<'a>(&'a self, cache: &'a Cache, inode: SyncedInode<'a>) -> BlockFuture<'a> {
        let ino = inode.ino;
        MaybeFuture::boxed(async move {
            let state = &self.state;
            if inode.contents_only && state.options.mode.writes_in_place() {
                return write_contents(state, cache, ino).await;
            }
            if state.options.mode.has_commits() {
                return commit::fsync(state, cache, ino).await;
            }
            if state.moves.borrow().has_pending(ino) {
                // The log must say that the contents are in their new place, or a recovery would
                // copy the old ones over them. One write of the log says that, and makes the new
                // place certain.
                write_contents(state, cache, ino).await?;
            }
            let landed = state.landed.get();
            write_together(state, cache, ino).await?;
            match state.landed.get() {
                last if last == landed => Ok(()),
                last => state.force(last).await,
            }
        })
    }

    fn recover<'a>(
        &'a self,
        device: &'a Device,
        image: &'a dyn Image,
    ) -> MaybeFuture<'a, Result<Recovery, RecoverError>> {
        MaybeFuture::boxed(replay::recover(&self.state, device, image))
    }

    fn start(&self, cache: &Cache) {
        checkpointer::start(&self.state, cache);
    }

    fn sync<'a>(&'a self, cache: &'a Cache) -> BlockFuture<'a> {
        if self.state.options.mode.follows_contents() {
            return MaybeFuture::boxed(commit::sync(&self.state, cache));
        }
        MaybeFuture::boxed(self.state.commit_all())
    }

    fn close<'a>(&'a self, _cache: &'a Cache) -> BlockFuture<'a> {
        MaybeFuture::boxed(checkpointer::close(&self.state))
    }

    fn ready(&self) -> Option<Rc<Notify>> {
        Some(self.state.ready.clone())
    }

    fn peek_ready(&self) -> Option<DeferredFree> {
        self.state.due.borrow().front().copied()
    }

    fn next_ready(&self) -> Option<DeferredFree> {
        self.state.due.borrow_mut().pop_front()
    }

    fn taken(&self, _step: DeferredFree) {
        self.state.taken.set(self.state.taken.get() + 1);
        self.state.was_taken.notify_all();
    }

    fn deferred(&self) -> usize {
        // A move has not ended either while the log does not say durably that it has landed.
        let is_open = self.state.landed.get() > self.state.log.durable();
        self.state.due.borrow().len() + self.state.moves.borrow().len() + usize::from(is_open)
    }

    fn promised(&self) -> (u64, u64) {
        (self.state.moves.borrow().frags(), 0)
    }

    fn reclaim<'a>(&'a self, cache: &'a Cache) -> MaybeFuture<'a, Result<bool, BlockError>> {
        if self.deferred() == 0 {
            return MaybeFuture::ready(Ok(false));
        }
        MaybeFuture::boxed(checkpointer::reclaim(&self.state, cache))
    }
}

impl OrderingOp for JournalOp {
    fn wants_old(&self, what: &What<'_>) -> bool {
        !matches!(what, What::Summary | What::InitDirectory { .. })
    }

    fn admit<'a>(&'a mut self, cache: &'a Cache, what: &'a What<'a>) -> BlockFuture<'a> {
        if let What::SetPointer { to: PointerTo::Data, init, .. } = *what
            && self.state.options.mode.follows_contents()
        {
            // A write of the block in its new place may have begun, or ended. The log will say that
            // the place is new, so another write has to follow.
            cache.mark_dirty(init);
        }
        MaybeFuture::ready(self.state.check())
    }

    fn defer(&mut self, step: DeferredFree) -> Option<DeferredFree> {
        let DeferredFree::FreeBlock { address, .. } = step else { return Some(step) };
        let at = address * self.state.fragment.get();
        (!self.state.moves.borrow().keeps(at)).then_some(step)
    }

    fn record(&mut self, change: &Change<'_>) {
        let before = self.state.log.stats().bytes;
        self.enter(change);
        self.taken += self.state.log.stats().bytes - before;
        let enough = self.state.log.capacity() >= least_capacity(self.state.block.get());
        debug_assert!(
            self.taken <= self.reserved || self.kind == OpKind::Housekeeping || !enough,
            "{:?} took {} bytes of log, and {} were reserved",
            self.kind,
            self.taken,
            self.reserved
        );
    }

    fn end<'a>(mut self: Box<Self>, _cache: &'a Cache) -> BlockFuture<'a> {
        let behind = self.finish();
        let failed = self.state.check();
        let forced = self.state.options.synchronous && self.wrote && is_forced(self.kind);
        if failed.is_err() || !forced {
            return MaybeFuture::ready(failed);
        }
        MaybeFuture::boxed(async move { self.state.commit(self.ticket.clone(), behind).await })
    }
}
