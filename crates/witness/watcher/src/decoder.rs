//! The contract between the watcher and the decoder of one on-disk format.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, WriteFlags};

use crate::journal::Journal;
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Looks, Reason};
use crate::lfs::DataBlocks;
use crate::names::Names;
use crate::pending::Pending;

/// The state of a device before requests pass, from which a decoder learns the file system.
pub trait DiskImage {
    /// The device's size in bytes.
    fn bytes(&self) -> u64;
    /// Fills `buf` from byte `offset`.
    ///
    /// # Errors
    /// The range lies outside the device, or the read failed.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Brings an image that [`Watch::follow`](crate::Watch::follow) uses to the moment before the
    /// request with this number. A device in use is there by itself.
    fn advance(&self, _request: u64) {}
}

impl DiskImage for &[u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl DiskImage for RamDisk {
    fn bytes(&self) -> u64 {
        self.geometry().bytes
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.bytes());
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.load(offset, buf);
        Ok(())
    }
}

impl DiskImage for File {
    fn bytes(&self) -> u64 {
        // A block device reports no size in its metadata: seeking to its end gives the size.
        let size = rustix::fs::seek(self, rustix::fs::SeekFrom::End(0));
        size.unwrap_or(0)
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }
}

/// Blocks whose kind is now known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The first block, in units of [`Decoder::claim_shift`].
    pub block: u64,
    /// The number of blocks, in the same unit.
    pub blocks: u64,
    /// Their kind.
    pub class: Class,
    /// The file to which they belong, where the pointer shows it.
    pub owner: Option<Owner>,
    /// Whether the pointer was in a block that was written before anything was known to lead to
    /// that block.
    pub is_old: bool,
}

/// The file to which blocks belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The inode.
    pub ino: u64,
    /// The logical block of the first of them, if they are contents.
    pub first: Option<u64>,
    /// Whether the blocks are packed, so that each stands for all logical blocks.
    pub packed: bool,
}

/// A range of the present request that belongs to a file: a copy in the journal, or metadata that
/// several files share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The range's offset on the device, in bytes.
    pub offset: u64,
    /// The range's length in bytes.
    pub len: u64,
    /// The inode.
    pub ino: u64,
    /// The logical block, where the range is a copy of the file's contents.
    pub file_block: Option<u64>,
    /// The file's part of the range, in bytes.
    pub bytes: u64,
}

/// A decoder's state besides its own: the journal, guesses and claims, names of files.
#[derive(Debug, Default)]
pub struct DecoderState {
    /// The journal, as far as its writes were seen.
    pub journal: Journal,
    /// Blocks whose kind a pointer has shown in the present request.
    pub claims: Vec<Claim>,
    /// The looks of unclaimed parts of the present request, by their offset on the device and in
    /// this order. A decoder that does not judge contents leaves this empty.
    pub looks: Vec<(u64, Looks)>,
    /// Unclaimed blocks that requests before the present one wrote.
    pub(crate) pending: Pending,
    /// Ranges of the present request that belong to files, besides blocks whose names give their
    /// file.
    pub shares: Vec<Share>,
    /// Names of files, from the directories that were seen.
    pub names: Names,
    /// Inodes that the present request changes, in the log or at their fixed location.
    pub inodes: Vec<u64>,
    /// Flags of the present request: FUA, sync, metadata.
    pub flags: WriteFlags,
    /// Whether only kinds are wanted, for counting: the decoder may leave out names of files and
    /// details of changes.
    pub only_kinds: bool,
}

impl DecoderState {
    /// Begins a request.
    pub(crate) fn begin(&mut self) {
        self.claims.clear();
        self.looks.clear();
        self.shares.clear();
        self.inodes.clear();
        self.names.forget_news();
    }

    /// Notes that a range of the request belongs to one file.
    pub(crate) fn own(&mut self, offset: u64, len: u64, ino: u64, file_block: Option<u64>) {
        if ino != 0 {
            self.shares.push(Share { offset, len, ino, file_block, bytes: len });
        }
    }

    /// Divides a range of the request equally among files.
    pub(crate) fn divide(&mut self, offset: u64, len: u64, inodes: &[u64]) {
        let count = inodes.len() as u64;
        for (i, ino) in inodes.iter().enumerate() {
            // The first files get what is left over, a byte each.
            let bytes = len / count + u64::from((i as u64) < len % count);
            self.shares.push(Share { offset, len, ino: *ino, file_block: None, bytes });
        }
    }
}

/// A contiguous range of a file's contents on the device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Offset in the file, in bytes.
    pub at: u64,
    /// Offset on the device, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A device of a file system with two devices: one with metadata, and one with the contents of
/// files or with the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairMember {
    /// The identifier of the pair.
    pub uuid: [u8; 16],
    /// Whether this is the device with the metadata, from which the files of the other one's blocks
    /// are known.
    pub has_metadata: bool,
}

