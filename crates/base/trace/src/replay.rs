//! Replays a trace, as a tap would have shown it.

use std::cell::Cell;

use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_block::{BlockError, Fault, Operation, WriteFlags};

use crate::request::{Flags, RequestEnd, RequestOp, TraceRequest};
use crate::trace::Trace;

/// The largest piece in which a write-zeroes is shown, in bytes; each piece counts as a write.
pub const ZEROS: usize = 1 << 20;

/// The error of a failed request, since traces do not record the reason.
const EIO: i32 = 5;

struct Player<'a, S: ?Sized> {
    sink: &'a S,
    zeros: Vec<u8>,
    id: u64,
    order: u64,
}

/// Shows every request to `sink` in order of issue, each completed before the next is issued. A
/// write with a preflush is shown as a flush and a write, and a write-zeroes as writes of zeros.
/// Marks are left out.
pub fn replay<S: TapSink + ?Sized>(trace: &Trace, sink: &S) {
    replay_numbered(trace, sink, &Cell::new(0));
}

/// Replays as [`replay`] does, and keeps in `now` the number of the present request in the trace.
pub fn replay_numbered<S: TapSink + ?Sized>(trace: &Trace, sink: &S, now: &Cell<u64>) {
    replay_marked(trace, sink, now, |_| {});
}

/// Replays as [`replay_numbered`] does a trace that is a part of another, in which its first
/// request has the number `first`.
pub fn replay_from<S: TapSink + ?Sized>(trace: &Trace, first: u64, sink: &S, now: &Cell<u64>) {
    replay_all(trace, first, sink, now, |_| {});
}

/// Replays as [`replay_numbered`] does, and calls `mark` with each mark's text, after the requests
/// before it were shown.
pub fn replay_marked<S: TapSink + ?Sized>(
    trace: &Trace,
    sink: &S,
    now: &Cell<u64>,
    mark: impl FnMut(&[u8]),
) {
    replay_all(trace, 0, sink, now, mark);
}

fn replay_all<S: TapSink + ?Sized>(
    trace: &Trace,
    first: u64,
    sink: &S,
    now: &Cell<u64>,
    mut mark: impl FnMut(&[u8]),
) {
    let mut player = Player { sink, zeros: Vec::new(), id: 0, order: 0 };
    for (number, r) in trace.requests().iter().enumerate() {
        now.set(first + number as u64);
        let data = trace.data(r);
        if r.flags.contains(Flags::PREFLUSH) {
            let flush = TraceRequest { op: RequestOp::Flush, offset: 0, len: 0, ..*r };
            player.show(&flush, Operation::Flush, None);
        }
        match r.op {
            RequestOp::Read => player.show(r, Operation::Read, data),
            RequestOp::Write => player.show(r, Operation::Write, data),
            RequestOp::Flush => player.show(r, Operation::Flush, None),
            RequestOp::Discard => player.show(r, Operation::Discard, None),
            RequestOp::WriteZeroes => player.zeroes(r),
            RequestOp::Mark => mark(data.unwrap_or_default()),
        }
    }
}

impl<S: TapSink + ?Sized> Player<'_, S> {
    fn zeroes(&mut self, r: &TraceRequest) {
        let zeros = std::mem::take(&mut self.zeros);
        let zeros = if zeros.is_empty() { vec![0; ZEROS] } else { zeros };
        let mut done = 0;
        while done < r.len {
            let len = (r.len - done).min(ZEROS as u64);
            let piece = TraceRequest { offset: r.offset + done, len, ..*r };
            self.show(&piece, Operation::Write, Some(&zeros[..len as usize]));
            done += len;
        }
        self.zeros = zeros;
    }

    fn show(&mut self, r: &TraceRequest, op: Operation, data: Option<&[u8]>) {
        let (id, offset, len, epoch) = (self.id, r.offset, r.len, r.epoch);
        self.id += 1;
        let write = op == Operation::Write;
        let mut flags = WriteFlags::empty();
        flags.set(WriteFlags::FUA, write && r.flags.contains(Flags::FUA));
        flags.set(WriteFlags::SYNC, write && r.flags.contains(Flags::SYNC));
        flags.set(WriteFlags::META, write && r.flags.contains(Flags::META));
        let written = data.filter(|_| write);
        self.sink.issued(&Issued {
            id,
            op,
            offset,
            len,
            flags,
            data: written,
            shared: None,
            at: r.issued,
            epoch,
        });
        let Some(RequestEnd { at, epoch, ok, .. }) = r.end else { return };
        let order = self.order;
        self.order += 1;
        let fault = Fault::Io(EIO);
        let error =
            BlockError { op, offset, len: usize::try_from(len).unwrap_or(usize::MAX), fault };
        self.sink.completed(&Completed {
            id,
            order,
            op,
            offset,
            len,
            flags,
            data: data.filter(|_| !write),
            issued: r.issued,
            at,
            epoch,
            result: if ok { Ok(()) } else { Err(error) },
        });
    }
}
