//! Semantic block-level analysis (SBA): what each block request means to the file system above.
//!
//! A watcher sees a device through [`ordo_block::tap`] and names every request as it passes. It
//! goes by the on-disk format alone: it reads only `ordo_format` and `ordo_block`, and shares no
//! code with the file systems that it watches. The method is that of "Analysis and Evolution of
//! Journaling File Systems" (2005), section 3.
//!
//! Layers, lowest first:
//! - [`kind`]: the kinds of blocks, and the description of one request; `kinds`: words that stand
//!   for one kind or several.
//! - [`stats`]: traffic by kind.
//! - [`decoder`]: the trait that every format implements; [`journal`]: transactions and
//!   checkpoints, as any journal shows them; `pending`: writes whose kind is a guess.
//! - [`names`]: paths of files, from the directories that were seen.
//! - `graph`, `runs`, `ring`: code that decoders share: which node points to which, which file owns
//!   a block, and which blocks a log has announced.
//! - `outside`: decoders of devices that hold nothing but a log; `own_log`: Ordo's own logs, on any
//!   device.
//! - `ufs`: the decoder of UFS2.
//! - `ext`, `reiser`, `xfs`, `jfs`, `ntfs`, `btrfs`: decoders of ext2 to ext4, ReiserFS, XFS, JFS,
//!   NTFS and btrfs.
//! - `nilfs`, `f2fs`, `lfs`: decoders of log-structured file systems: NILFS2, F2FS, and LFS of
//!   NetBSD and Ordo.
//! - [`disk`]: decoders of what holds no file system: partition tables, swap areas.
//! - `births`: file systems that are made while their device is watched.
//! - [`watch`]: the watcher around a decoder. It finds the format, names and counts requests,
//!   settles guesses, and follows blocks from the journal to their fixed locations.
//! - [`analysis`]: the summary of a whole trace; [`parts`]: of one part of a recording.
//!
//! Invariants:
//! - Every byte of every read and write is counted under exactly one kind, and every request under
//!   the kind of its first byte.
//! - A write is named when it is issued, a read when it has completed. A block that was named by
//!   its contents alone is counted again under the right kind as soon as a pointer shows what it
//!   is.
//! - The same requests in the same order give the same names and the same numbers.
//! - Memory is bounded by the metadata of the file system, whatever the requests.
//!
//! ```
//! use std::rc::Rc;
//!
//! use ordo_block::{BlockDevice, ram::RamDisk, tap::Tap};
//! use ordo_watcher::{Class, Watch};
//!
//! let executor = ordo_runtime::Executor::simulated(1);
//! let runtime = executor.runtime();
//! let ram = Rc::new(RamDisk::new(16 << 20));
//! let tap = Tap::new(&runtime, ram.clone());
//! // There is no file system here, which is no error: the watcher waits for a superblock to pass.
//! let watch = Watch::over_any(&*ram);
//! tap.attach(watch.clone());
//! executor.block_on(async { tap.read(0, 4096).await.unwrap() }).unwrap();
//! assert_eq!(watch.finish().reads[Class::Unknown].requests, 1);
//! ```
#![forbid(unsafe_code)]

pub mod analysis;
mod births;
mod btrfs;
mod class;
pub mod decoder;
pub mod disk;
mod ext;
mod f2fs;
mod graph;
mod jfs;
pub mod journal;
pub mod kind;
mod kinds;
mod lfs;
pub mod names;
mod nilfs;
mod ntfs;
mod outside;
mod own_log;
pub mod parts;
mod pending;
mod reiser;
mod ring;
mod runs;
pub mod stats;
mod ufs;
pub mod watch;
mod xfs;

pub use kind::{BlockMeaning, Class, ClassifiedRange, ClassifiedRequest};
pub use kinds::{Kinds, NoKind};
pub use stats::{Stats, TrafficCounts};
pub use watch::{ClassifiedEvent, Watch};
