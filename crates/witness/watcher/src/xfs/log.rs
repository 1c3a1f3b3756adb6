//! The stream of the log: log records, operations, log items.

use ordo_format::Endian;
use ordo_format::xfs::log::{
    BLOCK, BufferItem, InodeItem, MAGIC, RecordHead, flags, item, item_head, operations,
};
use rustc_hash::FxHashMap;

use super::buffers::LoggedBuffer;
use crate::decoder::DiskImage;

/// The most transactions that are open at once. `REGION_MAX` bounds the bytes of a continued
/// region.
const OPEN_MAX: usize = 1024;
const REGION_MAX: usize = 1 << 20;

/// An event that a log record reports.
#[derive(Debug)]
pub(super) enum LogOperation {
    /// An operation of a transaction, with its bytes.
    Bytes {
        id: u32,
        len: u64,
    },
    Commit {
        id: u32,
    },
    /// A changed buffer.
    Buffer {
        id: u32,
        buffer: Box<LoggedBuffer>,
    },
    /// A changed inode.
    Inode {
        id: u32,
        item: Box<LoggedInode>,
    },
    Unmount,
    /// A log item of an unknown kind.
    NotUnderstood,
}

/// An inode as the log holds it.
#[derive(Debug)]
pub(super) struct LoggedInode {
    pub(super) item: InodeItem,
    /// The inode core, little-endian.
    pub(super) core: Vec<u8>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) attributes: Option<Vec<u8>>,
}

/// The most blocks in a log record, its headers included.
const RECORD_MAX: u64 = (256 << 10) / BLOCK as u64 + 8;

/// The most log records under way at once: the kernel has eight in-core log buffers
/// (`XLOG_MAX_ICLOGS`).
const EARLY_MAX: usize = 8;

/// A transaction that is being read.
#[derive(Debug, Default)]
struct Open {
    /// A region that continues in the next log record.
    part: Vec<u8>,
    /// The item whose regions are being read.
    regions: Vec<Vec<u8>>,
    wanted: usize,
}

/// A log record that is not complete yet.
#[derive(Debug)]
struct Pending {
    head: RecordHead,
    bytes: Vec<u8>,
    /// The block of the log that continues the record.
    next: u64,
}

/// The log as it is written. Log records are written concurrently, so they may arrive out of order.
/// Each one names its predecessor; one that arrives early is read when its predecessor has been.
#[derive(Debug, Default)]
pub(super) struct XfsLog {
    pending: Vec<Pending>,
    /// The log sequence number (LSN) of the last record that was read.
    last: Option<u64>,
    /// Log records that wait for a predecessor.
    early: Vec<(RecordHead, Vec<u8>)>,
    /// Blocks at the log's start that were written before the beginning of their record at the
    /// log's end.
    rest: Vec<u8>,
    /// A buffer for unpacked records, reused from record to record.
    unpacked: Vec<u8>,
    /// A buffer for partial records, reused.
    spare: Vec<u8>,
    open: FxHashMap<u32, Open>,
}

/// The meaning of a range of the log.
pub(super) enum XfsPiece {
    /// A record, or part of one; the transaction of its last operation.
    Record(Option<u32>),
    /// A log record without operations.
    Empty,
    Unmount,
    Zeros,
    NotUnderstood,
}

/// The LSN of the newest record in a log of at most `blocks` blocks that begins at byte `start` of
/// the device: the end of what was written. Blocks up to it have one cycle number, blocks behind it
/// another.
fn newest(image: &dyn DiskImage, start: u64, blocks: u64) -> Option<u64> {
    let read = |at: u64| {
        let mut block = [0; BLOCK];
        image.read_at(start + at * BLOCK as u64, &mut block).ok().map(|()| block)
    };
    let cycle = |at: u64| {
        let block = read(at)?;
        let field = if Endian::Big.get_u32(&block, 0) == MAGIC { 4 } else { 0 };
        Some(Endian::Big.get_u32(&block, field))
    };
    let first = cycle(0)?;
    let (mut same, mut other) = (0, blocks);
    while same + 1 < other {
        let middle = same + (other - same) / 2;
        match cycle(middle)? == first {
            true => same = middle,
            false => other = middle,
        }
    }
    let back = (0..other.min(RECORD_MAX)).map(|n| other - 1 - n);
    let around = (other..blocks).rev().take(RECORD_MAX as usize);
    back.chain(around).find_map(|at| RecordHead::read(&read(at)?)).map(|head| head.lsn)
}

