//! The dependencies of one block.

use std::ops::Range;

use smallvec::SmallVec;

use super::node::{Id, Ids};

/// A write of a block, from the time its image was made until it is durable.
pub(super) struct Image {
    /// The buffer, identified by its address: after a block is forgotten, another buffer may have
    /// its key.
    pub who: usize,
    pub version: u64,
    pub holds: Ids,
}

/// The changes of a block, with their cells. Those of one cell are together, oldest first.
#[derive(Default)]
pub(super) struct Changes(Vec<(u32, Id)>);

impl Changes {
    /// All changes, by cell.
    pub(super) fn all(&self) -> &[(u32, Id)] {
        &self.0
    }

    /// The changes of one cell, oldest first.
    pub(super) fn of(&self, cell: u32) -> &[(u32, Id)] {
        let first = self.0.partition_point(|(c, _)| *c < cell);
        let count = self.0[first..].partition_point(|(c, _)| *c == cell);
        &self.0[first..first + count]
    }

    /// The changes of some cells.
    pub(super) fn within(&self, cells: &Range<u32>) -> &[(u32, Id)] {
        let first = self.0.partition_point(|(c, _)| *c < cells.start);
        let count = self.0[first..].partition_point(|(c, _)| *c < cells.end);
        &self.0[first..first + count]
    }

    /// Adds the newest change of a cell.
    pub(super) fn push(&mut self, cell: u32, id: Id) {
        let after = self.0.partition_point(|(c, _)| *c <= cell);
        self.0.insert(after, (cell, id));
    }

    pub(super) fn remove(&mut self, cell: u32, id: Id) {
        let first = self.0.partition_point(|(c, _)| *c < cell);
        if let Some(place) = self.0[first..].iter().position(|(_, i)| *i == id) {
            self.0.remove(first + place);
        }
    }

    /// Moves changes of several cells, given oldest first, to another cell, which has none.
    pub(super) fn join(&mut self, cells: &Range<u32>, cell: u32, oldest_first: &[Id]) {
        self.0.retain(|(c, _)| !cells.contains(c));
        let at = self.0.partition_point(|(c, _)| *c <= cell);
        self.0.splice(at..at, oldest_first.iter().map(|id| (cell, *id)));
    }
}

/// The lists of a block of metadata. A block of file data never has any.
#[derive(Default)]
pub(super) struct BlockLists {
    /// Changes that are not on disk.
    pub changes: Changes,
    /// Writes that are not durable.
    pub images: Vec<Image>,
    /// The *parent links* of a directory's block: the changes of the directory's inode, or of a
    /// pointer, that lead to the block, each with the first byte to which it leads, oldest first.
    /// Until they are on disk, entries in the block can be written but not found.
    pub parents: SmallVec<[(Id, u32); 1]>,
}

/// The dependencies of a block (FreeBSD hangs them from `b_dep` of the buffer).
#[derive(Default)]
pub(super) struct BlockDeps {
    /// The block-written dependency that the next image meets.
    pub written: Option<Id>,
    lists: Option<Box<BlockLists>>,
    /// The number of the block's changes that wait for something.
    pub held: u32,
    /// Whether an image made now would show any change that the last one did not.
    pub news: bool,
}

impl BlockDeps {
    /// Changes that are not on disk, by cell.
    pub(super) fn changes(&self) -> &[(u32, Id)] {
        self.lists.as_ref().map_or(&[], |lists| lists.changes.all())
    }

    /// The changes of one cell, oldest first.
    pub(super) fn of(&self, cell: u32) -> &[(u32, Id)] {
        self.lists.as_ref().map_or(&[], |lists| lists.changes.of(cell))
    }

    /// The changes of some cells.
    pub(super) fn within(&self, cells: &Range<u32>) -> &[(u32, Id)] {
        self.lists.as_ref().map_or(&[], |lists| lists.changes.within(cells))
    }

    /// Writes that are not durable.
    pub(super) fn images(&self) -> &[Image] {
        self.lists.as_ref().map_or(&[], |lists| &lists.images)
    }

    /// The parent links, oldest first.
    pub(super) fn parents(&self) -> &[(Id, u32)] {
        self.lists.as_ref().map_or(&[], |lists| &lists.parents)
    }

    /// The lists, if there are any.
    pub(super) fn lists(&mut self) -> Option<&mut BlockLists> {
        self.lists.as_deref_mut()
    }

    /// The lists; allocates them where there are none.
    pub(super) fn make_lists(&mut self) -> &mut BlockLists {
        self.lists.get_or_insert_default()
    }

    /// Whether memory for lists is allocated.
    pub(super) fn has_lists(&self) -> bool {
        self.lists.is_some()
    }

    /// Drops empty lists.
    pub(super) fn tidy(&mut self) {
        let empty = |l: &mut Box<BlockLists>| {
            l.changes.0.is_empty() && l.images.is_empty() && l.parents.is_empty()
        };
        self.lists.take_if(empty);
    }

    /// Whether the block has no dependencies.
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_none() && self.written.is_none()
    }
}
