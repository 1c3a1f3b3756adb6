//! Soft updates crashed: what a crash leaves can be used at once, and each rule is there for something.

use ordo_crash::{Budget, Config, Model, OnFfs, Outcome, Promise, Script, explore};
use ordo_ordering::{SoftRules, SoftUpdates};

fn soft(rules: SoftRules, model: Model, seed: u64, states: usize) -> Outcome {
    let scheme = OnFfs::new(
        "ffs-soft-updates",
        move || SoftUpdates::with_rules(rules),
        Promise::SOFT_UPDATES,
    );
    let script = Script::random(seed, 3, 120);
    let budget = Budget { states, ..Budget::default() };
    explore(&scheme, &script, &Config::new(seed, model), &budget).unwrap()
}

#[test]
fn soft_updates_keep_their_promise() {
    let (mut states, mut used) = (0, 0);
    for model in [Model::Completed, Model::Volatile, Model::Prefix] {
        for seed in 0..8 {
            let outcome = soft(SoftRules::all(), model, seed, 2000);
            outcome.expect_kept(&format!("{model:?}, seed {seed}"));
            states += outcome.counts.states;
            used += outcome.counts.used;
        }
    }
    println!("{states} states, {used} used");
}

#[test]
fn every_rule_of_soft_updates_is_missed() {
    for rule in SoftRules::all().iter() {
        let found = (0..6).find_map(|seed| {
            let outcome = soft(SoftRules::all() - rule, Model::Volatile, seed, 2000);
            let n = outcome.counts.promise_broken;
            outcome.failures.first().map(|f| (seed, n, f.verdict.broken.clone()))
        });
        println!("{rule:?}: {found:#?}");
    }
}
