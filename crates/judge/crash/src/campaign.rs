//! Campaigns of many runs, on one machine or on several: the plan, the results, and their merging.

use serde::{Deserialize, Serialize};

use crate::{CachePlan, CrashModel, FsGeometry, Outcome, StateCounts};

/// The format in the head of a results file.
const FORMAT: &str = "ordo crash results 1";

/// The plan of a campaign. Two results can be merged if their plans are equal except for the shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignPlan {
    /// The systems.
    pub systems: Vec<String>,
    /// The system to whose promise all are held. By default each is held to its own.
    pub held_to: Option<String>,
    /// The fault models of the disk.
    pub models: Vec<CrashModel>,
    /// The workload, in the form in which the command takes it.
    pub workload: String,
    /// The seed of the first run. Each further run has the next number.
    pub seed: u64,
    /// The number of runs.
    pub runs: u64,
    /// The crash cycles of each run. Each cycle but the first begins on the disks that a crash of
    /// the one before has left.
    // The key is that of the tasks and results of version 1, whose digests cover it.
    #[serde(default = "one", rename = "lives", alias = "cycles")]
    pub cycles: u32,
    /// The most states of each run, over all its cycles.
    pub states: usize,
    /// Names and contents are judged in one of this many states.
    pub tree_every: usize,
    /// Use after the crash is judged in one of this many states.
    pub usable_every: usize,
    /// The depth of nested crashes: the number of recoveries in a row that are interrupted.
    pub recovery_depth: u32,
    /// A crash during recovery is tried in one of this many states.
    pub recovery_every: usize,
    /// The rules that the states must follow.
    pub rules: Vec<String>,
    /// The size of the first disk in bytes, for geometries without one.
    pub bytes: u64,
    /// The shapes of the file systems. Older files have none, which stands for the default shape.
    #[serde(default)]
    pub geometries: Vec<FsGeometry>,
    /// The cache.
    #[serde(flatten)]
    pub cache: CachePlan,
    /// The bytes that the disk never tears, if they were asked for. Only the kernel's file systems
    /// are judged by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector: Option<usize>,
    /// This machine's part of the runs, counted from 1.
    pub shard: u64,
    /// The number of parts.
    pub shards: u64,
}

/// The number of crash cycles in results of older versions, which had one cycle only.
const fn one() -> u32 {
    1
}

impl CampaignPlan {
    /// The seeds of this shard, in order.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let (shard, shards, seed) = (self.shard - 1, self.shards, self.seed);
        (0..self.runs).filter(move |run| run % shards == shard).map(move |run| seed + run)
    }
}

/// The results of one system on one disk. Fields are added, but never renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignRow {
    /// The system.
    pub system: String,
    /// The fault model of the disk.
    pub model: CrashModel,
    /// The shape of the file system. Older files have none, which stands for the default shape.
    #[serde(default)]
    pub geometry: FsGeometry,
    /// The workload.
    pub workload: String,
    /// Runs that were explored wholly, in the order of the shard's seeds.
    pub runs: u64,
    /// The crash cycles of these runs. A run may end early if its disks are beyond repair and no
    /// promise excludes that.
    #[serde(default, alias = "lives")]
    pub cycles: u64,
    /// The approximate number of possible states.
    pub possible: f64,
    /// Frontiers: periods in which no write becomes durable.
    pub frontiers: u64,
    /// Frontiers all of whose states were judged.
    pub exhausted: u64,
    /// The counts of findings.
    #[serde(flatten)]
    pub counts: StateCounts,
    /// The first run that broke a promise, and the broken promise.
    pub first_broken: Option<(u64, String)>,
}

/// The largest number of possible states that is reported, since JSON has no infinity.
pub(crate) const POSSIBLE_MAX: f64 = 1e300;

impl CampaignRow {
    /// A row without runs.
    pub fn new(
        system: &str,
        model: CrashModel,
        geometry: &FsGeometry,
        workload: &str,
    ) -> CampaignRow {
        CampaignRow {
            system: system.into(),
            model,
            geometry: geometry.clone(),
            workload: workload.into(),
            runs: 0,
            cycles: 0,
            possible: 0.0,
            frontiers: 0,
            exhausted: 0,
            counts: StateCounts::default(),
            first_broken: None,
        }
    }

