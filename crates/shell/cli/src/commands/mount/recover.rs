//! Mounting the file system, with the recovery that its ordering needs after a crash.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, bail};
use ordo_block::file::{FileAccess, FileDisk, OpenError};
use ordo_block::overlay::Overlay;
use ordo_block::read_around::ReadAround;
use ordo_block::{BlockDevice, Device};
use ordo_runtime::{Duration, Runtime};
use ordo_systems::journaled::{self, Journaled};
use ordo_systems::rescue::{self, Unreadable};
use ordo_systems::{
    Attempt, CacheConfig, Choice, Facts, GroupCommit, LogOptions, MountMessage, MountOptions,
    SoftOptions, SystemError, probe,
};

use super::Mount;
use super::options::{LogPlace, MountRequest, WriteUnit};
use super::pressure;
use super::serve::serve;
use super::tell::MessageSink;
use crate::image::replay_log;
use crate::overwrite::refuse_doubt;
use crate::pair::{Companion, NamedImage, when_free};
use crate::{packed, partition};

/// The image, or the partition of it that is mounted.
type Disk = Rc<ReadAround<partition::Disk>>;

/// The largest request for contents, in bytes.
const CLUSTER: usize = 1 << 20;

/// The step in which times of files advance: as coarse as the clock of the kernel's own file
/// systems.
const TIME_GRAIN: Duration = Duration::from_millis(4);

/// A mount in preparation.
pub struct Plan<'a> {
    pub runtime: &'a Runtime,
    pub args: &'a Mount,
    pub wanted: &'a MountRequest,
    pub tell: &'a MessageSink,
    /// The file system's devices, in the order of its format, and then the log's, if it has one of
    /// its own.
    disks: Vec<Disk>,
    /// The image among them.
    image: usize,
    facts: Facts,
    /// The ordering; `None` for a read-only mount.
    ordering: Option<&'static str>,
}

pub async fn mount_and_serve(
    runtime: &Runtime,
    args: &Mount,
    wanted: &MountRequest,
    tell: &MessageSink,
) -> Result<()> {
    let name = || args.image.display().to_string();
    let (disk, device_read_only) = when_free(runtime, || open(runtime, args, wanted)).await?;
    let part =
        partition::choose(Rc::new(disk), &args.image, wanted.partition.as_deref(), wanted.rescue)
            .await?;
    let disk = Rc::new(ReadAround::new(part));
    let device = disk.clone().erase();
    let named = NamedImage {
        metadata: wanted.meta_device.as_deref(),
        ..NamedImage::new(&args.image).salvaged(wanted.salvage)
    };
    if wanted.rescue {
        return serve_damaged(runtime, args, wanted, tell, disk).await.with_context(name);
    }
    let format = named.format(&device).await.with_context(name)?;
    wanted.check(format).with_context(name)?;
    let facts = format.facts(&device).await.with_context(name)?;
    let companion = named.companion(runtime, &device).await?;
    let writes = !wanted.read_only && !device_read_only;
    if writes {
        refuse_doubt(&device, &args.image).await?;
    }
    let access = if writes { FileAccess::ReadWrite } else { FileAccess::ReadOnly };
    let (mut disks, mut image) = (vec![disk], 0);
    if let Some(Companion { path, is_first }) = companion {
        let other = whole(runtime, &path, access).await?;
        image = usize::from(is_first);
        disks.insert(1 - image, other);
    }
    if device_read_only && !wanted.read_only {
        let why =
            if packed::is_packed(&args.image)? { "is compressed" } else { "cannot be written" };
        tell.notice(&format!("the image {why}: mounted read-only"));
    }
    let mut plan = Plan { runtime, args, wanted, tell, disks, image, facts, ordering: None };
    if !wanted.read_only && !device_read_only {
        if let Some(LogPlace::Device(path)) = &wanted.log {
            plan.disks.push(whole(runtime, path, FileAccess::ReadWrite).await?);
        }
        let (choice, disks) = (plan.choice(), plan.devices());
        let told = tell.clone();
        let told: ordo_systems::MessageSink = Rc::new(move |what: MountMessage<'_>| match what {
            MountMessage::Notice(text) => told.notice(text),
            MountMessage::Error(text) => told.error(text),
        });
        let attempt = format.attach(runtime, &disks, &choice, &plan.options(false), &told).await;
        match attempt.map_err(|error| plan.advised(error)).with_context(name)? {
            Attempt::Mounted(mounted, ordering) => {
                plan.ordering = Some(ordering);
                return serve(&plan, mounted).await.with_context(name);
            }
            Attempt::ReadOnly(reason) if wanted.read_write => {
                bail!("{}: {reason}; it can be mounted read-only", name())
            }
            Attempt::ReadOnly(reason) => tell.notice(&format!("mounted read-only: {reason}")),
        }
    }
    let mounted = format.read(runtime, &plan.devices(), &plan.options(true)).await;
    serve(&plan, mounted.with_context(name)?).await.with_context(name)
}

