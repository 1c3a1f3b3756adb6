//! Clearing inodes without a name that a crash under soft updates left: they were being removed.
//!
//! Source: soft-updates-2000, section 4.3 ("The fsck Utility"). The inodes are cleared only if
//! everything else is as soft updates leave it. If there is damage, a file without a name may have
//! been lost with its directory.

use ordo_block::BlockError;
use ordo_format::ufs2::dir::{self, DT_DIR};
use ordo_format::ufs2::{Group, bitmap};

use crate::Severity;
use crate::state::{DirInfo, ROOT, Run};

impl Run<'_> {
    /// Whether all findings, including those still to come, are ordinary after soft updates. Called
    /// after phase 2 and after the search for loops of directories, when nothing except those
    /// findings was repaired.
    pub fn is_ordinary(&self) -> bool {
        self.report.soft_updates
            && !self.report.counts.contains_key(&Severity::Damage)
            && self.bitmaps_hold()
            && self.links_suffice()
            && self.dirs.iter().all(|info| {
                let known = info.dotdot_at != 0;
                info.parent.is_none_or(|parent| !known || parent == info.dotdot)
                    || self.is_left_behind(info)
            })
    }

    /// Whether a directory may have lost its name in a rename: its old name was removed, and the
    /// new one, in a new directory, never reached the disk. Such a directory is empty, and not
    /// inside the root.
    fn is_left_behind(&self, info: &DirInfo) -> bool {
        let mut at = info;
        // Loops are damage and were cut, so the walk ends.
        for _ in 0..self.dirs.len() {
            let Some(parent) = at.parent else { break };
            at = &self.dirs[self.dir_of[&parent]];
        }
        info.entries == 0 && at.parent.is_none() && at.ino != ROOT
    }

    /// Whether no bitmap marks used space as free.
    fn bitmaps_hold(&self) -> bool {
        (0..self.sb.ncg).all(|cg| {
            let state = &self.groups[cg as usize];
            let Some(group) = &state.parsed else { return false };
            self.group_holds(cg, group)
        })
    }

    fn group_holds(&self, cg: u32, group: &Group) -> bool {
        let state = &self.groups[cg as usize];
        let layout = group.layout(&self.sb);
        let free = &state.header[layout.frags];
        let used = &state.header[layout.inodes];
        let ndblk = self.sb.cg_frags(cg);
        let bytes = ndblk as usize / 8;
        let is_wrong = |bit: u32| bitmap::is_set(free, bit) && !bitmap::is_set(&state.free, bit);
        free[..bytes].iter().zip(&state.free[..bytes]).all(|(stored, found)| stored & !found == 0)
            && !(bytes as u32 * 8..ndblk).any(is_wrong)
            && bitmap::next_set(free, ndblk, self.sb.fpg as u32).is_none()
            && state
                .inodes
                .iter()
                .enumerate()
                .all(|(i, info)| info.kind == 0 || bitmap::is_set(used, i as u32))
    }

    /// Whether no link count is below the number of names.
    fn links_suffice(&self) -> bool {
        let mut below = vec![0u32; self.dirs.len()];
        for info in &self.dirs {
            if let Some(parent) = info.parent {
                below[self.dir_of[&parent]] += 1;
            }
        }
        let of_directory = |(info, below): (&DirInfo, &u32)| {
            let links = self.info(info.ino).map_or(0, |inode| inode.links);
            // An inode without a name was already removed, and its link count with it.
            info.parent.is_none() || i64::from(links) >= 2 + i64::from(*below)
        };
        let files = self.groups.iter().flat_map(|group| &group.inodes);
        self.dirs.iter().zip(&below).all(of_directory)
            && files
                .filter(|info| info.kind != 0 && info.kind != DT_DIR)
                .all(|info| i64::from(info.links) >= i64::from(info.found))
    }

    /// Clears a directory without a name, and all directories below it. Files in them lose these
    /// names.
    pub async fn discard(&mut self, head: usize) -> Result<(), BlockError> {
        let mut pending = vec![(head, 0)];
        while let Some((idx, depth)) = pending.pop() {
            let ino = self.dirs[idx].ino;
            self.finding(self.unreferenced(idx));
            self.report.cleared_directories.push((ino, depth));
            for child in self.take_names(idx).await? {
                if self.dirs[child].parent == Some(ino) && self.dirs[child].alive {
                    pending.push((child, depth + 1));
                }
            }
            self.dirs[idx].alive = false;
            self.free_file(ino).await?;
        }
        Ok(())
    }

    /// Takes the names in a directory from their files. Returns the directories among them.
    async fn take_names(&mut self, idx: usize) -> Result<Vec<usize>, BlockError> {
        let mut below = Vec::new();
        for block in self.dirs[idx].blocks.clone() {
            let frags = self.sb.frags_for(block.bytes as u64);
            let bytes = self.io.read(block.addr, frags).await?;
            let start = block.lbn << self.sb.bshift;
            let end = (self.dirs[idx].size.saturating_sub(start)).min(block.bytes as u64) as usize;
            for entry in dir::entries(&bytes[..end], self.endian).filter_map(Result::ok) {
                if entry.is_free() || matches!(entry.name, b"." | b"..") {
                    continue;
                }
                if let Some(child) = self.dir_of.get(&entry.ino) {
                    below.push(*child);
                } else if let Some(info) = self.info_mut(entry.ino) {
                    info.found = info.found.saturating_sub(1);
                }
            }
        }
        Ok(below)
    }
}
