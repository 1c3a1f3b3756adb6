//! What was found of files and directories, kept while what it was read from stays the same.
//!
//! Neighbouring states differ in few sectors. Who looks at one reads anew what depends on these: a directory's entries,
//! an inode with what is in it. What it depends on is seen at the disk: the sectors that were read for it, which are
//! its own alone, and the sector of its inode. Two things are read for many at once, and hold for all of them: the
//! superblock, without which nothing is known; and that a group's inodes are in use up to one of them.

use std::ops::Range;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_vfs::{FileSystem, Ino};
use rustc_hash::FxHashMap;

use crate::disk::Scratch;
use crate::format::{DiskFormat, InodePlaces};
use crate::tree::{Listing, Node};

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// The superblock.
    Super,
    /// A group's header.
    Group(u32),
    /// An inode and its contents.
    Node(Ino),
    /// The entries of a directory.
    Listing(Ino),
}

/// A disk, and who knows what is on it.
pub(crate) struct Places<'a> {
    pub format: &'a dyn DiskFormat,
    pub disk: &'a Rc<Scratch>,
}

/// What was found of one disk.
#[derive(Default)]
pub(crate) struct Memory {
    nodes: FxHashMap<Ino, Rc<Node>>,
    listings: FxHashMap<Ino, Rc<Listing>>,
    /// By sector, what depends on it.
    parts: FxHashMap<u64, Vec<Part>>,
    places: Option<Box<dyn InodePlaces>>,
    /// Whether that is what is on the disk.
    is_current: bool,
    /// By group, the last inode of which it is known that the group holds it.
    holds: FxHashMap<u32, Ino>,
    versions: u64,
}

impl Memory {
    /// Forgets what depends on sectors of the disk that changed since the last time. False where nothing can be kept of
    /// it: it has no superblock.
    pub async fn catch_up(&mut self, Places { format, disk }: &Places<'_>) -> bool {
        for sector in disk.take_changed() {
            for part in self.parts.remove(&sector).into_iter().flatten() {
                match part {
                    Part::Super => self.is_current = false,
                    Part::Group(group) => drop(self.holds.remove(&group)),
                    Part::Node(ino) => drop(self.nodes.remove(&ino)),
                    Part::Listing(ino) => drop(self.listings.remove(&ino)),
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
        read.into_iter().flatten().for_each(|sector| self.depends(sector, Part::Super));
        true
    }

    fn depends(&mut self, sector: u64, part: Part) {
        let parts = self.parts.entry(sector).or_default();
        if !parts.contains(&part) {
            parts.push(part);
        }
    }

    /// Whether anything that is kept depends on a sector.
    pub fn depends_on(&self, sector: u64) -> bool {
        self.parts.contains_key(&sector)
    }

    /// What is known of an inode.
    pub fn node(&self, ino: Ino) -> Option<Rc<Node>> {
        self.nodes.get(&ino).cloned()
    }

    /// What is known of a directory's entries.
    pub fn listing(&self, dir: Ino) -> Option<Rc<Listing>> {
        self.listings.get(&dir).cloned()
    }

    /// Keeps what was found of an inode by reading these sectors.
    pub fn keep_node(&mut self, ino: Ino, mut node: Node, read: Vec<Range<u64>>) -> Rc<Node> {
        self.versions += 1;
        node.version = self.versions;
        let node = Rc::new(node);
        self.nodes.insert(ino, node.clone());
        self.note(ino, Part::Node(ino), read);
        node
    }

    /// Keeps a directory's entries.
    pub fn keep_listing(&mut self, dir: Ino, listing: &Rc<Listing>, read: Vec<Range<u64>>) {
        self.listings.insert(dir, listing.clone());
        self.note(dir, Part::Listing(dir), read);
    }

    /// Notes what a part of an inode depends on: its own sector, and all that was read but the file system's own.
    fn note(&mut self, ino: Ino, part: Part, read: Vec<Range<u64>>) {
        let Some(places) = &self.places else { return };
        let read = read.into_iter().flatten();
        let mut sectors: Vec<u64> = read.filter(|sector| !places.is_own(*sector)).collect();
        sectors.push(places.sector(ino));
        sectors.into_iter().for_each(|sector| self.depends(sector, part));
    }

    /// Sees that the groups hold all these inodes: they say up to which one theirs are in use. False if one does not:
    /// what is known of its inodes is forgotten.
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
            sectors.for_each(|sector| self.depends(sector, Part::Group(group)));
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
