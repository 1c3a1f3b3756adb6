//! Mounting: finds the superblock, refuses images that must not be written, reads the summaries.

use ordo_block::{BlockDevice, BlockError, Device, Geometry};
use ordo_cache::{BufRef, CacheConfig};
use ordo_format::Endian;
use ordo_format::ufs1::Inode1;
use ordo_format::ufs2::superblock::{
    CK_SUPERBLOCK, FS_GJOURNAL, FS_SUJ, ForeignFeature, LONG_CHUNK, SBLOCK_SIZE, SEARCH,
    SuperblockError, has_long_chunks,
};
use ordo_format::ufs2::{Csum, ROOT_INO, Superblock, dir};
use ordo_ordering::{Image, OrderedCache, Ordering, RecoverError, Recovery};
use ordo_runtime::Runtime;
use ordo_ufs::{Layout, Ufs, UfsConfig, io_error};
use ordo_vfs::{Errno, FileType, FsError, FsResult};

use crate::allocation::{AllocationSummary, summary_block};
use crate::group::seal;
use crate::rebuild::{self, Recovered};
use crate::recover::OnDevice;
use crate::state_flags::{self, MountState, StateFlags};
use crate::{FastFs, Ffs, Tuning, torn_superblock};

/// Options of a mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Options for names and files.
    pub ufs: UfsConfig,
    /// Options of the cache.
    pub cache: CacheConfig,
    /// Whether the reserve (`minfree`) may be used, as by root.
    pub use_reserve: bool,
    /// Mount an image that was not unmounted cleanly, even if the ordering needs a check first.
    pub force: bool,
    /// Runs of blocks and the gaps between them.
    pub tuning: Tuning,
}

