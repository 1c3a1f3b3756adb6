//! Prediction: playback of the unchanged trace first, then of each change; and the same on a real
//! device. If the trace has the programs' calls, these can be played instead of the requests
//! ([`CallWorld`]).

mod by_calls;

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_annotate::Pieces;
use ordo_annotate::calls::StoredCall;
use ordo_block::model::{Model, ModelKind};
use ordo_trace::{COMMAND_BEGINS, COMMAND_ENDS, RequestContents};

use crate::calls::CallsError;
use crate::change::{self, PlanChange, Refused, World};
use crate::path::{self, RecordedClock, Spent};
use crate::plan::{Plan, PlanStep};
use crate::play::{PlayDisk, PlayError, PlayStage, Played, play};
use crate::real::{Real, RealError};
use crate::traffic::{Role, SeenTrace, SeenTraffic, TrafficError};
use crate::{depend, journal};

/// The input of a prediction.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The contents of the trace's requests.
    pub contents: &'a dyn RequestContents,
    /// The calls of the programs, with the requests that they waited for; empty if they were not
    /// recorded.
    pub calls: &'a [StoredCall],
    /// The known pieces of the device before the trace.
    pub start: &'a Pieces,
    /// The file system's name, as a watcher gives it.
    pub system: &'a str,
    /// The size of the device in bytes.
    pub bytes: u64,
    /// The disk on which the trace was recorded; `None` if it is not known.
    pub disk: Option<&'static Model>,
    /// The number of requests under way at once, if the trace has no times that show it.
    pub depth: usize,
}

/// The marks between which time is measured; without them the recorded command, if its begin and
/// end are marked, and otherwise the whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The text of the mark at the beginning.
    pub from: Option<String>,
    /// The text of the mark at the end.
    pub until: Option<String>,
}

impl Window {
    /// The same with the marks of the recorded command where none is given. What comes after the
    /// command, the unmount and the last checkpoints, is not its time.
    #[must_use]
    pub fn of_command(&self, trace: &SeenTrace) -> Window {
        let marked = |given: &Option<String>, text: &str| {
            given.clone().or_else(|| trace.mark(text, 0).map(|_| text.to_owned()))
        };
        Window {
            from: marked(&self.from, COMMAND_BEGINS),
            until: marked(&self.until, COMMAND_ENDS),
        }
    }
}

/// A playback's result.
#[derive(Clone, Debug)]
pub struct PredictedOutcome {
    /// Seconds between the marks.
    pub seconds: f64,
    /// The least and the most seconds. On models: platters elsewhere at the beginning, think times
    /// a twentieth shorter and longer, and the error of the unchanged playback on both sides. On a
    /// real device: of all rounds.
    pub interval: (f64, f64),
    /// Seconds on the critical path, by cause.
    pub spent: BTreeMap<Spent, f64>,
    /// Requests and bytes of each role between the marks.
    pub requests: BTreeMap<Role, (u64, u64)>,
    /// For the requests between the marks the role, the issue and the completion, in seconds from
    /// the first mark.
    pub timeline: Vec<(Role, f64, f64)>,
}

impl PredictedOutcome {
    fn of(seconds: f64, interval: (f64, f64)) -> PredictedOutcome {
        let (spent, requests) = (BTreeMap::new(), BTreeMap::new());
        PredictedOutcome { seconds, interval, spent, requests, timeline: Vec::new() }
    }

    /// The seconds in which at least one request was under way, whether or not anything waited for
    /// it.
    pub fn busy(&self) -> f64 {
        let mut spans: Vec<(f64, f64)> =
            self.timeline.iter().map(|(_, issued, completed)| (*issued, *completed)).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut busy, mut until) = (0.0, f64::NEG_INFINITY);
        for (issued, completed) in spans {
            busy += (completed - until.max(issued)).max(0.0);
            until = until.max(completed);
        }
        busy
    }
}

/// The unchanged trace, as it was and as it is played.
#[derive(Clone, Debug)]
pub struct Unchanged {
    /// Seconds in the trace; `None` if it has no times, so that nothing can be checked.
    pub measured: Option<f64>,
    /// The playback.
    pub predicted: PredictedOutcome,
    /// `predicted / measured - 1`; zero if nothing was measured.
    pub error: f64,
}

impl Unchanged {
    /// The part of the time that the recorder's clock decides. The playback repeats it whatever
    /// the disks do, so that it passes any comparison with the trace, and no change shows in it.
    pub fn clock_share(&self) -> f64 {
        let spent = self.predicted.spent.get(&Spent::Clock(RecordedClock::Clock));
        spent.copied().unwrap_or(0.0) / self.predicted.seconds.max(f64::MIN_POSITIVE)
    }
}

