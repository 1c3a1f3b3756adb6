//! What a crash leaves behind under the ordering `sync`, and what each of its rules is there for.
//!
//! Fault model: the power goes between any two completed writes. The disk takes a random time for each
//! request, so requests under way complete in any order; what was completed is durable; the syncer
//! writes everything at once, so what is not ordered reaches the disk as early as it can. (Volatile
//! caches and tearing are the crash explorer's.) Three clients work at once. After every single write
//! the independent checker looks at the disk. Under `sync` it may find leaks, high counts and what is
//! not ordered at all, but never an entry for an inode that is not there, a count that is too low, a
//! directory that cannot be read, or a renamed file without a name; and what an operation did is there
//! when it has returned. With any one rule switched off it must find such damage somewhere, or the
//! rule protects nothing, or the harness cannot see.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::tap::{Recorder, Tap};
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, Operation, WriteFlags, ram::RamDisk};
use ordo_check::{Checker, Options, Severity};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{NoOrder, SyncOrder, SyncRules};
use ordo_runtime::{Duration, Executor, Runtime, Schedule};
use ordo_ufs::UfsConfig;
use ordo_vfs::{Errno, FileSystem, FsResult, Ino, NewNode, RenameMode, SetAttr};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Fs = FastFs<Rc<Tap<Jitter>>, SyncOrder>;

/// A disk that takes a random time, up to two milliseconds, for each write.
struct Jitter {
    runtime: Runtime,
    disk: RamDisk,
}

impl BlockDevice for Jitter {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.disk.read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let micros = self.runtime.random_below(2000);
        self.runtime.sleep(Duration::from_micros(micros)).await;
        self.disk.write(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.disk.discard(offset, len).await
    }
}

/// Files that are renamed all the time and never removed.
const KEEPERS: usize = 4;

/// One client: its random operations on directories that all share.
struct Client {
    fs: Fs,
    dirs: Rc<RefCell<Vec<Ino>>>,
    keepers: Rc<Vec<Ino>>,
    rng: Pcg64Mcg,
}

impl Client {
    fn dir(&mut self) -> Ino {
        let dirs = self.dirs.borrow();
        dirs[self.rng.random_range(0..dirs.len())]
    }

    fn name(&mut self) -> Vec<u8> {
        format!("name-{}-{}", self.rng.random_range(0..12), "x".repeat(60)).into_bytes()
    }

    async fn step(&mut self) {
        let (dir, other, a, b) = (self.dir(), self.dir(), self.name(), self.name());
        let fs = self.fs.clone();
        let done = match self.rng.random_range(0..15) {
            0..=2 => fs.make(dir, &a, &NewNode::file(0o644)).await.map(|_| ()),
            3 => {
                let made = fs.make(dir, &a, &NewNode::directory(0o755)).await;
                made.map(|d| self.dirs.borrow_mut().push(d.ino))
            }
            4..=5 => fs.unlink(dir, &a).await,
            6 => fs.rmdir(dir, &a).await,
            7 => fs.rename(dir, &a, other, &b, RenameMode::NoReplace).await,
            8 => match fs.lookup(dir, &a).await {
                Ok(attr) => fs.link(attr.ino, other, &b).await.map(|_| ()),
                Err(e) => Err(e),
            },
            9..=10 => match fs.lookup(dir, &a).await {
                Ok(attr) => self.change_contents(attr.ino).await,
                Err(e) => Err(e),
            },
            _ => self.move_keeper(other).await,
        };
        if let Err(error) = done {
            assert!(!matches!(error.errno, Errno::Corrupt | Errno::Io), "{error}");
        }
    }

