//! Who points to whom: roots, nodes, and the runs of blocks that these give to files. The same for every
//! format; a [`Reader`] knows how a node is to be read.
//!
//! A claim belongs to the root or node that made it, and only that one can give it up: when entries move from
//! one node to another, it does not matter which of the two passes first.

use rustc_hash::FxHashMap;

use crate::decoder::{Books, Claim};
use crate::kind::Class;
use crate::runs::{Role, Run, Runs};

/// Nodes kept that nothing points to.
const STRAYS_MAX: usize = 4096;
/// Claims of more blocks than this look through what is kept, not through the blocks.
const MANY: u64 = 64;

/// Who knows how nodes are read.
pub(crate) trait Reader {
    /// What must be known of a node to read it.
    type Tag: Copy + PartialEq + std::fmt::Debug;

    /// What a node points to: none where it makes no sense. Entries that are nodes must be lower than it.
    fn node(&self, tag: Self::Tag, bytes: &[u8]) -> Vec<Entry<Self::Tag>>;

    /// Whether a block that nothing points to could be a node.
    fn could_be_node(&self, bytes: &[u8]) -> bool;
}

/// Blocks that follow each other, or one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry<T> {
    /// The first on the device.
    pub(crate) start: u64,
    /// How many.
    pub(crate) len: u32,
    /// What is below it: 0 of contents.
    pub(crate) height: u8,
    pub(crate) class: Class,
    pub(crate) ino: u64,
    pub(crate) role: Role,
    /// How to read it, where it is a node.
    pub(crate) node: Option<T>,
}

#[derive(Debug)]
struct Node<T> {
    /// Who points to it.
    by: u64,
    tag: T,
    height: u8,
    /// `None` until it is seen.
    entries: Option<Box<[Entry<T>]>>,
}

/// A node that nothing points to, now or any more.
#[derive(Debug)]
enum Stray<T> {
    Raw(Box<[u8]>),
    Read(T, Box<[Entry<T>]>),
}

/// Entries in the order of the device; those of contents that follow each other are one.
#[derive(Debug)]
pub(crate) struct Entries<T>(Vec<Entry<T>>);

impl<T: Copy + PartialEq> Entries<T> {
    pub(crate) fn new() -> Entries<T> {
        Entries(Vec::new())
    }

