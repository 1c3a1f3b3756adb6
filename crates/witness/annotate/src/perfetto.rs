//! Output in Chrome's JSON trace format, which Perfetto reads: a track for each kind, a slice for
//! each request under way.

use std::io::{self, Write};

use ordo_trace::{Flags, RequestOp, Trace, TraceRequest};
use ordo_watcher::Class;

use crate::calls::StoredCall;
use crate::rows::BlockRow;
use crate::text::{means, of_request};

/// An event of the format, with times in microseconds.
#[derive(serde::Serialize)]
struct Event<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    args: serde_json::Value,
}

/// The tracks after those of kinds.
const FLUSHES: u32 = Class::ALL.len() as u32 + 1;
const DISCARDS: u32 = FLUSHES + 1;
const MARKS: u32 = DISCARDS + 1;
/// The track on which flows from system calls end.
const WAITED: u32 = MARKS + 1;
/// The most flows of one system call.
const FLOWS: usize = 1000;

fn track(r: &TraceRequest, kind: Class) -> (u32, &'static str) {
    match r.op {
        RequestOp::Flush => (FLUSHES, "flushes"),
        RequestOp::Discard => (DISCARDS, "discards"),
        RequestOp::Mark => (MARKS, "marks"),
        RequestOp::Read | RequestOp::Write | RequestOp::WriteZeroes => {
            (kind as u32 + 1, kind.words())
        }
    }
}

/// Writes a trace. Without times, each request takes a microsecond, one after the other.
///
/// # Errors
/// `out` failed.
pub fn write(
    trace: &Trace,
    blocks: &[BlockRow],
    calls: &[StoredCall],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut named = vec![false; MARKS as usize + 1];
    let mut first = true;
    let mut put = |event: &Event<'_>, out: &mut dyn Write| -> io::Result<()> {
        out.write_all(if std::mem::take(&mut first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(out, event).map_err(io::Error::from)
    };
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for (i, r) in trace.requests().iter().enumerate() {
        let rows = of_request(i as u64, blocks);
        let kind = rows.first().map_or(Class::Unknown, |row| row.kind);
        let (tid, name) = track(r, kind);
        let args = |value| serde_json::json!({ "name": value });
        let (pid, cat) = (1, r.op.words());
        if !std::mem::replace(&mut named[tid as usize], true) {
            let thread = Event {
                name: "thread_name",
                cat,
                ph: "M",
                ts: None,
                pid,
                tid,
                id: None,
                args: args(name),
            };
            put(&thread, out)?;
        }
        let micros = |t: ordo_runtime::Time| t.as_nanos() as f64 / 1000.0;
        let (start, end) = match (trace.timed(), r.end) {
            (false, _) => (i as f64, i as f64 + 1.0),
            (true, Some(end)) => (micros(r.issued), micros(end.at)),
            (true, None) => (micros(r.issued), micros(r.issued)),
        };
        let text = trace.data(r).filter(|_| r.op == RequestOp::Mark).map(String::from_utf8_lossy);
        let transaction = rows.iter().find_map(|row| row.transaction.or(row.completes));
        let args = serde_json::json!({
            "request": i, "offset": r.offset, "length": r.len, "epoch": r.epoch,
            "kinds": means(i as u64, blocks), "transaction": transaction,
            "inode": rows.iter().find_map(|row| row.ino),
            "path": rows.iter().find_map(|row| row.path.as_deref()), "text": text,
            "dropped": r.flags.contains(Flags::DROPPED),
        });
        // Requests overlap, which slices of one track must not; asynchronous events may.
        let id = Some(i as u64);
        let begin = Event { name: cat, cat: name, ph: "b", ts: Some(start), pid, tid, id, args };
        let args = serde_json::Value::default();
        let end = Event { name: cat, cat: name, ph: "e", ts: Some(end), pid, tid, id, args };
        put(&begin, out)?;
        put(&end, out)?;
    }
    for event in calls.iter().enumerate().flat_map(|(n, call)| of_call(n, call, trace)) {
        put(&event, out)?;
    }
    writeln!(out, "\n]}}")
}

/// The process of system calls, beside that of requests.
const CALLS: u32 = 2;

/// The events of a system call: a slice on its process's track, and a flow to it from the end of
/// the last request that it waited for.
fn of_call<'a>(number: usize, call: &'a StoredCall, trace: &Trace) -> Vec<Event<'a>> {
    let (name, pid, tid) = (&*call.name, CALLS, call.process as u32);
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let waits: Vec<u64> = call.waits.iter().map(|wait| wait.request).collect();
    let args = serde_json::json!({
        "call": number, "path": call.path, "other_path": call.other_path, "inode": call.inode,
        "file_offset": call.offset, "length": call.len, "error": call.error, "waited_for": waits,
    });
    let event = |ph, at, id, args| {
        let (ts, cat) = (Some(micros(at)), "call");
        Event { name, cat, ph, ts, pid, tid, id, args }
    };
    let mut all = vec![event("B", call.began, None, args), event("E", call.ended, None, none())];
    let flow = |n: usize| Some(((number as u64) << 20) + n as u64);
    for (n, wait) in call.waits.iter().enumerate().take(FLOWS) {
        let Some(r) = trace.requests().get(wait.request as usize) else { continue };
        // A flow begins in the slice of the call, and ends with the request.
        let from = call.began.max(r.issued.as_nanos()).min(call.ended);
        all.push(event("s", from, flow(n), none()));
        let Some(end) = r.end else { continue };
        let to =
            event("f", end.at.as_nanos(), flow(n), serde_json::json!({"request": wait.request}));
        all.push(Event { pid: 1, tid: WAITED, ..to });
    }
    all
}

fn none() -> serde_json::Value {
    serde_json::Value::default()
}
