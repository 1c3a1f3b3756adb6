//! The errors that a user sees when a device fails.

use ordo_block::{BlockError, Fault};
use ordo_vfs::{Errno, FsError};

/// The error that a user sees for a failed device.
pub fn io_error(error: BlockError) -> FsError {
    let errno = match error.fault {
        Fault::Io(raw) => Errno::from_raw(raw).unwrap_or(Errno::Io),
        Fault::ReadOnly => Errno::ReadOnly,
        Fault::Misaligned
        | Fault::OutOfRange
        | Fault::Gone
        | Fault::CutOff
        | Fault::Damaged
        | Fault::Full => Errno::Io,
    };
    FsError::with_detail(errno, error)
}
