//! Counts a stored trace from its tables, on all processors. The result is that of naming the trace
//! again, but no contents are read.
//!
//! Requests are counted first, group by group, then blocks. A group of blocks has all blocks of its
//! requests.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ordo_trace::{RequestOp, ZEROS};
use ordo_watcher::analysis::{Analysis, GatheredTransactions};
use ordo_watcher::parts::Ends;
use ordo_watcher::stats::ByClass;
use ordo_watcher::{Class, Stats, TrafficCounts};

use crate::findings::{Closing, RECOUNTED, TRANSACTIONS, class_code, gather};
use crate::parts;
use crate::reading::{BLOCKS, DEVICE_MAX, REQUESTS, Reading, StoreError, op_of};
use crate::table::NO_CODE;

/// The findings of the watcher that named a trace's blocks. `None` if the trace lacks the tables
/// for this and must be named again.
///
/// # Errors
/// A file is missing, damaged, or of another trace, or a row makes no sense.
pub fn count(dir: &Path) -> Result<Option<Analysis>, StoreError> {
    let Some(closing) = Closing::read(dir)? else { return Ok(None) };
    let stats = count_traffic(dir, &closing)?;
    let transactions = closing.open(dir, TRANSACTIONS)?;
    let mut gathered = GatheredTransactions::default();
    for some in on_all(transactions.table.groups(), |group| gather(&transactions, group))? {
        gathered.join(some);
    }
    Ok(Some(Analysis::with(closing.system, stats, closing.orphan_blocks, gathered.finish())))
}

/// Counts requests and blocks.
pub(crate) fn count_traffic(dir: &Path, closing: &Closing) -> Result<Stats, StoreError> {
    let requests = closing.open(dir, REQUESTS)?;
    requests.version()?;
    let blocks = closing.open(dir, BLOCKS)?;
    let all = on_all(requests.table.groups(), |group| Requests::read(&requests, group))?;
    if all.iter().map(|group| group.bytes).sum::<u128>() > u128::from(u64::MAX) {
        return Err(requests.row(0, "more bytes than can be counted"));
    }
    let mut stats = Stats {
        flushes: all.iter().map(|group| group.flushes).sum(),
        discards: all.iter().map(|group| group.discards).sum(),
        settled: closing.settled,
        unclaimed: closing.unclaimed,
        without_contents: closing.without_contents,
        unknown: closing.unknown.clone(),
        ..Stats::default()
    };
    count_blocks(&blocks, &Numbered::join(all, parts::ends(&requests)?), &mut stats)?;
    for (row, ((was, kind), counts)) in closing.recounted.iter().enumerate() {
        if !stats.reclassify(counts, *was, *kind) {
            let path = dir.join(RECOUNTED);
            return Err(StoreError::Row { path, row, why: "more is recounted than was counted" });
        }
    }
    Ok(stats)
}

