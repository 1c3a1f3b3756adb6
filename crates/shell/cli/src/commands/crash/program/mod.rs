//! `ordo crash -- COMMAND`: power cuts under any program.

mod junit;
mod own;
mod page;
mod reasons;
mod search;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ordo_crash::CrashModel;
use ordo_crash::space::Manner;
use ordo_crash_program::causes::Cause;
use ordo_crash_program::explore::Wrong;
use ordo_crash_program::record::Recorded;
use ordo_crash_program::saved::SavedJob;
use ordo_crash_program::{
    Check, Explained, Explanation, ExploreEvent, InFiles, Job, JobCounts, JobOutcome,
    ProgramSystem, RecordingPlan, RepeatedFailure,
};
use ordo_report::json;
use ordo_report::number::{count, figure};
use ordo_report::progress::Progress;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::reasons::NotJudged;
use self::search::Search;
use super::{CrashStatus, failure_file, show_text, write_whole};
use crate::args::Crash;
use crate::commands::mount::pressure;

/// The default for the most states of a program.
const STATES: usize = 1000;
/// The default number of states that are judged at once. Nearly all of a state's time is waiting
/// for the kernel's mount and unmount, not for a processor.
const STANDS: usize = 16;
/// The most kinds of failures that are shrunk and explained.
const EXPLAINED_MAX: usize = 4;

/// The results of one system.
#[derive(Serialize, Deserialize)]
struct Row {
    system: String,
    model: CrashModel,
    sector: usize,
    /// The exit status of the command.
    command_status: Option<i32>,
    /// Whether the command was stopped at its time limit, as it was to be.
    #[serde(default)]
    command_stopped: bool,
    /// Whether the file system had no space left.
    #[serde(default)]
    no_space: bool,
    writes: usize,
    writes_failed: usize,
    promises: usize,
    /// The number of lines of `$ORDO_MARK` whose newline never came.
    #[serde(default)]
    unfinished_lines: usize,
    #[serde(flatten)]
    counts: JobCounts,
    #[serde(rename = "check_said")]
    check_output: Option<String>,
    #[serde(default)]
    flaky_output: Option<String>,
    /// The reason why the check does not pass after the command's end.
    #[serde(default)]
    control: Option<String>,
    /// The reasons why promises could not be judged, or not all.
    #[serde(default)]
    not_judged: Vec<NotJudged>,
    causes: Vec<Cause>,
    findings: Vec<Explanation>,
}

/// The results of all systems.
#[derive(Serialize, Deserialize)]
struct Results {
    command: Vec<String>,
    check: String,
    states: usize,
    seed: u64,
    shard: (u64, u64),
    rules: Vec<String>,
    only: Vec<Manner>,
    rows: Vec<Row>,
}

impl Results {
    /// No results yet.
    fn new(args: &Crash, check: &Check) -> Results {
        let words = args.program.command.iter().map(|word| word.to_string_lossy().into_owned());
        Results {
            command: words.collect(),
            check: check.command.clone(),
            states: args.states.unwrap_or(STATES),
            seed: args.seed,
            shard: args.shard,
            rules: args.rule.iter().map(ToString::to_string).collect(),
            only: args.program.only.clone(),
            rows: Vec::new(),
        }
    }

    /// The results in the file of `-o`, if the search goes on with them.
    fn resumed(self, args: &Crash) -> Result<Results> {
        let Some(path) = args.output.as_deref().filter(|path| args.resume && path.exists()) else {
            return Ok(self);
        };
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        let found: Results = serde_json::from_str(&text)
            .with_context(|| format!("{}: no results of a program", path.display()))?;
        let same = |a: &Results, b: &Results| {
            (&a.command, &a.check, a.states, a.seed, a.shard, &a.rules, &a.only)
                == (&b.command, &b.check, b.states, b.seed, b.shard, &b.rules, &b.only)
        };
        if !same(&found, &self) {
            bail!(
                "{}: results of another search: remove the file, or give the same arguments",
                path.display()
            );
        }
        Ok(found)
    }

    /// Whether the search of a system was finished earlier.
    fn has(&self, plan: &RecordingPlan, sector: usize) -> bool {
        let name = plan.system.name();
        let is_it = |row: &Row| (&row.system, row.model, row.sector) == (&name, plan.model, sector);
        self.rows.iter().any(is_it)
    }
}

