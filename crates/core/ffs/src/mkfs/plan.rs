//! The sizes of everything in a new file system.

use ordo_block::Geometry;
use ordo_format::ufs1;
use ordo_format::ufs2::inode::SHORT_LINK_SIZE;
use ordo_format::ufs2::superblock::{self as sb, SBLOCK_SIZE, Superblock};
use ordo_format::ufs2::{Group, MAX_BLOCK, MAX_CLUSTER_SUM, MAX_FRAG, MIN_BLOCK, SECTOR};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::{MkfsError, MkfsOptions, MkfsPlan, UfsVersion, usable};

/// The number of bytes that stay unused in the block of a group header.
const HEADER_SLACK: u64 = 8;
/// The default number of fragments per inode.
const FRAGS_PER_INODE: u64 = 2;
/// The least number of groups that mkfs tries to make.
const MIN_GROUPS: u64 = 4;
/// The longest contiguous transfer, in bytes.
const MAX_TRANSFER: u32 = 1 << 20;

/// Plans a file system for a device, without I/O. `now` is in seconds since 1970.
///
/// # Errors
/// Illegal sizes, or a device that is too small or too large.
pub fn plan(options: &MkfsOptions, geometry: &Geometry, now: i64) -> Result<MkfsPlan, MkfsError> {
    check_options(options, geometry)?;
    let bytes = usable(options, geometry)?;
    let mut sb = sizes(options);
    sb.size = i64::try_from(bytes >> sb.fshift).map_err(|_| MkfsError::TooLarge { size: bytes })?;
    sb.providersize = (geometry.bytes >> sb.fshift) as i64;
    if sb.size > sb.frags_max() {
        return Err(MkfsError::TooLarge { size: bytes });
    }
    let mut sizer = Sizer::new(&sb, options, bytes)?;
    sizer.smallest_group()?;
    sizer.grow_group();
    sizer.fit_last_group()?;
    let (fpg, ipg, size, per_inode) = (sizer.fpg, sizer.ipg(), sizer.size, sizer.frags_per_inode);
    let wanted = sizer.wanted_frags_per_inode;
    sb.fpg = i32::try_from(fpg).map_err(|_| MkfsError::TooLarge { size: bytes })?;
    sb.ipg = ipg as u32;
    sb.size = size as i64;
    sb.ncg = u32::try_from(size.div_ceil(fpg)).map_err(|_| MkfsError::TooLarge { size: bytes })?;
    finish(&mut sb, options, bytes, now)?;
    let density = per_inode * u64::from(options.frag_size);
    Ok(MkfsPlan { superblock: sb, density_changed: (per_inode != wanted).then_some(density) })
}

