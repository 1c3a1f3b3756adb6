//! The decoder of ReiserFS 3.5 and 3.6.
//!
//! The superblock, the bitmaps and the journal lie at fixed places. All else is one tree
//! ([`tree`]), whose leaves hold inodes, names, tails of files, and the addresses of files' other
//! blocks. The journal holds copies of blocks. A descriptor names their fixed locations; where
//! there are more than it can hold, the commit block names the rest.

mod leaves;
mod tree;

use std::hash::Hasher;

use ordo_format::reiserfs::{self, Geometry, ItemHead, SUPERBLOCK_AT, Superblock};
use rustc_hash::{FxHashMap, FxHasher};

use crate::decoder::{Contents, Decoder, DecoderState, DiskImage, cover, unknown};
use crate::graph::Graph;
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};
use crate::ring::Ring;
use crate::runs::{Role, Run};

use leaves::Leaves;
use tree::{Tree, node_entry};

/// The number of the tree's root among the graph's roots.
const ROOT: u64 = 0;
/// The object of the root directory (`REISERFS_ROOT_OBJECTID`).
const ROOT_OBJECT: u64 = 2;
/// The most inodes that are remembered.
const INODES_MAX: usize = 1 << 20;

/// The announcement of a journal block by a descriptor.
#[derive(Clone, Copy, Debug)]
enum Announced {
    Copy {
        id: u32,
        home: u64,
    },
    /// A copy whose fixed location the commit block names, by its index there.
    Late {
        id: u32,
        index: usize,
    },
    Commit {
        id: u32,
        late: usize,
    },
}

pub(crate) struct Reiser {
    g: Geometry,
    tree: Graph<Tree>,
    ring: Ring<Announced>,
    /// Copies of the present transaction whose fixed location the commit block will name.
    late: Vec<(usize, Box<[u8]>)>,
    /// For each object, a hash of its inode as it was last seen.
    inodes: FxHashMap<u32, u64>,
    leaves: Leaves,
}

/// The decoder of an image, if it holds ReiserFS.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let mut bytes = [0; Superblock::SIZE];
    image.read_at(SUPERBLOCK_AT, &mut bytes).ok()?;
    let g = Superblock::read(&bytes)?;
    let tree = Graph::new(Tree { g });
    let (ring, late, inodes) = (Ring::default(), Vec::new(), FxHashMap::default());
    let leaves = Leaves::default();
    let mut reiser = Reiser { g, tree, ring, late, inodes, leaves };
    state.names.set_root(ROOT_OBJECT);
    reiser.set_root(&g, state);
    let mut block = vec![0; g.block_size()];
    for _ in 0..g.height {
        for at in reiser.tree.unread() {
            if image.read_at(at << g.block_shift, &mut block).is_ok() {
                reiser.tree.node_written(at, &block, state);
                reiser.leaf_seen(&block, state);
                if is_leaf(&block) {
                    reiser.leaves.seen(at, &block);
                }
            }
        }
        state.claims.clear();
    }
    Some(Box::new(reiser))
}

fn is_leaf(bytes: &[u8]) -> bool {
    reiserfs::node(bytes).is_some_and(|head| head.level == 1)
}

/// The use of a block.
enum ReiserPlace {
    Boot,
    Superblock,
    Bitmap(u64),
    Ring(u64),
    JournalHeader,
    Owned(Run),
    Free,
}

impl Reiser {
    fn set_root(&mut self, g: &Geometry, state: &mut DecoderState) {
        let root = node_entry(g, g.root, g.height.saturating_sub(1));
        self.tree.set_root(ROOT, root.into_iter().collect(), state);
    }

