//! A plan: requests, and the requests for which each one waits.

use ordo_trace::RequestOp;
use smallvec::SmallVec;

use crate::traffic::{Logged, Role};

/// One request of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// The disk of the request: an index into the stage's disks.
    pub disk: u8,
    /// The kind of request.
    pub op: RequestOp,
    /// The first byte on the disk.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// Whether the write is durable when completed (force unit access).
    pub fua: bool,
    /// Whether the disk is flushed before the write (`REQ_PREFLUSH`).
    pub preflush: bool,
    /// The role.
    pub role: Role,
    /// The transaction to which it belongs, for a write to a journal.
    pub transaction: Option<u64>,
    /// The copies that it writes into the journal.
    pub copies: Vec<Logged>,
    /// Whether it writes a block of the journal to its fixed location.
    pub checkpoint: bool,
    /// The request of the trace; `None` for a request that a change adds.
    pub recorded: Option<RecordedStep>,
    /// A mark's text.
    pub text: Option<Box<str>>,
    /// The time before which it is not issued, in nanoseconds on the recorder's clock.
    pub not_before: u64,
    /// Its rank in the order of issue, from which a change sees the transaction of a write. Ranks
    /// of the trace's requests are multiples of [`RANK`].
    pub order: u64,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedStep {
    /// The number in the trace.
    pub number: u64,
    /// The time of its issue, in nanoseconds on the recorder's clock.
    pub issued: u64,
    /// The time that it took, in nanoseconds.
    pub took: u64,
}

impl PlanStep {
    /// The number in the trace.
    pub fn number(&self) -> Option<u64> {
        self.recorded.map(|recorded| recorded.number)
    }
}

/// The distance between the ranks of two requests of a trace.
pub const RANK: u64 = 1 << 16;

/// A step that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// The step waited for.
    pub step: usize,
    /// Think time: nanoseconds from its completion to the issue of the step that waits.
    pub think: u64,
}

/// Requests, each with the steps after whose completion it is issued.
///
/// A step is issued at the latest of `not_before` and, for each step that it waits for, that step's
/// completion and the think time. A removed step is never issued, and nothing waits for it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    steps: Vec<PlanStep>,
    waits: Vec<Waits>,
    removed: Vec<bool>,
}

/// The waits of a step. Most steps wait for one other, and few wait for them.
#[derive(Clone, Debug, Default)]
struct Waits {
    after: SmallVec<[After; 1]>,
    before: SmallVec<[u32; 4]>,
}

impl Waits {
    fn release(&mut self, waiting: usize) {
        self.before.retain(|one| *one as usize != waiting);
    }
}

impl Plan {
    /// Adds a step that waits for those of `after`, and returns its index.
    ///
    /// # Panics
    /// A step waited for is not in the plan.
    pub fn add(&mut self, step: PlanStep, after: impl IntoIterator<Item = After>) -> usize {
        let index = self.steps.len();
        assert!(index < u32::MAX as usize, "as many steps as a plan can number");
        let after: SmallVec<[After; 1]> = after.into_iter().collect();
        for one in &after {
            assert!(one.step < index && !self.removed[one.step], "a step that is in the plan");
            self.waits[one.step].before.push(index as u32);
        }
        self.steps.push(step);
        self.waits.push(Waits { after, before: SmallVec::new() });
        self.removed.push(false);
        index
    }

