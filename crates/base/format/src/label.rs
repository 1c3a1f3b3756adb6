//! Partitions: the master boot record (MBR), the GUID partition table (GPT), and BSD's disklabel,
//! read only.
//!
//! Sources: UEFI specification, chapter 5 (MBR and GPT); FreeBSD's `sys/disklabel.h` for the
//! label's layout. All are little-endian, and count sectors of 512 bytes; a GPT of a disk with
//! larger sectors counts these.
//!
//! | MBR, sector 0 | GPT header, sector 1 | BSD label, sector 1 of a slice |
//! |---|---|---|
//! | 446: four entries of 16 | 0: `EFI PART` | 0 and 132: magic 0x82564557 |
//! | entry 4: type | 12: its size, 16: its CRC-32 | 138: number of partitions (u16) |
//! | entry 8: first sector, 12: sectors | 72: first sector of the entries | 148: entries of 16 |
//! | 510: 0x55, 0xAA | 80: how many, 84: size of one, 88: their CRC-32 | entry 0: sectors, 4: first, 12: type |

mod table;

pub use table::{PartitionTable, PartitionTableReader, TablePartition, TableProblem};

use crate::Endian;

const LE: Endian = Endian::Little;

/// The size of a sector, in which all these tables count, in bytes.
pub const SECTOR: u64 = 512;
/// The most entries of a GPT that are read.
const GPT_MAX: u32 = 1024;

/// A range of a disk, in bytes, with its type and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte, counted from the origin of the table that lists it.
    pub start: u64,
    /// The length in bytes.
    pub len: u64,
    /// The meaning of its type.
    pub kind: Kind,
    /// The name that a GPT gives it; empty in other tables.
    pub name: String,
}

/// The type of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A UFS file system.
    Ufs,
    /// A file system of Linux.
    Linux,
    /// Linux's swap space.
    Swap,
    /// A BSD slice, which has a label of its own.
    BsdSlice,
    /// A container of further partitions (MBR).
    Extended,
    /// The protective entry of an MBR: the whole disk, for programs that do not know GPT.
    Protective,
    /// Anything else: the first four bytes of its type.
    Other(u32),
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Ufs => f.write_str("UFS"),
            Kind::Linux => f.write_str("Linux"),
            Kind::Swap => f.write_str("swap"),
            Kind::BsdSlice => f.write_str("BSD slice"),
            Kind::Extended => f.write_str("extended"),
            Kind::Protective => f.write_str("protective"),
            Kind::Other(code) => write!(f, "type {code:#x}"),
        }
    }
}

/// The four entries of a master boot record, without the empty ones; each with its place, counted
/// from 1. `None` if the sector is not an MBR.
pub fn mbr(sector: &[u8]) -> Option<Vec<(u32, Range)>> {
    if sector.len() < 512 || sector[510..512] != [0x55, 0xaa] {
        return None;
    }
    let mut out = Vec::new();
    for i in 0..4 {
        let entry = &sector[446 + 16 * i..][..16];
        let (first, sectors) = (LE.get_u32(entry, 8), LE.get_u32(entry, 12));
        let kind = match entry[4] {
            0 => continue,
            // A boot sector without a partition table has other values here.
            _ if !matches!(entry[0], 0 | 0x80) => return None,
            0x82 => Kind::Swap,
            0x83 => Kind::Linux,
            0xa5 => Kind::BsdSlice,
            0x05 | 0x0f | 0x85 => Kind::Extended,
            0xee => Kind::Protective,
            other => Kind::Other(other.into()),
        };
        out.push((i as u32 + 1, range(first.into(), sectors.into(), kind)));
    }
    Some(out)
}

/// The sizes of sectors in which a GPT may count, in bytes.
pub const SECTORS: [u64; 2] = [SECTOR, 4096];

fn range(first: u64, sectors: u64, kind: Kind) -> Range {
    Range { start: first * SECTOR, len: sectors * SECTOR, kind, name: String::new() }
}

