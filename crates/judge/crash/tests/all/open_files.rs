//! Files that are open when they lose their names, files that never had a name (`O_TMPFILE`), and
//! storage that is allocated without contents, in every system that Ordo has.
//!
//! Fault model: a disk with a volatile cache, torn at 512 bytes; a crash while such files are open,
//! after they were closed, and while they get a name. After the crash nobody has them open: they
//! must be gone, with their space, where a system promises that no check is needed; and a file that
//! got a name must be whole.

use ordo_crash::{Budget, Config, CrashModel, FsGeometry, Run, ScriptManner, explore_run, record};
use ordo_systems::System;

/// The shapes: fragments in blocks of eight and of four, and blocks without fragments.
const SHAPES: [&str; 3] = ["4k-512", "8k-1k", "16k-16k"];

fn manner() -> ScriptManner {
    ScriptManner { clients: 2, steps: 90, fsync: 6, open: 50, ..ScriptManner::default() }
}

/// The number of calls that succeeded and whose words begin so.
fn done(run: &Run, words: &str) -> usize {
    run.history.calls.iter().filter(|c| c.ok && c.text.starts_with(words)).count()
}

/// Would catch a file that is freed while it is open, one that is never freed after a crash, a
/// pointer to space that was allocated and not written, and a name that a file without one gets
/// before its inode is on disk.
#[test]
fn files_that_are_open_are_whole_or_gone_after_a_crash() {
    let words = ["create a file without a name", "allocate", "link (no name)"];
    for system in System::runnable() {
        let mut made = [0; 3];
        for (seed, name) in (1..).zip(SHAPES) {
            let shape = FsGeometry::by_name(name).unwrap();
            let scheme = system.crashed(None, &shape).unwrap();
            let script = manner().script(seed);
            let run = record(&scheme, &script, &Config::new(seed, CrashModel::Volatile)).unwrap();
            let of = format!("{} on {name}, seed {seed}", system.name());
            made.iter_mut().zip(words).for_each(|(count, words)| *count += done(&run, words));
            let budget = Budget { states: 300, usable_every: 50, ..Budget::default() };
            let outcome = explore_run(&scheme, &run.into(), seed, &budget);
            outcome.expect_kept(&of);
        }
        assert!(made.iter().all(|count| *count > 1), "{}: {made:?}", system.name());
    }
}

/// The same workload shows a rule that is off: of each system that has rules, at least one. Would
/// catch a workload under which nothing can go wrong.
#[test]
fn open_files_show_rules_that_are_off() {
    for system in System::runnable().filter(|s| !s.rules().is_empty()) {
        let shape = FsGeometry::by_name("8k-1k").unwrap();
        let broken = |rule: &'static str| {
            let scheme = system.crashed(None, &shape).unwrap().without(rule);
            (1..4).any(|seed| {
                let script = manner().script(seed);
                let run =
                    record(&scheme, &script, &Config::new(seed, CrashModel::Volatile)).unwrap();
                let budget = Budget { states: 400, stop: true, ..Budget::default() };
                explore_run(&scheme, &run.into(), seed, &budget).counts.promise_broken > 0
            })
        };
        assert!(system.rules().into_iter().any(broken), "{}: every rule was off", system.name());
    }
}

/// A log of few blocks has space for one operation with full blocks only if it keeps nothing old.
/// The records about open files without a name are logged again then. Would catch an operation that
/// waits for log space for ever.
#[test]
fn open_files_keep_no_space_of_a_small_log() {
    let systems: Vec<System> =
        System::runnable().filter(|system| system.rules().contains(&"WRITE_AHEAD")).collect();
    assert!(systems.len() > 5, "journals: {}", systems.len());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for (system, seed) in systems.iter().flat_map(|system| [1, 2, 3, 5].map(|n| (*system, n))) {
            for name in ["16k-2k", "16k-16k", "16k-2k-full"] {
                let scheme = system.crashed(None, &FsGeometry::by_name(name).unwrap()).unwrap();
                let usual = ScriptManner { clients: 2, steps: 150, ..ScriptManner::default() };
                let script = ScriptManner { open: 40, ..usual }.script(seed);
                record(&scheme, &script, &Config::new(seed, CrashModel::Volatile)).unwrap();
                tell.send(format!("{} on {name}, seed {seed}", system.name())).unwrap();
            }
        }
    });
    let mut last = String::from("nothing");
    loop {
        match told.recv_timeout(std::time::Duration::from_secs(60)) {
            Ok(done) => last = done,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            Err(error) => panic!("{error}: the run after {last} does not end"),
        }
    }
    assert!(last.ends_with("16k-2k-full, seed 5"), "{last}");
}
