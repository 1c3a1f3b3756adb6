//! Results as JUnit XML, which CI services show: a test case for each system.

use std::fmt::Write;

use ordo_report::html;

use super::{Results, Row};

/// The results as one suite.
pub(super) fn suite(results: &Results) -> String {
    let (mut cases, mut failures, mut errors, mut seconds) = (String::new(), 0, 0, 0.0);
    for row in &results.rows {
        let name = format!("{} ({})", row.system, row.model.name());
        let _ = writeln!(
            cases,
            "  <testcase classname=\"ordo crash\" name=\"{}\" time=\"{:.3}\">",
            escape(&name),
            row.counts.seconds
        );
        if row.counts.promise_broken > 0 {
            failures += 1;
            element(&mut cases, "failure", "a promise is broken", &explained(row));
        } else if row.counts.unsound + row.counts.check_failed + row.counts.timed_out > 0 {
            errors += 1;
            let said = row.check_output.clone().unwrap_or_else(|| explained(row));
            element(&mut cases, "error", "states could not be judged", &said);
        }
        let _ = writeln!(cases, "  </testcase>");
        seconds += row.counts.seconds;
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" \
         failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.3}\">\n{cases}</testsuite>\n",
        escape(&format!("ordo crash -- {}", results.command.join(" "))),
        results.rows.len()
    )
}

fn element(out: &mut String, kind: &str, message: &str, text: &str) {
    let _ = writeln!(out, "    <{kind} message=\"{message}\">{}</{kind}>", escape(text));
}

fn explained(row: &Row) -> String {
    row.findings.iter().map(|f| f.text()).collect::<Vec<_>>().join("\n\n")
}

/// Escapes text for XML. Control characters are left out, because XML does not allow them.
fn escape(text: &str) -> String {
    let allowed = |c: &char| *c == '\n' || *c == '\t' || !c.is_control();
    html::escape(&text.chars().filter(allowed).collect::<String>())
}
