//! The numbers of a trace that need no file system, as tables and as JSON.

use anyhow::Result;
use ordo_annotate::input::Opened;
use ordo_annotate::requests::{KindNumbers, Percentiles, RequestNumbers};
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};

use super::summary::{nanos, of_requests};

/// The most processes in the table. The JSON has all.
const TOP: usize = 10;

/// The output of `--json` where no file system is known.
#[derive(serde::Serialize)]
struct WithoutNames<'a> {
    system: &'static str,
    /// The contents of the volume by their signatures.
    holds: &'a [&'static str],
    summary: Vec<String>,
    requests: &'a RequestNumbers,
}

/// The analysis of a volume without a known file system.
///
/// # Errors
/// It cannot be serialized.
pub(super) fn without_names(
    opened: &Opened,
    numbers: &RequestNumbers,
    as_json: bool,
) -> Result<String> {
    let summary = of_requests(numbers);
    if as_json {
        let (system, holds, requests) = ("none", &opened.holds[..], numbers);
        return Ok(json(&WithoutNames { system, holds, summary, requests })?);
    }
    let head = match &opened.holds[..] {
        [] => "no known file system".to_owned(),
        holds => format!("no known file system: {}", holds.join(", ")),
    };
    let sentences: String = summary.iter().map(|line| format!("{line}\n")).collect();
    Ok(format!("{head}\n\n{sentences}{}", tables(numbers)))
}

fn right(name: &str) -> (&str, Align) {
    (name, Align::Right)
}

/// Tables of latencies and processes, for a trace whose traffic is told by kinds of blocks; empty
/// if the trace shows neither.
pub(super) fn times(n: &RequestNumbers) -> String {
    latencies(&kinds(n)) + &processes(n)
}

fn kinds(n: &RequestNumbers) -> [(&'static str, &KindNumbers); 4] {
    [("read", &n.reads), ("write", &n.writes), ("discard", &n.discards), ("flush", &n.flushes)]
}

/// Tables of requests by kind, latencies and processes.
pub(super) fn tables(n: &RequestNumbers) -> String {
    let kinds = kinds(n);
    let mut out = traffic(&kinds[..3]);
    out += &latencies(&kinds);
    out += &rest(n);
    out + &processes(n)
}

fn traffic(kinds: &[(&str, &KindNumbers)]) -> String {
    let mut table = Table::new(&[
        ("requests", Align::Left),
        right("number"),
        right("bytes"),
        right("sequential"),
        right("least"),
        right("median"),
        right("99%"),
        right("most"),
    ]);
    for (name, kind) in kinds.iter().filter(|(_, kind)| kind.requests > 0) {
        let sizes = kind.sizes.unwrap_or_default();
        let sizes = [sizes.least, sizes.p50, sizes.p99, sizes.most].map(number::bytes);
        let [least, median, p99, most] = sizes;
        table.row([
            (*name).to_owned(),
            number::count(kind.requests),
            number::bytes(kind.bytes),
            number::percent(kind.sequential_bytes as f64, kind.bytes as f64),
            least,
            median,
            p99,
            most,
        ]);
    }
    format!("\n{table}")
}

fn latencies(kinds: &[(&str, &KindNumbers)]) -> String {
    if kinds.iter().all(|(_, kind)| kind.latency.is_none()) {
        return String::new();
    }
    let mut table = Table::new(&[
        ("latency", Align::Left),
        right("median"),
        right("90%"),
        right("99%"),
        right("99.9%"),
        right("most"),
        right("sum"),
    ]);
    for (name, kind) in kinds {
        let Some(Percentiles { p50, p90, p99, p999, most, .. }) = kind.latency else { continue };
        let [p50, p90, p99, p999, most, sum] = [p50, p90, p99, p999, most, kind.waited].map(nanos);
        table.row([(*name).to_owned(), p50, p90, p99, p999, most, sum]);
    }
    format!("\n{table}")
}

fn rest(n: &RequestNumbers) -> String {
    let mut table = Table::new(&[("", Align::Left), right("")]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    if let Some(all) = n.nanos {
        row("from the first request to the last end", nanos(all));
    }
    if let (Some(most), Some(mean)) = (n.queue_most, n.queue_mean) {
        row(
            "requests at once, mean while busy / most",
            format!("{} / {most}", number::figure(mean)),
        );
    }
    row("flushes", number::count(n.flushes.requests));
    row("writes that ask for a flush before them", number::count(n.preflushes));
    row("writes with FUA", number::count(n.fua));
    if n.failed > 0 {
        row("failed", number::count(n.failed));
    }
    if n.unfinished > 0 {
        row("without an end in the trace", number::count(n.unfinished));
    }
    format!("\n{table}")
}

fn processes(n: &RequestNumbers) -> String {
    if n.processes.is_empty() {
        return String::new();
    }
    let columns = [
        ("process", Align::Left),
        right("requests"),
        right("read"),
        right("written"),
        right("flushes"),
        right("time"),
    ];
    let mut table = Table::new(&columns);
    for one in n.processes.iter().take(TOP) {
        table.row([
            one.process.clone(),
            number::count(one.requests),
            number::bytes(one.read),
            number::bytes(one.written),
            number::count(one.flushes),
            nanos(one.waited),
        ]);
    }
    let more = match n.processes.len().saturating_sub(TOP) {
        0 => String::new(),
        more => format!("and {} more\n", number::count(more as u64)),
    };
    format!("\n{table}{more}")
}
