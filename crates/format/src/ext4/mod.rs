//! ext2, ext3 and ext4: `docs/formats/ext4.md`. What a classifier reads; nothing here writes one.
//!
//! Sizes that a [`Superblock::read`] returned can be divided and shifted by as they are.

pub mod dir;
pub mod inode;
pub mod superblock;

pub use inode::{Extent, ExtentHeader, ExtentIndex, Inode};
pub use superblock::{Geometry, GroupDesc, Superblock, SuperblockError};
