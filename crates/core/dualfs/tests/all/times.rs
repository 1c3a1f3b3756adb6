//! The times of section 2.1: the log is written every 5 seconds, a checkpoint every 60, and the
//! cleaner looks every 5 seconds whether clean segments run low.
//!
//! Would catch a log that is written late, so that more than 5 seconds of work are lost; a
//! checkpoint that never comes, or comes with each write-out; and a cleaner that waits until space
//! is short.

use ordo_block::ram::RamDisk;
use ordo_block::tap::{Recorder, Tap};
use ordo_block::{BlockDevice, Device, Operation};
use ordo_dualfs::DualFs;
use ordo_dualfs::mkfs::{MkfsOptions, mkfs};
use ordo_dualfs::mount::{MountOptions, mount};
use ordo_lfs::write::{CleanEvery, Cleaning};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::{FileSystem, NewNode};
use std::rc::Rc;

/// A new pair, mounted, and the requests to its metadata device.
async fn mounted(rt: &Runtime, cleaning: Cleaning) -> (DualFs, Rc<Recorder>) {
    let tap = Rc::new(Tap::new(rt, RamDisk::new(24 << 20)));
    let seen = Recorder::new(true);
    tap.attach(seen.clone());
    let disks: Vec<Device> = vec![tap.erase(), RamDisk::new(64 << 20).erase()];
    mkfs(rt, &disks, &MkfsOptions::default()).await.expect("legal sizes");
    let options = MountOptions { cleaning, ..MountOptions::default() };
    let fs = mount(rt, &disks, &options).await.expect("just made");
    seen.take();
    (fs, seen)
}

async fn create(fs: &DualFs, name: &str) {
    fs.create(fs.root(), name.as_bytes(), &NewNode::file(0o644)).await.expect("there is space");
}

fn run(scenario: impl AsyncFnOnce(Runtime)) {
    let executor = Executor::simulated(5);
    let rt = executor.runtime();
    executor.block_on(scenario(rt)).expect("no deadlock");
}

#[test]
fn the_log_is_written_cleaned_and_checkpointed_at_the_papers_times() {
    run(async |rt| {
        let (fs, seen) = mounted(&rt, Cleaning::default()).await;
        let (mut writes, mut checkpoints) = (Vec::new(), Vec::new());
        let first = fs.layout().checkpoints();
        for second in 1..=130u64 {
            create(&fs, &format!("f{second}")).await;
            rt.sleep(Duration::from_secs(1)).await;
            if seen.take().iter().any(|record| record.op == Operation::Write) {
                writes.push(second);
            }
            if fs.layout().checkpoints() > first + checkpoints.len() as u64 {
                checkpoints.push(second);
            }
        }
        let gaps: Vec<u64> = writes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(writes[0] <= 6 && gaps.iter().all(|gap| *gap <= 6), "log: {writes:?}");
        assert!(writes.len() <= 40, "log: {writes:?}");
        let is_near = |(at, wanted): (&u64, u64)| (wanted..wanted + 8).contains(at);
        assert_eq!(checkpoints.len(), 2, "{checkpoints:?}");
        assert!(checkpoints.iter().zip([60, 120]).all(is_near), "checkpoints: {checkpoints:?}");
        fs.unmount().await.expect("a healthy device");
    });
    let usual = Cleaning { idle: None, busy_low: 99, ..Cleaning::default() };
    let (by_default, off) = (usual, Cleaning { every: CleanEvery::Off, ..usual });
    for (cleaning, works) in [(by_default, true), (off, false)] {
        run(async |rt| {
            let (fs, _) = mounted(&rt, cleaning).await;
            for n in 0..4000 {
                create(&fs, &format!("f{n}")).await;
            }
            fs.sync().await.expect("a healthy device");
            for n in (0..4000).filter(|n| n % 4 > 0) {
                let name = format!("f{n}");
                fs.unlink(fs.root(), name.as_bytes()).await.expect("deletes go through");
            }
            fs.sync().await.expect("a healthy device");
            let mut cleaned = Vec::new();
            for second in 0..30 {
                create(&fs, &format!("g{second}")).await;
                rt.sleep(Duration::from_secs(1)).await;
                cleaned.push(fs.layout().cleaned().segments);
            }
            assert_eq!(fs.layout().cleaned().waited_nanos, 0, "nothing had to wait");
            assert_eq!(cleaned[29] > 0, works, "{cleaning:?}: {cleaned:?}");
            assert!(cleaned.iter().take(4).all(|segments| *segments == 0), "{cleaned:?}");
            fs.unmount().await.expect("a healthy device");
        });
    }
}
