//! The table of a comparison, and its conclusions in plain sentences.

use std::collections::{BTreeMap, BTreeSet};

use ordo_check::Severity;
use ordo_compare::published;
use ordo_compare::{
    AgedRow, CleanerRow, ComparisonRow, ComparisonSetup, DependencyRow, RecoveryTime,
};
use ordo_report::number::{bytes, count, figure, percent, seconds};
use ordo_report::table::{Align, Table};
use ordo_systems::{System, ffs};
use ordo_workload::Workload;

use super::Work;
use crate::args::SortColumn;

/// The widest line of prose.
const WIDTH: usize = 96;

/// A column of the table: its heading, its key in other forms, its value where there is one, and
/// whether its best and worst values are marked.
struct Column {
    heading: &'static str,
    key: &'static str,
    value: fn(&ComparisonRow) -> Option<f64>,
    is_marked: bool,
}

const fn column(
    heading: &'static str,
    key: &'static str,
    value: fn(&ComparisonRow) -> Option<f64>,
    is_marked: bool,
) -> Column {
    Column { heading, key, value, is_marked }
}

/// The columns of the table. Less is better in each.
const COLUMNS: [Column; 11] = [
    column("app s", "app_seconds", |r| Some(r.app_seconds), true),
    column("disk s", "total_seconds", |r| Some(r.total_seconds), false),
    column("writes", "writes", |r| Some(r.writes.total() as f64), false),
    column("flush", "flushes", |r| Some(r.flushes as f64), false),
    column("x own", "written_for_own", written_for_own, false),
    column("log %", "log_percent", log_percent, false),
    column("sync", "fsync_median_ms", |r| Some(r.fsyncs.as_ref()?.median_seconds * 1e3), false),
    column("max", "fsync_longest_ms", |r| Some(r.fsyncs.as_ref()?.longest_seconds * 1e3), false),
    column("lost s", "lost_seconds", |r| Some(lost(r.recovery.as_ref()?)), true),
    column("up s", "usable_seconds", |r| Some(r.recovery.as_ref()?.seconds), true),
    column("damage", "damage", |r| Some(damage(r.recovery.as_ref()?) as f64), false),
];

/// The meanings of the columns.
pub const LEGEND: &str = "\
app s: the program's time; disk s: until all is on disk; x own: bytes written for each byte that the
program wrote; log %: the share of a log; sync, max: median and longest wait of an fsync in
milliseconds. After a power cut in the middle, lost s: age of the oldest change that is gone; up s:
until the files can be used again; damage: faults that a check finds. * best, ! worst.
";

fn lost(cut: &RecoveryTime) -> f64 {
    cut.oldest_lost_seconds.unwrap_or(0.0)
}

