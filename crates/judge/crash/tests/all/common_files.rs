//! Files with several writers, and files on a full disk.
//!
//! Fault model: a disk with a volatile cache, torn at 512 bytes. Three clients write to the same
//! files at once; or they write until there is no space. What two calls wrote to one place at one
//! time is not known, and neither is a part of a write that found no space; everything else in
//! these files is judged. Would catch a write that is lost because another one was under way, and a
//! file that nobody looks at any more once it had two writers or no space.

use ordo_crash::script::WIDE;
use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Outcome, Run, Scheme, Script, ScriptManner,
    ScriptPlace, ScriptStep, explore_run, record,
};
use ordo_systems::{Crashed, System};

use crate::forgetful::{Forgetful, Forgotten};

fn recorded(scheme: &impl Scheme, script: &Script, seed: u64) -> Run {
    record(scheme, script, &Config::new(seed, CrashModel::Volatile)).unwrap()
}

fn go(scheme: &impl Scheme, run: Run, seed: u64) -> Outcome {
    let budget = Budget { states: 300, recovery_every: 50, ..Budget::default() };
    explore_run(scheme, &run.into(), seed, &budget)
}

fn common(seed: u64) -> Script {
    ScriptManner { common: 70, ..ScriptManner::default() }.script(seed)
}

/// Large files in a shape that has little space.
fn full(seed: u64, geometry: &FsGeometry) -> Script {
    let far = geometry.block_size;
    ScriptManner { far, fsync: 15, common: 20, ..ScriptManner::default() }.script(seed)
}

fn systems(geometry: &FsGeometry) -> impl Iterator<Item = Crashed> {
    let systems = System::runnable().filter(|s| s.promise().durable_fsync);
    systems.filter_map(|s| s.crashed(None, geometry).ok())
}

#[test]
fn files_with_several_writers_keep_what_is_known_of_them() {
    for (name, seed) in [("4k-512", 1), ("8k-1k", 2), ("16k-16k", 3)] {
        for system in systems(&FsGeometry::by_name(name).unwrap()) {
            let run = recorded(&system, &common(seed), seed);
            let judged = run.history.objects.iter().filter(|o| o.name.starts_with(b"common"));
            let (mut contested, mut known) = (0, 0);
            for (_, contents) in
                judged.filter(|o| !o.indeterminate).flat_map(|o| o.sectors.values().flatten())
            {
                *if contents.is_none() { &mut contested } else { &mut known } += 1;
            }
            let what = format!("{}, {name}, seed {seed}", system.name());
            assert!(contested > 0 && known > contested, "{what}: {contested}, {known}");
            go(&system, run, seed).expect_kept(&what);
        }
    }
}

#[test]
fn files_on_a_full_disk_keep_what_is_known_of_them() {
    for (name, seed) in [("4k-512-full", 1), ("8k-1k-full", 2), ("16k-2k-full", 3)] {
        let geometry = FsGeometry::by_name(name).unwrap();
        for system in systems(&geometry) {
            let run = recorded(&system, &full(seed, &geometry), seed);
            go(&system, run, seed).expect_kept(&format!("{}, {name}, seed {seed}", system.name()));
        }
    }
}

/// A file, then others until there is no space; some of these go, and the file is written again.
fn filled() -> Script {
    let file = ScriptPlace { dir: 1, name: 0 };
    let other = |name| ScriptPlace { dir: 1, name: WIDE + name };
    let mut steps = vec![ScriptStep::Make(file), ScriptStep::Write(file, 0, 3000)];
    steps.push(ScriptStep::Fsync(file));
    steps.extend((0..40).flat_map(|name| {
        [ScriptStep::Make(other(name)), ScriptStep::Write(other(name), 0, 300_000)]
    }));
    steps.extend((0..40).map(|name| ScriptStep::Unlink(other(name))));
    steps.extend([ScriptStep::Sync, ScriptStep::Write(file, 0, 3000), ScriptStep::Fsync(file)]);
    // Time to be seen in.
    steps.extend((100..110).flat_map(|name| [ScriptStep::Make(other(name)), ScriptStep::Sync]));
    Script { clients: vec![steps] }
}

/// A write that is forgotten since another one is under way is found, and so is one behind the
/// write that found no space.
#[test]
fn writes_that_are_forgotten_are_found() {
    let lost = |system: Crashed, fault, script: &Script, seed| {
        let forgetful = Forgetful { system, fault };
        let run = recorded(&forgetful, script, seed);
        let found = go(&forgetful, run, seed).failures;
        found.iter().any(|f| !f.verdict.lost_durable.is_empty())
    };
    let small = FsGeometry::by_name("8k-1k-full").unwrap();
    for (geometry, fault) in [
        (FsGeometry::by_name("4k-512").unwrap(), Forgotten::OverlappingWrite),
        (small.clone(), Forgotten::AfterNoSpace),
    ] {
        for system in systems(&geometry) {
            let is_found = (1..5).any(|seed| {
                let script = match fault {
                    Forgotten::OverlappingWrite => common(seed),
                    _ => filled(),
                };
                lost(system.clone(), fault, &script, seed)
            });
            assert!(is_found, "{}: {fault:?}", system.name());
        }
    }
}
