//! Soft updates, crashed: the state after a crash can be used at once, and each rule prevents some
//! damage.
//!
//! Fault model: every honest disk of `docs/crash-model.md`: completed is durable, with a crash
//! after every completed write; a volatile cache that loses any subset, torn at 512 bytes;
//! prefixes. Three clients do random operations. In each state the independent checker may find
//! leaks and high counts, and a directory with both names of a rename, but nothing else. Names,
//! contents and durable data are compared with the clients' calls. Some of the images are mounted
//! without a check and used.

use ordo_crash::{
    Budget, Config, CrashModel, Outcome, Promise, Script, ScriptPlace, ScriptStep, explore,
};
use ordo_ordering::{SoftRules, SoftUpdates};
use ordo_systems::OnFfs;

fn soft(rules: SoftRules, model: CrashModel, seed: u64, steps: usize, states: usize) -> Outcome {
    go(rules, model, seed, &Script::random(seed, 3, steps), states)
}

fn go(rules: SoftRules, model: CrashModel, seed: u64, script: &Script, states: usize) -> Outcome {
    let policy = move || SoftUpdates::with_rules(rules);
    let scheme = OnFfs::new("ffs-soft-updates", policy, Promise::SOFT_UPDATES);
    let budget = Budget { states, ..Budget::default() };
    explore(&scheme, script, &Config::new(seed, model), &budget).unwrap()
}

/// A hundred thousand states and more. Would catch a dependency that is missing, met too early, or
/// lost.
#[test]
fn soft_updates_keep_their_promise_in_a_hundred_thousand_states() {
    let (mut states, mut used) = (0, 0);
    for model in [CrashModel::Completed, CrashModel::Volatile, CrashModel::Prefix] {
        for seed in 0..18 {
            let outcome = soft(SoftRules::all(), model, seed, 120, 2000);
            outcome.expect_kept(&format!("{model:?}, seed {seed}"));
            states += outcome.counts.states;
            used += outcome.counts.used;
        }
    }
    assert!(states >= 100_000 && used >= 1000, "{states} states, {used} used");
}

/// Runs that once left: a directory whose `..` agreed with a name that it never had on disk; a
/// directory in one without a name; files whose name was removed, or had gone to another file,
/// before their other name could be found; a directory with its new name, whose old one could not
/// be found.
#[test]
fn a_file_renamed_and_removed_at_once_is_in_order() {
    let completed = [142, 265, 490, 526].map(|seed| (CrashModel::Completed, seed, 130));
    for (model, seed, steps) in [(CrashModel::Volatile, 116, 100)].into_iter().chain(completed) {
        let script = Script::random_names(seed, 3, steps);
        let outcome = go(SoftRules::all(), model, seed, &script, 3000);
        outcome.expect_kept(&format!("{model:?}, seed {seed}"));
    }
}

/// A file's other name is on disk in a directory that cannot be found yet. The file's last name
/// that can be found must not go to another file before the path to the other one is on disk.
#[test]
fn a_name_in_a_new_directory_waits_for_the_path_to_it() {
    let place = |dir, name| ScriptPlace { dir, name };
    let (file, own, outer, inner) = (place(2, 6), 1, 2, 3);
    let steps = vec![
        ScriptStep::Make(place(own, 9)),
        ScriptStep::Make(file),
        ScriptStep::Sync,
        ScriptStep::Make(place(own, 8)),
        ScriptStep::Mkdir(place(own, 7)),
        ScriptStep::Make(place(outer, 2)),
        ScriptStep::Mkdir(place(outer, 8)),
        ScriptStep::Link(place(0, 6), place(inner, 1)),
        ScriptStep::Pause(6),
        ScriptStep::Make(place(inner, 8)),
        ScriptStep::Rename(place(inner, 8), place(0, 6)),
    ];
    let script = Script { clients: vec![vec![], vec![], steps] };
    let outcome = go(SoftRules::all(), CrashModel::Completed, 265, &script, 6000);
    outcome.expect_kept("seed 265");
}

