//! One cylinder group: its header and bitmaps in the cache, and every change of them.

use std::ops::Range;

use ordo_cache::{BufKey, BufRef, BufferClass, WriteImage};
use ordo_format::Endian;
use ordo_format::ufs2::bitmap::{
    block_bits, block_mask, clear, cluster_account, frag_sum, is_set, set,
};
use ordo_format::ufs2::group::GroupLayout;
use ordo_format::ufs2::superblock::CK_INODE;
use ordo_format::ufs2::{Dinode, Group, Superblock};
use ordo_ordering::{Admitted, Op, OpKind, What};
use ordo_ufs::io_error;
use ordo_vfs::{Errno, FsError, FsResult};

use crate::Ffs;

/// A group during a change: the decoded header, which is stored at the end, and the bitmaps.
pub(crate) struct GroupEdit<'a> {
    pub header: Group,
    pub bytes: &'a mut [u8],
    pub layout: GroupLayout,
    endian: Endian,
    frag: u32,
}

/// A change of a group, and the change of its counts in the summary area.
pub(crate) struct GroupChange<'w> {
    what: What<'w>,
    counts: What<'static>,
}

impl<'w> GroupChange<'w> {
    pub(crate) fn new(cg: u32, what: What<'w>) -> GroupChange<'w> {
        GroupChange { what, counts: What::GroupCounts { cg } }
    }
}

/// Permission to change a group, and its counts in the summary area.
pub(crate) struct GroupAdmitted<'w> {
    change: Admitted<'w>,
    counts: Option<Admitted<'w>>,
}

/// The error when fragments to free are free already, or fragments to use are used already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongState;

impl GroupEdit<'_> {
    /// Marks `count` fragments from `first` on (by index in the group, inside one block) as free or
    /// used, and updates every count that follows from them.
    pub(crate) fn change_frags(
        &mut self,
        first: u32,
        count: u32,
        free: bool,
    ) -> Result<(), WrongState> {
        let map = self.layout.frags.clone();
        let blk = first / self.frag;
        let whole = block_mask(self.frag);
        let before = block_bits(&self.bytes[map.clone()], blk, self.frag);
        for bit in first..first + count {
            let map = &mut self.bytes[map.clone()];
            if is_set(map, bit) == free {
                // No count has changed yet, so only the bits are restored.
                (first..bit).for_each(|b| if free { clear(map, b) } else { set(map, b) });
                return Err(WrongState);
            }
            if free {
                set(map, bit);
            } else {
                clear(map, bit);
            }
        }
        let after = block_bits(&self.bytes[map], blk, self.frag);
        frag_sum(before, self.frag, &mut self.header.frsum, -1);
        frag_sum(after, self.frag, &mut self.header.frsum, 1);
        let to_free = |bits: u8| if bits == whole { 0 } else { bits.count_ones() as i32 };
        let cs = &mut self.header.cs;
        // A damaged image may have any counts.
        cs.nffree = cs.nffree.saturating_add(to_free(after) - to_free(before));
        if (before == whole) != (after == whole) {
            cs.nbfree = cs.nbfree.saturating_add(if after == whole { 1 } else { -1 });
            let freed = after == whole;
            cluster_account(self.bytes, self.endian, &self.layout, blk, freed);
        }
        Ok(())
    }

    /// Marks an inode (by its index in the group) as free or used.
    pub(crate) fn change_inode(
        &mut self,
        index: u32,
        free: bool,
        is_directory: bool,
    ) -> Result<(), WrongState> {
        let map = &mut self.bytes[self.layout.inodes.clone()];
        if is_set(map, index) != free {
            return Err(WrongState);
        }
        let by = if free { 1 } else { -1 };
        if free {
            clear(map, index);
            self.header.irotor = self.header.irotor.min(index);
        } else {
            set(map, index);
            self.header.irotor = index;
        }
        let cs = &mut self.header.cs;
        cs.nifree = cs.nifree.saturating_add(by);
        if is_directory {
            cs.ndir = cs.ndir.saturating_sub(by);
        }
        Ok(())
    }
}

impl Ffs {
    /// The buffer of a group's header and bitmaps. It was checked when it was read.
    pub(crate) async fn group(&self, cg: u32) -> FsResult<BufRef> {
        let at = self.sb.byte_of(self.sb.cg_header(cg));
        let len = (self.sb.cgsize as usize).next_multiple_of(512);
        let key = BufKey::device(at);
        let buf = self.cache.get(key, at, len, BufferClass::Metadata).await.map_err(io_error)?;
        if !buf.is_verified() {
            let found = match self.torn_groups {
                true => Group::parse(&buf.read(), self.endian, &self.sb, cg),
                false => Group::read(&buf.read(), self.endian, &self.sb, cg),
            };
            found.map_err(|e| {
                FsError::corrupt(format_args!("block at byte {at}: {e}; run a check (fsck)"))
            })?;
            buf.set_verified();
        }
        Ok(buf)
    }

