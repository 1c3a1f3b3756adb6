//! The words in which a core says what it changes.

use std::ops::Range;

use ordo_cache::BufRef;

/// A kind of operation, as a user asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// A file, directory, link or special file is made.
    Make,
    /// A name is added.
    Link,
    /// A name is taken away.
    Remove,
    /// A name is changed or moved.
    Rename,
    /// Contents are written.
    Write,
    /// A file is cut or extended.
    Truncate,
    /// Attributes are changed, extended ones included.
    Attributes,
    /// An inode without names is freed.
    Free,
    /// The file system keeps its own books: summaries, clean flag.
    Housekeeping,
}

/// What a block pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointerTo {
    /// Contents of a file.
    Data,
    /// Contents of a directory.
    Directory,
    /// A block of pointers.
    Indirect,
    /// The extended-attribute area.
    Attributes,
}

/// One change, by meaning. Addresses and block counts are in the layout's units (FFS: fragments, sectors of 512 bytes),
/// inodes by number.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A directory entry is made for `child`, whose inode is in the buffer `inode`.
    AddEntry {
        /// The directory.
        dir: u64,
        /// The entry's name.
        name: &'a [u8],
        /// What the entry stands for.
        child: u64,
        /// Whether that is a directory.
        directory: bool,
        /// The first byte of the entry in the block. Entries never move.
        at: usize,
        /// The buffer that holds the child's inode: where inodes have places, the block of it.
        inode: &'a BufRef,
    },
    /// A directory entry is taken away.
    RemoveEntry {
        /// The directory.
        dir: u64,
        /// The entry's name.
        name: &'a [u8],
        /// What the entry stood for.
        child: u64,
        /// Whether that is a directory.
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
        /// What it stood for.
        old: u64,
        /// What it stands for now.
        new: u64,
        /// Whether that is a directory.
        directory: bool,
        /// The first byte of the entry in the block.
        at: usize,
        /// The buffer that holds the new one's inode.
        inode: &'a BufRef,
    },
    /// A directory block, or a chunk of it that the directory grows by, gets its first contents: free
    /// space, or `.` and `..`.
    InitDirectory {
        /// The directory.
        dir: u64,
    },
    /// An inode is marked as used in its group's bitmap.
    AllocateInode {
        /// Which.
        ino: u64,
    },
    /// An inode is marked as free in its group's bitmap.
    ReleaseInode {
        /// Which.
        ino: u64,
    },
    /// A newly allocated inode gets its first contents.
    InitInode {
        /// Which.
        ino: u64,
    },
    /// An inode's mode becomes zero: nothing must point to it any more.
    ClearInode {
        /// Which.
        ino: u64,
    },
    /// Fragments are marked as used in their group's bitmap.
    AllocateBlock {
        /// The first fragment.
        address: u64,
        /// How many.
        frags: u32,
    },
    /// Fragments are marked as free in their group's bitmap. Nothing may point to them any more.
    FreeBlock {
        /// The first fragment.
        address: u64,
        /// How many.
        frags: u32,
    },
    /// A pointer is set, where there was none or one to a shorter run of fragments.
    SetPointer {
        /// Whose.
        ino: u64,
        /// The logical block it is for, as the cache names it.
        block: i64,
        /// What it pointed to: first fragment and length; 0, 0 for nothing.
        old: (u64, u32),
        /// What it points to now.
        new: (u64, u32),
        /// What kind of block that is.
        to: PointerTo,
        /// The buffer of the block pointed to: initialised before the pointer may be on disk.
        init: &'a BufRef,
    },
    /// Pointers are reset: whatever they pointed to is about to be freed.
    ClearPointers {
        /// Whose.
        ino: u64,
    },
    /// A link count changes.
    SetLinkCount {
        /// Whose.
        ino: u64,
        /// From.
        old: u32,
        /// To.
        new: u32,
    },
    /// An inode's count of blocks changes by itself: before pointers are set in blocks of pointers,
    /// after some were reset there.
    SetBlockCount {
        /// Whose.
        ino: u64,
        /// From.
        old: u64,
        /// To.
        new: u64,
    },
    /// A size, with times, changes.
    SetSize {
        /// Whose.
        ino: u64,
        /// From.
        old: u64,
        /// To.
        new: u64,
        /// Whether it is a directory.
        directory: bool,
    },
    /// Owner, permissions, flags or times change.
    SetAttributes {
        /// Whose.
        ino: u64,
    },
    /// The superblock or the summary area is brought up to date.
    Summary,
    /// A group's counts change in the summary area, with the group. Told only to whom keeps that area
    /// ([`OrderingPolicy::KEEPS_SUMMARY`](crate::OrderingPolicy::KEEPS_SUMMARY)).
    GroupCounts {
        /// The group.
        cg: u32,
    },
    /// A block of inodes is filled for the first time: all of them free.
    InitInodeBlock {
        /// The first inode in it.
        first: u64,
    },
    /// A group comes to count a block of inodes as filled: they can be allocated.
    UseInodeBlock {
        /// The first inode in it.
        first: u64,
        /// That block.
        block: &'a BufRef,
    },
}

/// A change that has been made to a buffer.
#[derive(Debug)]
pub struct Change<'a> {
    /// The buffer.
    pub buf: &'a BufRef,
    /// The byte ranges that changed; the buffer has the new bytes.
    pub ranges: &'a [Range<usize>],
    /// The old bytes of those ranges, one after another; empty where the ordering does not want them.
    /// The ranges of a change of an entry are the chunk of 512 bytes that it is in.
    pub old: &'a [u8],
    /// The meaning.
    pub what: What<'a>,
}

/// A step that gives something back, which an ordering may put off: it is taken only when what led there
/// has been reset on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferred {
    /// Fragments are to be marked free.
    FreeBlock {
        /// The first fragment.
        address: u64,
        /// How many.
        frags: u32,
    },
    /// An inode is to be marked free.
    FreeInode {
        /// Which.
        ino: u64,
        /// Whether it was a directory's.
        directory: bool,
    },
    /// An inode that has lost its last name, and that nobody has open, is to be freed with all it has.
    Release {
        /// Which.
        ino: u64,
    },
}
