//! File contents that have moved: the last fragments of a file, which grew and found no space
//! behind them.
//!
//! The new pointer is in the log soon, but file contents are not logged, and are written to the new
//! place only when they are due. Contents for which a caller has waited are then durable at the old
//! place alone. Therefore
//!
//! - the log says from where to where the contents have moved. Recovery copies them, unless
//! - the log says that the new place has been written since (the move has *landed*); and
//! - the old place stays allocated until then. It is freed by an operation of its own, which begins
//!   when the operation that moved the contents has ended.
//!
//! So the old contents are intact wherever recovery needs them: a recovery can be repeated, and the
//! copies can be made in any order. A file that moves again before the first move has landed still
//! has its contents at the first place. If the new place is freed, there is nothing to copy.
//!
//! Contents that were never written anywhere move without all this.

use std::collections::BTreeMap;

use ordo_cache::{BufRef, Buffer};

use super::BLOCK_MAX;

/// Fragments that a file has left, by the log's records.
#[derive(Debug)]
struct Left {
    frags: u32,
    /// The first log record that a crash now would need.
    lsn: u64,
    /// Operations under way whose rollback would need the contents here.
    open: u32,
    /// Whether the free has been given to the core.
    given: bool,
    /// The new place, until it has been written.
    pending: Option<Pending>,
}

/// A move that has not landed. Places are byte addresses on the device.
#[derive(Debug)]
struct Pending {
    to: u64,
    /// The length of the contents that have moved, in bytes.
    len: u64,
    buf: BufRef,
    /// The version of the first image that was made for the new place.
    image: Option<u64>,
}

/// All moves whose old places are still allocated, by old place.
#[derive(Debug, Default)]
pub(super) struct Moves {
    left: BTreeMap<u64, Left>,
    /// The old place of each move that has not landed, by new place.
    by_new: BTreeMap<u64, u64>,
    /// The number of moves that have not landed, for each file that has any.
    by_file: BTreeMap<u64, u32>,
}

/// A move, as the log has it. Places and length are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub from: u64,
    pub to: u64,
    pub len: u64,
}

/// Fragments that can be freed now: byte address and number of fragments.
pub(super) type Due = (u64, u32);

impl Moves {
    /// Whether contents at a place may be needed there after a crash: they were stored there, or at
    /// an earlier place.
    pub(super) fn matters(&self, at: u64, buf: &Buffer) -> bool {
        buf.is_stored() || self.by_new.contains_key(&at)
    }

    /// Notes that an operation under way has moved contents. The record about it has this LSN.
    /// Returns the move: if the contents were not written since an earlier move, it begins where
    /// that one began.
    pub(super) fn note(
        &mut self,
        (at, frags): (u64, u32),
        to: u64,
        len: u64,
        (buf, lsn): (&BufRef, u64),
    ) -> Moved {
        let earlier = self.by_new.remove(&at);
        let from = earlier.unwrap_or(at);
        let left = self.left.entry(from).or_insert(Left {
            frags,
            lsn,
            open: 0,
            given: false,
            pending: None,
        });
        debug_assert_eq!(left.pending.is_some(), earlier.is_some(), "a move has one old place");
        let len = left.pending.as_ref().map_or(len, |pending| pending.len);
        left.open += 1;
        let earlier = left.pending.replace(Pending { to, len, buf: buf.clone(), image: None });
        self.by_new.insert(to, from);
        *self.by_file.entry(buf.key().file).or_default() += 1;
        earlier.inspect(|pending| self.uncount(pending));
        Moved { from, to, len }
    }

    /// Notes fragments that recovery has found: nothing leads to them, and nothing has to be
    /// copied. The record about them has this LSN.
    pub(super) fn found(&mut self, from: u64, frags: u32, lsn: u64) {
        self.left.insert(from, Left { frags, lsn, open: 0, given: true, pending: None });
    }

    /// Whether these fragments are the old place of a move, and must not be freed yet.
    pub(super) fn keeps(&self, at: u64) -> bool {
        self.left.get(&at).is_some_and(|left| !left.given)
    }

    /// Notes that an image of a block is made to be written.
    pub(super) fn image(&mut self, block: &Buffer) {
        if let Some(pending) = self.pending_of(block) {
            pending.image.get_or_insert(block.version());
        }
    }

    /// Notes that an image of this version is durable. Returns the move that has landed with it,
    /// and the fragments that can be freed now.
    pub(super) fn written(&mut self, block: &Buffer, version: u64) -> Option<(Moved, Option<Due>)> {
        self.pending_of(block)?.image.filter(|first| *first <= version)?;
        let from = self.by_new.remove(&block.address()?)?;
        let pending = self.left.get_mut(&from)?.pending.take()?;
        self.uncount(&pending);
        let Pending { to, len, .. } = pending;
        Some((Moved { from, to, len }, self.due(from)))
    }

