//! Recovery of a superblock whose last write a crash has torn.
//!
//! A superblock takes three sectors, and its check-hash covers them all. A power cut in the middle
//! of a write leaves fields that are each old or new, under a hash that does not match. Every mount
//! and unmount writes the superblock. Such a write changes the clean flag, the time and the counts,
//! but never the geometry. So a superblock that is right except for its hash is trusted if the
//! first group's copy, which no mount writes, has the same geometry.
//!
//! The clean flag of a torn superblock is not trusted, with one exception: if the hash matches once
//! the clean flag is set, then only the flag belongs to the interrupted write. A mount makes that
//! write first and waits for it; an unmount makes it last. In both cases the image is clean.

use ordo_block::{BlockDevice, BlockError, Device};
use ordo_format::ufs2::superblock::{SBLOCK_SIZE, Superblock};

use crate::mount::LocatedSuperblock;

/// The byte of the clean flag.
const CLEAN_AT: usize = 209;

/// Decides whether the superblock in `bytes`, read from byte `at` with a wrong check-hash, is only
/// torn. Returns it if so.
pub(crate) async fn read(
    device: &Device,
    bytes: &[u8],
    at: u64,
) -> Result<Option<LocatedSuperblock>, BlockError> {
    let Ok((mut sb, endian)) = Superblock::parse(bytes) else { return Ok(None) };
    let copy_at = sb.byte_of(sb.cg_superblock(0));
    let is_inside = copy_at + SBLOCK_SIZE as u64 <= device.geometry().bytes;
    if u64::try_from(sb.sblockloc) != Ok(at) || copy_at == at || !is_inside {
        return Ok(None);
    }
    let copy = device.read(copy_at, SBLOCK_SIZE).await?;
    let Ok((copy, copy_endian)) = Superblock::read_copy(&copy) else { return Ok(None) };
    if copy_endian != endian || geometry(&copy) != geometry(&sb) {
        return Ok(None);
    }
    let mut whole = bytes.to_vec();
    whole[CLEAN_AT] = 1;
    let is_clean = sb.verify_hash(&whole, endian).is_ok();
    sb.clean = i8::from(is_clean);
    Ok(Some(LocatedSuperblock { sb, endian, at, torn_superblock: !is_clean }))
}

/// All fields that give places and sizes.
fn geometry(sb: &Superblock) -> ([i32; 12], [u32; 3], [i64; 5]) {
    (
        [
            sb.bsize,
            sb.fsize,
            sb.sbsize,
            sb.sblkno,
            sb.cblkno,
            sb.iblkno,
            sb.dblkno,
            sb.fpg,
            sb.cgsize,
            sb.cssize,
            sb.contigsumsize,
            sb.maxsymlinklen,
        ],
        [sb.ncg, sb.ipg, sb.metackhash],
        [sb.size, sb.dsize, sb.csaddr, sb.sblockloc, sb.maxfilesize as i64],
    )
}
