//! What a trace shows as a whole: traffic by kind, what the journal costs, how transactions go.

use crate::journal::Transaction;
use crate::kind::Class;
use crate::stats::{Counts, Stats};
use crate::watch::Watch;

/// Least, middle, greatest of many numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Spread {
    /// The least.
    pub least: u64,
    /// As many are below as above.
    pub median: u64,
    /// The greatest.
    pub greatest: u64,
}

impl Spread {
    fn of(numbers: impl Iterator<Item = u64>) -> Spread {
        let mut all: Vec<u64> = numbers.collect();
        all.sort_unstable();
        let (Some(least), Some(greatest)) = (all.first(), all.last()) else {
            return Spread::default();
        };
        Spread { least: *least, median: all[all.len() / 2], greatest: *greatest }
    }
}

/// What transactions did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Transactions {
    /// Those of which anything was seen.
    pub seen: u64,
    /// Those whose commit was seen.
    pub committed: u64,
    /// Copies of blocks, of those committed.
    pub copies: Spread,
    /// Records of changes, of those committed.
    pub records: Spread,
    /// Bytes written to the journal, of those committed.
    pub bytes: Spread,
    /// Copies of file data.
    pub data_copies: u64,
    /// Blocks taken back.
    pub revoked: u64,
    /// Checksums that were wrong.
    pub bad_checksums: u64,
    /// Commits that no flush keeps apart from the last copy before them: the order of the two is the disk's.
    pub unordered_commits: u64,
    /// Requests from a transaction's first to its commit.
    pub requests_to_commit: Spread,
    /// Transactions of which some block was later written where it belongs.
    pub checkpointed: u64,
    /// Of copies and records, those that ended with such a write: the others were overtaken by a newer one, or
    /// taken back, or are still to come.
    pub checkpointed_blocks: u64,
    /// Requests from a commit to the last such write.
    pub requests_to_checkpoint: Spread,
    /// Time from a transaction's first request to its commit, in nanoseconds; zeros without times.
    pub nanos_to_commit: Spread,
    /// Time from a commit to the last write of a block where it belongs, in nanoseconds; zeros without times.
    pub nanos_to_checkpoint: Spread,
}

impl Transactions {
    fn of(all: &[Transaction]) -> Transactions {
        let done = || all.iter().filter_map(|t| Some((t, t.commit?)));
        let home = || done().filter_map(|(t, commit)| Some((t, commit, t.checkpoint?)));
        Transactions {
            seen: all.len() as u64,
            committed: done().count() as u64,
            copies: Spread::of(done().map(|(t, _)| t.copies)),
            records: Spread::of(done().map(|(t, _)| t.records)),
            bytes: Spread::of(done().map(|(t, _)| t.bytes)),
            data_copies: all.iter().map(|t| t.data_copies).sum(),
            revoked: all.iter().map(|t| t.revoked).sum(),
            bad_checksums: all.iter().map(|t| t.bad_checksums).sum(),
            // What is in one request with its commit cannot come apart from it by a flush.
            unordered_commits: done()
                .filter(|(t, commit)| t.copies > 0 && commit.epoch == t.last.epoch)
                .count() as u64,
            requests_to_commit: Spread::of(
                done().map(|(t, commit)| commit.request.saturating_sub(t.first.request)),
            ),
            checkpointed: home().count() as u64,
            checkpointed_blocks: all.iter().map(|t| t.checkpointed).sum(),
            requests_to_checkpoint: Spread::of(
                home().map(|(_, commit, end)| end.request.saturating_sub(commit.request)),
            ),
            nanos_to_commit: Spread::of(
                done().map(|(t, commit)| commit.nanos.saturating_sub(t.first.nanos)),
            ),
            nanos_to_checkpoint: Spread::of(
                home().map(|(_, commit, end)| end.nanos.saturating_sub(commit.nanos)),
            ),
        }
    }
}

/// A trace as a whole.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Analysis {
    /// The file system.
    pub system: &'static str,
    /// Traffic by kind.
    #[serde(flatten)]
    pub stats: Stats,
    /// What was written to the journal.
    pub journal: Counts,
    /// What was written to fixed locations.
    pub fixed: Counts,
    /// Of that, metadata.
    pub fixed_metadata: Counts,
    /// Bytes written for each byte of file data that was written to its fixed location; `None` without any.
    pub bytes_per_data_byte: Option<f64>,
    /// Copies in the journal whose transaction nobody could tell.
    pub strays: u64,
    /// What transactions did; all zeros without a journal.
    pub transactions: Transactions,
}

impl Analysis {
    /// What a watcher has seen so far.
    pub fn of(watch: &Watch) -> Analysis {
        let stats = watch.finish();
        let (mut journal, mut fixed, mut fixed_metadata) =
            (Counts::default(), Counts::default(), Counts::default());
        for (class, counts) in stats.writes.iter() {
            if class.is_journal() {
                journal.add(counts);
                continue;
            }
            fixed.add(counts);
            if class.is_metadata() {
                fixed_metadata.add(counts);
            }
        }
        let (all, data) = (stats.writes.total().bytes, stats.writes[Class::FileData].bytes);
        Analysis {
            system: watch.system(),
            journal,
            fixed,
            fixed_metadata,
            bytes_per_data_byte: (data > 0).then(|| all as f64 / data as f64),
            strays: watch.strays(),
            transactions: watch.transactions(Transactions::of),
            stats,
        }
    }
}
