//! Any program, crashed: what it loses of what it promised, on any file system of the kernel's.
//!
//! A program is run in a file system on a pseudo-device, and every request of that is kept. Each state that a power cut
//! may leave is put on a device, recovered by the kernel's own mount, and judged by a check: any command.
//!
//! Layers, lowest first:
//! - [`system`]: a file system by name and options; `sys`: calls of the kernel's without a safe wrapper.
//! - [`marks`]: what the program said that it promises; [`calls`]: its system calls; [`tree`]: what is in a directory.
//! - [`mod@record`]: the command run and recorded, with the meaning of each write.
//! - `stand`: where a state is put and mounted; [`check`]: the command that judges it.
//! - [`mod@explore`]: states judged on several stands at once, each image and each tree once.
//! - [`causes`], [`mod@explain`]: a failure made small, in the program's words, with its usual cause; [`saved`]: as a file.
//!
//! Invariants:
//! - A line counts as promised for a crash only if its write to `$ORDO_MARK` had returned by then.
//! - The states of a recording and their order follow from it and the seed. Another recording is another run.
//! - What a check does to a state is gone with the state.
//! - A cause is named only for what the failing state lacks, never for a program whose check passes.
//!
//! It needs root, `/dev/fuse`, loop devices, and the file system's maker.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use ordo_program::{Check, Job, Plan, explore, record};
//! # fn of(plan: Plan, check: Check, job: Job) -> Result<(), ordo_program::ProgramError> {
//! let stop = AtomicBool::new(false);
//! let recorded = record(&plan, &stop)?;
//! let outcome = explore(&recorded, &check, &job, &stop, &|_| {})?;
//! println!("{} states, {} broken", outcome.counts.states, outcome.counts.promise_broken);
//! # Ok(())
//! # }
//! ```

pub mod calls;
pub mod causes;
pub mod check;
pub mod explain;
pub mod explore;
pub mod marks;
pub mod record;
pub mod saved;
mod stand;
mod sys;
pub mod system;
pub mod tree;

pub use check::{Check, Said};
pub use explain::{Explanation, explain};
pub use explore::{Counts, Finding, Job, Outcome, Told, explore};
pub use record::{Plan, Recorded, record};
pub use sys::own_mounts;
pub use system::System;

/// Why a program cannot be crashed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No such file system.
    #[error(
        "no file system of the kernel's is called '{name}'; there are {known}, with options as in ext4:data=journal"
    )]
    System {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The pseudo-device.
    #[error(transparent)]
    Pseudo(#[from] ordo_pseudo::PseudoError),
    /// What makes the file system.
    #[error(transparent)]
    Live(#[from] ordo_live::LiveError),
    /// A program failed, or is not there.
    #[error("{0}")]
    Program(String),
    /// Something of the system's.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
}

impl ProgramError {
    fn io(what: &'static str) -> impl Fn(std::io::Error) -> ProgramError {
        move |error| ProgramError::Io { what: what.to_owned(), error }
    }
}
