//! Mounting the file system, after whatever its ordering needs after a crash.

use std::cell::OnceCell;
use std::os::unix::fs::FileTypeExt;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use ordo_bench::journaled::{self, Journaled, JournaledError};
use ordo_bgfsck::{Background, Ending, Pace};
use ordo_block::file::{Access, FileDisk, OpenError};
use ordo_block::frozen::Frozen;
use ordo_block::nearby::Nearby;
use ordo_block::part::Part;
use ordo_block::{BlockDevice, Device};
use ordo_cache::CacheConfig;
use ordo_check::{Checker, Options as CheckOptions, Repair};
use ordo_ffs::mount::{Found, find_superblock};
use ordo_ffs::{MountError, MountOptions, mount};
use ordo_format::Endian;
use ordo_format::ufs2::superblock::{FS_ACLS, FS_DOSOFTDEP};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftOptions, SoftUpdates, SyncOrder};
use ordo_runtime::Runtime;
use ordo_ufs::UfsConfig;
use ordo_wafs::GroupCommit;

use super::Mount;
use super::options::{LogPlace, Ordering, Wanted};
use super::serve::serve;
use super::tell::Tell;
use crate::image::when_free;
use crate::partition;

/// The image, or the part of it that is mounted.
type Disk = Rc<Nearby<Part<Rc<FileDisk>>>>;

/// Memory for the view that a background check looks at, in bytes.
const VIEW_MAX: usize = 256 << 20;

/// The largest request for contents, in bytes.
const CLUSTER: usize = 1 << 20;

/// A mount that is being made.
pub struct Plan<'a> {
    pub runtime: &'a Runtime,
    pub args: &'a Mount,
    pub wanted: &'a Wanted,
    pub tell: &'a Tell,
    disk: Disk,
    found: Found,
    /// Where the log is, if it has a disk of its own.
    log: OnceCell<Disk>,
    ordering: Ordering,
    pub read_only: bool,
}

/// Why it is tried again.
enum Attempt<T> {
    Mounted(T),
    /// Only to be read, for this reason.
    ReadOnly(String),
}

pub async fn mount_and_serve(
    runtime: &Runtime,
    args: &Mount,
    wanted: &Wanted,
    tell: &Tell,
) -> Result<()> {
    let name = || args.image.display().to_string();
    let (disk, device_read_only) = when_free(runtime, || open(runtime, args, wanted)).await?;
    let part = partition::take(Rc::new(disk), wanted.partition.as_deref()).await;
    let disk = Rc::new(Nearby::new(part.with_context(name)?));
    let device = disk.clone().erase();
    let found = find_superblock(&device).await.with_context(name)?;
    let ordering = match wanted.ordering {
        Some(ordering) => ordering,
        None => usual(&device, &found, wanted).await?,
    };
    let read_only = wanted.read_only || device_read_only;
    if device_read_only && !wanted.read_only {
        tell.notice("it cannot be written: mounted read-only");
    }
    let log = OnceCell::new();
    let mut plan = Plan { runtime, args, wanted, tell, disk, found, log, ordering, read_only };
    if !plan.read_only {
        let reason = match plan.ordering {
            Ordering::None => plan.plain(NoOrder::default).await,
            Ordering::Sync => plan.plain(SyncOrder::default).await,
            Ordering::SoftUpdates => plan.soft_updates().await,
            Ordering::Journal => plan.journal().await,
        };
        match reason.with_context(name)? {
            None => return Ok(()),
            Some(reason) if wanted.read_write => {
                bail!("{}: {reason}; it can be mounted read-only", name())
            }
            Some(reason) => {
                tell.notice(&format!("mounted read-only: {reason}"));
                plan.read_only = true;
            }
        }
    }
    let fs = mount(runtime, plan.disk.clone(), NoOrder, &plan.options()).await;
    serve(&plan, fs.with_context(name)?, async || {}).await.with_context(name)
}

/// Opens the image to be written, or where that cannot be and was not insisted on, to be read.
fn open(runtime: &Runtime, args: &Mount, wanted: &Wanted) -> Result<(FileDisk, bool)> {
    if wanted.read_only {
        return Ok((FileDisk::open(runtime, &args.image, Access::ReadOnly)?, false));
    }
    match FileDisk::open(runtime, &args.image, Access::ReadWrite) {
        Ok(disk) => Ok((disk, false)),
        Err(OpenError::Io { source, .. })
            if !wanted.read_write
                && matches!(
                    source.kind(),
                    std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
                ) =>
        {
            Ok((FileDisk::open(runtime, &args.image, Access::ReadOnly)?, true))
        }
        Err(error) => Err(error.into()),
    }
}

