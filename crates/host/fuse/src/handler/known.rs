//! The inodes that the kernel knows, each with its number of references that the kernel has not
//! forgotten.

use std::cell::RefCell;

use ordo_vfs::Ino;
use rustc_hash::FxHashMap;

#[derive(Default)]
pub(crate) struct Known {
    counts: RefCell<FxHashMap<Ino, u64>>,
}

impl Known {
    /// Adds a reference. Returns whether it is the first.
    pub(crate) fn add(&self, ino: Ino) -> bool {
        let mut counts = self.counts.borrow_mut();
        let count = counts.entry(ino).or_insert(0);
        *count += 1;
        *count == 1
    }

    /// Takes all known inodes, in order.
    pub(crate) fn take(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.counts.take().into_keys().collect();
        all.sort_unstable();
        all
    }

    /// Removes `by` references. Returns whether none is left.
    pub(crate) fn remove(&self, ino: Ino, by: u64) -> bool {
        let mut counts = self.counts.borrow_mut();
        let Some(count) = counts.get_mut(&ino) else { return false };
        *count = count.saturating_sub(by);
        if *count > 0 {
            return false;
        }
        counts.remove(&ino);
        true
    }
}
