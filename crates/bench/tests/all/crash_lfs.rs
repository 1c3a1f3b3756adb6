//! A log that is nearly full is crashed.
//!
//! Fault model: the honest disks of `docs/crash-model.md`, on the shapes of `ordo crash --geometry` that mean little space or
//! longer segments. Would catch a shape that is not full, and a segment that is written again while a state that a crash
//! may leave needs it.

use std::rc::Rc;

use ordo_bench::crash::{CrashWork, subject};
use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_crash::{Budget, Config, CrashModel, FsGeometry, Scheme};
use ordo_runtime::Executor;
use ordo_systems::{MountOptions, lfs};
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
