//! The parameters of disk models, in the units of data sheets.

/// A hard disk. All figures are nominal; each one that is not from a data sheet is marked where it
/// is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HddSpec {
    /// Capacity in sectors of 512 bytes.
    pub sectors: u64,
    /// Revolutions a minute.
    pub rpm: f64,
    /// Data surfaces.
    pub heads: u32,
    /// The layout of sectors, outermost zone first.
    pub zones: Zones,
    /// Seek to the next cylinder, reading, in milliseconds.
    pub seek_single_ms: f64,
    /// Mean seek between two random cylinders, reading, in milliseconds.
    pub seek_average_ms: f64,
    /// Seek across all cylinders, reading, in milliseconds.
    pub seek_full_ms: f64,
    /// The additional time of a seek for a write, in milliseconds.
    pub write_settle_ms: f64,
    /// The time from the last sector of a track to the first sector under the next head, in
    /// milliseconds.
    pub head_switch_ms: f64,
    /// The time from the last sector of a cylinder to the first of the next, in milliseconds.
    pub cylinder_switch_ms: f64,
    /// The time to handle one command before anything moves, in microseconds.
    pub overhead_us: f64,
    /// Whether the disk handles a queued command, and takes in its data, while the previous one
    /// still uses the media. A command that comes to an idle disk pays its overhead in either case.
    /// If not, two adjacent writes lose a revolution between them.
    pub overlaps_commands: bool,
    /// The interface's rate in 10^6 bytes a second.
    pub interface_mb_s: f64,
    /// The number of segments of the read cache.
    pub segments: usize,
    /// The number of bytes of one segment, which is also the distance of read-ahead.
    pub segment_bytes: u64,
    /// The number of bytes of the write cache; 0 if it is off.
    pub write_cache_bytes: u64,
    /// The number of requests that the host's driver and the drive sort together (C-LOOK). Later
    /// ones wait, first come, first served.
    pub queue_depth: usize,
}

/// The distribution of sectors over cylinders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Zones {
    /// For each zone, the number of cylinders and of sectors per track.
    Measured(&'static [(u32, u32)]),
    /// Sixteen zones of equally many cylinders; the sectors per track fall evenly from the first
    /// figure to the second.
    Even(u32, u32),
}

/// A solid-state disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdSpec {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Independent flash units that serve reads.
    pub channels: usize,
    /// Consecutive bytes on one flash unit.
    pub stripe_bytes: u64,
    /// The time to read one stripe, or less, from flash, in microseconds.
    pub read_us: f64,
    /// The time to write one stripe to flash durably, in microseconds: the cost of FUA.
    pub program_us: f64,
    /// The time to take a write into the cache, in microseconds.
    pub cached_write_us: f64,
    /// The fixed part of a flush, in microseconds.
    pub flush_us: f64,
    /// The controller's time for one command, in microseconds; it bounds the requests a second.
    pub command_us: f64,
    /// The interface's rate in 10^6 bytes a second, reading.
    pub read_mb_s: f64,
    /// The rate at which data can be sent to the cache, in 10^6 bytes a second.
    pub write_mb_s: f64,
    /// The rate at which the cache is emptied, in 10^6 bytes a second.
    pub drain_mb_s: f64,
    /// The number of bytes of the volatile write cache.
    pub cache_bytes: u64,
}

/// A block volume over a network, which stores a write more than once before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkSpec {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Round trip and storage of a read, in microseconds.
    pub read_us: f64,
    /// Round trip and storage of a write, in microseconds.
    pub write_us: f64,
    /// The number of requests a second that the volume admits.
    pub iops: f64,
    /// The number of requests that the volume admits at once after it was idle.
    pub burst: f64,
    /// The bytes for which a large request counts as one more request.
    pub io_unit_bytes: u64,
    /// The bytes a second that the volume admits, in 10^6.
    pub mb_s: f64,
}
