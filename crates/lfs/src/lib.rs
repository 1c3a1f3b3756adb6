//! LFS, the log-structured file system, on the on-disk format of NetBSD (LFS64 and LFS32, version 2).
//!
//! Layers, lowest first:
//! - `disk`: blocks by address, each looked at for whether the log can have it; a bounded cache of metadata.
//! - [`superblock`]: finding the newest checkpoint.
//! - `log`: the partial segments behind a checkpoint that are whole, in order.
//! - `roll`: what these change: inodes that moved, files that went, blocks without their inode.
//! - `map`: from a file's logical block to its address; the IFILE's entries.
//! - [`LfsReader`]: the file system, to be read, through [`ordo_vfs::FileSystem`].
//!
//! It stands beside `ufs` and not on it: nothing here has a fixed place, and a reader needs no more of the name space
//! than looking up.
//!
//! Invariants:
//! - Nothing is ever written.
//! - What is on disk is not believed: an address outside of the log, a block that is not there, a size that cannot be are
//!   errors that say where, and the walk of the log ends because serial numbers rise by one.
//! - Memory is bounded by the cache and by what the log changed since its checkpoint.
//!
//! ```
//! use ordo_block::ram::RamDisk;
//! use ordo_lfs::{LfsError, LfsReader};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let mounted = executor.block_on(LfsReader::mount(RamDisk::new(1 << 20)));
//! assert!(matches!(mounted.unwrap(), Err(LfsError::NoSuperblock(_))));
//! ```

mod disk;
mod error;
mod fs;
mod log;
mod map;
pub mod mkfs;
mod reader;
mod roll;
pub mod superblock;
pub mod write;

pub use error::LfsError;
pub use log::{LogEnd, PartialSegment};
pub use reader::LfsReader;
pub use roll::RolledForward;
