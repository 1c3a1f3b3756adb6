//! A kernel file system in a guest kernel: on any disks ([`GuestFs`]), or recorded
//! ([`GuestMount`]).

use std::cell::Cell;
use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ordo_block::BlockDevice;
use ordo_guest::init::{CONTROL_FILE, MARK_DIR, MarkWriter};
use ordo_guest::orders::{GuestAnswer, GuestProgram, Order};
use ordo_guest::{Guest, GuestError, GuestSetup};
use ordo_recorder::{DeviceSetup, RecordedDisk, Recording};
use ordo_runtime::{Executor, Runtime};
use ordo_trace::{COMMAND_BEGINS, COMMAND_ENDS};

use crate::kernel::{LiveError, LiveSystem, known};
use crate::table::{CommandWords, KernelFs};
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

/// A guest whose disks have, or will have, a file system of the kernel's.
pub struct GuestFs {
    guest: Guest,
    system: LiveSystem,
    fs: &'static KernelFs,
    /// The folder of the outputs of programs.
    folder: tempfile::TempDir,
    /// The number of files in it, each for the output of one program: a guest remembers a file of
    /// the host's, and would not see it replaced.
    files: Cell<u32>,
}

impl GuestFs {
    /// Starts a guest with the disks of `setup`, the first of which is for the file system.
    ///
    /// # Errors
    /// There is no guest, or no file system has this name.
    pub fn start(
        runtime: &Runtime,
        system: &LiveSystem,
        mut setup: GuestSetup,
    ) -> Result<GuestFs, LiveError> {
        let fs = known(&system.name)?;
        let made = tempfile::Builder::new().prefix("ordo-output-").tempdir();
        let folder = made.map_err(|error| LiveError::Io { what: "a folder".to_owned(), error })?;
        setup.has_marks = true;
        setup.shared.push(folder.path().to_owned());
        let guest = Guest::start(runtime, setup)?;
        Ok(GuestFs { guest, system: system.clone(), fs, folder, files: Cell::new(0) })
    }

    /// Calls `call` with each mark that a program in the guest sets, at its time.
    pub fn on_mark(&self, call: impl Fn(&str) + 'static) {
        self.guest.on_mark(call);
    }

    /// Gives an order that the guest can carry out.
    async fn ask(&self, order: &Order) -> Result<GuestAnswer, LiveError> {
        match self.guest.ask(order).await? {
            GuestAnswer::Failed(why) => Err(LiveError::Program(format!("in the guest: {why}"))),
            answer => Ok(answer),
        }
    }

    /// Makes the file system.
    ///
    /// # Errors
    /// Its program fails, or is not there.
    pub async fn make(&self) -> Result<(), LiveError> {
        let words = self.fs.mkfs.iter().map(|word| (*word).to_owned());
        let words = words.chain(self.system.mkfs.iter().cloned()).chain([DEVICE.to_owned()]);
        self.prepare(words.map(OsString::from).collect()).await.map(drop)
    }

