//! The writer: appends everything dirty to the log and, at times, writes a checkpoint.
//!
//! A write-out waits until no operation is under way, and reads every block whose pointers will
//! change. Then it gives every dirty block its new address, without an await in between: blocks of
//! files, the indirect blocks above them, inodes. A checkpoint adds the IFILE, flushes, and writes
//! a superblock. Without a checkpoint, recovery finds the write-out by rolling forward.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use ordo_block::{BlockDevice, BlockError, Fault, IoBuf, Operation, WriteFlags};
use ordo_cache::{BufKey, BufRef, Gathered, Occasion, WriteOut, Writer};
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_format::lfs::{LE, LfsInode, NDADDR, SUPERBLOCK_SIZE, Superblock, UNWRITTEN};
use ordo_runtime::sync::{Mutex, buffer_unordered};
use ordo_runtime::{Duration, Time};
use ordo_vfs::{Errno, FsError};

use super::Shared;
use super::budget::SpacePurpose;
use super::copy::CopyPlan;
use super::ifile::next_of;
use super::plan::{Full, Pseg, SegmentPlan, Style};
use super::rules::LfsRules;
use super::state::{LogState, NANOS};
use super::store::{decode, is_set, put_slot, put_written_size};
use super::tree::{Node, ancestors};
use super::work::{Content, FileWork, Needed, Victim, Work};

/// The most segments that are begun between two checkpoints, so that a mount after a crash is
/// short.
const SEGMENTS_MAX: u32 = 8;
/// The time after which a full log is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The most requests under way.
const REQUESTS: usize = 16;

/// Writes the log.
pub struct SegmentWriter {
    store: Shared,
    form: LogForm,
    /// The lock of the task that writes.
    pub(super) one: Mutex<()>,
    /// The superblock that the next checkpoint writes: 0 or 1.
    next_superblock: Cell<usize>,
    last_checkpoint: Cell<Time>,
    /// The number of checkpoints so far.
    pub checkpoints: Cell<u64>,
    /// Whether the end of the log may still be in the device's volatile cache.
    pub(super) unflushed: Cell<bool>,
    /// The time between two checkpoints while something is written.
    interval: Duration,
}

/// The form of the log that is written.
#[derive(Clone, Copy)]
pub struct LogForm {
    /// The rules that are on.
    pub rules: LfsRules,
    /// Whether partial segments have seals. Without a seal a torn partial segment cannot be
    /// recognised, so its summary is written last.
    pub sealed: bool,
    /// Whether contents must be durable before the pointers to them are written.
    pub contents_first: bool,
}

/// The kind of a write-out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The dirty blocks are written to the log.
    Log,
    /// The dirty blocks are written to the log, with a checkpoint.
    Checkpoint {
        /// Whether the file system is being unmounted.
        clean: bool,
    },
}

/// The outcome of cleaning a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// All live blocks of the segment were moved.
    Moved,
    /// There is no space for its live blocks.
    NoSpace,
    /// A block in the segment is damaged.
    Damaged,
    /// The segment was begun again after it had been chosen: all its blocks had gone.
    BegunAgain,
}

/// A write-out in which every block has its address.
struct Batch {
    /// The requests for contents on the data device.
    contents: Vec<Gathered>,
    requests: Vec<Gathered>,
    /// The requests for summaries, which are written after their blocks. Only a log without seals
    /// has them.
    summaries: Vec<Gathered>,
    /// The superblock, if the write-out is a checkpoint.
    superblock: Option<Superblock>,
    /// The copy of the checkpoint's metadata, if the data device keeps one.
    copy: Option<CopyPlan>,
}

pub fn as_block_error(error: FsError) -> BlockError {
    let fault = Fault::Io(error.errno.raw());
    BlockError { op: Operation::Write, offset: 0, len: 0, fault }
}

pub fn full() -> BlockError {
    as_block_error(FsError::from(Errno::NoSpace))
}

impl SegmentWriter {
    pub fn new(
        store: Shared,
        form: LogForm,
        next_superblock: usize,
        interval: Duration,
    ) -> SegmentWriter {
        let last_checkpoint = Cell::new(store.cache.runtime().now());
        let (next_superblock, checkpoints) = (Cell::new(next_superblock), Cell::new(0));
        let one = Mutex::new((), "the writer of the log", 0);
        let unflushed = Cell::new(false);
        SegmentWriter {
            store,
            form,
            one,
            next_superblock,
            last_checkpoint,
            checkpoints,
            unflushed,
            interval,
        }
    }

