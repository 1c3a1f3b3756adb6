//! What is learned from a block of a tree.

use ordo_format::btrfs::{
    Chunk, DirItem, FileExtent, Geometry, InodeItem, Node, Pointer, ROOT_DIR, RootItem, items,
    kind, tree,
};

use super::owners::{Extent, file};
use crate::decoder::Books;
use crate::kind::{Class, What};

/// The kernel makes extents of a quarter of this at most: what is larger is damage.
const EXTENT_MAX: u64 = 1 << 30;

/// What a log's block waits for: whose it is.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The subvolume, once that is known.
    pub(super) of: Option<u64>,
    /// A leaf as it was written, until then.
    pub(super) leaf: Box<[u8]>,
    /// Of the tree of log roots: each root, and the subvolume that it is of.
    pub(super) roots: Box<[(Pointer, u64)]>,
}

/// What is kept of a block of a tree.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// The tree for which it was made.
    pub(super) owner: u64,
    /// Its checksum's begin: the same block again has the same.
    pub(super) sum: u64,
    /// The blocks that it points to.
    pub(super) below: Box<[Pointer]>,
    pub(super) extents: Box<[Extent]>,
    pub(super) chunks: Box<[Chunk]>,
    pub(super) log: Option<Box<Log>>,
}

/// Reads a block as one of the tree `of`, which is its own but for the log's.
pub(super) fn read(g: &Geometry, node: &Node<'_>, of: u64, books: &mut Books) -> Body {
    let owner = node.header.owner;
    let mut below: Vec<Pointer> = node.children().collect();
    let (mut extents, mut chunks, mut roots) = (Vec::new(), Vec::new(), Vec::new());
    let files = tree::is_subvolume(of)
        || [tree::ROOT, tree::LOG, tree::RELOCATION, tree::DATA_RELOCATION].contains(&of);
    for (key, bytes) in node.items() {
        match key.kind {
            kind::ROOT if owner == tree::ROOT => {
                // Of what is being removed a part is free, which nobody says.
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
                books.inodes.extend(file(of, key.objectid).filter(|_| now));
            }
            kind::INODE_REF | kind::INODE_EXTREF => {
                let extended = key.kind == kind::INODE_EXTREF;
                for (dir, name) in items::names(bytes, key.offset, extended) {
                    if let (Some(dir), Some(ino)) = (file(of, dir), file(of, key.objectid)) {
                        books.names.seen(dir, name, ino);
                    }
                }
            }
            kind::DIR_INDEX => {
                // Of inodes it says no more than they do themselves.
                if let Some((entry, name)) = DirItem::read(bytes)
                    && entry.location.kind == kind::ROOT
                    && let Some(dir) = file(of, key.objectid)
                    && let Some(top) = file(entry.location.objectid, ROOT_DIR)
                {
                    books.names.seen(dir, name, top);
                }
            }
            _ => {}
        }
    }
    let sum = u64::from_le_bytes(node.header.csum[..8].try_into().expect("8 bytes"));
    let log = (owner == tree::LOG).then(|| Box::new(Log { roots: roots.into(), ..Log::default() }));
    let (below, extents, chunks) = (below.into(), extents.into(), chunks.into());
    Body { owner, sum, below, extents, chunks, log }
}

/// An extent as part of a file, where it makes sense.
fn used(g: &Geometry, tree: u64, ino: u64, at: u64, e: &FileExtent) -> Option<Extent> {
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
    sane.then_some(Extent { start, tree, ino, at, offset, len, disk_len, packed })
}

/// The kind and the name of a tree's block.
pub(super) fn named(owner: u64, p: &Pointer) -> (Class, What) {
    let (class, words) = match owner {
        tree::LOG => {
            let what = What::Journal { transaction: Some(p.generation), home: None };
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
                _ => "a tree that is not known",
            };
            (class, words)
        }
    };
    let (level, generation) = (p.level, p.generation);
    (class, What::TreeBlock { tree: words, number: owner, level, generation })
}
