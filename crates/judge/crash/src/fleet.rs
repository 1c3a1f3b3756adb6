//! A campaign that is cut into tasks for many machines, and the merging of their results.
//!
//! A task is one complete line: the program that made it, the whole plan, and the runs of one
//! system, shape and disk. A result lists each crash cycle of its runs separately, so merged
//! results are added up in the same order as on one machine, and the sums are equal to the last
//! bit. Nothing in a result depends on when, where or how often its task was done.
//!
//! ```text
//! Sweep::new(plan, 5, program) -> sweep.task(n) for n in 1..=sweep.tasks() -> one line each
//! Task::parse(line) -> carried out -> Finished::new(task, cycles).text() -> Finished::parse(text) -> merge
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::campaign::{CampaignPlan, CycleResult, Results};
use crate::{CrashModel, FsGeometry};

/// The format in a task.
const TASK: &str = "ordo crash task 1";

/// The format in the result of a task.
const FINISHED: &str = "ordo crash task result 1";

/// The most tasks of a plan.
pub const TASKS_MAX: u64 = 1_000_000_000;

/// The most ranges of missing tasks that an error lists.
const NAMED_MAX: usize = 20;

/// The SHA-256 of some bytes, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The program that explores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The version, for people.
    pub version: String,
    /// The SHA-256 of the executable file, as `sha256sum` prints it.
    pub digest: String,
}

/// A plan cut into tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// The plan of the whole campaign.
    pub plan: CampaignPlan,
    /// The runs of a task. The last one for a system, shape and disk may have fewer.
    pub runs_each: u64,
    /// The program that explores, since another one may find something else.
    pub program: Program,
}

impl Sweep {
    /// Cuts a plan into tasks of `runs_each` runs, at least one.
    pub fn new(plan: CampaignPlan, runs_each: u64, program: Program) -> Sweep {
        Sweep { plan, runs_each: runs_each.max(1), program }
    }

    /// The number of tasks for one row of the results.
    fn of_row(&self) -> u64 {
        self.plan.runs.div_ceil(self.runs_each.max(1))
    }

    /// The number of tasks.
    pub fn tasks(&self) -> u64 {
        let CampaignPlan { systems, geometries, models, .. } = &self.plan;
        let lists = [systems.len(), geometries.len(), models.len()];
        lists.into_iter().fold(self.of_row(), |all, n| all.saturating_mul(n as u64))
    }

    /// The task with this number, from 1 to [`Sweep::tasks`]; `None` for a plan with more than
    /// [`TASKS_MAX`].
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

    /// A digest of the plan, of its division, and of the program.
    pub fn digest(&self) -> String {
        digest(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}

/// A task: some runs of one system in one geometry on one disk, as a complete line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The format.
    pub format: String,
    /// The number, from 1: the line in the list of tasks.
    pub task: u64,
    /// The number of tasks.
    pub tasks: u64,
    /// The digest of the sweep; see [`Sweep::digest`].
    pub plan_digest: String,
    /// The system.
    pub system: String,
    /// The shape of its file system.
    pub geometry: FsGeometry,
    /// The fault model of the disk.
    pub model: CrashModel,
    /// The workload.
    pub workload: String,
    /// The seed of the first run. Each further run has the next number.
    pub seed: u64,
    /// The number of runs.
    pub runs: u64,
    /// The most states of each run, over all its crash cycles.
    pub states: usize,
    /// The sweep, which has the rest of the budget.
    pub sweep: Sweep,
}

/// The reason why a task cannot be done, or results cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The text is not a task.
    #[error("not a complete task of a crash sweep: {0}; take the line from ordo crash plan again")]
    Task(String),
    /// The text is not a result.
    #[error("not a complete result of a task: {0}; it is left out: run its task again")]
    Damaged(String),
    /// The results belong to two sweeps, or come from two programs.
    #[error("{first} and {other} are results of different sweeps: {what}; merge one at a time")]
    Other {
        /// A file.
        first: String,
        /// Another.
        other: String,
        /// The difference.
        what: String,
    },
    /// Two results of one task were given.
    #[error(
        "task {task} of {tasks} was given twice, with {} results: {first} and {second}; {}",
        if *.same { "equal" } else { "different" },
        if *.same {
            "leave one out"
        } else {
            "run it once more, and see which of the two machines is wrong"
        }
    )]
    Twice {
        /// The number of the task.
        task: u64,
        /// The number of tasks.
        tasks: u64,
        /// The file of the first result.
        first: String,
        /// The file of the second result.
        second: String,
        /// Whether the two are equal.
        same: bool,
    },
    /// Some tasks have no result.
    #[error("{0}")]
    Missing(Gaps),
}

