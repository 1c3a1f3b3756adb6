//! Locks and signals between tasks of one executor.
//!
//! Every primitive has a name and a number, which a deadlock report prints. Waiters are served first
//! come, first served. None of them may be held across executors.

mod first;
mod lock;
mod notify;
pub mod oneshot;
mod semaphore;

pub use first::first;
pub use lock::{Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
pub use notify::Notify;
pub use semaphore::{Permit, Semaphore};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::executor::WaitingFor;

thread_local! {
    /// What the task being polled on this thread waits for; read by the executor after each poll.
    static WAIT: Cell<Option<WaitingFor>> = const { Cell::new(None) };
}

pub(crate) fn take_wait() -> Option<WaitingFor> {
    WAIT.take()
}

pub(crate) fn note_wait(wait: WaitingFor) {
    WAIT.set(Some(wait));
}

/// One waiter's place in a queue.
struct Slot {
    granted: Cell<bool>,
    /// How much it asks for; meaning depends on the primitive.
    amount: u64,
    waker: RefCell<Option<Waker>>,
}

/// A first-come queue of waiters, each of which is granted by whoever frees what it asked for.
pub(crate) struct WaitQueue {
    name: WaitingFor,
    slots: RefCell<VecDeque<Rc<Slot>>>,
}

impl WaitQueue {
    pub(crate) const fn new(what: &'static str, id: u64) -> WaitQueue {
        WaitQueue { name: WaitingFor { what, id }, slots: RefCell::new(VecDeque::new()) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.borrow().is_empty()
    }

    /// What the first waiter asks for.
    pub(crate) fn first_amount(&self) -> Option<u64> {
        self.slots.borrow().front().map(|s| s.amount)
    }

    /// Grants the first waiter what it asked for and wakes it.
    pub(crate) fn grant_first(&self) -> bool {
        let Some(slot) = self.slots.borrow_mut().pop_front() else { return false };
        slot.granted.set(true);
        if let Some(w) = slot.waker.take() {
            w.wake();
        }
        true
    }

    /// Queues up for `amount` and waits to be granted. `on_abandon` gives back a grant whose waiter
    /// was dropped between being granted and being polled.
    pub(crate) async fn wait(&self, amount: u64, on_abandon: impl Fn()) {
        let slot = Rc::new(Slot { granted: Cell::new(false), amount, waker: RefCell::new(None) });
        self.slots.borrow_mut().push_back(slot.clone());
        let guard = Waiting { queue: self, slot, taken: Cell::new(false), on_abandon };
        std::future::poll_fn(|cx| guard.poll(cx)).await
    }
}

struct Waiting<'a, F: Fn()> {
    queue: &'a WaitQueue,
    slot: Rc<Slot>,
    taken: Cell<bool>,
    on_abandon: F,
}

impl<F: Fn()> Waiting<'_, F> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.slot.granted.get() {
            self.taken.set(true);
            return Poll::Ready(());
        }
        *self.slot.waker.borrow_mut() = Some(cx.waker().clone());
        note_wait(self.queue.name);
        Poll::Pending
    }
}

impl<F: Fn()> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        if self.taken.get() {
            return;
        }
        if self.slot.granted.get() {
            (self.on_abandon)();
        } else {
            self.queue.slots.borrow_mut().retain(|s| !Rc::ptr_eq(s, &self.slot));
        }
    }
}
