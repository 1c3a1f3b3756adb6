//! Checking and repairing file systems as fsck does: UFS2, LFS ([`lfs`]), and DualFS on LFS's
//! structures ([`dualfs`]).
//!
//! The checker is an independent witness: it reads only `format` and `block`, and shares no code
//! with anything that writes file systems.
//!
//! Layers: `superblock` finds a superblock, and `copies` compares it with its copies. `io` reads,
//! and keeps repairs in memory. `state` holds everything known so far. `fields` knows which fields
//! follow from others, and which are reserved. On these are the phases, in the order of their
//! numbers:
//! 1. blocks and sizes (`inodes`, `walk`, `relocate`): every group's inodes, and the owner of each
//!    block;
//! 2. path names (`names`): every directory's entries;
//! 3. connectivity (`connect`, `lost`, `discard`): every directory is inside the root;
//! 4. reference counts (`links`);
//! 5. cylinder groups, summary and totals (`groups`).
//!
//! Invariants:
//! - Each phase sees the repairs of the phases before it, written or not. So a check without repair
//!   finds exactly what one with repair does, and after a repair a second check finds nothing.
//! - Nothing is written before all phases are done, except copies of blocks to free space; the
//!   superblock is written last.
//! - After phase 1 every block belongs to at most one file, so that files are trees.
//! - No device contents cause a panic or a recursion, or work and memory out of proportion to the
//!   device's size.
//!
//! ```
//! use ordo_block::ram::RamDisk;
//! use ordo_check::{CheckError, Checker, FsckOptions};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let checker = Checker::new(RamDisk::new(1 << 20), FsckOptions::default());
//! let result = executor.block_on(checker.run()).unwrap();
//! assert!(matches!(result, Err(CheckError::NoSuperblock(_))));
//! ```

mod checker;
mod connect;
mod copies;
mod discard;
pub mod dualfs;
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
mod subject;
mod superblock;
mod terms;
mod walk;

pub use checker::Checker;
pub use finding::Finding;
pub use report::{
    CheckError, CheckPhase, CheckProgress, CheckWork, ExtraName, FsckOptions, Repair, Report,
};
pub use superblock::find_copy;
pub use terms::{Count, Severity, Slot};
