//! Disks under a run and under a judge.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, Operation, WriteFlags};
use ordo_runtime::{Duration, Runtime};
use rustc_hash::FxHashSet;

use crate::sum;

/// The unit that a crash writes wholly or not at all, in bytes.
pub const SECTOR: usize = 512;

/// A disk in memory that remembers what was written over, so that the writes can be taken back.
pub struct Scratch {
    bytes: RefCell<Vec<u8>>,
    undo: RefCell<Vec<(usize, Box<[u8]>)>>,
    volatile: Cell<bool>,
    seen: RefCell<Seen>,
}

/// Sectors, as bits, since somebody began to look.
#[derive(Default)]
struct Seen {
    written: Vec<u64>,
    /// Read before they were written.
    read: Vec<u64>,
}

/// The sectors of a range of bytes.
fn sectors(at: usize, len: usize) -> std::ops::Range<usize> {
    at / SECTOR..(at + len).div_ceil(SECTOR)
}

impl Scratch {
    /// A disk that holds `image`, whole sectors.
    pub fn new(image: &[u8]) -> Rc<Scratch> {
        let words = (image.len() / SECTOR).div_ceil(64);
        let seen = Seen { written: vec![0; words], read: vec![0; words] };
        Rc::new(Scratch {
            bytes: RefCell::new(image.to_vec()),
            undo: RefCell::default(),
            volatile: Cell::new(false),
            seen: RefCell::new(seen),
        })
    }

    /// Says whether its cache is to be called volatile.
    pub fn set_volatile(&self, volatile: bool) {
        self.volatile.set(volatile);
    }

    /// Puts a sector in place for good: [`rewind`](Self::rewind) does not take it back.
    pub fn put(&self, sector: u64, data: &[u8]) {
        let at = sector as usize * SECTOR;
        self.bytes.borrow_mut()[at..at + SECTOR].copy_from_slice(data);
    }

    /// Takes back what was written since the last rewind.
    pub fn rewind(&self) {
        let mut bytes = self.bytes.borrow_mut();
        for (at, old) in self.undo.borrow_mut().drain(..).rev() {
            bytes[at..at + old.len()].copy_from_slice(&old);
        }
    }

    /// From now on [`was_read`](Self::was_read) says what is read.
    pub(crate) fn look(&self) {
        let mut seen = self.seen.borrow_mut();
        seen.written.fill(0);
        seen.read.fill(0);
    }

    /// Whether a sector was read as it was when somebody began to look.
    pub(crate) fn was_read(&self, sector: u64) -> bool {
        self.seen.borrow().read[sector as usize / 64] >> (sector % 64) & 1 == 1
    }

    /// What the writes since the last rewind changed, as a difference of sums.
    pub(crate) fn difference(&self) -> u128 {
        let (bytes, undo) = (self.bytes.borrow(), self.undo.borrow());
        let mut seen = FxHashSet::default();
        let mut out = 0u128;
        for (at, old) in undo.iter() {
            for (i, before) in old.chunks_exact(SECTOR).enumerate() {
                let sector = at / SECTOR + i;
                if seen.insert(sector) {
                    let now = &bytes[sector * SECTOR..(sector + 1) * SECTOR];
                    if now != before {
                        let share = |b: &[u8]| sum::share(sector as u64, sum::of_sector(b));
                        out = out.wrapping_add(share(now)).wrapping_sub(share(before));
                    }
                }
            }
        }
        out
    }

    /// The whole contents, to look at.
    pub fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), Vec::as_slice)
    }

    /// A copy of the whole contents.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }

    fn is_inside(&self, op: Operation, offset: u64, len: usize) -> Result<usize, BlockError> {
        self.geometry().check(op, offset, len)?;
        Ok(offset as usize)
    }
}

impl BlockDevice for Scratch {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes.borrow().len() as u64,
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
        Ok(IoBuf::from_slice(&self.bytes.borrow()[at..at + len]))
    }

    async fn write(&self, offset: u64, data: IoBuf, _flags: WriteFlags) -> Result<(), BlockError> {
        let at = self.is_inside(Operation::Write, offset, data.len())?;
        let mut seen = self.seen.borrow_mut();
        for sector in sectors(at, data.len()) {
            seen.written[sector / 64] |= 1 << (sector % 64);
        }
        let (mut bytes, mut undo) = (self.bytes.borrow_mut(), self.undo.borrow_mut());
        for (n, new) in data.chunks(SECTOR).enumerate() {
            let at = at + n * SECTOR;
            let place = &mut bytes[at..at + new.len()];
            if *place != *new {
                undo.push((at, Box::from(&*place)));
                place.copy_from_slice(new);
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
}

/// A disk that takes a random time for each write and each flush, so that requests under way complete
/// in any order.
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
