//! Writing: images, the gate, clusters.

use std::cell::Cell;
use std::ops::Range;

use ordo_block::{BlockError, IoBuf, IoList, WriteFlags};
use ordo_runtime::Time;
use ordo_runtime::sync::Permit;
use rustc_hash::FxHashSet;

use crate::buffer::{BufKey, BufRef, Buffer, BufferClass, Unwritten};
use crate::{Cache, Occasion, WriteDecision, WriteImage};

/// One buffer's part in a write.
pub(crate) struct BufferWrite {
    pub(crate) buf: BufRef,
    pub(crate) version: u64,
    /// The time at which the buffer's image was made.
    pub(crate) at: Time,
    pub(crate) whole: bool,
    /// The bytes that the device lacked before the write.
    pub(crate) unwritten: Unwritten,
}

/// A write request that is ready to be sent.
pub(crate) struct Request {
    pub(crate) address: u64,
    pub(crate) bytes: IoList,
    pub(crate) parts: Vec<BufferWrite>,
    pub(crate) meta: bool,
    pub(crate) sync: bool,
}

/// The completed writes that a device's volatile cache may still hold. A flush ends an epoch: all
/// writes that completed in it, or earlier, are durable once the flush is done.
pub(crate) struct Epochs {
    current: Cell<u64>,
    flushed: Cell<u64>,
    /// The last epoch in which a write completed that was not durable by itself.
    written: Cell<u64>,
}

impl Default for Epochs {
    fn default() -> Epochs {
        Epochs { current: Cell::new(1), flushed: Cell::new(0), written: Cell::new(0) }
    }
}

/// The most bytes of drop-behind buffers that may wait for a flush. With those of requests under
/// way they fit into the free list of buffers, so that their memory is used again: measured, a
/// larger number was slower.
const DROP_BEHIND_UNFLUSHED_MAX: usize = 32 << 20;

impl Epochs {
    /// Notes that a request has completed without being durable by itself.
    fn note_request(&self) {
        self.written.set(self.current.get());
    }

    /// Notes the same of a buffer in such a request.
    fn note_write(&self, buf: &Buffer) {
        buf.volatile_since.set(self.current.get());
    }

    /// The epoch since which writes may be lost; 0 if none may be.
    pub(crate) fn unflushed(&self) -> u64 {
        if self.written.get() > self.flushed.get() { self.written.get() } else { 0 }
    }

    /// Whether every write that has completed is durable. Before the first flush, others may have
    /// written to the device.
    pub(crate) fn is_all_durable(&self) -> bool {
        self.flushed.get() > 0 && self.unflushed() == 0
    }

    pub(crate) fn is_durable(&self, buf: &Buffer) -> bool {
        buf.volatile_since.get() <= self.flushed.get()
    }
}

impl Cache {
    /// Writes buffers one after another, and waits until each is durable. Orderings use it for
    /// blocks that must be on disk before the next step. A clean buffer is not written again; but
    /// if its last write, by the syncer for example, is not durable, the device's cache is flushed.
    ///
    /// # Errors
    /// The device failed.
    pub async fn write_now(&self, bufs: &[BufRef]) -> Result<(), BlockError> {
        if let Some(writer) = self.writer()? {
            let dirty: Vec<BufRef> = bufs.iter().filter(|b| b.is_dirty()).cloned().collect();
            if !dirty.is_empty() {
                self.shared.stats.borrow_mut().waits += 1;
                writer.write_out(dirty, Occasion::Demand).await?;
            }
            return self.flush_unless_durable(bufs).await;
        }
        for buf in bufs {
            while buf.is_dirty() {
                self.shared.stats.borrow_mut().waits += 1;
                if buf.is_writing() {
                    buf.written().await;
                    continue;
                }
                if self.shared.gate.held(buf) {
                    self.failure().map_or(Ok(()), Err)?;
                    self.shared.gate.wait_for_progress().await;
                    continue;
                }
                let rolled_back = self.write_cluster(vec![buf.clone()], true).await?;
                if rolled_back {
                    break;
                }
            }
        }
        self.flush_unless_durable(bufs).await
    }

