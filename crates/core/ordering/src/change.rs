//! Changes of metadata, described by their meaning. The core of a file system tells an ordering of
//! each of them.

use std::ops::Range;

use ordo_cache::BufRef;

/// The kind of an operation, as a user asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// A file, directory, link or special file is created.
    Make,
    /// A name is added.
    Link,
    /// A name is removed.
    Remove,
    /// A name is changed or moved.
    Rename,
    /// Contents are written.
    Write,
    /// A file is truncated or extended.
    Truncate,
    /// Attributes are changed, extended ones included.
    Attributes,
    /// An inode without names is freed.
    Free,
    /// The file system updates its own metadata: summaries, clean flag.
    Housekeeping,
}

/// The kind of block that a pointer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointerTo {
    /// Contents of a file.
    Data,
    /// The target of a symbolic link that is too long for the inode. No call makes it durable by
    /// itself: it comes with the link's name.
    LinkTarget,
    /// Contents of a directory.
    Directory,
    /// An indirect block.
    Indirect,
    /// The extended-attribute area.
    Attributes,
}

/// One change, by its meaning. Addresses and counts of blocks are in the layout's units (FFS:
/// fragments, sectors of 512 bytes). Inodes are given by number.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A directory entry is made for `child`, whose inode is in the buffer `inode` (a *link
    /// addition*).
    AddEntry {
        /// The directory.
        dir: u64,
        /// The entry's name.
        name: &'a [u8],
        /// The inode for which the entry stands.
        child: u64,
        /// Whether `child` is a directory.
        directory: bool,
        /// The first byte of the entry in the block. Entries never move.
        at: usize,
        /// The buffer that holds the child's inode. In a layout with fixed inode places, it is the
        /// block of inodes that has the child.
        inode: &'a BufRef,
    },
    /// A directory entry is removed (a *link removal*).
    RemoveEntry {
        /// The directory.
        dir: u64,
        /// The entry's name.
        name: &'a [u8],
        /// The inode for which the entry stood.
        child: u64,
        /// Whether `child` is a directory.
        directory: bool,
        /// The first byte of the entry in the block.
        at: usize,
    },
    /// A directory entry comes to stand for another inode.
    ChangeEntry {
        /// The directory.
        dir: u64,
        /// The entry's name.
        name: &'a [u8],
        /// The inode for which the entry stood.
        old: u64,
        /// The inode for which the entry stands now.
        new: u64,
        /// Whether `new` is a directory.
        directory: bool,
        /// The first byte of the entry in the block.
        at: usize,
        /// The buffer that holds the inode `new`.
        inode: &'a BufRef,
    },
    /// A directory block, or a chunk by which the directory grows, gets its first contents: free
    /// space, or `.` and `..`.
    InitDirectory {
        /// The directory.
        dir: u64,
    },
    /// An inode is marked as used in its group's bitmap.
    AllocateInode {
        /// The inode.
        ino: u64,
    },
    /// An inode is marked as free in its group's bitmap.
    FreeInode {
        /// The inode.
        ino: u64,
    },
    /// A newly allocated inode gets its first contents.
    InitInode {
        /// The inode.
        ino: u64,
    },
    /// An inode's mode becomes zero: the inode is free, and no entry may lead to it any more.
    ClearInode {
        /// The inode.
        ino: u64,
    },
    /// Fragments are marked as used in their group's bitmap (a *block allocation*).
    AllocateBlock {
        /// The first fragment.
        address: u64,
        /// The number of fragments.
        frags: u32,
    },
    /// Fragments are marked as free in their group's bitmap (a *block deallocation*). No pointer
    /// may lead to them any more.
    FreeBlock {
        /// The first fragment.
        address: u64,
        /// The number of fragments.
        frags: u32,
    },
    /// A pointer is set. Before, it was empty, or led to a shorter run of fragments.
    SetPointer {
        /// The inode that has the pointer.
        ino: u64,
        /// The logical block of the pointer, as the cache names it.
        block: i64,
        /// The old run: first fragment and number of fragments, or 0, 0 for none.
        old: (u64, u32),
        /// The new run.
        new: (u64, u32),
        /// The kind of the block in the new run.
        to: PointerTo,
        /// The buffer of the block in the new run, which is initialised before the pointer may be
        /// on disk.
        init: &'a BufRef,
    },
    /// Pointers are reset, since the blocks to which they lead are about to be freed.
    ClearPointers {
        /// The inode that has the pointers.
        ino: u64,
    },
    /// A link count changes.
    SetLinkCount {
        /// The inode.
        ino: u64,
        /// The old count.
        old: u32,
        /// The new count.
        new: u32,
    },
    /// An inode's count of blocks changes, but no pointer in the inode. The core sends this before
    /// it sets pointers in indirect blocks, and after it resets some there.
    SetBlockCount {
        /// The inode.
        ino: u64,
        /// The old count.
        old: u64,
        /// The new count.
        new: u64,
    },
    /// An inode's size changes, and its times with it.
    SetSize {
        /// The inode.
        ino: u64,
        /// The old size, in bytes.
        old: u64,
        /// The new size, in bytes.
        new: u64,
        /// Whether the inode is a directory.
        directory: bool,
    },
    /// The owner, permissions, flags or times of an inode change.
    SetAttributes {
        /// The inode.
        ino: u64,
    },
    /// The superblock or the summary area is updated.
    Summary,
    /// A group's counts change in the summary area, in the operation that changes the group. Only
    /// an ordering that keeps that area is told
    /// ([`OrderingPolicy::KEEPS_SUMMARY`](crate::OrderingPolicy::KEEPS_SUMMARY)).
    GroupCounts {
        /// The group.
        cg: u32,
    },
    /// A block of inodes is filled for the first time; all its inodes are free.
    InitInodeBlock {
        /// The first inode in it.
        first: u64,
    },
    /// A group begins to count a block of inodes as filled, so the inodes in it can be allocated.
    UseInodeBlock {
        /// The first inode in it.
        first: u64,
        /// The buffer of the block of inodes.
        block: &'a BufRef,
    },
}

impl What<'_> {
    /// Whether file contents that have a place get another one: the last fragments of a growing
    /// file, or blocks that are placed better.
    pub fn moves_contents(&self) -> bool {
        match *self {
            What::SetPointer { to: PointerTo::Data, old, new, .. } => old.1 > 0 && old.0 != new.0,
            _ => false,
        }
    }
}

/// A change that was made to a buffer.
#[derive(Debug)]
pub struct Change<'a> {
    /// The buffer.
    pub buf: &'a BufRef,
    /// The byte ranges that changed. The buffer has the new bytes.
    pub ranges: &'a [Range<usize>],
    /// The old bytes of the ranges, one after another; empty if the ordering does not want them.
    /// For a change of a directory entry, the range is the chunk of 512 bytes around the entry.
    pub old: &'a [u8],
    /// The meaning of the change.
    pub what: What<'a>,
}

/// A step that frees a resource. An ordering may defer it until the pointers to the resource have
/// been reset on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferredFree {
    /// Fragments will be marked as free.
    FreeBlock {
        /// The first fragment.
        address: u64,
        /// The number of fragments.
        frags: u32,
    },
    /// An inode will be marked as free.
    FreeInode {
        /// The inode.
        ino: u64,
        /// Whether the inode was a directory.
        directory: bool,
    },
    /// An inode that has lost its last name, and that no program has open, will be freed with all
    /// its blocks.
    Release {
        /// The inode.
        ino: u64,
    },
}
