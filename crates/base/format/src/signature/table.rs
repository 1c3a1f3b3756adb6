//! The table of signatures.
//!
//! Of two entries with one place, the first whose condition holds names it, so the narrower entry
//! stands first. The list's only omissions from libblkid are formats that cannot be told by bytes
//! at an offset: Atari's partitions, and the GUID partition table's entries.

use super::Place::{At, BeforeAligned, BeforeEnd, Every};
use super::conditions::*;
use super::{Place, Signature};

/// The place of UFS's magic number in each place of its superblock: 0 (some BSDs' floppies), 8, 64
/// and 256 KiB.
const UFS: &[Place] = &[At(1372), At(8192 + 1372), At(65_536 + 1372), At(262_144 + 1372)];
/// ZFS's four labels, at the place of their list of names.
const ZFS_LABELS: &[Place] = &[
    At(16 << 10),
    At(272 << 10),
    BeforeAligned(256 << 10, (512 - 16) << 10),
    BeforeAligned(256 << 10, (256 - 16) << 10),
];
/// The rings of uberblocks in ZFS's labels.
const ZFS_UBERBLOCKS: &[Place] = &[Every(128 << 10, 1024, 128), Every(384 << 10, 1024, 128)];
/// The last ten bytes of a page, of 4 to 64 KiB.
const PAGE_ENDS: &[Place] = &[At(0xff6), At(0x1ff6), At(0x3ff6), At(0x7ff6), At(0xfff6)];
/// The sector behind the descriptors of ISO 9660's and UDF's volumes, and the next ones.
const VOLUME_SECTORS: &[Place] = &[Every(32_769, 2048, 8)];
/// The places of the second header of LUKS2.
const LUKS_SECOND: &[Place] = &[
    At(0x4000),
    At(0x8000),
    At(0x1_0000),
    At(0x2_0000),
    At(0x4_0000),
    At(0x8_0000),
    At(0x10_0000),
    At(0x20_0000),
    At(0x40_0000),
];
/// The distances in bytes from the end at which Promise's controllers keep their signature.
const PROMISE: &[Place] = &[
    BeforeEnd(63 * 512),
    BeforeEnd(255 * 512),
    BeforeEnd(256 * 512),
    BeforeEnd(16 * 512),
    BeforeEnd(399 * 512),
    BeforeEnd(591 * 512),
    BeforeEnd(675 * 512),
    BeforeEnd(735 * 512),
    BeforeEnd(911 * 512),
    BeforeEnd(974 * 512),
    BeforeEnd(991 * 512),
    BeforeEnd(951 * 512),
    BeforeEnd(3087 * 512),
];
const BTRFS: &[Place] = &[At(65_600), At((64 << 20) + 64), At((256 << 30) + 64)];
const EXT: &[Place] = &[At(1080)];
const START: &[Place] = &[At(0)];
const MINIX: &[Place] = &[At(1040)];
const MINIX3: &[Place] = &[At(1048)];
const MD_NEW: &[Place] = &[At(0), At(4096), BeforeAligned(4096, 8192)];
const MD_OLD: &[Place] = &[BeforeAligned(64 << 10, 64 << 10)];
const LVM2: &[Place] = &[At(0x18), At(0x218), At(0x418), At(0x618)];
const OCFS2: &[Place] = &[At(1024), At(2048), At(4096), At(8192)];
const SYSV: &[Place] = &[At(1016), At(10_232), At(16_376), At(19_448)];
const GPT: &[Place] = &[At(512), At(4096), BeforeEnd(512), BeforeEnd(4096)];
const BSD_LABEL: &[Place] = &[At(64), At(128), At(512)];
const NILFS: &[Place] = &[At(1030), BeforeEnd(4096 - 6)];
const DDF: &[Place] = &[BeforeEnd(512), BeforeEnd(257 * 512)];
const BCACHEFS: &[Place] = &[At(4120), At((2 << 20) + 24), BeforeEnd(1000)];
const BCACHE_MAGIC: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS_MAGIC: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";

/// A signature without a second condition.
const fn sig(noun: &'static str, places: &'static [Place], magic: &'static [u8]) -> Signature {
    Signature { noun, places, magic, condition: None }
}

