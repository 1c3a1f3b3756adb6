//! Times that advance in steps: a write inside of a file changes no metadata where neither blocks
//! nor times change.
//!
//! Fault model: after an fsync the power fails, and memory is lost. Would catch a write in place
//! that stores the inode each time (for a journal, a record for each write), a new block whose
//! pointer is not stored because the times are the same, a time that stands still, and a step that
//! other times do not have.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_cache::BufferClass;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates, SyncOrder};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_ufs::{Layout, UfsConfig};
use ordo_vfs::{FileSystem, NewNode, SetAttr};

const GRAIN: Duration = Duration::from_millis(4);
const BLOCK: usize = 8192;

type Disk = Rc<RamDisk>;

async fn new_disk() -> Disk {
    let disk = Rc::new(RamDisk::new(32 << 20));
    let options = MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
    mkfs(&disk.clone().erase(), &options, 1_700_000_000).await.unwrap();
    disk
}

async fn mounted<P: OrderingPolicy>(rt: &Runtime, disk: &Disk, policy: P) -> FastFs {
    let ufs = UfsConfig { time_grain: GRAIN, ..UfsConfig::default() };
    let options = MountOptions { ufs, force: true, ..MountOptions::default() };
    mount(rt, disk.clone(), policy, &options).await.unwrap()
}

/// The numbers of dirty blocks of files and of metadata.
fn dirty(fs: &FastFs) -> (usize, usize) {
    let dirty = fs.layout().cache().all_dirty();
    let contents = dirty.iter().filter(|buf| buf.class() == BufferClass::Data).count();
    (contents, dirty.len() - contents)
}

#[test]
fn a_write_in_place_changes_no_metadata_within_a_step_of_time() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let disk = new_disk().await;
        let fs = mounted(&rt, &disk, NoOrder).await;
        let file = fs.create(fs.root(), b"file", &NewNode::file(0o644)).await.unwrap().ino;
        fs.write(file, 0, &[1; 4 * BLOCK]).await.unwrap();
        rt.sleep(GRAIN).await;
        fs.write(file, 0, &[2; 100]).await.unwrap();
        let first = fs.getattr(file).await.unwrap();
        assert_eq!((first.mtime, first.mtime.nanos % 4_000_000), (first.ctime, 0));
        fs.sync().await.unwrap();
        assert_eq!(dirty(&fs), (0, 0));

        fs.write(file, 5000, &[3; 100]).await.unwrap();
        assert_eq!(dirty(&fs), (1, 0), "the inode has these times already");
        assert_eq!(fs.getattr(file).await.unwrap(), first);
        rt.sleep(GRAIN).await;
        fs.write(file, 5100, &[3; 100]).await.unwrap();
        assert_eq!(dirty(&fs), (1, 1), "time has advanced");
        let later = fs.getattr(file).await.unwrap();
        let step = i64::from(later.mtime.nanos) - i64::from(first.mtime.nanos);
        assert_eq!((later.mtime, step.rem_euclid(1_000_000_000)), (later.ctime, 4_000_000));
    };
    executor.block_on(run).unwrap();
}

/// Blocks fill holes of a file within one step of time. Each is synced. None is behind the end,
/// since a new size would store the inode in any case.
fn blocks_after_a_crash<P: OrderingPolicy>(policy: impl Fn() -> P) {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let disk = new_disk().await;
        let fs = mounted(&rt, &disk, policy()).await;
        let file = fs.create(fs.root(), b"file", &NewNode::file(0o644)).await.unwrap().ino;
        let size = SetAttr { size: Some(40 * BLOCK as u64), ..SetAttr::default() };
        fs.setattr(file, &size).await.unwrap();
        fs.sync().await.unwrap();
        let at = |nth: usize| (nth * BLOCK) as u64;
        // Direct blocks and indirect ones, part of a block and a whole one.
        for (nth, len) in [(0, BLOCK), (3, 100), (20, BLOCK), (21, 100)] {
            fs.write(file, at(nth), &vec![nth as u8 + 1; len]).await.unwrap();
            fs.fsync(file).await.unwrap();
        }
        let times = fs.getattr(file).await.unwrap();
        assert_eq!(times.mtime, times.birthtime, "one step of time");
        disk
    };
    let left = executor.block_on(run).unwrap();
    drop(executor);
    let executor = Executor::simulated(2);
    let rt = executor.runtime();
    let run = async {
        let fs = mounted(&rt, &left, NoOrder).await;
        let file = fs.lookup(fs.root(), b"file").await.unwrap();
        for nth in [0, 3, 20, 21] {
            let mut bytes = [0; 100];
            fs.read(file.ino, (nth * BLOCK) as u64, &mut bytes).await.unwrap();
            assert_eq!(bytes, [nth as u8 + 1; 100], "block {nth}");
        }
    };
    executor.block_on(run).unwrap();
}

#[test]
fn a_new_block_is_stored_although_the_times_are_the_same() {
    blocks_after_a_crash(|| NoOrder);
    blocks_after_a_crash(SyncOrder::default);
    blocks_after_a_crash(SoftUpdates::default);
}
