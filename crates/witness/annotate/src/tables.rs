//! A stored trace whose blocks are named, read from its tables group by group: requests and their
//! rows pass by in order, and contents stay in their file until they are asked for. So a trace may
//! be much larger than memory.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use ordo_runtime::Time;
use ordo_trace::{Flags, RequestContents, RequestEnd, RequestOp, TraceRequest};
use ordo_watcher::Class;
use parquet::data_type::ByteArray;

use crate::findings::{Closing, class_code};
use crate::image::{PIECE, Pieces};
use crate::reading::{BLOCKS, CONTENTS, DEVICE_MAX, REQUESTS, Reading, START, StoreError, op_of};
use crate::rows::BlockRow;

/// The number of groups of contents that are kept in memory, of about 8 MB each.
const GROUPS_KEPT: usize = 4;
/// The place of a request whose contents were not kept.
const NOWHERE: u32 = u32::MAX;

/// The columns of requests without which there is no trace.
const REQUEST_COLUMNS: [&str; 13] = [
    "op",
    "offset",
    "length",
    "fua",
    "preflush",
    "sync",
    "meta",
    "issued_ns",
    "epoch",
    "completed_ns",
    "completion_order",
    "completion_epoch",
    "text",
];

/// A request without its contents, with the text of a mark.
pub(crate) type StoredRequest = (TraceRequest, Option<Vec<u8>>);

/// The header of a stored trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableHead {
    /// The unit of offsets and lengths, in bytes.
    pub sector: u32,
    /// Whether requests have times.
    pub timed: bool,
    /// The name of the disk model that timed the requests.
    pub disk: Option<String>,
    /// The file system's name.
    pub system: String,
    /// The device's size in bytes.
    pub bytes: u64,
}

/// The header, from the file of requests.
pub(crate) fn head(file: &Reading) -> Result<TableHead, StoreError> {
    file.version()?;
    file.has(&REQUEST_COLUMNS)?;
    let sector = file.number("ordo.sector")?;
    let good = u32::try_from(sector).ok().filter(|s| s.is_power_of_two() && *s >= 512);
    let sector = good.ok_or_else(|| file.says("ordo.sector", &sector.to_string()))?;
    let bytes = file.number("ordo.device_bytes")?;
    if bytes > DEVICE_MAX {
        return Err(file.says("ordo.device_bytes", &bytes.to_string()));
    }
    Ok(TableHead {
        sector,
        timed: file.table.says("ordo.timed") == Some("true"),
        disk: file.table.says("ordo.disk").filter(|name| *name != "none").map(str::to_owned),
        system: file.table.says("ordo.system").unwrap_or("none").to_owned(),
        bytes,
    })
}

/// A stored trace. [`each`](Self::each) shows its requests; afterwards it has their contents too.
pub struct StoredTables {
    head: TableHead,
    requests: Reading,
    blocks: Reading,
    contents: StoredContents,
    start: Pieces,
}

impl StoredTables {
    /// Opens a trace; `None` if its blocks have to be named again.
    ///
    /// # Errors
    /// A file is missing, damaged, or of another trace.
    pub fn open(dir: &Path) -> Result<Option<StoredTables>, StoreError> {
        StoredTables::open_as(dir, true)
    }

    /// As [`open`](Self::open); a later part of a recording needs no device before the trace.
    pub(crate) fn open_as(
        dir: &Path,
        with_start: bool,
    ) -> Result<Option<StoredTables>, StoreError> {
        let Some(closing) = Closing::read(dir)? else { return Ok(None) };
        let (requests, blocks) = (closing.open(dir, REQUESTS)?, closing.open(dir, BLOCKS)?);
        let head = head(&requests)?;
        let contents = StoredContents::over(closing.open(dir, CONTENTS)?);
        let start = Pieces { bytes: head.bytes, ..Pieces::default() };
        let mut tables = StoredTables { head, requests, blocks, contents, start };
        if with_start {
            tables.read_start(&closing.open(dir, START)?)?;
        }
        Ok(Some(tables))
    }

    /// The header.
    pub fn head(&self) -> &TableHead {
        &self.head
    }

    /// The file of requests.
    pub(crate) fn requests(&self) -> &Reading {
        &self.requests
    }

    /// Forgets the contents that are in memory.
    pub(crate) fn forget(&self) {
        self.contents.kept.borrow_mut().clear();
    }

    /// The known pieces of the device before the trace.
    pub fn start(&self) -> &Pieces {
        &self.start
    }

