//! One workload on one system on one simulated disk, with everything counted; and what is built on
//! that.
//!
//! [`run`] builds the stack (memory, a disk model in virtual time, a tap with a watcher), makes and
//! mounts the file system, runs the workload, unmounts, and returns a [`ComparisonRow`]. In the
//! middle of the run it copies the disk as a power cut would leave it. Afterwards it checks and
//! repairs the copy on a disk of the same model.
//!
//! Layers:
//! - [`run`], `stack`, `recovery`, [`lost`]: a row of the table; [`parse_workload`]: its workload.
//! - [`kernel`]: rows of the kernel's file systems, in guests.
//! - [`crash`]: the same systems and workloads for the crash explorer; [`whatif`]: recordings for
//!   playback.
//! - [`published`]: the papers' figures; [`reproduce`]: the same measurements here, with both
//!   figures side by side.
//!
//! Invariants:
//! - The same system, workload, [`ComparisonSetup`] and seed give the same row, byte for byte.
//! - Making and mounting the file system is not counted; unmounting it is.
//!
//! ```
//! use ordo_compare::{ComparisonSetup, Rows, run};
//! use ordo_systems::ffs;
//! let setup = ComparisonSetup::papers();
//! let workload = "create-delete:files=20".parse().unwrap();
//! let sync = run(ffs::SYNC, &workload, &setup, &mut ()).unwrap();
//! let none = run(ffs::NONE, &workload, &setup, &mut ()).unwrap();
//! assert!(sync.app_seconds > 10.0 * none.app_seconds);
//! assert!(sync.sync_waits >= 40 && none.sync_waits == 0);
//! let json = serde_json::to_string(&Rows { rows: vec![sync, none] }).unwrap();
//! assert!(json.starts_with(r#"{"rows":[{"system":"ffs-sync","workload":"create-delete:"#));
//! ```

mod calls;
pub mod crash;
pub mod kernel;
pub mod lost;
pub mod published;
mod recovery;
pub mod reproduce;
mod row;
mod stack;
pub mod whatif;

use ordo_block::BlockError;
use ordo_block::model::{Era, Model};
use ordo_cache::{CacheConfig, WritersWait};
use ordo_ordering::SoftOptions;
use ordo_runtime::{Deadlock, Executor, cpu::CpuModel};
use ordo_systems::{
    Cleaning, DualOptions, LogOptions, MakeOptions, MetadataSize, MountOptions, System,
    SystemError, Tuning,
};
use ordo_vfs::FsError;

use ordo_workload::age::{self, AgeError};
use ordo_workload::{Workload, WorkloadError};

pub use calls::parse_workload;
pub use recovery::{MadeUsable, OwnCheck, RecoveryTime, until_usable};
pub use row::{
    AgedRow, CleanerRow, ComparisonRow, DependencyRow, FsyncRow, LogRow, PhaseRow, Rows, Writes,
};

/// The size of the largest file system without an explicit size, in bytes. The oldest disks of the
/// catalogue are that large.
const SIZE_MAX: u64 = 4 << 30;

/// The machine and the file system's sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonSetup {
    /// The disk.
    pub disk: &'static Model,
    /// The model of a separate log device, a journal's or the metadata device of DualFS. The
    /// default is that of `disk`.
    pub log_disk: Option<&'static Model>,
    /// The processor.
    pub cpu: CpuModel,
    /// Memory for the cache, in bytes.
    pub memory: usize,
    /// The most dirty bytes in the cache.
    pub dirty_max: usize,
    /// Whether writers also wait when the device could not write in time what is dirty.
    pub writers_wait: WritersWait,
    /// Block size in bytes.
    pub block_size: u32,
    /// Fragment size in bytes.
    pub frag_size: u32,
    /// The file system's size in bytes. The default is the disk's, at most 4 GiB unless the
    /// workload needs more.
    pub size: Option<u64>,
    /// Whether a synchronous journal skips sectors of a rotating log disk, so that no caller waits
    /// for a whole turn. The published ones do not.
    pub log_skips: bool,
    /// Whether callers who wait for the log at the same time share its writes. In the published
    /// journals they do not.
    pub log_shares: bool,
    /// Options of soft updates.
    pub soft: SoftOptions,
    /// The cleaner of a log: the segments that it chooses, and when it works.
    pub cleaning: Cleaning,
    /// Mechanisms of DualFS.
    pub dual: DualOptions,
    /// Room for a copy of a DualFS's metadata on its data device, in percent of the metadata
    /// device; `None`: no copy.
    pub metadata_copy: Option<u32>,
    /// Runs of blocks of an FFS, and the gaps between them.
    pub tuning: Tuning,
    /// Whether the cache writes blocks without dependencies first: in the syncer, and when it needs
    /// memory.
    pub write_order: (bool, bool),
    /// The seed of every choice.
    pub seed: u64,
    /// Whether to cut the power, and check the result.
    pub recovery: bool,
    /// The part of a phase after which the power is cut, from 0 to 1. The phase depends on the
    /// workload.
    pub cut_at: f64,
    /// The ageing of the file system before the workload. It is not counted and takes no virtual
    /// time.
    pub ageing: Option<age::ChurnOptions>,
}

