//! Rules of the papers that no other test demands by themselves: each test fails when its rule is
//! off or its mechanism does nothing.
//!
//! Fault model: a mechanism that has no effect any more, while every promise still holds.

use ordo_block::Device;
use ordo_block::model::Model;
use ordo_block::ram::RamDisk;
use ordo_compare::{ComparisonRow, ComparisonSetup, MadeUsable, run, until_usable};
use ordo_runtime::Executor;
use ordo_systems::{MakeOptions, MountOptions, System, ffs, journaled};
use ordo_vfs::{FileSystem, NewNode, SetAttr};
use ordo_workload::Workload;
use ordo_workload::age::{ChurnOptions, Profile};
use std::rc::Rc;

fn papers() -> ComparisonSetup {
    ComparisonSetup { recovery: false, ..ComparisonSetup::papers() }
}

fn row(system: System, workload: &str, setup: &ComparisonSetup) -> ComparisonRow {
    let workload: Workload = workload.parse().unwrap();
    run(system, &workload, setup, &mut ()).unwrap()
}

/// "Soft Updates", section 2.2: an application never waits for a write. A hundred files are made,
/// written and removed: with synchronous writes somebody waits for two writes of each file, with
/// soft updates for none, and no time passes but the processor's. Would catch an ordering that
/// waits in an operation for a write of its own.
#[test]
fn applications_wait_for_no_write_of_soft_updates() {
    let files = "micro:total=200k,sizes=2k";
    let waits = |system| {
        let found = row(system, files, &papers());
        let of = |name: &str| found.phases.iter().find(|p| p.phase.name.starts_with(name)).unwrap();
        (of("create").sync_waits, of("delete").sync_waits, of("create").phase.seconds())
    };
    let (created, removed, sync) = waits(ffs::SYNC);
    assert!(created >= 200 && removed >= 200, "{created} and {removed} waits for 100 files");
    let (created, removed, soft) = waits(ffs::SOFT_UPDATES);
    assert_eq!((created, removed), (0, 0));
    assert!(soft < sync / 10.0, "{soft} s, {sync} s with synchronous writes");
}

/// Nonvolatile memory for the log ("Soft Updates", section 2.1; "Journaling versus Soft Updates",
/// section 3.3): each operation of a synchronous journal waits for its record, which takes a turn
/// of a disk and microseconds of a card with a battery. Would catch a log whose device is not the
/// one that was chosen, and a model of the card that costs as much as a disk.
#[test]
fn a_log_in_nonvolatile_memory_is_waited_for_in_microseconds() {
    let seconds = |name: &str| {
        let setup = ComparisonSetup { log_disk: Model::by_name(name), ..papers() };
        let found = row(journaled::WAFS_2SYNC, "create-delete:files=200", &setup);
        assert!(found.sync_waits >= 400, "{name}: {} waits", found.sync_waits);
        found.app_seconds
    };
    let (disk, memory) = (seconds("viking"), seconds("nvram"));
    assert!(memory < disk / 4.0, "{memory} s with the card, {disk} s with a disk");
}

