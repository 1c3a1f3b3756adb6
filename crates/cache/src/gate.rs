//! The gate: how an ordering has its say before a block is written.

use std::ops::Deref;
use std::sync::Arc;

use ordo_block::{BlockError, IoBuf};

use crate::{BufKey, BufRef, Buffer};

/// What is to become of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The image is the block's contents: write it.
    Write,
    /// Something was undone in the image: write it, but the block stays dirty.
    WriteRolledBack,
    /// Not before the log is durable up to this log sequence number.
    WaitFor(u64),
}

/// What is about to be written of a block. It is not copied unless somebody changes it.
#[derive(Debug)]
pub struct WriteImage(Arc<IoBuf>);

impl WriteImage {
    /// The image of a block as it is now.
    pub fn of(block: &Buffer) -> WriteImage {
        WriteImage(block.share())
    }

    /// The bytes, to change: a copy of the block's from now on.
    pub fn to_mut(&mut self) -> &mut [u8] {
        let bytes: &mut IoBuf = Arc::make_mut(&mut self.0);
        bytes
    }

    pub(crate) fn into_piece(self) -> Arc<IoBuf> {
        self.0
    }
}

impl Deref for WriteImage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// What would come of writing a block now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// All of it would be on disk.
    Whole,
    /// Some of what is new in it would be.
    Part,
    /// Nothing that is not on disk already.
    Nothing,
}

/// Sees every block before it is written and after the write is durable. What an ordering does not say
/// otherwise lets everything pass.
///
/// Source: soft-updates-2000, section 3 (undo before and redo after a write; here on a copy, so that
/// redo is forgetting the copy), journaling-versus-soft-updates-2000, section 5.1 (the WAL rule).
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait WriteGate: 'static {
    /// Whether [`write_done`](Self::write_done) matters: if not, no block is kept for it until the
    /// device's cache is flushed, and no flush is made for its sake.
    const FOLLOWS_WRITES: bool;

    /// Whether anything is ever undone in an image.
    const ROLLS_BACK: bool = false;

    /// Looks at the image that is about to be written, and may undo in it what must not be on disk yet:
    /// then `undone` gets the first bytes of what was changed in the image.
    fn before_write(
        &self,
        block: &Buffer,
        image: &mut WriteImage,
        undone: &mut Vec<usize>,
    ) -> Verdict {
        let _ = (block, image, undone);
        Verdict::Write
    }

    /// The write of the image that was taken at this [version](Buffer::version) is durable, or failed. On
    /// a device with a volatile cache this comes after the flush.
    fn write_done(&self, block: &Buffer, version: u64, result: Result<(), BlockError>) {
        let _ = (block, version, result);
    }

    /// The block leaves memory, whatever it holds, and is not written any more: what it belonged to has
    /// been reset, and its address will be given to another.
    fn forgotten(&self, block: &Buffer) {
        let _ = block;
    }

    /// Whether the block must not be written at all for now, whatever it holds: its place belonged to
    /// another, who may get it back if the power goes. [`unblocked`](Self::unblocked) is asked to end that
    /// where somebody has to wait for the block.
    fn held(&self, block: &Buffer) -> bool {
        let _ = block;
        false
    }

    /// Waits until something has happened that lets more be written whole, where writing all that is dirty
    /// has brought nothing: an operation that is under way has ended, say.
    async fn unblocked(&self) {}

    /// Waits until the log is durable up to `lsn`: what [`Verdict::WaitFor`] asked for.
    ///
    /// # Errors
    /// The log's device failed.
    async fn wait_for(&self, lsn: u64) -> Result<(), BlockError> {
        let _ = lsn;
        Ok(())
    }

    /// What would come of writing the block now. Where [`ROLLS_BACK`](Self::ROLLS_BACK) is not set it is
    /// not asked.
    fn outlook(&self, block: &Buffer) -> Outlook {
        let _ = block;
        Outlook::Whole
    }

    /// The blocks that must be on disk for the first `changes` changes to be there, as far as these blocks hold them:
    /// at any distance, and in any order.
    fn prerequisites(&self, blocks: &[BufRef], changes: u64) -> Vec<BufKey> {
        let _ = (blocks, changes);
        Vec::new()
    }

    /// How many changes have been noted so far.
    fn changes(&self) -> u64 {
        0
    }

    /// The oldest change of the block that no image so far has held: how many had been noted before it.
    fn oldest_unwritten(&self, block: &Buffer) -> Option<u64> {
        let _ = block;
        None
    }

    /// What waits for what, for the report of a mistake.
    fn story(&self) -> String {
        String::new()
    }

    /// Dependencies that the ordering has made or undone since the last call, for which the processor is to be charged.
    fn take_work(&self) -> u64 {
        0
    }

    /// Goes up whenever something is met that other blocks depend on.
    fn met(&self) -> u64 {
        0
    }
}

impl<G: WriteGate> WriteGate for std::rc::Rc<G> {
    const FOLLOWS_WRITES: bool = G::FOLLOWS_WRITES;
    const ROLLS_BACK: bool = G::ROLLS_BACK;

    fn before_write(
        &self,
        block: &Buffer,
        image: &mut WriteImage,
        undone: &mut Vec<usize>,
    ) -> Verdict {
        (**self).before_write(block, image, undone)
    }
    fn write_done(&self, block: &Buffer, version: u64, result: Result<(), BlockError>) {
        (**self).write_done(block, version, result);
    }
    fn forgotten(&self, block: &Buffer) {
        (**self).forgotten(block);
    }
    fn held(&self, block: &Buffer) -> bool {
        (**self).held(block)
    }
    async fn unblocked(&self) {
        (**self).unblocked().await;
    }
    async fn wait_for(&self, lsn: u64) -> Result<(), BlockError> {
        (**self).wait_for(lsn).await
    }
    fn outlook(&self, block: &Buffer) -> Outlook {
        (**self).outlook(block)
    }
    fn prerequisites(&self, blocks: &[BufRef], changes: u64) -> Vec<BufKey> {
        (**self).prerequisites(blocks, changes)
    }
    fn changes(&self) -> u64 {
        (**self).changes()
    }
    fn oldest_unwritten(&self, block: &Buffer) -> Option<u64> {
        (**self).oldest_unwritten(block)
    }
    fn take_work(&self) -> u64 {
        (**self).take_work()
    }
    fn met(&self) -> u64 {
        (**self).met()
    }
    fn story(&self) -> String {
        (**self).story()
    }
}

/// Lets everything pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGate;

impl WriteGate for NoGate {
    const FOLLOWS_WRITES: bool = false;
}
