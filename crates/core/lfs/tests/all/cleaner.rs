//! The cleaner: the segments that it chooses, the places of its blocks, and the times at which it
//! works.
//!
//! Fault model: an idle cleaner that works while the file system is used, never works, or never
//! stops; a cleaner that moves blocks that will soon be dead together with blocks that will live.
//! Each test reads back everything that it wrote.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{CleanEvery, CleanerPolicy, Cleaning, LogFs, MountOptions, mount};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::{FileSystem, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SEGMENT: u32 = 128 << 10;
const SEGMENTS: u64 = 240;
const BLOCK: usize = 4096;

struct Log {
    rt: Runtime,
    disk: Rc<RamDisk>,
    fs: LogFs,
}

impl Log {
    async fn new(rt: Runtime, cleaning: Cleaning) -> Log {
        let disk = Rc::new(RamDisk::new(8192 + SEGMENTS * u64::from(SEGMENT)));
        let made = MkfsOptions {
            block_size: BLOCK as u32,
            frag_size: 512,
            segment_size: SEGMENT,
            ..MkfsOptions::default()
        };
        mkfs(disk.clone().erase(), &made, 1).await.expect("legal sizes");
        let cache = CacheConfig::with_capacity(1 << 20);
        let options = MountOptions { cache, cleaning, ..MountOptions::default() };
        let fs = mount(&rt, disk.clone(), &options).await.expect("just made");
        Log { rt, disk, fs }
    }

    async fn file(&self, number: u64, blocks: u64) -> Ino {
        let name = format!("f{number}").into_bytes();
        let made = self.fs.create(self.fs.root(), &name, &NewNode::file(0o644)).await;
        let ino = made.expect("there is space").ino;
        for block in 0..blocks {
            self.put(ino, block, number).await;
        }
        ino
    }

    async fn put(&self, ino: Ino, block: u64, tag: u64) {
        let data = (tag << 20 | block).to_le_bytes().repeat(BLOCK / 8);
        let written = self.fs.write(ino, block * BLOCK as u64, &data).await;
        assert_eq!(written.expect("there is space"), BLOCK);
    }

    async fn has(&self, ino: Ino, block: u64, tag: u64) {
        let mut found = [0; BLOCK];
        let at = block * BLOCK as u64;
        assert_eq!(self.fs.read(ino, at, &mut found).await.expect("it can be read"), BLOCK);
        let wanted = (tag << 20 | block).to_le_bytes().repeat(BLOCK / 8);
        assert!(found[..] == wanted[..], "inode {ino}, block {block}");
    }

    /// Writes files and removes every second one. Returns those that are left, with their numbers.
    async fn half_dead(&self) -> Vec<(u64, Ino)> {
        let mut kept = Vec::new();
        for number in 0..600 {
            let ino = self.file(number, 8).await;
            if number % 2 == 0 {
                kept.push((number, ino));
            }
        }
        self.fs.sync().await.expect("there is space");
        for number in (1..600).step_by(2) {
            let name = format!("f{number}").into_bytes();
            self.fs.unlink(self.fs.root(), &name).await.expect("deletes go through");
        }
        kept
    }

    async fn end(self, kept: &[(u64, Ino)]) {
        for (number, ino) in kept {
            self.has(*ino, 7, *number).await;
        }
        self.fs.unmount().await.expect("there is space");
        let report = LfsChecker::new(self.disk.clone(), Repair::No).run().await;
        let report = report.expect("it can be checked");
        assert!(report.is_consistent(), "{:#?}", report.findings.first());
    }
}

fn run(scenario: impl AsyncFnOnce(Runtime)) {
    let executor = Executor::simulated(3);
    let rt = executor.runtime();
    executor.block_on(scenario(rt)).expect("no deadlock");
}

fn idle_after(seconds: u64, clean_low: u8) -> Cleaning {
    Cleaning { idle: Some(Duration::from_secs(seconds)), clean_low, ..Cleaning::default() }
}

