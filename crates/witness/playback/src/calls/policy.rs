//! The policies of a journal that playback knows, and the changes of them.

use crate::change::{Barriers, Home, Mode, PlanChange};

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
    /// Whether an fsync goes on as ext3 and ext4 do it: its caller writes its own contents, and a
    /// task commits for all.
    pub jbd2: bool,
    /// With file contents in the log and an fsync as ext3 and ext4 do it: whether the fsync then
    /// writes them in place too.
    pub home_at_sync: bool,
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
    /// Whether each fsync makes as much durable as an fdatasync does.
    pub data_syncs: bool,
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
        Some(match change {
            PlanChange::Mode(mode) => self.change_mode(*mode),
            PlanChange::Untangle => self.untangle(),
            PlanChange::Overlap => self.overlap(),
            PlanChange::Differential => self.differential(),
            PlanChange::Barriers(barriers) => self.change_barriers(*barriers),
            PlanChange::DataSync => match self.jbd2 {
                true => set(&mut self.data_syncs, true, "fdatasync"),
                false => {
                    Err("what an fdatasync leaves out is known for ext3 and ext4 alone".into())
                }
            },
            PlanChange::CommitEvery(ns) => set(&mut self.every, Some(*ns), "this interval"),
            PlanChange::GroupCommit(ns) => set(&mut self.group, Some(*ns), "this group commit"),
            PlanChange::JournalSize(bytes) => {
                set(&mut self.log_bytes, Some(*bytes), "a journal of this size")
            }
            PlanChange::CheckpointAt(permille) => {
                set(&mut self.checkpoint_permille, *permille, "this trigger")
            }
            PlanChange::JournalAt(_)
            | PlanChange::JournalDevice(_)
            | PlanChange::Layout(_)
            | PlanChange::Disk(_)
            | PlanChange::CacheOff => return None,
        })
    }

    /// The journal is one of ext3 or ext4.
    pub(super) fn set_jbd2(&mut self) {
        (self.jbd2, self.tangled, self.serial, self.log_first) = (true, true, true, false);
        // Contents in place go on beside commits of other callers, whatever the mode.
        self.order = CommitOrder::Apart;
        if self.contents == ContentsPolicy::Writeback {
            self.contents = ContentsPolicy::Ordered;
        }
    }

    fn change_mode(&mut self, mode: Mode) -> Result<(), String> {
        let contents = match mode {
            Mode::Ordered => ContentsPolicy::Ordered,
            Mode::Writeback => ContentsPolicy::Writeback,
            Mode::Data(_) => ContentsPolicy::Logged,
            Mode::Adaptive(_) => ContentsPolicy::Adaptive,
        };
        self.log_first = false;
        if let Mode::Data(home) | Mode::Adaptive(home) = mode {
            self.home_at_sync = home == Home::Sync;
        }
        set(&mut self.contents, contents, "this mode")
    }

    fn untangle(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.tangled) {
            return Err("the commits of this trace have the changes of their caller alone".into());
        }
        self.serial = false;
        Ok(())
    }

    fn overlap(&mut self) -> Result<(), String> {
        if self.contents == ContentsPolicy::Logged {
            return Err("file contents are in the log: nothing can overlap".into());
        }
        set(&mut self.order, CommitOrder::Overlap, "overlapped commits")
    }

    fn differential(&mut self) -> Result<(), String> {
        if !matches!(self.contents, ContentsPolicy::Logged | ContentsPolicy::Adaptive) {
            return Err("only a log with file contents has blocks of which parts change; use it with --mode data".into());
        }
        set(&mut self.differences, true, "differences in its log")
    }

    fn change_barriers(&mut self, barriers: Barriers) -> Result<(), String> {
        let wanted = match barriers {
            Barriers::Off => (false, false, false),
            Barriers::On => (true, false, true),
            Barriers::Fua => (true, true, false),
        };
        let mut now = (self.flush_before, self.fua, self.flush_after);
        let result = set(&mut now, wanted, "these barriers");
        (self.flush_before, self.fua, self.flush_after) = now;
        result
    }
}

/// Sets a policy, unless it is so already.
fn set<T: PartialEq>(policy: &mut T, to: T, what: &str) -> Result<(), String> {
    if *policy == to {
        return Err(format!("the trace has {what} already"));
    }
    *policy = to;
    Ok(())
}
