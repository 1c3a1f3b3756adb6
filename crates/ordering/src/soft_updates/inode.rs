//! What is pending for one inode (FreeBSD's `inodedep`), and for its names.

use ordo_cache::BufKey;
use rustc_hash::FxHashMap;

use super::node::Id;
use super::slab::{List, Lists};

/// A name that cannot be found on disk: the change that must be on disk for that, and the block and the cell of its entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub id: Id,
    pub at: (BufKey, u32),
}

/// A chunk of a directory: its block, and the chunk's number in the block.
pub(super) type Chunk = (BufKey, u32);

/// What is pending for one inode.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InodeDeps {
    /// The latest pending change of its count of links.
    pub links: Option<Id>,
    /// The latest pending change of everything else in it.
    pub body: Option<Id>,
    /// The change with which its count of links became 0.
    pub dropped: Option<Id>,
    /// That change, where it is kept back until the inode is freed: on disk a directory without links has no contents
    /// either.
    pub kept: Option<Id>,
    /// Its names that cannot be found on disk.
    names: List,
    /// Directories, not to be found themselves, in which it has names that are on disk.
    hidden_in: List,
    /// The inodes that are hidden in this one, a directory.
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
    /// What is pending for an inode.
    pub(super) fn get(&self, ino: u64) -> InodeDeps {
        self.all.get(&ino).copied().unwrap_or_default()
    }

    /// Changes what is pending for an inode, and forgets the inode where nothing is left.
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

    /// An inode gets a name that cannot be found on disk; false where it had it.
    pub(super) fn add_name(&mut self, ino: u64, name: Name) -> bool {
        self.edit(ino, |deps, names, _| {
            let new = !names.iter(deps.names).any(|n| n == name);
            if new {
                names.push(&mut deps.names, name);
            }
            new
        })
    }

    /// Keeps some of an inode's names; false where it had none.
    pub(super) fn retain_names(&mut self, ino: u64, keep: impl Fn(&Name) -> bool) -> bool {
        if !self.has_names(ino) {
            return false;
        }
        self.edit(ino, |deps, names, _| names.retain(&mut deps.names, keep));
        true
    }

    /// Whether an inode has a name that cannot be found on disk.
    pub(super) fn has_names(&self, ino: u64) -> bool {
        self.get(ino).names != List::default()
    }

    /// Whether an inode has a name that cannot be found yet: itself, or since its directory cannot.
    pub(super) fn is_hidden(&self, ino: u64) -> bool {
        let deps = self.get(ino);
        deps.names != List::default() || deps.hidden_in != List::default()
    }

    /// The directories, not to be found themselves, in which an inode has names that are on disk.
    pub(super) fn hidden_in(&self, ino: u64) -> impl Iterator<Item = u64> + '_ {
        self.numbers.iter(self.get(ino).hidden_in)
    }

    /// A name of an inode is on disk, in a directory that cannot be found yet.
    pub(super) fn hide(&mut self, ino: u64, dir: u64) {
        if self.hidden_in(ino).any(|d| d == dir) {
            return;
        }
        self.edit(ino, |deps, _, numbers| numbers.push(&mut deps.hidden_in, dir));
        self.edit(dir, |deps, _, numbers| numbers.push(&mut deps.hides, ino));
    }

    /// A directory can be found; `found` gets the inodes that can be found with it.
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

    /// Bytes of all that is there.
    pub(super) fn bytes(&self) -> usize {
        self.all.len() * super::memory::in_map(size_of::<(u64, InodeDeps)>())
            + self.names.bytes()
            + self.numbers.bytes()
    }

    /// Gives memory back where no inode is pending.
    pub(super) fn release(&mut self, kept: usize) {
        if self.all.is_empty() {
            self.names.release();
            self.numbers.release();
            self.all.shrink_to(kept);
        }
    }
}
