//! The superblock and its copies.

use super::chunk::Chunk;
use super::{Key, LE, LEVELS};

/// The places of the superblock and of its copies in bytes, as far as the device reaches.
pub const PLACES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// The magic number (`BTRFS_MAGIC`).
const MAGIC: u64 = u64::from_le_bytes(*b"_BHRfS_M");
/// The incompatible features that are known here: all except zoned devices, the second version of the extent tree,
/// and the stripe tree.
const KNOWN: u64 = 0xfff | 1 << 16;
const METADATA_UUID: u64 = 1 << 10;

crate::on_disk! {
    /// A device (`struct btrfs_dev_item`).
    pub struct DevItem: 98 {
        0 => /** its number */ devid: u64,
        8 => /** its size in bytes */ total_bytes: u64,
        16 => /** bytes in chunks */ bytes_used: u64,
        24 => /** best alignment */ io_align: u32,
        28 => /** best width */ io_width: u32,
        32 => /** bytes in a sector */ sector_size: u32,
        36 => /** its kind */ kind: u64,
        44 => /** generation */ generation: u64,
        52 => /** where it starts */ start_offset: u64,
        60 => /** group of devices */ dev_group: u32,
        64 => /** 0 to 100 */ seek_speed: u8,
        65 => /** 0 to 100 */ bandwidth: u8,
        66 => /** identity */ uuid: [u8; 16],
        82 => /** the file system that it is of */ fsid: [u8; 16],
    }
}

crate::on_disk! {
    /// The superblock (`struct btrfs_super_block`).
    pub struct Superblock: 4096 {
        0 => /** checksum of what follows it */ csum: [u8; 32],
        32 => /** identity */ fsid: [u8; 16],
        48 => /** where this copy is, in bytes of the device */ bytenr: u64,
        56 => /** flags */ flags: u64,
        64 => /** `_BHRfS_M` */ magic: u64,
        72 => /** the newest transaction that is whole */ generation: u64,
        80 => /** address of the root tree */ root: u64,
        88 => /** address of the chunk tree */ chunk_root: u64,
        96 => /** address of the tree of log roots; 0: none */ log_root: u64,
        104 => /** unused */ log_root_transid: u64,
        112 => /** bytes of all devices */ total_bytes: u64,
        120 => /** bytes in use */ bytes_used: u64,
        128 => /** the directory of trees */ root_dir_objectid: u64,
        136 => /** devices */ num_devices: u64,
        144 => /** bytes in a block of data */ sectorsize: u32,
        148 => /** bytes in a block of a tree */ nodesize: u32,
        152 => /** as nodesize */ leafsize: u32,
        156 => /** unused */ stripesize: u32,
        160 => /** bytes of the chunks below */ sys_chunk_array_size: u32,
        164 => /** generation of the chunk tree */ chunk_root_generation: u64,
        172 => /** features that nobody need know */ compat_flags: u64,
        180 => /** features that a reader need not know */ compat_ro_flags: u64,
        188 => /** features that everybody must know */ incompat_flags: u64,
        196 => /** 0 CRC-32C, 1 xxHash, 2 SHA-256, 3 BLAKE2 */ csum_type: u16,
        198 => /** level of the root tree's root */ root_level: u8,
        199 => /** level of the chunk tree's root */ chunk_root_level: u8,
        200 => /** level of the root of log roots */ log_root_level: u8,
        201 => /** this device */ dev_item: DevItem,
        299 => /** label */ label: [u8; 256],
        555 => /** generation of the free space caches */ cache_generation: u64,
        563 => /** generation of the tree of identities */ uuid_tree_generation: u64,
        571 => /** what blocks of trees have as identity, with that feature */ metadata_uuid: [u8; 16],
        587 => /** roots of each kind, with extent tree 2 */ nr_global_roots: u64,
        595 => /** zero */ reserved: [u64; 27],
        811 => /** chunks of the system's, each behind its key */ sys_chunk_array: [u8; 2048],
        2859 => /** older roots, for rescue */ super_roots: [u8; 672],
        3531 => /** zero */ padding: [u8; 565],
    }
}

