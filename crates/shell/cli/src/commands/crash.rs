//! `ordo crash`.

mod explanation;
mod failure_file;
mod fleet;
mod mutants;
mod program;
mod save;
mod status;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ordo_compare::crash::{CrashSubject, subject};
use ordo_crash::campaign::CycleResult;
use ordo_crash::campaign::{CampaignPlan, Results, merge};
use ordo_crash::cycle::CrashCycles;
use ordo_crash::{Budget, CachePlan, Config, CrashModel, FsGeometry, StateRule};
use ordo_crash_program::ProgramSystem;
use ordo_report::progress::Progress;
use ordo_report::{json, number};
use ordo_systems::{AnySystem, System};

use crate::args::{Crash, CrashCommand, CrashWorkload};
use crate::interrupt::OnInterrupt;
use crate::privileges::need_root;
use crate::text::{put, replace};

pub use status::CrashStatus;

/// The assumptions of the models, from the project's documentation.
const MODELS: &str = include_str!("../../../../../docs/crash-model.md");

/// Memory of a guest kernel, for recordings and states.
const GUEST_MEMORY: u64 = 4 << 30;

pub fn run(args: &Crash) -> Result<ExitCode> {
    let is_search = args.command.is_none() && !args.explain_model;
    // Its kind alone says which kernel has it.
    let kind = |fs: &String| ProgramSystem::parse(fs.split(':').next()?).ok();
    let external = args.fs.iter().find_map(kind).filter(|_| is_search);
    if let Some(ProgramSystem { kind, .. }) = &external {
        let (limits, results) = ((args.seed, GUEST_MEMORY), || failure_file::state_folder().ok());
        if let Some(status) = args.kernel.again(("ordo crash", kind), limits, results)? {
            return Ok(status);
        }
    }
    match &args.command {
        Some(CrashCommand::Replay { file, json, shell, yes }) => {
            let text = std::fs::read_to_string(file);
            let text = text.with_context(|| format!("reading {}", file.display()))?;
            match program::is_saved(&text) {
                true => program::replay((file, &text), *json, (*shell, *yes)),
                false if *shell => bail!("--shell only applies to the failure of a program"),
                false => save::replay(file, &text, *json),
            }
        }
        Some(CrashCommand::Image { file, output }) => program::image(file, output),
        Some(command @ CrashCommand::Mutants { .. }) => mutants::run(command),
        Some(CrashCommand::Plan { args }) => fleet::plan(args),
        Some(CrashCommand::Task(args)) => fleet::task(args),
        Some(CrashCommand::Merge { files, json, output }) => {
            if let Some(results) = fleet::merged(files)? {
                return show(&results, *json, output.as_deref());
            }
            let read = |file: &std::path::PathBuf| read(file);
            let parts = files.iter().map(read).collect::<Result<Vec<_>>>()?;
            show(&merge(&parts)?, *json, output.as_deref())
        }
        None if args.explain_model => {
            show_text(MODELS)?;
            Ok(CrashStatus::Kept.into())
        }
        None if !args.program.command.is_empty() => program::run(args),
        None => campaign(args),
    }
}

fn read(file: &Path) -> Result<Results> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("reading {}", file.display()))?;
    Results::parse(&text).with_context(|| file.display().to_string())
}

/// Prints results. Returns the exit status, which says whether every promise was kept.
fn show(results: &Results, as_json: bool, output: Option<&Path>) -> Result<ExitCode> {
    if let Some(path) = output {
        write_whole(path, &json(results)?)?;
    }
    let text = if as_json { json(results)? } else { explanation::text(results) };
    show_text(&text)?;
    let broken = results.rows.iter().any(|r| r.counts.promise_broken > 0);
    let empty = results.rows.iter().find(|r| r.counts.states == 0);
    if let Some(row) = empty {
        eprintln!("{}: not judged: no state was judged, --rule or --shard leave none", row.system);
    }
    Ok(match (broken, empty.is_some()) {
        (true, _) => CrashStatus::Broken,
        (false, true) => CrashStatus::NotJudged,
        (false, false) => CrashStatus::Kept,
    }
    .into())
}

/// Prints to the standard output. A reader that has seen enough does not change the exit status.
fn show_text(text: &str) -> Result<()> {
    match put(None, text) {
        Err(error) if crate::is_broken_pipe(&error) => Ok(()),
        done => done,
    }
}

/// Writes a file wholly or not at all, so that a campaign that was stopped can continue.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    replace(path, text, 0o666)
}