/// "Soft Updates", section 3.4: what was freed counts as free at once, though it can be used only
/// after the reset is on disk; a caller who needs the space waits for those writes instead of being
/// refused. A file that takes most of the space is cut, and counts as free; then it is filled again
/// and removed, and another one of its size is written. Would catch counts that grow only when the
/// disk has the reset, and a file system that is full while a removal is pending.
#[test]
fn removed_space_counts_as_free_at_once_and_can_be_used() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let scenario = async {
        let disks = Device::of_each(&[Rc::new(RamDisk::new(16 << 20))]);
        ffs::SOFT_UPDATES.make(&rt, &disks, &MakeOptions::default()).await.unwrap();
        let mounted = ffs::SOFT_UPDATES.mount(&rt, &disks, &MountOptions::default()).await.unwrap();
        let fs = mounted.fs();
        let free = async || fs.statfs().await.unwrap().blocks_available;
        let piece = vec![7; 64 << 10];
        let most = free().await * u64::from(fs.statfs().await.unwrap().fragment_size) * 8 / 10;
        let fill = async |name: &[u8]| {
            let file = fs.create(fs.root(), name, &NewNode::file(0o644)).await.unwrap();
            for at in (0..most).step_by(piece.len()) {
                fs.write(file.ino, at, &piece).await.unwrap();
            }
        };
        let before = free().await;
        fill(b"first").await;
        fs.sync().await.unwrap();
        let full = free().await;
        assert!(full < before / 2, "{full} of {before} are free");
        let first = fs.lookup(fs.root(), b"first").await.unwrap().ino;
        fs.setattr(first, &SetAttr { size: Some(0), ..SetAttr::default() }).await.unwrap();
        let after = free().await;
        assert!(after > before * 98 / 100, "{after} of {before} are free after the cut");
        fill(b"second").await;
        fs.sync().await.unwrap();
        assert!(free().await < before / 2);
        fs.unlink(fs.root(), b"second").await.unwrap();
        fill(b"third").await;
        mounted.unmount().await.unwrap();
    };
    executor.block_on(scenario).unwrap();
}

/// The rewrites, the writes and the rollbacks of PostMark in a cache of 4 MB, where blocks are
/// reclaimed all the time.
fn rewrites(write_order: (bool, bool)) -> (u64, u64, u64) {
    let small = ComparisonSetup { memory: 4 << 20, dirty_max: 1 << 20, write_order, ..papers() };
    let found = row(ffs::SOFT_UPDATES, "postmark:files=1000,transactions=4000", &small);
    (found.rewritten, found.writes.total(), found.dependencies.unwrap().rolled_back)
}

/// "Soft Updates", section 3.5: writing blocks that depend on nothing first removes more than half
/// of the writes that only repeat what was rolled back. Would catch a syncer that takes blocks by
/// age alone.
#[test]
fn writing_independents_first_saves_rewrites() {
    let (unordered, ..) = rewrites((false, false));
    let (ordered, ..) = rewrites((true, false));
    assert!(ordered * 2 < unordered, "{ordered} rewrites, {unordered} without the order");
}

/// Section 3.5 again: memory is reclaimed from blocks that depend on nothing, which leaves less
/// than a quarter of the rewrites that there were at first. Would catch a cache that reclaims the
/// oldest block whatever depends on it.
#[test]
fn reclaiming_independents_first_saves_rewrites() {
    let (neither, ..) = rewrites((false, false));
    let (ordered, ..) = rewrites((true, false));
    let (both, ..) = rewrites((true, true));
    assert!(both * 4 < neither, "{both} rewrites, {neither} without either");
    assert!(both < ordered, "{both} rewrites, {ordered} with the order of the syncer alone");
}

/// "Journaling versus Soft Updates", section 4: a block that is written with something rolled back
/// is written again. Where nothing avoids that, there are rollbacks, rewrites, and as many writes
/// more; without order there is neither. Would catch a rolled-back block that counts as clean, and
/// rewrites that are not counted.
#[test]
fn a_block_written_with_a_rollback_is_written_again() {
    let (many, writes, rollbacks) = rewrites((false, false));
    assert!(rollbacks >= many && many > 100, "{many} rewrites, {rollbacks} rollbacks");
    let (few, fewer_writes, _) = rewrites((true, true));
    let (saved, more) = (many - few, writes - fewer_writes);
    assert!(more * 2 > saved, "{saved} rewrites more, and only {more} writes more");
    let small = ComparisonSetup { memory: 4 << 20, dirty_max: 1 << 20, ..papers() };
    let none = row(ffs::NONE, "postmark:files=300,transactions=600", &small);
    assert_eq!((none.rewritten, none.dependencies.is_none()), (0, true));
}