/// The files of the blocks of a device, as the decoder of another device learns them: that of the
/// metadata.
#[derive(Clone)]
pub struct FilesOfBlocks(pub(crate) Rc<RefCell<DataBlocks>>);

/// The decoder of one on-disk format. Writes must be shown in order; a decoder learns from each.
///
/// Data on disk are hostile: nothing in them makes a decoder panic, loop, or take memory out of
/// proportion.
pub trait Decoder {
    /// The file system's name, as `mount` has it.
    fn system(&self) -> &'static str;

    /// The file system's block size as a shift.
    fn block_shift(&self) -> u32;

    /// The smallest unit of space that a pointer gives to a file, as a shift: claims are in it. A
    /// format with fragments has one that is smaller than its blocks.
    fn claim_shift(&self) -> u32 {
        self.block_shift()
    }

    /// The unit in which the decoder tells the journal the fixed location of logged blocks, as a
    /// shift.
    fn home_shift(&self) -> u32 {
        self.block_shift()
    }

    /// Names a write and learns from it: appends parts that cover it, in order and without gaps.
    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    );

    /// Names a read. A decoder may learn from it whatever no write has shown.
    fn read(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    );

    /// Classifies a write whose contents were not recorded, by its address.
    fn write_without_contents(
        &mut self,
        offset: u64,
        len: u64,
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        self.read(offset, len, None, out, state);
    }

    /// The ranges that hold a file's contents now, as far as they have blocks of their own, in the
    /// order of the device.
    fn contents(&self, ino: u64) -> Vec<Contents>;

    /// Whether blocks may be freed and used again long before a pointer shows it. Then the owner of
    /// a block is certain only if pointers were written after it. This is so for a file system
    /// whose journal is on another device.
    fn pointers_come_late(&self) -> bool {
        false
    }

    /// The size of the journal or log on this device in bytes; `None` if there is none, or it is
    /// not known.
    fn log_bytes(&self) -> Option<u64> {
        None
    }

    /// The reason to doubt the names that this decoder gives: metadata where its format has them
    /// that cannot be so. `None` if there is none.
    fn doubt(&self) -> Option<String> {
        None
    }

    /// The pair of devices of which this is one; `None` if the file system has one device.
    fn pair(&self) -> Option<PairMember> {
        None
    }

    /// On a file system's device: reads the log that is on another one, whose contents are `image`,
    /// from now on. Returns whether that is its log.
    fn adopt_log(&mut self, image: &dyn DiskImage) -> bool {
        let _ = image;
        false
    }

    /// On a file system's device: names a write to the device with its log, and learns from it.
    /// Ranges of that request that belong to files are in `state`, and so are claims of blocks of
    /// this device.
    fn log_write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let _ = state;
        out.push(unknown(offset, data.len() as u64, Reason::NotUnderstood));
    }

    /// On the device with the metadata: the files of the other device's blocks, from now on. They
    /// are learned from `image` first, the present contents of this device.
    fn give_blocks(
        &mut self,
        image: &dyn DiskImage,
        state: &mut DecoderState,
    ) -> Option<FilesOfBlocks> {
        let _ = (image, state);
        None
    }

    /// On the device with the contents of files: takes the files of its blocks.
    fn take_blocks(&mut self, blocks: FilesOfBlocks) {
        let _ = blocks;
    }

    /// Blocks whose owner was shown on another device since the last request to this one.
    fn late_claims(&mut self) -> Vec<Claim> {
        Vec::new()
    }
}

/// The part for a range without a name, with the reason.
pub(crate) fn unknown(offset: u64, len: u64, why: Reason) -> ClassifiedRange {
    ClassifiedRange { class: Class::Unknown, offset, len, what: BlockMeaning::Unknown(why) }
}

/// Covers a request with parts. `name` names the part that begins at its first argument and ends at
/// the second at most. A range beyond `bytes`, the file system's size, has no name.
pub(crate) fn cover(
    out: &mut Vec<ClassifiedRange>,
    offset: u64,
    len: u64,
    bytes: u64,
    mut name: impl FnMut(u64, u64) -> ClassifiedRange,
) {
    let end = offset.saturating_add(len);
    let inside = end.min(bytes);
    let mut at = offset;
    while at < inside {
        let part = name(at, inside);
        debug_assert!(part.offset == at && part.len > 0 && part.len <= inside - at);
        // An empty part would make the loop run for ever: every step advances by a byte at least.
        at += part.len.max(1);
        match out.last_mut() {
            // Adjacent guesses of the same kind become one part.
            Some(last)
                if (&last.what, last.class) == (&part.what, part.class)
                    && matches!(
                        part.what,
                        BlockMeaning::Unclaimed | BlockMeaning::Unknown(_) | BlockMeaning::Only(_)
                    ) =>
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
