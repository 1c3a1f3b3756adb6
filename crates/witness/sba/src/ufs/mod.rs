//! The classifier of UFS2, written by any implementation.
//!
//! The places of the superblock, its copies, the summary, the cylinder groups' headers and the inodes follow from the
//! geometry. The meaning of a block in the data area follows from the pointers to it: `files` keeps, from every inode
//! and indirect block that is written or read, the file of each fragment (`owners`). A block that is written before
//! its pointer is named by its `contents`, and counted again (`ledger`) once the pointer is written. `view` puts
//! these together; `decoder` makes them a [`Decoder`](crate::decoder::Decoder).

mod area;
mod contents;
mod decoder;
mod files;
mod ledger;
mod owners;
mod view;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_block::{BlockDevice, BlockError, Device, IoBuf, Operation, WriteFlags};
use ordo_format::Endian;
use ordo_format::ufs2::superblock::{SBLOCK_SIZE, SEARCH};
use ordo_format::ufs2::{Group, Superblock};
use ordo_format::wafs::{SECTOR_MAGIC, SECTOR_MAX, SECTOR_MIN, SectorHead, WafsSuper};
use ordo_runtime::Time;

use crate::kind::{BlockMeaning, Class, ClassifiedRange, ClassifiedRequest, Reason};
use crate::stats::{Stats, TrafficCounts};
use view::{Ask, View};

pub(crate) use decoder::probe;

/// A function that is called with each request and its meaning.
type Listener = Box<dyn FnMut(&ClassifiedRequest)>;

#[derive(Default)]
struct State {
    view: Option<View>,
    stats: Stats,
    /// The end of the last read and of the last write, in bytes.
    read_end: Option<u64>,
    write_end: Option<u64>,
}

/// Names every request to a device that holds UFS2, and counts traffic by kind. A [`TapSink`].
#[derive(Default)]
pub struct Classifier {
    state: RefCell<State>,
    listener: RefCell<Option<Listener>>,
}

impl Classifier {
    /// A classifier that knows nothing yet.
    pub fn new() -> Rc<Classifier> {
        Rc::default()
    }

    /// Calls `listener` with every read and write from now on: a write when it is issued, a read when it has
    /// completed.
    pub fn listen(&self, listener: impl FnMut(&ClassifiedRequest) + 'static) {
        *self.listener.borrow_mut() = Some(Box::new(listener));
    }

    /// Learns the file system that is on a device now, without counting: superblock, inodes, indirect blocks,
    /// directories. `device` is best the one beneath the tap and the disk model. Returns false where no superblock
    /// was found; one that is written later is learned then.
    ///
    /// # Errors
    /// The device failed.
    pub async fn prime(&self, device: &Device) -> Result<bool, BlockError> {
        let geometry = device.geometry();
        let read = async |at, len| read_inside(device, at, len).await;
        self.learn(geometry.bytes, geometry.max_request as u64, &read).await
    }

    /// Does the work of [`Classifier::prime`] on any source of `bytes` bytes that reads `most` bytes at a time.
    async fn learn<E>(
        &self,
        bytes: u64,
        most: u64,
        read: &impl AsyncFn(u64, u64) -> Result<IoBuf, E>,
    ) -> Result<bool, E> {
        let Some((sb, endian)) = find_superblock(bytes, read).await? else { return Ok(false) };
        self.state.borrow_mut().view = Some(View::new(&sb, endian));
        let step = most.max(sb.bsize as u64);
        let step = step / sb.bsize as u64 * sb.bsize as u64;
        for cg in 0..sb.ncg {
            let at = sb.byte_of(sb.cg_header(cg));
            let header = read(at, sb.bsize as u64).await?;
            let inited = match Group::read(&header, endian, &sb, cg) {
                Ok(group) => group.initediblk,
                Err(_) => sb.ipg,
            };
            let first = sb.byte_of(sb.cg_inodes(cg));
            let end = first + (u64::from(inited) * 256).next_multiple_of(sb.bsize as u64);
            self.learn_range(first..end, step, read).await?;
        }
        // Each round reads one more level of indirect blocks; there are three.
        for _ in 0..3 {
            let unseen = self.with_view(|view| view.files.unseen_indirects());
            for addr in unseen.into_iter().flatten() {
                let at = sb.byte_of(addr);
                self.learn_range(at..at + sb.bsize as u64, step, read).await?;
            }
        }
        for (start, frags) in self.with_view(|v| v.files.directories()).unwrap_or_default() {
            let at = sb.byte_of(start);
            self.learn_range(at..at + sb.byte_of(frags), step, read).await?;
        }
        let _ = self.with_view(|view| view.primed = true);
        Ok(true)
    }

    fn with_view<T>(&self, f: impl FnOnce(&mut View) -> T) -> Option<T> {
        self.state.borrow_mut().view.as_mut().map(f)
    }

