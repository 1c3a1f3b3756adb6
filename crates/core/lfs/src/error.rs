//! Errors of images: the reasons why an image cannot be mounted, read or written.

use ordo_block::BlockError;
use ordo_format::lfs::SuperblockError;
use ordo_format::lfs::dir::DirError;
use ordo_vfs::{Errno, FsError};

/// The reason why an LFS cannot be read, mounted or written. Addresses count fragments.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LfsError {
    /// No usable superblock was found.
    #[error("no usable LFS superblock; at byte 8192: {0}")]
    NoSuperblock(SuperblockError),
    /// The device ends before the file system does.
    #[error("the file system has {want} bytes, but the device has only {have}; was it truncated?")]
    DeviceTooSmall {
        /// The file system's size in bytes.
        want: u64,
        /// The device's size in bytes.
        have: u64,
    },
    /// The fragment size is smaller than the device's sector.
    #[error("fragments of {frag} bytes are smaller than the device's sectors of {sector} bytes")]
    Sector {
        /// The fragment size in bytes.
        frag: u32,
        /// The device's sector size in bytes.
        sector: u32,
    },
    /// An address that the log cannot have: it is outside of the segments, crosses the end of one,
    /// or is in a superblock.
    #[error("{what}: {frags} fragments at {addr} are not inside of a segment")]
    Address {
        /// The structure to which the address should lead.
        what: LogDamage,
        /// The address.
        addr: i64,
        /// The number of fragments.
        frags: u32,
    },
    /// A pointer to a block of contents that the data device does not have.
    #[error(
        "{what}: block {addr} is outside of the data device, which has blocks 1 up to, but not including, {blocks}"
    )]
    Contents {
        /// The structure to which the pointer should lead.
        what: LogDamage,
        /// The pointer.
        addr: i64,
        /// The number of blocks of the data device.
        blocks: u64,
    },
    /// The data device is too small for its blocks.
    #[error(
        "the data device's blocks take {want} bytes, but the device has only {have}; was it truncated?"
    )]
    DataTooSmall {
        /// The number of bytes that its blocks take.
        want: u64,
        /// The device's size in bytes.
        have: u64,
    },
    /// The group tables in the IFILE belong to a data device of another size.
    #[error("the IFILE has {have} blocks of group tables, but the data device needs {want}")]
    Tables {
        /// The number of blocks according to the superblock.
        have: u64,
        /// The number of blocks of the data device.
        want: u64,
    },
    /// The group tables cannot be right; the text says why.
    #[error("the group tables: {0}")]
    Groups(String),
    /// A block of inodes lacks an inode that it should have.
    #[error("inode {ino} is not in the block at {addr} that the IFILE names")]
    InodeMissing {
        /// The inode.
        ino: u64,
        /// The address of the block.
        addr: i64,
    },
    /// An inode that is in use has no file type, or an unknown one.
    #[error("inode {ino} has the impossible mode {mode:#o}")]
    InodeMode {
        /// The inode.
        ino: u64,
        /// The inode's mode.
        mode: u16,
    },
    /// An inode has a size that no file can have.
    #[error("inode {ino} has the impossible size {size}")]
    InodeSize {
        /// The inode.
        ino: u64,
        /// The inode's size in bytes.
        size: u64,
    },
    /// The IFILE is too small for its own tables, or its size is not a whole number of blocks.
    #[error(
        "the IFILE has {size} bytes, which is too little for its tables or not a whole number of blocks"
    )]
    IfileSize {
        /// The IFILE's size in bytes.
        size: u64,
    },
    /// The IFILE has a hole.
    #[error("block {lbn} of the IFILE is missing")]
    IfileHole {
        /// The logical block that is missing.
        lbn: u64,
    },
    /// Two blocks of the IFILE have the same address, or one of them has the address of the IFILE's
    /// inode.
    #[error(
        "block {lbn} of the IFILE has the address {addr}, which the IFILE's inode or another of its blocks has too"
    )]
    IfileTwice {
        /// The logical block of the IFILE.
        lbn: i64,
        /// The address.
        addr: i64,
    },
    /// An inode number for which the IFILE has no entry.
    #[error("inode {ino} is beyond the IFILE, which has entries for {count} inodes")]
    InodeNumber {
        /// The inode number.
        ino: u64,
        /// The number of entries in the IFILE.
        count: u64,
    },
    /// A directory's contents are broken.
    #[error("directory {ino}, block {lbn}: {error}")]
    Directory {
        /// The directory's inode.
        ino: u64,
        /// The block.
        lbn: u64,
        /// The damage.
        error: DirError,
    },
    /// The file system can be read, but not written.
    #[error("{0}; it can be mounted read-only")]
    NotWritable(&'static str),
    /// Recovery failed: the file system cannot be brought to a usable state.
    #[error("{0}")]
    Recovery(FsError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}

/// A structure to which an address should lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDamage {
    /// A block of inodes that should have this inode.
    Inode(u64),
    /// A block of a file: its inode and its logical number.
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