    async fn flush_unless_durable(&self, bufs: &[BufRef]) -> Result<(), BlockError> {
        if bufs.iter().any(|b| !self.shared.epochs.is_durable(b)) {
            self.barrier().await?;
        }
        Ok(())
    }

    /// Starts to write a buffer, with its dirty neighbours, and does not wait.
    pub fn write_soon(&self, buf: &BufRef) {
        if !buf.is_dirty() || buf.is_writing() {
            return;
        }
        match self.writer() {
            Ok(None) => {}
            Ok(Some(writer)) => return writer.soon(buf),
            Err(_) => return,
        }
        let cluster = self.neighbours(buf);
        for b in &cluster {
            b.set_writing(true);
        }
        let cache = self.clone();
        // The task takes over the claim. The cache keeps a failure.
        let task = async move {
            let _ = cache.write_claimed(cluster, false).await;
        };
        drop(self.shared.runtime.spawn("a write-behind", task));
    }

    pub(crate) async fn write_wave(
        &self,
        mut bufs: Vec<BufRef>,
        sync: bool,
    ) -> Result<(), BlockError> {
        if bufs.is_empty() {
            return Ok(());
        }
        bufs.sort_by_key(|b| (b.address(), b.key()));
        let mut result = Ok(());
        let mut tasks = Vec::new();
        let mut ours = FxHashSet::default();
        for buf in bufs {
            if buf.is_writing() && !ours.contains(&buf.key()) {
                // A write of another task may have begun before the last change.
                buf.written().await;
            }
            if !buf.is_dirty() || buf.is_writing() {
                self.remove_drop_behind(&buf);
                continue;
            }
            let cluster = self.neighbours(&buf);
            for b in &cluster {
                b.set_writing(true);
                ours.insert(b.key());
            }
            let cache = self.clone();
            let task = async move { cache.write_claimed(cluster, sync).await };
            tasks.push(self.shared.runtime.spawn("a write", task));
        }
        if sync {
            self.shared.stats.borrow_mut().waits += 1;
        }
        for task in tasks {
            result = result.and(task.await.map(|_| ()));
        }
        result
    }

    /// Writes the dirty buffers of one file and waits for them. On a device with a volatile cache
    /// they are not durable before [`barrier`](Self::barrier): one flush for all costs less than a
    /// forced write for each.
    ///
    /// # Errors
    /// The first failure.
    pub async fn flush_file(&self, file: u64) -> Result<(), BlockError> {
        let dirty = self.shared.dirty.borrow().of_file(file);
        self.write_all(dirty, !self.shared.volatile).await
    }

    /// The dirty buffers of one file, by logical block.
    pub fn dirty_of(&self, file: u64) -> Vec<BufRef> {
        self.shared.dirty.borrow().of_file(file)
    }

    /// Waits until no request of this cache is under way.
    pub async fn wait_for_writes(&self) {
        drop(self.shared.slots.acquire(self.shared.config.requests_max).await);
    }

    /// As [`barrier`](Self::barrier), if a write has completed since the last one. If another
    /// task's flush is under way, waits for that one too.
    ///
    /// # Errors
    /// The device failed.
    pub async fn barrier_if_needed(&self) -> Result<(), BlockError> {
        let none = self.shared.unflushed.borrow().is_empty() && !self.shared.unflushed_others.get();
        let result = if none { Ok(()) } else { self.barrier().await };
        while self.shared.flushing.get() > 0 {
            self.shared.flushed.notified().await;
        }
        result
    }

    /// The epoch of the last completed write that is not durable by itself, for
    /// [`barrier_of`](Self::barrier_of). Before the first flush, others may have written to the
    /// device, so there is one in any case.
    pub fn write_epoch(&self) -> u64 {
        let epochs = &self.shared.epochs;
        epochs.unflushed().max(u64::from(epochs.flushed.get() == 0))
    }

