//! Notes of writes that were counted by a guess and can still be counted otherwise.
//!
//! A block may be written before anything on the device points to it. It may also be written after its file gave it
//! up in memory only; then its contents cannot be that file's. Each such write is noted here under the kind by which
//! it was counted. A pointer to the block settles the note, as far as the contents can be what the pointer says.

use rustc_hash::FxHashMap;

use super::contents::Looks;
use crate::kind::Class;
use crate::stats::{Stats, TrafficCounts};

/// Notes kept at most; beyond this, all guesses stay as they were counted.
const MOST: usize = 1 << 20;

/// A write of fragments of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) start: u64,
    pub(super) frags: u64,
    /// The kind by which the write was counted.
    pub(super) class: Class,
    pub(super) looks: Looks,
    pub(super) counts: TrafficCounts,
    /// The share of the newest write.
    pub(super) newest: TrafficCounts,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Notes by block number.
    notes: FxHashMap<u64, Vec<Note>>,
    len: usize,
    shift: u32,
}

impl Ledger {
    pub(super) fn new(shift: u32) -> Ledger {
        Ledger { notes: FxHashMap::default(), len: 0, shift }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of notes. Writes of one block that look alike share a note.
    pub(super) fn unclaimed(&self) -> u64 {
        self.len as u64
    }

    /// Notes a write.
    pub(super) fn note(&mut self, new: Note) {
        if self.len >= MOST {
            self.notes.clear();
            self.len = 0;
        }
        let notes = self.notes.entry(new.start >> self.shift).or_default();
        let key = |n: &Note| (n.start, n.class, n.looks);
        match notes.iter_mut().find(|n| key(n) == key(&new)) {
            Some(note) => {
                note.counts.add(&new.counts);
                note.newest = new.counts;
                note.frags = note.frags.max(new.frags);
            }
            None => {
                notes.push(new);
                self.len += 1;
            }
        }
    }

    /// Settles the notes about fragments of one block that are now known to be of `class`.
    pub(super) fn settle(&mut self, start: u64, frags: u64, class: Class, stats: &mut Stats) {
        if self.len == 0 {
            return;
        }
        let block = start >> self.shift;
        let Some(notes) = self.notes.get_mut(&block) else { return };
        let before = notes.len();
        notes.retain(|note| {
            let apart = note.start + note.frags <= start || start + frags <= note.start;
            if !apart {
                // A write that reaches beyond the extent was an earlier owner's.
                let within = note.start >= start && note.start + note.frags <= start + frags;
                if note.class != class && within && note.looks.can_be(class) {
                    // Where contents look like no kind of metadata, older writes may have been of other files that
                    // were removed before any pointer was written. So only the newest write is counted again.
                    let whose = match note.looks {
                        Looks::Other => &note.newest,
                        _ => &note.counts,
                    };
                    let moved = stats.reclassify(whose, note.class, class);
                    debug_assert!(moved, "what was noted was counted");
                }
                stats.settled += 1;
            }
            apart
        });
        self.len -= before - notes.len();
        if notes.is_empty() {
            self.notes.remove(&block);
        }
    }
}
