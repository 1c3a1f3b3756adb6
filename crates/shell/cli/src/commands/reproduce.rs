//! `ordo reproduce`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use ordo_compare::reproduce::{self, FITTED, ITEMS, Item, ReproductionRow, RowKind, UNMEASURED};
use ordo_report::json;
use ordo_report::table::{Align, Table};
use serde::Serialize;

use super::compare::Bar;
use crate::interrupt::OnInterrupt;
use crate::text::put;

mod page;

/// `ordo reproduce`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo reproduce --list                                what there is, and how each item is measured
  ordo reproduce journaling-vs-soft-updates semantics  one table of one paper
  ordo reproduce soft-updates --json -o rows.json
  ordo reproduce --html papers.html                    all of it, and a page of bars

Workloads have the published sizes; disks and processors are models, in virtual time, with seed 1.
Compare ratios, not seconds. A difference below 3 percent counts as a tie. Counted apart are
measurements beside printed numbers, orders that sentences state (the published value is the bound
that stands for the words: comparable is within a tenth), properties (1 is yes), and inputs:
rows to which a parameter was fitted.")]
pub struct Reproduce {
    /// The paper [default: all].
    #[arg(value_name = "PAPER")]
    pub paper: Option<String>,
    /// The item of the paper [default: all].
    #[arg(value_name = "ITEM", requires = "paper")]
    pub item: Option<String>,
    /// List papers and items, the parameters that were fitted, and the published figures that are
    /// not measured, with reasons.
    #[arg(long)]
    pub list: bool,
    /// Print rows as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write the output to this file.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write a page for a browser to this file: each published figure above the measured one.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub html: Option<PathBuf>,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Rows {
    rows: Vec<ReproductionRow>,
}

pub fn run(args: &Reproduce) -> Result<ExitCode> {
    if args.list {
        put(args.output.as_deref(), &list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = reproduce::find(args.paper.as_deref(), args.item.as_deref());
    if items.is_empty() {
        let item = args.item.as_deref().unwrap_or("");
        let paper = args.paper.as_deref().unwrap_or("");
        bail!(
            "there is no '{paper} {item}' to reproduce; `ordo reproduce --list` shows what there is"
        );
    }
    let mut bar = Bar::new(args.quiet);
    let mut rows = Vec::new();
    let mut text = String::new();
    let (interrupt, mut done) = (OnInterrupt::new()?, 0);
    for item in &items {
        let of_item =
            item.run(&mut bar).with_context(|| format!("{} {}", item.paper, item.name))?;
        text += &as_text(item, &of_item);
        rows.extend(of_item);
        done += 1;
        let so_far = match args.json {
            true => json(&Rows { rows: rows.clone() })?,
            false => text.clone(),
        };
        let what = format!("{done} of {} items are shown", items.len());
        interrupt.keep(args.output.as_deref(), so_far, what);
    }
    bar.finish();
    drop(interrupt);
    let summary = summary(&rows);
    text += &summary;
    // The results are shown even where the page cannot be written.
    let page = args.html.as_ref().map(|path| (path, page::page(&items, &rows, &summary)));
    put(args.output.as_deref(), &if args.json { json(&Rows { rows })? } else { text })?;
    if let Some((path, page)) = page {
        put(Some(path), &page)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The rows of one item as a table.
fn as_text(item: &Item, rows: &[ReproductionRow]) -> String {
    let mut table = Table::new(&[
        ("system", Align::Left),
        ("quantity", Align::Left),
        ("published", Align::Right),
        ("measured", Align::Right),
        ("ratio", Align::Right),
        ("same winner", Align::Left),
    ]);
    for row in rows {
        table.row([
            row.system.to_owned(),
            row.quantity.clone(),
            digits(row.published),
            digits(row.measured),
            row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            verdict(row).to_owned(),
        ]);
    }
    format!("{} {}\n{}\n\n{table}\n", item.paper, item.name, item.title)
}

/// The last column. A tie in print is no win of either.
fn verdict(row: &ReproductionRow) -> &'static str {
    match (row.kind, row.same_winner, row.differs_in_print) {
        (RowKind::Input, ..) => "input",
        (_, None, _) => "",
        (RowKind::Measurement, Some(true), Some(false)) => "a tie, yes",
        (RowKind::Measurement, Some(false), Some(false)) => "a tie, NO",
        (_, Some(true), _) => "yes",
        (_, Some(false), _) => "NO",
    }
}

/// A number with three significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// For each paper, the rows that agree, by their kinds, and the median ratio of the measurements.
fn summary(rows: &[ReproductionRow]) -> String {
    let mut papers: Vec<&str> = rows.iter().map(|row| row.paper).collect();
    papers.dedup();
    papers.into_iter().map(|paper| of_paper(rows, paper)).collect()
}

fn of_paper(rows: &[ReproductionRow], paper: &str) -> String {
    let of = |kind| rows.iter().filter(move |row| row.paper == paper && row.kind == kind);
    let mut text = format!("{paper}:\n");
    let mut count = |kind, differs: bool, words: &str| {
        let asked = of(kind).filter(|row| row.differs_in_print == Some(differs));
        let all: Vec<bool> = asked.filter_map(|row| row.same_winner).collect();
        if !all.is_empty() {
            let same = all.iter().filter(|same| **same).count();
            let _ = writeln!(text, "  {words} in {same} of {}", all.len());
        }
    };
    count(RowKind::Measurement, true, "measurements: the same system wins");
    count(RowKind::Measurement, false, "measurements that tie in print: a tie");
    count(RowKind::Order, true, "orders that sentences state: the same");
    count(RowKind::Property, true, "properties: the same");
    let inputs = of(RowKind::Input).count();
    if inputs > 0 {
        let _ = writeln!(text, "  inputs, which agree by themselves: {inputs}");
    }
    let mut ratios: Vec<f64> =
        of(RowKind::Measurement).filter_map(ReproductionRow::ratio).collect();
    ratios.sort_by(f64::total_cmp);
    if let Some(median) = ratios.get(ratios.len() / 2) {
        let _ = writeln!(text, "  median of measured over published: {median:.2}");
    }
    text
}

/// The items, and the figures that are not measured.
fn list() -> String {
    let mut text = String::new();
    for item in ITEMS {
        text += &format!("{} {}\n    {}\n", item.paper, item.name, item.title);
    }
    text += "\nFitted parameters, and the rows to which they were fitted; all others are predictions:\n";
    for (parameter, rows) in FITTED {
        let _ = writeln!(text, "{parameter}\n    {rows}");
    }
    text += "\nPublished figures that are not measured, and why:\n";
    for (figure, why) in UNMEASURED {
        text += &format!("{figure}\n    {why}\n");
    }
    text
}
