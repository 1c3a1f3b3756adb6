//! Contents of other programs are recognised by their bytes alone.
//!
//! Fault model: a disk in use is given to a program that is about to overwrite it. Would catch a
//! signature at a wrong place, one that is looked for on large disks only, a condition that refuses
//! what the format's own program wrote, and random or hostile bytes that make the search panic.

use ordo_format::signature::{Contents, Found, find, ranges};
use proptest::prelude::*;

/// The contents of a disk, read as a caller reads them.
fn contents(disk: &[u8]) -> Contents {
    let size = disk.len() as u64;
    let read = |(at, len): (u64, usize)| (at, disk[at as usize..][..len].to_vec());
    Contents::new(size, ranges(size).into_iter().map(read).collect())
}

fn found_on(disk: &[u8]) -> Vec<Found> {
    find(&contents(disk))
}

/// Signatures as the headers of their programs give them, at bytes from the start or, if negative,
/// from the end. Larger formats are made by their own programs in the tests of the command.
const KNOWN: &[(&str, i64, &[u8])] = &[
    ("LVM2", 512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001"),
    ("LUKS", 0, b"LUKS\xba\xbe\x00\x01"),
    ("LUKS2", 0x40_0000, b"SKUL\xba\xbe"),
    ("Linux RAID", 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    ("Linux RAID", -8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    ("Linux RAID", -65_536, b"\xfc\x4e\x2b\xa9\0\0\0\0\x5a\0\0\0"),
    ("ZFS", 16 << 10, b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x24"),
    ("ZFS", -(240 << 10), b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x24"),
    ("ZFS", 132 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
    ("bcache device", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("bcachefs", 4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    ("APFS", 32, b"NXSB"),
    ("HFS+", 1024, b"H+\x00\x04"),
    ("DRBD", -4036, b"\x83\x74\x02\x6d"),
    ("VMFS", 2 << 20, b"\x5e\xf1\xab\x2f"),
    ("VDO", 0, b"dmvdo001"),
    ("BitLocker", 0, b"\xeb\x58\x90-FVE-FS-"),
    ("Intel RAID", -1024, b"Intel Raid ISM Cfg Sig. 1.3.00"),
    ("DDF", -512, b"\xde\x11\xde\x11"),
    ("Promise", -3087 * 512, b"Promise Technology, Inc."),
    ("OCFS2", 2048, b"OCFSV2"),
    ("GFS2", 65_536, b"\x01\x16\x19\x70"),
    ("suspended", 0x1ff6, b"S1SUSPEND"),
    ("GPT", -512, b"EFI PART"),
    ("GPT", 4096, b"EFI PART"),
    ("BSD label", 512, b"\x57\x45\x56\x82"),
    ("Apple partition map", 0, b"ER\x02\x00"),
    ("UFS1", 8192 + 1372, b"\x00\x01\x19\x54"),
    ("UFS2", 262_144 + 1372, b"\x19\x01\x54\x19"),
    ("NetBSD's UFS2 with", 65_536 + 1372, b"\x38\x20\x01\x19"),
    ("an LFS", 8192, b"\x62\x01\x07\x00"),
    ("a DualFS", 0, b"OrdoDual"),
    ("a log", 0, b"OrdoWAFS"),
    ("qcow2", 0, b"QFI\xfb"),
    ("VHD image", -512, b"conectix"),
    ("xz data", 0, b"\xfd7zXZ\0"),
];

#[test]
fn every_signature_is_found_at_its_place_on_small_and_large_disks() {
    for size in [12 << 20, 80 << 20] {
        for (noun, at, bytes) in KNOWN {
            let mut disk = vec![0; size];
            let start = if *at < 0 { size as i64 + at } else { *at } as usize;
            disk[start..start + bytes.len()].copy_from_slice(bytes);
            let found = found_on(&disk);
            let is_found = |f: &Found| {
                f.noun.contains(noun)
                    && (f.offset as usize..=f.offset as usize + 64).contains(&start)
                    || f.noun.contains(noun) && (start..start + 64).contains(&(f.offset as usize))
            };
            assert!(found.iter().any(is_found), "{noun} at {at} of {size}: {found:?}");
            // Wiping it leaves nothing to be found.
            let mut rest = contents(&disk);
            found.iter().for_each(|f| rest.erase(f));
            assert_eq!(find(&rest), [], "{noun} at {at} of {size}");
        }
    }
}

/// btrfs keeps copies of its superblock at 64 MiB and beyond: without them a new file system over
/// an old btrfs could be brought back by `btrfs rescue`, and blkid would be right to be in doubt.
#[test]
fn far_copies_are_found() {
    let mut disk = vec![0; 80 << 20];
    disk[(64 << 20) + 64..][..8].copy_from_slice(b"_BHRfS_M");
    assert_eq!(found_on(&disk)[0].offset, (64 << 20) + 64);
}

/// Zeros are nothing; a single byte at the beginning, at the end, or in a sample is something.
#[test]
fn bytes_without_a_signature_are_told_from_none() {
    let mut disk = vec![0; 40 << 20];
    assert_eq!((found_on(&disk), contents(&disk).first_byte()), (vec![], None));
    for at in [disk.len() - 1, 5_000, 0] {
        disk[at] = 1;
        assert_eq!((found_on(&disk), contents(&disk).first_byte()), (vec![], Some(at as u64)));
    }
}

proptest! {
    /// Any bytes on a disk of any size: no panic, and each signature lies on the disk.
    #[test]
    fn any_bytes_are_searched(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        for found in found_on(&bytes) {
            prop_assert!(found.offset as usize + found.len <= bytes.len());
        }
    }
}
