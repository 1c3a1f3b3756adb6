//! FFS against the reference model, under every ordering, on roomy, small and nearly full disks, with
//! caches from ample to tiny.
//!
//! Fault model: none; this is about what operations answer. Every result, error code, attribute,
//! content and listing is compared; after every few hundred operations the whole tree is. A failure
//! prints its seed and the few operations that show it.

use std::rc::Rc;

use ordo_bench::oracle::{OracleConfig, Subject, check};
use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_ffs::{FastFs, MountOptions, mkfs, mount};
use ordo_format::Endian;
use ordo_ordering::{NoOrder, OrderingPolicy, SyncOrder};
use ordo_runtime::Runtime;
use ordo_vfs::{Errno, FsError, FsResult, Timestamp};

/// One shape of disk and cache.
#[derive(Clone, Copy, Debug)]
struct Shape {
    block: u32,
    frag: u32,
    megabytes: u64,
    cache: usize,
    endian: Endian,
}

const ROOMY: Shape =
    Shape { block: 8192, frag: 1024, megabytes: 256, cache: 32 << 20, endian: Endian::Little };
/// A disk that is full most of the time, with the cache of a toaster.
const TIGHT: Shape =
    Shape { block: 4096, frag: 512, megabytes: 1, cache: 64 << 10, endian: Endian::Little };
const BIG_BLOCKS: Shape =
    Shape { block: 32768, frag: 4096, megabytes: 8, cache: 1 << 20, endian: Endian::Big };

struct OnFfs<P: OrderingPolicy> {
    rt: Runtime,
    disk: Rc<RamDisk>,
    shape: Shape,
    policy: fn() -> P,
    fs: Option<FastFs<Rc<RamDisk>, P>>,
}

impl<P: OrderingPolicy> OnFfs<P> {
    async fn new(rt: Runtime, shape: Shape, policy: fn() -> P) -> FsResult<Self> {
        let disk = Rc::new(RamDisk::new(shape.megabytes << 20));
        let options = mkfs::MkfsOptions {
            block_size: shape.block,
            frag_size: shape.frag,
            endian: shape.endian,
            ..mkfs::MkfsOptions::default()
        };
        mkfs::mkfs(&disk, &options, rt.wall_time().0).await.expect("legal sizes");
        let mut subject = OnFfs { rt, disk, shape, policy, fs: None };
        subject.mount().await?;
        Ok(subject)
    }

    async fn mount(&mut self) -> FsResult<()> {
        let cache = CacheConfig::with_capacity(self.shape.cache);
        let options = MountOptions { cache, ..MountOptions::default() };
        let fs = mount(&self.rt, self.disk.clone(), (self.policy)(), &options).await;
        self.fs = Some(fs.map_err(|e| FsError::with_detail(Errno::Corrupt, e))?);
        Ok(())
    }
}

impl<P: OrderingPolicy> Subject for OnFfs<P> {
    type Fs = FastFs<Rc<RamDisk>, P>;

    fn fs(&self) -> &Self::Fs {
        self.fs.as_ref().expect("mounted")
    }

    fn now(&self) -> Option<Timestamp> {
        let (seconds, nanos) = self.rt.wall_time();
        Some(Timestamp { seconds, nanos })
    }

    async fn remount(&mut self) -> FsResult<()> {
        self.fs().unmount().await?;
        self.mount().await
    }
}

fn agree<P: OrderingPolicy>(
    shape: Shape,
    policy: fn() -> P,
    seeds: std::ops::Range<u64>,
    steps: usize,
) {
    for seed in seeds {
        let config = OracleConfig::ufs2(seed, steps, shape.block, shape.frag);
        let result = check(&config, async |rt| OnFfs::new(rt, shape, policy).await);
        if let Err(failure) = result {
            panic!("{} on {shape:?}: {failure}", P::NAME);
        }
    }
}

#[test]
fn roomy_disks_agree_with_the_model() {
    agree(ROOMY, || NoOrder, 0..3, 8_000);
    agree(ROOMY, || SyncOrder, 3..5, 8_000);
}

#[test]
fn full_disks_with_tiny_caches_agree_with_the_model() {
    agree(TIGHT, || NoOrder, 10..16, 8_000);
    agree(TIGHT, || SyncOrder, 16..20, 8_000);
}

#[test]
fn big_blocks_and_the_other_byte_order_agree_with_the_model() {
    agree(BIG_BLOCKS, || NoOrder, 20..23, 6_000);
    agree(BIG_BLOCKS, || SyncOrder, 23..25, 6_000);
}
