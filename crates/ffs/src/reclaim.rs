//! Giving back what a crash leaked of bitmaps: what only FFS has. See `ordo_ufs::reclaim` for the argument why nothing
//! of it can have come into use.

use ordo_ordering::{Deferred, OrderingPolicy};
use ordo_vfs::FsResult;

use crate::FastFs;

/// Marks `frags` fragments of one block free that nothing points to.
///
/// # Errors
/// `Corrupt` where any of them is free; the device failed.
pub async fn block<P: OrderingPolicy>(fs: &FastFs<P>, address: u64, frags: u32) -> FsResult<()> {
    fs.reclaim_step(Deferred::FreeBlock { address, frags }).await
}

/// Marks an inode free that is in use by its bitmap only. False where it is in use.
///
/// # Errors
/// `Corrupt` where it is marked free; the device failed.
pub async fn inode<P: OrderingPolicy>(fs: &FastFs<P>, ino: u64) -> FsResult<bool> {
    if fs.is_in_use(ino).await? {
        return Ok(false);
    }
    fs.reclaim_step(Deferred::FreeInode { ino, directory: false }).await?;
    Ok(true)
}
