//! DualFS against the reference model.
//!
//! Fault model: any mistake that an operation's result, a later look at the tree, a remount or a check shows: on two disks with
//! room; where the data device runs full, or the metadata log, so that the cleaner runs all the time; on one disk with both;
//! with caches so small that nearly every block is read and rewritten. The check compares pointers, bitmaps and counts of
//! every checkpoint that a remount finds.

use std::rc::Rc;

use ordo_bench::oracle::{OracleConfig, OracleRules, OracleSubject, check};
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_dualfs::DualFs;
use ordo_dualfs::mkfs::{MkfsOptions, mkfs};
use ordo_dualfs::mount::{DualOptions, MountOptions, mount, read};
use ordo_runtime::{Runtime, cpu::CpuModel};
use ordo_ufs::{AccessTimes, UfsConfig};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::{FileSystem, FsError, FsResult, Timestamp};

struct OnDualFs {
    runtime: Runtime,
    disks: Vec<Rc<RamDisk>>,
    fs: WithCpuCost<DualFs>,
    options: MountOptions,
    remounts: u32,
}

#[derive(Clone, Copy)]
struct Size {
    /// Bytes of the metadata device, or of the only one.
    metadata: u64,
    /// Bytes of the data device; 0: there is only one.
    data: u64,
    block: u32,
    segment: u32,
    group_blocks: u32,
    atime: bool,
    cache: usize,
    affinity: Option<u32>,
}

fn erased(disks: &[Rc<RamDisk>]) -> Vec<Device> {
    disks.iter().map(|disk| disk.clone().erase()).collect()
}

impl OnDualFs {
    async fn new(runtime: Runtime, size: Size) -> FsResult<OnDualFs> {
        // Time must pass, or every timestamp would be right.
        runtime.cpu().set_model(CpuModel::MODERN);
        let bytes = [size.metadata, size.data].into_iter().filter(|bytes| *bytes > 0);
        let disks: Vec<Rc<RamDisk>> = bytes.map(|bytes| Rc::new(RamDisk::new(bytes))).collect();
        let made = MkfsOptions {
            block_size: size.block,
            segment_size: Some(size.segment),
            group_blocks: Some(size.group_blocks),
            ..MkfsOptions::default()
        };
        mkfs(&runtime, &erased(&disks), &made).await.expect("legal sizes");
        let access_times = if size.atime { AccessTimes::Always } else { AccessTimes::Never };
        let ufs = UfsConfig { access_times, drop_behind: size.atime, ..UfsConfig::default() };
        let options = MountOptions {
            ufs,
            cache: CacheConfig::with_capacity(size.cache),
            options: DualOptions { affinity: size.affinity, ..DualOptions::default() },
            ..MountOptions::default()
        };
        let fs = mount(&runtime, &erased(&disks), &options).await.expect("just made");
        let fs = WithCpuCost::new(fs, runtime.clone());
        Ok(OnDualFs { runtime, disks, fs, options, remounts: 0 })
    }

    /// The independent checker finds nothing on the disks.
    async fn no_findings(&self, when: &str) -> FsResult<()> {
        let report = DualChecker::new(&erased(&self.disks), Repair::No).run().await;
        let report = report.map_err(|e| FsError::corrupt(format_args!("{when}: {e}")))?;
        match report.findings.first() {
            None => Ok(()),
            Some(_) => Err(FsError::corrupt(format_args!("{when}: {:#?}", report.findings))),
        }
    }
}

impl OracleSubject for OnDualFs {
    type Fs = WithCpuCost<DualFs>;

    fn fs(&self) -> &Self::Fs {
        &self.fs
    }

    fn now(&self) -> Option<Timestamp> {
        let (seconds, nanos) = self.runtime.wall_time();
        Some(Timestamp { seconds, nanos })
    }

    async fn remount(&mut self) -> FsResult<()> {
        self.remounts += 1;
        match self.remounts % 2 {
            0 => {
                self.fs.inner().unmount().await?;
                self.no_findings("after an unmount").await?;
            }
            // Nobody unmounts it: the checkpoint is enough.
            _ => {
                self.fs.sync().await?;
                self.no_findings("after a checkpoint").await?;
            }
        }
        self.disks = self.disks.iter().map(|disk| Rc::new(disk.snapshot())).collect();
        let disks = erased(&self.disks);
        read(&disks).await.map_err(|e| FsError::corrupt(format_args!("read again: {e}")))?;
        let fs = mount(&self.runtime, &disks, &self.options).await;
        let fs = fs.map_err(|e| FsError::corrupt(format_args!("mounted again: {e}")))?;
        self.fs = WithCpuCost::new(fs, self.runtime.clone());
        Ok(())
    }
}

fn compare(seed: u64, steps: usize, size: Size) {
    let given = std::env::var("ORDO_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or(seed);
    let mut config = OracleConfig::ufs2(seed, steps, size.block, size.block);
    config.model.update_atime = size.atime;
    config.model.link_max = 32_767;
    config.model.file_size_max += 1;
    config.rules = OracleRules { xattr_types: Vec::new(), ..OracleRules::ufs2() };
    let result = check(&config, async |rt: Runtime| OnDualFs::new(rt, size).await);
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

const ROOMY: Size = Size {
    metadata: 64 << 20,
    data: 256 << 20,
    block: 4096,
    segment: 256 << 10,
    group_blocks: 4096,
    atime: false,
    cache: 32 << 20,
    affinity: Some(10),
};
const DATA_FULL: Size = Size { data: 6 << 20, group_blocks: 64, cache: 1 << 20, ..ROOMY };
const LOG_FULL: Size =
    Size { metadata: 4 << 20, segment: 32 << 10, cache: 1 << 20, affinity: None, ..ROOMY };
const TOASTER: Size = Size {
    metadata: 5 << 20,
    data: 4 << 20,
    segment: 40 << 10,
    group_blocks: 8,
    cache: 64 << 10,
    ..ROOMY
};
const ONE_DISK: Size =
    Size { metadata: 64 << 20, data: 0, block: 8192, segment: 64 << 10, atime: true, ..TOASTER };

#[test]
fn with_room() {
    compare(1, 20_000, ROOMY);
}

#[test]
fn on_a_full_data_device() {
    compare(3, 20_000, DATA_FULL);
}

#[test]
fn on_a_full_metadata_log() {
    compare(4, 20_000, LOG_FULL);
}

#[test]
fn with_hardly_any_memory() {
    compare(5, 10_000, TOASTER);
}

#[test]
fn on_one_disk() {
    compare(6, 10_000, ONE_DISK);
}