    /// Makes the writes durable that had completed when [`write_epoch`](Self::write_epoch) returned
    /// this epoch. The device is not flushed if another task has done so since.
    ///
    /// # Errors
    /// The device failed.
    pub async fn barrier_of(&self, epoch: u64) -> Result<(), BlockError> {
        match epoch > self.shared.epochs.flushed.get() {
            true => self.barrier().await,
            false => Ok(()),
        }
    }

    /// As [`barrier`](Self::barrier), for a caller that has written to the first device by itself:
    /// the device is flushed in any case.
    ///
    /// # Errors
    /// The device failed.
    pub async fn barrier_after_another(&self) -> Result<(), BlockError> {
        self.shared.epochs.note_request();
        self.shared.devices.note_write(0);
        self.barrier().await
    }

    /// Makes every completed write durable, and tells the gate. The device is not flushed if no
    /// write of this cache has completed since its last flush began.
    ///
    /// # Errors
    /// The device failed.
    pub async fn barrier(&self) -> Result<(), BlockError> {
        if !self.shared.volatile || self.shared.epochs.is_all_durable() {
            return Ok(());
        }
        let wave = std::mem::take(&mut *self.shared.unflushed.borrow_mut());
        self.shared.unflushed_others.set(false);
        self.shared.unflushed_drop_behind.set(0);
        self.shared.stats.borrow_mut().flushes += 1;
        let epochs = &self.shared.epochs;
        let ending = epochs.current.replace(epochs.current.get() + 1);
        self.shared.flushing.set(self.shared.flushing.get() + 1);
        let result = self.shared.devices.flush().await;
        self.shared.flushing.set(self.shared.flushing.get() - 1);
        if result.is_ok() {
            epochs.flushed.set(epochs.flushed.get().max(ending));
        }
        if let Err(failure) = result {
            self.note_failure(failure);
        }
        for (buf, version) in wave {
            self.shared.gate.write_done(&buf, version, result);
            self.remove_drop_behind(&buf);
        }
        self.shared.flushed.notify_all();
        result
    }

    fn note_failure(&self, failure: BlockError) {
        if self.shared.failure.get().is_none() {
            self.shared.failure.set(Some(failure));
        }
        self.shared.drained.notify_all();
    }

    /// The dirty buffers that are adjacent to `buf` both in the file and on the device, up to a
    /// cluster. Only contents of files are gathered.
    fn neighbours(&self, buf: &BufRef) -> Vec<BufRef> {
        let mut cluster = vec![buf.clone()];
        let (BufferClass::Data, Some(address)) = (buf.class(), buf.address()) else {
            return cluster;
        };
        let device = self.shared.devices.bytes_of(address);
        let key = buf.key();
        if key.block < 0 || buf.is_partial() {
            return cluster;
        }
        let dirty = self.shared.dirty.borrow();
        let mut total = buf.len();
        let at = |block: i64, wanted: u64, end: bool| {
            dirty.get(BufKey { file: key.file, block }).filter(|b| {
                let place = b.address().map(|a| if end { a + b.len() as u64 } else { a });
                let here = b.address().is_some_and(|a| device.contains(&a));
                let gathers = b.class() == BufferClass::Data && !b.is_partial();
                place == Some(wanted) && here && !b.is_writing() && gathers
            })
        };
        let mut end = address + buf.len() as u64;
        let mut block = key.block + 1;
        while let Some(next) = at(block, end, false) {
            if total + next.len() > self.shared.config.cluster {
                break;
            }
            total += next.len();
            end += next.len() as u64;
            cluster.push(next);
            block += 1;
        }
        let mut before = Vec::new();
        let mut start = address;
        let mut block = key.block - 1;
        while let Some(prev) = at(block, start, true) {
            if total + prev.len() > self.shared.config.cluster {
                break;
            }
            total += prev.len();
            start -= prev.len() as u64;
            before.push(prev);
            block -= 1;
        }
        before.reverse();
        before.append(&mut cluster);
        before
    }

