//! The part of a comparison that runs in a guest: a workload in a directory, and the search for the
//! changes that a power cut has taken.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use ordo_runtime::cpu::CpuModel;
use ordo_runtime::{Backend, Executor, Runtime, Time};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::host::HostDir;
use ordo_vfs::{Errno, FileSystem, FsError, FsResult};
use ordo_workload::{Phase, PhaseListener, WorkloadStage};
use serde::{Deserialize, Serialize};

use crate::lost::{Lost, NameChanges, Noted, Notes};

/// The argument by which a program of the guest's is asked for a [`GuestJob`], whose file is the
/// next argument.
pub const ARGUMENT: &str = "guest-work";

/// The mark at which the power is cut.
pub(super) const CUT: &str = "cut";
/// The first word of the mark at the beginning of a phase.
pub(super) const BEGIN: &str = "begin ";

/// The file that empties the kernel's caches.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Something to do in a guest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum GuestJob {
    /// A workload.
    Work {
        /// Its text.
        workload: String,
        /// The seed of its choices.
        seed: u64,
        /// The directory.
        dir: PathBuf,
        /// The name of the processor's model.
        cpu: String,
        /// The phase in which the power is cut, and the part of it that is then done.
        cut: Option<(String, f64)>,
        /// The file for the [`WorkReport`].
        report: PathBuf,
    },
    /// The search for the oldest change that is not there.
    Lost {
        /// The directory.
        dir: PathBuf,
        /// The file with the [`Changes`].
        changes: PathBuf,
        /// The file for [`Found`].
        report: PathBuf,
    },
}

/// The changes of names and contents until a power cut.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Changes {
    /// The changes.
    pub(super) changes: NameChanges,
    /// The time of the cut, in nanoseconds of the same clock.
    pub(super) at_ns: u64,
}

/// The oldest lost change, or the reason why the files cannot be read.
pub(super) type Found = Result<Option<Lost>, String>;

/// The results of a workload.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct WorkReport {
    /// The phases that ended.
    pub(super) phases: Vec<Phase>,
    /// The wait of each fsync, in nanoseconds.
    pub(super) fsync_ns: Vec<u64>,
    /// The bytes that were written by calls.
    pub(super) written: u64,
    /// The reason why the workload ended early.
    pub(super) error: Option<String>,
    /// The changes until the power cut, if there was one.
    pub(super) cut: Option<Changes>,
}

/// The files that a process may have open: each inode that is in use has a descriptor.
const FILES_MAX: u64 = 1 << 20;

/// Raises the limit of open files of this process, for root.
///
/// # Errors
/// The caller is not root.
pub fn may_open_many() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limits = Rlimit { current: Some(FILES_MAX), maximum: Some(FILES_MAX) };
    Ok(setrlimit(Resource::Nofile, limits)?)
}

/// Does the job that a file describes, in a guest.
///
/// # Errors
/// The file is none, or a result cannot be written.
pub fn carry_out(file: &Path) -> io::Result<()> {
    let job: GuestJob = serde_json::from_slice(&fs::read(file)?)?;
    // A thread that sleeps for a price is woken at its nanosecond.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    may_open_many()?;
    let (report, text) = match job {
        GuestJob::Work { workload, seed, dir, cpu, cut, report } => {
            (report, serde_json::to_vec(&work(&workload, seed, dir, &cpu, cut))?)
        }
        GuestJob::Lost { dir, changes, report } => {
            let changes: Changes = serde_json::from_slice(&fs::read(changes)?)?;
            let lost = lost(&dir, &changes).map_err(|error| error.to_string());
            (report, serde_json::to_vec(&lost)?)
        }
    };
    fs::write(report, text)
}

fn lost(dir: &Path, changes: &Changes) -> FsResult<Option<Lost>> {
    let executor = Executor::real_on(Backend::Threads, 1);
    let dir = HostDir::open(dir)?;
    let found = changes.changes.oldest_lost(&dir, Time::from_nanos(changes.at_ns));
    executor.block_on(found).map_err(|stuck| FsError::with_detail(Errno::Io, stuck))?
}

fn work(
    workload: &str,
    seed: u64,
    dir: PathBuf,
    cpu: &str,
    cut: Option<(String, f64)>,
) -> WorkReport {
    let failed = |error: String| WorkReport { error: Some(error), ..WorkReport::default() };
    let workload = match crate::parse_workload(workload) {
        Ok(workload) => workload,
        Err(error) => return failed(error.to_string()),
    };
    let executor = Executor::real_on(Backend::Threads, seed);
    let runtime = executor.runtime();
    let host = match HostDir::open(&dir) {
        Ok(host) => host,
        Err(error) => return failed(error.to_string()),
    };
    runtime.cpu().set_model(CpuModel::by_name(cpu).unwrap_or(CpuModel::NONE));
    let notes: Notes = Rc::new(RefCell::new(cut.is_some().then(NameChanges::default)));
    let host = WithThreads::new(host, &runtime);
    let noted = Noted::new(host, runtime.clone(), notes.clone());
    let counts = noted.counts();
    let fs = WithCpuCost::new(noted, runtime.clone());
    let mut stage = GuestStage { fs, dir, runtime: runtime.clone() };
    let mut marks =
        Marks { runtime, notes, cut, phase: String::new(), ended: Vec::new(), changes: None };
    let ran = executor.block_on(workload.run(&mut stage, seed, &mut marks));
    let error = match ran {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(stuck) => Some(stuck.to_string()),
    };
    WorkReport {
        phases: marks.ended,
        fsync_ns: counts.fsync_ns.take(),
        written: counts.written.get(),
        error,
        cut: marks.changes,
    }
}

