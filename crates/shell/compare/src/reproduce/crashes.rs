//! The measurements of "Soft Updates" (2000) after a crash: section 4.4 and Table III.

use ordo_check::Severity;
use ordo_systems::{System, ffs};

use super::{Item, ReproductionRow, same_winner, value};
use crate::{CompareError, ComparisonSetup, Follow, MadeUsable, RecoveryTime, run, until_usable};
use ordo_workload::Workload;
use ordo_workload::age::{ChurnOptions, Profile};

/// The number of trials of each system.
const TRIALS: u64 = 25;
/// The times of the trials are this part of a phase apart, modulo one: any number of them is spread
/// evenly over the phase.
const STRIDE: f64 = 0.618_033_988_749_895;
/// The workload in the middle of which the machine is halted.
const HALTED: &str = "postmark";

/// Halts the machine in each trial at another time, and checks the disk.
fn trials(system: System, follow: &mut dyn Follow) -> Result<Vec<RecoveryTime>, CompareError> {
    let workload: Workload = HALTED.parse().expect("a workload of ours");
    let trial = |n: u64| {
        let cut_at = (n as f64 * STRIDE).fract();
        let setup = ComparisonSetup { seed: n, cut_at, ..ComparisonSetup::papers() };
        let row = run(system, &workload, &setup, follow)?;
        Ok(row.recovery.expect("the workload has a phase to be cut"))
    };
    (1..=TRIALS).map(trial).collect()
}

/// The percentage of the trials for which `holds`.
fn percent(trials: &[RecoveryTime], holds: impl Fn(&RecoveryTime) -> bool) -> f64 {
    100.0 * trials.iter().filter(|trial| holds(trial)).count() as f64 / trials.len() as f64
}

/// Whether the disk could not be used without a repair.
fn is_damaged(trial: &RecoveryTime) -> bool {
    trial.findings.get(&Severity::Damage).is_some_and(|count| *count > 0)
}

/// Whether a repair has to guess, or cannot repair everything.
fn is_unresolvable(trial: &RecoveryTime) -> bool {
    trial.unrepairable > 0 || ffs::GUESSED.iter().any(|kind| trial.kinds.contains_key(kind))
}

/// Section 4.4: the state of the disk after 25 halts at random times.
pub(super) fn halted(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let figure = |name: &str| value(&format!("soft_updates.crash_trials.{name}"));
    let [sync, soft, none] =
        [ffs::SYNC, ffs::SOFT_UPDATES, ffs::NONE].map(|system| trials(system, follow));
    let (sync, soft, none) = (sync?, soft?, none?);
    let inconsistent = percent(&soft, is_damaged);
    let published = figure("soft_updates_inconsistent_percent");
    let mut rows = vec![item.row(
        ffs::SOFT_UPDATES.name(),
        "inconsistent, percent of trials",
        (published, inconsistent),
        Some((inconsistent <= published).into()),
    )];
    let published = figure("needs_fsck_percent");
    for (system, all) in [(ffs::SYNC, &sync), (ffs::NONE, &none)] {
        let needs = percent(all, is_damaged);
        let same = same_winner((published, 50.0), (needs, 50.0));
        rows.push(item.row(system.name(), "a repair is needed, percent", (published, needs), same));
    }
    let published = figure("no_order_unresolvable_percent");
    let unresolvable = percent(&none, is_unresolvable);
    rows.push(item.row(
        ffs::NONE.name(),
        "the repair must guess, percent",
        (published, unresolvable),
        Some(((unresolvable > 0.0) == (published > 0.0)).into()),
    ));
    Ok(rows)
}

/// The profile of the files that fill the file system of Table III.
const PROFILE: &str = "agrawal";
/// The share of the space in use.
const FULL: f64 = 0.76;

/// Table III: the seconds until a file system of 4.5 GB can be used again, empty and full.
pub(super) fn recovery_times(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let figure = |name: &str| value(&format!("soft_updates.recovery_seconds.{name}"));
    let profile = Profile::find(PROFILE).expect("a profile of ours");
    let filled = ChurnOptions { utilisation: FULL, overwrites: 0.0, ..ChurnOptions::new(profile) };
    let mut rows = Vec::new();
    for (words, name, ageing) in
        [("empty", "empty", None), ("76 % full", "full_76_percent", Some(filled))]
    {
        let papers = ComparisonSetup::papers();
        let setup = ComparisonSetup { size: Some(papers.disk.bytes()), ageing, ..papers };
        let check = until_usable(ffs::SYNC, MadeUsable::ByCheck, &setup, follow)?;
        let mount = until_usable(ffs::SOFT_UPDATES, MadeUsable::ByMount, &setup, follow)?;
        let check_published = figure(&format!("conventional.{name}"));
        let mount_published = figure(&format!("soft_updates.{name}"));
        let same = same_winner((mount_published, check_published), (mount, check));
        let both = (check_published, check);
        rows.push(item.row(ffs::SYNC.name(), format!("check, {words}, seconds"), both, None));
        let both = (mount_published, mount);
        rows.push(item.row(
            ffs::SOFT_UPDATES.name(),
            format!("mount, {words}, seconds"),
            both,
            same,
        ));
    }
    Ok(rows)
}