/// After a pause, as many half-dead segments are clean as the option asks for. Then no task runs
/// any more: however much time goes by, there is no other pass.
#[test]
fn the_cleaner_works_while_the_file_system_is_idle() {
    run(async |rt| {
        let log = Log::new(rt, idle_after(5, 90)).await;
        let kept = log.half_dead().await;
        assert_eq!(log.fs.layout().cleaned().segments, 0, "nothing had to be cleaned");
        log.rt.sleep(Duration::from_secs(60)).await;
        let cleaned = log.fs.layout().cleaned();
        assert!(cleaned.idle_segments >= 20, "{cleaned:?}");
        assert_eq!(cleaned.idle_segments, cleaned.segments);
        assert_eq!(cleaned.waited_nanos, 0, "nobody waited for it");
        assert!(log.fs.layout().clean_percent() >= 90, "{}", log.fs.layout().clean_percent());
        log.rt.sleep(Duration::from_secs(100_000)).await;
        assert_eq!(log.fs.layout().cleaned(), cleaned);
        log.end(&kept).await;
    });
}

/// Nothing is cleaned if there are enough clean segments, if idle cleaning is switched off, or
/// while changes and reads come more often than the pause is long.
#[test]
fn the_idle_cleaner_rests_while_the_file_system_is_used() {
    let off = Cleaning { idle: None, ..idle_after(5, 90) };
    for (cleaning, pause) in [(idle_after(5, 10), 60), (off, 60), (idle_after(5, 90), 4)] {
        run(async |rt| {
            let log = Log::new(rt, cleaning).await;
            let kept = log.half_dead().await;
            for (round, (number, ino)) in kept.iter().take(30).enumerate() {
                log.rt.sleep(Duration::from_secs(pause)).await;
                match round % 2 {
                    0 => log.put(*ino, 3, *number).await,
                    // The file was written long ago: the cache does not have it.
                    _ => log.has(*ino, 3, *number).await,
                }
                let cleaned = log.fs.layout().cleaned();
                assert_eq!(cleaned.segments, 0, "{cleaning:?}, round {round}");
            }
            log.end(&kept).await;
        });
    }
}

fn every(seconds: u64, busy_low: u8) -> Cleaning {
    let every = CleanEvery::After(Duration::from_secs(seconds));
    Cleaning { idle: None, every, busy_low, ..Cleaning::default() }
}

/// Changes a file each second, for a minute. Returns the segments that were cleaned after each
/// change.
async fn used_for_a_minute(log: &Log, kept: &[(u64, Ino)]) -> Vec<u64> {
    let mut cleaned = Vec::new();
    for (number, ino) in kept.iter().take(60) {
        log.rt.sleep(Duration::from_secs(1)).await;
        log.put(*ino, 3, *number).await;
        cleaned.push(log.fs.layout().cleaned().segments);
    }
    cleaned
}

/// While the file system is used without a pause, the cleaner makes a pass every five seconds until
/// the option's share of the free space is in clean segments, and no operation waits for it. Then
/// no task runs any more. Would catch a cleaner that waits until space is short, one that never
/// stops, and one that works at every operation.
#[test]
fn the_cleaner_works_every_few_seconds_when_clean_segments_run_low() {
    run(async |rt| {
        let log = Log::new(rt, every(5, 90)).await;
        let kept = log.half_dead().await;
        let cleaned = used_for_a_minute(&log, &kept).await;
        assert!(cleaned[2] == 0 && cleaned[8] > 0, "{cleaned:?}");
        let mut passes = cleaned.clone();
        passes.dedup();
        assert!(passes.len() <= 13, "more than a pass in five seconds: {cleaned:?}");
        assert!(cleaned[59] >= 20, "{cleaned:?}");
        let counts = log.fs.layout().cleaned();
        assert_eq!((counts.waited_nanos, counts.idle_segments), (0, 0), "{counts:?}");
        assert!(log.fs.layout().clean_percent() >= 85, "{}", log.fs.layout().clean_percent());
        log.rt.sleep(Duration::from_secs(100_000)).await;
        let before = log.fs.layout().cleaned();
        log.rt.sleep(Duration::from_secs(100_000)).await;
        assert_eq!(log.fs.layout().cleaned(), before);
        log.end(&kept).await;
    });
    for cleaning in [every(5, 1), Cleaning { every: CleanEvery::Off, ..every(5, 90) }] {
        run(async |rt| {
            let log = Log::new(rt, cleaning).await;
            let kept = log.half_dead().await;
            assert_eq!(used_for_a_minute(&log, &kept).await[59], 0, "{cleaning:?}");
            log.end(&kept).await;
        });
    }
}

