//! DualFS: data and metadata apart. `docs/formats/dualfs.md`.
//!
//! The metadata device has a log on the structures of LFS64 ([`crate::lfs`]), whose superblocks
//! have a magic number of their own. The data device has the contents of regular files in groups of
//! blocks, and an identity.
//!
//! Layers, lowest first:
//! - [`Identity`]: the first sector of both devices: which pair they belong to, and which of the
//!   two each is.
//! - [`DataShape`]: the data device's blocks and groups, and the places of its tables in the IFILE.
//! - [`GroupDescriptor`]: how many blocks of a group are free, and how many inodes it has.
//! - [`check_pair`]: whether two devices belong together and were mounted together last.
//!
//! ```
//! use ordo_format::dualfs::{Identity, IdentityError};
//! assert!(matches!(Identity::read(&[0; 512]), Err(IdentityError::Magic { .. })));
//! ```

use std::fmt;

use crate::Endian;

/// The magic number of an identity, `OrdoDual`.
pub const IDENTITY_MAGIC: u64 = u64::from_le_bytes(*b"OrdoDual");
/// The magic number of the superblocks of the metadata log, `DuFS`.
pub const SUPERBLOCK_MAGIC: u32 = u32::from_le_bytes(*b"DuFS");
/// The version of the format.
pub const VERSION: u32 = 1;
/// The number of bytes of an identity: a sector, which is written wholly or not at all.
pub const IDENTITY_SIZE: usize = 512;
/// The role of the metadata device.
pub const ROLE_METADATA: u32 = 1;
/// The role of the data device.
pub const ROLE_DATA: u32 = 2;
/// The byte of an identity's checksum.
const CHECK_AT: usize = 508;

const LE: Endian = Endian::Little;

crate::on_disk! {
    /// The first sector of a device of a pair.
    pub struct Identity: 512 {
        0 => /** `OrdoDual` */ magic: u64,
        8 => /** version: 1 */ version: u32,
        12 => /** 1: metadata device; 2: data device */ role: u32,
        16 => /** identifier of the pair, the same on both devices */ uuid: [u8; 16],
        32 => /** generation: grows by one with each mount for writing */ generation: u64,
        40 => /** on the metadata device: the generation that a mount is about to set; 0: none */ next: u64,
        48 => /** size of a block in bytes: a power of two from 512 to 8192 */ bsize: u32,
        52 => /** blocks in a group: a multiple of 8 */ group_blocks: u32,
        56 => /** number of groups */ groups: u32,
        60 => /** reserved: must be 0 */ reserved: u32,
        64 => /** number of blocks of the data device, including the block with its identity */ blocks: u64,
        72 => /** size of the metadata device in bytes */ metadata_bytes: u64,
        80 => /** on the metadata device: first byte of the data device on the same disk; 0: on another disk */ data_at: u64,
        88 => /** first block of the copy of the metadata on the data device, behind all other blocks; 0: there is no copy */ copy_at: u64,
        96 => /** number of blocks of the copy */ copy_blocks: u64,
        104 => /** reserved: must be 0 */ reserved_2: u64,
        112 => /** zero */ pad: [u8; 396],
        508 => /** CRC-32C of the 508 bytes before this field */ check: u32,
    }
}

crate::on_disk! {
    /// An entry of the group descriptor table, in the IFILE.
    pub struct GroupDescriptor: 8 {
        0 => /** number of free blocks in the group */ free: u32,
        4 => /** number of inodes whose contents should be in the group */ inodes: u32,
    }
}

/// The magic number of a copy of the metadata, `OrdoCopy`.
pub const COPY_MAGIC: u64 = u64::from_le_bytes(*b"OrdoCopy");

