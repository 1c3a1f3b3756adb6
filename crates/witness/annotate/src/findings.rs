//! A watcher's results that the rows of requests and blocks do not hold, stored beside them:
//! `docs/formats/trace.md`.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use ordo_watcher::analysis::{GatheredTransactions, WatchFindings};
use ordo_watcher::journal::{Moment, Transaction};
use ordo_watcher::kind::Reason;
use ordo_watcher::stats::Recounted;
use ordo_watcher::{Class, TrafficCounts};

use crate::reading::{Reading, StoreError};
use crate::table::{Column, Seal};

/// The file with one row for each transaction.
pub(crate) const TRANSACTIONS: &str = "transactions.parquet";
/// The file with guesses that were settled, and with the seals of the other files. It is written
/// last.
pub(crate) const RECOUNTED: &str = "recounted.parquet";

/// The header of [`RECOUNTED`], beside the fields that every file's header has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closing {
    pub(crate) system: String,
    pub(crate) settled: u64,
    pub(crate) unclaimed: u64,
    pub(crate) without_contents: u64,
    pub(crate) orphan_blocks: u64,
    pub(crate) unknown: BTreeMap<Reason, u64>,
    pub(crate) recounted: Recounted,
    /// The seals of the other files.
    pub(crate) files: BTreeMap<String, Seal>,
}

impl Closing {
    pub(crate) fn new(found: &WatchFindings, files: BTreeMap<String, Seal>) -> Closing {
        let stats = &found.stats;
        Closing {
            system: found.system.clone(),
            settled: stats.settled,
            unclaimed: stats.unclaimed,
            without_contents: stats.without_contents,
            orphan_blocks: found.orphan_blocks,
            unknown: stats.unknown.clone(),
            recounted: stats.recounted.clone(),
            files,
        }
    }

