//! Waves: the order in which dirty blocks are written when an ordering may have to roll changes
//! back in them.
//!
//! Source: soft-updates-2000, section 4.3 ("Useless Write-Backs"): write the blocks without
//! dependencies, wait, and only then look at the others, many of which have no dependencies any
//! more; and reclaim memory from blocks without dependencies first. On a device with a volatile
//! cache a flush follows each wave, because only then is the wave known to be durable.

use ordo_block::BlockError;

use ordo_runtime::{Duration, Time};

use crate::buffer::BufRef;
use crate::gate::WritePreview;
use crate::syncer::TICK;
use crate::{Cache, Occasion};

/// The time for which a due block that could only be written in part is left, so that its
/// prerequisites may become due by themselves.
const PATIENCE: Duration = Duration::from_secs(6);

/// The most rounds of writing prerequisites, with the prerequisites that those have by then. The
/// next round of the syncer continues from there.
const DEPTH_MAX: u32 = 16;

/// The most dirty blocks among which unused or independent ones are searched for.
const LOOKS_MAX: usize = 4096;

/// The most blocks that the syncer writes in one round. Blocks that become due meanwhile wait for
/// the next one.
const ROUND_MAX: usize = 1024;

/// The part of the bytes to write that independent blocks must have before they alone are written:
/// one over this number.
const ENOUGH: usize = 2;

/// The number of rounds of writing everything, none with progress, after which a defect is assumed.
const FRUITLESS_MAX: u32 = 10_000;

