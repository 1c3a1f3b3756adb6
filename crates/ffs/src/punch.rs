//! Taking blocks out of the midst of a file.
//!
//! One step takes blocks that hang from the inode, or from one block of pointers: what it reads is little, and
//! read before anything is changed. A block of pointers stays where it is, even an empty one: what waits
//! for its pointers' end waits for a write of it.

use ordo_block::BlockDevice;
use ordo_cache::BufRef;
use ordo_ordering::{OrderingPolicy, What};
use ordo_ufs::{Inode, io_error};
use ordo_vfs::FsResult;

use crate::truncate::Loose;
use crate::{DIRECT, Ffs, FfsOp};

impl<D: BlockDevice, P: OrderingPolicy> Ffs<D, P> {
    /// Takes blocks `first..end` away, or as many of them as one step may; up to which that was. None of
    /// them is the file's last.
    pub(crate) async fn take_out(
        &self,
        op: &mut FfsOp<'_, D, P>,
        ip: &Inode,
        first: u64,
        end: u64,
    ) -> FsResult<u64> {
        let inode = self.inode_buffer(ip.ino()).await?;
        if first < DIRECT {
            let end = end.min(DIRECT);
            let pointers = ip.dinode().db[first as usize..end as usize].to_vec();
            let _held = self.groups_of(pointers.iter().map(|a| a.cast_unsigned())).await?;
            let what = What::ClearPointers { ino: ip.ino() };
            op.admit(&what).await.map_err(io_error)?;
            ip.dinode_mut().db[first as usize..end as usize].fill(0);
            self.put_inode(op, &inode, ip, what);
            self.give_up(op, ip, &inode, first, &pointers).await?;
            return Ok(end);
        }
        let way = self.way(first)?;
        let lowest = way.hops().last().expect("a way has a hop");
        let end = end.min(lowest.first + self.sb.addresses_per_block());
        let mut address = ip.dinode().ib[way.root];
        let mut buf = None;
        for hop in way.hops() {
            if address == 0 {
                return Ok(end);
            }
            let pointers = self.pointers(ip, hop, address).await?;
            address = self.pointer(&pointers.read(), hop.index);
            buf = Some(pointers);
        }
        let buf = buf.expect("a way has a hop");
        let count = (end - first) as usize;
        let range = lowest.index * 8..(lowest.index + count) * 8;
        let pointers: Vec<i64> = {
            let bytes = buf.read();
            (lowest.index..lowest.index + count).map(|i| self.pointer(&bytes, i)).collect()
        };
        let _held = self.groups_of(pointers.iter().map(|a| a.cast_unsigned())).await?;
        let what = What::ClearPointers { ino: ip.ino() };
        op.admit(&what).await.map_err(io_error)?;
        op.apply(&buf, std::slice::from_ref(&range), what, |bytes| bytes[range.clone()].fill(0));
        self.give_up(op, ip, &inode, first, &pointers).await?;
        Ok(end)
    }

    /// Frees what was taken out, and counts it.
    async fn give_up(
        &self,
        op: &mut FfsOp<'_, D, P>,
        ip: &Inode,
        inode: &BufRef,
        first: u64,
        pointers: &[i64],
    ) -> FsResult<()> {
        let (mut damage, mut freed) = (None, 0);
        for (lbn, address) in (first..).zip(pointers).filter(|(_, address)| **address != 0) {
            let loose = Loose::Data { lbn, address: *address, frags: self.frag() };
            freed += self.free_loose(op, ip, loose, &mut damage).await?;
        }
        let (ino, old) = (ip.ino(), ip.dinode().blocks);
        let new = old.saturating_sub(freed);
        let what = What::SetBlockCount { ino, old, new };
        op.admit(&what).await.map_err(io_error)?;
        ip.dinode_mut().blocks = new;
        self.put_inode(op, inode, ip, what);
        damage.map_or(Ok(()), Err)
    }
}
