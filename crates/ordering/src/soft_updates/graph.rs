//! What waits for what: nodes, and the blocks they lie on.
//!
//! A node is one of three things: a *change* of some bytes of a block, which can be undone in the block's
//! image; a *mark*, met when the block's contents as they are now, whatever else is undone in them, are on
//! disk; a *step* that gives something back. Each knows what it waits for and who waits for it. A node
//! ends when it is on disk; its number then stands for nothing, which is how others see that it is met.
//!
//! Changes of one *cell* (an inode's links, all else of an inode, a pointer, a directory entry) build on one
//! another: none is in an image without those before it. So what an image shows of a cell is always a state
//! that the cell really had.

use std::collections::VecDeque;
use std::ops::Range;

use ordo_cache::BufKey;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::undo::Undo;
use crate::Deferred;

/// Set in a cell's number where two cells start at one byte.
pub(super) const FLAG: u32 = 1 << 31;

/// A node's number; of one that has ended, it stands for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id {
    pub(super) index: u32,
    stamp: u32,
}

/// The stamp of a node that has ended.
const ENDED: u32 = 0;

/// Heap memory of a block's lists, in bytes: a few changes, and an image or two.
const LISTS: usize = 4 * size_of::<(u32, Id)>() + 2 * size_of::<Image>();

/// A few nodes.
pub(super) type Ids = SmallVec<[Id; 2]>;

/// What a node is.
#[derive(Debug)]
pub(super) enum Role {
    /// A change of a cell, with how to undo it.
    Change { cell: u32, undo: Undo },
    /// The block as it is now.
    Mark,
    /// Something to be given back.
    Step(Deferred),
}

impl Role {
    /// The cell of a change.
    pub(super) fn cell(&self) -> Option<u32> {
        match self {
            Role::Change { cell, .. } => Some(*cell),
            _ => None,
        }
    }
}

pub(super) struct Node {
    stamp: u32,
    /// How many it waits for, an operation that is not complete included.
    pub unmet: u32,
    /// The block it lies on; of a step, nothing.
    pub key: BufKey,
    /// The inode that it changes, or that the entry stands for; 0 for none.
    pub subject: u64,
    pub role: Role,
    /// It has been in an image: it is on disk, or will be if that write is not lost.
    pub included: bool,
    /// An earlier change of its cell that is never in an image without it.
    pub with: Option<Id>,
    /// The first contents of an inode that was free.
    pub first: bool,
    /// Where blocks are that the inode has with it, and had not, or not there.
    pub placed: SmallVec<[u64; 1]>,
    /// How many nodes were made before it.
    pub age: u64,
    /// What it waits for.
    pub needs: Ids,
    /// Who waits for it.
    pub waiting: Ids,
}

/// A write of a block, from the time its image was made until it is durable.
pub(super) struct Image {
    /// Which buffer, by its address: after a block is forgotten another may have its key.
    pub who: usize,
    pub version: u64,
    pub holds: Ids,
}

/// The changes of a block with their cells: those of a cell together, oldest first.
#[derive(Default)]
pub(super) struct Changes(Vec<(u32, Id)>);

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by cell.
    pub(super) fn all(&self) -> &[(u32, Id)] {
        &self.0
    }

    /// Those of one cell, oldest first.
    pub(super) fn of(&self, cell: u32) -> &[(u32, Id)] {
        self.within(&(cell..cell + 1))
    }

    /// Those of some cells.
    pub(super) fn within(&self, cells: &Range<u32>) -> &[(u32, Id)] {
        let first = self.0.partition_point(|(c, _)| *c < cells.start);
        let count = self.0[first..].partition_point(|(c, _)| *c < cells.end);
        &self.0[first..first + count]
    }

    /// Adds the newest change of a cell.
    fn push(&mut self, cell: u32, id: Id) {
        let after = self.0.partition_point(|(c, _)| *c <= cell);
        self.0.insert(after, (cell, id));
    }

    fn remove(&mut self, cell: u32, id: Id) {
        let first = self.0.partition_point(|(c, _)| *c < cell);
        if let Some(place) = self.0[first..].iter().position(|(_, i)| *i == id) {
            self.0.remove(first + place);
        }
    }

    /// Makes changes of several cells, given oldest first, those of another cell that has none.
    pub(super) fn join(&mut self, cells: &Range<u32>, cell: u32, oldest_first: &[Id]) {
        self.0.retain(|(c, _)| !cells.contains(c));
        let at = self.0.partition_point(|(c, _)| *c <= cell);
        self.0.splice(at..at, oldest_first.iter().map(|id| (cell, *id)));
    }
}

