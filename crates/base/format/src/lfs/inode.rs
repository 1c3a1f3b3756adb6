//! Inodes. An inode has no fixed place: the IFILE gives the block that contains it.

use super::{LE, NDADDR, NIADDR, Width};
use crate::on_disk;

on_disk! {
    /// An inode. NetBSD's `struct lfs64_dinode`, its fields without `di_`.
    ///
    /// Up to `modrev` it is UFS2's. The 120 bytes of `db` and `ib` hold the target of a short
    /// symbolic link instead; `db[0]` holds a special file's device number.
    pub struct LfsInode: 256 {
        0 di_mode => /** file type and permissions; 0: the inode is free */ mode: u16,
        2 di_nlink => /** number of names (hard links) */ nlink: i16,
        4 di_uid => /** user number of the owner */ uid: u32,
        8 di_gid => /** group number of the owner */ gid: u32,
        12 di_blksize => /** block size of this file (unused) */ blksize: u32,
        16 di_size => /** size in bytes */ size: u64,
        24 di_blocks => /** fragments in use, including indirect blocks */ blocks: u64,
        32 di_atime => /** time of the last read, seconds since 1970 (the IFILE's entry may be newer) */ atime: i64,
        40 di_mtime => /** time of the last write, seconds since 1970 */ mtime: i64,
        48 di_ctime => /** time of the last change of the inode, seconds since 1970 */ ctime: i64,
        56 di_birthtime => /** time of creation, seconds since 1970 */ birthtime: i64,
        64 di_mtimensec => /** nanoseconds of mtime */ mtimensec: i32,
        68 di_atimensec => /** nanoseconds of atime */ atimensec: i32,
        72 di_ctimensec => /** nanoseconds of ctime */ ctimensec: i32,
        76 di_birthnsec => /** nanoseconds of birthtime */ birthnsec: i32,
        80 di_gen => /** generation: equals the version in the IFILE's entry */ generation: u32,
        84 di_kernflags => /** flags of the kernel */ kernflags: u32,
        88 di_flags => /** flags that `chflags` sets */ flags: u32,
        92 di_extsize => /** size of the extended attributes in bytes (unused) */ extsize: u32,
        96 di_extb => /** blocks of the extended attributes (unused) */ extb: [i64; 2],
        112 di_db => /** addresses of the first 12 blocks */ db: [i64; 12],
        208 di_ib => /** addresses of the single, double and triple indirect block */ ib: [i64; 3],
        232 di_modrev => /** number of changes, for NFS */ modrev: u64,
        240 di_inumber => /** the inode's number */ inumber: u64,
        248 di_spare => /** reserved */ spare: u64,
    }
}

on_disk! {
    /// An inode of LFS32: `struct lfs32_dinode`. `db` and `ib` have 60 bytes.
    pub struct LfsInode32: 128 {
        0 di_mode => /** file type and permissions; 0: the inode is free */ mode: u16,
        2 di_nlink => /** number of names (hard links) */ nlink: i16,
        4 di_inumber => /** the inode's number */ inumber: u32,
        8 di_size => /** size in bytes */ size: u64,
        16 di_atime => /** time of the last read, seconds since 1970 */ atime: i32,
        20 di_atimensec => /** nanoseconds of atime */ atimensec: i32,
        24 di_mtime => /** time of the last write, seconds since 1970 */ mtime: i32,
        28 di_mtimensec => /** nanoseconds of mtime */ mtimensec: i32,
        32 di_ctime => /** time of the last change of the inode, seconds since 1970 */ ctime: i32,
        36 di_ctimensec => /** nanoseconds of ctime */ ctimensec: i32,
        40 di_db => /** addresses of the first 12 blocks */ db: [i32; 12],
        88 di_ib => /** addresses of the single, double and triple indirect block */ ib: [i32; 3],
        100 di_flags => /** flags that `chflags` sets */ flags: u32,
        104 di_blocks => /** fragments in use, including indirect blocks */ blocks: u32,
        108 di_gen => /** generation: equals the version in the IFILE's entry */ generation: u32,
        112 di_uid => /** user number of the owner */ uid: u32,
        116 di_gid => /** group number of the owner */ gid: u32,
        120 di_modrev => /** number of changes, for NFS */ modrev: u64,
    }
}

