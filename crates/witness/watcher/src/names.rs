//! Paths of files, from the names in directories that were seen.
//!
//! A name belongs to one file, although its inode number may be used again by others. The name ends
//! when the inode is freed, when the inode has another generation, and when the directory block
//! that held it is written without it. The events of the present request are in
//! [`Names::name_events`], so that a listener can finish with a file before its inode number means
//! another one.

use std::cell::RefCell;
use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

/// The most inodes with names that are kept; beyond that, no new ones are learned.
const MOST: usize = 1 << 20;
/// The greatest depth of a path: a file that is deeper, or in a circle of directories, has no path.
const DEPTH_MAX: usize = 256;
/// The most names of one inode that are kept; the oldest goes first.
const LINKS_MAX: usize = 8;
/// The most events of one request that are kept: more than any request has blocks. Beyond that,
/// listeners lose only paths.
const EVENTS_MAX: usize = 1 << 20;

/// An event of the present request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameEvent {
    /// The inode has a name that it did not have.
    Added(u64),
    /// The inode was freed, or is used again: its number means no file, or another one, from now
    /// on.
    Ended {
        /// The inode.
        ino: u64,
        /// The last path of the file that is gone.
        path: Option<Arc<str>>,
    },
}

/// One name of an inode.
#[derive(Debug)]
struct Name {
    dir: u64,
    name: Box<[u8]>,
    /// The number of directory blocks that hold the name: for a moment, an entry that moves is in
    /// two.
    blocks: u32,
    /// The batch in which it was seen last.
    batch: Option<u64>,
}

/// The entries of a directory block: inodes and sums of names, in the block's order.
#[derive(Debug)]
struct Listed {
    dir: u64,
    entries: Box<[(u64, u64)]>,
}

/// Finds the entries of a directory block among those that it had before. Most are where they were,
/// or a little further on, and are found at once.
struct OldEntries<'a> {
    entries: &'a [(u64, u64)],
    next: usize,
    /// The entries in their own order; made when one is not found at once.
    sorted: Option<Vec<(u64, u64)>>,
}

impl<'a> OldEntries<'a> {
    /// How far ahead an entry is looked for where others were removed before it.
    const AHEAD: usize = 4;

    fn new(entries: &'a [(u64, u64)]) -> OldEntries<'a> {
        OldEntries { entries, next: 0, sorted: None }
    }

    fn have(&mut self, key: (u64, u64)) -> bool {
        let ahead = self.entries[self.next..].iter().take(Self::AHEAD);
        if let Some(skipped) = ahead.into_iter().position(|old| *old == key) {
            self.next += skipped + 1;
            return true;
        }
        let sorted = self.sorted.get_or_insert_with(|| {
            let mut sorted = self.entries.to_vec();
            sorted.sort_unstable();
            sorted
        });
        sorted.binary_search(&key).is_ok()
    }
}

/// The names that were seen of each file, the newest last, and their directories.
#[derive(Debug, Default)]
pub struct Names {
    root: u64,
    all: FxHashMap<u64, Vec<Name>>,
    /// Names of removed files, in directory blocks that were not written since. Another file may
    /// have the same inode and name by now.
    stale: FxHashMap<u64, Vec<Name>>,
    /// The generation of each inode in use.
    generations: FxHashMap<u64, u32>,
    /// Directory blocks by any number that identifies them.
    blocks: FxHashMap<u64, Listed>,
    /// The number of the transaction, or of another unit, whose blocks show one moment of the file
    /// system.
    batch: Option<u64>,
    /// Whether all blocks of the batch show the same moment, and not only moments near each other.
    is_exact: bool,
    name_events: Vec<NameEvent>,
    /// Paths that were looked up since the last change.
    paths: RefCell<FxHashMap<u64, Option<Arc<str>>>>,
}

fn sum(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}

impl Names {
    /// Sets the root's inode.
    pub(crate) fn set_root(&mut self, ino: u64) {
        self.root = ino;
    }

    /// Begins a unit, such as a transaction, to which everything seen from now on belongs; `None`
    /// if there are no units. With `is_exact`, everything in it shows one moment: the end of that
    /// unit.
    pub(crate) fn begin_batch(&mut self, batch: Option<u64>, is_exact: bool) {
        (self.batch, self.is_exact) = (batch, is_exact);
    }

