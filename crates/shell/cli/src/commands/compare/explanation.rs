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

use super::Section;
use super::columns::{ALIKE, damage, lost, rate};

/// The widest line of prose.
const WIDTH: usize = 96;

/// The answer, in a sentence or two: who wins, and what a power cut takes from whom.
pub fn answer(rows: &[&ComparisonRow]) -> String {
    let ran: Vec<_> = rows.iter().filter(|row| row.failed.is_none()).collect();
    // Of a workload that runs for a fixed time the rate tells.
    let slowness = |row: &&ComparisonRow| rate(row).map_or(row.app_seconds, |rate| 1.0 / rate);
    let by_slowness =
        |a: &&&&ComparisonRow, b: &&&&ComparisonRow| slowness(a).total_cmp(&slowness(b));
    let (Some(first), Some(last)) =
        (ran.iter().min_by(by_slowness), ran.iter().max_by(by_slowness))
    else {
        return String::new();
    };
    if ran.len() < 2 {
        return String::new();
    }
    let best = match rate(first) {
        Some(rate) => format!("{} operations a second", figure(rate)),
        None => seconds(first.app_seconds),
    };
    let alike = ran.iter().filter(|row| slowness(row) <= slowness(first) * (1.0 + ALIKE));
    let alike: Vec<&str> = alike.map(|row| row.system.as_str()).collect();
    let ratio = figure(slowness(last) / slowness(first));
    let mut text = match alike.len() {
        n if n == ran.len() => format!("All are equally fast, with {best}."),
        1 => format!(
            "{} is the fastest, with {best}; {} takes {ratio} times as long.",
            first.system, last.system
        ),
        _ => format!(
            "{} are the fastest, with {best}; {} takes {ratio} times as long.",
            alike.join(", "),
            last.system
        ),
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
pub fn table(sections: &[&Section], rows: &[ComparisonRow]) -> Table {
    let mut table = Table::new(&[("", Align::Left)]);
    for row in rows {
        let number = sections.iter().position(|s| s.work.name() == row.workload);
        let mark = number.filter(|_| sections.len() > 1).map(|n| format!("[{}] ", n + 1));
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
pub fn sentences(sections: &[&Section], rows: &[ComparisonRow]) -> Vec<String> {
    let mut out = Vec::new();
    for (i, section) in sections.iter().enumerate() {
        let rows = section.rows(rows);
        let of = |s: System| rows.iter().find(|r| r.system == s.name()).copied();
        let mark = if sections.len() > 1 { format!("[{}] ", i + 1) } else { String::new() };
        let mut say = |text: String| out.push(mark.clone() + &text);
        if let (Some(sync), Some(none)) = (of(ffs::SYNC), of(ffs::NONE)) {
            say(costs(sync, none));
            let paper = section.work.workload();
            let paper = paper.and_then(|w| against_the_paper(w, sync, none, &section.setup));
            paper.into_iter().for_each(&mut say);
        }
        for row in rows {
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
        return (!own.is_clean).then(|| format!("{head}: {}: {said}", own.program));
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
