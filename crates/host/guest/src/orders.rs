//! Orders to a guest, and its answers.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A program to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestProgram {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory in which it runs.
    pub dir: PathBuf,
    /// The user and the group; `None` for root.
    pub user: Option<(u32, u32)>,
    /// The file to which it writes its output; `None` to throw it away.
    pub output: Option<PathBuf>,
    /// The file to which it writes its errors; `None` for that of its output.
    pub errors: Option<PathBuf>,
}

/// An order to the guest's first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Runs a program to its end.
    Run(GuestProgram),
    /// Mounts a device.
    Mount {
        /// The kernel's name of the file system.
        fs: String,
        /// The device, or what the file system takes in its place.
        source: PathBuf,
        /// The directory, which is made.
        dir: PathBuf,
        /// Mount options.
        options: String,
    },
    /// Unmounts a directory.
    Unmount {
        /// The directory.
        dir: PathBuf,
    },
    /// Ends all: nothing is unmounted or written back.
    PowerOff,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestAnswer {
    /// Done.
    Done,
    /// The program ended so: with an exit status, or by a signal.
    Ended {
        /// The exit status.
        code: Option<i32>,
        /// The signal.
        signal: Option<i32>,
    },
    /// Not done, for this reason.
    Failed(String),
}
