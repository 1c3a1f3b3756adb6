//! Punching holes: freeing blocks in the middle of a file.
//!
//! One step frees either blocks to which the inode itself points, or blocks of one indirect block.
//! The step has little to read, and reads all of it before the first change. An indirect block that
//! would have no pointers left is freed too, and so is the one above it if that pointer was its
//! only one. Only the pointer to the topmost freed block is then reset.

use std::ops::Range;

use ordo_cache::BufRef;
use ordo_ordering::{Op, What};
use ordo_ufs::io_error;
use ordo_vfs::FsResult;

use crate::truncate::ToFree;
use crate::{DIRECT, Ffs, FfsInode};

/// The place of the pointers that are reset.
enum Reset {
    /// Pointers to direct blocks.
    Direct(Range<usize>),
    /// The inode's pointer to a tree.
    Root(usize),
    /// Pointers in an indirect block.
    In(BufRef, Range<usize>),
}

/// The blocks that one step frees.
struct Step {
    /// The block of the file at which the next step begins.
    end: u64,
    reset: Reset,
    to_free: Vec<ToFree>,
    /// The number of freed blocks, in the inode's unit.
    blocks: u64,
    /// Indirect blocks on the path, and the groups of the freed blocks. They stay in memory until
    /// the step is done.
    _held: Vec<BufRef>,
}

impl Ffs {
    /// Frees blocks `first..end`, or as many of them as one step may. Returns the block at which
    /// the next step begins. The file's last block must not be among the freed ones.
    pub(crate) async fn punch_hole(
        &self,
        op: &mut Op<'_>,
        ip: &FfsInode,
        first: u64,
        end: u64,
    ) -> FsResult<u64> {
        let inode = self.inode_buffer(ip.ino()).await?;
        let step = match first < DIRECT {
            true => self.out_of_inode(ip, first, end.min(DIRECT)).await?,
            false => self.out_of_tree(ip, first, end).await?,
        };
        if step.to_free.is_empty() {
            return Ok(step.end);
        }
        let what = What::ClearPointers { ino: ip.ino() };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        match step.reset {
            Reset::Direct(range) => {
                ip.pointers_mut().db[range].fill(0);
                self.put_inode(op, &inode, ip, admitted);
            }
            Reset::Root(root) => {
                ip.pointers_mut().ib[root] = 0;
                self.put_inode(op, &inode, ip, admitted);
            }
            Reset::In(buf, range) => {
                let range = self.sb.pointer_bytes(range);
                let clear = |b: &mut [u8]| b[range.clone()].fill(0);
                op.apply(&buf, std::slice::from_ref(&range), admitted, clear);
            }
        }
        // This change of the inode is recorded before anything is freed. Nodes that wait for a
        // freed indirect block will wait for this change instead, and this change waits for the
        // reset of the pointer.
        let (ino, old) = (ip.ino(), ip.record().blocks);
        let new = old.saturating_sub(step.blocks * self.sectors(self.frag()));
        let what = What::SetBlockCount { ino, old, new };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        ip.record_mut().blocks = new;
        self.put_inode(op, &inode, ip, admitted);
        let mut damage = None;
        for to_free in step.to_free {
            self.free_piece(op, ip, to_free, &mut damage).await?;
        }
        damage.map_or(Ok(step.end), Err)
    }

    /// A step that frees direct blocks.
    async fn out_of_inode(&self, ip: &FfsInode, first: u64, end: u64) -> FsResult<Step> {
        let range = first as usize..end as usize;
        let pointers = ip.pointers().db[range.clone()].to_vec();
        let held = self.groups_of(pointers.iter().map(|a| a.cast_unsigned())).await?;
        let (to_free, blocks) = self.data_to_free(ip, first, &pointers);
        Ok(Step { end, reset: Reset::Direct(range), to_free, blocks, _held: held })
    }

    /// A step that frees blocks of the indirect block that points to `first`. That block is freed
    /// too if it has no other pointers.
    async fn out_of_tree(&self, ip: &FfsInode, first: u64, end: u64) -> FsResult<Step> {
        let path = self.path(first)?;
        let lowest = *path.levels().last().expect("an indirect path has a level");
        let end = end.min(lowest.first + self.sb.addresses_per_block());
        let mut address = ip.pointers().ib[path.root];
        let (mut above, mut addresses) = (Vec::new(), Vec::new());
        for level in path.levels() {
            if address == 0 {
                let (to_free, reset) = (Vec::new(), Reset::Root(path.root));
                return Ok(Step { end, reset, to_free, blocks: 0, _held: above });
            }
            let pointers = self.pointers(ip, level, address).await?;
            addresses.push(address);
            address = self.pointer(&pointers.read(), level.index);
            above.push(pointers);
        }
        let count = (end - first) as usize;
        let mut range = lowest.index..lowest.index + count;
        let pointers: Vec<i64> = {
            let bytes = above.last().expect("an indirect path has a level").read();
            range.clone().map(|i| self.pointer(&bytes, i)).collect()
        };
        let freed = pointers.iter().chain(&addresses).map(|a| a.cast_unsigned());
        let mut held = self.groups_of(freed).await?;
        let (mut to_free, mut blocks) = self.data_to_free(ip, first, &pointers);
        // The step frees indirect blocks upwards, up to the first that has other pointers.
        let mut level = above.len();
        while level > 0 && is_empty_but(&above[level - 1], self.sb.pointer_bytes(range.clone())) {
            level -= 1;
            blocks += 1;
            let (node, address) = (&path.levels()[level], addresses[level]);
            to_free = vec![ToFree::Tree { height: node.height, first: node.first, address }];
            if level > 0 {
                let index = path.levels()[level - 1].index;
                range = index..index + 1;
            }
        }
        let reset = match level.checked_sub(1) {
            None => Reset::Root(path.root),
            Some(at) => Reset::In(above[at].clone(), range),
        };
        held.extend(above);
        Ok(Step { end, reset, to_free, blocks, _held: held })
    }

    /// The data blocks to free, and their number.
    fn data_to_free(&self, ip: &FfsInode, first: u64, pointers: &[i64]) -> (Vec<ToFree>, u64) {
        let frags = self.frag();
        let set = (first..).zip(pointers.iter().copied()).filter(|(_, address)| *address != 0);
        let sound = set.clone().filter(|(lbn, address)| {
            self.check_address(ip, lbn.cast_signed(), *address, frags).is_ok()
        });
        let blocks = sound.count() as u64;
        (set.map(|(lbn, address)| ToFree::Data { lbn, address, frags }).collect(), blocks)
    }
}

/// Whether an indirect block has no pointers outside of a range of its bytes.
fn is_empty_but(buf: &BufRef, range: Range<usize>) -> bool {
    let bytes = buf.read();
    let rest = [&bytes[..range.start], &bytes[range.end..]];
    rest.iter().all(|part| part.iter().all(|byte| *byte == 0))
}
