//! Making an empty LFS64, as newfs_lfs does.
//!
//! [`MkfsOptions`] and the device's size determine a plan (`plan`): a superblock that lacks only
//! the checkpoint. The log then gets its first partial segments (`first`): the root directory, the
//! IFILE, their inodes. The superblocks are written last, so an interrupted mkfs leaves no file
//! system.
//!
//! newfs_lfs writes some blocks twice to update its counts. Here every block is written once, since
//! the counts are computed from the layout before the first write.

mod first;
mod plan;
mod segment;

use ordo_block::pieces::write_all;
use ordo_block::{BlockDevice, BlockError, Device, WriteFlags};
use ordo_format::lfs::{SUPERBLOCK_SIZE, Superblock, SuperblockError};
use ordo_format::ufs2::superblock::{self as ufs, SBLOCK_SIZE};

pub use segment::{SEGMENTS_LEAST, segment_least, segment_size};

/// Options of mkfs.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The block size in bytes: a power of two from 512 to 65536.
    pub block_size: u32,
    /// The fragment size in bytes: a power of two from 512 to the block size.
    pub frag_size: u32,
    /// The segment size in bytes: whole fragments.
    pub segment_size: u32,
    /// The percentage of space that is reserved.
    pub min_free: u32,
    /// The identifier in the partial segments of this file system.
    pub ident: u32,
    /// Whether partial segments get a seal.
    pub sealed: bool,
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            block_size: 8192,
            frag_size: 1024,
            segment_size: 1 << 20,
            min_free: 10,
            ident: 1,
            sealed: true,
        }
    }
}

/// The reason why a file system cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MkfsError {
    /// The sizes do not fit each other.
    #[error("block, fragment and segment sizes do not fit each other: {0}")]
    Sizes(SuperblockError),
    /// The device is too small for the segments that must stay free.
    #[error(
        "the device has space for {segments} segments, but at least {least} are needed: use a larger device or smaller segments"
    )]
    TooFewSegments {
        /// The number of segments that there would be.
        segments: u64,
        /// The least number of segments.
        least: u64,
    },
    /// The first segment has no room for the label and the superblock.
    #[error(
        "segments of {segment} bytes: the first one has the label and the superblock, which take {least} bytes; make segments \
         of {least} bytes or more (--segment-size)"
    )]
    SegmentTooSmall {
        /// The segment size in bytes.
        segment: u32,
        /// The bytes of label and superblock.
        least: u64,
    },
    /// The segments are too small for the tables of the IFILE.
    #[error("the IFILE's {blocks} blocks do not fit into the first segments: use larger segments")]
    IfileTooLarge {
        /// The number of the IFILE's blocks.
        blocks: u64,
    },
    /// A metadata log of DualFS cannot have fragments that are smaller than blocks.
    #[error("fragments of {frag} bytes in blocks of {block} bytes: DualFS has whole blocks only")]
    Fragments {
        /// The fragment size in bytes.
        frag: u32,
        /// The block size in bytes.
        block: u32,
    },
    /// The fragment size is smaller than the device's sector.
    #[error("fragments of {frag} bytes are smaller than the device's sectors of {sector} bytes")]
    Sector {
        /// The fragment size in bytes.
        frag: u32,
        /// The device's sector size in bytes.
        sector: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}

/// Makes an empty LFS64 on `device`. `now` is in seconds since 1970.
///
/// # Errors
/// The sizes do not fit, or the device failed.
///
/// ```
/// use ordo_block::ram::RamDisk;
/// use ordo_lfs::mkfs::{MkfsOptions, mkfs};
/// let executor = ordo_runtime::Executor::simulated(1);
/// let made = executor.block_on(mkfs(RamDisk::new(128 << 20), &MkfsOptions::default(), 0));
/// assert_eq!(made.unwrap().unwrap().nseg, 127);
/// ```
pub async fn mkfs(
    device: impl BlockDevice,
    options: &MkfsOptions,
    now: u64,
) -> Result<Superblock, MkfsError> {
    make(device.erase(), options, &[], now).await
}

/// Makes an empty metadata log of DualFS. `tables` are the group tables of its data device, in
/// whole blocks.
///
/// # Errors
/// As for [`mkfs`]; or fragments are smaller than blocks.
pub async fn mkfs_dual(
    device: impl BlockDevice,
    options: &MkfsOptions,
    tables: &[u8],
    now: u64,
) -> Result<Superblock, MkfsError> {
    if options.frag_size != options.block_size {
        return Err(MkfsError::Fragments { frag: options.frag_size, block: options.block_size });
    }
    assert!(!tables.is_empty(), "a data device has groups");
    make(device.erase(), options, tables, now).await
}

async fn make(
    device: Device,
    options: &MkfsOptions,
    tables: &[u8],
    now: u64,
) -> Result<Superblock, MkfsError> {
    let geometry = device.geometry();
    let mut sb = plan::plan(options, geometry.bytes, tables.len())?;
    if geometry.sector > sb.fsize {
        return Err(MkfsError::Sector { frag: sb.fsize, sector: geometry.sector });
    }
    sb.tstamp = now;
    let log = first::build(&mut sb, options.sealed, tables, now)?;
    clear_ufs(&device).await?;
    for (addr, bytes) in log {
        write_all(&device, sb.byte_of(addr), &bytes, WriteFlags::META).await?;
    }
    device.flush().await?;
    for (i, place) in sb.sboffs.into_iter().enumerate().filter(|(_, a)| *a != 0) {
        let mut copy = sb.clone();
        if i > 1 {
            copy.tstamp = 0;
        }
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        copy.write(&mut bytes);
        write_all(&device, sb.byte_of(place), &bytes, WriteFlags::META).await?;
    }
    device.flush().await?;
    Ok(sb)
}

/// Clears the superblocks of an old UFS, so that no reader finds that file system.
async fn clear_ufs(device: &Device) -> Result<(), BlockError> {
    let geometry = device.geometry();
    for place in ufs::SEARCH {
        let end = place + SBLOCK_SIZE as u64;
        if end > geometry.bytes || geometry.sector as usize > SBLOCK_SIZE {
            continue;
        }
        let old = device.read(place, SBLOCK_SIZE).await?;
        if !matches!(
            ufs::Superblock::parse(&old),
            Err(ufs::SuperblockError::Magic { .. } | ufs::SuperblockError::TooShort { .. })
        ) {
            write_all(device, place, &[0; SBLOCK_SIZE], WriteFlags::META).await?;
        }
    }
    Ok(())
}
