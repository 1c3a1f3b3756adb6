//! A crash has leaked every kind of thing that a crash can leak. The file system is mounted at
//! once, used by many tasks, and checked in the background meanwhile. After that a full check finds
//! nothing.
//!
//! Fault model: leaks are planted in a consistent image, marked as soft updates mark it. Tasks
//! create, write, rename and remove files and directories all the time, among the leaks too, in
//! another order with every seed, on a disk with realistic times. Would catch a step that frees a
//! thing in use, frees twice, lowers a count twice, or uses a state of the disk from after the
//! mount.

#[path = "../../../witness/check/tests/all/support/mod.rs"]
mod support;

use std::rc::Rc;
use std::time::Duration;

use ordo_bgfsck::{Background, CheckOutcome, CheckedFs, Ending, Pace};
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::snapshot::SnapshotDevice;
use ordo_block::{BlockDevice, Device};
use ordo_check::Repair;
use ordo_ffs::{MountOptions, mkfs::MkfsOptions, mount};
use ordo_format::ufs2::superblock::{FS_DOSOFTDEP, FS_NEEDSFSCK, FS_UNCLEAN};
use ordo_format::ufs2::{bitmap, dir};
use ordo_ordering::{NoOrder, SoftUpdates};
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::{FileSystem, NewNode, RenameMode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use support::{Surgeon, check};

type Fs = CheckedFs;

const ROOT: u32 = 2;

/// A file system with files and directories in three directories `a`, `b`, `c`, and files that will
/// leak.
fn made() -> Rc<RamDisk> {
    let options = MkfsOptions {
        block_size: 8192,
        frag_size: 1024,
        max_blocks_per_group: Some(512),
        density: Some(8192),
        ..MkfsOptions::default()
    };
    let disk = support::empty(&options, 24 << 20);
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let fill = async {
        let fs = mount(&rt, disk.clone(), NoOrder, &MountOptions::default()).await.unwrap();
        let (file, folder) = (NewNode::file(0o644), NewNode::directory(0o755));
        for name in ["a", "b", "c", "gone", "moved"] {
            let dir = fs.create(fs.root(), name.as_bytes(), &folder).await.unwrap().ino;
            for i in 0..30 {
                let made = fs.create(dir, format!("f{i}").as_bytes(), &file).await.unwrap().ino;
                fs.write(made, 0, &vec![i as u8; 900 * i]).await.unwrap();
                if i % 5 == 0 {
                    let sub =
                        fs.create(dir, format!("d{i}").as_bytes(), &folder).await.unwrap().ino;
                    let inner = fs.create(sub, b"inner", &file).await.unwrap().ino;
                    fs.write(inner, 0, &[1; 5000]).await.unwrap();
                }
            }
        }
        let a = fs.lookup(fs.root(), b"a").await.unwrap().ino;
        fs.create(a, b"bare", &folder).await.unwrap();
        // The file is long enough for indirect blocks.
        let large = fs.create(fs.root(), b"large", &file).await.unwrap().ino;
        fs.write(large, 0, &vec![7; 40 * 8192]).await.unwrap();
        // The file has a name in a directory that will be removed, and another one elsewhere.
        let gone = fs.lookup(fs.root(), b"gone").await.unwrap().ino;
        let kept = fs.lookup(gone, b"f7").await.unwrap().ino;
        fs.link(kept, fs.root(), b"kept").await.unwrap();
        fs.unmount().await.unwrap();
    };
    executor.block_on(fill).unwrap();
    disk
}

/// The inode of a name, in a directory's first block.
fn named(s: &Surgeon, dir: u32, name: &str) -> u32 {
    let node = s.inode(dir);
    let bytes = s.load(s.byte(node.db[0] as u64), node.size as usize);
    let found = dir::entries(&bytes, s.endian).map(Result::unwrap);
    found.filter(|entry| entry.name == name.as_bytes()).map(|entry| entry.ino).next().unwrap()
}

/// Leaks one thing of each kind, and more of some.
fn crash(sound: &RamDisk) -> Surgeon {
    let disk = Rc::new(sound.snapshot());
    Surgeon::new(&disk).change_superblock(|sb| {
        sb.clean = 0;
        sb.flags |= FS_DOSOFTDEP;
    });
    let s = Surgeon::new(&disk);
    let a = named(&s, ROOT, "a");
    // Files, and a tree, whose removal was not complete.
    for name in ["large", "gone"] {
        s.remove_entry(ROOT, name);
    }
    for i in [1, 11, 21] {
        s.remove_entry(a, &format!("f{i}"));
    }
    // Link counts of files and directories that were not lowered yet.
    for i in [2, 12, 22] {
        s.change_inode(named(&s, a, &format!("f{i}")), |node| node.nlink += 2);
    }
    s.change_inode(a, |node| node.nlink += 1);
    for name in ["d5", "bare"] {
        s.change_inode(named(&s, a, name), |node| node.nlink += 1);
    }
    s.change_inode(named(&s, a, "f29"), |node| node.blocks += 16);
    // A rename that has made its new name, but not removed the old one.
    let moved = named(&s, ROOT, "moved");
    s.add_entry(named(&s, ROOT, "b"), "moving", moved, dir::DT_DIR);
    s.change_inode(moved, |node| node.nlink += 1);
    s.change_inode(named(&s, ROOT, "b"), |node| node.nlink += 1);
    // Blocks and inodes that were allocated for files which never reached the disk.
    for cg in 0..s.sb.ncg {
        let layout = s.header(cg).0.layout(&s.sb);
        s.change_group(cg, |_, bytes| {
            let end = s.sb.cg_frags(cg);
            let map = &mut bytes[layout.frags.clone()];
            (end - 41..end - 20).for_each(|bit| bitmap::clear(map, bit));
            let map = &mut bytes[layout.inodes.clone()];
            (s.sb.ipg - 7..s.sb.ipg).for_each(|ino| bitmap::set(map, ino));
        });
    }
    s
}

fn start(
    executor: &Executor,
    ram: &Rc<RamDisk>,
    memory: usize,
) -> (Fs, Rc<SnapshotDevice<Device>>) {
    let rt = executor.runtime();
    let model = Model::by_name("viking").expect("a model of ours");
    let disk = Rc::new(SnapshotDevice::new(Modeled::new(&rt, model, ram.clone()).erase(), memory));
    let mut options = MountOptions::default();
    // The cache is small, so that the disk is read and written all the time.
    options.cache.capacity = 1 << 20;
    options.cache.dirty_max = 256 << 10;
    let fs = executor
        .block_on(mount(&rt, disk.clone(), SoftUpdates::default(), &options))
        .unwrap()
        .unwrap();
    (fs, disk)
}

/// Creates, writes, renames, links and removes at random, also existing files.
async fn use_it(rt: Runtime, fs: Fs, seed: u64, ops: u32) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut dirs = Vec::new();
    for name in ["a", "b", "c"] {
        dirs.push(fs.lookup(fs.root(), name.as_bytes()).await.unwrap().ino);
    }
    for n in 0..ops {
        let dir = dirs[rng.random_range(0..dirs.len())];
        let to = dirs[rng.random_range(0..dirs.len())];
        let name = |i: u32, kind: char| format!("{kind}{i}").into_bytes();
        let (i, j) = (rng.random_range(0..30u32), rng.random_range(0..60u32));
        // Most of these fail as they should: no such name, not empty, already there.
        match rng.random_range(0..9u32) {
            0 => drop(fs.create(dir, &name(j, 'f'), &NewNode::file(0o600)).await),
            1 => drop(fs.create(dir, &name(j, 'd'), &NewNode::directory(0o700)).await),
            2 | 3 => drop(fs.unlink(dir, &name(i, 'f')).await),
            4 => drop(fs.rmdir(dir, &name(i, 'd')).await),
            5 | 6 => {
                let kind = if rng.random_bool(0.5) { 'f' } else { 'd' };
                let (old, new) = (name(i, kind), name(j, kind));
                drop(fs.rename(dir, &old, to, &new, RenameMode::Replace).await);
            }
            kind => {
                let Ok(found) = fs.lookup(dir, &name(i, 'f')).await else { continue };
                if kind == 7 {
                    drop(fs.link(found.ino, to, &name(j, 'f')).await);
                } else {
                    let data = vec![n as u8; rng.random_range(1..30_000)];
                    drop(fs.write(found.ino, rng.random_range(0..20_000), &data).await);
                }
            }
        }
        rt.sleep(Duration::from_millis(rng.random_range(0..40))).await;
    }
}

