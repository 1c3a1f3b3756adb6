//! The columns of the table, and its forms: for people, as values, and over a sweep.

use ordo_check::Severity;
use ordo_compare::{ComparisonRow, RecoveryTime};
use ordo_report::number::{count, figure};
use ordo_report::table::{Align, Table};

use super::Section;
use crate::args::SortColumn;

/// The values of a column that are marked as the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Best {
    /// None.
    Unmarked,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

/// A column of the table: its heading, its key in other forms, and its value where there is one.
struct Column {
    heading: &'static str,
    key: &'static str,
    value: fn(&ComparisonRow) -> Option<f64>,
    best: Best,
}

const fn column(
    heading: &'static str,
    key: &'static str,
    value: fn(&ComparisonRow) -> Option<f64>,
    best: Best,
) -> Column {
    Column { heading, key, value, best }
}

/// The columns of the table.
const COLUMNS: [Column; 12] = [
    column("op/s", RATE, rate, Best::Greatest),
    column("app s", APP, |r| Some(r.app_seconds), Best::Least),
    column("disk s", TOTAL, |r| Some(r.total_seconds), Best::Unmarked),
    column("writes", "writes", |r| Some(r.writes.total() as f64), Best::Unmarked),
    column("flush", "flushes", |r| Some(r.flushes as f64), Best::Unmarked),
    column("x own", "written_for_own", written_for_own, Best::Unmarked),
    column("log %", "log_percent", log_percent, Best::Unmarked),
    column(
        "sync",
        "fsync_median_ms",
        |r| Some(r.fsyncs.as_ref()?.median_seconds * 1e3),
        Best::Unmarked,
    ),
    column(
        "max",
        "fsync_longest_ms",
        |r| Some(r.fsyncs.as_ref()?.longest_seconds * 1e3),
        Best::Unmarked,
    ),
    column("lost s", "lost_seconds", |r| Some(lost(r.recovery.as_ref()?)), Best::Least),
    column("up s", "usable_seconds", |r| Some(r.recovery.as_ref()?.seconds), Best::Least),
    column("damage", "damage", |r| Some(damage(r.recovery.as_ref()?) as f64), Best::Unmarked),
];

/// The key of the application's time.
const APP: &str = "app_seconds";
/// The key of the time until everything is on disk.
const TOTAL: &str = "total_seconds";
/// The key of the rate of operations.
const RATE: &str = "operations_per_second";

/// Operations a second, of a workload that runs for a fixed time.
pub fn rate(row: &ComparisonRow) -> Option<f64> {
    let timed = row.phases.iter().find(|p| p.phase.name == "run" && !p.phase.mix.is_empty());
    timed.and_then(|p| p.phase.rate())
}

/// The meanings of the columns.
pub const LEGEND: &str = "\
app s: the program's time, or op/s: its operations a second; disk s: until all is on disk; x own:
bytes written for each byte that the program wrote; log %: the share of a log; sync, max: median and
longest wait of an fsync in milliseconds. After a power cut in the middle, lost s: age of the oldest
change that is gone; up s: until the files can be used again; damage: faults that a check finds.
* best, ! worst.
";

/// The age of the oldest change that a power cut takes, in seconds; 0 if it takes none.
pub fn lost(cut: &RecoveryTime) -> f64 {
    cut.oldest_lost_seconds.unwrap_or(0.0)
}

/// The faults that a check finds after a power cut.
pub fn damage(cut: &RecoveryTime) -> u64 {
    cut.findings.get(&Severity::Damage).copied().unwrap_or(0)
}

fn written_for_own(row: &ComparisonRow) -> Option<f64> {
    (row.own_bytes > 0).then(|| row.bytes_written as f64 / row.own_bytes as f64)
}

/// The share of the written bytes that went to a journal or log.
fn log_percent(row: &ComparisonRow) -> Option<f64> {
    let all = row.bytes_written_by_kind.total();
    let log: u64 = ordo_watcher::Class::ALL
        .iter()
        .filter(|class| class.is_journal())
        .map(|class| row.bytes_written_by_kind.get(class.key()))
        .sum();
    (all > 0).then(|| 100.0 * log as f64 / all as f64)
}

