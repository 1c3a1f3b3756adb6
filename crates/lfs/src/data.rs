//! The seam for a file system that keeps the contents of regular files outside of the log, on a device of their own.
//!
//! The log has everything else: inodes, indirect blocks, directories, symbolic links, the IFILE. A pointer to contents counts
//! blocks of the data device; every other pointer is an address in the log. A [`DataPlaces`] says which blocks of the device are
//! free; its tables are a part of the IFILE ([`Superblock::group_tables_at`](ordo_format::lfs::Superblock)).
//!
//! Typical sequence: [`DataPlaces::load`] at the mount; [`reserve`](DataPlaces::reserve) when a file gets a block,
//! [`allocate`](DataPlaces::allocate) when a write-out gives it its place; [`free`](DataPlaces::free) when a file gives it back,
//! [`frees_gathered`](DataPlaces::frees_gathered) when the write-out has the file without it, and
//! [`frees_durable`](DataPlaces::frees_durable) when that is durable, [`frees_copied`](DataPlaces::frees_copied) when the copy of
//! the metadata has it too.

use ordo_block::{BlockDevice, Device};
use ordo_format::dualfs::{CopyArea, DataShape};
use ordo_format::lfs::{LfsInode, Superblock};
use ordo_vfs::FileType;

use crate::LfsError;
use crate::error::LogDamage;
use crate::superblock::VolumeKind;

bitflags::bitflags! {
    /// The rules that keep two devices in order. Each can be switched off, to show what it does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DualRules: u8 {
        /// Contents are durable before the partial segments with the pointers to them are written.
        const CONTENTS = 1;
        /// A block that was given back is given to no file before it is durable that its file has it no more.
        const FREED = 1 << 1;
        /// A rule for a data device that keeps a copy of the metadata: a block that was given back is given to no file before a copy
        /// is complete in which its file has it no more.
        const COPIED = 1 << 2;
        /// A copy of the metadata is durable before its head is written.
        const COPY_FIRST = 1 << 3;
    }
}

/// The device with the contents of regular files.
#[derive(Clone)]
pub struct DataDevice {
    /// The device.
    pub device: Device,
    /// Its blocks.
    pub shape: DataShape,
    /// The byte of its disk at which it begins: 0 where it has a disk of its own.
    pub first: u64,
}

/// The place of the copy of the metadata on the data device.
#[derive(Clone, Copy, Debug)]
pub struct CopySide {
    /// The place.
    pub area: CopyArea,
    /// The identifier of the pair, by which a copy is known.
    pub uuid: [u8; 16],
}

/// The device and what knows which of its blocks are free, for a file system that is written.
pub struct DataSide {
    /// The device.
    pub device: DataDevice,
    /// The allocator, which knows which blocks are free.
    pub places: Box<dyn DataPlaces>,
    /// The rules: all of them, but for experiments.
    pub rules: DualRules,
    /// How the log's metadata is kept together and read.
    pub locality: Locality,
    /// The place of the copy of the metadata on the device, if it keeps one.
    pub copy: Option<CopySide>,
}

/// Mechanisms that keep metadata together in the log and read it together. Each can be off.
///
/// Source: Piernas and others (2007), section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locality {
    /// Blocks of the log that are read in one request where one of them is missing from memory; the others are next to it, most
    /// of them before it. 0 or 1: none is read with it.
    pub prefetch: u32,
    /// In a write-out, files come in inverse order of their last change, each with its blocks in inverse order and then its
    /// indirect blocks; inodes come in the same order of files. Otherwise all come in the order of their numbers.
    pub inverse: bool,
    /// Blocks of metadata in a second, at most, that are rewritten because they were read. 0: none.
    pub relocate: u32,
}

impl Locality {
    /// None of them.
    pub const NONE: Locality = Locality { prefetch: 0, inverse: false, relocate: 0 };
}

/// How much of the data device is free, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSpace {
    /// Blocks that files can have.
    pub blocks: u64,
    /// Free blocks that are not promised to anybody.
    pub free: u64,
    /// Blocks that will be free when it is durable that their files have them no more.
    pub soon: u64,
}

