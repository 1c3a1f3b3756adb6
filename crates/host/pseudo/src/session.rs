//! A device that exists as long as its session.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use ordo_fuse::kernel::{Attach, AttachError, Attached, Detach};
use ordo_fuse::{Handler, HandlerOptions, dev};
use ordo_runtime::Executor;

use crate::device::{Core, DeviceSetup, Recording};
use crate::file::{CONTROL, DEVICE, DeviceFs, MARKS, START};
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
    #[error("losetup: {0}; it is in the package util-linux, and needs root")]
    Loop(String),
    /// The thread that serves the device ended early.
    #[error("the device's server ended early: {0}")]
    Server(String),
}

/// The result of a server's thread.
pub(crate) type Served = Result<Option<Recording>, String>;

/// A device, and the thread that serves it.
#[derive(Debug)]
pub struct Session {
    folder: tempfile::TempDir,
    device: PathBuf,
    detach: Detach,
    server: Option<JoinHandle<Served>>,
    watchdog: Option<Watchdog>,
}

pub(crate) fn failed(what: &'static str) -> impl Fn(io::Error) -> PseudoError {
    move |error| PseudoError::Io { what, error }
}

impl Session {
    /// A device of `bytes` bytes in memory, which are zero. All requests are recorded with their contents.
    ///
    /// # Errors
    /// The caller is not root, or there is no FUSE or no loop device.
    pub fn new(bytes: u64) -> Result<Session, PseudoError> {
        Session::with(DeviceSetup::in_memory(bytes))
    }

    /// A device with the given configuration.
    ///
    /// # Errors
    /// The caller is not root, there is no FUSE or no loop device, or the place of its contents cannot be opened.
    pub fn with(setup: DeviceSetup) -> Result<Session, PseudoError> {
        let folder = tempfile::Builder::new().prefix("ordo-pseudo-").tempdir();
        let folder = folder.map_err(failed("making a directory to mount on"))?;
        let how = Attach {
            source: PathBuf::from("ordo-pseudo"),
            device: false,
            read_only: false,
            // Programs of other users may write marks; every other file is closed to them.
            allow_other: true,
            flags: Vec::new(),
        };
        let open = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(folder.path(), open).map_err(failed("opening that directory"))?;
        let attached = ordo_fuse::kernel::attach(&how, folder.path())?;
        let detach = attached.detach();
        let server = std::thread::Builder::new().name("pseudo-device".into());
        let (tell, told) = mpsc::channel();
        let server = server.spawn(move || {
            let _ = tell.send(watchdog::this_thread());
            serve(attached, setup)
        });
        let server = server.map_err(failed("starting the device's server"))?;
        let thread = told.recv().ok().and_then(Result::ok);
        let watchdog = thread.and_then(|thread| Watchdog::new(&thread, folder.path()).ok());
        let device = PathBuf::new();
        let mut session = Session { folder, device, detach, server: Some(server), watchdog };
        // If an error returns early, dropping the session takes down everything made so far.
        match losetup(&session.folder.path().join(DEVICE)) {
            Ok(device) => session.device = device,
            Err(error) => {
                // A server that could not start reports the reason.
                let _ = session.detach.unmount(true);
                let ended = session.server.take().map(JoinHandle::join);
                return Err(match ended {
                    Some(Ok(Err(why))) => PseudoError::Server(why),
                    _ => error,
                });
            }
        }
        Ok(session)
    }

    /// The path of the block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// A file with the device's contents beneath the kernel's caches: the contents that a crash at this moment would
    /// leave.
    pub fn contents(&self) -> PathBuf {
        self.folder.path().join(DEVICE)
    }

    /// The file that takes commands: `mark TEXT` puts a text into the trace.
    pub fn control(&self) -> PathBuf {
        self.folder.path().join(CONTROL)
    }

    /// The file to which any user may write marks, a line each, which are put into the trace.
    pub fn marks(&self) -> PathBuf {
        self.folder.path().join(MARKS)
    }

    /// Begins recording; the trace starts with the device's present contents. Data that the kernel still caches for
    /// the device should have been written before (`sync`).
    ///
    /// # Errors
    /// The device's server has ended.
    pub fn start(&self) -> Result<(), PseudoError> {
        let open = std::fs::OpenOptions::new().write(true).open(self.control());
        open.and_then(|mut file| io::Write::write_all(&mut file, START.as_bytes()))
            .map_err(failed("telling the device to record"))
    }

    /// Removes the device, and returns the recording.
    ///
    /// # Errors
    /// Recording never began, or the device is in use.
    pub fn finish(mut self) -> Result<Recording, PseudoError> {
        self.take_down()?;
        self.watchdog = None;
        joined(self.server.take())
    }

    fn take_down(&mut self) -> Result<(), PseudoError> {
        if !self.device.as_os_str().is_empty() {
            let done =
                Command::new("losetup").arg("-d").arg(&self.device).process_group(0).output();
            let done = done.map_err(|e| PseudoError::Loop(e.to_string()))?;
            if !done.status.success() {
                return Err(PseudoError::Loop(String::from_utf8_lossy(&done.stderr).into_owned()));
            }
            self.device = PathBuf::new();
        }
        // The kernel releases the loop device's file a moment after it has reported this.
        for _ in 0..500 {
            match self.detach.unmount(false) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
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
            // An error cannot be reported from here. If the device is still in use, the server continues until it is
            // not.
            if self.take_down().is_err() {
                let _ = self.detach.unmount(true);
                return;
            }
            let _ = server.join();
        }
    }
}

fn losetup(file: &Path) -> Result<PathBuf, PseudoError> {
    let args = ["--direct-io=on", "--show", "-f"];
    let out = Command::new("losetup").args(args).arg(file).process_group(0).output();
    let out = out.map_err(|e| PseudoError::Loop(e.to_string()))?;
    match out.status.success() {
        true => Ok(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())),
        false => Err(PseudoError::Loop(String::from_utf8_lossy(&out.stderr).trim().to_owned())),
    }
}

/// The recording of a server's thread.
pub(crate) fn joined(server: Option<JoinHandle<Served>>) -> Result<Recording, PseudoError> {
    match server.expect("finished once").join() {
        Ok(Ok(Some(recording))) => Ok(recording),
        Ok(Ok(None)) => {
            Err(PseudoError::Server("nothing was recorded: the recording was not started".into()))
        }
        Ok(Err(why)) => Err(PseudoError::Server(why)),
        Err(_) => Err(PseudoError::Server("it panicked".into())),
    }
}

/// Runs the server on its thread, until the kernel releases the device.
fn serve(attached: Attached, setup: DeviceSetup) -> Served {
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    let io_uring = setup.io_uring;
    let core = Rc::new(Core::new(&runtime, setup)?);
    let fs = DeviceFs { core: core.clone() };
    let of_turns = core.clone();
    let served = executor.block_on(async move {
        runtime.spawn_daemon("turns of the observer", while_idle(runtime.clone(), of_turns));
        let options = HandlerOptions { io_uring, ..HandlerOptions::default() };
        let handler = Rc::new(Handler::new(fs, options, Rc::new(|_: &str| {})));
        let stop = Rc::new(dev::Stop::default());
        let served = dev::serve(&runtime, &Arc::new(attached.device), &handler, &stop).await;
        served.map_err(|e| e.to_string())?.send(&runtime).await;
        Ok(())
    });
    let ended: Result<(), String> = served.map_err(|e| e.to_string())?;
    ended?;
    Ok(core.finish())
}
