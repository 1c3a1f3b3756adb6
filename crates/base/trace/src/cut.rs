//! A trace of a part of a device.

use crate::request::{RequestEnd, RequestOp, RequestSpan, TraceRequest};
use crate::trace::Trace;

/// The parts of `len` bytes at `offset` that lie in the ranges, each the offset and the end in
/// bytes, in order. Returns the offset and the length of each part.
pub fn cut(ranges: &[(u64, u64)], offset: u64, len: u64) -> Vec<(u64, u64)> {
    let end = offset.saturating_add(len);
    let first = ranges.partition_point(|(_, to)| *to <= offset);
    let inside = ranges[first..].iter().take_while(|(from, _)| *from < end);
    let parts = inside.map(|(from, to)| {
        let (from, to) = ((*from).max(offset), (*to).min(end));
        (from, to - from)
    });
    parts.filter(|(_, len)| *len > 0).collect()
}

impl Trace {
    /// The requests to ranges of the device, each an offset and an end in bytes, in order. The byte
    /// `origin` of the device gets the offset 0. A request becomes as many as it has parts in the
    /// ranges; flushes and marks are kept.
    #[must_use]
    pub fn cut(&self, ranges: &[(u64, u64)], origin: u64) -> Trace {
        let mut out = Trace::new(self.sector(), self.timed());
        out.set_disk(self.disk());
        let mut ends: Vec<(u64, usize)> = Vec::new();
        for (number, r) in self.requests().iter().enumerate() {
            let parts = match r.op {
                RequestOp::Flush | RequestOp::Mark => vec![(r.offset, r.len)],
                _ => cut(ranges, r.offset, r.len),
            };
            for (at, len) in parts {
                let is_whole = len == r.len;
                let data = self.data(r).and_then(|data| match is_whole {
                    true => Some(data),
                    false => data.get((at - r.offset) as usize..(at - r.offset + len) as usize),
                });
                let data: Option<RequestSpan> = data.map(|bytes| out.keep(bytes));
                let offset = if len == 0 { 0 } else { at.saturating_sub(origin) };
                ends.extend(r.end.map(|end| (end.order, out.requests().len())));
                if let Some(name) = self.process(number) {
                    out.set_process(out.requests().len(), name);
                }
                out.push(TraceRequest { offset, len, data, ..*r });
            }
        }
        // Completions are counted anew, in their order.
        ends.sort_unstable();
        for (order, (_, number)) in ends.into_iter().enumerate() {
            let end = out.requests()[number].end;
            if let Some(end) = end {
                out.end(number, RequestEnd { order: order as u64, ..end }, None);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use ordo_runtime::Time;

    use super::*;
    use crate::request::Flags;

    /// Operation, offset, length, number of the completion, first and last byte of the contents.
    type Row = (RequestOp, u64, u64, u64, Option<Vec<u8>>);

    fn trace(requests: &[(RequestOp, u64, u64, u64)]) -> Trace {
        let mut trace = Trace::new(512, true);
        for (op, offset, len, order) in requests {
            let bytes: Vec<u8> = (*offset..offset + len).map(|at| (at / 512) as u8).collect();
            let data = (*op == RequestOp::Write).then(|| trace.keep(&bytes));
            let end = Some(RequestEnd { order: *order, at: Time::ZERO, epoch: 0, ok: true });
            let (op, flags, issued, epoch) = (*op, Flags::empty(), Time::ZERO, 0);
            trace.push(TraceRequest {
                op,
                flags,
                offset: *offset,
                len: *len,
                issued,
                epoch,
                end,
                data,
            });
        }
        trace
    }

    /// Requests beside, across and around the ranges; contents go with their bytes, flushes stay,
    /// and completions keep their order.
    #[test]
    fn requests_are_cut_at_the_edges() {
        use RequestOp::{Discard, Flush, Read, Write};
        let whole = trace(&[
            (Write, 0, 1024, 3),
            (Write, 1536, 1024, 1),
            (Flush, 0, 0, 2),
            (Discard, 0, 1 << 20, 0),
            (Read, 4096, 512, 4),
        ]);
        let of = |trace: &Trace| -> Vec<Row> {
            let each = trace.requests().iter();
            each.map(|r| {
                let ends = trace.data(r).map(|d| vec![d[0], d[d.len() - 1]]);
                (r.op, r.offset, r.len, r.end.unwrap().order, ends)
            })
            .collect()
        };
        let part = whole.cut(&[(2048, 4096)], 2048);
        let wanted = [
            (Write, 0, 512, 1, Some(vec![4, 4])),
            (Flush, 0, 0, 2, None),
            (Discard, 0, 2048, 0, None),
        ];
        assert_eq!(of(&part), wanted);
        let rest = whole.cut(&[(0, 2048), (4096, 8192)], 0);
        let wanted = [
            (Write, 0, 1024, 4, Some(vec![0, 1])),
            (Write, 1536, 512, 2, Some(vec![3, 3])),
            (Flush, 0, 0, 3, None),
            (Discard, 0, 2048, 0, None),
            (Discard, 4096, 4096, 1, None),
            (Read, 4096, 512, 5, None),
        ];
        assert_eq!(of(&rest), wanted);
        assert_eq!(cut(&[], 0, u64::MAX), []);
        assert_eq!(cut(&[(0, u64::MAX)], u64::MAX - 1, 9), [(u64::MAX - 1, 1)]);
    }
}
