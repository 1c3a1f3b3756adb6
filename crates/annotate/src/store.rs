//! A trace as a directory of Parquet files: `docs/formats/trace.md`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ordo_runtime::Time;
use ordo_trace::{End, Flags, Op, Request, Span, Trace};
use parquet::errors::ParquetError;
use rustc_hash::FxHashMap;

use crate::image::{PIECE, Pieces};
use crate::rows::Block;
use crate::table::{self, Column, Fault, Table};

/// The version of the schema. Readers refuse a newer one; columns are added without a new version.
pub const VERSION: u32 = 1;

/// Bytes of contents that a trace may have when it is read: equal contents are stored once, so a small file can
/// say that it has any number.
const CONTENTS_MAX: u64 = 64 << 30;

/// A device's size that is believed.
const DEVICE_MAX: u64 = 1 << 60;

const REQUESTS: &str = "requests.parquet";
const BLOCKS: &str = "blocks.parquet";
const CONTENTS: &str = "contents.parquet";
const START: &str = "start.parquet";

/// What is written.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The requests.
    pub trace: &'a Trace,
    /// Their blocks, in order of requests.
    pub blocks: &'a [Block],
    /// What is known of the device before the trace.
    pub start: &'a Pieces,
    /// The file system's name.
    pub system: &'a str,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows of requests.
    pub requests: u64,
    /// Rows of blocks.
    pub blocks: u64,
    /// Different contents.
    pub contents: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Of that, those of the files of requests and blocks.
    pub rows_bytes: u64,
}

/// What was read.
#[derive(Debug)]
pub struct Stored {
    /// The requests, with contents as far as they were kept.
    pub trace: Trace,
    /// What is known of the device before the trace.
    pub start: Pieces,
    /// The file system's name.
    pub system: String,
}

/// Why a trace was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system's answer.
    #[error("{}: {error}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it was.
        error: io::Error,
    },
    /// No Parquet file, or one whose beginning or end is damaged.
    #[error("{}: not a Parquet file that can be read: {error}; it is cut off, or was never one", path.display())]
    Parquet {
        /// Which.
        path: PathBuf,
        /// What the library says.
        error: ParquetError,
    },
    /// A page of a column that cannot be read.
    #[error(
        "{}: a page of column '{column}' is damaged, behind row {rows}: {error}; copy the trace again, or record it \
         again: the other columns can still be read by programs that read Parquet", path.display()
    )]
    Page {
        /// Which file.
        path: PathBuf,
        /// Which column.
        column: &'static str,
        /// How many of its rows are before the group of rows that the page is in.
        rows: u64,
        /// What the library says.
        error: ParquetError,
    },
    /// It was not written.
    #[error("{}: not written: {error}", path.display())]
    NotWritten {
        /// Which.
        path: PathBuf,
        /// What the library says.
        error: ParquetError,
    },
    /// A Parquet file, but none of a trace.
    #[error("{}: no trace of Ordo's: it does not say 'ordo.version'", path.display())]
    NoTrace {
        /// Which.
        path: PathBuf,
    },
    /// A version that nobody knew when this was written.
    #[error("{}: a trace of version {found}; versions up to {VERSION} are known", path.display())]
    Version {
        /// Which.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// Something that it says about itself makes no sense.
    #[error("{}: '{key}' is '{found}'", path.display())]
    Says {
        /// Which.
        path: PathBuf,
        /// What.
        key: &'static str,
        /// What it says.
        found: String,
    },
    /// A column that is not there.
    #[error("{}: no column '{column}'", path.display())]
    NoColumn {
        /// Which.
        path: PathBuf,
        /// Its name.
        column: &'static str,
    },
    /// A column of another type, or values where there must be none, or the other way round.
    #[error("{}: column '{column}' is not as docs/formats/trace.md has it", path.display())]
    Column {
        /// Which.
        path: PathBuf,
        /// Its name.
        column: &'static str,
    },
    /// A row that makes no sense.
    #[error("{}: row {row}: {why}", path.display())]
    Row {
        /// Which.
        path: PathBuf,
        /// Its number, from 0.
        row: usize,
        /// What is wrong.
        why: &'static str,
    },
}

