//! Shrinking a failure: to the fewest operations, then to the fewest writes lost or kept.

use std::sync::Arc;

use crate::expect::Expect;
use crate::explore::Worker;
use crate::judge::Depth;
use crate::model::{Layout, Sectors};
use crate::run::Run;
use crate::script::ScriptStep;
use crate::verdict::Verdict;
use crate::{
    Budget, Config, CrashError, Failure, Point, Scheme, Script, explore, judge_path, minimise,
    record,
};

/// A failure after shrinking, and its script.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The script.
    pub script: Script,
    /// The failure.
    pub failure: Failure,
}

/// Shrinks a failure. Leaves out operations as long as a state can be found that fails in the same
/// way, in at most `runs` explorations of `budget`. Then keeps, or loses, every write that makes no
/// difference.
///
/// # Errors
/// The run cannot be made.
pub fn shrink<S: Scheme>(
    scheme: &S,
    script: &Script,
    config: &Config,
    budget: &Budget,
    failure: &Failure,
    runs: usize,
) -> Result<Shrunk, CrashError> {
    let kind = kind(&failure.verdict);
    let mut best = Shrunk { script: script.clone(), failure: failure.clone() };
    let items: Vec<(usize, ScriptStep)> = script
        .clients
        .iter()
        .enumerate()
        .flat_map(|(c, steps)| steps.iter().map(move |s| (c, *s)))
        .collect();
    let clients = script.clients.len();
    minimise(items, runs, |items| {
        let mut script = Script { clients: vec![Vec::new(); clients] };
        items.iter().for_each(|(client, step)| script.clients[*client].push(*step));
        let Ok(outcome) = explore(scheme, &script, config, budget) else { return false };
        let found = outcome.failures.into_iter().find(|f| self::kind(&f.verdict) == kind);
        let Some(failure) = found else { return false };
        best = Shrunk { script, failure };
        true
    });
    while best.script.clients.last().is_some_and(Vec::is_empty) && best.script.clients.len() > 1 {
        let mut script = best.script.clone();
        script.clients.pop();
        let outcome = explore(scheme, &script, config, budget)?;
        let Some(failure) = outcome.failures.into_iter().find(|f| self::kind(&f.verdict) == kind)
        else {
            break;
        };
        best = Shrunk { script, failure };
    }
    let run = Arc::new(record(scheme, &best.script, config)?);
    best.failure = shrink_state(scheme, &run, config.seed, &best.failure);
    Ok(best)
}

/// The kind of a failure: its first words, without numbers and names.
fn kind(verdict: &Verdict) -> String {
    let first = verdict.broken.first().map(String::as_str).unwrap_or_default();
    let words = first.split_whitespace().filter(|w| w.bytes().all(|b| b.is_ascii_alphabetic()));
    words.collect::<Vec<_>>().join(" ")
}

/// Shrinks the state of a failure: to as few lost writes as possible, or as few kept ones,
/// whichever is less.
pub fn shrink_state<S: Scheme>(
    scheme: &S,
    run: &Arc<Run>,
    seed: u64,
    failure: &Failure,
) -> Failure {
    let [point] = &failure.path[..] else { return failure.clone() };
    let sectors = Sectors::new(run.clone());
    let Some(judged) = sectors.judged.get(point.frontier) else { return failure.clone() };
    let promise = scheme.promise().under(run.model);
    let expect = Expect::new(&run.history, &promise, *judged);
    let budget = Budget::default();
    let mut worker = Worker::new(scheme, &sectors, seed, &budget);
    let Some(layout) = worker.go_to(point.frontier) else { return failure.clone() };
    let kind = kind(&failure.verdict);
    let usable = !failure.verdict.unusable.is_empty();
    let mut fails = |state: &[u8]| {
        worker.put(&layout, state);
        let verdict = worker.judge(&expect, Depth { structure: true, tree: true, usable });
        self::kind(&verdict) == kind
    };
    let lost = toward(&layout, &layout.with_writes(|_| true), &point.state, &mut fails);
    let kept = toward(&layout, &layout.with_writes(|_| false), &point.state, &mut fails);
    let state = if lost.1 <= kept.1 { lost.0 } else { kept.0 };
    let path = vec![Point { frontier: point.frontier, state }];
    judge_path(scheme, std::slice::from_ref(run), seed, &path).unwrap_or_else(|| failure.clone())
}

/// Brings the state as close to `goal` as it can while it fails. Returns it, and the number of
/// writes that still differ.
fn toward(
    layout: &Layout,
    goal: &[u8],
    from: &[u8],
    fails: &mut dyn FnMut(&[u8]) -> bool,
) -> (Vec<u8>, usize) {
    let mut state = from.to_vec();
    for _ in 0..2 {
        for write in &layout.writes {
            let mut closer = state.clone();
            for (choice, _) in &write.parts {
                closer[*choice as usize] = goal[*choice as usize];
            }
            if closer != state && fails(&closer) {
                state = closer;
            }
        }
    }
    let differs = |w: &&crate::model::Losable| {
        w.parts.iter().any(|(c, _)| state[*c as usize] != goal[*c as usize])
    };
    let left = layout.writes.iter().filter(differs).count();
    (state, left)
}
