//! The stack under a file system, and a run on it.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::model::{DiskStats, Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::tap::Tap;
use ordo_block::volatile::{Loss, VolatileCache};
use ordo_block::{BlockDevice, BlockError, Device, Geometry, IoBuf, WriteFlags};
use ordo_runtime::{Runtime, Time};
use ordo_systems::{CleanerStatistics, Mounted, Statistics, System};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::{AnyFs, FileSystem, FsResult, NewNode};
use ordo_watcher::{TrafficCounts, Watch};

use super::lost::{CallCounts, NameChanges, Noted, Notes};
use super::row::{
    AgedRow, CleanerRow, ComparisonRow, DependencyRow, FsyncRow, LogRow, PhaseRow, Writes,
};
use super::{CompareError, ComparisonSetup, Follow};
use ordo_workload::age;
use ordo_workload::{Phase, PhaseListener, Workload, WorkloadStage};

/// The storage of a disk. It has a volatile cache, which a power cut empties, if the disk has one.
pub(super) enum Store {
    Plain(Rc<RamDisk>),
    Volatile(VolatileCache<Rc<RamDisk>>),
}

impl Store {
    pub(super) fn new(ram: Rc<RamDisk>, model: &Model) -> Store {
        if !model.volatile_cache() {
            return Store::Plain(ram);
        }
        let cache = VolatileCache::new(ram);
        cache.set_unit(model.sector());
        Store::Volatile(cache)
    }

    /// The disk as a power cut now would leave it.
    fn cut(&self, seed: u64) -> RamDisk {
        match self {
            Store::Plain(ram) => ram.snapshot(),
            Store::Volatile(cache) => cache.crash_image_seeded(Loss::Subset, seed),
        }
    }
}

/// Calls the same method on either kind.
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
    fn immediate(&self) -> bool {
        either!(self, d => d.immediate())
    }
}

type Disk = Rc<Tap<Modeled<Store>>>;

/// A mounted system on a stack.
struct OnStack {
    runtime: Runtime,
    fs: WithCpuCost<Noted<AnyFs>>,
    mounted: Mounted,
}

impl WorkloadStage for OnStack {
    type Fs = WithCpuCost<Noted<AnyFs>>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.mounted.drop_caches().await
    }
}

/// Passes on progress, and cuts the power once, in the phase `phase`.
struct Follower<'f> {
    system: &'static str,
    follow: &'f mut dyn Follow,
    rig: Rig,
    /// The clocks and counters at the beginning of each phase.
    marks: Vec<Mark>,
    phase: Option<String>,
    /// The part of that phase that is done at the cut.
    cut_at: f64,
    now: String,
    seed: u64,
    notes: Notes,
    cut: Option<Cut>,
}

/// The disks after a power cut, and the time of the cut, in seconds.
pub(super) struct Cut {
    pub(super) images: Vec<RamDisk>,
    pub(super) at_seconds: f64,
    /// The changes until the cut, and its time on the run's clock.
    pub(super) changes: NameChanges,
    pub(super) at: Time,
}

impl PhaseListener for Follower<'_> {
    fn phase_start(&mut self, name: &str) {
        self.now = name.to_string();
        self.marks.push(self.rig.mark());
        self.follow.phase_start(self.system, name);
    }

    fn progress(&mut self, _name: &str, done: u64, total: u64) {
        self.follow.progress(done, total);
        let is_time = done as f64 >= self.cut_at * total as f64;
        if is_time && self.cut.is_none() && self.phase.as_ref() == Some(&self.now) {
            let images = self.rig.cut(self.seed);
            let at = self.rig.runtime.now();
            let changes = self.notes.take().unwrap_or_default();
            self.cut = Some(Cut { images, at_seconds: at.as_secs_f64(), changes, at });
        }
    }
}

