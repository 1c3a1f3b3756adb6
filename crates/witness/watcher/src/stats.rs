//! Traffic by kind.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::kind::{Class, Reason};

/// Traffic of one kind in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TrafficCounts {
    /// The number of requests that begin with this kind.
    pub requests: u64,
    /// File-system blocks of this kind, whole or in part.
    pub blocks: u64,
    /// The number of bytes of this kind.
    pub bytes: u64,
    /// The requests among them for which a task waits (writes with the sync flag).
    pub sync: u64,
    /// The requests among them that begin at the end of the previous request in the same direction.
    pub sequential: u64,
}

impl TrafficCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: &TrafficCounts) {
        self.requests += other.requests;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.sync += other.sync;
        self.sequential += other.sequential;
    }

    /// The counts without `other`; `None` if `other` has more.
    pub(crate) fn without(&self, other: &TrafficCounts) -> Option<TrafficCounts> {
        Some(TrafficCounts {
            requests: self.requests.checked_sub(other.requests)?,
            blocks: self.blocks.checked_sub(other.blocks)?,
            bytes: self.bytes.checked_sub(other.bytes)?,
            sync: self.sync.checked_sub(other.sync)?,
            sequential: self.sequential.checked_sub(other.sequential)?,
        })
    }
}

/// Counts of every kind. As JSON: an object with the kinds' keys in the order of [`Class::ALL`];
/// kinds without traffic are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByClass([TrafficCounts; Class::ALL.len()]);

impl Default for ByClass {
    fn default() -> ByClass {
        ByClass([TrafficCounts::default(); Class::ALL.len()])
    }
}

impl Index<Class> for ByClass {
    type Output = TrafficCounts;
    fn index(&self, class: Class) -> &TrafficCounts {
        &self.0[class as usize]
    }
}

impl IndexMut<Class> for ByClass {
    fn index_mut(&mut self, class: Class) -> &mut TrafficCounts {
        &mut self.0[class as usize]
    }
}

impl ByClass {
    /// Every kind with its counts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Class, &TrafficCounts)> {
        Class::ALL.into_iter().zip(&self.0)
    }

    /// The sum over all kinds.
    pub fn total(&self) -> TrafficCounts {
        let mut total = TrafficCounts::default();
        self.0.iter().for_each(|c| total.add(c));
        total
    }
}

impl Serialize for ByClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (class, counts) in self.iter().filter(|(_, c)| **c != TrafficCounts::default()) {
            map.serialize_entry(class.key(), counts)?;
        }
        map.end()
    }
}

/// The traffic of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// Reads by kind.
    pub reads: ByClass,
    /// Writes by kind.
    pub writes: ByClass,
    /// The number of flushes.
    pub flushes: u64,
    /// The number of discards.
    pub discards: u64,
    /// The number of requests, read or written, without a name, by reason.
    pub unknown: BTreeMap<Reason, u64>,
    /// The number of blocks that were first counted by a guess, and later under their true kind.
    pub settled: u64,
    /// The number of blocks without a pointer to them at the end, counted by their most likely
    /// kind.
    pub unclaimed: u64,
    /// The number of writes whose contents were not recorded, named by their place alone.
    pub without_contents: u64,
    /// Writes that were counted as the first kind and are now counted as the second.
    #[serde(skip)]
    pub recounted: Recounted,
}

/// Traffic by pair of kinds: it was counted as the first, and turned out to be of the second.
pub type Recounted = BTreeMap<(Class, Class), TrafficCounts>;

impl Stats {
    /// Moves counts of writes from one kind to another. If the first kind has fewer, returns false
    /// and changes nothing.
    pub fn reclassify(&mut self, what: &TrafficCounts, from: Class, to: Class) -> bool {
        let Some(left) = self.writes[from].without(what) else { return false };
        self.writes[from] = left;
        self.writes[to].add(what);
        self.recounted.entry((from, to)).or_default().add(what);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moving counts between kinds must keep the total, must never take more than is there, and
    /// must be noted. The JSON must list kinds in order.
    #[test]
    fn moving_keeps_the_total() {
        let mut stats = Stats::default();
        let counts = TrafficCounts { requests: 1, blocks: 2, bytes: 1024, sync: 1, sequential: 0 };
        stats.writes[Class::FileData].add(&counts);
        stats.writes[Class::InodeBlock].add(&counts);
        let total = stats.writes.total();
        assert!(stats.reclassify(&counts, Class::FileData, Class::Directory));
        let moved = stats.clone();
        assert!(!stats.reclassify(&counts, Class::FileData, Class::Directory), "no more is there");
        assert_eq!(stats, moved);
        assert_eq!(stats.recounted[&(Class::FileData, Class::Directory)], counts);
        let by = stats.writes;
        assert_eq!(by.total(), total);
        assert_eq!(by[Class::FileData], TrafficCounts::default());
        let json = serde_json::to_string(&by).unwrap();
        assert!(json.starts_with(r#"{"inode_block":{"requests":1,"blocks":2"#), "{json}");
        assert!(json.contains(r#","directory":{"#), "{json}");
        for (i, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, i);
        }
    }
}
