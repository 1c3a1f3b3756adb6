//! The journal in its modes, crashed: contents in the log, or in their places before a commit;
//! whole blocks; everything committed together; the writes of a commit after or beside each other.
//!
//! Fault model: as in `journal.rs`. Beside the journal's promises, no file may show contents that
//! were never written there.

use ordo_crash::{Config, CrashModel, FsGeometry, Outcome, Script, ScriptManner, explore};
use ordo_ordering::{JournalMode, JournalRules};
use ordo_systems::System;
use ordo_systems::journaled::OF_CONTENTS;

use crate::journal::{Journal, Place, RUNS, budget, go};

/// Modes with every value of every option.
const MODES: [&[&str]; 8] = [
    &["contents=ordered"],
    &["contents=data"],
    &["contents=adaptive", "records=blocks"],
    &["contents=ordered", "commits=tangled", "phases=apart", "records=blocks"],
    &["contents=data", "commits=tangled", "records=blocks", "phases=overlap"],
    &["contents=ordered", "phases=overlap"],
    &["records=blocks", "commits=tangled", "phases=apart"],
    &["contents=data", "commits=tangled"],
];

fn mode(options: &[&str]) -> JournalMode {
    let mut mode = JournalMode::default();
    for (key, value) in options.iter().map(|option| option.split_once('=').unwrap()) {
        mode.set(key, value).unwrap();
    }
    mode
}

/// A form for each mode: the log in each place, synchronous and not, with group commit and without.
fn all() -> Vec<Journal> {
    let places = [Place::Behind, Place::Other, Place::File];
    let forms = MODES.iter().enumerate().map(|(n, options)| {
        let name: &str = Box::leak(options.join(",").into_boxed_str());
        let form = Journal::new(name, places[n % 3], n % 4 == 3, n % 5 == 4);
        Journal { mode: mode(options), ..form }
    });
    forms.collect()
}

/// Few files, which are appended to, overwritten and made durable.
fn appends(seed: u64) -> Script {
    ScriptManner { append: 60, ..ScriptManner::default() }.script(seed)
}

fn kept(scheme: &Journal, model: CrashModel, seed: u64, states: usize) -> Outcome {
    // Some files are written and synced again and again, others grow by fragments and move.
    let script = match seed % 3 {
        0 => Script::random(seed, 3, 90),
        1 => Script::random_holes(seed, 2, 90),
        _ => appends(seed),
    };
    let outcome = explore(scheme, &script, &Config::new(seed, model), &budget(states)).unwrap();
    outcome.expect_kept(&format!("{}, {model:?}, seed {seed}", scheme.name));
    outcome
}

/// Every mode, over random operations of three clients. Would catch contents that a recovery takes
/// back although an fsync had returned, contents of another file in a new block, and an image that
/// brings back an operation that was rolled back.
#[test]
fn every_mode_keeps_its_promises() {
    let mut states = 0;
    for scheme in all() {
        for (model, seed) in RUNS {
            states += kept(&scheme, model, seed, 600).counts.states;
        }
    }
    println!("{states} states");
    assert!(states >= 20_000, "{states}");
}

/// Each rule about contents prevents damage that is found without it.
#[test]
fn every_rule_about_contents_is_missed() {
    for rule in OF_CONTENTS.iter() {
        let broken = |seed: u64| {
            all().into_iter().any(|scheme| {
                let scheme = Journal { rules: JournalRules::all() - rule, ..scheme };
                if !scheme.mode.follows_contents() {
                    return false;
                }
                let script = appends(seed);
                let config = Config::new(seed, CrashModel::Volatile);
                let appends = explore(&scheme, &script, &config, &budget(400)).unwrap();
                appends.counts.promise_broken > 0
                    || go(&scheme, CrashModel::Volatile, seed, 400).counts.promise_broken > 0
            })
        };
        assert!((0..12).any(broken), "without {rule:?} nothing was ever found");
    }
}

/// The modes by the names that users give them, in every shape of a file system. Would catch a mode
/// that depends on the sizes of blocks, fragments or groups, or on free space.
#[test]
fn every_shape_keeps_its_promises_in_every_mode() {
    let logs = ["lffs-wafs-1async", "lffs-file", "lffs-wafs-2sync-group"];
    let mut states = 0;
    for (n, shape) in FsGeometry::all().iter().enumerate() {
        for (m, options) in MODES.iter().enumerate() {
            let name = format!("{}:{}", logs[(n + m) % 3], options.join(","));
            let system = System::by_name(&name).unwrap();
            let scheme = system.crashed(None, shape).unwrap();
            let seed = (n + m) as u64;
            let config = Config::new(seed, CrashModel::Volatile);
            let outcome = explore(&scheme, &appends(seed), &config, &budget(150)).unwrap();
            outcome.expect_kept(&format!("{name}, {}, seed {seed}", shape.name));
            states += outcome.counts.states;
        }
    }
    println!("{states} states");
}

/// States that once lost the contents of an fsync: contents that were logged while the same version
/// was being written in place; contents that a sync had to wait for because their fragments were
/// held back; the same in a commit that another caller had shared; a difference that was redone
/// over another version; and a note of a write by an owner that had left the place. Each is found
/// again when its rule is taken out.
#[test]
fn states_that_once_lost_contents_are_kept() {
    for (name, shape, seed) in [
        ("lffs-wafs-1async:contents=adaptive,records=blocks", "8k-1k", 3),
        ("lffs-file:contents=data", "4k-512-groups", 10),
        ("lffs-file:contents=data,commits=tangled", "8k-1k", 3),
        ("lffs-wafs-2async:contents=data,commits=tangled", "16k-2k-full", 3),
        ("lffs-wafs-2sync-group:contents=data,commits=tangled", "8k-1k-full", 3),
    ] {
        let shapes = FsGeometry::all();
        let shape = shapes.iter().find(|known| known.name == shape).unwrap();
        let scheme = System::by_name(name).unwrap().crashed(None, shape).unwrap();
        let config = Config::new(seed, CrashModel::Volatile);
        let outcome = explore(&scheme, &appends(seed), &config, &budget(200)).unwrap();
        outcome.expect_kept(&format!("{name}, {}, seed {seed}", shape.name));
    }
}
