//! The workloads of the comparison, in the form that the crash explorer takes.
//!
//! Commands see a system only as a [`Subject`], so the explorer is compiled once for all systems of the
//! registry, here.

use std::sync::Arc;

use ordo_crash::database::Database;
use ordo_crash::history::Watched;
use ordo_crash::{
    Budget, Config, CrashError, Failure, Geometry, Outcome, Point, Run, Scheme, Script, Shrunk,
    explore_run, judge_path, life, record, shrink, shrink_state,
};
use ordo_runtime::{Runtime, cpu::CpuModel};
use ordo_systems::{AnySystem, System, SystemError};
use ordo_vfs::charged::Charged;
use ordo_vfs::{Errno, FileSystem, FsResult};

use crate::workload::{Stage, Workload, WorkloadError};

/// The work that is crashed.
#[derive(Clone, Debug)]
pub enum Doing {
    /// Random operations of concurrent clients.
    Script(Script),
    /// A small database.
    Database(Database),
    /// A workload of the comparison, with the seed of its choices.
    Bench(Workload, u64),
}

/// A system that is ready to be crashed, whatever the type of its scheme: the functions of [`ordo_crash`] for a
/// scheme.
pub trait Subject {
    /// Records a run of some work; see [`ordo_crash::record()`].
    ///
    /// # Errors
    /// The run cannot be made.
    fn record(&self, doing: &Doing, config: &Config) -> Result<Arc<Run>, CrashError>;

    /// Explores the states that a crash may leave of a run; see [`ordo_crash::explore_run`].
    fn explore(&self, run: &Arc<Run>, seed: u64, budget: &Budget) -> Outcome;

    /// Judges one state of a run; see [`ordo_crash::judge_path`].
    fn judge(&self, runs: &[Arc<Run>], seed: u64, path: &[Point]) -> Option<Failure>;

    /// Ends a run with one of the states that a crash may leave; see [`ordo_crash::life::end`].
    ///
    /// # Errors
    /// The state breaks a promise.
    fn end(&self, run: &Arc<Run>, seed: u64) -> Result<Option<life::End>, Box<Failure>>;

    /// See [`Scheme::repeats`].
    fn repeats(&self) -> bool;

    /// Shrinks a failing script; see [`ordo_crash::shrink()`].
    ///
    /// # Errors
    /// A run cannot be made.
    fn shrink(
        &self,
        script: &Script,
        config: &Config,
        budget: &Budget,
        failure: &Failure,
        runs: usize,
    ) -> Result<Shrunk, CrashError>;

    /// Shrinks a failing state; see [`ordo_crash::shrink_state`].
    fn shrink_state(&self, run: &Arc<Run>, seed: u64, failure: &Failure) -> Failure;
}

impl<S: Scheme> Subject for S {
    fn record(&self, doing: &Doing, config: &Config) -> Result<Arc<Run>, CrashError> {
        let run = match doing {
            Doing::Script(script) => record(self, script, config),
            Doing::Database(database) => record(self, database, config),
            Doing::Bench(workload, seed) => record(self, &Seeded { workload, seed: *seed }, config),
        };
        run.map(Arc::new)
    }

    fn explore(&self, run: &Arc<Run>, seed: u64, budget: &Budget) -> Outcome {
        explore_run(self, run, seed, budget)
    }

    fn judge(&self, runs: &[Arc<Run>], seed: u64, path: &[Point]) -> Option<Failure> {
        judge_path(self, runs, seed, path)
    }

    fn end(&self, run: &Arc<Run>, seed: u64) -> Result<Option<life::End>, Box<Failure>> {
        life::end(self, run, seed)
    }

    fn repeats(&self) -> bool {
        Scheme::repeats(self)
    }

    fn shrink(
        &self,
        script: &Script,
        config: &Config,
        budget: &Budget,
        failure: &Failure,
        runs: usize,
    ) -> Result<Shrunk, CrashError> {
        shrink(self, script, config, budget, failure, runs)
    }

    fn shrink_state(&self, run: &Arc<Run>, seed: u64, failure: &Failure) -> Failure {
        shrink_state(self, run, seed, failure)
    }
}

/// A system of that name. It is held to the promise of `held_to` where that is given. The shape matters only
/// for systems of this process.
///
/// # Errors
/// It cannot be crashed.
pub fn subject(
    system: impl Into<AnySystem>,
    held_to: Option<System>,
    geometry: &Geometry,
) -> Result<Box<dyn Subject>, SystemError> {
    Ok(match system.into() {
        AnySystem::Ours(system) => Box::new(system.crashed(held_to, geometry)?),
        AnySystem::External(system) => {
            let held = held_to.map(|other| system.holding(other.promise()));
            Box::new(held.unwrap_or(system))
        }
    })
}

/// A system with one rule, or none, switched off, and the rule's name.
pub type Mutant = (&'static str, Box<dyn Subject>);

/// A system in a shape, first with all rules of its ordering, then with each of them switched off.
///
/// # Errors
/// It cannot be crashed.
pub fn mutants(system: System, geometry: &Geometry) -> Result<Vec<Mutant>, SystemError> {
    let whole = system.crashed(None, geometry)?;
    let mut all: Vec<Mutant> = vec![("(none)", Box::new(whole.clone()))];
    for rule in system.rules() {
        all.push((rule, Box::new(whole.clone().without(rule))));
    }
    Ok(all)
}

/// A workload of the comparison with a seed.
struct Seeded<'w> {
    workload: &'w Workload,
    seed: u64,
}

struct OnWatched<F> {
    fs: Charged<Watched<F>>,
    runtime: Runtime,
}

impl<F: FileSystem> Stage for OnWatched<F> {
    type Fs = Charged<Watched<F>>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.fs.sync().await
    }
}

impl ordo_crash::Workload for Seeded<'_> {
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> Watched<F>,
    ) -> Result<(), String> {
        // Without a processor model, all work would be done before anything is written.
        rt.cpu().set_model(CpuModel::PENTIUM_II_300);
        let fs = Charged::new(client(0), rt.clone());
        let mut stage = OnWatched { fs, runtime: rt.clone() };
        let ran = self.workload.run(&mut stage, self.seed, &mut ()).await;
        match ran {
            Err(WorkloadError::FileSystem { error, .. }) if error.errno == Errno::NoSpace => Ok(()),
            ran => ran.map(drop).map_err(|e| e.to_string()),
        }
    }
}
