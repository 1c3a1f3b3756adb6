//! System calls recorded beside a trace, with strace(1).

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use ordo_annotate::calls::{StoredCall, Waited, find_inodes, find_waits};
use ordo_annotate::rows::BlockRow;
use ordo_recorder::Recording;
use ordo_report::number;
use ordo_report::table::{Align, Table};
use ordo_trace::Trace;
use ordo_trace::strace::{READS, TRACED, parse};

/// The clock of the calls.
#[derive(Debug)]
enum CallClock {
    /// This machine's: one moment on two of its clocks.
    Host(Instant, SystemTime),
    /// A guest's, which is the trace's.
    Guest,
}

/// A recording of system calls under way.
#[derive(Debug)]
pub(super) struct Calls {
    folder: tempfile::TempDir,
    clock: CallClock,
}

impl Calls {
    /// Begins a recording.
    ///
    /// # Errors
    /// There is no space for a temporary file.
    pub(super) fn new() -> Result<Calls> {
        Calls::by(CallClock::Host(Instant::now(), SystemTime::now()))
    }

    /// Begins a recording in a guest, which may write to its [`folder`](Self::folder).
    ///
    /// # Errors
    /// There is no space for a temporary file.
    pub(super) fn in_guest() -> Result<Calls> {
        Calls::by(CallClock::Guest)
    }

    fn by(clock: CallClock) -> Result<Calls> {
        let folder = tempfile::Builder::new().prefix("ordo-calls-").tempdir();
        Ok(Calls { folder: folder.context("a folder for the system calls")?, clock })
    }

    /// The folder of what strace writes.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("strace")
    }

    /// The command line that runs `command` and records its calls.
    pub(super) fn around(&self, command: &[String]) -> Vec<String> {
        // A filter in the kernel lets all other calls pass at full speed.
        let strace = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "256"];
        let mut all: Vec<String> = strace.iter().map(|s| (*s).to_owned()).collect();
        all.extend(["--absolute-timestamps=unix,ns", "--syscall-times=ns"].map(str::to_owned));
        all.extend(["-e".to_owned(), "signal=none".to_owned(), "-e".to_owned()]);
        all.push(format!("trace={TRACED},{READS}"));
        all.extend(["-o".to_owned(), self.log().to_string_lossy().into_owned()]);
        all.push("--".to_owned());
        all.extend(command.iter().cloned());
        all
    }

    /// The calls about files below `dir`, on the recording's clock, with inodes and the requests
    /// that they waited for.
    ///
    /// # Errors
    /// The output of strace cannot be read.
    pub(super) fn finish(
        &self,
        dir: &Path,
        recording: &Recording,
        rows: &[BlockRow],
    ) -> Result<Vec<StoredCall>> {
        let text = std::fs::read(self.log()).context("reading the system calls")?;
        let shift = match self.clock {
            CallClock::Host(then, wall) => {
                let (instant, time) = recording.clock;
                let ago = instant.saturating_duration_since(then).as_nanos() as i64;
                let wall = wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
                time.as_nanos() as i64 - ago - wall
            }
            CallClock::Guest => -ordo_runtime::VIRTUAL_EPOCH * 1_000_000_000,
        };
        let text = String::from_utf8_lossy(&text);
        let mut calls = stored(&text, dir, |_| shift);
        find_inodes(&mut calls, rows);
        find_waits(&mut calls, &recording.trace, rows);
        Ok(calls)
    }
}

