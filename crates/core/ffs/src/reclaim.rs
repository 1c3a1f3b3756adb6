//! Freeing blocks and inodes that a crash leaked in the bitmaps: the part that only FFS has.
//! `ordo_ufs::reclaim` explains why a leaked resource cannot have come into use since the crash.

use ordo_ordering::DeferredFree;
use ordo_vfs::FsResult;

use crate::FastFs;

/// Marks `frags` fragments of one block as free. No pointer leads to them.
///
/// # Errors
/// `Corrupt` if any of them is free; the device failed.
pub async fn block(fs: &FastFs, address: u64, frags: u32) -> FsResult<()> {
    fs.reclaim_step(DeferredFree::FreeBlock { address, frags }).await
}

/// Marks an inode as free that is in use according to its bitmap only. Returns false if the inode
/// itself is in use.
///
/// # Errors
/// `Corrupt` if it is marked free; the device failed.
pub async fn inode(fs: &FastFs, ino: u64) -> FsResult<bool> {
    if fs.is_in_use(ino).await? {
        return Ok(false);
    }
    fs.reclaim_step(DeferredFree::FreeInode { ino, directory: false }).await?;
    Ok(true)
}