    fn place(&self, block: u64) -> ReiserPlace {
        let first = self.g.journal.unwrap_or(u64::MAX);
        match block {
            _ if block < self.g.superblock() => ReiserPlace::Boot,
            _ if block == self.g.superblock() => ReiserPlace::Superblock,
            _ if block >= first && block - first < self.g.journal_size => {
                ReiserPlace::Ring(block - first)
            }
            _ if block.checked_sub(first) == Some(self.g.journal_size) => {
                ReiserPlace::JournalHeader
            }
            _ => match (self.g.bitmap(block), self.tree.runs.at(block)) {
                (Some(n), _) => ReiserPlace::Bitmap(n),
                (None, Some(run)) => ReiserPlace::Owned(*run),
                (None, None) => ReiserPlace::Free,
            },
        }
    }

    /// Learns from a block at its fixed location, or from its copy in the journal. Returns its
    /// kind.
    fn learn(&mut self, block: u64, bytes: &[u8], state: &mut DecoderState) -> Class {
        match self.place(block) {
            ReiserPlace::Superblock => {
                let skip = (SUPERBLOCK_AT - (block << self.g.block_shift)) as usize;
                let new = bytes.get(skip..).and_then(Superblock::read);
                let same = |g: &Geometry| Geometry { root: 0, height: 0, ..*g };
                // A superblock of another geometry would belong to another file system.
                if let Some(new) = new.filter(|new| same(new) == same(&self.g)) {
                    self.g = new;
                    self.set_root(&new, state);
                }
                Class::Superblock
            }
            ReiserPlace::Owned(run) => {
                if run.class != Class::FileData {
                    self.tree.node_written(block, bytes, state);
                    self.leaf_seen(bytes, state);
                }
                run.class
            }
            ReiserPlace::Free => {
                self.tree.orphan_written(block, bytes);
                let looks = self.looks(block, bytes);
                if looks == Class::TreeLeaf {
                    self.leaf_seen(bytes, state);
                }
                looks
            }
            ReiserPlace::Boot => Class::BootArea,
            ReiserPlace::Bitmap(_) => Class::BlockBitmap,
            ReiserPlace::Ring(_) => Class::JournalData,
            ReiserPlace::JournalHeader => Class::JournalSuperblock,
        }
    }

    /// Notes the inodes of a leaf that changed, and learns the names in it.
    fn leaf_seen(&mut self, bytes: &[u8], state: &mut DecoderState) {
        if !is_leaf(bytes) {
            return;
        }
        for item in reiserfs::item_heads(bytes).filter(ItemHead::is_directory) {
            for (name, object) in item.names(bytes) {
                state.names.seen(item.object_id.into(), name, object.into());
            }
        }
        for item in reiserfs::item_heads(bytes).filter(ItemHead::is_inode) {
            let mut hash = FxHasher::default();
            hash.write(item.body(bytes));
            let new = hash.finish();
            let capacity =
                self.inodes.len() < INODES_MAX || self.inodes.contains_key(&item.object_id);
            if capacity && self.inodes.insert(item.object_id, new) != Some(new) {
                state.inodes.push(item.object_id.into());
            }
        }
    }

    fn looks(&self, block: u64, bytes: &[u8]) -> Class {
        match reiserfs::node(bytes).filter(|_| self.tree.has_orphan(block)) {
            Some(head) if head.level == 1 => Class::TreeLeaf,
            Some(_) => Class::TreeNode,
            None => Class::FileData,
        }
    }

