//! Mounting a log for writing.

use std::rc::Rc;

use ordo_block::{BlockDevice, Device};
use ordo_cache::{CacheConfig, Writer};
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_format::lfs::{LABEL_BYTES, ROOT_INO, Superblock, Width};
use ordo_ordering::OrderedCache;
use ordo_runtime::{Duration, Runtime};
use ordo_ufs::{Layout, Ufs, UfsConfig};
use ordo_vfs::{Errno, FileSystem, FsError, FsResult, Ino, SetAttr, SetTime};

use super::LogFs;
use super::cleaner::Cleaner;
use super::contents::DataPart;
use super::layout::LogLayout;
use super::order::{LogOrder, SpaceProvider};
use super::recover::{RecoveredLog, TrailingBlock, recover};
use super::rules::{Cleaning, LfsRules};
use super::store::Store;
use super::writer::{LogForm, SegmentWriter, write_superblock};
use crate::data::{DataSide, DualRules, Locality, kind_of};
use crate::disk::LogDisk;
use crate::error::LogDamage;
use crate::{LfsError, superblock};

/// The number of serial numbers that are skipped after a crash. Partial segments that did not count
/// may lie behind the end of the log. They must not count later as its continuation.
const SERIAL_GAP: u64 = 1 << 20;

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Options of names and files.
    pub ufs: UfsConfig,
    /// Options of the cache.
    pub cache: CacheConfig,
    /// The rules by which the log survives crashes. All of them are on, except in experiments.
    pub rules: LfsRules,
    /// The policy of the cleaner, and the times at which it works.
    pub cleaning: Cleaning,
    /// The time between two checkpoints while something is written.
    pub checkpoint_every: Duration,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            ufs: UfsConfig::default(),
            cache: CacheConfig::default(),
            rules: LfsRules::all(),
            cleaning: Cleaning::default(),
            checkpoint_every: Duration::from_secs(30),
        }
    }
}

/// Mounts the LFS64 on a device for reading and writing: from the newest checkpoint, with the log
/// behind it.
///
/// # Errors
/// There is no LFS, or one that can only be read; its contents are damaged; the device failed.
pub async fn mount(
    runtime: &Runtime,
    device: impl BlockDevice,
    options: &MountOptions,
) -> Result<LogFs, LfsError> {
    mount_on(runtime, device.erase(), None, options).await
}

/// As [`mount`], for a metadata log and the data device that belongs to it.
///
/// # Errors
/// As for [`mount`]; or the data device and the log do not belong together.
pub async fn mount_with(
    runtime: &Runtime,
    device: impl BlockDevice,
    data: DataSide,
    options: &MountOptions,
) -> Result<LogFs, LfsError> {
    mount_on(runtime, device.erase(), Some(data), options).await
}

fn failed(error: FsError) -> LfsError {
    LfsError::Recovery(error)
}

async fn mount_on(
    runtime: &Runtime,
    device: Device,
    data: Option<DataSide>,
    options: &MountOptions,
) -> Result<LogFs, LfsError> {
    let found = superblock::find_kind(&device, kind_of(data.as_ref())).await?;
    refuse_unwritable(&device, &found.sb)?;
    let rules = data.as_ref().map_or(DualRules::all(), |data| data.rules);
    let locality = locality_of(data.as_ref(), options);
    let copy = data.as_ref().and_then(|data| {
        let device = data.device.device.clone();
        data.copy.map(|side| (device, side, rules))
    });
    let (data, blocks) = data.map(|data| (data.device, data.allocator)).unzip();
    if let Some(data) = &data {
        data.fits(&found.sb)?;
    }
    let is_only = found.is_only();
    let disk = LogDisk::new(device.clone(), found.sb, data.clone());
    let was_clean = disk.sb.pflags & PF_CLEAN != 0;
    let log = recover(&disk, blocks, copy, is_only).await?;
    let RecoveredLog { mut state, trailing, rolled, sealed } = log;
    // Blocks that the last complete copy has must not be used before a newer copy is complete.
    let lacks_copy = state.copy.as_ref().is_some_and(|copy| !copy.is_of(disk.sb.serial));
    if !was_clean {
        state.sb.serial += SERIAL_GAP + runtime.random_below(SERIAL_GAP);
    }
    state.sb.pflags = 0;
    let orphans = state.ifile.orphans(&disk.sb);
    let blocks_max = (u64::from(disk.sb.ssize / disk.sb.bsize) / 4).clamp(16, 64);
    let keeps_size = options.rules.contains(LfsRules::DATASYNC_KEEPS_SIZE);
    let order = LogOrder::new(blocks_max, keeps_size);
    let devices =
        [device.clone()].into_iter().chain(data.iter().map(|data| data.device.clone())).collect();
    let cache = OrderedCache::over(runtime, devices, order.clone(), options.cache.clone());
    let data = data.map(|device| DataPart { device, base: cache.first_address(1) });
    let store = Rc::new(Store::new((cache, order.clone()), device, state, data, locality));
    let next = usize::from(found.at == LABEL_BYTES && store.shape.second_superblock().is_some());
    let contents_first = rules.contains(DualRules::CONTENTS);
    let form = LogForm { rules: options.rules, sealed, contents_first };
    let writer = Rc::new(SegmentWriter::new(store.clone(), form, next, options.checkpoint_every));
    let as_writer: Rc<dyn Writer> = writer.clone();
    store.cache.set_writer(Rc::downgrade(&as_writer));
    let cleaner = Cleaner::new(store.clone(), writer.clone(), options.cleaning);
    let space_provider: Rc<dyn SpaceProvider> = cleaner.clone();
    order.set_space_provider(Rc::downgrade(&space_provider));
    let layout = LogLayout { store: store.clone(), writer: writer.clone(), cleaner };
    let (root, _) = layout.load_inode(ROOT_INO).await.map_err(failed)?;
    if root.mode & 0o170_000 != 0o040_000 {
        return Err(LfsError::InodeMode { ino: ROOT_INO, mode: root.mode });
    }
    if was_clean && !rolled {
        mark_in_use(&store).await?;
    }
    let fs = Ufs::new(layout, options.ufs.clone());
    for block in trailing {
        reattach(&fs, &disk, &block).await.map_err(failed)?;
    }
    free_orphans(&fs, orphans).await?;
    if !was_clean || lacks_copy {
        fs.layout().make_space().await.map_err(failed)?;
        writer.force_checkpoint().await?;
    }
    Ok(fs)
}

