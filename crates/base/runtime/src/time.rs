//! Points in time, virtual or real, in nanoseconds since the executor started.

use std::ops::{Add, Sub};

pub use std::time::Duration;

/// A point in time: nanoseconds since the executor started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The executor's start.
    pub const ZERO: Time = Time(0);
    /// A time that never comes.
    pub const MAX: Time = Time(u64::MAX);

    /// The point `nanos` nanoseconds after the executor's start.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the executor's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the executor's start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}
