//! Crash cycles: each run begins with the disks that a crash of the run before has left.
//!
//! A run on new disks shows which states a crash may leave, and that they can be used. It does not
//! show the effect of a second crash: for example, one crash leaves records in the log, and the
//! next mount adds new records to them.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::explore::Worker;
use crate::model::Sectors;
use crate::run::Run;
use crate::{
    Budget, Config, CrashError, Failure, Outcome, Point, RunWorkload, Scheme, explore_run,
    judge_path, record, sample,
};

/// The contents of the disks.
pub type Images = Arc<Vec<Vec<u8>>>;

/// The state with which a cycle ends.
#[derive(Clone, Debug)]
pub struct CycleEnd {
    /// The contents of the disks, for [`Config::disks`](crate::Config::disks).
    pub disks: Images,
    /// The calls and writes that were under way, and which of the writes are on the disks.
    pub picture: String,
}

/// The number of states of a frontier from which the last state of a cycle is chosen.
const CHOICE: usize = 64;

/// The crash cycles of a run, one after another.
#[derive(Clone, Debug)]
pub struct CrashCycles {
    seed: u64,
    /// The number of cycles. It falls when a cycle ends with disks that cannot be used again.
    cycles: u32,
    begun: u32,
    disks: Option<Images>,
    before: Vec<String>,
}

impl CrashCycles {
    /// `cycles` crash cycles of the run with this seed. The first begins with `disks`.
    pub fn new(cycles: u32, seed: u64, disks: Option<Images>) -> CrashCycles {
        CrashCycles { seed, cycles, begun: 0, disks, before: Vec::new() }
    }

    /// The next cycle: its seed, and its disks at the start. `None` after the last one, and after
    /// one that ended with disks that cannot be used again.
    pub fn begin(&mut self) -> Option<(u64, Option<Images>)> {
        if self.begun == self.cycles {
            return None;
        }
        let seed = self.seed ^ u64::from(self.begun) << 40;
        self.begun += 1;
        Some((seed, self.disks.take()))
    }

    /// The number of cycles that have begun.
    pub fn begun(&self) -> u32 {
        self.begun
    }

    /// The ends of the cycles before this one, in lines.
    pub fn before(&self) -> &[String] {
        &self.before
    }

    /// Notes the outcome of this cycle, and calls `end` for its last state, unless it is the last
    /// cycle. A promise that is broken in that state is added to the outcome.
    pub fn end(
        &mut self,
        outcome: &mut Outcome,
        end: impl FnOnce() -> Result<Option<CycleEnd>, Box<Failure>>,
    ) {
        if self.begun == self.cycles {
            return;
        }
        match end() {
            Ok(Some(CycleEnd { disks, picture })) => {
                self.before.push(format!("cycle {} ended:", self.begun));
                self.before.extend(picture.lines().map(str::to_string));
                self.disks = Some(disks);
            }
            Ok(None) => self.cycles = self.begun,
            Err(failure) => {
                outcome.fail(*failure);
                self.cycles = self.begun;
            }
        }
    }
}

/// Ends a run with one of the states that a crash may leave of it, chosen by `seed`. Returns `None`
/// if that state is beyond repair, which the scheme does not exclude.
///
/// # Errors
/// The state breaks a promise.
pub fn end<S: Scheme>(
    scheme: &S,
    run: &Arc<Run>,
    seed: u64,
) -> Result<Option<CycleEnd>, Box<Failure>> {
    let sectors = Sectors::new(run.clone());
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let frontier = rng.random_range(0..sectors.ends.len());
    let budget = Budget::default();
    let mut worker = Worker::new(scheme, &sectors, seed, &budget);
    let layout = worker.go_to(frontier).expect("one of the frontiers");
    let mut states = sample::states(&sectors, &layout, (CHOICE, &[]), seed);
    // The next frontier may have all of these states too.
    let state = match states.len() {
        0 => layout.with_writes(|_| false),
        n => states.swap_remove(rng.random_range(0..n)),
    };
    worker.put(&layout, &state);
    let disks = worker.images().into_iter().map(Arc::unwrap_or_clone).collect();
    let disks = Arc::new(disks);
    let path = [Point { frontier, state }];
    let judged = judge_path(scheme, std::slice::from_ref(run), seed, &path);
    let judged = judged.expect("a state of the run");
    if !judged.verdict.broken.is_empty() {
        return Err(Box::new(judged));
    }
    let is_over = judged.verdict.beyond_repair || !judged.verdict.unusable.is_empty();
    Ok((!is_over).then_some(CycleEnd { disks, picture: judged.picture }))
}

/// Explores `cycles` crash cycles. `work` makes the workload of each cycle from its seed. The
/// cycles end early if disks cannot be used again.
///
/// # Errors
/// A run cannot be made. Broken promises are part of the outcomes.
pub fn explore<S: Scheme, W: RunWorkload>(
    scheme: &S,
    work: impl Fn(u64) -> W,
    config: &Config,
    budget: &Budget,
    cycles: u32,
) -> Result<Vec<Outcome>, CrashError> {
    let mut outcomes = Vec::new();
    let mut cycles = CrashCycles::new(cycles, config.seed, config.disks.clone());
    while let Some((seed, disks)) = cycles.begin() {
        let config = Config { seed, disks, ..config.clone() };
        let run = Arc::new(record(scheme, &work(seed), &config)?);
        let mut outcome = explore_run(scheme, &run, seed, budget);
        cycles.end(&mut outcome, || end(scheme, &run, seed));
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
