//! System calls beside the requests of a trace, and the requests that each of them waited for.

use std::collections::BTreeMap;
use std::path::Path;

use ordo_trace::{RequestOp, Trace};
use ordo_watcher::Class;
use rustc_hash::FxHashMap;

use crate::reading::{Reading, StoreError};
use crate::requests::Percentiles;
use crate::rows::BlockRow;
use crate::table::Column;
use crate::text::of_request;

/// The file with one row for each system call.
pub(crate) const CALLS: &str = "calls.parquet";
/// The file with one row for each request that a call waited for.
pub(crate) const WAITS: &str = "waits.parquet";
/// The kind of a request without blocks that a call waits for.
const FLUSH: &str = "flush";

/// A request that a call waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The request's number.
    pub request: u64,
    /// The kind of its first block, or `flush`.
    pub kind: &'static str,
    /// The part of the call's time for which this request accounts: each moment counts for the
    /// request under way that was issued first.
    pub ns: u64,
}

impl Wait {
    /// Counts the request from another one on, whose number is `first`.
    pub fn shift(&mut self, first: u64) {
        self.request = self.request.saturating_sub(first);
    }
}

/// The number of calls that [`slowest`] returns.
const SLOWEST: usize = 10;

/// The calls that took longest, those first.
pub fn slowest(calls: &[StoredCall]) -> Vec<StoredCall> {
    let took = |call: &StoredCall| call.ended.saturating_sub(call.began);
    let mut all: Vec<&StoredCall> = calls.iter().filter(|call| took(call) > 0).collect();
    all.sort_by_key(|call| (std::cmp::Reverse(took(call)), call.began));
    all.into_iter().take(SLOWEST).cloned().collect()
}

/// A system call, in the columns of `docs/formats/trace.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredCall {
    /// The process or thread.
    pub process: u64,
    /// The call's name.
    pub name: String,
    /// The file, from the root of the file system.
    pub path: Option<String>,
    /// The second file.
    pub other_path: Option<String>,
    /// The inode of its file.
    pub inode: Option<u64>,
    /// The first byte of its range; for a truncation, the new size.
    pub offset: Option<u64>,
    /// The length of its range in bytes.
    pub len: Option<u64>,
    /// Flags, as text.
    pub flags: Option<String>,
    /// The beginning, in nanoseconds on the trace's clock.
    pub began: u64,
    /// The end, in nanoseconds on the trace's clock.
    pub ended: u64,
    /// The number that it returned.
    pub outcome: Option<i64>,
    /// The name of its error.
    pub error: Option<String>,
    /// The requests that it waited for, in order.
    pub waits: Vec<Wait>,
}

impl StoredCall {
    /// Whether the call makes a file durable, by its name.
    fn waits_for_file(&self) -> bool {
        matches!(&*self.name, "fsync" | "fdatasync" | "msync" | "sync_file_range")
    }

    /// Whether the call makes everything durable.
    fn waits_for_all(&self) -> bool {
        matches!(&*self.name, "sync" | "syncfs")
    }
}

/// Fills in inodes. A file has every name that its calls show, and the inode that the rows give to
/// these names, if there is only one.
pub fn find_inodes(calls: &mut [StoredCall], rows: &[BlockRow]) {
    let mut inodes: FxHashMap<&str, Option<u64>> = FxHashMap::default();
    for row in rows {
        if let (Some(path), Some(ino)) = (row.path.as_deref(), row.ino) {
            let known = inodes.entry(path).or_insert(Some(ino));
            *known = known.filter(|known| *known == ino);
        }
    }
    // Files by the names that they have at each call, and the inode of each.
    let mut names: FxHashMap<String, usize> = FxHashMap::default();
    let (mut files, mut of_call): (Vec<Option<Option<u64>>>, Vec<Option<usize>>) =
        Default::default();
    for call in calls.iter() {
        let Some(path) = call.path.clone().filter(|_| call.error.is_none()) else {
            of_call.push(call.path.as_ref().and_then(|path| names.get(path).copied()));
            continue;
        };
        let named = |path: &str, file: usize, files: &mut Vec<Option<Option<u64>>>| {
            if let Some(known) = inodes.get(path) {
                let both = files[file].map_or(*known, |had| had.filter(|ino| *known == Some(*ino)));
                files[file] = Some(both);
            }
        };
        let file = *names.entry(path.clone()).or_insert_with(|| {
            files.push(None);
            files.len() - 1
        });
        named(&path, file, &mut files);
        of_call.push(Some(file));
        match (&*call.name, &call.other_path) {
            ("rename" | "renameat" | "renameat2", Some(to)) => {
                names.remove(&path);
                names.insert(to.clone(), file);
                named(to, file, &mut files);
            }
            ("link" | "linkat", Some(to)) => {
                names.insert(to.clone(), file);
                named(to, file, &mut files);
            }
            ("unlink" | "unlinkat" | "rmdir", _) => drop(names.remove(&path)),
            _ => {}
        }
    }
    for (call, file) in calls.iter_mut().zip(of_call) {
        call.inode = file.and_then(|file| files[file].flatten());
    }
}

