//! The present places of files' blocks: the place to which each block was last written.

use std::collections::BTreeMap;

/// For each file and first logical block, the length of the run, and the place of its first block.
#[derive(Debug, Default)]
pub(super) struct Places {
    runs: BTreeMap<(u64, u64), (u64, u64)>,
}

impl Places {
    /// The run that contains block `lbn` of a file.
    fn run(&self, ino: u64, lbn: u64) -> Option<(u64, u64, u64)> {
        let ((_, first), (len, block)) = self.runs.range((ino, 0)..=(ino, lbn)).next_back()?;
        (lbn - first < *len).then_some((*first, *len, *block))
    }

    /// The place of block `lbn` of a file.
    pub(super) fn at(&self, ino: u64, lbn: u64) -> Option<u64> {
        self.run(ino, lbn).map(|(first, _, block)| block + (lbn - first))
    }

    /// Sets the place of a file's blocks from `lbn` on; their previous places are given up.
    pub(super) fn set(&mut self, ino: u64, lbn: u64, len: u64, block: u64) {
        let Some(end) = lbn.checked_add(len).filter(|_| len > 0) else { return };
        self.clear(ino, lbn, end);
        let (mut first, mut all, mut start) = (lbn, len, block);
        if let Some((before, n, at)) = lbn.checked_sub(1).and_then(|last| self.run(ino, last))
            && at + n == block
        {
            (first, all, start) = (before, n + len, at);
        }
        if let Some((n, at)) = self.runs.get(&(ino, end)).copied()
            && at == block + len
        {
            self.runs.remove(&(ino, end));
            all += n;
        }
        self.runs.insert((ino, first), (all, start));
    }

    /// Removes a file's block from this place, if it is there.
    pub(super) fn gone(&mut self, ino: u64, lbn: u64, block: u64) {
        if self.at(ino, lbn) == Some(block) && lbn < u64::MAX {
            self.clear(ino, lbn, lbn + 1);
        }
    }

    fn clear(&mut self, ino: u64, from: u64, to: u64) {
        let start = self.run(ino, from).map_or(from, |(first, ..)| first);
        let hit: Vec<_> =
            self.runs.range((ino, start)..(ino, to)).map(|(key, run)| (key.1, *run)).collect();
        for (first, (len, block)) in hit {
            self.runs.remove(&(ino, first));
            if first < from {
                self.runs.insert((ino, first), (from - first, block));
            }
            if first + len > to {
                self.runs.insert((ino, to), (first + len - to, block + (to - first)));
            }
        }
    }

    /// The runs of a file in its order: first logical block, length, place.
    pub(super) fn of(&self, ino: u64) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let all = self.runs.range((ino, 0)..=(ino, u64::MAX));
        all.map(|((_, first), (len, block))| (*first, *len, *block))
    }

    /// Keeps, of all files but one, only blocks at live places.
    pub(super) fn keep(&mut self, but: u64, mut live: impl FnMut(u64) -> bool) {
        let all: Vec<_> = self.runs.iter().map(|(key, run)| (*key, *run)).collect();
        for ((ino, first), (len, block)) in all {
            for i in (0..len).filter(|i| ino != but && !live(block + i)) {
                self.clear(ino, first + i, first + i + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs that overlap, contain or touch each other, and removals, are compared with a map of
    /// single blocks.
    #[test]
    fn each_block_is_where_it_was_written_last() {
        let (mut places, mut map) = (Places::default(), BTreeMap::new());
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..4000 {
            let (ino, lbn, len, block) = (next(3), next(30), next(6), next(100));
            if round % 5 == 4 {
                let at = map.get(&(ino, lbn)).copied().unwrap_or(1000);
                places.gone(ino, lbn, at + next(2));
                if places.at(ino, lbn).is_none() {
                    map.remove(&(ino, lbn));
                }
            } else {
                places.set(ino, lbn, len, block);
                map.extend((0..len).map(|i| ((ino, lbn + i), block + i)));
            }
            for (ino, lbn) in (0..3).flat_map(|ino| (0..40).map(move |lbn| (ino, lbn))) {
                assert_eq!(places.at(ino, lbn), map.get(&(ino, lbn)).copied(), "round {round}");
            }
            let runs = (0..3).flat_map(|ino| places.of(ino)).map(|(_, len, _)| len).sum::<u64>();
            assert_eq!(runs, map.len() as u64);
        }
        places.keep(1, |block| block % 2 == 0);
        map.retain(|(ino, _), block| *ino == 1 || *block % 2 == 0);
        let runs = (0..3).flat_map(|ino| places.of(ino)).map(|(_, len, _)| len).sum::<u64>();
        assert_eq!(runs, map.len() as u64);
    }
}
