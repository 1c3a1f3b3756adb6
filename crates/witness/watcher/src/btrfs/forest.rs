//! The known tree blocks, and the number of pointers to each.
//!
//! A block is in the forest from the time it is written until the current roots no longer lead to
//! it. (A new block is kept until the superblock makes its transaction current.) Snapshots share
//! blocks, so pointers are counted. A pointer names the transaction that wrote the block: a later
//! block at the same address is another block.

use std::collections::BTreeSet;

use ordo_format::btrfs::Pointer;
use rustc_hash::FxHashMap;

use super::leaves::Body;

#[derive(Debug, Default)]
struct BtrfsNode {
    /// The number of pointers to the block, and one more until its transaction is current.
    by: u32,
    /// `None` until the block is seen.
    body: Option<Body>,
}

#[derive(Debug, Default)]
pub(super) struct Forest {
    nodes: FxHashMap<Pointer, BtrfsNode>,
    /// The block that was last seen at each address.
    at: FxHashMap<u64, Pointer>,
    /// Blocks whose transaction is not current.
    new: BTreeSet<Pointer>,
}

impl Forest {
    /// The block that was seen at an address.
    pub(super) fn at(&self, address: u64) -> Option<(Pointer, &Body)> {
        let pointer = *self.at.get(&address)?;
        Some((pointer, self.body(&pointer)?))
    }

    pub(super) fn body(&self, at: &Pointer) -> Option<&Body> {
        self.nodes.get(at)?.body.as_ref()
    }

    pub(super) fn body_mut(&mut self, at: &Pointer) -> Option<&mut Body> {
        self.nodes.get_mut(at)?.body.as_mut()
    }

    /// Blocks that are pointed to but have not been seen, in order.
    pub(super) fn unread(&self) -> Vec<Pointer> {
        let unread = self.nodes.iter().filter(|(_, node)| node.body.is_none());
        let mut all: Vec<Pointer> = unread.map(|(at, _)| *at).collect();
        all.sort_unstable();
        all
    }

    /// Takes in a block. Blocks that leave the forest are added to `gone`.
    pub(super) fn put(&mut self, at: Pointer, body: Body, new: bool, gone: &mut Vec<Body>) {
        if let Some(was) = self.at.insert(at.address, at)
            && was != at
        {
            self.overwritten(was, gone);
        }
        body.below.iter().for_each(|below| self.add_reference(*below));
        let node = self.nodes.entry(at).or_default();
        let old = node.body.replace(body);
        if new && self.new.insert(at) {
            node.by += 1;
        }
        if let Some(old) = old {
            old.below.iter().for_each(|below| self.drop_reference(*below, gone));
            gone.push(old);
        }
    }

    fn overwritten(&mut self, at: Pointer, gone: &mut Vec<Body>) {
        let body = self.nodes.get_mut(&at).and_then(|node| node.body.take());
        if let Some(body) = body {
            body.below.iter().for_each(|below| self.drop_reference(*below, gone));
            gone.push(body);
        }
        self.reached(at, gone);
    }

    /// Adds a pointer to a block.
    pub(super) fn add_reference(&mut self, at: Pointer) {
        self.nodes.entry(at).or_default().by += 1;
    }

    /// Removes a pointer to a block. A block without pointers is free, and its own pointers are
    /// removed too.
    pub(super) fn drop_reference(&mut self, at: Pointer, gone: &mut Vec<Body>) {
        // A loop instead of a recursion: damage may make a chain of any length.
        let mut rest = vec![at];
        while let Some(at) = rest.pop() {
            let Some(node) = self.nodes.get_mut(&at) else { continue };
            node.by = node.by.saturating_sub(1);
            if node.by > 0 {
                continue;
            }
            let Some(BtrfsNode { body: Some(body), .. }) = self.nodes.remove(&at) else { continue };
            if self.at.get(&at.address) == Some(&at) {
                self.at.remove(&at.address);
            }
            rest.extend(body.below.iter());
            gone.push(body);
        }
    }

    /// Notes that a root leads to this block already, so that the block need not wait for its
    /// transaction.
    pub(super) fn reached(&mut self, at: Pointer, gone: &mut Vec<Body>) {
        if self.new.remove(&at) {
            self.drop_reference(at, gone);
        }
    }

    /// Makes all transactions up to this one current: blocks to which no root leads are free.
    pub(super) fn current(&mut self, generation: u64, gone: &mut Vec<Body>) {
        let (now, later) =
            std::mem::take(&mut self.new).into_iter().partition(|at| at.generation <= generation);
        self.new = later;
        let now: BTreeSet<Pointer> = now;
        now.into_iter().for_each(|at| self.drop_reference(at, gone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64, generation: u64, level: u8) -> Pointer {
        Pointer { address, generation, level }
    }

    fn body(below: &[Pointer]) -> Body {
        Body { below: below.into(), ..Body::default() }
    }

    /// Two roots share a leaf. When one root goes, the leaf must stay; when both are gone, it must
    /// go. A block of a new transaction stays until the transaction is current, and then goes if no
    /// root leads to it.
    #[test]
    fn shared_tree_blocks_stay() {
        let mut forest = Forest::default();
        let mut gone = Vec::new();
        let (one, two, leaf, lost) = (at(10, 5, 1), at(20, 6, 1), at(30, 5, 0), at(40, 6, 0));
        forest.add_reference(one);
        forest.put(one, body(&[leaf]), false, &mut gone);
        forest.put(leaf, body(&[]), false, &mut gone);
        forest.put(two, body(&[leaf]), true, &mut gone);
        forest.put(lost, body(&[]), true, &mut gone);
        assert!(forest.at(40).is_some());
        forest.add_reference(two);
        forest.current(6, &mut gone);
        assert!(forest.at(40).is_none() && forest.at(20).is_some());
        forest.drop_reference(one, &mut gone);
        assert!(forest.at(10).is_none() && forest.at(30).is_some());
        forest.drop_reference(two, &mut gone);
        assert!(forest.nodes.is_empty() && forest.at.is_empty() && gone.len() == 4);
    }

    /// A block that leads to itself, a long chain, and an address that is used again while a
    /// pointer to the old block remains: the walk ends, and the overwritten block is forgotten.
    #[test]
    fn tree_blocks_that_point_in_a_circle_end() {
        let mut forest = Forest::default();
        let mut gone = Vec::new();
        let circle = at(10, 5, 0);
        forest.add_reference(circle);
        forest.put(circle, body(&[circle, at(10, 5, 1)]), true, &mut gone);
        forest.put(at(10, 9, 0), body(&[]), true, &mut gone);
        forest.drop_reference(circle, &mut gone);
        forest.current(9, &mut gone);
        assert!(forest.nodes.is_empty() && forest.at.is_empty());
        for i in 0..200_000 {
            forest.put(at(i, 1, 0), body(&[at(i + 1, 1, 0)]), true, &mut gone);
        }
        forest.current(1, &mut gone);
        assert!(forest.at.is_empty());
        assert!(forest.nodes.is_empty());
    }
}
