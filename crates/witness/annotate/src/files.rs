//! The traffic of each file, from the rows of its blocks and its shares of others.
//!
//! Every byte of every read and write belongs to exactly one line: a file's line, or the line of
//! bytes that belong to no file.

use std::path::Path;
use std::sync::Arc;

use ordo_trace::{RequestOp, Trace};
use ordo_watcher::Class;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::owners::{Numbers, add_numbers};
use crate::reading::{Reading, StoreError};
use crate::rows::{BlockRow, FileShare};
use crate::table::Column;

/// The file with one row for each file.
pub(crate) const FILES: &str = "files.parquet";

/// The number of parts of a file's traffic.
pub(crate) const PARTS: usize = 4;

/// Bytes, and the requests that have any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// The number of bytes.
    pub bytes: u64,
    /// The number of requests.
    pub requests: u64,
}

/// The columns of numbers: bytes and requests of each part, in the order of [`FileTraffic`]'s
/// fields.
pub(crate) const NUMBERS: [&str; 2 * PARTS] = [
    "data_bytes",
    "data_requests",
    "metadata_bytes",
    "metadata_requests",
    "journal_bytes",
    "journal_requests",
    "read_bytes",
    "read_requests",
];

/// The traffic of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileTraffic {
    /// The inode; `None` on the line of bytes that belong to no file, or to an unknown one.
    pub inode: Option<u64>,
    /// The path, if it is known.
    pub path: Option<Arc<str>>,
    /// Contents written at their place.
    pub data: Amount,
    /// Metadata written at their place: inodes, directories, block maps, attributes.
    pub metadata: Amount,
    /// Copies and records in a journal.
    pub journal: Amount,
    /// Reads.
    pub read: Amount,
}

impl FileTraffic {
    fn parts(&self) -> [Amount; PARTS] {
        [self.data, self.metadata, self.journal, self.read]
    }

    /// The bytes written and read together.
    pub fn bytes(&self) -> u64 {
        self.parts().iter().fold(0, |sum, part| sum.saturating_add(part.bytes))
    }
}

/// The parts of a file's traffic, in the order of [`FileTraffic`]'s fields.
fn part_of(op: RequestOp, kind: Class) -> usize {
    match kind {
        _ if op == RequestOp::Read => 3,
        _ if kind.is_journal_traffic() => 2,
        Class::FileData => 0,
        _ => 1,
    }
}

type Key<'a> = (Option<u64>, Option<&'a str>);

#[derive(Default)]
struct Sums<'a> {
    /// For each file, the sums and the request that was counted last, for each part.
    all: FxHashMap<Key<'a>, [(Amount, Option<u64>); PARTS]>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, key: Key<'a>, part: usize, request: u64, bytes: u64) {
        let (sum, last) = &mut self.all.entry(key).or_default()[part];
        sum.bytes += bytes;
        sum.requests += u64::from(last.replace(request) != Some(request));
    }
}

/// A block of a request, for [`split`].
pub(crate) struct Piece<K> {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) kind: Class,
    /// The file that owns it, if it has one owner that is known.
    pub(crate) owner: Option<K>,
}

/// Divides the bytes of one request among files: calls `add` with a file, or none, the part and the
/// bytes. Shares are offsets, bytes and files, in order.
pub(crate) fn split<K: Copy>(
    op: RequestOp,
    pieces: &[Piece<K>],
    shares: &[(u64, u64, K)],
    mut add: impl FnMut(Option<K>, usize, u64),
) {
    let mut nobodys = [0u64; PARTS];
    for piece in pieces {
        let part = part_of(op, piece.kind);
        match piece.owner {
            Some(_) => add(piece.owner, part, piece.len),
            None => nobodys[part] += piece.len,
        }
    }
    for (offset, bytes, owner) in shares {
        let at = pieces.partition_point(|piece| piece.offset + piece.len <= *offset);
        let Some(piece) = pieces.get(at) else { continue };
        let part = part_of(op, piece.kind);
        let bytes = (*bytes).min(nobodys[part]);
        nobodys[part] -= bytes;
        add(Some(*owner), part, bytes);
    }
    for (part, bytes) in nobodys.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
        add(None, part, bytes);
    }
}

