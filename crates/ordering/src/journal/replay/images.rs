//! What a log says of the blocks in a window of the device: one image for each, byte by byte.
//!
//! Records come in the order of the log. What is repeated replaces what was there; what is undone goes to bytes
//! that nothing is known of yet: the first undone change of a byte has what was there before all of them. So one
//! pass over the log, from its start to its end, leaves what a pass back and a pass on would.
//!
//! Memory is bounded: where images take more than they may, those with the highest addresses are given up, and the
//! window ends there. The next pass begins where this one ended.

use std::collections::BTreeMap;
use std::ops::Range;

use ordo_log::record;

use crate::Image;

/// What a unit takes beside its bytes and masks, in bytes: its place in the map.
const UNIT_OVERHEAD: usize = 128;

/// Bytes of a unit, each of which is in it or is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask {
    words: Vec<u64>,
    /// How many are in it.
    count: usize,
}

impl Mask {
    fn new(len: usize) -> Mask {
        Mask { words: vec![0; len.div_ceil(64)], count: 0 }
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// The bits of each word that a range has in it.
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

/// What is known of a unit: a piece of the device that is finished as one.
#[derive(Debug)]
pub(super) struct Unit {
    /// Where it ends on the device.
    pub(super) end: u64,
    /// Its bytes; what is not known is anything.
    pub(super) bytes: Vec<u8>,
    pub(super) known: Mask,
    /// Bytes that stay as they are on the device whatever is undone: their block was new.
    kept: Option<Mask>,
    /// The end of the last record that is repeated in it.
    last: u64,
    /// Something in it is undone.
    is_undone: bool,
}

impl Unit {
    fn new(start: u64, end: u64) -> Unit {
        let len = (end - start) as usize;
        let (bytes, known) = (vec![0; len], Mask::new(len));
        Unit { end, bytes, known, kept: None, last: 0, is_undone: false }
    }

    /// Whether all of it is known: what is on the device does not matter.
    pub(super) fn is_whole(&self) -> bool {
        self.known.count == self.bytes.len()
    }

    /// Whether nothing of it is to be changed.
    pub(super) fn is_empty(&self) -> bool {
        self.known.count == 0
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.bytes.len() / 4 + UNIT_OVERHEAD
    }

    /// Puts what is known of it over what the device has of it.
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

/// The images of one pass.
pub(super) struct Images<'a> {
    image: &'a dyn Image,
    /// The device's end.
    bytes: u64,
    /// The part of the device that this pass is about; its end is lowered where memory is short.
    window: Range<u64>,
    memory_max: usize,
    memory: usize,
    units: BTreeMap<u64, Unit>,
}

impl<'a> Images<'a> {
    /// None yet, of a window that ends where the device does.
    pub(super) fn new(image: &'a dyn Image, window: Range<u64>, memory_max: usize) -> Images<'a> {
        let (bytes, units) = (window.end, BTreeMap::new());
        Images { image, bytes, window, memory_max, memory: 0, units }
    }

    /// What they take, in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// All of them, by address, and where the next window begins.
    pub(super) fn finish(self) -> (BTreeMap<u64, Unit>, u64) {
        (self.units, self.window.end)
    }

    /// Calls `each` with every unit that `len` bytes at `at` are in, as far as they are in the window: with the range
    /// in the unit, and where that begins in the bytes.
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

    /// Lowers the end of the window until what is in it fits, one unit at least.
    fn give_up(&mut self) {
        while self.memory > self.memory_max
            && self.units.len() > 1
            && let Some((start, unit)) = self.units.pop_last()
        {
            self.memory -= unit.memory();
            self.window.end = start;
        }
    }

    /// Repeats: these bytes were put there by a record that ends at `lsn`.
    pub(super) fn redo(&mut self, at: u64, bytes: &[u8], lsn: u64) {
        self.visit(at, bytes.len(), |unit, range, from| {
            unit.bytes[range.clone()].copy_from_slice(&bytes[from..from + range.len()]);
            unit.known.set(range);
            unit.last = lsn;
        });
    }

    /// Repeats: a block, or part of one, was made anew by a record that ends at `lsn`.
    pub(super) fn redo_whole(&mut self, at: u64, len: usize, image: record::Image<'_>, lsn: u64) {
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

    /// Undoes: these bytes were there before; `None`: zeros.
    pub(super) fn undo(&mut self, at: u64, len: usize, old: Option<&[u8]>) {
        self.visit(at, len, |unit, range, from| {
            unit.is_undone = true;
            for (i, at) in range.enumerate() {
                let is_kept = unit.kept.as_ref().is_some_and(|kept| kept.has(at));
                if !is_kept && !unit.known.has(at) {
                    unit.bytes[at] = old.map_or(0, |old| old[from + i]);
                    unit.known.set(at..at + 1);
                }
            }
        });
    }

    /// A block was new in what is undone: it belonged to nobody before, or to somebody who has it back. What was done to
    /// it has not been written, or does not matter.
    pub(super) fn keep(&mut self, at: u64, len: usize) {
        self.visit(at, len, |unit, range, _| {
            let len = unit.bytes.len();
            unit.kept.get_or_insert_with(|| Mask::new(len)).set(range);
        });
    }

    /// The block was freed: what came before about it is void.
    pub(super) fn revoke(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        for start in self.in_range(at, end) {
            let unit = self.units.get_mut(&start).expect("just found");
            let (from, to) = (at.max(start), end.min(unit.end));
            unit.known.clear((from - start) as usize..(to - start) as usize);
            self.drop_if_empty(start);
        }
    }

    /// What records that end at `lsn` at most say of the block is on the device.
    pub(super) fn placed(&mut self, at: u64, len: u64, lsn: u64) {
        let end = at.saturating_add(len);
        for start in self.in_range(at, end) {
            let unit = self.units.get_mut(&start).expect("just found");
            let is_all = start >= at && unit.end <= end;
            // What was undone stays so: the device may hold what it was before that.
            if is_all && unit.last <= lsn && !unit.is_undone {
                unit.known.clear(0..unit.bytes.len());
                self.drop_if_empty(start);
            }
        }
    }

    /// The units that a range of the device is in.
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
