//! Inodes that are freed and used again while the log writes what they were before.
//!
//! Fault model: a disk whose writes take time, with a volatile cache, torn at 512 bytes. Several
//! clients remove files and make others at once, so a number is free again while a batch of the log
//! that has the number's buffer is still under way.

use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Script, ScriptManner, ScriptPlace, ScriptStep,
};
use ordo_crash::{explore, explore_run, record};
use ordo_systems::System;

/// In a run of each manner a file gets the number of a file that is removed in the same moment:
/// long symbolic links, which have a block of their own, beside large files, and many names with
/// four clients. Would catch a removal that frees the number before it has forgotten the inode's
/// buffer: the new file then lost its inode, and the next write of the log found a block without
/// one.
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

/// Another name is made beside a directory, which is then removed and made again with the same
/// inode and the same names. A crash may leave the first of the two directories. An oracle that
/// takes it for the second one misses the name beside it, and accuses a correct log.
#[test]
fn a_directory_that_was_made_again_is_told_from_the_first_one() {
    use ScriptStep::{Make, Mkdir, Pause, Rmdir, Sync, Unlink};
    let (dir, beside) = (ScriptPlace { dir: 1, name: 0 }, ScriptPlace { dir: 1, name: 1 });
    let files = (0..6).map(|name| ScriptPlace { dir: 2, name });
    let mut steps = vec![Mkdir(dir)];
    steps.extend(files.clone().map(Make).chain([Sync, Make(beside)]));
    steps.extend(files.clone().map(Unlink).chain([Rmdir(dir), Mkdir(dir)]));
    steps.extend(files.map(Make).chain([Pause(5), Sync]));
    let script = Script { clients: vec![steps] };
    let shape = FsGeometry::by_name("4k-512").unwrap();
    for system in System::runnable().filter(|s| s.name() != "ffs-none") {
        let scheme = system.crashed(None, &shape).unwrap();
        for model in [CrashModel::Volatile, CrashModel::Completed] {
            let budget = Budget { states: 300, ..Budget::default() };
            let outcome = explore(&scheme, &script, &Config::new(1, model), &budget).unwrap();
            outcome.expect_kept(&format!("{}, {model:?}", system.name()));
        }
    }
}