crate::on_disk! {
    /// The head of a copy of the metadata: a sector. There are two, written in turn.
    pub struct CopyHead: 512 {
        0 => /** `OrdoCopy` */ magic: u64,
        8 => /** version: 1 */ version: u32,
        12 => /** zero */ reserved: u32,
        16 => /** identifier of the pair */ uuid: [u8; 16],
        32 => /** sequence number: grows by one with each copy */ sequence: u64,
        40 => /** serial number of the checkpoint that was copied */ serial: u64,
        48 => /** time of that checkpoint, seconds since 1970 */ time: u64,
        56 => /** number of entries in the index */ entries: u64,
        64 => /** CRC-32C of the index, with its superblock */ index_check: u32,
        68 => /** zero */ pad: [u8; 440],
        508 => /** CRC-32C of the 508 bytes before this field */ check: u32,
    }
}

crate::on_disk! {
    /// An entry of the index of a copy: a block of the log.
    pub struct CopyEntry: 16 {
        0 => /** address of the block in the log */ addr: i64,
        8 => /** number of the slot with its contents */ slot: u32,
        12 => /** CRC-32C of its contents */ check: u32,
    }
}

impl CopyHead {
    /// Decodes the head of a copy; `None` where it is none, or not whole.
    pub fn read(bytes: &[u8]) -> Option<CopyHead> {
        let bytes = bytes.get(..CopyHead::SIZE)?;
        let head = CopyHead::decode(bytes, LE);
        let is_whole = head.check == crate::check_hash(&[&bytes[..CHECK_AT]]);
        let is_known = (head.magic, head.version) == (COPY_MAGIC, VERSION);
        (is_whole && is_known).then_some(head)
    }

    /// Encodes the head with its checksum. Panics where there are fewer than 512 bytes.
    pub fn seal(&self, bytes: &mut [u8]) {
        self.encode(bytes, LE);
        let check = crate::check_hash(&[&bytes[..CHECK_AT]]);
        LE.put_u32(bytes, CHECK_AT, check);
    }
}

/// The part of a data device with the copy of the metadata: two heads, two indexes, and slots of
/// one block each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyArea {
    /// The first block of the copy.
    pub at: u64,
    /// The number of slots.
    pub slots: u64,
    /// The size of a block in bytes.
    pub bsize: u32,
}

impl CopyArea {
    /// The slots that so many blocks have room for.
    pub fn slots_in(blocks: u64, bsize: u32) -> u64 {
        let most = blocks.min(u64::from(u32::MAX));
        // Each slot takes an entry in two indexes. The estimate is less than two blocks of indexes
        // too high.
        let each = u64::from(bsize) + 2 * CopyEntry::SIZE as u64;
        let mut slots = most * u64::from(bsize) / each;
        while slots > 0 && 2 + 2 * CopyArea::index_blocks_of(slots, bsize) + slots > most {
            slots -= 1;
        }
        slots
    }

    fn index_blocks_of(slots: u64, bsize: u32) -> u64 {
        let bytes = crate::lfs::SUPERBLOCK_SIZE as u64 + slots * CopyEntry::SIZE as u64;
        bytes.div_ceil(bsize.into())
    }

    fn byte_of(&self, block: u64) -> u64 {
        (self.at + block) * u64::from(self.bsize)
    }

    /// The byte of one of the two heads on the data device.
    pub fn head_at(&self, which: usize) -> u64 {
        self.byte_of(which as u64 % 2)
    }

    /// The number of blocks of an index.
    pub fn index_blocks(&self) -> u64 {
        CopyArea::index_blocks_of(self.slots, self.bsize)
    }

    /// The first byte of the index that belongs to a head.
    pub fn index_at(&self, which: usize) -> u64 {
        self.byte_of(2 + (which as u64 % 2) * self.index_blocks())
    }

    /// The byte of a slot.
    pub fn slot_at(&self, slot: u32) -> u64 {
        self.byte_of(2 + 2 * self.index_blocks() + u64::from(slot))
    }
}