fn op_of(key: &[u8]) -> Option<Op> {
    [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes, Op::Mark]
        .into_iter()
        .find(|op| op.words().as_bytes() == key)
}

/// Different contents, in the order in which they were first seen.
#[derive(Default)]
struct Dedup<'a> {
    numbers: FxHashMap<&'a [u8], u64>,
    list: Vec<&'a [u8]>,
}

impl<'a> Dedup<'a> {
    fn number(&mut self, bytes: &'a [u8]) -> u64 {
        *self.numbers.entry(bytes).or_insert_with(|| {
            self.list.push(bytes);
            self.list.len() as u64 - 1
        })
    }
}

/// Writes a trace to the directory `dir`, which is made; files of a trace in it are replaced.
///
/// # Errors
/// A file cannot be written.
pub fn write(dir: &Path, parts: &Parts<'_>) -> Result<Written, StoreError> {
    fs::create_dir_all(dir).map_err(|error| StoreError::Io { path: dir.into(), error })?;
    let mut dedup = Dedup::default();
    let of_blocks = numbers(parts, &mut dedup);
    let start: Vec<_> = parts.start.known.iter().map(|(at, p)| (*at, dedup.number(p))).collect();
    let says = [
        ("ordo.version", VERSION.to_string()),
        ("ordo.sector", parts.trace.sector().to_string()),
        ("ordo.timed", parts.trace.timed().to_string()),
        ("ordo.device_bytes", parts.start.bytes.to_string()),
        ("ordo.system", parts.system.to_string()),
    ];
    let put = |file: &str, columns: &[Column]| {
        let path = dir.join(file);
        let name = file.strip_suffix(".parquet").unwrap_or(file);
        table::write(&path, name, columns, &says)
            .map_err(|error| StoreError::NotWritten { path: path.clone(), error })?;
        let size = fs::metadata(&path).map(|m| m.len());
        size.map_err(|error| StoreError::Io { path, error })
    };
    let mut rows_bytes = put(REQUESTS, &requests(parts.trace))?;
    rows_bytes += put(BLOCKS, &blocks(parts.blocks, &of_blocks))?;
    let mut bytes = rows_bytes;
    bytes += put(
        CONTENTS,
        &[
            Column::int("content", 0..dedup.list.len() as u64),
            Column::bytes("bytes", dedup.list.iter().copied()),
        ],
    )?;
    bytes += put(
        START,
        &[
            Column::int("offset", start.iter().map(|(at, _)| *at)),
            Column::int("content", start.iter().map(|(_, n)| *n)),
        ],
    )?;
    Ok(Written {
        requests: parts.trace.requests().len() as u64,
        blocks: parts.blocks.len() as u64,
        contents: dedup.list.len() as u64,
        bytes,
        rows_bytes,
    })
}

/// The contents of each block by number, where they were kept.
fn numbers<'a>(parts: &Parts<'a>, dedup: &mut Dedup<'a>) -> Vec<Option<u64>> {
    let requests = parts.trace.requests();
    let number = |row: &Block| {
        let r = requests.get(row.request as usize)?;
        let data = parts.trace.data(r)?;
        let from = row.offset.checked_sub(r.offset)? as usize;
        Some(dedup.number(data.get(from..from.checked_add(row.len as usize)?)?))
    };
    parts.blocks.iter().map(number).collect()
}

