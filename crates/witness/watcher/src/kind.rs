//! The meaning of a request: its parts, and what a write changes.

use std::fmt;

use ordo_block::{Operation, WriteFlags};
use ordo_runtime::Time;

pub use crate::class::Class;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)*) => {
        /// The reason why a part of a request has no name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: [Reason; [$($words),*].len()] = [$(Reason::$name),*];

            /// The reason in words.
            pub const fn words(self) -> &'static str {
                match self {
                    $(Reason::$name => $words,)*
                }
            }
        }
    };
}

reasons! {
    /// No superblock has been seen yet.
    NoSuperblock = "no superblock seen yet",
    /// The range lies behind the end of the file system.
    BeyondFileSystem = "behind the file system's end",
    /// The block is damaged, or of a newer format than is known here.
    NotUnderstood = "damaged, or a newer format",
    /// The metadata that would name the block has not been seen.
    NotLearned = "nothing showed its kind",
    /// The range lies between partitions.
    OutsidePartitions = "outside of all partitions",
    /// The range is striped with parity.
    Parity = "striped with parity, which is not read here",
}

impl Reason {
    /// The reason with these words.
    pub fn from_words(words: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.words() == words)
    }
}

/// The kinds that a block can be of by its contents alone, as long as nothing points to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// The decoder does not judge contents. A later guess of another kind takes the place of an
    /// earlier one.
    Unjudged,
    /// Any kind: the contents are zeros.
    Any,
    /// This kind alone: other kinds hardly look so by chance.
    Like(Class),
    /// A kind without a form of its own: contents of a file or of a symbolic link, extended
    /// attributes.
    Plain,
}

impl Looks {
    /// Whether a block of this kind can look so.
    pub const fn can_be(self, class: Class) -> bool {
        match self {
            Looks::Unjudged | Looks::Any => true,
            Looks::Like(kind) => kind as usize == class as usize,
            Looks::Plain => {
                matches!(class, Class::FileData | Class::Symlink | Class::ExtendedAttributes)
            }
        }
    }
}

/// The change of an inode by a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeChange {
    /// The inode was free and is now in use.
    Made {
        /// File type and permissions.
        mode: u16,
    },
    /// The inode is free now.
    Freed,
    /// The inode was freed and belongs to another file now.
    UsedAgain {
        /// File type and permissions.
        mode: u16,
    },
    /// The inode belongs to the same file and differs.
    Changed {
        /// The size before, in bytes.
        old_size: u64,
        /// The size now, in bytes.
        size: u64,
        /// The link count before.
        old_links: u16,
        /// The link count now.
        links: u16,
    },
}

/// The change of a directory entry by a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// The entry is new.
    Added {
        /// The name.
        name: Box<[u8]>,
        /// The entry's inode.
        ino: u32,
    },
    /// The entry is gone.
    Removed {
        /// The name.
        name: Box<[u8]>,
        /// The inode that the entry had.
        ino: u32,
    },
    /// The entry has another inode.
    Redirected {
        /// The name.
        name: Box<[u8]>,
        /// The inode before.
        from: u32,
        /// The inode now.
        to: u32,
    },
}

