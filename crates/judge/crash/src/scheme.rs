//! The interface to a system that is crashed: how it is made, mounted and recovered, and what it
//! promises.

use std::rc::Rc;
use std::sync::Arc;

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_runtime::{LocalFuture, Runtime};
use ordo_vfs::{AnyFs, FileSystem, FsResult};

use crate::disk::Scratch;
use crate::finding::{Finding, FindingSeverity};
use crate::format::{DiskFormat, OwnNames};
use crate::judge::Question;
use crate::record::{simulate, simulate_recovery};
use crate::verdict::Verdict;
use crate::{Config, CrashError, CrashModel, Run, RunWorkload};

/// A mounted file system that can be unmounted. Clones refer to the same one.
#[derive(Clone)]
pub struct Volume {
    fs: AnyFs,
    unmount: Rc<dyn Fn() -> LocalFuture<'static, FsResult<()>>>,
}

impl Volume {
    /// Wraps `fs`. The function `unmount` makes it durable and ends it.
    pub fn new<F, U>(fs: F, unmount: impl Fn(F) -> U + 'static) -> Volume
    where
        F: FileSystem + Clone + 'static,
        U: Future<Output = FsResult<()>> + 'static,
    {
        let any = AnyFs::new(fs.clone());
        Volume { fs: any, unmount: Rc::new(move || Box::pin(unmount(fs.clone()))) }
    }

    /// The file system.
    pub fn fs(&self) -> &AnyFs {
        &self.fs
    }

    /// Unmounts: makes everything durable.
    ///
    /// # Errors
    /// The file system's error.
    pub async fn unmount(&self) -> FsResult<()> {
        (self.unmount)().await
    }
}

/// The names that a check makes in a file system of unknown format.
fn lost_and_found(name: &[u8]) -> bool {
    name.starts_with(b"lost+found")
}

/// A system that can be crashed. A new system needs one value of this trait.
///
/// Errors are text for a person. An error from [`make`](Scheme::make) ends the run; an error from
/// another function, on a crash state, goes into the verdict.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait Scheme: Clone + Send + Sync + 'static {
    /// The name on the command line.
    fn name(&self) -> &str;

    /// The promise about the state after a crash.
    fn promise(&self) -> Promise;

    /// The format of its disks, for a judge in this process; `None` if only a judge outside can
    /// read them.
    fn format(&self) -> Option<&dyn DiskFormat>;

    /// The names that the file system makes for itself.
    fn own_names(&self) -> OwnNames {
        self.format().map_or(lost_and_found, |format| format.own_names())
    }

    /// The sizes of its devices in bytes. The first holds the file system that is checked.
    fn devices(&self) -> Vec<u64>;

    /// Makes an empty file system.
    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String>;

    /// Mounts the file system, either new or as a crash left it (after a check where the promise
    /// demands one).
    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Volume, String>;

    /// Recovers a crashed file system to the state that is judged, for example by replaying a log.
    /// All effects must be on the disks when it returns. The default does nothing.
    async fn recover(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let _ = (rt, disks);
        Ok(())
    }

    /// Whether [`recover`](Scheme::recover) does anything.
    fn recovers(&self) -> bool {
        false
    }

    /// Runs a workload and records it. The default does so in this process.
    ///
    /// # Errors
    /// See [`record()`](crate::record()).
    fn record<W: RunWorkload>(&self, workload: &W, config: &Config) -> Result<Run, CrashError> {
        simulate(self, workload, config)
    }

    /// Records the recovery of disks that a crash of the run `of` has left, so that it can be
    /// crashed too. The default does so in this process.
    ///
    /// # Errors
    /// The recovery failed, in words.
    fn record_recovery(&self, images: &[Arc<Vec<u8>>], of: &Run, seed: u64) -> Result<Run, String> {
        simulate_recovery(self, images, of, seed)
    }

    /// Whether the same seed gives the same run. If not, a failure file contains the whole run.
    fn repeats(&self) -> bool {
        true
    }

    /// Judges disks that only another program, such as the kernel, can use, and leaves them
    /// unchanged. `None` if they are judged in this process.
    fn judge_outside(&self, disks: &[Rc<Scratch>], question: &Question<'_>) -> Option<Verdict> {
        let _ = (disks, question);
        None
    }
}

/// The promise of a scheme about a crashed disk, after recovery if the scheme has one. Faults that
/// the promise allows are still counted.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Whether the promise allows a finding of a check.
    pub allows: fn(&Finding) -> bool,
    /// The disk can be mounted and used without a check.
    pub no_check: bool,
    /// Everything for which fsync or sync has returned is there: names, sizes, contents.
    pub durable_fsync: bool,
    /// A change of names is durable when its call returns.
    pub durable_names: bool,
    /// A name stands for an object that had this name at some time. An object that always had a
    /// name has one.
    pub names: bool,
    /// If a name stands for a later object, the earlier object has the name that it was given
    /// instead, even if no caller waited for that name to be durable.
    pub passed: bool,
    /// The names are those after some number of each client's operations, in their order.
    pub ordered: bool,
    /// Each place of a file has contents that were written there, or zeros if none were.
    pub no_stale: bool,
    /// A symbolic link has the target with which it was made. No call makes a target durable by
    /// itself.
    pub link_targets: bool,
}

impl Promise {
    /// The empty promise.
    pub const NONE: Promise = Promise {
        allows: |_| true,
        no_check: false,
        durable_fsync: false,
        durable_names: false,
        names: false,
        passed: false,
        ordered: false,
        no_stale: false,
        link_targets: false,
    };

    /// The promise of synchronous writes where order matters: after a check, nothing is lost for
    /// which a caller has waited.
    pub const SYNC: Promise = Promise {
        allows: |finding| finding.severity <= FindingSeverity::Repairable,
        durable_fsync: true,
        durable_names: true,
        names: true,
        passed: true,
        link_targets: true,
        ..Promise::NONE
    };

    /// The part of the promise that holds on a disk of this model. On a disk that lies about
    /// flushes, only use after a check remains.
    pub fn under(self, model: CrashModel) -> Promise {
        if model == CrashModel::Lying { Promise::NONE } else { self }
    }

    /// The promise of soft updates: only leaks and high counts, use without a check, no stale
    /// contents.
    pub const SOFT_UPDATES: Promise = Promise {
        allows: |finding| finding.severity <= FindingSeverity::Leak,
        no_check: true,
        durable_fsync: true,
        durable_names: false,
        names: true,
        passed: true,
        ordered: false,
        no_stale: true,
        link_targets: true,
    };

    /// The promise of a metadata journal: after recovery there are no findings at all, and
    /// operations are there in order up to some point. `synchronous`: operations that have returned
    /// are durable.
    pub const fn journal(synchronous: bool) -> Promise {
        Promise {
            allows: |_| false,
            no_check: true,
            durable_fsync: true,
            durable_names: synchronous,
            names: true,
            passed: true,
            ordered: true,
            no_stale: false,
            link_targets: true,
        }
    }
}
