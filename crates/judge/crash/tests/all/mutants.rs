//! The selection of states: rules of an ordering are switched off, in several shapes of file
//! systems.
//!
//! Fault model: completed is durable, and a volatile cache, torn at 512 bytes. An explorer that
//! passes everything fails here: the search finds nothing where all rules hold, and something,
//! always after the same number of states, where one does not.

use ordo_crash::FsGeometry;
use ordo_crash::mutants::Search;
use ordo_systems::{Crashed, System, ffs};

fn shape(name: &str) -> FsGeometry {
    FsGeometry::by_name(name).unwrap()
}

fn whole(system: System, shape: &FsGeometry) -> Crashed {
    system.crashed(None, shape).unwrap()
}

/// Rules whose absence rarely shows: the other rules' writes soon repair the damage. `explore.rs`,
/// where nothing is durable on return, and `crash_cycles.rs` find it. Fragments that a file has
/// left are a test of `crash_sync.rs`, and their contents one of `appends.rs`.
const LATE: [&str; 5] = [
    "ENTRY_BEFORE_SIZE",
    "INODES_BEFORE_USE",
    "GROUP_BEFORE_ENTRY",
    "MOVED_BEFORE_REUSE",
    "CONTENTS_BEFORE_MOVE",
];

/// Would catch a selection that misses a fault in some geometry, and a search that never ends.
#[test]
fn a_rule_of_sync_that_is_off_is_missed_in_each_shape() {
    let search = Search { states: 40_000, ..Search::default() };
    for name in ["4k-512", "8k-1k", "16k-16k", "8k-1k-groups"] {
        let shape = shape(name);
        let few = Search { states: 1500, ..search.clone() };
        let sought = few.scheme(&whole(ffs::SYNC, &shape), &shape).unwrap();
        assert_eq!((sought.states >= 1500, sought.found), (true, None), "{name}");
        for rule in ffs::SYNC.rules() {
            if !LATE.contains(&rule) {
                let mutant = whole(ffs::SYNC, &shape).without(rule);
                let sought = search.scheme(&mutant, &shape).unwrap();
                assert!(sought.found.is_some(), "{name}, without {rule}: {sought:?}");
            }
        }
    }
}

/// Rules of soft updates whose absence this search does not find. `SIZE_AFTER_CONTENTS` needs
/// longer directories (`directories.rs`), `REUSE_AFTER_DOTDOT` directories that are far apart on
/// disk (`removed.rs`), the others more clients or special steps (`soft_updates.rs`).
const ELSEWHERE: [&str; 5] = [
    "INODES_BEFORE_USE",
    "ONE_OF_A_NAME",
    "SIZE_AFTER_CONTENTS",
    "LAST_COUNT_WITH_CLEARING",
    "REUSE_AFTER_DOTDOT",
];

/// Would catch a selection that misses the absence of a rule of soft updates, in a geometry with
/// few fragments in a block, in one with many, and in one with a single fragment in each.
#[test]
fn a_rule_of_soft_updates_that_is_off_is_missed_in_each_shape() {
    // For most rules a few hundred states suffice; `BLOCK_COUNTS` on 4k-512 takes 14,344.
    let search = Search { states: 25_000, ..Search::default() };
    for name in ["4k-512", "8k-1k", "16k-16k"] {
        let shape = shape(name);
        let few = Search { states: 1500, ..search.clone() };
        let sought = few.scheme(&whole(ffs::SOFT_UPDATES, &shape), &shape).unwrap();
        assert_eq!((sought.states >= 1500, sought.found), (true, None), "{name}");
        for rule in ffs::SOFT_UPDATES.rules() {
            if !ELSEWHERE.contains(&rule) {
                let mutant = whole(ffs::SOFT_UPDATES, &shape).without(rule);
                let sought = search.scheme(&mutant, &shape).unwrap();
                assert!(sought.found.is_some(), "{name}, without {rule}: {sought:?}");
            }
        }
    }
}

/// The same search ends after the same number of states on one thread and on several.
#[test]
fn a_search_ends_at_the_same_state_on_any_number_of_threads() {
    let shape = shape("8k-1k");
    let mutant = whole(ffs::SYNC, &shape).without(ffs::SYNC.rules()[0]);
    let sought = [1, 3].map(|threads| {
        let search = Search { threads, ..Search::default() };
        search.scheme(&mutant, &shape).unwrap()
    });
    assert!(sought[0].found.is_some() && sought[0] == sought[1], "{sought:?}");
}
