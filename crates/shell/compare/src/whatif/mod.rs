//! Traces with calls, recorded in process in virtual time, of Ordo's journaled FFS in each of its
//! modes; and the same workload with a change really made.
//!
//! [`record`] makes the file system, prepares its files without a clock, runs the clients on a disk
//! model, and returns the requests, the calls and the seconds. Requests and calls have one clock,
//! so who waited for what is exact. `ordo_playback` plays the trace with a change; the truth is
//! [`record`] with the change in the [`JournalSetup`]. Prediction and truth share the disk model,
//! and nothing above it.

mod clients;

use std::path::Path;
use std::rc::Rc;

use ordo_annotate::calls::{StoredCall, find_waits};
use ordo_annotate::image::PIECE;
use ordo_annotate::owners;
use ordo_annotate::store::{self, Parts, StoreError, Written};
use ordo_annotate::{BlockRow, Pieces};
use ordo_block::model::{Model, Modeled};
use ordo_block::partition::Partition;
use ordo_block::ram::RamDisk;
use ordo_block::tap::{Recorder, Tap};
use ordo_block::{BlockDevice, Device};
use ordo_cache::CacheConfig;
use ordo_ffs::mkfs::MkfsOptions;
use ordo_ffs::{FastFs, MountOptions};
use ordo_ordering::{JournalMode, JournalOptions};
use ordo_playback::predict::{Input, PredictError, Predictor, Window};
use ordo_playback::traffic::SeenTrace;
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_systems::GroupCommit;
use ordo_systems::journaled::{Journaled, LogPlace};
use ordo_trace::Trace;
use ordo_vfs::FileSystem;
use ordo_watcher::Watch;
use ordo_watcher::analysis::WatchFindings;

pub use clients::{SyncClients, TaskKind};

/// The block of the file system in bytes. Fragments are whole blocks.
pub const BLOCK: u64 = 4096;

/// A part of a disk: its first byte and its length.
type Extent = (u64, u64);

/// The place of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LogAt {
    /// Behind the file system.
    End,
    /// In it: the file system lies around the log, which begins at this part of the disk, in
    /// thousandths.
    Permille(u64),
    /// On a disk of its own.
    Disk(&'static Model),
}

/// A journaled file system on a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JournalSetup {
    /// The disk.
    pub disk: &'static Model,
    /// The place of the log.
    pub log_at: LogAt,
    /// The modes of the journal.
    pub mode: JournalMode,
    /// Group commit.
    pub group: Option<GroupCommit>,
    /// The size of the disk in bytes, the log included if it is there.
    pub bytes: u64,
    /// The size of the log in bytes.
    pub log_bytes: u64,
    /// The interval at which the log is written and its start moved.
    pub tick: Duration,
    /// The seed of the clients' choices.
    pub seed: u64,
}

impl JournalSetup {
    /// A file system of 512 MB with a log of 8 MB behind it, in ext3's way: contents before the
    /// records, the commit record by itself, everything committed together.
    pub fn usual(disk: &'static Model) -> JournalSetup {
        JournalSetup {
            disk,
            log_at: LogAt::End,
            mode: JournalMode::default(),
            group: None,
            bytes: 512 << 20,
            log_bytes: 8 << 20,
            tick: Duration::from_secs(5),
            seed: 1,
        }
    }

    /// The same with options of the journal, as `contents=data`.
    ///
    /// # Panics
    /// There is no such option.
    #[must_use]
    pub fn with(self, options: &[&str]) -> JournalSetup {
        let mut mode = self.mode;
        for option in options {
            let (key, value) = option.split_once('=').expect("an option with a value");
            mode.set(key, value).unwrap_or_else(|error| panic!("{option}: {error}"));
        }
        JournalSetup { mode, ..self }
    }

    fn journaled(&self) -> Journaled {
        let mut options = JournalOptions { tick: self.tick, ..JournalOptions::wafs(true) };
        options.mode = self.mode;
        options.tick = self.mode.every.unwrap_or(self.tick);
        // A log of which nothing is written before somebody waits for it.
        let usual = Journaled::new(LogPlace::Other, true, self.group);
        Journaled { options, log_bytes: Some(self.log_bytes), ..usual }
    }

