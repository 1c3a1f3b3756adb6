//! A channel for one value from one task to another.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::executor::WaitingFor;

struct Shared<T> {
    value: Option<T>,
    waker: Option<Waker>,
    closed: bool,
}

/// The sending half.
pub struct Sender<T>(Rc<RefCell<Shared<T>>>);

/// The receiving half: a future of the value, or of `None` if the sender was dropped.
pub struct Receiver<T> {
    shared: Rc<RefCell<Shared<T>>>,
    what: &'static str,
}

/// A channel for one value, which a deadlock report calls `what`.
pub fn channel<T>(what: &'static str) -> (Sender<T>, Receiver<T>) {
    let shared = Rc::new(RefCell::new(Shared { value: None, waker: None, closed: false }));
    (Sender(shared.clone()), Receiver { shared, what })
}

impl<T> Sender<T> {
    /// Sends the value and wakes the receiver.
    pub fn send(self, value: T) {
        self.0.borrow_mut().value = Some(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut shared = self.0.borrow_mut();
            shared.closed = true;
            shared.waker.take()
        };
        if let Some(w) = waker {
            w.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut shared = self.shared.borrow_mut();
        if let Some(v) = shared.value.take() {
            return Poll::Ready(Some(v));
        }
        if shared.closed {
            return Poll::Ready(None);
        }
        shared.waker = Some(cx.waker().clone());
        super::note_wait(WaitingFor { what: self.what, id: 0 });
        Poll::Pending
    }
}
