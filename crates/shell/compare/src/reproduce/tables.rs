//! The measurements of the items.

use super::journaling::data_before_inode;
use super::{Item, ReproductionRow, RowKind, published, same_winner, value};
use crate::crash::{CrashWork, subject};
use crate::{CompareError, ComparisonSetup, Follow, run};
use ordo_crash::{Budget, Config, CrashModel, FsGeometry, Script};
use ordo_systems::{System, ffs, journaled};
use ordo_workload::Workload;

/// The systems, by their names in the figures.
pub(super) const SYSTEMS: [(&str, System); 7] = [
    ("ffs", ffs::SYNC),
    ("soft_updates", ffs::SOFT_UPDATES),
    ("lffs_file", journaled::FILE),
    ("wafs_1sync", journaled::WAFS_1SYNC),
    ("wafs_1async", journaled::WAFS_1ASYNC),
    ("wafs_2sync", journaled::WAFS_2SYNC),
    ("wafs_2async", journaled::WAFS_2ASYNC),
];

pub(super) type Measured = crate::ComparisonRow;

pub(super) fn measure(
    system: System,
    workload: &str,
    setup: &ComparisonSetup,
    follow: &mut dyn Follow,
) -> Result<Measured, CompareError> {
    let workload: Workload = workload.parse().expect("a workload of ours");
    let setup = ComparisonSetup { recovery: false, ..setup.clone() };
    run(system, &workload, &setup, follow)
}

/// The seconds of a phase, by the beginning of its name.
pub(super) fn phase(row: &Measured, name: &str) -> f64 {
    let of = row.phases.iter().filter(|p| p.phase.name.starts_with(name));
    of.map(|p| p.phase.seconds()).sum()
}

/// A table of times relative to FFS-async.
struct Relative {
    workload: &'static str,
    table: &'static str,
    phases: &'static [&'static str],
    /// Whether the seconds of FFS-async are a parameter of the workload: the computing of its
    /// programs.
    seconds_are_input: bool,
}

/// The rows of a table: the time of FFS-async over that of each system, in each phase. 1 is as
/// fast, more is faster.
fn relative(
    item: &Item,
    follow: &mut dyn Follow,
    table: &Relative,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let Relative { workload, table: path, phases, seconds_are_input } = *table;
    let setup = ComparisonSetup::journaling();
    let all = |row: &Measured| phases.iter().map(|name| phase(row, name)).sum::<f64>();
    let none = measure(ffs::NONE, workload, &setup, follow)?;
    let mut rows = Vec::new();
    let key = |system: &str, name: &str| value(&format!("{path}.{system}.{name}"));
    let seconds =
        |name: &str, row: &Measured| if name == "total" { all(row) } else { phase(row, name) };
    for name in phases.iter().copied().chain(["total"]) {
        let both = (key("ffs_async_seconds", name), seconds(name, &none));
        let quantity = format!("{name}, seconds");
        rows.push(match seconds_are_input {
            true => item.input("ffs-none", quantity, both),
            false => item.row("ffs-none", quantity, both, None),
        });
    }
    let mut sync_writes = 0.0;
    for (named, system) in SYSTEMS {
        let row = measure(system, workload, &setup, follow)?;
        for name in phases.iter().copied().chain(["total"]) {
            let ratio = seconds(name, &none) / seconds(name, &row);
            let published = key(named, name);
            let same = same_winner((published, 1.0), (ratio, 1.0));
            let quantity = format!("{name}, to FFS-async");
            rows.push(item.row(system.name(), quantity, (published, ratio), same));
        }
        if system == ffs::SYNC {
            sync_writes = row.writes.total() as f64;
        }
        if system == ffs::SOFT_UPDATES {
            if path.ends_with("netnews") {
                let extra = 100.0 * (row.writes.total() as f64 / sync_writes - 1.0);
                let published = value(&format!("{path}.soft_updates_extra_writes_percent"));
                let same = Some(((extra > 0.0) == (published > 0.0)).into());
                let quantity = "more writes than FFS, percent";
                rows.push(item.row(system.name(), quantity, (published, extra), same));
            }
            rows.extend(data_before_inode(item, follow, workload, (&row, &none))?);
        }
    }
    Ok(rows)
}

