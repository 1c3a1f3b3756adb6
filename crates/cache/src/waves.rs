//! Waves: in which order dirty blocks go to the device when an ordering may have to undo something in
//! them.
//!
//! Source: soft-updates-2000, section 4.3 ("Useless Write-Backs"): write what depends on nothing, wait,
//! and only then look at the rest, much of which depends on nothing any more; and reclaim memory from
//! blocks without dependencies first. On a device with a volatile cache there is a flush after a wave,
//! because only then is it known to be durable.

use ordo_block::{BlockDevice, BlockError};

use crate::buffer::BufRef;
use crate::gate::Outlook;
use crate::{Cache, WriteGate};

/// How often the syncer passes a block over that could only be written in part.
const PATIENCE: u8 = 3;

/// How many dirty blocks are looked at in search of some that depend on nothing.
const LOOKS_MAX: usize = 512;

/// Rounds of writing everything in which nothing came of it, before that is taken for a mistake.
const FRUITLESS_MAX: u32 = 10_000;

/// What becomes of blocks that still cannot be written whole when the waves are through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// They are written if that brings anything at all.
    Written,
    /// They wait for a later round of the syncer, unless they have waited often enough.
    Postponed,
}

impl<D: BlockDevice, G: WriteGate> Cache<D, G> {
    /// Writes these buffers, in clusters, in order of address, many at once, and waits for all: first
    /// those in which nothing has to be undone, then those that this has freed, and so on.
    /// Buffers in which the gate rolled something back stay dirty.
    ///
    /// # Errors
    /// The first failure; the rest are written all the same.
    pub async fn write_all(&self, bufs: Vec<BufRef>, sync: bool) -> Result<(), BlockError> {
        self.write_waves(bufs, sync, Rest::Written).await
    }

    /// Writes what is due, for the syncer.
    pub(crate) async fn write_due(&self, bufs: Vec<BufRef>) -> Result<(), BlockError> {
        self.write_waves(bufs, false, Rest::Postponed).await
    }

    async fn write_waves(
        &self,
        mut left: Vec<BufRef>,
        sync: bool,
        rest: Rest,
    ) -> Result<(), BlockError> {
        if !G::ROLLS_BACK || !self.config().dependents_last {
            return self.write_wave(left, sync).await;
        }
        let gate = self.gate();
        let mut result = Ok(());
        loop {
            let (now, later): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|b| gate.outlook(b) == Outlook::Whole);
            left = later;
            if now.is_empty() {
                break;
            }
            result = result.and(self.write_wave(now, sync).await);
            if !left.is_empty() {
                result = result.and(self.barrier_if_needed().await);
            }
            left.retain(|b| b.is_dirty());
        }
        let some = |b: &BufRef| match rest {
            Rest::Written => gate.outlook(b) == Outlook::Part,
            Rest::Postponed => !self.postpone(b),
        };
        let (left, passed): (Vec<_>, Vec<_>) = left.into_iter().partition(some);
        result = result.and(self.write_wave(left, sync).await);
        if matches!(rest, Rest::Written) {
            // Nothing new is in these, perhaps because somebody else is writing it.
            for buf in passed {
                buf.written().await;
            }
        }
        result
    }

    /// Passes a block over that is due, until a later round. False for one that has been passed over
    /// often enough, where writing it brings anything.
    fn postpone(&self, buf: &BufRef) -> bool {
        let times = buf.postponed.get();
        if times >= PATIENCE && self.gate().outlook(buf) == Outlook::Part {
            return false;
        }
        self.set_due(buf, self.runtime().now() + crate::syncer::TICK);
        buf.postponed.set(times.saturating_add(1));
        true
    }

    /// Writes some of what is dirty, about `bytes` of it: preferably what depends on nothing. False where
    /// nothing came of it.
    ///
    /// # Errors
    /// The first failure.
    pub async fn write_some(&self, bytes: usize) -> Result<bool, BlockError> {
        let before = self.progress();
        let oldest = if G::ROLLS_BACK && self.config().evict_independent_first {
            let gate = self.gate();
            let fit = |b: &BufRef| gate.outlook(b) == Outlook::Whole;
            self.oldest_dirty(bytes, LOOKS_MAX, fit)
        } else {
            self.oldest_dirty(bytes, usize::MAX, |_| true)
        };
        self.write_all(oldest, false).await?;
        self.barrier_if_needed().await?;
        if self.progress() == before && G::ROLLS_BACK {
            // What the oldest depend on is younger, or being written by others.
            self.write_round(self.all_dirty()).await?;
        }
        Ok(self.progress() != before)
    }

    /// Writes everything that is dirty now, as far as it can be written, and makes it durable.
    ///
    /// # Errors
    /// The first failure.
    pub async fn write_dirty(&self) -> Result<(), BlockError> {
        self.write_round(self.all_dirty()).await
    }

    /// Writes these, as far as they can be written, waits for others' writes too, and makes all durable.
    async fn write_round(&self, dirty: Vec<BufRef>) -> Result<(), BlockError> {
        self.write_all(dirty, false).await?;
        self.wait_for_writes().await;
        self.barrier_if_needed().await
    }

    /// Writes everything that is dirty, whatever becomes dirty meanwhile included, and makes it
    /// durable.
    ///
    /// # Errors
    /// The first failure.
    pub async fn flush_all(&self) -> Result<(), BlockError> {
        let mut fruitless = 0;
        loop {
            let dirty = self.all_dirty();
            if dirty.is_empty() {
                break;
            }
            let before = self.progress();
            self.write_round(dirty).await?;
            if self.progress() == before {
                fruitless += 1;
                assert!(fruitless < FRUITLESS_MAX, "never whole:\n{}", self.gate().story());
                self.gate().unblocked().await;
            }
        }
        self.wait_for_writes().await;
        self.barrier().await?;
        self.failure().map_or(Ok(()), Err)
    }

    /// Goes up whenever a block becomes clean or a dependency is met.
    fn progress(&self) -> u64 {
        self.cleaned() + self.gate().met()
    }
}
