//! Checkpoint packs, and the segment summaries in them.

use super::{BLOCK, Geometry, LE, MAGIC, SEGMENT, checksum, maps};

/// Flags of a checkpoint.
pub mod flag {
    /// An unmount made the checkpoint, so the summaries of nodes are in the pack too
    /// (`CP_UMOUNT_FLAG`).
    pub const UMOUNT: u32 = 1;
    /// The summaries of data are in compact form (`CP_COMPACT_SUM_FLAG`).
    pub const COMPACT: u32 = 4;
    /// The pack has the summaries of nodes, as with an unmount (`CP_FASTBOOT_FLAG`).
    pub const FASTBOOT: u32 = 32;
    /// Nodes carry the checkpoint's checksum besides its version (`CP_CRC_RECOVERY_FLAG`).
    pub const CRC_RECOVERY: u32 = 64;
    /// Only the version in nodes is valid, and not the checksum (`CP_NOCRC_RECOVERY_FLAG`).
    pub const NO_CRC_RECOVERY: u32 = 512;
    /// The bitmaps are in another order, after a checksum (`CP_LARGE_NAT_BITMAP_FLAG`).
    pub const LARGE_NAT_BITMAP: u32 = 1024;
}

crate::on_disk! {
    /// The first and the last block of a checkpoint pack (`struct f2fs_checkpoint`). The bitmaps
    /// that follow say in which of its two places each block of the SIT and of the NAT is valid.
    pub struct Checkpoint: 192 {
        0 checkpoint_ver => /** version: grows by one with each checkpoint */ checkpoint_ver: u64,
        8 user_block_count => /** number of blocks that users can have */ user_block_count: u64,
        16 valid_block_count => /** number of blocks in use in the main area */ valid_block_count: u64,
        24 rsvd_segment_count => /** number of segments reserved for cleaning */ rsvd_segment_count: u32,
        28 overprov_segment_count => /** number of segments for over-provisioning */ overprov_segment_count: u32,
        32 free_segment_count => /** number of free segments */ free_segment_count: u32,
        36 cur_node_segno => /** current segments for nodes: hot, warm, cold */ cur_node_segno: [u32; 8],
        68 cur_node_blkoff => /** next block in each of these segments */ cur_node_blkoff: [u16; 8],
        84 cur_data_segno => /** current segments for data: hot, warm, cold */ cur_data_segno: [u32; 8],
        116 cur_data_blkoff => /** next block in each of these segments */ cur_data_blkoff: [u16; 8],
        132 ckpt_flags => /** flags */ ckpt_flags: u32,
        136 cp_pack_total_block_count => /** number of blocks of the pack */ cp_pack_total_block_count: u32,
        140 cp_pack_start_sum => /** first block of summaries in the pack */ cp_pack_start_sum: u32,
        144 valid_node_count => /** number of nodes in use */ valid_node_count: u32,
        148 valid_inode_count => /** number of inodes in use */ valid_inode_count: u32,
        152 next_free_nid => /** node number at which the search for a free one begins */ next_free_nid: u32,
        156 sit_ver_bitmap_bytesize => /** size of the SIT's version bitmap in bytes */ sit_ver_bitmap_bytesize: u32,
        160 nat_ver_bitmap_bytesize => /** size of the NAT's version bitmap in bytes */ nat_ver_bitmap_bytesize: u32,
        164 checksum_offset => /** offset of the checksum in the block, in bytes */ checksum_offset: u32,
        168 elapsed_time => /** seconds for which it was mounted */ elapsed_time: u64,
        176 alloc_type => /** allocation type of each current segment */ alloc_type: [u8; 16],
    }
}

crate::on_disk! {
    /// The end of a block of orphans, after 1020 inode numbers (`struct f2fs_orphan_block`).
    pub struct OrphansEnd: 16 {
        0 reserved => /** zero */ reserved: u32,
        4 blk_addr => /** number of this block among the orphan blocks */ blk_addr: u16,
        6 blk_count => /** number of orphan blocks */ blk_count: u16,
        8 entry_count => /** number of inodes in this block */ entry_count: u32,
        12 check_sum => /** checksum of all bytes before this field */ check_sum: u32,
    }
}

