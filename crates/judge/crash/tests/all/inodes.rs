//! Owners, groups, times, flags and device numbers, of the root too.
//!
//! Fault model: a disk with a volatile cache, torn at 512 bytes. Clients set all of them, on files,
//! directories and the root, and make some durable. An inode must have them as they were at one
//! time since a caller waited for it. Would catch an inode whose fields are written apart, a root
//! that nobody looks at, and an fsync that takes a change of a time for none.

use ordo_crash::script::ROOT;
use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Outcome, Scheme, Script, ScriptManner, ScriptPlace,
    ScriptStep, explore,
};
use ordo_systems::System;
use ordo_vfs::Attr;

use crate::forgetful::{Forgetful, Forgotten};

fn go(scheme: &impl Scheme, script: &Script, seed: u64, states: usize) -> Outcome {
    let budget = Budget { states, recovery_every: 50, ..Budget::default() };
    explore(scheme, script, &Config::new(seed, CrashModel::Volatile), &budget).unwrap()
}

fn script(seed: u64) -> Script {
    ScriptManner { inodes: 50, fsync: 15, dirsync: 40, ..ScriptManner::default() }.script(seed)
}

#[test]
fn inodes_are_as_they_were_at_one_time() {
    for system in System::runnable().filter(|s| s.promise().durable_fsync) {
        for (name, seed) in [("4k-512", 1), ("8k-1k", 2), ("16k-16k", 3)] {
            let geometry = FsGeometry::by_name(name).unwrap();
            let Ok(crashed) = system.crashed(None, &geometry) else { continue };
            let outcome = go(&crashed, &script(seed), seed, 300);
            outcome.expect_kept(&format!("{}, {name}, seed {seed}", system.name()));
        }
    }
}

/// A script that sets each of them once, on a file of its own, and waits for all.
fn each_once() -> Script {
    let place = |name| ScriptPlace { dir: 1, name };
    let root = ScriptPlace::itself(ROOT);
    let steps = vec![
        ScriptStep::Make(place(0)),
        ScriptStep::Owner(place(0), 1, 2),
        ScriptStep::Make(place(1)),
        ScriptStep::Times(place(1), 1_000_000_001, 1_000_000_002),
        ScriptStep::Make(place(2)),
        ScriptStep::Flags(place(2), 1),
        ScriptStep::Device(place(3), 0x1234),
        ScriptStep::Mode(root, 0o711),
        ScriptStep::Attribute(root, 0, 20),
        ScriptStep::Sync,
        ScriptStep::Make(place(4)),
        ScriptStep::Sync,
    ];
    Script { clients: vec![steps] }
}

/// Each of these that does not reach the disk is found, on every system.
#[test]
fn each_field_that_is_forgotten_is_found() {
    let faults = [
        Forgotten::Owner,
        Forgotten::Group,
        Forgotten::Flags,
        Forgotten::Atime,
        Forgotten::Mtime,
        Forgotten::Birthtime,
        Forgotten::DeviceNumber,
        Forgotten::RootMode,
        Forgotten::RootAttribute,
    ];
    for system in System::runnable().filter(|s| s.promise().durable_fsync) {
        let geometry = FsGeometry::by_name("4k-512").unwrap();
        let Ok(system) = system.crashed(None, &geometry) else { continue };
        for fault in faults {
            let forgetful = Forgetful { system: system.clone(), fault };
            let found = go(&forgetful, &each_once(), 1, 40).failures;
            let is_it = |broken: &String| broken.contains("in this state");
            let lost = found.iter().any(|f| f.verdict.broken.iter().any(is_it));
            assert!(lost, "{}: {fault:?}", forgetful.name());
        }
    }
}

/// The documentation lists every attribute that no oracle compares. An attribute that is added to
/// the file systems does not compile here until somebody decides.
#[test]
fn attributes_that_nobody_compares_are_listed() {
    let _every_field = |attr: Attr| {
        let Attr { ino, file_type, permissions, uid, gid, rdev, size, flags, .. } = attr;
        let Attr { atime, mtime, birthtime, .. } = attr;
        let Attr { generation, links, blocks, block_size, ctime, .. } = attr;
        // Without `..`: a new field is an error.
        Attr {
            ino,
            generation,
            file_type,
            permissions,
            links,
            uid,
            gid,
            rdev,
            size,
            blocks,
            block_size,
            flags,
            atime,
            mtime,
            ctime,
            birthtime,
        }
    };
    let page = include_str!("../../../../../docs/crash-model.md");
    let list = page.split("## Not compared").nth(1).expect("a list").split("\n## ").next().unwrap();
    // The third line above.
    for name in ["generation", "links", "blocks", "block_size", "ctime"] {
        assert!(list.contains(&format!("`{name}`")), "{name} is not listed");
    }
}
