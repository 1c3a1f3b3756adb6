//! Writes of unclaimed blocks: counted by what they look like, until a pointer shows what they are.
//!
//! A block may be written before anything on the device points to it. It may also be written after
//! its file gave it up in memory only; then its contents cannot be that file's. Each such write is
//! noted here under the kind by which it was counted. A pointer to the block settles the note, as
//! far as the contents can be what the pointer says.
//!
//! Places are in the unit of claims ([`crate::decoder::Decoder::claim_shift`]). No note crosses a
//! block.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::kind::{Class, Looks};
use crate::stats::{Stats, TrafficCounts};

/// The most notes that are kept; beyond that, the oldest guesses stay as they were counted.
const MOST: usize = 1 << 20;

/// Writes of the same place in one block that look alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) start: u64,
    /// The length in units.
    pub(crate) len: u64,
    /// The kind by which the writes were counted.
    pub(crate) class: Class,
    pub(crate) looks: Looks,
    /// The part of the counts that moves to the true kind.
    pub(crate) counts: TrafficCounts,
}

/// The most earlier parts of a recording whose counts are kept for one note; older counts stay as
/// they are.
const PARTS_MAX: usize = 16;

/// Counts of earlier parts of a recording that moved from the first kind to the second, by part.
pub type Earlier = BTreeMap<(u32, Class, Class), TrafficCounts>;

/// A note that is kept. Its counts are those of the part of the recording in which it was written
/// last.
#[derive(Clone, Debug)]
struct Held {
    note: Note,
    part: u32,
    /// The counts of earlier parts.
    older: Vec<(u32, TrafficCounts)>,
}

/// The notes of one block, of which there is nearly always one.
type Notes = SmallVec<[Held; 1]>;

/// The notes of all blocks.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    notes: FxHashMap<u64, Notes>,
    /// The number of notes.
    len: usize,
    /// Guesses that were dropped, and stay as they were counted.
    given_up: u64,
    /// The number of units in a block, as a shift.
    shift: u32,
    moved: Moved,
}

/// The effects of settling to earlier parts of a recording.
#[derive(Clone, Debug, Default)]
struct Moved {
    /// The present part's number.
    part: u32,
    earlier: Earlier,
    /// The number of notes of earlier parts that were settled in this one.
    settled: u64,
}

/// The guesses at the end of a part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedPart {
    /// Counts of earlier parts that moved.
    pub(crate) earlier: Earlier,
    /// The number of notes of earlier parts that were settled in this one.
    pub(crate) settled_earlier: u64,
    /// The number of places written in this part whose kind is still a guess.
    pub(crate) unclaimed: u64,
}

impl Pending {
    /// Sets the number of units in a block, as a shift. Where it changes, the file system is
    /// another: the guesses so far stay as they were counted.
    pub(crate) fn set_block(&mut self, shift: u32) {
        if self.shift != shift {
            self.give_up();
            self.shift = shift;
        }
    }

    /// Drops all notes: the guesses so far stay as they were counted.
    pub(crate) fn give_up(&mut self) {
        self.given_up += self.len as u64;
        self.notes.clear();
        self.len = 0;
    }

    /// Drops all notes, and the number of those that were dropped before.
    pub(crate) fn restart(&mut self) {
        self.give_up();
        self.given_up = 0;
        self.moved = Moved::default();
    }

    /// Ends a part of the recording.
    pub(crate) fn end_part(&mut self) -> EndedPart {
        let part = self.moved.part;
        let next = Moved { part: part + 1, ..Moved::default() };
        let Moved { earlier, settled, .. } = std::mem::replace(&mut self.moved, next);
        let own = self.notes.values().flatten().filter(|held| held.part == part).count();
        EndedPart { earlier, settled_earlier: settled, unclaimed: own as u64 }
    }

