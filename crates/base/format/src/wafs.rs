//! WAFS: a log on a device of its own, or in a preallocated file.
//!
//! Layers: the superblock in two copies that are written in turn, and then sectors, each of which a
//! device writes wholly or not at all. A byte of the log has a logical offset, its log sequence
//! number (LSN), which only grows. The sectors are a ring over these offsets.
//!
//! All integers are little-endian. `docs/formats/wafs.md` describes the format.

use crate::Endian;

/// The magic number of the superblock, `OrdoWAFS`.
pub const SUPER_MAGIC: u64 = u64::from_le_bytes(*b"OrdoWAFS");
/// The magic number of a log sector, `wafs`.
pub const SECTOR_MAGIC: u32 = u32::from_le_bytes(*b"wafs");
/// The version of the format.
pub const VERSION: u32 = 2;
/// The smallest sector, in bytes.
pub const SECTOR_MIN: usize = 512;
/// The largest sector, in bytes.
pub const SECTOR_MAX: usize = 65536;
/// Sectors at the start for the superblock's two copies.
pub const SUPER_SECTORS: u64 = 2;
/// The value of [`SectorHead::first`] where no record begins in the sector.
pub const NO_RECORD: u16 = u16::MAX;

const LE: Endian = Endian::Little;

crate::on_disk! {
    /// One of the two copies of the superblock. The newer one with a right checksum is valid.
    pub struct WafsSuper: 256 {
        0 => /** `OrdoWAFS` */ magic: u64,
        8 => /** version: 2 */ version: u32,
        12 => /** CRC-32C of these 256 bytes, computed with this field as zero */ check: u32,
        16 => /** generation: grows by one with each write of the superblock; odd ones are in the second sector */ generation: u64,
        24 => /** random identifier, which every sector of the log has too */ id: u32,
        28 => /** size of a sector in bytes: a power of two from 512 to 65536 */ sector: u32,
        32 => /** number of sectors of the ring, which follows the two superblocks */ sectors: u64,
        40 => /** log sequence number of the oldest record that is kept */ start: u64,
        48 => /** log sequence number up to which the log was durable when this was written */ durable: u64,
        56 => /** number of times that the log was mounted for writing */ epoch: u32,
        60 => /** zero */ reserved: u32,
        64 => /** time of creation, seconds since 1970 */ made: i64,
        72 => /** name of the log */ label: [u8; 32],
        104 => /** data of the program that uses the log, written together with `start` */ client: [u8; 64],
        168 => /** zero */ spare: [u8; 88],
    }
}

crate::on_disk! {
    /// The head of a sector of the log; the payload follows.
    pub struct SectorHead: 40 {
        0 => /** `wafs` */ magic: u32,
        4 => /** CRC-32C of the whole sector, computed with this field as zero */ check: u32,
        8 => /** log sequence number of the first byte of the payload */ lsn: u64,
        16 => /** identifier of the log, as in the superblock */ id: u32,
        20 => /** epoch of the superblock when the sector was written */ epoch: u32,
        24 => /** time of the write, in seconds since the log was created */ time: u32,
        28 => /** distance from `lsn` back to the point up to which the log was known to be durable; at most 2^32 - 1 */ behind: u32,
        32 => /** number of bytes of the payload in use */ used: u16,
        34 => /** offset of the first record that begins in the payload; 65535: none begins */ first: u16,
        36 => /** number of sectors after this one that the log leaves out */ skip: u16,
        38 => /** zero */ reserved: u16,
    }
}