    /// The key-value pairs of the file. The last one is the checksum over all others.
    pub(crate) fn says(&self) -> Vec<(&'static str, String)> {
        let lines = |out: &mut String, line: std::fmt::Arguments<'_>| {
            let _ = out.write_fmt(line);
            out.push('\n');
        };
        let (mut unknown, mut files) = (String::new(), String::new());
        for (why, count) in &self.unknown {
            lines(&mut unknown, format_args!("{count} {}", why.words()));
        }
        for (file, seal) in &self.files {
            lines(&mut files, format_args!("{} {:08x} {file}", seal.rows, seal.sum));
        }
        let mut says = vec![
            ("ordo.settled", self.settled.to_string()),
            ("ordo.unclaimed", self.unclaimed.to_string()),
            ("ordo.without_contents", self.without_contents.to_string()),
            ("ordo.strays", self.orphan_blocks.to_string()),
            ("ordo.unknown", unknown),
            ("ordo.files", files),
        ];
        let mut all = self.system.clone();
        says.iter().for_each(|(key, value)| all += &format!("\n{key} {value}"));
        for ((was, kind), c) in &self.recounted {
            let numbers = [c.requests, c.blocks, c.bytes, c.sync, c.sequential];
            all += &format!("\n{} {} {numbers:?}", was.key(), kind.key());
        }
        says.push(("ordo.sum", format!("{:08x}", crc32c::crc32c(all.as_bytes()))));
        says
    }

    /// The columns for a range of rows.
    pub(crate) fn columns(&self, rows: Range<usize>) -> Vec<Column> {
        let all = || self.recounted.iter().skip(rows.start).take(rows.len());
        let count =
            |name, of: fn(&TrafficCounts) -> u64| Column::int(name, all().map(move |(_, c)| of(c)));
        vec![
            Column::words("was", all().map(|((was, _), _)| was.key())),
            Column::words("kind", all().map(|((_, kind), _)| kind.key())),
            count("requests", |c| c.requests),
            count("blocks", |c| c.blocks),
            count("bytes", |c| c.bytes),
            count("sync", |c| c.sync),
            count("sequential", |c| c.sequential),
        ]
    }

    /// Reads this part of a trace; `None` if the trace has none.
    pub(crate) fn read(dir: &Path) -> Result<Option<Closing>, StoreError> {
        if !dir.join(RECOUNTED).exists() {
            return Ok(None);
        }
        let file = Reading::open(dir, RECOUNTED)?;
        file.version()?;
        let (was, kind) = (file.classes("was")?, file.classes("kind")?);
        let mut columns =
            ["requests", "blocks", "bytes", "sync", "sequential"].map(|name| file.ints(name));
        let mut next = |i: usize| std::mem::replace(&mut columns[i], Ok(Vec::new()));
        let numbers = [next(0)?, next(1)?, next(2)?, next(3)?, next(4)?];
        let mut recounted = Recounted::new();
        for (row, pair) in was.into_iter().zip(kind).enumerate() {
            let number = |i: usize| numbers[i].get(row).copied();
            let (Some(requests), Some(blocks), Some(bytes), Some(sync), Some(sequential)) =
                (number(0), number(1), number(2), number(3), number(4))
            else {
                return Err(file.row(row, "columns are not of one length"));
            };
            recounted.insert(pair, TrafficCounts { requests, blocks, bytes, sync, sequential });
        }
        let closing = Closing {
            system: file.table.says("ordo.system").unwrap_or_default().to_owned(),
            settled: file.number("ordo.settled")?,
            unclaimed: file.number("ordo.unclaimed")?,
            without_contents: file.number("ordo.without_contents")?,
            orphan_blocks: file.number("ordo.strays")?,
            unknown: file.lines("ordo.unknown", reason)?,
            recounted,
            files: file.lines("ordo.files", seal)?,
        };
        for (key, should) in closing.says() {
            let found = file.table.says(key).unwrap_or_default();
            if found != should {
                return Err(file.says(key, found));
            }
        }
        Ok(Some(closing))
    }

    /// Opens a file of the trace, and refuses one that was not written with the others.
    pub(crate) fn open(&self, dir: &Path, name: &str) -> Result<Reading, StoreError> {
        let file = Reading::open(dir, name)?;
        let (found, should) =
            (file.table.seal(), self.files.get(name).copied().unwrap_or_default());
        if found != should {
            return Err(StoreError::Another {
                path: file.path,
                rows: found.rows,
                sum: found.sum,
                should_rows: should.rows,
                should_sum: should.sum,
            });
        }
        Ok(file)
    }
}

fn reason(line: &str) -> Option<(Reason, u64)> {
    let (count, words) = line.split_once(' ')?;
    Some((Reason::from_words(words)?, count.parse().ok()?))
}

fn seal(line: &str) -> Option<(String, Seal)> {
    let (rows, rest) = line.split_once(' ')?;
    let (sum, file) = rest.split_once(' ')?;
    let seal = Seal { rows: rows.parse().ok()?, sum: u32::from_str_radix(sum, 16).ok()? };
    Some((file.to_owned(), seal))
}

