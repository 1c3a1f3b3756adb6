//! Writes that go on while their client does something else (`aiowrite`).

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use ordo_vfs::FsResult;

/// The writes of one client that are under way, and the first error of those that are done.
pub(super) struct Background<'f> {
    under_way: Vec<Pin<Box<dyn Future<Output = FsResult<()>> + 'f>>>,
    result: FsResult<()>,
}

impl<'f> Background<'f> {
    pub(super) fn new() -> Background<'f> {
        Background { under_way: Vec::new(), result: Ok(()) }
    }

    pub(super) fn start(&mut self, write: impl Future<Output = FsResult<()>> + 'f) {
        self.under_way.push(Box::pin(write));
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        let mut at = 0;
        while at < self.under_way.len() {
            match self.under_way[at].as_mut().poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(done) => {
                    drop(self.under_way.swap_remove(at));
                    if self.result.is_ok() {
                        self.result = done;
                    }
                }
            }
        }
    }

    /// Waits for a future while the writes go on.
    pub(super) async fn beside<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            self.poll(cx);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Waits until at most `most` writes are under way.
    pub(super) async fn until(&mut self, most: usize) {
        std::future::poll_fn(|cx| {
            self.poll(cx);
            if self.under_way.len() <= most { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(super) fn count(&self) -> usize {
        self.under_way.len()
    }

    /// The result of the writes that are done: the first error, once.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn result(&mut self) -> FsResult<()> {
        std::mem::replace(&mut self.result, Ok(()))
    }
}
