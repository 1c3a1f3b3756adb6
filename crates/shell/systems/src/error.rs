//! The errors of systems and formats.

use ordo_bgfsck::BackgroundError;
use ordo_block::BlockError;
use ordo_check::CheckError;
use ordo_check::lfs::LfsCheckError;
use ordo_ffs::MountError;
use ordo_ffs::mkfs::MkfsError;
use ordo_lfs::LfsError;
use ordo_vfs::FsError;

use crate::journaled::JournaledError;

/// The reason why something cannot be done with a system, or with the contents of a device.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// The format lacks the ability.
    #[error("{what}, which can be {can}, not {wanted}")]
    Cannot {
        /// The format, with its article: "an LFS".
        what: &'static str,
        /// The abilities, in words.
        can: String,
        /// The ability that was asked for, in words.
        wanted: &'static str,
    },
    /// An option that the format does not have.
    #[error("{option} does not go with {what}")]
    Option {
        /// The option, in the user's words.
        option: &'static str,
        /// The format, with its article: "an LFS".
        what: &'static str,
    },
    /// A number that is too large for the format.
    #[error("{what} {bytes} is too large")]
    TooLarge {
        /// The quantity.
        what: &'static str,
        /// The number of bytes that was asked for.
        bytes: u64,
    },
    /// The device is smaller than the size that was asked for.
    #[error("has {have} bytes, but {size} were asked for; use a smaller size")]
    NoFreeSpace {
        /// The size of the device, in bytes.
        have: u64,
        /// The size that was asked for, in bytes.
        size: u64,
    },
    /// A journal was asked for, but the image has no log.
    #[error(
        "it has no log; ordo mkfs --journal file makes an image with one, logdev= names another place"
    )]
    NoLog,
    /// Options of a journal were given for a system without one.
    #[error("it has no journal, and takes no options of one")]
    NoJournal,
    /// An option of a journal that there is not, or a value that it does not take.
    #[error(transparent)]
    JournalMode(#[from] ordo_ordering::JournalModeError),
    /// The check before the mount found damage that it may not repair without a person's consent.
    #[error("the check found damage that it may not repair without being asked; run ordo fsck")]
    NeedsCheck,
    /// Nothing can be read of a damaged UFS.
    #[error(transparent)]
    Rescue(#[from] ordo_rescue::RescueError),
    /// UFS2 cannot be made with these options.
    #[error(transparent)]
    MakeFfs(#[from] MkfsError),
    /// LFS cannot be made with these options.
    #[error(transparent)]
    MakeLfs(#[from] ordo_lfs::mkfs::MkfsError),
    /// The image cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The image cannot be made, mounted or recovered with its log.
    #[error(transparent)]
    Journaled(#[from] JournaledError),
    /// The LFS cannot be read.
    #[error(transparent)]
    Lfs(#[from] LfsError),
    /// The devices of a DualFS cannot be made or used.
    #[error(transparent)]
    Dual(#[from] ordo_dualfs::DualError),
    /// A check of a DualFS could not be done.
    #[error(transparent)]
    CheckDual(#[from] ordo_check::dualfs::DualCheckError),
    /// A check of UFS2 could not be done.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// A check of an LFS could not be done.
    #[error(transparent)]
    CheckLfs(#[from] LfsCheckError),
    /// The background check failed.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// The header of a cylinder group is damaged.
    #[error("cylinder group {group}: {error}; check it (ordo fsck)")]
    Group {
        /// The number of the group.
        group: u32,
        /// The fault.
        error: String,
    },
    /// The file system returned an error.
    #[error(transparent)]
    FileSystem(#[from] FsError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// A value cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl SystemError {
    /// Whether a file system cannot be made because of the size of its device.
    pub fn is_size(&self) -> bool {
        matches!(self, SystemError::MakeFfs(_) | SystemError::MakeLfs(_) | SystemError::Dual(_))
    }

    /// The error of mounting FFS, whichever variant has it.
    pub(crate) fn mount(&self) -> Option<&MountError> {
        match self {
            SystemError::Mount(why) | SystemError::Journaled(JournaledError::Mount(why)) => {
                Some(why)
            }
            _ => None,
        }
    }
}
