//! A file system's blocks, log and policies, as a trace shows them.

use std::collections::{BTreeMap, BTreeSet};

use ordo_annotate::Pieces;
use ordo_annotate::calls::StoredCall;
use ordo_format::wafs::{SECTOR_MAGIC, SECTOR_MIN, SectorHead};
use ordo_trace::{Flags, RequestContents, RequestOp};
use rustc_hash::FxHashMap;

use super::gaps::{SyncGaps, sync_gaps};
use super::{CallPlan, CallsError, ClientAct, CommitOrder, ContentsPolicy, JournalPolicy};
use crate::journal::{JournalSpan, own_span};
use crate::traffic::{FileBlocks, Role, SeenTraffic};

/// The bytes of a sector of Ordo's log, and those of them that carry records.
const OWN_SECTOR: u64 = SECTOR_MIN as u64;
const OWN_PAYLOAD: u64 = OWN_SECTOR - SectorHead::SIZE as u64;
/// The block of the kernel's journals, if the trace does not say.
const KERNEL_BLOCK: u64 = 4096;
/// The part of a journal, in thousandths, whose use makes a checkpoint begin: of Ordo's, and of the
/// kernel's.
const OWN_CHECKPOINT: u64 = 790;
const KERNEL_CHECKPOINT: u64 = 750;

/// Nanoseconds from the end of a write within which a request counts as sent by it, the calls that
/// are looked at, and the fewest such requests.
const BEHIND: u64 = 1000;
const BEHIND_CALLS: usize = 8;
const BEHIND_MIN: usize = 4;
/// The bytes that the records of an operation take in Ordo's logs (docs/journal.md).
const OWN_CHANGE: f64 = 140.0;
/// The longest request in bytes, if the trace does not show it.
const REQUEST_MAX: u64 = 1 << 20;
/// `CONFIG_HZ` is 250 in the kernels of most distributions.
const TICK: u64 = 4_000_000;
/// Nanoseconds for which a request takes so long that an idle processor sleeps meanwhile: `cpuidle`
/// lets one poll for less. And the fewest own times behind such requests that show what waking up
/// takes.
pub(super) const SLEEP: u64 = 1_000_000;
pub(super) const WAKE_MIN: usize = 20;
/// Bytes of records for a commit below which they count as those of its changes.
const SMALL: f64 = 1024.0;

/// The log, as the trace shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogFacts {
    /// Whether it is one of Ordo's: records of bytes, in sectors that are written again until they
    /// are full.
    pub own: bool,
    /// The place of its first write, in bytes.
    pub first: u64,
    /// The place and the length of the space around which it is written, in bytes.
    pub ring: (u64, u64),
    /// The unit of its writes in bytes.
    pub grain: u64,
    /// The bytes that each commit adds, whatever it commits.
    pub of_commit: f64,
    /// The bytes that each change adds.
    pub of_change: f64,
    /// The bytes that a commit block takes, if it is written by itself.
    pub commit_block: u64,
    /// The bytes that the log takes for one byte of file contents.
    pub overhead: f64,
    /// Whether it is one that skips sectors on a rotating disk.
    pub skips: bool,
}

impl LogFacts {
    /// The log has the bytes that changed of metadata too. Of Ordo's logs is known what that takes.
    pub fn differences(&mut self) {
        if self.own && self.of_commit > SMALL {
            self.of_commit = 0.0;
            self.of_change = self.of_change.max(OWN_CHANGE);
        }
    }
}

/// The facts that a trace shows.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFacts {
    /// The size of a block of a file, in bytes.
    pub unit: u64,
    /// The place of each block of a file: by file and block.
    pub places: BTreeMap<(u64, u64), u64>,
    /// The log.
    pub log: LogFacts,
    /// The policies.
    pub policy: JournalPolicy,
    /// The most bytes of file contents in one request.
    pub request_max: u64,
    /// Whether the disk has a volatile cache that is flushed.
    pub flushes: bool,
    /// The time between two ticks of the clock that inodes' times are taken from, in nanoseconds; 1
    /// if each change is seen.
    pub tick: u64,
    /// Whether no request is sent while a flush is under way, as where one thread of the kernel
    /// hands all requests to the device.
    pub flush_blocks: bool,
    /// The own time of an fsync of ext3 or ext4.
    pub gaps: SyncGaps,
    /// Whether writes of contents that are waited for have FUA.
    pub place_fua: bool,
    /// The bytes in order after which a file's contents are written although nobody waits; `None`:
    /// this is not seen.
    pub write_behind: Option<u64>,
    /// Calls' files without a block in the trace.
    pub files_without: usize,
}

