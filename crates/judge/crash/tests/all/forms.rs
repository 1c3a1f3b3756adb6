//! Rules that matter only in a form of their own: in a log without seals, after the newest
//! checkpoint was lost, or where files are read from the copy of the metadata.
//!
//! Fault model: that of the explorer, and the fault of the form. With all rules on, no form has a
//! finding, so a finding with a rule off shows the need for the rule. A mount that lacks space does
//! not count as one. Would catch a form in which the rule protects nothing, and one that is broken
//! by itself.

use ordo_crash::FsGeometry;
use ordo_crash::mutants::{Search, Sought};
use ordo_systems::{System, dualfs, lfs, needs_churn};

const RULES: [(System, &str); 4] = [
    (lfs::LFS, "BLOCKS_FIRST"),
    (lfs::LFS, "REUSE"),
    (dualfs::DUALFS, "REUSE"),
    (dualfs::DUALFS, "COPY_FIRST"),
];

/// The number of states of each search. In longer ones the judge misses the sizes of files that a
/// copy of the metadata gives back, with all rules on: these files are older than their contents.
/// `REUSE` needs longer ones: a segment must be written again between two checkpoints. On DualFS
/// 12,000 states found blocks that were freed while a checkpoint was written, and whose segment
/// counted as empty in that checkpoint.
fn states_for(system: System, rule: &str) -> u64 {
    match needs_churn(rule) {
        true if system == lfs::LFS => 30_000,
        true => 12_000,
        false => 2000,
    }
}

/// The shapes in which a rule is sought. Segments are soon used again where little space is free.
/// There, a mount from the older checkpoint has no clean segment left and must write into those
/// that were empty at that checkpoint.
fn shapes_for(rule: &str) -> &'static [&'static str] {
    if needs_churn(rule) { &["4k-512-full", "8k-1k-full"] } else { &["4k-512", "8k-1k"] }
}

fn sought(system: System, rule: &'static str, name: &str, off: bool, states: u64) -> Sought {
    let shape = FsGeometry::by_name(name).unwrap();
    let whole = system.crashed(None, &shape).unwrap();
    let scheme = if off { whole.without(rule) } else { whole.in_form_for(rule) };
    let search = Search { states, churn: needs_churn(rule), ..Search::default() };
    let sought = search.scheme(&scheme, &shape).unwrap();
    println!("{} {name} {rule}, off: {off}: {sought:?}", system.name());
    sought
}

#[test]
fn forms_with_all_rules_have_no_findings() {
    let mut broken = Vec::new();
    for (system, rule) in RULES {
        for name in shapes_for(rule) {
            let found = sought(system, rule, name, false, states_for(system, rule));
            if found.states < states_for(system, rule) || found.found.is_some() {
                broken.push((system.name(), rule, name, found));
            }
        }
    }
    assert_eq!(broken, []);
}

#[test]
fn rules_are_missed_in_their_forms() {
    let mut missing = Vec::new();
    for (system, rule) in RULES {
        for name in shapes_for(rule) {
            let found = sought(system, rule, name, true, states_for(system, rule));
            if found.found.is_none_or(|found| found.what.contains("no space left")) {
                missing.push((system.name(), rule, name));
            }
        }
    }
    assert_eq!(missing, []);
}
