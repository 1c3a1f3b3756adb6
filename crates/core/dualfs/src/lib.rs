//! DualFS: the contents of regular files in groups of blocks on one device, all metadata in a log
//! on another.
//!
//! Source: Piernas, Cortes and García, "Traditional versus Next-Generation Journaling File Systems:
//! a Performance Comparison Approach" (2007), section 2. The format is Ordo's own:
//! `docs/formats/dualfs.md`.
//!
//! Layers, lowest first:
//! - [`pair`]: finding the two devices, and checking that they belong together.
//! - [`groups`]: which blocks of the data device are free, and which of them a file gets.
//! - [`mkfs`]: making an empty pair.
//! - [`mod@mount`]: mounting [`ordo_lfs`]'s log as the metadata log, with the groups as the
//!   allocator of contents.
//! - [`salvage`]: reading without the metadata device, from the copy of the metadata that the data
//!   device may keep.
//!
//! Invariants:
//! - The data device has the contents of regular files, its identity and, if wanted, a copy of the
//!   metadata. A mount reads metadata from the log only. The copy serves when the log is lost: a
//!   block to which it points is given to another file only when a newer copy is complete
//!   ([`DualRules::COPIED`]).
//! - New contents are durable before the partial segment with the pointers to them is written
//!   ([`DualRules::CONTENTS`]).
//! - A block that a file has lost is given to another file only when the loss is durable
//!   ([`DualRules::FREED`]).
//! - At a checkpoint, the group tables in the IFILE agree with the files' pointers. Behind a
//!   checkpoint, rolling forward finds the difference.
//! - A block is reserved when a file gets a new block, and allocated when that block is written. So
//!   the allocation cannot fail.
//! - No contents of a device cause a panic. Two devices that were not mounted together the last
//!   time are refused.
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
pub mod mkfs;
pub mod mount;
pub mod pair;
pub mod salvage;

pub use error::DualError;
pub use ordo_lfs::data::DualRules;

/// A mounted file system.
pub type DualFs = ordo_lfs::write::LogFs;
