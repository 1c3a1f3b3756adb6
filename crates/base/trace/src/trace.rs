//! A whole trace.

use std::borrow::Cow;

use bytes::Bytes;
use ordo_block::tap::Record;
use ordo_runtime::Time;

use crate::contents::Contents;
use crate::processes::Processes;
use crate::request::{Flags, RequestEnd, RequestOp, RequestSpan, TraceRequest};

/// The contents of a trace's requests, wherever they lie.
pub trait RequestContents {
    /// The contents of the request with this number, or a mark's text; `None` if they were not
    /// kept.
    fn contents(&self, number: u64) -> Option<Cow<'_, [u8]>>;
}

impl RequestContents for Trace {
    fn contents(&self, number: u64) -> Option<Cow<'_, [u8]>> {
        let request = self.requests.get(usize::try_from(number).ok()?)?;
        self.data(request).map(Cow::Borrowed)
    }
}

/// Requests in order of issue, and their contents.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The unit of offsets and lengths, in bytes.
    sector: u32,
    /// Whether requests have times.
    timed: bool,
    /// The name of the disk model that timed the requests.
    disk: Option<String>,
    requests: Vec<TraceRequest>,
    contents: Contents,
    processes: Processes,
}

/// Traces are the same that have the same requests with the same contents, wherever these lie.
/// Processes, which only some tracers tell, do not count.
impl PartialEq for Trace {
    fn eq(&self, other: &Trace) -> bool {
        let same = |(a, b): (&TraceRequest, &TraceRequest)| {
            let (of_a, of_b) = (self.data(a), other.data(b));
            TraceRequest { data: None, ..*a } == TraceRequest { data: None, ..*b } && of_a == of_b
        };
        (self.sector, self.timed, &self.disk) == (other.sector, other.timed, &other.disk)
            && self.requests.len() == other.requests.len()
            && self.requests.iter().zip(&other.requests).all(same)
    }
}

impl Eq for Trace {}

impl Trace {
    /// A trace without requests, of a device with sectors of `sector` bytes.
    pub fn new(sector: u32, timed: bool) -> Trace {
        Trace { sector, timed, ..Trace::default() }
    }

    /// A trace of requests whose spans are in `contents`.
    pub(crate) fn over(sector: u32, requests: Vec<TraceRequest>, contents: Vec<u8>) -> Trace {
        Trace { sector, requests, contents: Contents::of(contents), ..Trace::default() }
    }

    /// The unit of offsets and lengths, in bytes.
    pub fn sector(&self) -> u32 {
        self.sector
    }

    /// Whether requests have times.
    pub fn timed(&self) -> bool {
        self.timed
    }

    /// The name of the disk model that timed the requests, if there was one.
    pub fn disk(&self) -> Option<&str> {
        self.disk.as_deref()
    }

    /// Sets the name of the disk model that timed the requests.
    pub fn set_disk(&mut self, disk: Option<&str>) {
        self.disk = disk.map(str::to_owned);
    }

    /// The requests, in order of issue.
    pub fn requests(&self) -> &[TraceRequest] {
        &self.requests
    }

    /// The length of all contents, in bytes.
    pub fn contents_len(&self) -> usize {
        self.contents.len()
    }

    /// The contents of a request of this trace, or a mark's text.
    pub fn data(&self, request: &TraceRequest) -> Option<&[u8]> {
        self.contents.get(request.data?)
    }

    /// The same, for somebody who keeps them. Only short contents are copied.
    pub fn share(&self, request: &TraceRequest) -> Option<Bytes> {
        self.contents.share(request.data?)
    }

    /// The name of the process that sent the request with this number, if a tracer told it.
    pub fn process(&self, number: usize) -> Option<&str> {
        self.processes.get(number)
    }

    /// Sets the name of the process that sent the request with this number.
    pub fn set_process(&mut self, number: usize, name: &str) {
        self.processes.set(number, name);
    }

    /// Inserts marks: for each the number of requests before it, the moment, and the text; in
    /// order. The contents of the requests stay where they are.
    pub fn insert_marks<'a>(&mut self, marks: impl Iterator<Item = (u64, Time, &'a str)>) {
        let requests = std::mem::take(&mut self.requests);
        let (mut marks, mut epoch) = (marks.peekable(), 0);
        let has_processes = !self.processes.is_empty();
        let mut places = Vec::new();
        for (number, request) in requests.into_iter().map(Some).chain([None]).enumerate() {
            while let Some((_, issued, text)) = marks.next_if(|(at, ..)| *at <= number as u64) {
                let data = Some(self.keep(text.as_bytes()));
                let (op, flags) = (RequestOp::Mark, Flags::empty());
                let (offset, len, end) = (0, 0, None);
                self.push(TraceRequest { op, flags, offset, len, issued, epoch, end, data });
            }
            if let Some(request) = request {
                epoch = request.epoch + u64::from(request.op == RequestOp::Flush);
                places.extend(has_processes.then_some(self.requests.len()));
                self.requests.push(request);
            }
        }
        self.processes.renumber(|number| places[number]);
    }

    /// Appends a request. Panics if its span, if any, is not within this trace's contents.
    pub fn push(&mut self, request: TraceRequest) {
        if let Some(span) = request.data {
            assert!(self.contents.get(span).is_some(), "contents that are missing");
        }
        self.requests.push(request);
    }

    /// Ends the request with this number; `data` are the contents of a read. Panics if there is no
    /// such request.
    pub fn end(&mut self, number: usize, end: RequestEnd, data: Option<RequestSpan>) {
        let request = &mut self.requests[number];
        request.end = Some(end);
        request.data = request.data.or(data);
    }

    /// Marks the write with this number as one that was never carried out. Panics if there is no
    /// such request.
    pub fn set_dropped(&mut self, number: usize) {
        self.requests[number].flags |= crate::request::Flags::DROPPED;
    }

    /// The requests from number `from` to number `to`, with their contents, as a trace of their
    /// own. Panics if there are not so many.
    pub fn part(&self, from: usize, to: usize) -> Trace {
        let mut part = Trace { disk: self.disk.clone(), ..Trace::new(self.sector, self.timed) };
        for (number, request) in (from..to).zip(&self.requests[from..to]) {
            let data = self.data(request).map(|bytes| part.keep(bytes));
            part.push(TraceRequest { data, ..*request });
            if let Some(name) = self.process(number) {
                part.set_process(number - from, name);
            }
        }
        part
    }

    /// Adds contents, for a request that is pushed later.
    pub fn keep(&mut self, bytes: &[u8]) -> RequestSpan {
        self.contents.keep(bytes)
    }

    /// The trace of a tap's records, on a device with sectors of `sector` bytes.
    pub fn from_records(records: &[Record], sector: u32) -> Trace {
        let mut trace = Trace::new(sector, true);
        for r in records {
            let data = r.data.as_ref().map(|data| trace.contents.keep_recorded(data));
            let end = |e: ordo_block::tap::RecordEnd| RequestEnd {
                order: e.order,
                at: e.at,
                epoch: e.epoch,
                ok: e.result.is_ok(),
            };
            trace.push(TraceRequest {
                op: RequestOp::from(r.op),
                flags: Flags::from(r.flags),
                offset: r.offset,
                len: r.len,
                issued: r.issued,
                epoch: r.issue_epoch,
                end: r.end.map(end),
                data,
            });
        }
        trace
    }
}
