//! Pass 1: inodes and blocks.

use std::collections::BTreeMap;

use ordo_format::lfs::{IFILE_INO, LfsInode, NDADDR, NIADDR, NO_ADDRESS, Width, lbn};
use ordo_format::ufs2::inode::{IFBLK, IFCHR, IFDIR, IFIFO, IFLNK, IFREG, IFSOCK};

use super::groups::Unfit;
use super::state::{Known, LfsRun, Live};
use super::{LfsCheckError, LfsFinding};
use crate::terms::Slot;

/// An inode whose blocks are being claimed.
pub(super) struct Target {
    pub inode: LfsInode,
    pub live: Live,
    /// The inode's blocks, if a caller needs them.
    pub blocks: BTreeMap<u64, i64>,
    keep: bool,
    frags: u64,
    changed: bool,
}

impl Target {
    pub fn new(inode: LfsInode, keep: bool) -> Target {
        let (live, blocks) = (Live::new(), BTreeMap::new());
        Target { inode, live, blocks, keep, frags: 0, changed: false }
    }

    /// Truncates the file to `size` bytes.
    pub fn cut(&mut self, size: u64) {
        self.inode.size = size;
        self.changed = true;
    }
}

/// The permissions of the IFILE.
const IFILE_PERMISSIONS: u16 = 0o600;

/// The number of pointers that a short link's target takes the place of.
fn size_in_pointers(inode: &LfsInode, width: Width) -> usize {
    (inode.size as usize).div_ceil(width.pointer_size())
}

/// Whether a mode has a known file type. A whiteout is a directory entry without an inode of its
/// own.
fn is_type(kind: u16) -> bool {
    [IFIFO, IFCHR, IFDIR, IFBLK, IFREG, IFLNK, IFSOCK].contains(&kind)
}

