//! The crash explorer: judges every state of the disks that a fault model allows.
//!
//! A run of a workload is recorded, request by request. The record determines the states that a
//! crash at any time may leave ([`model`], and `docs/crash-model.md`). Each such state is put on a
//! disk, recovered if the scheme needs that, and judged by three means: by the independent checker;
//! by the promises to the workload (what is durable, what is atomic and in order, which contents a
//! file may have); by using the file system.
//!
//! Layers:
//! - [`scheme`], [`geometry`]: the system that is crashed, its shape, and its promise. A new system
//!   needs one value.
//! - [`mod@format`], [`finding`]: the interface to code that knows the disk format, and the
//!   findings of a check in words without a format.
//! - [`script`], `steps`, [`database`], [`history`], [`mod@record`]: the workloads, the history of
//!   calls, the record of requests.
//! - [`model`], `sample`, [`rules`]: frontiers, choices and states, and the selection of those that
//!   are judged.
//! - `expect`, `tree`, `order`, `compare`, [`judge`]: the oracles. `follow`, `memory`, `recall`:
//!   results that they reuse.
//! - [`mod@explore`]: all frontiers on all cores.
//! - [`mod@shrink`], `path`, [`saved`], [`kept`]: a failure after shrinking, judged again, and as a
//!   file.
//! - [`space`]: the same states for judges outside of this crate, which may be any program.
//! - [`cycle`]: crash cycles: each run begins with the disks that a crash of the run before has
//!   left.
//! - [`campaign`]: many runs. [`fleet`]: a campaign cut into tasks for several machines.
//!   [`mutants`]: a test of the selection of states, with rules switched off.
//!
//! Invariants:
//! - The same scheme, script, [`Config`] and [`Budget`] give the same [`Outcome`], whatever the
//!   number of threads.
//! - States are made of the record only, so nothing in the file system's memory can leak into one.
//! - The judges share no code with the orderings, and know no format. They know a scheme by its
//!   [`Promise`], and its disks through its [`DiskFormat`].
//!
//! Typical sequence, as a test of an ordering does it:
//!
//! ```
//! use ordo_crash::{Budget, Config, CrashModel, Promise, Script, explore};
//! use ordo_ordering::{NoOrder, SyncOrder};
//! use ordo_systems::OnFfs;
//!
//! let script = Script::random(1, 2, 30);
//! let config = Config::new(1, CrashModel::Volatile);
//! let budget = Budget { states: 300, ..Budget::default() };
//! let sync = OnFfs::new("ffs-sync", SyncOrder::default, Promise::SYNC);
//! let outcome = explore(&sync, &script, &config, &budget).unwrap();
//! outcome.expect_kept("ffs-sync, seed 1");
//! // The same promise, not kept:
//! let none = OnFfs::new("ffs-none", || NoOrder, Promise::SYNC);
//! let outcome = explore(&none, &script, &config, &budget).unwrap();
//! assert!(outcome.counts.promise_broken > 0);
//! ```

pub mod base;
pub mod campaign;
mod client;
mod compare;
pub mod cycle;
pub mod database;
pub mod disk;
mod expect;
mod explain;
pub mod explore;
pub mod finding;
pub mod fleet;
mod follow;
pub mod format;
pub mod geometry;
pub mod history;
pub mod judge;
pub mod kept;
mod memory;
mod minimise;
pub mod model;
#[cfg(test)]
mod model_tests;
pub mod mutants;
mod order;
mod path;
mod recall;
pub mod record;
pub mod recording;
pub mod rules;
pub mod run;
mod sample;
pub mod saved;
pub mod scheme;
pub mod script;
pub mod shrink;
pub mod space;
mod steps;
mod sum;
#[cfg(test)]
mod test_scheme;
mod tree;
mod verdict;
mod walk;

pub use explore::{Budget, Failure, Outcome, Point, StateCounts, explore, explore_run};
pub use finding::{Finding, FindingSeverity, Findings};
pub use format::{DiskFormat, InodePlaces, OwnNames};
pub use geometry::FsGeometry;
pub use judge::Question;
pub use minimise::minimise;
pub use model::CrashModel;
pub use path::judge_path;
pub use record::{CachePlan, Config, record};
pub use rules::StateRule;
pub use run::Run;
pub use scheme::{Promise, Scheme, Volume};
pub use script::{RunWorkload, Script, ScriptManner, ScriptPlace, ScriptStep};
pub use shrink::{Shrunk, shrink, shrink_state};
pub use tree::InodeMetadata;
pub use verdict::Verdict;

/// The reason why a run cannot be explored.
#[derive(Debug, thiserror::Error)]
pub enum CrashError {
    /// The file system cannot be made.
    #[error("making the file system: {0}")]
    Make(String),
    /// The new file system cannot be mounted.
    #[error("mounting the file system: {0}")]
    Mount(String),
    /// The workload failed.
    #[error("running the workload: {0}")]
    Work(String),
    /// The system came to a deadlock.
    #[error("{0}")]
    Deadlock(#[from] ordo_runtime::Deadlock),
}
