//! The trait that an ordering implements, and the handle through which a core changes metadata.

use std::ops::{Deref, Range};
use std::rc::Rc;

use ordo_block::{BlockDevice, BlockError, Device};
use ordo_cache::{BufRef, Cache, CacheConfig, WriteGate};
use ordo_runtime::sync::Notify;
use ordo_runtime::{MaybeFuture, Runtime};
use ordo_wafs::LogError;

use crate::{Change, DeferredFree, OpKind, Settled, What};

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

/// An operation that begins, or the reason why it cannot.
pub type Begun<'a> = MaybeFuture<'a, Result<Box<dyn OrderingOp>, BlockError>>;

/// The end of work on a device, or its failure.
pub type BlockFuture<'a> = MaybeFuture<'a, Result<(), BlockError>>;

/// An inode that is to be durable.
#[derive(Clone, Copy)]
pub struct SyncedInode<'a> {
    /// Its number.
    pub ino: u64,
    /// The block that has it.
    pub block: &'a BufRef,
    /// Whether it has been written since it was last stored in its block. The block may be dirty
    /// with other inodes, and what the ordering has rolled back in the inode still has to be
    /// written.
    pub is_written: bool,
    /// Whether contents are enough: the caller does not wait for the inode, and what is on disk
    /// leads to all of the contents ([`Settled`]).
    pub contents_only: bool,
}

/// An ordering of metadata writes. A new ordering implements this trait, [`WriteGate`] for the
/// writes of blocks, and [`OrderingOp`] for its operations; nothing else changes.
pub trait OrderingPolicy: WriteGate {
    /// The ordering's name on the command line.
    fn name(&self) -> &'static str;

    /// Whether an image that was not unmounted must be checked before it can be used.
    fn needs_check(&self) -> bool;

    /// Whether a crash shows an operation's changes of an inode all or not at all, whenever the
    /// inode's block is written. If not, a layout keeps new pointers out of the inode until it
    /// stores them together with the size that covers them: a check takes a pointer beyond the size
    /// for damage.
    fn whole_inodes(&self) -> bool;

    /// Whether a block or inode in use is never marked free in the bitmaps on disk. An image that
    /// was not unmounted can then be used as soon as the summaries have been rebuilt from the
    /// bitmaps. Layouts mark such images in the superblock.
    fn bitmaps_trusted(&self) -> bool {
        false
    }

    /// Whether the summary area is right after [`recover`](Self::recover), so that no group has to
    /// be read. The core then announces each change of the area ([`What::GroupCounts`]) together
    /// with the change of the group. Otherwise the area is stored only at times.
    fn keeps_summary(&self) -> bool {
        false
    }

    /// Whether contents that are written in order go to their places at once, before anyone waits
    /// for them. If not, they are to be in a log first.
    fn writes_behind(&self) -> bool {
        true
    }

    /// The most blocks that one operation may allocate or free. The core splits larger work into
    /// several operations.
    fn blocks_max(&self) -> u64 {
        u64::MAX
    }

    /// Starts an operation. An ordering may wait here for resources: log space, memory for
    /// dependencies.
    ///
    /// # Errors
    /// The device failed.
    fn begin<'a>(&'a self, cache: &'a Cache, kind: OpKind) -> Begun<'a>;

    /// Announces that an operation will wait for this block before long, so that the ordering can
    /// start to write it.
    fn soon(&self, cache: &Cache, block: &BufRef) {
        let _ = (cache, block);
    }

