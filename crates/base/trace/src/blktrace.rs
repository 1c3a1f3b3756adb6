//! Import from the events of the kernel's blktrace, and from text about them:
//! `docs/formats/blktrace.md`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::rc::Rc;

use ordo_format::Endian;
use ordo_format::blktrace::BlkEvent;
use ordo_runtime::Time;
use rustc_hash::FxHashMap;

use crate::blktext;
use crate::devices::{DeviceChoice, DevicesError};
use crate::request::{Flags, RequestEnd, RequestOp, TraceRequest};
use crate::trace::Trace;
use crate::tracepoints;

/// The unit of sectors, in bytes.
pub(crate) const SECTOR: u64 = 512;
/// The number of lines among which one about a request must be, for a file to be the text of a
/// tracer. Tracers record other events too.
const HEADINGS_MAX: usize = 5000;
/// The time by which a line of text may be earlier than one before it, in nanoseconds: tracers
/// print the buffers of processors one by one.
pub(crate) const BACK_MAX: u64 = 10_000_000_000;

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
    /// A line of text is much earlier than one before it.
    #[error(
        "file {file}, line {line}: {back} s before an earlier line: are these several traces in one file? Give one of them"
    )]
    Back {
        /// The index of the file, from 0.
        file: usize,
        /// The line, from 1.
        line: usize,
        /// The seconds, rounded down.
        back: u64,
    },
    /// The requests are of more than one device, or not of the wanted one.
    #[error(transparent)]
    Devices(#[from] DevicesError),
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
    /// Events that the tracer says it lost.
    pub lost: u64,
}

/// An event with its payload.
struct Event<'a> {
    head: BlkEvent,
    words: Cow<'a, [u8]>,
    process: Option<Box<str>>,
}

/// Whether a file is the text of blkparse, of bpftrace or of the kernel's tracepoints: whether one
/// of its first lines is about a request.
pub fn is_text(file: &[u8]) -> bool {
    has_line(file, |line| matches!(blktext::read(line.as_bytes()), Some(Ok(_))))
}

/// Whether one of a file's first lines is of some kind.
pub(crate) fn has_line(file: &[u8], is: impl Fn(&str) -> bool) -> bool {
    let lines = file.split(|byte| *byte == b'\n').take(HEADINGS_MAX);
    lines.filter_map(|line| std::str::from_utf8(line).ok()).any(is)
}

/// Whether a file begins with an event of blktrace, in either byte order.
pub(crate) fn is_events(file: &[u8]) -> bool {
    let magic = file.get(..4).unwrap_or_default();
    magic.get(1..) == Some(&b"tae"[..]) || magic.get(..3) == Some(&b"eat"[..])
}

/// Reads the text of blkparse, of bpftrace, or of the kernel's tracepoints:
/// `docs/formats/tracers.md`. Lines about anything else are passed over. `wanted` is the device,
/// where there are several: `8,0`.
///
/// # Errors
/// A line is damaged, or much earlier than one before it, or the requests are of more than one
/// device. A last line that is cut short is no error.
pub fn import_text(
    files: &[Vec<u8>],
    wanted: Option<&str>,
) -> Result<ImportedBlktrace, BlktraceError> {
    let (mut events, mut cut, mut lost) = (Vec::new(), Vec::new(), 0);
    let mut bio_ends = Vec::new();
    for (file, bytes) in files.iter().enumerate() {
        let (mut at, mut latest) = (0, 0);
        for (line, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            match blktext::read(text) {
                Some(Ok(event)) => {
                    let blktext::TextEvent { head, words, process, is_bio_end } = event;
                    let back = u64::saturating_sub(latest, head.time);
                    if back > BACK_MAX {
                        let (line, back) = (line + 1, back / 1_000_000_000);
                        return Err(BlktraceError::Back { file, line, back });
                    }
                    latest = latest.max(head.time);
                    let event = Event { head, words: words.into(), process };
                    if is_bio_end { &mut bio_ends } else { &mut events }.push(event);
                }
                Some(Err(_)) if !text.ends_with(b"\n") => cut.push((file, at)),
                Some(Err(_)) => return Err(BlktraceError::Line { file, line: line + 1 }),
                None => {
                    lost += std::str::from_utf8(text).ok().and_then(tracepoints::lost).unwrap_or(0)
                }
            }
            at += text.len();
        }
    }
    if !events.iter().any(|event| event.head.act() == BlkEvent::ISSUE) {
        events.append(&mut bio_ends);
    }
    Ok(ImportedBlktrace { lost, ..requests(events, cut, wanted)? })
}

/// Reads the files of a trace, one for each processor, or a single file of all. `wanted` is the
/// device, where there are several: `8,0`.
///
/// # Errors
/// The files are not events of blktrace, or are of more than one device. A file that is cut short
/// is no error.
pub fn import(files: &[Vec<u8>], wanted: Option<&str>) -> Result<ImportedBlktrace, BlktraceError> {
    let mut cut = Vec::new();
    let mut events = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if let Some(at) = read(number, file, &mut events)? {
            cut.push((number, at));
        }
    }
    requests(events, cut, wanted)
}

/// The name of a device.
fn device_name(device: u32) -> String {
    format!("{},{}", device >> 20, device & 0xf_ffff)
}

