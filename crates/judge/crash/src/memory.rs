//! A cache of files and directories that were read, kept as long as the sectors on which they
//! depend stay the same.
//!
//! Neighbouring states differ in few sectors. Only the parts of the tree that depend on these are
//! read again: the entries of a directory, an inode with its contents. The disk shows these
//! dependencies: the sectors that were read for a part and belong to it alone, and the sector of
//! its inode. Two facts concern many parts at once: the superblock, without which nothing is known,
//! and the number of the last inode in use of each group.

use std::ops::Range;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_vfs::{FileSystem, Ino};
use rustc_hash::FxHashMap;

use crate::disk::Scratch;
use crate::format::{DiskFormat, InodePlaces};
use crate::tree::{Listing, Node};

/// A part of a tree that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ReadUnit {
    /// The superblock.
    Super,
    /// A group's header.
    Group(u32),
    /// An inode and its contents.
    Node(Ino),
    /// The entries of a directory.
    Listing(Ino),
}

/// A disk, and the knowledge of its format.
pub(crate) struct Places<'a> {
    pub format: &'a dyn DiskFormat,
    pub disk: &'a Rc<Scratch>,
}

/// The parts that were read from one disk.
#[derive(Default)]
pub(crate) struct Memory {
    nodes: FxHashMap<Ino, Rc<Node>>,
    listings: FxHashMap<Ino, Rc<Listing>>,
    /// For each sector, the parts that depend on it.
    parts: FxHashMap<u64, Vec<ReadUnit>>,
    places: Option<Box<dyn InodePlaces>>,
    /// Whether the kept parts agree with the disk's present contents.
    is_current: bool,
    /// For each group, the highest inode number that the group is known to have in use.
    holds: FxHashMap<u32, Ino>,
    versions: u64,
}

impl Memory {
    /// Forgets the parts that depend on sectors which have changed since the last time. Returns
    /// false if nothing can be kept, because the disk has no superblock.
    pub async fn catch_up(&mut self, Places { format, disk }: &Places<'_>) -> bool {
        for sector in disk.take_changed() {
            for part in self.parts.remove(&sector).into_iter().flatten() {
                match part {
                    ReadUnit::Super => self.is_current = false,
                    ReadUnit::Group(group) => drop(self.holds.remove(&group)),
                    ReadUnit::Node(ino) => drop(self.nodes.remove(&ino)),
                    ReadUnit::Listing(ino) => drop(self.listings.remove(&ino)),
                }
            }
        }
        if self.is_current {
            return true;
        }
        disk.log();
        let device = (*disk).clone().erase();
        let found = format.places(&device).await;
        let read = disk.logged();
        let Some(found) = found else {
            *self = Memory { versions: self.versions, ..Memory::default() };
            return false;
        };
        if self.places.as_ref().is_none_or(|before| before.key() != found.key()) {
            *self = Memory { versions: self.versions, ..Memory::default() };
        }
        self.places = Some(found);
        self.is_current = true;
        read.into_iter().flatten().for_each(|sector| self.depends(sector, ReadUnit::Super));
        true
    }

    fn depends(&mut self, sector: u64, part: ReadUnit) {
        let parts = self.parts.entry(sector).or_default();
        if !parts.contains(&part) {
            parts.push(part);
        }
    }

    /// Whether any part that is kept depends on a sector.
    pub fn depends_on(&self, sector: u64) -> bool {
        self.parts.contains_key(&sector)
    }

    /// The kept contents of an inode.
    pub fn node(&self, ino: Ino) -> Option<Rc<Node>> {
        self.nodes.get(&ino).cloned()
    }

    /// The kept entries of a directory.
    pub fn listing(&self, dir: Ino) -> Option<Rc<Listing>> {
        self.listings.get(&dir).cloned()
    }

    /// Keeps the contents of an inode, for which these sectors were read.
    pub fn keep_node(&mut self, ino: Ino, mut node: Node, read: Vec<Range<u64>>) -> Rc<Node> {
        self.versions += 1;
        node.version = Some(self.versions);
        let node = Rc::new(node);
        self.nodes.insert(ino, node.clone());
        self.note(ino, ReadUnit::Node(ino), read);
        node
    }

    /// Keeps a directory's entries.
    pub fn keep_listing(&mut self, dir: Ino, listing: &Rc<Listing>, read: Vec<Range<u64>>) {
        self.listings.insert(dir, listing.clone());
        self.note(dir, ReadUnit::Listing(dir), read);
    }

    /// Notes the sectors on which a part of an inode depends: its own sector, and all that were
    /// read, except those of the file system's own structures.
    fn note(&mut self, ino: Ino, part: ReadUnit, read: Vec<Range<u64>>) {
        let Some(places) = &self.places else { return };
        let read = read.into_iter().flatten();
        let mut sectors: Vec<u64> = read.filter(|sector| !places.is_own(*sector)).collect();
        sectors.push(places.sector(ino));
        sectors.into_iter().for_each(|sector| self.depends(sector, part));
    }

    /// Checks that the groups still have all these inodes in use: each group records its last inode
    /// in use. Returns false if a group does not; then the parts of its inodes are forgotten.
    pub async fn settle<F: FileSystem>(&mut self, fs: &F, reached: &[Ino]) -> bool {
        let Some(places) = &self.places else { return true };
        let mut last: FxHashMap<u32, Ino> = FxHashMap::default();
        for ino in reached {
            let most = last.entry(places.group(*ino)).or_insert(*ino);
            *most = (*most).max(*ino);
        }
        let holds = |group: &u32, ino: &Ino| self.holds.get(group).is_some_and(|held| held >= ino);
        last.retain(|group, ino| !holds(group, ino));
        let mut unsettled: Vec<(u32, Ino)> = last.into_iter().collect();
        unsettled.sort_unstable();
        for (group, ino) in unsettled {
            if fs.getattr(ino).await.is_err() {
                self.forget_group(group);
                return false;
            }
            self.holds.insert(group, ino);
            let Some(places) = &self.places else { return true };
            let sectors = places.group_sectors(group);
            sectors.for_each(|sector| self.depends(sector, ReadUnit::Group(group)));
        }
        true
    }

    fn forget_group(&mut self, group: u32) {
        let Some(places) = &self.places else { return };
        self.holds.remove(&group);
        self.nodes.retain(|ino, _| places.group(*ino) != group);
        self.listings.retain(|ino, _| places.group(*ino) != group);
    }
}
