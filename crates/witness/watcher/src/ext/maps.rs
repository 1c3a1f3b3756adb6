//! Block maps: the places of a file's blocks, from an inode, an indirect block or an extent node.

use ordo_format::Endian;
use ordo_format::ext4::{Extent, ExtentHeader, ExtentIndex, Geometry, Inode};

use crate::graph::{Entries, Entry, Reader};
use crate::kind::Class;
use crate::runs::Role;

/// The owner of a node, and how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtTag {
    pub(super) ino: u32,
    /// The kind of the file's contents.
    pub(super) class: Class,
    /// The number of levels, the node itself included.
    pub(super) level: u8,
    pub(super) extents: bool,
    /// The logical block of the node's first pointer.
    pub(super) lbn: u32,
}

/// The reader of block maps in one file system.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) g: Geometry,
}

/// Collects the entries of one inode or node; addresses outside the file system are left out.
struct Collector<'a> {
    g: &'a Geometry,
    /// The tag of the present node; for an inode, one level above its highest nodes.
    whose: ExtTag,
    entries: Entries<ExtTag>,
}

impl Collector<'_> {
    fn add(&mut self, start: u64, len: u32, lbn: u64, level: u8) {
        let end = start.checked_add(len.into());
        let outside =
            start < self.g.first_block.max(1) || end.is_none_or(|end| end > self.g.blocks);
        // Logical blocks beyond 32 bits are in no file.
        let Ok(at) = u32::try_from(lbn) else { return };
        if outside || len == 0 {
            return;
        }
        let ExtTag { ino, class, extents, .. } = self.whose;
        let node = (level > 0).then_some(ExtTag { level, lbn: at, ..self.whose });
        let (own, role) = match level {
            0 => (class, Role::Data { lbn }),
            _ if class == Class::GroupDescriptors => (class, Role::Map { level, extents, lbn }),
            _ if extents => (Class::ExtentNode, Role::Map { level, extents, lbn }),
            _ => (Class::Indirect, Role::Map { level, extents, lbn }),
        };
        self.entries.add(Entry {
            start,
            len,
            height: level,
            class: own,
            ino: ino.into(),
            role,
            node,
        });
    }

    fn pointers(&mut self, bytes: &[u8]) {
        let level = self.whose.level.saturating_sub(1);
        let span = (1u64 << (self.g.block_shift - 2)).pow(level.into());
        for (i, word) in bytes.chunks_exact(4).enumerate() {
            let start = Endian::Little.get_u32(word, 0).into();
            if start != 0 {
                self.add(start, 1, u64::from(self.whose.lbn) + i as u64 * span, level);
            }
        }
    }

    fn extents(&mut self, node: &[u8], level: Option<u8>) {
        let Some(head) = ExtentHeader::read(node) else { return };
        if level.is_some_and(|level| u16::from(level) != head.depth + 1) {
            return;
        }
        let entries = node[ExtentHeader::SIZE..].chunks_exact(Extent::SIZE);
        for raw in entries.take(head.entries.into()) {
            if head.depth == 0 {
                let extent = Extent::decode(raw, Endian::Little);
                self.add(extent.start(), extent.blocks().into(), extent.block.into(), 0);
            } else {
                let index = ExtentIndex::decode(raw, Endian::Little);
                self.add(index.leaf(), 1, index.block.into(), head.depth as u8);
            }
        }
    }
}

impl Maps {
    /// The entries of an inode. `whose` gives the owner; its level does not matter.
    pub(super) fn of_inode(&self, inode: &Inode, whose: ExtTag) -> Vec<Entry<ExtTag>> {
        let mut all = Collector { g: &self.g, whose, entries: Entries::new() };
        if whose.extents {
            all.extents(&inode.block, None);
            return all.entries.into_vec();
        }
        all.whose.level = 1;
        all.pointers(&inode.block[..48]);
        let (per, mut lbn) = (1u64 << (self.g.block_shift - 2), 12);
        for level in 1..=3u8 {
            let start = Endian::Little.get_u32(&inode.block, 44 + usize::from(level) * 4).into();
            if start != 0 {
                all.add(start, 1, lbn, level);
            }
            lbn += per.pow(level.into());
        }
        all.entries.into_vec()
    }
}

impl Reader for Maps {
    type Tag = ExtTag;

    fn node(&self, tag: ExtTag, bytes: &[u8]) -> Vec<Entry<ExtTag>> {
        let mut all = Collector { g: &self.g, whose: tag, entries: Entries::new() };
        match tag.class {
            // Nodes of the resize inode (7), of class `GroupDescriptors`, are not read: its double
            // indirect block leads to blocks that are reserved for descriptors.
            _ if bytes.len() != self.g.block_size() => {}
            Class::GroupDescriptors => {}
            _ if tag.extents => all.extents(bytes, Some(tag.level)),
            _ => all.pointers(bytes),
        }
        all.entries.into_vec()
    }

    fn could_be_node(&self, bytes: &[u8]) -> bool {
        if bytes.len() != self.g.block_size() {
            return false;
        }
        if let Some(head) = ExtentHeader::read(bytes) {
            return head.entries > 0;
        }
        let mut any = false;
        let sound = bytes.chunks_exact(4).all(|word| {
            let addr = u64::from(Endian::Little.get_u32(word, 0));
            any |= addr != 0;
            addr == 0 || (addr > self.g.first_block && addr < self.g.blocks)
        });
        sound && any
    }
}
