//! The watchdog: ends a device whose server has died.
//!
//! A killed process ends only when each of its threads does. A thread that waits for a device of its own process
//! waits for a dead server, and keeps the connection open. So the process never ends, and neither does any other
//! process's `sync`. The watchdog is a small process that checks every second whether the server exists, and aborts
//! the connection if it does not. All requests then fail, and all tasks continue.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;

/// The watchdog's script. Its arguments are the server thread's folder in `/proc`, its process's folder, and the
/// connection's number. If the kernel's folder of connections is not mounted, the script mounts it.
const SCRIPT: &str = "while [ -e \"$1\" ]; do sleep 1; done; [ -e \"$2\" ] || exit 0; \
    all=/sys/fs/fuse/connections; \
    [ -e \"$all/$3\" ] || mount -t fusectl none \"$all\"; echo 1 >\"$all/$3/abort\"";

/// The script of the watchdog over the mounts of a whole process. Its arguments are the folder in `/proc` of a thread that
/// lives as long as the process, and a folder with a file for each mount: its name is the connection's number, and its
/// contents are the directory. When the process dies, their connections are aborted and the mounts removed.
const MOUNTS_SCRIPT: &str = "while [ -e \"$1\" ]; do sleep 1; done; all=/sys/fs/fuse/connections; \
    for f in \"$2\"/*; do [ -e \"$f\" ] || continue; n=${f##*/}; \
    [ -e \"$all/$n\" ] || mount -t fusectl none \"$all\"; echo 1 >\"$all/$n/abort\"; \
    umount -l \"$(cat \"$f\")\" || fusermount3 -uqz -- \"$(cat \"$f\")\"; done; rm -rf \"$2\"";

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
        let connection = connection(dir)?;
        let process = thread.split('/').next().unwrap_or_default();
        let (thread, process) = (format!("/proc/{thread}"), format!("/proc/{process}"));
        started(SCRIPT, &[&thread, &process, &connection.to_string()]).map(Watchdog)
    }
}

/// The number of the connection of the FUSE file system that is mounted on a directory.
fn connection(dir: &Path) -> io::Result<u64> {
    let device = std::fs::metadata(dir)?.dev();
    // A connection's number is the minor number of its file system's device.
    Ok((device & 0xff) | ((device >> 12) & !0xff))
}

fn started(script: &str, args: &[&str]) -> io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", script, "ordo-watchdog"]).args(args);
    // A signal to the server's process group must not end the watchdog.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

/// A mount by a thread of this process, which goes away even if the process is killed. The mount is watched until this
/// is dropped.
#[derive(Debug)]
pub struct WatchedMount(PathBuf);

impl WatchedMount {
    /// Watches the FUSE file system that is mounted on `dir`, whose server must answer meanwhile.
    ///
    /// # Errors
    /// There is no shell, no `/proc`, no space for a file, or nothing is mounted.
    pub fn new(dir: &Path) -> io::Result<WatchedMount> {
        // One watchdog serves the whole process, since states are mounted many times a second.
        static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
        let folder = FOLDER.get_or_init(|| watched_folder().ok());
        let folder = folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let file = folder.join(connection(dir)?.to_string());
        std::fs::write(&file, dir.as_os_str().as_encoded_bytes())?;
        Ok(WatchedMount(file))
    }
}

impl Drop for WatchedMount {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The folder of the process's mounts, with its watchdog.
fn watched_folder() -> io::Result<PathBuf> {
    let (tell, told) = channel();
    std::thread::Builder::new().name("ordo-alive".into()).spawn(move || {
        let _ = tell.send(this_thread());
        loop {
            std::thread::park();
        }
    })?;
    let Thread(thread) = told.recv().map_err(io::Error::other)??;
    let folder = tempfile::Builder::new().prefix("ordo-mounts-").tempdir()?.keep();
    // The watchdog removes the folder when it ends, which is after this process.
    started(MOUNTS_SCRIPT, &[&format!("/proc/{thread}"), &folder.to_string_lossy()])?;
    Ok(folder)
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
