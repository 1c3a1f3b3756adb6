//! What a run gives.

use ordo_sba::stats::ByClass;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Recovery;
use crate::workload::Phase;

/// Counts by the kind of block, in the order of [`ordo_sba::Class::ALL`], those of 0 left out. As JSON,
/// an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes(pub Vec<(&'static str, u64)>);

impl Writes {
    /// Counts since `before`, kind by kind.
    pub(super) fn since(&self, before: &Writes) -> Writes {
        let all = self.0.iter().map(|(kind, n)| (*kind, n - before.get(kind).min(*n)));
        Writes(all.filter(|(_, n)| *n > 0).collect())
    }

    pub(super) fn of(by: &ByClass, what: impl Fn(&ordo_sba::Counts) -> u64) -> Writes {
        let all = by.iter().map(|(class, counts)| (class.key(), what(counts)));
        Writes(all.filter(|(_, n)| *n > 0).collect())
    }

    /// The count of one kind.
    pub fn get(&self, kind: &str) -> u64 {
        self.0.iter().find(|(k, _)| *k == kind).map_or(0, |(_, n)| *n)
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, n)| n).sum()
    }
}

impl Serialize for Writes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (kind, n) in &self.0 {
            map.serialize_entry(kind, n)?;
        }
        map.end()
    }
}

/// A phase of the workload, with what it sent to the disk up to the beginning of the next one: what it
/// left in the cache included.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PhaseRow {
    /// The phase.
    #[serde(flatten)]
    pub phase: Phase,
    /// Writes, by the kind of block they begin with.
    pub writes: Writes,
    /// Writes that a task waited for.
    pub sync_waits: u64,
    /// Reads.
    pub reads: u64,
    /// Time in which the disk was busy, in seconds.
    pub disk_seconds: f64,
}

/// What went into a system's log.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LogRow {
    /// Operations that changed metadata.
    pub operations: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Of them, for each operation.
    pub bytes_per_operation: f64,
    /// Writes of the log.
    pub writes: u64,
    /// Writes of its superblock.
    pub checkpoints: u64,
    /// Times that blocks were written for the log's sake.
    pub forced_checkpoints: u64,
}

/// What an ordering that undoes and puts off had to do.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DependencyRow {
    /// Changes undone in what was written.
    pub undone: u64,
    /// The most memory that dependencies have taken, in bytes.
    pub memory_peak: u64,
    /// Steps that were put off until what they depend on was on disk.
    pub put_off: u64,
}

/// One system under one workload. Fields are added, never renamed.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// The system.
    pub system: String,
    /// The workload, as it can be asked for again.
    pub workload: String,
    /// Time that the application took: its phases together, in seconds.
    pub app_seconds: f64,
    /// Time until the disk held everything, in seconds: unmounting and emptying caches included.
    pub total_seconds: f64,
    /// Time in which the disk was busy, in seconds.
    pub disk_seconds: f64,
    /// Time in which the processor was busy, in seconds.
    pub cpu_seconds: f64,
    /// Requests to the disk: reads, writes and flushes.
    pub requests: u64,
    /// Writes, by the kind of block they begin with.
    pub writes: Writes,
    /// Writes that a task waited for.
    pub sync_waits: u64,
    /// Reads.
    pub reads: u64,
    /// Flushes of the disk's cache.
    pub flushes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written, by the kind of block.
    pub bytes_written_by_kind: Writes,
    /// Files that the workload made.
    pub files_made: u64,
    /// The workload's phases.
    pub phases: Vec<PhaseRow>,
    /// What went into the log, where there is one.
    pub log: Option<LogRow>,
    /// Blocks written in which something had to be undone: each has to be written again.
    pub rewritten: u64,
    /// What keeping dependencies took, where the ordering keeps any.
    pub dependencies: Option<DependencyRow>,
    /// What a power cut in the middle left to be done.
    pub recovery: Option<Recovery>,
    /// The disk model.
    pub disk: String,
    /// The processor model.
    pub cpu: String,
    /// What fixed every choice.
    pub seed: u64,
}

/// What a comparison gives.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Rows {
    /// One row a system and workload.
    pub rows: Vec<Row>,
}
