//! The contract between the watcher and what knows a format.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ordo_block::WriteFlags;

use crate::journal::Journal;
use crate::kind::{Class, Part, Reason, What};
use crate::names::Names;
use crate::stats::Stats;

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
    /// Names of files, where directories were seen.
    pub names: Names,
    /// Inodes that the present request changes, in the log or where they belong.
    pub inodes: Vec<u64>,
    /// How the present request is to be carried out.
    pub flags: WriteFlags,
}

/// Contents of a file that lie together, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Where they begin in the file.
    pub at: u64,
    /// Where they begin on the device.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// Who knows a format. Writes must be shown in order; a decoder learns from each.
///
/// What is on disk is hostile: nothing in it makes a decoder panic, loop, or take memory out of proportion.
pub trait Decoder {
    /// The file system's name, as `mount` has it.
    fn system(&self) -> &'static str;

    /// Its block size as a shift. What nothing points to is noted by block.
    fn block_shift(&self) -> u32;

    /// The unit in which it tells the journal where logged blocks belong, as a shift.
    fn home_shift(&self) -> u32 {
        self.block_shift()
    }

    /// Names a write and learns from it: appends parts that cover it, in order and without gaps.
    fn write(&mut self, offset: u64, data: &[u8], out: &mut Vec<Part>, books: &mut Books);

    /// Names a read.
    fn read(&mut self, offset: u64, len: u64, data: Option<&[u8]>, out: &mut Vec<Part>);

    /// Names a write whose contents nobody kept, by its place.
    fn write_unseen(&mut self, offset: u64, len: u64, out: &mut Vec<Part>) {
        self.read(offset, len, None, out);
    }

    /// Where a file's contents are now, as far as they have blocks of their own, in the order of the device.
    fn contents(&self, ino: u64) -> Vec<Contents>;

    /// Reads and writes by kind, from a decoder that settles its guesses itself; else the watcher does, by its claims.
    fn counted(&self) -> Option<Stats> {
        None
    }
}

/// The part that says that a range has no name, and why.
pub(crate) fn unknown(offset: u64, len: u64, why: Reason) -> Part {
    Part { class: Class::Unknown, offset, len, what: What::Unknown(why) }
}

/// Covers a request with parts. `name` names what begins at its first argument, up to the second at most;
/// what is beyond `bytes`, the file system's size, has no name.
pub(crate) fn cover(
    out: &mut Vec<Part>,
    offset: u64,
    len: u64,
    bytes: u64,
    mut name: impl FnMut(u64, u64) -> Part,
) {
    let end = offset.saturating_add(len);
    let inside = end.min(bytes);
    let mut at = offset;
    while at < inside {
        let part = name(at, inside);
        debug_assert!(part.offset == at && part.len > 0 && part.len <= inside - at);
        // What a decoder does not get on with is left as it is.
        at += part.len.max(1);
        match out.last_mut() {
            // Guesses that are alike are one.
            Some(last)
                if (&last.what, last.class) == (&part.what, part.class)
                    && matches!(part.what, What::Unclaimed | What::Unknown(_) | What::Only(_)) =>
            {
                last.len += part.len;
            }
            _ => out.push(part),
        }
    }
    if at < end {
        out.push(unknown(at, end - at, Reason::BeyondFileSystem));
    }
}