    /// Notes that a move is none of its file's that have not landed any more.
    fn uncount(&mut self, pending: &Pending) {
        let file = pending.buf.key().file;
        let count = self.by_file.get_mut(&file).expect("each pending move is counted");
        *count -= 1;
        if *count == 0 {
            self.by_file.remove(&file);
        }
    }

    /// Whether a block's contents have moved to its place, and have not landed.
    pub(super) fn is_pending(&self, block: &Buffer) -> bool {
        block.address().is_some_and(|at| self.by_new.contains_key(&at))
    }

    fn pending_of(&mut self, block: &Buffer) -> Option<&mut Pending> {
        let from = self.by_new.get(&block.address()?)?;
        let pending = self.left.get_mut(from)?.pending.as_mut()?;
        std::ptr::eq(&raw const *pending.buf, block).then_some(pending)
    }

    /// Notes that an operation under way frees a part of the device. Contents that should go there
    /// are shortened, or need no copy any more. Returns the old places of the latter, and whether
    /// any move was changed.
    pub(super) fn freed(&mut self, at: u64, len: u64) -> (Vec<u64>, bool) {
        let near = self.by_new.range(at.saturating_sub(BLOCK_MAX)..at + len);
        let hit: Vec<(u64, u64)> = near.map(|(to, from)| (*to, *from)).collect();
        let (mut dropped, mut changed) = (Vec::new(), false);
        for (to, from) in hit {
            let left = self.left.get_mut(&from).expect("each new place has an old one");
            let pending = left.pending.as_mut().expect("it has not landed");
            if to >= at {
                left.open += 1;
                let pending = left.pending.take().expect("it has not landed");
                self.uncount(&pending);
                self.by_new.remove(&to);
                dropped.push(from);
                changed = true;
            } else if to + pending.len > at {
                pending.len = at - to;
                changed = true;
            }
        }
        (dropped, changed)
    }

    /// Notes that an old place has been freed. Returns the first record that was needed about it.
    pub(super) fn gone(&mut self, from: u64) -> Option<u64> {
        self.left.remove(&from).map(|left| left.lsn)
    }

    /// Notes the end of an operation that had moved contents from this place, or had dropped the
    /// move. Returns the fragments if they can be freed now.
    pub(super) fn ended(&mut self, from: u64) -> Option<Due> {
        self.left.get_mut(&from)?.open -= 1;
        self.due(from)
    }

    fn due(&mut self, from: u64) -> Option<Due> {
        let left = self.left.get_mut(&from)?;
        let is_due = left.pending.is_none() && left.open == 0 && !left.given;
        left.given |= is_due;
        is_due.then_some((from, left.frags))
    }

    /// The old places with records from before `until` whose contents nobody needs any more.
    pub(super) fn landed(&self, until: u64) -> Vec<Due> {
        let landed = |left: &Left| left.pending.is_none() && left.open == 0 && left.lsn < until;
        let all = self.left.iter().filter(|(_, left)| landed(left));
        all.map(|(from, left)| (*from, left.frags)).collect()
    }

    /// Notes a newer record about an old place, which makes the earlier ones needless.
    pub(super) fn logged_again(&mut self, from: u64, lsn: u64) {
        if let Some(left) = self.left.get_mut(&from) {
            left.lsn = lsn;
        }
    }

    /// The first record that any of the moves needs.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.left.values().map(|left| left.lsn).min()
    }

    /// The number of old places whose free has not been given to the core.
    pub(super) fn len(&self) -> usize {
        self.left.values().filter(|left| !left.given).count()
    }

    /// The number of moves that have not landed.
    pub(super) fn pending(&self) -> usize {
        self.by_new.len()
    }

    /// The number of fragments that will be freed.
    pub(super) fn frags(&self) -> u64 {
        self.left.values().map(|left| u64::from(left.frags)).sum()
    }

    /// The blocks whose moves have not landed, and need records from before `until`.
    pub(super) fn blocks(&self, until: u64) -> Vec<BufRef> {
        let old = self.left.values().filter(|left| left.lsn <= until);
        old.filter_map(|left| left.pending.as_ref()).map(|p| p.buf.clone()).collect()
    }

    /// Whether any move of a file's contents has not landed.
    pub(super) fn has_pending(&self, file: u64) -> bool {
        self.by_file.contains_key(&file)
    }
}

/// The moves that recovery finds in the log, in the order of their records.
#[derive(Debug, Default)]
pub(super) struct FoundMoves {
    left: BTreeMap<u64, FoundMove>,
    /// The old place of each move that must be completed, by new place.
    by_new: BTreeMap<u64, u64>,
}

