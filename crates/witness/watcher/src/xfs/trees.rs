//! The readers of XFS's trees: those of allocation groups, and those of files.

use ordo_format::xfs::{self, Fork, Geometry, Tree};

use crate::graph::{Entries, Entry, Reader};
use crate::kind::Class;
use crate::runs::Role;

/// The tree of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum XfsTag {
    /// A tree of an allocation group.
    Group { tree: Tree, group: u32, height: u8 },
    /// A file's tree of extents.
    File { ino: u64, class: Class, height: u8 },
}

#[derive(Debug)]
pub(super) struct XfsTrees {
    pub(super) g: Geometry,
}

/// The kind of a group's tree.
pub(super) fn class_of(tree: Tree) -> Class {
    match tree {
        Tree::Inodes | Tree::FreeInodes => Class::InodeMap,
        _ => Class::SpaceTree,
    }
}

impl XfsTrees {
    /// The entry of a node of a group's tree, where there can be one.
    pub(super) fn group_node(
        &self,
        tree: Tree,
        group: u32,
        block: u32,
        height: u32,
    ) -> Option<Entry<XfsTag>> {
        let height = u8::try_from(height).ok().filter(|h| (1..=12).contains(h))?;
        let start = self.g.in_group(group, block).filter(|_| block != 0)?;
        let role = Role::Map { level: height, extents: false, lbn: 0 };
        let node = Some(XfsTag::Group { tree, group, height });
        Some(Entry { start, len: 1, height, class: class_of(tree), ino: 0, role, node })
    }

    fn add_extents(&self, raw: &[u8], ino: u64, class: Class, all: &mut Entries<XfsTag>) {
        for extent in raw.chunks_exact(16).map(xfs::extent) {
            let Some(start) = self.g.linear(extent.block) else { continue };
            if extent.len == 0 || start + u64::from(extent.len) > self.g.blocks {
                continue;
            }
            let role = Role::Data { lbn: extent.lbn };
            all.add(Entry { start, len: extent.len, height: 0, class, ino, role, node: None });
        }
    }

    fn file_nodes(
        &self,
        blocks: impl Iterator<Item = u64>,
        ino: u64,
        class: Class,
        height: u8,
    ) -> Vec<Entry<XfsTag>> {
        let role = Role::Map { level: height, extents: true, lbn: 0 };
        let node = Some(XfsTag::File { ino, class, height });
        let entry =
            |start| Entry { start, len: 1, height, class: Class::ExtentNode, ino, role, node };
        blocks.filter_map(|block| self.g.linear(block)).map(entry).collect()
    }

    /// The entries of a fork.
    pub(super) fn of_fork(&self, fork: Fork<'_>, ino: u64, class: Class) -> Vec<Entry<XfsTag>> {
        match fork {
            Fork::None => Vec::new(),
            Fork::Extents(raw) => {
                let mut all = Entries::new();
                self.add_extents(raw, ino, class, &mut all);
                all.into_vec()
            }
            Fork::Tree(level, root) if (1..=8).contains(&level) => {
                self.file_nodes(xfs::root_children(root).into_iter(), ino, class, level as u8)
            }
            Fork::Tree(..) => Vec::new(),
        }
    }

    /// The entries of a tree's root as the log holds it: with the header of a block.
    pub(super) fn of_logged_root(&self, raw: &[u8], ino: u64, class: Class) -> Vec<Entry<XfsTag>> {
        let (level, records) = xfs::long_records(&self.g, raw);
        match (1..=8).contains(&level) {
            true => {
                let blocks = records.chunks_exact(8).map(|b| xfs::BIG.get_u64(b, 0));
                self.file_nodes(blocks, ino, class, level as u8)
            }
            false => Vec::new(),
        }
    }

    fn group_entries(
        &self,
        tree: Tree,
        group: u32,
        height: u8,
        bytes: &[u8],
    ) -> Vec<Entry<XfsTag>> {
        let g = &self.g;
        if Tree::of(bytes) != Some(tree) || xfs::level(bytes) + 1 != u16::from(height) {
            return Vec::new();
        }
        if height > 1 {
            let children = tree.children(g, bytes).into_iter();
            let below = u32::from(height) - 1;
            return children
                .filter_map(|block| self.group_node(tree, group, block, below))
                .collect();
        }
        let mut all = Entries::new();
        if tree != Tree::Inodes {
            return Vec::new();
        }
        for (first, holes) in xfs::chunks(g, bytes) {
            // A chunk has 64 inodes, and each hole bit stands for 4 of them, so a block is there as
            // a whole or not at all.
            for run in (0..16u32).filter(|run| holes & (1 << run) == 0) {
                let inode = first.saturating_add(run * 4);
                let Some(start) = g.in_group(group, inode >> g.inodes_shift()) else { continue };
                let blocks = (4 >> g.inodes_shift()).max(1);
                if inode % (1 << g.inodes_shift()) != 0 || start + blocks > g.blocks {
                    continue;
                }
                let role = Role::Data { lbn: start };
                let (len, class) = (blocks as u32, Class::InodeBlock);
                all.add(Entry { start, len, height: 0, class, ino: 0, role, node: None });
            }
        }
        all.into_vec()
    }
}

impl Reader for XfsTrees {
    type Tag = XfsTag;

    fn node(&self, tag: XfsTag, bytes: &[u8]) -> Vec<Entry<XfsTag>> {
        if bytes.len() != self.g.block_size() {
            return Vec::new();
        }
        match tag {
            XfsTag::Group { tree, group, height } => self.group_entries(tree, group, height, bytes),
            XfsTag::File { ino, class, height } => {
                let (level, records) = xfs::long_records(&self.g, bytes);
                if !xfs::is_long_tree(bytes) || level + 1 != u16::from(height) {
                    return Vec::new();
                }
                if level > 0 {
                    let blocks = records.chunks_exact(8).map(|b| xfs::BIG.get_u64(b, 0));
                    return self.file_nodes(blocks, ino, class, height - 1);
                }
                let mut all = Entries::new();
                self.add_extents(records, ino, class, &mut all);
                all.into_vec()
            }
        }
    }

    fn could_be_node(&self, bytes: &[u8]) -> bool {
        xfs::is_long_tree(bytes) || Tree::of(bytes).is_some()
    }
}
