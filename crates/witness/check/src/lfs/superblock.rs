//! The superblocks: finding the newest checkpoint, and fields that follow from others.

use ordo_block::{BlockDevice, Device};
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_SIZE, Superblock, SuperblockError};

use super::state::LfsRun;
use super::{LfsCheckError, LfsFinding};

/// The newest checkpoint, and the fault of the other superblock with its place in bytes.
pub(super) struct Found {
    pub sb: Superblock,
    pub damaged: Option<(u64, SuperblockError)>,
}

async fn read(
    device: &Device,
    at: u64,
    is_dual: bool,
) -> Result<Result<Superblock, SuperblockError>, LfsCheckError> {
    let geometry = device.geometry();
    let len = SUPERBLOCK_SIZE.max(geometry.sector as usize);
    match at.checked_add(len as u64) {
        Some(end) if end <= geometry.bytes => {
            let bytes = device.read(at, len).await?;
            Ok(if is_dual { Superblock::read_dual(&bytes) } else { Superblock::read(&bytes) })
        }
        _ => Ok(Err(SuperblockError::TooShort { have: 0 })),
    }
}

/// Finds the newest checkpoint: the usable one of the first two superblocks, or the one with the
/// higher serial number if both are usable. `is_dual`: of DualFS's metadata log.
pub(super) async fn find(device: &Device, is_dual: bool) -> Result<Found, LfsCheckError> {
    let found = match read(device, LABEL_BYTES, is_dual).await? {
        Ok(first) => with_second(device, first).await?,
        Err(error) => {
            let sb = search(device, &error, is_dual).await?;
            Found { sb, damaged: Some((LABEL_BYTES, error)) }
        }
    };
    let (sb, geometry) = (&found.sb, device.geometry());
    let size = sb.size * u64::from(sb.fsize);
    if size > geometry.bytes {
        return Err(LfsCheckError::Truncated { size, device: geometry.bytes });
    }
    match geometry.sector > sb.fsize {
        true => Err(LfsCheckError::Sector { frag: sb.fsize, sector: geometry.sector }),
        false => Ok(found),
    }
}

async fn with_second(device: &Device, first: Superblock) -> Result<Found, LfsCheckError> {
    let Some(at) = first.second_superblock() else {
        return Ok(Found { sb: first, damaged: None });
    };
    Ok(match read(device, at, first.is_dual()).await? {
        Err(error) => Found { sb: first, damaged: Some((at, error)) },
        Ok(second) => {
            let same = (second.width, second.ident, second.sboffs)
                == (first.width, first.ident, first.sboffs);
            let newer = same && second.serial > first.serial;
            let magic = SuperblockError::Magic { found: second.magic };
            let damaged = (!same).then_some((at, magic));
            Found { sb: if newer { second } else { first }, damaged }
        }
    })
}

/// Searches for the second superblock if the first is unusable. It is at the start of a segment,
/// but the segment size is not known.
async fn search(
    device: &Device,
    error: &SuperblockError,
    is_dual: bool,
) -> Result<Superblock, LfsCheckError> {
    const STEP: u64 = 16 * 1024;
    let end = device.geometry().bytes.min(64 << 20);
    let is_torn = matches!(error, SuperblockError::Magic { .. } | SuperblockError::Checksum { .. });
    for at in (STEP..end).step_by(STEP as usize).take_while(|_| is_torn) {
        if let Ok(sb) = read(device, at, is_dual).await?
            && sb.second_superblock() == Some(at)
        {
            return Ok(sb);
        }
    }
    Err(LfsCheckError::NoSuperblock(*error))
}

impl LfsRun<'_> {
    /// Checks the superblock's fields against each other.
    pub(super) fn check_superblock(&mut self) {
        if let Some((at, error)) = self.damaged.take() {
            self.report.add(LfsFinding::SuperblockDamaged { at, error: error.to_string() });
            self.sb_changed = true;
        }
        let sb = &self.sb;
        let link = sb.width.max_symlink() as i64;
        let rights = [
            ("bmask", sb.bmask as i64, i64::from(sb.bsize) - 1),
            ("ffmask", sb.ffmask as i64, i64::from(sb.fsize) - 1),
            ("fbmask", sb.fbmask as i64, i64::from(sb.frag) - 1),
            ("maxfilesize", sb.maxfilesize as i64, sb.right_maxfilesize() as i64),
            ("maxsymlinklen", sb.maxsymlinklen.into(), link),
            ("minfree", sb.minfree.into(), if sb.minfree > 99 { 10 } else { sb.minfree.into() }),
        ];
        for (field, stored, right) in rights.into_iter().filter(|(_, s, r)| s != r) {
            self.report.add(LfsFinding::SuperblockField { field, stored, right });
            self.sb_changed = true;
            match field {
                "bmask" => self.sb.bmask = right as u64,
                "ffmask" => self.sb.ffmask = right as u64,
                "fbmask" => self.sb.fbmask = right as u64,
                "maxfilesize" => self.sb.maxfilesize = right as u64,
                "maxsymlinklen" => self.sb.maxsymlinklen = right as i32,
                _ => self.sb.minfree = right as u32,
            }
        }
    }
}
