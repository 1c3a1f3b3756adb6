//! The superblock and its copies.

use super::chunk::Chunk;
use super::{Key, LE, LEVELS};

/// The places of the superblock and of its copies in bytes, as far as the device reaches.
pub const PLACES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// The magic number (`BTRFS_MAGIC`).
const MAGIC: u64 = u64::from_le_bytes(*b"_BHRfS_M");
/// The incompatible features that are known here: all except zoned devices, the second version of
/// the extent tree, and the stripe tree.
const KNOWN: u64 = 0xfff | 1 << 16;
const METADATA_UUID: u64 = 1 << 10;

crate::on_disk! {
    /// A device (`struct btrfs_dev_item`).
    pub struct DevItem: 98 {
        0 devid => /** number of the device */ devid: u64,
        8 total_bytes => /** size of the device in bytes */ total_bytes: u64,
        16 bytes_used => /** number of bytes in chunks */ bytes_used: u64,
        24 io_align => /** preferred alignment of requests, in bytes */ io_align: u32,
        28 io_width => /** preferred size of requests, in bytes */ io_width: u32,
        32 sector_size => /** bytes in a sector */ sector_size: u32,
        36 type => /** type of the device */ kind: u64,
        44 generation => /** expected generation of the device */ generation: u64,
        52 start_offset => /** first byte that chunks may use */ start_offset: u64,
        60 dev_group => /** group of devices */ dev_group: u32,
        64 seek_speed => /** seek speed, 0 to 100 */ seek_speed: u8,
        65 bandwidth => /** bandwidth, 0 to 100 */ bandwidth: u8,
        66 uuid => /** UUID of the device */ uuid: [u8; 16],
        82 fsid => /** UUID of the file system of this device */ fsid: [u8; 16],
    }
}

crate::on_disk! {
    /// The superblock (`struct btrfs_super_block`).
    pub struct Superblock: 4096 {
        0 csum => /** checksum of all bytes after this field */ csum: [u8; 32],
        32 fsid => /** UUID of the file system */ fsid: [u8; 16],
        48 bytenr => /** first byte of this copy on the device */ bytenr: u64,
        56 flags => /** flags */ flags: u64,
        64 magic => /** `_BHRfS_M` */ magic: u64,
        72 generation => /** newest committed transaction */ generation: u64,
        80 root => /** address of the root of the root tree */ root: u64,
        88 chunk_root => /** address of the root of the chunk tree */ chunk_root: u64,
        96 log_root => /** address of the root of the log tree; 0: none */ log_root: u64,
        104 log_root_transid => /** unused */ log_root_transid: u64,
        112 total_bytes => /** size of all devices in bytes */ total_bytes: u64,
        120 bytes_used => /** number of bytes in use */ bytes_used: u64,
        128 root_dir_objectid => /** object number of the directory of trees */ root_dir_objectid: u64,
        136 num_devices => /** number of devices */ num_devices: u64,
        144 sectorsize => /** size of a data block in bytes */ sectorsize: u32,
        148 nodesize => /** size of a tree block in bytes */ nodesize: u32,
        152 __unused_leafsize => /** a copy of `nodesize` */ leafsize: u32,
        156 stripesize => /** unused */ stripesize: u32,
        160 sys_chunk_array_size => /** bytes in use in `sys_chunk_array` */ sys_chunk_array_size: u32,
        164 chunk_root_generation => /** transaction that wrote the root of the chunk tree */ chunk_root_generation: u64,
        172 compat_flags => /** features that any version may ignore */ compat_flags: u64,
        180 compat_ro_flags => /** features that must be known to write the file system */ compat_ro_flags: u64,
        188 incompat_flags => /** features that must be known to read the file system */ incompat_flags: u64,
        196 csum_type => /** checksum: 0 CRC-32C, 1 xxHash, 2 SHA-256, 3 BLAKE2 */ csum_type: u16,
        198 root_level => /** level of the root of the root tree */ root_level: u8,
        199 chunk_root_level => /** level of the root of the chunk tree */ chunk_root_level: u8,
        200 log_root_level => /** level of the root of the log tree */ log_root_level: u8,
        201 dev_item => /** description of this device */ dev_item: DevItem,
        299 label => /** volume label */ label: [u8; 256],
        555 cache_generation => /** transaction of the free space caches */ cache_generation: u64,
        563 uuid_tree_generation => /** transaction of the UUID tree */ uuid_tree_generation: u64,
        571 metadata_uuid => /** UUID in tree blocks, with the feature METADATA_UUID */ metadata_uuid: [u8; 16],
        587 nr_global_roots => /** number of roots of each kind, with extent tree 2 */ nr_global_roots: u64,
        595 reserved => /** zero */ reserved: [u64; 27],
        811 sys_chunk_array => /** system chunks, each behind its key */ sys_chunk_array: [u8; 2048],
        2859 super_roots => /** roots of older transactions, for rescue */ super_roots: [u8; 672],
        3531 padding => /** zero */ padding: [u8; 565],
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
    /// The logical address.
    pub address: u64,
    /// The transaction that wrote it.
    pub generation: u64,
    /// The level: 0 for a leaf.
    pub level: u8,
}

impl Superblock {
    /// Reads the superblock at byte `place` of a device. `None` if there is none, its checksum is
    /// wrong, or it has a feature that is not known.
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

    /// The roots that the superblock makes current: of the root tree, the chunk tree, and the log
    /// tree where there is one.
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

    /// The system chunks, which hold the chunk tree. If one makes no sense, it and those after it
    /// are left out.
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
    // `csum` of the superblock and of tree blocks.
    LE.get_u32(bytes, 0) == crc32c::crc32c(&bytes[32..])
}