impl LoggedInode {
    /// The bytes of the inode's regions in the log.
    pub(super) fn bytes(&self) -> u64 {
        let fork = |fork: &Option<Vec<u8>>| fork.as_ref().map_or(0, Vec::len);
        (InodeItem::SIZE + self.core.len() + fork(&self.data) + fork(&self.attributes)) as u64
    }
}

impl XfsLog {
    /// A log that continues the one on the device.
    pub(super) fn over(image: &dyn DiskImage, start: u64, blocks: u64) -> XfsLog {
        XfsLog { last: newest(image, start, blocks), ..XfsLog::default() }
    }

    /// Takes in a range of the log that is written from block `at` on. Returns its meaning and
    /// length. After block `blocks` the log continues at its start; if its length is not known, a
    /// record that continues anywhere may continue at block 0.
    pub(super) fn piece(
        &mut self,
        at: u64,
        blocks: Option<u64>,
        data: &[u8],
        events: &mut Vec<LogOperation>,
    ) -> (XfsPiece, usize) {
        let goes_on = |p: &Pending| p.next == at || (blocks.is_none() && at == 0);
        if let Some(i) = self.pending.iter().position(goes_on) {
            let mut pending = self.pending.swap_remove(i);
            let want = pending.head.blocks() * BLOCK - pending.bytes.len();
            let take = want.min(data.len());
            pending.bytes.extend_from_slice(&data[..take]);
            if take == want {
                let piece = self.record(&pending.head, &pending.bytes, events);
                pending.bytes.clear();
                self.spare = pending.bytes;
                return (piece, take);
            }
            pending.next = (at + (take / BLOCK) as u64) % blocks.unwrap_or(u64::MAX);
            self.pending.push(pending);
            return (XfsPiece::Record(None), take);
        }
        // The kernel clears the log ahead of its head with empty record headers, one a block.
        if let run @ 1.. = RecordHead::empties(data) {
            return (XfsPiece::Empty, run * BLOCK);
        }
        let Some(head) = RecordHead::read(data) else {
            if at == 0 && self.goes_around(data) {
                self.rest = data[..Self::cycles(data) * BLOCK].to_vec();
                return (XfsPiece::Record(None), self.rest.len());
            }
            let zeros = data[..BLOCK].iter().all(|b| *b == 0);
            return (if zeros { XfsPiece::Zeros } else { XfsPiece::NotUnderstood }, BLOCK);
        };
        if head.len == 0 || head.operations == 0 {
            return (XfsPiece::Empty, (head.blocks() * BLOCK).min(data.len()));
        }
        let want = head.blocks() * BLOCK;
        if want <= data.len() {
            return (self.record(&head, &data[..want], events), want);
        }
        let next = (at + (data.len() / BLOCK) as u64) % blocks.unwrap_or(u64::MAX);
        if (next == 0 || blocks.is_none()) && self.rest.len() == want - data.len() {
            let record = [data, &std::mem::take(&mut self.rest)].concat();
            return (self.record(&head, &record, events), data.len());
        }
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.extend_from_slice(data);
        if self.pending.len() >= EARLY_MAX {
            self.pending.remove(0);
        }
        self.pending.push(Pending { head, bytes, next });
        (XfsPiece::Record(None), data.len())
    }

    /// The number of leading blocks with the same cycle number.
    fn cycles(data: &[u8]) -> usize {
        data.chunks_exact(BLOCK).take_while(|block| block[..4] == data[..4]).count()
    }

    /// Whether blocks at the log's start can be the rest of a record that begins at its end: they
    /// have its cycle number, or the next.
    fn goes_around(&self, data: &[u8]) -> bool {
        let cycle = u64::from(Endian::Big.get_u32(data, 0));
        self.last.is_some_and(|last| [last >> 32, (last >> 32) + 1].contains(&cycle))
    }

    fn record(
        &mut self,
        head: &RecordHead,
        record: &[u8],
        events: &mut Vec<LogOperation>,
    ) -> XfsPiece {
        if !self.is_next(head) {
            self.early.push((head.clone(), record.to_vec()));
            if self.early.len() < EARLY_MAX {
                return XfsPiece::Record(None);
            }
            // The missing predecessor will not arrive any more, so the oldest waiting record is
            // read.
            self.early.sort_by_key(|(head, _)| head.lsn);
            self.last = None;
            self.catch_up(events);
            return XfsPiece::Record(None);
        }
        let piece = self.read(head, record, events);
        self.catch_up(events);
        piece
    }

    /// Whether a record follows the last one that was read. An older one is late, or belongs to a
    /// log that starts again.
    fn is_next(&self, head: &RecordHead) -> bool {
        self.last.is_none_or(|last| head.lsn <= last || head.prev_block == last as u32)
    }

