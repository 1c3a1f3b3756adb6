//! Import from and export to the log of the kernel's dm-log-writes:
//! `docs/formats/dm-log-writes.md`.

use std::io::{self, Write};

use ordo_format::Endian;
use ordo_format::dm_log_writes::{LogWritesEntry, LogWritesSuper};
use ordo_runtime::Time;

use crate::request::{Flags, RequestEnd, RequestOp, RequestSpan, TraceRequest};
use crate::trace::Trace;

/// The largest sector size that is accepted, in bytes.
const SECTOR_MAX: u32 = 64 << 10;

/// The reason why a log was not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// There are fewer bytes than a superblock has.
    #[error("not a log of dm-log-writes: {len} bytes are less than a superblock")]
    Short {
        /// The number of bytes.
        len: usize,
    },
    /// The magic number is another.
    #[error("not a log of dm-log-writes: the magic number at byte 0 is {found:#x}")]
    Magic {
        /// The value found.
        found: u64,
    },
    /// The version is not known here.
    #[error("byte 8: a log of version {found}; only version 1 is known")]
    Version {
        /// The value found.
        found: u64,
    },
    /// The sector size is impossible.
    #[error("byte 24: a sector of {found} bytes; a power of two from 512 to 65536 is expected")]
    SectorSize {
        /// The value found.
        found: u32,
    },
    /// A flag is not known here, so the layout of the bytes after the entry is unknown.
    #[error("byte {byte}: entry {entry} has the flags {flags:#x}; some of them are not known")]
    Flags {
        /// The entry's number, from 0.
        entry: u64,
        /// The entry's byte in the log.
        byte: usize,
        /// The flags.
        flags: u64,
    },
    /// An entry's sectors lie beyond any device.
    #[error(
        "byte {byte}: entry {entry} has {sectors} sectors from sector {sector}, which no device has"
    )]
    Place {
        /// The entry's number, from 0.
        entry: u64,
        /// The entry's byte in the log.
        byte: usize,
        /// The first sector.
        sector: u64,
        /// The number of sectors.
        sectors: u64,
    },
    /// A mark's text does not fit into its sector.
    #[error("byte {byte}: entry {entry} is a mark of {len} bytes, which do not fit in a sector")]
    Mark {
        /// The entry's number, from 0.
        entry: u64,
        /// The entry's byte in the log.
        byte: usize,
        /// The text's length.
        len: u64,
    },
}

/// The place at which a log is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The first entry that is missing or incomplete, from 0.
    pub entry: u64,
    /// The number of entries that there should be.
    pub entries: u64,
    /// The byte at which that entry would start.
    pub byte: usize,
}

/// An imported trace.
#[derive(Debug)]
pub struct ImportedLogWrites {
    /// The requests in the order of the log, in which they became durable.
    pub trace: Trace,
    /// The place at which the log is cut short, if it is.
    pub cut: Option<Cut>,
}

/// Whether a file begins with the magic number of a log.
pub(crate) fn is_log(file: &[u8]) -> bool {
    file.len() >= LogWritesSuper::SIZE
        && LogWritesSuper::decode(file, Endian::Little).magic == LogWritesSuper::MAGIC
}

/// Reads a log. Contents stay at their place in `log`.
///
/// # Errors
/// The bytes are not a log, or an entry makes no sense. A log that is cut short is no error.
pub fn import(log: Vec<u8>) -> Result<ImportedLogWrites, ImportError> {
    let head = superblock(&log)?;
    let sector = head.sector_size as usize;
    let (len, mut at) = (log.len(), sector);
    let mut requests = Vec::new();
    let (mut epoch, mut cut) = (0, None);
    for number in 0..head.entries {
        let missing = Cut { entry: number, entries: head.entries, byte: at };
        let Some(bytes) = log.get(at..at.saturating_add(sector)) else {
            cut = Some(missing);
            break;
        };
        let entry = LogWritesEntry::decode(bytes, Endian::Little);
        let (mut request, stored) = request(&entry, number, at, head.sector_size)?;
        let body = at + sector;
        if stored > (len - body) as u64 {
            cut = Some(missing);
            break;
        }
        if request.op == RequestOp::Flush || request.flags.contains(Flags::PREFLUSH) {
            epoch += 1;
        }
        request.epoch = epoch - u64::from(request.op == RequestOp::Flush);
        request.end = Some(RequestEnd { order: number, at: Time::ZERO, epoch, ok: true });
        request.data = match request.op {
            RequestOp::Write => Some(RequestSpan { start: body, len: stored as usize }),
            RequestOp::Mark => {
                Some(RequestSpan { start: at + LogWritesEntry::SIZE, len: entry.data_len as usize })
            }
            _ => None,
        };
        requests.push(request);
        at = body + stored as usize;
    }
    Ok(ImportedLogWrites { trace: Trace::over(head.sector_size, requests, log), cut })
}

