//! The end of phase 1: blocks that files may not keep are copied elsewhere, files whose addresses
//! changed are measured again, and directories get back their missing blocks.

use ordo_block::BlockError;
use ordo_format::ufs2::dir::{CHUNK, write_free_chunk};
use ordo_format::ufs2::inode::IFDIR;
use ordo_format::ufs2::{NDADDR, bitmap};

use rustc_hash::FxHashSet;

use crate::state::{DirBlock, Refused, Run};
use crate::walk::{FileWalk, Held, has_blocks};
use crate::{Finding, Repair, Slot};

impl Run<'_> {
    /// Sorts out every refused address.
    pub async fn relocate(&mut self) -> Result<(), BlockError> {
        // Blocks that are still to be copied must not be overwritten by other copies.
        for i in 0..self.refused.len() {
            let waiting = self.refused[i];
            self.pin_tree(&waiting).await?;
        }
        while let Some(refused) = self.refused.pop_front() {
            self.remeasure.insert(refused.ino);
            match self.allocate(refused.frags) {
                Some(to) => self.copy_block(refused, to).await?,
                None => self.clear_slot(refused).await?,
            }
        }
        self.pinned.clear();
        while let Some(ino) = self.remeasure.pop_first() {
            self.measure_again(ino).await?;
        }
        for idx in 0..self.dirs.len() {
            self.fill_holes(idx).await?;
        }
        Ok(())
    }

    /// Keeps a refused block, and all blocks below it, from being allocated.
    async fn pin_tree(&mut self, refused: &Refused) -> Result<(), BlockError> {
        let frag = self.sb.frag as u32;
        self.pin(refused.addr, refused.frags);
        let mut pending = Vec::new();
        if refused.level > 0 && self.pinned_trees.insert((refused.addr, refused.level)) {
            pending.push((refused.addr, refused.level));
        }
        while let Some((addr, level)) = pending.pop() {
            let bytes = self.io.read(addr, frag.into()).await?;
            for index in 0..self.sb.addresses_per_block() as usize {
                let below = self.sb.pointer(&bytes, index, self.endian);
                let Some(below) = u64::try_from(below).ok().filter(|addr| *addr != 0) else {
                    continue;
                };
                if !self.sb.has_frags(below, frag.into()) {
                    continue;
                }
                self.pin(below, frag);
                if level > 1 && self.pinned_trees.insert((below, level - 1)) {
                    pending.push((below, level - 1));
                }
            }
        }
        Ok(())
    }

    /// Keeps a run from being allocated, though it may be free.
    pub fn pin(&mut self, addr: u64, count: u32) {
        if self.pinned.is_empty() {
            let bytes = (self.sb.fpg as usize).div_ceil(8);
            self.pinned = vec![vec![0; bytes]; self.sb.ncg as usize];
        }
        for addr in addr..addr + u64::from(count) {
            let map = &mut self.pinned[self.sb.frag_group(addr) as usize];
            bitmap::set(map, self.sb.frag_in_group(addr));
        }
    }

    /// Gives a file a copy of a block that it may not have.
    async fn copy_block(&mut self, refused: Refused, to: u64) -> Result<(), BlockError> {
        let Refused { ino, slot, level, lbn, addr, frags } = refused;
        let bytes = self.io.read(addr, frags.into()).await?;
        let dir = self.dir_of.get(&ino).copied();
        if level > 0 || dir.is_some() || matches!(slot, Slot::Attributes(_)) {
            // Later phases read the copy, whether repairs are written or not.
            self.io.change(to, 0, &bytes).await?;
        } else if self.options.repair == Repair::Yes {
            self.io.write_now(to, &bytes).await?;
        }
        self.set_slot(ino, slot, to).await?;
        if level > 0 {
            let node = self.load_inode(ino).await?;
            let mut walk = FileWalk::new(ino, &node, self.sb.bsize as u64, dir.is_some());
            self.walk_indirect(&mut walk, to, level, lbn).await?;
            if let Some(idx) = dir {
                self.dirs[idx].blocks.append(&mut walk.dir_blocks);
            }
        } else if let Some(idx) = dir.filter(|_| !matches!(slot, Slot::Attributes(_))) {
            self.dirs[idx].blocks.push(DirBlock { lbn, addr: to, bytes: bytes.len() });
        }
        Ok(())
    }

    /// Clears an address if there is no space for a copy.
    async fn clear_slot(&mut self, refused: Refused) -> Result<(), BlockError> {
        self.set_slot(refused.ino, refused.slot, 0).await?;
        if let Slot::Attributes(n) = refused.slot {
            let mut node = self.load_inode(refused.ino).await?;
            let keep = n * self.sb.bsize as u32;
            for i in n as usize..node.extb.len() {
                let addr = std::mem::take(&mut node.extb[i]) as u64;
                let size = self.sb.file_block_size(node.extsize.into(), i as u64);
                let waits =
                    |r: &Refused| r.ino == refused.ino && r.slot == Slot::Attributes(i as u32);
                let waiting = self.refused.iter().any(waits);
                self.refused.retain(|r| !waits(r));
                if addr != 0 && !waiting {
                    self.release(addr, (size >> self.sb.fshift) as u32);
                }
            }
            node.extsize = node.extsize.min(keep);
            self.store_inode(refused.ino, &node).await?;
        }
        Ok(())
    }

    /// Measures the size and block count of a file whose addresses the check changed.
    async fn measure_again(&mut self, ino: u32) -> Result<(), BlockError> {
        let mut node = self.load_inode(ino).await?;
        let mut held = self.held(&node).await?;
        if has_blocks(&node, self.sb.short_link_size()) {
            let contents = held.iter().filter(|held| held.is_contents() && held.level == 0);
            let end = self.end_of(contents.map(|held| held.lbn).max());
            if node.size > end {
                node.size = end;
                self.store_inode(ino, &node).await?;
                // Indirect blocks without contents may be left beyond the end.
                self.free_from(ino, &held, end >> self.sb.bshift).await?;
                node = self.load_inode(ino).await?;
                held = self.held(&node).await?;
            }
        }
        let blocks = held.iter().map(|held| self.sectors(held.frags)).sum();
        if node.blocks != blocks {
            node.blocks = blocks;
            self.store_inode(ino, &node).await?;
        }
        if node.kind() == IFDIR {
            let idx = self.dir_of[&ino];
            self.dirs[idx].size = node.size;
        }
        if let Some(info) = self.info_mut(ino) {
            info.empty |= info.kind == ordo_format::ufs2::dir::DT_REG && node.size == 0;
        }
        Ok(())
    }

    /// Frees the blocks of a file to which only block `lbn` or later ones lead.
    async fn free_from(&mut self, ino: u32, held: &[Held], lbn: u64) -> Result<(), BlockError> {
        let mut freed = FxHashSet::default();
        for held in held.iter().filter(|held| held.is_contents() && held.lbn >= lbn) {
            // An indirect block is freed with everything below it; it is listed before its
            // contents.
            if !matches!(held.slot, Slot::Within { block, .. } if freed.contains(&block)) {
                self.set_slot(ino, held.slot, 0).await?;
            }
            if held.level > 0 {
                freed.insert(held.addr);
            }
            self.release(held.addr, held.frags);
        }
        Ok(())
    }

    /// Gives a directory every block up to its size.
    async fn fill_holes(&mut self, idx: usize) -> Result<(), BlockError> {
        self.dirs[idx].blocks.sort_by_key(|block| block.lbn);
        let (ino, size, cut) = (self.dirs[idx].ino, self.dirs[idx].size, self.dirs[idx].cut);
        let blocks = size.div_ceil(self.sb.bsize as u64);
        let mut lbn = 0;
        let mut at = 0;
        while lbn < blocks {
            if self.dirs[idx].blocks.get(at).is_some_and(|block| block.lbn == lbn) {
                at += 1;
                lbn += 1;
                continue;
            }
            if !cut {
                self.finding(Finding::HoleInDirectory { ino, lbn });
            }
            let bytes = self.sb.file_block_size(size, lbn);
            let direct = lbn < NDADDR as u64;
            let new = if direct { self.allocate((bytes >> self.sb.fshift) as u32) } else { None };
            let Some(addr) = new else {
                return self.cut_directory(idx, lbn).await;
            };
            let mut free = vec![0; bytes];
            free.chunks_exact_mut(CHUNK).for_each(|chunk| write_free_chunk(chunk, self.endian));
            self.io.change(addr, 0, &free).await?;
            self.set_slot(ino, Slot::Direct(lbn as u32), addr).await?;
            self.dirs[idx].blocks.insert(at, DirBlock { lbn, addr, bytes });
            self.measure_again(ino).await?;
        }
        Ok(())
    }

    /// Truncates a directory before block `lbn`, and frees the rest.
    async fn cut_directory(&mut self, idx: usize, lbn: u64) -> Result<(), BlockError> {
        let ino = self.dirs[idx].ino;
        let node = self.load_inode(ino).await?;
        let held = self.held(&node).await?;
        self.free_from(ino, &held, lbn).await?;
        let mut node = self.load_inode(ino).await?;
        node.size = lbn << self.sb.bshift;
        self.store_inode(ino, &node).await?;
        self.dirs[idx].blocks.retain(|block| block.lbn < lbn);
        self.measure_again(ino).await
    }
}
