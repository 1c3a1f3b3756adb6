//! Metadata that is written together and read together: prefetching, the order in the log,
//! relocation, each on and off.
//!
//! Requests to the metadata device are recorded. Would catch a mechanism without effect, one that
//! cannot be switched off, one that changes the contents that are read, and relocation that writes
//! on a read-only mount or uses space that other writes need.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::tap::{Record, Recorder, Tap};
use ordo_block::{BlockDevice, Device, Operation};
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_dualfs::DualFs;
use ordo_dualfs::mkfs::{MkfsOptions, mkfs};
use ordo_dualfs::mount::{DualOptions, MountOptions, mount};
use ordo_format::lfs::{Summary, Superblock};
use ordo_lfs::data::Locality;
use ordo_lfs::superblock::{VolumeKind, find_kind};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_ufs::{AccessTimes, UfsConfig};
use ordo_vfs::{Cookie, Errno, FileSystem, Ino, NewNode};

const BLOCK: u64 = 4096;
/// The number of blocks of a file that needs an indirect block.
const LONG: u64 = 14;
const DIRECTORIES: u64 = 24;
const FILES: u64 = 12;

fn run<T>(work: impl AsyncFnOnce(Runtime) -> T) -> T {
    let executor = Executor::simulated(11);
    let rt = executor.runtime();
    executor.block_on(work(rt)).expect("no deadlock")
}

/// A pair whose metadata device is watched.
struct Disks {
    all: Vec<Device>,
    seen: Rc<Recorder>,
    /// Memory of a mount in bytes.
    memory: usize,
}

impl Disks {
    async fn made(rt: &Runtime, metadata: u64) -> Disks {
        let tap = Rc::new(Tap::new(rt, RamDisk::new(metadata)));
        let seen = Recorder::new(true);
        tap.attach(seen.clone());
        let all = vec![tap.erase(), RamDisk::new(64 << 20).erase()];
        mkfs(rt, &all, &MkfsOptions::default()).await.expect("legal sizes");
        Disks { all, seen, memory: 8 << 20 }
    }

    async fn mounted(&self, rt: &Runtime, locality: Locality) -> DualFs {
        self.mounted_by(rt, locality, false).await
    }

    async fn mounted_by(&self, rt: &Runtime, locality: Locality, read_only: bool) -> DualFs {
        let ufs = UfsConfig { access_times: AccessTimes::Never, read_only, ..UfsConfig::default() };
        let options = MountOptions {
            ufs,
            cache: CacheConfig::with_capacity(self.memory),
            options: DualOptions { locality, ..DualOptions::default() },
            ..MountOptions::default()
        };
        let fs = mount(rt, &self.all, &options).await.expect("it was unmounted");
        self.seen.take();
        fs
    }

    /// The requests since the last call.
    fn requests(&self, op: Operation) -> Vec<Record> {
        self.seen.take().into_iter().filter(|r| r.op == op).collect()
    }

    /// Mounts, and reads everything. Returns the requests that this took, and the sum of all bytes.
    async fn read_cold(&self, rt: &Runtime, locality: Locality) -> (Vec<Record>, u64) {
        let fs = self.mounted(rt, locality).await;
        let sum = read_all(&fs, fs.root()).await;
        let reads = self.requests(Operation::Read);
        fs.unmount().await.expect("a healthy device");
        (reads, sum)
    }

    async fn is_consistent(&self) {
        let report = DualChecker::new(&self.all, Repair::No).run().await.expect("a pair");
        assert!(report.is_consistent(), "{:?}", report.findings);
    }
}

async fn write(fs: &DualFs, ino: Ino, block: u64, byte: u8) {
    fs.write(ino, block * BLOCK, &[byte; BLOCK as usize]).await.expect("there is space");
}

/// Makes directories with files. The first `long` files of each directory have an indirect block.
/// Files are changed in an order that is not that of the tree.
async fn fill(fs: &DualFs, long: u64) {
    let mut inos = Vec::new();
    for d in 0..DIRECTORIES {
        let name = format!("d{d}");
        let dir = fs.create(fs.root(), name.as_bytes(), &NewNode::directory(0o755)).await.unwrap();
        for f in 0..FILES {
            let made = fs.create(dir.ino, format!("f{f}").as_bytes(), &NewNode::file(0o644)).await;
            inos.push((f, made.unwrap().ino));
        }
    }
    let count = inos.len();
    // A stride that has no factor with the number of files visits each once.
    for n in 0..count {
        let (f, ino) = inos[n * 97 % count];
        let blocks = if f < long { LONG } else { 1 };
        for block in 0..blocks {
            write(fs, ino, block, (n % 251) as u8).await;
        }
        if n % 16 == 15 {
            fs.sync().await.expect("a healthy device");
        }
    }
}

