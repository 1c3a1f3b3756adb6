//! The watchdog: ends a device whose server has died.
//!
//! A killed process ends only when each of its threads does. A thread that waits for a device of
//! its own process waits for a dead server, and keeps the connection open. So the process never
//! ends, and neither does any other process's `sync`. The watchdog is a small process that checks
//! every second whether the server exists, and aborts the connection if it does not. All requests
//! then fail, and all tasks continue.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use ordo_fuse::mounts::escaped;

use crate::folders::Folder;

/// The watchdog's script. Its arguments are the server thread's folder in `/proc`, its process's
/// folder, and the connection's number. If the kernel's folder of connections is not mounted, the
/// script mounts it.
const SCRIPT: &str = "while [ -e \"$1\" ]; do sleep 1; done; [ -e \"$2\" ] || exit 0; \
    all=/sys/fs/fuse/connections; \
    [ -e \"$all/$3\" ] || mount -t fusectl none \"$all\"; echo 1 >\"$all/$3/abort\"";

/// The script of the watchdog over the mounts of a whole process. Its arguments are the folder in
/// `/proc` of a thread that lives as long as the process, a folder with notes, and the process's
/// folder. A note has a directory on which something is mounted or about to be, as it is, and as
/// the table of mounts has it. When the process dies, the connections of these mounts are aborted
/// and the mounts removed. A helper that was mounting for the process gets a second to end.
const MOUNTS_SCRIPT: &str = "while [ -e \"$1\" ]; do sleep 1; done; sleep 1; all=/sys/fs/fuse/connections; \
    table=$(cat /proc/self/mountinfo); for f in \"$2\"/*; do [ -e \"$f\" ] || continue; \
    { IFS= read -r dir; read -r at; } <\"$f\"; \
    printf '%s\\n' \"$table\" | while read -r _ _ device _ on _; do [ \"$on\" = \"$at\" ] || continue; \
    n=${device#*:}; [ -e \"$all/$n\" ] || mount -t fusectl none \"$all\"; echo 1 >\"$all/$n/abort\"; \
    umount -l \"$dir\" || fusermount3 -uqz -- \"$dir\"; done; done; rm -rf \"$2\" \"$3\"";

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

/// A mount by a thread of this process, which goes away even if the process is killed. The mount is
/// watched until this is dropped.
#[derive(Debug)]
pub struct WatchedMount(PathBuf);

impl WatchedMount {
    /// Watches the FUSE file system that is about to be mounted on `dir`, an absolute path. Nothing
    /// needs to be mounted yet: so there is no moment at which a killed process leaves a mount
    /// behind.
    ///
    /// # Errors
    /// There is no shell, no `/proc`, or no space for a file.
    pub fn before_mount(dir: &Path) -> io::Result<WatchedMount> {
        // One watchdog serves the whole process, since states are mounted many times a second.
        static FOLDER: OnceLock<Option<Folder>> = OnceLock::new();
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let folder = FOLDER.get_or_init(|| watched_folder().ok());
        let folder = folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = folder.path().join(number.to_string());
        note(&file, dir)?;
        Ok(WatchedMount(file))
    }
}

/// Writes the note of a directory. A name that begins with a dot is none of a note, so there are
/// whole notes only.
fn note(file: &Path, dir: &Path) -> io::Result<()> {
    let part = file.with_file_name(".part").with_extension(file.file_name().unwrap_or_default());
    let dir_as_is = dir.as_os_str().as_encoded_bytes();
    std::fs::write(&part, [dir_as_is, b"\n", escaped(dir).as_bytes(), b"\n"].concat())?;
    std::fs::rename(part, file)
}

impl Drop for WatchedMount {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The folder of the process's notes, with their watchdog.
fn watched_folder() -> io::Result<Folder> {
    let (tell, told) = channel();
    std::thread::Builder::new().name("ordo-alive".into()).spawn(move || {
        let _ = tell.send(this_thread());
        loop {
            std::thread::park();
        }
    })?;
    let Thread(thread) = told.recv().map_err(io::Error::other)??;
    let folder = Folder::new("ordo-mounts-")?;
    // The watchdog ends after this process, and removes what the process has left.
    let (notes, run) = (folder.path().to_string_lossy(), folder.of_process().to_string_lossy());
    started(MOUNTS_SCRIPT, &[&format!("/proc/{thread}"), &notes, &run])?;
    Ok(folder)
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use ordo_fuse::kernel::{Attach, attach};

    use super::*;

    /// A process that is killed as soon as something is mounted leaves only the note that it has
    /// made before. By that note, the watchdog of its mounts finds the mount, and removes it and
    /// the notes.
    ///
    /// Would catch notes that need something from the mount.
    #[test]
    fn a_mount_is_removed_by_the_note_that_was_made_before() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            return ordo_testkit::skip("mounting needs root and /dev/fuse");
        }
        let place = tempfile::Builder::new().prefix("a blank ").tempdir().unwrap();
        let (dir, notes) = (place.path().join("m"), place.path().join("notes"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(&notes).unwrap();
        note(&notes.join("0"), &dir).unwrap();
        let how = Attach {
            source: "ordo-program".into(),
            device: false,
            read_only: false,
            allow_other: true,
            flags: Vec::new(),
        };
        // Nobody serves the mount, and its connection stays open: so only an abort ends calls that
        // wait for it.
        let attached = attach(&how, &dir).unwrap();
        let is_mounted = || {
            let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            table.contains(&escaped(&dir))
        };
        assert!(is_mounted());
        let run = place.path().join("run");
        let args = ["/proc/none", &notes.to_string_lossy(), &run.to_string_lossy()];
        let mut watchdog = started(MOUNTS_SCRIPT, &args).unwrap();
        watchdog.wait().unwrap();
        assert!(!is_mounted() && !notes.exists());
        drop(attached);
    }
}