impl LfsRun<'_> {
    /// Checks every inode that is in use according to the IFILE, and claims its blocks.
    pub(super) async fn check_blocks(&mut self) -> Result<(), LfsCheckError> {
        for ino in IFILE_INO + 1..self.inode_count() {
            let addr = self.entry(ino).daddr;
            self.io.work.inodes += 1;
            if addr == NO_ADDRESS {
                continue;
            }
            match self.look_at(ino, addr).await? {
                Ok((inode, at)) => self.claim(ino, inode, (addr, at)).await?,
                Err(finding) => {
                    self.report.add(finding);
                    self.clear(ino);
                }
            }
        }
        self.report.files = self.inodes.len() as u64 + 1;
        self.report.used_fragments = self.used.iter().map(|w| u64::from(w.count_ones())).sum();
        Ok(())
    }

    async fn look_at(
        &mut self,
        ino: u64,
        addr: i64,
    ) -> Result<Result<(LfsInode, usize), LfsFinding>, LfsCheckError> {
        if !self.sb.is_log(addr, self.sb.ibsize / self.sb.fsize) {
            return Ok(Err(LfsFinding::InodeAddress { ino, addr }));
        }
        let Some((inode, at)) = self.load(ino, addr).await? else {
            return Ok(Err(LfsFinding::InodeMissing { ino, addr }));
        };
        let size = inode.size;
        Ok(match () {
            () if !is_type(inode.kind()) => Err(LfsFinding::InodeMode { ino, mode: inode.mode }),
            () if size > self.sb.right_maxfilesize() => Err(LfsFinding::InodeSize { ino, size }),
            () if size == 0 && inode.kind() == IFDIR => Err(LfsFinding::InodeSize { ino, size }),
            () => Ok((inode, at)),
        })
    }

    async fn claim(
        &mut self,
        ino: u64,
        inode: LfsInode,
        place: (i64, usize),
    ) -> Result<(), LfsCheckError> {
        self.io.work.inodes_used += 1;
        let kind = inode.kind();
        let mut target = Target::new(inode, kind == IFDIR);
        if kind == IFDIR && !self.fit_directory(&mut target).await? {
            self.clear(ino);
            return Ok(());
        }
        self.claim_inode(&mut target, place.0);
        let short = target.inode.size < self.sb.maxsymlinklen.max(0).cast_unsigned().into();
        match kind {
            IFBLK | IFCHR => self.check_special(&mut target, 1),
            IFLNK if short => {
                let pointers = size_in_pointers(&target.inode, self.sb.width);
                self.check_special(&mut target, pointers);
            }
            _ => self.claim_blocks(&mut target).await?,
        }
        self.check_count(&mut target);
        let Target { inode, live, blocks, changed, .. } = target;
        let (links, parent, named_at, dotdot) = (0, None, None, None);
        self.inodes
            .insert(ino, Known { inode, place, live, blocks, links, parent, named_at, dotdot });
        if changed {
            self.store_inode(ino).await?;
        }
        Ok(())
    }

    /// Checks a device or a short link, whose first `used` pointers hold something else. The others
    /// must be zero.
    fn check_special(&mut self, target: &mut Target, used: usize) {
        let ino = target.inode.inumber;
        for at in used..NDADDR + NIADDR {
            let addr = target.inode.pointer(at);
            if addr == NO_ADDRESS {
                continue;
            }
            let slot = match at.checked_sub(NDADDR) {
                None => Slot::Direct(at as u32),
                Some(tree) => Slot::Indirect(tree as u32),
            };
            self.report.add(LfsFinding::SpecialWithBlocks { ino, slot, addr });
            target.inode.set_pointer(at, NO_ADDRESS);
            target.changed = true;
        }
    }

    /// Compares an inode's count of fragments with those that were claimed.
    fn check_count(&mut self, target: &mut Target) {
        let (ino, stored, found) = (target.inode.inumber, target.inode.blocks, target.frags);
        if stored != found {
            self.report.add(LfsFinding::BlockCount { ino, stored, found });
            target.inode.blocks = found;
            target.changed = true;
        }
    }

    /// Checks the IFILE's own inode, whose blocks are claimed, and corrects it at its place.
    pub(super) async fn check_ifile_inode(
        &mut self,
        target: &mut Target,
        at: usize,
    ) -> Result<(), LfsCheckError> {
        let mode = target.inode.mode;
        if target.inode.kind() != IFREG {
            self.report.add(LfsFinding::IfileMode { mode });
            target.inode.mode = IFREG | IFILE_PERMISSIONS;
            target.changed = true;
        }
        self.check_count(target);
        if target.changed {
            let mut raw = vec![0; self.sb.width.inode_size()];
            target.inode.write(self.sb.width, &mut raw);
            self.io.change(self.sb.idaddr as u64, at, &raw).await?;
        }
        Ok(())
    }

    /// Counts an inode's own bytes as live in its segment.
    pub(super) fn claim_inode(&mut self, target: &mut Target, addr: i64) {
        self.count(&mut target.live, addr, self.sb.width.inode_size() as u64);
    }

    fn count(&mut self, live: &mut Live, addr: i64, bytes: u64) {
        let Some(segment) = self.sb.segment_of(addr) else { return };
        self.live[segment as usize] += bytes;
        match live.last_mut().filter(|(s, _)| *s == segment) {
            Some((_, sum)) => *sum += bytes,
            None => live.push((segment, bytes)),
        }
    }

    /// Claims all blocks of an inode. Impossible pointers are cleared.
    pub(super) async fn claim_blocks(&mut self, target: &mut Target) -> Result<(), LfsCheckError> {
        let bsize = u64::from(self.sb.bsize);
        let count = target.inode.size.div_ceil(bsize);
        for slot in 0..NDADDR {
            let (addr, name) = (target.inode.db[slot], Slot::Direct(slot as u32));
            let bytes = self.sb.block_bytes(slot as u64, target.inode.size);
            let inside = (slot as u64) < count;
            if addr == NO_ADDRESS {
                continue;
            }
            match self.take_contents(target, name, addr, bytes, inside)? {
                true if target.keep => drop(target.blocks.insert(slot as u64, addr)),
                true => {}
                false => {
                    target.inode.db[slot] = NO_ADDRESS;
                    target.changed = true;
                }
            }
        }
        let starts = lbn::trees(self.sb.nindir.into());
        for (tree, first) in starts.into_iter().take(NIADDR).enumerate() {
            let (addr, name) = (target.inode.ib[tree], Slot::Indirect(tree as u32));
            if addr == NO_ADDRESS {
                continue;
            }
            if self.take(target, name, addr, bsize, first < count)? {
                self.claim_tree(target, addr, tree + 1, first, count).await?;
            } else {
                target.inode.ib[tree] = NO_ADDRESS;
                target.changed = true;
            }
        }
        Ok(())
    }

    /// Claims the blocks below an indirect block.
    async fn claim_tree(
        &mut self,
        target: &mut Target,
        addr: i64,
        level: usize,
        first: u64,
        count: u64,
    ) -> Result<(), LfsCheckError> {
        let (nindir, bsize) = (u64::from(self.sb.nindir), u64::from(self.sb.bsize));
        let size = self.sb.width.pointer_size();
        let mut todo = vec![(addr, level, first)];
        while let Some((block, level, first)) = todo.pop() {
            self.io.work.indirect_blocks += 1;
            let bytes = self.io.read(block as u64, self.sb.frag.into()).await?;
            let below = nindir.saturating_pow(level as u32 - 1);
            for index in 0..nindir {
                let pointer = self.sb.width.pointer(&bytes, index as usize * size);
                if pointer == NO_ADDRESS {
                    continue;
                }
                let lbn = first.saturating_add(index.saturating_mul(below));
                let name = Slot::Within { block: block as u64, index: index as u32 };
                let inside = lbn < count;
                let is_taken = match level {
                    1 => self.take_contents(target, name, pointer, bsize, inside)?,
                    _ => self.take(target, name, pointer, bsize, inside)?,
                };
                if !is_taken {
                    let at = index as usize * size;
                    self.io.change(block as u64, at, &vec![0; size]).await?;
                } else if level > 1 {
                    todo.push((pointer, level - 1, lbn));
                } else if target.keep {
                    target.blocks.insert(lbn, pointer);
                }
            }
        }
        Ok(())
    }

    /// Claims a block of contents: on the data device, if the file's contents are there.
    fn take_contents(
        &mut self,
        target: &mut Target,
        slot: Slot,
        addr: i64,
        bytes: u64,
        inside: bool,
    ) -> Result<bool, LfsCheckError> {
        let ino = target.inode.inumber;
        let Some(contents) = self.contents_of(&target.inode) else {
            return self.take(target, slot, addr, bytes, inside);
        };
        let claimed = if inside { contents.take(ino, addr) } else { Err(Unfit::BeyondEnd) };
        let finding = match claimed {
            Ok(()) => {
                target.frags += 1;
                return Ok(true);
            }
            Err(Unfit::BeyondEnd) => LfsFinding::PointerBeyondEnd { ino, slot, addr },
            Err(Unfit::Outside) => LfsFinding::BadDataBlock { ino, slot, addr },
            Err(Unfit::Twice) => LfsFinding::DuplicateDataBlock { ino, slot, addr },
        };
        self.report.add(finding);
        Ok(false)
    }

    /// Claims a block for a file. Returns false if the file cannot have it, so that its pointer
    /// must be cleared.
    fn take(
        &mut self,
        target: &mut Target,
        slot: Slot,
        addr: i64,
        bytes: u64,
        inside: bool,
    ) -> Result<bool, LfsCheckError> {
        let ino = target.inode.inumber;
        let frags = bytes / u64::from(self.sb.fsize);
        let wrong = match () {
            () if !inside => Some(LfsFinding::PointerBeyondEnd { ino, slot, addr }),
            () if !self.sb.is_log(addr, frags as u32) => {
                Some(LfsFinding::BadBlock { ino, slot, addr })
            }
            () if self.is_used(addr, frags) => Some(LfsFinding::DuplicateBlock { ino, slot, addr }),
            () => None,
        };
        if let Some(finding) = wrong {
            // The places of everything else are in the IFILE, so no part of it can be missing.
            if ino == IFILE_INO {
                return Err(LfsCheckError::IfileBlock { lbn: target.blocks.len() as u64, addr });
            }
            self.report.add(finding);
            return Ok(false);
        }
        for frag in addr as u64..addr as u64 + frags {
            self.used[frag as usize / 64] |= 1 << (frag % 64);
        }
        target.frags += frags;
        self.count(&mut target.live, addr, bytes);
        Ok(true)
    }

    /// Whether these fragments lie in the log and are unclaimed.
    pub(super) fn can_take(&self, addr: i64, frags: u64) -> bool {
        self.sb.is_log(addr, frags as u32) && !self.is_used(addr, frags)
    }

    fn is_used(&self, addr: i64, frags: u64) -> bool {
        let range = addr as u64..addr as u64 + frags;
        range.into_iter().any(|f| self.used[f as usize / 64] >> (f % 64) & 1 != 0)
    }
}