/// An old place that is still allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundMove {
    /// The length of the old place in bytes.
    pub len: u64,
    /// The contents that must be copied, if any.
    pub copy: Option<Moved>,
    /// The end of the last record about the move.
    lsn: u64,
}

impl FoundMoves {
    /// A record, which ends at `lsn`, of a move. A move to its own place says only that the place
    /// is to be freed.
    pub(super) fn moved(&mut self, moved: Moved, lsn: u64) {
        let Moved { from, to, len } = moved;
        let known = self.left.entry(from).or_insert(FoundMove { len, copy: None, lsn });
        let copy = (to != from).then_some(moved);
        let earlier = std::mem::replace(&mut known.copy, copy);
        known.lsn = lsn;
        if let Some(earlier) = earlier {
            self.by_new.remove(&earlier.to);
        }
        if copy.is_some() {
            self.by_new.insert(to, from);
        }
    }

    /// The device has the changes of the block at `at` from before `lsn`.
    pub(super) fn placed(&mut self, at: u64, lsn: u64) {
        let found = self.by_new.get(&at).and_then(|from| self.left.get_mut(from));
        if let Some(found) = found.filter(|found| found.lsn <= lsn) {
            found.copy = None;
            self.by_new.remove(&at);
        }
    }

    /// A part of the device was freed.
    pub(super) fn freed(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        let near = self.by_new.range(at.saturating_sub(BLOCK_MAX)..end);
        let hit: Vec<(u64, u64)> = near.map(|(to, from)| (*to, *from)).collect();
        for (to, from) in hit {
            let Some(found) = self.left.get_mut(&from) else { continue };
            if to >= at {
                found.copy = None;
                self.by_new.remove(&to);
            } else if let Some(copy) = &mut found.copy {
                copy.len = copy.len.min(at - to);
            }
        }
        let gone: Vec<u64> = self.left.range(at..end).map(|(from, _)| *from).collect();
        for from in gone {
            if let Some(FoundMove { copy: Some(copy), .. }) = self.left.remove(&from) {
                self.by_new.remove(&copy.to);
            }
        }
    }

    /// The old places, by address.
    pub(super) fn into_all(self) -> BTreeMap<u64, FoundMove> {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(from: u64, to: u64, len: u64) -> Moved {
        Moved { from: from * 512, to: to * 512, len: len * 512 }
    }

    fn copies(found: FoundMoves) -> Vec<(u64, Option<Moved>)> {
        found.into_all().into_iter().map(|(from, found)| (from / 512, found.copy)).collect()
    }

    /// A place is copied until the log says that the copy would be older than the new place, and is
    /// to be freed until the log says that it was.
    #[test]
    fn a_move_is_completed_once() {
        let mut found = FoundMoves::default();
        found.moved(moved(8, 16, 3), 100);
        found.moved(moved(40, 48, 2), 110);
        found.placed(16 * 512, 99);
        found.placed(48 * 512, 110);
        assert_eq!(copies(found), [(8, Some(moved(8, 16, 3))), (40, None)]);
        let mut found = FoundMoves::default();
        found.moved(moved(8, 16, 3), 100);
        found.freed(8 * 512, 3 * 512);
        assert_eq!(copies(found), []);
    }

    /// Contents that move twice before they are written are copied from the first place to the last
    /// one.
    #[test]
    fn two_moves_are_one() {
        let mut found = FoundMoves::default();
        found.moved(moved(8, 16, 3), 100);
        found.moved(moved(8, 24, 3), 120);
        found.placed(16 * 512, 130);
        found.freed(16 * 512, 4 * 512);
        assert_eq!(copies(found), [(8, Some(moved(8, 24, 3)))]);
    }

    /// A file that is cut at its new place gets no more than what it still has there, and one that
    /// is freed gets nothing.
    #[test]
    fn nothing_is_copied_to_what_was_freed() {
        let mut found = FoundMoves::default();
        found.moved(moved(8, 16, 5), 100);
        found.freed(18 * 512, 6 * 512);
        found.moved(moved(40, 48, 2), 110);
        found.freed(48 * 512, 512 * 8);
        assert_eq!(copies(found), [(8, Some(moved(8, 16, 2))), (40, None)]);
    }

    /// A place that recovery leaves to be freed is found again by the next recovery, and copied by
    /// none.
    #[test]
    fn a_place_that_only_has_to_be_freed_is_not_copied() {
        let mut found = FoundMoves::default();
        found.moved(moved(8, 8, 3), 100);
        assert_eq!(copies(found), [(8, None)]);
    }
}
