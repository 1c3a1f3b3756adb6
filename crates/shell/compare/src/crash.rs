//! The workloads of the comparison, in the form that the crash explorer takes.
//!
//! Commands see a system only as a [`CrashSubject`], so the explorer is compiled once for all
//! systems of the registry, here.

use std::sync::Arc;

use ordo_crash::database::Database;
use ordo_crash::recording::RecordingFs;
use ordo_crash::{
    Budget, Config, CrashError, Failure, FsGeometry, Outcome, Point, Run, Scheme, Script, Shrunk,
    cycle, explore_run, judge_path, record, shrink, shrink_state,
};
use ordo_runtime::{Runtime, cpu::CpuModel};
use ordo_systems::{AnySystem, System, SystemError};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::{Errno, FileSystem, FsResult};

use ordo_workload::{Workload, WorkloadError, WorkloadStage};

/// The work that is crashed.
#[derive(Clone, Debug)]
pub enum CrashWork {
    /// Random operations of concurrent clients.
    Script(Script),
    /// A small database.
    Database(Database),
    /// A workload of the comparison, with the seed of its choices.
    Bench(Workload, u64),
}

/// A system that is ready to be crashed, whatever the type of its scheme: the functions of
/// [`ordo_crash`] for a scheme.
pub trait CrashSubject {
    /// Records a run of some work; see [`ordo_crash::record()`].
    ///
    /// # Errors
    /// The run cannot be made.
    fn record(&self, doing: &CrashWork, config: &Config) -> Result<Arc<Run>, CrashError>;

    /// Explores the states that a crash may leave of a run; see [`ordo_crash::explore_run`].
    fn explore(&self, run: &Arc<Run>, seed: u64, budget: &Budget) -> Outcome;

    /// Judges one state of a run; see [`ordo_crash::judge_path`].
    fn judge(&self, runs: &[Arc<Run>], seed: u64, path: &[Point]) -> Option<Failure>;

    /// Ends a run with one of the states that a crash may leave; see [`ordo_crash::cycle::end`].
    ///
    /// # Errors
    /// The state breaks a promise.
    fn end(&self, run: &Arc<Run>, seed: u64) -> Result<Option<cycle::CycleEnd>, Box<Failure>>;

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

impl<S: Scheme> CrashSubject for S {
    fn record(&self, doing: &CrashWork, config: &Config) -> Result<Arc<Run>, CrashError> {
        let run = match doing {
            CrashWork::Script(script) => record(self, script, config),
            CrashWork::Database(database) => record(self, database, config),
            CrashWork::Bench(workload, seed) => {
                record(self, &Seeded { workload, seed: *seed }, config)
            }
        };
        run.map(Arc::new)
    }

    fn explore(&self, run: &Arc<Run>, seed: u64, budget: &Budget) -> Outcome {
        explore_run(self, run, seed, budget)
    }

    fn judge(&self, runs: &[Arc<Run>], seed: u64, path: &[Point]) -> Option<Failure> {
        judge_path(self, runs, seed, path)
    }

    fn end(&self, run: &Arc<Run>, seed: u64) -> Result<Option<cycle::CycleEnd>, Box<Failure>> {
        cycle::end(self, run, seed)
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

/// The system of that name. It is held to the promise of `held_to` if that is given. The shape
/// matters only for systems of this process.
///
/// # Errors
/// There is no such system, or it cannot be crashed.
pub fn subject(
    system: impl Into<AnySystem>,
    held_to: Option<System>,
    geometry: &FsGeometry,
) -> Result<Box<dyn CrashSubject>, SystemError> {
    Ok(match system.into() {
        AnySystem::Ours(system) => Box::new(system.crashed(held_to, geometry)?),
        AnySystem::External(system) => {
            let held = held_to.map(|other| system.holding(other.promise()));
            Box::new(held.unwrap_or(system))
        }
    })
}

/// A system with one rule, or none, switched off, and the rule's name.
pub type Mutant = (&'static str, Box<dyn CrashSubject>);

/// The name of the mutant that has all rules.
pub const NO_RULE: &str = "(none)";

/// A system in a shape, first with all rules of its ordering, then with each of them switched off.
///
/// # Errors
/// The system cannot be crashed.
pub fn mutants(system: System, geometry: &FsGeometry) -> Result<Vec<Mutant>, SystemError> {
    let whole = system.crashed(None, geometry)?;
    let mut all: Vec<Mutant> = vec![(NO_RULE, Box::new(whole.clone()))];
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

struct OnRecording<F> {
    fs: WithCpuCost<RecordingFs<F>>,
    runtime: Runtime,
}

impl<F: FileSystem> WorkloadStage for OnRecording<F> {
    type Fs = WithCpuCost<RecordingFs<F>>;
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

impl ordo_crash::RunWorkload for Seeded<'_> {
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> RecordingFs<F>,
    ) -> Result<(), String> {
        // Without a processor model, all operations would end before the first write.
        rt.cpu().set_model(CpuModel::PENTIUM_II_300);
        let fs = WithCpuCost::new(client(0), rt.clone());
        let mut stage = OnRecording { fs, runtime: rt.clone() };
        let ran = self.workload.run(&mut stage, self.seed, &mut ()).await;
        match ran {
            Err(WorkloadError::FileSystem { error, .. }) if error.errno == Errno::NoSpace => Ok(()),
            ran => ran.map(drop).map_err(|e| e.to_string()),
        }
    }
}