    /// The parts of the disk for the file system, and for the log if it is there.
    fn parts(&self) -> (Vec<Extent>, Option<Extent>) {
        let rest = self.bytes - self.log_bytes;
        match self.log_at {
            LogAt::End => (vec![(0, rest)], Some((rest, self.log_bytes))),
            LogAt::Permille(part) => {
                let at = (self.bytes / 1000 * part).min(rest) / BLOCK * BLOCK;
                let runs = vec![(0, at), (at + self.log_bytes, rest - at)];
                let runs = runs.into_iter().filter(|run| run.1 > 0).collect();
                (runs, Some((at, self.log_bytes)))
            }
            LogAt::Disk(_) => (vec![(0, self.bytes)], None),
        }
    }

    /// The file system's device and the log's, over the disks.
    fn devices(&self, disk: Device, log: Device) -> [Device; 2] {
        let (runs, own) = self.parts();
        let log = match own {
            Some((at, len)) => Partition::new(disk.clone(), at, len),
            None => Partition::new(log, 0, self.log_bytes),
        };
        [Partition::of(disk, runs).erase(), log.erase()]
    }
}

/// A run of clients, and what it sent.
pub struct RecordedRun {
    /// The requests to the first disk.
    pub trace: Trace,
    /// Their blocks.
    pub rows: Vec<BlockRow>,
    /// The calls, with the requests that they waited for.
    pub calls: Vec<StoredCall>,
    /// The seconds from the first call to the last one's end.
    pub seconds: f64,
    /// The bytes that were appended to the log in that time.
    pub log_bytes: u64,
    /// Seconds that an fsync took, on average.
    pub of_sync: f64,
    /// Seconds of the client that syncs least, from its first call to its last one's end.
    pub of_quietest: f64,
    found: WatchFindings,
    bytes: u64,
    disk: &'static Model,
    /// The log's first byte, if it is on the disk.
    log_first: Option<u64>,
    /// The disk before the calls.
    before: RamDisk,
}

impl RecordedRun {
    /// Writes the trace with its calls to a directory, as `ordo trace run --calls -o` does.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn store(&self, dir: &Path) -> Result<Written, StoreError> {
        let mut start = Pieces { bytes: self.bytes, ..Pieces::default() };
        let mut piece = vec![0; PIECE as usize];
        for at in (0..self.bytes / PIECE).map(|n| n * PIECE) {
            self.before.load(at, &mut piece);
            if piece.iter().any(|byte| *byte != 0) {
                start.known.insert(at, piece.as_slice().into());
            }
        }
        let parts = Parts {
            trace: &self.trace,
            blocks: &self.rows,
            shares: &[],
            calls: &self.calls,
            start: &start,
            system: &self.found.system,
            found: Some(&self.found),
        };
        store::write(dir, &parts)
    }

    /// The known part of the disk before the calls: the log's superblock.
    pub fn start(&self) -> Pieces {
        let mut start = Pieces { bytes: self.bytes, ..Pieces::default() };
        if let Some(at) = self.log_first {
            let at = at / PIECE * PIECE;
            let mut piece = vec![0; PIECE as usize];
            self.before.load(at, &mut piece);
            start.known.insert(at, piece.into());
        }
        start
    }

    /// Plays the trace.
    ///
    /// # Errors
    /// The trace cannot be played.
    pub fn predictor<'a>(&'a self, start: &'a Pieces) -> Result<Predictor<'a>, PredictError> {
        let (trace, rows, calls) = (&self.trace, &*self.rows, &*self.calls);
        let (bytes, disk) = (self.bytes, Some(self.disk));
        let seen = SeenTrace::of(trace, rows, calls)?;
        let contents = trace;
        let input = Input { contents, calls, start, system: "ufs2", bytes, disk, depth: 1 };
        Predictor::new(input, seen, &Window::default())
    }
}

/// Runs clients on a file system.
pub fn record(setup: &JournalSetup, clients: &SyncClients) -> RecordedRun {
    let executor = Executor::simulated(setup.seed);
    let rt = executor.runtime();
    let ran = executor.block_on(recorded(&rt, setup, clients)).expect("no deadlock");
    let Ran { trace, rows, found, mut calls, log_bytes, before } = ran;
    find_waits(&mut calls, &trace, &rows);
    let begin = calls.iter().map(|call| call.began).min().unwrap_or(0);
    let end = calls.iter().map(|call| call.ended).max().unwrap_or(0);
    let syncs: Vec<u64> =
        calls.iter().filter(|c| c.name == "fsync").map(|c| c.ended - c.began).collect();
    let of_sync = syncs.iter().sum::<u64>() as f64 / 1e9 / syncs.len().max(1) as f64;
    RecordedRun {
        of_quietest: quietest(&calls),
        trace,
        rows,
        found,
        seconds: (end - begin) as f64 / 1e9,
        log_bytes,
        of_sync,
        calls,
        before,
        bytes: setup.bytes,
        disk: setup.disk,
        log_first: setup.parts().1.map(|(at, _)| at),
    }
}

