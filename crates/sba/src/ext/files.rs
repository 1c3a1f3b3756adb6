//! Whose each block is, from inodes and the nodes of their maps.

use ordo_format::Endian;
use ordo_format::ext4::inode::mode;
use ordo_format::ext4::{Geometry, Inode};
use rustc_hash::FxHashMap;

use super::maps::{self, Entry, Shape};
use crate::decoder::{Books, Claim};
use crate::kind::Class;
use crate::runs::{Role, Run, Runs};

/// Nodes kept that nothing points to.
const STRAYS_MAX: usize = 4096;
/// The inode that holds the blocks kept for more group descriptors.
const RESIZE_INODE: u32 = 7;

/// What an inode said last.
#[derive(Debug, PartialEq, Eq)]
struct Root {
    class: Class,
    attributes: u64,
    entries: Box<[Entry]>,
}

/// What a node said last.
#[derive(Debug)]
struct Node {
    ino: u32,
    class: Class,
    shape: Shape,
    /// `None` until it is seen.
    entries: Option<Box<[Entry]>>,
}

/// A node that nothing points to, now or any more.
#[derive(Debug)]
enum Stray {
    Raw(Box<[u8]>),
    Read(Shape, Box<[Entry]>),
}

#[derive(Debug)]
pub(super) struct Files {
    g: Geometry,
    pub(super) runs: Runs,
    roots: FxHashMap<u32, Root>,
    nodes: FxHashMap<u64, Node>,
    strays: FxHashMap<u64, Stray>,
}

impl Files {
    pub(super) fn new(g: &Geometry) -> Files {
        Files {
            g: g.clone(),
            runs: Runs::default(),
            roots: FxHashMap::default(),
            nodes: FxHashMap::default(),
            strays: FxHashMap::default(),
        }
    }

