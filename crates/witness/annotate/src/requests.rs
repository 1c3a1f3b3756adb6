//! Numbers of a trace that need no file system: how many requests, how large, how sequential, how
//! many at once, how long each took, and which processes sent them.

use std::collections::BTreeMap;

use ordo_trace::{Flags, RequestOp, Trace};
use serde::Serialize;

/// Values at shares of all, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// The least.
    pub least: u64,
    /// The median.
    pub p50: u64,
    /// Nine of ten are at most this.
    pub p90: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p999: u64,
    /// The greatest.
    pub most: u64,
}

impl Percentiles {
    /// The percentiles of values in any order; `None` if there are none. Each is one of the values.
    pub fn of(mut values: Vec<u64>) -> Option<Percentiles> {
        values.sort_unstable();
        let (least, most) = (*values.first()?, *values.last()?);
        // The smallest value that is not less than this share of all.
        let at = |thousandths: usize| {
            let rank = (values.len() * thousandths).div_ceil(1000);
            values[rank.saturating_sub(1)]
        };
        Some(Percentiles { least, p50: at(500), p90: at(900), p99: at(990), p999: at(999), most })
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KindNumbers {
    /// The number of requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The requests that begin where the one of this kind before them ended.
    pub sequential: u64,
    /// The bytes of these.
    pub sequential_bytes: u64,
    /// Lengths in bytes.
    pub sizes: Option<Percentiles>,
    /// Nanoseconds from issue to completion, of requests that succeeded or failed; `None` if the
    /// trace does not show it.
    pub latency: Option<Percentiles>,
    /// The sum of these, in nanoseconds.
    pub waited: u64,
}

/// Requests of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessNumbers {
    /// The name.
    pub process: String,
    /// The number of requests.
    pub requests: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// The bytes read.
    pub read: u64,
    /// The bytes written.
    pub written: u64,
    /// The sum of latencies, in nanoseconds.
    pub waited: u64,
}

/// Numbers of a trace's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestNumbers {
    /// Nanoseconds from the first issue to the last end; `None` if the trace has no times.
    pub nanos: Option<u64>,
    /// Reads.
    pub reads: KindNumbers,
    /// Writes, with writes of zeros.
    pub writes: KindNumbers,
    /// Flushes, without those that a write asks for.
    pub flushes: KindNumbers,
    /// Discards.
    pub discards: KindNumbers,
    /// Writes that ask for a flush before them.
    pub preflushes: u64,
    /// Writes that are durable at their end (FUA).
    pub fua: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests whose end is not in the trace.
    pub unfinished: u64,
    /// The most requests under way at once; `None` if the trace does not show it.
    pub queue_most: Option<u64>,
    /// Requests under way, as the mean over the time in which there was one.
    pub queue_mean: Option<f64>,
    /// Nanoseconds in which at least one request was under way.
    pub busy: Option<u64>,
    /// Processes, those with the most bytes first. Requests without a known process are not in it.
    pub processes: Vec<ProcessNumbers>,
}

/// Values of one kind as they are gathered.
#[derive(Default)]
struct Gathered {
    numbers: KindNumbers,
    sizes: Vec<u64>,
    took: Vec<u64>,
    end: Option<u64>,
}

impl Gathered {
    fn add(&mut self, offset: u64, len: u64, took: Option<u64>) {
        let numbers = &mut self.numbers;
        numbers.requests += 1;
        numbers.bytes = numbers.bytes.saturating_add(len);
        if len > 0 && self.end == Some(offset) {
            numbers.sequential += 1;
            numbers.sequential_bytes = numbers.sequential_bytes.saturating_add(len);
        }
        self.end = Some(offset.saturating_add(len));
        self.sizes.push(len);
        self.took.extend(took);
        numbers.waited = numbers.waited.saturating_add(took.unwrap_or(0));
    }

    fn finish(self) -> KindNumbers {
        let (sizes, latency) = (Percentiles::of(self.sizes), Percentiles::of(self.took));
        KindNumbers { sizes, latency, ..self.numbers }
    }
}

