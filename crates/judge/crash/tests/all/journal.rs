//! The journal, crashed: its log in a file, behind the file system or on a device of its own,
//! synchronous or not, with and without group commit.
//!
//! Fault model: the honest disk with a volatile cache, the two devices independent of each other;
//! crashes at any time, during recovery too. After recovery the checker must have no findings;
//! every name must be there for which a caller has waited; the other names must be those after some
//! number of operations in their order. With any rule switched off, something must be found.

use std::rc::Rc;

use ordo_block::partition::Partition;
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_cache::CacheConfig;
use ordo_crash::{
    Budget, Config, CrashModel, DiskFormat, Outcome, Promise, Scheme, Script, Volume, cycle,
    explore, record,
};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::mount::find_superblock;
use ordo_ffs::{FastFs, MountOptions, logfile, mount};
use ordo_ordering::{JournalMode, JournalOptions, JournalOrder, JournalRules, NoOrder};
use ordo_runtime::sync::select;
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_systems::ffs::UFS2;
use ordo_ufs::Layout;
use ordo_vfs::{FileSystem, NewNode};
use ordo_wafs::{GroupCommit, Wafs};
use ordo_watcher::Class;

const FS: u64 = 1 << 20;
const LOG: u64 = 96 << 10;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    File,
    Behind,
    Other,
}

#[derive(Clone)]
pub struct Journal {
    pub name: &'static str,
    pub place: Place,
    pub synchronous: bool,
    pub group: bool,
    /// The number of bytes of log that are written without a caller's demand.
    pub cluster: usize,
    pub rules: JournalRules,
    pub mode: JournalMode,
}

impl Journal {
    pub fn new(name: &'static str, place: Place, synchronous: bool, group: bool) -> Journal {
        let (cluster, rules, mode) = (4096, JournalRules::all(), JournalMode::default());
        Journal { name, place, synchronous, group, cluster, rules, mode }
    }
}

/// An error in words.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Journal {
    async fn part(&self, disks: &[Device]) -> Result<Partition<Device>, String> {
        Ok(match self.place {
            Place::Other => Partition::new(disks[1].clone(), 0, LOG),
            Place::Behind => Partition::new(disks[0].clone(), FS, LOG),
            Place::File => {
                let found = find_superblock(&disks[0]).await.map_err(said)?;
                let runs = logfile::find(&disks[0], &found).await.map_err(said)?;
                Partition::of(disks[0].clone(), runs.ok_or("no log file")?)
            }
        })
    }
}

impl Scheme for Journal {
    fn name(&self) -> &str {
        self.name
    }

    fn promise(&self) -> Promise {
        let no_stale = self.mode.follows_contents();
        Promise { no_stale, ..Promise::journal(self.synchronous) }
    }

    fn format(&self) -> Option<&dyn DiskFormat> {
        Some(&UFS2)
    }

    fn devices(&self) -> Vec<u64> {
        match self.place {
            Place::Other => vec![FS, LOG],
            Place::Behind | Place::File => vec![FS + LOG],
        }
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let in_file = self.place == Place::File;
        let options = MkfsOptions {
            block_size: 4096,
            frag_size: 512,
            size: (!in_file).then_some(FS),
            ..MkfsOptions::default()
        };
        let now = rt.wall_time().0;
        mkfs(&disks[0], &options, now).await.map_err(said)?;
        if in_file {
            let options = MountOptions::default();
            let fs = mount(rt, disks[0].clone(), NoOrder, &options).await.map_err(said)?;
            logfile::make(&fs, LOG).await.map_err(said)?;
            fs.unmount().await.map_err(said)?;
        }
        let (part, options) = (self.part(disks).await?, ordo_wafs::MkfsOptions::default());
        ordo_wafs::mkfs(&part.erase(), &options, now).await.map(drop).map_err(said)
    }

    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Volume, String> {
        let options = JournalOptions {
            tick: Duration::from_millis(5),
            checkpoint_every: Duration::from_millis(5),
            rules: self.rules,
            mode: self.mode,
            shares_device: self.place != Place::Other,
            ..JournalOptions::wafs(self.synchronous)
        };
        let fs = self.mount_with(rt, disks, cache, options).await?;
        Ok(Volume::new(fs, |fs| async move { fs.unmount().await }))
    }

    async fn recover(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let volume = self.mount(rt, disks, &CacheConfig::default()).await?;
        volume.unmount().await.map_err(said)
    }

