//! Removing links, and freeing inodes that have none left.

use std::rc::Rc;

use ordo_ordering::{Op, OpKind, What};
use ordo_vfs::{Errno, FsResult};

use crate::inode::InodeRecord;
use crate::layout::Layout;
use crate::{LayoutInode, Ufs, io_error};

/// The most steps in which a file is cut by one call.
const STEPS_MAX: u64 = 4096;

impl<L: Layout> Ufs<L> {
    /// Sets a link count, and the change time.
    pub(crate) async fn set_links(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<L>,
        links: u32,
    ) -> FsResult<()> {
        let now = self.now();
        // A damaged inode may have a count that is not possible.
        let links = links.min(u16::MAX.into());
        let what = What::SetLinkCount { ino: ip.ino(), old: ip.links(), new: links };
        self.update_inode(op, ip, what, |d| {
            d.links = links;
            d.ctime = now;
        })
        .await
    }

    /// Frees an inode that has no names and is not open; does nothing to any other. Takes the
    /// inode's lock.
    pub(crate) async fn release(&self, ip: &Rc<LayoutInode<L>>) -> FsResult<()> {
        let _guard = ip.lock.write().await;
        if ip.links() > 0 || ip.opens.get() > 0 || ip.gone.get() {
            return Ok(());
        }
        self.cut_in_steps(ip, 0, OpKind::Free).await?;
        let mut op = self.begin(OpKind::Free).await?;
        self.free_contents(&mut op, ip).await?;
        op.end().await.map_err(io_error)
    }

    /// Cuts a file from its end on, until what is left above `size` has no more blocks than one
    /// operation may free, or until it cannot be cut further. Takes no lock.
    ///
    /// Each step ends at the end of a block. One that ended inside would put zeros over the rest of
    /// that block, maybe on disk before the file's removal, and a crash would bring back the file
    /// with a hole in its contents.
    pub(crate) async fn cut_in_steps(
        &self,
        ip: &Rc<LayoutInode<L>>,
        size: u64,
        kind: OpKind,
    ) -> FsResult<()> {
        let (block, unit) = (self.limits().block as u64, self.limits().block_unit);
        let most = self.cache().ordering().blocks_max().saturating_mul(block);
        // The number of steps depends on the file's count of blocks. Most of its size may be holes.
        let has = |ip: &LayoutInode<L>| ip.record().blocks.saturating_mul(unit);
        let step = most.max((ip.size().saturating_sub(size)) / STEPS_MAX / block * block);
        while has(ip) > most && ip.size().saturating_sub(size) > step {
            let _pinned = self.pin([&**ip]).await?;
            let mut op = self.begin(kind).await?;
            let end = (ip.size() - step).next_multiple_of(block);
            let cut = self.layout().truncate(&mut op, ip, end).await;
            op.end().await.map_err(io_error)?;
            // A cut that ends in a hole needs a block there, and the device may have no space for
            // it.
            match cut {
                Err(e) if e.errno == Errno::NoSpace => break,
                cut => cut?,
            }
        }
        Ok(())
    }

    /// As [`release`](Self::release), at the end of an operation that has removed the last name.
    /// The removal stands even if this fails: an inode that cannot be read now is freed at the
    /// unmount.
    pub(crate) async fn release_orphan(&self, ip: &Rc<LayoutInode<L>>) -> FsResult<()> {
        match self.release(ip).await {
            Err(e) if e.errno == Errno::Io && self.writable().is_ok() => Ok(()),
            done => done,
        }
    }

    /// Frees an inode without names that was closed for the last time, at once or when the ordering
    /// allows it.
    pub(crate) async fn release_closed(&self, ip: &Rc<LayoutInode<L>>) -> FsResult<()> {
        let mut op = self.begin(OpKind::Free).await?;
        let deferred = self.defer_release(&mut op, ip);
        op.end().await.map_err(io_error)?;
        if deferred { Ok(()) } else { self.release(ip).await }
    }

    /// Frees all blocks of an inode, then the inode.
    async fn free_contents(&self, op: &mut Op<'_>, ip: &Rc<LayoutInode<L>>) -> FsResult<()> {
        let _pinned = self.pin([&**ip]).await?;
        let layout = self.layout();
        if self.limits().attributes.is_some() {
            layout.write_attributes(op, ip, &[]).await?;
        }
        layout.truncate(op, ip, 0).await?;
        self.forget_index(ip);
        let was_directory = ip.is_directory();
        let ino = ip.ino();
        let pin = layout.pin_inode(ino).await?;
        let what = What::ClearInode { ino };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        // Only the generation outlives the file: no link's target, no device number.
        let generation = ip.record().generation;
        *ip.record_mut() = InodeRecord { generation, ..InodeRecord::default() };
        *ip.pointers_mut() = L::Pointers::default();
        layout.store_inode(op, &pin, ip, admitted);
        // The inode leaves the table only now. Earlier, a caller with the old number would load it
        // again.
        self.table().remove(ip);
        layout.free_inode(op, ino, was_directory).await
    }
}
