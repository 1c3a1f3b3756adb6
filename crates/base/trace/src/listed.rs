//! Traces that have a line for each request, with its time and at most the time that it took.

use ordo_runtime::Time;
use rustc_hash::FxHashMap;

use crate::blktrace::BACK_MAX;
use crate::devices::{DeviceChoice, DevicesError};
use crate::request::{Flags, RequestEnd, RequestOp, TraceRequest};
use crate::trace::Trace;

/// The size of a sector, in bytes.
const SECTOR: u32 = 512;
/// The greatest offset of a request's end: that of the largest device.
const END_MAX: u64 = 1 << 60;
/// The greatest length of a read or a write, in bytes: the kernel has 32 bits for it.
const LEN_MAX: u64 = u32::MAX as u64;
/// The longest time from the first request to the last, in nanoseconds: a hundred years.
const SPAN_MAX: i128 = 100 * 366 * 86_400 * 1_000_000_000;

/// The reason why such a trace was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A line is not one of the format.
    #[error("line {line}: {why}; a line of {format} is: {example}")]
    Line {
        /// The line, from 1; of a table the row.
        line: u64,
        /// The fault.
        why: &'static str,
        /// The format's name.
        format: &'static str,
        /// A line of it.
        example: &'static str,
    },
    /// A request is much earlier than one before it.
    #[error(
        "line {line}: {back} s before an earlier line: are these several traces in one file? Give one of them"
    )]
    Back {
        /// The line, from 1.
        line: u64,
        /// The seconds, rounded down.
        back: u64,
    },
    /// The requests are of several devices, or not of the wanted one.
    #[error(transparent)]
    Devices(#[from] DevicesError),
}

/// A request of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) device: &'a str,
    pub(crate) op: RequestOp,
    pub(crate) flags: Flags,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The time of issue in nanoseconds, from any moment on.
    pub(crate) issued: i128,
    /// The nanoseconds that it took; `None` if the trace has no completions.
    pub(crate) took: Option<u64>,
    pub(crate) process: Option<&'a str>,
}

/// Makes a trace of lines.
pub(crate) struct Lister<'a> {
    choice: DeviceChoice<'a>,
    /// Each request, with its index among the processes plus 1.
    requests: Vec<(i128, Option<u64>, TraceRequest, u32)>,
    processes: Vec<String>,
    known: FxHashMap<String, u32>,
    first: Option<i128>,
    /// The latest time of a line so far: that of issue, or that of completion where lines are
    /// printed at the end.
    latest: i128,
    at_end: bool,
}

