//! Phase 4: link counts are compared with the number of names.

use ordo_block::BlockError;
use ordo_format::ufs2::dir::DT_DIR;
use ordo_format::ufs2::inode::LINK_MAX;

use crate::state::{ROOT, Run};
use crate::{CheckPhase, Finding};

impl Run<'_> {
    /// Compares link counts, and finds places for files without a name.
    pub async fn check_references(&mut self) -> Result<(), BlockError> {
        let groups = self.groups.len();
        // A file that is moved to lost+found changes no other file's count, so one pass over the
        // files is enough. Directories, lost+found among them, are counted last.
        for cg in 0..groups {
            self.tell(CheckPhase::References, cg, groups);
            for within in 0..self.groups[cg].inodes.len() {
                let info = self.groups[cg].inodes[within];
                if info.kind != 0 && info.kind != DT_DIR {
                    let ino = cg as u32 * self.sb.ipg + within as u32;
                    self.check_file(ino, info.kind).await?;
                }
            }
        }
        self.count_directories();
        for idx in 0..self.dirs.len() {
            // A directory that could not be connected stays as it is, because it was reported
            // already.
            let is_in_tree = self.dirs[idx].parent.is_some() || self.dirs[idx].ino == ROOT;
            if self.dirs[idx].alive && is_in_tree {
                self.check_count(self.dirs[idx].ino).await?;
            }
        }
        self.tell(CheckPhase::References, groups, groups);
        Ok(())
    }

    async fn check_file(&mut self, ino: u32, kind: u8) -> Result<(), BlockError> {
        let info = *self.info(ino).expect("in use");
        if info.found == 0 {
            if info.links == 0 {
                self.finding(Finding::UnlinkedInode { ino });
                return self.free_file(ino).await;
            }
            let empty = self.is_empty_file(ino);
            let links = info.links.into();
            // This check may have removed the last name of the inode.
            if !self.relinked.contains(&ino) {
                self.finding(Finding::UnreferencedInode { ino, links, empty });
            }
            if empty || self.report.cleared {
                return self.free_file(ino).await;
            }
            if !self.put_file_in_lost(ino, kind).await? {
                self.finding(Finding::NoPlace { ino });
                return self.free_file(ino).await;
            }
            self.relinked.insert(ino);
        }
        self.check_count(ino).await
    }

    /// Counts the names of directories: `.`, the entry, and a `..` for each directory inside.
    fn count_directories(&mut self) {
        let alive: Vec<_> = self
            .dirs
            .iter()
            .filter(|info| info.alive)
            .map(|info| (info.ino, if info.ino == ROOT { None } else { info.parent }))
            .collect();
        for (ino, parent) in alive {
            self.info_mut(ino).expect("in use").found += 2;
            if let Some(parent) = parent {
                self.info_mut(parent).expect("in use").found += 1;
            }
        }
    }

    /// Compares one inode's link count with its names.
    async fn check_count(&mut self, ino: u32) -> Result<(), BlockError> {
        let info = *self.info(ino).expect("in use");
        let (stored, found) = (i32::from(info.links), info.found);
        if found > LINK_MAX {
            self.finding(Finding::TooManyLinks { ino, found });
        } else if i64::from(stored) == i64::from(found) {
            return Ok(());
        } else if !self.relinked.contains(&ino) {
            let finding = match i64::from(stored) > i64::from(found) {
                true => Finding::LinkCountHigh { ino, stored, found },
                false => Finding::LinkCountLow { ino, stored, found },
            };
            self.finding(finding);
        }
        let mut node = self.load_inode(ino).await?;
        node.nlink = found.min(LINK_MAX) as u16;
        self.store_inode(ino, &node).await
    }
}