/// The disks of a run, the first of which has the file system, and the watchers that count their
/// requests.
pub(super) struct Rig {
    pub(super) runtime: Runtime,
    rams: Vec<Rc<RamDisk>>,
    disks: Vec<Disk>,
    watches: Vec<Rc<Watch>>,
}

impl Rig {
    /// Disks of these models over memory, with no watchers yet.
    pub(super) fn new(
        runtime: &Runtime,
        models: impl IntoIterator<Item = &'static Model>,
        rams: Vec<Rc<RamDisk>>,
    ) -> Rig {
        let stacked = models.into_iter().zip(&rams).map(|(model, ram)| {
            let store = Store::new(ram.clone(), model);
            Rc::new(Tap::new(runtime, Modeled::new(runtime, model, store)))
        });
        let disks = stacked.collect();
        Rig { runtime: runtime.clone(), rams, disks, watches: Vec::new() }
    }

    /// Counts all requests from now on, by the kinds of what the disks hold.
    pub(super) fn watch(&mut self) {
        for (disk, ram) in self.disks.iter().zip(&self.rams) {
            let watch = Watch::over_any(&**ram);
            watch.count_only();
            disk.attach(watch.clone());
            self.watches.push(watch);
        }
    }

    /// The disks, in the form that file systems take.
    pub(super) fn devices(&self) -> Vec<Device> {
        Device::of_each(&self.disks)
    }

    /// Counts from zero again.
    pub(super) fn restart(&self) {
        self.watches.iter().for_each(|watch| watch.restart());
    }

    pub(super) fn mark(&self) -> Mark {
        Mark::now(&self.runtime, &self.disks, &self.watches)
    }

    /// Reads, bytes read, and writes of all disks so far.
    pub(super) fn disk_stats(&self) -> (u64, u64, u64) {
        let stats = self.disks.iter().map(|disk| disk.inner().stats());
        stats.fold((0, 0, 0), |all, disk| {
            (all.0 + disk.reads, all.1 + disk.bytes_read, all.2 + disk.writes)
        })
    }

    /// The disks as a power cut now would leave them, each by a seed of its own.
    pub(super) fn cut(&self, seed: u64) -> Vec<RamDisk> {
        self.disks.iter().zip(seed..).map(|(disk, seed)| disk.inner().inner().cut(seed)).collect()
    }
}

/// Makes a system, runs the workload on it, and counts.
pub(super) async fn run(
    runtime: &Runtime,
    system: System,
    workload: &Workload,
    setup: &ComparisonSetup,
    follow: &mut dyn Follow,
) -> Result<(ComparisonRow, Option<Cut>), CompareError> {
    let sizes = system.devices(setup.bytes_for(workload)?, setup.block_size);
    let rams: Vec<_> = sizes.into_iter().map(|bytes| Rc::new(RamDisk::new(bytes))).collect();
    // The file system is made below the disk model, so that its making takes no time.
    system.make(runtime, &Device::of_each(&rams), &setup.make_options()).await?;
    let aged = age_first(runtime, system, &rams, setup, follow).await?;
    let models = (0..rams.len()).map(|number| setup.model(system, number));
    let mut rig = Rig::new(runtime, models, rams);
    rig.watch();
    let options = setup.mount_options(system);
    let mounted = system.mount(runtime, &rig.devices(), &options).await?;
    let Statistics { log, cleaner, .. } = mounted.statistics();
    let (before, cleaned) = (log.unwrap_or_default(), cleaner.unwrap_or_default());
    let (mut row, cut) =
        drive(rig, mounted.clone(), system.name(), workload, setup, follow).await?;
    row.aged = aged;
    let cleaner = mounted.statistics().cleaner;
    row.cleaner = cleaner.map(|cleaner| cleaner_row(setup, cleaner, cleaned));
    row.log = mounted.statistics().log.map(|log| {
        let operations = log.operations - before.operations;
        let bytes = log.bytes - before.bytes;
        LogRow {
            operations,
            bytes,
            bytes_per_operation: bytes as f64 / operations.max(1) as f64,
            writes: log.writes - before.writes,
            checkpoints: log.checkpoints - before.checkpoints,
            forced_checkpoints: log.forced_checkpoints - before.forced_checkpoints,
        }
    });
    Ok((row, cut))
}