fn finish(executor: &Executor, fs: &Fs, check: Background) -> CheckOutcome {
    let outcome = executor.block_on(check.wait()).unwrap().unwrap();
    executor.block_on(fs.unmount()).unwrap().unwrap();
    outcome
}

#[test]
fn leaked_resources_are_freed_while_others_work() {
    let sound = made();
    let (mut complete, mut partly) = (0, 0);
    for seed in 0..30 {
        let s = crash(&sound);
        let executor = Executor::simulated(seed);
        let rt = executor.runtime();
        let (fs, disk) = start(&executor, &s.disk, 64 << 20);
        let check_task = Background::start(&rt, &fs, &disk, Pace::default());
        let workers: Vec<_> = (0..3)
            .map(|n| rt.spawn("worker", use_it(rt.clone(), fs.clone(), seed * 10 + n, 150)))
            .collect();
        executor
            .block_on(async {
                for worker in workers {
                    worker.await
                }
            })
            .unwrap();
        let outcome = finish(&executor, &fs, check_task);
        let given = outcome.reclaimed;
        let groups = u64::from(s.sb.ncg);
        let exactly = (given.fragments, given.inodes, given.names);
        assert_eq!(exactly, (21 * groups, 7 * groups, 1), "seed {seed}: {outcome}");
        assert!(given.orphans > 40, "seed {seed}: {outcome}");
        assert!(given.links >= 10, "seed {seed}: {outcome}");
        let report = check(&s.disk, Repair::No).unwrap();
        match outcome.ending {
            Ending::Complete => {
                complete += 1;
                assert!(report.findings.is_empty() && report.was_clean, "seed {seed}:\n{report}");
            }
            // A task has written the file whose count of sectors was wrong.
            Ending::Partly => {
                partly += 1;
                let only_sectors = |f: &ordo_check::Finding| f.kind() == "BlockCount";
                assert!(report.findings.iter().all(only_sectors), "seed {seed}:\n{report}");
                assert!(given.left == 1 && !report.was_clean, "seed {seed}: {outcome}");
            }
            _ => panic!("seed {seed}: {outcome}"),
        }
        let bytes = disk.bytes();
        assert_eq!(bytes, 0, "copies are dropped");
    }
    assert!(complete > 5, "{complete} {partly}");
}

