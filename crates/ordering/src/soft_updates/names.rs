//! Names: what must be on disk for an inode to be found, and which names are still there.

use ordo_cache::BufKey;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::graph::Graph;
use super::inode::{Chunk, Name};
use super::node::{FLAG, Id, Ids};

/// Two names with one hash only wait for one another without need.
fn name_hash(dir: u64, name: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write_u64(dir);
    hasher.write(name);
    hasher.finish()
}

impl Graph {
    /// Says by which change a block of a directory is found, from byte `from` on.
    pub(super) fn set_parent(&mut self, key: BufKey, id: Id, from: u32) {
        let parents = &mut self.lists(key).parents;
        if let Some((_, earlier)) = parents.iter_mut().find(|(parent, _)| *parent == id) {
            *earlier = from.min(*earlier);
        } else {
            parents.push((id, from));
            self.blocks_by_parent.entry(id).or_default().push(key);
        }
    }

    /// The parent links that must be on disk for a change of a directory's block to be found: of a cell, or of the block
    /// as a whole. They are the directory's size, and the pointer to the block where it is not in the inode. An entry that
    /// is taken away in space that cannot be found yet is away.
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

    /// The entries that must be on disk for one in the directory `dir` to be found: the directory's, its
    /// parent's, and so on.
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

    /// A directory gets another name.
    pub(super) fn note_moved(&mut self, id: Id) {
        self.moved.push(id);
        self.moved = self.live(&self.moved);
    }

    /// The names of directories that have changed and are not on disk.
    pub(super) fn moved(&self) -> Ids {
        self.live(&self.moved)
    }

    /// The directory of the entry that a change makes, or whose inode it changes.
    fn dir_of(&self, id: Id) -> Option<u64> {
        self.change(id).map(|c| if c.block.file == 0 { c.subject } else { c.block.file })
    }

    /// The directories with names of an inode that cannot be found yet.
    pub(super) fn directories_of(&self, ino: u64) -> SmallVec<[u64; 2]> {
        let pending = self.inodes.names(ino).filter_map(|name| self.dir_of(name.id));
        pending.chain(self.inodes.hidden_in(ino)).collect()
    }

    /// What must be on disk for an inode to be found by its names other than the one at a place, which has the
    /// changes `own`: the other names, the `new` ones of this operation among them, and the ways to all.
    pub(super) fn other_names(&self, ino: u64, at: (BufKey, u32), own: &[Id], new: &[Id]) -> Ids {
        // Its own name may be on disk, and wait for the way to it.
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

    /// A name of an inode, in `dir`, is on disk or gone: it is found as soon as `parents` are on disk.
    pub(super) fn unname(&mut self, ino: u64, id: Id, parents: &[Name], dir: u64) {
        if !self.inodes.retain_names(ino, |name| name.id != id) {
            return;
        }
        for parent in parents {
            if self.inodes.add_name(ino, *parent) {
                self.names_by_parent.entry(parent.id).or_default().push(ino);
            }
        }
        if parents.is_empty() {
            // The name that was not on disk is.
            if self.inodes.is_hidden(dir) {
                self.inodes.hide(ino, dir);
            }
            self.note_found(ino);
        }
    }

    /// A name is taken away for good, whether it could be found or not.
    pub(super) fn forget_name(&mut self, ino: u64, at: (BufKey, u32)) {
        if self.inodes.retain_names(ino, |name| name.at != at) && !self.inodes.has_names(ino) {
            self.note_found(ino);
        }
    }

    /// All names of an inode may be found by now, and so may what has names in it.
    fn note_found(&mut self, ino: u64) {
        let mut found = vec![ino];
        while let Some(dir) = found.pop() {
            if !self.inodes.is_hidden(dir) {
                self.inodes.reveal(dir, &mut found);
            }
        }
    }

    /// An entry was taken away that may still be on disk until `id` is.
    pub(super) fn note_removed(&mut self, dir: u64, name: &[u8], id: Id, chunk: Chunk) {
        let name = name_hash(dir, name);
        self.removed.insert(name, (id, chunk));
        self.removed_with.entry(id).or_default().push(name);
    }

    /// What must be on disk before there is an entry of this name in `chunk`: the end of another one, unless
    /// they change places in one piece.
    pub(super) fn same_name(&self, dir: u64, name: &[u8], chunk: Chunk) -> Option<Id> {
        let (id, place) = *self.removed.get(&name_hash(dir, name))?;
        (place != chunk).then_some(id)
    }
}
