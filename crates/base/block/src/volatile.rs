//! A volatile write cache: a crash loses writes that were not flushed.
//!
//! A completed write stays in the cache until a flush, or until the cache is full and the oldest
//! writes go to the device beneath. Reads see the newest data. At a crash the caller decides the
//! fate of each write in the cache: [`VolatileCache::crash_image`] builds the disk as it is found
//! afterwards. `docs/crash-model.md` has the rules for disks.
//!
//! ```
//! use ordo_block::{BlockDevice, IoBuf, WriteFlags, ram::RamDisk};
//! use ordo_block::volatile::{KeepWrites, VolatileCache};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let disk = VolatileCache::new(RamDisk::new(1 << 20));
//! executor.block_on(async {
//!     disk.write(0, IoBuf::from_slice(&[1; 1024]), WriteFlags::empty()).await.unwrap();
//!     assert_eq!(disk.read(0, 512).await.unwrap()[0], 1);
//! }).unwrap();
//! let torn = disk.crash_image(|_| KeepWrites::Sectors(vec![false, true]));
//! assert_eq!(torn.to_vec()[511..513], [0, 1]);
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use ordo_runtime::sync::Mutex;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::ram::{RamDisk, Snapshot};
use crate::{BlockDevice, BlockError, Geometry, IoBuf, Operation, WriteFlags};

/// The unit that survives a crash wholly or not at all, in bytes.
pub const TEAR: usize = 512;

/// A completed write that a crash may lose.
#[derive(Debug)]
pub struct PendingWrite {
    /// The number, in order of completion, from 0.
    pub id: u64,
    /// The number of flushes that had completed before the write, including flushes without effect.
    pub epoch: u64,
    /// The offset in bytes.
    pub offset: u64,
    /// The data.
    pub data: IoBuf,
    /// Whether it was written through (FUA): it then survives, and overwrites earlier writes.
    pub durable: bool,
}

/// The part of a write that a crash leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepWrites {
    /// All of the write.
    All,
    /// Nothing.
    Nothing,
    /// The marked sectors of 512 bytes; those beyond the list are lost.
    Sectors(Vec<bool>),
}

/// The losses that a kind of disk allows in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Any subset of the un-flushed writes survives, each torn anywhere.
    Subset,
    /// Writes survive up to a point in the order of completion; the next one may be torn.
    Prefix,
    /// Every completed write survives.
    Nothing,
}

/// The newest data of a range.
struct CachedPiece {
    end: u64,
    write: Rc<PendingWrite>,
}

#[derive(Default)]
struct State {
    /// Writes in the cache, in the order of completion.
    pending: VecDeque<Rc<PendingWrite>>,
    bytes: usize,
    /// The newest data by start; the ranges do not overlap.
    newest: BTreeMap<u64, CachedPiece>,
    next_id: u64,
    epoch: u64,
}

/// A device whose completed writes are lost in a crash unless they were flushed.
pub struct VolatileCache<D> {
    inner: D,
    state: RefCell<State>,
    capacity: usize,
    lies: Cell<bool>,
    unit: Cell<u64>,
    /// A lock that is held while writes move to the device beneath, since they must arrive in
    /// order.
    moving: Mutex<()>,
}

impl<D: BlockDevice> VolatileCache<D> {
    /// Puts a cache of 64 MiB in front of `inner`.
    pub fn new(inner: D) -> VolatileCache<D> {
        VolatileCache::with_capacity(inner, 64 << 20)
    }

    /// Puts a cache of `capacity` bytes in front of `inner`.
    pub fn with_capacity(inner: D, capacity: usize) -> VolatileCache<D> {
        VolatileCache {
            inner,
            state: RefCell::default(),
            capacity,
            lies: Cell::new(false),
            unit: Cell::new(TEAR as u64),
            moving: Mutex::new((), "write cache", 0),
        }
    }

    /// Sets the bytes that the disk writes whole, at multiples of as many: 512 or 4,096.
    pub fn set_unit(&self, bytes: u64) {
        self.unit.set(bytes.max(TEAR as u64));
    }

