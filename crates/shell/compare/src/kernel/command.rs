//! A command of the user's on any system, in a guest: first as it is, and timed; then once more
//! with the power cut in the middle, its calls counted and every change noted.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_guest::init::CONTROL_FILE;
use ordo_guest::orders::GuestAnswer;
use ordo_kernelfs::GuestFs;
use ordo_runtime::{Executor, Runtime, Time};
use ordo_systems::{MountOptions, System};
use ordo_workload::Phase;
use serde::{Deserialize, Serialize};

use super::within::BEGIN;
use super::{Guests, Heard, KernelFsSetup, read_back, ready, recovery, started, written};
use crate::lost::{CallCounts, NameChanges};
use crate::row::ComparisonRow;
use crate::stack::{Cut, Rig, phase_rows, row};
use crate::{CompareError, ComparisonSetup, Follow};

/// The argument by which `ordo` is asked to serve what a [`ServeJob`] says.
pub const SERVE_ARGUMENT: &str = "guest-serve";
/// The first word of the mark with which a server tells its clock.
const CLOCK: &str = "clock ";
/// The name of a command's only phase, if it sets no marks.
const PHASE: &str = "command";
/// The size of a file system for a command whose size nobody knows, in bytes.
const BYTES: u64 = 4 << 30;

/// A command, and what it finds in its directory.
#[derive(Clone, Debug)]
pub struct CommandWork {
    /// The command and its arguments.
    pub words: Vec<OsString>,
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
    /// A shell command that is run before, and not counted.
    pub setup: Option<String>,
    /// A directory whose files are copied in before that.
    pub files: Option<PathBuf>,
    /// The folder for the output and the errors of each system's run.
    pub outputs: Option<PathBuf>,
}

impl CommandWork {
    /// The command as one line.
    pub fn text(&self) -> String {
        let words = self.words.iter().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A system under a command.
#[derive(Clone, Debug)]
pub enum Under {
    /// One of Ordo's, and its name with options, as a list of systems takes it.
    Own(System, String),
    /// One of the kernel's, and its name with options.
    Kernel(KernelFsSetup, String),
}

impl Under {
    fn name(&self) -> &str {
        let (Under::Own(_, name) | Under::Kernel(_, name)) = self;
        name
    }
}

/// A file system to serve over FUSE in a guest.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServeJob {
    /// The system of Ordo's; `None` passes the directory through that is mounted there.
    pub system: Option<String>,
    /// Its devices.
    pub devices: Vec<PathBuf>,
    /// The directory on which it is mounted.
    pub dir: PathBuf,
    /// Whether changes are noted.
    pub has_notes: bool,
    /// The file for the [`ServeReport`].
    pub report: PathBuf,
    memory: usize,
    dirty_max: usize,
}

impl ServeJob {
    /// The text of the mark that tells a server's clock.
    pub fn clock(now: Time) -> String {
        format!("{CLOCK}{}", now.as_nanos())
    }