    /// Takes in a copy in the journal, at byte `offset` of the device if it is part of the present
    /// request.
    fn copied(
        &mut self,
        (id, home): (u32, u64),
        offset: Option<u64>,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> BlockMeaning {
        let class = match home < self.g.blocks {
            true => self.learn(home, bytes, state),
            false => Class::Unknown,
        };
        if class == Class::TreeLeaf {
            self.leaves.logged(home, offset, bytes, state);
        } else if let (Some(offset), Some(run)) = (offset, self.tree.runs.at(home))
            && let Role::Data { lbn } = run.role
        {
            let lbn = lbn + (home - run.start);
            state.own(offset, bytes.len() as u64, run.ino, Some(lbn));
        }
        state.journal.copy(id.into(), home, class, bytes.len() as u64);
        let byte = home << self.g.block_shift;
        BlockMeaning::Journal { transaction: Some(id.into()), home: Some((byte, class)) }
    }

    /// Names a block of the journal's ring at byte `offset` of the device, and learns from it.
    fn journal_block(
        &mut self,
        (at, offset): (u64, u64),
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning) {
        let len = bytes.len() as u64;
        let of = |id: u32| BlockMeaning::Journal { transaction: Some(id.into()), home: None };
        if let Some(head) = reiserfs::descriptor(bytes) {
            self.ring.take(at);
            if let Some(transaction) = state.journal.write(head.id.into(), len) {
                transaction.descriptors += 1;
            }
            self.descriptor(at, &head, bytes, state);
            return (Class::JournalDescriptor, of(head.id));
        }
        match self.ring.take(at) {
            Some(Announced::Copy { id, home }) => {
                (Class::JournalData, self.copied((id, home), Some(offset), bytes, state))
            }
            Some(Announced::Late { id, index }) => {
                self.late.push((index, bytes.into()));
                (Class::JournalData, of(id))
            }
            Some(Announced::Commit { id, late }) => {
                self.commit(id, late, bytes, state);
                (Class::JournalCommit, of(id))
            }
            None => {
                state.journal.orphan_block(false);
                self.ring.keep(at, bytes);
                (Class::JournalData, BlockMeaning::Journal { transaction: None, home: None })
            }
        }
    }

    fn descriptor(
        &mut self,
        at: u64,
        head: &reiserfs::TransactionHead,
        bytes: &[u8],
        state: &mut DecoderState,
    ) {
        // A transaction cannot have more copies than the ring has blocks.
        let (id, len) = (head.id, u64::from(head.len));
        if len + 2 > self.g.journal_size {
            return;
        }
        self.late.clear();
        let capacity = self.g.descriptor_capacity();
        let homes: Vec<u64> = reiserfs::homes(bytes, 12, (len as usize).min(capacity)).collect();
        for i in 0..len {
            let what = match homes.get(i as usize) {
                Some(home) => Announced::Copy { id, home: *home },
                None => Announced::Late { id, index: i as usize - homes.len() },
            };
            let came = self.ring.announce((at + 1 + i) % self.g.journal_size, what);
            let Some((what, early)) = came else { continue };
            state.journal.orphan_block(true);
            match what {
                Announced::Copy { home, .. } => drop(self.copied((id, home), None, &early, state)),
                Announced::Late { index, .. } => self.late.push((index, early)),
                Announced::Commit { .. } => {}
            }
        }
        let late = len as usize - homes.len();
        let commit = Announced::Commit { id, late };
        if self.ring.announce((at + 1 + len) % self.g.journal_size, commit).is_some() {
            state.journal.orphan_block(true);
            state.journal.commit(id.into(), self.g.block_size() as u64);
        }
    }

    fn commit(&mut self, id: u32, late: usize, bytes: &[u8], state: &mut DecoderState) {
        let homes: Vec<u64> = reiserfs::homes(bytes, 8, late).collect();
        for (index, copy) in std::mem::take(&mut self.late) {
            if let Some(home) = homes.get(index) {
                self.copied((id, *home), None, &copy, state);
            }
        }
        state.journal.commit(id.into(), bytes.len() as u64);
        self.ring.ended();
    }

    /// The kind and meaning of a block that follow from its place alone.
    fn fixed(&self, place: &ReiserPlace, block: u64) -> (Class, BlockMeaning) {
        match place {
            ReiserPlace::Boot => (Class::BootArea, BlockMeaning::BootArea),
            ReiserPlace::Superblock => (Class::Superblock, BlockMeaning::Superblock),
            ReiserPlace::Bitmap(n) => (Class::BlockBitmap, BlockMeaning::Piece("block bitmap", *n)),
            ReiserPlace::JournalHeader => {
                (Class::JournalSuperblock, BlockMeaning::Only("journal header"))
            }
            ReiserPlace::Ring(_) => {
                (Class::JournalData, BlockMeaning::Journal { transaction: None, home: None })
            }
            ReiserPlace::Owned(run) => {
                let what = match run.role {
                    Role::Data { lbn } => {
                        let first = lbn + (block - run.start);
                        BlockMeaning::Blocks { ino: run.ino, first, count: 1 }
                    }
                    Role::Map { level: 1, .. } => BlockMeaning::Only("leaf of the tree"),
                    Role::Map { level, .. } => {
                        BlockMeaning::Piece("inner node of the tree, level", level.into())
                    }
                    Role::Attributes => BlockMeaning::Only("attributes"),
                };
                (run.class, what)
            }
            ReiserPlace::Free => (Class::FileData, BlockMeaning::Unclaimed),
        }
    }

    /// The part from `at` on: one block, or the whole rest of a run of file data or of the boot
    /// area.
    fn part(
        &self,
        at: u64,
        end: u64,
        class: Class,
        what: BlockMeaning,
        place: &ReiserPlace,
    ) -> ClassifiedRange {
        let shift = self.g.block_shift;
        let block = at >> shift;
        let blocks = match place {
            ReiserPlace::Owned(run) if run.class == Class::FileData => run.end() - block,
            ReiserPlace::Boot => self.g.superblock() - block,
            _ => 1,
        };
        let to = ((block + blocks) << shift).min(end);
        let what = match what {
            BlockMeaning::Blocks { ino, first, .. } => {
                BlockMeaning::Blocks { ino, first, count: ((to - 1) >> shift) - block + 1 }
            }
            other => other,
        };
        ClassifiedRange { class, offset: at, len: to - at, what }
    }
}

impl Decoder for Reiser {
    fn system(&self) -> &'static str {
        "reiserfs"
    }

