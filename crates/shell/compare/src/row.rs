//! The results of a run.

use ordo_watcher::stats::ByClass;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::RecoveryTime;
use ordo_workload::Phase;

/// Counts by the kind of block, in the order of [`ordo_watcher::Class::ALL`], without those of 0.
/// In JSON it is an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes(pub Vec<(&'static str, u64)>);

impl Writes {
    /// The counts since `before`, kind by kind.
    pub(super) fn since(&self, before: &Writes) -> Writes {
        let all = self.0.iter().map(|(kind, n)| (*kind, n - before.get(kind).min(*n)));
        Writes(all.filter(|(_, n)| *n > 0).collect())
    }

    pub(super) fn of(by: &ByClass, what: impl Fn(&ordo_watcher::TrafficCounts) -> u64) -> Writes {
        let all = by.iter().map(|(class, counts)| (class.key(), what(counts)));
        Writes(all.filter(|(_, n)| *n > 0).collect())
    }

    /// The count of one kind.
    pub fn get(&self, kind: &str) -> u64 {
        self.0.iter().find(|(k, _)| *k == kind).map_or(0, |(_, n)| *n)
    }

    /// The count of all kinds together.
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

/// A phase of the workload, with its requests to the disk up to the beginning of the next phase.
/// They include the writes of blocks that the phase left in the cache.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PhaseRow {
    /// The phase.
    #[serde(flatten)]
    pub phase: Phase,
    /// Writes, by the kind of their first block.
    pub writes: Writes,
    /// The number of writes that a task waited for.
    pub sync_waits: u64,
    /// The number of reads.
    pub reads: u64,
    /// The busy time of the disk, in seconds.
    pub disk_seconds: f64,
    /// The number of bytes written.
    pub bytes_written: u64,
}

/// Counters of a system's log.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LogRow {
    /// The number of operations that changed metadata.
    pub operations: u64,
    /// The number of bytes of records.
    pub bytes: u64,
    /// Bytes of records for each operation.
    pub bytes_per_operation: f64,
    /// The number of writes of the log.
    pub writes: u64,
    /// The number of writes of the log's superblock.
    pub checkpoints: u64,
    /// Checkpoints that were forced because the log was short of space.
    pub forced_checkpoints: u64,
}

/// The ageing of a system before its workload, by [`ordo_workload::age`].
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct AgedRow {
    /// The profile of its files.
    pub profile: String,
    /// The share of the space that was in use at the end, from 0 to 1.
    pub utilisation: f64,
    /// The number of times that the space was written.
    pub overwrites: f64,
    /// The files that were there at the end.
    pub files: u64,
    /// The layout score when the file system was first full, from 0 to 1.
    pub score_before: Option<f64>,
    /// The layout score at the end.
    pub score_after: Option<f64>,
}

/// The work of the cleaner of a log.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct CleanerRow {
    /// The policy by which the cleaner chose segments.
    pub policy: &'static str,
    /// The number of segments that were cleaned.
    pub segments: u64,
    /// The segments among them that were cleaned while the file system was idle.
    pub idle_segments: u64,
    /// Live bytes that were moved.
    pub moved_bytes: u64,
    /// The number of bytes that the cleaner read.
    pub read_bytes: u64,
    /// Passes: each cleans several segments and ends with a checkpoint.
    pub passes: u64,
    /// The time for which operations waited for the cleaner, in seconds.
    pub waited_seconds: f64,
    /// Checkpoints, including those that the cleaner did not ask for.
    pub checkpoints: u64,
}

/// Counters of an ordering that rolls changes back and defers frees.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DependencyRow {
    /// The number of rollbacks in written images.
    #[serde(rename = "undone")]
    pub rolled_back: u64,
    /// The most memory that dependencies have taken, in bytes.
    pub memory_peak: u64,
    /// Frees that were deferred until their prerequisites were on disk.
    #[serde(rename = "put_off")]
    pub deferred_frees: u64,
}

/// The fsyncs of a run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct FsyncRow {
    /// Their number.
    pub count: u64,
    /// The median of their waits, in seconds.
    pub median_seconds: f64,
    /// The longest wait, in seconds.
    pub longest_seconds: f64,
}

impl FsyncRow {
    /// The row of these waits, in nanoseconds; `None` of none.
    pub(super) fn of(waits: &[u64]) -> Option<FsyncRow> {
        let mut waits = waits.to_vec();
        waits.sort_unstable();
        let seconds = |ns: u64| ns as f64 / 1e9;
        Some(FsyncRow {
            count: waits.len() as u64,
            median_seconds: seconds(*waits.get(waits.len() / 2)?),
            longest_seconds: seconds(*waits.last()?),
        })
    }
}

/// The results of one system under one workload. Fields are added, but never renamed.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ComparisonRow {
    /// The system.
    pub system: String,
    /// The workload, in the form in which the command takes it.
    pub workload: String,
    /// The application's time: all phases together, in seconds.
    pub app_seconds: f64,
    /// The time until the disk had everything, in seconds, with the unmount and the emptying of
    /// caches.
    pub total_seconds: f64,
    /// The busy time of the disk, in seconds.
    pub disk_seconds: f64,
    /// The busy time of the processor, in seconds.
    pub cpu_seconds: f64,
    /// The number of requests to the disk: reads, writes and flushes.
    pub requests: u64,
    /// Writes, by the kind of their first block.
    pub writes: Writes,
    /// The number of writes that a task waited for.
    pub sync_waits: u64,
    /// The number of reads.
    pub reads: u64,
    /// The number of flushes of the disk's cache.
    pub flushes: u64,
    /// The number of bytes written.
    pub bytes_written: u64,
    /// The number of bytes read.
    pub bytes_read: u64,
    /// Bytes written, by the kind of block.
    pub bytes_written_by_kind: Writes,
    /// The number of bytes that the program wrote, counted at its calls.
    pub own_bytes: u64,
    /// Its fsyncs, if it made any.
    pub fsyncs: Option<FsyncRow>,
    /// The number of files that the workload made.
    pub files_made: u64,
    /// The workload's phases.
    pub phases: Vec<PhaseRow>,
    /// Counters of the log, if there is one.
    pub log: Option<LogRow>,
    /// The cleaner's work, if there is a cleaner.
    pub cleaner: Option<CleanerRow>,
    /// The ageing before the workload, if there was one.
    pub aged: Option<AgedRow>,
    /// Blocks that were written with changes rolled back. Each must be written again.
    pub rewritten: u64,
    /// Counters of dependencies, if the ordering keeps any.
    pub dependencies: Option<DependencyRow>,
    /// The value of the option that was swept, as in `disk=nvme`, if one was.
    pub sweep: Option<String>,
    /// The reason why the command failed, if it did: how it ended, and its last words.
    pub failed: Option<String>,
    /// The recovery after a power cut in the middle of the run.
    pub recovery: Option<RecoveryTime>,
    /// The disk model.
    pub disk: String,
    /// The processor model.
    pub cpu: String,
    /// The seed of every choice.
    pub seed: u64,
}

/// The results of a comparison.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Rows {
    /// One row for each system and workload.
    pub rows: Vec<ComparisonRow>,
}
