//! The early writing of Ordo's cache in a playback of calls: contents that its disk could not write
//! in time are written before they are due, and writers wait if that is not enough
//! (`crates/core/cache/src/pace.rs` has the rule; a trace without that many dirty blocks does not
//! show it).

use std::cell::Cell;

use ordo_runtime::sync::Notify;

use super::engine::Engine;

/// The time to write everything, in nanoseconds, from which on it is written early, and from which
/// on writers wait.
const BEHIND: u64 = 8_000_000_000;
const LATE: u64 = 16_000_000_000;
/// The time to write a block before any was written, in nanoseconds.
const FIRST: u64 = 5_000_000;
/// The time of writing that replaces the measured speed.
const MEMORY: u64 = 4_000_000_000;
/// The sum of the weights of a round and of the past.
const WHOLE: u64 = 256;
/// The number of blocks as which a round of fewer counts.
const ROUND_LEAST: u64 = 32;
/// The most blocks of a round.
const ROUND_MAX: usize = 1024;

/// The speed at which the disk takes blocks.
pub(super) struct Pace {
    /// Whether the file system has such a cache.
    is_kept: bool,
    each: Cell<u64>,
    dirty: Cell<u64>,
    behind: Notify,
    progress: Notify,
}

impl Pace {
    pub(super) fn new(is_kept: bool) -> Pace {
        Pace {
            is_kept,
            each: Cell::new(FIRST),
            dirty: Cell::new(0),
            behind: Notify::new("too many dirty blocks", 0),
            progress: Notify::new("fewer dirty blocks", 0),
        }
    }

    fn takes(&self) -> u64 {
        self.dirty.get().saturating_mul(self.each.get())
    }

    /// Notes how many blocks are dirty.
    pub(super) fn look(&self, dirty: usize) {
        self.dirty.set(dirty as u64);
        if self.is_kept && self.takes() > BEHIND {
            self.behind.notify_all();
        }
    }

    /// Waits while too many blocks are dirty.
    pub(super) async fn wait(&self) {
        while self.is_kept && self.takes() > LATE {
            self.progress.notified().await;
        }
    }

    /// Notes a round of writing.
    fn note(&self, blocks: u64, took: u64) {
        if blocks == 0 {
            return;
        }
        let share = took.saturating_mul(WHOLE) / MEMORY;
        let weight = share.max(blocks.min(WHOLE / 4)).min(WHOLE);
        let before = self.each.get().saturating_mul(WHOLE - weight);
        let now = (took / blocks.max(ROUND_LEAST)).saturating_mul(weight);
        self.each.set(before.saturating_add(now) / WHOLE);
    }
}

impl Engine {
    /// Writes the oldest contents for as long as not all could be written in time.
    pub(super) async fn relieve(&self) {
        loop {
            if self.pace.takes() <= BEHIND || !self.relieve_once().await {
                self.pace.behind.notified().await;
            }
        }
    }

    /// Writes a round of the oldest blocks. Returns whether there were any.
    async fn relieve_once(&self) -> bool {
        let began = self.now();
        let mut oldest: Vec<(u64, (u64, u64))> = {
            let dirty = self.dirty.borrow();
            let fit = dirty.iter().filter(|(_, unit)| self.may_leave(unit));
            fit.map(|(key, unit)| (unit.since, *key)).collect()
        };
        oldest.sort_unstable();
        oldest.truncate(ROUND_MAX);
        let keys: Vec<(u64, u64)> = oldest.into_iter().map(|(_, key)| key).collect();
        self.write_back_these(&keys).await;
        if self.facts.flushes && !keys.is_empty() {
            self.flush(0).await;
        }
        self.pace.note(keys.len() as u64, self.now() - began);
        self.pace.look(self.dirty.borrow().len());
        self.pace.progress.notify_all();
        !keys.is_empty()
    }
}
