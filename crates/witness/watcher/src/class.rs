//! The kinds that blocks can be of.

use std::fmt;

/// The kind of a block.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Space before the first superblock or partition: boot code.
    BootArea,
    /// A partition table: an MBR, a sector in the chain of logical partitions, a GPT or its copy, a
    /// BSD label.
    PartitionTable,
    /// The superblock in use.
    Superblock,
    /// A copy of the superblock.
    SuperblockCopy,
    /// The summary of free space in each cylinder group.
    Summary,
    /// Descriptors of block groups: the addresses of their bitmaps and inode tables. Blocks
    /// reserved for more descriptors are included.
    GroupDescriptors,
    /// A cylinder group's header and bitmaps.
    CylinderGroup,
    /// The headers of an allocation group and its free list.
    GroupHeader,
    /// Bitmap of free blocks.
    BlockBitmap,
    /// Bitmap of free inodes.
    InodeBitmap,
    /// A tree of free space or of space with owners.
    SpaceTree,
    /// The map from inode numbers to the places of inodes.
    InodeMap,
    /// A block of inodes.
    InodeBlock,
    /// A block of a directory.
    Directory,
    /// An indirect block: addresses of blocks.
    Indirect,
    /// A node of a file's tree of extents.
    ExtentNode,
    /// An inner node of the tree that holds all files.
    TreeNode,
    /// A leaf of the tree that holds all files: inodes, names, pointers, tails.
    TreeLeaf,
    /// The tree that holds the roots of the other trees (btrfs).
    RootTree,
    /// The tree that maps logical addresses to devices (btrfs).
    ChunkTree,
    /// Checksums of file data.
    Checksums,
    /// Contents of a regular file.
    FileData,
    /// A page of a swap area.
    Swap,
    /// The target of a symbolic link that is too long for its inode.
    Symlink,
    /// Extended attributes.
    ExtendedAttributes,
    /// Disk quotas: usage and limits of each user.
    Quota,
    /// Orphans: files without names that are still open.
    Orphans,
    /// A segment summary: the kind and owner of each block of a segment in a log-structured file
    /// system.
    SegmentSummary,
    /// Segment usage: the live bytes or blocks of each segment.
    SegmentUsage,
    /// Blocks that the cleaner of a log-structured file system has moved, with their summary.
    Cleaner,
    /// A map from numbers to places: NILFS2's virtual block numbers, F2FS's nodes.
    AddressMap,
    /// A checkpoint: a state to which a log-structured file system returns after a crash.
    Checkpoint,
    /// Part of one of Ordo's own logs, its superblock included.
    Log,
    /// A journal's superblock, header or restart area.
    JournalSuperblock,
    /// A journal descriptor: the fixed locations of the copies that follow it.
    JournalDescriptor,
    /// A copy of a block in a journal.
    JournalData,
    /// A revoke record: blocks whose older copies in a journal no longer count.
    JournalRevoke,
    /// A commit block: the end of a transaction.
    JournalCommit,
    /// Journal records of changes smaller than a block.
    JournalRecords,
    /// Zeros or empty records with which a log's space is cleared ahead of its records, and no
    /// records (XFS).
    LogClearing,
    /// Space that was read and that no file had at that time.
    FreeSpace,
    /// None of these kinds, or the kind is not known.
    Unknown,
}

impl Class {
    /// Every kind, in the order in which tables show them.
    pub const ALL: [Class; 42] = [
        Class::BootArea,
        Class::PartitionTable,
        Class::Superblock,
        Class::SuperblockCopy,
        Class::Summary,
        Class::GroupDescriptors,
        Class::CylinderGroup,
        Class::GroupHeader,
        Class::BlockBitmap,
        Class::InodeBitmap,
        Class::SpaceTree,
        Class::InodeMap,
        Class::InodeBlock,
        Class::Directory,
        Class::Indirect,
        Class::ExtentNode,
        Class::TreeNode,
        Class::TreeLeaf,
        Class::RootTree,
        Class::ChunkTree,
        Class::Checksums,
        Class::FileData,
        Class::Swap,
        Class::Symlink,
        Class::ExtendedAttributes,
        Class::Quota,
        Class::Orphans,
        Class::SegmentSummary,
        Class::SegmentUsage,
        Class::Cleaner,
        Class::AddressMap,
        Class::Checkpoint,
        Class::Log,
        Class::JournalSuperblock,
        Class::JournalDescriptor,
        Class::JournalData,
        Class::JournalRevoke,
        Class::JournalCommit,
        Class::JournalRecords,
        Class::LogClearing,
        Class::FreeSpace,
        Class::Unknown,
    ];