/// The reason why a superblock or a sector is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WafsError {
    /// The device is not a log.
    #[error("byte 0: {value:#018x} is not the magic number of a log")]
    Magic {
        /// The value found.
        value: u64,
    },
    /// The version is another: an earlier one, whose sectors have shorter heads, or a later one.
    #[error("byte 8: version {value}, but only version 2 is known")]
    Version {
        /// The value found.
        value: u32,
    },
    /// The checksum is wrong.
    #[error("byte 12: checksum {found:#010x}, but the contents give {right:#010x}")]
    Checksum {
        /// The stored checksum.
        found: u32,
        /// The checksum of the contents.
        right: u32,
    },
    /// The sector size is impossible.
    #[error("byte 28: sectors of {value} bytes")]
    Sector {
        /// The value found.
        value: u32,
    },
    /// The ring is larger than the device.
    #[error("byte 32: {value} sectors of log, but the device has space for {capacity}")]
    Sectors {
        /// The number of sectors found.
        value: u64,
        /// The number of sectors that fit.
        capacity: u64,
    },
}

impl WafsSuper {
    /// Decodes and checks a copy, on a device of `bytes` bytes.
    ///
    /// # Errors
    /// [`WafsError`], which names the fault and its byte.
    pub fn read(bytes: &[u8], device_bytes: u64) -> Result<WafsSuper, WafsError> {
        let sb = WafsSuper::decode(bytes, LE);
        if sb.magic != SUPER_MAGIC {
            return Err(WafsError::Magic { value: sb.magic });
        }
        let right = checksum(&bytes[..Self::SIZE], 12);
        if sb.check != right {
            return Err(WafsError::Checksum { found: sb.check, right });
        }
        if sb.version != VERSION {
            return Err(WafsError::Version { value: sb.version });
        }
        let size = sb.sector as usize;
        if !size.is_power_of_two() || !(SECTOR_MIN..=SECTOR_MAX).contains(&size) {
            return Err(WafsError::Sector { value: sb.sector });
        }
        let capacity = (device_bytes / u64::from(sb.sector)).saturating_sub(SUPER_SECTORS);
        if sb.sectors == 0 || sb.sectors > capacity {
            return Err(WafsError::Sectors { value: sb.sectors, capacity });
        }
        Ok(sb)
    }

    /// Repairs a copy in which one bit was flipped. Returns whether its checksum is right
    /// afterwards.
    pub fn repair(bytes: &mut [u8]) -> bool {
        repair(&mut bytes[..Self::SIZE], 12)
    }

    /// Encodes the superblock with its checksum.
    pub fn seal(&self, bytes: &mut [u8]) {
        self.encode(bytes, LE);
        let check = checksum(&bytes[..Self::SIZE], 12);
        LE.put_u32(bytes, 12, check);
    }

    /// The number of bytes of payload in a sector.
    pub fn payload(&self) -> usize {
        self.sector as usize - SectorHead::SIZE
    }
}

impl SectorHead {
    /// The head of a sector; `None` if its magic number or checksum is wrong.
    pub fn read(sector: &[u8]) -> Option<SectorHead> {
        SectorHead::read_unchecked(sector).filter(|head| head.check == checksum(sector, 4))
    }

    /// The head of a sector; `None` if its magic number is wrong or its length impossible. The
    /// checksum is not verified.
    pub fn read_unchecked(sector: &[u8]) -> Option<SectorHead> {
        let head = SectorHead::decode(sector, LE);
        let sound = head.magic == SECTOR_MAGIC && head.used as usize <= sector.len() - Self::SIZE;
        sound.then_some(head)
    }

    /// Encodes the head, with the checksum over the whole sector.
    pub fn seal(&self, sector: &mut [u8]) {
        self.encode(sector, LE);
        let check = checksum(sector, 4);
        LE.put_u32(sector, 4, check);
    }

    /// Repairs a sector in which one bit was flipped. Returns its head where its checksum is right
    /// afterwards.
    pub fn repair(sector: &mut [u8]) -> Option<SectorHead> {
        if repair(sector, 4) { SectorHead::read(sector) } else { None }
    }
}