impl Signature {
    const fn and(self, condition: Condition) -> Signature {
        let Signature { noun, places, magic, .. } = self;
        Signature { noun, places, magic, condition: Some(condition) }
    }
}

/// Every signature that is known.
pub(super) const TABLE: &[Signature] = &[
    // Formats that Ordo makes.
    sig("a UFS2 file system", UFS, b"\x19\x01\x54\x19"),
    sig("a UFS2 file system", UFS, b"\x19\x54\x01\x19"),
    sig("a UFS1 file system", UFS, b"\x54\x19\x01\x00"),
    sig("a UFS1 file system", UFS, b"\x00\x01\x19\x54"),
    sig("NetBSD's UFS2 with extended attributes", UFS, b"\x38\x20\x01\x19"),
    sig("NetBSD's UFS2 with extended attributes", UFS, b"\x19\x01\x20\x38"),
    sig("a UFS of HP-UX or Solaris", UFS, b"\x14\x50\x09\x00"),
    sig("a UFS of HP-UX or Solaris", UFS, b"\x00\x09\x50\x14"),
    sig("a UFS of HP-UX or Solaris", UFS, b"\x12\x56\x19\x00"),
    sig("a UFS of HP-UX or Solaris", UFS, b"\x00\x19\x56\x12"),
    sig("a UFS of HP-UX or Solaris", UFS, b"\x95\x21\x61\x00"),
    sig("a UFS of HP-UX or Solaris", UFS, b"\x00\x61\x21\x95"),
    sig("a UFS of HP-UX or Solaris", UFS, b"\x94\x19\x23\x05"),
    sig("a UFS of HP-UX or Solaris", UFS, b"\x05\x23\x19\x94"),
    sig("an LFS", &[At(8192)], b"\xfe\xf8\x9d\xe6"),
    sig("an LFS", &[At(8192)], b"\xe6\x9d\xf8\xfe"),
    sig("an LFS", &[At(8192)], b"\x62\x01\x07\x00"),
    sig("an LFS", &[At(8192)], b"\x00\x07\x01\x62"),
    sig("a DualFS", START, b"OrdoDual"),
    sig("a DualFS", &[At(8192)], b"DuFS"),
    sig("a log", START, b"OrdoWAFS"),
    sig("a log", &[At(512), At(1024), At(2048), At(4096)], b"OrdoWAFS"),
    // Formats that Ordo reads.
    sig("the journal of an ext3 or ext4", EXT, b"\x53\xef").and(is_ext_journal),
    sig("an ext4 file system", EXT, b"\x53\xef").and(is_ext4),
    sig("an ext3 file system", EXT, b"\x53\xef").and(is_ext3),
    sig("an ext2 file system", EXT, b"\x53\xef").and(is_ext2),
    sig("an XFS file system", START, b"XFSB"),
    sig("a log of XFS", &[Every(0, 512, 512)], b"\xfe\xed\xba\xbe").and(is_xfs_log),
    sig("a btrfs file system", BTRFS, b"_BHRfS_M"),
    sig("a JFS file system", &[At(32_768)], b"JFS1"),
    sig("a JFS file system", &[At(61_440)], b"JFS1"),
    sig("a ReiserFS file system", &[At(65_588), At(8244)], b"ReIsErFs"),
    sig("a ReiserFS file system", &[At(65_588)], b"ReIsEr2Fs"),
    sig("a ReiserFS file system", &[At(65_588)], b"ReIsEr3Fs"),
    sig("a ReiserFS file system", &[At(8212)], b"ReIsErFs"),
    sig("a Reiser4 file system", &[At(65_536)], b"ReIsEr4"),
    sig("an NTFS file system", &[At(3)], b"NTFS    "),
    sig("a NILFS2 file system", NILFS, b"\x34\x34").and(is_nilfs),
    sig("an F2FS file system", &[At(1024), At(5120)], b"\x10\x20\xf5\xf2"),
    // Volumes, arrays and encryption.
    sig("an LVM2 physical volume", LVM2, b"LVM2 001"),
    sig("an LVM1 physical volume", START, b"HM").and(is_lvm1),
    sig("a LUKS volume", START, b"LUKS\xba\xbe"),
    sig("a LUKS2 volume", LUKS_SECOND, b"SKUL\xba\xbe"),
    sig("a member of a Linux RAID", MD_NEW, b"\xfc\x4e\x2b\xa9").and(is_md1),
    sig("a member of a Linux RAID", MD_OLD, b"\xfc\x4e\x2b\xa9").and(is_md0),
    sig("a member of a Linux RAID", MD_OLD, b"\xa9\x2b\x4e\xfc").and(is_md0),
    sig("a bcache device", &[At(4120)], BCACHE_MAGIC),
    sig("a bcachefs file system", BCACHEFS, BCACHE_MAGIC),
    sig("a bcachefs file system", BCACHEFS, BCACHEFS_MAGIC),
    sig("a ZFS pool member", ZFS_LABELS, b"\x01").and(is_zfs_label),
    sig("a ZFS pool member", ZFS_UBERBLOCKS, b"\x0c\xb1\xba\x00\x00\x00\x00\x00"),
    sig("a ZFS pool member", ZFS_UBERBLOCKS, b"\x00\x00\x00\x00\x00\xba\xb1\x0c"),
    sig("a DRBD device", &[BeforeEnd(4096 - 60)], b"\x83\x74\x02\x6b"),
    sig("a DRBD device", &[BeforeEnd(4096 - 60)], b"\x83\x74\x02\x6c"),
    sig("a DRBD device", &[BeforeEnd(4096 - 60)], b"\x83\x74\x02\x6d"),
    sig("a control volume of drbdmanage", START, b"$DRBDmgr=q"),
    sig("a log of a DRBD proxy", START, b"DRBDdlh*"),
    sig("a VMFS file system", &[At(2 << 20)], b"\x5e\xf1\xab\x2f"),
    sig("a member of a VMFS volume", &[At(1 << 20)], b"\x0d\xd0\x01\xc0"),
    sig("a VDO volume", START, b"dmvdo001"),
    sig("a BitLocker volume", START, b"\xeb\x52\x90-FVE-FS-"),
    sig("a BitLocker volume", START, b"\xeb\x58\x90-FVE-FS-"),
    sig("a BitLocker volume", START, b"\xeb\x58\x90MSWIN4.1").and(is_bitlocker_to_go),
    sig("a Stratis device", &[At(516), At(4612)], STRATIS),
    sig("a Core Storage volume", &[At(88)], b"CS").and(is_core_storage),
    sig("a device of Ceph's BlueStore", START, b"bluestore block device"),
    sig("a disk of Oracle ASM", &[At(32)], b"ORCLDISK"),
    sig("a snapshot of the device mapper", START, b"SnAp"),
    sig("a hash area of dm-verity", START, b"verity\0\0"),
    sig("a dm-integrity device", START, b"integrt\0"),
    sig("an mpool device", START, b"mpoolDev"),
    sig("a UBI device", START, b"UBI#"),
    sig("a member of an Intel RAID", &[BeforeEnd(1024)], b"Intel Raid ISM Cfg Sig. "),
    sig("a member of a DDF RAID", DDF, b"\xde\x11\xde\x11"),
    sig("a member of an Adaptec RAID", &[BeforeEnd(256)], b"DPTM").and(is_adaptec),
    sig("a member of a HighPoint RAID", &[At(4640)], b"\xf0\x16\x78\x5a"),
    sig("a member of a HighPoint RAID", &[At(4640)], b"\xfd\x16\x78\x5a"),
    sig("a member of a HighPoint RAID", &[BeforeEnd(11 * 512)], b"\xf3\x16\x78\x5a"),
    sig("a member of a HighPoint RAID", &[BeforeEnd(11 * 512)], b"\xfd\x16\x78\x5a"),
    sig("a member of a JMicron RAID", &[BeforeEnd(512)], b"JM").and(is_jmicron),
    sig("a member of an LSI RAID", &[BeforeEnd(512)], b"$XIDE$"),
    sig("a member of an NVIDIA RAID", &[BeforeEnd(1024)], b"NVIDIA  "),
    sig("a member of a Promise RAID", PROMISE, b"Promise Technology, Inc."),
    sig("a member of a Silicon Image RAID", &[BeforeEnd(512 - 0x60)], b"\x00\x00\x00\x2f"),
    sig("a member of a VIA RAID", &[BeforeEnd(512)], b"\x55\xaa").and(is_via),
    // Swap.
    sig("swap space", PAGE_ENDS, b"SWAP-SPACE"),
    sig("swap space", PAGE_ENDS, b"SWAPSPACE2"),
    sig("a suspended system in swap space", PAGE_ENDS, b"S1SUSPEND"),
    sig("a suspended system in swap space", PAGE_ENDS, b"S2SUSPEND"),
    sig("a suspended system in swap space", PAGE_ENDS, b"ULSUSPEND"),
    sig("a suspended system in swap space", PAGE_ENDS, b"LINHIB0001"),
    sig("a suspended system in swap space", START, b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"),
    // Other file systems.
    sig("an exFAT file system", &[At(3)], b"EXFAT   "),
    sig("a ReFS file system", START, b"\0\0\0ReFS\0"),
    sig("an HPFS file system", &[At(8192)], b"\x49\xe8\x95\xf9"),
    sig("a FAT file system", &[At(0x52)], b"MSWIN"),
    sig("a FAT file system", &[At(0x52)], b"FAT32   "),
    sig("a FAT file system", &[At(0x36)], b"MSDOS"),
    sig("a FAT file system", &[At(0x36)], b"FAT16   "),
    sig("a FAT file system", &[At(0x36)], b"FAT12   "),
    sig("a FAT file system", &[At(0x36)], b"FAT     "),
    sig("a FAT file system", START, b"\xeb").and(is_fat),
    sig("a FAT file system", START, b"\xe9").and(is_fat),
    sig("an APFS container", &[At(32)], b"NXSB"),
    sig("an HFS file system", &[At(1024)], b"BD").and(is_hfs),
    sig("an HFS+ file system", &[At(1024)], b"H+").and(is_hfs_plus),
    sig("an HFS+ file system", &[At(1024)], b"HX").and(is_hfs_plus),
    sig("an ISO 9660 file system", VOLUME_SECTORS, b"CD001"),
    sig("a High Sierra file system", &[At(32_777)], b"CDROM"),
    sig("a UDF file system", VOLUME_SECTORS, b"BEA01"),
    sig("a UDF file system", VOLUME_SECTORS, b"BOOT2"),
    sig("a UDF file system", VOLUME_SECTORS, b"CDW02"),
    sig("a UDF file system", VOLUME_SECTORS, b"NSR02"),
    sig("a UDF file system", VOLUME_SECTORS, b"NSR03"),
    sig("a UDF file system", VOLUME_SECTORS, b"TEA01"),
    sig("a squashfs file system", START, b"hsqs"),
    sig("a squashfs file system", START, b"sqsh"),
    sig("a cramfs file system", &[At(0), At(512)], b"\x45\x3d\xcd\x28"),
    sig("a cramfs file system", &[At(0), At(512)], b"\x28\xcd\x3d\x45"),
    sig("a romfs file system", START, b"-rom1fs-"),
    sig("an EROFS file system", &[At(1024)], b"\xe2\xe1\xf5\xe0"),
    sig("a minix file system", MINIX, b"\x7f\x13"),
    sig("a minix file system", MINIX, b"\x8f\x13"),
    sig("a minix file system", MINIX, b"\x13\x7f"),
    sig("a minix file system", MINIX, b"\x13\x8f"),
    sig("a minix file system", MINIX, b"\x68\x24"),
    sig("a minix file system", MINIX, b"\x78\x24"),
    sig("a minix file system", MINIX, b"\x24\x68"),
    sig("a minix file system", MINIX, b"\x24\x78"),
    sig("a minix file system", MINIX3, b"\x5a\x4d"),
    sig("a minix file system", MINIX3, b"\x4d\x5a"),
    sig("an OCFS2 file system", OCFS2, b"OCFSV2"),
    sig("an OCFS file system", &[At(8192)], b"OracleCFS"),
    sig("a GFS2 file system", &[At(65_536)], b"\x01\x16\x19\x70"),
    sig("a BeFS file system", &[At(32), At(544)], b"BFS1"),
    sig("a BeFS file system", &[At(32), At(544)], b"1SFB"),
    sig("a BFS file system", START, b"\xce\xfa\xad\x1b"),
    sig("an exfs file system", START, b"EXFS"),
    sig("a Netware NSS file system", &[At(4096)], b"SPB5"),
    sig("a ScoutFS file system", &[At(65_540)], b"\x8b\x42\x3c\x10"),
    sig("a Xenix file system", &[At(2048)], b"\x2b\x55\x44"),
    sig("a Xenix file system", &[At(2048)], b"\x44\x55\x2b"),
    sig("a System V file system", SYSV, b"\x20\x7e\x18\xfd"),
    sig("a System V file system", SYSV, b"\xfd\x18\x7e\x20"),
    sig("a UBIFS file system", START, b"\x31\x18\x10\x06"),
    sig("a VxFS file system", &[At(1024)], b"\xf5\xfc\x01\xa5"),
    sig("a VxFS file system", &[At(8192)], b"\xa5\x01\xfc\xf5"),
    sig("a zonefs file system", START, b"SFOZ"),
    // Partition tables.
    sig("a GPT partition table", GPT, b"EFI PART"),
    sig("a BSD label", BSD_LABEL, b"\x57\x45\x56\x82"),
    sig("a BSD label", BSD_LABEL, b"\x82\x56\x45\x57"),
    sig("a Sun label", &[At(508)], b"\xda\xbe").and(is_sun),
    sig("an Apple partition map", START, b"ER").and(is_apple_map),
    sig("an SGI label", START, b"\x0b\xe5\xa9\x41"),
    sig("an AIX label", START, b"\xc9\xc2\xd4\xc1"),
    sig("a Solaris label", &[At(524)], b"\xee\xde\x0d\x60"),
    sig("a UnixWare label", &[At(14_852)], b"\x0d\x60\xe5\xca"),
    sig("an Ultrix label", &[At(16_312)], b"\x57\x29\x03\x00"),
    sig("a DASD label", &[At(1028), At(2052), At(4100), At(8196)], b"\xe5\xd6\xd3\xf1"),
    sig("a DASD label", &[At(1024), At(2048), At(4096), At(8192)], b"\xd3\xd5\xe7\xf1"),
    sig("a DASD label", &[At(1024), At(2048), At(4096), At(8192)], b"\xc3\xd4\xe2\xf1"),
    sig("an MBR partition table", &[At(510)], b"\x55\xaa").and(is_mbr),
    sig("a boot sector", &[At(510)], b"\x55\xaa"),
    // Archives, disk images, databases and programs.
    sig("a tar archive", &[At(257)], b"ustar"),
    sig("a cpio archive", START, b"07070"),
    sig("a zip archive", START, b"PK\x03\x04"),
    sig("gzip data", START, b"\x1f\x8b\x08"),
    sig("bzip2 data", START, b"BZh"),
    sig("xz data", START, b"\xfd7zXZ\0"),
    sig("zstd data", START, b"\x28\xb5\x2f\xfd"),
    sig("a 7-Zip archive", START, b"7z\xbc\xaf\x27\x1c"),
    sig("a qcow2 image", START, b"QFI\xfb"),
    sig("a VMDK image", START, b"KDMV"),
    sig("a VMDK image", START, b"# Disk DescriptorFile"),
    sig("a VHD image", &[At(0), BeforeEnd(512)], b"conectix"),
    sig("a VHDX image", START, b"vhdxfile"),
    sig("a VDI image", &[At(64)], b"\x7f\x10\xda\xbe"),
    sig("an SQLite database", START, b"SQLite format 3\0"),
    sig("a program", START, b"\x7fELF"),
    sig("a PDF document", START, b"%PDF-"),
    sig("a Parquet file", START, b"PAR1"),
];
