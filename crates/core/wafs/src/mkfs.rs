//! Making a log.

use ordo_block::{BlockDevice, Device, IoBuf, WriteFlags};
use ordo_format::check_hash;
use ordo_format::wafs::{SECTOR_MAX, SUPER_MAGIC, SUPER_SECTORS, VERSION, WafsSuper};

use crate::LogError;
use crate::mount::find_superblock;

/// The smallest number of sectors in the ring.
const SECTORS_MIN: u64 = 8;

/// Options for making a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MkfsOptions {
    /// The name of the log, at most 32 bytes.
    pub label: String,
    /// The sector size in bytes: the unit that the device writes wholly or not at all. The default
    /// is the device's own.
    pub sector: Option<u32>,
    /// A seed for the log's id, which tells its sectors from those of an earlier log on the device.
    pub seed: u64,
}

/// Makes an empty log on all of a device. Only the superblock is written.
///
/// # Errors
/// The device is too small, or failed.
pub async fn mkfs(
    device: &Device,
    options: &MkfsOptions,
    made: i64,
) -> Result<WafsSuper, LogError> {
    let geometry = device.geometry();
    let sector = options.sector.unwrap_or(geometry.sector);
    let legal = sector.is_power_of_two() && sector <= SECTOR_MAX as u32;
    if !legal || sector < geometry.sector {
        return Err(LogError::Sector { sector, device: geometry.sector });
    }
    let sectors = (geometry.bytes / u64::from(sector)).saturating_sub(SUPER_SECTORS);
    if sectors < SECTORS_MIN {
        let need = (SUPER_SECTORS + SECTORS_MIN) * u64::from(sector);
        return Err(LogError::TooSmall { bytes: geometry.bytes, need });
    }
    let mut id = check_hash(&[&options.seed.to_le_bytes(), &made.to_le_bytes()]);
    if find_superblock(device).await.is_ok_and(|old| old.id == id) {
        id = id.wrapping_add(1);
    }
    let mut label = [0; 32];
    let name = &options.label.as_bytes()[..options.label.len().min(32)];
    label[..name.len()].copy_from_slice(name);
    let sb = WafsSuper {
        magic: SUPER_MAGIC,
        version: VERSION,
        generation: 1,
        id,
        sector,
        sectors,
        made,
        label,
        ..WafsSuper::zeroed()
    };
    let mut image = IoBuf::zeroed(sector as usize * SUPER_SECTORS as usize);
    for copy in 0..SUPER_SECTORS {
        let sb = WafsSuper { generation: copy, ..sb.clone() };
        sb.seal(&mut image[copy as usize * sector as usize..]);
    }
    device.write(0, image, WriteFlags::META).await?;
    device.flush().await?;
    Ok(sb)
}
