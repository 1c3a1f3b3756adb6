//! UFS1, the first on-disk format of the fast file system, as far as it differs from UFS2.
//!
//! Superblock, groups and directories have the same structures. The superblock's older fields of 32
//! bits are valid, unless a newer system has kept its own fields up to date beside them. Inodes
//! have 128 bytes, and pointers 32 bits. There are no extended attributes, no birth times and no
//! check-hashes; every inode is initialised when the file system is made. A group's structures may
//! begin further into each next group, so that they do not all lie on one platter.
//!
//! UFS1 structures are read into those of UFS2 ([`Superblock::parse`], [`Inode1::widened`]), and
//! written from them ([`Superblock::store`], [`Inode1::narrowed`]). The functions of [`Superblock`]
//! here are all that differs between the two formats. A user asks them, takes sizes and places from
//! the superblock, and needs no other knowledge of UFS1.

use std::ops::{Range, RangeInclusive};

use crate::ufs2::inode::{IFBLK, IFCHR, IFLNK, IFMT, InodeHashError, LINK_MAX, SHORT_LINK_SIZE};
use crate::ufs2::superblock::{CK_INODE, FS_FLAGS_UPDATED, FS_METACKHASH, MAGIC_UFS1};
use crate::ufs2::{Csum, Dinode, Group, Superblock};
use crate::{Endian, on_disk};

