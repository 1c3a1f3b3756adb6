//! Making an empty UFS2 or UFS1 file system, with FreeBSD's defaults.
//!
//! Layers: [`plan`] turns options into a superblock (sizes only, no I/O); `write` builds each
//! group's bytes and writes them. A crash during mkfs leaves a superblock that says "incomplete".

mod error;
mod plan;
mod write;

use ordo_block::{BlockDevice, Device, Geometry};
use ordo_format::Endian;
use ordo_format::ufs2::Superblock;

pub use error::MkfsError;
pub use plan::plan;

/// The two formats of a fast file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UfsVersion {
    /// UFS1, the format of 4.4BSD: addresses and times of 32 bits, no extended attributes, no
    /// check-hashes.
    Ufs1,
    /// UFS2.
    #[default]
    Ufs2,
}

/// Options of mkfs. [`Default`] gives those of FreeBSD's newfs.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsOptions {
    /// The format.
    pub version: UfsVersion,
    /// The block size in bytes: a power of two from 4,096 to 65,536.
    pub block_size: u32,
    /// The fragment size in bytes: an eighth of the block size up to all of it, 512 or more.
    pub frag_size: u32,
    /// The byte order.
    pub endian: Endian,
    /// The volume label: up to 31 letters, digits, `-`, `_` and `.`; may be empty.
    pub label: String,
    /// Whether the superblock asks for soft updates.
    pub soft_updates: bool,
    /// Whether superblock, groups and inodes carry check-hashes. UFS1's never do.
    pub check_hashes: bool,
    /// Percentage of space kept free.
    pub min_free: u8,
    /// Whether to allocate for little wasted space rather than for speed.
    pub optimise_space: bool,
    /// Bytes of space per inode. The default is two fragments.
    pub density: Option<u32>,
    /// The number of inodes, instead of a density. It is rounded up to whole blocks in each group.
    pub inodes: Option<u64>,
    /// The size in bytes. The default is the whole device.
    pub size: Option<u64>,
    /// The most blocks in a cylinder group. The default is as many as a group's header can
    /// describe.
    pub max_blocks_per_group: Option<u32>,
    /// The number of blocks that a file takes in a group before it moves on. The default is the
    /// number of addresses in a block.
    pub max_blocks_per_file: Option<u32>,
    /// The longest contiguous transfer, in blocks. The default is 1 MiB.
    pub max_contig: Option<u32>,
    /// The expected size of a file in bytes.
    pub average_file_size: u32,
    /// The expected number of files in a directory.
    pub average_files_per_dir: u32,
    /// Whether to make the directory `.snap`, where FreeBSD keeps snapshots.
    pub snapshot_dir: bool,
    /// The seed of the inodes' generation numbers and of the file system's id.
    pub seed: u64,
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            version: UfsVersion::Ufs2,
            block_size: 32 * 1024,
            frag_size: 4 * 1024,
            endian: Endian::Little,
            label: String::new(),
            soft_updates: false,
            check_hashes: true,
            min_free: 8,
            optimise_space: false,
            density: None,
            inodes: None,
            size: None,
            max_blocks_per_group: None,
            max_blocks_per_file: None,
            max_contig: None,
            average_file_size: 16 * 1024,
            average_files_per_dir: 64,
            snapshot_dir: false,
            seed: 0,
        }
    }
}

/// The result of mkfs.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsReport {
    /// The superblock as written.
    pub superblock: Superblock,
    /// The places of its copies, in bytes, one per cylinder group.
    pub copies: Vec<u64>,
    /// Bytes per inode, if they had to differ from the option.
    pub density_changed: Option<u64>,
    /// The number of writes.
    pub writes: u64,
    /// The number of bytes written.
    pub bytes_written: u64,
}

/// Makes an empty file system on `device`; `now` is in seconds since 1970.
///
/// Writes only what must be written, in large requests: the superblock and its copies, the groups'
/// headers, two blocks of inodes in each group (on UFS1 all of them), the summary, the root
/// directory. Other bytes of the device stay, but no structure refers to them. The file system is
/// durable when this returns.
///
/// ```
/// use ordo_block::{BlockDevice, ram::RamDisk};
/// use ordo_ffs::mkfs::{MkfsOptions, mkfs};
/// let disk = RamDisk::new(64 << 20).erase();
/// let executor = ordo_runtime::Executor::simulated(1);
/// let report = executor.block_on(mkfs(&disk, &MkfsOptions::default(), 0)).unwrap().unwrap();
/// assert_eq!(report.superblock.bsize, 32768);
/// ```
///
/// # Errors
/// Illegal sizes, a device that is too small or read-only, or a device error.
pub async fn mkfs(
    device: &Device,
    options: &MkfsOptions,
    now: i64,
) -> Result<MkfsReport, MkfsError> {
    let geometry = device.geometry();
    if geometry.read_only {
        return Err(MkfsError::ReadOnly);
    }
    let plan = plan(options, &geometry, now)?;
    write::Writer::new(device, options, plan).run(now).await
}

/// The result of [`plan`].
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsPlan {
    /// The superblock, with all counts of free space still zero.
    pub superblock: Superblock,
    /// Bytes per inode, if they had to differ from the option.
    pub density_changed: Option<u64>,
}

/// The bytes of the device that the file system may use.
fn usable(options: &MkfsOptions, geometry: &Geometry) -> Result<u64, MkfsError> {
    match options.size {
        Some(size) if size > geometry.bytes => {
            Err(MkfsError::LargerThanDevice { size, device: geometry.bytes })
        }
        Some(size) => Ok(size),
        None => Ok(geometry.bytes),
    }
}
