//! Playback of calls: what the programs did is played, and a model of the journal's policies makes
//! the requests.
//!
//! A change of *who commits what, and when* alters which requests there are. No plan of recorded
//! requests shows that. So the calls of the programs are played instead (§2.2 of the paper): each
//! client makes its next call when the one before has returned and its think time has passed; a
//! write makes blocks dirty; an fsync commits, by policies that the trace shows ([`facts`]) or that
//! a change sets ([`JournalPolicy`]). The requests that follow go to the disk models.
//!
//! - [`CallPlan`]: the clients and their calls; [`order`]: the calls of others that they waited
//!   for.
//! - [`facts`]: places of blocks, bytes of log, and the policies, from the requests of the trace;
//!   [`gaps`]: the own times of fsyncs.
//! - [`JournalPolicy`]: the policies, and the changes of them.
//! - [`engine`]: the playback; `jbd2.rs` has the fsync of ext3 and ext4, which commits by a task of
//!   its own.

use std::collections::BTreeMap;

use ordo_annotate::calls::StoredCall;

use self::order::{Order, SeenCall, StepsDone, Waited};
use crate::traffic::SeenTraffic;

pub mod engine;
pub mod facts;
pub mod gaps;
mod growth;
mod jbd2;
mod log;
pub mod order;
mod pace;
mod policy;

pub use policy::{CommitOrder, ContentsPolicy, JournalPolicy};

/// The fewest fsyncs from which policies are read.
pub const SYNCS_MIN: usize = 4;

/// The part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAct {
    /// Bytes of a file change.
    Write {
        /// The file.
        file: u64,
        /// The first byte.
        offset: u64,
        /// The length in bytes.
        len: u64,
        /// Whether the file gets longer, or gets blocks.
        grows: bool,
    },
    /// A file is made durable.
    Sync {
        /// The file.
        file: u64,
        /// Whether its contents alone are, and what leads to them (fdatasync).
        data: bool,
    },
    /// Everything is made durable.
    SyncAll,
}

/// One step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientStep {
    /// The steps of another client after which it begins.
    pub after: Option<StepsDone>,
    /// Nanoseconds between the end of the step before, or of those of the other client, and the
    /// beginning of this one: the client's own time, and calls that wait for no request.
    pub think: u64,
    /// Nanoseconds within the call in which no request was under way, if it waited for any;
    /// otherwise all of them. A call may wait for a request of another file, or for another caller
    /// who does.
    pub busy: u64,
    /// Nanoseconds within the call in which no request was under way. A write on ext3 and ext4
    /// waits for requests that no table counts as its own.
    pub alone: u64,
    /// The act.
    pub act: ClientAct,
}

/// A client: a process or thread of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallClient {
    /// Its number in the trace.
    pub process: u64,
    /// The time of its first call, in nanoseconds on the trace's clock.
    pub began: u64,
    /// The steps of another client after which it begins, and the nanoseconds in between. `None`:
    /// no call had ended before its first one, so that it begins at its recorded time.
    pub after: Option<(StepsDone, u64)>,
    /// Its steps.
    pub steps: Vec<ClientStep>,
}

/// The clients of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPlan {
    /// The clients that change or sync something.
    pub clients: Vec<CallClient>,
    /// The first call's beginning and the last one's end, in nanoseconds on the trace's clock.
    pub bounds: (u64, u64),
    /// Calls that are not played, by the reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Whether several clients waited for requests at once: then the disk's speed decides who is
    /// committed together.
    pub at_once: bool,
    /// The number of fsyncs.
    pub syncs: usize,
    /// The nanoseconds that they took together.
    pub syncs_took: u64,
}

