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
use ordo_guest::orders::GuestAnswer;
use ordo_guest::{GuestSetup, Kernel};
use ordo_kernelfs::{GuestMount, LiveError};
use ordo_runtime::cpu::CpuModel;

use super::running::Signals;

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

/// Options of a guest kernel.
#[derive(Args, Clone, Debug)]
pub struct GuestOptions {
    /// The kernel: host, guest (a Linux that runs as a process, in virtual time, without root), or
    /// the path of one (built by make ARCH=um) [default: host for root, if it has the file system].
    #[arg(long, value_name = "KERNEL", help_heading = "Guest kernel")]
    pub kernel: Option<KernelChoice>,
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

impl GuestOptions {
    /// The guest kernel for a file system; `None` if it is the host's kernel that is used.
    ///
    /// # Errors
    /// There is no guest kernel, and the caller may not use the host's.
    pub fn choose(&self, command: &str, fs: &str) -> Result<Option<Kernel>> {
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

    /// The configuration of a guest, which ends when a signal is caught.
    ///
    /// # Errors
    /// A shared directory is none, or this program has no path.
    pub(super) fn setup(&self, kernel: Kernel, signals: &Signals) -> Result<GuestSetup> {
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
    command: &[String],
) -> Result<ExitCode> {
    let words = command.iter().map(OsString::from).collect();
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    environment.retain(|(name, _)| name != "ORDO_MARK" && name != "ORDO_KERNEL");
    environment.push(("ORDO_MARK".into(), mounted.control().into()));
    let [output, errors] = mounted.outputs();
    let shown = [Shown::begin(output, false), Shown::begin(errors, true)];
    let ended = mounted.run(words, environment);
    shown.into_iter().for_each(Shown::end);
    match ended {
        Ok(GuestAnswer::Ended { code, signal }) => {
            let status = code.unwrap_or_else(|| 128 + signal.unwrap_or_default());
            Ok(ExitCode::from(status as u8))
        }
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(LiveError::Stopped) => {
            eprintln!("ordo: the guest was stopped; its recording up to then is kept");
            let signal = signals.caught().map_or(0, rustix::process::Signal::as_raw);
            Ok(ExitCode::from(128 + signal as u8))
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

/// A Linux kernel that runs as a process: what it can do, and a shell in it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The kernel is that of $ORDO_KERNEL, of the cache (`make guest-kernel` in Ordo's sources builds it
there), of the package, or Debian's package user-mode-linux.

Example:
  ordo guest info")]
pub struct GuestArgs {
    #[command(subcommand)]
    command: GuestCommand,
}

#[derive(Debug, Subcommand)]
enum GuestCommand {
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
    let GuestCommand::Info { kernel, json } = &args.command;
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
