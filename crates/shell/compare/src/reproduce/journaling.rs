//! Sections 8.2.2 to 8.2.4 of "Journaling versus Soft Updates" (2000), beside its tables: what the
//! sentences about Netnews, SDET and PostMark say.

use ordo_ordering::{SoftOptions, SoftRules};
use ordo_systems::{System, ffs, journaled};

use super::micro::is_comparable;
use super::tables::{Measured, SYSTEMS, measure, phase};
use super::{Item, ReproductionRow, same_winner, value};
use crate::{CompareError, ComparisonSetup, Follow};

/// The ratio from which on a difference is more than a tie.
const AHEAD: f64 = 1.03;

/// Section 6: the percentage by which soft updates are slower since the contents of a file come
/// before the pointers to them. `with` is the run that has the rule, `none` the one without order.
/// Section 8.2.2 says which share of the additional writes comes from it.
pub(super) fn data_before_inode(
    item: &Item,
    follow: &mut dyn Follow,
    workload: &str,
    (with, none): (&Measured, &Measured),
) -> Result<Vec<ReproductionRow>, CompareError> {
    let rules = SoftRules::all() - SoftRules::DATA_BEFORE_POINTER;
    let soft = SoftOptions { rules, ..SoftOptions::default() };
    let setup = ComparisonSetup { soft, ..ComparisonSetup::journaling() };
    let without = measure(ffs::SOFT_UPDATES, workload, &setup, follow)?;
    let name = ffs::SOFT_UPDATES.name();
    let key = |name: &str| value(&format!("journaling_vs_soft_updates.semantics_cost.{name}"));
    let percent = 100.0 * (with.app_seconds / without.app_seconds - 1.0);
    let news = item.name == "netnews";
    let published = key(if news { "netnews_percent" } else { "ssh_percent" });
    let same = same_winner((100.0 + published, 100.0), (100.0 + percent, 100.0));
    let quantity = "slower by data before inodes, percent";
    let mut rows = vec![item.row(name, quantity, (published, percent), same)];
    if news {
        let [with, without, none] = [with, &without, none].map(|row| row.writes.total() as f64);
        let share = 100.0 * (with - without) / (with - none);
        let published = key("netnews_share_of_extra_writes_percent");
        let same = same_winner((published, 50.0), (share, 50.0));
        let quantity = "more writes, from data before inodes, percent";
        rows.push(item.row(name, quantity, (published, share), same));
    }
    Ok(rows)
}

/// The numbers of users at once.
const USERS: [u64; 3] = [1, 10, 20];

/// Figure 4 has no numbers in print: the rows are the sentences about it.
pub(super) fn sdet_like(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let setup = ComparisonSetup::journaling();
    let mut rates = |system: System| -> Result<Vec<f64>, CompareError> {
        let of = |users: &u64| {
            let row = measure(system, &format!("sdet-like:users={users}"), &setup, follow)?;
            Ok(*users as f64 / phase(&row, "scripts"))
        };
        USERS.iter().map(of).collect()
    };
    let all: Vec<(System, Vec<f64>)> =
        SYSTEMS.iter().map(|(_, s)| Ok((*s, rates(*s)?))).collect::<Result<_, CompareError>>()?;
    let of = |system: System| {
        let found = all.iter().find(|(s, _)| *s == system);
        &found.expect("every system is measured").1
    };
    let synchronous = [ffs::SYNC, journaled::WAFS_1SYNC, journaled::WAFS_2SYNC];
    let journals = [journaled::FILE, journaled::WAFS_1ASYNC, journaled::WAFS_2ASYNC];
    let last = USERS.len() - 1;
    let mut rows = Vec::new();
    let best_sync = synchronous.iter().map(|s| of(*s)[last]).fold(0.0, f64::max);
    for system in journals.into_iter().chain([ffs::SOFT_UPDATES]) {
        let ratio = of(system)[last] / best_sync;
        let quantity = "20 users, to the best synchronous, more";
        rows.push(item.order(system.name(), quantity, (1.0, ratio), ratio > AHEAD));
    }
    for system in synchronous {
        let ratio = of(system)[last] / of(system)[0];
        let quantity = "20 users, to 1 user, less";
        rows.push(item.order(system.name(), quantity, (1.0, ratio), ratio < 1.0 / AHEAD));
    }
    for system in [journaled::WAFS_1SYNC, journaled::WAFS_2SYNC] {
        /// The most that stands for "minimal improvement over FFS".
        const MINIMAL: f64 = 1.2;
        let ratio = of(system)[last] / of(ffs::SYNC)[last];
        let holds = (1.0..=MINIMAL).contains(&ratio);
        let quantity = "20 users, to FFS, hardly more";
        rows.push(item.order(system.name(), quantity, (1.0, ratio), holds));
    }
    for system in journals {
        let ratio = of(ffs::SOFT_UPDATES)[last] / of(system)[last];
        let quantity = format!("20 users, to {}, more", system.name());
        rows.push(item.order(ffs::SOFT_UPDATES.name(), quantity, (1.0, ratio), ratio > 1.0));
    }
    let ratio = of(journaled::FILE)[last] / of(journaled::WAFS_1ASYNC)[last];
    let quantity = "20 users, to 1async, less";
    rows.push(item.order(journaled::FILE.name(), quantity, (1.0, ratio), ratio < 1.0 / AHEAD));
    Ok(rows)
}

/// PostMark: the seconds of FFS-async, and what section 8.2.4 says of Figure 5, whose bars have no
/// numbers.
pub(super) fn postmark(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let mut rows = Vec::new();
    for size in ["small", "large"] {
        let workload = format!("postmark:{size}");
        let mut seconds = |system: System| -> Result<f64, CompareError> {
            let row = measure(system, &workload, &ComparisonSetup::journaling(), follow)?;
            Ok(row.app_seconds)
        };
        let none = seconds(ffs::NONE)?;
        let key = format!("journaling_vs_soft_updates.postmark.ffs_async_seconds.{size}");
        let both = (value(&key), none);
        rows.push(item.row(ffs::NONE.name(), format!("{size}, seconds"), both, None));
        let soft = seconds(ffs::SOFT_UPDATES)?;
        let name = ffs::SOFT_UPDATES.name();
        for journal in [journaled::FILE, journaled::WAFS_1ASYNC, journaled::WAFS_2ASYNC] {
            let ratio = seconds(journal)? / soft;
            let (words, holds) = match size {
                "small" => ("more", ratio > AHEAD),
                _ => ("comparable", is_comparable(ratio)),
            };
            let quantity = format!("{size}, to {}, {words}", journal.name());
            rows.push(item.order(name, quantity, (1.0, ratio), holds));
        }
        let [one, two] = [journaled::WAFS_1SYNC, journaled::WAFS_2SYNC].map(&mut seconds);
        let ratio = one? / two?;
        let two = journaled::WAFS_2SYNC.name();
        let quantity = format!("{size}, to one disk, more");
        rows.push(item.order(two, quantity, (1.0, ratio), ratio > AHEAD));
        if size == "large" {
            // The conclusions, section 10.
            let ratio = none / seconds(ffs::SYNC)?;
            let published = value("journaling_vs_soft_updates.postmark.ffs_to_ffs_async");
            let same = same_winner((published, 1.0), (ratio, 1.0));
            let quantity = "large, to FFS-async";
            rows.push(item.row(ffs::SYNC.name(), quantity, (published, ratio), same));
        }
    }
    Ok(rows)
}
