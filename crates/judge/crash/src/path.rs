//! Judging one state again, even one behind recoveries that were interrupted.

use std::sync::Arc;

use crate::expect::Expect;
use crate::explore::Worker;
use crate::judge::Depth;
use crate::model::Sectors;
use crate::run::Run;
use crate::{Budget, Failure, Point, Scheme, explain};

/// Judges one state of a run in full; `None` if the run has no such state. `seed` is the seed of
/// the exploration. `runs` has the run, followed by the interrupted recoveries if they cannot be
/// repeated.
pub fn judge_path<S: Scheme>(
    scheme: &S,
    runs: &[Arc<Run>],
    seed: u64,
    path: &[Point],
) -> Option<Failure> {
    let (run, recoveries) = runs.split_first()?;
    let sectors = Sectors::new(run.clone());
    let first = path.first()?;
    let at = *sectors.judged.get(first.frontier)?;
    let expect = Expect::new(&run.history, &scheme.promise().under(run.model), at);
    let way = PathJudge { scheme, seed, expect: &expect };
    let mut failure = way.judge(&sectors, path, recoveries, true)?;
    failure.picture.insert_str(0, &explain::calls(&sectors, at));
    Some(failure)
}

/// A judge of states behind recoveries.
struct PathJudge<'a, S> {
    scheme: &'a S,
    seed: u64,
    expect: &'a Expect,
}

impl<S: Scheme> PathJudge<'_, S> {
    fn judge(
        &self,
        sectors: &Sectors,
        path: &[Point],
        known: &[Arc<Run>],
        outer: bool,
    ) -> Option<Failure> {
        let (point, rest) = path.split_first()?;
        let budget = Budget::default();
        let mut worker = Worker::new(self.scheme, sectors, self.seed, &budget);
        let layout = worker.go_to(point.frontier)?;
        if !layout.has(&point.state) {
            return None;
        }
        worker.put(&layout, &point.state);
        let mut picture = explain::picture(sectors, &layout, &point.state);
        if rest.is_empty() {
            let structure = outer || self.scheme.promise().no_check;
            let depth = Depth { structure, tree: true, usable: true };
            let verdict = worker.judge(self.expect, depth);
            let path = path.to_vec();
            return Some(Failure { path, verdict, picture, recoveries: Vec::new() });
        }
        let recorded = || {
            let images = worker.images();
            self.scheme.record_recovery(&images, &sectors.run, self.seed).ok().map(Arc::new)
        };
        let run = known.first().cloned().or_else(recorded)?;
        let later = known.get(1..).unwrap_or_default();
        let mut failure = self.judge(&Sectors::new(run.clone()), rest, later, false)?;
        picture.push_str("  and then, during recovery:\n");
        picture.push_str(&failure.picture);
        failure.recoveries.insert(0, run);
        Some(Failure { path: path.to_vec(), picture, ..failure })
    }
}