/// The most notes that are listed after a mount of a damaged file system.
const LISTED_MAX: usize = 1000;

/// Mounts a damaged UFS to be read past its damage.
async fn serve_damaged(
    runtime: &Runtime,
    args: &Mount,
    wanted: &MountRequest,
    tell: &MessageSink,
    disk: Disk,
) -> Result<()> {
    if !wanted.read_only {
        bail!("-o rescue only reads: -o ro,rescue");
    }
    let device = Overlay::new(disk.clone()).erase();
    let format = probe(&device).await?;
    if let Some(format) = format {
        wanted.check(format)?;
        if let Some(said) =
            replay_log(runtime, format, std::slice::from_ref(&device), &args.image, true).await
        {
            tell.notice(&said);
        }
    }
    let fs = rescue::open(&device, Unreadable::default()).await?;
    let facts = match format {
        Some(format) => format.facts(&device).await.unwrap_or_default(),
        None => Facts::default(),
    };
    let (disks, image, ordering) = (vec![disk], 0, None);
    let plan = Plan { runtime, args, wanted, tell, disks, image, facts, ordering };
    let served = serve(&plan, rescue::mounted(&fs)).await;
    let (all, more) = fs.left_out();
    for left in all.iter().take(LISTED_MAX) {
        tell.notice(&format!("left out: {left}"));
    }
    match more + all.len().saturating_sub(LISTED_MAX) as u64 {
        0 => {}
        more => tell.notice(&format!("left out: {more} more")),
    }
    served
}

/// Opens a whole image or device beside the one that is mounted, when it is free.
async fn whole(runtime: &Runtime, path: &Path, access: FileAccess) -> Result<Disk> {
    let disk = when_free(runtime, || Ok(FileDisk::open(runtime, path, access)?)).await?;
    Ok(Rc::new(ReadAround::new(partition::whole(Rc::new(disk)))))
}

/// Opens the image for writing. If that fails and `rw` was not given, opens it for reading.
fn open(runtime: &Runtime, args: &Mount, wanted: &MountRequest) -> Result<(FileDisk, bool)> {
    if wanted.read_only {
        return Ok((packed::open(runtime, &args.image, FileAccess::ReadOnly)?, false));
    }
    if packed::is_packed(&args.image)? {
        let access = if wanted.read_write { FileAccess::ReadWrite } else { FileAccess::ReadOnly };
        return Ok((packed::open(runtime, &args.image, access)?, true));
    }
    match FileDisk::open(runtime, &args.image, FileAccess::ReadWrite) {
        Ok(disk) => Ok((disk, false)),
        Err(OpenError::Io { source, .. })
            if !wanted.read_write
                && matches!(
                    source.kind(),
                    std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
                ) =>
        {
            Ok((FileDisk::open(runtime, &args.image, FileAccess::ReadOnly)?, true))
        }
        Err(error) => Err(error.into()),
    }
}