fn plan(args: &Crash, systems: &[AnySystem]) -> CampaignPlan {
    CampaignPlan {
        systems: systems.iter().map(|s| s.name().to_string()).collect(),
        held_to: args.hold_to.map(|s| s.name().to_string()),
        models: args.model.clone(),
        workload: args.workload.to_string(),
        seed: args.seed,
        runs: args.runs,
        cycles: args.cycles,
        states: args.states(),
        tree_every: args.tree_every,
        usable_every: args.usable_every,
        recovery_depth: args.recovery_depth,
        recovery_every: args.recovery_every,
        rules: args.rule.iter().map(ToString::to_string).collect(),
        bytes: args.size.unwrap_or(FsGeometry::default().bytes),
        geometries: args.geometries(),
        cache: args.cache(),
        sector: args.program.asked_sector,
        shard: args.shard.0,
        shards: args.shard.1,
    }
}

fn budget(args: &Crash) -> Budget {
    Budget {
        states: args.states(),
        tree_every: args.tree_every,
        usable_every: args.usable_every,
        recovery_depth: args.recovery_depth,
        recovery_every: args.recovery_every,
        rules: args.rule.clone(),
        threads: args.threads,
        ..Budget::default()
    }
}

fn config(seed: u64, model: CrashModel, rules: &[StateRule]) -> Config {
    let fails = |rule: &StateRule| match rule {
        StateRule::Fail(kind, number) => Some((kind.clone(), *number)),
        _ => None,
    };
    Config { faults: rules.iter().filter_map(fails).collect(), ..Config::new(seed, model) }
}

/// The systems of the arguments, or all of Ordo's. The error tells which arguments contradict each
/// other.
fn go_together(args: &Crash) -> Result<Vec<AnySystem>> {
    if args.cycles > 1 && !matches!(args.workload, CrashWorkload::Random(_)) {
        bail!(
            "--cycles goes with --workload random: another workload begins on an empty file system"
        );
    }
    let systems = match args.systems() {
        Ok(systems) if systems.is_empty() => System::runnable().map(AnySystem::Ours).collect(),
        Ok(systems) => systems,
        Err(why) => {
            clap::Command::new("ordo crash").error(clap::error::ErrorKind::InvalidValue, why).exit()
        }
    };
    let is_shaped = args.geometry.is_some() || args.block_size.is_some();
    let has_external = systems.iter().any(|s| matches!(s, AnySystem::External(_)));
    if is_shaped && has_external {
        bail!("--geometry and --block-size go with Ordo's systems: the kernel's have their own");
    }
    if args.program.asked_sector.is_some() && !has_external {
        bail!(
            "--sector goes with a program (-- COMMAND) or with the kernel's file systems: Ordo's own are \
             judged by sectors of 512 bytes"
        );
    }
    if args.cache() != CachePlan::default() && has_external {
        bail!(
            "--real-ages and --cache-blocks go with Ordo's systems: the kernel has its own cache"
        );
    }
    Ok(systems)
}

fn campaign(args: &Crash) -> Result<ExitCode> {
    let systems = go_together(args)?;
    if systems.iter().any(|system| matches!(system, AnySystem::External(_))) {
        let why = "makes devices and mounts the kernel's file systems; Ordo's own need no root";
        need_root("ordo crash", why)?;
    }
    let plan = plan(args, &systems);
    let mut results = Results::new(plan.clone());
    if let Some(path) = args.output.as_deref().filter(|p| args.resume && p.exists()) {
        results = read(path)?;
        results.belong_to(&plan)?;
    }
    let (progress, started) = (Progress::new(args.quiet), Instant::now());
    let mut campaign = Campaign::new(args, progress, results);
    campaign.interrupt = Some(OnInterrupt::new()?);
    for at in 0..campaign.results.rows.len() {
        campaign.row(at, &plan)?;
    }
    campaign.interrupt = None;
    campaign.progress.finish();
    if !args.quiet {
        let seconds = started.elapsed().as_secs_f64();
        let rate = number::figure(campaign.judged as f64 / seconds.max(1e-9));
        eprintln!("{} states in {seconds:.1} s, {rate} a second", number::count(campaign.judged));
    }
    show(&campaign.results, args.json, args.output.as_deref())
}

/// The shape and the disk, in words. The default shape is left out.
fn on(geometry: &FsGeometry, model: CrashModel) -> String {
    match *geometry == FsGeometry::default().sized(geometry.bytes) {
        true => model.name().into(),
        false => format!("{}, {}", geometry.name, model.name()),
    }
}

