//! Logs for journals: what a journal asks of a log, and the records it keeps there.
//!
//! Layers:
//! - [`Log`]: append, force, read from a number on, give up the old end.
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

use ordo_block::{BlockDevice, BlockError, Fault, Operation};
pub use ordo_wafs::RecordRef;
use ordo_wafs::{LogError, LogStats, Lsn, Wafs};

/// What a journal asks of a log.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait Log: 'static {
    /// Appends a record, in memory; where it begins and ends. `None`: there is no room.
    fn append(&self, record: &[u8]) -> Option<(Lsn, Lsn)>;

    /// Makes everything before `lsn` durable.
    ///
    /// # Errors
    /// The log's device failed.
    async fn force(&self, lsn: Lsn) -> Result<(), BlockError>;

    /// The oldest record.
    fn start(&self) -> Lsn;

    /// Where the next record will begin.
    fn end(&self) -> Lsn;

    /// Everything before it is durable.
    fn durable(&self) -> Lsn;

    /// Bytes that can be appended.
    fn room(&self) -> u64;

    /// Bytes that it holds.
    fn capacity(&self) -> u64;

    /// Gives up everything before `start`, and keeps `client` with it, durably.
    ///
    /// # Errors
    /// The log's device failed.
    async fn checkpoint(&self, start: Lsn, client: [u8; 64]) -> Result<(), BlockError>;

    /// What was kept with the last checkpoint.
    fn client(&self) -> [u8; 64];

    /// Calls `each` with every durable record from `from` on, in order, as long as it says so.
    ///
    /// # Errors
    /// The log's device failed.
    async fn scan(
        &self,
        from: Lsn,
        each: &mut dyn FnMut(RecordRef<'_>) -> bool,
    ) -> Result<(), BlockError>;

    /// Counters.
    fn stats(&self) -> LogStats;
}

/// A failure of a log that is mounted is one of its device.
fn as_device(error: LogError) -> BlockError {
    match error {
        LogError::Device(error) => error,
        _ => BlockError { op: Operation::Read, offset: 0, len: 0, fault: Fault::Io(5) },
    }
}

impl<D: BlockDevice> Log for Wafs<D> {
    fn append(&self, record: &[u8]) -> Option<(Lsn, Lsn)> {
        Wafs::append(self, record).ok().map(|at| (at.lsn, at.end))
    }

    async fn force(&self, lsn: Lsn) -> Result<(), BlockError> {
        Wafs::force(self, lsn).await.map_err(as_device)
    }

    fn start(&self) -> Lsn {
        Wafs::start(self)
    }

    fn end(&self) -> Lsn {
        Wafs::end(self)
    }

    fn durable(&self) -> Lsn {
        Wafs::durable(self)
    }

    fn room(&self) -> u64 {
        Wafs::room(self)
    }

    fn capacity(&self) -> u64 {
        Wafs::capacity(self)
    }

    async fn checkpoint(&self, start: Lsn, client: [u8; 64]) -> Result<(), BlockError> {
        self.truncate(start);
        Wafs::checkpoint(self, Some(client)).await.map_err(as_device)
    }

    fn client(&self) -> [u8; 64] {
        self.superblock().client
    }

    async fn scan(
        &self,
        from: Lsn,
        each: &mut dyn FnMut(RecordRef<'_>) -> bool,
    ) -> Result<(), BlockError> {
        Wafs::scan(self, from, each).await.map_err(as_device)
    }

    fn stats(&self) -> LogStats {
        Wafs::stats(self)
    }
}
