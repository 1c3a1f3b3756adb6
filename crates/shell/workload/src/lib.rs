//! Workloads: sequences of operations on a file system, in phases that are timed separately.
//!
//! A [`Workload`] is parsed from a short text (`postmark:small`, `tree:/usr/include`), runs on any
//! [`WorkloadStage`], and gives its [`Phase`]s. [`age`](mod@age) makes and removes files until a
//! file system has aged.
//!
//! Invariants:
//! - A seed fixes every choice; time comes from the runtime. The same run gives the same
//!   operations.
//! - A workload gets an empty file system, and leaves an empty one unless its documentation says
//!   otherwise.
//!
//! ```
//! use ordo_workload::Workload;
//! let workload: Workload = "postmark:files=10,transactions=20".parse().unwrap();
//! assert!(workload.to_string().starts_with("postmark:files=10"));
//! assert!("postmark:fish=10".parse::<Workload>().is_err());
//! ```

pub mod age;
mod andrew_like;
mod calls;
mod create_delete;
mod filebench;
mod files;
mod generated;
mod kernel_build;
mod mail_server;
mod micro;
mod netnews;
mod overwrite;
mod parse;
mod pool;
mod postmark;
mod processor;
mod sdet_like;
mod sources;
mod specweb_like;
mod ssh_build;
mod tally;
mod tpcb;
mod tpcc_like;
mod tree;

use std::fmt;

use ordo_runtime::{Runtime, Time};
use ordo_vfs::{FileSystem, FsError, FsResult};

pub use andrew_like::AndrewLike;
pub use calls::{Calls, ReadCalls};
pub use create_delete::CreateDelete;
pub use filebench::{Filebench, PERSONALITIES, WmlError, WmlPlace, WmlProblem};
pub use generated::Generated;
pub use kernel_build::KernelBuild;
pub use mail_server::MailServer;
pub use micro::Micro;
pub use netnews::Netnews;
pub use overwrite::Overwrite;
pub use parse::{ParseError, SYNTAX};
pub use postmark::PostMark;
pub use sdet_like::SdetLike;
pub use sources::{Benchmark, Sources};
pub use specweb_like::SpecwebLike;
pub use ssh_build::SshBuild;
pub use tpcb::Tpcb;
pub use tpcc_like::TpccLike;
pub use tree::{Source, SourceTree};

/// The place where a workload runs: a mounted file system, and the clock that times its phases.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait WorkloadStage {
    /// The type of the file system.
    type Fs: FileSystem;

    /// The mounted file system, which is empty at the start.
    fn fs(&self) -> &Self::Fs;

    /// The runtime whose clock times the phases.
    fn runtime(&self) -> &Runtime;

    /// Makes everything durable and empties every cache, as unmounting and mounting again does.
    ///
    /// # Errors
    /// The file system's error.
    async fn drop_caches(&mut self) -> FsResult<()>;
}

/// A phase of a workload, with its times.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Phase {
    /// The phase's name, such as `create 2 KB`.
    pub name: String,
    /// The number of operations: files created, transactions done.
    pub operations: u64,
    /// The number of bytes read and written by the application.
    pub bytes: u64,
    /// The number of files, links and directories created.
    pub files_made: u64,
    /// The beginning, in seconds on the stage's clock.
    pub start_seconds: f64,
    /// The end, in seconds on the stage's clock.
    pub end_seconds: f64,
    /// The kinds of operations, in a phase that mixes some. `operations` and `bytes` have the sums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<MixEntry>,
}

/// A kind of operation in a phase that mixes some.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MixEntry {
    /// The name of the kind.
    pub name: String,
    /// The number of operations.
    pub operations: u64,
    /// The bytes that they read and wrote.
    pub bytes: u64,
    /// The time that they took, in seconds: the sum over all clients.
    pub seconds: f64,
}

impl Phase {
    /// The duration, in seconds.
    pub fn seconds(&self) -> f64 {
        self.end_seconds - self.start_seconds
    }

    /// Operations a second; `None` if the phase took no time.
    pub fn rate(&self) -> Option<f64> {
        (self.seconds() > 0.0).then(|| self.operations as f64 / self.seconds())
    }
}

