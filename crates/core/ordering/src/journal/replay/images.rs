//! The images of blocks in a window of the device, built from the log byte by byte: one image for
//! each block.
//!
//! Records come in the order of the log. Bytes that are redone replace those in the image. Old
//! bytes of a change that is rolled back go only to bytes that the image does not know yet: the
//! first such change of a byte has the value from before all of them. So one pass over the log,
//! from its start to its end, has the result of a backward (undo) and a forward (redo) pass.
//!
//! Memory is bounded. When the images need more than is allowed, those with the highest addresses
//! are dropped, and the window ends before them. The next pass over the log begins at that address.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Image;
use crate::journal::record;

/// The memory of a unit beside its bytes and masks, in bytes: its place in the map.
const UNIT_OVERHEAD: usize = 128;

/// A set of a unit's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask {
    words: Vec<u64>,
    /// The number of bytes in the set.
    count: usize,
}

impl Mask {
    fn new(len: usize) -> Mask {
        Mask { words: vec![0; len.div_ceil(64)], count: 0 }
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// Calls `each` with every word that a range touches, and the range's bits in it.
    fn each(range: Range<usize>, mut each: impl FnMut(usize, u64)) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / 64 + 1) * 64);
            let low = u64::MAX << (at % 64);
            let high = u64::MAX >> (63 - (end - 1) % 64);
            each(at / 64, low & high);
            at = end;
        }
    }

    fn set(&mut self, range: Range<usize>) {
        Mask::each(range, |word, bits| {
            self.count += (bits & !self.words[word]).count_ones() as usize;
            self.words[word] |= bits;
        });
    }

    fn clear(&mut self, range: Range<usize>) {
        Mask::each(range, |word, bits| {
            self.count -= (bits & self.words[word]).count_ones() as usize;
            self.words[word] &= !bits;
        });
    }
}

/// The known bytes of a unit: a range of the device that one check-hash seals.
#[derive(Debug)]
pub(super) struct Unit {
    /// The unit's end on the device.
    pub(super) end: u64,
    /// The unit's bytes. Bytes that are not known have any value.
    pub(super) bytes: Vec<u8>,
    pub(super) known: Mask,
    /// Bytes that rollbacks leave as they are on the device, because their block was new.
    kept: Option<Mask>,
    /// The LSN behind the last record that is redone in the unit.
    last: u64,
    /// Whether something in the unit is rolled back.
    is_rolled_back: bool,
}

impl Unit {
    fn new(start: u64, end: u64) -> Unit {
        let len = (end - start) as usize;
        let (bytes, known) = (vec![0; len], Mask::new(len));
        Unit { end, bytes, known, kept: None, last: 0, is_rolled_back: false }
    }

    /// Whether all bytes are known, so that the unit need not be read from the device.
    pub(super) fn is_whole(&self) -> bool {
        self.known.count == self.bytes.len()
    }

    /// Whether no byte of the unit has to change.
    pub(super) fn is_empty(&self) -> bool {
        self.known.count == 0
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.bytes.len() / 4 + UNIT_OVERHEAD
    }

    /// Copies the known bytes over the device's.
    pub(super) fn put_over(&self, place: &mut [u8]) {
        if self.is_whole() {
            place.copy_from_slice(&self.bytes);
            return;
        }
        for (at, byte) in place.iter_mut().enumerate() {
            if self.known.has(at) {
                *byte = self.bytes[at];
            }
        }
    }
}

/// The images that one pass over the log makes.
pub(super) struct Images<'a> {
    image: &'a dyn Image,
    /// The device's end.
    bytes: u64,
    /// The part of the device that this pass covers. Its end is lowered where memory is short.
    window: Range<u64>,
    memory_max: usize,
    memory: usize,
    units: BTreeMap<u64, Unit>,
}

