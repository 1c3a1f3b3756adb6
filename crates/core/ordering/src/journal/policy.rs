//! The journal as an ordering: the log records of each change.

use std::rc::Rc;

use ordo_block::{BlockError, Device};
use ordo_cache::{BufKey, BufRef, Cache};
use ordo_runtime::sync::Notify;

use super::ops::Ticket;
use super::record::LogEntry;
use super::state::{State, least_capacity};
use super::{JournalOrder, JournalRules, checkpointer, replay};
use crate::{
    Change, DeferredFree, Image, OpKind, OrderingPolicy, PointerTo, RecoverError, Recovery, What,
};

/// The most bytes of records about a block that is allocated or freed: pointer, bitmap, revocation.
const BLOCK_RECORDS: u64 = 256;

/// An operation under way. If it is dropped without an end, it has rolled back its own changes, and counts as
/// ended.
pub struct JournalOp {
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
}

impl JournalOp {
    fn finish(&mut self) -> u64 {
        self.ended = true;
        self.state.end(self.kind, &mut self.ticket, self.reserved, self.wrote)
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

impl JournalOrder {
    /// Logs the contents of a block that a pointer is set to, if they are metadata.
    fn log_target(&self, op: &mut JournalOp, what: &What<'_>) {
        let What::SetPointer { old, new, to, init, .. } = *what else { return };
        // The target of a long symbolic link lies in a block of data, and is part of creating the link.
        if to == PointerTo::Data && op.kind != OpKind::Make {
            return;
        }
        let Some(address) = init.address() else { return };
        if old.0 == new.0 && to == PointerTo::Directory {
            return;
        }
        if old.0 != 0 && to == PointerTo::Directory {
            self.state.moved(init);
        }
        self.log_whole(op, init, address);
    }

    fn log_whole(&self, op: &mut JournalOp, buf: &BufRef, address: u64) {
        if !op.fresh.contains(&(buf.key(), address)) {
            op.fresh.push((buf.key(), address));
            let number = self.state.enter(&mut op.ticket);
            self.state.append_fresh(number, buf, 0..buf.len());
        }
    }

    /// Logs a change.
    fn enter(&self, op: &mut JournalOp, change: &Change<'_>) {
        let state = &self.state;
        match change.what {
            // The superblock is not logged: its sums are recomputed at mount.
            What::Summary => return,
            What::GroupCounts { .. } if !state.is_on(JournalRules::SUMMARY) => return,
            // The device may hold other old bytes than memory had, so the whole block is logged.
            What::InitDirectory { .. } | What::InitInodeBlock { .. } => {
                op.wrote = true;
                let whole = std::slice::from_ref(&(0..change.buf.len())) == change.ranges;
                if whole && let Some(address) = change.buf.address() {
                    self.log_whole(op, change.buf, address);
                    return;
                }
                if change.old.is_empty() {
                    let number = state.enter(&mut op.ticket);
                    for range in change.ranges {
                        state.append_fresh(number, change.buf, range.clone());
                    }
                    return;
                }
            }
            _ => {}
        }
        op.wrote = true;
        self.log_target(op, &change.what);
        let number = state.enter(&mut op.ticket);
        state.append_patch(number, change.buf, change.ranges, change.old);
        match change.what {
            What::FreeBlock { address, frags } => state.freed(number, address, frags),
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

impl OrderingPolicy for JournalOrder {
    const NAME: &'static str = "journal";
    const NEEDS_CHECK: bool = false;
    const WHOLE_INODES: bool = true;
    const KEEPS_SUMMARY: bool = true;
    type Op = JournalOp;

    fn wants_old(what: &What<'_>) -> bool {
        !matches!(what, What::Summary | What::InitDirectory { .. })
    }

    fn blocks_max(&self) -> u64 {
        // Each operation under way has this share of the log.
        (self.state.log.capacity() / 16 / BLOCK_RECORDS).max(1)
    }

    async fn begin(cache: &Cache<Self>, kind: OpKind) -> Result<JournalOp, BlockError> {
        let state = &cache.gate().state;
        let (ticket, reserved) = state.begin(kind).await?;
        let (state, fresh) = (state.clone(), Vec::new());
        Ok(JournalOp { state, kind, ticket, reserved, taken: 0, wrote: false, ended: false, fresh })
    }

    async fn admit(
        cache: &Cache<Self>,
        _op: &mut JournalOp,
        _what: &What<'_>,
    ) -> Result<(), BlockError> {
        cache.gate().state.check()
    }

    fn record(&self, op: &mut JournalOp, change: &Change<'_>) {
        let logged = || self.state.log.stats().bytes;
        let before = logged();
        self.enter(op, change);
        op.taken += logged() - before;
        let enough = self.state.log.capacity() >= least_capacity(self.state.block.get());
        debug_assert!(
            op.taken <= op.reserved || op.kind == OpKind::Housekeeping || !enough,
            "{:?} took {} bytes of log, and {} were reserved",
            op.kind,
            op.taken,
            op.reserved
        );
    }

    async fn end(cache: &Cache<Self>, mut op: JournalOp) -> Result<(), BlockError> {
        let behind = op.finish();
        let state = &cache.gate().state;
        state.check()?;
        if state.options.synchronous && op.wrote && is_forced(op.kind) {
            state.commit(op.ticket.clone(), behind).await?;
        }
        Ok(())
    }

    async fn fsync(cache: &Cache<Self>, ino: u64, _inode: &BufRef) -> Result<(), BlockError> {
        // The log is committed first: afterwards the blocks that the journal holds back can be written.
        cache.gate().state.commit_all().await?;
        cache.flush_file(ino).await?;
        cache.barrier().await
    }

    async fn recover(&self, device: &Device, image: &dyn Image) -> Result<Recovery, RecoverError> {
        replay::recover(&self.state, device, image).await
    }

    fn start(cache: &Cache<Self>) {
        checkpointer::start(cache);
    }

    async fn sync(cache: &Cache<Self>) -> Result<(), BlockError> {
        cache.gate().state.commit_all().await
    }

    async fn close(cache: &Cache<Self>) -> Result<(), BlockError> {
        checkpointer::close(cache).await
    }

    fn ready(&self) -> Option<Rc<Notify>> {
        Some(self.state.ready.clone())
    }

    fn peek_ready(&self) -> Option<DeferredFree> {
        self.state.recovered.borrow().front().copied()
    }

    fn next_ready(&self) -> Option<DeferredFree> {
        self.state.recovered.borrow_mut().pop_front()
    }

    fn deferred(&self) -> usize {
        self.state.recovered.borrow().len()
    }
}
