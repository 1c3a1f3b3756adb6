//! `ordo whatif` on traces that are larger than memory, and on recordings in parts.
//!
//! Fault model: contents that nothing bounds; a part that is missing, or that records a sample of
//! the time. Would catch a reader that takes in contents that no change asks for, and requests that
//! are lost, doubled or given to another transaction where a part ends.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ordo_annotate::image::Pieces;
use ordo_annotate::parts::writer::{Place, write};
use ordo_annotate::parts::{Part, divide};
use ordo_annotate::store::{self, Parts};
use ordo_annotate::{Learning, owners};
use ordo_block::model::Model;
use ordo_compare::whatif::{JournalSetup, SyncClients, TaskKind, record};
use ordo_runtime::Time;
use ordo_trace::{Flags, RequestEnd, RequestOp, Trace, TraceRequest};
use ordo_watcher::Watch;
use ordo_watcher::analysis::WatchFindings;

const ORDO: &str = env!("CARGO_BIN_EXE_ordo");

/// A run of the program: its output, its errors, the most memory that it had, in kilobytes, and its
/// seconds.
struct Run {
    out: String,
    errors: String,
    peak: u64,
    seconds: f64,
}

fn ordo(args: &[&str]) -> Run {
    let began = Instant::now();
    let mut child = Command::new(ORDO)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(kilobytes.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    let seconds = began.elapsed().as_secs_f64();
    let out = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { out: text(&out.stdout), errors: text(&out.stderr), peak, seconds }
}

/// Writes a trace of 600 writes with contents of `len` bytes each, of which no two have an equal
/// block.
fn stored(dir: &Path, len: u64) {
    let mut trace = Trace::new(512, true);
    let mut word = 1u64;
    for n in 0..600u64 {
        let mut bytes = Vec::with_capacity(len as usize);
        while (bytes.len() as u64) < len {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let data = Some(trace.keep(&bytes));
        let time = |ns: u64| Time::from_nanos(n * 1_000_000 + ns);
        let end = Some(RequestEnd { order: n, at: time(500_000), epoch: 0, ok: true });
        let (op, flags, offset) = (RequestOp::Write, Flags::empty(), n % 100 * (1 << 20));
        trace.push(TraceRequest { op, flags, offset, len, issued: time(0), epoch: 0, end, data });
    }
    let image = Pieces { bytes: 128 << 20, ..Pieces::default() };
    let learning = Learning::new(&image);
    let watch = Watch::over_any(&learning);
    let blocks = owners::of_trace(&trace, &watch);
    let found = WatchFindings::of(&watch);
    let (start, system, found) = (&learning.learned(), &*found.system, Some(&found));
    let (trace, blocks, shares, calls) = (&trace, &blocks[..], &[][..], &[][..]);
    store::write(dir, &Parts { trace, blocks, shares, calls, start, system, found }).unwrap();
}

/// Sixty times as many bytes in as many requests take hardly more memory.
#[test]
fn memory_follows_the_requests_and_not_their_bytes() {
    let peaks = [4096u64, 240 << 10].map(|len| {
        let dir = tempfile::tempdir().unwrap();
        stored(dir.path(), len);
        let changes = ["--recorded-on", "sata-ssd", "--bound", "500%", "--disk", "nvme"];
        let run = ordo(&[&["whatif", dir.path().to_str().unwrap()], &changes[..]].concat());
        assert!(run.out.contains("disk nvme"), "{}{}", run.out, run.errors);
        run.peak
    });
    println!("600 requests of 4 KB: {} KB; of 240 KB: {} KB", peaks[0], peaks[1]);
    // All contents are 140 MB.
    assert!(peaks[0] > 1000 && peaks[1] < peaks[0] + (60 << 10), "{peaks:?}");
}

/// A recording in parts is played as the same recording in one piece. Without one of its parts it
/// is refused.
#[test]
fn parts_of_a_recording_are_played_as_one_trace() {
    let kind =
        TaskKind::Random { len: 4096, syncs: 30, pause: ordo_runtime::Duration::from_nanos(0) };
    let setup = JournalSetup::usual(Model::by_name("viking").unwrap());
    let setup = setup.with(&["contents=ordered", "phases=apart", "commits=tangled"]);
    let setup = JournalSetup { bytes: 64 << 20, ..setup };
    let run = record(&setup, &SyncClients::alike(2, kind, 2 << 20));
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run.store(whole.path()).unwrap();
    let start = store::read(whole.path()).unwrap().start;
    let place = Place { root: parts.path().into(), host: "h".into(), device: "d".into() };
    let mut dirs = Vec::new();
    let keep = |part: Part| {
        write(&place, &part).unwrap();
        dirs.push(place.of(&part));
        Ok::<(), Infallible>(())
    };
    divide(&run.trace, &start, "r", |_, from, to| to - from >= 17, keep).unwrap();
    assert!(dirs.len() > 4, "{dirs:?}");
    let changes = ["--play", "requests", "--journal-at", "50%", "--disk", "cheetah", "--json"];
    let told = |dir: &Path| {
        let run = ordo(&[&["whatif", dir.to_str().unwrap()], &changes[..]].concat());
        assert!(run.out.starts_with('{'), "{}", run.errors);
        run.out
    };
    let strip = |text: String| {
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        // A recording in parts has no calls.
        json["calls_refused"] = serde_json::Value::Null;
        json
    };
    assert_eq!(strip(told(parts.path())), strip(told(whole.path())));
    std::fs::remove_dir_all(&dirs[2]).unwrap();
    let cut = ordo(&["whatif", parts.path().to_str().unwrap()]);
    assert!(cut.errors.contains("part 2 is missing"), "{}{}", cut.out, cut.errors);
}

/// The changes of the page: each alone, on a model of the device.
const CHANGES: [(&str, &[&str]); 5] = [
    ("none", &[]),
    ("another disk", &["--disk", "nvme"]),
    ("the journal in the middle", &["--journal-at", "50%"]),
    ("no barriers", &["--barriers", "off"]),
    ("differences in the journal", &["--differential"]),
];

/// `make whatif-large TRACE=...`: the memory and the time of playback of a long trace, in a page.
#[test]
#[ignore = "needs a trace of ten gigabytes; make whatif-large"]
fn a_long_trace_is_played_in_512_megabytes() {
    let trace = std::env::var("ORDO_LARGE_TRACE").expect("the directory of the trace");
    let page = std::env::var("ORDO_LARGE_PAGE").expect("the page to write");
    let bytes = tree_bytes(Path::new(&trace));
    let mut rows = String::new();
    let (mut most, mut requests) = (0, 0);
    for (name, change) in CHANGES {
        let base = ["whatif", &trace, "--recorded-on", "sata-ssd", "--bound", "50%", "--json"];
        let run = ordo(&[&base[..], change].concat());
        let json: serde_json::Value =
            serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{e}: {}", run.errors));
        let all = json["unchanged"]["requests"].as_object().unwrap();
        requests = all.values().filter_map(serde_json::Value::as_u64).sum();
        most = most.max(run.peak);
        let seconds = json["rows"][0]["predicted_seconds"].as_f64();
        let seconds = seconds.or(json["unchanged"]["predicted_seconds"].as_f64()).unwrap();
        let megabytes = run.peak * 1024 / 1_000_000;
        let _ = writeln!(rows, "| {name} | {seconds:.1} | {megabytes} | {:.1} |", run.seconds);
    }
    let verdict = if most * 1024 <= 512 << 20 { "PASSED" } else { "MISSED" };
    let text = format!(
        "# Playback of a long trace\n\nWritten by `make whatif-large`. A recording in parts (`ordo trace run --rotate 64m`) of ext4 on a loop \
         device: fio wrote 5 GB in order, 4 GB at random in 16 KB and 1.3 GB in 4 KB, with fsyncs. {:.2} GB on disk, {requests} requests. Each \
         run of `ordo whatif` is a process of its own, and its peak of resident memory (VmHWM) is read while it runs; six playbacks each, of \
         the unchanged trace and of the change, and more for the interval. `--mode data --differential` together need the last \
         version of every block of file data, and are not bounded.\n\n\
         | change | predicted, s | memory, MB | time of the command, s |\n|---|---:|---:|---:|\n{rows}\n\
         Goal: a trace of 10 GB in 512 MiB: {verdict} ({} MB at most).\n",
        bytes as f64 / 1e9,
        most * 1024 / 1_000_000
    );
    std::fs::write(page, text).unwrap();
}

fn tree_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => tree_bytes(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}
