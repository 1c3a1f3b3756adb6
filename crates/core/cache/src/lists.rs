//! The two lists of buffers. Each buffer is in one of them: clean buffers in the order of eviction,
//! dirty ones by age and by file.

use std::collections::BTreeMap;

use ordo_runtime::Time;
use rustc_hash::FxHashMap;

use crate::buffer::{BufKey, BufRef};

/// The place of a buffer that is not in the list.
pub(crate) const NOWHERE: usize = usize::MAX;

struct Node {
    buf: Option<BufRef>,
    before: usize,
    after: usize,
}

/// The clean buffers, in the order in which eviction looks at them. A buffer that was used since
/// its last turn goes to the end instead of being evicted.
#[derive(Default)]
pub(crate) struct CleanList {
    nodes: Vec<Node>,
    free: Vec<usize>,
    /// The indices of the first and the last buffer, if there are any.
    ends: Option<(usize, usize)>,
    len: usize,
}

impl CleanList {
    /// Adds a buffer at the end.
    pub(crate) fn insert(&mut self, buf: &BufRef) {
        debug_assert_eq!(buf.clean_place.get(), NOWHERE);
        let place = self.free.pop().unwrap_or(self.nodes.len());
        let last = self.ends.map_or(NOWHERE, |(_, last)| last);
        let node = Node { buf: Some(buf.clone()), before: last, after: NOWHERE };
        if place == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[place] = node;
        }
        match self.ends {
            Some((first, last)) => {
                self.nodes[last].after = place;
                self.ends = Some((first, place));
            }
            None => self.ends = Some((place, place)),
        }
        buf.clean_place.set(place);
        self.len += 1;
    }

    /// Removes a buffer, if it is in the list.
    pub(crate) fn remove(&mut self, buf: &BufRef) {
        let place = buf.clean_place.replace(NOWHERE);
        if place == NOWHERE {
            return;
        }
        let Node { before, after, .. } = self.nodes[place];
        let (mut first, mut last) = self.ends.expect("the list has a buffer");
        match before {
            NOWHERE => first = after,
            _ => self.nodes[before].after = after,
        }
        match after {
            NOWHERE => last = before,
            _ => self.nodes[after].before = before,
        }
        self.ends = (first != NOWHERE).then_some((first, last));
        self.nodes[place].buf = None;
        self.free.push(place);
        self.len -= 1;
    }

    /// The next buffer to evict: one that is not in use, and was not used since its last turn.
    pub(crate) fn victim(&mut self) -> Option<BufRef> {
        for _ in 0..2 * self.len {
            let (first, _) = self.ends?;
            let buf = self.nodes[first].buf.clone().expect("a place in the list holds a buffer");
            // Three references belong to the map, the list and this function.
            let busy = std::rc::Rc::strong_count(&buf) > 3 || buf.is_writing() || buf.is_loading();
            if !busy && !buf.referenced.replace(false) {
                return Some(buf);
            }
            self.remove(&buf);
            self.insert(&buf);
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
        buf.due_since.set(None);
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

    pub(crate) fn set_due(&mut self, buf: &BufRef, due: Time) {
        let Some(place) = buf.dirty.get() else { return };
        let Some(buf) = self.by_age.remove(&place) else { return };
        self.next += 1;
        let place = (due, self.next);
        buf.dirty.set(Some(place));
        self.by_age.insert(place, buf);
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

    /// The time at which the oldest is due.
    pub(crate) fn first_due(&self) -> Option<Time> {
        self.by_age.keys().next().map(|(due, _)| *due)
    }

    /// The buffers that are due at `now`, oldest first.
    pub(crate) fn due(&self, now: Time) -> Vec<BufRef> {
        self.by_age.range(..=(now, u64::MAX)).map(|(_, b)| b.clone()).collect()
    }

    /// The oldest buffers that `fit`, up to `bytes` bytes in all, among the first `looks`.
    pub(crate) fn oldest(
        &self,
        bytes: usize,
        looks: usize,
        fit: impl Fn(&BufRef) -> bool,
    ) -> Vec<BufRef> {
        let mut left = bytes;
        let mut out = Vec::new();
        for buf in self.by_age.values().take(looks).filter(|b| fit(b)) {
            out.push(buf.clone());
            left = left.saturating_sub(buf.len());
            if left == 0 {
                break;
            }
        }
        out
    }

    /// All buffers, oldest first.
    pub(crate) fn all(&self) -> Vec<BufRef> {
        self.by_age.values().cloned().collect()
    }

    /// The buffers of one file, by logical block.
    pub(crate) fn of_file(&self, file: u64) -> Vec<BufRef> {
        self.by_file.get(&file).map_or_else(Vec::new, |m| m.values().cloned().collect())
    }

    /// The dirty buffer of `key`.
    pub(crate) fn get(&self, key: BufKey) -> Option<BufRef> {
        self.by_file.get(&key.file)?.get(&key.block).cloned()
    }
}
