//! btrfs, as far as a decoder reads it, described in `docs/formats/btrfs.md`. No code here writes
//! it.
//!
//! - [`superblock`]: the places of the superblock and its copies, and the geometry of a file
//!   system.
//! - [`chunk`]: the mapping from logical addresses to devices.
//! - [`node`]: the blocks of all trees.
//! - [`items`]: the items of leaves.

pub mod chunk;
pub mod items;
pub mod node;
pub mod superblock;

use crate::Endian;

pub use chunk::{Chunk, ChunkHead, Stripe};
pub use items::{
    BlockGroupItem, DirItem, ExtentItem, FileExtent, FreeSpaceEntry, FreeSpaceHeader,
    FreeSpaceInfo, InodeItem, InodeRef, RootItem,
};
pub use node::{Header, Item, KeyPointer, Node};
pub use superblock::{DevItem, Geometry, PLACES, Pointer, Superblock};

/// The byte order of every structure.
pub const LE: Endian = Endian::Little;

crate::on_disk! {
    /// The key by which items are sorted and found (`struct btrfs_disk_key`).
    pub struct Key: 17 {
        0 objectid => /** number of the object to which the item belongs */ objectid: u64,
        8 type => /** type of the item */ kind: u8,
        9 offset => /** further part of the key, whose meaning depends on the type */ offset: u64,
    }
}

/// Types of items (`BTRFS_*_KEY`).
pub mod kind {
    /// An inode.
    pub const INODE: u8 = 1;
    /// Names of an inode in one directory; the key's offset is that directory.
    pub const INODE_REF: u8 = 12;
    /// Names of an inode that do not fit into an `INODE_REF`.
    pub const INODE_EXTREF: u8 = 13;
    /// Entries of a directory in the order of their creation.
    pub const DIR_INDEX: u8 = 96;
    /// A range of a file's contents, from the key's offset on.
    pub const EXTENT_DATA: u8 = 108;
    /// The root of a tree.
    pub const ROOT: u8 = 132;
    /// A chunk; the key's offset is its first logical address.
    pub const CHUNK: u8 = 228;
}

/// Numbers of trees (`BTRFS_*_TREE_OBJECTID`).
pub mod tree {
    /// The root tree, which holds the roots of the other trees.
    pub const ROOT: u64 = 1;
    /// The extent tree: extents in use, and the references to them.
    pub const EXTENT: u64 = 2;
    /// The chunk tree: the mapping from logical addresses to devices.
    pub const CHUNK: u64 = 3;
    /// The device tree: the parts of devices that chunks use.
    pub const DEVICE: u64 = 4;
    /// The first subvolume, which always exists.
    pub const FS: u64 = 5;
    /// Checksums of file data.
    pub const CHECKSUM: u64 = 7;
    /// Quota groups.
    pub const QUOTA: u64 = 8;
    /// The UUID tree: subvolumes by their UUID.
    pub const UUID: u64 = 9;
    /// The free space tree.
    pub const FREE_SPACE: u64 = 10;
    /// The block group tree, where block groups are not in the extent tree.
    pub const BLOCK_GROUP: u64 = 11;
    /// A log tree of fsyncs, or the tree of log roots.
    pub const LOG: u64 = -6i64 as u64;
    /// A relocation tree: a subvolume while its blocks are moved.
    pub const RELOCATION: u64 = -8i64 as u64;
    /// The tree of file data while they are moved.
    pub const DATA_RELOCATION: u64 = -9i64 as u64;

    /// Whether a tree is a subvolume, whose files users made.
    pub fn is_subvolume(number: u64) -> bool {
        number == FS || (256..=-256i64 as u64).contains(&number)
    }
}

/// The root directory's inode in each subvolume.
pub const ROOT_DIR: u64 = 256;

/// The number of levels that a tree can have (`BTRFS_MAX_LEVEL`).
pub const LEVELS: u8 = 8;