    async fn change_contents(&mut self, ino: Ino) -> FsResult<()> {
        if self.rng.random() {
            let len = [600, 5000, 20_000, 60_000][self.rng.random_range(0..4)];
            let at = self.rng.random_range(0..3) * 4096;
            return self.fs.write(ino, at, &vec![7; len]).await.map(|_| ());
        }
        let size = Some(self.rng.random_range(0..40_000));
        self.fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).await.map(|_| ())
    }

    /// Renames a file that must have a name at all times.
    async fn move_keeper(&mut self, to: Ino) -> FsResult<()> {
        let which = self.rng.random_range(0..KEEPERS);
        let name = format!("keeper-{which}").into_bytes();
        let dirs = self.dirs.borrow().clone();
        for from in dirs {
            let found = self.fs.lookup(from, &name).await;
            if found.is_ok_and(|attr| attr.ino == self.keepers[which]) {
                return self.fs.rename(from, &name, to, &name, RenameMode::NoReplace).await;
            }
        }
        Ok(())
    }
}

/// What a run leaves: the disk as it was, every write in order of completion, the files that must have
/// a name, and the names made, each with the number of writes completed when that was reported.
struct Run {
    start: RamDisk,
    writes: Vec<(u64, Rc<[u8]>)>,
    keepers: Rc<Vec<Ino>>,
    reported: Vec<(usize, Vec<u8>)>,
}

fn record(seed: u64, steps: usize, rules: SyncRules) -> Run {
    let executor = Executor::simulated(seed);
    executor.set_schedule(Schedule::Seeded);
    let rt = executor.runtime();
    let disk = RamDisk::new(1 << 20);
    // What lies where nothing was written yet is not zero: an older file system's remains.
    for at in (0..1u64 << 20).step_by(512) {
        disk.store(at, &[0x5a; 512]);
    }
    let recorder = Recorder::new(true);
    let (start, keepers, reported) =
        executor.block_on(work(&rt, disk, &recorder, (seed, steps, rules))).unwrap();
    let mut writes: Vec<_> = recorder
        .take()
        .into_iter()
        .filter(|r| r.op == Operation::Write)
        .filter_map(|r| Some((r.end?.order, r.offset, r.data?)))
        .collect();
    writes.sort_by_key(|w| w.0);
    let writes = writes.into_iter().map(|w| (w.1, w.2)).collect();
    Run { start, writes, keepers, reported }
}

async fn work(
    rt: &Runtime,
    disk: RamDisk,
    recorder: &Rc<Recorder>,
    (seed, steps, rules): (u64, usize, SyncRules),
) -> (RamDisk, Rc<Vec<Ino>>, Vec<(usize, Vec<u8>)>) {
    let options = MkfsOptions { block_size: 4096, frag_size: 512, ..MkfsOptions::default() };
    mkfs(&disk, &options, rt.wall_time().0).await.unwrap();
    let tap = Rc::new(Tap::new(rt, Jitter { runtime: rt.clone(), disk }));
    let mut options = MountOptions::default();
    options.cache.metadata_age = Duration::ZERO;
    options.cache.directory_age = Duration::ZERO;
    options.cache.data_age = Duration::ZERO;
    let policy = SyncOrder::with_rules(rules);
    let fs = mount(rt, tap.clone(), policy, &options).await.unwrap();
    let mut keepers = Vec::new();
    for i in 0..KEEPERS {
        let name = format!("keeper-{i}").into_bytes();
        keepers.push(fs.make(fs.root(), &name, &NewNode::file(0o644)).await.unwrap().ino);
    }
    fs.sync().await.unwrap();
    let start = tap.inner().disk.snapshot();
    tap.attach(recorder.clone());
    let keepers = Rc::new(keepers);
    let dirs = Rc::new(RefCell::new(vec![fs.root()]));
    let clients: Vec<_> = (0..3)
        .map(|n| {
            let rng = Pcg64Mcg::seed_from_u64(seed * 3 + n);
            let (fs, dirs, keepers) = (fs.clone(), dirs.clone(), keepers.clone());
            let mut client = Client { fs, dirs, keepers, rng };
            rt.spawn("a client", async move {
                for _ in 0..steps {
                    client.step().await;
                }
            })
        })
        .collect();
    let mut reported = Vec::new();
    for i in 0..steps / 10 {
        let name = format!("reported-{i}").into_bytes();
        if fs.make(fs.root(), &name, &NewNode::file(0o600)).await.is_ok() {
            let done = recorder.with(|all| {
                all.iter().filter(|r| r.op == Operation::Write && r.end.is_some()).count()
            });
            reported.push((done, name));
        }
        rt.sleep(Duration::from_millis(20)).await;
    }
    for client in clients {
        client.await;
    }
    (start, keepers, reported)
}

