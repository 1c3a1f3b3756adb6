//! Changes of a file system, made to the plan of its traffic.
//!
//! - [`place`]: the place and the disk of the journal.
//! - [`timing`]: the waits between requests, and flushes.
//! - [`mode`]: the contents of the journal: ordered, data, adaptive.
//! - [`layout`]: the places of file data.
//! - [`differential`]: bytes that changed instead of whole blocks.

pub mod differential;
pub mod layout;
pub mod mode;
pub mod place;
pub mod timing;

use std::fmt;

use ordo_annotate::Pieces;
use ordo_block::model::Model;
use ordo_trace::RequestContents;

use crate::journal::{self, JournalSpan};
use crate::plan::Plan;
use crate::play::{PlayDisk, PlayStage};
pub use layout::LayoutChange;

/// The object of a change: a plan, the disks it is played on, and the trace that it comes from.
#[derive(Clone)]
pub struct World<'a> {
    /// The requests.
    pub plan: Plan,
    /// The disks.
    pub stage: PlayStage,
    /// The contents of the trace's requests.
    pub contents: &'a dyn RequestContents,
    /// The known pieces of the device before the trace.
    pub start: &'a Pieces,
    /// The file system's name, as a watcher gives it.
    pub system: &'a str,
    /// Whether the trace has no flush, as a kernel's has on a disk without a volatile cache.
    pub lacks_flushes: bool,
}

/// The place for a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalPlace {
    /// A part of the device in thousandths: 500 is its middle.
    Permille(u64),
    /// A byte of the device.
    Byte(u64),
}

/// The way in which a file system journals file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Data is written at its fixed location by the fsync of its file, in no order with
    /// transactions (`data=writeback`).
    Writeback,
    /// Data is written at its fixed location before the transaction that points to it
    /// (`data=ordered`).
    Ordered,
    /// Data is written into the journal too (`data=journal`).
    Data(Home),
    /// Each transaction in the better way: ordered if its data is sequential, otherwise data.
    Adaptive(Home),
}

/// When data that is in the journal is written at its fixed location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// At the next sync, before its transaction.
    Sync,
    /// By a timer, or when the journal is full.
    Timer,
}

/// The way in which the order of journal writes is kept on a disk with a volatile cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barriers {
    /// Not at all: no flush, no FUA.
    Off,
    /// A flush before the commit block, and one behind it.
    On,
    /// A flush before the commit block, which is written with FUA.
    Fua,
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlanChange {
    /// The journal lies elsewhere on the same disk.
    JournalAt(JournalPlace),
    /// The journal has a disk of its own.
    JournalDevice(&'static Model),
    /// Journaling of file data.
    Mode(Mode),
    /// The writes of a transaction to the journal do not wait for its data; the commit block waits
    /// for both.
    Overlap,
    /// The journal has the bytes that changed instead of whole blocks.
    Differential,
    /// Flushes and FUA.
    Barriers(Barriers),
    /// A commit has the changes of its caller's file alone.
    Untangle,
    /// Each fsync is an fdatasync.
    DataSync,
    /// Commits that nobody asks for come at this interval, in nanoseconds.
    CommitEvery(u64),
    /// A commit waits for other callers, at most this many nanoseconds.
    GroupCommit(u64),
    /// The journal has this many bytes.
    JournalSize(u64),
    /// A checkpoint begins when so many thousandths of the journal are used.
    CheckpointAt(u64),
    /// File data lies elsewhere.
    Layout(LayoutChange),
    /// Another disk.
    Disk(&'static Model),
    /// The disk's write cache is off: a write is complete when it is on the platter.
    CacheOff,
}

impl fmt::Display for PlanChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanChange::JournalAt(JournalPlace::Permille(part)) => {
                write!(f, "journal-at {}%", *part as f64 / 10.0)
            }
            PlanChange::JournalAt(JournalPlace::Byte(byte)) => write!(f, "journal-at {byte}"),
            PlanChange::JournalDevice(model) => write!(f, "journal-device {}", model.name),
            PlanChange::Mode(Mode::Ordered) => f.write_str("mode ordered"),
            PlanChange::Mode(Mode::Data(_)) => f.write_str("mode data"),
            PlanChange::Mode(Mode::Adaptive(_)) => f.write_str("mode adaptive"),
            PlanChange::Overlap => f.write_str("overlap"),
            PlanChange::Differential => f.write_str("differential"),
            PlanChange::Barriers(Barriers::Off) => f.write_str("barriers off"),
            PlanChange::Barriers(Barriers::On) => f.write_str("barriers on"),
            PlanChange::Barriers(Barriers::Fua) => f.write_str("barriers fua"),
            PlanChange::Mode(Mode::Writeback) => f.write_str("mode writeback"),
            PlanChange::Untangle => f.write_str("untangle"),
            PlanChange::DataSync => f.write_str("fdatasync"),
            PlanChange::CommitEvery(ns) => write!(f, "commit-every {} s", *ns as f64 / 1e9),
            PlanChange::GroupCommit(ns) => write!(f, "group-commit {} ms", *ns as f64 / 1e6),
            PlanChange::JournalSize(bytes) => write!(f, "journal-size {bytes}"),
            PlanChange::CheckpointAt(part) => write!(f, "checkpoint-at {}%", *part as f64 / 10.0),
            PlanChange::Layout(LayoutChange::Packed) => f.write_str("layout packed"),
            PlanChange::Layout(LayoutChange::Spread) => f.write_str("layout spread"),
            PlanChange::Disk(model) => write!(f, "disk {}", model.name),
            PlanChange::CacheOff => f.write_str("cache off"),
        }
    }
}

