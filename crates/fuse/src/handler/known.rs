//! What the kernel knows: how often it was told of each inode, and has not forgotten it.

use std::cell::RefCell;

use ordo_vfs::Ino;
use rustc_hash::FxHashMap;

#[derive(Default)]
pub(crate) struct Known {
    counts: RefCell<FxHashMap<Ino, u64>>,
}

impl Known {
    /// One more. Whether it is the first.
    pub(crate) fn add(&self, ino: Ino) -> bool {
        let mut counts = self.counts.borrow_mut();
        let count = counts.entry(ino).or_insert(0);
        *count += 1;
        *count == 1
    }

    /// All that are known, in order; they are forgotten.
    pub(crate) fn take(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.counts.take().into_keys().collect();
        all.sort_unstable();
        all
    }

    /// So many less. Whether none is left.
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