/// The kinds of damage found after any write, each with how often and an example.
fn damage(seed: u64, steps: usize, rules: SyncRules) -> BTreeMap<&'static str, (usize, String)> {
    let run = record(seed, steps, rules);
    let disk = Rc::new(run.start);
    let executor = Executor::simulated(0);
    let mut reported = run.reported.iter().peekable();
    let mut found = BTreeMap::new();
    let mut note = |kind: &'static str, example: String| {
        found.entry(kind).or_insert((0, example)).0 += 1;
    };
    for (i, (offset, data)) in run.writes.iter().enumerate() {
        disk.store(*offset, data);
        let checker = Checker::new(disk.clone(), Options::default());
        let report = executor.block_on(checker.run()).unwrap().unwrap();
        for finding in &report.findings {
            let example = || format!("seed {seed}, write {i}: {}", report.describe(finding));
            let keeper = |ino: u32| run.keepers.contains(&Ino(u64::from(ino)));
            // A directory on its way in or out: what no name leads to cannot hurt.
            let out_of_reach = report
                .findings
                .iter()
                .any(|f| f.kind() == "UnreferencedDirectory" && f.ino() == finding.ino());
            if NOT_ORDERED.contains(&finding.kind()) || out_of_reach {
                continue;
            }
            if finding.severity() == Severity::Damage {
                note(finding.kind(), example());
            } else if finding.kind() == "UnreferencedInode" && finding.ino().is_some_and(keeper) {
                note("a renamed file without a name", example());
            }
        }
        while let Some((_, name)) = reported.next_if(|(done, _)| *done == i + 1) {
            if !executor.block_on(has_name(&executor.runtime(), &disk, name)).unwrap() {
                let name = String::from_utf8_lossy(name);
                note("reported, but not there", format!("seed {seed}, write {i}: {name}"));
            }
        }
    }
    found
}

async fn has_name(rt: &Runtime, disk: &Rc<RamDisk>, name: &[u8]) -> bool {
    let ufs = UfsConfig { read_only: true, ..UfsConfig::default() };
    let options = MountOptions { ufs, ..MountOptions::default() };
    let fs = mount(rt, disk.clone(), NoOrder, &options).await.unwrap();
    fs.lookup(fs.root(), name).await.is_ok()
}

/// What the checker calls damage, but FFS has never ordered, and a check mends without loss: bitmaps may
/// be behind what they describe (which is why a check must come before the next mount), a rename of a
/// directory passes through a state in which it has both names, and a pointer to a new block may be on
/// disk before the size that includes it.
const NOT_ORDERED: [&str; 4] =
    ["BlocksNotMarked", "InodesNotMarked", "DirectoryLinkedTwice", "PointerBeyondEnd"];

#[test]
fn sync_leaves_no_damage_at_any_write() {
    for seed in 0..4 {
        let found = damage(seed, 150, SyncRules::all());
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// Without durability on return nothing is damaged but that promise; without any one of the other rules
/// (and without that one, which would mend much of it soon after) something is.
#[test]
fn every_rule_protects_something() {
    let late = SyncRules::all() - SyncRules::DURABLE_ON_RETURN;
    let kinds = |rules, seed| damage(seed, 150, rules).into_keys().collect::<Vec<_>>();
    for seed in 0..3 {
        assert_eq!(kinds(late, seed), ["reported, but not there"]);
    }
    for rule in late.iter() {
        let broken = (0..20).any(|seed| kinds(late - rule, seed).len() > 1);
        assert!(broken, "without {rule:?} nothing was ever damaged");
    }
}