    /// Adds one crash cycle of the run with this seed.
    pub fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.append(&CycleResult::new(seed, outcome));
    }

    /// Adds one crash cycle.
    pub fn append(&mut self, cycle: &CycleResult) {
        self.cycles += 1;
        self.possible = (self.possible + cycle.possible).min(POSSIBLE_MAX);
        self.frontiers += cycle.frontiers;
        self.exhausted += cycle.exhausted;
        self.counts.add(&cycle.counts);
        if let Some(what) = cycle.broken.as_ref().filter(|_| self.first_broken.is_none()) {
            self.first_broken = Some((cycle.seed, what.clone()));
        }
    }

    fn merge(&mut self, other: &CampaignRow) {
        self.runs += other.runs;
        self.cycles += other.cycles;
        self.possible = (self.possible + other.possible).min(POSSIBLE_MAX);
        self.frontiers += other.frontiers;
        self.exhausted += other.exhausted;
        self.counts.add(&other.counts);
        let first = [self.first_broken.take(), other.first_broken.clone()];
        self.first_broken = first.into_iter().flatten().min_by_key(|f| f.0);
    }
}

/// The results of a campaign so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// One row for each system, geometry and model.
    pub rows: Vec<CampaignRow>,
    /// The plan.
    pub plan: CampaignPlan,
    /// The format of the file.
    pub format: String,
}

/// The reason why results cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The file has no results, or is damaged.
    #[error("not a complete file of crash results: {0}; run the campaign again, or use a copy")]
    Damaged(String),
    /// The results belong to another plan.
    #[error("these results are of another campaign: {what} is {theirs}, not {ours}")]
    Other {
        /// The part of the plan that differs.
        what: &'static str,
        /// The value in the results.
        theirs: String,
        /// The value in the plan.
        ours: String,
    },
    /// A shard is missing.
    #[error("shard {shard} of {shards} is missing; run it with --shard {shard}/{shards}")]
    Gap {
        /// The shard.
        shard: u64,
        /// The number of shards.
        shards: u64,
    },
    /// A shard was given twice.
    #[error("shard {shard} of {shards} was given twice; leave one of its files out")]
    Twice {
        /// The shard.
        shard: u64,
        /// The number of shards.
        shards: u64,
    },
    /// A shard is not finished.
    #[error(
        "shard {shard} of {shards} is not finished: {system} has {done} of {planned} runs; continue with --resume"
    )]
    Unfinished {
        /// The shard.
        shard: u64,
        /// The number of shards.
        shards: u64,
        /// The system.
        system: String,
        /// Finished runs.
        done: u64,
        /// Planned runs.
        planned: u64,
    },
}

impl Results {
    /// Results of a plan without any runs yet.
    pub fn new(plan: CampaignPlan) -> Results {
        let mut rows = Vec::new();
        for system in &plan.systems {
            for geometry in &plan.geometries {
                let row =
                    |model: &CrashModel| CampaignRow::new(system, *model, geometry, &plan.workload);
                rows.extend(plan.models.iter().map(row));
            }
        }
        Results { rows, plan, format: FORMAT.into() }
    }

    /// Parses the results in a file.
    ///
    /// # Errors
    /// [`ResultsError::Damaged`].
    pub fn parse(text: &str) -> Result<Results, ResultsError> {
        let damaged = |what: String| ResultsError::Damaged(what);
        let mut results: Results =
            serde_json::from_str(text).map_err(|e| damaged(e.to_string()))?;
        if results.format != FORMAT {
            return Err(damaged(format!("its format is {:?}, not {FORMAT:?}", results.format)));
        }
        let CampaignPlan { shard, shards, bytes, .. } = results.plan;
        if shard == 0 || shard > shards {
            return Err(damaged(format!("shard {shard} of {shards}")));
        }
        if results.plan.geometries.is_empty() {
            let usual = FsGeometry::default().sized(bytes);
            results.rows.iter_mut().for_each(|row| row.geometry = usual.clone());
            results.plan.geometries = vec![usual];
        }
        let planned = Results::new(results.plan.clone());
        let key = |r: &CampaignRow| (r.system.clone(), r.model, r.geometry.clone());
        if !planned.rows.iter().map(key).eq(results.rows.iter().map(key)) {
            return Err(damaged("its rows are not those of its plan".into()));
        }
        Ok(results)
    }