    /// The number of notes that were dropped.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Whether there is no note.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a note is about one of the blocks that these units are in.
    pub(crate) fn has(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len.max(1)) - 1;
        self.len != 0
            && (start >> self.shift..=end >> self.shift).any(|b| self.notes.contains_key(&b))
    }

    /// Notes a write. Bytes are shared among its blocks; all other counts go to the first.
    pub(crate) fn note(&mut self, write: Note) {
        if self.len >= MOST {
            self.give_up();
        }
        let end = write.start + write.len;
        let (first, after) = (write.start >> self.shift, end.div_ceil(1 << self.shift));
        let counts = write.counts;
        let each = counts.bytes / (after - first).max(1);
        for block in first..after {
            let start = write.start.max(block << self.shift);
            let len = end.min((block + 1) << self.shift) - start;
            let counts = match block == first {
                true => {
                    let bytes = counts.bytes - each * (after - first - 1);
                    TrafficCounts { blocks: 1, bytes, ..counts }
                }
                false => TrafficCounts { blocks: 1, bytes: each, ..TrafficCounts::default() },
            };
            self.add(block, Note { start, len, counts, ..write });
        }
    }

    fn add(&mut self, block: u64, new: Note) {
        let notes = self.notes.entry(block).or_default();
        self.len -= notes.len();
        let key = |n: &Note| (n.start, n.class, n.looks);
        match notes.iter_mut().find(|held| key(&held.note) == key(&new)) {
            Some(held) => held.write_again(&new, self.moved.part),
            None => {
                if new.looks == Looks::Unjudged {
                    notes.retain(|held| {
                        (held.note.start, held.note.looks) != (new.start, new.looks)
                    });
                }
                notes.push(Held { note: new, part: self.moved.part, older: Vec::new() });
            }
        }
        self.len += notes.len();
    }

    /// Counts the noted writes of these units under their true kind.
    pub(crate) fn settle(&mut self, start: u64, len: u64, class: Class, stats: &mut Stats) {
        if self.len == 0 || len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        let blocks = start >> self.shift..=(end - 1) >> self.shift;
        if blocks.end() - blocks.start() < self.notes.len() as u64 {
            for block in blocks {
                let Some(notes) = self.notes.get_mut(&block) else { continue };
                self.len -= settle_block(notes, (start, end), class, (stats, &mut self.moved));
                if notes.is_empty() {
                    self.notes.remove(&block);
                }
            }
            return;
        }
        // Sums do not depend on order, so the order of the map does not matter.
        self.notes.retain(|block, notes| {
            if blocks.contains(block) {
                self.len -= settle_block(notes, (start, end), class, (stats, &mut self.moved));
            }
            !notes.is_empty()
        });
    }

    /// The number of notes and dropped notes: of places whose kind is a guess.
    pub(crate) fn unclaimed(&self) -> u64 {
        self.given_up + self.len as u64
    }
}

impl Held {
    /// Notes one more write that looks the same.
    fn write_again(&mut self, new: &Note, part: u32) {
        self.note.len = self.note.len.max(new.len);
        match new.looks {
            // Older writes may have been of other files, which were removed before any pointer was
            // written.
            Looks::Plain => {
                self.note.counts = new.counts;
                self.older.clear();
            }
            _ if self.part == part => self.note.counts.add(&new.counts),
            _ => {
                if self.older.len() >= PARTS_MAX {
                    self.older.remove(0);
                }
                self.older.push((self.part, self.note.counts));
                self.note.counts = new.counts;
            }
        }
        self.part = part;
    }

    /// Counts the note's writes under their true kind.
    fn reclassify(&self, class: Class, stats: &mut Stats, moved: &mut Moved) {
        let was = self.note.class;
        for (part, counts) in self.older.iter().chain([&(self.part, self.note.counts)]) {
            let done = stats.reclassify(counts, was, class);
            debug_assert!(done, "what was noted was counted");
            if *part != moved.part {
                moved.earlier.entry((*part, was, class)).or_default().add(counts);
            }
        }
    }
}