fn superblock(log: &[u8]) -> Result<LogWritesSuper, ImportError> {
    if log.len() < LogWritesSuper::SIZE {
        return Err(ImportError::Short { len: log.len() });
    }
    let head = LogWritesSuper::decode(log, Endian::Little);
    if head.magic != LogWritesSuper::MAGIC {
        return Err(ImportError::Magic { found: head.magic });
    }
    if head.version != LogWritesSuper::VERSION {
        return Err(ImportError::Version { found: head.version });
    }
    let size = head.sector_size;
    if !size.is_power_of_two() || !(512..=SECTOR_MAX).contains(&size) {
        return Err(ImportError::SectorSize { found: size });
    }
    Ok(head)
}

/// Decodes an entry, without contents and completion. Returns it with the number of bytes that are
/// stored after its sector.
fn request(
    entry: &LogWritesEntry,
    number: u64,
    byte: usize,
    sector: u32,
) -> Result<(TraceRequest, u64), ImportError> {
    let LogWritesEntry { sectors, flags, data_len, .. } = *entry;
    if flags & !LogWritesEntry::KNOWN != 0 {
        return Err(ImportError::Flags { entry: number, byte, flags });
    }
    let has = |flag| flags & flag != 0;
    let mark = has(LogWritesEntry::MARK);
    if mark && data_len > u64::from(sector) - LogWritesEntry::SIZE as u64 {
        return Err(ImportError::Mark { entry: number, byte, len: data_len });
    }
    let bytes = |n: u64| n.checked_mul(u64::from(sector));
    let (Some(offset), Some(len)) = (bytes(entry.sector), bytes(sectors)) else {
        return Err(ImportError::Place { entry: number, byte, sector: entry.sector, sectors });
    };
    if offset.checked_add(len).is_none() {
        return Err(ImportError::Place { entry: number, byte, sector: entry.sector, sectors });
    }
    let op = match () {
        () if mark => RequestOp::Mark,
        () if has(LogWritesEntry::DISCARD) => RequestOp::Discard,
        () if sectors == 0 && has(LogWritesEntry::FLUSH) => RequestOp::Flush,
        () => RequestOp::Write,
    };
    let mut to = Flags::empty();
    to.set(Flags::FUA, has(LogWritesEntry::FUA));
    to.set(Flags::PREFLUSH, has(LogWritesEntry::FLUSH) && op != RequestOp::Flush);
    to.set(Flags::META, has(LogWritesEntry::METADATA));
    let (issued, epoch) = (Time::ZERO, 0);
    let request = TraceRequest { op, flags: to, offset, len, issued, epoch, end: None, data: None };
    Ok((request, if op == RequestOp::Write { len } else { 0 }))
}

/// The reason why a trace was not written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The contents of a write were not kept, and the format requires them.
    #[error("request {request}, a write at byte {offset}: its contents were not recorded")]
    NoContents {
        /// The number.
        request: usize,
        /// The offset in bytes.
        offset: u64,
    },
    /// A request does not consist of whole sectors.
    #[error("request {request} at byte {offset}, {len} bytes: not whole sectors of {sector} bytes")]
    Misaligned {
        /// The number.
        request: usize,
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        len: u64,
        /// The trace's sector size in bytes.
        sector: u32,
    },
    /// A mark's text does not fit into a sector.
    #[error("request {request}: a mark of {len} bytes, which do not fit in a sector")]
    Mark {
        /// The number.
        request: usize,
        /// The text's length.
        len: usize,
    },
    /// The log could not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The number of entries written, and of requests for which the format has no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The number of entries written.
    pub entries: u64,
    /// The number of reads left out.
    pub reads: u64,
    /// The number of requests left out because they were interrupted or failed.
    pub unfinished: u64,
    /// The number of writes left out because they were dropped: the device never had them.
    pub dropped: u64,
}

