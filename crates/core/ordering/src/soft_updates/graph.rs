//! The dependency graph: nodes, and the blocks and inodes that they concern.
//!
//! A node ([`node`](super::node)) lists the nodes for which it waits, and the nodes that wait for
//! it. A node ends when it is on disk. From then on its number finds no node, which shows a holder
//! of the number that the dependency is met.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use ordo_cache::BufKey;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::block::{BlockDeps, BlockLists};
use super::dotdot::DotDots;
use super::inode::{Chunk, Inodes};
use super::node::{Change, FLAG, Free, Id, Ids, Kind, Written};
use super::rollback::Rollback;
use super::slab::{List, Lists, Slab};
use crate::DeferredFree;

/// All nodes, and the blocks and inodes that they concern.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) changes: Slab<Change>,
    pub(super) written: Slab<Written>,
    pub(super) frees: Slab<Free>,
    /// The lists of waiting nodes, in both directions.
    pub(super) edges: Lists<Id>,
    /// The addresses of blocks that inodes gained.
    pub(super) placed: Lists<u64>,
    pub blocks: FxHashMap<BufKey, BlockDeps>,
    pub inodes: Inodes,
    /// For each parent link, the inodes with a name that is found through it.
    pub(super) names_by_parent: FxHashMap<Id, Vec<u64>>,
    /// For each parent link, the blocks that are found through it.
    pub(super) blocks_by_parent: FxHashMap<Id, SmallVec<[BufKey; 1]>>,
    /// New names, not on disk yet, of directories that had others. The paths to everything below
    /// these directories change.
    pub(super) moved: Ids,
    /// Removed entries that may still be on disk: by a hash of directory and name, the node whose
    /// end removes the entry from the disk, and the entry's chunk.
    pub(super) removed: FxHashMap<u64, (Id, Chunk)>,
    /// For each node, the removed names that end with it.
    pub(super) removed_with: FxHashMap<Id, Vec<u64>>,
    /// Removed entries that never were on disk: by a hash of directory and name, the inodes for
    /// which they stood, as far as these have other names that are not on disk.
    pub(super) passed: FxHashMap<u64, SmallVec<[u64; 2]>>,
    /// The number of entries of `passed` at which those without a meaning are removed.
    pub(super) passed_max: usize,
    /// Blocks of inodes that were initialised and are not counted yet, each with its block-written
    /// node.
    pub(super) filled: FxHashMap<BufKey, Id>,
    pub(super) dotdots: DotDots,
    /// Addresses of blocks that will never be written, so no pointer to them will be on disk.
    pub never_written: FxHashSet<u64>,
    /// Deferred frees that are ready.
    pub ready: VecDeque<DeferredFree>,
    /// The number of deferred frees that are not done yet, including those that a task is doing.
    pub steps: usize,
    /// The number of deferred frees that a task is doing.
    pub given_out: usize,
    /// Fragments and inodes that the deferred frees will free.
    pub promised: (u64, u64),
    /// The number of nodes that were made so far.
    pub made: u64,
    /// The number of nodes that have ended.
    pub met: u64,
    /// The number of rollbacks in images.
    pub rollbacks: u64,
    /// The stamp of the newest node.
    stamp: u32,
    /// Memory of rollbacks that do not fit in their change nodes, in bytes.
    pub(super) spilled: usize,
    /// The number of blocks that have lists.
    pub(super) listed: usize,
    /// The number of images whose writes are not durable.
    pub(super) images: usize,
    pub(super) peak: usize,
    /// The value of `made` when memory was last freed.
    pub(super) released: u64,
}

/// Looking at nodes.
impl Graph {
    pub(super) fn change(&self, id: Id) -> Option<&Change> {
        if id.kind() == Kind::Change { self.changes.get(id.place()) } else { None }
    }

    pub(super) fn change_mut(&mut self, id: Id) -> Option<&mut Change> {
        if id.kind() == Kind::Change { self.changes.get_mut(id.place()) } else { None }
    }