    /// Takes in a name that was seen in a directory. It replaces every other name of the inode.
    pub(crate) fn seen(&mut self, dir: u64, name: &[u8], ino: u64) {
        if let Some([only]) = self.all.get(&ino).map(Vec::as_slice)
            && only.dir == dir
            && *only.name == *name
        {
            return;
        }
        if self.is_nameable(name, ino) && self.all.contains_key(&ino) {
            self.all.remove(&ino);
        }
        self.added(dir, name, ino, 0);
    }

    fn is_nameable(&self, name: &[u8], ino: u64) -> bool {
        !matches!(name, b"." | b"..") && ino != self.root
    }

    /// Adds a name, or makes it the newest; `blocks` more directory blocks hold it.
    pub(crate) fn added(&mut self, dir: u64, name: &[u8], ino: u64, blocks: u32) {
        if !self.is_nameable(name, ino) || (self.all.len() >= MOST && !self.all.contains_key(&ino))
        {
            return;
        }
        let batch = self.batch;
        let names = self.all.entry(ino).or_default();
        let known = names.iter().position(|n| n.dir == dir && *n.name == *name);
        match known {
            Some(at) => {
                names[at].blocks = names[at].blocks.saturating_add(blocks);
                if self.is_exact {
                    names[at].batch = batch;
                }
            }
            None => {
                if names.len() >= LINKS_MAX {
                    names.remove(0);
                }
                if let Some(stale) = self.stale.get_mut(&ino) {
                    stale.retain(|n| n.dir != dir || *n.name != *name);
                }
                names.push(Name { dir, name: name.into(), blocks, batch });
                self.paths.borrow_mut().clear();
                self.add_event(NameEvent::Added(ino));
            }
        }
    }

    /// Takes away the names of an inode for which `is_it` holds, and which no other directory block
    /// holds.
    fn remove(&mut self, ino: u64, blocks: u32, is_it: impl Fn(&Name) -> bool) {
        let Some(names) = self.all.get_mut(&ino) else { return };
        let Some(at) = names.iter().position(is_it) else { return };
        if names[at].blocks > blocks {
            names[at].blocks -= blocks;
            return;
        }
        names.remove(at);
        if names.is_empty() {
            self.all.remove(&ino);
        }
        self.paths.borrow_mut().clear();
    }

    /// Takes in that a name was removed from a directory.
    pub(crate) fn removed(&mut self, dir: u64, name: &[u8], ino: u64) {
        self.remove(ino, u32::MAX, |n| n.dir == dir && *n.name == *name);
    }

    /// Takes in the contents of a block of the directory `dir`: names that the block had and has no
    /// longer are gone. `block` is any number that identifies the block; `entries` calls its
    /// argument with each name and inode.
    pub(crate) fn listed(
        &mut self,
        block: u64,
        dir: u64,
        entries: impl FnOnce(&mut dyn FnMut(&[u8], u64)),
    ) {
        let old = self.blocks.remove(&block);
        let (was, old) = old.map_or((dir, Box::default()), |old| (old.dir, old.entries));
        let mut new: Vec<(u64, u64)> = Vec::with_capacity(old.len() + 1);
        let mut before = OldEntries::new(&old);
        entries(&mut |name, ino| {
            let key = (ino, sum(name));
            new.push(key);
            let had = was == dir && before.have(key);
            let is_it = |n: &&mut Name| n.dir == dir && *n.name == *name && n.blocks > 0;
            let names = self.all.get_mut(&ino).filter(|_| had);
            match names.and_then(|names| names.iter_mut().find(is_it)) {
                Some(known) if self.is_exact => known.batch = self.batch,
                Some(_) => {}
                None => self.added(dir, name, ino, 1),
            }
        });
        let mut after = OldEntries::new(&new);
        for key in old.iter().filter(|key| was != dir || !after.have(**key)) {
            let is_it = |n: &Name| n.dir == was && sum(&n.name) == key.1;
            self.remove(key.0, 1, is_it);
            if let Some(stale) = self.stale.get_mut(&key.0) {
                stale.retain(|n| !is_it(n));
            }
        }
        if !new.is_empty() && self.blocks.len() < MOST {
            self.blocks.insert(block, Listed { dir, entries: new.into() });
        }
    }