    /// The state that the writer shares with the other parts.
    pub(super) fn store(&self) -> &Shared {
        &self.store
    }

    pub(super) async fn flush_if_needed(&self) -> Result<(), BlockError> {
        if self.unflushed.get() {
            self.store.cache.barrier().await?;
            self.unflushed.set(false);
            let failed = self.store.cache.failure().is_some();
            if let Some(data) = self.store.state.borrow_mut().data.as_mut().filter(|_| !failed) {
                data.frees_durable();
            }
        }
        Ok(())
    }

    /// Makes a file durable, in the log, with everything else that is dirty but contents of other
    /// files that are overwritten in their places on a data device.
    ///
    /// # Errors
    /// The device failed.
    pub async fn flush_log(&self, ino: u64) -> Result<(), BlockError> {
        {
            let _one = self.one.lock().await;
            if !self.store.cache.all_dirty().is_empty() {
                self.write_log(self.kind_for_log(), Needed::File(ino)).await?;
            }
            self.flush_if_needed().await?;
        }
        self.store.cache.failure().map_or(Ok(()), Err)
    }

    /// Makes everything durable, with a checkpoint. Does nothing if the last checkpoint has
    /// everything.
    ///
    /// # Errors
    /// The device failed.
    pub async fn checkpoint(&self, clean: bool) -> Result<(), BlockError> {
        {
            let _one = self.one.lock().await;
            let has_news = !self.store.cache.all_dirty().is_empty()
                || self.store.state.borrow().ifile.is_dirty();
            if has_news || clean {
                self.write_log(Kind::Checkpoint { clean }, Needed::All).await?;
            }
            self.flush_if_needed().await?;
        }
        self.store.cache.failure().map_or(Ok(()), Err)
    }

    /// Makes a checkpoint, even if nothing has changed.
    ///
    /// # Errors
    /// The device failed.
    pub async fn force_checkpoint(&self) -> Result<(), BlockError> {
        let _one = self.one.lock().await;
        self.write_log(Kind::Checkpoint { clean: false }, Needed::All).await
    }

    fn kind_for_log(&self) -> Kind {
        let now = self.store.cache.runtime().now();
        let is_old = now.since(self.last_checkpoint.get()) >= self.interval;
        match is_old || self.store.state.borrow().begun >= SEGMENTS_MAX {
            true => Kind::Checkpoint { clean: false },
            false => Kind::Log,
        }
    }

    /// Writes everything dirty that is needed; a checkpoint writes all of it.
    async fn write_log(&self, kind: Kind, needed: Needed<'_>) -> Result<(), BlockError> {
        let store = &self.store;
        let batch = {
            let _quiesced = store.order.quiesce().await;
            let needed = if kind == Kind::Log { needed } else { Needed::All };
            let work = store.pin_dirty(needed).await?;
            let is_nothing = work.is_empty() && store.state.borrow().tombstones.is_empty();
            if kind == Kind::Log && is_nothing {
                return Ok(());
            }
            self.gather(work, kind, false)?
        };
        self.write_batch(batch, kind).await
    }

    /// Moves the live blocks of these segments, as far as there is space, together with everything
    /// dirty, and makes a checkpoint. `by_age`: moved blocks are sorted by age. Returns the result
    /// for each segment. If no block is moved, nothing is written.
    ///
    /// # Errors
    /// The device failed.
    pub async fn clean(
        &self,
        victims: Vec<Victim>,
        by_age: bool,
    ) -> Result<Vec<(u64, WriteOutcome)>, BlockError> {
        let (store, kind) = (&self.store, Kind::Checkpoint { clean: false });
        let _one = self.one.lock().await;
        let (batch, outcomes) = {
            let _quiesced = store.order.quiesce().await;
            let mut work = store.pin_dirty(Needed::All).await?;
            let mut outcomes = Vec::new();
            for victim in victims {
                if store.state.borrow().epoch(victim.segment) != victim.epoch {
                    // The bytes that were read may be older contents of blocks that are there
                    // again.
                    outcomes.push((victim.segment, WriteOutcome::BegunAgain));
                    continue;
                }
                let outcome = match store.pin_live(&victim).await {
                    Ok(live) if self.has_space_for(&work, &live) => {
                        work.absorb(live);
                        WriteOutcome::Moved
                    }
                    Ok(_) => WriteOutcome::NoSpace,
                    // Damaged blocks stay where they are.
                    Err(error) if error.errno == Errno::Corrupt => WriteOutcome::Damaged,
                    Err(error) => return Err(as_block_error(error)),
                };
                outcomes.push((victim.segment, outcome));
            }
            if outcomes.iter().all(|(_, outcome)| *outcome != WriteOutcome::Moved) {
                return Ok(outcomes);
            }
            (self.gather(work, kind, by_age)?, outcomes)
        };
        self.write_batch(batch, kind).await?;
        Ok(outcomes)
    }

