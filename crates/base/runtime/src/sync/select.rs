//! Waiting for the first of two futures (`select`).

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

/// Waits until one of two futures is done, and drops the other. `a` is polled first.
pub async fn select(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let mut a = pin!(a);
    let mut b = pin!(b);
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await
}
