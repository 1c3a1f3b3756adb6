//! Images: the parts of a block that may be written, and the effects of the write.

use std::cmp::Reverse;

use ordo_cache::{BufKey, WriteImage};

use super::block::{BlockDeps, Image};
use super::graph::Graph;
use super::node::{Change, FLAG, Free, Id, Ids};
use super::slab::List;

impl Graph {
    /// Rolls back in an image every change that must not be on disk yet. Returns whether there were
    /// any. `cells` gets the places of the cells that were rolled back.
    pub(super) fn make_image(
        &mut self,
        key: BufKey,
        who: usize,
        version: u64,
        image: &mut WriteImage,
        cells: &mut Vec<usize>,
    ) -> bool {
        let Some(mut block) = self.blocks.remove(&key) else { return false };
        let back = if block.held == 0 { Vec::new() } else { self.to_roll_back(&block) };
        if !back.is_empty() {
            self.roll_back(&block, &back, image.to_mut(), cells);
        }
        let mut holds = Ids::new();
        let mut left_out = back.iter().peekable();
        for (at, (_, id)) in block.changes().iter().enumerate() {
            if left_out.next_if_eq(&&at).is_some() {
                continue;
            }
            let change = self.change_mut(*id).expect("changes on a block are live");
            if !change.included {
                change.included = true;
                holds.push(*id);
            }
        }
        holds.extend(block.written.take());
        block.news = false;
        if !holds.is_empty() {
            self.images += 1;
            self.listed += usize::from(!block.has_lists());
            block.make_lists().images.push(Image { who, version, holds });
        }
        if !block.is_empty() {
            self.blocks.insert(key, block);
        }
        !back.is_empty()
    }

    /// Rolls back the changes at these indices of a block's list, the newest first, since two cells
    /// may share bytes.
    fn roll_back(
        &mut self,
        block: &BlockDeps,
        back: &[usize],
        image: &mut [u8],
        cells: &mut Vec<usize>,
    ) {
        let all = block.changes();
        let change = |at: usize| self.change(all[at].1).expect("changes on a block are live");
        let mut newest_first = back.to_vec();
        newest_first.sort_unstable_by_key(|at| Reverse(change(*at).age));
        for at in newest_first {
            debug_assert!(!change(at).included, "what is on disk is not rolled back");
            change(at).rollback.apply(image);
            cells.push((all[at].0 & !FLAG) as usize);
        }
        self.rollbacks += back.len() as u64;
    }

    /// The indices of the changes that must be rolled back, in order: in each cell, one change and
    /// all later ones.
    fn to_roll_back(&self, block: &BlockDeps) -> Vec<usize> {
        let mut back = Vec::new();
        let mut from = 0;
        for cell in block.changes().chunk_by(|a, b| a.0 == b.0) {
            let change = |at: usize| self.change(cell[at].1).expect("changes on a block are live");
            let mut cut = (0..cell.len()).find(|at| change(*at).unmet > 0).unwrap_or(cell.len());
            // A change that must not be on disk without another one is rolled back with that one.
            let mut at = cell.len();
            while at > cut {
                at -= 1;
                let Some(with) = change(at).with else { continue };
                let place = cell[..cut].iter().position(|(_, id)| *id == with);
                if let Some(place) = place.filter(|place| !change(*place).included) {
                    cut = place;
                }
            }
            back.extend(from + cut..from + cell.len());
            from += cell.len();
        }
        back
    }

    /// The age of the oldest change of a block that was in no image so far: the number of nodes
    /// made before it.
    pub(super) fn oldest_unwritten(&self, key: BufKey) -> Option<u64> {
        let changes = self.blocks.get(&key)?.changes().iter();
        let change = |id: Id| self.change(id).expect("changes on a block are live");
        changes.map(|(_, id)| change(*id)).filter(|c| !c.included).map(|c| c.age).min()
    }

    /// Notes that the write of an image is durable.
    pub(super) fn written(&mut self, key: BufKey, who: usize, version: u64) {
        let Some(lists) = self.blocks.get_mut(&key).and_then(BlockDeps::lists) else { return };
        let mut done = Ids::new();
        let before = lists.images.len();
        lists.images.retain(|image| {
            let is_done = image.who == who && image.version <= version;
            if is_done {
                done.extend(image.holds.iter().copied());
            }
            !is_done
        });
        self.images -= before - lists.images.len();
        for id in done {
            let cell = self.change(id).map(|change| change.cell);
            let parents = self.parents_at(key, cell);
            self.replace_all(id, &parents);
        }
        self.tidy(key);
        self.release_memory();
    }

    /// Notes that a block is forgotten without a write, because the pointer to it has been reset.
    /// Everything that waits for the block now waits for the last change of the inode `owner`. If
    /// the pointer was in an indirect block, that change lowers the inode's count of blocks, and
    /// waits for the reset in turn.
    pub(super) fn forget(&mut self, key: BufKey, owner: u64) {
        let Some(block) = self.blocks.remove(&key) else { return };
        self.listed -= usize::from(block.has_lists());
        self.images -= block.images().len();
        let heir = self.inodes.get(owner).body;
        let held: Ids =
            block.images().iter().flat_map(|image| image.holds.iter().copied()).collect();
        // A block-written dependency whose block is in a write under way counts as open too, since
        // that write may be lost.
        let met = held.iter().copied().filter(|id| self.is_written(*id));
        let written: Ids = met.chain(block.written).collect();
        for written in written {
            for waiter in self.waiting(written) {
                self.join_pointer(written, waiter, owner);
            }
            self.replace(written, heir);
        }
        let changes: Ids = block.changes().iter().map(|(_, id)| *id).collect();
        for id in changes.into_iter().chain(held) {
            self.replace(id, heir);
        }
    }

    /// Joins a pointer in the inode, whose target will never be written, to the change that resets
    /// it: neither is ever on disk without the other.
    fn join_pointer(&mut self, written: Id, waiter: Id, owner: u64) {
        let Some(change) = self.change(waiter) else { return };
        if change.subject != owner || change.included {
            return;
        }
        let (key, cell) = (change.block, change.cell);
        self.fuse_after(key, cell, waiter);
        self.unneed(waiter, written);
    }

    /// A dump of the graph in words: which node waits for which.
    pub(super) fn explain(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        let mut held: Vec<_> = self.blocks.iter().filter(|(_, b)| b.held > 0).collect();
        held.sort_by_key(|(key, _)| **key);
        for (key, block) in held {
            let _ = writeln!(out, "{key:?}: {} of {} held", block.held, block.changes().len());
        }
        let live = |list: List| {
            let needs: Vec<_> = self.edges.iter(list).filter(|id| self.is_live(*id)).collect();
            format!("{needs:?}")
        };
        for (index, change) in self.changes.iter() {
            let Change { block, cell, subject, unmet, age, .. } = change;
            let needs = live(change.needs);
            let flags = (change.included, change.with.is_some(), change.first);
            let _ = writeln!(
                out,
                "{index}: change {age} of {block:?} cell {cell:#x} of {subject}, {unmet} unmet {needs}, \
                 included, fused, first: {flags:?}"
            );
        }
        for (index, written) in self.written.iter() {
            let open = self.blocks.get(&written.block).and_then(|b| b.written);
            let open = open.is_some_and(|id| id.place().index == index);
            let _ = writeln!(out, "{index}: written {:?}, open {open}", written.block);
        }
        for (index, free) in self.frees.iter() {
            let Free { what, unmet, .. } = free;
            let _ = writeln!(out, "{index}: {what:?}, {unmet} unmet {}", live(free.needs));
        }
        out
    }
}
