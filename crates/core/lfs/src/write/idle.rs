//! Cleaning while the file system is idle.
//!
//! The end of an operation starts a task, unless the task runs already. When no operation has come for the time of
//! [`Cleaning::idle`](super::Cleaning), the task cleans, pass by pass, until there are enough clean segments, cleaning
//! gains nothing, or an operation comes. Then the task ends, so that an idle file system sets no timers.

use std::rc::Weak;

use ordo_block::BlockError;
use ordo_runtime::Duration;
use ordo_runtime::sync::MutexGuard;

use super::cleaner::{Cleaner, Fruitless};

/// The fullest segment that is cleaned while idle, in tenths of live bytes.
const LIVE_TENTHS: u64 = 9;

impl Cleaner {
    /// Starts the task, if idle cleaning is wanted and the task does not run.
    pub(super) fn watch(&self) {
        let Some(idle) = self.cleaning.idle else { return };
        if self.is_resting.get() || self.is_watched.replace(true) {
            return;
        }
        let runtime = self.store.cache.runtime();
        runtime.spawn_daemon("the idle cleaner", watch(self.own.clone(), idle));
    }

    /// Waits until no segment is being cleaned, and ends idle cleaning for good.
    pub async fn rest(&self) -> MutexGuard<'_, ()> {
        self.is_resting.set(true);
        self.one.lock().await
    }

    /// The number of fragments that idle cleaning should gain; `None` if clean segments are enough of the free space.
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
        if self.is_resting.get() || self.wanted_when_idle().is_none() {
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

async fn watch(cleaner: Weak<Cleaner>, idle: Duration) {
    loop {
        let Some(strong) = cleaner.upgrade() else { return };
        let (runtime, before) = (strong.store.cache.runtime().clone(), strong.activity());
        drop(strong);
        runtime.sleep(idle).await;
        let Some(strong) = cleaner.upgrade() else { return };
        while strong.activity() == before {
            // The cache keeps a failure of the device, and the next sync reports it.
            if !strong.clean_when_idle().await.unwrap_or(false) {
                strong.is_watched.set(false);
                return;
            }
        }
    }
}
