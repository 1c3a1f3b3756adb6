//! Operations that may yet be undone, and what each one's fate hangs on.
//!
//! An operation is *certain* when neither it nor anything that it hangs on can be undone any more. It hangs on another one
//! that is under way
//!
//! - if it has changed bytes that the other one had changed: to undo the other would undo it, too;
//! - if it began when something had ended that hangs on the other: what survives stays a prefix of what was done.
//!
//! Undoing goes by bytes: of whatever is undone, all later changes of the same bytes are undone with it. So per byte,
//! what is undone is the end of what was done. Operations that share nothing do not wait for one another, and
//! nobody who begins waits for anybody who is under way.
//!
//! Where no operation is under way that has changed anything, the log is *quiet*: all before is certain. Numbers begin
//! anew there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Ranges are looked through for those that tell nothing any more when there are so many.
const WRITERS_MAX: usize = 4096;

/// An operation's number, since the log was quiet.
pub(super) type Number = u32;

/// What an operation knows of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticket {
    /// How often the log had been quiet when it began.
    generation: u64,
    /// What it hung on then.
    needs: Vec<Number>,
    /// Once it has changed something.
    number: Option<Number>,
}

#[derive(Debug)]
struct Known {
    /// All its records lie behind.
    first: u64,
    has_ended: bool,
    needs: BTreeSet<Number>,
}

/// What has changed something since the log was quiet, and is not certain.
#[derive(Debug, Default)]
pub(super) struct Ops {
    generation: u64,
    next: Number,
    known: BTreeMap<Number, Known>,
    /// Who has changed which bytes last: from, to, who.
    writers: BTreeMap<u64, (u64, Number)>,
    /// Those under way that something hangs on that has ended.
    held_by: Vec<Number>,
}

impl Ops {
    /// An operation begins.
    pub(super) fn begin(&self) -> Ticket {
        Ticket { generation: self.generation, needs: self.held_by.clone(), number: None }
    }

    /// It is about to change something, with records from `lsn` on. Its number.
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

    /// An operation changes bytes of the device.
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

    /// What an operation that ends hangs on: to be logged with its end.
    pub(super) fn needs(&self, number: Number) -> Vec<Number> {
        let needs = self.known.get(&number).into_iter().flat_map(|known| &known.needs);
        needs.copied().filter(|need| self.known.contains_key(need)).collect()
    }

    /// Whether the log is quiet when this one has ended.
    pub(super) fn is_last(&self, number: Number) -> bool {
        self.known.iter().all(|(other, known)| known.has_ended || *other == number)
    }

    /// An operation has ended. True if anything is certain that was not.
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
        // Ended, and what they hang on, however far, has not.
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

    /// Where all records before belong to what is certain; `None`: all records there are.
    pub(super) fn horizon(&self) -> Option<u64> {
        self.known.values().map(|known| known.first).min()
    }

    /// Whether an operation is certain: one that has changed nothing is.
    pub(super) fn is_certain(&self, ticket: &Ticket) -> bool {
        let Some(number) = ticket.number else { return true };
        ticket.generation != self.generation || !self.known.contains_key(&number)
    }

    /// All that are not certain: those that have ended, and the others where they are asked for.
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

    /// Who shares nothing with what is under way is certain when it ends; who changes bytes after another is when that
    /// one has ended.
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

    /// Whoever begins behind an end that is not certain is not before it is: nothing survives without what was
    /// done before it.
    #[test]
    fn what_survives_is_a_prefix() {
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

    /// Two that have each changed what the other had are certain together; numbers begin anew where it is quiet.
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