    /// Makes flushes and FUA report success without doing anything, or makes them honest again.
    pub fn set_lying(&self, lies: bool) {
        self.lies.set(lies);
    }

    /// The device beneath, which holds the durable contents.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The writes that a crash at this moment may lose, oldest first.
    pub fn pending(&self) -> Vec<Rc<PendingWrite>> {
        self.state.borrow().pending.iter().cloned().collect()
    }

    fn accept(&self, offset: u64, data: IoBuf, durable: bool) -> Rc<PendingWrite> {
        let mut state = self.state.borrow_mut();
        let id = state.next_id;
        state.next_id += 1;
        let write = Rc::new(PendingWrite { id, epoch: state.epoch, offset, data, durable });
        state.bytes += write.data.len();
        state.pending.push_back(write.clone());
        state.cover(&write);
        write
    }

    /// Moves the oldest writes to the device beneath for as long as `more` returns true.
    async fn move_out(&self, more: impl Fn(&State) -> bool) -> Result<(), BlockError> {
        let _moving = self.moving.lock().await;
        loop {
            let oldest = {
                let state = self.state.borrow();
                if !more(&state) {
                    return Ok(());
                }
                state.pending.front().cloned()
            };
            let Some(write) = oldest else { return Ok(()) };
            if !write.durable {
                let data = write.data.clone();
                self.inner.write(write.offset, data, WriteFlags::empty()).await?;
            } else {
                // The data is on the device already, but an older write has just overwritten it.
                self.inner.write(write.offset, write.data.clone(), WriteFlags::FUA).await?;
            }
            self.state.borrow_mut().remove_oldest();
        }
    }
}

impl State {
    /// Makes `write` the newest data of its range.
    fn cover(&mut self, write: &Rc<PendingWrite>) {
        let (start, end) = (write.offset, write.offset + write.data.len() as u64);
        if start == end {
            return;
        }
        let before = self.newest.range(..start).next_back().map(|(s, p)| (*s, p.end));
        if let Some((s, old_end)) = before.filter(|(_, e)| *e > start) {
            let piece = self.newest.get_mut(&s).expect("just found");
            piece.end = start;
            let rest = CachedPiece { end: old_end, write: piece.write.clone() };
            if old_end > end {
                self.newest.insert(end, rest);
            }
        }
        while let Some((s, p)) = self.newest.range(start..end).next() {
            let (s, old_end) = (*s, p.end);
            let piece = self.newest.remove(&s).expect("just found");
            if old_end > end {
                self.newest.insert(end, piece);
            }
        }
        self.newest.insert(start, CachedPiece { end, write: write.clone() });
    }

    fn remove_oldest(&mut self) {
        let Some(write) = self.pending.pop_front() else { return };
        self.bytes -= write.data.len();
        if self.pending.is_empty() {
            self.newest.clear();
            return;
        }
        let (mut at, end) = (write.offset, write.offset + write.data.len() as u64);
        while let Some((s, p)) = self.newest.range(at..end).next() {
            let (s, mine) = (*s, p.write.id == write.id);
            if mine {
                self.newest.remove(&s);
            }
            at = s + 1;
        }
    }

    /// The pieces that overlap a range: start, end, and the write of each.
    fn pieces(&self, start: u64, end: u64) -> Vec<(u64, u64, Rc<PendingWrite>)> {
        let first = self.newest.range(..=start).next_back().map_or(start, |(s, _)| *s);
        let found = self.newest.range(first..end).filter(|(_, p)| p.end > start);
        found.map(|(s, p)| ((*s).max(start), p.end.min(end), p.write.clone())).collect()
    }
}

/// Copies pieces over data that was read at `offset`.
fn patch(buf: &mut [u8], offset: u64, pieces: &[(u64, u64, Rc<PendingWrite>)]) {
    for (start, end, write) in pieces {
        let to = (start - offset) as usize..(end - offset) as usize;
        let from = (start - write.offset) as usize..(end - write.offset) as usize;
        buf[to].copy_from_slice(&write.data[from]);
    }
}

