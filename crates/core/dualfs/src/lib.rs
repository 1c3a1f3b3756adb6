//! DualFS: the contents of regular files in groups of blocks on one device, all metadata in a log on another.
//!
//! Source: Piernas, Cortes and García, "Traditional versus Next-Generation Journaling File Systems: a Performance Comparison
//! Approach" (2007), section 2. The format is Ordo's own: `docs/formats/dualfs.md`.
//!
//! Layers, lowest first:
//! - [`mirror`]: two halves as one metadata device. All other layers see that device.
//! - [`pair`]: finding the two devices, and whether they belong together.
//! - [`groups`]: which blocks of the data device are free, and which of them a file gets.
//! - [`mkfs`]: making an empty pair.
//! - [`mod@mount`]: mounting [`ordo_lfs`]'s log as the metadata log, with the groups as the places of contents.
//! - [`salvage`]: reading without the metadata device, by the copy of the metadata that the data device may keep.
//!
//! Invariants:
//! - The data device has contents of regular files and its identity. There is one copy of each piece of metadata that a mount
//!   reads, in the log; the copy on the data device is for when the log is lost, and a block that it leads to is another file's
//!   only when a newer one is complete ([`DualRules::COPIED`]).
//! - New contents are durable before the partial segment with the pointers to them is written ([`DualRules::CONTENTS`]).
//! - A block that a file has lost is given to another file only when the loss is durable ([`DualRules::FREED`]).
//! - At a checkpoint, the group tables in the IFILE agree with the files' pointers. Behind a checkpoint, rolling
//!   forward finds the difference.
//! - A block is promised to a file when the file gets it, and given its place when it is written, which cannot
//!   fail.
//! - No contents of a device cause a panic. Two devices that were not mounted together the last time are refused.
//!
//! Typical sequence: [`mkfs::mkfs`]; [`mount::mount`]; the operations of `FileSystem`; `unmount`.
//!
//! ```
//! use ordo_block::{BlockDevice, ram::RamDisk};
//! use ordo_dualfs::{DualError, mkfs, mount};
//! use ordo_vfs::{FileSystem, NewNode};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let rt = executor.runtime();
//! executor.block_on(async {
//!     let disks = [RamDisk::new(16 << 20).erase(), RamDisk::new(64 << 20).erase()];
//!     mkfs::mkfs(&rt, &disks, &mkfs::MkfsOptions::default()).await.unwrap();
//!     let fs = mount::mount(&rt, &disks, &mount::MountOptions::default()).await.unwrap();
//!     fs.create(fs.root(), b"hello", &NewNode::file(0o644)).await.unwrap();
//!     fs.unmount().await.unwrap();
//!     let swapped = [disks[1].clone(), disks[0].clone()];
//!     let refused = mount::mount(&rt, &swapped, &mount::MountOptions::default()).await;
//!     assert!(matches!(refused, Err(DualError::Pair(_))));
//! }).unwrap();
//! ```
#![forbid(unsafe_code)]

mod error;
pub mod groups;
pub mod mirror;
pub mod mkfs;
pub mod mount;
pub mod pair;
pub mod salvage;

pub use error::DualError;
pub use ordo_lfs::data::DualRules;

/// A mounted file system.
pub type DualFs = ordo_lfs::write::LogFs;
