//! The watchdog: ends a device whose server has died.
//!
//! A killed process ends only when each of its threads does. A thread that waits for a device of its own process
//! waits for a dead server, and keeps the connection open. So the process never ends, and neither does any other
//! process's `sync`. The watchdog is a small process that checks every second whether the server exists, and aborts
//! the connection if it does not. All requests then fail, and all tasks continue.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The watchdog's script. Its arguments are the server thread's folder in `/proc`, its process's folder, and the
/// connection's number. If the kernel's folder of connections is not mounted, the script mounts it.
const SCRIPT: &str = "while [ -e \"$1\" ]; do sleep 1; done; [ -e \"$2\" ] || exit 0; \
    all=/sys/fs/fuse/connections; \
    [ -e \"$all/$3\" ] || mount -t fusectl none \"$all\"; echo 1 >\"$all/$3/abort\"";

/// A thread, by its folder in `/proc`.
#[derive(Debug)]
pub(crate) struct Thread(String);

/// The calling thread.
///
/// # Errors
/// There is no `/proc`.
pub(crate) fn this_thread() -> io::Result<Thread> {
    let link = std::fs::read_link("/proc/thread-self")?;
    Ok(Thread(link.to_string_lossy().into_owned()))
}

/// A process that watches a server; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Watches the server `thread` of the FUSE file system that is mounted on `dir`.
    ///
    /// # Errors
    /// There is no shell, or nothing is mounted on `dir`.
    pub(crate) fn new(Thread(thread): &Thread, dir: &Path) -> io::Result<Watchdog> {
        let device = std::fs::metadata(dir)?.dev();
        // A connection's number is the minor number of its file system's device.
        let connection = (device & 0xff) | ((device >> 12) & !0xff);
        let process = thread.split('/').next().unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "ordo-watchdog"]);
        command.args([
            format!("/proc/{thread}"),
            format!("/proc/{process}"),
            connection.to_string(),
        ]);
        // A signal to the server's process group must not end the watchdog.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Watchdog)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