    pub(super) fn is_live(&self, id: Id) -> bool {
        match id.kind() {
            Kind::Change => self.changes.get(id.place()).is_some(),
            Kind::Written => self.written.get(id.place()).is_some(),
            Kind::Free => self.frees.get(id.place()).is_some(),
        }
    }

    /// Whether a node is a block-written dependency.
    pub(super) fn is_written(&self, id: Id) -> bool {
        id.kind() == Kind::Written && self.is_live(id)
    }

    /// The block on which a node lies.
    pub(super) fn block_of(&self, id: Id) -> Option<BufKey> {
        match id.kind() {
            Kind::Change => self.changes.get(id.place()).map(|change| change.block),
            Kind::Written => self.written.get(id.place()).map(|written| written.block),
            Kind::Free => None,
        }
    }

    /// The nodes for which a node waits, including those that have ended.
    pub(super) fn needs(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        let list = match id.kind() {
            Kind::Change => self.changes.get(id.place()).map(|change| change.needs),
            Kind::Written => None,
            Kind::Free => self.frees.get(id.place()).map(|free| free.needs),
        };
        self.edges.iter(list.unwrap_or_default())
    }

    fn waiting_mut(&mut self, id: Id) -> Option<&mut List> {
        match id.kind() {
            Kind::Change => self.changes.get_mut(id.place()).map(|change| &mut change.waiting),
            Kind::Written => self.written.get_mut(id.place()).map(|written| &mut written.waiting),
            Kind::Free => None,
        }
    }

    fn needs_mut(&mut self, id: Id) -> Option<(&mut List, &mut u32)> {
        match id.kind() {
            Kind::Change => self.changes.get_mut(id.place()).map(|c| (&mut c.needs, &mut c.unmet)),
            Kind::Written => None,
            Kind::Free => self.frees.get_mut(id.place()).map(|f| (&mut f.needs, &mut f.unmet)),
        }
    }

    /// The nodes that wait for a node, oldest first.
    pub(super) fn waiting(&self, id: Id) -> Ids {
        let list = match id.kind() {
            Kind::Change => self.changes.get(id.place()).map(|change| change.waiting),
            Kind::Written => self.written.get(id.place()).map(|written| written.waiting),
            Kind::Free => None,
        };
        let mut out: Ids = self.edges.iter(list.unwrap_or_default()).collect();
        out.reverse();
        out
    }

    /// The nodes of `ids` that have not ended, each once.
    pub(super) fn live(&self, ids: &[Id]) -> Ids {
        let mut out: Ids = ids.iter().copied().filter(|id| self.is_live(*id)).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// The changes of one cell, oldest first.
    pub(super) fn cell(&self, key: BufKey, cell: u32) -> Ids {
        let Some(block) = self.blocks.get(&key) else { return Ids::new() };
        block.of(cell).iter().map(|(_, id)| *id).collect()
    }

    /// The last change of a cell.
    pub(super) fn last_of(&self, key: BufKey, cell: u32) -> Option<Id> {
        self.blocks.get(&key)?.of(cell).last().map(|(_, id)| *id)
    }

    /// The last change of a cell, unless it has been in an image.
    pub(super) fn open_tail(&self, key: BufKey, cell: u32) -> Option<Id> {
        let id = self.last_of(key, cell)?;
        self.change(id).filter(|change| !change.included).map(|_| id)
    }

    /// Whether `id` waits for `other`, at any distance.
    pub(super) fn depends(&self, id: Id, other: Id) -> bool {
        let mut seen = FxHashSet::default();
        let mut stack = vec![id];
        while let Some(at) = stack.pop() {
            if at == other {
                return true;
            }
            if self.is_live(at) && seen.insert(at) {
                stack.extend(self.needs(at));
                stack.extend(self.bound(at));
            }
        }
        false
    }

    /// Whether the nodes that wait for `ids` can wait for `by` instead, because nothing in `by`
    /// waits for them at any distance. The answer is no also where that would need a long search.
    pub(super) fn can_replace(&self, ids: &[Id], by: &[Id]) -> bool {
        /// The number of nodes at which the search ends.
        const LOOKED_AT: usize = 256;
        let waiting = ids.iter().flat_map(|id| self.waiting(*id));
        let waiting: Ids = waiting.filter(|id| !ids.contains(id) && self.is_live(*id)).collect();
        if waiting.is_empty() {
            return true;
        }
        let mut seen = FxHashSet::default();
        let mut stack = by.to_vec();
        while let Some(at) = stack.pop() {
            if waiting.contains(&at) || seen.len() > LOOKED_AT {
                return false;
            }
            if self.is_live(at) && seen.insert(at) {
                stack.extend(self.needs(at));
                stack.extend(self.bound(at));
            }
        }
        true
    }

    /// Whether two nodes are the same, or changes of one cell. Those reach the disk in order
    /// without a wait. A wait would keep [fused](Self::fuse_after) ones from the disk for ever.
    fn share_cell(&self, one: Id, other: Id) -> bool {
        let place = |id| self.change(id).map(|change| (change.block, change.cell));
        one == other || place(one).is_some_and(|at| place(other) == Some(at))
    }

    /// The nodes that reach the disk before a change, or together with it, because they belong to
    /// the same cell.
    fn bound(&self, id: Id) -> Ids {
        let Some(change) = self.change(id) else { return Ids::new() };
        let chain = self.cell(change.block, change.cell);
        let place = chain.iter().position(|i| *i == id).unwrap_or(chain.len());
        let fused = |i: &Id| self.change(*i).is_some_and(|c| c.with == Some(id));
        let bound = |(at, i): (usize, &Id)| (at < place || fused(i)).then_some(*i);
        chain.iter().enumerate().filter_map(bound).collect()
    }
}

/// Making nodes.
impl Graph {
    fn new_stamp(&mut self) -> NonZeroU32 {
        self.stamp = self.stamp.checked_add(1).unwrap_or(1);
        self.made += 1;
        NonZeroU32::new(self.stamp).expect("stamps begin at 1")
    }

