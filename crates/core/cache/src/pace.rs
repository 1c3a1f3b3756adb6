//! The speed at which the device takes dirty buffers, and the number that may be dirty so that all
//! are written in time.
//!
//! A buffer is due when it reaches the age of its class
//! ([`CacheConfig::age`](crate::CacheConfig::age)), and must be on the device
//! [`LOST_MAX`](crate::LOST_MAX) after it was changed. That holds only if the buffers before it in
//! the list can be written in the time between. So when writing everything would take longer than
//! [`BEHIND`], the syncer begins before any buffer is due; when it would take longer than [`LATE`],
//! writers wait. Both are a choice of the machine ([`WritersWait`](crate::WritersWait)): the
//! kernels of the papers have neither.

use std::cell::Cell;

use ordo_runtime::Duration;

/// The time to write all dirty buffers above which the syncer begins before any is due.
const BEHIND: Duration = Duration::from_secs(8);

/// The time to write all dirty buffers above which writers wait.
const LATE: Duration = Duration::from_secs(16);

/// The weight of the past: a round of writing that lasts this long replaces the measured speed, and
/// a shorter round changes it in proportion.
const MEMORY: Duration = Duration::from_secs(4);

/// The number of buffers as which a round of fewer counts.
const ROUND_LEAST: u64 = 32;

/// The time to write one buffer, averaged over the last rounds of writing.
pub(crate) struct Pace {
    nanos_each: Cell<u64>,
}

impl Default for Pace {
    /// The pace before any measurement: that of a disk that writes small blocks anywhere, from a
    /// queue.
    fn default() -> Pace {
        Pace { nanos_each: Cell::new(5_000_000) }
    }
}

impl Pace {
    /// Notes a round of writing in which `buffers` buffers became clean. The time of a short round
    /// is mostly the latency of its writes, and of those of others that the device does first, such
    /// as a busy log's. So it counts as a round of [`ROUND_LEAST`] buffers.
    pub(crate) fn note(&self, buffers: u64, took: Duration) {
        /// The sum of the weights of this round and of the measured speed before it.
        const WHOLE: u64 = 256;
        if buffers == 0 {
            return;
        }
        let share = nanos(took).saturating_mul(WHOLE) / nanos(MEMORY);
        let weight = share.max(buffers.min(WHOLE / 4)).min(WHOLE);
        let before = self.nanos_each.get().saturating_mul(WHOLE - weight);
        let now = (nanos(took) / buffers.max(ROUND_LEAST)).saturating_mul(weight);
        self.nanos_each.set(before.saturating_add(now) / WHOLE);
    }

    /// The time to write this number of buffers, in nanoseconds.
    fn nanos_for(&self, buffers: usize) -> u64 {
        (buffers as u64).saturating_mul(self.nanos_each.get())
    }

    /// Whether this number of dirty buffers could not be written in time if writing began only when
    /// they are due.
    pub(crate) fn is_behind(&self, dirty: usize) -> bool {
        self.nanos_for(dirty) > nanos(BEHIND)
    }

    /// Whether no more buffers may become dirty for now.
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

    /// A slow disk makes writers wait early, and a fast one never. A fast disk that becomes slow is
    /// noticed within seconds of writing. A few small writes of long latency change little. Would
    /// catch a rate that depends on the past for ever.
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

    /// Rounds of five buffers, each held up for five seconds by other writes, say little of the
    /// speed: writers go on with twenty times as many dirty buffers, and the next long round
    /// decides. Would catch a device that is taken for one that needs a second for a buffer, so
    /// that writers wait at 16 of them.
    #[test]
    fn a_short_round_is_no_measure_of_the_speed() {
        let pace = Pace::default();
        for _ in 0..10 {
            pace.note(5, Duration::from_secs(5));
        }
        assert!(!pace.is_behind(5) && !pace.is_late(100));
        pace.note(1024, Duration::from_secs(4));
        assert!(!pace.is_behind(1500), "a long round replaces what short ones showed");
        // Long rounds of a slow disk count as they are.
        for _ in 0..4 {
            pace.note(32, Duration::from_secs(32));
        }
        assert!(pace.is_late(17) && !pace.is_late(15));
    }
}
