//! The stack under a file system, and a run on it.

use std::rc::Rc;

use ordo_block::model::{DiskStats, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::tap::Tap;
use ordo_block::volatile::{Loss, VolatileCache};
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_cache::CacheConfig;
use ordo_ffs::mkfs::mkfs;
use ordo_ffs::{FastFs, MountError, MountOptions, mount};
use ordo_ordering::OrderingPolicy;
use ordo_runtime::Runtime;
use ordo_sba::Classifier;
use ordo_vfs::charged::Charged;
use ordo_vfs::{FileSystem, FsResult};

use super::row::{PhaseRow, Row, Writes};
use super::{CompareError, Follow, Setup};
use crate::workload::{Phase, Stage, Watch, Workload};

/// What holds the bytes: with a cache that a power cut empties, where the disk has one.
pub(super) enum Store {
    Plain(Rc<RamDisk>),
    Volatile(VolatileCache<Rc<RamDisk>>),
}

impl Store {
    pub(super) fn new(ram: Rc<RamDisk>, volatile: bool) -> Store {
        if volatile { Store::Volatile(VolatileCache::new(ram)) } else { Store::Plain(ram) }
    }

    /// The disk as a power cut now would leave it.
    fn cut(&self, seed: u64) -> RamDisk {
        match self {
            Store::Plain(ram) => ram.snapshot(),
            Store::Volatile(cache) => cache.crash_image_seeded(Loss::Subset, seed),
        }
    }
}

/// Calls the same method on whichever it is.
macro_rules! either {
    ($self:ident, $d:ident => $call:expr) => {
        match $self {
            Store::Plain($d) => $call,
            Store::Volatile($d) => $call,
        }
    };
}

impl BlockDevice for Store {
    fn geometry(&self) -> Geometry {
        either!(self, d => d.geometry())
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        either!(self, d => d.read(offset, len).await)
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        either!(self, d => d.write(offset, data, flags).await)
    }
    async fn flush(&self) -> Result<(), BlockError> {
        either!(self, d => d.flush().await)
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        either!(self, d => d.discard(offset, len).await)
    }
}

pub(super) type Disk = Rc<Tap<Modeled<Store>>>;

/// A mounted FFS on a stack.
struct OnFfs<P: OrderingPolicy> {
    runtime: Runtime,
    fs: Charged<FastFs<Disk, P>>,
}

impl<P: OrderingPolicy> Stage for OnFfs<P> {
    type Fs = Charged<FastFs<Disk, P>>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.fs.inner().drop_caches().await
    }
}

/// Passes on what happens, and cuts the power once: half-way through the phase `phase`.
struct Follower<'f> {
    system: &'static str,
    follow: &'f mut dyn Follow,
    disk: Disk,
    classifier: Rc<Classifier>,
    runtime: Runtime,
    /// At the beginning of each phase.
    marks: Vec<Mark>,
    phase: Option<String>,
    now: String,
    seed: u64,
    cut: Option<Cut>,
}

/// A disk as a power cut left it, and when that was, in seconds.
pub(super) struct Cut {
    pub(super) image: RamDisk,
    pub(super) at_seconds: f64,
}

impl Watch for Follower<'_> {
    fn begins(&mut self, name: &str) {
        self.now = name.to_string();
        self.marks.push(Mark::now(&self.runtime, &self.disk, &self.classifier));
        self.follow.begins(self.system, name);
    }

    fn progress(&mut self, _name: &str, done: u64, total: u64) {
        self.follow.progress(done, total);
        let half = 2 * done >= total;
        if half && self.cut.is_none() && self.phase.as_ref() == Some(&self.now) {
            let image = self.disk.inner().inner().cut(self.seed);
            let at_seconds = self.runtime.now().as_secs_f64();
            self.cut = Some(Cut { image, at_seconds });
        }
    }
}

