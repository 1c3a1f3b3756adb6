//! Saving and repeating failures.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use ordo_compare::crash::{CrashSubject, CrashWork, subject};
use ordo_crash::saved::{Saved, SavedError, fingerprint};
use ordo_crash::{Budget, Config, Failure, FsGeometry, Run, Script, StateRule, kept};
use ordo_report::json;
use ordo_systems::{AnySystem, System};

use super::{CrashStatus, config, failure_file, show_text};
use crate::args::{Crash, CrashWorkload};

/// The most explorations for shrinking a failure.
const SHRINK_RUNS: usize = 150;

/// The subject of an exploration.
pub(super) struct FailureSource<'a> {
    pub args: &'a Crash,
    pub system: AnySystem,
    pub geometry: &'a FsGeometry,
    pub doing: CrashWork,
    pub config: Config,
}

/// A failure that was found.
pub(super) struct FoundFailure<'a> {
    pub what: FailureSource<'a>,
    /// The ends of the crash cycles before this one.
    pub before: Vec<String>,
    pub run: Arc<Run>,
    pub budget: &'a Budget,
    pub failure: &'a Failure,
}

impl FoundFailure<'_> {
    /// Shrinks the failure, saves it and prints it.
    pub fn save(self, subject: &dyn CrashSubject) -> Result<()> {
        let FailureSource { args, system, config: Config { seed, .. }, .. } = self.what;
        let saved = self.small(subject)?;
        let told = tell(&saved);
        let name = format!("ordo-crash-{}-{seed}", system.name());
        let path = failure_file::write(args.save.as_deref(), &name, &saved.seal()?)?;
        if !args.quiet {
            eprintln!("{told}repeat it with: ordo crash replay {}\n", path.display());
        }
        Ok(())
    }

    fn small(self, subject: &dyn CrashSubject) -> Result<Saved> {
        let FoundFailure { what, before, mut run, budget, failure } = self;
        let FailureSource { args, system, geometry, mut doing, config } = what;
        let mut failure = failure.clone();
        if subject.repeats() {
            if !args.no_shrink
                && let CrashWork::Script(script) = &doing
            {
                let small = subject.shrink(script, &config, budget, &failure, SHRINK_RUNS)?;
                failure = small.failure;
                doing = CrashWork::Script(small.script);
            }
            run = subject.record(&doing, &config)?;
        }
        if !args.no_shrink {
            failure = subject.shrink_state(&run, config.seed, &failure);
        }
        // The effect of earlier crash cycles cannot be repeated from the seed, so the run itself
        // is saved.
        let recorded = match subject.repeats() && config.disks.is_none() {
            true => None,
            false => Some(kept::pack(&[&[run.clone()], &failure.recoveries[..]].concat())?),
        };
        let (workload, script) = match doing {
            CrashWork::Script(script) => (String::new(), Some(script)),
            CrashWork::Bench(..) | CrashWork::Database(_) => (args.workload.to_string(), None),
        };
        let usual = FsGeometry::default().sized(geometry.bytes);
        Ok(Saved {
            format: String::new(),
            system: system.name().into(),
            held_to: args.hold_to.map(|s| s.name().to_string()),
            model: config.model,
            seed: config.seed,
            bytes: geometry.bytes,
            cache: args.cache(),
            geometry: (*geometry != usual).then(|| geometry.clone()),
            workload,
            script,
            rules: args.rule.iter().map(ToString::to_string).collect(),
            path: failure.path,
            broken: failure.verdict.broken,
            before,
            recorded,
            picture: failure.picture.lines().map(str::to_string).collect(),
            run: fingerprint(&run),
            check: 0,
        })
    }
}

/// A failure in words, for a person.
fn tell(saved: &Saved) -> String {
    let mut out = format!(
        "{}{} on a disk of the model '{}', seed {}: a promise is broken\n",
        saved.system,
        saved.geometry.as_ref().map_or(String::new(), |g| format!(" ({})", g.name)),
        saved.model.name(),
        saved.seed
    );
    for what in &saved.broken {
        out.push_str(&format!("  {what}\n"));
    }
    for line in &saved.before {
        out.push_str(&format!("{line}\n"));
    }
    // A failure whose run cannot be repeated was not shrunk.
    let small = |_: &&Script| saved.recorded.is_none() || !saved.before.is_empty();
    let script = saved.script.as_ref().filter(small);
    let operations = script.map(|s| s.len());
    if let Some(operations) = operations {
        out.push_str(&format!("after {operations} operations, with this on the disk:\n"));
    }
    for line in &saved.picture {
        out.push_str(&format!("{line}\n"));
    }
    out
}

/// `ordo crash replay`.
pub(super) fn replay(file: &Path, text: &str, as_json: bool) -> Result<ExitCode> {
    let saved = Saved::parse(text).with_context(|| file.display().to_string())?;
    let unknown = |name: &str| format!("{}: there is no system '{name}' here", file.display());
    let system = AnySystem::by_name(&saved.system).with_context(|| unknown(&saved.system))?;
    let held_to = match &saved.held_to {
        Some(name) => Some(System::by_name(name).with_context(|| unknown(name))?),
        None => None,
    };
    let subject = subject(system, held_to, &saved.geometry())?;
    let failure = again(&*subject, &saved).with_context(|| file.display().to_string())?;
    let broken = !failure.verdict.broken.is_empty();
    let picture = failure.picture.lines().map(str::to_string).collect();
    let now = Saved { broken: failure.verdict.broken, picture, ..saved };
    let text = match (as_json, broken) {
        (true, _) => json(&now)?,
        (false, true) => tell(&now),
        (false, false) => "every promise is kept in this state now\n".into(),
    };
    show_text(&text)?;
    Ok(if broken { CrashStatus::Broken } else { CrashStatus::Kept }.into())
}

fn again(subject: &dyn CrashSubject, saved: &Saved) -> Result<Failure> {
    let runs = match &saved.recorded {
        Some(text) => kept::unpack(text)?,
        None => vec![run_again(subject, saved)?],
    };
    if runs.first().is_none_or(|run| fingerprint(run) != saved.run) {
        return Err(SavedError::OtherRun { seed: saved.seed }.into());
    }
    let failure = subject.judge(&runs, saved.seed, &saved.path);
    Ok(failure.ok_or(SavedError::NoState)?)
}

fn run_again(subject: &dyn CrashSubject, saved: &Saved) -> Result<Arc<Run>> {
    let rules = saved.rules.iter().map(|r| r.parse::<StateRule>());
    let rules: Vec<StateRule> = rules.collect::<Result<_, _>>()?;
    let config = config(saved.seed, saved.model, &rules)
        .with_cache(saved.cache, saved.geometry().block_size);
    let doing = match &saved.script {
        Some(script) => CrashWork::Script(script.clone()),
        None => {
            let workload: CrashWorkload = saved.workload.parse().map_err(anyhow::Error::msg)?;
            workload.doing(saved.seed, &saved.geometry())
        }
    };
    Ok(subject.record(&doing, &config)?)
}
