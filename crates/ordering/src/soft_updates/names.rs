//! Names: what must be on disk for an inode to be found, and which names are still there.

use ordo_cache::BufKey;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::graph::{Chunk, FLAG, Graph, Id, Ids, Name, Node};

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
    pub(super) fn set_home(&mut self, key: BufKey, id: Id, from: u32) {
        let block = self.blocks.entry(key).or_default();
        if let Some((_, earlier)) = block.homes.iter_mut().find(|(home, _)| *home == id) {
            *earlier = from.min(*earlier);
        } else {
            block.homes.push((id, from));
            self.homes.entry(id).or_default().push(key);
        }
    }

    /// What must be on disk for a change of a directory's block to be seen that is: of a cell, or of the block as a
    /// whole. That is the directory's size, and the pointer to the block where it is not in the inode. What is taken away
    /// in space that is not seen yet is away.
    pub(super) fn homes_at(&self, key: BufKey, cell: Option<u32>) -> Ids {
        let Some(block) = self.blocks.get(&key) else { return Ids::new() };
        let at = cell.map_or(0, |cell| cell & !FLAG);
        let before = || block.homes.iter().filter(|(_, from)| at >= *from).map(|(id, _)| *id);
        let in_inode = |id: &Id| self.get(*id).is_some_and(|n| n.key.file == 0);
        let outside = before().filter(|id| !in_inode(id));
        self.live(&before().rfind(in_inode).into_iter().chain(outside).collect::<Ids>())
    }

    /// The changes by which a block of a directory is found.
    pub(super) fn homes_of(&self, key: BufKey) -> impl Iterator<Item = Id> + '_ {
        self.blocks.get(&key).into_iter().flat_map(|block| block.homes.iter().map(|(id, _)| *id))
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
            out.extend(self.names.get(&dir).into_iter().flatten().map(|name| name.id));
            dirs.extend(self.parents(dir));
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

    /// The directory of the entry that a change makes, or whose inode it is.
    fn dir_of(&self, id: Id) -> Option<u64> {
        let dir = |n: &Node| if n.key.file == 0 { n.subject } else { n.key.file };
        self.get(id).map(dir)
    }

    /// The directories with names of an inode that cannot be found yet.
    pub(super) fn parents(&self, ino: u64) -> SmallVec<[u64; 2]> {
        let names = self.names.get(&ino).into_iter().flatten();
        let pending = names.filter_map(|name| self.dir_of(name.id));
        pending.chain(self.below.get(&ino).into_iter().flatten().copied()).collect()
    }

    /// What must be on disk for an inode to be found by its names other than the one at a place, which has the
    /// changes `own`: the other names, the `new` ones of this operation among them, and the ways to all.
    pub(super) fn other_names(&self, ino: u64, at: (BufKey, u32), own: &[Id], new: &[Id]) -> Ids {
        // Its own name may be on disk, and wait for the way to it.
        let others = |n: &&Name| !own.contains(&n.id) && n.at != at;
        let names = self.names.get(&ino).into_iter().flatten().filter(others);
        let mut needs: Ids = names.map(|n| n.id).chain(new.iter().copied()).collect();
        let below = self.below.get(&ino).into_iter().flatten();
        let mut dirs: SmallVec<[u64; 2]> = below.copied().filter(|d| *d != at.0.file).collect();
        dirs.extend(needs.iter().filter_map(|id| self.dir_of(*id)));
        for dir in dirs {
            self.path_to(dir, &mut needs);
        }
        needs
    }

    /// A name of an inode, in `dir`, is on disk or gone: then it is found as soon as `homes` are on disk.
    pub(super) fn unname(&mut self, ino: u64, id: Id, homes: &[Name], dir: u64) {
        let Some(names) = self.names.get_mut(&ino) else { return };
        names.retain(|n| n.id != id);
        for home in homes {
            if !names.contains(home) {
                names.push(*home);
                self.named_by.entry(home.id).or_default().push(ino);
            }
        }
        if homes.is_empty() {
            if names.is_empty() {
                self.names.remove(&ino);
            }
            self.note_named(ino, dir);
        }
    }

    /// A name is taken away for good, whether it could be found or not.
    pub(super) fn forget_name(&mut self, ino: u64, at: (BufKey, u32)) {
        let Some(names) = self.names.get_mut(&ino) else { return };
        names.retain(|n| n.at != at);
        if names.is_empty() {
            self.names.remove(&ino);
            self.note_found(ino);
        }
    }

    /// A name of an inode that was not on disk is, in `dir`.
    fn note_named(&mut self, ino: u64, dir: u64) {
        if self.is_hidden(dir) {
            let dirs = self.below.entry(ino).or_default();
            if !dirs.contains(&dir) {
                dirs.push(dir);
                self.above.entry(dir).or_default().push(ino);
            }
        }
        self.note_found(ino);
    }

    /// Whether an inode has a name that cannot be found yet.
    fn is_hidden(&self, ino: u64) -> bool {
        self.names.contains_key(&ino) || self.below.contains_key(&ino)
    }

    /// All names of an inode may be found by now, and so may what has names in it.
    fn note_found(&mut self, ino: u64) {
        let mut found = vec![ino];
        while let Some(dir) = found.pop() {
            if self.is_hidden(dir) {
                continue;
            }
            for ino in self.above.remove(&dir).unwrap_or_default() {
                if let Some(dirs) = self.below.get_mut(&ino) {
                    dirs.retain(|d| *d != dir);
                    if dirs.is_empty() {
                        self.below.remove(&ino);
                        found.push(ino);
                    }
                }
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
