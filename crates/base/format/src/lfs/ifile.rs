//! The contents of the IFILE, inode 1: `cleansz` blocks of cleaner info, `segtabsz` blocks of
//! segment usage, and then the entries of inodes. Entries do not cross blocks; the rest of a block
//! is not used.

use super::{LE, Superblock, Width};
use crate::on_disk;

on_disk! {
    /// Information from the file system to the cleaner. NetBSD's `CLEANERINFO64`.
    pub struct CleanerInfo: 48 {
        0 clean => /** number of clean segments */ clean: u32,
        4 dirty => /** number of dirty segments */ dirty: u32,
        8 bfree => /** number of free fragments (a copy of the superblock's count, which may be old) */ bfree: i64,
        16 avail => /** number of fragments that can be written (a copy, too) */ avail: i64,
        24 free_head => /** first free inode; 0: none */ free_head: u64,
        32 free_tail => /** last free inode */ free_tail: u64,
        40 flags => /** flags; 1: the cleaner must run */ flags: u32,
        44 pad => /** unused */ pad: u32,
    }
}

on_disk! {
    /// The cleaner info of LFS32: `CLEANERINFO32`.
    pub struct CleanerInfo32: 28 {
        0 clean => /** number of clean segments */ clean: u32,
        4 dirty => /** number of dirty segments */ dirty: u32,
        8 bfree => /** number of free fragments */ bfree: i32,
        12 avail => /** number of fragments that can be written */ avail: i32,
        16 free_head => /** first free inode; 0: none */ free_head: u32,
        20 free_tail => /** last free inode */ free_tail: u32,
        24 flags => /** flags; 1: the cleaner must run */ flags: u32,
    }
}

impl CleanerInfo {
    /// Reads the cleaner info from the start of the IFILE. Panics if that is too short.
    pub fn read(width: Width, bytes: &[u8]) -> CleanerInfo {
        match width {
            Width::Lfs64 => CleanerInfo::decode(bytes, LE),
            Width::Lfs32 => {
                let c = CleanerInfo32::decode(bytes, LE);
                CleanerInfo {
                    clean: c.clean,
                    dirty: c.dirty,
                    bfree: c.bfree.into(),
                    avail: c.avail.into(),
                    free_head: c.free_head.into(),
                    free_tail: c.free_tail.into(),
                    flags: c.flags,
                    pad: 0,
                }
            }
        }
    }

    /// Writes the cleaner info to the start of the IFILE. Panics if that is too short.
    pub fn write(&self, width: Width, bytes: &mut [u8]) {
        match width {
            Width::Lfs64 => self.encode(bytes, LE),
            Width::Lfs32 => CleanerInfo32 {
                clean: self.clean,
                dirty: self.dirty,
                bfree: self.bfree as i32,
                avail: self.avail as i32,
                free_head: self.free_head as u32,
                free_tail: self.free_tail as u32,
                flags: self.flags,
            }
            .encode(bytes, LE),
        }
    }
}

/// Flags of a segment (`SEGUSE_*`).
pub mod seg_flag {
    /// The segment is being written.
    pub const ACTIVE: u32 = 0x01;
    /// The segment holds data: it must be cleaned before it is written again.
    pub const DIRTY: u32 = 0x02;
    /// The segment contains a superblock.
    pub const SUPERBLOCK: u32 = 0x04;
    /// The cleaner must not touch the segment.
    pub const ERROR: u32 = 0x08;
    /// The segment is empty.
    pub const EMPTY: u32 = 0x10;
    /// The segment is not usable.
    pub const INVAL: u32 = 0x20;
}

on_disk! {
    /// The usage of a segment, on LFS64 and LFS32. NetBSD's `SEGUSE`, its fields without `su_`.
    pub struct SegUse: 24 {
        0 su_nbytes => /** number of live bytes in the segment, including live inodes */ nbytes: u32,
        4 su_olastmod => /** time of the last write in version 1 */ olastmod: u32,
        8 su_nsums => /** number of partial segments in the segment */ nsums: u16,
        10 su_ninos => /** number of blocks of inodes in the segment */ ninos: u16,
        12 su_flags => /** flags: 1 active, 2 dirty, 4 superblock, 8 error, 16 empty, 32 invalid */ flags: u32,
        16 su_lastmod => /** time of the last write, seconds since 1970 */ lastmod: u64,
    }
}

impl SegUse {
    /// Whether the segment holds data.
    pub fn is_dirty(&self) -> bool {
        self.flags & seg_flag::DIRTY != 0
    }

