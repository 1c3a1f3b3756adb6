//! FFS under a journal, with its log in any of three places: making, mounting, recovering; the
//! systems of this kind.

use ordo_block::model::{Model, ModelKind, Zones};
use ordo_block::partition::Partition;
use ordo_block::{BlockDevice, Device};
use ordo_crash::Promise;
use ordo_ffs::mkfs::{MkfsError, MkfsOptions, MkfsReport, mkfs};
use ordo_ffs::mount::find_superblock;
use ordo_ffs::{FastFs, MountError, MountOptions, logfile};
use ordo_format::wafs::{SUPER_SECTORS, WafsSuper};
use ordo_ordering::{
    JournalMode, JournalModeError, JournalOptions, JournalOrder, JournalRules, LogContents,
    NoOrder, Recovery,
};
use ordo_runtime::{Duration, Runtime};
use ordo_vfs::FsError;
use ordo_wafs::{GroupCommit, LogError, Turn, Wafs};

use crate::SystemError;
use crate::ffs::UFS2;
use crate::mounted::{Mounted, OnFfs};
use crate::rules::{all_but, names};
use crate::system::{ListedEntry, Mounting, System};

/// The place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// In a file of the file system, written in clusters of 64 KiB.
    File,
    /// In a WAFS behind the file system, on the same device.
    Same,
    /// In a WAFS on a second device.
    Other,
}

/// A journaled FFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journaled {
    /// The place of its log.
    pub place: LogPlace,
    /// Whether changes of names are durable on return (the papers' "sync").
    pub synchronous: bool,
    /// Whether concurrent callers share log writes (group commit).
    pub group: Option<GroupCommit>,
    /// Whether the log write of one caller carries the records that others have appended.
    pub shares: bool,
    /// The options of the journal.
    pub options: JournalOptions,
    /// The size of the log in bytes. The default is a hundredth of the file system.
    pub log_bytes: Option<u64>,
    /// The rotation of the log's disk, where it rotates and callers wait for the log. Sectors are
    /// then skipped between writes.
    pub turn: Option<Turn>,
}

/// The variants of a system's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogKind {
    place: LogPlace,
    synchronous: bool,
    group: bool,
    mode: JournalMode,
}

impl LogKind {
    /// The variant with the published options.
    pub fn journaled(self) -> Journaled {
        let group = self.group.then(Journaled::usual_group);
        let usual = Journaled::new(self.place, self.synchronous, group);
        Journaled { options: JournalOptions { mode: self.mode, ..usual.options }, ..usual }
    }

    /// The variant with options, as `contents=data` has them.
    ///
    /// # Errors
    /// There is no such option, or it does not take its value.
    pub(crate) fn with(self, options: &str) -> Result<LogKind, JournalModeError> {
        let mut mode = self.mode;
        for option in options.split(',') {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            mode.set(key, value)?;
        }
        Ok(LogKind { mode, ..self })
    }

    /// The promise of the variant.
    pub(crate) const fn promise(self) -> Promise {
        let no_stale = !matches!(self.mode.contents, LogContents::None);
        Promise { no_stale, ..Promise::journal(self.synchronous) }
    }
}

const fn entry(name: &'static str, about: &'static str, kind: LogKind) -> ListedEntry {
    ListedEntry {
        name,
        about,
        ordering: "journal",
        also: &[],
        format: &UFS2,
        mounting: Mounting::Journal(kind),
        promise: kind.promise(),
        rules: names::<JournalRules>,
    }
}

const fn kind(place: LogPlace, synchronous: bool, group: bool) -> LogKind {
    LogKind { place, synchronous, group, mode: JournalMode::PUBLISHED }
}

/// The rules about file contents: those of a journal that [follows](JournalMode::follows_contents)
/// them.
pub const OF_CONTENTS: JournalRules = JournalRules::ZEROS
    .union(JournalRules::WRITTEN_FIRST)
    .union(JournalRules::WRITTEN_NOTED)
    .union(JournalRules::WRITTEN_LAST)
    .union(JournalRules::WHOLE_FIRST)
    .union(JournalRules::RELOG);