pub(super) fn ssh(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let table = Relative {
        workload: "ssh-build",
        table: "journaling_vs_soft_updates.ssh",
        phases: &["unpack", "config", "build"],
        seconds_are_input: true,
    };
    relative(item, follow, &table)
}

pub(super) fn netnews(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let table = Relative {
        workload: "netnews",
        table: "journaling_vs_soft_updates.netnews",
        phases: &["unbatch", "expire"],
        seconds_are_input: false,
    };
    relative(item, follow, &table)
}

/// Table 2, judged by crash states instead of by argument. 1 stands for yes.
pub(super) fn semantics(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    /// The number of states for each system.
    const STATES: usize = 4000;
    let script = CrashWork::Script(Script::random(1, 3, 120));
    let budget = Budget { states: STATES, usable_every: 0, recovery_every: 0, ..Budget::default() };
    let mut rows = Vec::new();
    for (named, system) in SYSTEMS.into_iter().chain([("ffs_async", ffs::NONE)]) {
        follow.phase_start(system.name(), "crash states");
        let subject = subject(system, None, &FsGeometry::default())?;
        let recorded = subject.record(&script, &Config::new(1, CrashModel::Volatile));
        let counts =
            subject.explore(&recorded.expect("the script runs on every system"), 1, &budget).counts;
        let properties = [
            ("synchronous_metadata", counts.lost_returned == 0),
            ("asynchronous_metadata", counts.lost_returned > 0),
            ("atomic_updates", counts.not_atomic == 0),
            ("data_before_inode", counts.stale == 0),
            ("full_scan_recovery", counts.unsound > 0),
            ("may_be_unrecoverable", counts.unresolvable > 0),
        ];
        for (property, seen) in properties {
            let listed = published::names(
                &format!("journaling_vs_soft_updates.semantics.{property}"),
                named,
            );
            // For FFS-async the table has only one property: it may be unrecoverable.
            if named == "ffs_async" && property != "may_be_unrecoverable" {
                continue;
            }
            let both = (f64::from(u8::from(listed)), f64::from(u8::from(seen)));
            let quantity = property.replace('_', " ");
            let row = item.row(system.name(), quantity, both, Some((listed == seen).into()));
            rows.push(ReproductionRow { kind: RowKind::Property, ..row });
        }
    }
    Ok(rows)
}

/// The systems of a table of "Soft Updates", by their names there. Each is compared with the first.
const BESIDE_NO_ORDER: [(&str, System); 4] = [
    ("no_order", ffs::NONE),
    ("soft_updates", ffs::SOFT_UPDATES),
    ("conventional", ffs::SYNC),
    ("logging_ffs", journaled::FILE),
];

/// One quantity of all systems on the paper's own machine, compared with no order.
fn beside_no_order(
    item: &Item,
    follow: &mut dyn Follow,
    systems: &[(&str, System)],
    (workload, table, quantity): (&str, &str, &str),
    of: fn(&Measured) -> f64,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let mut rows = Vec::new();
    let mut none = None;
    for (named, system) in systems.iter().copied() {
        let row = measure(system, workload, &ComparisonSetup::papers(), follow)?;
        let both = (value(&format!("{table}.{named}")), of(&row));
        let (published, measured) = *none.get_or_insert(both);
        let same = same_winner((both.0, published), (both.1, measured));
        let same = same.filter(|_| system != ffs::NONE);
        rows.push(item.row(system.name(), quantity, both, same));
    }
    Ok(rows)
}

