//! The stream of `$LogFile`. A page is written again and again while it fills, at first as a copy
//! near the log's start. A record's log sequence number (LSN) gives its place, so each record is
//! read once, wherever it is seen first.

use ordo_format::Endian;
use ordo_format::ntfs::{self, Action, LogRecord, LogShape, RecordPage, action, unprotected};
use rustc_hash::FxHashMap;

const LE: Endian = Endian::Little;
/// The most transactions that are open at once.
const OPEN_MAX: usize = 4096;
/// The most bytes of a record's data.
const DATA_MAX: usize = 1 << 20;
/// The page size before a restart page has been seen, in bytes.
pub(super) const PAGE: usize = 4096;

/// An event that a log page reports.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogOperation {
    /// A record of a transaction, with its bytes; the transaction is named by its first record's
    /// LSN.
    Bytes { id: u64, len: u64 },
    /// A change of these clusters. The decoder computes the byte on the volume.
    Change { id: u64, action: Action, clusters: Vec<u64> },
    /// The end of a transaction that was not rolled back.
    Commit { id: u64 },
}

/// The meaning of a log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Restart,
    /// Records, with the transaction of the newest one.
    Records(Option<u64>),
    /// A tail copy: the last page, before it is full.
    Copy(Option<u64>),
    /// A page that was never used.
    Empty,
    NotUnderstood,
}

/// A record that continues in the next page.
#[derive(Debug)]
struct SplitRecord {
    head: LogRecord,
    data: Vec<u8>,
    /// The page with the rest, in bytes from the log's start.
    next: u64,
}

#[derive(Debug)]
struct Open {
    first: u64,
    /// Whether the newest record rolls back the first one, so that nothing of the transaction is
    /// left.
    rolled_back: bool,
    committed: bool,
}

#[derive(Debug, Default)]
pub(super) struct NtfsLog {
    pub(super) shape: Option<LogShape>,
    /// The LSN of the newest record that was read.
    last: u64,
    part: Option<SplitRecord>,
    open: FxHashMap<u32, Open>,
}

impl NtfsLog {
    /// Marks records up to this LSN as written before the watch began.
    pub(super) fn begin_after(&mut self, lsn: u64) {
        self.last = self.last.max(lsn);
    }

    pub(super) fn page_size(&self) -> usize {
        self.shape.map_or(PAGE, |shape| shape.page_size)
    }

    /// Takes in a page that is written at byte `at` of the log.
    pub(super) fn page(&mut self, at: u64, raw: &[u8], events: &mut Vec<LogOperation>) -> Page {
        if raw.iter().all(|b| *b == 0xff) {
            return Page::Empty;
        }
        let Some(page) = unprotected(raw) else { return Page::NotUnderstood };
        match &page[..4] {
            b"RSTR" | b"CHKD" => match LogShape::read(&page) {
                Some(shape) => {
                    if self.shape.is_some_and(|old| old.place_bits != shape.place_bits) {
                        // This is another log: its LSNs start again.
                        (self.last, self.part) = (0, None);
                        self.open.clear();
                    }
                    self.shape = Some(shape);
                    Page::Restart
                }
                None => Page::NotUnderstood,
            },
            b"RCRD" => match self.shape {
                Some(shape) if shape.page_size == page.len() => {
                    self.records(at, &page, &shape, events)
                }
                _ => Page::NotUnderstood,
            },
            _ => Page::NotUnderstood,
        }
    }

    fn records(
        &mut self,
        at: u64,
        page: &[u8],
        shape: &LogShape,
        events: &mut Vec<LogOperation>,
    ) -> Page {
        let size = page.len() as u64;
        let head = RecordPage::decode(page, LE);
        let area = (2 + shape.copies) * size;
        let place = head.last.is_multiple_of(size) && (size..shape.size).contains(&head.last);
        let mut home = match at {
            _ if at < area && place && shape.copies == 2 => Some(head.last),
            _ if at < area => None,
            _ => Some(at),
        };
        let (mut from, mut newest) = (shape.records_at, None);
        // A tail copy is not at the page's own place, which the LSN of its first record gives.
        let first = next_record(page, &mut { from }, home.filter(|home| *home != at), shape);
        home = first.map(|(_, home)| home).or(home);
        // A page whose newest record is older than the last one read does not continue it.
        let last = self.last;
        let goes_on = |p: &mut SplitRecord| {
            p.head.lsn > last && home == Some(p.next) && (place || head.last >= p.head.lsn)
        };
        if let Some(part) = self.part.take_if(goes_on) {
            match self.rest(part, page, shape, &mut newest, events) {
                Ok(end) => from = end,
                Err(part) => {
                    self.part = Some(part);
                    from = page.len();
                }
            }
        }
        while let Some((record, its_home)) = next_record(page, &mut from, home, shape) {
            let begin = from;
            let ends = begin + LogRecord::SIZE + record.len as usize;
            from = ends.next_multiple_of(8);
            if record.lsn <= self.last {
                continue;
            }
            let data = &page[begin + LogRecord::SIZE..ends.min(page.len())];
            if ends > page.len() {
                let next = next_page(its_home, shape);
                self.part = Some(SplitRecord { head: record, data: data.to_vec(), next });
            } else {
                self.record(&record, data, &mut newest, events);
            }
        }
        match home {
            Some(home) if home == at => Page::Records(newest),
            _ => Page::Copy(newest),
        }
    }

