//! Many runs, on one machine or on several: what is planned, what was found, and putting it together.

use serde::{Deserialize, Serialize};

use crate::fleet::Lived;
use crate::{Counts, Geometry, Model, Outcome};

/// What the head of a results file says.
const FORMAT: &str = "ordo crash results 1";

/// What is explored. Two results can be put together if this is the same in both, but for the shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The systems.
    pub systems: Vec<String>,
    /// The system whose promise they are held to, where it is not their own.
    pub held_to: Option<String>,
    /// What the disk may lose.
    pub models: Vec<Model>,
    /// What is done, as it can be asked for again.
    pub workload: String,
    /// The seed of the first run; each run has the next.
    pub seed: u64,
    /// How many runs.
    pub runs: u64,
    /// Lives of each run: all but the first begin on what a crash has left of the one before.
    #[serde(default = "one")]
    pub lives: u32,
    /// States of each run at most, of all its lives.
    pub states: usize,
    /// Names and contents are judged in one of so many states.
    pub tree_every: usize,
    /// Use afterwards is judged in one of so many states.
    pub usable_every: usize,
    /// How many recoveries in a row are cut off.
    pub recovery_depth: u32,
    /// Recovery is cut off in one of so many states.
    pub recovery_every: usize,
    /// The rules that states follow.
    pub rules: Vec<String>,
    /// The size of the first disk in bytes, where a geometry has no other.
    pub bytes: u64,
    /// The shapes of the file systems; in older files none: the usual one.
    #[serde(default)]
    pub geometries: Vec<Geometry>,
    /// Whether blocks stay in the cache as long as in a mounted file system.
    #[serde(default)]
    pub real_ages: bool,
    /// This machine's part of the runs, from 1.
    pub shard: u64,
    /// Of so many parts.
    pub shards: u64,
}

/// Results of before there were lives have one.
const fn one() -> u32 {
    1
}

impl Plan {
    /// The seeds of this shard, in order.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let (shard, shards, seed) = (self.shard - 1, self.shards, self.seed);
        (0..self.runs).filter(move |run| run % shards == shard).map(move |run| seed + run)
    }
}

/// One system on one disk. Fields are added, never renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The system.
    pub system: String,
    /// What the disk may lose.
    pub model: Model,
    /// In which shape; in older files not given: the usual one.
    #[serde(default)]
    pub geometry: Geometry,
    /// What is done.
    pub workload: String,
    /// Runs explored whole, in the order of the shard's seeds.
    pub runs: u64,
    /// Their lives: a run may end early, beyond repair, where nothing better is promised.
    #[serde(default)]
    pub lives: u64,
    /// States that there are, about.
    pub possible: f64,
    /// Times between which nothing becomes durable.
    pub frontiers: u64,
    /// Those all of whose states were judged.
    pub exhausted: u64,
    /// What was found.
    #[serde(flatten)]
    pub counts: Counts,
    /// The first run in which a promise was broken, and how.
    pub first_broken: Option<(u64, String)>,
}

/// More states than this are not counted any more: JSON has no infinity.
pub(crate) const POSSIBLE_MAX: f64 = 1e300;

impl Row {
    /// A row of which nothing is done yet.
    pub fn new(system: &str, model: Model, geometry: &Geometry, workload: &str) -> Row {
        Row {
            system: system.into(),
            model,
            geometry: geometry.clone(),
            workload: workload.into(),
            runs: 0,
            lives: 0,
            possible: 0.0,
            frontiers: 0,
            exhausted: 0,
            counts: Counts::default(),
            first_broken: None,
        }
    }

    /// Adds one life of the run with this seed.
    pub fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.append(&Lived::new(seed, outcome));
    }

    /// Adds one life.
    pub fn append(&mut self, life: &Lived) {
        self.lives += 1;
        self.possible = (self.possible + life.possible).min(POSSIBLE_MAX);
        self.frontiers += life.frontiers;
        self.exhausted += life.exhausted;
        self.counts.add(&life.counts);
        if let Some(what) = life.broken.as_ref().filter(|_| self.first_broken.is_none()) {
            self.first_broken = Some((life.seed, what.clone()));
        }
    }

    fn merge(&mut self, other: &Row) {
        self.runs += other.runs;
        self.lives += other.lives;
        self.possible = (self.possible + other.possible).min(POSSIBLE_MAX);
        self.frontiers += other.frontiers;
        self.exhausted += other.exhausted;
        self.counts.add(&other.counts);
        let first = [self.first_broken.take(), other.first_broken.clone()];
        self.first_broken = first.into_iter().flatten().min_by_key(|f| f.0);
    }
}

/// What a campaign has found so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// One row a system, geometry and model.
    pub rows: Vec<Row>,
    /// What was planned.
    pub plan: Plan,
    /// What kind of file this is.
    pub format: String,
}