/// A campaign that is running.
struct Campaign<'a> {
    args: &'a Crash,
    progress: Progress,
    /// The budget of one crash cycle.
    budget: Budget,
    results: Results,
    judged: u64,
    /// Whether a failure was saved.
    saved: bool,
    /// The results of each crash cycle, if they are kept separately.
    cycle_results: Option<Vec<CycleResult>>,
    /// Shows the results so far when a signal comes.
    interrupt: Option<OnInterrupt>,
}

impl<'a> Campaign<'a> {
    fn new(args: &'a Crash, progress: Progress, results: Results) -> Campaign<'a> {
        let mut budget = budget(args);
        budget.states = args.states().div_ceil(args.cycles as usize);
        Campaign {
            args,
            progress,
            budget,
            results,
            judged: 0,
            saved: false,
            cycle_results: None,
            interrupt: None,
        }
    }

    /// Explores the remaining runs of one system on one disk.
    fn row(&mut self, at: usize, plan: &CampaignPlan) -> Result<()> {
        let args = self.args;
        let row = self.results.rows[at].clone();
        let system = AnySystem::by_name(&row.system).context("a system of the plan")?;
        let subject = subject(system, args.hold_to, &row.geometry)?;
        let total = plan.seeds().count() as u64;
        let on = on(&row.geometry, row.model);
        self.progress.begin(&row.system, &on, total);
        for (i, seed) in plan.seeds().enumerate().skip(row.runs as usize) {
            self.run(at, (system, &*subject), seed, (i as u64, total))?;
            self.results.rows[at].runs += 1;
            if let Some(path) = &args.output {
                write_whole(path, &json(&self.results)?)?;
            }
            self.keep(total)?;
        }
        Ok(())
    }

    /// Sees to it that an interruption shows the runs so far; each row has `total`.
    fn keep(&self, total: u64) -> Result<()> {
        let Some(interrupt) = &self.interrupt else { return Ok(()) };
        let mut so_far = self.results.clone();
        so_far.rows.retain(|row| row.runs > 0);
        let done: u64 = so_far.rows.iter().map(|row| row.runs).sum();
        let all = total * self.results.rows.len() as u64;
        let text = if self.args.json { json(&so_far)? } else { explanation::text(&so_far) };
        interrupt.keep(None, text, format!("{done} of {all} runs are shown"));
        Ok(())
    }

    /// Explores all crash cycles of a run, which is number `done` + 1 of `total`.
    fn run(
        &mut self,
        at: usize,
        (system, subject): (AnySystem, &dyn CrashSubject),
        seed: u64,
        (done, total): (u64, u64),
    ) -> Result<()> {
        let (args, model) = (self.args, self.results.rows[at].model);
        let total = total * u64::from(args.cycles);
        let mut cycles = CrashCycles::new(args.cycles, seed, None);
        while let Some((cycle_seed, disks)) = cycles.begin() {
            let doing = args.workload.doing(cycle_seed, &self.results.rows[at].geometry);
            let unit = args.program.sector();
            let config = Config { disks, unit, ..config(cycle_seed, model, &args.rule) }
                .with_cache(args.cache(), self.results.rows[at].geometry.block_size);
            let run = subject.record(&doing, &config);
            let on = on(&self.results.rows[at].geometry, model);
            let run = run.with_context(|| format!("{} ({on}), seed {seed}", system.name()))?;
            let parts = (&*self.budget.judged, self.budget.states as u64);
            let step = done * u64::from(args.cycles) + u64::from(cycles.begun()) - 1;
            let explore = || subject.explore(&run, cycle_seed, &self.budget);
            let mut outcome = self.progress.follow((step, total), parts, explore);
            let before = cycles.before().to_vec();
            cycles.end(&mut outcome, || subject.end(&run, cycle_seed));
            self.results.rows[at].add(seed, &outcome);
            if let Some(cycle_results) = &mut self.cycle_results {
                cycle_results.push(CycleResult::new(seed, &outcome));
            }
            self.judged += outcome.counts.states + outcome.counts.in_recovery;
            if let Some(failure) = outcome.failures.first().filter(|_| !self.saved) {
                self.saved = true;
                self.progress.finish();
                let (budget, geometry) = (&self.budget, &self.results.rows[at].geometry);
                let what = save::FailureSource { args, system, geometry, doing, config };
                save::FoundFailure { what, before, run, budget, failure }.save(subject)?;
            }
        }
        Ok(())
    }
}
