//! The formats of directories: what entries are like in the bytes of a block.
//!
//! All of them are rows of chunks of 512 bytes, each filled by entries without gaps, so that a torn write of sectors never
//! tears an entry. They differ in the head of an entry. A format says how entries are found, made and removed; which
//! chunk a name goes to, and the index of names, are the same for all ([`super`]).

use ordo_vfs::FileType;

/// The unit in which directories grow, in bytes. No entry crosses it.
pub const CHUNK: usize = 512;

/// An entry, where it lies; or free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirRecord<'a> {
    /// Its first byte in the chunk.
    pub at: usize,
    /// The inode; 0: free space.
    pub ino: u64,
    /// Its length in bytes, free space behind the name included.
    pub reclen: usize,
    /// The bytes of it that the name needs; 0 of free space.
    pub used: usize,
    /// What kind of file it says that is.
    pub file_type: Option<FileType>,
    /// The name; empty of free space.
    pub name: &'a [u8],
}

/// A broken entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirDamage<F> {
    /// Its first byte in the chunk.
    pub at: usize,
    /// What is wrong.
    pub fault: F,
}

/// An entry with free space behind its name, or nothing but free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// The entry's first byte in the chunk.
    pub at: usize,
    /// The bytes of it that are in use.
    pub used: usize,
    /// Its length in bytes.
    pub reclen: usize,
}

impl FreeSpace {
    /// The first byte of a new entry that takes the free space.
    pub fn start(&self) -> usize {
        self.at + self.used
    }
}

/// A format of directories. A chunk has [`CHUNK`] bytes. But for [`records`](Self::records), chunks were looked at
/// before: what cannot be right in them ends a search, and nothing panics.
pub trait DirFormat: Copy + 'static {
    /// What can be wrong with an entry.
    type Fault: std::fmt::Display;

    /// The bytes that an entry with a name of `len` bytes needs, a multiple of 4.
    fn entry_size(&self, len: usize) -> usize;

    /// The entries of a chunk, free space included, until one is broken.
    fn records<'b>(
        &self,
        chunk: &'b [u8],
    ) -> impl Iterator<Item = Result<DirRecord<'b>, DirDamage<Self::Fault>>>;

    /// The inode of the entry at the start of `rest` if it has this name. `rest` goes to the end of the chunk, or
    /// further.
    fn inode_if_named(&self, rest: &[u8], name: &[u8]) -> Option<u64>;

    /// The first entry with `bytes` to spare.
    fn first_with_room(&self, chunk: &[u8], bytes: usize) -> Option<FreeSpace>;

    /// The most that any entry has to spare, in bytes.
    fn most_room(&self, chunk: &[u8]) -> usize;

    /// Makes an entry in the free space of another, which keeps what it uses. It fits.
    fn insert(
        &self,
        chunk: &mut [u8],
        space: FreeSpace,
        ino: u64,
        file_type: FileType,
        name: &[u8],
    );

    /// Frees the entry at byte `at`: the entry before it takes its space, or it becomes free space where it is the
    /// first.
    fn remove(&self, chunk: &mut [u8], at: usize);

    /// Makes the entry at byte `at` stand for another inode.
    fn change(&self, chunk: &mut [u8], at: usize, ino: u64, file_type: FileType);

    /// Whether a chunk is nothing but free space.
    fn is_free(&self, chunk: &[u8]) -> bool;

    /// Makes a chunk nothing but free space.
    fn write_free(&self, chunk: &mut [u8]);

    /// Makes the first chunk of a new directory: `.` and `..`.
    fn write_first(&self, chunk: &mut [u8], ino: u64, parent: u64);
}
