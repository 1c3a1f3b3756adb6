//! Locks and signals between tasks of one executor.
//!
//! Every primitive has a name and a number, which a deadlock report prints. Waiters are served
//! first come, first served. No primitive may be shared between executors.

mod buffer_unordered;
mod lock;
mod notify;
pub mod oneshot;
mod select;
mod semaphore;

pub use buffer_unordered::buffer_unordered;
pub use lock::{Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
pub use notify::Notify;
pub use select::select;
pub use semaphore::{Permit, Semaphore};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::executor::WaitingFor;

thread_local! {
    /// The object for which the task being polled on this thread waits; the executor reads it after
    /// each poll.
    static WAIT: Cell<Option<WaitingFor>> = const { Cell::new(None) };
}

pub(crate) fn take_wait() -> Option<WaitingFor> {
    WAIT.take()
}

pub(crate) fn note_wait(wait: WaitingFor) {
    WAIT.set(Some(wait));
}

/// The state of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Queued,
    /// The waiter was granted its request, but has not been polled since. If it is dropped now, it
    /// must give the grant back.
    Granted,
    /// The waiter was woken together with all others, so it has no grant to give back.
    Released,
    /// The waiter has seen its grant.
    Taken,
}

/// One waiter's place in a queue.
struct Slot {
    state: Cell<State>,
    /// The amount that the waiter asks for; its meaning depends on the primitive.
    amount: u64,
    waker: RefCell<Option<Waker>>,
}

/// The state in which a waiter's future was dropped before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// The waiter had been granted its request.
    Granted,
    /// The waiter was still in the queue, and may have blocked those behind it.
    Queued,
}

/// A first-come queue of waiters. The task that frees a resource grants it to a waiter.
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

    /// The amount that the first waiter asks for.
    pub(crate) fn first_amount(&self) -> Option<u64> {
        self.slots.borrow().front().map(|s| s.amount)
    }

    /// Grants the first waiter its request, and wakes it.
    pub(crate) fn grant_first(&self) -> bool {
        self.wake_first(State::Granted)
    }

    /// Wakes every waiter that is in the queue now.
    pub(crate) fn release_all(&self) {
        while self.wake_first(State::Released) {}
    }

    fn wake_first(&self, state: State) -> bool {
        let Some(slot) = self.slots.borrow_mut().pop_front() else { return false };
        slot.state.set(state);
        let waker = slot.waker.take();
        if let Some(w) = waker {
            w.wake();
        }
        true
    }

    /// Queues up for `amount` and waits for the grant. `on_abandon` is called when the waiter is
    /// dropped before it has seen its grant.
    pub(crate) async fn wait(&self, amount: u64, on_abandon: impl Fn(Abandoned)) {
        let state = Cell::new(State::Queued);
        let slot = Rc::new(Slot { state, amount, waker: RefCell::new(None) });
        self.slots.borrow_mut().push_back(slot.clone());
        let guard = Waiting { queue: self, slot, on_abandon };
        std::future::poll_fn(|cx| guard.poll(cx)).await
    }
}

struct Waiting<'a, F: Fn(Abandoned)> {
    queue: &'a WaitQueue,
    slot: Rc<Slot>,
    on_abandon: F,
}

impl<F: Fn(Abandoned)> Waiting<'_, F> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.slot.state.get() != State::Queued {
            self.slot.state.set(State::Taken);
            return Poll::Ready(());
        }
        *self.slot.waker.borrow_mut() = Some(cx.waker().clone());
        note_wait(self.queue.name);
        Poll::Pending
    }
}

impl<F: Fn(Abandoned)> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        match self.slot.state.get() {
            State::Taken | State::Released => {}
            State::Granted => (self.on_abandon)(Abandoned::Granted),
            State::Queued => {
                self.queue.slots.borrow_mut().retain(|s| !Rc::ptr_eq(s, &self.slot));
                (self.on_abandon)(Abandoned::Queued);
            }
        }
    }
}
