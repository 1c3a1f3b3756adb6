//! The summary of a trace: traffic by kind, the journal's cost, and the course of its transactions.

use crate::journal::Transaction;
use crate::kind::Class;
use crate::stats::{Stats, TrafficCounts};
use crate::watch::Watch;

/// Minimum, median and maximum of many numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Spread {
    /// The minimum.
    pub least: u64,
    /// The median.
    pub median: u64,
    /// The maximum.
    pub greatest: u64,
}

impl Spread {
    fn of(mut all: Vec<u64>) -> Spread {
        let (Some(least), Some(greatest)) = (all.iter().min(), all.iter().max()) else {
            return Spread::default();
        };
        let (least, greatest, middle) = (*least, *greatest, all.len() / 2);
        Spread { least, median: *all.select_nth_unstable(middle).1, greatest }
    }
}

/// Totals over transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Transactions {
    /// The number of transactions of which any write was seen.
    pub seen: u64,
    /// The number of transactions whose commit was seen.
    pub committed: u64,
    /// Copies of blocks, for each committed transaction.
    pub copies: Spread,
    /// Records of changes, for each committed transaction.
    pub records: Spread,
    /// Bytes written to the journal, for each committed transaction.
    pub bytes: Spread,
    /// The number of copies of file data.
    pub data_copies: u64,
    /// The number of blocks revoked.
    pub revoked: u64,
    /// Wrong checksums.
    pub bad_checksums: u64,
    /// The number of commits that no flush separates from the last copy before them: the disk may
    /// write the two in either order.
    pub unordered_commits: u64,
    /// Requests from a transaction's first request to its commit.
    pub requests_to_commit: Spread,
    /// The number of transactions of which a block was later written at its fixed location.
    pub checkpointed: u64,
    /// The copies and records that ended with such a checkpoint write. The others were superseded
    /// by a newer copy, revoked, or not checkpointed by the end of the trace.
    pub checkpointed_blocks: u64,
    /// Requests from a commit to the last checkpoint write.
    pub requests_to_checkpoint: Spread,
    /// Time from a transaction's first request to its commit, in nanoseconds; zeros without times.
    pub nanos_to_commit: Spread,
    /// Time from a commit to the last checkpoint write, in nanoseconds; zeros without times.
    pub nanos_to_checkpoint: Spread,
}

/// Transactions, reduced to the numbers that [`Transactions`] needs. A trace may be gathered in
/// several parts, in any order.
#[derive(Clone, Debug, Default)]
pub struct GatheredTransactions {
    /// All totals but the spreads.
    sums: Transactions,
    copies: Vec<u64>,
    records: Vec<u64>,
    bytes: Vec<u64>,
    requests_to_commit: Vec<u64>,
    nanos_to_commit: Vec<u64>,
    requests_to_checkpoint: Vec<u64>,
    nanos_to_checkpoint: Vec<u64>,
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl GatheredTransactions {
    /// Adds a transaction. A trace file may claim any number, so sums saturate.
    pub fn add(&mut self, t: &Transaction) {
        let sums = &mut self.sums;
        sums.seen += 1;
        add(&mut sums.data_copies, t.data_copies);
        add(&mut sums.revoked, t.revoked);
        add(&mut sums.bad_checksums, t.bad_checksums);
        add(&mut sums.checkpointed_blocks, t.checkpointed);
        let Some(commit) = t.commit else { return };
        sums.committed += 1;
        // Copies in one request with their commit count as unordered: no flush separates them.
        sums.unordered_commits += u64::from(t.copies > 0 && commit.epoch == t.last.epoch);
        self.copies.push(t.copies);
        self.records.push(t.records);
        self.bytes.push(t.bytes);
        self.requests_to_commit.push(commit.request.saturating_sub(t.first.request));
        self.nanos_to_commit.push(commit.nanos.saturating_sub(t.first.nanos));
        let Some(end) = t.checkpoint else { return };
        sums.checkpointed += 1;
        self.requests_to_checkpoint.push(end.request.saturating_sub(commit.request));
        self.nanos_to_checkpoint.push(end.nanos.saturating_sub(commit.nanos));
    }

    /// Adds the transactions of another part.
    pub fn join(&mut self, other: GatheredTransactions) {
        let (sums, more) = (&mut self.sums, &other.sums);
        sums.seen += more.seen;
        sums.committed += more.committed;
        sums.unordered_commits += more.unordered_commits;
        sums.checkpointed += more.checkpointed;
        add(&mut sums.data_copies, more.data_copies);
        add(&mut sums.revoked, more.revoked);
        add(&mut sums.bad_checksums, more.bad_checksums);
        add(&mut sums.checkpointed_blocks, more.checkpointed_blocks);
        self.copies.extend(other.copies);
        self.records.extend(other.records);
        self.bytes.extend(other.bytes);
        self.requests_to_commit.extend(other.requests_to_commit);
        self.nanos_to_commit.extend(other.nanos_to_commit);
        self.requests_to_checkpoint.extend(other.requests_to_checkpoint);
        self.nanos_to_checkpoint.extend(other.nanos_to_checkpoint);
    }

    /// The totals.
    pub fn finish(self) -> Transactions {
        Transactions {
            copies: Spread::of(self.copies),
            records: Spread::of(self.records),
            bytes: Spread::of(self.bytes),
            requests_to_commit: Spread::of(self.requests_to_commit),
            nanos_to_commit: Spread::of(self.nanos_to_commit),
            requests_to_checkpoint: Spread::of(self.requests_to_checkpoint),
            nanos_to_checkpoint: Spread::of(self.nanos_to_checkpoint),
            ..self.sums
        }
    }
}

impl Transactions {
    fn of(all: &[Transaction]) -> Transactions {
        let mut gathered = GatheredTransactions::default();
        all.iter().for_each(|t| gathered.add(t));
        gathered.finish()
    }
}

/// Everything that a watcher has found by the end of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchFindings {
    /// The file system's name, as `mount` has it.
    pub system: String,
    /// Traffic by kind.
    pub stats: Stats,
    /// The number of copies in the journal whose transaction is not known.
    pub orphan_blocks: u64,
    /// Transactions, in the order in which they were first seen.
    pub transactions: Vec<Transaction>,
}

