//! Limits, ages and counters of the cache.

use ordo_runtime::Duration;

use crate::BufferClass;

/// The age of the oldest change that a power cut may take back, under soft updates:
/// journaling-versus-soft-updates-2000, section 6. A device exceeds it only if a single operation
/// takes it seconds to write.
pub const LOST_MAX: Duration = Duration::from_secs(45);

/// When writers wait for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritersWait {
    /// When more than [`CacheConfig::dirty_max`] bytes are dirty, as in the kernels of the papers.
    /// On a slow device changes may then be written later than [`LOST_MAX`].
    AtLimit,
    /// Before that too, when the device could not write all that is dirty in time, so that
    /// [`LOST_MAX`] holds. The syncer then also begins before anything is due.
    #[default]
    InTime,
}

/// Options of a cache: its size, and when it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Memory for buffers, in bytes.
    pub capacity: usize,
    /// The number of dirty bytes above which writers wait.
    pub dirty_max: usize,
    /// Whether writers also wait when the device cannot write everything in time.
    pub writers_wait: WritersWait,
    /// The longest write that is gathered from adjacent buffers, in bytes: 64 KiB in the papers, up
    /// to 1 MiB.
    pub cluster: usize,
    /// The unit in bytes in which only the changed part of a large block of a file is written: a
    /// multiple of each device's sector. `None`, the default, writes whole blocks, as the systems
    /// of the papers do.
    pub write_unit: Option<usize>,
    /// The most requests under way at a time.
    pub requests_max: u64,
    /// Whether blocks in which the ordering would have to roll something back are written after
    /// those on which they depend.
    pub dependents_last: bool,
    /// Whether memory is reclaimed first from blocks without dependencies.
    pub evict_independent_first: bool,
    /// The age at which the syncer writes a dirty block of metadata.
    pub metadata_age: Duration,
    /// The age at which the syncer writes a dirty block of a directory.
    pub directory_age: Duration,
    /// The age at which the syncer writes a dirty block of a file.
    pub data_age: Duration,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig {
            capacity: 64 << 20,
            dirty_max: 16 << 20,
            writers_wait: WritersWait::default(),
            cluster: 64 << 10,
            write_unit: None,
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
    /// The default limits for a memory of `capacity` bytes, a quarter of which may be dirty.
    pub fn with_capacity(capacity: usize) -> CacheConfig {
        CacheConfig { capacity, dirty_max: capacity / 4, ..CacheConfig::default() }
    }

    /// The age at which a dirty block of this class is due.
    pub fn age(&self, class: BufferClass) -> Duration {
        match class {
            BufferClass::Metadata => self.metadata_age,
            BufferClass::Directory => self.directory_age,
            BufferClass::Data => self.data_age,
        }
    }
}

/// Counters of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Read requests.
    pub reads: u64,
    /// Write requests. Each has one or more buffers.
    pub writes: u64,
    /// The number of buffers that were written.
    pub buffers_written: u64,
    /// The number of buffers that were written in part, because the gate rolled back some of their
    /// changes.
    pub rolled_back: u64,
    /// Times that a task waited for a write.
    pub waits: u64,
    /// Device flushes.
    pub flushes: u64,
    /// The number of buffers that were evicted.
    pub evicted: u64,
    /// The number of bytes of all buffers now.
    pub bytes: usize,
    /// The number of bytes of dirty buffers now.
    pub dirty_bytes: usize,
}