/// Bytes of the tables that changed: their place in the tables, and what they are now.
pub type TablePart = (usize, Vec<u8>);

/// The allocator of the data device: which of its blocks are free. Nothing here waits.
pub trait DataPlaces {
    /// Takes the tables as a checkpoint has them.
    ///
    /// # Errors
    /// They cannot be right, in words.
    fn load(&mut self, tables: &[u8]) -> Result<(), String>;

    /// The change of the tables that rolling forward finds: blocks that files lost, and then those that they got.
    fn roll(&mut self, lost: &[i64], got: &[i64]);

    /// How much is free.
    fn space(&self) -> DataSpace;

    /// Promises a block to a file. False where none is left.
    #[must_use]
    fn reserve(&mut self) -> bool;

    /// Takes a promise back.
    fn release(&mut self);

    /// The place of a promised block of a file of `group`: `after`, the block behind the file's previous one, if it is free.
    fn allocate(&mut self, group: u32, after: Option<i64>) -> i64;

    /// A file gives a block back.
    fn free(&mut self, block: i64);

    /// Tells the allocator that the write-out being gathered has all frees so far.
    fn frees_gathered(&mut self);

    /// Tells the allocator that the gathered frees are durable.
    fn frees_durable(&mut self);

    /// Tells the allocator that a copy of the metadata has all frees that are durable, or that there is no copy.
    fn frees_copied(&mut self);

    /// The group for a new directory in one of `parent`'s.
    fn group_for(&mut self, parent: u32) -> u32;

    /// A group has an inode more, or less.
    fn count_inode(&mut self, group: u32, by: i32);

    /// The bytes of the tables that changed since the last call.
    fn changed(&mut self) -> Vec<TablePart>;
}

impl DataDevice {
    /// Reads a block of contents for a reader.
    pub(crate) async fn read(&self, what: LogDamage, addr: i64) -> Result<Vec<u8>, LfsError> {
        if !self.shape.holds(addr) {
            return Err(LfsError::Contents { what, addr, blocks: self.shape.blocks });
        }
        let (bsize, start) = (self.shape.bsize as usize, self.byte_of(addr));
        let geometry = self.device.geometry();
        let sector = geometry.sector as usize;
        let step = (geometry.max_request / sector).max(1) * sector;
        let mut out = Vec::with_capacity(bsize);
        while out.len() < bsize {
            let len = step.min(bsize - out.len());
            out.extend_from_slice(&self.device.read(start + out.len() as u64, len).await?);
        }
        Ok(out)
    }

    /// The byte of a block on its device.
    pub fn byte_of(&self, addr: i64) -> u64 {
        addr.cast_unsigned() * u64::from(self.shape.bsize)
    }

    /// Whether the device has room for its blocks, and the log's blocks are of the same size.
    pub(crate) fn fits(&self, sb: &Superblock) -> Result<(), LfsError> {
        let geometry = self.device.geometry();
        let want = self.shape.blocks.saturating_mul(self.shape.bsize.into());
        if want > geometry.bytes {
            return Err(LfsError::DataTooSmall { want, have: geometry.bytes });
        }
        if geometry.sector > self.shape.bsize {
            return Err(LfsError::Sector { frag: self.shape.bsize, sector: geometry.sector });
        }
        let tables = self.shape.table_blocks();
        match sb.bsize == self.shape.bsize && sb.frag == 1 && sb.group_table_blocks() == tables {
            true => Ok(()),
            false => Err(LfsError::Tables { have: sb.group_table_blocks(), want: tables }),
        }
    }
}

/// The kind of superblock that goes with a data device, or without one.
pub(crate) fn kind_of<T>(data: Option<&T>) -> VolumeKind {
    if data.is_some() { VolumeKind::Dual } else { VolumeKind::Lfs }
}

/// Whether an inode's contents are apart from the log where there is a data device.
pub(crate) fn is_regular(inode: &LfsInode) -> bool {
    FileType::from_mode(inode.mode) == Some(FileType::Regular)
}
