//! `ordo crash mutants`: a test whether the selection of states finds each rule that is switched
//! off.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ordo_compare::crash::{CrashWork, Mutant, NO_RULE, mutants};
use ordo_crash::FsGeometry;
use ordo_crash::mutants::{MutantFound, Search, Sought};
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};
use ordo_systems::{System, needs_churn};
use serde::Serialize;

use super::{CrashStatus, show_text};
use crate::args::CrashCommand;

/// The search for one rule in one geometry.
#[derive(Serialize)]
struct Row {
    system: &'static str,
    /// The rule that is switched off.
    rule: &'static str,
    geometry: FsGeometry,
    #[serde(flatten)]
    sought: Sought,
}

/// Runs the searches. The exit status is 1 if a promise is broken although no rule is off; the
/// table shows what was found.
pub(super) fn run(command: &CrashCommand) -> Result<ExitCode> {
    let CrashCommand::Mutants { fs, geometry, rule, seed, states, threads, json: as_json } =
        command
    else {
        unreachable!("the caller has checked the command");
    };
    let search = Search { seed: *seed, states: *states, threads: *threads, ..Search::default() };
    let mut rows = Vec::new();
    for system in fs {
        for geometry in geometry {
            let all = mutants(*system, geometry)?;
            for mutant in all.iter().filter(|(name, _)| name.contains(rule.as_str())) {
                rows.push(row(*system, geometry, mutant, &search)?);
            }
        }
    }
    let text = if *as_json { json(&rows)? } else { text(&rows, &search) };
    show_text(&text)?;
    let unsound =
        rows.iter().filter(|row| row.rule == NO_RULE).find_map(|row| row.sought.found.as_ref());
    if let Some(MutantFound { seed, model, what }) = unsound {
        let _ = writeln!(
            std::io::stderr(),
            "{what}: a promise is broken with all rules on (seed {seed}, {model:?})"
        );
        return Ok(CrashStatus::Broken.into());
    }
    Ok(CrashStatus::Kept.into())
}

fn row(
    system: System,
    geometry: &FsGeometry,
    (rule, subject): &Mutant,
    search: &Search,
) -> Result<Row> {
    let search = Search { churn: needs_churn(rule), ..search.clone() };
    let sought = search.run(
        geometry,
        |script, config| subject.record(&CrashWork::Script(script.clone()), config),
        |run, seed, budget| subject.explore(run, seed, budget),
    );
    let sought =
        sought.with_context(|| format!("{} ({}) without {rule}", system.name(), geometry.name))?;
    Ok(Row { system: system.name(), rule, geometry: geometry.clone(), sought })
}

/// One table for each system: rules by geometry.
fn text(rows: &[Row], search: &Search) -> String {
    let mut out = format!(
        "states until a promise is broken, with one rule off; '-': none in {}\n",
        number::count(search.states)
    );
    for of_system in rows.chunk_by(|a, b| a.system == b.system) {
        let shapes: Vec<&[Row]> =
            of_system.chunk_by(|a, b| a.geometry.name == b.geometry.name).collect();
        let mut table = Table::new(&[(of_system[0].system, Align::Left)]);
        shapes.iter().for_each(|shape| table.column(&shape[0].geometry.name, Align::Right));
        for (i, first) in shapes[0].iter().enumerate() {
            let cell = |shape: &&[Row]| match &shape[i].sought {
                Sought { states, found: Some(_) } => number::count(*states),
                Sought { found: None, .. } => "-".into(),
            };
            let cells = shapes.iter().map(cell);
            table.row(std::iter::once(first.rule.to_lowercase()).chain(cells).collect::<Vec<_>>());
        }
        out.push_str(&format!("\n{table}"));
    }
    out
}
