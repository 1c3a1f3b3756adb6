//! The allocation summary: the free space of each group, in memory, and its copy in the superblock
//! and summary area.

use ordo_cache::{BufKey, BufRef, BufferClass};
use ordo_format::ufs2::csum::CsTotal;
use ordo_format::ufs2::{Csum, Superblock};
use ordo_ordering::{Admitted, Op, OpKind, OrderedCache, What};
use ordo_ufs::io_error;
use ordo_vfs::FsResult;

use crate::Ffs;
use crate::state_flags::MountState;

/// The counts of each group and of all, and the fields of the superblock that change.
pub(crate) struct AllocationSummary {
    /// The counts of each group, as in the summary area (`fs_csp`).
    pub groups: Vec<Csum>,
    /// The sum of `groups`.
    pub total: CsTotal,
    /// For each group, the directories that were created there without files in between (FreeBSD's
    /// `fs_contigdirs`). The count keeps trees from crowding one group.
    pub directories_in_a_row: Vec<u8>,
    /// For each group, the number of inodes in blocks that are filled, whether the group counts
    /// them yet or not.
    pub inodes_prepared: Vec<u32>,
    /// Whether blocks are placed for time or, as free space gets fragmented, for space
    /// (`fs_optim`).
    pub optim: i32,
    /// Whether a change of the summary is not on disk.
    pub dirty: bool,
}

impl AllocationSummary {
    pub(crate) fn new(sb: &Superblock, groups: Vec<Csum>) -> AllocationSummary {
        let mut total = CsTotal::zeroed();
        groups.iter().for_each(|group| total.add(group));
        let directories_in_a_row = vec![0; groups.len()];
        let inodes_prepared = vec![0; groups.len()];
        let optim = sb.optim;
        AllocationSummary {
            groups,
            total,
            directories_in_a_row,
            inodes_prepared,
            optim,
            dirty: false,
        }
    }

    /// Notes that a group's counts have changed from `old` to `new`.
    pub(crate) fn changed(&mut self, cg: u32, old: Csum, new: Csum) {
        let mine = &mut self.groups[cg as usize];
        let delta = |new: i32, old: i32| new.wrapping_sub(old);
        let change = Csum {
            ndir: delta(new.ndir, old.ndir),
            nbfree: delta(new.nbfree, old.nbfree),
            nifree: delta(new.nifree, old.nifree),
            nffree: delta(new.nffree, old.nffree),
        };
        mine.ndir = mine.ndir.saturating_add(change.ndir);
        mine.nbfree = mine.nbfree.saturating_add(change.nbfree);
        mine.nifree = mine.nifree.saturating_add(change.nifree);
        mine.nffree = mine.nffree.saturating_add(change.nffree);
        self.total.add(&change);
        self.dirty = true;
    }

    /// The free fragments of all groups.
    pub(crate) fn free_frags(&self, sb: &Superblock) -> u64 {
        let blocks = self.total.nbfree.max(0).cast_unsigned();
        sb.blocks_to_frags(blocks) + self.total.nffree.max(0).cast_unsigned()
    }

    /// The number of fragments that are reserved (`minfree`).
    pub(crate) fn reserve(sb: &Superblock) -> u64 {
        sb.dsize.max(0).cast_unsigned() * sb.minfree.max(0).cast_unsigned() as u64 / 100
    }
}

impl Ffs {
    /// The buffer of the superblock.
    pub(crate) async fn superblock_block(&self) -> FsResult<BufRef> {
        let len = (self.sb.sbsize as usize).next_multiple_of(512);
        let key = BufKey::device(self.sb_at);
        self.cache.get(key, self.sb_at, len, BufferClass::Metadata).await.map_err(io_error)
    }

    /// Updates the superblock and the summary area in the cache.
    pub(crate) async fn store_allocation(&self, state: MountState) -> FsResult<()> {
        let mut op = Op::begin(&self.cache, OpKind::Housekeeping).await.map_err(io_error)?;
        self.store_summary(&mut op).await?;
        let buf = self.superblock_block().await?;
        let what = What::Summary;
        let admitted = op.admit(&what).await.map_err(io_error)?;
        let (seconds, _) = self.cache.runtime().wall_time();
        let range = 0..Superblock::SIZE;
        op.apply(&buf, std::slice::from_ref(&range), admitted, |bytes| {
            let mut sb = self.sb.clone();
            let allocation = self.allocation.borrow();
            sb.cstotal = allocation.total.clone();
            sb.optim = allocation.optim;
            sb.time = seconds;
            self.state_flags.put(&mut sb, state);
            sb.store(bytes, self.endian);
        });
        self.allocation.borrow_mut().dirty = false;
        op.end().await.map_err(io_error)
    }

    /// Notes a change of a group's counts in the summary area, if the ordering keeps that area
    /// right.
    pub(crate) fn note_counts(&self, op: &mut Op<'_>, cg: u32, admitted: Admitted<'_>) {
        let per_block = self.bsize() as usize / Csum::SIZE;
        let (block, nth) = (cg as usize / per_block, cg as usize % per_block);
        let Some(buf) = self.summary.get(block) else { return };
        let mut fresh = [0; Csum::SIZE];
        self.allocation.borrow().groups[cg as usize].encode(&mut fresh, self.endian);
        let range = nth * Csum::SIZE..(nth + 1) * Csum::SIZE;
        if buf.read()[range.clone()] != fresh {
            op.apply(buf, std::slice::from_ref(&range), admitted, |bytes| {
                bytes[range.clone()].copy_from_slice(&fresh);
            });
        }
    }

    /// Copies the counts of all groups into the summary area's buffers.
    async fn store_summary(&self, op: &mut Op<'_>) -> FsResult<()> {
        let count = self.allocation.borrow().groups.len();
        let per_block = self.bsize() as usize / Csum::SIZE;
        let mut first = 0;
        while first < count {
            let buf = self.summary_block(first / per_block).await?;
            let n = per_block.min(count - first).min(buf.len() / Csum::SIZE);
            let what = What::Summary;
            let admitted = op.admit(&what).await.map_err(io_error)?;
            let mut fresh = vec![0; n * Csum::SIZE];
            for (i, group) in self.allocation.borrow().groups[first..first + n].iter().enumerate() {
                group.encode(&mut fresh[i * Csum::SIZE..], self.endian);
            }
            if buf.read()[..fresh.len()] != fresh[..] {
                let range = 0..fresh.len();
                op.apply(&buf, std::slice::from_ref(&range), admitted, |bytes| {
                    bytes[..fresh.len()].copy_from_slice(&fresh);
                });
            }
            first += n;
        }
        Ok(())
    }

    /// The buffer of the n-th block of the summary area.
    pub(crate) async fn summary_block(&self, n: usize) -> FsResult<BufRef> {
        summary_block(&self.cache, &self.sb, n).await
    }
}

/// The buffer of the n-th block of the summary area. The last block ends with the summary.
pub(crate) async fn summary_block(
    cache: &OrderedCache,
    sb: &Superblock,
    n: usize,
) -> FsResult<BufRef> {
    let (bsize, fsize) = (sb.block_size(), sb.frag_size());
    let left = (sb.cssize as usize).saturating_sub(n * bsize);
    let len = left.min(bsize).next_multiple_of(fsize);
    let at = sb.byte_of(sb.csaddr.cast_unsigned()) + (n * bsize) as u64;
    cache.get(BufKey::device(at), at, len, BufferClass::Metadata).await.map_err(io_error)
}
