//! Operations that may still be rolled back, and for each of them the operations on which its fate
//! depends.
//!
//! An operation is *certain* when neither it nor any operation on which it depends can be rolled
//! back any more. Operation B depends on operation A, which is still under way,
//!
//! - if B has changed bytes that A had changed: a rollback of A would undo B's bytes too;
//! - if B began after the end of an operation that depends on A: so the operations that survive a
//!   crash are a prefix of those that were done.
//!
//! Rollback works on bytes. When an operation is rolled back, all later changes of the same bytes
//! are rolled back with it. So the changes of a byte that are rolled back are always its last ones.
//! Operations that share no bytes do not wait for each other, and a new operation waits for no
//! other one.
//!
//! The log is at a *quiescent point* when no operation that has changed anything is under way: all
//! records before that point are certain. Operations are numbered from 0 again from there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The number of ranges in `Ops::writers` at which the ranges of certain operations are removed.
const WRITERS_MAX: usize = 4096;

/// An operation's number since the last quiescent point.
pub(super) type Number = u32;

/// The caller's handle of one operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticket {
    /// The number of quiescent points that the log had passed when the operation began.
    generation: u64,
    /// The operations on which it depended when it began.
    needs: Vec<Number>,
    /// The operation's number, once it has changed something.
    number: Option<Number>,
}

#[derive(Debug)]
struct Known {
    /// The LSN from which on all records of the operation lie.
    first: u64,
    has_ended: bool,
    needs: BTreeSet<Number>,
}

/// The operations that have changed something since the last quiescent point, and are not certain.
#[derive(Debug, Default)]
pub(super) struct Ops {
    generation: u64,
    next: Number,
    known: BTreeMap<Number, Known>,
    /// The last writer of each range of bytes: by first byte, the end of the range and the
    /// operation.
    writers: BTreeMap<u64, (u64, Number)>,
    /// Operations under way on which an ended operation depends.
    held_by: Vec<Number>,
}

impl Ops {
    /// Begins an operation, which has no number before it changes something.
    pub(super) fn begin(&self) -> Ticket {
        Ticket { generation: self.generation, needs: self.held_by.clone(), number: None }
    }

    /// Gives an operation its number, when it is about to change something. Its records lie from
    /// `lsn` on.
    pub(super) fn enter(&mut self, ticket: &mut Ticket, lsn: u64) -> Number {
        if let Some(number) = ticket.number {
            return number;
        }
        let needs = std::mem::take(&mut ticket.needs);
        let is_old = ticket.generation != self.generation;
        let needs = if is_old { BTreeSet::new() } else { needs.into_iter().collect() };
        let number = self.next;
        self.next += 1;
        self.known.insert(number, Known { first: lsn, has_ended: false, needs });
        (ticket.generation, ticket.number) = (self.generation, Some(number));
        number
    }

    /// Notes that an operation changes bytes of the device.
    pub(super) fn touch(&mut self, number: Number, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.writers.range(..range.start).next_back();
        let before = before.filter(|(_, (end, _))| *end > range.start).map(|(start, _)| *start);
        let inside = self.writers.range(range.clone()).map(|(start, _)| *start);
        let hit: Vec<u64> = before.into_iter().chain(inside).collect();
        let mut needs = BTreeSet::new();
        for start in hit {
            let (end, who) = self.writers.remove(&start).expect("just found");
            if start < range.start {
                self.writers.insert(start, (range.start, who));
            }
            if end > range.end {
                self.writers.insert(range.end, (end, who));
            }
            if who != number && self.known.contains_key(&who) {
                needs.insert(who);
            }
        }
        self.writers.insert(range.start, (range.end, number));
        if let Some(known) = self.known.get_mut(&number) {
            known.needs.append(&mut needs);
        }
        if self.writers.len() > WRITERS_MAX {
            let known = &self.known;
            self.writers.retain(|_, (_, who)| known.contains_key(who));
        }
    }

    /// Makes an operation depend on every other one that is not certain.
    pub(super) fn need_all(&mut self, number: Number) {
        let all: Vec<Number> = self.known.keys().copied().filter(|n| *n != number).collect();
        if let Some(known) = self.known.get_mut(&number) {
            known.needs.extend(all);
        }
    }

    /// The operations on which an ending operation depends. The log keeps their numbers with its
    /// end.
    pub(super) fn needs(&self, number: Number) -> Vec<Number> {
        let needs = self.known.get(&number).into_iter().flat_map(|known| &known.needs);
        needs.copied().filter(|need| self.known.contains_key(need)).collect()
    }

    /// Whether the log is at a quiescent point once this operation has ended.
    pub(super) fn is_last(&self, number: Number) -> bool {
        self.known.iter().all(|(other, known)| known.has_ended || *other == number)
    }

