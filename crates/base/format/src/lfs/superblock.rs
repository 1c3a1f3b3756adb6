//! The superblock: the file system's parameters and the last checkpoint.
//!
//! The first superblock is behind the label ([`LABEL_BYTES`]); up to nine more are at the starts of
//! segments. Checkpoints write the first two in turn. The others stay as `mkfs` wrote them.

use std::ops::{Deref, DerefMut};

use super::{
    IFILE_INO, LABEL_BYTES, LE, MAGIC32, MAGIC64, NO_ADDRESS, SUPERBLOCK_PAD, SUPERBLOCK_SIZE,
    SegUse, SuperblockError, VERSION, Width, checksum, lbn,
};
use crate::dualfs::SUPERBLOCK_MAGIC;
use crate::{Field, on_disk};

/// The byte of the checksum.
pub const CKSUM_OFFSET: usize = 508;
/// `pflags`: the file system was unmounted (`LFS_PF_CLEAN`).
pub const PF_CLEAN: u16 = 1;
/// The greatest size of a segment, in bytes.
const MAX_SEGMENT: u32 = 1 << 30;

on_disk! {
    /// The superblock of LFS64. NetBSD's `struct dlfs64`, its fields without `dlfs_`.
    pub struct Dlfs64: 512 {
        0 dlfs_magic => /** 0xe69df8fe */ magic: u32,
        4 dlfs_version => /** version: 2 */ version: u32,
        8 dlfs_size => /** size of the file system in fragments */ size: u64,
        16 dlfs_dsize => /** number of fragments that files can have, with their metadata */ dsize: u64,
        24 dlfs_ssize => /** size of a segment in bytes */ ssize: u32,
        28 dlfs_bsize => /** size of a block in bytes */ bsize: u32,
        32 dlfs_fsize => /** size of a fragment in bytes */ fsize: u32,
        36 dlfs_frag => /** fragments in a block */ frag: u32,
        40 dlfs_freehd => /** checkpoint: first free inode; 0: none */ freehd: u64,
        48 dlfs_nfiles => /** checkpoint: number of inodes in use, without those of the IFILE and the root directory */ nfiles: u64,
        56 dlfs_bfree => /** checkpoint: number of free fragments */ bfree: i64,
        64 dlfs_avail => /** checkpoint: fragments that can be written before segments must be cleaned */ avail: i64,
        72 dlfs_idaddr => /** checkpoint: address of the block with the IFILE's inode */ idaddr: i64,
        80 dlfs_uinodes => /** number of inodes that are in memory only */ uinodes: i32,
        84 dlfs_unused_0 => /** unused */ unused_0: u32,
        88 dlfs_lastseg => /** checkpoint: address of the segment written before the current one */ lastseg: i64,
        96 dlfs_nextseg => /** checkpoint: address of the segment to be written next */ nextseg: i64,
        104 dlfs_curseg => /** checkpoint: address of the current segment */ curseg: i64,
        112 dlfs_offset => /** checkpoint: address of the next partial segment */ offset: i64,
        120 dlfs_lastpseg => /** checkpoint: address of the last partial segment */ lastpseg: i64,
        128 dlfs_inopf => /** inodes in a sector */ inopf: u32,
        132 dlfs_minfree => /** percentage of space that is kept free */ minfree: u32,
        136 dlfs_maxfilesize => /** size of the largest file in bytes */ maxfilesize: u64,
        144 dlfs_fsbpseg => /** fragments in a segment */ fsbpseg: u32,
        148 dlfs_inopb => /** inodes in a block of inodes */ inopb: u32,
        152 dlfs_ifpb => /** IFILE entries in a block */ ifpb: u32,
        156 dlfs_sepb => /** segment usage entries in a block */ sepb: u32,
        160 dlfs_nindir => /** pointers in a block */ nindir: u32,
        164 dlfs_nseg => /** number of segments */ nseg: u32,
        168 dlfs_nspf => /** sectors in a fragment (unused) */ nspf: u32,
        172 dlfs_cleansz => /** blocks of cleaner info in the IFILE */ cleansz: u32,
        176 dlfs_segtabsz => /** blocks of segment usage in the IFILE */ segtabsz: u32,
        180 dlfs_bshift => /** log2 of the block size */ bshift: u32,
        184 dlfs_ffshift => /** log2 of the fragment size */ ffshift: u32,
        188 dlfs_fbshift => /** log2 of the fragments in a block */ fbshift: u32,
        192 dlfs_bmask => /** block size less 1 */ bmask: u64,
        200 dlfs_ffmask => /** fragment size less 1 */ ffmask: u64,
        208 dlfs_fbmask => /** fragments in a block less 1 */ fbmask: u64,
        216 dlfs_blktodb => /** log2 of the sectors in a block */ blktodb: u32,
        220 dlfs_sushift => /** used by version 1 only */ sushift: u32,
        224 dlfs_sboffs => /** addresses of the superblocks; 0: no more */ sboffs: [i64; 10],
        304 dlfs_maxsymlinklen => /** length in bytes below which a link's target is stored in the inode */ maxsymlinklen: i32,
        308 dlfs_nclean => /** checkpoint: number of clean segments */ nclean: u32,
        312 dlfs_fsmnt => /** path of the last mount */ fsmnt: [u8; 90],
        402 dlfs_pflags => /** checkpoint: flags; 1: cleanly unmounted */ pflags: u16,
        404 dlfs_dmeta => /** checkpoint: fragments of summaries and blocks of inodes in dirty segments */ dmeta: i32,
        408 dlfs_minfreeseg => /** number of segments that are never counted as free */ minfreeseg: u32,
        412 dlfs_sumsize => /** size of a summary in bytes */ sumsize: u32,
        416 dlfs_ibsize => /** size of a block of inodes in bytes */ ibsize: u32,
        420 dlfs_inodefmt => /** inode format, 0 */ inodefmt: u32,
        424 dlfs_serial => /** checkpoint: serial number of the last partial segment */ serial: u64,
        432 dlfs_s0addr => /** address of segment 0 */ s0addr: i64,
        440 dlfs_tstamp => /** checkpoint: time of its creation, seconds since 1970 */ tstamp: u64,
        448 dlfs_interleave => /** segment interleave (unused) */ interleave: u32,
        452 dlfs_ident => /** identifier that all partial segments of this file system have */ ident: u32,
        456 dlfs_fsbtodb => /** log2 of the sectors in a fragment */ fsbtodb: u32,
        460 dlfs_resvseg => /** number of segments reserved for the cleaner */ resvseg: u32,
        464 => /** DualFS: number of blocks of the group tables in the IFILE; unused in LFS */ grouptabsz: u32,
        468 dlfs_pad => /** unused */ pad: [u8; 40],
        508 dlfs_cksum => /** checksum of all bytes before this field */ cksum: u32,
    }
}