    /// Reads the groups of these fragments. A caller that keeps their buffers can free the
    /// fragments without a read that may fail halfway. A damaged group is left out: the operation
    /// that needs it reports the damage.
    pub(crate) async fn groups_of(
        &self,
        addresses: impl IntoIterator<Item = u64>,
    ) -> FsResult<Vec<BufRef>> {
        let mut held = Vec::new();
        let mut last = None;
        for address in addresses.into_iter().filter(|address| self.sb.has_frags(*address, 1)) {
            let cg = self.sb.frag_group(address);
            if last.replace(cg) == Some(cg) {
                continue;
            }
            match self.group(cg).await {
                Ok(buf) => held.push(buf),
                Err(error) if error.errno == Errno::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        Ok(held)
    }

    /// Asks for permission to change a group and, if the ordering keeps the summary area right, its
    /// counts there.
    #[inline]
    pub(crate) async fn admit_group<'w>(
        &self,
        op: &mut Op<'_>,
        change: &'w GroupChange<'w>,
    ) -> FsResult<GroupAdmitted<'w>> {
        let admitted = op.admit(&change.what).await.map_err(io_error)?;
        let counts = match self.summary.is_empty() {
            true => None,
            false => Some(op.admit(&change.counts).await.map_err(io_error)?),
        };
        Ok(GroupAdmitted { change: admitted, counts })
    }

    /// Makes an admitted change of a group. `edit` may change the header, the bytes in `maps`
    /// (ranges in the group's block), and the cluster maps.
    pub(crate) fn edit_group<R>(
        &self,
        op: &mut Op<'_>,
        buf: &BufRef,
        map: Range<usize>,
        admitted: GroupAdmitted<'_>,
        edit: impl FnOnce(&mut GroupEdit<'_>) -> R,
    ) -> R {
        let header = Group::decode(&buf.read(), self.endian);
        let layout = header.layout(&self.sb);
        let clusters = layout.cluster_sum.start..layout.clusters.end;
        let ranges = [0..Group::SIZE, map, clusters];
        let (seconds, _) = self.cache.runtime().wall_time();
        let cg = header.cgx;
        let out = op.apply(buf, &ranges, admitted.change, |bytes| {
            let old = header.cs;
            let frag = self.frag();
            let mut group = GroupEdit { header, bytes, layout, endian: self.endian, frag };
            let out = edit(&mut group);
            self.sb.stamp(&mut group.header, seconds);
            let GroupEdit { header, bytes, .. } = group;
            header.encode(bytes, self.endian);
            self.allocation.borrow_mut().changed(cg, old, header.cs);
            out
        });
        if let Some(counts) = admitted.counts {
            self.note_counts(op, cg, counts);
        }
        out
    }

    /// Corrects a group's number of directories, which cannot be computed from a bitmap, by adding
    /// `by`.
    ///
    /// # Errors
    /// The device failed.
    pub async fn correct_directories(&self, cg: u32, by: i32) -> FsResult<()> {
        let buf = self.group(cg).await?;
        let mut op = Op::begin(&self.cache, OpKind::Housekeeping).await.map_err(io_error)?;
        let change = GroupChange::new(cg, What::Summary);
        let admitted = self.admit_group(&mut op, &change).await?;
        self.edit_group(&mut op, &buf, 0..0, admitted, |group| {
            group.header.cs.ndir = group.header.cs.ndir.saturating_add(by);
        });
        op.end().await.map_err(io_error)
    }

    /// The error for a group whose bitmaps contradict its counts or a file's pointers.
    pub(crate) fn group_corrupt(&self, cg: u32, what: impl std::fmt::Display) -> FsError {
        FsError::corrupt(format_args!(
            "cylinder group {cg} (block at byte {}): {what}; run a check (fsck)",
            self.sb.byte_of(self.sb.cg_header(cg))
        ))
    }
}

/// Completes a block's image before it is written. Sets the check-hashes that cover a whole block,
/// and those of the inodes in which bytes were rolled back (`rolled_back`). Any other inode got its
/// hash when it was stored.
pub(crate) fn seal(
    sb: &Superblock,
    sb_at: u64,
    endian: Endian,
    byte: u64,
    image: &mut WriteImage,
    rolled_back: &[usize],
) {
    if byte == sb_at {
        sb.seal(image.to_mut(), endian);
        return;
    }
    let frag = byte >> sb.fshift;
    if sb.byte_of(frag) == byte && frag == sb.cg_header(sb.frag_group(frag)) {
        Group::seal(image.to_mut(), endian, sb);
        return;
    }
    // Any other block with a key of the device that was rolled back in part is a block of inodes.
    for at in rolled_back.iter().filter(|_| sb.keeps_hash(CK_INODE)) {
        let inode = &mut image.to_mut()[at / Dinode::SIZE * Dinode::SIZE..][..Dinode::SIZE];
        if Dinode::decode(inode, endian).mode != 0 {
            Dinode::seal(inode, endian);
        }
    }
}
