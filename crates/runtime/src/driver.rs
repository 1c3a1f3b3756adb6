//! Real I/O: what a task submits and the executor waits for when nothing is ready.

use crate::time::Duration;

/// Where I/O is carried out.
pub(crate) struct Driver;

impl Driver {
    /// Carries each request out at once, in the call that submits it: for virtual time.
    pub(crate) fn inline() -> Driver {
        Driver
    }

    /// io_uring, or a pool of threads where it is refused.
    pub(crate) fn real() -> Driver {
        Driver
    }

    /// Whether any request is under way.
    pub(crate) fn busy(&self) -> bool {
        false
    }

    /// Takes in completions without waiting; true when there was one.
    pub(crate) fn poll(&self) -> bool {
        false
    }

    /// Waits for a completion, at most `timeout`; true when there was one.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        if let Some(t) = timeout {
            std::thread::sleep(t);
        }
        false
    }
}
