//! Import from the events of the kernel's blktrace, and from text about them:
//! `docs/formats/blktrace.md`.

use std::borrow::Cow;
use std::collections::VecDeque;

use ordo_format::Endian;
use ordo_format::blktrace::BlkEvent;
use ordo_runtime::Time;
use rustc_hash::FxHashMap;

use crate::blktext;
use crate::request::{Flags, RequestEnd, RequestOp, TraceRequest};
use crate::trace::Trace;

/// The unit of sectors, in bytes.
pub(crate) const SECTOR: u64 = 512;
/// The number of lines among which one about a request must be, for a file to be the text of a
/// tracer.
const HEADINGS_MAX: usize = 200;

/// The reason why events were not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlktraceError {
    /// There is no magic number at the place where an event should begin.
    #[error(
        "file {file}, byte {byte}: not an event of blktrace: the magic number is {found:#x}; was the trace cut or joined?"
    )]
    Magic {
        /// The index of the file, from 0.
        file: usize,
        /// The byte in the file.
        byte: usize,
        /// The value found.
        found: u32,
    },
    /// The version is not known here.
    #[error("file {file}, byte {byte}: an event of version {found}; only version 7 is known")]
    Version {
        /// The index of the file, from 0.
        file: usize,
        /// The byte in the file.
        byte: usize,
        /// The value found.
        found: u8,
    },
    /// A request lies beyond any device.
    #[error("file {file}, byte {byte}: a request at the impossible sector {sector}")]
    Place {
        /// The index of the file, from 0.
        file: usize,
        /// The byte in the file.
        byte: usize,
        /// The first sector.
        sector: u64,
    },
    /// A line of text begins as an event, and is not one.
    #[error("file {file}, line {line}: an event that is cut, or has an impossible sector")]
    Line {
        /// The index of the file, from 0.
        file: usize,
        /// The line, from 1.
        line: usize,
    },
    /// The requests are of more than one device.
    #[error("requests of {0} devices; trace one, or choose one with blkparse")]
    Devices(usize),
}

/// An imported trace.
#[derive(Debug)]
pub struct ImportedBlktrace {
    /// The requests, in order of issue.
    pub trace: Trace,
    /// Files that end within an event: the index of each, and the byte.
    pub cut: Vec<(usize, usize)>,
    /// Completions of requests that were issued before the trace, or whose issue was lost.
    pub unmatched: u64,
    /// Commands of drivers' own, which are left out.
    pub passthrough: u64,
}

/// An event with its payload.
struct Event<'a> {
    head: BlkEvent,
    words: Cow<'a, [u8]>,
}

/// Whether a file is the text of blkparse or bpftrace: whether one of its first lines is about a
/// request.
pub fn is_text(file: &[u8]) -> bool {
    file.split(|byte| *byte == b'\n').take(HEADINGS_MAX).any(|line| blktext::read(line).is_some())
}

/// Reads the text of blkparse or bpftrace: `docs/formats/blktrace.md`. Lines about anything else
/// are passed over.
///
/// # Errors
/// A line is damaged, or the requests are of more than one device. A last line that is cut short is
/// no error.
pub fn import_text(files: &[Vec<u8>]) -> Result<ImportedBlktrace, BlktraceError> {
    let (mut events, mut cut) = (Vec::new(), Vec::new());
    for (file, bytes) in files.iter().enumerate() {
        let mut at = 0;
        for (line, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            match blktext::read(text) {
                Some(Ok((head, words))) => events.push(Event { head, words: words.into() }),
                Some(Err(_)) if !text.ends_with(b"\n") => cut.push((file, at)),
                Some(Err(_)) => return Err(BlktraceError::Line { file, line: line + 1 }),
                None => {}
            }
            at += text.len();
        }
    }
    requests(events, cut)
}

/// Reads the files of a trace, one for each processor, or a single file of all.
///
/// # Errors
/// The files are not events of blktrace, or are of more than one device. A file that is cut short
/// is no error.
pub fn import(files: &[Vec<u8>]) -> Result<ImportedBlktrace, BlktraceError> {
    let mut cut = Vec::new();
    let mut events = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if let Some(at) = read(number, file, &mut events)? {
            cut.push((number, at));
        }
    }
    requests(events, cut)
}

/// Makes requests of the events of all files.
fn requests(
    mut events: Vec<Event<'_>>,
    cut: Vec<(usize, usize)>,
) -> Result<ImportedBlktrace, BlktraceError> {
    // The sort is stable, so events of one processor keep their order.
    events.sort_by_key(|e| e.head.time);
    let notice = |e: &&Event<'_>| e.head.category() & BlkEvent::NOTICE == 0;
    let mut devices: Vec<u32> = events.iter().filter(notice).map(|e| e.head.device).collect();
    devices.sort_unstable();
    devices.dedup();
    if devices.len() > 1 {
        return Err(BlktraceError::Devices(devices.len()));
    }
    let issues = events.iter().filter(notice).any(|e| e.head.act() == BlkEvent::ISSUE);
    let mut reader = Reader {
        starts: if issues { BlkEvent::ISSUE } else { BlkEvent::QUEUE },
        trace: Trace::new(SECTOR as u32, true),
        requests: Vec::new(),
        open: FxHashMap::default(),
        epoch: 0,
        order: 0,
        unmatched: 0,
        passthrough: 0,
    };
    events.iter().for_each(|e| reader.event(e));
    let Reader { mut trace, requests, unmatched, passthrough, .. } = reader;
    requests.into_iter().for_each(|r| trace.push(r));
    Ok(ImportedBlktrace { trace, cut, unmatched, passthrough })
}

