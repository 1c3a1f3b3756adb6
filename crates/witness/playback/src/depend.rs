//! Dependencies between requests: a plan from the times of a trace.
//!
//! Only the file system knows why it issued a request at some time. The times show most of it,
//! because a task that waits for a request issues its next one shortly after the completion:
//!
//! - A request waits for all requests that completed since the issue of the request before it. If
//!   none did, it was issued together with the request before it, and waits for the same requests.
//!   The time that passed in between is think time: the processor's, or a sleep.
//! - A checkpoint (a block written at its fixed location that the journal holds) is written by a
//!   timer, so long after its transaction's commit, and no request waits for it. There are two
//!   exceptions. A request that is issued right after a checkpoint's completion, and long after
//!   all others, waited for space in the journal. Checkpoints after the last other request of the
//!   trace belong to a `sync` or an unmount.
//!
//! With every think time as recorded, a disk that takes the recorded time for each request gives
//! the recorded times again. So any difference in playback is an effect of the disk or of the
//! change.

use std::collections::{BTreeMap, BTreeSet};

use ordo_trace::{Flags, RequestOp};
use rustc_hash::FxHashMap;

use crate::plan::{After, Plan, PlanStep, RANK, RecordedStep};
use crate::traffic::{Role, SeenTraffic};

/// A checkpoint counts as waited for if the next request follows everything else by more than this
/// time, in nanoseconds.
const LATE: u64 = 1_000_000;
/// The second condition: the request follows the checkpoint's completion in less than this part
/// (one over the number) of that time.
const AT_ONCE: u64 = 4;

/// The plan of a trace: the same requests, each after the requests for which it waited. Step `n` is
/// request `n` of `traffic`.
pub fn plan(traffic: &[SeenTraffic]) -> Plan {
    let background = background(traffic);
    let mut order: Vec<usize> = (0..traffic.len()).filter(|n| !background[*n]).collect();
    order.sort_by_key(|n| (traffic[*n].completed, *n));
    let mut commits: FxHashMap<u64, usize> = FxHashMap::default();
    let mut plan = Plan::default();
    let mut lane = Lane { order: &order, next: 0, waits: Vec::new() };
    for (number, seen) in traffic.iter().enumerate() {
        if background[number] {
            let commit = seen.transaction.and_then(|t| commits.get(&t)).copied();
            let after = commit.map(|step| After {
                step,
                think: seen.issued.saturating_sub(traffic[step].completed),
            });
            let not_before = if after.is_some() { 0 } else { seen.issued };
            plan.add(step_of(seen, number, not_before), after);
            continue;
        }
        let after = lane.waits_of(traffic, number);
        let not_before = if after.is_empty() { seen.issued } else { 0 };
        plan.add(step_of(seen, number, not_before), after);
        if let (Role::Commit, Some(transaction)) = (seen.role, seen.transaction) {
            commits.insert(transaction, number);
        }
    }
    plan
}

/// The plan of requests whose times are not known: so many at once, in the order of the trace. A
/// flush waits for everything before it, and everything behind it waits for the flush; a request
/// waits for the writes before it that share bytes with it.
pub fn in_order(traffic: &[SeenTraffic], depth: usize) -> Plan {
    let mut plan = Plan::default();
    let mut since = Since::default();
    for (number, seen) in traffic.iter().enumerate() {
        let is_barrier = seen.op == RequestOp::Flush || seen.flags.contains(Flags::PREFLUSH);
        let mut waits: BTreeSet<usize> = since.barrier.into_iter().collect();
        if seen.role == Role::Mark {
            waits.extend(number.checked_sub(1));
        } else if is_barrier {
            waits.extend(since.requests.drain(..));
        } else {
            waits.extend(since.requests.len().checked_sub(depth).map(|n| since.requests[n]));
            waits.extend(since.writers_of(seen));
        }
        let after = waits.into_iter().map(|step| After { step, think: 0 });
        plan.add(step_of(seen, number, 0), after);
        if is_barrier {
            since = Since { barrier: Some(number), ..Since::default() };
        } else if seen.role != Role::Mark {
            since.add(seen, number);
        }
    }
    plan
}

/// The requests since the last flush.
#[derive(Default)]
struct Since {
    barrier: Option<usize>,
    requests: Vec<usize>,
    /// The last writer of each range: by first byte, the end and the request.
    writers: BTreeMap<u64, (u64, usize)>,
}

impl Since {
    fn overlaps(&self, seen: &SeenTraffic) -> Vec<(u64, (u64, usize))> {
        let end = seen.offset + seen.len;
        let below = self.writers.range(..end).rev();
        // Ranges do not overlap, so that those below are in order of their ends too.
        below.take_while(|(_, (to, _))| *to > seen.offset).map(|(at, it)| (*at, *it)).collect()
    }

