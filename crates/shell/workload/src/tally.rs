//! Counts of the kinds of operations in a phase that mixes some.

use super::MixEntry;

/// The counts of one kind of operation, all clients together.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    /// The number of operations.
    pub operations: u64,
    /// The bytes that they read and wrote.
    pub bytes: u64,
    nanos: u64,
}

impl Tally {
    /// Counts one operation on so many bytes that took so many nanoseconds.
    pub fn add(&mut self, bytes: u64, nanos: u64) {
        self.operations += 1;
        self.bytes += bytes;
        self.nanos += nanos;
    }

    /// The operations and bytes of all kinds.
    pub fn all(tallies: &[Tally]) -> (u64, u64) {
        tallies.iter().fold((0, 0), |(operations, bytes), tally| {
            (operations + tally.operations, bytes + tally.bytes)
        })
    }

    /// The counts under the name of their kind.
    pub fn entry(self, name: impl Into<String>) -> MixEntry {
        let Tally { operations, bytes, nanos } = self;
        MixEntry { name: name.into(), operations, bytes, seconds: nanos as f64 / 1e9 }
    }
}
