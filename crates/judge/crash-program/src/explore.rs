//! The states of a recording, judged on several stands at once.
//!
//! Most of a state's time is waiting for the kernel (mount, recovery, unmount), so there are more
//! stands than processors. States with equal disks, or with equal names and contents after
//! recovery, are judged once for the same promises.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ordo_crash::StateRule;
use ordo_crash::space::{Choosing, CrashState, Fate, Manner, Outline, Pick, Space};
use ordo_watcher::Class;
use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::bench::{Bench, StateDisk, groups};
use crate::check::{Check, CheckAnswer};
use crate::judged::{Judged, JudgedState, RecoveryCut, StateResult};
use crate::marks::Mark;
use crate::record::{Meaning, Recorded};
use crate::recovery::Judging;
use crate::stand::Stand;

/// The exploration of a recording.
#[derive(Clone, Debug)]
pub struct Job {
    /// The most states.
    pub states: usize,
    /// The seed that fixes the choice of states.
    pub seed: u64,
    /// The size in bytes that the disk never tears: 512 or 4,096.
    pub unit: usize,
    /// The part of the states to judge: its number from 1, and the number of parts.
    pub shard: (u64, u64),
    /// Rules for the states: only states that follow one of them are judged. Empty for no
    /// restriction.
    pub rules: Vec<StateRule>,
    /// The manners of the states that are judged. Empty for all.
    pub manners: Vec<Manner>,
    /// The number of stands at once.
    pub stands: usize,
    /// The power is cut during the recovery of one in this many states; 0 means of none.
    pub recovery_every: usize,
    /// The number of recoveries in a row that are cut.
    pub recovery_depth: u32,
    /// The most states of each recovery that is cut.
    pub recovery_states: usize,
}

impl Default for Job {
    fn default() -> Job {
        Job {
            states: 1000,
            seed: 1,
            unit: 4096,
            shard: (1, 1),
            rules: Vec::new(),
            manners: Vec::new(),
            stands: 4,
            recovery_every: 200,
            recovery_depth: 1,
            recovery_states: 40,
        }
    }
}

/// The kind of failure of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wrong {
    /// A promised change is missing; without that promise the check would pass.
    LostDurable,
    /// The check fails even if nothing was promised: the contents are inconsistent.
    NotAtomic,
    /// The file system cannot be mounted, which is not the program's fault.
    Unsound,
}

/// A failing state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobFinding {
    /// The state.
    pub pick: Pick,
    /// The power cuts during its recovery, and the recovery of what they left. Mostly there are
    /// none.
    pub recoveries: Vec<RecoveryCut>,
    /// The kind of failure.
    pub wrong: Wrong,
    /// The output of the check, or the kernel's error.
    pub said: String,
    /// The number of states that fail alike.
    pub alike: u64,
}

/// The numbers of states, and of their results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobCounts {
    /// The number of states judged.
    pub states: u64,
    /// The number of states to judge, which is larger only after a stop.
    pub planned: u64,
    /// The number of recoveries that were recorded and cut.
    pub recoveries: u64,
    /// The number of states that cuts during them left, which were judged besides.
    pub in_recovery: u64,
    /// The number of possible states, up to 1e300.
    pub possible: f64,
    /// The number of distinct disks among them.
    pub images: u64,
    /// The number of distinct trees (names and contents) after recovery.
    pub trees: u64,
    /// Runs of the check.
    pub checks: u64,
    /// The number of states that could not be mounted.
    pub unsound: u64,
    /// The number of these with a torn superblock.
    pub torn_superblock: u64,
    /// The number of states in which a promised change is missing.
    pub lost_durable: u64,
    /// The number of states that are inconsistent even if nothing was promised.
    pub not_atomic: u64,
    /// The number of states in which the check reports a broken promise.
    pub promise_broken: u64,
    /// The number of states in which the check reported a broken promise once, and not when it ran
    /// again.
    #[serde(default)]
    pub flaky: u64,
    /// The number of states in which the check itself failed.
    pub check_failed: u64,
    /// The number of states in which the check did not end in time.
    pub timed_out: u64,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The results of an exploration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The numbers.
    pub counts: JobCounts,
    /// One state of each sort of failure, the most telling one first.
    pub findings: Vec<JobFinding>,
    /// The output of the check when it failed itself, once.
    pub check_output: Option<String>,
    /// The output of the check when it reported a broken promise that it did not report again,
    /// once.
    pub flaky_output: Option<String>,
    /// The reason why the check does not pass in the state after the command's end, in which
    /// nothing is lost. Then no other state was judged.
    pub control: Option<String>,
}

