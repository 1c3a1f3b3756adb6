//! The journal, crashed: two devices or one, synchronous or not, with and without group commit.
//!
//! Fault model: the honest disk with a volatile cache, the two devices independent of each other; crashes
//! at any time, inside recovery too. Recovery must leave nothing to be found by the checker, every name
//! that was waited for, and for the rest the names after some number of operations in their order. With
//! any rule switched off something must be found.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::part::Part;
use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_crash::{Budget, Config, Model, Outcome, Promise, Scheme, Script, explore};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{JournalOptions, JournalOrder, JournalRules};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::{FileSystem, NewNode};
use ordo_wafs::{GroupCommit, Wafs};

const FS: u64 = 1 << 20;
const LOG: u64 = 96 << 10;

#[derive(Clone)]
struct Journal {
    name: &'static str,
    two: bool,
    synchronous: bool,
    group: bool,
    rules: JournalRules,
}

impl Journal {
    fn new(name: &'static str, two: bool, synchronous: bool, group: bool) -> Journal {
        Journal { name, two, synchronous, group, rules: JournalRules::all() }
    }
}

type LogOf<D> = Wafs<Part<Rc<D>>>;

impl Journal {
    fn place<D: BlockDevice>(&self, disks: &[Rc<D>]) -> Part<Rc<D>> {
        match self.two {
            true => Part::new(disks[1].clone(), 0, LOG),
            false => Part::new(disks[0].clone(), FS, LOG),
        }
    }
}

impl Scheme for Journal {
    type Fs<D: BlockDevice> = FastFs<Rc<D>, JournalOrder<LogOf<D>>>;

    fn name(&self) -> &str {
        self.name
    }

    fn promise(&self) -> Promise {
        Promise::journal(self.synchronous)
    }

    fn devices(&self) -> Vec<u64> {
        if self.two { vec![FS, LOG] } else { vec![FS + LOG] }
    }

    async fn make<D: BlockDevice>(&self, rt: &Runtime, disks: &[Rc<D>]) -> Result<(), String> {
        let options = MkfsOptions {
            block_size: 4096,
            frag_size: 512,
            size: Some(FS),
            ..MkfsOptions::default()
        };
        let now = rt.wall_time().0;
        mkfs(&disks[0], &options, now).await.map_err(|e| e.to_string())?;
        let (place, options) = (self.place(disks), ordo_wafs::MkfsOptions::default());
        ordo_wafs::mkfs(&place, &options, now).await.map(drop).map_err(|e| e.to_string())
    }

    async fn mount<D: BlockDevice>(
        &self,
        rt: &Runtime,
        disks: &[Rc<D>],
        cache: &CacheConfig,
    ) -> Result<Self::Fs<D>, String> {
        let options = JournalOptions {
            tick: Duration::from_millis(5),
            checkpoint_every: Duration::from_millis(5),
            rules: self.rules,
            ..JournalOptions::wafs(self.synchronous)
        };
        self.mount_with(rt, disks, cache, options).await
    }

    async fn recover<D: BlockDevice>(&self, rt: &Runtime, disks: &[Rc<D>]) -> Result<(), String> {
        let fs = self.mount(rt, disks, &CacheConfig::default()).await?;
        fs.unmount().await.map_err(|e| e.to_string())
    }

    fn recovers(&self) -> bool {
        true
    }
}

impl Journal {
    async fn mount_with<D: BlockDevice>(
        &self,
        rt: &Runtime,
        disks: &[Rc<D>],
        cache: &CacheConfig,
        journal: JournalOptions,
    ) -> Result<<Self as Scheme>::Fs<D>, String> {
        let options = ordo_wafs::MountOptions {
            group: self
                .group
                .then_some(GroupCommit { delay: Duration::from_micros(200), batch: 4 }),
            ..ordo_wafs::MountOptions::default()
        };
        let log = Wafs::mount(rt, self.place(disks), &options).await.map_err(|e| e.to_string())?;
        let journal = JournalOrder::new(rt, log, journal);
        let options = MountOptions { cache: cache.clone(), ..MountOptions::default() };
        mount(rt, disks[0].clone(), journal, &options).await.map_err(|e| e.to_string())
    }
}

fn all() -> Vec<Journal> {
    vec![
        Journal::new("lffs-wafs-1sync", false, true, false),
        Journal::new("lffs-wafs-1async", false, false, false),
        Journal::new("lffs-wafs-2sync", true, true, false),
        Journal::new("lffs-wafs-2async", true, false, false),
        Journal::new("lffs-wafs-1sync-group", false, true, true),
        Journal::new("lffs-wafs-2sync-group", true, true, true),
    ]
}