    async fn learn_range<E>(
        &self,
        range: std::ops::Range<u64>,
        step: u64,
        read: &impl AsyncFn(u64, u64) -> Result<IoBuf, E>,
    ) -> Result<(), E> {
        let (mut at, to) = (range.start, range.end);
        while at < to {
            let data = read(at, step.min(to - at)).await?;
            if data.is_empty() {
                break;
            }
            self.with_view(|view| {
                let parts = view.name(Ask::Read, at, data.len() as u64, Some(&data));
                for part in &parts {
                    let start = (part.offset - at) as usize;
                    let bytes = &data[start..start + part.len as usize];
                    view.absorb_read(part, bytes, &mut Stats::default());
                }
            });
            at += data.len() as u64;
        }
        Ok(())
    }

    /// The meaning of a request in the present state. A write must be named before it is shown to the tap.
    pub fn name(&self, request: &Issued<'_>) -> ClassifiedRequest {
        let (op, data) = (request.op, request.data);
        let parts = self.state.borrow().name(Ask::of(op, true), request.offset, request.len, data);
        named(request.id, op, request.offset, request.len, request.flags, request.at, parts)
    }

    /// The meaning of a request in a sentence: "directory block 0 of inode 5, 1 entry changed: +name (inode 7)".
    pub fn describe(&self, request: &Issued<'_>) -> String {
        match request.op {
            Operation::Flush => "flush".to_string(),
            Operation::Discard => format!("discard of {} bytes", request.len),
            Operation::Read | Operation::Write => self.name(request).to_string(),
        }
    }

    /// The traffic so far.
    pub fn stats(&self) -> Stats {
        self.finish()
    }

    /// The traffic at the end of a trace. Blocks that nothing pointed to are counted by what they look like, and
    /// [`Stats::unclaimed`] says how many.
    pub fn finish(&self) -> Stats {
        let state = self.state.borrow();
        let mut stats = state.stats.clone();
        stats.unclaimed += state.view.as_ref().map_or(0, |v| v.files.ledger.unclaimed());
        stats
    }

    /// Starts counting again, and keeps everything that was learned.
    pub fn restart(&self) {
        let mut state = self.state.borrow_mut();
        state.stats = Stats::default();
        if let Some(view) = &mut state.view {
            view.files.forget_notes();
        }
    }

    fn tell(&self, named: &ClassifiedRequest) {
        // The listener is taken out during the call, since it may set another one.
        let listener = self.listener.take();
        if let Some(mut listener) = listener {
            listener(named);
            self.listener.borrow_mut().get_or_insert(listener);
        }
    }
}

fn named(
    id: u64,
    op: Operation,
    offset: u64,
    len: u64,
    flags: WriteFlags,
    at: Time,
    parts: Vec<ClassifiedRange>,
) -> ClassifiedRequest {
    ClassifiedRequest { id, op, offset, len, flags, at, parts }
}

/// Reads a range, cut at the device's end.
async fn read_inside(device: &Device, at: u64, len: u64) -> Result<ordo_block::IoBuf, BlockError> {
    let geometry = device.geometry();
    let len = len.min(geometry.bytes.saturating_sub(at)) / u64::from(geometry.sector);
    device.read(at, (len * u64::from(geometry.sector)) as usize).await
}

/// Whether a request belongs to one of Ordo's logs: it begins with a valid sector or with the superblock of one.
fn is_log(data: &[u8]) -> bool {
    let sector = |bytes: &[u8]| {
        let sizes = std::iter::successors(Some(SECTOR_MIN), |size| Some(size * 2));
        let mut sizes = sizes.take_while(|size| *size <= bytes.len().min(SECTOR_MAX));
        sizes.any(|size| SectorHead::read(&bytes[..size]).is_some())
    };
    let starts = data.get(..4).map(|word| Endian::Little.get_u32(word, 0));
    match starts {
        Some(SECTOR_MAGIC) => sector(data),
        _ => data.len() >= WafsSuper::SIZE && WafsSuper::read(data, u64::MAX).is_ok(),
    }
}

