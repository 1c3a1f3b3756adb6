use super::*;
use crate::{CachePlan, StateCounts};

fn sweep(runs_each: u64) -> Sweep {
    let plan = CampaignPlan {
        systems: vec!["a".into(), "b".into()],
        held_to: None,
        models: vec![CrashModel::Completed, CrashModel::Volatile],
        workload: "random".into(),
        seed: 5,
        runs: 7,
        cycles: 2,
        states: 10,
        tree_every: 1,
        usable_every: 1,
        recovery_depth: 1,
        recovery_every: 1,
        rules: Vec::new(),
        bytes: 1 << 20,
        geometries: vec![FsGeometry::default(), FsGeometry::of(8192, 1024)],
        cache: CachePlan::default(),
        sector: None,
        shard: 1,
        shards: 1,
    };
    Sweep::new(plan, runs_each, Program { version: "1".into(), digest: digest(b"program") })
}

/// A result whose numbers need all their digits, and whose sum depends on the order of addition.
fn cycle(task: &Task, seed: u64, cycle: u64) -> CycleResult {
    let place = task.task / 3 + seed * 31 + cycle;
    let counts = StateCounts { states: place, lost_returned_most: seed, ..StateCounts::default() };
    let broken = seed.is_multiple_of(4).then(|| format!("cycle {cycle} of {seed}"));
    let possible = 0.1 * (place as f64).powi(9);
    CycleResult { seed, possible, frontiers: place, exhausted: cycle, counts, broken }
}

/// The result of a task in which every second run has two crash cycles.
fn finished(task: Task) -> Finished {
    let seeds = task.seed..task.seed + task.runs;
    let cycles = seeds.flat_map(|seed| (0..=seed % 2).map(move |n| (seed, n)));
    let cycles = cycles.map(|(seed, n)| cycle(&task, seed, n)).collect();
    Finished::new(task, cycles).unwrap()
}

fn all(sweep: &Sweep) -> Vec<(String, Finished)> {
    let one = |n| (format!("file {n}"), finished(sweep.task(n).unwrap()));
    (1..=sweep.tasks()).map(one).collect()
}

/// Every run of every row is in one task. Would catch runs that are left out where the last task is
/// smaller.
#[test]
fn tasks_are_all_runs_once() {
    for each in [1, 2, 3, 7, 100] {
        let sweep = sweep(each);
        let mut runs = Vec::new();
        for task in (1..=sweep.tasks()).map(|n| sweep.task(n).unwrap()) {
            let row = (task.system.clone(), task.geometry.name.clone(), task.model.name());
            runs.extend((task.seed..task.seed + task.runs).map(|seed| (row.clone(), seed)));
        }
        let rows = Results::new(sweep.plan.clone()).rows;
        let key = |r: &crate::campaign::CampaignRow| {
            (r.system.clone(), r.geometry.name.clone(), r.model.name())
        };
        let planned: Vec<_> = rows
            .iter()
            .flat_map(|row| sweep.plan.seeds().map(move |seed| (key(row), seed)))
            .collect();
        assert_eq!(runs, planned, "{each} runs a task");
        assert!(sweep.task(0).is_none() && sweep.task(sweep.tasks() + 1).is_none());
    }
}

/// Merged results equal those that one machine adds up run by run, to the last bit, however the
/// plan was cut, and in whatever order the results are given. Would catch sums of sums.
#[test]
fn the_whole_is_that_of_one_machine() {
    let one = merge(all(&sweep(100))).unwrap();
    let row = &one.rows[3];
    let mut alone =
        crate::campaign::CampaignRow::new(&row.system, row.model, &row.geometry, "random");
    let task = sweep(100).task(4).unwrap();
    for seed in 5..12 {
        (0..=seed % 2).for_each(|n| alone.append(&cycle(&task, seed, n)));
        alone.runs += 1;
    }
    assert_eq!(*row, alone);
    assert_eq!(row.first_broken, Some((8, "cycle 0 of 8".into())));
    for each in [1, 2, 3] {
        let sweep = Sweep { runs_each: each, ..sweep(100) };
        let whole = |number: u64| sweep.task(number).unwrap();
        // The numbers must be those of the whole. `cycle` uses the task's number, which is set to
        // the row's here.
        let parts = (1..=sweep.tasks()).map(whole).map(|task| {
            let row = (task.task - 1) / 7_u64.div_ceil(each) + 1;
            let like = Task { task: row, ..task.clone() };
            let cycles = finished(Task { ..like }).cycles;
            let text = Finished::new(task, cycles).unwrap().text().unwrap();
            (String::new(), Finished::parse(&text).unwrap())
        });
        let mut parts: Vec<_> = parts.collect();
        parts.reverse();
        assert_eq!(merge(parts).unwrap(), one, "{each} runs a task");
    }
}

