//! What is crashed: how it is made, mounted and recovered, and what it promises.

use std::rc::Rc;
use std::sync::Arc;

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_check::{Finding, Report, Severity};
use ordo_ffs::mkfs::mkfs;
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{NoOrder, OrderingPolicy};
use ordo_runtime::Runtime;
use ordo_ufs::UfsConfig;
use ordo_vfs::{FileSystem, FsResult};

use crate::disk::Scratch;
use crate::judge::{Question, Verdict};
use crate::record::{simulate, simulate_recovery};
use crate::{Config, CrashError, Geometry, Model, Run, Workload};

/// A mounted file system that can be unmounted.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait Volume: FileSystem + Clone + 'static {
    /// Makes everything durable and ends.
    ///
    /// # Errors
    /// What the file system says.
    async fn unmount(&self) -> FsResult<()>;
}

impl<P: OrderingPolicy + 'static> Volume for FastFs<P> {
    async fn unmount(&self) -> FsResult<()> {
        FastFs::unmount(self).await
    }
}

/// A way to keep a file system: one value of this is all there is to adding a system.
///
/// Errors are words for a person: an error from [`make`](Scheme::make) ends the run, one from the others
/// on a crash state is what the judge reports.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait Scheme: Clone + Send + Sync + 'static {
    /// The mounted file system.
    type Fs: Volume;

    /// The name a user gives it.
    fn name(&self) -> &str;

    /// What it promises.
    fn promise(&self) -> Promise;

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
    ) -> Result<Self::Fs, String>;

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
    /// Whether a finding of the checker is within the promise.
    pub allows: fn(&Report, &Finding) -> bool,
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
        allows: |_, _| true,
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
        allows: sync_allows,
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
        allows: soft_updates_allow,
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
            allows: |_, _| false,
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

/// What the checker calls damage, but FFS has never ordered, and a check mends without loss: bitmaps may
/// be behind what they describe (which is why a check must come before the next mount), a rename of a
/// directory passes through a state in which it has both names, a pointer to a new block may be on disk
/// before the size that includes it, and a growing file's old fragments are free before the inode that
/// no longer points to them is on disk. A superblock or a group's block that is torn has a wrong hash.
const NOT_ORDERED_BY_SYNC: [&str; 8] = [
    "BlocksNotMarked",
    "InodesNotMarked",
    "DirectoryLinkedTwice",
    "PointerBeyondEnd",
    "DuplicateBlock",
    "InitialisedTooLow",
    "GroupHash",
    "SuperblockHash",
];

fn sync_allows(report: &Report, finding: &Finding) -> bool {
    // A directory on its way in or out: what no name leads to cannot hurt.
    let out_of_reach = || {
        let gone = |f: &Finding| f.kind() == "UnreferencedDirectory" && f.ino() == finding.ino();
        report.findings.iter().any(gone)
    };
    finding.severity() != Severity::Damage
        || NOT_ORDERED_BY_SYNC.contains(&finding.kind())
        || out_of_reach()
}

fn soft_updates_allow(report: &Report, finding: &Finding) -> bool {
    let uncounted = matches!(finding, Finding::UnreferencedDirectory { uncounted: true, .. });
    report.severity(finding) != Severity::Damage && !uncounted
}

/// FFS on one device under an ordering.
#[derive(Clone)]
pub struct OnFfs<M> {
    name: String,
    policy: M,
    promise: Promise,
    geometry: Geometry,
}

impl<P: OrderingPolicy + 'static, M: Fn() -> P + Clone + Send + Sync + 'static> OnFfs<M> {
    /// FFS of 1 MiB with blocks of 4 KiB and fragments of 512 bytes, under what `policy` gives.
    pub fn new(name: impl Into<String>, policy: M, promise: Promise) -> OnFfs<M> {
        OnFfs { name: name.into(), policy, promise, geometry: Geometry::default() }
    }

    /// The same in another shape.
    #[must_use]
    pub fn shaped(self, geometry: &Geometry) -> OnFfs<M> {
        OnFfs { geometry: geometry.clone(), ..self }
    }
}

impl<P: OrderingPolicy + 'static, M: Fn() -> P + Clone + Send + Sync + 'static> Scheme
    for OnFfs<M>
{
    type Fs = FastFs<P>;

    fn name(&self) -> &str {
        &self.name
    }

    fn promise(&self) -> Promise {
        self.promise
    }

    fn devices(&self) -> Vec<u64> {
        vec![self.geometry.bytes]
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let made = mkfs(&disks[0], &self.geometry.mkfs(), rt.wall_time().0).await;
        made.map(drop).map_err(|e| e.to_string())
    }

    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Self::Fs, String> {
        let options = MountOptions { cache: cache.clone(), ..MountOptions::default() };
        mount(rt, disks[0].clone(), (self.policy)(), &options).await.map_err(|e| e.to_string())
    }
}

/// Mounts the file system on a device read-only, whatever keeps it, to look at what is there.
pub(crate) async fn look(rt: &Runtime, disk: &Device) -> Result<FastFs<NoOrder>, String> {
    let ufs = UfsConfig { read_only: true, ..UfsConfig::default() };
    let options = MountOptions { ufs, ..MountOptions::default() };
    mount(rt, disk.clone(), NoOrder, &options).await.map_err(|e| e.to_string())
}
