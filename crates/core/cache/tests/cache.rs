//! The cache's invariants, one story each, on small disks in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_block::{
    BlockDevice, BlockError, Fault, Geometry, IoBuf, IoList, Operation, WriteFlags, ram::RamDisk,
};
use ordo_cache::{
    BufKey, BufRef, Buffer, BufferClass, Cache, CacheConfig, NoGate, WriteDecision, WriteGate,
    WriteImage, WritePreview,
};
use ordo_runtime::{Duration, Executor, LocalFuture, Runtime};

const BLOCK: usize = 4096;

/// A disk that takes a millisecond a write, notes each write, and fails when told to.
struct Slow {
    runtime: Runtime,
    disk: RamDisk,
    writes: RefCell<Vec<(u64, usize)>>,
    in_flight: Cell<usize>,
    overlaps: Cell<bool>,
    fail_writes: Cell<bool>,
    fail_reads: Cell<bool>,
    volatile: bool,
    flushes: Cell<u64>,
}

impl Slow {
    fn new(runtime: &Runtime) -> Slow {
        Slow {
            runtime: runtime.clone(),
            disk: RamDisk::new(16 << 20),
            writes: RefCell::default(),
            in_flight: Cell::new(0),
            overlaps: Cell::new(false),
            fail_writes: Cell::new(false),
            fail_reads: Cell::new(false),
            volatile: false,
            flushes: Cell::new(0),
        }
    }
}

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: self.volatile, ..self.disk.geometry() }
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.runtime.sleep(Duration::from_millis(1)).await;
        if self.fail_reads.get() {
            return Err(BlockError { op: Operation::Read, offset, len, fault: Fault::Io(5) });
        }
        self.disk.read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let mut list = IoList::default();
        list.push(data.into());
        self.write_list(offset, list, flags).await
    }
    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        self.in_flight.set(self.in_flight.get() + 1);
        self.overlaps.set(self.overlaps.get() || self.in_flight.get() > 1);
        self.writes.borrow_mut().push((offset, data.len()));
        self.runtime.sleep(Duration::from_millis(1)).await;
        self.in_flight.set(self.in_flight.get() - 1);
        if self.fail_writes.get() {
            let len = data.len();
            return Err(BlockError { op: Operation::Write, offset, len, fault: Fault::Io(5) });
        }
        self.disk.write_list(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), BlockError> {
        self.flushes.set(self.flushes.get() + 1);
        Ok(())
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.disk.discard(offset, len).await
    }
}

fn with_cache<F: AsyncFnOnce(Cache, Rc<Slow>)>(
    gate: Rc<dyn WriteGate>,
    config: CacheConfig,
    scenario: F,
) {
    let executor = Executor::simulated(7);
    let rt = executor.runtime();
    let disk = Rc::new(Slow::new(&rt));
    let cache = Cache::new(&rt, disk.clone(), gate, config);
    executor.block_on(scenario(cache, disk)).unwrap();
}

async fn new_block(cache: &Cache, n: u64, byte: u8) -> BufRef {
    let (key, at) = (BufKey::file(9, n as i64), n * BLOCK as u64);
    let buf = cache.get_new(key, Some(at), BLOCK, BufferClass::Data).await;
    buf.write(|b| b.fill(byte));
    cache.mark_dirty(&buf);
    buf
}

fn on_disk(disk: &Slow, n: u64) -> u8 {
    let mut byte = [0];
    disk.disk.load(n * BLOCK as u64, &mut byte);
    byte[0]
}

/// Adjacent dirty blocks of a file go out in one request, up to a cluster; a block of metadata goes
/// alone.
#[test]
fn contiguous_data_is_gathered_into_clusters() {
    let config = CacheConfig { cluster: 4 * BLOCK, ..CacheConfig::default() };
    with_cache(Rc::new(NoGate), config, async |cache, disk| {
        for n in 0..10 {
            new_block(&cache, n, 1).await;
        }
        let meta =
            cache.get_new(BufKey::device(1 << 20), Some(1 << 20), BLOCK, BufferClass::Metadata);
        cache.mark_dirty(&meta.await);
        cache.flush_all().await.unwrap();
        let mut sizes: Vec<usize> = disk.writes.borrow().iter().map(|w| w.1 / BLOCK).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2, 4, 4]);
    });
}

