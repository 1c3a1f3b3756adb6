//! System calls recorded beside a trace, with strace(1).

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ordo_annotate::calls::{StoredCall, Waited, find_inodes, find_waits};
use ordo_annotate::rows::BlockRow;
use ordo_pseudo::Recording;
use ordo_report::number;
use ordo_report::table::{Align, Table};
use ordo_trace::strace::{READS, TRACED, parse};

/// A recording of system calls under way.
#[derive(Debug)]
pub(super) struct Calls {
    log: tempfile::NamedTempFile,
    /// One moment on two clocks.
    clocks: (Instant, SystemTime),
}

impl Calls {
    /// Begins a recording.
    ///
    /// # Errors
    /// There is no space for a temporary file.
    pub(super) fn new() -> Result<Calls> {
        let log = tempfile::NamedTempFile::new().context("a file for the system calls")?;
        Ok(Calls { log, clocks: (Instant::now(), SystemTime::now()) })
    }

    /// The command line that runs `command` and records its calls.
    pub(super) fn around(&self, command: &[String]) -> Vec<String> {
        // A filter in the kernel lets all other calls pass at full speed.
        let strace = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "256"];
        let mut all: Vec<String> = strace.iter().map(|s| (*s).to_owned()).collect();
        all.extend(["--absolute-timestamps=unix,ns", "--syscall-times=ns"].map(str::to_owned));
        all.extend(["-e".to_owned(), "signal=none".to_owned(), "-e".to_owned()]);
        all.push(format!("trace={TRACED},{READS}"));
        all.extend(["-o".to_owned(), self.log.path().to_string_lossy().into_owned()]);
        all.push("--".to_owned());
        all.extend(command.iter().cloned());
        all
    }

    /// The calls about files below `dir`, on the recording's clock, with inodes and the requests that they waited for.
    ///
    /// # Errors
    /// The output of strace cannot be read.
    pub(super) fn finish(
        &self,
        dir: &Path,
        recording: &Recording,
        rows: &[BlockRow],
    ) -> Result<Vec<StoredCall>> {
        let text = std::fs::read(self.log.path()).context("reading the system calls")?;
        let (instant, time) = recording.clock;
        let (then, wall) = self.clocks;
        let ago = instant.saturating_duration_since(then).as_nanos() as i64;
        let wall = wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
        let shift = time.as_nanos() as i64 - ago - wall;
        let clock = |at: i64| u64::try_from(at + shift).unwrap_or(0);
        let rooted = |path: String| format!("/{path}");
        let calls = parse(&String::from_utf8_lossy(&text), &dir.to_string_lossy());
        let mut calls: Vec<StoredCall> = calls
            .into_iter()
            .map(|call| StoredCall {
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
            })
            .collect();
        find_inodes(&mut calls, rows);
        find_waits(&mut calls, &recording.trace, rows);
        Ok(calls)
    }
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
    }
    format!("\n{table}")
}