    async fn write_cluster(&self, cluster: Vec<BufRef>, sync: bool) -> Result<bool, BlockError> {
        for b in &cluster {
            b.set_writing(true);
        }
        self.write_claimed(cluster, sync).await
    }

    /// Writes buffers that the caller has claimed. Returns whether the gate rolled anything back.
    async fn write_claimed(&self, cluster: Vec<BufRef>, sync: bool) -> Result<bool, BlockError> {
        let claim = Claim(cluster);
        let slot = self.shared.slots.acquire(1).await;
        // A buffer that was forgotten since the claim is clean, and its address may belong to
        // another buffer.
        let live: Vec<BufRef> = claim.0.iter().filter(|b| self.may_write(b)).cloned().collect();
        if live.len() < claim.0.len() || live.is_empty() {
            drop((slot, claim));
            for buf in live {
                // A buffer of the cluster could not be written with the others, which is rare. The
                // buffers are claimed again and written one at a time. Another task may have
                // claimed one meanwhile.
                buf.written().await;
                if buf.is_dirty() {
                    Box::pin(self.write_cluster(vec![buf], sync)).await?;
                }
            }
            return Ok(false);
        }
        drop(live);
        let (skipped, bytes, parts) =
            self.images(&claim.0).await.inspect_err(|failure| self.note_failure(*failure))?;
        let meta = claim.0[0].class() != BufferClass::Data;
        let address = claim.0[0].address().expect("a buffer has an address when it is written");
        let address = address + skipped as u64;
        self.send(Request { address, bytes, parts, meta, sync }, slot, claim).await
    }

    /// Sends a request, and notes its result. Returns whether the gate rolled anything back.
    pub(crate) async fn send(
        &self,
        request: Request,
        slot: Permit<'_>,
        claim: Claim,
    ) -> Result<bool, BlockError> {
        let Request { address, bytes, parts, meta, sync } = request;
        let volatile = self.shared.devices.is_volatile(address);
        let mut flags = WriteFlags::empty();
        flags.set(WriteFlags::META, meta);
        flags.set(WriteFlags::SYNC, sync);
        flags.set(WriteFlags::FUA, volatile && sync);
        let result = self.shared.devices.write_list(address, bytes, flags).await;
        drop(slot);
        self.finish(&parts, result, !volatile || sync);
        let all_whole = parts.iter().all(|p| p.whole);
        drop(claim);
        for BufferWrite { buf, .. } in parts {
            self.remove_drop_behind(&buf);
        }
        if self.shared.unflushed_drop_behind.get() > DROP_BEHIND_UNFLUSHED_MAX {
            self.shared.unflushed_drop_behind.set(0);
            let cache = self.clone();
            // The cache keeps a failure.
            let task = async move {
                let _ = cache.barrier().await;
            };
            drop(self.shared.runtime.spawn("a flush behind writes", task));
        }
        result.map(|()| !all_whole)
    }

    /// Whether a claimed buffer must still be written. A buffer that the gate holds back must wait.
    fn may_write(&self, buf: &BufRef) -> bool {
        let held = buf.is_dirty() && self.shared.gate.held(buf);
        if held {
            self.set_due(buf, self.shared.runtime.now() + crate::syncer::TICK);
        }
        buf.is_dirty() && !held
    }

