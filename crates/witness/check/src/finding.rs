//! Every inconsistency of a file system, one variant each.

use std::fmt;

use serde::Serialize;

use crate::state::ROOT;
use crate::terms::{Count, Severity, Slot};

/// Declares the findings of a file system, each with its severity, text and repair.
macro_rules! findings {
    ($(#[doc = $all:literal])+ $name:ident: $(
        $(#[doc = $doc:literal])+
        $variant:ident { $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty),* $(,)? }
            $severity:ident, $text:literal, repair $repair:literal;
    )+) => {
        $(#[doc = $all])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum $name {
            $($(#[doc = $doc])+ $variant { $($(#[doc = $field_doc])+ $field: $type),* },)+
        }

        impl $name {
            /// The names of all variants.
            pub const KINDS: &'static [&'static str] = &[$(stringify!($variant)),+];

            /// The variant's name.
            pub fn kind(&self) -> &'static str {
                match self { $($name::$variant { .. } => stringify!($variant),)+ }
            }

            /// The action of a repair for this finding.
            pub fn repair(&self) -> &'static str {
                match self { $($name::$variant { .. } => $repair,)+ }
            }

            fn class(&self) -> Severity {
                match self { $($name::$variant { .. } => Severity::$severity,)+ }
            }
        }

        impl fmt::Display for $name {
            #[allow(unused_variables)]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($name::$variant { $($field),* } => write!(f, $text),)+ }
            }
        }
    };
}

pub(crate) use findings;

