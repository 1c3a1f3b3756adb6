//! Runs a command in a file system on a pseudo-device, and records its writes, promises and system
//! calls.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ordo_block::spill::Spill;
use ordo_crash::base::Base;
use ordo_crash::run::Event;
use ordo_crash::{CrashModel, Run};
use ordo_kernelfs::WatchOptions;
use ordo_recorder::Folder;
use ordo_trace::RequestOp;
use ordo_trace::strace::{self, Beside, Syscall};
use ordo_watcher::Class;
use serde::{Deserialize, Serialize};

use crate::devices::RecordedDevices;
use crate::marks::Mark;
use crate::requests::{Requests, run_of, watched};
use crate::rings::Rings;
use crate::system::ProgramSystem;
use crate::{ProgramError, sys};

/// The directory in which programs and checks run, in the root of the file system.
pub const WORK: &str = "work";
/// The file of the neighbour program, beside the directory.
const NEIGHBOUR: &str = ".neighbour";
/// The interval at which the end of the command is checked.
const PAUSE: Duration = Duration::from_millis(2);
/// The number of these intervals after which the free space is looked at.
const FULL_EVERY: u64 = 8;
/// The free space below which a file system is full, in bytes.
const FULL: u64 = 256 << 10;
/// The number of times that processes of a stopped command are looked for.
const STOP_TRIES: u32 = 100;
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
    /// The interval at which a neighbour, another program in the same file system, waits for its
    /// own file. The kernel then commits all programs' changes of names, and sometimes writes their
    /// contents.
    pub neighbour: Option<Duration>,
    /// Whether system calls are recorded (needs strace).
    pub syscalls: bool,
    /// Rules for writes that fail.
    pub fail: Vec<ordo_kernelfs::WriteRule>,
    /// The time after which the command is stopped.
    pub timeout: Option<Duration>,
    /// Whether a command that is stopped at that time is a whole run, as a server that never ends
    /// is.
    pub until_timeout: bool,
    /// The fault model of the disk.
    pub model: CrashModel,
    /// The most bytes of written contents that are kept in memory. What is more goes to a file in
    /// the folder for temporary files.
    pub memory: u64,
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
    /// The files before the command began, with their sizes; `None` for a directory. They are
    /// listed only if system calls are recorded.
    pub existing: Vec<(String, Option<u64>)>,
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
    /// Whether it was stopped when its time was over, as the plan wants.
    pub was_stopped: bool,
    /// Whether the file system had no space left.
    pub was_full: bool,
    /// The number of writes that were made to fail.
    pub failed: usize,
    /// The number of lines of marks whose newline never came, which are no promises.
    pub unfinished: usize,
}

/// Runs a command on a file system, and records it. `stop` ends it early.
///
/// # Errors
/// There is no such command ([`ProgramError::Command`]), the caller is not root and the file system
/// is the kernel's, a program is missing, the file system cannot be made, or the setup failed.
pub fn record(plan: &RecordingPlan, stop: &AtomicBool) -> Result<Recorded, ProgramError> {
    let lax = Arc::new(AtomicBool::new(true));
    let wanted =
        WatchOptions { rows: true, rules: plan.fail.clone(), lax: lax.clone(), tables: None };
    let spill = Spill::new(plan.memory);
    let (setups, seen) = watched(&plan.system, &wanted, Some(&spill));
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
    if let Some(error) = spill.error() {
        let what = format!("keeping the recording in a file in {}", std::env::temp_dir().display());
        return Err(ProgramError::Io { what, error });
    }
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
    let existing = if plan.syscalls { listed(&work) } else { Vec::new() };
    let rings = plan.syscalls.then(Rings::watch).flatten();
    let began = Instant::now();
    let marks = devices.marks();
    let mut child = start(plan, &marks, &work, &log)?;
    let end = std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        if let Some(pause) = plan.neighbour {
            let neighbour = &mut neighbour;
            scope.spawn(move || {
                while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    neighbour.disturb();
                }
            });
        }
        let end = wait(&mut child, (plan, &work, &marks), stop);
        drop(done);
        end
    })?;
    let ended = Instant::now();
    // Renamed files whose contents are not written: the names are committed first, and the contents
    // are written later.
    neighbour.commit();
    std::thread::sleep(SETTLE);
    neighbour.sync();
    let settled = Instant::now();
    let text = std::fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let rings = rings.and_then(|rings| rings.requests(&text));
    let beside = Beside { existing, rings };
    let calls = strace::parse_with(&text, &work.to_string_lossy(), &beside);
    Ok(Ran { end, calls, existing: beside.existing, clocks, began, ended, settled })
}

/// The files below a directory with their sizes, and the directories.
fn listed(dir: &Path) -> Vec<(String, Option<u64>)> {
    let (mut out, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = path.symlink_metadata() else { continue };
            let below = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().into_owned();
            out.push((below, (!meta.is_dir()).then_some(meta.len())));
            if meta.is_dir() {
                open.push(path);
            }
        }
    }
    out.sort();
    out
}

/// The end of a command.
#[derive(Clone, Copy, Debug)]
struct End {
    status: Option<i32>,
    was_stopped: bool,
    was_full: bool,
}

