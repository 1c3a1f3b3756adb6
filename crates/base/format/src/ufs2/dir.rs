//! Directories: consecutive chunks of 512 bytes, each filled by entries without gaps.
//!
//! An entry consists of inode number (u32, 0 for free space), entry length (u16), type (u8), name
//! length (u8), the name, a NUL, and padding to 4 bytes. No entry crosses a chunk. An entry that is
//! longer than it needs to be has free space after its name.

use crate::Endian;

/// The unit in which directories grow and are written at once, in bytes (`DIRBLKSIZ`).
pub const CHUNK: usize = 512;
/// The bytes of an entry before its name.
pub const HEADER: usize = 8;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// The byte of the inode number in an entry (`d_ino` of `struct direct`).
pub const INO_OFFSET: usize = 0;
/// The byte of the entry length in an entry (`d_reclen`).
pub const RECLEN_OFFSET: usize = 4;
/// The byte of the type in an entry (`d_type`).
pub const TYPE_OFFSET: usize = 6;
/// The byte of the name length in an entry (`d_namlen`).
pub const NAMLEN_OFFSET: usize = 7;

/// An unrecorded type.
pub const DT_UNKNOWN: u8 = 0;
/// A named pipe.
pub const DT_FIFO: u8 = 1;
/// A character device.
pub const DT_CHR: u8 = 2;
/// A directory.
pub const DT_DIR: u8 = 4;
/// A block device.
pub const DT_BLK: u8 = 6;
/// A regular file.
pub const DT_REG: u8 = 8;
/// A symbolic link.
pub const DT_LNK: u8 = 10;
/// A socket.
pub const DT_SOCK: u8 = 12;
/// A whiteout.
pub const DT_WHT: u8 = 14;

/// The entry type of an inode with this `mode`.
pub const fn type_of_mode(mode: u16) -> u8 {
    (mode >> 12) as u8
}

/// The bytes that an entry with a name of `namlen` bytes needs.
pub const fn entry_size(namlen: usize) -> usize {
    (HEADER + namlen + 1).next_multiple_of(4)
}

/// The damage of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum EntryFault {
    /// The directory's contents are not whole chunks.
    #[error("the last chunk has {have} bytes of 512")]
    PartialChunk {
        /// The number of bytes that exist.
        have: usize,
    },
    /// The entry length is below the minimum.
    #[error("entry length {reclen} is too small for an entry")]
    TooShort {
        /// The length.
        reclen: u16,
    },
    /// The entry length is not a multiple of 4.
    #[error("entry length {reclen} is not a multiple of 4")]
    Unaligned {
        /// The length.
        reclen: u16,
    },
    /// The entry ends beyond its chunk.
    #[error("entry length {reclen} crosses the chunk, where {left} bytes are left")]
    CrossesChunk {
        /// The length.
        reclen: u16,
        /// The bytes left in the chunk.
        left: usize,
    },
    /// The name does not fit in the entry.
    #[error("a name of {namlen} bytes does not fit in an entry of {reclen}")]
    NameTooLong {
        /// The name's length.
        namlen: u8,
        /// The entry's length.
        reclen: u16,
    },
    /// The name is empty.
    #[error("the name is empty")]
    NameEmpty,
    /// The name contains a NUL.
    #[error("byte {index} of the name is NUL")]
    NameHasNul {
        /// The byte's index in the name.
        index: usize,
    },
    /// The name contains a slash.
    #[error("byte {index} of the name is a slash")]
    NameHasSlash {
        /// The byte's index in the name.
        index: usize,
    },
    /// No NUL follows the name.
    #[error("no NUL ends the name")]
    NotTerminated,
    /// The type does not exist.
    #[error("type {kind} does not exist")]
    BadType {
        /// The type.
        kind: u8,
    },
}

/// A damaged entry, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("directory entry at byte {at}: {fault}")]
pub struct EntryError {
    /// The entry's first byte in the bytes that were given.
    pub at: usize,
    /// The damage.
    pub fault: EntryFault,
}

impl EntryError {
    /// Whether only this entry is damaged, so that the next one can be found by this one's length.
    pub fn framing_holds(&self) -> bool {
        matches!(
            self.fault,
            EntryFault::NameTooLong { .. }
                | EntryFault::NameEmpty
                | EntryFault::NameHasNul { .. }
                | EntryFault::NameHasSlash { .. }
                | EntryFault::NotTerminated
                | EntryFault::BadType { .. }
        )
    }
}