/// "Soft Updates", section 4.4 and Table III: a check after a crash takes the longer the fuller the
/// file system is, and a mount under soft updates always the same. Would catch a mount that looks
/// at inodes or blocks.
#[test]
fn a_mount_after_a_crash_takes_as_long_when_the_file_system_is_full() {
    let profile = Profile::find("agrawal").unwrap();
    let filled = ChurnOptions { utilisation: 0.7, overwrites: 0.0, ..ChurnOptions::new(profile) };
    let seconds = |system, how, ageing| {
        let setup = ComparisonSetup { size: Some(512 << 20), ageing, ..papers() };
        until_usable(system, how, &setup, &mut ()).unwrap()
    };
    let check = [None, Some(filled.clone())].map(|a| seconds(ffs::SYNC, MadeUsable::ByCheck, a));
    let mount = [None, Some(filled)].map(|a| seconds(ffs::SOFT_UPDATES, MadeUsable::ByMount, a));
    assert!(check[1] > 3.0 * check[0], "checks: {check:?} s");
    assert!((0.9..1.1).contains(&(mount[1] / mount[0])), "mounts: {mount:?} s");
    assert!(mount[1] < check[1] / 5.0, "a mount {mount:?} s, a check {check:?} s");
}

/// "Journaling versus Soft Updates", section 5.1: where the log fills up before blocks are written
/// by age, a forced checkpoint writes the blocks of its older half. A log of a small file system
/// takes many times its length of records that way; in a large one nothing is forced. Would catch a
/// log that is full for good, and one that forces blocks out long before it is short of space.
#[test]
fn a_full_log_forces_the_blocks_of_its_older_half_out() {
    let log = |bytes: u64| {
        let setup = ComparisonSetup { size: Some(bytes), ..papers() };
        let found = row(journaled::FILE, "postmark:files=400,transactions=6000", &setup);
        (found.log.unwrap(), found.app_seconds)
    };
    let (small, _) = log(64 << 20);
    let capacity = (64 << 20) / 100;
    assert!(small.bytes > capacity, "{} bytes of records never fill the log", small.bytes);
    assert!(small.forced_checkpoints > 0, "{small:?}");
    let (large, _) = log(2 << 30);
    assert_eq!(large.forced_checkpoints, 0, "{large:?}");
}

/// Section 8.1: a WAFS writes its log in blocks of 4 KB, the log in a file goes out in clusters of
/// 64 KB. On a disk that is never waited for, each write has what fills one. Would catch a log in a
/// file that is written block by block, and a WAFS that gathers clusters.
#[test]
fn a_wafs_writes_blocks_and_a_log_in_a_file_clusters() {
    let mean = |system| {
        let setup = ComparisonSetup { disk: Model::by_name("ram").unwrap(), ..papers() };
        let setup = ComparisonSetup { size: Some(1 << 30), ..setup };
        let found = row(system, "create-delete:files=3000", &setup);
        found.bytes_written_by_kind.get("log") / found.writes.get("log")
    };
    let (blocks, clusters) = (mean(journaled::WAFS_1ASYNC), mean(journaled::FILE));
    assert!((3000..6000).contains(&blocks), "{blocks} bytes a write of a WAFS");
    assert!((40_000..70_000).contains(&clusters), "{clusters} bytes a write of a log in a file");
}

/// A synchronous journal in its published form, beside Ordo's: each of two names waits for a turn
/// of the disk, where skipped sectors make it wait for a part. Would catch a switch that changes
/// nothing, so that figures of the published systems are those of faster ones.
#[test]
fn a_published_journal_waits_a_turn_for_each_name() {
    let turns = |log_skips| {
        let setup = ComparisonSetup { log_skips, ..papers() };
        let found = row(journaled::WAFS_2SYNC, "create-delete:files=200", &setup);
        found.app_seconds / 400.0 / (60.0 / 7200.0)
    };
    let (skipping, published) = (turns(true), turns(false));
    assert!((0.9..1.3).contains(&published), "{published} turns for each name");
    assert!(skipping < 0.5 * published, "{skipping} turns, {published} in the published form");
}