/// The reason why calls cannot be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallsError {
    /// No calls were recorded.
    #[error("the trace has no calls of programs; record it with `ordo trace run --calls`")]
    None,
    /// No call waits for a request.
    #[error(
        "the calls and the requests do not belong together: no fsync of {calls} calls waited for a request{clocks}"
    )]
    Apart {
        /// The number of calls.
        calls: usize,
        /// The clocks, if they disagree.
        clocks: String,
    },
    /// Too few calls wait.
    #[error("only {0} fsyncs waited for requests; {SYNCS_MIN} are needed to see the policies")]
    Few(usize),
    /// The end of a call comes before its beginning.
    #[error("call {0}: it ends before it begins")]
    Times(usize),
    /// A file's blocks have no place.
    #[error(
        "{files} of {of} files that are written and synced have no block in the trace: it is incomplete, or of another device"
    )]
    NoBlocks {
        /// The files without.
        files: usize,
        /// All files that are written and synced.
        of: usize,
    },
}

/// The number of a call's file: its inode, or the order of its path.
struct FileNumbers<'a> {
    paths: BTreeMap<&'a str, u64>,
}

impl<'a> FileNumbers<'a> {
    fn of(&mut self, call: &'a StoredCall) -> Option<u64> {
        if let Some(ino) = call.inode {
            return Some(ino);
        }
        let path = call.path.as_deref()?;
        let next = (1 << 62) + self.paths.len() as u64;
        Some(*self.paths.entry(path).or_insert(next))
    }
}

impl CallPlan {
    /// The clients of calls, which are in order of their beginnings.
    ///
    /// # Errors
    /// No calls, times that contradict each other, or none that belongs to a request.
    pub fn new(calls: &[StoredCall], seen: &[SeenTraffic]) -> Result<CallPlan, CallsError> {
        let requests = UnderWay::new(seen);
        if calls.is_empty() {
            return Err(CallsError::None);
        }
        if let Some(n) = calls.iter().position(|call| call.ended < call.began) {
            return Err(CallsError::Times(n));
        }
        let mut plan = CallPlan::default();
        let mut files = FileNumbers { paths: BTreeMap::new() };
        let mut clients: BTreeMap<u64, (CallClient, u64)> = BTreeMap::new();
        let mut waited = 0;
        let made = calls.iter().map(|call| files.of(call).filter(|_| growth::makes_file(call)));
        let made: Vec<Option<u64>> = made.collect();
        let mut acts: Vec<Vec<ClientAct>> = calls
            .iter()
            .map(|call| {
                let (acts, left_out) = acts(call, &mut files);
                if let Some(why) = left_out {
                    *plan.left_out.entry(why).or_insert(0) += 1;
                }
                acts
            })
            .collect();
        growth::mark(calls, &made, &mut acts);
        let order = Order::new(&seen_calls(calls, &acts));
        let mut waits: Vec<(u64, usize, Waited)> = Vec::new();
        for (call, acts) in calls.iter().zip(&acts) {
            let new = || {
                let (process, began) = (call.process, call.began);
                let (after, steps) = (None, Vec::new());
                (CallClient { process, began, after, steps }, call.began)
            };
            let (client, ended) = clients.entry(call.process).or_insert_with(new);
            let took = call.ended - call.began;
            let alone = took - requests.within(call.began, call.ended);
            waited += usize::from(!call.waits.is_empty());
            let other = (!acts.is_empty() && call.began > *ended)
                .then(|| order.within(call.process, (*ended, call.began)))
                .flatten();
            if let Some(other) = other {
                waits.push((call.process, client.steps.len(), other));
                *ended = other.2.max(*ended);
            }
            for (n, act) in acts.iter().enumerate() {
                let think = if n == 0 { call.began.saturating_sub(*ended) } else { 0 };
                let is_last = n + 1 == acts.len();
                let busy = if call.waits.is_empty() { took } else { alone };
                let (busy, alone) = if is_last { (busy, alone) } else { (0, 0) };
                client.steps.push(ClientStep { after: None, think, busy, alone, act: *act });
                *ended = call.ended.max(*ended);
                let is_sync = !matches!(act, ClientAct::Write { .. });
                plan.syncs += usize::from(is_sync);
                plan.syncs_took += u64::from(is_sync) * took;
            }
        }
        plan.clients = clients.into_values().map(|(client, _)| client).collect();
        plan.clients.retain(|client| !client.steps.is_empty());
        plan.wait(&order, waits);
        plan.at_once = waits_at_once(calls);
        if waited == 0 {
            return Err(apart(calls, requests.bounds()));
        }
        if waited < SYNCS_MIN {
            return Err(CallsError::Few(waited));
        }
        plan.bounds = span(calls).unwrap_or((0, 0));
        Ok(plan)
    }
}

