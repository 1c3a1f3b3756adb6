//! The three kinds of dependency, and their numbers.
//!
//! | here | what it is | FreeBSD's structures that it stands for |
//! |---|---|---|
//! | [`Change`] | bytes of a block that can be rolled back in the block's image | `diradd`, `dirrem` and `mkdir` of an entry; `allocdirect` and `allocindir` of a pointer; the saved fields of `inodedep` |
//! | [`Written`] | met when a block's contents as they are now are on disk, whatever else is rolled back in them | the block's side of `newblk` and `bmsafemap`: `DEPCOMPLETE`, `COMPLETE` |
//! | [`Free`] | a resource that is freed when the pointers to it have been reset on disk | `freeblks`, `freefrag`, `freefile` |

use std::num::NonZeroU32;

use ordo_cache::BufKey;
use smallvec::SmallVec;

use super::rollback::Rollback;
use super::slab::{List, SlabIndex, Stamped};
use crate::DeferredFree;

/// A flag in a cell's number, for the second of two cells that start at one byte.
pub(super) const FLAG: u32 = 1 << 31;

/// A few nodes.
pub(super) type Ids = SmallVec<[Id; 2]>;

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Change,
    Written,
    Free,
}

/// The number of a node. Once the node has ended, the number finds nothing: that shows that the
/// dependency is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id {
    /// The index in the slab of its kind. The two highest bits give the kind.
    index: u32,
    stamp: NonZeroU32,
}

impl Id {
    pub(super) fn new(kind: Kind, index: u32, stamp: NonZeroU32) -> Id {
        assert!(index < 1 << 30, "more than a billion dependencies of one kind");
        Id { index: index | (kind as u32) << 30, stamp }
    }

    pub(super) fn kind(self) -> Kind {
        match self.index >> 30 {
            0 => Kind::Change,
            1 => Kind::Written,
            _ => Kind::Free,
        }
    }

    pub(super) fn place(self) -> SlabIndex {
        SlabIndex { index: self.index & ((1 << 30) - 1), stamp: self.stamp }
    }
}

/// A change of a cell. A cell is an inode's link count, the rest of an inode, a pointer, or a
/// directory entry. Changes of one cell build on one another: no image has one without those before
/// it, so an image always shows a state that the cell had.
pub(super) struct Change {
    pub stamp: u32,
    /// The number of nodes for which the change waits. An operation that is not complete counts as
    /// one.
    pub unmet: u32,
    /// The block that was changed.
    pub block: BufKey,
    /// The inode that was changed, or for which the entry stands; 0 for none.
    pub subject: u64,
    /// The number of nodes that were made before this one.
    pub age: u64,
    pub rollback: Rollback,
    /// An earlier change of the same cell that is never in an image without this one.
    pub with: Option<Id>,
    /// The first byte of the cell in the block.
    pub cell: u32,
    /// The nodes for which this change waits.
    pub needs: List,
    /// The nodes that wait for this change.
    pub waiting: List,
    /// Addresses of blocks that the inode gained in this change.
    pub placed: List,
    /// Whether the change has been in an image, and so is on disk unless that write is lost.
    pub included: bool,
    /// Whether the change is the first contents of an inode that was free.
    pub first: bool,
}

/// A node that ends when a block is on disk with its present contents.
pub(super) struct Written {
    pub stamp: u32,
    /// The nodes that wait for this one.
    pub waiting: List,
    pub block: BufKey,
}

/// A resource that will be freed.
pub(super) struct Free {
    pub stamp: u32,
    pub unmet: u32,
    pub needs: List,
    pub what: Option<DeferredFree>,
}

impl Stamped for Change {
    fn stamp(&self) -> u32 {
        self.stamp
    }

    fn vacant() -> Change {
        Change {
            stamp: 0,
            unmet: 0,
            block: BufKey::device(0),
            subject: 0,
            age: 0,
            rollback: Rollback::Nothing,
            with: None,
            cell: 0,
            needs: List::default(),
            waiting: List::default(),
            placed: List::default(),
            included: false,
            first: false,
        }
    }
}

impl Stamped for Written {
    fn stamp(&self) -> u32 {
        self.stamp
    }

    fn vacant() -> Written {
        Written { stamp: 0, waiting: List::default(), block: BufKey::device(0) }
    }
}

impl Stamped for Free {
    fn stamp(&self) -> u32 {
        self.stamp
    }

    fn vacant() -> Free {
        Free { stamp: 0, unmet: 0, needs: List::default(), what: None }
    }
}

// The bound on memory for dependencies limits how far the disk may be behind, so a node's size is
// part of the design.
const _: () = assert!(size_of::<Change>() <= 88 && size_of::<Written>() <= 24);
const _: () = assert!(size_of::<Free>() <= 40 && size_of::<Option<Id>>() == 8);
