//! The forms of a system in which some of its rules matter.
//!
//! Switching off most rules breaks a promise in a system as it is usually made, after a power cut
//! alone. Other rules matter only in another form of the system, or after another fault. A search
//! for such a rule uses that form; with all rules on it finds nothing there.

use ordo_block::pieces::{read_all, write_all};
use ordo_block::{BlockError, Device, WriteFlags};
use ordo_crash::Promise;
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_SIZE, Superblock};

use crate::options::MakeOptions;

/// A form of a system, and the fault that comes with a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashForm {
    /// The system as it is usually made, and a power cut.
    Usual,
    /// A log without seals on its partial segments (`BLOCKS_FIRST`).
    Unsealed,
    /// After the power cut, the superblock of the newest checkpoint cannot be read, so the one
    /// before it is used (`REUSE`).
    SpoiltCheckpoint,
    /// After the power cut, files are read from the copy of the metadata on the data device
    /// (`COPY_FIRST`).
    Salvaged,
}

/// Whether a rule matters only in a log whose segments have been used again.
pub fn needs_churn(rule: &str) -> bool {
    CrashForm::of(rule) == CrashForm::SpoiltCheckpoint
}

impl CrashForm {
    /// The form in which a rule matters.
    pub fn of(rule: &str) -> CrashForm {
        match rule {
            "BLOCKS_FIRST" => CrashForm::Unsealed,
            "REUSE" => CrashForm::SpoiltCheckpoint,
            "COPY_FIRST" => CrashForm::Salvaged,
            _ => CrashForm::Usual,
        }
    }

    /// The options of mkfs.
    pub fn made(self, options: MakeOptions) -> MakeOptions {
        match self {
            CrashForm::Unsealed => MakeOptions { no_seals: true, ..options },
            CrashForm::Salvaged => {
                let size = options.metadata;
                let copy = size.map(crate::dualfs::crash_copy);
                MakeOptions { metadata_copy: copy, ..options }
            }
            _ => options,
        }
    }

    /// The promise. A copy of the metadata is as old as the last checkpoint, but its files have
    /// their present contents, so no names and no order are promised.
    pub fn promise(self, promise: Promise) -> Promise {
        match self {
            CrashForm::Salvaged => Promise { no_check: true, no_stale: true, ..Promise::NONE },
            _ => promise,
        }
    }

    /// The fault that comes with the power cut.
    ///
    /// # Errors
    /// A device failed.
    pub async fn strike(self, disks: &[Device]) -> Result<(), BlockError> {
        if self == CrashForm::SpoiltCheckpoint {
            // The first disk has the log.
            spoil(&disks[0]).await?;
        }
        Ok(())
    }
}

/// Destroys the superblock of the newest checkpoint, if an older one is there.
async fn spoil(disk: &Device) -> Result<(), BlockError> {
    let read = async |at: u64| -> Result<Option<Superblock>, BlockError> {
        let bytes = read_all(disk, at, SUPERBLOCK_SIZE).await?;
        Ok(Superblock::read(&bytes).or_else(|_| Superblock::read_dual(&bytes)).ok())
    };
    let Some(first) = read(LABEL_BYTES).await? else { return Ok(()) };
    let at = first.byte_of(first.sboffs[1]);
    let Some(second) = read(at).await? else { return Ok(()) };
    let newest = match first.serial.cmp(&second.serial) {
        std::cmp::Ordering::Less => at,
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Greater => LABEL_BYTES,
    };
    write_all(disk, newest, &[0xff; SUPERBLOCK_SIZE], WriteFlags::FUA).await
}