/// A command that has ended.
struct Ran {
    end: End,
    calls: Vec<Syscall>,
    existing: Vec<(String, Option<u64>)>,
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
    let missing = |error| {
        let program = program.to_string_lossy().into_owned();
        ProgramError::Command { program, error }
    };
    // Strace's own error would be an exit status of the command.
    found(program, work).map_err(missing)?;
    let mut command = match plan.syscalls {
        false => Command::new(program),
        true => {
            let mut strace = Command::new("strace");
            strace.args(["-f", "-ttt", "-T", "-y", "-s", "256", "-e", "signal=none", "-e"]);
            strace
                .arg(format!("trace={},{}", strace::TRACED, strace::CHANGES))
                .arg("-o")
                .arg(log)
                .arg("--");
            strace.arg(program);
            strace
        }
    };
    command.args(args).current_dir(work);
    command.env("ORDO_MARK", marks).env("ORDO_DIR", work);
    command.env("ORDO_ORIGIN", &plan.origin);
    command.spawn().map_err(|error| match plan.syscalls {
        true => ProgramError::Io { what: "running strace".to_owned(), error },
        false => missing(error),
    })
}

/// Whether there is a program that can be run: a path, or a name in `$PATH`.
fn found(program: &OsStr, work: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |path: PathBuf| -> std::io::Result<()> {
        let meta = std::fs::metadata(path)?;
        let may = meta.is_file() && meta.permissions().mode() & 0o111 != 0;
        if may { Ok(()) } else { Err(std::io::ErrorKind::PermissionDenied.into()) }
    };
    if program.as_encoded_bytes().contains(&b'/') {
        return runs(work.join(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
    std::env::split_paths(&path).map(|dir| runs(dir.join(program))).fold(Err(missing), Result::or)
}

/// Waits for the command, and stops it when it takes too long or is to stop.
fn wait(
    child: &mut Child,
    (plan, work, marks): (&RecordingPlan, &Path, &Path),
    stop: &AtomicBool,
) -> Result<End, ProgramError> {
    let wrong = ProgramError::io("waiting for the command");
    let until = plan.timeout.map(|timeout| Instant::now() + timeout);
    let mut was_full = false;
    for turn in 0u64.. {
        if turn.is_multiple_of(FULL_EVERY) {
            was_full |= is_full(&plan.system, work);
        }
        if let Some(status) = child.try_wait().map_err(&wrong)? {
            was_full |= is_full(&plan.system, work);
            return Ok(End { status: status.code(), was_stopped: false, was_full });
        }
        let late = until.is_some_and(|until| Instant::now() >= until);
        if late || stop.load(Ordering::Relaxed) {
            let _ = child.kill();
            let _ = child.wait();
            stop_all(marks);
            return match late {
                true if plan.until_timeout => Ok(End { status: None, was_stopped: true, was_full }),
                true => Err(ProgramError::TimedOut),
                false => Err(ProgramError::Stopped),
            };
        }
        std::thread::sleep(PAUSE);
    }
    unreachable!("the loop has no end");
}

/// Whether a file system has no space left, or no inodes.
fn is_full(system: &ProgramSystem, work: &Path) -> bool {
    let Ok(stat) = rustix::fs::statvfs(work) else { return false };
    // Root may use ext4's reserve, except for one block in 50, up to 4,096.
    let reserve = system.kind.starts_with("ext") && rustix::process::geteuid().is_root();
    let kept = (stat.f_blocks / 50).min(4096);
    let free = if reserve { stat.f_bfree.saturating_sub(kept) } else { stat.f_bavail };
    free.saturating_mul(stat.f_frsize) < FULL || (stat.f_files > 0 && stat.f_favail == 0)
}

/// Stops every process that the command has started, wherever it is: each has the command's
/// `$ORDO_MARK`.
fn stop_all(marks: &Path) {
    let has = [b"ORDO_MARK=", marks.as_os_str().as_encoded_bytes()].concat();
    let is_one = |pid: i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == has)
    };
    // A process may start another one meanwhile.
    for _ in 0..STOP_TRIES {
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours: Vec<i32> = numbers.filter(|pid| is_one(*pid)).collect();
        if ours.is_empty() {
            return;
        }
        for pid in ours.into_iter().filter_map(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
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
        recordings: Vec<ordo_recorder::Recording>,
        mut requests: Requests,
    ) -> Recorded {
        let first = &recordings[0];
        let (instant, time) = first.clock;
        let on_clock = |at: Instant| {
            let ago = instant.saturating_duration_since(at).as_nanos() as u64;
            time.as_nanos().saturating_sub(ago)
        };
        // The writes of the unmount do not belong to the program. A file system of this process is
        // only whole after it.
        let until = on_clock(self.settled);
        let is_kernels = plan.system.is_kernels();
        requests.events.retain(|(at, _)| *at <= until || !is_kernels);
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
            call.began += shift;
            call.ended = call.ended.saturating_add(shift);
        }
        let no_space = |call: &Syscall| call.error.as_deref() == Some("ENOSPC");
        let was_full = self.end.was_full || calls.iter().any(no_space);
        let events: Vec<Event> = requests.events.into_iter().map(|(_, event)| event).collect();
        let is_failed = |event: &&Event| matches!(event, Event::Failed { .. });
        let failed = events.iter().filter(is_failed).count();
        let unfinished = first.unfinished;
        let bases = recordings
            .into_iter()
            .map(|recording| Arc::new(Base::used(recording.start, &recording.used)));
        let run = run_of(plan.model, bases.zip(requests.writes), events);
        Recorded {
            system: plan.system.clone(),
            run: Arc::new(run),
            meanings,
            marks,
            calls,
            existing: self.existing,
            times,
            began_at,
            began,
            ended,
            status: self.end.status,
            was_stopped: self.end.was_stopped,
            was_full,
            failed,
            unfinished,
        }
    }
}
