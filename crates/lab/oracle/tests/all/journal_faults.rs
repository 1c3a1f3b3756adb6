//! Journals whose log fails, is too small, or belongs to another file system.
//!
//! Fault model: every write of the log's device from some time on fails, but none of the file
//! system's device; operations are larger than the log; a log belongs to another file system, was
//! never used, or has lost its superblock.
//!
//! Demanded: one clear error, and no endless wait. After a failure of the log nothing is reported
//! durable any more and nothing is changed. Everything that was durable before is there after
//! recovery. Would catch an error of the log that only the keeper sees, a block that is written
//! though its records are not, an operation that waits for space which it uses itself.

use std::rc::Rc;

use ordo_block::fault::{FaultRule, Faults, Faulty};
use ordo_block::{BlockDevice, Device, Operation, ram::RamDisk};
use ordo_check::{Checker, FsckOptions};
use ordo_ffs::mkfs::MkfsOptions;
use ordo_ffs::{MountError, MountOptions};
use ordo_ordering::RecoverError;
use ordo_runtime::{Duration, Executor};
use ordo_systems::journaled::{Journaled, JournaledError, LogPlace};
use ordo_vfs::{Errno, FileSystem, NewNode, SetAttr};
use ordo_wafs::LogError;

const MIB: u64 = 1 << 20;

fn small() -> MkfsOptions {
    MkfsOptions { block_size: 4096, frag_size: 512, ..MkfsOptions::default() }
}

fn name(n: usize) -> Vec<u8> {
    format!("file-{n}").into_bytes()
}

/// Recovers, and checks that nothing is found. Returns the names in the root.
fn recovered(journaled: Journaled, disks: &[Rc<RamDisk>]) -> Vec<Vec<u8>> {
    let executor = Executor::simulated(9);
    let rt = executor.runtime();
    let work = async {
        let options = MountOptions::default();
        let (fs, _) = journaled.mount(&rt, &Device::of_each(disks), &options).await.unwrap();
        let mut names = Vec::new();
        for n in 0..200 {
            if fs.lookup(fs.root(), &name(n)).await.is_ok() {
                names.push(name(n));
            }
        }
        fs.unmount().await.unwrap();
        let report = Checker::new(disks[0].clone(), FsckOptions::default()).run().await.unwrap();
        assert!(report.findings.is_empty(), "{report}");
        names
    };
    executor.block_on(work).unwrap()
}

#[test]
fn when_the_log_fails_nothing_is_promised_any_more() {
    for synchronous in [true, false] {
        for from in [1, 2, 5, 17] {
            let executor = Executor::simulated(1);
            let rt = executor.runtime();
            let rams = [Rc::new(RamDisk::new(8 * MIB)), Rc::new(RamDisk::new(MIB))];
            let faults = Faults::new();
            let journaled = Journaled::new(LogPlace::Other, synchronous, None);
            let work = async {
                journaled.make(&rt, &Device::of_each(&rams), &small()).await.unwrap();
                let sound = Faults::new();
                let disks = [
                    Rc::new(Faulty::new(rams[0].clone(), &sound)),
                    Rc::new(Faulty::new(rams[1].clone(), &faults)),
                ];
                let options = MountOptions::default();
                let (fs, _) =
                    journaled.mount(&rt, &Device::of_each(&disks), &options).await.unwrap();
                let mut promised = 0;
                for n in 0..10 {
                    fs.create(fs.root(), &name(n), &NewNode::file(0o644)).await.unwrap();
                }
                fs.sync().await.unwrap();
                promised += 10;
                faults.add(FaultRule::fail(5).on(Operation::Write).from_nth(from));
                let mut failed = None;
                for n in 10..100 {
                    let made = fs.create(fs.root(), &name(n), &NewNode::file(0o644)).await;
                    match (made, &failed) {
                        (Ok(_), None) if synchronous => promised += 1,
                        (Ok(_), None) => rt.sleep(Duration::from_millis(300)).await,
                        (Ok(_), Some(error)) => panic!("file {n} was made after: {error}"),
                        (Err(error), _) => {
                            assert!(
                                matches!(error.errno, Errno::Io | Errno::ReadOnly),
                                "from {from}: {error}"
                            );
                            failed = Some(error);
                        }
                    }
                }
                let error = failed.expect("it fails").to_string();
                assert!(fs.sync().await.is_err() && fs.unmount().await.is_err());
                // The file system can still be read.
                fs.lookup(fs.root(), &name(0)).await.unwrap();
                (promised, error)
            };
            let (promised, error) = executor.block_on(work).unwrap();
            assert!(error.contains("rror") || error.contains("read-only"), "{error}");
            let there = recovered(journaled, &rams);
            assert!(there.len() >= promised, "{} of {promised} from {from}", there.len());
            assert!(there.len() < 100);
        }
    }
}

