//! LFS against the reference model.
//!
//! Fault model: any mistake that an operation's result, a later look at the tree, a remount or a
//! check shows: on disks with room, and on disks so small that space runs out and the cleaner runs
//! all the time; with caches from ample to so small that nearly every block is read and rewritten.
//! The check looks at every checkpoint that a remount finds, so a count that is wrong by a fragment
//! is found.

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::lfs::{LfsChecker, LfsReport};
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{CleanerPolicy, Cleaning, LogFs, MountOptions, mount};
use ordo_runtime::Runtime;
use ordo_ufs::{AccessTimes, UfsConfig};

use crate::log_oracle::{LogKind, compare};

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

impl LogKind for Size {
    fn disks(&self) -> Vec<u64> {
        vec![self.bytes]
    }

    fn block(&self) -> (u32, u32) {
        (self.block, self.fragment)
    }

    fn atime(&self) -> bool {
        self.atime
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) {
        let made = MkfsOptions {
            block_size: self.block,
            frag_size: self.fragment,
            segment_size: self.segment,
            ..MkfsOptions::default()
        };
        let now = rt.wall_time().0.max(0).cast_unsigned();
        mkfs(disks[0].clone(), &made, now).await.expect("legal sizes");
    }

    async fn mount(&self, rt: &Runtime, disks: &[Device]) -> Result<LogFs, String> {
        let access_times = if self.atime { AccessTimes::Always } else { AccessTimes::Never };
        let ufs = UfsConfig { access_times, drop_behind: self.atime, ..UfsConfig::default() };
        let cache = CacheConfig::with_capacity(self.cache);
        let cleaning = Cleaning::by(self.policy);
        let options = MountOptions { ufs, cache, cleaning, ..MountOptions::default() };
        mount(rt, disks[0].clone(), &options).await.map_err(|e| e.to_string())
    }

    async fn judge(&self, disks: &[Device]) -> Result<LfsReport, String> {
        let report = LfsChecker::new(disks[0].clone(), Repair::No).run().await;
        report.map_err(|e| e.to_string())
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

/// The number of steps on a full disk: enough for the cleaner to go around the log many times.
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