/// The meaning of a range of a request, in detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockMeaning {
    /// Boot code.
    BootArea,
    /// A log's records or its superblock.
    Log,
    /// The superblock in use.
    Superblock,
    /// The copy of the superblock in this cylinder group.
    SuperblockCopy(u32),
    /// The summary area.
    Summary,
    /// The header and bitmaps of this cylinder group.
    CylinderGroup(u32),
    /// Inodes.
    Inodes {
        /// The number of the first inode.
        first: u64,
        /// The number of inodes.
        count: u64,
        /// The inodes that a write changes.
        changed: Vec<(u64, InodeChange)>,
    },
    /// A block of a file, directory or symbolic link.
    File {
        /// The inode.
        ino: u64,
        /// The logical block.
        lbn: u64,
        /// The entries that a write changes, where the block is a directory's and its old contents
        /// are known.
        entries: Option<Vec<EntryChange>>,
    },
    /// An indirect block.
    Indirect {
        /// The inode.
        ino: u64,
        /// 1: the addresses are of data; 2: of single indirect blocks; 3: of double indirect
        /// blocks.
        level: u8,
        /// The number of addresses that a write changes, where the old contents are known.
        changed: Option<usize>,
    },
    /// Extended attributes.
    Attributes {
        /// The inode.
        ino: u64,
    },
    /// Consecutive blocks of a file.
    Blocks {
        /// The inode.
        ino: u64,
        /// The first logical block.
        first: u64,
        /// The number of blocks.
        count: u64,
    },
    /// Part of a file's blocks that are packed (compressed or shared with others), so that they
    /// have no addresses of their own.
    Packed {
        /// The inode.
        ino: u64,
        /// The first logical block.
        first: u64,
        /// The number of blocks.
        count: u64,
    },
    /// A node of a file's tree of extents.
    Extents {
        /// The inode.
        ino: u64,
        /// The number of levels below the node; 0 when its entries are extents.
        depth: u8,
    },
    /// A block of one of the format's many trees.
    TreeBlock {
        /// The tree in words, for instance "the extent tree".
        tree: &'static str,
        /// The tree's number.
        number: u64,
        /// The level: 0 for a leaf.
        level: u8,
        /// The transaction that wrote it.
        generation: u64,
    },
    /// A named structure of the format and its number, for instance "block bitmap of group" 3.
    Piece(&'static str, u64),
    /// A structure of which the format has exactly one.
    Only(&'static str),
    /// Part of a journal.
    Journal {
        /// The transaction, if it is known.
        transaction: Option<u64>,
        /// For a copy: its fixed location in bytes, and the kind of block there.
        home: Option<(u64, Class)>,
    },
    /// An unclaimed block: nothing points to it yet, so its kind is a guess from its contents.
    Unclaimed,
    /// A range without a name, and the reason.
    Unknown(Reason),
}

/// A range of a request that holds one kind of block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifiedRange {
    /// The kind.
    pub class: Class,
    /// The start on the device, in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The meaning.
    pub what: BlockMeaning,
}

/// A request with its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifiedRequest {
    /// The request's number at the tap.
    pub id: u64,
    /// A read or a write.
    pub op: Operation,
    /// The start, in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// Flags of a write: FUA, sync, metadata.
    pub flags: WriteFlags,
    /// The time at which it was issued.
    pub at: Time,
    /// The parts in order, without gaps.
    pub parts: Vec<ClassifiedRange>,
}

impl ClassifiedRequest {
    /// The kind of the request's first byte, under which the request is counted.
    pub fn class(&self) -> Class {
        self.parts.first().map_or(Class::Unknown, |p| p.class)
    }
}

/// Changes that a description lists by name; beyond this number it only counts them.
const LISTED: usize = 6;

/// Writes a list, and shortens it after [`LISTED`] items.
fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut each: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().take(LISTED).enumerate() {
        f.write_str(if i == 0 { ": " } else { ", " })?;
        each(f, item)?;
    }
    match items.len().checked_sub(LISTED) {
        Some(more) if more > 0 => write!(f, " and {more} more"),
        _ => Ok(()),
    }
}

fn type_of(mode: u16) -> &'static str {
    match mode & 0o170_000 {
        0o010_000 => "pipe",
        0o020_000 => "character device",
        0o040_000 => "directory",
        0o060_000 => "block device",
        0o100_000 => "file",
        0o120_000 => "symbolic link",
        0o140_000 => "socket",
        _ => "inode",
    }
}

impl fmt::Display for InodeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InodeChange::Made { mode } => write!(f, "new {}", type_of(*mode)),
            InodeChange::Freed => write!(f, "freed"),
            InodeChange::UsedAgain { mode } => write!(f, "now another {}", type_of(*mode)),
            InodeChange::Changed { old_size, size, old_links, links } => {
                let mut said = false;
                if old_size != size {
                    write!(f, "size {old_size} to {size}")?;
                    said = true;
                }
                if old_links != links {
                    write!(f, "{}links {old_links} to {links}", if said { ", " } else { "" })?;
                    said = true;
                }
                if said { Ok(()) } else { write!(f, "changed") }
            }
        }
    }
}

impl fmt::Display for EntryChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryChange::Added { name, ino } => {
                write!(f, "+{} (inode {ino})", ordo_shown::name(name))
            }
            EntryChange::Removed { name, ino } => {
                write!(f, "-{} (inode {ino})", ordo_shown::name(name))
            }
            EntryChange::Redirected { name, from, to } => {
                write!(f, "{} (inode {from} to {to})", ordo_shown::name(name))
            }
        }
    }
}