/// A GPT's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GptHeader {
    /// The place of the entries, in bytes.
    pub entries_at: u64,
    /// The length of the entries, in bytes.
    pub entries_len: usize,
    /// The unit of the entries, in bytes.
    unit: u64,
    size: usize,
    crc: u32,
}

/// Whether a sector has the magic of a GPT's header, sound or not.
pub fn is_gpt(sector: &[u8]) -> bool {
    sector.len() >= 512 && sector.starts_with(b"EFI PART")
}

/// Reads a GPT's header, which counts sectors of `unit` bytes; `None` if the sector is none, or it
/// is damaged.
pub fn gpt_header(sector: &[u8], unit: u64) -> Option<GptHeader> {
    if !is_gpt(sector) {
        return None;
    }
    let len = LE.get_u32(sector, 12) as usize;
    let mut header = sector.get(..len).filter(|h| h.len() >= 92)?.to_vec();
    header[16..20].fill(0);
    let (count, size) = (LE.get_u32(sector, 80), LE.get_u32(sector, 84));
    let sound = crc32(&header) == LE.get_u32(sector, 16)
        && (128..=4096).contains(&size)
        && size.is_power_of_two()
        && count <= GPT_MAX;
    let entries_at = LE.get_u64(sector, 72).checked_mul(unit)?;
    let entries_len = count as usize * size as usize;
    let crc = LE.get_u32(sector, 88);
    sound.then_some(GptHeader { entries_at, entries_len, unit, size: size as usize, crc })
}

/// `516E7CB6-6ECF-11D6-8FF8-00022D09712B`, as it is on disk.
const FREEBSD_UFS: [u8; 16] = [
    0xb6, 0x7c, 0x6e, 0x51, 0xcf, 0x6e, 0xd6, 0x11, 0x8f, 0xf8, 0x00, 0x02, 0x2d, 0x09, 0x71, 0x2b,
];
/// `516E7CB4-6ECF-11D6-8FF8-00022D09712B`: a BSD label inside a GPT's partition.
const FREEBSD: [u8; 16] = [
    0xb4, 0x7c, 0x6e, 0x51, 0xcf, 0x6e, 0xd6, 0x11, 0x8f, 0xf8, 0x00, 0x02, 0x2d, 0x09, 0x71, 0x2b,
];

/// `0FC63DAF-8483-4772-8E79-3D69D8477DE4`.
const LINUX: [u8; 16] = [
    0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
];
/// `0657FD6D-A4AB-43C4-84E5-0933C84B4F4F`.
const LINUX_SWAP: [u8; 16] = [
    0x6d, 0xfd, 0x57, 0x06, 0xab, 0xa4, 0xc4, 0x43, 0x84, 0xe5, 0x09, 0x33, 0xc8, 0x4b, 0x4f, 0x4f,
];

/// The entries of a GPT that are in use, each with its place, counted from 1. `None` if they are
/// damaged.
pub fn gpt_entries(header: &GptHeader, bytes: &[u8]) -> Option<Vec<(u32, Range)>> {
    let bytes = bytes.get(..header.entries_len)?;
    if crc32(bytes) != header.crc {
        return None;
    }
    let mut out = Vec::new();
    for (i, entry) in bytes.chunks_exact(header.size).enumerate() {
        let (first, last) = (LE.get_u64(entry, 32), LE.get_u64(entry, 40));
        let (Some(start), Some(len)) = (
            first.checked_mul(header.unit),
            last.checked_sub(first).and_then(|n| n.checked_add(1)?.checked_mul(header.unit)),
        ) else {
            continue;
        };
        if entry[..16] == [0; 16] {
            continue;
        }
        let kind = match &entry[..16] {
            guid if guid == FREEBSD_UFS => Kind::Ufs,
            guid if guid == FREEBSD => Kind::BsdSlice,
            guid if guid == LINUX => Kind::Linux,
            guid if guid == LINUX_SWAP => Kind::Swap,
            guid => Kind::Other(LE.get_u32(guid, 0)),
        };
        let units: Vec<u16> = (0..36)
            .map(|i| u16::from_le_bytes([entry[56 + 2 * i], entry[57 + 2 * i]]))
            .take_while(|unit| *unit != 0)
            .collect();
        let name = String::from_utf16_lossy(&units);
        out.push((i as u32 + 1, Range { start, len, kind, name }));
    }
    Some(out)
}

