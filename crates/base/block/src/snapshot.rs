//! A copy-on-write snapshot of a device: its contents at one moment, readable while the device is
//! written.
//!
//! [`SnapshotDevice`] lies under the writer; [`SnapshotDevice::snapshot`] shows the contents at the
//! moment of the snapshot. Before the first write to a piece of 4 KiB, its old contents are copied
//! to memory, so that no space on the device is needed. This costs the writer a read for each such
//! piece, unless no task will read the piece through the snapshot ([`SnapshotDevice::spare`]).
//!
//! Memory is bounded, and a writer never waits for a reader of the snapshot. When the bound is
//! reached, the snapshot is given up, the copies are dropped, and every read of it fails from then
//! on ([`Fault::Gone`]). A reader must then start again with a new snapshot.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use ordo_runtime::sync::Notify;
use rustc_hash::FxHashMap;

use crate::{BlockDevice, BlockError, Fault, Geometry, IoBuf, IoList, Operation, WriteFlags};

/// The unit of copies, in bytes.
const PIECE: u64 = 4096;

/// The state of a piece's copy.
enum Copied {
    /// The old contents are being read.
    Reading,
    /// The old contents.
    Here(Box<[u8]>),
}

/// A function that tells whether a range will not be read through the snapshot.
type Spare = Box<dyn Fn(Range<u64>) -> bool>;

struct State {
    /// Whether copies are made.
    active: Cell<bool>,
    /// Whether the snapshot was given up because memory ran out.
    gone: Cell<bool>,
    copies: RefCell<FxHashMap<u64, Copied>>,
    bytes: Cell<usize>,
    bytes_max: usize,
    spare: RefCell<Option<Spare>>,
    read: Notify,
}

/// A device with a snapshot of its earlier contents. See the module's head.
pub struct SnapshotDevice<D> {
    device: Rc<D>,
    state: Rc<State>,
}

/// The snapshot: the device's contents at one moment. Read-only.
pub struct SnapshotReader<D> {
    device: Rc<D>,
    state: Rc<State>,
}

impl<D: BlockDevice> SnapshotDevice<D> {
    /// Takes a snapshot of `device`, to which no write may be under way. At most `bytes_max` bytes
    /// of copies are kept.
    pub fn new(device: D, bytes_max: usize) -> SnapshotDevice<D> {
        let state = State {
            active: Cell::new(true),
            gone: Cell::new(false),
            copies: RefCell::new(FxHashMap::default()),
            bytes: Cell::new(0),
            bytes_max,
            spare: RefCell::new(None),
            read: Notify::new("a copy of what is about to be written", 0),
        };
        SnapshotDevice { device: Rc::new(device), state: Rc::new(state) }
    }

    /// The snapshot as a device.
    pub fn snapshot(&self) -> SnapshotReader<D> {
        SnapshotReader { device: self.device.clone(), state: self.state.clone() }
    }

    /// Sets the function that spares copies: from now on, bytes for which `spare` returns true are
    /// not copied before they are written, and the snapshot may show anything there. The range that
    /// it is given lies within a piece.
    pub fn spare(&self, spare: impl Fn(Range<u64>) -> bool + 'static) {
        *self.state.spare.borrow_mut() = Some(Box::new(spare));
    }

    /// Ends the snapshot: drops the copies, and makes no more. The snapshot can no longer be read.
    pub fn thaw(&self) {
        self.state.end();
    }

    /// The memory of the copies, in bytes.
    pub fn bytes(&self) -> usize {
        self.state.bytes.get()
    }

    /// Copies the pieces of a range that is about to be written, unless they were copied before.
    async fn preserve(&self, range: Range<u64>) {
        let state = &self.state;
        let pieces = range.start / PIECE..range.end.div_ceil(PIECE);
        let mut piece = pieces.start;
        while piece < pieces.end && state.active.get() {
            match state.copied(piece) {
                Some(true) => piece += 1,
                Some(false) => state.read.notified().await,
                None if state.is_spare(piece, &range) => piece += 1,
                None => {
                    // Neighbouring pieces are read in one request.
                    let most = (self.device.geometry().max_request as u64 / PIECE).max(1);
                    let needed =
                        |n: &u64| state.copied(*n).is_none() && !state.is_spare(*n, &range);
                    let end = (piece..pieces.end.min(piece + most)).take_while(needed).count();
                    self.copy(piece..piece + end as u64).await;
                }
            }
        }
    }