/// A log is rotated: a file is renamed before its first name ever was on disk, another file gets
/// that name and is made durable. Would catch a name that is forgotten with everything that waited
/// for it, so that the first file is lost.
#[test]
fn a_renamed_file_outlives_the_fsync_of_its_successor() {
    let place = |dir, name| ScriptPlace { dir, name };
    let (log, old, older) = (place(1, 2), place(0, 1), place(0, 3));
    let next = || [ScriptStep::Append(log, 40), ScriptStep::Rename(log, old)];
    for twice in [false, true] {
        let mut steps = Vec::from(next());
        if twice {
            // The second file's first name never is on disk either.
            steps.push(ScriptStep::Rename(old, older));
            steps.extend(next());
        }
        steps.extend([ScriptStep::Append(log, 200), ScriptStep::Fsync(log)]);
        for model in [CrashModel::Completed, CrashModel::Volatile] {
            let script = Script { clients: vec![steps.clone()] };
            let outcome = go(SoftRules::all(), model, 7, &script, 3000);
            outcome.expect_kept(&format!("{model:?}, twice: {twice}"));
        }
    }
}

/// A run in which the syncer once wrote an inode's block while an fsync of the inode was writing
/// others, and the fsync returned before that block was on disk.
#[test]
fn an_fsync_waits_for_writes_of_other_tasks() {
    let outcome = soft(SoftRules::all(), CrashModel::Completed, 227, 120, 3000);
    outcome.expect_kept("seed 227");
}

/// A directory that was on disk is removed, and its neighbour in the block of inodes is made
/// durable at once, again and again. So the block is written between the removal of the name and
/// the clearing.
fn removed_beside_an_fsync() -> Script {
    let place = |dir, name| ScriptPlace { dir, name };
    let neighbour = place(1, 9);
    let mut steps = vec![ScriptStep::Make(neighbour)];
    for _ in 0..4 {
        steps.extend((0..8).map(|name| ScriptStep::Mkdir(place(1, name))));
        steps.push(ScriptStep::Sync);
        steps.extend((0..8).map(|name| ScriptStep::Rmdir(place(1, name))));
        for len in 1..12 {
            steps.extend([ScriptStep::Write(neighbour, 0, len), ScriptStep::Fsync(neighbour)]);
        }
    }
    Script { clients: vec![steps] }
}

/// With each rule off, a promise is broken somewhere. Would catch a rule that prevents nothing, and
/// a harness that finds nothing. `directories.rs` tests `SIZE_AFTER_CONTENTS`, since here no
/// directory grows into space that was never initialised; `removed.rs` tests `REUSE_AFTER_DOTDOT`,
/// since here all directories are in one block of inodes; `datasync.rs` tests
/// `DATASYNC_KEEPS_SIZE`.
#[test]
fn every_rule_of_soft_updates_is_missed() {
    let broken = |rules, model, seed, script: &Script| {
        go(rules, model, seed, script, 1500).counts.promise_broken > 0
    };
    let directed = removed_beside_an_fsync();
    go(SoftRules::all(), CrashModel::Completed, 0, &directed, 1500).expect_kept("beside an fsync");
    let elsewhere = SoftRules::SIZE_AFTER_CONTENTS
        | SoftRules::REUSE_AFTER_DOTDOT
        | SoftRules::DATASYNC_KEEPS_SIZE;
    for rule in (SoftRules::all() - elsewhere).iter() {
        let rules = SoftRules::all() - rule;
        let missed = broken(rules, CrashModel::Completed, 0, &directed)
            || (0..40).any(|seed| {
                let script = Script::random(seed, 3, 120);
                let models = [CrashModel::Completed, CrashModel::Volatile];
                models.into_iter().any(|model| broken(rules, model, seed, &script))
            });
        assert!(missed, "without {rule:?} nothing was ever broken");
    }
}
