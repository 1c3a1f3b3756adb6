//! The disks of a run and of a judge.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, Operation, WriteFlags};
use ordo_runtime::{Duration, Runtime};
use rustc_hash::FxHashSet;

use crate::sum;

/// The unit that a crash leaves wholly old or wholly new, in bytes.
pub const SECTOR: usize = 512;

/// The unit in which differences from the start are stored, in bytes.
const PIECE: usize = 4096;

/// A disk in memory. It shares its initial contents with other disks, and remembers the contents
/// that writes have replaced, so that the writes can be rolled back.
pub struct Scratch {
    bytes: RefCell<Bytes>,
    /// The old contents of sectors that were written.
    undo: RefCell<Vec<(usize, Box<[u8]>)>>,
    volatile: Cell<bool>,
    seen: RefCell<Seen>,
    /// The ranges of sectors that were read, if they are recorded.
    log: RefCell<Option<Vec<Range<u64>>>>,
    changed: RefCell<Changed>,
}

/// The contents of a disk: the initial ones, shared, and pieces of its own.
struct Bytes {
    base: Arc<Vec<u8>>,
    own: Vec<Option<Box<[u8]>>>,
}

impl Bytes {
    fn sector(&self, sector: usize) -> &[u8] {
        let (at, within) = (sector * SECTOR, sector * SECTOR % PIECE);
        match &self.own[at / PIECE] {
            Some(own) => &own[within..within + SECTOR],
            None => &self.base[at..at + SECTOR],
        }
    }

    fn sector_mut(&mut self, sector: usize) -> &mut [u8] {
        let (at, within) = (sector * SECTOR, sector * SECTOR % PIECE);
        let (base, start) = (&self.base, at - within);
        let of_base = || base[start..base.len().min(start + PIECE)].into();
        let own = self.own[at / PIECE].get_or_insert_with(of_base);
        &mut own[within..within + SECTOR]
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let (from, within) = (at + done, (at + done) % PIECE);
            let n = (PIECE - within).min(out.len() - done);
            let piece = match &self.own[from / PIECE] {
                Some(own) => &own[within..within + n],
                None => &self.base[from..from + n],
            };
            out[done..done + n].copy_from_slice(piece);
            done += n;
        }
    }
}

/// Sectors whose contents have changed since the last query.
#[derive(Default)]
struct Changed {
    marks: Vec<u64>,
    list: Vec<u64>,
}

impl Changed {
    fn note(&mut self, sector: u64) {
        let (word, bit) = (sector as usize / 64, 1 << (sector % 64));
        if self.marks[word] & bit == 0 {
            self.marks[word] |= bit;
            self.list.push(sector);
        }
    }
}

/// The sectors that were read since [`Scratch::look`], as bits.
#[derive(Default)]
struct Seen {
    written: Vec<u64>,
    /// Sectors that were read before they were written.
    read: Vec<u64>,
}

/// The sectors with any of these bytes.
fn sectors(at: usize, len: usize) -> Range<usize> {
    at / SECTOR..(at + len).div_ceil(SECTOR)
}

impl Scratch {
    /// A disk with the contents `base`, which are whole sectors.
    pub fn new(base: Arc<Vec<u8>>) -> Rc<Scratch> {
        let words = (base.len() / SECTOR).div_ceil(64);
        let own = vec![None; base.len().div_ceil(PIECE)];
        let seen = Seen { written: vec![0; words], read: vec![0; words] };
        let changed = Changed { marks: vec![0; words], list: Vec::new() };
        Rc::new(Scratch {
            bytes: RefCell::new(Bytes { base, own }),
            undo: RefCell::default(),
            volatile: Cell::new(false),
            seen: RefCell::new(seen),
            log: RefCell::default(),
            changed: RefCell::new(changed),
        })
    }

    /// Sets whether the disk reports a volatile cache.
    pub fn set_volatile(&self, volatile: bool) {
        self.volatile.set(volatile);
    }

    /// Changes a sector for good: [`rewind`](Self::rewind) does not take this back.
    pub fn put(&self, sector: u64, data: &[u8]) {
        self.bytes.borrow_mut().sector_mut(sector as usize).copy_from_slice(data);
        self.changed.borrow_mut().note(sector);
    }

    /// Takes back the writes since the last rewind.
    pub fn rewind(&self) {
        let (mut bytes, mut changed) = (self.bytes.borrow_mut(), self.changed.borrow_mut());
        for (sector, old) in self.undo.borrow_mut().drain(..).rev() {
            bytes.sector_mut(sector).copy_from_slice(&old);
            changed.note(sector as u64);
        }
    }

    /// Begins to record which sectors are read, for [`was_read`](Self::was_read).
    pub(crate) fn look(&self) {
        let mut seen = self.seen.borrow_mut();
        seen.written.fill(0);
        seen.read.fill(0);
    }