fn go(scheme: &Journal, model: Model, seed: u64, states: usize) -> Outcome {
    let script = Script::random(seed, 3, 60);
    let budget = Budget { states, recovery_every: 100, recovery_depth: 2, ..Budget::default() };
    explore(scheme, &script, &Config::new(seed, model), &budget).unwrap()
}

#[test]
fn a_journal_keeps_its_promises() {
    for scheme in all() {
        for (model, seed) in [(Model::Volatile, 0), (Model::Volatile, 1), (Model::Completed, 2)] {
            let outcome = go(&scheme, model, seed, 300);
            outcome.expect_kept(&format!("{}, {model:?}, seed {seed}", scheme.name));
            assert!(outcome.counts.states > 200, "{outcome:?}");
        }
    }
}

/// Each rule protects something that is found broken without it: a rule that nobody would miss is not
/// one, or the harness cannot see.
#[test]
fn every_rule_of_the_journal_is_missed() {
    for rule in (JournalRules::all() - JournalRules::REVOKE - JournalRules::HOLD).iter() {
        let broken = |seed: u64| {
            all().into_iter().any(|scheme| {
                let scheme = Journal { rules: JournalRules::all() - rule, ..scheme };
                go(&scheme, Model::Volatile, seed, 600).counts.promise_broken > 0
            })
        };
        assert!((0..12).any(broken), "without {rule:?} nothing was ever found");
    }
}

/// A directory's block, with records in the log, is freed and comes to hold a file's contents, which are
/// made durable: after a crash, what is in the file.
fn contents_after_reuse(rules: JournalRules) -> bool {
    let scheme = Journal { rules, ..Journal::new("reuse", true, false, false) };
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disks = [Rc::new(RamDisk::new(FS)), Rc::new(RamDisk::new(LOG))];
    let cache = CacheConfig::default();
    let data = |n: u8| vec![n + 1; 16 << 10];
    let inos = executor.block_on(async {
        scheme.make(&rt, &disks).await.unwrap();
        let slow = JournalOptions { rules, ..JournalOptions::wafs(false) };
        let fs = scheme.mount_with(&rt, &disks, &cache, slow).await.unwrap();
        let dir = fs.make(fs.root(), b"dir", &NewNode::directory(0o755)).await.unwrap().ino;
        for n in 0..40u8 {
            let name = [vec![b'n'; 100], vec![b'0' + n]].concat();
            fs.make(dir, &name, &NewNode::file(0o644)).await.unwrap();
        }
        for n in 0..40u8 {
            fs.unlink(dir, &[vec![b'n'; 100], vec![b'0' + n]].concat()).await.unwrap();
        }
        fs.rmdir(fs.root(), b"dir").await.unwrap();
        // Files until the device is full: one of them has the block.
        let mut inos = Vec::new();
        for n in 0..60u8 {
            let Ok(file) = fs.make(fs.root(), &[b'a', n + 48], &NewNode::file(0o644)).await else {
                break;
            };
            if fs.write(file.ino, 0, &data(n)).await.is_ok_and(|done| done == 16 << 10) {
                fs.fsync(file.ino).await.unwrap();
                inos.push((n, file.ino));
            }
        }
        inos
    });
    let inos = inos.unwrap();
    assert!(inos.len() > 30, "{}", inos.len());
    drop(executor);
    let executor = Executor::simulated(2);
    let rt = executor.runtime();
    let same = executor.block_on(async {
        let fs = scheme.mount(&rt, &disks, &cache).await.unwrap();
        for (n, ino) in inos {
            let mut there = vec![0; 16 << 10];
            fs.read(ino, 0, &mut there).await.unwrap();
            if there != data(n) {
                return false;
            }
        }
        true
    });
    same.unwrap()
}

#[test]
fn a_block_that_was_freed_is_not_replayed_over() {
    assert!(contents_after_reuse(JournalRules::all()));
    assert!(!contents_after_reuse(JournalRules::all() - JournalRules::REVOKE));
}

/// As many states as asked for: `JOURNAL_STATES=100000 cargo test -p ordo-crash --release --test journal
/// -- --ignored`.
#[test]
#[ignore = "a campaign"]
fn campaign() {
    let wanted =
        std::env::var("JOURNAL_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let mut states = 0;
    for seed in 100.. {
        for scheme in all() {
            for model in [Model::Volatile, Model::Completed, Model::Prefix] {
                let outcome = go(&scheme, model, seed, 500);
                outcome.expect_kept(&format!("{}, {model:?}, seed {seed}", scheme.name));
                states += outcome.counts.states;
            }
        }
        println!("seed {seed}: {states} states");
        if states >= wanted {
            break;
        }
    }
}
