//! The trait that an ordering implements, and the handle through which a core changes metadata.

use std::ops::Range;
use std::rc::Rc;

use ordo_block::{BlockError, Device};
use ordo_cache::{BufRef, Cache, WriteGate};
use ordo_runtime::sync::Notify;
use ordo_wafs::LogError;

use crate::{Change, DeferredFree, OpKind, What};

/// Counters of an ordering that rolls changes back and defers frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// The number of rollbacks in images.
    pub rolled_back: u64,
    /// The most memory that dependencies have taken at any time, in bytes.
    pub memory_peak: usize,
    /// The number of deferred frees that were done.
    pub deferred_frees: u64,
}

/// An ordering of metadata writes. A new ordering implements this trait and [`WriteGate`]; nothing else
/// changes.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait OrderingPolicy: WriteGate + Sized {
    /// The ordering's name on the command line.
    const NAME: &'static str;

    /// Whether the ordering wants the old bytes of a change with this meaning ([`Change::old`]). Keeping them
    /// costs a copy.
    fn wants_old(what: &What<'_>) -> bool {
        let _ = what;
        false
    }

    /// Whether an image that was not unmounted must be checked before it can be used.
    const NEEDS_CHECK: bool;

    /// Whether a crash shows an operation's changes of an inode all or not at all, whenever the inode's block is
    /// written. If not, a layout keeps new pointers out of the inode until it stores them together with the size
    /// that covers them: a check takes a pointer beyond the size for damage.
    const WHOLE_INODES: bool;

    /// Whether a block or inode in use is never marked free in the bitmaps on disk. An image that was not
    /// unmounted can then be used as soon as the summaries have been rebuilt from the bitmaps. Layouts mark such
    /// images in the superblock.
    const BITMAPS_TRUSTED: bool = false;

    /// Whether the summary area is right after [`recover`](Self::recover), so that no group has to be read. The
    /// core then announces each change of the area ([`What::GroupCounts`]) together with the change of the
    /// group. Otherwise the area is stored only at times.
    const KEEPS_SUMMARY: bool = false;

    /// The ordering's state of one operation.
    type Op;

    /// The most blocks that one operation may allocate or free. The core splits larger work into several
    /// operations.
    fn blocks_max(&self) -> u64 {
        u64::MAX
    }

    /// Starts an operation. An ordering may wait here for resources: log space, memory for dependencies.
    ///
    /// # Errors
    /// The device failed.
    async fn begin(cache: &Cache<Self>, kind: OpKind) -> Result<Self::Op, BlockError>;

    /// Asks whether a change may be made. An ordering may wait here until everything on which the change depends
    /// is on disk.
    ///
    /// # Errors
    /// The device failed: the change must not be made.
    async fn admit(
        cache: &Cache<Self>,
        op: &mut Self::Op,
        what: &What<'_>,
    ) -> Result<(), BlockError>;

    /// Announces that an operation will wait for this block before long, so that the ordering can start to write
    /// it.
    fn soon(cache: &Cache<Self>, block: &BufRef) {
        let _ = (cache, block);
    }

    /// Notes a change that has been made. It must not wait.
    fn record(&self, op: &mut Self::Op, change: &Change<'_>);

    /// Completes the operation. It may wait until the operation is durable.
    ///
    /// # Errors
    /// The device failed: the operation is done in memory, but not durable.
    async fn end(cache: &Cache<Self>, op: Self::Op) -> Result<(), BlockError>;

    /// Makes a file durable: its contents, its inode, which is in the buffer `inode`, and everything that is
    /// needed to find it after a crash. The default writes the file's blocks, then its inode.
    ///
    /// # Errors
    /// The device failed.
    async fn fsync(cache: &Cache<Self>, ino: u64, inode: &BufRef) -> Result<(), BlockError> {
        cache.flush_file(ino).await?;
        cache.write_now(std::slice::from_ref(inode)).await?;
        cache.barrier().await
    }

    /// Brings an image that a crash left to a state in which it can be used, before any block of it is cached.
    /// The ordering also remembers which image is mounted.
    ///
    /// # Errors
    /// The device failed, or the ordering's own data do not belong to the image.
    async fn recover(&self, device: &Device, image: &dyn Image) -> Result<Recovery, RecoverError> {
        let _ = (device, image);
        Ok(Recovery::None)
    }

    /// Starts the ordering's tasks, when the file system has been mounted for writing.
    fn start(cache: &Cache<Self>) {
        let _ = cache;
    }

    /// Makes the ordering's own data about all operations that have ended durable.
    ///
    /// # Errors
    /// The device failed.
    async fn sync(cache: &Cache<Self>) -> Result<(), BlockError> {
        let _ = cache;
        Ok(())
    }

    /// Ends what [`start`](Self::start) began, when everything is on the device and the image is clean.
    ///
    /// # Errors
    /// The device failed.
    async fn close(cache: &Cache<Self>) -> Result<(), BlockError> {
        let _ = cache;
        Ok(())
    }

    /// Offers a step that frees a resource. `None`: the ordering defers it, and
    /// [`next_ready`](Self::next_ready) returns it later. `Some`: the caller takes the step now.
    fn defer(&self, op: &mut Self::Op, step: DeferredFree) -> Option<DeferredFree> {
        let _ = op;
        Some(step)
    }

    /// The signal that deferred frees have become ready; `None` if an ordering never defers.
    fn ready(&self) -> Option<Rc<Notify>> {
        None
    }

    /// The step that [`next_ready`](Self::next_ready) would return.
    fn peek_ready(&self) -> Option<DeferredFree> {
        None
    }

    /// Takes the next deferred free that is ready; `None` when there is none for now.
    fn next_ready(&self) -> Option<DeferredFree> {
        None
    }

    /// Notes that a step from [`next_ready`](Self::next_ready) has been done.
    fn taken(&self, step: DeferredFree) {
        let _ = step;
    }

    /// The number of deferred frees, including those that are ready. Frees that wait until a program closes a
    /// removed directory do not count.
    fn deferred(&self) -> usize {
        0
    }

    /// The numbers of fragments and of inodes that deferred frees will free. A user sees them as free already.
    fn promised(&self) -> (u64, u64) {
        (0, 0)
    }

    /// The counters of an ordering that keeps dependencies; `None` for any other.
    fn dependencies(&self) -> Option<Dependencies> {
        None
    }

    /// Hastens deferred frees, because space is short. Returns whether any was done.
    ///
    /// # Errors
    /// The device failed.
    async fn reclaim(cache: &Cache<Self>) -> Result<bool, BlockError> {
        let _ = cache;
        Ok(false)
    }
}

