//! Every inconsistency of an LFS, one variant each.

use std::fmt;

use serde::Serialize;

use crate::finding::findings;
use crate::terms::{Severity, Slot};

findings! {
    /// An inconsistency of an LFS, and its place. Blocks are addresses in fragments; offsets are in
    /// bytes.
    LfsFinding:

    /// One of the two superblocks that checkpoints write is unusable.
    SuperblockDamaged {
        /// The superblock's place, in bytes.
        at: u64,
        /// The fault.
        error: String,
    } CountsOnly, "superblock at byte {at}: {error}; the other one is used", repair "rewritten";

    /// A field of the superblock does not agree with the others.
    SuperblockField {
        /// The field.
        field: &'static str,
        /// The field's value.
        stored: i64,
        /// The right value.
        right: i64,
    } Damage, "superblock: {field} is {stored}, but must be {right}", repair "corrected";

    /// A free inode is not on the free list.
    NotOnFreeList {
        /// The inode.
        ino: u64,
    } LeakOnly, "inode {ino} is free, but not on the free list", repair "free list rebuilt";

    /// An inode in use is on the free list.
    UsedOnFreeList {
        /// The inode.
        ino: u64,
    } Damage, "inode {ino} is in use, but on the free list", repair "free list rebuilt";

    /// The free list leads to an inode for the second time.
    FreeListCycle {
        /// The inode.
        ino: u64,
    } Damage, "the free list has inode {ino} twice", repair "free list rebuilt";

    /// The free list leads to an inode that does not exist.
    FreeListRange {
        /// The inode.
        ino: u64,
    } Damage, "the free list leads to inode {ino}, which does not exist", repair "free list rebuilt";

    /// The cleaner info has another first or last free inode than the list.
    FreeListEnds {
        /// `free_head` or `free_tail`.
        field: &'static str,
        /// The value in the cleaner info.
        stored: u64,
        /// The value according to the list.
        right: u64,
    } Damage, "cleaner info: {field} is {stored}, but the list has {right}", repair "corrected";

    /// An inode's address is at a place where no inode can be.
    InodeAddress {
        /// The inode.
        ino: u64,
        /// The address.
        addr: i64,
    } Damage, "inode {ino} has the address {addr}, where no inode can be", repair "cleared";

    /// An inode is not in the block that the IFILE names.
    InodeMissing {
        /// The inode.
        ino: u64,
        /// The address of the block.
        addr: i64,
    } Damage, "inode {ino} is not in the block at {addr}", repair "cleared";

    /// An inode has no file type, or an unknown one.
    InodeMode {
        /// The inode.
        ino: u64,
        /// The inode's mode.
        mode: u16,
    } Damage, "inode {ino} has the impossible mode {mode:#o}", repair "cleared";

    /// The IFILE's inode is not that of a regular file.
    IfileMode {
        /// The inode's mode.
        mode: u16,
    } Damage, "the IFILE's inode has the mode {mode:#o}, which is no regular file's", repair "made a regular file";

    /// An inode's size is impossible.
    InodeSize {
        /// The inode.
        ino: u64,
        /// The inode's size in bytes.
        size: u64,
    } Damage, "inode {ino} has the impossible size {size}", repair "cleared";

    /// A pointer leads out of the log, or into a superblock.
    BadBlock {
        /// The inode.
        ino: u64,
        /// The pointer.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, where no block can be", repair "replaced by a hole";

    /// A pointer leads to a block that another pointer claims.
    DuplicateBlock {
        /// The inode.
        ino: u64,
        /// The pointer.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, which is in use already", repair "replaced by a hole";

    /// A pointer lies beyond the end of the file.
    PointerBeyondEnd {
        /// The inode.
        ino: u64,
        /// The pointer.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, beyond the end of the file", repair "cleared";

    /// A device or a short link has something behind its number or its target, where other inodes
    /// have pointers.
    SpecialWithBlocks {
        /// The inode.
        ino: u64,
        /// The pointer.
        slot: Slot,
        /// The value.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, but it has no blocks", repair "cleared";

    /// An inode's count of fragments is wrong.
    BlockCount {
        /// The inode.
        ino: u64,
        /// The value in the inode, in fragments.
        stored: u64,
        /// The right value.
        found: u64,
    } CountsOnly, "inode {ino}: {stored} fragments recorded, {found} there", repair "count corrected";

    /// A directory's size is not a multiple of 512.
    DirectorySize {
        /// The directory.
        ino: u64,
        /// The directory's size in bytes.
        size: u64,
    } Damage, "directory {ino} has {size} bytes, no multiple of 512", repair "truncated to a multiple";

    /// A directory has a hole.
    DirectoryHole {
        /// The directory.
        ino: u64,
        /// The first block that is missing.
        lbn: u64,
    } Damage, "directory {ino}: block {lbn} is missing", repair "truncated before it";

    /// A directory entry is damaged, so that the entries behind it in its chunk cannot be read.
    DirectoryEntry {
        /// The directory.
        ino: u64,
        /// The entry's place in the directory, in bytes.
        offset: u64,
        /// The fault.
        error: String,
    } Damage, "directory {ino}, byte {offset}: {error}", repair "rest of the chunk emptied";

    /// A directory does not begin with `.` and `..`.
    DotsMissing {
        /// The directory.
        ino: u64,
    } Damage, "directory {ino} does not begin with . and ..", repair "entries created";

    /// `.` or `..` leads to another inode.
    DotEntry {
        /// The directory.
        ino: u64,
        /// `.` or `..`.
        name: &'static str,
        /// The inode to which it leads.
        stored: u64,
        /// The right inode.
        right: u64,
    } Damage, "directory {ino}: {name} leads to inode {stored}, not {right}", repair "corrected";

    /// A directory has another `.` or `..` behind the first two entries.
    ExtraDot {
        /// The directory.
        ino: u64,
        /// The entry's place in the directory, in bytes.
        offset: u64,
    } Damage, "directory {ino}, byte {offset}: another . or ..", repair "removed";

    /// A directory has the same name twice.
    DuplicateName {
        /// The directory.
        ino: u64,
        /// The name.
        name: String,
        /// The inode of the later entry.
        target: u64,
    } Damage, "directory {ino}: another entry {name}, for inode {target}", repair "later entry removed";

    /// An entry leads to an inode that is free, or does not exist.
    EntryUnused {
        /// The directory.
        ino: u64,
        /// The name.
        name: String,
        /// The inode.
        target: u64,
    } Damage, "directory {ino}: {name} leads to inode {target}, which is free", repair "removed";

    /// An entry's type differs from its inode's.
    EntryType {
        /// The directory.
        ino: u64,
        /// The name.
        name: String,
        /// The type in the entry.
        stored: u8,
        /// The inode's type.
        right: u8,
    } Damage, "directory {ino}: {name} is of type {right}, but its entry says {stored}", repair "corrected";

    /// A directory has two names, or a name inside itself.
    DirectoryLinkedTwice {
        /// The directory that contains the name.
        ino: u64,
        /// The name.
        name: String,
        /// The directory to which it leads.
        target: u64,
    } Damage, "directory {ino}: {name} is another name of directory {target}", repair "removed";

    /// An inode in use has no name, or its directory has none.
    Unreferenced {
        /// The inode.
        ino: u64,
        /// The inode's size in bytes.
        size: u64,
    } Damage, "inode {ino}, of {size} bytes, has no name", repair "named #INODE in lost+found or the root";

    /// An orphan: a file without names that was still in use.
    Orphan {
        /// The inode.
        ino: u64,
    } LeakOnly, "inode {ino} has no names left", repair "cleared";

    /// An inode with a name is marked as an orphan in the inode map: a mount finds no file under
    /// that name.
    NamedOrphan {
        /// The inode.
        ino: u64,
    } Damage, "inode {ino} is marked as an orphan, but has a name", repair "mark removed";

    /// An inode's link count is wrong.
    LinkCount {
        /// The inode.
        ino: u64,
        /// The value in the inode.
        stored: i64,
        /// The number of names.
        found: i64,
    } Damage, "inode {ino}: {stored} links recorded, {found} there", repair "count corrected";

    /// There is no root directory.
    RootMissing {
        /// The mode of inode 2; 0 if it is free.
        mode: u16,
    } Damage, "the root is not a directory; its mode is {mode:#o}", repair "not repaired";

    /// There is no space for another name in lost+found or in the root.
    NoRoomToReconnect {
        /// The inode that should get a name.
        ino: u64,
    } Damage, "no directory has space for a name of inode {ino}", repair "not repaired";

    /// A segment that is marked clean has live data.
    CleanSegmentInUse {
        /// The segment.
        segment: u64,
        /// The number of live bytes.
        bytes: u64,
    } Damage, "segment {segment} is marked clean, but has {bytes} live bytes", repair "marked dirty";

    /// A segment's count of live bytes is wrong.
    SegmentBytes {
        /// The segment.
        segment: u64,
        /// The value in the segment's entry.
        stored: u64,
        /// The right value.
        found: u64,
    } CountsOnly, "segment {segment}: {stored} live bytes recorded, {found} there", repair "count corrected";

    /// A segment counts more summaries and blocks of inodes than fit in it.
    SegmentCounts {
        /// The segment.
        segment: u64,
        /// The number of summaries in the segment's entry.
        summaries: u64,
        /// The number of blocks of inodes in the segment's entry.
        inodes: u64,
    } CountsOnly, "segment {segment}: {summaries} summaries and {inodes} blocks of inodes do not fit in it", repair "set to one summary";

    /// A total in the superblock is wrong.
    Total {
        /// `dmeta`, `avail` or `nclean`.
        field: &'static str,
        /// The value in the superblock.
        stored: i64,
        /// The right value.
        right: i64,
    } CountsOnly, "superblock: {field} is {stored}, but must be {right}", repair "count corrected";

    /// The superblock's count of free fragments is outside its bounds.
    FreeFragments {
        /// The value in the superblock.
        stored: i64,
        /// The lower bound.
        least: i64,
        /// The upper bound.
        most: i64,
    } CountsOnly, "superblock: bfree is {stored}, but must be from {least} to {most}", repair "set to a value between them";

    /// A pointer to contents leads outside of the data device.
    BadDataBlock {
        /// The inode.
        ino: u64,
        /// The pointer's place.
        slot: Slot,
        /// The block.
        addr: i64,
    } Damage, "inode {ino}: {slot} leads to block {addr}, which the data device does not have", repair "cleared";

    /// A pointer leads to a block of the data device that another file has.
    DuplicateDataBlock {
        /// The inode.
        ino: u64,
        /// The pointer's place.
        slot: Slot,
        /// The block.
        addr: i64,
    } Damage, "inode {ino}: {slot} leads to block {addr} of the data device, which belongs to another file", repair "cleared";

    /// An inode's group of the data device does not exist.
    InodeGroup {
        /// The inode.
        ino: u64,
        /// The group.
        group: u32,
    } CountsOnly, "inode {ino} names group {group}, which does not exist; it counts for group 0", repair "not repaired";

    /// Blocks of files are free according to a group's bitmap.
    GroupBlocksFree {
        /// The group.
        group: u32,
        /// The number of blocks.
        blocks: u64,
    } Damage, "group {group}: {blocks} blocks of files are free by the bitmap", repair "bitmap corrected";

    /// Blocks without a file are in use according to a group's bitmap.
    GroupBlocksUsed {
        /// The group.
        group: u32,
        /// The number of blocks.
        blocks: u64,
    } LeakOnly, "group {group}: {blocks} blocks without a file are in use by the bitmap", repair "bitmap corrected";

    /// A count of a group is wrong.
    GroupCount {
        /// The group.
        group: u32,
        /// `free` or `inodes`.
        field: &'static str,
        /// The value in the group's descriptor.
        stored: u32,
        /// The right value.
        right: u32,
    } CountsOnly, "group {group}: {field} is {stored}, but must be {right}", repair "count corrected";

    /// A block behind the data device's last one is in use according to the bitmap.
    GroupBeyondEnd {
        /// The block.
        block: u64,
    } CountsOnly, "block {block} behind the end of the data device is in use by the bitmap", repair "bit cleared";

    /// The log behind the checkpoint has an inode for which the IFILE has no space.
    IfileTooSmall {
        /// The inode.
        ino: u64,
    } LeakOnly, "inode {ino} in the log is beyond the IFILE", repair "not repaired";
}

impl LfsFinding {
    /// The severity.
    pub fn severity(&self) -> Severity {
        self.class()
    }

    /// Whether a repair removes the finding.
    pub fn is_repairable(&self) -> bool {
        self.repair() != "not repaired"
    }
}