    /// The number of writes whose contents were not kept, after [`each`](Self::each).
    pub fn blind(&self) -> usize {
        self.contents.blind
    }

    /// The first failure to read contents. Such contents count as not kept.
    pub fn damage(&self) -> Option<StoreError> {
        self.contents.damage.borrow_mut().take()
    }

    fn read_start(&mut self, file: &Reading) -> Result<(), StoreError> {
        let bytes = self.head.bytes;
        let mut known = BTreeMap::new();
        let all = file.ints("offset")?.into_iter().zip(file.ints("content")?);
        for (row, (at, number)) in all.enumerate() {
            let piece = self.contents.get(number)?;
            let piece = piece.ok_or_else(|| file.row(row, "contents that are missing"))?;
            if at % PIECE != 0 || at >= bytes || piece.len() as u64 != PIECE.min(bytes - at) {
                return Err(file.row(row, "a piece that does not fit the device"));
            }
            known.insert(at, piece.data().into());
        }
        self.start.known = known;
        Ok(())
    }

    /// Shows each request with its number, a mark's text, and the rows of its blocks. The rows lack
    /// paths, names and reasons.
    ///
    /// # Errors
    /// A file is damaged, or a row makes no sense.
    pub fn each(
        &mut self,
        mut show: impl FnMut(u64, &TraceRequest, Option<&[u8]>, &[BlockRow]),
    ) -> Result<(), StoreError> {
        let mut number = 0;
        let mut rows = Passing::default();
        self.contents.places.clear();
        self.contents.numbers.clear();
        self.contents.blind = 0;
        for group in 0..self.requests.table.groups() {
            for (request, text) in request_group(&self.requests, group)? {
                let own = rows.of(number, &self.blocks, &mut self.contents.numbers)?;
                self.contents.note(&request, own);
                show(number, &request, text.as_deref(), own.rows);
                number += 1;
            }
        }
        rows.end(&self.blocks)
    }
}

impl RequestContents for StoredTables {
    fn contents(&self, number: u64) -> Option<Cow<'_, [u8]>> {
        self.contents.of_request(number).unwrap_or_else(|error| {
            self.contents.damage.borrow_mut().get_or_insert(error);
            None
        })
    }
}

/// The rows of blocks, of which one group is in memory.
#[derive(Default)]
struct Passing {
    next_group: usize,
    rows: Vec<BlockRow>,
    /// The first row that was not shown yet, and the number of rows in the groups before.
    at: usize,
    before: usize,
}

/// The rows of a request, and the number of the first one in the file.
#[derive(Clone, Copy)]
struct OwnRows<'a> {
    rows: &'a [BlockRow],
    first: usize,
}

impl Passing {
    /// The rows of a request. Callers ask for requests in order.
    fn of(
        &mut self,
        request: u64,
        file: &Reading,
        numbers: &mut Vec<u32>,
    ) -> Result<OwnRows<'_>, StoreError> {
        while self.at == self.rows.len() && self.next_group < file.table.groups() {
            self.before += self.rows.len();
            (self.rows, self.at) = (block_group(file, self.next_group, numbers)?, 0);
            self.next_group += 1;
        }
        let rest = &self.rows[self.at..];
        if rest.first().is_some_and(|row| row.request < request) {
            let row = self.before + self.at;
            return Err(file.row(row, "blocks are not in order of requests"));
        }
        let own = rest.iter().take_while(|row| row.request == request).count();
        let first = self.at;
        self.at += own;
        Ok(OwnRows { rows: &self.rows[first..self.at], first: self.before + first })
    }

    fn end(&self, file: &Reading) -> Result<(), StoreError> {
        match self.at == self.rows.len() && self.next_group == file.table.groups() {
            true => Ok(()),
            false => Err(file.row(self.before + self.at, "it belongs to no request")),
        }
    }
}

/// Contents in their file.
struct StoredContents {
    file: Reading,
    /// The number of each group's first row.
    first: Vec<u64>,
    /// The groups in memory, the one that was asked for last at the end.
    kept: RefCell<VecDeque<(usize, Vec<Option<ByteArray>>)>>,
    /// For each row of blocks the number of its contents.
    numbers: Vec<u32>,
    /// For each request its first row of blocks, and its length.
    places: Vec<(u32, u32)>,
    /// The number of writes whose contents were not kept.
    blind: usize,
    damage: RefCell<Option<StoreError>>,
}

