//! A campaign cut into tasks that many machines carry out, and their results put together.
//!
//! A task is one line that says all: who made it, the whole plan, and which runs of which system, shape and disk are
//! meant. A result holds each life of its runs by itself, so that what is put together is added up in the same order
//! as on one machine: the sums are the same to the last bit. Nothing in a result depends on when, where or how often its
//! task was carried out.
//!
//! ```text
//! Sweep::new(plan, 5, program) -> sweep.task(n) for n in 1..=sweep.tasks() -> one line each
//! Task::parse(line) -> carried out -> Finished::new(task, lives).text() -> Finished::parse(text) -> merge
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::campaign::{POSSIBLE_MAX, Plan, Results};
use crate::{Counts, Geometry, Model, Outcome};

/// What a task says that it is.
const TASK: &str = "ordo crash task 1";

/// What the result of a task says that it is.
const FINISHED: &str = "ordo crash task result 1";

/// Tasks that a plan may have.
pub const TASKS_MAX: u64 = 1_000_000_000;

/// Missing tasks that an error names, as ranges.
const NAMED_MAX: usize = 20;

/// The SHA-256 of some bytes, as hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The program that explores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its version, for people.
    pub version: String,
    /// The SHA-256 of the executable file, as `sha256sum` prints it.
    pub digest: String,
}

/// A plan cut into tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// All that is explored.
    pub plan: Plan,
    /// Runs of a task; the last one of a system, shape and disk may have fewer.
    pub runs_each: u64,
    /// Who explores it: another program may find something else.
    pub program: Program,
}

impl Sweep {
    /// Cuts a plan into tasks of so many runs, at least one.
    pub fn new(plan: Plan, runs_each: u64, program: Program) -> Sweep {
        Sweep { plan, runs_each: runs_each.max(1), program }
    }

    /// Tasks for each row of the results.
    fn of_row(&self) -> u64 {
        self.plan.runs.div_ceil(self.runs_each.max(1))
    }

    /// How many tasks there are.
    pub fn tasks(&self) -> u64 {
        let Plan { systems, geometries, models, .. } = &self.plan;
        let lists = [systems.len(), geometries.len(), models.len()];
        lists.into_iter().fold(self.of_row(), |all, n| all.saturating_mul(n as u64))
    }

    /// The task with this number, from 1 to [`Sweep::tasks`]; none of a plan of more than [`TASKS_MAX`].
    pub fn task(&self, number: u64) -> Option<Task> {
        let is_sound = self.runs_each > 0 && self.tasks() <= TASKS_MAX;
        if !is_sound || number == 0 || number > self.tasks() {
            return None;
        }
        self.plan.seed.checked_add(self.plan.runs)?;
        let (row, part) = ((number - 1) / self.of_row(), (number - 1) % self.of_row());
        let done = part * self.runs_each;
        let (models, shapes) = (&self.plan.models, &self.plan.geometries);
        let (row, model) = (row as usize / models.len(), row as usize % models.len());
        Some(Task {
            format: TASK.into(),
            task: number,
            tasks: self.tasks(),
            plan_digest: self.digest(),
            system: self.plan.systems[row / shapes.len()].clone(),
            geometry: shapes[row % shapes.len()].clone(),
            model: models[model],
            workload: self.plan.workload.clone(),
            seed: self.plan.seed + done,
            runs: self.runs_each.min(self.plan.runs - done),
            states: self.plan.states,
            sweep: self.clone(),
        })
    }

    /// Stands for the plan, how it is cut, and who explores it.
    pub fn digest(&self) -> String {
        digest(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}

/// Some runs of one system in one shape on one disk: a line that says all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What this is.
    pub format: String,
    /// Its number, from 1: the line in the list of tasks.
    pub task: u64,
    /// How many there are.
    pub tasks: u64,
    /// Stands for the sweep; see [`Sweep::digest`].
    pub plan_digest: String,
    /// The system.
    pub system: String,
    /// The shape of its file system.
    pub geometry: Geometry,
    /// What the disk may lose.
    pub model: Model,
    /// What is done.
    pub workload: String,
    /// The seed of the first run; each run has the next.
    pub seed: u64,
    /// How many runs.
    pub runs: u64,
    /// States of each run at most, of all its lives.
    pub states: usize,
    /// What it is a part of, with the rest of the budget.
    pub sweep: Sweep,
}

/// Why a task cannot be carried out, or results cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Not a task.
    #[error("not a whole task of a crash sweep: {0}; take the line from ordo crash plan again")]
    Task(String),
    /// Not a result.
    #[error("not a whole result of a task: {0}; it is left out: carry its task out again")]
    Damaged(String),
    /// Results of two sweeps, or of two programs.
    #[error("{first} and {other} are results of different sweeps: {what}; merge one at a time")]
    Other {
        /// A file.
        first: String,
        /// Another.
        other: String,
        /// What differs.
        what: String,
    },
    /// A result is there twice.
    #[error(
        "task {task} of {tasks} is there twice, with {} results: {first} and {second}; {}",
        if *.same { "equal" } else { "different" },
        if *.same {
            "leave one out"
        } else {
            "carry it out once more, and see which of the two machines is wrong"
        }
    )]
    Twice {
        /// Its number.
        task: u64,
        /// Of so many.
        tasks: u64,
        /// Where.
        first: String,
        /// And where.
        second: String,
        /// Whether they agree.
        same: bool,
    },
    /// Some are missing.
    #[error("{0}")]
    Missing(Gaps),
}

