//! UFS1, the first on-disk format of the fast file system, as far as it differs from UFS2; read only.
//!
//! Superblock, groups and directories have the same structures. The superblock's older fields of 32 bits are valid,
//! unless a newer system has kept its own fields up to date beside them. Inodes have 128 bytes, and pointers 32 bits.
//! There are no extended attributes, no birth times and no check-hashes. A group's structures may begin further into
//! each next group, so that they do not all lie on one platter.
//!
//! UFS1 structures are read into those of UFS2 ([`Superblock::read_ufs1`], [`Inode1::widened`]). A user takes sizes
//! and places from the superblock, and needs no other knowledge of UFS1.

use crate::ufs2::inode::{IFBLK, IFCHR, IFLNK, IFMT};
use crate::ufs2::{Dinode, Superblock};
use crate::{Endian, on_disk};

on_disk! {
    /// An inode: everything about a file except its name. FreeBSD's `struct ufs1_dinode`, without `di_`.
    ///
    /// The 60 bytes of `db` and `ib` hold the target of a short symbolic link instead; `db[0]` holds a
    /// special file's device number.
    pub struct Inode1: 128 {
        0 di_mode => /** file type and permissions; 0: the inode is free */ mode: u16,
        2 di_nlink => /** number of names (hard links) */ nlink: i16,
        4 di_freelink => /** in old versions, owner and group of 16 bits */ freelink: u32,
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
        104 di_blocks => /** 512-byte sectors in use, including indirect blocks */ blocks: u32,
        108 di_gen => /** generation: changes each time the inode number is used again */ generation: u32,
        112 di_uid => /** user number of the owner */ uid: u32,
        116 di_gid => /** group number of the owner */ gid: u32,
        120 di_modrev => /** number of changes, for NFS */ modrev: u64,
    }
}

/// The bytes of `db` and `ib`, which hold a short link's target.
pub const SHORT_LINK: std::ops::Range<usize> = 40..100;

/// The inode format of 4.4BSD, with owners of 32 bits and types in directory entries: the only one that is read
/// (`FS_44INODEFMT`).
pub const INODE_FORMAT: i32 = 2;

impl Inode1 {
    /// This inode as UFS2's. `raw` are the bytes from which it was decoded; they hold the targets of links shorter
    /// than `short_link`.
    pub fn widened(&self, raw: &[u8], endian: Endian, short_link: u64) -> Dinode {
        let mut d = Dinode::zeroed();
        (d.mode, d.nlink, d.uid, d.gid) = (self.mode, self.nlink, self.uid, self.gid);
        (d.size, d.blocks) = (self.size, self.blocks.into());
        (d.atime, d.atimensec) = (self.atime.into(), self.atimensec);
        (d.mtime, d.mtimensec) = (self.mtime.into(), self.mtimensec);
        (d.ctime, d.ctimensec) = (self.ctime.into(), self.ctimensec);
        (d.generation, d.flags, d.modrev) = (self.generation, self.flags, self.modrev);
        match self.mode & IFMT {
            IFLNK if self.size < short_link => d.set_short_link(&raw[SHORT_LINK], endian),
            IFCHR | IFBLK => d.db[0] = self.db[0].cast_unsigned().into(),
            _ => {
                d.db = self.db.map(i64::from);
                d.ib = self.ib.map(i64::from);
            }
        }
        d
    }
}

impl Superblock {
    /// Whether the superblock is UFS1's.
    pub fn is_ufs1(&self) -> bool {
        self.magic == crate::ufs2::superblock::MAGIC_UFS1
    }

    /// The size of an inode, in bytes.
    pub fn inode_size(&self) -> usize {
        if self.is_ufs1() { Inode1::SIZE } else { Dinode::SIZE }
    }

    /// The size of a pointer in an indirect block, in bytes.
    pub fn pointer_size(&self) -> usize {
        if self.is_ufs1() { size_of::<i32>() } else { size_of::<i64>() }
    }

    /// The pointer at `index` in an indirect block.
    pub fn pointer(&self, bytes: &[u8], index: usize, endian: Endian) -> i64 {
        match self.is_ufs1() {
            true => endian.get_i32(bytes, index * 4).into(),
            false => endian.get_i64(bytes, index * 8),
        }
    }

    /// The inode in these bytes. Panics if there are fewer than [`inode_size`](Self::inode_size).
    pub fn inode(&self, raw: &[u8], endian: Endian) -> Dinode {
        match self.is_ufs1() {
            true => {
                let short = self.maxsymlinklen.max(0).cast_unsigned().min(SHORT_LINK.len() as u32);
                Inode1::decode(raw, endian).widened(raw, endian, short.into())
            }
            false => Dinode::decode(raw, endian),
        }
    }

    /// Copies the older fields into UFS2's, if the older ones are valid.
    pub(crate) fn take_over_older_fields(&mut self) {
        use crate::ufs2::superblock::{FS_FLAGS_UPDATED, FS_METACKHASH};
        let updated = i32::from(self.old_flags) & FS_FLAGS_UPDATED != 0;
        if !updated {
            self.flags = self.old_flags.into();
            self.snapinum = [0; 20];
        }
        self.flags &= !FS_METACKHASH;
        if self.maxbsize != self.bsize {
            self.maxbsize = self.bsize;
            self.time = self.old_time.into();
            (self.size, self.dsize) = (self.old_size.into(), self.old_dsize.into());
            self.csaddr = self.old_csaddr.into();
            let old = &self.old_cstotal;
            let (new, wide) = (&mut self.cstotal, |n: i32| i64::from(n));
            (new.ndir, new.nbfree) = (wide(old.ndir), wide(old.nbfree));
            (new.nifree, new.nffree) = (wide(old.nifree), wide(old.nffree));
        }
        self.metaspace = 0;
        self.sblockloc = 8192;
        self.qbmask = i64::from(self.bsize) - 1;
        self.qfmask = i64::from(self.fsize) - 1;
    }

    /// The number of fragments by which a group's structures are moved into the group (`fs_old_cgoffset`): always 0
    /// on UFS2.
    pub(crate) fn cg_moved(&self, cg: u32) -> u64 {
        match self.is_ufs1() {
            true => {
                let times = cg & !self.old_cgmask.cast_unsigned();
                u64::from(self.old_cgoffset.max(0).cast_unsigned()) * u64::from(times)
            }
            false => 0,
        }
    }
}