async fn find_superblock<E>(
    bytes: u64,
    read: &impl AsyncFn(u64, u64) -> Result<IoBuf, E>,
) -> Result<Option<(Superblock, Endian)>, E> {
    for at in SEARCH {
        if at < bytes {
            let raw = read(at, SBLOCK_SIZE as u64).await?;
            if let Ok(found) = Superblock::read(&raw, at) {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

impl State {
    fn name(&self, ask: Ask, offset: u64, len: u64, data: Option<&[u8]>) -> Vec<ClassifiedRange> {
        if data.is_some_and(is_log) {
            return vec![ClassifiedRange {
                class: Class::Log,
                offset,
                len,
                what: BlockMeaning::Log,
            }];
        }
        match &self.view {
            Some(view) => view.name(ask, offset, len, data),
            None => {
                let what = BlockMeaning::Unknown(Reason::NoSuperblock);
                vec![ClassifiedRange { class: Class::Unknown, offset, len, what }]
            }
        }
    }

    /// Learns the geometry from a superblock in a write.
    fn see_superblock(&mut self, offset: u64, data: &[u8]) {
        for place in SEARCH {
            let Some(from) = place.checked_sub(offset).and_then(|n| usize::try_from(n).ok()) else {
                continue;
            };
            let Some(bytes) = data.get(from..).filter(|b| b.len() >= Superblock::SIZE) else {
                continue;
            };
            let Ok((sb, endian)) = Superblock::parse(bytes) else { continue };
            if sb.sblockloc != place as i64 {
                continue;
            }
            match &self.view {
                Some(view) if view.same_geometry(&sb, endian) => {}
                // A valid superblock at another standard place is a copy or a remnant; the present geometry stays.
                Some(view) if view.sb.sblockloc != sb.sblockloc => {}
                _ => {
                    let guesses = self.view.take().map_or(0, |v| v.files.ledger.unclaimed());
                    self.stats.unclaimed += guesses;
                    self.view = Some(View::new(&sb, endian));
                }
            }
        }
    }

    /// Counts a named request. Returns the counts of each part.
    fn count(&mut self, request: &ClassifiedRequest) -> Vec<TrafficCounts> {
        let write = request.op == Operation::Write;
        let end = if write { &mut self.write_end } else { &mut self.read_end };
        let sequential = *end == Some(request.offset);
        *end = Some(request.offset + request.len);
        let shift = self.view.as_ref().map_or(12, |v| v.sb.bshift);
        let by = if write { &mut self.stats.writes } else { &mut self.stats.reads };
        let mut shares = Vec::with_capacity(request.parts.len());
        for (i, part) in request.parts.iter().enumerate() {
            let first = u64::from(i == 0);
            let last_byte = part.offset + part.len - 1;
            let counts = TrafficCounts {
                requests: first,
                blocks: (last_byte >> shift) - (part.offset >> shift) + 1,
                bytes: part.len,
                sync: first * u64::from(request.flags.contains(WriteFlags::SYNC)),
                sequential: first * u64::from(sequential),
            };
            by[part.class].add(&counts);
            if let BlockMeaning::Unknown(reason) = part.what {
                *self.stats.unknown.entry(reason).or_default() += 1;
            }
            shares.push(counts);
        }
        shares
    }

    fn written(&mut self, request: &ClassifiedRequest, data: &[u8]) {
        let shares = self.count(request);
        self.see_superblock(request.offset, data);
        let Some(view) = &mut self.view else { return };
        for (part, share) in request.parts.iter().zip(shares) {
            let from = (part.offset - request.offset) as usize;
            let bytes = &data[from..from + part.len as usize];
            view.absorb_write(part, bytes, share, &mut self.stats);
        }
    }

    fn read(&mut self, request: &ClassifiedRequest, data: Option<&[u8]>) {
        self.count(request);
        let Some(data) = data else { return };
        self.see_superblock(request.offset, data);
        let Some(view) = &mut self.view else { return };
        for part in &request.parts {
            let from = (part.offset - request.offset) as usize;
            let bytes = &data[from..from + part.len as usize];
            view.absorb_read(part, bytes, &mut self.stats);
        }
    }
}

impl TapSink for Classifier {
    fn issued(&self, request: &Issued<'_>) {
        let data = match (request.op, request.data) {
            (Operation::Write, Some(data)) if !data.is_empty() => data,
            (Operation::Flush, _) => {
                self.state.borrow_mut().stats.flushes += 1;
                return;
            }
            (Operation::Discard, _) => {
                self.state.borrow_mut().stats.discards += 1;
                return;
            }
            _ => return,
        };
        // Changes are worked out only for a listener, since that takes time.
        let ask = Ask::of(request.op, self.listener.borrow().is_some());
        let r = request;
        let parts = self.state.borrow().name(ask, r.offset, r.len, r.data);
        let named = named(r.id, r.op, r.offset, r.len, r.flags, r.at, parts);
        self.state.borrow_mut().written(&named, data);
        self.tell(&named);
    }

    fn completed(&self, r: &Completed<'_>) {
        if r.op != Operation::Read || r.len == 0 {
            return;
        }
        let parts = self.state.borrow().name(Ask::Read, r.offset, r.len, r.data);
        let named = named(r.id, r.op, r.offset, r.len, r.flags, r.issued, parts);
        self.state.borrow_mut().read(&named, r.data);
        self.tell(&named);
    }
}
