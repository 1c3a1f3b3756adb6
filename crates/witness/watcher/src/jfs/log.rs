//! The stream of the log. A page is written again and again as records are appended to it. A
//! record's descriptor is at its end, so records are read backwards, from the new end to the end of
//! the last reading.

use std::collections::BTreeMap;

use ordo_format::Endian;
use ordo_format::jfs::{LogPage, LogRecord, PAGE};

/// The number of bytes for records in a page.
const PAGE_RECORDS: u64 = (PAGE - 16) as u64;
/// The number of kept pages; a record may end in a later page.
const KEPT: u64 = 256;

#[derive(Debug, Default)]
pub(super) struct JfsLog {
    /// For each page number, the bytes of the page that are records.
    pages: BTreeMap<u64, Box<[u8]>>,
    /// The end of the records that have been read, in bytes of records from page 0 on.
    read: Option<u64>,
}

/// A record with its data.
#[derive(Debug)]
pub(super) struct JfsRecord {
    pub(super) head: LogRecord,
    pub(super) data: Vec<u8>,
}

/// The meaning of a log page.
pub(super) enum Page {
    /// New records.
    Records(Vec<JfsRecord>),
    /// Not a page of the log.
    NotUnderstood,
}

impl JfsLog {
    /// Starts again: the next page does not continue the ones before.
    pub(super) fn reset(&mut self) {
        self.pages.clear();
        self.read = None;
    }

    /// Takes in a written page.
    pub(super) fn page(&mut self, bytes: &[u8]) -> Page {
        let head = LogPage::decode(bytes, Endian::Little);
        let tail = LogPage::decode(&bytes[PAGE - 8..], Endian::Little);
        let end = u64::from(head.end);
        // A torn page, or one with only zeros left, teaches nothing.
        if (head.page, head.end) != (tail.page, tail.end) || !(8..=8 + PAGE_RECORDS).contains(&end)
        {
            return Page::NotUnderstood;
        }
        let number = u64::from(head.page);
        let records = &bytes[8..PAGE - 8];
        match self.pages.get_mut(&number) {
            Some(page) => page.copy_from_slice(records),
            None => drop(self.pages.insert(number, records.into())),
        }
        while self.pages.len() as u64 > KEPT {
            self.pages.pop_first();
        }
        let to = number * PAGE_RECORDS + end - 8;
        // The first page begins in the middle of unknown records: records are read as far back as
        // they are whole.
        let from = self.read.filter(|from| *from <= to && to - from <= KEPT * PAGE_RECORDS);
        let records = self.records(from.unwrap_or(number * PAGE_RECORDS), to);
        self.read = Some(to);
        Page::Records(records)
    }

    /// The bytes of records from `from` to `to`, if all their pages were seen.
    fn bytes(&self, from: u64, to: u64, mut out: Vec<u8>) -> Option<Vec<u8>> {
        out.clear();
        let mut at = from;
        while at < to {
            let page = self.pages.get(&(at / PAGE_RECORDS))?;
            let end = to.min((at / PAGE_RECORDS + 1) * PAGE_RECORDS);
            out.extend_from_slice(
                &page[(at % PAGE_RECORDS) as usize..(at % PAGE_RECORDS + end - at) as usize],
            );
            at = end;
        }
        Some(out)
    }

    fn records(&self, from: u64, to: u64) -> Vec<JfsRecord> {
        let mut all = Vec::new();
        let mut end = to;
        let mut raw = Vec::new();
        while end >= from + LogRecord::SIZE as u64 {
            let start = end - LogRecord::SIZE as u64;
            let Some(whole) = self.bytes(start, end, raw) else { break };
            raw = whole;
            let head = LogRecord::decode(&raw, Endian::Little);
            let known = 0x8000 | 0x4000 | 0x2000 | 0x800 | 0x80 | 0x40 | 8 | 1;
            if !head.kind.is_power_of_two() || head.kind & known == 0 {
                break;
            }
            let Some(first) = start.checked_sub(head.len.into()).filter(|first| *first >= from)
            else {
                break;
            };
            let Some(data) = self.bytes(first, start, Vec::new()) else { break };
            all.push(JfsRecord { head, data });
            end = first;
        }
        all.reverse();
        all
    }
}

/// Calls `each` with the changes in a record's data: the offset of each in its page, and its bytes.
/// The data is a sequence of bytes followed by their offset and length, both in units of the
/// record.
pub(super) fn changes(record: &JfsRecord, mut each: impl FnMut(usize, &[u8])) {
    let mut data = &record.data[..];
    let unit = u32::from(record.head.unit_log.min(12));
    while let Some((rest, place)) = data.split_last_chunk::<4>() {
        let offset = usize::from(u16::from_le_bytes([place[0], place[1]])) << unit;
        let len = usize::from(u16::from_le_bytes([place[2], place[3]])) << unit;
        let Some(start) = rest.len().checked_sub(len).filter(|_| len > 0) else { return };
        each(offset, &rest[start..]);
        data = &rest[..start];
    }
}
