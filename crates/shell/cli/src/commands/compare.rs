//! `ordo compare`.

mod explanation;
mod page;
pub mod serve;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use ordo_compare::kernel::{CommandWork, Guests, Under};
use ordo_compare::{self as compare, ComparisonRow, ComparisonSetup, Follow, Rows};
use ordo_report::progress::Progress;
use ordo_report::{json, number};
use ordo_systems::{SoftOptions, System};
use ordo_workload::age;
use ordo_workload::{PostMark, SourceTree, Workload};

use crate::args::{Compare, Machine, OwnChoice, SystemChoice};
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

/// The work of a comparison.
pub enum Work {
    /// A workload.
    Workload(Workload),
    /// A command of the user's.
    Command(CommandWork),
}

impl Work {
    /// The name that its rows have.
    pub fn name(&self) -> String {
        match self {
            Work::Workload(workload) => workload.to_string(),
            Work::Command(command) => command.text(),
        }
    }

    /// The work in a sentence.
    pub fn describe(&self) -> String {
        match self {
            Work::Workload(workload) => workload.describe(),
            Work::Command(command) => format!("$ {}", command.text()),
        }
    }

    /// The workload, if it is one.
    pub fn workload(&self) -> Option<&Workload> {
        match self {
            Work::Workload(workload) => Some(workload),
            Work::Command(_) => None,
        }
    }
}

/// The work that the options ask for.
fn work(args: &Compare) -> Result<Vec<Work>> {
    if args.command.is_empty() {
        let given = match args.workload.is_empty() {
            true => default_workloads(),
            false => args.workload.clone(),
        };
        return Ok(given.into_iter().map(Work::Workload).collect());
    }
    let absolute = |dir: &Option<PathBuf>| -> Result<Option<PathBuf>> {
        let found = |dir: &PathBuf| dir.canonicalize().with_context(|| dir.display().to_string());
        dir.as_ref().map(found).transpose()
    };
    Ok(vec![Work::Command(CommandWork {
        words: args.command.clone(),
        environment: super::guest::own_environment(),
        setup: args.setup.clone(),
        files: absolute(&args.files)?,
        outputs: args.outputs.clone(),
    })])
}

/// The row of one system.
fn row(
    system: &SystemChoice,
    work: &Work,
    setup: &ComparisonSetup,
    guests: Option<&Guests>,
    bar: &mut Bar,
) -> Result<ComparisonRow> {
    let guests = || guests.context("there is no guest kernel");
    let row = match (system, work) {
        (SystemChoice::Own(own), Work::Workload(workload)) => {
            compare::run(own.system, workload, &own.setup(setup), bar)
        }
        (SystemChoice::Kernel(system, _), Work::Workload(workload)) => {
            compare::kernel::run(system, workload, setup, guests()?, bar)
        }
        (SystemChoice::Own(own), Work::Command(command)) => {
            let under = Under::Own(own.system, own.name.clone());
            compare::kernel::run_command(&under, command, &own.setup(setup), guests()?, bar)
        }
        (SystemChoice::Kernel(system, name), Work::Command(command)) => {
            let under = Under::Kernel(system.clone(), name.clone());
            compare::kernel::run_command(&under, command, setup, guests()?, bar)
        }
    };
    let row = row.with_context(|| format!("{} on {}", work.name(), system.name()))?;
    Ok(ComparisonRow { system: system.name().to_owned(), ..row })
}

pub fn run(args: &Compare) -> Result<ExitCode> {
    let all_work = work(args)?;
    let all = || System::runnable().map(OwnChoice::usual).map(SystemChoice::Own).collect();
    let systems: Vec<SystemChoice> = match args.fs.is_empty() {
        true => all(),
        false => args.fs.iter().flat_map(|list| list.0.clone()).collect(),
    };
    let ageing =
        args.aged.clone().map(|ageing| age::ChurnOptions { seed: args.machine.seed, ..ageing });
    let setup = ComparisonSetup { ageing, ..setup(&args.machine, !args.no_recovery)? };
    let mut bar = Bar::new(args.quiet);
    let mut rows: Vec<ComparisonRow> = Vec::new();
    let needs_guests = !args.command.is_empty()
        || systems.iter().any(|system| matches!(system, SystemChoice::Kernel(..)));
    let guests = needs_guests
        .then(|| args.kernel.guests(&args.command, args.files.as_deref()))
        .transpose()?;
    let (interrupt, runs) = (OnInterrupt::new()?, all_work.len() * systems.len());
    for work in &all_work {
        for system in &systems {
            rows.push(row(system, work, &setup, guests.as_ref(), &mut bar)?);
            let so_far = as_asked(args, &all_work, &rows, &setup)?;
            let what = format!("{} of {runs} runs are shown", rows.len());
            interrupt.keep(args.output.as_deref(), so_far, what);
        }
    }
    bar.finish();
    drop(interrupt);
    put(args.output.as_deref(), &as_asked(args, &all_work, &rows, &setup)?)?;
    if let Some(file) = &args.html {
        put(Some(file), &page::page(&all_work, &rows, &setup))?;
    }
    Ok(match rows.iter().any(|row| row.failed.is_some()) {
        true => ExitCode::from(NOT_ALL),
        false => ExitCode::SUCCESS,
    })
}

/// The exit status if the command failed on a system.
const NOT_ALL: u8 = 3;

/// The results as text, as comma-separated values or as JSON.
fn as_asked(
    args: &Compare,
    all_work: &[Work],
    rows: &[ComparisonRow],
    setup: &ComparisonSetup,
) -> Result<String> {
    let mut rows = rows.to_vec();
    if let Some(column) = args.sort {
        explanation::sort(&mut rows, column);
    }
    if args.json {
        return Ok(json(&Rows { rows })?);
    }
    if args.csv {
        return Ok(explanation::csv(&rows));
    }
    let ran = |w: &&Work| rows.iter().any(|row| row.workload == w.name());
    let ran: Vec<&Work> = all_work.iter().filter(ran).collect();
    Ok(as_text(&ran, &rows, setup, args.wide))
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
    all_work: &[&Work],
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
    for (i, work) in all_work.iter().enumerate() {
        let name = work.name();
        let rows: Vec<&ComparisonRow> = rows.iter().filter(|r| r.workload == name).collect();
        out.push_str(&format!("\n[{}] {}\n", i + 1, work.describe()));
        out.push_str(&explanation::answer(&rows));
        if !wide {
            out.push_str(&format!("\n{}\n", explanation::summary(&rows)));
        }
    }
    if wide {
        out.push('\n');
        out.push_str(&explanation::table(all_work, rows).to_string());
    } else {
        out.push_str(explanation::LEGEND);
    }
    out.push('\n');
    for sentence in explanation::sentences(all_work, rows, setup) {
        out.push_str(&explanation::wrapped(&sentence, "- "));
    }
    out
}