/// FFS with a log in a file of its own, written asynchronously.
pub const FILE: System = System(&entry(
    "lffs-file",
    "FFS with a log in a file, asynchronous",
    kind(LogPlace::File, false, false),
));
/// FFS with a stand-alone log on the same disk, synchronous.
pub const WAFS_1SYNC: System = System(&entry(
    "lffs-wafs-1sync",
    "FFS with a log on the same disk, durable on return",
    kind(LogPlace::Same, true, false),
));
/// As [`WAFS_1SYNC`], asynchronous.
pub const WAFS_1ASYNC: System = System(&entry(
    "lffs-wafs-1async",
    "FFS with a log on the same disk, asynchronous",
    kind(LogPlace::Same, false, false),
));
/// FFS with a stand-alone log on a second disk, synchronous.
pub const WAFS_2SYNC: System = System(&entry(
    "lffs-wafs-2sync",
    "FFS with a log on a second disk, durable on return",
    kind(LogPlace::Other, true, false),
));
/// As [`WAFS_2SYNC`], asynchronous.
pub const WAFS_2ASYNC: System = System(&entry(
    "lffs-wafs-2async",
    "FFS with a log on a second disk, asynchronous",
    kind(LogPlace::Other, false, false),
));
/// As [`WAFS_1SYNC`], but concurrent callers share log writes (group commit).
pub const WAFS_1SYNC_GROUP: System = System(&entry(
    "lffs-wafs-1sync-group",
    "as lffs-wafs-1sync, with group commit",
    kind(LogPlace::Same, true, true),
));
/// As [`WAFS_2SYNC`], but concurrent callers share log writes (group commit).
pub const WAFS_2SYNC_GROUP: System = System(&entry(
    "lffs-wafs-2sync-group",
    "as lffs-wafs-2sync, with group commit",
    kind(LogPlace::Other, true, true),
));

/// The size of the replay cache, in bytes: log records that the mount has read are kept in it, so
/// that recovery need not read them again.
const KEEP: usize = 16 << 20;

/// A mounted file system.
pub type JournaledFs = FastFs;