pub(super) fn run(args: &Crash) -> Result<ExitCode> {
    let Some(check) = args.program.check.clone() else {
        bail!("--check is missing: give a command whose exit status says whether a state is right");
    };
    let stop = on_signals()?;
    let origin = std::env::current_dir().context("the current directory")?;
    let timeout = Duration::from_secs(args.program.check_timeout);
    let sees_times = args.program.times;
    let check = Check { command: check, timeout, origin: origin.clone(), sees_times };
    let names = match args.program_systems() {
        names if names.is_empty() => vec!["ext4".to_owned()],
        names => names,
    };
    let systems = names.iter().map(|name| system(args, name)).collect::<Result<Vec<_>>>()?;
    private_mounts(systems.iter().any(ProgramSystem::is_kernels))?;
    ordo_recorder::remove_leftovers();
    say_what_checks_share(args);
    let mut results = Results::new(args, &check).resumed(args)?;
    let mut unfinished = None;
    'all: for system in &systems {
        for model in &args.model {
            let plan = plan(args, system, *model, &origin);
            if results.has(&plan, args.program.sector()) {
                continue;
            }
            let row = one(args, &plan, &check, &stop).with_context(|| system.name());
            if let (Err(error), Some(path)) = (&row, &args.program.junit) {
                write_whole(path, &junit::suite(&results, Some((&system.name(), error))))?;
            }
            match row? {
                Some(row) if row.counts.states < row.counts.planned => unfinished = Some(row),
                Some(row) => results.rows.push(row),
                None => {}
            }
            if stop.load(Ordering::Relaxed) {
                break 'all;
            }
            if let Some(path) = &args.output {
                write_whole(path, &json(&results)?)?;
            }
        }
    }
    results.rows.extend(unfinished);
    if let Some(path) = &args.program.html {
        write_whole(path, &page::page(&results))?;
    }
    if let Some(path) = &args.program.junit {
        write_whole(path, &junit::suite(&results, None))?;
    }
    show_text(&if args.json { json(&results)? } else { table(&results) })?;
    if stop.load(Ordering::Relaxed) {
        eprintln!("{}", how_to_continue(args));
        return Ok(CrashStatus::Interrupted.into());
    }
    Ok(status(&results).into())
}

fn how_to_continue(args: &Crash) -> String {
    match &args.output {
        Some(path) => format!(
            "stopped: the same command with --resume -o {} goes on where it was",
            path.display()
        ),
        None => "stopped: with -o FILE, --resume would go on where it was".to_owned(),
    }
}

fn status(results: &Results) -> CrashStatus {
    let is_broken = results.rows.iter().any(|row| row.counts.promise_broken > 0);
    let is_doubtful = results.rows.iter().any(|row| !row.not_judged.is_empty());
    match (is_broken, is_doubtful) {
        (true, _) => CrashStatus::Broken,
        (false, true) => CrashStatus::NotJudged,
        (false, false) => CrashStatus::Kept,
    }
}

/// Says so if checks at the same time cannot have networks of their own.
fn say_what_checks_share(args: &Crash) {
    if let (Err(why), false) = (ordo_crash_program::check::apart(), args.quiet || args.threads == 1)
    {
        eprintln!(
            "checks that run at the same time share this machine's network and processes ({why}): \
             take ports and names by $ORDO_SLOT, or give --threads 1"
        );
    }
}

/// Handles signals: the first one stops the work, so that mounts and devices are removed in order;
/// a second one exits.
fn on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Gives the process mounts of its own, which go away with it. Only root can do so, and only for
/// the kernel's file systems must it be done.
fn private_mounts(needed: bool) -> Result<()> {
    match ordo_crash_program::own_mounts() {
        Err(error) if needed => Err(error).context(
            "mounts of its own (unshare): the kernel's file systems need root; Ordo's do not, as in \
             --fs ffs-soft-updates; see docs/crash-programs.md",
        ),
        _ => Ok(()),
    }
}

/// The file system with this name and the options of the arguments.
fn system(args: &Crash, name: &str) -> Result<ProgramSystem> {
    let more = args.program.mount_opts.as_deref();
    let with = match (more, name.contains(':')) {
        (None, _) => name.to_owned(),
        (Some(more), true) => format!("{name},{more}"),
        (Some(more), false) => format!("{name}:{more}"),
    };
    let own = own::system(name, args.size).is_ok_and(|system| !system.is_kernels());
    if own && (more.is_some() || args.program.mkfs.is_some()) {
        bail!("{name}: --mount-opts and --mkfs are for the kernel's file systems");
    }
    let mkfs = args.program.mkfs.as_deref().unwrap_or_default();
    let mkfs = mkfs.split_whitespace().map(str::to_owned).collect();
    let system = own::system(&with, args.size)?.with_mkfs(mkfs)?;
    let devices: u64 = system.devices().iter().sum();
    let of_states = devices.saturating_mul(stands(args) as u64);
    let in_files = InFiles {
        recording: devices > memory_of_contents(args),
        states: of_states > memory_of_states(args),
    };
    Ok(system.with_devices_in_files(in_files))
}

