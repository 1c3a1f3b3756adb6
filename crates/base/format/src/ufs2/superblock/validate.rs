//! The validation of superblocks, after which their values can be used in arithmetic.

use super::{
    CK_SUPERBLOCK, CKHASH_OFFSET, MAGIC, MAGIC_EA, MAGIC_INCOMPLETE, MAGIC_OFFSET, MAGIC_UFS1,
    SBLOCK_SIZE, SEARCH, Superblock, SuperblockError as E,
};
use crate::ufs2::{MAX_BLOCK, MAX_CLUSTER_SUM, MAX_FRAG, MIN_BLOCK, SECTOR, group::GroupLayout};
use crate::{Endian, hash_without, ufs1};

/// `Err(E::Variant { value })` unless the condition holds.
macro_rules! require {
    ($sb:ident.$field:ident, $variant:ident, $holds:expr) => {
        if !$holds {
            return Err(E::$variant { value: $sb.$field as i64 });
        }
    };
}

impl Superblock {
    /// Decodes and validates the superblock at the start of `bytes`, found at byte `at_offset` of
    /// the device. Every value by which code divides, shifts or indexes is checked, and the
    /// check-hash if the file system keeps one. `bytes` should be [`SBLOCK_SIZE`] long; the byte
    /// order is detected.
    ///
    /// # Errors
    /// The first fault found.
    pub fn read(bytes: &[u8], at_offset: u64) -> Result<(Superblock, Endian), E> {
        let (sb, endian) = Superblock::parse(bytes)?;
        require!(sb.sblockloc, Place, u64::try_from(sb.sblockloc) == Ok(at_offset));
        sb.verify_hash(bytes, endian)?;
        Ok((sb, endian))
    }

    /// Does what [`read`](Self::read) does for a group's copy. A copy names the place of the
    /// standard superblock and not its own. So the caller should check that it lies where its own
    /// geometry puts copies ([`is_copy_at`](Self::is_copy_at)).
    ///
    /// # Errors
    /// The first fault found.
    pub fn read_copy(bytes: &[u8]) -> Result<(Superblock, Endian), E> {
        let (sb, endian) = Superblock::parse(bytes)?;
        sb.verify_hash(bytes, endian)?;
        Ok((sb, endian))
    }

