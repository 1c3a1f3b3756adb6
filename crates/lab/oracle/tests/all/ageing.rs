//! File systems that are aged: each of Ordo's systems, small and in memory.

use std::rc::Rc;

use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_compare::{ComparisonSetup, run};
use ordo_runtime::Executor;
use ordo_systems::{CheckOptions, MakeOptions, MountOptions, System, ffs, lfs};
use ordo_vfs::{FileSystem, NewNode};
use ordo_workload::age::{AgeError, Aged, ChurnOptions, Profile, age};

fn options(utilisation: f64, overwrites: f64) -> ChurnOptions {
    ChurnOptions { profile: Profile::find("agrawal").unwrap(), utilisation, overwrites, seed: 3 }
}

/// Ages a system on a disk of `bytes` bytes, and checks the result.
fn aged(system: System, bytes: u64, options: &ChurnOptions) -> Result<Aged, AgeError> {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let work = async {
        let make = system.marked(MakeOptions::default());
        let sizes = system.devices(bytes, make.ffs_block());
        let rams: Vec<Rc<RamDisk>> = sizes.iter().map(|b| Rc::new(RamDisk::new(*b))).collect();
        let disks = Device::of_each(&rams);
        system.make(&rt, &disks, &make).await.unwrap();
        let mounted = system.mount(&rt, &disks, &MountOptions::default()).await.unwrap();
        let aged = age(mounted.fs(), mounted.fs().root(), options, &mut |_, _| {}).await;
        mounted.unmount().await.unwrap();
        let checked = system.format().check(&disks, &CheckOptions::default()).await.unwrap();
        assert!(checked.is_consistent(), "{} is damaged", system.name());
        aged
    };
    executor.block_on(work).unwrap()
}

/// The places that a system reports for a file's blocks have the file's contents on the disk; holes
/// have no place. Would catch an address of another block or in another unit: scores would then be
/// meaningless.
#[test]
fn the_places_of_a_file_hold_its_contents() {
    for system in System::runnable() {
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let work = async {
            let make = MakeOptions::default();
            let sizes = system.devices(96 << 20, make.ffs_block());
            let rams: Vec<Rc<RamDisk>> = sizes.iter().map(|b| Rc::new(RamDisk::new(*b))).collect();
            let disks = Device::of_each(&rams);
            system.make(&rt, &disks, &make).await.unwrap();
            let mounted = system.mount(&rt, &disks, &MountOptions::default()).await.unwrap();
            let fs = mounted.fs();
            let contents: Vec<u8> = (0..300_000u32).flat_map(|n| n.to_le_bytes()).collect();
            let file = fs.create(fs.root(), b"file", &NewNode::file(0o644)).await.unwrap().ino;
            let (first, rest) = contents.split_at(400_000);
            let behind = 800_000;
            assert_eq!(fs.write(file, 0, first).await, Ok(first.len()));
            assert_eq!(fs.write(file, behind, rest).await, Ok(rest.len()));
            fs.sync().await.unwrap();
            let mut wanted = vec![0; behind as usize + rest.len()];
            wanted[..first.len()].copy_from_slice(first);
            wanted[behind as usize..].copy_from_slice(rest);
            let extents = fs.extents(file).await.unwrap();
            // Contents are on one of the disks, and on no other.
            let is_on = |ram: &Rc<RamDisk>| {
                let (image, mut found) = (ram.to_vec(), vec![0; wanted.len()]);
                for extent in &extents {
                    let from = extent.offset as usize;
                    let len = (extent.len as usize).min(found.len() - from);
                    let there = image.get(extent.address as usize..).and_then(|i| i.get(..len));
                    found[from..from + len].copy_from_slice(there.unwrap_or(&vec![0; len]));
                }
                found == wanted
            };
            assert_eq!(rams.iter().filter(|ram| is_on(ram)).count(), 1, "{}", system.name());
            let mapped: u64 = extents.iter().map(|extent| extent.len).sum();
            assert!(
                mapped < wanted.len() as u64 - 300_000,
                "{}: the hole has a place",
                system.name()
            );
        };
        executor.block_on(work).unwrap();
    }
}

