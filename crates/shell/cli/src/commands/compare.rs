//! `ordo compare`.

mod explanation;
mod page;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ordo_compare::{self as compare, ComparisonRow, ComparisonSetup, Follow, Rows};
use ordo_report::progress::Progress;
use ordo_report::{json, number};
use ordo_systems::{SoftOptions, System};
use ordo_workload::age;
use ordo_workload::{PostMark, SourceTree, Workload};

use crate::args::{Chosen, Compare, Machine};
use crate::interrupt::OnInterrupt;
use crate::text::put;

/// Directories that most machines have. The first of a useful size is used.
const TREES: [&str; 8] = [
    "/usr/include",
    "/usr/share/zoneinfo",
    "/usr/share/perl",
    "/usr/share/doc",
    "/usr/lib/python3",
    "/usr/share/terminfo",
    "/etc",
    "/usr/share",
];

/// The useful sizes of a tree: large enough to show differences, small enough for a minute.
const TREE_ENTRIES: std::ops::Range<u64> = 100..20_000;
const TREE_BYTES_MAX: u64 = 256 << 20;

/// The progress bar of a comparison.
pub struct Bar {
    progress: Progress,
    total: u64,
}

impl Bar {
    /// A progress bar, which is not shown if `quiet` is set.
    pub fn new(quiet: bool) -> Bar {
        Bar { progress: Progress::new(quiet), total: 0 }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.progress.finish();
    }
}

impl Follow for Bar {
    fn phase_start(&mut self, system: &str, phase: &str) {
        self.total = 1;
        self.progress.begin(system, phase, 1);
    }
    fn progress(&mut self, done: u64, total: u64) {
        self.progress.reach(done, total);
    }
}

/// The setup that the options describe.
///
/// # Errors
/// A size is out of range.
pub fn setup(machine: &Machine, recovery: bool) -> Result<ComparisonSetup> {
    let small = |what: &str, bytes: u64| {
        u32::try_from(bytes).with_context(|| format!("{what} {bytes} is too large"))
    };
    let usual = ComparisonSetup::with_disk(machine.disk);
    Ok(ComparisonSetup {
        log_disk: machine.log_disk,
        cpu: machine.cpu.unwrap_or(usual.cpu),
        memory: usize::try_from(machine.memory)?,
        dirty_max: usize::try_from(machine.dirty)?,
        block_size: small("block size", machine.block_size)?,
        frag_size: small("fragment size", machine.frag_size)?,
        size: machine.size,
        soft: SoftOptions {
            memory_max: machine.dependencies.map(usize::try_from).transpose()?,
            ..SoftOptions::default()
        },
        seed: machine.seed,
        recovery,
        ..usual
    })
}

pub fn run(args: &Compare) -> Result<ExitCode> {
    let workloads = match args.workload.is_empty() {
        true => default_workloads(),
        false => args.workload.clone(),
    };
    let all = || System::runnable().map(Chosen::usual).collect();
    let systems: Vec<Chosen> = match args.fs.is_empty() {
        true => all(),
        false => args.fs.iter().flat_map(|list| list.0.clone()).collect(),
    };
    let ageing =
        args.aged.clone().map(|ageing| age::ChurnOptions { seed: args.machine.seed, ..ageing });
    let setup = ComparisonSetup { ageing, ..setup(&args.machine, !args.no_recovery)? };
    let mut bar = Bar::new(args.quiet);
    let mut rows: Vec<ComparisonRow> = Vec::new();
    let (interrupt, runs) = (OnInterrupt::new()?, workloads.len() * systems.len());
    for workload in &workloads {
        for Chosen { system, name, cleaning, dual, tuning } in &systems {
            let (cleaning, dual) = (cleaning.unwrap_or_default(), dual.unwrap_or_default());
            let setup = ComparisonSetup { cleaning, dual, tuning: *tuning, ..setup.clone() };
            let row = compare::run(*system, workload, &setup, &mut bar);
            let row = row.with_context(|| format!("{workload} on {name}"))?;
            rows.push(ComparisonRow { system: name.clone(), ..row });
            let so_far = as_asked(args, &workloads, &rows, &setup)?;
            let what = format!("{} of {runs} runs are shown", rows.len());
            interrupt.keep(args.output.as_deref(), so_far, what);
        }
    }
    bar.finish();
    drop(interrupt);
    put(args.output.as_deref(), &as_asked(args, &workloads, &rows, &setup)?)?;
    if let Some(file) = &args.html {
        put(Some(file), &page::page(&workloads, &rows, &setup))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The results as text or as JSON.
fn as_asked(
    args: &Compare,
    workloads: &[Workload],
    rows: &[ComparisonRow],
    setup: &ComparisonSetup,
) -> Result<String> {
    if args.json {
        return Ok(json(&Rows { rows: rows.to_vec() })?);
    }
    let ran = |w: &&Workload| rows.iter().any(|row| row.workload == w.to_string());
    let ran: Vec<Workload> = workloads.iter().filter(ran).cloned().collect();
    Ok(as_text(&ran, rows, setup, args.wide))
}

/// The default workloads: a tree of this machine, if there is one of a useful size, and PostMark.
fn default_workloads() -> Vec<Workload> {
    let useful = |tree: &SourceTree| {
        TREE_ENTRIES.contains(&tree.totals.entries) && tree.totals.bytes <= TREE_BYTES_MAX
    };
    let tree = TREES
        .iter()
        .filter(|path| Path::new(path).is_dir())
        .filter_map(|path| SourceTree::new(*path).ok())
        .find(useful);
    let mut out: Vec<Workload> = tree.map(Workload::Tree).into_iter().collect();
    out.push(Workload::PostMark(PostMark::SOFT_UPDATES));
    out
}

/// A description of the simulated machine.
fn machine(setup: &ComparisonSetup) -> String {
    format!(
        "{}\nProcessor {}, {} of cache, FFS with blocks of {} and fragments of {}.\nTime is simulated.",
        setup.disk.description,
        setup.cpu.name,
        number::bytes(setup.memory as u64),
        number::bytes(setup.block_size.into()),
        number::bytes(setup.frag_size.into()),
    )
}

fn as_text(
    workloads: &[Workload],
    rows: &[ComparisonRow],
    setup: &ComparisonSetup,
    wide: bool,
) -> String {
    let mut out = machine(setup) + "\n";
    if let Some(ageing) = &setup.ageing {
        let (full, times) = ((1000.0 * ageing.utilisation).round() / 10.0, ageing.overwrites);
        let name = &ageing.profile.name;
        let _ = writeln!(out, "Aged by {name}: {full} % full, the space written {times} times.");
    }
    for (i, workload) in workloads.iter().enumerate() {
        out.push_str(&format!("[{}] {}\n", i + 1, workload.describe()));
        if !wide {
            let name = workload.to_string();
            let rows: Vec<&ComparisonRow> = rows.iter().filter(|r| r.workload == name).collect();
            out.push_str(&format!("\n{}\n", explanation::summary(&rows)));
        }
    }
    if wide {
        out.push('\n');
        out.push_str(&explanation::table(workloads, rows).to_string());
    }
    out.push('\n');
    for sentence in explanation::sentences(workloads, rows, setup) {
        out.push_str(&explanation::wrapped(&sentence));
    }
    out
}