    /// Decodes and validates a superblock, but ignores its place and check-hash. The older fields
    /// of UFS1 are taken over into the newer ones.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(bytes: &[u8]) -> Result<(Superblock, Endian), E> {
        if bytes.len() < Superblock::SIZE {
            return Err(E::TooShort { have: bytes.len() });
        }
        let endian = byte_order(bytes)?;
        let mut sb = Superblock::decode(bytes, endian);
        if sb.is_ufs1() {
            let format = sb.old_inodefmt;
            require!(sb.old_inodefmt, InodeFormat, format == ufs1::INODE_FORMAT);
            sb.take_over_older_fields();
        }
        sb.check_sizes()?;
        sb.check_policy()?;
        sb.check_tables()?;
        sb.check_groups()?;
        sb.check_extent()?;
        sb.check_moved()?;
        Ok((sb, endian))
    }

    /// Verifies the check-hash of an encoded superblock, where the file system keeps one. `self` is
    /// decoded from `bytes`, and valid.
    ///
    /// # Errors
    /// [`SuperblockError::CheckHash`](E::CheckHash), or [`TooShort`](E::TooShort) for fewer than
    /// `sbsize` bytes.
    pub fn verify_hash(&self, bytes: &[u8], endian: Endian) -> Result<(), E> {
        if !self.keeps_hash(CK_SUPERBLOCK) {
            return Ok(());
        }
        let covered = bytes.get(..self.sbsize as usize).ok_or(E::TooShort { have: bytes.len() })?;
        let computed = hash_without(covered, CKHASH_OFFSET);
        let stored = endian.get_u32(bytes, CKHASH_OFFSET);
        if computed == stored { Ok(()) } else { Err(E::CheckHash { stored, computed }) }
    }

    /// Stores the right check-hash in an encoded superblock, where the file system keeps one.
    /// `self` is the superblock that was encoded, and valid; `bytes` holds at least `sbsize` bytes.
    pub fn seal(&self, bytes: &mut [u8], endian: Endian) {
        if self.keeps_hash(CK_SUPERBLOCK) {
            let hash = hash_without(&bytes[..self.sbsize as usize], CKHASH_OFFSET);
            endian.put_u32(bytes, CKHASH_OFFSET, hash);
        }
    }

    /// Checks block and fragment sizes, and the fields that follow from them alone.
    fn check_sizes(&self) -> Result<(), E> {
        let power = |value: i32, least: u32, most: u32| {
            u32::try_from(value).is_ok_and(|v| v.is_power_of_two() && v >= least && v <= most)
        };
        let sb = self;
        require!(sb.bsize, BlockSize, power(sb.bsize, MIN_BLOCK, MAX_BLOCK));
        require!(sb.fsize, FragmentSize, power(sb.fsize, SECTOR, sb.bsize as u32));
        let frag = sb.bsize / sb.fsize;
        require!(sb.frag, FragmentsPerBlock, sb.frag == frag && frag <= MAX_FRAG as i32);
        let log = |v: i32| v.trailing_zeros() as i32;
        require!(sb.bmask, BlockMask, sb.bmask == -sb.bsize);
        require!(sb.fmask, FragmentMask, sb.fmask == -sb.fsize);
        require!(sb.bshift, BlockShift, sb.bshift == log(sb.bsize));
        require!(sb.fshift, FragmentShift, sb.fshift == log(sb.fsize));
        require!(sb.fragshift, BlockFragmentShift, sb.fragshift == log(frag));
        let sectors = log(sb.fsize / SECTOR as i32);
        require!(sb.fsbtodb, SectorShift, (0..=sectors).contains(&sb.fsbtodb));
        require!(sb.qbmask, OffsetMask, sb.qbmask == i64::from(sb.bsize) - 1);
        require!(sb.qfmask, FragmentOffsetMask, sb.qfmask == i64::from(sb.fsize) - 1);
        let (pointer, inode) = (sb.pointer_size() as i32, sb.inode_size() as u32);
        require!(sb.nindir, AddressesPerBlock, sb.nindir == sb.bsize / pointer);
        require!(sb.inopb, InodesPerBlock, sb.inopb == sb.bsize as u32 / inode);
        let sbsize = Superblock::SIZE as i32..=SBLOCK_SIZE as i32;
        require!(sb.sbsize, SuperblockSize, sbsize.contains(&sb.sbsize));
        Ok(())
    }

    /// Checks the fields that control allocation.
    fn check_policy(&self) -> Result<(), E> {
        let sb = self;
        require!(sb.minfree, MinFree, (0..100).contains(&sb.minfree));
        require!(sb.maxcontig, MaxContig, sb.maxcontig >= 0);
        require!(sb.maxbpg, MaxBlocksPerGroup, sb.maxbpg >= 1);
        require!(sb.optim, Optimisation, matches!(sb.optim, 0 | 1));
        let sums = 0..=MAX_CLUSTER_SUM as i32;
        require!(sb.contigsumsize, ClusterSum, sums.contains(&sb.contigsumsize));
        require!(sb.maxsymlinklen, LinkLength, (0..=120).contains(&sb.maxsymlinklen));
        Ok(())
    }

    /// Checks the fields that give the sizes of UFS1's tables of rotational positions.
    fn check_tables(&self) -> Result<(), E> {
        let sb = self;
        let (cylinders, positions) = (1..=i32::from(i16::MAX), 0..=64);
        require!(sb.old_cpg, Cylinders, !sb.is_ufs1() || cylinders.contains(&sb.old_cpg));
        require!(sb.old_nrpos, Positions, !sb.is_ufs1() || positions.contains(&sb.old_nrpos));
        Ok(())
    }

    /// Checks the distance by which UFS1's groups are moved.
    fn check_moved(&self) -> Result<(), E> {
        let sb = self;
        let last = sb.cg_data(sb.ncg - 1);
        // The greatest distance by which any group's structures are moved. It is larger if the
        // number of groups is no power of two.
        let most = sb.cg_moved((sb.ncg.max(1).next_power_of_two() - 1).max(sb.ncg - 1));
        let blocks = sb.old_cgoffset >= 0 && sb.old_cgoffset % sb.frag == 0;
        let fits = blocks && most + sb.dblkno as u64 <= sb.fpg as u64 && last <= sb.size as u64;
        require!(sb.old_cgoffset, GroupOffset, !sb.is_ufs1() || fits);
        Ok(())
    }

    /// Checks the places in a group.
    fn check_groups(&self) -> Result<(), E> {
        let sb = self;
        let blocks = |frags: i32| frags >= 0 && frags % sb.frag == 0;
        let place = u64::try_from(sb.sblockloc).ok().filter(|place| SEARCH.contains(place));
        require!(sb.sblockloc, Place, place.is_some());
        let end = place.unwrap_or(0) + SBLOCK_SIZE as u64;
        let copy_at = sb.sblkno.max(0) as u64 * sb.fsize as u64;
        require!(sb.sblkno, SuperblockCopy, blocks(sb.sblkno) && copy_at >= end);
        let copy_end = copy_at + SBLOCK_SIZE as u64;
        let header_at = sb.cblkno.max(0) as u64 * sb.fsize as u64;
        require!(sb.cblkno, GroupHeader, blocks(sb.cblkno) && header_at >= copy_end);
        let inodes_after = i64::from(sb.cblkno) + i64::from(sb.frag);
        require!(sb.iblkno, Inodes, blocks(sb.iblkno) && i64::from(sb.iblkno) >= inodes_after);
        require!(sb.ncg, Groups, sb.ncg >= 1);
        let inodes = u64::from(sb.ipg) * u64::from(sb.ncg);
        let ipg_fits = sb.ipg > 0 && sb.ipg.is_multiple_of(sb.inopb) && inodes <= u32::MAX.into();
        require!(sb.ipg, InodesPerGroup, ipg_fits);
        let data = i64::from(sb.iblkno) + i64::from(sb.ipg / sb.inopb) * i64::from(sb.frag);
        require!(sb.dblkno, Data, i64::from(sb.dblkno) == data);
        require!(sb.fpg, FragmentsPerGroup, blocks(sb.fpg) && sb.fpg > sb.dblkno);
        let end = GroupLayout::standard(sb).end as u64;
        let holds = sb.cgsize >= 0 && sb.cgsize as u64 >= end && sb.cgsize <= sb.bsize;
        require!(sb.cgsize, GroupHeaderSize, holds);
        let is_space = sb.has_journal_fields() || (0..=i64::from(sb.fpg)).contains(&sb.metaspace);
        require!(sb.metaspace, MetadataSpace, is_space);
        Ok(())
    }

    /// Checks the size of the file system, and the summary area.
    fn check_extent(&self) -> Result<(), E> {
        let sb = self;
        let before_last = (i64::from(sb.ncg) - 1) * i64::from(sb.fpg);
        let bytes = sb.size.checked_mul(i64::from(sb.fsize));
        let fits = bytes.is_some() && sb.size <= sb.frags_max();
        require!(sb.size, Size, sb.size > 0 && fits);
        let groups = (sb.size - 1) / i64::from(sb.fpg) + 1;
        require!(sb.ncg, Groups, i64::from(sb.ncg) == groups);
        require!(sb.size, Size, sb.size - before_last >= i64::from(sb.dblkno));
        require!(sb.dsize, DataSize, (1..=sb.size).contains(&sb.dsize));
        let summary = (i64::from(sb.ncg) * 16 + sb.qfmask) & !sb.qfmask;
        require!(sb.cssize, SummarySize, i64::from(sb.cssize) == summary);
        let (cg, first) = (sb.csaddr / i64::from(sb.fpg), sb.csaddr % i64::from(sb.fpg));
        let end = first + summary / i64::from(sb.fsize);
        let inside = (i64::from(sb.dblkno)..sb.size).contains(&sb.csaddr)
            && first >= i64::from(sb.dblkno)
            && end <= i64::from(sb.cg_frags(cg as u32));
        require!(sb.csaddr, SummaryAddress, inside);
        Ok(())
    }
}

/// The byte order in which the magic number is right.
fn byte_order(bytes: &[u8]) -> Result<Endian, E> {
    for endian in [Endian::Little, Endian::Big] {
        match endian.get_i32(bytes, MAGIC_OFFSET) {
            MAGIC | MAGIC_UFS1 | MAGIC_EA => return Ok(endian),
            MAGIC_INCOMPLETE => return Err(E::Incomplete { endian }),
            _ => {}
        }
    }
    Err(E::Magic { found: Endian::Little.get_u32(bytes, MAGIC_OFFSET) })
}