/// The reason why nothing can be predicted.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The trace cannot be played.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A mark is not there, or not in this order.
    #[error("the trace has no mark '{mark}'{order}; it has {known}")]
    Mark {
        /// The mark.
        mark: String,
        /// The place that is meant.
        order: &'static str,
        /// The marks that it has.
        known: String,
    },
    /// A change means nothing for this trace.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A disk refused a request.
    #[error("{what}: {error}")]
    Play {
        /// The change.
        what: String,
        /// The error.
        error: PlayError,
    },
    /// Nothing is between the marks.
    #[error("no time passes between the marks")]
    Nothing,
    /// The device on which to play cannot be used.
    #[error(transparent)]
    Real(#[from] RealError),
}

/// The phase of a playback on a real device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictPhase {
    /// Ranges are written for the first time: bytes done, and all.
    Preparing(u64, u64),
    /// Plans are being played: the number done, and the number of all.
    Playing(u64, u64),
}

pub use by_calls::{CallWorld, ClientTimes};

/// A trace that can be played.
pub struct Predictor<'a> {
    input: Input<'a>,
    plan: Plan,
    disk: PlayDisk,
    /// The steps whose issue begins, and whose completion ends, the measured time.
    from: usize,
    until: Option<usize>,
    measured: Option<f64>,
    calls: Result<CallWorld, CallsError>,
}