/// The name of a set of changes, which are made one after the other.
pub fn name(changes: &[PlanChange]) -> String {
    match changes {
        [] => "unchanged".into(),
        all => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The reason why a change means nothing for a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{change}: {why}")]
pub struct Refused {
    /// The change.
    pub change: String,
    /// The reason.
    pub why: String,
}

impl PlanChange {
    /// Whether the change depends on which request waited for which.
    pub fn is_of_waits(&self) -> bool {
        matches!(
            self,
            PlanChange::Overlap | PlanChange::Mode(_) | PlanChange::Barriers(Barriers::Fua)
        )
    }

    /// Whether the change decides which requests there are, so that only a playback of the
    /// programs' calls shows it.
    pub fn needs_calls(&self) -> bool {
        matches!(
            self,
            PlanChange::Untangle
                | PlanChange::DataSync
                | PlanChange::CommitEvery(_)
                | PlanChange::GroupCommit(_)
                | PlanChange::JournalSize(_)
                | PlanChange::CheckpointAt(_)
                | PlanChange::Mode(Mode::Writeback)
        )
    }

    /// Whether the change is one of disks and places alone: each request stays, and goes elsewhere
    /// or takes another time.
    pub fn is_of_places(&self) -> bool {
        matches!(
            self,
            PlanChange::Disk(_)
                | PlanChange::CacheOff
                | PlanChange::JournalAt(_)
                | PlanChange::JournalDevice(_)
                | PlanChange::Layout(_)
        )
    }

    /// Makes the change.
    ///
    /// # Errors
    /// The change means nothing for this trace.
    pub fn apply(&self, world: &mut World<'_>) -> Result<(), Refused> {
        let done = match self {
            PlanChange::JournalAt(at) => place::journal_at(world, *at),
            PlanChange::JournalDevice(model) => place::journal_device(world, model),
            PlanChange::Mode(mode) => mode::change(world, *mode),
            PlanChange::Overlap => timing::overlap(world),
            PlanChange::Differential => differential::change(world),
            PlanChange::Barriers(barriers) => timing::barriers(world, *barriers),
            PlanChange::Disk(model) => place::disk(world, model),
            PlanChange::CacheOff => timing::cache_off(world),
            PlanChange::Layout(to) => layout::change(world, *to),
            PlanChange::Untangle
            | PlanChange::DataSync
            | PlanChange::CommitEvery(_)
            | PlanChange::GroupCommit(_)
            | PlanChange::JournalSize(_)
            | PlanChange::CheckpointAt(_) => Err(NEEDS_CALLS.into()),
        };
        done.map_err(|why| Refused { change: self.to_string(), why })
    }
}

/// The reason why a change of who commits what, and when, cannot be made to requests.
pub const NEEDS_CALLS: &str =
    "which requests there are depends on the programs' calls, and these are not played";

/// The reason why the waits between requests cannot be changed.
pub(crate) const NO_TIMES: &str = "the trace has no times, so what waited for what is not known; record with `ordo trace run`, or import a blktrace";

/// The reason why a place or a cache has no meaning if the disk is not known.
pub(crate) const NO_MODEL: &str = "the trace does not say on which disk model it was recorded, so neither addresses nor caches have a time; name the model, or change the disk";

/// A model's time is virtual, and so it is no disk of a stage with a real one.
fn no_model_beside_real(world: &World<'_>) -> Result<(), String> {
    match world.stage.disks[0].0 {
        PlayDisk::Real(_) => {
            Err("a disk model has virtual time, and this playback is on a real device".into())
        }
        PlayDisk::Model(_) | PlayDisk::Recorded(_) => Ok(()),
    }
}

/// The journal of a trace, or the reason why there is nothing to change.
fn journal_of(world: &World<'_>) -> Result<JournalSpan, String> {
    journal::span(world.contents, &world.plan).ok_or_else(|| {
        format!("the trace has no write to a journal; its file system is {}", world.system)
    })
}