    /// Notes that a node waits for others, all of which are live. Returns the node's list of them.
    fn wait_for_all(&mut self, id: Id, needs: &[Id]) {
        let mut list = List::default();
        for need in needs {
            self.edges.push(&mut list, *need);
            self.add_waiting(*need, id);
        }
        if let Some((place, _)) = self.needs_mut(id) {
            *place = list;
        }
    }

    fn add_waiting(&mut self, need: Id, waiter: Id) {
        let mut list = *self.waiting_mut(need).expect("only live nodes are waited for");
        self.edges.push(&mut list, waiter);
        *self.waiting_mut(need).expect("just seen") = list;
    }

    fn add_need(&mut self, id: Id, need: Id) {
        let mut list = *self.needs_mut(id).expect("it waits").0;
        self.edges.push(&mut list, need);
        *self.needs_mut(id).expect("just seen").0 = list;
    }

    fn drop_need(&mut self, id: Id, need: Id) {
        let Some((list, _)) = self.needs_mut(id) else { return };
        let mut list = *list;
        self.edges.remove(&mut list, need);
        *self.needs_mut(id).expect("just seen").0 = list;
    }

    /// Adds a change of a cell of a block. It waits for `needs`, and, if `open`, for the end of its
    /// operation.
    pub(super) fn add_change(
        &mut self,
        (block, cell): (BufKey, u32),
        subject: u64,
        rollback: Rollback,
        needs: Ids,
        open: bool,
    ) -> Id {
        let stamp = self.new_stamp();
        let unmet = needs.len() as u32 + u32::from(open);
        self.spilled += rollback.bytes();
        let age = self.made - 1;
        let change = Change {
            stamp: stamp.get(),
            unmet,
            block,
            subject,
            age,
            rollback,
            cell,
            ..<Change as super::slab::Stamped>::vacant()
        };
        let id = Id::new(Kind::Change, self.changes.insert(change), stamp);
        self.wait_for_all(id, &needs);
        self.lists(block).changes.push(cell, id);
        let on = self.blocks.get_mut(&block).expect("just made");
        on.held += u32::from(unmet > 0);
        on.news |= unmet == 0;
        self.note_peak();
        id
    }

    /// The lists of a block; allocates them where there are none.
    pub(super) fn lists(&mut self, key: BufKey) -> &mut BlockLists {
        let block = self.blocks.entry(key).or_default();
        self.listed += usize::from(!block.has_lists());
        block.make_lists()
    }

