//! Cleaning in advance: while the file system is idle, and every few seconds when clean segments
//! run low.
//!
//! The end of an operation starts the tasks, unless they run already. When no operation has begun
//! for the time of [`Cleaning::idle`](super::Cleaning), the idle task cleans in passes; if an
//! operation begins, it waits again. The other task makes a pass after each
//! [`Cleaning::every`](super::Cleaning), whether or not there are operations. A task ends when
//! there are enough clean segments or cleaning gains nothing, so that an idle file system sets no
//! timers.
//!
//! Source of the second: DualFS (2007), section 2.1, "Cleaner".

use std::rc::Weak;

use ordo_block::BlockError;
use ordo_runtime::Duration;
use ordo_runtime::sync::MutexGuard;

use super::cleaner::{Cleaner, Fruitless};

/// The fullest segment that is cleaned while idle, in tenths of live bytes.
const LIVE_TENTHS: u64 = 9;

impl Cleaner {
    /// Starts the tasks that are wanted and do not run.
    pub(super) fn start_tasks(&self) {
        if self.is_stopped.get() {
            return;
        }
        let runtime = self.store.cache.runtime();
        if let Some(idle) = self.cleaning.idle
            && !self.has_idle_task.replace(true)
        {
            runtime.spawn_daemon("the idle cleaner", idle_task(self.own.clone(), idle));
        }
        if let Some(every) = self.cleaning.every.or(None)
            && !self.has_busy_task.replace(true)
        {
            runtime.spawn_daemon("the regular cleaner", busy_task(self.own.clone(), every));
        }
    }

    /// Waits until no segment is being cleaned, and ends cleaning in advance for good.
    pub async fn stop_idle(&self) -> MutexGuard<'_, ()> {
        self.is_stopped.set(true);
        self.one.lock().await
    }

    /// The number of fragments that cleaning in advance should gain until `percent` of the space
    /// without live blocks is in clean segments; `None` if it is.
    fn wanted_for(&self, percent: u8) -> Option<i64> {
        let state = self.store.state.borrow();
        let live = state.used().div_ceil(self.store.shape.fsize.into()).cast_signed();
        let free = (self.store.capacity - live).max(0);
        let wanted = free * i64::from(percent) / 100 - state.space();
        let (used, space) = (state.used(), state.space());
        let (bytes, frags) = (self.store.shape.ssize / 2, self.store.shape.fsbpseg / 2);
        let is_worth_trying = self.idle_fruitless.get().is_none_or(|then| {
            used + u64::from(bytes) <= then.used || space + i64::from(frags) <= then.space
        });
        (wanted > 0 && is_worth_trying).then(|| wanted.max(self.store.shape.fsbpseg.into()))
    }

    /// Cleans in one pass, if clean segments have less than `percent` of the space without live
    /// blocks. Returns the number of segments that were cleaned, and whether there may be more to
    /// clean.
    async fn clean_in_advance(&self, percent: u8) -> Result<(u64, bool), BlockError> {
        let _one = self.one.lock().await;
        if self.is_stopped.get() || self.wanted_for(percent).is_none() {
            return Ok((0, false));
        }
        self.free_empty().await?;
        let Some(wanted) = self.wanted_for(percent) else { return Ok((0, false)) };
        let before = self.store.state.borrow().space();
        let live_max = u64::from(self.store.shape.ssize) / 10 * LIVE_TENTHS;
        let cleaned = self.counts().segments;
        self.pass(self.cleaning.policy, wanted, live_max).await?;
        self.free_empty().await?;
        let cleaned = self.counts().segments - cleaned;
        let state = self.store.state.borrow();
        let has_gained = state.space() > before;
        if !has_gained {
            let now = Fruitless { used: state.used(), space: state.space() };
            self.idle_fruitless.set(Some(now));
        }
        Ok((cleaned, has_gained))
    }

    /// Cleans in one pass while idle. Returns whether there may be more to clean.
    async fn clean_when_idle(&self) -> Result<bool, BlockError> {
        let (cleaned, has_more) = self.clean_in_advance(self.cleaning.clean_low).await?;
        let mut counts = self.counts();
        counts.idle_segments += cleaned;
        self.counts.set(counts);
        Ok(has_more)
    }
}

/// The task of idle cleaning: waits for `idle` without an operation, and cleans.
async fn idle_task(cleaner: Weak<Cleaner>, idle: Duration) {
    loop {
        let Some(strong) = cleaner.upgrade() else { return };
        let (runtime, before) = (strong.store.cache.runtime().clone(), strong.activity());
        drop(strong);
        runtime.sleep(idle).await;
        let Some(strong) = cleaner.upgrade() else { return };
        while strong.activity() == before {
            // The cache keeps a failure of the device, and the next sync reports it.
            if !strong.clean_when_idle().await.unwrap_or(false) {
                strong.has_idle_task.set(false);
                return;
            }
        }
    }
}

/// The task that looks every few seconds whether clean segments run low, and then cleans in one
/// pass.
async fn busy_task(cleaner: Weak<Cleaner>, every: Duration) {
    loop {
        let Some(strong) = cleaner.upgrade() else { return };
        let runtime = strong.store.cache.runtime().clone();
        drop(strong);
        runtime.sleep(every).await;
        let Some(strong) = cleaner.upgrade() else { return };
        // The cache keeps a failure of the device, and the next sync reports it.
        let cleaned = strong.clean_in_advance(strong.cleaning.busy_low).await;
        if !cleaned.is_ok_and(|(_, has_more)| has_more) {
            strong.has_busy_task.set(false);
            return;
        }
    }
}
