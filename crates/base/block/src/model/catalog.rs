//! The disks that can be chosen, with the sources of their figures.
//!
//! Each constant names its source. A figure without a source is usual for a disk of its time. For
//! the Viking, the 9LZX and the ST-34310A, these are the seeks to the next track and across the
//! disk. For all hard disks except the Cheetah, they are the sectors per track, chosen so that the
//! outermost and innermost zones give the rates in [`Sequential`], which are then estimates too.
//! Command overheads and switch times are estimates everywhere. For solid-state disks, latencies
//! are derived from the makers' rates at queue depth 1, and the command time from the rates at
//! depth 32 and more. Flush and FUA costs are typical of measurements, since no data sheet gives
//! them.
//!
//! All hard disks but one handle a command that waits in their queue while the media work
//! ([`HddSpec::overlaps_commands`]); each constant says why. For the two disks of the papers of
//! 2000 the reason is the same: their hosts queue commands with tags. FreeBSD's list of disks with
//! bad or few tags (`scsi_quirk_table`) has neither, so they get its default of up to 255. How much
//! of a queued command's handling is hidden no publication says for these models. The OEM
//! specification of IBM's Ultrastar XP (1995), section 3.4.7, says that a part of it is done during
//! the command before, which saves 0.2 ms of 0.5 to 0.7. Here all of it is hidden, so that adjacent
//! writes need no turn each.
//!
//! A test holds every model to the figures that [`ExpectedTimes`] lists.

use super::spec::{HddSpec, NetworkSpec, SsdSpec, Zones};
use super::{Era, Model, ModelKind};

/// Every model, in the order in which they are listed to a user.
pub static ALL: &[Model] = &[
    Model {
        name: "cheetah",
        description: "Seagate Cheetah 9LP ST39102, 9.1 GB, 10,025 rpm, SCSI (1998)",
        kind: ModelKind::Hdd(CHEETAH_9LP),
        era: Era::Papers,
    },
    Model {
        name: "viking",
        description: "Quantum Viking, 4.5 GB, 7,200 rpm, SCSI (1997)",
        kind: ModelKind::Hdd(VIKING),
        era: Era::Papers,
    },
    Model {
        name: "viking-untagged",
        description: "the Quantum Viking behind a host that queues no commands on it",
        kind: ModelKind::Hdd(VIKING_UNTAGGED),
        era: Era::Papers,
    },
    Model {
        name: "ibm-9lzx",
        description: "IBM Ultrastar 9LZX, 9.1 GB, 10,020 rpm, SCSI (1999)",
        kind: ModelKind::Hdd(ULTRASTAR_9LZX),
        era: Era::Papers,
    },
    Model {
        name: "st34310a",
        description: "Seagate ST-34310A, 4.3 GB, 5,400 rpm, ATA (1999)",
        kind: ModelKind::Hdd(ST34310A),
        era: Era::Papers,
    },
    Model {
        name: "hdd-4tb",
        description: "a 4 TB 7,200 rpm SATA disk of today, write cache on",
        kind: ModelKind::Hdd(HDD_4TB),
        era: Era::Today,
    },
    Model {
        name: "sata-ssd",
        description: "a 1 TB SATA solid-state disk without power-loss protection",
        kind: ModelKind::Ssd(SATA_SSD),
        era: Era::Today,
    },
    Model {
        name: "nvme",
        description: "a 1 TB NVMe solid-state disk (PCIe 4) without power-loss protection",
        kind: ModelKind::Ssd(NVME),
        era: Era::Today,
    },
    Model {
        name: "network-volume",
        description: "a cloud's block volume: 3,000 requests a second, 125 MB/s, durable when acknowledged",
        kind: ModelKind::Network(NETWORK_VOLUME),
        era: Era::Today,
    },
    Model {
        name: "nvram",
        description: "a card of battery-backed memory: ten microseconds a request, never lost",
        kind: ModelKind::Ssd(NVRAM),
        era: Era::Papers,
    },
    RAM,
];

/// Memory alone: requests take no time.
pub const RAM: Model = Model {
    name: "ram",
    description: "memory: requests take no time",
    kind: ModelKind::Ram,
    era: Era::Papers,
};

