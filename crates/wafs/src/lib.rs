//! WAFS, the write-ahead file system: one log on a device, or a part of one, for whoever needs a log.
//!
//! A log is a sequence of records. Appending gives a record its log sequence number (LSN), a logical
//! offset that only grows; forcing makes everything before an LSN durable; records can be read from any
//! LSN on, or one by its LSN; what is not needed any more is given up at the old end.
//!
//! Source: journaling-versus-soft-updates-2000, section 5.2 (operations, LSNs, the ring, superblocks
//! written infrequently) and 5.3 (the end is found by reading on from the last checkpoint, by timestamps
//! and checksums). The format is in `docs/formats/wafs.md`.
//!
//! Layers, lowest first:
//! - [`ring`]: from log sequence numbers to sectors and back.
//! - [`mod@mkfs`], [`mod@mount`]: making a log; finding its superblock and its end.
//! - [`Wafs`]: appending, forcing, group commit, checkpoints. [`read`]: reading.
//!
//! Invariants:
//! - What [`Wafs::force`] has returned for survives every crash; what survives is a prefix of what was
//!   appended.
//! - At most one write of the log is under way. A sector that is written again holds what it held,
//!   and more: devices write a sector whole or not at all.
//! - Nothing from the start that the superblock on the device names is overwritten.
//! - Sectors carry the mount they were written under. What an older mount has lost can not come back
//!   behind what a newer one wrote.
//!
//! Lock order: group commit's leader, then the writer's lock. Both are held over I/O; nobody who holds
//! them appends.
//!
//! ```
//! use ordo_block::{BlockDevice, ram::RamDisk};
//! use ordo_wafs::{MkfsOptions, MountOptions, Wafs, mkfs};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let rt = executor.runtime();
//! let disk = RamDisk::new(1 << 20).erase();
//! executor.block_on(async {
//!     mkfs(&disk, &MkfsOptions::default(), rt.wall_time().0).await.unwrap();
//!     let log = Wafs::mount(&rt, disk.clone(), &MountOptions::default()).await.unwrap();
//!     let hello = log.append(b"hello").unwrap();
//!     log.force(hello.end).await.unwrap();
//!     assert_eq!(log.read(hello.lsn).await.unwrap().bytes, b"hello");
//! }).unwrap();
//! ```

mod error;
mod log;
pub mod mkfs;
pub mod mount;
pub mod read;
pub mod ring;
mod write;

pub use error::LogError;
pub use log::{Appended, GroupCommit, LogRules, LogStats, MountOptions, Turn, Wafs};
pub use mkfs::{MkfsOptions, mkfs};
pub use mount::Mounted;
pub use read::{Reader, Record, RecordRef};

/// A log sequence number: a logical offset in the log, in bytes.
pub type Lsn = u64;