    fn recovers(&self) -> bool {
        true
    }
}

impl Journal {
    async fn mount_with(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
        journal: JournalOptions,
    ) -> Result<FastFs, String> {
        let options = ordo_wafs::MountOptions {
            cluster: self.cluster,
            // Some logs skip sectors, some do not.
            skip_sectors: if self.group { 2 } else { 0 },
            group: self
                .group
                .then_some(GroupCommit { delay: Duration::from_micros(200), batch: 4 }),
            // Recovery has the whole log in memory, or only its beginning.
            keep: if self.group == self.synchronous { 1 << 20 } else { 3000 },
            ..ordo_wafs::MountOptions::default()
        };
        let log = Wafs::mount(rt, self.part(disks).await?, &options).await.map_err(said)?;
        let journal = JournalOrder::new(rt, log, journal);
        let options = MountOptions { cache: cache.clone(), ..MountOptions::default() };
        mount(rt, disks[0].clone(), journal, &options).await.map_err(said)
    }
}

/// Every form, with and without group commit.
fn all() -> Vec<Journal> {
    vec![
        Journal::new("lffs-file", Place::File, false, false),
        Journal::new("lffs-file-group", Place::File, false, true),
        Journal::new("lffs-wafs-1sync", Place::Behind, true, false),
        Journal::new("lffs-wafs-1sync-group", Place::Behind, true, true),
        Journal::new("lffs-wafs-1async", Place::Behind, false, false),
        Journal::new("lffs-wafs-1async-group", Place::Behind, false, true),
        Journal::new("lffs-wafs-2sync", Place::Other, true, false),
        Journal::new("lffs-wafs-2sync-group", Place::Other, true, true),
        Journal::new("lffs-wafs-2async", Place::Other, false, false),
        Journal::new("lffs-wafs-2async-group", Place::Other, false, true),
    ]
}

pub fn go(scheme: &Journal, model: CrashModel, seed: u64, states: usize) -> Outcome {
    let script = Script::random(seed, 3, 60);
    explore(scheme, &script, &Config::new(seed, model), &budget(states)).unwrap()
}

pub fn budget(states: usize) -> Budget {
    Budget { states, recovery_every: 200, recovery_depth: 2, ..Budget::default() }
}

/// The runs of each form: the disk's model, and the seed of the script.
pub const RUNS: [(CrashModel, u64); 6] = [
    (CrashModel::Volatile, 0),
    (CrashModel::Volatile, 1),
    (CrashModel::Volatile, 2),
    (CrashModel::Completed, 3),
    (CrashModel::Prefix, 4),
    (CrashModel::Volatile, 5),
];

/// A hundred thousand states and more, of every form. Would catch a record that is missing, too
/// late, or redone over newer data; a recovery that cannot be interrupted; a dependency of one
/// device on the other.
#[test]
fn a_journal_keeps_its_promises_in_a_hundred_thousand_states() {
    let (mut states, mut in_recovery) = (0, 0);
    for scheme in all() {
        for (model, seed) in RUNS {
            let script = Script::random(seed, 3, 90);
            let outcome =
                explore(&scheme, &script, &Config::new(seed, model), &budget(1800)).unwrap();
            outcome.expect_kept(&format!("{}, {model:?}, seed {seed}", scheme.name));
            states += outcome.counts.states;
            in_recovery += outcome.counts.in_recovery;
        }
    }
    println!("{states} states, {in_recovery} after recoveries cut off");
    assert!(states >= 100_000 && in_recovery > 2000, "{states}, {in_recovery}");
}

/// Rules and explanations use the meaning of a write. Would catch a log whose writes have no name
/// when it is alone on its device.
#[test]
fn log_writes_are_named_as_such_in_every_place_of_the_log() {
    for scheme in all() {
        let run = record(&scheme, &Script::random(3, 2, 40), &Config::new(3, CrashModel::Volatile));
        let (disks, alone) = (run.unwrap().disks, scheme.place == Place::Other);
        let is_log = |w: &&ordo_crash::run::Write| w.class == Class::Log;
        let logged = disks.iter().flat_map(|d| &d.writes).filter(is_log).count();
        assert!(logged > 10, "{}: {logged}", scheme.name);
        if alone {
            assert_eq!(disks[1].writes.iter().filter(is_log).count(), disks[1].writes.len());
            assert_eq!(disks[0].writes.iter().filter(is_log).count(), 0);
        }
    }
}

