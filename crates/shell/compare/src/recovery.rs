//! Recovery after the power cut.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::model::Modeled;
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_check::{Repair, Severity};
use ordo_runtime::{Executor, Runtime, Time};
use ordo_systems::{CheckOptions, MountOptions, System, ffs};

use super::lost::{Lost, NameChanges};
use super::stack::{Cut, Store, age_first};
use super::{CompareError, ComparisonSetup, Follow};

/// A check with repair of the disk, as a power cut in the middle of the run left it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct RecoveryTime {
    /// The time of the cut, in seconds after the start.
    pub cut_at_seconds: f64,
    /// The time of check and repair on the same disk, in seconds.
    pub seconds: f64,
    /// Findings by severity: `counts-only`, `leak-only`, `damage`.
    pub findings: BTreeMap<Severity, u64>,
    /// The numbers of findings, by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// The kinds among them that could lose or mix up data.
    pub damage_kinds: BTreeMap<&'static str, u64>,
    /// The findings that no repair removes.
    pub unrepairable: u64,
    /// Whether a second check finds nothing.
    pub consistent_afterwards: bool,
    /// Read requests.
    pub reads: u64,
    /// The number of bytes read.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// The number of inodes in use after the repair.
    pub files: u64,
    /// The age, at the power cut, of the oldest lost change of a name, a size or contents, in
    /// seconds. `None` if no change is lost.
    pub oldest_lost_seconds: Option<f64>,
    /// The change that was lost, in words.
    pub oldest_lost: Option<String>,
    /// The file system's own check after it was made usable, for one of the kernel's. `findings`
    /// then has one fault if it fails.
    pub own_check: Option<OwnCheck>,
}

/// The verdict after a power cut of the file system's own program, or of the kernel that cannot
/// mount it or read its files.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct OwnCheck {
    /// The program, `mount` or `reading its files`.
    pub program: String,
    /// Whether it finds nothing.
    pub is_clean: bool,
    /// Its words.
    pub said: String,
}

/// Checks and repairs the disk after the cut, on a disk of the same model.
pub(super) fn check(
    cut: Cut,
    system: System,
    setup: &ComparisonSetup,
    follow: &mut dyn Follow,
) -> Result<RecoveryTime, CompareError> {
    let executor = Executor::simulated(setup.seed);
    let runtime = executor.runtime();
    runtime.cpu().set_model(setup.cpu);
    let disks: Vec<Device> = cut
        .images
        .into_iter()
        .enumerate()
        .map(|(number, image)| {
            let model = setup.model(system, number);
            let store = Store::new(Rc::new(image), model);
            Modeled::new(&runtime, model, store).erase()
        })
        .collect();
    let mut replay = None;
    if system.recovers() {
        replay = Some(executor.block_on(replayed(&runtime, &disks, system))??);
    }
    let reached = Rc::new(RefCell::new((0, 0)));
    let told = reached.clone();
    let options = CheckOptions {
        repair: Repair::Yes,
        progress: Some(Rc::new(move |_, done, total| *told.borrow_mut() = (done, total))),
        ..CheckOptions::default()
    };
    let report = executor.block_on(system.format().check(&disks, &options))??;
    // A file system with a log needs no repair. Its findings count, but the time of the check does
    // not.
    let seconds = replay.unwrap_or_else(|| runtime.now().as_secs_f64());
    let (done, total) = *reached.borrow();
    follow.progress(done, total);
    let again = executor.block_on(system.format().check(&disks, &CheckOptions::default()))??;
    let lost = oldest_lost(&runtime, &disks, system, (&cut.changes, cut.at));
    let lost = executor.block_on(lost)??;
    let (mut kinds, mut damage_kinds) = (BTreeMap::new(), BTreeMap::new());
    for (kind, severity) in report.kinds() {
        *kinds.entry(kind).or_default() += 1;
        if severity == Severity::Damage {
            *damage_kinds.entry(kind).or_default() += 1;
        }
    }
    let work = report.work();
    Ok(RecoveryTime {
        cut_at_seconds: cut.at_seconds,
        seconds,
        findings: report.counts().clone(),
        kinds,
        damage_kinds,
        unrepairable: report.unrepairable(),
        consistent_afterwards: again.is_consistent(),
        reads: work.reads,
        bytes_read: work.bytes_read,
        writes: work.writes,
        files: report.files(),
        oldest_lost_seconds: lost.as_ref().map(|lost| lost.seconds),
        oldest_lost: lost.map(|lost| lost.what),
        own_check: None,
    })
}

