//! Names: the nodes that must be on disk before an inode can be found, and the removed names that
//! may still be on disk.

use ordo_cache::BufKey;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::graph::Graph;
use super::inode::{Chunk, Name};
use super::node::{FLAG, Id, Ids};

/// The number of names at which the first search for those without a meaning is made.
const PASSED_KEPT: usize = 256;

/// A hash of a name. Two names with the same hash only wait for one another without need.
fn name_hash(dir: u64, name: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write_u64(dir);
    hasher.write(name);
    hasher.finish()
}

impl Graph {
    /// Notes the change through which a block of a directory is found, from byte `from` on.
    pub(super) fn set_parent(&mut self, key: BufKey, id: Id, from: u32) {
        let parents = &mut self.lists(key).parents;
        if let Some((_, earlier)) = parents.iter_mut().find(|(parent, _)| *parent == id) {
            *earlier = from.min(*earlier);
        } else {
            parents.push((id, from));
            self.blocks_by_parent.entry(id).or_default().push(key);
        }
    }

    /// The parent links that must be on disk before a change of a directory's block can be found:
    /// the links of one cell, or of the whole block. They are the directory's size, and the pointer
    /// to the block if it is not in the inode. An entry in space that cannot be found yet is
    /// already gone when it is removed.
    pub(super) fn parents_at(&self, key: BufKey, cell: Option<u32>) -> Ids {
        let Some(block) = self.blocks.get(&key).filter(|b| !b.parents().is_empty()) else {
            return Ids::new();
        };
        let at = cell.map_or(0, |cell| cell & !FLAG);
        let before = || block.parents().iter().filter(|(_, from)| at >= *from).map(|(id, _)| *id);
        let in_inode = |id: &Id| self.block_of(*id).is_some_and(|block| block.file == 0);
        let outside = before().filter(|id| !in_inode(id));
        self.live(&before().rfind(in_inode).into_iter().chain(outside).collect::<Ids>())
    }