    /// Checks that everything in the plan is done.
    ///
    /// # Errors
    /// [`ResultsError::Unfinished`].
    pub fn is_finished(&self) -> Result<(), ResultsError> {
        let CampaignPlan { shard, shards, .. } = self.plan;
        let planned = self.plan.seeds().count() as u64;
        match self.rows.iter().find(|r| r.runs != planned) {
            None => Ok(()),
            Some(row) => Err(ResultsError::Unfinished {
                shard,
                shards,
                system: row.system.clone(),
                done: row.runs,
                planned,
            }),
        }
    }

    /// Checks that these are results of `plan`, finished or not.
    ///
    /// # Errors
    /// [`ResultsError::Other`].
    pub fn belong_to(&self, plan: &CampaignPlan) -> Result<(), ResultsError> {
        let differs = |what, theirs: &dyn std::fmt::Debug, ours: &dyn std::fmt::Debug| {
            let (theirs, ours) = (format!("{theirs:?}"), format!("{ours:?}"));
            if theirs == ours { Ok(()) } else { Err(ResultsError::Other { what, theirs, ours }) }
        };
        let (a, b) = (&self.plan, plan);
        differs("the list of systems", &a.systems, &b.systems)?;
        differs("the promise", &a.held_to, &b.held_to)?;
        differs("the list of models", &a.models, &b.models)?;
        differs("the list of geometries", &a.geometries, &b.geometries)?;
        differs("the workload", &a.workload, &b.workload)?;
        differs("the seed", &a.seed, &b.seed)?;
        differs("the number of runs", &a.runs, &b.runs)?;
        differs("the size of sectors", &a.sector, &b.sector)?;
        differs("the number of crash cycles", &a.cycles, &b.cycles)?;
        differs("the number of states", &a.states, &b.states)?;
        differs("the list of rules", &a.rules, &b.rules)?;
        differs("the number of shards", &a.shards, &b.shards)?;
        let (mut rest, shard) = (a.clone(), b.shard);
        rest.shard = shard;
        differs("the plan", &rest, b)
    }
}

/// Merges the results of all shards.
///
/// # Errors
/// A shard is missing, there twice, not finished, or of another plan. Nothing is returned then.
pub fn merge(parts: &[Results]) -> Result<Results, ResultsError> {
    let Some(first) = parts.first() else {
        return Err(ResultsError::Damaged("no files of results were given".into()));
    };
    let shards = first.plan.shards;
    for part in parts {
        part.belong_to(&CampaignPlan { shard: part.plan.shard, ..first.plan.clone() })?;
    }
    let mut whole = Results::new(CampaignPlan { shard: 1, shards: 1, ..first.plan.clone() });
    for shard in 1..=shards {
        let mut found = parts.iter().filter(|p| p.plan.shard == shard);
        let part = found.next().ok_or(ResultsError::Gap { shard, shards })?;
        if found.next().is_some() {
            return Err(ResultsError::Twice { shard, shards });
        }
        part.is_finished()?;
        for (row, other) in whole.rows.iter_mut().zip(&part.rows) {
            row.merge(other);
        }
    }
    Ok(whole)
}

/// The results of one crash cycle of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleResult {
    /// The seed of the run.
    pub seed: u64,
    /// The approximate number of possible states.
    pub possible: f64,
    /// Frontiers: periods in which no write becomes durable.
    pub frontiers: u64,
    /// Frontiers all of whose states were judged.
    pub exhausted: u64,
    /// The counts of findings.
    #[serde(flatten)]
    pub counts: StateCounts,
    /// The first broken promise, if one was broken.
    pub broken: Option<String>,
}