    /// The node that the next image of a block meets.
    pub(super) fn block_written(&mut self, key: BufKey) -> Id {
        if let Some(id) = self.blocks.get(&key).and_then(|b| b.written) {
            return id;
        }
        let id = self.add_unwritten(key);
        let block = self.blocks.entry(key).or_default();
        block.written = Some(id);
        block.news = true;
        self.note_peak();
        id
    }

    /// Adds a node that no image meets. [`end`](Self::end) or [`replace`](Self::replace) ends it.
    pub(super) fn add_unwritten(&mut self, block: BufKey) -> Id {
        let stamp = self.new_stamp();
        let written = Written { stamp: stamp.get(), waiting: List::default(), block };
        Id::new(Kind::Written, self.written.insert(written), stamp)
    }

    /// Adds a free that becomes ready when `needs` are met; at once if they all are.
    pub(super) fn add_free(&mut self, what: DeferredFree, needs: Ids) {
        if needs.is_empty() {
            self.ready.push_back(what);
            return;
        }
        let stamp = self.new_stamp();
        let unmet = needs.len() as u32;
        let free = Free { stamp: stamp.get(), unmet, needs: List::default(), what: Some(what) };
        let id = Id::new(Kind::Free, self.frees.insert(free), stamp);
        self.wait_for_all(id, &needs);
        self.note_peak();
    }

    /// Makes a change wait for further nodes.
    pub(super) fn need(&mut self, id: Id, more: &[Id]) {
        for need in more {
            if !self.is_live(id) {
                return;
            }
            let known = self.share_cell(*need, id) || self.needs(id).any(|n| n == *need);
            if known || !self.is_live(*need) {
                continue;
            }
            self.add_waiting(*need, id);
            self.add_need(id, *need);
            self.add_wait(id);
        }
    }

    /// Makes a live node wait for one more event, which [`satisfy`](Self::satisfy) announces.
    fn add_wait(&mut self, id: Id) {
        let (_, unmet) = self.needs_mut(id).expect("it is live");
        *unmet += 1;
        let first = *unmet == 1;
        if let Some(change) = self.change(id).filter(|_| first) {
            let block = change.block;
            self.blocks.entry(block).or_default().held += 1;
        }
    }

    /// Replaces the rollback of a change.
    pub(super) fn set_rollback(&mut self, id: Id, new: Rollback) {
        let Some(change) = self.change_mut(id) else { return };
        let (more, less) = (new.bytes(), change.rollback.bytes());
        change.rollback = new;
        self.spilled = self.spilled + more - less;
    }

    /// Notes that an inode gains the block at an address in a change.
    pub(super) fn note_placed(&mut self, id: Id, address: u64) {
        let Some(change) = self.changes.get_mut(id.place()) else { return };
        self.placed.push(&mut change.placed, address);
    }

    /// Whether an inode gained the block at an address in a change.
    pub(super) fn placed_in(&self, id: Id, address: u64) -> bool {
        self.change(id).is_some_and(|c| self.placed.iter(c.placed).any(|a| a == address))
    }

    /// Makes sure that no image has the change `id` without the later changes of its cell.
    pub(super) fn fuse_after(&mut self, key: BufKey, cell: u32, id: Id) {
        let chain = self.cell(key, cell);
        let Some(place) = chain.iter().position(|i| *i == id) else { return };
        for later in &chain[place + 1..] {
            if let Some(change) = self.change_mut(*later) {
                change.with.get_or_insert(id);
            }
        }
        self.free_waiters(&chain, place);
    }

