//! Changes that move the journal: to another part of its disk, or to a disk of its own.

use ordo_block::model::Model;
use ordo_trace::RequestOp;

use super::{JournalPlace, NO_MODEL, World, journal_of, no_model_beside_real};
use crate::journal::JournalSpan;
use crate::plan::PlanStep;
use crate::play::PlayDisk;
use crate::traffic::Role;

/// Another disk. A kernel sends no flushes to a disk without a volatile cache, so that a trace of
/// one does not show those that the file system asks for; playback of calls knows them.
pub(super) fn disk(world: &mut World<'_>, model: &'static Model) -> Result<(), String> {
    no_model_beside_real(world)?;
    let was_volatile = world.stage.disks[0].0.volatile_cache();
    if was_volatile == Some(false) && model.volatile_cache() && world.lacks_flushes {
        return Err(format!(
            "the trace's disk has no volatile cache, so the kernel sent it no flushes; {} has one, and which flushes it would get is not in the requests. Record with --calls, or on a disk with a cache",
            model.name
        ));
    }
    world.stage.disks[0].0 = PlayDisk::Model(model);
    Ok(())
}

/// Moves the journal. The blocks at its new place change places with it, as `mke2fs` would have put
/// them elsewhere.
pub(super) fn journal_at(world: &mut World<'_>, at: JournalPlace) -> Result<(), String> {
    let span = journal_of(world)?;
    let (disk, device) = world.stage.disks[0].clone();
    if disk.volatile_cache().is_none() {
        return Err(NO_MODEL.into());
    }
    if world
        .plan
        .live()
        .any(|n| world.plan.step(n).role.is_journal() && world.plan.step(n).disk > 0)
    {
        return Err("the journal has a disk of its own".into());
    }
    let swap = Swap { span, target: target(&span, at, device)? };
    for index in world.plan.live().collect::<Vec<_>>() {
        let step = world.plan.step(index).clone();
        if step.disk > 0 || !matches!(step.op, RequestOp::Read | RequestOp::Write) {
            continue;
        }
        let pieces = swap.pieces(step.offset, step.len);
        for (n, (offset, len)) in pieces.into_iter().enumerate() {
            if n == 0 {
                let step = world.plan.step_mut(index);
                (step.offset, step.len) = (offset, len);
            } else {
                let copies = Vec::new();
                world.plan.beside(index, PlanStep { offset, len, copies, ..step.clone() });
            }
        }
    }
    Ok(())
}

/// The first byte of a journal at a place of a device of `device` bytes.
pub(crate) fn target(span: &JournalSpan, at: JournalPlace, device: u64) -> Result<u64, String> {
    let wanted = match at {
        JournalPlace::Permille(part) => (u128::from(device) * u128::from(part) / 1000) as u64,
        JournalPlace::Byte(byte) => byte,
    };
    if wanted >= device {
        return Err(format!("byte {wanted} is not on the device, which has {device}"));
    }
    Ok((wanted / 4096 * 4096).min(device.saturating_sub(span.len()) / 4096 * 4096))
}

/// Two ranges of a device that change places.
pub(crate) struct Swap {
    pub(crate) span: JournalSpan,
    pub(crate) target: u64,
}

impl Swap {
    /// The new place of a byte, and the number of bytes from it on that stay together.
    pub(crate) fn of(&self, byte: u64) -> (u64, u64) {
        let Swap { span: JournalSpan { first, end, .. }, target } = *self;
        let len = end - first;
        if (first..end).contains(&byte) {
            return (byte - first + target, end - byte);
        }
        let (low, high) = (first.min(target), end.max(target + len));
        if byte < low {
            return (byte, low - byte);
        }
        if byte >= high {
            return (byte, u64::MAX - byte);
        }
        let apart = target >= end || target + len <= first;
        if apart {
            // Between the two ranges nothing moves.
            if !(target..target + len).contains(&byte) {
                let next = if first > target { first } else { target };
                return (byte, next - byte);
            }
            return (byte - target + first, target + len - byte);
        }
        // The ranges overlap: only the part of the target that the journal does not leave is
        // displaced.
        match target > first {
            true => (byte - end + first, high - byte),
            false => (byte - target + target + len, first - byte),
        }
    }

    /// A range of the device in its new places.
    fn pieces(&self, mut offset: u64, mut len: u64) -> Vec<(u64, u64)> {
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        while len > 0 {
            let (to, together) = self.of(offset);
            let now = together.min(len);
            match pieces.last_mut() {
                Some(last) if last.0 + last.1 == to => last.1 += now,
                _ => pieces.push((to, now)),
            }
            offset += now;
            len -= now;
        }
        pieces
    }
}

/// Gives the journal a disk of its own, of its own size. A flush for which a commit block waits
/// goes to both disks, since data must be durable too; a flush behind a commit block goes to the
/// journal's disk alone.
pub(super) fn journal_device(world: &mut World<'_>, model: &'static Model) -> Result<(), String> {
    let span = journal_of(world)?;
    if world.stage.disks.len() > 1 {
        return Err("the journal has a disk of its own already".into());
    }
    no_model_beside_real(world)?;
    world.stage.disks.push((PlayDisk::Model(model), span.len().max(1 << 20)));
    let plan = &mut world.plan;
    for index in plan.live().collect::<Vec<_>>() {
        if plan.step(index).role.is_journal() {
            let step = plan.step_mut(index);
            step.disk = 1;
            step.offset -= span.first;
            continue;
        }
        if plan.step(index).role != Role::Flush {
            continue;
        }
        let role = |n: usize| plan.step(n).role;
        let behind = plan.after(index).iter().any(|after| role(after.step).is_journal());
        let before = plan.before(index).any(|n| role(n) == Role::Commit);
        if before {
            // jbd2 flushes the file system's device, and then sends the commit block with a
            // preflush to the journal's.
            let flush = PlanStep { disk: 1, recorded: None, ..plan.step(index).clone() };
            plan.behind(index, flush);
        } else if behind {
            plan.step_mut(index).disk = 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A range and the journal change places: every block has exactly one new place, for a target
    /// below, above, overlapping from both sides, and the same. Catches blocks that two old places
    /// map to, or that get lost.
    #[test]
    fn every_block_has_one_new_place() {
        for target in [0, 10, 28, 30, 35, 40, 60, 90] {
            let span = JournalSpan { first: 30, end: 40, block: 1, whole: true };
            let swap = Swap { span, target };
            let mut seen: Vec<u64> = (0..100).map(|byte| swap.of(byte).0).collect();
            assert_eq!(seen[30..40], (target..target + 10).collect::<Vec<_>>());
            let whole = swap.pieces(0, 100);
            assert_eq!(whole.iter().map(|piece| piece.1).sum::<u64>(), 100);
            let bytes: Vec<u64> = whole.iter().flat_map(|(at, len)| *at..at + len).collect();
            assert_eq!(bytes, seen, "target {target}");
            seen.sort_unstable();
            assert_eq!(seen, (0..100).collect::<Vec<_>>(), "target {target}");
        }
    }
}