    fn writers_of(&self, seen: &SeenTraffic) -> Vec<usize> {
        self.overlaps(seen).into_iter().map(|(_, (_, who))| who).collect()
    }

    fn add(&mut self, seen: &SeenTraffic, number: usize) {
        self.requests.push(number);
        if seen.op == RequestOp::Read || seen.len == 0 {
            return;
        }
        let (begin, end) = (seen.offset, seen.offset + seen.len);
        for (at, (to, who)) in self.overlaps(seen) {
            self.writers.remove(&at);
            if at < begin {
                self.writers.insert(at, (begin, who));
            }
            if to > end {
                self.writers.insert(end, (to, who));
            }
        }
        self.writers.insert(begin, (end, number));
    }
}

/// The requests that wait for each other.
struct Lane<'a> {
    /// The requests in order of completion.
    order: &'a [usize],
    /// The first in `order` for which no request has waited yet.
    next: usize,
    /// The requests that the last one waited for.
    waits: Vec<usize>,
}

impl Lane<'_> {
    /// The requests for which request `number` waited. Callers ask for requests in order of issue.
    fn waits_of(&mut self, traffic: &[SeenTraffic], number: usize) -> Vec<After> {
        let issued = traffic[number].issued;
        let mut since = Vec::new();
        while let Some(done) = self.order.get(self.next).copied() {
            // A mark completes when it is issued: only marks before this request count.
            if traffic[done].completed > issued
                || (done >= number && traffic[done].completed == issued)
            {
                break;
            }
            self.next += 1;
            since.push(done);
        }
        if !since.is_empty() {
            self.waits = since;
        }
        let last = self.waits.iter().map(|n| traffic[*n].completed).max().unwrap_or(0);
        let think = issued.saturating_sub(last);
        // All of them have to be complete; the last one's completion starts the think time. A
        // change that makes another one the last leaves the think time as it is.
        self.waits.iter().map(|step| After { step: *step, think }).collect()
    }
}

fn step_of(seen: &SeenTraffic, index: usize, not_before: u64) -> PlanStep {
    PlanStep {
        disk: 0,
        op: seen.op,
        offset: seen.offset,
        len: seen.len,
        fua: seen.flags.contains(Flags::FUA),
        preflush: seen.flags.contains(Flags::PREFLUSH),
        role: seen.role,
        transaction: seen.transaction,
        copies: seen.copies.clone(),
        checkpoint: seen.checkpoint,
        recorded: Some(RecordedStep {
            number: seen.number,
            issued: seen.issued,
            took: seen.completed - seen.issued,
        }),
        text: seen.text.clone(),
        not_before,
        order: (index as u64 + 1) * RANK,
    }
}