    /// Makes the images of the buffers, one after another, as the gate lets them be written, and
    /// seals them. Returns the number of bytes of the first buffer that need not be written, and
    /// the others up to the last that must be. Between these, unchanged bytes are written too: a
    /// request more would cost more than they do.
    async fn images(
        &self,
        cluster: &[BufRef],
    ) -> Result<(usize, IoList, Vec<BufferWrite>), BlockError> {
        'again: loop {
            self.complete_for_write(cluster).await?;
            let mut skipped = 0;
            let mut images = IoList::with_capacity(cluster.len());
            let mut parts: Vec<BufferWrite> = Vec::with_capacity(cluster.len());
            for (nth, buf) in cluster.iter().enumerate() {
                let mut image = WriteImage::of(buf);
                let mut rolled_back = Vec::new();
                let verdict = self.shared.gate.before_write(buf, &mut image, &mut rolled_back);
                if let WriteDecision::WaitFor(lsn) = verdict {
                    for part in parts {
                        part.buf.image_failed(part.unwritten);
                    }
                    self.shared.gate.wait_for(lsn).await?;
                    continue 'again;
                }
                if let Some(seal) = &*self.shared.seal.borrow() {
                    seal(buf, &mut image, &rolled_back);
                }
                let is_whole = verdict == WriteDecision::Write;
                let wanted = self.bytes_to_write(buf, is_whole);
                let from = if nth == 0 { wanted.start } else { 0 };
                let to = if nth + 1 == cluster.len() { wanted.end } else { buf.len() };
                skipped += from;
                parts.push(self.part(buf, is_whole));
                images.push(match to - from == buf.len() {
                    true => image.into_piece(),
                    false => IoBuf::from_slice(&image[from..to]).into(),
                });
            }
            self.charge_gate();
            return Ok((skipped, images, parts));
        }
    }

    /// The bytes of a buffer that a write must have. Only large blocks of files are written in
    /// part.
    fn bytes_to_write(&self, buf: &Buffer, is_whole: bool) -> Range<usize> {
        let unit = self.shared.config.write_unit.filter(|unit| buf.len() > *unit);
        match unit {
            Some(unit) if (is_whole || buf.is_partial()) && buf.class() == BufferClass::Data => {
                buf.unwritten_units(Some(unit))
            }
            _ => 0..buf.len(),
        }
    }

    fn finish(&self, parts: &[BufferWrite], result: Result<(), BlockError>, durable: bool) {
        let mut rolled_back = 0;
        if !durable || result.is_err() {
            // A request may have no buffers: a writer adds bytes of its own.
            self.shared.epochs.note_request();
        }
        for part in parts {
            if result.is_ok() && part.whole && part.buf.version() == part.version {
                self.mark_clean(&part.buf);
                self.shared.cleaned.set(self.shared.cleaned.get() + 1);
            } else if part.buf.is_dirty() && part.whole && result.is_ok() {
                // Changes made after the image are at most as old as the image.
                let age = self.shared.config.age(part.buf.class());
                self.set_due(&part.buf, part.at + age);
                part.buf.due_since.set(None);
            }
            if !part.whole || result.is_err() {
                // The buffer keeps its age, but gets a new version, by which the gate tells the
                // next image from this one.
                part.buf.bump_version();
                part.buf.image_failed(part.unwritten);
            }
            rolled_back += u64::from(!part.whole);
            if result.is_ok() {
                part.buf.set_stored();
                part.buf.note_written(part.version);
            }
            match (durable, result) {
                (true, Ok(())) => part.buf.volatile_since.set(0),
                _ => self.shared.epochs.note_write(&part.buf),
            }
            if durable || result.is_err() {
                self.shared.gate.write_done(&part.buf, part.version, result);
            } else if self.gate().follows_writes() && !self.gate().follows(&part.buf) {
                self.shared.unflushed_others.set(true);
            } else if self.gate().follows_writes() {
                if part.buf.drop_behind.get() {
                    let drop_behind = &self.shared.unflushed_drop_behind;
                    drop_behind.set(drop_behind.get() + part.buf.len());
                }
                self.shared.unflushed.borrow_mut().push((part.buf.clone(), part.version));
            }
        }
        let mut stats = self.shared.stats.borrow_mut();
        stats.writes += 1;
        stats.buffers_written += parts.len() as u64;
        stats.rolled_back += rolled_back;
        drop(stats);
        if let Err(failure) = result {
            self.note_failure(failure);
        }
    }
}

/// Buffers that are marked as being written. Dropping the claim removes the marks.
pub(crate) struct Claim(pub(crate) Vec<BufRef>);

impl Drop for Claim {
    fn drop(&mut self) {
        for buf in &self.0 {
            buf.set_writing(false);
        }
    }
}