/// A receiver of a run's progress.
pub trait PhaseListener {
    /// `done` of `total` steps of the phase `name` are done.
    fn progress(&mut self, name: &str, done: u64, total: u64) {
        let _ = (name, done, total);
    }

    /// A phase begins.
    fn phase_start(&mut self, name: &str) {
        let _ = name;
    }

    /// A phase is done.
    fn ended(&mut self, phase: &Phase) {
        let _ = phase;
    }
}

impl PhaseListener for () {}

/// The reason why a workload stopped.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file system returned an error.
    #[error("{doing}: {error}")]
    FileSystem {
        /// The operation of the workload.
        doing: String,
        /// The file system's error.
        error: FsError,
    },
    /// The directory that is to be copied cannot be used.
    #[error("source directory: {0}")]
    Source(FsError),
    /// Bytes that were read differ from those written.
    #[error(
        "the contents that were read differ from those written in {count} place(s); the first: {first}"
    )]
    Differs {
        /// The number of differences.
        count: u64,
        /// The first difference.
        first: String,
    },
    /// A personality asks for something that cannot be done.
    #[error(transparent)]
    Wml(#[from] WmlError),
}

/// Adds the operation of the workload to an error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, WorkloadError>;
}

impl<T> Doing<T> for FsResult<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, WorkloadError> {
        self.map_err(|error| WorkloadError::FileSystem { doing: what(), error })
    }
}

/// A workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Empty files, created and removed one after another.
    CreateDelete(CreateDelete),
    /// Files of many sizes, created, read, written and removed.
    Micro(Micro),
    /// Katcher's PostMark.
    PostMark(PostMark),
    /// A directory of the host, copied in, compared and removed.
    Tree(SourceTree),
    /// Copies of a source tree, unpacked, looked through, read, copied and removed.
    Sources(Sources),
    /// A program unpacked, configured and built.
    SshBuild(SshBuild),
    /// A news server.
    Netnews(Netnews),
    /// Random overwrites on a file system that stays at one level of fullness.
    Overwrite(Overwrite),
    /// Transactions like those of TPC-B.
    Tpcb(Tpcb),
    /// A personality of filebench.
    Filebench(Filebench),
    /// Users who each carry out a script of commands.
    SdetLike(SdetLike),
    /// A mail server around the clock.
    MailServer(MailServer),
    /// A web server with static files and logs.
    SpecwebLike(SpecwebLike),
    /// Transactions like those of TPC-C.
    TpccLike(TpccLike),
    /// A kernel built from its sources.
    KernelBuild(KernelBuild),
    /// A small source tree copied, scanned, read and built.
    AndrewLike(AndrewLike),
    /// Recorded system calls.
    Calls(Calls),
}

impl Workload {
    /// One sentence for a person.
    pub fn describe(&self) -> String {
        match self {
            Workload::CreateDelete(w) => w.describe(),
            Workload::Micro(w) => w.describe(),
            Workload::PostMark(w) => w.describe(),
            Workload::Tree(w) => w.describe(),
            Workload::Sources(w) => w.describe(),
            Workload::SshBuild(w) => w.describe(),
            Workload::Netnews(w) => w.describe(),
            Workload::Overwrite(w) => w.describe(),
            Workload::Tpcb(w) => w.describe(),
            Workload::Filebench(w) => w.describe(),
            Workload::SdetLike(w) => w.describe(),
            Workload::MailServer(w) => w.describe(),
            Workload::SpecwebLike(w) => w.describe(),
            Workload::TpccLike(w) => w.describe(),
            Workload::KernelBuild(w) => w.describe(),
            Workload::AndrewLike(w) => w.describe(),
            Workload::Calls(w) => w.describe(),
        }
    }