/// The partitions of a BSD label by letter, as ranges from the start of the labelled disk or slice.
/// `None` if the sector is not a label.
pub fn bsd(sector: &[u8]) -> Option<Vec<(char, Range)>> {
    const MAGIC: u32 = 0x8256_4557;
    const RAW: usize = 2;
    const FFS: u8 = 7;
    if sector.len() < 512 || LE.get_u32(sector, 0) != MAGIC || LE.get_u32(sector, 132) != MAGIC {
        return None;
    }
    let count = usize::from(LE.get_u16(sector, 138));
    let entries = sector.get(148..148 + 16 * count)?;
    let sum =
        sector[..148 + 16 * count].chunks_exact(2).fold(0, |sum, two| sum ^ LE.get_u16(two, 0));
    if sum != 0 {
        return None;
    }
    let field = |i: usize, at: usize| u64::from(LE.get_u32(entries, 16 * i + at));
    // Offsets count from the start of the disk or of the slice. The raw partition's offset shows
    // from which, so it is subtracted.
    let base = if count > RAW { field(RAW, 4) } else { 0 };
    let mut out = Vec::new();
    for (i, letter) in (0..count).zip('a'..='z') {
        let (sectors, first, kind) = (field(i, 0), field(i, 4), entries[16 * i + 12]);
        if sectors == 0 || i == RAW || first < base {
            continue;
        }
        let kind = if kind == FFS { Kind::Ufs } else { Kind::Other(kind.into()) };
        out.push((letter, range(first - base, sectors, kind)));
    }
    Some(out)
}

/// The CRC-32 of Ethernet and GPT.
fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published check value of this CRC.
    #[test]
    fn the_crc_is_the_published_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    /// A label's entries count from the start of its raw partition. Damage in any byte under the
    /// check sum must be noticed.
    #[test]
    fn a_bsd_label() {
        let mut sector = vec![0; 512];
        for at in [0, 132] {
            LE.put_u32(&mut sector, at, 0x8256_4557);
        }
        LE.put_u16(&mut sector, 138, 8);
        for (i, (size, first, kind)) in
            [(100, 79, 7), (0, 0, 0), (1000, 63, 0)].into_iter().enumerate()
        {
            LE.put_u32(&mut sector, 148 + 16 * i, size);
            LE.put_u32(&mut sector, 152 + 16 * i, first);
            sector[160 + 16 * i] = kind;
        }
        let sum = sector.chunks_exact(2).fold(0, |sum, two| sum ^ LE.get_u16(two, 0));
        LE.put_u16(&mut sector, 136, sum);
        let found = bsd(&sector).unwrap();
        assert_eq!(found, [('a', range(16, 100, Kind::Ufs))]);
        sector[150] ^= 1;
        assert_eq!(bsd(&sector), None);
    }

    /// A FAT boot sector ends like an MBR, but has no valid entries.
    #[test]
    fn an_mbr() {
        let mut sector = vec![0; 512];
        assert_eq!(mbr(&sector), None);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector[446 + 16..446 + 32]
            .copy_from_slice(&[0x80, 0, 0, 0, 0xa5, 0, 0, 0, 63, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(mbr(&sector).unwrap(), [(2, range(63, 256, Kind::BsdSlice))]);
        sector[446 + 16] = 0x20;
        assert_eq!(mbr(&sector), None);
    }
}
