//! Files that grow at their ends, as logs do, while older bytes in them are durable.
//!
//! Fault model: a disk with a volatile cache, torn at 512 bytes, crashes during recovery too.
//! Clients append to few files and make one of them durable now and then. The fragments at the end
//! of a file move when it grows and others are behind them. Bytes for which a caller has waited
//! must outlive that, although the bytes behind them are only in memory: in every ordering, since
//! no one who appends to a log expects an old record to go.

use ordo_crash::{
    Budget, Config, CrashModel, FsGeometry, Outcome, Scheme, Script, ScriptManner, ScriptPlace,
    ScriptStep, explore,
};
use ordo_systems::{Crashed, System, ffs};

/// The systems with different orderings of the same file system.
const SYSTEMS: [&str; 6] = [
    "ffs-sync",
    "ffs-soft-updates",
    "lffs-file",
    "lffs-wafs-1sync",
    "lffs-wafs-2async",
    "lffs-wafs-2sync-group",
];

fn crashed(system: System, shape: &str) -> Crashed {
    system.crashed(None, &FsGeometry::by_name(shape).unwrap()).unwrap()
}

fn go(scheme: &impl Scheme, script: &Script, seed: u64, states: usize) -> Outcome {
    let budget = Budget { states, recovery_every: 50, ..Budget::default() };
    explore(scheme, script, &Config::new(seed, CrashModel::Volatile), &budget).unwrap()
}

fn appends(seed: u64) -> Script {
    ScriptManner { append: 80, ..ScriptManner::default() }.script(seed)
}

/// Would catch a pointer to a place where the contents are not yet, in a log or on disk; a recovery
/// that copies contents over newer ones, since the log does not say durably that they had landed
/// (an fsync that ends while another task's flush covers its writes; a sync that ends while the old
/// place is being freed); and an inode that an fsync leaves out, since all newer changes in its
/// block have to wait.
#[test]
fn durable_bytes_outlive_the_growth_of_their_file() {
    for system in System::runnable().filter(|s| SYSTEMS.contains(&s.name())) {
        // One fragment in a block, two, and many; small blocks and large ones; little space.
        for shape in ["4k-512", "8k-1k", "16k-16k", "32k-4k", "8k-1k-full"] {
            for seed in [1, 4, 7, 203] {
                let outcome = go(&crashed(system, shape), &appends(seed), seed, 700);
                outcome.expect_kept(&format!("{}, {shape}, seed {seed}", system.name()));
            }
        }
    }
}

/// Without the rule about moved contents, bytes are lost in every shape with fragments.
#[test]
fn without_its_rule_moved_contents_are_lost() {
    for system in System::runnable().filter(|s| SYSTEMS.contains(&s.name())) {
        let rule = match system.rules() {
            rules if rules.contains(&"LAND") => "LAND",
            rules if rules.contains(&"CONTENTS_BEFORE_MOVE") => "CONTENTS_BEFORE_MOVE",
            _ => continue,
        };
        for shape in ["4k-512", "8k-1k", "32k-4k", "8k-1k-full"] {
            let broken = (1..6).any(|seed| {
                let mutant = crashed(system, shape).without(rule);
                let outcome = go(&mutant, &appends(seed), seed, 2000);
                outcome.failures.iter().any(|f| !f.verdict.lost_durable.is_empty())
            });
            assert!(broken, "{}, {shape}, without {rule}", system.name());
        }
    }
}

/// A file grows in place, so its inode changes without waiting for anything. Then another inode of
/// the same block gets a change that has to wait. An fsync of the file once took the block for one
/// whose write would show nothing new, and returned without it.
#[test]
fn an_fsync_writes_an_inode_whose_neighbours_have_to_wait() {
    let file = |name| ScriptPlace { dir: 1, name };
    let steps = vec![
        ScriptStep::Append(file(2), 600),
        ScriptStep::Append(file(1), 200),
        ScriptStep::Append(file(0), 40),
        ScriptStep::Fsync(file(2)),
        ScriptStep::Append(file(1), 1500),
        ScriptStep::Unlink(file(0)),
        ScriptStep::Fsync(file(1)),
    ];
    let script = Script { clients: vec![steps] };
    for shape in ["16k-16k", "64k-8k"] {
        let outcome = go(&crashed(ffs::SOFT_UPDATES, shape), &script, 1, 4000);
        outcome.expect_kept(shape);
    }
}
