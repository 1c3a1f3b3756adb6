//! Making an empty pair.
//!
//! The metadata log is made first, then the data device's identity, and at last the metadata
//! device's. If mkfs is interrupted, there is no pair.

use ordo_block::{BlockDevice, Device};
use ordo_format::dualfs::{
    CopyArea, DataShape, IDENTITY_MAGIC, Identity, ROLE_DATA, ROLE_METADATA, VERSION,
};
use ordo_format::lfs::{LABEL_BYTES, Superblock};
use ordo_lfs::mkfs::{
    MkfsOptions as LogOptions, SEGMENTS_LEAST, mkfs_dual, segment_least, segment_size,
};
use ordo_runtime::Runtime;

use crate::DualError;
use crate::pair::{split, write_identity};

/// The default least number of groups of a data device, if it has enough blocks.
const GROUPS_LEAST: u64 = 8;
/// The least number of blocks in a group by default.
const GROUP_BLOCKS_LEAST: u64 = 64;

/// The size of the metadata device on a disk that has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataSize {
    /// A share of the disk, in percent. A log that would be too small gets more.
    Percent(u32),
    /// A number of bytes.
    Bytes(u64),
}

/// Options of mkfs.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The block size in bytes: a power of two from 512 to 8192.
    pub block_size: u32,
    /// The segment size in bytes. The default depends on the metadata device's size.
    pub segment_size: Option<u32>,
    /// The number of blocks in a group, a multiple of 8. The default is the number of bits in one
    /// block of bitmap, or less on a small device.
    pub group_blocks: Option<u32>,
    /// The size of the metadata device where it shares a disk with the data device.
    pub metadata: MetadataSize,
    /// The space on the data device for a copy of the metadata, from which files can be read if the
    /// metadata device is lost. A share is a share of the metadata device. `None`: there is no
    /// copy.
    pub copy: Option<MetadataSize>,
    /// The number of bytes to use of the only disk, or of the data device's disk. The default is
    /// all.
    pub size: Option<u64>,
    /// The percentage of the metadata log that is reserved.
    pub min_free: u32,
    /// The seed of the pair's identifier, which depends on the time too.
    pub seed: u64,
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            block_size: 4096,
            segment_size: None,
            group_blocks: None,
            metadata: MetadataSize::Percent(10),
            copy: None,
            size: None,
            min_free: 10,
            seed: 0,
        }
    }
}

/// The file system that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The metadata device's identity.
    pub identity: Identity,
    /// The superblock of the metadata log.
    pub superblock: Superblock,
}

/// Makes an empty file system on one disk, or on two: the first gets the metadata.
///
/// # Errors
/// The sizes do not fit, or a device failed.
pub async fn mkfs(
    rt: &Runtime,
    disks: &[Device],
    options: &MkfsOptions,
) -> Result<Made, DualError> {
    let bsize = u64::from(options.block_size);
    if !options.block_size.is_power_of_two() || !(512..=8192).contains(&options.block_size) {
        return Err(DualError::Sizes(format!("blocks of {bsize} bytes; 512 to 8192 are possible")));
    }
    let have = disks.last().expect("a disk").geometry().bytes;
    let size = options.size.unwrap_or(have);
    if size > have {
        return Err(DualError::TooSmall { device: "last", want: size, have });
    }
    let unit = bsize.max(4096).max(disks[0].geometry().sector.into());
    let (metadata, data, metadata_bytes, data_at) = match disks {
        [first, data] => (first.clone(), data.clone(), first.geometry().bytes / unit * unit, 0),
        _ => {
            let bytes = metadata_bytes(options, size).next_multiple_of(unit);
            if size < bytes + 2 * unit {
                return Err(DualError::Sizes(format!(
                    "{size} bytes have no space for {bytes} bytes of metadata and for data"
                )));
            }
            let parts = split(&disks[0], bytes, bytes);
            (parts.0, parts.1, bytes, bytes)
        }
    };
    let blocks = (size - data_at) / bsize;
    let copy_blocks = copy_blocks(options, metadata_bytes, blocks)?;
    let shape = shape(options, blocks - copy_blocks)?;
    let mut identity = identity(rt, options.seed, shape, (metadata_bytes, data_at));
    if copy_blocks > 0 {
        (identity.copy_at, identity.copy_blocks) = (shape.blocks, copy_blocks);
    }
    let log = LogOptions {
        block_size: options.block_size,
        frag_size: options.block_size,
        segment_size: options.segment_size.unwrap_or_else(|| segment_size(bsize, metadata_bytes)),
        min_free: options.min_free,
        ident: u32::from_le_bytes(identity.uuid[..4].try_into().expect("four bytes")),
        sealed: true,
    };
    let now = rt.wall_time().0.max(0).cast_unsigned();
    let part = ordo_block::partition::Partition::new(metadata.clone(), 0, metadata_bytes);
    let superblock = mkfs_dual(part, &log, &shape.empty_tables(), now).await?;
    let mut data_identity = identity.clone();
    (data_identity.role, data_identity.data_at) = (ROLE_DATA, 0);
    write_identity(&data, &data_identity).await?;
    write_identity(&metadata, &identity).await?;
    Ok(Made { identity, superblock })
}

