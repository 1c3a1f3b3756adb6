//! Differential journaling (§3.3.5 of the paper): the journal gets only the bytes of a block that
//! changed since its last copy in the journal, or since its last write at the fixed location.
//!
//! The encoding, whose size is counted: for each block its number and the count of runs, 10 bytes;
//! for each run its first byte and its length, 4 bytes, and its bytes. Runs less than 4 bytes apart
//! are one. A block that would not get smaller is written whole. A transaction's runs follow a
//! header of 12 bytes, and fill whole blocks of the journal.

use ordo_annotate::Pieces;
use ordo_annotate::image::PIECE;
use ordo_trace::{RequestContents, RequestOp};
use ordo_watcher::decoder::DiskImage;
use rustc_hash::FxHashMap;

use super::{World, journal_of};
use crate::journal::{relay, transactions};
use crate::plan::{Plan, PlanStep};

/// The number of bytes for a block's number and its count of runs.
const BLOCK: usize = 10;
/// The number of bytes for a run's first byte and length.
const RUN: usize = 4;
/// The reason why a difference is not known.
const NO_CONTENTS: &str = "the contents of the blocks in the journal were not recorded";
/// The number of bytes of the header of a transaction.
const HEADER: u64 = 12;

/// The size of the difference of two versions of a block, in bytes.
pub fn encoded(old: &[u8], new: &[u8]) -> usize {
    let mut size = BLOCK;
    let mut end = 0;
    let mut first = true;
    for at in (0..new.len()).filter(|at| old.get(*at) != Some(&new[*at])) {
        if !first && at - end < RUN {
            // The bytes between cost no more than another run.
            size += at + 1 - end;
        } else {
            size += RUN + 1;
        }
        (first, end) = (false, at + 1);
    }
    size.min(BLOCK + new.len())
}

/// The contents of blocks as the journal or the device last had them. Only blocks of which the
/// journal gets copies count.
struct Versions<'a> {
    start: &'a Pieces,
    newest: FxHashMap<u64, Option<Box<[u8]>>>,
}

impl<'a> Versions<'a> {
    fn of(start: &'a Pieces, plan: &Plan) -> Versions<'a> {
        let copies = plan.live().flat_map(|n| &plan.step(n).copies);
        Versions { start, newest: copies.map(|copy| (copy.home, None)).collect() }
    }

    /// The device's contents at `home` before the trace, if they are known.
    fn before(&self, home: u64, len: usize) -> Option<Vec<u8>> {
        let piece = home / PIECE * PIECE;
        self.start.known.contains_key(&piece).then(|| {
            let mut bytes = vec![0; len];
            self.start.read_at(home, &mut bytes).map(|()| bytes).ok()
        })?
    }

    /// The number of bytes that the journal needs for a new version. That version is the last one
    /// from now on.
    fn replace(&mut self, home: u64, new: &[u8]) -> usize {
        let size = match self.newest.get(&home).and_then(Option::as_ref) {
            Some(old) => encoded(old, new),
            None => {
                self.before(home, new.len()).map_or(BLOCK + new.len(), |old| encoded(&old, new))
            }
        };
        self.newest.insert(home, Some(new.into()));
        size
    }

    /// Notes a write at fixed locations as the last version of its blocks.
    fn note(&mut self, step: &PlanStep, contents: &dyn RequestContents, block: u64) {
        let homes = (0..step.len.div_ceil(block)).map(|n| (n * block, step.offset + n * block));
        let homes: Vec<(u64, u64)> =
            homes.filter(|(_, home)| self.newest.contains_key(home)).collect();
        if homes.is_empty() {
            return;
        }
        let Some(bytes) = step.number().and_then(|number| contents.contents(number)) else {
            return;
        };
        for (at, home) in homes {
            let piece = bytes.get(at as usize..bytes.len().min((at + block) as usize));
            self.newest.insert(home, piece.map(Into::into));
        }
    }
}

pub(super) fn change(world: &mut World<'_>) -> Result<(), String> {
    let span = journal_of(world)?;
    let (contents, plan) = (world.contents, &mut world.plan);
    let mut versions = Versions::of(world.start, plan);
    let transactions = transactions(plan);
    let owner: FxHashMap<usize, u64> =
        transactions.iter().flat_map(|(id, t)| t.log.iter().map(|n| (*n, *id))).collect();
    let mut sizes: FxHashMap<u64, u64> = FxHashMap::default();
    let mut copies = 0;
    for index in plan.in_order() {
        let step = plan.step(index);
        if step.op != RequestOp::Write {
            continue;
        }
        let Some(id) = owner.get(&index) else {
            versions.note(step, contents, span.block);
            continue;
        };
        let size = sizes.entry(*id).or_insert(HEADER);
        // Copies of one request follow each other.
        let mut source = None;
        for copy in &step.copies {
            let number = copy.source.0;
            let (_, bytes) = match source.take().filter(|(own, _)| *own == number) {
                Some(same) => source.insert(same),
                None => source.insert((number, contents.contents(number).ok_or(NO_CONTENTS)?)),
            };
            let (from, len) = (copy.source.1 as usize, copy.len as usize);
            let new = bytes.get(from..from + len).ok_or("a copy is longer than its request")?;
            *size += versions.replace(copy.home, new) as u64;
            copies += 1;
        }
    }
    if copies == 0 {
        return Err("the journal has no copies of blocks, but records of changes already".into());
    }
    for (id, transaction) in transactions {
        let Some((first, rest)) = transaction.log.split_first() else { continue };
        let size = sizes.get(&id).copied().unwrap_or(HEADER);
        let was: u64 = transaction.log.iter().map(|n| plan.step(*n).len).sum();
        plan.step_mut(*first).len = size.next_multiple_of(span.block).min(was);
        rest.iter().for_each(|n| plan.remove(*n));
    }
    relay(plan, &span);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes by hand: nothing changed; one byte; two runs that are one, and two that are not;
    /// everything.
    #[test]
    fn sizes_are_those_of_the_encoding() {
        let old = [0u8; 4096];
        let with = |at: &[usize]| {
            let mut new = old;
            at.iter().for_each(|at| new[*at] = 1);
            encoded(&old, &new)
        };
        assert_eq!(with(&[]), 10);
        assert_eq!(with(&[7]), 10 + 4 + 1);
        assert_eq!(with(&[7, 10]), 10 + 4 + 4);
        assert_eq!(with(&[7, 100]), 10 + 5 + 5);
        assert_eq!(encoded(&old, &[1; 4096]), 10 + 4096);
    }
}