/// Holes are punched in files, wherever the pointers to their blocks are: see `holes.rs`.
#[test]
fn punched_holes_are_logged() {
    for (scheme, seed) in all().iter().step_by(3).zip(0..) {
        let script = Script::random_holes(seed, 2, 90);
        let outcome =
            explore(scheme, &script, &Config::new(seed, CrashModel::Volatile), &budget(400))
                .unwrap();
        outcome.expect_kept(&format!("{}, seed {seed}", scheme.name));
    }
}

/// Each rule prevents damage that is found without it. Otherwise the rule has no use, or the
/// harness cannot find its absence. (Two rules have tests of their own below, a third one in
/// `appends.rs`, a fourth in `datasync.rs`, and those about file contents in `journal_modes.rs`.)
#[test]
fn every_rule_of_the_journal_is_missed() {
    let elsewhere = JournalRules::REVOKE
        | JournalRules::HOLD
        | JournalRules::LAND
        | JournalRules::DATASYNC_KEEPS_SIZE
        | ordo_systems::journaled::OF_CONTENTS;
    for rule in (JournalRules::all() - elsewhere).iter() {
        let broken = |seed: u64| {
            all().into_iter().any(|scheme| {
                let scheme = Journal { rules: JournalRules::all() - rule, ..scheme };
                go(&scheme, CrashModel::Volatile, seed, 600).counts.promise_broken > 0
            })
        };
        assert!((0..12).any(broken), "without {rule:?} nothing was ever found");
    }
}

