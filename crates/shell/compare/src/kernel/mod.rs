//! Rows of the kernel's file systems, each in a guest kernel on the same disks, in the same virtual
//! time, and by the same prices.

mod command;
mod recovery;
mod within;

use std::cell::RefCell;
use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use ordo_block::ram::RamDisk;
use ordo_guest::init::CONTROL_FILE;
use ordo_guest::orders::GuestAnswer;
use ordo_guest::{GuestSetup, Kernel};
use ordo_kernelfs::GuestFs;
use ordo_kernelfs::kernel::{LiveError, LiveSystem};
use ordo_kernelfs::table::KernelFs;
use ordo_runtime::cpu::CpuModel;
use ordo_runtime::{Executor, Runtime, Time};
use ordo_workload::Workload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lost::CallCounts;
use crate::row::ComparisonRow;
use crate::stack::{Cut, Mark, Rig, phase_rows, row};
use crate::{CompareError, ComparisonSetup, Follow};
use within::{BEGIN, CUT, GuestJob, WorkReport};

pub use command::{CommandWork, SERVE_ARGUMENT, ServeJob, ServeReport, Under, run_command};
pub use within::{ARGUMENT, WithThreads, carry_out, empty_caches, mark, may_open_many};

/// Memory of a guest beside what the comparison gives to the cache, in bytes: the kernel's own, and
/// that of programs.
const KERNEL_MEMORY: u64 = 96 << 20;
/// Real time for which a program may compute in a guest without a pause.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system of the kernel's, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFsSetup {
    /// The kernel's file system.
    pub fs: &'static KernelFs,
    /// Mount options.
    pub options: Vec<String>,
    /// Additional arguments for mkfs.
    pub mkfs: Vec<String>,
}

impl KernelFsSetup {
    /// The file system that the kernel calls so, without options.
    pub fn by_name(name: &str) -> Option<KernelFsSetup> {
        let fs = KernelFs::by_name(name)?;
        Some(KernelFsSetup { fs, options: Vec::new(), mkfs: Vec::new() })
    }

    /// Adds an option: `mkfs=ARGUMENTS`, or one for mount.
    pub fn set(&mut self, option: &str) {
        match option.strip_prefix("mkfs=") {
            Some(words) => self.mkfs.extend(words.split_whitespace().map(str::to_owned)),
            None => self.options.push(option.to_owned()),
        }
    }

    fn live(&self) -> LiveSystem {
        let at_once = self.fs.at_once.iter().map(|word| (*word).to_owned());
        LiveSystem {
            name: self.fs.name.to_owned(),
            mkfs: at_once.chain(self.mkfs.iter().cloned()).collect(),
            options: self.options.join(","),
            bytes: self.fs.bytes,
        }
    }
}

/// The kernel of guests, and the program that is their first process.
#[derive(Clone)]
pub struct Guests {
    /// The kernel.
    pub kernel: Kernel,
    /// `ordo` itself: it answers to `guest-init`, `guest-marks` and [`ARGUMENT`].
    pub init: PathBuf,
    /// Directories that guests would not see otherwise.
    pub shown: Vec<PathBuf>,
    /// Asked now and then whether to end at once.
    pub stop: Rc<dyn Fn() -> bool>,
}

impl Guests {
    fn setup(&self, setup: &ComparisonSetup, cpu: CpuModel, rig: &Rig) -> GuestSetup {
        GuestSetup {
            disks: rig.devices(),
            is_rotational: setup.disk.is_rotational(),
            memory: (setup.memory as u64 + KERNEL_MEMORY) >> 20,
            seed: setup.seed,
            cpu,
            shown: self.shown.clone(),
            patience: PATIENCE,
            stop: self.stop.clone(),
            ..GuestSetup::new(self.kernel.clone(), self.init.clone())
        }
    }
}