    /// Nodes that were pointed to and not seen, in order.
    pub(super) fn unseen(&self) -> Vec<u64> {
        let unseen =
            self.nodes.iter().filter(|(_, n)| n.entries.is_none() && n.ino != RESIZE_INODE);
        let mut all: Vec<u64> = unseen.map(|(block, _)| *block).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn has_stray(&self, block: u64) -> bool {
        self.strays.contains_key(&block)
    }

    fn class_of(&self, ino: u32, inode: &Inode) -> Class {
        match ino {
            _ if ino == self.g.journal_inode => Class::JournalData,
            _ if ino == self.g.orphan_inode => Class::Orphans,
            _ if self.g.quota_inodes.contains(&ino) => Class::Quota,
            RESIZE_INODE => Class::GroupDescriptors,
            _ if inode.flags & Inode::EA_INODE != 0 => Class::ExtendedAttributes,
            _ => match inode.mode & mode::TYPE {
                mode::DIRECTORY => Class::Directory,
                mode::LINK => Class::Symlink,
                _ => Class::FileData,
            },
        }
    }

    /// An inode passes, at its place or in the journal.
    pub(super) fn inode_written(&mut self, ino: u32, raw: &[u8], books: &mut Books) {
        if ino == 0 || raw.len() < Inode::SIZE {
            return;
        }
        let inode = Inode::decode(raw, Endian::Little);
        let reserved = ino < 11;
        let used = match inode.mode {
            0 => reserved && inode.links_count > 0,
            // An orphan's time of deletion is the next orphan's number.
            _ => {
                inode.links_count > 0
                    || inode.dtime < self.g.groups.saturating_mul(self.g.inodes_per_group)
            }
        };
        let new = match used {
            false => None,
            true => Some(Root {
                class: self.class_of(ino, &inode),
                attributes: inode.attributes(),
                entries: match inode.has_pointers() {
                    true => maps::of_inode(&self.g, &inode).into(),
                    false => Box::default(),
                },
            }),
        };
        if self.roots.get(&ino) == new.as_ref() {
            return;
        }
        let old = self.roots.remove(&ino);
        let none = Root { class: Class::FileData, attributes: 0, entries: Box::default() };
        let (old, now) = (old.as_ref().unwrap_or(&none), new.as_ref().unwrap_or(&none));
        if old.class == now.class {
            self.change(ino, now.class, &old.entries, &now.entries, maps_extents(&inode), books);
        } else {
            self.change(ino, old.class, &old.entries, &[], false, books);
            self.change(ino, now.class, &[], &now.entries, maps_extents(&inode), books);
        }
        if old.attributes != now.attributes {
            self.runs.release(old.attributes, 1, ino.into());
            if now.attributes > self.g.first_block && now.attributes < self.g.blocks {
                let role = Role::Attributes;
                self.claim(now.attributes, 1, ino, Class::ExtendedAttributes, role, books);
            }
        }
        if let Some(root) = new {
            self.roots.insert(ino, root);
        }
    }

    /// A fast commit says that a file has an extent more.
    pub(super) fn range_added(&mut self, ino: u32, raw: &[u8], books: &mut Books) {
        let entry = maps::extent(raw);
        let end = entry.addr.checked_add(entry.len.into());
        if entry.addr > self.g.first_block && end.is_some_and(|end| end <= self.g.blocks) {
            let class = self.roots.get(&ino).map_or(Class::FileData, |root| root.class);
            let role = Role::Data { lbn: entry.lbn.into() };
            self.claim(entry.addr, entry.len.into(), ino, class, role, books);
        }
    }

    /// A node of a map passes: what it points to belongs to its file.
    pub(super) fn node_written(&mut self, block: u64, bytes: &[u8], books: &mut Books) {
        let Some(node) = self.nodes.get_mut(&block) else { return };
        if node.ino == RESIZE_INODE || bytes.len() != self.g.block_size() {
            return;
        }
        let (ino, class, shape) = (node.ino, node.class, node.shape);
        let new: Box<[Entry]> = maps::of_node(&self.g, bytes, shape).into();
        let old = node.entries.replace(new.clone()).unwrap_or_default();
        self.change(ino, class, &old, &new, shape.extents, books);
    }

    /// A block passes that nothing points to: keeps it where it could be a node.
    pub(super) fn stray_written(&mut self, block: u64, bytes: &[u8]) {
        if !maps::could_be_node(&self.g, bytes) {
            self.strays.remove(&block);
            return;
        }
        if self.strays.len() >= STRAYS_MAX {
            self.strays.clear();
        }
        self.strays.insert(block, Stray::Raw(bytes.into()));
    }

    /// What `ino` or one of its nodes points to has changed: takes what is gone, gives what is new.
    fn change(
        &mut self,
        ino: u32,
        class: Class,
        old: &[Entry],
        new: &[Entry],
        extents: bool,
        books: &mut Books,
    ) {
        if old == new {
            return;
        }
        // Both are in the order of the file, unless they are damaged: then a few entries too many move.
        let gone = |entry: &Entry, among: &[Entry]| {
            let near = among.partition_point(|e| e.lbn < entry.lbn);
            !among[near..].iter().take_while(|e| e.lbn == entry.lbn).any(|e| e == entry)
        };
        for entry in old.iter().filter(|e| gone(e, new)) {
            self.release(entry, ino);
        }
        for entry in new.iter().filter(|e| gone(e, old)) {
            self.give(entry, ino, class, extents, books);
        }
    }

    fn release(&mut self, entry: &Entry, ino: u32) {
        self.runs.release(entry.addr, entry.len.into(), ino.into());
        if entry.level == 0 {
            return;
        }
        let mine = |n: &Node| n.ino == ino && n.shape.level == entry.level;
        if !self.nodes.get(&entry.addr).is_some_and(mine) {
            return;
        }
        let Some(Node { shape, entries: Some(entries), .. }) = self.nodes.remove(&entry.addr)
        else {
            return;
        };
        // Levels fall: this ends.
        for below in entries.iter().filter(|e| e.level < entry.level) {
            self.release(below, ino);
        }
        // A tree that grows gives its nodes a new parent.
        if self.strays.len() < STRAYS_MAX {
            self.strays.insert(entry.addr, Stray::Read(shape, entries));
        }
    }

    fn give(&mut self, entry: &Entry, ino: u32, class: Class, extents: bool, books: &mut Books) {
        let lbn = u64::from(entry.lbn);
        if entry.level == 0 {
            self.claim(entry.addr, entry.len.into(), ino, class, Role::Data { lbn }, books);
            return;
        }
        let own = if extents { Class::ExtentNode } else { Class::Indirect };
        let own = if ino == RESIZE_INODE { Class::GroupDescriptors } else { own };
        let role = Role::Map { level: entry.level, extents, lbn };
        let stray = self.strays.remove(&entry.addr);
        self.claim(entry.addr, 1, ino, own, role, books);
        let shape = Shape { level: entry.level, extents, lbn: entry.lbn };
        let known = match stray {
            _ if ino == RESIZE_INODE => None,
            Some(Stray::Raw(bytes)) => Some(maps::of_node(&self.g, &bytes, shape).into()),
            Some(Stray::Read(was, entries)) if was == shape => Some(entries),
            _ => None,
        };
        let entries = known.clone();
        self.nodes.insert(entry.addr, Node { ino, class, shape, entries });
        for below in known.iter().flatten().filter(|e| e.level < entry.level) {
            self.give(below, ino, class, extents, books);
        }
    }

    fn claim(
        &mut self,
        start: u64,
        len: u64,
        ino: u32,
        class: Class,
        role: Role,
        books: &mut Books,
    ) {
        // Blocks of another's map that are contents now were given up in memory only.
        if !self.nodes.is_empty() && len <= 64 {
            (start..start + len).for_each(|block| drop(self.nodes.remove(&block)));
        } else {
            self.nodes.retain(|block, _| !(start..start + len).contains(block));
        }
        if len <= 64 {
            (start..start + len).for_each(|block| drop(self.strays.remove(&block)));
        } else {
            self.strays.retain(|block, _| !(start..start + len).contains(block));
        }
        self.runs.claim(Run { start, len, ino: ino.into(), class, role });
        books.claims.push(Claim { block: start, blocks: len, class });
    }
}

fn maps_extents(inode: &Inode) -> bool {
    inode.flags & Inode::EXTENTS != 0
}
