//! A segment of the metadata log is written again only when it is empty in both checkpoints on the
//! device.
//!
//! Fault model: the superblock of the newest checkpoint cannot be read after a power cut, so the
//! checkpoint before it is used. The log is nearly full of symbolic links with long targets, each
//! of which has a block, so that segments are written again as soon as they may be. Would catch a
//! metadata log whose older checkpoint leads into segments with newer contents.

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_dualfs::DualFs;
use ordo_dualfs::mount::{MountOptions, mount};
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_SIZE};
use ordo_lfs::superblock::{VolumeKind, find_kind};
use ordo_lfs::write::{CleanEvery, Cleaning, LfsRules};
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::{FileSystem, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::crash::{Sizes, make};

/// Sizes of the log's parts in bytes, the length of a link's target, and the number of batches of
/// links that fill the log.
#[derive(Clone, Copy, Debug)]
struct Shape {
    block: u32,
    segment_blocks: u32,
    target: usize,
    batches: usize,
}

const SHAPES: [Shape; 3] = [
    Shape { block: 4096, segment_blocks: 10, target: 1000, batches: 12 },
    Shape { block: 1024, segment_blocks: 32, target: 900, batches: 12 },
    Shape { block: 8192, segment_blocks: 8, target: 1000, batches: 9 },
];
/// The number of segments of the log.
const SEGMENTS: u64 = 100;
/// The number of blocks of the data device, which stays empty.
const DATA_BLOCKS: u64 = 64;
/// The segments that one batch of links fills.
const BATCH_SEGMENTS: u32 = 3;
const ROUNDS: usize = 60;

struct Links {
    fs: DualFs,
    rng: Pcg64Mcg,
    shape: Shape,
    /// The directories in the root, each with one batch of links, and the seed of the links'
    /// targets.
    batches: BTreeMap<u64, u64>,
    next: u64,
}

fn target(seed: u64, link: u32, len: usize) -> Vec<u8> {
    format!("{seed:x}/{link:x}/").into_bytes().into_iter().cycle().take(len).collect()
}

impl Links {
    fn links(&self) -> u32 {
        BATCH_SEGMENTS * self.shape.segment_blocks
    }

    async fn create(&mut self) {
        let (id, seed) = (self.next, self.rng.random_range(0..u64::MAX));
        self.next += 1;
        let name = format!("d{id}");
        let dir = self.fs.create(self.fs.root(), name.as_bytes(), &NewNode::directory(0o755)).await;
        let dir = dir.expect("room").ino;
        for link in 0..self.links() {
            let target = target(seed, link, self.shape.target);
            let node = NewNode::symlink(&target);
            self.fs.create(dir, format!("l{link}").as_bytes(), &node).await.expect("room");
        }
        self.batches.insert(id, seed);
    }

    async fn delete(&mut self) {
        let nth = self.rng.random_range(0..self.batches.len());
        let id = *self.batches.keys().nth(nth).expect("a batch");
        let name = format!("d{id}");
        let dir = self.fs.lookup(self.fs.root(), name.as_bytes()).await.expect("it is there").ino;
        for link in 0..self.links() {
            self.fs.unlink(dir, format!("l{link}").as_bytes()).await.expect("it is there");
        }
        self.fs.rmdir(self.fs.root(), name.as_bytes()).await.expect("it is empty");
        self.batches.remove(&id);
    }

    /// The first difference between the file system and what is expected.
    async fn difference<F: FileSystem>(&self, fs: &F) -> Option<String> {
        let mut names = Vec::new();
        let mut each = |entry: ordo_vfs::DirEntry<'_>| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        };
        if let Err(error) = fs.readdir(fs.root(), ordo_vfs::Cookie::START, &mut each).await {
            return Some(error.to_string());
        }
        names.retain(|name| name.starts_with('d'));
        names.sort();
        let mut expected: Vec<String> = self.batches.keys().map(|id| format!("d{id}")).collect();
        expected.sort();
        if names != expected {
            return Some(format!("{names:?} instead of {expected:?}"));
        }
        for (id, seed) in &self.batches {
            if let Err(wrong) = self.batch(fs, *id, *seed).await {
                return Some(format!("d{id}: {wrong}"));
            }
        }
        None
    }

    async fn batch<F: FileSystem>(&self, fs: &F, id: u64, seed: u64) -> Result<(), String> {
        let dir = fs.lookup(fs.root(), format!("d{id}").as_bytes()).await;
        let dir = dir.map_err(|e| e.to_string())?.ino;
        for link in 0..self.links() {
            let found = fs.lookup(dir, format!("l{link}").as_bytes()).await;
            let found = found.map_err(|e| format!("l{link}: {e}"))?.ino;
            let read = fs.readlink(found).await.map_err(|e| format!("l{link}: {e}"))?;
            if read != target(seed, link, self.shape.target) {
                return Err(format!("l{link} has another target"));
            }
        }
        Ok(())
    }
}

/// Destroys the superblock of the newest checkpoint.
async fn spoil(image: &Rc<RamDisk>) {
    let newest = find_kind(&image.clone().erase(), VolumeKind::Dual).await.expect("it is whole");
    image.store(newest.at, &[0xff; SUPERBLOCK_SIZE]);
}

async fn made(rt: &Runtime, shape: Shape, options: &MountOptions) -> (Vec<Rc<RamDisk>>, DualFs) {
    let segment = u64::from(shape.block * shape.segment_blocks);
    let bytes = [LABEL_BYTES + SEGMENTS * segment, DATA_BLOCKS * u64::from(shape.block)];
    let bytes = bytes.map(|bytes| bytes.next_multiple_of(8192));
    let disks = bytes.map(|bytes| Rc::new(RamDisk::new(bytes))).to_vec();
    let devices: Vec<Device> = disks.iter().map(|disk| disk.clone().erase()).collect();
    let (block, segment_blocks) = (shape.block, shape.segment_blocks);
    let sizes = Sizes { block, segment_blocks, group_blocks: 32, blocks: DATA_BLOCKS, copy: 0 };
    make(rt, &devices, sizes).await;
    let fs = mount(rt, &devices, options).await.expect("just made");
    (disks, fs)
}

/// Works in a full metadata log: batches of links are removed, a checkpoint is made, and others are
/// written. Whenever these are durable without a second checkpoint, the links are read from the
/// checkpoint before the newest one. Returns the first error.
fn reuse(seed: u64, shape: Shape, log_rules: LfsRules) -> Option<String> {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let never = Cleaning { idle: None, every: CleanEvery::Off, ..Cleaning::default() };
    let options = MountOptions { log_rules, cleaning: never, ..MountOptions::default() };
    let ran = executor.block_on(async {
        let (disks, fs) = made(&rt, shape, &options).await;
        let rng = Pcg64Mcg::seed_from_u64(seed);
        let mut run = Links { fs, rng, shape, batches: BTreeMap::new(), next: 1 };
        while run.batches.len() < shape.batches {
            run.create().await;
        }
        let mut looked = 0;
        for round in 0..ROUNDS {
            let count = 1 + round % 2;
            for _ in 0..count {
                run.delete().await;
            }
            run.fs.sync().await.expect("sync has space");
            let before = run.fs.layout().checkpoints();
            for _ in 0..count {
                run.create().await;
            }
            run.fs.fsync(run.fs.root()).await.expect("fsync has space");
            if run.fs.layout().checkpoints() != before {
                continue;
            }
            looked += 1;
            let images: Vec<Rc<RamDisk>> =
                disks.iter().map(|disk| Rc::new(disk.snapshot())).collect();
            spoil(&images[0]).await;
            let images: Vec<Device> = images.iter().map(|disk| disk.clone().erase()).collect();
            let wrong = match mount(&rt, &images, &options).await {
                Ok(fs) => run.difference(&fs).await,
                Err(error) => Some(error.to_string()),
            };
            if let Some(wrong) = wrong {
                return Some(format!("round {round}: {wrong}"));
            }
        }
        run.fs.unmount().await.expect("a healthy device");
        let devices: Vec<Device> = disks.iter().map(|disk| disk.clone().erase()).collect();
        let report = DualChecker::new(&devices, Repair::No).run().await.expect("a healthy device");
        assert!(report.is_consistent(), "{:?}", report.findings);
        println!("{shape:?}, seed {seed}: looked {looked} times");
        assert!(looked > 2, "hardly ever was anything looked for: {looked} times");
        None
    });
    ran.expect("no deadlock")
}

#[test]
fn a_metadata_segment_is_written_again_only_when_two_checkpoints_call_it_empty() {
    for (seed, shape) in (0..).zip(SHAPES) {
        assert_eq!(reuse(seed, shape, LfsRules::all()), None, "{shape:?}");
    }
}

#[test]
fn metadata_is_missed_when_its_segment_is_written_again_at_once() {
    let rules = LfsRules::all().difference(LfsRules::REUSE);
    for shape in SHAPES {
        let wrong = (0..20).find_map(|seed| reuse(seed, shape, rules));
        println!("{shape:?}: {wrong:?}");
        assert!(wrong.is_some(), "{shape:?}: nothing misses REUSE");
    }
}
