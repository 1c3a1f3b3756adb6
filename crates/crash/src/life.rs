//! One life after another: what a crash leaves of a run, for the next run to begin with.
//!
//! A run that begins on new disks shows what a crash may leave of it, and that it can be used then. It does not show
//! what comes of it when the power goes again: what one crash left in the log, say, and the next one joins to what
//! was written since.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::explore::Worker;
use crate::model::Sectors;
use crate::record::Run;
use crate::{
    Budget, Config, CrashError, Failure, Outcome, Point, Scheme, Workload, explore_run, judge_path,
    record, sample,
};

/// What is on the disks.
pub type Images = Arc<Vec<Vec<u8>>>;

/// How a life ended, and what that leaves.
#[derive(Clone, Debug)]
pub struct End {
    /// What is on the disks, for [`Config::disks`](crate::Config::disks).
    pub disks: Images,
    /// What was under way, and what of it was on the disks.
    pub picture: String,
}

/// States of a frontier among which the one is chosen that a life ends with.
const CHOICE: usize = 64;

/// The lives of a run, one after another.
#[derive(Clone, Debug)]
pub struct Lives {
    seed: u64,
    /// How many there are: fewer than were asked for once one has ended with what cannot be used again.
    lives: u32,
    begun: u32,
    disks: Option<Images>,
    before: Vec<String>,
}

impl Lives {
    /// `lives` lives of the run with this seed; `disks` is what the first one begins with.
    pub fn new(lives: u32, seed: u64, disks: Option<Images>) -> Lives {
        Lives { seed, lives, begun: 0, disks, before: Vec::new() }
    }

    /// The next life: its seed, and what it begins with. None after the last, and after one that ended with what
    /// cannot be used again.
    pub fn begin(&mut self) -> Option<(u64, Option<Images>)> {
        if self.begun == self.lives {
            return None;
        }
        let seed = self.seed ^ u64::from(self.begun) << 40;
        self.begun += 1;
        Some((seed, self.disks.take()))
    }

    /// How many have begun.
    pub fn begun(&self) -> u32 {
        self.begun
    }

    /// How the lives before this one ended, in lines.
    pub fn before(&self) -> &[String] {
        &self.before
    }

    /// This life has been explored, with this outcome: `end` ends it, unless it is the last. A promise that is broken
    /// then is added to the outcome.
    pub fn end(
        &mut self,
        outcome: &mut Outcome,
        end: impl FnOnce() -> Result<Option<End>, Box<Failure>>,
    ) {
        if self.begun == self.lives {
            return;
        }
        match end() {
            Ok(Some(End { disks, picture })) => {
                self.before.push(format!("life {} ended:", self.begun));
                self.before.extend(picture.lines().map(str::to_string));
                self.disks = Some(disks);
            }
            Ok(None) => self.lives = self.begun,
            Err(failure) => {
                outcome.fail(*failure);
                self.lives = self.begun;
            }
        }
    }
}

/// Ends a run with one of the states that a crash may leave of it, chosen by `seed`; none where that is beyond repair,
/// for a scheme that promises no better.
///
/// # Errors
/// A promise is broken in that state.
pub fn end<S: Scheme>(scheme: &S, run: &Arc<Run>, seed: u64) -> Result<Option<End>, Box<Failure>> {
    let sectors = Sectors::new(run.clone());
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let frontier = rng.random_range(0..sectors.ends.len());
    let budget = Budget::default();
    let mut worker = Worker::new(scheme, &sectors, seed, &budget);
    let layout = worker.go_to(frontier).expect("one of the frontiers");
    let mut states = sample::states(&sectors, &layout, (CHOICE, &[]), seed);
    // All of its states may be the next one's too.
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
    Ok((!is_over).then_some(End { disks, picture: judged.picture }))
}

/// Explores `lives` lives, with what `work` gives for the seed of each; fewer where one ends with what cannot be used
/// again.
///
/// # Errors
/// A run cannot be made. That promises are broken is in the outcomes.
pub fn explore<S: Scheme, W: Workload>(
    scheme: &S,
    work: impl Fn(u64) -> W,
    config: &Config,
    budget: &Budget,
    lives: u32,
) -> Result<Vec<Outcome>, CrashError> {
    let mut outcomes = Vec::new();
    let mut lives = Lives::new(lives, config.seed, config.disks.clone());
    while let Some((seed, disks)) = lives.begin() {
        let config = Config { seed, disks, ..config.clone() };
        let run = Arc::new(record(scheme, &work(seed), &config)?);
        let mut outcome = explore_run(scheme, &run, seed, budget);
        lives.end(&mut outcome, || end(scheme, &run, seed));
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