/// The facts about an image that an ordering may use before the mount.
pub trait Image {
    /// A number that tells file systems apart.
    fn id(&self) -> u64;
    /// Whether the image was unmounted cleanly.
    fn is_clean(&self) -> bool;
    /// The time of the last mount for writing, from the superblock.
    fn stamp(&self) -> i64;
    /// The time that the mount which begins now will write instead.
    fn next_stamp(&self) -> i64;
    /// The size of a fragment in bytes.
    fn fragment(&self) -> u64;
    /// The size of a block in bytes.
    fn block(&self) -> u64;
    /// The block that holds a byte of the device: the unit over which [`seal`](Self::seal) works.
    fn unit(&self, byte: u64) -> Range<u64>;
    /// Completes a block whose bytes were changed: sets its check-hashes.
    fn seal(&self, start: u64, block: &mut [u8]);
}

/// The result of a recovery before a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// The ordering does not recover, or there was nothing to do.
    #[default]
    None,
    /// A log was replayed. Everything that follows from the groups has to be rebuilt.
    Replayed {
        /// The number of records read.
        records: u64,
        /// The number of operations that the recovery completed.
        operations: u64,
        /// The number of changes that the recovery rolled back.
        rolled_back: u64,
        /// The number of changes that the recovery redid.
        redone: u64,
        /// The number of bytes of log read.
        log_bytes: u64,
        /// Blocks that the log described and that were not in their places yet. Each is read at most once, and
        /// written at most once.
        blocks: u64,
    },
}

