//! The explorer tested on known systems: `sync` keeps its promises, breaks one with each rule that
//! is switched off, and `none` keeps none. An explorer that passes everything, or fails nothing,
//! fails here.
//!
//! Fault model: each test names its disk. The workload: three clients with random operations, whose
//! requests complete in any order.

use ordo_crash::run::Event;
use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Outcome, Promise, Script, ScriptManner, ScriptPlace,
    ScriptStep, explore, explore_run, record, shrink,
};
use ordo_ordering::{NoOrder, SoftUpdates, SyncOrder, SyncRules};
use ordo_systems::OnFfs;

fn sync(rules: SyncRules, model: CrashModel, seed: u64, states: usize) -> Outcome {
    let scheme = OnFfs::new("ffs-sync", move || SyncOrder::with_rules(rules), Promise::SYNC);
    go(&scheme, model, seed, states)
}

fn go(scheme: &impl ordo_crash::Scheme, model: CrashModel, seed: u64, states: usize) -> Outcome {
    let script = Script::random(seed, 3, 120);
    let budget = Budget { states, ..Budget::default() };
    explore(scheme, &script, &Config::new(seed, model), &budget).unwrap()
}

/// Would catch an ordering that takes completed for durable, a harness that loses writes which must
/// survive, and an oracle that demands more than the promise.
#[test]
fn sync_keeps_its_promises_on_every_honest_disk() {
    for model in [CrashModel::Completed, CrashModel::Volatile, CrashModel::Prefix] {
        for seed in 0..3 {
            let outcome = sync(SyncRules::all(), model, seed, 1500);
            outcome.expect_kept(&format!("{model:?}, seed {seed}"));
            assert!(outcome.counts.states > 1000 && outcome.counts.used > 10, "{outcome:?}");
            assert_eq!(outcome.counts.lost_durable, 0);
        }
    }
}

/// A file and a directory exchange names. Halfway a check finds the directory under two names and
/// removes one. Would catch an oracle that takes this for a loss; but the directory itself must
/// still exist.
#[test]
fn a_check_takes_away_one_of_two_names_that_change_places() {
    let (file, dir) = (ScriptPlace { dir: 0, name: 1 }, ScriptPlace { dir: 1, name: 4 });
    let (mut taken, scheme) = (0, OnFfs::new("ffs-sync", SyncOrder::default, Promise::SYNC));
    for (from, to) in [(file, dir), (dir, file)] {
        let steps = vec![
            ScriptStep::Mkdir(dir),
            ScriptStep::Make(file),
            ScriptStep::Sync,
            ScriptStep::Exchange(from, to),
        ];
        let script = Script { clients: vec![steps] };
        let config = Config::new(1, CrashModel::Volatile);
        let outcome = explore(&scheme, &script, &config, &Budget::default()).unwrap();
        outcome.expect_kept(&format!("{script:?}"));
        taken += outcome.counts.not_atomic;
    }
    assert!(taken > 0, "no state in which a name is gone");
}

/// Would catch a harness that finds nothing: each rule of `sync` prevents damage that is found
/// without it. (Durability on return is switched off too, since its writes would soon repair much
/// of the damage.)
#[test]
fn every_rule_of_sync_is_missed() {
    let late = SyncRules::all() - SyncRules::DURABLE_ON_RETURN;
    assert!(sync(late, CrashModel::Completed, 0, 1500).counts.promise_broken > 0);
    // The rule about a group's counts has its own test in crash_cycles.rs, that about moved
    // fragments in crash_sync.rs, that about fdatasync in datasync.rs.
    let own = SyncRules::GROUP_BEFORE_ENTRY
        | SyncRules::MOVED_BEFORE_REUSE
        | SyncRules::DATASYNC_KEEPS_SIZE;
    for rule in (late - own).iter() {
        let broken = |seed| {
            let outcome = sync(late - rule, CrashModel::Completed, seed, 3000);
            let structural = |f: &ordo_crash::Failure| {
                f.verdict.broken.iter().any(|b| !f.verdict.lost_durable.contains(b))
            };
            let orphan = |f: &ordo_crash::Failure| {
                f.verdict.lost_durable.iter().any(|b| b.contains("has lost its last name"))
            };
            outcome.failures.iter().any(|f| structural(f) || orphan(f))
        };
        assert!((0..20).any(broken), "without {rule:?} nothing was ever found");
    }
}

/// Would catch oracles that miss damage: without any ordering a crash does every kind of harm.
#[test]
fn every_kind_of_harm_is_found_without_an_ordering() {
    let none = OnFfs::new("ffs-none", || NoOrder, Promise::NONE);
    let counts = go(&none, CrashModel::Volatile, 1, 2000).counts;
    assert_eq!(counts.promise_broken, 0, "the promise is empty");
    assert!(counts.unsound * 2 > counts.states, "{counts:?}");
    assert!(counts.lost_durable > 0 && counts.not_atomic > 0 && counts.stale > 0, "{counts:?}");
    let promised = OnFfs::new("ffs-none", || NoOrder, Promise::SYNC);
    assert!(go(&promised, CrashModel::Volatile, 1, 500).counts.promise_broken > 100);
}

