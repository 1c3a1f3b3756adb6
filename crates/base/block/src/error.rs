//! Errors of devices.

use std::fmt;

/// The kind of request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush of the device's cache.
    Flush,
    /// A discard.
    Discard,
}

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The device reported an error; the number is the host's errno (5 for EIO).
    Io(i32),
    /// The range does not consist of whole sectors.
    Misaligned,
    /// The range ends beyond the device.
    OutOfRange,
    /// The device does not take writes.
    ReadOnly,
    /// The snapshot that was read has been given up.
    Gone,
    /// The image is shorter than when it was opened.
    CutOff,
    /// The bytes there are not those that were stored.
    Damaged,
    /// A structure that is stored there, such as a log, has no space left.
    Full,
}

/// A failed request: its kind, its range, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockError {
    /// The kind of request.
    pub op: Operation,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub len: usize,
    /// The reason of the failure.
    pub fault: Fault,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
        };
        write!(f, "{op} of {} bytes at byte {} failed: ", self.len, self.offset)?;
        match self.fault {
            Fault::Io(errno) => {
                write!(f, "I/O error ({})", std::io::Error::from_raw_os_error(errno))
            }
            Fault::Misaligned => write!(f, "not whole sectors"),
            Fault::OutOfRange => write!(f, "beyond the end of the device"),
            Fault::ReadOnly => write!(f, "the device is read-only"),
            Fault::Gone => write!(f, "the snapshot was discarded"),
            Fault::Damaged => write!(f, "damaged: the bytes read are not those that were stored"),
            Fault::Full => write!(f, "no space is left"),
            Fault::CutOff => {
                write!(f, "the image was truncated: it is shorter than when it was opened")
            }
        }
    }
}

impl std::error::Error for BlockError {}
