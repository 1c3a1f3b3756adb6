//! The superblock of a new file system, by newfs_lfs's rules.

use ordo_format::dualfs::SUPERBLOCK_MAGIC;
use ordo_format::lfs::superblock::{Dlfs64, PF_CLEAN};
use ordo_format::lfs::{
    CleanerInfo, IfileEntry, LABEL_BYTES, LfsInode, MAGIC64, MAX_SUPERBLOCKS, SUPERBLOCK_PAD,
    SUPERBLOCK_SIZE, SegUse, Superblock, SuperblockError, VERSION, Width,
};

use super::{MkfsError, MkfsOptions};

/// One segment in this number stays free, and at least this number of segments.
const MIN_FREE_SEGMENTS: u32 = 20;
/// The least number of segments that are reserved for the cleaner.
const RESERVED_SEGMENTS: u32 = 15;
/// The least distance between two superblocks, in segments.
const SUPERBLOCK_INTERVAL: u32 = 5;

/// The bytes of the label and the first superblock, both of which the first segment has.
const SEGMENT_LEAST: u64 = LABEL_BYTES + SUPERBLOCK_PAD;

/// Plans a superblock without a checkpoint. The log begins at segment 0. `tables`: the number of
/// bytes of DualFS's group tables; 0 for an LFS.
pub fn plan(options: &MkfsOptions, bytes: u64, tables: usize) -> Result<Superblock, MkfsError> {
    let mut sb = Superblock { width: Width::Lfs64, fields: Dlfs64::zeroed() };
    sizes(&mut sb, options);
    if tables > 0 {
        sb.magic = SUPERBLOCK_MAGIC;
        sb.grouptabsz =
            u32::try_from(tables / options.block_size.max(1) as usize).unwrap_or(u32::MAX);
    }
    // The codec reports errors in the sizes of parts first; the size of the file system is not
    // known yet.
    if let Err(error) = read_back(&sb)
        && error.field() != Some("size")
    {
        return Err(match error.field() {
            Some("ssize") => too_small(&sb, error),
            _ => MkfsError::Sizes(error),
        });
    }
    let frag = u64::from(sb.fsize);
    sb.size = bytes / frag;
    let segments = sb.size.saturating_sub(LABEL_BYTES / frag) / u64::from(sb.fsbpseg);
    sb.nseg = u32::try_from(segments).unwrap_or(u32::MAX);
    sb.minfreeseg = (sb.nseg / MIN_FREE_SEGMENTS).max(MIN_FREE_SEGMENTS);
    sb.resvseg = (sb.minfreeseg / 2 + 1).max(RESERVED_SEGMENTS);
    let least = 4 * u64::from(sb.minfreeseg);
    if segments < least {
        return Err(MkfsError::TooFewSegments { segments, least });
    }
    sb.segtabsz = sb.nseg.div_ceil(sb.sepb);
    sb.cleansz = (CleanerInfo::SIZE as u32).div_ceil(sb.bsize);
    let interval = (sb.nseg / MAX_SUPERBLOCKS as u32).max(SUPERBLOCK_INTERVAL);
    sb.sboffs[0] = sb.frags_of(LABEL_BYTES);
    for i in 1..MAX_SUPERBLOCKS {
        let segment = u64::from(interval) * i as u64;
        if segment < segments {
            sb.sboffs[i] = sb.segment_start(segment);
        }
    }
    let superblocks = sb.sboffs.iter().filter(|a| **a != 0).count() as u64;
    let data = (segments - u64::from(sb.minfreeseg)) * u64::from(sb.fsbpseg);
    sb.dsize = data.saturating_sub(superblocks * SUPERBLOCK_PAD / frag);
    sb.maxfilesize = sb.right_maxfilesize();
    match check(&sb) {
        Err(error) => Err(too_small(&sb, error)),
        Ok(()) => Ok(sb),
    }
}

/// The error for sizes that do not fit. The codec names the first field that cannot be right, but
/// the cause may be the size of a segment.
fn too_small(sb: &Superblock, error: SuperblockError) -> MkfsError {
    match u64::from(sb.ssize) < SEGMENT_LEAST {
        true => MkfsError::SegmentTooSmall { segment: sb.ssize, least: SEGMENT_LEAST },
        false => MkfsError::Sizes(error),
    }
}

/// Checks a superblock by the codec's rules, with a made-up checkpoint in it.
fn check(sb: &Superblock) -> Result<(), SuperblockError> {
    let mut sb = sb.clone();
    sb.nextseg = sb.segment_start(1);
    sb.idaddr = sb.segment_data(0);
    read_back(&sb).map(drop)
}

fn read_back(sb: &Superblock) -> Result<Superblock, SuperblockError> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    sb.write(&mut bytes);
    if sb.is_dual() { Superblock::read_dual(&bytes) } else { Superblock::read(&bytes) }
}

fn sizes(sb: &mut Superblock, options: &MkfsOptions) {
    let (bsize, fsize, ssize) = (options.block_size, options.frag_size, options.segment_size);
    let (whole, part) = (bsize.max(1), fsize.max(1));
    (sb.magic, sb.version, sb.pflags) = (MAGIC64, VERSION, PF_CLEAN);
    (sb.bsize, sb.fsize, sb.ssize) = (bsize, fsize, ssize);
    (sb.frag, sb.fsbpseg) = (whole / part, ssize / part);
    (sb.sumsize, sb.ibsize) = (fsize, fsize);
    sb.inopb = fsize / LfsInode::SIZE as u32;
    sb.inopf = 512 / LfsInode::SIZE as u32;
    sb.ifpb = bsize / IfileEntry::SIZE as u32;
    sb.sepb = bsize / SegUse::SIZE as u32;
    sb.nindir = bsize / Width::Lfs64.pointer_size() as u32;
    (sb.bshift, sb.ffshift) = (bsize.trailing_zeros(), fsize.trailing_zeros());
    sb.fbshift = sb.frag.trailing_zeros();
    (sb.blktodb, sb.fsbtodb) = (sb.bshift.saturating_sub(9), sb.ffshift.saturating_sub(9));
    (sb.bmask, sb.ffmask) = (u64::from(whole) - 1, u64::from(part) - 1);
    sb.fbmask = u64::from(sb.frag).saturating_sub(1);
    sb.maxsymlinklen = Width::Lfs64.max_symlink() as i32;
    (sb.minfree, sb.ident) = (options.min_free, options.ident);
}