on_disk! {
    /// The superblock of LFS32: `struct dlfs`.
    pub struct Dlfs32: 512 {
        0 dlfs_magic => /** 0x070162 */ magic: u32,
        4 dlfs_version => /** version: 2 */ version: u32,
        8 dlfs_size => /** size of the file system in fragments */ size: u32,
        12 dlfs_ssize => /** size of a segment in bytes */ ssize: u32,
        16 dlfs_dsize => /** number of fragments that files can have, with their metadata */ dsize: u32,
        20 dlfs_bsize => /** size of a block in bytes */ bsize: u32,
        24 dlfs_fsize => /** size of a fragment in bytes */ fsize: u32,
        28 dlfs_frag => /** fragments in a block */ frag: u32,
        32 dlfs_freehd => /** checkpoint: first free inode; 0: none */ freehd: u32,
        36 dlfs_bfree => /** checkpoint: number of free fragments */ bfree: i32,
        40 dlfs_nfiles => /** checkpoint: number of inodes in use, without those of the IFILE and the root directory */ nfiles: u32,
        44 dlfs_avail => /** checkpoint: fragments that can be written before segments must be cleaned */ avail: i32,
        48 dlfs_uinodes => /** number of inodes that are in memory only */ uinodes: i32,
        52 dlfs_idaddr => /** checkpoint: address of the block with the IFILE's inode */ idaddr: i32,
        56 dlfs_ifile => /** the IFILE's inode, 1 */ ifile: u32,
        60 dlfs_lastseg => /** checkpoint: address of the segment written before the current one */ lastseg: i32,
        64 dlfs_nextseg => /** checkpoint: address of the segment to be written next */ nextseg: i32,
        68 dlfs_curseg => /** checkpoint: address of the current segment */ curseg: i32,
        72 dlfs_offset => /** checkpoint: address of the next partial segment */ offset: i32,
        76 dlfs_lastpseg => /** checkpoint: address of the last partial segment */ lastpseg: i32,
        80 dlfs_inopf => /** inodes in a sector */ inopf: u32,
        84 dlfs_minfree => /** percentage of space that is kept free */ minfree: u32,
        88 dlfs_maxfilesize => /** size of the largest file in bytes */ maxfilesize: u64,
        96 dlfs_fsbpseg => /** fragments in a segment */ fsbpseg: u32,
        100 dlfs_inopb => /** inodes in a block of inodes */ inopb: u32,
        104 dlfs_ifpb => /** IFILE entries in a block */ ifpb: u32,
        108 dlfs_sepb => /** segment usage entries in a block */ sepb: u32,
        112 dlfs_nindir => /** pointers in a block */ nindir: u32,
        116 dlfs_nseg => /** number of segments */ nseg: u32,
        120 dlfs_nspf => /** sectors in a fragment (unused) */ nspf: u32,
        124 dlfs_cleansz => /** blocks of cleaner info in the IFILE */ cleansz: u32,
        128 dlfs_segtabsz => /** blocks of segment usage in the IFILE */ segtabsz: u32,
        132 dlfs_segmask => /** used by version 1 only */ segmask: u32,
        136 dlfs_segshift => /** used by version 1 only */ segshift: u32,
        140 dlfs_bshift => /** log2 of the block size */ bshift: u32,
        144 dlfs_ffshift => /** log2 of the fragment size */ ffshift: u32,
        148 dlfs_fbshift => /** log2 of the fragments in a block */ fbshift: u32,
        152 dlfs_bmask => /** block size less 1 */ bmask: u64,
        160 dlfs_ffmask => /** fragment size less 1 */ ffmask: u64,
        168 dlfs_fbmask => /** fragments in a block less 1 */ fbmask: u64,
        176 dlfs_blktodb => /** log2 of the sectors in a block */ blktodb: u32,
        180 dlfs_sushift => /** used by version 1 only */ sushift: u32,
        184 dlfs_maxsymlinklen => /** length in bytes below which a link's target is stored in the inode */ maxsymlinklen: i32,
        188 dlfs_sboffs => /** addresses of the superblocks; 0: no more */ sboffs: [i32; 10],
        228 dlfs_nclean => /** checkpoint: number of clean segments */ nclean: u32,
        232 dlfs_fsmnt => /** path of the last mount */ fsmnt: [u8; 90],
        322 dlfs_pflags => /** checkpoint: flags; 1: cleanly unmounted */ pflags: u16,
        324 dlfs_dmeta => /** checkpoint: fragments of summaries and blocks of inodes in dirty segments */ dmeta: i32,
        328 dlfs_minfreeseg => /** number of segments that are never counted as free */ minfreeseg: u32,
        332 dlfs_sumsize => /** size of a summary in bytes */ sumsize: u32,
        336 dlfs_serial => /** checkpoint: serial number of the last partial segment */ serial: u64,
        344 dlfs_ibsize => /** size of a block of inodes in bytes */ ibsize: u32,
        348 dlfs_s0addr => /** address of segment 0 */ s0addr: i32,
        352 dlfs_tstamp => /** checkpoint: time of its creation, seconds since 1970 */ tstamp: u64,
        360 dlfs_inodefmt => /** inode format, 0 */ inodefmt: u32,
        364 dlfs_interleave => /** segment interleave (unused) */ interleave: u32,
        368 dlfs_ident => /** identifier that all partial segments of this file system have */ ident: u32,
        372 dlfs_fsbtodb => /** log2 of the sectors in a fragment */ fsbtodb: u32,
        376 dlfs_resvseg => /** number of segments reserved for the cleaner */ resvseg: u32,
        380 dlfs_pad => /** unused */ pad: [u8; 128],
        508 dlfs_cksum => /** checksum of all bytes before this field */ cksum: u32,
    }
}

