//! Results of operations of trait objects: there at once, or to wait for.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future in a box, for one thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The result of an operation that seldom has to wait. A result that is there at once allocates nothing.
///
/// ```
/// use ordo_runtime::{Executor, Outcome};
/// fn halve(n: u32) -> Outcome<'static, u32> {
///     if n == 0 { Outcome::now(0) } else { Outcome::later(async move { n / 2 }) }
/// }
/// let sum = Executor::simulated(1).block_on(async { halve(0).await + halve(8).await });
/// assert_eq!(sum.unwrap(), 4);
/// ```
#[must_use = "the operation may not have begun before it is awaited"]
pub struct Outcome<'a, T>(State<'a, T>);

enum State<'a, T> {
    Now(Option<T>),
    Later(LocalFuture<'a, T>),
}

impl<'a, T> Outcome<'a, T> {
    /// A result that is there.
    #[inline]
    pub fn now(result: T) -> Self {
        Outcome(State::Now(Some(result)))
    }

    /// The result of `operation`, which begins when the outcome is awaited.
    pub fn later(operation: impl Future<Output = T> + 'a) -> Self {
        Outcome(State::Later(Box::pin(operation)))
    }
}

impl<T: Unpin> Future for Outcome<'_, T> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            State::Now(result) => Poll::Ready(result.take().expect("awaited once")),
            State::Later(operation) => operation.as_mut().poll(context),
        }
    }
}