    /// Ends an operation. Returns whether any operation became certain.
    pub(super) fn end(&mut self, number: Number) -> bool {
        if let Some(known) = self.known.get_mut(&number) {
            known.has_ended = true;
        }
        if self.known.values().all(|known| known.has_ended) {
            self.generation += 1;
            self.next = 0;
            self.known.clear();
            self.writers.clear();
            self.held_by.clear();
            return true;
        }
        let before = self.known.len();
        // Ended operations that depend, directly or not, on one that has not ended.
        let mut waiting: BTreeSet<Number> = BTreeSet::new();
        loop {
            let hangs = |need: &Number| {
                waiting.contains(need) || self.known.get(need).is_some_and(|known| !known.has_ended)
            };
            let more: Vec<Number> = self
                .known
                .iter()
                .filter(|(number, known)| {
                    known.has_ended && !waiting.contains(number) && known.needs.iter().any(hangs)
                })
                .map(|(number, _)| *number)
                .collect();
            if more.is_empty() {
                break;
            }
            waiting.extend(more);
        }
        self.known.retain(|number, known| !known.has_ended || waiting.contains(number));
        let held_by: BTreeSet<Number> = waiting
            .iter()
            .flat_map(|number| &self.known[number].needs)
            .filter(|need| self.known.get(need).is_some_and(|known| !known.has_ended))
            .copied()
            .collect();
        self.held_by = held_by.into_iter().collect();
        self.known.len() < before
    }

    /// The LSN before which all records are certain; `None` if every record is.
    pub(super) fn horizon(&self) -> Option<u64> {
        self.known.values().map(|known| known.first).min()
    }

    /// Whether an operation is certain. An operation that has changed nothing is.
    pub(super) fn is_certain(&self, ticket: &Ticket) -> bool {
        let Some(number) = ticket.number else { return true };
        ticket.generation != self.generation || !self.known.contains_key(&number)
    }

    /// The operations that are not certain: the ended ones, and on request those under way too.
    pub(super) fn uncertain(&self, those_under_way: bool) -> Vec<Ticket> {
        let known = self.known.iter().filter(|(_, known)| known.has_ended || those_under_way);
        let generation = self.generation;
        known
            .map(|(number, _)| Ticket { generation, needs: Vec::new(), number: Some(*number) })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(ops: &mut Ops, lsn: u64) -> (Ticket, Number) {
        let mut ticket = ops.begin();
        let number = ops.enter(&mut ticket, lsn);
        (ticket, number)
    }

    /// An operation that shares no bytes with those under way is certain when it ends. One that
    /// changes bytes after another operation is certain when that one has ended too.
    #[test]
    fn only_who_comes_after_waits() {
        let mut ops = Ops::default();
        let (long, a) = began(&mut ops, 10);
        ops.touch(a, 100..110);
        let (apart, b) = began(&mut ops, 20);
        ops.touch(b, 110..120);
        let (after, c) = began(&mut ops, 30);
        ops.touch(c, 105..106);
        ops.touch(a, 0..5);
        assert!(ops.end(b) && ops.is_certain(&apart), "it shares nothing");
        assert!(!ops.end(c) && !ops.is_certain(&after), "it changed what the first had changed");
        assert_eq!(ops.needs(c), [a]);
        assert_eq!(ops.horizon(), Some(10));
        assert!(ops.is_last(a) && ops.end(a));
        assert!(ops.is_certain(&after) && ops.is_certain(&long) && ops.horizon().is_none());
    }

    /// An operation that begins after an end that is not certain becomes certain no earlier than
    /// that end. So no operation survives a crash without those that were done before it.
    #[test]
    fn surviving_operations_are_a_prefix() {
        let mut ops = Ops::default();
        let (_, a) = began(&mut ops, 10);
        ops.touch(a, 0..8);
        let at_once = ops.begin();
        let (_, b) = began(&mut ops, 20);
        ops.touch(b, 4..5);
        ops.end(b);
        let (later, c) = began(&mut ops, 30);
        ops.touch(c, 1000..1001);
        ops.end(c);
        assert!(!ops.is_certain(&later), "it began behind the second");
        let mut at_once = at_once;
        let d = ops.enter(&mut at_once, 40);
        ops.touch(d, 2000..2001);
        ops.end(d);
        assert!(ops.is_certain(&at_once), "it had begun before");
        ops.end(a);
        assert!(ops.is_certain(&later));
    }

    /// Two operations that each changed the other's bytes become certain together. Numbers begin
    /// again at a quiescent point.
    #[test]
    fn circles_end() {
        let mut ops = Ops::default();
        let ((one, a), (two, b)) = (began(&mut ops, 1), began(&mut ops, 2));
        ops.touch(a, 0..8);
        ops.touch(b, 0..8);
        ops.touch(a, 2..3);
        ops.end(b);
        assert!(!ops.is_certain(&two));
        ops.end(a);
        assert!(ops.is_certain(&one) && ops.is_certain(&two));
        let (_, again) = began(&mut ops, 3);
        assert_eq!(again, 0);
    }
}
