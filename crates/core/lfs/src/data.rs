//! The interface for DualFS, which keeps the contents of regular files outside of the log, on a
//! second device.
//!
//! The log has everything else: inodes, indirect blocks, directories, symbolic links, the IFILE. A
//! pointer to contents is the number of a block of the data device; every other pointer is an
//! address in the log. A [`DataAllocator`] knows which blocks of the data device are free; its
//! tables are a part of the IFILE ([`Superblock::group_tables_at`](ordo_format::lfs::Superblock)).
//!
//! Typical sequence: [`DataAllocator::load`] at the mount. [`reserve`](DataAllocator::reserve) when
//! a file gets a block, and [`allocate`](DataAllocator::allocate) when a write-out chooses the
//! block. [`free`](DataAllocator::free) when a file loses a block,
//! [`frees_gathered`](DataAllocator::frees_gathered) when a write-out has been gathered that
//! records the loss, [`frees_durable`](DataAllocator::frees_durable) when that write-out is
//! durable, and [`frees_copied`](DataAllocator::frees_copied) when the copy of the metadata records
//! the loss too.

use ordo_block::pieces::read_all;
use ordo_block::{BlockDevice, Device};
use ordo_format::dualfs::{CopyArea, DataShape};
use ordo_format::lfs::{LfsInode, Superblock};
use ordo_vfs::FileType;

use crate::LfsError;
use crate::error::LogDamage;
use crate::superblock::VolumeKind;

bitflags::bitflags! {
    /// The rules of the order of writes between the two devices. Each can be switched off, to show
    /// what it is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DualRules: u8 {
        /// Contents are durable before the partial segments with the pointers to them are written.
        const CONTENTS = 1;
        /// A block that a file has lost is not given to another file before the loss is durable.
        const FREED = 1 << 1;
        /// If the data device keeps a copy of the metadata, a block that a file has lost is given
        /// to another file only when a complete copy records the loss.
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
    /// The blocks of the device.
    pub shape: DataShape,
    /// The byte of the disk at which the device begins: 0 if it has a disk of its own.
    pub first: u64,
}

/// The part of the data device that keeps the copy of the metadata.
#[derive(Clone, Copy, Debug)]
pub struct CopySide {
    /// The blocks of the copy.
    pub area: CopyArea,
    /// The identifier of the pair. A copy with another identifier belongs to another pair.
    pub uuid: [u8; 16],
}

/// The data device with its allocator, for a file system that is mounted for writing.
pub struct DataSide {
    /// The device.
    pub device: DataDevice,
    /// The allocator of the device's blocks.
    pub allocator: Box<dyn DataAllocator>,
    /// The rules that are on. All of them are on, except in experiments.
    pub rules: DualRules,
    /// The mechanisms that keep metadata together.
    pub locality: Locality,
    /// The part of the device that keeps a copy of the metadata; `None` if there is no copy.
    pub copy: Option<CopySide>,
}

/// Mechanisms that keep metadata together in the log and read it together. Each can be switched
/// off.
///
/// Source: Piernas and others (2007), section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locality {
    /// The number of blocks of the log that are read in one request when a block is not in memory.
    /// The others are the neighbours of that block, and most of them lie before it. With 0 or 1 no
    /// neighbours are read.
    pub prefetch: u32,
    /// Whether a write-out takes files in inverse order of their last change. The blocks of each
    /// file are then in inverse order too, with the file's indirect blocks behind them; inodes
    /// follow in the same order of files. Otherwise files and blocks are in the order of their
    /// numbers.
    pub inverse: bool,
    /// The most blocks of metadata that are rewritten in a second because they were read. 0: none.
    pub relocate: u32,
}

impl Locality {
    /// No mechanism is on.
    pub const NONE: Locality = Locality { prefetch: 0, inverse: false, relocate: 0 };
}

/// The free space of the data device, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSpace {
    /// The number of blocks that files can have.
    pub blocks: u64,
    /// The number of free blocks that are not reserved.
    pub free: u64,
    /// The number of blocks that files have lost, and that become free when the loss is durable.
    pub soon: u64,
}

/// Changed bytes of the group tables: their first byte in the tables, and the new bytes.
pub type TablePart = (usize, Vec<u8>);

/// The allocator of the data device. None of its functions waits.
pub trait DataAllocator {
    /// Reads the tables of a checkpoint.
    ///
    /// # Errors
    /// The tables cannot be right; the text says why.
    fn load(&mut self, tables: &[u8]) -> Result<(), String>;

    /// Applies the changes that rolling forward finds: first the blocks that files lost, then the
    /// blocks that files gained.
    fn roll(&mut self, freed: &[i64], allocated: &[i64]);

    /// The free space.
    fn space(&self) -> DataSpace;

    /// Reserves a block for a file. Returns false if none is left.
    #[must_use]
    fn reserve(&mut self) -> bool;

    /// Releases a block that was reserved.
    fn release(&mut self);

    /// Chooses the block for a file of `group` that has reserved one: block `after`, which is
    /// behind the file's previous block, if that is free.
    fn allocate(&mut self, group: u32, after: Option<i64>) -> i64;

    /// Notes that a file has lost a block.
    fn free(&mut self, block: i64);

    /// Notes that the write-out being gathered contains all frees so far.
    fn frees_gathered(&mut self);

    /// Notes that the gathered frees are durable.
    fn frees_durable(&mut self);

    /// Notes that a copy of the metadata records all frees that are durable, or that there is no
    /// copy any more.
    fn frees_copied(&mut self);

    /// Chooses the group for a new directory whose parent is in the group `parent`.
    fn group_for(&mut self, parent: u32) -> u32;

    /// Changes the number of inodes of a group by `by`.
    fn count_inode(&mut self, group: u32, by: i32);

    /// The parts of the tables that changed since the last call.
    fn changed(&mut self) -> Vec<TablePart>;
}

impl DataDevice {
    /// Reads a block of contents.
    pub(crate) async fn read(&self, what: LogDamage, addr: i64) -> Result<Vec<u8>, LfsError> {
        if !self.shape.holds(addr) {
            return Err(LfsError::Contents { what, addr, blocks: self.shape.blocks });
        }
        let bsize = self.shape.bsize as usize;
        Ok(read_all(&self.device, self.byte_of(addr), bsize).await?.to_vec())
    }

    /// The first byte of a block on the data device.
    pub fn byte_of(&self, addr: i64) -> u64 {
        addr.cast_unsigned() * u64::from(self.shape.bsize)
    }

    /// Checks that the device is large enough for its blocks, and that the log's blocks have the
    /// same size.
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

/// The kind of superblock that a log has: that of DualFS if there is a data device.
pub(crate) fn kind_of<T>(data: Option<&T>) -> VolumeKind {
    if data.is_some() { VolumeKind::Dual } else { VolumeKind::Lfs }
}

/// Whether an inode is a regular file, whose contents are on the data device if there is one.
pub(crate) fn is_regular(inode: &LfsInode) -> bool {
    FileType::from_mode(inode.mode) == Some(FileType::Regular)
}
