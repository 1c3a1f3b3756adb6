//! A kernel file system on a pseudo-device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ordo_recorder::{DeviceSetup, Folder, PseudoError, Recording, Session};

use crate::table::KernelFs;
use crate::watching::{TrafficSlot, WatchOptions, WatchedTraffic, take, watching};

/// The reason why there is no file system to watch.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// No file system has this name.
    #[error("no file system is called '{name}'; there are {known}")]
    Name {
        /// The name asked for.
        name: String,
        /// The known names.
        known: String,
    },
    /// The pseudo-device failed.
    #[error(transparent)]
    Pseudo(#[from] PseudoError),
    /// A program failed, or is not installed.
    #[error("{0}")]
    Program(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The experiments were asked to end.
    #[error("stopped before the end")]
    Stopped,
    /// The file system on the device is not known.
    #[error("no known file system was found on the device")]
    Unknown,
}

/// Runs a program to its end.
///
/// # Errors
/// The program is not installed, or failed.
pub fn run(program: &str, args: &[&str]) -> Result<(), LiveError> {
    // The program runs in a session of its own: a signal that a terminal sends to all processes
    // must not end an unmount.
    let out = Command::new(program).args(args).process_group(0).output();
    let out = out.map_err(|e| LiveError::Program(format!("{program}: {e}; is it installed?")))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(LiveError::Program(format!("{program} {}: {}", args.join(" "), said.trim())))
}

/// A file system to make, and how to mount it.
#[derive(Clone, Debug)]
pub struct LiveSystem {
    /// The name.
    pub name: String,
    /// Additional arguments for mkfs.
    pub mkfs: Vec<String>,
    /// Mount options.
    pub options: String,
    /// The device's size in bytes.
    pub bytes: u64,
}

pub(crate) fn known(name: &str) -> Result<&'static KernelFs, LiveError> {
    let unknown = || LiveError::Name { name: name.to_owned(), known: KernelFs::names() };
    KernelFs::by_name(name).ok_or_else(unknown)
}

/// Mount options, some of which may be empty.
fn joined(options: &[&str]) -> String {
    let given = options.iter().filter(|options| !options.is_empty());
    given.copied().collect::<Vec<_>>().join(",")
}

/// A directory to mount on.
fn folder() -> Result<Folder, LiveError> {
    let made = Folder::new("ordo-live-");
    let what = "making a directory to mount on".to_owned();
    made.map_err(|error| LiveError::Io { what, error })
}

/// Unmounts a file system. A program that another thread is starting may have the directory open
/// for a moment.
fn unmount(dir: &str) -> Result<(), LiveError> {
    let mut tries = 0;
    loop {
        match run("umount", &[dir]) {
            Err(LiveError::Program(why)) if why.contains("busy") && tries < 200 => {
                std::thread::sleep(std::time::Duration::from_millis(10));
                tries += 1;
            }
            done => return done,
        }
    }
}

/// The unit in which zeros are skipped, in bytes.
const PIECE: usize = 64 << 10;

/// Copies an image to a device that holds zeros.
fn put(image: &[u8], device: &str) -> io::Result<()> {
    let file = File::options().write(true).open(device)?;
    for (n, piece) in image.chunks(PIECE).enumerate().filter(|(_, p)| p.iter().any(|b| *b != 0)) {
        file.write_all_at(piece, (n * PIECE) as u64)?;
    }
    file.sync_all()
}

/// Mounts an image as a crash left it, and calls `look` with the mount point.
///
/// # Errors
/// The image cannot be mounted.
pub fn look_into<T>(
    name: &str,
    image: &Path,
    look: impl FnOnce(&Path) -> T,
) -> Result<T, LiveError> {
    let system = known(name)?;
    if let [replayer, args @ ..] = system.repair
        && system.is_replayed
    {
        // Its exit status tells that it has changed something, too; the mount tells whether that
        // was enough.
        let done = Command::new(replayer).args(args).arg(image).output();
        done.map_err(|e| LiveError::Program(format!("{replayer}: {e}; is it installed?")))?;
    }
    let folder = folder()?;
    let (image, dir) = (image.to_string_lossy(), folder.path().to_string_lossy());
    // Another thread may have a copy of the image mounted.
    let options = joined(&["loop", system.copy_option]);
    run("mount", &["-t", name, "-o", &options, &image, &dir])?;
    let seen = look(folder.path());
    unmount(&dir)?;
    Ok(seen)
}

/// A file system that is mounted on a pseudo-device and recorded.
pub struct KernelMount {
    session: Option<Session>,
    folder: Folder,
    seen: TrafficSlot,
}

