//! The options of a guest kernel, the commands that run in one, and `ordo guest`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_compare::kernel::Guests;
use ordo_guest::orders::{GuestAnswer, GuestProgram, Order};
use ordo_guest::{Guest, GuestSetup, Kernel};
use ordo_kernelfs::{GuestMount, LiveError};
use ordo_runtime::Executor;
use ordo_runtime::cpu::CpuModel;

use super::running::{Signals, stopped};

/// The kernel in which a file system is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelChoice {
    /// The kernel of this machine.
    Host,
    /// A guest kernel that is found.
    Guest,
    /// The guest kernel at a path.
    At(PathBuf),
}

impl FromStr for KernelChoice {
    type Err = String;
    fn from_str(text: &str) -> Result<KernelChoice, String> {
        Ok(match text {
            "host" => KernelChoice::Host,
            "guest" => KernelChoice::Guest,
            path if path.contains('/') => KernelChoice::At(path.into()),
            other => return Err(format!("'{other}': it is host, guest, or the path of a kernel")),
        })
    }
}

/// The choice of a kernel.
#[derive(Args, Clone, Debug, Default)]
pub struct KernelOption {
    /// The kernel: host, guest (a Linux that runs as a process, in virtual time, without root), or
    /// the path of one (built by make ARCH=um) [default: host for root, if it has the file system].
    #[arg(long, value_name = "KERNEL", help_heading = "Guest kernel")]
    pub kernel: Option<KernelChoice>,
}

/// Options of a guest kernel.
#[derive(Args, Clone, Debug)]
pub struct GuestOptions {
    #[command(flatten)]
    pub kernel: KernelOption,
    /// The seed of a guest's random numbers: one seed is one run, to the byte and nanosecond.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", help_heading = "Guest kernel")]
    pub seed: u64,
    /// Memory of a guest.
    #[arg(long, default_value = "256m", value_name = "BYTES", help_heading = "Guest kernel",
        value_parser = ordo_report::number::parse_bytes)]
    pub memory: u64,
    /// Let a guest write to this directory of the host. It can read all others.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Guest kernel")]
    pub share: Vec<PathBuf>,
    /// The processor of a guest, whose time system calls take.
    #[arg(long, default_value = "modern", value_name = "MODEL", help_heading = "Guest kernel",
        value_parser = crate::args::cpu)]
    pub cpu: CpuModel,
    /// Seconds of real time for which a program may compute in a guest without a pause.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", help_heading = "Guest kernel")]
    pub patience: u64,
}

/// Seconds for which Ordo itself may compute in a guest.
const LONG: u64 = 600;

/// The words of a guest kernel that could not map memory for a program.
const NO_MAPPINGS: &str = "vm.max_map_count has been reached";

/// Set in the environment of `ordo` in a guest, where the kernel is the right one already.
const WITHIN: &str = "ORDO_WITHIN_GUEST";

/// Whether this process runs in a guest of another `ordo`, where seconds are virtual.
pub fn is_within() -> bool {
    std::env::var_os(WITHIN).is_some()
}

/// The directories that a command needs and a guest would not see: the present one, and that of the
/// program, if it is given by its path.
fn hidden(command: &[OsString]) -> Vec<PathBuf> {
    let program = command.first().map(Path::new).filter(|p| p.components().count() > 1);
    let program = program.and_then(|path| Some(path.canonicalize().ok()?.parent()?.to_owned()));
    let all = [std::env::current_dir().ok(), program];
    all.into_iter().flatten().filter(|dir| is_hidden(dir)).collect()
}

/// Whether a directory lies below one of those of which a guest has its own.
fn is_hidden(dir: &Path) -> bool {
    let own = ["/tmp", "/var/tmp", "/run", "/dev/shm"];
    own.iter().any(|own| dir.starts_with(own) && dir != Path::new(own))
}

/// Whether the kernel of this machine has a file system, or may load it, or a program mounts it.
fn host_has(fs: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some(fs))
        || Path::new("/sbin").join(format!("mount.{fs}")).exists()
        || std::process::Command::new("modprobe")
            .args(["-n", "-q", fs])
            .status()
            .is_ok_and(|status| status.success())
}

