//! UFS2, the fast file system's second on-disk format, as FreeBSD writes it.
//!
//! A file system is a sequence of *fragments* (the unit of addresses) in *cylinder groups* of equal
//! size. Up to eight fragments make a *block*. Each group holds, in this order: data blocks (or, in
//! the first group, the boot area and the superblock), a copy of the superblock, the group's header
//! with its bitmaps, inode blocks, data blocks. The summary area follows the first group's inodes.
//!
//! [`superblock`] gives the places of all these. [`group`] and [`bitmap`] describe free space, and
//! [`inode`] a file. [`dir`](mod@dir) and [`extattr`] describe the contents of directories and of
//! extended attributes.

pub mod bitmap;
pub mod csum;
pub mod dir;
pub mod dump;
pub mod extattr;
pub mod group;
pub mod inode;
pub mod superblock;

pub use csum::Csum;
pub use group::Group;
pub use inode::Dinode;
pub use superblock::Superblock;

/// The inode number of the root directory.
pub const ROOT_INO: u64 = 2;
/// The inode number that a whiteout entry carries; never allocated.
pub const WHITEOUT_INO: u64 = 1;
/// The smallest block size, in bytes.
pub const MIN_BLOCK: u32 = 4096;
/// The largest block size, in bytes.
pub const MAX_BLOCK: u32 = 65536;
/// The smallest fragment size, in bytes; also the unit of an inode's block count.
pub const SECTOR: u32 = 512;
/// The most fragments in a block.
pub const MAX_FRAG: u32 = 8;
/// The number of cluster lengths that the cluster summary distinguishes.
pub const MAX_CLUSTER_SUM: u32 = 16;
/// Direct block addresses in an inode.
pub const NDADDR: usize = 12;
/// Indirect block addresses in an inode: single, double, triple.
pub const NIADDR: usize = 3;
/// Extended-attribute block addresses in an inode.
pub const NXADDR: usize = 2;