    /// The number of steps, removed ones included: indices are below it.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The indices of the steps that are not removed, in the order in which they were added.
    pub fn live(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.len()).filter(|index| !self.removed[*index])
    }

    /// The indices of the steps that are not removed, in order of issue.
    pub fn in_order(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.live().collect();
        all.sort_by_key(|index| (self.steps[*index].order, *index));
        all
    }

    /// A step.
    pub fn step(&self, index: usize) -> &PlanStep {
        &self.steps[index]
    }

    /// A step, to be changed.
    pub fn step_mut(&mut self, index: usize) -> &mut PlanStep {
        &mut self.steps[index]
    }

    /// The steps that a step waits for.
    pub fn after(&self, index: usize) -> &[After] {
        &self.waits[index].after
    }

    /// The think time after `step` of a step that waits for it, in nanoseconds; zero if it does not
    /// wait.
    pub fn think(&self, index: usize, step: usize) -> u64 {
        let after = self.after(index).iter().find(|after| after.step == step);
        after.map_or(0, |after| after.think)
    }

    /// The steps that wait for a step.
    pub fn before(&self, index: usize) -> impl Iterator<Item = usize> + Clone + use<'_> {
        self.waits[index].before.iter().map(|waiting| *waiting as usize)
    }

    /// Makes `index` wait for `after` too. Of two think times after one step the longer counts.
    pub fn wait(&mut self, index: usize, after: After) {
        assert!(after.step != index, "a step cannot wait for itself");
        let own = &mut self.waits[index].after;
        if let Some(known) = own.iter_mut().find(|known| known.step == after.step) {
            known.think = known.think.max(after.think);
            return;
        }
        own.push(after);
        self.waits[after.step].before.push(index as u32);
    }

    /// Lets `index` no longer wait for `step`.
    pub fn release(&mut self, index: usize, step: usize) {
        self.waits[index].after.retain(|after| after.step != step);
        self.waits[step].release(index);
    }

    /// Removes a step. A step that waited for it waits instead for the steps for which the removed
    /// one waited, with both think times: the processor's work between the requests is still done.
    pub fn remove(&mut self, index: usize) {
        let Waits { after: own, before } = std::mem::take(&mut self.waits[index]);
        for after in &own {
            self.waits[after.step].release(index);
        }
        let not_before = self.steps[index].not_before;
        for waiting in before.into_iter().map(|waiting| waiting as usize) {
            let think = self.think(waiting, index);
            self.waits[waiting].after.retain(|after| after.step != index);
            for after in &own {
                self.wait(waiting, After { step: after.step, think: after.think + think });
            }
            if own.is_empty() {
                let step = &mut self.steps[waiting];
                step.not_before = step.not_before.max(not_before + think);
            }
        }
        self.removed[index] = true;
    }

    /// Adds a step beside another: it waits for the same steps, and the same steps wait for it.
    pub fn beside(&mut self, index: usize, step: PlanStep) -> usize {
        let Waits { after, before } = self.waits[index].clone();
        let added = self.add(step, after);
        for waiting in before.into_iter().map(|waiting| waiting as usize) {
            let think = self.think(waiting, index);
            self.wait(waiting, After { step: added, think });
        }
        added
    }

    /// Adds a step behind another: everything that waited for `index` waits for the new step
    /// instead, which is issued as soon as `index` is complete.
    pub fn behind(&mut self, index: usize, step: PlanStep) -> usize {
        let waiting: Vec<usize> = self.before(index).collect();
        let added = self.add(step, [After { step: index, think: 0 }]);
        for one in waiting {
            let think = self.think(one, index);
            self.release(one, index);
            self.wait(one, After { step: added, think });
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u64) -> PlanStep {
        PlanStep {
            disk: 0,
            op: RequestOp::Flush,
            offset: 0,
            len: 0,
            fua: false,
            preflush: false,
            role: Role::Flush,
            transaction: None,
            copies: Vec::new(),
            checkpoint: false,
            recorded: Some(RecordedStep { number, issued: 0, took: 0 }),
            text: None,
            not_before: 0,
            order: number * RANK,
        }
    }

    fn after(step: usize, think: u64) -> After {
        After { step, think }
    }

    /// Removing a step keeps both think times, and leaves no wait for the step itself. The first
    /// step keeps its own time.
    #[test]
    fn a_removed_step_leaves_its_think_times() {
        let mut plan = Plan::default();
        plan.add(PlanStep { not_before: 5, ..step(0) }, Vec::new());
        plan.add(step(1), vec![after(0, 10)]);
        plan.add(step(2), vec![after(1, 20), after(0, 3)]);
        plan.remove(1);
        assert_eq!(plan.after(2), [after(0, 30)]);
        assert_eq!(plan.before(0).collect::<Vec<_>>(), [2]);
        plan.remove(0);
        assert!(plan.after(2).is_empty());
        assert_eq!(plan.step(2).not_before, 35);
        assert_eq!(plan.live().collect::<Vec<_>>(), [2]);
    }

    /// A step beside another one has the same waits on both sides; a step behind another comes
    /// between it and the steps that waited for it.
    #[test]
    fn added_steps_wait_and_are_waited_for() {
        let mut plan = Plan::default();
        plan.add(step(0), Vec::new());
        plan.add(step(1), vec![after(0, 1)]);
        plan.add(step(2), vec![after(1, 2)]);
        let beside = plan.beside(1, step(3));
        assert_eq!(plan.after(beside), [after(0, 1)]);
        assert_eq!(plan.after(2), [after(1, 2), after(beside, 2)]);
        let behind = plan.behind(1, step(4));
        assert_eq!(plan.after(behind), [after(1, 0)]);
        assert_eq!(plan.after(2), [after(beside, 2), after(behind, 2)]);
    }
}
