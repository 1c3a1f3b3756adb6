//! The syncer: writes buffers that are due, and begins earlier if they could not be written in time
//! otherwise.

use ordo_runtime::{Duration, sync::select};

use crate::Cache;

/// The shortest interval between two rounds: once a second, as in the classic syncer.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Starts the syncer of a cache. It ends with the executor, and sets no timer when nothing is
/// dirty.
pub(crate) fn start(cache: &Cache) {
    let shared = std::rc::Rc::downgrade(&cache.shared);
    cache.shared.runtime.spawn_daemon("syncer", async move {
        while let Some(shared) = shared.upgrade() {
            round(&Cache { shared }).await;
        }
    });
}

/// Waits until something is due, and writes it. The cache keeps failures.
async fn round(cache: &Cache) {
    let shared = &cache.shared;
    if cache.is_behind() && cache.failure().is_none() {
        let now = shared.runtime.now();
        let due = shared.dirty.borrow().first_due().is_some_and(|due| due <= now);
        if due {
            let _ = cache.write_due().await;
        }
        let relieve = cache.is_behind() && cache.failure().is_none();
        if relieve && !cache.write_some(shared.config.dirty_max / 4).await.unwrap_or(false) {
            shared.gate.wait_for_progress().await;
        }
        return;
    }
    let first_due = shared.dirty.borrow().first_due();
    let now = shared.runtime.now();
    match first_due {
        None => shared.syncer_wake.notified().await,
        Some(due) if due > now => {
            let nap = shared.runtime.sleep(due.since(now).min(TICK));
            select(shared.syncer_wake.notified(), nap).await;
        }
        Some(_) => {
            let _ = cache.write_due().await;
            let _ = cache.barrier_if_needed().await;
            if cache.failure().is_some() {
                shared.runtime.sleep(TICK).await;
            }
        }
    }
}