/// On a disk that lies about flushes nothing can be durable, and the explorer finds that.
#[test]
fn a_lying_disk_loses_what_was_durable() {
    let counts = sync(SyncRules::all(), CrashModel::Lying, 1, 500).counts;
    assert!(counts.lost_durable * 2 > counts.states, "{counts:?}");
    assert_eq!(counts.promise_broken, 0, "no promise can hold there");
}

/// The result is the same on one thread and on many. Would catch a result that depends on the
/// thread.
#[test]
fn threads_do_not_matter() {
    let late = SyncRules::all() - SyncRules::ENTRY_BEFORE_COUNT;
    let scheme = OnFfs::new("ffs-sync", move || SyncOrder::with_rules(late), Promise::SYNC);
    let script = Script::random(5, 3, 80);
    let config = Config::new(5, CrashModel::Volatile);
    let results = [1, 4].map(|threads| {
        let budget = Budget { states: 600, threads, ..Budget::default() };
        format!("{:?}", explore(&scheme, &script, &config, &budget).unwrap())
    });
    assert!(results[0] == results[1]);
}

/// A failure is shrunk, and the result fails in the same way. Without the rule that an inode is on
/// disk before its name, it takes one file, and one lost write.
#[test]
fn a_failure_is_made_small() {
    let rules = SyncRules::all() - SyncRules::INODE_BEFORE_ENTRY - SyncRules::DURABLE_ON_RETURN;
    let scheme = OnFfs::new("ffs-sync", move || SyncOrder::with_rules(rules), Promise::SYNC);
    let script = Script::random(2, 2, 60);
    let config = Config::new(2, CrashModel::Volatile);
    let budget = Budget { states: 300, usable_every: 0, recovery_every: 0, ..Budget::default() };
    let outcome = explore(&scheme, &script, &config, &budget).unwrap();
    let is_entry = |f: &&ordo_crash::Failure| f.verdict.broken[0].contains("not in use");
    let failure = outcome.failures.iter().find(is_entry).expect("the rule protects something");
    let small = shrink(&scheme, &script, &config, &budget, failure, 120).unwrap();
    assert!(small.script.len() <= 2, "{:?}", small.script);
    assert!(small.failure.verdict.broken[0].contains("not in use"), "{:?}", small.failure);
    let one = |what: &str| small.failure.picture.lines().filter(|l| l.contains(what)).count() == 1;
    assert!(one("LOST") || one("kept"), "{}", small.failure.picture);
    assert!(small.failure.picture.contains("directory block"), "{}", small.failure.picture);
}

/// Each single promise, which this system does not make, is found broken. Would catch an oracle
/// that never finds a fault.
#[test]
fn every_promise_is_missed_where_it_is_not_kept() {
    let only = |promise: fn(&mut Promise)| {
        let mut all = Promise::NONE;
        promise(&mut all);
        all
    };
    let promises: [(&str, Promise); 7] = [
        (
            "structure",
            only(|p| p.allows = |f| f.severity < ordo_crash::FindingSeverity::Repairable),
        ),
        ("no check", only(|p| p.no_check = true)),
        ("fsync", only(|p| p.durable_fsync = true)),
        ("names on return", only(|p| (p.durable_names, p.durable_fsync) = (true, true))),
        ("names", only(|p| p.names = true)),
        ("order", only(|p| p.ordered = true)),
        ("no stale contents", only(|p| p.no_stale = true)),
    ];
    for (what, promise) in promises {
        let none = OnFfs::new("ffs-none", || NoOrder, promise);
        let outcome = go(&none, CrashModel::Volatile, 1, 400);
        assert!(outcome.counts.promise_broken > 10, "{what}: {:?}", outcome.counts);
        assert_eq!(go(&none, CrashModel::Lying, 1, 100).counts.promise_broken, 0, "{what}");
    }
}

/// A write fails with EIO, for each kind of block, and then the power fails: the effects of calls
/// that returned without an error are there. Would catch an ordering that continues after a failed
/// write, and an oracle that takes a failed write for one that never happened.
#[test]
fn sync_keeps_its_promises_where_a_write_fails() {
    for kind in ["inode_block", "directory", "cylinder_group", "file_data"] {
        for (number, model) in [(4, CrashModel::Completed), (9, CrashModel::Volatile)] {
            let config = Config {
                faults: vec![(kind.parse().unwrap(), number)],
                ..Config::new(number, model)
            };
            let scheme = OnFfs::new("ffs-sync", SyncOrder::default, Promise::SYNC);
            let budget = Budget { states: 200, ..Budget::default() };
            let script = Script::random(number, 3, 120);
            let run = record(&scheme, &script, &config).unwrap();
            let failed = |e: &&Event| matches!(e, Event::Failed { .. });
            assert_eq!(run.events.iter().filter(failed).count(), 1, "{kind} {number}");
            let outcome = explore_run(&scheme, &run.into(), number, &budget);
            outcome.expect_kept(&format!("{kind} {number} fails, {model:?}"));
        }
    }
}