/// The requests that an fsync waited for, in the order of their issue.
pub(super) struct Waited<'a> {
    pub(super) seen: Vec<&'a SeenTraffic>,
}

impl Waited<'_> {
    fn with(&self, role: impl Fn(Role) -> bool) -> impl Iterator<Item = &SeenTraffic> {
        self.seen.iter().copied().filter(move |seen| role(seen.role))
    }

    fn log(&self) -> impl Iterator<Item = &SeenTraffic> {
        self.with(|role| matches!(role, Role::Journal | Role::Commit))
    }
}

/// A count of syncs that show something, and of those that could.
#[derive(Clone, Copy, Debug, Default)]
struct Votes(usize, usize);

impl Votes {
    fn add(&mut self, yes: bool) {
        self.0 += usize::from(yes);
        self.1 += 1;
    }

    fn most(self) -> bool {
        self.0 * 2 > self.1
    }
}

/// Reads the facts.
///
/// # Errors
/// Files that are written and synced have no blocks.
pub fn facts(
    (contents, start): (&dyn RequestContents, &Pieces),
    (files, seen): (&FileBlocks, &[SeenTraffic]),
    (calls, plan): (&[StoredCall], &CallPlan),
    (span, system): (Option<JournalSpan>, &str),
) -> Result<TraceFacts, CallsError> {
    let with_place: BTreeSet<u64> = files.places.keys().map(|(ino, _)| *ino).collect();
    let synced = plan.clients.iter().flat_map(|client| &client.steps);
    let synced: BTreeSet<u64> = synced
        .filter_map(|step| match step.act {
            ClientAct::Sync { file, .. } => Some(file),
            _ => None,
        })
        .collect();
    let without = synced.iter().filter(|file| !with_place.contains(file)).count();
    if without > 0 && without == synced.len() {
        return Err(CallsError::NoBlocks { files: without, of: synced.len() });
    }
    let owners = &files.owners;
    let by_number: BTreeMap<u64, &SeenTraffic> = seen.iter().map(|s| (s.number, s)).collect();
    let waited: Vec<Waited<'_>> = calls
        .iter()
        .filter(|call| !call.waits.is_empty())
        .map(|call| Waited {
            seen: call
                .waits
                .iter()
                .filter_map(|wait| by_number.get(&wait.request))
                .copied()
                .collect(),
        })
        .collect();
    let own = is_own(contents, seen);
    let span = match own {
        true => first_log(seen).and_then(|first| own_span(contents, seen, start, first)),
        false => span,
    };
    let mut policy = policy(&waited, span, own);
    if system.starts_with("ext") && !own {
        policy.set_jbd2();
    }
    let gaps = sync_gaps(policy.jbd2, (calls, &waited), (owners, seen));
    let shared = is_shared(seen, owners, calls);
    (policy.tangled, policy.serial) = (policy.tangled || shared, policy.serial || shared);
    let first = first_log(seen).unwrap_or(0);
    let ring = match span.filter(|span| span.whole) {
        Some(span) if own => (span.first, span.len()),
        // A superblock comes first.
        Some(span) => (span.first + span.block, span.len() - span.block),
        None => (first, start.bytes.saturating_sub(first)),
    };
    let log = log((contents, ring, files.unit), seen, (calls, plan), (own, &policy));
    policy.every = policy.every.filter(|_| !own);
    let place_fua = seen.iter().any(|s| s.role == Role::Data && s.flags.contains(Flags::FUA));
    let flushes = seen.iter().any(|s| s.role == Role::Flush || s.flags.contains(Flags::FUA));
    Ok(TraceFacts {
        unit: files.unit,
        places: files.places.clone(),
        log,
        policy,
        request_max: request_max(seen),
        flushes,
        tick: tick(calls, &waited),
        flush_blocks: policy.jbd2 && flush_blocks(seen),
        gaps,
        place_fua,
        write_behind: write_behind(seen, owners, calls),
        files_without: without,
    })
}

