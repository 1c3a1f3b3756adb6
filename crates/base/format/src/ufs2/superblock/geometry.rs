//! The places of structures, for a validated superblock.
//!
//! Fragment addresses count from the start of the file system. None of these functions checks that
//! an address or inode number is inside it; [`Superblock::has_frags`] and [`Superblock::has_inode`]
//! do.

use super::{FS_METACKHASH, MAGIC_EA, Superblock};
use crate::ufs2::{NDADDR, NIADDR};

impl Superblock {
    /// Whether check-hashes of kind `ck` (a `CK_` bit) are kept.
    pub fn keeps_hash(&self, ck: u32) -> bool {
        self.magic != MAGIC_EA && self.flags & FS_METACKHASH != 0 && self.metackhash & ck != 0
    }

    /// The block size in bytes.
    pub fn block_size(&self) -> usize {
        self.bsize as usize
    }

    /// The fragment size in bytes.
    pub fn frag_size(&self) -> usize {
        self.fsize as usize
    }

    /// Addresses in an indirect block.
    pub fn addresses_per_block(&self) -> u64 {
        self.nindir as u64
    }

    /// The first fragment of a group.
    pub fn cg_base(&self, cg: u32) -> u64 {
        u64::from(cg) * self.fpg as u64
    }

    /// The address of a group's superblock copy.
    pub fn cg_superblock(&self, cg: u32) -> u64 {
        self.cg_base(cg) + self.cg_moved(cg) + self.sblkno as u64
    }

    /// The address of a group's header.
    pub fn cg_header(&self, cg: u32) -> u64 {
        self.cg_base(cg) + self.cg_moved(cg) + self.cblkno as u64
    }

    /// The address of a group's first inode block.
    pub fn cg_inodes(&self, cg: u32) -> u64 {
        self.cg_base(cg) + self.cg_moved(cg) + self.iblkno as u64
    }

    /// The address after a group's last inode block: data, or the summary area.
    pub fn cg_data(&self, cg: u32) -> u64 {
        self.cg_base(cg) + self.cg_moved(cg) + self.dblkno as u64
    }

    /// The number of fragments in a group; the last group may be short.
    pub fn cg_frags(&self, cg: u32) -> u32 {
        (self.size as u64).saturating_sub(self.cg_base(cg)).min(self.fpg as u64) as u32
    }

    /// The group that contains an inode.
    pub fn ino_group(&self, ino: u64) -> u32 {
        (ino / u64::from(self.ipg)) as u32
    }

    /// An inode's place: the address of its block, and its first byte in the block.
    pub fn inode_block(&self, ino: u64) -> (u64, usize) {
        let (cg, within) = (self.ino_group(ino), ino % u64::from(self.ipg));
        let inopb = u64::from(self.inopb);
        let addr = self.cg_inodes(cg) + self.blocks_to_frags(within / inopb);
        (addr, (within % inopb) as usize * self.inode_size())
    }

    /// The number of the first inode in a group.
    pub fn cg_first_inode(&self, cg: u32) -> u64 {
        u64::from(cg) * u64::from(self.ipg)
    }

    /// The number of inodes, in use or not.
    pub fn inodes(&self) -> u64 {
        u64::from(self.ncg) * u64::from(self.ipg)
    }

    /// Whether `ino` is a number that a file can have.
    pub fn has_inode(&self, ino: u64) -> bool {
        ino >= crate::ufs2::ROOT_INO && ino < self.inodes()
    }

    /// Whether `count` fragments from `addr` on are all inside the file system.
    pub fn has_frags(&self, addr: u64, count: u64) -> bool {
        addr.checked_add(count).is_some_and(|end| end <= self.size as u64)
    }

    /// Whether any of `count` fragments from `addr` on, inside one group, hold the file system's
    /// own structures: boot area, superblocks, group header, inodes, summary.
    pub fn is_own(&self, addr: u64, count: u64) -> bool {
        let (cg, within) = (self.frag_group(addr), u64::from(self.frag_in_group(addr)));
        let moved = self.cg_moved(cg);
        let first = if cg == 0 { 0 } else { moved + self.sblkno as u64 };
        let summary = (self.csaddr as u64, self.csaddr as u64 + self.summary_frags());
        (within < moved + self.dblkno as u64 && within + count > first)
            || (addr < summary.1 && addr + count > summary.0)
    }

    /// The number of fragments in the summary area.
    pub fn summary_frags(&self) -> u64 {
        self.cssize as u64 >> self.fshift
    }

    /// The group that contains an address.
    pub fn frag_group(&self, addr: u64) -> u32 {
        (addr / self.fpg as u64) as u32
    }

    /// An address's index in its group.
    pub fn frag_in_group(&self, addr: u64) -> u32 {
        (addr % self.fpg as u64) as u32
    }

    /// The byte on the device at which a fragment starts.
    pub fn byte_of(&self, addr: u64) -> u64 {
        addr << self.fshift
    }

    /// Converts a number of blocks to fragments.
    pub fn blocks_to_frags(&self, blocks: u64) -> u64 {
        blocks << self.fragshift
    }

    /// Converts a number of fragments to whole blocks, rounded down.
    pub fn frags_to_blocks(&self, frags: u64) -> u64 {
        frags >> self.fragshift
    }

    /// The number of fragments that `bytes` bytes need, rounded up.
    pub fn frags_for(&self, bytes: u64) -> u64 {
        (bytes >> self.fshift) + u64::from(bytes & self.qfmask as u64 != 0)
    }

    /// The bytes that block `lbn` of a file of `size` bytes occupies. The last block has whole
    /// fragments while the file needs no indirect block, else it is a whole block. Beyond the end
    /// of a small file the result is 0.
    pub fn file_block_size(&self, size: u64, lbn: u64) -> usize {
        let start = lbn.saturating_mul(self.bsize as u64);
        let left = size.saturating_sub(start);
        if lbn >= NDADDR as u64 || left >= self.bsize as u64 {
            return self.block_size();
        }
        ((left + self.qfmask as u64) & !(self.qfmask as u64)) as usize
    }

    /// The largest file in bytes. The superblock's `maxfilesize` is not validated, so it is not
    /// used.
    pub fn max_file_size(&self) -> u64 {
        let most = self.blocks_max().saturating_mul(self.bsize as u64).saturating_sub(1);
        self.mapped_bytes_max().min(most)
    }

    /// The most bytes that three levels of indirect blocks can map: the value of `maxfilesize` in
    /// the superblock.
    pub fn mapped_bytes_max(&self) -> u64 {
        let mut blocks = NDADDR as u64;
        let mut reach = 1u64;
        for _ in 0..NIADDR {
            reach *= self.addresses_per_block();
            blocks += reach;
        }
        (i64::MAX as u64).min(blocks.saturating_mul(self.bsize as u64) - 1)
    }

    /// Whether a copy of the superblock belongs at this byte of the device.
    pub fn is_copy_at(&self, byte: u64) -> bool {
        let frag = byte >> self.fshift;
        self.byte_of(frag) == byte
            && self.has_frags(frag, 1)
            && self.cg_superblock(self.frag_group(frag)) == frag
    }
}
