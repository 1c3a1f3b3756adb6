//! Prediction by playback of the programs' calls.

use std::ops::Range;

use ordo_block::model::Model;

use super::{
    Input, PredictError, PredictPhase, PredictedOutcome, Unchanged, Window, by_turns, median,
    others, widen,
};
use crate::calls::engine::{CallsPlayed, play_calls};
use crate::calls::facts::{TraceFacts, facts};
use crate::calls::{self, CallPlan, CallsError, ContentsPolicy, JournalPolicy};
use crate::change::place::{Swap, target};
use crate::change::{self, JournalPlace, PlanChange, Refused, layout};
use crate::journal::JournalSpan;
use crate::path::{Spent, Thinking};
use crate::play::{PlayDisk, PlayError, PlayStage};
use crate::real::{Real, merged};
use crate::traffic::SeenTrace;

/// A way of committing that the trace does not show counts if its playback is so much nearer to the
/// trace than that of the way which was read, as a part of the trace's time and of that of its
/// fsyncs.
const NEARER: f64 = 0.002;

/// The number of seeds of own times that are played.
const SEEDS: u64 = 9;

/// The calls of a trace, and what its requests show of the journal's policies.
#[derive(Clone, Debug)]
pub struct CallWorld {
    /// The clients.
    pub plan: CallPlan,
    /// The places, the log, the policies.
    pub facts: TraceFacts,
    span: Option<JournalSpan>,
    stage: PlayStage,
}

/// The clients' times in a playback of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientTimes {
    /// Seconds that an fsync takes, on average.
    pub of_sync: f64,
    /// Seconds from the first call to the last one's end of the client that syncs least.
    pub of_quietest: f64,
}

impl CallWorld {
    /// The calls of the input.
    ///
    /// # Errors
    /// There are none, or they do not belong to the requests.
    pub(super) fn new(
        input: &Input<'_>,
        trace: &SeenTrace,
        span: Option<JournalSpan>,
        window: &Window,
        disk: &PlayDisk,
    ) -> Result<CallWorld, CallsError> {
        let seen = trace.requests();
        let mark = |text: &Option<String>| trace.mark(text.as_deref()?, 0).map(|n| seen[n].issued);
        let (from, until) = (mark(&window.from).unwrap_or(0), mark(&window.until));
        let until = until.unwrap_or(u64::MAX);
        let calls: Vec<_> = calls::within(input.calls, (from, until)).cloned().collect();
        let plan = CallPlan::new(&calls, seen)?;
        let files = trace.files().ok_or(CallsError::None)?;
        let facts = facts(
            (input.contents, input.start),
            (files, seen),
            (&calls, &plan),
            (span, input.system),
        )?;
        let stage = PlayStage::one(disk.clone(), input.bytes);
        let mut world = CallWorld { plan, facts, span, stage };
        world.settle();
        Ok(world)
    }