/// The marks that a guest sets, in their order, each with what the disks had done by then.
#[derive(Default)]
struct Heard {
    /// Phases that are not told yet.
    phases: RefCell<Vec<String>>,
    /// The phases that have begun.
    names: RefCell<Vec<String>>,
    marks: RefCell<Vec<Mark>>,
    cut: RefCell<Option<(Vec<RamDisk>, Time)>>,
    waker: RefCell<Option<Waker>>,
}

impl Heard {
    fn hear(&self, rig: &Rig, seed: u64, text: &str) {
        if let Some(phase) = text.strip_prefix(BEGIN) {
            self.begin(phase, rig);
        } else if text == CUT {
            *self.cut.borrow_mut() = Some((rig.cut(seed), rig.runtime.now()));
        }
    }

    fn begin(&self, phase: &str, rig: &Rig) {
        self.marks.borrow_mut().push(rig.mark());
        self.phases.borrow_mut().push(phase.to_owned());
        self.names.borrow_mut().push(phase.to_owned());
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Waits for `doing`, and tells meanwhile which phase begins.
    async fn telling<T>(
        &self,
        system: &str,
        follow: &mut dyn Follow,
        doing: impl Future<Output = T>,
    ) -> T {
        let mut doing = pin!(doing);
        std::future::poll_fn(|cx| {
            for phase in self.phases.take() {
                follow.phase_start(system, &phase);
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            doing.as_mut().poll(cx)
        })
        .await
    }
}

/// Runs `workload` on a file system of the kernel's in a guest, and counts everything.
///
/// # Errors
/// [`CompareError`].
pub fn run(
    system: &KernelFsSetup,
    workload: &Workload,
    setup: &ComparisonSetup,
    guests: &Guests,
    follow: &mut dyn Follow,
) -> Result<ComparisonRow, CompareError> {
    let executor = Executor::simulated(setup.seed);
    let runtime = executor.runtime();
    let ran = executor.block_on(measured(&runtime, system, workload, setup, guests, follow));
    let (mut row, cut) = ran??;
    drop(executor);
    if let Some(cut) = cut {
        follow.phase_start(system.fs.name, "check");
        row.recovery = Some(recovery::check(cut, system, setup, guests)?);
    }
    Ok(row)
}

async fn measured(
    runtime: &Runtime,
    system: &KernelFsSetup,
    workload: &Workload,
    setup: &ComparisonSetup,
    guests: &Guests,
    follow: &mut dyn Follow,
) -> Result<(ComparisonRow, Option<Cut>), CompareError> {
    let name = system.fs.name;
    follow.phase_start(name, "mkfs");
    let bytes = setup.bytes_for(workload)?.max(system.fs.bytes);
    let mut rig = Rig::new(runtime, [setup.disk], vec![Rc::new(RamDisk::new(bytes))]);
    // The prices of calls are charged in the workload, for each operation as everywhere.
    let guest = guests.setup(setup, CpuModel::NONE, &rig);
    let guest = started(runtime, &system.live(), guest).await?;
    guest.make().await?;
    rig.watch();
    guest.mount().await?;
    ready(runtime, &guest, setup).await?;
    let rig = Rc::new(rig);
    let heard = Rc::new(Heard::default());
    let (seed, hears) = (setup.seed, (heard.clone(), rig.clone()));
    guest.on_mark(move |text| hears.0.hear(&hears.1, seed, text));
    rig.restart();
    let before = rig.mark();
    let job = GuestJob::Work {
        workload: workload.to_string(),
        seed,
        dir: guest.dir().to_owned(),
        cpu: setup.cpu.name.to_owned(),
        cut: setup.recovery.then(|| (workload.crash_phase(), setup.cut_at)),
        report: guest.folder().join("report"),
    };
    let report: WorkReport = heard.telling(name, follow, done(&guest, guests, &job)).await?;
    if let Some(error) = report.error {
        return Err(CompareError::InGuest(error));
    }
    guest.unmount().await?;
    let after = rig.mark();
    guest.power_off().await?;
    let mut marks = heard.marks.take();
    marks.push(after.clone());
    let counts = CallCounts {
        fsync_ns: RefCell::new(report.fsync_ns),
        written: std::cell::Cell::new(report.written),
    };
    let phases = phase_rows(report.phases, &marks);
    let start = before.seconds;
    let row = row((name, &workload.to_string()), setup, phases, (before, after), &counts);
    let cut = heard.cut.take().zip(report.cut).map(|((images, at), changes)| Cut {
        images,
        at_seconds: at.as_secs_f64() - start,
        changes: changes.changes,
        at: Time::from_nanos(changes.at_ns),
    });
    Ok((row, cut))
}

/// Waits for the next whole number of `seconds`. So the paths of programs, and the directories that
/// are mounted for them, do not decide how the work stands to the kernel's timers.
async fn at_whole(runtime: &Runtime, seconds: u64) {
    let each = seconds * 1_000_000_000;
    let now = runtime.now().as_nanos();
    runtime.sleep_until(Time::from_nanos((now / each + 1) * each)).await;
}

/// Starts a guest, and waits for a whole second after its own start.
async fn started(
    runtime: &Runtime,
    system: &LiveSystem,
    setup: GuestSetup,
) -> Result<GuestFs, CompareError> {
    let guest = GuestFs::start(runtime, system, setup)?;
    guest.prepare(vec!["/bin/true".into()]).await?;
    at_whole(runtime, 1).await;
    Ok(guest)
}

/// Seconds for which a mounted file system is left alone before the work.
const REST: u64 = 10;

/// Sets the limits of dirty data, and lets what mkfs and mount left behind come to an end.
async fn ready(
    runtime: &Runtime,
    guest: &GuestFs,
    setup: &ComparisonSetup,
) -> Result<(), CompareError> {
    let (most, background) = (setup.dirty_max, setup.dirty_max / 2);
    let script = format!(
        "echo {background} > /proc/sys/vm/dirty_background_bytes; \
         echo {most} > /proc/sys/vm/dirty_bytes; sync"
    );
    let words = ["/bin/sh", "-ec", &script].map(OsString::from);
    guest.prepare(words.to_vec()).await?;
    at_whole(runtime, REST).await;
    Ok(())
}

/// Has a job done in the guest, and reads its report.
async fn done<T: DeserializeOwned>(
    guest: &GuestFs,
    guests: &Guests,
    job: &GuestJob,
) -> Result<T, CompareError> {
    let (GuestJob::Work { report, .. } | GuestJob::Lost { report, .. }) = job;
    let file = guest.folder().join("job");
    written(&file, job)?;
    let words = vec![guests.init.clone().into(), ARGUMENT.into(), file.into()];
    let environment = vec![("ORDO_MARK".into(), CONTROL_FILE.into())];
    let ended = guest.run(words, environment).await?;
    if ended != (GuestAnswer::Ended { code: Some(0), signal: None }) {
        let said = std::fs::read_to_string(&guest.outputs()[1]).unwrap_or_default();
        return Err(CompareError::InGuest(said.trim().to_owned()));
    }
    read_back(report)
}

/// Reads something that a guest has written.
fn read_back<T: DeserializeOwned>(file: &Path) -> Result<T, CompareError> {
    let failed = |error: String| CompareError::InGuest(format!("{}: {error}", file.display()));
    let text = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))
}

/// Writes something for a guest.
fn written(file: &Path, what: &impl Serialize) -> Result<(), CompareError> {
    let failed = |error: String| CompareError::InGuest(format!("{}: {error}", file.display()));
    let text = serde_json::to_vec(what).map_err(|error| failed(error.to_string()))?;
    std::fs::write(file, text).map_err(|error| failed(error.to_string()))
}

impl From<LiveError> for CompareError {
    fn from(error: LiveError) -> CompareError {
        CompareError::InGuest(error.to_string())
    }
}