    /// Takes in an inode that was written, with its generation; `None` if it is free. If the inode
    /// belongs to another file now, its names end, except for names that the present batch showed.
    pub(crate) fn inode(&mut self, ino: u64, generation: Option<u32>) {
        let capacity = self.generations.len() < MOST;
        let Some(generation) = generation else {
            if self.generations.remove(&ino).is_some() {
                self.ended(ino, false);
            }
            return;
        };
        match self.generations.get_mut(&ino) {
            Some(was) if *was == generation => {}
            Some(was) => {
                *was = generation;
                self.ended(ino, true);
            }
            None if capacity => drop(self.generations.insert(ino, generation)),
            None => {}
        }
    }

    fn ended(&mut self, ino: u64, used_again: bool) {
        let batch = self.batch;
        let is_new = |n: &Name| used_again && batch.is_some() && n.batch == batch;
        let names = self.all.remove(&ino).unwrap_or_default();
        let (new, old): (Vec<Name>, Vec<Name>) = names.into_iter().partition(is_new);
        let path = old.last().and_then(|name| self.join(name.dir, &name.name));
        let listed: Vec<Name> = old.into_iter().filter(|name| name.blocks > 0).collect();
        if !listed.is_empty() && self.stale.len() < MOST {
            self.stale.insert(ino, listed);
        }
        if !new.is_empty() {
            self.all.insert(ino, new);
        }
        self.paths.borrow_mut().clear();
        self.add_event(NameEvent::Ended { ino, path });
        if self.all.contains_key(&ino) {
            self.add_event(NameEvent::Added(ino));
        }
    }

    fn add_event(&mut self, event: NameEvent) {
        if self.name_events.len() < EVENTS_MAX {
            self.name_events.push(event);
        }
    }

    /// Takes the place of the names of another file system, which is gone: every file of it ends.
    pub(crate) fn take_over(&mut self, before: &Names) {
        self.forget_news();
        let mut gone: Vec<u64> = before.all.keys().copied().collect();
        gone.sort_unstable();
        for ino in gone {
            self.add_event(NameEvent::Ended { ino, path: before.path(ino) });
        }
    }

    /// Ends a trace. Names of removed files in directory blocks that were not written since are
    /// given to the files that have their inodes now.
    pub(crate) fn end(&mut self) {
        for (ino, names) in std::mem::take(&mut self.stale) {
            if self.generations.contains_key(&ino) && !self.all.contains_key(&ino) {
                self.all.insert(ino, names);
            }
        }
        self.paths.borrow_mut().clear();
    }

    /// The events of the present request, in order.
    pub fn name_events(&self) -> &[NameEvent] {
        &self.name_events
    }

    /// Begins a request: forgets the events of the one before.
    pub(crate) fn forget_news(&mut self) {
        self.name_events.clear();
    }

    /// The path of a file by its last name, from `/`; `None` if a name on the way was not seen.
    pub fn path(&self, ino: u64) -> Option<Arc<str>> {
        if self.all.is_empty() {
            return None;
        }
        if let Some(path) = self.paths.borrow().get(&ino) {
            return path.clone();
        }
        let path = self.build(ino).ok();
        let mut paths = self.paths.borrow_mut();
        if paths.len() >= MOST {
            paths.clear();
        }
        paths.insert(ino, path.clone());
        path
    }

    /// The file that has this path, by any of its names; `None` if none was seen. `path` is as
    /// [`path`](Self::path) shows one.
    pub fn find(&self, path: &str) -> Option<u64> {
        if path == "/" {
            return (self.path(self.root).as_deref() == Some(path)).then_some(self.root);
        }
        let has = |names: &[Name]| {
            names.iter().any(|name| self.join(name.dir, &name.name).as_deref() == Some(path))
        };
        // The order of a hash map must decide nothing: of several files, the first by its inode.
        self.all.iter().filter(|(_, names)| has(names)).map(|(ino, _)| *ino).min()
    }

    /// For a file without a path: the first inode on the way to the root whose name was not seen,
    /// or that is too deep.
    pub fn missing(&self, ino: u64) -> Option<u64> {
        self.build(ino).err()
    }

    fn newest(&self, ino: u64) -> Option<(u64, &[u8])> {
        let name = self.all.get(&ino)?.last()?;
        Some((name.dir, &name.name))
    }

    fn join(&self, dir: u64, name: &[u8]) -> Option<Arc<str>> {
        let above = self.path(dir)?;
        let above = if &*above == "/" { "" } else { &*above };
        Some(format!("{above}/{}", ordo_shown::name(name)).into())
    }

