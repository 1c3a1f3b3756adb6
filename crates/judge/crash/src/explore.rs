//! Exploring a run: every frontier, on all cores, always with the same result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::disk::{SECTOR, Scratch};
use crate::expect::Expect;
use crate::follow::Following;
use crate::judge::{Depth, Judge};
use crate::model::{Choice, Cursor, Layout, Sectors};
use crate::rules::StateRule;
use crate::run::Run;
use crate::verdict::Verdict;
use crate::{Config, CrashError, RunWorkload, Scheme, explain, record, sample};

/// The extent of an exploration.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The most states. They are shared out among the frontiers.
    pub states: usize,
    /// Names and contents are judged in one of this many states; 0 means in none.
    pub tree_every: usize,
    /// Use after the crash is judged in one of this many states; 0 means in none.
    pub usable_every: usize,
    /// The depth of nested crashes: the number of recoveries in a row that are interrupted.
    pub recovery_depth: u32,
    /// A crash during recovery is tried in one of this many states; 0 means in none.
    pub recovery_every: usize,
    /// The states that are judged of each interrupted recovery.
    pub recovery_states: usize,
    /// The rules, one of which a state must follow. Without rules all states are allowed.
    pub rules: Vec<StateRule>,
    /// The number of threads; 0 means one for each processor.
    pub threads: usize,
    /// Whether a state gets the verdict on an earlier one if they differ only in sectors that were
    /// not read.
    pub recall: bool,
    /// Whether to end after the first state that breaks a promise.
    pub stop: bool,
    /// The number of states judged so far, for progress.
    pub judged: Arc<AtomicU64>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            states: 5000,
            tree_every: 1,
            usable_every: 50,
            recovery_depth: 1,
            recovery_every: 200,
            recovery_states: 20,
            rules: Vec::new(),
            threads: 0,
            recall: true,
            stop: false,
            judged: Arc::default(),
        }
    }
}

/// A state of the disks of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The number of the frontier.
    pub frontier: usize,
    /// The chosen option for each choice of the frontier.
    pub state: Vec<u8>,
}

/// A state with a fault.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The state, followed by the states that each interrupted recovery left.
    pub path: Vec<Point>,
    /// The faults.
    pub verdict: Verdict,
    /// The calls and writes that were under way, and which of the writes are on the disks.
    pub picture: String,
    /// The interrupted recoveries.
    pub recoveries: Vec<Arc<Run>>,
}

/// The numbers of states with each kind of finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCounts {
    /// The number of states judged.
    pub states: u64,
    /// The number of states in which a check finds damage that could lose or mix up data.
    pub unsound: u64,
    /// The number of states in which a check finds anything other than wrong counts.
    pub needs_check: u64,
    /// The number of states in which a repair leaves damage.
    pub beyond_repair: u64,
    /// The number of states with damage whose repair must guess: a block of two files, no root.
    pub unresolvable: u64,
    /// The number of states whose names and contents were judged.
    pub trees: u64,
    /// Changes of names that had returned and are not there, durable or not.
    pub lost_returned: u64,
    /// The most such changes in one state.
    pub lost_returned_most: u64,
    /// The number of states that lack something durable.
    pub lost_durable: u64,
    /// The number of states with something that is neither as before nor as after an operation.
    pub not_atomic: u64,
    /// The number of states with contents that were never written there.
    pub stale: u64,
    /// The number of states in which use after the crash was judged.
    pub used: u64,
    /// The number of states that could not be used.
    pub unusable: u64,
    /// The number of states that break a promise of the scheme, including states after an
    /// interrupted recovery.
    pub promise_broken: u64,
    /// States after interrupted recoveries that were judged. They count nowhere else, except in
    /// `promise_broken`.
    pub in_recovery: u64,
}

