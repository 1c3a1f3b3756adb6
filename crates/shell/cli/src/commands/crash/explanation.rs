//! Results of an exploration for a person: the guarantees, measured and published.

use ordo_compare::published;
use ordo_crash::campaign::{CampaignRow, Results};
use ordo_report::number;
use ordo_report::table::{Align, Table};

use super::on;

/// The whole text.
pub(super) fn text(results: &Results) -> String {
    let plan = &results.plan;
    let mut out = format!(
        "{}, {} run(s){} from seed {}, up to {} states each",
        plan.workload,
        results.rows.iter().map(|r| r.runs).max().unwrap_or(0),
        if plan.cycles > 1 { format!(" of {} crash cycles", plan.cycles) } else { String::new() },
        plan.seed,
        number::count(plan.states as u64)
    );
    if !plan.rules.is_empty() {
        out.push_str(&format!("; only: {}", plan.rules.join("; ")));
    }
    out.push_str("\n\n");
    each_table(&mut out, &results.rows, coverage);
    each_table(&mut out, &results.rows, findings);
    out.push_str(FOUND);
    each_table(&mut out, &results.rows, guarantees);
    out.push_str(&sources());
    for row in &results.rows {
        if let Some((seed, what)) = &row.first_broken {
            out.push_str(&format!("\nBROKEN: {}, seed {seed}: {what}\n", heading(row)));
        }
    }
    out
}

fn heading(row: &CampaignRow) -> String {
    format!("{} ({})", row.system, on(&row.geometry, row.model))
}

/// A line of a table: its label, and the row.
type Line<'a> = (String, &'a CampaignRow);

/// The tables of each part: one of all systems if they were crashed in one shape on one disk,
/// otherwise one for each system.
fn tables(rows: &[CampaignRow]) -> Vec<(String, Vec<Line<'_>>)> {
    let place = |row: &CampaignRow| on(&row.geometry, row.model);
    let Some(first) = rows.first().map(place) else { return Vec::new() };
    if rows.iter().all(|row| place(row) == first) {
        return vec![(first, rows.iter().map(|row| (row.system.clone(), row)).collect())];
    }
    rows.chunk_by(|a, b| a.system == b.system)
        .map(|rows| (rows[0].system.clone(), rows.iter().map(|row| (place(row), row)).collect()))
        .collect()
}

fn each_table(out: &mut String, rows: &[CampaignRow], table: fn(&str, &[Line<'_>]) -> String) {
    for (head, lines) in tables(rows) {
        out.push_str(&table(&head, &lines));
        out.push('\n');
    }
}

fn table(head: &str, columns: &[&str], lines: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new(&[(head, Align::Left)]);
    columns.iter().for_each(|column| table.column(column, Align::Right));
    lines.for_each(|cells| table.row(cells));
    table.to_string()
}

/// The extent of the exploration.
fn coverage(head: &str, lines: &[Line<'_>]) -> String {
    let columns = ["states judged", "of about", "times", "wholly", "crashed in recovery", "cycles"];
    let cells = |(what, r): &Line<'_>| {
        vec![
            what.clone(),
            number::count(r.counts.states),
            format!("{:.1e}", r.possible),
            number::count(r.frontiers),
            number::count(r.exhausted),
            number::count(r.counts.in_recovery),
            number::count(r.cycles),
        ]
    };
    table(head, &columns, lines.iter().map(cells))
}

fn share(part: u64, of: u64) -> String {
    match (part, of) {
        (_, 0) => "-".into(),
        (0, _) => "0".into(),
        (part, of) => format!("{:.2}", 100.0 * part as f64 / of as f64),
    }
}

/// An explanation of the short heads of [`findings`].
const FOUND: &str = "\
Found after a crash, in % of the states judged: 'check', use without a check could lose or mix
up data; 'finds', a check finds anything but wrong counts; 'guess', its repair has to guess;
'returned', a name change whose call had returned is missing, and the most of them at once;
'durable', something is missing for which fsync or sync had returned; 'order', names are
between two operations, or out of order; 'stale', contents were never written there; 'use', not
usable afterwards; 'broken', a promise of the system is broken.

";

/// The findings, in percent.
fn findings(head: &str, lines: &[Line<'_>]) -> String {
    let columns = [
        "check", "finds", "guess", "returned", "most", "durable", "order", "stale", "use", "broken",
    ];
    let cells = |(what, r): &Line<'_>| {
        let c = &r.counts;
        vec![
            what.clone(),
            share(c.unsound, c.states),
            share(c.needs_check, c.states),
            share(c.unresolvable, c.states),
            share(c.lost_returned, c.trees),
            number::count(c.lost_returned_most),
            share(c.lost_durable, c.trees),
            share(c.not_atomic, c.trees),
            share(c.stale, c.trees),
            share(c.unusable, c.states),
            share(c.promise_broken, c.states),
        ]
    };
    table(head, &columns, lines.iter().map(cells))
}

/// Table 2 of the paper, measured. "no": a failure was observed; "held": none was.
fn guarantees(head: &str, lines: &[Line<'_>]) -> String {
    type Published = fn(&published::Guarantees) -> bool;
    type Measured = fn(&CampaignRow) -> bool;
    let all: [(&str, Measured, Published); 5] = [
        ("durable", |r| r.counts.lost_returned + r.counts.lost_durable == 0, |g| g.durable),
        ("atomic", |r| r.counts.not_atomic == 0, |g| g.atomic),
        ("data first", |r| r.counts.stale == 0, |g| g.data_first),
        ("no check", |r| r.counts.unsound == 0 && r.counts.unusable == 0, |g| g.no_check),
        ("repairable", |r| r.counts.unresolvable == 0, |g| g.recoverable),
    ];
    let columns: Vec<&str> = std::iter::once("states").chain(all.map(|(name, ..)| name)).collect();
    let cells = |(what, r): &Line<'_>| {
        let each = all.iter().map(|(_, measured, published)| {
            let paper = published::guarantees(&r.system);
            let paper = paper.map_or("-", |g| if published(&g) { "yes" } else { "no" });
            format!("{} / {paper}", if measured(r) { "held" } else { "no" })
        });
        [what.clone(), number::count(r.counts.states)].into_iter().chain(each).collect()
    };
    table(head, &columns, lines.iter().map(cells))
}

/// The source of the published words, and the trials of the paper.
fn sources() -> String {
    let trials = published::CRASH_TRIALS;
    format!(
        "Guarantees, as measured / as published (Journaling versus Soft Updates, 2000, section 6, Table 2).\n\
         'held': not seen to fail in so many states, which is no proof; 'no': seen to fail. 'durable', names\n\
         are on disk when a call returns, and contents when fsync does; 'atomic', an operation is there\n\
         wholly or not at all, in order; 'data first', no file shows what it never held; 'no check', usable\n\
         as it is; 'repairable', no repair has to guess.\n\
         In {}, {} trials: a check was needed in\n{} % (ffs-sync, ffs-none) and \
         0 % (soft updates), and could not resolve all in {} % (ffs-none).\n",
        trials.source,
        trials.value,
        published::CRASH_CHECK_PERCENT.value,
        published::CRASH_UNRESOLVABLE_PERCENT.value
    )
}
