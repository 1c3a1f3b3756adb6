//! Devices that exist as long as their session.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ordo_fuse::kernel::{Attach, AttachError, Attached, Detach};
use ordo_fuse::{Handler, HandlerOptions, dev, loopdev};
use ordo_runtime::{Backend, Executor, Runtime};

use crate::device::{Core, DeviceSetup, Recording};
use crate::file::{CONTROL, DeviceFs, MARKS, START, name_of};
use crate::folders::Folder;
use crate::later::show_while_idle;
use crate::marks::Lines;
use crate::turns::while_idle;
use crate::watchdog::{self, Watchdog};

/// The reason why there is no device, or no recording.
#[derive(Debug, thiserror::Error)]
pub enum PseudoError {
    /// FUSE could not be used.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A file operation failed.
    #[error("{what}: {error}")]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The operating system's error.
        error: io::Error,
    },
    /// The loop device could not be used.
    #[error("a loop device: {0}; it needs root, and /dev/loop-control")]
    Loop(io::Error),
    /// The thread that serves the device ended early.
    #[error("the device's server ended early: {0}")]
    Server(String),
}

/// The longest wait for the last program that has the device open.
const RELEASED_WITHIN: Duration = Duration::from_secs(60);

/// The result of a server's thread: the recording of each device, if recording ever began.
pub(crate) type Served = Result<Option<Vec<Recording>>, String>;

/// Devices, and the thread that serves them.
#[derive(Debug)]
pub struct Session {
    folder: Folder,
    devices: Vec<PathBuf>,
    /// The loop devices, which exist as long as these are open.
    open: Vec<File>,
    /// The numbers of each device's partitions.
    partitions: Vec<Vec<u32>>,
    detach: Detach,
    server: Option<JoinHandle<Served>>,
    watchdog: Option<Watchdog>,
}

pub(crate) fn failed(what: &'static str) -> impl Fn(io::Error) -> PseudoError {
    move |error| PseudoError::Io { what, error }
}

impl Session {
    /// A device of `bytes` bytes in memory, which are zero. All requests are recorded with their
    /// contents.
    ///
    /// # Errors
    /// The caller is not root, or there is no FUSE or no loop device.
    pub fn new(bytes: u64) -> Result<Session, PseudoError> {
        Session::with(DeviceSetup::in_memory(bytes))
    }

    /// A device with the given configuration.
    ///
    /// # Errors
    /// The caller is not root, there is no FUSE or no loop device, or the place of its contents
    /// cannot be opened.
    pub fn with(setup: DeviceSetup) -> Result<Session, PseudoError> {
        Session::of_each(vec![setup])
    }

    /// A device for each configuration, all served by one thread, so that their recordings have one
    /// clock. The first one says whether requests go over io_uring.
    ///
    /// # Errors
    /// As for [`with`](Self::with).
    pub fn of_each(setups: Vec<DeviceSetup>) -> Result<Session, PseudoError> {
        let partitions: Vec<_> = setups.iter().map(|setup| setup.partitions.clone()).collect();
        let folder = folder_for_files("ordo-pseudo-")?;
        // Programs of other users may write marks; every other file is closed to them.
        let attached = attach_files(folder.path(), "ordo-pseudo", true)?;
        let detach = attached.detach();
        let server = std::thread::Builder::new().name("pseudo-device".into());
        let (tell, told) = mpsc::channel();
        let server = server.spawn(move || {
            let _ = tell.send(watchdog::this_thread());
            serve(attached, setups)
        });
        let server = server.map_err(failed("starting the device's server"))?;
        let thread = told.recv().ok().and_then(Result::ok);
        let watchdog = thread.and_then(|thread| Watchdog::new(&thread, folder.path()).ok());
        let mut session = Session {
            folder,
            devices: Vec::new(),
            open: Vec::new(),
            partitions: Vec::new(),
            detach,
            server: Some(server),
            watchdog,
        };
        // If an error returns early, dropping the session takes down everything made so far.
        for (number, partitions) in partitions.into_iter().enumerate() {
            let file = session.folder.path().join(name_of(number));
            match loop_over(&file, !partitions.is_empty()) {
                Ok((device, open)) => {
                    session.devices.push(device);
                    session.open.push(open);
                    session.partitions.push(Vec::new());
                }
                Err(error) => return Err(session.failed_with(error)),
            }
            session.add_partitions(&partitions)?;
        }
        Ok(session)
    }

