//! Text output: lines as blkparse prints them, each with the meaning of its request.

use std::io::{self, Write};

use ordo_trace::{Flags, RequestOp, Trace, TraceRequest};

use crate::rows::BlockRow;

const SECTOR: u64 = 512;

/// The letters that blkparse prints for a request (RWBS).
fn letters(r: &TraceRequest) -> String {
    let mut out = String::new();
    if r.flags.contains(Flags::PREFLUSH) || r.op == RequestOp::Flush {
        out.push('F');
    }
    match r.op {
        RequestOp::Read => out.push('R'),
        RequestOp::Write | RequestOp::WriteZeroes => out.push('W'),
        RequestOp::Discard => out.push('D'),
        RequestOp::Flush | RequestOp::Mark => {}
    }
    for (flag, letter) in [(Flags::FUA, 'F'), (Flags::SYNC, 'S'), (Flags::META, 'M')] {
        if r.flags.contains(flag) {
            out.push(letter);
        }
    }
    if out.is_empty() { "N".into() } else { out }
}

/// Writes two lines for each request, at its issue (`D`) and at its completion (`C`), in the order
/// of these events; a mark is a message (`m`). A request's meaning follows the process name in
/// brackets.
///
/// # Errors
/// `out` failed.
pub fn write(trace: &Trace, blocks: &[BlockRow], out: &mut impl Write) -> io::Result<()> {
    let requests = trace.requests();
    // Without times, the order of completion is used.
    let mut events = Vec::with_capacity(2 * requests.len());
    let mut completed: Vec<_> =
        requests.iter().enumerate().filter_map(|(i, r)| Some((r.end?, i))).collect();
    completed.sort_by_key(|(end, _)| end.order);
    let mut ended = completed.into_iter().peekable();
    for (i, r) in requests.iter().enumerate() {
        // Requests that completed before this one was issued come first.
        while let Some((end, n)) = ended.next_if(|(end, n)| *n < i && end.at <= r.issued) {
            events.push((end.at, 'C', n));
        }
        events.push((r.issued, if r.op == RequestOp::Mark { 'm' } else { 'D' }, i));
    }
    events.extend(ended.map(|(end, n)| (end.at, 'C', n)));
    events.retain(|(_, action, n)| *action != 'C' || requests[*n].op != RequestOp::Mark);
    for (sequence, (at, action, i)) in (1..).zip(events) {
        let r = &requests[i];
        let nanos = at.as_nanos();
        let (s, ns) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let head = format!("{:>3},{:<3} {:2} {:8} {s:5}.{ns:09} {:5}", 8, 0, 0, sequence, 0);
        if action == 'm' {
            let text = trace.data(r).unwrap_or_default();
            writeln!(out, "{head}  m   N {}", String::from_utf8_lossy(text).escape_debug())?;
            continue;
        }
        write!(out, "{head}  {action} {:>3}", letters(r))?;
        if r.len > 0 {
            write!(out, " {} + {}", r.offset / SECTOR, r.len.div_ceil(SECTOR))?;
        }
        let dropped = if r.flags.contains(Flags::DROPPED) { ", dropped" } else { "" };
        match action {
            'D' => write!(out, " [{}{dropped}]", means(i as u64, blocks))?,
            _ => write!(out, " [0]")?,
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The kinds of a request's blocks, each once, in order.
pub(crate) fn means(request: u64, blocks: &[BlockRow]) -> String {
    let mut said: Vec<&str> = Vec::new();
    for row in of_request(request, blocks) {
        if !said.contains(&row.kind.words()) {
            said.push(row.kind.words());
        }
    }
    if said.is_empty() { "0".into() } else { said.join(", ") }
}

/// The rows of one request.
pub(crate) fn of_request(request: u64, blocks: &[BlockRow]) -> &[BlockRow] {
    let from = blocks.partition_point(|row| row.request < request);
    let to = from + blocks[from..].partition_point(|row| row.request == request);
    &blocks[from..to]
}
