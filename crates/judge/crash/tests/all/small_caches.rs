//! Caches of a few blocks, so that nearly everything is evicted and read again, and operations wait for the disk between two
//! changes that belong together.
//!
//! Fault model: the honest disks. Would catch a block that is evicted while an operation relies on it, one that is read at a place
//! that it has left or not reached yet, and changes of one operation of which a crash shows a part.

use ordo_cache::CacheConfig;
use ordo_crash::{Budget, Config, CrashModel, FsGeometry, Script, ScriptManner, explore};
use ordo_systems::{System, dualfs, lfs};

/// Explores a script on a system whose cache holds `few` blocks.
fn go(system: System, shape: &str, script: &Script, (few, seed): (usize, u64), model: CrashModel) {
    let shape = FsGeometry::by_name(shape).unwrap();
    let scheme = system.crashed(None, &shape).unwrap();
    let capacity = few * shape.block_size as usize;
    let config = Config::new(seed, model);
    let config = Config { cache: CacheConfig { capacity, ..config.cache }, ..config };
    let budget = Budget { states: 20, ..Budget::default() };
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
                go(system, shape, script, (12, seed), CrashModel::Volatile);
                go(system, shape, script, (12, seed), CrashModel::Completed);
            }
        }
    }
}

/// The cleaner moves a block that is in no buffer. Its pointer leads to the new place before the block is there, and a reader once
/// got what was there before: bytes of another file as a directory, with all but the last of these seeds.
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
            go(system, "4k-512-full", &script, (few, seed), model);
        }
    }
}
