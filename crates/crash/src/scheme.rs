//! What is crashed: how it is made, mounted and recovered, and what it promises.

use std::rc::Rc;
use std::sync::Arc;

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_runtime::Runtime;
use ordo_vfs::{AnyFs, FileSystem, FsResult, LocalFuture};

use crate::disk::Scratch;
use crate::finding::{Finding, Severity};
use crate::format::{DiskFormat, OwnNames};
use crate::judge::{Question, Verdict};
use crate::record::{simulate, simulate_recovery};
use crate::{Config, CrashError, Model, Run, Workload};

/// A mounted file system that can be unmounted. Clones are the same one.
#[derive(Clone)]
pub struct Volume {
    fs: AnyFs,
    unmount: Rc<dyn Fn() -> LocalFuture<'static, FsResult<()>>>,
}

impl Volume {
    /// `fs`, which `unmount` makes durable and ends.
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

    /// Makes everything durable and ends.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn unmount(&self) -> FsResult<()> {
        (self.unmount)().await
    }
}

/// Names that a check makes where nothing more is known of a file system.
fn lost_and_found(name: &[u8]) -> bool {
    name.starts_with(b"lost+found")
}

/// A way to keep a file system: one value of this is all there is to adding a system.
///
/// Errors are words for a person: an error from [`make`](Scheme::make) ends the run, one from the others
/// on a crash state is what the judge reports.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait Scheme: Clone + Send + Sync + 'static {
    /// The name a user gives it.
    fn name(&self) -> &str;

    /// What it promises.
    fn promise(&self) -> Promise;

    /// What its disks hold, for whoever judges them in this process; none where somebody else does.
    fn format(&self) -> Option<&dyn DiskFormat>;

    /// The names that are the file system's own.
    fn own_names(&self) -> OwnNames {
        self.format().map_or(lost_and_found, |format| format.own_names())
    }

    /// The sizes of its devices in bytes. The first holds the file system that is checked.
    fn devices(&self) -> Vec<u64>;

    /// Makes the empty file system.
    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String>;

    /// Mounts it: freshly made, or as a crash left it (after a check where the promise needs one).
    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Volume, String>;

    /// Brings what a crash left into the state in which it is judged: replays a log. Must leave on the
    /// disks all that it does. Nothing by default.
    async fn recover(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let _ = (rt, disks);
        Ok(())
    }

    /// Whether [`recover`](Scheme::recover) does anything.
    fn recovers(&self) -> bool {
        false
    }

    /// Runs a workload and records it: in this process, unless somebody else does it.
    ///
    /// # Errors
    /// See [`record()`](crate::record()).
    fn record<W: Workload>(&self, workload: &W, config: &Config) -> Result<Run, CrashError> {
        simulate(self, workload, config)
    }

    /// Records how disks that a crash has left of the run `of` come to be used again, so that this can be cut off
    /// too: in this process, unless somebody else does it.
    ///
    /// # Errors
    /// It fails, in words.
    fn record_recovery(&self, images: &[Arc<Vec<u8>>], of: &Run, seed: u64) -> Result<Run, String> {
        simulate_recovery(self, images, of, seed)
    }

    /// Whether the same seed gives the same run. Where not, what is kept of a failure is the run itself.
    fn repeats(&self) -> bool {
        true
    }

    /// Judges disks that only somebody else can use, such as the kernel; the disks are left as they are. None
    /// where they are judged in this process.
    fn judge_outside(&self, disks: &[Rc<Scratch>], question: &Question<'_>) -> Option<Verdict> {
        let _ = (disks, question);
        None
    }
}

/// What a scheme promises about a disk as a crash left it, after recovery where the scheme has one. What
/// is not promised is still measured.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Whether a finding of a check is within the promise.
    pub allows: fn(&Finding) -> bool,
    /// It can be mounted and used without a check.
    pub no_check: bool,
    /// What fsync or sync returned for is there: names, sizes, contents.
    pub durable_fsync: bool,
    /// A change of names is durable when it returns.
    pub durable_names: bool,
    /// A name stands for what it stood for at some time, and what always had a name has one.
    pub names: bool,
    /// Where a name stands for what it came to stand for later, what it stood for before has the name that it was given
    /// instead, though nobody waited for that one.
    pub passed: bool,
    /// The names are those after some number of each client's operations, in their order.
    pub ordered: bool,
    /// A file holds at each place something that was written there, or zeros where nothing was.
    pub no_stale: bool,
}

impl Promise {
    /// Nothing.
    pub const NONE: Promise = Promise {
        allows: |_| true,
        no_check: false,
        durable_fsync: false,
        durable_names: false,
        names: false,
        passed: false,
        ordered: false,
        no_stale: false,
    };

    /// Synchronous writes where order matters: after a check nothing is lost that was waited for.
    pub const SYNC: Promise = Promise {
        allows: |finding| finding.severity <= Severity::Repairable,
        durable_fsync: true,
        durable_names: true,
        names: true,
        passed: true,
        ..Promise::NONE
    };

    /// What is left of the promise on a disk of this model: where flushes are lies, nothing but that it can
    /// be used after a check.
    pub fn under(self, model: Model) -> Promise {
        if model == Model::Lying { Promise::NONE } else { self }
    }

    /// Soft updates: leaks and high counts only, usable at once, no stale contents.
    pub const SOFT_UPDATES: Promise = Promise {
        allows: |finding| finding.severity <= Severity::Leak,
        no_check: true,
        durable_fsync: true,
        durable_names: false,
        names: true,
        passed: true,
        ordered: false,
        no_stale: true,
    };

    /// A journal of metadata: after recovery nothing is wrong at all, and operations are there in order
    /// up to some point. `synchronous`: what returned is durable.
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
        }
    }
}
