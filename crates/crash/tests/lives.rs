//! Life after life: each run begins on what a crash has left of the one before.
//!
//! Fault model: the honest disk with a volatile cache, crashed anywhere in every life, before, during and after what a
//! mount does about the last crash. What the life before had made durable, or what was found after it, is held to the
//! same promise as what is done since.

use ordo_crash::{Budget, Config, Model, OnFfs, Outcome, Promise, Script, life};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates, SyncOrder};

fn lives<P: OrderingPolicy + 'static>(
    policy: fn() -> P,
    promise: Promise,
    seed: u64,
) -> Vec<Outcome> {
    let scheme = OnFfs::new("ffs", policy, promise);
    let budget = Budget { states: 400, recovery_every: 100, ..Budget::default() };
    let work = |seed| Script::random(seed, 2, 40);
    life::explore(&scheme, work, &Config::new(seed, Model::Volatile), &budget, 6).unwrap()
}

/// Would catch what a mount makes of leaked blocks and counts that are too high, and inodes that are used again.
#[test]
fn soft_updates_keep_their_promise_life_after_life() {
    for seed in 0..6 {
        let outcomes = lives(SoftUpdates::default, Promise::SOFT_UPDATES, seed);
        assert_eq!(outcomes.len(), 6);
        for (outcome, life) in outcomes.iter().zip(1..) {
            outcome.expect_kept(&format!("seed {seed}, life {life}"));
        }
    }
}

#[test]
fn synchronous_writes_keep_their_promise_life_after_life() {
    for seed in 0..4 {
        let outcomes = lives(SyncOrder::default, Promise::SYNC, seed);
        for (outcome, life) in outcomes.iter().zip(1..) {
            outcome.expect_kept(&format!("seed {seed}, life {life}"));
        }
    }
}

/// What was found at the start of a life is lost in it where nothing is ordered: would catch an oracle that takes the
/// disk for empty, or what it holds for nobody's.
#[test]
fn what_an_earlier_life_left_is_missed_too() {
    let lost = |seed| {
        let outcomes = lives(|| NoOrder, Promise::NONE, seed);
        outcomes.iter().skip(1).any(|o| o.counts.lost_durable > 0 && o.counts.not_atomic > 0)
    };
    assert!((0..8).any(lost));
}