/// Transactions a second under PostMark.
pub(super) fn postmark_rate(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let rate = |row: &Measured| {
        let transactions = row.phases.iter().find(|p| p.phase.name.starts_with("transactions"));
        transactions.and_then(|p| p.phase.rate()).unwrap_or(0.0)
    };
    let what = ("postmark", "soft_updates.postmark", "transactions a second");
    let mut rows = beside_no_order(item, follow, &BESIDE_NO_ORDER, what, rate)?;
    let of = |system: System| {
        let found = rows.iter().find(|row| row.system == system.name());
        found.map(|row| row.measured).expect("every system has a row")
    };
    let over = 100.0 * (of(ffs::SOFT_UPDATES) / of(journaled::FILE) - 1.0);
    let published = value("soft_updates.postmark.soft_updates_over_logging_percent");
    let same = same_winner((100.0 + published, 100.0), (100.0 + over, 100.0));
    let quantity = "above the journal, percent";
    rows.push(item.row(ffs::SOFT_UPDATES.name(), quantity, (published, over), same));
    Ok(rows)
}

/// Disk writes for each created file of 2 KB to 64 KB.
pub(super) fn create_writes(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let each = |row: &Measured| {
        let creates = || row.phases.iter().filter(|p| p.phase.name.starts_with("create"));
        let writes: u64 = creates().map(|p| p.writes.total()).sum();
        let files: u64 = creates().map(|p| p.phase.operations).sum();
        writes as f64 / files as f64
    };
    let table = "soft_updates.create_disk_writes_per_file";
    let what = ("micro:sizes=2k+4k+8k+16k+32k+64k", table, "writes for each file");
    beside_no_order(item, follow, &BESIDE_NO_ORDER[..3], what, each)
}

/// Section 3.5: rewrites after rollbacks, and how the order of writing back reduces them; removes
/// for each write.
pub(super) fn tuning(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let system = ffs::SOFT_UPDATES;
    // The cache is smaller than the data, so that blocks are reclaimed.
    let with = |write_order| ComparisonSetup {
        memory: 4 << 20,
        dirty_max: 1 << 20,
        write_order,
        ..ComparisonSetup::papers()
    };
    let mut share = Vec::new();
    let mut count = Vec::new();
    for order in [(false, false), (true, false), (true, true)] {
        let row = measure(system, "postmark", &with(order), follow)?;
        share.push(100.0 * row.rewritten as f64 / row.writes.total() as f64);
        count.push(row.rewritten as f64);
    }
    let mut rows = Vec::new();
    let key = |name: &str| format!("soft_updates.tuning.{name}");
    let before = published::figures();
    let before = before.iter().find(|(path, _)| *path == key("useless_writes_before_percent"));
    let most =
        before.and_then(|(_, v)| v.as_array()?.last()?.as_integer()).expect("it is published");
    let both = (most as f64, share[0]);
    rows.push(item.row(system.name(), "useless writes at first, percent", both, None));
    let removed = 100.0 * (1.0 - count[1] / count[0]);
    let figure = value(&key("useless_writes_removed_by_syncer_order_percent"));
    let quantity = "removed by the order, percent, least";
    rows.push(item.row(
        system.name(),
        quantity,
        (figure, removed),
        Some((removed >= figure).into()),
    ));
    let left = 100.0 * count[2] / count[0];
    let quantity = "left with the cache's choice, most";
    rows.push(item.row(system.name(), quantity, (25.0, left), Some((left <= 25.0).into())));
    let row = measure(system, "micro:sizes=2k", &ComparisonSetup::papers(), follow)?;
    let deletes = row.phases.iter().find(|p| p.phase.name.starts_with("delete"));
    let deletes = deletes.expect("the workload deletes");
    let each = deletes.phase.operations as f64 / deletes.writes.total().max(1) as f64;
    let figure = value(&key("removes_per_disk_write_steady_state"));
    rows.push(item.row(
        system.name(),
        "removes for each write, about",
        (figure, each),
        Some((each >= figure).into()),
    ));
    Ok(rows)
}
