//! Any program, crashed: the promises that it breaks, on any of the kernel's file systems, or on
//! one of this process.
//!
//! A program runs in a file system on a pseudo-device, which records every request. Each state that
//! a power cut may leave is put on a device, recovered by the kernel's own mount, and judged by a
//! check, which is any command.
//!
//! Layers, lowest first:
//! - [`system`]: a file system by name and options, `more`: its devices besides the first; `sys`:
//!   system calls without a safe wrapper.
//! - [`marks`]: the program's promises; [`ordo_trace::strace`]: its system calls; [`tree`]: the
//!   contents of a directory.
//! - [`own`]: file systems of this process on devices in memory; `devices`: these and the kernel's,
//!   recorded.
//! - [`mod@record`]: the command run and recorded, with the meaning of each write (`requests`),
//!   and the requests of its rings of io_uring (`rings`).
//! - `start`: contents without zeros; `stand`: the place where a state is put and mounted;
//!   [`check`]: the command that judges it.
//! - `bench`: a recording, from which states are made and judged; `recovery`: power cuts during
//!   recoveries;
//!   [`judged`]: the results of a state.
//! - [`mod@explore`]: states judged on several stands at once, each image and each tree once.
//! - [`causes`], [`mod@explain`]: a failure made small, in the program's words, with its usual
//!   cause; [`saved`]: a failure as a file.
//!
//! Invariants:
//! - A line counts as promised for a crash only if the write of its newline to `$ORDO_MARK` had
//!   returned by then.
//! - The states of a recording, and their order, follow from the recording and the seed. Another
//!   recording is another run.
//! - A check's changes to a state are discarded with the state.
//! - A cause is named only if the failing state lacks something that the cause explains, and never
//!   for a program whose check passes.
//!
//! The kernel's file systems need root, `/dev/fuse`, loop devices, and the file system's mkfs. File
//! systems of this process need only FUSE, which ordinary users may use too where there is
//! `fusermount3`.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use ordo_crash_program::{Check, Job, ProgramError, RecordingPlan, explore, record};
//! # fn of(plan: RecordingPlan, check: Check, job: Job) -> Result<(), ProgramError> {
//! let stop = AtomicBool::new(false);
//! let recorded = record(&plan, &stop)?;
//! let outcome = explore(&recorded, &check, &job, Vec::new(), &stop, &|_| {})?;
//! println!("{} states, {} broken", outcome.counts.states, outcome.counts.promise_broken);
//! # Ok(())
//! # }
//! ```

mod bench;
mod btrfs;
pub mod causes;
pub mod check;
mod devices;
pub mod explain;
pub mod explore;
pub mod judged;
pub mod marks;
mod more;
pub mod own;
pub mod record;
mod recovery;
mod requests;
mod rings;
pub mod saved;
pub mod searchlog;
mod stand;
mod sys;
pub mod system;
pub mod tree;

pub use check::{Check, CheckAnswer};
pub use explain::{Explained, Explanation, explain};
pub use explore::{ExploreEvent, Job, JobCounts, JobFinding, JobOutcome, explore};
pub use record::{Recorded, RecordingPlan, record};
pub use saved::RepeatedFailure;
pub use sys::own_mounts;
pub use system::{InFiles, ProgramSystem};

/// The reason why a program cannot be crashed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No file system has this name.
    #[error(
        "no file system of the kernel's is called '{name}'; there are {known}, with options as in ext4:data=journal"
    )]
    System {
        /// The name asked for.
        name: String,
        /// The known names.
        known: String,
    },
    /// A file system cannot have this option.
    #[error("{system}: {option}: {why}")]
    Option {
        /// The file system.
        system: String,
        /// The option.
        option: String,
        /// The reason, and what is possible.
        why: String,
    },
    /// The pseudo-device failed.
    #[error(transparent)]
    Pseudo(#[from] ordo_recorder::PseudoError),
    /// The file system could not be made or watched.
    #[error(transparent)]
    Live(#[from] ordo_kernelfs::LiveError),
    /// A program failed, or is not installed.
    #[error("{0}")]
    Program(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The command to crash cannot be run.
    #[error(
        "the command {program} cannot be run: {error}; it runs in a directory of its own: give an absolute path"
    )]
    Command {
        /// The program.
        program: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The command did not end in time.
    #[error(
        "the command did not end before --timeout; --until-timeout takes what it did until then as the run"
    )]
    TimedOut,
    /// The work was stopped.
    #[error("stopped")]
    Stopped,
}

impl ProgramError {
    fn io(what: &'static str) -> impl Fn(std::io::Error) -> ProgramError {
        move |error| ProgramError::Io { what: what.to_owned(), error }
    }
}
