//! Runs of blocks, and the gaps between them.
//!
//! Fault model: none. Would catch a `maxcontig` that is stored and not obeyed, by places or by
//! requests; a gap that is not there, or that reallocation closes; and a gap that keeps blocks from
//! files for ever.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, Tuning, mount};
use ordo_ordering::NoOrder;
use ordo_runtime::{Executor, Runtime};
use ordo_ufs::Layout;
use ordo_vfs::{Errno, FileSystem, Ino, NewNode};

const BLOCK: u64 = 8192;

async fn mounted(rt: &Runtime, disk: &Device, tuning: Tuning) -> FastFs {
    let options = MountOptions { tuning, ..MountOptions::default() };
    mount(rt, disk.clone(), NoOrder, &options).await.expect("unmounted")
}

async fn made(max_contig: Option<u32>) -> Device {
    let disk = Rc::new(RamDisk::new(64 << 20)).erase();
    let options =
        MkfsOptions { block_size: 8192, frag_size: 1024, max_contig, ..MkfsOptions::default() };
    mkfs(&disk, &options, 0).await.expect("legal sizes");
    disk
}

async fn file(fs: &FastFs, name: &[u8], blocks: u64) -> Ino {
    let ino = fs.create(fs.root(), name, &NewNode::file(0o644)).await.expect("room").ino;
    for lbn in 0..blocks {
        fs.write(ino, lbn * BLOCK, &[lbn as u8; BLOCK as usize]).await.expect("room");
    }
    fs.fsync(ino).await.expect("a healthy device");
    ino
}

/// Blocks of each run of a file, and the blocks between one run and the next.
async fn runs(fs: &FastFs, ino: Ino) -> (Vec<u64>, Vec<u64>) {
    let extents = fs.extents(ino).await.expect("it has places");
    let gap = |pair: &[ordo_vfs::Extent]| {
        pair[1].address.wrapping_sub(pair[0].address + pair[0].len) / BLOCK
    };
    (extents.iter().map(|e| e.len / BLOCK).collect(), extents.windows(2).map(gap).collect())
}

#[test]
fn runs_have_their_length_and_gaps_between_them() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        // A mount without options uses the values that mkfs has stored.
        for (stored, tuning, length, gap) in [
            (None, Tuning { max_contig: Some(8), gap: 2 }, 8, 2),
            (Some(4), Tuning { max_contig: None, gap: 3 }, 4, 3),
            (Some(4), Tuning { max_contig: Some(16), gap: 1 }, 16, 1),
        ] {
            let disk = made(stored).await;
            let fs = mounted(&rt, &disk, tuning).await;
            let ino = file(&fs, b"file", 96).await;
            let (lengths, gaps) = runs(&fs, ino).await;
            // The first run begins anywhere, and indirect blocks come between two of them.
            assert!(lengths.iter().all(|blocks| *blocks <= length), "{tuning:?}: {lengths:?}");
            let right = gaps.iter().filter(|blocks| **blocks == gap).count() as u64;
            assert!(right >= 96 / length - 2, "{tuning:?}: {lengths:?}, {gaps:?}");
            fs.unmount().await.expect("a healthy device");
        }
        let disk = made(None).await;
        let fs = mounted(&rt, &disk, Tuning::default()).await;
        let ino = file(&fs, b"file", 96).await;
        let (lengths, _) = runs(&fs, ino).await;
        assert!(lengths.len() <= 3, "without a gap: {lengths:?}");
    };
    executor.block_on(run).expect("no deadlock");
}

/// Requests have the blocks of a run, no more.
#[test]
fn a_request_has_a_run_at_most() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let mut writes = Vec::new();
        for max_contig in [2, 8, 32] {
            let disk = made(None).await;
            let fs = mounted(&rt, &disk, Tuning { max_contig: Some(max_contig), gap: 0 }).await;
            let before = fs.layout().cache().stats().writes;
            file(&fs, b"file", 96).await;
            writes.push(fs.layout().cache().stats().writes - before);
        }
        let [short, middle, long] = writes[..] else { panic!("three of them") };
        assert!(short >= 48 && middle >= 12 && short >= middle + 30, "{writes:?}");
        assert!(middle >= long + 6, "{writes:?}");
    };
    executor.block_on(run).expect("no deadlock");
}

/// Blocks in gaps are free: other files get them, until the disk is full.
#[test]
fn gaps_are_used_before_the_disk_is_full() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let mut written = Vec::new();
        for gap in [0, 8] {
            let disk = made(None).await;
            let fs = mounted(&rt, &disk, Tuning { max_contig: Some(4), gap }).await;
            let ino = fs.create(fs.root(), b"all", &NewNode::file(0o644)).await.expect("room").ino;
            let mut blocks = 0;
            loop {
                match fs.write(ino, blocks * BLOCK, &[7; BLOCK as usize]).await {
                    Ok(_) => blocks += 1,
                    Err(error) if error.errno == Errno::NoSpace => break,
                    Err(error) => panic!("{error}"),
                }
            }
            written.push(blocks);
        }
        assert!(written[0] > 6000 && written[1].abs_diff(written[0]) <= 2, "{written:?}");
    };
    executor.block_on(run).expect("no deadlock");
}