impl<'a> Predictor<'a> {
    /// Makes the plan of a trace.
    ///
    /// # Errors
    /// The trace has no such marks, or no time passes between them.
    pub fn new(
        input: Input<'a>,
        trace: SeenTrace,
        window: &Window,
    ) -> Result<Predictor<'a>, PredictError> {
        let window = &window.of_command(&trace);
        let (seen, timed) = (trace.requests(), trace.has_times());
        let plan = match timed {
            true => depend::plan(seen),
            false => depend::in_order(seen, input.depth.max(1)),
        };
        let mark = |text: &str, from: usize, order| {
            trace.mark(text, from).ok_or_else(|| {
                let all: Vec<_> = seen.iter().filter_map(|s| s.text.clone()).take(10).collect();
                let known = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
                PredictError::Mark { mark: text.into(), order, known }
            })
        };
        let from = window.from.as_deref().map_or(Ok(0), |text| mark(text, 0, ""))?;
        let until = window.until.as_deref();
        let until = until.map(|text| mark(text, from + 1, " after the first")).transpose()?;
        let last = until.map_or_else(
            || seen.iter().map(|s| s.completed).max().unwrap_or(0),
            |n| seen[n].completed,
        );
        let measured = last.saturating_sub(seen[from].issued);
        if measured == 0 && timed {
            return Err(PredictError::Nothing);
        }
        let disk =
            input.disk.map_or_else(|| PlayDisk::Recorded(Rc::new(medians(seen))), PlayDisk::Model);
        let span = journal::span(input.contents, &plan);
        let calls = CallWorld::new(&input, &trace, span, window, &disk);
        let measured = timed.then_some(measured as f64 / 1e9);
        Ok(Predictor { input, plan, disk, from, until, measured, calls })
    }

    /// The calls of the programs, or the reason why they cannot be played.
    ///
    /// # Errors
    /// The trace has no calls, or they do not belong to its requests.
    pub fn calls(&self) -> Result<&CallWorld, &CallsError> {
        self.calls.as_ref()
    }

    fn world(&self) -> World<'a> {
        World {
            plan: self.plan.clone(),
            stage: PlayStage::one(self.disk.clone(), self.input.bytes),
            contents: self.input.contents,
            start: self.input.start,
            system: self.input.system,
            lacks_flushes: self.lacks_flushes(),
        }
    }

    /// Whether the trace has writes and no flush, as a kernel's has on a disk without a volatile
    /// cache; JFS never flushes.
    fn lacks_flushes(&self) -> bool {
        let mut steps = self.plan.live().map(|n| self.plan.step(n));
        let is_flushed = |step: &PlanStep| step.role == Role::Flush || step.preflush || step.fua;
        self.input.system != "jfs" && self.measured.is_some() && !steps.any(is_flushed)
    }

    /// Makes changes, one after the other.
    fn apply(&self, changes: &[PlanChange], world: &mut World<'a>) -> Result<(), Refused> {
        for change in changes {
            if self.measured.is_none() && change.is_of_waits() {
                return Err(Refused { change: change.to_string(), why: change::NO_TIMES.into() });
            }
            change.apply(world)?;
        }
        Ok(())
    }

    /// Plays the trace unchanged.
    ///
    /// # Errors
    /// A request lies outside the disk.
    pub fn unchanged(&self) -> Result<Unchanged, PredictError> {
        let mut predicted = self.outcome("unchanged", self.world(), 0.0)?;
        let error = self.measured.map_or(0.0, |measured| predicted.seconds / measured - 1.0);
        widen(&mut predicted, error);
        Ok(Unchanged { measured: self.measured, predicted, error })
    }

    /// Plays the trace with changes made, one after the other; `error` is that of the unchanged
    /// playback.
    ///
    /// # Errors
    /// A change means nothing for this trace, or a request lies outside its disk.
    pub fn changed(
        &self,
        changes: &[PlanChange],
        error: f64,
    ) -> Result<PredictedOutcome, PredictError> {
        let mut world = self.world();
        self.apply(changes, &mut world)?;
        self.outcome(&change::name(changes), world, error)
    }

    /// Plays the trace on a real device in real time, once for each set of changes and round, the
    /// sets by turns. An empty set is the unchanged trace. Returns the median round of each set.
    ///
    /// # Errors
    /// A change means nothing for this trace or for a real device, or the device failed.
    pub fn on_device(
        &self,
        real: &Real,
        sets: &[&[PlanChange]],
        rounds: usize,
        mut follow: impl FnMut(PredictPhase),
    ) -> Result<Vec<PredictedOutcome>, PredictError> {
        let mut worlds = Vec::new();
        for set in sets {
            let mut world = self.world();
            world.stage.disks[0].0 = PlayDisk::Real(real.clone());
            self.apply(set, &mut world)?;
            worlds.push((Rc::new(world.plan), world.stage));
        }
        let plans: Vec<&Plan> = worlds.iter().map(|(plan, _)| &**plan).collect();
        real.prepare(&plans, |done, all| follow(PredictPhase::Preparing(done, all)))?;
        let played = by_turns((sets, rounds), follow, |n, what| {
            let (plan, stage) = &worlds[n];
            play(plan, stage).map_err(|error| PredictError::Play { what: what.into(), error })
        })?;
        let told = worlds.iter().zip(played).map(|((plan, _), rounds)| {
            let (played, mut outcome) = median(rounds, |played| self.bounds(plan, played));
            self.tell(plan, &played, self.bounds(plan, &played), &mut outcome);
            outcome
        });
        Ok(told.collect())
    }

    /// Whether a set of changes has a disk with a volatile cache in the place of one without: the
    /// trace does not show the flushes that it would get.
    pub fn needs_flushes(&self, changes: &[PlanChange]) -> bool {
        let has_none = self.disk.volatile_cache() == Some(false);
        let gets_one = |change: &PlanChange| matches!(change, PlanChange::Disk(model) if model.volatile_cache());
        has_none && changes.iter().any(gets_one) && self.lacks_flushes()
    }

    /// The journal of the trace: its place and size in bytes.
    pub fn journal(&self) -> Option<journal::JournalSpan> {
        journal::span(self.input.contents, &self.plan)
    }

    fn outcome(
        &self,
        what: &str,
        world: World<'_>,
        error: f64,
    ) -> Result<PredictedOutcome, PredictError> {
        let played = |stage: &PlayStage, plan: &Rc<Plan>| {
            play(plan, stage).map_err(|error| PredictError::Play { what: what.into(), error })
        };
        let plan = Rc::new(world.plan);
        let main = played(&world.stage, &plan)?;
        let (begin, end) = self.bounds(&plan, &main);
        let seconds = (end - begin) as f64 / 1e9;
        let mut interval = (seconds, seconds);
        for other in others(&world.stage) {
            let other = played(&other, &plan)?;
            let (begin, end) = self.bounds(&plan, &other);
            let seconds = (end - begin) as f64 / 1e9;
            interval = (interval.0.min(seconds), interval.1.max(seconds));
        }
        let mut outcome = PredictedOutcome::of(seconds, interval);
        self.tell(&plan, &main, (begin, end), &mut outcome);
        widen(&mut outcome, error);
        Ok(outcome)
    }

    /// The first and the last moment of the measured time.
    fn bounds(&self, plan: &Plan, played: &Played) -> (u64, u64) {
        let begin = played.times[self.from].0;
        let end = match self.until {
            Some(until) => played.times[until].1,
            None => self.last(plan, played).map_or(begin, |n| played.times[n].1),
        };
        (begin, end.max(begin + 1))
    }

    fn last(&self, plan: &Plan, played: &Played) -> Option<usize> {
        self.until.or_else(|| plan.live().max_by_key(|n| (played.times[*n].1, *n)))
    }

    fn tell(
        &self,
        plan: &Plan,
        played: &Played,
        (begin, end): (u64, u64),
        into: &mut PredictedOutcome,
    ) {
        if let Some(last) = self.last(plan, played) {
            let spent = path::spent(plan, played, begin, last);
            into.spent = spent.into_iter().map(|(what, ns)| (what, ns as f64 / 1e9)).collect();
        }
        for index in plan.live() {
            let (issued, completed) = played.times[index];
            let step = plan.step(index);
            if issued < begin || issued >= end || step.role == Role::Mark {
                continue;
            }
            let count = into.requests.entry(step.role).or_insert((0, 0));
            *count = (count.0 + 1, count.1 + step.len);
            let since = |at: u64| (at - begin) as f64 / 1e9;
            into.timeline.push((step.role, since(issued), since(completed)));
        }
    }
}