/// A block that is changed while it is being written stays dirty, and its last contents reach the
/// disk. Would catch a cache that takes the end of a write for the end of the change.
#[test]
fn a_change_during_a_write_is_not_lost() {
    with_cache(Rc::new(NoGate), CacheConfig::default(), async |cache, disk| {
        let buf = new_block(&cache, 3, 1).await;
        cache.write_soon(&buf);
        cache.runtime().sleep(Duration::from_micros(500)).await;
        assert!(buf.is_writing());
        buf.write(|b| b.fill(2));
        cache.mark_dirty(&buf);
        buf.written().await;
        assert!(buf.is_dirty());
        assert_eq!(on_disk(&disk, 3), 1);
        cache.flush_all().await.unwrap();
        assert_eq!(on_disk(&disk, 3), 2);
    });
}

/// A request has the buffers' own bytes, and the device reads them during the write. A task that
/// changes, extends or forgets a buffer meanwhile does not touch them. Would catch a device that
/// gets half of one version and half of another.
#[test]
fn a_request_under_way_keeps_the_bytes_it_was_made_of() {
    for len in [1024, 4 * BLOCK] {
        with_cache(Rc::new(NoGate), CacheConfig::default(), async |cache, disk| {
            let mut bufs = Vec::new();
            for n in 0..3 {
                let key = BufKey::file(9, n);
                let at = Some(n.cast_unsigned() * len as u64);
                let buf = cache.get_new(key, at, len, BufferClass::Data).await;
                buf.write(|b| b.fill(1));
                cache.mark_dirty(&buf);
                bufs.push(buf);
            }
            cache.write_soon(&bufs[0]);
            cache.runtime().sleep(Duration::from_micros(500)).await;
            assert!(bufs.iter().all(|buf| buf.is_writing()));
            bufs[0].write(|b| b.fill(2));
            cache.mark_dirty(&bufs[0]);
            cache.resize(&bufs[1], 2 * len);
            cache.resize(&bufs[1], 512);
            cache.forget(bufs[2].key()).await;
            assert_eq!(disk.writes.borrow()[..], [(0, 3 * len)]);
            let mut all = vec![0; 3 * len];
            disk.disk.load(0, &mut all);
            assert!(all.iter().all(|byte| *byte == 1), "{len}");
            assert!(bufs[0].read().iter().all(|byte| *byte == 2) && bufs[0].is_dirty());
        });
    }
}

/// Two devices lie behind one another in one space of addresses. Each gets its own blocks, at the
/// right places; no request crosses the border; a flush goes to the devices that were written.
/// Would catch an address that is taken for one of the first device, and durability on only one of
/// the two.
#[test]
fn one_cache_reaches_two_devices() {
    let executor = Executor::simulated(7);
    let rt = executor.runtime();
    let disks = [0; 2].map(|_| Rc::new(Slow { volatile: true, ..Slow::new(&rt) }));
    let devices = disks.iter().map(|disk| disk.clone().erase()).collect();
    let cache = Cache::over(&rt, devices, Rc::new(NoGate), CacheConfig::default());
    let run = async {
        let border = cache.first_address(1);
        assert_eq!((cache.first_address(0), border), (0, 16 << 20));
        // The blocks are neighbours in their file and in the space of addresses, on either side of
        // the border.
        for n in 0..2u64 {
            let key = BufKey::file(9, n.cast_signed());
            let at = border - BLOCK as u64 * (1 - n);
            let buf = cache.get_new(key, Some(at), BLOCK, BufferClass::Data).await;
            buf.write(|b| b.fill(7 + n as u8));
            cache.mark_dirty(&buf);
        }
        cache.flush_all().await.unwrap();
        assert_eq!((on_disk(&disks[0], 4095), on_disk(&disks[1], 0)), (7, 8));
        assert_eq!(disks[0].writes.borrow()[..], [((16 << 20) - BLOCK as u64, BLOCK)]);
        assert_eq!(disks[1].writes.borrow()[..], [(0, BLOCK)]);
        let flushes = || disks.each_ref().map(|disk| disk.flushes.get());
        let before = flushes();
        let far = BufKey::file(9, 5);
        let buf = cache.get(far, border + 8192, BLOCK, BufferClass::Data).await.unwrap();
        cache.mark_dirty(&buf);
        cache.flush_all().await.unwrap();
        assert_eq!(flushes(), [before[0], before[1] + 1]);
        let over = cache.get(BufKey::file(9, 6), border - 512, 1024, BufferClass::Data).await;
        assert_eq!(over.unwrap_err().fault, Fault::OutOfRange);
    };
    executor.block_on(run).unwrap();
}

