//! Runs a command in a file system on a pseudo-device, and records its writes, promises and system calls.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ordo_crash::run::Event;
use ordo_crash::{CrashModel, Run};
use ordo_live::Wanted;
use ordo_pseudo::Folder;
use ordo_sba::Class;
use ordo_trace::RequestOp;
use ordo_trace::strace::{self, Syscall};
use serde::{Deserialize, Serialize};

use crate::devices::RecordedDevices;
use crate::marks::Mark;
use crate::requests::{Requests, run_of, watched};
use crate::system::ProgramSystem;
use crate::{ProgramError, sys};

/// The directory in which programs and checks run, in the root of the file system.
pub const WORK: &str = "work";
/// The file of the neighbour program, beside the directory.
const NEIGHBOUR: &str = ".neighbour";
/// The interval at which the end of the command is checked.
const PAUSE: Duration = Duration::from_millis(2);
/// The time that the kernel gets for its own writes after a commit.
const SETTLE: Duration = Duration::from_millis(30);

/// The command to run, and how.
#[derive(Clone, Debug)]
pub struct RecordingPlan {
    /// The file system.
    pub system: ProgramSystem,
    /// A shell command that prepares the directory before the recording.
    pub setup: Option<String>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The interval at which a neighbour, another program in the same file system, waits for its own file. The kernel
    /// then commits all programs' changes of names, and sometimes writes their contents.
    pub neighbour: Option<Duration>,
    /// Whether system calls are recorded (needs strace).
    pub syscalls: bool,
    /// Rules for writes that fail.
    pub fail: Vec<ordo_live::WriteRule>,
    /// The time after which the command is stopped.
    pub timeout: Option<Duration>,
    /// The fault model of the disk.
    pub model: CrashModel,
    /// The user's directory: `$ORDO_ORIGIN`.
    pub origin: PathBuf,
}

/// The meaning of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meaning {
    /// The kind of block.
    pub class: Class,
    /// The file, as a path below the program's directory, if it is known.
    pub path: Option<String>,
    /// The range of that file: first byte, end.
    pub bytes: Option<(u64, u64)>,
    /// The description in words.
    pub words: String,
    /// The time of issue, in nanoseconds of the run's clock.
    pub at: u64,
}

/// A recorded command.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The file system.
    pub system: ProgramSystem,
    /// Every write and flush, in order.
    pub run: Arc<Run>,
    /// For each disk, the meaning of each write.
    pub meanings: Vec<Vec<Meaning>>,
    /// The program's marks.
    pub marks: Vec<Mark>,
    /// The system calls, in the run's clock.
    pub calls: Vec<Syscall>,
    /// The time of each event, in nanoseconds of the run's clock.
    pub times: Vec<u64>,
    /// The time at which the command began, in nanoseconds of the run's clock.
    pub began_at: u64,
    /// The number of events before the command began.
    pub began: usize,
    /// The number of events before it ended.
    pub ended: usize,
    /// The exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// The number of writes that were made to fail.
    pub failed: usize,
    /// The number of lines of marks whose newline never came, which are no promises.
    pub unfinished: usize,
}

/// Runs a command on a file system, and records it. `stop` ends it early.
///
/// # Errors
/// The caller is not root and the file system is the kernel's, a program is missing, the file system cannot be made, or
/// the setup failed.
pub fn record(plan: &RecordingPlan, stop: &AtomicBool) -> Result<Recorded, ProgramError> {
    let lax = Arc::new(AtomicBool::new(true));
    let wanted = Wanted { rows: true, rules: plan.fail.clone(), lax: lax.clone(), tables: None };
    let (setups, seen) = watched(&plan.system.devices(), &wanted);
    let devices = RecordedDevices::new(&plan.system, setups)?;
    let folder =
        Folder::new("ordo-program-").map_err(ProgramError::io("a directory to mount on"))?;
    // The command may run as another user.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).map_err(ProgramError::io("that directory"))?;
    prepare(plan, &devices, folder.path())?;
    devices.start()?;
    let mounted = devices.mount(folder.path(), plan.neighbour)?;
    lax.store(false, Ordering::Relaxed);
    let ran = work(plan, &devices, folder.path(), stop)?;
    lax.store(true, Ordering::Relaxed);
    drop(mounted);
    let recordings = devices.finish()?;
    let requests = Requests::of(&recordings, seen);
    Ok(ran.recorded(plan, recordings, requests))
}

