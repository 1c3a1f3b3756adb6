//! A file system on a log against the reference model: what LFS and DualFS have in common.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_check::lfs::LfsReport;
use ordo_lfs::write::LogFs;
use ordo_oracle::{OracleConfig, OracleRules, OracleSubject, check};
use ordo_runtime::{Runtime, cpu::CpuModel};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::{FileSystem, FsError, FsResult, Timestamp};

/// A file system on a log, of certain sizes.
pub trait LogKind: Copy + 'static {
    /// Bytes of each of its disks.
    fn disks(&self) -> Vec<u64>;
    /// Bytes of a block and of a fragment.
    fn block(&self) -> (u32, u32);
    /// Whether reads change times of access.
    fn atime(&self) -> bool;
    /// Makes it. Panics where that fails.
    async fn make(&self, rt: &Runtime, disks: &[Device]);
    /// Mounts it.
    async fn mount(&self, rt: &Runtime, disks: &[Device]) -> Result<LogFs, String>;
    /// The independent checker's report; whatever else reads it, reads it too.
    async fn judge(&self, disks: &[Device]) -> Result<LfsReport, String>;
}

struct OnLog<K> {
    kind: K,
    runtime: Runtime,
    disks: Vec<Rc<RamDisk>>,
    fs: WithCpuCost<LogFs>,
    remounts: u32,
}

fn erased(disks: &[Rc<RamDisk>]) -> Vec<Device> {
    disks.iter().map(|disk| disk.clone().erase()).collect()
}

impl<K: LogKind> OnLog<K> {
    async fn new(runtime: Runtime, kind: K) -> FsResult<OnLog<K>> {
        // Time must pass, or every timestamp would be right.
        runtime.cpu().set_model(CpuModel::MODERN);
        let bytes = kind.disks().into_iter();
        let disks: Vec<Rc<RamDisk>> = bytes.map(|bytes| Rc::new(RamDisk::new(bytes))).collect();
        kind.make(&runtime, &erased(&disks)).await;
        let fs = kind.mount(&runtime, &erased(&disks)).await.expect("just made");
        let fs = WithCpuCost::new(fs, runtime.clone());
        Ok(OnLog { kind, runtime, disks, fs, remounts: 0 })
    }

    /// The independent checker finds nothing on the disks.
    async fn no_findings(&self, when: &str) -> FsResult<()> {
        let report = self.kind.judge(&erased(&self.disks)).await;
        let report = report.map_err(|e| FsError::corrupt(format_args!("{when}: {e}")))?;
        match report.findings.first() {
            None => Ok(()),
            Some(_) => Err(FsError::corrupt(format_args!("{when}: {:#?}", report.findings))),
        }
    }
}

impl<K: LogKind> OracleSubject for OnLog<K> {
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
        self.disks = self.disks.iter().map(|disk| Rc::new(disk.snapshot())).collect();
        let fs = self.kind.mount(&self.runtime, &erased(&self.disks)).await;
        let fs = fs.map_err(|e| FsError::corrupt(format_args!("mounted again: {e}")))?;
        self.fs = WithCpuCost::new(fs, self.runtime.clone());
        Ok(())
    }
}

/// Compares so many steps with the model. `ORDO_SEED` sets another seed.
pub fn compare<K: LogKind>(seed: u64, steps: usize, kind: K) {
    let given = std::env::var("ORDO_SEED").ok().and_then(|s| s.parse().ok());
    let (block, fragment) = kind.block();
    let mut config = OracleConfig::ufs2(given.unwrap_or(seed), steps, block, fragment);
    config.model.update_atime = kind.atime();
    config.model.link_max = 32_767;
    config.model.file_size_max += 1;
    config.rules = OracleRules { xattr_types: Vec::new(), ..OracleRules::ufs2() };
    let result = check(&config, async |rt: Runtime| OnLog::new(rt, kind).await);
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
