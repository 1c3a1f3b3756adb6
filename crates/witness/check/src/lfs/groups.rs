//! DualFS's pass: the data device's groups. Files' pointers, bitmaps and counts must agree.

use ordo_format::dualfs::{DataShape, GroupDescriptor};
use ordo_format::lfs::{LE, LfsInode};
use ordo_format::ufs2::inode::IFREG;
use rustc_hash::FxHashMap;

use super::LfsFinding;
use super::state::LfsRun;

/// The contents of regular files on the data device.
pub(super) struct Contents {
    pub shape: DataShape,
    /// A bit for each block that has an owner.
    used: Vec<u64>,
    /// The blocks of each file.
    owned: FxHashMap<u64, Vec<u64>>,
}

impl Contents {
    /// The state before any file has claimed a block. The device is large enough for the shape's
    /// blocks.
    pub fn new(shape: DataShape) -> Contents {
        let mut used = vec![0; shape.blocks.div_ceil(64) as usize];
        // Block 0 has the identity.
        used[0] = 1;
        Contents { shape, used, owned: FxHashMap::default() }
    }

    fn has(&self, block: u64) -> bool {
        self.used[(block / 64) as usize] >> (block % 64) & 1 != 0
    }

    /// Claims a block for a file. The error tells why the file cannot have it.
    pub fn take(&mut self, ino: u64, addr: i64) -> Result<(), Unfit> {
        if !self.shape.holds(addr) {
            return Err(Unfit::Outside);
        }
        let block = addr.cast_unsigned();
        if self.has(block) {
            return Err(Unfit::Twice);
        }
        self.used[(block / 64) as usize] |= 1 << (block % 64);
        self.owned.entry(ino).or_default().push(block);
        Ok(())
    }

    /// Releases the blocks of a file that is cleared.
    pub fn give_up(&mut self, ino: u64) {
        for block in self.owned.remove(&ino).unwrap_or_default() {
            self.used[(block / 64) as usize] &= !(1 << (block % 64));
        }
    }

    /// The number of blocks that files have.
    pub fn in_use(&self) -> u64 {
        self.used.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() - 1
    }
}

/// The reason why a file cannot have a block of the data device.
pub(super) enum Unfit {
    /// The pointer is for a block behind the end of the file.
    BeyondEnd,
    /// The device has no such block for files.
    Outside,
    /// Another file has the block.
    Twice,
}

impl LfsRun<'_> {
    /// The data device's claims, if an inode's contents are on it.
    pub(super) fn contents_of(&mut self, inode: &LfsInode) -> Option<&mut Contents> {
        let is_contents = inode.kind() == IFREG && inode.inumber != ordo_format::lfs::IFILE_INO;
        self.contents.as_mut().filter(|_| is_contents)
    }

    /// Checks the group tables against the files' blocks. After rolling forward, differences are
    /// expected and are no findings.
    pub(super) fn check_groups(&mut self) {
        let Some(contents) = self.contents.take() else { return };
        let shape = contents.shape;
        let mut inodes = vec![0u32; shape.groups() as usize];
        for (ino, known) in &self.inodes {
            let group = known.inode.blksize;
            match inodes.get_mut(group as usize) {
                Some(count) => *count += 1,
                None => {
                    let finding = LfsFinding::InodeGroup { ino: *ino, group };
                    self.report.add(finding);
                    inodes[0] += 1;
                }
            }
        }
        for group in 0..shape.groups() {
            self.check_group(&contents, group, inodes[group as usize]);
        }
        let behind = shape.blocks..shape.bitmap_blocks() * u64::from(shape.bsize) * 8;
        for block in behind {
            if self.is_marked(&shape, block) {
                self.found_in_group(LfsFinding::GroupBeyondEnd { block });
                self.mark(&shape, block, false);
            }
        }
        self.report.data_blocks_used = Some(contents.in_use());
        self.contents = Some(contents);
    }

    fn check_group(&mut self, contents: &Contents, group: u32, inodes: u32) {
        let (shape, mut free) = (contents.shape, 0);
        let (mut missing, mut extra) = (0, 0);
        for block in shape.group(group) {
            let right = contents.has(block);
            free += u32::from(!right);
            if self.is_marked(&shape, block) == right {
                continue;
            }
            *if right { &mut missing } else { &mut extra } += 1;
            self.mark(&shape, block, right);
        }
        if missing > 0 {
            self.found_in_group(LfsFinding::GroupBlocksFree { group, blocks: missing });
        }
        if extra > 0 {
            self.found_in_group(LfsFinding::GroupBlocksUsed { group, blocks: extra });
        }
        let at = self.tables_at() + shape.descriptor_at(group);
        let found = GroupDescriptor::decode(&self.ifile.bytes[at..], LE);
        let counts = [("free", found.free, free), ("inodes", found.inodes, inodes)];
        for (field, stored, right) in counts.into_iter().filter(|(_, s, r)| s != r) {
            self.found_in_group(LfsFinding::GroupCount { group, field, stored, right });
        }
        let right = GroupDescriptor { free, inodes };
        if right != found {
            right.encode(&mut self.ifile.bytes[at..], LE);
            self.ifile.changed = true;
        }
    }

    fn found_in_group(&mut self, finding: LfsFinding) {
        if !self.report.rolled_forward {
            self.report.add(finding);
        }
    }

    fn tables_at(&self) -> usize {
        self.sb.group_tables_at() as usize
    }

    fn is_marked(&self, shape: &DataShape, block: u64) -> bool {
        let (byte, mask) = shape.bit_at(block);
        self.ifile.bytes[self.tables_at() + byte] & mask != 0
    }

    fn mark(&mut self, shape: &DataShape, block: u64, value: bool) {
        let (byte, mask) = shape.bit_at(block);
        let at = self.tables_at() + byte;
        match value {
            true => self.ifile.bytes[at] |= mask,
            false => self.ifile.bytes[at] &= !mask,
        }
        self.ifile.changed = true;
    }
}
