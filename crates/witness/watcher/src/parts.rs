//! The findings of a watcher in one part of a recording.
//!
//! A part is counted as far as its own requests show it. What later parts show about it, and what
//! it shows about earlier ones, is kept apart: the sum of all parts is then what the whole
//! recording would give.

use crate::analysis::WatchFindings;
use crate::decoder::DecoderState;
use crate::journal::{PartTransactions, Transaction};
use crate::stats::{ByClass, Stats, TrafficCounts};

pub use crate::pending::Earlier;

/// The ends of the last write and of the last read before a part, in bytes: a request that begins
/// there is sequential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The end of the last write.
    pub write: Option<u64>,
    /// The end of the last read.
    pub read: Option<u64>,
}

/// The findings in a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartFindings {
    /// The part by itself. Its transactions are those that began in it.
    pub found: WatchFindings,
    /// Counts of earlier parts that turned out to be of another kind.
    pub earlier: Earlier,
    /// The number of blocks of earlier parts that were settled in this one.
    pub settled_earlier: u64,
    /// The number of blocks of the recording so far whose kind is a guess.
    pub unclaimed_so_far: u64,
    /// The number of copies of the recording so far whose transaction is not known.
    pub orphans_so_far: u64,
    /// The number of transactions that began before the part.
    pub first_transaction: u64,
    /// Transactions that began before the part and changed in it, each with its number in the
    /// recording.
    pub continued: Vec<(u64, Transaction)>,
    /// The ends of the last requests before the part.
    pub ends: Ends,
}

/// The state at the end of the last part.
#[derive(Debug, Default)]
pub(crate) struct PartSoFar {
    stats: Stats,
    orphans: u64,
    given_up: u64,
    ends: Ends,
}

impl PartSoFar {
    /// Ends a part with the statistics of the recording so far.
    pub(crate) fn end(
        &mut self,
        system: &str,
        stats: &Stats,
        state: &mut DecoderState,
        ends: Ends,
    ) -> PartFindings {
        let unclaimed_so_far = state.pending.unclaimed();
        let pending = state.pending.end_part();
        let given_up = state.pending.given_up();
        let PartTransactions { first, began, continued } = state.journal.end_part();
        let orphans = state.journal.orphan_blocks();
        let mut own = since(stats, &self.stats, &pending.earlier);
        own.settled = own.settled.saturating_sub(pending.settled_earlier);
        own.unclaimed = pending.unclaimed + given_up.saturating_sub(self.given_up);
        let found = WatchFindings {
            system: system.to_owned(),
            stats: own,
            orphan_blocks: orphans.saturating_sub(self.orphans),
            transactions: began,
        };
        let ends = std::mem::replace(&mut self.ends, ends);
        (self.stats, self.orphans, self.given_up) = (stats.clone(), orphans, given_up);
        PartFindings {
            found,
            earlier: pending.earlier,
            settled_earlier: pending.settled_earlier,
            unclaimed_so_far,
            orphans_so_far: orphans,
            first_transaction: first,
            continued,
            ends,
        }
    }
}

fn less(all: &TrafficCounts, before: &TrafficCounts) -> TrafficCounts {
    all.without(before).unwrap_or_default()
}

fn less_by_class(all: &ByClass, before: &ByClass) -> ByClass {
    let mut left = ByClass::default();
    for (class, counts) in all.iter() {
        left[class] = less(counts, &before[class]);
    }
    left
}

/// The statistics since `before`, without the counts of earlier parts that have moved since.
fn since(all: &Stats, before: &Stats, earlier: &Earlier) -> Stats {
    let mut own = all.clone();
    for ((_, was, kind), counts) in earlier {
        own.writes[*kind] = less(&own.writes[*kind], counts);
        own.writes[*was].add(counts);
        if let Some(sum) = own.recounted.get_mut(&(*was, *kind)) {
            *sum = less(sum, counts);
        }
    }
    own.writes = less_by_class(&own.writes, &before.writes);
    own.reads = less_by_class(&own.reads, &before.reads);
    for (pair, counts) in &before.recounted {
        if let Some(sum) = own.recounted.get_mut(pair) {
            *sum = less(sum, counts);
        }
    }
    own.recounted.retain(|_, counts| *counts != TrafficCounts::default());
    for (why, count) in &before.unknown {
        if let Some(sum) = own.unknown.get_mut(why) {
            *sum -= (*sum).min(*count);
        }
    }
    own.unknown.retain(|_, count| *count > 0);
    own.flushes -= before.flushes;
    own.discards -= before.discards;
    own.settled -= before.settled;
    own.without_contents -= before.without_contents;
    own
}
