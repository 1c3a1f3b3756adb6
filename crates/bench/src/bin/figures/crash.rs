//! Crash states a second: put together, recovered where the scheme needs it, judged.

use std::sync::Arc;
use std::time::Instant;

use ordo_bench::compare::System;
use ordo_bench::crash::{UseScheme, with_scheme};
use ordo_crash::{Budget, Config, Model, Outcome, Scheme, Script, explore_run, record};

use super::{Sample, Section};

/// States of each round.
const STATES: usize = 30_000;
const ROUNDS: usize = 5;
/// States a second on two cores.
const TARGET: f64 = 20_000.0;

struct Explored<'b>(&'b Budget);

impl UseScheme for Explored<'_> {
    type Out = (Outcome, f64);

    fn with<S: Scheme>(self, scheme: &S) -> (Outcome, f64) {
        let config = Config::new(1, Model::Volatile);
        let run = record(scheme, &Script::random(1, 3, 120), &config).expect("it runs");
        let started = Instant::now();
        let outcome = explore_run(scheme, &Arc::new(run), 1, self.0);
        (outcome, started.elapsed().as_secs_f64())
    }
}

pub fn measure(section: &mut Section) {
    section.say(
        "Three clients with 120 random operations each on 1 MiB, a disk with a volatile cache. Structure: an \
         independent check of every state. All: names and contents of every state too; use afterwards in \
         one of 50, recovery cut off in one of 200.",
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
    for system in System::ALL {
        for (what, budget) in [("structure", &structure), ("all", &all)] {
            let mut rate = Sample::default();
            for _ in 0..ROUNDS {
                let (outcome, seconds) = with_scheme(system, None, 1 << 20, Explored(budget));
                let counts = outcome.counts;
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