/// The median time of a request of each role, in nanoseconds.
fn medians(seen: &[SeenTraffic]) -> BTreeMap<Role, u64> {
    let mut all: BTreeMap<Role, Vec<u64>> = BTreeMap::new();
    for one in seen {
        all.entry(one.role).or_default().push(one.completed - one.issued);
    }
    let median = |mut times: Vec<u64>| {
        let middle = times.len() / 2;
        *times.select_nth_unstable(middle).1
    };
    all.into_iter().map(|(role, times)| (role, median(times))).collect()
}

/// Plays sets of changes by turns, each `rounds` times. Returns the playbacks of each set. `play`
/// gets a set's index and name.
fn by_turns<T>(
    (sets, rounds): (&[&[PlanChange]], usize),
    mut follow: impl FnMut(PredictPhase),
    play: impl Fn(usize, &str) -> Result<T, PredictError>,
) -> Result<Vec<Vec<T>>, PredictError> {
    let mut played: Vec<Vec<T>> = sets.iter().map(|_| Vec::new()).collect();
    let (mut done, all) = (0, (rounds * sets.len()) as u64);
    for _ in 0..rounds {
        for (n, set) in sets.iter().enumerate() {
            follow(PredictPhase::Playing(done, all));
            played[n].push(play(n, &change::name(set))?);
            done += 1;
        }
    }
    follow(PredictPhase::Playing(done, all));
    Ok(played)
}

/// The median of several playbacks, at least one; their least and most seconds are its interval.
fn median<T>(rounds: Vec<T>, bounds: impl Fn(&T) -> (u64, u64)) -> (T, PredictedOutcome) {
    let took = |played: &T| {
        let (begin, end) = bounds(played);
        end - begin
    };
    let mut all: Vec<(u64, T)> = rounds.into_iter().map(|played| (took(&played), played)).collect();
    all.sort_by_key(|(took, _)| *took);
    let seconds = |n: usize| all[n].0 as f64 / 1e9;
    let middle = (all.len() - 1) / 2;
    let outcome = PredictedOutcome::of(seconds(middle), (seconds(0), seconds(all.len() - 1)));
    (all.swap_remove(middle).1, outcome)
}

/// Widens an interval by an error on both sides.
fn widen(outcome: &mut PredictedOutcome, error: f64) {
    let error = error.abs();
    outcome.interval =
        (outcome.interval.0 * (1.0 - error).max(0.0), outcome.interval.1 * (1.0 + error));
}

/// Other stages that the trace might as well have met: the platters elsewhere when it begins, and a
/// processor that is a little faster or slower.
fn others(stage: &PlayStage) -> Vec<PlayStage> {
    let turn = stage.disks.iter().find_map(|(disk, _)| match disk.model()?.kind {
        ModelKind::Hdd(spec) => Some((60e9 / spec.rpm) as u64),
        ModelKind::Ram | ModelKind::Ssd(_) | ModelKind::Network(_) => None,
    });
    let mut others = Vec::new();
    for part in 1..4 {
        others.extend(turn.map(|turn| PlayStage { shift: turn * part / 4, ..stage.clone() }));
    }
    for think in [950, 1050] {
        others.push(PlayStage { think, ..stage.clone() });
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Overlapping requests count once, gaps not at all. Would catch a disk that is busy for longer
    /// than time passes.
    #[test]
    fn overlapping_requests_are_counted_once() {
        let mut outcome = PredictedOutcome::of(10.0, (10.0, 10.0));
        for (issued, completed) in [(6.0, 7.0), (0.0, 2.0), (1.0, 1.5), (1.0, 3.0)] {
            outcome.timeline.push((Role::Mark, issued, completed));
        }
        assert!((outcome.busy() - 4.0).abs() < 1e-9, "{}", outcome.busy());
    }
}
