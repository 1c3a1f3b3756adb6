//! Results of operations of trait objects: there at once, or to wait for.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future in a box, for one thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The result of an operation that seldom has to wait. A result that is there at once allocates
/// nothing.
///
/// ```
/// use ordo_runtime::{Executor, MaybeFuture};
/// fn halve(n: u32) -> MaybeFuture<'static, u32> {
///     if n == 0 { MaybeFuture::ready(0) } else { MaybeFuture::boxed(async move { n / 2 }) }
/// }
/// let sum = Executor::simulated(1).block_on(async { halve(0).await + halve(8).await });
/// assert_eq!(sum.unwrap(), 4);
/// ```
#[must_use = "the operation may not have begun before it is awaited"]
pub struct MaybeFuture<'a, T>(State<'a, T>);

enum State<'a, T> {
    Ready(Option<T>),
    Boxed(LocalFuture<'a, T>),
}

impl<'a, T> MaybeFuture<'a, T> {
    /// A result that is there at once.
    #[inline]
    pub fn ready(result: T) -> Self {
        MaybeFuture(State::Ready(Some(result)))
    }

    /// The result, if it is there and was not taken.
    pub fn result(&self) -> Option<&T> {
        match &self.0 {
            State::Ready(result) => result.as_ref(),
            State::Boxed(_) => None,
        }
    }

    /// The result of `operation`, which begins when this is awaited.
    pub fn boxed(operation: impl Future<Output = T> + 'a) -> Self {
        MaybeFuture(State::Boxed(Box::pin(operation)))
    }
}

impl<T: Unpin> Future for MaybeFuture<'_, T> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            State::Ready(result) => Poll::Ready(result.take().expect("awaited once")),
            State::Boxed(operation) => operation.as_mut().poll(context),
        }
    }
}