/// The reason why an identity is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// There are too few bytes.
    #[error("{have} bytes are too few for an identity")]
    TooShort {
        /// The number of bytes.
        have: usize,
    },
    /// The device belongs to no pair.
    #[error("byte 0: {value:#018x} is not the magic number of a DualFS")]
    Magic {
        /// The value found.
        value: u64,
    },
    /// The checksum is wrong.
    #[error("byte 508: checksum {found:#010x}, but the contents give {right:#010x}")]
    Checksum {
        /// The stored checksum.
        found: u32,
        /// The checksum of the contents.
        right: u32,
    },
    /// The version is a later one.
    #[error("byte 8: version {value}, but only version 1 is known")]
    Version {
        /// The value found.
        value: u32,
    },
    /// The device is neither of the two.
    #[error("byte 12: {value} is not the role of a device (1: metadata, 2: data)")]
    Role {
        /// The value found.
        value: u32,
    },
    /// Blocks have an impossible size.
    #[error("byte 48: blocks of {value} bytes")]
    BlockSize {
        /// The value found.
        value: u32,
    },
    /// Groups have an impossible size.
    #[error("byte 52: groups of {value} blocks")]
    GroupBlocks {
        /// The value found.
        value: u32,
    },
    /// The number of groups does not agree with the number of blocks.
    #[error("byte 56: {value} groups, but the blocks make {right}")]
    Groups {
        /// The value found.
        value: u32,
        /// The right value.
        right: u64,
    },
    /// There are no blocks for files, or more than can be counted.
    #[error("byte 64: {value} blocks on the data device")]
    Blocks {
        /// The value found.
        value: u64,
    },
    /// The metadata device of the pair is a mirror of two halves, as older versions of Ordo could
    /// make it.
    #[error(
        "byte 60: {value}, which must be 0: the metadata device of this pair is a mirror of two halves; \
         copy the files off with the version of Ordo that made it, then make a new file system"
    )]
    Mirrored {
        /// The number of halves.
        value: u32,
    },
    /// A reserved field that must be 0 is not.
    #[error("byte 104: {value}, which must be 0")]
    Reserved {
        /// The value found.
        value: u64,
    },
    /// The copy of the metadata cannot be there, or not be so short.
    #[error("byte 88: a copy of the metadata of {blocks} blocks at block {at}")]
    Copy {
        /// Its first block.
        at: u64,
        /// Its blocks.
        blocks: u64,
    },
    /// The data device begins inside of the metadata device.
    #[error("byte 80: the data device begins at byte {value}, inside of the metadata device")]
    DataAt {
        /// The value found.
        value: u64,
    },
}

impl IdentityError {
    /// The words that lead from a device's name to its fault.
    pub fn verdict(&self) -> &'static str {
        match self {
            IdentityError::Mirrored { .. } | IdentityError::Reserved { .. } => {
                "is of a DualFS that this version does not read"
            }
            _ => "is not a device of a DualFS",
        }
    }
}

/// The most blocks of a data device: the tables of more do not fit into an IFILE of a sensible
/// size.
const BLOCKS_MAX: u64 = 1 << 40;