impl KernelOption {
    /// The guest kernel for a file system; `None` if it is the host's kernel that is used.
    ///
    /// # Errors
    /// There is no guest kernel, and the caller may not use the host's.
    pub fn choose(&self, command: &str, fs: &str) -> Result<Option<Kernel>> {
        if is_within() {
            return Ok(None);
        }
        let is_root = rustix::process::geteuid().is_root();
        match &self.kernel {
            Some(KernelChoice::Host) => {
                crate::privileges::need_root(command, "makes a device and mounts it")?;
                Ok(None)
            }
            Some(KernelChoice::Guest) => Ok(Some(Kernel::find()?)),
            Some(KernelChoice::At(path)) => Ok(Some(Kernel::at(path)?)),
            None if is_root && host_has(fs) => Ok(None),
            None => match (Kernel::find(), is_root) {
                (Ok(kernel), _) => Ok(Some(kernel)),
                // The host's answer to a name that it does not know is better than none.
                (Err(_), true) => Ok(None),
                (Err(error), false) => Err(anyhow!(
                    "{command} needs root for the kernel of this machine, or a guest kernel: {error}"
                )),
            },
        }
    }

    /// The guest kernel that is named, or that is found.
    ///
    /// # Errors
    /// There is none, or the options ask for the host's.
    fn guest_kernel(&self) -> Result<Kernel> {
        match &self.kernel {
            Some(KernelChoice::At(path)) => Ok(Kernel::at(path)?),
            Some(KernelChoice::Host) => {
                Err(anyhow!("--kernel host: this machine's kernel runs already"))
            }
            _ => Ok(Kernel::find()?),
        }
    }

    /// Guests for the rows of a comparison, which see these files and what `command` needs.
    ///
    /// # Errors
    /// There is no guest kernel.
    pub fn guests(&self, command: &[OsString], files: Option<&Path>) -> Result<Guests> {
        let kernel = self.guest_kernel()?;
        let init = std::env::current_exe().context("finding this program")?;
        let mut shown = [hidden(&[init.clone().into()]), hidden(command)].concat();
        shown.extend(files.and_then(|dir| dir.canonicalize().ok()).filter(|dir| is_hidden(dir)));
        Ok(Guests { kernel, init, shown, stop: Rc::new(|| false) })
    }

    /// Runs this command once more in a guest with this much memory, where it is root and the
    /// kernel has its file system; `None` if it goes on here.
    ///
    /// `results` finds a directory for results besides the present one.
    ///
    /// # Errors
    /// There is no guest kernel, or it ends.
    pub fn again(
        &self,
        (command, fs): (&str, &str),
        (seed, memory): (u64, u64),
        results: impl FnOnce() -> Option<PathBuf>,
    ) -> Result<Option<ExitCode>> {
        let Some(kernel) = self.choose(command, fs)? else { return Ok(None) };
        let own = std::env::current_exe().context("finding this program")?;
        let words = std::iter::once(own.into_os_string()).chain(std::env::args_os().skip(1));
        // Results go where they would go without a guest.
        let dir = std::env::current_dir().context("finding the present directory")?;
        let share =
            [dir].into_iter().filter(|dir| dir != Path::new("/")).chain(results()).collect();
        let guest = GuestOptions {
            kernel: self.clone(),
            seed,
            memory,
            share,
            cpu: CpuModel::NONE,
            patience: LONG,
        };
        let none = (Vec::new(), true);
        within(&guest, kernel, Executor::simulated(seed), none, words.collect()).map(Some)
    }
}

impl GuestOptions {
    /// The configuration of a guest, which ends when a signal is caught.
    ///
    /// # Errors
    /// A shared directory is none, or this program has no path.
    pub(super) fn setup(
        &self,
        kernel: Kernel,
        signals: &Signals,
        command: &[OsString],
    ) -> Result<GuestSetup> {
        if !kernel.is_patched() {
            eprintln!(
                "ordo: {} has not Ordo's changes (make guest-kernel): its processor is free, and contents differ from run to run",
                kernel.path().display()
            );
        }
        let shared: Result<Vec<PathBuf>> = self
            .share
            .iter()
            .map(|dir| {
                let path = dir.canonicalize().with_context(|| dir.display().to_string())?;
                if path.is_dir() {
                    Ok(path)
                } else {
                    Err(anyhow!("{}: no directory", dir.display()))
                }
            })
            .collect();
        let init = std::env::current_exe().context("finding this program")?;
        let signals = signals.clone();
        Ok(GuestSetup {
            memory: (self.memory >> 20).max(64),
            seed: self.seed,
            cpu: self.cpu,
            shared: shared?,
            shown: hidden(command),
            patience: Duration::from_secs(self.patience.max(1)),
            stop: Rc::new(move || signals.caught().is_some()),
            ..GuestSetup::new(kernel, init)
        })
    }
}

/// Runs a command in a guest's file system, and shows what it writes meanwhile. The exit status is
/// the command's.
///
/// # Errors
/// The command cannot be started, or the guest ends before it does.
pub(super) fn carry_out(
    mounted: &GuestMount,
    signals: &Signals,
    words: Vec<OsString>,
) -> Result<ExitCode> {
    let environment = environment([("ORDO_MARK".into(), mounted.control().into())]);
    shown_while(mounted.outputs(), signals, || mounted.run(words, environment))
}