/// The most requests under way, the nanoseconds with at least one, and the sum over all of them.
fn queue(mut moments: Vec<(u64, bool)>) -> (u64, u64, u128) {
    // At one moment, ends come before begins.
    moments.sort_unstable();
    let (mut now, mut most, mut busy, mut sum, mut last) = (0u64, 0, 0, 0u128, 0);
    for (at, is_begin) in moments {
        if now > 0 {
            busy += at - last;
            sum += u128::from(at - last) * u128::from(now);
        }
        last = at;
        now = if is_begin { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    (most, busy, sum)
}

impl RequestNumbers {
    /// The numbers of a trace.
    pub fn of(trace: &Trace) -> RequestNumbers {
        let all = trace.requests();
        // A trace that has no completions counts each request as done when it was issued.
        let has_ends = trace.timed() && all.iter().any(|r| r.end.is_some_and(|e| e.at > r.issued));
        let mut out = RequestNumbers::default();
        let mut kinds: [Gathered; 4] = std::array::from_fn(|_| Gathered::default());
        let (mut moments, mut processes) = (Vec::new(), BTreeMap::<&str, ProcessNumbers>::new());
        for (number, r) in all.iter().enumerate() {
            let kind = match r.op {
                RequestOp::Read => 0,
                RequestOp::Write | RequestOp::WriteZeroes => 1,
                RequestOp::Flush => 2,
                RequestOp::Discard => 3,
                RequestOp::Mark => continue,
            };
            let took = r.end.filter(|_| has_ends);
            let took = took.map(|end| end.at.as_nanos().saturating_sub(r.issued.as_nanos()));
            kinds[kind].add(r.offset, r.len, took);
            let issued = r.issued.as_nanos();
            moments.extend(took.map(|took| [(issued, true), (issued + took, false)]));
            out.preflushes += u64::from(r.flags.contains(Flags::PREFLUSH));
            out.fua += u64::from(r.flags.contains(Flags::FUA));
            out.failed += u64::from(r.end.is_some_and(|end| !end.ok));
            out.unfinished += u64::from(r.end.is_none());
            if let Some(name) = trace.process(number) {
                let one = processes.entry(name).or_default();
                one.requests += 1;
                one.flushes += u64::from(kind == 2);
                let (read, written) =
                    (if kind == 0 { r.len } else { 0 }, if kind == 1 { r.len } else { 0 });
                one.read = one.read.saturating_add(read);
                one.written = one.written.saturating_add(written);
                one.waited = one.waited.saturating_add(took.unwrap_or(0));
            }
        }
        let times = all.iter().map(|r| r.issued.as_nanos());
        let ends = all.iter().filter_map(|r| r.end).map(|end| end.at.as_nanos());
        let span = times.clone().min().zip(times.chain(ends).max());
        out.nanos = span.filter(|_| trace.timed()).map(|(from, to)| to - from);
        if has_ends {
            let (most, busy, sum) = queue(moments.into_iter().flatten().collect());
            (out.queue_most, out.busy) = (Some(most), Some(busy));
            out.queue_mean = (busy > 0).then(|| sum as f64 / busy as f64);
        }
        let named = processes.into_iter();
        out.processes =
            named.map(|(name, one)| ProcessNumbers { process: name.to_owned(), ..one }).collect();
        out.processes.sort_by_key(|one| {
            std::cmp::Reverse((one.read.saturating_add(one.written), one.requests))
        });
        [out.reads, out.writes, out.flushes, out.discards] = kinds.map(Gathered::finish);
        out
    }
}

#[cfg(test)]
mod tests {
    use ordo_runtime::Time;
    use ordo_trace::{RequestEnd, TraceRequest};

    use super::*;

    fn trace(requests: &[(RequestOp, u64, u64, u64, u64)]) -> Trace {
        let mut trace = Trace::new(512, true);
        for (order, (op, offset, len, issued, took)) in (0..).zip(requests) {
            let (flags, epoch, data) = (Flags::empty(), 0, None);
            let at = Time::from_nanos(issued + took);
            let end = Some(RequestEnd { order, at, epoch, ok: true });
            let (op, offset, len, issued) = (*op, *offset, *len, Time::from_nanos(*issued));
            trace.push(TraceRequest { op, flags, offset, len, issued, epoch, end, data });
        }
        trace
    }

    /// Two writes that overlap in time, of which the second follows the first, a read between them
    /// that does not break the sequence, a flush alone. Catches a queue that counts a request that
    /// ends when another begins, a pause counted as busy, and a median between two values.
    #[test]
    fn numbers_of_a_few_requests() {
        use RequestOp::{Flush, Read, Write};
        let mut all = trace(&[
            (Write, 0, 4096, 100, 100),
            (Read, 1 << 20, 512, 150, 10),
            (Write, 4096, 8192, 160, 80),
            (Flush, 0, 0, 1000, 500),
            (Write, 4096, 512, 1500, 20),
        ]);
        all.set_process(0, "sync");
        all.set_process(3, "jbd2");
        all.set_process(4, "sync");
        let n = RequestNumbers::of(&all);
        assert_eq!((n.writes.requests, n.writes.bytes, n.writes.sequential), (3, 12_800, 1));
        assert_eq!(n.writes.sequential_bytes, 8192);
        let sizes = n.writes.sizes.unwrap();
        assert_eq!((sizes.least, sizes.p50, sizes.p99, sizes.most), (512, 4096, 8192, 8192));
        assert_eq!(n.writes.latency.unwrap().p50, 80);
        assert_eq!(n.flushes.latency.unwrap().most, 500);
        assert_eq!((n.queue_most, n.busy, n.nanos), (Some(2), Some(140 + 500 + 20), Some(1420)));
        assert_eq!(n.queue_mean, Some(710.0 / 660.0));
        let names: Vec<_> =
            n.processes.iter().map(|p| (&*p.process, p.requests, p.waited)).collect();
        assert_eq!(names, [("sync", 2, 120), ("jbd2", 1, 500)]);
    }

    /// A trace whose requests count as done at once shows no latency and no queue, and does not
    /// claim that both are 0.
    #[test]
    fn no_completions_are_no_latency() {
        let n = RequestNumbers::of(&trace(&[(RequestOp::Write, 0, 512, 5, 0)]));
        assert_eq!((n.writes.latency, n.queue_most, n.busy), (None, None, None));
        assert_eq!(
            RequestNumbers::of(&Trace::new(512, true)),
            RequestNumbers { nanos: None, ..RequestNumbers::default() }
        );
    }

    /// Of a thousand values the percentiles are those of their ranks.
    #[test]
    fn percentiles_are_values_at_their_ranks() {
        let p = Percentiles::of((1..=1000).rev().collect()).unwrap();
        let wanted = Percentiles { least: 1, p50: 500, p90: 900, p99: 990, p999: 999, most: 1000 };
        assert_eq!(p, wanted);
        assert_eq!(Percentiles::of(Vec::new()), None);
    }
}
