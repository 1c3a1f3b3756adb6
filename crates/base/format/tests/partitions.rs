//! Partition tables as other programs and hostile disks have them.
//!
//! Tables are made byte by byte. Would catch a partition outside of the disk or over another one
//! that is used, a chain that never ends, and a damaged GPT that is taken for an empty disk.

use ordo_format::label::{Kind, PartitionTable, PartitionTableReader, TableProblem};
use proptest::prelude::*;

const SECTOR: usize = 512;

/// Reads the tables of a disk. Panics if more is asked for than a chain may have.
fn read(disk: &[u8]) -> PartitionTable {
    let mut reader = PartitionTableReader::new(disk.len() as u64);
    let mut steps = 0;
    while let Some((at, len)) = reader.wants() {
        reader.give(&disk[at as usize..at as usize + len]);
        steps += 1;
        assert!(steps < 2000, "the tables never end");
    }
    reader.finish()
}

/// Name, first sector and number of sectors of each leaf.
fn leaves(table: &PartitionTable) -> Vec<(&str, u64, u64)> {
    table.leaves().map(|p| (&*p.name, p.range.start / 512, p.range.len / 512)).collect()
}

/// Writes an entry of an MBR, or of a sector of the chain: type, first sector, sectors.
fn entry(disk: &mut [u8], sector: usize, slot: usize, (kind, first, sectors): (u8, u32, u32)) {
    let base = sector * SECTOR;
    disk[base + 510..base + 512].copy_from_slice(&[0x55, 0xaa]);
    let at = base + 446 + 16 * slot;
    disk[at + 4] = kind;
    disk[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
    disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
}

/// A GPT's header and entries; the header at sector `at`, the entries at `entries`.
fn gpt(disk: &mut [u8], unit: usize, at: usize, entries: usize, parts: &[(u64, u64)]) {
    let place = entries * unit;
    for (i, (first, last)) in parts.iter().enumerate() {
        let e = &mut disk[place + 128 * i..][..128];
        e[..16].copy_from_slice(&[
            0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47,
            0x7d, 0xe4,
        ]);
        e[32..40].copy_from_slice(&first.to_le_bytes());
        e[40..48].copy_from_slice(&last.to_le_bytes());
        e[56] = b'p';
    }
    let sum = crc32(&disk[place..place + 128 * 128]);
    let h = &mut disk[at * unit..][..92];
    h[..8].copy_from_slice(b"EFI PART");
    h[12..16].copy_from_slice(&92u32.to_le_bytes());
    h[72..80].copy_from_slice(&(entries as u64).to_le_bytes());
    h[80..84].copy_from_slice(&128u32.to_le_bytes());
    h[84..88].copy_from_slice(&128u32.to_le_bytes());
    h[88..92].copy_from_slice(&sum.to_le_bytes());
    h[16..20].fill(0);
    let sum = crc32(h);
    h[16..20].copy_from_slice(&sum.to_le_bytes());
}

/// The CRC-32 of GPT, by its definition.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1))
        })
    })
}

/// A disk with a GPT of two partitions, and the table's copy at its end.
fn gpt_disk(unit: usize) -> Vec<u8> {
    let mut disk = vec![0; 4 << 20];
    entry(&mut disk, 0, 0, (0xee, 1, u32::MAX));
    let (last, parts) = (disk.len() / unit - 1, [(64, 127), (128, 255)]);
    gpt(&mut disk, unit, 1, 2, &parts);
    gpt(&mut disk, unit, last, last - 128 * 128 / unit, &parts);
    disk
}

/// Primary partitions and a chain of logical ones; the numbers are those of the kernel, also where
/// the chain has a sector without a partition.
#[test]
fn logical_partitions_are_counted_from_5() {
    let mut disk = vec![0; 1 << 20];
    entry(&mut disk, 0, 0, (0x83, 64, 100));
    entry(&mut disk, 0, 3, (0x05, 200, 1000));
    entry(&mut disk, 200, 0, (0x83, 8, 50));
    entry(&mut disk, 200, 1, (0x05, 300, 100));
    entry(&mut disk, 500, 1, (0x05, 100, 100));
    entry(&mut disk, 300, 0, (0x82, 4, 20));
    let table = read(&disk);
    assert_eq!(leaves(&table), [("1", 64, 100), ("5", 208, 50), ("6", 304, 20)]);
    let kinds: Vec<Kind> = table.partitions.iter().map(|p| p.range.kind).collect();
    assert_eq!(kinds, [Kind::Linux, Kind::Extended, Kind::Linux, Kind::Swap]);
    assert_eq!(table.problems, []);
    assert_eq!(table.areas, [(0, 512), (200 * 512, 512), (500 * 512, 512), (300 * 512, 512)]);
}

