//! The meaning of places on a device, as its file system has them now, without a trace.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use ordo_runtime::Time;
use ordo_trace::{Flags, RequestEnd, RequestOp, Trace, TraceRequest};
use ordo_watcher::decoder::DiskImage;
use ordo_watcher::{Class, Watch};

use crate::owners;
use crate::rows::BlockRow;

/// The most bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// A range of a device with one meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeantRange {
    /// The first byte.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The kind.
    pub kind: Class,
    /// The meaning in words.
    pub means: String,
    /// The inode of the file to which it belongs.
    pub ino: Option<u64>,
    /// The byte of the file at the range's beginning, where it holds a file's contents.
    pub file_offset: Option<u64>,
    /// The file's path.
    pub path: Option<Arc<str>>,
    /// The transaction in the journal.
    pub transaction: Option<u64>,
    /// For a copy in a journal, the byte of its fixed location.
    pub home: Option<u64>,
}

/// A read of a range, as a trace of one request. A range that the device cannot read, which is why
/// somebody asks, has no contents.
fn read(image: &dyn DiskImage, offset: u64, len: u64) -> Trace {
    let mut bytes = vec![0; len as usize];
    let is_read = image.read_at(offset, &mut bytes).is_ok();
    let mut trace = Trace::new(512, false);
    let data = is_read.then(|| trace.keep(&bytes));
    let end = Some(RequestEnd { order: 0, at: Time::ZERO, epoch: 0, ok: true });
    let (op, flags, issued, epoch) = (RequestOp::Read, Flags::empty(), Time::ZERO, 0);
    trace.push(TraceRequest { op, flags, offset, len, issued, epoch, end, data });
    trace
}

/// The meaning of a range of a device, in order, without gaps. `watch` is a watcher over `image`.
/// Neighbours of one file, one behind the other, are one range.
///
/// # Errors
/// The range lies outside the device.
pub fn meaning(
    image: &dyn DiskImage,
    watch: &Rc<Watch>,
    (offset, len): (u64, u64),
) -> io::Result<Vec<MeantRange>> {
    let end = offset.checked_add(len).filter(|end| *end <= image.bytes());
    let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
    let (mut out, mut at) = (Vec::<MeantRange>::new(), offset);
    while at < end {
        let len = PIECE.min(end - at);
        let trace = read(image, at, len);
        let words = words(&trace, watch);
        for row in owners::of_trace(&trace, watch) {
            let found = words.iter().find(|(from, to, _)| (*from..*to).contains(&row.offset));
            let means = found.map_or_else(String::new, |(.., words)| words.clone());
            let block = watch.block_bytes();
            add(&mut out, range(row, means, block));
        }
        at += len;
    }
    Ok(out)
}

/// The parts of the read of a trace, in words: the first byte, the end, the words.
fn words(trace: &Trace, watch: &Rc<Watch>) -> Vec<(u64, u64, String)> {
    let parts = Rc::new(RefCell::new(Vec::new()));
    let into = parts.clone();
    watch.listen(move |told| {
        let all = told.named.parts.iter();
        let all = all.map(|part| (part.offset, part.offset + part.len, part.to_string()));
        into.borrow_mut().extend(all);
    });
    ordo_trace::replay(trace, watch);
    watch.listen(|_| {});
    parts.take()
}

fn range(row: BlockRow, means: String, block: u64) -> MeantRange {
    let is_contents = matches!(row.kind, Class::FileData | Class::Directory | Class::Symlink);
    let first = row.file_block.filter(|_| is_contents).and_then(|n| n.checked_mul(block));
    let file_offset = first.and_then(|first| first.checked_add(row.offset % block));
    MeantRange {
        offset: row.offset,
        len: row.len,
        kind: row.kind,
        means,
        ino: row.ino,
        file_offset,
        path: row.path,
        transaction: row.transaction,
        home: row.home.map(|(at, _)| at),
    }
}

/// Adds a range, or makes the last one longer.
fn add(out: &mut Vec<MeantRange>, next: MeantRange) {
    if let Some(last) = out.last_mut()
        && last.offset + last.len == next.offset
        && last.kind == next.kind
        && last.home.is_none()
        && next.home.is_none()
        && (last.ino, &last.path, last.transaction) == (next.ino, &next.path, next.transaction)
    {
        let follows = match (last.file_offset, next.file_offset) {
            (Some(before), Some(now)) => before + last.len == now,
            (None, None) => next.ino.is_some() || last.means == next.means,
            _ => false,
        };
        if follows {
            last.len += next.len;
            return;
        }
    }
    out.push(next);
}