/// The largest request for file contents, in bytes, if the kernel split larger ones: then the trace
/// has adjacent requests that were sent at the same time.
fn request_max(seen: &[SeenTraffic]) -> u64 {
    let data: Vec<&SeenTraffic> = seen.iter().filter(|s| s.role == Role::Data).collect();
    let is_cut = data
        .windows(2)
        .any(|two| two[0].issued == two[1].issued && two[0].offset + two[0].len == two[1].offset);
    let longest = data.iter().map(|s| s.len).max();
    longest.filter(|_| is_cut).unwrap_or(REQUEST_MAX)
}

/// Whether commits have the contents of several files: those of other files are written while an
/// fsync runs, before its log, and none is begun while the log is being written, as the fsyncs of
/// several clients by themselves would do.
fn is_shared(seen: &[SeenTraffic], owners: &FxHashMap<u64, u64>, calls: &[StoredCall]) -> bool {
    let data: Vec<&SeenTraffic> =
        seen.iter().filter(|s| s.role == Role::Data && !s.checkpoint).collect();
    let log: Vec<&SeenTraffic> =
        seen.iter().filter(|s| matches!(s.role, Role::Journal | Role::Commit)).collect();
    let (mut others, mut during) = (Votes::default(), Votes::default());
    for call in calls.iter().filter(|call| !call.waits.is_empty()) {
        let end = log.partition_point(|l| l.issued <= call.ended);
        let Some(last) = end.checked_sub(1).map(|n| log[n]) else { continue };
        let from = data.partition_point(|d| d.issued < call.began);
        let some = data[from..].iter().take_while(|d| d.issued <= last.issued);
        others.add(some.clone().any(|d| {
            owners.get(&d.number).is_some_and(|ino| call.inode.is_some_and(|own| *ino != own))
        }));
    }
    for one in &data {
        let before = log.partition_point(|l| l.issued < one.issued);
        during.add(before.checked_sub(1).is_some_and(|n| log[n].completed > one.issued));
    }
    others.most() && during.0 * 10 < during.1
}

/// The length of requests that a file system sends as soon as a program has written so much in
/// order: they are issued while one of the file's writes runs, or right after it. Only files that
/// nobody syncs show this.
fn write_behind(
    seen: &[SeenTraffic],
    owners: &FxHashMap<u64, u64>,
    calls: &[StoredCall],
) -> Option<u64> {
    let synced: BTreeSet<Option<u64>> =
        calls.iter().filter(|call| !call.waits.is_empty()).map(|call| call.inode).collect();
    let is_free = |call: &&StoredCall| {
        call.name.contains("write") && call.inode.is_some() && !synced.contains(&call.inode)
    };
    let writes: Vec<&StoredCall> = calls.iter().filter(is_free).collect();
    let mut lens: Vec<u64> = Vec::new();
    for one in seen.iter().filter(|s| s.role == Role::Data) {
        let until = writes.partition_point(|call| call.began <= one.issued);
        let near = writes[..until].iter().rev().take(BEHIND_CALLS);
        let mut near = near.filter(|call| call.ended + BEHIND >= one.issued);
        if near.any(|call| call.inode == owners.get(&one.number).copied()) {
            lens.push(one.len);
        }
    }
    lens.sort_unstable();
    (lens.len() >= BEHIND_MIN).then(|| lens[lens.len() / 2])
}