impl StateCounts {
    /// Adds the counts of another exploration.
    pub fn add(&mut self, other: &StateCounts) {
        self.states += other.states;
        self.unsound += other.unsound;
        self.needs_check += other.needs_check;
        self.beyond_repair += other.beyond_repair;
        self.unresolvable += other.unresolvable;
        self.trees += other.trees;
        self.lost_returned += other.lost_returned;
        self.lost_returned_most = self.lost_returned_most.max(other.lost_returned_most);
        self.lost_durable += other.lost_durable;
        self.not_atomic += other.not_atomic;
        self.stale += other.stale;
        self.used += other.used;
        self.unusable += other.unusable;
        self.promise_broken += other.promise_broken;
        self.in_recovery += other.in_recovery;
    }

    fn count(&mut self, verdict: &Verdict, depth: Depth) {
        self.states += 1;
        self.trees += u64::from(depth.tree);
        self.used += u64::from(depth.usable);
        self.unsound += u64::from(verdict.unsound);
        self.needs_check += u64::from(verdict.needs_check);
        self.beyond_repair += u64::from(verdict.beyond_repair);
        self.unresolvable += u64::from(verdict.unresolvable);
        self.lost_returned += u64::from(verdict.lost_returned > 0);
        self.lost_returned_most = self.lost_returned_most.max(verdict.lost_returned);
        self.lost_durable += u64::from(!verdict.lost_durable.is_empty());
        self.not_atomic += u64::from(!verdict.not_atomic.is_empty());
        self.stale += u64::from(!verdict.stale.is_empty());
        self.unusable += u64::from(!verdict.unusable.is_empty());
        self.promise_broken += u64::from(!verdict.broken.is_empty());
    }
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counts over all states judged.
    pub counts: StateCounts,
    /// The approximate number of possible states. States that several frontiers share count once.
    pub possible: f64,
    /// The number of frontiers: periods in which no write becomes durable.
    pub frontiers: usize,
    /// Frontiers all of whose states were judged.
    pub exhausted: usize,
    /// States that break a promise, in order; only the first of each frontier.
    pub failures: Vec<Failure>,
    /// The first few states with a fault that breaks no promise.
    pub notable: Vec<Failure>,
}

impl Outcome {
    /// Adds a state that breaks a promise, found outside of an exploration.
    pub fn fail(&mut self, failure: Failure) {
        self.counts.states += 1;
        self.counts.promise_broken += 1;
        self.failures.push(failure);
    }

    /// Returns if every promise was kept; otherwise panics with the first broken one.
    ///
    /// # Panics
    /// A promise is broken.
    pub fn expect_kept(&self, what: &str) {
        let Some(first) = self.failures.first() else { return };
        let broken = first.verdict.broken.join("\n  ");
        let StateCounts { states, promise_broken, .. } = self.counts;
        panic!(
            "{what}: {promise_broken} of {states} states break a promise; the first:\n  {broken}\n{}",
            first.picture
        );
    }
}

/// The number of failures of a frontier that are kept.
const FAILURES_KEPT: usize = 3;
/// The number of states that are kept as examples of faults which break no promise.
const NOTABLE_KEPT: usize = 50;

/// Records `workload` under `scheme`, and explores the states that a crash may leave of it.
///
/// # Errors
/// The run cannot be made. Broken promises are part of the outcome.
pub fn explore<S: Scheme, W: RunWorkload>(
    scheme: &S,
    workload: &W,
    config: &Config,
    budget: &Budget,
) -> Result<Outcome, CrashError> {
    let run = record(scheme, workload, config)?;
    Ok(explore_run(scheme, &Arc::new(run), config.seed, budget))
}

