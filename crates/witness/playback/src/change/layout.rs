//! Other places for file data (§2.2 of the paper: blocks are mapped to other places).

use std::collections::BTreeMap;

use ordo_trace::RequestOp;

use super::{NO_MODEL, World};
use crate::traffic::Role;

/// The unit in which data is mapped, in bytes.
const UNIT: u64 = 4096;

/// Other places for file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutChange {
    /// One block behind the other, in the order in which they are first written.
    Packed,
    /// Evenly over the device, neighbours in the order of the first writes far from each other.
    Spread,
}

/// The new place of each piece of [`UNIT`] bytes, by its old one. `pieces` are in the order in
/// which they are first written; `bytes` is the size of the device.
pub(crate) fn mapping(pieces: &[u64], to: LayoutChange, bytes: u64) -> BTreeMap<u64, u64> {
    let first = pieces.iter().copied().min().unwrap_or(0);
    let count = pieces.len() as u64;
    let space = bytes.saturating_sub(first) / UNIT;
    let step = (space / count.max(1)).max(1);
    // Each next piece is a golden section of the device away.
    let jump = coprime((count as f64 * 0.618) as u64, count);
    let place = |n: u64| match to {
        LayoutChange::Packed => first + n * UNIT,
        LayoutChange::Spread => first + n * jump % count.max(1) * step * UNIT,
    };
    (0..).zip(pieces).map(|(n, piece)| (*piece, place(n))).collect()
}

/// The first number from `near` on that has no divisor in common with `of`.
fn coprime(near: u64, of: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (near.max(1)..).find(|n| divisor(*n, of) == 1).unwrap_or(1)
}

pub(super) fn change(world: &mut World<'_>, to: LayoutChange) -> Result<(), String> {
    let (disk, bytes) = world.stage.disks[0].clone();
    if disk.volatile_cache().is_none() {
        return Err(NO_MODEL.into());
    }
    let plan = &mut world.plan;
    let is_data = |role: Role, op: RequestOp| role == Role::Data && op == RequestOp::Write;
    let mut pieces = Vec::new();
    let mut seen = rustc_hash::FxHashSet::default();
    for index in plan.in_order() {
        let step = plan.step(index);
        if is_data(step.role, step.op) {
            let all = (step.offset / UNIT * UNIT..step.offset + step.len).step_by(UNIT as usize);
            pieces.extend(all.filter(|piece| seen.insert(*piece)));
        }
    }
    if pieces.is_empty() {
        return Err("the trace writes no file data".into());
    }
    let map = mapping(&pieces, to, bytes);
    for index in plan.live().collect::<Vec<_>>() {
        let step = plan.step(index).clone();
        if !is_data(step.role, step.op) {
            continue;
        }
        let first = step.offset / UNIT * UNIT;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for piece in (first..step.offset + step.len).step_by(UNIT as usize) {
            let place = map[&piece];
            match runs.last_mut() {
                Some(run) if run.0 + run.1 == place => run.1 += UNIT,
                _ => runs.push((place, UNIT)),
            }
        }
        for (n, (offset, len)) in runs.into_iter().enumerate() {
            if n == 0 {
                let step = plan.step_mut(index);
                (step.offset, step.len) = (offset, len.min(step.len.max(512)));
            } else {
                plan.beside(index, crate::plan::PlanStep { offset, len, ..step.clone() });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every piece has a place of its own on the device; packed ones follow each other, spread ones
    /// do not.
    #[test]
    fn pieces_have_places_of_their_own() {
        let pieces: Vec<u64> = [9, 3, 4, 100, 7, 50].map(|n| n * UNIT).into();
        let packed = mapping(&pieces, LayoutChange::Packed, 1 << 20);
        let order: Vec<u64> = pieces.iter().map(|piece| packed[piece] / UNIT).collect();
        assert_eq!(order, [3, 4, 5, 6, 7, 8]);
        for count in 1..40u64 {
            let pieces: Vec<u64> = (0..count).map(|n| (n + 5) * UNIT).collect();
            let spread = mapping(&pieces, LayoutChange::Spread, 1 << 20);
            let mut places: Vec<u64> = spread.values().copied().collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len() as u64, count, "{count} pieces");
            assert!(places.iter().all(|place| place + UNIT <= 1 << 20), "{places:?}");
        }
    }
}
