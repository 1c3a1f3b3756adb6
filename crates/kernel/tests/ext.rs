//! ext2, ext3 and ext4 of this kernel, crashed.
//!
//! Fault model: a volatile cache that loses any subset of what was not flushed, torn at 512 bytes. Two clients do
//! random operations. Each state is mounted by the kernel, compared with what was done, and checked by e2fsck.

use ordo_crash::{Budget, Config, Model, Outcome, Script, explore_run};
use ordo_kernel::System;

fn crash(name: &str, seed: u64, states: usize) -> Outcome {
    let system = System::by_name(name).unwrap();
    let config = Config::new(seed, Model::Volatile);
    let run = ordo_kernel::record(&system, &Script::random(seed, 2, 80), &config).unwrap();
    let budget = Budget { states, usable_every: 20, recovery_every: 0, ..Budget::default() };
    explore_run(&system, &run.into(), seed, &budget)
}

/// Would catch a recording whose requests are not what the kernel sent, or whose times are not those of the
/// calls: what was made durable would be missing.
#[test]
fn journals_of_ext_keep_their_promise() {
    for name in ["ext3", "ext3-journal", "ext4"] {
        let outcome = crash(name, 3, 60);
        outcome.expect_kept(name);
        assert!(outcome.counts.states > 20, "{name}: {:?}", outcome.counts);
    }
}

/// Would catch a judge that cannot see: without a journal a crash leaves something to mend.
#[test]
fn without_a_journal_something_is_found() {
    let counts = crash("ext2", 3, 60).counts;
    assert!(counts.needs_check > 0 && counts.promise_broken == 0, "{counts:?}");
}
