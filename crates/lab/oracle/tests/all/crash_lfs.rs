//! A log that is nearly full is crashed.
//!
//! Fault model: the honest disks of `docs/crash-model.md`, on the shapes of `ordo crash --geometry`
//! that mean little space or longer segments. Would catch a shape that is not full, and a segment
//! that is written again while a state that a crash may leave needs it.

use std::rc::Rc;

use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_compare::crash::{CrashWork, subject};
use ordo_crash::mutants::Search;
use ordo_crash::recording::HistoryRecorder;
use ordo_crash::{Budget, Config, CrashModel, FsGeometry, RunWorkload, Scheme, Script};
use ordo_runtime::Executor;
use ordo_systems::{MountOptions, System, dualfs, lfs};
use ordo_vfs::FileSystem;

const SHAPES: [&str; 4] = ["4k-512-full", "8k-1k-full", "16k-2k-full", "4k-512-groups"];

/// Other files leave as much space as the shape says.
#[test]
fn a_full_shape_is_full() {
    for name in SHAPES.into_iter().filter(|name| name.ends_with("full")) {
        let shape = FsGeometry::by_name(name).unwrap();
        let scheme = lfs::LFS.crashed(None, &shape).unwrap();
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let ran = executor.block_on(async {
            let rams = scheme.devices().into_iter().map(|bytes| Rc::new(RamDisk::new(bytes)));
            let disks = Device::of_each(&rams.collect::<Vec<_>>());
            scheme.make(&rt, &disks).await.unwrap();
            let mounted = lfs::LFS.mount(&rt, &disks, &MountOptions::default()).await.unwrap();
            let fs = mounted.fs();
            let stat = fs.statfs().await.unwrap();
            let free = stat.blocks_free * u64::from(stat.fragment_size);
            let most = shape.bytes + 12 * u64::from(shape.block_size);
            assert!((shape.bytes..most).contains(&free), "{name}: {free} bytes are free");
            mounted.unmount().await.unwrap();
        });
        ran.unwrap();
    }
}

#[test]
fn a_full_log_keeps_its_promise() {
    let mut states = 0;
    for name in SHAPES {
        let shape = FsGeometry::by_name(name).unwrap();
        let subject = subject(lfs::LFS, None, &shape).unwrap();
        for (seed, model) in [(1, CrashModel::Completed), (2, CrashModel::Volatile)] {
            let text = "postmark:small,files=12,transactions=60,directories=2,min=200,max=6000";
            let doing = CrashWork::Bench(text.parse().unwrap(), seed);
            let run = subject.record(&doing, &Config::new(seed, model)).unwrap();
            let budget = Budget { states: 600, usable_every: 50, ..Budget::default() };
            let outcome = subject.explore(&run, seed, &budget);
            outcome.expect_kept(&format!("{name}, {model:?}"));
            states += outcome.counts.states;
        }
    }
    assert!(states > 1500, "{states}");
}

/// The number of segments that the cleaner makes clean while a script runs on a new file system of
/// a shape.
fn cleaned(system: System, shape: &FsGeometry, script: &Script) -> u64 {
    let scheme = system.crashed(None, shape).unwrap();
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let rams = scheme.devices().into_iter().map(|bytes| Rc::new(RamDisk::new(bytes)));
        let disks = Device::of_each(&rams.collect::<Vec<_>>());
        scheme.make(&rt, &disks).await.unwrap();
        let cache = Config::new(1, CrashModel::Volatile).cache;
        let options = MountOptions { cache, ..MountOptions::default() };
        let mounted = system.mount(&rt, &disks, &options).await.unwrap();
        let recorder = HistoryRecorder::new(mounted.fs().root(), || 0);
        let client = |number| recorder.watch(mounted.fs().clone(), number);
        script.run(&rt, &client).await.unwrap();
        let cleaner = mounted.statistics().cleaner.expect("a log has a cleaner");
        mounted.unmount().await.unwrap();
        cleaner.counts.segments
    });
    ran.unwrap()
}

/// Files are written over until the log has gone round, in little space and in much, while crashes
/// are explored. Would catch a cleaner that moves a block and leaves a pointer to where it was, and
/// data that a checkpoint needs in a segment that is written again. The script has to make the
/// cleaner work, or this would show nothing.
#[test]
fn a_log_that_is_being_cleaned_keeps_its_promise() {
    let (mut states, mut segments) = (0, 0);
    for system in [lfs::LFS, dualfs::DUALFS] {
        for name in ["4k-512-full", "8k-1k-full", "16k-2k-full"] {
            let shape = FsGeometry::by_name(name).unwrap();
            let script = Script::overwrites(4, 2, 250, shape.block_size);
            let cleaned = cleaned(system, &shape, &script);
            println!("{} {name}: {cleaned} segments cleaned", system.name());
            segments += cleaned;
            let subject = subject(system, None, &shape).unwrap();
            let doing = CrashWork::Script(script);
            for (seed, model) in [(1, CrashModel::Completed), (2, CrashModel::Volatile)] {
                let run = subject.record(&doing, &Config::new(seed, model)).unwrap();
                let budget = Budget { states: 300, usable_every: 50, ..Budget::default() };
                let outcome = subject.explore(&run, seed, &budget);
                outcome.expect_kept(&format!("{}, {name}, {model:?}", system.name()));
                states += outcome.counts.states;
            }
        }
    }
    assert!(states > 3000 && segments > 20, "{states} states, {segments} segments");
}

/// Rules that this search leaves to others: `CHAIN` to `crates/core/lfs/tests/all/crash.rs`, and
/// those that matter in a form of their own to `crates/judge/crash/tests/all/forms.rs`; `COPIED` to
/// `crates/core/dualfs/tests/all/salvage.rs`; `DATASYNC_KEEPS_SIZE` to
/// `crates/judge/crash/tests/all/datasync.rs`.
const ELSEWHERE: [&str; 6] =
    ["BLOCKS_FIRST", "CHAIN", "COPIED", "COPY_FIRST", "DATASYNC_KEEPS_SIZE", "REUSE"];

/// The explorer sees each rule of a log that is off, and the rule by which DualFS keeps freed data
/// blocks until the log no longer needs them. Would catch a choice of states or scripts that misses
/// one.
#[test]
fn a_rule_of_a_log_that_is_off_is_missed_in_each_shape() {
    let search = Search { seed: 4, states: 4000, ..Search::default() };
    for name in ["8k-1k", "16k-2k", "8k-1k-full"] {
        let shape = FsGeometry::by_name(name).unwrap();
        for system in [lfs::LFS, dualfs::DUALFS] {
            for rule in system.rules().into_iter().filter(|rule| !ELSEWHERE.contains(rule)) {
                let mutant = system.crashed(None, &shape).unwrap().without(rule);
                let sought = search.scheme(&mutant, &shape).unwrap();
                println!("{} {name} {rule}: {} states", system.name(), sought.states);
                assert!(sought.found.is_some(), "{name}, without {rule}: {sought:?}");
            }
        }
    }
}
