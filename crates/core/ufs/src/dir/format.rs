//! The formats of directories: the layout of entries in the bytes of a block.
//!
//! Each format is a row of chunks of 512 bytes, which entries fill without gaps. So a torn write of
//! sectors never tears an entry. The formats differ in the head of an entry. A format defines how
//! entries are found, made and removed. All formats share the choice of a chunk for a name, and the
//! index of names ([`super`]).

use ordo_vfs::FileType;

/// The unit in which directories grow, in bytes. No entry crosses it.
pub const CHUNK: usize = 512;

/// An entry in a chunk, or free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirRecord<'a> {
    /// The entry's first byte in the chunk.
    pub at: usize,
    /// The inode number; 0 for free space.
    pub ino: u64,
    /// The entry's length in bytes, the free space behind the name included.
    pub reclen: usize,
    /// The bytes of the entry that the name needs; 0 for free space.
    pub used: usize,
    /// The file type in the entry, where the format has one.
    pub file_type: Option<FileType>,
    /// The name; empty for free space.
    pub name: &'a [u8],
}

/// A broken entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirDamage<F> {
    /// The entry's first byte in the chunk.
    pub at: usize,
    /// The fault.
    pub fault: F,
}

/// An entry with free space behind its name, or free space only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// The entry's first byte in the chunk.
    pub at: usize,
    /// The bytes of the entry that are in use.
    pub used: usize,
    /// The entry's length in bytes.
    pub reclen: usize,
}

impl FreeSpace {
    /// The first byte of a new entry that takes the free space.
    pub fn start(&self) -> usize {
        self.at + self.used
    }
}

/// A format of directories. A chunk has [`CHUNK`] bytes, unless [`chunk`](Self::chunk) says
/// otherwise. All functions but [`records`](Self::records) get chunks that were checked before: a
/// fault in them ends a search, and never causes a panic.
pub trait DirFormat: Copy + 'static {
    /// The faults that an entry can have.
    type Fault: std::fmt::Display;

    /// The bytes of a chunk. Another number than [`CHUNK`] is for reading only.
    fn chunk(&self) -> usize {
        CHUNK
    }

    /// The bytes that an entry with a name of `len` bytes needs, a multiple of 4.
    fn entry_size(&self, len: usize) -> usize;

    /// The entries of a chunk, free space included, up to the first that is broken.
    fn records<'b>(
        &self,
        chunk: &'b [u8],
    ) -> impl Iterator<Item = Result<DirRecord<'b>, DirDamage<Self::Fault>>>;

    /// The inode of the entry at the start of `rest`, if the entry has this name. `rest` reaches at
    /// least to the end of the chunk.
    fn inode_if_named(&self, rest: &[u8], name: &[u8]) -> Option<u64>;

    /// The first entry with `bytes` of free space.
    fn first_with_space(&self, chunk: &[u8], bytes: usize) -> Option<FreeSpace>;

    /// The most free space in any entry, in bytes.
    fn most_space(&self, chunk: &[u8]) -> usize;

    /// Makes an entry in the free space of another, which keeps its own bytes. The caller has
    /// checked that it fits.
    fn insert(
        &self,
        chunk: &mut [u8],
        space: FreeSpace,
        ino: u64,
        file_type: FileType,
        name: &[u8],
    );

    /// Frees the entry at byte `at`. The entry before it takes over its space; the first entry of a
    /// chunk becomes free space.
    fn remove(&self, chunk: &mut [u8], at: usize);

    /// Gives the entry at byte `at` another inode.
    fn change(&self, chunk: &mut [u8], at: usize, ino: u64, file_type: FileType);

    /// Whether a chunk has free space only.
    fn is_free(&self, chunk: &[u8]) -> bool;

    /// Fills a chunk with free space.
    fn write_free(&self, chunk: &mut [u8]);

    /// Writes the first chunk of a new directory: `.` and `..`.
    fn write_first(&self, chunk: &mut [u8], ino: u64, parent: u64);
}