/// The disk of "Journaling versus Soft Updates" (2000), Table 3.
///
/// Zones, seeks to the next track and across the disk, and write settling were extracted from an
/// ST39102LW by the DIXtrac tool, whose results come with the DiskSim simulator. Speed and average
/// seek are from the maker (the mean of the extracted curve is 5.46 ms). Switch times are set for
/// 18.5 MB/s sustained in the outermost zone, where 21.7 MB/s pass under the head. The paper's
/// adapter (AHA-2940UW) and FreeBSD queue tagged commands on it.
pub const CHEETAH_9LP: HddSpec = HddSpec {
    sectors: 17_783_240,
    rpm: 10_025.0,
    heads: 12,
    zones: Zones::Measured(&[
        (848, 254),
        (797, 245),
        (749, 238),
        (704, 227),
        (661, 217),
        (622, 209),
        (585, 201),
        (550, 189),
        (516, 181),
        (486, 174),
        (444, 167),
    ]),
    seek_single_ms: 0.83,
    seek_average_ms: 5.4,
    seek_full_ms: 10.63,
    write_settle_ms: 0.46,
    head_switch_ms: 1.0,
    cylinder_switch_ms: 1.5,
    overhead_us: 300.0,
    overlaps_commands: true,
    interface_mb_s: 40.0,
    segments: 3,
    segment_bytes: 287_232,
    write_cache_bytes: 0,
    queue_depth: 64,
};

/// The disk of "Soft Updates" (2000), section 4.1, which gives capacity, interface, speed and
/// average seek. FreeBSD queues tagged commands on it.
pub const VIKING: HddSpec = HddSpec {
    sectors: 8_910_423,
    rpm: 7_200.0,
    heads: 8,
    zones: Zones::Even(238, 140),
    seek_single_ms: 1.2,
    seek_average_ms: 8.0,
    seek_full_ms: 16.0,
    write_settle_ms: 1.0,
    head_switch_ms: 1.2,
    cylinder_switch_ms: 1.8,
    overhead_us: 500.0,
    overlaps_commands: true,
    interface_mb_s: 20.0,
    segments: 4,
    segment_bytes: 128 << 10,
    write_cache_bytes: 0,
    queue_depth: 64,
};

/// The same disk behind a host that queues no commands: each one is handled when the one before is
/// done, so adjacent writes lose a turn. File systems of 4.4BSD left gaps between blocks for such
/// disks ("Logging versus Clustering", 1995).
pub const VIKING_UNTAGGED: HddSpec = HddSpec { overlaps_commands: false, ..VIKING };

/// The disk of "Analysis and Evolution of Journaling File Systems" (2005), section 2. Speed,
/// capacity and average seek are the maker's; the rest is estimated. The specification of its
/// successor, the Ultrastar 36LZX, has up to 128 queued commands (section 11.3.1), of which several
/// are active at a time (11.5).
pub const ULTRASTAR_9LZX: HddSpec = HddSpec {
    sectors: 17_916_240,
    rpm: 10_020.0,
    heads: 10,
    zones: Zones::Even(312, 224),
    seek_single_ms: 0.7,
    seek_average_ms: 5.3,
    seek_full_ms: 10.5,
    write_settle_ms: 0.6,
    head_switch_ms: 0.9,
    cylinder_switch_ms: 1.3,
    overhead_us: 250.0,
    overlaps_commands: true,
    interface_mb_s: 80.0,
    segments: 8,
    segment_bytes: 512 << 10,
    write_cache_bytes: 0,
    queue_depth: 64,
};

/// The first disk of "DualFS" (2007), section 3.4 and Table 1, which gives capacity and speed.
/// Average seek and cache are the maker's figures for its family, the Medalist 17240. ATA disks of
/// its time queue nothing. They accept a write when it is in their buffer, though, and then take
/// the next command while the media work. That a power cut loses the buffer is not modelled, since
/// the paper's kernel flushed no disk. That its reads overlap as well is a simplification.
pub const ST34310A: HddSpec = HddSpec {
    sectors: 8_404_830,
    rpm: 5_400.0,
    heads: 2,
    zones: Zones::Even(376, 226),
    seek_single_ms: 1.5,
    seek_average_ms: 9.0,
    seek_full_ms: 18.0,
    write_settle_ms: 1.0,
    head_switch_ms: 1.6,
    cylinder_switch_ms: 2.0,
    overhead_us: 400.0,
    overlaps_commands: true,
    interface_mb_s: 33.0,
    segments: 4,
    segment_bytes: 128 << 10,
    write_cache_bytes: 0,
    queue_depth: 128,
};

/// The Seagate Exos 7E8 4 TB family: 8.5 ms average seek to read and 9.5 ms to write, 215 MB/s
/// sustained in the outermost zone, 256 MB of cache, part of which holds writes.
pub const HDD_4TB: HddSpec = HddSpec {
    sectors: 7_814_037_168,
    rpm: 7_200.0,
    heads: 8,
    zones: Zones::Even(3_880, 1_800),
    seek_single_ms: 0.7,
    seek_average_ms: 8.5,
    seek_full_ms: 17.0,
    write_settle_ms: 1.0,
    head_switch_ms: 0.9,
    cylinder_switch_ms: 1.2,
    overhead_us: 100.0,
    overlaps_commands: true,
    interface_mb_s: 550.0,
    segments: 32,
    segment_bytes: 4 << 20,
    write_cache_bytes: 64 << 20,
    queue_depth: 32,
};