/// `forget` returns only when no write of the block is under way, so its address can be reused.
/// Would catch the old block's late write landing on top of the new owner's.
#[test]
fn forgetting_waits_for_a_write_under_way() {
    with_cache(Rc::new(NoGate), CacheConfig::default(), async |cache, disk| {
        let buf = new_block(&cache, 3, 1).await;
        cache.write_soon(&buf);
        cache.runtime().sleep(Duration::from_micros(500)).await;
        cache.forget(buf.key()).await;
        assert_eq!(disk.in_flight.get(), 0);
        assert!(cache.peek(buf.key()).is_none());
        // A block that was claimed but forgotten before its write is never sent.
        let buf = new_block(&cache, 5, 9).await;
        cache.write_soon(&buf);
        cache.forget(buf.key()).await;
        cache.flush_all().await.unwrap();
        assert_eq!(on_disk(&disk, 5), 0);
    });
}

/// Memory stays within its bound while many times as much is written and read back, and no data is
/// lost.
#[test]
fn memory_is_bounded_and_eviction_loses_nothing() {
    let config = CacheConfig::with_capacity(16 * BLOCK);
    with_cache(Rc::new(NoGate), config, async |cache, _| {
        for n in 0..300 {
            cache.throttle().await.unwrap();
            new_block(&cache, n, n as u8).await;
            assert!(cache.stats().bytes <= 16 * BLOCK, "{}", cache.stats().bytes);
        }
        for n in 0..300u64 {
            let (key, at) = (BufKey::file(9, n as i64), n * BLOCK as u64);
            let buf = cache.get(key, at, BLOCK, BufferClass::Data).await.unwrap();
            assert_eq!(buf.read()[100], n as u8);
            assert!(cache.stats().bytes <= 16 * BLOCK);
        }
        assert!(cache.stats().evicted > 250);
    });
}

/// A dirty block is written when it reaches the age of its class, metadata before data, and not
/// before.
#[test]
fn the_syncer_writes_by_age() {
    with_cache(Rc::new(NoGate), CacheConfig::default(), async |cache, disk| {
        let data = new_block(&cache, 3, 1).await;
        let meta = cache
            .get_new(BufKey::device(1 << 20), Some(1 << 20), BLOCK, BufferClass::Metadata)
            .await;
        cache.mark_dirty(&meta);
        cache.runtime().sleep(Duration::from_secs(27)).await;
        assert!(disk.writes.borrow().is_empty());
        cache.runtime().sleep(Duration::from_millis(2500)).await;
        assert!(!meta.is_dirty() && data.is_dirty());
        cache.runtime().sleep(Duration::from_secs(2)).await;
        assert!(!data.is_dirty());
    });
}

/// A failed write leaves the block dirty and the cache failed for good. Nothing is reported durable
/// afterwards.
#[test]
fn a_failed_write_is_never_forgotten() {
    with_cache(Rc::new(NoGate), CacheConfig::default(), async |cache, disk| {
        let buf = new_block(&cache, 3, 1).await;
        disk.fail_writes.set(true);
        assert!(cache.write_now(std::slice::from_ref(&buf)).await.is_err());
        assert!(buf.is_dirty());
        disk.fail_writes.set(false);
        assert!(cache.failure().is_some());
        assert!(cache.flush_all().await.is_err());
    });
}

/// A failed read leaves nothing behind: the next reader asks the device again.
#[test]
fn a_failed_read_leaves_no_buffer() {
    with_cache(Rc::new(NoGate), CacheConfig::default(), async |cache, disk| {
        disk.disk.store(0, &[5; BLOCK]);
        disk.fail_reads.set(true);
        let key = BufKey::file(9, 0);
        assert!(cache.get(key, 0, BLOCK, BufferClass::Data).await.is_err());
        disk.fail_reads.set(false);
        let buf = cache.get(key, 0, BLOCK, BufferClass::Data).await.unwrap();
        assert_eq!(buf.read()[0], 5);
        assert_eq!(cache.stats().bytes, BLOCK);
    });
}

