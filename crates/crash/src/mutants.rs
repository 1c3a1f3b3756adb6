//! Whether the choice of states sees: how many it takes until a rule that is off is missed.
//!
//! An explorer that keeps every promise has shown little unless it finds what is known to be wrong. So each rule of an
//! ordering is switched off, in each geometry, and states are judged until a promise is broken.

use std::sync::Arc;

use serde::Serialize;

use crate::script::Manner;
use crate::{Budget, Config, CrashError, Geometry, Model, Outcome, Run, Scheme, Script};

/// How long is searched.
#[derive(Clone, Debug)]
pub struct Search {
    /// The seed of the first run; each has the next.
    pub seed: u64,
    /// States at most, of all runs.
    pub states: u64,
    /// States of each run at most.
    pub states_of_run: usize,
    /// Disks: each run is made on each.
    pub models: Vec<Model>,
    /// Operations of each of three clients.
    pub steps: usize,
    /// Threads; 0: as many as the machine has processors.
    pub threads: usize,
}

impl Default for Search {
    fn default() -> Search {
        Search {
            seed: 1,
            states: 20_000,
            states_of_run: 1000,
            models: vec![Model::Completed, Model::Volatile],
            steps: 120,
            threads: 0,
        }
    }
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sought {
    /// States that were judged, the one that breaks a promise included.
    pub states: u64,
    /// The run in which it is, and the promise; none where none was found.
    pub found: Option<Found>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The seed of the run.
    pub seed: u64,
    /// What the disk may lose.
    pub model: Model,
    /// Which promise, in words.
    pub what: String,
}

impl Search {
    /// The script of a run: the usual one; many names of all lengths; files that reach far; blocks of directories that
    /// files take at once; in turn.
    pub fn script(&self, seed: u64, geometry: &Geometry) -> Script {
        if seed % 6 == 5 {
            return Script::reuse(seed, 2, 1 + self.steps / 40, geometry.block_size);
        }
        let usual = Manner { steps: self.steps, ..Manner::default() };
        let manner = match seed % 3 {
            0 => Manner { names: 120, fsync: 4, ..usual },
            1 => usual,
            _ => Manner { far: geometry.block_size, fsync: 4, ..usual },
        };
        manner.script(seed)
    }

    /// Judges states of runs until a promise is broken. `record` makes a run of a script, `explore` explores it.
    ///
    /// # Errors
    /// A run cannot be made.
    pub fn run(
        &self,
        geometry: &Geometry,
        record: impl Fn(&Script, &Config) -> Result<Arc<Run>, CrashError>,
        explore: impl Fn(&Arc<Run>, u64, &Budget) -> Outcome,
    ) -> Result<Sought, CrashError> {
        let mut judged = 0;
        for seed in self.seed.. {
            for model in &self.models {
                let states = self.states_of_run.min((self.states - judged) as usize);
                if states == 0 {
                    return Ok(Sought { states: judged, found: None });
                }
                let run = record(&self.script(seed, geometry), &Config::new(seed, *model))?;
                let budget =
                    Budget { states, stop: true, threads: self.threads, ..Budget::default() };
                let outcome = explore(&run, seed, &budget);
                judged += outcome.counts.states.max(1);
                if let Some(failure) = outcome.failures.first() {
                    let what = failure.verdict.broken.first().cloned().unwrap_or_default();
                    let found = Some(Found { seed, model: *model, what });
                    return Ok(Sought { states: judged, found });
                }
            }
        }
        unreachable!("there are more seeds than states")
    }

    /// The same of a scheme.
    ///
    /// # Errors
    /// A run cannot be made.
    pub fn scheme(&self, scheme: &impl Scheme, geometry: &Geometry) -> Result<Sought, CrashError> {
        let record =
            |script: &Script, config: &Config| crate::record(scheme, script, config).map(Arc::new);
        self.run(geometry, record, |run, seed, budget| {
            crate::explore_run(scheme, run, seed, budget)
        })
    }
}
