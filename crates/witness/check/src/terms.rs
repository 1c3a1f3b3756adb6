//! The terms of findings: severity, place, counter.

use std::fmt;

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Wrong counts or reserved bytes, on which only statistics and allocation hints depend.
    CountsOnly,
    /// Leaked space, inodes or links. Continued use is safe; a later check frees them.
    LeakOnly,
    /// Damage: continued use could lose or mix up data.
    Damage,
}

/// The place of a block address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slot {
    /// One of the inode's direct addresses.
    Direct(u32),
    /// The inode's single (0), double (1) or triple (2) indirect address.
    Indirect(u32),
    /// One of the inode's addresses for extended attributes.
    Attributes(u32),
    /// An address in an indirect block.
    Within {
        /// The indirect block's address in fragments.
        block: u64,
        /// The index of the address.
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

/// A counter that is stored in groups, in the summary and in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// Directories.
    Directories,
    /// Free blocks.
    FreeBlocks,
    /// Free inodes.
    FreeInodes,
    /// Free fragments outside free blocks.
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
