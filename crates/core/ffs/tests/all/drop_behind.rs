//! Drop-behind: contents that are read or written in order, and kept by the layer above, leave
//! memory at once.
//!
//! Fault model: none; several requests of a reader are under way at a time, and overtake each
//! other. Would catch contents that stay, blocks that are read twice, read-ahead far beyond the
//! reader, and wrong contents.

use std::cell::Cell;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_cache::CacheConfig;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_ufs::{Layout, UfsConfig};
use ordo_vfs::{FileSystem, Ino, NewNode};

const FILE: usize = 24 << 20;
const REQUEST: usize = 128 << 10;

/// A disk that takes 100 µs for a request, and counts the bytes that are read.
struct Counted {
    runtime: Runtime,
    disk: Rc<RamDisk>,
    read: Cell<usize>,
}

impl BlockDevice for Counted {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.read.set(self.read.get() + len);
        self.runtime.sleep(Duration::from_micros(100)).await;
        self.disk.read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.runtime.sleep(Duration::from_micros(100)).await;
        self.disk.write(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), BlockError> {
        self.disk.flush().await
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.disk.discard(offset, len).await
    }
}

fn byte(at: usize) -> u8 {
    (at / 1000 % 251) as u8
}

type Disk = Rc<Counted>;

async fn mounted<P: OrderingPolicy>(
    rt: &Runtime,
    disk: &Disk,
    policy: P,
    drop_behind: bool,
) -> FastFs {
    let ufs = UfsConfig { drop_behind, ..UfsConfig::default() };
    let cache = CacheConfig { cluster: 1 << 20, ..CacheConfig::with_capacity(256 << 20) };
    mount(rt, disk.clone(), policy, &MountOptions { ufs, cache, ..MountOptions::default() })
        .await
        .unwrap()
}

async fn in_memory(fs: &FastFs) -> usize {
    fs.layout().cache().stats().bytes
}

/// Writes a file, and reads it after a remount with two requests under way at any time. Returns the
/// memory in use after each, and the bytes read for each byte of the file.
async fn there_and_back<P: OrderingPolicy>(
    rt: &Runtime,
    policy: fn() -> P,
    drop_behind: bool,
) -> (usize, usize, f64) {
    let disk = Rc::new(RamDisk::new(128 << 20));
    mkfs(&disk.clone().erase(), &MkfsOptions::default(), 1_700_000_000).await.unwrap();
    let disk = Rc::new(Counted { runtime: rt.clone(), disk, read: Cell::new(0) });
    let fs = mounted(rt, &disk, policy(), drop_behind).await;
    let ino = fs.create(fs.root(), b"large", &NewNode::file(0o644)).await.unwrap().ino;
    let contents: Vec<u8> = (0..FILE).map(byte).collect();
    for at in (0..FILE).step_by(1 << 20) {
        fs.write(ino, at as u64, &contents[at..at + (1 << 20)]).await.unwrap();
    }
    fs.fsync(ino).await.unwrap();
    let written = in_memory(&fs).await;
    fs.unmount().await.unwrap();

    let fs = mounted(rt, &disk, policy(), drop_behind).await;
    disk.read.set(0);
    let reads = (0..2).map(|n| {
        let fs = fs.clone();
        rt.spawn("a reader", async move { read_every_other(&fs, ino, n).await })
    });
    for read in reads.collect::<Vec<_>>() {
        read.await;
    }
    let read = in_memory(&fs).await;
    let times = disk.read.get() as f64 / FILE as f64;
    fs.unmount().await.unwrap();
    (written, read, times)
}

async fn read_every_other(fs: &FastFs, ino: Ino, first: usize) {
    let mut buf = vec![0; REQUEST];
    for at in (first * REQUEST..FILE).step_by(2 * REQUEST) {
        assert_eq!(fs.read(ino, at as u64, &mut buf).await.unwrap(), REQUEST);
        assert!(buf.iter().enumerate().all(|(i, b)| *b == byte(at + i)), "at {at}");
    }
}

/// With drop-behind, hardly anything of a file of 24 MB is in memory after it has been written and
/// synced, or read, and every block was read once. Without it, all of the file stays.
#[test]
fn drop_behind() {
    const LITTLE: usize = 8 << 20;
    let executor = Executor::simulated(3);
    let rt = executor.runtime();
    executor
        .block_on(async {
            let (written, read, times) = there_and_back(&rt, || NoOrder, true).await;
            assert!(written < LITTLE && read < LITTLE, "{written} and {read} bytes kept");
            assert!(times < 1.1, "{times} bytes read for each byte of the file");
            let (written, read, times) = there_and_back(&rt, SoftUpdates::default, true).await;
            assert!(written < LITTLE && read < LITTLE, "{written} and {read} bytes kept");
            assert!(times < 1.1, "{times} bytes read for each byte of the file");
            let (written, read, _) = there_and_back(&rt, || NoOrder, false).await;
            assert!(written >= FILE && read >= FILE, "{written} and {read} bytes kept");
        })
        .unwrap();
}

/// A file that is written but never synced leaves memory too, under an ordering that must know
/// which writes are durable: an occasional flush allows that.
#[test]
fn a_stream_leaves_memory_unsynced() {
    const STREAM: u64 = 128;
    let executor = Executor::simulated(3);
    let rt = executor.runtime();
    let scenario = async {
        let disk = Rc::new(RamDisk::new(256 << 20));
        mkfs(&disk.clone().erase(), &MkfsOptions::default(), 1_700_000_000).await.unwrap();
        let disk = Rc::new(Counted { runtime: rt.clone(), disk, read: Cell::new(0) });
        let fs = mounted(&rt, &disk, SoftUpdates::default(), true).await;
        let ino = fs.create(fs.root(), b"large", &NewNode::file(0o644)).await.unwrap().ino;
        let mut most = 0;
        for at in 0..STREAM {
            fs.write(ino, at << 20, &vec![1; 1 << 20]).await.unwrap();
            rt.sleep(Duration::from_millis(1)).await;
            most = most.max(in_memory(&fs).await);
        }
        assert!(most < 48 << 20, "{most} bytes kept");
        fs.unmount().await.unwrap();
    };
    executor.block_on(scenario).unwrap();
}

/// A reader of the beginning of a large file does not cause much of the rest to be read.
#[test]
fn no_more_is_read_ahead_than_was_asked_for() {
    let executor = Executor::simulated(3);
    let rt = executor.runtime();
    let scenario = async {
        let disk = Rc::new(RamDisk::new(128 << 20));
        mkfs(&disk.clone().erase(), &MkfsOptions::default(), 1_700_000_000).await.unwrap();
        let disk = Rc::new(Counted { runtime: rt.clone(), disk, read: Cell::new(0) });
        let fs = mounted(&rt, &disk, NoOrder, true).await;
        let ino = fs.create(fs.root(), b"large", &NewNode::file(0o644)).await.unwrap().ino;
        for at in 0..8 {
            fs.write(ino, at << 20, &[1; 1 << 20]).await.unwrap();
        }
        fs.unmount().await.unwrap();
        let fs = mounted(&rt, &disk, NoOrder, true).await;
        disk.read.set(0);
        fs.read(ino, 0, &mut [0; REQUEST]).await.unwrap();
        rt.sleep(Duration::from_millis(10)).await;
        assert!(disk.read.get() <= 3 * REQUEST, "{} bytes read", disk.read.get());
        fs.unmount().await.unwrap();
    };
    executor.block_on(scenario).unwrap();
}
