//! The critical path: the time of a playback, by cause.

use std::collections::BTreeMap;

use crate::plan::Plan;
use crate::play::Played;
use crate::traffic::Role;

/// A cause on which time was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case", untagged)]
pub enum Spent {
    /// On a request, waiting for the disk included.
    On(Role),
    /// Between requests: processor time, sleeps, timers.
    Think(Thinking),
    /// Until a moment of the recorder's clock: no request, and no work of a program that the trace
    /// shows, decides when a request is sent. No change makes this time shorter or longer.
    Clock(RecordedClock),
}

/// The key of the recorded clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedClock {
    /// The only one.
    Clock,
}

/// The key of think time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// The only one.
    Think,
}

impl Spent {
    /// The name as a key.
    pub const fn key(self) -> &'static str {
        match self {
            Spent::On(role) => role.key(),
            Spent::Think(_) => "think",
            Spent::Clock(_) => "clock",
        }
    }
}

/// The nanoseconds that each kind of request, and thinking, takes on the critical path from `from`
/// to the end of step `last`. From each request the path leads back to the request whose completion
/// let it begin; the sum is the whole time.
pub fn spent(plan: &Plan, played: &Played, from: u64, last: usize) -> BTreeMap<Spent, u64> {
    let mut spent = BTreeMap::new();
    let mut add = |what, (begin, end): (u64, u64)| {
        let time = end.saturating_sub(begin.max(from));
        if time > 0 {
            *spent.entry(what).or_insert(0) += time;
        }
    };
    let mut step = last;
    loop {
        let (issued, completed) = played.times[step];
        add(Spent::On(plan.step(step).role), (issued, completed));
        if issued <= from {
            return spent;
        }
        let cause = plan.after(step).iter().max_by_key(|after| {
            (played.times[after.step].1 + after.think, std::cmp::Reverse(after.step))
        });
        let (done, ready) = cause.map_or((from, 0), |after| {
            let done = played.times[after.step].1;
            (done, done + after.think)
        });
        let is_pinned = plan.step(step).not_before > ready;
        let until = match is_pinned {
            true => Spent::Clock(RecordedClock::Clock),
            false => Spent::Think(Thinking::Think),
        };
        add(until, (done, issued));
        match cause.filter(|_| done >= from) {
            Some(after) => step = after.step,
            None => return spent,
        }
    }
}
