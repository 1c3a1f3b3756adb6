//! The words of findings: how bad, where, what is counted.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Counts are wrong, or reserved bytes, that nothing but statistics and allocation hints depend on.
    CountsOnly,
    /// Space, inodes or links are held that nothing uses. Safe to go on with; a later check frees them.
    LeakOnly,
    /// Going on could lose or mix up data.
    Damage,
}

/// Where a block address is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slot {
    /// One of the inode's direct addresses.
    Direct(u32),
    /// The inode's single (0), double (1) or triple (2) indirect address.
    Indirect(u32),
    /// One of the inode's addresses for extended attributes.
    Attributes(u32),
    /// In an indirect block.
    Within {
        /// The indirect block's address in fragments.
        block: u64,
        /// Which of its addresses.
        index: u32,
    },
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Direct(n) => write!(f, "db[{n}]"),
            Slot::Indirect(n) => write!(f, "ib[{n}]"),
            Slot::Attributes(n) => write!(f, "extb[{n}]"),
            Slot::Within { block, index } => write!(f, "entry {index} of indirect block {block}"),
        }
    }
}

/// A counter that is kept in groups, in the summary and in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// Directories.
    Directories,
    /// Free blocks.
    FreeBlocks,
    /// Free inodes.
    FreeInodes,
    /// Free fragments outside of free blocks.
    FreeFragments,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Count::Directories => "directories",
            Count::FreeBlocks => "free blocks",
            Count::FreeInodes => "free inodes",
            Count::FreeFragments => "free fragments",
        })
    }
}
