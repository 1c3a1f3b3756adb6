//! A deterministic, single-threaded async runtime.
//!
//! Every core of the project consists of `async fn`s on this executor. In simulation the clock is
//! virtual and one seed fixes every choice, so the same seed gives the same bytes. In production
//! the same code runs in real time, with real I/O. Time, randomness and the order of tasks come
//! only from here.
//!
//! Layers, lowest first:
//! - [`time`]: [`Time`] in nanoseconds since the executor started.
//! - [`IoBuf`], and the driver under [`Runtime`]'s `read_at`, `write_at`, `sync_file` and
//!   `punch_hole`: real I/O on io_uring or threads, or at once under a virtual clock.
//! - [`executor`]: tasks, timers, seeded choice of the next task, deadlock reports.
//! - [`MaybeFuture`]: the result of a trait object's operation, there at once or to wait for.
//! - [`sync`]: mutex, read-write lock, semaphore, notify, one-shot.
//! - [`CalendarClient`]: a process outside whose clock the executor has.
//! - [`cpu`]: the price of processor work in virtual time.
//!
//! Invariants:
//! - One thread. A waker may be called from another thread; a task is polled only on the
//!   executor's.
//! - An executor with no ready task, no timer and no I/O under way, but with a task that is not a
//!   daemon, has proven a [`Deadlock`]. The report lists what each task waits for.
//! - Dropping the [`Executor`] drops every task at its present await. That is a crash.
//!
//! ```
//! use ordo_runtime::{Executor, time::Duration};
//! let executor = Executor::simulated(1);
//! let rt = executor.runtime();
//! let woke_at = executor
//!     .block_on(async {
//!         rt.sleep(Duration::from_millis(5)).await;
//!         rt.now()
//!     })
//!     .unwrap();
//! assert_eq!(woke_at.as_nanos(), 5_000_000);
//! ```

mod buf;
mod calendar;
pub mod cpu;
mod driver;
pub mod executor;
mod maybe_future;
pub mod sync;
mod tasks;
pub mod time;
mod timers;
mod wall;

#[cfg(test)]
mod tests;

pub use buf::{IoBuf, IoList};
pub use calendar::{CalendarClient, Entry};
pub use driver::{Backend, Command};
pub use executor::{Deadlock, Executor, Join, Runtime, Schedule};
pub use maybe_future::{LocalFuture, MaybeFuture};
pub use time::{Duration, Time};
pub use wall::VIRTUAL_EPOCH;
