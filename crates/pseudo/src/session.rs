//! A device that is there as long as its session.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use ordo_fuse::kernel::{Attach, AttachError, Attached, Detach};
use ordo_fuse::{Handler, Options, dev};
use ordo_runtime::Executor;

use crate::device::{Core, Recording, Setup};
use crate::file::{CONTROL, DEVICE, DeviceFs, MARKS, START};
use crate::watchdog::{self, Watchdog};

/// Why there is no device, or no recording.
#[derive(Debug, thiserror::Error)]
pub enum PseudoError {
    /// FUSE.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A directory or a file of its own.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
    /// The loop device.
    #[error("losetup: {0}; it is in the package util-linux, and needs root")]
    Loop(String),
    /// The thread that serves the device.
    #[error("the device's server ended early: {0}")]
    Server(String),
}

/// What becomes of a server's thread.
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
    /// A device of `bytes` bytes, all zero, in memory, of which everything is kept.
    ///
    /// # Errors
    /// Who calls it is not root, or there is no FUSE or no loop device.
    pub fn new(bytes: u64) -> Result<Session, PseudoError> {
        Session::with(Setup::in_memory(bytes))
    }

    /// A device as `setup` has it.
    ///
    /// # Errors
    /// Who calls it is not root, there is no FUSE or no loop device, or what it is over cannot be opened.
    pub fn with(setup: Setup) -> Result<Session, PseudoError> {
        let folder = tempfile::Builder::new().prefix("ordo-pseudo-").tempdir();
        let folder = folder.map_err(failed("making a directory to mount on"))?;
        let how = Attach {
            source: PathBuf::from("ordo-pseudo"),
            device: false,
            read_only: false,
            // Programs of other users may put marks; all else is closed to them.
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
        // Dropped on the way out, the session takes down what is there.
        match losetup(&session.folder.path().join(DEVICE)) {
            Ok(device) => session.device = device,
            Err(error) => {
                // A server that could not begin says why.
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

    /// The block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The device's contents as a file, beneath all that the kernel has in memory for it: what a crash would leave now.
    pub fn contents(&self) -> PathBuf {
        self.folder.path().join(DEVICE)
    }

    /// A file that takes words: `mark TEXT` puts a text into the trace.
    pub fn control(&self) -> PathBuf {
        self.folder.path().join(CONTROL)
    }

    /// A file to which anyone may write marks, a line each: they are put into the trace.
    pub fn marks(&self) -> PathBuf {
        self.folder.path().join(MARKS)
    }

    /// From now on requests are recorded; what the device holds now is where the trace begins. What the kernel
    /// still has in memory for the device should have been written (`sync`).
    ///
    /// # Errors
    /// The device's server is gone.
    pub fn start(&self) -> Result<(), PseudoError> {
        let open = std::fs::OpenOptions::new().write(true).open(self.control());
        open.and_then(|mut file| io::Write::write_all(&mut file, START.as_bytes()))
            .map_err(failed("telling the device to record"))
    }

    /// Takes the device away, and gives what was recorded.
    ///
    /// # Errors
    /// It was never started, or it is in use.
    pub fn finish(mut self) -> Result<Recording, PseudoError> {
        self.take_down()?;
        self.watchdog = None;
        joined(self.server.take())
    }

    fn take_down(&mut self) -> Result<(), PseudoError> {
        if !self.device.as_os_str().is_empty() {
            let done = Command::new("losetup").arg("-d").arg(&self.device).output();
            let done = done.map_err(|e| PseudoError::Loop(e.to_string()))?;
            if !done.status.success() {
                return Err(PseudoError::Loop(String::from_utf8_lossy(&done.stderr).into_owned()));
            }
            self.device = PathBuf::new();
        }
        // The kernel lets go of the loop device's file a moment after it has said that it did.
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
            // Nobody is there to be told. Where somebody still uses the device, the server goes on until they do not.
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
    let out = Command::new("losetup").args(args).arg(file).output();
    let out = out.map_err(|e| PseudoError::Loop(e.to_string()))?;
    match out.status.success() {
        true => Ok(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())),
        false => Err(PseudoError::Loop(String::from_utf8_lossy(&out.stderr).trim().to_owned())),
    }
}

/// What a server's thread has recorded.
pub(crate) fn joined(server: Option<JoinHandle<Served>>) -> Result<Recording, PseudoError> {
    match server.expect("finished once").join() {
        Ok(Ok(Some(recording))) => Ok(recording),
        Ok(Ok(None)) => Err(PseudoError::Server("nothing was recorded: it was not started".into())),
        Ok(Err(why)) => Err(PseudoError::Server(why)),
        Err(_) => Err(PseudoError::Server("it panicked".into())),
    }
}

/// The server's thread: until the kernel lets go.
fn serve(attached: Attached, setup: Setup) -> Served {
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    let io_uring = setup.io_uring;
    let core = Rc::new(Core::new(&runtime, setup)?);
    let fs = DeviceFs { core: core.clone() };
    let served = executor.block_on(async move {
        let options = Options { io_uring, ..Options::default() };
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
