//! The changes on the command line.

use clap::{Args, ValueEnum};
use ordo_block::model::Model;
use ordo_playback::change::{self, JournalPlace, LayoutChange, PlanChange};
use ordo_report::number::parse_bytes;

/// The changes, in the order in which they are made.
#[derive(Args, Debug)]
#[command(next_help_heading = "Changes")]
pub(super) struct Changes {
    /// Place the journal elsewhere on the disk: at a part of it, or at a byte. The blocks there
    /// change places with it.
    #[arg(long = "journal-at", value_name = "PERCENT|BYTE", value_parser = place)]
    journal_at: Option<JournalPlace>,
    /// Log file data: never (ordered; writeback: in no order with commits), always (data), or if it
    /// is not sequential (adaptive). For ext3, ext4 and Ordo's journals.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// With --mode data or adaptive: write data to its fixed location at the next sync of its file,
    /// as Linux 6 does, or by the writeback timer and when the journal is half full, as Linux 2.4
    /// does. With calls: a part of the journal, as 50%, whose use makes a checkpoint begin.
    #[arg(long = "checkpoint-at", value_name = "WHEN", default_value = "sync", value_parser = checkpoint_at)]
    checkpoint_at: CheckpointAt,
    /// Let each fsync be an fdatasync, which commits nothing for an inode of which only the times
    /// have changed. For ext3 and ext4. Needs calls, like the next five.
    #[arg(long)]
    fdatasync: bool,
    /// Let a commit contain only the changes of its caller's file.
    #[arg(long)]
    untangle: bool,
    /// Commit at this interval without being asked.
    #[arg(long = "commit-every", value_name = "SECONDS", value_parser = interval)]
    commit_every: Option<u64>,
    /// Let a commit wait for other callers, at most this many milliseconds.
    #[arg(long = "group-commit", value_name = "MILLISECONDS", value_parser = milliseconds)]
    group_commit: Option<u64>,
    /// The size of the journal.
    #[arg(long = "journal-size", value_name = "BYTES", value_parser = parse_bytes)]
    journal_size: Option<u64>,
    /// Put file data elsewhere: one block behind the other (packed), or evenly over the device
    /// (spread).
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,
    /// Send the journal writes of a transaction without waiting for its data. The commit block
    /// waits for both.
    #[arg(long)]
    overlap: bool,
    /// Log the bytes that changed instead of whole blocks.
    #[arg(long)]
    differential: bool,
    /// Flush: never (off), before and after each commit block (on), or before it, with the commit
    /// block sent with FUA (fua).
    #[arg(long, value_name = "HOW")]
    barriers: Option<Barriers>,
    /// Give the journal a disk of its own, of this model.
    #[arg(long = "journal-device", value_name = "MODEL", value_parser = crate::args::disk)]
    journal_device: Option<&'static Model>,
    /// Use another disk.
    #[arg(long, value_name = "MODEL", value_parser = crate::args::disk)]
    disk: Option<&'static Model>,
    /// Set the disk's write cache: with none, every write goes to the platter.
    #[arg(long, value_name = "CACHE")]
    cache: Option<Cache>,
}

/// A mode on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Writeback,
    Ordered,
    Data,
    Adaptive,
}

/// A layout on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Layout {
    Packed,
    Spread,
}

/// The time of checkpoints, on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CheckpointAt {
    Sync,
    Timer,
    /// Thousandths of the journal.
    Used(u64),
}

fn checkpoint_at(text: &str) -> Result<CheckpointAt, String> {
    let part = |text: &str| text.strip_suffix('%')?.parse::<f64>().ok();
    match text {
        "sync" => Ok(CheckpointAt::Sync),
        "timer" => Ok(CheckpointAt::Timer),
        _ => match part(text) {
            Some(part) if (1.0..=85.0).contains(&part) => {
                Ok(CheckpointAt::Used((part * 10.0) as u64))
            }
            _ => Err(format!("'{text}': use sync, timer, or a part of the journal from 1% to 85%")),
        },
    }
}

/// Nanoseconds of a number of units.
fn nanoseconds(text: &str, unit: f64, what: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number * unit <= 3.6e12 => Ok((number * unit) as u64),
        _ => Err(format!("'{text}': use {what} above 0, at most an hour")),
    }
}

fn interval(text: &str) -> Result<u64, String> {
    nanoseconds(text, 1e9, "seconds")
}

fn milliseconds(text: &str) -> Result<u64, String> {
    nanoseconds(text, 1e6, "milliseconds")
}

/// Barriers on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Barriers {
    Off,
    On,
    Fua,
}

/// A cache on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cache {
    None,
}

fn place(text: &str) -> Result<JournalPlace, String> {
    match text.strip_suffix('%') {
        Some(part) => match part.parse::<f64>() {
            Ok(part) if (0.0..=100.0).contains(&part) => {
                Ok(JournalPlace::Permille((part * 10.0) as u64))
            }
            _ => Err(format!("'{text}' is not a position on a disk; use 0% to 100%")),
        },
        None => parse_bytes(text).map(JournalPlace::Byte),
    }
}

impl Changes {
    /// The changes as a list.
    pub(super) fn list(&self) -> Vec<PlanChange> {
        let home = match self.checkpoint_at {
            CheckpointAt::Sync | CheckpointAt::Used(_) => change::Home::Sync,
            CheckpointAt::Timer => change::Home::Timer,
        };
        let mode = self.mode.map(|mode| match mode {
            Mode::Writeback => change::Mode::Writeback,
            Mode::Ordered => change::Mode::Ordered,
            Mode::Data => change::Mode::Data(home),
            Mode::Adaptive => change::Mode::Adaptive(home),
        });
        let barriers = self.barriers.map(|barriers| match barriers {
            Barriers::Off => change::Barriers::Off,
            Barriers::On => change::Barriers::On,
            Barriers::Fua => change::Barriers::Fua,
        });
        let used = match self.checkpoint_at {
            CheckpointAt::Used(part) => Some(PlanChange::CheckpointAt(part)),
            CheckpointAt::Sync | CheckpointAt::Timer => None,
        };
        let layout = self.layout.map(|layout| match layout {
            Layout::Packed => LayoutChange::Packed,
            Layout::Spread => LayoutChange::Spread,
        });
        [
            self.fdatasync.then_some(PlanChange::DataSync),
            self.untangle.then_some(PlanChange::Untangle),
            mode.map(PlanChange::Mode),
            self.differential.then_some(PlanChange::Differential),
            self.overlap.then_some(PlanChange::Overlap),
            barriers.map(PlanChange::Barriers),
            self.commit_every.map(PlanChange::CommitEvery),
            self.group_commit.map(PlanChange::GroupCommit),
            self.journal_size.map(PlanChange::JournalSize),
            used,
            layout.map(PlanChange::Layout),
            self.journal_at.map(PlanChange::JournalAt),
            self.disk.map(PlanChange::Disk),
            self.journal_device.map(PlanChange::JournalDevice),
            self.cache.map(|Cache::None| PlanChange::CacheOff),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
