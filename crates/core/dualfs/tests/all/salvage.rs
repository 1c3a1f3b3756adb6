//! Without the metadata device, all files of the last complete copy come back, byte for byte.
//!
//! Fault model: the power fails at any time, any part of the data device's cache is lost, with torn
//! sectors, and the metadata device is gone. Each sector that is written names its file. Each rule
//! of the copy is switched off in turn, on several sizes; then a wrong copy must be found. In other
//! tests parts of the copy are damaged or of another pair, or there is too little space for the
//! copy.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::volatile::{Loss, VolatileCache};
use ordo_block::{BlockDevice, Device};
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_dualfs::mkfs::{MetadataSize, MkfsOptions, mkfs};
use ordo_dualfs::mount::{MountOptions, mount};
use ordo_dualfs::salvage::{copy_on, read};
use ordo_dualfs::{DualError, DualRules};
use ordo_format::dualfs::{CopyArea, Identity};
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::{Errno, FileSystem, NewNode};

use crate::crash::{Cached, SEGMENTS, SIZES, Sizes, found, work};

/// The number of blocks for the copy: enough for all metadata, and for the blocks that a checkpoint
/// adds.
const COPY: u64 = 150;

fn with_copy() -> [Sizes; 3] {
    SIZES.map(|sizes| Sizes { copy: COPY, ..sizes })
}

/// Works on a pair, crashes it, loses the metadata device, and reads. The error says why the state
/// that is found is wrong.
fn lose(seed: u64, sizes: Sizes, rules: DualRules) -> Result<(), String> {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let bsize = u64::from(sizes.block);
    let segment = u64::from(sizes.segment_blocks) * bsize;
    let bytes = [8192 + SEGMENTS * segment, (sizes.blocks + sizes.copy) * bsize];
    let disks: Vec<Cached> =
        bytes.map(|bytes| Rc::new(VolatileCache::new(RamDisk::new(bytes)))).to_vec();
    let devices: Vec<Device> = disks.iter().map(|disk| disk.clone().erase()).collect();
    let ran = executor.block_on(work(&rt, &devices, seed, sizes, rules));
    let states = ran.expect("no deadlock");
    let data = Rc::new(disks[1].crash_image_seeded(Loss::Subset, seed));
    drop((executor, rt));
    let judged = Executor::simulated(seed + 1).block_on(async {
        let before = data.to_vec();
        let (reader, copy) = read(&[data.clone().erase()]).await.map_err(|e| e.to_string())?;
        assert!(copy.blocks > 3);
        let state = found(&reader, bsize).await?;
        assert!(before == data.to_vec(), "something was written");
        match states.contains(&state) {
            true => Ok(()),
            false => Err(format!("{state:?} is after no step of the last: {states:?}")),
        }
    });
    judged.map_err(|deadlock| deadlock.to_string())?
}

#[test]
fn the_last_copy_comes_back_without_the_metadata_device() {
    for sizes in with_copy() {
        for seed in 0..150 {
            if let Err(wrong) = lose(seed, sizes, DualRules::all()) {
                panic!("{sizes:?}, seed {seed}: {wrong}");
            }
        }
    }
}

#[test]
fn a_block_that_the_copy_has_is_overwritten_when_it_is_used_again_before_the_next() {
    let rules = DualRules::all().difference(DualRules::COPIED);
    for sizes in with_copy() {
        let is_broken =
            |seed: u64| lose(seed, sizes, rules).is_err_and(|e| e.contains(": has block"));
        assert!((0..400).any(is_broken), "{sizes:?}: nothing misses COPIED");
    }
}

#[test]
fn a_copy_is_torn_when_its_head_is_written_with_it() {
    let rules = DualRules::all().difference(DualRules::COPY_FIRST);
    for sizes in with_copy() {
        assert!(
            (0..400).any(|seed| lose(seed, sizes, rules).is_err()),
            "{sizes:?}: nothing misses COPY_FIRST"
        );
    }
}

fn run<T>(work: impl AsyncFnOnce(Runtime) -> T) -> T {
    let executor = Executor::simulated(7);
    let rt = executor.runtime();
    executor.block_on(work(rt)).expect("no deadlock")
}