/// The place in the order of completion at which each entry of a log stands, with the request's
/// number. A mark stands behind everything that had completed when it was set.
fn ordered(trace: &Trace, done: &mut Exported) -> Vec<usize> {
    let requests = trace.requests();
    let before = |mark: usize| {
        let r = &requests[mark];
        let ends = requests.iter().enumerate().filter_map(|(i, r)| Some((i, r.end?)));
        let earlier = ends.filter(|(i, end)| match trace.timed() {
            true => end.at <= r.issued,
            false => *i < mark,
        });
        earlier.map(|(_, end)| end.order).max()
    };
    let mut order = Vec::new();
    for (number, r) in requests.iter().enumerate() {
        match r.end {
            _ if r.op == RequestOp::Read => done.reads += 1,
            _ if r.flags.contains(Flags::DROPPED) => done.dropped += 1,
            Some(end) if end.ok => order.push((Some(end.order), false, number)),
            None if r.op == RequestOp::Mark => order.push((before(number), true, number)),
            _ => done.unfinished += 1,
        }
    }
    order.sort_unstable();
    order.into_iter().map(|(.., number)| number).collect()
}

/// Writes a trace as a log, in order of completion.
///
/// # Errors
/// A write has no contents, a request is not whole sectors, or `out` failed.
pub fn export(trace: &Trace, out: &mut impl Write) -> Result<Exported, ExportError> {
    let sector = trace.sector() as usize;
    let mut done = Exported::default();
    let order = ordered(trace, &mut done);
    done.entries = order.len() as u64;
    let mut block = vec![0; sector];
    let head = LogWritesSuper {
        magic: LogWritesSuper::MAGIC,
        version: LogWritesSuper::VERSION,
        entries: done.entries,
        sector_size: trace.sector(),
    };
    head.encode(&mut block, Endian::Little);
    out.write_all(&block)?;
    for number in order {
        one(trace, number, &mut block, out)?;
    }
    Ok(done)
}

fn one(
    trace: &Trace,
    request: usize,
    block: &mut [u8],
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let (r, sector) = (&trace.requests()[request], trace.sector());
    let (offset, len) = (r.offset, r.len);
    if !(offset | len).is_multiple_of(u64::from(sector)) {
        return Err(ExportError::Misaligned { request, offset, len, sector });
    }
    let set = |yes, flag| if yes { flag } else { 0 };
    let text = trace.data(r).filter(|_| r.op == RequestOp::Mark).unwrap_or_default();
    if text.len() > block.len() - LogWritesEntry::SIZE {
        return Err(ExportError::Mark { request, len: text.len() });
    }
    let entry = LogWritesEntry {
        sector: offset / u64::from(sector),
        sectors: len / u64::from(sector),
        flags: set(
            r.op == RequestOp::Flush || r.flags.contains(Flags::PREFLUSH),
            LogWritesEntry::FLUSH,
        ) | set(r.flags.contains(Flags::FUA), LogWritesEntry::FUA)
            | set(r.op == RequestOp::Discard, LogWritesEntry::DISCARD)
            | set(r.op == RequestOp::Mark, LogWritesEntry::MARK)
            | set(r.flags.contains(Flags::META), LogWritesEntry::METADATA),
        data_len: text.len() as u64,
    };
    block.fill(0);
    entry.encode(block, Endian::Little);
    block[LogWritesEntry::SIZE..][..text.len()].copy_from_slice(text);
    out.write_all(block)?;
    match r.op {
        RequestOp::Write => {
            let data = trace.data(r).filter(|data| data.len() as u64 == len);
            out.write_all(data.ok_or(ExportError::NoContents { request, offset })?)?;
        }
        RequestOp::WriteZeroes => {
            io::copy(&mut io::Read::take(io::repeat(0), len), out)?;
        }
        _ => {}
    }
    Ok(())
}
