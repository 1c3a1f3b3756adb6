//! DualFS against the reference model.
//!
//! Fault model: any mistake that an operation's result, a later look at the tree, a remount or a
//! check shows: on two disks with room; where the data device runs full, or the metadata log, so
//! that the cleaner runs all the time; on one disk with both; with caches so small that nearly
//! every block is read and rewritten; with a copy of the metadata, by which the same must be read
//! without the metadata device whenever a checkpoint was made. The check compares pointers, bitmaps
//! and counts of every checkpoint that a remount finds.

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_check::lfs::LfsReport;
use ordo_dualfs::DualFs;
use ordo_dualfs::mkfs::{MetadataSize, MkfsOptions, mkfs};
use ordo_dualfs::mount::{DualOptions, MountOptions, mount, read};
use ordo_dualfs::salvage;
use ordo_lfs::LfsReader;
use ordo_runtime::Runtime;
use ordo_ufs::{AccessTimes, UfsConfig};
use ordo_vfs::Attr;
use ordo_vfs::tree::{Visit, Walk, WalkLimits};

use crate::log_oracle::{LogKind, compare};

#[derive(Clone, Copy)]
struct Size {
    /// The number of bytes of the metadata device, or of the only one.
    metadata: u64,
    /// The number of bytes of the data device; 0: there is only one.
    data: u64,
    block: u32,
    segment: u32,
    group_blocks: u32,
    atime: bool,
    cache: usize,
    affinity: Option<u32>,
    /// The share of the metadata device that a copy of it has room for, on the data device.
    copy: Option<u32>,
}

/// Every name below the root, with its attributes.
async fn all_names(fs: &LfsReader) -> Result<Vec<(Vec<u8>, Attr)>, String> {
    let root = ordo_vfs::FileSystem::root(fs);
    let walk = Walk::new(fs, root, WalkLimits::default()).await;
    let (mut walk, mut all) = (walk.map_err(|e| e.to_string())?, Vec::new());
    while let Some(visit) = walk.next().await.map_err(|e| e.to_string())? {
        if let Visit::Enter(entry) = visit {
            all.push((entry.path, entry.attr));
        }
    }
    Ok(all)
}

impl LogKind for Size {
    fn disks(&self) -> Vec<u64> {
        [self.metadata, self.data].into_iter().filter(|bytes| *bytes > 0).collect()
    }

    fn block(&self) -> (u32, u32) {
        (self.block, self.block)
    }

    fn atime(&self) -> bool {
        self.atime
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) {
        let made = MkfsOptions {
            block_size: self.block,
            segment_size: Some(self.segment),
            group_blocks: Some(self.group_blocks),
            copy: self.copy.map(MetadataSize::Percent),
            ..MkfsOptions::default()
        };
        mkfs(rt, disks, &made).await.expect("legal sizes");
    }

    async fn mount(&self, rt: &Runtime, disks: &[Device]) -> Result<DualFs, String> {
        let access_times = if self.atime { AccessTimes::Always } else { AccessTimes::Never };
        let ufs = UfsConfig { access_times, drop_behind: self.atime, ..UfsConfig::default() };
        let options = MountOptions {
            ufs,
            cache: CacheConfig::with_capacity(self.cache),
            options: DualOptions { affinity: self.affinity, ..DualOptions::default() },
            ..MountOptions::default()
        };
        mount(rt, disks, &options).await.map_err(|e| e.to_string())
    }

    async fn judge(&self, disks: &[Device]) -> Result<LfsReport, String> {
        read(disks).await.map_err(|e| format!("read again: {e}"))?;
        if self.copy.is_some() {
            // Everything that was checkpointed is in the copy. Files are too long, with holes, to
            // be read whole each time.
            let here = all_names(&read(disks).await.map_err(|e| e.to_string())?).await?;
            let (fs, _) = salvage::read(disks).await.map_err(|e| format!("salvaged: {e}"))?;
            let there = all_names(&fs).await?;
            if here != there {
                return Err(format!("salvaged: {} names for {}", there.len(), here.len()));
            }
        }
        DualChecker::new(disks, Repair::No).run().await.map_err(|e| e.to_string())
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
    copy: None,
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

#[test]
fn with_a_copy_of_the_metadata() {
    let sizes = Size { data: 12 << 20, copy: Some(90), ..TOASTER };
    compare(7, 4_000, sizes);
}
