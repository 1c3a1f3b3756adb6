//! The write gate, through which an ordering decides about each write of a block.

use std::ops::Deref;
use std::sync::Arc;

use ordo_block::{BlockError, IoBuf};
use ordo_runtime::LocalFuture;

use crate::{BufKey, BufRef, Buffer};

/// The gate's decision about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// The image equals the block's contents and may be written.
    Write,
    /// The gate rolled changes back in the image. The image may be written, but the block stays
    /// dirty.
    WriteRolledBack,
    /// The block must wait until the log is durable up to this log sequence number.
    WaitFor(u64),
}

/// The bytes of a block that will be written. They are copied only if the gate or the seal changes
/// them.
#[derive(Debug)]
pub struct WriteImage(Arc<IoBuf>);

impl WriteImage {
    /// The image of a block as it is now.
    pub fn of(block: &Buffer) -> WriteImage {
        WriteImage(block.share())
    }

    /// The bytes, for a change. From the first call on, they are a copy of the block's.
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

/// The write preview: the effect that writing a block now would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePreview {
    /// All changes of the block would be on disk.
    Whole,
    /// Some of the block's new changes would be on disk.
    Part,
    /// No new change would be on disk.
    Nothing,
}

/// Sees every block before it is written, and again after the write is durable. The default methods
/// let all writes pass.
///
/// Source: soft-updates-2000, section 3 (undo before and redo after a write; here the undo changes
/// a copy, so that no redo is needed), journaling-versus-soft-updates-2000, section 5.1 (the WAL
/// rule).
pub trait WriteGate: 'static {
    /// Whether the ordering uses [`write_done`](Self::write_done). If not, no block is kept in
    /// memory until the device's cache is flushed, and no flush is made for the ordering's sake.
    fn follows_writes(&self) -> bool;

    /// Whether [`write_done`](Self::write_done) means something to the ordering for this block,
    /// which has just been written. If not, the block may leave memory without a flush. Called only
    /// if [`follows_writes`](Self::follows_writes) is true.
    fn follows(&self, block: &Buffer) -> bool {
        let _ = block;
        true
    }

    /// Whether the ordering ever rolls changes back in an image.
    fn rolls_back(&self) -> bool {
        false
    }

    /// Decides about an image before it is written. It may roll back in the image what must not be
    /// on disk yet; then `rolled_back` gets the first byte of each change in the image.
    fn before_write(
        &self,
        block: &Buffer,
        image: &mut WriteImage,
        rolled_back: &mut Vec<usize>,
    ) -> WriteDecision {
        let _ = (block, image, rolled_back);
        WriteDecision::Write
    }

    /// Announces that the write of the image with this [version](Buffer::version) is durable, or
    /// failed. On a device with a volatile cache the call comes after the flush.
    fn write_done(&self, block: &Buffer, version: u64, result: Result<(), BlockError>) {
        let _ = (block, version, result);
    }

    /// Announces that the block leaves memory and will not be written, whatever its contents. The
    /// pointer to it has been reset, and its address will be given to another block.
    fn forgotten(&self, block: &Buffer) {
        let _ = block;
    }

    /// Whether the block must not be written at all for now: its address belonged to another block,
    /// which may get it back if the power fails. A task that must wait for the block calls
    /// [`wait_for_progress`](Self::wait_for_progress).
    fn held(&self, block: &Buffer) -> bool {
        let _ = block;
        false
    }

    /// Waits for an event that lets more blocks be written whole, when writing everything dirty has
    /// brought no progress: for example, the end of an operation under way.
    fn wait_for_progress(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Waits until the log is durable up to `lsn`, as [`WriteDecision::WaitFor`] demands.
    ///
    /// # Errors
    /// The log's device failed.
    fn wait_for(&self, lsn: u64) -> LocalFuture<'_, Result<(), BlockError>> {
        let _ = lsn;
        Box::pin(async { Ok(()) })
    }

    /// The effect that writing the block now would have. Called only if
    /// [`rolls_back`](Self::rolls_back) is true.
    fn write_preview(&self, block: &Buffer) -> WritePreview {
        let _ = block;
        WritePreview::Whole
    }

    /// The blocks that must be on disk before the first `changes` changes of these blocks can be.
    /// They include prerequisites of prerequisites, at any distance, and come in any order.
    fn prerequisites(&self, blocks: &[BufRef], changes: u64) -> Vec<BufKey> {
        let _ = (blocks, changes);
        Vec::new()
    }

    /// The number of changes that have been recorded so far.
    fn changes(&self) -> u64 {
        0
    }

    /// The number of changes that were recorded before the oldest change of the block that was in
    /// no image so far.
    fn oldest_unwritten(&self, block: &Buffer) -> Option<u64> {
        let _ = block;
        None
    }

    /// A dump in words of which blocks wait for which, for the report of a defect.
    fn explain(&self) -> String {
        String::new()
    }

    /// The number of dependencies that the ordering has made or met since the last call. Their
    /// processor time is charged.
    fn take_work(&self) -> u64 {
        0
    }

    /// A counter that rises whenever a dependency of another block is met.
    fn met(&self) -> u64 {
        0
    }
}

/// A gate that lets every write pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGate;

impl WriteGate for NoGate {
    fn follows_writes(&self) -> bool {
        false
    }
}
