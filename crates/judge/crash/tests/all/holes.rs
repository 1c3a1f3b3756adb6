//! Holes punched in files, crashed.
//!
//! Fault model: every honest disk of `docs/crash-model.md`. Two clients write to a few files at
//! places below the inode, below a single indirect block, and below a double one, punch holes in
//! their middle, cut them there, and write there again. No block may be in two files, or be used
//! and free. Durable data outside of holes are there, and a hole has its old contents or zeros.

use ordo_crash::{
    Budget, Config, CrashModel, Outcome, Promise, Scheme, Script, ScriptPlace, ScriptStep, explore,
};
use ordo_ordering::{SoftRules, SoftUpdates, SyncOrder};
use ordo_runtime::Duration;
use ordo_systems::OnFfs;

fn go(scheme: &impl Scheme, model: CrashModel, seed: u64, states: usize) -> Outcome {
    let script = Script::random_holes(seed, 2, 120);
    let budget = Budget { states, ..Budget::default() };
    explore(scheme, &script, &Config::new(seed, model), &budget).unwrap()
}

fn soft(rules: SoftRules) -> impl Scheme {
    let policy = move || SoftUpdates::with_rules(rules);
    OnFfs::new("ffs-soft-updates", policy, Promise::SOFT_UPDATES)
}

fn sync() -> impl Scheme {
    OnFfs::new("ffs-sync", SyncOrder::default, Promise::SYNC)
}

/// Would catch a block that is free before the pointer to it is reset on disk, wherever that
/// pointer is, and whatever happens to the indirect block that has it.
#[test]
fn a_punched_block_is_free_once_its_pointer_is_reset() {
    let mut states = 0;
    for model in [CrashModel::Completed, CrashModel::Volatile] {
        for seed in 0..6 {
            let outcome = go(&soft(SoftRules::all()), model, seed, 800);
            outcome.expect_kept(&format!("soft updates, {model:?}, seed {seed}"));
            states += outcome.counts.states;
        }
        for seed in 0..2 {
            let outcome = go(&sync(), model, seed, 400);
            outcome.expect_kept(&format!("sync, {model:?}, seed {seed}"));
            states += outcome.counts.states;
        }
    }
    assert!(states > 8000, "{states}");
}

/// Without the rule that defers the free, damage is found. Would catch a test that cannot find it.
#[test]
fn a_free_that_comes_early_is_found() {
    let early = soft(SoftRules::all() - SoftRules::FREE_AFTER_RESET);
    let found = |seed| go(&early, CrashModel::Volatile, seed, 800).counts.promise_broken > 0;
    assert!((0..10).any(found));
}

/// The way in which second-level indirect blocks are freed.
#[derive(Clone, Copy)]
enum End {
    /// The file is cut.
    Cut,
    /// A hole takes all blocks below the first of them.
    TakenOut,
}

/// A full disk. A file has blocks below several indirect blocks of the second level. Some of those
/// below the second one are punched out, then the others, by an `end` that leaves the first one. A
/// third file, whose inode is next to it, is made durable; another file gets the space. `offset` is
/// that of the first hole.
fn end_below(offset: u64, end: End) -> Script {
    let file = |name| ScriptPlace { dir: 1, name };
    let reach = |n: u64| (12 + 512 * n) << 12;
    let mut steps: Vec<ScriptStep> = (0..4).map(|name| ScriptStep::Make(file(name))).collect();
    steps.push(ScriptStep::Write(file(0), reach(1), 4096));
    steps.push(ScriptStep::Write(file(0), reach(2), 20_480));
    if let End::TakenOut = end {
        // A hole never takes a file's last block.
        steps.push(ScriptStep::Write(file(0), reach(3), 4096));
    }
    steps.extend((0..40).map(|n| ScriptStep::Write(file(2), n * 20_480, 20_480)));
    steps.push(ScriptStep::Sync);
    steps.push(ScriptStep::Punch(file(0), reach(2) + offset, 8192));
    steps.push(match end {
        End::Cut => ScriptStep::Size(file(0), reach(1) + 4096),
        End::TakenOut => ScriptStep::Punch(file(0), reach(2), 20_480),
    });
    steps.extend([
        ScriptStep::Mode(file(3), 0o600),
        ScriptStep::Fsync(file(3)),
        ScriptStep::Pause(1),
    ]);
    steps.extend([
        ScriptStep::Write(file(1), 0, 8192),
        ScriptStep::Fsync(file(1)),
        ScriptStep::Pause(20),
    ]);
    Script { clients: vec![steps] }
}