    /// The approximate bytes of contents that exist at once, for which a disk must have space.
    pub fn footprint(&self) -> u64 {
        match self {
            // The parameters of overwrites set how much of a file system is in use.
            Workload::CreateDelete(_) | Workload::Overwrite(_) => 0,
            Workload::Micro(w) => w.footprint(),
            Workload::PostMark(w) => w.footprint(),
            Workload::Tree(w) => w.footprint(),
            Workload::Sources(w) => w.footprint(),
            Workload::SshBuild(w) => w.footprint(),
            Workload::Netnews(w) => w.footprint(),
            Workload::Tpcb(w) => w.footprint(),
            Workload::Filebench(w) => w.footprint(),
            Workload::SdetLike(w) => w.footprint(),
            Workload::MailServer(w) => w.footprint(),
            Workload::SpecwebLike(w) => w.footprint(),
            Workload::TpccLike(w) => w.footprint(),
            Workload::KernelBuild(w) => w.footprint(),
            Workload::AndrewLike(w) => w.footprint(),
            Workload::Calls(w) => w.footprint(),
        }
    }

    /// The phase in whose middle the power is cut.
    pub fn crash_phase(&self) -> String {
        match self {
            Workload::CreateDelete(_) => "create-delete".into(),
            Workload::Micro(w) => w.crash_phase(),
            Workload::PostMark(_) | Workload::Tpcb(_) | Workload::TpccLike(_) => {
                "transactions".into()
            }
            Workload::SpecwebLike(_) => "requests".into(),
            Workload::KernelBuild(_) => "compile".into(),
            Workload::Tree(_) => "copy in".into(),
            Workload::Sources(w) => w.only.map_or("write-data-meta", |only| only.name).into(),
            Workload::SshBuild(_) => "unpack".into(),
            Workload::AndrewLike(_) => "copy".into(),
            Workload::Calls(_) => "calls".into(),
            Workload::Netnews(_) => "unbatch".into(),
            Workload::Overwrite(_) => "overwrite".into(),
            Workload::Filebench(_) => "run".into(),
            Workload::SdetLike(_) => "scripts".into(),
            Workload::MailServer(_) => "mail".into(),
        }
    }

    /// Runs the workload on `stage`, whose file system is empty. Most workloads leave it empty; a
    /// build, servers, overwrites, transactions, scripts, recorded calls and personalities of
    /// filebench leave their files.
    ///
    /// # Errors
    /// [`WorkloadError`]. The phases that were done are lost.
    pub async fn run<S: WorkloadStage>(
        &self,
        stage: &mut S,
        seed: u64,
        watch: &mut dyn PhaseListener,
    ) -> Result<Vec<Phase>, WorkloadError> {
        let log = Log { watch, phases: Vec::new(), open: None };
        let mut run = Run { stage, log };
        match self {
            Workload::CreateDelete(w) => w.run(&mut run).await?,
            Workload::Micro(w) => w.run(&mut run, seed).await?,
            Workload::PostMark(w) => w.run(&mut run, seed).await?,
            Workload::Tree(w) => w.run(&mut run).await?,
            Workload::Sources(w) => w.run(&mut run, seed).await?,
            Workload::SshBuild(w) => w.run(&mut run, seed).await?,
            Workload::Netnews(w) => w.run(&mut run, seed).await?,
            Workload::Overwrite(w) => w.run(&mut run, seed).await?,
            Workload::Tpcb(w) => w.run(&mut run, seed).await?,
            Workload::Filebench(w) => w.run(&mut run, seed).await?,
            Workload::SdetLike(w) => w.run(&mut run, seed).await?,
            Workload::MailServer(w) => w.run(&mut run, seed).await?,
            Workload::SpecwebLike(w) => w.run(&mut run, seed).await?,
            Workload::TpccLike(w) => w.run(&mut run, seed).await?,
            Workload::KernelBuild(w) => w.run(&mut run, seed).await?,
            Workload::AndrewLike(w) => w.run(&mut run, seed).await?,
            Workload::Calls(w) => w.run(&mut run, seed).await?,
        }
        Ok(run.log.phases)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::CreateDelete(w) => write!(f, "{w}"),
            Workload::Micro(w) => write!(f, "{w}"),
            Workload::PostMark(w) => write!(f, "{w}"),
            Workload::Tree(w) => write!(f, "{w}"),
            Workload::Sources(w) => write!(f, "{w}"),
            Workload::SshBuild(w) => write!(f, "{w}"),
            Workload::Netnews(w) => write!(f, "{w}"),
            Workload::Overwrite(w) => write!(f, "{w}"),
            Workload::Tpcb(w) => write!(f, "{w}"),
            Workload::Filebench(w) => write!(f, "{w}"),
            Workload::SdetLike(w) => write!(f, "{w}"),
            Workload::MailServer(w) => write!(f, "{w}"),
            Workload::SpecwebLike(w) => write!(f, "{w}"),
            Workload::TpccLike(w) => write!(f, "{w}"),
            Workload::KernelBuild(w) => write!(f, "{w}"),
            Workload::AndrewLike(w) => write!(f, "{w}"),
            Workload::Calls(w) => write!(f, "{w}"),
        }
    }
}

