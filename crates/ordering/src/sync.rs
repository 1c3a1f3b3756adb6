//! Synchronous writes: the classic fast file system.
//!
//! Source: soft-updates-2000, section 2.1 ("Synchronous Writes") and 4.1 ("Conventional");
//! journaling-versus-soft-updates-2000, section 3. The rules, each of them a write that the operation
//! waits for:
//!
//! | before this change | this is on disk |
//! |---|---|
//! | an entry is made, or comes to stand for another inode | the inode, with the count that includes it |
//! | a pointer to a directory block or a block of pointers is set | that block's contents |
//! | an inode of a block of inodes that was never used is allocated | that block, all of its inodes free |
//! | a directory's size grows | the block with the entry in the new space |
//! | an entry is taken away | the other entry that a rename has made |
//! | a link count falls, an inode is cleared | the directory block without the entry |
//! | a block is marked free | the inode and blocks of pointers without the pointer to it |
//! | the operation returns | the directory blocks it changed, and the inode of a directory that grew |
//!
//! Nothing else is synchronous: bitmaps and file data are delayed, and a file's data may reach the
//! disk after the pointer to them.

use ordo_block::{BlockDevice, BlockError};
use ordo_cache::{BufRef, Buffer, Cache, Verdict, WriteGate};

use crate::{Change, OpKind, OrderingPolicy, PointerTo, What};

/// The ordering `sync`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncOrder;

/// Blocks that an operation has changed and that must be on disk before its next dependent step.
#[derive(Debug, Default)]
pub struct Pending(Vec<BufRef>);

impl Pending {
    fn add(&mut self, buf: &BufRef) {
        if !self.0.iter().any(|b| std::rc::Rc::ptr_eq(b, buf)) {
            self.0.push(buf.clone());
        }
    }

    async fn write<D: BlockDevice>(
        &mut self,
        cache: &Cache<D, SyncOrder>,
    ) -> Result<(), BlockError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let bufs = std::mem::take(&mut self.0);
        cache.write_now(&bufs).await
    }
}

impl WriteGate for SyncOrder {
    fn before_write(&self, _block: &Buffer, _image: &mut [u8]) -> Verdict {
        Verdict::Write
    }
    fn write_done(&self, _block: &Buffer, _result: Result<(), BlockError>) {}
    async fn wait_for(&self, _lsn: u64) -> Result<(), BlockError> {
        Ok(())
    }
    fn independent(&self, _block: &Buffer) -> bool {
        true
    }
}

impl OrderingPolicy for SyncOrder {
    const NAME: &'static str = "sync";
    const KEEPS_OLD: bool = false;
    const NEEDS_CHECK: bool = true;
    type Op = Pending;

    async fn begin<D: BlockDevice>(
        _cache: &Cache<D, Self>,
        _kind: OpKind,
    ) -> Result<Pending, BlockError> {
        Ok(Pending::default())
    }

    async fn admit<D: BlockDevice>(
        cache: &Cache<D, Self>,
        op: &mut Pending,
        what: &What<'_>,
    ) -> Result<(), BlockError> {
        match *what {
            What::AddEntry { inode, .. } | What::ChangeEntry { inode, .. } => {
                op.write(cache).await?;
                cache.write_now(std::slice::from_ref(inode)).await
            }
            What::SetPointer { to: PointerTo::Directory | PointerTo::Indirect, init, .. } => {
                cache.write_now(std::slice::from_ref(init)).await
            }
            What::SetLinkCount { old, new, .. } if new < old => op.write(cache).await,
            What::SetSize { directory: true, .. }
            | What::RemoveEntry { .. }
            | What::AllocateInode { .. }
            | What::ClearInode { .. }
            | What::FreeBlock { .. } => op.write(cache).await,
            _ => Ok(()),
        }
    }

    fn record(&self, op: &mut Pending, change: &Change<'_>) {
        let ordered = match change.what {
            What::AddEntry { .. } | What::RemoveEntry { .. } | What::ChangeEntry { .. } => true,
            What::ClearPointers { .. } | What::InitInodeBlock { .. } => true,
            What::SetPointer { to: PointerTo::Attributes, old, .. } => old.1 > 0,
            What::SetLinkCount { old, new, .. } => new > old,
            What::SetSize { directory, .. } => directory,
            _ => false,
        };
        if ordered {
            op.add(change.buf);
        }
    }

    async fn end<D: BlockDevice>(
        cache: &Cache<D, Self>,
        mut op: Pending,
    ) -> Result<(), BlockError> {
        op.write(cache).await
    }

    async fn fsync<D: BlockDevice>(_cache: &Cache<D, Self>, _ino: u64) -> Result<(), BlockError> {
        // Every name and every block of pointers is on disk already.
        Ok(())
    }
}
