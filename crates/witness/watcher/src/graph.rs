//! The graph of pointers: roots, nodes, and the runs of blocks that these give to files. The graph
//! is the same for every format; a [`Reader`] knows how to read a node.
//!
//! A claim belongs to the root or node that made it, and only that root or node can give it up. So
//! when entries move from one node to another, the order in which the two nodes are written does
//! not matter.

use rustc_hash::FxHashMap;

use crate::decoder::{Claim, DecoderState, Owner};
use crate::kind::Class;
use crate::runs::{Role, Run, Runs};

/// The most unclaimed nodes that are kept: possible nodes without a pointer to them.
const ORPHANS_MAX: usize = 4096;
/// A claim of more blocks than this searches the maps of nodes, instead of looking up each block.
const MANY: u64 = 64;

/// A format's way to read nodes.
pub(crate) trait Reader {
    /// The facts that are needed to read a node, such as its level or tree.
    type Tag: Copy + PartialEq + std::fmt::Debug;

    /// The entries of a node; empty if the bytes make no sense. An entry that is a node must be
    /// lower than the node itself.
    fn node(&self, tag: Self::Tag, bytes: &[u8]) -> Vec<Entry<Self::Tag>>;

    /// Whether an unclaimed block could be a node.
    fn could_be_node(&self, bytes: &[u8]) -> bool;
}

/// An entry of a node: consecutive blocks, or one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry<T> {
    /// The first block on the device.
    pub(crate) start: u64,
    /// The number of blocks.
    pub(crate) len: u32,
    /// The number of levels below; 0 for contents.
    pub(crate) height: u8,
    pub(crate) class: Class,
    pub(crate) ino: u64,
    pub(crate) role: Role,
    /// The tag with which to read the entry, if it is a node.
    pub(crate) node: Option<T>,
}

#[derive(Debug)]
struct Node<T> {
    /// The root or node that points to this one.
    by: u64,
    tag: T,
    height: u8,
    /// `None` until the node's contents are seen.
    entries: Option<Box<[Entry<T>]>>,
}

/// A node to which no pointer leads: not yet, or no longer.
#[derive(Debug)]
enum OrphanNode<T> {
    Raw(Box<[u8]>),
    Read(T, Box<[Entry<T>]>),
}

/// Entries in the order of the device. Adjacent entries of contents are merged.
#[derive(Debug)]
pub(crate) struct Entries<T>(Vec<Entry<T>>);

impl<T: Copy + PartialEq> Entries<T> {
    pub(crate) fn new() -> Entries<T> {
        Entries(Vec::new())
    }

    /// Adds an entry. The last entry is extended if the blocks follow it.
    pub(crate) fn add(&mut self, new: Entry<T>) {
        if let Some(last) = self.0.last_mut()
            && let (Role::Data { lbn }, Role::Data { lbn: next }) = (last.role, new.role)
            && last.start + u64::from(last.len) == new.start
            && lbn + u64::from(last.len) == next
            && (last.ino, last.class, last.node, new.node) == (new.ino, new.class, None, None)
            && let Some(len) = last.len.checked_add(new.len)
        {
            last.len = len;
            return;
        }
        self.0.push(new);
    }

    pub(crate) fn into_vec(self) -> Vec<Entry<T>> {
        self.0
    }
}

/// Every root and node that points, and every block that is pointed to.
#[derive(Debug)]
pub(crate) struct Graph<R: Reader> {
    pub(crate) reader: R,
    pub(crate) runs: Runs,
    roots: FxHashMap<u64, Box<[Entry<R::Tag>]>>,
    nodes: FxHashMap<u64, Node<R::Tag>>,
    orphan_blocks: FxHashMap<u64, OrphanNode<R::Tag>>,
}

/// The identity of a root among claimants. A node's identity is its block.
pub(crate) fn root_id(number: u64) -> u64 {
    number | 1 << 63
}