/// Settles the notes of a block about units from `start` to `end`. Returns their number.
fn settle_block(
    notes: &mut Notes,
    (start, end): (u64, u64),
    class: Class,
    (stats, moved): (&mut Stats, &mut Moved),
) -> usize {
    let before = notes.len();
    notes.retain(|held| {
        let note = &held.note;
        let apart = note.start + note.len <= start || end <= note.start;
        if !apart {
            // A write that reaches beyond the claim was an earlier owner's.
            let within = note.start >= start && note.start + note.len <= end;
            if note.class != class && within && note.looks.can_be(class) {
                held.reclassify(class, stats, moved);
            }
            stats.settled += 1;
            moved.settled += u64::from(held.part != moved.part);
        }
        apart
    });
    before - notes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(start: u64, len: u64, class: Class, looks: Looks) -> Note {
        let counts =
            TrafficCounts { requests: 1, blocks: len, bytes: len * 1024, ..Default::default() };
        Note { start, len, class, looks, counts }
    }

    /// Notes writes, counts them, settles claims, and returns the bytes counted as each of these
    /// kinds, the number of settled notes and of guesses that are left.
    fn run(
        shift: u32,
        writes: &[Note],
        claims: &[(u64, u64, Class)],
        kinds: [Class; 2],
    ) -> ([u64; 2], u64, u64) {
        let (mut pending, mut stats) = (Pending::default(), Stats::default());
        pending.set_block(shift);
        for write in writes {
            stats.writes[write.class].add(&write.counts);
            pending.note(*write);
        }
        let total = stats.writes.total().bytes;
        for (start, len, class) in claims {
            assert!(pending.has(*start, *len) || pending.is_empty());
            pending.settle(*start, *len, *class, &mut stats);
        }
        assert_eq!(stats.writes.total().bytes, total);
        (kinds.map(|kind| stats.writes[kind].bytes / 1024), stats.settled, pending.unclaimed())
    }

    /// A write of several blocks is settled block by block. A guess that replaces another leaves
    /// the first as it was counted.
    #[test]
    fn whole_blocks_are_settled_one_by_one() {
        let (data, directory) = (Class::FileData, Class::Directory);
        let writes = [write(4, 3, data, Looks::Unjudged), write(9, 1, data, Looks::Unjudged)];
        let claims = [(5, 1, directory), (0, 100, directory)];
        assert_eq!(run(0, &writes, &claims[..1], [data, directory]), ([3, 1], 1, 3));
        assert_eq!(run(0, &writes, &claims, [data, directory]), ([0, 4], 4, 0));
        let twice = |looks| [write(4, 1, data, looks), write(4, 1, Class::Indirect, looks)];
        let claim = [(4, 1, directory)];
        let of = |looks| run(0, &twice(looks), &claim, [data, directory]);
        assert_eq!(of(Looks::Unjudged), ([1, 1], 1, 0));
        assert_eq!(of(Looks::Any), ([0, 2], 2, 0), "zeros can be of any kind");
    }

    /// A write that reaches beyond the claim was another file's, and contents that cannot be of the
    /// claimed kind stay as they were counted. Of writes without a form of their own, only the
    /// newest moves.
    #[test]
    fn a_claim_takes_what_can_be_its_own() {
        let (data, directory) = (Class::FileData, Class::Directory);
        let kinds = [data, Class::Symlink];
        let link = |start, len| [(start, len, Class::Symlink)];
        let plain = |start, len| write(start, len, data, Looks::Plain);
        assert_eq!(run(3, &[plain(8, 2)], &link(8, 2), kinds), ([0, 2], 1, 0));
        assert_eq!(run(3, &[plain(8, 4)], &link(8, 2), kinds), ([4, 0], 1, 0));
        assert_eq!(run(3, &[plain(8, 2)], &link(10, 2), kinds), ([2, 0], 0, 1));
        assert_eq!(run(3, &[plain(8, 2), plain(8, 2)], &link(8, 2), kinds), ([2, 2], 1, 0));
        let zero = write(8, 2, data, Looks::Any);
        assert_eq!(run(3, &[zero, zero], &link(8, 2), kinds), ([0, 4], 1, 0));
        let looks = Looks::Like(directory);
        let names = write(8, 2, directory, looks);
        assert_eq!(run(3, &[names], &link(8, 2), [directory, Class::Symlink]), ([2, 0], 1, 0));
    }
}
