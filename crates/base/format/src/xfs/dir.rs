//! Directory entries of XFS.

use super::{BIG, Geometry};

crate::on_disk! {
    /// The head of a directory block in version 5 (`struct xfs_dir3_data_hdr`). Three free ranges
    /// of 4 bytes and 4 bytes of padding are at its end. In version 4 there are only the magic
    /// number and the free ranges.
    pub struct DirHead: 48 {
        0 magic => /** `XDB3` if the index is in the same block, otherwise `XDD3`; in version 4 `XD2B` and `XD2D` */ magic: u32,
        4 crc => /** CRC-32C of the structure, little-endian */ crc: u32,
        8 blkno => /** address of the block in 512-byte sectors */ block: u64,
        16 lsn => /** log sequence number of the last change */ lsn: u64,
        24 uuid => /** UUID of the file system */ uuid: [u8; 16],
        40 owner => /** inode of the directory */ owner: u64,
    }
}

/// The mark of unused space in place of an entry (`XFS_DIR2_DATA_FREE_TAG`); its length follows.
const UNUSED: u16 = 0xffff;

/// Calls `each` with every name and its inode in a directory whose entries are in its inode (short
/// form). The fork holds the number of names, the number of names with large inode numbers (if any,
/// then all inode numbers have 8 bytes instead of 4), and the parent. Each name has its length, two
/// bytes, the name, its file type where the file system has it, and the inode.
pub fn in_inode(g: &Geometry, fork: &[u8], mut each: impl FnMut(&[u8], u64)) {
    // `count` and `i8count` of `struct xfs_dir2_sf_hdr`; the parent's inode follows.
    let Some((&[count, large], rest)) = fork.split_first_chunk() else { return };
    let wide = if large > 0 { 8 } else { 4 };
    let Some(mut rest) = rest.get(wide..) else { return };
    for _ in 0..count.max(large) {
        let Some((&[len, ..], after)) = rest.split_first_chunk::<3>() else { return };
        let Some((name, after)) = after.split_at_checked(len.into()) else { return };
        let Some(raw) = after.get(g.has_types.into()..) else { return };
        let Some((ino, after)) = raw.split_at_checked(wide) else { return };
        let ino = if wide == 8 { BIG.get_u64(ino, 0) } else { BIG.get_u32(ino, 0).into() };
        each(name, ino);
        rest = after;
    }
}

/// The directory that a block of entries names as its owner; `None` if the block names none.
pub fn owner(g: &Geometry, bytes: &[u8]) -> Option<u64> {
    let is_it = g.self_describing && bytes.len() >= DirHead::SIZE && has_entries(bytes);
    is_it.then(|| DirHead::decode(bytes, BIG).owner)
}

/// Whether a block is one of a directory's entries, by its magic number.
pub fn has_entries(bytes: &[u8]) -> bool {
    [b"XDB3", b"XDD3", b"XD2B", b"XD2D"].iter().any(|magic| bytes.starts_with(*magic))
}

/// Calls `each` with every name and its inode in a directory block. An entry has an inode, a
/// length, the name, and its file type where the file system has it. It is padded to a multiple of
/// 8 bytes, of which the last two hold the place of the entry. `bytes` may be only the beginning of
/// the directory block.
pub fn in_block(g: &Geometry, bytes: &[u8], mut each: impl FnMut(&[u8], u64)) {
    if !has_entries(bytes) {
        return;
    }
    let mut at = if g.self_describing { 64 } else { 16 };
    let end = bytes.len();
    while at + 12 <= end {
        // `freetag` and `length` of `struct xfs_dir2_data_unused`.
        if BIG.get_u16(bytes, at) == UNUSED {
            let len = usize::from(BIG.get_u16(bytes, at + 2));
            if len == 0 || !len.is_multiple_of(8) {
                return;
            }
            at += len;
            continue;
        }
        // `inumber`, `namelen` and `name` of `struct xfs_dir2_data_entry`.
        let (ino, len) = (BIG.get_u64(bytes, at), usize::from(bytes[at + 8]));
        let Some(name) = bytes.get(at + 9..at + 9 + len).filter(|name| !name.is_empty()) else {
            return;
        };
        let next = at + (9 + len + usize::from(g.has_types) + 2).next_multiple_of(8);
        // Where the block also holds the index, the index follows the entries, and has no such
        // mark.
        if next > end || usize::from(BIG.get_u16(bytes, next - 2)) != at {
            return;
        }
        each(name, ino);
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data on disk never make the reader panic or loop.
    #[test]
    fn rubbish_in_xfs_directories_ends() {
        let mut sb = [0u8; super::super::Superblock::SIZE];
        for (at, bytes) in [
            (0, &b"XFSB"[..]),
            (4, &4096u32.to_be_bytes()),
            (8, &1024u64.to_be_bytes()),
            (84, &1024u32.to_be_bytes()),
            (88, &1u32.to_be_bytes()),
            (100, &[0, 5]),
            (120, &[12, 9, 9, 3, 10]),
        ] {
            sb[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let (_, g) = super::super::Superblock::read(&sb).expect("a superblock");
        let mut state = 1u64;
        let mut names = 0;
        for _ in 0..2000 {
            let mut bytes: Vec<u8> = (0..512)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    [0, 0xff, 1, 8, (state >> 40) as u8][(state >> 33) as usize % 5]
                })
                .collect();
            in_inode(&g, &bytes, |_, _| names += 1);
            for magic in [b"XDB3", b"XDD3", b"XD2B", b"XD2D"] {
                bytes[..4].copy_from_slice(magic);
                for len in [4, 9, 64, 500, 512] {
                    in_block(&g, &bytes[..len], |_, _| names += 1);
                }
                owner(&g, &bytes);
            }
        }
        assert!(names > 100, "{names}");
    }
}
