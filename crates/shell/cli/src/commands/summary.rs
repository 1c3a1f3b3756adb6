//! An analysis in sentences, for the head of its text and of its page.

use ordo_annotate::calls::Waited;
use ordo_annotate::files::FileTraffic;
use ordo_annotate::requests::RequestNumbers;
use ordo_report::number;
use ordo_watcher::analysis::Analysis;

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
    let data: u64 = files.iter().map(|file| file.data.bytes).sum();
    let most = files.iter().filter(|file| file.data.bytes > 0).max_by_key(|file| file.data.bytes);
    if let Some((name, part)) =
        most.and_then(|file| Some((name(file)?, share(file.data.bytes, data)?)))
    {
        out.push(format!("{name} has {part} of the file data written."));
    }
    let journal: u64 = files.iter().map(|file| file.journal.bytes).sum();
    let most =
        files.iter().filter(|file| file.journal.bytes > 0).max_by_key(|file| file.journal.bytes);
    if let Some((name, part)) =
        most.and_then(|file| Some((name(file)?, share(file.journal.bytes, journal)?)))
    {
        out.push(format!("{name} causes {part} of the journal's bytes that belong to a file."));
    }
    out
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
    let bytes = n.reads.bytes + n.writes.bytes;
    if let Some((first, part)) =
        n.processes.first().and_then(|p| Some((p, share(p.read + p.written, bytes)?)))
    {
        out.push(format!("{} sends {part} of the bytes read and written.", first.process));
    }
    out
}

/// A sentence for each call that waited.
pub(super) fn of_calls(waited: &[Waited]) -> Vec<String> {
    let one = |call: &Waited| {
        let mut parts: Vec<(u64, &str)> =
            call.by_kind.iter().map(|(kind, ns)| (*ns, *kind)).collect();
        parts.push((call.elsewhere_ns, "elsewhere"));
        parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        let parts = parts.iter().take(3).filter(|(ns, _)| *ns > 0);
        let parts = parts.filter_map(|(ns, kind)| Some(format!("{} {kind}", share(*ns, call.ns)?)));
        let parts: Vec<String> = parts.map(|part| part.replace('_', " ")).collect();
        let (calls, time) = (number::count(call.calls), nanos(call.ns));
        format!("{calls} calls of {} take {time}: {}.", call.name, parts.join(", "))
    };
    waited.iter().map(one).collect()
}

/// Nanoseconds with a unit that fits.
pub(super) fn nanos(ns: u64) -> String {
    number::seconds(ns as f64 / 1e9)
}
