//! A trace as a directory of Parquet files, in the format of `docs/formats/trace.md`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use ordo_runtime::Time;
use ordo_trace::{Flags, RequestOp, RequestSpan, Trace, TraceRequest};
use ordo_watcher::analysis::WatchFindings;
use rustc_hash::FxHashMap;

use crate::calls::{self, CALLS, StoredCall, WAITS};
use crate::counting;
use crate::files::{self, FILES};
use crate::findings::{self, Closing, RECOUNTED, TRANSACTIONS};
use crate::image::{PIECE, Pieces};
use crate::parts::{self, CHANGES, CONTINUED, EARLIER, PartHead};
use crate::private;
use crate::reading::{BLOCKS, CONTENTS, REQUESTS, Reading, START};
use crate::rows::{BlockRow, FileShare};
use crate::table::{self, Column, Seal};
use crate::tables::{self, StoredRequest, TableHead};

pub use crate::reading::{StoreError, VERSION};

/// The most bytes of contents that a trace may have when it is read. Equal contents are stored
/// once, so a small file can claim any number.
const CONTENTS_MAX: u64 = 64 << 30;

/// The most contents in a row group, and their bytes, since the columns of a group are in memory
/// together. A single one may have more bytes.
const CONTENTS_GROUP: usize = 1 << 12;
const CONTENTS_BYTES: usize = 8 << 20;

const SHARES: &str = "shares.parquet";

/// The parts of a trace to write.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The requests.
    pub trace: &'a Trace,
    /// The rows of their blocks, in the order of requests.
    pub blocks: &'a [BlockRow],
    /// The shares of files in blocks that several files share.
    pub shares: &'a [FileShare],
    /// The recorded system calls, in the order in which they began.
    pub calls: &'a [StoredCall],
    /// The known pieces of the device before the trace.
    pub start: &'a Pieces,
    /// The file system's name.
    pub system: &'a str,
    /// The results of the watcher that named the blocks; `None` if there was none.
    pub found: Option<&'a WatchFindings>,
}

/// Totals of a written trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of rows of requests.
    pub requests: u64,
    /// The number of rows of blocks.
    pub blocks: u64,
    /// Distinct contents.
    pub contents: u64,
    /// The number of transactions.
    pub transactions: u64,
    /// The number of bytes of all files.
    pub bytes: u64,
    /// The number of bytes of the files of requests and blocks among these.
    pub rows_bytes: u64,
}

/// A trace that was read.
#[derive(Debug)]
pub struct Stored {
    /// The requests, with the contents that were kept.
    pub trace: Trace,
    /// The known pieces of the device before the trace.
    pub start: Pieces,
    /// The file system's name.
    pub system: String,
}

/// Distinct contents, in the order in which they were first seen.
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

/// Writes a trace to the directory `dir`, which is created. Files of an older trace in it are
/// replaced.
///
/// # Errors
/// A file cannot be written.
pub fn write(dir: &Path, parts: &Parts<'_>) -> Result<Written, StoreError> {
    write_in_groups(dir, parts, table::GROUP)
}

/// Writes a trace with row groups of about `rows` rows. A reader holds one group for each processor
/// in memory.
///
/// # Errors
/// A file cannot be written.
pub fn write_in_groups(dir: &Path, parts: &Parts<'_>, rows: usize) -> Result<Written, StoreError> {
    write_all(dir, parts, None, rows)
}

/// Writes a part of a recording: a trace that can be read by itself, with what the other parts
/// need.
///
/// # Errors
/// A file cannot be written.
pub fn write_part(dir: &Path, parts: &Parts<'_>, head: &PartHead) -> Result<Written, StoreError> {
    write_all(dir, parts, Some(head), table::GROUP)
}

/// Writes a trace. A directory that was not there is removed again if that fails.
fn write_all(
    dir: &Path,
    parts: &Parts<'_>,
    head: Option<&PartHead>,
    rows: usize,
) -> Result<Written, StoreError> {
    let is_new = !dir.exists();
    let written = write_files(dir, parts, head, rows);
    if written.is_err() && is_new {
        let _ = fs::remove_dir_all(dir);
    }
    written
}

