//! The ways in which a guest may fail.

use std::path::PathBuf;

/// The reason why there is no guest, or why it ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GuestError {
    /// No kernel was found.
    #[error(
        "no guest kernel was found: {looked}; build one with `make guest-kernel`, or name one \
         with --kernel PATH or in $ORDO_KERNEL"
    )]
    NoKernel {
        /// The places in which it was looked for.
        looked: String,
    },
    /// The program is not a kernel that runs as a process.
    #[error("{}: no kernel that runs as a process (ARCH=um): {why}", path.display())]
    NotAKernel {
        /// The program.
        path: PathBuf,
        /// The way in which it shows that.
        why: String,
    },
    /// The kernel lacks something.
    #[error("{}: the kernel is built without {what}; `make guest-kernel` builds one with it", path.display())]
    Lacks {
        /// The kernel.
        path: PathBuf,
        /// The option, as its configuration calls it.
        what: String,
    },
    /// The kernel could not be started, or its sockets could not be made.
    #[error("starting the guest kernel: {what}: {why}")]
    Start {
        /// The attempted operation.
        what: &'static str,
        /// The operating system's error.
        why: String,
    },
    /// The kernel ended.
    #[error("the guest kernel ended{}{}", how(status), tail(log))]
    Ended {
        /// The way in which it ended, if it was not asked to.
        status: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// A program ran on without sleeping.
    #[error(
        "'{task}' in the guest ran for {seconds} s of real time without a pause, so that virtual \
         time stood still: it may spin; a longer limit is --patience SECONDS"
    )]
    Spins {
        /// The program.
        task: String,
        /// Seconds of real time.
        seconds: u64,
    },
    /// The kernel and its devices do not understand each other.
    #[error("the guest kernel's {device}: {why}")]
    Protocol {
        /// The device, or the calendar.
        device: String,
        /// The fault.
        why: String,
    },
    /// The guest was asked to end.
    #[error("stopped before the end")]
    Stopped,
    /// An order could not be carried out.
    #[error("in the guest: {0}")]
    Order(String),
}

fn how(status: &str) -> String {
    if status.is_empty() { String::new() } else { format!(" ({status})") }
}

fn tail(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; its last words:\n{log}") }
}

/// Makes an error of starting.
pub(crate) fn starting<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> GuestError {
    move |error| GuestError::Start { what, why: error.to_string() }
}

/// Makes an error of what was said on a socket.
pub(crate) fn protocol(device: &str, why: impl std::fmt::Display) -> GuestError {
    GuestError::Protocol { device: device.to_owned(), why: why.to_string() }
}