    /// Makes a file durable: its contents, its inode, and everything that is needed to find it
    /// after a crash. The default writes the file's blocks, then the block of its inode, also where
    /// only other inodes in it are dirty. For [`contents_only`](SyncedInode::contents_only) the
    /// inode need not be written.
    ///
    /// # Errors
    /// The device failed.
    fn fsync<'a>(&'a self, cache: &'a Cache, inode: SyncedInode<'a>) -> BlockFuture<'a> {
        MaybeFuture::boxed(async move {
            cache.flush_file(inode.ino).await?;
            cache.barrier().await?;
            if inode.contents_only {
                return Ok(());
            }
            cache.write_now(std::slice::from_ref(inode.block)).await?;
            cache.barrier().await
        })
    }

    /// Whether an `fdatasync` makes the size of a file durable that has grown without a new
    /// pointer. Only false to show that this is needed.
    fn keeps_synced_size(&self) -> bool {
        true
    }

    /// Brings an image that a crash left to a state in which it can be used, before any block of it
    /// is cached. The ordering also remembers which image is mounted.
    ///
    /// # Errors
    /// The device failed, or the ordering's own data do not belong to the image.
    fn recover<'a>(
        &'a self,
        device: &'a Device,
        image: &'a dyn Image,
    ) -> MaybeFuture<'a, Result<Recovery, RecoverError>> {
        let _ = (device, image);
        MaybeFuture::ready(Ok(Recovery::None))
    }

    /// Starts the ordering's tasks, when the file system has been mounted for writing.
    fn start(&self, cache: &Cache) {
        let _ = cache;
    }

    /// Makes the ordering's own data about all operations that have ended durable.
    ///
    /// # Errors
    /// The device failed.
    fn sync<'a>(&'a self, cache: &'a Cache) -> BlockFuture<'a> {
        let _ = cache;
        MaybeFuture::ready(Ok(()))
    }

    /// Ends what [`start`](Self::start) began, when everything is on the device and the image is
    /// clean.
    ///
    /// # Errors
    /// The device failed.
    fn close<'a>(&'a self, cache: &'a Cache) -> BlockFuture<'a> {
        let _ = cache;
        MaybeFuture::ready(Ok(()))
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

    /// The number of deferred frees, including those that are ready. Frees that wait until a
    /// program closes a removed directory do not count.
    fn deferred(&self) -> usize {
        0
    }

    /// The numbers of fragments and of inodes that deferred frees will free. A user sees them as
    /// free already.
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
    fn reclaim<'a>(&'a self, cache: &'a Cache) -> MaybeFuture<'a, Result<bool, BlockError>> {
        let _ = cache;
        MaybeFuture::ready(Ok(false))
    }
}

/// An ordering's side of one operation, from [`OrderingPolicy::begin`]. An operation that is
/// dropped without [`end`](Self::end) is abandoned: the core has taken back its changes.
pub trait OrderingOp: 'static {
    /// Whether the ordering wants the old bytes of a change with this meaning ([`Change::old`]).
    /// Keeping them costs a copy.
    fn wants_old(&self, what: &What<'_>) -> bool {
        let _ = what;
        false
    }

    /// Asks whether a change may be made. An ordering may wait here until everything on which the
    /// change depends is on disk.
    ///
    /// # Errors
    /// The device failed: the change must not be made.
    fn admit<'a>(&'a mut self, cache: &'a Cache, what: &'a What<'a>) -> BlockFuture<'a> {
        let _ = (cache, what);
        MaybeFuture::ready(Ok(()))
    }

    /// Notes a change that has been made. It must not wait.
    fn record(&mut self, change: &Change<'_>) {
        let _ = change;
    }

    /// Offers a step that frees a resource. `None`: the ordering defers it, and
    /// [`next_ready`](OrderingPolicy::next_ready) returns it later. `Some`: the caller takes the
    /// step now.
    fn defer(&mut self, step: DeferredFree) -> Option<DeferredFree> {
        Some(step)
    }

    /// Completes the operation. It may wait until the operation is durable.
    ///
    /// # Errors
    /// The device failed: the operation is done in memory, but not durable.
    fn end<'a>(self: Box<Self>, cache: &'a Cache) -> BlockFuture<'a> {
        let _ = cache;
        MaybeFuture::ready(Ok(()))
    }
}

/// Any ordering. Clones are the same one. Code above this crate is compiled once, and not once for
/// each ordering.
#[derive(Clone)]
pub struct Ordering(Rc<dyn OrderingPolicy>, Rc<Settled>);

impl<P: OrderingPolicy> From<P> for Ordering {
    fn from(policy: P) -> Ordering {
        Ordering(Rc::new(policy), Rc::default())
    }
}

impl Ordering {
    /// The files of which an `fdatasync` writes contents only.
    pub fn settled(&self) -> &Settled {
        &self.1
    }
}

impl Deref for Ordering {
    type Target = dyn OrderingPolicy;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// A cache, and the ordering that decides about its writes. Clones are the same cache.
#[derive(Clone)]
pub struct OrderedCache {
    cache: Cache,
    ordering: Ordering,
}

impl OrderedCache {
    /// A cache over `device` under an ordering.
    pub fn new(
        runtime: &Runtime,
        device: impl BlockDevice,
        ordering: impl Into<Ordering>,
        config: CacheConfig,
    ) -> OrderedCache {
        OrderedCache::over(runtime, vec![device.erase()], ordering, config)
    }

