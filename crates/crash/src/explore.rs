//! Exploring a run: every frontier, on all cores, always with the same result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::disk::Scratch;
use crate::expect::Expect;
use crate::explain::picture;
use crate::judge::{Depth, Judge, Verdict};
use crate::model::{Cursor, Layout, Sectors};
use crate::record::Run;
use crate::{Config, CrashError, Scheme, Script, record, sample};

/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// States at most; they are shared out among the frontiers.
    pub states: usize,
    /// Names and contents are judged in one of so many states; 0: in none.
    pub tree_every: usize,
    /// Use afterwards is judged in one of so many states; 0: in none.
    pub usable_every: usize,
    /// Threads; 0: as many as the machine has processors.
    pub threads: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { states: 5000, tree_every: 1, usable_every: 50, threads: 0 }
    }
}

/// A state in which something is wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which frontier.
    pub frontier: usize,
    /// The option for each choice of it.
    pub state: Vec<u8>,
    /// What is wrong.
    pub verdict: Verdict,
    /// What was under way, and what of it was on the disks.
    pub picture: String,
}

/// How often something was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// States judged.
    pub states: u64,
    /// A check finds what could lose or mix up data.
    pub unsound: u64,
    /// A check finds anything beyond counts.
    pub needs_check: u64,
    /// A repair leaves something.
    pub beyond_repair: u64,
    /// States whose names and contents were judged.
    pub trees: u64,
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
    /// A promise of the scheme is broken.
    pub promise_broken: u64,
}

impl Counts {
    /// Adds what was found elsewhere.
    pub fn add(&mut self, other: &Counts) {
        self.states += other.states;
        self.unsound += other.unsound;
        self.needs_check += other.needs_check;
        self.beyond_repair += other.beyond_repair;
        self.trees += other.trees;
        self.lost_durable += other.lost_durable;
        self.not_atomic += other.not_atomic;
        self.stale += other.stale;
        self.used += other.used;
        self.unusable += other.unusable;
        self.promise_broken += other.promise_broken;
    }

    fn count(&mut self, verdict: &Verdict, depth: Depth) {
        self.states += 1;
        self.trees += u64::from(depth.tree);
        self.used += u64::from(depth.usable);
        self.unsound += u64::from(verdict.unsound);
        self.needs_check += u64::from(verdict.needs_check);
        self.beyond_repair += u64::from(verdict.beyond_repair);
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

/// Records `script` under `scheme` and explores what a crash may leave of it.
///
/// # Errors
/// The run cannot be made. That promises are broken is in the outcome.
pub fn explore<S: Scheme>(
    scheme: &S,
    script: &Script,
    config: &Config,
    budget: &Budget,
) -> Result<Outcome, CrashError> {
    let run = record(scheme, script, config)?;
    Ok(explore_run(scheme, &Arc::new(run), config.seed, budget))
}

/// Explores what a crash may leave of a recorded run.
pub fn explore_run<S: Scheme>(scheme: &S, run: &Arc<Run>, seed: u64, budget: &Budget) -> Outcome {
    let sectors = Sectors::new(run.clone());
    let possible = possible(&sectors);
    let shares = share_out(&possible, budget.states);
    let next = AtomicUsize::new(0);
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
                    if frontier >= shares.len() {
                        break;
                    }
                    let part = worker.frontier(frontier, shares[frontier]);
                    results.lock().expect("nobody panics with it").push((frontier, part));
                }
            });
        }
    });
    let mut parts = results.into_inner().expect("nobody panicked with it");
    parts.sort_by_key(|p| p.0);
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
    (0..sectors.ends.len()).map(|f| pair.layout(sectors, f).possible()).collect()
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
struct Pair {
    here: Cursor,
    ahead: Cursor,
}

impl Pair {
    fn new(sectors: &Sectors) -> Pair {
        Pair { here: Cursor::new(sectors), ahead: Cursor::new(sectors) }
    }