/// The number of states that break a promise, with another script for each seed.
fn broken(rules: SoftRules, config: impl Fn(u64) -> Config, script: impl Fn(u64) -> Script) -> u64 {
    let states = (0..16).map(|seed| {
        let budget = Budget { states: 400, ..Budget::default() };
        let (script, config) = (script(seed), config(seed));
        explore(&soft(rules), &script, &config, &budget).unwrap().counts.promise_broken
    });
    states.sum::<u64>()
}

/// Would catch a block that is free because the pointer to it was reset in an indirect block that
/// is never written again, while the disk still has the old one.
#[test]
fn a_block_below_a_freed_indirect_block_waits_for_both_resets() {
    let config = |seed| {
        let mut config = Config::new(seed, CrashModel::Volatile);
        // Only blocks that a caller waits for are written.
        config.cache.metadata_age = Duration::from_secs(1);
        config
    };
    for end in [End::Cut, End::TakenOut] {
        let script = |seed| end_below(seed % 4 * 4096, end);
        assert_eq!(broken(SoftRules::all(), config, script), 0);
        assert!(broken(SoftRules::all() - SoftRules::FREE_AFTER_RESET, config, script) > 0);
    }
}

/// A small file is durable. It is extended, so that its first block becomes whole in place, then
/// cut, then extended again, so that the block moves. Would catch that the old place counts as one
/// to which no pointer ever led, because the change that made it whole never was on disk.
#[test]
fn a_block_that_was_extended_in_place_had_a_pointer_on_disk() {
    let file = ScriptPlace { dir: 1, name: 1 };
    let (far, small) = ((12 + 512 + 3) << 12, 700);
    let steps = vec![
        ScriptStep::Make(file),
        ScriptStep::Write(file, far, 20_000),
        ScriptStep::Size(file, small),
        ScriptStep::Fsync(file),
        ScriptStep::Size(file, far),
        ScriptStep::Size(file, small),
        ScriptStep::Write(file, far, 20_000),
        ScriptStep::Pause(20),
    ];
    let config = |seed| Config::new(seed, CrashModel::Completed);
    let script = |_| Script { clients: vec![steps.clone()] };
    assert_eq!(broken(SoftRules::all(), config, script), 0);
}

/// A file takes the space of a removed one, up to an indirect block, and loses its name before the
/// device is flushed. A file whose inode is next to it is made durable. Would catch a pointer that
/// reaches the disk because its block was written once and is no longer needed, although that write
/// may be lost: then the other file's old data would be taken for pointers.
#[test]
fn a_block_of_pointers_that_may_be_lost_is_not_pointed_to() {
    let file = |name| ScriptPlace { dir: 1, name };
    let script = |seed| {
        let mut steps: Vec<ScriptStep> = (0..3).map(|name| ScriptStep::Make(file(name))).collect();
        steps.extend((0..30).map(|n| ScriptStep::Write(file(0), n * 20_480, 20_480)));
        steps.extend([
            ScriptStep::Sync,
            ScriptStep::Unlink(file(0)),
            ScriptStep::Sync,
            ScriptStep::Pause(20),
            ScriptStep::Sync,
        ]);
        steps.extend([
            ScriptStep::Write(file(1), 12 << 12, 8192),
            ScriptStep::Pause(3 + seed as u16 % 8),
        ]);
        steps.extend([
            ScriptStep::Unlink(file(1)),
            ScriptStep::Mode(file(2), 0o600),
            ScriptStep::Fsync(file(2)),
        ]);
        Script { clients: vec![steps, vec![]] }
    };
    let config = |seed| Config::new(seed, CrashModel::Volatile);
    assert_eq!(broken(SoftRules::all(), config, script), 0);
    assert!(broken(SoftRules::all() - SoftRules::BLOCK_BEFORE_POINTER, config, script) > 0);
}
