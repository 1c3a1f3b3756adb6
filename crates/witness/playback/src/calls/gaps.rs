//! The own times of an fsync of ext3 and ext4, between the requests that it waits for.

use ordo_annotate::calls::StoredCall;
use rustc_hash::FxHashMap;

use super::UnderWay;
use super::facts::{SLEEP, WAKE_MIN, Waited};
use crate::traffic::{Role, SeenTraffic};

/// The own time of an fsync that waits for one request after the other, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncGaps {
    /// From its call to its first request.
    pub enter: u64,
    /// From the completion of a request to the issue of the next one.
    pub between: u64,
    /// From the completion of a flush to the issue of the commit block that waited for it, and from
    /// that block's to the issue of the flush behind it: the block layer sends these by itself,
    /// without a task that wakes up.
    pub in_flush: u64,
    /// From the completion of its last request to its return.
    pub leave: u64,
    /// The part of each own time of a program or of the file system that a processor needs to wake
    /// up, if it has slept; 0 if most fsyncs of the trace wait too shortly for one to sleep.
    pub wake: u64,
    /// Each of these is as much more or less as chance has it, by at most so many thousandths.
    pub scatter: u64,
}

/// The own times of the fsyncs of a trace: each with the time that the request before it took.
#[derive(Default)]
struct OwnTimes(Vec<(u64, u64)>);

impl OwnTimes {
    fn sorted(&self, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut times: Vec<u64> =
            self.0.iter().filter(|(_, after)| wanted(*after)).map(|(time, _)| *time).collect();
        times.sort_unstable();
        times
    }

    fn median(&self) -> u64 {
        let times = self.sorted(|_| true);
        times.get(times.len() / 2).copied().unwrap_or(0)
    }

    /// Half the width, in thousandths of the median, of the even distribution that has the first
    /// and the ninth tenth of the times.
    fn scatter(&self) -> u64 {
        let times = self.sorted(|_| true);
        let at = |tenths: usize| times.get(times.len() * tenths / 10).copied().unwrap_or(0);
        ((at(9) - at(1)) * 5000 / 8 / at(5).max(1)).min(900)
    }

    /// The median behind requests during which processors sleep, without the time of those few that
    /// found one awake.
    fn wake(&self) -> Option<u64> {
        let times = self.sorted(|after| after >= SLEEP);
        (times.len() >= WAKE_MIN).then(|| times[times.len() / 2] - times[times.len() / 20])
    }
}

/// The own times of the fsyncs of a trace; zero unless they are of ext3 or ext4.
pub(super) fn sync_gaps(
    is_jbd2: bool,
    (calls, waited): (&[StoredCall], &[Waited<'_>]),
    (owners, seen): (&FxHashMap<u64, u64>, &[SeenTraffic]),
) -> SyncGaps {
    if !is_jbd2 {
        return SyncGaps::default();
    }
    let [mut enter, mut between, mut in_flush, mut leave] = [const { OwnTimes(Vec::new()) }; 4];
    let flushes = UnderWay::new(seen.iter().filter(|s| s.role == Role::Flush));
    let took = |one: &SeenTraffic| one.completed.saturating_sub(one.issued);
    let calls = calls.iter().filter(|call| !call.waits.is_empty());
    for (call, waited) in calls.zip(waited) {
        let within = || waited.seen.iter().filter(|s| s.issued >= call.began);
        let own = |s: &&&SeenTraffic| {
            s.role == Role::Data && owners.get(&s.number).copied() == call.inode
        };
        let first = within().filter(own).map(|s| s.issued).min();
        // With contents in the log, the commit comes before the first write in place.
        let commits = |first: u64| within().any(|s| s.role.is_journal() && s.completed <= first);
        let first =
            first.filter(|first| flushes.within(call.began, *first) == 0 && !commits(*first));
        enter.0.extend(first.map(|first| (first - call.began, 0)));
        let ends = within().filter(|s| s.completed <= call.ended).max_by_key(|s| s.completed);
        leave.0.extend(ends.map(|s| (call.ended - s.completed, took(s))));
        for two in waited.seen.windows(2) {
            let gap = two[1].issued.checked_sub(two[0].completed);
            let of_flush = matches!(
                (two[0].role, two[1].role),
                (Role::Flush, Role::Commit) | (Role::Commit, Role::Flush)
            );
            let times = if of_flush { &mut in_flush } else { &mut between };
            times.0.extend(gap.map(|gap| (gap, took(two[0]))));
        }
    }
    let sleeps = leave.sorted(|after| after >= SLEEP).len() * 2 > leave.0.len();
    let wakes =
        [&between, &in_flush, &leave].into_iter().filter(|_| sleeps).filter_map(OwnTimes::wake);
    let wakes: Vec<u64> = wakes.collect();
    let seen_enough = enter.0.len() >= WAKE_MIN;
    SyncGaps {
        enter: if seen_enough { enter.median() } else { between.median() },
        between: between.median(),
        in_flush: if in_flush.0.is_empty() { between.median() } else { in_flush.median() },
        leave: leave.median(),
        wake: wakes.iter().sum::<u64>() / wakes.len().max(1) as u64,
        scatter: leave.scatter(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost of waking up is that of the times behind long requests alone, and needs enough of
    /// them.
    #[test]
    fn waking_up_is_seen_behind_long_requests() {
        let mut times = OwnTimes((0..40).map(|n| (100 + n, SLEEP)).collect());
        assert_eq!((times.median(), times.wake()), (120, Some(18)));
        // From 104 to 136: 16 of 1.6 halves around 120.
        assert_eq!(times.scatter(), 32 * 5000 / 8 / 120);
        times.0.extend((0..200).map(|_| (5, SLEEP - 1)));
        assert_eq!(times.wake(), Some(18));
        times.0.retain(|(time, _)| *time < 110);
        assert_eq!(times.wake(), None);
        assert_eq!((OwnTimes::default().median(), OwnTimes::default().scatter()), (0, 0));
    }
}