impl Identity {
    /// Decodes and checks an identity.
    ///
    /// # Errors
    /// [`IdentityError`], which names the fault and its byte.
    pub fn read(bytes: &[u8]) -> Result<Identity, IdentityError> {
        use IdentityError as E;
        let have = bytes.len();
        let bytes = bytes.get(..IDENTITY_SIZE).ok_or(E::TooShort { have })?;
        let id = Identity::decode(bytes, LE);
        if id.magic != IDENTITY_MAGIC {
            return Err(E::Magic { value: id.magic });
        }
        let right = crate::check_hash(&[&bytes[..CHECK_AT]]);
        if id.check != right {
            return Err(E::Checksum { found: id.check, right });
        }
        let shape = id.shape();
        let right = shape.groups_needed();
        match () {
            () if id.version != VERSION => Err(E::Version { value: id.version }),
            () if id.reserved != 0 => Err(E::Mirrored { value: id.reserved }),
            () if id.reserved_2 != 0 => Err(E::Reserved { value: id.reserved_2 }),
            () if ![ROLE_METADATA, ROLE_DATA].contains(&id.role) => Err(E::Role { value: id.role }),
            () if !id.bsize.is_power_of_two() || !(512..=8192).contains(&id.bsize) => {
                Err(E::BlockSize { value: id.bsize })
            }
            () if id.group_blocks == 0 || !id.group_blocks.is_multiple_of(8) => {
                Err(E::GroupBlocks { value: id.group_blocks })
            }
            () if !(2..=BLOCKS_MAX).contains(&id.blocks) => Err(E::Blocks { value: id.blocks }),
            () if u64::from(id.groups) != right => Err(E::Groups { value: id.groups, right }),
            () if id.data_at != 0 && id.data_at < id.metadata_bytes => {
                Err(E::DataAt { value: id.data_at })
            }
            () if !id.is_copy_right() => Err(E::Copy { at: id.copy_at, blocks: id.copy_blocks }),
            () => Ok(id),
        }
    }

    /// Encodes the identity with its checksum. Panics if there are fewer than 512 bytes.
    pub fn seal(&self, bytes: &mut [u8]) {
        self.encode(bytes, LE);
        let check = crate::check_hash(&[&bytes[..CHECK_AT]]);
        LE.put_u32(bytes, CHECK_AT, check);
    }

    /// The data device's blocks and groups.
    pub fn shape(&self) -> DataShape {
        DataShape { bsize: self.bsize, group_blocks: self.group_blocks, blocks: self.blocks }
    }

    /// Whether there is no copy of the metadata, or it is behind the data device's last block and
    /// has room.
    fn is_copy_right(&self) -> bool {
        let is_near = self.copy_at >= self.blocks && self.copy_at <= BLOCKS_MAX;
        match (self.copy_at, self.copy_blocks) {
            (0, 0) => true,
            (_, blocks) => {
                is_near && blocks <= BLOCKS_MAX && CopyArea::slots_in(blocks, self.bsize) > 0
            }
        }
    }

    /// The place of the copy of the metadata, where there is one.
    pub fn copy_area(&self) -> Option<CopyArea> {
        let (at, bsize) = (self.copy_at, self.bsize);
        (at > 0).then(|| CopyArea { at, slots: CopyArea::slots_in(self.copy_blocks, bsize), bsize })
    }

    /// The number of bytes that the data device has at least.
    pub fn data_bytes(&self) -> u64 {
        let blocks = self.blocks.max(self.copy_at.saturating_add(self.copy_blocks));
        blocks.saturating_mul(self.bsize.into())
    }

    /// The pair's identifier, as it is written down.
    pub fn name(&self) -> PairName {
        PairName(self.uuid)
    }

    /// The device's role in the pair, in a word.
    pub fn role_name(&self) -> &'static str {
        if self.role == ROLE_METADATA { "metadata" } else { "data" }
    }
}

/// The identifier of a pair; shown as UUIDs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairName(pub [u8; 16]);

impl fmt::Display for PairName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&i) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// The reason why two devices cannot be used together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The devices are in the wrong order.
    #[error(
        "the devices are swapped: a metadata device is where the data device should be, and the reverse"
    )]
    Swapped,
    /// Both are the same half of a pair.
    #[error("both are {role} devices; one of each is needed")]
    SameRole {
        /// Their role.
        role: &'static str,
    },
    /// The devices are of different pairs.
    #[error("the metadata device is of the pair {metadata}, the data device of the pair {data}")]
    Foreign {
        /// The pair of the metadata device.
        metadata: PairName,
        /// The pair of the data device.
        data: PairName,
    },
    /// One device is an older copy.
    #[error(
        "the {role} device is older: its mount {have}, the other's mount {want}; use the copy that was mounted last"
    )]
    Older {
        /// The older device's role.
        role: &'static str,
        /// The generation of the older device.
        have: u64,
        /// The generation of the other device.
        want: u64,
    },
    /// The devices disagree about blocks or groups.
    #[error("the devices disagree about the data device's blocks: {metadata} and {data}")]
    Shape {
        /// The number of blocks according to the metadata device.
        metadata: u64,
        /// The number of blocks according to the data device.
        data: u64,
    },
}