/// Does `count` pieces of work on all processors. Returns their results in order, or the first
/// failure.
pub(crate) fn on_all<T: Send>(
    pieces: usize,
    work: impl Fn(usize) -> Result<T, StoreError> + Sync,
) -> Result<Vec<T>, StoreError> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(pieces);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(pieces)));
    let run = || {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return;
            }
            let result = work(piece);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((piece, result));
        }
    };
    thread::scope(|scope| {
        (1..threads).for_each(|_| {
            scope.spawn(run);
        });
        run();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(piece, _)| *piece);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The facts about a request that the count of its blocks needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Request {
    len: u64,
    how: u8,
}

/// The request's blocks are counted as written. `READ`: as read. A request without blocks has
/// neither flag.
const WRITE: u8 = 1;
const READ: u8 = 2;
/// The request counts as one write for each piece of [`ZEROS`] bytes.
const ZEROES: u8 = 4;
const SYNC: u8 = 8;
const SEQUENTIAL: u8 = 16;

/// A group of requests.
#[derive(Debug, Default)]
struct Requests {
    list: Vec<Request>,
    /// The number of requests that have blocks.
    counted: u64,
    flushes: u64,
    discards: u64,
    /// The bytes of all requests.
    bytes: u128,
    /// For writes, then for reads: the row of the first request, its offset, and the end of the
    /// last request.
    ends: [Option<(usize, u64, u64)>; 2],
}

impl Requests {
    fn read(file: &Reading, group: usize) -> Result<Requests, StoreError> {
        let table = &file.table;
        let (mut ops, mut offsets, mut lens) = (Vec::new(), Vec::new(), Vec::new());
        let (mut preflush, mut sync, mut ok) = (Vec::new(), Vec::new(), Vec::new());
        let code = |key: &[u8]| op_of(key).map_or(NO_CODE, |op| op as u8);
        table.group_codes("op", group, code, &mut ops).map_err(file.fault("op"))?;
        table.group_all_ints("offset", group, &mut offsets).map_err(file.fault("offset"))?;
        table.group_all_ints("length", group, &mut lens).map_err(file.fault("length"))?;
        table.group_all_bools("preflush", group, &mut preflush).map_err(file.fault("preflush"))?;
        table.group_all_bools("sync", group, &mut sync).map_err(file.fault("sync"))?;
        // A request's result counts only for reads.
        if ops.contains(&(RequestOp::Read as u8)) {
            table.group_bools("ok", group, &mut ok).map_err(file.fault("ok"))?;
        }
        let mut all = Requests { list: Vec::with_capacity(ops.len()), ..Requests::default() };
        let before = table.rows_before(group) as usize;
        let rows = ops.iter().zip(offsets).zip(lens).zip(preflush.iter().zip(sync));
        for (row, (((op, offset), len), (preflush, sync))) in rows.enumerate() {
            if *op == NO_CODE {
                return Err(file.row(before + row, "an unknown operation"));
            }
            let (offset, len) = (offset as u64, len as u64);
            let end = offset.checked_add(len).filter(|end| *end <= DEVICE_MAX);
            let Some(end) = end else {
                return Err(file.row(before + row, "an impossible address"));
            };
            all.bytes += u128::from(len);
            let op = *op;
            all.flushes += u64::from(op == RequestOp::Flush as u8) + u64::from(*preflush);
            all.discards += u64::from(op == RequestOp::Discard as u8);
            let zeroes = op == RequestOp::WriteZeroes as u8;
            let mut how = match op {
                _ if len == 0 => 0,
                _ if zeroes => WRITE | ZEROES,
                _ if op == RequestOp::Write as u8 => WRITE,
                _ if op == RequestOp::Read as u8 => READ,
                _ => 0,
            };
            if how != 0 {
                let last = &mut all.ends[usize::from(how == READ)];
                let (first, lowest, before) = last.unwrap_or((row, offset, u64::MAX));
                how |= if before == offset { SEQUENTIAL } else { 0 };
                *last = Some((first, lowest, end));
            }
            if how & READ != 0 && ok.get(row).copied().flatten() != Some(true) {
                how = 0;
            }
            how |= if sync && how & WRITE != 0 { SYNC } else { 0 };
            all.counted += u64::from(how != 0);
            all.list.push(Request { len, how });
        }
        Ok(all)
    }
}

/// Requests by their numbers.
struct Numbered {
    /// The number of requests that have blocks.
    counted: u64,
    groups: Vec<Vec<Request>>,
    /// The number of each group's first request.
    first: Vec<u64>,
}

impl Numbered {
    /// Joins groups: the first write of a group may continue the last write of an earlier one, or
    /// `before` the trace.
    fn join(all: Vec<Requests>, before: Ends) -> Numbered {
        let counted = all.iter().map(|group| group.counted).sum();
        let (mut groups, mut first, mut next) = (Vec::new(), Vec::new(), 0);
        let mut ends = [before.write, before.read];
        for mut group in all {
            for (end, of) in ends.iter_mut().zip(group.ends) {
                let Some((row, lowest, last)) = of else { continue };
                let how = &mut group.list[row].how;
                if *end == Some(lowest) && *how != 0 {
                    *how |= SEQUENTIAL;
                }
                *end = Some(last);
            }
            first.push(next);
            next += group.list.len() as u64;
            groups.push(group.list);
        }
        Numbered { counted, groups, first }
    }

    fn get(&self, number: u64) -> Option<Request> {
        let group = self.first.partition_point(|first| *first <= number).checked_sub(1)?;
        self.groups[group].get(usize::try_from(number - self.first[group]).ok()?).copied()
    }
}

/// The counts of a group of blocks.
struct Counted {
    writes: ByClass,
    reads: ByClass,
    /// The number of requests whose blocks it has.
    requests: u64,
    /// The first and the last of these requests.
    range: Option<(u64, u64)>,
}

fn count_blocks(file: &Reading, requests: &Numbered, stats: &mut Stats) -> Result<(), StoreError> {
    let groups = on_all(file.table.groups(), |group| Counted::read(file, group, requests))?;
    let (mut last, mut seen) = (None, 0);
    for (group, counted) in groups.iter().enumerate() {
        if let Some((first, end)) = counted.range {
            if last.is_some_and(|last| last >= first) {
                let row = file.table.rows_before(group) as usize;
                return Err(file.row(row, "blocks are not in order of requests"));
            }
            last = Some(end);
        }
        seen += counted.requests;
        for class in Class::ALL {
            stats.writes[class].add(&counted.writes[class]);
            stats.reads[class].add(&counted.reads[class]);
        }
    }
    if seen != requests.counted {
        let rows = file.table.rows_before(file.table.groups()) as usize;
        return Err(file.row(rows, "some request has no blocks in front of this"));
    }
    Ok(())
}

impl Counted {
    fn read(file: &Reading, group: usize, requests: &Numbered) -> Result<Counted, StoreError> {
        let table = &file.table;
        let (mut numbers, mut lens, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
        table.group_all_ints("request", group, &mut numbers).map_err(file.fault("request"))?;
        table.group_all_ints("length", group, &mut lens).map_err(file.fault("length"))?;
        table.group_codes("kind", group, class_code, &mut kinds).map_err(file.fault("kind"))?;
        let mut by = [ByClass::default(); 2];
        let (mut seen, mut range) = (0, None);
        // The request whose blocks are being counted, and the number of its bytes counted so far.
        let (mut now, mut covered) = (Request::default(), 0);
        let wrong = |row, why| Err(file.row(table.rows_before(group) as usize + row, why));
        for (row, ((number, len), kind)) in numbers.iter().zip(&lens).zip(&kinds).enumerate() {
            let (number, len) = (*number as u64, *len as u64);
            if range.is_none_or(|(_, last)| number != last) {
                if covered != now.len {
                    return wrong(row, "the blocks before do not cover their request");
                }
                if range.is_some_and(|(_, last)| number < last) {
                    return wrong(row, "blocks are not in order of requests");
                }
                let Some(request) = requests.get(number).filter(|r| r.how != 0) else {
                    return wrong(row, "it belongs to no counted request");
                };
                (now, covered, seen) = (request, 0, seen + 1);
                range = Some((range.map_or(number, |(first, _)| first), number));
            }
            let Some(class) = Class::ALL.get(usize::from(*kind)) else {
                return wrong(row, "an unknown kind");
            };
            if len == 0 || len > now.len - covered {
                return wrong(row, "it is not within its request");
            }
            let counts = &mut by[usize::from(now.how & READ != 0)][*class];
            counts.blocks += 1;
            counts.bytes += len;
            if covered == 0 || (now.how & ZEROES != 0 && covered.is_multiple_of(ZEROS as u64)) {
                begin(counts, now.how, covered);
            }
            covered += len;
        }
        if covered != now.len {
            return wrong(numbers.len(), "the blocks before do not cover their request");
        }
        let [writes, reads] = by;
        Ok(Counted { writes, reads, requests: seen, range })
    }
}

/// Counts a request under the kind of its first byte. Within a write of zeros, each piece after the
/// first is sequential.
fn begin(counts: &mut TrafficCounts, how: u8, covered: u64) {
    counts.requests += 1;
    counts.sync += u64::from(how & SYNC != 0);
    counts.sequential += u64::from(how & SEQUENTIAL != 0 || covered > 0);
}
