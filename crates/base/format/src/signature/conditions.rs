//! Second conditions of signatures that are short, or that several formats share. Each gets the
//! offset of its signature.

use super::Contents;
use crate::Endian::{self, Big, Little};

/// Whether the bytes around a signature belong to its format.
pub(super) type Condition = fn(&Contents, u64) -> bool;

/// The superblock of ext2 to ext4, counted from its magic number at byte 56.
const EXT_MAGIC: u64 = 56;
/// `EXT4_FEATURE_INCOMPAT_JOURNAL_DEV`.
const EXT_JOURNAL_DEVICE: u32 = 0x8;
/// The features without which ext3 is ext4: extents, 64 bits, flexible groups, and all that came
/// later.
const EXT4_ONLY: u32 = !0x1f;
/// `EXT4_FEATURE_COMPAT_HAS_JOURNAL`.
const EXT_HAS_JOURNAL: u32 = 0x4;

fn word(contents: &Contents, at: u64, endian: Endian) -> Option<u32> {
    contents.get(at, 4).map(|bytes| endian.get_u32(bytes, 0))
}

fn half(contents: &Contents, at: u64) -> Option<u16> {
    contents.get(at, 2).map(|bytes| Little.get_u16(bytes, 0))
}

/// The features of an ext2, ext3 or ext4: compatible and incompatible; `None` if the block size
/// makes no sense.
fn ext_features(contents: &Contents, at: u64) -> Option<(u32, u32)> {
    let superblock = at - EXT_MAGIC;
    word(contents, superblock + 24, Little).filter(|log| *log <= 6)?;
    Some((word(contents, superblock + 92, Little)?, word(contents, superblock + 96, Little)?))
}

pub(super) fn is_ext_journal(contents: &Contents, at: u64) -> bool {
    ext_features(contents, at).is_some_and(|(_, incompat)| incompat & EXT_JOURNAL_DEVICE != 0)
}

pub(super) fn is_ext4(contents: &Contents, at: u64) -> bool {
    ext_features(contents, at).is_some_and(|(_, incompat)| incompat & EXT4_ONLY != 0)
}

pub(super) fn is_ext3(contents: &Contents, at: u64) -> bool {
    ext_features(contents, at).is_some_and(|(compat, _)| compat & EXT_HAS_JOURNAL != 0)
}

pub(super) fn is_ext2(contents: &Contents, at: u64) -> bool {
    ext_features(contents, at).is_some()
}

/// A boot sector whose parameters are those of a FAT, of which the signature is the jump at byte 0.
pub(super) fn is_fat(contents: &Contents, at: u64) -> bool {
    let Some(sector) = contents.get(at, 512) else { return false };
    let sector_size = Little.get_u16(sector, 11);
    let other = [&b"JFS     "[..], b"HPFS    "].contains(&&sector[0x36..0x3e]);
    sector[510..] == [0x55, 0xaa]
        && !other
        && sector_size.is_power_of_two()
        && (512..=4096).contains(&sector_size)
        && sector[13].is_power_of_two()
        && Little.get_u16(sector, 14) > 0
        && sector[16] > 0
        && (sector[21] >= 0xf8 || sector[21] == 0xf0)
}

/// An MBR with entries, of which the signature is at byte 510.
pub(super) fn is_mbr(contents: &Contents, at: u64) -> bool {
    let sector = contents.get(at - 510, 512);
    sector.and_then(crate::label::mbr).is_some_and(|entries| !entries.is_empty())
}

/// NILFS2, by the size of its superblock two bytes behind the magic number.
pub(super) fn is_nilfs(contents: &Contents, at: u64) -> bool {
    half(contents, at + 2).is_some_and(|bytes| (64..=1024).contains(&bytes))
}

/// HFS, by its allocation blocks of whole sectors; an HFS around an HFS+ too.
pub(super) fn is_hfs(contents: &Contents, at: u64) -> bool {
    word(contents, at + 20, Big).is_some_and(|bytes| bytes > 0 && bytes.is_multiple_of(512))
}

/// HFS+ and HFSX, by their version 4 or 5.
pub(super) fn is_hfs_plus(contents: &Contents, at: u64) -> bool {
    contents.get(at + 2, 2).is_some_and(|version| matches!(version, [0, 4 | 5]))
}

/// A superblock of MD's version 1: the major version behind the magic number.
pub(super) fn is_md1(contents: &Contents, at: u64) -> bool {
    word(contents, at + 4, Little) == Some(1)
}

/// MD's version 0.90, in either byte order.
pub(super) fn is_md0(contents: &Contents, at: u64) -> bool {
    [Little, Big].into_iter().any(|endian| word(contents, at + 4, endian) == Some(0))
}

/// ZFS's label: a list of names and values in XDR with a first size.
pub(super) fn is_zfs_label(contents: &Contents, at: u64) -> bool {
    let known = contents.get(at, 4).is_some_and(|head| matches!(head, [1, 0 | 1, 0, 0]));
    let first = word(contents, at + 12, Big);
    known && first.is_some_and(|bytes| (16..=64 << 10).contains(&bytes))
}

/// A record of XFS's log, by its version.
pub(super) fn is_xfs_log(contents: &Contents, at: u64) -> bool {
    word(contents, at + 8, Big).is_some_and(|version| (1..=3).contains(&version))
}

/// Sun's label, of which the signature is at byte 508: the exclusive or of all its half words is
/// zero.
pub(super) fn is_sun(contents: &Contents, at: u64) -> bool {
    let Some(sector) = contents.get(at - 508, 512) else { return false };
    (0..256).fold(0, |sum, i| sum ^ Big.get_u16(sector, 2 * i)) == 0
}

/// Apple's partition map: the block size behind the magic number.
pub(super) fn is_apple_map(contents: &Contents, at: u64) -> bool {
    let unit = contents.get(at + 2, 2).map(|bytes| Big.get_u16(bytes, 0));
    unit.is_some_and(|unit| unit.is_power_of_two() && (512..=4096).contains(&unit))
}

/// VIA's RAID: a sum of the first 50 bytes.
pub(super) fn is_via(contents: &Contents, at: u64) -> bool {
    let Some(head) = contents.get(at, 51) else { return false };
    head[2] <= 2 && head[..50].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == head[50]
}

/// JMicron's RAID: a sum of the first 128 bytes.
pub(super) fn is_jmicron(contents: &Contents, at: u64) -> bool {
    let Some(head) = contents.get(at, 128) else { return false };
    let sum = (0..64).fold(0u16, |sum, i| sum.wrapping_add(Little.get_u16(head, 2 * i)));
    sum <= 1
}

/// LVM1: version 1 or 2 behind the magic number.
pub(super) fn is_lvm1(contents: &Contents, at: u64) -> bool {
    half(contents, at + 2).is_some_and(|version| (1..=2).contains(&version))
}

/// Core Storage of Apple: its version and the kind of its checksum.
pub(super) fn is_core_storage(contents: &Contents, at: u64) -> bool {
    half(contents, at - 80) == Some(1) && word(contents, at + 2, Little) == Some(1)
}

/// BitLocker on a removable device, whose boot sector is a FAT's: its GUID begins at byte 424.
pub(super) fn is_bitlocker_to_go(contents: &Contents, at: u64) -> bool {
    contents.get(at + 424, 4).is_some_and(|guid| guid == [0x3b, 0xd6, 0x67, 0x49])
}

/// Adaptec's RAID: a second magic number at the start of the sector.
pub(super) fn is_adaptec(contents: &Contents, at: u64) -> bool {
    word(contents, at - 0x100, Big) == Some(0x37fc_4d1e)
}