    /// Whether a sector was read since [`look`](Self::look), before it was written.
    pub(crate) fn was_read(&self, sector: u64) -> bool {
        self.seen.borrow().read[sector as usize / 64] >> (sector % 64) & 1 == 1
    }

    /// Begins to record which ranges are read, for [`logged`](Self::logged).
    pub(crate) fn log(&self) {
        *self.log.borrow_mut() = Some(Vec::new());
    }

    /// The ranges of sectors that were read since then. Ends the recording.
    pub(crate) fn logged(&self) -> Vec<Range<u64>> {
        self.log.borrow_mut().take().unwrap_or_default()
    }

    /// The sectors whose contents have changed since the last call, each once.
    pub(crate) fn take_changed(&self) -> Vec<u64> {
        let mut changed = self.changed.borrow_mut();
        let Changed { marks, list } = &mut *changed;
        list.iter().for_each(|sector| marks[*sector as usize / 64] = 0);
        std::mem::take(list)
    }

    /// The effect of the writes since the last rewind, as a difference of sums.
    pub(crate) fn difference(&self) -> u128 {
        let (bytes, undo) = (self.bytes.borrow(), self.undo.borrow());
        let mut seen = FxHashSet::default();
        let mut out = 0u128;
        for (sector, before) in undo.iter() {
            let now = bytes.sector(*sector);
            if seen.insert(*sector) && now != &**before {
                let share = |b: &[u8]| sum::share(*sector as u64, sum::of_sector(b));
                out = out.wrapping_add(share(now)).wrapping_sub(share(before));
            }
        }
        out
    }

    /// A copy of the whole contents.
    pub fn to_vec(&self) -> Vec<u8> {
        let bytes = self.bytes.borrow();
        let mut out = bytes.base.to_vec();
        let own = bytes.own.iter().enumerate().filter_map(|(i, own)| Some((i, own.as_ref()?)));
        own.for_each(|(i, own)| out[i * PIECE..i * PIECE + own.len()].copy_from_slice(own));
        out
    }

    fn is_inside(&self, op: Operation, offset: u64, len: usize) -> Result<usize, BlockError> {
        self.geometry().check(op, offset, len)?;
        Ok(offset as usize)
    }
}

impl BlockDevice for Scratch {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes.borrow().base.len() as u64,
            sector: SECTOR as u32,
            max_request: 1 << 20,
            volatile_cache: self.volatile.get(),
            read_only: false,
        }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        let at = self.is_inside(Operation::Read, offset, len)?;
        let mut seen = self.seen.borrow_mut();
        for sector in sectors(at, len) {
            let (word, bit) = (sector / 64, 1 << (sector % 64));
            seen.read[word] |= bit & !seen.written[word];
        }
        if let Some(log) = self.log.borrow_mut().as_mut() {
            let Range { start, end } = sectors(at, len);
            log.push(start as u64..end as u64);
        }
        let mut out = IoBuf::zeroed(len);
        self.bytes.borrow().read(at, &mut out);
        Ok(out)
    }

    async fn write(&self, offset: u64, data: IoBuf, _flags: WriteFlags) -> Result<(), BlockError> {
        let at = self.is_inside(Operation::Write, offset, data.len())?;
        let mut seen = self.seen.borrow_mut();
        for sector in sectors(at, data.len()) {
            seen.written[sector / 64] |= 1 << (sector % 64);
        }
        let (mut bytes, mut undo) = (self.bytes.borrow_mut(), self.undo.borrow_mut());
        let mut changed = self.changed.borrow_mut();
        for (sector, new) in (at / SECTOR..).zip(data.chunks_exact(SECTOR)) {
            if bytes.sector(sector) != new {
                let place = bytes.sector_mut(sector);
                undo.push((sector, Box::from(&*place)));
                place.copy_from_slice(new);
                changed.note(sector as u64);
            }
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.is_inside(Operation::Discard, offset, len as usize).map(drop)
    }

    fn immediate(&self) -> bool {
        true
    }
}

/// A disk that takes a random time for each write and each flush, so requests under way complete in
/// any order.
pub struct Slow<D> {
    pub(crate) runtime: Runtime,
    pub(crate) inner: D,
    pub(crate) micros_max: u64,
    pub(crate) volatile: bool,
}

impl<D: BlockDevice> Slow<D> {
    async fn take_time(&self) {
        if self.micros_max > 0 {
            let micros = self.runtime.random_below(self.micros_max);
            self.runtime.sleep(Duration::from_micros(micros)).await;
        }
    }
}

impl<D: BlockDevice> BlockDevice for Slow<D> {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: self.volatile, ..self.inner.geometry() }
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.inner.read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.take_time().await;
        self.inner.write(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), BlockError> {
        self.take_time().await;
        self.inner.flush().await
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.inner.discard(offset, len).await
    }
}