    /// Tells the kernel of the partitions of the last device.
    fn add_partitions(&mut self, partitions: &[(u32, u64, u64)]) -> Result<(), PseudoError> {
        let (Some(open), Some(added)) = (self.open.last(), self.partitions.last_mut()) else {
            return Ok(());
        };
        for (number, start, len) in partitions {
            let done = loopdev::add_partition(open, *number, *start, *len);
            done.map_err(failed("telling the kernel of a partition"))?;
            added.push(*number);
        }
        Ok(())
    }

    /// The reason why a loop device could not be made. A server that could not start reports it.
    fn failed_with(mut self, error: io::Error) -> PseudoError {
        self.open.clear();
        let _ = self.detach.unmount(true);
        match self.server.take().map(JoinHandle::join) {
            Some(Ok(Err(why))) => PseudoError::Server(why),
            _ => PseudoError::Loop(error),
        }
    }

    /// The path of the block device, or of the first one.
    pub fn device(&self) -> &Path {
        &self.devices[0]
    }

    /// The paths of the block devices.
    pub fn devices(&self) -> &[PathBuf] {
        &self.devices
    }

    /// A file with the device's contents beneath the kernel's caches: the contents that a crash at
    /// this moment would leave.
    pub fn contents(&self) -> PathBuf {
        self.folder.path().join(name_of(0))
    }

    /// The file that takes commands: `mark TEXT` puts a text into the trace.
    pub fn control(&self) -> PathBuf {
        self.folder.path().join(CONTROL)
    }

    /// The file to which any user may write marks, a line each, which are put into the trace.
    pub fn marks(&self) -> PathBuf {
        self.folder.path().join(MARKS)
    }

    /// Begins recording; the trace starts with the device's present contents. Data that the kernel
    /// still caches for the device should have been written before (`sync`).
    ///
    /// # Errors
    /// The device's server has ended.
    pub fn start(&self) -> Result<(), PseudoError> {
        let open = std::fs::OpenOptions::new().write(true).open(self.control());
        open.and_then(|mut file| io::Write::write_all(&mut file, START.as_bytes()))
            .map_err(failed("telling the device to record"))
    }

    /// Removes the device, and returns the recording: that of the first device, if there are
    /// several.
    ///
    /// # Errors
    /// Recording never began, or the device is in use.
    pub fn finish(self) -> Result<Recording, PseudoError> {
        self.finish_each().map(|mut all| all.swap_remove(0))
    }

    /// Removes the devices, and returns the recording of each.
    ///
    /// # Errors
    /// Recording never began, or a device is in use.
    pub fn finish_each(mut self) -> Result<Vec<Recording>, PseudoError> {
        self.take_down()?;
        self.watchdog = None;
        joined(self.server.take())
    }

    fn take_down(&mut self) -> Result<(), PseudoError> {
        for (open, partitions) in self.open.iter().zip(std::mem::take(&mut self.partitions)) {
            // One that is in use is removed by the kernel, with its device.
            partitions.iter().for_each(|number| drop(loopdev::remove_partition(open, *number)));
        }
        self.open.clear();
        // The kernel releases the loop device's file a moment after its last user has closed it. A
        // FUSE server does so after umount(8) has returned, when it has written everything.
        let start = Instant::now();
        while start.elapsed() < RELEASED_WITHIN {
            match self.detach.unmount(false) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return other.map_err(failed("unmounting the device's file")),
            }
        }
        Err(failed("unmounting the device's file")(io::ErrorKind::ResourceBusy.into()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // An error cannot be reported from here. If the device is still in use, the server
            // continues until it is not.
            if self.take_down().is_err() {
                let _ = self.detach.unmount(true);
                return;
            }
            let _ = server.join();
        }
    }
}

/// A loop device over the device's file. It disappears when its last user closes it, so also when
/// this process dies.
fn loop_over(file: &Path, has_partitions: bool) -> io::Result<(PathBuf, File)> {
    let backing = File::options().read(true).write(true).open(file)?;
    loopdev::direct_over(&backing, file, has_partitions)
}

/// The recordings of a server's thread.
pub(crate) fn joined(server: Option<JoinHandle<Served>>) -> Result<Vec<Recording>, PseudoError> {
    match server.expect("finished once").join() {
        Ok(Ok(Some(recordings))) => Ok(recordings),
        Ok(Ok(None)) => {
            Err(PseudoError::Server("nothing was recorded: the recording was not started".into()))
        }
        Ok(Err(why)) => Err(PseudoError::Server(why)),
        Err(_) => Err(PseudoError::Server("it panicked".into())),
    }
}

