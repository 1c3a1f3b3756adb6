//! Semantic block-level analysis (SBA): what each block request means to the file system above.
//!
//! A classifier watches a device through [`ordo_block::tap`] and names every request as it passes. It goes by the
//! on-disk format alone: it reads only `ordo_format` and `ordo_block`, and shares no code with the file systems that
//! it watches. The method is that of "Analysis and Evolution of Journaling File Systems" (2005), section 3.
//!
//! Layers, lowest first:
//! - [`kind`]: the kinds of blocks, and the description of one request; `kinds`: words that stand for one kind or
//!   several.
//! - [`stats`]: traffic by kind.
//! - [`ufs`]: the classifier of UFS2, and its decoder.
//! - [`decoder`]: the trait that every other format implements; [`journal`]: transactions and checkpoints, as any
//!   journal shows them.
//! - [`names`]: paths of files, from the directories that were seen.
//! - `graph`, `runs`, `ring`: code that decoders share: which node points to which, which file owns a block, which
//!   blocks a log has announced.
//! - `outside`: decoders of devices that hold only a log.
//! - `ext`, `reiser`, `xfs`, `jfs`, `ntfs`, `btrfs`: decoders of ext2 to ext4, ReiserFS, XFS, JFS, NTFS and btrfs.
//! - `nilfs`, `f2fs`, `lfs`: decoders of log-structured file systems: NILFS2, F2FS, and LFS of NetBSD and Ordo.
//! - [`watch`]: the watcher around a decoder. It finds the format, names and counts requests, settles guesses, and
//!   follows blocks from the journal to their fixed locations.
//! - [`analysis`]: the summary of a whole trace.
//!
//! Invariants:
//! - Every byte of every read and write is counted under exactly one kind, and every request under the
//!   kind of its first byte.
//! - A write is named when it is issued, a read when it has completed. A block that was named by its contents alone
//!   is counted again under the right kind as soon as a pointer shows what it is.
//! - The same requests in the same order give the same names and the same numbers.
//! - Memory is bounded by the metadata of the file system, whatever the requests.
//!
//! ```
//! use ordo_block::{BlockDevice, ram::RamDisk, tap::Tap};
//! use ordo_sba::{Class, Classifier};
//!
//! let executor = ordo_runtime::Executor::simulated(1);
//! let runtime = executor.runtime();
//! let ram = RamDisk::new(16 << 20).erase();
//! let tap = Tap::new(&runtime, ram.clone());
//! let classifier = Classifier::new();
//! tap.attach(classifier.clone());
//! executor.block_on(async {
//!     // Reading beneath the tap is not counted. There is no file system here, which is no error:
//!     // the classifier waits for a superblock to pass.
//!     assert!(!classifier.prime(&ram).await.unwrap());
//!     tap.read(0, 4096).await.unwrap();
//! }).unwrap();
//! assert_eq!(classifier.finish().reads[Class::Unknown].requests, 1);
//! ```
#![forbid(unsafe_code)]

pub mod analysis;
mod btrfs;
mod class;
pub mod decoder;
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
mod pending;
mod reiser;
mod ring;
mod runs;
pub mod stats;
pub mod ufs;
pub mod watch;
mod xfs;

pub use kind::{BlockMeaning, Class, ClassifiedRange, ClassifiedRequest};
pub use kinds::{Kinds, NoKind};
pub use stats::{Stats, TrafficCounts};
pub use ufs::Classifier;
pub use watch::{ClassifiedEvent, Watch};
