//! Inodes that are freed and used again while the log writes what they were before.
//!
//! Fault model: a disk whose writes take time, with a volatile cache, torn at 512 bytes. Several clients remove files and make
//! others at once, so a number is free again while a batch of the log that has the number's buffer is still under way.

use ordo_crash::{Budget, Config, CrashModel, FsGeometry, ScriptManner, explore_run, record};
use ordo_systems::System;

/// In a run of each manner a file gets the number of a file that is removed in the same moment: long symbolic links, which
/// have a block of their own, beside large files, and many names with four clients. Would catch a removal that frees the
/// number before it has forgotten the inode's buffer: the new file then lost its inode, and the next write of the log found
/// a block without one.
#[test]
fn a_number_is_free_only_when_the_buffer_of_its_inode_is_forgotten() {
    let shape = FsGeometry::by_name("4k-512").unwrap();
    let far =
        ScriptManner { far: shape.block_size, steps: 200, fsync: 5, ..ScriptManner::default() };
    let names = ScriptManner { names: 40, clients: 4, steps: 100, ..ScriptManner::default() };
    for system in System::runnable().filter(|s| ["lfs", "dualfs"].contains(&s.name())) {
        let scheme = system.crashed(None, &shape).unwrap();
        for (manner, seed) in [(far, 3), (names, 2), (far, 4), (names, 5)] {
            let script = manner.script(seed);
            let run = record(&scheme, &script, &Config::new(seed, CrashModel::Volatile)).unwrap();
            let of = format!("{}, seed {seed}, {manner:?}", system.name());
            let budget = Budget { states: 100, usable_every: 50, ..Budget::default() };
            explore_run(&scheme, &run.into(), seed, &budget).expect_kept(&of);
        }
    }
}