/// Nanoseconds after a call's end in which a request that it waited for may complete: strace notes
/// the begin before it begins to measure how long the call takes.
const LATE: u64 = 5_000;

/// Finds the requests that each call waited for: writes and flushes under way while the call ran,
/// and completed by its end, of its file's contents, of metadata and of the journal. A call about
/// all files waits for every write.
pub fn find_waits(calls: &mut [StoredCall], trace: &Trace, rows: &[BlockRow]) {
    let mut done: Vec<(u64, u64)> = trace
        .requests()
        .iter()
        .zip(0u64..)
        .filter(|(r, _)| {
            matches!(r.op, RequestOp::Write | RequestOp::Flush | RequestOp::WriteZeroes)
        })
        .filter_map(|(r, number)| Some((r.end?.at.as_nanos(), number)))
        .collect();
    done.sort_unstable();
    let mut synced: FxHashMap<String, bool> = FxHashMap::default();
    for call in calls {
        if let (Some(path), Some(flags)) = (&call.path, &call.flags) {
            let is_synced = flags.contains("O_SYNC") || flags.contains("O_DSYNC");
            synced.insert(path.clone(), is_synced);
        }
        let writes = call.name.contains("write");
        let is_synced = || call.path.as_ref().is_some_and(|p| synced.get(p) == Some(&true));
        let of_file = call.waits_for_file() || (writes && is_synced());
        if !of_file && !call.waits_for_all() {
            continue;
        }
        let from = done.partition_point(|(end, _)| *end <= call.began);
        let to = done.partition_point(|(end, _)| *end <= call.ended.saturating_add(LATE));
        let (inode, path, all) = (call.inode, call.path.as_deref(), call.waits_for_all());
        let is_its = |row: &BlockRow| match row.final_kind {
            _ if all => true,
            Class::FileData => match (inode, row.ino) {
                (Some(inode), Some(ino)) => inode == ino,
                _ => path.is_some() && row.path.as_deref() == path,
            },
            _ => true,
        };
        let waits = done[from..to.max(from)].iter().map(|(_, number)| *number).filter(|number| {
            let flush = trace.requests()[*number as usize].op == RequestOp::Flush;
            flush || of_request(*number, rows).iter().any(is_its)
        });
        // One that was sent after the call's end is not its own.
        let is_within = |n: &u64| trace.requests()[*n as usize].issued.as_nanos() < call.ended;
        let mut waits: Vec<u64> = waits.filter(is_within).collect();
        waits.sort_unstable();
        let ends = waits.iter().filter_map(|n| trace.requests()[*n as usize].end);
        call.ended = ends.map(|end| end.at.as_nanos()).fold(call.ended, u64::max);
        let mut at = call.began;
        call.waits = waits.into_iter().map(|n| wait(n, &mut at, call.ended, trace, rows)).collect();
    }
}

/// A request that a call waited for; `at` is the moment up to which the call's time is shared out.
fn wait(request: u64, at: &mut u64, until: u64, trace: &Trace, rows: &[BlockRow]) -> Wait {
    let r = &trace.requests()[request as usize];
    let end = r.end.map_or(0, |end| end.at.as_nanos());
    let (from, to) = (r.issued.as_nanos().max(*at), end.min(until));
    let ns = to.saturating_sub(from);
    *at = to.max(*at);
    let kind = of_request(request, rows).first().map_or(FLUSH, |row| row.final_kind.key());
    Wait { request, kind, ns }
}