/// The directory of the files that a system is aged with: workloads have the others.
const AGED: &[u8] = b"aged";

/// Ages a system where the setup asks for it, below the disk model, so that it takes no time.
pub(super) async fn age_first(
    runtime: &Runtime,
    system: System,
    rams: &[Rc<RamDisk>],
    setup: &ComparisonSetup,
    follow: &mut dyn Follow,
) -> Result<Option<AgedRow>, CompareError> {
    let Some(options) = &setup.ageing else { return Ok(None) };
    follow.phase_start(system.name(), "ageing");
    let disks = Device::of_each(rams);
    let mounted = system.mount(runtime, &disks, &setup.mount_options(system)).await?;
    let fs = mounted.fs();
    let top = fs.create(fs.root(), AGED, &NewNode::directory(0o755)).await;
    let top =
        top.map_err(|error| age::AgeError::FileSystem { doing: "making a directory", error })?;
    let mut progress = |done: u64, total: u64| follow.progress(done >> 20, total >> 20);
    let aged = age::age(fs, top.ino, options, &mut progress).await?;
    mounted.unmount().await.map_err(CompareError::Unmount)?;
    Ok(Some(AgedRow {
        profile: options.profile.name.clone(),
        utilisation: aged.utilisation,
        overwrites: options.overwrites,
        files: aged.files,
        score_before: aged.fresh.score(),
        score_after: aged.aged.score(),
    }))
}

fn cleaner_row(
    setup: &ComparisonSetup,
    now: CleanerStatistics,
    before: CleanerStatistics,
) -> CleanerRow {
    let counts = now.counts.since(before.counts);
    CleanerRow {
        policy: setup.cleaning.policy.name(),
        segments: counts.segments,
        idle_segments: counts.idle_segments,
        moved_bytes: counts.moved_bytes,
        read_bytes: counts.read_bytes,
        passes: counts.passes,
        waited_seconds: counts.waited_nanos as f64 / 1e9,
        checkpoints: now.checkpoints - before.checkpoints,
    }
}

/// Runs the workload on a mounted file system, and counts.
async fn drive(
    rig: Rig,
    mounted: Mounted,
    system: &'static str,
    workload: &Workload,
    setup: &ComparisonSetup,
    follow: &mut dyn Follow,
) -> Result<(ComparisonRow, Option<Cut>), CompareError> {
    let runtime = &rig.runtime.clone();
    mounted.fs().sync().await.map_err(CompareError::Unmount)?;
    runtime.cpu().set_model(setup.cpu);
    rig.restart();
    let before = rig.mark();
    let start = before.seconds;
    let notes: Notes = Rc::new(RefCell::new(setup.recovery.then(NameChanges::default)));
    let fs = Noted::new(mounted.fs().clone(), runtime.clone(), notes.clone());
    let counts = fs.counts();
    let fs = WithCpuCost::calls_only(fs, runtime.clone());
    let mut stage = OnStack { runtime: runtime.clone(), fs, mounted };
    let mut watch = Follower {
        system,
        follow,
        rig,
        marks: Vec::new(),
        phase: setup.recovery.then(|| workload.crash_phase()),
        cut_at: setup.cut_at,
        now: String::new(),
        seed: setup.seed,
        notes,
        cut: None,
    };
    let phases = workload.run(&mut stage, setup.seed, &mut watch).await?;
    let (cut, mut marks) = (watch.cut.take(), std::mem::take(&mut watch.marks));
    stage.mounted.unmount().await.map_err(CompareError::Unmount)?;
    let after = watch.rig.mark();
    marks.push(after.clone());
    let kept = stage.mounted.statistics();
    let phases = phase_rows(phases, &marks);
    let mut row = row((system, &workload.to_string()), setup, phases, (before, after), &counts);
    row.rewritten = kept.rewritten;
    row.dependencies = kept.dependencies.map(|d| DependencyRow {
        rolled_back: d.rolled_back,
        memory_peak: d.memory_peak,
        deferred_frees: d.deferred_frees,
    });
    let cut = cut.map(|c| Cut { at_seconds: c.at_seconds - start, ..c });
    Ok((row, cut))
}