impl CycleResult {
    /// The results of a crash cycle of the run with this seed.
    pub fn new(seed: u64, outcome: &Outcome) -> CycleResult {
        let first = outcome.failures.first();
        CycleResult {
            seed,
            possible: outcome.possible.min(POSSIBLE_MAX),
            frontiers: outcome.frontiers as u64,
            exhausted: outcome.exhausted as u64,
            counts: outcome.counts,
            broken: first.map(|f| f.verdict.broken.first().cloned().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(shard: u64, shards: u64) -> Results {
        let mut results = Results::new(CampaignPlan {
            systems: vec!["a".into(), "b".into()],
            held_to: None,
            models: vec![CrashModel::Volatile],
            workload: "random".into(),
            seed: 5,
            runs: 7,
            cycles: 1,
            states: 10,
            tree_every: 1,
            usable_every: 1,
            recovery_depth: 1,
            recovery_every: 1,
            rules: Vec::new(),
            bytes: 1 << 20,
            geometries: vec![FsGeometry::default()],
            cache: CachePlan::default(),
            sector: None,
            shard,
            shards,
        });
        let runs = results.plan.seeds().count() as u64;
        for row in &mut results.rows {
            row.runs = runs;
            row.counts.states = 10 * runs;
            row.counts.lost_returned_most = shard;
        }
        results
    }

    /// All shards together have all runs, once each. Would catch a partial result that is taken for
    /// the whole.
    #[test]
    fn all_shards_together_are_the_whole_result() {
        let all: Vec<u64> = (1..=3).flat_map(|s| part(s, 3).plan.seeds()).collect();
        assert_eq!(all.len(), 7);
        let whole = merge(&[part(2, 3), part(3, 3), part(1, 3)]).unwrap();
        assert_eq!((whole.rows[1].runs, whole.rows[1].counts.states), (7, 70));
        assert_eq!(whole.rows[0].counts.lost_returned_most, 3);
        assert!(whole.is_finished().is_ok());
        let gap = merge(&[part(1, 3), part(3, 3)]);
        assert!(matches!(gap, Err(ResultsError::Gap { shard: 2, shards: 3 })), "{gap:?}");
        let twice = merge(&[part(1, 2), part(2, 2), part(2, 2)]);
        assert!(matches!(twice, Err(ResultsError::Twice { shard: 2, .. })), "{twice:?}");
        let mut short = part(2, 2);
        short.rows[1].runs -= 1;
        let short = merge(&[part(1, 2), short]);
        assert!(matches!(short, Err(ResultsError::Unfinished { shard: 2, .. })), "{short:?}");
        let changes: [fn(&mut CampaignPlan); 2] =
            [|plan| plan.states = 11, |plan| plan.sector = Some(512)];
        for change in changes {
            let mut other = part(2, 2);
            change(&mut other.plan);
            let other = merge(&[part(1, 2), other]);
            assert!(matches!(other, Err(ResultsError::Other { .. })), "{other:?}");
        }
    }

    /// Results are read as they were written, and a file that was cut anywhere is refused.
    #[test]
    fn damaged_results_are_refused() {
        let text = serde_json::to_string(&part(1, 2)).unwrap();
        assert_eq!(Results::parse(&text).unwrap(), part(1, 2));
        for end in 0..text.len() {
            assert!(Results::parse(&text[..end]).is_err(), "{}", &text[..end]);
        }
        assert!(Results::parse(&text.replace("results 1", "results 2")).is_err());
    }

    /// A file from before there were geometries counts as one of the default geometry. It can be
    /// merged with another of that geometry only.
    #[test]
    fn older_results_are_of_the_usual_geometry() {
        let mut value = serde_json::to_value(part(1, 2)).unwrap();
        let removed = value["plan"].as_object_mut().unwrap().remove("geometries");
        assert!(removed.is_some());
        for row in value["rows"].as_array_mut().unwrap() {
            assert!(row.as_object_mut().unwrap().remove("geometry").is_some());
        }
        let old = Results::parse(&value.to_string()).unwrap();
        assert_eq!(old, part(1, 2));
        assert_eq!(merge(&[old.clone(), part(2, 2)]).unwrap().rows[0].runs, 7);
        let mut plan = part(2, 2).plan;
        plan.geometries = vec![FsGeometry::of(8192, 1024)];
        let other = merge(&[old, Results::new(plan)]);
        assert!(matches!(other, Err(ResultsError::Other { what, .. }) if what.contains("geometr")));
    }
}
