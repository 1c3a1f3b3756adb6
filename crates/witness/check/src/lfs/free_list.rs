//! Pass 0: the free list of inodes.

use ordo_format::lfs::{NO_ADDRESS, ROOT_INO};

use super::LfsFinding;
use super::state::LfsRun;

impl LfsRun<'_> {
    /// Follows the list. Every free inode must be on it once, and no other inode.
    pub(super) fn check_free_list(&mut self) {
        let count = self.inode_count();
        let mut seen = vec![false; count as usize];
        let (mut at, mut last) = (self.sb.freehd, 0);
        let before = self.report.counts.clone();
        while at != 0 {
            if at >= count || at <= ROOT_INO {
                self.report.add(LfsFinding::FreeListRange { ino: at });
                break;
            }
            if std::mem::replace(&mut seen[at as usize], true) {
                self.report.add(LfsFinding::FreeListCycle { ino: at });
                break;
            }
            let entry = self.entry(at);
            if entry.daddr != NO_ADDRESS {
                self.report.add(LfsFinding::UsedOnFreeList { ino: at });
            }
            last = at;
            at = entry.nextfree;
        }
        for ino in ROOT_INO + 1..count {
            let entry = self.entry(ino);
            if entry.daddr == NO_ADDRESS && !seen[ino as usize] {
                self.report.add(LfsFinding::NotOnFreeList { ino });
            }
        }
        let info = self.cleaner_info();
        if before == self.report.counts {
            let ends = [
                ("free_head", info.free_head, self.sb.freehd),
                ("free_tail", info.free_tail, last),
            ];
            for (field, stored, right) in ends.into_iter().filter(|(_, s, r)| s != r) {
                self.report.add(LfsFinding::FreeListEnds { field, stored, right });
            }
        }
        self.relist |= before != self.report.counts;
    }

    /// Builds the list again, with all free inodes in order.
    pub(super) fn make_free_list(&mut self) {
        let free: Vec<u64> = (ROOT_INO + 1..self.inode_count())
            .filter(|ino| self.entry(*ino).daddr == NO_ADDRESS)
            .collect();
        for (i, ino) in free.iter().enumerate() {
            let mut entry = self.entry(*ino);
            entry.nextfree = free.get(i + 1).copied().unwrap_or(0);
            self.set_entry(*ino, &entry);
        }
        let mut info = self.cleaner_info();
        info.free_head = free.first().copied().unwrap_or(0);
        info.free_tail = free.last().copied().unwrap_or(0);
        self.set_cleaner_info(&info);
        self.sb.freehd = info.free_head;
        self.sb_changed = true;
    }
}