/// Every system can be aged, stays as full as wanted, and is clean afterwards. Would catch a churn
/// that a log, a journal or deferred frees bring to a stop, and space that is lost or counted
/// twice.
#[test]
fn every_system_ages() {
    for system in System::runnable() {
        let options = options(0.7, 2.0);
        let aged =
            aged(system, 96 << 20, &options).unwrap_or_else(|e| panic!("{}: {e}", system.name()));
        let name = system.name();
        assert!((aged.utilisation - 0.7).abs() < 0.05, "{name}: {}", aged.utilisation);
        assert!(aged.bytes_written > 100 << 20, "{name}: {}", aged.bytes_written);
        assert_eq!(aged.files_made - aged.files_removed, aged.files, "{name}");
        let scores = (aged.fresh.score().unwrap(), aged.aged.score().unwrap());
        assert!(scores.0 <= 1.0 && scores.1 > 0.3, "{name}: {scores:?}");
    }
}

/// A nearly full FFS loses layout score after a while; the same seed gives the same score. Would
/// catch a score that does not look at the disk, and churn that leaves no holes.
#[test]
fn a_nearly_full_ffs_loses_its_layout() {
    let run = |utilisation| aged(ffs::NONE, 96 << 20, &options(utilisation, 6.0)).unwrap();
    let (half, full) = (run(0.5), run(0.95));
    assert_eq!(run(0.5), half, "the same seed gives the same");
    let lost = |aged: &Aged| aged.fresh.score().unwrap() - aged.aged.score().unwrap();
    assert!(lost(&full) > 0.05, "{full:?}");
    assert!(lost(&full) > lost(&half) + 0.03, "{half:?} {full:?}");
}

/// A file system that is as full as wanted is refused in words. Would catch a churn that never
/// ends.
#[test]
fn a_file_system_that_is_already_full_is_refused() {
    let refused = aged(ffs::NONE, 96 << 20, &options(0.001, 1.0)).unwrap_err();
    assert!(matches!(refused, AgeError::NoFreeSpace { .. }), "{refused}");
}

/// A workload of the comparison on aged file systems: the ageing's requests are not counted, the
/// workload gets the space that the ageing left, and the same seed gives the same row. Would catch
/// an ageing that is left out, one whose requests are in the row, and files of the ageing in the
/// way of the workload's.
#[test]
fn a_comparison_runs_on_aged_file_systems() {
    let ageing = ChurnOptions { seed: 1, ..options(0.7, 1.0) };
    let size = Some(160 << 20);
    let fresh = ComparisonSetup { size, ..ComparisonSetup::papers() };
    let setup = ComparisonSetup { ageing: Some(ageing), ..fresh.clone() };
    let workload = "postmark:files=100,transactions=300".parse().unwrap();
    for system in System::runnable() {
        let name = system.name();
        let new = run(system, &workload, &fresh, &mut ()).unwrap();
        let old = run(system, &workload, &setup, &mut ()).unwrap();
        let aged = old.aged.as_ref().expect("it was asked for");
        assert!(new.aged.is_none() && aged.files > 50, "{name}: {aged:?}");
        assert!((0.6..0.75).contains(&aged.utilisation), "{name}: {aged:?}");
        assert_eq!(old.writes.get("unknown"), 0, "{name}");
        assert_eq!(old.files_made, new.files_made, "{name}");
        // The ageing writes more than the size of the file system, 160 MB.
        let more = old.bytes_written.saturating_sub(new.bytes_written);
        assert!(more < 40 << 20, "{name}: {more} bytes more, so the ageing is in the row");
        if system == lfs::LFS {
            assert_eq!(run(system, &workload, &setup, &mut ()).unwrap(), old, "{name}");
        }
    }
    let large = "micro:total=64m,sizes=1m".parse().unwrap();
    let error = run(ffs::NONE, &large, &setup, &mut ()).expect_err("48 MB are left");
    assert!(error.to_string().contains("smaller workload"), "{error}");
}