    async fn copy(&self, pieces: Range<u64>) {
        let state = &self.state;
        let start = pieces.start * PIECE;
        let len = ((pieces.end * PIECE).min(self.device.geometry().bytes) - start) as usize;
        if state.bytes.get() + len > state.bytes_max {
            state.give_up();
            return;
        }
        state.bytes.set(state.bytes.get() + len);
        state.copies.borrow_mut().extend(pieces.clone().map(|piece| (piece, Copied::Reading)));
        let read = self.device.read(start, len).await;
        if state.active.get() {
            match read {
                Ok(bytes) => {
                    let copies = bytes.chunks(PIECE as usize).map(|old| Copied::Here(old.into()));
                    state.copies.borrow_mut().extend(pieces.zip(copies));
                }
                // Contents that cannot be read cannot be kept; the write must succeed all the same,
                // so the snapshot is given up.
                Err(_) => state.give_up(),
            }
        }
        state.read.notify_all();
    }
}

impl State {
    /// Whether a piece has been copied; `None` if its copy has not begun.
    fn copied(&self, piece: u64) -> Option<bool> {
        self.copies.borrow().get(&piece).map(|copied| matches!(copied, Copied::Here(_)))
    }

    fn give_up(&self) {
        self.gone.set(true);
        self.end();
    }

    /// Whether no task will read the written part of a piece through the snapshot.
    fn is_spare(&self, piece: u64, written: &Range<u64>) -> bool {
        let start = written.start.max(piece * PIECE);
        let end = written.end.min((piece + 1) * PIECE);
        self.spare.borrow().as_ref().is_some_and(|spare| spare(start..end))
    }

    fn end(&self) {
        self.active.set(false);
        self.copies.borrow_mut().clear();
        self.bytes.set(0);
        self.spare.borrow_mut().take();
        self.read.notify_all();
    }
}

impl<D: BlockDevice> SnapshotReader<D> {
    /// Whether the snapshot was given up because memory ran out.
    pub fn is_gone(&self) -> bool {
        self.state.gone.get()
    }
}

