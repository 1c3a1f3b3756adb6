//! A semaphore: a counted resource.

use std::cell::Cell;

use super::{Abandoned, WaitQueue};

/// A number of permits. Tasks wait, first come, first served, until the permits that they ask for
/// are free.
pub struct Semaphore {
    free: Cell<u64>,
    queue: WaitQueue,
}

/// Held permits, which are given back when dropped.
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    amount: u64,
}

impl Semaphore {
    /// A semaphore with `permits` permits, which a deadlock report calls `what` with the number
    /// `id`.
    pub const fn new(permits: u64, what: &'static str, id: u64) -> Semaphore {
        Semaphore { free: Cell::new(permits), queue: WaitQueue::new(what, id) }
    }

    /// Takes `amount` permits, and waits for them behind earlier waiters.
    pub async fn acquire(&self, amount: u64) -> Permit<'_> {
        if self.queue.is_empty() && self.free.get() >= amount {
            self.free.set(self.free.get() - amount);
        } else {
            let return_permits = |abandoned| match abandoned {
                Abandoned::Granted => self.release(amount),
                // Waiters behind this one may ask for less, so they are tried.
                Abandoned::Queued => self.release(0),
            };
            self.queue.wait(amount, return_permits).await;
        }
        Permit { semaphore: self, amount }
    }

    /// Takes `amount` permits if they are free now.
    pub fn try_acquire(&self, amount: u64) -> Option<Permit<'_>> {
        (self.queue.is_empty() && self.free.get() >= amount).then(|| {
            self.free.set(self.free.get() - amount);
            Permit { semaphore: self, amount }
        })
    }

    /// Adds `amount` permits.
    pub fn release(&self, amount: u64) {
        self.free.set(self.free.get() + amount);
        while let Some(wanted) = self.queue.first_amount() {
            if wanted > self.free.get() {
                break;
            }
            self.free.set(self.free.get() - wanted);
            self.queue.grant_first();
        }
    }

    /// The number of free permits.
    pub fn available(&self) -> u64 {
        self.free.get()
    }
}

impl Permit<'_> {
    /// Keeps the permits for good: they are never given back.
    pub fn forget(mut self) {
        self.amount = 0;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.semaphore.release(self.amount);
        }
    }
}
