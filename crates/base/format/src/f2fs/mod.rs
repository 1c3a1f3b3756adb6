//! F2FS, as far as a decoder reads it, described in `docs/formats/f2fs.md`. No code here writes it.

pub mod checkpoint;
pub mod maps;
pub mod node;

use crate::Endian;

pub use checkpoint::Checkpoint;

const LE: Endian = Endian::Little;

/// The first superblock's place in bytes; the second is one block later.
pub const SUPERBLOCK_AT: u64 = 1024;
/// The magic number of a superblock (`F2FS_SUPER_MAGIC`), from which most checksums start.
const MAGIC: u32 = 0xf2f5_2010;
/// The block size as a shift; no other size is read here.
pub const BLOCK_SHIFT: u32 = 12;
/// The size of a block in bytes.
pub const BLOCK: usize = 1 << BLOCK_SHIFT;
/// The number of blocks in a segment, which is fixed.
pub const SEGMENT: u64 = 512;

/// Feature bits of the superblock.
pub mod feature {
    /// Inodes have space for more fields.
    pub const EXTRA_ATTR: u32 = 8;
    /// Inodes have checksums.
    pub const INODE_CHECKSUM: u32 = 32;
    /// The inode itself gives the size of the space that it reserves for attributes.
    pub const FLEXIBLE_INLINE_XATTR: u32 = 64;
    /// The superblock has a checksum.
    pub const SUPERBLOCK_CHECKSUM: u32 = 2048;
}

crate::on_disk! {
    /// The superblock (`struct f2fs_super_block`).
    pub struct Superblock: 3072 {
        0 magic => /** 0xf2f52010 */ magic: u32,
        4 major_ver => /** major version: 1 */ major_ver: u16,
        6 minor_ver => /** minor version */ minor_ver: u16,
        8 log_sectorsize => /** log2 of the bytes in a sector */ log_sectorsize: u32,
        12 log_sectors_per_block => /** log2 of the sectors in a block */ log_sectors_per_block: u32,
        16 log_blocksize => /** log2 of the bytes in a block: 12 */ log_blocksize: u32,
        20 log_blocks_per_seg => /** log2 of the blocks in a segment: 9 */ log_blocks_per_seg: u32,
        24 segs_per_sec => /** segments in a section */ segs_per_sec: u32,
        28 secs_per_zone => /** sections in a zone */ secs_per_zone: u32,
        32 checksum_offset => /** offset of the checksum in bytes, with the feature SB_CHKSUM */ checksum_offset: u32,
        36 block_count => /** number of blocks */ block_count: u64,
        44 section_count => /** number of sections */ section_count: u32,
        48 segment_count => /** number of segments */ segment_count: u32,
        52 segment_count_ckpt => /** number of segments with checkpoints */ segment_count_ckpt: u32,
        56 segment_count_sit => /** number of segments of the SIT, both copies */ segment_count_sit: u32,
        60 segment_count_nat => /** number of segments of the NAT, both copies */ segment_count_nat: u32,
        64 segment_count_ssa => /** number of segments of the SSA */ segment_count_ssa: u32,
        68 segment_count_main => /** number of segments of the main area */ segment_count_main: u32,
        72 segment0_blkaddr => /** first block of all areas */ segment0_blkaddr: u32,
        76 cp_blkaddr => /** first block of the checkpoints */ cp_blkaddr: u32,
        80 sit_blkaddr => /** first block of the SIT */ sit_blkaddr: u32,
        84 nat_blkaddr => /** first block of the NAT */ nat_blkaddr: u32,
        88 ssa_blkaddr => /** first block of the SSA */ ssa_blkaddr: u32,
        92 main_blkaddr => /** first block of the main area */ main_blkaddr: u32,
        96 root_ino => /** inode of the root directory */ root_ino: u32,
        100 node_ino => /** inode of the kernel's node mapping: 1 */ node_ino: u32,
        104 meta_ino => /** inode of the kernel's metadata mapping: 2 */ meta_ino: u32,
        108 uuid => /** UUID of the file system */ uuid: [u8; 16],
        124 volume_name => /** volume label, UTF-16 */ volume_name: [u8; 1024],
        1148 extension_count => /** number of file name extensions of cold files */ extension_count: u32,
        1152 extension_list => /** file name extensions of cold files, then of hot files */ extension_list: [u8; 512],
        1664 cp_payload => /** number of additional blocks in a checkpoint for version bitmaps */ cp_payload: u32,
        1668 version => /** version of the kernel that mounted it last */ version: [u8; 256],
        1924 init_version => /** version of the kernel that created it */ init_version: [u8; 256],
        2180 feature => /** features */ feature: u32,
        2184 encryption_level => /** version of encryption */ encryption_level: u8,
        2185 encrypt_pw_salt => /** salt of encryption */ encrypt_pw_salt: [u8; 16],
        2201 devs => /** path and number of segments of up to eight devices */ devs: [u8; 544],
        2745 qf_ino => /** inodes of the user, group and project quota */ qf_ino: [u32; 3],
        2757 hot_ext_count => /** number of file name extensions of hot files */ hot_ext_count: u8,
        2758 s_encoding => /** encoding of names */ encoding: u16,
        2760 s_encoding_flags => /** flags of that encoding */ encoding_flags: u16,
        2762 s_stop_reason => /** reasons why checkpoints were stopped */ stop_reason: [u8; 32],
        2794 s_errors => /** kinds of errors found */ errors: [u8; 16],
        2810 reserved => /** zero */ reserved: [u8; 258],
        3068 crc => /** checksum of all bytes before this field */ crc: u32,
    }
}