impl Cache {
    /// Writes these buffers, and waits for all the writes. Many requests are under way at once, in
    /// clusters and in order of address: first the buffers in which nothing must be rolled back,
    /// then those whose dependencies the first writes have met, and so on. Buffers with rolled-back
    /// changes stay dirty.
    ///
    /// # Errors
    /// The first failure. The other buffers are written nevertheless.
    pub async fn write_all(&self, bufs: Vec<BufRef>, sync: bool) -> Result<(), BlockError> {
        if let Some(writer) = self.writer()? {
            return writer.write_out(bufs, Occasion::Demand).await;
        }
        if !self.has_waves() {
            return self.write_wave(bufs, sync).await;
        }
        let (mut result, left) = self.write_waves(bufs, sync).await;
        let gate = self.gate();
        let (part, nothing): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|b| gate.write_preview(b) == WritePreview::Part);
        result = result.and(self.write_wave(part, sync).await);
        // Writing these buffers would bring nothing new to the disk, perhaps because another task
        // is writing them.
        for buf in nothing {
            buf.written().await;
        }
        result
    }

    fn has_waves(&self) -> bool {
        self.gate().rolls_back() && self.config().dependents_last
    }

    /// Writes the blocks that can be written whole, then those whose dependencies are met by these
    /// writes, and so on. Returns the rest.
    async fn write_waves(
        &self,
        mut left: Vec<BufRef>,
        sync: bool,
    ) -> (Result<(), BlockError>, Vec<BufRef>) {
        let gate = self.gate();
        let mut result = Ok(());
        loop {
            let (now, later): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|b| gate.write_preview(b) == WritePreview::Whole);
            left = later;
            if now.is_empty() {
                return (result, left);
            }
            result = result.and(self.write_wave(now, sync).await);
            if !left.is_empty() {
                result = result.and(self.barrier_if_needed().await);
            }
            left.retain(|b| b.is_dirty());
        }
    }

    /// Writes the blocks that are due, for the syncer. A block that could only be written in part
    /// is left for some rounds, so that its prerequisites may become due by themselves; after that
    /// they are written for its sake.
    pub(crate) async fn write_due(&self) -> Result<(), BlockError> {
        let start = self.start_round();
        let mut due = self.shared.dirty.borrow().due(start.at);
        if let Some(writer) = self.writer()? {
            let result = writer.write_out(due, Occasion::Age).await;
            self.end_round(&start);
            return result;
        }
        due.truncate(ROUND_MAX);
        let result = if !self.has_waves() {
            self.write_wave(due, false).await
        } else {
            for buf in &due {
                let since = buf.due_since.get().unwrap_or(start.at);
                buf.due_since.set(Some(since));
            }
            let (result, left) = self.write_waves(due, false).await;
            let since = left.iter().filter_map(|b| b.due_since.get()).min();
            if since.is_some_and(|since| since + PATIENCE <= start.at) {
                result.and(self.write_with_prerequisites(left, &start).await)
            } else {
                let next = self.runtime().now() + TICK;
                left.iter().for_each(|buf| self.set_due(buf, next));
                result
            }
        };
        self.end_round(&start);
        result
    }

    /// Writes all changes that these blocks have now. Their prerequisites, at any distance, are
    /// written before them; a prerequisite that gets later changes which cannot be on the device
    /// yet is written in part. Blocks that wait for an operation under way are left out.
    async fn write_with_prerequisites(
        &self,
        bufs: Vec<BufRef>,
        start: &Start,
    ) -> Result<(), BlockError> {
        let gate = self.gate();
        let is_old = |b: &BufRef| {
            b.is_dirty() && gate.oldest_unwritten(b).is_some_and(|change| change < start.changes)
        };
        let mut result = Ok(());
        let mut left = bufs.clone();
        for _ in 0..DEPTH_MAX {
            let keys = gate.prerequisites(&left, start.changes);
            let mut wanted: Vec<BufRef> =
                keys.into_iter().filter_map(|key| self.peek(key)).collect();
            wanted.append(&mut left);
            wanted.retain(|b| b.is_dirty() || b.is_writing());
            wanted.sort_by_key(|b| b.key());
            wanted.dedup_by_key(|b| b.key());
            let before = self.progress();
            let (waves, mut rest) = self.write_waves(wanted, false).await;
            rest.retain(|b| gate.write_preview(b) == WritePreview::Part);
            result = result.and(waves).and(self.write_wave(rest, false).await);
            left.extend(bufs.iter().filter(|b| is_old(b)).cloned());
            if left.is_empty() || self.progress() == before || result.is_err() {
                break;
            }
            result = result.and(self.barrier_if_needed().await);
        }
        let now = self.runtime().now();
        for buf in bufs.iter().filter(|b| b.is_dirty()) {
            if is_old(buf) {
                self.set_due(buf, now + TICK);
            } else {
                self.set_due(buf, start.at + self.config().age(buf.class()));
                buf.due_since.set(None);
            }
        }
        result
    }

    /// Writes some dirty blocks, about `bytes` bytes: those without dependencies among the oldest,
    /// then the oldest others with their prerequisites. Returns false if that made no progress. If
    /// there are only a few independent blocks, the others are written too: otherwise a few would
    /// be written again and again, each time with a flush, while the others keep the memory.
    ///
    /// Source: soft-updates-2000, section 4.3, which reclaims memory from blocks without
    /// dependencies first.
    ///
    /// # Errors
    /// The first failure.
    pub async fn write_some(&self, bytes: usize) -> Result<bool, BlockError> {
        self.write_some_on(Occasion::Age, bytes).await
    }

    /// As [`write_some`](Self::write_some), for a given occasion.
    pub(crate) async fn write_some_on(
        &self,
        occasion: Occasion,
        bytes: usize,
    ) -> Result<bool, BlockError> {
        let (before, start) = (self.progress(), self.start_round());
        if let Some(writer) = self.writer()? {
            let some = self.least_used(bytes, |_| true);
            writer.write_out(some, occasion).await?;
            return self.finish_some(before, &start).await;
        }
        let all = !self.gate().rolls_back() || !self.config().evict_independent_first;
        let fit = |b: &BufRef| all || self.gate().write_preview(b) == WritePreview::Whole;
        let mut some = self.least_used(bytes, fit);
        let found: usize = some.iter().map(|b| b.len()).sum();
        if self.gate().rolls_back() && (found < bytes / ENOUGH || (all && self.has_waves())) {
            some.extend(self.least_used(bytes - found.min(bytes), |b| !fit(b)));
            self.write_with_prerequisites(some, &start).await?;
        } else {
            self.write_wave(some, false).await?;
        }
        self.finish_some(before, &start).await
    }

    /// Dirty buffers that `fit`, up to `bytes` bytes in all, among the oldest: first those that
    /// were not used since this function last looked at them. Buffers in use would be dirty again
    /// at once.
    fn least_used(&self, bytes: usize, fit: impl Fn(&BufRef) -> bool) -> Vec<BufRef> {
        let (idle, used): (Vec<_>, Vec<_>) = self
            .oldest_dirty(usize::MAX, LOOKS_MAX, fit)
            .into_iter()
            .partition(|b| !b.referenced.replace(false));
        let mut left = bytes;
        let has_space = |b: &BufRef| {
            let fits = left > 0;
            left = left.saturating_sub(b.len());
            fits
        };
        idle.into_iter().chain(used).take(ROUND_MAX).take_while(has_space).collect()
    }

    async fn finish_some(&self, before: u64, start: &Start) -> Result<bool, BlockError> {
        self.barrier_if_needed().await?;
        if self.progress() == before && self.gate().rolls_back() {
            // No oldest block can be written, since other tasks are writing their prerequisites.
            self.write_round(self.all_dirty()).await?;
        }
        self.end_round(start);
        Ok(self.progress() != before)
    }

    fn start_round(&self) -> Start {
        let (at, cleaned) = (self.runtime().now(), self.cleaned());
        Start { at, cleaned, changes: self.gate().changes() }
    }

    fn end_round(&self, start: &Start) {
        let took = self.runtime().now().since(start.at);
        self.shared.pace.note(self.cleaned() - start.cleaned, took);
    }

    /// Writes everything that is dirty now, as far as it can be written, and makes it durable.
    ///
    /// # Errors
    /// The first failure.
    pub async fn write_dirty(&self) -> Result<(), BlockError> {
        self.write_round(self.all_dirty()).await
    }

    /// Writes these buffers, as far as they can be written, waits for the writes of other tasks
    /// too, and makes all of them durable.
    async fn write_round(&self, dirty: Vec<BufRef>) -> Result<(), BlockError> {
        self.write_all(dirty, false).await?;
        self.wait_for_writes().await;
        self.barrier_if_needed().await
    }

    /// Writes everything that is dirty, including what becomes dirty meanwhile, and makes it
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
                assert!(fruitless < FRUITLESS_MAX, "never whole:\n{}", self.gate().explain());
                self.gate().wait_for_progress().await;
            }
        }
        self.wait_for_writes().await;
        self.barrier().await?;
        self.failure().map_or(Ok(()), Err)
    }

    /// A counter that rises whenever a block becomes clean or a dependency is met.
    fn progress(&self) -> u64 {
        self.cleaned() + self.gate().met()
    }
}

/// The counters at the beginning of a round of writing.
struct Start {
    at: Time,
    /// The number of buffers that had become clean so far.
    cleaned: u64,
    /// The number of changes that the gate had recorded so far.
    changes: u64,
}