/// The byte of a field in the superblock of a format; 0 if the format has no such field.
pub(super) fn field_byte(width: Width, name: &str) -> usize {
    let fields = match width {
        Width::Lfs32 => Dlfs32::FIELDS,
        Width::Lfs64 => Dlfs64::FIELDS,
    };
    Field::find(fields, name).map_or(0, |f| f.offset)
}

/// A superblock of either format, in the fields of LFS64.
#[derive(Clone, Debug, PartialEq)]
pub struct Superblock {
    /// The format.
    pub width: Width,
    /// The fields.
    pub fields: Dlfs64,
}

impl Deref for Superblock {
    type Target = Dlfs64;
    fn deref(&self) -> &Dlfs64 {
        &self.fields
    }
}

impl DerefMut for Superblock {
    fn deref_mut(&mut self) -> &mut Dlfs64 {
        &mut self.fields
    }
}

/// Copies fields of the same names from one structure to another, each converted.
macro_rules! fields {
    ($from:expr => $to:expr; $($field:ident as $type:ty),+ $(,)?) => {
        $($to.$field = $from.$field as $type;)+
    };
}

impl Superblock {
    /// Reads a superblock, and checks all fields from which sizes and places are computed.
    ///
    /// # Errors
    /// The bytes are no superblock, or it is damaged, or a value is impossible.
    pub fn read(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        Superblock::read_unchecked(bytes)?.checked(bytes)
    }

