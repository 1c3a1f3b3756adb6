//! The verdict on a state: its faults, and those of them that break a promise.

use serde::Serialize;

/// The faults of a state. `broken` lists those that break a promise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// A check finds damage that could lose or mix up data.
    pub unsound: bool,
    /// A check finds anything other than wrong counts.
    pub needs_check: bool,
    /// A repair leaves damage that cannot be repaired.
    pub beyond_repair: bool,
    /// A check finds damage whose repair must guess.
    pub unresolvable: bool,
    /// The number of changes of names that had returned and are not there, durable or not.
    pub lost_returned: u64,
    /// Durable changes that are not there.
    pub lost_durable: Vec<String>,
    /// Changes that are there in part, or out of order.
    pub not_atomic: Vec<String>,
    /// Contents that were never written there.
    pub stale: Vec<String>,
    /// Reasons why the file system could not be used.
    pub unusable: Vec<String>,
    /// Broken promises of the scheme, with the faults that break them.
    pub broken: Vec<String>,
}

/// The most faults of a kind that a verdict lists.
pub(crate) const LISTED: usize = 8;

impl Verdict {
    /// Notes that the file system cannot be used, and whether that breaks a promise.
    pub fn cannot(&mut self, promised: bool, what: String) {
        Verdict::note(&mut self.unusable, &mut self.broken, promised, what);
    }

    pub(crate) fn note(
        list: &mut Vec<String>,
        broken: &mut Vec<String>,
        promised: bool,
        what: String,
    ) {
        if promised && broken.len() < LISTED {
            broken.push(what.clone());
        }
        if list.len() < LISTED {
            list.push(what);
        }
    }
}
