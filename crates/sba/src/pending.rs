//! Writes of unclaimed blocks: counted by what they look like, until a pointer shows what they are.

use rustc_hash::FxHashMap;

use crate::decoder::Claim;
use crate::kind::Class;
use crate::stats::{Stats, TrafficCounts};

/// The most notes that are kept; beyond that, the oldest guesses stay as they were counted.
const MOST: usize = 1 << 20;

/// For each block, the kind and traffic under which its writes are counted.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    notes: FxHashMap<u64, (Class, TrafficCounts)>,
    /// Guesses that were dropped because there were too many, and stay as they were counted.
    given_up: u64,
}

impl Pending {
    /// Notes a write of `blocks` blocks. Bytes are shared among the blocks; all other counts go to the first.
    pub(crate) fn note(&mut self, block: u64, blocks: u64, class: Class, counts: TrafficCounts) {
        if self.notes.len() >= MOST {
            self.given_up += std::mem::take(&mut self.notes).len() as u64;
        }
        let each = counts.bytes / blocks.max(1);
        for i in 0..blocks {
            let share = match i {
                0 => {
                    TrafficCounts { blocks: 1, bytes: counts.bytes - each * (blocks - 1), ..counts }
                }
                _ => TrafficCounts { blocks: 1, bytes: each, ..TrafficCounts::default() },
            };
            match self.notes.get_mut(&(block + i)) {
                Some((was, sum)) if *was == class => sum.add(&share),
                _ => {
                    self.notes.insert(block + i, (class, share));
                }
            }
        }
    }

    /// Counts the noted writes of these blocks under their true kind.
    pub(crate) fn settle(&mut self, claim: &Claim, stats: &mut Stats) {
        let end = claim.block.saturating_add(claim.blocks);
        // Sums do not depend on order, so the order of the map does not matter.
        if claim.blocks <= self.notes.len() as u64 {
            for block in claim.block..end {
                if let Some(note) = self.notes.remove(&block) {
                    settle_one(note, claim.class, stats);
                }
            }
            return;
        }
        self.notes.retain(|block, note| {
            let gone = (claim.block..end).contains(block);
            if gone {
                settle_one(*note, claim.class, stats);
            }
            !gone
        });
    }

    /// The number of blocks whose kind is a guess.
    pub(crate) fn unclaimed(&self) -> u64 {
        self.given_up + self.notes.len() as u64
    }
}

fn settle_one((class, counts): (Class, TrafficCounts), is: Class, stats: &mut Stats) {
    if class != is {
        let moved = stats.reclassify(&counts, class, is);
        debug_assert!(moved, "what was noted was counted");
    }
    stats.settled += 1;
}