impl<R: Reader> Graph<R> {
    pub(crate) fn new(reader: R) -> Graph<R> {
        Graph {
            reader,
            runs: Runs::default(),
            roots: FxHashMap::default(),
            nodes: FxHashMap::default(),
            orphan_blocks: FxHashMap::default(),
        }
    }

    /// Nodes that are pointed to but have not been seen, in order.
    pub(crate) fn unread(&self) -> Vec<u64> {
        let unread = self.nodes.iter().filter(|(_, n)| n.entries.is_none());
        let mut all: Vec<u64> = unread.map(|(block, _)| *block).collect();
        all.sort_unstable();
        all
    }

    /// Whether this block was kept as a possible node.
    pub(crate) fn has_orphan(&self, block: u64) -> bool {
        self.orphan_blocks.contains_key(&block)
    }

    /// Replaces the entries of the root `number`.
    pub(crate) fn set_root(
        &mut self,
        number: u64,
        new: Vec<Entry<R::Tag>>,
        state: &mut DecoderState,
    ) {
        let by = root_id(number);
        let new = sorted(new);
        if self.roots.get(&by).map_or(&[][..], |old| old) == &new[..] {
            return;
        }
        let old = match new.is_empty() {
            true => self.roots.remove(&by),
            false => self.roots.insert(by, new.clone()),
        };
        self.change(by, &old.unwrap_or_default(), &new, state);
    }

    /// The entries of the root `number`.
    pub(crate) fn root(&self, number: u64) -> &[Entry<R::Tag>] {
        self.roots.get(&root_id(number)).map_or(&[], |entries| entries)
    }

    /// Takes in a node that is written: its entries replace those that it had.
    pub(crate) fn node_written(&mut self, block: u64, bytes: &[u8], state: &mut DecoderState) {
        let Some(node) = self.nodes.get_mut(&block) else { return };
        let height = node.height;
        let mut new = self.reader.node(node.tag, bytes);
        new.retain(|e| e.height < height);
        let new = sorted(new);
        if node.entries.as_ref() == Some(&new) {
            return;
        }
        let old = node.entries.replace(new.clone()).unwrap_or_default();
        self.change(block, &old, &new, state);
    }

    /// Takes in an unclaimed block that is written. A possible node is kept.
    pub(crate) fn orphan_written(&mut self, block: u64, bytes: &[u8]) {
        if !self.reader.could_be_node(bytes) {
            if !self.orphan_blocks.is_empty() {
                self.orphan_blocks.remove(&block);
            }
            return;
        }
        self.keep(block, OrphanNode::Raw(bytes.into()));
    }

    fn keep(&mut self, block: u64, orphan_block: OrphanNode<R::Tag>) {
        if self.orphan_blocks.len() >= ORPHANS_MAX {
            self.orphan_blocks.clear();
        }
        self.orphan_blocks.insert(block, orphan_block);
    }

    fn change(
        &mut self,
        by: u64,
        old: &[Entry<R::Tag>],
        new: &[Entry<R::Tag>],
        state: &mut DecoderState,
    ) {
        // Both lists are in the order of the device.
        let gone = |entry: &Entry<R::Tag>, among: &[Entry<R::Tag>]| {
            let near = among.partition_point(|e| e.start < entry.start);
            !among[near..].iter().take_while(|e| e.start == entry.start).any(|e| e == entry)
        };
        for entry in old.iter().filter(|e| gone(e, new)) {
            self.release(entry, by);
        }
        for entry in new.iter().filter(|e| gone(e, old)) {
            self.give(entry, by, false, state);
        }
    }

    fn release(&mut self, entry: &Entry<R::Tag>, by: u64) {
        self.runs.release(entry.start, entry.len.into(), by);
        if entry.node.is_none() || self.nodes.get(&entry.start).is_none_or(|node| node.by != by) {
            return;
        }
        let Some(Node { tag, entries: Some(entries), .. }) = self.nodes.remove(&entry.start) else {
            return;
        };
        // Heights fall at each step, so the recursion ends.
        entries.iter().for_each(|below| self.release(below, entry.start));
        // A tree that grows gives its nodes a new parent, so the node is kept for that one.
        self.keep(entry.start, OrphanNode::Read(tag, entries));
    }

