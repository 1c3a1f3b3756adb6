//! Finding the superblock of the newest checkpoint.

use ordo_block::{BlockDevice, Device};
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_SIZE, Superblock, SuperblockError};

use crate::LfsError;

/// The step, in bytes, of the search for the second superblock, which is made if the first one is
/// damaged. The second superblock may begin at any fragment, as its segment may.
const STEP: usize = 512;
/// The length of a request of this search, in bytes.
const PIECE: usize = 256 << 10;
/// The distance from the first superblock at which the search ends, in bytes.
const FAR: u64 = 64 << 20;

/// A superblock, and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundSuperblock {
    /// The superblock with the newest checkpoint.
    pub sb: Superblock,
    /// The first byte of the superblock on the device.
    pub at: u64,
    /// The fault of the other superblock, if there should be one and it is damaged. Checkpoints are
    /// written to the first two superblocks in turn.
    pub other: Option<SuperblockError>,
}

impl FoundSuperblock {
    /// Whether no mount could start from another checkpoint, because the other superblock is
    /// damaged.
    pub fn is_only(&self) -> bool {
        self.other.is_some()
    }
}

/// The kind of file system whose superblocks are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// An LFS.
    Lfs,
    /// The metadata log of a DualFS.
    Dual,
}

impl VolumeKind {
    fn read(self, bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        match self {
            VolumeKind::Lfs => Superblock::read(bytes),
            VolumeKind::Dual => Superblock::read_dual(bytes),
        }
    }
}

async fn read(
    device: &Device,
    at: u64,
    kind: VolumeKind,
) -> Result<Result<Superblock, SuperblockError>, LfsError> {
    let geometry = device.geometry();
    let len = SUPERBLOCK_SIZE.max(geometry.sector as usize);
    if at.checked_add(len as u64).is_none_or(|end| end > geometry.bytes) {
        return Ok(Err(SuperblockError::TooShort { have: 0 }));
    }
    Ok(kind.read(&device.read(at, len).await?))
}

/// Whether an image begins as an LFS does: with a superblock behind the label, even if it is
/// damaged.
///
/// # Errors
/// The device failed.
pub async fn probe(device: &Device) -> Result<bool, LfsError> {
    let found = read(device, LABEL_BYTES, VolumeKind::Lfs).await?;
    Ok(!matches!(found, Err(SuperblockError::Magic { .. } | SuperblockError::TooShort { .. })))
}

/// Finds the newest checkpoint in the first two superblocks: in the valid one or, if both are
/// valid, in the one with the higher serial number.
///
/// # Errors
/// Neither superblock is usable, the device is smaller than the file system, or the device failed.
pub async fn find(device: &Device) -> Result<FoundSuperblock, LfsError> {
    find_kind(device, VolumeKind::Lfs).await
}

/// As [`find`], for superblocks of either kind.
///
/// # Errors
/// As for [`find`].
pub async fn find_kind(device: &Device, kind: VolumeKind) -> Result<FoundSuperblock, LfsError> {
    let first = read(device, LABEL_BYTES, kind).await?;
    let found = match first {
        Ok(first) => {
            let with = |other| FoundSuperblock { sb: first.clone(), at: LABEL_BYTES, other };
            match first.second_superblock() {
                None => with(None),
                Some(at) => match read(device, at, kind).await? {
                    Err(error) => with(Some(error)),
                    Ok(second) if !is_same(&first, &second) => {
                        with(Some(SuperblockError::Magic { found: second.magic }))
                    }
                    Ok(second) if second.serial > first.serial => {
                        FoundSuperblock { sb: second, at, other: None }
                    }
                    Ok(_) => with(None),
                },
            }
        }
        Err(error @ (SuperblockError::Checksum { .. } | SuperblockError::Magic { .. })) => {
            search(device, error, kind).await?
        }
        Err(error) => return Err(LfsError::NoSuperblock(error)),
    };
    let (sb, geometry) = (&found.sb, device.geometry());
    let want = sb.size * u64::from(sb.fsize);
    if want > geometry.bytes {
        return Err(LfsError::DeviceTooSmall { want, have: geometry.bytes });
    }
    if geometry.sector > sb.fsize {
        return Err(LfsError::Sector { frag: sb.fsize, sector: geometry.sector });
    }
    Ok(found)
}

/// Whether two superblocks belong to the same file system.
fn is_same(one: &Superblock, other: &Superblock) -> bool {
    let shape =
        |sb: &Superblock| (sb.width, sb.ident, sb.size, sb.ssize, sb.bsize, sb.fsize, sb.sboffs);
    shape(one) == shape(other)
}

/// Searches for the second superblock, if the first was torn or overwritten.
async fn search(
    device: &Device,
    error: SuperblockError,
    kind: VolumeKind,
) -> Result<FoundSuperblock, LfsError> {
    let geometry = device.geometry();
    let (end, sector) = (geometry.bytes.min(FAR), geometry.sector as usize);
    let piece = geometry.request(PIECE);
    for start in (0..end).step_by(piece) {
        let len = piece.min((end - start) as usize) / sector * sector;
        let bytes = device.read(start, len).await?;
        for at in (0..len).step_by(STEP) {
            let place = start + at as u64;
            if let Ok(sb) = kind.read(&bytes[at..])
                && place > LABEL_BYTES
                && sb.second_superblock() == Some(place)
            {
                return Ok(FoundSuperblock { sb, at: place, other: Some(error) });
            }
        }
    }
    Err(LfsError::NoSuperblock(error))
}
