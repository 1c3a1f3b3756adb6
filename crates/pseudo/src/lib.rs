//! A pseudo-device: a block device of the kernel's whose every request is recorded, without a kernel module.
//!
//! Layers, from the kernel down: a loop device, opened so that it caches nothing; a file of a FUSE file system
//! that has nothing else in it ([`file`]); a tap; memory. A thread of its own serves the requests; [`Session`] is
//! held by whoever uses the device.
//!
//! Invariants:
//! - What the device is sent is what is recorded: in the order in which it comes, with its contents.
//! - A flush of the device is a flush at the tap, and ends when that has ended.
//! - Whatever becomes of a session, the loop device and the mount go away with it.
//!
//! It needs root, `/dev/fuse` and `losetup`.
//!
//! ```no_run
//! let session = ordo_pseudo::Session::new(64 << 20)?;
//! // ... mkfs on session.device() ...
//! session.start()?;
//! // ... mount, work, unmount ...
//! let recording = session.finish()?;
//! println!("{} requests", recording.trace.requests().len());
//! # Ok::<_, ordo_pseudo::PseudoError>(())
//! ```
#![forbid(unsafe_code)]

mod file;
mod session;

pub use session::{PseudoError, Recording, Session};