findings! {
    /// An inconsistency and its place. Blocks are addresses in fragments; offsets are in bytes.
    Finding:

    /// The superblock at its place is unusable; a group's copy was used instead.
    SuperblockDamaged {
        /// The place where the superblock should be, in bytes.
        at: u64,
        /// The place of the copy that was used, in bytes.
        copy: u64,
        /// The fault of the superblock that is there.
        error: String,
    } Damage, "superblock at byte {at}: {error}; the copy at byte {copy} is used", repair "restored from the copy";

    /// The superblock's check-hash is wrong.
    SuperblockHash {
        /// The superblock's place, in bytes.
        at: u64,
        /// Whether the hash matches once the clean flag is set: then the write that changed the
        /// flag was torn.
        flag_only: bool,
    } Damage, "superblock at byte {at}: wrong check-hash", repair "hash recomputed";

    /// A group's copy of the superblock is unusable or describes another file system.
    SuperblockCopy {
        /// The group.
        cg: u32,
        /// The fault.
        error: String,
    } Damage, "group {cg}: copy of the superblock: {error}", repair "copied again";

    /// A field of the superblock does not agree with the others.
    SuperblockField {
        /// The field.
        field: &'static str,
        /// The field's value.
        stored: i64,
        /// The right value.
        right: i64,
    } Damage, "superblock: {field} is {stored}, but must be {right}", repair "corrected";

    /// The reserved part of the superblock's totals is not zero.
    ReservedTotals {
        /// The field.
        field: &'static str,
        /// The field's value.
        stored: i64,
    } CountsOnly, "superblock: {field} is reserved, but holds {stored}", repair "cleared";

    /// A field of UFS1's superblock that repeats a newer one is wrong.
    OlderField {
        /// The field.
        field: &'static str,
        /// The field's value.
        stored: i64,
        /// The right value.
        right: i64,
    } CountsOnly, "superblock: {field}, for older systems, is {stored}, but must be {right}", repair "corrected";

    /// The recovery record in the boot area, which helps to find the superblock's copies, has
    /// another geometry.
    RecoveryRecord {
        /// The field.
        field: &'static str,
        /// The field's value.
        stored: i64,
        /// The right value.
        right: i64,
    } CountsOnly, "record of the superblock's copies: {field} is {stored}, but must be {right}", repair "corrected";

    /// A total in the superblock is wrong.
    Totals {
        /// The count.
        count: Count,
        /// The value in the superblock.
        stored: i64,
        /// The right value.
        found: i64,
    } CountsOnly, "superblock: {count}: {stored} recorded, {found} there", repair "count corrected";

    /// A group's entry in the summary area is wrong.
    Summary {
        /// The group.
        cg: u32,
        /// The count.
        count: Count,
        /// The value in the summary.
        stored: i32,
        /// The right value.
        found: i32,
    } CountsOnly, "summary of group {cg}: {count}: {stored} recorded, {found} there", repair "count corrected";

    /// A group's header is unusable.
    GroupHeader {
        /// The group.
        cg: u32,
        /// The fault.
        error: String,
    } Damage, "{error}", repair "header rebuilt from the blocks and inodes in use";

    /// A group's check-hash is wrong.
    GroupHash {
        /// The group.
        cg: u32,
    } Damage, "group {cg}: wrong check-hash", repair "hash recomputed";

    /// A group's header names the wrong place for a bitmap.
    GroupLayout {
        /// The group.
        cg: u32,
        /// The field.
        field: &'static str,
        /// The field's value.
        stored: u32,
        /// The right value.
        right: u32,
    } Damage, "group {cg}: {field} is {stored}, but must be {right}", repair "header rebuilt from the blocks and inodes in use";

    /// A reserved field of a group's header is not zero.
    GroupReserved {
        /// The group.
        cg: u32,
        /// The field.
        field: &'static str,
        /// The field's value.
        stored: i64,
    } CountsOnly, "group {cg}: {field} is reserved, but holds {stored}", repair "cleared";

    /// A field of a UFS1 group's header that only older systems read is wrong.
    OlderGroupField {
        /// The group.
        cg: u32,
        /// The field.
        field: &'static str,
        /// The field's value.
        stored: i64,
        /// The right value.
        right: i64,
    } CountsOnly, "group {cg}: {field}, for older systems, is {stored}, but must be {right}", repair "corrected";

    /// A byte between a group's bitmaps is not zero.
    GroupPadding {
        /// The group.
        cg: u32,
        /// The byte in the header.
        byte: u32,
    } CountsOnly, "group {cg}: bytes between its bitmaps are not zero, from byte {byte}", repair "cleared";

    /// A count in a group's header is wrong.
    GroupCounts {
        /// The group.
        cg: u32,
        /// The count.
        count: Count,
        /// The value in the header.
        stored: i32,
        /// The right value.
        found: i32,
    } CountsOnly, "group {cg}: {count}: {stored} recorded, {found} there", repair "count corrected";

    /// A group's header has a wrong number of free runs of some length.
    FragmentRuns {
        /// The group.
        cg: u32,
        /// The length in fragments.
        length: u32,
        /// The value in the header.
        stored: i32,
        /// The right value.
        found: i32,
    } CountsOnly, "group {cg}: free runs of {length} fragments: {stored} recorded, {found} there", repair "count corrected";

    /// A group's bitmap of free blocks does not match its bitmap of free fragments.
    ClusterMap {
        /// The group.
        cg: u32,
        /// The first block where they differ, counted in blocks in the group.
        block: u32,
    } CountsOnly, "group {cg}: cluster bitmap wrong from block {block} on", repair "bitmap corrected";

    /// A group's header has a wrong number of free clusters of some length.
    ClusterCounts {
        /// The group.
        cg: u32,
        /// The length in blocks.
        length: u32,
        /// The value in the header.
        stored: i32,
        /// The right value.
        found: i32,
    } CountsOnly, "group {cg}: free clusters of {length} blocks: {stored} recorded, {found} there", repair "count corrected";

    /// According to a group's header, fewer inodes are initialised than are in use, or than mkfs
    /// initialises.
    InitialisedTooLow {
        /// The group.
        cg: u32,
        /// The value in the header.
        stored: u32,
        /// The number of inodes that must be initialised.
        needed: u32,
    } Damage, "group {cg}: {stored} inodes recorded as initialised, but at least {needed} must be", repair "limit raised";

    /// A group's bitmap marks fragments as free that lie beyond the file system.
    FreeBeyondEnd {
        /// The group.
        cg: u32,
        /// The first such fragment in the group.
        fragment: u32,
    } Damage, "group {cg}: fragment {fragment} is free, but beyond the group's end", repair "marked used";

    /// Fragments are marked used, but no file uses them.
    BlocksLeaked {
        /// The first fragment.
        addr: u64,
        /// The number of fragments.
        count: u32,
    } LeakOnly, "block {addr}: {count} fragments are marked used, but nothing uses them", repair "freed";

    /// Fragments are marked free, but are in use.
    BlocksNotMarked {
        /// The first fragment.
        addr: u64,
        /// The number of fragments.
        count: u32,
    } Damage, "block {addr}: {count} fragments are marked free, but in use", repair "marked used";

    /// Inodes are marked used, but are free.
    InodesLeaked {
        /// The first inode.
        ino: u32,
        /// The number of inodes.
        count: u32,
    } LeakOnly, "inode {ino}: {count} inodes are marked used, but are not", repair "freed";

    /// Inodes are marked free, but are in use.
    InodesNotMarked {
        /// The first inode.
        ino: u32,
        /// The number of inodes.
        count: u32,
    } Damage, "inode {ino}: {count} inodes are marked free, but in use", repair "marked used";

    /// An inode's check-hash is wrong.
    InodeHash {
        /// The inode.
        ino: u32,
    } Damage, "inode {ino}: wrong check-hash", repair "hash recomputed";

    /// A free inode still has a size or blocks.
    PartlyFreed {
        /// The inode.
        ino: u32,
    } LeakOnly, "inode {ino}: not in use, but has a size or blocks", repair "cleared";

    /// An inode's mode names no type of file.
    BadMode {
        /// The inode.
        ino: u32,
        /// The mode.
        mode: u16,
    } Damage, "inode {ino}: mode {mode:#o} names no type", repair "inode cleared";

    /// An inode's size is more than a file of its type can have.
    BadSize {
        /// The inode.
        ino: u32,
        /// The size in bytes.
        size: u64,
    } Damage, "inode {ino}: impossible size {size}", repair "inode cleared";

    /// A device has no number.
    DeviceNumber {
        /// The inode.
        ino: u32,
    } Damage, "inode {ino}: a device without a number", repair "inode cleared";

    /// A directory's size is not a multiple of 512 bytes.
    DirectorySize {
        /// The directory.
        ino: u32,
        /// The directory's size in bytes.
        size: u64,
    } Damage, "directory {ino}: size {size} is not whole chunks of 512 bytes", repair "rounded up";

    /// A file's size reaches beyond its last block.
    EndsInHole {
        /// The inode.
        ino: u32,
        /// The file's size in bytes.
        size: u64,
        /// The end of the file's last block, in bytes.
        end: u64,
        /// Whether indirect blocks lead to the end; soft updates may leave such files.
        indirect: bool,
    } Damage, "inode {ino}: size {size} is beyond its last block, which ends at {end}", repair "size reduced";

    /// A block address lies beyond the end of the file.
    PointerBeyondEnd {
        /// The inode.
        ino: u32,
        /// The place of the address.
        slot: Slot,
        /// The address.
        addr: i64,
        /// Whether the address is in an indirect block of a file that is no directory. After a
        /// crash, a file that grew may have it there, if the ordering does not order a size and a
        /// pointer that are in two blocks.
        growth: bool,
    } Damage, "inode {ino}: {slot} is {addr}, but beyond the file's end", repair "address cleared";

    /// A block address lies outside the file system, or in its own structures.
    BadBlock {
        /// The inode.
        ino: u32,
        /// The place of the address.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, which no file can have", repair "address cleared";

    /// A block or a run of fragments crosses a block boundary.
    Misaligned {
        /// The inode.
        ino: u32,
        /// The place of the address.
        slot: Slot,
        /// The address.
        addr: u64,
        /// The number of fragments from there on.
        count: u32,
    } Damage, "inode {ino}: {slot} is {addr}, where {count} fragments cross a block boundary", repair "copied to free blocks, or cut off if there are none";

    /// A block belongs to another file, or to another place in this file, already.
    DuplicateBlock {
        /// The inode.
        ino: u32,
        /// The place of the address.
        slot: Slot,
        /// The address.
        addr: u64,
        /// The number of fragments from there on.
        count: u32,
    } Damage, "inode {ino}: {slot} is {addr}, which is in use already", repair "copied to free blocks, or cut off if there are none";

    /// A directory lacks a block inside.
    HoleInDirectory {
        /// The directory.
        ino: u32,
        /// The missing block, counted in blocks from the start.
        lbn: u64,
    } Damage, "directory {ino}: block {lbn} is missing", repair "filled with free space, or cut off there";

    /// An inode's block count is wrong.
    BlockCount {
        /// The inode.
        ino: u32,
        /// The value in the inode, in sectors of 512 bytes.
        stored: u64,
        /// The right value.
        found: u64,
    } CountsOnly, "inode {ino}: {stored} sectors recorded, {found} in use", repair "count corrected";

    /// A device, pipe, socket or short symbolic link has block addresses, or a link has other bytes
    /// after its target.
    SpecialWithBlocks {
        /// The inode.
        ino: u32,
        /// The place of the address.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, but a file of its type has no blocks", repair "address cleared";

    /// The size of the extended attributes is impossible.
    AttributesSize {
        /// The inode.
        ino: u32,
        /// The attributes' size in bytes.
        size: u32,
    } Damage, "inode {ino}: impossible size {size} of extended attributes", repair "attributes cleared";

    /// The extended attributes lack a block.
    AttributesMissing {
        /// The inode.
        ino: u32,
        /// The missing block.
        slot: Slot,
    } Damage, "inode {ino}: {slot} is missing, but its extended attributes need it", repair "attributes cut off there";

    /// A record of the extended attributes is damaged.
    AttributesDamaged {
        /// The inode.
        ino: u32,
        /// The record's place, in bytes.
        at: u32,
        /// The fault.
        error: String,
    } Damage, "inode {ino}: {error}", repair "attributes cut off there";

    /// There is no root directory.
    RootMissing {} Damage, "there is no root directory", repair "created";

    /// Inode 2 is not a directory.
    RootNotDirectory {
        /// The inode's mode.
        mode: u16,
    } Damage, "inode 2 has mode {mode:#o}, but must be the root directory", repair "created";

    /// The superblock asks for a soft-updates journal that does not exist. FreeBSD does not mount
    /// such an image.
    JournalMissing {} Damage, "superblock: asks for a journal of soft updates, but there is no /.sujournal", repair "flag cleared";

    /// A directory has no `.` at its start.
    DotMissing {
        /// The directory.
        ino: u32,
    } Damage, "directory {ino}: no \".\" at its start", repair "created";

    /// A directory's `.` leads to another inode.
    DotWrong {
        /// The directory.
        ino: u32,
        /// The inode in its `.`.
        stored: u32,
    } Damage, "directory {ino}: \".\" is inode {stored}", repair "corrected";

    /// A directory has no `..` after `.`.
    DotDotMissing {
        /// The directory.
        ino: u32,
    } Damage, "directory {ino}: no \"..\" after \".\"", repair "created";

    /// A directory's `..` is not its parent.
    DotDotWrong {
        /// The directory.
        ino: u32,
        /// The inode in its `..`.
        stored: u32,
        /// The parent.
        parent: u32,
    } Damage, "directory {ino}: \"..\" is inode {stored}, but it is in {parent}", repair "corrected";

    /// A directory without a name has a `..` that leads to a file: its parent's inode was used
    /// again too early.
    DotDotNoDirectory {
        /// The directory.
        ino: u32,
        /// The inode in its `..`.
        stored: u32,
    } Damage, "directory {ino}: it has no name, and \"..\" is inode {stored}, no directory", repair "corrected if the directory is kept";

    /// A directory has a second `.` or `..`.
    ExtraDot {
        /// The directory.
        ino: u32,
        /// The entry's place, in bytes.
        offset: u64,
    } Damage, "directory {ino}, byte {offset}: another \".\" or \"..\"", repair "entry removed";

    /// A directory entry is damaged.
    EntryDamaged {
        /// The directory.
        ino: u32,
        /// The entry's place, in bytes.
        offset: u64,
        /// The fault.
        error: String,
    } Damage, "directory {ino}, byte {offset}: {error}", repair "entry removed, with the rest of its chunk if the next entry cannot be found";

    /// An entry has an inode number that does not exist.
    EntryOutOfRange {
        /// The directory.
        ino: u32,
        /// The entry's name.
        name: String,
        /// The inode number.
        target: u32,
    } Damage, "directory {ino}: entry {name:?} points to inode {target}, which does not exist", repair "entry removed";

    /// An entry's inode is free.
    EntryUnallocated {
        /// The directory.
        ino: u32,
        /// The entry's name.
        name: String,
        /// The inode.
        target: u32,
    } Damage, "directory {ino}: entry {name:?} points to inode {target}, which is not in use", repair "entry removed";

    /// An entry's type differs from its inode's.
    EntryType {
        /// The directory.
        ino: u32,
        /// The entry's name.
        name: String,
        /// The inode.
        target: u32,
        /// The type in the entry.
        stored: u8,
        /// The inode's type.
        actual: u8,
    } Damage, "directory {ino}: entry {name:?} has type {stored}, but inode {target} has {actual}", repair "type corrected";

    /// A directory has the same name twice.
    DuplicateName {
        /// The directory.
        ino: u32,
        /// The name.
        name: String,
        /// The inode of the later entry.
        target: u32,
    } Damage, "directory {ino}: another entry {name:?}, for inode {target}", repair "later entry removed";

    /// An entry leads to a directory that has a parent already, or to the root.
    DirectoryLinkedTwice {
        /// The directory that contains the entry.
        ino: u32,
        /// The entry's name.
        name: String,
        /// The directory to which the entry leads.
        target: u32,
    } Damage, "directory {ino}: entry {name:?} points to directory {target}, which has a parent already", repair "entry removed";

    /// Directories contain each other, and are not inside the root.
    DirectoryLoop {
        /// The directory that is taken out of the loop.
        ino: u32,
    } Damage, "directory {ino} is inside of itself", repair "moved to lost+found";

    /// A directory has no parent.
    UnreferencedDirectory {
        /// The directory.
        ino: u32,
        /// Whether it has no entries.
        empty: bool,
        /// Whether it has its `.` but a link count of 0, which FreeBSD's preen does not accept.
        uncounted: bool,
    } LeakOnly, "directory {ino} is in no directory", repair "moved to lost+found; cleared if it is empty";

    /// A file has no name, but its link count is not 0.
    UnreferencedInode {
        /// The inode.
        ino: u32,
        /// The inode's link count.
        links: i32,
        /// Whether it is a regular file without contents, or a socket.
        empty: bool,
    } LeakOnly, "inode {ino} has no name, but {links} links", repair "moved to lost+found; cleared if it is empty";

    /// A file without names or links was not freed.
    UnlinkedInode {
        /// The inode.
        ino: u32,
    } LeakOnly, "inode {ino} has neither names nor links", repair "freed";

    /// A link count is above the number of names.
    LinkCountHigh {
        /// The inode.
        ino: u32,
        /// The inode's link count.
        stored: i32,
        /// The number of names.
        found: u32,
    } LeakOnly, "inode {ino}: {stored} links recorded, {found} there", repair "count corrected";

    /// A link count is below the number of names.
    LinkCountLow {
        /// The inode.
        ino: u32,
        /// The inode's link count.
        stored: i32,
        /// The number of names.
        found: u32,
    } Damage, "inode {ino}: {stored} links recorded, {found} there", repair "count corrected";

    /// An inode has more names than a link count can hold.
    TooManyLinks {
        /// The inode.
        ino: u32,
        /// The number of names.
        found: u32,
    } Damage, "inode {ino}: {found} links, but 65500 is the most", repair "cannot be repaired: remove names";

    /// A file has no name, and there is no space for one in lost+found or in the root directory.
    NoPlace {
        /// The inode.
        ino: u32,
    } Damage, "inode {ino}: no space or inode is left to connect it", repair "cleared with its contents";

    /// There is no space or inode to put a directory into lost+found, or to make a root directory.
    NoSpace {
        /// The inode.
        ino: u32,
    } Damage, "inode {ino}: no space or inode is left to connect it", repair "cannot be repaired: free space and check again";
}

impl Finding {
    /// The severity if the last use is not known. [`Report::severity`](crate::Report::severity)
    /// knows more.
    pub fn severity(&self) -> Severity {
        match self {
            // Soft updates write a size before the indirect address that it needs.
            Finding::EndsInHole { indirect: true, .. } => Severity::CountsOnly,
            Finding::SuperblockHash { flag_only: true, .. } => Severity::CountsOnly,
            _ => self.class(),
        }
    }

    /// The severity after a crash under soft updates. A torn write of a group or of the superblock
    /// spoils only hashes and counts, and a mount rebuilds these from data that it trusts. A
    /// directory under rename has both names for a while.
    pub(crate) fn severity_after_soft_updates(&self) -> Severity {
        match self {
            Finding::GroupHash { .. } | Finding::SuperblockHash { .. } => Severity::CountsOnly,
            // An image of an inode always shows a state that the inode had, so soft updates never
            // leave this; FreeBSD's fsck stops at such an inode, too.
            Finding::PartlyFreed { .. } => Severity::Damage,
            // The root has no name, so this cannot be a rename.
            Finding::DirectoryLinkedTwice { target, .. } if *target != ROOT => Severity::LeakOnly,
            _ => self.severity(),
        }
    }

    /// Whether a repair removes the finding.
    pub fn is_repairable(&self) -> bool {
        !matches!(self, Finding::TooManyLinks { .. } | Finding::NoSpace { .. })
    }

    /// Whether a repair of this damage loses nothing: bitmaps that mark used space as free, derived
    /// fields, and blocks beyond the size that a growing file had on disk.
    pub(crate) fn is_repaired_without_loss(&self) -> bool {
        matches!(
            self,
            Finding::BlocksNotMarked { .. }
                | Finding::InodesNotMarked { .. }
                | Finding::SuperblockField { .. }
                | Finding::GroupLayout { .. }
                | Finding::JournalMissing {}
                | Finding::PointerBeyondEnd { growth: true, .. }
        )
    }
}