impl CallPlan {
    /// Puts the waits for other clients into the plan: where each client begins, and those of
    /// steps, each with its process and index.
    fn wait(&mut self, order: &Order, waits: Vec<(u64, usize, Waited)>) {
        let indices: BTreeMap<u64, usize> =
            self.clients.iter().enumerate().map(|(n, client)| (client.process, n)).collect();
        let done = |process: u64, steps: usize| StepsDone { client: indices[&process], steps };
        for client in &mut self.clients {
            let start = order.start(client.began);
            client.after =
                start.map(|(process, steps, ended)| (done(process, steps), client.began - ended));
        }
        for (process, step, (other, steps, _)) in waits {
            self.clients[indices[&process]].steps[step].after = Some(done(other, steps));
        }
    }
}

/// Whether calls of two processes that waited for requests overlap.
fn waits_at_once(calls: &[StoredCall]) -> bool {
    let mut latest: Option<(u64, u64)> = None;
    for call in calls.iter().filter(|call| !call.waits.is_empty()) {
        if latest.is_some_and(|(process, ended)| process != call.process && call.began < ended) {
            return true;
        }
        if latest.is_none_or(|(_, ended)| call.ended >= ended) {
            latest = Some((call.process, call.ended));
        }
    }
    false
}

/// The times of calls, with the steps that each one has.
fn seen_calls(calls: &[StoredCall], acts: &[Vec<ClientAct>]) -> Vec<SeenCall> {
    let mut steps: BTreeMap<u64, usize> = BTreeMap::new();
    let seen = |(call, acts): (&StoredCall, &Vec<ClientAct>)| {
        let (process, began, ended) = (call.process, call.began, call.ended);
        let steps = steps.entry(process).or_insert(0);
        *steps += acts.len();
        SeenCall { process, began, ended, steps: *steps, is_step: !acts.is_empty() }
    };
    calls.iter().zip(acts).map(seen).collect()
}

/// The calls that begin and end between two moments, in nanoseconds on the trace's clock.
pub fn within(
    calls: &[StoredCall],
    (from, until): (u64, u64),
) -> impl Iterator<Item = &StoredCall> {
    calls.iter().filter(move |call| call.began >= from && call.ended <= until)
}

/// The first beginning and the last end of the calls that are played, in nanoseconds on the trace's
/// clock.
pub fn span<'a>(calls: impl IntoIterator<Item = &'a StoredCall>) -> Option<(u64, u64)> {
    let times = calls.into_iter().filter(|call| acts_of(call)).map(|call| (call.began, call.ended));
    times.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
}

/// The times at which any request was under way: intervals that do not touch, each with the
/// nanoseconds in all before it.
struct UnderWay {
    spans: Vec<(u64, u64, u64)>,
}

impl UnderWay {
    /// The requests are in order of issue.
    fn new<'a>(seen: impl IntoIterator<Item = &'a SeenTraffic>) -> UnderWay {
        let mut spans: Vec<(u64, u64, u64)> = Vec::new();
        for one in seen.into_iter().filter(|one| one.completed > one.issued) {
            match spans.last_mut() {
                Some(last) if one.issued <= last.1 => last.1 = last.1.max(one.completed),
                last => {
                    let before = last.map_or(0, |last| last.2 + last.1 - last.0);
                    spans.push((one.issued, one.completed, before));
                }
            }
        }
        UnderWay { spans }
    }

    /// The nanoseconds before a moment.
    fn before(&self, at: u64) -> u64 {
        let until = self.spans.partition_point(|span| span.0 < at);
        let last = until.checked_sub(1).map(|n| self.spans[n]);
        last.map_or(0, |(from, to, before)| before + at.min(to) - from)
    }

    fn within(&self, from: u64, to: u64) -> u64 {
        self.before(to) - self.before(from)
    }

    fn bounds(&self) -> (u64, u64) {
        let first = self.spans.first().map_or(0, |span| span.0);
        (first, self.spans.last().map_or(0, |span| span.1))
    }
}

