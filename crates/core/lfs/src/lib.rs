//! LFS, the log-structured file system, on the on-disk format of NetBSD (LFS64 and LFS32, version
//! 2).
//!
//! Layers, lowest first:
//! - [`data`]: the interface for DualFS, whose regular files have their contents on a second
//!   device.
//! - `disk`: reading blocks by address, after a check that the address is inside of the log; a
//!   bounded cache of metadata.
//! - [`superblock`]: finding the newest checkpoint.
//! - `log`: the complete partial segments behind a checkpoint, in order.
//! - `roll`: the changes in these partial segments: inodes that moved, files that were removed,
//!   blocks written without their inode.
//! - `map`: from a file's logical block to its address; the IFILE's entries.
//! - [`LfsReader`]: the file system for reading, through [`ordo_vfs::FileSystem`]. It needs neither
//!   the cache nor `ufs`.
//! - [`mod@write`]: the file system for writing, as a layout of `ufs`. Its layers, lowest first:
//!   `tree`, `ifile`, `state` (segments and space), `store` (inodes and pointers), `plan` (the
//!   places of blocks in a write-out), `writer` (write-outs and checkpoints), `cleaner`, `layout`,
//!   `recover` and `mount`.
//!
//! Invariants:
//! - Data on disk are not trusted. An address outside of the log, a missing block, or an impossible
//!   size is an error that names the place. The walk of the log ends, because serial numbers rise
//!   by one.
//! - A reader writes nothing. Its memory is bounded by its cache, and by the amount of log behind
//!   the checkpoint.
//! - No address is written twice before its segment is begun again, except for the superblocks. A
//!   segment is begun again only when it is empty in both checkpoints on the device. If a mount
//!   finds one superblock damaged, only the other's checkpoint counts.
//! - A pointer has one copy in memory: in the inode's buffer, or in the buffer of an indirect
//!   block.
//! - A write-out contains whole operations: no operation is under way while places are given, and
//!   the partial segments of a write-out count only together.
//! - A block is read only where it is: after the write-out into its segment, since a block that the
//!   cleaner moves is in no buffer, and not if its pointer has changed during the read. The cleaner
//!   moves no bytes of a segment that was begun again after they were read.
//! - Space for an operation is found before it begins. Writes cannot use the space that deletes
//!   need, and neither can use the space that the cleaner needs.
//!
//! Lock order: the cleaner's lock, the writer's lock, the gate of operations (`write::order`). A
//! task with an operation under way waits for none of them. It may wait for a write-out into a
//! segment, which waits for the device alone.
//!
//! Typical sequence: [`write::mount`]; the operations of `FileSystem`; `unmount`.
//!
//! ```
//! use ordo_block::ram::RamDisk;
//! use ordo_lfs::{LfsError, LfsReader};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let mounted = executor.block_on(LfsReader::mount(RamDisk::new(1 << 20)));
//! assert!(matches!(mounted.unwrap(), Err(LfsError::NoSuperblock(_))));
//! ```

pub mod data;
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
pub use log::{LogEnd, PartialSegment, has_seals};
pub use reader::LfsReader;
pub use roll::RolledForward;
