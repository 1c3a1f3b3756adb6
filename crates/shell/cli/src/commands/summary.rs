//! An analysis in sentences, for the head of its text and of its page.

use std::collections::BTreeMap;

use ordo_annotate::calls::Waited;
use ordo_annotate::files::FileTraffic;
use ordo_annotate::requests::RequestNumbers;
use ordo_report::number;
use ordo_watcher::analysis::Analysis;

/// The least share of a file that is named, as a part of this many.
const NAMED_MIN: u64 = 4;

/// A share as a whole percentage.
fn share(part: u64, whole: u64) -> Option<String> {
    (whole > 0).then(|| format!("{:.0}%", 100.0 * part as f64 / whole as f64))
}

fn name(file: &FileTraffic) -> Option<String> {
    match (&file.path, file.inode) {
        (Some(path), _) => Some(path.to_string()),
        (None, Some(inode)) => Some(format!("inode {inode}")),
        (None, None) => None,
    }
}

/// Sentences about traffic by kind and by file.
pub(super) fn of_traffic(a: &Analysis, files: &[FileTraffic]) -> Vec<String> {
    let mut out = Vec::new();
    let written = a.stats.writes.total().bytes;
    if let Some(part) = share(a.journal.bytes, written).filter(|_| a.journal.bytes > 0) {
        let (journal, written) = (number::bytes(a.journal.bytes), number::bytes(written));
        out.push(format!("{part} of the bytes written are journal ({journal} of {written})."));
    }
    if let Some(ratio) = a.bytes_per_data_byte {
        let ratio = number::figure(ratio);
        out.push(format!("{ratio} bytes are written for each byte of file data."));
    }
    if let Some((name, part)) = most(files, |file| file.data.bytes) {
        out.push(format!("{name} has {part} of the file data written."));
    }
    if let Some((name, part)) = most(files, |file| file.journal.bytes) {
        out.push(format!("{name} causes {part} of the journal's bytes that belong to a file."));
    }
    out
}

/// The file with the most of something, by its name, with its share of all that belongs to files.
fn most(files: &[FileTraffic], of: impl Fn(&FileTraffic) -> u64) -> Option<(String, String)> {
    let files = files.iter().filter(|file| file.inode.is_some());
    let all: u64 = files.clone().map(&of).sum();
    let first = files.max_by_key(|file| (of(file), std::cmp::Reverse(file.inode)))?;
    let bytes = of(first);
    (bytes >= all.div_ceil(NAMED_MIN)).then_some((name(first)?, share(bytes, all)?))
}

/// Sentences about the time of requests.
pub(super) fn of_requests(n: &RequestNumbers) -> Vec<String> {
    let mut out = Vec::new();
    let all = [&n.reads, &n.writes, &n.flushes, &n.discards];
    let waited: u64 = all.iter().fold(0, |sum, kind| u64::saturating_add(sum, kind.waited));
    let flushes = n.flushes.requests;
    if let (Some(part), Some(latency)) = (share(n.flushes.waited, waited), n.flushes.latency) {
        let (p50, most) = (nanos(latency.p50), nanos(latency.most));
        let flushes = number::count(flushes);
        out.push(format!(
            "{flushes} flushes take {part} of the time of all requests (median {p50}, at most {most})."
        ));
    }
    if let (Some(busy), Some(all), Some(mean)) = (n.busy, n.nanos, n.queue_mean)
        && let Some(part) = share(busy, all)
    {
        let (all, mean) = (nanos(all), number::figure(mean));
        out.push(format!("The device is busy for {part} of {all}, with {mean} requests at once."));
    }
    let bytes = n.reads.bytes.saturating_add(n.writes.bytes);
    if let Some((first, part)) =
        n.processes.first().and_then(|p| Some((p, share(p.read.saturating_add(p.written), bytes)?)))
    {
        out.push(format!("{} sends {part} of the bytes read and written.", first.process));
    }
    out
}

/// The part of a wait for a kind of block, or for `flush`.
fn part(kind: &str) -> &'static str {
    match kind {
        "flush" => "flushes",
        "file_data" => "data",
        kind if kind.starts_with("journal") => "the journal",
        _ => "metadata",
    }
}

/// A sentence for each kind of call that waited.
pub(super) fn of_calls(waited: &[Waited]) -> Vec<String> {
    let one = |call: &Waited| {
        let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
        for (kind, ns) in &call.by_kind {
            *parts.entry(part(kind)).or_default() += ns;
        }
        let mut parts: Vec<(&str, u64)> = parts.into_iter().collect();
        parts.push(("no request of their own", call.elsewhere_ns));
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let parts = parts.iter().filter(|(_, ns)| *ns > 0);
        let parts =
            parts.filter_map(|(what, ns)| Some(format!("{} for {what}", share(*ns, call.ns)?)));
        let parts = parts.collect::<Vec<_>>().join(", ");
        let (calls, time, most) =
            (number::count(call.calls), nanos(call.ns), nanos(call.latency.most));
        format!("{calls} calls of {} wait {time}, at most {most}: {parts}.", call.name)
    };
    waited.iter().map(one).collect()
}

/// Nanoseconds with a unit that fits.
pub(super) fn nanos(ns: u64) -> String {
    number::seconds(ns as f64 / 1e9)
}