impl<D: BlockDevice + Snapshot> VolatileCache<D> {
    /// The disk after a crash at this moment: `keep` decides on each write that was not flushed,
    /// oldest first. Writes that were written through survive, and `keep` is not asked about them.
    pub fn crash_image(&self, mut keep: impl FnMut(&PendingWrite) -> KeepWrites) -> RamDisk {
        let image = self.inner.snapshot();
        for write in &self.state.borrow().pending {
            let kept = if write.durable { KeepWrites::All } else { keep(write) };
            match kept {
                KeepWrites::All => image.store(write.offset, &write.data),
                KeepWrites::Nothing => {}
                KeepWrites::Sectors(marks) => {
                    for (i, sector) in write.data.chunks(TEAR).enumerate() {
                        if marks.get(i).copied().unwrap_or(false) {
                            image.store(write.offset + (i * TEAR) as u64, sector);
                        }
                    }
                }
            }
        }
        image
    }

    /// The unit of the disk in which the sector `i` of a write lies.
    fn unit_of(&self, write: &PendingWrite, i: usize) -> u64 {
        (write.offset + (i * TEAR) as u64) / self.unit.get()
    }

    /// The disk after a crash now, with a loss that `loss` allows and `seed` chooses. A write is
    /// torn between [units](Self::set_unit) of the disk.
    pub fn crash_image_seeded(&self, loss: Loss, seed: u64) -> RamDisk {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let losable = self.state.borrow().pending.iter().filter(|w| !w.durable).count();
        let whole = rng.random_range(0..=losable);
        let mut index = 0;
        self.crash_image(|write| {
            index += 1;
            let sectors = write.data.len().div_ceil(TEAR);
            match loss {
                Loss::Nothing => KeepWrites::All,
                Loss::Prefix if index <= whole => KeepWrites::All,
                Loss::Prefix if index > whole + 1 => KeepWrites::Nothing,
                Loss::Prefix => {
                    let kept = rng.random_range(0..=sectors);
                    let end = self.unit_of(write, kept);
                    let is_kept = |i| kept == sectors || self.unit_of(write, i) < end;
                    KeepWrites::Sectors((0..sectors).map(is_kept).collect())
                }
                Loss::Subset => match rng.random_range(0..3) {
                    0 => KeepWrites::Nothing,
                    1 => KeepWrites::All,
                    _ => {
                        let mut unit = (None, false);
                        let each = (0..sectors).map(|i| {
                            let of = Some(self.unit_of(write, i));
                            if unit.0 != of {
                                unit = (of, rng.random());
                            }
                            unit.1
                        });
                        KeepWrites::Sectors(each.collect())
                    }
                },
            }
        })
    }
}

impl<D: BlockDevice> BlockDevice for VolatileCache<D> {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: true, ..self.inner.geometry() }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.inner.geometry().check(Operation::Read, offset, len)?;
        let end = offset + len as u64;
        let before = self.state.borrow().pieces(offset, end);
        let covered: u64 = before.iter().map(|(s, e, _)| e - s).sum();
        let mut buf = if covered == len as u64 {
            IoBuf::scratch(len)
        } else {
            self.inner.read(offset, len).await?
        };
        patch(&mut buf, offset, &before);
        // Writes that completed during the read are copied over the result.
        let after = self.state.borrow().pieces(offset, end);
        patch(&mut buf, offset, &after);
        Ok(buf)
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.inner.geometry().check_write(Operation::Write, offset, data.len())?;
        let end = offset + data.len() as u64;
        let honest = !self.lies.get();
        if honest && flags.contains(WriteFlags::FUA) {
            let _moving = self.moving.lock().await;
            if self.state.borrow().pieces(offset, end).is_empty() {
                return self.inner.write(offset, data, flags).await;
            }
            self.inner.write(offset, data.clone(), flags).await?;
            self.accept(offset, data, true);
        } else {
            self.accept(offset, data, false);
        }
        if self.state.borrow().bytes > self.capacity {
            self.move_out(|state| state.bytes > self.capacity).await?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        let last = {
            let mut state = self.state.borrow_mut();
            state.epoch += 1;
            state.next_id
        };
        if self.lies.get() {
            return Ok(());
        }
        self.move_out(|state| state.pending.front().is_some_and(|w| w.id < last)).await?;
        self.inner.flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        // A discard is a hint and may be ignored. Dropping pending writes would have to survive a
        // crash too.
        let host_len = usize::try_from(len).unwrap_or(usize::MAX);
        self.inner.geometry().check_write(Operation::Discard, offset, host_len)
    }

    fn immediate(&self) -> bool {
        // The lock is held only during operations of the device beneath. If those complete at once,
        // it is always free.
        self.inner.immediate()
    }
}

