//! Freeing resources that a crash leaked, while the file system is in use. The steps are for a
//! checker that reads a snapshot from the time of the mount.
//!
//! A resource that was leaked at that time cannot have come into use since:
//! - An allocation never chooses a block or an inode that is marked as used, and no operation frees
//!   one that has no pointer to it. So the resource stays as it was until a step here frees it.
//! - An inode without a name is out of reach: names lead to inodes, and new names are made only for
//!   new inodes and for those to which a name has led.
//! - A link count that is too high by some number stays too high by that number, since operations
//!   on names change the count and the number of names alike. Only freeing the inode ends this, and
//!   the inode then gets a new generation.
//!
//! Each step looks at the resource again, under the locks that an ordinary operation takes, and
//! leaves everything that has changed as it is.

use std::rc::Rc;

use ordo_ordering::{DeferredFree, OpKind, What};
use ordo_vfs::{Errno, FsResult, Ino};

use crate::inode::InodeRecord;
use crate::layout::Layout;
use crate::{LayoutInode, Ufs, io_error};

impl<L: Layout> Ufs<L> {
    /// Frees a resource to which no pointer leads, in an operation of its own.
    ///
    /// # Errors
    /// `Corrupt` if it is free already; the device failed.
    pub async fn reclaim_step(&self, step: DeferredFree) -> FsResult<()> {
        let mut op = self.begin(OpKind::Free).await?;
        self.layout().free_deferred(&mut op, step).await?;
        op.end().await.map_err(io_error)
    }

    /// Whether an inode is in use, in memory or on disk.
    ///
    /// # Errors
    /// `Corrupt` if its fields cannot be right; the device failed.
    pub async fn is_in_use(&self, ino: u64) -> FsResult<bool> {
        let on_disk = match self.layout().load_inode(ino).await {
            Ok(_) => true,
            Err(error) if error.errno == Errno::NotFound => false,
            Err(error) => return Err(error),
        };
        Ok(on_disk || self.table().get(ino).is_some())
    }