/// The traffic of each file, the greatest first. Rows and shares are in the order of requests.
pub fn of(trace: &Trace, rows: &[BlockRow], shares: &[FileShare]) -> Vec<FileTraffic> {
    let mut sums = Sums::default();
    let mut shares = shares.iter().peekable();
    let (mut pieces, mut parts) = (Vec::new(), Vec::new());
    for rows in rows.chunk_by(|a, b| a.request == b.request) {
        let request = rows[0].request;
        let Some(op) = usize::try_from(request).ok().and_then(|n| trace.requests().get(n)) else {
            continue;
        };
        pieces.clear();
        parts.clear();
        pieces.extend(rows.iter().map(|row| Piece {
            offset: row.offset,
            len: row.len,
            kind: row.final_kind,
            owner: row.ino.map(|_| (row.ino, row.path.as_deref())),
        }));
        while let Some(share) = shares.next_if(|share| share.request <= request) {
            if share.request == request {
                parts.push((share.offset, share.bytes, (Some(share.ino), share.path.as_deref())));
            }
        }
        split(op.op, &pieces, &parts, |key, part, bytes| {
            sums.add(key.unwrap_or((None, None)), part, request, bytes);
        });
    }
    let file = |((inode, path), parts): (Key<'_>, [(Amount, Option<u64>); PARTS])| {
        let [data, metadata, journal, read] = parts.map(|(part, _)| part);
        FileTraffic { inode, path: path.map(Arc::from), data, metadata, journal, read }
    };
    let mut all: Vec<FileTraffic> = sums.all.into_iter().map(file).collect();
    greatest_first(&mut all);
    all
}

/// Sorts lines by everything that distinguishes them, so that the order of a map does not matter.
fn greatest_first(all: &mut [FileTraffic]) {
    all.sort_by(|a, b| {
        let order = |file: &FileTraffic| (std::cmp::Reverse(file.bytes()), file.inode);
        order(a).cmp(&order(b)).then_with(|| a.path.cmp(&b.path))
    });
}

/// The traffic of files from the changes that the parts of a recording tell, the greatest first.
pub(crate) fn joined(
    files: impl Iterator<Item = (Option<u64>, Option<Arc<str>>, Numbers)>,
) -> Vec<FileTraffic> {
    let mut sums: FxHashMap<(Option<u64>, Option<Arc<str>>), Numbers> = FxHashMap::default();
    for (inode, path, numbers) in files {
        add_numbers(sums.entry((inode, path)).or_default(), numbers);
    }
    let amount = |(bytes, requests): (i64, i64)| Amount {
        bytes: bytes.max(0).cast_unsigned(),
        requests: requests.max(0).cast_unsigned(),
    };
    let all = sums.into_iter().filter(|(_, numbers)| *numbers != Numbers::default());
    let mut all: Vec<FileTraffic> = all
        .map(|((inode, path), numbers)| {
            let [data, metadata, journal, read] = numbers.map(amount);
            FileTraffic { inode, path, data, metadata, journal, read }
        })
        .collect();
    greatest_first(&mut all);
    all
}

/// The columns of [`FILES`].
pub(crate) fn columns(all: &[FileTraffic]) -> Vec<Column> {
    let mut columns = vec![
        Column::maybe_int("inode", all.iter().map(|f| f.inode)),
        Column::text("path", all.iter().map(|f| f.path.as_deref().map(str::as_bytes))),
    ];
    for (i, name) in NUMBERS.into_iter().enumerate() {
        let number = move |f: &FileTraffic| match (f.parts()[i / 2], i % 2) {
            (part, 0) => part.bytes,
            (part, _) => part.requests,
        };
        columns.push(Column::int(name, all.iter().map(number)));
    }
    columns
}

/// Reads the table of a trace's files; empty if the trace has none.
///
/// # Errors
/// The file is damaged.
pub fn read(dir: &Path) -> Result<Vec<FileTraffic>, StoreError> {
    if !dir.join(FILES).exists() {
        return Ok(Vec::new());
    }
    let file = Reading::open(dir, FILES)?;
    let (inodes, paths) = (file.maybe_ints("inode")?, file.texts("path")?);
    let columns: Vec<Vec<u64>> =
        NUMBERS.iter().map(|name| file.ints(name)).collect::<Result<_, _>>()?;
    let mut all = Vec::with_capacity(inodes.len());
    for (row, (inode, path)) in inodes.into_iter().zip(paths).enumerate() {
        let part = |n: usize| {
            let (bytes, requests) = (columns[2 * n].get(row)?, columns[2 * n + 1].get(row)?);
            Some(Amount { bytes: *bytes, requests: *requests })
        };
        let (Some(data), Some(metadata), Some(journal), Some(read)) =
            (part(0), part(1), part(2), part(3))
        else {
            return Err(file.row(row, "columns are not of one length"));
        };
        let path = path.map(|path| String::from_utf8_lossy(&path).into());
        all.push(FileTraffic { inode, path, data, metadata, journal, read });
    }
    Ok(all)
}