    /// A cache over several devices, as [`Cache::over`] makes it.
    ///
    /// # Panics
    /// The list of devices is empty.
    pub fn over(
        runtime: &Runtime,
        devices: Vec<Device>,
        ordering: impl Into<Ordering>,
        config: CacheConfig,
    ) -> OrderedCache {
        let ordering = ordering.into();
        let cache = Cache::over(runtime, devices, ordering.0.clone(), config);
        OrderedCache { cache, ordering }
    }

    /// The ordering.
    pub fn ordering(&self) -> &Ordering {
        &self.ordering
    }
}

impl Deref for OrderedCache {
    type Target = Cache;
    fn deref(&self) -> &Cache {
        &self.cache
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
        /// Blocks that the log described and that were not in their places yet. Each is read at
        /// most once, and written at most once.
        blocks: u64,
        /// The number of bytes of file contents, moved before the crash, that could not be read
        /// where they were. The files have zeros there.
        lost: u64,
    },
}

impl Recovery {
    /// The number of bytes of file contents that the recovery could not read.
    pub fn lost_bytes(self) -> u64 {
        match self {
            Recovery::Replayed { lost, .. } => lost,
            Recovery::None => 0,
        }
    }
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

/// Permission to make one change. [`Op::admit`] returns it and [`Op::apply`] takes it, so no change
/// is made that was not admitted, and none is made twice.
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

/// One operation of a core on metadata. An operation that is dropped without [`end`](Op::end) is
/// abandoned.
pub struct Op<'c> {
    cache: &'c Cache,
    under: Box<dyn OrderingOp>,
    ordering: &'c Ordering,
    old: Vec<u8>,
    changed: bool,
}

impl<'c> Op<'c> {
    /// Starts an operation.
    ///
    /// # Errors
    /// The device failed, now or earlier. No operation begins while metadata cannot be written.
    pub async fn begin(cache: &'c OrderedCache, kind: OpKind) -> Result<Self, BlockError> {
        let OrderedCache { cache, ordering } = cache;
        // A free must not wait for operations that wait for space.
        if kind != OpKind::Free {
            cache.throttle().await?;
        }
        let under = ordering.begin(cache, kind).await?;
        Ok(Op { cache, under, ordering, old: Vec::new(), changed: false })
    }

    /// Asks for permission to make a change. Returns once everything is on disk that must be there
    /// first.
    ///
    /// # Errors
    /// The device failed: the change cannot be made.
    #[inline]
    pub async fn admit<'w>(&mut self, what: &'w What<'w>) -> Result<Admitted<'w>, BlockError> {
        self.under.admit(self.cache, what).await?;
        Ok(Admitted { what })
    }

    /// Makes an admitted change. `change` gets the whole buffer, and changes bytes within `ranges`
    /// only.
    #[inline]
    pub fn apply<R>(
        &mut self,
        buf: &BufRef,
        ranges: &[Range<usize>],
        admitted: Admitted<'_>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        self.keep_old(buf, ranges, admitted.what);
        let out = buf.write(change);
        self.note_change(buf, ranges, admitted.what);
        out
    }

    /// Whether the operation has changed any metadata, or deferred a step.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Copies the bytes that a change is about to replace, where the ordering wants them.
    fn keep_old(&mut self, buf: &BufRef, ranges: &[Range<usize>], what: &What<'_>) {
        self.old.clear();
        if self.under.wants_old(what) {
            let bytes = buf.read();
            for range in ranges {
                self.old.extend_from_slice(&bytes[range.clone()]);
            }
        }
    }

    fn note_change(&mut self, buf: &BufRef, ranges: &[Range<usize>], what: &What<'_>) {
        self.changed = true;
        self.ordering.settled().note(what, self.ordering.keeps_synced_size());
        self.under.record(&Change { buf, ranges, old: &self.old, what: *what });
        self.cache.mark_dirty(buf);
        self.cache.charge_gate();
    }

    /// Announces that something will wait for a block before long.
    pub fn soon(&self, block: &BufRef) {
        self.ordering.soon(self.cache, block);
    }

    /// Defers a step that frees a resource, or returns it to be taken now.
    pub fn defer(&mut self, step: DeferredFree) -> Option<DeferredFree> {
        self.changed = true;
        let now = self.under.defer(step);
        self.cache.charge_gate();
        now
    }

    /// Completes the operation.
    ///
    /// # Errors
    /// The device failed. The operation is done in memory, but not durable.
    pub async fn end(self) -> Result<(), BlockError> {
        self.under.end(self.cache).await
    }
}