fn requests(trace: &Trace) -> Vec<Column> {
    let all = || trace.requests().iter();
    let ends = || all().map(|r| r.end);
    let flag = |name, flag| Column::bool(name, all().map(move |r| r.flags.contains(flag)));
    let time = |at: Time| trace.timed().then_some(at.as_nanos());
    let text = |r: &Request| {
        let data = trace.data(r).filter(|_| r.op == Op::Mark);
        data.map(|d| String::from_utf8_lossy(d).into_owned())
    };
    let texts: Vec<Option<String>> = all().map(text).collect();
    vec![
        Column::int("request", 0..trace.requests().len() as u64),
        Column::text("op", all().map(|r| Some(r.op.words().as_bytes()))),
        Column::int("offset", all().map(|r| r.offset)),
        Column::int("length", all().map(|r| r.len)),
        flag("fua", Flags::FUA),
        flag("preflush", Flags::PREFLUSH),
        flag("sync", Flags::SYNC),
        flag("meta", Flags::META),
        Column::maybe_int("issued_ns", all().map(|r| time(r.issued))),
        Column::int("epoch", all().map(|r| r.epoch)),
        Column::maybe_int("completed_ns", ends().map(|e| time(e?.at))),
        Column::maybe_int("completion_order", ends().map(|e| Some(e?.order))),
        Column::maybe_int("completion_epoch", ends().map(|e| Some(e?.epoch))),
        Column::maybe_bool("ok", ends().map(|e| Some(e?.ok))),
        Column::text("text", texts.iter().map(|t| t.as_deref().map(str::as_bytes))),
    ]
}

fn blocks(rows: &[Block], contents: &[Option<u64>]) -> Vec<Column> {
    let all = || rows.iter();
    let words = |s: &'static str| s.as_bytes();
    vec![
        Column::int("request", all().map(|b| b.request)),
        Column::int("offset", all().map(|b| b.offset)),
        Column::int("length", all().map(|b| b.len)),
        Column::text("kind", all().map(|b| Some(words(b.kind.key())))),
        Column::maybe_int("inode", all().map(|b| b.ino)),
        Column::maybe_int("file_block", all().map(|b| b.file_block)),
        Column::text("path", all().map(|b| b.path.as_deref().map(str::as_bytes))),
        Column::maybe_int("first_inode", all().map(|b| b.first_inode)),
        Column::maybe_int("inodes", all().map(|b| b.inodes)),
        Column::text("piece", all().map(|b| b.piece.map(words))),
        Column::maybe_int("number", all().map(|b| b.number)),
        Column::maybe_int("transaction", all().map(|b| b.transaction)),
        Column::maybe_int("home_offset", all().map(|b| Some(b.home?.0))),
        Column::text("home_kind", all().map(|b| Some(words(b.home?.1.key())))),
        Column::maybe_int("completes", all().map(|b| b.completes)),
        Column::bool("guess", all().map(|b| b.guess)),
        Column::text("reason", all().map(|b| b.reason.map(|r| words(r.words())))),
        Column::maybe_int("content", contents.iter().copied()),
    ]
}

/// A file of a trace, and its name for what is wrong with it.
struct Reading {
    path: PathBuf,
    table: Table,
}

impl Reading {
    fn open(dir: &Path, file: &str) -> Result<Reading, StoreError> {
        let path = dir.join(file);
        fs::metadata(&path).map_err(|error| StoreError::Io { path: path.clone(), error })?;
        let table = Table::open(&path);
        let table = table.map_err(|error| StoreError::Parquet { path: path.clone(), error })?;
        Ok(Reading { path, table })
    }

    fn fault(&self, column: &'static str) -> impl Fn(Fault) -> StoreError {
        let path = self.path.clone();
        move |fault| match fault {
            Fault::Missing => StoreError::NoColumn { path: path.clone(), column },
            Fault::Kind => StoreError::Column { path: path.clone(), column },
            Fault::Page(rows, error) => {
                StoreError::Page { path: path.clone(), column, rows, error }
            }
        }
    }

    fn maybe_ints(&self, column: &'static str) -> Result<Vec<Option<u64>>, StoreError> {
        self.table.ints(column).map_err(self.fault(column))
    }

    fn ints(&self, column: &'static str) -> Result<Vec<u64>, StoreError> {
        let all: Option<Vec<u64>> = self.maybe_ints(column)?.into_iter().collect();
        all.ok_or_else(|| StoreError::Column { path: self.path.clone(), column })
    }

    fn maybe_bools(&self, column: &'static str) -> Result<Vec<Option<bool>>, StoreError> {
        self.table.bools(column).map_err(self.fault(column))
    }

    fn texts(&self, column: &'static str) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let all = self.table.bytes(column).map_err(self.fault(column))?;
        Ok(all.into_iter().map(|v| v.map(|v| v.data().to_vec())).collect())
    }

