//! F2FS: `docs/formats/f2fs.md`. What a classifier reads; nothing here writes one.

pub mod checkpoint;
pub mod maps;
pub mod node;

use crate::Endian;

pub use checkpoint::Checkpoint;

const LE: Endian = Endian::Little;

/// Where the first superblock is, in bytes; the second is a block later.
pub const SUPERBLOCK_AT: u64 = 1024;
/// What marks a superblock, and what most checksums start from.
const MAGIC: u32 = 0xf2f5_2010;
/// Bytes in a block, as a shift: there is no other size here.
pub const BLOCK_SHIFT: u32 = 12;
/// Bytes in a block.
pub const BLOCK: usize = 1 << BLOCK_SHIFT;
/// Blocks in a segment, always.
pub const SEGMENT: u64 = 512;

/// Features, in the superblock.
pub mod feature {
    /// Inodes have room for more fields.
    pub const EXTRA_ATTR: u32 = 8;
    /// Inodes have checksums.
    pub const INODE_CHECKSUM: u32 = 32;
    /// An inode says how much room it keeps for attributes.
    pub const FLEXIBLE_INLINE_XATTR: u32 = 64;
    /// The superblock has a checksum.
    pub const SUPERBLOCK_CHECKSUM: u32 = 2048;
}

crate::on_disk! {
    /// The superblock.
    pub struct Superblock: 3072 {
        0 => /** 0xf2f52010 */ magic: u32,
        4 => /** version, 1 */ major_ver: u16,
        6 => /** minor version */ minor_ver: u16,
        8 => /** bytes in a sector, as a shift */ log_sectorsize: u32,
        12 => /** sectors in a block, as a shift */ log_sectors_per_block: u32,
        16 => /** bytes in a block, as a shift: 12 */ log_blocksize: u32,
        20 => /** blocks in a segment, as a shift: 9 */ log_blocks_per_seg: u32,
        24 => /** segments in a section */ segs_per_sec: u32,
        28 => /** sections in a zone */ secs_per_zone: u32,
        32 => /** where the checksum is, with the feature */ checksum_offset: u32,
        36 => /** blocks */ block_count: u64,
        44 => /** sections */ section_count: u32,
        48 => /** segments */ segment_count: u32,
        52 => /** segments of checkpoints */ segment_count_ckpt: u32,
        56 => /** segments of the SIT, both copies */ segment_count_sit: u32,
        60 => /** segments of the NAT, both copies */ segment_count_nat: u32,
        64 => /** segments of the SSA */ segment_count_ssa: u32,
        68 => /** segments of the main area */ segment_count_main: u32,
        72 => /** first block of all areas */ segment0_blkaddr: u32,
        76 => /** first block of the checkpoints */ cp_blkaddr: u32,
        80 => /** first block of the SIT */ sit_blkaddr: u32,
        84 => /** first block of the NAT */ nat_blkaddr: u32,
        88 => /** first block of the SSA */ ssa_blkaddr: u32,
        92 => /** first block of the main area */ main_blkaddr: u32,
        96 => /** inode of the root */ root_ino: u32,
        100 => /** 1 */ node_ino: u32,
        104 => /** 2 */ meta_ino: u32,
        108 => /** identity */ uuid: [u8; 16],
        124 => /** label, UTF-16 */ volume_name: [u8; 1024],
        1148 => /** extensions of cold files */ extension_count: u32,
        1152 => /** these */ extension_list: [u8; 512],
        1664 => /** blocks of a checkpoint for version bitmaps */ cp_payload: u32,
        1668 => /** the kernel that wrote last */ version: [u8; 256],
        1924 => /** the kernel that made it */ init_version: [u8; 256],
        2180 => /** features */ feature: u32,
        2184 => /** encryption */ encryption_level: u8,
        2185 => /** its salt */ encrypt_pw_salt: [u8; 16],
        2201 => /** paths and segments of up to eight devices */ devs: [u8; 544],
        2745 => /** inodes of quotas */ qf_ino: [u32; 3],
        2757 => /** of the extensions, those of hot files */ hot_ext_count: u8,
        2758 => /** encoding of names */ encoding: u16,
        2760 => /** its flags */ encoding_flags: u16,
        2762 => /** why checkpoints stopped */ stop_reason: [u8; 32],
        2794 => /** errors seen */ errors: [u8; 16],
        2810 => /** zero */ reserved: [u8; 258],
        3068 => /** checksum of all before it */ crc: u32,
    }
}

/// CRC-32 (IEEE) that goes on from `state`, without inversions.
pub(crate) fn checksum(state: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!state);
    hasher.update(bytes);
    !hasher.finalize()
}

/// The shape of a file system: everything in it can be calculated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks.
    pub blocks: u64,
    /// First block of the checkpoints.
    pub checkpoints: u64,
    /// First block of the SIT.
    pub sit: u64,
    /// First block of the NAT.
    pub nat: u64,
    /// First block of the SSA.
    pub ssa: u64,
    /// First block of the main area.
    pub main: u64,
    /// Segments of the main area.
    pub segments: u64,
    /// Blocks of a checkpoint for version bitmaps.
    pub payload: u64,
    /// The root's inode.
    pub root: u32,
    /// Inodes of quotas, 0 where there is none.
    pub quotas: [u32; 3],
    /// Features.
    pub features: u32,
    /// What checksums of inodes start from.
    pub inode_seed: u32,
}