/// The error of calls without requests, with the clocks if these disagree.
fn apart(calls: &[StoredCall], (first, last): (u64, u64)) -> CallsError {
    let began = calls.iter().map(|call| call.began).min().unwrap_or(0);
    let ended = calls.iter().map(|call| call.ended).max().unwrap_or(0);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let clocks = match ended < first || began > last {
        true => format!(
            ": the calls are from {:.3} to {:.3} s of the clock, the requests from {:.3} to {:.3} s",
            seconds(began),
            seconds(ended),
            seconds(first),
            seconds(last)
        ),
        false => String::new(),
    };
    CallsError::Apart { calls: calls.len(), clocks }
}

fn is_write(call: &StoredCall) -> bool {
    matches!(&*call.name, "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "pwrite")
}

fn is_sync(call: &StoredCall) -> bool {
    matches!(&*call.name, "fsync" | "fdatasync" | "msync" | "sync_file_range")
}

fn is_sync_all(call: &StoredCall) -> bool {
    matches!(&*call.name, "sync" | "syncfs")
}

fn acts_of(call: &StoredCall) -> bool {
    call.error.is_none() && (is_write(call) || is_sync(call) || is_sync_all(call))
}

/// The acts of a call, and the reason why a call that changes something has none.
fn acts<'a>(
    call: &'a StoredCall,
    files: &mut FileNumbers<'a>,
) -> (Vec<ClientAct>, Option<&'static str>) {
    if !acts_of(call) {
        let changes = ["rename", "unlink", "mkdir", "rmdir", "link", "truncate", "fallocate"];
        let is_change = changes.iter().any(|name| call.name.contains(name));
        return (Vec::new(), is_change.then_some("changes of names and sizes"));
    }
    if is_sync_all(call) {
        return (vec![ClientAct::SyncAll], None);
    }
    let Some(file) = files.of(call) else {
        return (Vec::new(), Some("calls without a file"));
    };
    if is_sync(call) {
        let data = matches!(&*call.name, "fdatasync" | "msync" | "sync_file_range");
        return (vec![ClientAct::Sync { file, data }], None);
    }
    let (Some(offset), Some(len)) = (call.offset, call.len) else {
        return (Vec::new(), Some("writes without a place"));
    };
    let mut acts = vec![ClientAct::Write { file, offset, len, grows: false }];
    if !call.waits.is_empty() {
        acts.push(ClientAct::Sync { file, data: false });
    }
    (acts, None)
}

#[cfg(test)]
mod tests {
    use ordo_annotate::calls::Wait;
    use ordo_trace::{Flags, RequestOp};

    use crate::traffic::Role;

    use super::*;

    fn call(name: &str, process: u64, (began, ended): (u64, u64), waits: &[u64]) -> StoredCall {
        let wait = |ns: &u64| Wait { request: 0, kind: "file_data", ns: *ns };
        StoredCall {
            process,
            name: name.into(),
            inode: Some(7),
            offset: Some(4096),
            len: Some(4096),
            began,
            ended,
            waits: waits.iter().map(wait).collect(),
            ..StoredCall::default()
        }
    }

    fn seen(times: &[(u64, u64)]) -> Vec<SeenTraffic> {
        let one = |(number, (issued, completed)): (usize, &(u64, u64))| SeenTraffic {
            number: number as u64,
            op: RequestOp::Write,
            flags: Flags::empty(),
            offset: 0,
            len: 4096,
            issued: *issued,
            completed: *completed,
            role: Role::Data,
            transaction: None,
            copies: Vec::new(),
            checkpoint: false,
            text: None,
        };
        times.iter().enumerate().map(one).collect()
    }

    /// Requests of 45 ns in each fsync of [`pairs`].
    fn within(n: u64) -> Vec<SeenTraffic> {
        seen(&(0..n).map(|n| (n * 100 + 10, n * 100 + 55)).collect::<Vec<_>>())
    }

