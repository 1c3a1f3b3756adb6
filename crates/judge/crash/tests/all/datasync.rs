//! Files that an fdatasync makes durable.
//!
//! Fault model: a disk with a volatile cache, torn at 512 bytes. Clients append to few files, write
//! over others in place, and make one durable now and then, mostly by fdatasync. Contents and sizes
//! for which a caller waited must be there, although times need not be. Would catch an inode that
//! is left out although its file has grown, or has blocks to which only memory leads; and a journal
//! whose fsync returned while a block that it had to hold back was not flushed, since another task
//! had written it (`lffs-wafs-1async`, seed 2).

use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Outcome, Script, ScriptManner, ScriptPlace, ScriptStep,
    explore,
};
use ordo_systems::{Crashed, System};

/// The rule by which an fdatasync keeps the size.
const RULE: &str = "DATASYNC_KEEPS_SIZE";

fn go(scheme: &Crashed, script: &Script, seed: u64, states: usize) -> Outcome {
    let budget = Budget { states, recovery_every: 50, ..Budget::default() };
    explore(scheme, script, &Config::new(seed, CrashModel::Volatile), &budget).unwrap()
}

/// Files that grow, and files that are overwritten.
fn scripts(seed: u64, geometry: &FsGeometry) -> [Script; 3] {
    let usual = ScriptManner { datasync: 80, ..ScriptManner::default() };
    [
        ScriptManner { append: 80, ..usual }.script(seed),
        ScriptManner { far: geometry.block_size, fsync: 10, ..usual }.script(seed),
        Script::overwrites(seed, 2, 60, geometry.block_size).with_datasyncs(seed, 80),
    ]
}

fn shape(name: &str) -> FsGeometry {
    FsGeometry::by_name(name).unwrap()
}

#[test]
fn contents_and_sizes_outlive_a_crash_after_an_fdatasync() {
    for system in System::runnable().filter(|s| !s.rules().is_empty()) {
        for (name, seed) in [("4k-512", 1), ("8k-1k", 2), ("16k-16k", 3)] {
            let geometry = shape(name);
            let Ok(crashed) = system.crashed(None, &geometry) else { continue };
            for (n, script) in scripts(seed, &geometry).iter().enumerate() {
                let outcome = go(&crashed, script, seed, 250);
                outcome.expect_kept(&format!("{}, {name}, seed {seed}/{n}", system.name()));
            }
        }
    }
}

/// A file's last block moves, an fdatasync writes it, and two flushes that both cover it are under
/// way: the later one ends first. Would catch an fsync that returns then, before the log says that
/// the contents are in their new place: a recovery copied the old ones over them.
#[test]
fn contents_that_moved_outlive_a_crash_when_flushes_overtake_each_other() {
    const SEED: u64 = 70;
    let geometry = shape("8k-1k");
    let group = System::by_name("lffs-wafs-1sync-group").unwrap();
    let crashed = group.crashed(None, &geometry).unwrap();
    let outcome = go(&crashed, &scripts(SEED, &geometry)[0], SEED, 250);
    outcome.expect_kept("lffs-wafs-1sync-group, 8k-1k");
}

/// Files of which an fdatasync has to write the size, although no block is new: a log whose later
/// records are in the block of the first, and a file that loses a whole block.
fn sizes_change_alone(geometry: &FsGeometry) -> Script {
    let [log, cut] = [0, 1].map(|name| ScriptPlace { dir: 1, name });
    let block = geometry.block_size;
    let steps = vec![
        ScriptStep::Make(cut),
        ScriptStep::Write(cut, 0, 2 * block),
        ScriptStep::Fsync(cut),
        ScriptStep::Size(cut, block.into()),
        ScriptStep::Fdatasync(cut),
        ScriptStep::Append(log, 40),
        ScriptStep::Fsync(log),
        ScriptStep::Append(log, 40),
        ScriptStep::Fdatasync(log),
        ScriptStep::Append(log, 40),
        ScriptStep::Fdatasync(log),
    ];
    Script { clients: vec![steps] }
}

/// Without the rule a size for which a caller waited is lost on every system; with it none is.
#[test]
fn without_the_rule_a_size_is_lost_though_a_caller_waited() {
    let mut without = Vec::new();
    for system in System::runnable().filter(|s| s.rules().contains(&RULE)) {
        let mut found = 0;
        for name in ["4k-512", "8k-1k"] {
            let geometry = shape(name);
            let Ok(whole) = system.crashed(None, &geometry) else { continue };
            let outcome = go(&whole, &sizes_change_alone(&geometry), 1, 1000);
            outcome.expect_kept(&format!("{}, {name}", system.name()));
            let mutant = go(&whole.without(RULE), &sizes_change_alone(&geometry), 1, 1000);
            let is_lost = mutant.failures.iter().any(|f| !f.verdict.lost_durable.is_empty());
            println!("{}, {name}: lost without {RULE}: {is_lost}", system.name());
            found += usize::from(is_lost);
        }
        // In a shape where many blocks are logged, a log may be written just then for another
        // reason.
        if found == 0 {
            without.push(system.name());
        }
    }
    assert!(without.is_empty(), "the rule has no effect on {without:?}");
}
