//! Measures how fast a stored trace is counted from its tables: `counting START-IMAGE TRACE
//! [MILLIONS] [FOLDER]`. The dm-log-writes log is repeated to so many millions of requests, named,
//! and stored in the folder. Counting, from opening the files to the last number, is timed nine
//! times. Naming the stored trace again is timed once, where it is not too long. Run it with `cargo
//! run --release -p ordo-annotate --example counting`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use ordo_annotate::image::Learning;
use ordo_annotate::store::{self, Parts};
use ordo_annotate::{counting, owners};
use ordo_trace::{Trace, TraceRequest};
use ordo_watcher::Watch;
use ordo_watcher::analysis::{Analysis, WatchFindings};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, log, rest @ ..] = &args[..] else {
        eprintln!("usage: counting START-IMAGE TRACE [MILLIONS] [FOLDER]");
        return;
    };
    let millions: f64 = rest.first().and_then(|n| n.parse().ok()).unwrap_or(2.0);
    let folder = rest.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = folder.join(format!("counting-{}.trace", std::process::id()));
    let image = std::fs::read(image).expect("a start image that can be read");
    let log = std::fs::read(log).expect("a trace that can be read");
    let once = ordo_trace::dm_log_writes::import(log).expect("a log of dm-log-writes").trace;
    let trace = repeated(&once, (millions * 1e6) as u64);
    let (written, found) = keep(&dir, &&image[..], &trace);
    measure(&dir, &written, &found);
    std::fs::remove_dir_all(&dir).expect("our own folder");
}

/// The trace repeated, each round later in time; contents are stored once.
fn repeated(trace: &Trace, requests: u64) -> Trace {
    let mut all = trace.clone();
    let mut epoch = 0;
    while (all.requests().len() as u64) < requests {
        epoch = all.requests().last().map_or(epoch, |r| r.epoch) + 1;
        trace
            .requests()
            .iter()
            .for_each(|r| all.push(TraceRequest { epoch: r.epoch + epoch, ..*r }));
    }
    all
}

fn keep(dir: &Path, image: &&[u8], trace: &Trace) -> (store::Written, WatchFindings) {
    let learning = Learning::new(image);
    let watch = Watch::over(&learning).expect("a file system that is known");
    let blocks = owners::of_trace(trace, &watch);
    let (start, system, found) = (learning.learned(), watch.system(), WatchFindings::of(&watch));
    let parts = Parts {
        shares: &[],
        calls: &[],
        trace,
        blocks: &blocks,
        start: &start,
        system,
        found: Some(&found),
    };
    (store::write(dir, &parts).expect("room for the trace"), found)
}

fn measure(dir: &Path, written: &store::Written, found: &WatchFindings) {
    let requests = written.requests as f64;
    println!(
        "{:.2} million requests, {:.1} blocks each, {} transactions, {:.1} bytes a request in the tables that are counted",
        requests / 1e6,
        written.blocks as f64 / requests,
        written.transactions,
        written.rows_bytes as f64 / requests
    );
    let should = Analysis::from(found);
    let before = processor_seconds();
    let mut speeds: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            let counted = counting::count(dir).expect("a trace").expect("with all that it needs");
            let seconds = start.elapsed().as_secs_f64();
            assert!(counted == should, "counted otherwise than named");
            requests / seconds
        })
        .collect();
    let nanos = (processor_seconds() - before) / 9.0 / requests * 1e9;
    speeds.sort_by(f64::total_cmp);
    println!(
        "counted: {:.0} requests a second ({:.0} to {:.0}), {nanos:.0} ns of processor time each",
        speeds[speeds.len() / 2],
        speeds[0],
        speeds[speeds.len() - 1]
    );
}

/// The processor time of all threads so far, from Linux's counters, in seconds with a resolution of
/// 1/100; other processes do not count.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = rest.split(' ').skip(12).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks / 100.0
}
