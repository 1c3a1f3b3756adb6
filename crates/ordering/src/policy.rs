//! The trait an ordering implements, and the handle through which a core changes metadata.

use std::ops::Range;
use std::rc::Rc;

use ordo_block::{BlockError, Device};
use ordo_cache::{BufRef, Cache, WriteGate};
use ordo_runtime::sync::Notify;

use crate::{Change, Deferred, OpKind, What};

/// What an ordering that undoes and puts off has had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Changes undone in images.
    pub undone: u64,
    /// The most memory that dependencies have taken, in bytes.
    pub memory_peak: usize,
    /// Steps that were put off and taken.
    pub put_off: u64,
}

/// An ordering of metadata writes. To add one: implement this and [`WriteGate`]; nothing else changes.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait OrderingPolicy: WriteGate + Sized {
    /// The name a user gives it.
    const NAME: &'static str;

    /// Whether [`Change::old`] is wanted for such a change: keeping it costs a copy.
    fn wants_old(what: &What<'_>) -> bool {
        let _ = what;
        false
    }

    /// Whether an image that was not unmounted must be checked before it can be used.
    const NEEDS_CHECK: bool;

    /// Whether the bitmaps on disk never call free what is in use: an image that was not unmounted can then
    /// be used once what follows from the bitmaps is worked out anew. Layouts mark such images.
    const BITMAPS_TRUSTED: bool = false;

    /// Whether the summary area is right after [`recover`](Self::recover), so that no group has to be read: each
    /// change of it is told ([`What::GroupCounts`]) with the group's. Else it is stored now and then.
    const KEEPS_SUMMARY: bool = false;

    /// What it keeps for one operation.
    type Op;

    /// How many blocks one operation may take or give back. What takes more is done in several.
    fn blocks_max(&self) -> u64 {
        u64::MAX
    }

    /// An operation starts. May wait for resources: log space, memory for dependencies.
    ///
    /// # Errors
    /// The device failed.
    async fn begin(cache: &Cache<Self>, kind: OpKind) -> Result<Self::Op, BlockError>;

    /// A change is about to be made. May wait until what it depends on is on disk.
    ///
    /// # Errors
    /// The device failed: the change must not be made.
    async fn admit(
        cache: &Cache<Self>,
        op: &mut Self::Op,
        what: &What<'_>,
    ) -> Result<(), BlockError>;

    /// Something will wait for this block before long: a chance to start writing it.
    fn soon(cache: &Cache<Self>, block: &BufRef) {
        let _ = (cache, block);
    }

    /// A change has been made. Must not wait.
    fn record(&self, op: &mut Self::Op, change: &Change<'_>);

    /// The operation is complete. May wait until it is durable.
    ///
    /// # Errors
    /// The device failed: the operation is done in memory, but not durable.
    async fn end(cache: &Cache<Self>, op: Self::Op) -> Result<(), BlockError>;

    /// Makes a file durable: its contents, its inode, which is in the buffer `inode`, and whatever is
    /// needed to find it again after a crash. Unless an ordering says otherwise its blocks are written,
    /// then its inode.
    ///
    /// # Errors
    /// The device failed.
    async fn fsync(cache: &Cache<Self>, ino: u64, inode: &BufRef) -> Result<(), BlockError> {
        cache.flush_file(ino).await?;
        cache.write_now(std::slice::from_ref(inode)).await?;
        cache.barrier().await
    }

    /// Brings what a crash left on the device to a state that can be used, before anything of it is
    /// cached, and takes note of the image that is mounted.
    ///
    /// # Errors
    /// The device failed, or what the ordering keeps does not belong to the image.
    async fn recover(&self, device: &Device, image: &dyn Image) -> Result<Recovery, RecoverError> {
        let _ = (device, image);
        Ok(Recovery::None)
    }

    /// The file system is mounted to be written: starts whatever runs beside it.
    fn start(cache: &Cache<Self>) {
        let _ = cache;
    }

    /// Makes durable what the ordering itself keeps about everything that has ended.
    ///
    /// # Errors
    /// The device failed.
    async fn sync(cache: &Cache<Self>) -> Result<(), BlockError> {
        let _ = cache;
        Ok(())
    }

    /// Everything is on the device and the image is clean: ends what [`start`](Self::start) began.
    ///
    /// # Errors
    /// The device failed.
    async fn close(cache: &Cache<Self>) -> Result<(), BlockError> {
        let _ = cache;
        Ok(())
    }

    /// A step that gives something back comes next in this operation. `None`: the ordering keeps it, and
    /// [`ready`](Self::ready) returns it when its time has come. Else it is to be taken now.
    fn defer(&self, op: &mut Self::Op, step: Deferred) -> Option<Deferred> {
        let _ = op;
        Some(step)
    }

    /// What is notified when steps that were put off may be taken; `None` where none ever is.
    fn ready(&self) -> Option<Rc<Notify>> {
        None
    }

    /// What [`next_ready`](Self::next_ready) would give out.
    fn peek_ready(&self) -> Option<Deferred> {
        None
    }

    /// The next step whose time has come; `None` when there is none for now.
    fn next_ready(&self) -> Option<Deferred> {
        None
    }

    /// A step that [`next_ready`](Self::next_ready) gave out has been taken.
    fn taken(&self, step: Deferred) {
        let _ = step;
    }

    /// How many steps are put off, those included that are ready, but for those that can only be taken when somebody
    /// closes a directory that was removed.
    fn deferred(&self) -> usize {
        0
    }

    /// Fragments, and inodes, that steps put off will give back: to a user they are free.
    fn promised(&self) -> (u64, u64) {
        (0, 0)
    }

    /// What it has had to do for the dependencies that it keeps; `None` where it keeps none.
    fn dependencies(&self) -> Option<Dependencies> {
        None
    }

    /// Space is short: hastens the steps that were put off. Whether any was taken.
    ///
    /// # Errors
    /// The device failed.
    async fn reclaim(cache: &Cache<Self>) -> Result<bool, BlockError> {
        let _ = cache;
        Ok(false)
    }
}

