//! Checking and repairing DualFS: the identities of both devices, the metadata log as LFS's
//! ([`crate::lfs`]), and one more pass for the data device.
//!
//! ```
//! use ordo_block::{BlockDevice, ram::RamDisk};
//! use ordo_check::dualfs::{DualCheckError, DualChecker};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let disks = [RamDisk::new(1 << 20).erase()];
//! let checker = DualChecker::new(&disks, ordo_check::Repair::No);
//! let result = executor.block_on(checker.run()).unwrap();
//! assert!(matches!(result, Err(DualCheckError::Identity { .. })));
//! ```

use ordo_block::partition::Partition;
use ordo_block::{BlockDevice, BlockError, Device};
use ordo_format::dualfs::{
    IDENTITY_SIZE, Identity, IdentityError, PairError, PairName, ROLE_DATA, check_pair,
};

use crate::Repair;
use crate::lfs::{LfsCheckError, LfsChecker, LfsReport};

/// Checks and repairs the DualFS on one or two devices.
pub struct DualChecker {
    devices: Vec<Device>,
    repair: Repair,
}

/// The reason why a check could not be carried out; the exit status is 8.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DualCheckError {
    /// A device has no usable identity.
    #[error("the {device} device {}: {error}", .error.verdict())]
    Identity {
        /// The device: metadata or data.
        device: &'static str,
        /// The fault.
        error: IdentityError,
    },
    /// Only one of two devices was given.
    #[error("only the {role} device of the pair {pair} was given; the other one is needed too")]
    Missing {
        /// The role of the device that was given.
        role: &'static str,
        /// The pair.
        pair: PairName,
    },
    /// The devices do not belong together.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// A device is too small for what it should hold.
    #[error(
        "the {device} device should have {want} bytes, but it has only {have}; was it truncated?"
    )]
    TooSmall {
        /// The device: metadata or data.
        device: &'static str,
        /// The bytes that it should have.
        want: u64,
        /// The bytes that it has.
        have: u64,
    },
    /// The metadata log cannot be checked.
    #[error("the metadata log: {0}")]
    Log(#[from] LfsCheckError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}

impl DualChecker {
    /// A checker of one disk with both devices, or of two disks, the metadata device first. No one
    /// else may write to them meanwhile.
    pub fn new(devices: &[Device], repair: Repair) -> DualChecker {
        DualChecker { devices: devices.to_vec(), repair }
    }

    async fn identity(device: &Device, role: &'static str) -> Result<Identity, DualCheckError> {
        let geometry = device.geometry();
        let len = IDENTITY_SIZE.max(geometry.sector as usize);
        let bytes = match geometry.bytes < len as u64 {
            true => Vec::new(),
            false => device.read(0, len).await?.to_vec(),
        };
        Identity::read(&bytes).map_err(|error| DualCheckError::Identity { device: role, error })
    }

    /// Finds the metadata device and the shape of the data device, and makes a checker for the log.
    async fn log(&self) -> Result<LfsChecker, DualCheckError> {
        let first = DualChecker::identity(&self.devices[0], "metadata").await?;
        let metadata = Partition::new(self.devices[0].clone(), 0, first.metadata_bytes);
        let data = match self.devices.get(1) {
            Some(data) => data.clone(),
            None if first.role == ROLE_DATA || first.data_at == 0 => {
                let (role, pair) = (first.role_name(), first.name());
                return Err(DualCheckError::Missing { role, pair });
            }
            None => {
                let whole = self.devices[0].geometry().bytes;
                let rest = whole.saturating_sub(first.data_at);
                Partition::new(self.devices[0].clone(), first.data_at, rest).erase()
            }
        };
        let second = DualChecker::identity(&data, "data").await?;
        check_pair(&first, &second)?;
        let shape = first.shape();
        let bytes = first.data_bytes();
        let have = [self.devices[0].geometry().bytes, data.geometry().bytes];
        for (device, want, have) in
            [("metadata", first.metadata_bytes, have[0]), ("data", bytes, have[1])]
        {
            if have < want {
                return Err(DualCheckError::TooSmall { device, want, have });
            }
        }
        Ok(LfsChecker::of_pair(metadata, shape, self.repair))
    }

    /// The report of a file system that was unmounted cleanly, without a check.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn skipped(&self) -> Result<LfsReport, DualCheckError> {
        Ok(self.log().await?.skipped().await?)
    }

    /// Checks the file system, and makes the repairs that were asked for. Repairs are durable on
    /// return.
    ///
    /// # Errors
    /// The devices are not a pair, the IFILE cannot be read, or a device failed.
    pub async fn run(&self) -> Result<LfsReport, DualCheckError> {
        Ok(self.log().await?.run().await?)
    }
}
