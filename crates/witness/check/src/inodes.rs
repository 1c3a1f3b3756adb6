//! Phase 1: cylinder groups and their inodes; blocks and sizes.

use std::ops::Range;

use ordo_block::BlockError;
use ordo_format::ufs2::dir::{CHUNK, type_of_mode};
use ordo_format::ufs2::group::Group;
use ordo_format::ufs2::inode::{IFBLK, IFCHR, IFDIR, IFIFO, IFLNK, IFMT, IFREG, IFSOCK};
use ordo_format::ufs2::superblock::SBLOCK_SIZE;
use ordo_format::ufs2::{Dinode, NDADDR, NIADDR, NXADDR, bitmap, extattr};

use crate::state::{DirInfo, GroupState, InodeInfo, ROOT, Run};
use crate::walk::{FileWalk, has_blocks};
use crate::{CheckPhase, Finding, Slot};

/// The largest directory that is accepted, in bytes.
const MAX_DIRECTORY: u64 = 1 << 30;
/// The number in the inode of a device file that stands for no device (`NODEV`).
const NO_DEVICE: i64 = -1;
/// Inode blocks that are read together with a group's header.
const BLOCKS_AHEAD: u32 = 2;

impl Run<'_> {
    /// Reads every group and all its inodes, and grants blocks to files.
    pub async fn check_blocks(&mut self) -> Result<(), BlockError> {
        let groups = self.sb.ncg as usize;
        // The maps of all groups must exist before the first block is granted.
        for cg in 0..self.sb.ncg {
            let free = self.initial_map(cg);
            self.groups.push(GroupState {
                header: Vec::new(),
                parsed: None,
                hash_ok: true,
                in_place: true,
                directories: 0,
                free,
                inodes: Vec::new(),
            });
        }
        for cg in 0..self.sb.ncg {
            self.tell(CheckPhase::Blocks, cg as usize, groups);
            self.check_group_inodes(cg).await?;
            self.report.directories.push(self.groups[cg as usize].directories as u32);
        }
        self.tell(CheckPhase::Blocks, groups, groups);
        Ok(())
    }

    /// The fragments of a group that are not the file system's own.
    fn initial_map(&self, cg: u32) -> Vec<u8> {
        let sb = &self.sb;
        let mut free = vec![0; (sb.fpg as usize).div_ceil(8)];
        let own = |addr: u64| sb.frag_in_group(addr);
        let before = if cg == 0 { 0 } else { own(sb.cg_superblock(cg)) };
        (0..before)
            .chain(own(sb.cg_inodes(cg)) + (sb.dblkno - sb.iblkno) as u32..sb.cg_frags(cg))
            .for_each(|bit| bitmap::set(&mut free, bit));
        if sb.frag_group(sb.csaddr as u64) == cg {
            let first = sb.frag_in_group(sb.csaddr as u64);
            (first..first + sb.summary_frags() as u32)
                .for_each(|bit| bitmap::clear(&mut free, bit));
        }
        free
    }

    async fn check_group_inodes(&mut self, cg: u32) -> Result<(), BlockError> {
        let sb = &self.sb;
        let (start, inodes_at) = (sb.cg_superblock(cg), sb.cg_inodes(cg));
        let frag = sb.frag as u64;
        let ahead = BLOCKS_AHEAD.min(sb.ipg / sb.inopb);
        let first = self.io.read(start, inodes_at - start + u64::from(ahead) * frag).await?;
        if self.options.copies {
            self.check_copy(cg, &first[..SBLOCK_SIZE]);
        }
        let header_at = self.sb.byte_of(self.sb.cg_header(cg) - start) as usize;
        let header = first[header_at..header_at + self.sb.block_size()].to_vec();
        let inited = self.check_header(cg, header).await?;
        let inopb = self.sb.inopb;
        self.groups[cg as usize].inodes = vec![InodeInfo::default(); inited as usize];
        let ahead_bytes = &first[self.sb.byte_of(inodes_at - start) as usize..];
        let used = self.trusted_map(cg);
        self.check_slots(cg, 0, ahead_bytes, used.as_deref()).await?;
        let batch = (self.io.batch() / frag).max(1) as u32;
        let mut block = ahead;
        while block * inopb < inited {
            let mut count = batch.min((inited - block * inopb).div_ceil(inopb));
            if let Some(used) = &used {
                let Some(wanted) = blocks_in_use(used, block..block + count, inopb) else {
                    block += count;
                    continue;
                };
                (block, count) = (wanted.start, wanted.len() as u32);
            }
            let addr = inodes_at + u64::from(block) * frag;
            let bytes = self.io.read(addr, u64::from(count) * frag).await?;
            self.check_slots(cg, block * inopb, &bytes, used.as_deref()).await?;
            block += count;
        }
        Ok(())
    }

    /// A group's bitmap of used inodes; `None` if it cannot be trusted, because of the options or
    /// its state.
    fn trusted_map(&self, cg: u32) -> Option<Vec<u8>> {
        let state = &self.groups[cg as usize];
        let parsed = state.parsed.as_ref()?;
        let trusted = self.options.trust_bitmaps && self.report.soft_updates && state.in_place;
        trusted.then(|| state.header[parsed.layout(&self.sb).inodes].to_vec())
    }

    /// Keeps a group's header. Returns the number of inodes to check.
    async fn check_header(&mut self, cg: u32, header: Vec<u8>) -> Result<u32, BlockError> {
        let (parsed, hash_ok) = match Group::parse(&header, self.endian, &self.sb, cg) {
            Ok(group) => {
                let hash = Group::verify_hash(&header, self.endian, &self.sb, cg);
                if hash.is_err() {
                    self.finding(Finding::GroupHash { cg });
                }
                (Some(group), hash.is_ok())
            }
            Err(error) => {
                self.finding(Finding::GroupHeader { cg, error: error.to_string() });
                (None, true)
            }
        };
        let in_place = parsed.as_ref().is_none_or(|group| self.check_layout(cg, group));
        let inited = match &parsed {
            None => {
                // A format that initialises every inode needs no header for their number.
                let least = self.sb.inodes_ready(&Group::zeroed());
                self.plausible_inodes(cg, None, least).await?
            }
            Some(group) => {
                let used: &[u8] = match in_place {
                    true => &header[group.layout(&self.sb).inodes],
                    false => &[],
                };
                let stored = self.sb.inodes_ready(group);
                // Every mkfs initialises at least this many inodes.
                let least = stored.max(self.sb.ipg.min(2 * self.sb.inopb));
                let bits = self.sb.ipg.min(8 * used.len() as u32);
                let needed = match bitmap::next_set(used, least.min(bits), bits) {
                    None => least,
                    // Under soft updates, bits of a bitmap may be on disk before the block with
                    // their inodes. None of these inodes is in use yet.
                    Some(_) if self.report.soft_updates => least,
                    Some(_) => self.plausible_inodes(cg, Some(used), least).await?,
                };
                if needed > stored {
                    self.finding(Finding::InitialisedTooLow { cg, stored, needed });
                }
                needed
            }
        };
        let state = &mut self.groups[cg as usize];
        (state.header, state.parsed) = (header, parsed);
        (state.hash_ok, state.in_place) = (hash_ok, in_place);
        Ok(inited)
    }

    /// The number of inodes to check if the header does not tell it: from `least` up to the last
    /// inode that looks valid (and is marked in `used`, if that can be trusted), rounded up to
    /// whole blocks.
    async fn plausible_inodes(
        &mut self,
        cg: u32,
        used: Option<&[u8]>,
        least: u32,
    ) -> Result<u32, BlockError> {
        let (ipg, inopb, frag) = (self.sb.ipg, self.sb.inopb, self.sb.frag as u64);
        let mut last = least.max(if used.is_none() { ipg.min(2 * inopb) } else { 0 });
        let batch = (self.io.batch() / frag).max(1) as u32;
        let mut block = last / inopb;
        while block < ipg / inopb {
            let count = batch.min(ipg / inopb - block);
            let addr = self.sb.cg_inodes(cg) + u64::from(block) * frag;
            let bytes = self.io.read(addr, u64::from(count) * frag).await?;
            for (i, slot) in bytes.chunks_exact(self.sb.inode_size()).enumerate() {
                let within = block * inopb + i as u32;
                if within >= last
                    && used.is_none_or(|used| bitmap::is_set(used, within))
                    && self.is_plausible(slot)
                {
                    last = (within + 1).next_multiple_of(inopb);
                }
            }
            block += count;
        }
        Ok(last.min(ipg))
    }

    fn is_plausible(&self, slot: &[u8]) -> bool {
        let node = self.sb.inode(slot, self.endian);
        is_type(node.mode)
            && node.size <= self.sb.max_file_size()
            && node.nlink > 0
            && self.sb.verify_inode(slot, self.endian).is_ok()
    }

    /// Checks consecutive inodes, the first of which has number `first` in the group. With `used`,
    /// only the inodes marked there are checked.
    async fn check_slots(
        &mut self,
        cg: u32,
        first: u32,
        bytes: &[u8],
        used: Option<&[u8]>,
    ) -> Result<(), BlockError> {
        let inited = self.groups[cg as usize].inodes.len();
        for (i, slot) in bytes.chunks_exact(self.sb.inode_size()).enumerate() {
            let within = first as usize + i;
            let ino = self.sb.cg_first_inode(cg) as u32 + within as u32;
            if within >= inited {
                break;
            }
            if used.is_some_and(|used| !bitmap::is_set(used, within as u32)) {
                continue;
            }
            self.io.work.inodes += 1;
            if ino < ROOT {
                self.check_unused_number(ino, slot).await?;
                continue;
            }
            if self.endian.get_u16(slot, 0) != 0 {
                self.check_inode(ino, slot).await?;
            } else if !is_empty(&self.sb.inode(slot, self.endian)) {
                self.finding(Finding::PartlyFreed { ino });
                self.clear_inode(ino).await?;
            }
        }
        Ok(())
    }

    /// Checks inodes 0 and 1, which no file has: only their check-hashes must be right.
    async fn check_unused_number(&mut self, ino: u32, slot: &[u8]) -> Result<(), BlockError> {
        if self.sb.verify_inode(slot, self.endian).is_err() {
            self.finding(Finding::InodeHash { ino });
            let node = self.sb.inode(slot, self.endian);
            self.store_inode(ino, &node).await?;
        }
        Ok(())
    }

    async fn check_inode(&mut self, ino: u32, slot: &[u8]) -> Result<(), BlockError> {
        self.io.work.inodes_used += 1;
        let before = self.sb.inode(slot, self.endian);
        let mut node = before.clone();
        if !self.check_kind(ino, &node) {
            return self.clear_inode(ino).await;
        }
        let hash_ok = self.sb.verify_inode(slot, self.endian).is_ok();
        if !hash_ok {
            self.finding(Finding::InodeHash { ino });
        }
        let is_dir = node.kind() == IFDIR;
        if is_dir && !node.size.is_multiple_of(CHUNK as u64) {
            self.finding(Finding::DirectorySize { ino, size: node.size });
            node.size = node.size.next_multiple_of(CHUNK as u64);
        }
        let mut walk = FileWalk::new(ino, &node, self.sb.bsize as u64, is_dir);
        self.check_attributes(&mut walk, &mut node).await?;
        if has_blocks(&node, self.sb.short_link_size()) {
            self.walk_file(&mut walk, &mut node).await?;
        } else {
            self.check_special(&mut walk, &mut node);
        }
        if walk.touched {
            self.remeasure.insert(ino);
        } else {
            self.check_measures(&walk, &mut node);
        }
        self.note_inode(ino, &node, walk);
        if node != before || !hash_ok {
            self.store_inode(ino, &node).await?;
        }
        Ok(())
    }

    /// Whether an inode has a valid type.
    fn check_kind(&mut self, ino: u32, node: &Dinode) -> bool {
        let (mode, size) = (node.mode, node.size);
        let finding = if !is_type(mode) {
            Finding::BadMode { ino, mode }
        } else if ino == ROOT && node.kind() != IFDIR {
            Finding::RootNotDirectory { mode }
        } else if size > self.most_bytes(node.kind()) {
            Finding::BadSize { ino, size }
        } else if matches!(node.kind(), IFCHR | IFBLK) && node.db[0] == NO_DEVICE {
            Finding::DeviceNumber { ino }
        } else {
            return true;
        };
        self.finding(finding);
        false
    }

    /// The greatest size of a file of this type, in bytes.
    fn most_bytes(&self, kind: u16) -> u64 {
        match kind {
            IFDIR => MAX_DIRECTORY.min(self.sb.max_file_size()),
            // FreeBSD accepts 1,023 bytes; any target that fits into a block can be read.
            IFLNK => self.sb.bsize as u64,
            IFREG => self.sb.max_file_size(),
            _ => 0,
        }
    }

    /// Checks a device, pipe, socket or short link, whose address fields hold no addresses.
    fn check_special(&mut self, walk: &mut FileWalk, node: &mut Dinode) {
        let ino = walk.ino;
        if node.kind() == IFLNK {
            return self.check_short_link(walk, node);
        }
        let skip = usize::from(matches!(node.kind(), IFCHR | IFBLK));
        for i in skip..NDADDR + NIADDR {
            let (slot, addr) = match i.checked_sub(NDADDR) {
                None => (Slot::Direct(i as u32), &mut node.db[i]),
                Some(i) => (Slot::Indirect(i as u32), &mut node.ib[i]),
            };
            if *addr != 0 {
                self.finding(Finding::SpecialWithBlocks { ino, slot, addr: *addr });
                walk.touched = true;
                *addr = 0;
            }
        }
    }

    /// Checks a link whose address fields hold its target. FreeBSD's fsck clears a link with any
    /// other bytes in the addresses behind its target.
    fn check_short_link(&mut self, walk: &mut FileWalk, node: &mut Dinode) {
        let (ino, size) = (walk.ino, self.sb.pointer_size());
        let mut target = node.short_link(self.endian);
        let skip = (node.size as usize).div_ceil(size);
        for i in skip..NDADDR + NIADDR {
            let slot = match i.checked_sub(NDADDR) {
                None => Slot::Direct(i as u32),
                Some(i) => Slot::Indirect(i as u32),
            };
            let addr = self.sb.pointer(&target, i, self.endian);
            if addr != 0 {
                self.finding(Finding::SpecialWithBlocks { ino, slot, addr });
                walk.touched = true;
                target[i * size..(i + 1) * size].fill(0);
            }
        }
        node.set_short_link(&target, self.endian);
    }

    /// Compares size and block count with the granted blocks.
    fn check_measures(&mut self, walk: &FileWalk, node: &mut Dinode) {
        let ino = walk.ino;
        if has_blocks(node, self.sb.short_link_size()) {
            let (size, end) = (node.size, self.end_of(walk.last));
            if size > end {
                let indirect = size > NDADDR as u64 * self.sb.bsize as u64;
                self.finding(Finding::EndsInHole { ino, size, end, indirect });
                self.remeasure.insert(ino);
            }
        }
        if node.blocks != walk.sectors {
            let (stored, found) = (node.blocks, walk.sectors);
            self.finding(Finding::BlockCount { ino, stored, found });
            node.blocks = found;
        }
    }

    /// The end of a file's last block in bytes, as if the block were whole.
    pub fn end_of(&self, last: Option<u64>) -> u64 {
        last.map_or(0, |lbn| (lbn + 1) << self.sb.bshift)
    }

    /// Remembers the facts about an inode that later phases need.
    fn note_inode(&mut self, ino: u32, node: &Dinode, walk: FileWalk) {
        let empty = match node.kind() {
            IFREG => node.size == 0 && node.extsize == 0,
            IFSOCK => true,
            _ => false,
        };
        let info = InodeInfo { kind: type_of_mode(node.mode), empty, links: node.nlink, found: 0 };
        *self.info_mut(ino).expect("inside the group's inodes") = info;
        if node.kind() == IFDIR {
            self.groups[(ino / self.sb.ipg) as usize].directories += 1;
            self.dir_of.insert(ino, self.dirs.len());
            self.dirs.push(DirInfo {
                ino,
                size: node.size,
                blocks: walk.dir_blocks,
                cut: walk.touched,
                parent: None,
                name: Box::default(),
                entry_at: 0,
                dotdot: 0,
                dotdot_at: 0,
                entries: 0,
                moved: false,
                alive: true,
            });
        }
    }

    /// Checks the extended attributes: their size, their blocks, and whether their records can be
    /// read.
    async fn check_attributes(
        &mut self,
        walk: &mut FileWalk,
        node: &mut Dinode,
    ) -> Result<(), BlockError> {
        let ino = walk.ino;
        let most = NXADDR as u64 * self.sb.bsize as u64;
        if u64::from(node.extsize) > most {
            self.finding(Finding::AttributesSize { ino, size: node.extsize });
            walk.touched = true;
            node.extsize = 0;
            node.extb = [0; NXADDR];
        }
        let block = self.sb.bsize as u32;
        for i in 0..NXADDR {
            let slot = Slot::Attributes(i as u32);
            let addr = node.extb[i];
            let start = i as u32 * block;
            if node.extsize > start && addr == 0 {
                self.finding(Finding::AttributesMissing { ino, slot });
                walk.touched = true;
                node.extsize = start;
            } else if node.extsize <= start && addr != 0 {
                self.finding(Finding::PointerBeyondEnd { ino, slot, addr, growth: false });
                walk.touched = true;
                node.extb[i] = 0;
            }
        }
        walk.touched |= self.check_records(ino, node).await?;
        for i in 0..NXADDR {
            let addr = node.extb[i];
            if addr != 0 && !self.look_at_attributes(walk, i, addr, node.extsize.into()) {
                node.extsize = node.extsize.min(i as u32 * block);
                node.extb[i..].fill(0);
                break;
            }
        }
        Ok(())
    }

    /// Reads the records of the extended attributes, and cuts them off at the first damaged one.
    /// Returns whether there was one.
    async fn check_records(&mut self, ino: u32, node: &mut Dinode) -> Result<bool, BlockError> {
        let size = u64::from(node.extsize);
        let mut area = Vec::with_capacity(node.extsize as usize);
        for (i, addr) in node.extb.into_iter().enumerate().filter(|(_, addr)| *addr != 0) {
            let frags = self.sb.frags_for(self.sb.file_block_size(size, i as u64) as u64);
            if addr < 0 || !self.sb.has_frags(addr as u64, frags) {
                // An impossible address is reported together with the other addresses.
                return Ok(false);
            }
            area.extend_from_slice(&self.io.read(addr as u64, frags).await?);
        }
        area.truncate(node.extsize as usize);
        if let Some(Err(broken)) = extattr::attrs(&area, self.endian).find(Result::is_err) {
            let at = broken.at as u32;
            self.finding(Finding::AttributesDamaged { ino, at, error: broken.to_string() });
            node.extsize = at;
            for i in 0..NXADDR {
                if at <= i as u32 * self.sb.bsize as u32 {
                    node.extb[i] = 0;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }
}

fn is_type(mode: u16) -> bool {
    matches!(mode & IFMT, IFREG | IFDIR | IFLNK | IFCHR | IFBLK | IFIFO | IFSOCK)
}

/// The first run of inode blocks in `blocks` (counted in the group) with any inode marked in
/// `used`.
fn blocks_in_use(used: &[u8], blocks: Range<u32>, inopb: u32) -> Option<Range<u32>> {
    let in_use = |block: u32| {
        bitmap::next_set(used, block * inopb, ((block + 1) * inopb).min(used.len() as u32 * 8))
            .is_some()
    };
    let start = blocks.clone().find(|block| in_use(*block))?;
    let end = (start..blocks.end).find(|block| !in_use(*block)).unwrap_or(blocks.end);
    Some(start..end)
}

/// Whether a free inode has neither size nor blocks, and no addresses.
fn is_empty(node: &Dinode) -> bool {
    let addresses = node.db.iter().chain(&node.ib).chain(&node.extb);
    (node.size, node.blocks, node.extsize) == (0, 0, 0) && addresses.into_iter().all(|a| *a == 0)
}