/// The Samsung 870 EVO 1 TB: 560 MB/s read and 530 MB/s written; 13,000 random 4 KB reads and
/// 36,000 writes a second at depth 1, 98,000 and 88,000 at depth 32.
pub const SATA_SSD: SsdSpec = SsdSpec {
    bytes: 1_000_204_886_016,
    channels: 16,
    stripe_bytes: 16 << 10,
    read_us: 59.4,
    program_us: 900.0,
    cached_write_us: 9.8,
    flush_us: 1_000.0,
    command_us: 10.2,
    read_mb_s: 560.0,
    write_mb_s: 530.0,
    drain_mb_s: 530.0,
    cache_bytes: 16 << 20,
};

/// The Samsung 980 PRO 1 TB: 7,000 MB/s read and 5,000 MB/s written; 22,000 random 4 KB reads and
/// 60,000 writes a second at depth 1, a million of either at great depth.
pub const NVME: SsdSpec = SsdSpec {
    bytes: 1_000_204_886_016,
    channels: 64,
    stripe_bytes: 16 << 10,
    read_us: 43.8,
    program_us: 400.0,
    cached_write_us: 14.9,
    flush_us: 500.0,
    command_us: 1.0,
    read_mb_s: 7_000.0,
    write_mb_s: 5_000.0,
    drain_mb_s: 5_000.0,
    cache_bytes: 64 << 20,
};

/// The base performance of an Amazon EBS gp3 volume: 3,000 requests of up to 256 KiB a second, and
/// 125 MB/s. The latency is a typical one, below the promised "single-digit milliseconds".
pub const NETWORK_VOLUME: NetworkSpec = NetworkSpec {
    bytes: 1 << 40,
    read_us: 600.0,
    write_us: 700.0,
    iops: 3_000.0,
    burst: 32.0,
    io_unit_bytes: 256 << 10,
    mb_s: 125.0,
};

/// Memory with a battery behind a bus, where a log may be kept. The figures are chosen, not
/// measured. It loses nothing that it has accepted, so it has no cache and nothing to flush.
pub const NVRAM: SsdSpec = SsdSpec {
    bytes: 1 << 30,
    channels: 1,
    stripe_bytes: 16 << 10,
    read_us: 5.0,
    program_us: 5.0,
    cached_write_us: 5.0,
    flush_us: 0.0,
    command_us: 5.0,
    read_mb_s: 200.0,
    write_mb_s: 200.0,
    drain_mb_s: 200.0,
    cache_bytes: 0,
};

/// The figures that a hard disk's model must meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedTimes {
    /// The model's name.
    pub name: &'static str,
    /// Mean seek of random reads, in milliseconds.
    pub seek_average_ms: f64,
    /// Mean rotational delay, in milliseconds.
    pub latency_ms: f64,
    /// Sustained rates.
    pub sequential: Sequential,
}

/// Sustained rates of sequential reads, in 10^6 bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sequential {
    /// The rate in the outermost zone.
    pub outer: f64,
    /// The rate in the innermost zone.
    pub inner: f64,
}

/// The figures that the hard disks must meet.
pub const EXPECTED: &[ExpectedTimes] = &[
    ExpectedTimes {
        name: "cheetah",
        seek_average_ms: 5.4,
        latency_ms: 2.99,
        sequential: Sequential { outer: 18.5, inner: 12.2 },
    },
    ExpectedTimes {
        name: "viking",
        seek_average_ms: 8.0,
        latency_ms: 4.17,
        sequential: Sequential { outer: 12.7, inner: 7.5 },
    },
    ExpectedTimes {
        name: "ibm-9lzx",
        seek_average_ms: 5.3,
        latency_ms: 2.99,
        sequential: Sequential { outer: 23.0, inner: 16.5 },
    },
    ExpectedTimes {
        name: "st34310a",
        seek_average_ms: 9.0,
        latency_ms: 5.56,
        sequential: Sequential { outer: 15.0, inner: 9.0 },
    },
    ExpectedTimes {
        name: "hdd-4tb",
        seek_average_ms: 8.5,
        latency_ms: 4.16,
        sequential: Sequential { outer: 215.0, inner: 100.0 },
    },
];
