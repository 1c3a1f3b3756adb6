//! Changes of which request waits for which, and of flushes.

use ordo_trace::RequestOp;

use super::{Barriers, NO_MODEL, World, journal_of};
use crate::journal::transactions;
use crate::plan::{After, PlanStep};
use crate::traffic::Role;

/// Lets the journal writes of a transaction begin with its data: the commit block, and the flush
/// before it, wait for both (§3.3.4 of the paper).
pub(super) fn overlap(world: &mut World<'_>) -> Result<(), String> {
    journal_of(world)?;
    let plan = &mut world.plan;
    let mut changed = 0;
    for transaction in transactions(plan).into_values() {
        for log in transaction.log.iter().copied() {
            let data: Vec<After> = plan
                .after(log)
                .iter()
                .copied()
                .filter(|after| transaction.data.contains(&after.step))
                .collect();
            for after in &data {
                // The journal write begins as early as the data write itself. Only the commit has
                // to wait now.
                for own in plan.after(after.step).to_vec() {
                    plan.wait(log, own);
                }
                let not_before = plan.step(after.step).not_before;
                let step = plan.step_mut(log);
                step.not_before = step.not_before.max(not_before);
                for gate in plan.before(log).collect::<Vec<_>>() {
                    plan.wait(gate, After { step: after.step, think: 0 });
                }
                plan.release(log, after.step);
            }
            changed += usize::from(!data.is_empty());
        }
    }
    match changed {
        0 => Err("no journal write of this trace waits for file data".into()),
        _ => Ok(()),
    }
}

/// Removes, or adds, the flushes that keep the order on a disk with a volatile cache.
pub(super) fn barriers(world: &mut World<'_>, barriers: Barriers) -> Result<(), String> {
    let plan = &mut world.plan;
    let all: Vec<usize> = plan.live().collect();
    match barriers {
        Barriers::Off => {
            for index in all {
                if plan.step(index).role == Role::Flush {
                    plan.remove(index);
                } else {
                    let step = plan.step_mut(index);
                    (step.fua, step.preflush) = (false, false);
                }
            }
        }
        Barriers::Fua => {
            journal_of(world)?;
            let plan = &mut world.plan;
            for index in all {
                let flush = plan.step(index).role == Role::Flush;
                let after = plan.after(index).to_vec();
                let commit = |after: &After| plan.step(after.step).role == Role::Commit;
                if flush && !after.is_empty() && after.iter().all(commit) {
                    after.iter().for_each(|after| plan.step_mut(after.step).fua = true);
                    plan.remove(index);
                }
            }
        }
        Barriers::On => {
            for index in all {
                if !std::mem::take(&mut plan.step_mut(index).fua) {
                    continue;
                }
                let (op, role) = (RequestOp::Flush, Role::Flush);
                let bare = plan.step(index).clone();
                let flush = PlanStep { op, role, offset: 0, len: 0, copies: Vec::new(), ..bare };
                plan.behind(index, PlanStep { recorded: None, transaction: None, ..flush });
            }
        }
    }
    Ok(())
}

/// Turns the disk's write cache off: every write goes to the platter.
pub(super) fn cache_off(world: &mut World<'_>) -> Result<(), String> {
    let disk = &world.stage.disks[0].0;
    match disk.volatile_cache() {
        Some(true) => {}
        Some(false) => {
            let name = disk.model().map_or("the disk", |model| model.name);
            return Err(format!("{name} has no volatile write cache"));
        }
        None => return Err(NO_MODEL.into()),
    }
    let writes: Vec<usize> =
        world.plan.live().filter(|n| world.plan.step(*n).op == RequestOp::Write).collect();
    writes.into_iter().for_each(|n| world.plan.step_mut(n).fua = true);
    Ok(())
}