    fn number(&self, key: &'static str) -> Result<u64, StoreError> {
        let found = self.table.says(key).unwrap_or_default();
        found.parse().map_err(|_| self.says(key, found))
    }

    fn says(&self, key: &'static str, found: &str) -> StoreError {
        StoreError::Says { path: self.path.clone(), key, found: found.to_owned() }
    }

    fn row(&self, row: usize, why: &'static str) -> StoreError {
        StoreError::Row { path: self.path.clone(), row, why }
    }
}

/// Whether a directory is a trace, by its names.
pub fn is_trace(dir: &Path) -> bool {
    dir.join(REQUESTS).is_file()
}

/// Reads a trace.
///
/// # Errors
/// A file is missing or damaged, or a row makes no sense.
pub fn read(dir: &Path) -> Result<Stored, StoreError> {
    let file = Reading::open(dir, REQUESTS)?;
    let Some(version) = file.table.says("ordo.version") else {
        return Err(StoreError::NoTrace { path: file.path });
    };
    if version.parse::<u32>().ok().is_none_or(|v| v > VERSION) {
        return Err(StoreError::Version { path: file.path.clone(), found: version.to_owned() });
    }
    let sector = file.number("ordo.sector")?;
    let good = u32::try_from(sector).is_ok_and(|s| s.is_power_of_two() && s >= 512);
    if !good {
        return Err(file.says("ordo.sector", &sector.to_string()));
    }
    let bytes = file.number("ordo.device_bytes")?;
    if bytes > DEVICE_MAX {
        return Err(file.says("ordo.device_bytes", &bytes.to_string()));
    }
    let timed = file.table.says("ordo.timed") == Some("true");
    let system = file.table.says("ordo.system").unwrap_or("none").to_owned();
    let mut rows = read_requests(&file)?;
    let contents = Reading::open(dir, CONTENTS)?;
    let pieces = contents.texts("bytes")?;
    let content = |n: u64| pieces.get(usize::try_from(n).ok()?)?.as_deref();
    let mut trace = Trace::new(sector as u32, timed);
    let spans = keep(&mut trace, &rows, &Reading::open(dir, BLOCKS)?, content)?;
    for (number, (request, text)) in rows.iter_mut().enumerate() {
        request.data = match text {
            Some(text) => Some(trace.keep(text)),
            None => spans.get(&(number as u64)).copied(),
        };
        trace.push(*request);
    }
    let file = Reading::open(dir, START)?;
    let mut known = BTreeMap::new();
    for (row, (at, n)) in file.ints("offset")?.into_iter().zip(file.ints("content")?).enumerate() {
        let piece = content(n).ok_or_else(|| file.row(row, "contents that are not there"))?;
        if at % PIECE != 0 || at >= bytes || piece.len() as u64 != PIECE.min(bytes - at) {
            return Err(file.row(row, "a piece that does not fit the device"));
        }
        known.insert(at, piece.into());
    }
    Ok(Stored { trace, start: Pieces { bytes, known }, system })
}

/// A request without its contents, and a mark's text.
type Row = (Request, Option<Vec<u8>>);

