//! LFS, the log-structured file system, on the on-disk format of NetBSD (LFS64 and LFS32, version 2).
//!
//! Layers, lowest first:
//! - [`data`]: the seam for a file system whose regular files have their contents on a device of their own (DualFS).
//! - `disk`: blocks by address, each looked at for whether the log can have it; a bounded cache of metadata.
//! - [`superblock`]: finding the newest checkpoint.
//! - `log`: the partial segments behind a checkpoint that are whole, in order.
//! - `roll`: what these change: inodes that moved, files that went, blocks without their inode.
//! - `map`: from a file's logical block to its address; the IFILE's entries.
//! - [`LfsReader`]: the file system, to be read, through [`ordo_vfs::FileSystem`]. It needs no cache and no `ufs`.
//! - [`mod@write`]: the file system, to be written, as a layout of `ufs`. Its layers, lowest first: `tree`, `ifile`,
//!   `state` (segments and space), `store` (inodes and pointers), `plan` (what goes where), `writer` (write-outs and
//!   checkpoints), `cleaner`, `layout`, `recover` and `mount`.
//!
//! Invariants:
//! - What is on disk is not believed: an address outside of the log, a block that is not there, a size that cannot be are
//!   errors that say where, and the walk of the log ends because serial numbers rise by one.
//! - A reader writes nothing. Its memory is bounded by its cache and by what the log changed since its checkpoint.
//! - Nothing is written twice in one place but superblocks, until the segment is begun again: and that only when two
//!   checkpoints on the device call it empty.
//! - The pointers in an inode's buffer, and in the buffers of indirect blocks, are the only ones.
//! - A write-out has whole operations: none is under way when it gets its places, and its partial segments count only
//!   together.
//! - Space for an operation is found before it begins; what deletes need is kept from writers, and what the cleaner needs
//!   from both.
//!
//! Lock order: the cleaner's, the writer's, the turnstile of operations (`write::order`). Whoever holds an operation
//! waits for none of them.
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