    /// Reads the waiting records whose turn has come.
    fn catch_up(&mut self, events: &mut Vec<LogOperation>) {
        while let Some(i) = self.early.iter().position(|(head, _)| self.is_next(head)) {
            let (head, record) = self.early.remove(i);
            let piece = self.read(&head, &record, events);
            if matches!(piece, XfsPiece::NotUnderstood) {
                events.push(LogOperation::NotUnderstood);
            }
        }
    }

    fn read(
        &mut self,
        head: &RecordHead,
        record: &[u8],
        events: &mut Vec<LogOperation>,
    ) -> XfsPiece {
        self.last = self.last.max(Some(head.lsn));
        let mut data = std::mem::take(&mut self.unpacked);
        let piece = match head.unpack(record, &mut data) {
            Some(()) => self.unpacked(head, &data, events),
            None => XfsPiece::NotUnderstood,
        };
        self.unpacked = data;
        piece
    }

    fn unpacked(
        &mut self,
        head: &RecordHead,
        data: &[u8],
        events: &mut Vec<LogOperation>,
    ) -> XfsPiece {
        let (mut last, mut unmount) = (None, false);
        let whole = operations(data, head.operations, |op, body| {
            let len = (ordo_format::xfs::log::OpHead::SIZE + body.len()) as u64;
            if op.flags & flags::UNMOUNT != 0 {
                unmount = true;
                events.push(LogOperation::Unmount);
                return;
            }
            last = Some(op.id);
            events.push(LogOperation::Bytes { id: op.id, len });
            if op.flags & flags::START != 0 {
                if self.open.len() >= OPEN_MAX {
                    self.open.clear();
                }
                self.open.insert(op.id, Open::default());
            } else if op.flags & flags::COMMIT != 0 {
                self.open.remove(&op.id);
                events.push(LogOperation::Commit { id: op.id });
            } else if let Some(open) = self.open.get_mut(&op.id) {
                open.operation(op.id, op.flags, body, events);
            }
        });
        match (whole, unmount) {
            (false, _) => XfsPiece::NotUnderstood,
            (true, true) => XfsPiece::Unmount,
            (true, false) => XfsPiece::Record(last),
        }
    }
}

impl Open {
    fn operation(&mut self, id: u32, bits: u8, body: &[u8], events: &mut Vec<LogOperation>) {
        if bits & flags::CONTINUED == 0 {
            self.part.clear();
        }
        if self.part.len() + body.len() > REGION_MAX {
            return;
        }
        if bits & flags::CONTINUES != 0 {
            self.part.extend_from_slice(body);
            return;
        }
        if self.part.is_empty() {
            self.region(id, body.to_vec(), events);
        } else {
            self.part.extend_from_slice(body);
            let region = std::mem::take(&mut self.part);
            self.region(id, region, events);
        }
    }

    fn region(&mut self, id: u32, region: Vec<u8>, events: &mut Vec<LogOperation>) {
        if self.wanted == 0 {
            // Every transaction begins with a header region of its own.
            if region.len() == 16 && region.starts_with(b"NART") {
                return;
            }
            let Some((kind, regions)) = item_head(&region) else {
                events.push(LogOperation::NotUnderstood);
                return;
            };
            if !(item::FIRST..=item::LAST).contains(&kind) {
                events.push(LogOperation::NotUnderstood);
            }
            self.wanted = usize::from(regions.max(1));
            self.regions.clear();
        }
        self.regions.push(region);
        self.wanted -= 1;
        if self.wanted == 0 {
            let regions = std::mem::take(&mut self.regions);
            if let Some(item) = whole_item(id, regions) {
                events.push(item);
            }
        }
    }
}

fn whole_item(id: u32, regions: Vec<Vec<u8>>) -> Option<LogOperation> {
    let first = regions.first()?;
    let (kind, _) = item_head(first)?;
    match kind {
        item::BUFFER if first.len() >= BufferItem::SIZE => {
            let buffer = BufferItem::decode(first, Endian::Little);
            let buffer = Box::new(LoggedBuffer { item: buffer, regions });
            Some(LogOperation::Buffer { id, buffer })
        }
        item::INODE if first.len() >= InodeItem::SIZE => {
            let item = InodeItem::decode(first, Endian::Little);
            let mut rest = regions.into_iter().skip(1);
            let core = if item.fields & 1 != 0 { rest.next()? } else { Vec::new() };
            let data = if item.fields & 0xe != 0 { rest.next() } else { None };
            let attributes = if item.fields & 0x1c0 != 0 { rest.next() } else { None };
            let item = Box::new(LoggedInode { item, core, data, attributes });
            Some(LogOperation::Inode { id, item })
        }
        _ => None,
    }
}
