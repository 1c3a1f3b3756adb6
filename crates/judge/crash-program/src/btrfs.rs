//! Copies of a btrfs file system that are mounted at once: each needs a UUID of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ordo_crash::base::Base;

// `struct btrfs_super_block`: its place, its length, and bytes in it.
const BTRFS_SUPER: u64 = 64 << 10;
const BTRFS_SUPER_LEN: usize = 4096;
const CSUM: std::ops::Range<usize> = 0..4;
const FSID: std::ops::Range<usize> = 0x20..0x30;
const MAGIC: std::ops::Range<usize> = 0x40..0x48;
const INCOMPAT_FLAGS: std::ops::Range<usize> = 0xbc..0xc4;
const CSUM_TYPE: std::ops::Range<usize> = 0xc4..0xc6;
const METADATA_UUID: std::ops::Range<usize> = 0x23b..0x24b;
/// `BTRFS_FEATURE_INCOMPAT_METADATA_UUID`.
const HAS_METADATA_UUID: u64 = 1 << 10;

/// The contents of a btrfs file system with a UUID of its own.
pub(crate) fn renamed(image: &Base, number: u32) -> Base {
    let mut sb = match image.len() >= BTRFS_SUPER + BTRFS_SUPER_LEN as u64 {
        true => image.slice(BTRFS_SUPER, BTRFS_SUPER_LEN).to_vec(),
        false => vec![0; BTRFS_SUPER_LEN],
    };
    let is_named = named(&mut sb, number);
    image.with(is_named.then(|| (BTRFS_SUPER, sb.into())).into_iter())
}

/// Gives a btrfs file system a UUID of its own, as `btrfstune -m` does: the kernel takes two
/// mounted copies with one UUID for one file system. A torn superblock stays torn.
pub(crate) fn rename(file: &File, number: u32) -> io::Result<()> {
    let mut sb = vec![0; BTRFS_SUPER_LEN];
    file.read_exact_at(&mut sb, BTRFS_SUPER)?;
    if named(&mut sb, number) {
        file.write_all_at(&sb, BTRFS_SUPER)?;
    }
    Ok(())
}

fn named(sb: &mut [u8], number: u32) -> bool {
    let right = sb[CSUM] == crc32c::crc32c(&sb[FSID.start..]).to_le_bytes();
    if sb[MAGIC] != *b"_BHRfS_M" || sb[CSUM_TYPE] != [0, 0] || !right {
        return false;
    }
    let flags = u64::from_le_bytes(sb[INCOMPAT_FLAGS].try_into().expect("eight bytes"));
    if flags & HAS_METADATA_UUID == 0 {
        sb.copy_within(FSID, METADATA_UUID.start);
        sb[INCOMPAT_FLAGS].copy_from_slice(&(flags | HAS_METADATA_UUID).to_le_bytes());
    }
    // The last four bytes count the copies.
    let (from, to) = (METADATA_UUID.end - 4, FSID.end - 4);
    let last = u32::from_be_bytes(sb[from..from + 4].try_into().expect("four bytes"));
    let last = last.wrapping_add(number).wrapping_add(1);
    sb[to..to + 4].copy_from_slice(&last.to_be_bytes());
    let sum = crc32c::crc32c(&sb[FSID.start..]).to_le_bytes();
    sb[CSUM].copy_from_slice(&sum);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A superblock gets another UUID and a matching checksum. A superblock whose checksum is wrong
    /// stays as it is.
    #[test]
    fn superblocks_are_distinguished() {
        let mut sb = vec![0; BTRFS_SUPER_LEN];
        sb[MAGIC].copy_from_slice(b"_BHRfS_M");
        sb[FSID].fill(5);
        assert!(!named(&mut sb, 1));
        let sum = crc32c::crc32c(&sb[32..]).to_le_bytes();
        sb[CSUM].copy_from_slice(&sum);
        assert!(named(&mut sb, 1) && sb[METADATA_UUID] == [5; 16] && sb[FSID][15] == 7);
        assert!(named(&mut sb, 2) && sb[FSID][15] == 8);
    }
}