/// The clocks and counters at one time, all disks together.
#[derive(Clone)]
pub(super) struct Mark {
    pub(super) seconds: f64,
    cpu_ns: u64,
    disks: Vec<DiskStats>,
    writes: Writes,
    bytes: Writes,
    sync_waits: u64,
}

impl Mark {
    fn now(runtime: &Runtime, disks: &[Disk], watches: &[Rc<Watch>]) -> Mark {
        let stats: Vec<_> = watches.iter().map(|watch| watch.finish()).collect();
        let sum = |of: fn(&TrafficCounts) -> u64| {
            let parts: Vec<_> = stats.iter().map(|s| Writes::of(&s.writes, of)).collect();
            let mut all = Writes::default();
            for class in ordo_watcher::Class::ALL {
                let n: u64 = parts.iter().map(|part| part.get(class.key())).sum();
                if n > 0 {
                    all.0.push((class.key(), n));
                }
            }
            all
        };
        Mark {
            seconds: runtime.now().as_secs_f64(),
            cpu_ns: runtime.cpu().total_ns(),
            disks: disks.iter().map(|disk| disk.inner().stats()).collect(),
            writes: sum(|c| c.requests),
            bytes: sum(|c| c.bytes),
            sync_waits: stats.iter().map(|s| s.writes.total().sync).sum(),
        }
    }

    /// A counter, added up over all disks.
    fn sum(&self, what: fn(&DiskStats) -> u64) -> u64 {
        self.disks.iter().map(what).sum()
    }
}

/// The phases, each with what the disks did between its mark and the next.
pub(super) fn phase_rows(phases: Vec<Phase>, marks: &[Mark]) -> Vec<PhaseRow> {
    phases.into_iter().zip(marks.windows(2)).map(|(p, m)| phase_row(p, m)).collect()
}

fn phase_row(phase: Phase, marks: &[Mark]) -> PhaseRow {
    let (before, after) = (&marks[0], &marks[1]);
    PhaseRow {
        phase,
        writes: after.writes.since(&before.writes),
        sync_waits: after.sync_waits - before.sync_waits,
        reads: after.sum(|d| d.reads) - before.sum(|d| d.reads),
        disk_seconds: (after.sum(|d| d.busy_ns) - before.sum(|d| d.busy_ns)) as f64 / 1e9,
        bytes_written: after.sum(|d| d.bytes_written) - before.sum(|d| d.bytes_written),
    }
}

/// The row of a run between two marks.
pub(super) fn row(
    (system, workload): (&str, &str),
    setup: &ComparisonSetup,
    phases: Vec<PhaseRow>,
    (before, after): (Mark, Mark),
    calls: &CallCounts,
) -> ComparisonRow {
    let since = |what: fn(&DiskStats) -> u64| after.sum(what) - before.sum(what);
    ComparisonRow {
        system: system.to_string(),
        workload: workload.to_owned(),
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
        bytes_written_by_kind: after.bytes.since(&before.bytes),
        log: None,
        cleaner: None,
        aged: None,
        files_made: phases.iter().map(|p| p.phase.files_made).sum(),
        phases,
        own_bytes: calls.written.get(),
        fsyncs: FsyncRow::of(&calls.fsync_ns.borrow()),
        rewritten: 0,
        dependencies: None,
        sweep: None,
        failed: None,
        recovery: None,
        disk: setup.disk.name.to_string(),
        cpu: setup.cpu.name.to_string(),
        seed: setup.seed,
    }
}
