//! The index of a directory in memory: the place of each name, and the free space for new ones.
//!
//! The index is built from the directory's blocks on first use, and dropped when memory runs short.
//! A look-up takes the same time among a thousand entries as among a million.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

use super::format::CHUNK;

/// The unit in which free space is counted, in bytes: a chunk has 0 to 128 units.
const UNIT: usize = 4;
const UNITS_MAX: usize = CHUNK / UNIT;

/// The hash by which a name is found. Two names may have the same hash, so the entry's own name
/// must be compared too.
pub(crate) fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}

/// The places of names and of free space.
#[derive(Default)]
pub struct DirIndex {
    /// For each hash of a name, the entry's first byte in the directory.
    places: FxHashMap<u64, u64>,
    /// Names whose hash is in `places` already.
    twins: Vec<(u64, u64)>,
    /// The largest free piece in each chunk, in units.
    free_space: Vec<u8>,
    /// Chunks by their largest free piece. A list may still have chunks whose free space has
    /// changed since.
    by_free_space: Vec<Vec<u32>>,
    /// The sizes for which `by_free_space` has chunks: bit n for n units.
    sizes: [u64; 3],
    /// The end of the directory's blocks, if it is before the directory's size.
    pub(crate) hole: Option<u64>,
}

impl DirIndex {
    /// The number of names.
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
        if self.free_space.len() <= chunk {
            self.free_space.resize(chunk + 1, u8::MAX);
        }
        if usize::from(self.free_space[chunk]) == largest {
            return;
        }
        self.free_space[chunk] = largest as u8;
        if largest > 0 {
            if self.by_free_space.is_empty() {
                self.by_free_space.resize(UNITS_MAX + 1, Vec::new());
            }
            self.by_free_space[largest].push(chunk as u32);
            self.sizes[largest / 64] |= 1 << (largest % 64);
        }
    }

    /// Notes a new block of free chunks, if it lies at byte `start`, where the hole at the
    /// directory's end began.
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

    /// The chunk whose largest free piece fits `bytes` most tightly.
    pub(crate) fn chunk_with_space(&mut self, bytes: usize) -> Option<u64> {
        let mut units = bytes.div_ceil(UNIT);
        while let Some(size) = self.next_size(units) {
            let chunks = &mut self.by_free_space[size];
            while let Some(chunk) = chunks.last() {
                if usize::from(self.free_space[*chunk as usize]) == size {
                    return Some(u64::from(*chunk));
                }
                chunks.pop();
            }
            self.sizes[size / 64] &= !(1 << (size % 64));
            units = size + 1;
        }
        None
    }

    /// The smallest size from `units` up for which `by_free_space` has chunks.
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

    /// The tightest chunk is chosen, a stale size is not trusted, and a full directory has none.
    #[test]
    fn free_space_is_found_by_size() {
        let mut index = DirIndex::default();
        index.note_chunk(0, 512);
        index.note_chunk(1, 40);
        assert_eq!(index.chunk_with_space(28), Some(1));
        assert_eq!(index.chunk_with_space(44), Some(0));
        index.note_chunk(1, 4);
        assert_eq!(index.chunk_with_space(28), Some(0));
        index.note_chunk(0, 0);
        assert_eq!(index.chunk_with_space(12), None);
    }
}