/// A directory entry, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The first byte in the bytes that were given.
    pub at: usize,
    /// The inode number; 0 for free space.
    pub ino: u32,
    /// The length in bytes, free space after the name included.
    pub reclen: u16,
    /// The type: a `DT_` constant.
    pub kind: u8,
    /// The name; empty for free space.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Whether the entry is free space.
    pub fn is_free(&self) -> bool {
        self.ino == 0
    }

    /// The bytes that the entry needs; the rest of `reclen` is free.
    pub fn needs(&self) -> usize {
        if self.is_free() { 0 } else { entry_size(self.name.len()) }
    }

    /// The bytes that a new entry could take from this one.
    pub fn spare(&self) -> usize {
        usize::from(self.reclen) - self.needs()
    }
}

/// The entries of a directory, or of a part of it that starts at a chunk. After a damaged entry the
/// iterator continues with the next entry if the lengths are still possible, otherwise with the
/// next chunk.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    endian: Endian,
    chunk: usize,
}

/// The entries in `bytes`, free space included.
pub fn entries(bytes: &[u8], endian: Endian) -> Entries<'_> {
    entries_of(bytes, endian, CHUNK)
}

/// The entries in chunks of another size, free space included.
pub fn entries_of(bytes: &[u8], endian: Endian, chunk: usize) -> Entries<'_> {
    Entries { bytes, at: 0, endian, chunk }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let at = self.at;
        let chunk_end = (at / self.chunk + 1) * self.chunk;
        self.at = chunk_end;
        if chunk_end > self.bytes.len() {
            let have = self.bytes.len() % self.chunk;
            return Some(Err(EntryError { at, fault: EntryFault::PartialChunk { have } }));
        }
        let entry = match framing(&self.bytes[at..chunk_end], self.endian) {
            Ok(reclen) => {
                self.at = at + usize::from(reclen);
                decode(&self.bytes[at..self.at], at, reclen, self.endian)
            }
            Err(fault) => Err(fault),
        };
        Some(entry.map_err(|fault| EntryError { at, fault }))
    }
}

/// The place, needed bytes and length of each entry; names are not read. The chunk must have been
/// validated. Iteration stops at an impossible length.
fn frames(chunk: &[u8], endian: Endian) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = chunk.get(at..)?;
        let reclen = usize::from(framing(rest, endian).ok()?);
        let free = endian.get_u32(rest, INO_OFFSET) == 0;
        let needs = if free { 0 } else { entry_size(rest[NAMLEN_OFFSET].into()) };
        let frame = (at, needs.min(reclen), reclen);
        at += reclen;
        Some(frame)
    })
}

/// The first entry of a validated chunk with `bytes` to spare: its place, its needed bytes, and its
/// length.
pub fn first_with_space(
    chunk: &[u8],
    endian: Endian,
    bytes: usize,
) -> Option<(usize, usize, usize)> {
    frames(chunk, endian).find(|(_, needs, reclen)| reclen - needs >= bytes)
}

/// The largest spare space of any entry in a validated chunk, in bytes.
pub fn most_space(chunk: &[u8], endian: Endian) -> usize {
    frames(chunk, endian).map(|(_, needs, reclen)| reclen - needs).max().unwrap_or(0)
}

/// The place of the entry before the one at `at`, in a validated chunk; `None` for the first.
pub fn place_before(chunk: &[u8], endian: Endian, at: usize) -> Option<usize> {
    frames(chunk, endian).map(|(place, ..)| place).take_while(|place| *place < at).last()
}

/// The inode number of the entry at the start of `rest`, if it has this name. `rest` extends at
/// least to the end of the entry's chunk.
pub fn inode_if_named(rest: &[u8], endian: Endian, name: &[u8]) -> Option<u32> {
    let found = rest.get(HEADER..HEADER + name.len())?;
    let ino = endian.get_u32(rest, INO_OFFSET);
    let same = usize::from(rest[NAMLEN_OFFSET]) == name.len() && found == name;
    (same && ino != 0).then_some(ino)
}