/// What lies on a block.
#[derive(Default)]
pub(super) struct Block {
    /// Changes that are not on disk.
    pub changes: Changes,
    /// The mark that the next image meets.
    pub mark: Option<Id>,
    pub(super) images: VecDeque<Image>,
    /// The changes of a directory's inode by which this block is found, each from a byte on, oldest first:
    /// as long as they are not on disk, what is there can be written, but not seen.
    pub(super) homes: SmallVec<[(Id, u32); 1]>,
    /// Changes that wait for something.
    pub held: u32,
    /// Whether an image made now would show anything that the last one did not.
    pub news: bool,
}

impl Block {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.mark.is_none()
            && self.images.is_empty()
            && self.homes.is_empty()
    }
}

/// A name that is not to be found on disk: what must be there for that, and where its entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub id: Id,
    /// The block and the cell of it.
    pub at: (BufKey, u32),
}

/// Mostly one.
pub(super) type Names = SmallVec<[Name; 1]>;

/// A chunk of a directory: its block, and which of the block's.
pub(super) type Chunk = (BufKey, u32);

/// The last changes of an inode that are not on disk.
#[derive(Clone, Copy, Default)]
pub(super) struct Tails {
    /// Of its count of links.
    pub links: Option<Id>,
    /// Of everything else.
    pub body: Option<Id>,
}

/// All nodes, and where they are.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) vacant: Vec<u32>,
    pub blocks: FxHashMap<BufKey, Block>,
    /// The last changes of an inode.
    pub inodes: FxHashMap<u64, Tails>,
    /// The count of links that became 0, by inode.
    pub dropped: FxHashMap<u64, Id>,
    /// Those that are not written before the inode is released: on disk a directory without links has no
    /// contents either.
    kept: FxHashMap<u64, Id>,
    /// Entries that are not on disk, or not to be found there, by the inode they stand for: the change that
    /// must be on disk.
    pub names: FxHashMap<u64, Names>,
    /// The inodes whose names are found by a change.
    pub(super) named_by: FxHashMap<Id, Vec<u64>>,
    /// The blocks that are found by a change.
    pub(super) homes: FxHashMap<Id, SmallVec<[BufKey; 1]>>,
    /// New names, not on disk yet, of directories that had others: of all that lies below them the path
    /// changes.
    pub(super) moved: Ids,
    /// Inodes with names that are on disk in directories that cannot be found yet, with those directories;
    /// and the other way round.
    pub(super) below: FxHashMap<u64, SmallVec<[u64; 1]>>,
    pub(super) above: FxHashMap<u64, Vec<u64>>,
    /// Entries taken away that may still be on disk, by directory and name: the node with whose end they are
    /// not, and the chunk in which they are.
    pub(super) removed: FxHashMap<u64, (Id, Chunk)>,
    /// The names that go with a node.
    pub(super) removed_with: FxHashMap<Id, Vec<u64>>,
    /// Blocks of inodes that were filled and are not counted yet, with the marks that they are on disk.
    pub(super) filled: FxHashMap<BufKey, Id>,
    /// Addresses of blocks to which no pointer will ever reach the disk.
    pub unseen: FxHashSet<u64>,
    /// Steps whose time has come.
    pub ready: VecDeque<Deferred>,
    /// Steps that are not taken yet, those given out included.
    pub steps: usize,
    /// Steps that somebody is taking.
    pub given_out: usize,
    /// Fragments and inodes that they will give back.
    pub promised: (u64, u64),
    /// Nodes so far.
    pub made: u64,
    /// Nodes that have ended.
    pub met: u64,
    /// Changes undone in images.
    pub undone: u64,
    /// The last node's stamp.
    stamp: u32,
    /// Bytes of undo information.
    spilled: usize,
    peak: usize,
}