/// Explores the states that a crash may leave of a recorded run.
pub fn explore_run<S: Scheme>(scheme: &S, run: &Arc<Run>, seed: u64, budget: &Budget) -> Outcome {
    let sectors = Sectors::new(run.clone());
    let possible = possible(&sectors);
    let shares = share_out(&possible, budget.states);
    let (next, last) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let results: Mutex<Vec<(usize, FrontierResult)>> = Mutex::new(Vec::new());
    let threads = match budget.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut worker = Worker::new(scheme, &sectors, seed, budget);
                loop {
                    let frontier = next.fetch_add(1, Ordering::Relaxed);
                    if frontier >= shares.len() || frontier > last.load(Ordering::Relaxed) {
                        break;
                    }
                    let part = worker.outer(frontier, shares[frontier]);
                    if budget.stop && part.counts.promise_broken > 0 {
                        last.fetch_min(frontier, Ordering::Relaxed);
                    }
                    results.lock().expect("no thread panics with the lock").push((frontier, part));
                }
            });
        }
    });
    let mut parts = results.into_inner().expect("no thread has panicked with the lock");
    parts.sort_by_key(|p| p.0);
    // Frontiers behind the last one do not count, whatever the threads have found there.
    parts.retain(|(frontier, _)| *frontier <= last.load(Ordering::Relaxed));
    let mut outcome = Outcome {
        counts: StateCounts::default(),
        possible: possible.iter().sum(),
        frontiers: possible.len(),
        exhausted: 0,
        failures: Vec::new(),
        notable: Vec::new(),
    };
    for (frontier, part) in parts {
        outcome.exhausted += usize::from(part.counts.states as f64 >= possible[frontier]);
        outcome.counts.add(&part.counts);
        outcome.failures.extend(part.failures);
        outcome.notable.extend(part.notable);
    }
    outcome.notable.truncate(NOTABLE_KEPT);
    outcome
}

/// The number of states of each frontier.
fn possible(sectors: &Sectors) -> Vec<f64> {
    let mut pair = Pair::new(sectors);
    (0..sectors.ends.len()).map(|f| pair.possible(sectors, f)).collect()
}

/// Shares states out: every frontier gets the same number, and frontiers that have fewer leave the
/// rest to the others.
fn share_out(possible: &[f64], states: usize) -> Vec<usize> {
    let mut shares = vec![0usize; possible.len()];
    let mut left = states;
    loop {
        let open: Vec<usize> =
            (0..possible.len()).filter(|i| (shares[*i] as f64) < possible[*i]).collect();
        if open.is_empty() || left == 0 {
            return shares;
        }
        let each = (left / open.len()).max(1);
        for i in open {
            let more = (possible[i] - shares[i] as f64).min(each as f64) as usize;
            let more = more.max(1).min(left);
            shares[i] += more;
            left -= more;
        }
    }
}

/// Two cursors, one frontier apart.
pub(crate) struct Pair {
    pub here: Cursor,
    ahead: Cursor,
    /// The frontier of `ahead` and its layout, if that was computed already.
    next: Option<(usize, Layout)>,
}

impl Pair {
    pub fn new(sectors: &Sectors) -> Pair {
        Pair { here: Cursor::new(sectors), ahead: Cursor::new(sectors), next: None }
    }

    /// The layout of a frontier. Callers ask in ascending order.
    pub fn layout(&mut self, sectors: &Sectors, frontier: usize) -> Layout {
        self.here.advance(sectors, sectors.ends[frontier]);
        let known = self.next.take().filter(|(of, _)| *of == frontier);
        let mut layout = known.map_or_else(|| self.here.layout(sectors), |(_, layout)| layout);
        match sectors.ends.get(frontier + 1) {
            Some(end) => {
                self.ahead.advance(sectors, *end);
                let next = self.ahead.layout(sectors);
                layout.note_later(Some((&self.ahead, &next)));
                self.next = Some((frontier + 1, next));
            }
            None => layout.note_later(None),
        }
        layout
    }

    /// The number of states of a frontier that the next one does not have. Callers ask in ascending
    /// order.
    fn possible(&mut self, sectors: &Sectors, frontier: usize) -> f64 {
        self.here.advance(sectors, sectors.ends[frontier]);
        match self.here.is_beyond_count(sectors) {
            true => f64::MAX,
            false => self.layout(sectors, frontier).possible(),
        }
    }
}

/// The result of a frontier.
#[derive(Default)]
struct FrontierResult {
    counts: StateCounts,
    failures: Vec<Failure>,
    notable: Vec<Failure>,
}

