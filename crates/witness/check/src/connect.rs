//! Phase 3: every directory must be inside the root.

use ordo_block::BlockError;
use ordo_format::ufs2::dir;

use crate::state::{DirInfo, ROOT, Run};
use crate::{CheckPhase, Finding};

/// The state of the walk up from a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkState {
    Unknown,
    /// The directory is on the walk under way.
    Current,
    /// The walk ends at the root, or at a directory whose end is known.
    Ends,
}

impl Run<'_> {
    /// The finding for a directory that is in no directory.
    pub fn unreferenced(&self, idx: usize) -> Finding {
        let DirInfo { ino, entries, size, .. } = self.dirs[idx];
        let links = self.info(ino).map_or(0, |inode| inode.links);
        let (empty, uncounted) = (entries == 0, size > 0 && links == 0);
        Finding::UnreferencedDirectory { ino, empty, uncounted }
    }

    /// Finds directories outside the root, and moves them to lost+found or clears them.
    pub async fn check_connectivity(&mut self) -> Result<(), BlockError> {
        self.tell(CheckPhase::Connectivity, 0, self.dirs.len());
        let heads = self.find_heads().await?;
        self.check_parents_that_were(&heads);
        self.report.cleared = self.is_ordinary();
        for (idx, in_loop) in heads {
            if self.report.cleared {
                self.discard(idx).await?;
                continue;
            }
            let ino = self.dirs[idx].ino;
            let empty = self.dirs[idx].entries == 0;
            if !in_loop {
                self.finding(self.unreferenced(idx));
            }
            // The link count of its earlier parent includes its `..`.
            self.relinked.insert(self.dirs[idx].dotdot);
            self.relinked.insert(ino);
            if empty {
                self.dirs[idx].alive = false;
                self.free_file(ino).await?;
            } else {
                self.move_to_lost(idx).await?;
            }
        }
        self.fix_parents().await?;
        self.tell(CheckPhase::Connectivity, self.dirs.len(), self.dirs.len());
        Ok(())
    }

    /// Checks that the `..` of a directory without a name leads to a directory, or to a free inode.
    /// It leads to a free inode if its parent was removed and cleared first.
    fn check_parents_that_were(&mut self, heads: &[(usize, bool)]) {
        for (idx, _) in heads.iter().filter(|(_, in_loop)| !in_loop) {
            let DirInfo { ino, dotdot: stored, dotdot_at, moved, .. } = self.dirs[*idx];
            let known = dotdot_at != 0 && !moved && self.sb.has_inode(stored.into());
            if known && self.is_used(stored) && !self.dir_of.contains_key(&stored) {
                self.finding(Finding::DotDotNoDirectory { ino, stored });
            }
        }
    }

    /// The topmost directories outside the root. The boolean tells whether a loop was cut there.
    async fn find_heads(&mut self) -> Result<Vec<(usize, bool)>, BlockError> {
        let mut ways = vec![WalkState::Unknown; self.dirs.len()];
        let mut heads = Vec::new();
        for start in 0..self.dirs.len() {
            let mut path = Vec::new();
            let mut at = start;
            loop {
                match ways[at] {
                    WalkState::Ends => break,
                    WalkState::Current => {
                        let from = path.iter().position(|idx| *idx == at).expect("on the path");
                        heads.push((self.break_loop(&path[from..]).await?, true));
                        break;
                    }
                    WalkState::Unknown => {}
                }
                ways[at] = WalkState::Current;
                path.push(at);
                match self.dirs[at].parent {
                    Some(parent) => at = self.dir_of[&parent],
                    None if self.dirs[at].ino == ROOT => break,
                    None => {
                        heads.push((at, false));
                        break;
                    }
                }
            }
            path.iter().for_each(|idx| ways[*idx] = WalkState::Ends);
        }
        heads.sort_by_key(|(idx, _)| self.dirs[*idx].ino);
        Ok(heads)
    }

    /// Takes a directory out of a loop: preferably one whose `..` leads to a parent elsewhere,
    /// otherwise the one with the lowest number.
    async fn break_loop(&mut self, path: &[usize]) -> Result<usize, BlockError> {
        let order = |idx: &&usize| {
            let info = &self.dirs[**idx];
            (info.parent == Some(info.dotdot), info.ino)
        };
        let idx = *path.iter().min_by_key(order).expect("a loop has members");
        let ino = self.dirs[idx].ino;
        self.finding(Finding::DirectoryLoop { ino });
        let parent = self.dirs[idx].parent.take().expect("in a loop");
        self.dirs[self.dir_of[&parent]].entries -= 1;
        self.relinked.insert(parent);
        self.remove_entry_at(self.dirs[idx].entry_at).await?;
        Ok(idx)
    }

    /// Corrects every `..` to the directory's parent.
    async fn fix_parents(&mut self) -> Result<(), BlockError> {
        for idx in 0..self.dirs.len() {
            let info = &self.dirs[idx];
            let (ino, stored, moved) = (info.ino, info.dotdot, info.moved);
            let parent = if ino == ROOT { Some(ROOT) } else { info.parent };
            // A directory without any block has no `..` either.
            let is_wrong = |parent: &u32| *parent != stored && info.dotdot_at != 0;
            let Some(parent) = parent.filter(|parent| info.alive && is_wrong(parent)) else {
                continue;
            };
            if !moved {
                self.finding(Finding::DotDotWrong { ino, stored, parent });
                self.relinked.insert(stored);
            }
            let at = self.dirs[idx].dotdot_at;
            let mut bytes = [0; 4];
            self.endian.put_u32(&mut bytes, 0, parent);
            let within = (at & self.sb.qfmask as u64) as usize + dir::INO_OFFSET;
            self.io.change(at >> self.sb.fshift, within, &bytes).await?;
            self.dirs[idx].dotdot = parent;
        }
        Ok(())
    }
}