/// Flips back the one bit that makes the checksum at byte `field` wrong; returns false if it is
/// more than one bit.
fn repair(bytes: &mut [u8], field: usize) -> bool {
    let found = LE.get_u32(bytes, field) ^ checksum(bytes, field);
    let bit = match found.count_ones() {
        0 => return true,
        // A flipped bit of the checksum itself is the difference.
        1 => Some(field * 8 + found.trailing_zeros() as usize),
        _ => flipped_bit(bytes.len(), found),
    };
    bit.inspect(|bit| bytes[bit / 8] ^= 1 << (bit % 8)).is_some()
}

/// The bit of `len` bytes whose flip changes their CRC-32C by `found`. The checksum is linear: a
/// bit changes it by the checksum of that bit alone, and each byte that follows shifts this change.
fn flipped_bit(len: usize, found: u32) -> Option<usize> {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(
            byte as u32,
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 },
        )
    });
    let mut changes: [u32; 8] = std::array::from_fn(|bit| table[1 << bit]);
    for byte in (0..len).rev() {
        if let Some(bit) = changes.iter().position(|change| *change == found) {
            return Some(byte * 8 + bit);
        }
        changes = changes.map(|c| c >> 8 ^ table[(c & 0xff) as usize]);
    }
    None
}

/// CRC-32C with the four bytes at `field` taken as zero.
fn checksum(bytes: &[u8], field: usize) -> u32 {
    crate::hash_without(bytes, field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector() -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..512).map(|i| (i * 7 % 251) as u8).collect();
        let head = SectorHead {
            magic: SECTOR_MAGIC,
            lsn: 4760,
            id: 77,
            epoch: 3,
            used: 400,
            first: NO_RECORD,
            ..SectorHead::zeroed()
        };
        head.seal(&mut bytes);
        bytes
    }

    /// Each single flipped bit is found and repaired. Catches a mistake in the algebra of the
    /// checksum, which would take a flipped bit for the end of the log.
    #[test]
    fn every_flipped_bit_is_repaired() {
        let good = sector();
        let head = SectorHead::read(&good).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SectorHead::read(&bad), None, "bit {bit} is not seen");
            assert_eq!(SectorHead::repair(&mut bad).as_ref(), Some(&head), "bit {bit}");
            assert_eq!(bad, good);
        }
    }

    #[test]
    fn a_sector_with_twelve_wrong_bytes_is_not_repaired() {
        let good = sector();
        for at in (0..500).step_by(9) {
            let mut bad = good.clone();
            bad[at..at + 12].iter_mut().for_each(|b| *b = !*b);
            assert_eq!(SectorHead::repair(&mut bad), None, "byte {at}");
        }
    }

    #[test]
    fn a_superblock_says_what_is_wrong_with_it() {
        let sb = WafsSuper {
            magic: SUPER_MAGIC,
            version: VERSION,
            sector: 512,
            sectors: 100,
            ..WafsSuper::zeroed()
        };
        let capacity = 102 * 512;
        let read = |change: &dyn Fn(&mut WafsSuper)| {
            let (mut sb, mut bytes) = (sb.clone(), [0; 256]);
            change(&mut sb);
            sb.seal(&mut bytes);
            WafsSuper::read(&bytes, capacity).map(|_| ())
        };
        assert_eq!(read(&|_| ()), Ok(()));
        assert_eq!(read(&|s| s.magic = 1), Err(WafsError::Magic { value: 1 }));
        assert_eq!(read(&|s| s.version = 1), Err(WafsError::Version { value: 1 }));
        assert_eq!(read(&|s| s.sector = 513), Err(WafsError::Sector { value: 513 }));
        assert_eq!(
            read(&|s| s.sectors = 101),
            Err(WafsError::Sectors { value: 101, capacity: 100 })
        );
        let mut bytes = [0; 256];
        sb.seal(&mut bytes);
        bytes[200] ^= 1;
        assert!(matches!(WafsSuper::read(&bytes, capacity), Err(WafsError::Checksum { .. })));
    }
}
