//! The index of a directory in memory: where each name is, and where there is room for another.
//!
//! Built from the directory's blocks on first use and dropped when memory runs short. It answers in
//! the same time for a thousand entries as for a million.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

use super::format::CHUNK;

/// Room is counted in units of 4 bytes: 0 to 128 in a chunk.
const UNIT: usize = 4;
const UNITS_MAX: usize = CHUNK / UNIT;

/// The hash a name is found by. Two names may share it: an entry found must be compared.
pub(crate) fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}

/// Where names are and where room is.
#[derive(Default)]
pub struct DirIndex {
    /// Name hash to the byte of the entry in the directory.
    places: FxHashMap<u64, u64>,
    /// Further names with a hash that is in `places` already.
    twins: Vec<(u64, u64)>,
    /// The largest free piece in each chunk, in units.
    room: Vec<u8>,
    /// Chunks by largest free piece. May name a chunk whose room has changed since.
    by_room: Vec<Vec<u32>>,
    /// Whether `by_room` has anything for a size: bit n for n units.
    sizes: [u64; 3],
    /// Where the directory's blocks end, if that is before its size.
    pub(crate) hole: Option<u64>,
}

impl DirIndex {
    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() + self.twins.len()
    }

    /// The places at which a name with this hash may be.
    pub(crate) fn candidates(&self, hash: u64) -> impl Iterator<Item = u64> + '_ {
        let twins = self.twins.iter().filter(move |(h, _)| *h == hash).map(|(_, place)| *place);
        self.places.get(&hash).copied().into_iter().chain(twins)
    }

    pub(crate) fn insert(&mut self, hash: u64, place: u64) {
        match self.places.entry(hash) {
            std::collections::hash_map::Entry::Vacant(e) => {
                e.insert(place);
            }
            std::collections::hash_map::Entry::Occupied(_) => self.twins.push((hash, place)),
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, place: u64) {
        let twin = self.twins.iter().position(|t| *t == (hash, place));
        if let Some(i) = twin {
            self.twins.swap_remove(i);
        } else if self.places.get(&hash) == Some(&place) {
            self.places.remove(&hash);
            if let Some(i) = self.twins.iter().position(|(h, _)| *h == hash) {
                let (_, place) = self.twins.swap_remove(i);
                self.places.insert(hash, place);
            }
        }
    }

    /// Notes the largest free piece of a chunk, in bytes.
    pub(crate) fn note_chunk(&mut self, chunk: u64, bytes: usize) {
        let largest = bytes / UNIT;
        let chunk = usize::try_from(chunk).expect("a directory's chunks fit in memory");
        if self.room.len() <= chunk {
            self.room.resize(chunk + 1, u8::MAX);
        }
        if usize::from(self.room[chunk]) == largest {
            return;
        }
        self.room[chunk] = largest as u8;
        if largest > 0 {
            if self.by_room.is_empty() {
                self.by_room.resize(UNITS_MAX + 1, Vec::new());
            }
            self.by_room[largest].push(chunk as u32);
            self.sizes[largest / 64] |= 1 << (largest % 64);
        }
    }

    /// A block with free chunks was made where the hole at the directory's end began, if it did at byte `start`.
    pub(crate) fn fill_hole(&mut self, start: u64, block: u64, size: u64) {
        if self.hole != Some(start) {
            return;
        }
        let end = start + block;
        self.hole = (end < size).then_some(end);
        for chunk in start / CHUNK as u64..end.min(size) / CHUNK as u64 {
            self.note_chunk(chunk, CHUNK);
        }
    }

    /// A chunk with a free piece of `bytes` or more: the tightest fit there is.
    pub(crate) fn chunk_with_room(&mut self, bytes: usize) -> Option<u64> {
        let mut units = bytes.div_ceil(UNIT);
        while let Some(size) = self.next_size(units) {
            let chunks = &mut self.by_room[size];
            while let Some(chunk) = chunks.last() {
                if usize::from(self.room[*chunk as usize]) == size {
                    return Some(u64::from(*chunk));
                }
                chunks.pop();
            }
            self.sizes[size / 64] &= !(1 << (size % 64));
            units = size + 1;
        }
        None
    }

    /// The smallest size from `units` up for which `by_room` has something.
    fn next_size(&self, units: usize) -> Option<usize> {
        (units / 64..self.sizes.len()).find_map(|word| {
            let skip = if word == units / 64 { units % 64 } else { 0 };
            let bits = self.sizes[word] >> skip << skip;
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names whose hashes collide are all found, and removing one leaves the others. Would catch an
    /// index that takes the hash for the name, which hostile names can exploit.
    #[test]
    fn names_with_one_hash_do_not_hide_each_other() {
        let mut index = DirIndex::default();
        for place in [12, 24, 36] {
            index.insert(7, place);
        }
        index.remove(7, 12);
        let mut left: Vec<_> = index.candidates(7).collect();
        left.sort_unstable();
        assert_eq!(left, [24, 36]);
        assert_eq!(index.len(), 2);
    }

    /// The tightest chunk is taken, a stale size is not believed, and a full directory says so.
    #[test]
    fn room_is_found_by_size() {
        let mut index = DirIndex::default();
        index.note_chunk(0, 512);
        index.note_chunk(1, 40);
        assert_eq!(index.chunk_with_room(28), Some(1));
        assert_eq!(index.chunk_with_room(44), Some(0));
        index.note_chunk(1, 4);
        assert_eq!(index.chunk_with_room(28), Some(0));
        index.note_chunk(0, 0);
        assert_eq!(index.chunk_with_room(12), None);
    }
}