    /// Continues a record that began in the previous page. Returns where the record ends; if it
    /// continues in the next page, it is kept.
    fn rest(
        &mut self,
        mut part: SplitRecord,
        page: &[u8],
        shape: &LogShape,
        newest: &mut Option<u64>,
        events: &mut Vec<LogOperation>,
    ) -> Result<usize, SplitRecord> {
        let want = part.head.len as usize - part.data.len();
        let capacity = &page[shape.records_at..];
        let take = want.min(capacity.len());
        part.data.extend_from_slice(&capacity[..take]);
        if take < want {
            part.next = next_page(part.next, shape);
            return Err(part);
        }
        self.record(&part.head, &part.data, newest, events);
        Ok((shape.records_at + take).next_multiple_of(8))
    }

    fn record(
        &mut self,
        head: &LogRecord,
        data: &[u8],
        newest: &mut Option<u64>,
        events: &mut Vec<LogOperation>,
    ) {
        self.last = head.lsn;
        let Some((what, clusters)) = Action::read(data).filter(|_| head.kind == 1) else { return };
        if action::is_table(what.redo) && what.redo != action::OPENED {
            return;
        }
        if head.previous == 0 || !self.open.contains_key(&head.transaction) {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            let open = Open { first: head.lsn, rolled_back: false, committed: false };
            self.open.insert(head.transaction, open);
        }
        let Some(open) = self.open.get_mut(&head.transaction) else { return };
        let id = open.first;
        *newest = Some(id);
        if !open.committed {
            events.push(LogOperation::Bytes { id, len: (LogRecord::SIZE + data.len()) as u64 });
        }
        let done = match what.redo {
            action::COMMIT => !std::mem::replace(&mut open.committed, true),
            action::FORGET => !open.committed && !open.rolled_back,
            _ => {
                open.rolled_back = what.undo == action::COMPENSATION && head.undo_next == 0;
                events.push(LogOperation::Change { id, action: what, clusters });
                return;
            }
        };
        if done {
            events.push(LogOperation::Commit { id });
        }
        if what.redo == action::FORGET {
            self.open.remove(&head.transaction);
        }
    }
}

/// The page after this one; after the last one comes the first page of the ring.
fn next_page(page: u64, shape: &LogShape) -> u64 {
    let size = shape.page_size as u64;
    match page + size {
        next if next < shape.size => next,
        _ => (2 + shape.copies) * size,
    }
}

/// The next record that begins in a page at or after a byte, and the page to which it belongs.
/// Bytes that are no record are skipped.
fn next_record(
    page: &[u8],
    from: &mut usize,
    home: Option<u64>,
    shape: &LogShape,
) -> Option<(LogRecord, u64)> {
    while *from + LogRecord::SIZE <= page.len() {
        let lsn = LE.get_u64(page, *from);
        let place = shape.place(lsn);
        let own = place % page.len() as u64 == *from as u64 && lsn != 0;
        let its_home = place - place % page.len() as u64;
        if own && home.is_none_or(|home| home == its_home) {
            let head = LogRecord::decode(&page[*from..], LE);
            let sane = matches!(head.kind, 1 | 2)
                && head.previous < lsn
                && head.undo_next < lsn
                && (head.len as usize) <= DATA_MAX
                && u64::from(head.len) < shape.size
                && its_home < shape.size;
            if sane {
                return Some((head, its_home));
            }
        }
        *from += 8;
    }
    None
}

/// The LSN of the newest record of a page, by its header alone.
pub(super) fn newest(page: &[u8], shape: &LogShape) -> Option<u64> {
    let head = RecordPage::decode(page.get(..RecordPage::SIZE)?, LE);
    let known = head.head.magic == *b"RCRD" && shape.place(head.last_whole) < shape.size;
    known.then_some(head.last_whole)
}

/// The byte of the volume at which the structure begins that an action changes.
pub(super) fn home(action: &Action, clusters: &[u64], cluster_shift: u32) -> Option<u64> {
    let within = u64::from(action.sector) * ntfs::FIXUP_UNIT as u64;
    let cluster = *clusters.get((within >> cluster_shift) as usize)?;
    let start = cluster.checked_mul(1 << cluster_shift)?;
    start.checked_add(within & ((1 << cluster_shift) - 1))
}