/// An inode with a wrong count is removed, and its number reused, before its step comes: the new
/// inode keeps its count.
#[test]
fn a_reused_inode_number_keeps_its_count() {
    let s = crash(&made());
    let executor = Executor::simulated(1);
    let (fs, disk) = start(&executor, &s.disk, 64 << 20);
    let check_task = Background::start(&executor.runtime(), &fs, &disk, Pace::default());
    let reuse = async {
        let a = fs.lookup(fs.root(), b"a").await.unwrap().ino;
        fs.rmdir(a, b"bare").await.unwrap();
        for i in 0..40 {
            let name = format!("again{i}");
            fs.create(a, name.as_bytes(), &NewNode::directory(0o755)).await.unwrap();
        }
    };
    executor.block_on(reuse).unwrap();
    let outcome = finish(&executor, &fs, check_task);
    assert_eq!(outcome.ending, Ending::Complete, "{outcome}");
    support::assert_clean(&s.disk, "numbers used again");
}

/// Steps are paced: with a smaller share the check takes longer.
#[test]
fn the_background_check_leaves_others_their_share_of_the_disk() {
    let sound = made();
    let seconds = |share| {
        let s = crash(&sound);
        let executor = Executor::simulated(1);
        let rt = executor.runtime();
        let (fs, disk) = start(&executor, &s.disk, 64 << 20);
        let start = rt.now();
        let check = Background::start(&rt, &fs, &disk, Pace { share });
        let outcome = executor.block_on(check.wait()).unwrap().unwrap();
        assert_eq!(outcome.ending, Ending::Complete);
        (rt.now() - start).as_secs_f64()
    };
    let (whole, fifth) = (seconds(1.0), seconds(0.2));
    assert!(fifth > 3.0 * whole && fifth < 6.0 * whole, "{whole} {fifth}");
}

