//! The exit statuses of all commands of `ordo crash`, in one place.

use std::process::ExitCode;

/// An exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CrashStatus {
    /// Every promise was kept.
    Kept = 0,
    /// A promise was broken.
    Broken = 1,
    /// The usage was wrong, or there was an error. `main` gives it to every error.
    Failed = 2,
    /// Nothing could be judged, or not all that was to be.
    NotJudged = 3,
    /// A signal ended the work.
    Interrupted = 130,
}

impl From<CrashStatus> for ExitCode {
    fn from(status: CrashStatus) -> ExitCode {
        ExitCode::from(status as u8)
    }
}
