//! The cleaner: moves live blocks out of segments that are mostly dead, so that these segments can
//! be written again.
//!
//! The summaries of a victim (a segment to be cleaned) list the blocks that were written to it; the
//! present pointers tell which of them are live. The live blocks get new places in one write-out
//! with everything dirty, which ends with a checkpoint. After another checkpoint the victim is
//! clean. Many victims are cleaned in one pass, so that the indirect blocks and inodes that they
//! share, and the checkpoint, are written only once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use ordo_block::BlockError;
use ordo_format::lfs::SegUse;
use ordo_ordering::OpKind;
use ordo_runtime::LocalFuture;
use ordo_runtime::sync::Mutex;

use super::Shared;
use super::budget::SpacePurpose;
use super::order::SpaceProvider;
use super::rules::{CleanerPolicy, Cleaning};
use super::writer::{SegmentWriter, WriteOutcome};

/// The most victims in one pass.
const VICTIMS_MAX: usize = 64;
/// The most bytes of victims in one pass, since their bytes are held in memory; a few victims are
/// always allowed.
const VICTIM_BYTES: u64 = 16 << 20;
/// The number of victims that one pass may have, however large their segments are.
const VICTIMS_MIN: usize = 4;
/// The number of segments that are cleaned in advance, beyond the need of one operation.
const MORE: i64 = 2;
/// The number of segments that are cleaned in advance if live blocks are sorted by age. It is
/// larger, because sorting needs many blocks.
const MORE_BY_AGE: i64 = 8;
/// The number of passes in a row without a gain after which the log counts as full. An early pass
/// without a gain may help a later one, because the blocks that it moves lie together afterwards.
const FRUITLESS_MAX: u32 = 6;

/// Cleans segments.
pub struct Cleaner {
    pub(super) store: Shared,
    writer: Rc<SegmentWriter>,
    pub(super) cleaning: Cleaning,
    /// The lock of the task that cleans.
    pub(super) one: Mutex<()>,
    pub(super) own: Weak<Cleaner>,
    /// Whether the task of idle cleaning runs.
    pub(super) has_idle_task: Cell<bool>,
    /// Whether the task that looks every few seconds runs.
    pub(super) has_busy_task: Cell<bool>,
    /// Whether cleaning in advance has ended for good.
    pub(super) is_stopped: Cell<bool>,
    /// The state of the log when cleaning in advance last gained nothing.
    pub(super) idle_fruitless: Cell<Option<Fruitless>>,
    /// The state of the log when cleaning last gained nothing, for each purpose: new blocks, other
    /// changes, deletes.
    fruitless: [Cell<Option<Fruitless>>; 3],
    /// Segments with damaged blocks, or with live bytes to which no pointer leads.
    uncleanable: RefCell<BTreeSet<u64>>,
    pub(super) counts: Cell<CleanerCounts>,
}

/// The state of a log in which cleaning gained nothing. Cleaning is tried again when fewer bytes
/// are in use or less space is left, by half a segment: then more is dead.
#[derive(Clone, Copy)]
pub(super) struct Fruitless {
    pub used: u64,
    pub space: i64,
}

/// The cleaner's work since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanerCounts {
    /// The number of segments that were cleaned.
    pub segments: u64,
    /// Live bytes that were moved out of these segments.
    pub moved_bytes: u64,
    /// Passes of the cleaner.
    pub passes: u64,
    /// Segments that were cleaned while the file system was idle. `segments` counts them too.
    pub idle_segments: u64,
    /// The number of bytes that the cleaner read.
    pub read_bytes: u64,
    /// The time for which operations waited for cleaning, in nanoseconds.
    pub waited_nanos: u64,
}

impl CleanerCounts {
    /// The difference from the earlier counts `before`.
    #[must_use]
    pub fn since(self, before: CleanerCounts) -> CleanerCounts {
        CleanerCounts {
            segments: self.segments - before.segments,
            moved_bytes: self.moved_bytes - before.moved_bytes,
            passes: self.passes - before.passes,
            idle_segments: self.idle_segments - before.idle_segments,
            read_bytes: self.read_bytes - before.read_bytes,
            waited_nanos: self.waited_nanos - before.waited_nanos,
        }
    }
}

/// The least purpose for which an operation of this kind needs space. Space for new blocks is
/// checked only when the operation allocates them.
fn purpose(kind: OpKind) -> SpacePurpose {
    match kind {
        OpKind::Remove | OpKind::Free => SpacePurpose::Delete,
        OpKind::Make => SpacePurpose::Growth,
        _ => SpacePurpose::Change,
    }
}

impl Cleaner {
    pub fn new(store: Shared, writer: Rc<SegmentWriter>, cleaning: Cleaning) -> Rc<Cleaner> {
        Rc::new_cyclic(|own| Cleaner {
            store,
            writer,
            cleaning,
            one: Mutex::new((), "the cleaner of the log", 0),
            own: own.clone(),
            has_idle_task: Cell::new(false),
            has_busy_task: Cell::new(false),
            is_stopped: Cell::new(false),
            idle_fruitless: Cell::new(None),
            fruitless: Default::default(),
            uncleanable: RefCell::default(),
            counts: Cell::default(),
        })
    }

