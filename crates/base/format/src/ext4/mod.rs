//! ext2, ext3 and ext4, as far as a decoder reads them, described in `docs/formats/ext4.md`. No
//! code here writes them.
//!
//! Sizes that [`Superblock::read`] returned can be used to divide and shift.

pub mod dir;
pub mod inode;
pub mod superblock;

pub use inode::{Extent, ExtentHeader, ExtentIndex, Inode};
pub use superblock::{Geometry, GroupDesc, Superblock, SuperblockError};
