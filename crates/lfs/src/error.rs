//! Why an image cannot be mounted, or something in it not be read.

use ordo_block::BlockError;
use ordo_format::lfs::SuperblockError;
use ordo_format::lfs::dir::DirError;
use ordo_vfs::{Errno, FsError};

/// The reason why an LFS cannot be read, mounted or written. Addresses count fragments.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LfsError {
    /// No superblock that can be used.
    #[error("no usable LFS superblock; at byte 8192: {0}")]
    NoSuperblock(SuperblockError),
    /// The device ends before the file system does.
    #[error("the file system has {want} bytes, but the device only {have}: cut short?")]
    DeviceTooSmall {
        /// The file system's size in bytes.
        want: u64,
        /// The device's.
        have: u64,
    },
    /// Fragments are smaller than what the device reads at once.
    #[error("fragments of {frag} bytes on a device with sectors of {sector}")]
    Sector {
        /// The fragment size in bytes.
        frag: u32,
        /// The device's sector in bytes.
        sector: u32,
    },
    /// An address that the log cannot have: outside of its segments, across their ends, or in a superblock.
    #[error("{what}: {frags} fragments at {addr} are not inside of a segment")]
    Address {
        /// The structure that should be there.
        what: LogDamage,
        /// The address.
        addr: i64,
        /// Fragments.
        frags: u32,
    },
    /// A pointer to contents that the data device cannot have.
    #[error(
        "{what}: block {addr} is not one of the data device's, which are 1 to {blocks}, not included"
    )]
    Contents {
        /// The structure that should be there.
        what: LogDamage,
        /// The pointer.
        addr: i64,
        /// Blocks of the device.
        blocks: u64,
    },
    /// The data device ends before its blocks do.
    #[error("the data device's blocks take {want} bytes, but it has only {have}: cut short?")]
    DataTooSmall {
        /// Bytes of its blocks.
        want: u64,
        /// The device's.
        have: u64,
    },
    /// The IFILE's tables are not those of the data device.
    #[error("the IFILE has {have} blocks of group tables, but the data device takes {want}")]
    Tables {
        /// Blocks by the superblock.
        have: u64,
        /// Blocks by the data device.
        want: u64,
    },
    /// The group tables cannot be right.
    #[error("the group tables: {0}")]
    Groups(String),
    /// A block of inodes does not have the inode that it should have.
    #[error("inode {ino} is not in the block at {addr} that the IFILE names")]
    InodeMissing {
        /// The inode.
        ino: u64,
        /// The block.
        addr: i64,
    },
    /// An inode that is in use has no type, or one that does not exist.
    #[error("inode {ino} has the impossible mode {mode:#o}")]
    InodeMode {
        /// The inode.
        ino: u64,
        /// Its mode.
        mode: u16,
    },
    /// A size that no file can have.
    #[error("inode {ino} has the impossible size {size}")]
    InodeSize {
        /// The inode.
        ino: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// The IFILE has no place for its own tables, or is not whole blocks.
    #[error("the IFILE has {size} bytes, which do not hold its tables")]
    IfileSize {
        /// Its size in bytes.
        size: u64,
    },
    /// The IFILE has a hole.
    #[error("block {lbn} of the IFILE is missing")]
    IfileHole {
        /// The block.
        lbn: u64,
    },
    /// Two blocks of the IFILE are in one place, or one is where its inode is.
    #[error("the IFILE's block {lbn} is at {addr}, where its inode or another block of it is")]
    IfileTwice {
        /// The block.
        lbn: i64,
        /// The address.
        addr: i64,
    },
    /// An inode number beyond the IFILE.
    #[error("inode {ino} is beyond the IFILE, which has {count}")]
    InodeNumber {
        /// The number.
        ino: u64,
        /// Inodes that the IFILE has entries for.
        count: u64,
    },
    /// A directory's contents are broken.
    #[error("directory {ino}, block {lbn}: {error}")]
    Directory {
        /// Its inode.
        ino: u64,
        /// The block.
        lbn: u64,
        /// The damage.
        error: DirError,
    },
    /// The file system can be read, but not written.
    #[error("{0}; it can be mounted read-only")]
    NotWritable(&'static str),
    /// Recovery failed: the state after a crash cannot be made usable.
    #[error("{0}")]
    Recovery(FsError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}

/// A structure to which an address should lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDamage {
    /// A block of inodes, for this one.
    Inode(u64),
    /// A file's block, by its logical number.
    Block(u64, i64),
}

impl std::fmt::Display for LogDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogDamage::Inode(ino) => write!(f, "inode {ino}"),
            LogDamage::Block(ino, lbn) => write!(f, "inode {ino}, block {lbn}"),
        }
    }
}

impl From<LfsError> for FsError {
    fn from(error: LfsError) -> FsError {
        match error {
            LfsError::Device(error) => FsError::with_detail(Errno::Io, error),
            LfsError::Recovery(error) => error,
            _ => FsError::corrupt(format_args!("{error}; ordo fsck says more")),
        }
    }
}
