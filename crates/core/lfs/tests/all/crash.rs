//! A crashed log comes back as it was after some step: the last one that was made durable, or a
//! later one.
//!
//! Fault models: the power fails at any time, and any part of the disk's cache is lost, with torn
//! sectors; the newest superblock cannot be read after so much work that segments were written
//! again; the newest superblock cannot be read while the cleaner works in a full log, so that
//! segments are written again as soon as possible. Each rule of the log is switched off in turn, on
//! several sizes of segments, blocks and fragments. Then a wrong state must be found: a rule that
//! is switched off without any effect is not needed.

use std::rc::Rc;

use crate::churn::{Run, SHAPES, Shape};
use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_block::volatile::{Loss, VolatileCache};
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_format::lfs::{LABEL_BYTES, Superblock};
use ordo_lfs::has_seals;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{LfsRules, MountOptions, mount};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::tree::{CompareOptions, compare};
use ordo_vfs::{FileSystem, FsResult, NewNode, RenameMode, SetAttr, Timestamp};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Sizes of a log's parts.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    segment: u32,
    block: u32,
    fragment: u32,
}

const SIZES: [Sizes; 3] = [
    Sizes { segment: 32 << 10, block: 4096, fragment: 512 },
    Sizes { segment: 48 << 10, block: 4096, fragment: 1024 },
    Sizes { segment: 32 << 10, block: 8192, fragment: 1024 },
];

/// The number of segments of a log.
const SEGMENTS: u64 = 128;
/// The number of segments of a log that soon writes its segments again.
const FEW_SEGMENTS: u64 = 85;

fn clock(rt: &Runtime) -> impl Fn() -> Timestamp + 'static {
    let rt = rt.clone();
    move || {
        let (seconds, nanos) = rt.wall_time();
        Timestamp { seconds, nanos }
    }
}

/// Carries out a random step, which the seed determines, in the root or in its one directory.
async fn step<F: FileSystem>(fs: &F, seed: u64) -> FsResult<()> {
    let rng = &mut Pcg64Mcg::seed_from_u64(seed);
    let name = |rng: &mut Pcg64Mcg| format!("f{}", rng.random_range(0..12)).into_bytes();
    let (one, other) = (name(rng), name(rng));
    let mut data = vec![0; rng.random_range(1..30_000)];
    rng.fill_bytes(&mut data);
    let (kind, offset) = (rng.random_range(0..10), rng.random_range(0..90_000));
    let root = fs.root();
    match kind {
        0 | 1 => fs.create(root, &one, &NewNode::file(0o644)).await.map(drop),
        2 => fs.create(root, &one, &NewNode::directory(0o755)).await.map(drop),
        3 => fs.unlink(root, &one).await,
        4 => fs.rmdir(root, &one).await,
        5 => fs.rename(root, &one, root, &other, RenameMode::Replace).await,
        6 => {
            let ino = fs.lookup(root, &one).await?.ino;
            let set = SetAttr { size: Some(offset), ..SetAttr::default() };
            fs.setattr(ino, &set).await.map(drop)
        }
        _ => {
            let ino = fs.lookup(root, &one).await?.ino;
            fs.write(ino, offset, &data).await.map(drop)
        }
    }
}

async fn differences<F: FileSystem, G: FileSystem>(a: &F, b: &G) -> Result<Vec<String>, String> {
    let options = CompareOptions { xattrs: false, ..CompareOptions::default() };
    let found = compare((a, a.root()), (b, b.root()), &options, &mut |_| {}).await;
    let found = found.map_err(|e| e.to_string())?;
    Ok(found.differences.iter().map(ToString::to_string).collect())
}

/// The fate of the disk at a power cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Any part of the disk's cache is lost.
    Torn,
    /// Any part of the disk's cache is lost, and the log has no seals.
    TornUnsealed,
    /// After much work, the superblock of the newest checkpoint cannot be read, so the one before
    /// it is used.
    Spoilt,
}

/// Destroys the superblock of the newest checkpoint.
fn spoil(image: &RamDisk) {
    let read = |at: u64| {
        let mut bytes = [0; 512];
        image.load(at, &mut bytes);
        Superblock::read(&bytes)
    };
    let first = read(LABEL_BYTES).expect("it is whole");
    let at = first.byte_of(first.sboffs[1]);
    let second = read(at).expect("it is whole");
    let newest = if second.serial > first.serial { at } else { LABEL_BYTES };
    image.store(newest, &[0xff; 512]);
}