    /// Whether there is space for a checkpoint with the blocks of both, and enough left for the
    /// next checkpoint.
    fn has_space_for(&self, work: &Work, more: &Work) -> bool {
        let extent = work.extent_with(more, &self.store);
        let state = self.store.state.borrow();
        state.bound(extent, true) + state.kept_from(SpacePurpose::Checkpoint) <= state.space()
    }

    async fn write_batch(&self, batch: Batch, kind: Kind) -> Result<(), BlockError> {
        let store = &self.store;
        self.unflushed.set(true);
        let segments = self.segments_of(batch.requests.iter().chain(&batch.summaries));
        let write_out = store.begin_write_out(segments);
        let mut requests = batch.contents;
        if self.form.contents_first && !requests.is_empty() {
            self.write_all(std::mem::take(&mut requests)).await?;
            store.cache.barrier().await?;
        }
        requests.extend(batch.requests);
        self.write_all(requests).await?;
        if !batch.summaries.is_empty() {
            if self.form.rules.contains(LfsRules::BLOCKS_FIRST) {
                store.cache.barrier().await?;
            }
            self.write_all(batch.summaries).await?;
        }
        drop(write_out);
        let Some(sb) = batch.superblock else { return Ok(()) };
        if self.form.rules.contains(LfsRules::FLUSH) {
            self.flush_if_needed().await?;
        }
        let other = match sb.second_superblock() {
            Some(_) => 1 - self.next_superblock.get(),
            None => 0,
        };
        write_superblock(store, &sb, self.next_superblock.get()).await?;
        if kind == (Kind::Checkpoint { clean: true }) && other != self.next_superblock.get() {
            write_superblock(store, &sb, other).await?;
        }
        self.next_superblock.set(other);
        self.last_checkpoint.set(store.cache.runtime().now());
        self.checkpoints.set(self.checkpoints.get() + 1);
        store.state.borrow_mut().checkpoint_done();
        match batch.copy {
            Some(plan) => self.write_copy(&plan).await,
            None => Ok(()),
        }
    }

    /// Copies the metadata of the checkpoint that was just made to the data device. Then the blocks
    /// that files lost before the checkpoint can be used.
    async fn write_copy(&self, plan: &CopyPlan) -> Result<(), BlockError> {
        let entries = plan.write(&self.store.device).await?;
        let mut state = self.store.state.borrow_mut();
        let state = &mut *state;
        let copy = state.copy.as_mut().expect("it was planned");
        copy.done(entries.as_deref(), plan.serial());
        state.data.iter_mut().for_each(|data| data.frees_copied());
        Ok(())
    }

    pub(super) async fn write_all(&self, requests: Vec<Gathered>) -> Result<(), BlockError> {
        let writes = requests.into_iter().map(|r| self.store.cache.write_gathered(r, false));
        buffer_unordered(REQUESTS, writes, |_, result| result).await
    }