/// Gaps and duplicate results are named, and nothing is returned.
#[test]
fn gaps_and_duplicates_are_named() {
    let sweep = sweep(3);
    let of = sweep.tasks();
    assert_eq!(of, 24);
    let without = |left_out: &[u64]| {
        let is_in = |part: &(String, Finished)| !left_out.contains(&part.1.task.task);
        merge(all(&sweep).into_iter().filter(is_in).collect())
    };
    assert!(without(&[]).is_ok());
    let Err(FleetError::Missing(gaps)) = without(&[1, 5, 6, 24]) else { panic!() };
    assert_eq!(gaps.ranges, [(1, 1), (5, 6), (24, 24)]);
    let text = gaps.to_string();
    assert!(text.contains("tasks 1, 5 to 6, 24 of 24 are missing"), "{text}");
    assert!(text.contains("sed -n '1p;5,6p;24p'"), "{text}");
    assert!(without(&[7]).unwrap_err().to_string().contains("task 7 of 24 is missing"));

    let mut twice = all(&sweep);
    twice.push(("again".into(), twice[4].1.clone()));
    let error = merge(twice.clone()).unwrap_err().to_string();
    assert!(error.contains("task 5 of 24 was given twice, with equal results: file 5 and again"));
    let mut cycles = twice[4].1.cycles.clone();
    cycles[0].frontiers += 1;
    twice[24].1 = Finished::new(twice[4].1.task.clone(), cycles).unwrap();
    let error = merge(twice).unwrap_err().to_string();
    assert!(error.contains("with different results: file 5 and again"), "{error}");

    let mut other = all(&sweep);
    let mut plan = sweep.clone();
    plan.plan.states = 11;
    other[3] = ("other".into(), finished(plan.task(4).unwrap()));
    let error = merge(other.clone()).unwrap_err().to_string();
    assert!(
        error.contains("file 1 and other") && error.contains("states is 10, not 11"),
        "{error}"
    );
    plan = sweep.clone();
    plan.program.digest = digest(b"another");
    other[3].1 = finished(plan.task(4).unwrap());
    let error = merge(other).unwrap_err().to_string();
    assert!(error.contains("explored by ordo 1 ("), "{error}");
    assert!(merge(Vec::new()).is_err());
}

/// A line or a file that was cut anywhere, was changed, or lacks a run is refused.
#[test]
fn damaged_tasks_and_results_are_refused() {
    let task = sweep(3).task(5).unwrap();
    let line = task.line().unwrap();
    assert_eq!(Task::parse(&line).unwrap(), task);
    let result = finished(task.clone());
    let text = result.text().unwrap();
    assert_eq!(Finished::parse(&text).unwrap(), result);
    assert!(Finished::looks_like(&text) && !Finished::looks_like(&line));
    for end in 0..line.len() {
        assert!(Task::parse(&line[..end]).is_err(), "{}", &line[..end]);
    }
    for end in 0..text.trim_end().len() {
        assert!(Finished::parse(&text[..end]).is_err(), "{}", &text[..end]);
    }
    // Every digit matters, wherever it is.
    for at in text.bytes().enumerate().filter(|(_, b)| b.is_ascii_digit()).map(|(at, _)| at) {
        let mut other = text.clone().into_bytes();
        other[at] = if other[at] == b'7' { b'3' } else { b'7' };
        let other = String::from_utf8(other).unwrap();
        // The last digit of a fraction may make no difference to the number.
        assert!(Finished::parse(&other).ok().is_none_or(|found| found == result), "{other}");
    }
    for (other, why) in [
        (Task { seed: 6, ..task.clone() }, "another"),
        (Task { task: 99, ..task.clone() }, "no task 99"),
        (Task { runs: 4, ..task.clone() }, "another"),
        (Task { system: "c".into(), ..task.clone() }, "another"),
        (Task { sweep: Sweep { runs_each: 0, ..sweep(3) }, ..task.clone() }, "no task 5"),
    ] {
        let error = Task::parse(&other.line().unwrap()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let mut endless = sweep(1);
    (endless.plan.runs, endless.plan.seed) = (u64::MAX, 2);
    assert!(endless.task(1).is_none());
    for wrong in [&result.cycles[1..], &result.cycles[..1], &[][..]] {
        let wrong = Finished::new(task.clone(), wrong.to_vec()).unwrap();
        let error = Finished::parse(&wrong.text().unwrap()).unwrap_err().to_string();
        assert!(error.contains("does not have the 3 runs from seed"), "{error}");
    }
}