    /// Whether the segment begins with a superblock. Segment 0 has one behind the label.
    pub fn has_superblock(&self) -> bool {
        self.flags & seg_flag::SUPERBLOCK != 0
    }
}

/// The `nextfree` of an orphan, a file without names that is still in use, as NetBSD of 2020 writes
/// it.
pub const ORPHAN: u64 = u64::MAX;
/// The `nextfree` of an orphan as NetBSD of 2016 and LFS32 write it.
pub const ORPHAN_2016: u64 = u32::MAX as u64;

on_disk! {
    /// The inode map's entry of an inode. NetBSD's `IFILE64`, its fields without `if_`.
    pub struct IfileEntry: 32 {
        0 if_version => /** version: grows each time the inode number is used again */ version: u32,
        4 if_atime_nsec => /** time of the last read, nanoseconds of the second */ atime_nsec: u32,
        8 if_atime_sec => /** time of the last read, seconds since 1970 */ atime_sec: u64,
        16 if_daddr => /** address of the block with the inode; 0: the inode is free */ daddr: i64,
        24 if_nextfree => /** if the inode is free: the next free inode, or 0; all bits set: the inode has no name */ nextfree: u64,
    }
}

on_disk! {
    /// The inode map's entry on LFS32: `IFILE32`.
    pub struct IfileEntry32: 20 {
        0 if_version => /** version: grows each time the inode number is used again */ version: u32,
        4 if_daddr => /** address of the block with the inode; 0: the inode is free */ daddr: i32,
        8 if_nextfree => /** if the inode is free: the next free inode, or 0; all bits set: the inode has no name */ nextfree: u32,
        12 if_atime_sec => /** time of the last read, seconds since 1970 */ atime_sec: u32,
        16 if_atime_nsec => /** time of the last read, nanoseconds of the second */ atime_nsec: u32,
    }
}

impl IfileEntry {
    /// Reads an entry. Panics if there are too few bytes.
    pub fn read(width: Width, bytes: &[u8]) -> IfileEntry {
        match width {
            Width::Lfs64 => IfileEntry::decode(bytes, LE),
            Width::Lfs32 => {
                let e = IfileEntry32::decode(bytes, LE);
                IfileEntry {
                    version: e.version,
                    atime_nsec: e.atime_nsec,
                    atime_sec: e.atime_sec.into(),
                    daddr: e.daddr.into(),
                    nextfree: e.nextfree.into(),
                }
            }
        }
    }

    /// Writes an entry. Panics if there are too few bytes.
    pub fn write(&self, width: Width, bytes: &mut [u8]) {
        match width {
            Width::Lfs64 => self.encode(bytes, LE),
            Width::Lfs32 => IfileEntry32 {
                version: self.version,
                daddr: self.daddr as i32,
                nextfree: self.nextfree as u32,
                atime_sec: self.atime_sec as u32,
                atime_nsec: self.atime_nsec,
            }
            .encode(bytes, LE),
        }
    }

    /// Whether the entry is of an orphan: a file without names that was in use.
    pub fn is_orphan(&self) -> bool {
        matches!(self.nextfree, ORPHAN | ORPHAN_2016)
    }
}

impl Superblock {
    /// The byte of a segment's entry in the IFILE.
    pub fn seguse_at(&self, segment: u64) -> u64 {
        let (block, index) = (segment / u64::from(self.sepb), segment % u64::from(self.sepb));
        (u64::from(self.cleansz) + block) * u64::from(self.bsize) + index * SegUse::SIZE as u64
    }

    /// The byte of DualFS's group tables in the IFILE.
    pub fn group_tables_at(&self) -> u64 {
        (u64::from(self.cleansz) + u64::from(self.segtabsz)) * u64::from(self.bsize)
    }

    /// The IFILE's block with the first inodes' entries.
    fn first_entry_block(&self) -> u64 {
        u64::from(self.cleansz) + u64::from(self.segtabsz) + self.group_table_blocks()
    }

    /// The byte of an inode's entry in the IFILE.
    pub fn entry_at(&self, ino: u64) -> u64 {
        let (block, index) = (ino / u64::from(self.ifpb), ino % u64::from(self.ifpb));
        (self.first_entry_block() + block) * u64::from(self.bsize)
            + index * self.width.ifile_entry_size() as u64
    }

    /// The number of inodes for which an IFILE of `bytes` bytes has entries, 0 and 1 included.
    pub fn inodes_in(&self, bytes: u64) -> u64 {
        let blocks = bytes / u64::from(self.bsize);
        blocks.saturating_sub(self.first_entry_block()) * u64::from(self.ifpb)
    }
}