/// Whether two devices, the metadata device first, belong together and were mounted together last.
///
/// A mount that writes raises the pair's generation in three steps: it announces the new generation
/// on the metadata device, writes it to the data device, and makes it current on the metadata
/// device. So the data device has either the generation that is current on the metadata device, or
/// the one that is announced there.
///
/// # Errors
/// [`PairError`].
pub fn check_pair(metadata: &Identity, data: &Identity) -> Result<(), PairError> {
    match (metadata.role, data.role) {
        (ROLE_DATA, ROLE_METADATA) => return Err(PairError::Swapped),
        (one, other) if one == other => {
            return Err(PairError::SameRole { role: metadata.role_name() });
        }
        _ => {}
    }
    if metadata.uuid != data.uuid {
        return Err(PairError::Foreign { metadata: metadata.name(), data: data.name() });
    }
    if metadata.shape() != data.shape() {
        return Err(PairError::Shape { metadata: metadata.blocks, data: data.blocks });
    }
    let (own, other) = (metadata.generation, data.generation);
    match () {
        () if own == other || other != 0 && metadata.next == other => Ok(()),
        () if other < own => Err(PairError::Older { role: "data", have: other, want: own }),
        () => Err(PairError::Older { role: "metadata", have: own, want: other }),
    }
}

/// The data device's blocks and groups. Blocks are counted from 0, which has the identity and
/// belongs to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataShape {
    /// The size of a block in bytes.
    pub bsize: u32,
    /// The number of blocks of a group; the last group may have fewer.
    pub group_blocks: u32,
    /// The number of blocks of the device.
    pub blocks: u64,
}

impl DataShape {
    fn groups_needed(&self) -> u64 {
        self.blocks.div_ceil(u64::from(self.group_blocks.max(1)))
    }

    /// The number of groups.
    pub fn groups(&self) -> u32 {
        self.groups_needed() as u32
    }

    /// The blocks of a group, the last of which is one less than the end.
    pub fn group(&self, group: u32) -> std::ops::Range<u64> {
        let start = u64::from(group) * u64::from(self.group_blocks);
        start..(start + u64::from(self.group_blocks)).min(self.blocks)
    }

    /// The group of a block.
    pub fn group_of(&self, block: u64) -> u32 {
        (block / u64::from(self.group_blocks)) as u32
    }

    /// Whether a pointer leads to a block that a file can have.
    pub fn holds(&self, addr: i64) -> bool {
        u64::try_from(addr).is_ok_and(|block| block > 0 && block < self.blocks)
    }

    /// The number of blocks of the group descriptor table.
    pub fn descriptor_blocks(&self) -> u64 {
        (u64::from(self.groups()) * GroupDescriptor::SIZE as u64).div_ceil(self.bsize.into())
    }

    /// The number of blocks of the group bitmap table.
    pub fn bitmap_blocks(&self) -> u64 {
        self.blocks.div_ceil(8).div_ceil(self.bsize.into())
    }

    /// The number of blocks of both tables.
    pub fn table_blocks(&self) -> u64 {
        self.descriptor_blocks() + self.bitmap_blocks()
    }

    /// The byte of a group's descriptor in the tables.
    pub fn descriptor_at(&self, group: u32) -> usize {
        group as usize * GroupDescriptor::SIZE
    }

    /// The byte in the tables with a block's bit, and the bit's mask. A bit is 1 if the block is in
    /// use.
    pub fn bit_at(&self, block: u64) -> (usize, u8) {
        let first = self.descriptor_blocks() as usize * self.bsize as usize;
        (first + (block / 8) as usize, 1 << (block % 8))
    }