/// Requests without their contents, and the text of each that is a mark.
fn read_requests(file: &Reading) -> Result<Vec<Row>, StoreError> {
    let ops = file.texts("op")?;
    let (offsets, lens) = (file.ints("offset")?, file.ints("length")?);
    let flags = [
        (Flags::FUA, file.maybe_bools("fua")?),
        (Flags::PREFLUSH, file.maybe_bools("preflush")?),
        (Flags::SYNC, file.maybe_bools("sync")?),
        (Flags::META, file.maybe_bools("meta")?),
    ];
    let (issued, epochs) = (file.maybe_ints("issued_ns")?, file.ints("epoch")?);
    let ends = (
        file.maybe_ints("completed_ns")?,
        file.maybe_ints("completion_order")?,
        file.maybe_ints("completion_epoch")?,
        file.maybe_bools("ok")?,
    );
    let texts = file.texts("text")?;
    let mut rows = Vec::with_capacity(ops.len());
    for (row, op) in ops.iter().enumerate() {
        let short = || file.row(row, "columns are not of one length");
        let op = op.as_deref().and_then(op_of);
        let op = op.ok_or_else(|| file.row(row, "an op that is not known"))?;
        let (Some(offset), Some(len), Some(epoch), Some(issued), Some(text)) =
            (offsets.get(row), lens.get(row), epochs.get(row), issued.get(row), texts.get(row))
        else {
            return Err(short());
        };
        if offset.checked_add(*len).is_none_or(|end| end > DEVICE_MAX) {
            return Err(file.row(row, "a place that no device has"));
        }
        let (Some(at), Some(order), Some(end_epoch), Some(ok)) =
            (ends.0.get(row), ends.1.get(row), ends.2.get(row), ends.3.get(row))
        else {
            return Err(short());
        };
        let time = |ns: &Option<u64>| Time::from_nanos(ns.unwrap_or(0));
        let end = ok.map(|ok| End {
            order: order.unwrap_or(row as u64),
            at: time(at),
            epoch: end_epoch.unwrap_or(*epoch),
            ok,
        });
        let mut set = Flags::empty();
        for (flag, values) in &flags {
            set.set(*flag, values.get(row).copied().flatten() == Some(true));
        }
        let (offset, len, epoch) = (*offset, *len, *epoch);
        let request =
            Request { op, flags: set, offset, len, issued: time(issued), epoch, end, data: None };
        let text = text.clone().filter(|_| op == Op::Mark);
        rows.push((request, text));
    }
    Ok(rows)
}

/// Keeps the contents of requests all of whose blocks have some. Where each request's lie.
fn keep<'a>(
    trace: &mut Trace,
    requests: &[Row],
    file: &Reading,
    content: impl Fn(u64) -> Option<&'a [u8]>,
) -> Result<FxHashMap<u64, Span>, StoreError> {
    let (ids, offsets) = (file.ints("request")?, file.ints("offset")?);
    let (lens, numbers) = (file.ints("length")?, file.maybe_ints("content")?);
    let mut spans = FxHashMap::default();
    // The request whose blocks are looked at: where it goes on, and its contents so far, while all are there.
    let mut now: Option<(u64, u64, Option<Vec<u8>>)> = None;
    let mut total = 0u64;
    let mut done = |now: Option<(u64, u64, Option<Vec<u8>>)>, trace: &mut Trace| {
        let Some((id, at, Some(bytes))) = now else { return };
        let (request, _) = requests[id as usize];
        if at == request.offset + request.len && !bytes.is_empty() {
            spans.insert(id, trace.keep(&bytes));
        }
    };
    for (row, id) in ids.iter().enumerate() {
        let (Some(at), Some(len), Some(number)) =
            (offsets.get(row), lens.get(row), numbers.get(row))
        else {
            return Err(file.row(row, "columns are not of one length"));
        };
        if now.as_ref().is_none_or(|(last, ..)| last != id) {
            if now.as_ref().is_some_and(|(last, ..)| last > id) {
                return Err(file.row(row, "blocks are not in order of requests"));
            }
            let request = usize::try_from(*id).ok().and_then(|i| requests.get(i));
            let (request, _) = request.ok_or_else(|| file.row(row, "of no request"))?;
            done(now.take(), trace);
            now = Some((*id, request.offset, Some(Vec::new())));
        }
        let Some((_, next, bytes)) = &mut now else { continue };
        if at != next {
            return Err(file.row(row, "blocks of a request do not follow each other"));
        }
        *next = at.saturating_add(*len);
        let Some(number) = number else {
            *bytes = None;
            continue;
        };
        let found = content(*number).ok_or_else(|| file.row(row, "contents that are not there"))?;
        if found.len() as u64 != *len {
            return Err(file.row(row, "contents of another length"));
        }
        total += len;
        if total > CONTENTS_MAX {
            return Err(file.row(row, "more contents than a trace may have"));
        }
        if let Some(bytes) = bytes {
            bytes.extend_from_slice(found);
        }
    }
    done(now.take(), trace);
    Ok(spans)
}