    /// Loads an inode, if it is still the same as at the time of the mount.
    async fn same_inode(
        &self,
        ino: u64,
        then: &InodeRecord,
    ) -> FsResult<Option<Rc<LayoutInode<L>>>> {
        let ip = match self.inode(ino).await {
            Ok(ip) => ip,
            Err(error) if error.errno == Errno::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let same = {
            let now = ip.record();
            now.generation == then.generation && (now.mode ^ then.mode) & 0o170_000 == 0
        };
        Ok(same.then_some(ip))
    }

    /// Frees an inode without a name, with its blocks. Returns true also if the inode was freed
    /// already, and false if it has changed.
    ///
    /// # Errors
    /// The device failed.
    pub async fn reclaim_orphan(&self, ino: u64, then: &InodeRecord) -> FsResult<bool> {
        let Some(ip) = self.same_inode(ino, then).await? else { return Ok(true) };
        let links = then.links;
        self.lower_links(&ip, links).await
    }

    /// Lowers a link count by its excess. Returns true also if the inode has been freed, and false
    /// if it has changed.
    ///
    /// # Errors
    /// The device failed.
    pub async fn reclaim_links(&self, ino: u64, then: &InodeRecord, excess: u32) -> FsResult<bool> {
        let Some(ip) = self.same_inode(ino, then).await? else { return Ok(true) };
        self.lower_links(&ip, excess).await
    }

    /// Lowers a link count, and frees the inode if no name is left. A directory that was removed
    /// while its count was too high still counts its own `.`, and its parent counts its `..`: both
    /// counts are lowered too.
    async fn lower_links(&self, ip: &Rc<LayoutInode<L>>, by: u32) -> FsResult<bool> {
        let mut next = Some((ip.clone(), by));
        while let Some((ip, by)) = next.take() {
            let guard = ip.lock.write().await;
            // An inode without links is being freed, or was freed.
            if ip.gone.get() || (by > 0 && ip.links() == 0) {
                return Ok(true);
            }
            if ip.links() < by {
                return Ok(false);
            }
            let mut links = ip.links() - by;
            if by > 0 && links == 1 && ip.is_directory() {
                links = 0;
                let up = self.find_entry(&ip, b"..").await?.map(|up| up.ino);
                if let Some(up) = up.filter(|up| *up != ip.ino()) {
                    next = Some((self.inode(up).await?, 1));
                }
            }
            let _pinned = self.pin([&*ip]).await?;
            let mut op = self.begin(OpKind::Remove).await?;
            if links != ip.links() {
                self.set_links(&mut op, &ip, links).await?;
            }
            let deferred = links == 0 && self.defer_release(&mut op, &ip);
            op.end().await.map_err(io_error)?;
            drop(guard);
            if links == 0 && !deferred {
                self.release_orphan(&ip).await?;
            }
        }
        Ok(true)
    }

    /// Corrects the size, and the count of blocks (in the layout's unit), of an inode that has not
    /// changed since the mount. A size is only ever cut, to the end of the last block. Returns
    /// false if the inode has changed.
    ///
    /// # Errors
    /// The device failed.
    pub async fn reclaim_measures(
        &self,
        ino: u64,
        (then, pointers): (&InodeRecord, &L::Pointers),
        (size, blocks): (Option<u64>, Option<u64>),
    ) -> FsResult<bool> {
        let Some(ip) = self.same_inode(ino, then).await? else { return Ok(true) };
        let _guard = ip.lock.write().await;
        let unchanged = {
            let now = ip.record();
            (now.blocks, now.size, now.ctime) == (then.blocks, then.size, then.ctime)
                && *ip.pointers() == *pointers
        };
        if ip.gone.get() || !unchanged || size.is_some_and(|size| size > then.size) {
            return Ok(false);
        }
        let mut op = self.begin(OpKind::Truncate).await?;
        if let Some(size) = size {
            self.layout().truncate(&mut op, &ip, size).await?;
        }
        if let Some(blocks) = blocks {
            let what = What::SetAttributes { ino };
            // The cut may have freed indirect blocks without pointers.
            let right = |now: u64| now.saturating_add(blocks).saturating_sub(then.blocks);
            self.update_inode(&mut op, &ip, what, |d| d.blocks = right(d.blocks)).await?;
        }
        op.end().await.map_err(io_error)?;
        Ok(true)
    }

    /// Removes a directory's second name, if the first name, which it keeps, is still there too.
    /// Returns false if either name is gone.
    ///
    /// # Errors
    /// The device failed.
    pub async fn reclaim_name(
        &self,
        target: u64,
        (dir, name): (u64, &[u8]),
        (kept_dir, kept): (u64, &[u8]),
    ) -> FsResult<bool> {
        if (dir, name) == (kept_dir, kept) {
            return Ok(false);
        }
        let found = (self.directory(Ino(dir)).await, self.directory(Ino(kept_dir)).await);
        let (Ok(dp), Ok(kept_dp)) = found else { return Ok(false) };
        let _shape = self.shared.rename.write().await;
        let _dirs = self.lock_directories(&dp, &kept_dp).await?;
        let stands =
            |found: &Option<crate::dir::FoundEntry>| found.is_some_and(|f| f.ino == target);
        let first = self.find_entry(&kept_dp, kept).await?;
        let Some(second) = self.find_entry(&dp, name).await? else { return Ok(false) };
        if dp.gone.get() || kept_dp.gone.get() || !stands(&first) || second.ino != target {
            return Ok(false);
        }
        let _pinned = self.pin([&*dp]).await?;
        let mut op = self.begin(OpKind::Remove).await?;
        self.remove_entry(&mut op, &dp, name, second, true).await?;
        op.end().await.map_err(io_error)?;
        Ok(true)
    }
}