/// Makes a file system, runs the workload on it, and counts.
pub(super) async fn run<P: OrderingPolicy>(
    runtime: &Runtime,
    system: &'static str,
    policy: impl Fn() -> P,
    workload: &Workload,
    setup: &Setup,
    follow: &mut dyn Follow,
) -> Result<(Row, Option<Cut>), CompareError> {
    let ram = Rc::new(RamDisk::new(setup.bytes_for(workload)?));
    // Made beneath the model: that is not part of the story.
    mkfs(&ram, &setup.mkfs_options(), runtime.wall_time().0).await?;
    let store = Store::new(ram.clone(), setup.disk.volatile_cache());
    let disk = Rc::new(Tap::new(runtime, Modeled::new(runtime, setup.disk, store)));
    let classifier = Classifier::new();
    classifier.prime(&ram).await.map_err(MountError::from)?;
    disk.attach(classifier.clone());
    let cache =
        CacheConfig { dirty_max: setup.dirty_max, ..CacheConfig::with_capacity(setup.memory) };
    let options = MountOptions { cache, ..MountOptions::default() };
    let fs = mount(runtime, disk.clone(), policy(), &options).await?;
    fs.sync().await.map_err(CompareError::Unmount)?;
    runtime.cpu().set_model(setup.cpu);
    classifier.restart();
    let before = Mark::now(runtime, &disk, &classifier);
    let start = before.seconds;
    let mut stage =
        OnFfs { runtime: runtime.clone(), fs: Charged::calls_only(fs, runtime.clone()) };
    let mut watch = Follower {
        system,
        follow,
        disk: disk.clone(),
        classifier: classifier.clone(),
        runtime: runtime.clone(),
        marks: Vec::new(),
        phase: setup.recovery.then(|| workload.middle()),
        now: String::new(),
        seed: setup.seed,
        cut: None,
    };
    let phases = workload.run(&mut stage, setup.seed, &mut watch).await?;
    let (cut, mut marks) = (watch.cut.take(), std::mem::take(&mut watch.marks));
    stage.fs.inner().unmount().await.map_err(CompareError::Unmount)?;
    let after = Mark::now(runtime, &disk, &classifier);
    marks.push(after.clone());
    let phases = phases.into_iter().zip(marks.windows(2)).map(|(p, m)| phase_row(p, m)).collect();
    let bytes = Writes::of(&classifier.finish().writes, |c| c.bytes);
    let row = row(system, workload, setup, (phases, bytes), before, after);
    let cut = cut.map(|c| Cut { at_seconds: c.at_seconds - start, ..c });
    Ok((row, cut))
}

/// The clocks and counters at one time.
#[derive(Clone)]
struct Mark {
    seconds: f64,
    cpu_ns: u64,
    disk: DiskStats,
    writes: Writes,
    sync_waits: u64,
}

impl Mark {
    fn now(runtime: &Runtime, disk: &Disk, classifier: &Classifier) -> Mark {
        let stats = classifier.stats();
        Mark {
            seconds: runtime.now().as_secs_f64(),
            cpu_ns: runtime.cpu().total_ns(),
            disk: disk.inner().stats(),
            writes: Writes::of(&stats.writes, |c| c.requests),
            sync_waits: stats.writes.total().sync,
        }
    }
}

fn phase_row(phase: Phase, marks: &[Mark]) -> PhaseRow {
    let (before, after) = (&marks[0], &marks[1]);
    PhaseRow {
        phase,
        writes: after.writes.since(&before.writes),
        sync_waits: after.sync_waits - before.sync_waits,
        reads: after.disk.reads - before.disk.reads,
        disk_seconds: (after.disk.busy_ns - before.disk.busy_ns) as f64 / 1e9,
    }
}

fn row(
    system: &str,
    workload: &Workload,
    setup: &Setup,
    (phases, bytes_written_by_kind): (Vec<PhaseRow>, Writes),
    before: Mark,
    after: Mark,
) -> Row {
    let since = |what: fn(&DiskStats) -> u64| what(&after.disk) - what(&before.disk);
    Row {
        system: system.to_string(),
        workload: workload.to_string(),
        app_seconds: phases.iter().map(|p| p.phase.seconds()).sum(),
        total_seconds: after.seconds - before.seconds,
        disk_seconds: since(|d| d.busy_ns) as f64 / 1e9,
        cpu_seconds: (after.cpu_ns - before.cpu_ns) as f64 / 1e9,
        requests: since(|d| d.requests),
        writes: after.writes.since(&before.writes),
        sync_waits: after.sync_waits - before.sync_waits,
        reads: since(|d| d.reads),
        flushes: since(|d| d.flushes),
        bytes_written: since(|d| d.bytes_written),
        bytes_read: since(|d| d.bytes_read),
        bytes_written_by_kind,
        files_made: phases.iter().map(|p| p.phase.files_made).sum(),
        phases,
        recovery: None,
        disk: setup.disk.name.to_string(),
        cpu: setup.cpu.name.to_string(),
        seed: setup.seed,
    }
}
