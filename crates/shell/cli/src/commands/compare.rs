//! `ordo compare`.

mod columns;
mod explanation;
mod page;
pub mod serve;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use ordo_compare::kernel::{CommandWork, Guests, Under};
use ordo_compare::{self as compare, ComparisonRow, ComparisonSetup, Follow, Rows};
use ordo_report::progress::Progress;
use ordo_report::{json, number};
use ordo_systems::SoftOptions;
use ordo_workload::age;
use ordo_workload::{PostMark, SourceTree, Workload};

use crate::args::{ChoiceList, Compare, Machine, Sweep, SystemChoice};
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
    let usual = ComparisonSetup::usual(machine.disk);
    Ok(ComparisonSetup {
        log_disk: machine.log_disk,
        cpu: machine.cpu.unwrap_or(usual.cpu),
        memory: machine.memory.map_or(Ok(usual.memory), usize::try_from)?,
        dirty_max: machine.dirty.map_or(Ok(usual.dirty_max), usize::try_from)?,
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

/// Some work on a machine: a table of its own.
pub struct Section {
    /// The work.
    pub work: Work,
    /// The machine.
    pub setup: ComparisonSetup,
    /// The value that is tried here, as in `disk=nvme`.
    pub sweep: Option<String>,
}

impl Section {
    /// The rows of this section.
    pub fn rows<'r>(&self, rows: &'r [ComparisonRow]) -> Vec<&'r ComparisonRow> {
        let name = self.work.name();
        rows.iter().filter(|row| row.workload == name && row.sweep == self.sweep).collect()
    }
}

/// The sections that the options ask for.
fn sections(args: &Compare) -> Result<Vec<Section>> {
    let ageing =
        args.aged.clone().map(|ageing| age::ChurnOptions { seed: args.machine.seed, ..ageing });
    let of = |machine: &Machine, work: Work, sweep: Option<String>| -> Result<Section> {
        let setup = setup(machine, !args.no_recovery)?;
        Ok(Section { work, setup: ComparisonSetup { ageing: ageing.clone(), ..setup }, sweep })
    };
    let Some(Sweep { name, values }) = &args.sweep else {
        return work(args)?.into_iter().map(|work| of(&args.machine, work, None)).collect();
    };
    let mut all = Vec::new();
    for value in values {
        let (mut machine, mut all_work) = (args.machine.clone(), work(args)?);
        if let Some(set) = machine.set(name, value) {
            set.map_err(anyhow::Error::msg)?;
        } else {
            for work in &mut all_work {
                let Work::Workload(workload) = work else {
                    bail!(
                        "--sweep {name}: the machine has no such option, and a command no parameters"
                    );
                };
                *workload = compare::parse_workload(&with_parameter(workload, name, value))?;
            }
        }
        for work in all_work {
            all.push(of(&machine, work, Some(format!("{name}={value}")))?);
        }
    }
    Ok(all)
}

/// The text of a workload with another value of a parameter.
fn with_parameter(workload: &Workload, name: &str, value: &str) -> String {
    let text = workload.to_string();
    let (kind, rest) = text.split_once(':').unwrap_or((&text, ""));
    let is_other = |word: &&str| !word.is_empty() && word.split('=').next() != Some(name);
    let new = format!("{name}={value}");
    let words: Vec<&str> = rest.split(',').filter(is_other).chain([new.as_str()]).collect();
    format!("{kind}:{}", words.join(","))
}

/// The row of one system.
fn row(
    system: &SystemChoice,
    section: &Section,
    guests: Option<&Guests>,
    bar: &mut Bar,
) -> Result<ComparisonRow> {
    let (guests, setup) = (|| guests.context("there is no guest kernel"), &section.setup);
    let row = match (system, &section.work) {
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
    let row = row.with_context(|| format!("{} on {}", section.work.name(), system.name()))?;
    let (system, sweep) = (system.name().to_owned(), section.sweep.clone());
    Ok(ComparisonRow { system, sweep, ..row })
}

/// All rows, in order. `so_far` is called with those that there are, after each.
fn rows(
    args: &Compare,
    sections: &[Section],
    systems: &[SystemChoice],
    so_far: impl Fn(&[ComparisonRow]) -> Result<()> + Sync,
) -> Result<Vec<ComparisonRow>> {
    let needs_guests = !args.command.is_empty()
        || systems.iter().any(|system| matches!(system, SystemChoice::Kernel(..)));
    let all: Vec<(&Section, &SystemChoice)> =
        sections.iter().flat_map(|s| systems.iter().map(move |system| (s, system))).collect();
    let done: Mutex<Vec<Option<ComparisonRow>>> = Mutex::new(vec![None; all.len()]);
    let next = AtomicUsize::new(0);
    let finished = || done.lock().unwrap_or_else(PoisonError::into_inner);
    let some = |is_shown: bool| -> Result<()> {
        let guests = || args.kernel.guests(&args.command, args.files.as_deref());
        let guests = needs_guests.then(guests).transpose()?;
        let mut bar = Bar::new(args.quiet || !is_shown);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((section, system)) = all.get(number) else { break };
            let row = row(system, section, guests.as_ref(), &mut bar);
            // The others end with what they have begun.
            let row = row.inspect_err(|_| next.store(all.len(), Ordering::Relaxed))?;
            let mut done = finished();
            done[number] = Some(row);
            so_far(&done.iter().flatten().cloned().collect::<Vec<_>>())?;
        }
        bar.finish();
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..args.jobs).map(|_| scope.spawn(|| some(false))).collect();
        let own = some(true);
        let others = others.into_iter().map(|thread| thread.join().expect("it does not panic"));
        others.chain([own]).collect::<Result<()>>()
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect())
}