/// Tells which kernel ran, and how long in virtual time.
pub(super) fn tell_time(release: &str, seconds: f64, seed: u64) {
    eprintln!("ordo: Linux {release} as a process: {seconds:.6} s of virtual time, seed {seed}");
}

/// This process's environment, without what is Ordo's.
pub(super) fn own_environment() -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    all.retain(|(name, _)| name != "ORDO_MARK" && name != "ORDO_KERNEL");
    all
}

/// This process's environment, with one more variable.
fn environment(more: [(OsString, OsString); 1]) -> Vec<(OsString, OsString)> {
    own_environment().into_iter().chain(more).collect()
}

/// Shows what a program in a guest writes to its two files while it runs. The exit status is the
/// program's.
fn shown_while(
    [output, errors]: [PathBuf; 2],
    signals: &Signals,
    run: impl FnOnce() -> Result<GuestAnswer, LiveError>,
) -> Result<ExitCode> {
    let shown = [Shown::begin(output, false), Shown::begin(errors, true)];
    let ended = run();
    shown.into_iter().for_each(Shown::end);
    match ended {
        Ok(GuestAnswer::Ended { code, signal }) => {
            let status = code.unwrap_or_else(|| 128 + signal.unwrap_or_default());
            Ok(ExitCode::from(status as u8))
        }
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(LiveError::Stopped) => {
            eprintln!("ordo: the guest was stopped");
            Ok(signals.caught().map_or(ExitCode::FAILURE, stopped))
        }
        Err(error) => Err(error.into()),
    }
}

