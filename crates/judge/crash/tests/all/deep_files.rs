//! Files with blocks below a triple indirect block, from 1 to 68 GB on.
//!
//! Fault model: a disk with a volatile cache, torn at 512 bytes. Clients write to few files far
//! apart, cut them, punch holes and make some durable. Would catch an offset or a size of 32 bits,
//! and a block of pointers that is freed or written out of order at the third level.

use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Outcome, Scheme, Script, ScriptManner, ScriptPlace,
    ScriptStep, explore, explore_run, record,
};
use ordo_systems::System;

use crate::forgetful::{Forgetful, Forgotten};

fn go(scheme: &impl Scheme, script: &Script, seed: u64, states: usize) -> Outcome {
    let budget = Budget { states, recovery_every: 50, ..Budget::default() };
    explore(scheme, script, &Config::new(seed, CrashModel::Volatile), &budget).unwrap()
}

#[test]
fn files_of_many_gigabytes_keep_what_is_durable() {
    for system in System::runnable().filter(|s| s.promise().durable_fsync) {
        for (name, seed) in [("4k-512", 1), ("8k-1k-groups", 2), ("16k-16k", 3)] {
            let geometry = FsGeometry::by_name(name).unwrap();
            let Ok(crashed) = system.crashed(None, &geometry) else { continue };
            let usual =
                ScriptManner { clients: 2, steps: 160, fsync: 8, ..ScriptManner::default() };
            let script =
                ScriptManner { far: geometry.block_size, deep: true, ..usual }.script(seed);
            let run = record(&crashed, &script, &Config::new(seed, CrashModel::Volatile)).unwrap();
            let sizes = run.history.objects.iter().flat_map(|o| &o.sizes);
            assert!(sizes.into_iter().any(|(_, size)| *size > 1 << 30), "{}", system.name());
            let budget = Budget { states: 250, recovery_every: 50, ..Budget::default() };
            let outcome = explore_run(&crashed, &run.into(), seed, &budget);
            outcome.expect_kept(&format!("{}, {name}, seed {seed}", system.name()));
        }
    }
}

/// An offset without its bits from 4 GB on is found, and so is a link without most of its target.
#[test]
fn an_offset_of_32_bits_and_a_lost_target_are_found() {
    let geometry = FsGeometry::by_name("16k-16k").unwrap();
    let [file, link] = [0, 1].map(|name| ScriptPlace { dir: 1, name });
    let steps = vec![
        ScriptStep::Make(file),
        ScriptStep::Write(file, 5 << 30, 3000),
        ScriptStep::Symlink(link, 200),
        ScriptStep::Sync,
        ScriptStep::Make(ScriptPlace { dir: 1, name: 2 }),
        ScriptStep::Sync,
    ];
    let script = Script { clients: vec![steps] };
    for system in System::runnable().filter(|s| s.promise().durable_fsync) {
        let Ok(system) = system.crashed(None, &geometry) else { continue };
        for fault in [Forgotten::HighOffset, Forgotten::Target] {
            let forgetful = Forgetful { system: system.clone(), fault };
            let found = go(&forgetful, &script, 1, 40).failures;
            let is_lost = found.iter().any(|f| !f.verdict.lost_durable.is_empty());
            assert!(is_lost, "{}: {fault:?}", forgetful.name());
        }
    }
}