impl StoredContents {
    fn over(file: Reading) -> StoredContents {
        let first = (0..file.table.groups()).map(|group| file.table.rows_before(group)).collect();
        StoredContents {
            file,
            first,
            kept: RefCell::default(),
            numbers: Vec::new(),
            places: Vec::new(),
            blind: 0,
            damage: RefCell::new(None),
        }
    }

    fn note(&mut self, request: &TraceRequest, own: OwnRows<'_>) {
        let mut next = Some(request.offset);
        for row in own.rows {
            next = next.filter(|at| *at == row.offset).and_then(|at| at.checked_add(row.len));
        }
        let is_whole = !own.rows.is_empty() && next == Some(request.offset + request.len);
        let place = (u32::try_from(own.first), u32::try_from(request.len));
        let numbers = self.numbers.get(own.first..own.first + own.rows.len()).unwrap_or_default();
        let is_whole = is_whole && numbers.iter().all(|number| *number != NOWHERE);
        self.blind += usize::from(request.op == RequestOp::Write && !is_whole);
        let place = match place {
            (Ok(first), Ok(len)) if is_whole => (first, len),
            _ => (NOWHERE, 0),
        };
        self.places.push(place);
    }

    fn get(&self, number: u64) -> Result<Option<ByteArray>, StoreError> {
        let Some(group) = self.first.partition_point(|first| *first <= number).checked_sub(1)
        else {
            return Ok(None);
        };
        let mut kept = self.kept.borrow_mut();
        match kept.iter().position(|(own, _)| *own == group) {
            Some(at) => {
                let last = kept.len() - 1;
                kept.swap(at, last);
            }
            None => {
                if kept.len() == GROUPS_KEPT {
                    kept.pop_front();
                }
                kept.push_back((group, self.file.group_texts("bytes", group)?));
            }
        }
        let row = (number - self.first[group]) as usize;
        Ok(kept.back().and_then(|(_, all)| all.get(row)?.clone()))
    }

    fn of_request(&self, number: u64) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        let place = usize::try_from(number).ok().and_then(|n| self.places.get(n)).copied();
        let Some((first, len)) = place.filter(|(first, _)| *first != NOWHERE) else {
            return Ok(None);
        };
        let (mut bytes, len) = (Vec::new(), len as usize);
        let mut row = first as usize;
        while bytes.len() < len {
            let Some(number) = self.numbers.get(row).filter(|n| **n != NOWHERE) else {
                return Ok(None);
            };
            let missing = || self.file.row(*number as usize, "contents that are missing");
            let piece = self.get(u64::from(*number))?.ok_or_else(missing)?;
            if piece.is_empty() || piece.len() > len - bytes.len() {
                return Err(self.file.row(*number as usize, "contents of another length"));
            }
            bytes.extend_from_slice(piece.data());
            row += 1;
        }
        Ok(Some(Cow::Owned(bytes)))
    }
}

/// The requests of a group without their contents, with the text of each mark.
pub(crate) fn request_group(
    file: &Reading,
    group: usize,
) -> Result<Vec<StoredRequest>, StoreError> {
    let before = file.table.rows_before(group) as usize;
    let ops = file.group_texts("op", group)?;
    let (offsets, lens) =
        (file.group_numbers("offset", group)?, file.group_numbers("length", group)?);
    let flags = [
        (Flags::FUA, file.group_bools("fua", group)?),
        (Flags::PREFLUSH, file.group_bools("preflush", group)?),
        (Flags::SYNC, file.group_bools("sync", group)?),
        (Flags::META, file.group_bools("meta", group)?),
        // Older traces lack this column, and dropped writes with it.
        (Flags::DROPPED, file.group_bools("dropped", group).unwrap_or_default()),
    ];
    let issued = file.group_maybe_numbers("issued_ns", group)?;
    let epochs = file.group_numbers("epoch", group)?;
    let ends = (
        file.group_maybe_numbers("completed_ns", group)?,
        file.group_maybe_numbers("completion_order", group)?,
        file.group_maybe_numbers("completion_epoch", group)?,
        file.group_bools("ok", group)?,
    );
    let texts = file.group_texts("text", group)?;
    let mut rows = Vec::with_capacity(ops.len());
    for (n, op) in ops.iter().enumerate() {
        let row = before + n;
        let short = || file.row(row, "columns are not of one length");
        let op = op.as_ref().and_then(|op| op_of(op.data()));
        let op = op.ok_or_else(|| file.row(row, "an unknown operation"))?;
        let (Some(offset), Some(len), Some(epoch), Some(issued), Some(text)) =
            (offsets.get(n), lens.get(n), epochs.get(n), issued.get(n), texts.get(n))
        else {
            return Err(short());
        };
        if offset.checked_add(*len).is_none_or(|end| end > DEVICE_MAX) {
            return Err(file.row(row, "an impossible address"));
        }
        let (Some(at), Some(order), Some(end_epoch), Some(ok)) =
            (ends.0.get(n), ends.1.get(n), ends.2.get(n), ends.3.get(n))
        else {
            return Err(short());
        };
        let time = |ns: &Option<u64>| Time::from_nanos(ns.unwrap_or(0));
        let end = ok.map(|ok| RequestEnd {
            order: order.unwrap_or(row as u64),
            at: time(at),
            epoch: end_epoch.unwrap_or(*epoch),
            ok,
        });
        let mut set = Flags::empty();
        for (flag, values) in &flags {
            set.set(*flag, values.get(n).copied().flatten() == Some(true));
        }
        let (offset, len, epoch, issued) = (*offset, *len, *epoch, time(issued));
        let flags = set;
        let request = TraceRequest { op, flags, offset, len, issued, epoch, end, data: None };
        let text = text.as_ref().filter(|_| op == RequestOp::Mark).map(|t| t.data().to_vec());
        rows.push((request, text));
    }
    Ok(rows)
}