/// The columns of [`TRANSACTIONS`]; without times in the trace, moments have none.
pub(crate) fn transactions<T: Borrow<Transaction>>(all: &[T], timed: bool) -> Vec<Column> {
    type Of = fn(&Transaction) -> Option<Moment>;
    let all = || all.iter().map(Borrow::borrow);
    let each = |name, of: fn(&Transaction) -> u64| Column::int(name, all().map(of));
    let ns = |name, of: Of| {
        Column::maybe_int(name, all().map(move |t| of(t).filter(|_| timed).map(|m| m.nanos)))
    };
    let maybe = |names: [&'static str; 3], of: Of| {
        let request = Column::maybe_int(names[0], all().map(move |t| Some(of(t)?.request)));
        let epoch = Column::maybe_int(names[2], all().map(move |t| Some(of(t)?.epoch)));
        [request, ns(names[1], of), epoch]
    };
    let mut columns = vec![
        each("transaction", |t| t.id),
        each("first_request", |t| t.first.request),
        ns("first_ns", |t| Some(t.first)),
        each("first_epoch", |t| t.first.epoch),
        each("last_request", |t| t.last.request),
        ns("last_ns", |t| Some(t.last)),
        each("last_epoch", |t| t.last.epoch),
    ];
    columns.extend(maybe(["commit_request", "commit_ns", "commit_epoch"], |t| t.commit));
    let checkpoint = ["checkpoint_request", "checkpoint_ns", "checkpoint_epoch"];
    columns.extend(maybe(checkpoint, |t| t.checkpoint));
    columns.extend([
        each("descriptors", |t| t.descriptors),
        each("copies", |t| t.copies),
        each("data_copies", |t| t.data_copies),
        each("records", |t| t.records),
        each("revoked", |t| t.revoked),
        each("bytes", |t| t.bytes),
        each("bad_checksums", |t| t.bad_checksums),
        each("checkpointed", |t| t.checkpointed),
    ]);
    columns
}

/// Gathers the transactions of a group of rows.
pub(crate) fn gather(file: &Reading, group: usize) -> Result<GatheredTransactions, StoreError> {
    let mut gathered = GatheredTransactions::default();
    read_transactions(file, group)?.iter().for_each(|t| gathered.add(t));
    Ok(gathered)
}

/// The transactions of a group of rows, with the fields that a summary needs.
pub(crate) fn read_transactions(
    file: &Reading,
    group: usize,
) -> Result<Vec<Transaction>, StoreError> {
    let timed = file.table.says("ordo.timed") == Some("true");
    let all = |name| file.group_all_ints(name, group);
    let some = |name| file.group_ints(name, group);
    let times = |name| if timed { some(name) } else { Ok(Vec::new()) };
    let (first, last_epoch) = (all("first_request")?, all("last_epoch")?);
    let (commit, commit_epoch) = (some("commit_request")?, some("commit_epoch")?);
    let end = some("checkpoint_request")?;
    let (first_ns, commit_ns) = (times("first_ns")?, times("commit_ns")?);
    let end_ns = times("checkpoint_ns")?;
    let (copies, data_copies) = (all("copies")?, all("data_copies")?);
    let (records, revoked, bytes) = (all("records")?, all("revoked")?, all("bytes")?);
    let (bad_checksums, checkpointed) = (all("bad_checksums")?, all("checkpointed")?);
    let mut read = Vec::with_capacity(first.len());
    for row in 0..first.len() {
        let nanos = |column: &[Option<i64>]| column.get(row).copied().flatten().unwrap_or(0) as u64;
        let maybe = |column: &[Option<i64>]| column.get(row).copied().flatten().map(|n| n as u64);
        let moment = |request, nanos, epoch| Moment { request, nanos, epoch };
        // Fields that the summary does not need stay at their defaults, and their columns are not
        // read.
        read.push(Transaction {
            first: moment(first[row] as u64, nanos(&first_ns), 0),
            last: moment(0, 0, last_epoch[row] as u64),
            commit: maybe(&commit)
                .zip(maybe(&commit_epoch))
                .map(|(request, epoch)| moment(request, nanos(&commit_ns), epoch)),
            copies: copies[row] as u64,
            data_copies: data_copies[row] as u64,
            records: records[row] as u64,
            revoked: revoked[row] as u64,
            bytes: bytes[row] as u64,
            bad_checksums: bad_checksums[row] as u64,
            checkpointed: checkpointed[row] as u64,
            checkpoint: maybe(&end).map(|request| moment(request, nanos(&end_ns), 0)),
            ..Transaction::default()
        });
    }
    Ok(read)
}

/// The number of the kind with this key.
pub(crate) fn class_code(key: &[u8]) -> u8 {
    let class = std::str::from_utf8(key).ok().and_then(Class::from_key);
    class.map_or(crate::table::NO_CODE, |class| class as u8)
}