/// A gate that rolls back the first byte until it is told to stop, and asks for the log once.
#[derive(Default)]
struct Undo {
    hold: Cell<bool>,
    log_at: Cell<u64>,
    done: RefCell<Vec<bool>>,
}

impl WriteGate for Undo {
    fn follows_writes(&self) -> bool {
        true
    }
    fn rolls_back(&self) -> bool {
        true
    }

    fn before_write(
        &self,
        _block: &Buffer,
        image: &mut WriteImage,
        _: &mut Vec<usize>,
    ) -> WriteDecision {
        if self.log_at.get() < 7 {
            return WriteDecision::WaitFor(7);
        }
        if self.hold.get() {
            image.to_mut()[0] = 0;
            return WriteDecision::WriteRolledBack;
        }
        WriteDecision::Write
    }
    fn write_done(&self, _block: &Buffer, _version: u64, result: Result<(), BlockError>) {
        self.done.borrow_mut().push(result.is_ok());
    }
    fn wait_for(&self, lsn: u64) -> LocalFuture<'_, Result<(), BlockError>> {
        self.log_at.set(lsn);
        Box::pin(async { Ok(()) })
    }
    fn write_preview(&self, _block: &Buffer) -> WritePreview {
        if self.hold.get() { WritePreview::Part } else { WritePreview::Whole }
    }
}

/// The rollback changes the copy: the disk gets the old byte, a reader the new one, and the block
/// stays dirty until it is written whole. The cache waits for the log first.
#[test]
fn the_gate_rolls_back_the_image_and_not_the_buffer() {
    let gate = Rc::new(Undo::default());
    gate.hold.set(true);
    with_cache(gate.clone(), CacheConfig::default(), async |cache, disk| {
        let buf = new_block(&cache, 3, 8).await;
        cache.write_now(std::slice::from_ref(&buf)).await.unwrap();
        assert_eq!((on_disk(&disk, 3), buf.read()[0], buf.is_dirty()), (0, 8, true));
        assert_eq!((gate.log_at.get(), cache.stats().rolled_back), (7, 1));
        gate.hold.set(false);
        cache.flush_all().await.unwrap();
        assert_eq!((on_disk(&disk, 3), buf.is_dirty()), (8, false));
        assert_eq!(*gate.done.borrow(), [true, true]);
    });
}

/// On a device with a volatile cache, a delayed write counts as done only after a flush. A write
/// for which a task waits is sent with FUA, so it is durable by itself.
#[test]
fn durable_means_flushed() {
    let executor = Executor::simulated(7);
    let rt = executor.runtime();
    let disk = Rc::new(Slow { volatile: true, ..Slow::new(&rt) });
    let gate = Rc::new(Undo::default());
    let cache = Cache::new(&rt, disk.clone(), gate.clone(), CacheConfig::default());
    executor
        .block_on(async {
            let buf = new_block(&cache, 3, 8).await;
            cache.write_all(vec![buf.clone()], false).await.unwrap();
            assert!(!buf.is_dirty() && gate.done.borrow().is_empty());
            cache.barrier().await.unwrap();
            assert_eq!((gate.done.borrow().len(), disk.flushes.get()), (1, 1));
            let buf = new_block(&cache, 4, 8).await;
            cache.write_now(std::slice::from_ref(&buf)).await.unwrap();
            assert_eq!((gate.done.borrow().len(), disk.flushes.get()), (2, 1));
            // Nothing was written since the flush that is not durable by itself.
            cache.barrier().await.unwrap();
            assert_eq!(disk.flushes.get(), 1);
            // All blocks of a file need one flush.
            for n in [5, 6, 9] {
                let buf = large_block(&cache, n).await;
                change(&cache, &buf, 0, 10);
            }
            cache.flush_file(9).await.unwrap();
            assert_eq!((gate.done.borrow().len(), disk.flushes.get()), (2, 1));
            cache.barrier().await.unwrap();
            assert_eq!((gate.done.borrow().len(), disk.flushes.get()), (5, 2));
        })
        .unwrap();
}