fn write_files(
    dir: &Path,
    parts: &Parts<'_>,
    head: Option<&PartHead>,
    rows: usize,
) -> Result<Written, StoreError> {
    let io = |path: &Path, error| StoreError::Io { path: path.into(), error };
    private::folder(dir).map_err(|error| io(dir, error))?;
    // The file with the seals of the others is removed first and written last.
    for file in [RECOUNTED, TRANSACTIONS, CALLS, WAITS, EARLIER, CONTINUED, CHANGES] {
        match fs::remove_file(dir.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(dir, error)),
            _ => {}
        }
    }
    let mut dedup = Dedup::default();
    let of_blocks = numbers(parts, &mut dedup);
    let start: Vec<_> = parts.start.known.iter().map(|(at, p)| (*at, dedup.number(p))).collect();
    let mut out = Files {
        dir,
        says: says(parts).into_iter().chain(head.into_iter().flat_map(PartHead::says)).collect(),
        most: rows.max(1),
        sizes: BTreeMap::new(),
        seals: BTreeMap::new(),
    };
    let trace = parts.trace;
    out.put(REQUESTS, trace.requests().len(), |_| false, |rows| requests(trace, rows))?;
    // All blocks of a request go into one row group, since groups are counted separately.
    let all = parts.blocks;
    let same = |row: usize| all[row].request == all[row - 1].request;
    out.put(BLOCKS, all.len(), same, |r| blocks(&all[r.clone()], &of_blocks[r]))?;
    out.put_contents(&dedup.list, &start)?;
    let all = parts.shares;
    out.put(SHARES, all.len(), |_| false, |rows| shares(&all[rows]))?;
    let all = files::of(trace, parts.blocks, parts.shares);
    out.put(FILES, all.len(), |_| false, |rows| files::columns(&all[rows]))?;
    out.put_calls(parts.calls)?;
    if let Some(head) = head {
        out.put_part(head)?;
    }
    if let Some(found) = parts.found {
        out.put_found(found, trace.timed())?;
    }
    let size = |file: &str| out.sizes.get(file).copied().unwrap_or(0);
    Ok(Written {
        requests: trace.requests().len() as u64,
        blocks: parts.blocks.len() as u64,
        contents: dedup.list.len() as u64,
        transactions: parts.found.map_or(0, |found| found.transactions.len() as u64),
        bytes: out.sizes.values().sum(),
        rows_bytes: size(REQUESTS) + size(BLOCKS) + size(TRANSACTIONS) + size(RECOUNTED),
    })
}

/// The key-value pairs that every file has.
fn says(parts: &Parts<'_>) -> Vec<(&'static str, String)> {
    vec![
        ("ordo.version", VERSION.to_string()),
        ("ordo.sector", parts.trace.sector().to_string()),
        ("ordo.timed", parts.trace.timed().to_string()),
        ("ordo.device_bytes", parts.start.bytes.to_string()),
        ("ordo.system", parts.system.to_string()),
        ("ordo.disk", parts.trace.disk().unwrap_or("none").to_string()),
    ]
}

/// The files of a trace that is being written.
struct Files<'a> {
    dir: &'a Path,
    says: Vec<(&'static str, String)>,
    /// The number of rows of a row group.
    most: usize,
    sizes: BTreeMap<&'static str, u64>,
    seals: BTreeMap<String, Seal>,
}

impl Files<'_> {
    /// Writes a file. `whole` tells whether a row belongs in the same group as the row before it.
    fn put(
        &mut self,
        file: &'static str,
        rows: usize,
        whole: impl Fn(usize) -> bool,
        columns: impl Fn(Range<usize>) -> Vec<Column>,
    ) -> Result<(), StoreError> {
        self.put_groups(file, &table::ends(rows, self.most, whole), columns)
    }

    /// Writes a file whose row groups end at `ends`.
    fn put_groups(
        &mut self,
        file: &'static str,
        ends: &[usize],
        columns: impl Fn(Range<usize>) -> Vec<Column>,
    ) -> Result<(), StoreError> {
        let path = self.dir.join(file);
        let seal = table::write(&path, &self.says, ends, columns)
            .map_err(|error| StoreError::NotWritten { path: path.clone(), error })?;
        let size = fs::metadata(&path).map(|m| m.len());
        self.sizes.insert(file, size.map_err(|error| StoreError::Io { path, error })?);
        self.seals.insert(file.to_owned(), seal);
        Ok(())
    }

    /// Writes the system calls. If there are none, the file of an older trace is removed.
    fn put_calls(&mut self, all: &[StoredCall]) -> Result<(), StoreError> {
        if all.is_empty() {
            return Ok(());
        }
        let alone = |_| false;
        self.put(CALLS, all.len(), alone, |rows| calls::columns(&all[rows.clone()], rows.start))?;
        let pairs = calls::pairs(all);
        self.put(WAITS, pairs.len(), alone, |rows| calls::pair_columns(&pairs[rows]))
    }

    /// Writes the different contents, and the device before the trace.
    fn put_contents(&mut self, all: &[&[u8]], start: &[(u64, u64)]) -> Result<(), StoreError> {
        let alone = |_| false;
        let ends = ends_of_contents(all, self.most.min(CONTENTS_GROUP));
        self.put_groups(CONTENTS, &ends, |rows| {
            let numbers = rows.start as u64..rows.end as u64;
            let bytes = all[rows].iter().copied();
            vec![Column::rising("content", numbers), Column::bytes("bytes", bytes)]
        })?;
        self.put(START, start.len(), alone, |rows| {
            let at = || start[rows.clone()].iter().map(|(at, _)| *at);
            vec![
                Column::int("device_offset", at()),
                Column::int("offset", at()),
                Column::int("content", start[rows.clone()].iter().map(|(_, n)| *n)),
            ]
        })
    }

    /// Writes what the other parts of a recording need.
    fn put_part(&mut self, head: &PartHead) -> Result<(), StoreError> {
        let alone = |_| false;
        let all: Vec<_> = head.found.earlier.iter().collect();
        self.put(EARLIER, all.len(), alone, |r| parts::earlier_columns(&all[r]))?;
        let all = &head.found.continued;
        self.put(CONTINUED, all.len(), alone, |r| parts::continued_columns(&all[r]))?;
        let all = &head.files;
        self.put(CHANGES, all.len(), alone, |r| parts::change_columns(&all[r]))
    }

    /// Writes the watcher's results, with the seals of the files so far.
    fn put_found(&mut self, found: &WatchFindings, timed: bool) -> Result<(), StoreError> {
        let all = &found.transactions;
        let alone = |_| false;
        self.put(TRANSACTIONS, all.len(), alone, |r| findings::transactions(&all[r], timed))?;
        let closing = Closing::new(found, std::mem::take(&mut self.seals));
        self.says.extend(closing.says());
        self.put(RECOUNTED, closing.recounted.len(), alone, |rows| closing.columns(rows))?;
        // The results are kept only if counting the tables gives exactly the same; otherwise the
        // trace must be named again.
        if !counting::count(self.dir).is_ok_and(|counted| counted == Some(found.into())) {
            let path = self.dir.join(RECOUNTED);
            fs::remove_file(&path).map_err(|error| StoreError::Io { path, error })?;
            self.sizes.remove(RECOUNTED);
        }
        Ok(())
    }
}

