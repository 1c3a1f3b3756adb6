//! The waits of clients for each other. Traces of calls have neither processes
//! that start and end nor pipes and sockets, but their times show most of it:
//!
//! - A client begins when the call has ended that ended last before its first one. Whoever started
//!   it, a shell or a server, was busy until then, or slept.
//! - A client that did nothing while another one began and ended waited for it: a shell and its
//!   command.
//! - A client whose pauses mostly end right after another one's call, which had begun in the same
//!   pause, waited for that call: the client of a server, the next program in a pipe.
//!
//! Everything else may change places in a playback. All waits lead back in recorded time, to calls
//! that ended before the waiting one began and not just when it did, so none closes a circle.

use std::collections::BTreeMap;

/// The longest time from a call's end to the next one's begin, in nanoseconds, if the second waited
/// for the first.
const AT_ONCE: u64 = 1_000_000;
/// The part of a pause, one over the number, that this time takes at most.
const PART: u64 = 4;
/// The fewest pauses that show a client of another one.
const PAUSES_MIN: usize = 4;

/// A moment in a client's work: a number of its steps are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepsDone {
    /// The client's index.
    pub client: usize,
    /// The number of its steps.
    pub steps: usize,
}

/// A call of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenCall {
    pub(super) process: u64,
    pub(super) began: u64,
    pub(super) ended: u64,
    /// The number of steps that it and those before it are in its client.
    pub(super) steps: usize,
    /// Whether it is a step of a playback.
    pub(super) is_step: bool,
}

/// The wait of a step: for whom, and since when it could go on.
pub(super) type Waited = (u64, usize, u64);

/// The times of all calls.
pub(super) struct Order {
    /// The steps' calls in order of their ends.
    ends: Vec<SeenCall>,
    /// For each process the begin and the end of its calls, and the number of its steps.
    spans: BTreeMap<u64, (u64, u64, usize)>,
    /// The processes that have steps, in order of their ends.
    by_end: Vec<u64>,
    /// Processes whose pauses end right after a call of another one.
    asking: BTreeMap<u64, u64>,
}

impl Order {
    pub(super) fn new(calls: &[SeenCall]) -> Order {
        let mut spans: BTreeMap<u64, (u64, u64, usize)> = BTreeMap::new();
        for call in calls {
            let span = spans.entry(call.process).or_insert((call.began, call.ended, 0));
            *span = (span.0.min(call.began), span.1.max(call.ended), span.2.max(call.steps));
        }
        let mut ends: Vec<SeenCall> = calls.iter().filter(|call| call.is_step).copied().collect();
        ends.sort_by_key(|call| (call.ended, call.process));
        let mut by_end: Vec<u64> = spans.keys().copied().filter(|p| spans[p].2 > 0).collect();
        by_end.sort_by_key(|process| (spans[process].1, *process));
        let mut order = Order { ends, spans, by_end, asking: BTreeMap::new() };
        order.asking = order.asking(calls);
        order
    }

    /// The call after which a process begins whose first call is at `began`.
    pub(super) fn start(&self, began: u64) -> Option<Waited> {
        let behind = self.ends.partition_point(|call| call.ended < began);
        let last = self.ends[..behind].last()?;
        Some((last.process, last.steps, last.ended))
    }

    /// The other client for which a process waited in its pause from `from` to `to`.
    pub(super) fn within(&self, process: u64, (from, to): (u64, u64)) -> Option<Waited> {
        let behind = self.by_end.partition_point(|other| self.spans[other].1 < to);
        let ended = self.by_end[..behind].iter().rev();
        let mut recent = ended.take_while(|other| self.spans[other].1 > from);
        let child = recent.find(|other| **other != process && self.spans[other].0 >= from);
        if let Some(child) = child {
            let (_, end, steps) = self.spans[child];
            return Some((*child, steps, end));
        }
        let asked = self.asking.get(&process)?;
        let call = self.last_within(process, (from, to))?;
        let is_answer = call.process == *asked && is_at_once((from, to), call.ended);
        is_answer.then_some((call.process, call.steps, call.ended))
    }

    /// The call of another process that ended last in a pause, and had begun in it.
    fn last_within(&self, process: u64, (from, to): (u64, u64)) -> Option<&SeenCall> {
        let behind = self.ends.partition_point(|call| call.ended < to);
        let ended = self.ends[..behind].iter().rev();
        let mut recent = ended.take_while(|call| call.ended > from);
        recent.find(|call| call.process != process && call.began >= from)
    }

