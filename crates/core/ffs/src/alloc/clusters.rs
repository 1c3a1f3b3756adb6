//! Reallocation (FreeBSD's `ffs_reallocblks`): blocks that were written in order are moved so that
//! they are contiguous.
//!
//! Source: the reallocation of Smith and Seltzer, which every file system of soft-updates-2000,
//! section 4.1, uses. The blocks move in the cache, before they are first written.

use ordo_cache::{BufKey, BufRef};
use ordo_format::Endian;
use ordo_format::ufs2::Group;
use ordo_format::ufs2::bitmap::{next_clear, next_set};
use ordo_format::ufs2::group::GroupLayout;
use ordo_ordering::{Op, What};
use ordo_vfs::FsResult;

use crate::group::GroupChange;
use crate::{Ffs, FfsInode};

impl Ffs {
    /// Notes that a run of `count` blocks of a file was written. Places the blocks better if that
    /// costs no I/O, and starts to write them.
    pub(crate) async fn place_cluster(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        first: u64,
        count: u64,
    ) -> FsResult<()> {
        let buffers: Option<Vec<BufRef>> = (first..first + count)
            .map(|lbn| self.cache.peek(BufKey::file(ip.ino(), lbn.cast_signed())))
            .collect();
        // If some of the blocks are no longer in memory, moving the others gains nothing.
        let Some(buffers) = buffers else { return Ok(()) };
        if self.should_move(&buffers) {
            self.move_cluster(op, ip, first, &buffers).await?;
        }
        if self.cache.ordering().writes_behind() {
            buffers.iter().for_each(|buf| self.cache.write_soon(buf));
        }
        Ok(())
    }

    fn should_move(&self, buffers: &[BufRef]) -> bool {
        let bsize = self.bsize();
        let contiguous = buffers.windows(2).all(|pair| {
            let [a, b] = pair else { return true };
            a.address().map(|a| a + bsize) == b.address()
        });
        // Only whole blocks that were never written move, so moving costs no I/O.
        let movable = |b: &BufRef| {
            b.is_dirty() && !b.is_writing() && !b.is_stored() && b.len() as u64 == bsize
        };
        !contiguous
            && self.sb.contigsumsize > 0
            && buffers.len() <= self.sb.contigsumsize as usize
            && buffers.iter().all(movable)
    }

    async fn move_cluster(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        first: u64,
        buffers: &[BufRef],
    ) -> FsResult<()> {
        let count = buffers.len() as u32;
        let Some(old) = buffers[0].address() else { return Ok(()) };
        let old = old >> self.sb.fshift;
        let previous = match first.checked_sub(1) {
            Some(lbn) => Some(self.lookup(ip, lbn).await?).filter(|address| *address != 0),
            None => None,
        };
        let preferred = previous.map_or(old, |p| self.behind(p, first));
        let places = buffers.iter().filter_map(|b| b.address()).map(|byte| byte >> self.sb.fshift);
        let _held = self.groups_of(places).await?;
        let Some(new) = self.allocate_run(op, self.sb.frag_group(old), preferred, count).await?
        else {
            return Ok(());
        };
        let frags = self.frag();
        for (i, buf) in buffers.iter().enumerate() {
            let lbn = first + i as u64;
            let from = self.lookup(ip, lbn).await?;
            let to = new + self.sb.blocks_to_frags(i as u64);
            self.cache.move_to(buf, self.sb.byte_of(to)).await;
            self.set_pointer(op, ip, lbn, (from, frags), (to, frags), buf).await?;
            self.free(op, from, frags).await?;
        }
        Ok(())
    }

    /// Marks `count` contiguous blocks of one group as used, near `preferred` if that is in the
    /// group.
    async fn allocate_run(
        &self,
        op: &mut Op<'_>,
        cg: u32,
        preferred: u64,
        count: u32,
    ) -> FsResult<Option<u64>> {
        let frags = self.frag();
        let buf = self.group(cg).await?;
        let near =
            (self.sb.frag_group(preferred) == cg).then(|| self.sb.frag_in_group(preferred) / frags);
        let find = |bytes: &[u8]| {
            let header = Group::decode(bytes, self.endian);
            let layout = header.layout(&self.sb);
            find_cluster(bytes, self.endian, &layout, header.nclusterblks, near, count)
        };
        let mut change;
        let (blk, address, admitted) = loop {
            let Some(blk) = find(&buf.read()) else { return Ok(None) };
            let address = self.sb.cg_base(cg) + u64::from(blk * frags);
            let what = What::AllocateBlock { address, frags: count * frags };
            change = GroupChange::new(cg, what);
            let admitted = self.admit_group(op, &change).await?;
            // Another operation may have taken the blocks while this one waited. Then another run
            // is searched for.
            if find(&buf.read()) == Some(blk) {
                break (blk, address, admitted);
            }
        };
        let start = Group::decode(&buf.read(), self.endian).freeoff as usize;
        let map = start + (blk * frags / 8) as usize
            ..start + ((blk + count) * frags).div_ceil(8) as usize;
        let changed = self.edit_group(op, &buf, map, admitted, |group| {
            (blk..blk + count).try_for_each(|b| group.change_frags(b * frags, frags, false))
        });
        changed.map_err(|_| {
            self.group_corrupt(cg, "the cluster map shows a block as free that is in use")
        })?;
        Ok(Some(address))
    }
}

/// The first run of `count` free blocks from `near` on, with wrap-around.
fn find_cluster(
    bytes: &[u8],
    endian: Endian,
    layout: &GroupLayout,
    blocks: u32,
    near: Option<u32>,
    count: u32,
) -> Option<u32> {
    let sizes = layout.cluster_sum.len() as u32 / 4;
    let any = (count..sizes)
        .any(|n| endian.get_i32(bytes, layout.cluster_sum.start + 4 * n as usize) > 0);
    if !any {
        return None;
    }
    let map = &bytes[layout.clusters.clone()];
    let search = |from: u32, to: u32| {
        let mut at = from;
        while let Some(first) = next_set(map, at, to) {
            at = next_clear(map, first, to).unwrap_or(to);
            if at - first >= count {
                return Some(first);
            }
        }
        None
    };
    let near = near.filter(|n| *n < blocks).unwrap_or(0);
    search(near, blocks).or_else(|| search(0, blocks.min(near + count)))
}