/// The errors of a journaled FFS.
#[derive(Debug, thiserror::Error)]
pub enum JournaledError {
    /// The options of mkfs are not legal.
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    /// The image cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The log file cannot be made or found.
    #[error("the log file: {0}")]
    File(#[from] FsError),
    /// The image has no log file.
    #[error(
        "there is no log file in the image; create the file system again with one (ordo mkfs --journal file)"
    )]
    NoLogFile,
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Journaled {
    /// One of the published configurations.
    pub fn new(place: LogPlace, synchronous: bool, group: Option<GroupCommit>) -> Journaled {
        let options = match place {
            LogPlace::File => JournalOptions { synchronous, ..JournalOptions::file() },
            LogPlace::Same | LogPlace::Other => JournalOptions::wafs(synchronous),
        };
        let options = JournalOptions {
            // One flush of the disk makes log and contents durable.
            shares_device: place != LogPlace::Other,
            ..options
        };
        Journaled { place, synchronous, group, shares: true, options, log_bytes: None, turn: None }
    }

    /// The default group commit: the first caller waits a millisecond for others.
    pub fn usual_group() -> GroupCommit {
        GroupCommit { delay: Duration::from_millis(1), batch: 64 }
    }

    /// The same configuration with its log on a device of this model. On a rotating disk, sectors
    /// are skipped so that no write waits for a whole revolution.
    #[must_use]
    pub fn on(self, log: &Model) -> Journaled {
        let turn = match &log.kind {
            ModelKind::Hdd(disk) if self.synchronous => {
                let sectors = match disk.zones {
                    Zones::Measured(zones) => zones.iter().map(|zone| zone.1).max().unwrap_or(1),
                    Zones::Even(outer, _) => outer,
                };
                let time = Duration::from_nanos((60e9 / disk.rpm) as u64);
                let overhead = Duration::from_nanos((disk.overhead_us * 1e3) as u64);
                let settle = Duration::from_nanos((disk.write_settle_ms * 1e6) as u64);
                Some(Turn { time, sectors, overhead, settle })
            }
            _ => None,
        };
        Journaled { turn, ..self }
    }

    /// The sizes of the file system, with blocks of `block` bytes, and of its log, if the first
    /// device has `bytes` bytes.
    pub fn sizes(&self, bytes: u64, block: u32) -> (u64, u64) {
        let least = JournalOrder::log_bytes_min(block.into()).next_multiple_of(block.into());
        let log = self.log_bytes.unwrap_or_else(|| logfile::usual_size(bytes).max(least));
        let log = log.min(bytes / 2).next_multiple_of(4096);
        match self.place {
            LogPlace::Same => (bytes - log, log),
            LogPlace::File | LogPlace::Other => (bytes, log),
        }
    }

    /// Makes file system and log, both empty. If they share a device, the size in the options is
    /// that of both together.
    ///
    /// # Errors
    /// [`JournaledError`].
    pub async fn make(
        &self,
        rt: &Runtime,
        disks: &[Device],
        options: &MkfsOptions,
    ) -> Result<MkfsReport, JournaledError> {
        let now = rt.wall_time().0;
        let bytes = options.size.unwrap_or_else(|| disks[0].geometry().bytes);
        let (size, log) = self.sizes(bytes, options.block_size);
        let options = MkfsOptions { size: Some(size), ..options.clone() };
        let report = mkfs(&disks[0], &options, now).await?;
        if self.place == LogPlace::File {
            let mounted = MountOptions { use_reserve: true, ..MountOptions::default() };
            let fs = ordo_ffs::mount(rt, disks[0].clone(), NoOrder, &mounted).await?;
            logfile::make(&fs, log).await?;
            fs.unmount().await?;
        }
        let part = self.part(disks).await?;
        let part = match self.place {
            LogPlace::Same => part.first(log),
            LogPlace::File | LogPlace::Other => part,
        };
        ordo_wafs::mkfs(&part.erase(), &ordo_wafs::MkfsOptions::default(), now).await?;
        Ok(report)
    }

    async fn part(&self, disks: &[Device]) -> Result<Partition<Device>, JournaledError> {
        let first = disks[0].clone();
        Ok(match self.place {
            LogPlace::Other => {
                let bytes = disks[1].geometry().bytes;
                Partition::new(disks[1].clone(), 0, bytes)
            }
            LogPlace::Same => {
                let found = find_superblock(&first).await?;
                let end = found.sb.byte_of(found.sb.size.max(0).cast_unsigned());
                let end = end.next_multiple_of(4096);
                let bytes = first.geometry().bytes.saturating_sub(end);
                Partition::new(first, end, bytes)
            }
            LogPlace::File => {
                let found = find_superblock(&first).await?;
                let runs = logfile::find(&first, &found).await?;
                Partition::of(first, runs.ok_or(JournaledError::NoLogFile)?)
            }
        })
    }

    /// Mounts the file system, after a recovery if one is needed.
    ///
    /// # Errors
    /// [`JournaledError`].
    pub async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        options: &MountOptions,
    ) -> Result<(JournaledFs, JournalOrder), JournaledError> {
        // As published, the log file is written in clusters of 64 KiB, and an asynchronous WAFS in
        // blocks of 4 KiB. In a synchronous log the callers' own writes come early enough. A
        // cluster written between them would split one of these writes in two, with a revolution of
        // the disk in between.
        let cluster = match (self.synchronous, self.place) {
            (true, _) => 256 << 10,
            (false, LogPlace::File) => 64 << 10,
            (false, _) => 4096,
        };
        let log_options = ordo_wafs::MountOptions {
            cluster,
            group: self.group,
            shares: self.shares,
            turn: self.turn,
            keep: KEEP,
            ..ordo_wafs::MountOptions::default()
        };
        let log = Wafs::mount(rt, self.part(disks).await?, &log_options).await?;
        let journal = JournalOrder::new(rt, log, self.options);
        let fs = ordo_ffs::mount(rt, disks[0].clone(), journal.clone(), options).await?;
        Ok((fs, journal))
    }
}