fn damage(cut: &RecoveryTime) -> u64 {
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
    let shown = |column: &&Column| rows.iter().any(|row| (column.value)(row).is_some());
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
const ALIKE: f64 = 0.03;

fn cell(column: &Column, row: &ComparisonRow, rows: &[&ComparisonRow]) -> String {
    let Some(value) = (column.value)(row) else { return "-".into() };
    let is_count = ["writes", "flushes", "damage"].contains(&column.key);
    let text = if is_count { count(value as u64) } else { short(value) };
    if column.is_marked {
        let all = || rows.iter().filter_map(|row| (column.value)(row));
        let (best, worst) =
            (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        if best < worst * (1.0 - ALIKE) {
            let mark = match value {
                value if value <= best * (1.0 + ALIKE) => "*",
                value if value >= worst * (1.0 - ALIKE) => "!",
                _ => "",
            };
            return format!("{mark}{text}");
        }
    }
    text
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
        SortColumn::App => "app_seconds",
        SortColumn::Disk => "total_seconds",
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
    let mut out = ["system", "workload"].into_iter().chain(keys).collect::<Vec<_>>().join(",");
    out.push('\n');
    for row in rows {
        let values = COLUMNS.iter().map(|column| match (column.value)(row) {
            Some(value) => value.to_string(),
            None => String::new(),
        });
        let names = [quoted(&row.system), quoted(&row.workload)];
        out.push_str(&names.into_iter().chain(values).collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

/// The answer, in a sentence or two: who wins, and what a power cut takes from whom.
pub fn answer(rows: &[&ComparisonRow]) -> String {
    let ran: Vec<_> = rows.iter().filter(|row| row.failed.is_none()).collect();
    let order =
        |a: &&&&ComparisonRow, b: &&&&ComparisonRow| a.app_seconds.total_cmp(&b.app_seconds);
    let (Some(first), Some(last)) = (ran.iter().min_by(order), ran.iter().max_by(order)) else {
        return String::new();
    };
    if ran.len() < 2 {
        return String::new();
    }
    let mut text = match first.app_seconds < last.app_seconds * (1.0 - ALIKE) {
        true => format!(
            "{} is the fastest, with {}; {} takes {} times as long.",
            first.system,
            seconds(first.app_seconds),
            last.system,
            figure(last.app_seconds / first.app_seconds)
        ),
        false => format!("All take the same time, {}.", seconds(first.app_seconds)),
    };
    let cuts: Vec<_> = ran.iter().filter_map(|row| Some((row, row.recovery.as_ref()?))).collect();
    let by_loss =
        |a: &&(_, &RecoveryTime), b: &&(_, &RecoveryTime)| lost(a.1).total_cmp(&lost(b.1));
    if let (Some((least, a)), Some((most, b))) =
        (cuts.iter().min_by(by_loss), cuts.iter().max_by(by_loss))
    {
        let said = |cut: &RecoveryTime| match lost(cut) {
            0.0 => "nothing".to_owned(),
            lost => format!("the last {}", seconds(lost)),
        };
        if lost(b) == 0.0 {
            text.push_str(" A power cut in the middle takes nothing from any.");
        } else {
            text.push_str(&format!(
                " A power cut in the middle takes {} from {}, and {} from {}.",
                said(a),
                least.system,
                said(b),
                most.system
            ));
        }
        let damaged = cuts.iter().filter(|(_, cut)| damage(cut) > 0);
        let damaged: Vec<&str> = damaged.map(|(row, _)| row.system.as_str()).collect();
        if !damaged.is_empty() {
            text.push_str(&format!(" It damages {}.", damaged.join(", ")));
        }
    }
    wrapped(&text, "")
}

fn writes_for_a_file(row: &ComparisonRow) -> String {
    match row.files_made {
        0 => "-".into(),
        files => figure(row.writes.total() as f64 / files as f64),
    }
}

/// All measures, one line each, with one column for each system and workload.
pub fn table(all_work: &[&Work], rows: &[ComparisonRow]) -> Table {
    let mut table = Table::new(&[("", Align::Left)]);
    for row in rows {
        let number = all_work.iter().position(|w| w.name() == row.workload);
        let mark = number.filter(|_| all_work.len() > 1).map(|n| format!("[{}] ", n + 1));
        table.column(&format!("{}{}", mark.unwrap_or_default(), row.system), Align::Right);
    }
    let mut line = |name: &str, cell: &dyn Fn(&ComparisonRow) -> String| {
        table.row(std::iter::once(name.to_string()).chain(rows.iter().map(cell)));
    };
    let plain = |s: f64| format!("{} s", figure(s));
    line("application time", &|r| plain(r.app_seconds));
    line("until all is on disk", &|r| plain(r.total_seconds));
    line("disk busy", &|r| plain(r.disk_seconds));
    line("processor busy", &|r| plain(r.cpu_seconds));
    line("requests", &|r| count(r.requests));
    line("  reads", &|r| count(r.reads));
    line("  writes", &|r| count(r.writes.total()));
    for kind in kinds(rows) {
        line(&format!("    {}", kind.replace('_', " ")), &|r| count(r.writes.get(kind)));
    }
    if rows.iter().any(|r| r.flushes > 0) {
        line("  flushes", &|r| count(r.flushes));
    }
    if rows.iter().any(|r| r.aged.is_some()) {
        let score = |r: &ComparisonRow, of: fn(&AgedRow) -> Option<f64>| {
            r.aged.as_ref().and_then(of).map_or_else(|| "-".into(), |score| format!("{score:.3}"))
        };
        line("layout score before ageing", &|r| score(r, |aged| aged.score_before));
        line("  and after it", &|r| score(r, |aged| aged.score_after));
    }
    if rows.iter().any(|r| r.cleaner.is_some()) {
        let of = |r: &ComparisonRow, f: &dyn Fn(&CleanerRow) -> String| {
            r.cleaner.as_ref().map_or_else(|| "-".into(), f)
        };
        line("segments cleaned", &|r| of(r, &|c| count(c.segments)));
        line("  while idle", &|r| of(r, &|c| count(c.idle_segments)));
        line("  live, moved", &|r| of(r, &|c| bytes(c.moved_bytes)));
        line("  read for it", &|r| of(r, &|c| bytes(c.read_bytes)));
        line("  operations waited for it", &|r| of(r, &|c| plain(c.waited_seconds)));
    }
    if rows.iter().any(|r| r.dependencies.is_some()) {
        line("rewrites after rollback", &|r| count(r.rewritten));
        let of = |r: &ComparisonRow, f: &dyn Fn(&DependencyRow) -> String| {
            r.dependencies.as_ref().map_or_else(|| "-".into(), f)
        };
        line("changes rolled back", &|r| of(r, &|d| count(d.rolled_back)));
        line("memory for dependencies", &|r| of(r, &|d| bytes(d.memory_peak)));
    }
    line("writes waited for", &|r| count(r.sync_waits));
    line("writes for each file made", &writes_for_a_file);
    line("written", &|r| bytes(r.bytes_written));
    line("read", &|r| bytes(r.bytes_read));
    if rows.iter().any(|r| r.recovery.is_some()) {
        let of = |r: &ComparisonRow, f: &dyn Fn(&RecoveryTime) -> String| {
            r.recovery.as_ref().map_or_else(|| "-".into(), f)
        };
        line("oldest change lost in a power cut", &|r| {
            of(r, &|c| c.oldest_lost_seconds.map_or_else(|| "-".into(), plain))
        });
        line("check after a power cut", &|r| of(r, &|c| plain(c.seconds)));
        line("  faults that could spread", &|r| of(r, &|c| found(c, Severity::Damage)));
        line("  leaks", &|r| of(r, &|c| found(c, Severity::LeakOnly)));
        line("  wrong counts", &|r| of(r, &|c| found(c, Severity::CountsOnly)));
    }
    table
}

fn found(recovery: &RecoveryTime, severity: Severity) -> String {
    count(recovery.findings.get(&severity).copied().unwrap_or(0))
}

/// The kinds of block that any row has written, in the watcher's order.
pub fn kinds<'a>(rows: impl IntoIterator<Item = &'a ComparisonRow>) -> Vec<&'static str> {
    let used: BTreeSet<&str> =
        rows.into_iter().flat_map(|r| r.writes.0.iter().map(|(k, _)| *k)).collect();
    ordo_watcher::Class::ALL.iter().map(|c| c.key()).filter(|k| used.contains(k)).collect()
}

/// The remarkable things of the table, in sentences.
pub fn sentences(
    all_work: &[&Work],
    rows: &[ComparisonRow],
    setup: &ComparisonSetup,
) -> Vec<String> {
    let mut out = Vec::new();
    for (i, work) in all_work.iter().enumerate() {
        let name = work.name();
        let of = |s: System| rows.iter().find(|r| r.workload == name && r.system == s.name());
        let mark = if all_work.len() > 1 { format!("[{}] ", i + 1) } else { String::new() };
        let mut say = |text: String| out.push(mark.clone() + &text);
        if let (Some(sync), Some(none)) = (of(ffs::SYNC), of(ffs::NONE)) {
            say(costs(sync, none));
            let paper = work.workload().and_then(|w| against_the_paper(w, sync, none, setup));
            paper.into_iter().for_each(&mut say);
        }
        for row in rows.iter().filter(|r| r.workload == name) {
            if let Some(failed) = &row.failed {
                say(format!("It failed on {}: {failed}.", row.system));
            }
            row.recovery.as_ref().and_then(|cut| recovery(row, cut)).into_iter().for_each(&mut say);
        }
    }
    out
}

fn costs(sync: &ComparisonRow, none: &ComparisonRow) -> String {
    let mut text = format!(
        "Keeping metadata in order by waiting made the application take {} times as long ({} \
         instead of {})",
        figure(sync.app_seconds / none.app_seconds),
        seconds(sync.app_seconds),
        seconds(none.app_seconds)
    );
    let writes = sync.writes.total();
    text.push_str(&format!(
        ": it waited for {} of {} writes ({}), and sent {} writes for each file made instead of {}.",
        count(sync.sync_waits),
        count(writes),
        percent(sync.sync_waits as f64, writes as f64),
        figure(writes as f64 / sync.files_made.max(1) as f64),
        figure(none.writes.total() as f64 / none.files_made.max(1) as f64)
    ));
    text
}

/// The difference from the published figures, if the same was measured.
fn against_the_paper(
    workload: &Workload,
    sync: &ComparisonRow,
    none: &ComparisonRow,
    setup: &ComparisonSetup,
) -> Option<String> {
    let same = *setup
        == ComparisonSetup {
            seed: setup.seed,
            recovery: setup.recovery,
            ..ComparisonSetup::papers()
        };
    let Workload::PostMark(w) = workload else { return None };
    if !same || *w != ordo_workload::PostMark::SOFT_UPDATES {
        return None;
    }
    let rate = |r: &ComparisonRow| {
        let phase = r.phases.iter().find(|p| p.phase.name == "transactions")?;
        phase.phase.rate()
    };
    Some(format!(
        "In transactions a second: {} without order, {} with synchronous writes; the paper \
         measured {} and {} ({}).",
        figure(rate(none)?),
        figure(rate(sync)?),
        published::POSTMARK_NO_ORDER.value,
        published::POSTMARK_CONVENTIONAL.value,
        published::POSTMARK_CONVENTIONAL.source
    ))
}

/// The state after the power cut, if there is more to say than the table does.
fn recovery(row: &ComparisonRow, cut: &RecoveryTime) -> Option<String> {
    let head = format!("Power cut {} into {}", seconds(cut.cut_at_seconds), row.system);
    if let Some(own) = &cut.own_check {
        let said = own.said.replace('\n', " ");
        return (!own.is_clean).then(|| format!("{head}: {} is not content: {said}", own.program));
    }
    if damage(cut) == 0 && cut.consistent_afterwards {
        return None;
    }
    let after = match cut.consistent_afterwards {
        true => "repaired all it found",
        false => "could not repair all it found",
    };
    let mut meanings: BTreeMap<String, u64> = BTreeMap::new();
    for (kind, n) in &cut.damage_kinds {
        *meanings.entry(meaning(kind)).or_default() += n;
    }
    let mut meanings: Vec<_> = meanings.into_iter().collect();
    meanings.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let listed: Vec<String> =
        meanings.iter().map(|(what, n)| format!("{what} ({})", count(*n))).collect();
    let took = seconds(cut.seconds);
    Some(format!(
        "{head}: the check took {took} and {after}. Damage that could have spread: {}.",
        listed.join(", ")
    ))
}

/// The meaning of a finding, for readers who do not know the checker.
fn meaning(kind: &str) -> String {
    let text = match kind {
        "BlocksNotMarked" => "runs of blocks in use but marked free",
        "InodesNotMarked" => "runs of inodes in use but marked free",
        "DuplicateBlock" => "blocks claimed by two files",
        "EntryUnallocated" => "names of files that never reached the disk",
        "EntryDamaged" => "damaged directory chunks",
        "DotMissing" | "DotDotMissing" => "directories without their first entries",
        "UnreferencedDirectory" => "directories that lost their names",
        "LinkCountLow" => "files with more names than they count",
        "EndsInHole" => "files whose last blocks were not on disk yet",
        "BlockCount" => "files with a wrong count of their blocks",
        other => return words(other),
    };
    text.to_string()
}

/// The kind of a finding in words: `EntryUnallocated` becomes `entry unallocated`.
fn words(kind: &str) -> String {
    let mut out = String::new();
    for c in kind.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Breaks a text into lines, of which the first begins with `mark`, and the others with as many
/// spaces.
pub fn wrapped(sentence: &str, mark: &str) -> String {
    let indent = mark.chars().count();
    let mut out = String::from(mark);
    let mut column = indent;
    for (i, word) in sentence.split(' ').enumerate() {
        let width = word.chars().count();
        if i > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
    out
}
