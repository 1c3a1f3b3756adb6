//! A signal without a value.

use super::{Abandoned, WaitQueue};

/// A signal that wakes tasks waiting for a change. A notification without a waiter is lost. So a
/// task must check its condition and then wait, with no await between the two.
pub struct Notify {
    queue: WaitQueue,
}

impl Notify {
    /// A signal that a deadlock report calls `what` with the number `id`.
    pub const fn new(what: &'static str, id: u64) -> Notify {
        Notify { queue: WaitQueue::new(what, id) }
    }

    /// Waits for the next notification.
    pub async fn notified(&self) {
        let pass_on = |abandoned| {
            if abandoned == Abandoned::Granted {
                self.notify_one();
            }
        };
        self.queue.wait(0, pass_on).await;
    }

    /// Wakes the task that has waited longest. If that task is dropped before it runs, the next one
    /// is woken.
    pub fn notify_one(&self) {
        self.queue.grant_first();
    }

    /// Wakes every task that waits now, but none that begins to wait later.
    pub fn notify_all(&self) {
        self.queue.release_all();
    }

    /// Whether any task waits.
    pub fn has_waiters(&self) -> bool {
        !self.queue.is_empty()
    }
}
