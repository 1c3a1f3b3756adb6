//! Logs for journals: the operations that a journal needs of a log, and the format of a journal's records.
//!
//! Layers:
//! - [`Log`]: append, force, read from an LSN on, free the oldest records.
//! - [`record`]: the records of a journal of byte ranges, and their codec.
//!
//! A log is a [`Wafs`]: on a device of its own, on a part of one beyond the file system
//! ([`Partition::new`](ordo_block::partition::Partition::new)), or in a preallocated file of its own file system
//! ([`Partition::of`](ordo_block::partition::Partition::of) the file's extents). All three have the same format,
//! and the same way to find the end.
//!
//! Invariants:
//! - Records that are read back are a prefix of those appended, at least up to the last one forced.
//! - Decoding a record never panics, loops, or takes more memory than the block that the record describes.

pub mod record;

use ordo_block::{BlockError, Fault, Operation};
pub use ordo_wafs::RecordRef;
use ordo_wafs::{LogError, Lsn, Wafs};

/// The device error for a failure of a mounted log, which can only be its device's.
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
    /// The underlying WAFS.
    pub fn wafs(&self) -> &Wafs {
        &self.0
    }

    /// Appends a record in memory. Returns its beginning and end; `None` if there is no space.
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

    /// The LSN of the oldest record.
    pub fn start(&self) -> Lsn {
        self.0.start()
    }

    /// The LSN at which the next record will begin.
    pub fn end(&self) -> Lsn {
        self.0.end()
    }

    /// The LSN before which everything is durable.
    pub fn durable(&self) -> Lsn {
        self.0.durable()
    }

    /// The number of bytes that can be appended.
    pub fn free_space(&self) -> u64 {
        self.0.free_space()
    }

    /// The number of bytes that the log can hold.
    pub fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    /// Frees everything before `start`, and stores `client` with the new start, durably.
    ///
    /// # Errors
    /// The log's device failed.
    pub async fn checkpoint(&self, start: Lsn, client: [u8; 64]) -> Result<(), BlockError> {
        self.0.truncate(start);
        self.0.checkpoint(Some(client)).await.map_err(as_device)
    }

    /// The caller's data that was stored with the last checkpoint.
    pub fn client(&self) -> [u8; 64] {
        self.0.superblock().client
    }

    /// Calls `each` with every durable record from `from` on, in order, as long as it returns true.
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