    /// Reads a superblock of DualFS's metadata log, as [`read`](Self::read) reads one of LFS.
    ///
    /// # Errors
    /// The bytes are no such superblock, or it is damaged, or a value is impossible.
    pub fn read_dual(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let have = bytes.len();
        let bytes = bytes.get(..SUPERBLOCK_SIZE).ok_or(SuperblockError::TooShort { have })?;
        let found = LE.get_u32(bytes, 0);
        if found != SUPERBLOCK_MAGIC {
            return Err(SuperblockError::Magic { found });
        }
        Superblock { width: Width::Lfs64, fields: Dlfs64::decode(bytes, LE) }.checked(bytes)
    }

    fn checked(self, bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let computed = checksum(&bytes[..CKSUM_OFFSET]);
        if computed != self.cksum {
            return Err(SuperblockError::Checksum { stored: self.cksum, computed });
        }
        self.check()?;
        Ok(self)
    }

    /// Reads a superblock without checking its checksum or its fields.
    ///
    /// # Errors
    /// The bytes are no superblock.
    pub fn read_unchecked(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let have = bytes.len();
        let bytes = bytes.get(..SUPERBLOCK_SIZE).ok_or(SuperblockError::TooShort { have })?;
        let found = LE.get_u32(bytes, 0);
        for width in [Width::Lfs32, Width::Lfs64] {
            if found == width.magic().swap_bytes() {
                return Err(SuperblockError::ByteOrder { width });
            }
        }
        match found {
            MAGIC64 => Ok(Superblock { width: Width::Lfs64, fields: Dlfs64::decode(bytes, LE) }),
            MAGIC32 => {
                let d = Dlfs32::decode(bytes, LE);
                let value = d.ifile.into();
                if d.version == VERSION && u64::from(d.ifile) != IFILE_INO {
                    return Err(SuperblockError::IfileInode { width: Width::Lfs32, value });
                }
                Ok(Superblock { width: Width::Lfs32, fields: d.widened() })
            }
            _ => Err(SuperblockError::Magic { found }),
        }
    }