/// Judges frontiers, in ascending order, on its own disks.
pub(crate) struct Worker<'s, S> {
    scheme: &'s S,
    sectors: &'s Sectors,
    seed: u64,
    budget: &'s Budget,
    pair: Pair,
    judge: Judge<'s, S>,
    /// The states that may be found, for the run that is explored.
    following: Option<Following<'s>>,
    /// The content on the disks at each place.
    on_disk: Vec<u32>,
}

/// The depth of nested crashes of a state, and the states that may be found.
#[derive(Clone, Copy)]
struct Level<'e> {
    depth: u32,
    expect: &'e Expect,
}

impl<'s, S: Scheme> Worker<'s, S> {
    pub fn new(scheme: &'s S, sectors: &'s Sectors, seed: u64, budget: &'s Budget) -> Self {
        let pair = Pair::new(sectors);
        let on_disk = pair.here.durable.clone();
        let judge = new_judge(scheme, sectors, budget);
        Worker { scheme, sectors, seed, budget, pair, judge, following: None, on_disk }
    }

    /// Judges states of a frontier of a run.
    fn outer(&mut self, frontier: usize, share: usize) -> FrontierResult {
        if share == 0 {
            return FrontierResult::default();
        }
        let at = self.sectors.judged[frontier];
        let run = &self.sectors.run;
        let promise = self.scheme.promise().under(run.model);
        let begin = || Following::new(&run.history, &promise);
        let mut following = self.following.take().unwrap_or_else(begin);
        let level = Level { depth: 0, expect: following.at(at) };
        let mut part = self.frontier(frontier, share, level);
        self.following = Some(following);
        for failure in part.failures.iter_mut().chain(&mut part.notable) {
            failure.picture.insert_str(0, &explain::calls(self.sectors, at));
        }
        part
    }

    fn frontier(&mut self, frontier: usize, share: usize, level: Level<'_>) -> FrontierResult {
        let mut part = FrontierResult::default();
        if share == 0 {
            return part;
        }
        let layout = self.pair.layout(self.sectors, frontier);
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ frontier as u64;
        let wanted = (share, &self.budget.rules[..]);
        let states = sample::states(self.sectors, &layout, wanted, seed);
        self.enter(&layout);
        for (i, state) in states.into_iter().enumerate() {
            let every = |n: usize| n > 0 && (i + frontier).is_multiple_of(n);
            let depth = Depth {
                // An interrupted repair may have left any damage that another repair removes.
                structure: level.depth == 0 || self.scheme.promise().no_check,
                tree: every(self.budget.tree_every),
                usable: every(self.budget.usable_every),
            };
            self.put(&layout, &state);
            if self.budget.stop && part.counts.promise_broken > 0 {
                break;
            }
            let verdict = self.judge(level.expect, depth);
            part.counts.count(&verdict, depth);
            self.budget.judged.fetch_add(u64::from(level.depth == 0), Ordering::Relaxed);
            let recovery = level.depth < self.budget.recovery_depth
                && every(self.budget.recovery_every)
                && verdict.broken.is_empty();
            if recovery {
                self.recoveries(level, Point { frontier, state: state.clone() }, &mut part);
            }
            let is_broken = !verdict.broken.is_empty();
            let is_wrong = verdict.unsound || !verdict.lost_durable.is_empty();
            let list = if is_broken { &mut part.failures } else { &mut part.notable };
            if (is_broken || is_wrong) && list.len() < FAILURES_KEPT {
                let picture = explain::picture(self.sectors, &layout, &state);
                let (path, recoveries) = (vec![Point { frontier, state }], Vec::new());
                list.push(Failure { path, verdict, picture, recoveries });
            }
        }
        part
    }

