//! `ordo crash plan`, `task` and `merge`: a campaign on many machines.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, FromArgMatches, Parser};
use ordo_crash::StateRule;
use ordo_crash::campaign::Results;
use ordo_crash::fleet::{Finished, FleetError, Program, Sweep, TASKS_MAX, Task, digest, merge};
use ordo_report::progress::Progress;
use ordo_systems::AnySystem;

use super::Campaign;
use crate::args::{Crash, TaskArgs};
use crate::text::put;

/// The most bytes of a task's line. A plan of all systems in all shapes takes a few thousand.
const LINE_MAX: u64 = 1 << 20;

/// The arguments of `ordo crash plan`.
#[derive(Debug, Parser)]
#[command(name = "ordo crash plan", max_term_width = 100)]
#[command(override_usage = "ordo crash plan [--runs-each <N>] [OPTIONS of ordo crash]")]
#[command(after_long_help = "\
One task for each line: the program's digest, the plan's digest, system, shape, disk, workload,
seeds, budget. -o names a file. Only Ordo's own systems can be planned, since runs of the kernel's
file systems cannot be repeated exactly.

Examples:
  ordo crash plan --fs ffs-none,ffs-sync --runs 100 --runs-each 5 > tasks.jsonl
  xargs -a tasks.jsonl -d '\\n' -n 1 -P 2 ordo crash task --into results
  ordo crash merge results")]
struct Planned {
    /// The number of runs of a task, which should take at least some seconds.
    #[arg(long = "runs-each", default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs_each: u64,
    #[command(flatten)]
    crash: Crash,
}