/// Mounts as [`Journaled::mount`] does, with the options that all systems share. Returns the
/// recovery that was needed, too.
pub(crate) async fn mount(
    journaled: &Journaled,
    rt: &Runtime,
    disks: &[Device],
    options: &crate::options::MountOptions,
) -> Result<(Mounted, Recovery), SystemError> {
    let mut journaled = match options.log.device {
        Some(model) => journaled.on(model),
        None => *journaled,
    };
    journaled.shares = !options.log.alone;
    if let Some(mode) = options.log.mode {
        journaled.options.mode = mode;
    }
    if let Some(every) = journaled.options.mode.every {
        journaled.options.tick = every;
    }
    if let Some(tick) = options.log.tick {
        journaled.options.tick = tick;
        journaled.options.checkpoint_every = tick;
    }
    if options.without.is_some() {
        journaled.options.rules = all_but(options.without);
    }
    let (fs, journal) = journaled.mount(rt, disks, &options.ffs()).await?;
    let recovery = fs.layout().recovery();
    Ok((OnFfs::with(fs, Some(journal), None), recovery))
}

/// The log of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundLog {
    /// The place of the log.
    pub place: LogPlace,
    /// The superblock of the log.
    pub superblock: WafsSuper,
}

/// Finds the log of an image: in a file, behind the file system, or on the second device if one is
/// given. `None` if there is no log, or no superblock of one.
///
/// # Errors
/// [`JournaledError`].
pub async fn find(disks: &[Device]) -> Result<Option<FoundLog>, JournaledError> {
    let Ok(found) = find_superblock(&disks[0]).await else { return Ok(None) };
    let place = match logfile::find(&disks[0], &found).await {
        _ if disks.len() > 1 => LogPlace::Other,
        Ok(Some(_)) => LogPlace::File,
        // The check reports an image that cannot be read.
        _ => LogPlace::Same,
    };
    let part = Journaled::new(place, false, None).part(disks).await?;
    if part.geometry().bytes < SUPER_SECTORS * u64::from(part.geometry().sector) {
        return Ok(None);
    }
    match ordo_wafs::mount::find_superblock(&part.erase()).await {
        Ok(superblock) => Ok(Some(FoundLog { place, superblock })),
        // The bytes behind a file system may be anything. In the other places there must be a log,
        // so damage is reported.
        Err(LogError::NoSuperblock(_)) if place == LogPlace::Same => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Replays the log of an image that was not unmounted, if it has one. Returns the work done, if
/// any.
///
/// # Errors
/// [`JournaledError`]. The image is unchanged, or can be replayed again.
pub async fn replay(rt: &Runtime, disks: &[Device]) -> Result<Option<Replayed>, JournaledError> {
    let Ok(found) = find_superblock(&disks[0]).await else { return Ok(None) };
    if found.sb.clean == 1 {
        return Ok(None);
    }
    let Some(log) = find(disks).await? else { return Ok(None) };
    let journaled = Journaled::new(log.place, false, None);
    let (fs, journal) = journaled.mount(rt, disks, &MountOptions::default()).await?;
    let records = journal.log().mounted().records;
    let lost = fs.layout().recovery().lost_bytes();
    fs.unmount().await?;
    Ok(Some(Replayed { records, lost }))
}

/// The work of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The number of records in the log.
    pub records: u64,
    /// The number of bytes of file contents that could not be read, and are zero now.
    pub lost: u64,
}

/// A warning about bytes of file contents that a recovery could not read, if there are any.
pub fn warning(lost: u64) -> Option<String> {
    (lost > 0).then(|| {
        format!(
            "{lost} bytes of files, moved shortly before the crash, could not be read and are zeros now: \
             compare recently written files with a copy"
        )
    })
}