/// Tasks without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// First and last of each gap, in order.
    pub ranges: Vec<(u64, u64)>,
    /// Of so many tasks.
    pub tasks: u64,
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(first, last): &(u64, u64), between: &str| match first == last {
            true => first.to_string(),
            false => format!("{first}{between}{last}"),
        };
        let named = &self.ranges[..self.ranges.len().min(NAMED_MAX)];
        let text: Vec<_> = named.iter().map(|r| range(r, " to ")).collect();
        let lines: Vec<_> = named.iter().map(|r| range(r, ",") + "p").collect();
        let more = self.ranges.len() - named.len();
        let more = if more > 0 { format!(" and {more} more gaps") } else { String::new() };
        let missing: u64 = self.ranges.iter().map(|(first, last)| last - first + 1).sum();
        let (are, number) = if missing == 1 { ("is", "task") } else { ("are", "tasks") };
        write!(
            f,
            "{number} {}{more} of {} {are} missing; carry out these lines of the plan: sed -n '{}'",
            text.join(", "),
            self.tasks,
            lines.join(";")
        )
    }
}

impl Task {
    /// The task as one line, without its end.
    ///
    /// # Errors
    /// As `serde_json`.
    pub fn line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// A task from its line.
    ///
    /// # Errors
    /// [`FleetError::Task`]: cut short, or its parts contradict each other.
    pub fn parse(line: &str) -> Result<Task, FleetError> {
        let task: Task = serde_json::from_str(line).map_err(|e| FleetError::Task(e.to_string()))?;
        task.agrees().map_err(FleetError::Task)?;
        Ok(task)
    }

    /// Whether it is the task of its sweep that it claims to be.
    fn agrees(&self) -> Result<(), String> {
        if self.format != TASK {
            return Err(format!("its format is {:?}, not {TASK:?}", self.format));
        }
        let Plan { shard, shards, .. } = self.sweep.plan;
        if (shard, shards) != (1, 1) {
            return Err(format!("its plan is shard {shard} of {shards}"));
        }
        match self.sweep.task(self.task) {
            Some(task) if task == *self => Ok(()),
            Some(_) => Err(format!("task {} of its plan is another", self.task)),
            None => Err(format!("there is no task {} in its plan", self.task)),
        }
    }

    /// A plan of nothing but this.
    pub fn plan(&self) -> Plan {
        Plan {
            systems: vec![self.system.clone()],
            models: vec![self.model],
            geometries: vec![self.geometry.clone()],
            seed: self.seed,
            runs: self.runs,
            ..self.sweep.plan.clone()
        }
    }
}

/// What was found in one life of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lived {
    /// The seed of the run.
    pub seed: u64,
    /// States that there are, about.
    pub possible: f64,
    /// Times between which nothing becomes durable.
    pub frontiers: u64,
    /// Those all of whose states were judged.
    pub exhausted: u64,
    /// What was found.
    #[serde(flatten)]
    pub counts: Counts,
    /// How a promise was broken first, where one was.
    pub broken: Option<String>,
}

impl Lived {
    /// What was found in a life of the run with this seed.
    pub fn new(seed: u64, outcome: &Outcome) -> Lived {
        let first = outcome.failures.first();
        Lived {
            seed,
            possible: outcome.possible.min(POSSIBLE_MAX),
            frontiers: outcome.frontiers as u64,
            exhausted: outcome.exhausted as u64,
            counts: outcome.counts,
            broken: first.map(|f| f.verdict.broken.first().cloned().unwrap_or_default()),
        }
    }
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// What this is.
    pub format: String,
    /// Stands for all that follows.
    pub digest: String,
    /// What was to be done.
    pub task: Task,
    /// Every life of every run, in order.
    pub lives: Vec<Lived>,
}

impl Finished {
    /// The result of a task of which these lives were explored.
    ///
    /// # Errors
    /// As `serde_json`.
    pub fn new(task: Task, lives: Vec<Lived>) -> Result<Finished, serde_json::Error> {
        let mut whole = Finished { format: FINISHED.into(), digest: String::new(), task, lives };
        whole.digest = whole.sum()?;
        Ok(whole)
    }