/// Operations whose records are larger than a small log: files of many blocks are written, cut and
/// removed at once.
#[test]
fn operations_larger_than_the_log_fail_or_are_split() {
    for (place, log) in [LogPlace::File, LogPlace::Same, LogPlace::Other]
        .into_iter()
        .flat_map(|place| [(place, 16 << 10), (place, 64 << 10), (place, 256 << 10)])
    {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let disks = [Rc::new(RamDisk::new(48 * MIB)), Rc::new(RamDisk::new(log))];
        let journaled = Journaled { log_bytes: Some(log), ..Journaled::new(place, true, None) };
        let work = async {
            journaled.make(&rt, &Device::of_each(&disks), &small()).await.unwrap();
            let options = MountOptions::default();
            let mounted = journaled.mount(&rt, &Device::of_each(&disks), &options).await;
            let (fs, _) = match mounted {
                Ok(mounted) => mounted,
                Err(error) => return Some(error.to_string()),
            };
            let data = vec![3; 12 << 20];
            // The blocks of two files alternate.
            let mut inos = Vec::new();
            for n in 0..2 {
                let file = fs.create(fs.root(), &name(n), &NewNode::file(0o644)).await.unwrap();
                inos.push(file.ino);
            }
            for piece in 0..300 {
                for ino in &inos {
                    let at = piece * 8192;
                    assert_eq!(fs.write(*ino, at, &data[..8192]).await.unwrap(), 8192);
                }
            }
            assert_eq!(fs.write(inos[0], 3 << 20, &data).await.unwrap(), data.len());
            fs.fsync(inos[0]).await.unwrap();
            let cut = SetAttr { size: Some(100), ..SetAttr::default() };
            fs.setattr(inos[0], &cut).await.unwrap();
            fs.unlink(fs.root(), &name(1)).await.unwrap();
            let long = NewNode::symlink(&[b'x'; 1000]);
            for n in 2..150 {
                fs.create(fs.root(), &name(n), &long).await.unwrap();
            }
            fs.sync().await.unwrap();
            None
        };
        let refused = executor.block_on(work).unwrap();
        drop(executor);
        match refused {
            Some(error) => assert!(error.contains("too small"), "{place:?}, {log}: {error}"),
            None => assert_eq!(recovered(journaled, &disks).len(), 149, "{place:?}, {log}"),
        }
    }
}

/// A log that belongs to another file system, was never used, or was removed, and a second file
/// system in its place: each gives one clear error, and the image is unchanged.
#[test]
fn a_log_that_is_not_its_own_is_refused() {
    let journaled = Journaled::new(LogPlace::Other, true, None);
    let crashed = |seed: u64| {
        let executor = Executor::simulated(seed);
        let rt = executor.runtime();
        let disks = [Rc::new(RamDisk::new(8 * MIB)), Rc::new(RamDisk::new(MIB))];
        let work = async {
            let options = MkfsOptions { seed, ..small() };
            journaled.make(&rt, &Device::of_each(&disks), &options).await.unwrap();
            let (fs, _) = journaled
                .mount(&rt, &Device::of_each(&disks), &MountOptions::default())
                .await
                .unwrap();
            for n in 0..30 {
                fs.create(fs.root(), &name(n), &NewNode::file(0o644)).await.unwrap();
            }
            disks.each_ref().map(|disk| Rc::new(disk.snapshot()))
        };
        executor.block_on(work).unwrap()
    };
    let tried = |disks: &[Rc<RamDisk>]| {
        let executor = Executor::simulated(5);
        let rt = executor.runtime();
        let before = disks[0].to_vec();
        let mounted = executor.block_on(journaled.mount(
            &rt,
            &Device::of_each(disks),
            &MountOptions::default(),
        ));
        let error = mounted.unwrap().err().expect("it must not mount");
        assert!(disks[0].to_vec() == before, "refused, but the image was changed: {error}");
        error
    };
    let (one, two) = (crashed(1), crashed(2));
    let recover = |error| match error {
        JournaledError::Mount(MountError::Recover(error)) => error,
        error => panic!("{error}"),
    };
    let error = recover(tried(&[one[0].clone(), two[1].clone()]));
    assert!(matches!(error, RecoverError::OtherLog), "{error}");
    let executor = Executor::simulated(3);
    let new = Rc::new(RamDisk::new(MIB));
    let options = ordo_wafs::MkfsOptions::default();
    executor.block_on(ordo_wafs::mkfs(&new.clone().erase(), &options, 0)).unwrap().unwrap();
    let error = recover(tried(&[one[0].clone(), new]));
    assert!(matches!(error, RecoverError::UnusedLog), "{error}");
    for other in [Rc::new(RamDisk::new(MIB)), two[0].clone()] {
        let error = tried(&[one[0].clone(), other]);
        let none = matches!(error, JournaledError::Log(LogError::NoSuperblock(_)));
        assert!(none, "{error}");
    }
    // The durable part of the log has a hole.
    let bad = Rc::new(one[1].snapshot());
    bad.store(4 * 512, &[0x55; 512]);
    let error = tried(&[one[0].clone(), bad]);
    assert!(matches!(error, JournaledError::Log(LogError::Damaged { .. })), "{error}");
    // With its own log the file system is mounted.
    assert_eq!(recovered(journaled, &one).len(), 30);
}