async fn made(rt: &Runtime, disks: &[Device], copy: Option<u64>) -> Identity {
    let copy = copy.map(MetadataSize::Bytes);
    let options =
        MkfsOptions { copy, metadata: MetadataSize::Bytes(8 << 20), ..MkfsOptions::default() };
    mkfs(rt, disks, &options).await.expect("legal sizes").identity
}

/// Makes directories with files, one of them with indirect blocks, links short and long, and
/// unmounts.
async fn filled(rt: &Runtime, disks: &[Device]) {
    let fs = mount(rt, disks, &MountOptions::default()).await.expect("just made");
    let root = fs.root();
    for n in 0..20u8 {
        let name = format!("d{n}").into_bytes();
        let dir = fs.create(root, &name, &NewNode::directory(0o755)).await.expect("room").ino;
        let file = fs.create(dir, b"file", &NewNode::file(0o640)).await.expect("room").ino;
        let len = if n == 7 { 700 * 4096 } else { 5000 };
        fs.write(file, 0, &vec![n + 1; len]).await.expect("room");
        fs.create(dir, b"short", &NewNode::symlink(b"../d0/file")).await.expect("room");
        fs.create(dir, b"long", &NewNode::symlink(&[b'l'; 700])).await.expect("room");
    }
    fs.unmount().await.expect("healthy devices");
}

/// The first error that reading everything of [`filled`] finds.
async fn is_whole<F: FileSystem>(fs: &F) -> Result<(), ordo_vfs::FsError> {
    for n in 0..20u8 {
        let dir = fs.lookup(fs.root(), format!("d{n}").as_bytes()).await?;
        let file = fs.lookup(dir.ino, b"file").await?;
        let mut bytes = vec![0; file.size as usize];
        fs.read(file.ino, 0, &mut bytes).await?;
        assert!(bytes.iter().all(|byte| *byte == n + 1), "d{n}");
        assert_eq!(file.size, if n == 7 { 700 * 4096 } else { 5000 });
        let long = fs.lookup(dir.ino, b"long").await?;
        assert_eq!(fs.readlink(long.ino).await?, [b'l'; 700]);
    }
    Ok(())
}

/// If the beginning of a disk with both devices is lost, with its identity, the data device is
/// found behind it.
#[test]
fn the_part_of_a_disk_with_the_metadata_can_be_lost() {
    run(async |rt| {
        let disk = Rc::new(RamDisk::new(64 << 20));
        let devices = [disk.clone().erase()];
        let identity = made(&rt, &devices, Some(8 << 20)).await;
        filled(&rt, &devices).await;
        let report = DualChecker::new(&devices, Repair::No).run().await.expect("a pair");
        assert!(report.is_consistent(), "{report}");
        disk.store(8192, &vec![0xa5; identity.metadata_bytes as usize - 8192]);
        is_whole(&read(&devices).await.expect("there is a copy").0).await.expect("all is there");
        disk.store(0, &[0xa5; 8192]);
        is_whole(&read(&devices).await.expect("there is a copy").0).await.expect("all is there");
    });
}

/// Damage to both heads, to an index or to a slot is reported, and everything else is read.
#[test]
fn each_damaged_part_of_a_copy_is_reported() {
    run(async |rt| {
        let disks = [Rc::new(RamDisk::new(8 << 20)), Rc::new(RamDisk::new(32 << 20))];
        let devices = [disks[0].clone().erase(), disks[1].clone().erase()];
        let identity = made(&rt, &devices, Some(8 << 20)).await;
        filled(&rt, &devices).await;
        let area: CopyArea = identity.copy_area().expect("asked for");
        let whole = copy_on(&devices[1..]).await.expect("there is a copy");
        let damaged = async |at: &[u64]| {
            let image = Rc::new(disks[1].snapshot());
            at.iter().for_each(|at| image.store(*at + 8, &[0x5a; 8]));
            let found = read(&[image.erase()]).await;
            match found {
                Ok((fs, about)) => Ok((is_whole(&fs).await.map_err(|e| e.errno), about)),
                Err(error) => Err(error),
            }
        };
        let (all, same) = damaged(&[]).await.expect("whole");
        assert_eq!((all, same), (Ok(()), whole));
        // The copy before it takes its place.
        for parts in [[area.head_at(0), area.index_at(1)], [area.head_at(1), area.index_at(0)]] {
            let lost = damaged(&parts).await;
            assert_eq!(lost.err(), Some(DualError::CopyIncomplete(whole.pair)));
        }
        let one = [damaged(&[area.head_at(0)]).await, damaged(&[area.head_at(1)]).await];
        let older = one.iter().flatten().filter(|(_, about)| about.serial < whole.serial).count();
        assert_eq!(older, 1, "one of the heads is the newest one's");
        // A slot in use: an error of the device where it is needed, and no panic.
        let mut broken = 0;
        for slot in 0..40 {
            match damaged(&[area.slot_at(slot)]).await {
                Ok((Err(errno), _)) => {
                    assert!(matches!(errno, Errno::Io | Errno::Corrupt), "{errno:?}");
                    broken += 1;
                }
                Ok((Ok(()), _)) => {}
                // Without the IFILE there are no files.
                Err(error) => {
                    assert!(matches!(error, DualError::Log(_)), "{error}");
                    broken += 1;
                }
            }
        }
        assert!(broken > 5, "{broken} of 40 slots were needed");
    });
}

