//! `ordo crash --html`: an HTML page without scripts, which needs no network.

use std::fmt::Write;

use ordo_crash::space::Fate;
use ordo_crash_program::Explanation;
use ordo_report::html::escape;

use super::{Results, Row};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}\n\
    table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right}\n\
    td:first-child,th:first-child{text-align:left}pre{background:#f4f4f4;padding:1em;overflow:auto}\n\
    svg{width:100%;height:90px}.lost{fill:#c0392b}.torn{fill:#e67e22}.kept{fill:#27ae60}\n\
    text{font-size:11px}\n";
/// The width of the picture and of a write, in its units.
const WIDTH: f64 = 1000.0;
const WRITE: f64 = 3.0;

/// The page: the command, the number of states, and each failure with its timeline.
pub(super) fn page(results: &Results) -> String {
    let title = format!("ordo crash -- {}", results.command.join(" "));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>{0}</title>\n\
         <style>\n{STYLE}</style>\n<h1>{0}</h1>\n<p>check: <code>{1}</code></p>\n",
        escape(&title),
        escape(&results.check)
    );
    out.push_str("<table><tr><th>system<th>states<th>trees<th>lost<th>not atomic<th>unmountable\n");
    for Row { system, counts, .. } in &results.rows {
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            escape(system),
            counts.states,
            counts.trees,
            counts.lost_durable,
            counts.not_atomic,
            counts.unsound
        );
    }
    out.push_str("</table>\n");
    for row in &results.rows {
        for finding in &row.findings {
            let _ = writeln!(out, "<h2>{}</h2>", escape(&row.system));
            timeline(&mut out, finding);
            let _ = writeln!(out, "<pre>{}</pre>", escape(&finding.text()));
        }
    }
    out.push_str("</html>\n");
    out
}

/// The timeline of the last writes, and the cut.
fn timeline(out: &mut String, finding: &Explanation) {
    let first = finding.writes.iter().map(|write| write.at).min().unwrap_or(0);
    let span = finding.cut.saturating_sub(first).max(1) as f64;
    let at = |time: u64| time.saturating_sub(first) as f64 / span * (WIDTH - 40.0) + 10.0;
    let _ = writeln!(out, "<svg viewBox=\"0 0 {WIDTH} 90\" role=\"img\">");
    for write in &finding.writes {
        let (class, y) = match write.fate {
            Fate::Kept => ("kept", 50),
            Fate::Torn => ("torn", 30),
            Fate::Lost => ("lost", 10),
        };
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y}\" width=\"{WRITE}\" height=\"16\"><title>{}</title></rect>",
            at(write.at),
            escape(&write.what)
        );
    }
    let x = at(finding.cut);
    let _ = writeln!(
        out,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"72\" stroke=\"black\"/>\n\
         <text x=\"10\" y=\"86\">{:.3} ms; red: lost, orange: torn, green: kept</text>\n\
         <text x=\"{:.1}\" y=\"86\" text-anchor=\"end\">the cut, {:.3} ms</text></svg>",
        first as f64 / 1e6,
        x,
        finding.cut as f64 / 1e6
    );
}
