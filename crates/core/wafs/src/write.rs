//! Writing the ring, one request at a time, and the superblock.

use std::rc::Rc;

use ordo_block::{BlockDevice, BlockError, IoBuf, WriteFlags};
use ordo_format::wafs::{NO_RECORD, SECTOR_MAGIC, SectorHead, WafsSuper};
use ordo_runtime::LocalFuture;
use ordo_runtime::sync::select;

use crate::log::{GroupCommit, Shared, Tail};
use crate::{LogError, Lsn, Wafs};

/// The most bytes that one request writes, unless a cluster is larger.
const WRITE_MAX: u64 = 256 << 10;

/// A flush of the log's device by the caller of [`Wafs::force_with`].
pub type DeviceFlush<'a> = &'a dyn Fn() -> LocalFuture<'a, Result<(), BlockError>>;

impl Wafs {
    /// Makes everything before `lsn` durable.
    ///
    /// # Errors
    /// The device failed, now or earlier. Bytes that were not durable then will never be.
    pub async fn force(&self, lsn: Lsn) -> Result<(), LogError> {
        self.force_by(lsn, None).await
    }

    /// Makes everything before `lsn` durable, as [`force`](Self::force) does, for a caller that has
    /// written something else to the same device and must flush it. The last request is not forced
    /// by itself: `flush`, which is called when the request has ended, makes it durable with all
    /// that the caller has written. If another task has made the log durable, `flush` is not
    /// called.
    ///
    /// # Errors
    /// The device failed, now or earlier. Bytes that were not durable then will never be.
    pub async fn force_with(&self, lsn: Lsn, flush: DeviceFlush<'_>) -> Result<(), LogError> {
        self.force_by(lsn, Some(flush)).await
    }

    async fn force_by(&self, lsn: Lsn, flush: Option<DeviceFlush<'_>>) -> Result<(), LogError> {
        let shared = &self.shared;
        assert!(lsn <= shared.end.get(), "what is forced has been appended");
        if shared.durable.get() >= lsn {
            return Ok(());
        }
        let mut stats = shared.stats.get();
        stats.forces += 1;
        shared.stats.set(stats);
        match shared.options.group {
            None => shared.write_past(lsn, flush).await,
            Some(group) => self.force_together(lsn, group, flush).await,
        }
    }

    /// Forces as a group. The first task that waits is the leader: it gives others time to join,
    /// then writes for all. It stops waiting as soon as there are as many tasks as the last time,
    /// so a task that is alone each time waits for no other.
    async fn force_together(
        &self,
        lsn: Lsn,
        commit: GroupCommit,
        flush: Option<DeviceFlush<'_>>,
    ) -> Result<(), LogError> {
        let shared = &self.shared;
        let group = &shared.group;
        group.waiting.set(group.waiting.get() + 1);
        if group.waiting.get() >= group.expected.get().min(commit.batch) {
            group.full.notify_all();
        }
        while shared.durable.get() < lsn {
            if let Some(failure) = shared.failure.get() {
                return Err(failure.into());
            }
            if group.led.replace(true) {
                group.done.notified().await;
                continue;
            }
            // The leader waits for its turn first, so that tasks which the previous write releases
            // can join.
            let turn = shared.writer.lock().await;
            shared.runtime.yield_now().await;
            if shared.durable.get() >= lsn {
                // The previous write covered this task too, so another one becomes the leader.
                group.led.set(false);
                group.done.notify_all();
                break;
            }
            let enough = group.expected.get().min(commit.batch);
            if !commit.delay.is_zero() && group.waiting.get() < enough {
                select(group.full.notified(), shared.runtime.sleep(commit.delay)).await;
            }
            // Tasks that come later get another leader, once this write is under way.
            group.led.set(false);
            group.expected.set(group.waiting.replace(0));
            group.done.notify_all();
            let written = shared.write_until(shared.end.get(), flush).await;
            drop(turn);
            group.done.notify_all();
            written?;
        }
        Ok(())
    }

    /// Stores on the device the LSN at which the log starts, and `client`, which is data of the
    /// caller. Space of freed records can be overwritten from then on.
    ///
    /// # Errors
    /// The device failed.
    pub async fn checkpoint(&self, client: Option<[u8; 64]>) -> Result<(), LogError> {
        let shared = &self.shared;
        shared.kept.take();
        let _one = shared.writer.lock().await;
        let mut sb = shared.sb.borrow().clone();
        sb.start = shared.start.get();
        sb.durable = shared.durable.get();
        sb.client = client.unwrap_or(sb.client);
        shared.write_super(sb).await?;
        Ok(())
    }

