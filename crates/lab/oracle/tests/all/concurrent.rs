//! Many tasks work at once on one FFS, with few names, in an order that the seed shuffles.
//!
//! Fault model: two operations that wait for each other; one that sees half of another; a count or
//! a block that is lost between two; an open file that disappears. The test does not know each
//! result, only those that must never occur: damage, a deadlock, and a file system in which a check
//! finds something.

use std::cell::RefCell;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_check::{Checker, FsckOptions};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{NoOrder, OrderingPolicy, SyncOrder};
use ordo_runtime::{Executor, Schedule, cpu::CpuModel};
use ordo_vfs::tree::{WalkLimits, measure, remove_below};
use ordo_vfs::{Cookie, Errno, FileSystem, FsResult, Ino, NewNode, RenameMode, SetAttr, XattrMode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const TASKS: u64 = 8;
const STEPS: u32 = 400;
const NAMES: u32 = 7;

type Fs = FastFs;

/// One task: random operations in random directories, some of which may be removed already.
struct Actor {
    fs: Fs,
    rng: Pcg64Mcg,
    /// The inodes that any of the tasks has made.
    known: Rc<RefCell<Known>>,
    succeeded: u32,
}

#[derive(Default)]
struct Known {
    directories: Vec<Ino>,
    files: Vec<Ino>,
}

impl Actor {
    fn name(&mut self) -> Vec<u8> {
        let n = self.rng.random_range(0..NAMES);
        let mut name = format!("n{n}").into_bytes();
        if n == 0 {
            name.resize(200, b'x');
        }
        name
    }

    /// One of the newer directories.
    fn directory(&mut self) -> Ino {
        let all = &self.known.borrow().directories;
        all[self.rng.random_range(all.len().saturating_sub(12)..all.len())]
    }

    async fn step(&mut self) -> FsResult<()> {
        let dir = self.directory();
        let (name, other) = (self.name(), self.name());
        match self.rng.random_range(0..16) {
            0 | 1 => {
                let made = self.fs.create(dir, &name, &NewNode::directory(0o755)).await?;
                self.known.borrow_mut().directories.push(made.ino);
            }
            2..5 => {
                let made = self.fs.create(dir, &name, &NewNode::file(0o644)).await?;
                self.known.borrow_mut().files.push(made.ino);
            }
            5 => drop(self.fs.create(dir, &name, &NewNode::symlink(&[b't'; 300])).await?),
            6 => self.fs.rmdir(dir, &name).await?,
            7 => self.fs.unlink(dir, &name).await?,
            8..11 => {
                let to = self.directory();
                let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::Exchange];
                let mode = modes[self.rng.random_range(0..3)];
                self.fs.rename(dir, &name, to, &other, mode).await?;
            }
            11 => {
                let found = self.fs.lookup(dir, &name).await?;
                self.fs.link(found.ino, dir, &other).await?;
            }
            12 => {
                self.fs.readdir(dir, Cookie::START, &mut |_| true).await?;
                self.fs.lookup(dir, b"..").await?;
            }
            kind => self.on_file(kind).await?,
        }
        Ok(())
    }

    /// Opens a file, which may be removed already, and changes it while others may remove its
    /// names.
    async fn on_file(&mut self, kind: u32) -> FsResult<()> {
        let file = {
            let all = &self.known.borrow().files;
            if all.is_empty() {
                return Ok(());
            }
            all[self.rng.random_range(all.len().saturating_sub(12)..all.len())]
        };
        self.fs.open(file).await?;
        let offset = self.rng.random_range(0..150_000);
        let data = vec![self.rng.random(); self.rng.random_range(1..20_000)];
        let result = match kind {
            13 => self.fs.write(file, offset, &data).await.map(drop),
            14 => {
                let set = SetAttr { size: Some(offset), ..SetAttr::default() };
                self.fs.setattr(file, &set).await.map(drop)
            }
            _ => {
                let set =
                    self.fs.setxattr(file, b"user.k", &data[..100.min(data.len())], XattrMode::Set);
                set.await.and(self.fs.read(file, offset, &mut [0; 9000]).await.map(drop))
            }
        };
        self.fs.close(file).await?;
        result
    }
}