    /// Adds blocks, to the last entry where they go on there.
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

/// Everything that points, and everything that is pointed to.
#[derive(Debug)]
pub(crate) struct Graph<R: Reader> {
    pub(crate) reader: R,
    pub(crate) runs: Runs,
    roots: FxHashMap<u64, Box<[Entry<R::Tag>]>>,
    nodes: FxHashMap<u64, Node<R::Tag>>,
    strays: FxHashMap<u64, Stray<R::Tag>>,
}

/// The number of a root among those that point; a node's is its block.
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
            strays: FxHashMap::default(),
        }
    }

    /// Nodes that are pointed to and were not seen, in order.
    pub(crate) fn unseen(&self) -> Vec<u64> {
        let unseen = self.nodes.iter().filter(|(_, n)| n.entries.is_none());
        let mut all: Vec<u64> = unseen.map(|(block, _)| *block).collect();
        all.sort_unstable();
        all
    }

    /// Whether this block was kept because it could be a node.
    pub(crate) fn has_stray(&self, block: u64) -> bool {
        self.strays.contains_key(&block)
    }

    /// What the root `number` points to now.
    pub(crate) fn set_root(&mut self, number: u64, new: Vec<Entry<R::Tag>>, books: &mut Books) {
        let by = root_id(number);
        let new = sorted(new);
        if self.roots.get(&by).map_or(&[][..], |old| old) == &new[..] {
            return;
        }
        let old = match new.is_empty() {
            true => self.roots.remove(&by),
            false => self.roots.insert(by, new.clone()),
        };
        self.change(by, &old.unwrap_or_default(), &new, books);
    }

    /// What the root `number` points to.
    pub(crate) fn root(&self, number: u64) -> &[Entry<R::Tag>] {
        self.roots.get(&root_id(number)).map_or(&[], |entries| entries)
    }

    /// A node passes: what it points to now is its own.
    pub(crate) fn node_written(&mut self, block: u64, bytes: &[u8], books: &mut Books) {
        let Some(node) = self.nodes.get_mut(&block) else { return };
        let height = node.height;
        let mut new = self.reader.node(node.tag, bytes);
        new.retain(|e| e.height < height);
        let new = sorted(new);
        if node.entries.as_ref() == Some(&new) {
            return;
        }
        let old = node.entries.replace(new.clone()).unwrap_or_default();
        self.change(block, &old, &new, books);
    }

    /// A block passes that nothing points to: keeps it where it could be a node.
    pub(crate) fn stray_written(&mut self, block: u64, bytes: &[u8]) {
        if !self.reader.could_be_node(bytes) {
            if !self.strays.is_empty() {
                self.strays.remove(&block);
            }
            return;
        }
        self.keep(block, Stray::Raw(bytes.into()));
    }

    fn keep(&mut self, block: u64, stray: Stray<R::Tag>) {
        if self.strays.len() >= STRAYS_MAX {
            self.strays.clear();
        }
        self.strays.insert(block, stray);
    }

    fn change(&mut self, by: u64, old: &[Entry<R::Tag>], new: &[Entry<R::Tag>], books: &mut Books) {
        // Both are in the order of the device.
        let gone = |entry: &Entry<R::Tag>, among: &[Entry<R::Tag>]| {
            let near = among.partition_point(|e| e.start < entry.start);
            !among[near..].iter().take_while(|e| e.start == entry.start).any(|e| e == entry)
        };
        for entry in old.iter().filter(|e| gone(e, new)) {
            self.release(entry, by);
        }
        for entry in new.iter().filter(|e| gone(e, old)) {
            self.give(entry, by, books);
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
        // Heights fall: this ends.
        entries.iter().for_each(|below| self.release(below, entry.start));
        // A tree that grows gives its nodes a new parent.
        self.keep(entry.start, Stray::Read(tag, entries));
    }

    fn give(&mut self, entry: &Entry<R::Tag>, by: u64, books: &mut Books) {
        let Entry { start, len, height, class, ino, role, node } = *entry;
        let len = u64::from(len);
        let stray = node.and_then(|tag| Some((tag, self.strays.remove(&start)?)));
        // Another node's that has not given it up yet: it is the same, with another parent.
        let same = self.nodes.get(&start).filter(|n| Some(n.tag) == node && n.entries.is_some());
        let moved = same.is_some().then(|| self.nodes.remove(&start)).flatten();
        self.forget(start, len);
        self.runs.claim(Run { start, len, by, ino, class, role });
        books.claims.push(Claim { block: start, blocks: len, class });
        let Some(tag) = node else { return };
        if let Some(same) = moved {
            self.nodes.insert(start, Node { by, ..same });
            return;
        }
        let entries: Option<Box<[_]>> = match stray {
            Some((tag, Stray::Raw(bytes))) => {
                let mut read = self.reader.node(tag, &bytes);
                read.retain(|e| e.height < height);
                Some(sorted(read))
            }
            // Its block may be used anew, and what it had be another's by now: its own claims wait until it passes.
            Some((tag, Stray::Read(was, entries))) if was == tag => {
                let free = |e: &&Entry<_>| !self.runs.any(e.start, e.len.into());
                Some(entries.iter().filter(free).copied().collect())
            }
            _ => None,
        };
        self.nodes.insert(start, Node { by, tag, height, entries: entries.clone() });
        for below in entries.iter().flatten().filter(|e| e.height < height) {
            self.give(below, start, books);
        }
    }

    /// Nodes and strays among blocks that belong to something else now.
    fn forget(&mut self, start: u64, len: u64) {
        let range = start..start.saturating_add(len);
        let mut gone = Vec::new();
        if len <= MANY {
            gone.extend(range.clone().filter(|block| self.nodes.contains_key(block)));
            range.for_each(|block| drop(self.strays.remove(&block)));
        } else {
            gone.extend(self.nodes.keys().filter(|block| range.contains(block)));
            self.strays.retain(|block, _| !range.contains(block));
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

    /// A node is a list of blocks, one a byte; heights fall by one.
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

    /// Entries move from one node to another, in either order of writing; a tree grows a level, its new root
    /// written before or after what points to it. Nothing may be lost on the way.
    #[test]
    fn a_claim_is_its_makers_own() {
        for turned in [false, true] {
            let mut books = Books::default();
            let mut graph = Graph::new(Bytes);
            graph.set_root(1, vec![entry(10, 1), entry(11, 1)], &mut books);
            graph.node_written(10, &[20, 21, 22], &mut books);
            graph.node_written(11, &[23], &mut books);
            let mut moves = [(10u64, &[20u8, 21][..]), (11, &[22, 23])];
            if turned {
                moves.reverse();
            }
            for (block, bytes) in moves {
                graph.node_written(block, bytes, &mut books);
            }
            assert_eq!(used(&graph), [10, 11, 20, 21, 22, 23], "turned: {turned}");
            if turned {
                graph.stray_written(12, &[10, 11]);
            }
            graph.set_root(1, vec![entry(12, 2)], &mut books);
            if !turned {
                graph.node_written(12, &[10, 11], &mut books);
            }
            assert_eq!(used(&graph), [10, 11, 12, 20, 21, 22, 23], "turned: {turned}");
            // The new root is split: its sibling passes first.
            graph.set_root(1, vec![entry(12, 2), entry(13, 2)], &mut books);
            graph.node_written(13, &[11], &mut books);
            graph.node_written(12, &[10], &mut books);
            assert_eq!(used(&graph), [10, 11, 12, 13, 20, 21, 22, 23], "turned: {turned}");
            graph.set_root(1, vec![], &mut books);
            assert_eq!(used(&graph), [] as [u64; 0], "turned: {turned}");
        }
    }

    /// A node's entries move to its neighbour, it is freed, and its block is used for a new node: the pointer to that passes
    /// before its contents, as copies in a journal may. What was the old node's stays the neighbour's. Catches old
    /// entries that are claimed anew and then given up; seen on a ReiserFS in `data=journal`.
    #[test]
    fn a_node_in_the_place_of_a_freed_one_takes_nothing_back() {
        let mut books = Books::default();
        let mut graph = Graph::new(Bytes);
        graph.set_root(1, vec![entry(10, 2)], &mut books);
        graph.node_written(10, &[11, 12], &mut books);
        graph.node_written(11, &[20], &mut books);
        graph.node_written(12, &[21, 22], &mut books);
        graph.node_written(11, &[20, 21, 22], &mut books);
        graph.node_written(10, &[11], &mut books);
        assert_eq!(used(&graph), [10, 11, 20, 21, 22]);
        graph.node_written(10, &[11, 12], &mut books);
        graph.node_written(12, &[23], &mut books);
        assert_eq!(used(&graph), [10, 11, 12, 20, 21, 22, 23]);
    }

    /// A node that points to itself, above it, or to another's node: this ends, and nothing is read as what
    /// it is not.
    #[test]
    fn nodes_that_point_in_a_circle_end() {
        let mut books = Books::default();
        let mut graph = Graph::new(Bytes);
        graph.set_root(1, vec![entry(10, 3)], &mut books);
        graph.node_written(10, &[10], &mut books);
        graph.node_written(10, &[11], &mut books);
        graph.node_written(11, &[10], &mut books);
        graph.node_written(10, &[11], &mut books);
        graph.set_root(2, vec![entry(11, 3), entry(10, 1)], &mut books);
        graph.node_written(11, &[10, 11], &mut books);
        assert!(graph.nodes.len() <= 2);
        graph.set_root(1, vec![], &mut books);
        graph.set_root(2, vec![], &mut books);
        assert!(graph.runs.iter().all(|run| run.by != root_id(1) && run.by != root_id(2)));
    }
}