/// With damage that no crash explains, nothing is freed, and the next mount is refused.
#[test]
fn damage_is_left_alone_and_remembered() {
    let s = crash(&made());
    let c = named(&s, ROOT, "c");
    s.change_inode(named(&s, c, "f3"), |node| node.nlink = 0);
    let executor = Executor::simulated(1);
    let (fs, disk) = start(&executor, &s.disk, 64 << 20);
    let before = fs.layout().superblock().cstotal.clone();
    let check_task = Background::start(&executor.runtime(), &fs, &disk, Pace { share: 1.0 });
    let outcome = finish(&executor, &fs, check_task);
    assert_eq!((outcome.ending, outcome.reclaimed), (Ending::Damage, Default::default()));
    let after = Surgeon::new(&s.disk).sb;
    assert!(after.clean == 0 && after.flags & FS_NEEDSFSCK != 0);
    assert!(before.nifree >= after.cstotal.nifree, "nothing was given back");
    let error = executor.block_on(mount(
        &executor.runtime(),
        s.disk.clone(),
        SoftUpdates::default(),
        &MountOptions::default(),
    ));
    assert!(matches!(error.unwrap(), Err(ordo_ffs::MountError::Unclean)));
    // A full check saves inodes without names, and repairs the damage.
    let report = check(&s.disk, Repair::Yes).unwrap();
    assert!(report.repaired && !report.cleared, "{report}");
    support::assert_clean(&s.disk, "after its repair");
}

/// More is written than the memory of the snapshot allows: the work continues, and the check ends
/// and reports it.
#[test]
fn without_memory_it_gives_up() {
    let s = crash(&made());
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let (fs, disk) = start(&executor, &s.disk, 12 << 10);
    let check_task = Background::start(&rt, &fs, &disk, Pace::default());
    executor.block_on(use_it(rt.clone(), fs.clone(), 1, 200)).unwrap();
    let outcome = finish(&executor, &fs, check_task);
    assert_eq!((outcome.ending, outcome.report), (Ending::OutOfMemory, None));
    let report = check(&s.disk, Repair::Preen).unwrap();
    assert!(report.is_safe() && report.repaired, "{report}");
    assert!(Surgeon::new(&s.disk).sb.flags & FS_UNCLEAN == 0);
}

/// The check can be stopped at any time, and a later one finds what is left.
#[test]
fn the_background_check_can_be_stopped_and_started_again() {
    let s = crash(&made());
    for (n, millis) in [0, 50, 400, 2000, 4000, 8000].into_iter().enumerate() {
        let executor = Executor::simulated(n as u64);
        let rt = executor.runtime();
        let (fs, disk) = start(&executor, &s.disk, 64 << 20);
        let check_task = Background::start(&rt, &fs, &disk, Pace { share: 1.0 });
        executor.block_on(rt.sleep(Duration::from_millis(millis))).unwrap();
        let outcome = executor.block_on(check_task.stop()).unwrap().unwrap();
        executor.block_on(fs.unmount()).unwrap().unwrap();
        let report = check(&s.disk, Repair::No).unwrap();
        assert!(report.is_safe(), "{report}");
        assert_eq!(report.is_consistent(), outcome.ending == Ending::Complete || report.was_clean);
    }
    let executor = Executor::simulated(9);
    let (fs, disk) = start(&executor, &s.disk, 64 << 20);
    let check_task = Background::start(&executor.runtime(), &fs, &disk, Pace { share: 1.0 });
    let outcome = finish(&executor, &fs, check_task);
    assert!(matches!(outcome.ending, Ending::Complete | Ending::NotNeeded), "{outcome}");
    support::assert_clean(&s.disk, "begun again");
}
