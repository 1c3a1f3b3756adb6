//! A pseudo-device: a kernel block device that records every request, without a kernel module.
//!
//! Layers, from the kernel down: a loop device, opened so that it caches nothing; a FUSE file
//! system with the device as a file ([`file`]), over io_uring where the kernel has that. For
//! virtual machines and other kernels there is NBD instead ([`nbd`]). Beneath either: a tap, rules
//! about writes, and memory, an image, or a device (`device`). A thread of its own serves the
//! requests; the user of the device holds a [`Session`] or an [`nbd::Nbd`]. A file system of the
//! same thread uses a [`RecordedDisk`], which has only the part beneath, and a [`MarkFile`] for
//! marks.
//!
//! Invariants:
//! - The recording has every request to the device, in the order of arrival, with its contents.
//! - A flush of the device is a flush at the tap, and ends when that flush has ended.
//! - An observer sees a write before it is carried out, and decides whether it is. One that decides
//!   nothing sees it later (`later`), so that naming a block takes no time of the program that
//!   waits; the order is the same.
//! - The loop device and the mount go away with their session, however it ends.
//! - Temporary folders of a process that is killed are found again ([`leftovers`]).
//! - An observer may take a turn between requests: then none is under way (`turns`).
//! - When the process dies, tasks that wait for the device wait for at most a second (`watchdog`).
//!
//! A session needs root, `/dev/fuse` and loop devices; NBD needs none of them.
//!
//! ```no_run
//! let session = ordo_recorder::Session::new(64 << 20)?;
//! // ... mkfs on session.device() ...
//! session.start()?;
//! // ... mount, work, unmount ...
//! let recording = session.finish()?;
//! println!("{} requests", recording.trace.requests().len());
//! # Ok::<_, ordo_recorder::PseudoError>(())
//! ```
#![forbid(unsafe_code)]

mod device;
mod file;
mod folders;
mod later;
mod markfile;
mod marks;
pub mod nbd;
mod session;
mod storage;
mod turns;
mod watchdog;

pub use device::{
    Before, DeviceSetup, IsUrgent, KeepRequests, MakeObserver, Observer, RecordedDisk, Recording,
    RequestDecision, Transport,
};
pub use folders::{
    Folder, Leftover, drop_mounts_of_others, leftovers, remove_leftovers, remove_own,
};
pub use markfile::{MarkFile, MarkLines, MarkServer};
pub use session::{PseudoError, Session, serve_marks};
pub use storage::DeviceContents;
pub use watchdog::WatchedMount;
