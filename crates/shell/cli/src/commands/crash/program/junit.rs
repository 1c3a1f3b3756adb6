//! Results as JUnit XML, which CI services show: a test case for each system.

use std::fmt::Write;

use ordo_report::html;

use super::{Results, Row};

/// The results as one suite. `failed` is a system whose search ended with an error.
pub(super) fn suite(results: &Results, failed: Option<(&str, &anyhow::Error)>) -> String {
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
        } else if !row.not_judged.is_empty() {
            errors += 1;
            let reasons: Vec<String> = row.not_judged.iter().map(|why| why.text(row)).collect();
            element(&mut cases, "error", "not judged", &reasons.join("\n"));
        }
        let _ = writeln!(cases, "  </testcase>");
        seconds += row.counts.seconds;
    }
    if let Some((system, error)) = failed {
        errors += 1;
        let name = escape(system);
        let _ = writeln!(cases, "  <testcase classname=\"ordo crash\" name=\"{name}\">");
        element(&mut cases, "error", "an error", &format!("{error:#}"));
        let _ = writeln!(cases, "  </testcase>");
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" \
         failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.3}\">\n{cases}</testsuite>\n",
        escape(&format!("ordo crash -- {}", results.command.join(" "))),
        results.rows.len() + usize::from(failed.is_some())
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