/// What an ordering is told of an image before it is mounted.
pub trait Image {
    /// Tells one file system from another.
    fn id(&self) -> u64;
    /// Whether it was unmounted.
    fn is_clean(&self) -> bool;
    /// When it was last mounted to be written, as the image says.
    fn stamp(&self) -> i64;
    /// What the mount that begins will say instead.
    fn next_stamp(&self) -> i64;
    /// Bytes in a fragment.
    fn fragment(&self) -> u64;
    /// The block that holds a byte of the device, as far as it is finished as one.
    fn unit(&self, byte: u64) -> Range<u64>;
    /// Finishes a block whose bytes were changed: check-hashes.
    fn seal(&self, start: u64, block: &mut [u8]);
}

/// What became of an image before it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// The ordering does not recover, or there was nothing to be done.
    #[default]
    None,
    /// A log was replayed; what is derived from groups has to be worked out anew.
    Replayed {
        /// Records read.
        records: u64,
        /// Operations that are complete now.
        operations: u64,
        /// Changes that were undone.
        undone: u64,
        /// Changes that were made again.
        redone: u64,
        /// Bytes of log read.
        log_bytes: u64,
        /// Pieces of the device that the log had something to say about which was not in its place: each is read at
        /// most once, and written at most once.
        blocks: u64,
    },
}

/// Why an image cannot be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] BlockError),
    /// The log is another file system's.
    #[error("the log belongs to another file system; give the one that was made for this image")]
    OtherLog,
    /// Somebody has changed the image since.
    #[error(
        "not unmounted cleanly, and changed since by somebody who knows nothing of its log; check it (ordo fsck)"
    )]
    StaleLog,
    /// The log has no room for what an operation may have to say.
    #[error("the log holds {have} bytes, which is too small; make one of {need} or more")]
    SmallLog {
        /// What it holds.
        have: u64,
        /// What it must hold at least.
        need: u64,
    },
    /// The log was never used with the image.
    #[error("not unmounted cleanly, and its log was not in use then; check it (ordo fsck)")]
    UnusedLog,
}

/// Leave to make one change: [`Op::admit`] gives it and [`Op::apply`] takes it, so no change is made that was not
/// admitted, and none twice.
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

/// One operation of a core on metadata. Dropping it without [`end`](Op::end) abandons it.
pub struct Op<'c, P: OrderingPolicy> {
    cache: &'c Cache<P>,
    state: P::Op,
    old: Vec<u8>,
}

impl<'c, P: OrderingPolicy> Op<'c, P> {
    /// Starts an operation.
    ///
    /// # Errors
    /// The device failed, now or earlier: with metadata that cannot be written nothing more is begun.
    pub async fn begin(cache: &'c Cache<P>, kind: OpKind) -> Result<Self, BlockError> {
        // What gives space back must not wait for those who wait for space.
        if kind != OpKind::Free {
            cache.throttle().await?;
        }
        let state = P::begin(cache, kind).await?;
        Ok(Op { cache, state, old: Vec::new() })
    }

    /// Asks for leave to make a change: returns once everything is on disk that must be there first.
    ///
    /// # Errors
    /// The device failed: the change cannot be made.
    #[inline]
    pub async fn admit<'w>(&mut self, what: &'w What<'w>) -> Result<Admitted<'w>, BlockError> {
        P::admit(self.cache, &mut self.state, what).await?;
        Ok(Admitted { what })
    }

    /// Makes a change that was admitted: `change` gets the whole buffer and changes bytes within `ranges` only.
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

    /// Says that something will wait for a block before long.
    pub fn soon(&self, block: &BufRef) {
        P::soon(self.cache, block);
    }

    /// Puts a step off that gives something back, or returns it to be taken now.
    pub fn defer(&mut self, step: Deferred) -> Option<Deferred> {
        let now = self.cache.gate().defer(&mut self.state, step);
        self.cache.charge_gate();
        now
    }

    /// Completes the operation.
    ///
    /// # Errors
    /// The device failed: done in memory, not durable.
    pub async fn end(self) -> Result<(), BlockError> {
        P::end(self.cache, self.state).await
    }
}
