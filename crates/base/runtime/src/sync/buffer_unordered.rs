//! Concurrency in one task: many futures under way at once (`join_all`, `buffer_unordered`).

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// The waker of the task in which the futures run.
type Outer = Arc<Mutex<Waker>>;

/// The waker of one future: it notes that the future can go on, and wakes the task.
struct Signal {
    is_woken: AtomicBool,
    outer: Outer,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.outer.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}

/// A future under way, with its number.
struct UnderWay<F> {
    number: usize,
    future: Pin<Box<F>>,
    signal: Arc<Signal>,
    waker: Waker,
}

impl<F: Future> UnderWay<F> {
    fn new(number: usize, future: F, outer: &Outer) -> UnderWay<F> {
        let signal = Arc::new(Signal { is_woken: AtomicBool::new(true), outer: outer.clone() });
        UnderWay { number, future: Box::pin(future), waker: signal.clone().into(), signal }
    }

    /// Polls the future if it was woken.
    fn poll(&mut self) -> Poll<F::Output> {
        if !self.signal.is_woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

/// Runs the futures, `width` of them at a time. `each` is called with each future's number and
/// output, in the order in which they end. The first error stops everything, and drops the futures
/// under way. A future is polled only when it was woken, so many that wait cost little.
///
/// # Errors
/// The first error that `each` returns.
pub async fn buffer_unordered<F: Future, E>(
    width: usize,
    futures: impl IntoIterator<Item = F>,
    mut each: impl FnMut(usize, F::Output) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = futures.into_iter().enumerate().fuse();
    let outer: Outer = Arc::new(Mutex::new(Waker::noop().clone()));
    let mut under_way: Vec<UnderWay<F>> = Vec::new();
    std::future::poll_fn(|cx| {
        outer.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cx.waker());
        let mut at = 0;
        loop {
            if at == under_way.len() && at < width.max(1) {
                let next = rest.next();
                under_way.extend(next.map(|(n, future)| UnderWay::new(n, future, &outer)));
            }
            let Some(one) = under_way.get_mut(at) else { break };
            match one.poll() {
                Poll::Pending => at += 1,
                Poll::Ready(output) => {
                    let number = under_way.swap_remove(at).number;
                    if let Err(error) = each(number, output) {
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
        if under_way.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::Future;
    use std::time::Duration;

    use super::buffer_unordered;
    use crate::Executor;

    /// Twelve sleeps, four at a time: they take the time of three, with never more than four under
    /// way, and give every output with its number. Catches a future that is lost, run alone, or
    /// polled after its end.
    #[test]
    fn at_most_n_futures_run_at_a_time() {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let now = Cell::new(0);
        let most = Cell::new(0);
        let sleeps = (0..12).map(|n| {
            let (rt, now, most) = (&rt, &now, &most);
            async move {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                rt.sleep(Duration::from_millis(5)).await;
                now.set(now.get() - 1);
                n * 10
            }
        });
        let mut seen = [false; 12];
        let all = buffer_unordered(4, sleeps, |n, output| {
            assert_eq!(output, n * 10);
            assert!(!std::mem::replace(&mut seen[n], true));
            Ok::<(), ()>(())
        });
        executor.block_on(all).unwrap().unwrap();
        assert!(seen.iter().all(|seen| *seen));
        assert_eq!((most.get(), rt.now().as_nanos()), (4, 15_000_000));
    }

    /// A thousand futures sleep for different times, twice each: each is polled when it begins and
    /// when a sleep ends, and never because of another one. Catches a waker that wakes all, and one
    /// that is lost.
    #[test]
    fn only_futures_that_were_woken_are_polled() {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let polls = Cell::new(0);
        let sleeps = (1..=1000).map(|n| {
            let rt = &rt;
            let sleep = async move {
                rt.sleep(Duration::from_millis(n)).await;
                rt.sleep(Duration::from_millis(2 * n)).await;
            };
            let mut sleep = Box::pin(sleep);
            let polls = &polls;
            std::future::poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                sleep.as_mut().poll(cx)
            })
        });
        let all = buffer_unordered(1000, sleeps, |_, ()| Ok::<(), ()>(()));
        executor.block_on(all).unwrap().unwrap();
        assert_eq!((polls.get(), rt.now().as_nanos()), (3000, 3_000_000_000));
    }

    /// An error ends the run at once.
    #[test]
    fn the_first_error_ends_the_run() {
        let executor = Executor::simulated(1);
        let futures = (0..5).map(|n| async move { n });
        let all = buffer_unordered(1, futures, |_, n| if n == 2 { Err(n) } else { Ok(()) });
        assert_eq!(executor.block_on(all).unwrap(), Err(2));
    }
}
