//! The two lists every buffer is in: the ring that eviction goes round, and, when dirty, the dirty
//! list, by age and by file.

use std::collections::BTreeMap;

use ordo_runtime::Time;
use rustc_hash::FxHashMap;

use crate::buffer::{BufKey, BufRef};

/// All buffers, in a ring: eviction goes round it and spares what was used since the last time.
#[derive(Default)]
pub(crate) struct Ring {
    slots: Vec<Option<BufRef>>,
    free: Vec<usize>,
    hand: usize,
}

impl Ring {
    pub(crate) fn insert(&mut self, buf: &BufRef) {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(buf.clone());
        buf.ring_slot.set(slot);
    }

    pub(crate) fn remove(&mut self, buf: &BufRef) {
        let slot = buf.ring_slot.replace(usize::MAX);
        if slot != usize::MAX {
            self.slots[slot] = None;
            self.free.push(slot);
        }
    }

    /// The next buffer that nobody holds, is clean, and was not used since the hand last passed.
    pub(crate) fn victim(&mut self) -> Option<BufRef> {
        for _ in 0..self.slots.len() * 2 {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(buf) = &self.slots[self.hand] else { continue };
            // Two references: the map's and the ring's.
            let idle = std::rc::Rc::strong_count(buf) == 2
                && !buf.is_dirty()
                && !buf.is_writing()
                && !buf.is_loading();
            if idle && !buf.referenced.replace(false) {
                return Some(buf.clone());
            }
        }
        None
    }
}

/// The dirty buffers.
#[derive(Default)]
pub(crate) struct DirtyList {
    by_age: BTreeMap<(Time, u64), BufRef>,
    by_file: FxHashMap<u64, BTreeMap<i64, BufRef>>,
    next: u64,
    bytes: usize,
}

impl DirtyList {
    pub(crate) fn insert(&mut self, buf: &BufRef, due: Time) {
        debug_assert!(!buf.is_dirty());
        self.next += 1;
        let place = (due, self.next);
        buf.dirty.set(Some(place));
        self.by_age.insert(place, buf.clone());
        let BufKey { file, block } = buf.key();
        self.by_file.entry(file).or_default().insert(block, buf.clone());
        self.bytes += buf.len();
    }

    pub(crate) fn remove(&mut self, buf: &BufRef) {
        let Some(place) = buf.dirty.take() else { return };
        self.by_age.remove(&place);
        let BufKey { file, block } = buf.key();
        if let Some(blocks) = self.by_file.get_mut(&file) {
            blocks.remove(&block);
            if blocks.is_empty() {
                self.by_file.remove(&file);
            }
        }
        self.bytes -= buf.len();
    }

    pub(crate) fn resized(&mut self, old: usize, new: usize) {
        self.bytes = self.bytes + new - old;
    }

    pub(crate) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest is due.
    pub(crate) fn first_due(&self) -> Option<Time> {
        self.by_age.keys().next().map(|(due, _)| *due)
    }

    /// Those due at `now`, oldest first.
    pub(crate) fn due(&self, now: Time) -> Vec<BufRef> {
        self.by_age.range(..=(now, u64::MAX)).map(|(_, b)| b.clone()).collect()
    }

    /// The oldest, up to `bytes` bytes of them.
    pub(crate) fn oldest(&self, bytes: usize) -> Vec<BufRef> {
        let mut left = bytes;
        let mut out = Vec::new();
        for buf in self.by_age.values() {
            out.push(buf.clone());
            left = left.saturating_sub(buf.len());
            if left == 0 {
                break;
            }
        }
        out
    }

    /// All, oldest first.
    pub(crate) fn all(&self) -> Vec<BufRef> {
        self.by_age.values().cloned().collect()
    }

    /// Those of one file, by logical block.
    pub(crate) fn of_file(&self, file: u64) -> Vec<BufRef> {
        self.by_file.get(&file).map_or_else(Vec::new, |m| m.values().cloned().collect())
    }

    /// The dirty buffer of `key`.
    pub(crate) fn get(&self, key: BufKey) -> Option<BufRef> {
        self.by_file.get(&key.file)?.get(&key.block).cloned()
    }
}
