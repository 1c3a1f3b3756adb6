//! Files whose contents can be found on disk as they are in memory, so that an `fdatasync` need
//! write contents only.
//!
//! A file is settled when it has been made durable. Any later change of its size or of a pointer
//! to its blocks ends that; a change of its times, owner or permissions does not. Files of which
//! nothing is known are not settled.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;

use crate::What;

/// The most files that are remembered. Beyond that all are forgotten, which costs each of them one
/// write of its inode.
const FILES_MAX: usize = 1 << 14;

/// The files that are settled.
#[derive(Debug, Default)]
pub struct Settled {
    /// For each file the number of the sync that settled it, or that may do so; and whether that
    /// one has ended.
    files: RefCell<FxHashMap<u64, (u64, bool)>>,
    syncs: Cell<u64>,
}

/// A sync of a file that has begun.
#[derive(Debug)]
#[must_use = "a sync that succeeds settles the file"]
pub struct Settling {
    ino: u64,
    number: u64,
}

impl Settled {
    /// Whether a file's inode and indirect blocks on disk lead to all of its contents.
    pub fn has(&self, ino: u64) -> bool {
        self.files.borrow().get(&ino).is_some_and(|(_, ended)| *ended)
    }

    /// Notes that a sync of a file begins.
    pub fn begin(&self, ino: u64) -> Settling {
        let number = self.syncs.get() + 1;
        self.syncs.set(number);
        let mut files = self.files.borrow_mut();
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.insert(ino, (number, false));
        Settling { ino, number }
    }

    /// Notes that a sync has made its file durable. The file is not settled if it has changed
    /// meanwhile.
    pub fn end(&self, sync: Settling) {
        if let Some((number, ended)) = self.files.borrow_mut().get_mut(&sync.ino) {
            *ended |= *number == sync.number;
        }
    }

    /// Notes a change. `size_counts`: a change of the size alone ends that a file is settled, as it
    /// must.
    pub(crate) fn note(&self, what: &What<'_>, size_counts: bool) {
        let mut files = self.files.borrow_mut();
        if files.is_empty() {
            return;
        }
        match *what {
            What::SetSize { old, new, .. } if old == new || !size_counts => {}
            What::SetSize { ino, .. }
            | What::SetPointer { ino, .. }
            | What::ClearPointers { ino }
            | What::SetBlockCount { ino, .. }
            | What::InitInode { ino }
            | What::ClearInode { ino }
            | What::FreeInode { ino } => {
                files.remove(&ino);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that was made durable is settled until its size or a pointer changes; a change of
    /// its times leaves it settled, and a change during a sync counts. Would catch an fdatasync
    /// that leaves out the size of a file that grew while it was being made durable.
    #[test]
    fn a_change_of_size_during_or_after_a_sync_counts() {
        let settled = Settled::default();
        let size = |old, new| What::SetSize { ino: 7, old, new, directory: false };
        let sync = || settled.end(settled.begin(7));
        assert!(!settled.has(7));
        sync();
        settled.note(&What::SetAttributes { ino: 7 }, true);
        settled.note(&size(5, 5), true);
        settled.note(&What::ClearPointers { ino: 8 }, true);
        assert!(settled.has(7));
        settled.note(&size(5, 6), true);
        assert!(!settled.has(7));
        let begun = settled.begin(7);
        settled.note(&size(6, 7), true);
        settled.end(begun);
        assert!(!settled.has(7));
        sync();
        settled.note(&size(7, 8), false);
        assert!(settled.has(7), "the rule is off");
        settled.note(&What::ClearPointers { ino: 7 }, false);
        assert!(!settled.has(7));
    }

    /// Memory stays within its bound, and a file that was forgotten is not settled.
    #[test]
    fn too_many_files_are_forgotten() {
        let settled = Settled::default();
        for ino in 0..=FILES_MAX as u64 {
            settled.end(settled.begin(ino));
        }
        assert!(!settled.has(0) && settled.has(FILES_MAX as u64));
        assert!(settled.files.borrow().len() <= FILES_MAX);
    }
}