/// The size of a metadata device for `bytes` bytes: for a disk with both devices, or for a data
/// device with a disk of its own.
pub fn metadata_size(metadata: Option<MetadataSize>, bytes: u64, block_size: Option<u32>) -> u64 {
    let mut options = MkfsOptions::default();
    options.metadata = metadata.unwrap_or(options.metadata);
    options.block_size = block_size.unwrap_or(options.block_size);
    metadata_bytes(&options, bytes).next_multiple_of(u64::from(options.block_size.max(4096)))
}

/// The size of the metadata device on a disk of `bytes` bytes with both devices.
fn metadata_bytes(options: &MkfsOptions, bytes: u64) -> u64 {
    let bsize = u64::from(options.block_size);
    let segment = options.segment_size.map_or(segment_least(bsize), u64::from);
    match options.metadata {
        MetadataSize::Bytes(bytes) => bytes,
        MetadataSize::Percent(percent) => {
            let share = u128::from(bytes) * u128::from(percent.min(100)) / 100;
            (share as u64).max(LABEL_BYTES + SEGMENTS_LEAST * segment)
        }
    }
}

/// The number of blocks for the copy of the metadata, on a data device of `blocks` blocks.
fn copy_blocks(options: &MkfsOptions, metadata_bytes: u64, blocks: u64) -> Result<u64, DualError> {
    let bsize = u64::from(options.block_size);
    let bytes = match options.copy {
        None => return Ok(0),
        Some(MetadataSize::Bytes(bytes)) => bytes,
        Some(MetadataSize::Percent(percent)) => metadata_bytes / 100 * u64::from(percent),
    };
    let count = bytes.div_ceil(bsize);
    let wrong =
        |what| Err(DualError::Sizes(format!("{bytes} bytes for a copy of the metadata: {what}")));
    match () {
        () if CopyArea::slots_in(count, options.block_size) == 0 => wrong("too few for any block"),
        () if count >= blocks => wrong("the data device has fewer blocks"),
        () => Ok(count),
    }
}

fn shape(options: &MkfsOptions, blocks: u64) -> Result<DataShape, DualError> {
    let bsize = options.block_size;
    let most = u64::from(bsize) * 8;
    let usual = (blocks / GROUPS_LEAST).next_multiple_of(8).clamp(GROUP_BLOCKS_LEAST, most);
    let group_blocks = options.group_blocks.unwrap_or(usual as u32);
    if group_blocks == 0 || !group_blocks.is_multiple_of(8) {
        let wrong = format!("groups of {group_blocks} blocks; the number must be a multiple of 8");
        return Err(DualError::Sizes(wrong));
    }
    match blocks {
        0 | 1 => Err(DualError::Sizes(format!("the data device has {blocks} blocks of {bsize}"))),
        _ => Ok(DataShape { bsize, group_blocks, blocks }),
    }
}

fn identity(
    rt: &Runtime,
    seed: u64,
    shape: DataShape,
    (metadata_bytes, data_at): (u64, u64),
) -> Identity {
    let mut identity = Identity::zeroed();
    (identity.magic, identity.version, identity.role) = (IDENTITY_MAGIC, VERSION, ROLE_METADATA);
    // Commands begin with the same seed each time, so the time is added.
    let (seconds, nanos) = rt.wall_time();
    let time = seconds.cast_unsigned() << 30 ^ u64::from(nanos);
    let random = [rt.random_u64() ^ seed, rt.random_u64() ^ time];
    identity.uuid[..8].copy_from_slice(&random[0].to_le_bytes());
    identity.uuid[8..].copy_from_slice(&random[1].to_le_bytes());
    identity.generation = 1;
    (identity.bsize, identity.group_blocks) = (shape.bsize, shape.group_blocks);
    (identity.groups, identity.blocks) = (shape.groups(), shape.blocks);
    (identity.metadata_bytes, identity.data_at) = (metadata_bytes, data_at);
    identity
}