/// The use of a block in a checkpoint pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackPart {
    /// The first block.
    First,
    /// The bitmaps, if they do not fit into the first block.
    Bitmaps,
    /// Orphans: files without names that are still open.
    Orphans,
    /// Summaries of the current data segments.
    DataSummary,
    /// Summaries of the current node segments.
    NodeSummary,
    /// The last block, which makes the checkpoint valid.
    Last,
    /// Bitmaps of full and empty blocks of the NAT.
    NatBits,
    /// An unused block.
    Unused,
}

impl Checkpoint {
    /// Decodes a first or last block; `None` if its checksum is wrong or its counts are impossible.
    pub fn read(g: &Geometry, block: &[u8]) -> Option<Checkpoint> {
        let block: &[u8; BLOCK] = block.try_into().ok()?;
        let cp = Checkpoint::decode(block, LE);
        let at = usize::try_from(cp.checksum_offset).ok()?;
        if !(Checkpoint::SIZE..=BLOCK - 4).contains(&at) {
            return None;
        }
        let mut sum = checksum(MAGIC, &block[..at]);
        if at < BLOCK - 4 {
            sum = checksum(sum, &block[at + 4..]);
        }
        let (total, start) = (u64::from(cp.cp_pack_total_block_count), cp.cp_pack_start_sum);
        let tail = if cp.has_node_summaries() { 4 } else { 1 };
        let sane = sum == LE.get_u32(block, at)
            && u64::from(start) > g.payload
            && u64::from(start) + tail < total
            && total + g.nat_bits_blocks() <= SEGMENT;
        sane.then_some(cp)
    }

    /// Whether the pack has summaries of nodes.
    pub fn has_node_summaries(&self) -> bool {
        self.ckpt_flags & (flag::UMOUNT | flag::FASTBOOT) != 0
    }

    /// The range of the data summaries in the pack: the first block, and the one after the last.
    pub fn data_summaries(&self) -> (u64, u64) {
        let end = u64::from(self.cp_pack_total_block_count) - 1;
        let nodes = if self.has_node_summaries() { 3 } else { 0 };
        (self.cp_pack_start_sum.into(), end - nodes)
    }

    /// The use of a block of the pack.
    pub fn part(&self, g: &Geometry, index: u64) -> PackPart {
        let total = u64::from(self.cp_pack_total_block_count);
        let (first, end) = self.data_summaries();
        match index {
            0 => PackPart::First,
            _ if index <= g.payload => PackPart::Bitmaps,
            _ if index < first => PackPart::Orphans,
            _ if index < end => PackPart::DataSummary,
            _ if index + 1 < total => PackPart::NodeSummary,
            _ if index + 1 == total => PackPart::Last,
            _ if index >= SEGMENT - g.nat_bits_blocks() => PackPart::NatBits,
            _ => PackPart::Unused,
        }
    }

    /// The current segments with their types: 0 to 2 for hot, warm and cold data, 3 to 5 for nodes.
    pub fn current(&self) -> impl Iterator<Item = (u64, u8)> {
        let data = self.cur_data_segno.into_iter().take(3);
        data.chain(self.cur_node_segno.into_iter().take(3)).zip(0..).map(|(s, t)| (s.into(), t))
    }

    /// Whether a node with this version in its footer was written after this checkpoint and before
    /// the next. `pack` begins with the checkpoint.
    pub fn is_before(&self, pack: &[u8], cp_ver: u64) -> bool {
        let at = self.checksum_offset as usize;
        let sum = pack.get(at..at + 4).map_or(0, |raw| LE.get_u32(raw, 0));
        let has = |flag| self.ckpt_flags & flag != 0;
        match (has(flag::NO_CRC_RECOVERY), has(flag::CRC_RECOVERY)) {
            (true, _) => cp_ver as u32 == self.checkpoint_ver as u32,
            (_, true) => cp_ver == self.checkpoint_ver | u64::from(sum) << 32,
            _ => cp_ver == self.checkpoint_ver,
        }
    }

