//! The forms in which a trace is taken: one table, from which a file is recognised, the help, the
//! documentation and errors are made.

use crate::blktrace::{self, BlktraceError, ImportedBlktrace};
use crate::dm_log_writes::{self, ImportError};
use crate::iolog::{self, IologError};
use crate::listed::{ImportedList, ListError};
use crate::tables::TableForm;
use crate::trace::Trace;
use crate::{biosnoop, blktext, tracepoints};

/// A trace as it was read, with notes for the reader of the results.
#[derive(Debug)]
pub struct TakenTrace {
    /// The requests.
    pub trace: Trace,
    /// Everything that was left out or is not known.
    pub notes: Vec<String>,
}

/// The reason why files were not taken as a trace.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// They are in no form that is read.
    #[error("no trace in a form that is read. These are: {}", taken())]
    Unknown,
    /// They are of a program whose output is not enough.
    #[error(
        "the output of {program}: {why}. Give requests instead, as from biosnoop or: {}",
        RECORD
    )]
    Refused {
        /// The program.
        program: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// A Parquet file, whose columns may be any.
    #[error(
        "a Parquet file, whose columns may be any: select five of them as text, in the form of Alibaba's tables, as with \
         duckdb -csv -noheader -c \"select device, 'W', sector * 512, bytes, microseconds from 'FILE'\" | ordo analyze -"
    )]
    Parquet,
    /// Several files were given for one.
    #[error("only a blktrace, or the text of one, has several files, one for each processor")]
    Several,
    /// A file cannot be read, or its compressed form is damaged.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A compressed file is cut short, and its beginning is not enough to know its form.
    #[error("the compressed file is cut short, and has too little of a trace")]
    Cut,
    /// A compressed file expands out of all proportion.
    #[error(
        "the first {packed} bytes expand to more than {len}: no trace does; to read it all the same, expand it and give the result"
    )]
    Expands {
        /// The bytes of the compressed form.
        packed: u64,
        /// The bytes that they became.
        len: u64,
    },
    /// A log of dm-log-writes is damaged.
    #[error(transparent)]
    Log(#[from] ImportError),
    /// Events are damaged.
    #[error(transparent)]
    Blktrace(#[from] BlktraceError),
    /// An I/O log of fio is damaged.
    #[error(transparent)]
    Iolog(#[from] IologError),
    /// Lines are damaged.
    #[error(transparent)]
    List(#[from] ListError),
}

/// A command that records requests.
const RECORD: &str = "trace-cmd record -e block; trace-cmd report";

/// One or several files of a trace: the name of each, for notes, and its contents.
pub type TraceFiles<'a> = (&'a [String], Vec<Vec<u8>>);

/// A form of traces.
pub struct TraceFormat {
    /// The name, as in a list.
    pub name: &'static str,
    /// The times that it has: of issue and of completion.
    pub times: &'static str,
    /// How a device is named, where there are several, and `--only` chooses one.
    pub device: &'static str,
    /// Whether it names the processes that sent requests.
    pub has_processes: bool,
    /// Whether it has the contents of writes.
    pub has_contents: bool,
    /// Whether it has flushes.
    pub has_flushes: bool,
    /// Whether the beginning of a file is of this form.
    is: fn(&[u8]) -> bool,
    read: fn(TraceFiles<'_>, Option<&str>) -> Result<TakenTrace, FormatError>,
}

impl std::fmt::Debug for TraceFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A form of text of the kernel's tracers.
const fn tracer(name: &'static str, device: &'static str, is: fn(&[u8]) -> bool) -> TraceFormat {
    let (times, read) = ("issue, completion", text as _);
    let (has_processes, has_contents, has_flushes) = (true, false, true);
    TraceFormat { name, times, device, has_processes, has_contents, has_flushes, is, read }
}

/// A published table.
const fn table(
    name: &'static str,
    (times, device): (&'static str, &'static str),
    is: fn(&[u8]) -> bool,
    read: fn(TraceFiles<'_>, Option<&str>) -> Result<TakenTrace, FormatError>,
) -> TraceFormat {
    let (has_processes, has_contents, has_flushes) = (false, false, false);
    TraceFormat { name, times, device, has_processes, has_contents, has_flushes, is, read }
}

/// All forms, in the order in which they are tried. Ordo's own, a directory, is not among them.
pub static FORMATS: [TraceFormat; 10] = [
    TraceFormat {
        name: "the log of a dm-log-writes target",
        times: "none",
        device: "",
        has_processes: false,
        has_contents: true,
        has_flushes: true,
        is: dm_log_writes::is_log,
        read: log_writes,
    },
    TraceFormat {
        is: blktrace::is_events,
        read: events,
        ..tracer("files of blktrace", "8,0", blktrace::is_events)
    },
    tracer("the text of ftrace, trace-cmd report or perf script", "8,0", |head| {
        blktrace::has_line(head, |line| matches!(tracepoints::read(line), Some(Ok(_))))
    }),
    TraceFormat {
        is: biosnoop::is,
        read: |files, only| listed(files, only, biosnoop::import_table),
        ..tracer("the table of biosnoop", "sda", biosnoop::is)
    },
    tracer(
        "the text of blkparse or of the bpftrace script in docs/formats/blktrace.md",
        "8,0",
        |head| {
            blktrace::has_line(head, |line| matches!(blktext::read(line.as_bytes()), Some(Ok(_))))
        },
    ),
    TraceFormat {
        has_flushes: true,
        ..table(
            "fio's I/O logs, versions 1 to 3",
            ("issue in version 3", "/dev/sda"),
            iolog::is_iolog,
            |files, only| listed(files, only, iolog::import),
        )
    },
    table(
        "MSR Cambridge's tables",
        ("issue, completion", "hm,1"),
        |head| TableForm::Msr.is(head),
        |files, only| listed(files, only, |text, only| TableForm::Msr.import(text, only)),
    ),
    table(
        "SPC traces",
        ("issue", "0"),
        |head| TableForm::Spc.is(head),
        |files, only| listed(files, only, |text, only| TableForm::Spc.import(text, only)),
    ),
    table(
        "Alibaba's tables",
        ("issue", "419"),
        |head| TableForm::Alibaba.is(head),
        |files, only| listed(files, only, |text, only| TableForm::Alibaba.import(text, only)),
    ),
    table(
        "Tencent's tables",
        ("issue, in seconds", "1283"),
        |head| TableForm::Tencent.is(head),
        |files, only| listed(files, only, |text, only| TableForm::Tencent.import(text, only)),
    ),
];

/// Programs whose output is refused: the name, words of its heading, and the reason.
const REFUSED: [(&str, &[&str], &str); 6] = [
    ("biotop", &["PID", "COMM", "I/O", "Kbytes", "AVGms"], SUMS),
    ("iostat", &["Device", "r/s", "w/s"], SUMS),
    ("iostat", &["Device", "tps"], SUMS),
    ("biolatency or bitesize", &[":", "count", "distribution"], SUMS),
    ("biosnoop.bt", &["TIME(ms)", "COMM", "PID", "DISK", "LAT(ms)"], "it has no sectors"),
    ("vmstat", &["procs", "memory", "swap", "io", "system"], SUMS),
];
const SUMS: &str = "it has sums of requests, and not the requests";

/// The forms, as a list in a sentence.
pub fn taken() -> String {
    let names = FORMATS.iter().map(|format| format.name);
    let all: Vec<&str> = ["a directory of ordo trace"].into_iter().chain(names).collect();
    format!(
        "{}; each of the files may be compressed with gzip or zstd, or be - (the standard input)",
        all.join(", ")
    )
}

/// The form of a file that begins so.
///
/// # Errors
/// No form is known, or the file is of a program whose output is not enough.
pub fn recognised(head: &[u8]) -> Result<&'static TraceFormat, FormatError> {
    if let Some(format) = FORMATS.iter().find(|format| (format.is)(head)) {
        return Ok(format);
    }
    if head.starts_with(b"PAR1") {
        return Err(FormatError::Parquet);
    }
    let has = |line: &str, words: &[&str]| {
        let fields: Vec<&str> = line.split([' ', '\t', ',', ';', '\r']).collect();
        let is_one =
            |field: &&str, word: &str| field.trim_end_matches(':') == word || **field == *word;
        words.iter().all(|word| {
            fields.iter().any(|field| is_one(field, word)) || *word == ":" && line.contains(':')
        })
    };
    let lines = head.split(|byte| *byte == b'\n').take(50);
    for line in lines.filter_map(|line| std::str::from_utf8(line).ok()) {
        if let Some((program, _, why)) = REFUSED.iter().find(|(_, words, _)| has(line, words)) {
            return Err(FormatError::Refused { program, why });
        }
    }
    Err(FormatError::Unknown)
}

impl TraceFormat {
    /// Reads files of this form. `only` chooses a device, where there are several.
    ///
    /// # Errors
    /// The files are damaged, or have requests of several devices, or are too many.
    pub fn read(
        &self,
        files: TraceFiles<'_>,
        only: Option<&str>,
    ) -> Result<TakenTrace, FormatError> {
        (self.read)(files, only)
    }
}

fn one((names, mut files): TraceFiles<'_>) -> Result<(&str, Vec<u8>), FormatError> {
    match (names, files.len()) {
        ([name], 1) => Ok((name, files.remove(0))),
        _ => Err(FormatError::Several),
    }
}

fn log_writes(files: TraceFiles<'_>, _only: Option<&str>) -> Result<TakenTrace, FormatError> {
    let (name, log) = one(files)?;
    let done = dm_log_writes::import(log)?;
    let note = done.cut.map(|cut| {
        let (entry, entries, byte) = (cut.entry, cut.entries, cut.byte);
        format!(
            "{name}: truncated: entry {entry} of {entries}, at byte {byte}, is incomplete; the {entry} entries before it are used"
        )
    });
    Ok(TakenTrace { trace: done.trace, notes: note.into_iter().collect() })
}

fn events((names, files): TraceFiles<'_>, only: Option<&str>) -> Result<TakenTrace, FormatError> {
    Ok(of_events(names, blktrace::import(&files, only)?))
}

fn text((names, files): TraceFiles<'_>, only: Option<&str>) -> Result<TakenTrace, FormatError> {
    Ok(of_events(names, blktrace::import_text(&files, only)?))
}

fn of_events(names: &[String], done: ImportedBlktrace) -> TakenTrace {
    let mut notes = Vec::new();
    for (file, byte) in &done.cut {
        let name = names.get(*file).map_or("", |name| name);
        notes.push(format!("{name}: truncated within the event at byte {byte}"));
    }
    if done.unmatched > 0 {
        notes.push(format!("{} completions belong to no request in the trace", done.unmatched));
    }
    if done.passthrough > 0 {
        notes.push(format!("{} driver-specific commands are left out", done.passthrough));
    }
    if done.lost > 0 {
        notes.push(format!(
            "the tracer lost {} events: requests are missing; give it larger buffers",
            done.lost
        ));
    }
    TakenTrace { trace: done.trace, notes }
}

fn listed<E>(
    files: TraceFiles<'_>,
    only: Option<&str>,
    import: impl Fn(&[u8], Option<&str>) -> Result<ImportedList, E>,
) -> Result<TakenTrace, FormatError>
where
    FormatError: From<E>,
{
    let (name, text) = one(files)?;
    let done = import(&text, only)?;
    let mut notes = Vec::new();
    let is_open = done.trace.requests().iter().all(|r| r.end.is_none_or(|end| end.at == r.issued));
    if is_open {
        notes.push("the trace has no completions: each request counts as done at once".into());
    }
    if done.cut {
        notes.push(format!("{name}: the last line has no end, and is left out"));
    }
    Ok(TakenTrace { trace: done.trace, notes })
}
