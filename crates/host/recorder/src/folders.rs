//! Temporary folders that are found again after their process was killed.
//!
//! All folders of a process ([`Folder`]) are in one folder of its own, `ordo-run-...`, beside a
//! file that the process keeps locked. The kernel releases the lock when the process ends, however
//! it ends. So [`leftovers`] finds the folders of dead processes, and never those of living ones.
//!
//! ```no_run
//! let folder = ordo_recorder::Folder::new("ordo-check-")?;
//! std::fs::write(folder.path().join("promised"), "7")?;
//! drop(folder);
//! for left in ordo_recorder::leftovers()? {
//!     left.remove()?;
//! }
//! # Ok::<_, std::io::Error>(())
//! ```

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ordo_fuse::mounts;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

/// The beginning of the name of a process's folder.
const RUN: &str = "ordo-run-";
/// The file in it that the process keeps locked.
const LOCK: &str = "lock";
/// The source of mounts whose server is a thread of the dead process, so that they are dead too.
pub(crate) const OWN_MOUNT: &str = "ordo-program";
/// The number of times that a folder is made again because a cleanup has taken it for a dead one.
const TRIES: u32 = 16;

/// The folder of this process, if it has one now.
static OF_PROCESS: Mutex<Weak<RunFolder>> = Mutex::new(Weak::new());

/// The folder of this process. It is removed with the last folder in it.
#[derive(Debug)]
struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl RunFolder {
    /// The folder of this process, made anew if there is none.
    fn of_process() -> io::Result<Arc<RunFolder>> {
        let mut now = OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = now.upgrade() {
            return Ok(run);
        }
        let run = Arc::new(RunFolder::make()?);
        *now = Arc::downgrade(&run);
        Ok(run)
    }

    fn make() -> io::Result<RunFolder> {
        for _ in 0..TRIES {
            let path = tempfile::Builder::new().prefix(RUN).tempdir()?.keep();
            // Commands of other users pass through it.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o711))?;
            match locked(&path) {
                Ok(Some(lock)) => return Ok(RunFolder { path, _lock: lock }),
                // A cleanup saw the folder before it was locked, and removes it.
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::ResourceBusy.into())
    }
}

/// Makes the lock of a new folder; `None` if a cleanup was faster.
fn locked(folder: &Path) -> io::Result<Option<File>> {
    let file = File::options().write(true).create_new(true).open(folder.join(LOCK))?;
    let is_ours = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok((is_ours && file.metadata()?.nlink() > 0).then_some(file))
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path.join(LOCK));
        let _ = fs::remove_dir(&self.path);
    }
}

/// A temporary folder, which is removed with its contents when this is dropped.
#[derive(Debug)]
pub struct Folder {
    // The order of the fields is that in which they are dropped.
    dir: TempDir,
    run: Arc<RunFolder>,
}

impl Folder {
    /// A new folder whose name begins with `prefix`.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn new(prefix: &str) -> io::Result<Folder> {
        let run = RunFolder::of_process()?;
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(&run.path)?;
        Ok(Folder { dir, run })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The folder of this process, in which this one is.
    pub(crate) fn of_process(&self) -> &Path {
        &self.run.path
    }
}

/// Unmounts everything in this process's folder, and removes the folder. Only for a process that is
/// about to end: its other threads may be using both.
pub fn remove_own() {
    let now = OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(run) = now.upgrade() else { return };
    for (dir, _) in mounts_below(&run.path).unwrap_or_default().into_iter().rev() {
        let _ = rustix::mount::unmount(&dir, UnmountFlags::DETACH);
    }
    let _ = fs::remove_dir_all(&run.path);
}

/// The folder of a process that has ended without removing it.
#[derive(Debug)]
pub struct Leftover {
    path: PathBuf,
    /// The lock, so that only one process removes the folder; `None` if the process ended before it
    /// made one.
    lock: Option<File>,
}