/// Mounts the new file system once, and runs the setup before the recording.
fn prepare(
    plan: &RecordingPlan,
    devices: &RecordedDevices,
    dir: &Path,
) -> Result<(), ProgramError> {
    let mounted = devices.mount(dir, None)?;
    let work = dir.join(WORK);
    std::fs::create_dir(&work).map_err(ProgramError::io("the program's directory"))?;
    std::fs::write(dir.join(NEIGHBOUR), b"").map_err(ProgramError::io("a file"))?;
    if let Some(setup) = &plan.setup {
        let mut command = Command::new("sh");
        command.args(["-c", setup]).current_dir(&work).env("ORDO_ORIGIN", &plan.origin);
        let status = command.status().map_err(ProgramError::io("running the setup"))?;
        if !status.success() {
            return Err(ProgramError::Program(format!("the setup '{setup}' failed: {status}")));
        }
    }
    mounted.unmount()?;
    devices.settle()
}

/// Runs the command to its end. Then commits names, and after that writes everything.
fn work(
    plan: &RecordingPlan,
    devices: &RecordedDevices,
    dir: &Path,
    stop: &AtomicBool,
) -> Result<Ran, ProgramError> {
    let clocks = (Instant::now(), SystemTime::now());
    let (work, mut neighbour) = (dir.join(WORK), Neighbour::new(plan, dir)?);
    let folder = Folder::new("ordo-calls-").map_err(ProgramError::io("a directory"))?;
    let log = folder.path().join("calls");
    let began = Instant::now();
    let mut child = start(plan, &devices.marks(), &work, &log)?;
    let status = std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        if let Some(pause) = plan.neighbour {
            let neighbour = &mut neighbour;
            scope.spawn(move || {
                while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    neighbour.disturb();
                }
            });
        }
        let status = wait(&mut child, plan.timeout, stop);
        drop(done);
        status
    })?;
    let ended = Instant::now();
    // Renamed files whose contents are not written: the names are committed first, and the contents are written
    // later.
    neighbour.commit();
    std::thread::sleep(SETTLE);
    neighbour.sync();
    let settled = Instant::now();
    let text = std::fs::read(&log).unwrap_or_default();
    let calls = strace::parse(&String::from_utf8_lossy(&text), &work.to_string_lossy());
    Ok(Ran { status, calls, clocks, began, ended, settled })
}

/// A command that has ended.
struct Ran {
    status: Option<i32>,
    calls: Vec<Syscall>,
    /// A moment on two clocks.
    clocks: (Instant, SystemTime),
    began: Instant,
    ended: Instant,
    settled: Instant,
}

fn start(
    plan: &RecordingPlan,
    marks: &Path,
    work: &Path,
    log: &Path,
) -> Result<Child, ProgramError> {
    let none = || ProgramError::Program("there is no command".into());
    let (program, args) = plan.command.split_first().ok_or_else(none)?;
    let mut command = match plan.syscalls {
        false => Command::new(program),
        true => {
            let mut strace = Command::new("strace");
            strace.args(["-f", "-ttt", "-T", "-y", "-s", "256", "-e", "signal=none", "-e"]);
            strace.arg(format!("trace={}", strace::TRACED)).arg("-o").arg(log).arg("--");
            strace.arg(program);
            strace
        }
    };
    command.args(args).current_dir(work);
    command.env("ORDO_MARK", marks).env("ORDO_DIR", work);
    command.env("ORDO_ORIGIN", &plan.origin);
    let what = if plan.syscalls { "strace".into() } else { program.to_string_lossy() };
    let what = format!("running {what}");
    command.spawn().map_err(|error| ProgramError::Io { what, error })
}