    /// Writes the superblock with its checksum. Panics if there are fewer than 512 bytes.
    pub fn write(&self, bytes: &mut [u8]) {
        match self.width {
            Width::Lfs64 => self.fields.encode(bytes, LE),
            Width::Lfs32 => Dlfs32::narrowed(&self.fields).encode(bytes, LE),
        }
        let sum = checksum(&bytes[..CKSUM_OFFSET]);
        LE.put_u32(bytes, CKSUM_OFFSET, sum);
    }

    fn check(&self) -> Result<(), SuperblockError> {
        self.check_sizes()?;
        self.check_tables()?;
        self.check_places()
    }

    fn check_sizes(&self) -> Result<(), SuperblockError> {
        use SuperblockError as E;
        let width = self.width;
        let is = |ok: bool, error: fn(Width, i64) -> E, value: i64| match ok {
            true => Ok(()),
            false => Err(error(width, value)),
        };
        macro_rules! want {
            ($($variant:ident $field:ident: $ok:expr;)+) => {
                $(is($ok, |width, value| E::$variant { width, value }, self.$field as i64)?;)+
            };
        }
        let fits = |n: u32, max: u32| n.is_power_of_two() && (512..=max).contains(&n);
        let shift = |n: u32| n.trailing_zeros();
        want! {
            Version version: self.version == VERSION;
            InodeFormat inodefmt: self.inodefmt == 0;
            BlockSize bsize: fits(self.bsize, 65536);
            FragmentSize fsize: fits(self.fsize, self.bsize.min(LABEL_BYTES as u32));
            FragmentsPerBlock frag: self.frag == self.bsize / self.fsize;
            BlockShift bshift: self.bshift == shift(self.bsize);
            FragmentShift ffshift: self.ffshift == shift(self.fsize);
            BlockFragmentShift fbshift: self.fbshift == shift(self.frag);
            BlockSectorShift blktodb: self.blktodb == shift(self.bsize) - 9;
            SectorShift fsbtodb: self.fsbtodb == shift(self.fsize) - 9;
            SummarySize sumsize: self.is_part_of_block(self.sumsize);
            InodeBlockSize ibsize: self.is_part_of_block(self.ibsize);
            SegmentSize ssize: self.ssize.is_multiple_of(self.fsize)
                && (2 * self.bsize + self.sumsize..=MAX_SEGMENT).contains(&self.ssize);
            FragmentsPerSegment fsbpseg: self.fsbpseg == self.ssize / self.fsize;
        }
        Ok(())
    }

    fn is_part_of_block(&self, bytes: u32) -> bool {
        bytes > 0 && bytes <= self.bsize && bytes.is_multiple_of(self.fsize)
    }

    fn check_tables(&self) -> Result<(), SuperblockError> {
        use SuperblockError as E;
        let width = self.width;
        macro_rules! want {
            ($($variant:ident $field:ident: $ok:expr;)+) => {
                $(if !$ok {
                    return Err(E::$variant { width, value: self.$field as i64 });
                })+
            };
        }
        let per_block = |size: usize| self.bsize / size as u32;
        let cleaner = width.cleaner_info_size() as u32;
        let max_size = match width {
            Width::Lfs32 => i32::MAX as u64,
            Width::Lfs64 => i64::MAX as u64 / u64::from(self.fsize),
        };
        let log_end = u64::from(self.nseg) * u64::from(self.fsbpseg);
        want! {
            InodesPerBlock inopb: self.inopb > 0
                && self.inopb == self.ibsize / width.inode_size() as u32;
            EntriesPerBlock ifpb: self.ifpb == per_block(width.ifile_entry_size());
            SegmentsPerBlock sepb: self.sepb == per_block(SegUse::SIZE);
            PointersPerBlock nindir: self.nindir == per_block(width.pointer_size());
            Size size: self.size > 0 && self.size <= max_size;
            DataSize dsize: self.dsize <= self.size;
            SegmentZero s0addr: self.s0addr >= 0 && (self.s0addr as u64) < self.size;
            Segments nseg: self.nseg > 0
                && (self.s0addr as u64).checked_add(log_end).is_some_and(|e| e <= self.size);
            CleanerInfoSize cleansz: self.cleansz == cleaner.div_ceil(self.bsize);
            SegmentTableSize segtabsz: self.segtabsz == self.nseg.div_ceil(self.sepb);
            MinFreeSegments minfreeseg: self.minfreeseg < self.nseg;
            CleanSegments nclean: self.nclean <= self.nseg;
            LinkLength maxsymlinklen: (0..=width.max_symlink() as i32).contains(&self.maxsymlinklen);
        }
        Ok(())
    }