/// The ordering that an image asks for by what it has.
async fn usual(disk: &Device, found: &Found, wanted: &Wanted) -> Result<Ordering> {
    Ok(match () {
        () if wanted.log.is_some() => Ordering::Journal,
        () if journaled::find(std::slice::from_ref(disk)).await?.is_some() => Ordering::Journal,
        () if found.sb.flags & FS_DOSOFTDEP != 0 => Ordering::SoftUpdates,
        () => Ordering::Sync,
    })
}

impl Plan<'_> {
    pub fn ordering(&self) -> String {
        match self.read_only {
            true => "read-only".into(),
            false => format!("ordering {}", self.ordering.name()),
        }
    }

    /// Whether ACLs are kept.
    pub fn acl(&self) -> bool {
        self.wanted.acl.unwrap_or(self.found.sb.flags & FS_ACLS != 0)
    }

    /// Whether the image is big-endian.
    pub fn big_endian(&self) -> bool {
        self.found.endian == Endian::Big
    }

    /// Lets the kernel have the device for its mount table, where all of one is mounted; whether it is so.
    pub fn give_device(&self) -> bool {
        let file_type = std::fs::metadata(&self.args.image).map(|m| m.file_type());
        let whole = self.wanted.partition.is_none() && file_type.is_ok_and(|t| t.is_block_device());
        if whole {
            self.disk.inner().inner().let_mount();
        }
        whole
    }

    /// Lets others have the image, and the log's disk.
    pub fn unlock(&self) {
        for disk in std::iter::once(&self.disk).chain(self.log.get()) {
            disk.inner().inner().unlock();
        }
    }

    fn options(&self) -> MountOptions {
        let ufs = UfsConfig {
            read_only: self.read_only,
            access_times: self.wanted.access_times,
            // The kernel has them in its own cache.
            contents_pass: true,
            ..UfsConfig::default()
        };
        let memory = self.wanted.cache.unwrap_or(256 << 20) as usize;
        let usual = CacheConfig::with_capacity(memory.max(4 << 20));
        let dirty_max = self.wanted.dirty.map_or(usual.dirty_max, |d| d as usize);
        let cache = CacheConfig { dirty_max, cluster: CLUSTER, ..usual };
        MountOptions { ufs, cache, use_reserve: self.wanted.use_reserve, force: self.wanted.force }
    }

    /// Mounts under an ordering that keeps nothing beside the image.
    async fn plain<P: OrderingPolicy + 'static>(
        &self,
        policy: impl Fn() -> P,
    ) -> Result<Option<String>> {
        let attempt = async || {
            let device = self.disk.clone();
            Ok(mount(self.runtime, device, policy(), &self.options()).await?)
        };
        match self.attempt(attempt).await? {
            Attempt::Mounted(fs) => serve(self, fs, async || {}).await.map(|()| None),
            Attempt::ReadOnly(reason) => Ok(Some(reason)),
        }
    }

    /// Mounts under soft updates; what a crash leaked is given back meanwhile.
    async fn soft_updates(&self) -> Result<Option<String>> {
        let attempt = async || {
            let device = Rc::new(Frozen::new(self.disk.clone().erase(), VIEW_MAX));
            let options = self.options();
            let memory_max = self.wanted.dependencies.map(|bytes| bytes as usize);
            let policy = SoftUpdates::new(SoftOptions { memory_max, ..SoftOptions::default() });
            let mounted = mount(self.runtime, device.clone(), policy, &options);
            Ok((mounted.await?, device))
        };
        let (fs, device) = match self.attempt(attempt).await? {
            Attempt::Mounted(mounted) => mounted,
            Attempt::ReadOnly(reason) => return Ok(Some(reason)),
        };
        let Some(recovered) = fs.layout().recovered() else {
            device.thaw();
            return serve(self, fs, async || {}).await.map(|()| None);
        };
        let (groups, mended) = (recovered.groups, recovered.mended.len());
        self.tell.notice(&format!(
            "not unmounted cleanly: what is free in {groups} groups was worked out anew, {mended} of them \
             mended; what is held for nothing is given back in the background"
        ));
        let check = Background::start(self.runtime, &fs, &device, Pace::default());
        let tell = self.tell.clone();
        let stop = async move || match check.stop().await {
            Ok(outcome) if outcome.ending == Ending::Damage => tell.error(&outcome.to_string()),
            Ok(outcome) => tell.notice(&outcome.to_string()),
            Err(error) => tell.error(&format!("the background check failed: {error}")),
        };
        serve(self, fs, stop).await.map(|()| None)
    }

    /// Mounts under a journal.
    async fn journal(&self) -> Result<Option<String>> {
        let mut disks = vec![self.disk.clone().erase()];
        let place = match self.wanted.log {
            Some(LogPlace::File) => journaled::LogPlace::File,
            Some(LogPlace::Behind) => journaled::LogPlace::Same,
            Some(LogPlace::Device(_)) => journaled::LogPlace::Other,
            None => match journaled::find(&disks).await? {
                Some(found) => found.place,
                None => bail!(
                    "it has no log; ordo mkfs --journal file makes an image with one, logdev= names \
                     another place"
                ),
            },
        };
        if let Some(LogPlace::Device(path)) = &self.wanted.log {
            let log = FileDisk::open(self.runtime, path, Access::ReadWrite)?;
            let bytes = log.geometry().bytes;
            let log = Rc::new(Nearby::new(Part::new(Rc::new(log), 0, bytes)));
            let _ = self.log.set(log.clone());
            disks.push(log.erase());
        }
        let usual = Journaled::usual_group();
        let group = self.wanted.group_commit.then(|| GroupCommit {
            delay: self.wanted.group_delay.unwrap_or(usual.delay),
            batch: self.wanted.group_batch.unwrap_or(usual.batch),
        });
        let journaled = Journaled::new(place, self.wanted.log_sync, group);
        let was_clean = self.found.sb.clean == 1;
        let attempt = async || {
            let (fs, _) = journaled.mount(self.runtime, &disks, &self.options()).await?;
            Ok(fs)
        };
        match self.attempt(attempt).await? {
            Attempt::Mounted(fs) => {
                if !was_clean {
                    self.tell.notice("not unmounted cleanly: its log was replayed");
                }
                serve(self, fs, async || {}).await.map(|()| None)
            }
            Attempt::ReadOnly(reason) => Ok(Some(reason)),
        }
    }

    /// Mounts, and where a check is needed first, again after it.
    async fn attempt<T>(&self, mount: impl AsyncFn() -> Result<T>) -> Result<Attempt<T>> {
        let mut checked = false;
        loop {
            let error = match mount().await {
                Ok(mounted) => return Ok(Attempt::Mounted(mounted)),
                Err(error) => error,
            };
            let why = match error.downcast_ref::<JournaledError>() {
                Some(JournaledError::Mount(why)) => Some(why),
                _ => error.downcast_ref::<MountError>(),
            };
            match why {
                Some(MountError::Unclean) if !checked => self.preen().await?,
                Some(why @ (MountError::Unsupported(_) | MountError::ReadOnlyDevice)) => {
                    return Ok(Attempt::ReadOnly(reason(why)));
                }
                _ => return Err(error),
            }
            checked = true;
        }
    }

    /// Repairs what a crash leaves, as at boot; anything else is for a person to decide.
    async fn preen(&self) -> Result<()> {
        self.tell.notice("not unmounted cleanly: checking it");
        let disks = [self.disk.clone().erase()];
        if let Some(done) = journaled::replay(self.runtime, &disks).await? {
            self.tell.notice(&format!("its log was replayed, {} records", done.records));
        }
        let options =
            CheckOptions { repair: Repair::Preen, trust_bitmaps: true, ..CheckOptions::default() };
        let report = Checker::new(self.disk.clone(), options).run().await?;
        if report.exit_code() > 1 {
            bail!(
                "the check found what it may not repair by itself: ordo fsck -y {}, or mount it \
                 with -o ro",
                self.args.image.display()
            );
        }
        let last = report.to_string();
        self.tell.notice(last.lines().last().unwrap_or("checked"));
        Ok(())
    }
}

/// Why a file system may only be read.
fn reason(error: &MountError) -> String {
    match error {
        MountError::Unsupported(reason) => (*reason).to_owned(),
        MountError::ReadOnlyDevice => "the device takes no writes".to_owned(),
        error => error.to_string(),
    }
}
