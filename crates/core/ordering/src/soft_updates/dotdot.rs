//! The `..` entries on disk that may still lead to a directory that was itself removed.
//!
//! A removed directory stays on disk until its inode is cleared, and its `..` with it. If a file
//! got the parent's inode before that, the `..` would lead to a file, and `fsck -p` of FreeBSD
//! stops there. FreeBSD lowers the parent's link count only when the child is cleared (the second
//! `dirrem` of a removed directory). Here the parent's inode is freed only then.

use ordo_cache::BufKey;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::graph::Graph;
use super::memory::in_map;
use super::node::{Id, Ids};

/// The number of nodes at which the first search for ended ones is made.
const KEPT: usize = 256;

/// A directory that was removed and is not cleared yet.
struct Removed {
    /// The node that ends with the clearing.
    cleared: Id,
    /// The directories to which its `..` may lead on disk.
    parents: SmallVec<[u64; 1]>,
}

/// The pending ends of `..` entries.
#[derive(Default)]
pub(super) struct DotDots {
    /// For each directory, the nodes with whose end a `..` no longer leads to the directory.
    ends: FxHashMap<u64, SmallVec<[Id; 1]>>,
    /// For each directory, the parents to which its `..` led, each with the pending change that
    /// ends this.
    moved: FxHashMap<u64, SmallVec<[(u64, Id); 1]>>,
    /// The directories that were removed and are not cleared yet.
    removed: FxHashMap<u64, Removed>,
    /// The number of nodes in `ends` and `moved`, including those that have ended.
    noted: usize,
    /// The number of nodes at which those that have ended are removed.
    noted_max: usize,
}

impl DotDots {
    fn note_end(&mut self, parent: u64, id: Id) {
        self.ends.entry(parent).or_default().push(id);
        self.noted += 1;
    }

    /// The memory of all this, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let list = size_of::<SmallVec<[(u64, Id); 1]>>();
        self.noted * size_of::<(u64, Id)>()
            + (self.ends.len() + self.moved.len()) * in_map(size_of::<u64>() + list)
            + self.removed.len() * in_map(size_of::<(u64, Removed)>())
    }

    /// The nodes that would end with the clearing of directories whose clearing has not begun.
    fn not_begun(&self) -> FxHashSet<Id> {
        self.removed.values().map(|removed| removed.cleared).collect()
    }
}

impl Graph {
    /// Notes that the `..` of a directory no longer leads to `parent` when the change `id` is on
    /// disk.
    pub(super) fn note_dotdot(&mut self, dir: u64, parent: u64, id: Id) {
        self.forget_ended();
        self.dotdots.note_end(parent, id);
        self.dotdots.moved.entry(dir).or_default().push((parent, id));
        self.dotdots.noted += 1;
    }

    /// Notes that a directory, whose `..` leads to `parent`, has lost its last name.
    pub(super) fn note_removed_directory(&mut self, dir: u64, parent: u64) {
        self.forget_ended();
        let cleared = self.add_unwritten(BufKey::file(dir, 0));
        let mut parents = SmallVec::from_slice(&[parent]);
        let moved = self.dotdots.moved.remove(&dir).unwrap_or_default();
        self.dotdots.noted -= moved.len();
        let pending = moved.iter().filter(|(_, id)| self.is_live(*id));
        parents.extend(pending.map(|(parent, _)| *parent));
        for parent in &parents {
            self.dotdots.note_end(*parent, cleared);
        }
        let before = self.dotdots.removed.insert(dir, Removed { cleared, parents });
        debug_assert!(before.is_none(), "directory {dir} was removed twice");
    }

    /// Notes that the change `by` clears an inode; `None` for an inode that never was and never
    /// will be on disk.
    pub(super) fn note_cleared(&mut self, ino: u64, by: Option<Id>) {
        let Some(removed) = self.dotdots.removed.remove(&ino) else { return };
        for (parent, by) in removed.parents.iter().filter_map(|parent| Some((*parent, by?))) {
            self.dotdots.note_end(parent, by);
        }
        self.replace(removed.cleared, by);
    }

    /// The nodes that must end before no `..` leads to a directory any more.
    pub(super) fn ends_of_dotdots(&self, ino: u64) -> Ids {
        self.dotdots.ends.get(&ino).map(|ends| self.live(ends)).unwrap_or_default()
    }

    /// The number of deferred frees that wait for a directory that a program still has open.
    pub(super) fn frees_held_by_open(&self) -> usize {
        let not_begun = self.dotdots.not_begun();
        if not_begun.is_empty() {
            return 0;
        }
        let frees = self.frees.iter().map(|(_, free)| free.needs);
        frees.filter(|needs| self.edges.iter(*needs).any(|id| not_begun.contains(&id))).count()
    }

    /// Removes ended nodes, once they may be half of all: so the work for each node is bounded.
    fn forget_ended(&mut self) {
        if self.dotdots.noted < self.dotdots.noted_max.max(KEPT) {
            return;
        }
        let mut dotdots = std::mem::take(&mut self.dotdots);
        dotdots.ends.retain(|_, ends| {
            ends.retain(|id| self.is_live(*id));
            !ends.is_empty()
        });
        dotdots.moved.retain(|_, moved| {
            moved.retain(|(_, id)| self.is_live(*id));
            !moved.is_empty()
        });
        let ends: usize = dotdots.ends.values().map(SmallVec::len).sum();
        dotdots.noted = ends + dotdots.moved.values().map(SmallVec::len).sum::<usize>();
        dotdots.noted_max = 2 * dotdots.noted;
        self.dotdots = dotdots;
    }
}