    fn check_places(&self) -> Result<(), SuperblockError> {
        use SuperblockError as E;
        let width = self.width;
        self.check_superblock_places()?;
        let is_start = |a: i64| self.segment_of(a).is_some_and(|s| self.segment_start(s) == a);
        macro_rules! want {
            ($($variant:ident $field:ident: $ok:expr;)+) => {
                $(if !$ok {
                    return Err(E::$variant { width, value: self.$field });
                })+
            };
        }
        want! {
            CurrentSegment curseg: is_start(self.curseg);
            NextSegment nextseg: is_start(self.nextseg) && self.nextseg != self.curseg;
            LogOffset offset: self.offset >= self.curseg
                && self.offset <= self.curseg + i64::from(self.fsbpseg);
            IfileAddress idaddr: self.is_log(self.idaddr, self.ibsize / self.fsize);
        }
        Ok(())
    }

    fn check_superblock_places(&self) -> Result<(), SuperblockError> {
        let width = self.width;
        let first = self.frags_of(LABEL_BYTES);
        let used = self.sboffs.iter().position(|a| *a == 0).unwrap_or(self.sboffs.len());
        for (i, place) in self.sboffs.iter().enumerate() {
            let ok = match i {
                0 => *place == first,
                _ if i >= used => *place == 0,
                _ => {
                    let rises = *place > self.sboffs[i - 1];
                    let segment = self.segment_of(*place);
                    rises && segment.is_some_and(|s| s > 0 && self.segment_start(s) == *place)
                }
            };
            if !ok {
                return Err(SuperblockError::SuperblockPlace { width, value: *place });
            }
        }
        Ok(())
    }

    /// Whether it is of DualFS's metadata log.
    pub fn is_dual(&self) -> bool {
        self.magic == SUPERBLOCK_MAGIC
    }

    /// The number of blocks of the group tables in the IFILE, behind the segment usage; LFS has
    /// none.
    pub fn group_table_blocks(&self) -> u64 {
        if self.is_dual() { self.grouptabsz.into() } else { 0 }
    }

    /// `bytes` in fragments, rounded up.
    pub fn frags_of(&self, bytes: u64) -> i64 {
        bytes.div_ceil(self.fsize.into()) as i64
    }

    /// Fragments of a whole block.
    pub fn block_frags(&self) -> i64 {
        i64::from(self.frag)
    }

    /// The byte of a fragment; `addr` must be inside the file system.
    pub fn byte_of(&self, addr: i64) -> u64 {
        addr as u64 * u64::from(self.fsize)
    }

    /// The byte of the second superblock; `None` in a file system that has only one.
    pub fn second_superblock(&self) -> Option<u64> {
        (self.sboffs[1] != 0).then(|| self.byte_of(self.sboffs[1]))
    }

    /// The segment that contains a fragment.
    pub fn segment_of(&self, addr: i64) -> Option<u64> {
        let rest = u64::try_from(addr.checked_sub(self.s0addr)?).ok()?;
        let segment = rest / u64::from(self.fsbpseg);
        (segment < u64::from(self.nseg)).then_some(segment)
    }

    /// The first fragment of a segment; for the number of segments, the end of the log.
    pub fn segment_start(&self, segment: u64) -> i64 {
        self.s0addr + (segment * u64::from(self.fsbpseg)) as i64
    }

