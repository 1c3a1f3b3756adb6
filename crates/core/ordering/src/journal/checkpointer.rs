//! The checkpointer: once a second it writes the log, moves the log's start, and makes space where
//! it is short.

use std::rc::Rc;

use ordo_block::BlockError;
use ordo_cache::{BufRef, Cache};
use ordo_runtime::Time;
use ordo_runtime::sync::select;
use ordo_wafs::{LogError, Lsn};

use super::commit;
use super::moves::Moved;
use super::record::LogEntry;
use super::state::State;

/// Starts the task. It ends when the journal is closed, or with the executor.
pub(super) fn start(state: &Rc<State>, cache: &Cache) {
    let (state, cache) = (state.clone(), cache.clone());
    let runtime = cache.runtime().clone();
    runtime.spawn_daemon("journal checkpointer", async move {
        let mut last = state.runtime.now();
        while !state.closed.get() {
            // An operation that waits for log space sets `short`; its notification is lost while
            // this task is not waiting for one.
            if state.is_settled() && !state.short.get() {
                state.idle.set(true);
                state.work.notified().await;
                state.idle.set(false);
            }
            select(state.work.notified(), state.runtime.sleep(state.options.tick)).await;
            if state.closed.get() {
                break;
            }
            let before = (state.log.start(), state.log.durable());
            let done = round(&state, &cache, &mut last).await;
            state.space.notify_all();
            let stuck = before == (state.log.start(), state.log.durable());
            if done.is_err() || stuck {
                // The log's start may be kept back by a single operation under way, so its end is
                // worth waking for.
                select(state.settled.notified(), state.runtime.sleep(state.options.tick)).await;
            }
        }
    });
}

/// Writes the log. Where a second has passed or space is short, it also moves the log's start.
async fn round(state: &State, cache: &Cache, last: &mut Time) -> Result<(), BlockError> {
    state.end_behind();
    if state.options.mode.has_commits() {
        commit::timed(state, cache).await?;
    }
    // The log is written whether operations are complete or not, so the checkpointer waits for
    // none.
    state.force(state.log.end()).await?;
    // A log skips sectors for speed only while a quarter of it is free, so space is made before it
    // falls to that.
    let short = state.short.take() || state.log.free_space() < state.log.capacity() * 3 / 8;
    if state.has_many_moves() {
        let moved = state.moves.borrow().blocks(u64::MAX);
        cache.write_all(moved, false).await?;
        cache.barrier().await?;
    }
    if short {
        force_out(state, cache).await?;
    }
    let now = state.runtime.now();
    if short || now.since(*last) >= state.options.checkpoint_every {
        *last = now;
        state.checkpoint(short).await?;
    }
    // The record of placed blocks need not be durable soon: if it is lost, a recovery only has more
    // to do.
    state.append_placed();
    commit::append_written(state, false).await
}

/// A forced checkpoint: writes the blocks that the older half of the log describes.
async fn force_out(state: &State, cache: &Cache) -> Result<(), BlockError> {
    let until = state.half();
    let mut old: Vec<BufRef> = {
        let dirty_pages = state.dirty_pages.borrow();
        dirty_pages.values().filter(|t| t.low <= until).map(|t| t.buf.clone()).collect()
    };
    old.extend(state.moves.borrow().blocks(until));
    if !old.is_empty() {
        state.count(|stats| stats.forced_checkpoints += 1);
        cache.write_all(old, false).await?;
        cache.barrier().await?;
    }
    Ok(())
}

/// Hastens the frees of places that file contents have left, because space is short. Returns
/// whether any was done. Operations that are under way, the caller's among them, may keep blocks
/// from being written; for those it does not wait.
pub(super) async fn reclaim(state: &State, cache: &Cache) -> Result<bool, BlockError> {
    let before = state.taken.get();
    let mut moved = state.moves.borrow().blocks(u64::MAX);
    moved.retain(|buf| !state.is_held(buf));
    cache.write_all(moved, false).await?;
    cache.barrier().await?;
    if !state.due.borrow().is_empty() {
        select(state.was_taken.notified(), state.runtime.sleep(state.options.tick)).await;
    }
    Ok(state.taken.get() != before)
}

/// Closes the log, once everything is in its place and the image is marked clean. No record is
/// needed any more.
pub(super) async fn close(state: &State) -> Result<(), BlockError> {
    state.closed.set(true);
    state.work.notify_one();
    state.commit_all().await?;
    Ok(state.give_up_before(state.log.end()).await?)
}

impl State {
    /// Whether no record in the log is needed any more.
    fn is_settled(&self) -> bool {
        self.dirty_pages.borrow().is_empty() && self.log.durable() == self.log.end()
    }

    /// Frees everything in the log before `start`, and stores the log's owner with the new start,
    /// durably.
    pub(super) async fn give_up_before(&self, start: Lsn) -> Result<(), LogError> {
        self.log.truncate(start);
        self.log.checkpoint(Some(self.owner.get().encode())).await
    }

    /// The end of the log's older half.
    fn half(&self) -> Lsn {
        self.log.start() + (self.log.end() - self.log.start()) / 2
    }

    /// Records the log's new start on the log's device. `short`: an operation waits for log space.
    pub(super) async fn checkpoint(&self, short: bool) -> Result<(), BlockError> {
        if short || self.log.free_space() < self.log.capacity() * 3 / 4 {
            self.log_again().await?;
        }
        let start = self.oldest();
        if start > self.log.start() {
            self.logged.borrow_mut().retain(|_, (_, end)| *end > start);
            self.give_up_before(start).await?;
        }
        Ok(())
    }

    /// Logs again what old records say and must survive: inodes without a name, and places that
    /// file contents have left. The start of the log can then move past the old records. Frees of
    /// those places need log space themselves, so they must not keep it.
    async fn log_again(&self) -> Result<(), BlockError> {
        let until = self.oldest().max(self.half()).min(self.safe.get());
        let orphans: Vec<u64> = {
            let orphans = self.orphans.borrow();
            orphans.iter().filter(|(_, lsn)| **lsn < until).map(|(ino, _)| *ino).collect()
        };
        let left = self.moves.borrow().landed(until);
        if orphans.is_empty() && left.is_empty() {
            return Ok(());
        }
        let size = self.fragment.get();
        let inodes = orphans.iter().map(|ino| LogEntry::Orphan(*ino));
        let places = left.iter().map(|(from, frags)| {
            let (from, len) = (*from, u64::from(*frags) * size);
            LogEntry::Moved(Moved { from, to: from, len })
        });
        let entries: Vec<LogEntry<'static>> = inodes.chain(places).collect();
        let lsns = self.append_aside(entries);
        let end = self.log.end();
        self.force(end).await?;
        // While the new records may be rolled back, with an operation under way, the old ones are
        // still needed.
        if self.safe.get() >= end {
            let (of_inodes, of_places) = lsns.split_at(orphans.len());
            let mut known = self.orphans.borrow_mut();
            for (ino, lsn) in orphans.iter().zip(of_inodes) {
                if let Some(known) = known.get_mut(ino) {
                    *known = *lsn;
                }
            }
            drop(known);
            let mut moves = self.moves.borrow_mut();
            left.iter().zip(of_places).for_each(|((from, _), lsn)| moves.logged_again(*from, *lsn));
        }
        Ok(())
    }
}