/// The time of the calls of one name, by the requests for which they waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Waited {
    /// The call's name.
    pub name: String,
    /// The number of calls that waited for requests.
    pub calls: u64,
    /// Their time in nanoseconds.
    pub ns: u64,
    /// The part of that time in which they waited for requests, by the kind of the first block, or
    /// `flush`.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// The rest.
    pub elsewhere_ns: u64,
    /// Nanoseconds of a call.
    pub latency: Percentiles,
}

/// The time of calls that waited, by the call's name.
pub fn waited(calls: &[StoredCall]) -> Vec<Waited> {
    let mut all: BTreeMap<&str, (Waited, Vec<u64>)> = BTreeMap::new();
    for call in calls.iter().filter(|call| !call.waits.is_empty()) {
        let (sum, each) = all.entry(&call.name).or_default();
        call.name.clone_into(&mut sum.name);
        sum.calls += 1;
        let whole = call.ended - call.began;
        sum.ns = sum.ns.saturating_add(whole);
        each.push(whole);
        let mut on_disk = 0u64;
        for wait in &call.waits {
            let of_kind = sum.by_kind.entry(wait.kind).or_default();
            *of_kind = of_kind.saturating_add(wait.ns);
            on_disk = on_disk.saturating_add(wait.ns);
        }
        sum.elsewhere_ns = sum.elsewhere_ns.saturating_add(whole.saturating_sub(on_disk));
    }
    let with_latency = |(sum, each)| {
        let latency = Percentiles::of(each).unwrap_or_default();
        Waited { latency, ..sum }
    };
    let mut all: Vec<Waited> = all.into_values().map(with_latency).collect();
    all.sort_by_key(|w| std::cmp::Reverse(w.ns));
    all
}

/// The columns of [`CALLS`]; `first` is the number of the first call.
pub(crate) fn columns(all: &[StoredCall], first: usize) -> Vec<Column> {
    fn text<'a>(
        name: &'static str,
        all: &'a [StoredCall],
        of: impl Fn(&'a StoredCall) -> Option<&'a str>,
    ) -> Column {
        Column::text(name, all.iter().map(move |call| of(call).map(str::as_bytes)))
    }
    vec![
        Column::rising("call_number", (first as u64..).take(all.len())),
        Column::int("process", all.iter().map(|c| c.process)),
        text("name", all, |c| Some(&c.name)),
        text("path", all, |c| c.path.as_deref()),
        text("other_path", all, |c| c.other_path.as_deref()),
        Column::maybe_int("inode", all.iter().map(|c| c.inode)),
        Column::maybe_int("file_offset", all.iter().map(|c| c.offset)),
        Column::maybe_int("length", all.iter().map(|c| c.len)),
        text("flags", all, |c| c.flags.as_deref()),
        Column::int("began_ns", all.iter().map(|c| c.began)),
        Column::int("ended_ns", all.iter().map(|c| c.ended)),
        Column::maybe_int("outcome", all.iter().map(|c| c.outcome.map(|n| n as u64))),
        text("error", all, |c| c.error.as_deref()),
        Column::maybe_int("first_waited", all.iter().map(|c| Some(c.waits.first()?.request))),
        Column::maybe_int("last_waited", all.iter().map(|c| Some(c.waits.last()?.request))),
    ]
}

/// The pairs of a call and a request that it waited for.
pub(crate) fn pairs(calls: &[StoredCall]) -> Vec<(u64, Wait)> {
    let of = |(number, call): (u64, &StoredCall)| {
        let waits = call.waits.clone();
        waits.into_iter().map(move |wait| (number, wait))
    };
    (0..).zip(calls).flat_map(of).collect()
}

/// The columns of [`WAITS`].
pub(crate) fn pair_columns(all: &[(u64, Wait)]) -> Vec<Column> {
    vec![
        Column::rising("call_number", all.iter().map(|(call, _)| *call)),
        Column::int("request", all.iter().map(|(_, wait)| wait.request)),
        Column::words("kind", all.iter().map(|(_, wait)| wait.kind)),
        Column::int("waited_ns", all.iter().map(|(_, wait)| wait.ns)),
    ]
}