    /// The kind's name as a key: lower case, words joined by underscores.
    pub const fn key(self) -> &'static str {
        match self {
            Class::BootArea => "boot_area",
            Class::PartitionTable => "partition_table",
            Class::Superblock => "superblock",
            Class::SuperblockCopy => "superblock_copy",
            Class::Summary => "summary",
            Class::GroupDescriptors => "group_descriptors",
            Class::CylinderGroup => "cylinder_group",
            Class::GroupHeader => "group_header",
            Class::BlockBitmap => "block_bitmap",
            Class::InodeBitmap => "inode_bitmap",
            Class::SpaceTree => "space_tree",
            Class::InodeMap => "inode_map",
            Class::InodeBlock => "inode_block",
            Class::Directory => "directory",
            Class::Indirect => "indirect",
            Class::ExtentNode => "extent_node",
            Class::TreeNode => "tree_node",
            Class::TreeLeaf => "tree_leaf",
            Class::RootTree => "root_tree",
            Class::ChunkTree => "chunk_tree",
            Class::Checksums => "checksums",
            Class::FileData => "file_data",
            Class::Swap => "swap",
            Class::Symlink => "symlink",
            Class::ExtendedAttributes => "extended_attributes",
            Class::Quota => "quota",
            Class::Orphans => "orphans",
            Class::SegmentSummary => "segment_summary",
            Class::SegmentUsage => "segment_usage",
            Class::Cleaner => "cleaner",
            Class::AddressMap => "address_map",
            Class::Checkpoint => "checkpoint",
            Class::Log => "log",
            Class::JournalSuperblock => "journal_superblock",
            Class::JournalDescriptor => "journal_descriptor",
            Class::JournalData => "journal_data",
            Class::JournalRevoke => "journal_revoke",
            Class::JournalCommit => "journal_commit",
            Class::JournalRecords => "journal_records",
            Class::LogClearing => "log_clearing",
            Class::FreeSpace => "free_space",
            Class::Unknown => "unknown",
        }
    }

    /// The kind with this key.
    pub fn from_key(key: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.key() == key)
    }

    /// The kind's name in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Class::BootArea => "boot area",
            Class::PartitionTable => "partition table",
            Class::Superblock => "superblock",
            Class::SuperblockCopy => "copy of the superblock",
            Class::Summary => "summary area",
            Class::GroupDescriptors => "group descriptors",
            Class::CylinderGroup => "cylinder group",
            Class::GroupHeader => "allocation group header",
            Class::BlockBitmap => "block bitmap",
            Class::InodeBitmap => "inode bitmap",
            Class::SpaceTree => "free-space tree",
            Class::InodeMap => "inode map",
            Class::InodeBlock => "inode block",
            Class::Directory => "directory",
            Class::Indirect => "indirect block",
            Class::ExtentNode => "extent tree node",
            Class::TreeNode => "tree node",
            Class::TreeLeaf => "tree leaf",
            Class::RootTree => "tree of roots",
            Class::ChunkTree => "chunk tree",
            Class::Checksums => "checksums",
            Class::FileData => "file data",
            Class::Swap => "swap",
            Class::Symlink => "symbolic link",
            Class::ExtendedAttributes => "extended attributes",
            Class::Quota => "quota",
            Class::Orphans => "list of orphans",
            Class::SegmentSummary => "segment summary",
            Class::SegmentUsage => "segment usage",
            Class::Cleaner => "moved by the cleaner",
            Class::AddressMap => "address map",
            Class::Checkpoint => "checkpoint",
            Class::Log => "log",
            Class::JournalSuperblock => "journal superblock",
            Class::JournalDescriptor => "journal descriptor",
            Class::JournalData => "journal data",
            Class::JournalRevoke => "journal revoke",
            Class::JournalCommit => "journal commit",
            Class::JournalRecords => "journal records",
            Class::LogClearing => "clearing of the log",
            Class::FreeSpace => "free space",
            Class::Unknown => "unknown",
        }
    }

    /// Whether the kind is metadata: about files, and not their contents.
    pub const fn is_metadata(self) -> bool {
        !matches!(
            self,
            Class::FileData | Class::Swap | Class::Cleaner | Class::FreeSpace | Class::Unknown
        )
    }

    /// Whether the kind is traffic of a journal: part of one, and not the clearing of its space.
    pub const fn is_journal_traffic(self) -> bool {
        self.is_journal() && !matches!(self, Class::LogClearing)
    }

    /// Whether the kind is part of a journal; every other kind has a fixed location.
    pub const fn is_journal(self) -> bool {
        matches!(
            self,
            Class::Log
                | Class::JournalSuperblock
                | Class::JournalDescriptor
                | Class::JournalData
                | Class::JournalRevoke
                | Class::JournalCommit
                | Class::JournalRecords
                | Class::LogClearing
        )
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}
