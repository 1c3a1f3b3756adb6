//! The ordering `journal`: every change of metadata is in a log before it is in its place.
//!
//! Source: journaling-versus-soft-updates-2000, sections 3.2, 5 and 6; soft-updates-2000, section 4.5. Each
//! change appends a record of the bytes that changed, new and old ([`ordo_log::record`]). The rules:
//!
//! | rule | what holds | switch |
//! |---|---|---|
//! | write-ahead | a block is written when the log is durable up to the last record about it | [`WRITE_AHEAD`](JournalRules::WRITE_AHEAD) |
//! | undo | what the log has of operations that did not complete is undone at recovery | [`UNDO`](JournalRules::UNDO) |
//! | revoke | records about a block that was freed since are not repeated | [`REVOKE`](JournalRules::REVOKE) |
//! | hold | nothing is written to a block that was freed before it is certain that it was | [`HOLD`](JournalRules::HOLD) |
//! | keep | log space is given up when no block, and no undo, needs it any more | [`KEEP`](JournalRules::KEEP) |
//!
//! **Complete means certain.** Operations at the same time change the same bytes: a group's counts, bits side
//! by side. To undo one is to undo whoever changed the same bytes after it, and whoever began when that had ended
//! ([`ops`]). Who needs an operation to be durable waits for those under way that it hangs on, and for nobody else;
//! nobody waits to begin. An operation's end says what it hangs on, so recovery comes to the same result, whatever
//! operations share; what survives is a prefix of what was done. Where no operation is under way the log is *quiet*:
//! recovery looks at single operations only behind the last such place.
//!
//! **Synchronous or not.** Synchronously a create, link, removal or rename waits until the log is durable
//! behind it; everything else rides along. Otherwise the log is written in clusters, when a block has to
//! be, and once a second.
//!
//! **Inodes that have lost their last name** and are not freed yet stay known to the log, so that recovery
//! can hand them to the core: nothing leaks.
//!
//! Where this is not what the paper describes, and why, is in `docs/journal.md`.

mod keeper;
mod ops;
mod policy;
mod replay;
mod state;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use ordo_cache::{Buffer, WriteGate};
use ordo_runtime::{Duration, Runtime};
use ordo_wafs::Wafs;

pub use state::JournalStats;

use state::State;

bitflags::bitflags! {
    /// The rules of the journal, each of which can be switched off to see what it is there for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct JournalRules: u8 {
        /// The log is durable up to a block's last record before the block is written.
        const WRITE_AHEAD = 1;
        /// Recovery undoes operations that did not complete.
        const UNDO = 2;
        /// Recovery repeats no record about a block that was freed since.
        const REVOKE = 4;
        /// A block that was freed is not written by its new owner before that is certain.
        const HOLD = 8;
        /// Log space is given up only when nobody needs it.
        const KEEP = 16;
        /// The summary area is logged as the groups are: recovery need not read them.
        const SUMMARY = 32;
    }
}

/// How a journal behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Creates, links, removals and renames are durable when they return.
    pub synchronous: bool,
    /// How often the log is written and its start looked for.
    pub tick: Duration,
    /// How often at most the start is recorded on the log's device, while there is space.
    pub checkpoint_every: Duration,
    /// The rules that hold.
    pub rules: JournalRules,
}

impl JournalOptions {
    /// A log file, as published: asynchronous, its start recorded each second.
    pub fn file() -> JournalOptions {
        JournalOptions {
            synchronous: false,
            tick: Duration::from_secs(1),
            checkpoint_every: Duration::from_secs(1),
            rules: JournalRules::all(),
        }
    }

    /// A stand-alone log, as published: its superblock is written infrequently.
    pub fn wafs(synchronous: bool) -> JournalOptions {
        JournalOptions {
            synchronous,
            checkpoint_every: Duration::from_secs(30),
            ..JournalOptions::file()
        }
    }
}

/// The ordering `journal`, on a log. Cheap to clone: clones share everything.
#[derive(Clone)]
pub struct JournalOrder {
    state: Rc<State>,
}

impl JournalOrder {
    /// A journal on a mounted log.
    pub fn new(runtime: &Runtime, log: Wafs, options: JournalOptions) -> JournalOrder {
        JournalOrder { state: Rc::new(State::new(runtime, log.into(), options)) }
    }

    /// The log.
    pub fn log(&self) -> &Wafs {
        self.state.log.wafs()
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        self.state.stats.get()
    }
}

impl WriteGate for JournalOrder {
    const FOLLOWS_WRITES: bool = true;

    fn before_write(
        &self,
        block: &Buffer,
        _image: &mut ordo_cache::WriteImage,
        _undone: &mut Vec<usize>,
    ) -> ordo_cache::Verdict {
        self.state.before_write(block)
    }

    fn write_done(&self, block: &Buffer, version: u64, result: Result<(), ordo_block::BlockError>) {
        if result.is_ok() {
            self.state.written(block, version);
        }
    }

    fn forgotten(&self, block: &Buffer) {
        self.state.forget(block);
    }

    fn held(&self, block: &Buffer) -> bool {
        self.state.is_held(block)
    }

    async fn unblocked(&self) {
        // A failure is kept, and told to the next who asks.
        if self.state.commit_more().await.is_err() {
            self.state.runtime.sleep(self.state.options.tick).await;
        }
    }

    async fn wait_for(&self, lsn: u64) -> Result<(), ordo_block::BlockError> {
        self.state.force(lsn).await
    }
}
