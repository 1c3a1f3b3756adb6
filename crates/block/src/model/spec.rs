//! What a disk model is made of: parameters, in the units of datasheets.

/// A hard disk. All figures are nominal; every one that is not from a datasheet says so where it is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HddSpec {
    /// Capacity in sectors of 512 bytes.
    pub sectors: u64,
    /// Revolutions a minute.
    pub rpm: f64,
    /// Data surfaces.
    pub heads: u32,
    /// Where the sectors are, outermost zone first.
    pub zones: Zones,
    /// Seek to the next cylinder, reading, in milliseconds.
    pub seek_single_ms: f64,
    /// Mean seek between two random cylinders, reading, in milliseconds.
    pub seek_average_ms: f64,
    /// Seek across all cylinders, reading, in milliseconds.
    pub seek_full_ms: f64,
    /// What a seek to write takes longer, in milliseconds.
    pub write_settle_ms: f64,
    /// From the last sector of a track to the first of the next head's, in milliseconds.
    pub head_switch_ms: f64,
    /// From the last sector of a cylinder to the first of the next, in milliseconds.
    pub cylinder_switch_ms: f64,
    /// Handling of one command before anything moves, in microseconds.
    pub overhead_us: f64,
    /// Whether a command is handled, and its data taken in, while the one before still uses the media.
    /// Where not, two adjacent writes lose a revolution between them.
    pub overlaps_commands: bool,
    /// The interface's rate in 10^6 bytes a second.
    pub interface_mb_s: f64,
    /// Segments of the read cache.
    pub segments: usize,
    /// Bytes of one segment; reading goes ahead by as much.
    pub segment_bytes: u64,
    /// Bytes of the write cache; 0 where it is off.
    pub write_cache_bytes: u64,
    /// How many requests are sorted together (C-LOOK) by the host's driver and the drive; later ones
    /// wait, first come, first served.
    pub queue_depth: usize,
}

/// How sectors are spread over cylinders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Zones {
    /// Cylinders of each zone and sectors of each of its tracks.
    Measured(&'static [(u32, u32)]),
    /// Sixteen zones of as many cylinders each, sectors per track falling evenly from the first figure
    /// to the second.
    Even(u32, u32),
}

/// A solid-state disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdSpec {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Independent flash units that serve reads.
    pub channels: usize,
    /// Bytes next to each other on one unit.
    pub stripe_bytes: u64,
    /// Reading one stripe, or less, from flash, in microseconds.
    pub read_us: f64,
    /// Writing one stripe to flash so that it is durable, in microseconds: what FUA costs.
    pub program_us: f64,
    /// Taking a write into the cache, in microseconds.
    pub cached_write_us: f64,
    /// The fixed part of a flush, in microseconds.
    pub flush_us: f64,
    /// The controller's time for one command, in microseconds: bounds the requests a second.
    pub command_us: f64,
    /// The interface's rate in 10^6 bytes a second, reading.
    pub read_mb_s: f64,
    /// The rate at which data can be sent to the cache, in 10^6 bytes a second.
    pub write_mb_s: f64,
    /// The rate at which the cache is emptied, in 10^6 bytes a second.
    pub drain_mb_s: f64,
    /// Bytes of the write cache, volatile.
    pub cache_bytes: u64,
}

/// A block volume over a network, stored more than once before a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkSpec {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Round trip and storage of a read, in microseconds.
    pub read_us: f64,
    /// Round trip and storage of a write, in microseconds.
    pub write_us: f64,
    /// Requests a second it admits.
    pub iops: f64,
    /// Requests it admits at once after having been idle.
    pub burst: f64,
    /// A request counts once for each of so many bytes.
    pub io_unit_bytes: u64,
    /// Bytes a second it admits, in 10^6.
    pub mb_s: f64,
}