    /// Crashes the recovery of the present state of the disks.
    fn recoveries(&mut self, level: Level<'_>, point: Point, part: &mut FrontierResult) {
        let images = self.images();
        let run = &self.sectors.run;
        // If the recovery fails, the state's own verdict says so.
        let Ok(run) = self.scheme.record_recovery(&images, run, self.seed) else { return };
        let run = Arc::new(run);
        let sectors = Sectors::new(run.clone());
        let shares = share_out(&possible(&sectors), self.budget.recovery_states);
        let mut worker = Worker::new(self.scheme, &sectors, self.seed, self.budget);
        for (frontier, share) in shares.into_iter().enumerate() {
            let level = Level { depth: level.depth + 1, ..level };
            let inner = worker.frontier(frontier, share, level);
            part.counts.in_recovery += inner.counts.states + inner.counts.in_recovery;
            part.counts.promise_broken += inner.counts.promise_broken;
            for mut failure in inner.failures {
                failure.path.insert(0, point.clone());
                failure.recoveries.insert(0, run.clone());
                failure.picture.insert_str(0, "  and then, during recovery:\n");
                if part.failures.len() < FAILURES_KEPT {
                    part.failures.push(failure);
                }
            }
        }
    }

    /// The contents of the disks.
    pub fn images(&self) -> Vec<Arc<Vec<u8>>> {
        self.judge.disks.iter().map(|d| Arc::new(d.to_vec())).collect()
    }

    /// Judges the present state of the disks. A panic in the file system is a finding too.
    pub fn judge(&mut self, expect: &Expect, depth: Depth) -> Verdict {
        match catch_unwind(AssertUnwindSafe(|| self.judge.judge(expect, depth))) {
            Ok(verdict) => verdict,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                    .unwrap_or_default();
                let what = format!("panic: {text}");
                self.judge = new_judge(self.scheme, self.sectors, self.budget);
                self.rewrite();
                Verdict { unusable: vec![what.clone()], broken: vec![what], ..Verdict::default() }
            }
        }
    }

    /// Advances to a frontier, and puts its durable contents on the disks.
    pub fn go_to(&mut self, frontier: usize) -> Option<Layout> {
        self.sectors.ends.get(frontier)?;
        let layout = self.pair.layout(self.sectors, frontier);
        self.enter(&layout);
        Some(layout)
    }

    /// Puts the durable contents on the disks.
    fn enter(&mut self, layout: &Layout) {
        for place in 0..self.on_disk.len() {
            self.set(place, self.pair.here.durable[place]);
        }
        let place = |choice: &Choice| self.sectors.places[choice.place as usize];
        self.judge.enter(layout.choices.iter().map(place).collect());
    }

    pub fn put(&mut self, layout: &Layout, state: &[u8]) {
        let mut image = 0u128;
        for (choice, option) in layout.choices.iter().zip(state) {
            let content = choice.options[usize::from(*option)];
            self.set(choice.place as usize, content);
            // The sum is needed only if a recovery may turn several states into one image.
            let counts = *option > 0 && self.scheme.recovers();
            if counts && self.sectors.places[choice.place as usize].0 == 0 {
                let share = |content| self.sectors.share(choice.place, content);
                image = image.wrapping_add(share(content)).wrapping_sub(share(choice.options[0]));
            }
        }
        self.judge.image = image;
        self.judge.state.clear();
        self.judge.state.extend_from_slice(state);
    }

    fn set(&mut self, place: usize, content: u32) {
        if self.on_disk[place] != content {
            self.on_disk[place] = content;
            self.write(place);
        }
    }

    fn write(&self, place: usize) {
        let (disk, sector) = self.sectors.places[place];
        let content = self.sectors.content(self.on_disk[place]);
        for (sector, data) in (sector..).zip(content.chunks(SECTOR)) {
            self.judge.disks[disk].put(sector, data);
        }
    }

    fn rewrite(&mut self) {
        (0..self.on_disk.len()).for_each(|place| self.write(place));
    }
}

fn new_judge<'s, S: Scheme>(scheme: &'s S, sectors: &'s Sectors, budget: &Budget) -> Judge<'s, S> {
    let run = &sectors.run;
    let disk = |d: &crate::run::DiskRun| {
        let disk = Scratch::new(d.base.whole());
        disk.set_volatile(run.model.is_volatile());
        disk
    };
    Judge::new(scheme, run.disks.iter().map(disk).collect(), run, budget.recall)
}
