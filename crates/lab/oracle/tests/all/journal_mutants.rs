//! The choice of crash states: it must find each rule of the journal that is switched off, in two
//! shapes of file systems.
//!
//! Fault model: completed is durable, and a volatile cache, torn at 512 bytes. The search finds
//! nothing where all rules hold, and something where one does not. Would catch a workload in which
//! no file takes a directory's blocks: without it the lack of the rules about freed blocks would
//! have no effect.

use ordo_compare::crash::{CrashSubject, CrashWork, NO_RULE, mutants};
use ordo_crash::mutants::Search;
use ordo_crash::{Config, CrashModel, FsGeometry};
use ordo_systems::{System, journaled};

/// A rule that few scripts try: a file has to grow within a fragment that it has, and to be synced
/// by fdatasync with nothing else. One of the shapes is enough; `datasync` of the crash search's
/// own tests tries it on each journal.
const IN_ONE_SHAPE: &str = "DATASYNC_KEEPS_SIZE";

#[test]
fn a_rule_of_the_journal_that_is_off_is_missed_in_each_shape() {
    // Without the rules about freed blocks, or those about rollback, a broken promise is found
    // after at most 8,686 states.
    let search = Search { states: 15_000, ..Search::default() };
    let mut found_once = false;
    for name in ["4k-512", "8k-1k"] {
        let shape = FsGeometry::by_name(name).unwrap();
        for (rule, subject) in mutants(journaled::FILE, &shape).unwrap() {
            let all = rule == NO_RULE;
            let search =
                Search { states: if all { 3000 } else { search.states }, ..search.clone() };
            let sought = search
                .run(
                    &shape,
                    |script, config| subject.record(&CrashWork::Script(script.clone()), config),
                    |run, seed, budget| subject.explore(run, seed, budget),
                )
                .unwrap();
            if rule == IN_ONE_SHAPE {
                found_once |= sought.found.is_some();
                continue;
            }
            assert_eq!(sought.found.is_none(), all, "{name}, without {rule}: {sought:?}");
        }
    }
    assert!(found_once, "without {IN_ONE_SHAPE}: not found in any shape");
}

/// Runs of each form of the journal, with logs as small as small file systems have them: no client
/// waits for log space for ever. Would catch a keeper that goes to sleep while an operation waits
/// for it.
#[test]
fn no_client_waits_for_a_small_log_for_ever() {
    let search = Search::default();
    let forms: Vec<_> = System::all().iter().filter(|form| form.journal().is_some()).collect();
    assert_eq!(forms.len(), 7, "each form of the journal is in the registry");
    for shape in FsGeometry::all() {
        for form in &forms {
            let subject = form.crashed(None, &shape).unwrap();
            for seed in [5, 17] {
                let script = CrashWork::Script(search.script(seed, &shape));
                let ran = subject.record(&script, &Config::new(seed, CrashModel::Volatile));
                assert!(
                    ran.is_ok(),
                    "{}, {}, seed {seed}: {:?}",
                    form.name(),
                    shape.name,
                    ran.err()
                );
            }
        }
    }
}
