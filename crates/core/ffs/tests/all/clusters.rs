//! Blocks that are moved so that a file's clusters are contiguous, while other tasks write.
//!
//! Fault model: none; a disk whose requests take random times, and a cache of few blocks, so that a
//! block may be written by another task at any time. Would catch contents that are written to the
//! place which the block has just left.

use std::cell::Cell;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_cache::CacheConfig;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates, SyncOrder};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_ufs::Layout;
use ordo_vfs::{FileSystem, NewNode};

const BLOCK: u64 = 4096;
const WRITERS: u64 = 4;
const BLOCKS: u64 = 24;
const ROUNDS: u64 = 5;

/// A disk whose requests take up to 2 ms.
struct Slow {
    runtime: Runtime,
    disk: Rc<RamDisk>,
}

impl Slow {
    async fn pause(&self) {
        self.runtime.sleep(Duration::from_micros(self.runtime.random_below(2000))).await;
    }
}

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.pause().await;
        self.disk.read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.pause().await;
        self.disk.write(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), BlockError> {
        self.pause().await;
        self.disk.flush().await
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.disk.discard(offset, len).await
    }
}

/// The contents of a block, which no other block has.
fn contents(writer: u64, round: u64, block: u64) -> Vec<u8> {
    let word = (writer << 48 | round << 32 | block).to_le_bytes();
    word.iter().copied().cycle().take(BLOCK as usize).collect()
}

/// Writes a file again and again, and reads what is on the disk. Returns the wrong blocks.
async fn there_and_back(fs: FastFs, rt: Runtime, writer: u64) -> Vec<(u64, u64)> {
    let name = format!("file{writer}").into_bytes();
    let mut wrong = Vec::new();
    for round in 0..ROUNDS {
        if round > 0 {
            fs.unlink(fs.root(), &name).await.unwrap();
        }
        let ino = fs.create(fs.root(), &name, &NewNode::file(0o644)).await.unwrap().ino;
        for block in 0..BLOCKS {
            fs.write(ino, block * BLOCK, &contents(writer, round, block)).await.unwrap();
            if rt.random_below(8) == 0 {
                rt.sleep(Duration::from_micros(rt.random_below(3000))).await;
            }
        }
        fs.fsync(ino).await.unwrap();
        fs.layout().cache().drop_clean();
        for block in 0..BLOCKS {
            let mut bytes = vec![0; BLOCK as usize];
            fs.read(ino, block * BLOCK, &mut bytes).await.unwrap();
            if bytes != contents(writer, round, block) {
                wrong.push((round, block));
            }
        }
    }
    wrong
}

/// Files are written, all at once, while memory is short: blocks are written and leave it all the
/// time.
async fn short_of_memory<P: OrderingPolicy>(rt: &Runtime, policy: fn() -> P) {
    let disk = Rc::new(RamDisk::new(1 << 20));
    let shape = MkfsOptions { block_size: BLOCK as u32, frag_size: 512, ..MkfsOptions::default() };
    mkfs(&disk.clone().erase(), &shape, 1_700_000_000).await.unwrap();
    let slow = Rc::new(Slow { runtime: rt.clone(), disk: disk.clone() });
    let cache = CacheConfig {
        cluster: 3 * BLOCK as usize,
        data_age: Duration::from_millis(4),
        ..CacheConfig::with_capacity(32 * BLOCK as usize)
    };
    let options = MountOptions { cache, ..MountOptions::default() };
    let fs = mount(rt, slow, policy(), &options).await.unwrap();
    let writers = (0..WRITERS)
        .map(|writer| rt.spawn("a writer", there_and_back(fs.clone(), rt.clone(), writer)));
    let writers: Vec<_> = writers.collect();
    let is_done = Rc::new(Cell::new(false));
    let (cache, done, pause) = (fs.layout().cache().clone(), is_done.clone(), rt.clone());
    let pressure = rt.spawn("short memory", async move {
        while !done.get() {
            cache.write_dirty().await.unwrap();
            cache.drop_clean();
            pause.sleep(Duration::from_micros(pause.random_below(3000))).await;
        }
    });
    for writer in writers {
        let wrong = writer.await;
        assert!(wrong.is_empty(), "wrong blocks (round, block): {wrong:?}");
    }
    is_done.set(true);
    pressure.await;
    fs.unmount().await.unwrap();
}

fn holds<P: OrderingPolicy>(name: &str, policy: fn() -> P) {
    for seed in 1..=40 {
        let executor = Executor::simulated(seed);
        let rt = executor.runtime();
        println!("{name}, seed {seed}");
        executor.block_on(async { short_of_memory(&rt, policy).await }).unwrap();
    }
}

#[test]
fn a_block_that_is_written_while_its_cluster_moves_is_written_again() {
    holds("no order", || NoOrder);
    holds("synchronous", SyncOrder::default);
    holds("soft updates", SoftUpdates::default);
}
