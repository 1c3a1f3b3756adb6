//! Results for a person: the guarantees as measured, and as published.

use ordo_bench::published;
use ordo_crash::campaign::{Results, Row};
use ordo_report::number;
use ordo_report::table::{Align, Table};

use super::on;

/// How many systems stand side by side.
const COLUMNS: usize = 4;

/// All of it.
pub(super) fn text(results: &Results) -> String {
    let plan = &results.plan;
    let mut out = format!(
        "{}, {} run(s){} from seed {}, up to {} states each",
        plan.workload,
        results.rows.iter().map(|r| r.runs).max().unwrap_or(0),
        if plan.lives > 1 { format!(" of {} lives", plan.lives) } else { String::new() },
        plan.seed,
        number::count(plan.states as u64)
    );
    if !plan.rules.is_empty() {
        out.push_str(&format!("; only: {}", plan.rules.join("; ")));
    }
    out.push_str("\n\n");
    for rows in results.rows.chunks(COLUMNS) {
        out.push_str(&matrix(rows));
        out.push('\n');
    }
    for rows in results.rows.chunks(COLUMNS) {
        out.push_str(&guarantees(rows));
        out.push('\n');
    }
    out.push_str(&sources());
    for row in &results.rows {
        if let Some((seed, what)) = &row.first_broken {
            out.push_str(&format!("\nBROKEN: {}, seed {seed}: {what}\n", heading(row)));
        }
    }
    out
}

fn heading(row: &Row) -> String {
    format!("{} ({})", row.system, on(&row.geometry, row.model))
}

fn share(part: u64, of: u64) -> String {
    match (part, of) {
        (_, 0) => "-".into(),
        (0, _) => "0".into(),
        (part, of) => format!("{:.2} %", 100.0 * part as f64 / of as f64),
    }
}

/// What was found, one column a system and disk.
fn matrix(rows: &[Row]) -> String {
    let mut table = Table::new(&[("after a crash", Align::Left)]);
    for row in rows {
        table.column(&heading(row), Align::Right);
    }
    let mut line = |what: &str, cell: &dyn Fn(&Row) -> String| {
        let cells = rows.iter().map(cell);
        table.row(std::iter::once(what.to_string()).chain(cells).collect::<Vec<_>>());
    };
    line("states judged", &|r| number::count(r.counts.states));
    line("  of as many as there are, about", &|r| format!("{:.1e}", r.possible));
    line("  times of which all states were judged", &|r| {
        format!("{} of {}", number::count(r.exhausted), number::count(r.frontiers))
    });
    line("  with recovery cut off too", &|r| number::count(r.counts.in_recovery));
    if rows.iter().any(|r| r.lives > r.runs) {
        line("lives, each on what a crash has left", &|r| number::count(r.lives));
    }
    line("check needed before use", &|r| share(r.counts.unsound, r.counts.states));
    line("  whose repair has to guess", &|r| share(r.counts.unresolvable, r.counts.states));
    line("anything but wrong counts", &|r| share(r.counts.needs_check, r.counts.states));
    line("names changed, returned, and not there", &|r| {
        share(r.counts.lost_returned, r.counts.trees)
    });
    line("  the most at once", &|r| number::count(r.counts.lost_returned_most));
    line("durable (fsync, sync), and not there", &|r| share(r.counts.lost_durable, r.counts.trees));
    line("between two operations, or out of order", &|r| {
        share(r.counts.not_atomic, r.counts.trees)
    });
    line("contents never written there", &|r| share(r.counts.stale, r.counts.trees));
    line("not usable afterwards", &|r| share(r.counts.unusable, r.counts.states));
    line("a promise broken", &|r| share(r.counts.promise_broken, r.counts.states));
    table.to_string()
}

/// Table 2 of the paper, measured: a "no" was seen, a "yes" was never contradicted.
fn guarantees(rows: &[Row]) -> String {
    let mut table = Table::new(&[("guarantee (measured / published)", Align::Left)]);
    for row in rows {
        table.column(&heading(row), Align::Right);
    }
    let word = |yes: bool| if yes { "yes" } else { "no" };
    type Published = fn(&published::Guarantees) -> bool;
    let mut line = |what: &str, measured: &dyn Fn(&Row) -> bool, published: Published| {
        let cells = rows.iter().map(|row| {
            let paper = published::guarantees(&row.system).map(|g| word(published(&g)));
            format!("{} / {}", word(measured(row)), paper.unwrap_or("-"))
        });
        table.row(std::iter::once(what.to_string()).chain(cells).collect::<Vec<_>>());
    };
    line("names durable on return", &|r| r.counts.lost_returned == 0, |g| g.durable);
    line("operations atomic and in order", &|r| r.counts.not_atomic == 0, |g| g.atomic);
    line("no file shows what it never held", &|r| r.counts.stale == 0, |g| g.data_first);
    let as_it_is = |r: &Row| r.counts.unsound == 0 && r.counts.unusable == 0;
    line("usable without a check", &as_it_is, |g| g.no_check);
    line("can always be repaired", &|r| r.counts.unresolvable == 0, |g| g.recoverable);
    table.to_string()
}

/// Where the published words are from, and the trials that the paper made.
fn sources() -> String {
    let trials = published::CRASH_TRIALS;
    format!(
        "published: Journaling versus Soft Updates (2000), section 6, Table 2.\nIn {}, {} trials: a \
         check was needed in {} % (ffs-sync, ffs-none) and 0 %\n(soft updates), and could not resolve all \
         in {} % (ffs-none).\n",
        trials.source,
        trials.value,
        published::CRASH_CHECK_PERCENT.value,
        published::CRASH_UNRESOLVABLE_PERCENT.value
    )
}