    /// Times under way are counted once where requests overlap, and cut at the ends.
    #[test]
    fn times_under_way_are_a_union() {
        let all = UnderWay::new(&seen(&[(10, 20), (15, 18), (20, 30), (50, 60), (70, 70)]));
        assert_eq!((all.within(0, 100), all.within(12, 55), all.within(31, 49)), (30, 23, 0));
        assert_eq!((all.within(55, 80), all.bounds()), (5, (10, 60)));
        assert_eq!(UnderWay::new(&[]).within(0, 9), 0);
    }

    fn pairs(n: u64) -> Vec<StoredCall> {
        let pair = |n: u64| {
            let at = n * 100;
            [call("pwrite64", 1, (at, at + 5), &[]), call("fsync", 1, (at + 7, at + 60), &[40, 5])]
        };
        (0..n).flat_map(pair).collect()
    }

    /// Think times are the client's own; a call's busy time is that in which it waited for no
    /// request.
    #[test]
    fn clients_think_between_calls() {
        let plan = CallPlan::new(&pairs(4), &within(4)).unwrap();
        assert_eq!((plan.clients.len(), plan.syncs, plan.bounds), (1, 4, (0, 360)));
        let write = ClientAct::Write { file: 7, offset: 4096, len: 4096, grows: false };
        let (first, sync) = (plan.clients[0].steps[0], plan.clients[0].steps[1]);
        assert_eq!(first, ClientStep { after: None, think: 0, busy: 5, alone: 5, act: write });
        let act = ClientAct::Sync { file: 7, data: false };
        assert_eq!(sync, ClientStep { after: None, think: 2, busy: 8, alone: 8, act });
        assert_eq!(plan.clients[0].steps[2].think, 40);
    }

    /// A write that waits is a write and an fsync; what cannot be played is counted by its reason.
    #[test]
    fn calls_that_cannot_be_played_are_counted() {
        let mut calls = pairs(4);
        let seen = within(4);
        calls.push(call("write", 2, (500, 550), &[30]));
        calls.push(StoredCall { offset: None, ..call("write", 2, (560, 570), &[]) });
        calls.push(StoredCall { inode: None, ..call("fsync", 2, (580, 590), &[]) });
        calls.push(call("renameat2", 2, (600, 610), &[]));
        calls.push(call("getpid", 2, (600, 610), &[]));
        calls.push(StoredCall { error: Some("EIO".into()), ..call("fsync", 2, (700, 710), &[]) });
        let plan = CallPlan::new(&calls, &seen).unwrap();
        assert_eq!(plan.syncs, 5);
        let left_out: Vec<_> = plan.left_out.iter().map(|(why, n)| (*why, *n)).collect();
        let expected = [
            ("calls without a file", 1),
            ("changes of names and sizes", 1),
            ("writes without a place", 1),
        ];
        assert_eq!(left_out, expected);
    }

    /// Calls without blocks, clocks that disagree, calls that end before they begin, and too few:
    /// each is named.
    #[test]
    fn calls_that_do_not_fit_are_refused() {
        assert_eq!(CallPlan::new(&[], &[]), Err(CallsError::None));
        let mut calls = pairs(5);
        calls.iter_mut().for_each(|call| call.waits.clear());
        let error = CallPlan::new(&calls, &within(5)).unwrap_err().to_string();
        assert!(error.contains("no fsync of 10 calls") && !error.contains("clock"), "{error}");
        let error = CallPlan::new(&calls, &seen(&[(5_000_000_000, 9_000_000_000)])).unwrap_err();
        assert!(error.to_string().contains("the requests from 5.000 to 9.000 s"), "{error}");
        assert_eq!(CallPlan::new(&pairs(3), &within(3)), Err(CallsError::Few(3)));
        let mut calls = pairs(5);
        calls[3].ended = calls[3].began - 1;
        assert_eq!(CallPlan::new(&calls, &within(5)), Err(CallsError::Times(3)));
    }
}
