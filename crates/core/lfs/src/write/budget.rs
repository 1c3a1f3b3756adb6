//! Space: the most that writing may take, and the space that is kept for each purpose.
//!
//! As clean segments run out, operations are refused in an order ([`SpacePurpose`]): first new
//! blocks, then changes that take no blocks, then deletes. The rest is enough for checkpoints, so
//! no checkpoint ever lacks space. The cleaner starts as soon as new blocks would be refused. Live
//! bytes are limited to less than the size of the log ([`LogState::limit`]): without dead space the
//! cleaner would have nothing to gain.
//!
//! Typical sequence: [`Store::lacks`] before an operation and for each block in it;
//! [`LogState::bound`] when a write-out is gathered.

use std::collections::BTreeSet;

use ordo_cache::BufKey;
use ordo_format::lfs::{NDADDR, summary::Seal};

use super::state::LogState;
use super::store::{INODES, Store, decode, has_pointers};
use super::tree::{Node, ancestors};

/// The number of clean segments with which the cleaner can begin, when only deletes are still
/// allowed.
const CLEANING_SEGMENTS: i64 = 4;
/// The number of segments between the limits of one purpose and the next.
const STEP_SEGMENTS: i64 = 2;
/// The least number of segments without live bytes in a full log, beyond the segments that are
/// kept: the cleaner needs dead space.
const DEAD_SEGMENTS: i64 = 8;
/// One segment in this number, at least, has no live bytes in a full log.
const DEAD_SHARE: i64 = 10;
/// The most levels of indirect blocks above a block of contents.
const LEVELS: i64 = 3;
/// The most blocks that an operation changes besides those that it allocates or frees: directories,
/// indirect blocks.
const CHANGED_BLOCKS: u64 = 8;
/// The most inodes that an operation changes.
const CHANGED_INODES: i64 = 4;

/// The least number of free inodes in the IFILE after a checkpoint.
const FREE_INODES: usize = 64;
/// The most free inodes that a checkpoint adds up to while there is plenty of space: a quarter of
/// those in use, at most this number. Without inodes an operation must wait for a checkpoint, so a
/// number that does not grow would mean a checkpoint every hundred files.
const FREE_INODES_MAX: usize = 16_384;
/// The log has plenty of space while this part of it is free beyond what is kept for other
/// purposes.
const PLENTY_SHARE: i64 = 8;

/// The purpose for which space is wanted. When space runs out, the last variant is refused first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpacePurpose {
    /// A checkpoint of everything dirty, with no new blocks.
    Checkpoint,
    /// Operations that free space in the end.
    Delete,
    /// Operations that take no new blocks.
    Change,
    /// New blocks and inodes.
    Growth,
}

/// The space that a write-out will take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedExtent {
    /// The number of fragments of contents, indirect blocks and blocks of inodes.
    pub frags: i64,
    /// The number of these blocks.
    pub blocks: i64,
}

impl ReservedExtent {
    /// The extent of `blocks` whole blocks and of `inodes` inodes, which share blocks.
    pub fn of(state: &LogState, blocks: i64, inodes: i64) -> ReservedExtent {
        let sb = &state.sb;
        let inode_blocks = (inodes.max(0) as u64).div_ceil(sb.inopb.into()).cast_signed();
        let frags = blocks * sb.block_frags() + inode_blocks * i64::from(sb.ibsize / sb.fsize);
        ReservedExtent { frags, blocks: blocks + inode_blocks }
    }

    /// The sum of both.
    pub fn and(self, other: ReservedExtent) -> ReservedExtent {
        ReservedExtent { frags: self.frags + other.frags, blocks: self.blocks + other.blocks }
    }
}

impl LogState {
    /// The most fragments that a write-out of this extent takes, with summaries and, at a
    /// checkpoint, with the whole IFILE. No partial segment has more than `bytes_max` bytes.
    pub fn bound(&self, extent: ReservedExtent, is_checkpoint: bool) -> i64 {
        let sb = &self.sb;
        let ifile = if is_checkpoint { self.ifile.blocks() as i64 + 1 } else { 0 };
        let (width, sum) = (sb.width, i64::from(sb.sumsize / sb.fsize));
        // The worst case is a file with a FINFO of its own for each block.
        let each = (width.finfo_size() + width.pointer_size()) as i64;
        let fixed = width.segsum_size() + 8 + Seal::SIZE;
        let most = ((i64::from(sb.sumsize) - fixed as i64) / each).max(1);
        let contents = extent.frags + ifile * sb.block_frags();
        let longest = self.bytes_max as i64 / i64::from(sb.fsize) - sb.block_frags() - sum;
        // The blocks that the cleaner moves have partial segments of their own, which can cut those
        // of other blocks short. So a few summaries are added.
        contents + sum * ((extent.blocks + ifile) / most + contents / longest.max(1) + 5)
    }

    /// The most fragments that a checkpoint of the IFILE alone takes.
    pub fn checkpoint_frags(&self) -> i64 {
        self.bound(ReservedExtent::default(), true)
    }

    /// The number of fragments that operations for this purpose must leave free.
    pub fn kept_from(&self, purpose: SpacePurpose) -> i64 {
        let (segment, checkpoint) = (i64::from(self.sb.fsbpseg), self.checkpoint_frags());
        let step = STEP_SEGMENTS * segment + checkpoint;
        // A segment that becomes empty before one checkpoint can be used after the next one.
        let least = 2 * checkpoint;
        match purpose {
            SpacePurpose::Checkpoint => least,
            SpacePurpose::Delete => least + CLEANING_SEGMENTS * segment + checkpoint,
            SpacePurpose::Change => self.kept_from(SpacePurpose::Delete) + step,
            SpacePurpose::Growth => self.kept_from(SpacePurpose::Change) + step,
        }
    }