impl<'a> Lister<'a> {
    /// For the requests of the wanted device, or of the only one. `at_end`: lines are in the order
    /// of completions.
    pub(crate) fn new(wanted: Option<&'a str>, at_end: bool) -> Lister<'a> {
        let choice = DeviceChoice::new(wanted);
        let (requests, processes, known) = (Vec::new(), Vec::new(), FxHashMap::default());
        Lister { choice, requests, processes, known, first: None, latest: i128::MIN, at_end }
    }

    /// Adds the request of a line.
    ///
    /// # Errors
    /// Its place or its time is impossible: the fault.
    pub(crate) fn add(&mut self, line: u64, one: &Listed<'_>) -> Result<(), AddError> {
        let end = one.offset.checked_add(one.len).filter(|end| *end <= END_MAX);
        if end.is_none() {
            return Err(AddError::Fault("a place that no device has"));
        }
        if matches!(one.op, RequestOp::Read | RequestOp::Write) && one.len > LEN_MAX {
            return Err(AddError::Fault("a length that no request has"));
        }
        let first = *self.first.get_or_insert(one.issued);
        let took = i128::from(one.took.unwrap_or(0));
        if (one.issued - first).abs().max(took) > SPAN_MAX {
            return Err(AddError::Fault("a time that is a hundred years from the first one"));
        }
        let now = if self.at_end { one.issued + took } else { one.issued };
        let back = self.latest.saturating_sub(now);
        if back > i128::from(BACK_MAX) {
            let back = u64::try_from(back / 1_000_000_000).unwrap_or(u64::MAX);
            return Err(AddError::List(ListError::Back { line, back }));
        }
        self.latest = self.latest.max(now);
        if !self.choice.count(one.device) {
            return Ok(());
        }
        let process = one.process.map_or(0, |name| self.process(name));
        let Listed { op, flags, offset, len, .. } = *one;
        let (issued, epoch, end, data) = (Time::ZERO, 0, None, None);
        let request = TraceRequest { op, flags, offset, len, issued, epoch, end, data };
        self.requests.push((one.issued, one.took, request, process));
        Ok(())
    }

    fn process(&mut self, name: &str) -> u32 {
        if let Some(index) = self.known.get(name) {
            return *index;
        }
        self.processes.push(name.to_owned());
        let index = self.processes.len() as u32;
        self.known.insert(name.to_owned(), index);
        index
    }

    /// The trace, with times from its first request on if `from_first`.
    ///
    /// # Errors
    /// The requests are of several devices, or none is of the wanted one.
    pub(crate) fn finish(mut self, timed: bool, from_first: bool) -> Result<Trace, DevicesError> {
        self.choice.done()?;
        self.requests.sort_by_key(|(issued, ..)| *issued);
        let least = self.requests.first().map_or(0, |(issued, ..)| *issued);
        let zero = if from_first || least < 0 { least } else { 0 };
        let nanos = |time: i128| u64::try_from(time - zero).unwrap_or(u64::MAX);
        let mut trace = Trace::new(SECTOR, timed);
        let mut flushes = Vec::new();
        let mut ends = Vec::new();
        for (number, (issued, took, request, process)) in self.requests.iter().enumerate() {
            let (issued, mut epoch) = (nanos(*issued), flushes.len() as u64);
            let has_preflush = request.flags.contains(Flags::PREFLUSH);
            if request.op == RequestOp::Flush || has_preflush {
                flushes.push(issued);
                epoch += u64::from(has_preflush);
            }
            ends.push((issued.saturating_add(took.unwrap_or(0)), number));
            if let Some(name) = (*process as usize).checked_sub(1).map(|i| &self.processes[i]) {
                trace.set_process(number, name);
            }
            trace.push(TraceRequest { issued: Time::from_nanos(issued), epoch, ..*request });
        }
        ends.sort_unstable();
        for (order, (at, number)) in ends.into_iter().enumerate() {
            // A request without a completion ends before the next flush is sent.
            let own = trace.requests()[number].epoch;
            let before = flushes.partition_point(|flush| *flush <= at) as u64;
            let took = self.requests[number].1.is_some();
            let epoch = if took { before.max(own) } else { own };
            let (order, at) = (order as u64, Time::from_nanos(at));
            trace.end(number, RequestEnd { order, at, epoch, ok: true }, None);
        }
        Ok(trace)
    }
}

/// The reason why a line was not added.
pub(crate) enum AddError {
    /// The line is not one of its format.
    Fault(&'static str),
    /// Any other reason.
    List(ListError),
}

/// A format of lines.
pub(crate) struct LineFormat {
    pub(crate) name: &'static str,
    pub(crate) example: &'static str,
    pub(crate) timed: bool,
    /// Whether times begin with the first request.
    pub(crate) from_first: bool,
    /// Whether a line is printed when its request completes.
    pub(crate) at_end: bool,
}

/// A trace that was read from lines.
#[derive(Debug)]
pub struct ImportedList {
    /// The requests. Where there are no completions, each counts as completed when it was issued.
    pub trace: Trace,
    /// Whether the last line has no end, and was left out.
    pub cut: bool,
}

/// Reads lines. `read` returns the request of a line, `None` for one that has none.
///
/// # Errors
/// A line is damaged. A last one without its end is no error.
pub(crate) fn import(
    text: &[u8],
    format: &LineFormat,
    wanted: Option<&str>,
    mut read: impl for<'t> FnMut(u64, &'t str) -> Result<Option<Listed<'t>>, &'static str>,
) -> Result<ImportedList, ListError> {
    let mut lister = Lister::new(wanted, format.at_end);
    let mut cut = false;
    for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        // A number at the end may lack digits.
        if !line.ends_with(b"\n") {
            cut = true;
            break;
        }
        let words = std::str::from_utf8(line).map_err(|_| "characters that are no UTF-8");
        let request = words.and_then(|words| match words.trim() {
            "" => Ok(None),
            words => read(number, words),
        });
        let added = match request {
            Ok(None) => Ok(()),
            Ok(Some(request)) => lister.add(number, &request),
            Err(why) => Err(AddError::Fault(why)),
        };
        match added {
            Ok(()) => {}
            Err(AddError::List(error)) => return Err(error),
            Err(AddError::Fault(why)) => {
                let LineFormat { name: format, example, .. } = *format;
                return Err(ListError::Line { line: number, why, format, example });
            }
        }
    }
    Ok(ImportedList { trace: lister.finish(format.timed, format.from_first)?, cut })
}

/// A number with a point, in units of `scale` for each whole one: 1.25 with 1,000 is 1,250. More
/// digits than the unit has are left out.
pub(crate) fn decimal(text: &str, scale: u64) -> Option<i128> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(part) {
        return None;
    }
    let mut value = i128::from(whole.parse::<u64>().ok()?) * i128::from(scale);
    let mut unit = i128::from(scale);
    for digit in part.bytes() {
        unit /= 10;
        value += i128::from(digit - b'0') * unit;
    }
    Some(if is_negative { -value } else { value })
}
