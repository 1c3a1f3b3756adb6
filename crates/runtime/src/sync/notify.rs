//! A signal without a value.

use super::{Abandoned, WaitQueue};

/// Wakes tasks that wait for something to change. A notification without a waiter is lost: check the
/// condition, then wait, with no await between the two.
pub struct Notify {
    queue: WaitQueue,
}

impl Notify {
    /// A signal that a deadlock report calls `what` number `id`.
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

    /// Wakes the task that has waited longest. If it is dropped before it runs, the next is woken.
    pub fn notify_one(&self) {
        self.queue.grant_first();
    }

    /// Wakes every task that waits now; one that begins to wait later is not woken by this.
    pub fn notify_all(&self) {
        self.queue.release_all();
    }

    /// Whether any task waits.
    pub fn has_waiters(&self) -> bool {
        !self.queue.is_empty()
    }
}
