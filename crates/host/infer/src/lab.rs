//! One experiment: a file system of its own, work in it, and the resulting requests on the clock of
//! the work.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ordo_annotate::BlockRow;
use ordo_recorder::{DeviceSetup, KeepRequests};
use ordo_trace::RequestOp;
use ordo_watcher::Class;

use ordo_kernelfs::kernel::{KernelMount, LiveError, LiveSystem};
use ordo_kernelfs::rules::WriteRule;
use ordo_kernelfs::watching::{WatchOptions, WatchedTraffic};

/// A file system under experiment.
pub(super) struct Lab {
    mounted: KernelMount,
    lax: Arc<AtomicBool>,
}

/// A request, with its time in seconds since a moment that is the same for a whole run.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) op: RequestOp,
    pub(super) issued: Instant,
    pub(super) done: Option<Instant>,
    pub(super) blocks: Vec<BlockRow>,
}

impl Event {
    pub(super) fn bytes(&self, of: impl Fn(&BlockRow) -> bool) -> u64 {
        self.blocks.iter().filter(|b| of(b)).map(|b| b.len).sum()
    }

    pub(super) fn writes(&self, of: impl Fn(&BlockRow) -> bool) -> bool {
        self.op == RequestOp::Write && self.blocks.iter().any(of)
    }
}

/// The results of an experiment.
pub(super) struct Outcome {
    pub(super) events: Vec<Event>,
    pub(super) seen: WatchedTraffic,
}

pub(super) fn is_journal(b: &BlockRow) -> bool {
    b.kind.is_journal_traffic() && b.kind != Class::JournalSuperblock
}

impl Lab {
    pub(super) fn new(system: &LiveSystem, rules: &[&str]) -> Result<Lab, LiveError> {
        Lab::with(system, rules, false)
    }

    /// A file system whose rules are suspended from the beginning, and while it is mounted.
    pub(super) fn suspended(system: &LiveSystem, rules: &[&str]) -> Result<Lab, LiveError> {
        Lab::with(system, rules, true)
    }

    fn with(system: &LiveSystem, rules: &[&str], lax: bool) -> Result<Lab, LiveError> {
        super::go_on()?;
        let parsed: Result<Vec<WriteRule>, _> = rules.iter().map(|r| r.parse()).collect();
        let rules = parsed.map_err(|e| LiveError::Program(e.to_string()))?;
        let setup = DeviceSetup {
            keep: KeepRequests::Requests,
            keep_start: false,
            ..DeviceSetup::in_memory(system.bytes / 4096 * 4096)
        };
        let lax = Arc::new(AtomicBool::new(lax));
        let wanted = WatchOptions { rows: true, rules, lax: lax.clone(), tables: None };
        Ok(Lab { mounted: KernelMount::new(system, wanted, setup)?, lax })
    }

    /// Suspends the rules, or applies them again.
    pub(super) fn set_lax(&self, lax: bool) {
        self.lax.store(lax, Ordering::Relaxed);
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.mounted.dir().join(name)
    }

    /// Creates an empty, durable file.
    pub(super) fn file(&self, name: &str) -> Result<File, LiveError> {
        let path = self.path(name);
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true);
        let file = done(&path, how.open(&path))?;
        done(&path, file.sync_all())?;
        Ok(file)
    }

    /// Writes everything in memory to its fixed location, as far as the file system does that.
    pub(super) fn settle(&self) {
        // Only this file system is synced, since others have work of their own.
        if let Ok(dir) = File::open(self.mounted.dir()) {
            let _ = rustix::fs::syncfs(&dir);
        }
        std::thread::sleep(Duration::from_millis(100));
    }

    /// Writes an image of the contents that a crash at this moment would leave.
    pub(super) fn crash_image(&self, to: &Path) -> Result<(), LiveError> {
        self.mounted.crash_image(to)
    }

    /// Ends the experiment; its open files are closed first.
    pub(super) fn finish<T>(self, open: T) -> Result<Outcome, LiveError> {
        drop(open);
        let (recording, seen) = self.mounted.finish()?;
        let (here, there) = recording.clock;
        // Both clocks have the same rate and differ only in their origin.
        let at = |time: ordo_runtime::Time| {
            let before = there.since(time);
            here.checked_sub(before).unwrap_or(here)
        };
        let mut events: Vec<Event> = recording
            .trace
            .requests()
            .iter()
            .map(|r| Event {
                op: r.op,
                issued: at(r.issued),
                done: r.end.map(|end| at(end.at)),
                blocks: Vec::new(),
            })
            .collect();
        for row in &seen.rows {
            if let Some(event) = events.get_mut(row.request as usize) {
                event.blocks.push(row.clone());
            }
        }
        Ok(Outcome { events, seen })
    }
}

/// Turns the result of a call on a file into an error that names the file.
pub(super) fn done<T>(path: &Path, result: io::Result<T>) -> Result<T, LiveError> {
    result.map_err(|error| LiveError::Io { what: path.display().to_string(), error })
}

/// Writes `bytes` bytes at once, from `offset` on.
pub(super) fn fill(file: &File, offset: u64, bytes: usize) -> Result<(), LiveError> {
    let data = vec![0x5a; bytes];
    done(Path::new("a file"), file.write_all_at(&data, offset))
}

/// Appends a byte and makes it durable.
pub(super) fn touch(mut file: &File) -> Result<(), LiveError> {
    done(Path::new("a file"), file.write_all(b"x"))?;
    done(Path::new("a file"), file.sync_all())
}

/// Changes nothing but the file's inode.
pub(super) fn change_inode(file: &File, round: u32) -> Result<(), LiveError> {
    let mode = rustix::fs::Mode::from_raw_mode(0o600 | (round & 0o77));
    done(Path::new("a file"), rustix::fs::fchmod(file, mode).map_err(Into::into))
}