/// An event of an exploration under way.
#[derive(Debug)]
pub enum ExploreEvent<'a> {
    /// The number of judged states, and of all.
    Reached(u64, u64),
    /// A new sort of failure.
    Found(&'a JobFinding),
    /// The results for one pick, by which a search that is stopped can be continued.
    Judged(&'a Judged),
}

/// The number of states that are considered for each one that is judged.
const SURPLUS: usize = 4;
/// The largest number of possible states that is reported, since JSON has no infinity.
const POSSIBLE_MAX: f64 = 1e300;
/// The most sorts of failures that are kept.
const FINDINGS_MAX: usize = 40;

/// The sort of a failure: its kind, and the first words of the output, without numbers.
fn sort(wrong: Wrong, said: &str) -> (Wrong, String) {
    let first = said.lines().next().unwrap_or_default();
    let words = first.split_whitespace().filter(|w| !w.bytes().any(|b| b.is_ascii_digit()));
    (wrong, words.collect::<Vec<_>>().join(" "))
}

/// The picks of a job, with their numbers among all shards' picks.
fn picks(bench: &Bench<'_>, job: &Job) -> Vec<(u64, Pick)> {
    let groups = groups(&bench.recorded.meanings);
    let choosing = Choosing {
        states: job.states.saturating_mul(SURPLUS),
        seed: job.seed,
        from: bench.recorded.began,
        rules: &job.rules,
        groups: &groups,
        manners: &job.manners,
    };
    let (part, parts) = job.shard;
    let mut numbers = Vec::new();
    let picks = bench.space.picks_among(&choosing, |outlines| {
        let all = chosen(outlines, &bench.recorded.marks, job.states);
        let of_part = (0u64..).zip(all).filter(|(n, _)| n % parts == part - 1);
        let (of_part, outlines) = of_part.unzip();
        numbers = of_part;
        outlines
    });
    numbers.into_iter().zip(picks).collect()
}

/// Judges the states of a recording, except those of `before`, the results of an earlier search by
/// the same job. `stop` ends it early, with the results so far.
///
/// # Errors
/// There is no loop device, or the check cannot be run.
pub fn explore(
    recorded: &Recorded,
    check: &Check,
    job: &Job,
    before: Vec<Judged>,
    stop: &AtomicBool,
    tell: &(dyn Fn(ExploreEvent<'_>) + Sync),
) -> Result<JobOutcome, ProgramError> {
    let began = Instant::now();
    let bench = Bench::new(recorded, check, job.unit);
    // After a write that failed the state at the end may be wrong too, which is the finding.
    if recorded.failed == 0
        && let Some(why) = bench.control()?
    {
        return Ok(JobOutcome { control: Some(why), ..JobOutcome::default() });
    }
    let all = picks(&bench, job);
    let mut sums = Sums { bench: &bench, outcome: JobOutcome::default(), sorts: BTreeMap::new() };
    let done = sums.resume(before, &all);
    let open: Vec<&(u64, Pick)> = all.iter().filter(|(n, _)| !done.contains(n)).collect();
    search(&bench, job, &open, stop, |judged, pick| {
        tell(ExploreEvent::Judged(&judged));
        sums.add(pick, judged, tell);
        tell(ExploreEvent::Reached(sums.outcome.counts.states, all.len() as u64));
    })?;
    let mut outcome = sums.outcome;
    bench.known(|known| {
        outcome.counts.images = known.trees.len() as u64;
        let trees = known.trees.values().flatten();
        outcome.counts.trees = trees.collect::<BTreeSet<_>>().len() as u64;
    });
    outcome.counts.planned = all.len() as u64;
    outcome.counts.possible = bench.space.possible(recorded.began).min(POSSIBLE_MAX);
    outcome.counts.seconds = began.elapsed().as_secs_f64();
    outcome.findings.sort_by_key(|f| (f.wrong, f.pick.frontier, f.pick.manner));
    Ok(outcome)
}

/// Judges picks on several stands at once, and calls `done` with the results of each, in the order
/// in which they end.
fn search(
    bench: &Bench<'_>,
    job: &Job,
    open: &[&(u64, Pick)],
    stop: &AtomicBool,
    mut done: impl FnMut(Judged, Pick),
) -> Result<(), ProgramError> {
    let count = job.stands.clamp(1, 64).min(open.len().max(1));
    let stands = (0..count).map(|n| bench.stand(n as u8)).collect::<Result<Vec<_>, _>>()?;
    let quit = AtomicBool::new(false);
    let stopped = || stop.load(Ordering::Relaxed) || quit.load(Ordering::Relaxed);
    std::thread::scope(|scope| -> Result<(), ProgramError> {
        let (to_stands, states) = sync_channel(count);
        let states = Arc::new(Mutex::new(states));
        let (to_sums, verdicts) = channel();
        for stand in stands {
            let (states, to_sums) = (states.clone(), to_sums.clone());
            let stopped = &stopped;
            scope.spawn(move || work((bench, &stand, job), stopped, &states, &to_sums));
        }
        drop((states, to_sums));
        let stopped = &stopped;
        scope.spawn(move || {
            let mut numbers = open.iter();
            let picks = open.iter().map(|(_, pick)| pick);
            bench.space.each(picks, |pick, state| {
                let number = numbers.find(|(_, open)| std::ptr::eq(open, pick));
                let Some((number, _)) = number else { return false };
                !stopped() && to_stands.send((*number, pick.clone(), state)).is_ok()
            });
        });
        let mut failed = Ok(());
        for (pick, verdict) in verdicts {
            match verdict {
                Ok(Some(judged)) => done(judged, pick),
                Ok(None) => {}
                Err(error) => {
                    quit.store(true, Ordering::Relaxed);
                    failed = Err(error);
                }
            }
        }
        failed
    })
}

/// Chooses among more picks than are wanted. First come those at every moment at which a promise
/// was new, or about to be followed by the next one. Then come picks at other moments, spread over
/// the run. At each moment the most telling picks come first.
fn chosen(picks: Vec<Outline>, marks: &[Mark], wanted: usize) -> Vec<Outline> {
    let held = |pick: &Outline| marks.partition_point(|mark| mark.events <= pick.events);
    let mut moments: Vec<(usize, usize)> = picks.iter().map(|p| (p.frontier, held(p))).collect();
    moments.dedup();
    let telling: BTreeSet<usize> = (0..moments.len())
        .filter(|n| {
            let before = n.checked_sub(1).map_or(0, |n| moments[n].1);
            let is_last = moments.get(n + 1).is_none_or(|(_, next)| *next != moments[*n].1);
            moments[*n].1 > before || (is_last && moments[*n].1 > 0)
        })
        .map(|n| moments[n].0)
        .collect();
    let mut by_rank: BTreeMap<(bool, Manner), Vec<Outline>> = BTreeMap::new();
    for pick in picks {
        let other = !telling.contains(&pick.frontier);
        by_rank.entry((other, pick.manner)).or_default().push(pick);
    }
    // The states without any loss tell more about a moment than random ones.
    let order = |(other, manner): &(bool, Manner)| match manner {
        Manner::Amnesia | Manner::Everything | Manner::Rule => (0, *other, *manner),
        Manner::Chance => (2, *other, *manner),
        _ => (1, *other, *manner),
    };
    let mut ranks: Vec<_> = by_rank.into_iter().collect();
    ranks.sort_by_key(|(rank, _)| order(rank));
    let mut out: Vec<Outline> = Vec::new();
    for (_, picks) in ranks {
        let remaining = wanted - out.len();
        let count = picks.len();
        // If there are too many, they are spread evenly over the run.
        let is_wanted =
            |n: usize| count <= remaining || n * remaining / count != (n + 1) * remaining / count;
        out.extend(picks.into_iter().enumerate().filter(|(n, _)| is_wanted(*n)).map(|(_, p)| p));
    }
    out.sort_by_key(|pick| (pick.frontier, pick.manner));
    out
}

type Task<'a> = (u64, Pick, CrashState<'a>);
type Verdict = (Pick, Result<Option<Judged>, ProgramError>);

/// The work of a stand, until there are no more states.
fn work(
    (bench, stand, job): (&Bench<'_>, &Stand, &Job),
    stop: &dyn Fn() -> bool,
    states: &Mutex<Receiver<Task<'_>>>,
    to: &Sender<Verdict>,
) {
    loop {
        let next = states.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, pick, state)) = next else { return };
        let promises = bench.promises(pick.events);
        let judging = Judging { bench, stand, job, stop, promises, judged: Judged::default() };
        let disk = StateDisk { start: &bench.start, state: &state, image: state.sum() };
        let verdict = judging.judge(number, disk);
        if to.send((pick, verdict)).is_err() {
            return;
        }
    }
}

/// The sums of the results.
struct Sums<'a> {
    bench: &'a Bench<'a>,
    outcome: JobOutcome,
    sorts: BTreeMap<(Wrong, String), usize>,
}