/// A pass that is under way at an unmount ends before the unmount returns, and no other pass
/// begins.
#[test]
fn an_unmount_ends_idle_cleaning() {
    run(async |rt| {
        let log = Log::new(rt.clone(), idle_after(5, 90)).await;
        let kept = log.half_dead().await;
        log.rt.sleep(Duration::from_nanos(5_000_000_001)).await;
        let disk = log.disk.clone();
        log.end(&kept).await;
        let before = disk.to_vec();
        rt.sleep(Duration::from_secs(1000)).await;
        assert!(disk.to_vec() == before, "written after the unmount");
    });
}

/// The number of bytes that are moved for each byte that is overwritten. One file in ten gets nine
/// of ten writes.
fn moved_for_each(policy: CleanerPolicy) -> f64 {
    let executor = Executor::simulated(3);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let log = Log::new(rt, Cleaning { idle: None, ..Cleaning::by(policy) }).await;
        let mut files = Vec::new();
        loop {
            let number = files.len() as u64;
            files.push((number, log.file(number, 8).await));
            let stat = log.fs.statfs().await.expect("mounted");
            if stat.blocks_free < stat.blocks / 5 {
                break;
            }
        }
        let (mut rng, count) = (Pcg64Mcg::seed_from_u64(7), files.len());
        let before = log.fs.layout().cleaned();
        const WRITES: u64 = 30_000;
        for n in 0..WRITES {
            let tenth = rng.random_range(0..count / 10);
            let other = if rng.random_range(0..10) > 0 { 0 } else { rng.random_range(1..10) };
            let (number, ino) = files[10 * tenth + other];
            log.put(ino, rng.random_range(0..8), number).await;
            if n % 64 == 0 {
                log.rt.sleep(Duration::from_millis(100)).await;
            }
        }
        let moved = log.fs.layout().cleaned().since(before).moved_bytes;
        log.end(&files).await;
        moved as f64 / (WRITES * BLOCK as u64) as f64
    });
    ran.expect("no deadlock")
}

/// If some blocks are hot and most are cold, fewer bytes are moved when the cleaner separates them.
/// Would catch ages that are lost when blocks are moved, and moved blocks that are not sorted.
#[test]
fn separating_hot_from_cold_blocks_moves_fewer_bytes() {
    let [greedy, benefit, apart] = CleanerPolicy::ALL.map(moved_for_each);
    eprintln!("moved for each byte: greedy {greedy:.2}, cost-benefit {benefit:.2}, {apart:.2}");
    assert!(greedy > 0.3, "cleaning is work: {greedy:.2}");
    assert!(benefit < 0.7 * greedy, "greedy {greedy:.2}, cost-benefit {benefit:.2}");
    assert!(apart < 0.9 * benefit, "cost-benefit {benefit:.2}, hot-cold {apart:.2}");
}

/// Options are set from text. A wrong value is refused with the values that are allowed.
#[test]
fn options_of_the_cleaner_are_set_from_text() {
    let mut cleaning = Cleaning::default();
    for policy in CleanerPolicy::ALL {
        assert_eq!(cleaning.set("cleaner", policy.name()), Ok(()));
        assert_eq!(cleaning.policy, policy);
    }
    cleaning.set("idle", "0.25").unwrap();
    cleaning.set("clean-low", "7").unwrap();
    assert_eq!((cleaning.idle, cleaning.clean_low), (Some(Duration::from_millis(250)), 7));
    cleaning.set("idle", "off").unwrap();
    assert_eq!(cleaning.idle, None);
    assert_eq!(cleaning.every.or(None), None);
    cleaning.set("clean-every", "2").unwrap();
    cleaning.set("busy-low", "3").unwrap();
    assert_eq!((cleaning.every.or(None), cleaning.busy_low), (Some(Duration::from_secs(2)), 3));
    cleaning.set("clean-every", "off").unwrap();
    assert_eq!(cleaning.every.or(Some(Duration::from_secs(5))), None);
    for (key, value) in [
        ("cleaner", "lazy"),
        ("idle", "0"),
        ("idle", "nan"),
        ("clean-low", "101"),
        ("clean-every", "-1"),
        ("busy-low", "101"),
        ("speed", "9"),
    ] {
        let error = cleaning.set(key, value).unwrap_err().to_string();
        assert!(error.contains(if key == "speed" { "idle" } else { "expected" }), "{error}");
    }
}
