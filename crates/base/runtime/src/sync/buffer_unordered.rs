//! Concurrency in one task: many futures under way at once (`join_all`, `buffer_unordered`).

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// Runs the futures, `width` of them at a time. `each` is called with each future's number and output, in the
/// order in which they end. The first error stops everything, and drops the futures under way.
///
/// # Errors
/// The first error that `each` returns.
pub async fn buffer_unordered<F: Future, E>(
    width: usize,
    futures: impl IntoIterator<Item = F>,
    mut each: impl FnMut(usize, F::Output) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = futures.into_iter().enumerate().fuse();
    let mut under_way: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    std::future::poll_fn(|cx| {
        let mut at = 0;
        loop {
            if at == under_way.len() && at < width.max(1) {
                under_way.extend(rest.next().map(|(n, future)| (n, Box::pin(future))));
            }
            let Some((n, future)) = under_way.get_mut(at) else { break };
            match future.as_mut().poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(output) => {
                    let n = *n;
                    drop(under_way.swap_remove(at));
                    if let Err(error) = each(n, output) {
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
    use std::time::Duration;

    use super::buffer_unordered;
    use crate::Executor;

    /// Twelve sleeps, four at a time: they take the time of three, with never more than four under way, and give
    /// every output with its number. Catches a future that is lost, run alone, or polled after its end.
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

    /// An error ends the run at once.
    #[test]
    fn the_first_error_ends_the_run() {
        let executor = Executor::simulated(1);
        let futures = (0..5).map(|n| async move { n });
        let all = buffer_unordered(1, futures, |_, n| if n == 2 { Err(n) } else { Ok(()) });
        assert_eq!(executor.block_on(all).unwrap(), Err(2));
    }
}