/// A device that keeps no copy is reported, and so is one on which the copy has too little space.
/// On the second one, freed blocks do not wait for the copy.
#[test]
fn a_copy_that_is_missing_or_has_no_space_is_reported_and_blocks_no_file() {
    run(async |rt| {
        let disks = [Rc::new(RamDisk::new(8 << 20)), Rc::new(RamDisk::new(4 << 20))];
        let devices = [disks[0].clone().erase(), disks[1].clone().erase()];
        let identity = made(&rt, &devices, None).await;
        let none = read(&devices).await.err();
        assert_eq!(none, Some(DualError::NoCopy(identity.name())));
        let identity = made(&rt, &devices, Some(8 * 4096)).await;
        assert!(identity.copy_area().expect("asked for").slots < 5);
        let fs = mount(&rt, &devices, &MountOptions::default()).await.expect("just made");
        // Many times what the data device has.
        for n in 0..60u8 {
            let file = fs.create(fs.root(), &[b'a' + n % 20], &NewNode::file(0o600)).await;
            let ino = file.expect("room").ino;
            fs.write(ino, 0, &vec![n; 1 << 20]).await.expect("what was deleted is free again");
            fs.unlink(fs.root(), &[b'a' + n % 20]).await.expect("it is there");
        }
        fs.unmount().await.expect("healthy devices");
        let none = read(&devices).await.err();
        assert_eq!(none, Some(DualError::CopyIncomplete(identity.name())));
        let report = DualChecker::new(&devices, Repair::No).run().await.expect("a pair");
        assert!(report.is_consistent(), "{report}");
        for bytes in [4096, 4 << 20, 1 << 40] {
            let options =
                MkfsOptions { copy: Some(MetadataSize::Bytes(bytes)), ..MkfsOptions::default() };
            let refused = mkfs(&rt, &devices, &options).await;
            assert!(matches!(refused, Err(DualError::Sizes(_))), "{refused:?}");
        }
    });
}

/// Blocks that files have lost can be used again when a copy records the loss. So a full device
/// with a copy can be emptied and filled again and again.
#[test]
fn a_full_device_with_a_copy_can_be_filled_again() {
    run(async |rt| {
        let disks = [Rc::new(RamDisk::new(8 << 20)), Rc::new(RamDisk::new(8 << 20))];
        let devices = [disks[0].clone().erase(), disks[1].clone().erase()];
        made(&rt, &devices, Some(4 << 20)).await;
        let fs = mount(&rt, &devices, &MountOptions::default()).await.expect("just made");
        for round in 0..5u8 {
            let ino = fs.create(fs.root(), b"all", &NewNode::file(0o600)).await.expect("room").ino;
            let mut len = 0;
            loop {
                match fs.write(ino, len, &[round; 65536]).await {
                    Ok(n) => len += n as u64,
                    Err(error) if error.errno == Errno::NoSpace => break,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(len > 3 << 20, "round {round}: {len} bytes");
            fs.unlink(fs.root(), b"all").await.expect("deletes go through");
        }
        fs.unmount().await.expect("healthy devices");
        let (_, copy) = read(&devices[1..]).await.expect("there is a copy");
        assert!(copy.blocks > 5);
    });
}
