//! The measurements of "Soft Updates" (2000) of workloads of many clients.

use ordo_systems::{System, ffs, journaled};

use super::published::values;
use super::tables::{Measured, measure, phase};
use super::{Item, ReproductionRow, same_winner, value};
use crate::{CompareError, ComparisonSetup, Follow};

/// The numbers of users at once. The paper's figures have one, and others up to 20.
const USERS: [u64; 5] = [1, 5, 10, 15, 20];

/// Sections 4.3 and 4.5: scripts an hour of an SDET-like workload, compared between systems for
/// each number of users.
pub(super) fn sdet_like(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let mut rates = |system: System| {
        let of = |users: &u64| {
            let workload = format!("sdet-like:users={users}");
            let row = measure(system, &workload, &ComparisonSetup::papers(), follow)?;
            Ok(*users as f64 * 3600.0 / phase(&row, "scripts"))
        };
        USERS.iter().map(of).collect::<Result<Vec<f64>, CompareError>>()
    };
    let none = rates(ffs::NONE)?;
    let sync = rates(ffs::SYNC)?;
    let soft = rates(ffs::SOFT_UPDATES)?;
    let logging = rates(journaled::FILE)?;
    let key = |name: &str| format!("soft_updates.sdet.{name}");
    let mut rows = Vec::new();

    let below = |rates: &[f64]| -> Vec<f64> {
        rates.iter().zip(&none).map(|(rate, none)| 100.0 * (1.0 - rate / none)).collect()
    };
    let over: Vec<f64> = soft.iter().zip(&sync).map(|(a, sync)| a / sync).collect();
    let worst = most(&below(&soft));
    let figure = value(&key("soft_updates_within_percent_of_no_order"));
    let quantity = "below no order, percent, at most";
    let name = ffs::SOFT_UPDATES.name();
    rows.push(item.row(name, quantity, (figure, worst), Some((worst <= figure).into())));
    let both = (value(&key("no_concurrency_vs_conventional")), over[0]);
    let same = same_winner((both.0, 1.0), (both.1, 1.0));
    rows.push(item.row(name, "to FFS, 1 user", both, same));
    let both = (value(&key("concurrent_vs_conventional")), least(&over[1..]));
    let same = same_winner((both.0, 1.0), (both.1, 1.0));
    rows.push(item.row(name, "to FFS, 5 to 20 users, least", both, same));

    let name = journaled::FILE.name();
    let over: Vec<f64> = logging.iter().zip(&sync).map(|(a, sync)| a / sync).collect();
    let figures = values(&key("logging_vs_conventional"));
    for (n, (which, ratio)) in
        [("least", least(&over)), ("most", most(&over))].into_iter().enumerate()
    {
        let same = same_winner((figures[n], 1.0), (ratio, 1.0));
        let quantity = format!("to FFS, 1 to 20 users, {which}");
        rows.push(item.row(name, quantity, (figures[n], ratio), same));
    }
    let figures = values(&key("logging_below_no_order_percent"));
    let all = below(&logging);
    for (n, (which, percent)) in
        [("least", least(&all)), ("most", most(&all))].into_iter().enumerate()
    {
        let same = same_winner((100.0 - figures[n], 100.0), (100.0 - percent, 100.0));
        let quantity = format!("below no order, percent, {which}");
        rows.push(item.row(name, quantity, (figures[n], percent), same));
    }
    let over: Vec<f64> =
        soft.iter().zip(&logging).map(|(soft, log)| 100.0 * (soft / log - 1.0)).collect();
    let figures = values("soft_updates.over_logging_percent");
    for (n, (which, percent)) in
        [("least", least(&over)), ("most", most(&over))].into_iter().enumerate()
    {
        let same = same_winner((100.0 + figures[n], 100.0), (100.0 + percent, 100.0));
        let quantity = format!("above the journal, percent, {which}");
        rows.push(item.row(ffs::SOFT_UPDATES.name(), quantity, (figures[n], percent), same));
    }
    Ok(rows)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The writes of a day by their kind: those that somebody waits for, and the others.
fn by_kind(row: &Measured) -> (f64, f64) {
    let phase = row.phases.iter().find(|p| p.phase.name == "mail").expect("the workload has it");
    (phase.sync_waits as f64, (phase.writes.total() - phase.sync_waits) as f64)
}

/// Table II: the writes of a mail server in 24 hours. The load is not published, so the counts are
/// compared in relation to each other only.
pub(super) fn mail_server(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let figure = |system: &str| {
        let of = |kind| value(&format!("soft_updates.mail_server_writes_per_day.{system}.{kind}"));
        (of("sync"), of("async"))
    };
    let mut rows = Vec::new();
    let mut first: Option<[(f64, f64); 2]> = None;
    for (named, system) in [("conventional", ffs::SYNC), ("soft_updates", ffs::SOFT_UPDATES)] {
        let row = measure(system, "mail-server", &ComparisonSetup::papers(), follow)?;
        let [published, measured] = [figure(named), by_kind(&row)];
        let share = (published.1 / published.0, measured.1 / measured.0);
        let quantity = "asynchronous writes for each synchronous one";
        rows.push(item.row(system.name(), quantity, share, None));
        let Some([before, here]) = first.replace([published, measured]) else { continue };
        let of = |now: f64, before: f64| now / before;
        for (quantity, published, measured) in [
            ("writes, to FFS", all(published) / all(before), all(measured) / all(here)),
            ("synchronous writes, to FFS", of(published.0, before.0), of(measured.0, here.0)),
        ] {
            let same = same_winner((published, 1.0), (measured, 1.0));
            rows.push(item.row(system.name(), quantity, (published, measured), same));
        }
    }
    Ok(rows)
}

fn all((sync, other): (f64, f64)) -> f64 {
    sync + other
}