/// The reason why an image cannot be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] BlockError),
    /// The log cannot be read or written.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The log belongs to another file system.
    #[error("the log belongs to another file system; give the one that was made for this image")]
    OtherLog,
    /// Another program changed the image after the crash, without using its log.
    #[error(
        "not unmounted cleanly, and changed since without its log, which can no longer be replayed; check it (ordo fsck)"
    )]
    StaleLog,
    /// The log has too little space for one operation.
    #[error("the log holds {have} bytes, which is too small; make one of {need} bytes or more")]
    SmallLog {
        /// The log's capacity, in bytes.
        have: u64,
        /// The smallest capacity that suffices, in bytes.
        need: u64,
    },
    /// The image was last mounted without this log.
    #[error("not unmounted cleanly, and last mounted without this log; check it (ordo fsck)")]
    UnusedLog,
}

/// Permission to make one change. [`Op::admit`] returns it and [`Op::apply`] takes it, so no change is made
/// that was not admitted, and none is made twice.
#[derive(Debug)]
#[must_use = "a change that was admitted is to be made"]
pub struct Admitted<'w> {
    what: &'w What<'w>,
}

impl<'w> Admitted<'w> {
    /// The change.
    pub fn what(&self) -> &'w What<'w> {
        self.what
    }
}

/// One operation of a core on metadata. An operation that is dropped without [`end`](Op::end) is abandoned.
pub struct Op<'c, P: OrderingPolicy> {
    cache: &'c Cache<P>,
    state: P::Op,
    old: Vec<u8>,
}

impl<'c, P: OrderingPolicy> Op<'c, P> {
    /// Starts an operation.
    ///
    /// # Errors
    /// The device failed, now or earlier. No operation begins while metadata cannot be written.
    pub async fn begin(cache: &'c Cache<P>, kind: OpKind) -> Result<Self, BlockError> {
        // A free must not wait for operations that wait for space.
        if kind != OpKind::Free {
            cache.throttle().await?;
        }
        let state = P::begin(cache, kind).await?;
        Ok(Op { cache, state, old: Vec::new() })
    }

    /// Asks for permission to make a change. Returns once everything is on disk that must be there first.
    ///
    /// # Errors
    /// The device failed: the change cannot be made.
    #[inline]
    pub async fn admit<'w>(&mut self, what: &'w What<'w>) -> Result<Admitted<'w>, BlockError> {
        P::admit(self.cache, &mut self.state, what).await?;
        Ok(Admitted { what })
    }

    /// Makes an admitted change. `change` gets the whole buffer, and changes bytes within `ranges` only.
    #[inline]
    pub fn apply<R>(
        &mut self,
        buf: &BufRef,
        ranges: &[Range<usize>],
        admitted: Admitted<'_>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let what = *admitted.what;
        self.old.clear();
        if P::wants_old(&what) {
            let bytes = buf.read();
            for range in ranges {
                self.old.extend_from_slice(&bytes[range.clone()]);
            }
        }
        let out = buf.write(change);
        self.cache.mark_dirty(buf);
        let change = Change { buf, ranges, old: &self.old, what };
        self.cache.gate().record(&mut self.state, &change);
        self.cache.charge_gate();
        out
    }

    /// Announces that something will wait for a block before long.
    pub fn soon(&self, block: &BufRef) {
        P::soon(self.cache, block);
    }

    /// Defers a step that frees a resource, or returns it to be taken now.
    pub fn defer(&mut self, step: DeferredFree) -> Option<DeferredFree> {
        let now = self.cache.gate().defer(&mut self.state, step);
        self.cache.charge_gate();
        now
    }

    /// Completes the operation.
    ///
    /// # Errors
    /// The device failed. The operation is done in memory, but not durable.
    pub async fn end(self) -> Result<(), BlockError> {
        P::end(self.cache, self.state).await
    }
}