    /// Ends the circles that fusing the changes of a cell from `place` on has closed: a node that
    /// waits for one of them, and for which a later one waits, waits for the change before them
    /// instead.
    ///
    /// Such a node is an entry. Its inode has lost all names, and one that is open is cut: the cut
    /// waits until the names are gone from the disk, and a pointer that it resets waits for the
    /// cut. The entry is only removed in memory, so the inode as it was before that pointer is good
    /// enough for it.
    fn free_waiters(&mut self, chain: &[Id], place: usize) {
        let Some(last) = chain.last().copied() else { return };
        let first = self.first_fused(chain, place);
        let before = first.checked_sub(1).map(|at| chain[at]);
        for change in &chain[first..] {
            for waiter in self.waiting(*change) {
                if chain[first..].contains(&waiter) || !self.depends(last, waiter) {
                    continue;
                }
                if let Some(before) = before {
                    self.need(waiter, &[before]);
                }
                self.unneed(waiter, *change);
            }
        }
    }

    /// The first change of a cell that no image has without the one at `place`, or without later
    /// ones that none has without that.
    fn first_fused(&self, chain: &[Id], mut place: usize) -> usize {
        let with = |id: &Id| {
            let with = self.change(*id)?.with?;
            chain.iter().position(|i| *i == with && self.change(with).is_some_and(|c| !c.included))
        };
        while let Some(at) = chain[place..].iter().filter_map(with).min().filter(|at| *at < place) {
            place = at;
        }
        place
    }
}

/// Ending nodes.
impl Graph {
    /// Announces one of the events for which a node waits.
    pub(super) fn satisfy(&mut self, id: Id) {
        let Some((_, unmet)) = self.needs_mut(id) else { return };
        *unmet -= 1;
        if *unmet > 0 {
            return;
        }
        if let Some(change) = self.change(id) {
            let key = change.block;
            let block = self.blocks.get_mut(&key).expect("a change lies on a block");
            block.held -= 1;
            block.news = true;
        } else if let Some(free) = self.frees.remove(id.place()) {
            self.met += 1;
            self.ready.push_back(free.what.expect("a deferred free frees something"));
            let mut needs = free.needs;
            self.edges.take::<[Id; 2]>(&mut needs);
        }
    }

    /// Ends a node, which is on disk or no longer needed: the nodes that waited for it wait no
    /// longer. The caller must [`tidy`](Self::tidy) its block.
    pub(super) fn end(&mut self, id: Id) {
        for waiter in self.take(id) {
            self.satisfy(waiter);
        }
    }

    /// Removes a node without satisfying those that wait for it. Returns them.
    fn take(&mut self, id: Id) -> Ids {
        let (mut waiting, at, subject) = match id.kind() {
            Kind::Free => return Ids::new(),
            Kind::Written => {
                let Some(written) = self.written.remove(id.place()) else { return Ids::new() };
                (written.waiting, (written.block, FLAG), 0)
            }
            Kind::Change => {
                let Some(change) = self.changes.remove(id.place()) else { return Ids::new() };
                self.unhang(id, &change);
                (change.waiting, (change.block, change.cell), change.subject)
            }
        };
        self.met += 1;
        let waiting = self.edges.take(&mut waiting);
        for child in self.names_by_parent.remove(&id).unwrap_or_default() {
            let dir = if at.0.file == 0 { subject } else { at.0.file };
            self.unname(child, id, &[], dir);
        }
        for key in self.blocks_by_parent.remove(&id).unwrap_or_default() {
            if let Some(lists) = self.blocks.get_mut(&key).and_then(BlockDeps::lists) {
                lists.parents.retain(|(parent, _)| *parent != id);
                self.tidy(key);
            }
        }
        for name in self.removed_with.remove(&id).unwrap_or_default() {
            if self.removed.get(&name).is_some_and(|(by, _)| *by == id) {
                self.removed.remove(&name);
            }
        }
        if subject != 0 {
            self.inodes.update(subject, |deps| {
                for latest in [&mut deps.links, &mut deps.body, &mut deps.dropped] {
                    latest.take_if(|latest| *latest == id);
                }
            });
            if at.0.file != 0 {
                let parents = self.parents_at(at.0, Some(at.1));
                self.unname(subject, id, &parents, at.0.file);
            }
        }
        waiting
    }

