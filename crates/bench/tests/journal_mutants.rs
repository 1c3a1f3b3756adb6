//! The choice of crash states: it must find each rule of the journal that is switched off, in two shapes of
//! file systems.
//!
//! Fault model: completed is durable, and a volatile cache, torn at 512 bytes. The search finds nothing where
//! all rules hold, and something where one does not. Would catch a workload in which no file takes a
//! directory's blocks: without it the lack of the rules about freed blocks would have no effect.

use ordo_bench::crash::{Doing, mutants};
use ordo_crash::Geometry;
use ordo_crash::mutants::Search;
use ordo_systems::journaled;

#[test]
fn a_rule_of_the_journal_that_is_off_is_missed_in_each_shape() {
    // The lack of the rules about freed blocks and about undoing shows after 8,686 states at most.
    let search = Search { states: 15_000, ..Search::default() };
    for name in ["4k-512", "8k-1k"] {
        let shape = Geometry::by_name(name).unwrap();
        for (rule, subject) in mutants(journaled::FILE, &shape).unwrap() {
            let all = rule == "(none)";
            let search =
                Search { states: if all { 3000 } else { search.states }, ..search.clone() };
            let sought = search
                .run(
                    &shape,
                    |script, config| subject.record(&Doing::Script(script.clone()), config),
                    |run, seed, budget| subject.explore(run, seed, budget),
                )
                .unwrap();
            assert_eq!(sought.found.is_none(), all, "{name}, without {rule}: {sought:?}");
        }
    }
}
