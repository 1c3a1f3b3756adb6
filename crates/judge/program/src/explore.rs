//! The states of a recording, judged on several stands at once.
//!
//! Most of a state's time is waiting for the kernel (mount, recovery, unmount), so there are more stands than
//! processors. States with equal disks, or with equal names and contents after recovery, are judged once for the same
//! promises.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ordo_crash::StateRule;
use ordo_crash::space::{Choosing, CrashState, Fate, Manner, Pick, Space};
use ordo_sba::Class;
use rustc_hash::{FxHashMap, FxHasher};
use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::check::{Check, CheckAnswer};
use crate::marks::{Mark, Promises};
use crate::record::{Recorded, WORK};
use crate::stand::{Stand, Start};
use crate::tree::FileTree;

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
    /// Rules for the states: only states that follow one of them are judged. Empty for no restriction.
    pub rules: Vec<StateRule>,
    /// The number of stands at once.
    pub stands: usize,
    /// The number of states that were judged before, and are left out.
    pub skip: usize,
}

impl Default for Job {
    fn default() -> Job {
        Job {
            states: 1000,
            seed: 1,
            unit: 4096,
            shard: (1, 1),
            rules: Vec::new(),
            stands: 4,
            skip: 0,
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
    /// The number of possible states.
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
}

/// An event of an exploration under way.
#[derive(Debug)]
pub enum ExploreEvent<'a> {
    /// The number of judged states, and of all.
    Reached(u64, u64),
    /// A new sort of failure.
    Found(&'a JobFinding),
}

/// The number of states that are considered for each one that is judged.
const SURPLUS: usize = 4;
/// The most sorts of failures that are kept.
const FINDINGS_MAX: usize = 40;

/// The result of one state.
enum StateResult {
    Unsound(String),
    CheckAnswer(CheckAnswer, Option<Wrong>),
}

/// The results that are known already, by disk and by tree.
#[derive(Default)]
struct Known {
    /// The tree to which each disk recovers, as a sum of names and contents.
    trees: FxHashMap<u128, Result<u128, String>>,
    said: FxHashMap<(u128, u64), (CheckAnswer, Option<Wrong>)>,
    checks: u64,
}

/// A recording, with everything from which its states are made.
pub(crate) struct Bench<'a> {
    pub recorded: &'a Recorded,
    pub check: &'a Check,
    pub space: Space,
    start: Arc<Start>,
    known: Mutex<Known>,
}

fn hash(promises: &Promises) -> u64 {
    let mut hasher = FxHasher::default();
    promises.hash(&mut hasher);
    hasher.finish()
}

impl<'a> Bench<'a> {
    pub fn new(recorded: &'a Recorded, check: &'a Check, unit: usize) -> Bench<'a> {
        let space = Space::new(recorded.run.clone(), unit);
        let start = Arc::new(Start::new(recorded.run.disks[0].base.clone()));
        Bench { recorded, check, space, start, known: Mutex::default() }
    }

    pub fn stand(&self, number: u8) -> Result<Stand, ProgramError> {
        Stand::new(&self.recorded.system, self.start.clone(), number)
    }

    /// The promises after the first `events` events.
    pub fn promises(&self, events: usize) -> Promises {
        Promises::at(&self.recorded.marks, events)
    }

    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs the check in a state.
    fn said(
        &self,
        stand: &Stand,
        state: &CrashState<'_>,
        promises: &Promises,
    ) -> Result<Result<(Option<u128>, CheckAnswer), String>, ProgramError> {
        stand.put(state.sectors(0))?;
        let seen = stand.look(|dir| -> Result<(Option<u128>, CheckAnswer), ProgramError> {
            let work = dir.join(WORK);
            let sum = FileTree::of(&work).ok().map(|tree| tree.sum());
            let known = sum.and_then(|sum| {
                self.known(|known| known.said.get(&(sum, hash(promises))).cloned())
            });
            if let Some((said, _)) = known {
                return Ok((sum, said));
            }
            self.known(|known| known.checks += 1);
            Ok((sum, self.check.run(&work, promises)?))
        })?;
        match seen {
            Ok(done) => done.map(Ok),
            Err(why) => Ok(Err(why)),
        }
    }

