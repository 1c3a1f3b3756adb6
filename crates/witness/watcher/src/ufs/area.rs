//! The parts of the device that follow from the geometry alone.

use ordo_format::ufs2::Superblock;
use ordo_format::ufs2::superblock::SBLOCK_SIZE;

/// A part of the device that has one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    Boot,
    Superblock,
    /// The copy of the superblock in a cylinder group.
    Copy(u32),
    Summary,
    /// A cylinder group's header and bitmaps.
    Header(u32),
    /// Inodes of a cylinder group.
    Inodes(u32),
    Data,
    Beyond,
}

/// The part of the device with the byte `at`, and the byte at which that part ends.
pub(super) fn locate(sb: &Superblock, at: u64) -> (Area, u64) {
    let primary = sb.sblockloc as u64;
    if (primary..primary + SBLOCK_SIZE as u64).contains(&at) {
        return (Area::Superblock, primary + SBLOCK_SIZE as u64);
    }
    let frag = at >> sb.fshift;
    if frag >= sb.size as u64 {
        return (Area::Beyond, u64::MAX);
    }
    let cg = sb.frag_group(frag);
    let base = sb.cg_base(cg);
    let summary = sb.csaddr as u64..sb.csaddr as u64 + sb.summary_frags();
    let (area, end) = if frag < sb.cg_superblock(cg) {
        let area = if cg == 0 { Area::Boot } else { Area::Data };
        (area, sb.cg_superblock(cg))
    } else if frag < sb.cg_header(cg) {
        (Area::Copy(cg), sb.cg_header(cg))
    } else if frag < sb.cg_inodes(cg) {
        (Area::Header(cg), sb.cg_inodes(cg))
    } else if frag < sb.cg_data(cg) {
        (Area::Inodes(cg), sb.cg_data(cg))
    } else if summary.contains(&frag) {
        (Area::Summary, summary.end)
    } else {
        let next = base + sb.fpg as u64;
        let end = if frag < summary.start { next.min(summary.start) } else { next };
        (Area::Data, end.min(sb.size as u64))
    };
    let mut end = sb.byte_of(end);
    if at < primary {
        end = end.min(primary);
    }
    (area, end)
}

/// The inodes that lie wholly in `len` bytes from byte `at` of a group's inode area: the number of
/// the first one, its first byte in the range, and the number of inodes.
pub(super) fn inodes_in(sb: &Superblock, cg: u32, at: u64, len: u64) -> (u64, usize, u64) {
    let size = sb.inode_size() as u64;
    let from = at - sb.byte_of(sb.cg_inodes(cg));
    let first = from.div_ceil(size);
    let end = ((from + len) / size).min(u64::from(sb.ipg));
    let skip = (first * size - from) as usize;
    (sb.cg_first_inode(cg) + first, skip, end.saturating_sub(first))
}
