//! The ordering `journal` (write-ahead logging): each change of metadata is in a log before it is
//! in its place.
//!
//! Source: journaling-versus-soft-updates-2000, sections 3.2, 5 and 6; soft-updates-2000, section
//! 4.5. Each change appends a record of the bytes that changed, new and old ([`record`]). The
//! rules:
//!
//! | rule | what holds | switch |
//! |---|---|---|
//! | write-ahead | a block is written when the log is durable up to the last record about it | [`WRITE_AHEAD`](JournalRules::WRITE_AHEAD) |
//! | undo | recovery undoes the changes of operations that did not complete | [`UNDO`](JournalRules::UNDO) |
//! | revoke | recovery does not redo records about a block that was freed later | [`REVOKE`](JournalRules::REVOKE) |
//! | hold | a freed block is written by its new owner only when the free is certain | [`HOLD`](JournalRules::HOLD) |
//! | keep | log space is reused only when no block, and no undo, needs it any more | [`KEEP`](JournalRules::KEEP) |
//! | land | file contents that move are kept at their old place until they are written to the new one; recovery copies them | [`LAND`](JournalRules::LAND) |
//!
//! In the modes that follow file contents ([`LogContents`]), six more rules hold:
//!
//! | rule | what holds | switch |
//! |---|---|---|
//! | zeros | a new block of a file is zeros after a crash until the log says that it has been written | [`ZEROS`](JournalRules::ZEROS) |
//! | written first | the log says so when the contents are durable in their place, and no earlier | [`WRITTEN_FIRST`](JournalRules::WRITTEN_FIRST) |
//! | written, noted | an fsync that wrote contents in their place waits until the log says so | [`WRITTEN_NOTED`](JournalRules::WRITTEN_NOTED) |
//! | written last | contents that were logged while they were being written count as written with these records | [`WRITTEN_LAST`](JournalRules::WRITTEN_LAST) |
//! | whole first | contents are logged whole before they are logged by differences, again after each write in place | [`WHOLE_FIRST`](JournalRules::WHOLE_FIRST) |
//! | logged again | contents of which the log has records are logged again when they move | [`RELOG`](JournalRules::RELOG) |
//!
//! **Complete means certain.** Concurrent operations change the same bytes: a group's counts,
//! neighbouring bits. Rolling back one operation therefore rolls back each later one that changed
//! the same bytes, and each one that began after such an operation had ended (`ops`). A caller that
//! needs an operation to be durable waits for the operations under way on which that one depends,
//! and for no others. No operation waits to begin. The end record of an operation lists the
//! operations on which it depends, so recovery comes to the same decision as the running journal
//! would have. The operations that survive are a prefix of those that were done. A place in the log
//! where no operation is under way is a *quiescent point*. Recovery looks at single operations only
//! behind the last quiescent point.
//!
//! **Synchronous or not.** In a synchronous journal a create, link, removal or rename waits until
//! its records are durable; other operations return at once. An asynchronous log is written in
//! clusters, when a block must be written, and once a second.
//!
//! **Inodes that have lost their last name** and are not freed yet are recorded in the log.
//! Recovery hands them to the core, which frees them, so nothing leaks.
//!
//! `docs/journal.md` lists the differences from the paper, with their reasons.

mod checkpointer;
mod commit;
mod mode;
mod moves;
mod ops;
mod policy;
mod record;
mod replay;
mod state;
#[cfg(test)]
mod tests;
mod written;

use std::rc::Rc;

use ordo_cache::{Buffer, WriteGate};
use ordo_runtime::{Duration, LocalFuture, Runtime};
use ordo_wafs::Wafs;

pub use mode::{CommitPhases, CommitScope, JournalMode, JournalModeError, LogContents, RecordForm};
pub use state::JournalStats;

use state::State;

/// The largest block of a file system, in bytes.
const BLOCK_MAX: u64 = 1 << 16;