    fn block_shift(&self) -> u32 {
        self.g.block_shift
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let shift = self.g.block_shift;
        cover(out, offset, data.len() as u64, self.g.blocks << shift, |at, end| {
            let block = at >> shift;
            let from = (at - offset) as usize;
            let len = ((block + 1) << shift).min(end) - at;
            let bytes = &data[from..from + len as usize];
            let whole = bytes.len() == self.g.block_size();
            let place = self.place(block);
            let (class, what) = match place {
                ReiserPlace::Ring(_) if !whole => return unknown(at, len, Reason::NotUnderstood),
                ReiserPlace::Ring(i) => self.journal_block((i, at), bytes, state),
                ReiserPlace::Free if whole => {
                    let class = self.learn(block, bytes, state);
                    if class == Class::TreeLeaf {
                        self.leaves.written(block, at, bytes, state);
                    }
                    (class, BlockMeaning::Unclaimed)
                }
                ReiserPlace::Superblock | ReiserPlace::Owned(_) if whole => {
                    let named = self.fixed(&place, block);
                    self.learn(block, bytes, state);
                    if named.0 == Class::TreeLeaf && is_leaf(bytes) {
                        self.leaves.written(block, at, bytes, state);
                    }
                    named
                }
                _ => self.fixed(&place, block),
            };
            self.part(at, end, class, what, &place)
        });
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        let shift = self.g.block_shift;
        cover(out, offset, len, self.g.blocks << shift, |at, end| {
            let block = at >> shift;
            let place = self.place(block);
            let (class, what) = self.fixed(&place, block);
            let mut part = self.part(at, end, class, what, &place);
            let from = (at - offset) as usize;
            let bytes = data.and_then(|d| d.get(from..from + part.len as usize));
            if let (ReiserPlace::Ring(_), Some(head)) =
                (&place, bytes.and_then(reiserfs::descriptor))
            {
                part.class = Class::JournalDescriptor;
                part.what = BlockMeaning::Journal { transaction: Some(head.id.into()), home: None };
            }
            part
        });
    }

    fn log_bytes(&self) -> Option<u64> {
        self.g.journal.map(|_| self.g.journal_size << self.g.block_shift)
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.tree.runs.contents(ino, self.g.block_shift)
    }
}