    /// The segments into which these requests write.
    fn segments_of<'r>(&self, requests: impl Iterator<Item = &'r Gathered>) -> BTreeSet<u64> {
        let sb = &self.store.shape;
        let fsize = u64::from(sb.fsize);
        let segment = |at: u64| sb.segment_of((at / fsize).cast_signed());
        let each = requests.filter_map(|request| {
            let (start, end) = (request.end() - request.len() as u64, request.end());
            Some(segment(start)?..=segment(end - 1)?)
        });
        each.flatten().collect()
    }

    /// Gives every block its address, and copies the bytes. There is no await here, so nothing
    /// changes meanwhile.
    fn gather(&self, mut work: Work, kind: Kind, by_age: bool) -> Result<Batch, BlockError> {
        let store = &self.store;
        let is_checkpoint = kind != Kind::Log;
        let extent = work.extent_with(&Work::default(), store);
        let may_grow = is_checkpoint && !store.lacks(SpacePurpose::Growth, 0, 0, 0);
        let mut state = store.state.borrow_mut();
        let nanos = store.wall_nanos();
        let now = nanos / NANOS;
        if state.bound(extent, is_checkpoint) > state.space() {
            return Err(full());
        }
        for number in &work.ifile {
            state.ifile.mark(*number);
        }
        if is_checkpoint {
            if may_grow {
                store.grow_ifile(&mut state, extent);
            }
            state.retire(self.form.rules.contains(LfsRules::REUSE));
        }
        state.resized.clear();
        if let Some(data) = &mut state.data {
            data.frees_gathered();
        }
        let contents = self.place_contents(&mut state, &mut work);
        let mut plan = SegmentPlan::new(&mut state, nanos);
        let placed = self.place(&mut plan, work, (is_checkpoint, by_age));
        let psegs = plan.finish();
        placed.expect("there is space for the computed bound");
        if is_checkpoint {
            state.checkpoint_gathered();
            state.total();
            let sb = state.sb.clone();
            state.ifile.finish_inode(&sb);
        }
        let (requests, summaries) = self.take_bytes(&state, &psegs, now);
        let superblock = is_checkpoint.then(|| {
            state.ifile.clean();
            state.sb.tstamp = now;
            let clean = kind == Kind::Checkpoint { clean: true };
            state.sb.pflags = if clean { PF_CLEAN } else { 0 };
            state.sb.clone()
        });
        let copy = superblock.as_ref().and_then(|sb| Some(state.copy.as_mut()?.plan(sb)));
        drop(state);
        let contents = self.content_requests(contents);
        Ok(Batch { contents, requests, summaries, superblock, copy })
    }

    fn place(
        &self,
        plan: &mut SegmentPlan<'_>,
        work: Work,
        (is_checkpoint, by_age): (bool, bool),
    ) -> Result<(), Full> {
        let inverse = self.store.locality.inverse;
        let order = work.order(inverse);
        let Work { mut files, inodes, pinned, .. } = work;
        let pin_of = |ino: u64| inodes.get(&ino).expect("pinned with the blocks");
        // New blocks and moved blocks are kept apart: new ones are likely to become dead soon,
        // moved ones are not. The indirect blocks of a file are placed after its data. In inverse
        // order they come right behind the data, so moved blocks are placed first.
        for by_cleaner in [inverse, !inverse] {
            plan.set_by_cleaner(by_cleaner);
            if by_cleaner && by_age {
                self.place_by_age(plan, &mut files, &inodes)?;
                continue;
            }
            for ino in &order {
                let Some(file) = files.get_mut(ino) else { continue };
                self.place_data(plan, *ino, pin_of(*ino), file, by_cleaner)?;
                if inverse && !by_cleaner {
                    let file = files.remove(ino).expect("there");
                    self.place_indirect(plan, *ino, pin_of(*ino), file)?;
                    self.store.cache.mark_dirty(pin_of(*ino));
                }
            }
        }
        plan.set_by_cleaner(false);
        for (ino, file) in files {
            self.place_indirect(plan, ino, pin_of(ino), file)?;
            self.store.cache.mark_dirty(pin_of(ino));
        }
        let all: Vec<(u64, BufRef)> =
            order.iter().map(|ino| (*ino, pin_of(*ino).clone())).collect();
        let per_block = self.store.shape.inopb as usize;
        for some in all.chunks(per_block) {
            let bufs: Vec<BufRef> = some.iter().map(|(_, buf)| buf.clone()).collect();
            let addr = plan.inodes(&bufs)?;
            for (ino, buf) in some {
                self.inode_placed(plan.state, *ino, buf, addr);
            }
        }
        drop(pinned);
        if !is_checkpoint {
            return Ok(());
        }
        plan.state.store_tables();
        plan.ifile()
    }

    /// Gives the data blocks of a file their places: either the moved ones, or the others.
    fn place_data(
        &self,
        plan: &mut SegmentPlan<'_>,
        ino: u64,
        pin: &BufRef,
        file: &mut FileWork,
        by_cleaner: bool,
    ) -> Result<(), Full> {
        let is_moved = |content: &Content| match content {
            Content::Buffer(buf) => !buf.is_dirty(),
            Content::Moved { .. } => true,
        };
        let all = std::mem::take(&mut file.levels[0]);
        let (now, later): (BTreeMap<_, _>, _) =
            all.into_iter().partition(|(_, content)| is_moved(content) == by_cleaner);
        file.levels[0] = later;
        let mut now: Vec<(i64, Content)> = now.into_iter().collect();
        if self.store.locality.inverse {
            now.reverse();
        }
        for block in now {
            self.place_block(plan, (ino, pin), block, file)?;
        }
        Ok(())
    }

    /// Gives moved data blocks their addresses, sorted by age. The youngest fill the current
    /// segment, which has new blocks. The others go to the next segments, the oldest first. So the
    /// youngest of these come last, and lie beside the blocks that are written next.
    fn place_by_age(
        &self,
        plan: &mut SegmentPlan<'_>,
        files: &mut BTreeMap<u64, FileWork>,
        inodes: &BTreeMap<u64, BufRef>,
    ) -> Result<(), Full> {
        let mut moved: Vec<(u64, u64, i64)> = Vec::new();
        for (ino, file) in &*files {
            for number in file.levels[0].keys() {
                let at = self
                    .store
                    .peek_pointer(*ino, *number)
                    .expect("the blocks on its path are pinned");
                let segment = plan.state.sb.segment_of(at);
                moved.push((segment.map_or(0, |s| plan.state.youngest(s)), *ino, *number));
            }
        }
        moved.sort_unstable();
        let youngest = plan.blocks_left().min(moved.len());
        moved.rotate_right(youngest);
        for (time, ino, number) in moved {
            plan.set_was_new(Some(time));
            let pin = inodes.get(&ino).expect("pinned with the blocks").clone();
            let file = files.get_mut(&ino).expect("there");
            let content = file.levels[0].remove(&number).expect("there");
            self.place_block(plan, (ino, &pin), (number, content), file)?;
        }
        plan.set_was_new(None);
        Ok(())
    }

    /// Gives the indirect blocks of a file their places, the lowest level first.
    fn place_indirect(
        &self,
        plan: &mut SegmentPlan<'_>,
        ino: u64,
        pin: &BufRef,
        mut file: FileWork,
    ) -> Result<(), Full> {
        for level in 1..file.levels.len() {
            for block in std::mem::take(&mut file.levels[level]) {
                self.place_block(plan, (ino, pin), block, &mut file)?;
            }
        }
        Ok(())
    }

    /// Gives a block its place. The block with the pointer to it changes, and gets its own place
    /// later.
    fn place_block(
        &self,
        plan: &mut SegmentPlan<'_>,
        (ino, pin): (u64, &BufRef),
        (number, content): (i64, Content),
        file: &mut FileWork,
    ) -> Result<(), Full> {
        let (store, d) = (&self.store, decode(pin));
        let bytes = match (0..NDADDR as i64).contains(&number) {
            true => store.shape.block_bytes(number.cast_unsigned(), d.size) as usize,
            false => store.bsize(),
        };
        assert!(bytes > 0, "inode {ino}: block {number} lies behind the end");
        if let Content::Buffer(buf) = &content
            && buf.len() != bytes
        {
            store.cache.resize(buf, bytes);
        }
        let addr = plan.block((ino, d.generation), number, bytes as u32, content)?;
        match self.point_at((ino, pin), number, addr, file) {
            UNWRITTEN => {
                let pending = plan.state.pending;
                plan.state.pending = pending.saturating_sub(store.bsize() as u64);
            }
            old => plan.state.sub_live(old, store.written_bytes(&d, number) as u64),
        }
        Ok(())
    }

    /// Sets the pointer to a block to its new place. If an indirect block has the pointer, that
    /// block is written too. Returns the old place.
    pub(super) fn point_at(
        &self,
        (ino, pin): (u64, &BufRef),
        number: i64,
        addr: i64,
        file: &mut FileWork,
    ) -> i64 {
        let store = &self.store;
        let (_, path) = Node::of(number, store.nindir()).expect("it was pinned");
        let old = match ancestors(&path, store.nindir()).last() {
            None => {
                let old = super::store::slot(pin, path.slot);
                pin.write(|bytes| put_slot(bytes, path.slot, addr));
                old
            }
            Some(above) => {
                let key = BufKey::file(ino, above.number());
                let upper = store.cache.peek(key).expect("it is pinned");
                let index = path.offsets[path.depth - 1];
                let old = store.pointer_in(&upper, index);
                upper.write(|bytes| LE.put_i64(bytes, index * 8, addr));
                store.cache.mark_dirty(&upper);
                file.levels[above.level].insert(above.number(), Content::Buffer(upper));
                old
            }
        };
        assert!(is_set(old), "inode {ino}: nothing leads to block {number}");
        old
    }

    /// Notes that an inode has got its place.
    fn inode_placed(&self, state: &mut LogState, ino: u64, buf: &BufRef, addr: i64) {
        let d = decode(buf);
        state.tombstones.remove(&ino);
        if d.mode == 0 {
            return;
        }
        let sb = state.sb.clone();
        let old = state.ifile.entry(&sb, ino).daddr;
        if old > 0 {
            state.sub_live(old, LfsInode::SIZE as u64);
        } else if let Some(data) = &mut state.data {
            data.count_inode(d.blksize, 1);
        }
        state.add_live(addr, LfsInode::SIZE as u64);
        state.ifile.change_entry(&sb, ino, |entry| {
            entry.daddr = addr;
            entry.nextfree = next_of(d.nlink);
        });
        buf.write(|bytes| put_written_size(bytes, d.size));
    }

    /// The requests of a write-out. Partial segments that lie one behind the other share a request.
    /// In a log without seals the summaries have requests of their own, which are the second part
    /// of the result.
    fn take_bytes(
        &self,
        state: &LogState,
        psegs: &[Pseg],
        now: u64,
    ) -> (Vec<Gathered>, Vec<Gathered>) {
        let (cache, sb) = (&self.store.cache, &self.store.shape);
        let most = self.store.device.geometry().max_request;
        let style = Style {
            sealed: self.form.sealed && self.form.rules.contains(LfsRules::SEAL),
            chained: self.form.rules.contains(LfsRules::CHAIN),
            now,
        };
        let mut requests: Vec<Gathered> = Vec::new();
        let mut summaries = Vec::new();
        for (i, pseg) in psegs.iter().enumerate() {
            let mut bytes: IoBuf = pseg.bytes(sb, &state.ifile, style, i + 1 == psegs.len());
            let mut covered = Vec::new();
            for (addr, buf) in pseg.buffers() {
                if let Some(addr) = addr {
                    buf.set_address(Some(sb.byte_of(addr)));
                }
                covered.push(buf.clone());
            }
            let mut at = sb.byte_of(pseg.at);
            if !self.form.sealed {
                let summary = IoBuf::from_slice(&bytes[..sb.sumsize as usize]);
                bytes = IoBuf::from_slice(&bytes[sb.sumsize as usize..]);
                summaries.push(Gathered::at(at));
                cache.gather_bytes(summaries.last_mut().expect("there"), summary, &[]);
                at += u64::from(sb.sumsize);
            }
            let fits = |r: &Gathered| r.end() == at && r.len() + bytes.len() <= most;
            if !requests.last().is_some_and(fits) {
                requests.push(Gathered::at(at));
            }
            cache.gather_bytes(requests.last_mut().expect("there"), bytes, &covered);
        }
        (requests, summaries)
    }
}

