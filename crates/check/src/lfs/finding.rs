//! Everything that can be wrong with an LFS, one variant each.

use std::fmt;

use serde::Serialize;

use crate::finding::findings;
use crate::terms::{Severity, Slot};

findings! {
    /// An inconsistency of an LFS: what, and where. Blocks are addresses in fragments, offsets are in bytes.
    LfsFinding:

    /// Of the two superblocks that checkpoints write, one cannot be used.
    SuperblockDamaged {
        /// Where it is, in bytes.
        at: u64,
        /// What is wrong.
        error: String,
    } CountsOnly, "superblock at byte {at}: {error}; the other one is used", repair "written anew";

    /// A field of the superblock is not what the others make it.
    SuperblockField {
        /// The field.
        field: &'static str,
        /// What it is.
        stored: i64,
        /// What it must be.
        right: i64,
    } Damage, "superblock: {field} is {stored}, but must be {right}", repair "made right";

    /// A file that is free is not on the list of free inodes.
    NotOnFreeList {
        /// The inode.
        ino: u64,
    } LeakOnly, "inode {ino} is free, but not on the free list", repair "free list made anew";

    /// An inode that is in use is on the list of free inodes.
    UsedOnFreeList {
        /// The inode.
        ino: u64,
    } Damage, "inode {ino} is in use, but on the free list", repair "free list made anew";

    /// The list of free inodes comes to an inode for the second time.
    FreeListCycle {
        /// The inode.
        ino: u64,
    } Damage, "the free list comes to inode {ino} again", repair "free list made anew";

    /// The list of free inodes leads to an inode that does not exist.
    FreeListRange {
        /// The inode.
        ino: u64,
    } Damage, "the free list leads to inode {ino}, which does not exist", repair "free list made anew";

    /// The cleaner info has another first or last free inode than the list.
    FreeListEnds {
        /// `free_head` or `free_tail`.
        field: &'static str,
        /// What the cleaner info says.
        stored: u64,
        /// What the list says.
        right: u64,
    } Damage, "cleaner info: {field} is {stored}, but the list has {right}", repair "made right";

    /// An inode is said to be where none can be.
    InodeAddress {
        /// The inode.
        ino: u64,
        /// The address.
        addr: i64,
    } Damage, "inode {ino} is said to be at {addr}, where no inode can be", repair "cleared";

    /// An inode is not in the block that it is said to be in.
    InodeMissing {
        /// The inode.
        ino: u64,
        /// The block.
        addr: i64,
    } Damage, "inode {ino} is not in the block at {addr}", repair "cleared";

    /// An inode has no type, or one that does not exist.
    InodeMode {
        /// The inode.
        ino: u64,
        /// Its mode.
        mode: u16,
    } Damage, "inode {ino} has the impossible mode {mode:#o}", repair "cleared";

    /// An inode has a size that no file can have.
    InodeSize {
        /// The inode.
        ino: u64,
        /// Its size in bytes.
        size: u64,
    } Damage, "inode {ino} has the impossible size {size}", repair "cleared";

    /// A pointer leads out of the log, or into a superblock.
    BadBlock {
        /// The inode.
        ino: u64,
        /// Which pointer.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, where no block can be", repair "made a hole";

    /// A pointer leads to a block that another one leads to.
    DuplicateBlock {
        /// The inode.
        ino: u64,
        /// Which pointer.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, which is in use already", repair "made a hole";

    /// A pointer beyond the end of the file.
    PointerBeyondEnd {
        /// The inode.
        ino: u64,
        /// Which pointer.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, beyond the end of the file", repair "cleared";

    /// An inode's count of fragments is wrong.
    BlockCount {
        /// The inode.
        ino: u64,
        /// What it says, in fragments.
        stored: u64,
        /// What it has.
        found: u64,
    } CountsOnly, "inode {ino}: {stored} fragments recorded, {found} there", repair "count made right";

    /// A directory's size is not a multiple of 512.
    DirectorySize {
        /// The directory.
        ino: u64,
        /// Its size in bytes.
        size: u64,
    } Damage, "directory {ino} has {size} bytes, no multiple of 512", repair "cut to one";

    /// A directory has a hole.
    DirectoryHole {
        /// The directory.
        ino: u64,
        /// The first block that is missing.
        lbn: u64,
    } Damage, "directory {ino}: block {lbn} is missing", repair "cut before it";

    /// A directory entry is broken, so that nothing behind it in its chunk can be believed.
    DirectoryEntry {
        /// The directory.
        ino: u64,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong.
        error: String,
    } Damage, "directory {ino}, byte {offset}: {error}", repair "rest of the chunk emptied";

    /// A directory does not begin with `.` and `..`.
    DotsMissing {
        /// The directory.
        ino: u64,
    } Damage, "directory {ino} does not begin with . and ..", repair "put there";

    /// `.` or `..` leads elsewhere.
    DotEntry {
        /// The directory.
        ino: u64,
        /// `.` or `..`.
        name: &'static str,
        /// Where it leads.
        stored: u64,
        /// Where it must lead.
        right: u64,
    } Damage, "directory {ino}: {name} leads to inode {stored}, not {right}", repair "made right";

    /// An entry leads to an inode that is free, or does not exist.
    EntryUnused {
        /// The directory.
        ino: u64,
        /// The name.
        name: String,
        /// The inode.
        target: u64,
    } Damage, "directory {ino}: {name} leads to inode {target}, which is free", repair "removed";

    /// An entry says another type than its inode has.
    EntryType {
        /// The directory.
        ino: u64,
        /// The name.
        name: String,
        /// What the entry says.
        stored: u8,
        /// What the inode is.
        right: u8,
    } Damage, "directory {ino}: {name} is of type {right}, but its entry says {stored}", repair "made right";

    /// A directory has two names, or one of a directory that is inside of it.
    DirectoryLinkedTwice {
        /// The directory with the name.
        ino: u64,
        /// The name.
        name: String,
        /// The directory that it leads to.
        target: u64,
    } Damage, "directory {ino}: {name} is another name of directory {target}", repair "removed";

    /// An inode in use has no name, or its directory has none.
    Unreferenced {
        /// The inode.
        ino: u64,
        /// Its size in bytes.
        size: u64,
    } Damage, "inode {ino}, of {size} bytes, has no name", repair "named #INODE in lost+found or the root";

    /// A file without names that was still in use.
    Orphan {
        /// The inode.
        ino: u64,
    } LeakOnly, "inode {ino} has no names left", repair "cleared";

    /// An inode's count of links is wrong.
    LinkCount {
        /// The inode.
        ino: u64,
        /// What it says.
        stored: i64,
        /// How many names there are.
        found: i64,
    } Damage, "inode {ino}: {stored} links recorded, {found} there", repair "count made right";

    /// There is no root directory.
    RootMissing {
        /// What it is instead: its mode; 0: free.
        mode: u16,
    } Damage, "the root is no directory, its mode is {mode:#o}", repair "not repaired";

    /// There is no room for another name in lost+found or the root.
    NoRoomToReconnect {
        /// The inode that should get a name.
        ino: u64,
    } Damage, "no directory has room for a name of inode {ino}", repair "not repaired";

    /// A segment that is called clean has live data.
    CleanSegmentInUse {
        /// The segment.
        segment: u64,
        /// Live bytes in it.
        bytes: u64,
    } Damage, "segment {segment} is called clean, but holds {bytes} bytes", repair "marked dirty";

    /// A segment's count of live bytes is wrong.
    SegmentBytes {
        /// The segment.
        segment: u64,
        /// What it says.
        stored: u64,
        /// What is live.
        found: u64,
    } CountsOnly, "segment {segment}: {stored} live bytes recorded, {found} there", repair "count made right";

    /// A total in the superblock is wrong.
    Total {
        /// `dmeta`, `avail` or `nclean`.
        field: &'static str,
        /// What the superblock says.
        stored: i64,
        /// What it must be.
        right: i64,
    } CountsOnly, "superblock: {field} is {stored}, but must be {right}", repair "count made right";

    /// The superblock's count of free fragments is out of its bounds.
    FreeFragments {
        /// What the superblock says.
        stored: i64,
        /// The least that it can be.
        least: i64,
        /// The most that it can be.
        most: i64,
    } CountsOnly, "superblock: bfree is {stored}, but must be from {least} to {most}", repair "put between them";

    /// The log behind the checkpoint has an inode that the IFILE has no room for.
    IfileTooSmall {
        /// The inode.
        ino: u64,
    } LeakOnly, "inode {ino} in the log is beyond the IFILE", repair "not repaired";
}

impl LfsFinding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.class()
    }

    /// Whether a repair makes it go away.
    pub fn is_repairable(&self) -> bool {
        self.repair() != "not repaired"
    }
}
