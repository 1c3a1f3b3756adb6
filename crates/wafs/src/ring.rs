//! From log sequence numbers to sectors and back.

use ordo_format::Endian;
use ordo_format::wafs::{SECTOR_MAGIC, SUPER_SECTORS, SectorHead, WafsSuper};

use crate::{LogRules, Lsn};

/// The shape of a log's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Bytes in a sector.
    pub sector: u64,
    /// Sectors in the ring.
    pub sectors: u64,
    /// Bytes of payload in a sector.
    pub payload: u64,
}

impl Ring {
    /// The ring that a superblock describes.
    pub fn of(sb: &WafsSuper) -> Ring {
        Ring { sector: sb.sector.into(), sectors: sb.sectors, payload: sb.payload() as u64 }
    }

    /// How much it holds, in bytes.
    pub fn capacity(&self) -> u64 {
        self.sectors * self.payload
    }

    /// The number of the sector that holds an LSN. Sectors are numbered on without end.
    pub fn number(&self, lsn: Lsn) -> u64 {
        lsn / self.payload
    }

    /// The LSN of a sector's first byte.
    pub fn lsn(&self, number: u64) -> Lsn {
        number.wrapping_mul(self.payload)
    }

    /// Where a sector lies on the device, in bytes.
    pub fn byte(&self, number: u64) -> u64 {
        (SUPER_SECTORS + number % self.sectors) * self.sector
    }

    /// The first LSN of the sector that holds `lsn`.
    pub fn floor(&self, lsn: Lsn) -> Lsn {
        lsn - lsn % self.payload
    }

    /// Bytes that can be appended at `end` while everything from `start` on is kept.
    pub fn room(&self, start: Lsn, end: Lsn) -> u64 {
        (self.floor(start) + self.capacity()).saturating_sub(end)
    }

    /// Sectors from `number` on that lie one after another on the device, up to `most`.
    pub fn run(&self, number: u64, most: u64) -> u64 {
        most.min(self.sectors - number % self.sectors)
    }
}

/// Bytes that the length before a record takes: seven bits of it in each.
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

/// The length before a record, and how many bytes that takes; `None` where `bytes` ends too early, and
/// where no record is so long.
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

/// What must be true of a sector of the log to be the next one.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The log's id.
    pub id: u32,
    /// Its first LSN.
    pub lsn: Lsn,
    /// The epoch of the sector before it.
    pub epoch: u32,
    /// What of that counts.
    pub rules: LogRules,
}

impl Expected {
    /// Whether a sector is the one.
    pub fn is(&self, head: &SectorHead) -> bool {
        let any_epoch = !self.rules.contains(LogRules::EPOCH);
        head.id == self.id && head.lsn == self.lsn && (any_epoch || head.epoch >= self.epoch)
    }

    /// Whether a sector could be the one if a single bit of it were turned back.
    pub fn could_be(&self, sector: &[u8]) -> bool {
        let head = SectorHead::decode(sector, Endian::Little);
        let turned = (head.magic ^ SECTOR_MAGIC).count_ones()
            + (head.id ^ self.id).count_ones()
            + (head.lsn ^ self.lsn).count_ones();
        turned <= 1
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

    /// The oldest sector that is kept is never the one written next.
    #[test]
    fn a_full_ring_ends_where_it_starts() {
        let ring = Ring { sector: 512, sectors: 10, payload: 476 };
        assert_eq!(ring.room(0, 0), 4760);
        assert_eq!(ring.room(475, 4760), 0);
        assert_eq!(ring.room(476, 4760), 476);
        assert_eq!(ring.byte(ring.number(4760)), ring.byte(0));
        assert_eq!(ring.run(8, 5), 2);
    }
}