/// Reads all files below a directory, in the order of their names. Returns the sum of all bytes.
async fn read_all(fs: &DualFs, dir: Ino) -> u64 {
    let mut inos = Vec::new();
    let mut each = |entry: ordo_vfs::DirEntry<'_>| {
        if entry.name != b"." && entry.name != b".." {
            inos.push(entry.ino);
        }
        true
    };
    fs.readdir(dir, Cookie::START, &mut each).await.expect("a directory");
    let mut sum = 0;
    for ino in inos {
        let attr = fs.getattr(ino).await.expect("it has a name");
        if attr.file_type == ordo_vfs::FileType::Directory {
            sum += Box::pin(read_all(fs, ino)).await;
            continue;
        }
        let mut bytes = vec![0; attr.size as usize];
        fs.read(ino, 0, &mut bytes).await.expect("a healthy device");
        sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    sum
}

#[test]
fn the_neighbours_of_a_missing_block_are_read_with_it() {
    run(async |rt| {
        let disks = Disks::made(&rt, 16 << 20).await;
        let fs = disks.mounted(&rt, Locality { inverse: true, ..Locality::NONE }).await;
        fill(&fs, 1).await;
        fs.unmount().await.expect("a healthy device");
        let (alone, sum) = disks.read_cold(&rt, Locality::NONE).await;
        assert!(alone.iter().all(|r| r.len == BLOCK), "{alone:?}");
        for prefetch in [2, 16] {
            let locality = Locality { prefetch, ..Locality::NONE };
            let (reads, same) = disks.read_cold(&rt, locality).await;
            let most = u64::from(prefetch) * BLOCK;
            assert!(reads.iter().all(|r| r.len <= most), "{prefetch}: {reads:?}");
            assert!(reads.iter().any(|r| r.len == most), "{prefetch}: {reads:?}");
            assert_eq!(same, sum, "other contents with {prefetch}");
            let (few, many) = (reads.len(), alone.len());
            let times = if prefetch == 2 { 1 } else { 4 };
            assert!(few * times < many, "{few} and {many}");
        }
    });
}

/// A reader that goes through the log backwards prefetches sixteen blocks in most requests. Would
/// catch a window in which a part is kept for blocks that the reader has in memory already.
#[test]
fn a_reader_that_goes_backwards_prefetches_full_windows() {
    run(async |rt| {
        let disks = Disks::made(&rt, 16 << 20).await;
        let fs = disks.mounted(&rt, Locality { inverse: true, ..Locality::NONE }).await;
        for d in 0..1000 {
            let name = format!("d{d:04}");
            let dir = fs.create(fs.root(), name.as_bytes(), &NewNode::directory(0o755)).await;
            let dir = dir.expect("room").ino;
            fs.create(dir, b"f", &NewNode::file(0o644)).await.expect("room");
        }
        fs.unmount().await.expect("a healthy device");
        let locality = Locality { prefetch: 16, inverse: true, relocate: 0 };
        let (reads, _) = disks.read_cold(&rt, locality).await;
        let count = |blocks: u64| reads.iter().filter(|r| r.len == blocks * BLOCK).count();
        assert!(count(16) > 3 * count(13), "{} of 16 blocks, {} of 13", count(16), count(13));
    });
}

/// The blocks of files in the partial segments that were written, in their order: (inode, block).
fn written(sb: &Superblock, writes: &[Record]) -> Vec<(u64, i64)> {
    let mut all = Vec::new();
    for write in writes {
        let bytes = write.data.as_ref().expect("contents are kept");
        let mut at = 0;
        while at < bytes.len() {
            // The blocks between two summaries are not summaries.
            if let Ok(summary) = Summary::read(sb, &bytes[at..]) {
                for file in summary.files {
                    all.extend(file.blocks.iter().map(|block| (file.ino, *block)));
                }
            }
            at += BLOCK as usize;
        }
    }
    all
}

