//! Which file each fragment belongs to.

use rustc_hash::FxHashMap;

/// What a block is to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A block of its contents.
    Data { lbn: u64 },
    /// Addresses of blocks, `level` steps away from the contents.
    Indirect { level: u8 },
    /// Extended attributes.
    Attributes,
}

/// Fragments of one block that belong to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The first of them.
    pub(super) start: u64,
    pub(super) frags: u8,
    pub(super) ino: u32,
    pub(super) role: Role,
}

impl Extent {
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.frags)
    }
}

/// The extents of one block. Nearly always there is one.
#[derive(Debug)]
enum Slot {
    One(Extent),
    Many(Vec<Extent>),
}

impl Slot {
    fn all(&self) -> &[Extent] {
        match self {
            Slot::One(extent) => std::slice::from_ref(extent),
            Slot::Many(extents) => extents,
        }
    }
}

/// The owners of all fragments that are known to have one. Extents do not overlap, and none crosses a
/// block.
#[derive(Debug, Default)]
pub(super) struct Owners {
    blocks: FxHashMap<u64, Slot>,
    /// Fragments in a block, as a shift.
    shift: u32,
}

impl Owners {
    pub(super) fn new(shift: u32) -> Owners {
        Owners { blocks: FxHashMap::default(), shift }
    }

    /// The extent that a fragment is in.
    pub(super) fn at(&self, frag: u64) -> Option<Extent> {
        let slot = self.blocks.get(&(frag >> self.shift))?;
        slot.all().iter().find(|e| e.start <= frag && frag < e.end()).copied()
    }

    /// Every extent, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.blocks.values().flat_map(Slot::all)
    }

    /// Where the next extent after `frag` in the same block starts, or where the block ends.
    pub(super) fn next_after(&self, frag: u64) -> u64 {
        let block = frag >> self.shift;
        let end = (block + 1) << self.shift;
        let extents = self.blocks.get(&block).map_or(&[][..], Slot::all);
        extents.iter().map(|e| e.start).filter(|s| *s > frag).min().unwrap_or(end)
    }

    /// Gives fragments to a file; who had any of them has them no more. Those beyond the first one's
    /// block are cut off.
    pub(super) fn claim(&mut self, extent: Extent) {
        let block = extent.start >> self.shift;
        let room = ((block + 1) << self.shift) - extent.start;
        let extent = Extent { frags: u64::from(extent.frags).min(room).max(1) as u8, ..extent };
        let Some(slot) = self.blocks.get_mut(&block) else {
            self.blocks.insert(block, Slot::One(extent));
            return;
        };
        let apart = |e: &Extent| e.end() <= extent.start || extent.end() <= e.start;
        let mut rest: Vec<Extent> = slot.all().iter().filter(|e| apart(e)).copied().collect();
        *slot = if rest.is_empty() {
            Slot::One(extent)
        } else {
            rest.push(extent);
            Slot::Many(rest)
        };
    }

    /// Takes the extent that starts at `start` from `ino`, if it is that file's.
    pub(super) fn release(&mut self, start: u64, ino: u32) {
        let block = start >> self.shift;
        let mine = |e: &Extent| e.start == start && e.ino == ino;
        match self.blocks.get_mut(&block) {
            Some(Slot::Many(extents)) => {
                extents.retain(|e| !mine(e));
                if extents.is_empty() {
                    self.blocks.remove(&block);
                }
            }
            Some(Slot::One(extent)) if mine(extent) => {
                self.blocks.remove(&block);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims and releases of fragments in a block, against what each fragment's owner must be.
    #[test]
    fn fragments_have_one_owner() {
        let mut owners = Owners::new(3);
        let extent = |start, frags, ino| Extent { start, frags, ino, role: Role::Data { lbn: 0 } };
        let who = |o: &Owners| (8..16).map(|f| o.at(f).map_or(0, |e| e.ino)).collect::<Vec<_>>();
        owners.claim(extent(8, 3, 1));
        owners.claim(extent(12, 2, 2));
        assert_eq!(who(&owners), [1, 1, 1, 0, 2, 2, 0, 0]);
        assert_eq!((owners.next_after(9), owners.next_after(13)), (12, 16));
        owners.claim(extent(10, 9, 3));
        assert_eq!(who(&owners), [0, 0, 3, 3, 3, 3, 3, 3], "whole extents are given up");
        owners.release(10, 1);
        owners.release(11, 3);
        assert_eq!(who(&owners)[2], 3, "released by another, or from its middle");
        owners.release(10, 3);
        assert_eq!(who(&owners), [0; 8]);
        assert!(owners.blocks.is_empty());
    }
}