    /// The number of fragments in all segments, without those that partial segments may waste.
    pub fn capacity_of_all(&self) -> i64 {
        (0..u64::from(self.sb.nseg)).map(|segment| self.capacity(segment)).sum()
    }

    /// The most bytes that files may have, with their metadata.
    pub fn limit(&self) -> u64 {
        let (count, segment) = (i64::from(self.sb.nseg), i64::from(self.sb.fsbpseg));
        let all = self.capacity_of_all();
        let dead = (count / DEAD_SHARE).max(DEAD_SEGMENTS) * segment;
        let kept = self.kept_from(SpacePurpose::Growth) + STEP_SEGMENTS * segment + dead;
        let kept = kept.max(i64::from(self.sb.minfreeseg) * segment);
        (all - kept).max(0).cast_unsigned() * u64::from(self.sb.fsize)
    }
}

impl Store {
    /// An upper bound for the space that everything dirty takes, with the indirect blocks and
    /// inodes that change with it. The bound is computed from the number of dirty bytes alone.
    fn dirty_at_most(&self, state: &LogState) -> ReservedExtent {
        let bytes = self.cache.stats().dirty_bytes as u64;
        let blocks = bytes.div_ceil(self.shape.bsize.into()).cast_signed();
        let inodes = (bytes / ordo_format::lfs::LfsInode::SIZE as u64).cast_signed();
        ReservedExtent::of(state, (1 + LEVELS) * blocks, blocks + inodes)
    }

    /// A closer bound than [`dirty_at_most`](Self::dirty_at_most), counted buffer by buffer.
    fn dirty_counted(&self, state: &LogState) -> ReservedExtent {
        let (nindir, mut blocks, mut inodes) = (self.nindir(), BTreeSet::new(), BTreeSet::new());
        for buf in self.cache.all_dirty() {
            let BufKey { file, block } = buf.key();
            if file == INODES {
                inodes.insert(block.cast_unsigned());
                self.changed_ends(block.cast_unsigned(), |number| {
                    blocks.insert((block.cast_unsigned(), number));
                });
                continue;
            }
            inodes.insert(file);
            if !self.is_on_data_of(file, block) {
                blocks.insert((file, block));
            }
            if let Some((_, path)) = Node::of(block, nindir) {
                blocks.extend(ancestors(&path, nindir).map(|node| (file, node.number())));
            }
        }
        ReservedExtent::of(state, blocks.len() as i64, inodes.len() as i64)
    }

    /// Calls `each` for the blocks of a file whose length on the device changes because the file
    /// has a new size.
    pub fn changed_ends(&self, ino: u64, mut each: impl FnMut(i64)) {
        let Some(pin) = self.peek_inode(ino) else { return };
        let inode = decode(&pin);
        if !has_pointers(&self.shape, inode.mode, inode.size) || inode.size == inode.spare {
            return;
        }
        for size in [inode.size, inode.spare].into_iter().filter(|size| *size > 0) {
            let last = (size - 1) / u64::from(self.shape.bsize);
            let bytes = |size: u64| self.shape.block_bytes(last, size);
            let is_mapped = last < NDADDR as u64 && inode.db[last as usize] > 0;
            if is_mapped && bytes(inode.size) != bytes(inode.spare) {
                each(last.cast_signed());
            }
        }
    }

    /// Whether there is too little space. Space is needed for everything dirty, for what
    /// `operations` operations and `more` blocks can add, for what operations of this purpose must
    /// leave free, and for `spare` segments.
    pub fn lacks(&self, purpose: SpacePurpose, operations: u64, more: u64, spare: i64) -> bool {
        let state = self.state.borrow();
        let each = self.order.blocks_of_an_operation() + CHANGED_BLOCKS;
        let blocks = (operations * each + more).cast_signed();
        let inodes = CHANGED_INODES * (operations.cast_signed() + 1);
        let added = ReservedExtent::of(&state, blocks, inodes);
        let kept = state.kept_from(purpose) + spare * i64::from(self.shape.fsbpseg);
        let is_too_much =
            |dirty: ReservedExtent| state.bound(dirty.and(added), true) + kept > state.space();
        is_too_much(self.dirty_at_most(&state)) && is_too_much(self.dirty_counted(&state))
    }

    /// Adds free inodes to the IFILE. Only a checkpoint can do this, since rolling forward ignores
    /// inodes for which the IFILE has no entry.
    pub(super) fn grow_ifile(&self, state: &mut LogState, extent: ReservedExtent) {
        let sb = state.sb.clone();
        let in_use = state.ifile.inodes(&sb) as usize - state.ifile.free_inodes();
        let wanted = (in_use / 4).clamp(FREE_INODES, FREE_INODES_MAX);
        let may_grow = |state: &LogState| {
            let kept = state.bound(extent, true) + state.kept_from(SpacePurpose::Growth);
            let spare = state.space() - kept;
            let few = state.ifile.free_inodes() < FREE_INODES;
            spare >= sb.block_frags()
                && state.used() + 4 * u64::from(sb.bsize) <= self.limit
                && (few || spare > self.capacity / PLENTY_SHARE)
        };
        while state.ifile.free_inodes() < wanted && may_grow(state) {
            let added = state.ifile.grow(&sb);
            state.pending += added * u64::from(sb.bsize);
        }
    }
}