    /// The parent links of a directory's block.
    pub(super) fn parents_of(&self, key: BufKey) -> impl Iterator<Item = Id> + '_ {
        self.blocks
            .get(&key)
            .into_iter()
            .flat_map(|block| block.parents().iter().map(|(id, _)| *id))
    }

    /// The entries that must be on disk before a name in the directory `dir` can be found: the
    /// directory's own entry, its parent's, and so on up to the root.
    pub(super) fn path_to(&self, dir: u64, out: &mut Ids) {
        let mut dirs = vec![dir];
        let mut seen = FxHashSet::default();
        while let Some(dir) = dirs.pop() {
            if !seen.insert(dir) {
                continue;
            }
            out.extend(self.inodes.names(dir).map(|name| name.id));
            dirs.extend(self.directories_of(dir));
        }
    }

    /// Notes that a directory gets another name.
    pub(super) fn note_moved(&mut self, id: Id) {
        self.moved.push(id);
        self.moved = self.live(&self.moved);
    }

    /// The new names of directories that are not on disk.
    pub(super) fn moved(&self) -> Ids {
        self.live(&self.moved)
    }

    /// The directory that contains the entry which a change makes, or which it gives to another
    /// inode.
    fn dir_of(&self, id: Id) -> Option<u64> {
        self.change(id).map(|c| if c.block.file == 0 { c.subject } else { c.block.file })
    }

    /// The directories in which an inode has names that cannot be found yet.
    pub(super) fn directories_of(&self, ino: u64) -> SmallVec<[u64; 2]> {
        let pending = self.inodes.names(ino).filter_map(|name| self.dir_of(name.id));
        pending.chain(self.inodes.hidden_in(ino)).collect()
    }

    /// The nodes that must be on disk before an inode can be found by its names other than the one
    /// at `at`, which has the changes `own`. The nodes are the entries of the other names,
    /// including the `new` ones of this operation, and the paths to all of them.
    pub(super) fn other_names(&self, ino: u64, at: (BufKey, u32), own: &[Id], new: &[Id]) -> Ids {
        // The entry at `at` may itself be on disk, while the path to it is not.
        let names = self.inodes.names(ino).filter(|n| !own.contains(&n.id) && n.at != at);
        let mut needs: Ids = names.map(|n| n.id).chain(new.iter().copied()).collect();
        let hidden_in = self.inodes.hidden_in(ino);
        let mut dirs: SmallVec<[u64; 2]> = hidden_in.filter(|d| *d != at.0.file).collect();
        dirs.extend(needs.iter().filter_map(|id| self.dir_of(*id)));
        for dir in dirs {
            self.path_to(dir, &mut needs);
        }
        needs
    }

    /// Notes that a name of an inode, in `dir`, is on disk or gone: the name can be found as soon
    /// as `parents` are on disk.
    pub(super) fn unname(&mut self, ino: u64, id: Id, parents: &[Id], dir: u64) {
        let Some(Name { at, .. }) = self.inodes.names(ino).find(|name| name.id == id) else {
            return;
        };
        self.inodes.retain_names(ino, |name| name.id != id);
        for parent in parents {
            if self.inodes.add_name(ino, Name { id: *parent, at }) {
                self.names_by_parent.entry(*parent).or_default().push(ino);
            }
        }
        if parents.is_empty() {
            // The name was not on disk before; now it is.
            if self.inodes.is_hidden(dir) {
                self.inodes.hide(ino, dir);
            }
            self.note_found(ino);
        }
    }

    /// Notes that a name is removed for good, whether it could be found or not.
    pub(super) fn forget_name(&mut self, ino: u64, at: (BufKey, u32)) {
        if self.inodes.retain_names(ino, |name| name.at != at) && !self.inodes.has_names(ino) {
            self.note_found(ino);
        }
    }

    /// Marks an inode's names as findable if all of them are, and with them the names in the inode
    /// if it is a directory.
    fn note_found(&mut self, ino: u64) {
        let mut found = vec![ino];
        while let Some(dir) = found.pop() {
            if !self.inodes.is_hidden(dir) {
                self.inodes.reveal(dir, &mut found);
            }
        }
    }

    /// Notes the removal of an entry that may be on disk until the node `id` has ended.
    pub(super) fn note_removed(&mut self, dir: u64, name: &[u8], id: Id, chunk: Chunk) {
        let name = name_hash(dir, name);
        self.removed.insert(name, (id, chunk));
        self.removed_with.entry(id).or_default().push(name);
    }

    /// The node that must end before an entry of this name may be on disk in `chunk`: the removal
    /// of another entry of that name. There is none if both are in one chunk, because they change
    /// together.
    pub(super) fn same_name(&self, dir: u64, name: &[u8], chunk: Chunk) -> Option<Id> {
        let (id, place) = *self.removed.get(&name_hash(dir, name))?;
        (place != chunk).then_some(id)
    }

    /// Notes that an entry which never was on disk is removed, while inodes that it stood for have
    /// other names that are not on disk either.
    pub(super) fn note_passed(&mut self, dir: u64, name: &[u8], inodes: &[u64]) {
        if inodes.is_empty() {
            return;
        }
        if self.passed.len() >= self.passed_max.max(PASSED_KEPT) {
            let mut passed = std::mem::take(&mut self.passed);
            passed.retain(|_, inodes| inodes.iter().any(|ino| self.is_missing(*ino)));
            self.passed_max = 2 * passed.len();
            self.passed = passed;
        }
        let name = name_hash(dir, name);
        let mut all = self.passed.remove(&name).unwrap_or_default();
        all.extend(inodes.iter().copied());
        all.sort_unstable();
        all.dedup();
        all.retain(|ino| self.is_missing(*ino));
        if !all.is_empty() {
            self.passed.insert(name, all);
        }
    }

    /// Whether an inode that still has a name in memory has one that is not on disk.
    fn is_missing(&self, ino: u64) -> bool {
        self.inodes.get(ino).dropped.is_none() && self.inodes.is_hidden(ino)
    }

    /// The nodes that must end before `name` may be on disk for `child`: the present names of the
    /// inodes that had it in memory before, and no other one on disk. A file that is renamed, and
    /// whose first name another file gets, is not lost when only the other file is made durable.
    pub(super) fn passed_from(&self, dir: u64, name: &[u8], child: u64) -> Ids {
        let mut needs = Ids::new();
        for ino in self.passed.get(&name_hash(dir, name)).into_iter().flatten() {
            if *ino != child && self.is_missing(*ino) {
                let nowhere = (BufKey::device(0), 0);
                needs.extend(self.other_names(*ino, nowhere, &[], &[]));
            }
        }
        needs
    }
}