    /// Whether enough has been appended to fill a cluster.
    pub(crate) fn whole_clusters(&self) -> bool {
        self.shared.full_cluster_until() > self.shared.durable.get()
    }
}

/// Starts the task that writes full clusters when no task forces. It ends with the executor or the
/// log.
pub(crate) fn start(log: &Wafs) {
    let weak = Rc::downgrade(&log.shared);
    let full_cluster = log.shared.full_cluster.clone();
    log.shared.runtime.spawn_daemon("log writer", async move {
        while let Some(shared) = weak.upgrade() {
            if shared.full_cluster_until() > shared.durable.get() && shared.failure.get().is_none()
            {
                // A failure is kept in the state, and reported to the tasks that force.
                let _ = shared.write_through(|| shared.full_cluster_until()).await;
                continue;
            }
            drop(shared);
            full_cluster.notified().await;
        }
    });
}

impl Shared {
    /// The number of sectors in a cluster.
    fn cluster(&self) -> u64 {
        (self.options.cluster as u64 / self.ring.sector).max(1)
    }

    /// The LSN up to which full clusters have been appended.
    fn full_cluster_until(&self) -> Lsn {
        let number = self.ring.number(self.end.get());
        self.ring.lsn(number - number % self.cluster())
    }

    /// Writes until everything before the LSN that `target` returns is durable. `target` is called
    /// when the writer's lock is held.
    pub(crate) async fn write_through(&self, target: impl FnOnce() -> Lsn) -> Result<(), LogError> {
        let _one = self.writer.lock().await;
        self.write_until(target(), None).await
    }