#[cfg(test)]
mod tests {
    use ordo_runtime::Executor;
    use proptest::prelude::*;

    use super::*;

    const SECTORS: usize = 16;

    fn run<T>(f: impl Future<Output = T>) -> T {
        Executor::simulated(1).block_on(f).unwrap()
    }

    fn small() -> VolatileCache<RamDisk> {
        VolatileCache::new(RamDisk::new((SECTORS * TEAR) as u64))
    }

    async fn put(
        disk: &impl BlockDevice,
        sector: usize,
        count: usize,
        byte: u8,
        flags: WriteFlags,
    ) {
        let data = IoBuf::from_slice(&vec![byte; count * TEAR]);
        disk.write((sector * TEAR) as u64, data, flags).await.unwrap();
    }

    /// The first byte of each sector.
    fn firsts(image: &RamDisk) -> Vec<u8> {
        image.to_vec().chunks(TEAR).map(|s| s[0]).collect()
    }

    #[derive(Clone, Debug)]
    enum Op {
        Write(usize, usize, u8, bool),
        Read(usize, usize),
        Flush,
    }

    fn op() -> impl Strategy<Value = Op> {
        let range = || (0..SECTORS).prop_flat_map(|a| (Just(a), 1..=SECTORS - a));
        prop_oneof![
            4 => (range(), 1u8.., prop::bool::weighted(0.2))
                .prop_map(|((a, n), b, f)| Op::Write(a, n, b, f)),
            2 => range().prop_map(|(a, n)| Op::Read(a, n)),
            1 => Just(Op::Flush),
        ]
    }

    proptest! {
        /// After any writes, flushes and FUA writes, and with a cache of any size, reads see the
        /// newest data. After a crash every sector holds data that it held at or after the last
        /// durable point; with no loss allowed, it holds the newest.
        #[test]
        fn a_crash_loses_only_what_it_may(
            ops in prop::collection::vec(op(), 1..40),
            capacity in 0usize..8,
            seed: u64,
        ) {
            let disk = VolatileCache::with_capacity(
                RamDisk::new((SECTORS * TEAR) as u64), capacity * TEAR);
            // For each sector, the contents that it may have after a crash: durable first, newest
            // last.
            let mut may: Vec<Vec<u8>> = vec![vec![0]; SECTORS];
            run(async {
                for op in &ops {
                    match *op {
                        Op::Write(at, n, byte, fua) => {
                            let flags = if fua { WriteFlags::FUA } else { WriteFlags::empty() };
                            put(&disk, at, n, byte, flags).await;
                            for m in &mut may[at..at + n] {
                                if fua { m.clear(); }
                                m.push(byte);
                            }
                        }
                        Op::Read(at, n) => {
                            let data = disk.read((at * TEAR) as u64, n * TEAR).await.unwrap();
                            for (i, s) in data.chunks(TEAR).enumerate() {
                                let newest = *may[at + i].last().unwrap();
                                prop_assert!(s.iter().all(|b| *b == newest), "sector {}", at + i);
                            }
                        }
                        Op::Flush => {
                            disk.flush().await.unwrap();
                            for m in &mut may { m.drain(..m.len() - 1); }
                            prop_assert!(disk.pending().is_empty());
                        }
                    }
                }
                Ok(())
            })?;
            for loss in [Loss::Subset, Loss::Prefix, Loss::Nothing] {
                let image = firsts(&disk.crash_image_seeded(loss, seed));
                prop_assert_eq!(&image, &firsts(&disk.crash_image_seeded(loss, seed)));
                for (i, byte) in image.iter().enumerate() {
                    prop_assert!(may[i].contains(byte), "{:?}: sector {}", loss, i);
                    if loss == Loss::Nothing {
                        prop_assert_eq!(byte, may[i].last().unwrap());
                    }
                }
            }
        }
    }