/// The rows of a group, without paths, names and reasons; the numbers of their contents are
/// appended to `numbers`.
fn block_group(
    file: &Reading,
    group: usize,
    numbers: &mut Vec<u32>,
) -> Result<Vec<BlockRow>, StoreError> {
    let before = file.table.rows_before(group) as usize;
    let requests = file.group_numbers("request", group)?;
    let (offsets, lens) =
        (file.group_numbers("offset", group)?, file.group_numbers("length", group)?);
    let (kinds, finals) = (classes(file, "kind", group)?, classes(file, "final_kind", group)?);
    let maybe = |column| file.group_maybe_numbers(column, group);
    let (inodes, file_blocks) = (maybe("inode")?, maybe("file_block")?);
    let (transactions, completes) = (maybe("transaction")?, maybe("completes")?);
    let (homes, home_kinds) = (maybe("home_offset")?, file.group_texts("home_kind", group)?);
    let contents = maybe("content")?;
    let mut rows = Vec::with_capacity(requests.len());
    for (n, request) in requests.into_iter().enumerate() {
        let row = before + n;
        let (Some(offset), Some(len), Some(kind)) = (offsets.get(n), lens.get(n), kinds.get(n))
        else {
            return Err(file.row(row, "columns are not of one length"));
        };
        if offset.checked_add(*len).is_none_or(|end| end > DEVICE_MAX) {
            return Err(file.row(row, "an impossible address"));
        }
        let mut one = BlockRow::new(request, (*offset, *len), *kind);
        let of = |column: &[Option<u64>]| column.get(n).copied().flatten();
        (one.ino, one.file_block) = (of(&inodes), of(&file_blocks));
        (one.transaction, one.completes) = (of(&transactions), of(&completes));
        one.final_kind = finals.get(n).copied().unwrap_or(*kind);
        if let Some(home) = of(&homes) {
            let key =
                home_kinds.get(n).and_then(|key| std::str::from_utf8(key.as_ref()?.data()).ok());
            let class = key.and_then(Class::from_key);
            let class = class.ok_or_else(|| file.row(row, "an unknown kind"))?;
            if home.checked_add(*len).is_none_or(|end| end > DEVICE_MAX) {
                return Err(file.row(row, "an impossible fixed location"));
            }
            one.home = Some((home, class));
        }
        let number = of(&contents).map_or(Ok(NOWHERE), u32::try_from);
        numbers.push(number.map_err(|_| file.row(row, "an impossible number of contents"))?);
        rows.push(one);
    }
    Ok(rows)
}

/// The kinds of a group.
fn classes(file: &Reading, column: &'static str, group: usize) -> Result<Vec<Class>, StoreError> {
    let codes = file.group(column, group, |table, column, group, codes| {
        table.group_codes(column, group, class_code, codes)
    })?;
    let before = file.table.rows_before(group) as usize;
    let class = |(row, code): (usize, &u8)| {
        let class = Class::ALL.get(usize::from(*code)).copied();
        class.ok_or_else(|| file.row(before + row, "an unknown kind"))
    };
    codes.iter().enumerate().map(class).collect()
}