    /// The mount options.
    pub fn options(&self, system: System) -> MountOptions {
        let (memory, dirty_max) = (self.memory, self.dirty_max);
        let setup = ComparisonSetup { memory, dirty_max, ..ComparisonSetup::papers() };
        setup.mount_options(system)
    }
}

/// The calls of a served file system.
#[derive(Default, Serialize, Deserialize)]
pub struct ServeReport {
    /// The changes, if they were noted.
    pub changes: NameChanges,
    /// The wait of each fsync, in nanoseconds.
    pub fsync_ns: Vec<u64>,
    /// The bytes that were written by calls.
    pub written: u64,
    /// The reason why it could not be unmounted.
    pub error: Option<String>,
}

/// One run of the command.
struct Ran {
    row: ComparisonRow,
    report: ServeReport,
    cut: Option<(Vec<RamDisk>, Time)>,
    /// The host's time at the server's time zero, in nanoseconds.
    clock_ns: u64,
}

/// Runs a command on a system in a guest, and counts everything.
///
/// # Errors
/// [`CompareError`]. A command that fails is none: the row says so.
pub fn run_command(
    under: &Under,
    work: &CommandWork,
    setup: &ComparisonSetup,
    guests: &Guests,
    follow: &mut dyn Follow,
) -> Result<ComparisonRow, CompareError> {
    let one = |cut_at: Option<f64>, follow: &mut dyn Follow| {
        let executor = Executor::simulated(setup.seed);
        let runtime = executor.runtime();
        executor.block_on(ran(&runtime, under, work, setup, guests, cut_at, follow))?
    };
    let mut row = one(None, follow)?.row;
    if !setup.recovery || row.failed.is_some() {
        return Ok(row);
    }
    follow.phase_start(under.name(), "power cut");
    let again = one(Some(setup.cut_at * row.app_seconds), follow)?;
    row.own_bytes = again.row.own_bytes;
    row.fsyncs = again.row.fsyncs;
    let Some((images, at)) = again.cut else { return Ok(row) };
    let at_seconds = setup.cut_at * row.app_seconds;
    let server_ns = at.as_nanos().saturating_sub(again.clock_ns);
    let mut changes = again.report.changes;
    changes.end_at(server_ns);
    let cut = Cut { images, at_seconds, changes, at: Time::from_nanos(server_ns) };
    follow.phase_start(under.name(), "check");
    row.recovery = Some(match under {
        Under::Own(system, _) => crate::recovery::check(cut, *system, setup, follow)?,
        Under::Kernel(system, _) => recovery::check(cut, system, setup, guests)?,
    });
    Ok(row)
}

/// Runs the command once. With a time for the cut, the power is cut so long after its beginning.
async fn ran(
    runtime: &Runtime,
    under: &Under,
    work: &CommandWork,
    setup: &ComparisonSetup,
    guests: &Guests,
    cut_after: Option<f64>,
    follow: &mut dyn Follow,
) -> Result<Ran, CompareError> {
    follow.phase_start(under.name(), "mkfs");
    let (mut rig, live) = made(runtime, under, setup).await?;
    let guest = started(runtime, &live, guests.setup(setup, setup.cpu, &rig)).await?;
    before_the_command(&guest, under, work, setup, guests, &mut rig).await?;
    let heard = Rc::new(Heard::default());
    let clock: Rc<Cell<u64>> = Rc::default();
    let rig = Rc::new(rig);
    let hears = (heard.clone(), rig.clone(), clock.clone());
    guest.on_mark(move |text| match text.strip_prefix(CLOCK).and_then(|ns| ns.parse().ok()) {
        Some(ns) => hears.2.set(hears.1.runtime.now().as_nanos().saturating_sub(ns)),
        None => hears.0.begin(text.strip_prefix(BEGIN).unwrap_or(text), &hears.1),
    });
    let report = serve(&guest, under, setup, guests, (1, cut_after.is_some())).await?;
    ready(runtime, &guest, setup).await?;
    rig.restart();
    let before = rig.mark();
    heard.marks.borrow_mut().clear();
    heard.begin(PHASE, &rig);
    let cut = cut_after.map(|seconds| cut_later(&rig, setup.seed, seconds)).unwrap_or_default();
    let mut environment = work.environment.clone();
    environment.push(("ORDO_MARK".into(), CONTROL_FILE.into()));
    let doing = guest.run(work.words.clone(), environment);
    let answer = heard.telling(under.name(), follow, doing).await?;
    let done = runtime.now();
    let said = std::fs::read(&guest.outputs()[1]).unwrap_or_default();
    let failed = failure(&answer, &String::from_utf8_lossy(&said));
    if let Some(folder) = work.outputs.as_ref().filter(|_| cut_after.is_none()) {
        keep_outputs(folder, under.name(), &guest)?;
    }
    let cut = cut.take();
    let report = unmounted(&guest, under, report).await?;
    let after = rig.mark();
    guest.power_off().await?;
    let mut marks = heard.marks.take();
    marks.push(after.clone());
    let phases = phases(&heard.names.take(), &marks, done);
    let counts = CallCounts {
        fsync_ns: RefCell::new(report.fsync_ns.clone()),
        written: Cell::new(report.written),
    };
    let mut row = row(
        (under.name(), &work.text()),
        setup,
        phase_rows(phases, &marks),
        (before, after),
        &counts,
    );
    row.failed = failed;
    Ok(Ran { row, report, cut, clock_ns: clock.get() })
}

/// Makes the file system, mounts it, and puts in what is there before the command.
async fn before_the_command(
    guest: &GuestFs,
    under: &Under,
    work: &CommandWork,
    setup: &ComparisonSetup,
    guests: &Guests,
    rig: &mut Rig,
) -> Result<(), CompareError> {
    if let Under::Kernel(..) = under {
        guest.make().await?;
    }
    rig.watch();
    if let Under::Kernel(..) = under {
        guest.mount().await?;
    }
    // What comes before the command is on disk, and of no interest to the notes: a server of its
    // own has it.
    if work.files.is_some() || work.setup.is_some() {
        let served = serve(guest, under, setup, guests, (0, false)).await?;
        prepared(guest, work).await?;
        if let Some(report) = served {
            ended(guest, &report).await?;
        }
    }
    Ok(())
}

/// The disks after a power cut, and its time.
type CutDisks = Rc<RefCell<Option<(Vec<RamDisk>, Time)>>>;

/// Cuts the power so many seconds from now. The run goes on.
fn cut_later(rig: &Rc<Rig>, seed: u64, seconds: f64) -> CutDisks {
    let cut = CutDisks::default();
    let (rig, into, runtime) = (rig.clone(), cut.clone(), rig.runtime.clone());
    rig.clone().runtime.spawn_daemon("power cut", async move {
        runtime.sleep(std::time::Duration::from_secs_f64(seconds)).await;
        *into.borrow_mut() = Some((rig.cut(seed), runtime.now()));
    });
    cut
}

/// The disks; with one of Ordo's systems made on them.
async fn made(
    runtime: &Runtime,
    under: &Under,
    setup: &ComparisonSetup,
) -> Result<(Rig, ordo_kernelfs::kernel::LiveSystem), CompareError> {
    let capacity = if setup.disk.bytes() == 0 { BYTES } else { setup.disk.bytes().min(BYTES) };
    let bytes = setup.size.unwrap_or(capacity);
    match under {
        Under::Kernel(system, _) => {
            let rams = vec![Rc::new(RamDisk::new(bytes.max(system.fs.bytes)))];
            Ok((Rig::new(runtime, [setup.disk], rams), system.live()))
        }
        Under::Own(system, _) => {
            let sizes = system.devices(bytes, setup.block_size);
            let rams: Vec<_> = sizes.into_iter().map(|b| Rc::new(RamDisk::new(b))).collect();
            system.make(runtime, &Device::of_each(&rams), &setup.make_options()).await?;
            let models: Vec<_> = (0..rams.len()).map(|n| setup.model(*system, n)).collect();
            let nothing = KernelFsSetup::by_name("ext4").expect("in the table");
            Ok((Rig::new(runtime, models, rams), nothing.live()))
        }
    }
}

/// Serves the file system under the command, if it is Ordo's, or if the changes are to be noted.
async fn serve(
    guest: &GuestFs,
    under: &Under,
    setup: &ComparisonSetup,
    guests: &Guests,
    (number, has_notes): (u32, bool),
) -> Result<Option<PathBuf>, CompareError> {
    let (system, devices) = match under {
        Under::Own(system, name) => {
            let count = system.devices(BYTES, setup.block_size).len();
            let names = ["/dev/vda", "/dev/vdb", "/dev/vdc"].into_iter().take(count);
            (Some(name.clone()), names.map(PathBuf::from).collect())
        }
        Under::Kernel(..) if !has_notes => return Ok(None),
        Under::Kernel(..) => (None, Vec::new()),
    };
    let (dir, report) = (guest.dir().to_owned(), guest.folder().join(format!("served-{number}")));
    let (memory, dirty_max) = (setup.memory, setup.dirty_max);
    let job =
        ServeJob { system, devices, dir, has_notes, report: report.clone(), memory, dirty_max };
    let file = guest.folder().join(format!("serve-{number}"));
    written(&file, &job)?;
    let make = format!("mkdir -p {}", guest.dir().display());
    guest.prepare(["/bin/sh", "-c", &make].map(OsString::from).to_vec()).await?;
    let marks = ["env".into(), format!("ORDO_MARK={CONTROL_FILE}").into()];
    let words = [guests.init.clone().into(), SERVE_ARGUMENT.into(), file.into()];
    guest.prepare(marks.into_iter().chain(words).collect()).await?;
    Ok(Some(report))
}

/// Copies files in, and runs the user's command of preparation.
async fn prepared(guest: &GuestFs, work: &CommandWork) -> Result<(), CompareError> {
    if let Some(files) = &work.files {
        let mut from = files.clone().into_os_string();
        from.push("/.");
        let words = ["cp".into(), "-a".into(), from, guest.dir().into()];
        guest.prepare(words.to_vec()).await?;
    }
    if let Some(setup) = &work.setup {
        let words = ["/bin/sh".into(), "-c".into(), setup.into()].to_vec();
        let (ended, said) = guest.program(words, work.environment.clone(), guest.dir()).await?;
        if let Some(failed) = failure(&ended, &said) {
            return Err(CompareError::InGuest(format!("--setup: {failed}")));
        }
    }
    Ok(())
}

/// The reason why a command failed: how it ended, and the last line of its errors.
fn failure(ended: &GuestAnswer, said: &str) -> Option<String> {
    let how = match ended {
        GuestAnswer::Ended { code: Some(0), .. } => return None,
        GuestAnswer::Ended { code: Some(code), .. } => format!("exit status {code}"),
        GuestAnswer::Ended { signal, .. } => format!("signal {}", signal.unwrap_or_default()),
        _ => "it could not be started".to_owned(),
    };
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Some(last.map_or(how.clone(), |line| format!("{how}: {}", line.trim())))
}

/// Keeps what a command wrote, under the name of its system.
fn keep_outputs(folder: &Path, system: &str, guest: &GuestFs) -> Result<(), CompareError> {
    let failed = |e: std::io::Error| CompareError::InGuest(format!("{}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    for (file, ending) in guest.outputs().iter().zip(["out", "err"]) {
        let to = folder.join(format!("{}.{ending}", system.replace('/', "_")));
        std::fs::write(to, std::fs::read(file).unwrap_or_default()).map_err(failed)?;
    }
    Ok(())
}

/// Unmounts what a server serves, waits for its end, and reads its report.
async fn ended(guest: &GuestFs, report: &Path) -> Result<ServeReport, CompareError> {
    guest.unmount().await?;
    let wait = format!("while [ ! -e '{0}' ]; do sleep 0.001; done", report.display());
    guest.prepare(["/bin/sh", "-c", &wait].map(OsString::from).to_vec()).await?;
    let served: ServeReport = read_back(report)?;
    match served.error {
        Some(error) => Err(CompareError::InGuest(error)),
        None => Ok(served),
    }
}

/// Unmounts what is mounted, and reads the server's report, if there was one.
async fn unmounted(
    guest: &GuestFs,
    under: &Under,
    report: Option<PathBuf>,
) -> Result<ServeReport, CompareError> {
    let served = match report {
        Some(report) => ended(guest, &report).await?,
        None => ServeReport::default(),
    };
    if let Under::Kernel(..) = under {
        guest.unmount().await?;
    }
    Ok(served)
}

/// The phases of a command: from one of its marks to the next.
fn phases(names: &[String], marks: &[crate::stack::Mark], done: Time) -> Vec<Phase> {
    let ends = marks.iter().skip(1).map(|mark| mark.seconds);
    let last = names.len().saturating_sub(1);
    let all = names.iter().zip(marks).zip(ends).enumerate();
    all.map(|(n, ((name, mark), end))| Phase {
        name: name.clone(),
        operations: 1,
        bytes: 0,
        files_made: 0,
        start_seconds: mark.seconds,
        end_seconds: if n == last { done.as_secs_f64() } else { end },
        mix: Vec::new(),
    })
    .collect()
}
