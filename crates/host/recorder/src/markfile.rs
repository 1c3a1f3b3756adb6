//! A file of marks for devices of a thread of this process.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use ordo_fuse::kernel::{Attached, Detach};
use ordo_runtime::Runtime;

use crate::PseudoError;
use crate::device::RecordedDisk;
use crate::file::MARKS;
use crate::folders::{Folder, OWN_MOUNT};
use crate::marks::Lines;
use crate::session::{attach_files, folder_for_files, serve_files};
use crate::watchdog::WatchedMount;

/// A mounted file to which programs write marks, a line each. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct MarkFile {
    detach: Detach,
    folder: Folder,
    /// The watchdog's note of the mount; `None` if there can be none.
    _watched: Option<WatchedMount>,
}

/// The serving end of a [`MarkFile`], for the thread that has the devices.
#[derive(Debug)]
pub struct MarkServer(Attached);

/// The lines of a [`MarkFile`] that have begun.
#[derive(Debug)]
pub struct MarkLines(Rc<RefCell<Lines>>);

impl MarkFile {
    /// Mounts the file. Ordinary users may where they may mount by FUSE.
    ///
    /// # Errors
    /// There is no FUSE, or no place for the mount.
    pub fn new() -> Result<(MarkFile, MarkServer), PseudoError> {
        let folder = folder_for_files("ordo-marks-")?;
        let watched = WatchedMount::before_mount(folder.path()).ok();
        let is_root = rustix::process::geteuid().is_root();
        let attached = attach_files(folder.path(), OWN_MOUNT, is_root)?;
        let detach = attached.detach();
        Ok((MarkFile { detach, folder, _watched: watched }, MarkServer(attached)))
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(MARKS)
    }
}

impl Drop for MarkFile {
    fn drop(&mut self) {
        // A program that has the file open keeps nothing but its descriptor.
        let _ = self.detach.unmount(true);
    }
}

impl MarkServer {
    /// Serves the file in the background. A write to it returns when its marks are in the
    /// recordings of all these devices.
    pub fn serve(self, runtime: &Runtime, disks: &[RecordedDisk]) -> MarkLines {
        let lines = Rc::new(RefCell::new(Lines::default()));
        let cores = disks.iter().map(RecordedDisk::core).collect();
        let serving = serve_files(runtime.clone(), self.0, cores, lines.clone(), false);
        runtime.spawn_daemon("marks", async move { drop(serving.await) });
        MarkLines(lines)
    }
}

impl MarkLines {
    /// The number of lines whose newline has not come.
    pub fn unfinished(&self) -> usize {
        self.0.borrow().unfinished()
    }
}
