//! Directories: consecutive chunks of 512 bytes, each filled by entries without gaps.
//!
//! An entry consists of inode number (LFS64: u64, LFS32: u32; 0 for free space), entry length
//! (u16), type (u8), name length (u8), the name, a NUL, and padding to 4 bytes. Entry lengths are
//! multiples of 4 on LFS64 too.

use super::{LE, Width};
use crate::on_disk;

pub use crate::ufs2::dir::{CHUNK, DT_DIR, DT_UNKNOWN, MAX_NAME, type_of_mode};

on_disk! {
    /// The head of an entry. NetBSD's `struct lfs_dirheader64`, its fields without `dh_`.
    pub struct DirHeader: 12 {
        0 dh_ino => /** inode number; 0: free space */ ino: u64,
        8 dh_reclen => /** length of the entry in bytes, a multiple of 4 */ reclen: u16,
        10 dh_type => /** file type: the type bits of the mode, shifted right by 12 */ kind: u8,
        11 dh_namlen => /** length of the name in bytes */ namlen: u8,
    }
}

on_disk! {
    /// The head of an entry on LFS32. NetBSD's `struct lfs_dirheader32`.
    pub struct DirHeader32: 8 {
        0 dh_ino => /** inode number; 0: free space */ ino: u32,
        4 dh_reclen => /** length of the entry in bytes, a multiple of 4 */ reclen: u16,
        6 dh_type => /** file type: the type bits of the mode, shifted right by 12 */ kind: u8,
        7 dh_namlen => /** length of the name in bytes */ namlen: u8,
    }
}

impl DirHeader {
    /// Reads a head. Panics if there are too few bytes.
    pub fn read(width: Width, bytes: &[u8]) -> DirHeader {
        match width {
            Width::Lfs64 => DirHeader::decode(bytes, LE),
            Width::Lfs32 => {
                let h = DirHeader32::decode(bytes, LE);
                DirHeader { ino: h.ino.into(), reclen: h.reclen, kind: h.kind, namlen: h.namlen }
            }
        }
    }

    /// Writes a head. Panics if there are too few bytes.
    pub fn write(&self, width: Width, bytes: &mut [u8]) {
        match width {
            Width::Lfs64 => self.encode(bytes, LE),
            Width::Lfs32 => {
                let (ino, reclen) = (self.ino as u32, self.reclen);
                DirHeader32 { ino, reclen, kind: self.kind, namlen: self.namlen }.encode(bytes, LE);
            }
        }
    }
}

/// The bytes that an entry with a name of `namlen` bytes needs.
pub const fn entry_size(width: Width, namlen: usize) -> usize {
    (width.dir_header() + namlen + 1).next_multiple_of(4)
}

/// A directory entry, or free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LfsDirEntry<'a> {
    /// The first byte in the directory's bytes.
    pub at: usize,
    /// The inode; 0 for free space.
    pub ino: u64,
    /// The length in bytes.
    pub reclen: usize,
    /// The type, as the entry gives it.
    pub kind: u8,
    /// The name; empty for free space.
    pub name: &'a [u8],
}

/// The damage of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirFault {
    /// The directory's contents are not whole chunks.
    #[error("the last chunk has {have} bytes of 512")]
    PartialChunk {
        /// The number of bytes that exist.
        have: usize,
    },
    /// The entry length is too small, no multiple of 4, or beyond the chunk.
    #[error("entry length {reclen} is impossible where {left} bytes are left")]
    EntryLength {
        /// The length.
        reclen: u16,
        /// The bytes left in the chunk.
        left: usize,
    },
    /// The name is empty or does not fit in the entry.
    #[error("a name of {namlen} bytes is impossible in an entry of {reclen}")]
    NameLength {
        /// The name's length.
        namlen: u8,
        /// The entry's length.
        reclen: u16,
    },
    /// The name contains a NUL or a slash.
    #[error("byte {index} of the name is {byte:#04x}")]
    NameByte {
        /// The byte's index in the name.
        index: usize,
        /// The byte.
        byte: u8,
    },
    /// No NUL follows the name.
    #[error("no NUL ends the name")]
    NotTerminated,
}

/// A damaged entry, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("directory entry at byte {at}: {fault}")]
pub struct DirError {
    /// The entry's first byte in the bytes that were given.
    pub at: usize,
    /// The damage.
    pub fault: DirFault,
}

/// Reads the entry at byte `at` of a directory's contents, of which `bytes` are whole chunks.
///
/// # Errors
/// The entry is damaged; nothing after it in its chunk can be trusted.
pub fn entry(width: Width, bytes: &[u8], at: usize) -> Result<LfsDirEntry<'_>, DirError> {
    let err = |fault| DirError { at, fault };
    let chunk_end = (at - at % CHUNK) + CHUNK;
    if chunk_end > bytes.len() {
        return Err(err(DirFault::PartialChunk { have: bytes.len() % CHUNK }));
    }
    let (left, header) = (chunk_end - at, width.dir_header());
    if left < header {
        return Err(err(DirFault::EntryLength { reclen: 0, left }));
    }
    let DirHeader { ino, reclen, kind, namlen } = DirHeader::read(width, &bytes[at..]);
    let len = usize::from(reclen);
    if len < header + usize::from(ino != 0) || len > left || !len.is_multiple_of(4) {
        return Err(err(DirFault::EntryLength { reclen, left }));
    }
    if ino == 0 {
        return Ok(LfsDirEntry { at, ino, reclen: len, kind, name: &[] });
    }
    if namlen == 0 || entry_size(width, namlen.into()) > len {
        return Err(err(DirFault::NameLength { namlen, reclen }));
    }
    let name = &bytes[at + header..at + header + usize::from(namlen)];
    if let Some(index) = name.iter().position(|b| matches!(b, 0 | b'/')) {
        return Err(err(DirFault::NameByte { index, byte: name[index] }));
    }
    if bytes[at + header + usize::from(namlen)] != 0 {
        return Err(err(DirFault::NotTerminated));
    }
    Ok(LfsDirEntry { at, ino, reclen: len, kind, name })
}

/// All entries of a directory's contents, free space included; iteration ends with the first error.
pub fn entries(
    width: Width,
    bytes: &[u8],
) -> impl Iterator<Item = Result<LfsDirEntry<'_>, DirError>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        let found = entry(width, bytes, at);
        at = found.map_or(bytes.len(), |e| at + e.reclen);
        Some(found)
    })
}

/// Fills a chunk with entries of the given inodes, types and names; the last entry gets the rest of
/// the chunk. Panics if they do not fit.
pub fn fill_chunk(width: Width, chunk: &mut [u8; CHUNK], entries: &[(u64, u8, &[u8])]) {
    chunk.fill(0);
    let mut at = 0;
    for (i, (ino, kind, name)) in entries.iter().enumerate() {
        let is_last = i + 1 == entries.len();
        let len = if is_last { CHUNK - at } else { entry_size(width, name.len()) };
        put(width, &mut chunk[at..at + len], *ino, *kind, name);
        at += len;
    }
}

/// Writes an entry that takes all of `bytes`. Panics if it does not fit.
pub fn put(width: Width, bytes: &mut [u8], ino: u64, kind: u8, name: &[u8]) {
    assert!(entry_size(width, name.len()) <= bytes.len(), "the entry fits");
    let (reclen, namlen) = (bytes.len() as u16, name.len() as u8);
    DirHeader { ino, reclen, kind, namlen }.write(width, bytes);
    let header = width.dir_header();
    bytes[header..header + name.len()].copy_from_slice(name);
    bytes[header + name.len()..entry_size(width, name.len())].fill(0);
}