impl KernelMount {
    /// Makes a file system and mounts it; recording begins before the mount.
    ///
    /// # Errors
    /// There is no device, or the file system cannot be made or mounted.
    pub fn new(
        system: &LiveSystem,
        wanted: WatchOptions,
        setup: DeviceSetup,
    ) -> Result<KernelMount, LiveError> {
        let mkfs = known(&system.name)?.mkfs;
        KernelMount::after(system, wanted, setup, |session, device| {
            let mut args: Vec<&str> = mkfs[1..].to_vec();
            args.extend(system.mkfs.iter().map(String::as_str));
            args.push(device);
            run(mkfs[0], &args)?;
            run("sync", &[device])?;
            Ok(session.start()?)
        })
    }

    /// Mounts what is in the place that `setup` names: the whole device, or the partition of that
    /// number. The kernel finds out which file system that is. Recording begins before the mount,
    /// with the observer of `setup`.
    ///
    /// # Errors
    /// There is no device, or it cannot be mounted.
    pub fn of_device(
        options: &str,
        setup: DeviceSetup,
        partition: Option<u32>,
    ) -> Result<KernelMount, LiveError> {
        let session = Session::with(setup)?;
        let mut device = session.device().to_string_lossy().into_owned();
        if let Some(number) = partition {
            device += &format!("p{number}");
        }
        session.start()?;
        let folder = folder()?;
        let dir = folder.path().to_string_lossy().into_owned();
        run("mount", &["-o", options, &device, &dir])?;
        Ok(KernelMount { session: Some(session), folder, seen: TrafficSlot::default() })
    }

    /// Mounts an image that a crash left. Recording begins before that, and before the repair that
    /// the file system needs first.
    ///
    /// # Errors
    /// There is no device, or it cannot be repaired or mounted.
    pub fn of_image(
        system: &LiveSystem,
        wanted: WatchOptions,
        setup: DeviceSetup,
        image: &[u8],
    ) -> Result<KernelMount, LiveError> {
        let repair = known(&system.name)?.repair;
        KernelMount::after(system, wanted, setup, |session, device| {
            put(image, device).map_err(|error| LiveError::Io { what: device.to_owned(), error })?;
            session.start()?;
            let [program, args @ ..] = repair else { return Ok(()) };
            let done = Command::new(program).args(args).arg(device).output();
            done.map(drop).map_err(|e| LiveError::Program(format!("{program}: {e}")))
        })
    }

    /// Mounts a pseudo-device after a step on it, such as mkfs or repair.
    fn after(
        system: &LiveSystem,
        wanted: WatchOptions,
        setup: DeviceSetup,
        prepare: impl FnOnce(&Session, &str) -> Result<(), LiveError>,
    ) -> Result<KernelMount, LiveError> {
        let seen = TrafficSlot::default();
        let mut setup = setup;
        let observer = setup.observer.take();
        let observer = observer.or_else(|| Some(watching(wanted, Arc::clone(&seen))));
        let session = Session::with(DeviceSetup { observer, ..setup })?;
        let device = session.device().to_string_lossy().into_owned();
        prepare(&session, &device)?;
        let folder = folder()?;
        let dir = folder.path().to_string_lossy().into_owned();
        let options = joined(&[&system.options, known(&system.name)?.copy_option]);
        run("mount", &["-t", &system.name, "-o", &options, &device, &dir])?;
        Ok(KernelMount { session: Some(session), folder, seen })
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// The path of the block device.
    pub fn device(&self) -> PathBuf {
        self.session.as_ref().map_or_else(PathBuf::new, |s| s.device().to_owned())
    }

    /// The file that takes commands: `mark TEXT` puts a text into the trace.
    pub fn control(&self) -> PathBuf {
        self.session.as_ref().map_or_else(PathBuf::new, Session::control)
    }

    /// Writes an image of the contents that a crash at this moment would leave.
    ///
    /// # Errors
    /// The contents cannot be read, or the image cannot be written.
    pub fn crash_image(&self, to: &Path) -> Result<(), LiveError> {
        let session = self.session.as_ref().ok_or(LiveError::Unknown)?;
        let copied = std::fs::copy(session.contents(), to).map(drop);
        copied.map_err(|error| LiveError::Io { what: to.display().to_string(), error })
    }

    /// Unmounts, and returns the recording and the watcher's results.
    ///
    /// # Errors
    /// The file system is in use, or is not known.
    pub fn finish(self) -> Result<(Recording, WatchedTraffic), LiveError> {
        let into = Arc::clone(&self.seen);
        let recording = self.finish_recording()?;
        let mut seen = take(&into).ok_or(LiveError::Unknown)?;
        seen.renumber(&recording);
        Ok((recording, seen))
    }

    /// Unmounts, and returns the recording. The configuration had an observer of its own, which has
    /// the results.
    ///
    /// # Errors
    /// The file system is in use.
    pub fn finish_recording(mut self) -> Result<Recording, LiveError> {
        unmount(&self.folder.path().to_string_lossy())?;
        let session = self.session.take().ok_or(LiveError::Unknown)?;
        Ok(session.finish()?)
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.session.is_some() {
            // The unmount is lazy: a program that still uses the mount must not keep the device
            // alive.
            let _ = Command::new("umount").arg("-l").arg(self.folder.path()).output();
        }
    }
}