/// A block that the syncer wrote is clean, but may be in the device's volatile cache only. A caller
/// that must have it on disk before the next step gets a flush, once. The same holds for a block
/// that was written, evicted and read again. Would catch an ordering that is right on every disk
/// except real ones.
#[test]
fn clean_is_not_durable() {
    let executor = Executor::simulated(7);
    let rt = executor.runtime();
    let disk = Rc::new(Slow { volatile: true, ..Slow::new(&rt) });
    let cache = Cache::new(&rt, disk.clone(), Rc::new(NoGate), CacheConfig::default());
    executor
        .block_on(async {
            let buf = new_block(&cache, 3, 8).await;
            cache.write_all(vec![buf.clone()], false).await.unwrap();
            assert!(!buf.is_dirty());
            cache.write_now(std::slice::from_ref(&buf)).await.unwrap();
            cache.write_now(std::slice::from_ref(&buf)).await.unwrap();
            assert_eq!((disk.writes.borrow().len(), disk.flushes.get()), (1, 1));
            let key = new_block(&cache, 4, 8).await.key();
            cache.write_all(vec![cache.peek(key).unwrap()], false).await.unwrap();
            cache.forget(key).await;
            let buf = cache.get(key, 4 * BLOCK as u64, BLOCK, BufferClass::Data).await.unwrap();
            cache.write_now(std::slice::from_ref(&buf)).await.unwrap();
            assert_eq!(disk.flushes.get(), 2);
        })
        .unwrap();
}

/// A block with drop-behind leaves memory: a clean block at once, a dirty block when it is on disk.
/// A block in use stays, and so does one that was changed again, whose contents would be lost.
#[test]
fn drop_behind_buffers_leave_memory() {
    with_cache(Rc::new(NoGate), CacheConfig::default(), async |cache, disk| {
        let buf = new_block(&cache, 3, 1).await;
        let key = buf.key();
        cache.drop_behind(&buf);
        assert!(cache.peek(key).is_some(), "dirty, and gone");
        cache.write_soon(&buf);
        drop(buf);
        cache.runtime().sleep(Duration::from_millis(10)).await;
        assert!(cache.peek(key).is_none() && cache.stats().bytes == 0, "written, and kept");
        assert_eq!(on_disk(&disk, 3), 1);

        let (held, buf) = (new_block(&cache, 4, 1).await, new_block(&cache, 5, 1).await);
        let (first, second) = (held.key(), buf.key());
        cache.drop_behind(&held);
        cache.drop_behind(&buf);
        cache.write_soon(&held);
        cache.write_soon(&buf);
        cache.mark_dirty(&buf);
        drop(buf);
        cache.runtime().sleep(Duration::from_millis(10)).await;
        assert!(cache.peek(first).is_some() && cache.peek(second).is_some());
        drop(held);
        cache.drop_behind_rest();
        assert!(cache.peek(first).is_none(), "kept though it is no longer in use");
        assert!(cache.peek(second).is_some(), "changed, and gone");
    });
}

/// Written contents of a large file that wait for a flush stay below 48 MB: at 32 MB a flush
/// begins, and they leave memory. They would grow to 80 MB here, and their memory would be the
/// kernel's again after each flush.
#[test]
fn contents_that_wait_for_a_flush_are_bounded() {
    const BLOCKS: u64 = (80 << 20) / LARGE as u64;
    let executor = Executor::simulated(7);
    let rt = executor.runtime();
    let disk = Rc::new(Slow { volatile: true, ..Slow::new(&rt) });
    let gate = Rc::new(Undo::default());
    let config = CacheConfig { capacity: 256 << 20, dirty_max: 64 << 20, ..CacheConfig::default() };
    let cache = Cache::new(&rt, disk.clone(), gate.clone(), config);
    let scenario = async {
        let mut most = 0;
        for n in 0..BLOCKS {
            let (key, at) = (BufKey::file(9, n as i64), n % 256 * LARGE as u64);
            let buf = cache.get_new(key, Some(at), LARGE, BufferClass::Data).await;
            buf.overwrite(0..LARGE, &[n as u8; LARGE]);
            cache.mark_dirty(&buf);
            cache.drop_behind(&buf);
            cache.write_soon(&buf);
            drop(buf);
            rt.sleep(Duration::from_micros(20)).await;
            most = most.max(cache.stats().bytes);
        }
        rt.sleep(Duration::from_millis(50)).await;
        assert!((32 << 20..48 << 20).contains(&most), "{most} bytes at most");
        assert!((2..=3).contains(&disk.flushes.get()), "{} flushes", disk.flushes.get());
        cache.barrier().await.unwrap();
        assert_eq!((cache.stats().bytes, gate.done.borrow().len() as u64), (0, BLOCKS));
    };
    executor.block_on(scenario).unwrap();
}