fn made(sizes: Sizes, fate: Fate) -> MkfsOptions {
    MkfsOptions {
        sealed: fate != Fate::TornUnsealed,
        block_size: sizes.block,
        frag_size: sizes.fragment,
        segment_size: sizes.segment,
        ..MkfsOptions::default()
    }
}

/// Works on a log, crashes it, and mounts it again. The error says why the state that is found is
/// wrong.
fn crash(seed: u64, sizes: Sizes, rules: LfsRules, fate: Fate) -> Result<(), String> {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let segments = if fate == Fate::Spoilt { FEW_SEGMENTS } else { SEGMENTS };
    let bytes = LABEL_BYTES + segments * u64::from(sizes.segment);
    let disk = Rc::new(VolatileCache::new(RamDisk::new(bytes)));
    let options = MountOptions {
        cache: CacheConfig::with_capacity(256 << 10),
        rules,
        ..MountOptions::default()
    };
    let ran = executor.block_on(async {
        mkfs(disk.clone().erase(), &made(sizes, fate), 0).await.expect("legal sizes");
        let fs = mount(&rt, disk.clone(), &options).await.expect("just made");
        let model = ModelFs::new(ModelConfig::ufs2(4096), clock(&rt));
        let mut models = vec![model.fork(clock(&rt))];
        let steps = 20 + seed % 90 + if fate == Fate::Spoilt { 900 } else { 0 };
        for n in 0..steps {
            let nth = seed << 32 | n;
            let (ours, theirs) = (step(&fs, nth).await, step(&model, nth).await);
            assert_eq!(ours.map_err(|e| e.errno), theirs.map_err(|e| e.errno), "{seed}, {n}");
            models.push(model.fork(clock(&rt)));
            match n % 13 {
                6 => fs.fsync(fs.root()).await.expect("a healthy device"),
                12 => fs.sync().await.expect("a healthy device"),
                _ => {}
            }
            if n % 13 == 6 || n % 13 == 12 {
                models.drain(..models.len() - 1);
            }
            if n % 23 == 22 {
                rt.sleep(Duration::from_secs(31)).await;
            }
        }
        // A part of the writes for which no task waits is made too.
        rt.sleep(Duration::from_secs(29)).await;
        models
    });
    let models = ran.expect("no deadlock");
    let image = match fate {
        Fate::Torn | Fate::TornUnsealed => disk.crash_image_seeded(Loss::Subset, seed),
        Fate::Spoilt => {
            let image = disk.crash_image_seeded(Loss::Nothing, seed);
            spoil(&image);
            image
        }
    };
    drop((executor, rt));
    let executor = Executor::simulated(seed + 1);
    let rt = executor.runtime();
    let options = MountOptions::default();
    let found = executor.block_on(async {
        let disk = Rc::new(image);
        let fs = mount(&rt, disk.clone(), &options).await.map_err(|e| e.to_string())?;
        is_one_of(&fs, &models).await?;
        fs.create(fs.root(), b"after", &NewNode::file(0o600)).await.map_err(|e| e.to_string())?;
        fs.unmount().await.map_err(|e| e.to_string())?;
        let sealed = has_seals(&disk.clone().erase()).await.map_err(|e| e.to_string())?;
        assert_eq!(sealed, fate != Fate::TornUnsealed && rules.contains(LfsRules::SEAL));
        let report = LfsChecker::new(disk, Repair::No).run().await.map_err(|e| e.to_string())?;
        if report.is_consistent() { Ok(()) } else { Err(format!("{:?}", report.findings)) }
    });
    found.map_err(|deadlock| deadlock.to_string())?
}

/// Checks that a file system has one of the states `models`, the newest of which is first.
async fn is_one_of<F: FileSystem>(fs: &F, models: &[ModelFs]) -> Result<(), String> {
    let mut found = Err("no step at all".to_owned());
    for model in models.iter().rev() {
        let differ = differences(fs, model).await?;
        found = if differ.is_empty() { Ok(()) } else { Err(differ.join("; ")) };
        if found.is_ok() {
            break;
        }
    }
    found
}

