//! FFS under each ordering, compared with the reference model.
//!
//! Fault model: any mistake that shows in an operation's result, in a later reading of the tree or
//! after a remount. Disks are large, or so small that space and inodes run out all the time; caches
//! are ample, or so small that nearly every block is read and rewritten; both byte orders are used.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_check::Checker;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_format::Endian;
use ordo_oracle::{OracleConfig, OracleSubject, check};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates, SyncOrder};
use ordo_runtime::{Runtime, cpu::CpuModel};
use ordo_ufs::{AccessTimes, UfsConfig};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::{FsError, FsResult, Timestamp};

struct OnFfs<P: OrderingPolicy> {
    runtime: Runtime,
    disk: Rc<RamDisk>,
    fs: WithCpuCost<FastFs>,
    policy: fn() -> P,
    options: MountOptions,
}

impl<P: OrderingPolicy> OnFfs<P> {
    async fn new(runtime: Runtime, size: Size, policy: fn() -> P) -> FsResult<OnFfs<P>> {
        // Time must pass, or every timestamp would be right.
        runtime.cpu().set_model(CpuModel::MODERN);
        let disk = Rc::new(RamDisk::new(size.bytes));
        let made = MkfsOptions {
            block_size: size.block,
            frag_size: size.fragment,
            endian: size.endian,
            ..MkfsOptions::default()
        };
        mkfs(&disk.clone().erase(), &made, runtime.wall_time().0).await.expect("legal sizes");
        let access_times = if size.atime { AccessTimes::Always } else { AccessTimes::Never };
        let drop_behind = size.atime;
        let ufs = UfsConfig { access_times, drop_behind, ..UfsConfig::default() };
        let cache = CacheConfig::with_capacity(size.cache);
        let options = MountOptions { ufs, cache, use_reserve: true, ..MountOptions::default() };
        let fs = mount(&runtime, disk.clone(), policy(), &options).await.expect("just made");
        let fs = WithCpuCost::new(fs, runtime.clone());
        Ok(OnFfs { runtime, disk, fs, policy, options })
    }
}

impl<P: OrderingPolicy> OnFfs<P> {
    /// Checks that the independent checker has no findings on the unmounted disk.
    async fn no_findings(&self) -> FsResult<()> {
        let checker = Checker::new(self.disk.clone(), ordo_check::FsckOptions::default());
        let report = checker.run().await.expect("a RAM disk does not fail");
        match report.findings.first() {
            None => Ok(()),
            Some(_) => Err(FsError::corrupt(format_args!("{:#?}", report.findings))),
        }
    }
}

impl<P: OrderingPolicy> OracleSubject for OnFfs<P> {
    type Fs = WithCpuCost<FastFs>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn now(&self) -> Option<Timestamp> {
        let (seconds, nanos) = self.runtime.wall_time();
        Some(Timestamp { seconds, nanos })
    }
    async fn remount(&mut self) -> FsResult<()> {
        self.fs.inner().unmount().await?;
        self.no_findings().await?;
        let fs = mount(&self.runtime, self.disk.clone(), (self.policy)(), &self.options).await;
        let fs = fs.map_err(|e| FsError::corrupt(format_args!("after an unmount: {e}")))?;
        self.fs = WithCpuCost::new(fs, self.runtime.clone());
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Size {
    bytes: u64,
    block: u32,
    fragment: u32,
    atime: bool,
    cache: usize,
    endian: Endian,
}

/// `ORDO_SEED` replaces the usual sequences by others.
fn compare<P: OrderingPolicy>(seed: u64, steps: usize, size: Size, policy: fn() -> P) {
    let given = std::env::var("ORDO_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or(seed);
    let mut config = OracleConfig::ufs2(seed, steps, size.block, size.fragment);
    config.model.update_atime = size.atime;
    let result = check(&config, async |rt: Runtime| OnFfs::new(rt, size, policy).await);
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

const ROOMY: Size = Size {
    bytes: 256 << 20,
    block: 8192,
    fragment: 1024,
    atime: false,
    cache: 32 << 20,
    endian: Endian::Little,
};
const FULL: Size = Size { bytes: 2 << 20, cache: 1 << 20, ..ROOMY };
const TOASTER: Size = Size { bytes: 1 << 20, block: 4096, fragment: 512, cache: 64 << 10, ..ROOMY };
const FREEBSD: Size = Size { block: 32768, fragment: 4096, atime: true, ..ROOMY };
const SPARC: Size = Size { bytes: 8 << 20, cache: 1 << 20, endian: Endian::Big, ..FREEBSD };

#[test]
fn with_room_and_no_ordering() {
    compare(1, 20_000, ROOMY, || NoOrder);
}

#[test]
fn with_room_and_synchronous_writes() {
    compare(2, 20_000, ROOMY, SyncOrder::default);
}

#[test]
fn on_a_full_disk_with_no_ordering() {
    compare(3, 20_000, FULL, || NoOrder);
}

#[test]
fn on_a_full_disk_with_synchronous_writes() {
    compare(4, 20_000, FULL, SyncOrder::default);
}

#[test]
fn with_freebsd_sizes_and_times_of_access() {
    compare(5, 20_000, FREEBSD, || NoOrder);
}

#[test]
fn with_hardly_any_memory() {
    compare(6, 10_000, TOASTER, || NoOrder);
    compare(7, 10_000, TOASTER, SyncOrder::default);
}

#[test]
fn in_the_other_byte_order() {
    compare(8, 10_000, SPARC, || NoOrder);
    compare(9, 10_000, SPARC, SyncOrder::default);
}

#[test]
fn with_room_and_soft_updates() {
    compare(10, 20_000, ROOMY, SoftUpdates::default);
    compare(11, 10_000, FREEBSD, SoftUpdates::default);
}

#[test]
fn on_a_full_disk_with_soft_updates() {
    compare(12, 20_000, FULL, SoftUpdates::default);
}

/// With so little memory, something must be rolled back in nearly every block that is written.
#[test]
fn with_hardly_any_memory_and_soft_updates() {
    for seed in 13..16 {
        compare(seed, 10_000, TOASTER, SoftUpdates::default);
    }
}

#[test]
fn in_the_other_byte_order_with_soft_updates() {
    compare(16, 10_000, SPARC, SoftUpdates::default);
}
