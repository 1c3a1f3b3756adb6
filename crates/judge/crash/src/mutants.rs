//! A test of the selection of states: the number of states that are judged until a missing rule
//! shows.
//!
//! An explorer that finds no broken promise has shown little, unless it finds known defects. So
//! each rule of an ordering is switched off, in each geometry, and states are judged until a
//! promise is broken.

use std::sync::Arc;

use serde::Serialize;

use crate::script::ScriptManner;
use crate::{
    Budget, CachePlan, Config, CrashError, CrashModel, FsGeometry, Outcome, Run, Scheme, Script,
};

/// The extent of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The seed of the first run. Each further run has the next number.
    pub seed: u64,
    /// The most states, over all runs.
    pub states: u64,
    /// The most states of each run.
    pub states_of_run: usize,
    /// The fault models of the disks, in each of which every run is made.
    pub models: Vec<CrashModel>,
    /// The operations of each of three clients.
    pub steps: usize,
    /// Whether all scripts replace files, or metadata, for so long that a log uses its segments
    /// again.
    pub churn: bool,
    /// The number of threads; 0 means one for each processor.
    pub threads: usize,
}

/// The blocks of a small cache.
const FEW: u32 = 12;

/// The fsyncs in a hundred that are an fdatasync, where files are overwritten or grow in place.
const DATASYNCS: u8 = 50;
/// The number of rounds of a script that makes a log use its segments again.
const CHURN: usize = 250;
/// The number of rounds of a script that replaces batches of links.
const LINK_ROUNDS: usize = 30;

impl Default for Search {
    fn default() -> Search {
        Search {
            seed: 1,
            states: 20_000,
            states_of_run: 1000,
            models: vec![CrashModel::Completed, CrashModel::Volatile],
            steps: 120,
            churn: false,
            threads: 0,
        }
    }
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sought {
    /// The number of states judged, the one that breaks a promise included.
    pub states: u64,
    /// The run with that state, and the promise; `None` if no promise was broken.
    pub found: Option<MutantFound>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MutantFound {
    /// The seed of the run.
    pub seed: u64,
    /// The fault model of the disk.
    pub model: CrashModel,
    /// The promise, in words.
    pub what: String,
}

impl Search {
    /// The script of a run. The kinds take turns: the usual one; many names of all lengths; files
    /// with distant blocks; files that take a directory's blocks as soon as they are free; files
    /// that are written over until a log's cleaner works; files that grow at their ends.
    pub fn script(&self, seed: u64, geometry: &FsGeometry) -> Script {
        let usual = ScriptManner { steps: self.steps, ..ScriptManner::default() };
        match seed % 7 {
            _ if self.churn && seed.is_multiple_of(2) => {
                return Script::links(seed, 2, LINK_ROUNDS);
            }
            _ if self.churn => return Script::overwrites(seed, 2, CHURN, geometry.block_size),
            4 => {
                let script = Script::overwrites(seed, 2, self.steps, geometry.block_size);
                return script.with_datasyncs(seed, DATASYNCS);
            }
            5 => return Script::reuse(seed, 2, 1 + self.steps / 40, geometry.block_size),
            6 => {
                let manner = ScriptManner { append: 80, datasync: DATASYNCS, ..usual };
                return manner.script(seed);
            }
            _ => {}
        }
        let manner = match seed % 3 {
            0 => ScriptManner { names: 120, fsync: 4, ..usual },
            1 => usual,
            _ => ScriptManner { far: geometry.block_size, fsync: 4, ..usual },
        };
        manner.script(seed)
    }

    /// The options of a run. Every fourth run has a cache of a few blocks, so that operations wait
    /// for the disk between two changes that belong together.
    fn config(&self, seed: u64, model: CrashModel, geometry: &FsGeometry) -> Config {
        let cache_blocks = (seed % 4 == 3).then_some(FEW);
        let plan = CachePlan { cache_blocks, ..CachePlan::default() };
        Config::new(seed, model).with_cache(plan, geometry.block_size)
    }

    /// Judges states of runs until a promise is broken. `record` makes the run of a script,
    /// `explore` explores it.
    ///
    /// # Errors
    /// A run cannot be made.
    pub fn run(
        &self,
        geometry: &FsGeometry,
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
                let config = self.config(seed, *model, geometry);
                let run = record(&self.script(seed, geometry), &config)?;
                let budget =
                    Budget { states, stop: true, threads: self.threads, ..Budget::default() };
                let outcome = explore(&run, seed, &budget);
                judged += outcome.counts.states.max(1);
                if let Some(failure) = outcome.failures.first() {
                    let what = failure.verdict.broken.first().cloned().unwrap_or_default();
                    let found = Some(MutantFound { seed, model: *model, what });
                    return Ok(Sought { states: judged, found });
                }
            }
        }
        unreachable!("there are more seeds than states")
    }

    /// As [`run`], for a scheme.
    ///
    /// # Errors
    /// A run cannot be made.
    pub fn scheme(
        &self,
        scheme: &impl Scheme,
        geometry: &FsGeometry,
    ) -> Result<Sought, CrashError> {
        let record =
            |script: &Script, config: &Config| crate::record(scheme, script, config).map(Arc::new);
        self.run(geometry, record, |run, seed, budget| {
            crate::explore_run(scheme, run, seed, budget)
        })
    }
}
