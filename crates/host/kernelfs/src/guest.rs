//! A kernel file system in a guest kernel, recorded in virtual time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ordo_block::BlockDevice;
use ordo_guest::init::{CONTROL_FILE, MARK_DIR, MarkWriter};
use ordo_guest::orders::{GuestAnswer, GuestProgram, Order};
use ordo_guest::{Guest, GuestError, GuestSetup};
use ordo_recorder::{DeviceSetup, RecordedDisk, Recording};
use ordo_runtime::Executor;

use crate::kernel::{LiveError, LiveSystem, known};
use crate::watching::{TrafficSlot, WatchOptions, WatchedTraffic, take, watching};

/// The device in the guest.
const DEVICE: &str = "/dev/vda";
/// The directory in the guest on which it is mounted.
const MOUNTED: &str = "/tmp/ordo";
/// The places of programs that make and check file systems.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Serves the file of marks in a guest: the program that is the guest's first process calls it when
/// it is called with the argument `guest-marks`.
///
/// # Errors
/// This is no guest, or its kernel has no FUSE.
pub fn serve_marks() -> Result<(), LiveError> {
    let opened = MarkWriter::open();
    let out = opened.map_err(|error| LiveError::Io { what: "the marks".to_owned(), error })?;
    // A mark that does not get out is lost with its guest.
    Ok(ordo_recorder::serve_marks(Path::new(MARK_DIR), move |text| drop(out.set(text)))?)
}

/// A file system that is mounted in a guest and recorded.
pub struct GuestMount {
    guest: Guest,
    disk: RecordedDisk,
    seen: TrafficSlot,
    /// The folder of the outputs of programs.
    folder: tempfile::TempDir,
    executor: Executor,
}

impl From<GuestError> for LiveError {
    fn from(error: GuestError) -> LiveError {
        match error {
            GuestError::Stopped => LiveError::Stopped,
            error => LiveError::Program(error.to_string()),
        }
    }
}

impl GuestMount {
    /// Starts a guest, makes a file system on its disk and mounts it; recording begins before the
    /// mount. Time is virtual from 0 on, and follows from the seed of `guest`.
    ///
    /// # Errors
    /// There is no guest, or the file system cannot be made or mounted in it.
    pub fn new(
        system: &LiveSystem,
        wanted: WatchOptions,
        mut setup: DeviceSetup,
        mut guest: GuestSetup,
    ) -> Result<GuestMount, LiveError> {
        let known = known(&system.name)?;
        let seen = TrafficSlot::default();
        if setup.observer.is_none() {
            setup.observer = Some(watching(wanted, Arc::clone(&seen)));
        }
        let executor = Executor::simulated(guest.seed);
        let runtime = executor.runtime();
        let disk = RecordedDisk::new(&runtime, setup).map_err(LiveError::Program)?;
        let made = tempfile::Builder::new().prefix("ordo-output-").tempdir();
        let folder = made.map_err(|error| LiveError::Io { what: "a folder".to_owned(), error })?;
        guest.disks = vec![disk.clone().erase()];
        guest.has_marks = true;
        guest.shared.push(folder.path().to_owned());
        let guest = Guest::start(&runtime, guest)?;
        let marked = disk.clone();
        guest.on_mark(move |text| marked.mark(text));
        let mounted = GuestMount { guest, disk, seen, folder, executor };
        let words = known.mkfs.iter().map(|word| (*word).to_owned());
        let words = words.chain(system.mkfs.iter().cloned()).chain([DEVICE.to_owned()]);
        mounted.prepare(words.map(OsString::from).collect())?;
        mounted.disk.start();
        mounted.wait(&Order::Mount {
            fs: system.name.clone(),
            source: DEVICE.into(),
            dir: MOUNTED.into(),
            options: system.options.clone(),
        })?;
        Ok(mounted)
    }

    /// Gives an order and waits for it, while virtual time passes.
    fn wait(&self, order: &Order) -> Result<GuestAnswer, LiveError> {
        let asked = self.executor.block_on(self.guest.ask(order));
        let answer = asked.map_err(|stuck| LiveError::Program(stuck.to_string()))??;
        match answer {
            GuestAnswer::Failed(why) => Err(LiveError::Program(format!("in the guest: {why}"))),
            answer => Ok(answer),
        }
    }

    /// Runs a program that is to succeed.
    fn prepare(&self, words: Vec<OsString>) -> Result<(), LiveError> {
        let name = words.first().map_or_else(String::new, |w| w.to_string_lossy().into_owned());
        let output = self.folder.path().join("preparation");
        let environment = vec![("PATH".into(), SYSTEM_PATH.into())];
        let dir = PathBuf::from("/");
        let (user, errors, output) = (None, None, Some(output));
        let program = GuestProgram { words, environment, dir, user, output, errors };
        match self.wait(&Order::Run(program.clone()))? {
            GuestAnswer::Ended { code: Some(0), .. } => Ok(()),
            _ => {
                let said = program.output.map(std::fs::read_to_string);
                let said = said.and_then(Result::ok).unwrap_or_default();
                Err(LiveError::Program(format!("{name} in the guest: {}", said.trim())))
            }
        }
    }

    /// The mount point, as programs in the guest see it.
    pub fn dir(&self) -> &Path {
        Path::new(MOUNTED)
    }

    /// The file for the output of a program, and the one for its errors.
    pub fn outputs(&self) -> [PathBuf; 2] {
        ["output", "errors"].map(|name| self.folder.path().join(name))
    }

    /// The file that takes commands of programs in the guest: `mark TEXT` puts a text into the
    /// trace.
    pub fn control(&self) -> &'static Path {
        Path::new(CONTROL_FILE)
    }

    /// Virtual seconds since the guest was started.
    pub fn seconds(&self) -> f64 {
        self.executor.runtime().now().as_secs_f64()
    }

    /// Runs a program in the mounted file system, to its end.
    ///
    /// # Errors
    /// It cannot be started, or the guest ends before it does.
    pub fn run(
        &self,
        words: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<GuestAnswer, LiveError> {
        let [output, errors] = self.outputs().map(Some);
        let (dir, user) = (MOUNTED.into(), None);
        self.wait(&Order::Run(GuestProgram { words, environment, dir, user, output, errors }))
    }

    /// Unmounts, and returns the recording and the watcher's results, if it knows the file system.
    /// After the guest has ended by itself there is what was recorded until then.
    ///
    /// # Errors
    /// The file system is in use.
    pub fn finish(self) -> Result<(Recording, Option<WatchedTraffic>), LiveError> {
        let into = Arc::clone(&self.seen);
        let recording = self.finish_recording()?;
        let mut seen = take(&into);
        if let Some(seen) = &mut seen {
            seen.renumber(&recording);
        }
        Ok((recording, seen))
    }

    /// Unmounts, and returns the recording. The configuration had an observer of its own, which has
    /// the results.
    ///
    /// # Errors
    /// The file system is in use.
    pub fn finish_recording(self) -> Result<Recording, LiveError> {
        if self.guest.failure().is_none() {
            self.wait(&Order::Unmount { dir: MOUNTED.into() })?;
            let off = self.executor.block_on(self.guest.power_off());
            off.map_err(|stuck| LiveError::Program(stuck.to_string()))??;
        }
        self.disk.finish().ok_or(LiveError::Unknown)
    }
}