/// The length of the entry at the start of `rest`, the rest of its chunk.
fn framing(rest: &[u8], endian: Endian) -> Result<u16, EntryFault> {
    if rest.len() < entry_size(1) {
        return Err(EntryFault::TooShort { reclen: rest.len() as u16 });
    }
    let reclen = endian.get_u16(rest, RECLEN_OFFSET);
    if usize::from(reclen) < entry_size(1) {
        Err(EntryFault::TooShort { reclen })
    } else if !reclen.is_multiple_of(4) {
        Err(EntryFault::Unaligned { reclen })
    } else if usize::from(reclen) > rest.len() {
        Err(EntryFault::CrossesChunk { reclen, left: rest.len() })
    } else {
        Ok(reclen)
    }
}

/// The entry that fills `bytes`.
fn decode(bytes: &[u8], at: usize, reclen: u16, endian: Endian) -> Result<Entry<'_>, EntryFault> {
    let ino = endian.get_u32(bytes, INO_OFFSET);
    let (kind, namlen) = (bytes[TYPE_OFFSET], bytes[NAMLEN_OFFSET]);
    if ino == 0 {
        return Ok(Entry { at, ino, reclen, kind, name: &[] });
    }
    let Some((name, rest)) = bytes[HEADER..].split_at_checked(namlen.into()) else {
        return Err(EntryFault::NameTooLong { namlen, reclen });
    };
    if entry_size(name.len()) > bytes.len() {
        return Err(EntryFault::NameTooLong { namlen, reclen });
    }
    if name.is_empty() {
        return Err(EntryFault::NameEmpty);
    }
    if let Some(index) = name.iter().position(|byte| matches!(byte, 0 | b'/')) {
        return Err(match name[index] {
            0 => EntryFault::NameHasNul { index },
            _ => EntryFault::NameHasSlash { index },
        });
    }
    if rest[0] != 0 {
        return Err(EntryFault::NotTerminated);
    }
    if kind > 15 {
        return Err(EntryFault::BadType { kind });
    }
    Ok(Entry { at, ino, reclen, kind, name })
}

/// Writes an entry to the start of `bytes`: header, name, and NULs up to the bytes that the name
/// needs. Free space after that stays as it is. Panics if the name does not fit or is too long.
pub fn write_entry(bytes: &mut [u8], endian: Endian, ino: u32, reclen: u16, kind: u8, name: &[u8]) {
    assert!(name.len() <= MAX_NAME, "names have at most 255 bytes");
    let needs = entry_size(name.len());
    assert!(needs <= reclen.into(), "the name fits in the entry");
    endian.put_u32(bytes, INO_OFFSET, ino);
    endian.put_u16(bytes, RECLEN_OFFSET, reclen);
    bytes[TYPE_OFFSET] = kind;
    bytes[NAMLEN_OFFSET] = name.len() as u8;
    bytes[HEADER..HEADER + name.len()].copy_from_slice(name);
    bytes[HEADER + name.len()..needs].fill(0);
}

/// Writes a chunk that is all free space: one entry with inode number 0. Panics unless `chunk` has
/// 512 bytes.
pub fn write_free_chunk(chunk: &mut [u8], endian: Endian) {
    assert_eq!(chunk.len(), CHUNK);
    chunk.fill(0);
    endian.put_u16(chunk, RECLEN_OFFSET, CHUNK as u16);
}

/// Writes chunks that are all free space. Panics unless their length is a multiple of 512.
pub fn write_free_chunks(chunks: &mut [u8], endian: Endian) {
    assert!(chunks.len().is_multiple_of(CHUNK));
    chunks.chunks_exact_mut(CHUNK).for_each(|chunk| write_free_chunk(chunk, endian));
}

/// Whether a chunk is one free entry; its other bytes do not matter.
pub fn is_free_chunk(chunk: &[u8], endian: Endian) -> bool {
    chunk.len() == CHUNK
        && endian.get_u32(chunk, INO_OFFSET) == 0
        && usize::from(endian.get_u16(chunk, RECLEN_OFFSET)) == CHUNK
}

/// Writes the first chunk of a new directory, with `.` and `..`. Panics unless `chunk` has 512
/// bytes.
pub fn write_first_chunk(chunk: &mut [u8], endian: Endian, ino: u32, parent: u32) {
    assert_eq!(chunk.len(), CHUNK);
    chunk.fill(0);
    let dot = entry_size(1);
    write_entry(chunk, endian, ino, dot as u16, DT_DIR, b".");
    write_entry(&mut chunk[dot..], endian, parent, (CHUNK - dot) as u16, DT_DIR, b"..");
}
