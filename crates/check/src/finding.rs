//! Everything that can be wrong with a file system, one variant each.

use std::fmt;

use serde::Serialize;

use crate::state::ROOT;
use crate::terms::{Count, Severity, Slot};

/// Declares the findings of a file system: each with its severity, its words and its repair.
macro_rules! findings {
    ($(#[doc = $all:literal])+ $name:ident: $(
        #[doc = $doc:literal]
        $variant:ident { $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty),* $(,)? }
            $severity:ident, $text:literal, repair $repair:literal;
    )+) => {
        $(#[doc = $all])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum $name {
            $(#[doc = $doc] $variant { $($(#[doc = $field_doc])+ $field: $type),* },)+
        }

        impl $name {
            /// The names of all variants.
            pub const KINDS: &'static [&'static str] = &[$(stringify!($variant)),+];

            /// The variant's name.
            pub fn kind(&self) -> &'static str {
                match self { $($name::$variant { .. } => stringify!($variant),)+ }
            }

            /// What a repair does about it.
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
    /// An inconsistency: what, and where. Blocks are addresses in fragments, offsets are in bytes.
    Finding:

    /// No usable superblock where one belongs; a group's copy was used instead.
    SuperblockDamaged {
        /// Where it was looked for, in bytes.
        at: u64,
        /// Where the copy is that was used, in bytes.
        copy: u64,
        /// What is wrong with the one that was looked for.
        error: String,
    } Damage, "superblock at byte {at}: {error}; the copy at byte {copy} is used", repair "restored from the copy";

    /// The superblock's check-hash is wrong.
    SuperblockHash {
        /// Where the superblock is, in bytes.
        at: u64,
        /// Whether it is right once the clean flag is set: the write that changed the flag was cut off.
        flag_only: bool,
    } Damage, "superblock at byte {at}: wrong check-hash", repair "hash made right";

    /// A group's copy of the superblock is unusable or describes another file system.
    SuperblockCopy {
        /// The group.
        cg: u32,
        /// What is wrong.
        error: String,
    } Damage, "group {cg}: copy of the superblock: {error}", repair "copied anew";

    /// A field of the superblock is not what the others make it.
    SuperblockField {
        /// The field.
        field: &'static str,
        /// What it is.
        stored: i64,
        /// What it must be.
        right: i64,
    } Damage, "superblock: {field} is {stored}, but must be {right}", repair "made right";

    /// Something is in what the superblock's totals reserve.
    ReservedTotals {
        /// The field.
        field: &'static str,
        /// What it is.
        stored: i64,
    } CountsOnly, "superblock: {field} is reserved, but holds {stored}", repair "cleared";

    /// The record in the boot area that helps to find the superblock's copies is of another shape.
    RecoveryRecord {
        /// The field.
        field: &'static str,
        /// What it is.
        stored: i64,
        /// What it must be.
        right: i64,
    } CountsOnly, "record of the superblock's copies: {field} is {stored}, but must be {right}", repair "made right";

    /// A total in the superblock is wrong.
    Totals {
        /// Which.
        count: Count,
        /// What the superblock says.
        stored: i64,
        /// What there is.
        found: i64,
    } CountsOnly, "superblock: {count}: {stored} recorded, {found} there", repair "count made right";

    /// A group's entry in the summary area is wrong.
    Summary {
        /// The group.
        cg: u32,
        /// Which count.
        count: Count,
        /// What the summary says.
        stored: i32,
        /// What there is.
        found: i32,
    } CountsOnly, "summary of group {cg}: {count}: {stored} recorded, {found} there", repair "count made right";

    /// A group's header is unusable.
    GroupHeader {
        /// The group.
        cg: u32,
        /// What is wrong.
        error: String,
    } Damage, "{error}", repair "header rebuilt from what is in use";

    /// A group's check-hash is wrong.
    GroupHash {
        /// The group.
        cg: u32,
    } Damage, "group {cg}: wrong check-hash", repair "hash made right";

    /// A group's bitmaps are said to be elsewhere than where they belong.
    GroupLayout {
        /// The group.
        cg: u32,
        /// The field that says so.
        field: &'static str,
        /// What it is.
        stored: u32,
        /// What it must be.
        right: u32,
    } Damage, "group {cg}: {field} is {stored}, but must be {right}", repair "header rebuilt from what is in use";

    /// Something is in a reserved field of a group's header.
    GroupReserved {
        /// The group.
        cg: u32,
        /// The field.
        field: &'static str,
        /// What it is.
        stored: i64,
    } CountsOnly, "group {cg}: {field} is reserved, but holds {stored}", repair "cleared";

    /// Something is between a group's bitmaps.
    GroupPadding {
        /// The group.
        cg: u32,
        /// Where, as a byte of the header.
        byte: u32,
    } CountsOnly, "group {cg}: something is between its bitmaps, at byte {byte}", repair "cleared";

    /// A count in a group's header is wrong.
    GroupCounts {
        /// The group.
        cg: u32,
        /// Which count.
        count: Count,
        /// What the header says.
        stored: i32,
        /// What there is.
        found: i32,
    } CountsOnly, "group {cg}: {count}: {stored} recorded, {found} there", repair "count made right";

    /// The number of free runs of some length is wrong in a group's header.
    FragmentRuns {
        /// The group.
        cg: u32,
        /// The length in fragments.
        length: u32,
        /// What the header says.
        stored: i32,
        /// What there is.
        found: i32,
    } CountsOnly, "group {cg}: free runs of {length} fragments: {stored} recorded, {found} there", repair "count made right";

    /// A group's bitmap of free blocks does not fit its bitmap of free fragments.
    ClusterMap {
        /// The group.
        cg: u32,
        /// The first block, counted in blocks in the group, where they differ.
        block: u32,
    } CountsOnly, "group {cg}: cluster bitmap wrong from block {block} on", repair "bitmap made right";

    /// The number of free clusters of some length is wrong in a group's header.
    ClusterCounts {
        /// The group.
        cg: u32,
        /// The length in blocks.
        length: u32,
        /// What the header says.
        stored: i32,
        /// What there is.
        found: i32,
    } CountsOnly, "group {cg}: free clusters of {length} blocks: {stored} recorded, {found} there", repair "count made right";

    /// The group's header calls fewer inodes initialised than are in use, or than were when it was made.
    InitialisedTooLow {
        /// The group.
        cg: u32,
        /// What the header says.
        stored: u32,
        /// The inodes that must be initialised.
        needed: u32,
    } Damage, "group {cg}: {stored} inodes recorded as initialised, but at least {needed} must be", repair "limit raised";

    /// A group's bitmap calls fragments free that the file system does not have.
    FreeBeyondEnd {
        /// The group.
        cg: u32,
        /// The first such fragment in the group.
        fragment: u32,
    } Damage, "group {cg}: fragment {fragment} is free, but beyond the group's end", repair "marked used";

    /// Fragments are marked used, but nothing uses them.
    BlocksLeaked {
        /// The first fragment.
        addr: u64,
        /// How many.
        count: u32,
    } LeakOnly, "block {addr}: {count} fragments are marked used, but nothing uses them", repair "freed";

    /// Fragments are marked free, but in use.
    BlocksNotMarked {
        /// The first fragment.
        addr: u64,
        /// How many.
        count: u32,
    } Damage, "block {addr}: {count} fragments are marked free, but in use", repair "marked used";

    /// Inodes are marked used, but are not.
    InodesLeaked {
        /// The first inode.
        ino: u32,
        /// How many.
        count: u32,
    } LeakOnly, "inode {ino}: {count} inodes are marked used, but are not", repair "freed";

    /// Inodes are marked free, but in use.
    InodesNotMarked {
        /// The first inode.
        ino: u32,
        /// How many.
        count: u32,
    } Damage, "inode {ino}: {count} inodes are marked free, but in use", repair "marked used";

    /// An inode's check-hash is wrong.
    InodeHash {
        /// The inode.
        ino: u32,
    } Damage, "inode {ino}: wrong check-hash", repair "hash made right";

    /// An inode that is not in use still has a size or blocks.
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

    /// A device without a number.
    DeviceNumber {
        /// The inode.
        ino: u32,
    } Damage, "inode {ino}: a device without a number", repair "inode cleared";

    /// A directory's size is not whole chunks of 512 bytes.
    DirectorySize {
        /// The directory.
        ino: u32,
        /// Its size in bytes.
        size: u64,
    } Damage, "directory {ino}: size {size} is not whole chunks of 512 bytes", repair "rounded up";

    /// A file's size reaches beyond its last block.
    EndsInHole {
        /// The inode.
        ino: u32,
        /// Its size in bytes.
        size: u64,
        /// The end of its last block, in bytes.
        end: u64,
        /// Whether the end is reached through indirect blocks, where soft updates leave such files.
        indirect: bool,
    } Damage, "inode {ino}: size {size} is beyond its last block, which ends at {end}", repair "size cut";

    /// A block address beyond the end of the file.
    PointerBeyondEnd {
        /// The inode.
        ino: u32,
        /// Where the address is kept.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, but beyond the file's end", repair "address cleared";

    /// A block address outside of the file system, or of its own structures.
    BadBlock {
        /// The inode.
        ino: u32,
        /// Where the address is kept.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, which no file can have", repair "address cleared";

    /// A block, or a run of fragments, that crosses a block boundary.
    Misaligned {
        /// The inode.
        ino: u32,
        /// Where the address is kept.
        slot: Slot,
        /// The address.
        addr: u64,
        /// How many fragments from there on.
        count: u32,
    } Damage, "inode {ino}: {slot} is {addr}, where {count} fragments cross a block boundary", repair "copied to a fresh place, or cut off where there is none";

    /// A block that belongs to another file, or to another place in this one, already.
    DuplicateBlock {
        /// The inode.
        ino: u32,
        /// Where the address is kept.
        slot: Slot,
        /// The address.
        addr: u64,
        /// How many fragments from there on.
        count: u32,
    } Damage, "inode {ino}: {slot} is {addr}, which is in use already", repair "copied to a fresh place, or cut off where there is none";

    /// A directory without a block inside.
    HoleInDirectory {
        /// The directory.
        ino: u32,
        /// The block that is missing, counted in blocks from the start.
        lbn: u64,
    } Damage, "directory {ino}: block {lbn} is missing", repair "filled with free space, or cut off there";

    /// An inode's count of sectors held is wrong.
    BlockCount {
        /// The inode.
        ino: u32,
        /// What it says, in sectors of 512 bytes.
        stored: u64,
        /// What it holds.
        found: u64,
    } CountsOnly, "inode {ino}: {stored} sectors recorded, {found} held", repair "count made right";

    /// A device, pipe, socket or short symbolic link with block addresses, or a link's rubbish after the target.
    SpecialWithBlocks {
        /// The inode.
        ino: u32,
        /// Where the address is kept.
        slot: Slot,
        /// The address.
        addr: i64,
    } Damage, "inode {ino}: {slot} is {addr}, but a file of its type has no blocks", repair "address cleared";

    /// The extended attributes are larger than they can be.
    AttributesSize {
        /// The inode.
        ino: u32,
        /// Their size in bytes.
        size: u32,
    } Damage, "inode {ino}: impossible size {size} of extended attributes", repair "attributes cleared";

    /// The extended attributes lack a block.
    AttributesMissing {
        /// The inode.
        ino: u32,
        /// The block that is missing.
        slot: Slot,
    } Damage, "inode {ino}: {slot} is missing, but its extended attributes need it", repair "attributes cut off there";

    /// A record of the extended attributes is broken.
    AttributesDamaged {
        /// The inode.
        ino: u32,
        /// Where, in bytes.
        at: u32,
        /// What is wrong.
        error: String,
    } Damage, "inode {ino}: {error}", repair "attributes cut off there";

    /// There is no root directory.
    RootMissing {} Damage, "there is no root directory", repair "made anew";

    /// Inode 2 is not a directory.
    RootNotDirectory {
        /// Its mode.
        mode: u16,
    } Damage, "inode 2 has mode {mode:#o}, but must be the root directory", repair "made anew";

    /// The superblock asks for a journal of soft updates that is not there: FreeBSD does not mount that.
    JournalMissing {} Damage, "superblock: asks for a journal of soft updates, but there is no /.sujournal", repair "no longer asked for";

    /// A directory without `.` at its start.
    DotMissing {
        /// The directory.
        ino: u32,
    } Damage, "directory {ino}: no \".\" at its start", repair "made anew";

    /// A directory whose `.` is another inode.
    DotWrong {
        /// The directory.
        ino: u32,
        /// What its `.` says.
        stored: u32,
    } Damage, "directory {ino}: \".\" is inode {stored}", repair "made right";

    /// A directory without `..` after `.`.
    DotDotMissing {
        /// The directory.
        ino: u32,
    } Damage, "directory {ino}: no \"..\" after \".\"", repair "made anew";

    /// A directory whose `..` is not the directory it is in.
    DotDotWrong {
        /// The directory.
        ino: u32,
        /// What its `..` says.
        stored: u32,
        /// The directory it is in.
        parent: u32,
    } Damage, "directory {ino}: \"..\" is inode {stored}, but it is in {parent}", repair "made right";

    /// A directory without a name whose `..` leads to a file: the inode of its parent was used again too early.
    DotDotNoDirectory {
        /// The directory.
        ino: u32,
        /// What its `..` says.
        stored: u32,
    } Damage, "directory {ino}: it has no name, and \"..\" is inode {stored}, no directory", repair "made right where the directory is kept";

    /// Another `.` or `..` in a directory.
    ExtraDot {
        /// The directory.
        ino: u32,
        /// Where, in bytes.
        offset: u64,
    } Damage, "directory {ino}, byte {offset}: another \".\" or \"..\"", repair "entry removed";

    /// A broken directory entry.
    EntryDamaged {
        /// The directory.
        ino: u32,
        /// Where, in bytes.
        offset: u64,
        /// What is wrong.
        error: String,
    } Damage, "directory {ino}, byte {offset}: {error}", repair "entry removed, with the rest of its chunk where the next cannot be found";

    /// An entry with an inode number that does not exist.
    EntryOutOfRange {
        /// The directory.
        ino: u32,
        /// The entry's name.
        name: String,
        /// The inode number.
        target: u32,
    } Damage, "directory {ino}: entry {name:?} is of inode {target}, which does not exist", repair "entry removed";

    /// An entry for an inode that is not in use.
    EntryUnallocated {
        /// The directory.
        ino: u32,
        /// The entry's name.
        name: String,
        /// The inode.
        target: u32,
    } Damage, "directory {ino}: entry {name:?} is of inode {target}, which is not in use", repair "entry removed";

    /// An entry with another type than its inode.
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
    } Damage, "directory {ino}: entry {name:?} has type {stored}, but inode {target} has {actual}", repair "type made right";

    /// A name that is in a directory already.
    DuplicateName {
        /// The directory.
        ino: u32,
        /// The name.
        name: String,
        /// The inode of the later entry.
        target: u32,
    } Damage, "directory {ino}: another entry {name:?}, of inode {target}", repair "later entry removed";

    /// An entry for a directory that is in another directory already, or for the root.
    DirectoryLinkedTwice {
        /// The directory that the entry is in.
        ino: u32,
        /// The entry's name.
        name: String,
        /// The directory that the entry is of.
        target: u32,
    } Damage, "directory {ino}: entry {name:?} is of directory {target}, which has a parent already", repair "entry removed";

    /// Directories that are inside of each other, and not of the root.
    DirectoryLoop {
        /// The one that is taken out.
        ino: u32,
    } Damage, "directory {ino} is inside of itself", repair "moved to lost+found";

    /// A directory that is in no directory.
    UnreferencedDirectory {
        /// The directory.
        ino: u32,
        /// Whether it has no entries.
        empty: bool,
        /// Whether it has its `.` but a count of links of 0: FreeBSD's preen does not take that.
        uncounted: bool,
    } LeakOnly, "directory {ino} is in no directory", repair "moved to lost+found; cleared where it is empty";

    /// A file that has no name, though its link count says that it has.
    UnreferencedInode {
        /// The inode.
        ino: u32,
        /// Its link count.
        links: i32,
        /// Whether it is a regular file without contents, or a socket.
        empty: bool,
    } LeakOnly, "inode {ino} has no name, but {links} links", repair "moved to lost+found; cleared where it is empty";

    /// A file without names or links that was not freed.
    UnlinkedInode {
        /// The inode.
        ino: u32,
    } LeakOnly, "inode {ino} has neither names nor links", repair "freed";

    /// A link count above the number of names.
    LinkCountHigh {
        /// The inode.
        ino: u32,
        /// Its link count.
        stored: i32,
        /// The names there are.
        found: u32,
    } LeakOnly, "inode {ino}: {stored} links recorded, {found} there", repair "count made right";

    /// A link count below the number of names.
    LinkCountLow {
        /// The inode.
        ino: u32,
        /// Its link count.
        stored: i32,
        /// The names there are.
        found: u32,
    } Damage, "inode {ino}: {stored} links recorded, {found} there", repair "count made right";

    /// More names than a link count can count.
    TooManyLinks {
        /// The inode.
        ino: u32,
        /// The names there are.
        found: u32,
    } Damage, "inode {ino}: {found} links, but 32767 is the most", repair "cannot be repaired: remove names";

    /// A file without a name, on a disk without room for one, in lost+found or in the root directory.
    NoPlace {
        /// The inode.
        ino: u32,
    } Damage, "inode {ino}: no space or inode is left to connect it", repair "cleared with all that it holds";

    /// A directory could not be put into lost+found, or a root directory not made: no space or inode.
    NoSpace {
        /// The inode.
        ino: u32,
    } Damage, "inode {ino}: no space or inode is left to connect it", repair "cannot be repaired: free space and check again";
}

impl Finding {
    /// How bad it is, where nothing is known of how the file system was used. [`Report::severity`] knows
    /// more.
    ///
    /// [`Report::severity`]: crate::Report::severity
    pub fn severity(&self) -> Severity {
        match self {
            // Soft updates write a size before the indirect address that it needs.
            Finding::EndsInHole { indirect: true, .. } => Severity::CountsOnly,
            Finding::SuperblockHash { flag_only: true, .. } => Severity::CountsOnly,
            _ => self.class(),
        }
    }

    /// How bad it is on what a crash left of a file system under soft updates. A write of a group or of
    /// the superblock may have been torn: its check-hash, like its counts, follows from what a mount
    /// believes. A directory that is being renamed has both names for a while.
    pub(crate) fn severity_after_soft_updates(&self) -> Severity {
        match self {
            Finding::GroupHash { .. } | Finding::SuperblockHash { .. } => Severity::CountsOnly,
            // An image of an inode shows a state that it had: FreeBSD's fsck stops at such a one, too.
            Finding::PartlyFreed { .. } => Severity::Damage,
            // The root has no name that could be changed.
            Finding::DirectoryLinkedTwice { target, .. } if *target != ROOT => Severity::LeakOnly,
            _ => self.severity(),
        }
    }

    /// Whether a repair makes it go away.
    pub fn is_repairable(&self) -> bool {
        !matches!(self, Finding::TooManyLinks { .. } | Finding::NoSpace { .. })
    }

    /// Whether a repair loses nothing although it is damage: bitmaps that call free what is in use, and
    /// fields that follow from others.
    pub(crate) fn is_mended_without_loss(&self) -> bool {
        matches!(
            self,
            Finding::BlocksNotMarked { .. }
                | Finding::InodesNotMarked { .. }
                | Finding::SuperblockField { .. }
                | Finding::GroupLayout { .. }
                | Finding::JournalMissing {}
        )
    }

    /// The inode it is about, if it is about one.
    pub fn ino(&self) -> Option<u32> {
        use Finding::*;
        match self {
            InodeHash { ino }
            | PartlyFreed { ino }
            | BadMode { ino, .. }
            | BadSize { ino, .. }
            | DeviceNumber { ino }
            | DirectorySize { ino, .. }
            | EndsInHole { ino, .. }
            | PointerBeyondEnd { ino, .. }
            | BadBlock { ino, .. }
            | Misaligned { ino, .. }
            | DuplicateBlock { ino, .. }
            | HoleInDirectory { ino, .. }
            | BlockCount { ino, .. }
            | SpecialWithBlocks { ino, .. }
            | AttributesSize { ino, .. }
            | AttributesMissing { ino, .. }
            | AttributesDamaged { ino, .. }
            | DotMissing { ino }
            | DotWrong { ino, .. }
            | DotDotMissing { ino }
            | DotDotWrong { ino, .. }
            | DotDotNoDirectory { ino, .. }
            | ExtraDot { ino, .. }
            | EntryDamaged { ino, .. }
            | EntryOutOfRange { ino, .. }
            | EntryUnallocated { ino, .. }
            | EntryType { ino, .. }
            | DuplicateName { ino, .. }
            | DirectoryLinkedTwice { ino, .. }
            | DirectoryLoop { ino }
            | UnreferencedDirectory { ino, .. }
            | UnreferencedInode { ino, .. }
            | UnlinkedInode { ino }
            | LinkCountHigh { ino, .. }
            | LinkCountLow { ino, .. }
            | TooManyLinks { ino, .. }
            | NoPlace { ino }
            | NoSpace { ino } => Some(*ino),
            _ => None,
        }
    }
}