    /// Mounts the file system.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn mount(&self) -> Result<(), LiveError> {
        let order = Order::Mount {
            fs: self.system.name.clone(),
            source: DEVICE.into(),
            dir: MOUNTED.into(),
            options: self.system.options.clone(),
        };
        self.ask(&order).await.map(drop)
    }

    /// Runs the program that repairs the file system before a mount, if it needs one.
    ///
    /// # Errors
    /// The program is not there.
    pub async fn repair(&self) -> Result<(), LiveError> {
        match self.fs.repair {
            [] => Ok(()),
            words => self.on_device(words).await.map(drop),
        }
    }

    /// Runs the program that checks the file system, which is not mounted. Returns how it ended,
    /// and what it said.
    ///
    /// # Errors
    /// The program is not there.
    pub async fn check(&self) -> Result<(GuestAnswer, String), LiveError> {
        self.on_device(self.fs.check).await
    }

    async fn on_device(&self, words: CommandWords) -> Result<(GuestAnswer, String), LiveError> {
        let words = words.iter().copied().chain([DEVICE]).map(OsString::from);
        let environment = vec![("PATH".into(), SYSTEM_PATH.into())];
        self.program(words.collect(), environment, Path::new("/")).await
    }

    /// Runs a program beside the work proper, and returns how it ended and what it said.
    ///
    /// # Errors
    /// It cannot be started, or the guest ends before it does.
    pub async fn program(
        &self,
        words: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
        dir: &Path,
    ) -> Result<(GuestAnswer, String), LiveError> {
        self.files.set(self.files.get() + 1);
        let output = self.folder.path().join(format!("program-{}", self.files.get()));
        let (user, errors, dir) = (None, None, dir.to_owned());
        let to = Some(output.clone());
        let program = GuestProgram { words, environment, dir, user, output: to, errors };
        let ended = self.ask(&Order::Run(program)).await?;
        let said = std::fs::read(output).unwrap_or_default();
        Ok((ended, String::from_utf8_lossy(&said).trim().to_owned()))
    }

    /// Runs a program that is to succeed, and returns what it said.
    ///
    /// # Errors
    /// It fails, or is not there.
    pub async fn prepare(&self, words: Vec<OsString>) -> Result<String, LiveError> {
        let name = words.first().map_or_else(String::new, |w| w.to_string_lossy().into_owned());
        let environment = vec![("PATH".into(), SYSTEM_PATH.into())];
        match self.program(words, environment, Path::new("/")).await? {
            (GuestAnswer::Ended { code: Some(0), .. }, said) => Ok(said),
            (_, said) => Err(LiveError::Program(format!("{name} in the guest: {said}"))),
        }
    }

    /// The mount point, as programs in the guest see it.
    pub fn dir(&self) -> &Path {
        Path::new(MOUNTED)
    }

    /// A folder of the host that the guest can write to.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file for the output of a program, and the one for its errors.
    pub fn outputs(&self) -> [PathBuf; 2] {
        ["output", "errors"].map(|name| self.folder.path().join(name))
    }

    /// Runs a program in the mounted file system, to its end.
    ///
    /// # Errors
    /// It cannot be started, or the guest ends before it does.
    pub async fn run(
        &self,
        words: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<GuestAnswer, LiveError> {
        let [output, errors] = self.outputs().map(Some);
        let (dir, user) = (MOUNTED.into(), None);
        self.ask(&Order::Run(GuestProgram { words, environment, dir, user, output, errors })).await
    }

    /// Unmounts.
    ///
    /// # Errors
    /// The file system is in use.
    pub async fn unmount(&self) -> Result<(), LiveError> {
        self.ask(&Order::Unmount { dir: MOUNTED.into() }).await.map(drop)
    }

    /// Ends the guest in order.
    ///
    /// # Errors
    /// It ends otherwise.
    pub async fn power_off(&self) -> Result<(), LiveError> {
        Ok(self.guest.power_off().await?)
    }

    /// Whether the guest still runs.
    pub fn is_running(&self) -> bool {
        self.guest.failure().is_none()
    }
}

/// A file system that is mounted in a guest and recorded.
pub struct GuestMount {
    fs: GuestFs,
    disk: RecordedDisk,
    seen: TrafficSlot,
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
        let seen = TrafficSlot::default();
        if setup.observer.is_none() {
            setup.observer = Some(watching(wanted, Arc::clone(&seen)));
        }
        let executor = Executor::simulated(guest.seed);
        let runtime = executor.runtime();
        let disk = RecordedDisk::new(&runtime, setup).map_err(LiveError::Program)?;
        guest.disks = vec![disk.clone().erase()];
        let fs = GuestFs::start(&runtime, system, guest)?;
        let marked = disk.clone();
        fs.on_mark(move |text| marked.mark(text));
        let mounted = GuestMount { fs, disk, seen, executor };
        mounted.wait(mounted.fs.make())?;
        mounted.disk.start();
        mounted.wait(mounted.fs.mount())?;
        Ok(mounted)
    }

    /// Waits while virtual time passes.
    fn wait<T>(&self, doing: impl Future<Output = Result<T, LiveError>>) -> Result<T, LiveError> {
        let done = self.executor.block_on(doing);
        done.map_err(|stuck| LiveError::Program(stuck.to_string()))?
    }

    /// The mount point, as programs in the guest see it.
    pub fn dir(&self) -> &Path {
        self.fs.dir()
    }

    /// The file for the output of a program, and the one for its errors.
    pub fn outputs(&self) -> [PathBuf; 2] {
        self.fs.outputs()
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

    /// Runs a program in the mounted file system, to its end. Its begin and its end are marked.
    ///
    /// # Errors
    /// It cannot be started, or the guest ends before it does.
    pub fn run(
        &self,
        words: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<GuestAnswer, LiveError> {
        self.disk.mark(COMMAND_BEGINS);
        let ended = self.wait(self.fs.run(words, environment));
        self.disk.mark(COMMAND_ENDS);
        ended
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
        if self.fs.is_running() {
            self.wait(self.fs.unmount())?;
            self.wait(self.fs.power_off())?;
        }
        self.disk.finish().ok_or(LiveError::Unknown)
    }
}