impl Superblock {
    /// The shape that a superblock gives, where all in it can be true.
    pub fn read(bytes: &[u8; Superblock::SIZE]) -> Option<Geometry> {
        let sb = Superblock::decode(bytes, LE);
        if sb.magic != MAGIC || sb.log_blocksize != BLOCK_SHIFT || sb.log_blocks_per_seg != 9 {
            return None;
        }
        let summed = sb.feature & feature::SUPERBLOCK_CHECKSUM != 0;
        if summed && (sb.checksum_offset != 3068 || checksum(MAGIC, &bytes[..3068]) != sb.crc) {
            return None;
        }
        let areas = [
            (sb.cp_blkaddr, sb.segment_count_ckpt),
            (sb.sit_blkaddr, sb.segment_count_sit),
            (sb.nat_blkaddr, sb.segment_count_nat),
            (sb.ssa_blkaddr, sb.segment_count_ssa),
            (sb.main_blkaddr, sb.segment_count_main),
        ];
        let mut next = u64::from(sb.segment0_blkaddr);
        for (first, segments) in areas {
            if u64::from(first) != next || segments == 0 {
                return None;
            }
            next += u64::from(segments) * SEGMENT;
        }
        let sane = next <= sb.block_count
            && sb.block_count <= u64::from(u32::MAX)
            && sb.segment0_blkaddr >= 2
            && sb.segment_count_ckpt >= 2
            && sb.segment_count_sit.is_multiple_of(2)
            && sb.segment_count_nat.is_multiple_of(2)
            && sb.segment_count_nat <= 1 << 14
            && u64::from(sb.segment_count_ssa) * SEGMENT >= u64::from(sb.segment_count_main)
            && u64::from(sb.cp_payload) < SEGMENT - 8
            && sb.root_ino > 0;
        sane.then(|| Geometry {
            blocks: sb.block_count,
            checkpoints: sb.cp_blkaddr.into(),
            sit: sb.sit_blkaddr.into(),
            nat: sb.nat_blkaddr.into(),
            ssa: sb.ssa_blkaddr.into(),
            main: sb.main_blkaddr.into(),
            segments: sb.segment_count_main.into(),
            payload: sb.cp_payload.into(),
            root: sb.root_ino,
            quotas: sb.qf_ino,
            features: sb.feature,
            inode_seed: checksum(u32::MAX, &sb.uuid),
        })
    }
}

/// What an area is, and which part of it stands at a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The first superblock's block.
    Superblock,
    /// The second one's.
    SuperblockCopy,
    /// Before the first segment.
    Before,
    /// A block of a checkpoint pack: the pack, and which of its blocks.
    Pack(usize, u64),
    /// A block of the SIT: which, and which of its two places.
    Sit(u64, usize),
    /// A block of the NAT: which, and which of its two places.
    Nat(u64, usize),
    /// The summary of this segment.
    Ssa(u64),
    /// A block of this segment of the main area.
    Main(u64),
    /// None of these.
    Outside,
}

impl Geometry {
    /// What stands at a block.
    pub fn area(&self, block: u64) -> Area {
        let half_sit = (self.nat - self.sit) / 2;
        match block {
            0 => Area::Superblock,
            1 => Area::SuperblockCopy,
            _ if block < self.checkpoints => Area::Before,
            _ if block < self.checkpoints + 2 * SEGMENT => {
                let at = block - self.checkpoints;
                Area::Pack((at / SEGMENT) as usize, at % SEGMENT)
            }
            _ if block < self.sit => Area::Outside,
            _ if block < self.nat => {
                let at = block - self.sit;
                Area::Sit(at % half_sit, (at / half_sit) as usize)
            }
            _ if block < self.ssa => {
                let at = block - self.nat;
                let (pair, within) = (at / (2 * SEGMENT), at % (2 * SEGMENT));
                Area::Nat(pair * SEGMENT + within % SEGMENT, (within / SEGMENT) as usize)
            }
            _ if block < self.ssa + self.segments => Area::Ssa(block - self.ssa),
            _ if block < self.main => Area::Outside,
            _ => match self.segment(block) {
                Some(segment) => Area::Main(segment),
                None => Area::Outside,
            },
        }
    }

    /// The segment of the main area that a block is in.
    pub fn segment(&self, block: u64) -> Option<u64> {
        let segment = block.checked_sub(self.main)? / SEGMENT;
        (segment < self.segments).then_some(segment)
    }

    /// Blocks of the SIT, of one copy that matter.
    pub fn sit_blocks(&self) -> u64 {
        let half = (self.nat - self.sit) / 2;
        half.min(self.segments.div_ceil(maps::SIT_ENTRIES as u64))
    }

    /// Where a block of the SIT is, in its first or second place.
    pub fn sit_block(&self, n: u64, second: bool) -> u64 {
        self.sit + n + if second { (self.nat - self.sit) / 2 } else { 0 }
    }

    /// Blocks of the NAT, of one copy.
    pub fn nat_blocks(&self) -> u64 {
        (self.ssa - self.nat) / 2
    }

    /// Where a block of the NAT is, in its first or second place.
    pub fn nat_block(&self, n: u64, second: bool) -> u64 {
        let first = self.nat + n / SEGMENT * 2 * SEGMENT + n % SEGMENT;
        first + if second { SEGMENT } else { 0 }
    }

    /// Blocks at the end of a checkpoint pack that say which blocks of the NAT are full or empty.
    pub fn nat_bits_blocks(&self) -> u64 {
        (8 + 2 * self.nat_blocks() / 8).div_ceil(BLOCK as u64)
    }
}