/// The calls about files below `dir` in the output of strace. `shift` is added to their times; it
/// is told the first one's.
fn stored(text: &str, dir: &Path, shift: impl FnOnce(i64) -> i64) -> Vec<StoredCall> {
    let calls = parse(text, &dir.to_string_lossy());
    let shift = shift(calls.iter().map(|call| call.began).min().unwrap_or(0));
    let clock = |at: i64| u64::try_from(at.saturating_add(shift)).unwrap_or(0);
    let rooted = |path: String| format!("/{path}");
    let stored = calls.into_iter().map(|call| StoredCall {
        process: call.pid.into(),
        path: call.file.map(rooted),
        other_path: call.other.map(rooted),
        inode: None,
        offset: call.offset,
        len: (call.len > 0).then_some(call.len),
        flags: Some(call.flags).filter(|flags| !flags.is_empty()),
        began: clock(call.began),
        ended: clock(call.ended).max(clock(call.began)),
        outcome: call.outcome,
        error: call.error,
        name: call.name,
        waits: Vec::new(),
    });
    let mut stored: Vec<StoredCall> = stored.collect();
    stored.sort_by_key(|call| call.began);
    stored
}

/// The calls in the output of `strace -f -ttt -T -y`, beside a trace that was recorded without
/// them: of files below `dir`, with the requests that they waited for. `zero` is the time of the
/// trace's clock at 0, in seconds since 1970; without it the first call counts as made when the
/// first request was issued.
///
/// # Errors
/// The file cannot be read, or has no call about a file below `dir`.
pub(super) fn of_strace(
    (file, dir): (&Path, &Path),
    zero: Option<f64>,
    (trace, rows): (&Trace, &[BlockRow]),
) -> Result<Vec<StoredCall>> {
    let text = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let first = trace.requests().first().map_or(0, |r| r.issued.as_nanos().cast_signed());
    let mut calls = stored(&String::from_utf8_lossy(&text), dir, |call| match zero {
        Some(seconds) => -((seconds * 1e9) as i64),
        None => first - call,
    });
    if calls.is_empty() {
        bail!(
            "{}: no call about a file below {}; record with strace -f -ttt -T -y",
            file.display(),
            dir.display()
        );
    }
    find_inodes(&mut calls, rows);
    find_waits(&mut calls, trace, rows);
    Ok(calls)
}

/// A table of the time of calls, by the requests for which they waited; empty if none waited.
pub(super) fn waits(all: &[Waited]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let millis = |ns: u64| number::figure(ns as f64 / 1e6);
    let mut table = Table::new(&[
        ("calls that waited, milliseconds", Align::Left),
        ("calls", Align::Right),
        ("all", Align::Right),
        ("each", Align::Right),
    ]);
    for waited in all {
        let calls = number::count(waited.calls);
        let each = waited.ns / waited.calls.max(1);
        table.row([waited.name.clone(), calls, millis(waited.ns), millis(each)]);
        let mut kinds: Vec<_> = waited.by_kind.iter().collect();
        kinds.sort_by_key(|(kind, ns)| (std::cmp::Reverse(**ns), **kind));
        let mut row = |what: String, ns: u64| {
            let each = millis(ns / waited.calls.max(1));
            table.row([what, String::new(), millis(ns), each]);
        };
        kinds.into_iter().for_each(|(kind, ns)| row(format!("  for {kind}"), *ns));
        row("  elsewhere".to_owned(), waited.elsewhere_ns);
        let latency = waited.latency;
        for (name, ns) in [("median", latency.p50), ("99%", latency.p99), ("most", latency.most)] {
            table.row([format!("  {name}"), String::new(), String::new(), millis(ns)]);
        }
    }
    format!("\n{table}")
}

/// A table of the calls that took longest; empty if there are none.
pub(super) fn slowest_calls(all: &[StoredCall]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("slowest calls", Align::Left),
        ("process", Align::Right),
        ("at second", Align::Right),
        ("milliseconds", Align::Right),
        ("most of it for", Align::Left),
        ("file", Align::Left),
    ]);
    for call in all {
        let took = call.ended.saturating_sub(call.began);
        let most = call.waits.iter().max_by_key(|wait| wait.ns);
        let most = most.filter(|wait| wait.ns > took / 2).map_or("", |wait| wait.kind);
        table.row([
            call.name.clone(),
            call.process.to_string(),
            number::figure(call.began as f64 / 1e9),
            number::figure(took as f64 / 1e6),
            most.to_owned(),
            call.path.clone().unwrap_or_default(),
        ]);
    }
    format!("\n{table}")
}