/// Writes one of the first two superblocks, and waits until it is durable.
pub async fn write_superblock(
    store: &super::store::Store,
    sb: &Superblock,
    which: usize,
) -> Result<(), BlockError> {
    let geometry = store.device.geometry();
    let mut bytes = IoBuf::zeroed(SUPERBLOCK_SIZE.max(geometry.sector as usize));
    sb.write(&mut bytes);
    let flags = WriteFlags::FUA | WriteFlags::SYNC | WriteFlags::META;
    store.device.write(sb.byte_of(sb.sboffs[which]), bytes, flags).await
}

impl Writer for SegmentWriter {
    fn write_out(&self, dirty: Vec<BufRef>, occasion: Occasion) -> WriteOut<'_> {
        Box::pin(async move {
            if occasion == Occasion::Memory && !self.store.order.is_quiescent() {
                return Ok(());
            }
            let _one = self.one.lock().await;
            if !dirty.iter().any(|buf| buf.is_dirty()) {
                return Ok(());
            }
            // Without a data device nothing is left out.
            let aged: BTreeSet<BufKey> = match (occasion, &self.store.data) {
                (Occasion::Age, Some(_)) => dirty.iter().map(|buf| buf.key()).collect(),
                _ => BTreeSet::new(),
            };
            let (kind, needed) = match occasion {
                Occasion::Demand => (Kind::Checkpoint { clean: false }, Needed::All),
                Occasion::Age => (self.kind_for_log(), Needed::Aged(&aged)),
                Occasion::Memory => (self.kind_for_log(), Needed::All),
            };
            let written = self.write_log(kind, needed).await;
            if written == Err(full()) && occasion != Occasion::Demand {
                // The log is full until something is deleted, so trying again at once is useless.
                self.store.cache.runtime().sleep(RETRY).await;
            }
            written
        })
    }
}
