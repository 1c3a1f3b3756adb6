//! Timers in order of time, then of registration.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::time::Time;

/// The identity of a registered timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    slot: u32,
    seq: u64,
}

struct Slot {
    seq: u64,
    waker: Option<Waker>,
}

/// The registered timers. A cancelled timer stays in the heap until its time comes or half of the
/// heap is cancelled; it never moves the clock.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u64, u32)>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    next_seq: u64,
    cancelled: usize,
}

impl Timers {
    pub(crate) fn insert(&mut self, at: Time, waker: Waker) -> TimerKey {
        self.next_seq += 1;
        let (seq, entry) = (self.next_seq, Slot { seq: self.next_seq, waker: Some(waker) });
        let slot = match self.free.pop() {
            Some(i) => {
                self.slots[i as usize] = entry;
                i
            }
            None => {
                self.slots.push(entry);
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 timers")
            }
        };
        self.heap.push(Reverse((at, seq, slot)));
        TimerKey { slot, seq }
    }

    /// Replaces a timer's waker, if it has not fired.
    pub(crate) fn update(&mut self, key: TimerKey, waker: &Waker) {
        if let Some(slot) = self.slots.get_mut(key.slot as usize).filter(|s| s.seq == key.seq)
            && let Some(old) = &mut slot.waker
        {
            old.clone_from(waker);
        }
    }

    /// Cancels a timer, if it has not fired. The caller drops the waker.
    pub(crate) fn cancel(&mut self, key: TimerKey) -> Option<Waker> {
        let slot = self.slots.get_mut(key.slot as usize).filter(|s| s.seq == key.seq)?;
        let waker = slot.waker.take()?;
        slot.seq = 0;
        self.free.push(key.slot);
        self.cancelled += 1;
        if self.cancelled > 64 && self.cancelled > self.heap.len() / 2 {
            let slots = &self.slots;
            self.heap.retain(|Reverse((_, seq, slot))| slots[*slot as usize].seq == *seq);
            self.cancelled = 0;
        }
        Some(waker)
    }

    /// The earliest timer's time.
    pub(crate) fn next(&mut self) -> Option<Time> {
        while let Some(Reverse((at, seq, slot))) = self.heap.peek() {
            if self.slots[*slot as usize].seq == *seq {
                return Some(*at);
            }
            self.heap.pop();
            self.cancelled -= 1;
        }
        None
    }

    /// Takes the earliest timer, if it is due.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Waker> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, _, slot)) = self.heap.pop()?;
        let entry = &mut self.slots[slot as usize];
        entry.seq = 0;
        self.free.push(slot);
        entry.waker.take()
    }
}
