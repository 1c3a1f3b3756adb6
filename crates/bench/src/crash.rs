//! The systems and workloads of the comparison, as the crash explorer takes them.
//!
//! [`subject`] is where a system's name becomes something to crash, with what it promises. Commands see no
//! more of it than [`Subject`]: so each system is compiled once, here.

use std::sync::Arc;

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_crash::database::Database;
use ordo_crash::history::Watched;
use ordo_crash::mutants::without_each;
use ordo_crash::{
    Budget, Config, CrashError, Failure, Geometry, OnFfs, Outcome, Point, Promise, Run, Scheme,
    Script, Shrunk, explore_run, judge_path, life, record, shrink, shrink_state,
};
use ordo_ffs::MountOptions;
use ordo_ordering::{
    JournalOptions, JournalRules, NoOrder, OrderingPolicy, SoftRules, SoftUpdates, SyncOrder,
    SyncRules,
};
use ordo_runtime::{Duration, Runtime, cpu::CpuModel};
use ordo_vfs::charged::Charged;
use ordo_vfs::{Errno, FileSystem, FsResult};

use crate::compare::System;
use crate::journaled::{Journaled, JournaledFs, LogPlace};
use crate::workload::{Stage, Workload, WorkloadError};

/// What is done to a system that is crashed.
#[derive(Clone, Debug)]
pub enum Doing {
    /// Random operations of clients at the same time.
    Script(Script),
    /// A small database.
    Database(Database),
    /// A workload of the comparison, with the seed that fixes its choices.
    Bench(Workload, u64),
}

/// A system ready to be crashed, of whatever type its scheme is: what [`ordo_crash`] does with a scheme.
pub trait Subject {
    /// Records what is done; see [`ordo_crash::record()`].
    ///
    /// # Errors
    /// The run cannot be made.
    fn record(&self, doing: &Doing, config: &Config) -> Result<Arc<Run>, CrashError>;

    /// Explores what a crash may leave of a run; see [`ordo_crash::explore_run`].
    fn explore(&self, run: &Arc<Run>, seed: u64, budget: &Budget) -> Outcome;

    /// Judges one state of a run; see [`ordo_crash::judge_path`].
    fn judge(&self, runs: &[Arc<Run>], seed: u64, path: &[Point]) -> Option<Failure>;

    /// Ends a run with one of the states that a crash may leave; see [`ordo_crash::life::end`].
    ///
    /// # Errors
    /// A promise is broken in it.
    fn end(&self, run: &Arc<Run>, seed: u64) -> Result<Option<life::End>, Box<Failure>>;

    /// See [`Scheme::repeats`].
    fn repeats(&self) -> bool;

    /// Makes a failing script small; see [`ordo_crash::shrink()`].
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

    /// Makes a failing state small; see [`ordo_crash::shrink_state`].
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

/// What a system promises.
pub fn promise(system: System) -> Promise {
    match (system.journal(), system) {
        (Some(journal), _) => Promise::journal(journal.synchronous),
        (None, System::FfsSync) => Promise::SYNC,
        (None, System::FfsSoftUpdates) => Promise::SOFT_UPDATES,
        _ => Promise::NONE,
    }
}

/// A system in a shape, held to the promise of `held_to` where that is given.
pub fn subject(system: System, held_to: Option<System>, geometry: &Geometry) -> Box<dyn Subject> {
    fn ffs<P: OrderingPolicy + Default + 'static>(
        name: &str,
        promise: Promise,
        geometry: &Geometry,
    ) -> Box<dyn Subject> {
        Box::new(OnFfs::new(name, P::default, promise).shaped(geometry))
    }
    let (name, promise) = (system.name(), promise(held_to.unwrap_or(system)));
    if let Some(journal) = system.journal() {
        return Box::new(OnJournal { name, promise, journal, geometry: geometry.clone() });
    }
    match system {
        System::FfsSync => ffs::<SyncOrder>(name, promise, geometry),
        System::FfsSoftUpdates => ffs::<SoftUpdates>(name, promise, geometry),
        _ => ffs::<NoOrder>(name, promise, geometry),
    }
}

/// A system of which a rule is off, or none, with the rule's name.
pub type Mutant = (&'static str, Box<dyn Subject>);

/// A system in a shape, with each of its ordering's rules switched off, one at a time; first with all of them.
pub fn mutants(system: System, geometry: &Geometry) -> Vec<Mutant> {
    let (name, promise) = (system.name(), promise(system));
    let first = ("(none)", subject(system, None, geometry));
    let each: Vec<Mutant> = match (system.journal(), system) {
        (Some(journal), _) => {
            let without = |(rule, rules)| {
                let options = JournalOptions { rules, ..journal.options };
                let journal = Journaled { options, ..journal };
                let geometry = geometry.clone();
                let subject = OnJournal { name, promise, journal, geometry };
                (rule, Box::new(subject) as Box<dyn Subject>)
            };
            without_each::<JournalRules>().into_iter().map(without).collect()
        }
        (None, System::FfsSync) => {
            let without = |(rule, rules)| {
                (rule, Box::new(ordo_crash::mutants::sync(rules, geometry)) as Box<dyn Subject>)
            };
            without_each::<SyncRules>().into_iter().map(without).collect()
        }
        (None, System::FfsSoftUpdates) => {
            let without = |(rule, rules)| {
                let subject = ordo_crash::mutants::soft_updates(rules, geometry);
                (rule, Box::new(subject) as Box<dyn Subject>)
            };
            without_each::<SoftRules>().into_iter().map(without).collect()
        }
        _ => Vec::new(),
    };
    std::iter::once(first).chain(each).collect()
}

/// A journaled system. Its log is looked after often, so that little time passes between two states.
#[derive(Clone)]
struct OnJournal {
    name: &'static str,
    promise: Promise,
    journal: Journaled,
    geometry: Geometry,
}

/// How often the journal looks after its log when it is crashed.
const TICK: Duration = Duration::from_millis(5);

impl Scheme for OnJournal {
    type Fs = JournaledFs;

    fn name(&self) -> &str {
        self.name
    }

    fn promise(&self) -> Promise {
        self.promise
    }

    fn devices(&self) -> Vec<u64> {
        let bytes = self.geometry.bytes;
        let log = self.journal.sizes(bytes).1;
        match self.journal.place {
            LogPlace::Other => vec![bytes, log],
            // Where there is little room, there is none for a log.
            LogPlace::File | LogPlace::Same if self.geometry.min_free == 0 => vec![bytes + log],
            LogPlace::File | LogPlace::Same => vec![bytes],
        }
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let made = self.journal.make(rt, disks, &self.geometry.mkfs()).await;
        made.map(drop).map_err(|e| e.to_string())
    }

    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<JournaledFs, String> {
        let mut journal = self.journal;
        journal.options.tick = TICK;
        journal.options.checkpoint_every = TICK;
        let options = MountOptions { cache: cache.clone(), ..MountOptions::default() };
        let mounted = journal.mount(rt, disks, &options).await;
        mounted.map(|(fs, _)| fs).map_err(|e| e.to_string())
    }

    async fn recover(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let fs = self.mount(rt, disks, &CacheConfig::default()).await?;
        fs.unmount().await.map_err(|e| e.to_string())
    }

    fn recovers(&self) -> bool {
        true
    }
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
        // Else all of it would be done before anything is written.
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