impl Sums<'_> {
    /// Adds the results of an earlier search. Returns the numbers of their picks.
    fn resume(&mut self, before: Vec<Judged>, all: &[(u64, Pick)]) -> BTreeSet<u64> {
        let mut done = BTreeSet::new();
        for judged in before {
            let at = all.binary_search_by_key(&judged.number, |(n, _)| *n);
            if let (Ok(at), true) = (at, done.insert(judged.number)) {
                self.bench.known(|known| known.note(&judged));
                self.add(all[at].1.clone(), judged, &|_| {});
            }
        }
        done
    }

    fn add(&mut self, pick: Pick, judged: Judged, tell: &(dyn Fn(ExploreEvent<'_>) + Sync)) {
        self.outcome.counts.checks += judged.checks;
        self.outcome.counts.recoveries += judged.recoveries.len() as u64;
        for state in &judged.states {
            self.add_state(&pick, &judged, state, tell);
        }
    }

    fn add_state(
        &mut self,
        pick: &Pick,
        judged: &Judged,
        state: &JudgedState,
        tell: &(dyn Fn(ExploreEvent<'_>) + Sync),
    ) {
        let counts = &mut self.outcome.counts;
        match state.cuts.is_empty() {
            true => counts.states += 1,
            false => counts.in_recovery += 1,
        }
        match &state.result {
            StateResult::Unsound(_) => counts.unsound += 1,
            StateResult::Broken(wrong, _) => {
                counts.promise_broken += 1;
                counts.lost_durable += u64::from(*wrong == Wrong::LostDurable);
                counts.not_atomic += u64::from(*wrong != Wrong::LostDurable);
            }
            StateResult::Flaky(said) => {
                counts.flaky += 1;
                self.outcome.flaky_output.get_or_insert_with(|| said.clone());
            }
            StateResult::Checked(CheckAnswer::Failed(said)) => {
                counts.check_failed += 1;
                self.outcome.check_output.get_or_insert_with(|| said.clone());
            }
            StateResult::Checked(CheckAnswer::TimedOut) => counts.timed_out += 1,
            StateResult::Checked(_) => {}
        }
        let Some((wrong, said)) = state.result.failure() else { return };
        let recoveries = judged.cuts(state);
        if wrong == Wrong::Unsound && torn_superblock(self.bench, pick, &recoveries) {
            self.outcome.counts.torn_superblock += 1;
        }
        let said = said.to_owned();
        self.found(JobFinding { pick: pick.clone(), recoveries, wrong, said, alike: 1 }, tell);
    }

    /// Adds a failure to those of its sort.
    fn found(&mut self, found: JobFinding, tell: &(dyn Fn(ExploreEvent<'_>) + Sync)) {
        let next = self.outcome.findings.len();
        match self.sorts.entry(sort(found.wrong, &found.said)) {
            std::collections::btree_map::Entry::Occupied(known) => {
                let known = &mut self.outcome.findings[*known.get()];
                let alike = known.alike + 1;
                // The order in which stands finish is random, so the choice must not depend on it.
                if found.order() < known.order() {
                    *known = found;
                }
                known.alike = alike;
            }
            std::collections::btree_map::Entry::Vacant(new) if next < FINDINGS_MAX => {
                new.insert(next);
                self.outcome.findings.push(found);
                tell(ExploreEvent::Found(&self.outcome.findings[next]));
            }
            std::collections::btree_map::Entry::Vacant(_) => {}
        }
    }
}

impl JobFinding {
    /// The order in which failures of one sort are told: a failure without a second cut first.
    fn order(&self) -> impl Ord {
        let cuts = self.recoveries.iter().map(|cut| (cut.pick.manner, cut.pick.state.clone()));
        let pick = &self.pick;
        (
            self.recoveries.len(),
            pick.manner,
            pick.frontier,
            pick.state.clone(),
            cuts.collect::<Vec<_>>(),
        )
    }
}

/// Whether the last power cut before the failure tore a superblock.
fn torn_superblock(bench: &Bench<'_>, pick: &Pick, cuts: &[RecoveryCut]) -> bool {
    let is_one = |fates: &[(usize, usize, Fate)], meanings: &[Vec<Meaning>]| {
        let torn = fates.iter().filter(|(_, _, fate)| *fate == Fate::Torn);
        let class = |disk: &usize, write: &usize| meanings[*disk][*write].class;
        torn.into_iter().any(|(disk, write, _)| class(disk, write) == Class::Superblock)
    };
    match cuts.last() {
        None => is_one(&bench.space.fates(pick), &bench.recorded.meanings),
        Some(cut) => {
            let space = Space::new(cut.recovery.run.clone(), bench.unit());
            is_one(&space.fates(&cut.pick), &cut.recovery.meanings)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(frontier: usize, manner: Manner) -> Outline {
        Outline { frontier, events: frontier * 10, manner, number: 0 }
    }

    /// If few states are wanted, those right after a promise come first, even if the run has many
    /// other writes.
    #[test]
    fn moments_of_promises_come_first() {
        let picks: Vec<Outline> = (0..100)
            .flat_map(|n| [Manner::Amnesia, Manner::One, Manner::Chance].map(|m| pick(n, m)))
            .collect();
        let mark = |events| Mark { events, at: 0, text: "a".into() };
        let marks = [mark(301), mark(702)];
        let few = chosen(picks.clone(), &marks, 4);
        let frontiers: Vec<usize> = few.iter().map(|pick| pick.frontier).collect();
        assert_eq!(frontiers, [31, 70, 71, 99]);
        let more = chosen(picks.clone(), &marks, 150);
        assert_eq!(more.len(), 150);
        assert_eq!(more.iter().filter(|pick| pick.manner == Manner::Amnesia).count(), 100);
        assert_eq!(chosen(picks.clone(), &marks, 1000), picks);
    }
}