impl<'a> Images<'a> {
    /// Starts a pass without images. Its window ends at the end of the device.
    pub(super) fn new(image: &'a dyn Image, window: Range<u64>, memory_max: usize) -> Images<'a> {
        let (bytes, units) = (window.end, BTreeMap::new());
        Images { image, bytes, window, memory_max, memory: 0, units }
    }

    /// The images' memory, in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// All units, by address, and the start of the next window.
    pub(super) fn finish(self) -> (BTreeMap<u64, Unit>, u64) {
        (self.units, self.window.end)
    }

    /// Calls `each` for every unit in the window that shares bytes with the `len` bytes at `at`. It
    /// gets the shared range of the unit, and the index of the range's first byte within the `len`
    /// bytes.
    fn visit(&mut self, at: u64, len: usize, mut each: impl FnMut(&mut Unit, Range<usize>, usize)) {
        let end = at.saturating_add(len as u64).min(self.window.end);
        let mut next = at.max(self.window.start);
        while next < end {
            let found = self.image.unit(next);
            let (start, stop) = (found.start, found.end.max(next + 1).min(self.bytes));
            let till = end.min(stop);
            if start >= self.window.start {
                let memory = &mut self.memory;
                let unit = self.units.entry(start).or_insert_with(|| {
                    let unit = Unit::new(start, stop);
                    *memory += unit.memory();
                    unit
                });
                let range = (next - start) as usize..(till - start) as usize;
                each(unit, range, (next - at) as usize);
            }
            next = till;
            self.give_up();
            if next >= self.window.end {
                break;
            }
        }
    }

    /// Lowers the end of the window until its images fit in memory, or one unit is left.
    fn give_up(&mut self) {
        while self.memory > self.memory_max
            && self.units.len() > 1
            && let Some((start, unit)) = self.units.pop_last()
        {
            self.memory -= unit.memory();
            self.window.end = start;
        }
    }

    /// Redoes a change: the record that ends at `lsn` wrote these bytes there.
    pub(super) fn redo(&mut self, at: u64, bytes: &[u8], lsn: u64) {
        self.visit(at, bytes.len(), |unit, range, from| {
            unit.bytes[range.clone()].copy_from_slice(&bytes[from..from + range.len()]);
            unit.known.set(range);
            unit.last = lsn;
        });
    }

    /// Redoes first contents: the record that ends at `lsn` describes a new block, or a part of
    /// one.
    pub(super) fn redo_whole(
        &mut self,
        at: u64,
        len: usize,
        image: record::ImageRecord<'_>,
        lsn: u64,
    ) {
        self.visit(at, len, |unit, range, _| {
            unit.bytes[range.clone()].fill(0);
            unit.known.set(range);
            unit.last = lsn;
        });
        image.runs(|offset, bytes| {
            let most = len.saturating_sub(offset).min(bytes.len());
            if most > 0 {
                self.redo(at.saturating_add(offset as u64), &bytes[..most], lsn);
            }
        });
    }

    /// Rolls back a change: `old` are the bytes from before it; `None` stands for zeros.
    pub(super) fn undo(&mut self, at: u64, len: usize, old: Option<&[u8]>) {
        self.visit(at, len, |unit, range, from| {
            unit.is_rolled_back = true;
            for (i, at) in range.enumerate() {
                let is_kept = unit.kept.as_ref().is_some_and(|kept| kept.has(at));
                if !is_kept && !unit.known.has(at) {
                    unit.bytes[at] = old.map_or(0, |old| old[from + i]);
                    unit.known.set(at..at + 1);
                }
            }
        });
    }

    /// Notes a block that was new in an operation that is rolled back. Before that, the block was
    /// free, or belonged to an owner that now has it back. The device has the old contents, since a
    /// new block is not written before it is certain.
    pub(super) fn keep(&mut self, at: u64, len: usize) {
        self.visit(at, len, |unit, range, _| {
            let len = unit.bytes.len();
            unit.kept.get_or_insert_with(|| Mask::new(len)).set(range);
        });
    }

    /// Notes that the block was freed: earlier records about it are void.
    pub(super) fn revoke(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        for start in self.in_range(at, end) {
            let unit = self.units.get_mut(&start).expect("just found");
            let (from, to) = (at.max(start), end.min(unit.end));
            unit.known.clear((from - start) as usize..(to - start) as usize);
            self.drop_if_empty(start);
        }
    }

    /// Notes that the device has all changes of the block from records up to `lsn`.
    pub(super) fn placed(&mut self, at: u64, len: u64, lsn: u64) {
        let end = at.saturating_add(len);
        for start in self.in_range(at, end) {
            let unit = self.units.get_mut(&start).expect("just found");
            let is_all = start >= at && unit.end <= end;
            // Rolled-back bytes stay in the image, since the device may hold the bytes from before
            // the rollback.
            if is_all && unit.last <= lsn && !unit.is_rolled_back {
                unit.known.clear(0..unit.bytes.len());
                self.drop_if_empty(start);
            }
        }
    }

    /// The units that share bytes with a range of the device.
    fn in_range(&self, at: u64, end: u64) -> Vec<u64> {
        let before = self.units.range(..at).next_back().filter(|(_, unit)| unit.end > at);
        let inside = self.units.range(at..end.max(at));
        before.into_iter().chain(inside).map(|(start, _)| *start).collect()
    }

    fn drop_if_empty(&mut self, start: u64) {
        let is_empty = |unit: &Unit| unit.known.count == 0 && unit.kept.is_none();
        if self.units.get(&start).is_some_and(is_empty)
            && let Some(unit) = self.units.remove(&start)
        {
            self.memory -= unit.memory();
        }
    }
}
