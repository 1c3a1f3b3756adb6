//! Soft updates crashed: what a crash leaves can be used at once, and each rule is there for something.
//!
//! Fault model: every honest disk of `docs/crash-model.md`: completed is durable, with a crash after every
//! completed write; a volatile cache that loses any subset, torn at 512 bytes; prefixes. Three clients do
//! random operations. In each state the independent checker may find leaks and high counts, and a
//! directory in the midst of a rename with both names, but nothing else; names, contents, and what was
//! made durable are compared with what the clients did; in some, the image is mounted without a check and
//! used.

use ordo_crash::{Budget, Config, Model, OnFfs, Outcome, Promise, Script, explore};
use ordo_ordering::{SoftRules, SoftUpdates};

fn soft(rules: SoftRules, model: Model, seed: u64, steps: usize, states: usize) -> Outcome {
    go(rules, model, seed, &Script::random(seed, 3, steps), states)
}

fn go(rules: SoftRules, model: Model, seed: u64, script: &Script, states: usize) -> Outcome {
    let policy = move || SoftUpdates::with_rules(rules);
    let scheme = OnFfs::new("ffs-soft-updates", policy, Promise::SOFT_UPDATES);
    let budget = Budget { states, ..Budget::default() };
    explore(&scheme, script, &Config::new(seed, model), &budget).unwrap()
}

/// A hundred thousand states and more. Would catch a dependency that is missed, met too early, or lost.
#[test]
fn soft_updates_keep_their_promise_in_a_hundred_thousand_states() {
    let (mut states, mut used) = (0, 0);
    for model in [Model::Completed, Model::Volatile, Model::Prefix] {
        for seed in 0..18 {
            let outcome = soft(SoftRules::all(), model, seed, 120, 2000);
            outcome.expect_kept(&format!("{model:?}, seed {seed}"));
            states += outcome.counts.states;
            used += outcome.counts.used;
        }
    }
    assert!(states >= 100_000 && used >= 1000, "{states} states, {used} used");
}

/// Runs that once left a directory whose `..` was that of a name it never had on disk, one that was in
/// nothing with a name, files whose name another had got, or nobody, before their own other one could be
/// found, and a directory with its new name whose old one could not be found.
#[test]
fn what_moves_and_goes_at_once_is_in_order() {
    let completed = [142, 265, 490, 526].map(|seed| (Model::Completed, seed, 130));
    for (model, seed, steps) in [(Model::Volatile, 116, 100)].into_iter().chain(completed) {
        let script = Script::random_names(seed, 3, steps);
        let outcome = go(SoftRules::all(), model, seed, &script, 3000);
        outcome.expect_kept(&format!("{model:?}, seed {seed}"));
    }
}

/// A run in which the syncer once took up an inode's block while an fsync of it was writing others, and the fsync
/// returned before that was on disk.
#[test]
fn what_others_write_is_waited_for() {
    let outcome = soft(SoftRules::all(), Model::Completed, 227, 120, 3000);
    outcome.expect_kept("seed 227");
}

/// Each rule off breaks the promise somewhere: would catch a rule that protects nothing, and a harness
/// that cannot see.
#[test]
fn every_rule_of_soft_updates_is_missed() {
    for rule in SoftRules::all().iter() {
        let broken = (0..40).any(|seed| {
            [Model::Completed, Model::Volatile].into_iter().any(|model| {
                let outcome = soft(SoftRules::all() - rule, model, seed, 120, 1500);
                outcome.counts.promise_broken > 0
            })
        });
        assert!(broken, "without {rule:?} nothing was ever broken");
    }
}