/// A file that grows and is copied to this program's output meanwhile.
struct Shown {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    fn begin(path: PathBuf, is_error: bool) -> Shown {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().spawn(move || {
            let mut file = None;
            loop {
                let is_last = flag.load(Ordering::Acquire);
                copy_on(&path, &mut file, is_error);
                if is_last {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Shown { is_over, thread: thread.ok() }
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

/// Copies what has come since the last time.
fn copy_on(path: &Path, file: &mut Option<File>, is_error: bool) {
    if file.is_none() {
        *file = File::open(path).ok();
    }
    let mut bytes = Vec::new();
    if let Some(file) = file
        && file.read_to_end(&mut bytes).is_ok()
        && !bytes.is_empty()
    {
        let _ = match is_error {
            true => std::io::stderr().write_all(&bytes),
            false => std::io::stdout().write_all(&bytes),
        };
    }
}

/// A Linux kernel that runs as a process, in virtual time: what it can do, and a command in it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The kernel is that of $ORDO_KERNEL, of the cache (`make guest-kernel` in Ordo's sources builds it
there), of the package, or Debian's package user-mode-linux.

Examples:
  ordo guest info
  ordo guest run -- sh -c 'date; sleep 86400; date'
  ordo guest run --disk nvme --size 64m -- \\
    sh -c 'mkfs.ext4 -q /dev/vda; mount /dev/vda /tmp; df /tmp'")]
pub struct GuestArgs {
    #[command(subcommand)]
    command: GuestCommand,
}

#[derive(Debug, Subcommand)]
enum GuestCommand {
    /// Run a command in a guest, as its root: the host's files can be read, time is virtual.
    Run(Box<RunInGuest>),
    /// Show which kernel is used, what it can do, and which file systems it has.
    Info {
        /// The kernel [default: the one that is found].
        #[arg(value_name = "PATH")]
        kernel: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Run a command in a guest, as its root.
#[derive(Args, Debug)]
pub struct RunInGuest {
    /// Give the guest a disk of this size, /dev/vda, whose contents are zero.
    #[arg(long, value_name = "BYTES", value_parser = ordo_report::number::parse_bytes)]
    size: Option<u64>,
    /// The model of that disk: viking, hdd-4tb, sata-ssd, nvme and so on.
    #[arg(long, value_name = "MODEL", value_parser = crate::args::disk, requires = "size")]
    disk: Option<&'static Model>,
    #[command(flatten)]
    guest: GuestOptions,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn run_command(args: &RunInGuest) -> Result<ExitCode> {
    let kernel = args.guest.kernel.guest_kernel()?;
    let executor = Executor::simulated(args.guest.seed);
    let runtime = executor.runtime();
    let disk = args.size.map(|bytes| {
        let model = args.disk.unwrap_or(&ordo_block::model::catalog::RAM);
        Modeled::new(&runtime, model, RamDisk::new(bytes / 4096 * 4096)).erase()
    });
    let is_rotational = args.disk.is_none_or(Model::is_rotational);
    let disks = (disk.into_iter().collect(), is_rotational);
    within(&args.guest, kernel, executor, disks, args.command.clone())
}

/// Runs a command in a guest with these disks, which turn or not.
fn within(
    options: &GuestOptions,
    kernel: Kernel,
    executor: Executor,
    (disks, is_rotational): (Vec<Device>, bool),
    words: Vec<OsString>,
) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let release = kernel.release().to_owned();
    let folder = tempfile::Builder::new().prefix("ordo-output-").tempdir().context("a folder")?;
    let mut setup = options.setup(kernel, &signals, &words)?;
    setup.disks = disks;
    setup.is_rotational = is_rotational;
    setup.shared.push(folder.path().to_owned());
    let runtime = executor.runtime();
    let guest = Guest::start(&runtime, setup)?;
    let outputs = ["output", "errors"].map(|name| folder.path().join(name));
    let [output, errors] = outputs.clone().map(Some);
    let dir = std::env::current_dir().context("finding the present directory")?;
    let environment = environment([(WITHIN.into(), "1".into())]);
    let program = GuestProgram { words, environment, dir, user: None, output, errors };
    let order = Order::Run(program);
    let status = shown_while(outputs, &signals, || {
        let asked = executor.block_on(guest.ask(&order));
        Ok(asked.map_err(|stuck| LiveError::Program(stuck.to_string()))??)
    });
    if guest.log().contains(NO_MAPPINGS) {
        eprintln!(
            "ordo: a program in the guest was ended, since this machine allows its processes too few mappings of memory: \
             raise vm.max_map_count (sysctl)"
        );
    }
    tell_time(&release, runtime.now().as_secs_f64(), options.seed);
    if guest.failure().is_none() {
        executor.block_on(guest.power_off()).map_err(|stuck| anyhow!("{stuck}"))??;
    }
    status
}

/// The options of the kernel's configuration, and the file systems that they bring.
const FILE_SYSTEMS: [(&str, &str); 14] = [
    ("EXT2_FS", "ext2"),
    ("EXT4_FS", "ext3"),
    ("EXT4_FS", "ext4"),
    ("XFS_FS", "xfs"),
    ("BTRFS_FS", "btrfs"),
    ("JFS_FS", "jfs"),
    ("REISERFS_FS", "reiserfs"),
    ("F2FS_FS", "f2fs"),
    ("NILFS2_FS", "nilfs2"),
    ("NTFS3_FS", "ntfs3"),
    ("VFAT_FS", "vfat"),
    ("EXFAT_FS", "exfat"),
    ("BCACHEFS_FS", "bcachefs"),
    ("UFS_FS", "ufs"),
];

/// The abilities of a guest kernel, as `--json` prints them.
#[derive(serde::Serialize)]
struct Abilities<'a> {
    path: &'a Path,
    release: &'a str,
    virtual_time: bool,
    ordo_changes: bool,
    disks: bool,
    fuse: bool,
    network: bool,
    file_systems: Vec<&'static str>,
}

/// Carries out `ordo guest`.
///
/// # Errors
/// There is no guest kernel.
pub fn run(args: &GuestArgs) -> Result<ExitCode> {
    let (kernel, json) = match &args.command {
        GuestCommand::Run(args) => return run_command(args),
        GuestCommand::Info { kernel, json } => (kernel, json),
    };
    let kernel = match kernel {
        Some(path) => Kernel::at(path)?,
        None => Kernel::find()?,
    };
    let of = FILE_SYSTEMS.into_iter().filter(|(option, _)| kernel.has(option));
    let abilities = Abilities {
        path: kernel.path(),
        release: kernel.release(),
        virtual_time: kernel.has_virtual_time(),
        ordo_changes: kernel.is_patched(),
        disks: kernel.has("VIRTIO_UML") && kernel.has("VIRTIO_BLK"),
        fuse: kernel.has("FUSE_FS"),
        network: kernel.has("VIRTIO_NET"),
        file_systems: of.map(|(_, name)| name).collect(),
    };
    if *json {
        println!("{}", serde_json::to_string_pretty(&abilities)?);
        return Ok(ExitCode::SUCCESS);
    }
    let said = |can: bool| if can { "yes" } else { "no" };
    println!("kernel        {}", abilities.path.display());
    println!("release       {}", abilities.release);
    println!("virtual time  {}", said(abilities.virtual_time));
    println!("price of the processor, seeded random numbers  {}", said(abilities.ordo_changes));
    println!("disks of Ordo's  {}", said(abilities.disks));
    println!("FUSE  {}", said(abilities.fuse));
    println!("network card  {}", said(abilities.network));
    println!("file systems  {}", abilities.file_systems.join(", "));
    Ok(ExitCode::SUCCESS)
}