/// The errors that an operation may return when others change its files.
fn expected(errno: Errno) -> bool {
    !matches!(errno, Errno::Corrupt | Errno::Io | Errno::ReadOnly | Errno::Again)
}

fn stress<P: OrderingPolicy>(seed: u64, bytes: u64, policy: fn() -> P) {
    let executor = Executor::simulated(seed);
    executor.set_schedule(Schedule::Seeded);
    let rt = executor.runtime();
    let ram = Rc::new(RamDisk::new(bytes));
    let model = Model::by_name("nvme").unwrap();
    let disk = Rc::new(Modeled::new(&rt, model, ram.clone()));
    let outcome = executor.block_on(async {
        let made = MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
        mkfs(&ram.clone().erase(), &made, rt.wall_time().0).await.unwrap();
        rt.cpu().set_model(CpuModel::MODERN);
        let cache = CacheConfig::with_capacity(1 << 20);
        let options = MountOptions { cache, use_reserve: true, ..MountOptions::default() };
        let fs = mount(&rt, disk.clone(), policy(), &options).await.unwrap();
        let known = Known { directories: vec![fs.root()], files: Vec::new() };
        let known = Rc::new(RefCell::new(known));
        let tasks: Vec<_> = (0..TASKS)
            .map(|i| {
                let rng = Pcg64Mcg::seed_from_u64(seed * 100 + i);
                let mut actor = Actor { fs: fs.clone(), rng, known: known.clone(), succeeded: 0 };
                rt.spawn(format!("actor {i}"), async move {
                    for step in 0..STEPS {
                        match actor.step().await {
                            Ok(()) => actor.succeeded += 1,
                            Err(e) => {
                                let told = format!("seed {seed}, actor {i}, step {step}: {e}");
                                assert!(expected(e.errno), "{told}");
                            }
                        }
                    }
                    actor.succeeded
                })
            })
            .collect();
        let mut succeeded = 0;
        for task in tasks {
            succeeded += task.await;
        }
        assert!(succeeded > 500, "seed {seed}: only {succeeded} operations did anything");
        let totals = measure(&fs, fs.root(), WalkLimits::default()).await.unwrap();
        fs.unmount().await.unwrap();
        let report = Checker::new(disk.clone(), FsckOptions::default()).run().await.unwrap();
        assert!(report.is_consistent(), "seed {seed}: {report}");
        let fs = mount(&rt, disk.clone(), policy(), &options).await.unwrap();
        let found = remove_below(&fs, fs.root(), WalkLimits::default(), &mut || ()).await.unwrap();
        assert_eq!(found, totals.entries, "seed {seed}");
        fs.unmount().await.unwrap();
        let report = Checker::new(disk.clone(), FsckOptions::default()).run().await.unwrap();
        assert!(report.is_consistent() && report.files <= 2, "seed {seed}, emptied: {report}");
    });
    outcome.unwrap_or_else(|deadlock| panic!("seed {seed}: {deadlock}"));
}

/// `ORDO_SEED` replaces the usual sequences by one other.
fn seeds(all: std::ops::Range<u64>) -> Vec<u64> {
    let given = std::env::var("ORDO_SEED").ok().and_then(|s| s.parse().ok());
    given.map_or(all.collect(), |seed| vec![seed])
}

#[test]
fn many_tasks_with_no_ordering() {
    seeds(0..10).into_iter().for_each(|seed| stress(seed, 64 << 20, || NoOrder));
}

#[test]
fn many_tasks_with_synchronous_writes() {
    seeds(10..20).into_iter().for_each(|seed| stress(seed, 64 << 20, SyncOrder::default));
}

#[test]
fn many_tasks_on_a_full_disk() {
    seeds(20..26).into_iter().for_each(|seed| stress(seed, 2 << 20, || NoOrder));
    seeds(26..32).into_iter().for_each(|seed| stress(seed, 2 << 20, SyncOrder::default));
}
