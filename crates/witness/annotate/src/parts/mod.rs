//! A recording in parts: each is a trace by itself, in a directory of its own.
//!
//! - this file: what a part says of itself, and the tables that the other parts need.
//! - [`maker`]: makes parts of the requests that a watcher names.
//! - [`recorder`]: the sink of a device whose parts are written while it is used; [`writer`]:
//!   writes them.
//! - [`join`]: all parts of a recording, analysed together; [`whole`]: read as one trace.

pub mod join;
pub mod maker;
pub mod recorder;
pub mod whole;
pub mod writer;

use std::sync::Arc;

use ordo_watcher::Class;
use ordo_watcher::TrafficCounts;
use ordo_watcher::journal::Transaction;
use ordo_watcher::parts::{Earlier, Ends, PartFindings};

use crate::files::{NUMBERS, PARTS};
use crate::findings;
use crate::owners::{FileChange, Numbers};
use crate::reading::{Reading, StoreError};
use crate::table::Column;

pub use join::{JoinedParts, PartedRecording, SetAside, find};
pub use maker::{Next, Part, PartMaker, divide};
pub use recorder::{PartLimits, PartRecorder, Sample};
pub use writer::{PartWriter, Place};

/// Counts of earlier parts that turned out to be of another kind.
pub(crate) const EARLIER: &str = "earlier.parquet";
/// Transactions that began in earlier parts.
pub(crate) const CONTINUED: &str = "continued.parquet";
/// The traffic of files, and its changes in earlier parts.
pub(crate) const CHANGES: &str = "changes.parquet";

/// The description of a part, beside its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartHead {
    /// The recording's name, which all of its parts have.
    pub recording: String,
    /// The part's number, from 0.
    pub part: u32,
    /// The number in the recording of the part's first request.
    pub first_request: u64,
    /// Time zero of the recording, in nanoseconds since 1970; 0 if it is not known.
    pub began_ns: u64,
    /// Whether the recording ended in order with this part.
    pub is_last: bool,
    /// How much of the time is recorded, as `10s/5min`; `None` if all of it is.
    pub sample: Option<String>,
    /// The watcher's findings.
    pub found: PartFindings,
    /// The traffic of files.
    pub files: Vec<FileChange>,
    /// The number of rows whose owner may have changed later, but which were too many to carry
    /// over.
    pub not_carried: u64,
}

impl PartHead {
    /// The key-value pairs of the part's files.
    pub(crate) fn says(&self) -> Vec<(&'static str, String)> {
        let end = |end: Option<u64>| end.map_or_else(|| "none".to_owned(), |end| end.to_string());
        vec![
            ("ordo.recording", self.recording.clone()),
            ("ordo.part", self.part.to_string()),
            ("ordo.first_request", self.first_request.to_string()),
            ("ordo.began_ns", self.began_ns.to_string()),
            ("ordo.last", self.is_last.to_string()),
            ("ordo.sample", self.sample.clone().unwrap_or_else(|| "none".to_owned())),
            ("ordo.write_end", end(self.found.ends.write)),
            ("ordo.read_end", end(self.found.ends.read)),
            ("ordo.first_transaction", self.found.first_transaction.to_string()),
            ("ordo.settled_earlier", self.found.settled_earlier.to_string()),
            ("ordo.unclaimed_so_far", self.found.unclaimed_so_far.to_string()),
            ("ordo.strays_so_far", self.found.orphans_so_far.to_string()),
            ("ordo.not_carried", self.not_carried.to_string()),
        ]
    }

    /// The description without the tables; `None` if the trace is no part of a recording.
    pub(crate) fn read(requests: &Reading) -> Result<Option<PartHead>, StoreError> {
        requests.version()?;
        let Some(recording) = requests.table.says("ordo.recording") else { return Ok(None) };
        let number = |key| requests.number(key);
        let part = number("ordo.part")?;
        let found = PartFindings {
            settled_earlier: number("ordo.settled_earlier")?,
            unclaimed_so_far: number("ordo.unclaimed_so_far")?,
            orphans_so_far: number("ordo.strays_so_far")?,
            first_transaction: number("ordo.first_transaction")?,
            ends: ends(requests)?,
            ..PartFindings::default()
        };
        Ok(Some(PartHead {
            recording: recording.to_owned(),
            part: u32::try_from(part).map_err(|_| requests.says("ordo.part", &part.to_string()))?,
            first_request: number("ordo.first_request")?,
            began_ns: number("ordo.began_ns")?,
            is_last: requests.table.says("ordo.last") == Some("true"),
            sample: requests.table.says("ordo.sample").filter(|s| *s != "none").map(str::to_owned),
            found,
            files: Vec::new(),
            not_carried: number("ordo.not_carried")?,
        }))
    }
}

