//! The ways in which a trace can be played, and the one for each set of changes.

use anyhow::{Result, bail};
use clap::ValueEnum;
use ordo_playback::change::{self, PlanChange};
use ordo_playback::predict::{
    CallWorld, PredictError, PredictPhase, PredictedOutcome, Predictor, Unchanged,
};
use ordo_playback::real::Real;
use serde::Serialize;

/// The objects that are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    /// The calls of the programs.
    Calls,
    /// The requests of the trace.
    Requests,
}

/// Both playbacks of the unchanged trace, as far as they are possible.
pub(super) struct Ways<'a> {
    predictor: &'a Predictor<'a>,
    requests: Unchanged,
    /// The calls and their unchanged playback, or the reason why they are not played.
    calls: Result<(&'a CallWorld, Unchanged), String>,
    /// The way for changes that both can carry.
    usual: Method,
    /// Whether that way was asked for.
    is_asked: bool,
}

impl<'a> Ways<'a> {
    /// Plays the unchanged trace. `asked`: the way that the user wants; `bound`: the greatest
    /// error.
    ///
    /// # Errors
    /// A request lies outside the disk, or the calls are asked for and cannot be played.
    pub(super) fn new(
        predictor: &'a Predictor<'a>,
        asked: Option<Method>,
        bound: f64,
    ) -> Result<Ways<'a>> {
        let requests = predictor.unchanged()?;
        let calls = match asked {
            Some(Method::Requests) => Err("the requests are played, as asked for".into()),
            _ => calls(predictor, bound)?,
        };
        if let (Some(Method::Calls), Err(why)) = (asked, &calls) {
            bail!("--play calls: {why}");
        }
        let prefers_calls = |world: &CallWorld| {
            asked.is_some() || world.knows_the_journal() || requests.error.abs() > bound
        };
        let usual = match &calls {
            Ok((world, _)) if prefers_calls(world) => Method::Calls,
            _ => Method::Requests,
        };
        Ok(Ways { predictor, requests, calls, usual, is_asked: asked.is_some() })
    }

    /// The way for changes that both can carry.
    pub(super) fn usual(&self) -> Method {
        self.usual
    }

    /// The way for a set of changes. Where one client waits at a time, another disk or place alters
    /// no request, and these are as they were, unless the other disk is the first with a volatile
    /// cache; with several clients it decides who is committed together.
    pub(super) fn method(&self, set: &[PlanChange]) -> Method {
        let is_of_places = !set.is_empty() && set.iter().all(PlanChange::is_of_places);
        let needs_flushes = || self.predictor.needs_flushes(set);
        match &self.calls {
            Ok(_) if set.iter().any(PlanChange::needs_calls) => Method::Calls,
            Ok((world, _)) if needs_flushes() && !self.is_asked => {
                match world.knows_the_journal() {
                    true => Method::Calls,
                    false => Method::Requests,
                }
            }
            Ok((world, _)) if is_of_places && !world.plan.at_once && !self.is_asked => {
                Method::Requests
            }
            _ => self.usual,
        }
    }

    /// Plays the unchanged trace and sets of changes on a real device, all in one way.
    ///
    /// # Errors
    /// A change means nothing for this trace, or the device failed.
    pub(super) fn on_device(
        &self,
        real: &Real,
        sets: &[&[PlanChange]],
        rounds: usize,
        follow: impl FnMut(PredictPhase),
    ) -> Result<(Method, Vec<PredictedOutcome>)> {
        let method =
            sets.iter().map(|set| self.method(set)).max_by_key(|method| *method == Method::Calls);
        Ok(match (method, &self.calls) {
            (Some(Method::Calls), Ok((world, _))) => {
                (Method::Calls, world.on_device(real, sets, rounds, follow)?)
            }
            _ => (Method::Requests, self.predictor.on_device(real, sets, rounds, follow)?),
        })
    }

    /// The other way, if it was taken for one of these sets.
    pub(super) fn other<'s>(&self, mut taken: impl Iterator<Item = &'s Method>) -> Option<Method> {
        taken.find(|method| **method != self.usual).copied()
    }

    /// The unchanged playback.
    pub(super) fn unchanged(&self, method: Method) -> &Unchanged {
        match (method, &self.calls) {
            (Method::Calls, Ok((_, unchanged))) => unchanged,
            _ => &self.requests,
        }
    }

    /// The calls, if they can be played.
    pub(super) fn world(&self) -> Option<&'a CallWorld> {
        self.calls.as_ref().ok().map(|(world, _)| *world)
    }

    /// The reason why calls are not played.
    pub(super) fn why_not_calls(&self) -> Option<&String> {
        self.calls.as_ref().err()
    }

    /// Plays the trace with a set of changes.
    ///
    /// # Errors
    /// A change means nothing for this trace.
    pub(super) fn changed(&self, set: &[PlanChange]) -> Result<PredictedOutcome> {
        match (self.method(set), &self.calls) {
            (Method::Calls, Ok((world, unchanged))) => Ok(world.changed(set, unchanged.error)?),
            (_, calls) => self.predictor.changed(set, self.requests.error).map_err(|error| {
                match (error, calls) {
                    // The reason for the reason.
                    (PredictError::Refused(refused), Err(why))
                        if refused.why == change::NEEDS_CALLS =>
                    {
                        anyhow::anyhow!("{refused}: {why}")
                    }
                    (error, _) => error.into(),
                }
            }),
        }
    }
}

/// The calls of the trace and their unchanged playback, or the reason why they are not played.
fn calls<'a>(
    predictor: &'a Predictor<'_>,
    bound: f64,
) -> Result<Result<(&'a CallWorld, Unchanged), String>> {
    let world = match predictor.calls() {
        Ok(world) => world,
        Err(why) => return Ok(Err(why.to_string())),
    };
    let unchanged = world.unchanged()?;
    if unchanged.error.abs() > bound {
        return Ok(Err(format!(
            "playback of the calls is {:+.1} % off, more than --bound {:.1} %",
            unchanged.error * 100.0,
            bound * 100.0
        )));
    }
    Ok(Ok((world, unchanged)))
}
