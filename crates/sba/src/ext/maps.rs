//! Where a file's blocks are, as an inode, an indirect block or a node of extents says.

use ordo_format::Endian;
use ordo_format::ext4::{Extent, ExtentHeader, ExtentIndex, Geometry, Inode};

/// Blocks that follow each other, or one node of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The file's block.
    pub(super) lbn: u32,
    /// Blocks; 1 of a node.
    pub(super) len: u32,
    /// The first on the device.
    pub(super) addr: u64,
    /// 0: contents; else a node with this many levels, itself included, above them.
    pub(super) level: u8,
}

/// How a node is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) level: u8,
    pub(super) extents: bool,
    /// The file's block of its first pointer.
    pub(super) lbn: u32,
}

/// Collects entries, those that follow each other as one; what lies outside the file system is left out.
struct Collector<'a> {
    g: &'a Geometry,
    entries: Vec<Entry>,
}

impl Collector<'_> {
    fn add(&mut self, new: Entry) {
        let end = new.addr.checked_add(new.len.into());
        if new.addr < self.g.first_block.max(1) || end.is_none_or(|end| end > self.g.blocks) {
            return;
        }
        if let Some(last) = self.entries.last_mut()
            && (last.level, new.level) == (0, 0)
            && last.addr + u64::from(last.len) == new.addr
            && last.lbn.checked_add(last.len) == Some(new.lbn)
            && let Some(len) = last.len.checked_add(new.len)
        {
            last.len = len;
            return;
        }
        self.entries.push(new);
    }
}

/// The entries of an inode.
pub(super) fn of_inode(g: &Geometry, inode: &Inode) -> Vec<Entry> {
    let mut all = Collector { g, entries: Vec::new() };
    if inode.flags & Inode::EXTENTS != 0 {
        node_of_extents(&mut all, &inode.block, None);
        return all.entries;
    }
    let per = 1u64 << (g.block_shift - 2);
    let mut lbn = 12;
    for i in 0..15u32 {
        let addr = Endian::Little.get_u32(&inode.block, i as usize * 4).into();
        let level = i.saturating_sub(11) as u8;
        let at = if i < 12 { i.into() } else { lbn };
        if addr != 0 {
            all.add(Entry { lbn: saturate(at), len: 1, addr, level });
        }
        if level > 0 {
            lbn += per.pow(level.into());
        }
    }
    all.entries
}

/// The entries of a node; none where it does not make sense.
pub(super) fn of_node(g: &Geometry, bytes: &[u8], shape: Shape) -> Vec<Entry> {
    let mut all = Collector { g, entries: Vec::new() };
    if shape.extents {
        node_of_extents(&mut all, bytes, Some(shape.level));
        return all.entries;
    }
    let per = 1u64 << (g.block_shift - 2);
    let level = shape.level.saturating_sub(1);
    let span = per.pow(level.into());
    for (i, word) in bytes.chunks_exact(4).enumerate() {
        let addr = Endian::Little.get_u32(word, 0).into();
        if addr != 0 {
            let lbn = saturate(u64::from(shape.lbn) + i as u64 * span);
            all.add(Entry { lbn, len: 1, addr, level });
        }
    }
    all.entries
}

/// Blocks of a file beyond 32 bits are no file's.
fn saturate(lbn: u64) -> u32 {
    u32::try_from(lbn).unwrap_or(u32::MAX)
}

fn node_of_extents(all: &mut Collector<'_>, node: &[u8], level: Option<u8>) {
    let Some(head) = ExtentHeader::read(node) else { return };
    if level.is_some_and(|level| u16::from(level) != head.depth + 1) {
        return;
    }
    let entries = node[ExtentHeader::SIZE..].chunks_exact(Extent::SIZE).take(head.entries.into());
    for raw in entries {
        all.add(match head.depth {
            0 => extent(raw),
            depth => {
                let index = ExtentIndex::decode(raw, Endian::Little);
                Entry { lbn: index.block, len: 1, addr: index.leaf(), level: depth as u8 }
            }
        });
    }
}

/// One extent.
pub(super) fn extent(raw: &[u8]) -> Entry {
    let extent = Extent::decode(raw, Endian::Little);
    Entry { lbn: extent.block, len: extent.blocks().into(), addr: extent.start(), level: 0 }
}

/// Whether a block that nothing points to could be a node: of extents, or pointers and nothing else.
pub(super) fn could_be_node(g: &Geometry, bytes: &[u8]) -> bool {
    if bytes.len() != g.block_size() {
        return false;
    }
    if let Some(head) = ExtentHeader::read(bytes) {
        return head.entries > 0;
    }
    let mut any = false;
    let sound = bytes.chunks_exact(4).all(|word| {
        let addr = u64::from(Endian::Little.get_u32(word, 0));
        any |= addr != 0;
        addr == 0 || (addr > g.first_block && addr < g.blocks)
    });
    sound && any
}
