//! `ordo compare --html`: one page for a browser, without scripts and without a network.

use std::fmt::Write;

use ordo_check::Severity;
use ordo_compare::{ComparisonRow, RecoveryTime};
use ordo_report::html::{self, Bar, BarPart, MAIN, PALE, bars, escape, legend};
use ordo_report::number::{count, figure};
use ordo_watcher::Class;

use super::{Section, columns, explanation};

/// The page of a comparison: for each workload the time, the writes by kind and the state after a
/// power cut, one bar or line for each system; then the sentences of the text form. The same rows
/// give the same bytes.
pub fn page(sections: &[Section], rows: &[ComparisonRow]) -> String {
    let title = "Ordo: what each way to protect metadata costs, and what it loses";
    let mut out = html::begin(title);
    let _ = writeln!(out, "<p class=\"faint\">{}</p>", escape(&super::machine(&sections[0].setup)));
    for section in sections {
        let rows = section.rows(rows);
        let value = section.sweep.as_ref().map(|value| format!(", {value}")).unwrap_or_default();
        let _ = writeln!(out, "<h2>{}{}</h2>", escape(&section.work.describe()), escape(&value));
        let _ = writeln!(out, "<p>{}</p>", escape(&explanation::answer(&rows)));
        match rows.iter().any(|row| columns::rate(row).is_some()) {
            true => rates(&mut out, &rows),
            false => times(&mut out, &rows),
        }
        writes(&mut out, &rows);
        cuts(&mut out, &rows);
    }
    out.push_str("<h2>In words</h2>\n");
    for sentence in explanation::sentences(&sections.iter().collect::<Vec<_>>(), rows) {
        let _ = writeln!(out, "<p>{}</p>", escape(&sentence));
    }
    out.push_str("</html>\n");
    out
}

/// The rates of a workload that runs for a fixed time.
fn rates(out: &mut String, rows: &[&ComparisonRow]) {
    out.push_str("<h3>Operations a second</h3>\n");
    let all: Vec<Bar<'_>> = rows
        .iter()
        .map(|row| {
            let rate = columns::rate(row).unwrap_or(0.0);
            let words = format!("{} operations a second", figure(rate));
            let part = BarPart { width: rate, attributes: MAIN.into(), words };
            Bar { name: &row.system, parts: vec![part], value: figure(rate) }
        })
        .collect();
    bars(out, &all);
}

fn times(out: &mut String, rows: &[&ComparisonRow]) {
    out.push_str("<h3>Time</h3>\n");
    let all: Vec<Bar<'_>> = rows
        .iter()
        .map(|row| {
            let later = (row.total_seconds - row.app_seconds).max(0.0);
            let part = |width, attributes: &str, what: &str| BarPart {
                width,
                attributes: attributes.into(),
                words: format!("{what}: {} s", figure(width)),
            };
            Bar {
                name: &row.system,
                parts: vec![
                    part(row.app_seconds, MAIN, "application"),
                    part(later, PALE, "afterwards"),
                ],
                value: format!("{} s", figure(row.app_seconds)),
            }
        })
        .collect();
    bars(out, &all);
    let entries = [(MAIN, "the application, in seconds"), (PALE, "until all is on disk")];
    legend(out, entries.into_iter().map(|(a, w)| (a.into(), w.into())));
}

fn writes(out: &mut String, rows: &[&ComparisonRow]) {
    out.push_str("<h3>Writes, by the kind of block</h3>\n");
    let all: Vec<Bar<'_>> = rows
        .iter()
        .map(|row| {
            let part = |(kind, n): &(&str, u64)| BarPart {
                width: *n as f64,
                attributes: colour(kind),
                words: format!("{}: {}", words(kind), count(*n)),
            };
            Bar {
                name: &row.system,
                parts: row.writes.0.iter().map(part).collect(),
                value: count(row.writes.total()),
            }
        })
        .collect();
    bars(out, &all);
    let kinds = explanation::kinds(rows.iter().copied());
    legend(out, kinds.into_iter().map(|kind| (colour(kind), words(kind))));
}

fn words(kind: &str) -> String {
    kind.replace('_', " ")
}

/// The colour of a kind, which is the same on every page. Neighbouring kinds have hues far apart;
/// contents of files are grey.
fn colour(kind: &str) -> String {
    let place = Class::ALL.iter().position(|class| class.key() == kind).unwrap_or(0);
    let saturation = if kind == Class::FileData.key() { 0 } else { 58 };
    // The factor is the golden angle.
    let hue = (place as f64 * 137.5) % 360.0;
    format!("style=\"background:hsl({hue:.0} {saturation}% 52%)\"")
}

/// The state of each system after a power cut in the middle.
fn cuts(out: &mut String, rows: &[&ComparisonRow]) {
    if rows.iter().all(|row| row.recovery.is_none()) {
        return;
    }
    out.push_str("<h3>After a power cut in the middle</h3>\n<table><tr><th>system</th>");
    let headings = [
        "verdict",
        "check or recovery, s",
        "damage",
        "leaks",
        "wrong counts",
        "oldest change lost, s",
    ];
    for (i, heading) in headings.iter().enumerate() {
        let class = if i == 0 { " class=\"words\"" } else { "" };
        let _ = write!(out, "<th{class}>{heading}</th>");
    }
    out.push_str("<th class=\"words\">which</th></tr>\n");
    for row in rows {
        let Some(cut) = &row.recovery else { continue };
        let found = |severity| cut.findings.get(&severity).copied().unwrap_or(0);
        let (class, verdict) = verdict(cut);
        let lost = cut.oldest_lost_seconds.map_or_else(|| "-".into(), figure);
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"words\"><span class=\"mark {class}\">{verdict}</span></td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{lost}</td><td class=\"words\">{}</td></tr>",
            escape(&row.system),
            figure(cut.seconds),
            count(found(Severity::Damage)),
            count(found(Severity::LeakOnly)),
            count(found(Severity::CountsOnly)),
            escape(cut.oldest_lost.as_deref().unwrap_or("-")),
        );
    }
    out.push_str("</table>\n");
}

/// The worst finding, as a class of the style and in words.
fn verdict(cut: &RecoveryTime) -> (&'static str, &'static str) {
    let found = |severity| cut.findings.get(&severity).is_some_and(|n| *n > 0);
    if found(Severity::Damage) || cut.unrepairable > 0 {
        ("damage", "damage")
    } else if found(Severity::LeakOnly) {
        ("leaks", "space leaked")
    } else if found(Severity::CountsOnly) {
        ("leaks", "wrong counts")
    } else {
        ("clean", "consistent")
    }
}