/// The most important measures of one workload, one line for each system, at most 100 columns.
pub fn summary(rows: &[&ComparisonRow]) -> Table {
    let is_timed = rows.iter().any(|row| rate(row).is_some());
    let shown = |column: &&Column| {
        !(is_timed && [APP, TOTAL].contains(&column.key))
            && rows.iter().any(|row| (column.value)(row).is_some())
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(shown).collect();
    let mut table = Table::new(&[("", Align::Left)]);
    columns.iter().for_each(|column| table.column(column.heading, Align::Right));
    for row in rows {
        let cells = columns.iter().map(|column| cell(column, row, rows));
        table.row(std::iter::once(row.system.clone()).chain(cells));
    }
    table
}

/// Values that differ by less than this share are as good as each other.
pub const ALIKE: f64 = 0.03;

fn cell(column: &Column, row: &ComparisonRow, rows: &[&ComparisonRow]) -> String {
    let Some(value) = (column.value)(row) else { return "-".into() };
    let is_count = ["writes", "flushes", "damage"].contains(&column.key);
    let text = if is_count { count(value as u64) } else { short(value) };
    let all = || rows.iter().filter_map(|row| (column.value)(row));
    let (least, most) =
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    let marks = match column.best {
        _ if least >= most * (1.0 - ALIKE) => return text,
        Best::Unmarked => return text,
        Best::Least => ["*", "!"],
        Best::Greatest => ["!", "*"],
    };
    match value {
        value if value <= least * (1.0 + ALIKE) => marks[0].to_owned() + &text,
        value if value >= most * (1.0 - ALIKE) => marks[1].to_owned() + &text,
        _ => text,
    }
}

/// A figure in at most six characters.
fn short(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value < 0.0001 => format!("{value:.0e}"),
        value if value < 0.01 => format!("{value:.4}"),
        value => figure(value),
    }
}

/// Sorts rows by a column, best first; those without a value come last.
pub fn sort(rows: &mut [ComparisonRow], column: SortColumn) {
    let key = match column {
        SortColumn::App => APP,
        SortColumn::Disk => TOTAL,
        SortColumn::Writes => "writes",
        SortColumn::Own => "written_for_own",
        SortColumn::Lost => "lost_seconds",
        SortColumn::Up => "usable_seconds",
    };
    let column = COLUMNS.iter().find(|column| column.key == key).expect("a column");
    let value = |row: &ComparisonRow| (column.value)(row).unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| value(a).total_cmp(&value(b)));
}

/// The table as comma-separated values: one line for each system and workload.
pub fn csv(rows: &[ComparisonRow]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let keys = COLUMNS.iter().map(|column| column.key);
    let mut out =
        ["system", "workload", "sweep"].into_iter().chain(keys).collect::<Vec<_>>().join(",");
    out.push('\n');
    for row in rows {
        let values = COLUMNS.iter().map(|column| match (column.value)(row) {
            Some(value) => value.to_string(),
            None => String::new(),
        });
        let swept = row.sweep.as_deref().unwrap_or("");
        let names = [quoted(&row.system), quoted(&row.workload), quoted(swept)];
        out.push_str(&names.into_iter().chain(values).collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

/// The systems' values of some columns over what was swept: a table for each column and work.
pub fn curves(sections: &[&Section], rows: &[ComparisonRow]) -> String {
    let values: Vec<&str> = sections.iter().filter_map(|s| s.sweep.as_deref()).collect();
    let mut different = values.clone();
    different.dedup();
    let works = sections.len() / different.len().max(1);
    let mut out = String::new();
    for (n, first) in sections.iter().take(works).enumerate() {
        let of_work: Vec<_> =
            sections.iter().skip(n).step_by(works).map(|section| section.rows(rows)).collect();
        out.push_str(&format!("\n[{}] {}\n", n + 1, first.work.describe()));
        for column in COLUMNS.iter().filter(|column| column.best != Best::Unmarked) {
            if of_work.iter().flatten().all(|row| (column.value)(row).is_none()) {
                continue;
            }
            let mut table = Table::new(&[(column.heading, Align::Left)]);
            different.iter().for_each(|value| table.column(value, Align::Right));
            for row in &of_work[0] {
                let same = |rows: &Vec<&ComparisonRow>| {
                    let found = rows.iter().find(|other| other.system == row.system);
                    found.map_or_else(|| "-".into(), |other| cell(column, other, rows))
                };
                table.row(std::iter::once(row.system.clone()).chain(of_work.iter().map(same)));
            }
            out.push_str(&format!("\n{table}"));
        }
    }
    out
}