    /// The tables of an empty file system: all blocks but the identity's are free, and the root
    /// belongs to group 0.
    pub fn empty_tables(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.table_blocks() as usize * self.bsize as usize];
        for group in 0..self.groups() {
            let range = self.group(group);
            let is_first = u32::from(group == 0);
            let free = (range.end - range.start) as u32 - is_first;
            let at = self.descriptor_at(group);
            GroupDescriptor { free, inodes: is_first }.encode(&mut bytes[at..], LE);
        }
        let (byte, mask) = self.bit_at(0);
        bytes[byte] |= mask;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(role: u32) -> Identity {
        let mut id = Identity::zeroed();
        (id.magic, id.version, id.role) = (IDENTITY_MAGIC, VERSION, role);
        (id.uuid, id.generation) = (*b"0123456789abcdef", 7);
        (id.bsize, id.group_blocks, id.blocks) = (4096, 64, 1000);
        (id.groups, id.metadata_bytes) = (16, 1 << 20);
        id
    }

    fn sealed(change: impl FnOnce(&mut Identity)) -> [u8; IDENTITY_SIZE] {
        let mut id = identity(ROLE_METADATA);
        change(&mut id);
        let mut bytes = [0; IDENTITY_SIZE];
        id.seal(&mut bytes);
        bytes
    }

    /// A change, and the error that it makes.
    type Case = (fn(&mut Identity), IdentityError);

    /// A valid identity is read; each kind of damage has its own error. Would catch a value that is
    /// used in a computation before it is checked.
    #[test]
    fn each_damage_has_its_error() {
        use IdentityError as E;
        assert_eq!(Identity::read(&sealed(|_| {})).unwrap().shape().groups(), 16);
        assert_eq!(Identity::read(&[0; 9]), Err(E::TooShort { have: 9 }));
        let mut torn = sealed(|_| {});
        torn[300] ^= 1;
        assert!(matches!(Identity::read(&torn), Err(E::Checksum { .. })));
        let cases: [Case; 14] = [
            (|i| i.magic = 1, E::Magic { value: 1 }),
            (|i| i.version = 2, E::Version { value: 2 }),
            (|i| i.role = 3, E::Role { value: 3 }),
            (|i| i.bsize = 1000, E::BlockSize { value: 1000 }),
            (|i| i.group_blocks = 0, E::GroupBlocks { value: 0 }),
            (|i| i.groups = 17, E::Groups { value: 17, right: 16 }),
            (|i| i.blocks = 1, E::Blocks { value: 1 }),
            (|i| i.data_at = 4096, E::DataAt { value: 4096 }),
            (|i| i.reserved = 2, E::Mirrored { value: 2 }),
            (|i| (i.reserved, i.reserved_2) = (1, 3), E::Mirrored { value: 1 }),
            (|i| i.reserved_2 = 3, E::Reserved { value: 3 }),
            (|i| (i.copy_at, i.copy_blocks) = (999, 90), E::Copy { at: 999, blocks: 90 }),
            (|i| (i.copy_at, i.copy_blocks) = (1000, 4), E::Copy { at: 1000, blocks: 4 }),
            (
                |i| (i.copy_at, i.copy_blocks) = (1000, u64::MAX),
                E::Copy { at: 1000, blocks: u64::MAX },
            ),
        ];
        for (change, error) in cases {
            assert_eq!(Identity::read(&sealed(change)), Err(error));
        }
    }