/// Waits for the command, and stops it when it takes too long or is to stop.
fn wait(
    child: &mut Child,
    timeout: Option<Duration>,
    stop: &AtomicBool,
) -> Result<Option<i32>, ProgramError> {
    let wrong = ProgramError::io("waiting for the command");
    let until = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        if let Some(status) = child.try_wait().map_err(&wrong)? {
            return Ok(status.code());
        }
        let late = until.is_some_and(|until| Instant::now() >= until);
        if late || stop.load(Ordering::Relaxed) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(match late {
                true => ProgramError::Program("the command did not end in time".into()),
                false => ProgramError::Stopped,
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Another program in the same file system.
struct Neighbour {
    file: File,
    is_btrfs: bool,
    times: u32,
}

impl Neighbour {
    fn new(plan: &RecordingPlan, dir: &Path) -> Result<Neighbour, ProgramError> {
        let file = File::options().write(true).open(dir.join(NEIGHBOUR));
        let file = file.map_err(ProgramError::io("a file"))?;
        Ok(Neighbour { file, is_btrfs: plan.system.is_btrfs(), times: 0 })
    }

    fn disturb(&mut self) {
        self.times += 1;
        match self.times % 2 {
            1 => self.commit(),
            _ => self.sync(),
        }
    }

    /// Commits changes of names, as any program does that waits for a file of its own.
    fn commit(&mut self) {
        let write = std::io::Write::write_all(&mut self.file, b"x");
        // A failing disk may fail here too, which is no error.
        let _ = write.and_then(|()| match self.is_btrfs {
            true => sys::commit_btrfs(&self.file),
            false => self.file.sync_all(),
        });
    }

    /// Writes everything, as `sync` does.
    fn sync(&self) {
        let _ = rustix::fs::syncfs(&self.file);
    }
}

impl Ran {
    fn recorded(
        self,
        plan: &RecordingPlan,
        recordings: Vec<ordo_pseudo::Recording>,
        mut requests: Requests,
    ) -> Recorded {
        let first = &recordings[0];
        let (instant, time) = first.clock;
        let on_clock = |at: Instant| {
            let ago = instant.saturating_duration_since(at).as_nanos() as u64;
            time.as_nanos().saturating_sub(ago)
        };
        // The writes of the unmount do not belong to the program.
        let until = on_clock(self.settled);
        requests.events.retain(|(at, _)| *at <= until);
        let times: Vec<u64> = requests.events.iter().map(|(at, _)| *at).collect();
        let before = |at: u64| times.partition_point(|t| *t < at);
        let mark = |request: &ordo_trace::TraceRequest| {
            let text = first.trace.data(request).unwrap_or_default();
            let at = request.issued.as_nanos();
            Mark { events: before(at), at, text: String::from_utf8_lossy(text).into_owned() }
        };
        let all = first.trace.requests();
        let marks = all.iter().filter(|r| r.op == RequestOp::Mark).map(mark).collect();
        let began_at = on_clock(self.began);
        let (began, ended) = (before(began_at), before(on_clock(self.ended)));
        let meanings = requests.meanings(&times);
        // Strace gives the time of day.
        let wall = self.clocks.1.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
        let shift = on_clock(self.clocks.0) as i64 - wall;
        let mut calls = self.calls;
        for call in &mut calls {
            (call.began, call.ended) = (call.began + shift, call.ended + shift);
        }
        let events: Vec<Event> = requests.events.into_iter().map(|(_, event)| event).collect();
        let is_failed = |event: &&Event| matches!(event, Event::Failed { .. });
        let failed = events.iter().filter(is_failed).count();
        let unfinished = first.unfinished;
        let bases = recordings.into_iter().map(|recording| Arc::new(recording.start));
        let run = run_of(plan.model, bases.zip(requests.writes), events);
        Recorded {
            system: plan.system.clone(),
            run: Arc::new(run),
            meanings,
            marks,
            calls,
            times,
            began_at,
            began,
            ended,
            status: self.status,
            failed,
            unfinished,
        }
    }
}