on_disk! {
    /// An inode: everything about a file except its name. FreeBSD's `struct ufs1_dinode`, without
    /// `di_`.
    ///
    /// The 60 bytes of `db` and `ib` hold the target of a short symbolic link instead; `db[0]`
    /// holds a special file's device number.
    pub struct Inode1: 128 {
        0 di_mode => /** file type and permissions; 0: the inode is free */ mode: u16,
        2 di_nlink => /** number of names (hard links) */ nlink: u16,
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
pub const SHORT_LINK: Range<usize> = 40..100;

/// The place of the superblock, in bytes.
pub const SUPERBLOCK_AT: u64 = 8192;

/// The inode format of 4.4BSD, with owners of 32 bits and types in directory entries: the only one
/// that is read (`FS_44INODEFMT`).
pub const INODE_FORMAT: i32 = 2;

impl Inode1 {
    /// This inode as UFS2's. `raw` are the bytes from which it was decoded; they hold the targets
    /// of links shorter than `short_link`.
    pub fn widened(&self, raw: &[u8], endian: Endian, short_link: u64) -> Dinode {
        let mut d = Dinode::zeroed();
        (d.mode, d.nlink, d.uid, d.gid) = (self.mode, self.nlink, self.uid, self.gid);
        (d.size, d.blocks) = (self.size, self.blocks.into());
        (d.atime, d.atimensec) = (self.atime.into(), self.atimensec);
        (d.mtime, d.mtimensec) = (self.mtime.into(), self.mtimensec);
        (d.ctime, d.ctimensec) = (self.ctime.into(), self.ctimensec);
        (d.generation, d.flags, d.modrev) = (self.generation, self.flags, self.modrev);
        d.freelink_or_dirdepth = self.freelink;
        if self.mode & IFMT == IFLNK && self.size < short_link {
            d.set_short_link(&raw[SHORT_LINK], endian);
            return d;
        }
        d.db = self.db.map(i64::from);
        d.ib = self.ib.map(i64::from);
        // A device's number has no sign, but -1 stands for no device.
        if matches!(self.mode & IFMT, IFCHR | IFBLK) && self.db[0] != -1 {
            d.db[0] = self.db[0].cast_unsigned().into();
        }
        d
    }

    /// UFS2's inode as this one. Times beyond 32 bits become the nearest possible ones. Fields that
    /// UFS1 does not have are lost; blocks and numbers of blocks that a UFS1 file system can have
    /// are not.
    pub fn narrowed(d: &Dinode) -> Inode1 {
        let seconds = |s: i64| s.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        Inode1 {
            mode: d.mode,
            nlink: d.nlink,
            freelink: d.freelink_or_dirdepth,
            size: d.size,
            atime: seconds(d.atime),
            atimensec: d.atimensec,
            mtime: seconds(d.mtime),
            mtimensec: d.mtimensec,
            ctime: seconds(d.ctime),
            ctimensec: d.ctimensec,
            db: d.db.map(|address| address as i32),
            ib: d.ib.map(|address| address as i32),
            flags: d.flags,
            blocks: u32::try_from(d.blocks).unwrap_or(u32::MAX),
            generation: d.generation,
            uid: d.uid,
            gid: d.gid,
            modrev: d.modrev,
        }
    }
}

/// The fields of a group's header whose meaning or value depends on the format, with their right
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OlderGroupFields {
    /// The number of cylinders (`old_ncyl`).
    pub ncyl: i16,
    /// The number of inodes, of which 16 bits are kept (`old_niblk`).
    pub old_niblk: i16,
    /// The place of the block totals of each cylinder (`old_btotoff`).
    pub btotoff: i32,
    /// The place of the positions of free blocks (`old_boff`).
    pub boff: i32,
    /// The number of inodes (`niblk`).
    pub niblk: u32,
}

impl Superblock {
    /// Whether the superblock is UFS1's.
    pub fn is_ufs1(&self) -> bool {
        self.magic == MAGIC_UFS1
    }

    /// The format's name.
    pub fn format_name(&self) -> &'static str {
        if self.is_ufs1() { "UFS1" } else { "UFS2" }
    }

    /// The size of an inode, in bytes.
    pub fn inode_size(&self) -> usize {
        if self.is_ufs1() { Inode1::SIZE } else { Dinode::SIZE }
    }

    /// The size of a pointer in an indirect block, in bytes.
    pub fn pointer_size(&self) -> usize {
        if self.is_ufs1() { size_of::<i32>() } else { size_of::<i64>() }
    }

    /// The bytes of some pointers in an indirect block.
    pub fn pointer_bytes(&self, pointers: Range<usize>) -> Range<usize> {
        pointers.start * self.pointer_size()..pointers.end * self.pointer_size()
    }

    /// The pointer at `index` in an indirect block.
    pub fn pointer(&self, bytes: &[u8], index: usize, endian: Endian) -> i64 {
        match self.is_ufs1() {
            true => endian.get_i32(bytes, index * 4).into(),
            false => endian.get_i64(bytes, index * 8),
        }
    }

    /// Stores the pointer at `index` in an indirect block. The address is inside the file system.
    pub fn put_pointer(&self, bytes: &mut [u8], index: usize, endian: Endian, address: i64) {
        match self.is_ufs1() {
            true => endian.put_i32(bytes, index * 4, address as i32),
            false => endian.put_i64(bytes, index * 8, address),
        }
    }

    /// The length in bytes below which a link's target is kept in the inode.
    pub fn short_link_size(&self) -> usize {
        let most = if self.is_ufs1() { SHORT_LINK.len() } else { SHORT_LINK_SIZE };
        (self.maxsymlinklen.max(0) as usize).min(most)
    }

    /// The inode in these bytes. Panics if there are fewer than [`inode_size`](Self::inode_size).
    pub fn inode(&self, raw: &[u8], endian: Endian) -> Dinode {
        match self.is_ufs1() {
            true => {
                let short = self.short_link_size() as u64;
                Inode1::decode(raw, endian).widened(raw, endian, short)
            }
            false => Dinode::decode(raw, endian),
        }
    }

    /// Encodes an inode, with its check-hash where the file system keeps one. Panics if there are
    /// fewer bytes than [`inode_size`](Self::inode_size).
    pub fn put_inode(&self, d: &Dinode, raw: &mut [u8], endian: Endian) {
        if self.is_ufs1() {
            Inode1::narrowed(d).encode(raw, endian);
            // A new link whose target does not fit has its block before its size.
            let is_begun = d.size == 0 && d.blocks > 0;
            let is_short = d.kind() == IFLNK && d.size < self.short_link_size() as u64;
            if is_short && !is_begun {
                raw[SHORT_LINK].copy_from_slice(&d.short_link(endian)[..SHORT_LINK.len()]);
            }
        } else {
            d.encode(raw, endian);
            if self.keeps_hash(CK_INODE) {
                Dinode::seal(raw, endian);
            }
        }
    }

    /// Verifies the check-hash of an encoded inode, where the file system keeps one.
    ///
    /// # Errors
    /// The check-hash is another.
    pub fn verify_inode(&self, raw: &[u8], endian: Endian) -> Result<(), InodeHashError> {
        if self.keeps_hash(CK_INODE) { Dinode::verify_hash(raw, endian) } else { Ok(()) }
    }

    /// Whether files can have extended attributes.
    pub fn has_attributes(&self) -> bool {
        !self.is_ufs1()
    }

    /// Whether inodes keep the time at which they were made.
    pub fn has_birth_times(&self) -> bool {
        !self.is_ufs1()
    }

    /// The times that an inode can have, in seconds since 1970.
    pub fn inode_seconds(&self) -> RangeInclusive<i64> {
        match self.is_ufs1() {
            true => i32::MIN.into()..=i32::MAX.into(),
            false => i64::MIN..=i64::MAX,
        }
    }

    /// The largest link count that a mount may make: FreeBSD's limit for UFS2; for UFS1 that of
    /// older systems, which count with a sign.
    pub fn links_max(&self) -> u32 {
        if self.is_ufs1() { i16::MAX as u32 } else { LINK_MAX }
    }

    /// The largest device number. The number with all bits set stands for no device.
    pub fn device_max(&self) -> u64 {
        if self.is_ufs1() { u64::from(u32::MAX) - 1 } else { u64::MAX - 1 }
    }

    /// The most blocks of a file, by their numbers: UFS1's have 31 bits.
    pub(crate) fn blocks_max(&self) -> u64 {
        if self.is_ufs1() { 1 << 31 } else { u64::MAX }
    }

    /// The most fragments of a file system: UFS1's addresses have 31 bits.
    pub fn frags_max(&self) -> i64 {
        if self.is_ufs1() { i32::MAX.into() } else { i64::MAX }
    }

    /// The number of inodes of a group that are initialised. UFS1's all are.
    pub fn inodes_ready(&self, group: &Group) -> u32 {
        if self.is_ufs1() { self.ipg } else { group.initediblk }
    }

    /// The value to store for so many initialised inodes of a group (`initediblk`).
    pub fn stored_ready(&self, ready: u32) -> u32 {
        if self.is_ufs1() { 0 } else { ready }
    }

    /// Stores the time of a write in a group's header, in seconds since 1970.
    pub fn stamp(&self, group: &mut Group, seconds: i64) {
        group.time = seconds;
        if self.is_ufs1() {
            group.old_time = seconds as i32;
        }
    }

    /// The bytes of the tables of rotational positions before a group's bitmaps. No system keeps
    /// their contents any more.
    pub fn position_tables(&self) -> usize {
        let cylinders = self.old_cpg.max(0) as usize;
        let each = size_of::<i32>() + size_of::<i16>() * self.old_nrpos.max(0) as usize;
        if self.is_ufs1() { cylinders.saturating_mul(each) } else { 0 }
    }

    /// The right values of the older fields of a group's header.
    pub fn older_group_fields(&self, cg: u32) -> OlderGroupFields {
        if !self.is_ufs1() {
            return OlderGroupFields {
                ncyl: 0,
                old_niblk: 0,
                btotoff: 0,
                boff: 0,
                niblk: self.ipg,
            };
        }
        let cylinder = (self.fpg / self.old_cpg.max(1)).max(1).cast_unsigned();
        let ncyl = match cg + 1 == self.ncg {
            true => self.cg_frags(cg).div_ceil(cylinder) as i16,
            false => self.old_cpg as i16,
        };
        let btotoff = crate::ufs2::group::FIRST_MAP as i32;
        let boff = btotoff + self.old_cpg * size_of::<i32>() as i32;
        OlderGroupFields { ncyl, old_niblk: self.ipg as i16, btotoff, boff, niblk: 0 }
    }

    /// The older fields of the superblock on which the places of structures depend, and the format:
    /// name and value. The values are 0 on UFS2.
    pub fn older_shape(&self) -> [(&'static str, i64); 5] {
        let of_ufs1 = |value: i32| if self.is_ufs1() { value.into() } else { 0 };
        [
            ("magic", self.magic.into()),
            ("old_cgoffset", of_ufs1(self.old_cgoffset)),
            ("old_cgmask", of_ufs1(self.old_cgmask)),
            ("old_cpg", of_ufs1(self.old_cpg)),
            ("old_nrpos", of_ufs1(self.old_nrpos)),
        ]
    }

    /// The superblock's older fields that repeat newer ones: name, value, right value. There are
    /// none on UFS2.
    pub fn older_fields(&self) -> Vec<(&'static str, i64, i64)> {
        if !self.is_ufs1() {
            return Vec::new();
        }
        let mut right = self.clone();
        right.keep_older_fields();
        let (old, new) = (&self.old_cstotal, &right.old_cstotal);
        let fields = [
            ("old_size", self.old_size, right.old_size),
            ("old_dsize", self.old_dsize, right.old_dsize),
            ("old_csaddr", self.old_csaddr, right.old_csaddr),
            ("old_cstotal.ndir", old.ndir, new.ndir),
            ("old_cstotal.nbfree", old.nbfree, new.nbfree),
            ("old_cstotal.nifree", old.nifree, new.nifree),
            ("old_cstotal.nffree", old.nffree, new.nffree),
        ];
        fields.map(|(name, stored, right)| (name, stored.into(), right.into())).into()
    }

    /// Encodes the superblock for the disk: the older fields repeat the newer ones. Bytes that no
    /// field covers stay as they are; the check-hash is not set. Panics if `bytes` is too short.
    pub fn store(&self, bytes: &mut [u8], endian: Endian) {
        let mut sb = self.clone();
        sb.keep_older_fields();
        sb.encode(bytes, endian);
    }

    fn keep_older_fields(&mut self) {
        if !self.is_ufs1() {
            return;
        }
        let narrow = |n: i64| n.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        self.old_time = narrow(self.time);
        (self.old_size, self.old_dsize) = (narrow(self.size), narrow(self.dsize));
        self.old_csaddr = narrow(self.csaddr);
        let total = &self.cstotal;
        self.old_cstotal = Csum {
            ndir: narrow(total.ndir),
            nbfree: narrow(total.nbfree),
            nifree: narrow(total.nifree),
            nffree: narrow(total.nffree),
        };
    }

    /// Copies the older fields into UFS2's, if the older ones are valid.
    pub(crate) fn take_over_older_fields(&mut self) {
        let updated = i32::from(self.old_flags) & FS_FLAGS_UPDATED != 0;
        if !updated {
            self.flags = self.old_flags.into();
            self.old_flags |= FS_FLAGS_UPDATED as u8;
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
            (new.numclusters, new.spare) = (0, [0; 3]);
            (self.pendingblocks, self.pendinginodes, self.metaspace) = (0, 0, 0);
            self.qbmask = i64::from(self.bsize) - 1;
            self.qfmask = i64::from(self.fsize) - 1;
        }
        self.sblockloc = SUPERBLOCK_AT as i64;
    }

    /// The number of fragments by which a group's structures are moved into the group
    /// (`fs_old_cgoffset`): always 0 on UFS2.
    pub fn cg_moved(&self, cg: u32) -> u64 {
        match self.is_ufs1() {
            true => {
                let times = cg & !self.old_cgmask.cast_unsigned();
                u64::from(self.old_cgoffset.max(0).cast_unsigned()) * u64::from(times)
            }
            false => 0,
        }
    }
}