/// The tick of the clock of inodes' times. Linux from 6.13 on has a finer one for a file whose
/// times were looked at, and then no file gets an earlier one (`multigrain-ts`): then fsyncs within
/// a tick commit too.
fn tick(calls: &[StoredCall], waited: &[Waited<'_>]) -> u64 {
    let mut commits = Votes::default();
    let mut last: BTreeMap<Option<u64>, u64> = BTreeMap::new();
    let calls = calls.iter().filter(|call| !call.waits.is_empty());
    for (call, waited) in calls.zip(waited) {
        let before = last.insert(call.inode, call.began);
        if before.is_some_and(|before| call.began.saturating_sub(before) < TICK / 2) {
            commits.add(waited.with(|role| role == Role::Commit).next().is_some());
        }
    }
    if commits.1 >= WAKE_MIN && commits.most() { 1 } else { TICK }
}

/// Whether no request was sent while a long flush was under way.
fn flush_blocks(seen: &[SeenTraffic]) -> bool {
    let mut blocks = Votes::default();
    for (n, flush) in seen.iter().enumerate().filter(|(_, s)| s.role == Role::Flush) {
        if flush.completed.saturating_sub(flush.issued) >= SLEEP {
            blocks.add(seen.get(n + 1).is_none_or(|next| next.issued >= flush.completed));
        }
    }
    blocks.1 > 0 && blocks.0 * 50 >= blocks.1 * 49
}

/// The place of the first write to the log.
fn first_log(seen: &[SeenTraffic]) -> Option<u64> {
    seen.iter().find(|s| matches!(s.role, Role::Journal | Role::Commit)).map(|s| s.offset)
}

/// Whether the log is one of Ordo's.
fn is_own(contents: &dyn RequestContents, seen: &[SeenTraffic]) -> bool {
    let first = seen.iter().find(|s| s.role == Role::Journal && s.op == RequestOp::Write);
    let bytes = first.and_then(|s| contents.contents(s.number));
    bytes.is_some_and(|bytes| bytes.starts_with(&SECTOR_MAGIC.to_le_bytes()))
}

fn policy(waited: &[Waited<'_>], span: Option<JournalSpan>, own: bool) -> JournalPolicy {
    let [mut placed, mut first, mut apart, mut overlap, mut serial] = [Votes::default(); 5];
    let mut logged = Votes::default();
    let [mut flush_before, mut fua, mut flush_after] = [Votes::default(); 3];
    for one in waited {
        let data: Vec<&SeenTraffic> = one.with(|role| role == Role::Data).collect();
        let log: Vec<&SeenTraffic> = one.log().collect();
        let Some(last) = log.last() else { continue };
        placed.add(!data.is_empty());
        logged.add(!own && log.iter().any(|write| write.copies.iter().any(|copy| copy.data)));
        apart.add(log.len() > 1);
        fua.add(last.flags.contains(Flags::FUA));
        let flushes: Vec<&SeenTraffic> = one.with(|role| role == Role::Flush).collect();
        flush_before.add(flushes.iter().any(|f| f.completed <= last.issued));
        flush_after.add(flushes.iter().any(|f| f.issued >= last.completed));
        serial.add(last.role == Role::Commit);
        if let Some(end) = data.iter().map(|s| s.completed).max() {
            first.add(end <= last.issued);
            let begin = data.iter().map(|s| s.issued).min().unwrap_or(end);
            overlap.add(log.len() > 1 && log[0].issued < end && begin < log[0].completed);
        }
    }
    let contents = match (placed.most(), first.most()) {
        _ if logged.most() => ContentsPolicy::Logged,
        (true, true) => ContentsPolicy::Ordered,
        (true, false) => ContentsPolicy::Writeback,
        (false, _) => ContentsPolicy::Logged,
    };
    let order = match (overlap.most(), apart.most()) {
        (true, _) => CommitOrder::Overlap,
        (false, true) => CommitOrder::Apart,
        (false, false) => CommitOrder::Together,
    };
    let serial = serial.most();
    JournalPolicy {
        contents,
        tangled: serial,
        jbd2: false,
        home_at_sync: placed.most(),
        serial,
        log_first: contents == ContentsPolicy::Writeback,
        order,
        flush_before: flush_before.most(),
        fua: fua.most(),
        flush_after: flush_after.most(),
        differences: false,
        data_syncs: false,
        every: None,
        group: None,
        log_bytes: span.filter(|span| span.whole).map(|span| span.len()),
        checkpoint_permille: if own { OWN_CHECKPOINT } else { KERNEL_CHECKPOINT },
    }
}

fn log(
    (contents, ring, unit): (&dyn RequestContents, (u64, u64), u64),
    seen: &[SeenTraffic],
    (calls, plan): (&[StoredCall], &CallPlan),
    (own, policy): (bool, &JournalPolicy),
) -> LogFacts {
    let (from, until) = plan.bounds;
    let inside = |s: &&SeenTraffic| s.issued >= from && s.completed <= until;
    let writes: Vec<&SeenTraffic> = seen
        .iter()
        .filter(inside)
        .filter(|s| matches!(s.role, Role::Journal | Role::Commit))
        .collect();
    let first = writes.first().map_or(0, |s| s.offset);
    let steps = || plan.clients.iter().flat_map(|client| &client.steps);
    let logged: u64 = match policy.contents {
        ContentsPolicy::Logged => steps()
            .map(|step| match step.act {
                ClientAct::Write { len, .. } => len,
                _ => 0,
            })
            .sum(),
        _ => 0,
    };
    if own {
        let overhead = OWN_SECTOR as f64 / OWN_PAYLOAD as f64;
        let logged = policy.contents == ContentsPolicy::Logged;
        let ranges: Vec<(&SeenTraffic, OwnRange)> =
            writes.iter().filter_map(|write| Some((*write, own_range(contents, write)?))).collect();
        let (of_commit, of_change) = own_sizes(&ranges, (calls, unit), logged);
        return LogFacts {
            own,
            first,
            ring,
            grain: OWN_SECTOR,
            of_commit: of_commit * overhead,
            of_change: of_change * overhead,
            commit_block: 8,
            overhead,
            skips: ranges.iter().any(|(_, range)| range.skips),
        };
    }
    let commits = writes.iter().filter(|s| s.role == Role::Commit).count().max(1);
    let bytes: u64 = writes.iter().filter(|s| s.role == Role::Journal).map(|s| s.len).sum();
    let of_commit = (bytes.saturating_sub(logged) as f64 / commits as f64).max(KERNEL_BLOCK as f64);
    LogFacts {
        own,
        first,
        ring,
        grain: KERNEL_BLOCK,
        of_commit,
        of_change: 0.0,
        commit_block: KERNEL_BLOCK,
        overhead: 1.0,
        skips: false,
    }
}

/// The bytes of records that a commit adds to Ordo's log, and those that each change adds: a
/// straight line through the commits by their numbers of changes. Contents of files are left out,
/// if the log has them.
fn own_sizes(
    writes: &[(&SeenTraffic, OwnRange)],
    (calls, unit): (&[StoredCall], u64),
    logged: bool,
) -> (f64, f64) {
    let mut changes: Vec<&StoredCall> =
        calls.iter().filter(|call| call.error.is_none() && call.name.contains("write")).collect();
    changes.sort_by_key(|call| call.ended);
    let mut points: Vec<(f64, f64)> = Vec::new();
    let (mut next, mut end) = (0, None);
    for (write, OwnRange { from, to, .. }) in writes.iter().copied() {
        // A write may begin behind sectors that the log has skipped.
        let bytes = to.saturating_sub(end.map_or(from, |end: u64| end.max(from))) as f64;
        end = Some(to);
        let until = changes.partition_point(|call| call.ended <= write.issued);
        let some = &changes[next.min(until)..until];
        next = next.max(until);
        let of_files = if logged { blocks_of(some, unit) } else { 0 };
        let bytes = bytes - of_files as f64;
        match points.last_mut() {
            // A commit record by itself.
            Some(last) if some.is_empty() => last.1 += bytes,
            _ => points.push((some.len() as f64, bytes)),
        }
    }
    line(points.get(1..).unwrap_or_default())
}

/// The bytes of the blocks that calls change, each block once.
fn blocks_of(calls: &[&StoredCall], unit: u64) -> u64 {
    let mut blocks = BTreeSet::new();
    for call in calls {
        let (at, len) = (call.offset.unwrap_or(0), call.len.unwrap_or(0));
        blocks.extend((at / unit..(at + len).div_ceil(unit)).map(|block| (call.inode, block)));
    }
    blocks.len() as u64 * unit
}

/// The line through points by least squares, neither part below zero. Where all commits have
/// equally many changes, small records count as those of changes, and large ones as the commit's.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1).max(0.0));
    let spread: f64 = points.iter().map(|p| (p.0 - x) * (p.0 - x)).sum();
    if spread < 0.25 * count {
        return if y < SMALL { (0.0, y / x.max(1.0)) } else { (y, 0.0) };
    }
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
    let slope = slope.clamp(0.0, y / x);
    (y - slope * x, slope)
}

/// The part of the stream of records that a write of Ordo's log has.
#[derive(Clone, Copy)]
struct OwnRange {
    from: u64,
    to: u64,
    /// Whether the log skips sectors behind it.
    skips: bool,
}

fn own_range(contents: &dyn RequestContents, seen: &SeenTraffic) -> Option<OwnRange> {
    let bytes = contents.contents(seen.number)?;
    let first = SectorHead::read(bytes.get(..SECTOR_MIN)?)?;
    let last = bytes.chunks_exact(SECTOR_MIN).next_back().and_then(SectorHead::read)?;
    let to = last.lsn + u64::from(last.used);
    Some(OwnRange { from: first.lsn, to, skips: last.skip > 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::UnderWay;

    fn request(role: Role, (issued, completed): (u64, u64)) -> SeenTraffic {
        SeenTraffic {
            number: 0,
            op: RequestOp::Write,
            flags: Flags::empty(),
            offset: 0,
            len: 4096,
            issued,
            completed,
            role,
            transaction: None,
            copies: Vec::new(),
            checkpoint: false,
            text: None,
        }
    }

    /// Fsyncs of a file 1 ms apart, which the clock of 4 ms does not tell apart: where most wait
    /// for a commit, each change is seen.
    #[test]
    fn the_tick_is_seen() {
        let (data, commit) = (request(Role::Data, (0, 1)), request(Role::Commit, (0, 1)));
        let wait = || ordo_annotate::calls::Wait { request: 0, kind: "file_data", ns: 1 };
        let read = |count: u64, apart: u64, committed: u64| {
            let call =
                |n| StoredCall { began: n * apart, waits: vec![wait()], ..StoredCall::default() };
            let calls: Vec<StoredCall> = (0..count).map(call).collect();
            let one = |n| Waited { seen: vec![if n % 10 < committed { &commit } else { &data }] };
            tick(&calls, &(0..count).map(one).collect::<Vec<_>>())
        };
        assert_eq!((read(101, TICK / 4, 6), read(101, TICK / 4, 5)), (1, TICK));
        // Too few, and too far apart.
        assert_eq!((read(20, TICK / 4, 10), read(101, TICK, 10)), (TICK, TICK));
    }

    /// A flush blocks the way where nothing is ever sent during one; a short flush shows nothing.
    /// One write in fifty may be a request that was on its way already.
    #[test]
    fn a_flush_that_blocks_is_seen() {
        let long = 2 * SLEEP;
        let turns = |write: u64| {
            let one = move |n: u64| {
                let at = n * 10 * SLEEP;
                let written = (at + write, at + write + 1);
                [request(Role::Flush, (at, at + long)), request(Role::Data, written)]
            };
            (0..60).flat_map(one).collect::<Vec<_>>()
        };
        assert!(flush_blocks(&turns(long)));
        assert!(!flush_blocks(&turns(long - 1)));
        let mut mixed = turns(long);
        mixed[7].issued -= 1;
        assert!(flush_blocks(&mixed));
        mixed[9].issued -= 1;
        assert!(!flush_blocks(&mixed));
        assert!(!flush_blocks(&[request(Role::Flush, (0, SLEEP - 1))]));
        let flushes = UnderWay::new(mixed.iter().filter(|s| s.role == Role::Flush));
        assert!(flushes.within(long - 1, long) > 0 && flushes.within(long, 9 * SLEEP) == 0);
    }

    /// A commit's own bytes and those of each change are told apart where commits differ; otherwise
    /// by their size.
    #[test]
    fn sizes_are_told_apart() {
        assert_eq!(line(&[(1.0, 5000.0), (3.0, 5200.0), (5.0, 5400.0)]), (4900.0, 100.0));
        assert_eq!(line(&[(1.0, 140.0), (1.0, 150.0)]), (0.0, 145.0));
        assert_eq!(line(&[(1.0, 4200.0), (1.0, 4300.0)]), (4250.0, 0.0));
        assert_eq!(line(&[]), (0.0, 0.0));
        let (of_commit, of_change) = line(&[(1.0, 300.0), (4.0, 100.0)]);
        assert!(of_commit >= 0.0 && of_change >= 0.0);
    }
}
