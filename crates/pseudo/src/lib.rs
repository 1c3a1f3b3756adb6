//! A pseudo-device: a block device of the kernel's whose every request is recorded, without a kernel module.
//!
//! Layers, from the kernel down: a loop device, opened so that it caches nothing; a file of a FUSE file system
//! that has nothing else in it ([`file`]), over io_uring where the kernel has that; or, for virtual machines and kernels
//! elsewhere, NBD ([`nbd`]). Beneath either: a tap; rules about writes; memory, an image, or a device ([`device`]). A
//! thread of its own serves the requests; [`Session`] or [`nbd::Nbd`] is held by whoever uses the device.
//!
//! Invariants:
//! - What the device is sent is what is recorded: in the order in which it comes, with its contents.
//! - A flush of the device is a flush at the tap, and ends when that has ended.
//! - Who watches sees a write before it is carried out, and decides what becomes of it.
//! - Whatever becomes of a session, the loop device and the mount go away with it.
//! - Whatever becomes of the process, who waits for the device waits for a second at most (`watchdog`).
//!
//! A session needs root, `/dev/fuse` and `losetup`; NBD needs none of them.
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

mod device;
mod file;
pub mod nbd;
mod session;
mod watchdog;

pub use device::{Before, Keep, MakeObserver, Observer, Place, Recording, Setup, Verdict};
pub use session::{PseudoError, Session};