fn check_options(options: &MkfsOptions, geometry: &Geometry) -> Result<(), MkfsError> {
    let (block, frag) = (options.block_size, options.frag_size);
    if !block.is_power_of_two() || !(MIN_BLOCK..=MAX_BLOCK).contains(&block) {
        return Err(MkfsError::BlockSize(block));
    }
    if !frag.is_power_of_two() || !(SECTOR..=block).contains(&frag) {
        return Err(MkfsError::FragmentSize(frag));
    }
    if block / frag > MAX_FRAG {
        return Err(MkfsError::TooManyFragments { block, frag });
    }
    if frag < geometry.sector {
        return Err(MkfsError::BelowSector { frag, sector: geometry.sector });
    }
    if options.min_free > 99 {
        return Err(MkfsError::MinFree(options.min_free));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if options.label.len() > 31 || !options.label.bytes().all(plain) {
        return Err(MkfsError::Label(options.label.clone()));
    }
    if options.density == Some(0)
        || options.inodes == Some(0)
        || (options.density.is_some() && options.inodes.is_some())
    {
        return Err(MkfsError::Inodes);
    }
    for (value, name) in [
        (options.max_blocks_per_group, "the most blocks in a group"),
        (options.max_blocks_per_file, "the most blocks of a file in a group"),
        (options.max_contig, "the most contiguous blocks"),
        (Some(options.average_file_size), "the average file size"),
        (Some(options.average_files_per_dir), "the average number of files in a directory"),
    ] {
        if value == Some(0) {
            return Err(MkfsError::Zero(name));
        }
    }
    Ok(())
}

/// The fields that follow from the block and fragment sizes alone.
fn sizes(options: &MkfsOptions) -> Superblock {
    let (block, frag) = (options.block_size as i32, options.frag_size as i32);
    let mut s = Superblock::zeroed();
    s.bsize = block;
    s.fsize = frag;
    s.frag = block / frag;
    s.bmask = -block;
    s.fmask = -frag;
    s.qbmask = i64::from(block) - 1;
    s.qfmask = i64::from(frag) - 1;
    s.bshift = block.trailing_zeros() as i32;
    s.fshift = frag.trailing_zeros() as i32;
    s.fragshift = s.frag.trailing_zeros() as i32;
    s.fsbtodb = (frag / SECTOR as i32).trailing_zeros() as i32;
    match options.version {
        UfsVersion::Ufs2 => {
            (s.magic, s.sblockloc) = (sb::MAGIC, sb::SEARCH[0] as i64);
            s.maxsymlinklen = SHORT_LINK_SIZE as i32;
        }
        UfsVersion::Ufs1 => {
            (s.magic, s.sblockloc) = (sb::MAGIC_UFS1, ufs1::SUPERBLOCK_AT as i64);
            s.maxsymlinklen = ufs1::SHORT_LINK.len() as i32;
            older_sizes(&mut s);
        }
    }
    s.nindir = block / s.pointer_size() as i32;
    s.inopb = options.block_size / s.inode_size() as u32;
    s.maxbsize = block;
    let contig = options.max_contig.unwrap_or(MAX_TRANSFER / options.block_size).max(1);
    s.maxcontig = i32::try_from(contig).unwrap_or(i32::MAX);
    s.contigsumsize = if contig > 1 { contig.min(MAX_CLUSTER_SUM) as i32 } else { 0 };
    let blocks_for = |bytes: i32| (bytes + block - 1) / block * s.frag;
    s.sblkno = blocks_for(s.sblockloc as i32 + SBLOCK_SIZE as i32);
    s.cblkno = s.sblkno + blocks_for(SBLOCK_SIZE as i32);
    s.iblkno = s.cblkno + s.frag;
    s.sblockactualloc = s.sblockloc;
    s.maxfilesize = s.mapped_bytes_max();
    s
}

/// UFS1's fields that describe a disk's geometry, for a disk without one: a group is a cylinder of
/// one track (FreeBSD's `newfs -O1`).
fn older_sizes(s: &mut Superblock) {
    s.old_inodefmt = ufs1::INODE_FORMAT;
    (s.old_cgoffset, s.old_cgmask) = (0, -1);
    (s.old_rotdelay, s.old_rps, s.old_interleave, s.old_trackskew) = (0, 60, 1, 0);
    (s.old_cpg, s.old_cpc, s.old_nrpos) = (1, 0, 1);
    s.old_nspf = s.fsize / SECTOR as i32;
    // The tables of rotational positions have any size (`FS_DYNAMICPOSTBLFMT`).
    s.old_postblformat = 1;
}

/// Computes the fragments and inodes of a group.
struct Sizer {
    frag: u64,
    inopb: u64,
    iblkno: u64,
    block: u64,
    sums: u64,
    /// The bytes in a group's header before its bitmaps.
    before_maps: u64,
    bytes: u64,
    size: u64,
    fpg: u64,
    fpg_most: u64,
    frags_per_inode: u64,
    wanted_frags_per_inode: u64,
}

impl Sizer {
    fn new(sb: &Superblock, options: &MkfsOptions, bytes: u64) -> Result<Sizer, MkfsError> {
        let size = sb.size as u64;
        let frag_size = u64::from(options.frag_size);
        let inopb = u64::from(sb.inopb);
        let least = 1 + size / ((1 << 32) - inopb);
        let wanted = match (options.density, options.inodes) {
            (Some(density), _) => (u64::from(density) / frag_size).max(1),
            (None, Some(inodes)) => (size / inodes).max(1),
            (None, None) => FRAGS_PER_INODE,
        };
        if let Some(inodes) = options.inodes.filter(|n| *n > size || *n > u64::from(u32::MAX)) {
            return Err(MkfsError::TooManyInodes { inodes, size: bytes });
        }
        let frag = sb.frag as u64;
        let most = options.max_blocks_per_group.map_or(i32::MAX as u64, |n| u64::from(n) * frag);
        Ok(Sizer {
            frag,
            inopb,
            iblkno: sb.iblkno as u64,
            block: u64::from(options.block_size),
            sums: sb.contigsumsize as u64,
            before_maps: (Group::SIZE + sb.position_tables()) as u64,
            bytes,
            size,
            fpg: 0,
            fpg_most: most.min(i32::MAX as u64 / frag * frag),
            frags_per_inode: wanted.max(least),
            wanted_frags_per_inode: wanted,
        })
    }

    /// The inodes in a group of `fpg` fragments. They fill whole blocks.
    fn ipg(&self) -> u64 {
        self.fpg.div_ceil(self.frags_per_inode).next_multiple_of(self.inopb)
    }

    /// The fragments that a group's own structures take.
    fn own(&self) -> u64 {
        self.iblkno + self.ipg() / self.inopb * self.frag
    }

    /// The fewest fragments that the first group can have. The summary, the root directory and
    /// `.snap` take a block each.
    fn least_group(&self) -> u64 {
        self.own() + 3 * self.frag
    }

    /// The bytes of a group's header with its bitmaps.
    fn header(&self) -> u64 {
        let clusters = match self.sums {
            0 => 0,
            sums => 4 * sums + (self.fpg / self.frag).div_ceil(8),
        };
        self.before_maps + self.ipg().div_ceil(8) + self.fpg.div_ceil(8) + 4 + clusters
    }

    fn header_fits(&self) -> bool {
        self.header() + HEADER_SLACK <= self.block
    }

    /// Finds the smallest group with as many data fragments as its inodes require. If the header of
    /// that group is too large for a block, each group gets more inodes for its fragments, so that
    /// a group can be smaller.
    fn smallest_group(&mut self) -> Result<(), MkfsError> {
        loop {
            let least = (self.frags_per_inode * self.inopb)
                .min(self.size)
                .min(self.fpg_most)
                .next_multiple_of(self.frag);
            self.fpg = self.frag;
            // More fragments need more inodes, which take at most every second fragment.
            while self.fpg < least.max(self.least_group()) {
                self.fpg = least.max(self.least_group());
            }
            if self.header_fits() {
                return Ok(());
            }
            if self.frags_per_inode == 1 {
                return Err(MkfsError::TooLarge { size: self.bytes });
            }
            let excess = (self.header() / self.block).max(1);
            self.frags_per_inode = (self.frags_per_inode / (excess + 1)).max(1);
        }
    }

    /// Makes groups as large as a header can describe, but tries to keep [`MIN_GROUPS`] of them.
    fn grow_group(&mut self) {
        while self.size / self.fpg >= MIN_GROUPS && self.fpg + self.frag <= self.fpg_most {
            self.fpg += self.frag;
            if !self.header_fits() {
                self.fpg -= self.frag;
                return;
            }
        }
    }

    /// Makes sure that the last group has space for its own structures: with smaller groups, or
    /// else with fewer and larger ones, or else by leaving the end of the device unused.
    fn fit_last_group(&mut self) -> Result<(), MkfsError> {
        if self.size < self.least_group() {
            let needs = self.least_group() * (self.block / self.frag);
            return Err(MkfsError::TooSmall { size: self.bytes, needs });
        }
        let grown = self.fpg;
        while self.fpg > self.least_group() {
            let last = self.size % self.fpg;
            if last == 0 || last >= self.own() {
                return Ok(());
            }
            self.fpg -= self.frag;
        }
        for groups in (1..=self.size / grown).rev() {
            self.fpg = self.size.div_ceil(groups).next_multiple_of(self.frag);
            let last = self.size.saturating_sub((groups - 1) * self.fpg);
            if last >= self.own() && self.fpg <= self.fpg_most && self.header_fits() {
                return Ok(());
            }
        }
        self.fpg = grown.min(self.size / self.frag * self.frag);
        self.size -= self.size % self.fpg;
        Ok(())
    }
}

/// The fields that follow from the number and size of groups.
fn finish(
    s: &mut Superblock,
    options: &MkfsOptions,
    bytes: u64,
    now: i64,
) -> Result<(), MkfsError> {
    let frag_size = i64::from(s.fsize);
    let round = |bytes: i64| (bytes + frag_size - 1) / frag_size * frag_size;
    s.dblkno = s.iblkno + (s.ipg / s.inopb) as i32 * s.frag;
    s.cgsize = 0;
    let end = ordo_format::ufs2::group::GroupLayout::standard(s).end as i64;
    s.cgsize = round(end) as i32;
    s.csaddr = i64::from(s.dblkno);
    let summary = round(i64::from(s.ncg) * 16);
    s.cssize = i32::try_from(summary).map_err(|_| MkfsError::TooLarge { size: bytes })?;
    s.sbsize = round(Superblock::SIZE as i64).min(SBLOCK_SIZE as i64) as i32;
    s.minfree = options.min_free.into();
    s.metaspace = i64::from(s.fpg) * i64::from(s.minfree) / 200 / i64::from(s.frag);
    s.metaspace *= i64::from(s.frag);
    s.maxbpg = options.max_blocks_per_file.map_or(s.nindir, |n| n.min(i32::MAX as u32) as i32);
    s.optim = if options.optimise_space { sb::OPT_SPACE } else { sb::OPT_TIME };
    s.avgfilesize = options.average_file_size;
    s.avgfpdir = options.average_files_per_dir;
    s.clean = 1;
    s.old_flags = sb::FS_FLAGS_UPDATED as u8;
    s.flags = if options.soft_updates { sb::FS_DOSOFTDEP } else { 0 };
    if options.check_hashes && options.version == UfsVersion::Ufs2 {
        s.flags |= sb::FS_METACKHASH;
        s.metackhash = sb::CK_SUPPORTED;
    }
    s.id = [now as i32, Pcg64Mcg::seed_from_u64(options.seed).next_u32() as i32];
    s.time = now;
    s.volname[..options.label.len()].copy_from_slice(options.label.as_bytes());
    let summary_frags = summary / frag_size;
    let own = i64::from(s.dblkno - s.sblkno);
    s.dsize = s.size - i64::from(s.sblkno) - i64::from(s.ncg) * own - summary_frags;
    if options.version == UfsVersion::Ufs1 {
        s.old_ncyl = s.ncg as i32;
        s.old_spc = s.fpg.saturating_mul(s.old_nspf);
        (s.old_nsect, s.old_npsect) = (s.old_spc, s.old_spc);
    }
    // The root directory starts in a whole free block, and `.snap` in another.
    let first = i64::from(s.cg_frags(0));
    let taken =
        s.csaddr + (summary_frags + i64::from(s.frag) - 1) / i64::from(s.frag) * i64::from(s.frag);
    let needs = taken + 2 * i64::from(s.frag);
    if first < needs {
        return Err(match s.ncg {
            1 => MkfsError::TooSmall { size: bytes, needs: needs as u64 * frag_size as u64 },
            _ => MkfsError::TooLarge { size: bytes },
        });
    }
    Ok(())
}