/// The way in which a file system is made usable after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeUsable {
    /// By a check and repair of the whole file system.
    ByCheck,
    /// By a mount alone.
    ByMount,
}

/// Makes a system, ages it where the setup asks for it, mounts it, and halts the machine. Returns
/// the seconds of virtual time until it can be used again.
///
/// # Errors
/// [`CompareError`]; a system that needs a check cannot be made usable by a mount.
pub fn until_usable(
    system: System,
    how: MadeUsable,
    setup: &ComparisonSetup,
    follow: &mut dyn Follow,
) -> Result<f64, CompareError> {
    let bytes = setup.size.unwrap_or_else(|| setup.disk.bytes());
    let sizes = system.devices(bytes, setup.block_size);
    let rams: Vec<_> = sizes.into_iter().map(|bytes| Rc::new(RamDisk::new(bytes))).collect();
    let executor = Executor::simulated(setup.seed);
    let runtime = executor.runtime();
    let mounted = executor.block_on(async {
        system.make(&runtime, &Device::of_each(&rams), &setup.make_options()).await?;
        age_first(&runtime, system, &rams, setup, follow).await?;
        let options = setup.mount_options(system);
        let mounted = system.mount(&runtime, &Device::of_each(&rams), &options).await?;
        drop(mounted);
        Ok::<_, CompareError>(())
    });
    mounted??;
    drop((runtime, executor));
    let executor = Executor::simulated(setup.seed);
    let runtime = executor.runtime();
    runtime.cpu().set_model(setup.cpu);
    let disks = rams.into_iter().enumerate();
    let disks = disks.map(|(n, ram)| Modeled::new(&runtime, setup.model(system, n), ram).erase());
    let disks: Vec<Device> = disks.collect();
    executor.block_on(async {
        match how {
            MadeUsable::ByMount => {
                system.mount(&runtime, &disks, &setup.mount_options(system)).await?;
            }
            MadeUsable::ByCheck => {
                let options = CheckOptions { repair: Repair::Yes, ..CheckOptions::default() };
                system.format().check(&disks, &options).await?;
            }
        }
        Ok(runtime.now().as_secs_f64())
    })?
}

/// The oldest change that the repaired file system lacks.
async fn oldest_lost(
    runtime: &Runtime,
    disks: &[Device],
    system: System,
    (changes, cut): (&NameChanges, Time),
) -> Result<Option<Lost>, CompareError> {
    // A file system that no repair makes consistent is mounted nevertheless, to see what is left in
    // it.
    let options = MountOptions { force: true, ..MountOptions::default() };
    let without_order = ffs::NONE;
    let is_ffs = system.format().name() == without_order.format().name();
    let mounted = match is_ffs {
        true => without_order.mount(runtime, disks, &options).await?,
        false => system.format().read(runtime, disks, &options).await?,
    };
    changes.oldest_lost(mounted.fs(), cut).await.map_err(CompareError::Unmount)
}

/// Recovers by replaying the log, and unmounts. Returns the seconds until the file system could be
/// used.
async fn replayed(
    runtime: &Runtime,
    disks: &[Device],
    system: System,
) -> Result<f64, CompareError> {
    let mounted = system.mount(runtime, disks, &MountOptions::default()).await?;
    let seconds = runtime.now().as_secs_f64();
    mounted.unmount().await.map_err(CompareError::Unmount)?;
    Ok(seconds)
}