/// Frees the files that had no name when the checkpoint was made. A file with links that is marked
/// as such is damage, and stays: a check removes the mark.
async fn free_orphans(fs: &LogFs, orphans: Vec<u64>) -> Result<(), LfsError> {
    for ino in orphans {
        let (record, _) = fs.layout().load_inode(ino).await.map_err(failed)?;
        if record.links == 0 {
            fs.reclaim_orphan(ino, &record).await.map_err(failed)?;
        }
    }
    Ok(())
}

/// Marks both superblocks as in use, before the first other write.
async fn mark_in_use(store: &Store) -> Result<(), LfsError> {
    for which in 0..1 + usize::from(store.shape.second_superblock().is_some()) {
        let sb = store.state.borrow().sb.clone();
        write_superblock(store, &sb, which).await?;
    }
    Ok(())
}

/// The mechanisms that keep metadata together, for these options. A read-only mount rewrites
/// nothing.
fn locality_of(data: Option<&DataSide>, options: &MountOptions) -> Locality {
    let mut locality = data.map_or(Locality::NONE, |data| data.locality);
    if options.ufs.read_only {
        locality.relocate = 0;
    }
    locality
}

/// Refuses images that cannot be written.
fn refuse_unwritable(device: &Device, sb: &Superblock) -> Result<(), LfsError> {
    let why = match () {
        () if sb.width != Width::Lfs64 => "this is an LFS32, which Ordo only reads",
        () if device.geometry().read_only => "the device takes no writes",
        // A partial segment has a summary and a block at least.
        () if device.geometry().max_request < 2 * sb.bsize as usize => {
            "the device takes no request of two blocks"
        }
        () => return Ok(()),
    };
    Err(LfsError::NotWritable(why))
}

/// Writes a block that the log has without its inode into its file again, if the file still has
/// that version and is long enough. The file's modification time stays as it is.
async fn reattach(fs: &LogFs, disk: &LogDisk, block: &TrailingBlock) -> FsResult<()> {
    let ino = Ino(block.ino);
    let attr = match fs.getattr(ino).await {
        Err(error) if error.errno == Errno::Stale => return Ok(()),
        found => found?,
    };
    let start = block.number.saturating_mul(disk.sb.bsize.into());
    let is_same = attr.generation == u64::from(block.version) && start < attr.size;
    let wanted = disk.sb.block_bytes(block.number, attr.size);
    if !is_same || attr.file_type != ordo_vfs::FileType::Regular || u64::from(block.bytes) < wanted
    {
        return Ok(());
    }
    let what = LogDamage::Block(block.ino, block.number.cast_signed());
    let bytes = disk.read(what, block.addr, block.bytes / disk.sb.fsize).await?;
    let len = (attr.size - start).min(bytes.len() as u64) as usize;
    fs.write(ino, start, &bytes[..len]).await?;
    let set = SetAttr { mtime: Some(SetTime::To(attr.mtime)), ..SetAttr::default() };
    fs.setattr(ino, &set).await.map(drop)
}