/// The ends of groups of contents that have at most `most` rows, and few bytes.
fn ends_of_contents(all: &[&[u8]], most: usize) -> Vec<usize> {
    let (mut ends, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (row, one) in all.iter().enumerate() {
        if row > first && (row - first == most || bytes + one.len() > CONTENTS_BYTES) {
            ends.push(row);
            (first, bytes) = (row, 0);
        }
        bytes += one.len();
    }
    ends.extend((first < all.len()).then_some(all.len()));
    ends
}

/// For each block, the number of its contents, if they were kept.
fn numbers<'a>(parts: &Parts<'a>, dedup: &mut Dedup<'a>) -> Vec<Option<u64>> {
    let requests = parts.trace.requests();
    let number = |row: &BlockRow| {
        let r = requests.get(row.request as usize)?;
        let data = parts.trace.data(r)?;
        let from = row.offset.checked_sub(r.offset)? as usize;
        Some(dedup.number(data.get(from..from.checked_add(row.len as usize)?)?))
    };
    parts.blocks.iter().map(number).collect()
}

fn requests(trace: &Trace, rows: Range<usize>) -> Vec<Column> {
    let all = || trace.requests()[rows.clone()].iter();
    let ends = || all().map(|r| r.end);
    let flag = |name, flag| Column::bool(name, all().map(move |r| r.flags.contains(flag)));
    let time = |at: Time| trace.timed().then_some(at.as_nanos());
    let text = |r: &TraceRequest| {
        let data = trace.data(r).filter(|_| r.op == RequestOp::Mark);
        data.map(|d| String::from_utf8_lossy(d).into_owned())
    };
    let texts: Vec<Option<String>> = all().map(text).collect();
    vec![
        Column::rising("request", rows.start as u64..rows.end as u64),
        Column::words("op", all().map(|r| r.op.words())),
        Column::int("device_offset", all().map(|r| r.offset)),
        Column::int("offset", all().map(|r| r.offset)),
        Column::int("length", all().map(|r| r.len)),
        flag("fua", Flags::FUA),
        flag("preflush", Flags::PREFLUSH),
        flag("sync", Flags::SYNC),
        flag("meta", Flags::META),
        flag("dropped", Flags::DROPPED),
        Column::maybe_int("issued_ns", all().map(|r| time(r.issued))),
        Column::int("epoch", all().map(|r| r.epoch)),
        Column::maybe_int("completed_ns", ends().map(|e| time(e?.at))),
        Column::maybe_int("completion_order", ends().map(|e| Some(e?.order))),
        Column::maybe_int("completion_epoch", ends().map(|e| Some(e?.epoch))),
        Column::maybe_bool("ok", ends().map(|e| Some(e?.ok))),
        Column::text("text", texts.iter().map(|t| t.as_deref().map(str::as_bytes))),
    ]
}