    /// Settles what the requests do not show, if there are several clients: of those ways that the
    /// calls and requests do not rule out, the one whose playback comes nearest to the trace
    /// counts.
    fn settle(&mut self) {
        if self.plan.clients.len() < 2 {
            self.facts.gaps.scatter = 0;
            return;
        }
        if self.facts.policy.jbd2 {
            return;
        }
        let read = (self.facts.policy.tangled, self.facts.policy.serial);
        let error = |tangled: bool, serial: bool| {
            let mut world = self.clone();
            (world.facts.policy.tangled, world.facts.policy.serial) = (tangled, serial);
            world.distance()
        };
        let known = error(read.0, read.1).map_or(f64::INFINITY, |error| error - NEARER);
        let ways = [(true, true), (false, false)].into_iter().filter(|way| *way != read);
        let ways = ways.filter_map(|way| Some((error(way.0, way.1)?, way)));
        let nearest = ways.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|way| way.0 < known);
        if let Some((_, (tangled, serial))) = nearest {
            (self.facts.policy.tangled, self.facts.policy.serial) = (tangled, serial);
        }
    }

    /// The error of the unchanged playback: of the whole time, or of that of the fsyncs, whichever
    /// is larger. `None`: it cannot be played.
    fn distance(&self) -> Option<f64> {
        let played = self.play("unchanged").ok()?;
        let off = |played: u64, measured: u64| (played as f64 / measured.max(1) as f64 - 1.0).abs();
        let whole = |(begin, end): (u64, u64)| end - begin;
        let all = off(whole(played.bounds), whole(self.plan.bounds));
        Some(all.max(off(played.syncs.1, self.plan.syncs_took)))
    }

    /// Whether playback of calls has all that decides which requests there are: for Ordo's
    /// journals, and those of ext3 and ext4.
    pub fn knows_the_journal(&self) -> bool {
        self.facts.log.own || self.facts.policy.jbd2
    }

    /// The policies that the trace shows.
    pub fn policy(&self) -> JournalPolicy {
        self.facts.policy
    }

    /// Plays the calls on a real device or in a file, in real time: each set of changes `rounds`
    /// times, by turns.
    ///
    /// # Errors
    /// As [`Predictor::on_device`](super::Predictor::on_device).
    pub fn on_device(
        &self,
        real: &Real,
        sets: &[&[PlanChange]],
        rounds: usize,
        mut follow: impl FnMut(PredictPhase),
    ) -> Result<Vec<PredictedOutcome>, PredictError> {
        let mut on_disk = self.clone();
        on_disk.stage.disks[0].0 = PlayDisk::Real(real.clone());
        let worlds: Vec<CallWorld> =
            sets.iter().map(|set| on_disk.with(set)).collect::<Result<_, _>>()?;
        let ranges = worlds.iter().flat_map(CallWorld::touched).collect();
        real.fill(merged(ranges), |done, all| follow(PredictPhase::Preparing(done, all)))?;
        let played = by_turns((sets, rounds), follow, |n, what| worlds[n].play(what))?;
        let told = played.into_iter().map(|rounds| {
            let (played, mut outcome) = median(rounds, |played| played.bounds);
            tell(&played, &mut outcome);
            outcome
        });
        Ok(told.collect())
    }

    /// The ranges of the first disk that the calls may write.
    fn touched(&self) -> Vec<Range<u64>> {
        let facts = &self.facts;
        let mut ranges: Vec<Range<u64>> =
            facts.places.values().map(|place| *place..*place + facts.unit).collect();
        let (first, len) = facts.log.ring;
        let len =
            facts.policy.log_bytes.unwrap_or(len).min(self.stage.disks[0].1.saturating_sub(first));
        ranges.push(first.saturating_sub(facts.log.grain)..first + len);
        ranges
    }

    /// Plays the calls without a change.
    ///
    /// # Errors
    /// A request lies outside the disk.
    pub fn unchanged(&self) -> Result<Unchanged, PredictError> {
        let (begin, end) = self.plan.bounds;
        let measured = (end - begin) as f64 / 1e9;
        let mut predicted = self.outcome("unchanged", 0.0)?;
        let error = predicted.seconds / measured - 1.0;
        widen(&mut predicted, error);
        Ok(Unchanged { measured: Some(measured), predicted, error })
    }

    /// Plays the calls with changes, one after the other; `error` is that of the unchanged
    /// playback.
    ///
    /// # Errors
    /// A change means nothing for this trace, or a request lies outside the disk.
    pub fn changed(
        &self,
        changes: &[PlanChange],
        error: f64,
    ) -> Result<PredictedOutcome, PredictError> {
        self.with(changes)?.outcome(&change::name(changes), error)
    }

    /// The clients' times in a playback with changes.
    ///
    /// # Errors
    /// As [`changed`](Self::changed).
    pub fn clients(&self, changes: &[PlanChange]) -> Result<ClientTimes, PredictError> {
        let played = self.with(changes)?.play(&change::name(changes))?;
        let (syncs, ns) = played.syncs;
        let syncing = |process: u64| {
            let client = self.plan.clients.iter().find(|client| client.process == process);
            client.map_or(0, |client| {
                client
                    .steps
                    .iter()
                    .filter(|s| !matches!(s.act, crate::calls::ClientAct::Write { .. }))
                    .count()
            })
        };
        let quietest = played.clients.iter().min_by_key(|client| syncing(client.0));
        Ok(ClientTimes {
            of_sync: ns as f64 / 1e9 / syncs.max(1) as f64,
            of_quietest: quietest.map_or(0.0, |client| (client.2 - client.1) as f64 / 1e9),
        })
    }

    /// The bytes that a playback with changes appends to the log.
    ///
    /// # Errors
    /// As [`changed`](Self::changed).
    pub fn log_bytes(&self, changes: &[PlanChange]) -> Result<u64, PredictError> {
        let world = self.with(changes)?;
        let played = world.play(&change::name(changes))?;
        Ok((played.log_bytes / world.facts.log.overhead) as u64)
    }

    fn with(&self, changes: &[PlanChange]) -> Result<CallWorld, PredictError> {
        let mut world = self.clone();
        for change in changes {
            if *change == PlanChange::Differential {
                world.facts.log.differences();
            }
            let done = match world.facts.policy.change(change) {
                Some(done) => done,
                None => world.place(change),
            };
            done.map_err(|why| Refused { change: change.to_string(), why })?;
        }
        Ok(world)
    }

    /// Makes a change of places or disks.
    fn place(&mut self, change: &PlanChange) -> Result<(), String> {
        let (disk, bytes) = self.stage.disks[0].clone();
        let known = matches!(disk, PlayDisk::Model(_) | PlayDisk::Real(_));
        let span = || self.span.ok_or_else(|| "the trace has no write to a journal".to_owned());
        match change {
            PlanChange::JournalAt(_) | PlanChange::Layout(_) | PlanChange::CacheOff if !known => {
                Err(change::NO_MODEL.into())
            }
            PlanChange::JournalAt(at) => self.journal_at(span()?, *at, bytes),
            PlanChange::JournalDevice(model) => {
                let len = span()?.len().max(64 << 20);
                if self.stage.disks.len() > 1 {
                    return Err("the journal has a disk of its own already".into());
                }
                self.stage.disks.push((PlayDisk::Model(model), len));
                Ok(())
            }
            PlanChange::Layout(to) => {
                let unit = self.facts.unit;
                let mut pieces: Vec<u64> = Vec::new();
                let mut order: Vec<(u64, (u64, u64))> =
                    self.facts.places.iter().map(|(key, place)| (*place, *key)).collect();
                order.sort_unstable_by_key(|(_, key)| *key);
                pieces.extend(order.iter().map(|(place, _)| place / unit * 4096));
                let map = layout::mapping(&pieces, *to, bytes / unit * 4096);
                self.facts.places.values_mut().for_each(|place| {
                    *place = map[&(*place / unit * 4096)] / 4096 * unit;
                });
                Ok(())
            }
            PlanChange::Disk(model) => {
                self.disk(model, disk.volatile_cache());
                Ok(())
            }
            PlanChange::CacheOff => match disk.volatile_cache() {
                Some(true) => {
                    (self.facts.place_fua, self.facts.policy.fua) = (true, true);
                    Ok(())
                }
                _ => Err("the disk has no volatile write cache".into()),
            },
            _ => unreachable!("the other changes are of policies"),
        }
    }

    fn journal_at(
        &mut self,
        span: JournalSpan,
        at: JournalPlace,
        bytes: u64,
    ) -> Result<(), String> {
        if self.stage.disks.len() > 1 {
            return Err("the journal has a disk of its own".into());
        }
        let swap = Swap { span, target: target(&span, at, bytes)? };
        self.facts.places.values_mut().for_each(|place| *place = swap.of(*place).0);
        let log = &mut self.facts.log;
        (log.first, log.ring.0) = (swap.of(log.first).0, swap.of(log.ring.0).0);
        Ok(())
    }

    /// Another disk. Flushes and FUA come and go with a volatile cache.
    fn disk(&mut self, model: &'static Model, was_volatile: Option<bool>) {
        self.stage.disks[0].0 = PlayDisk::Model(model);
        let is_volatile = model.volatile_cache();
        if was_volatile != Some(is_volatile) {
            let policy = &mut self.facts.policy;
            let is_logged = policy.contents == ContentsPolicy::Logged;
            (policy.flush_before, policy.fua, policy.flush_after) = match policy.jbd2 {
                // Few of the kernel's disks take FUA: it flushes behind the commit block instead.
                true => (is_volatile, false, is_volatile),
                false => (is_volatile && !is_logged, is_volatile, false),
            };
            self.facts.flushes = is_volatile;
            self.facts.place_fua = is_volatile && self.facts.log.own;
        }
    }

    fn play_on(&self, what: &str, stage: &PlayStage) -> Result<CallsPlayed, PredictError> {
        let played = play_calls(&self.plan, &self.facts, stage);
        played.map_err(|error| PredictError::Play {
            what: what.into(),
            error: PlayError::Device { step: 0, error },
        })
    }

    fn play(&self, what: &str) -> Result<CallsPlayed, PredictError> {
        self.play_on(what, &self.stage)
    }

    fn outcome(&self, what: &str, error: f64) -> Result<PredictedOutcome, PredictError> {
        let took = |played: &CallsPlayed| played.bounds.1 - played.bounds.0;
        let seeds = if self.facts.gaps.scatter > 0 { SEEDS } else { 1 };
        let mut all = Vec::new();
        for seed in 1..=seeds {
            all.push(self.play_on(what, &PlayStage { seed, ..self.stage.clone() })?);
        }
        let mut times: Vec<u64> = all.iter().map(&took).collect();
        let mean = times.iter().sum::<u64>() / times.len() as u64;
        let nearest = all.into_iter().min_by_key(|played| took(played).abs_diff(mean));
        // The requests of one playback stand for all.
        let main = nearest.expect("one playback at least");
        for other in others(&self.stage) {
            times.push(took(&self.play_on(what, &other)?));
        }
        let seconds = |ns: Option<u64>| ns.unwrap_or(0) as f64 / 1e9;
        let interval = (seconds(times.iter().copied().min()), seconds(times.iter().copied().max()));
        let mut outcome = PredictedOutcome::of(seconds(Some(mean)), interval);
        tell(&main, &mut outcome);
        widen(&mut outcome, error);
        Ok(outcome)
    }
}

/// Requests, their times, and where the time goes: each moment counts for the request under way
/// that was issued first.
fn tell(played: &CallsPlayed, into: &mut PredictedOutcome) {
    let (begin, end) = played.bounds;
    let mut requests = played.requests.clone();
    requests.sort_by_key(|request| request.times);
    let mut at = begin;
    for request in &requests {
        let count = into.requests.entry(request.role).or_insert((0, 0));
        *count = (count.0 + 1, count.1 + request.len);
        let (from, to) = (request.times.0.max(at).min(end), request.times.1.min(end));
        if to > at {
            *into.spent.entry(Spent::Think(Thinking::Think)).or_insert(0.0) +=
                (from - at) as f64 / 1e9;
            *into.spent.entry(Spent::On(request.role)).or_insert(0.0) += (to - from) as f64 / 1e9;
            at = to;
        }
        let since = |at: u64| at.saturating_sub(begin) as f64 / 1e9;
        into.timeline.push((request.role, since(request.times.0), since(request.times.1)));
    }
    *into.spent.entry(Spent::Think(Thinking::Think)).or_insert(0.0) +=
        end.saturating_sub(at) as f64 / 1e9;
}
