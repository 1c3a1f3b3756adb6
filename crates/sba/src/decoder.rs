//! The contract between the watcher and what knows a format.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::journal::Journal;
use crate::kind::{Class, Part};

/// What a decoder learns the state of a device from, before requests pass.
pub trait Image {
    /// Its size in bytes.
    fn bytes(&self) -> u64;
    /// Fills `buf` from byte `offset`.
    ///
    /// # Errors
    /// The range is not there, or could not be read.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl Image for &[u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Image for File {
    fn bytes(&self) -> u64 {
        // A device has its size at its end only.
        let size = rustix::fs::seek(self, rustix::fs::SeekFrom::End(0));
        size.unwrap_or(0)
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }
}

/// Blocks of which it is now known what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The first, in blocks of the decoder's.
    pub block: u64,
    /// How many.
    pub blocks: u64,
    /// Their kind.
    pub class: Class,
}

/// What a decoder tells besides names.
#[derive(Debug, Default)]
pub struct Books {
    /// The journal as it was seen.
    pub journal: Journal,
    /// Blocks that some pointer now shows. The watcher takes them after each request.
    pub claims: Vec<Claim>,
}

/// Who knows a format. Writes must be shown in order; a decoder learns from each.
///
/// What is on disk is hostile: nothing in it makes a decoder panic, loop, or take memory out of proportion.
pub trait Decoder {
    /// The file system's name, as `mount` has it.
    fn system(&self) -> &'static str;

    /// Its block size as a shift. What nothing points to is noted by block.
    fn block_shift(&self) -> u32;

    /// Names a write and learns from it: appends parts that cover it, in order and without gaps.
    fn write(&mut self, offset: u64, data: &[u8], out: &mut Vec<Part>, books: &mut Books);

    /// Names a read.
    fn read(&mut self, offset: u64, len: u64, data: Option<&[u8]>, out: &mut Vec<Part>);
}
