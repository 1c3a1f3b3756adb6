//! ext2, ext3 and ext4 of this kernel, crashed.
//!
//! Fault model: a volatile cache that loses any subset of the un-flushed writes, torn at 512 bytes.
//! Two clients do random operations. Each state is mounted by the kernel, compared with the
//! operations, and checked by e2fsck.

use std::sync::Arc;

use ordo_crash::kept::{pack, unpack};
use ordo_crash::{
    Budget, Config, CrashModel, Outcome, Promise, Script, cycle, explore, explore_run, judge_path,
    record,
};
use ordo_crash_kernel::KernelSystem;

fn crash(name: &str, seed: u64, states: usize) -> Outcome {
    let system = KernelSystem::by_name(name).unwrap();
    let config = Config::new(seed, CrashModel::Volatile);
    let budget = Budget { states, usable_every: 20, recovery_every: 0, ..Budget::default() };
    explore(&system, &Script::random(seed, 2, 80), &config, &budget).unwrap()
}

/// Whether this machine can run the tests.
fn is_possible() -> bool {
    let root = ordo_testkit::judge("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    let tools = ["mke2fs", "e2fsck"].iter().all(|t| ordo_testkit::judge(t, &["-V"]).is_some());
    let possible = root && tools && std::path::Path::new("/dev/loop-control").exists();
    if !possible {
        ordo_testkit::skip("crashing ext needs root, loop devices and e2fsprogs");
    }
    possible
}

/// Catches a recording whose requests differ from the kernel's, or whose times differ from those of
/// the calls: durable changes would be missing.
#[test]
fn journals_of_ext_keep_their_promise() {
    if !is_possible() {
        return;
    }
    for name in ["ext3", "ext3-journal"] {
        let outcome = crash(name, 3, 60);
        outcome.expect_kept(name);
        assert!(outcome.counts.states > 20, "{name}: {:?}", outcome.counts);
    }
    // The superblock has a checksum over two sectors, and no copy to which a mount falls back.
    for failure in crash("ext4", 3, 60).failures {
        let torn = |line: &str| line.contains("TORN") && line.contains("superblock");
        let mounting = failure.verdict.broken.iter().all(|what| what.starts_with("mounting: "));
        assert!(mounting && failure.picture.lines().any(torn), "{failure:?}");
    }
}

/// Catches a judge that detects nothing: without a journal a crash leaves damage to repair.
#[test]
fn without_a_journal_something_is_found() {
    if !is_possible() {
        return;
    }
    let counts = crash("ext2", 3, 60).counts;
    assert!(counts.needs_check > 0 && counts.promise_broken == 0, "{counts:?}");
}

/// The kernel's recovery is crashed and begins again. Catches a recording of it that differs from
/// the kernel's writes, and a journal that is cleared before its contents are at their fixed
/// locations.
#[test]
fn recovery_is_cut_off() {
    if !is_possible() {
        return;
    }
    let ext3 = KernelSystem::by_name("ext3").unwrap();
    let budget = Budget {
        states: 12,
        usable_every: 0,
        recovery_every: 3,
        recovery_states: 8,
        ..Budget::default()
    };
    let script = Script::random(4, 2, 60);
    let outcome = explore(&ext3, &script, &Config::new(4, CrashModel::Volatile), &budget).unwrap();
    outcome.expect_kept("ext3, a nested crash");
    assert!(outcome.counts.in_recovery >= 8, "{:?}", outcome.counts);
}

/// The state after one crash and the kernel's later changes are judged after the next crash.
/// Catches a state that is confused with the workload's own changes, or ignored.
#[test]
fn a_crash_cycle_goes_on_where_the_one_before_ended() {
    if !is_possible() {
        return;
    }
    let budget = Budget { states: 12, usable_every: 0, recovery_every: 0, ..Budget::default() };
    let work = |seed| Script::random(seed, 2, 40);
    for name in ["ext2", "ext3"] {
        let system = KernelSystem::by_name(name).unwrap();
        let config = Config::new(6, CrashModel::Volatile);
        let outcomes = cycle::explore(&system, work, &config, &budget, 3).unwrap();
        assert_eq!(outcomes.len(), 3, "{name}");
        for (outcome, cycle) in outcomes.iter().zip(1..) {
            outcome.expect_kept(&format!("{name}, cycle {cycle}"));
        }
    }
}

/// A failure is saved with its run, recoveries included, and replays as the same failure.
#[test]
fn a_saved_failure_is_repeated() {
    if !is_possible() {
        return;
    }
    // The promise is one that ext2 never made, so it surely fails.
    let ext2 = KernelSystem::by_name("ext2").unwrap().holding(Promise::journal(true));
    let run =
        record(&ext2, &Script::random(5, 2, 60), &Config::new(5, CrashModel::Volatile)).unwrap();
    let budget = Budget { states: 30, usable_every: 0, recovery_every: 0, ..Budget::default() };
    let outcome = explore_run(&ext2, &Arc::new(run.clone()), 5, &budget);
    let failure = outcome.failures.first().expect("without a journal names are lost");
    let runs = unpack(&pack(&[Arc::new(run)]).unwrap()).unwrap();
    let again = judge_path(&ext2, &runs, 5, &failure.path).unwrap();
    assert_eq!(again.verdict.broken, failure.verdict.broken);
    assert_eq!(again.picture, failure.picture);
}