    /// A number that grows whenever the file system is used.
    pub(super) fn activity(&self) -> u64 {
        self.store.order.activity()
    }

    /// The cleaner's work since the mount.
    pub fn counts(&self) -> CleanerCounts {
        self.counts.get()
    }

    /// Whether few inodes are free while a checkpoint could add more.
    fn lacks_inodes(&self) -> bool {
        let state = self.store.state.borrow();
        let grown = state.used() + 4 * u64::from(self.store.shape.bsize);
        state.ifile.free_inodes() < 32 && grown <= self.store.limit
    }

    /// Whether there is too little space for an operation with this purpose, the operations under
    /// way, and `spare` segments.
    fn lacks_space(&self, purpose: SpacePurpose, spare: i64) -> bool {
        let operations = self.store.order.operations() + 1;
        self.store.lacks(purpose, operations, 0, spare)
    }

    fn fruitless(&self, purpose: SpacePurpose) -> &Cell<Option<Fruitless>> {
        &self.fruitless[SpacePurpose::Growth as usize - (purpose as usize).max(1)]
    }

    /// Whether another pass could gain anything.
    fn is_worth_trying(&self, purpose: SpacePurpose) -> bool {
        let state = self.store.state.borrow();
        let (bytes, frags) = (self.store.shape.ssize / 2, self.store.shape.fsbpseg / 2);
        self.fruitless(purpose).get().is_none_or(|then| {
            state.used() + u64::from(bytes) <= then.used
                || state.space() + i64::from(frags) <= then.space
        })
    }

    /// The purpose for which an operation should clean before it begins; `None` if it need not.
    /// While cleaning gains anything, every operation keeps space free for new blocks.
    fn wanted(&self, purpose: SpacePurpose) -> Option<SpacePurpose> {
        // Growth must leave the most space free, so where it lacks none, nothing does.
        if !self.lacks_space(SpacePurpose::Growth, 0) {
            return None;
        }
        [SpacePurpose::Growth, SpacePurpose::Change, SpacePurpose::Delete]
            .into_iter()
            .filter(|wanted| *wanted >= purpose)
            .find(|wanted| self.lacks_space(*wanted, 0) && self.is_worth_trying(*wanted))
    }

    /// Makes checkpoints while there are empty segments, which only checkpoints make usable.
    pub(super) async fn free_empty(&self) -> Result<(), BlockError> {
        for _ in 0..2 {
            if self.store.state.borrow().has_empty() {
                self.writer.force_checkpoint().await?;
            }
        }
        Ok(())
    }

    /// Cleans segments in one pass. The policy chooses among segments with at most `live_max` live
    /// bytes, until `wanted` fragments are gained or the pass has the most victims. Returns whether
    /// a block was moved.
    ///
    /// # Errors
    /// The device failed.
    pub(super) async fn pass(
        &self,
        policy: CleanerPolicy,
        wanted: i64,
        live_max: u64,
    ) -> Result<bool, BlockError> {
        let mut victims = Vec::new();
        let chosen = self.choose(policy, wanted, live_max);
        let epoch = |segment| self.store.state.borrow().epoch(segment);
        let epochs: Vec<(u64, u32)> =
            chosen.iter().map(|(segment, _)| (*segment, epoch(*segment))).collect();
        for (segment, epoch) in epochs {
            victims.push(self.store.read_victim(segment, epoch).await?);
        }
        let outcomes = self.writer.clean(victims, policy == CleanerPolicy::HotCold).await?;
        let mut counts = self.counts.get();
        counts.read_bytes += chosen.len() as u64 * u64::from(self.store.shape.ssize);
        let state = self.store.state.borrow();
        for (segment, outcome) in &outcomes {
            let is_left = *outcome == WriteOutcome::Moved && state.seguse(*segment).nbytes > 0;
            if *outcome == WriteOutcome::Damaged || is_left {
                self.uncleanable.borrow_mut().insert(*segment);
            }
            if *outcome == WriteOutcome::Moved {
                let seguse = chosen.iter().find(|(chosen, _)| chosen == segment);
                counts.segments += 1;
                counts.moved_bytes += seguse.map_or(0, |(_, seguse)| u64::from(seguse.nbytes));
            }
        }
        counts.passes += 1;
        self.counts.set(counts);
        Ok(outcomes.iter().any(|(_, outcome)| *outcome == WriteOutcome::Moved))
    }