/// Continues a CRC-32 (IEEE) from `state`, without inversions.
pub(crate) fn checksum(state: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!state);
    hasher.update(bytes);
    !hasher.finalize()
}

/// The geometry of a file system. Its values were checked, so they can be used in arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of blocks.
    pub blocks: u64,
    /// The first block of the checkpoint packs.
    pub checkpoints: u64,
    /// The first block of the SIT.
    pub sit: u64,
    /// The first block of the NAT.
    pub nat: u64,
    /// The first block of the SSA.
    pub ssa: u64,
    /// The first block of the main area.
    pub main: u64,
    /// The number of segments in the main area.
    pub segments: u64,
    /// Additional blocks of a checkpoint for version bitmaps (`cp_payload`).
    pub payload: u64,
    /// The root directory's inode.
    pub root: u32,
    /// The inodes of quota files, 0 if there is none.
    pub quotas: [u32; 3],
    /// The feature bits.
    pub features: u32,
    /// The start value of inode checksums.
    pub inode_seed: u32,
}

impl Superblock {
    /// The geometry that a superblock gives; `None` if a value is impossible.
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

/// The area to which a block belongs, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The first superblock's block.
    Superblock,
    /// The second superblock's block.
    SuperblockCopy,
    /// A block before the first segment.
    Before,
    /// A block of a checkpoint pack: the pack, and the block's index in it.
    Pack(usize, u64),
    /// A block of the SIT: its index, and which of its two places this is.
    Sit(u64, usize),
    /// A block of the NAT: its index, and which of its two places this is.
    Nat(u64, usize),
    /// The summary of this segment.
    Ssa(u64),
    /// A block of this segment of the main area.
    Main(u64),
    /// A block in none of these areas.
    Outside,
}

impl Geometry {
    /// The area of a block.
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

    /// The segment of the main area that contains a block.
    pub fn segment(&self, block: u64) -> Option<u64> {
        let segment = block.checked_sub(self.main)? / SEGMENT;
        (segment < self.segments).then_some(segment)
    }

    /// The number of blocks in one copy of the SIT that are in use.
    pub fn sit_blocks(&self) -> u64 {
        let half = (self.nat - self.sit) / 2;
        half.min(self.segments.div_ceil(maps::SIT_ENTRIES as u64))
    }

    /// The first or second place of a block of the SIT.
    pub fn sit_block(&self, n: u64, second: bool) -> u64 {
        self.sit + n + if second { (self.nat - self.sit) / 2 } else { 0 }
    }

    /// The number of blocks in one copy of the NAT.
    pub fn nat_blocks(&self) -> u64 {
        (self.ssa - self.nat) / 2
    }

    /// The first or second place of a block of the NAT.
    pub fn nat_block(&self, n: u64, second: bool) -> u64 {
        let first = self.nat + n / SEGMENT * 2 * SEGMENT + n % SEGMENT;
        first + if second { SEGMENT } else { 0 }
    }

    /// The number of blocks at the end of a checkpoint pack with the bitmaps of full and empty NAT
    /// blocks.
    pub fn nat_bits_blocks(&self) -> u64 {
        (8 + 2 * self.nat_blocks() / 8).div_ceil(BLOCK as u64)
    }
}
