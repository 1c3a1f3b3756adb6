//! The calls that are stored with a recorded trace, as a workload.

use std::path::Path;

use ordo_annotate::calls::StoredCall;
use ordo_trace::strace::Syscall;
use ordo_workload::{ParseError, Workload};

/// Parses a workload's text. `calls:` may name a recorded trace.
///
/// # Errors
/// The text is not a workload's, or names files that cannot be read.
pub fn parse_workload(text: &str) -> Result<Workload, ParseError> {
    Workload::parse(text, &stored_calls)
}

fn stored_calls(trace: &Path) -> Result<Vec<Syscall>, String> {
    let stored = ordo_annotate::calls::read(trace).map_err(|error| error.to_string())?;
    if stored.is_empty() {
        return Err("this trace has no system calls; `ordo trace run --calls` records them".into());
    }
    Ok(stored.into_iter().map(of_trace).collect())
}

/// A call whose paths begin at the root of the file system.
fn of_trace(call: StoredCall) -> Syscall {
    let below = |path: String| path.trim_start_matches('/').to_owned();
    let nanos = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    Syscall {
        pid: call.process as u32,
        began: nanos(call.began),
        ended: nanos(call.ended),
        file: call.path.map(below),
        other: call.other_path.map(below),
        fd: None,
        offset: call.offset,
        len: call.len.unwrap_or(0),
        flags: call.flags.unwrap_or_default(),
        error: call.error,
        outcome: call.outcome,
        name: call.name,
    }
}