/// For each request, whether it is a checkpoint for which no request waits.
fn background(traffic: &[SeenTraffic]) -> Vec<bool> {
    let mut background: Vec<bool> = traffic.iter().map(|seen| seen.checkpoint).collect();
    let last = traffic.iter().rposition(|seen| !seen.checkpoint && seen.role != Role::Flush);
    background.iter_mut().skip(last.map_or(0, |n| n + 1)).for_each(|b| *b = false);
    let mut done: Vec<usize> = (0..traffic.len()).filter(|n| traffic[*n].checkpoint).collect();
    done.sort_by_key(|n| traffic[*n].completed);
    let mut others: Vec<u64> =
        traffic.iter().filter(|s| !s.checkpoint).map(|s| s.completed).collect();
    others.sort_unstable();
    for seen in traffic.iter().filter(|seen| !seen.checkpoint) {
        let before = others.partition_point(|at| *at <= seen.issued);
        let gap = before.checked_sub(1).map_or(u64::MAX, |n| seen.issued - others[n]);
        let end = done.partition_point(|n| traffic[*n].completed <= seen.issued);
        let Some(at) = end.checked_sub(1) else { continue };
        let waited = traffic[done[at]].completed;
        if gap <= LATE || seen.issued - waited > gap / AT_ONCE {
            continue;
        }
        // Checkpoints that were under way together were waited for together.
        let floor = seen.issued - gap.min(seen.issued);
        for n in done[..end].iter().rev().take_while(|n| traffic[**n].completed > floor) {
            background[*n] = false;
        }
    }
    background
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write from `issued` to `completed`, in microseconds.
    fn write(number: u64, (issued, completed): (u64, u64), role: Role) -> SeenTraffic {
        SeenTraffic {
            number,
            op: RequestOp::Write,
            flags: Flags::empty(),
            offset: number * 4096,
            len: 4096,
            issued: issued * 1000,
            completed: completed * 1000,
            role,
            transaction: role.is_journal().then_some(1),
            copies: Vec::new(),
            checkpoint: role == Role::Metadata,
            text: None,
        }
    }

    fn waits(plan: &Plan, step: usize) -> Vec<(usize, u64)> {
        plan.after(step).iter().map(|after| (after.step, after.think / 1000)).collect()
    }

    /// Two writes that are issued together wait for the same ones; a write after both waits for
    /// both, and its think time is that since the later one.
    #[test]
    fn requests_issued_together_wait_for_the_same_ones() {
        let times = [(0, 100), (150, 400), (160, 300), (450, 500)];
        let seen = times.iter().enumerate();
        let seen: Vec<_> = seen.map(|(n, t)| write(n as u64, *t, Role::Data)).collect();
        let plan = plan(&seen);
        assert_eq!(plan.step(0).not_before, 0);
        assert_eq!(waits(&plan, 1), [(0, 50)]);
        assert_eq!(waits(&plan, 2), [(0, 60)]);
        assert_eq!(waits(&plan, 3), [(2, 50), (1, 50)]);
    }

    /// A checkpoint in the middle of a chain, for which no request waits, keeps its own time, and
    /// the chain does not wait for it. A checkpoint for which the next write waited, after a long
    /// pause, belongs to the chain; so do those at the end.
    #[test]
    fn checkpoints_have_their_own_time_unless_somebody_waits() {
        let times = [
            (0, 1000, Role::Commit),
            (1100, 9000, Role::Metadata),
            (1200, 2000, Role::Data),
            (2100, 3000, Role::Data),
            // The log is full: the next write waits for a checkpoint.
            (3100, 8000, Role::Metadata),
            (9100, 9500, Role::Data),
            (9600, 9900, Role::Metadata),
        ];
        let seen = times.iter().enumerate();
        let seen: Vec<_> = seen.map(|(n, (a, b, role))| write(n as u64, (*a, *b), *role)).collect();
        let own = background(&seen);
        assert_eq!(own, [false, false, false, false, false, false, false]);
        // The first checkpoint ends long before the write that follows: no request waits for it
        // now.
        let mut early = seen.clone();
        early[1].completed = 2_500_000;
        early[4].completed = 9_050_000;
        let own = background(&early);
        assert_eq!(own, [false, true, false, false, false, false, false]);
        let plan = plan(&early);
        assert_eq!(plan.step(1).not_before, 1_100_000);
        assert_eq!(waits(&plan, 2), [(0, 200)]);
        assert_eq!(waits(&plan, 3), [(2, 100)]);
        assert_eq!(waits(&plan, 5), [(4, 50)]);
        assert_eq!(waits(&plan, 6), [(5, 100)]);
    }

    /// Without times, two requests are under way at once; flushes are barriers; a write waits for
    /// an earlier one of the same bytes. Would catch a playback that lets a later write pass a
    /// flush, or two writes of one block change places.
    #[test]
    fn without_times_flushes_and_overlaps_order_the_requests() {
        let at = |number: u64, block: u64| SeenTraffic {
            offset: block * 4096,
            ..write(number, (0, 0), Role::Data)
        };
        let flush = |number| SeenTraffic {
            op: RequestOp::Flush,
            len: 0,
            role: Role::Flush,
            ..at(number, 0)
        };
        let pre = SeenTraffic { flags: Flags::PREFLUSH, ..at(6, 9) };
        let seen = [at(0, 5), at(1, 5), at(2, 7), flush(3), at(4, 1), at(5, 2), pre, at(7, 3)];
        let plan = in_order(&seen, 2);
        let waits = |n| plan.after(n).iter().map(|after| after.step).collect::<Vec<_>>();
        assert_eq!([waits(0), waits(1), waits(2)], [vec![], vec![0], vec![0]]);
        assert_eq!([waits(3), waits(4), waits(5)], [vec![0, 1, 2], vec![3], vec![3]]);
        assert_eq!([waits(6), waits(7)], [vec![3, 4, 5], vec![6]]);
        assert!(plan.step(6).preflush);
        // The middle of a long write is written again, and then all of it.
        let long = SeenTraffic { len: 3 * 4096, ..at(0, 1) };
        let again = SeenTraffic { len: 3 * 4096, ..at(2, 1) };
        let plan = in_order(&[long, at(1, 2), again], 9);
        assert_eq!(plan.after(2).iter().map(|after| after.step).collect::<Vec<_>>(), [0, 1]);
    }
}