fn comes_back(fate: Fate, seeds: u64) {
    for sizes in SIZES {
        for seed in 0..seeds {
            if let Err(wrong) = crash(seed, sizes, LfsRules::all(), fate) {
                panic!("{sizes:?}, seed {seed}: {wrong}");
            }
        }
    }
}

#[test]
fn a_crashed_log_comes_back_as_after_some_step() {
    comes_back(Fate::Torn, 150);
}

/// A log that was made without seals gets none later. A crash loses nothing durable, since each
/// write-out is: blocks, flush, summaries, flush.
#[test]
fn a_crashed_log_without_seals_comes_back_as_after_some_step() {
    comes_back(Fate::TornUnsealed, 150);
}

#[test]
fn the_checkpoint_before_the_newest_is_enough() {
    comes_back(Fate::Spoilt, 25);
}

/// Checks that without a rule some crash leaves a state that no step made.
fn is_missed(rule: LfsRules, fate: Fate, seeds: u64) {
    let rules = LfsRules::all().difference(rule);
    for sizes in SIZES {
        let is_broken = |seed: u64| crash(seed, sizes, rules, fate).is_err();
        assert!((0..seeds).any(is_broken), "{sizes:?}: nothing misses {rule:?}");
    }
}

#[test]
fn a_torn_partial_segment_counts_without_a_seal() {
    is_missed(LfsRules::SEAL, Fate::Torn, 400);
}

/// NetBSD's checksum covers only four bytes of each block. If a summary is durable before its
/// blocks, torn blocks count.
#[test]
fn a_torn_block_counts_where_a_summary_without_a_seal_comes_first() {
    is_missed(LfsRules::BLOCKS_FIRST, Fate::TornUnsealed, 1000);
}

#[test]
fn half_a_write_out_counts_without_a_chain() {
    is_missed(LfsRules::CHAIN, Fate::Torn, 400);
}

#[test]
fn a_superblock_leads_nowhere_without_a_flush() {
    is_missed(LfsRules::FLUSH, Fate::Torn, 400);
}

/// Works on a full log whose files have some segments each: one or two files are removed, a
/// checkpoint is made, and others are written. Whenever this is durable without a second
/// checkpoint, the files are read from the checkpoint before the newest one. Returns the first
/// error.
fn reuse(seed: u64, shape: Shape, rules: LfsRules) -> Option<String> {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let mut run = Run::new(rt.clone(), shape, seed, rules).await;
        let (len, mut looked) = (3 * shape.segment as usize, 0);
        run.fill(0.1).await;
        while run.used().await < 0.85 {
            run.create(len).await;
        }
        for round in 0..60 {
            run.step(0.9).await;
            // Two files reach more segments, and one leaves more often no need of a checkpoint.
            let count = 1 + round % 2;
            for _ in 0..count {
                run.delete().await;
            }
            run.fs.sync().await.expect("sync has space");
            let before = run.fs.layout().checkpoints();
            for _ in 0..count {
                run.create(len).await;
            }
            run.fs.fsync(run.fs.root()).await.expect("fsync has space");
            if run.fs.layout().checkpoints() != before {
                continue;
            }
            looked += 1;
            let image = run.disk.snapshot();
            spoil(&image);
            let options = MountOptions { rules, ..MountOptions::default() };
            let wrong = match mount(&rt, Rc::new(image), &options).await {
                Ok(fs) => run.difference(&fs).await,
                Err(error) => Some(error.to_string()),
            };
            if let Some(wrong) = wrong {
                return Some(format!("round {round}: {wrong}"));
            }
        }
        run.remount(true).await;
        assert!(looked > 2, "hardly ever was anything looked for: {looked} times");
        None
    });
    ran.expect("no deadlock")
}

#[test]
fn a_segment_is_written_again_only_when_two_checkpoints_call_it_empty() {
    for (seed, shape) in (0..).zip(SHAPES) {
        assert_eq!(reuse(seed, shape, LfsRules::all()), None, "{shape:?}");
    }
}

#[test]
fn a_segment_is_missed_when_it_is_written_again_at_once() {
    let rules = LfsRules::all().difference(LfsRules::REUSE);
    for shape in SHAPES {
        let is_broken = |seed: u64| reuse(seed, shape, rules).is_some();
        assert!((0..40).any(is_broken), "{shape:?}: nothing misses REUSE");
    }
}