/// Makes requests of the events of all files.
fn requests(
    mut events: Vec<Event<'_>>,
    cut: Vec<(usize, usize)>,
    wanted: Option<&str>,
) -> Result<ImportedBlktrace, BlktraceError> {
    // The sort is stable, so events of one processor keep their order.
    events.sort_by_key(|e| e.head.time);
    let not_counted = BlkEvent::NOTICE | BlkEvent::PASSTHROUGH;
    let is_counted = |e: &&Event<'_>| e.head.category() & not_counted == 0;
    let issues = events.iter().filter(is_counted).any(|e| e.head.act() == BlkEvent::ISSUE);
    let starts = if issues { BlkEvent::ISSUE } else { BlkEvent::QUEUE };
    let wanted = wanted.map(|name| name.replace(':', ","));
    let mut choice = DeviceChoice::new(wanted.as_deref());
    for event in events.iter().filter(is_counted).filter(|e| e.head.act() == starts) {
        choice.count(&device_name(event.head.device));
    }
    choice.done()?;
    let mut reader = Reader {
        starts,
        trace: Trace::new(SECTOR as u32, true),
        requests: Vec::new(),
        open: FxHashMap::default(),
        processes: process_names(&events),
        senders: FxHashMap::default(),
        epoch: 0,
        order: 0,
        unmatched: 0,
        passthrough: 0,
    };
    let is_wanted = |event: &&Event<'_>| {
        wanted.as_ref().is_none_or(|name| *name == device_name(event.head.device))
    };
    events.iter().filter(is_wanted).for_each(|e| reader.event(e));
    let Reader { mut trace, requests, unmatched, passthrough, .. } = reader;
    requests.iter().for_each(|(request, _)| trace.push(*request));
    for (number, (_, process)) in requests.iter().enumerate() {
        if let Some(name) = process {
            trace.set_process(number, name);
        }
    }
    Ok(ImportedBlktrace { trace, cut, unmatched, passthrough, lost: 0 })
}

/// The names of processes by their numbers, from blktrace's notices.
fn process_names(events: &[Event<'_>]) -> FxHashMap<u32, Rc<str>> {
    let is_name = |e: &&Event<'_>| {
        e.head.category() & BlkEvent::NOTICE != 0 && e.head.act() == BlkEvent::PROCESS
    };
    let named = events.iter().filter(is_name).filter_map(|e| {
        let name = e.words.split(|byte| *byte == 0).next()?;
        Some((e.head.pid, std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?))
    });
    named.map(|(pid, name)| (pid, name.into())).collect()
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
        events.push(Event { head, words: words.into(), process: None });
    }
    Ok(None)
}

/// The key by which a completion finds its request.
type Key = (u64, u32, u16);

struct Reader {
    /// The action that starts a request.
    starts: u16,
    trace: Trace,
    /// The requests, each with the process that sent it.
    requests: Vec<(TraceRequest, Option<Rc<str>>)>,
    /// Names of processes by their numbers.
    processes: FxHashMap<u32, Rc<str>>,
    /// The processes of bios that wait to be issued, by their first sectors. The task that issues a
    /// request is often a worker of the kernel.
    senders: FxHashMap<(u64, u16), Rc<str>>,
    /// Requests under way, oldest first.
    open: FxHashMap<Key, VecDeque<usize>>,
    epoch: u64,
    order: u64,
    unmatched: u64,
    passthrough: u64,
}

fn direction(head: &BlkEvent) -> u16 {
    head.category() & (BlkEvent::READ | BlkEvent::WRITE | BlkEvent::DISCARD)
}

fn key(head: &BlkEvent) -> Key {
    // The kernel tells a flush as a write, or as none, at any place.
    match head.bytes {
        0 => (0, 0, 0),
        bytes => (head.sector, bytes, direction(head)),
    }
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
                let request = TraceRequest { op, flags, offset, len, issued, epoch, end, data };
                self.requests.push((request, None));
            }
            return;
        }
        if head.category() & BlkEvent::PASSTHROUGH != 0 {
            self.passthrough += u64::from(head.act() == self.starts);
            return;
        }
        match head.act() {
            act if act == self.starts => self.start(event, at),
            BlkEvent::QUEUE => {
                if let Some(process) = self.process(event) {
                    self.senders.insert((head.sector, direction(head)), process);
                }
            }
            BlkEvent::REQUEUE => self.put_back(head),
            BlkEvent::COMPLETE => self.complete(head, at),
            _ => {}
        }
    }

    /// The process that was running at an event.
    fn process(&self, event: &Event<'_>) -> Option<Rc<str>> {
        let named = event.process.as_deref().map(Rc::from);
        named.or_else(|| self.processes.get(&event.head.pid).cloned())
    }

    fn start(&mut self, event: &Event<'_>, issued: Time) {
        let head = &event.head;
        let queued = self.senders.remove(&(head.sector, direction(head)));
        let process = queued.or_else(|| self.process(event));
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
        let request = TraceRequest { op, flags, offset, len, issued, epoch, end, data };
        self.requests.push((request, process));
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
        self.requests[request].0.end = Some(RequestEnd { order, at, epoch, ok });
    }
}
