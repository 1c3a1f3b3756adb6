//! UFS1, crashed: the orderings promise the same as on UFS2, and each rule is missed when it is
//! off.
//!
//! Fault model: completed is durable, and a volatile cache that loses any subset, torn at 512
//! bytes. UFS1 has no check-hashes, so a torn superblock or group is not seen as torn: what is read
//! must be right in every mixture of old and new sectors. Would catch a mount that relies on a
//! hash, a pointer of 64 bits in a place for 32, and an inode of which a neighbour is rolled back.

use ordo_crash::mutants::Search;
use ordo_crash::{Budget, Config, CrashModel, FsGeometry, Script, explore};
use ordo_systems::{System, ffs};

/// The shapes: a fragment that is a directory's chunk, one that is larger, one that is a block,
/// little space, small groups.
const SHAPES: [&str; 5] =
    ["ufs1-4k-512", "ufs1-8k-1k", "ufs1-16k-16k", "ufs1-16k-2k-full", "ufs1-8k-1k-groups"];

fn shape(name: &str) -> FsGeometry {
    FsGeometry::by_name(name).unwrap()
}

#[test]
fn every_ordering_keeps_its_promise() {
    let (mut states, mut used) = (0, 0);
    for system in System::runnable().filter(|s| s.format().name() == "ufs2" && *s != ffs::NONE) {
        for name in SHAPES {
            let geometry = shape(name);
            let scheme = system.crashed(None, &geometry).unwrap();
            for (seed, model) in [(1, CrashModel::Volatile), (2, CrashModel::Completed)] {
                let budget = Budget { states: 400, ..Budget::default() };
                let script = Script::random(seed, 3, 120);
                let outcome =
                    explore(&scheme, &script, &Config::new(seed, model), &budget).unwrap();
                outcome.expect_kept(&format!("{}, {name}, {model:?}", system.name()));
                states += outcome.counts.states;
                used += outcome.counts.used;
            }
        }
    }
    assert!(states > 20_000 && used > 500, "{states} states, {used} used");
}

/// Rules whose absence this search does not find on UFS2 either: see `mutants.rs`.
const ELSEWHERE: [&str; 9] = [
    "ENTRY_BEFORE_SIZE",
    "INODES_BEFORE_USE",
    "GROUP_BEFORE_ENTRY",
    "MOVED_BEFORE_REUSE",
    "CONTENTS_BEFORE_MOVE",
    "ONE_OF_A_NAME",
    "SIZE_AFTER_CONTENTS",
    "LAST_COUNT_WITH_CLEARING",
    "REUSE_AFTER_DOTDOT",
];

/// Would catch an explorer that does not see UFS1's damage.
#[test]
fn a_rule_that_is_off_is_missed() {
    // For most rules a few hundred states suffice; `BLOCK_COUNTS` takes 26,479.
    let usual = Search { states: 40_000, ..Search::default() };
    for system in [ffs::SYNC, ffs::SOFT_UPDATES] {
        for rule in system.rules().into_iter().filter(|rule| !ELSEWHERE.contains(rule)) {
            // UFS1's smaller inodes leave more space, so freed blocks are soon reused only where
            // others take it, and a script replaces links again and again.
            let (geometry, churn) = match rule {
                "POINTER_BEFORE_FREE" => (shape("ufs1-8k-1k-full"), true),
                _ => (shape("ufs1-8k-1k"), false),
            };
            let search = Search { churn, ..usual.clone() };
            let mutant = system.crashed(None, &geometry).unwrap().without(rule);
            let sought = search.scheme(&mutant, &geometry).unwrap();
            assert!(sought.found.is_some(), "{}, without {rule}: {sought:?}", system.name());
        }
    }
}