/// A chain that leads back to its beginning, one that leads out of the disk, and one that leads to
/// a sector of zeros.
#[test]
fn a_chain_ends() {
    for (next, wanted) in [
        (0, TableProblem::ChainLoop { at: 200 * 512 }),
        (1_000_000, TableProblem::ChainBroken { at: 1_000_200 * 512 }),
        (10, TableProblem::ChainBroken { at: 210 * 512 }),
    ] {
        let mut disk = vec![0; 1 << 20];
        entry(&mut disk, 0, 0, (0x0f, 200, 1000));
        entry(&mut disk, 200, 0, (0x83, 8, 50));
        entry(&mut disk, 200, 1, (0x05, next, 100));
        let table = read(&disk);
        assert_eq!(leaves(&table), [("5", 208, 50)]);
        assert_eq!(table.problems, [wanted]);
    }
    let mut disk = vec![0; 1 << 20];
    entry(&mut disk, 0, 0, (0x0f, 200, 1000));
    for i in 0..300u32 {
        entry(&mut disk, 200 + 4 * i as usize, 0, (0x83, 1, 2));
        entry(&mut disk, 200 + 4 * i as usize, 1, (0x05, 4 * (i + 1), 4));
    }
    let table = read(&disk);
    assert_eq!(leaves(&table).len(), 128);
    assert_eq!(table.problems, [TableProblem::ChainLong { most: 128 }]);
}

/// Entries beyond the end of the disk, or over another one, are left out, and the message says
/// which.
#[test]
fn bad_entries_are_left_out() {
    let mut disk = vec![0; 1 << 20];
    entry(&mut disk, 0, 0, (0x83, 64, 100));
    entry(&mut disk, 0, 1, (0x83, 163, 100));
    entry(&mut disk, 0, 2, (0x83, 2000, 100));
    entry(&mut disk, 0, 3, (0x83, u32::MAX, u32::MAX));
    let table = read(&disk);
    assert_eq!(leaves(&table), [("1", 64, 100)]);
    let said: Vec<String> = table.problems.iter().map(ToString::to_string).collect();
    assert!(said[0].contains("partition 2 lies over partition 1"), "{said:?}");
    assert!(
        said[1].contains("partition 3 ends at byte 1075200, beyond the end of the disk at 1048576"),
        "{said:?}"
    );
    assert_eq!(said.len(), 3);
}

/// A GPT with either size of sectors; with a damaged header, or damaged entries, its copy is used
/// and named.
#[test]
fn a_gpt_and_its_copy() {
    for unit in [512, 4096] {
        let sound = gpt_disk(unit);
        let per = unit as u64 / 512;
        let wanted = [("1", 64 * per, 64 * per), ("2", 128 * per, 128 * per)];
        let table = read(&sound);
        assert_eq!((leaves(&table), &table.problems[..]), (wanted.to_vec(), &[][..]));
        assert_eq!(table.partitions[0].range.name, "p");
        for damaged in [unit + 40, unit + 16, 2 * unit + 33, 2 * unit + 128 * 100] {
            let mut disk = sound.clone();
            disk[damaged] ^= 1;
            let table = read(&disk);
            assert_eq!(leaves(&table), wanted, "byte {damaged}");
            assert_eq!(table.problems, [TableProblem::FirstGpt], "byte {damaged}");
            let end = disk.len();
            disk[end - unit + 40] ^= 1;
            let table = read(&disk);
            assert_eq!(leaves(&table), []);
            assert_eq!(table.problems, [TableProblem::BothGpts]);
        }
    }
}

proptest! {
    /// Whatever is on a disk, its tables end, and no two leaves share a byte or leave the disk.
    #[test]
    fn hostile_tables_end(
        sectors in prop::collection::vec((0usize..64, 0usize..4, any::<u8>(), 0u32..80, 0u32..40), 0..40),
        bytes in prop::collection::vec((0usize..32 << 10, any::<u8>()), 0..40),
        with_gpt in any::<bool>(),
    ) {
        let mut disk = if with_gpt { gpt_disk(512) } else { vec![0; 32 << 10] };
        for (sector, slot, kind, first, len) in sectors {
            // Half of the entries are links of a chain.
            let kind = if kind < 128 { 5 } else { kind };
            entry(&mut disk, sector % 64, slot, (kind, first, len));
        }
        for (at, byte) in bytes {
            disk[at] = byte;
        }
        let table = read(&disk);
        let mut ends: Vec<(u64, u64)> =
            table.leaves().map(|p| (p.range.start, p.range.start + p.range.len)).collect();
        ends.sort_unstable();
        prop_assert!(ends.windows(2).all(|two| two[0].1 <= two[1].0));
        prop_assert!(ends.iter().all(|(_, end)| *end <= disk.len() as u64));
    }
}
