//! The pending changes of one inode (FreeBSD's `inodedep`), and of its names.

use ordo_cache::BufKey;
use rustc_hash::FxHashMap;

use super::node::Id;
use super::slab::{List, Lists};

/// A name that cannot be found on disk yet: the change that must be on disk first, and the block
/// and first byte of the name's entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub id: Id,
    pub at: (BufKey, u32),
}

/// A chunk of a directory: its block, and the chunk's number in the block.
pub(super) type Chunk = (BufKey, u32);

/// The pending changes of one inode.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InodeDeps {
    /// The latest pending change of the inode's link count.
    pub links: Option<Id>,
    /// The latest pending change of the rest of the inode.
    pub body: Option<Id>,
    /// The change with which the inode's link count became 0.
    pub dropped: Option<Id>,
    /// The change in `dropped`, if it is kept back until the inode is freed. On disk, a directory
    /// without links then has no contents either.
    pub kept: Option<Id>,
    /// The inode's names that cannot be found on disk yet.
    names: List,
    /// Directories that cannot be found yet, although an entry in them for this inode is on disk.
    hidden_in: List,
    /// For a directory that cannot be found yet: the inodes whose entries in it are on disk.
    hides: List,
}

/// The pending inodes, by number.
#[derive(Default)]
pub(super) struct Inodes {
    all: FxHashMap<u64, InodeDeps>,
    names: Lists<Name>,
    numbers: Lists<u64>,
}

impl Inodes {
    /// The pending changes of an inode.
    pub(super) fn get(&self, ino: u64) -> InodeDeps {
        self.all.get(&ino).copied().unwrap_or_default()
    }

    /// Changes the record of an inode. The record is dropped when nothing is pending any more.
    pub(super) fn update<T>(&mut self, ino: u64, change: impl FnOnce(&mut InodeDeps) -> T) -> T {
        self.edit(ino, |deps, _, _| change(deps))
    }

    fn edit<T>(
        &mut self,
        ino: u64,
        change: impl FnOnce(&mut InodeDeps, &mut Lists<Name>, &mut Lists<u64>) -> T,
    ) -> T {
        let deps = self.all.entry(ino).or_default();
        let out = change(deps, &mut self.names, &mut self.numbers);
        if *deps == InodeDeps::default() {
            self.all.remove(&ino);
        }
        out
    }

    /// The names of an inode that cannot be found on disk, newest first.
    pub(super) fn names(&self, ino: u64) -> impl Iterator<Item = Name> + '_ {
        self.names.iter(self.get(ino).names)
    }

    /// Adds a name that cannot be found on disk yet. Returns false if the inode had it already.
    pub(super) fn add_name(&mut self, ino: u64, name: Name) -> bool {
        self.edit(ino, |deps, names, _| {
            let new = !names.iter(deps.names).any(|n| n == name);
            if new {
                names.push(&mut deps.names, name);
            }
            new
        })
    }

    /// Keeps some of an inode's names. Returns false if it had none.
    pub(super) fn retain_names(&mut self, ino: u64, keep: impl Fn(&Name) -> bool) -> bool {
        if !self.has_names(ino) {
            return false;
        }
        self.edit(ino, |deps, names, _| names.retain(&mut deps.names, keep));
        true
    }

    /// Whether an inode has a name that is not on disk yet.
    pub(super) fn has_names(&self, ino: u64) -> bool {
        self.get(ino).names != List::default()
    }

    /// Whether some name of an inode cannot be found yet, because of its own entry or because of
    /// its directory.
    pub(super) fn is_hidden(&self, ino: u64) -> bool {
        let deps = self.get(ino);
        deps.names != List::default() || deps.hidden_in != List::default()
    }

    /// Directories that cannot be found yet, although an entry in them for this inode is on disk.
    pub(super) fn hidden_in(&self, ino: u64) -> impl Iterator<Item = u64> + '_ {
        self.numbers.iter(self.get(ino).hidden_in)
    }

    /// Notes that a name of an inode is on disk, in a directory that cannot be found yet.
    pub(super) fn hide(&mut self, ino: u64, dir: u64) {
        if self.hidden_in(ino).any(|d| d == dir) {
            return;
        }
        self.edit(ino, |deps, _, numbers| numbers.push(&mut deps.hidden_in, dir));
        self.edit(dir, |deps, _, numbers| numbers.push(&mut deps.hides, ino));
    }

    /// Notes that a directory can be found. `found` gets the inodes that can be found with it.
    pub(super) fn reveal(&mut self, dir: u64, found: &mut Vec<u64>) {
        if self.get(dir).hides == List::default() {
            return;
        }
        let inodes = self.edit(dir, |deps, _, numbers| numbers.take::<[u64; 4]>(&mut deps.hides));
        for ino in inodes {
            self.edit(ino, |deps, _, numbers| numbers.remove(&mut deps.hidden_in, dir));
            if self.get(ino).hidden_in == List::default() {
                found.push(ino);
            }
        }
    }

    /// The memory of all records, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.len() * super::memory::in_map(size_of::<(u64, InodeDeps)>())
            + self.names.bytes()
            + self.numbers.bytes()
    }

    /// Frees memory while no inode is pending.
    pub(super) fn release(&mut self, kept: usize) {
        if self.all.is_empty() {
            self.names.release();
            self.numbers.release();
            self.all.shrink_to(kept);
        }
    }
}
