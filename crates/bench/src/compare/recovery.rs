//! What has to be done after the power cut.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::model::Modeled;
use ordo_block::{BlockDevice, Device};
use ordo_check::{Checker, Options, Repair, Severity};
use ordo_ffs::{MountOptions, mount};
use ordo_ordering::NoOrder;
use ordo_runtime::{Executor, Runtime, Time};

use super::lost::{Changes, Lost};
use super::stack::{Cut, Store};
use super::{CompareError, Follow, Setup};
use crate::journaled::Journaled;

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
    journal: Option<Journaled>,
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
    let disk = disks[0].clone();
    let mut replay = None;
    if let Some(journal) = journal {
        replay = Some(executor.block_on(replayed(&runtime, &disks, journal))??);
    }
    let options = Options { repair: Repair::Yes, ..Options::default() };
    let reached = Rc::new(RefCell::new((0, 0)));
    let told = reached.clone();
    let checker = Checker::new(disk.clone(), options)
        .on_progress(Rc::new(move |_, done, total| *told.borrow_mut() = (done, total)));
    let report = executor.block_on(checker.run())??;
    // With a log nothing is left to be repaired: what is found counts, and its time does not.
    let seconds = replay.unwrap_or_else(|| runtime.now().as_secs_f64());
    let (done, total) = *reached.borrow();
    follow.progress(done, total);
    let again = executor.block_on(Checker::new(disk.clone(), Options::default()).run())??;
    let lost = executor.block_on(oldest_lost(&runtime, disk, &cut.changes, cut.at))??;
    let (mut kinds, mut damage_kinds) = (BTreeMap::new(), BTreeMap::new());
    for finding in &report.findings {
        *kinds.entry(finding.kind()).or_default() += 1;
        if report.severity(finding) == Severity::Damage {
            *damage_kinds.entry(finding.kind()).or_default() += 1;
        }
    }
    Ok(Recovery {
        cut_at_seconds: cut.at_seconds,
        seconds,
        findings: report.counts,
        kinds,
        damage_kinds,
        unrepairable: report.unrepairable,
        consistent_afterwards: again.is_consistent(),
        reads: report.work.reads,
        bytes_read: report.work.bytes_read,
        writes: report.work.writes,
        files: report.files,
        oldest_lost_seconds: lost.as_ref().map(|lost| lost.seconds),
        oldest_lost: lost.map(|lost| lost.what),
    })
}

/// The oldest change that the repaired file system lacks.
async fn oldest_lost(
    runtime: &Runtime,
    disk: Device,
    changes: &Changes,
    cut: Time,
) -> Result<Option<Lost>, CompareError> {
    // What no repair makes whole is mounted all the same: the question is what is there.
    let options = MountOptions { force: true, ..MountOptions::default() };
    let fs = mount(runtime, disk, NoOrder, &options).await?;
    changes.oldest_lost(&fs, cut).await.map_err(CompareError::Unmount)
}

/// Recovers by replaying the log, and unmounts; the seconds until the file system could be used.
async fn replayed(
    runtime: &Runtime,
    disks: &[Device],
    journal: Journaled,
) -> Result<f64, CompareError> {
    let (fs, _) = journal.mount(runtime, disks, &MountOptions::default()).await?;
    let seconds = runtime.now().as_secs_f64();
    fs.unmount().await.map_err(CompareError::Unmount)?;
    Ok(seconds)
}