/// The phase that is running.
struct Open {
    name: String,
    start: Time,
    operations: u64,
    bytes: u64,
    made: u64,
    total: u64,
    mix: Vec<MixEntry>,
}

/// A run of a workload: its stage and its log.
pub(crate) struct Run<'r, S> {
    pub(crate) stage: &'r mut S,
    pub(crate) log: Log<'r>,
}

/// The receiver of progress, and the phases so far.
pub(crate) struct Log<'r> {
    watch: &'r mut dyn PhaseListener,
    phases: Vec<Phase>,
    open: Option<Open>,
}

impl Log<'_> {
    /// Counts files that were created.
    pub(crate) fn made(&mut self, files: u64) {
        self.open.as_mut().expect("a phase is under way").made += files;
    }

    /// Notes the steps and bytes that the running phase has done in all.
    pub(crate) fn reached(&mut self, operations: u64, bytes: u64) {
        let open = self.open.as_mut().expect("a phase is under way");
        open.operations = operations;
        open.bytes = bytes;
        self.watch.progress(&open.name, open.operations, open.total);
    }

    /// As [`reached`](Self::reached), for a phase of a fixed length: `done` of `total` of its time
    /// is over.
    pub(crate) fn reached_share(&mut self, operations: u64, bytes: u64, (done, total): (u64, u64)) {
        let open = self.open.as_mut().expect("a phase is under way");
        open.operations = operations;
        open.bytes = bytes;
        self.watch.progress(&open.name, done.min(total), total);
    }

    /// Notes the kinds of operations of the running phase.
    pub(crate) fn mix(&mut self, mix: Vec<MixEntry>) {
        self.open.as_mut().expect("a phase is under way").mix = mix;
    }
}

impl<S: WorkloadStage> Run<'_, S> {
    pub(crate) fn fs(&self) -> &S::Fs {
        self.stage.fs()
    }

    /// Begins a phase of `total` steps.
    pub(crate) fn begin(&mut self, name: impl Into<String>, total: u64) {
        let name = name.into();
        self.log.watch.phase_start(&name);
        let start = self.stage.runtime().now();
        self.log.open =
            Some(Open { name, start, operations: 0, bytes: 0, made: 0, total, mix: Vec::new() });
    }

    /// Counts one step of the phase.
    pub(crate) fn step(&mut self, bytes: u64) {
        let open = self.log.open.as_ref().expect("a phase is under way");
        let (operations, bytes) = (open.operations + 1, open.bytes + bytes);
        self.log.reached(operations, bytes);
    }

    /// Ends the phase.
    pub(crate) fn end(&mut self) {
        let Open { name, start, operations, bytes, made, mix, .. } =
            self.log.open.take().expect("a phase is under way");
        let phase = Phase {
            name,
            operations,
            bytes,
            files_made: made,
            start_seconds: start.as_secs_f64(),
            end_seconds: self.stage.runtime().now().as_secs_f64(),
            mix,
        };
        self.log.watch.ended(&phase);
        self.log.phases.push(phase);
    }

    pub(crate) async fn drop_caches(&mut self) -> Result<(), WorkloadError> {
        self.stage.drop_caches().await.doing(|| "emptying the caches".into())
    }
}
