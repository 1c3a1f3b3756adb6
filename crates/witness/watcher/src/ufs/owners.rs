//! The file to which each fragment belongs.

use rustc_hash::FxHashMap;

/// The role of a block in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A block of its contents.
    Data { lbn: u64 },
    /// An indirect block: addresses of blocks, `level` steps away from the contents, from logical
    /// block `first_lbn` on.
    Indirect { level: u8, first_lbn: u64 },
    /// Extended attributes.
    Attributes,
}

/// Fragments of one block that belong to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The address of the first fragment.
    pub(super) start: u64,
    pub(super) frags: u8,
    pub(super) ino: u32,
    pub(super) role: Role,
}

impl Extent {
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.frags)
    }

    /// Whether both extents come from one pointer. A file that grows gets more fragments of a block
    /// by the same pointer.
    fn same_pointer(&self, other: &Extent) -> bool {
        (self.start, self.ino, self.role) == (other.start, other.ino, other.role)
    }
}

/// The extents of one block, of which there is nearly always one.
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

/// The owners of all fragments with a known owner. Extents do not overlap, and none crosses a
/// block.
///
/// Without an ordering, two files on the disk may own one block for a while, because an old
/// indirect block that has not been overwritten yet still has its addresses. The latest claim wins.
/// The earlier owner is remembered as long as its pointer is there, and gets the fragments back
/// when the later claim is given up.
#[derive(Debug, Default)]
pub(super) struct Owners {
    blocks: FxHashMap<u64, Slot>,
    /// For each block, the extents that lost fragments to a later claim, the latest last.
    contested: FxHashMap<u64, Vec<Extent>>,
    /// Blocks in which a claim was given up and contested extents remain.
    given_up: Vec<u64>,
    /// The number of fragments in a block, as a shift.
    shift: u32,
}

impl Owners {
    pub(super) fn new(shift: u32) -> Owners {
        Owners { shift, ..Owners::default() }
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

    /// The start of the next extent after `frag` in the same block, or the block's end.
    pub(super) fn next_after(&self, frag: u64) -> u64 {
        let block = frag >> self.shift;
        let end = (block + 1) << self.shift;
        let extents = self.blocks.get(&block).map_or(&[][..], Slot::all);
        extents.iter().map(|e| e.start).filter(|s| *s > frag).min().unwrap_or(end)
    }

    /// Gives fragments to a file; a previous owner loses them. Fragments beyond the block of the
    /// first one are left out.
    pub(super) fn claim(&mut self, extent: Extent) {
        let block = extent.start >> self.shift;
        let capacity = ((block + 1) << self.shift) - extent.start;
        let extent = Extent { frags: u64::from(extent.frags).min(capacity).max(1) as u8, ..extent };
        self.withdraw(block, |e| e.same_pointer(&extent));
        let Some(slot) = self.blocks.get_mut(&block) else {
            self.blocks.insert(block, Slot::One(extent));
            return;
        };
        let mut rest: Vec<Extent> = Vec::new();
        for old in slot.all() {
            if are_disjoint(old, &extent) {
                rest.push(*old);
            } else if !old.same_pointer(&extent) {
                self.contested.entry(block).or_default().push(*old);
            }
        }
        *slot = if rest.is_empty() {
            Slot::One(extent)
        } else {
            rest.push(extent);
            Slot::Many(rest)
        };
    }

    /// Takes the extent that starts at `start` from the file `ino`, if that file got it by a
    /// pointer of this role.
    pub(super) fn release(&mut self, start: u64, ino: u32, role: Role) {
        let block = start >> self.shift;
        let mine = |e: &Extent| e.same_pointer(&Extent { start, frags: 0, ino, role });
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
        self.withdraw(block, mine);
        if self.contested.contains_key(&block) {
            self.given_up.push(block);
        }
    }

    /// Removes a contested extent: its file has it again, or no longer points to it.
    fn withdraw(&mut self, block: u64, whose: impl Fn(&Extent) -> bool) {
        if let Some(extents) = self.contested.get_mut(&block) {
            extents.retain(|e| !whose(e));
            if extents.is_empty() {
                self.contested.remove(&block);
            }
        }
    }

    /// A contested extent whose fragments no other file claims any more.
    pub(super) fn next_to_release(&mut self) -> Option<Extent> {
        while let Some(block) = self.given_up.last() {
            let owned = self.blocks.get(block).map_or(&[][..], Slot::all);
            let is_free = |e: &&Extent| owned.iter().all(|other| are_disjoint(e, other));
            let contested = self.contested.get(block).into_iter().flatten();
            if let Some(extent) = contested.rev().find(is_free) {
                return Some(*extent);
            }
            self.given_up.pop();
        }
        None
    }
}

/// Whether two extents have no fragment in common.
fn are_disjoint(a: &Extent, b: &Extent) -> bool {
    a.end() <= b.start || b.end() <= a.start
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims and releases of fragments in a block are compared with a model that has one owner for
    /// each fragment.
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
        let role = Role::Data { lbn: 0 };
        owners.release(10, 1, role);
        owners.release(11, 3, role);
        owners.release(10, 3, Role::Attributes);
        assert_eq!(who(&owners)[2], 3, "released by another, from its middle, by another pointer");
        owners.release(10, 3, role);
        assert_eq!(who(&owners), [0; 8]);
        assert!(owners.blocks.is_empty());
    }

    /// A file that lost fragments to another file gets them back when the other file gives them up,
    /// the latest claim first. It does not get them if its own pointer is gone by then, or if other
    /// files still have some of them.
    #[test]
    fn contested_fragments_go_back_to_the_earlier_owner() {
        let mut owners = Owners::new(3);
        let role = Role::Data { lbn: 0 };
        let extent = |start, frags, ino| Extent { start, frags, ino, role };
        owners.claim(extent(8, 8, 1));
        owners.claim(extent(8, 2, 2));
        owners.claim(extent(12, 2, 3));
        owners.release(8, 2, role);
        assert_eq!(owners.next_to_release(), None, "the third still has some");
        owners.release(12, 3, role);
        assert_eq!(owners.next_to_release(), Some(extent(8, 8, 1)));
        owners.claim(extent(8, 8, 1));
        assert_eq!(owners.next_to_release(), None);
        owners.claim(extent(8, 8, 4));
        owners.claim(extent(8, 8, 5));
        owners.release(8, 4, role);
        owners.release(8, 5, role);
        assert_eq!(owners.next_to_release(), Some(extent(8, 8, 1)), "the fourth gave it up");
        owners.claim(extent(8, 8, 1));
        owners.claim(Extent { role: Role::Attributes, ..extent(8, 8, 1) });
        owners.release(8, 1, Role::Attributes);
        assert_eq!(owners.next_to_release(), Some(extent(8, 8, 1)), "its own, by another pointer");
        owners.release(8, 1, role);
        assert_eq!(owners.next_to_release(), None);
        assert!(owners.contested.is_empty() && owners.blocks.is_empty());
    }
}
