//! LFS against the reference model.
//!
//! Fault model: any mistake that an operation's result, a later look at the tree, a remount or a check shows: on disks
//! with room, and on disks so small that space runs out and the cleaner runs all the time; with caches from ample to so
//! small that nearly every block is read and rewritten. The check looks at every checkpoint that a remount finds, so a
//! count that is wrong by a fragment is found.

use std::rc::Rc;

use ordo_bench::oracle::{OracleConfig, OracleRules, OracleSubject, check};
use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{CleanerPolicy, Cleaning, LogFs, MountOptions, mount};
use ordo_runtime::{Runtime, cpu::CpuModel};
use ordo_ufs::{AccessTimes, UfsConfig};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::{FileSystem, FsError, FsResult, Timestamp};

struct OnLfs {
    runtime: Runtime,
    disk: Rc<RamDisk>,
    fs: WithCpuCost<LogFs>,
    options: MountOptions,
    remounts: u32,
}

#[derive(Clone, Copy)]
struct Size {
    bytes: u64,
    block: u32,
    fragment: u32,
    segment: u32,
    atime: bool,
    cache: usize,
    policy: CleanerPolicy,
}

impl OnLfs {
    async fn new(runtime: Runtime, size: Size) -> FsResult<OnLfs> {
        // Time must pass, or every timestamp would be right.
        runtime.cpu().set_model(CpuModel::MODERN);
        let disk = Rc::new(RamDisk::new(size.bytes));
        let made = MkfsOptions {
            block_size: size.block,
            frag_size: size.fragment,
            segment_size: size.segment,
            ..MkfsOptions::default()
        };
        let now = runtime.wall_time().0.max(0).cast_unsigned();
        mkfs(disk.clone().erase(), &made, now).await.expect("legal sizes");
        let access_times = if size.atime { AccessTimes::Always } else { AccessTimes::Never };
        let ufs = UfsConfig { access_times, drop_behind: size.atime, ..UfsConfig::default() };
        let cache = CacheConfig::with_capacity(size.cache);
        let cleaning = Cleaning::by(size.policy);
        let options = MountOptions { ufs, cache, cleaning, ..MountOptions::default() };
        let fs = mount(&runtime, disk.clone(), &options).await.expect("just made");
        let fs = WithCpuCost::new(fs, runtime.clone());
        Ok(OnLfs { runtime, disk, fs, options, remounts: 0 })
    }

    /// The independent checker finds nothing on the disk.
    async fn no_findings(&self, when: &str) -> FsResult<()> {
        let report = LfsChecker::new(self.disk.clone(), Repair::No).run().await;
        let report = report.map_err(|e| FsError::corrupt(format_args!("{when}: {e}")))?;
        match report.findings.first() {
            None => Ok(()),
            Some(_) => Err(FsError::corrupt(format_args!("{when}: {:#?}", report.findings))),
        }
    }
}

impl OracleSubject for OnLfs {
    type Fs = WithCpuCost<LogFs>;

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
        let copy = Rc::new(self.disk.snapshot());
        self.disk = copy;
        let fs = mount(&self.runtime, self.disk.clone(), &self.options).await;
        let fs = fs.map_err(|e| FsError::corrupt(format_args!("mounted again: {e}")))?;
        self.fs = WithCpuCost::new(fs, self.runtime.clone());
        Ok(())
    }
}

fn compare(seed: u64, steps: usize, size: Size) {
    let given = std::env::var("ORDO_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or(seed);
    let mut config = OracleConfig::ufs2(seed, steps, size.block, size.fragment);
    config.model.update_atime = size.atime;
    config.model.link_max = 32_767;
    config.model.file_size_max += 1;
    config.rules = OracleRules { xattr_types: Vec::new(), ..OracleRules::ufs2() };
    let result = check(&config, async |rt: Runtime| OnLfs::new(rt, size).await);
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

const ROOMY: Size = Size {
    bytes: 256 << 20,
    block: 8192,
    fragment: 1024,
    segment: 1 << 20,
    atime: false,
    cache: 32 << 20,
    policy: CleanerPolicy::CostBenefit,
};
const FULL: Size = Size { bytes: 12 << 20, segment: 128 << 10, cache: 1 << 20, ..ROOMY };
const TOASTER: Size = Size {
    bytes: 4 << 20,
    block: 4096,
    fragment: 512,
    segment: 40 << 10,
    cache: 64 << 10,
    ..ROOMY
};
const WHOLE: Size = Size { block: 8192, fragment: 8192, atime: true, cache: 1 << 20, ..ROOMY };

#[test]
fn with_room() {
    compare(1, 20_000, ROOMY);
}

/// Steps on a full disk: enough for the cleaner to go around the log many times.
const FULL_STEPS: usize = 20_000;

#[test]
fn on_a_full_disk() {
    compare(3, FULL_STEPS, FULL);
}

#[test]
fn on_a_full_disk_cleaned_greedily() {
    compare(4, FULL_STEPS, Size { policy: CleanerPolicy::Greedy, ..FULL });
}

#[test]
fn with_hardly_any_memory() {
    compare(5, 10_000, TOASTER);
}

#[test]
fn without_fragments() {
    compare(6, 10_000, WHOLE);
}