    /// The parts of a copy lie behind each other and inside of it, whatever its size. Would catch
    /// an index that reaches into a slot, and slots behind the end.
    #[test]
    fn the_parts_of_a_copy_have_room() {
        for bsize in [512, 4096, 8192] {
            assert_eq!(CopyArea::slots_in(4, bsize), 0);
            for blocks in (7..2000).chain([100_000, 1 << 33]) {
                let slots = CopyArea::slots_in(blocks, bsize);
                let area = CopyArea { at: 70, slots, bsize };
                let b = u64::from(bsize);
                assert!(slots > 0 && slots <= u64::from(u32::MAX));
                assert_eq!((area.head_at(0), area.head_at(1)), (70 * b, 71 * b));
                let bytes = 512 + slots * CopyEntry::SIZE as u64;
                assert!(area.index_at(0) + bytes <= area.index_at(1));
                assert!(area.index_at(1) + bytes <= area.slot_at(0));
                let end = area.slot_at((slots - 1) as u32) + b;
                assert!(end <= (70 + blocks) * b, "{bsize}, {blocks}");
                assert!(blocks > 1 << 32 || end + 3 * b > (70 + blocks) * b, "{bsize}, {blocks}");
            }
        }
    }

    /// Devices belong together by role, identifier, shape and generation; a mount that was
    /// interrupted between its two writes leaves a valid pair. Would catch an older copy that is
    /// taken for the pair's own.
    #[test]
    fn devices_that_do_not_belong_together_are_refused() {
        let (meta, data) = (identity(ROLE_METADATA), identity(ROLE_DATA));
        assert_eq!(check_pair(&meta, &data), Ok(()));
        assert_eq!(check_pair(&data, &meta), Err(PairError::Swapped));
        assert_eq!(check_pair(&data, &data), Err(PairError::SameRole { role: "data" }));
        let with = |id: &Identity, change: &dyn Fn(&mut Identity)| {
            let mut id = id.clone();
            change(&mut id);
            id
        };
        let foreign = with(&data, &|d| d.uuid[3] ^= 1);
        assert!(matches!(check_pair(&meta, &foreign), Err(PairError::Foreign { .. })));
        let smaller = with(&data, &|d| d.blocks = 999);
        assert!(matches!(check_pair(&meta, &smaller), Err(PairError::Shape { .. })));
        let announced = with(&meta, &|m| m.next = 8);
        let mounted = with(&data, &|d| d.generation = 8);
        assert_eq!(check_pair(&announced, &data), Ok(()));
        assert_eq!(check_pair(&announced, &mounted), Ok(()));
        let older = |role, have, want| Err(PairError::Older { role, have, want });
        assert_eq!(check_pair(&meta, &mounted), older("metadata", 7, 8));
        assert_eq!(check_pair(&with(&meta, &|m| m.generation = 8), &data), older("data", 7, 8));
        assert_eq!(meta.name().to_string(), "30313233-3435-3637-3839-616263646566");
    }

    /// Bits and descriptors of all blocks and groups lie in the tables, apart from each other; the
    /// groups together are the device. Would catch tables that are a block too short.
    #[test]
    fn the_tables_have_room_for_every_block() {
        for (bsize, group_blocks, blocks) in [(512, 8, 40_000), (4096, 64, 1000), (4096, 32768, 3)]
        {
            let shape = DataShape { bsize, group_blocks, blocks };
            let tables = shape.empty_tables();
            let sum: u64 = (0..shape.groups()).map(|g| shape.group(g).count() as u64).sum();
            assert_eq!(sum, blocks);
            assert!(shape.descriptor_at(shape.groups()) <= shape.bit_at(0).0);
            assert!(shape.bit_at(blocks - 1).0 < tables.len());
            let free = |g| GroupDescriptor::decode(&tables[shape.descriptor_at(g)..], LE).free;
            let free: u64 = (0..shape.groups()).map(|g| u64::from(free(g))).sum();
            let used: u32 = tables[shape.bit_at(0).0..].iter().map(|b| b.count_ones()).sum();
            assert_eq!((used, free), (1, blocks - 1));
            assert_eq!(shape.group_of(blocks - 1) + 1, shape.groups());
            assert!(!shape.holds(0) && shape.holds(1) && !shape.holds(blocks as i64));
        }
    }
}
