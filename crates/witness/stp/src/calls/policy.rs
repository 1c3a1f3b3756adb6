//! The policies of a journal that playback knows, and the changes of them.

use crate::change::{Barriers, Mode, PlanChange};

/// The way in which file contents are made safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentsPolicy {
    /// Written in place by the fsync of their file, and of no other file.
    Writeback,
    /// Written in place before the log.
    Ordered,
    /// Written to the log, and in place later.
    Logged,
    /// Ordered where they lie in long runs, otherwise logged.
    Adaptive,
}

/// The order of the writes of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOrder {
    /// Contents, then one write of the log.
    Together,
    /// Contents, then the records, then the commit block.
    Apart,
    /// Contents and records at once, then the commit block.
    Overlap,
}

/// The policies of a journal. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPolicy {
    /// File contents.
    pub contents: ContentsPolicy,
    /// Whether the log goes first, and contents after it.
    pub log_first: bool,
    /// Whether a commit has the changes of all files.
    pub tangled: bool,
    /// Whether one commit goes on at a time.
    pub serial: bool,
    /// The order of its writes.
    pub order: CommitOrder,
    /// Whether contents are flushed before the commit block.
    pub flush_before: bool,
    /// Whether the commit block is written with FUA.
    pub fua: bool,
    /// Whether a flush follows the commit block.
    pub flush_after: bool,
    /// Whether only bytes that changed are logged.
    pub differences: bool,
    /// The interval of commits that nobody asks for; `None`: none is seen.
    pub every: Option<u64>,
    /// The longest time for which a commit waits for other callers.
    pub group: Option<u64>,
    /// The size of the log in bytes, if it is known.
    pub log_bytes: Option<u64>,
    /// The part of the log, in thousandths, whose use makes a checkpoint begin.
    pub checkpoint_permille: u64,
}

impl JournalPolicy {
    /// Makes a change. `None`: the change is not one of policies.
    ///
    /// # Errors
    /// The reason why the change means nothing here.
    pub fn change(&mut self, change: &PlanChange) -> Option<Result<(), String>> {
        let already = |is: bool, what: &str| match is {
            true => Err(format!("the trace has {what} already")),
            false => Ok(()),
        };
        Some(match change {
            PlanChange::Mode(mode) => {
                let contents = match mode {
                    Mode::Ordered => ContentsPolicy::Ordered,
                    Mode::Writeback => ContentsPolicy::Writeback,
                    Mode::Data(_) => ContentsPolicy::Logged,
                    Mode::Adaptive(_) => ContentsPolicy::Adaptive,
                };
                let result = already(self.contents == contents, "this mode");
                (self.contents, self.log_first) = (contents, false);
                result
            }
            PlanChange::Untangle => {
                let result = match self.tangled {
                    true => Ok(()),
                    false => {
                        Err("the commits of this trace have the changes of their caller alone"
                            .into())
                    }
                };
                (self.tangled, self.serial) = (false, false);
                result
            }
            PlanChange::Overlap => {
                let result = match self.contents {
                    ContentsPolicy::Logged => {
                        Err("file contents are in the log: nothing can overlap".into())
                    }
                    _ => already(self.order == CommitOrder::Overlap, "overlapped commits"),
                };
                self.order = CommitOrder::Overlap;
                result
            }
            PlanChange::Differential => {
                let logged =
                    matches!(self.contents, ContentsPolicy::Logged | ContentsPolicy::Adaptive);
                let result = match logged {
                    true => already(self.differences, "differences in its log"),
                    false => Err("only a log with file contents has blocks of which parts change; use it with --mode data".into()),
                };
                self.differences = true;
                result
            }
            PlanChange::Barriers(barriers) => {
                let (before, fua, after) = match barriers {
                    Barriers::Off => (false, false, false),
                    Barriers::On => (true, false, true),
                    Barriers::Fua => (true, true, false),
                };
                let now = (self.flush_before, self.fua, self.flush_after);
                let result = already(now == (before, fua, after), "these barriers");
                (self.flush_before, self.fua, self.flush_after) = (before, fua, after);
                result
            }
            PlanChange::CommitEvery(ns) => {
                let result = already(self.every == Some(*ns), "this interval");
                self.every = Some(*ns);
                result
            }
            PlanChange::GroupCommit(ns) => {
                let result = already(self.group == Some(*ns), "this group commit");
                self.group = Some(*ns);
                result
            }
            PlanChange::JournalSize(bytes) => {
                let result = already(self.log_bytes == Some(*bytes), "a journal of this size");
                self.log_bytes = Some(*bytes);
                result
            }
            PlanChange::CheckpointAt(permille) => {
                let result = already(self.checkpoint_permille == *permille, "this trigger");
                self.checkpoint_permille = *permille;
                result
            }
            PlanChange::JournalAt(_)
            | PlanChange::JournalDevice(_)
            | PlanChange::Layout(_)
            | PlanChange::Disk(_)
            | PlanChange::CacheOff => return None,
        })
    }
}
