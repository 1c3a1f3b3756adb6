//! Crash states a second. Each state is put together, recovered if the scheme needs it, and judged.

use std::time::Instant;

use ordo_compare::crash::{CrashWork, subject};
use ordo_crash::{Budget, Config, CrashModel, FsGeometry, Script};
use ordo_systems::System;

use super::{Sample, Section};

/// The number of states of each round.
const STATES: usize = 30_000;
const ROUNDS: usize = 5;
/// The target, in states a second on two cores.
const TARGET: f64 = 20_000.0;

pub fn measure(section: &mut Section) {
    section.say(
        "Three clients with 120 random operations each on 1 MiB, a disk with a volatile cache. Structure: an \
         independent check of every state. All: names and contents of every state too; use afterwards in one of 50, a nested crash in one of 200.",
    );
    section.table();
    let structure = Budget {
        states: STATES,
        tree_every: 0,
        usable_every: 0,
        recovery_every: 0,
        ..Budget::default()
    };
    let all = Budget { states: STATES, ..Budget::default() };
    let mut least = f64::INFINITY;
    let script = CrashWork::Script(Script::random(1, 3, 120));
    for system in System::runnable() {
        let subject = subject(system, None, &FsGeometry::default()).expect("it can be crashed");
        let run = subject.record(&script, &Config::new(1, CrashModel::Volatile)).expect("it runs");
        for (what, budget) in [("structure", &structure), ("all", &all)] {
            let mut rate = Sample::default();
            for _ in 0..ROUNDS {
                let started = Instant::now();
                let counts = subject.explore(&run, 1, budget).counts;
                let seconds = started.elapsed().as_secs_f64();
                rate.push((counts.states + counts.in_recovery) as f64 / seconds);
            }
            section.row(&format!("{}, {what}: states a second", system.name()), &rate, 0);
            if what == "structure" {
                least = least.min(rate.spread().1);
            }
        }
    }
    section.end();
    section.target("states a second, structure, 20,000", least, least >= TARGET);
}
