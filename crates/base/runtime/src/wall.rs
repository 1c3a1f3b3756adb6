//! The time of day, for times that are stored on disk.

use crate::Runtime;
use crate::executor::Clock;

/// The virtual clock's start: 2000-01-01 00:00:00 UTC, in seconds since 1970.
pub const VIRTUAL_EPOCH: i64 = 946_684_800;

impl Runtime {
    /// Makes the time of day stand still at these seconds since 1970, for results that are the same
    /// each time.
    pub fn fix_wall_time(&self, seconds: i64) {
        self.0.fixed_wall.set(Some(seconds));
    }

    /// Seconds and nanoseconds since 1970. In real time they come from the host's clock; in virtual
    /// time they are [`VIRTUAL_EPOCH`] plus the virtual clock.
    pub fn wall_time(&self) -> (i64, u32) {
        if let Some(seconds) = self.0.fixed_wall.get() {
            return (seconds, 0);
        }
        match self.0.clock {
            Clock::Virtual(_) => {
                let nanos = self.now().as_nanos();
                let seconds = VIRTUAL_EPOCH + (nanos / 1_000_000_000).cast_signed();
                (seconds, (nanos % 1_000_000_000) as u32)
            }
            Clock::Real(_) => {
                let since = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap_or_default();
                (since.as_secs().cast_signed(), since.subsec_nanos())
            }
        }
    }
}