/// A directory's block, with records in the log, is freed and allocated to a file, whose contents
/// are made durable. Returns whether they are there after a crash.
fn contents_after_reuse(rules: JournalRules) -> bool {
    let scheme = Journal { rules, ..Journal::new("reuse", Place::Other, false, false) };
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disks = [Rc::new(RamDisk::new(FS)), Rc::new(RamDisk::new(LOG))];
    let cache = CacheConfig::default();
    let data = |n: u8| vec![n + 1; 16 << 10];
    let inos = executor.block_on(async {
        scheme.make(&rt, &Device::of_each(&disks)).await.unwrap();
        let slow = JournalOptions { rules, ..JournalOptions::wafs(false) };
        let fs = scheme.mount_with(&rt, &Device::of_each(&disks), &cache, slow).await.unwrap();
        let dir = fs.create(fs.root(), b"dir", &NewNode::directory(0o755)).await.unwrap().ino;
        for n in 0..40u8 {
            let name = [vec![b'n'; 100], vec![b'0' + n]].concat();
            fs.create(dir, &name, &NewNode::file(0o644)).await.unwrap();
        }
        for n in 0..40u8 {
            fs.unlink(dir, &[vec![b'n'; 100], vec![b'0' + n]].concat()).await.unwrap();
        }
        fs.rmdir(fs.root(), b"dir").await.unwrap();
        // Files are made until the device is full, so one of them has the block.
        let mut inos = Vec::new();
        for n in 0..60u8 {
            let Ok(file) = fs.create(fs.root(), &[b'a', n + 48], &NewNode::file(0o644)).await
            else {
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
        let volume = scheme.mount(&rt, &Device::of_each(&disks), &cache).await.unwrap();
        let fs = volume.fs();
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

/// A file is removed, but the removal is not durable. Another file gets its blocks, and the cache
/// writes them. The power fails, and the removal is rolled back. Returns whether the first file
/// still has its contents.
fn contents_after_removal_rolled_back(rules: JournalRules) -> bool {
    let scheme = Journal::new("hold", Place::Other, false, false);
    let scheme = Journal { rules, cluster: 1 << 20, ..scheme };
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disks = [Rc::new(RamDisk::new(FS)), Rc::new(RamDisk::new(LOG))];
    let cache = CacheConfig::default();
    let old = vec![7; 200 << 10];
    let work = async {
        scheme.make(&rt, &Device::of_each(&disks)).await.unwrap();
        let slow = JournalOptions {
            tick: Duration::from_secs(1000),
            rules,
            ..JournalOptions::wafs(false)
        };
        let fs = scheme.mount_with(&rt, &Device::of_each(&disks), &cache, slow).await.unwrap();
        let file = fs.create(fs.root(), b"old", &NewNode::file(0o644)).await.unwrap().ino;
        assert_eq!(fs.write(file, 0, &old).await.unwrap(), old.len());
        let rest = fs.create(fs.root(), b"rest", &NewNode::file(0o644)).await.unwrap().ino;
        // The device is filled, so that only the first file's blocks are free afterwards.
        let _ = fs.write(rest, 0, &vec![5; FS as usize]).await;
        fs.sync().await.unwrap();
        fs.unlink(fs.root(), b"old").await.unwrap();
        // Files are made until the device is full, so they have its blocks.
        for n in 0..40u8 {
            let new = fs.create(fs.root(), &[b'n', n + 48], &NewNode::file(0o644)).await.unwrap();
            if !fs.write(new.ino, 0, &[9; 32 << 10]).await.is_ok_and(|done| done == 32 << 10) {
                break;
            }
            // The write is the one that the syncer would do now.
            let cache = fs.layout().cache();
            let writes = async {
                let _ = cache.flush_file(new.ino.0).await;
            };
            select(writes, rt.sleep(Duration::from_millis(1))).await;
        }
        let there = disks.each_ref().map(|disk| Rc::new(disk.snapshot()));
        assert!(fs.lookup(fs.root(), b"old").await.is_err());
        there
    };
    let disks = executor.block_on(work).unwrap();
    let executor = Executor::simulated(2);
    let rt = executor.runtime();
    let same = executor.block_on(async {
        let volume = scheme.mount(&rt, &Device::of_each(&disks), &cache).await.unwrap();
        let fs = volume.fs();
        let Ok(file) = fs.lookup(fs.root(), b"old").await else {
            // The removal was certain before anything was written, which is right too.
            return true;
        };
        let mut there = vec![0; old.len()];
        fs.read(file.ino, 0, &mut there).await.unwrap();
        there == old
    });
    same.unwrap()
}

#[test]
fn a_block_is_not_written_to_before_it_is_certainly_free() {
    assert!(contents_after_removal_rolled_back(JournalRules::all()));
    assert!(!contents_after_removal_rolled_back(JournalRules::all() - JournalRules::HOLD));
}

/// Explores as many states as asked for: `JOURNAL_STATES=100000 cargo test -p ordo-crash --release
/// --test journal -- --ignored`.
#[test]
#[ignore = "a campaign"]
fn campaign() {
    let wanted =
        std::env::var("JOURNAL_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let mut states = 0;
    for seed in 100.. {
        for scheme in all() {
            for model in [CrashModel::Volatile, CrashModel::Completed, CrashModel::Prefix] {
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

/// A recovery is interrupted, so is the next one, and so on, five times. Would catch a recovery
/// that works only once, or depends on what an earlier one left in memory.
#[test]
fn a_recovery_that_is_cut_off_again_and_again_ends_in_the_same_state() {
    let budget = Budget {
        states: 60,
        usable_every: 0,
        recovery_every: 4,
        recovery_depth: 5,
        recovery_states: 4,
        ..Budget::default()
    };
    let mut cut_off = 0;
    for scheme in all() {
        let script = Script::random(7, 2, 60);
        let outcome =
            explore(&scheme, &script, &Config::new(7, CrashModel::Volatile), &budget).unwrap();
        outcome.expect_kept(scheme.name);
        cut_off += outcome.counts.in_recovery;
    }
    assert!(cut_off > 500, "{cut_off}");
}

/// Crash cycles: each run begins on what a crash has left of the one before, and is crashed
/// anywhere.
fn cycles(scheme: &Journal, seed: u64) -> Vec<Outcome> {
    let budget = Budget { states: 300, usable_every: 0, recovery_every: 0, ..Budget::default() };
    let config = Config::new(seed, CrashModel::Volatile);
    let work = |seed| Script::random_names(seed, 2, 25);
    cycle::explore(scheme, work, &config, &budget, 8).unwrap()
}

/// Crash cycles of every form. Would catch faults that no single run shows: records that one crash
/// left in the log and the next run joins to newer ones, a number that begins again.
#[test]
fn a_journal_keeps_its_promises_cycle_after_cycle() {
    for (scheme, seed) in all().iter().zip(0..) {
        let outcomes = cycles(scheme, seed);
        assert_eq!(outcomes.len(), 8, "{}", scheme.name);
        for (outcome, cycle) in outcomes.iter().zip(1..) {
            outcome.expect_kept(&format!("{}, seed {seed}, life {cycle}", scheme.name));
        }
    }
}