/// Runs the server on its thread, until the kernel releases the devices.
fn serve(attached: Attached, setups: Vec<DeviceSetup>) -> Served {
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    let io_uring = setups.first().is_none_or(|setup| setup.io_uring);
    let cores = setups.into_iter().map(|setup| Core::new(&runtime, setup).map(Rc::new));
    let cores = cores.collect::<Result<Vec<_>, String>>()?;
    let lines = Rc::new(RefCell::new(Lines::default()));
    let files = (cores.clone(), lines.clone());
    let served = executor.block_on(async move {
        for core in &files.0 {
            let shown = show_while_idle(runtime.clone(), core.clone());
            runtime.spawn_daemon("requests for the observer", shown);
            let turns = while_idle(runtime.clone(), core.clone());
            runtime.spawn_daemon("turns of the observer", turns);
        }
        serve_files(runtime, attached, files.0, files.1, io_uring).await
    });
    let ended: Result<(), String> = served.map_err(|e| e.to_string())?;
    ended?;
    let unfinished = lines.borrow().unfinished();
    cores.iter().for_each(|core| core.note_unfinished(unfinished));
    Ok(cores.iter().map(|core| core.finish()).collect())
}

/// A folder on which the files of devices and marks are mounted. Commands of other users pass
/// through it.
pub(crate) fn folder_for_files(prefix: &str) -> Result<Folder, PseudoError> {
    let folder = Folder::new(prefix).map_err(failed("making a directory to mount on"))?;
    let open = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(folder.path(), open).map_err(failed("opening that directory"))?;
    Ok(folder)
}

/// Mounts the files of devices and marks.
pub(crate) fn attach_files(
    dir: &Path,
    source: &str,
    allow_other: bool,
) -> Result<Attached, PseudoError> {
    let (source, flags) = (PathBuf::from(source), Vec::new());
    let how = Attach { source, device: false, read_only: false, allow_other, flags };
    Ok(ordo_fuse::kernel::attach(&how, dir)?)
}

/// Serves the files of devices and marks until the kernel releases them. A mark is put into the
/// traces of all devices.
pub(crate) async fn serve_files(
    runtime: Runtime,
    attached: Attached,
    cores: Vec<Rc<Core>>,
    lines: Rc<RefCell<Lines>>,
    io_uring: bool,
) -> Result<(), String> {
    let marked = cores.clone();
    let on_mark = Rc::new(move |text: &str| marked.iter().for_each(|core| core.mark(text)));
    serve_each(runtime, attached, cores, lines, on_mark, io_uring).await
}

/// Mounts the file of marks in `dir`, and calls `on_mark` with each mark that is written to it,
/// before the write returns, until it is unmounted.
///
/// # Errors
/// There is no FUSE.
pub fn serve_marks(dir: &Path, on_mark: impl Fn(&str) + 'static) -> Result<(), PseudoError> {
    let attached = attach_files(dir, "ordo-marks", true)?;
    let executor = Executor::real_on(Backend::Threads, 1);
    let (runtime, on_mark) = (executor.runtime(), Rc::new(on_mark));
    let serving = serve_each(runtime, attached, Vec::new(), Rc::default(), on_mark, false);
    let served = executor.block_on(serving).map_err(|e| PseudoError::Server(e.to_string()))?;
    served.map_err(PseudoError::Server)
}

async fn serve_each(
    runtime: Runtime,
    attached: Attached,
    cores: Vec<Rc<Core>>,
    lines: Rc<RefCell<Lines>>,
    on_mark: Rc<dyn Fn(&str)>,
    io_uring: bool,
) -> Result<(), String> {
    let writer = Rc::new(Cell::default());
    let fs = DeviceFs { cores, on_mark, lines, writer: writer.clone() };
    let options = HandlerOptions { io_uring, writer: Some(writer), ..HandlerOptions::default() };
    let handler = Rc::new(Handler::new(fs, options, Rc::new(|_: &str| {})));
    let stop = Rc::new(dev::Stop::default());
    let served = dev::serve(&runtime, &Arc::new(attached.device), &handler, &stop).await;
    served.map_err(|e| e.to_string())?.send(&runtime).await;
    Ok(())
}
