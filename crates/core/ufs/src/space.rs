//! Space of files: allocation, holes, and the search for data.
//!
//! Space is never allocated without being written: allocated blocks are filled with zeros. Punching
//! a hole frees whole blocks. At the edges of the hole, and in the last block of a file, which must
//! always exist, zeros are written instead.

use std::rc::Rc;

use ordo_ordering::{OpKind, What};
use ordo_vfs::{Errno, Extent, FsResult, Ino, Seek, flags};

use crate::layout::Layout;
use crate::names::require;
use crate::{LayoutInode, Ufs, io_error};

/// The zeros in one write, in bytes.
const ZEROES: usize = 256 << 10;

impl<L: Layout> Ufs<L> {
    pub(crate) async fn allocate_range(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        let ip = self.regular(ino).await?;
        let end = offset.checked_add(len).ok_or(Errno::TooBig)?;
        require(end <= self.limits().file_max, Errno::TooBig)?;
        let _guard = ip.lock.write().await;
        self.still_there(&ip)?;
        let block = self.limits().block as u64;
        let mut at = offset;
        while at < end {
            let (there, count) = match at < ip.size() {
                true => self.layout().is_mapped(&ip, at / block).await?,
                false => (false, u64::MAX),
            };
            let known = (at / block).saturating_add(count).saturating_mul(block);
            let inside = if at < ip.size() { known.min(ip.size()) } else { known };
            let until = inside.min(end);
            if !there {
                self.write_zeroes(&ip, at, until).await?;
            }
            at = until;
        }
        Ok(())
    }

    /// Writes zeros from `at` to `end`. The caller holds the file's lock.
    async fn write_zeroes(&self, ip: &Rc<LayoutInode<L>>, at: u64, end: u64) -> FsResult<()> {
        let zeroes = vec![0; ZEROES.min((end - at) as usize)];
        let mut at = at;
        while at < end {
            let n = (end - at).min(zeroes.len() as u64) as usize;
            at += self.write_locked(ip, at, &zeroes[..n]).await? as u64;
        }
        Ok(())
    }

    pub(crate) async fn clear_range(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        let ip = self.regular(ino).await?;
        let _guard = ip.lock.write().await;
        self.still_there(&ip)?;
        require(!flags::attributes_fixed(ip.record().flags), Errno::NotPermitted)?;
        let end = offset.saturating_add(len).min(ip.size());
        if offset >= end {
            return self.writable();
        }
        let block = self.limits().block as u64;
        let last = (ip.size() - 1) / block;
        let (first, behind) = (offset.div_ceil(block), (end / block).min(last));
        if first >= behind {
            return self.clear_stored(&ip, offset, end).await;
        }
        self.clear_stored(&ip, offset, first * block).await?;
        self.clear_stored(&ip, behind * block, end).await?;
        self.take_blocks_out(&ip, first, behind).await
    }

    /// Frees blocks in the middle of a file, in several operations. The caller holds the file's
    /// lock.
    async fn take_blocks_out(&self, ip: &Rc<LayoutInode<L>>, first: u64, end: u64) -> FsResult<()> {
        let most = self.cache().ordering().blocks_max().max(1);
        ip.writing.set((0, 0));
        let mut at = first;
        while at < end {
            let (there, count) = self.layout().is_mapped(ip, at).await?;
            if !there {
                at = at.saturating_add(count);
                continue;
            }
            let _pinned = self.pin([&**ip]).await?;
            let mut op = self.begin(OpKind::Truncate).await?;
            let until = end.min(at.saturating_add(most));
            let taken = self.layout().punch_hole(&mut op, ip, at, until).await;
            if taken.is_ok() {
                let now = self.now();
                let what = What::SetAttributes { ino: ip.ino() };
                self.update_inode(&mut op, ip, what, |d| {
                    (d.mtime, d.ctime) = (now, now);
                })
                .await?;
            }
            op.end().await.map_err(io_error)?;
            at = taken?;
        }
        Ok(())
    }

    /// Writes zeros to the mapped blocks from `at` to `end`. Both bounds lie inside of the file.
    async fn clear_stored(&self, ip: &Rc<LayoutInode<L>>, at: u64, end: u64) -> FsResult<()> {
        let block = self.limits().block as u64;
        let mut at = at;
        while at < end {
            let (there, count) = self.layout().is_mapped(ip, at / block).await?;
            let until = (at / block).saturating_add(count).saturating_mul(block).min(end);
            if there {
                self.write_zeroes(ip, at, until).await?;
            }
            at = until;
        }
        Ok(())
    }

    pub(crate) async fn extents_of(&self, ino: Ino) -> FsResult<Vec<Extent>> {
        let ip = self.regular(ino).await?;
        let _guard = ip.lock.read().await;
        self.still_there(&ip)?;
        let block = self.limits().block as u64;
        let (mut extents, mut lbn) = (Vec::new(), 0);
        while lbn < ip.size().div_ceil(block) {
            let (there, count) = self.layout().is_mapped(&ip, lbn).await?;
            if !there {
                lbn = lbn.saturating_add(count);
                continue;
            }
            if let Some(address) = self.layout().address(&ip, lbn).await? {
                Extent::join(&mut extents, Extent { offset: lbn * block, len: block, address });
            }
            lbn += 1;
        }
        Ok(extents)
    }

    pub(crate) async fn seek_in(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let ip = self.regular(ino).await?;
        let _guard = ip.lock.read().await;
        self.still_there(&ip)?;
        let (block, size) = (self.limits().block as u64, ip.size());
        let mut at = offset;
        while at < size {
            let (there, count) = self.layout().is_mapped(&ip, at / block).await?;
            if there == (what == Seek::Data) {
                return Ok(at);
            }
            at = (at / block).saturating_add(count).saturating_mul(block);
        }
        match what {
            Seek::Hole if offset < size => Ok(size),
            _ => Err(Errno::NoAddress.into()),
        }
    }
}