/// The number of states that are judged at once.
fn stands(args: &Crash) -> usize {
    if args.threads == 0 { STANDS } else { args.threads }
}

/// The memory of a machine that does not say how much it has, in bytes.
const MEMORY: u64 = 4 << 30;
/// The most memory for the contents of writes unless `--memory` says otherwise, in bytes: more
/// brings little, since a file that was just written is read from the host's cache.
const CONTENTS: u64 = 64 << 20;

/// The most memory for the contents of writes, and for the devices of a recording, in bytes.
fn memory_of_contents(args: &Crash) -> u64 {
    args.program.memory.map_or(CONTENTS, |memory| memory / 2)
}

/// The most memory for the devices of states, in bytes.
fn memory_of_states(args: &Crash) -> u64 {
    let quarter = || pressure::memory(Path::new("/")).unwrap_or(MEMORY) / 4;
    args.program.memory.map_or_else(quarter, |memory| memory / 2)
}

fn plan(args: &Crash, system: &ProgramSystem, model: CrashModel, origin: &Path) -> RecordingPlan {
    RecordingPlan {
        system: system.clone(),
        setup: args.program.setup.clone(),
        command: args.program.command.clone(),
        neighbour: (args.program.neighbour > 0)
            .then(|| Duration::from_millis(args.program.neighbour)),
        syscalls: args.program.syscalls,
        fail: args.program.fail.clone(),
        timeout: args.program.timeout.map(Duration::from_secs),
        until_timeout: args.program.until_timeout,
        model,
        memory: memory_of_contents(args),
        origin: origin.to_owned(),
    }
}

fn job(args: &Crash) -> Job {
    Job {
        states: args.states.unwrap_or(STATES),
        seed: args.seed,
        unit: args.program.sector(),
        shard: args.shard,
        rules: args.rule.clone(),
        manners: args.program.only.clone(),
        stands: stands(args),
        recovery_every: args.recovery_every,
        recovery_depth: args.recovery_depth,
        ..Job::default()
    }
}

/// Records the command on one system, or takes the recording of a search that was stopped; explores
/// it, and explains failures. `None` if the work was stopped before there was a recording.
fn one(
    args: &Crash,
    plan: &RecordingPlan,
    check: &Check,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Row>> {
    let job = job(args);
    let mut search = match Search::begin(args, plan, check, &job, stop) {
        Err(error) if is_missing(&error) => return Ok(Some(without_command(plan, &job, &error))),
        Err(error) if stop.load(Ordering::Relaxed) => {
            return match error.downcast_ref() {
                Some(ordo_crash_program::ProgramError::Stopped) => Ok(None),
                _ => Err(error),
            };
        }
        begun => begun?,
    };
    let outcome = explore(args, &mut search, check, &job, stop)?;
    let recorded = &search.recorded;
    let mut findings = Vec::new();
    let is_stopped = stop.load(Ordering::Relaxed);
    for finding in outcome.findings.iter().take(if is_stopped { 0 } else { EXPLAINED_MAX }) {
        let shrink = !args.no_shrink;
        let explained = ordo_crash_program::explain(recorded, check, job.unit, finding, shrink)?;
        if !args.quiet {
            eprintln!("{}: {}\n", plan.system.name(), explained.told.text());
        }
        findings.push(explained);
    }
    save(args, plan, recorded, check, &findings)?;
    let findings: Vec<Explanation> = findings.into_iter().map(|f| f.told).collect();
    let causes = first_causes(&findings);
    if outcome.counts.states == outcome.counts.planned {
        search.remove()?;
    }
    let mut row = Row {
        system: plan.system.name(),
        model: plan.model,
        sector: job.unit,
        command_status: search.recorded.status,
        command_stopped: search.recorded.was_stopped,
        no_space: search.recorded.was_full,
        writes: search.recorded.meanings.iter().map(Vec::len).sum(),
        writes_failed: search.recorded.failed,
        promises: search.recorded.marks.iter().filter(|m| !m.text.starts_with("begin ")).count(),
        unfinished_lines: search.recorded.unfinished,
        counts: outcome.counts,
        check_output: outcome.check_output,
        flaky_output: outcome.flaky_output,
        control: outcome.control,
        not_judged: Vec::new(),
        causes,
        findings,
    };
    row.not_judged = NotJudged::of(&row, args);
    Ok(Some(row))
}

/// The first cause of each finding, in their order, each once.
fn first_causes(findings: &[Explanation]) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for cause in findings.iter().filter_map(|finding| finding.causes.first()) {
        match causes.iter_mut().find(|other| other.mistake == cause.mistake) {
            Some(other) if cause.sure && !other.sure => *other = cause.clone(),
            Some(_) => {}
            None => causes.push(cause.clone()),
        }
    }
    causes
}