/// The folders of this user's dead processes.
///
/// # Errors
/// The directory for temporary files cannot be read.
pub fn leftovers() -> io::Result<Vec<Leftover>> {
    let user = rustix::process::geteuid().as_raw();
    let mut all = Vec::new();
    for entry in fs::read_dir(std::env::temp_dir())? {
        let Ok(entry) = entry else { continue };
        let is_run = entry.file_name().to_str().is_some_and(|name| name.starts_with(RUN));
        let is_own = || entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if is_run && is_own() {
            all.extend(Leftover::found(entry.path()));
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

/// Unmounts, in the mount namespace that the calling thread has just got for itself, the copies of
/// other processes' mounts. Otherwise a recording could not remove its device before this process
/// has ended too.
pub fn drop_mounts_of_others() {
    let all = mounts_below(&std::env::temp_dir()).unwrap_or_default();
    for (dir, _) in all.into_iter().rev() {
        let is_run = |part: std::path::Component<'_>| {
            part.as_os_str().to_str().is_some_and(|name| name.starts_with(RUN))
        };
        if dir.components().any(is_run) {
            // A copy that stays only delays its owner.
            let _ = rustix::mount::unmount(&dir, UnmountFlags::DETACH);
        }
    }
}

/// Removes the folders of this user's dead processes, as far as that is possible.
pub fn remove_leftovers() {
    for left in leftovers().unwrap_or_default() {
        // A folder in which a dead recording's device is still mounted is left to `ordo trace
        // cleanup`.
        let _ = left.remove();
    }
}

impl Leftover {
    fn found(path: PathBuf) -> Option<Leftover> {
        let mut options = File::options();
        options.write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        match options.open(path.join(LOCK)) {
            Ok(file) => {
                let is_dead = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
                is_dead.then_some(Leftover { path, lock: Some(file) })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some(Leftover { path, lock: None })
            }
            Err(_) => None,
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder with everything in it. File systems that threads of the dead process
    /// served are unmounted.
    ///
    /// # Errors
    /// Another file system is mounted in it, or the operating system's error.
    pub fn remove(self) -> io::Result<()> {
        if self.lock.is_none() {
            // The process may be about to make its lock: then it makes another folder.
            return fs::remove_dir(&self.path);
        }
        for (dir, source) in mounts_below(&self.path)?.into_iter().rev() {
            if source.as_os_str() == OWN_MOUNT && mounts::is_dead(&dir) {
                detach(&dir)?;
            }
        }
        match mounts_below(&self.path)?.is_empty() {
            true => fs::remove_dir_all(&self.path),
            false => Err(ErrorKind::ResourceBusy.into()),
        }
    }
}

/// Unmounts a FUSE file system, as root or through the helper.
fn detach(dir: &Path) -> io::Result<()> {
    let Err(error) = rustix::mount::unmount(dir, UnmountFlags::DETACH) else { return Ok(()) };
    let helped = Command::new("fusermount3").args(["-uqz", "--"]).arg(dir).status();
    match helped {
        Ok(status) if status.success() => Ok(()),
        _ => Err(error.into()),
    }
}

/// The mounts below a folder, in the order in which they were made: directory and source.
fn mounts_below(folder: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let table = mounts::table()?;
    let is_below = |dir: &Path| dir != folder && dir.starts_with(folder);
    let below = mounts::of(&table).filter(|mount| is_below(&mount.dir));
    Ok(below.map(|mount| (mount.dir, mount.source)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_left(path: &Path) -> bool {
        leftovers().unwrap().iter().any(|left| left.path() == path)
    }

    /// Folders of a living process are never left over. The process's folder goes away with the
    /// last one in it. When the lock is released, it is found, and removed with its contents.
    #[test]
    fn folders_of_dead_processes_are_found() {
        let (one, two) = (Folder::new("ordo-one-").unwrap(), Folder::new("ordo-two-").unwrap());
        let run = one.of_process().to_owned();
        assert_eq!(run, two.of_process());
        fs::write(two.path().join("file"), "x").unwrap();
        assert!(!is_left(&run));
        drop(one);
        assert!(two.path().join("file").exists());
        drop(two);
        assert!(!run.exists());
        // A dead process is one whose lock is free.
        let dead = tempfile::Builder::new().prefix(RUN).tempdir().unwrap().keep();
        fs::create_dir(dead.join("ordo-check-1")).unwrap();
        fs::write(dead.join("ordo-check-1/acked"), "7").unwrap();
        drop(locked(&dead).unwrap().unwrap());
        assert!(is_left(&dead));
        let left = leftovers().unwrap().into_iter().find(|left| left.path() == dead).unwrap();
        // While one process removes it, no other one does.
        assert!(!is_left(&dead));
        left.remove().unwrap();
        assert!(!dead.exists());
    }

    /// A cleanup between the making of a folder and its lock removes the folder, and the owner
    /// makes another one.
    #[test]
    fn a_folder_that_is_not_locked_yet_is_made_again() {
        let new = tempfile::Builder::new().prefix(RUN).tempdir().unwrap().keep();
        Leftover::found(new.clone()).unwrap().remove().unwrap();
        assert_eq!(locked(&new).unwrap_err().kind(), ErrorKind::NotFound);
        // The cleanup has the lock first.
        fs::create_dir(&new).unwrap();
        fs::write(new.join(LOCK), "").unwrap();
        let left = Leftover::found(new.clone()).unwrap();
        let late = File::options().write(true).open(new.join(LOCK)).unwrap();
        assert!(flock(&late, FlockOperation::NonBlockingLockExclusive).is_err());
        left.remove().unwrap();
        assert!(!new.exists());
    }
}