    /// The first fragment of a segment that belongs to the log, behind the label and a superblock.
    pub fn segment_data(&self, segment: u64) -> i64 {
        let start = self.segment_start(segment);
        let pad = self.frags_of(SUPERBLOCK_PAD);
        let end = start + i64::from(self.fsbpseg);
        let places = self.sboffs.iter().copied().filter(|a| *a > 0 && (start..end).contains(a));
        let label = if segment == 0 { self.frags_of(LABEL_BYTES) } else { 0 };
        places.map(|a| a + pad).max().unwrap_or(start).max(label).max(start)
    }

    /// Whether `frags` fragments at `addr` lie in one segment, outside superblocks and the label.
    pub fn is_log(&self, addr: i64, frags: u32) -> bool {
        let Some(segment) = self.segment_of(addr) else { return false };
        addr != NO_ADDRESS
            && addr >= self.segment_data(segment)
            && addr + i64::from(frags) <= self.segment_start(segment + 1)
    }

    /// The value that `maxfilesize` must have.
    pub fn right_maxfilesize(&self) -> u64 {
        lbn::trees(self.nindir.into())[3].saturating_mul(self.bsize.into())
    }

    /// The bytes of block `lbn` in a file of `size` bytes. At the end of a small file it may be
    /// less than a block.
    pub fn block_bytes(&self, lbn: u64, size: u64) -> u64 {
        let bsize = u64::from(self.bsize);
        let end = (lbn + 1).saturating_mul(bsize);
        if lbn >= super::NDADDR as u64 || size >= end {
            return bsize;
        }
        let rest = size.saturating_sub(lbn * bsize);
        rest.next_multiple_of(self.fsize.into())
    }
}

impl Dlfs32 {
    fn widened(&self) -> Dlfs64 {
        let mut to = Dlfs64::zeroed();
        fields! { self => to; magic as u32, version as u32, size as u64, dsize as u64, ssize as u32,
        bsize as u32, fsize as u32, frag as u32, freehd as u64, nfiles as u64, bfree as i64,
        avail as i64, idaddr as i64, uinodes as i32, lastseg as i64, nextseg as i64, curseg as i64,
        offset as i64, lastpseg as i64, s0addr as i64 }
        to.sboffs = self.sboffs.map(i64::from);
        same(&mut to, self);
        to
    }

    fn narrowed(from: &Dlfs64) -> Dlfs32 {
        let mut to = Dlfs32::zeroed();
        fields! { from => to; magic as u32, version as u32, size as u32, dsize as u32, ssize as u32,
        bsize as u32, fsize as u32, frag as u32, freehd as u32, nfiles as u32, bfree as i32,
        avail as i32, idaddr as i32, uinodes as i32, lastseg as i32, nextseg as i32, curseg as i32,
        offset as i32, lastpseg as i32, s0addr as i32 }
        to.sboffs = from.sboffs.map(|a| a as i32);
        to.ifile = IFILE_INO as u32;
        narrow(&mut to, from);
        to
    }
}

/// Makes a function that copies the fields with the same type in both formats.
macro_rules! same_fields {
    ($name:ident: $from:ty => $to:ty) => {
        fn $name(to: &mut $to, from: &$from) {
            fields! { from => to; inopf as u32, minfree as u32, maxfilesize as u64, fsbpseg as u32,
            inopb as u32, ifpb as u32, sepb as u32, nindir as u32, nseg as u32, nspf as u32,
            cleansz as u32, segtabsz as u32, bshift as u32, ffshift as u32, fbshift as u32,
            bmask as u64, ffmask as u64, fbmask as u64, blktodb as u32, sushift as u32,
            maxsymlinklen as i32, nclean as u32, pflags as u16, dmeta as i32, minfreeseg as u32,
            sumsize as u32, ibsize as u32, inodefmt as u32, serial as u64, tstamp as u64,
            interleave as u32, ident as u32, fsbtodb as u32, resvseg as u32, cksum as u32 }
            to.fsmnt = from.fsmnt;
        }
    };
}

same_fields!(same: Dlfs32 => Dlfs64);
same_fields!(narrow: Dlfs64 => Dlfs32);
