//! Inodes.

use super::NDADDR;
use crate::{Endian, hash_without, on_disk};

on_disk! {
    /// An inode: everything about a file except its name. FreeBSD's `struct ufs2_dinode`, without
    /// `di_`.
    ///
    /// The 120 bytes of `db` and `ib` hold the target of a short symbolic link instead
    /// ([`short_link`](Self::short_link)); `db[0]` holds a special file's device number.
    pub struct Dinode: 256 {
        0 di_mode => /** file type and permissions; 0: the inode is free */ mode: u16,
        2 di_nlink => /** number of names (hard links) */ nlink: u16,
        4 di_uid => /** user number of the owner */ uid: u32,
        8 di_gid => /** group number of the owner */ gid: u32,
        12 di_blksize => /** block size of this file (unused) */ blksize: u32,
        16 di_size => /** size in bytes */ size: u64,
        24 di_blocks => /** 512-byte sectors in use, including indirect blocks */ blocks: u64,
        32 di_atime => /** time of the last read, seconds since 1970 */ atime: i64,
        40 di_mtime => /** time of the last write, seconds since 1970 */ mtime: i64,
        48 di_ctime => /** time of the last change of the inode, seconds since 1970 */ ctime: i64,
        56 di_birthtime => /** time of creation, seconds since 1970 */ birthtime: i64,
        64 di_mtimensec => /** nanoseconds of mtime */ mtimensec: i32,
        68 di_atimensec => /** nanoseconds of atime */ atimensec: i32,
        72 di_ctimensec => /** nanoseconds of ctime */ ctimensec: i32,
        76 di_birthnsec => /** nanoseconds of birthtime */ birthnsec: i32,
        80 di_gen => /** generation: changes each time the inode number is used again */ generation: u32,
        84 di_kernflags => /** flags of the kernel */ kernflags: u32,
        88 di_flags => /** flags that `chflags` sets */ flags: u32,
        92 di_extsize => /** size of the extended attributes in bytes */ extsize: u32,
        96 di_extb => /** addresses of the blocks of the extended attributes */ extb: [i64; 2],
        112 di_db => /** addresses of the first 12 blocks */ db: [i64; 12],
        208 di_ib => /** addresses of the single, double and triple indirect block */ ib: [i64; 3],
        232 di_modrev => /** number of changes, for NFS */ modrev: u64,
        240 di_freelink => /** for a directory, its depth; for an inode without a name, the next such inode */ freelink_or_dirdepth: u32,
        244 di_ckhash => /** check-hash of the 256 bytes of the inode */ ckhash: u32,
        248 di_spare => /** reserved */ spare: [u32; 2],
    }
}

/// The largest link count: FreeBSD's `UFS_LINK_MAX`. Its kernel has used all 16 bits of the count
/// since it raised the limit from 32,767, in UFS1 too.
pub const LINK_MAX: u32 = 65_500;
/// The byte of the check-hash.
pub const CKHASH_OFFSET: usize = 244;
/// The byte at which a short link's target starts.
pub const SHORT_LINK_OFFSET: usize = 112;
/// The size limit of a link target in the inode, in bytes, including the NUL at its end.
pub const SHORT_LINK_SIZE: usize = 120;

/// The type bits of `mode`.
pub const IFMT: u16 = 0o170_000;
/// A named pipe.
pub const IFIFO: u16 = 0o010_000;
/// A character device.
pub const IFCHR: u16 = 0o020_000;
/// A directory.
pub const IFDIR: u16 = 0o040_000;
/// A block device.
pub const IFBLK: u16 = 0o060_000;
/// A regular file.
pub const IFREG: u16 = 0o100_000;
/// A symbolic link.
pub const IFLNK: u16 = 0o120_000;
/// A socket.
pub const IFSOCK: u16 = 0o140_000;
/// A whiteout.
pub const IFWHT: u16 = 0o160_000;

/// `flags`: a snapshot of the file system.
pub const SF_SNAPSHOT: u32 = 0x0020_0000;

/// The error for an inode whose check-hash does not match its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("inode byte 244: check-hash is {stored:#010x}, but the contents give {computed:#010x}")]
pub struct InodeHashError {
    /// The stored check-hash.
    pub stored: u32,
    /// The check-hash of the contents.
    pub computed: u32,
}

impl Dinode {
    /// The type bits of `mode`.
    pub fn kind(&self) -> u16 {
        self.mode & IFMT
    }

    /// The pointer area as bytes: a short link's target, NUL-padded. `endian` is the image's.
    pub fn short_link(&self, endian: Endian) -> [u8; SHORT_LINK_SIZE] {
        let mut bytes = [0; SHORT_LINK_SIZE];
        for (i, addr) in self.db.iter().chain(&self.ib).enumerate() {
            endian.put_i64(&mut bytes, 8 * i, *addr);
        }
        bytes
    }

    /// Stores a short link's target in the pointer area, NUL-padded. Panics if it does not fit.
    pub fn set_short_link(&mut self, target: &[u8], endian: Endian) {
        let mut bytes = [0; SHORT_LINK_SIZE];
        bytes[..target.len()].copy_from_slice(target);
        let addr = |i: usize| endian.get_i64(&bytes, 8 * i);
        self.db = std::array::from_fn(addr);
        self.ib = std::array::from_fn(|i| addr(NDADDR + i));
    }

    /// Verifies the check-hash of an encoded inode. An inode with `mode` 0 is not in use, and has
    /// none.
    ///
    /// # Errors
    /// The check-hash is another.
    pub fn verify_hash(bytes: &[u8], endian: Endian) -> Result<(), InodeHashError> {
        let bytes = &bytes[..Dinode::SIZE];
        if endian.get_u16(bytes, 0) == 0 {
            return Ok(());
        }
        let computed = hash_without(bytes, CKHASH_OFFSET);
        let stored = endian.get_u32(bytes, CKHASH_OFFSET);
        if computed == stored { Ok(()) } else { Err(InodeHashError { stored, computed }) }
    }

    /// Stores the right check-hash in an encoded inode: 0 if `mode` is 0. For file systems that
    /// keep check-hashes of inodes ([`keeps_hash`](super::Superblock::keeps_hash)).
    pub fn seal(bytes: &mut [u8], endian: Endian) {
        let used = endian.get_u16(bytes, 0) != 0;
        let hash = if used { hash_without(&bytes[..Dinode::SIZE], CKHASH_OFFSET) } else { 0 };
        endian.put_u32(bytes, CKHASH_OFFSET, hash);
    }
}
