//! What a crash can leave behind: every state of the disks that a model allows, judged.
//!
//! A run of a workload is recorded, request by request. From the record follows what a crash at any time
//! may leave ([`model`], and `docs/crash-model.md`). Each such state is put on a disk, recovered where
//! the scheme needs it, and judged: by the independent checker; by what the workload had been promised
//! (what is durable, what is atomic and in order, whose contents a file may hold); by using it.
//!
//! Layers:
//! - [`scheme`], [`geometry`]: what is crashed, in which shape, and what it promises. One value is all it takes to add
//!   a system.
//! - [`mod@format`], [`finding`]: what is asked of whoever knows what is on the disks, and what a check finds, in words
//!   that know no format.
//! - [`script`], [`database`], [`history`], [`record`]: what is done, what of it may be found, the record.
//! - [`model`], `sample`, [`rules`]: frontiers, choices and states; which of them are judged.
//! - `expect`, `tree`, `order`, `compare`, [`judge`]: the oracles; `follow`, `memory`, `recall`: what they need not
//!   work out or look at twice.
//! - [`mod@explore`]: all frontiers on all cores.
//! - [`mod@shrink`], `path`, [`saved`], [`kept`]: a failure made small, judged again, and as a file.
//! - [`space`]: the same states for judges outside of this crate, as any program is one.
//! - [`life`]: runs that begin where a crash ended the one before.
//! - [`campaign`]: many runs; [`fleet`]: cut into tasks for several machines. [`mutants`]: whether the choice of states sees.
//!
//! Invariants:
//! - The same scheme, script, [`Config`] and [`Budget`] give the same [`Outcome`], whatever the number of
//!   threads.
//! - The record is all that states are made of: what the file system has in memory cannot leak into one.
//! - The judges share no code with the orderings, and know no format; they know a scheme by its [`Promise`], and its
//!   disks by what its [`DiskFormat`] says of them.
//!
//! Typical sequence, as a test of an ordering does it:
//!
//! ```
//! use ordo_crash::{Budget, Config, Model, Promise, Script, explore};
//! use ordo_ordering::{NoOrder, SyncOrder};
//! use ordo_systems::OnFfs;
//!
//! let script = Script::random(1, 2, 30);
//! let config = Config::new(1, Model::Volatile);
//! let budget = Budget { states: 300, ..Budget::default() };
//! let sync = OnFfs::new("ffs-sync", SyncOrder::default, Promise::SYNC);
//! let outcome = explore(&sync, &script, &config, &budget).unwrap();
//! outcome.expect_kept("ffs-sync, seed 1");
//! // The same promise, not kept:
//! let none = OnFfs::new("ffs-none", || NoOrder, Promise::SYNC);
//! let outcome = explore(&none, &script, &config, &budget).unwrap();
//! assert!(outcome.counts.promise_broken > 0);
//! ```

pub mod campaign;
mod compare;
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
pub mod life;
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
pub mod rules;
mod sample;
pub mod saved;
pub mod scheme;
pub mod script;
pub mod shrink;
pub mod space;
mod sum;
#[cfg(test)]
mod test_scheme;
mod tree;

pub use explore::{Budget, Counts, Failure, Outcome, Point, explore, explore_run};
pub use finding::{Finding, Findings, Severity};
pub use format::{DiskFormat, InodePlaces, OwnNames};
pub use geometry::Geometry;
pub use judge::{Question, Verdict};
pub use minimise::minimise;
pub use model::Model;
pub use path::judge_path;
pub use record::{Config, Run, record};
pub use rules::Rule;
pub use scheme::{Promise, Scheme, Volume};
pub use script::{Manner, Place, Script, Step, Workload};
pub use shrink::{Shrunk, shrink, shrink_state};

/// Why a run cannot be explored.
#[derive(Debug, thiserror::Error)]
pub enum CrashError {
    /// The file system cannot be made.
    #[error("making the file system: {0}")]
    Make(String),
    /// What was just made cannot be mounted.
    #[error("mounting the file system: {0}")]
    Mount(String),
    /// The workload failed.
    #[error("running the workload: {0}")]
    Work(String),
    /// The system waits for itself.
    #[error("{0}")]
    Deadlock(#[from] ordo_runtime::Deadlock),
}