fn blocks(rows: &[BlockRow], contents: &[Option<u64>]) -> Vec<Column> {
    let all = || rows.iter();
    let words = |s: &'static str| s.as_bytes();
    vec![
        Column::rising("request", all().map(|b| b.request)),
        Column::int("device_offset", all().map(|b| b.offset)),
        Column::int("offset", all().map(|b| b.offset)),
        Column::int("length", all().map(|b| b.len)),
        Column::words("kind", all().map(|b| b.kind.key())),
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
        Column::words("final_kind", all().map(|b| b.final_kind.key())),
        Column::text("owner", all().map(|b| b.known.map(|k| words(k.key())))),
        Column::text("reason", all().map(|b| b.reason.map(|r| words(r.words())))),
        Column::maybe_int("content", contents.iter().copied()),
    ]
}

fn shares(all: &[FileShare]) -> Vec<Column> {
    vec![
        Column::rising("request", all.iter().map(|s| s.request)),
        Column::int("device_offset", all.iter().map(|s| s.offset)),
        Column::int("inode", all.iter().map(|s| s.ino)),
        Column::text("path", all.iter().map(|s| s.path.as_deref().map(str::as_bytes))),
        Column::int("bytes", all.iter().map(|s| s.bytes)),
    ]
}

/// Whether a directory holds a trace, by its file names.
pub fn is_trace(dir: &Path) -> bool {
    dir.join(REQUESTS).is_file()
}

/// Reads a trace.
///
/// # Errors
/// A file is missing or damaged, or a row makes no sense.
pub fn read(dir: &Path) -> Result<Stored, StoreError> {
    let closing = Closing::read(dir)?;
    let open = |file: &str| match &closing {
        Some(closing) => closing.open(dir, file),
        None => Reading::open(dir, file),
    };
    let file = open(REQUESTS)?;
    let TableHead { sector, timed, disk, system, bytes } = tables::head(&file)?;
    let mut rows = Vec::new();
    for group in 0..file.table.groups() {
        rows.extend(tables::request_group(&file, group)?);
    }
    let contents = open(CONTENTS)?;
    let pieces = contents.texts("bytes")?;
    let content = |n: u64| pieces.get(usize::try_from(n).ok()?)?.as_deref();
    let mut trace = Trace::new(sector, timed);
    trace.set_disk(disk.as_deref());
    let spans = keep(&mut trace, &rows, &open(BLOCKS)?, content)?;
    for (number, (request, text)) in rows.iter_mut().enumerate() {
        request.data = match text {
            Some(text) => Some(trace.keep(text)),
            None => spans.get(&(number as u64)).copied(),
        };
        trace.push(*request);
    }
    let file = open(START)?;
    let mut known = BTreeMap::new();
    for (row, (at, n)) in file.ints("offset")?.into_iter().zip(file.ints("content")?).enumerate() {
        let piece = content(n).ok_or_else(|| file.row(row, "contents that are missing"))?;
        if at % PIECE != 0 || at >= bytes || piece.len() as u64 != PIECE.min(bytes - at) {
            return Err(file.row(row, "a piece that does not fit the device"));
        }
        known.insert(at, piece.into());
    }
    Ok(Stored { trace, start: Pieces { bytes, known }, system })
}

/// Puts together the contents of each request whose blocks all have contents. Returns the place of
/// each.
fn keep<'a>(
    trace: &mut Trace,
    requests: &[StoredRequest],
    file: &Reading,
    content: impl Fn(u64) -> Option<&'a [u8]>,
) -> Result<FxHashMap<u64, RequestSpan>, StoreError> {
    let (ids, offsets) = (file.ints("request")?, file.ints("offset")?);
    let (lens, numbers) = (file.ints("length")?, file.maybe_ints("content")?);
    let mut spans = FxHashMap::default();
    // The request being put together: its number, its next byte, and its contents so far, unless
    // some are missing.
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
            let (request, _) = request.ok_or_else(|| file.row(row, "it belongs to no request"))?;
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
        let found = content(*number).ok_or_else(|| file.row(row, "contents that are missing"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of contents are bounded by rows and by bytes, and have every row once. Would catch a
    /// writer that copies all contents of a long recording at once, and a row that is lost between
    /// two groups.
    #[test]
    fn groups_of_contents_have_few_bytes() {
        let (long, short) = (vec![0; CONTENTS_BYTES / 2 + 1], vec![0; 10]);
        let all = [&long[..], &short, &long, &short, &short, &short];
        assert_eq!(ends_of_contents(&all, 3), [2, 5, 6]);
        assert_eq!(ends_of_contents(&all[..2], 3), [2]);
        assert_eq!(ends_of_contents(&[], 3), [0; 0]);
        let huge = vec![0; 2 * CONTENTS_BYTES];
        assert_eq!(ends_of_contents(&[&huge, &huge], 3), [1, 2]);
    }
}
