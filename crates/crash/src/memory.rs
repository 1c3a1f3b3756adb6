//! What was found of files and directories, kept while what it was read from stays the same.
//!
//! Neighbouring states differ in few sectors. Who looks at one reads anew what depends on these: a directory's entries,
//! an inode with what is in it. What it depends on is seen at the disk: the sectors that were read for it, which are
//! its own alone, and the sector of its inode. Two things are read for many at once, and hold for all of them: the
//! superblock, without which nothing is known; and that a group's inodes are in use up to one of them.

use std::ops::Range;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_ffs::mount::{Found, find_superblock};
use ordo_vfs::{FileSystem, Ino};
use rustc_hash::FxHashMap;

use crate::disk::{SECTOR, Scratch};
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

/// What was found of one disk.
#[derive(Default)]
pub(crate) struct Memory {
    nodes: FxHashMap<Ino, Rc<Node>>,
    listings: FxHashMap<Ino, Rc<Listing>>,
    /// By sector, what depends on it.
    parts: FxHashMap<u64, Vec<Part>>,
    superblock: Option<Found>,
    /// Whether that is what is on the disk.
    is_current: bool,
    /// By group, the last inode of which it is known that the group holds it.
    holds: FxHashMap<u32, Ino>,
    versions: u64,
}

/// Whether two superblocks say the same of where things are, and of what is believed.
fn is_alike(a: &Found, b: &Found) -> bool {
    let of = |f: &Found| {
        let sb = &f.sb;
        let sizes = (sb.bsize, sb.fsize, sb.size, sb.ncg, sb.fpg, sb.ipg, sb.inopb, sb.magic);
        let places = (sb.sblkno, sb.cblkno, sb.iblkno, sb.dblkno, sb.csaddr, sb.cssize, sb.cgsize);
        let believed = (sb.maxsymlinklen, sb.flags, sb.metackhash, sb.clean, sb.maxfilesize);
        (sizes, places, believed, f.at, f.torn)
    };
    of(a) == of(b) && a.endian == b.endian
}

impl Memory {
    /// Forgets what depends on sectors of the disk that changed since the last time. False where nothing can be kept of
    /// it: it has no superblock.
    pub async fn catch_up(&mut self, disk: &Rc<Scratch>) -> bool {
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
        let found = find_superblock(&disk.clone().erase()).await;
        let read = disk.logged();
        let Ok(found) = found else {
            *self = Memory { versions: self.versions, ..Memory::default() };
            return false;
        };
        if self.superblock.as_ref().is_none_or(|before| !is_alike(before, &found)) {
            *self = Memory { versions: self.versions, ..Memory::default() };
        }
        self.superblock = Some(found);
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
        let Some(Found { sb, .. }) = &self.superblock else { return };
        let own = |sector: &u64| {
            let addr = (sector * SECTOR as u64) >> sb.fshift;
            sb.has_frags(addr, 1) && sb.is_own(addr, 1)
        };
        let mut sectors: Vec<u64> = read.into_iter().flatten().filter(|s| !own(s)).collect();
        let (block, at) = sb.inode_block(ino.0);
        sectors.push((sb.byte_of(block) + at as u64) / SECTOR as u64);
        sectors.into_iter().for_each(|sector| self.depends(sector, part));
    }

    /// Sees that the groups hold all these inodes: they say up to which one theirs are in use. False if one does not:
    /// what is known of its inodes is forgotten.
    pub async fn settle<F: FileSystem>(&mut self, fs: &F, reached: &[Ino]) -> bool {
        let Some(Found { sb, .. }) = &self.superblock else { return true };
        let mut last: FxHashMap<u32, Ino> = FxHashMap::default();
        for ino in reached {
            let most = last.entry(sb.ino_group(ino.0)).or_insert(*ino);
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
            let Some(Found { sb, .. }) = &self.superblock else { return true };
            let first = sb.byte_of(sb.cg_header(group)) / SECTOR as u64;
            let sectors = first..first + (sb.cgsize as u64).div_ceil(SECTOR as u64);
            sectors.for_each(|sector| self.depends(sector, Part::Group(group)));
        }
        true
    }

    fn forget_group(&mut self, group: u32) {
        let Some(Found { sb, .. }) = &self.superblock else { return };
        self.holds.remove(&group);
        self.nodes.retain(|ino, _| sb.ino_group(ino.0) != group);
        self.listings.retain(|ino, _| sb.ino_group(ino.0) != group);
    }
}
