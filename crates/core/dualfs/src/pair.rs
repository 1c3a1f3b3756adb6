//! The two devices of a file system: finding them, comparing them, and marking them as mounted.

use ordo_block::partition::Partition;
use ordo_block::pieces::{read_all, write_all};
use ordo_block::{BlockDevice, Device, WriteFlags};
use ordo_format::dualfs::{
    IDENTITY_SIZE, Identity, IdentityError, ROLE_DATA, ROLE_METADATA, check_pair,
};
use ordo_lfs::data::{CopySide, DataDevice};

use crate::DualError;

/// Two devices that belong together.
pub struct Pair {
    /// The metadata device.
    pub metadata: Device,
    /// The data device.
    pub data: Device,
    /// The metadata device's identity.
    pub identity: Identity,
    /// The data device's identity.
    pub data_identity: Identity,
}

/// Reads the identity of a device.
///
/// # Errors
/// The device failed; the inner error is about the identity.
pub async fn read_identity(
    device: &Device,
) -> Result<Result<Identity, IdentityError>, ordo_block::BlockError> {
    let have = device.geometry().bytes;
    match have < IDENTITY_SIZE as u64 {
        true => Ok(Err(IdentityError::TooShort { have: have as usize })),
        false => Ok(Identity::read(&read_all(device, 0, IDENTITY_SIZE).await?)),
    }
}

/// Whether a device begins with the identity of a device of DualFS, even a damaged one.
///
/// # Errors
/// The device failed.
pub async fn probe(device: &Device) -> Result<bool, DualError> {
    let found = read_identity(device).await?;
    Ok(!matches!(found, Err(IdentityError::Magic { .. } | IdentityError::TooShort { .. })))
}

/// Writes an identity, which is durable when this returns.
pub(crate) async fn write_identity(
    device: &Device,
    identity: &Identity,
) -> Result<(), ordo_block::BlockError> {
    let mut bytes = [0; IDENTITY_SIZE];
    identity.seal(&mut bytes);
    write_all(device, 0, &bytes, WriteFlags::FUA | WriteFlags::SYNC | WriteFlags::META).await
}

/// The two parts of a disk with both devices. The second begins at byte `data_at`.
pub(crate) fn split(disk: &Device, metadata: u64, data_at: u64) -> (Device, Device) {
    let rest = disk.geometry().bytes.saturating_sub(data_at);
    let first = Partition::new(disk.clone(), 0, metadata).erase();
    (first, Partition::new(disk.clone(), data_at, rest).erase())
}

impl Pair {
    /// Finds the two devices on `disks`: both on the only disk, or the metadata device on the first
    /// and the data device on the second.
    ///
    /// # Errors
    /// A device is missing, belongs to another pair, is too small, or failed.
    pub async fn open(disks: &[Device]) -> Result<Pair, DualError> {
        let usable = |device, found: Result<Identity, IdentityError>| {
            found.map_err(|error| DualError::Identity { device, error })
        };
        let first = if disks.len() > 1 { "metadata device" } else { "disk" };
        let identity = usable(first, read_identity(&disks[0]).await?)?;
        let second = match disks.get(1) {
            Some(disk) => Some(usable("data device", read_identity(disk).await?)?),
            None => None,
        };
        let (metadata, data, data_identity) = match (second, identity.role) {
            (Some(_), _) if identity.data_at > 0 => {
                return Err(DualError::TooMany(identity.name()));
            }
            (Some(second), _) => (disks[0].clone(), disks[1].clone(), second),
            (None, ROLE_DATA) => return Err(DualError::OnlyData(identity.name())),
            (None, _) if identity.data_at == 0 => {
                return Err(DualError::DataMissing(identity.name()));
            }
            (None, _) => {
                let parts = split(&disks[0], identity.metadata_bytes, identity.data_at);
                let found = usable("data part of the disk", read_identity(&parts.1).await?)?;
                (parts.0, parts.1, found)
            }
        };
        check_pair(&identity, &data_identity)?;
        let bytes = identity.data_bytes();
        let wanted = [("metadata", &metadata, identity.metadata_bytes), ("data", &data, bytes)];
        for (device, found, want) in wanted {
            let have = found.geometry().bytes;
            if have < want {
                return Err(DualError::TooSmall { device, want, have });
            }
        }
        let metadata = Partition::new(metadata, 0, identity.metadata_bytes).erase();
        Ok(Pair { metadata, data, identity, data_identity })
    }

    /// The data device, for mounting the log with it.
    pub fn data_device(&self) -> DataDevice {
        let (shape, first) = (self.identity.shape(), self.identity.data_at);
        DataDevice { device: self.data.clone(), shape, first }
    }

    /// The part of the data device that keeps the copy of the metadata; `None` if there is no copy.
    pub fn copy_side(&self) -> Option<CopySide> {
        let (area, uuid) = (self.identity.copy_area()?, self.identity.uuid);
        Some(CopySide { area, uuid })
    }

    /// Records on both devices that they are mounted together once more. [`check_pair`] explains
    /// the order of the two writes.
    ///
    /// # Errors
    /// A device failed. The two still belong together.
    pub async fn begin_mount(&mut self) -> Result<(), DualError> {
        debug_assert_eq!(self.identity.role, ROLE_METADATA);
        let generation = self.identity.generation.max(self.data_identity.generation) + 1;
        if self.data_identity.generation != self.identity.generation {
            // A mount was interrupted between its two writes. The generation that it announced is
            // kept.
            self.identity.generation = self.data_identity.generation;
        }
        self.identity.next = generation;
        write_identity(&self.metadata, &self.identity).await?;
        self.data_identity.generation = generation;
        write_identity(&self.data, &self.data_identity).await?;
        (self.identity.generation, self.identity.next) = (generation, 0);
        Ok(write_identity(&self.metadata, &self.identity).await?)
    }
}
