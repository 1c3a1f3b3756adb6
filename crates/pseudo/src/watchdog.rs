//! The end of a device whose server is gone.
//!
//! A process that is killed dies only when each of its threads does. One that waits for a device of its own process
//! waits for a server that is dead already, and keeps the connection open: so the process never ends, nor does anybody
//! else's `sync`. A small process of its own looks every second whether the server is there, and aborts the
//! connection if it is not: all requests fail then, and everybody goes on.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Its arguments: the folder of the server's thread in `/proc`, that of its process, the connection's number. Where the
/// kernel's folder of connections is not mounted, it mounts that.
const SCRIPT: &str = "while [ -e \"$1\" ]; do sleep 1; done; [ -e \"$2\" ] || exit 0; \
    all=/sys/fs/fuse/connections; \
    [ -e \"$all/$3\" ] || mount -t fusectl none \"$all\"; echo 1 >\"$all/$3/abort\"";

/// The thread that calls: its process, and its folder in `/proc`.
#[derive(Debug)]
pub(crate) struct Thread(String);

/// Which thread this is.
///
/// # Errors
/// There is no `/proc`.
pub(crate) fn this_thread() -> io::Result<Thread> {
    let link = std::fs::read_link("/proc/thread-self")?;
    Ok(Thread(link.to_string_lossy().into_owned()))
}

/// A process that watches a server. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Watches the server `thread` of the FUSE file system that is mounted on `dir`.
    ///
    /// # Errors
    /// There is no shell, or nothing is mounted there.
    pub(crate) fn new(Thread(thread): &Thread, dir: &Path) -> io::Result<Watchdog> {
        let device = std::fs::metadata(dir)?.dev();
        // The number of a connection is the minor number of its file system's device.
        let connection = (device & 0xff) | ((device >> 12) & !0xff);
        let process = thread.split('/').next().unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "ordo-watchdog"]);
        command.args([
            format!("/proc/{thread}"),
            format!("/proc/{process}"),
            connection.to_string(),
        ]);
        // A signal to the group of whoever is watched must not end it.
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
