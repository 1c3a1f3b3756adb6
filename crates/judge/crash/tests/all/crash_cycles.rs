//! Crash cycles: each run begins on what a crash has left of the one before.
//!
//! Fault model: the honest disk with a volatile cache, crashed anywhere in every cycle, before,
//! during and after the recovery of a mount from the last crash. Everything that the cycle before
//! had made durable, or that was found after it, falls under the same promise as later changes.

use ordo_crash::{
    Budget, Config, CrashModel, Outcome, Promise, Script, ScriptPlace, ScriptStep, cycle, explore,
};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates, SyncOrder, SyncRules};
use ordo_runtime::Duration;
use ordo_systems::OnFfs;

fn cycles<P: OrderingPolicy + 'static>(
    policy: fn() -> P,
    promise: Promise,
    seed: u64,
) -> Vec<Outcome> {
    let scheme = OnFfs::new("ffs", policy, promise);
    let budget = Budget { states: 400, recovery_every: 100, ..Budget::default() };
    let work = |seed| Script::random(seed, 2, 40);
    cycle::explore(&scheme, work, &Config::new(seed, CrashModel::Volatile), &budget, 6).unwrap()
}

/// Would catch a mount that mishandles leaked blocks and high counts, and reused inodes.
#[test]
fn soft_updates_keep_their_promise_cycle_after_cycle() {
    for seed in 0..6 {
        let outcomes = cycles(SoftUpdates::default, Promise::SOFT_UPDATES, seed);
        assert_eq!(outcomes.len(), 6);
        for (outcome, cycle) in outcomes.iter().zip(1..) {
            outcome.expect_kept(&format!("seed {seed}, life {cycle}"));
        }
    }
}

#[test]
fn synchronous_writes_keep_their_promise_cycle_after_cycle() {
    for seed in 0..4 {
        let outcomes = cycles(SyncOrder::default, Promise::SYNC, seed);
        for (outcome, cycle) in outcomes.iter().zip(1..) {
            outcome.expect_kept(&format!("seed {seed}, life {cycle}"));
        }
    }
}

/// Many files are made, one after another, in a block of inodes that was never used, and more than
/// were ever initialised. Each is there when its call has returned, though nothing else was written
/// for long. Without the rule the check looks at fewer inodes than exist, and removes the names of
/// the others.
#[test]
fn a_group_counts_the_inodes_that_have_names() {
    let broken = |rules: SyncRules| {
        let scheme = OnFfs::new("ffs-sync", move || SyncOrder::with_rules(rules), Promise::SYNC);
        // A client has ten names in each of its directories.
        let make = |n: u8| ScriptStep::Make(ScriptPlace { dir: n / 10, name: u16::from(n % 10) });
        let dirs = (0..8).map(|n| ScriptStep::Mkdir(ScriptPlace { dir: 1, name: n }));
        let steps = dirs.chain((0..90).map(make)).collect();
        let script = Script { clients: vec![steps] };
        let mut config = Config::new(1, CrashModel::Volatile);
        config.cache.metadata_age = Duration::from_secs(30);
        let budget = Budget { states: 600, recovery_every: 0, ..Budget::default() };
        explore(&scheme, &script, &config, &budget).unwrap().counts.promise_broken
    };
    assert_eq!(broken(SyncRules::all()), 0);
    assert!(broken(SyncRules::all() - SyncRules::GROUP_BEFORE_ENTRY) > 0);
}

/// The same, found at random in a third cycle.
#[test]
fn a_group_counts_filled_inode_blocks_in_a_later_cycle() {
    let scheme = OnFfs::new("ffs-sync", SyncOrder::default, Promise::SYNC);
    let budget = Budget { states: 2500, recovery_every: 0, ..Budget::default() };
    let work = |seed| Script::random(seed, 3, 40);
    let outcomes =
        cycle::explore(&scheme, work, &Config::new(9, CrashModel::Volatile), &budget, 4).unwrap();
    for (outcome, cycle) in outcomes.iter().zip(1..) {
        outcome.expect_kept(&format!("life {cycle}"));
    }
}

/// Without any ordering, objects that existed at the start of a cycle are lost in it. Would catch
/// an oracle that takes the disk for empty, or ignores its contents.
#[test]
fn a_file_of_an_earlier_cycle_is_missed_too() {
    let lost = |seed| {
        let outcomes = cycles(|| NoOrder, Promise::NONE, seed);
        outcomes.iter().skip(1).any(|o| o.counts.lost_durable > 0 && o.counts.not_atomic > 0)
    };
    assert!((0..8).any(lost));
}

/// Forty clients run at once, and their repair is interrupted. The root has grown, and grows once
/// more for lost+found. Would catch a repair that makes an inode point to a block which is not
/// written yet.
#[test]
fn forty_clients_files_survive_an_interrupted_repair() {
    for model in [CrashModel::Completed, CrashModel::Volatile] {
        let scheme = OnFfs::new("ffs-sync", SyncOrder::default, Promise::SYNC);
        let budget = Budget { states: 3000, recovery_every: 300, ..Budget::default() };
        let script = Script::random(8, 40, 8);
        let outcome = explore(&scheme, &script, &Config::new(8, model), &budget).unwrap();
        outcome.expect_kept(model.name());
        assert!(outcome.counts.in_recovery > 100);
    }
}
