//! Storage of files: giving it, clearing it, finding out where it is.
//!
//! There is no storage on UFS that is given and not written: what is allocated is written with zeroes. What is
//! cleared is written with zeroes too, where it is stored: no ordering takes blocks out of the midst of a file.

use std::rc::Rc;

use ordo_vfs::{Errno, FsResult, Ino, Seek, flags};

use crate::Ufs;
use crate::inode::Inode;
use crate::layout::Layout;
use crate::names::require;

/// Zeroes written at once, in bytes.
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
                true => self.layout().is_there(&ip, at / block).await?,
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

    /// Writes zeroes from `at` to `end`. The file's lock is held.
    async fn write_zeroes(&self, ip: &Rc<Inode>, at: u64, end: u64) -> FsResult<()> {
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
        require(!flags::attributes_fixed(ip.dinode().flags), Errno::NotPermitted)?;
        let end = offset.saturating_add(len).min(ip.size());
        if offset >= end {
            return self.writable();
        }
        self.clear_stored(&ip, offset, end).await
    }

    /// Writes zeroes where something is stored from `at` to `end`, which lie inside of the file.
    async fn clear_stored(&self, ip: &Rc<Inode>, at: u64, end: u64) -> FsResult<()> {
        let block = self.limits().block as u64;
        let mut at = at;
        while at < end {
            let (there, count) = self.layout().is_there(ip, at / block).await?;
            let until = (at / block).saturating_add(count).saturating_mul(block).min(end);
            if there {
                self.write_zeroes(ip, at, until).await?;
            }
            at = until;
        }
        Ok(())
    }

    pub(crate) async fn seek_in(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let ip = self.regular(ino).await?;
        let _guard = ip.lock.read().await;
        self.still_there(&ip)?;
        let (block, size) = (self.limits().block as u64, ip.size());
        let mut at = offset;
        while at < size {
            let (there, count) = self.layout().is_there(&ip, at / block).await?;
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