    fn build(&self, ino: u64) -> Result<Arc<str>, u64> {
        let (mut at, mut names) = (ino, Vec::new());
        while at != self.root {
            let (dir, name) = self.newest(at).ok_or(at)?;
            names.push(ordo_shown::name(name));
            if names.len() > DEPTH_MAX {
                return Err(at);
            }
            at = dir;
        }
        names.reverse();
        Ok(format!("/{}", names.join("/")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file is renamed and its directory moves: the path follows. A circle, and a parent that was
    /// never seen, give no path.
    #[test]
    fn a_path_follows_the_last_names() {
        let mut names = Names::default();
        names.set_root(2);
        names.seen(2, b"dir", 12);
        names.seen(12, b"old", 13);
        assert_eq!(names.path(13).as_deref(), Some("/dir/old"));
        names.seen(12, b"new", 13);
        names.seen(2, b"moved", 12);
        assert_eq!(names.path(13).as_deref(), Some("/moved/new"));
        assert_eq!(names.path(2).as_deref(), Some("/"));
        names.seen(99, b"stray", 14);
        assert_eq!(names.path(14), None);
        names.seen(13, b"circle", 12);
        assert_eq!(names.path(13), None);
    }
    fn list(names: &mut Names, block: u64, dir: u64, entries: &[(&str, u64)]) {
        names.listed(block, dir, |each| entries.iter().for_each(|(n, i)| each(n.as_bytes(), *i)));
    }

    /// `one` is removed, its inode becomes `two`, and that is renamed to `three`. The directory's
    /// block and the inode come in either order within a transaction, and the path is never that of
    /// the file that is gone. Catches names that outlive their file.
    #[test]
    fn a_name_goes_with_its_file() {
        for inode_first in [false, true] {
            let mut names = Names::default();
            names.set_root(2);
            let mut step = |batch, entries: &[(&str, u64)], generation| {
                names.forget_news();
                names.begin_batch(Some(batch), true);
                if inode_first {
                    names.inode(12, generation);
                }
                list(&mut names, 77, 2, entries);
                if !inode_first {
                    names.inode(12, generation);
                }
                let ended = names.name_events().iter().find_map(|change| match change {
                    NameEvent::Ended { path, .. } => Some(path.as_deref().map(str::to_owned)),
                    NameEvent::Added(_) => None,
                });
                (names.path(12).as_deref().map(str::to_owned), ended)
            };
            let path = |name: &str| Some(name.to_owned());
            assert_eq!(step(1, &[("one", 12)], Some(5)), (path("/one"), None));
            let (now, ended) = step(2, &[("two", 12)], Some(6));
            assert_eq!(now, path("/two"), "inode first: {inode_first}");
            assert!(ended.is_some(), "the first file has ended");
            assert_eq!(step(3, &[("three", 12)], Some(6)), (path("/three"), None));
            assert_eq!(step(4, &[], None).0, None);
            // The same name for the next file in the same inode.
            assert_eq!(step(5, &[("three", 12)], Some(7)).0, path("/three"));
            assert_eq!(step(6, &[("three", 12)], Some(8)).0, path("/three"));
        }
    }

    /// An entry moves from one directory block to another, in either order of writing; a file with
    /// two names loses the newer one. Catches a name that is lost because one of two blocks gave it
    /// up, and one that is kept.
    #[test]
    fn a_name_stays_as_long_as_some_block_has_it() {
        let mut names = Names::default();
        names.set_root(2);
        list(&mut names, 1, 2, &[("a", 12), ("b", 13)]);
        list(&mut names, 2, 2, &[("b", 13)]);
        list(&mut names, 1, 2, &[("a", 12)]);
        assert_eq!(names.path(13).as_deref(), Some("/b"));
        list(&mut names, 2, 2, &[]);
        assert_eq!(names.path(13), None);
        list(&mut names, 2, 2, &[("a2", 12)]);
        assert_eq!(names.path(12).as_deref(), Some("/a2"));
        list(&mut names, 2, 2, &[]);
        assert_eq!(names.path(12).as_deref(), Some("/a"));
        assert_eq!(names.missing(13), Some(13));
        // The block becomes another directory's.
        list(&mut names, 1, 99, &[("a", 12)]);
        assert_eq!((names.path(12), names.missing(12)), (None, Some(99)));
    }
}
