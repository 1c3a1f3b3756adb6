//! Errors of logs.

use ordo_block::BlockError;
use ordo_format::wafs::WafsError;

use crate::Lsn;

/// The reason why a log cannot be made, mounted, written or read.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LogError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] BlockError),
    /// Neither copy of the superblock is valid.
    #[error(
        "no log here: neither copy of the superblock is sound ({0}); make one (ordo log create)"
    )]
    NoSuperblock(WafsError),
    /// Durable records are missing.
    #[error(
        "the log is damaged at record position {lsn} (byte {byte} of the log): what was durable there \
         cannot be read; what lies before it can (ordo log read --to {lsn})"
    )]
    Damaged {
        /// The LSN at which readable records end.
        lsn: Lsn,
        /// The sector's place on the device, in bytes.
        byte: u64,
    },
    /// No record begins at an LSN.
    #[error("no record begins at {lsn}; the log holds {start} to {end}")]
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
        "the log is full: {need} bytes are needed, {free_space} are free; give up old records (truncate)"
    )]
    Full {
        /// Bytes needed.
        need: u64,
        /// Bytes free.
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
