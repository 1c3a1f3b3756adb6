//! Why something cannot be done with a system.

use ordo_bgfsck::BackgroundError;
use ordo_block::BlockError;
use ordo_check::CheckError;
use ordo_check::lfs::LfsCheckError;
use ordo_ffs::MountError;
use ordo_ffs::mkfs::MkfsError;
use ordo_lfs::LfsError;
use ordo_vfs::FsError;

use crate::journaled::JournaledError;

/// Why something cannot be done with a system, or with what is on a device.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// It is not among what can be done with it.
    #[error("{what}, which can be {can}, not {wanted}")]
    Cannot {
        /// What it is: "an LFS".
        what: &'static str,
        /// What can be done with it, in words.
        can: String,
        /// What was asked for, in words.
        wanted: &'static str,
    },
    /// An option that means nothing for it.
    #[error("{option} does not go with {what}")]
    Option {
        /// The option, as a user gives it.
        option: &'static str,
        /// What it is: "an LFS".
        what: &'static str,
    },
    /// A number beyond what a format can hold.
    #[error("{what} {bytes} is too large")]
    TooLarge {
        /// What it is of.
        what: &'static str,
        /// The number that was asked for, in bytes.
        bytes: u64,
    },
    /// More than the device has was asked for.
    #[error("has {have} bytes, {size} were asked for")]
    NoRoom {
        /// Bytes of the device.
        have: u64,
        /// Bytes that were asked for.
        size: u64,
    },
    /// A journal was asked for, and there is none.
    #[error(
        "it has no log; ordo mkfs --journal file makes an image with one, logdev= names another place"
    )]
    NoLog,
    /// A check before the mount found more than it may repair by itself.
    #[error("the check found what it may not repair by itself")]
    NeedsCheck,
    /// UFS2 cannot be made so.
    #[error(transparent)]
    MakeFfs(#[from] MkfsError),
    /// LFS cannot be made so.
    #[error(transparent)]
    MakeLfs(#[from] ordo_lfs::mkfs::MkfsError),
    /// It cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// It cannot be made, mounted or recovered with its log.
    #[error(transparent)]
    Journaled(#[from] JournaledError),
    /// An LFS cannot be read.
    #[error(transparent)]
    Lfs(#[from] LfsError),
    /// A check of UFS2 could not be carried out.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// A check of an LFS could not be carried out.
    #[error(transparent)]
    CheckLfs(#[from] LfsCheckError),
    /// The check in the background failed.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// A cylinder group that is not one.
    #[error("cylinder group {group}: {error}; check it (ordo fsck)")]
    Group {
        /// Which.
        group: u32,
        /// What is wrong with it.
        error: String,
    },
    /// The file system said no.
    #[error(transparent)]
    FileSystem(#[from] FsError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// A value has no form in JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl SystemError {
    /// Why FFS could not be mounted, whatever was asked of it.
    pub(crate) fn mount(&self) -> Option<&MountError> {
        match self {
            SystemError::Mount(why) | SystemError::Journaled(JournaledError::Mount(why)) => {
                Some(why)
            }
            _ => None,
        }
    }
}
