//! A signal without a value.

use super::WaitQueue;

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
        // An abandoned wake-up goes to the next waiter.
        self.queue.wait(0, || self.notify_one()).await
    }

    /// Wakes the task that has waited longest.
    pub fn notify_one(&self) {
        self.queue.grant_first();
    }

    /// Wakes every task that waits now.
    pub fn notify_all(&self) {
        while self.queue.grant_first() {}
    }

    /// Whether any task waits.
    pub fn has_waiters(&self) -> bool {
        !self.queue.is_empty()
    }
}
