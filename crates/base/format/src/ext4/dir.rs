//! Directory blocks: consecutive entries, each with its own length; the last one extends to the end
//! of the block.

use crate::Endian;

/// An entry that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The inode.
    pub ino: u32,
    /// The name.
    pub name: &'a [u8],
}

/// The value of an entry's byte 7 if the entry holds the block's checksum in place of a name
/// (`EXT4_FT_DIR_CSUM`).
pub const CHECKSUM_TYPE: u8 = 0xde;

/// Calls `each` with the entries in use, as far as they make sense. Returns whether entries fill
/// the block exactly; a block that is no directory's has none.
pub fn entries(block: &[u8], mut each: impl FnMut(Entry<'_>)) -> bool {
    let mut at = 0;
    while at + 8 <= block.len() {
        // `inode`, `rec_len`, `name_len` and `name` of `struct ext4_dir_entry_2`.
        let ino = Endian::Little.get_u32(block, at);
        let len = usize::from(Endian::Little.get_u16(block, at + 4));
        // The values 65535 and 0 stand for 65536, which 16 bits cannot hold.
        let len = if len == 65535 || (len == 0 && block.len() == 65536) { 65536 } else { len };
        let name_len = usize::from(block[at + 6]);
        if len < 8 || !len.is_multiple_of(4) || len > block.len() - at || name_len + 8 > len {
            return false;
        }
        if ino != 0 {
            each(Entry { ino, name: &block[at + 8..at + 8 + name_len] });
        }
        at += len;
    }
    at == block.len()
}

/// Whether a block can belong to a directory.
pub fn looks_like(block: &[u8]) -> bool {
    let mut used = 0;
    let mut sound = true;
    let fills = entries(block, |e| {
        used += 1;
        sound &= !e.name.is_empty() && !e.name.contains(&0) && !e.name.contains(&b'/');
    });
    fills && sound && used > 0
}