/// The ends of the last requests before a trace; none if it is no part of a recording.
pub(crate) fn ends(requests: &Reading) -> Result<Ends, StoreError> {
    let end = |key| match requests.table.says(key) {
        None | Some("none") => Ok(None),
        Some(_) => requests.number(key).map(Some),
    };
    Ok(Ends { write: end("ordo.write_end")?, read: end("ordo.read_end")? })
}

type Moved<'a> = (&'a (u32, Class, Class), &'a TrafficCounts);

/// The columns of [`EARLIER`].
pub(crate) fn earlier_columns(all: &[Moved<'_>]) -> Vec<Column> {
    let count = |name, of: fn(&TrafficCounts) -> u64| {
        Column::int(name, all.iter().map(move |(_, c)| of(c)))
    };
    vec![
        Column::int("part", all.iter().map(|((part, ..), _)| u64::from(*part))),
        Column::words("was", all.iter().map(|((_, was, _), _)| was.key())),
        Column::words("kind", all.iter().map(|((.., kind), _)| kind.key())),
        count("requests", |c| c.requests),
        count("blocks", |c| c.blocks),
        count("bytes", |c| c.bytes),
        count("sync", |c| c.sync),
        count("sequential", |c| c.sequential),
    ]
}

fn read_earlier(file: &Reading) -> Result<Earlier, StoreError> {
    let (parts, was, kind) = (file.ints("part")?, file.classes("was")?, file.classes("kind")?);
    let (requests, blocks, bytes) =
        (file.ints("requests")?, file.ints("blocks")?, file.ints("bytes")?);
    let (sync, sequential) = (file.ints("sync")?, file.ints("sequential")?);
    let mut all = Earlier::new();
    for (row, part) in parts.into_iter().enumerate() {
        let number = |column: &[u64]| {
            let short = || file.row(row, "columns are not of one length");
            column.get(row).copied().ok_or_else(short)
        };
        let class = |column: &[Class]| {
            column.get(row).copied().ok_or_else(|| file.row(row, "columns are not of one length"))
        };
        let part = u32::try_from(part).map_err(|_| file.row(row, "an impossible part"))?;
        let counts = TrafficCounts {
            requests: number(&requests)?,
            blocks: number(&blocks)?,
            bytes: number(&bytes)?,
            sync: number(&sync)?,
            sequential: number(&sequential)?,
        };
        all.insert((part, class(&was)?, class(&kind)?), counts);
    }
    Ok(all)
}

/// The columns of [`CONTINUED`]: those of the transactions, with the numbers of requests in the
/// recording.
pub(crate) fn continued_columns(all: &[(u64, Transaction)]) -> Vec<Column> {
    let transactions: Vec<&Transaction> = all.iter().map(|(_, t)| t).collect();
    let mut columns = vec![Column::int("transaction_number", all.iter().map(|(n, _)| *n))];
    columns.extend(findings::transactions(&transactions, true));
    columns
}

/// The columns of [`CHANGES`].
pub(crate) fn change_columns(all: &[FileChange]) -> Vec<Column> {
    let mut columns = vec![
        Column::maybe_int("life", all.iter().map(|f| f.life)),
        Column::maybe_int("inode", all.iter().map(|f| f.inode)),
        Column::text("path", all.iter().map(|f| f.path.as_deref().map(str::as_bytes))),
        Column::int("part", all.iter().map(|f| u64::from(f.part))),
    ];
    for (i, name) in NUMBERS.into_iter().enumerate() {
        let number = move |f: &FileChange| match (f.numbers[i / 2], i % 2) {
            ((bytes, _), 0) => bytes.cast_unsigned(),
            ((_, requests), _) => requests.cast_unsigned(),
        };
        columns.push(Column::int(name, all.iter().map(number)));
    }
    columns
}

fn read_changes(file: &Reading) -> Result<Vec<FileChange>, StoreError> {
    let (lifetimes, inodes) = (file.maybe_ints("life")?, file.maybe_ints("inode")?);
    let (paths, parts) = (file.texts("path")?, file.ints("part")?);
    let columns: Vec<Vec<u64>> =
        NUMBERS.iter().map(|name| file.ints(name)).collect::<Result<_, _>>()?;
    let mut all = Vec::with_capacity(lifetimes.len());
    for (row, path) in paths.into_iter().enumerate() {
        let short = || file.row(row, "columns are not of one length");
        let mut numbers = Numbers::default();
        for (of, number) in numbers.iter_mut().enumerate().take(PARTS) {
            let value = |i: usize| columns[i].get(row).map(|n| n.cast_signed()).ok_or_else(short);
            *number = (value(2 * of)?, value(2 * of + 1)?);
        }
        let part = parts.get(row).and_then(|part| u32::try_from(*part).ok());
        all.push(FileChange {
            life: *lifetimes.get(row).ok_or_else(short)?,
            inode: *inodes.get(row).ok_or_else(short)?,
            path: path.map(|path| Arc::from(String::from_utf8_lossy(&path))),
            part: part.ok_or_else(|| file.row(row, "an impossible part"))?,
            numbers,
        });
    }
    Ok(all)
}
