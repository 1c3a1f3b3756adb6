//! How fast the device takes dirty buffers, and how many may be dirty for all to be on it in time.
//!
//! A buffer is due when it is as old as its class may grow ([`CacheConfig::age`](crate::CacheConfig::age)), and is
//! to be on the device [`LOST_MAX`](crate::LOST_MAX) after it was changed. That holds only while the buffers before
//! it in the list can be written in the time between. So the syncer begins before anything is due when writing all
//! would take longer than [`BEHIND`], and writers wait when it would take longer than [`LATE`].

use std::cell::Cell;

use ordo_runtime::Duration;

/// Dirty buffers that take longer to write than this are written before they are due.
const BEHIND: Duration = Duration::from_secs(8);

/// Writers wait while writing the dirty buffers would take longer than this.
const LATE: Duration = Duration::from_secs(16);

/// A round of writing that takes as long as this says all about the device's speed; a shorter one less.
const MEMORY: Duration = Duration::from_secs(4);

/// How long one buffer takes, on an average over the last rounds of writing.
pub(crate) struct Pace {
    nanos_each: Cell<u64>,
}

impl Default for Pace {
    /// A disk that nobody has measured yet: one that writes small blocks anywhere, from a queue.
    fn default() -> Pace {
        Pace { nanos_each: Cell::new(5_000_000) }
    }
}

impl Pace {
    /// Takes note of a round of writing in which `buffers` buffers became clean.
    pub(crate) fn note(&self, buffers: u64, took: Duration) {
        /// The weight of this round and of all before it, together.
        const WHOLE: u64 = 256;
        if buffers == 0 {
            return;
        }
        let share = nanos(took).saturating_mul(WHOLE) / nanos(MEMORY);
        let weight = share.max(buffers.min(WHOLE / 4)).min(WHOLE);
        let before = self.nanos_each.get().saturating_mul(WHOLE - weight);
        let now = (nanos(took) / buffers).saturating_mul(weight);
        self.nanos_each.set(before.saturating_add(now) / WHOLE);
    }

    /// How long it takes to write so many buffers, in nanoseconds.
    fn nanos_for(&self, buffers: usize) -> u64 {
        (buffers as u64).saturating_mul(self.nanos_each.get())
    }

    /// Whether so many dirty buffers are more than can be written in time when writing begins as they are due.
    pub(crate) fn is_behind(&self, dirty: usize) -> bool {
        self.nanos_for(dirty) > nanos(BEHIND)
    }

    /// Whether no more may become dirty for now.
    pub(crate) fn is_late(&self, dirty: usize) -> bool {
        self.nanos_for(dirty) > nanos(LATE)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow disk holds writers back early, a fast one never, and a disk that was fast and becomes slow is
    /// noticed within seconds of writing; a few small writes of long latency say little. Would catch a rate that
    /// the past decides for ever.
    #[test]
    fn the_limit_follows_the_device() {
        let slow = Pace::default();
        for _ in 0..20 {
            slow.note(100, Duration::from_secs(1));
        }
        assert!(slow.is_behind(900) && !slow.is_behind(700));
        assert!(slow.is_late(1700) && !slow.is_late(1500));
        let fast = Pace::default();
        for _ in 0..30 {
            fast.note(1 << 20, Duration::from_micros(1));
        }
        assert!(!fast.is_behind(1 << 17));
        for _ in 0..5 {
            fast.note(1, Duration::from_millis(20));
        }
        assert!(!fast.is_behind(1000));
        fast.note(400, Duration::from_secs(4));
        assert!(fast.is_late(1700));
    }
}
