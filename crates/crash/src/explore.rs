//! Exploring a run: every frontier, on all cores, always with the same result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::disk::Scratch;
use crate::expect::Expect;
use crate::follow::Following;
use crate::judge::{Depth, Judge, Verdict};
use crate::model::{Choice, Cursor, Layout, Sectors};
use crate::record::Run;
use crate::rules::Rule;
use crate::{Config, CrashError, Scheme, Workload, explain, record, sample};

/// How much is explored.
#[derive(Clone, Debug)]
pub struct Budget {
    /// States at most; they are shared out among the frontiers.
    pub states: usize,
    /// Names and contents are judged in one of so many states; 0: in none.
    pub tree_every: usize,
    /// Use afterwards is judged in one of so many states; 0: in none.
    pub usable_every: usize,
    /// How many recoveries in a row are cut off.
    pub recovery_depth: u32,
    /// Recovery is cut off in one of so many states; 0: in none.
    pub recovery_every: usize,
    /// States judged of each recovery that is cut off.
    pub recovery_states: usize,
    /// Only states that follow one of these; none: all states.
    pub rules: Vec<Rule>,
    /// Threads; 0: as many as the machine has processors.
    pub threads: usize,
    /// Whether a state is not looked at anew that differs from one before it only where nobody looked.
    pub recall: bool,
    /// Whether to judge no more states after the first in which a promise is broken.
    pub stop: bool,
    /// Counts the states that have been judged, for whoever wants to know meanwhile.
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
    /// Which frontier.
    pub frontier: usize,
    /// The option for each choice of it.
    pub state: Vec<u8>,
}

/// A state in which something is wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The state; then, where recoveries were cut off, the state that each of them left.
    pub path: Vec<Point>,
    /// What is wrong.
    pub verdict: Verdict,
    /// What was under way, and what of it was on the disks.
    pub picture: String,
    /// The recoveries that were cut off.
    pub recoveries: Vec<Arc<Run>>,
}

/// How often something was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// States judged.
    pub states: u64,
    /// A check finds what could lose or mix up data.
    pub unsound: u64,
    /// A check finds anything beyond counts.
    pub needs_check: u64,
    /// A repair leaves something.
    pub beyond_repair: u64,
    /// Something is found that a repair has to guess about: a block that two files have, no root.
    pub unresolvable: u64,
    /// States whose names and contents were judged.
    pub trees: u64,
    /// A change of names that had returned is not there: durable or not.
    pub lost_returned: u64,
    /// The most such changes in one state.
    pub lost_returned_most: u64,
    /// Something durable is not there.
    pub lost_durable: u64,
    /// Something is neither as before nor as after an operation.
    pub not_atomic: u64,
    /// Contents that were never written there.
    pub stale: u64,
    /// States whose use afterwards was judged.
    pub used: u64,
    /// Could not be used afterwards.
    pub unusable: u64,
    /// A promise of the scheme is broken, after recovery was cut off included.
    pub promise_broken: u64,
    /// States judged in which a recovery was cut off; they are counted nowhere else but above.
    pub in_recovery: u64,
}

impl Counts {
    /// Adds what was found elsewhere.
    pub fn add(&mut self, other: &Counts) {
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

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counts over all states judged.
    pub counts: Counts,
    /// States that there are, about: frontiers that share states are counted once.
    pub possible: f64,
    /// Frontiers: times between which nothing becomes durable.
    pub frontiers: usize,
    /// Frontiers all of whose states were judged.
    pub exhausted: usize,
    /// States in which a promise is broken, in order; the first of each frontier.
    pub failures: Vec<Failure>,
    /// States that break no promise and in which something is wrong, the first few.
    pub notable: Vec<Failure>,
}

impl Outcome {
    /// Adds a state in which a promise is broken, found by itself.
    pub fn fail(&mut self, failure: Failure) {
        self.counts.states += 1;
        self.counts.promise_broken += 1;
        self.failures.push(failure);
    }

