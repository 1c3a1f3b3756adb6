//! btrfs: `docs/formats/btrfs.md`. What a classifier reads; nothing here writes one.
//!
//! - [`superblock`]: where the superblock and its copies are, and the shape of a file system.
//! - [`chunk`]: where addresses of the file system are on its devices.
//! - [`node`]: the blocks of all trees.
//! - [`items`]: what leaves hold.

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

/// The byte order of everything.
pub const LE: Endian = Endian::Little;

crate::on_disk! {
    /// What items are sorted by, and found with.
    pub struct Key: 17 {
        0 => /** the object */ objectid: u64,
        8 => /** the kind of item */ kind: u8,
        9 => /** more, by kind */ offset: u64,
    }
}

/// Kinds of items that are read here.
pub mod kind {
    /// An inode.
    pub const INODE: u8 = 1;
    /// Names of an inode in one directory, which is the key's offset.
    pub const INODE_REF: u8 = 12;
    /// Names of an inode, where there is no room for them in the other.
    pub const INODE_EXTREF: u8 = 13;
    /// Entries of a directory in the order in which they were made.
    pub const DIR_INDEX: u8 = 96;
    /// Contents of a file, from the key's offset on.
    pub const EXTENT_DATA: u8 = 108;
    /// Where a tree begins.
    pub const ROOT: u8 = 132;
    /// Where addresses from the key's offset on are.
    pub const CHUNK: u8 = 228;
}

/// Numbers of trees.
pub mod tree {
    /// Where the other trees begin.
    pub const ROOT: u64 = 1;
    /// Which extents are in use, and by whom.
    pub const EXTENT: u64 = 2;
    /// Where addresses are on devices.
    pub const CHUNK: u64 = 3;
    /// Which parts of a device chunks have.
    pub const DEVICE: u64 = 4;
    /// The subvolume that is always there.
    pub const FS: u64 = 5;
    /// Checksums of file data.
    pub const CHECKSUM: u64 = 7;
    /// Quota groups.
    pub const QUOTA: u64 = 8;
    /// Subvolumes by their identity.
    pub const UUID: u64 = 9;
    /// What is free.
    pub const FREE_SPACE: u64 = 10;
    /// Block groups, where these are not in the extent tree.
    pub const BLOCK_GROUP: u64 = 11;
    /// The log of fsyncs, and the tree of its roots.
    pub const LOG: u64 = -6i64 as u64;
    /// Subvolumes while their blocks are moved.
    pub const RELOCATION: u64 = -8i64 as u64;
    /// File data while they are moved.
    pub const DATA_RELOCATION: u64 = -9i64 as u64;

    /// Whether it is a subvolume: it has files that users made.
    pub fn is_subvolume(number: u64) -> bool {
        number == FS || (256..=-256i64 as u64).contains(&number)
    }
}

/// The root directory's inode in each subvolume.
pub const ROOT_DIR: u64 = 256;

/// Levels of a tree are below this.
pub const LEVELS: u8 = 8;