/// Two writes of one block never overlap, whichever tasks ask for them.
#[test]
fn writes_of_one_block_do_not_overlap() {
    with_cache(Rc::new(NoGate), CacheConfig::default(), async |cache, disk| {
        let buf = new_block(&cache, 3, 1).await;
        let mut tasks = Vec::new();
        for i in 0..20u8 {
            let (cache, buf) = (cache.clone(), buf.clone());
            let rt = cache.runtime().clone();
            tasks.push(cache.runtime().clone().spawn("writer", async move {
                rt.sleep(Duration::from_micros(u64::from(i) * 300)).await;
                buf.write(|b| b.fill(i));
                cache.mark_dirty(&buf);
                cache.write_now(std::slice::from_ref(&buf)).await.unwrap();
            }));
        }
        for task in tasks {
            task.await;
        }
        assert!(!disk.overlaps.get());
        assert_eq!(on_disk(&disk, 3), 19);
    });
}

/// A block with pages of its own, for writes in part.
const LARGE: usize = 32 << 10;

async fn large_block(cache: &Cache, n: u64) -> BufRef {
    let key = BufKey::file(9, n as i64);
    cache.get(key, n * LARGE as u64, LARGE, BufferClass::Data).await.unwrap()
}

fn change(cache: &Cache, buf: &BufRef, at: usize, len: usize) {
    buf.write_part(at..at + len, |bytes| bytes.fill(7));
    cache.mark_dirty(buf);
}

/// With a unit of writing, a write has the changed units of a block and no others; whole blocks are
/// written where the device has not all of their other bytes: after a change of unknown bytes, a
/// move, a failed write. Neighbours are gathered as without a unit. Would catch a write that leaves
/// a changed byte out, by comparing the device with the buffers.
#[test]
fn only_the_changed_part_of_a_block_is_written() {
    let config =
        CacheConfig { write_unit: Some(4096), cluster: 4 * LARGE, ..CacheConfig::default() };
    with_cache(Rc::new(NoGate), config, async |cache, disk| {
        let at = |n: u64| n * LARGE as u64;
        let taken = || std::mem::take(&mut *disk.writes.borrow_mut());
        let same = |buf: &BufRef| {
            let mut there = vec![0; buf.len()];
            disk.disk.load(buf.address().unwrap(), &mut there);
            assert!(there == buf.read()[..], "the device has the buffer's bytes");
        };
        let (a, b, c) = (
            large_block(&cache, 0).await,
            large_block(&cache, 1).await,
            large_block(&cache, 2).await,
        );
        change(&cache, &a, 5000, 10);
        cache.flush_file(9).await.unwrap();
        assert_eq!(taken(), [(4096, 4096)]);
        change(&cache, &a, 4096, 1);
        change(&cache, &a, 12_287, 2);
        cache.flush_file(9).await.unwrap();
        assert_eq!(taken(), [(4096, 12_288)]);
        // Neighbours are written in one request, with the unchanged bytes between the changed ones.
        change(&cache, &a, LARGE - 1, 1);
        change(&cache, &b, 0, 1);
        change(&cache, &c, 0, 1);
        cache.flush_file(9).await.unwrap();
        assert_eq!(taken(), [(at(1) - 4096, 4096 + LARGE + 4096)]);
        a.write(|bytes| bytes[0] = 9);
        cache.mark_dirty(&a);
        cache.flush_file(9).await.unwrap();
        assert_eq!(taken(), [(0, LARGE)]);
        cache.move_to(&b, at(5)).await;
        change(&cache, &b, 0, 1);
        cache.flush_file(9).await.unwrap();
        assert_eq!(taken(), [(at(5), LARGE)]);
        // A change during a write is left for the next one.
        change(&cache, &c, 0, 1);
        cache.write_soon(&c);
        cache.runtime().sleep(Duration::from_micros(100)).await;
        change(&cache, &c, 20_000, 1);
        cache.flush_file(9).await.unwrap();
        assert_eq!(taken(), [(at(2), 4096), (at(2) + 16_384, 4096)]);
        [&a, &b, &c].into_iter().for_each(same);
        disk.fail_writes.set(true);
        change(&cache, &a, 0, 1);
        assert!(cache.flush_file(9).await.is_err());
        disk.fail_writes.set(false);
        taken();
        change(&cache, &a, 9000, 1);
        let _ = cache.flush_file(9).await;
        assert_eq!(taken(), [(0, 12_288)], "the part that failed is written with the next");
        same(&a);
    });
}

