//! Directories that an fsync makes durable.
//!
//! Fault model: a disk with a volatile cache, torn at 512 bytes. Clients make, remove, rename,
//! exchange and link names, and wait for a directory now and then, as databases and package
//! managers do after a rename. Every change of a name in it that had returned before must be there.
//! Would catch an fsync of a directory that writes its inode and leaves its blocks, or an entry of
//! an inode that is not on disk.

use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Outcome, Scheme, Script, ScriptManner, explore,
};
use ordo_systems::System;

use crate::forgetful::{Forgetful, Forgotten};

fn go(scheme: &impl Scheme, script: &Script, seed: u64, states: usize) -> Outcome {
    let budget = Budget { states, recovery_every: 50, ..Budget::default() };
    explore(scheme, script, &Config::new(seed, CrashModel::Volatile), &budget).unwrap()
}

/// Few names that change often, and many names of all lengths.
fn scripts(seed: u64) -> [Script; 2] {
    let usual = ScriptManner { fsync: 15, dirsync: 85, ..ScriptManner::default() };
    [usual.script(seed), ScriptManner { names: 120, ..usual }.script(seed)]
}

#[test]
fn names_outlive_a_crash_after_an_fsync_of_their_directory() {
    for system in System::runnable().filter(|s| s.promise().durable_fsync) {
        for (name, seed) in [("4k-512", 1), ("8k-1k-groups", 2), ("16k-16k", 3)] {
            let Ok(crashed) = system.crashed(None, &FsGeometry::by_name(name).unwrap()) else {
                continue;
            };
            for (n, script) in scripts(seed).iter().enumerate() {
                let outcome = go(&crashed, script, seed, 300);
                outcome.expect_kept(&format!("{}, {name}, seed {seed}/{n}", system.name()));
            }
        }
    }
}

/// Without an effect of that fsync, names are lost on every system whose names are not durable on
/// return.
#[test]
fn a_directory_that_is_not_synced_is_found() {
    for system in System::runnable().filter(|s| s.promise().durable_fsync) {
        let geometry = FsGeometry::by_name("4k-512").unwrap();
        let Ok(system) = system.crashed(None, &geometry) else { continue };
        let forgetful = Forgetful { system, fault: Forgotten::DirectorySync };
        let lost = scripts(1).iter().any(|script| {
            let found = go(&forgetful, script, 1, 300).failures;
            found.iter().any(|f| !f.verdict.lost_durable.is_empty())
        });
        assert_eq!(lost, !forgetful.promise().durable_names, "{}", forgetful.name());
    }
}
