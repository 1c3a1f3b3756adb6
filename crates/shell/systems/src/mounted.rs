//! A mounted file system, of one type for every system.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_ffs::FastFs;
use ordo_lfs::write::CleanerCounts;
use ordo_ordering::JournalOrder;
use ordo_runtime::LocalFuture;
use ordo_ufs::Layout;
use ordo_vfs::{AnyFs, FsResult};

/// A mounted file system. Clones refer to the same one.
#[derive(Clone)]
pub struct Mounted {
    fs: AnyFs,
    volume: Rc<dyn Volume>,
}

/// Counters of an ordering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The number of blocks that were written with changes rolled back.
    pub rewritten: u64,
    /// Counters of dependencies, if the ordering keeps any.
    pub dependencies: Option<DependencyStats>,
    /// Counters of the log, if there is one.
    pub log: Option<LogStatistics>,
    /// Counters of the cleaner, if there is one.
    pub cleaner: Option<CleanerStatistics>,
}

/// Counters of a cleaner since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanerStatistics {
    /// The cleaner's work since the mount.
    pub counts: CleanerCounts,
    /// Checkpoints, including those that the cleaner did not ask for.
    pub checkpoints: u64,
}

/// Counters of dependencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DependencyStats {
    /// The number of rollbacks in written images.
    pub rolled_back: u64,
    /// The most memory that dependencies have taken, in bytes.
    pub memory_peak: u64,
    /// Frees that were deferred until their prerequisites were on disk.
    pub deferred_frees: u64,
}

/// Counters of a log since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// The number of operations that changed metadata.
    pub operations: u64,
    /// The number of bytes of records.
    pub bytes: u64,
    /// The number of writes of the log.
    pub writes: u64,
    /// The number of writes of the log's superblock.
    pub checkpoints: u64,
    /// Checkpoints that were forced because the log was short of space.
    pub forced_checkpoints: u64,
}

/// The functions of a mounted file system besides its operations.
pub(crate) trait Volume {
    fn unmount(&self) -> LocalFuture<'_, FsResult<()>>;
    fn drop_caches(&self) -> LocalFuture<'_, FsResult<()>>;
    fn limit_memory(&self, percent: usize) -> LocalFuture<'_, ()>;
    fn statistics(&self) -> Statistics;
}

impl Mounted {
    pub(crate) fn new(fs: AnyFs, volume: impl Volume + 'static) -> Mounted {
        Mounted { fs, volume: Rc::new(volume) }
    }

    /// The file system.
    pub fn fs(&self) -> &AnyFs {
        &self.fs
    }

    /// Unmounts: ends background work, and makes everything durable.
    ///
    /// # Errors
    /// The file system's error. It is still mounted then.
    pub async fn unmount(&self) -> FsResult<()> {
        self.volume.unmount().await
    }

    /// Writes all dirty blocks and drops all clean ones, so that the next reads come from the
    /// device.
    ///
    /// # Errors
    /// The file system's error.
    pub async fn drop_caches(&self) -> FsResult<()> {
        self.volume.drop_caches().await
    }

    /// Limits memory to so many percent of the configured sizes until the next call, and frees what
    /// does not fit.
    pub async fn limit_memory(&self, percent: usize) {
        self.volume.limit_memory(percent).await;
    }

    /// The ordering's counters so far.
    pub fn statistics(&self) -> Statistics {
        self.volume.statistics()
    }
}

/// FFS under an ordering.
pub(crate) struct OnFfs {
    pub fs: FastFs,
    pub journal: Option<JournalOrder>,
    /// The background work that must end before the unmount.
    pub before_unmount: RefCell<Option<LocalFuture<'static, ()>>>,
}

impl OnFfs {
    /// Wraps `fs`, which has no background work.
    pub fn mounted(fs: FastFs) -> Mounted {
        OnFfs::with(fs, None, None)
    }

    pub fn with(
        fs: FastFs,
        journal: Option<JournalOrder>,
        before_unmount: Option<LocalFuture<'static, ()>>,
    ) -> Mounted {
        let any = AnyFs::new(fs.clone());
        Mounted::new(any, OnFfs { fs, journal, before_unmount: before_unmount.into() })
    }
}

impl Volume for OnFfs {
    fn unmount(&self) -> LocalFuture<'_, FsResult<()>> {
        let before = self.before_unmount.take();
        Box::pin(async move {
            if let Some(before) = before {
                before.await;
            }
            self.fs.unmount().await
        })
    }

    fn drop_caches(&self) -> LocalFuture<'_, FsResult<()>> {
        Box::pin(self.fs.drop_caches())
    }

    fn limit_memory(&self, percent: usize) -> LocalFuture<'_, ()> {
        Box::pin(self.fs.limit_memory(percent))
    }

    fn statistics(&self) -> Statistics {
        let cache = self.fs.layout().cache();
        let dependencies = cache.ordering().dependencies().map(|d| DependencyStats {
            rolled_back: d.rolled_back,
            memory_peak: d.memory_peak as u64,
            deferred_frees: d.deferred_frees,
        });
        let log = self.journal.as_ref().map(|journal| {
            let (log, journal) = (journal.log().stats(), journal.stats());
            LogStatistics {
                operations: journal.operations,
                bytes: log.bytes,
                writes: log.writes,
                checkpoints: log.checkpoints,
                forced_checkpoints: journal.forced_checkpoints,
            }
        });
        Statistics { rewritten: cache.stats().rolled_back, dependencies, log, cleaner: None }
    }
}

/// A file system that is mounted read-only, so that an unmount has nothing to do.
pub(crate) struct OnlyRead;

impl Volume for OnlyRead {
    fn unmount(&self) -> LocalFuture<'_, FsResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn drop_caches(&self) -> LocalFuture<'_, FsResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn limit_memory(&self, _: usize) -> LocalFuture<'_, ()> {
        Box::pin(async {})
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}