/// Reads the system calls of a trace; empty if it has none.
///
/// # Errors
/// A file is damaged, or a row makes no sense.
pub fn read(dir: &Path) -> Result<Vec<StoredCall>, StoreError> {
    if !dir.join(CALLS).exists() {
        return Ok(Vec::new());
    }
    let file = Reading::open(dir, CALLS)?;
    let (processes, names) = (file.ints("process")?, file.texts("name")?);
    let (began, ended) = (file.ints("began_ns")?, file.ints("ended_ns")?);
    let texts = ["path", "other_path", "flags", "error"].map(|name| file.texts(name));
    let [paths, others, flags, errors] = texts;
    let (paths, others, flags, errors) = (paths?, others?, flags?, errors?);
    let numbers = ["inode", "file_offset", "length", "outcome"].map(|name| file.maybe_ints(name));
    let [inodes, offsets, lens, outcomes] = numbers;
    let (inodes, offsets, lens, outcomes) = (inodes?, offsets?, lens?, outcomes?);
    let string = |bytes: &Option<Vec<u8>>| {
        bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let mut all = Vec::with_capacity(names.len());
    for row in 0..names.len() {
        let whole = || {
            Some(StoredCall {
                process: *processes.get(row)?,
                name: string(&names[row])?,
                path: string(paths.get(row)?),
                other_path: string(others.get(row)?),
                inode: *inodes.get(row)?,
                offset: *offsets.get(row)?,
                len: *lens.get(row)?,
                flags: string(flags.get(row)?),
                began: *began.get(row)?,
                ended: *ended.get(row).filter(|end| **end >= began[row])?,
                outcome: outcomes.get(row)?.map(|n| n as i64),
                error: string(errors.get(row)?),
                waits: Vec::new(),
            })
        };
        all.push(whole().ok_or_else(|| file.row(row, "an impossible system call"))?);
    }
    let file = Reading::open(dir, WAITS)?;
    let (calls, requests) = (file.ints("call_number")?, file.ints("request")?);
    let (kinds, times) = (file.texts("kind")?, file.ints("waited_ns")?);
    let pairs = calls.into_iter().zip(requests).zip(kinds).zip(times);
    for (row, (((call, request), kind), ns)) in pairs.enumerate() {
        let call = usize::try_from(call).ok().and_then(|n| all.get_mut(n));
        let call: &mut StoredCall =
            call.ok_or_else(|| file.row(row, "it belongs to no system call of the trace"))?;
        let kind = kind.and_then(|kind| String::from_utf8(kind).ok()).unwrap_or_default();
        let class = Class::from_key(&kind).map(Class::key);
        let kind = class.or((kind == FLUSH).then_some(FLUSH));
        let kind = kind.ok_or_else(|| file.row(row, "an unknown kind"))?;
        call.waits.push(Wait { request, kind, ns });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, began: u64, took: u64, waits: &[(&'static str, u64)]) -> StoredCall {
        let waits = waits.iter().map(|(kind, ns)| Wait { request: 0, kind, ns: *ns }).collect();
        let name = name.to_owned();
        StoredCall { name, began, ended: began + took, waits, ..StoredCall::default() }
    }

    /// An fsync's time by what it waited for, with its median and its slowest; calls that waited
    /// for nothing are in neither, but may be among the slowest. Catches a mean in the place of a
    /// median, and an order that depends on chance where calls took the same time.
    #[test]
    fn calls_have_percentiles_and_the_slowest_come_first() {
        let mut calls: Vec<StoredCall> = (0..20)
            .map(|n| call("fsync", n * 100, 10, &[("flush", 6), ("journal_data", 3)]))
            .collect();
        calls.push(call("fsync", 5000, 900, &[("flush", 890)]));
        calls.push(call("pwrite64", 6000, 500, &[]));
        let all = waited(&calls);
        let [fsync] = &all[..] else { panic!("{all:?}") };
        assert_eq!((fsync.calls, fsync.ns, fsync.elsewhere_ns), (21, 1100, 30));
        assert_eq!((fsync.by_kind["flush"], fsync.by_kind["journal_data"]), (1010, 60));
        assert_eq!((fsync.latency.p50, fsync.latency.p99, fsync.latency.most), (10, 900, 900));
        let slow = slowest(&calls);
        let slow: Vec<_> = slow.iter().map(|c| (&*c.name, c.began)).collect();
        assert_eq!(
            (slow.len(), &slow[..4]),
            (10, &[("fsync", 5000), ("pwrite64", 6000), ("fsync", 0), ("fsync", 100)][..])
        );
    }
}