/// Whether the command cannot be run at all.
fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ordo_crash_program::ProgramError::Command { .. }))
}

/// The row of a command that cannot be run.
fn without_command(plan: &RecordingPlan, job: &Job, error: &anyhow::Error) -> Row {
    Row {
        system: plan.system.name(),
        model: plan.model,
        sector: job.unit,
        command_status: None,
        command_stopped: false,
        no_space: false,
        writes: 0,
        writes_failed: 0,
        promises: 0,
        unfinished_lines: 0,
        counts: JobCounts::default(),
        check_output: None,
        flaky_output: None,
        control: None,
        not_judged: vec![NotJudged::NoCommand(error.to_string())],
        causes: Vec::new(),
        findings: Vec::new(),
    }
}

fn explore(
    args: &Crash,
    search: &mut Search,
    check: &Check,
    job: &Job,
    stop: &AtomicBool,
) -> Result<JobOutcome> {
    let (before, log) = (std::mem::take(&mut search.done), &search.log);
    let (earlier, recorded) = (before.len() as u64, &search.recorded);
    let progress = Progress::new(args.quiet);
    progress.begin(&recorded.system.name(), "states", job.states as u64);
    let quiet = args.quiet;
    let tell = |told: ExploreEvent<'_>| match told {
        ExploreEvent::Reached(done, total) => progress.reach(done, total),
        ExploreEvent::Found(found) if !quiet => {
            let line = found.said.lines().next().unwrap_or_default();
            eprintln!("{}: found: {line}", recorded.system.name());
        }
        ExploreEvent::Found(_) => {}
        ExploreEvent::Judged(judged) => log.add(judged),
    };
    let outcome = ordo_crash_program::explore(recorded, check, job, before, stop, &tell)?;
    progress.finish();
    search.log.check()?;
    if !quiet && crate::commands::guest::is_within() {
        // Computing costs nothing there: a speed would mean nothing.
        let judged = outcome.counts.states - earlier + outcome.counts.in_recovery;
        eprintln!("{}: {} states", recorded.system.name(), count(judged));
    } else if !quiet {
        let judged = outcome.counts.states - earlier + outcome.counts.in_recovery;
        let rate = figure(judged as f64 / outcome.counts.seconds.max(1e-9));
        let (states, seconds) = (count(judged), outcome.counts.seconds);
        let name = recorded.system.name();
        eprintln!("{name}: {states} states in {seconds:.1} s, {rate} a second");
    }
    Ok(outcome)
}

/// Saves the first failure.
fn save(
    args: &Crash,
    plan: &RecordingPlan,
    recorded: &Recorded,
    check: &Check,
    findings: &[Explained],
) -> Result<()> {
    let broken = |finding: &&Explained| finding.told.wrong != Wrong::Unsound;
    let Some(finding) = findings.iter().find(broken).or(findings.first()) else { return Ok(()) };
    let words: Vec<String> =
        plan.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let saved = SavedJob::new(recorded, check, args.program.sector(), &words, finding)?;
    let name = format!("ordo-crash-{}-{}", plan.system.kind, args.seed);
    let path = failure_file::write(args.save.as_deref(), &name, &json(&saved)?)?;
    if !args.quiet {
        eprintln!("repeat it with: ordo crash replay {}\n", path.display());
    }
    Ok(())
}

