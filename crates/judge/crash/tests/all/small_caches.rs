//! Caches of a few blocks, so that nearly everything is evicted and read again, and operations wait
//! for the disk between two changes that belong together.
//!
//! Fault model: the honest disks. Would catch a block that is evicted while an operation relies on
//! it, one that is read at a place that it has left or not reached yet, and changes of one
//! operation of which a crash shows a part.

use ordo_crash::{
    Budget, CachePlan, Config, CrashModel, FsGeometry, Script, ScriptManner, explore,
};
use ordo_systems::{System, dualfs, ffs, lfs};

/// Explores a script on a system whose cache holds `few` blocks. With every other seed, parts of
/// blocks are written, as in a mount.
fn go(
    system: System,
    shape: &str,
    script: &Script,
    (few, seed): (u32, u64),
    model: CrashModel,
    states: usize,
) {
    let shape = FsGeometry::by_name(shape).unwrap();
    let scheme = system.crashed(None, &shape).unwrap();
    let write_unit = (seed % 2 == 0).then_some(512);
    let plan = CachePlan { cache_blocks: Some(few), write_unit, ..CachePlan::default() };
    let config = Config::new(seed, model).with_cache(plan, shape.block_size);
    let budget = Budget { states, ..Budget::default() };
    let name = format!("{}, {}, {few} blocks, {model:?}, seed {seed}", system.name(), shape.name);
    explore(&scheme, script, &config, &budget).unwrap().expect_kept(&name);
}

#[test]
fn few_blocks_of_cache_suffice() {
    for system in System::runnable().filter(|system| system.name() != "ffs-none") {
        for (shape, block) in [("4k-512", 4096), ("8k-1k", 8192), ("16k-2k-full", 16384)] {
            let scripts = [
                Script::overwrites(2, 2, 150, block),
                Script::reuse(5, 2, 2, block),
                ScriptManner { append: 80, ..ScriptManner::default() }.script(3),
            ];
            for (seed, script) in (1..).zip(&scripts) {
                go(system, shape, script, (12, seed), CrashModel::Volatile, 20);
                go(system, shape, script, (12, seed), CrashModel::Completed, 20);
            }
        }
    }
}

/// Halves of blocks are written over while nothing of the block is in memory. The halves are
/// fsynced, replaced, evicted, and read again. Would catch a buffer whose unknown half reaches the
/// disk.
#[test]
fn halves_of_blocks_are_written_without_being_read() {
    let keeps_places = |system: &System| !["ffs-none", "lfs", "dualfs"].contains(&system.name());
    for system in System::runnable().filter(keeps_places) {
        for (shape, half) in [("8k-1k", 4096), ("16k-2k-full", 8192)] {
            for seed in [4, 6] {
                let script = Script::overwrites(seed, 2, 150, half);
                go(system, shape, &script, (12, seed), CrashModel::Volatile, 20);
                go(system, shape, &script, (12, seed), CrashModel::Completed, 20);
            }
        }
    }
}

/// The cleaner moves a block that is in no buffer. Its pointer leads to the new place before the
/// block is there, and a reader once got what was there before: bytes of another file as a
/// directory, with all but the last of these seeds.
#[test]
fn a_block_that_the_cleaner_moves_is_read_when_it_has_been_written() {
    use CrashModel::{Completed, Volatile};
    let runs = [
        (14, 12, Completed),
        (24, 8, Completed),
        (30, 12, Completed),
        (33, 12, Volatile),
        (47, 12, Volatile),
        (48, 16, Volatile),
        (49, 16, Volatile),
    ];
    for (seed, few, model) in runs {
        let script = Script::overwrites(seed, 2, 250, 4096);
        for system in [lfs::LFS, dualfs::DUALFS] {
            go(system, "4k-512-full", &script, (few, seed), model, 20);
        }
    }
}

/// A journal holds contents back from fragments that another operation has freed, until the free is
/// certain. An operation that waits for the cache keeps it uncertain for long, and an fsync once
/// returned before such contents were written.
#[test]
fn an_fsync_waits_for_contents_that_the_journal_holds_back() {
    use CrashModel::{Completed, Volatile};
    let runs = [
        ("lffs-wafs-1sync-group", "8k-1k", 8192, Volatile),
        ("lffs-wafs-2sync-group", "8k-1k", 8192, Volatile),
        ("lffs-wafs-2async", "4k-512", 4096, Completed),
    ];
    for (name, shape, block, model) in runs {
        let system = System::by_name(name).unwrap();
        go(system, shape, &Script::overwrites(11, 2, 120, block), (12, 11), model, 1000);
    }
}

/// Two operations want to fill the same block of inodes. While the second waits for memory, the
/// first one fills the block, makes files in it, and the block is evicted. The second one's empty
/// buffer once took the block's place, and the files were gone.
#[test]
fn a_block_of_inodes_is_filled_once() {
    let script = Script::reuse(156, 5, 2, 16384);
    go(ffs::SOFT_UPDATES, "16k-2k", &script, (8, 156), CrashModel::Volatile, 100);
}
