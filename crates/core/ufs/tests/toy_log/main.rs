//! The trait `Layout`, tested with a layout that is as unlike FFS as possible: a log.
//!
//! Nothing has a place before it is written, and nothing is written twice in the same place.
//! Contents, indirect blocks, inodes, and the IFILE, which has the places of inodes, go to the end
//! of the log when the cache's syncer, its eviction or a user demands it. There is no cleaner, and
//! recovery uses the last checkpoint only. All else is `ufs`, which has no line for this layout.

mod directory;
mod layout;
mod order;
mod segment;
mod store;

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::volatile::{Loss, VolatileCache};
use ordo_block::{BlockDevice, Device};
use ordo_cache::CacheConfig;
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::tree::{CompareOptions, compare};
use ordo_vfs::{
    Attr, Errno, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr, SetTime,
    Timestamp,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use layout::{ToyFs, mkfs, mount};

const BYTES: u64 = 192 << 20;

fn clock(rt: &Runtime) -> impl Fn() -> Timestamp + 'static {
    let rt = rt.clone();
    move || {
        let (seconds, nanos) = rt.wall_time();
        Timestamp { seconds, nanos }
    }
}

fn model(rt: &Runtime) -> ModelFs {
    let size = store::FILE_BLOCKS * store::BLOCK as u64;
    let config = ModelConfig {
        link_max: 1000,
        file_size_max: size,
        ..ModelConfig::ufs2(store::BLOCK as u32)
    };
    ModelFs::new(config, clock(rt))
}

/// The result of one step, for comparison: an error's number, or the bytes that were read.
type Outcome = Result<Vec<u8>, Errno>;

/// A random directory and path. The last parts of paths are few, so that steps meet.
fn random_place(rng: &mut Pcg64Mcg) -> (Vec<&'static [u8]>, Vec<u8>) {
    const DIRECTORIES: [&[u8]; 3] = [b"d0", b"d1", b"d2"];
    let depth = rng.random_range(0..3);
    let way = (0..depth).map(|_| DIRECTORIES[rng.random_range(0..3)]).collect();
    let name = match rng.random_range(0..8) {
        0 => DIRECTORIES[rng.random_range(0..3)].to_vec(),
        1 => format!("a-name-that-takes-room-{:0>60}", rng.random_range(0..40)).into_bytes(),
        _ => format!("f{}", rng.random_range(0..24)).into_bytes(),
    };
    (way, name)
}

async fn directory<F: FileSystem>(fs: &F, way: &[&[u8]]) -> FsResult<Ino> {
    let mut at = fs.root();
    for name in way {
        at = fs.lookup(at, name).await?.ino;
    }
    Ok(at)
}

/// Does the step for which `seed` stands.
async fn step<F: FileSystem>(fs: &F, seed: u64) -> Outcome {
    step_of(fs, &mut Pcg64Mcg::seed_from_u64(seed)).await.map_err(|e| e.errno)
}

async fn step_of<F: FileSystem>(fs: &F, rng: &mut Pcg64Mcg) -> FsResult<Vec<u8>> {
    let (way, name) = random_place(rng);
    let kind = rng.random_range(0..16);
    let (other_way, other) = random_place(rng);
    let offset = match rng.random_range(0..4) {
        0 => rng.random_range(0..store::FILE_BLOCKS * store::BLOCK as u64 + 9000),
        _ => rng.random_range(0..70_000),
    };
    let mut data = vec![0; rng.random_range(1..20_000)];
    rng.fill_bytes(&mut data);
    let dir = directory(fs, &way).await?;
    match kind {
        0 | 1 => fs.create(dir, &name, &NewNode::directory(0o755)).await.map(|_| Vec::new()),
        2..=4 => fs.create(dir, &name, &NewNode::file(0o644)).await.map(|_| Vec::new()),
        5 => {
            let target = [b'x'; 300];
            let new = NewNode::symlink(&target[..1 + data.len() % 299]);
            let made = fs.create(dir, &name, &new).await?;
            fs.readlink(made.ino).await
        }
        6 => {
            let to = directory(fs, &other_way).await?;
            let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
            let mode = mode[data.len() % 3];
            fs.rename(dir, &name, to, &other, mode).await.map(|()| Vec::new())
        }
        7 => fs.unlink(dir, &name).await.map(|()| Vec::new()),
        8 => fs.rmdir(dir, &name).await.map(|()| Vec::new()),
        9 => {
            let ino = fs.lookup(dir, &name).await?.ino;
            let to = directory(fs, &other_way).await?;
            fs.link(ino, to, &other).await.map(|_| Vec::new())
        }
        10 => {
            let ino = fs.lookup(dir, &name).await?.ino;
            let set = SetAttr { size: Some(offset), ..SetAttr::default() };
            fs.setattr(ino, &set).await.map(|_| Vec::new())
        }
        11 => {
            let attr = fs.lookup(dir, &name).await?;
            if attr.file_type == FileType::Regular {
                clear(fs, attr, offset, &mut data).await?;
            }
            Ok(Vec::new())
        }
        12 | 13 => {
            let attr = fs.lookup(dir, &name).await?;
            let mut into = vec![0; data.len()];
            let n = fs.read(attr.ino, offset, &mut into).await?;
            into.truncate(n);
            into.push(u8::from(attr.file_type == FileType::Directory));
            Ok(into)
        }
        _ => {
            let ino = fs.lookup(dir, &name).await?.ino;
            let n = fs.write(ino, offset, &data).await?;
            Ok(n.to_le_bytes().to_vec())
        }
    }
}

