//! A read-around cache, for a device whose requests bypass the host's cache.
//!
//! Small files, directories and inodes that were made together are close to each other on disk, and
//! are usually read together. The second small read in a region reads the whole region, and the
//! following reads find it in memory. A region is dropped when a byte in it is written, so a read
//! always returns the device's bytes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::{BlockDevice, BlockError, Geometry, IoBuf, IoList, WriteFlags};

/// The size of a region, in bytes.
const REGION: u64 = 128 << 10;

/// The largest read that counts as small, in bytes.
const SMALL: usize = 32 << 10;

/// The greatest number of regions in memory.
const KEPT_MAX: usize = 32;

/// The greatest number of regions of which one read is remembered.
const SEEN_MAX: usize = 256;

/// A device with some of its regions in memory.
pub struct ReadAround<D> {
    inner: D,
    /// Regions in memory; the most recently used is last.
    kept: RefCell<VecDeque<(u64, IoBuf)>>,
    /// Regions in which one small read happened; the newest is last.
    seen: RefCell<VecDeque<u64>>,
    /// Ranges that are being written or discarded, with a number each.
    writes: RefCell<Vec<(u64, u64, u64)>>,
    /// A counter of writes.
    written: Cell<u64>,
}

/// A write or discard under way; it ends when this is dropped.
struct Writing<'a, D> {
    of: &'a ReadAround<D>,
    number: u64,
}

impl<D> Drop for Writing<'_, D> {
    fn drop(&mut self) {
        self.of.writes.borrow_mut().retain(|(_, _, number)| *number != self.number);
    }
}

impl<D: BlockDevice> ReadAround<D> {
    /// Wraps a device, with no region in memory.
    pub fn new(inner: D) -> ReadAround<D> {
        ReadAround {
            inner,
            kept: RefCell::default(),
            seen: RefCell::default(),
            writes: RefCell::default(),
            written: Cell::new(0),
        }
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The bytes of a range, if its region is in memory.
    fn find(&self, region: u64, within: usize, len: usize) -> Option<IoBuf> {
        let mut kept = self.kept.borrow_mut();
        let place = kept.iter().rposition(|(number, _)| *number == region)?;
        let (number, bytes) = kept.remove(place).expect("it was just found");
        let found = bytes.get(within..within + len).map(IoBuf::from_slice);
        kept.push_back((number, bytes));
        found
    }

    /// Whether the region was read recently. If not, the read is remembered, and if so, forgotten.
    fn seen_before(&self, region: u64) -> bool {
        let mut seen = self.seen.borrow_mut();
        if let Some(place) = seen.iter().rposition(|number| *number == region) {
            seen.remove(place);
            return true;
        }
        if seen.len() >= SEEN_MAX {
            seen.pop_front();
        }
        seen.push_back(region);
        false
    }

    /// Reads a region and keeps it. `None` if the read fails or a write to the region is under way.
    /// The wanted range is then read alone.
    async fn fetch(&self, region: u64, within: usize, len: usize) -> Option<IoBuf> {
        let start = region * REGION;
        let end = (start + REGION).min(self.inner.geometry().bytes);
        let busy = |&(from, until, _): &(u64, u64, u64)| from < end && start < until;
        if self.writes.borrow().iter().any(busy) {
            return None;
        }
        let written = self.written.get();
        // Another sector of the region may be unreadable.
        let bytes = self.inner.read(start, (end - start) as usize).await.ok()?;
        let found = bytes.get(within..within + len).map(IoBuf::from_slice);
        // A write during the read may be in the result or not, so the region is kept only without
        // one.
        if self.written.get() == written {
            let mut kept = self.kept.borrow_mut();
            kept.retain(|(number, _)| *number != region);
            if kept.len() >= KEPT_MAX {
                kept.pop_front();
            }
            kept.push_back((region, bytes));
        }
        found
    }

    /// Marks a range as being changed, and drops its regions from memory.
    fn writing(&self, offset: u64, len: u64) -> Writing<'_, D> {
        let number = self.written.get() + 1;
        self.written.set(number);
        let end = offset.saturating_add(len);
        self.writes.borrow_mut().push((offset, end, number));
        let outside = |region: u64| (region + 1) * REGION <= offset || region * REGION >= end;
        self.kept.borrow_mut().retain(|(region, _)| outside(*region));
        Writing { of: self, number }
    }
}

