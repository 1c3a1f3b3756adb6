//! The mapping between log sequence numbers and sectors.

use ordo_format::Endian;
use ordo_format::wafs::{SECTOR_MAGIC, SUPER_SECTORS, SectorHead, WafsSuper};

use crate::{LogRules, Lsn};

/// The geometry of a log's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The size of a sector in bytes.
    pub sector: u64,
    /// The number of sectors in the ring.
    pub sectors: u64,
    /// The number of bytes of payload in a sector.
    pub payload: u64,
}

impl Ring {
    /// The ring that a superblock describes.
    pub fn of(sb: &WafsSuper) -> Ring {
        Ring { sector: sb.sector.into(), sectors: sb.sectors, payload: sb.payload() as u64 }
    }

    /// The bytes of payload that the ring holds.
    pub fn capacity(&self) -> u64 {
        self.sectors * self.payload
    }

    /// The number of the sector that contains an LSN. Sector numbers never wrap around.
    pub fn number(&self, lsn: Lsn) -> u64 {
        lsn / self.payload
    }

    /// The LSN of a sector's first byte.
    pub fn lsn(&self, number: u64) -> Lsn {
        number.wrapping_mul(self.payload)
    }

    /// A sector's place on the device, in bytes.
    pub fn byte(&self, number: u64) -> u64 {
        (SUPER_SECTORS + number % self.sectors) * self.sector
    }

    /// The first LSN of the sector that contains `lsn`.
    pub fn floor(&self, lsn: Lsn) -> Lsn {
        lsn - lsn % self.payload
    }

    /// The number of bytes that can be appended at `end` while everything from `start` on is kept.
    pub fn free_space(&self, start: Lsn, end: Lsn) -> u64 {
        (self.floor(start) + self.capacity()).saturating_sub(end)
    }

    /// The number of sectors from `number` on that are consecutive on the device, up to `most`.
    pub fn run(&self, number: u64, most: u64) -> u64 {
        most.min(self.sectors - number % self.sectors)
    }
}

/// The number of bytes that a record's length takes in front of the record: seven bits in each
/// byte.
pub fn length_size(len: usize) -> usize {
    (usize::BITS - len.leading_zeros()).div_ceil(7).max(1) as usize
}

/// Appends the length of a record.
pub fn put_length(mut len: usize, out: &mut Vec<u8>) {
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

/// Reads the length in front of a record. Returns it with the number of bytes that it takes; `None`
/// if `bytes` ends too early, or if no record can be so long.
pub fn get_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut len = 0;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        len |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((len, i + 1));
        }
    }
    None
}

/// The conditions that a sector must meet to be the next one of the log.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedSector {
    /// The log's id.
    pub id: u32,
    /// The first LSN of the sector.
    pub lsn: Lsn,
    /// The epoch of the sector before it.
    pub epoch: u32,
    /// The rules that apply.
    pub rules: LogRules,
}

impl ExpectedSector {
    /// Whether a sector's head meets the conditions.
    pub fn is(&self, head: &SectorHead) -> bool {
        let any_epoch = !self.rules.contains(LogRules::EPOCH);
        head.id == self.id && head.lsn == self.lsn && (any_epoch || head.epoch >= self.epoch)
    }

    /// Whether a sector would meet the conditions if a single flipped bit of it were repaired.
    pub fn could_be(&self, sector: &[u8]) -> bool {
        let head = SectorHead::decode(sector, Endian::Little);
        let flipped = (head.magic ^ SECTOR_MAGIC).count_ones()
            + (head.id ^ self.id).count_ones()
            + (head.lsn ^ self.lsn).count_ones();
        flipped <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back() {
        for len in [0, 1, 127, 128, 16383, 16384, 1 << 20, (1 << 28) + 5] {
            let mut out = Vec::new();
            put_length(len, &mut out);
            assert_eq!(out.len(), length_size(len), "{len}");
            assert_eq!(get_length(&out), Some((len, out.len())));
            assert_eq!(get_length(&out[..out.len() - 1]), None);
        }
        assert_eq!(get_length(&[0xff; 9]), None);
    }

    /// In a full ring, the sector to be written next is not the oldest one that is still needed.
    #[test]
    fn a_full_ring_ends_where_it_starts() {
        let ring = Ring { sector: 512, sectors: 10, payload: 476 };
        assert_eq!(ring.free_space(0, 0), 4760);
        assert_eq!(ring.free_space(475, 4760), 0);
        assert_eq!(ring.free_space(476, 4760), 476);
        assert_eq!(ring.byte(ring.number(4760)), ring.byte(0));
        assert_eq!(ring.run(8, 5), 2);
    }
}