/// The broken promises of an exploration, and its counts.
fn found(outcome: Outcome) -> (ordo_crash::StateCounts, Vec<Vec<String>>) {
    (outcome.counts, outcome.failures.into_iter().map(|f| f.verdict.broken).collect())
}

/// Recalled verdicts equal those of judging every state. Would catch a state that is taken for
/// another.
#[test]
fn recalled_verdicts_equal_new_ones() {
    for (seed, model) in
        [(3, CrashModel::Completed), (4, CrashModel::Volatile), (5, CrashModel::Prefix)]
    {
        let script = Script::random(seed, 3, 60);
        let config = Config::new(seed, model);
        let with = |recall| Budget { states: 2000, recall, ..Budget::default() };
        let none = OnFfs::new("ffs-none", || NoOrder, Promise::SYNC);
        let [all, recalled] = [false, true]
            .map(|recall| found(explore(&none, &script, &config, &with(recall)).unwrap()));
        assert!(all.0.promise_broken > 0, "{:?}", all.0);
        assert_eq!(all, recalled, "{model:?}");
    }
}

/// Judging only what changed since the state before gives the verdicts of judging each state
/// wholly: after repairs, with torn groups and superblocks, where names are made and removed and
/// files have distant blocks, in every shape. Would catch a file or directory that is taken for
/// unchanged.
#[test]
fn judging_only_changes_gives_the_verdict_of_a_full_check() {
    let usual = ScriptManner { clients: 2, steps: 90, fsync: 5, ..ScriptManner::default() };
    let mut broken = 0;
    for (seed, name) in [(1, "4k-512"), (2, "8k-1k-groups"), (3, "16k-16k"), (4, "8k-1k-full")] {
        let shape = FsGeometry::by_name(name).unwrap();
        let (names, far) = if seed % 2 == 0 { (60, 0) } else { (0, shape.block_size) };
        let script = ScriptManner { names, far, ..usual }.script(seed);
        let config = Config::new(seed, CrashModel::Volatile);
        let none = |promise| OnFfs::new("ffs-none", || NoOrder, promise).shaped(&shape);
        let late = || SyncOrder::with_rules(SyncRules::all() - SyncRules::DURABLE_ON_RETURN);
        let sync = OnFfs::new("ffs-sync", late, Promise::SYNC).shaped(&shape);
        let soft = OnFfs::new("ffs-soft-updates", SoftUpdates::default, Promise::SOFT_UPDATES);
        let soft = soft.shaped(&shape);
        let with = |recall| Budget { states: 500, usable_every: 25, recall, ..Budget::default() };
        let both = [false, true].map(|recall| {
            let budget = with(recall);
            let none = [Promise::SYNC, Promise::SOFT_UPDATES, Promise::journal(true)].map(none);
            let none = none.map(|s| found(explore(&s, &script, &config, &budget).unwrap()));
            let sync = found(explore(&sync, &script, &config, &budget).unwrap());
            (none, sync, found(explore(&soft, &script, &config, &budget).unwrap()))
        });
        broken += both[0].0.iter().map(|f| f.0.promise_broken).sum::<u64>();
        assert!(both[0] == both[1], "{name}: {:?}\n{:?}", both[0], both[1]);
    }
    assert!(broken > 1000, "{broken}");
}

/// The same where a group has more initialised blocks of inodes than at first, and a crash may take
/// that back: then the inodes in them cannot be read. Would catch inodes that are taken for
/// readable because their own sectors have not changed.
#[test]
fn inodes_outside_the_initialised_blocks_are_judged_again() {
    let file = |name| ScriptStep::Make(ScriptPlace { dir: 1, name });
    let mut steps: Vec<ScriptStep> = (256..296).map(file).collect();
    steps.push(ScriptStep::Sync);
    // The steps write a group's header alone, again and again.
    for name in 296..330 {
        steps.extend([
            file(name),
            ScriptStep::Pause(5),
            ScriptStep::Unlink(ScriptPlace { dir: 1, name }),
        ]);
    }
    let script = Script { clients: vec![steps] };
    // The promise is only that the file system can be read.
    let promise = Promise { no_check: true, ..Promise::NONE };
    let none = OnFfs::new("ffs-none", || NoOrder, promise);
    // First only a count is lost, then only the groups: nothing else differs between these two
    // states.
    let rules = ["lose summary", "lose cylinder_group"].map(|rule| rule.parse().unwrap());
    for (model, rules, least) in [
        (CrashModel::Completed, Vec::new(), 100),
        (CrashModel::Volatile, Vec::new(), 100),
        (CrashModel::Volatile, rules.to_vec(), 1),
    ] {
        let both = [false, true].map(|recall| {
            let rules = rules.clone();
            let with = Budget {
                states: 2000,
                usable_every: 0,
                rules,
                recall,
                threads: 1,
                ..Budget::default()
            };
            found(explore(&none, &script, &Config::new(1, model), &with).unwrap())
        });
        assert!(both[0].0.unusable >= least, "{:?}", both[0]);
        assert!(both[0] == both[1], "{:?}\n{:?}", both[0], both[1]);
    }
}
