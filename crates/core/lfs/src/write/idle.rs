//! Cleaning while the file system is idle.
//!
//! The end of an operation starts a task, unless the task runs already. When no operation has begun for the time of
//! [`Cleaning::idle`](super::Cleaning), the task cleans in passes. It ends when there are enough clean segments or
//! cleaning gains nothing, so that an idle file system sets no timers. If an operation begins, the task waits again.

use std::rc::Weak;

use ordo_block::BlockError;
use ordo_runtime::Duration;
use ordo_runtime::sync::MutexGuard;

use super::cleaner::{Cleaner, Fruitless};

/// The fullest segment that is cleaned while idle, in tenths of live bytes.
const LIVE_TENTHS: u64 = 9;

impl Cleaner {
    /// Starts the task of idle cleaning, if it is wanted and does not run.
    pub(super) fn start_idle_task(&self) {
        let Some(idle) = self.cleaning.idle else { return };
        if self.is_stopped.get() || self.has_idle_task.replace(true) {
            return;
        }
        let runtime = self.store.cache.runtime();
        runtime.spawn_daemon("the idle cleaner", idle_task(self.own.clone(), idle));
    }

    /// Waits until no segment is being cleaned, and ends idle cleaning for good.
    pub async fn stop_idle(&self) -> MutexGuard<'_, ()> {
        self.is_stopped.set(true);
        self.one.lock().await
    }

    /// The number of fragments that idle cleaning should gain; `None` if there are enough clean segments.
    fn wanted_when_idle(&self) -> Option<i64> {
        let state = self.store.state.borrow();
        let live = state.used().div_ceil(self.store.shape.fsize.into()).cast_signed();
        let free = (self.store.capacity - live).max(0);
        let wanted = free * i64::from(self.cleaning.clean_low) / 100 - state.space();
        let (used, space) = (state.used(), state.space());
        let (bytes, frags) = (self.store.shape.ssize / 2, self.store.shape.fsbpseg / 2);
        let is_worth_trying = self.idle_fruitless.get().is_none_or(|then| {
            used + u64::from(bytes) <= then.used || space + i64::from(frags) <= then.space
        });
        (wanted > 0 && is_worth_trying).then(|| wanted.max(self.store.shape.fsbpseg.into()))
    }

    /// Cleans in one pass. Returns whether there may be more to clean.
    async fn clean_when_idle(&self) -> Result<bool, BlockError> {
        let _one = self.one.lock().await;
        if self.is_stopped.get() || self.wanted_when_idle().is_none() {
            return Ok(false);
        }
        self.free_empty().await?;
        let Some(wanted) = self.wanted_when_idle() else { return Ok(false) };
        let before = self.store.state.borrow().space();
        let live_max = u64::from(self.store.shape.ssize) / 10 * LIVE_TENTHS;
        let passes = self.counts().segments;
        self.pass(self.cleaning.policy, wanted, live_max).await?;
        self.free_empty().await?;
        let mut counts = self.counts();
        counts.idle_segments += counts.segments - passes;
        self.counts.set(counts);
        let state = self.store.state.borrow();
        let has_gained = state.space() > before;
        if !has_gained {
            let now = Fruitless { used: state.used(), space: state.space() };
            self.idle_fruitless.set(Some(now));
        }
        Ok(has_gained)
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