/// A page that is written into a block of which nothing is in memory: nothing is read, and a page
/// is written. A second page beside it goes with it. A page apart from it, or a reader, brings the
/// rest of the block into memory: the reader sees the old bytes beside the new ones, and a change
/// of a part of a page is made in the old page. A read that fails leaves the buffer as it was.
/// Would catch a block of which unknown bytes reach the disk or a reader, and a page that a late
/// read overwrites.
#[test]
fn a_block_is_changed_by_pages_without_being_read() {
    let config =
        CacheConfig { write_unit: Some(4096), cluster: 4 * LARGE, ..CacheConfig::default() };
    with_cache(Rc::new(NoGate), config, async |cache, disk| {
        disk.disk.store(0, &vec![1; 8 * LARGE]);
        let taken = || std::mem::take(&mut *disk.writes.borrow_mut());
        let put = async |n: u64, at: usize, len: usize, byte: u8| {
            let key = BufKey::file(9, n as i64);
            let class = BufferClass::Data;
            let range = at..at + len;
            let buf = cache.get_part(key, n * LARGE as u64, LARGE, class, range).await.unwrap();
            buf.write_part(at..at + len, |bytes| bytes.fill(byte));
            cache.mark_dirty(&buf);
            buf
        };
        let page = 4096;
        let buf = put(0, page, page, 7).await;
        assert!(buf.is_partial());
        cache.flush_file(9).await.unwrap();
        put(0, 2 * page, page, 8).await;
        put(0, 3 * page, page, 9).await;
        cache.flush_file(9).await.unwrap();
        assert_eq!(cache.stats().reads, 0);
        assert_eq!(taken(), [(4096, 4096), (8192, 8192)]);
        // Two pages apart from each other: one read, and one write with what lies between them.
        put(0, 0, page, 5).await;
        put(0, 5 * page, page, 6).await;
        cache.flush_file(9).await.unwrap();
        assert!(!buf.is_partial());
        assert_eq!((cache.stats().reads, taken()), (1, vec![(0, 6 * page)]));
        let pages = |buf: &BufRef| buf.read().chunks(page).map(|page| page[0]).collect::<Vec<u8>>();
        assert_eq!(pages(&buf), [5, 7, 8, 9, 1, 6, 1, 1]);
        // A reader, and a change of a part of a page.
        put(1, 0, page, 3).await;
        assert_eq!(pages(&large_block(&cache, 1).await), [3, 1, 1, 1, 1, 1, 1, 1]);
        put(2, 0, page, 3).await;
        let buf = put(2, page + 10, 20, 4).await;
        assert_eq!(buf.read()[page + 9..page + 31], [&[1; 1][..], &[4; 20], &[1; 1]].concat());
        put(3, 0, LARGE, 2).await;
        assert_eq!(pages(&large_block(&cache, 3).await), [2; 8]);
        cache.flush_file(9).await.unwrap();
        // A reader and a writer at the same time: the writer waits, and its page stays.
        let buf = put(4, 0, page, 3).await;
        let (reader, same) = (cache.clone(), buf.clone());
        let task = cache.runtime().clone().spawn("reader", async move {
            let got = large_block(&reader, 4).await;
            assert!(Rc::ptr_eq(&got, &same));
        });
        cache.runtime().yield_now().await;
        put(4, 7 * page, page, 4).await;
        task.await;
        assert_eq!(pages(&buf), [3, 1, 1, 1, 1, 1, 1, 4]);
        cache.flush_file(9).await.unwrap();
        let buf = put(5, 0, page, 3).await;
        disk.fail_reads.set(true);
        let address = 5 * LARGE as u64;
        assert!(cache.get(buf.key(), address, LARGE, BufferClass::Data).await.is_err());
        assert!(buf.is_partial());
        disk.fail_reads.set(false);
        assert_eq!(pages(&large_block(&cache, 5).await), [3, 1, 1, 1, 1, 1, 1, 1]);
        cache.flush_all().await.unwrap();
        for n in 0..6 {
            let mut there = vec![0; LARGE];
            disk.disk.load(n * LARGE as u64, &mut there);
            assert!(there == large_block(&cache, n).await.read()[..], "block {n}");
        }
    });
}
