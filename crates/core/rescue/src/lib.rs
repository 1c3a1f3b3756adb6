//! Reading a damaged UFS1 or UFS2: whatever can be read is, and whatever cannot is noted.
//!
//! A file system that is mounted stops at damage, since its next step could make it worse. Here
//! nothing is ever written, so reading goes on past a damaged entry, a wrong check-hash, an address
//! that cannot be right and a part of the device that cannot be read. What is missing then reads as
//! zeros, or is left out, and is in the list of [`RescueFs::left_out`] with its inode and reason.
//!
//! Layers: `source` reads a device, part of which may be unreadable ([`Mapfile`]). `volume` finds
//! the superblock or a copy, and reads inodes. `contents` maps and reads files. `directory` reads
//! entries, also of removed names. `fs` is the [`FileSystem`](ordo_vfs::FileSystem).
//!
//! Invariants:
//! - Nothing is written.
//! - No device contents cause a panic, an endless loop, or memory out of proportion.
//! - No error stops the reader but that of a caller who asks for what is lost.
//!
//! ```
//! use ordo_block::BlockDevice;
//! use ordo_block::ram::RamDisk;
//! use ordo_rescue::{RescueError, RescueFs, Unreadable};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let disk = RamDisk::new(1 << 20).erase();
//! let opened = executor.block_on(RescueFs::open(&disk, Unreadable::default())).unwrap();
//! assert!(matches!(opened, Err(RescueError::NoSuperblock)));
//! ```
#![forbid(unsafe_code)]

mod contents;
mod directory;
mod fs;
mod mapfile;
mod notes;
mod source;
mod volume;

pub use directory::{DeletedEntry, DeletedState};
pub use fs::RescueFs;
pub use mapfile::{Mapfile, MapfileError};
pub use notes::{LeftOut, Reason};
pub use source::Unreadable;
pub use volume::RescueError;