impl ComparisonSetup {
    /// The machine of "Soft Updates" (2000), section 4.1: a 300 MHz Pentium II, 128 MB of memory,
    /// most of it for the cache, Quantum Viking, FFS with 8 KB blocks and 1 KB fragments.
    pub fn papers() -> ComparisonSetup {
        ComparisonSetup {
            disk: Model::by_name("viking").expect("in the catalogue"),
            log_disk: None,
            cpu: CpuModel::PENTIUM_II_300,
            memory: 96 << 20,
            // FreeBSD 4 on 128 MB has 2,098 buffers. A quarter of them and 20 may be dirty.
            dirty_max: 544 * 8192,
            writers_wait: WritersWait::AtLimit,
            block_size: 8192,
            frag_size: 1024,
            size: None,
            log_skips: true,
            log_shares: true,
            soft: SoftOptions::default(),
            cleaning: Cleaning::default(),
            dual: DualOptions::default(),
            metadata_copy: None,
            tuning: Tuning::default(),
            write_order: (true, true),
            seed: 1,
            recovery: true,
            cut_at: 0.5,
            ageing: None,
        }
    }

    /// A machine with this disk: [`papers`](Self::papers) for a disk of their time, with the
    /// processor and the kernel of today for a disk of today.
    pub fn with_disk(disk: &'static Model) -> ComparisonSetup {
        let papers = ComparisonSetup { disk, ..ComparisonSetup::papers() };
        match disk.era {
            Era::Papers => papers,
            Era::Today => ComparisonSetup {
                cpu: CpuModel::MODERN,
                writers_wait: WritersWait::InTime,
                ..papers
            },
        }
    }

    /// The machine that a user means who names only its disk: [`with_disk`](Self::with_disk), and
    /// for a disk of today 512 MB for the cache, of which a fifth may be dirty as on Linux.
    pub fn usual(disk: &'static Model) -> ComparisonSetup {
        let machine = ComparisonSetup::with_disk(disk);
        match disk.era {
            Era::Papers => machine,
            Era::Today => ComparisonSetup { memory: 512 << 20, dirty_max: 100 << 20, ..machine },
        }
    }

    /// The machine of "Journaling versus Soft Updates" (2000), Table 3: a 500 MHz Pentium III, 512
    /// MB of memory, some of it for the kernel and its tables, Seagate Cheetah. Synchronous
    /// journals are in their published form.
    pub fn journaling() -> ComparisonSetup {
        ComparisonSetup {
            disk: Model::by_name("cheetah").expect("in the catalogue"),
            cpu: CpuModel::by_name("pentium3-500").expect("in the catalogue"),
            memory: 448 << 20,
            // FreeBSD 4.0 on 512 MB has 5,374 buffers (50, plus one for each 8 pages up to 2,048,
            // plus one for each 20 pages beyond 256 MB). A quarter of them and 20 may be dirty.
            dirty_max: 1363 * 8192,
            log_skips: false,
            log_shares: false,
            ..ComparisonSetup::papers()
        }
    }

    /// The machine of "Traditional versus Next-Generation Journaling File Systems" (2007), Table 1
    /// and section 3.3: a 450 MHz Pentium III, 256 MB of memory, Seagate ST-34310A, blocks of 4 KB.
    /// The second processor is not modelled.
    pub fn dualfs() -> ComparisonSetup {
        let faster = CpuModel::PENTIUM_III_500;
        let slower = |ns: u64| ns * 500 / 450;
        ComparisonSetup {
            disk: Model::by_name("st34310a").expect("in the catalogue"),
            cpu: CpuModel {
                name: "pentium3-450",
                operation_ns: slower(faster.operation_ns),
                touch_ns: slower(faster.touch_ns),
                dependency_ns: slower(faster.dependency_ns),
                log_record_ns: slower(faster.log_record_ns),
                copy_kib_ns: slower(faster.copy_kib_ns),
                request_ns: slower(faster.request_ns),
            },
            // The kernel and the programs take a part of the 256 MB.
            memory: 224 << 20,
            // Linux 2.4 makes a writer wait when 60 % of the memory for buffers is dirty.
            dirty_max: 134 << 20,
            block_size: 4096,
            frag_size: 4096,
            ..ComparisonSetup::papers()
        }
    }

