//! Limits, ages, counters.

use ordo_runtime::Duration;

use crate::Class;

/// How old the oldest change may be that a power cut takes back: journaling-versus-soft-updates-2000, section 6, has
/// this of soft updates. A device is too slow for it only where a single operation takes seconds to write.
pub const LOST_MAX: Duration = Duration::from_secs(45);

/// How large the cache may be and when it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Memory for buffers, in bytes.
    pub capacity: usize,
    /// How much may be dirty before writers wait, in bytes.
    pub dirty_max: usize,
    /// The largest write gathered from adjacent buffers, in bytes: 64 KiB in the papers, up to 1 MiB.
    pub cluster: usize,
    /// Requests under way at most.
    pub requests_max: u64,
    /// Whether blocks in which the ordering would have to undo something are written after those that
    /// they depend on.
    pub dependents_last: bool,
    /// Whether memory is reclaimed from blocks that depend on nothing first.
    pub evict_independent_first: bool,
    /// How old a dirty block of metadata may grow before the syncer writes it.
    pub metadata_age: Duration,
    /// The same for a block of a directory.
    pub directory_age: Duration,
    /// The same for a block of a file.
    pub data_age: Duration,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig {
            capacity: 64 << 20,
            dirty_max: 16 << 20,
            cluster: 64 << 10,
            requests_max: 64,
            dependents_last: true,
            evict_independent_first: true,
            metadata_age: Duration::from_secs(28),
            directory_age: Duration::from_secs(29),
            data_age: Duration::from_secs(30),
        }
    }
}

impl CacheConfig {
    /// The default limits around a memory of `capacity` bytes, a quarter of which may be dirty.
    pub fn with_capacity(capacity: usize) -> CacheConfig {
        CacheConfig { capacity, dirty_max: capacity / 4, ..CacheConfig::default() }
    }

    /// How old a dirty block of this class may grow.
    pub fn age(&self, class: Class) -> Duration {
        match class {
            Class::Metadata => self.metadata_age,
            Class::Directory => self.directory_age,
            Class::Data => self.data_age,
        }
    }
}

/// What the cache did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Read requests.
    pub reads: u64,
    /// Write requests, each of one or more buffers.
    pub writes: u64,
    /// Buffers written.
    pub buffers_written: u64,
    /// Buffers written in part because the gate rolled something back.
    pub rolled_back: u64,
    /// Times a task waited for a write.
    pub waits: u64,
    /// Device flushes.
    pub flushes: u64,
    /// Buffers given up to make room.
    pub evicted: u64,
    /// Memory held now, in bytes.
    pub bytes: usize,
    /// Dirty now, in bytes.
    pub dirty_bytes: usize,
}
