//! What has to be done after the power cut.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::model::Modeled;
use ordo_block::{BlockDevice, Device};
use ordo_check::{Repair, Severity};
use ordo_runtime::{Executor, Runtime, Time};
use ordo_systems::{CheckOptions, MountOptions, System, ffs};

use super::lost::{Changes, Lost};
use super::stack::{Cut, Store};
use super::{CompareError, Follow, Setup};

/// A check with repair of the disk as a power cut half-way left it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Recovery {
    /// When the power was cut, in seconds after the start.
    pub cut_at_seconds: f64,
    /// How long check and repair took on the same disk, in seconds.
    pub seconds: f64,
    /// Findings by severity: `counts-only`, `leak-only`, `damage`.
    pub findings: BTreeMap<Severity, u64>,
    /// The first findings' kinds, and how many there were of each.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Of those, the ones that could lose or mix up data.
    pub damage_kinds: BTreeMap<&'static str, u64>,
    /// Findings that no repair makes go away.
    pub unrepairable: u64,
    /// Whether a second check finds nothing.
    pub consistent_afterwards: bool,
    /// Requests to read.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Requests to write.
    pub writes: u64,
    /// Inodes in use after the repair.
    pub files: u64,
    /// The age, at the power cut, of the oldest change that is lost, in seconds: of a name, a size or contents.
    /// `None` where nothing is.
    pub oldest_lost_seconds: Option<f64>,
    /// What that was.
    pub oldest_lost: Option<String>,
}

/// Checks and repairs the disk that is left, on a disk of the same model.
pub(super) fn check(
    cut: Cut,
    system: System,
    setup: &Setup,
    follow: &mut dyn Follow,
) -> Result<Recovery, CompareError> {
    let executor = Executor::simulated(setup.seed);
    let runtime = executor.runtime();
    runtime.cpu().set_model(setup.cpu);
    let disks: Vec<Device> = cut
        .images
        .into_iter()
        .enumerate()
        .map(|(number, image)| {
            let model = setup.model(number);
            let store = Store::new(Rc::new(image), model.volatile_cache());
            Modeled::new(&runtime, model, store).erase()
        })
        .collect();
    let mut replay = None;
    if system.journal().is_some() {
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
    // With a log nothing is left to be repaired: what is found counts, and its time does not.
    let seconds = replay.unwrap_or_else(|| runtime.now().as_secs_f64());
    let (done, total) = *reached.borrow();
    follow.progress(done, total);
    let again = executor.block_on(system.format().check(&disks, &CheckOptions::default()))??;
    let lost = executor.block_on(oldest_lost(&runtime, &disks, &cut.changes, cut.at))??;
    let (mut kinds, mut damage_kinds) = (BTreeMap::new(), BTreeMap::new());
    for (kind, severity) in report.kinds() {
        *kinds.entry(kind).or_default() += 1;
        if severity == Severity::Damage {
            *damage_kinds.entry(kind).or_default() += 1;
        }
    }
    let work = report.work();
    Ok(Recovery {
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
    })
}

/// The oldest change that the repaired file system lacks.
async fn oldest_lost(
    runtime: &Runtime,
    disks: &[Device],
    changes: &Changes,
    cut: Time,
) -> Result<Option<Lost>, CompareError> {
    // What no repair makes whole is mounted all the same: the question is what is there.
    let options = MountOptions { force: true, ..MountOptions::default() };
    let mounted = ffs::NONE.mount(runtime, disks, &options).await?;
    changes.oldest_lost(mounted.fs(), cut).await.map_err(CompareError::Unmount)
}

/// Recovers by replaying the log, and unmounts; the seconds until the file system could be used.
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