    /// Two un-flushed writes: all four subsets must be possible, the newer without the older too.
    #[test]
    fn any_subset_can_survive() {
        let disk = small();
        run(async {
            put(&disk, 0, 1, 1, WriteFlags::empty()).await;
            put(&disk, 1, 1, 2, WriteFlags::empty()).await;
        });
        let mut seen: Vec<Vec<u8>> = (0..200)
            .map(|seed| firsts(&disk.crash_image_seeded(Loss::Subset, seed))[..2].to_vec())
            .collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen, [[0, 0], [0, 2], [1, 0], [1, 2]]);
        let only_second =
            disk.crash_image(|w| if w.id == 1 { KeepWrites::All } else { KeepWrites::Nothing });
        assert_eq!(firsts(&only_second)[..2], [0, 2]);
    }

    /// A disk that writes 4,096 bytes whole tears a write only between them, at multiples of as
    /// many bytes, wherever the write begins. Would catch a file system accused of a torn block
    /// that no disk of this kind tears.
    #[test]
    fn a_write_is_torn_between_units_of_the_disk() {
        let disk = small();
        disk.set_unit(4096);
        run(async { put(&disk, 3, 13, 1, WriteFlags::empty()).await });
        for loss in [Loss::Subset, Loss::Prefix] {
            let mut seen: Vec<Vec<u8>> =
                (0..200).map(|seed| firsts(&disk.crash_image_seeded(loss, seed))).collect();
            seen.sort();
            seen.dedup();
            for image in &seen {
                let first = image[3..8].iter().all(|b| *b == image[3]);
                assert!(first && image[8..].iter().all(|b| *b == image[8]), "{loss:?}: {image:?}");
            }
            assert_eq!(seen.len(), if loss == Loss::Subset { 4 } else { 3 }, "{loss:?}");
        }
    }

    /// A disk with ordered writes loses a suffix: the newer of two writes never survives alone.
    #[test]
    fn a_prefix_keeps_order() {
        let disk = small();
        run(async {
            for i in 0..8 {
                put(&disk, i, 1, i as u8 + 1, WriteFlags::empty()).await;
            }
        });
        for seed in 0..100 {
            let image = firsts(&disk.crash_image_seeded(Loss::Prefix, seed));
            let kept = image.iter().take_while(|b| **b != 0).count();
            assert!(image[kept..].iter().all(|b| *b == 0), "seed {seed}: {image:?}");
        }
    }

    /// A lying disk reports a flush, and loses the flushed data all the same.
    #[test]
    fn a_lying_disk_loses_what_was_flushed() {
        let disk = small();
        disk.set_lying(true);
        run(async {
            put(&disk, 0, 1, 1, WriteFlags::FUA).await;
            disk.flush().await.unwrap();
            put(&disk, 1, 1, 2, WriteFlags::empty()).await;
        });
        let epochs: Vec<_> = disk.pending().iter().map(|w| w.epoch).collect();
        assert_eq!(epochs, [0, 1]);
        assert_eq!(firsts(&disk.crash_image(|_| KeepWrites::Nothing)), [0; SECTORS]);
        disk.set_lying(false);
        run(disk.flush()).unwrap();
        assert_eq!(firsts(&disk.crash_image(|_| KeepWrites::Nothing))[..2], [1, 2]);
    }

    /// A FUA write over an un-flushed write: the older one must not overwrite it later, neither in
    /// a crash nor when the cache is moved out.
    #[test]
    fn an_older_write_does_not_come_back_over_fua() {
        let disk = small();
        run(async {
            put(&disk, 0, 2, 1, WriteFlags::empty()).await;
            put(&disk, 1, 1, 9, WriteFlags::FUA).await;
        });
        assert_eq!(firsts(&disk.crash_image(|_| KeepWrites::All))[..2], [1, 9]);
        assert_eq!(firsts(&disk.crash_image(|_| KeepWrites::Nothing))[..2], [0, 9]);
        run(disk.flush()).unwrap();
        assert_eq!(firsts(disk.inner())[..2], [1, 9]);
    }
}