/// Tasks without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// The first and last task of each gap, in order.
    pub ranges: Vec<(u64, u64)>,
    /// The number of tasks.
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
            "{number} {}{more} of {} {are} missing; run these lines of the plan: sed -n '{}'",
            text.join(", "),
            self.tasks,
            lines.join(";")
        )
    }
}

impl Task {
    /// The task as one line, without the line end.
    ///
    /// # Errors
    /// As `serde_json`.
    pub fn line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Parses a task.
    ///
    /// # Errors
    /// [`FleetError::Task`]: the line was cut short, or its parts contradict each other.
    pub fn parse(line: &str) -> Result<Task, FleetError> {
        let task: Task = serde_json::from_str(line).map_err(|e| FleetError::Task(e.to_string()))?;
        task.agrees().map_err(FleetError::Task)?;
        Ok(task)
    }

    /// Checks that the task is the one in its sweep that it claims to be.
    fn agrees(&self) -> Result<(), String> {
        if self.format != TASK {
            return Err(format!("its format is {:?}, not {TASK:?}", self.format));
        }
        let CampaignPlan { shard, shards, .. } = self.sweep.plan;
        if (shard, shards) != (1, 1) {
            return Err(format!("its plan is shard {shard} of {shards}"));
        }
        match self.sweep.task(self.task) {
            Some(task) if task == *self => Ok(()),
            Some(_) => Err(format!("task {} of its plan is another", self.task)),
            None => Err(format!("there is no task {} in its plan", self.task)),
        }
    }

    /// A plan with only this task.
    pub fn plan(&self) -> CampaignPlan {
        CampaignPlan {
            systems: vec![self.system.clone()],
            models: vec![self.model],
            geometries: vec![self.geometry.clone()],
            seed: self.seed,
            runs: self.runs,
            ..self.sweep.plan.clone()
        }
    }
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The format.
    pub format: String,
    /// A digest of all other fields.
    pub digest: String,
    /// The task.
    pub task: Task,
    /// Every crash cycle of every run, in order.
    // The key is that of results of version 1, whose digests cover it.
    #[serde(rename = "lives", alias = "cycles")]
    pub cycles: Vec<CycleResult>,
}

impl Finished {
    /// The result of a task with these crash cycles.
    ///
    /// # Errors
    /// As `serde_json`.
    pub fn new(task: Task, cycles: Vec<CycleResult>) -> Result<Finished, serde_json::Error> {
        let mut whole = Finished { format: FINISHED.into(), digest: String::new(), task, cycles };
        whole.digest = whole.sum()?;
        Ok(whole)
    }

    fn sum(&self) -> Result<String, serde_json::Error> {
        Ok(digest(serde_json::to_string(&(&self.format, &self.task, &self.cycles))?.as_bytes()))
    }

    /// Whether a text claims to be a result.
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

    /// The name of the result's file, made from the sweep, the task and the results.
    pub fn name(&self) -> String {
        format!("{}{}.json", Finished::prefix(&self.task), &self.digest[..16])
    }

    /// The beginning of the names of all files with results of this task.
    pub fn prefix(task: &Task) -> String {
        format!("{}-{:08}-", &task.plan_digest[..12], task.task)
    }

    /// Parses a result.
    ///
    /// # Errors
    /// [`FleetError::Damaged`]: the text was cut short or changed, or lacks runs of its task.
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
        let seeds: Vec<_> = result.cycles.chunk_by(|a, b| a.seed == b.seed).collect();
        let Task { seed, runs, .. } = result.task;
        let is_whole = seeds.len() as u64 == runs
            && seeds.iter().zip(seed..).all(|(cycles, seed)| {
                cycles[0].seed == seed
                    && cycles.len() as u64 <= u64::from(result.task.sweep.plan.cycles)
            });
        match is_whole {
            true => Ok(result),
            false => Err(damaged(format!("it does not have the {runs} runs from seed {seed}"))),
        }
    }
}

/// Merges the results of all tasks, each with the name of its file. The sum is that of one machine.
///
/// # Errors
/// A task is missing, there twice, or of another sweep. Nothing is returned then.
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
        return Err(FleetError::Damaged("no files of results were given".into()));
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
        part.cycles.iter().for_each(|cycle| row.append(cycle));
        row.runs += part.task.runs;
    }
    Ok(whole)
}

/// The difference between two sweeps, in words.
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