/// Sets a mark, for a program in a guest. It returns when the host has heard it.
pub fn mark(text: &str) {
    if let Some(control) = std::env::var_os("ORDO_MARK") {
        let _ = fs::write(control, format!("mark {text}\n"));
    }
}

/// The marks of phases, and of the power cut.
struct Marks {
    runtime: Runtime,
    notes: Notes,
    cut: Option<(String, f64)>,
    phase: String,
    ended: Vec<Phase>,
    changes: Option<Changes>,
}

impl PhaseListener for Marks {
    fn phase_start(&mut self, name: &str) {
        name.clone_into(&mut self.phase);
        mark(&format!("{BEGIN}{name}"));
    }

    fn progress(&mut self, _name: &str, done: u64, total: u64) {
        let Some((phase, share)) = &self.cut else { return };
        let is_time = *phase == self.phase && done as f64 >= share * total as f64;
        if is_time && self.changes.is_none() {
            mark(CUT);
            let changes = self.notes.take().unwrap_or_default();
            self.changes = Some(Changes { changes, at_ns: self.runtime.now().as_nanos() });
        }
    }

    fn ended(&mut self, phase: &Phase) {
        self.ended.push(phase.clone());
    }
}

/// A directory of the kernel's file system as a stage.
struct GuestStage {
    fs: WithCpuCost<Noted<WithThreads>>,
    dir: PathBuf,
    runtime: Runtime,
}

impl WorkloadStage for GuestStage {
    type Fs = WithCpuCost<Noted<WithThreads>>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.fs.sync().await?;
        empty_caches(&self.dir)
    }
}

/// Empties the kernel's caches, for a directory whose changes are durable.
///
/// # Errors
/// [`Errno::NotPermitted`]: the caller is not root.
pub fn empty_caches(dir: &Path) -> FsResult<()> {
    // A log holds metadata in memory until they are in their places; a freeze puts them there.
    for how in ["--freeze", "--unfreeze"] {
        let _ = Command::new("fsfreeze").arg(how).arg(dir).status();
    }
    fs::write(DROP_CACHES, "3").map_err(|_| Errno::NotPermitted.into())
}

/// A directory whose fsyncs each wait in a thread of their own, so that those of several clients
/// are under way at once.
pub struct WithThreads {
    dir: HostDir,
    runtime: Runtime,
}

impl WithThreads {
    /// The directory, whose threads wake tasks of `runtime`.
    pub fn new(dir: HostDir, runtime: &Runtime) -> WithThreads {
        WithThreads { dir, runtime: runtime.clone() }
    }
}

/// The result of a call in another thread, and the task that waits for it.
type Shared<T> = Arc<Mutex<(Option<T>, Option<Waker>)>>;

/// Makes a call in a thread of its own, and waits for it.
async fn apart<T: Send + 'static>(
    runtime: &Runtime,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let _source = runtime.external();
    let shared: Shared<T> = Arc::default();
    let other = shared.clone();
    let thread = std::thread::Builder::new().spawn(move || {
        let result = call();
        let mut state = other.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(result);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    })?;
    let result = std::future::poll_fn(|cx| {
        let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = Some(cx.waker().clone());
        state.0.take().map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    let _ = thread.join();
    Ok(result)
}

impl FileSystem for WithThreads {
    ordo_vfs::delegate! { this => this.dir; root, lookup, open, close, getattr, setattr, create, tmpfile, link, unlink, rmdir,
    rename, readlink, read, write, readdir, allocate, punch_hole, seek, extents, statfs, sync, getxattr, setxattr,
    listxattr, removexattr }

    async fn fsync(&self, ino: ordo_vfs::Ino) -> FsResult<()> {
        self.wait_for(ino, rustix::fs::fsync).await
    }

    async fn fdatasync(&self, ino: ordo_vfs::Ino) -> FsResult<()> {
        self.wait_for(ino, rustix::fs::fdatasync).await
    }
}

impl WithThreads {
    /// Makes a file durable by this call of the kernel, in a thread of its own.
    async fn wait_for(
        &self,
        ino: ordo_vfs::Ino,
        call: fn(OwnedFd) -> rustix::io::Result<()>,
    ) -> FsResult<()> {
        let fd: OwnedFd = self.dir.descriptor(ino)?;
        let done = apart(&self.runtime, move || call(fd)).await;
        done.map_err(io_error)?.map_err(|error| io_error(error.into()))
    }
}

fn io_error(error: io::Error) -> FsError {
    let errno = error.raw_os_error().and_then(Errno::from_raw).unwrap_or(Errno::Io);
    FsError::with_detail(errno, error)
}