    /// Chooses the victims of a pass, best first.
    fn choose(&self, policy: CleanerPolicy, wanted: i64, live_max: u64) -> Vec<(u64, SegUse)> {
        let (state, uncleanable) = (self.store.state.borrow(), self.uncleanable.borrow());
        let now = self.store.wall_nanos();
        let size = u64::from(self.store.shape.ssize);
        let mut all: Vec<(u64, u64, SegUse)> = state
            .victims()
            .filter(|(segment, _)| !uncleanable.contains(segment))
            .filter(|(_, seguse)| u64::from(seguse.nbytes) <= live_max)
            .map(|(segment, seguse)| {
                let live = u64::from(seguse.nbytes).min(size);
                let age = now.saturating_sub(state.written(segment)) / 1000 + 1;
                let worth = match policy {
                    CleanerPolicy::Greedy => size - live,
                    CleanerPolicy::CostBenefit | CleanerPolicy::HotCold => {
                        let benefit = u128::from(size - live) * u128::from(age) * 1024;
                        u64::try_from(benefit / u128::from(size + live)).unwrap_or(u64::MAX)
                    }
                };
                (worth, segment, seguse)
            })
            .collect();
        all.sort_by_key(|(worth, segment, _)| (std::cmp::Reverse(*worth), *segment));
        let count = (VICTIM_BYTES / size).clamp(VICTIMS_MIN as u64, VICTIMS_MAX as u64) as usize;
        let (mut gain, mut out) = (-state.checkpoint_frags(), Vec::new());
        for (_, segment, seguse) in all.into_iter().take(count) {
            let live = i64::from(seguse.nbytes.div_ceil(self.store.shape.fsize));
            gain += (state.capacity(segment) - live).max(0);
            out.push((segment, seguse));
            if gain >= wanted {
                break;
            }
        }
        out
    }

    /// Cleans every segment of which at most `percent` is live. Returns the work that was done.
    ///
    /// # Errors
    /// The device failed.
    pub async fn clean_below(&self, percent: u64) -> Result<CleanerCounts, BlockError> {
        let _one = self.one.lock().await;
        let before = self.counts();
        let live_max = u64::from(self.store.shape.ssize) * percent / 100;
        self.writer.force_checkpoint().await?;
        self.free_empty().await?;
        // Moved blocks fill segments, except for the last one. So each segment is a victim only
        // once.
        let mut left = self.store.shape.nseg;
        while left > 0 && self.pass(CleanerPolicy::Greedy, i64::MAX, live_max).await? {
            self.free_empty().await?;
            let done = self.counts().segments - before.segments;
            left = left.min(self.store.shape.nseg.saturating_sub(done as u32));
        }
        self.free_empty().await?;
        Ok(self.counts().since(before))
    }

    /// Cleans until an operation with this purpose has its space and some segments more, or until
    /// cleaning gains nothing.
    async fn clean_for(&self, purpose: SpacePurpose) -> Result<(), BlockError> {
        let (mut best, mut without_gain) = (self.store.state.borrow().space(), 0);
        let more = if self.cleaning.policy == CleanerPolicy::HotCold { MORE_BY_AGE } else { MORE };
        while self.lacks_space(purpose, MORE) && without_gain < FRUITLESS_MAX {
            // After a pass without a gain the emptiest segments are chosen, and more of them in
            // each pass.
            let policy =
                if without_gain == 0 { self.cleaning.policy } else { CleanerPolicy::Greedy };
            let wanted = ((more + 1) * i64::from(self.store.shape.fsbpseg)) << without_gain;
            let has_moved = self.pass(policy, wanted, u64::MAX).await?;
            self.free_empty().await?;
            let space = self.store.state.borrow().space();
            without_gain = if space > best { 0 } else { without_gain + 1 };
            best = best.max(space);
            if !has_moved && without_gain > 1 {
                break;
            }
        }
        Ok(())
    }
}

impl SpaceProvider for Cleaner {
    fn is_short(&self, kind: OpKind) -> bool {
        let takes_blocks = purpose(kind) > SpacePurpose::Delete;
        self.wanted(purpose(kind)).is_some()
            || takes_blocks && self.store.awaits_frees()
            || kind == OpKind::Make
                && self.lacks_inodes()
                && !self.lacks_space(SpacePurpose::Growth, 0)
    }

    fn provide(&self, kind: OpKind) -> LocalFuture<'_, Result<(), BlockError>> {
        Box::pin(async move {
            let runtime = self.store.cache.runtime();
            let start = runtime.now();
            let _one = self.one.lock().await;
            if !self.is_short(kind) {
                return Ok(());
            }
            // The space that everything dirty takes is known exactly only when it is written.
            self.writer.force_checkpoint().await?;
            self.free_empty().await?;
            while let Some(wanted) = self.wanted(purpose(kind)) {
                self.fruitless(wanted).set(None);
                self.clean_for(wanted).await?;
                let state = self.store.state.borrow();
                let now = Fruitless { used: state.used(), space: state.space() };
                self.fruitless(wanted).set(self.lacks_space(wanted, 0).then_some(now));
            }
            let mut counts = self.counts.get();
            counts.waited_nanos += runtime.now().since(start).as_nanos() as u64;
            self.counts.set(counts);
            Ok(())
        })
    }

    fn refuses(&self, kind: OpKind) -> bool {
        let kept = match purpose(kind) {
            SpacePurpose::Delete | SpacePurpose::Checkpoint => SpacePurpose::Checkpoint,
            SpacePurpose::Change | SpacePurpose::Growth => SpacePurpose::Delete,
        };
        self.lacks_space(kept, 0)
    }

    fn operation_ended(&self) {
        self.start_tasks();
    }
}