    fn sum(&self) -> Result<String, serde_json::Error> {
        Ok(digest(serde_json::to_string(&(&self.format, &self.task, &self.lives))?.as_bytes()))
    }

    /// Whether a text claims to be one.
    pub fn looks_like(text: &str) -> bool {
        text.get(..200).unwrap_or(text).contains("\"ordo crash task result ")
    }

    /// The result as a text.
    ///
    /// # Errors
    /// As `serde_json`.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|text| text + "\n")
    }

    /// The file's name: of the sweep, of the task, and of what was found.
    pub fn name(&self) -> String {
        format!("{}{}.json", Finished::prefix(&self.task), &self.digest[..16])
    }

    /// How the names of all files with results of this task begin.
    pub fn prefix(task: &Task) -> String {
        format!("{}-{:08}-", &task.plan_digest[..12], task.task)
    }

    /// A result from its text.
    ///
    /// # Errors
    /// [`FleetError::Damaged`]: cut short, changed, or not of all the runs of its task.
    pub fn parse(text: &str) -> Result<Finished, FleetError> {
        let damaged = |what: String| FleetError::Damaged(what);
        let result: Finished = serde_json::from_str(text).map_err(|e| damaged(e.to_string()))?;
        if result.format != FINISHED {
            return Err(damaged(format!("its format is {:?}, not {FINISHED:?}", result.format)));
        }
        result.task.agrees().map_err(damaged)?;
        if result.sum().map_err(|e| damaged(e.to_string()))? != result.digest {
            return Err(damaged("its digest is not that of its contents".into()));
        }
        let seeds: Vec<_> = result.lives.chunk_by(|a, b| a.seed == b.seed).collect();
        let Task { seed, runs, .. } = result.task;
        let is_whole = seeds.len() as u64 == runs
            && seeds.iter().zip(seed..).all(|(lives, seed)| {
                lives[0].seed == seed
                    && lives.len() as u64 <= u64::from(result.task.sweep.plan.lives)
            });
        match is_whole {
            true => Ok(result),
            false => Err(damaged(format!("it does not have the {runs} runs from seed {seed}"))),
        }
    }
}

/// Puts the results of all tasks together, each with the name of its file: what one machine would have found.
///
/// # Errors
/// A task is missing or there twice, or of another sweep. Nothing is given then.
pub fn merge(parts: Vec<(String, Finished)>) -> Result<Results, FleetError> {
    let mut all: BTreeMap<u64, (String, Finished)> = BTreeMap::new();
    let mut of: Option<(String, Task)> = None;
    for (name, part) in parts {
        let (first, like) = of.get_or_insert_with(|| (name.clone(), part.task.clone()));
        if like.plan_digest != part.task.plan_digest {
            let what = differs(&like.sweep, &part.task.sweep);
            return Err(FleetError::Other { first: first.clone(), other: name, what });
        }
        let (task, tasks) = (part.task.task, part.task.tasks);
        if let Some((before, other)) = all.get(&task) {
            let (first, same) = (before.clone(), *other == part);
            return Err(FleetError::Twice { task, tasks, first, second: name, same });
        }
        all.insert(task, (name, part));
    }
    let Some((_, like)) = of else {
        return Err(FleetError::Damaged("nothing was given".into()));
    };
    let mut gaps = Gaps { ranges: Vec::new(), tasks: like.tasks };
    let mut next = 1;
    for task in all.keys().copied().chain([like.tasks + 1]) {
        if task > next {
            gaps.ranges.push((next, task - 1));
        }
        next = task + 1;
    }
    if !gaps.ranges.is_empty() {
        return Err(FleetError::Missing(gaps));
    }
    let mut whole = Results::new(like.sweep.plan.clone());
    for (number, (_, part)) in all {
        let row = &mut whole.rows[((number - 1) / like.sweep.of_row()) as usize];
        part.lives.iter().for_each(|life| row.append(life));
        row.runs += part.task.runs;
    }
    Ok(whole)
}

/// What differs between two sweeps, in words.
fn differs(a: &Sweep, b: &Sweep) -> String {
    if a.program != b.program {
        let name = |p: &Program| format!("ordo {} ({:.12})", p.version, p.digest);
        return format!("they were explored by {} and {}", name(&a.program), name(&b.program));
    }
    let a_plan = Results { rows: Vec::new(), plan: a.plan.clone(), format: String::new() };
    match a_plan.belong_to(&b.plan) {
        Err(e) => e.to_string(),
        Ok(()) => format!("tasks of {} runs and of {}", a.runs_each, b.runs_each),
    }
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