pub fn run(args: &Compare) -> Result<ExitCode> {
    let sections = sections(args)?;
    let has_kernel = args.fs.is_empty() && args.kernel.guests(&[], None).is_ok();
    let systems: Vec<SystemChoice> = match args.fs.is_empty() {
        true => ChoiceList::usual(has_kernel && args.aged.is_none()).0,
        false => args.fs.iter().flat_map(|list| list.0.clone()).collect(),
    };
    if args.aged.is_some() && systems.iter().any(|s| matches!(s, SystemChoice::Kernel(..))) {
        bail!("--aged is for Ordo's own systems: name some with --fs");
    }
    if args.fs.is_empty() && !has_kernel {
        eprintln!("ordo: `make guest-kernel` adds ext4, XFS and btrfs (docs/guest.md)");
    }
    let (interrupt, runs) = (OnInterrupt::new()?, sections.len() * systems.len());
    let rows = rows(args, &sections, &systems, |rows| {
        let so_far = as_asked(args, &sections, rows)?;
        let what = format!("{} of {runs} runs are shown", rows.len());
        interrupt.keep(args.output.as_deref(), so_far, what);
        Ok(())
    })?;
    drop(interrupt);
    put(args.output.as_deref(), &as_asked(args, &sections, &rows)?)?;
    if let Some(file) = &args.html {
        put(Some(file), &page::page(&sections, &rows))?;
    }
    Ok(match rows.iter().any(|row| row.failed.is_some()) {
        true => ExitCode::from(NOT_ALL),
        false => ExitCode::SUCCESS,
    })
}

/// The exit status if the command failed on a system.
const NOT_ALL: u8 = 3;

/// The results as text, as comma-separated values or as JSON.
fn as_asked(args: &Compare, sections: &[Section], rows: &[ComparisonRow]) -> Result<String> {
    let mut rows = rows.to_vec();
    if let Some(column) = args.sort {
        columns::sort(&mut rows, column);
    }
    if args.json {
        return Ok(json(&Rows { rows })?);
    }
    if args.csv {
        return Ok(columns::csv(&rows));
    }
    let ran = sections.iter().filter(|section| !section.rows(&rows).is_empty());
    Ok(as_text(&ran.collect::<Vec<_>>(), &rows, args))
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

fn as_text(sections: &[&Section], rows: &[ComparisonRow], args: &Compare) -> String {
    let Some(first) = sections.first() else { return String::new() };
    let mut out = machine(&first.setup) + "\n";
    if let Some(ageing) = &first.setup.ageing {
        let (full, times) = ((1000.0 * ageing.utilisation).round() / 10.0, ageing.overwrites);
        let name = &ageing.profile.name;
        let _ = writeln!(out, "Aged by {name}: {full} % full, the space written {times} times.");
    }
    if args.sweep.is_some() {
        return out + &columns::curves(sections, rows);
    }
    for (i, section) in sections.iter().enumerate() {
        let rows = section.rows(rows);
        out.push_str(&format!("\n[{}] {}\n", i + 1, section.work.describe()));
        out.push_str(&explanation::answer(&rows));
        if !args.wide {
            out.push_str(&format!("\n{}\n", columns::summary(&rows)));
        }
    }
    if args.wide {
        out.push('\n');
        out.push_str(&explanation::table(sections, rows).to_string());
    } else {
        out.push_str(columns::LEGEND);
    }
    out.push('\n');
    for sentence in explanation::sentences(sections, rows) {
        out.push_str(&explanation::wrapped(&sentence, "- "));
    }
    out
}
