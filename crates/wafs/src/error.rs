//! What can go wrong with a log.

use ordo_block::BlockError;
use ordo_format::wafs::WafsError;

use crate::Lsn;

/// Why a log cannot be made, mounted, written or read.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LogError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] BlockError),
    /// Neither copy of the superblock is one.
    #[error(
        "no log here: neither copy of the superblock is sound ({0}); make one (ordo log create)"
    )]
    NoSuperblock(WafsError),
    /// Something that was durable is not there.
    #[error(
        "the log is damaged at record position {lsn} (byte {byte} of the log): what was durable there \
         cannot be read; what lies before it can (ordo log read --to {lsn})"
    )]
    Damaged {
        /// What can be read ends here.
        lsn: Lsn,
        /// The sector's place on the device.
        byte: u64,
    },
    /// No record begins there.
    #[error("no record begins at {lsn}; the log holds {start} to {end}")]
    NoRecord {
        /// What was asked for.
        lsn: Lsn,
        /// The oldest record.
        start: Lsn,
        /// The end.
        end: Lsn,
    },
    /// There is no room.
    #[error(
        "the log is full: {need} bytes are needed, {room} are free; give up old records (truncate)"
    )]
    Full {
        /// Bytes needed.
        need: u64,
        /// Bytes free.
        room: u64,
    },
    /// The device is too small for any log.
    #[error("{bytes} bytes are too few for a log; it needs {need}")]
    TooSmall {
        /// What there is.
        bytes: u64,
        /// What a log needs at least.
        need: u64,
    },
    /// A sector size that cannot be.
    #[error("sectors of {sector} bytes: not a power of two from the device's {device} to 65536")]
    Sector {
        /// What was asked for.
        sector: u32,
        /// The device's.
        device: u32,
    },
    /// Mounted to be read only.
    #[error("the log is mounted read-only")]
    ReadOnly,
}
