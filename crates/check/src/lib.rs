//! Checking and repairing file systems, UFS2 and ([`lfs`]) LFS: what fsck does.
//!
//! An independent witness: it reads only `format` and `block`, and shares no code with what writes
//! file systems.
//!
//! Layers: `superblock` finds a superblock, `copies` asks its copies; `io` reads, and keeps repairs in memory; `state` is what
//! is known so far; `fields` knows which fields follow from others and which are reserved; on these the
//! phases, in the order of their numbers:
//! 1. blocks and sizes (`inodes`, `walk`, `relocate`): every group's inodes; which block is whose;
//! 2. path names (`names`): every directory's entries;
//! 3. connectivity (`connect`, `lost`, `discard`): every directory is inside of the root;
//! 4. reference counts (`links`);
//! 5. cylinder groups, summary and totals (`groups`).
//!
//! Invariants:
//! - Each phase sees the repairs of those before it, written or not: a check without repair finds
//!   exactly what one with repair does, and after a repair a second check finds nothing.
//! - Nothing is written before all phases are done, but for copies of blocks that go to free space;
//!   the superblock is written last.
//! - After phase 1 every block belongs to one file at most, so that files are trees.
//! - Whatever is on the device: no panic, no recursion, work and memory in proportion to its size.
//!
//! ```
//! use ordo_block::ram::RamDisk;
//! use ordo_check::{CheckError, Checker, Options};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let checker = Checker::new(RamDisk::new(1 << 20), Options::default());
//! let result = executor.block_on(checker.run()).unwrap();
//! assert!(matches!(result, Err(CheckError::NoSuperblock(_))));
//! ```

mod checker;
mod connect;
mod copies;
mod discard;
mod fields;
mod finding;
mod groups;
mod inodes;
mod io;
pub mod lfs;
mod links;
mod lost;
mod names;
mod relocate;
mod report;
mod state;
mod superblock;
mod terms;
mod walk;

pub use checker::Checker;
pub use finding::Finding;
pub use report::{CheckError, ExtraName, Options, Phase, Progress, Repair, Report, Work};
pub use terms::{Count, Severity, Slot};