/// `ordo crash plan`.
pub(super) fn plan(given: &[String]) -> Result<ExitCode> {
    let name = ["ordo crash plan"].into_iter();
    let planned = Planned::try_parse_from(name.chain(given.iter().map(String::as_str)));
    let Planned { runs_each, crash } = planned.unwrap_or_else(|e| e.exit());
    let wrong = [
        (crash.command.is_some(), "a command of ordo crash"),
        (crash.shard != (1, 1), "--shard"),
        (crash.resume, "--resume"),
        (crash.save.is_some(), "--save"),
        (crash.explain_model, "--explain-model"),
    ];
    if let Some((_, what)) = wrong.iter().find(|(given, _)| *given) {
        bail!("{what} cannot be part of a plan: give only what is explored, and -o FILE");
    }
    let systems = super::go_together(&crash)?;
    if let Some(system) = systems.iter().find(|s| matches!(s, AnySystem::External(_))) {
        bail!(
            "{}: a run of the kernel cannot be repeated exactly, so its tasks could not be run again; use ordo crash --shard for the kernel's systems",
            system.name()
        );
    }
    let sweep = Sweep::new(super::plan(&crash, &systems), runs_each, this_program()?);
    let tasks = sweep.tasks();
    if tasks > TASKS_MAX || sweep.task(tasks).is_none() {
        bail!("a plan of {tasks} tasks, more than {TASKS_MAX}: give a larger --runs-each");
    }
    let mut out: Box<dyn Write> = match &crash.output {
        Some(path) => {
            let file = File::create(path);
            Box::new(io::BufWriter::new(
                file.with_context(|| format!("writing {}", path.display()))?,
            ))
        }
        None => Box::new(io::BufWriter::new(io::stdout().lock())),
    };
    for task in (1..=tasks).filter_map(|n| sweep.task(n)) {
        writeln!(out, "{}", task.line()?)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The version and digest of this program.
fn this_program() -> Result<Program> {
    // The program's file may have been replaced. This link leads to the running one.
    let bytes = fs::read("/proc/self/exe").context("reading the program itself")?;
    Ok(Program { version: env!("CARGO_PKG_VERSION").into(), digest: digest(&bytes) })
}

/// `ordo crash task`.
pub(super) fn task(args: &TaskArgs) -> Result<ExitCode> {
    let text = match &args.line {
        Some(line) => line.clone(),
        None => {
            let mut text = String::new();
            io::stdin().lock().take(LINE_MAX).read_to_string(&mut text)?;
            text
        }
    };
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let line = lines.next().context("no task was given: one line of ordo crash plan")?;
    if lines.next().is_some() {
        bail!("more than one line was given: ordo crash task runs one (xargs -n 1, sed -n 7p)");
    }
    let task = Task::parse(line)?;
    let (ours, theirs) = (this_program()?, &task.sweep.program);
    if ours.digest != theirs.digest {
        bail!(
            "the task is for ordo {} ({:.12}), and this is {} ({:.12}): another program may find \
             something else; use that one, or make the plan again",
            theirs.version,
            theirs.digest,
            ours.version,
            ours.digest
        );
    }
    let Some(folder) = &args.into else {
        put(None, &carried_out(task, args.threads)?.text()?)?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let (path, how) = match there_is(folder, &task)? {
        Some(path) => (path, "was there"),
        None => (keep(folder, &carried_out(task, args.threads)?)?, "done"),
    };
    put(None, &format!("{}\n", path.display()))?;
    if args.verbose {
        eprintln!("{}: {how}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Explores the runs of a task.
fn carried_out(task: Task, threads: usize) -> Result<Finished> {
    let args = arguments(&task, threads)?;
    let plan = task.plan();
    let mut campaign = Campaign::new(&args, Progress::new(true), Results::new(plan.clone()));
    // Failures are not shrunk on each machine. The result names the seed, from which a failure can
    // be found again.
    (campaign.saved, campaign.cycle_results) = (true, Some(Vec::new()));
    campaign.row(0, &plan)?;
    Ok(Finished::new(task, campaign.cycle_results.unwrap_or_default())?)
}

/// The arguments of `ordo crash` for a task.
fn arguments(task: &Task, threads: usize) -> Result<Crash> {
    let plan = &task.sweep.plan;
    let usual = Crash::augment_args(clap::Command::new("ordo crash").no_binary_name(true))
        .try_get_matches_from(Vec::<String>::new())?;
    let unknown = |name: &str| format!("there is no system '{name}' here: not a task of this ordo");
    let system = AnySystem::by_name(&task.system).filter(|s| matches!(s, AnySystem::Ours(_)));
    let held_to = plan.held_to.as_deref().map(|name| match AnySystem::by_name(name) {
        Some(AnySystem::Ours(system)) => Ok(system),
        _ => Err(anyhow::Error::msg(unknown(name))),
    });
    let rules = plan.rules.iter().map(|r| r.parse::<StateRule>());
    let args = Crash {
        fs: vec![system.with_context(|| unknown(&task.system))?.name().to_owned()],
        hold_to: held_to.transpose()?,
        model: vec![task.model],
        workload: plan.workload.parse().map_err(anyhow::Error::msg)?,
        seed: task.seed,
        runs: task.runs,
        cycles: plan.cycles.max(1),
        states: Some(plan.states),
        tree_every: plan.tree_every,
        usable_every: plan.usable_every,
        recovery_depth: plan.recovery_depth,
        recovery_every: plan.recovery_every,
        rule: rules.collect::<Result<_, _>>()?,
        geometry: Some(vec![task.geometry.clone()]),
        real_ages: plan.cache.real_ages,
        cache_blocks: plan.cache.cache_blocks,
        write_unit: plan.cache.write_unit,
        threads,
        quiet: true,
        ..Crash::from_arg_matches(&usual)?
    };
    super::go_together(&args)?;
    Ok(args)
}

/// Finds a complete result of a task in the folder. Damaged results are reported and renamed.
fn there_is(folder: &Path, task: &Task) -> Result<Option<PathBuf>> {
    let prefix = Finished::prefix(task);
    for path in results_in(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(&prefix) {
            continue;
        }
        match read_result(&path) {
            Ok(found) if found.task == *task && found.name() == name => return Ok(Some(path)),
            Ok(_) => set_aside(&path, "its name is not that of its contents")?,
            Err(e) => set_aside(&path, &format!("{e:#}"))?,
        }
    }
    Ok(None)
}

fn set_aside(path: &Path, why: &str) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    eprintln!("{}: {why}; renamed to {}", path.display(), Path::new(&aside).display());
    fs::rename(path, &aside).with_context(|| format!("renaming {}", path.display()))
}

/// The files in a folder that may be results, sorted by name.
fn results_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let reading = || format!("reading {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        let is_hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if path.extension().is_some_and(|e| e == "json") && !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_result(path: &Path) -> Result<Finished> {
    let bytes = fs::read(path).context("reading")?;
    let text = std::str::from_utf8(&bytes).map_err(|e| FleetError::Damaged(e.to_string()))?;
    Ok(Finished::parse(text)?)
}

/// Writes a result wholly or not at all, under a name made from its contents.
fn keep(folder: &Path, result: &Finished) -> Result<PathBuf> {
    let path = folder.join(result.name());
    let (beside, mut file) = beside(folder)?;
    let written = file
        .write_all(result.text()?.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // An incomplete file is of no use.
        let _ = fs::remove_file(&beside);
    }
    written.with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// A new file that no other process writes, on this or another machine.
fn beside(folder: &Path) -> Result<(PathBuf, File)> {
    let process = std::process::id();
    let mut number = 0;
    loop {
        let path = folder.join(format!(".{process}-{number}.part"));
        match File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(e) => return Err(e).with_context(|| format!("writing {}", path.display())),
        }
    }
}

/// The merged results of tasks; `None` if the files are results of shards.
pub(super) fn merged(files: &[PathBuf]) -> Result<Option<Results>> {
    let mut all = Vec::new();
    for file in files {
        match file.is_dir() {
            true => all.extend(results_in(file)?),
            false => all.push(file.clone()),
        }
    }
    let is_of_tasks = |path: &PathBuf| {
        fs::read(path).is_ok_and(|b| Finished::looks_like(&String::from_utf8_lossy(&b)))
    };
    if !files.iter().any(|f| f.is_dir()) && !all.iter().any(is_of_tasks) {
        return Ok(None);
    }
    let (mut parts, mut damaged) = (Vec::new(), 0);
    for path in all {
        match read_result(&path) {
            Ok(result) => parts.push((path.display().to_string(), result)),
            Err(e) => {
                damaged += 1;
                eprintln!("{}: {e:#}", path.display());
            }
        }
    }
    if parts.is_empty() && damaged == 0 {
        bail!("no results of tasks in {}", files[0].display());
    }
    Ok(Some(merge(parts)?))
}
