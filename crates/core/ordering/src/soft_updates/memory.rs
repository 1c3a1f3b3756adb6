//! The memory that dependencies take, and how it is freed.

use ordo_cache::BufKey;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::block::{BlockDeps, BlockLists, Image};
use super::dotdot::DotDots;
use super::graph::Graph;
use super::inode::Chunk;
use super::node::Id;
use crate::DeferredFree;

/// The memory of a hash map's entry, in bytes. The map keeps a share of vacant entries, and a
/// control byte for each.
pub(super) const fn in_map(payload: usize) -> usize {
    payload + payload / 4 + 1
}

/// The memory of a change in its block's list, with the spare capacity of a growing list, in bytes.
const IN_LIST: usize = size_of::<(u32, Id)>() * 3 / 2;

impl Graph {
    /// The graph's memory, in bytes: now, and at most so far.
    pub(super) fn memory(&self) -> (usize, usize) {
        (self.bytes(), self.peak)
    }

    /// Updates the highest value of the graph's memory.
    pub(super) fn note_peak(&mut self) {
        self.peak = self.peak.max(self.bytes());
    }

    /// The memory of everything that is in the graph, in bytes. It falls when nodes end, so a bound
    /// can be held.
    fn bytes(&self) -> usize {
        let list = size_of::<SmallVec<[u64; 1]>>();
        self.changes.bytes()
            + self.written.bytes()
            + self.frees.bytes()
            + self.edges.bytes()
            + self.placed.bytes()
            + self.spilled
            + self.inodes.bytes()
            + self.blocks.len() * in_map(size_of::<(BufKey, BlockDeps)>())
            + self.listed * size_of::<BlockLists>()
            + self.changes.len() * IN_LIST
            + self.images * size_of::<Image>()
            + (self.names_by_parent.len() + self.blocks_by_parent.len())
                * in_map(size_of::<Id>() + list)
            + self.removed.len() * in_map(size_of::<(u64, (Id, Chunk))>())
            + self.removed_with.len() * in_map(size_of::<Id>() + list)
            + self.passed.len() * in_map(size_of::<(u64, SmallVec<[u64; 2]>)>())
            + self.filled.len() * in_map(size_of::<(BufKey, Id)>())
            + self.dotdots.bytes()
            + self.never_written.len() * in_map(size_of::<u64>())
            + self.moved.len() * size_of::<Id>()
            + self.ready.len() * size_of::<DeferredFree>()
    }

    /// Frees memory when the graph has no nodes.
    pub(super) fn release_memory(&mut self) {
        /// The number of entries of a map that stay allocated.
        const KEPT: usize = 1024;
        /// The least number of nodes made since the last release. After fewer, a release is not
        /// worth the work.
        const WORTH: u64 = 4 * KEPT as u64;
        let nodes = self.changes.len() + self.written.len() + self.frees.len();
        if nodes > 0 || self.made - self.released < WORTH {
            return;
        }
        self.released = self.made;
        self.changes.release();
        self.written.release();
        self.frees.release();
        self.edges.release();
        self.placed.release();
        self.inodes.release(KEPT);
        self.dotdots = DotDots::default();
        self.passed.clear();
        self.passed_max = 0;
        fn shrink<K: std::hash::Hash + Eq, V>(map: &mut FxHashMap<K, V>) {
            map.shrink_to(KEPT);
        }
        shrink(&mut self.blocks);
        shrink(&mut self.names_by_parent);
        shrink(&mut self.blocks_by_parent);
        shrink(&mut self.removed);
        shrink(&mut self.removed_with);
        shrink(&mut self.passed);
        shrink(&mut self.filled);
        self.never_written.shrink_to(KEPT);
        self.ready.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Ids;
    use super::super::rollback::Rollback;
    use super::*;

    /// Memory is freed when all nodes have ended, and the number of an ended node never stands for
    /// another. Would catch memory that is never freed, and numbers that are used twice.
    #[test]
    fn ended_nodes_take_no_memory_and_their_numbers_stay_unused() {
        let mut graph = Graph::default();
        let empty = graph.memory().0;
        let mut old = Vec::new();
        for round in 0..3 {
            for n in 0..5000 {
                let needs = Ids::from_slice(&[graph.block_written(BufKey::file(n + 1, 0))]);
                let at = (BufKey::device(n), 0);
                old.push(graph.add_change(at, n + 1, Rollback::Entry(0), needs, false));
            }
            assert!(graph.memory().0 > empty + 5000 * 150, "{}", graph.memory().0);
            for (n, id) in old[round * 5000..].iter().enumerate() {
                let n = n as u64;
                let written = graph.block_written(BufKey::file(n + 1, 0));
                graph.blocks.remove(&BufKey::file(n + 1, 0));
                graph.end(written);
                graph.end(*id);
                graph.tidy(BufKey::device(n));
            }
            graph.release_memory();
            assert_eq!(graph.memory().0, empty, "round {round}");
            assert!(graph.blocks.capacity() <= 2048);
        }
        let id = graph.block_written(BufKey::device(1));
        assert!(graph.is_live(id) && old.iter().all(|id| !graph.is_live(*id)));
    }
}