/// The sizes and identities that are needed to read a file system's structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size of a data block, as a shift.
    pub sector_shift: u32,
    /// The size of a tree block, in bytes.
    pub node_size: usize,
    /// The file system's identity, which every tree block carries.
    pub fsid: [u8; 16],
    /// Whether checksums are CRC-32C; others are not verified.
    pub crc32c: bool,
    /// This device's number.
    pub devid: u64,
}

/// A pointer to a tree block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer {
    /// Its logical address.
    pub address: u64,
    /// The transaction that wrote it.
    pub generation: u64,
    /// The level: 0 for a leaf.
    pub level: u8,
}

impl Superblock {
    /// Reads the superblock at byte `place` of a device. `None` where there is none, its checksum is wrong, or it has
    /// a feature that is not known.
    pub fn read(bytes: &[u8], place: u64) -> Option<Superblock> {
        if bytes.len() < Superblock::SIZE {
            return None;
        }
        let sb = Superblock::decode(bytes, LE);
        let power = |n: u32| n.is_power_of_two() && (4096..=65536).contains(&n);
        let sane = sb.magic == MAGIC
            && sb.bytenr == place
            && power(sb.sectorsize)
            && power(sb.nodesize)
            && sb.nodesize >= sb.sectorsize
            && sb.incompat_flags & !KNOWN == 0
            && sb.csum_type <= 3
            && sb.sys_chunk_array_size as usize <= sb.sys_chunk_array.len()
            && [sb.root_level, sb.chunk_root_level, sb.log_root_level].iter().all(|l| *l < LEVELS);
        let right = sb.csum_type != 0 || crc_is_right(&bytes[..Superblock::SIZE]);
        (sane && right).then_some(sb)
    }

    /// The geometry that the superblock gives.
    pub fn geometry(&self) -> Geometry {
        let other = self.incompat_flags & METADATA_UUID != 0;
        Geometry {
            sector_shift: self.sectorsize.ilog2(),
            node_size: self.nodesize as usize,
            fsid: if other { self.metadata_uuid } else { self.fsid },
            crc32c: self.csum_type == 0,
            devid: self.dev_item.devid,
        }
    }

    /// The roots that the superblock makes current: of the root tree, the chunk tree, and the log tree where there is
    /// one.
    pub fn roots(&self) -> Vec<Pointer> {
        let chunks = (self.chunk_root, self.chunk_root_generation, self.chunk_root_level);
        // The log tree belongs to the next transaction.
        let log = (self.log_root, self.generation.saturating_add(1), self.log_root_level);
        [(self.root, self.generation, self.root_level), chunks, log]
            .into_iter()
            .filter(|(address, ..)| *address != 0)
            .map(|(address, generation, level)| Pointer { address, generation, level })
            .collect()
    }

    /// The system chunks, which hold the chunk tree; those after one that makes no sense are left out.
    pub fn system_chunks(&self) -> Vec<Chunk> {
        let size = (self.sys_chunk_array_size as usize).min(self.sys_chunk_array.len());
        let mut rest = &self.sys_chunk_array[..size];
        let mut chunks = Vec::new();
        while rest.len() > Key::SIZE {
            let key = Key::decode(rest, LE);
            let Some((chunk, len)) = Chunk::read(key.offset, &rest[Key::SIZE..]) else { break };
            chunks.push(chunk);
            rest = &rest[Key::SIZE + len..];
        }
        chunks
    }
}

/// Whether the checksum at the start is the CRC-32C of everything behind the first 32 bytes.
pub(super) fn crc_is_right(bytes: &[u8]) -> bool {
    LE.get_u32(bytes, 0) == crc32c::crc32c(&bytes[32..])
}
