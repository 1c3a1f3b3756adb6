//! Logs for journals: what a journal asks of a log, and the records it keeps there.
//!
//! Layers:
//! - [`Log`]: what a journal asks of a log: append, force, read from a number on, give up the old end.
//! - [`record`]: the records of a journal of byte ranges, and their codec.
//!
//! A log is a [`Wafs`]: on a device of its own, on a part of one beyond the file system
//! ([`Part::new`](ordo_block::part::Part::new)), or in a preallocated file of the file system that it
//! belongs to ([`Part::of`](ordo_block::part::Part::of) its extents). One format, one end to find.
//!
//! Invariants:
//! - What is read back is a prefix of what was appended, at least up to what was forced.
//! - Decoding a record never panics, loops, or takes more memory than the block that it is about.

pub mod record;

use ordo_block::{BlockError, Fault, Operation};
pub use ordo_wafs::RecordRef;
use ordo_wafs::{LogError, Lsn, Wafs};

/// A failure of a log that is mounted is one of its device.
fn as_device(error: LogError) -> BlockError {
    match error {
        LogError::Device(error) => error,
        _ => BlockError { op: Operation::Read, offset: 0, len: 0, fault: Fault::Io(5) },
    }
}

/// A mounted log, as a journal sees it. Clones are the same log.
#[derive(Clone)]
pub struct Log(Wafs);

impl From<Wafs> for Log {
    fn from(log: Wafs) -> Log {
        Log(log)
    }
}

impl Log {
    /// The log itself.
    pub fn wafs(&self) -> &Wafs {
        &self.0
    }

    /// Appends a record, in memory; where it begins and ends. `None`: there is no room.
    pub fn append(&self, record: &[u8]) -> Option<(Lsn, Lsn)> {
        self.0.append(record).ok().map(|at| (at.lsn, at.end))
    }

    /// Makes everything before `lsn` durable.
    ///
    /// # Errors
    /// The log's device failed.
    pub async fn force(&self, lsn: Lsn) -> Result<(), BlockError> {
        self.0.force(lsn).await.map_err(as_device)
    }

    /// The oldest record.
    pub fn start(&self) -> Lsn {
        self.0.start()
    }

    /// Where the next record will begin.
    pub fn end(&self) -> Lsn {
        self.0.end()
    }

    /// Everything before it is durable.
    pub fn durable(&self) -> Lsn {
        self.0.durable()
    }

    /// Bytes that can be appended.
    pub fn room(&self) -> u64 {
        self.0.room()
    }

    /// Bytes that it holds.
    pub fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    /// Gives up everything before `start`, and keeps `client` with it, durably.
    ///
    /// # Errors
    /// The log's device failed.
    pub async fn checkpoint(&self, start: Lsn, client: [u8; 64]) -> Result<(), BlockError> {
        self.0.truncate(start);
        self.0.checkpoint(Some(client)).await.map_err(as_device)
    }

    /// What was kept with the last checkpoint.
    pub fn client(&self) -> [u8; 64] {
        self.0.superblock().client
    }

    /// Calls `each` with every durable record from `from` on, in order, as long as it says so.
    ///
    /// # Errors
    /// The log's device failed.
    pub async fn scan(
        &self,
        from: Lsn,
        each: &mut dyn FnMut(RecordRef<'_>) -> bool,
    ) -> Result<(), BlockError> {
        self.0.scan(from, each).await.map_err(as_device)
    }
}