#[test]
fn a_write_out_has_the_last_changed_file_first() {
    for inverse in [true, false] {
        run(async |rt| {
            let disks = Disks::made(&rt, 16 << 20).await;
            let fs = disks.mounted(&rt, Locality { inverse, ..Locality::NONE }).await;
            let mut inos = Vec::new();
            for f in 0..4 {
                let name = format!("f{f}");
                let made = fs.create(fs.root(), name.as_bytes(), &NewNode::file(0o644)).await;
                inos.push(made.unwrap().ino);
            }
            // A directory of some blocks.
            let dir = fs.create(fs.root(), b"d", &NewNode::directory(0o755)).await.unwrap().ino;
            for n in 0..60 {
                let name = format!("{n:0200}");
                fs.create(dir, name.as_bytes(), &NewNode::file(0o644)).await.unwrap();
            }
            let order = [2, 0, 3, 1];
            for f in order {
                write(&fs, inos[f], LONG, 1).await;
            }
            disks.seen.take();
            fs.sync().await.expect("a healthy device");
            let sb = find_kind(&disks.all[0], VolumeKind::Dual).await.expect("it is there").sb;
            let all = written(&sb, &disks.requests(Operation::Write));
            let upper = |(ino, block): &(u64, i64)| {
                let f = inos.iter().position(|i| i.0 == *ino)?;
                (*block < 0).then_some(f)
            };
            let files: Vec<usize> = all.iter().filter_map(upper).collect();
            let blocks = all.iter().filter(|(ino, _)| *ino == dir.0).map(|(_, block)| *block);
            let blocks: Vec<i64> = blocks.collect();
            assert!(blocks.len() > 2, "{blocks:?}");
            if inverse {
                assert_eq!(files, [1, 3, 0, 2]);
                assert!(blocks.is_sorted_by(|a, b| a > b), "{blocks:?}");
            } else {
                assert_eq!(files, [0, 1, 2, 3]);
                assert!(blocks.is_sorted(), "{blocks:?}");
            }
            fs.unmount().await.expect("a healthy device");
            disks.is_consistent().await;
        });
    }
}

/// Metadata that was read is rewritten to lie together, as much in a second as the option says.
/// Nothing is rewritten if the option is off or the mount is read-only.
#[test]
fn metadata_that_is_read_is_rewritten_together() {
    run(async |rt| {
        let mut disks = Disks::made(&rt, 16 << 20).await;
        let fs = disks.mounted(&rt, Locality::NONE).await;
        fill(&fs, FILES).await;
        fs.unmount().await.expect("a healthy device");
        // Not all of the metadata has room in memory at once.
        disks.memory = 512 << 10;
        let prefetch = Locality { prefetch: 16, inverse: true, relocate: 0 };
        let (before, sum) = disks.read_cold(&rt, prefetch).await;
        for (relocate, read_only) in [(0, false), (128, true)] {
            let fs = disks.mounted_by(&rt, Locality { relocate, ..prefetch }, read_only).await;
            read_all(&fs, fs.root()).await;
            let moved = (fs.layout().relocated(), fs.layout().relocated_inodes());
            assert_eq!(moved, (0, 0), "{relocate}, {read_only}");
            disks.seen.take();
            rt.sleep(Duration::from_secs(20)).await;
            assert_eq!(disks.requests(Operation::Write), [], "{relocate}, {read_only}");
            fs.unmount().await.expect("a healthy device");
        }
        for relocate in [3, 1000] {
            let fs = disks.mounted(&rt, Locality { relocate, ..prefetch }).await;
            read_all(&fs, fs.root()).await;
            let first = fs.layout().relocated();
            if relocate == 3 {
                assert_eq!(first, 3);
                rt.sleep(Duration::from_secs(1)).await;
                fs.drop_caches().await.expect("a healthy device");
                read_all(&fs, fs.root()).await;
                assert_eq!(fs.layout().relocated(), 6);
            } else {
                // Directories, and an indirect block in each.
                assert!(first >= DIRECTORIES, "{first}");
                // The inodes of what was read go with it: directories without them would lie apart
                // from them.
                let inodes = fs.layout().relocated_inodes();
                assert!(inodes >= DIRECTORIES, "{inodes}");
            }
            fs.unmount().await.expect("a healthy device");
            disks.is_consistent().await;
        }
        let (after, same) = disks.read_cold(&rt, prefetch).await;
        assert_eq!(same, sum);
        assert!(after.len() * 2 < before.len(), "{} and {}", after.len(), before.len());
    });
}

/// A log takes as many directories with relocation as without it, and deletes succeed.
#[test]
fn relocation_takes_no_space_of_a_full_log() {
    let fits = |relocate: u32| {
        run(async |rt| {
            let disks = Disks::made(&rt, 4 << 20).await;
            let locality = Locality { prefetch: 16, inverse: true, relocate };
            let fs = disks.mounted(&rt, locality).await;
            let mut made: u64 = 0;
            let error = loop {
                let name = format!("d{made}");
                match fs.create(fs.root(), name.as_bytes(), &NewNode::directory(0o755)).await {
                    Ok(_) => made += 1,
                    Err(error) => break error,
                }
                if made.is_multiple_of(10) {
                    fs.drop_caches().await.expect("a healthy device");
                    rt.sleep(Duration::from_secs(1)).await;
                    read_all(&fs, fs.root()).await;
                }
            };
            assert_eq!(error.errno, Errno::NoSpace);
            assert_eq!(fs.layout().relocated() > 0, relocate > 0);
            for n in 0..made {
                let name = format!("d{n}");
                fs.rmdir(fs.root(), name.as_bytes()).await.expect("deletes go through");
            }
            fs.unmount().await.expect("a healthy device");
            disks.is_consistent().await;
            made
        })
    };
    assert_eq!(fits(1000), fits(0));
}
