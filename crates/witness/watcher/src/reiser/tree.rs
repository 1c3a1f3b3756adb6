//! The tree that holds all files: inner nodes point to nodes, leaves to the blocks of files.

use ordo_format::Endian;
use ordo_format::reiserfs::{self, Geometry};

use crate::graph::{Entries, Entry, Reader};
use crate::kind::Class;
use crate::runs::Role;

#[derive(Debug)]
pub(super) struct Tree {
    pub(super) g: Geometry,
}

/// The entry of a node with this level, where there can be one.
pub(super) fn node_entry(g: &Geometry, block: u64, level: u16) -> Option<Entry<u16>> {
    if block <= g.superblock() || block >= g.blocks || level == 0 {
        return None;
    }
    let class = if level == 1 { Class::TreeLeaf } else { Class::TreeNode };
    let height = level as u8;
    let role = Role::Map { level: height, extents: false, lbn: 0 };
    Some(Entry { start: block, len: 1, height, class, ino: 0, role, node: Some(level) })
}

impl Reader for Tree {
    /// The level of a node; 1 for a leaf.
    type Tag = u16;

    fn node(&self, level: u16, bytes: &[u8]) -> Vec<Entry<u16>> {
        let sound = reiserfs::node(bytes).is_some_and(|head| head.level == level);
        if bytes.len() != self.g.block_size() || !sound {
            return Vec::new();
        }
        if level > 1 {
            let children = reiserfs::children(bytes);
            return children
                .filter_map(|c| node_entry(&self.g, c.block.into(), level - 1))
                .collect();
        }
        let mut all = Entries::new();
        for item in reiserfs::item_heads(bytes) {
            let Some(from) = item.indirect() else { continue };
            let first = from.saturating_sub(1) >> self.g.block_shift;
            for (i, raw) in item.body(bytes).chunks_exact(4).enumerate() {
                let start = u64::from(Endian::Little.get_u32(raw, 0));
                if start <= self.g.superblock() || start >= self.g.blocks {
                    continue;
                }
                let (class, role) = (Class::FileData, Role::Data { lbn: first + i as u64 });
                let ino = item.object_id.into();
                all.add(Entry { start, len: 1, height: 0, class, ino, role, node: None });
            }
        }
        all.into_vec()
    }

    fn could_be_node(&self, bytes: &[u8]) -> bool {
        let inside =
            |block: u32| u64::from(block) > self.g.superblock() && u64::from(block) < self.g.blocks;
        bytes.len() == self.g.block_size()
            && reiserfs::node(bytes).is_some_and(|head| {
                head.level == 1 || reiserfs::children(bytes).all(|child| inside(child.block))
            })
    }
}
