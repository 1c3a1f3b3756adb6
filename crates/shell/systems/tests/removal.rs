//! The removal of a large file changes nothing of its contents on disk.
//!
//! Fault model: the power goes after blocks of the removed file were written, and before its
//! removal is durable: then the file is back, and whoever had synced it expects it whole. A file of
//! more blocks than one operation may free is cut in steps. A step that ended inside of a block
//! once put zeros over the rest of that block; a mount that was killed brought back files with a
//! hole.

use std::rc::Rc;

use ordo_block::model::{Modeled, catalog};
use ordo_block::ram::RamDisk;
use ordo_block::tap::{Recorder, Tap};
use ordo_block::{Device, Operation};
use ordo_runtime::{Executor, Runtime};
use ordo_systems::{CacheConfig, MakeOptions, MountOptions, System};
use ordo_vfs::{FileSystem, NewNode};

/// Every byte of the file. No metadata has a row of them.
const MARK: [u8; 64] = [0xa7; 64];
/// More blocks than any ordering frees at once; the last one is not full.
const LEN: usize = (6 << 20) + 867;

/// The bytes of a write.
const PIECE: usize = 64 << 10;
/// Another file's contents meanwhile: so many that the cache writes whatever is dirty.
const OTHER: usize = 8 << 20;

/// Writes a file, syncs it, and removes it while another is written. Returns the places of writes
/// since then that have some of its contents.
async fn writes_of_contents(rt: &Runtime, system: System) -> Vec<u64> {
    let disk = catalog::ALL.iter().find(|disk| disk.name == "nvme").unwrap();
    let sizes = system.devices(64 << 20, 512);
    let taps: Vec<_> = sizes
        .into_iter()
        .map(|bytes| Rc::new(Tap::new(rt, Modeled::new(rt, disk, Rc::new(RamDisk::new(bytes))))))
        .collect();
    let disks = Device::of_each(&taps);
    system.make(rt, &disks, &MakeOptions::default()).await.unwrap();
    let cache = CacheConfig { capacity: 4 << 20, dirty_max: 512 << 10, ..CacheConfig::default() };
    let options = MountOptions { cache, ..MountOptions::default() };
    let mounted = system.mount(rt, &disks, &options).await.unwrap();
    let fs = mounted.fs().clone();
    let other = fs.create(fs.root(), b"other", &NewNode::file(0o644)).await.unwrap().ino;
    let file = fs.create(fs.root(), b"large", &NewNode::file(0o644)).await.unwrap().ino;
    fs.write(file, 0, &vec![MARK[0]; LEN]).await.unwrap();
    fs.sync().await.unwrap();
    let recorders: Vec<_> = taps
        .iter()
        .map(|tap| {
            let recorder = Recorder::new(true);
            tap.attach(recorder.clone());
            recorder
        })
        .collect();
    let writing = rt.spawn("another program", {
        let fs = fs.clone();
        async move {
            for at in (0..OTHER).step_by(PIECE) {
                fs.write(other, at as u64, &[1; PIECE]).await.unwrap();
                fs.sync().await.unwrap();
            }
        }
    });
    fs.unlink(fs.root(), b"large").await.unwrap();
    writing.await;
    fs.sync().await.unwrap();
    drop(fs);
    mounted.unmount().await.unwrap();
    let records: Vec<_> = recorders.iter().flat_map(|recorder| recorder.take()).collect();
    assert!(!records.is_empty(), "{}: the removal wrote nothing", system.name());
    let has = |data: &[u8]| data.windows(MARK.len()).any(|bytes| bytes == MARK);
    let writes = records.iter().filter(|r| r.op == Operation::Write);
    writes.filter(|r| r.data.as_deref().is_some_and(has)).map(|r| r.offset).collect()
}

#[test]
fn a_removal_writes_no_contents() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let all: Vec<_> = System::runnable()
        .map(|system| (system.name(), executor.block_on(writes_of_contents(&rt, system)).unwrap()))
        .filter(|(_, writes)| !writes.is_empty())
        .collect();
    assert!(all.is_empty(), "{all:?}");
}