    /// Nothing if every promise was kept; else panics with the first that was broken.
    ///
    /// # Panics
    /// A promise is broken.
    pub fn expect_kept(&self, what: &str) {
        let Some(first) = self.failures.first() else { return };
        let broken = first.verdict.broken.join("\n  ");
        let Counts { states, promise_broken, .. } = self.counts;
        panic!(
            "{what}: {promise_broken} of {states} states break a promise; the first:\n  {broken}\n{}",
            first.picture
        );
    }
}

/// How many failures of a frontier are kept.
const FAILURES_KEPT: usize = 3;
/// How many states are kept to show what may happen without a promise being broken.
const NOTABLE_KEPT: usize = 50;

/// Records `workload` under `scheme` and explores what a crash may leave of it.
///
/// # Errors
/// The run cannot be made. That promises are broken is in the outcome.
pub fn explore<S: Scheme, W: Workload>(
    scheme: &S,
    workload: &W,
    config: &Config,
    budget: &Budget,
) -> Result<Outcome, CrashError> {
    let run = record(scheme, workload, config)?;
    Ok(explore_run(scheme, &Arc::new(run), config.seed, budget))
}

/// Explores what a crash may leave of a recorded run.
pub fn explore_run<S: Scheme>(scheme: &S, run: &Arc<Run>, seed: u64, budget: &Budget) -> Outcome {
    let sectors = Sectors::new(run.clone());
    let possible = possible(&sectors);
    let shares = share_out(&possible, budget.states);
    let (next, last) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let results: Mutex<Vec<(usize, Part)>> = Mutex::new(Vec::new());
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
                    results.lock().expect("nobody panics with it").push((frontier, part));
                }
            });
        }
    });
    let mut parts = results.into_inner().expect("nobody panicked with it");
    parts.sort_by_key(|p| p.0);
    // What others did meanwhile does not count.
    parts.retain(|(frontier, _)| *frontier <= last.load(Ordering::Relaxed));
    let mut outcome = Outcome {
        counts: Counts::default(),
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

/// How many states each frontier has.
fn possible(sectors: &Sectors) -> Vec<f64> {
    let mut pair = Pair::new(sectors);
    (0..sectors.ends.len()).map(|f| pair.possible(sectors, f)).collect()
}

/// Shares states out: every frontier gets the same, those that have fewer leave theirs to the others.
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
    /// What a crash at the frontier ahead may leave, if it was worked out.
    next: Option<(usize, Layout)>,
}

impl Pair {
    pub fn new(sectors: &Sectors) -> Pair {
        Pair { here: Cursor::new(sectors), ahead: Cursor::new(sectors), next: None }
    }

    /// The layout of a frontier; they must be asked for in ascending order.
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

    /// How many states a frontier has that the next one does not; they must be asked for in ascending order.
    fn possible(&mut self, sectors: &Sectors, frontier: usize) -> f64 {
        self.here.advance(sectors, sectors.ends[frontier]);
        match self.here.is_beyond_count(sectors) {
            true => f64::MAX,
            false => self.layout(sectors, frontier).possible(),
        }
    }
}

/// What a frontier gave.
#[derive(Default)]
struct Part {
    counts: Counts,
    failures: Vec<Failure>,
    notable: Vec<Failure>,
}

/// Judges frontiers, in ascending order, on disks of its own.
pub(crate) struct Worker<'s, S> {
    scheme: &'s S,
    sectors: &'s Sectors,
    seed: u64,
    budget: &'s Budget,
    pair: Pair,
    judge: Judge<'s, S>,
    /// What may be found, of the run that is explored.
    following: Option<Following<'s>>,
    /// What is on the disks at each place.
    on_disk: Vec<u32>,
}

/// How deep in recoveries a state is, and what it is measured by.
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
    fn outer(&mut self, frontier: usize, share: usize) -> Part {
        if share == 0 {
            return Part::default();
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

    fn frontier(&mut self, frontier: usize, share: usize, level: Level<'_>) -> Part {
        let mut part = Part::default();
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
                // A repair that was cut off may have left anything that another one mends.
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

    /// Crashes the recovery of what is on the disks.
    fn recoveries(&mut self, level: Level<'_>, point: Point, part: &mut Part) {
        let images = self.images();
        let run = &self.sectors.run;
        // That it cannot be recovered at all is in the state's own verdict.
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

    /// What is on the disks.
    pub fn images(&self) -> Vec<Arc<Vec<u8>>> {
        self.judge.disks.iter().map(|d| Arc::new(d.to_vec())).collect()
    }

    /// Judges what is on the disks. A panic in the file system is a finding too.
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

    /// Goes to a frontier that was not passed yet, and puts what is durable there on the disks.
    pub fn go_to(&mut self, frontier: usize) -> Option<Layout> {
        self.sectors.ends.get(frontier)?;
        let layout = self.pair.layout(self.sectors, frontier);
        self.enter(&layout);
        Some(layout)
    }

    /// Puts what is durable on the disks.
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
            // Only what recovers to the same image is told apart by it.
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
        self.judge.disks[disk].put(sector, self.sectors.content(self.on_disk[place]));
    }

    fn rewrite(&mut self) {
        (0..self.on_disk.len()).for_each(|place| self.write(place));
    }
}

fn new_judge<'s, S: Scheme>(scheme: &'s S, sectors: &'s Sectors, budget: &Budget) -> Judge<'s, S> {
    let run = &sectors.run;
    let disk = |d: &crate::record::DiskRun| {
        let disk = Scratch::new(d.base.clone());
        disk.set_volatile(run.model.is_volatile());
        disk
    };
    Judge::new(scheme, run.disks.iter().map(disk).collect(), run, budget.recall)
}
