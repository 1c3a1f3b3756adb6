//! The gate: how an ordering has its say before a block is written.

use ordo_block::BlockError;

use crate::Buffer;

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

    /// Looks at the copy that is about to be written, and may undo in it what must not be on disk yet.
    fn before_write(&self, block: &Buffer, image: &mut [u8]) -> Verdict {
        let _ = (block, image);
        Verdict::Write
    }

    /// The write is durable, or failed. On a device with a volatile cache this comes after the flush.
    fn write_done(&self, block: &Buffer, result: Result<(), BlockError>) {
        let _ = (block, result);
    }

    /// Waits until the log is durable up to `lsn`: what [`Verdict::WaitFor`] asked for.
    ///
    /// # Errors
    /// The log's device failed.
    async fn wait_for(&self, lsn: u64) -> Result<(), BlockError> {
        let _ = lsn;
        Ok(())
    }

    /// Whether writing the block now would undo nothing: such blocks are written first.
    fn independent(&self, block: &Buffer) -> bool {
        let _ = block;
        true
    }
}

impl<G: WriteGate> WriteGate for std::rc::Rc<G> {
    const FOLLOWS_WRITES: bool = G::FOLLOWS_WRITES;

    fn before_write(&self, block: &Buffer, image: &mut [u8]) -> Verdict {
        (**self).before_write(block, image)
    }
    fn write_done(&self, block: &Buffer, result: Result<(), BlockError>) {
        (**self).write_done(block, result);
    }
    async fn wait_for(&self, lsn: u64) -> Result<(), BlockError> {
        (**self).wait_for(lsn).await
    }
    fn independent(&self, block: &Buffer) -> bool {
        (**self).independent(block)
    }
}

/// Lets everything pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGate;

impl WriteGate for NoGate {
    const FOLLOWS_WRITES: bool = false;
}