/// The seconds of the client that syncs least.
fn quietest(calls: &[StoredCall]) -> f64 {
    let mut clients: std::collections::BTreeMap<u64, (usize, u64, u64)> = Default::default();
    for call in calls {
        let one = clients.entry(call.process).or_insert((0, call.began, call.ended));
        one.0 += usize::from(call.name == "fsync");
        one.2 = call.ended;
    }
    let one = clients.values().min_by_key(|one| one.0);
    one.map_or(0.0, |(_, begin, end)| (end - begin) as f64 / 1e9)
}

struct Ran {
    trace: Trace,
    rows: Vec<BlockRow>,
    found: WatchFindings,
    calls: Vec<StoredCall>,
    log_bytes: u64,
    before: RamDisk,
}

async fn recorded(rt: &Runtime, setup: &JournalSetup, clients: &SyncClients) -> Ran {
    let ram = Rc::new(RamDisk::new(setup.bytes));
    let log_ram = Rc::new(RamDisk::new(setup.log_bytes));
    let journaled = setup.journaled();
    let plain = setup.devices(ram.clone().erase(), log_ram.clone().erase());
    let options =
        MkfsOptions { block_size: BLOCK as u32, frag_size: BLOCK as u32, ..MkfsOptions::default() };
    journaled.make(rt, &plain, &options).await.expect("legal sizes");
    let mount = MountOptions {
        cache: CacheConfig { dirty_max: 240 << 20, ..CacheConfig::with_capacity(320 << 20) },
        use_reserve: true,
        ..MountOptions::default()
    };
    // The files are made below the disk model, so that this takes no time.
    let (fs, _) = journaled.mount(rt, &plain, &mount).await.expect("a new file system");
    clients.prepare(&fs).await;
    fs.unmount().await.expect("a disk in memory");
    let log_disk = match setup.log_at {
        LogAt::Disk(model) => model,
        LogAt::End | LogAt::Permille(_) => setup.disk,
    };
    let tap = Rc::new(Tap::new(rt, Modeled::new(rt, setup.disk, ram.clone())));
    let log = Rc::new(Modeled::new(rt, log_disk, log_ram.clone()));
    let devices = setup.devices(tap.clone().erase(), log.erase());
    let (fs, journal) = journaled.mount(rt, &devices, &mount).await.expect("it was unmounted");
    clients.warm(&fs).await;
    fs.sync().await.expect("a disk in memory");
    let before_ram = ram.snapshot();
    let watch = Watch::over_any(&before_ram);
    let recorder = Recorder::new(true);
    tap.attach(recorder.clone());
    let before = journal.log().stats().bytes;
    let calls = run(rt, setup, &fs, clients).await;
    let log_bytes = journal.log().stats().bytes - before;
    fs.unmount().await.expect("a disk in memory");
    let mut trace = recorder.with(|records| Trace::from_records(records, 512));
    trace.set_disk(Some(setup.disk.name));
    let rows = owners::of_trace(&trace, &watch);
    let found = WatchFindings::of(&watch);
    Ran { trace, rows, found, calls, log_bytes, before: before_ram }
}

async fn run(
    rt: &Runtime,
    setup: &JournalSetup,
    fs: &FastFs,
    clients: &SyncClients,
) -> Vec<StoredCall> {
    let tasks: Vec<_> = (0..clients.tasks.len())
        .map(|n| {
            let (fs, rt, clients, seed) = (fs.clone(), rt.clone(), clients.clone(), setup.seed);
            rt.clone().spawn("a client", async move { clients.run(&rt, &fs, n, seed).await })
        })
        .collect();
    let mut calls = Vec::new();
    for task in tasks {
        calls.extend(task.await);
    }
    calls.sort_by_key(|call| (call.began, call.process));
    calls
}