/// The results for a person.
fn table(results: &Results) -> String {
    use ordo_report::table::{Align, Table};
    let mut table = Table::new(&[
        ("system", Align::Left),
        ("states", Align::Right),
        ("trees", Align::Right),
        ("lost", Align::Right),
        ("not atomic", Align::Right),
        ("unmountable", Align::Right),
        ("cause", Align::Left),
    ]);
    for row in &results.rows {
        let counts = &row.counts;
        let causes = row.causes.iter().map(Cause::in_words);
        let numbers = [counts.states, counts.trees, counts.lost_durable, counts.not_atomic];
        let mut cells = vec![row.system.clone()];
        cells.extend(numbers.map(count));
        cells.push(count(counts.unsound));
        cells.push(causes.collect::<Vec<_>>().join("; "));
        table.row(cells);
    }
    let mut out = table.to_string();
    for row in &results.rows {
        notes(&mut out, row);
    }
    out
}

fn notes(out: &mut String, row: &Row) {
    use std::fmt::Write;
    let (system, counts) = (&row.system, &row.counts);
    if counts.recoveries > 0 {
        let _ = writeln!(
            out,
            "{system}: the power was cut again during {} of the recoveries: {} more states",
            count(counts.recoveries),
            count(counts.in_recovery)
        );
    }
    if row.unfinished_lines > 0 {
        let _ = writeln!(
            out,
            "{system}: {} lines of $ORDO_MARK do not end in a newline, so they promise nothing",
            row.unfinished_lines
        );
    }
    if row.writes_failed > 0 {
        let _ = writeln!(out, "{system}: {} writes were made to fail", row.writes_failed);
    }
    for reason in &row.not_judged {
        let _ = writeln!(out, "{system}: not judged: {}", reason.text(row));
    }
}

/// Whether a text is the file of a program's failure.
pub(super) fn is_saved(text: &str) -> bool {
    SavedJob::is_one(text)
}

fn parse(file: &Path, text: &str) -> Result<SavedJob> {
    let saved = SavedJob::parse(text, |name, bytes| own::system(name, Some(bytes)));
    saved.with_context(|| file.display().to_string())
}

/// Shows what the file of a failure would run, and asks for it. Without a terminal that is an
/// error.
fn ask(file: &Path, saved: &SavedJob) -> Result<()> {
    use std::io::{BufRead, IsTerminal, Write};
    let mut out = std::io::stderr().lock();
    writeln!(
        out,
        "{} runs a command of its own, in namespaces if that is possible:",
        file.display()
    )?;
    for (what, text) in saved.runs() {
        // A file of somebody else must not write to the terminal what it likes.
        writeln!(out, "  {what:<12} {}", text.escape_debug())?;
    }
    if !std::io::stdin().is_terminal() {
        bail!("{}: nobody can be asked without a terminal: --yes runs it", file.display());
    }
    write!(out, "run it? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("{}: not run", file.display()),
    }
}

/// Repeats a failure.
pub(super) fn replay(
    (file, text): (&Path, &str),
    as_json: bool,
    (shell, yes): (bool, bool),
) -> Result<ExitCode> {
    let saved = parse(file, text)?;
    if !yes {
        ask(file, &saved)?;
    }
    private_mounts(saved.needs_root())?;
    if shell {
        return saved.look(|work, promises| {
            eprintln!("promised: {}; exit ends it", promises.acked.join(", "));
            let program = std::env::var_os("SHELL").unwrap_or_else(|| "sh".into());
            let done = Command::new(program).current_dir(work).status();
            done.map(|_| ExitCode::SUCCESS).context("a shell")
        })?;
    }
    let found = saved.replay().with_context(|| file.display().to_string())?;
    let (text, status) = match &found {
        RepeatedFailure::Broken(found) if as_json => (json(found)?, CrashStatus::Broken),
        RepeatedFailure::Broken(found) => {
            (format!("{}: {}\n", saved.system(), found.text()), CrashStatus::Broken)
        }
        RepeatedFailure::NotJudged(why) => {
            eprintln!("not judged: the check itself failed: {why}");
            (if as_json { "null\n".to_owned() } else { String::new() }, CrashStatus::NotJudged)
        }
        RepeatedFailure::Kept if as_json => ("null\n".to_owned(), CrashStatus::Kept),
        RepeatedFailure::Kept => {
            ("every promise is kept in this state now\n".to_owned(), CrashStatus::Kept)
        }
    };
    show_text(&text)?;
    Ok(status.into())
}

/// Writes the state of a failure to images, one for each of its disks.
pub(super) fn image(file: &Path, output: &Path) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("reading {}", file.display()))?;
    if !SavedJob::is_one(&text) {
        bail!("{}: it is no failure of a program", file.display());
    }
    let saved = parse(file, &text)?;
    let images = saved.image(output)?;
    if images.len() > 1 {
        for (path, words) in images {
            println!("{}: {words}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
