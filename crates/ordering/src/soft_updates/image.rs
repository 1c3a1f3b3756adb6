//! Images: what of a block may be written, and what becomes of that.

use std::cmp::Reverse;

use ordo_cache::BufKey;

use super::graph::{Block, FLAG, Graph, Id, Ids, Image, Role};

impl Graph {
    /// Undoes in an image what must not be on disk yet; whether anything was. `cells` gets the places of
    /// what was undone.
    pub(super) fn make_image(
        &mut self,
        key: BufKey,
        who: usize,
        version: u64,
        image: &mut [u8],
        cells: &mut Vec<usize>,
    ) -> bool {
        let Some(mut block) = self.blocks.remove(&key) else { return false };
        let undone = if block.held == 0 { Vec::new() } else { self.to_undo(&block) };
        let all = block.changes.all();
        let node = |at: usize| self.get(all[at].1).expect("changes on a block are live");
        // The newest first: two cells may share bytes.
        let mut newest_first = undone.clone();
        newest_first.sort_unstable_by_key(|at| Reverse(node(*at).age));
        for at in newest_first {
            if let Role::Change { undo, .. } = &node(at).role {
                undo.apply(image);
            }
            debug_assert!(!node(at).included, "what is on disk is not undone");
            cells.push((all[at].0 & !FLAG) as usize);
        }
        self.undone += undone.len() as u64;
        let mut holds = Ids::new();
        let mut left_out = undone.iter().peekable();
        for (at, (_, id)) in block.changes.all().iter().enumerate() {
            if left_out.next_if_eq(&&at).is_some() {
                continue;
            }
            let node = self.get_mut(*id).expect("changes on a block are live");
            if !node.included {
                node.included = true;
                holds.push(*id);
            }
        }
        holds.extend(block.mark.take());
        block.news = false;
        if !holds.is_empty() {
            block.images.push_back(Image { who, version, holds });
        }
        if !block.is_empty() {
            self.blocks.insert(key, block);
        }
        !undone.is_empty()
    }

    /// The places of those changes that must be undone, in order: of each cell all from some change on.
    fn to_undo(&self, block: &Block) -> Vec<usize> {
        let mut undone = Vec::new();
        let mut from = 0;
        for cell in block.changes.all().chunk_by(|a, b| a.0 == b.0) {
            let node = |at: usize| self.get(cell[at].1).expect("changes on a block are live");
            let mut cut = (0..cell.len()).find(|at| node(*at).unmet > 0).unwrap_or(cell.len());
            // Whoever must not be there without one that is undone goes too.
            let mut at = cell.len();
            while at > cut {
                at -= 1;
                let Some(with) = node(at).with else { continue };
                let place = cell[..cut].iter().position(|(_, id)| *id == with);
                if let Some(place) = place.filter(|place| !node(*place).included) {
                    cut = place;
                }
            }
            undone.extend(from + cut..from + cell.len());
            from += cell.len();
        }
        undone
    }

    /// The oldest change of a block that no image so far has held: how many nodes were made before it.
    pub(super) fn oldest_unwritten(&self, key: BufKey) -> Option<u64> {
        let changes = self.blocks.get(&key)?.changes.all().iter();
        let node = |id: Id| self.get(id).expect("changes on a block are live");
        changes.map(|(_, id)| node(*id)).filter(|n| !n.included).map(|n| n.age).min()
    }

    /// The write of an image is durable.
    pub(super) fn written(&mut self, key: BufKey, who: usize, version: u64) {
        let Some(block) = self.blocks.get_mut(&key) else { return };
        let mut done = Ids::new();
        block.images.retain(|image| {
            let is_done = image.who == who && image.version <= version;
            if is_done {
                done.extend(image.holds.iter().copied());
            }
            !is_done
        });
        for id in done {
            let cell = self.get(id).and_then(|n| n.role.cell());
            let homes = self.homes_at(key, cell);
            self.replace_all(id, &homes);
        }
        self.tidy(key);
        self.shrink();
    }

    /// A block leaves memory and is not written any more: what it belonged to has been reset. Everybody who
    /// waits for the block now waits for the last change of the inode `owner`. Where the pointer was in a block
    /// of pointers, that change gets the lower count of blocks, which waits for the reset itself.
    pub(super) fn forget(&mut self, key: BufKey, owner: u64) {
        let Some(block) = self.blocks.remove(&key) else { return };
        let heir = self.inodes.get(&owner).and_then(|t| t.body);
        let images = block.images.iter().flat_map(|image| image.holds.iter().copied());
        let written: Ids = images.collect();
        // A mark that an image has met counts as open as well: that write may be lost.
        let is_mark = |id: &Id| self.get(*id).is_some_and(|n| matches!(n.role, Role::Mark));
        let marks: Ids = written.iter().copied().filter(is_mark).chain(block.mark).collect();
        for mark in marks {
            let waiting = self.get(mark).map(|n| n.waiting.clone()).unwrap_or_default();
            for waiter in waiting {
                self.join_pointer(mark, waiter, owner);
            }
            self.replace(mark, heir);
        }
        let changes: Ids = block.changes.all().iter().map(|(_, id)| *id).collect();
        for id in changes.into_iter().chain(written) {
            self.replace(id, heir);
        }
    }

    /// A pointer in the inode waits for a block that will never be written. The pointer has been reset
    /// since: neither is ever on disk without the other.
    fn join_pointer(&mut self, mark: Id, waiter: Id, owner: u64) {
        let Some(node) = self.get(waiter) else { return };
        let Role::Change { cell, .. } = node.role else { return };
        if node.subject != owner || node.included {
            return;
        }
        let key = node.key;
        self.fuse_after(key, cell, waiter);
        self.unneed(waiter, mark);
    }

    /// What waits for what, in words.
    pub(super) fn story(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        let mut held: Vec<_> = self.blocks.iter().filter(|(_, b)| b.held > 0).collect();
        held.sort_by_key(|(key, _)| **key);
        for (key, block) in held {
            let _ = writeln!(out, "{key:?}: {} of {} held", block.held, block.changes.all().len());
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if self.vacant.contains(&(index as u32)) {
                continue;
            }
            let needs: Vec<_> = node.needs.iter().filter(|id| self.is_live(**id)).collect();
            let kind = match &node.role {
                Role::Change { cell, .. } => format!("change of {:?} cell {cell:#x}", node.key),
                Role::Mark => {
                    let open = self.blocks.get(&node.key).and_then(|b| b.mark);
                    let open = open.is_some_and(|m| m.index as usize == index);
                    format!("mark on {:?}, open {open}", node.key)
                }
                Role::Step(step) => format!("{step:?}"),
            };
            let (subject, unmet) = (node.subject, node.unmet);
            let flags = (node.included, node.with.is_some(), node.first);
            let _ = writeln!(
                out,
                "{index}: {kind} of {subject}, {unmet} unmet {needs:?}, included, fused, first: {flags:?}"
            );
        }
        out
    }
}