/// Clears a range. On the model, which cannot, it writes zeros.
async fn clear<F: FileSystem>(fs: &F, attr: Attr, offset: u64, data: &mut [u8]) -> FsResult<()> {
    let end = attr.size.min(offset + data.len() as u64);
    match fs.punch_hole(attr.ino, offset, data.len() as u64).await {
        Err(e) if e.errno == Errno::NotSupported && offset < end => {
            data.fill(0);
            fs.write(attr.ino, offset, &data[..(end - offset) as usize]).await?;
        }
        Err(e) if e.errno == Errno::NotSupported => {}
        done => done?,
    }
    let set = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    fs.setattr(attr.ino, &set).await.map(|_| ())
}

async fn differences<F: FileSystem, G: FileSystem>(a: &F, b: &G) -> Vec<String> {
    let options = CompareOptions { xattrs: false, ..CompareOptions::default() };
    let found = compare((a, a.root()), (b, b.root()), &options, &mut |_| {}).await;
    found.expect("nothing fails").differences.iter().map(ToString::to_string).collect()
}

async fn fresh(rt: &Runtime, device: Device, config: &CacheConfig) -> ToyFs {
    mkfs(rt, device.clone()).await.expect("room");
    mount(rt, device, config).await.expect("just made")
}

/// Every answer, and the tree before and after each remount, equals the model's: with memory for
/// everything, and with so little that blocks and inodes come and go all the time. Time passes, so
/// that the syncer writes between steps. Would catch any code in `ufs` or the cache that expects a
/// place on the device.
#[test]
fn the_whole_of_ufs_runs_on_a_log() {
    for (seed, capacity) in [(1, 64 << 20), (2, 256 << 10), (3, 1 << 20)] {
        let executor = Executor::simulated(seed);
        let rt = executor.runtime();
        let run = async {
            let device = RamDisk::new(BYTES).erase();
            let config = CacheConfig::with_capacity(capacity);
            let model = model(&rt);
            let mut fs = fresh(&rt, device.clone(), &config).await;
            for n in 0..1500 {
                let nth = seed << 32 | n;
                assert_eq!(step(&fs, nth).await, step(&model, nth).await, "seed {seed}, step {n}");
                if n % 50 == 0 {
                    rt.sleep(Duration::from_secs(20)).await;
                }
                if n % 500 == 499 {
                    assert_eq!(differences(&fs, &model).await, [""; 0], "seed {seed}, step {n}");
                    fs.unmount().await.expect("a healthy device");
                    fs = mount(&rt, device.clone(), &config).await.expect("unmounted");
                    assert_eq!(differences(&fs, &model).await, [""; 0], "remounted at {n}");
                }
            }
        };
        executor.block_on(run).expect("no deadlock");
    }
}

/// The power fails at any time, and any part of the disk's cache is lost or torn. The recovered
/// tree is, byte for byte, that of the newest whole checkpoint, and no older than the last sync.
/// Would catch a checkpoint that is written before the blocks to which it points, half an
/// operation, and an overwritten block.
#[test]
fn a_crash_comes_back_as_the_last_checkpoint() {
    for seed in 0..12 {
        let executor = Executor::simulated(seed);
        let rt = executor.runtime();
        let disk = Rc::new(VolatileCache::new(RamDisk::new(BYTES)));
        let (models, made, synced) = executor
            .block_on(async {
                let config = CacheConfig::with_capacity(1 << 20);
                let fs = fresh(&rt, disk.clone().erase(), &config).await;
                let store = fs.layout().store.clone();
                let (model, mut models) = (model(&rt), Vec::new());
                models.push(model.fork(clock(&rt)));
                let (steps, mut synced) = (60 + 40 * seed, 0);
                for n in 0..steps {
                    let nth = seed << 32 | n;
                    let (ours, theirs) = (step(&fs, nth).await, step(&model, nth).await);
                    assert_eq!(ours, theirs, "seed {seed}, step {n}");
                    models.push(model.fork(clock(&rt)));
                    store.done.set(n + 1);
                    if n % 37 == 36 {
                        fs.sync().await.expect("a healthy device");
                        synced = n + 1;
                    }
                    if n % 23 == 22 {
                        rt.sleep(Duration::from_secs(31)).await;
                    }
                }
                (models, store.made.borrow().clone(), synced)
            })
            .expect("no deadlock");
        let crashed = disk.crash_image_seeded(Loss::Subset, seed);
        drop((executor, rt));
        let executor = Executor::simulated(seed);
        let rt = executor.runtime();
        let run = async {
            let config = CacheConfig::default();
            let fs = mount(&rt, crashed.erase(), &config).await.expect("a checkpoint is whole");
            let serial = fs.layout().store.checkpoint.get().serial;
            // The first checkpoint is that of mkfs, before any step.
            let at = made.iter().find(|(made, _)| *made == serial).map_or(0, |(_, done)| *done);
            // A checkpoint may be gathered when a step's operation has ended and the step has not.
            let next = (at + 1).min(models.len() as u64 - 1);
            let is_next = differences(&fs, &models[next as usize]).await.is_empty();
            let found = differences(&fs, &models[at as usize]).await;
            assert!(is_next || found.is_empty(), "seed {seed}, {at} steps: {found:#?}");
            // A step that changes nothing makes no checkpoint.
            let there = if is_next { next } else { at };
            let durable = differences(&fs, &models[synced as usize]).await;
            assert!(
                there >= synced || durable.is_empty(),
                "seed {seed}: {there} of {synced} steps"
            );
            // The recovered file system can be used.
            let made = fs.create(fs.root(), b"after", &NewNode::file(0o600)).await.expect("room");
            fs.write(made.ino, 0, b"the crash").await.expect("room");
            fs.unmount().await.expect("a healthy device");
        };
        executor.block_on(run).expect("no deadlock");
    }
}
