//! The readers of JFS's trees: extents (xtree), names (dtree), the inode map.

use ordo_format::jfs::{self, Geometry, Pxd};

use crate::graph::{Entries, Entry, Reader};
use crate::kind::Class;
use crate::runs::Role;

/// The greatest height of a tree.
const HEIGHT: u8 = 12;

/// The tree of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JfsTag {
    /// A file's tree of extents.
    Extents { ino: u64, class: Class, height: u8 },
    /// A directory's tree of names.
    Names { ino: u64, height: u8 },
    /// A block of the inode map.
    Map,
}

#[derive(Debug)]
pub(super) struct JfsTrees {
    pub(super) g: Geometry,
}

impl JfsTrees {
    fn inside(&self, place: &Pxd) -> bool {
        let end = place.start() + u64::from(place.blocks());
        place.blocks() > 0 && place.start() > jfs::SECOND_SUPERBLOCK && end <= self.g.blocks
    }

    /// The entries of an extent node or root.
    pub(super) fn extents(
        &self,
        node: &[u8],
        ino: u64,
        class: Class,
        height: u8,
    ) -> Vec<Entry<JfsTag>> {
        let mut all = Entries::new();
        let Some((leaf, entries)) = jfs::extents(node) else { return Vec::new() };
        for extent in entries.filter(|e| self.inside(&e.place)) {
            let (start, len, lbn) = (extent.place.start(), extent.place.blocks(), extent.offset());
            if leaf && class == Class::InodeMap {
                // The first block of the inode map is its control page; each other one leads to
                // inodes.
                for i in 0..u64::from(len) {
                    let node = (lbn + i > 0).then_some(JfsTag::Map);
                    let role = match node {
                        Some(_) => Role::Map { level: 1, extents: false, lbn: lbn + i },
                        None => Role::Data { lbn },
                    };
                    all.add(Entry { start: start + i, len: 1, height: 1, class, ino, role, node });
                }
            } else if leaf {
                let role = Role::Data { lbn };
                all.add(Entry { start, len, height: 0, class, ino, role, node: None });
            } else if height > 0 {
                let role = Role::Map { level: height, extents: true, lbn };
                let node = Some(JfsTag::Extents { ino, class, height: height - 1 });
                let class = Class::ExtentNode;
                all.add(Entry { start, len: 1, height: height + 1, class, ino, role, node });
            }
        }
        all.into_vec()
    }

    /// The entries of the root of a file's extents.
    pub(super) fn root(&self, node: &[u8], ino: u64, class: Class) -> Vec<Entry<JfsTag>> {
        self.extents(node, ino, class, HEIGHT)
    }

    /// The children of a page or root of names.
    pub(super) fn names(
        &self,
        page: &[u8],
        root: bool,
        ino: u64,
        height: u8,
    ) -> Vec<Entry<JfsTag>> {
        let children = jfs::name_children(page, root).filter(|p| self.inside(p) && height > 0);
        let entry = |place: Pxd| {
            let role = Role::Map { level: height, extents: false, lbn: 0 };
            let (start, len, class) = (place.start(), place.blocks(), Class::Directory);
            let node = Some(JfsTag::Names { ino, height: height - 1 });
            Entry { start, len, height, class, ino, role, node }
        };
        children.map(entry).collect()
    }

    /// The entries of the root of a directory's names.
    pub(super) fn name_root(&self, page: &[u8], ino: u64) -> Vec<Entry<JfsTag>> {
        self.names(page, true, ino, HEIGHT)
    }
}

impl Reader for JfsTrees {
    type Tag = JfsTag;

    fn node(&self, tag: JfsTag, bytes: &[u8]) -> Vec<Entry<JfsTag>> {
        if bytes.len() != jfs::PAGE {
            return Vec::new();
        }
        match tag {
            JfsTag::Extents { ino, class, height } => self.extents(bytes, ino, class, height),
            JfsTag::Names { ino, height } => self.names(bytes, false, ino, height),
            JfsTag::Map => {
                let mut all = Entries::new();
                for (first, place) in jfs::map_extents(bytes).filter(|(_, p)| self.inside(p)) {
                    // A block holds eight inodes.
                    let role = Role::Data { lbn: first / 8 };
                    let (start, len, class) = (place.start(), place.blocks(), Class::InodeBlock);
                    all.add(Entry { start, len, height: 0, class, ino: 0, role, node: None });
                }
                all.into_vec()
            }
        }
    }

    fn could_be_node(&self, bytes: &[u8]) -> bool {
        // A page of extents or names holds its own address, which must be a block of this
        // aggregate.
        let own = ordo_format::Endian::Little.get_u32(bytes, 28); // self.addr2
        let flags = bytes[16]; // flag
        [2, 4].contains(&flags) && own != 0 && u64::from(own) < self.g.blocks
    }
}