/// Why results cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// Not a file of results, or a damaged one.
    #[error("not a whole file of crash results: {0}; run the campaign again, or use a copy")]
    Damaged(String),
    /// It goes with something else.
    #[error("these results are of another campaign: {what} is {theirs}, not {ours}")]
    Other {
        /// What differs.
        what: &'static str,
        /// There.
        theirs: String,
        /// Here.
        ours: String,
    },
    /// A part is missing.
    #[error("shard {shard} of {shards} is missing; run it with --shard {shard}/{shards}")]
    Gap {
        /// Which.
        shard: u64,
        /// Of how many.
        shards: u64,
    },
    /// A part is there twice.
    #[error("shard {shard} of {shards} is there twice")]
    Twice {
        /// Which.
        shard: u64,
        /// Of how many.
        shards: u64,
    },
    /// A part is not finished.
    #[error(
        "shard {shard} of {shards} is not finished: {system} has {done} of {planned} runs; go on \
         with --resume"
    )]
    Unfinished {
        /// Which.
        shard: u64,
        /// Of how many.
        shards: u64,
        /// The system.
        system: String,
        /// Runs done.
        done: u64,
        /// Runs planned.
        planned: u64,
    },
}

impl Results {
    /// Results of a plan of which nothing is done yet.
    pub fn new(plan: Plan) -> Results {
        let mut rows = Vec::new();
        for system in &plan.systems {
            for geometry in &plan.geometries {
                let row = |model: &Model| Row::new(system, *model, geometry, &plan.workload);
                rows.extend(plan.models.iter().map(row));
            }
        }
        Results { rows, plan, format: FORMAT.into() }
    }

    /// Results from a file.
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
        let Plan { shard, shards, bytes, .. } = results.plan;
        if shard == 0 || shard > shards {
            return Err(damaged(format!("shard {shard} of {shards}")));
        }
        if results.plan.geometries.is_empty() {
            let usual = Geometry::default().sized(bytes);
            results.rows.iter_mut().for_each(|row| row.geometry = usual.clone());
            results.plan.geometries = vec![usual];
        }
        let planned = Results::new(results.plan.clone());
        let key = |r: &Row| (r.system.clone(), r.model, r.geometry.clone());
        if !planned.rows.iter().map(key).eq(results.rows.iter().map(key)) {
            return Err(damaged("its rows are not those of its plan".into()));
        }
        Ok(results)
    }

    /// Whether all that was planned is done.
    ///
    /// # Errors
    /// [`ResultsError::Unfinished`].
    pub fn is_finished(&self) -> Result<(), ResultsError> {
        let Plan { shard, shards, .. } = self.plan;
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

    /// Whether these are results of `plan`, finished or not.
    ///
    /// # Errors
    /// [`ResultsError::Other`].
    pub fn belong_to(&self, plan: &Plan) -> Result<(), ResultsError> {
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
        differs("the number of lives", &a.lives, &b.lives)?;
        differs("the number of states", &a.states, &b.states)?;
        differs("the list of rules", &a.rules, &b.rules)?;
        differs("the number of shards", &a.shards, &b.shards)?;
        let (mut rest, shard) = (a.clone(), b.shard);
        rest.shard = shard;
        differs("the plan", &rest, b)
    }
}

/// Puts the results of all shards together.
///
/// # Errors
/// A shard is missing, there twice, not finished, or of another plan. Nothing is given then.
pub fn merge(parts: &[Results]) -> Result<Results, ResultsError> {
    let Some(first) = parts.first() else {
        return Err(ResultsError::Damaged("nothing was given".into()));
    };
    let shards = first.plan.shards;
    for part in parts {
        part.belong_to(&Plan { shard: part.plan.shard, ..first.plan.clone() })?;
    }
    let mut whole = Results::new(Plan { shard: 1, shards: 1, ..first.plan.clone() });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn part(shard: u64, shards: u64) -> Results {
        let mut results = Results::new(Plan {
            systems: vec!["a".into(), "b".into()],
            held_to: None,
            models: vec![Model::Volatile],
            workload: "random".into(),
            seed: 5,
            runs: 7,
            lives: 1,
            states: 10,
            tree_every: 1,
            usable_every: 1,
            recovery_depth: 1,
            recovery_every: 1,
            rules: Vec::new(),
            bytes: 1 << 20,
            geometries: vec![Geometry::default()],
            real_ages: false,
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

    /// All shards together are all runs, once each: would catch a partial result passed off as whole.
    #[test]
    fn only_all_shards_make_a_whole() {
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
        let mut other = part(2, 2);
        other.plan.states = 11;
        let other = merge(&[part(1, 2), other]);
        assert!(matches!(other, Err(ResultsError::Other { .. })), "{other:?}");
    }

    /// What was written is read back, and a file that was cut anywhere is refused.
    #[test]
    fn damaged_results_are_refused() {
        let text = serde_json::to_string(&part(1, 2)).unwrap();
        assert_eq!(Results::parse(&text).unwrap(), part(1, 2));
        for end in 0..text.len() {
            assert!(Results::parse(&text[..end]).is_err(), "{}", &text[..end]);
        }
        assert!(Results::parse(&text.replace("results 1", "results 2")).is_err());
    }

    /// A file from before there were geometries is one of the usual geometry, goes with another of that, and with no
    /// other.
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
        plan.geometries = vec![Geometry::of(8192, 1024)];
        let other = merge(&[old, Results::new(plan)]);
        assert!(matches!(other, Err(ResultsError::Other { what, .. }) if what.contains("geometr")));
    }
}