    /// Gives an entry's blocks to the root or node `by`. `is_old` says that the pointer comes from
    /// kept contents of a node.
    fn give(&mut self, entry: &Entry<R::Tag>, by: u64, is_old: bool, state: &mut DecoderState) {
        let Entry { start, len, height, class, ino, role, node } = *entry;
        let len = u64::from(len);
        let orphan_block = node.and_then(|tag| Some((tag, self.orphan_blocks.remove(&start)?)));
        // Another node may still claim this node, which then stays the same and only changes its
        // parent.
        let same = self.nodes.get(&start).filter(|n| Some(n.tag) == node && n.entries.is_some());
        let moved = same.is_some().then(|| self.nodes.remove(&start)).flatten();
        self.forget(start, len);
        self.runs.claim(Run { start, len, by, ino, class, role });
        let first = match role {
            Role::Data { lbn } => Some(lbn),
            Role::Map { .. } | Role::Attributes => None,
        };
        let owner = (ino != 0).then_some(Owner { ino, first, packed: false });
        state.claims.push(Claim { block: start, blocks: len, class, owner, is_old });
        let Some(tag) = node else { return };
        if let Some(same) = moved {
            self.nodes.insert(start, Node { by, ..same });
            return;
        }
        let entries: Option<Box<[_]>> = match orphan_block {
            Some((tag, OrphanNode::Raw(bytes))) => {
                let mut read = self.reader.node(tag, &bytes);
                read.retain(|e| e.height < height);
                Some(sorted(read))
            }
            // The blocks of the old node may belong to other nodes by now. Until the node is
            // written again, only entries with unclaimed blocks count.
            Some((tag, OrphanNode::Read(was, entries))) if was == tag => {
                let free = |e: &&Entry<_>| !self.runs.any(e.start, e.len.into());
                Some(entries.iter().filter(free).copied().collect())
            }
            _ => None,
        };
        self.nodes.insert(start, Node { by, tag, height, entries: entries.clone() });
        for below in entries.iter().flatten().filter(|e| e.height < height) {
            self.give(below, start, true, state);
        }
    }

    /// Forgets the nodes and unclaimed blocks in a range that belongs to something else now.
    fn forget(&mut self, start: u64, len: u64) {
        let range = start..start.saturating_add(len);
        let mut gone = Vec::new();
        if len <= MANY {
            gone.extend(range.clone().filter(|block| self.nodes.contains_key(block)));
            range.for_each(|block| drop(self.orphan_blocks.remove(&block)));
        } else {
            gone.extend(self.nodes.keys().filter(|block| range.contains(block)));
            self.orphan_blocks.retain(|block, _| !range.contains(block));
            gone.sort_unstable();
        }
        for block in gone {
            if let Some(Node { entries: Some(entries), .. }) = self.nodes.remove(&block) {
                entries.iter().for_each(|below| self.release(below, block));
            }
        }
    }
}