/// The bytes of `db` and `ib` in an inode.
pub const fn pointer_area(width: Width) -> std::ops::Range<usize> {
    match width {
        Width::Lfs32 => 40..100,
        Width::Lfs64 => 112..232,
    }
}

impl LfsInode {
    /// Reads an inode. On LFS32, pointers are widened to numbers of 64 bits, so a short link's
    /// target must be taken from `bytes` ([`pointer_area`]). Panics if there are too few bytes.
    pub fn read(width: Width, bytes: &[u8]) -> LfsInode {
        match width {
            Width::Lfs64 => LfsInode::decode(bytes, LE),
            Width::Lfs32 => LfsInode32::decode(bytes, LE).widened(),
        }
    }

    /// Writes an inode. Panics if there are too few bytes.
    pub fn write(&self, width: Width, bytes: &mut [u8]) {
        match width {
            Width::Lfs64 => self.encode(bytes, LE),
            Width::Lfs32 => self.narrowed().encode(bytes, LE),
        }
    }

    /// The type bits of `mode`.
    pub fn kind(&self) -> u16 {
        self.mode & crate::ufs2::inode::IFMT
    }

    /// The pointer in slot 0 to 14: direct blocks, then indirect ones.
    pub fn pointer(&self, slot: usize) -> i64 {
        if slot < NDADDR { self.db[slot] } else { self.ib[slot - NDADDR] }
    }

    /// Changes the pointer in slot 0 to 14.
    pub fn set_pointer(&mut self, slot: usize, addr: i64) {
        match slot < NDADDR {
            true => self.db[slot] = addr,
            false => self.ib[slot - NDADDR] = addr,
        }
    }

    fn narrowed(&self) -> LfsInode32 {
        LfsInode32 {
            mode: self.mode,
            nlink: self.nlink,
            inumber: self.inumber as u32,
            size: self.size,
            atime: self.atime as i32,
            atimensec: self.atimensec,
            mtime: self.mtime as i32,
            mtimensec: self.mtimensec,
            ctime: self.ctime as i32,
            ctimensec: self.ctimensec,
            db: self.db.map(|a| a as i32),
            ib: self.ib.map(|a| a as i32),
            flags: self.flags,
            blocks: self.blocks as u32,
            generation: self.generation,
            uid: self.uid,
            gid: self.gid,
            modrev: self.modrev,
        }
    }
}

impl LfsInode32 {
    fn widened(&self) -> LfsInode {
        LfsInode {
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            blocks: self.blocks.into(),
            atime: self.atime.into(),
            mtime: self.mtime.into(),
            ctime: self.ctime.into(),
            atimensec: self.atimensec,
            mtimensec: self.mtimensec,
            ctimensec: self.ctimensec,
            generation: self.generation,
            flags: self.flags,
            db: self.db.map(i64::from),
            ib: self.ib.map(i64::from),
            modrev: self.modrev,
            inumber: self.inumber.into(),
            ..LfsInode::zeroed()
        }
    }
}

/// The byte of the inode `ino` in a block of inodes. If the block has several versions of it, the
/// last one is meant, which is the newest.
pub fn find(width: Width, block: &[u8], ino: u64) -> Option<usize> {
    let size = width.inode_size();
    let number = |at: usize| match width {
        Width::Lfs64 => LE.get_u64(block, at + 240), // di_inumber
        Width::Lfs32 => LE.get_u32(block, at + 4).into(),
    };
    (0..block.len() / size).rev().map(|i| i * size).find(|at| number(*at) == ino)
}

const _: () = assert!(NDADDR + NIADDR == 15);