impl Plan<'_> {
    /// The ordering, in words.
    pub fn ordering(&self) -> String {
        match self.ordering {
            None => "read-only".into(),
            Some(ordering) => format!("ordering {ordering}"),
        }
    }

    /// Whether the mount is read-only.
    pub fn is_read_only(&self) -> bool {
        self.ordering.is_none()
    }

    /// Whether ACLs are kept.
    pub fn acl(&self) -> bool {
        self.wanted.acl.unwrap_or(self.facts.acl && !self.wanted.hides_permissions())
    }

    /// Whether the image is big-endian.
    pub fn big_endian(&self) -> bool {
        self.facts.big_endian
    }

    /// Gives the device to the kernel for its mount table, if the whole device is mounted. Returns
    /// whether it did.
    pub fn give_device(&self) -> bool {
        let file_type = std::fs::metadata(&self.args.image).map(|m| m.file_type());
        let part = self.disks[self.image].inner();
        let is_whole = part.geometry().bytes == part.inner().geometry().bytes;
        let whole = is_whole && file_type.is_ok_and(|t| t.is_block_device());
        if whole {
            part.inner().let_mount();
        }
        whole
    }

    /// Unlocks the image, and the devices beside it.
    pub fn unlock(&self) {
        for disk in &self.disks {
            disk.inner().inner().unlock();
        }
    }

    fn devices(&self) -> Vec<Device> {
        self.disks.iter().map(|disk| disk.clone().erase()).collect()
    }

    fn choice(&self) -> Choice {
        let MountRequest { ordering, log, log_sync, group_commit, .. } = self.wanted;
        let usual = Journaled::usual_group();
        Choice {
            ordering: *ordering,
            log: log.as_ref().map(|place| match place {
                LogPlace::File => journaled::LogPlace::File,
                LogPlace::Behind => journaled::LogPlace::Same,
                LogPlace::Device(_) => journaled::LogPlace::Other,
            }),
            log_sync: *log_sync,
            group: group_commit.then(|| GroupCommit {
                delay: self.wanted.group_delay.unwrap_or(usual.delay),
                batch: self.wanted.group_batch.unwrap_or(usual.batch),
            }),
        }
    }

    fn options(&self, read_only: bool) -> MountOptions {
        let memory = self.wanted.cache.unwrap_or_else(pressure::default_cache);
        let memory = memory.max(4 << 20) as usize;
        let usual = CacheConfig::with_capacity(memory);
        let dirty_max = self.wanted.dirty.map_or(usual.dirty_max, |d| d as usize);
        let memory_max = self.wanted.dependencies.map(|bytes| bytes as usize);
        // A journal that follows contents knows whole blocks.
        let whole = self.wanted.journal.is_some_and(|mode| mode.follows_contents());
        let write_unit = WriteUnit::of(self.wanted.write_unit).filter(|_| !whole);
        MountOptions {
            cache: CacheConfig { dirty_max, cluster: CLUSTER, write_unit, ..usual },
            read_only,
            access_times: self.wanted.access_times,
            names_memory: Some(memory / 2),
            // The kernel has a cache of file contents itself.
            drop_behind: true,
            time_grain: TIME_GRAIN,
            use_reserve: self.wanted.use_reserve,
            cleaning: self.wanted.cleaning,
            dual: self.wanted.dual,
            tuning: self.wanted.tuning,
            salvage: self.wanted.salvage,
            force: self.wanted.force,
            soft: SoftOptions { memory_max, ..SoftOptions::default() },
            log: LogOptions { mode: self.wanted.journal, ..LogOptions::default() },
            ..MountOptions::default()
        }
    }

    /// Adds the next step to an error, if it concerns this image.
    fn advised(&self, error: SystemError) -> anyhow::Error {
        match error {
            SystemError::NeedsCheck => anyhow!(
                "{error}: ordo fsck -y {}, or mount it with -o ro",
                self.args.image.display()
            ),
            error => error.into(),
        }
    }
}