fn sorted<T: Copy + PartialEq>(mut entries: Vec<Entry<T>>) -> Box<[Entry<T>]> {
    entries.sort_by_key(|e| e.start);
    entries.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format for tests: each byte of a node is the number of a block, and heights fall by one.
    #[derive(Debug)]
    struct Bytes;

    fn entry(block: u8, height: u8) -> Entry<u8> {
        let class = if height > 0 { Class::Indirect } else { Class::FileData };
        let role = match height {
            0 => Role::Data { lbn: 0 },
            level => Role::Map { level, extents: false, lbn: 0 },
        };
        let node = (height > 0).then_some(height);
        Entry { start: block.into(), len: 1, height, class, ino: 1, role, node }
    }

    impl Reader for Bytes {
        type Tag = u8;
        fn node(&self, tag: u8, bytes: &[u8]) -> Vec<Entry<u8>> {
            bytes.iter().map(|block| entry(*block, tag - 1)).collect()
        }
        fn could_be_node(&self, bytes: &[u8]) -> bool {
            bytes.iter().any(|b| *b != 0)
        }
    }

    fn used(graph: &Graph<Bytes>) -> Vec<u64> {
        (0..100).filter(|block| graph.runs.at(*block).is_some()).collect()
    }

    /// Entries move from one node to another, in either order of writing. A tree grows by a level,
    /// its new root written before or after the pointer to it. Nothing may be lost on the way.
    #[test]
    fn nothing_is_lost_when_entries_move_between_nodes() {
        for turned in [false, true] {
            let mut state = DecoderState::default();
            let mut graph = Graph::new(Bytes);
            graph.set_root(1, vec![entry(10, 1), entry(11, 1)], &mut state);
            graph.node_written(10, &[20, 21, 22], &mut state);
            graph.node_written(11, &[23], &mut state);
            let mut moves = [(10u64, &[20u8, 21][..]), (11, &[22, 23])];
            if turned {
                moves.reverse();
            }
            for (block, bytes) in moves {
                graph.node_written(block, bytes, &mut state);
            }
            assert_eq!(used(&graph), [10, 11, 20, 21, 22, 23], "turned: {turned}");
            if turned {
                graph.orphan_written(12, &[10, 11]);
            }
            graph.set_root(1, vec![entry(12, 2)], &mut state);
            if !turned {
                graph.node_written(12, &[10, 11], &mut state);
            }
            assert_eq!(used(&graph), [10, 11, 12, 20, 21, 22, 23], "turned: {turned}");
            // The new root is split, and its sibling is written first.
            graph.set_root(1, vec![entry(12, 2), entry(13, 2)], &mut state);
            graph.node_written(13, &[11], &mut state);
            graph.node_written(12, &[10], &mut state);
            assert_eq!(used(&graph), [10, 11, 12, 13, 20, 21, 22, 23], "turned: {turned}");
            graph.set_root(1, vec![], &mut state);
            assert_eq!(used(&graph), [] as [u64; 0], "turned: {turned}");
        }
    }

    /// A node's entries move to its neighbour, the node is freed, and its block is used for a new
    /// node. The pointer to the new node is written before its contents, as copies in a journal may
    /// be. The old node's entries stay the neighbour's. Catches old entries that are claimed again
    /// and then given up; seen on a ReiserFS in `data=journal`.
    #[test]
    fn a_new_node_in_a_freed_block_does_not_claim_the_old_entries() {
        let mut state = DecoderState::default();
        let mut graph = Graph::new(Bytes);
        graph.set_root(1, vec![entry(10, 2)], &mut state);
        graph.node_written(10, &[11, 12], &mut state);
        graph.node_written(11, &[20], &mut state);
        graph.node_written(12, &[21, 22], &mut state);
        graph.node_written(11, &[20, 21, 22], &mut state);
        graph.node_written(10, &[11], &mut state);
        assert_eq!(used(&graph), [10, 11, 20, 21, 22]);
        graph.node_written(10, &[11, 12], &mut state);
        graph.node_written(12, &[23], &mut state);
        assert_eq!(used(&graph), [10, 11, 12, 20, 21, 22, 23]);
    }

    /// A node that points to itself, to a node above it, or to another node's child: the walk ends,
    /// and nothing is read with a tag that is not its own.
    #[test]
    fn nodes_that_point_in_a_circle_end() {
        let mut state = DecoderState::default();
        let mut graph = Graph::new(Bytes);
        graph.set_root(1, vec![entry(10, 3)], &mut state);
        graph.node_written(10, &[10], &mut state);
        graph.node_written(10, &[11], &mut state);
        graph.node_written(11, &[10], &mut state);
        graph.node_written(10, &[11], &mut state);
        graph.set_root(2, vec![entry(11, 3), entry(10, 1)], &mut state);
        graph.node_written(11, &[10, 11], &mut state);
        assert!(graph.nodes.len() <= 2);
        graph.set_root(1, vec![], &mut state);
        graph.set_root(2, vec![], &mut state);
        assert!(graph.runs.iter().all(|run| run.by != root_id(1) && run.by != root_id(2)));
    }
}