/// The reason why a device cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] BlockError),
    /// No superblock is at any of its places.
    #[error("no UFS superblock at byte 65536, 8192, 262144 or 0")]
    NoSuperblock,
    /// A superblock has a field that cannot be right.
    #[error("superblock at byte {at}: {error}; a check can use a copy of it (ordo fsck)")]
    Superblock {
        /// The superblock's place, in bytes.
        at: u64,
        /// The fault.
        error: SuperblockError,
    },
    /// The superblock announces a format that is not read.
    #[error("{0}; it is not read here")]
    Foreign(ForeignFeature),
    /// The image was not unmounted cleanly.
    #[error("not unmounted cleanly; check it first (ordo fsck), or mount it read-only")]
    Unclean,
    /// The image has a feature of another system, which a write by this one would break.
    #[error("{0}; it can be mounted read-only")]
    Unsupported(&'static str),
    /// The device accepts no writes.
    #[error("the device is read-only; mount it read-only")]
    ReadOnlyDevice,
    /// The file system is larger than its device.
    #[error("the file system has {want} bytes, but the device has only {have}; was it truncated?")]
    DeviceTooSmall {
        /// The file system's size, in bytes.
        want: u64,
        /// The device's size, in bytes.
        have: u64,
    },
    /// The ordering cannot recover the image.
    #[error("{0}")]
    Recover(#[from] RecoverError),
    /// The contents of the disk cannot be used.
    #[error("{0}")]
    FileSystem(#[from] FsError),
}

/// A superblock that was found, with its place and byte order.
#[derive(Clone, Debug)]
pub struct LocatedSuperblock {
    /// The superblock.
    pub sb: Superblock,
    /// The byte order of the image.
    pub endian: Endian,
    /// The superblock's place, in bytes.
    pub at: u64,
    /// Whether the last write of the superblock was torn. Fields that change with every write are
    /// then unknown.
    pub torn_superblock: bool,
}

/// Finds the superblock of a device.
///
/// # Errors
/// The device has no superblock or a damaged one, or it failed.
pub async fn find_superblock(device: &Device) -> Result<LocatedSuperblock, MountError> {
    let geometry = device.geometry();
    let sector = u64::from(geometry.sector);
    let mut damaged = None;
    for at in SEARCH {
        let len = (SBLOCK_SIZE as u64).min(geometry.bytes.saturating_sub(at)) / sector * sector;
        if len < Superblock::SIZE as u64 {
            continue;
        }
        let bytes = device.read(at, len as usize).await?;
        match Superblock::read(&bytes, at) {
            Ok((sb, endian)) => {
                return Ok(LocatedSuperblock { sb, endian, at, torn_superblock: false });
            }
            Err(SuperblockError::Magic { .. }) => {}
            Err(error) => {
                let is_hash = matches!(error, SuperblockError::CheckHash { .. });
                if is_hash && let Some(found) = torn_superblock::read(device, &bytes, at).await? {
                    return Ok(found);
                }
                let feature = ForeignFeature::announced(&bytes);
                damaged.get_or_insert(match feature {
                    Some(old @ ForeignFeature::OldInodes) => MountError::Foreign(old),
                    _ => MountError::Superblock { at, error },
                });
            }
        }
    }
    Err(damaged.unwrap_or(MountError::NoSuperblock))
}

/// The feature in the superblock that forbids writing the image; `None` if it may be written.
fn forbids_writing(sb: &Superblock) -> Option<&'static str> {
    if let Some(feature) = sb.foreign_feature() {
        Some(feature.words())
    } else if sb.flags & FS_SUJ != 0 {
        Some("journaled soft updates are on (FreeBSD's tunefs -j disable turns them off)")
    } else if sb.flags & FS_GJOURNAL != 0 {
        Some("it uses FreeBSD's gjournal")
    } else if sb.snapinum.iter().any(|ino| *ino != 0) {
        Some("it has snapshots, and writing here would damage them")
    } else {
        None
    }
}

/// Mounts a file system under an ordering.
///
/// # Errors
/// [`MountError`]. Nothing has been written then.
pub async fn mount(
    runtime: &Runtime,
    device: impl BlockDevice,
    ordering: impl Into<Ordering>,
    options: &MountOptions,
) -> Result<FastFs, MountError> {
    mount_on(runtime, device.erase(), ordering.into(), options).await
}

async fn mount_on(
    runtime: &Runtime,
    device: Device,
    ordering: Ordering,
    options: &MountOptions,
) -> Result<FastFs, MountError> {
    let LocatedSuperblock { sb, endian, at: sb_at, torn_superblock } =
        find_superblock(&device).await?;
    let geometry = device.geometry();
    let want = sb.byte_of(sb.size.max(0).cast_unsigned());
    if want > geometry.bytes {
        return Err(MountError::DeviceTooSmall { want, have: geometry.bytes });
    }
    let read_only = options.ufs.read_only;
    let clean = state_flags::is_clean(&sb);
    let can_go_on = match ordering.bitmaps_trusted() {
        true => state_flags::has_right_bitmaps(&sb),
        false => !ordering.needs_check(),
    };
    let dir_chunk = directory_chunk(&device, &sb, endian).await?;
    if !read_only {
        check_writable(&sb, &geometry, clean || can_go_on || options.force)?;
        if dir_chunk != dir::CHUNK {
            return Err(MountError::Unsupported(ForeignFeature::LongChunks.words()));
        }
    }
    let rebuild = !clean && ordering.bitmaps_trusted() && can_go_on && !read_only;
    let rebuilt = match rebuild {
        true => Some(rebuild::groups(runtime, &device, &sb, endian).await?),
        false => None,
    };
    let (mut sb, mut recovery) = (sb, Recovery::None);
    if !read_only {
        let (seconds, _) = runtime.wall_time();
        let image = OnDevice::new(&sb, endian, seconds);
        recovery = ordering.recover(&device, &image).await?;
        sb.mtime = image.next_stamp();
    }
    let cache = sealing_cache(runtime, device, ordering, options, (&sb, sb_at, endian));
    let (blocks, groups) = read_summary(&cache, &sb, endian).await?;
    let (groups, recovered) = rebuilt.map_or((groups, None), |(groups, recovered)| {
        (groups, Some(Recovered { torn_superblock, ..recovered }))
    });
    let ffs = Ffs {
        allocation: AllocationSummary::new(&sb, groups).into(),
        summary: if cache.ordering().keeps_summary() && !read_only { blocks } else { Vec::new() },
        state_flags: StateFlags::new(
            &sb,
            cache.ordering().bitmaps_trusted(),
            recovery != Recovery::None,
        ),
        recovered,
        recovery,
        torn_groups: !clean && read_only,
        use_reserve: options.use_reserve,
        tuning: options.tuning,
        cache,
        dir_chunk,
        endian,
        sb_at,
        sb,
    };
    if !read_only {
        ffs.write_superblock(clean).await?;
        ffs.cache.ordering().start(&ffs.cache);
    }
    let fs = Ufs::new(ffs, options.ufs.clone());
    check_root(fs.layout()).await?;
    Ok(fs)
}

/// The bytes of a directory's chunk, by the first block of the root. Only UFS1 has more than one
/// size.
async fn directory_chunk(
    device: &Device,
    sb: &Superblock,
    endian: Endian,
) -> Result<usize, MountError> {
    if !sb.is_ufs1() {
        return Ok(dir::CHUNK);
    }
    let (addr, at) = sb.inode_block(ROOT_INO);
    let inodes = device.read(sb.byte_of(addr), sb.block_size()).await?;
    let root = Inode1::decode(&inodes[at..], endian);
    let len = root.size.min(sb.block_size() as u64) as usize;
    let frags = sb.frags_for(len as u64);
    let first = u64::try_from(root.db[0]).unwrap_or(0);
    if first == 0 || frags == 0 || !sb.has_frags(first, frags) {
        return Ok(dir::CHUNK);
    }
    let bytes = device.read(sb.byte_of(first), sb.frag_size() * frags as usize).await?;
    let is_long =
        root.size.is_multiple_of(LONG_CHUNK as u64) && has_long_chunks(&bytes[..len], endian);
    Ok(if is_long { LONG_CHUNK } else { dir::CHUNK })
}

/// Checks that an image, which is `usable` without a check or not, can be mounted for writing.
fn check_writable(sb: &Superblock, geometry: &Geometry, usable: bool) -> Result<(), MountError> {
    if geometry.read_only {
        return Err(MountError::ReadOnlyDevice);
    }
    if let Some(reason) = forbids_writing(sb) {
        return Err(MountError::Unsupported(reason));
    }
    if !usable {
        return Err(MountError::Unclean);
    }
    Ok(())
}

impl Ffs {
    /// Writes the superblock of an image, `clean` or not, that is about to be used.
    ///
    /// A crash may tear the write. A check-hash shows that, but without one the clean flag may be
    /// the new one beside the old flags, which lie in another sector. So then the flags are written
    /// first, while the image is still clean.
    async fn write_superblock(&self, clean: bool) -> FsResult<()> {
        let in_two_steps = clean && !self.sb.keeps_hash(CK_SUPERBLOCK);
        for state in [MountState::Announced, MountState::InUse] {
            if state == MountState::InUse || in_two_steps {
                self.store_allocation(state).await?;
                let buf = self.superblock_block().await?;
                self.cache.write_now(std::slice::from_ref(&buf)).await.map_err(io_error)?;
            }
        }
        Ok(())
    }
}

/// A cache that sets the check-hashes of the superblock and of groups before they are written.
fn sealing_cache(
    runtime: &Runtime,
    device: Device,
    ordering: Ordering,
    options: &MountOptions,
    (sb, sb_at, endian): (&Superblock, u64, Endian),
) -> OrderedCache {
    let cluster = options.tuning.cluster(sb, options.cache.cluster);
    let config = CacheConfig { cluster, ..options.cache.clone() };
    let cache = OrderedCache::new(runtime, device, ordering, config);
    let sealed = sb.clone();
    cache.set_seal(Box::new(move |block, image, rolled_back| {
        if block.key().file == 0
            && let Some(byte) = block.address()
        {
            seal(&sealed, sb_at, endian, byte, image, rolled_back);
        }
    }));
    cache
}

/// Checks the root directory, without which the file system cannot be used.
async fn check_root(ffs: &Ffs) -> FsResult<()> {
    let root = match ffs.load_inode(ROOT_INO).await {
        Err(error) if error.errno == Errno::NotFound => None,
        found => Some(found?),
    };
    let kind = root.and_then(|(root, _)| FileType::from_mode(root.mode));
    if kind == Some(FileType::Directory) {
        return Ok(());
    }
    Err(FsError::corrupt(format_args!(
        "the root, {}, is not a directory in use; run a check (fsck)",
        ffs.inode_place(ROOT_INO)
    )))
}

async fn read_summary(
    cache: &OrderedCache,
    sb: &Superblock,
    endian: Endian,
) -> Result<(Vec<BufRef>, Vec<Csum>), MountError> {
    let per_block = sb.block_size() / Csum::SIZE;
    let count = sb.ncg as usize;
    let (mut blocks, mut groups) = (Vec::new(), Vec::new());
    while groups.len() < count {
        let buf = summary_block(cache, sb, groups.len() / per_block).await?;
        let bytes = buf.read();
        let n = (count - groups.len()).min(per_block).min(bytes.len() / Csum::SIZE);
        if n == 0 {
            let what = "the summary area is too short for the number of groups";
            return Err(FsError::corrupt(what).into());
        }
        groups.extend((0..n).map(|i| Csum::decode(&bytes[i * Csum::SIZE..], endian)));
        drop(bytes);
        blocks.push(buf);
    }
    Ok((blocks, groups))
}