bitflags::bitflags! {
    /// The rules of the journal. A test switches one off to show the damage that it prevents.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct JournalRules: u16 {
        /// The log is durable up to a block's last record before the block is written.
        const WRITE_AHEAD = 1;
        /// Recovery undoes operations that did not complete.
        const UNDO = 2;
        /// Recovery redoes no record about a block that was freed after it.
        const REVOKE = 4;
        /// A freed block is not written by its new owner before the free is certain. The write is
        /// deferred until then.
        const HOLD = 8;
        /// Log space is reused only when no block, and no rollback, needs the records in it.
        const KEEP = 16;
        /// The summary area is logged as the groups are, so recovery need not read the groups.
        const SUMMARY = 32;
        /// The old place of file contents that move is freed only when the new place has been
        /// written. Recovery copies contents that were not written to their new place.
        const LAND = 64;
        /// New blocks of files are zeros after a crash until the log says that they have been
        /// written.
        const ZEROS = 128;
        /// The log calls contents written when they are durable in their place.
        const WRITTEN_FIRST = 256;
        /// An fsync that has written contents in their place waits until the log says so.
        const WRITTEN_NOTED = 512;
        /// File contents of which the log has records are logged again when they move.
        const RELOG = 1024;
        /// The log calls contents written with every record that was made of them while they were
        /// being written.
        const WRITTEN_LAST = 2048;
        /// The log has a block of contents whole before it has differences, again after each write
        /// of it in place.
        const WHOLE_FIRST = 4096;
        /// An fdatasync makes the size of a file that grew durable.
        const DATASYNC_KEEPS_SIZE = 8192;
    }
}

/// Options of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Creates, links, removals and renames are durable when they return (the papers' "sync").
    pub synchronous: bool,
    /// The interval at which the log is written and its start moved.
    pub tick: Duration,
    /// The shortest interval between records of the log's start on its device, while there is
    /// space.
    pub checkpoint_every: Duration,
    /// The log lies on the device of the file system, so that one flush of that device covers both.
    pub shares_device: bool,
    /// The modes: what is logged, who commits together, in which order.
    pub mode: JournalMode,
    /// The rules that are on.
    pub rules: JournalRules,
}

impl JournalOptions {
    /// Options of a log file, as published: asynchronous, with its start recorded each second.
    pub fn file() -> JournalOptions {
        JournalOptions {
            synchronous: false,
            tick: Duration::from_secs(1),
            checkpoint_every: Duration::from_secs(1),
            shares_device: true,
            mode: JournalMode::default(),
            rules: JournalRules::all(),
        }
    }

    /// Options of a stand-alone log (WAFS) on a device of its own, as published: its superblock is
    /// written infrequently.
    pub fn wafs(synchronous: bool) -> JournalOptions {
        JournalOptions {
            synchronous,
            checkpoint_every: Duration::from_secs(30),
            shares_device: false,
            ..JournalOptions::file()
        }
    }
}

/// The ordering `journal`, on a log. Clones are cheap and share everything.
#[derive(Clone)]
pub struct JournalOrder {
    state: Rc<State>,
}

impl JournalOrder {
    /// A journal on a mounted log.
    pub fn new(runtime: &Runtime, log: Wafs, options: JournalOptions) -> JournalOrder {
        JournalOrder { state: Rc::new(State::new(runtime, log, options)) }
    }

    /// The size of the smallest log with which every operation on blocks of `block` bytes has
    /// space, in bytes.
    pub fn log_bytes_min(block: u64) -> u64 {
        // Heads of sectors take a twelfth of the log at most, and the two copies of its superblock
        // two sectors.
        let bytes = state::least_capacity(block) * 12 / 11 + 4096;
        bytes.next_multiple_of(4096)
    }

    /// The log.
    pub fn log(&self) -> &Wafs {
        &self.state.log
    }

    /// The journal's counters.
    pub fn stats(&self) -> JournalStats {
        self.state.stats.get()
    }
}

impl WriteGate for JournalOrder {
    fn follows_writes(&self) -> bool {
        true
    }

    fn follows(&self, block: &Buffer) -> bool {
        self.state.follows(block)
    }

    fn before_write(
        &self,
        block: &Buffer,
        _image: &mut ordo_cache::WriteImage,
        _rolled_back: &mut Vec<usize>,
    ) -> ordo_cache::WriteDecision {
        self.state.before_write(block)
    }

    fn write_done(&self, block: &Buffer, version: u64, result: Result<(), ordo_block::BlockError>) {
        if result.is_ok() {
            self.state.written(block, version);
            self.state.land(block, version);
        }
    }

    fn forgotten(&self, block: &Buffer) {
        self.state.forget(block);
    }

    fn held(&self, block: &Buffer) -> bool {
        self.state.is_held(block)
    }

    fn wait_for_progress(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {
            // A failure is kept in the state, and the next caller gets it.
            if self.state.commit_more().await.is_err() {
                self.state.runtime.sleep(self.state.options.tick).await;
            }
        })
    }

    fn wait_for(&self, lsn: u64) -> LocalFuture<'_, Result<(), ordo_block::BlockError>> {
        Box::pin(self.state.force(lsn))
    }
}