impl<D: BlockDevice> BlockDevice for SnapshotReader<D> {
    fn geometry(&self) -> Geometry {
        Geometry { read_only: true, ..self.device.geometry() }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        let lost = BlockError { op: Operation::Read, offset, len, fault: Fault::Gone };
        if !self.state.active.get() {
            return Err(lost);
        }
        let mut bytes = self.device.read(offset, len).await?;
        if !self.state.active.get() {
            return Err(lost);
        }
        // The copies are looked up after the read: any write in the meantime made its copy before
        // it wrote.
        let copies = self.state.copies.borrow();
        let end = offset + len as u64;
        for piece in offset / PIECE..end.div_ceil(PIECE) {
            if let Some(Copied::Here(old)) = copies.get(&piece) {
                let start = piece * PIECE;
                let (from, to) = (offset.max(start), end.min(start + old.len() as u64));
                bytes[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&old[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(bytes)
    }

    async fn write(&self, offset: u64, data: IoBuf, _: WriteFlags) -> Result<(), BlockError> {
        self.geometry().check_write(Operation::Write, offset, data.len())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.geometry().check_write(Operation::Discard, offset, len as usize)
    }

    fn immediate(&self) -> bool {
        self.device.immediate()
    }
}

impl<D: BlockDevice> BlockDevice for SnapshotDevice<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.device.read(offset, len).await
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        if self.state.active.get() {
            self.device.geometry().check_write(Operation::Write, offset, data.len())?;
            self.preserve(offset..offset + data.len() as u64).await;
        }
        self.device.write(offset, data, flags).await
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        if self.state.active.get() {
            self.device.geometry().check_write(Operation::Write, offset, data.len())?;
            self.preserve(offset..offset + data.len() as u64).await;
        }
        self.device.write_list(offset, data, flags).await
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.device.flush().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        if self.state.active.get() {
            let whole = usize::try_from(len).unwrap_or(usize::MAX);
            self.device.geometry().check_write(Operation::Discard, offset, whole)?;
            self.preserve(offset..offset + len).await;
        }
        self.device.discard(offset, len).await
    }

    fn immediate(&self) -> bool {
        // A write waits only for a copy that another write has begun. If reads complete at once, no
        // such copy is under way.
        self.device.immediate()
    }
}

#[cfg(test)]
mod tests {
    use ordo_runtime::Executor;
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Model, Modeled};
    use crate::ram::RamDisk;

    const SECTORS: u64 = 80;

    proptest! {
        /// Writes anywhere, many at once, on a disk with its own timing and order, while the
        /// snapshot is read. The snapshot always shows all of the first contents; the device shows
        /// the writes. Catches a copy that is made too late, is torn, or is of the wrong piece.
        #[test]
        fn a_snapshot_never_changes(
            writes in prop::collection::vec((0u64..SECTORS, 1usize..20, any::<u8>()), 1..40),
            reads in prop::collection::vec((0u64..SECTORS, 1usize..20), 1..40),
            seed in 0u64..1000,
        ) {
            let executor = Executor::simulated(seed);
            let rt = executor.runtime();
            let ram = Rc::new(RamDisk::new(SECTORS * 512));
            let before: Vec<u8> = (0..SECTORS * 512).map(|i| (i / 7 + i / 512) as u8).collect();
            ram.store(0, &before);
            let model = Model::by_name("viking").expect("a model of ours");
            let modelled = Modeled::new(&rt, model, ram.clone());
            let device = Rc::new(SnapshotDevice::new(modelled, 1 << 20));
            let snapshot = Rc::new(device.snapshot());
            let cut = |at: u64, n: usize| (n as u64).min(SECTORS - at) as usize * 512;
            let mut tasks = Vec::new();
            for (at, n, byte) in writes.clone() {
                let (device, len) = (device.clone(), cut(at, n));
                tasks.push(rt.spawn("writer", async move {
                    let data = IoBuf::from_slice(&vec![byte; len]);
                    device.write(at * 512, data, WriteFlags::empty()).await.unwrap();
                }));
            }
            let checked = executor.block_on(async {
                for (at, n) in reads {
                    let len = cut(at, n);
                    let bytes = snapshot.read(at * 512, len).await.unwrap();
                    let start = at as usize * 512;
                    if bytes[..] != before[start..start + len] {
                        return false;
                    }
                }
                for task in tasks {
                    task.await;
                }
                snapshot.read(0, before.len()).await.unwrap()[..] == before[..]
            });
            prop_assert!(checked.unwrap());
            for (at, n, _) in &writes {
                let start = *at as usize * 512;
                let now = &ram.to_vec()[start..start + cut(*at, *n)];
                let last = |i: usize| writes.iter().any(|(a, m, byte)| {
                    let range = *a as usize * 512..*a as usize * 512 + cut(*a, *m);
                    range.contains(&(start + i)) && now[i] == *byte
                });
                prop_assert!((0..now.len()).step_by(512).all(last));
            }
        }
    }

    /// More copies than memory allows: the writer continues, the snapshot ends and reports it, and
    /// the memory is freed. Spared pieces take no memory at all.
    #[test]
    fn memory_is_bounded() {
        let executor = Executor::simulated(1);
        let write = |device: &SnapshotDevice<RamDisk>, piece: u64| {
            let data = IoBuf::from_slice(&[1; 512]);
            let write = device.write(piece * PIECE, data, WriteFlags::empty());
            executor.block_on(write).unwrap().unwrap();
        };
        let device = SnapshotDevice::new(RamDisk::new(16 * PIECE), 3 * PIECE as usize);
        let snapshot = device.snapshot();
        device.spare(|range| range.start >= 8 * PIECE);
        for piece in [0, 1, 2, 0, 1, 9, 10, 11, 12] {
            write(&device, piece);
        }
        assert_eq!(device.bytes(), 3 * PIECE as usize);
        assert!(executor.block_on(snapshot.read(0, 512)).unwrap().unwrap()[..] == [0; 512]);
        write(&device, 3);
        assert!(snapshot.is_gone() && device.bytes() == 0);
        let error = executor.block_on(snapshot.read(0, 512)).unwrap().unwrap_err();
        assert_eq!(error.fault, Fault::Gone);
        write(&device, 4);
        assert!(executor.block_on(device.read(4 * PIECE, 512)).unwrap().unwrap()[0] == 1);
    }

    /// A snapshot refuses writes.
    #[test]
    fn a_snapshot_is_read_only() {
        let executor = Executor::simulated(1);
        let snapshot = SnapshotDevice::new(RamDisk::new(1 << 16), 0).snapshot();
        let write = snapshot.write(0, IoBuf::from_slice(&[1; 512]), WriteFlags::empty());
        let error = executor.block_on(write).unwrap().unwrap_err();
        assert_eq!(error.fault, Fault::ReadOnly);
    }
}