    /// Writes until everything before `lsn` is durable. Where writes are shared, each one also
    /// carries everything that has been appended when it begins, so it includes the records of
    /// tasks that wait for their turn.
    async fn write_past(&self, lsn: Lsn, flush: Option<DeviceFlush<'_>>) -> Result<(), LogError> {
        let _one = self.writer.lock().await;
        while self.durable.get() < lsn {
            self.check()?;
            let target = if self.options.shares { self.end.get() } else { lsn };
            self.write_cluster(target, flush).await.inspect_err(|e| self.failure.set(Some(*e)))?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), LogError> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Writes until everything before `target` is durable. The caller holds the writer's lock.
    async fn write_until(
        &self,
        target: Lsn,
        flush: Option<DeviceFlush<'_>>,
    ) -> Result<(), LogError> {
        while self.durable.get() < target {
            self.check()?;
            self.write_cluster(target, flush).await.inspect_err(|e| self.failure.set(Some(*e)))?;
        }
        Ok(())
    }

    /// Sends one request, from the first sector that is not durable up to `target`, or as much of
    /// that as one request takes. `flush` makes the request durable if it is the last one; without
    /// it the request is forced.
    async fn write_cluster(
        &self,
        target: Lsn,
        flush: Option<DeviceFlush<'_>>,
    ) -> Result<(), BlockError> {
        let ring = self.ring;
        if let Some(turn) = self.options.turn {
            self.gaps.borrow_mut().write_started(self.runtime.now(), turn);
        }
        let first = ring.number(self.durable.get());
        let most = (WRITE_MAX / ring.sector).max(self.cluster());
        let wanted = ring.number(target - 1) + 1 - first;
        let count = ring.run(first, most.min(wanted));
        let upto = self.end.get().min(ring.lsn(first + count));
        let skip = self.skip_behind(upto);
        let mut image = IoBuf::zeroed((count * ring.sector) as usize);
        {
            let tail = self.tail.borrow();
            for (i, sector) in image.chunks_exact_mut(ring.sector as usize).enumerate() {
                self.fill(&tail, first + i as u64, skip, sector);
            }
        }
        let next = (skip > 0).then(|| ring.lsn(ring.number(upto) + 1 + u64::from(skip)));
        self.next.set(next);
        self.writing.set(true);
        // A request that others follow is forced: no sector may survive behind one that is lost.
        let flush = flush.filter(|_| self.volatile && count == wanted);
        let mut written = self.write_sectors(first, image, flush.is_none()).await;
        if let (Some(flush), Ok(())) = (flush, written) {
            written = flush().await;
        }
        self.writing.set(false);
        self.gaps.borrow_mut().ends(self.runtime.now());
        written?;
        // A record may have been appended behind the skipped sectors already.
        let upto = next.filter(|next| self.end.get() >= *next).unwrap_or(upto);
        let mut stats = self.stats.get();
        stats.writes += 1;
        stats.sectors += count;
        self.stats.set(stats);
        self.durable.set(upto);
        let mut tail = self.tail.borrow_mut();
        let base = ring.floor(upto);
        let gone = (base - tail.base) as usize;
        tail.bytes.drain(..gone);
        tail.base = base;
        while tail.starts.front().is_some_and(|lsn| *lsn < base) {
            tail.starts.pop_front();
        }
        Ok(())
    }

    /// Writes sectors from `first` on, durably if the write is `forced`.
    async fn write_sectors(
        &self,
        first: u64,
        image: IoBuf,
        forced: bool,
    ) -> Result<(), BlockError> {
        let mut flags = WriteFlags::SYNC | WriteFlags::META;
        flags.set(WriteFlags::FUA, self.volatile && forced);
        self.device.write(self.ring.byte(first), image, flags).await
    }

    /// Writes the last sector again, without the incomplete record that a crash left in it. A later
    /// write of this sector may be lost while the sector behind it survives, and the incomplete
    /// record must not seem to continue there.
    pub(crate) async fn write_cut(&self) -> Result<(), BlockError> {
        let number = self.ring.number(self.end.get());
        let mut sector = IoBuf::zeroed(self.ring.sector as usize);
        self.fill(&self.tail.borrow(), number, 0, &mut sector);
        self.write_sectors(number, sector, true).await
    }

    /// The number of sectors to skip behind a write up to `upto`. No sector is skipped behind a
    /// full one, nor when records will soon need the space.
    fn skip_behind(&self, upto: Lsn) -> u16 {
        let skip_sectors = match self.options.turn {
            Some(turn) => self.gaps.borrow().sectors(turn),
            None => self.options.skip_sectors,
        };
        let next = self.ring.lsn(self.ring.number(upto) + 1 + u64::from(skip_sectors));
        let free_space = self.ring.free_space(self.sb.borrow().start, next);
        let within = upto == self.end.get() && upto > self.ring.floor(upto);
        if within && free_space > self.ring.capacity() / 4 { skip_sectors } else { 0 }
    }

    /// Fills in a sector for a write. `skip` is the number of sectors to be skipped behind the last
    /// one.
    fn fill(&self, tail: &Tail, number: u64, skip: u16, sector: &mut [u8]) {
        let lsn = self.ring.lsn(number);
        let at = (lsn - tail.base) as usize;
        let used = (tail.bytes.len() - at).min(self.ring.payload as usize);
        sector[SectorHead::SIZE..SectorHead::SIZE + used]
            .copy_from_slice(&tail.bytes[at..at + used]);
        let record = tail.starts.partition_point(|start| *start < lsn);
        let first = tail.starts.get(record).filter(|start| **start < lsn + used as u64);
        let sb = self.sb.borrow();
        let seconds = self.runtime.wall_time().0.saturating_sub(sb.made);
        let head = SectorHead {
            magic: SECTOR_MAGIC,
            check: 0,
            lsn,
            id: sb.id,
            epoch: sb.epoch,
            time: seconds.clamp(0, u32::MAX.into()) as u32,
            behind: u32::try_from(lsn.saturating_sub(self.durable.get())).unwrap_or(u32::MAX),
            used: used as u16,
            first: first.map_or(NO_RECORD, |start| (start - lsn) as u16),
            skip: if used < self.ring.payload as usize { skip } else { 0 },
            reserved: 0,
        };
        head.seal(sector);
    }

    /// Writes the superblock over the older of its copies.
    pub(crate) async fn write_super(&self, mut sb: WafsSuper) -> Result<(), BlockError> {
        sb.generation += 1;
        let mut image = IoBuf::zeroed(self.ring.sector as usize);
        sb.seal(&mut image);
        let mut flags = WriteFlags::META;
        flags.set(WriteFlags::FUA, self.volatile);
        let at = sb.generation % 2 * self.ring.sector;
        let written = self.device.write(at, image, flags).await;
        written.inspect_err(|e| self.failure.set(Some(*e)))?;
        let mut stats = self.stats.get();
        stats.checkpoints += 1;
        self.stats.set(stats);
        *self.sb.borrow_mut() = sb;
        Ok(())
    }
}