    /// The layout of a frontier; they must be asked for in ascending order.
    fn layout(&mut self, sectors: &Sectors, frontier: usize) -> Layout {
        self.here.advance(sectors, sectors.ends[frontier]);
        let mut layout = self.here.layout(sectors);
        match sectors.ends.get(frontier + 1) {
            Some(end) => {
                self.ahead.advance(sectors, *end);
                let next = self.ahead.layout(sectors);
                layout.note_later(Some((&self.ahead, &next)));
            }
            None => layout.note_later(None),
        }
        layout
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
struct Worker<'s, S> {
    scheme: &'s S,
    sectors: &'s Sectors,
    seed: u64,
    budget: &'s Budget,
    pair: Pair,
    judge: Judge<'s, S>,
    /// What is on the disks at each place.
    on_disk: Vec<u32>,
}

impl<'s, S: Scheme> Worker<'s, S> {
    fn new(scheme: &'s S, sectors: &'s Sectors, seed: u64, budget: &'s Budget) -> Self {
        let pair = Pair::new(sectors);
        let on_disk = pair.here.durable.clone();
        let judge = new_judge(scheme, sectors);
        Worker { scheme, sectors, seed, budget, pair, judge, on_disk }
    }

    fn frontier(&mut self, frontier: usize, share: usize) -> Part {
        let layout = self.pair.layout(self.sectors, frontier);
        let mut part = Part::default();
        if share == 0 {
            return part;
        }
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ frontier as u64;
        let states = sample::states(self.sectors, &layout, share, seed);
        let at = self.sectors.judged[frontier];
        let run = &self.sectors.run;
        let expect = Expect::new(&run.history, &self.scheme.promise().under(run.model), at);
        self.settle();
        for (i, state) in states.into_iter().enumerate() {
            let every = |n: usize| n > 0 && (i + frontier).is_multiple_of(n);
            let depth = Depth {
                tree: every(self.budget.tree_every),
                usable: every(self.budget.usable_every),
            };
            self.put(&layout, &state);
            let verdict = self.judge(&expect, depth);
            part.counts.count(&verdict, depth);
            let is_broken = !verdict.broken.is_empty();
            let is_wrong = verdict.unsound || !verdict.lost_durable.is_empty();
            let list = if is_broken { &mut part.failures } else { &mut part.notable };
            if (is_broken || is_wrong) && list.len() < FAILURES_KEPT {
                let picture = picture(self.sectors, &layout, &state, at);
                list.push(Failure { frontier, state, verdict, picture });
            }
        }
        part
    }

    /// Judges what is on the disks. A panic in the file system is a finding too.
    fn judge(&mut self, expect: &Expect, depth: Depth) -> Verdict {
        match catch_unwind(AssertUnwindSafe(|| self.judge.judge(expect, depth))) {
            Ok(verdict) => verdict,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                    .unwrap_or_default();
                let what = format!("panic: {text}");
                self.judge = new_judge(self.scheme, self.sectors);
                self.rewrite();
                Verdict { unusable: vec![what.clone()], broken: vec![what], ..Verdict::default() }
            }
        }
    }

    /// Puts what is durable on the disks.
    fn settle(&mut self) {
        for place in 0..self.on_disk.len() {
            self.set(place, self.pair.here.durable[place]);
        }
    }

    fn put(&mut self, layout: &Layout, state: &[u8]) {
        for (choice, option) in layout.choices.iter().zip(state) {
            self.set(choice.place as usize, choice.options[usize::from(*option)]);
        }
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

fn new_judge<'s, S: Scheme>(scheme: &'s S, sectors: &'s Sectors) -> Judge<'s, S> {
    let run = &sectors.run;
    let disk = |d: &crate::record::DiskRun| {
        let disk = Scratch::new(&d.base);
        disk.set_volatile(run.model.is_volatile());
        disk
    };
    Judge::new(scheme, run.disks.iter().map(disk).collect(), run)
}

/// Judges one state of a run, in full.
pub fn judge_state<S: Scheme>(
    scheme: &S,
    run: &Arc<Run>,
    frontier: usize,
    state: &[u8],
) -> Option<Verdict> {
    let sectors = Sectors::new(run.clone());
    let budget = Budget::default();
    let mut worker = Worker::new(scheme, &sectors, 0, &budget);
    if frontier >= sectors.ends.len() {
        return None;
    }
    let layout = worker.pair.layout(&sectors, frontier);
    let fits = layout.choices.len() == state.len()
        && layout.choices.iter().zip(state).all(|(c, o)| usize::from(*o) < c.options.len());
    if !fits {
        return None;
    }
    let promise = scheme.promise().under(run.model);
    let expect = Expect::new(&run.history, &promise, sectors.judged[frontier]);
    worker.settle();
    worker.put(&layout, state);
    Some(worker.judge(&expect, Depth { tree: true, usable: true }))
}