    /// The processes most of whose pauses with a call of another one end right after that call.
    fn asking(&self, calls: &[SeenCall]) -> BTreeMap<u64, u64> {
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut pauses: BTreeMap<(u64, u64), (usize, usize)> = BTreeMap::new();
        for call in calls.iter().filter(|call| call.is_step) {
            let before = last.insert(call.process, call.ended);
            let pause = before.filter(|before| *before < call.began);
            let Some(pause) = pause.map(|before| (before, call.began)) else { continue };
            let Some(other) = self.last_within(call.process, pause) else { continue };
            let seen = pauses.entry((call.process, other.process)).or_default();
            *seen = (seen.0 + usize::from(is_at_once(pause, other.ended)), seen.1 + 1);
        }
        let mostly = |(close, all): &(usize, usize)| *all >= PAUSES_MIN && 5 * *close >= 4 * *all;
        pauses.into_iter().filter(|(_, seen)| mostly(seen)).map(|(pair, _)| pair).collect()
    }
}

fn is_at_once((from, to): (u64, u64), ended: u64) -> bool {
    to - ended <= AT_ONCE.min((to - from) / PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(times: &[(u64, u64, u64)]) -> Vec<SeenCall> {
        let mut steps: BTreeMap<u64, usize> = BTreeMap::new();
        let call = |(process, began, ended): &(u64, u64, u64)| {
            let steps = steps.entry(*process).or_insert(0);
            *steps += 1;
            let (process, began, ended) = (*process, *began * 1000, *ended * 1000);
            SeenCall { process, began, ended, steps: *steps, is_step: true }
        };
        times.iter().map(call).collect()
    }

    /// A shell writes, its command syncs, it writes again; a second command begins after that.
    /// Would catch commands that begin at recorded times, as if no disk had made the shell wait.
    #[test]
    fn a_shell_waits_for_its_commands() {
        let order =
            Order::new(&calls(&[(1, 0, 5), (2, 900, 5000), (1, 5100, 5105), (3, 6000, 9000)]));
        assert_eq!(order.start(0), None);
        assert_eq!(order.start(900_000), Some((1, 1, 5_000)));
        assert_eq!(order.within(1, (5_000, 5_100_000)), Some((2, 1, 5_000_000)));
        assert_eq!(order.start(6_000_000), Some((1, 2, 5_105_000)));
        // The command has not ended: its shell did something meanwhile.
        assert_eq!(order.within(1, (5_000, 4_000_000)), None);
    }

    /// Calls that take no time, all at one moment, wait for none of each other. Would catch clients
    /// that each wait for the other's first call, and a playback that never ends.
    #[test]
    fn calls_of_one_moment_do_not_wait_for_each_other() {
        let order = Order::new(&calls(&[(1, 7, 7), (2, 7, 7), (1, 7, 7), (2, 9, 9)]));
        assert_eq!((order.start(7_000), order.within(1, (7_000, 7_000))), (None, None));
        assert_eq!(order.within(2, (7_000, 7_000)), None);
    }

    /// A client asks a server five times; each time it goes on when the server's fsync has ended.
    /// Two clients that sync by themselves, with pauses of any length, ask nobody. Would catch a
    /// wait between clients that only share a disk, which no change could then part.
    #[test]
    fn a_client_waits_for_its_server() {
        let asked =
            |n: u64| [(1, n * 10_000, n * 10_000 + 5), (2, n * 10_000 + 100, n * 10_000 + 9_900)];
        let order = Order::new(&calls(&(0..6).flat_map(asked).collect::<Vec<_>>()));
        assert_eq!(order.within(1, (5_000, 10_000_000)), Some((2, 1, 9_900_000)));
        let alone = |n: u64| {
            let late = 500 + n % 3 * 1000;
            [(1, n * 10_000, n * 10_000 + 4_000), (2, n * 10_000 + late, n * 10_000 + late + 3_000)]
        };
        let order = Order::new(&calls(&(0..20).flat_map(alone).collect::<Vec<_>>()));
        assert!(order.asking.is_empty(), "{:?}", order.asking);
    }
}