    /// The address that was chosen for the next node of a file.
    pub fn next_node(&self, g: &Geometry) -> u64 {
        let (segment, within) = (self.cur_node_segno[1], self.cur_node_blkoff[1]);
        g.main + u64::from(segment) * SEGMENT + u64::from(within)
    }

    /// Whether block `n` of the NAT (with `nat`) or of the SIT is valid in its second place. `pack`
    /// begins with the checkpoint.
    pub fn is_second(&self, g: &Geometry, pack: &[u8], nat: bool, n: u64) -> bool {
        let sit_bytes = self.sit_ver_bitmap_bytesize as usize;
        let nat_bytes = self.nat_ver_bitmap_bytesize as usize;
        let from = match (self.ckpt_flags & flag::LARGE_NAT_BITMAP != 0, nat) {
            (true, true) => Checkpoint::SIZE + 4,
            (true, false) => Checkpoint::SIZE + 4 + nat_bytes,
            (false, true) if g.payload > 0 => Checkpoint::SIZE,
            (false, false) if g.payload > 0 => BLOCK,
            (false, true) => Checkpoint::SIZE + sit_bytes,
            (false, false) => Checkpoint::SIZE,
        };
        let within = (n / 8) as usize;
        let inside = within < if nat { nat_bytes } else { sit_bytes };
        // The first bit is the highest bit of its byte.
        let byte = pack.get(from + within).filter(|_| inside);
        byte.is_some_and(|byte| byte >> (7 - n % 8) & 1 != 0)
    }

    /// Decodes the data summaries of a pack from their consecutive blocks.
    pub fn summaries(&self, g: &Geometry, blocks: &[u8]) -> Summaries {
        let mut all = Summaries::default();
        let compact = self.ckpt_flags & flag::COMPACT != 0;
        let journal = |at: usize| blocks.get(at..at + maps::JOURNAL).unwrap_or_default();
        let cold = 2 * BLOCK + maps::ENTRIES_END;
        let (nat, sit) = match compact {
            true => (0, maps::JOURNAL),
            false => (maps::ENTRIES_END, cold),
        };
        all.nat = maps::nat_journal(journal(nat));
        all.sit = maps::sit_journal(journal(sit));
        let (mut block, mut at) = (0, 2 * maps::JOURNAL);
        for (i, segment) in self.cur_data_segno.into_iter().take(3).enumerate() {
            // A segment that is not written sequentially has all of its entries there.
            let count = match self.alloc_type[i] {
                0 => SEGMENT.min(self.cur_data_blkoff[i].into()),
                _ => SEGMENT,
            };
            for k in 0..if compact { count } else { SEGMENT } {
                let from = match compact {
                    true => block * BLOCK + at,
                    false => i * BLOCK + k as usize * maps::Summary::SIZE,
                };
                let Some(raw) = blocks.get(from..from + maps::Summary::SIZE) else { return all };
                let start = g.main + u64::from(segment) * SEGMENT;
                all.entries.push((start + k, maps::Summary::decode(raw, LE)));
                at += maps::Summary::SIZE;
                if at + maps::Summary::SIZE > BLOCK - maps::SummaryEnd::SIZE {
                    (block, at) = (block + 1, 0);
                }
            }
        }
        all
    }
}

/// The data summaries in a checkpoint pack.
#[derive(Clone, Debug, Default)]
pub struct Summaries {
    /// Entries of the NAT that are newer than its blocks (the NAT journal).
    pub nat: Vec<(u32, maps::NatEntry)>,
    /// Entries of the SIT that are newer than its blocks (the SIT journal).
    pub sit: Vec<(u32, maps::SitEntry)>,
    /// The blocks of the current data segments, with the node that points to each.
    pub entries: Vec<(u64, maps::Summary)>,
}

/// Whether the checksum of a block of orphans is right.
pub fn orphans_are_sound(block: &[u8]) -> bool {
    let Some(end) = block.len().checked_sub(OrphansEnd::SIZE) else { return false };
    let sum = OrphansEnd::decode(&block[end..], LE).check_sum;
    checksum(MAGIC, &block[..block.len() - 4]) == sum
}
