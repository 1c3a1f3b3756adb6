//! Errors of logs.

use ordo_block::{BlockError, Fault, Operation};
use ordo_format::wafs::WafsError;

use crate::Lsn;

/// The reason why a log cannot be made, mounted, written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] BlockError),
    /// Neither copy of the superblock is valid.
    #[error(
        "no log here: neither copy of the superblock is valid ({0}); make one (ordo log create)"
    )]
    NoSuperblock(WafsError),
    /// Durable records are missing.
    #[error(
        "the log is damaged at record position {lsn} (byte {byte} of the log): a durable record cannot be read; the records before it can (ordo log read --to {lsn})"
    )]
    Damaged {
        /// The LSN at which readable records end.
        lsn: Lsn,
        /// The sector's place on the device, in bytes.
        byte: u64,
    },
    /// No record begins at an LSN.
    #[error("no record begins at {lsn}; the log has records from {start} to {end}")]
    NoRecord {
        /// The LSN asked for.
        lsn: Lsn,
        /// The LSN of the oldest record.
        start: Lsn,
        /// The log's end.
        end: Lsn,
    },
    /// The log is full.
    #[error(
        "the log is full: {need} bytes are needed, {free_space} are free; remove old records (truncate)"
    )]
    Full {
        /// The number of bytes needed.
        need: u64,
        /// The number of bytes free.
        free_space: u64,
    },
    /// The device is too small for any log.
    #[error("{bytes} bytes are too few for a log; it needs {need}")]
    TooSmall {
        /// The device's size in bytes.
        bytes: u64,
        /// The smallest size of a log in bytes.
        need: u64,
    },
    /// The sector size is impossible.
    #[error("sectors of {sector} bytes: not a power of two from the device's {device} to 65536")]
    Sector {
        /// The sector size asked for, in bytes.
        sector: u32,
        /// The device's sector size, in bytes.
        device: u32,
    },
    /// The log is mounted read-only.
    #[error("the log is mounted read-only")]
    ReadOnly,
}

/// The error of a file system whose log fails: the request of the log's device that failed or could
/// not be made.
impl From<LogError> for BlockError {
    fn from(error: LogError) -> BlockError {
        let (op, offset, len, fault) = match error {
            LogError::Device(error) => return error,
            LogError::Damaged { byte, .. } => (Operation::Read, byte, 0, Fault::Damaged),
            LogError::NoRecord { lsn, .. } => (Operation::Read, lsn, 0, Fault::OutOfRange),
            LogError::Full { need, .. } => (Operation::Write, 0, need as usize, Fault::Full),
            LogError::ReadOnly => (Operation::Write, 0, 0, Fault::ReadOnly),
            LogError::NoSuperblock(_) => (Operation::Read, 0, 0, Fault::Damaged),
            LogError::TooSmall { bytes, .. } => (Operation::Read, bytes, 0, Fault::OutOfRange),
            LogError::Sector { sector, .. } => {
                (Operation::Read, 0, sector as usize, Fault::Misaligned)
            }
        };
        BlockError { op, offset, len, fault }
    }
}
