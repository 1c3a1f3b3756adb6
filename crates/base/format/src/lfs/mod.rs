//! LFS, the log-structured file system of NetBSD: LFS64 and LFS32, version 2.
//! `docs/formats/lfs.md`.
//!
//! Layers, lowest first:
//! - [`Width`]: the sizes in which LFS64 and LFS32 differ. Both are little-endian here; images of
//!   the other byte order are refused by name ([`SuperblockError::ByteOrder`]).
//! - [`superblock`]: the superblock, which is also the checkpoint; sizes and addresses that follow
//!   from it.
//! - [`summary`]: partial segments: the summary, the blocks that it describes, their checksums.
//! - [`ifile`]: the contents of the IFILE: cleaner info, segment usage, inode map.
//! - [`inode`], [`dir`]: inodes and directory entries.
//! - [`lbn`]: logical block numbers, which for indirect blocks are negative.
//!
//! Structures of LFS32 are read into those of LFS64, so only sizes differ for a reader.
//!
//! ```
//! use ordo_format::lfs::{LABEL_BYTES, Superblock, SuperblockError};
//! let image = vec![0u8; 1 << 20]; // no file system here
//! let bytes = &image[LABEL_BYTES as usize..LABEL_BYTES as usize + 512];
//! assert!(matches!(Superblock::read(bytes), Err(SuperblockError::Magic { .. })));
//! ```

pub mod dir;
mod error;
pub mod ifile;
pub mod inode;
pub mod lbn;
pub mod summary;
pub mod superblock;

pub use dir::LfsDirEntry;
pub use error::SuperblockError;
pub use ifile::{CleanerInfo, IfileEntry, SegUse};
pub use inode::LfsInode;
pub use lbn::IndirectPath;
pub use summary::{FileInfo, PsegBlock, Segsum, Summary, SummaryError};
pub use superblock::Superblock;

use crate::Endian;

/// The byte order of every image that is read or written.
pub const LE: Endian = Endian::Little;

/// LFS64's magic number.
pub const MAGIC64: u32 = 0xe69d_f8fe;
/// LFS32's magic number.
pub const MAGIC32: u32 = 0x0007_0162;
/// The only version that is read; since version 2, partial segments have serial numbers.
pub const VERSION: u32 = 2;
/// Bytes at the start of the device that belong to its label; the first superblock follows.
pub const LABEL_BYTES: u64 = 8192;
/// The number of bytes reserved for each superblock.
pub const SUPERBLOCK_PAD: u64 = 8192;
/// The number of bytes of a superblock that have a meaning.
pub const SUPERBLOCK_SIZE: usize = 512;
/// The greatest number of superblocks.
pub const MAX_SUPERBLOCKS: usize = 10;
/// The inode of the IFILE.
pub const IFILE_INO: u64 = 1;
/// The inode of the root directory.
pub const ROOT_INO: u64 = 2;
/// The number of direct pointers in an inode.
pub const NDADDR: usize = 12;
/// The number of indirect pointers in an inode.
pub const NIADDR: usize = 3;
/// The address of a block that does not exist: a hole, or a free inode.
pub const NO_ADDRESS: i64 = 0;
/// The pointer of a block that had not been written when its inode was (`UNWRITTEN`): a hole.
pub const UNWRITTEN: i64 = -2;

/// The format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// Addresses and inode numbers of 32 bits.
    Lfs32,
    /// Addresses and inode numbers of 64 bits.
    Lfs64,
}

impl Width {
    const fn pick(self, lfs32: usize, lfs64: usize) -> usize {
        match self {
            Width::Lfs32 => lfs32,
            Width::Lfs64 => lfs64,
        }
    }

    /// The format's name.
    pub const fn name(self) -> &'static str {
        match self {
            Width::Lfs32 => "LFS32",
            Width::Lfs64 => "LFS64",
        }
    }

    /// The magic number of the format's superblocks.
    pub const fn magic(self) -> u32 {
        match self {
            Width::Lfs32 => MAGIC32,
            Width::Lfs64 => MAGIC64,
        }
    }

    /// The size of an inode in bytes.
    pub const fn inode_size(self) -> usize {
        self.pick(128, 256)
    }

    /// The number of bytes of a block address: in an indirect block, and in a summary.
    pub const fn pointer_size(self) -> usize {
        self.pick(4, 8)
    }

    /// The number of bytes of the head of a summary.
    pub const fn segsum_size(self) -> usize {
        self.pick(48, 56)
    }

    /// The number of bytes of a FINFO without its block numbers.
    pub const fn finfo_size(self) -> usize {
        self.pick(16, 24)
    }

    /// The number of bytes of the IFILE's entry for an inode.
    pub const fn ifile_entry_size(self) -> usize {
        self.pick(20, 32)
    }

    /// The number of bytes of the cleaner info.
    pub const fn cleaner_info_size(self) -> usize {
        self.pick(28, 48)
    }

    /// The number of bytes of a directory entry before its name.
    pub const fn dir_header(self) -> usize {
        self.pick(8, 12)
    }

    /// The length limit of a symbolic link's target in the inode: the longest target, plus one.
    pub const fn max_symlink(self) -> usize {
        self.pick(60, 120)
    }

    /// The block address at byte `at`. Panics beyond the slice.
    pub fn pointer(self, bytes: &[u8], at: usize) -> i64 {
        match self {
            Width::Lfs32 => LE.get_i32(bytes, at).into(),
            Width::Lfs64 => LE.get_i64(bytes, at),
        }
    }

    /// Stores a block address at byte `at`. Panics beyond the slice.
    pub fn put_pointer(self, bytes: &mut [u8], at: usize, value: i64) {
        match self {
            Width::Lfs32 => LE.put_i32(bytes, at, value as i32),
            Width::Lfs64 => LE.put_i64(bytes, at, value),
        }
    }
}

/// LFS's checksum: the exclusive or of all words of 16 bits. A last odd byte does not count.
///
/// ```
/// assert_eq!(ordo_format::lfs::checksum(&[1, 0, 2, 0x80, 9]), 0x8003);
/// ```
pub fn checksum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).fold(0, |sum, word| sum ^ u32::from(LE.get_u16(word, 0)))
}