    /// Removes a change, no longer live, from its block, and drops the list of nodes for which it
    /// waited.
    fn unhang(&mut self, id: Id, change: &Change) {
        let (mut needs, mut placed) = (change.needs, change.placed);
        self.edges.take::<[Id; 2]>(&mut needs);
        self.placed.take::<[u64; 2]>(&mut placed);
        self.spilled -= change.rollback.bytes();
        if let Some(block) = self.blocks.get_mut(&change.block) {
            if let Some(lists) = block.lists() {
                lists.changes.remove(change.cell, id);
            }
            block.held -= u32::from(change.unmet > 0);
        }
    }

    /// Ends a node that is no longer needed. The nodes that waited for it wait for `by` instead; if
    /// `by` is `None`, they wait no longer.
    pub(super) fn replace(&mut self, id: Id, by: Option<Id>) {
        let by = by.filter(|by| *by != id && self.is_live(*by));
        let Some(by) = by else { return self.end(id) };
        let waiting = self.take(id);
        self.wait_for(id, waiting, by);
    }

    /// As [`replace`](Self::replace), with several nodes.
    pub(super) fn replace_all(&mut self, id: Id, by: &[Id]) {
        let Some((first, rest)) = by.split_first() else { return self.end(id) };
        let waiting = self.waiting(id);
        self.replace(id, Some(*first));
        for waiter in waiting {
            for other in rest {
                if !self.depends(*other, waiter) {
                    self.need(waiter, &[*other]);
                }
            }
        }
    }

    /// Makes the nodes that waited for `id` wait for `by`.
    fn wait_for(&mut self, id: Id, waiting: Ids, by: Id) {
        for waiter in waiting {
            if !self.is_live(waiter) {
                continue;
            }
            self.drop_need(waiter, id);
            let known = self.share_cell(by, waiter) || self.needs(waiter).any(|need| need == by);
            // The replacement may itself wait for this node.
            if known || self.depends(by, waiter) {
                self.satisfy(waiter);
                continue;
            }
            self.add_need(waiter, by);
            self.add_waiting(by, waiter);
        }
    }

    /// Makes a change wait for `need` no longer.
    pub(super) fn unneed(&mut self, id: Id, need: Id) {
        let Some(list) = self.waiting_mut(need) else { return };
        let mut list = *list;
        self.edges.remove(&mut list, id);
        *self.waiting_mut(need).expect("just seen") = list;
        self.drop_need(id, need);
        self.satisfy(id);
    }

    /// Forgets a block without dependencies.
    pub(super) fn tidy(&mut self, key: BufKey) {
        let Some(block) = self.blocks.get_mut(&key) else { return };
        let before = block.has_lists();
        block.tidy();
        self.listed -= usize::from(before && !block.has_lists());
        let block = &self.blocks[&key];
        let held = |(_, id): &&(u32, Id)| self.change(*id).is_some_and(|c| c.unmet > 0);
        debug_assert_eq!(block.held as usize, block.changes().iter().filter(held).count());
        if block.is_empty() {
            self.blocks.remove(&key);
        }
    }
}

/// Deferred frees.
impl Graph {
    /// Returns the next deferred free that is ready.
    pub(super) fn give_out(&mut self) -> Option<DeferredFree> {
        let step = self.ready.pop_front()?;
        self.given_out += 1;
        match step {
            DeferredFree::FreeBlock { frags, .. } => self.promised.0 -= u64::from(frags),
            DeferredFree::FreeInode { .. } => self.promised.1 -= 1,
            DeferredFree::Release { .. } => {}
        }
        Some(step)
    }

    /// Notes that a free that was given out is done.
    pub(super) fn step_taken(&mut self, step: DeferredFree) {
        self.given_out -= 1;
        self.steps -= 1;
        if let DeferredFree::Release { ino } = step
            && let Some(id) = self.inodes.update(ino, |deps| deps.kept.take())
        {
            self.satisfy(id);
        }
    }

    /// Keeps back the count of an inode without links: it is written when the inode is freed.
    pub(super) fn keep_count(&mut self, ino: u64) {
        let Some(id) = self.inodes.get(ino).dropped else { return };
        if self.change(id).is_none_or(|change| change.included) {
            return;
        }
        self.add_wait(id);
        if let Some(before) = self.inodes.update(ino, |deps| deps.kept.replace(id)) {
            self.satisfy(before);
        }
    }
}