    /// The file system's size for a workload.
    ///
    /// # Errors
    /// [`CompareError::NoFreeSpace`].
    pub fn bytes_for(&self, workload: &Workload) -> Result<u64, CompareError> {
        let capacity = match self.disk.bytes() {
            0 => u64::MAX,
            bytes => bytes,
        };
        // The needed size includes a tenth for the reserve, and some space for inodes and indirect
        // blocks.
        let needs =
            self.beside_the_aged(workload.footprint() + workload.footprint() / 4 + (32 << 20));
        let least = self.beside_the_aged(workload.footprint());
        let bytes = self.size.unwrap_or_else(|| capacity.min(SIZE_MAX.max(needs)));
        if bytes > capacity {
            let disk = self.disk.name;
            return Err(CompareError::NoFreeSpace { what: bytes, disk, capacity });
        }
        if bytes < needs.min(least) {
            let disk = self.disk.name;
            return Err(CompareError::NoFreeSpace { what: needs, disk, capacity: bytes });
        }
        Ok(bytes)
    }

    /// The size of a file system on which `bytes` bytes are free after its ageing.
    fn beside_the_aged(&self, bytes: u64) -> u64 {
        let free = self.ageing.as_ref().map_or(1.0, |ageing| 1.0 - ageing.utilisation);
        (bytes as f64 / free) as u64
    }

    /// The model of device `number` of a system.
    fn model(&self, system: System, number: usize) -> &'static Model {
        let log_disk = self.log_disk.filter(|_| system.log_device() == Some(number));
        log_disk.unwrap_or(self.disk)
    }

    fn make_options(&self) -> MakeOptions {
        MakeOptions {
            metadata_copy: self.metadata_copy.map(MetadataSize::Percent),
            block_size: Some(self.block_size.into()),
            frag_size: Some(self.frag_size.into()),
            seed: self.seed,
            ..MakeOptions::default()
        }
    }

    /// The mount options of a system.
    fn mount_options(&self, system: System) -> MountOptions {
        let (dependents_last, evict_independent_first) = self.write_order;
        let cache = CacheConfig {
            dirty_max: self.dirty_max,
            writers_wait: self.writers_wait,
            dependents_last,
            evict_independent_first,
            ..CacheConfig::with_capacity(self.memory)
        };
        let log = LogOptions {
            device: self.log_skips.then(|| self.model(system, system.log_device().unwrap_or(0))),
            alone: !self.log_shares,
            ..LogOptions::default()
        };
        MountOptions {
            cache,
            soft: self.soft,
            log,
            cleaning: self.cleaning,
            dual: self.dual,
            tuning: self.tuning,
            ..MountOptions::default()
        }
    }
}

/// A receiver of a comparison's progress.
pub trait Follow {
    /// A phase of the workload begins on a system.
    fn phase_start(&mut self, system: &str, phase: &str) {
        let _ = (system, phase);
    }

    /// `done` of the `total` steps of the phase are done.
    fn progress(&mut self, done: u64, total: u64) {
        let _ = (done, total);
    }
}

impl Follow for () {}

/// The reason why there is no row.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The file system does not fit on the disk.
    #[error(
        "{what} bytes are needed, but {disk} gives {capacity}; choose a larger disk (--disk), a \
         larger file system (--size) or a smaller workload"
    )]
    NoFreeSpace {
        /// The bytes that are needed.
        what: u64,
        /// The disk.
        disk: &'static str,
        /// The bytes of the disk.
        capacity: u64,
    },
    /// The system cannot be made, mounted, recovered or checked.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A disk failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// The file system cannot be aged.
    #[error("ageing: {0}")]
    Age(#[from] AgeError),
    /// The workload failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Unmounting failed.
    #[error("unmounting: {0}")]
    Unmount(FsError),
    /// A guest kernel, or something in it, failed.
    #[error("{0}")]
    InGuest(String),
    /// The run came to a deadlock.
    #[error("{0}")]
    Deadlock(#[from] Deadlock),
}

/// Runs `workload` on `system` and counts everything.
///
/// # Errors
/// [`CompareError`].
pub fn run(
    system: System,
    workload: &Workload,
    setup: &ComparisonSetup,
    follow: &mut dyn Follow,
) -> Result<ComparisonRow, CompareError> {
    let executor = Executor::simulated(setup.seed);
    let runtime = executor.runtime();
    let outcome = executor.block_on(stack::run(&runtime, system, workload, setup, follow));
    let (mut row, cut) = outcome??;
    drop(executor);
    if let Some(cut) = cut {
        follow.phase_start(system.name(), "check");
        row.recovery = Some(recovery::check(cut, system, setup, follow)?);
    }
    Ok(row)
}
