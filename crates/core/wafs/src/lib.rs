//! WAFS, the write-ahead file system: one log on a device, or on a part of one, for any program
//! that needs a log.
//!
//! A log is a sequence of records. Appending gives a record its log sequence number (LSN), a
//! logical offset that only grows. Forcing makes everything before an LSN durable. Records can be
//! read in order from any record on, or one by one by their LSNs. Records that are not needed any
//! more are freed, oldest first.
//!
//! Source: journaling-versus-soft-updates-2000, section 5.2 (operations, LSNs, the ring,
//! superblocks written infrequently) and 5.3 (the end is found by reading on from the last
//! checkpoint, by timestamps and checksums). `docs/formats/wafs.md` describes the format.
//!
//! Layers, lowest first:
//! - [`ring`]: the mapping between log sequence numbers and sectors.
//! - [`mod@mkfs`], [`mod@mount`]: making a log; finding its superblock and its end.
//! - [`Wafs`]: appending, forcing, group commit, checkpoints. [`read`]: reading.
//!
//! Invariants:
//! - Records for which [`Wafs::force`] has returned survive every crash. The surviving records are
//!   a prefix of those appended.
//! - At most one write of the log is under way. A sector that is written again has all its earlier
//!   bytes, and more behind them. A device writes a sector wholly or not at all.
//! - Sectors at or after the start of the log, as the superblock on the device gives it, are never
//!   overwritten.
//! - Sectors carry the number of the mount under which they were written (the epoch). So a sector
//!   that an older mount wrote is not taken for a continuation of a newer one's.
//!
//! Lock order: group commit's leader, then the writer's lock. Both are held over I/O; a task that
//! holds them does not wait for space in the log.
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
pub use mount::MountedLog;
pub use read::{Reader, RecordRef, WafsRecord};

pub use write::DeviceFlush;

/// A log sequence number: a logical offset in the log, in bytes.
pub type Lsn = u64;
