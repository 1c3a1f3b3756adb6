//! Blocks taken out of the midst of files, crashed.
//!
//! Fault model: every honest disk of `docs/crash-model.md`. Two clients write to a few files at places that hang
//! from the inode, from a block of pointers, and from one below another, take blocks out of their midst, cut
//! them there, and write there again. Nothing may be in two files, or in one and free; what was made durable
//! and not taken out is there, and what was taken out is as it was, or zero.

use ordo_crash::{Budget, Config, Model, OnFfs, Outcome, Promise, Scheme, Script, explore};
use ordo_ordering::{SoftRules, SoftUpdates, SyncOrder};

fn go(scheme: &impl Scheme, model: Model, seed: u64, states: usize) -> Outcome {
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

/// Would catch a block that is free before the pointer to it is reset on disk, wherever that pointer lies, and
/// whatever becomes of the block that it lies in.
#[test]
fn what_is_taken_out_is_free_when_nothing_leads_to_it() {
    let mut states = 0;
    for model in [Model::Completed, Model::Volatile] {
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

/// Without the rule that puts off the free, damage is found: would catch a test that cannot see it.
#[test]
fn a_free_that_comes_early_is_found() {
    let early = soft(SoftRules::all() - SoftRules::FREE_AFTER_RESET);
    let found = |seed| go(&early, Model::Volatile, seed, 800).counts.promise_broken > 0;
    assert!((0..10).any(found));
}