impl WatchFindings {
    /// The findings of a watcher so far.
    pub fn of(watch: &Watch) -> WatchFindings {
        WatchFindings {
            system: watch.system().to_owned(),
            stats: watch.finish(),
            orphan_blocks: watch.orphan_blocks(),
            transactions: watch.transactions(<[Transaction]>::to_vec),
        }
    }
}

/// The summary of a trace.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Analysis {
    /// The file system's name.
    pub system: String,
    /// Traffic by kind.
    #[serde(flatten)]
    pub stats: Stats,
    /// Writes to the journal.
    pub journal: TrafficCounts,
    /// Writes to fixed locations: all but those to the journal and those that clear its space.
    pub fixed: TrafficCounts,
    /// Metadata among the writes to fixed locations.
    pub fixed_metadata: TrafficCounts,
    /// Write amplification: bytes written for each byte of file data at its fixed location; `None`
    /// without any.
    pub bytes_per_data_byte: Option<f64>,
    /// The number of copies in the journal whose transaction is not known.
    pub orphan_blocks: u64,
    /// Totals over transactions; all zeros without a journal.
    pub transactions: Transactions,
}

impl Analysis {
    /// The summary of what a watcher has seen so far.
    pub fn of(watch: &Watch) -> Analysis {
        let transactions = watch.transactions(Transactions::of);
        Analysis::with(
            watch.system().to_owned(),
            watch.finish(),
            watch.orphan_blocks(),
            transactions,
        )
    }

    /// The summary that follows from these counts.
    pub fn with(
        system: String,
        stats: Stats,
        orphan_blocks: u64,
        transactions: Transactions,
    ) -> Analysis {
        let (mut journal, mut fixed, mut fixed_metadata) =
            (TrafficCounts::default(), TrafficCounts::default(), TrafficCounts::default());
        for (class, counts) in stats.writes.iter() {
            match () {
                () if class.is_journal_traffic() => journal.add(counts),
                () if class.is_journal() => {}
                () => fixed.add(counts),
            }
            if class.is_journal() {
                continue;
            }
            if class.is_metadata() {
                fixed_metadata.add(counts);
            }
        }
        let (all, data) = (stats.writes.total().bytes, stats.writes[Class::FileData].bytes);
        Analysis {
            system,
            journal,
            fixed,
            fixed_metadata,
            bytes_per_data_byte: (data > 0).then(|| all as f64 / data as f64),
            orphan_blocks,
            transactions,
            stats,
        }
    }
}

impl From<&WatchFindings> for Analysis {
    fn from(found: &WatchFindings) -> Analysis {
        let transactions = Transactions::of(&found.transactions);
        Analysis::with(found.system.clone(), found.stats.clone(), found.orphan_blocks, transactions)
    }
}
