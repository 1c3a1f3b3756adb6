//! A long symbolic link that an fsync of its directory made durable has its target after a crash.
//!
//! Files with a secret are removed, so that their blocks are free and not cleared. Then links with
//! targets of a block of their own are made, and their directory is synced: a link cannot be synced
//! by itself. The power fails, and the disk loses all that it had not been told to flush. A check
//! repairs the image where the ordering needs one.
//!
//! Fault model: a volatile cache that loses everything. Would catch a target that is written
//! whenever it is due, as contents of files are: the link was empty after a crash, or read as the
//! secret of a user who had removed it.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_block::volatile::{KeepWrites, VolatileCache};
use ordo_cache::CacheConfig;
use ordo_check::{Checker, FsckOptions, Repair};
use ordo_ffs::mkfs::{MkfsOptions, UfsVersion, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates, SyncOrder, SyncRules};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::{FileSystem, NewNode};

const SECRETS: usize = 40;
const LINKS: usize = 5;

async fn mounted<P: OrderingPolicy>(
    rt: &Runtime,
    disk: impl BlockDevice + 'static,
    policy: P,
) -> FastFs {
    // Nothing is written unless somebody asks for it.
    let cache = CacheConfig { data_age: Duration::from_secs(1000), ..CacheConfig::default() };
    let options = MountOptions { cache, ..MountOptions::default() };
    mount(rt, disk.erase(), policy, &options).await.unwrap()
}

/// Makes the links under an ordering, and returns what a crash leaves of the disk after the fsync
/// of their directory.
async fn crashed<P: OrderingPolicy>(rt: &Runtime, made: &MkfsOptions, policy: P) -> RamDisk {
    let disk = Rc::new(VolatileCache::new(RamDisk::new(16 << 20)));
    mkfs(&disk.clone().erase(), made, 0).await.unwrap();
    let fs = mounted(rt, disk.clone(), policy).await;
    let root = fs.root();
    for n in 0..SECRETS {
        let name = format!("secret{n}");
        let file = fs.create(root, name.as_bytes(), &NewNode::file(0o600)).await.unwrap().ino;
        fs.write(file, 0, &b"PASSWORD".repeat(1000)).await.unwrap();
    }
    fs.sync().await.unwrap();
    for n in 0..SECRETS {
        fs.unlink(root, format!("secret{n}").as_bytes()).await.unwrap();
    }
    fs.sync().await.unwrap();
    for n in 0..LINKS {
        let name = format!("link{n}");
        fs.create(root, name.as_bytes(), &NewNode::symlink(&target(n))).await.unwrap();
    }
    fs.fsync(root).await.unwrap();
    disk.crash_image(|_| KeepWrites::Nothing)
}

/// Targets of which the shortest has one byte more than fits into an inode of UFS2.
fn target(n: usize) -> Vec<u8> {
    vec![b't'; [120, 121, 200, 700, 1000][n]]
}

/// The number of links that have their target after a crash, a check, and another mount.
fn kept<P: OrderingPolicy>(made: &MkfsOptions, policy: P) -> usize {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let run = async {
        let left = Rc::new(crashed(&rt, made, policy).await);
        let repair = FsckOptions { repair: Repair::Yes, ..FsckOptions::default() };
        Checker::new(left.clone(), repair).run().await.unwrap();
        let fs = mounted(&rt, left, NoOrder).await;
        let mut kept = 0;
        for n in 0..LINKS {
            let name = format!("link{n}");
            if let Ok(link) = fs.lookup(fs.root(), name.as_bytes()).await {
                kept += usize::from(fs.readlink(link.ino).await.is_ok_and(|is| is == target(n)));
            }
        }
        kept
    };
    executor.block_on(run).unwrap()
}

#[test]
fn a_long_link_has_its_target_after_an_fsync_of_its_directory() {
    for (block_size, frag_size) in [(4096, 512), (8192, 1024), (32_768, 4096)] {
        for version in [UfsVersion::Ufs1, UfsVersion::Ufs2] {
            let made = MkfsOptions { block_size, frag_size, version, ..MkfsOptions::default() };
            let scenario = format!("{version:?}, blocks of {block_size}");
            assert_eq!(kept(&made, NoOrder), LINKS, "{scenario}, no order");
            assert_eq!(kept(&made, SyncOrder::default()), LINKS, "{scenario}, sync");
            assert_eq!(kept(&made, SoftUpdates::default()), LINKS, "{scenario}, soft updates");
            let rules = SyncRules::all() - SyncRules::TARGET_BEFORE_POINTER;
            assert_eq!(
                kept(&made, SyncOrder::with_rules(rules)),
                0,
                "{scenario}, without the rule"
            );
        }
    }
}
