//! The contents of tree blocks: what is learned from each item.

use ordo_format::btrfs::{
    Chunk, DirItem, FileExtent, Geometry, InodeItem, Node, Pointer, ROOT_DIR, RootItem, items,
    kind, tree,
};

use super::owners::{BtrfsExtent, file};
use crate::decoder::DecoderState;
use crate::kind::{BlockMeaning, Class};

/// A bound on an extent's length, four times what the kernel makes: a longer one is damage.
const EXTENT_MAX: u64 = 1 << 30;

/// The facts that decide to which subvolume a log tree's block belongs.
#[derive(Debug, Default)]
pub(super) struct BtrfsLog {
    /// The subvolume, once it is known.
    pub(super) of: Option<u64>,
    /// The leaf as it was written, until the subvolume is known.
    pub(super) leaf: Box<[u8]>,
    /// For the tree of log roots: each root, and its subvolume.
    pub(super) roots: Box<[(Pointer, u64)]>,
}

/// The contents of a tree block that are kept.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// The tree for which the block was made.
    pub(super) owner: u64,
    /// The first bytes of its checksum. A block that is written again unchanged has the same
    /// checksum.
    pub(super) sum: u64,
    /// The blocks to which it points.
    pub(super) below: Box<[Pointer]>,
    pub(super) extents: Box<[BtrfsExtent]>,
    pub(super) chunks: Box<[Chunk]>,
    pub(super) log: Option<Box<BtrfsLog>>,
}

/// Reads a block as one of the tree `of`: the block's own tree or, for a log tree, its subvolume.
pub(super) fn read(g: &Geometry, node: &Node<'_>, of: u64, state: &mut DecoderState) -> Body {
    let owner = node.header.owner;
    let mut below: Vec<Pointer> = node.children().collect();
    let (mut extents, mut chunks, mut roots) = (Vec::new(), Vec::new(), Vec::new());
    let files = tree::is_subvolume(of)
        || [tree::ROOT, tree::LOG, tree::RELOCATION, tree::DATA_RELOCATION].contains(&of);
    for (key, bytes) in node.items() {
        match key.kind {
            kind::ROOT if owner == tree::ROOT => {
                // A subvolume that is being removed is free in part, and nothing records which
                // part.
                let item = RootItem::read(bytes).filter(|item| !item.is_partly_gone());
                below.extend(item.and_then(|item| item.root()));
            }
            kind::ROOT if owner == tree::LOG => {
                let root = RootItem::read(bytes).and_then(|item| item.root());
                below.extend(root);
                roots.extend(root.map(|root| (root, key.offset)));
            }
            kind::CHUNK if owner == tree::CHUNK => {
                chunks.extend(Chunk::read(key.offset, bytes).map(|(chunk, _)| chunk));
            }
            kind::EXTENT_DATA if files => {
                let extent = FileExtent::read(bytes);
                extents.extend(extent.and_then(|e| used(g, of, key.objectid, key.offset, &e)));
            }
            kind::INODE => {
                let inode = InodeItem::read(bytes);
                let now = inode.is_some_and(|inode| inode.transid == node.header.generation);
                state.inodes.extend(file(of, key.objectid).filter(|_| now));
            }
            kind::INODE_REF | kind::INODE_EXTREF => {
                let extended = key.kind == kind::INODE_EXTREF;
                for (dir, name) in items::names(bytes, key.offset, extended) {
                    if let (Some(dir), Some(ino)) = (file(of, dir), file(of, key.objectid)) {
                        state.names.seen(dir, name, ino);
                    }
                }
            }
            kind::DIR_INDEX => {
                // Entries of files repeat the references in the inodes, so only entries of
                // subvolumes are read.
                if let Some((entry, name)) = DirItem::read(bytes)
                    && entry.location.kind == kind::ROOT
                    && let Some(dir) = file(of, key.objectid)
                    && let Some(top) = file(entry.location.objectid, ROOT_DIR)
                {
                    state.names.seen(dir, name, top);
                }
            }
            _ => {}
        }
    }
    let sum = u64::from_le_bytes(node.header.csum[..8].try_into().expect("8 bytes"));
    let log = (owner == tree::LOG)
        .then(|| Box::new(BtrfsLog { roots: roots.into(), ..BtrfsLog::default() }));
    let (below, extents, chunks) = (below.into(), extents.into(), chunks.into());
    Body { owner, sum, below, extents, chunks, log }
}

/// An extent as a part of a file, if its numbers make sense.
fn used(g: &Geometry, tree: u64, ino: u64, at: u64, e: &FileExtent) -> Option<BtrfsExtent> {
    let packed = e.compression != 0;
    let (start, disk_len, offset, len) = (e.disk_bytenr, e.disk_num_bytes, e.offset, e.num_bytes);
    let mask = (1 << g.sector_shift) - 1;
    let sane = (start | disk_len | offset | len | at) & mask == 0
        && (1..=EXTENT_MAX).contains(&disk_len)
        && (1..=EXTENT_MAX).contains(&len)
        && start.checked_add(disk_len).is_some()
        && at.checked_add(len).is_some()
        && offset <= EXTENT_MAX
        && (packed || offset + len <= disk_len);
    sane.then_some(BtrfsExtent { start, tree, ino, at, offset, len, disk_len, packed })
}

/// The kind and meaning of a tree block.
pub(super) fn named(owner: u64, p: &Pointer) -> (Class, BlockMeaning) {
    let (class, words) = match owner {
        tree::LOG => {
            let what = BlockMeaning::Journal { transaction: Some(p.generation), home: None };
            return (Class::JournalRecords, what);
        }
        tree::ROOT => (Class::RootTree, "the root tree"),
        tree::UUID => (Class::RootTree, "the tree of identities"),
        tree::CHUNK => (Class::ChunkTree, "the chunk tree"),
        tree::DEVICE => (Class::ChunkTree, "the device tree"),
        tree::EXTENT => (Class::SpaceTree, "the extent tree"),
        tree::FREE_SPACE => (Class::SpaceTree, "the free space tree"),
        tree::BLOCK_GROUP => (Class::SpaceTree, "the block group tree"),
        tree::CHECKSUM => (Class::Checksums, "the checksum tree"),
        tree::QUOTA => (Class::Quota, "the quota tree"),
        _ => {
            let class = if p.level == 0 { Class::TreeLeaf } else { Class::TreeNode };
            let words = match owner {
                tree::RELOCATION => "a subvolume that is moved",
                tree::DATA_RELOCATION => "the tree of data that are moved",
                _ if tree::is_subvolume(owner) => "subvolume",
                _ => "an unknown tree",
            };
            (class, words)
        }
    };
    let (level, generation) = (p.level, p.generation);
    (class, BlockMeaning::TreeBlock { tree: words, number: owner, level, generation })
}
