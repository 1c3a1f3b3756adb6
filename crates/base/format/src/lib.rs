//! On-disk formats: pure functions from bytes to structures and back.
//!
//! Layers, lowest first:
//! - [`Endian`] and [`OnDisk`]: integers and arrays of them at byte offsets.
//! - [`on_disk!`]: one list of (field, offset, type) makes the native structure, its codec and its
//!   table of [`Field`]s. A test compares the tables in `docs/formats/` with these.
//! - [`ufs1`]: UFS1, as far as it differs from UFS2.
//! - [`ufs2`]: the structures of a UFS2 file system, their validation, geometry and bitmaps.
//! - [`lfs`]: LFS64 and LFS32, the log-structured file systems of NetBSD.
//! - [`dualfs`]: DualFS, on the structures of LFS64.
//! - [`wafs`]: the structures of a WAFS log.
//! - [`ext4`], [`jbd2`]: ext2 to ext4 and their journal, read only.
//! - [`reiserfs`]: ReiserFS and its journal, read only.
//! - [`xfs`]: XFS and its log, read only.
//! - [`jfs`]: JFS and its log, read only.
//! - [`ntfs`]: NTFS and its log, read only.
//! - [`nilfs2`]: NILFS2, read only.
//! - [`f2fs`]: F2FS, read only.
//! - [`btrfs`]: btrfs, read only.
//! - [`blktrace`]: events of the kernel's blktrace.
//! - [`dm_log_writes`]: the kernel's log of the writes to a device.
//! - [`fuse`]: what the kernel and a server of FUSE exchange.
//! - [`vhost_user`]: what a guest kernel and the server of its devices exchange.
//! - [`label`]: partition tables, read only.
//! - [`signature`]: the bytes by which every other format is recognised, read only.
//! - [`calendar`]: dates, as people read the times in these structures.
//!
//! Invariants:
//! - No I/O, no global state, no unsafe code.
//! - Encoding writes the known fields only. Bytes that no field covers stay as they are, so
//!   decoding and encoding with the same [`Endian`] changes nothing.
//! - A structure that a `read` returned can be used in arithmetic: every value that divides, shifts
//!   or indexes was checked. A structure from a bare `decode` has the values on disk, unchecked.
//!
//! ```
//! use ordo_format::{Endian, ufs2::superblock::{SEARCH, Superblock, SuperblockError}};
//! let image = vec![0u8; 1 << 20]; // no file system here
//! for place in SEARCH {
//!     let bytes = &image[place as usize..place as usize + 8192];
//!     assert!(matches!(Superblock::read(bytes, place), Err(SuperblockError::Magic { .. })));
//! }
//! ```
#![forbid(unsafe_code)]

pub mod blktrace;
pub mod btrfs;
pub mod calendar;
mod codec;
pub mod dm_log_writes;
pub mod dualfs;
pub mod ext4;
pub mod f2fs;
pub mod fuse;
pub mod jbd2;
pub mod jfs;
pub mod label;
pub mod lfs;
pub mod nilfs2;
pub mod ntfs;
pub mod reiserfs;
pub mod signature;
pub mod ufs1;
pub mod ufs2;
pub mod vhost_user;
pub mod wafs;
pub mod xfs;

pub use codec::{Endian, Field, OnDisk};

/// CRC-32C as FreeBSD keeps it: initial value all ones, no final inversion.
///
/// ```
/// assert_eq!(ordo_format::check_hash(&[b"123456789"]), !0xe306_9283);
/// ```
pub fn check_hash(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// [`check_hash`] of `bytes` with the four bytes at `field` taken as zero.
pub(crate) fn hash_without(bytes: &[u8], field: usize) -> u32 {
    check_hash(&[&bytes[..field], &[0; 4], &bytes[field + 4..]])
}