impl<D: BlockDevice> BlockDevice for ReadAround<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        let (region, within) = (offset / REGION, (offset % REGION) as usize);
        if len == 0 || len > SMALL || within + len > REGION as usize {
            return self.inner.read(offset, len).await;
        }
        if let Some(found) = self.find(region, within, len) {
            return Ok(found);
        }
        if self.seen_before(region)
            && let Some(found) = self.fetch(region, within, len).await
        {
            return Ok(found);
        }
        self.inner.read(offset, len).await
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let _writing = self.writing(offset, data.len() as u64);
        self.inner.write(offset, data, flags).await
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        let _writing = self.writing(offset, data.len() as u64);
        self.inner.write_list(offset, data, flags).await
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.inner.flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let _writing = self.writing(offset, len);
        self.inner.discard(offset, len).await
    }

    fn immediate(&self) -> bool {
        self.inner.immediate()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use ordo_runtime::{Duration, Executor, Runtime};

    use super::*;
    use crate::fault::{Faults, Faulty};
    use crate::ram::RamDisk;

    /// A disk that takes a millisecond for a request. A read returns the contents at its beginning.
    struct Slow {
        runtime: Runtime,
        disk: Faulty<RamDisk>,
        reads: RefCell<Vec<(u64, usize)>>,
    }

    impl BlockDevice for Slow {
        fn geometry(&self) -> Geometry {
            self.disk.geometry()
        }
        async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
            self.reads.borrow_mut().push((offset, len));
            let read = self.disk.read(offset, len).await;
            self.runtime.sleep(Duration::from_millis(1)).await;
            read
        }
        async fn write(
            &self,
            offset: u64,
            data: IoBuf,
            flags: WriteFlags,
        ) -> Result<(), BlockError> {
            self.runtime.sleep(Duration::from_millis(1)).await;
            self.disk.write(offset, data, flags).await
        }
        async fn flush(&self) -> Result<(), BlockError> {
            self.disk.flush().await
        }
        async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
            self.disk.discard(offset, len).await
        }
    }

    fn with_disk(faults: &Faults, scenario: impl AsyncFnOnce(Rc<ReadAround<Slow>>, Runtime)) {
        let executor = Executor::simulated(1);
        let runtime = executor.runtime();
        let disk = Faulty::new(RamDisk::new(1 << 20), faults);
        let slow = Slow { runtime: runtime.clone(), disk, reads: RefCell::default() };
        executor.block_on(scenario(Rc::new(ReadAround::new(slow)), runtime.clone())).unwrap();
    }

    async fn put(disk: &ReadAround<Slow>, at: u64, byte: u8) {
        disk.write(at, IoBuf::from_slice(&[byte; 4096]), WriteFlags::empty()).await.unwrap();
    }

    async fn first(disk: &ReadAround<Slow>, at: u64) -> u8 {
        disk.read(at, 4096).await.unwrap()[0]
    }

    /// Files of 4 KB are read one after another: the first alone, the second with its whole region,
    /// the rest from memory. A single read far off reads no more than was asked for.
    #[test]
    fn the_second_read_brings_the_rest() {
        with_disk(&Faults::new(), async |disk, _| {
            for i in 0..32 {
                put(&disk, i * 4096, i as u8 + 1).await;
            }
            for i in 0..32 {
                assert_eq!(first(&disk, i * 4096).await, i as u8 + 1);
            }
            first(&disk, 512 << 10).await;
            let all = [(0, 4096), (0, REGION as usize), (512 << 10, 4096)];
            assert_eq!(*disk.inner.reads.borrow(), all);
        });
    }

    /// A region in memory is dropped when it is written. A region that is read during a write, or
    /// just before one, is not kept. Without either rule a later read would give the old contents.
    #[test]
    fn reads_return_the_newest_writes() {
        with_disk(&Faults::new(), async |disk, runtime| {
            first(&disk, 0).await;
            first(&disk, 4096).await;
            put(&disk, 8192, 1).await;
            assert_eq!(first(&disk, 8192).await, 1, "kept while written over");
            for (n, start_us) in [(1u64, 0), (2, 500), (3, 1_500)] {
                let (byte, region) = (n as u8, n * REGION);
                let (other, rt) = (disk.clone(), runtime.clone());
                let writer = runtime.spawn("a writer", async move {
                    rt.sleep(Duration::from_micros(1_200)).await;
                    put(&other, region, byte).await;
                });
                runtime.sleep(Duration::from_micros(start_us)).await;
                first(&disk, region + 4096).await;
                first(&disk, region + 8192).await;
                writer.await;
                assert_eq!(first(&disk, region).await, byte, "read from {start_us} µs on");
            }
        });
    }

    /// A bad sector beside the wanted range does no harm; a bad sector in it is reported.
    #[test]
    fn a_bad_neighbour_does_no_harm() {
        let faults = Faults::new();
        faults.add_latent(64 << 10..(64 << 10) + 512);
        with_disk(&faults, async |disk, _| {
            for at in [0, 4096, 8192] {
                assert_eq!(first(&disk, at).await, 0);
            }
            assert!(disk.read(64 << 10, 4096).await.is_err());
        });
    }

    /// Memory is bounded, for any reads in any order. The end of the device may cut the last region
    /// short.
    #[test]
    fn memory_is_bounded() {
        let executor = Executor::simulated(1);
        let disk = ReadAround::new(RamDisk::new(40 * REGION + 512));
        let all = async {
            for region in 0..=40 {
                for _ in 0..3 {
                    disk.read(region * REGION, 512).await.unwrap();
                }
            }
        };
        executor.block_on(all).unwrap();
        assert_eq!(disk.kept.borrow().len(), KEPT_MAX);
        assert!(disk.seen.borrow().len() <= SEEN_MAX);
    }
}
