//! A Linux kernel as a process, whose disks and whose clock are Ordo's: the kernel's file systems,
//! and any program, in virtual time, as any user.
//!
//! Layers, lowest first:
//! - `wire`, `memory`: messages over sockets, and the guest's memory.
//! - `disk`: a device of `block` as the guest's disk (vhost-user). `calendar`: its clock.
//! - [`orders`]: what the guest is asked to do. `control`: the disk by which it is asked.
//! - [`init`]: the guest's first process, which carries the orders out.
//! - [`kernel`]: where kernels come from. [`Guest`]: one that runs.
//!
//! Invariants:
//! - Nothing reaches the guest outside of virtual time: requests, results, orders and answers go
//!   over its disks, and its clock is the executor's. Its random numbers come from a seed.
//! - The guest's process runs only while the executor has nothing else to do; tasks only while it
//!   stands still. So one seed gives one run.
//! - The host's files can be read by the guest, and not written, but for what is shared.
//! - The kernel and all its processes end with the [`Guest`].
//!
//! ```no_run
//! use ordo_guest::{Guest, GuestSetup, Kernel, orders::{Order, GuestProgram}};
//! use ordo_runtime::Executor;
//! let executor = Executor::simulated(1);
//! let setup = GuestSetup::new(Kernel::find()?, "/usr/bin/ordo".into());
//! let guest = Guest::start(&executor.runtime(), setup)?;
//! let words = ["/bin/sleep", "60"].map(Into::into).to_vec();
//! let program = GuestProgram { words, dir: "/".into(), ..GuestProgram::default() };
//! executor.block_on(guest.ask(&Order::Run(program))).unwrap()?;
//! assert_eq!(executor.runtime().now().as_secs_f64().round(), 60.0); // in a moment
//! # Ok::<(), ordo_guest::GuestError>(())
//! ```

mod calendar;
mod calls;
mod control;
mod disk;
mod error;
mod guest;
pub mod init;
pub mod kernel;
mod memory;
pub mod orders;
mod wire;

pub use error::GuestError;
pub use guest::{Guest, GuestSetup, end_all};
pub use kernel::Kernel;