/// Appends the events of one file. Returns the byte at which the file is cut short, if it is.
fn read<'a>(
    file: usize,
    bytes: &'a [u8],
    events: &mut Vec<Event<'a>>,
) -> Result<Option<usize>, BlktraceError> {
    let mut at = 0;
    while at < bytes.len() {
        let Some(raw) = bytes.get(at..at + BlkEvent::SIZE) else { return Ok(Some(at)) };
        let mut head = BlkEvent::decode(raw, Endian::Little);
        let found = head.magic;
        if found & 0xffff_ff00 != BlkEvent::MAGIC {
            head = BlkEvent::decode(raw, Endian::Big);
        }
        if head.magic & 0xffff_ff00 != BlkEvent::MAGIC {
            return Err(BlktraceError::Magic { file, byte: at, found });
        }
        let found = head.magic as u8;
        if found != BlkEvent::VERSION {
            return Err(BlktraceError::Version { file, byte: at, found });
        }
        let sector = head.sector;
        let end = sector.checked_mul(SECTOR).and_then(|at| at.checked_add(head.bytes.into()));
        // For a flush the kernel gives the sector as -1, or as 0.
        if end.is_none() && head.bytes > 0 {
            return Err(BlktraceError::Place { file, byte: at, sector });
        }
        let body = at + BlkEvent::SIZE;
        let Some(words) = bytes.get(body..body + usize::from(head.pdu_len)) else {
            return Ok(Some(at));
        };
        at = body + words.len();
        let group = if head.action & u32::from(BlkEvent::CGROUP) != 0 { 8 } else { 0 };
        let words = words.get(group..).unwrap_or_default();
        events.push(Event { head, words: words.into() });
    }
    Ok(None)
}

/// The key by which a completion finds its request.
type Key = (u64, u32, u16);

struct Reader {
    /// The action that starts a request.
    starts: u16,
    trace: Trace,
    requests: Vec<TraceRequest>,
    /// Requests under way, oldest first.
    open: FxHashMap<Key, VecDeque<usize>>,
    epoch: u64,
    order: u64,
    unmatched: u64,
    passthrough: u64,
}

fn key(head: &BlkEvent) -> Key {
    let direction = BlkEvent::READ | BlkEvent::WRITE | BlkEvent::DISCARD;
    let sector = if head.bytes == 0 { 0 } else { head.sector };
    (sector, head.bytes, head.category() & direction)
}

impl Reader {
    fn event(&mut self, event: &Event<'_>) {
        let head = &event.head;
        let at = Time::from_nanos(head.time);
        if head.category() & BlkEvent::NOTICE != 0 {
            if head.act() == BlkEvent::MESSAGE && !event.words.is_empty() {
                let epoch = self.epoch;
                let end = Some(RequestEnd { order: self.order, at, epoch, ok: true });
                self.order += 1;
                let data = Some(self.trace.keep(&event.words));
                let (op, flags) = (RequestOp::Mark, Flags::empty());
                let (offset, len, issued) = (0, 0, at);
                self.requests.push(TraceRequest {
                    op,
                    flags,
                    offset,
                    len,
                    issued,
                    epoch,
                    end,
                    data,
                });
            }
            return;
        }
        if head.category() & BlkEvent::PASSTHROUGH != 0 {
            self.passthrough += u64::from(head.act() == self.starts);
            return;
        }
        match head.act() {
            act if act == self.starts => self.start(head, at),
            BlkEvent::REQUEUE => self.put_back(head),
            BlkEvent::COMPLETE => self.complete(head, at),
            _ => {}
        }
    }

    fn start(&mut self, head: &BlkEvent, issued: Time) {
        let has = |flag| head.category() & flag != 0;
        let op = match () {
            () if has(BlkEvent::DISCARD) => RequestOp::Discard,
            () if head.bytes == 0 => RequestOp::Flush,
            () if has(BlkEvent::WRITE) => RequestOp::Write,
            () => RequestOp::Read,
        };
        let mut flags = Flags::empty();
        flags.set(Flags::PREFLUSH, has(BlkEvent::FLUSH) && op != RequestOp::Flush);
        flags.set(Flags::FUA, has(BlkEvent::FUA));
        flags.set(Flags::SYNC, has(BlkEvent::SYNC));
        flags.set(Flags::META, has(BlkEvent::META));
        let flushes = op == RequestOp::Flush || flags.contains(Flags::PREFLUSH);
        self.epoch += u64::from(flushes);
        let epoch = self.epoch - u64::from(op == RequestOp::Flush);
        let offset = if op == RequestOp::Flush { 0 } else { head.sector * SECTOR };
        let len = head.bytes.into();
        self.open.entry(key(head)).or_default().push_back(self.requests.len());
        let (end, data) = (None, None);
        self.requests.push(TraceRequest { op, flags, offset, len, issued, epoch, end, data });
    }

    /// The request will be sent again: it begins then, and the first issue does not count.
    fn put_back(&mut self, head: &BlkEvent) {
        let last = self.open.get_mut(&key(head)).and_then(VecDeque::pop_back);
        if let Some(last) = last
            && last + 1 == self.requests.len()
        {
            self.requests.pop();
        }
    }

    fn complete(&mut self, head: &BlkEvent, at: Time) {
        let Some(request) = self.open.get_mut(&key(head)).and_then(VecDeque::pop_front) else {
            self.unmatched += 1;
            return;
        };
        let (order, epoch, ok) = (self.order, self.epoch, head.error == 0);
        self.order += 1;
        self.requests[request].end = Some(RequestEnd { order, at, epoch, ok });
    }
}
