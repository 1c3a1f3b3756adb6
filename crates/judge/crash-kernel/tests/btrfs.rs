//! btrfs of this kernel, crashed.
//!
//! Fault model: a volatile cache that loses any subset of the un-flushed writes, torn at 512 bytes.
//! Two clients do random operations. Each state is mounted by the kernel, compared with the
//! operations, and checked by `btrfs check`. All of a run's states are copies of one file system,
//! so they take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ordo_crash::{Budget, Config, CrashModel, Outcome, Promise, Script, cycle, explore};
use ordo_crash_kernel::KernelSystem;

/// A lock for one test at a time, since mkfs.btrfs looks at all loop devices of the machine.
static ALONE: Mutex<()> = Mutex::new(());

/// btrfs, if this machine can mount it.
fn btrfs() -> Option<(KernelSystem, MutexGuard<'static, ()>)> {
    let root = ordo_testkit::judge("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    let tools = ["mkfs.btrfs", "btrfs"].map(|t| ordo_testkit::judge(t, &["--version"]).is_some());
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let known = known.lines().any(|line| line.trim() == "btrfs");
    if root && tools == [true, true] && known && std::path::Path::new("/dev/loop-control").exists()
    {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        return KernelSystem::by_name("btrfs").map(|btrfs| (btrfs, alone));
    }
    ordo_testkit::skip(
        "crashing btrfs needs root, loop devices, a kernel with btrfs, and btrfs-progs",
    );
    None
}

fn crash(system: &KernelSystem, seed: u64, budget: &Budget) -> Outcome {
    explore(system, &Script::random(seed, 2, 60), &Config::new(seed, CrashModel::Volatile), budget)
        .unwrap()
}

/// Asserts that the only fault is a torn superblock: it is eight sectors with one checksum, and a
/// mount does not look for its copies.
fn expect_kept(outcome: &Outcome, what: &str) {
    for failure in &outcome.failures {
        let torn = |line: &str| line.contains("TORN") && line.contains(": superblock");
        let mounting = failure.verdict.broken.iter().all(|what| what.starts_with("mounting: "));
        assert!(mounting && failure.picture.lines().any(torn), "{what}: {failure:?}");
    }
}

/// Catches a recording that differs from the kernel's requests, a judge that asks more than is
/// promised, and copies that the kernel takes for one file system.
#[test]
fn synced_files_are_there_after_a_crash() {
    let Some((btrfs, _alone)) = btrfs() else { return };
    let budget = Budget {
        states: 40,
        usable_every: 10,
        recovery_every: 20,
        recovery_states: 4,
        ..Budget::default()
    };
    let outcome = crash(&btrfs, 3, &budget);
    expect_kept(&outcome, "btrfs");
    let counts = outcome.counts;
    assert!(
        counts.states >= 20 && counts.in_recovery > 0 && counts.lost_durable == 0,
        "{counts:?}"
    );
}

/// Catches a judge that detects nothing: btrfs never promised that every name is durable at once.
#[test]
fn a_promise_about_unsynced_files_is_broken() {
    let Some((btrfs, _alone)) = btrfs() else { return };
    let budget = Budget { states: 20, usable_every: 0, recovery_every: 0, ..Budget::default() };
    let counts = crash(&btrfs.holding(Promise::journal(true)), 4, &budget).counts;
    assert!(counts.lost_durable > 0, "{counts:?}");
}

/// Catches a second crash cycle that confuses the state after the first crash with the workload's
/// own changes, or ignores it.
#[test]
fn a_crash_cycle_goes_on_where_the_one_before_ended() {
    let Some((btrfs, _alone)) = btrfs() else { return };
    let budget = Budget { states: 8, usable_every: 0, recovery_every: 0, ..Budget::default() };
    let work = |seed| Script::random(seed, 2, 40);
    let config = Config::new(6, CrashModel::Volatile);
    let outcomes = cycle::explore(&btrfs, work, &config, &budget, 3).unwrap();
    assert!(outcomes.len() > 1, "the first cycle has an end");
    for (outcome, cycle) in outcomes.iter().zip(1..) {
        expect_kept(outcome, &format!("cycle {cycle}"));
    }
}