fn plural(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

/// The words that follow the kind of a journal's block: its transaction and fixed location.
fn in_journal(
    f: &mut fmt::Formatter<'_>,
    transaction: Option<u64>,
    home: Option<(u64, Class)>,
) -> fmt::Result {
    match transaction {
        Some(id) => write!(f, " of transaction {id}")?,
        None => write!(f, ", not announced yet")?,
    }
    match home {
        Some((byte, Class::Unknown)) => write!(f, ": a block for byte {byte}"),
        Some((byte, class)) => write!(f, ": {class} for byte {byte}"),
        None => Ok(()),
    }
}

impl fmt::Display for ClassifiedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            BlockMeaning::SuperblockCopy(cg) => {
                write!(f, "copy of the superblock in cylinder group {cg}")
            }
            BlockMeaning::CylinderGroup(cg) => write!(f, "cylinder group {cg}: header and bitmaps"),
            BlockMeaning::Inodes { first, count, changed } => {
                write!(f, "inodes {first} to {}", first + count.saturating_sub(1))?;
                if !changed.is_empty() {
                    write!(f, ", {} changed", changed.len())?;
                    list(f, changed, |f, (ino, change)| write!(f, "{ino} {change}"))?;
                }
                Ok(())
            }
            BlockMeaning::File { ino, lbn, entries } => {
                write!(f, "{} block {lbn} of inode {ino}", self.class)?;
                match entries {
                    None => Ok(()),
                    Some(entries) if entries.is_empty() => write!(f, ", no entry changed"),
                    Some(entries) => {
                        let count = plural(entries.len(), "entry", "entries");
                        write!(f, ", {count} changed")?;
                        list(f, entries, |f, entry| entry.fmt(f))
                    }
                }
            }
            BlockMeaning::Indirect { ino, level, changed } => {
                let level = ["", "single", "double", "triple"][usize::from(*level).min(3)];
                write!(f, "{level} indirect block of inode {ino}")?;
                match changed {
                    Some(n) => write!(f, ", {} changed", plural(*n, "address", "addresses")),
                    None => Ok(()),
                }
            }
            BlockMeaning::Attributes { ino } => write!(f, "extended attributes of inode {ino}"),
            BlockMeaning::Blocks { ino, first, count: 1 } => {
                write!(f, "{} block {first} of inode {ino}", self.class)
            }
            BlockMeaning::Blocks { ino, first, count } => {
                let last = first + count.saturating_sub(1);
                write!(f, "{} blocks {first} to {last} of inode {ino}", self.class)
            }
            BlockMeaning::Packed { ino, first, count } => {
                let last = first + count.saturating_sub(1);
                write!(f, "{} blocks {first} to {last} of inode {ino}, packed", self.class)
            }
            BlockMeaning::TreeBlock { tree, number, level: 0, generation } => {
                write!(f, "leaf of {tree} {number}, generation {generation}")
            }
            BlockMeaning::TreeBlock { tree, number, level, generation } => {
                write!(f, "node of level {level} of {tree} {number}, generation {generation}")
            }
            BlockMeaning::Extents { ino, depth } => {
                write!(f, "{} of inode {ino}, {depth} levels above extents", self.class)
            }
            BlockMeaning::Piece(name, number) => write!(f, "{name} {number}"),
            BlockMeaning::Only(name) => f.write_str(name),
            BlockMeaning::Journal { transaction, home } => {
                self.class.fmt(f)?;
                in_journal(f, *transaction, *home)
            }
            BlockMeaning::Unclaimed => write!(f, "{}, nothing points to it yet", self.class),
            BlockMeaning::Unknown(why @ Reason::BeyondFileSystem) => f.write_str(why.words()),
            BlockMeaning::Unknown(why) => write!(f, "unknown: {}", why.words()),
            BlockMeaning::BootArea
            | BlockMeaning::Log
            | BlockMeaning::Superblock
            | BlockMeaning::Summary => self.class.fmt(f),
        }
    }
}

impl fmt::Display for ClassifiedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.parts.iter().peekable();
        let mut first = true;
        while let Some(part) = parts.next() {
            if !std::mem::take(&mut first) {
                write!(f, "; ")?;
            }
            // Consecutive blocks of one file become one phrase.
            let BlockMeaning::File { ino, lbn, entries: None } = part.what else {
                part.fmt(f)?;
                continue;
            };
            let mut last = lbn;
            while parts
                .next_if(|p| p.what == BlockMeaning::File { ino, lbn: last + 1, entries: None })
                .is_some()
            {
                last += 1;
            }
            if last == lbn {
                part.fmt(f)?;
            } else {
                write!(f, "{} blocks {lbn} to {last} of inode {ino}", part.class)?;
            }
        }
        Ok(())
    }
}
