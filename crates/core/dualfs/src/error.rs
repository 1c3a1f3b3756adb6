//! The errors of pairs of devices.

use ordo_block::BlockError;
use ordo_format::dualfs::{IdentityError, PairError, PairName};
use ordo_lfs::LfsError;
use ordo_lfs::mkfs::MkfsError;

/// The reason why a pair cannot be made, mounted or read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DualError {
    /// A device has no usable identity.
    #[error("the {device} {}: {error}", .error.verdict())]
    Identity {
        /// The metadata device, the data device, or the disk that should have both.
        device: &'static str,
        /// The fault.
        error: IdentityError,
    },
    /// The only device given is a data device.
    #[error("this is the data device of the pair {0}; give its metadata device too")]
    OnlyData(PairName),
    /// The data device was not given.
    #[error("this is the metadata device of the pair {0}; give its data device too")]
    DataMissing(PairName),
    /// A second device was given, but the first one is a disk with both.
    #[error("the pair {0} is on one disk, but a second device was given")]
    TooMany(PairName),
    /// The devices do not belong together.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The metadata device is lost, and the data device keeps no copy of it.
    #[error("the data device of the pair {0} keeps no copy of the metadata (mkfs --meta-copy)")]
    NoCopy(PairName),
    /// The data device has space for a copy, but no copy is complete.
    #[error("the data device of the pair {0} has no complete copy of the metadata")]
    CopyIncomplete(PairName),
    /// A device is smaller than its part of the file system.
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
    /// A file system with these sizes cannot be made: there is no space for two devices, or the
    /// groups have an impossible size.
    #[error("{0}")]
    Sizes(String),
    /// The metadata log cannot be made.
    #[error("the metadata log: {0}")]
    Mkfs(#[from] MkfsError),
    /// The metadata log cannot be used.
    #[error("the metadata log: {0}")]
    Log(#[from] LfsError),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}