impl Graph {
    pub(super) fn get(&self, id: Id) -> Option<&Node> {
        self.nodes.get(id.index as usize).filter(|n| n.stamp == id.stamp)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Node> {
        self.nodes.get_mut(id.index as usize).filter(|n| n.stamp == id.stamp)
    }

    pub(super) fn is_live(&self, id: Id) -> bool {
        self.get(id).is_some()
    }

    /// Those that have not ended, each once.
    pub(super) fn live(&self, ids: &[Id]) -> Ids {
        let mut out: Ids = ids.iter().copied().filter(|id| self.is_live(*id)).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Bytes that the graph takes, now and at most so far.
    pub(super) fn memory(&self) -> (usize, usize) {
        (self.bytes(), self.peak)
    }

    /// Bytes of all that is there: what a bound can be held to, since it falls when things end.
    fn bytes(&self) -> usize {
        // A hash map's entry, with the share of empty places that it keeps.
        let entry = |payload: usize| payload + payload / 4 + 1;
        let list = size_of::<SmallVec<[u64; 1]>>();
        (self.nodes.len() - self.vacant.len()) * size_of::<Node>()
            + self.spilled
            + self.blocks.len() * (entry(size_of::<(BufKey, Block)>()) + LISTS)
            + self.inodes.len() * entry(size_of::<(u64, Tails)>())
            + (self.dropped.len() + self.kept.len()) * entry(size_of::<(u64, Id)>())
            + self.names.len() * entry(size_of::<(u64, Names)>())
            + (self.named_by.len() + self.homes.len()) * entry(size_of::<Id>() + list)
            + (self.below.len() + self.above.len()) * entry(size_of::<u64>() + list)
            + self.removed.len() * entry(size_of::<(u64, (Id, Chunk))>())
            + self.removed_with.len() * entry(size_of::<Id>() + list)
            + self.filled.len() * entry(size_of::<(BufKey, Id)>())
            + self.unseen.len() * entry(size_of::<u64>())
            + self.moved.len() * size_of::<Id>()
            + self.ready.len() * size_of::<Deferred>()
    }

    /// Gives memory back where nothing waits for anything any more. Numbers of nodes that have ended stay without
    /// meaning: no stamp is given twice.
    pub(super) fn shrink(&mut self) {
        /// Nodes for which there is always room.
        const KEPT: usize = 1024;
        if self.vacant.len() < self.nodes.len() || self.nodes.capacity() <= KEPT {
            return;
        }
        (self.nodes, self.vacant) = (Vec::new(), Vec::new());
        self.blocks.shrink_to(KEPT);
        self.inodes.shrink_to(KEPT);
        self.dropped.shrink_to(KEPT);
        self.kept.shrink_to(KEPT);
        self.names.shrink_to(KEPT);
        self.named_by.shrink_to(KEPT);
        self.homes.shrink_to(KEPT);
        self.below.shrink_to(KEPT);
        self.above.shrink_to(KEPT);
        self.removed.shrink_to(KEPT);
        self.removed_with.shrink_to(KEPT);
        self.filled.shrink_to(KEPT);
        self.unseen.shrink_to(KEPT);
        self.ready.shrink_to(KEPT);
    }

    /// A new node that waits for `needs`, and for the end of its operation where it is `open`.
    pub(super) fn add(
        &mut self,
        key: BufKey,
        subject: u64,
        role: Role,
        needs: Ids,
        open: bool,
    ) -> Id {
        let index = self.vacant.pop().unwrap_or(self.nodes.len() as u32);
        self.stamp = self.stamp.wrapping_add(1).max(ENDED + 1);
        let id = Id { index, stamp: self.stamp };
        for need in &needs {
            self.get_mut(*need).expect("only live nodes are waited for").waiting.push(id);
        }
        let unmet = needs.len() as u32 + u32::from(open);
        if let Role::Change { undo, .. } = &role {
            self.spilled += undo.bytes();
        }
        let place = role.cell();
        let node = Node {
            stamp: id.stamp,
            unmet,
            key,
            subject,
            role,
            included: false,
            with: None,
            first: false,
            placed: SmallVec::new(),
            age: self.made,
            needs,
            waiting: Ids::new(),
        };
        self.made += 1;
        match self.nodes.get_mut(index as usize) {
            Some(old) => *old = node,
            None => self.nodes.push(node),
        }
        if let Some(cell) = place {
            let block = self.blocks.entry(key).or_default();
            block.changes.push(cell, id);
            block.held += u32::from(unmet > 0);
            block.news |= unmet == 0;
        }
        self.peak = self.peak.max(self.bytes());
        id
    }

    /// A change waits for more than it did.
    pub(super) fn need(&mut self, id: Id, more: &[Id]) {
        for need in more {
            let Some(node) = self.get(id) else { return };
            if *need == id || node.needs.contains(need) || !self.is_live(*need) {
                continue;
            }
            self.get_mut(*need).expect("it is live").waiting.push(id);
            self.get_mut(id).expect("it is live").needs.push(*need);
            self.hold(id);
        }
    }

    /// A live node waits for one thing more: [`satisfy`](Self::satisfy) says that it is there.
    fn hold(&mut self, id: Id) {
        let node = self.get_mut(id).expect("it is live");
        node.unmet += 1;
        if node.unmet == 1 && matches!(node.role, Role::Change { .. }) {
            let key = node.key;
            self.blocks.entry(key).or_default().held += 1;
        }
    }

    /// The mark on a block that its next image meets.
    pub(super) fn mark(&mut self, key: BufKey) -> Id {
        if let Some(id) = self.blocks.get(&key).and_then(|b| b.mark) {
            return id;
        }
        let id = self.add(key, 0, Role::Mark, Ids::new(), false);
        let block = self.blocks.entry(key).or_default();
        block.mark = Some(id);
        block.news = true;
        id
    }

    /// The changes of one cell, oldest first.
    pub(super) fn cell(&self, key: BufKey, cell: u32) -> Ids {
        let Some(block) = self.blocks.get(&key) else { return Ids::new() };
        block.changes.of(cell).iter().map(|(_, id)| *id).collect()
    }

    /// The last change of a cell, unless it has been in an image.
    pub(super) fn open_tail(&self, key: BufKey, cell: u32) -> Option<Id> {
        let block = self.blocks.get(&key)?;
        let (_, id) = block.changes.of(cell).last()?;
        self.get(*id).filter(|n| !n.included).map(|_| *id)
    }

    /// Exchanges how to undo a change.
    pub(super) fn set_undo(&mut self, id: Id, new: Undo) {
        let Some(node) = self.get_mut(id) else { return };
        let Role::Change { undo, .. } = &mut node.role else { return };
        let (more, less) = (new.bytes(), undo.bytes());
        *undo = new;
        self.spilled = self.spilled + more - less;
    }

    /// One of the things that a node waited for is there.
    pub(super) fn satisfy(&mut self, id: Id) {
        let Some(node) = self.get_mut(id) else { return };
        node.unmet -= 1;
        if node.unmet > 0 {
            return;
        }
        let key = node.key;
        match node.role {
            Role::Change { .. } => {
                let block = self.blocks.get_mut(&key).expect("a change lies on a block");
                block.held -= 1;
                block.news = true;
            }
            Role::Step(step) => {
                self.ready.push_back(step);
                self.end(id);
            }
            Role::Mark => {}
        }
    }

    /// A node is on disk, or is needed no more: whoever waits for it does so no longer. Its block, where
    /// nothing is left on it, is the caller's to [`tidy`](Self::tidy) away.
    pub(super) fn end(&mut self, id: Id) {
        let waiting = self.take(id);
        for waiter in waiting {
            self.satisfy(waiter);
        }
    }

    /// Takes a node out without telling who waits for it; they are returned.
    fn take(&mut self, id: Id) -> Ids {
        let Some(node) = self.get_mut(id) else { return Ids::new() };
        node.stamp = ENDED;
        let waiting = std::mem::take(&mut node.waiting);
        node.needs = Ids::new();
        let (key, subject, unmet) = (node.key, node.subject, node.unmet);
        let role = std::mem::replace(&mut node.role, Role::Mark);
        let cell = role.cell();
        self.vacant.push(id.index);
        self.met += 1;
        if let Role::Change { cell, undo } = role {
            self.spilled -= undo.bytes();
            if let Some(block) = self.blocks.get_mut(&key) {
                block.changes.remove(cell, id);
                block.held -= u32::from(unmet > 0);
            }
        }
        for child in self.named_by.remove(&id).unwrap_or_default() {
            let dir = if key.file == 0 { subject } else { key.file };
            self.unname(child, id, &[], dir);
        }
        for key in self.homes.remove(&id).unwrap_or_default() {
            if let Some(block) = self.blocks.get_mut(&key) {
                block.homes.retain(|(home, _)| *home != id);
                self.tidy(key);
            }
        }
        for name in self.removed_with.remove(&id).unwrap_or_default() {
            if self.removed.get(&name).is_some_and(|(by, _)| *by == id) {
                self.removed.remove(&name);
            }
        }
        if subject != 0 {
            if let Some(tails) = self.inodes.get_mut(&subject) {
                tails.links = tails.links.filter(|t| *t != id);
                tails.body = tails.body.filter(|t| *t != id);
                if tails.links.is_none() && tails.body.is_none() {
                    self.inodes.remove(&subject);
                }
            }
            if self.dropped.get(&subject) == Some(&id) {
                self.dropped.remove(&subject);
            }
            if key.file != 0 {
                let at = (key, cell.unwrap_or(FLAG));
                let homes = self.homes_at(key, cell);
                let homes: Names = homes.into_iter().map(|id| Name { id, at }).collect();
                self.unname(subject, id, &homes, key.file);
            }
        }
        waiting
    }

    /// A node is needed no more, but whoever waits for it waits for another instead; with none, for
    /// nothing.
    pub(super) fn replace(&mut self, id: Id, by: Option<Id>) {
        let by = by.filter(|by| *by != id && self.is_live(*by));
        let Some(by) = by else { return self.end(id) };
        let waiting = self.take(id);
        self.wait_for(id, waiting, by);
    }

    /// As [`replace`](Self::replace), by several.
    pub(super) fn replace_all(&mut self, id: Id, by: &[Id]) {
        let Some((first, rest)) = by.split_first() else { return self.end(id) };
        let waiting = self.get(id).map(|n| n.waiting.clone()).unwrap_or_default();
        self.replace(id, Some(*first));
        for waiter in waiting {
            for other in rest {
                if !self.depends(*other, waiter) {
                    self.need(waiter, &[*other]);
                }
            }
        }
    }

    /// Gives out the next step whose time has come.
    pub(super) fn give_out(&mut self) -> Option<Deferred> {
        let step = self.ready.pop_front()?;
        self.given_out += 1;
        match step {
            Deferred::FreeBlock { frags, .. } => self.promised.0 -= u64::from(frags),
            Deferred::FreeInode { .. } => self.promised.1 -= 1,
            Deferred::Release { .. } => {}
        }
        Some(step)
    }

    /// A step that was given out has been taken.
    pub(super) fn step_taken(&mut self, step: Deferred) {
        self.given_out -= 1;
        self.steps -= 1;
        if let Deferred::Release { ino } = step
            && let Some(id) = self.kept.remove(&ino)
        {
            self.satisfy(id);
        }
    }

    /// An inode without links will be released: its count is written with that.
    pub(super) fn keep_count(&mut self, ino: u64) {
        let Some(id) = self.dropped.get(&ino).copied() else { return };
        if self.get(id).is_none_or(|n| n.included) {
            return;
        }
        self.hold(id);
        if let Some(before) = self.kept.insert(ino, id) {
            self.satisfy(before);
        }
    }

    /// Whether `id` waits for `other`, at any distance.
    pub(super) fn depends(&self, id: Id, other: Id) -> bool {
        let mut seen = FxHashSet::default();
        let mut stack = vec![id];
        while let Some(at) = stack.pop() {
            if at == other {
                return true;
            }
            if seen.insert(at)
                && let Some(node) = self.get(at)
            {
                stack.extend(node.needs.iter().copied());
                stack.extend(self.bound(at));
            }
        }
        false
    }

    /// What is on disk before a change, or with it, because they are of one cell.
    fn bound(&self, id: Id) -> Ids {
        let Some(node) = self.get(id) else { return Ids::new() };
        let Role::Change { cell, .. } = node.role else { return Ids::new() };
        let chain = self.cell(node.key, cell);
        let place = chain.iter().position(|i| *i == id).unwrap_or(chain.len());
        let fused = |i: &Id| self.get(*i).is_some_and(|n| n.with == Some(id));
        let bound = |(at, i): (usize, &Id)| (at < place || fused(i)).then_some(*i);
        chain.iter().enumerate().filter_map(bound).collect()
    }

    /// Forgets a block on which nothing is left.
    pub(super) fn tidy(&mut self, key: BufKey) {
        let Some(block) = self.blocks.get(&key) else { return };
        let held = |(_, id): &&(u32, Id)| self.get(*id).is_some_and(|n| n.unmet > 0);
        debug_assert_eq!(block.held as usize, block.changes.all().iter().filter(held).count());
        if block.is_empty() {
            self.blocks.remove(&key);
        }
    }

    /// The change `id` is never on disk without those after it in its cell.
    pub(super) fn fuse_after(&mut self, key: BufKey, cell: u32, id: Id) {
        let chain = self.cell(key, cell);
        let later = chain.iter().skip_while(|i| **i != id).skip(1);
        for later in later.copied().collect::<Ids>() {
            if let Some(node) = self.get_mut(later)
                && node.with.is_none()
            {
                node.with = Some(id);
            }
        }
    }

    /// A change does not wait for `need` any more.
    pub(super) fn unneed(&mut self, id: Id, need: Id) {
        if let Some(node) = self.get_mut(need) {
            node.waiting.retain(|w| *w != id);
            self.get_mut(id).expect("the caller has seen it").needs.retain(|n| *n != need);
            self.satisfy(id);
        }
    }

    /// Nodes that waited for `id` wait for `by`.
    fn wait_for(&mut self, id: Id, waiting: Ids, by: Id) {
        for waiter in waiting {
            let Some(node) = self.get_mut(waiter) else { continue };
            node.needs.retain(|n| *n != id);
            let twice = node.needs.contains(&by);
            // What takes the place may wait for this one itself.
            if twice || waiter == by || self.depends(by, waiter) {
                self.satisfy(waiter);
                continue;
            }
            self.get_mut(waiter).expect("it is live").needs.push(by);
            self.get_mut(by).expect("it is live").waiting.push(waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch memory that is kept for ever, and a number that comes to stand for another node.
    #[test]
    fn what_has_ended_takes_no_memory_and_never_comes_back() {
        let mut graph = Graph::default();
        let empty = graph.memory().0;
        let mut old = Vec::new();
        for round in 0..3 {
            for n in 0..5000 {
                let (key, role) =
                    (BufKey::device(n), Role::Change { cell: 0, undo: Undo::Zero(0) });
                old.push(graph.add(key, n + 1, role, Ids::new(), false));
            }
            assert!(graph.memory().0 > empty + 5000 * size_of::<Node>());
            for id in &old {
                let Some(key) = graph.get(*id).map(|node| node.key) else { continue };
                graph.end(*id);
                graph.tidy(key);
            }
            graph.shrink();
            assert_eq!(graph.memory().0, empty, "round {round}");
            assert!(graph.nodes.capacity() <= 1024 && graph.blocks.capacity() <= 2048);
        }
        let id = graph.add(BufKey::device(1), 1, Role::Mark, Ids::new(), false);
        assert!(graph.is_live(id) && old.iter().all(|id| !graph.is_live(*id)));
    }
}