    fn judge(
        &self,
        stand: &Stand,
        state: &CrashState<'_>,
        promises: &Promises,
    ) -> Result<StateResult, ProgramError> {
        let (image, key) = (state.sum(), hash(promises));
        let known = self.known(|known| match known.trees.get(&image)? {
            Err(why) => Some(StateResult::Unsound(why.clone())),
            Ok(tree) => {
                let (said, wrong) = known.said.get(&(*tree, key))?;
                Some(StateResult::CheckAnswer(said.clone(), *wrong))
            }
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let (sum, said) = match self.said(stand, state, promises)? {
            Ok(seen) => seen,
            Err(why) => {
                self.known(|known| known.trees.insert(image, Err(why.clone())));
                return Ok(StateResult::Unsound(why));
            }
        };
        // Another state with the same tree may have been judged already.
        let before = sum.and_then(|sum| self.known(|known| known.said.get(&(sum, key)).cloned()));
        let wrong = match (&said, before) {
            (_, Some((_, wrong))) => wrong,
            (CheckAnswer::Broken(_), None) => Some(self.wrong(stand, state, promises)?),
            _ => None,
        };
        if let Some(sum) = sum {
            self.known(|known| {
                known.trees.insert(image, Ok(sum));
                known.said.insert((sum, key), (said.clone(), wrong));
            });
        }
        Ok(StateResult::CheckAnswer(said, wrong))
    }

    /// The kind of failure of a state that breaks promises: whether it would pass without any promise.
    fn wrong(
        &self,
        stand: &Stand,
        state: &CrashState<'_>,
        promises: &Promises,
    ) -> Result<Wrong, ProgramError> {
        let without = self.said(stand, state, &promises.none())?;
        Ok(match without {
            Ok((_, said)) if !said.is_broken() => Wrong::LostDurable,
            _ => Wrong::NotAtomic,
        })
    }

    /// Judges one state. Returns its kind of failure and the check's output.
    pub fn judge_pick(
        &self,
        stand: &Stand,
        pick: &Pick,
    ) -> Result<Option<(Wrong, String)>, ProgramError> {
        let promises = self.promises(pick.events);
        let verdict = self.space.with(pick, |state| self.judge(stand, &state, &promises));
        Ok(match verdict.transpose()? {
            Some(StateResult::Unsound(why)) => Some((Wrong::Unsound, why)),
            Some(StateResult::CheckAnswer(CheckAnswer::Broken(said), wrong)) => {
                wrong.map(|wrong| (wrong, said))
            }
            _ => None,
        })
    }

    /// Mounts a state, and calls `look` with the program's directory in it.
    pub fn look<T>(
        &self,
        stand: &Stand,
        pick: &Pick,
        look: impl FnOnce(&Path) -> T,
    ) -> Result<Option<T>, ProgramError> {
        let looked = self.space.with(pick, |state| {
            stand.put(state.sectors(0))?;
            stand.look(|dir| look(&dir.join(WORK)))
        });
        Ok(looked.transpose()?.and_then(Result::ok))
    }

    /// Writes a state to a file; `None` if there is no such state.
    pub fn write(&self, file: &std::fs::File, pick: &Pick) -> Option<std::io::Result<()>> {
        self.space.with(pick, |state| self.start.write(file, state.sectors(0)))
    }

    /// For each write, the group with which it is lost or kept: contents of one file, or parts of one structure.
    fn groups(&self) -> Vec<u64> {
        let group = |meaning: &crate::record::Meaning| {
            let mut hasher = FxHasher::default();
            (meaning.class, &meaning.path).hash(&mut hasher);
            hasher.finish()
        };
        self.recorded.meanings.iter().map(group).collect()
    }
}

/// The sort of a failure: its kind, and the first words of the output, without numbers.
fn sort(wrong: Wrong, said: &str) -> (Wrong, String) {
    let first = said.lines().next().unwrap_or_default();
    let words = first.split_whitespace().filter(|w| !w.bytes().any(|b| b.is_ascii_digit()));
    (wrong, words.collect::<Vec<_>>().join(" "))
}

/// Judges the states of a recording. `stop` ends it early, with the results so far.
///
/// # Errors
/// There is no loop device, or the check cannot be run.
pub fn explore(
    recorded: &Recorded,
    check: &Check,
    job: &Job,
    stop: &AtomicBool,
    tell: &(dyn Fn(ExploreEvent<'_>) + Sync),
) -> Result<JobOutcome, ProgramError> {
    let began = Instant::now();
    let bench = Bench::new(recorded, check, job.unit);
    let groups = bench.groups();
    let choosing = Choosing {
        states: job.states.saturating_mul(SURPLUS),
        seed: job.seed,
        from: recorded.began,
        rules: &job.rules,
        groups: &groups,
    };
    let (part, parts) = job.shard;
    let picks = chosen(bench.space.picks(&choosing), &recorded.marks, job.states);
    let all = picks.into_iter().zip(0u64..);
    let picks: Vec<Pick> =
        all.filter(|(_, n)| n % parts == part - 1).map(|(pick, _)| pick).skip(job.skip).collect();
    let count = job.stands.clamp(1, 64).min(picks.len().max(1));
    let stands = (0..count).map(|n| bench.stand(n as u8)).collect::<Result<Vec<_>, _>>()?;
    let mut sums = Sums { bench: &bench, outcome: JobOutcome::default(), sorts: BTreeMap::new() };
    let quit = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), ProgramError> {
        let (to_stands, states) = sync_channel(count);
        let states = Arc::new(Mutex::new(states));
        let (to_sums, verdicts) = channel();
        for stand in stands {
            let (states, to_sums, bench) = (states.clone(), to_sums.clone(), &bench);
            scope.spawn(move || work(bench, &stand, &states, &to_sums));
        }
        drop((states, to_sums));
        let (bench, picks, quit) = (&bench, &picks, &quit);
        scope.spawn(move || {
            bench.space.each(picks, |pick, state| {
                let stopped = stop.load(Ordering::Relaxed) || quit.load(Ordering::Relaxed);
                !stopped && to_stands.send((pick.clone(), state)).is_ok()
            });
        });
        let mut failed = Ok(());
        for (pick, verdict) in verdicts {
            match verdict {
                Ok(verdict) => sums.add(pick, verdict, tell),
                Err(error) => {
                    quit.store(true, Ordering::Relaxed);
                    failed = Err(error);
                }
            }
            tell(ExploreEvent::Reached(sums.outcome.counts.states, picks.len() as u64));
        }
        failed
    })?;
    let mut outcome = sums.outcome;
    bench.known(|known| {
        outcome.counts.images = known.trees.len() as u64;
        let trees = known.trees.values().flatten();
        outcome.counts.trees = trees.collect::<BTreeSet<_>>().len() as u64;
        outcome.counts.checks = known.checks;
    });
    outcome.counts.possible = bench.space.possible(recorded.began);
    outcome.counts.seconds = began.elapsed().as_secs_f64();
    outcome.findings.sort_by_key(|f| (f.wrong, f.pick.frontier, f.pick.manner));
    Ok(outcome)
}

/// Chooses among more picks than are wanted. First come those at every moment at which a promise was new, or about to
/// be followed by the next one. Then come picks at other moments, spread over the run. At each moment the most
/// telling picks come first.
fn chosen(picks: Vec<Pick>, marks: &[Mark], wanted: usize) -> Vec<Pick> {
    let held = |pick: &Pick| marks.partition_point(|mark| mark.events <= pick.events);
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
    let mut by_rank: BTreeMap<(bool, Manner), Vec<Pick>> = BTreeMap::new();
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
    let mut out: Vec<Pick> = Vec::new();
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

type Judged = (Pick, Result<StateResult, ProgramError>);

/// The work of a stand, until there are no more states.
fn work(
    bench: &Bench<'_>,
    stand: &Stand,
    states: &Mutex<Receiver<(Pick, CrashState<'_>)>>,
    to: &Sender<Judged>,
) {
    loop {
        let next = states.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((pick, state)) = next else { return };
        let promises = bench.promises(pick.events);
        let verdict = bench.judge(stand, &state, &promises);
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
    fn add(&mut self, pick: Pick, verdict: StateResult, tell: &(dyn Fn(ExploreEvent<'_>) + Sync)) {
        let counts = &mut self.outcome.counts;
        counts.states += 1;
        let (wrong, said) = match verdict {
            StateResult::Unsound(why) => {
                counts.unsound += 1;
                (Wrong::Unsound, why)
            }
            StateResult::CheckAnswer(CheckAnswer::Broken(said), wrong) => {
                let wrong = wrong.unwrap_or(Wrong::NotAtomic);
                counts.promise_broken += 1;
                counts.lost_durable += u64::from(wrong == Wrong::LostDurable);
                counts.not_atomic += u64::from(wrong == Wrong::NotAtomic);
                (wrong, said)
            }
            StateResult::CheckAnswer(CheckAnswer::Failed(said), _) => {
                counts.check_failed += 1;
                self.outcome.check_output.get_or_insert(said);
                return;
            }
            StateResult::CheckAnswer(CheckAnswer::TimedOut, _) => {
                counts.timed_out += 1;
                return;
            }
            StateResult::CheckAnswer(CheckAnswer::Kept, _) => return,
        };
        if wrong == Wrong::Unsound && torn_superblock(self.bench, &pick) {
            self.outcome.counts.torn_superblock += 1;
        }
        let next = self.outcome.findings.len();
        match self.sorts.entry(sort(wrong, &said)) {
            std::collections::btree_map::Entry::Occupied(known) => {
                let known = &mut self.outcome.findings[*known.get()];
                known.alike += 1;
                // The order in which stands finish is random, so the choice must not depend on it.
                if (pick.manner, pick.frontier, &pick.state)
                    < (known.pick.manner, known.pick.frontier, &known.pick.state)
                {
                    (known.pick, known.said) = (pick, said);
                }
            }
            std::collections::btree_map::Entry::Vacant(new) if next < FINDINGS_MAX => {
                new.insert(next);
                self.outcome.findings.push(JobFinding { pick, wrong, said, alike: 1 });
                tell(ExploreEvent::Found(&self.outcome.findings[next]));
            }
            std::collections::btree_map::Entry::Vacant(_) => {}
        }
    }
}

fn torn_superblock(bench: &Bench<'_>, pick: &Pick) -> bool {
    let fates = bench.space.fates(pick);
    fates.iter().any(|(_, write, fate)| {
        *fate == Fate::Torn && bench.recorded.meanings[*write].class == Class::Superblock
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(frontier: usize, manner: Manner) -> Pick {
        Pick { frontier, events: frontier * 10, state: Vec::new(), manner }
    }

    /// If few states are wanted, those right after a promise come first, even if the run has many other writes.
    #[test]
    fn moments_of_promises_come_first() {
        let picks: Vec<Pick> = (0..100)
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
