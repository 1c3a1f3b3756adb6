//! The arguments of commands, and the values that they take.

mod choice;
mod crash;
mod files;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ordo_block::model::Model;
use ordo_report::number::parse_bytes;
use ordo_runtime::cpu::CpuModel;
use ordo_systems::{Format, MetadataSize, System};
use ordo_workload::Workload;
use ordo_workload::age;

pub use crate::partition::PartitionChoice;
pub use choice::{ChoiceList, OwnChoice, SystemChoice};
pub use crash::{Crash, CrashCommand, CrashWorkload, TaskArgs};
pub use files::{Cat, Cp, Export, Import, Ls, Owner, RescueChoice};

pub(crate) fn disk(text: &str) -> Result<&'static Model, String> {
    Model::by_name(text).ok_or_else(|| {
        let all: Vec<_> = ordo_block::model::ALL.iter().map(|m| m.name).collect();
        format!("no disk model is called '{text}'; there are {}", all.join(", "))
    })
}

fn metadata_size(text: &str) -> Result<MetadataSize, String> {
    match text.strip_suffix('%') {
        None => parse_bytes(text).map(MetadataSize::Bytes),
        Some(share) => match share.parse() {
            Ok(percent @ 1..=90) => Ok(MetadataSize::Percent(percent)),
            _ => Err(format!("'{text}' is not a share of a disk; use 1% to 90%")),
        },
    }
}

pub(crate) fn cpu(text: &str) -> Result<CpuModel, String> {
    CpuModel::by_name(text).ok_or_else(|| {
        let all: Vec<_> = CpuModel::ALL.iter().map(|m| m.name).collect();
        format!("no processor is called '{text}'; there are {}", all.join(", "))
    })
}

pub(crate) fn system(text: &str) -> Result<System, String> {
    match System::by_name(text) {
        Some(system) if system.is_runnable() => Ok(system),
        Some(system) => Err(system.format().cannot("mounted to be written").to_string()),
        None => {
            let all: Vec<_> = System::runnable().map(|s| s.name()).collect();
            Err(format!("no system is called '{text}'; there are {}", all.join(", ")))
        }
    }
}

fn ageing(text: &str) -> Result<age::ChurnOptions, String> {
    text.parse::<age::ChurnOptions>().map_err(|e| e.to_string())
}

fn workload(text: &str) -> Result<Workload, String> {
    ordo_compare::parse_workload(text).map_err(|e| e.to_string())
}

/// The simulated machine: disk, processor, sizes of the file system.
#[derive(Args, Clone, Debug)]
pub struct Machine {
    /// The disk model: viking, viking-untagged, cheetah, ibm-9lzx, st34310a, hdd-4tb, sata-ssd,
    /// nvme, network-volume, nvram, ram.
    #[arg(long, default_value = "nvme", value_name = "MODEL", value_parser = disk)]
    pub disk: &'static Model,
    /// The model of a journal's own disk, or of the metadata device of dualfs-2, for example nvram
    /// [default: as --disk].
    #[arg(long = "log-disk", value_name = "MODEL", value_parser = disk)]
    pub log_disk: Option<&'static Model>,
    /// The processor: pentium2-300, pentium3-500, modern, none [default: of the disk's time: modern
    /// with hdd-4tb, sata-ssd, nvme and network-volume, else pentium2-300].
    #[arg(long, value_name = "MODEL", value_parser = cpu)]
    pub cpu: Option<CpuModel>,
    /// Memory for the cache [default: 512m, of which 100m may be dirty; with the papers' disks 96m
    /// and 4352k, as FreeBSD 4 on 128 MB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// The most dirty data in the cache.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub dirty: Option<u64>,
    /// Memory for the dependencies of soft updates [default: an eighth of the cache].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub dependencies: Option<u64>,
    /// Block size of Ordo's systems.
    #[arg(long = "block-size", default_value = "8k", value_name = "BYTES", value_parser = parse_bytes)]
    pub block_size: u64,
    /// Fragment size.
    #[arg(long = "frag-size", default_value = "1k", value_name = "BYTES", value_parser = parse_bytes)]
    pub frag_size: u64,
    /// Size of the file system [default: that of the disk, at most 4g].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Seed of all random choices. The same seed gives the same output.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Values of an option, each of which is tried.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The option's name.
    pub name: String,
    /// Its values.
    pub values: Vec<String>,
}

fn sweep(text: &str) -> Result<Sweep, String> {
    let (name, values) =
        text.split_once('=').ok_or_else(|| format!("'{text}': not NAME=VALUES"))?;
    let values = values.split(',').map(str::to_owned).collect();
    Ok(Sweep { name: name.to_owned(), values })
}

impl Machine {
    /// Sets one of the options by its name; `None` if the machine has no such option.
    ///
    /// # Errors
    /// It does not take this value.
    pub fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let bytes = |to: &mut Option<u64>| parse_bytes(value).map(|bytes| *to = Some(bytes));
        let size = |to: &mut u64| parse_bytes(value).map(|bytes| *to = bytes);
        Some(match name {
            "disk" => disk(value).map(|model| self.disk = model),
            "log-disk" => disk(value).map(|model| self.log_disk = Some(model)),
            "cpu" => cpu(value).map(|model| self.cpu = Some(model)),
            "memory" => bytes(&mut self.memory),
            "dirty" => bytes(&mut self.dirty),
            "dependencies" => bytes(&mut self.dependencies),
            "block-size" => size(&mut self.block_size),
            "frag-size" => size(&mut self.frag_size),
            "size" => bytes(&mut self.size),
            "seed" => {
                value.parse().map(|seed| self.seed = seed).map_err(|e| format!("{value}: {e}"))
            }
            _ => return None,
        })
    }
}

/// `ordo compare`.
#[derive(Args, Debug)]
#[command(after_long_help = concat!("\
Workloads:
  create-delete[:files=N]            empty files, each removed before the next is created
  micro[:journaling]                 files of 2 KB to 4 MB created, read, written, removed
  postmark[:small|:large]            many short-lived small files
  tree:PATH                          a directory copied in, compared, removed
  tree:seed=N[,files=N]              the same with a tree generated from a seed
  overwrite[:full=PERCENT,hot=..]    random overwrites on a file system kept this full
  tpcb                               transactions like TPC-B's
  sdet-like[:users=N]                scripts of commands of users at once
  mail-server[:minutes=N]            messages queued durably, delivered, read
  kernel-build[:processes=N]         a kernel's sources: dependencies, compiling, linking
  andrew-like[:files=N]              directories, copies, looks, reads, a build: Andrew's phases
  specweb-like[:directories=N]       a web server's files, read by popularity, and its logs
  tpcc-like[:warehouses=N]           transactions like TPC-C's, many clients
  calls:FILE[,dir=DIR]               recorded system calls: strace's, or a trace's
  filebench:varmail|fileserver|webserver|oltp|FILE.f[,run=SECONDS]
                                     many clients, by a personality of filebench

Ctrl-C shows the runs that have ended, and exits with 130.

Examples:
  ordo compare                       a real tree of this machine, then PostMark
  ordo compare --workload create-delete --disk cheetah --cpu pentium3-500
  ordo compare --workload tree:/usr/include --disk hdd-4tb --dirty 1g --memory 4g --jobs 2
  ordo compare --fs ffs-sync --workload micro:total=4m --json -o rows.json
  ordo compare --fs ffs-none,lfs:cleaner=greedy,lfs:cleaner=hot-cold,idle=off
  ordo compare --aged                the same on aged file systems
  ordo compare -w filebench:varmail,run=10 --fs ffs-sync,ffs-soft-updates,lffs-wafs-1sync-group
  ordo compare --html page.html      the same with pictures, in one file
  ordo compare --fs ext4,ext4:data=journal,xfs,lfs -w postmark --sweep disk=hdd-4tb,sata-ssd,nvme
  ordo compare --fs ext4,xfs,lfs -- sh -c 'git init -q . && git commit -q --allow-empty -m one'"))]
pub struct Compare {
    /// The workload. May be given more than once [default: a tree of this machine, and postmark].
    #[arg(long, short, value_name = "WORKLOAD", value_parser = workload)]
    pub workload: Vec<Workload>,
    /// Systems, separated by commas, or all [default: six of Ordo's, and ext4, xfs and btrfs if
    /// there is a guest kernel]. Options follow a colon: lfs:cleaner=greedy,idle=off,
    /// ffs-sync:maxcontig=8; for the kernel's, mount options (ext4:data=journal,nobarrier) and
    /// arguments for mkfs (xfs:mkfs=-b size=1024).
    #[arg(long, short, value_name = "LIST", value_parser = ChoiceList::parse)]
    pub fs: Vec<ChoiceList>,
    #[command(flatten)]
    pub kernel: crate::commands::guest::KernelOption,
    /// Run this shell script before the command, in its directory. It is not measured.
    #[arg(long, value_name = "SCRIPT", requires = "command", help_heading = "Command")]
    pub setup: Option<String>,
    /// Copy the files of this directory into the command's directory first.
    #[arg(long, value_name = "DIR", requires = "command", help_heading = "Command")]
    pub files: Option<PathBuf>,
    /// Save the command's output and errors in this directory, as SYSTEM.out and SYSTEM.err.
    #[arg(long, value_name = "DIR", requires = "command", help_heading = "Command")]
    pub outputs: Option<PathBuf>,
    /// A command and its arguments. It runs in an empty directory of each system, in a guest
    /// kernel.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["workload", "aged"])]
    pub command: Vec<OsString>,
    /// The machine.
    #[command(flatten)]
    pub machine: Machine,
    /// Sort the systems by a column, best first [default: as they are listed].
    #[arg(long, value_name = "COLUMN", value_enum)]
    pub sort: Option<SortColumn>,
    /// Run everything once for each of these values: of an option of the machine, as in
    /// disk=viking,nvme, or of a parameter of the workload, as in files=100,1000.
    #[arg(long, value_name = "NAME=VALUES", value_parser = sweep)]
    pub sweep: Option<Sweep>,
    /// Run this many systems at once.
    #[arg(long, short, default_value_t = 1, value_name = "NUMBER")]
    pub jobs: usize,
    /// Do not cut the power in the middle of each run.
    #[arg(long = "no-recovery")]
    pub no_recovery: bool,
    /// Age the file system first, as `ordo age` does. PROFILE is agrawal, douceur, meyer, server or
    /// a file, with options as in agrawal:util=90%,overwrites=2 [default:
    /// agrawal:util=76%,overwrites=5].
    #[arg(long, value_name = "PROFILE", num_args = 0..=1, default_missing_value = "agrawal", value_parser = ageing)]
    pub aged: Option<age::ChurnOptions>,
    /// Show every measure, with writes by the kind of block, one column for each system.
    #[arg(long)]
    pub wide: bool,
    /// Print the rows as JSON.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print the table as comma-separated values, without rounding.
    #[arg(long)]
    pub csv: bool,
    /// Also write an HTML page: bars, writes by kind, the state after a power cut.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the output to this file.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// A column by which a comparison is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortColumn {
    /// The application's seconds.
    App,
    /// Seconds until everything is on disk.
    Disk,
    /// The number of writes.
    Writes,
    /// Bytes written for each byte of the program's own.
    Own,
    /// The age of the oldest change that a power cut takes.
    Lost,
    /// Seconds until the file system can be used again.
    Up,
}

/// `ordo bench`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo bench micro:total=4m --fs ffs-none
  ordo bench postmark:small --fs ffs-sync --disk cheetah --cpu pentium3-500
  ordo bench postmark --dir /mnt/test      in real time, on whatever is mounted there
  ordo bench filebench:varmail,nthreads=64 --fs lfs
  ordo bench filebench:./mine.f,run=10     a workload in filebench's language (docs/filebench.md)
  ordo trace run --fs ext4 --size 4g --without-contents -o sources.trace -- \
    ordo bench sources --dir . --drop-caches   marks each phase in the trace: 'begin NAME',
                                   'end NAME', and 'synced NAME' when its writes are on disk")]
pub struct Bench {
    /// The workload: create-delete, micro, postmark, tree:PATH, sources, ssh-build, netnews,
    /// overwrite, tpcb, sdet-like, mail-server, kernel-build, andrew-like, specweb-like, tpcc-like,
    /// filebench:PERSONALITY, calls:FILE, each with its parameters.
    #[arg(value_name = "WORKLOAD", value_parser = workload)]
    pub workload: Workload,
    /// The system.
    #[arg(long, short, default_value = "ffs-sync", value_name = "SYSTEM", value_parser = system)]
    pub fs: System,
    /// Run in this directory of this machine, in real time. The workload runs in a new directory in
    /// it, which is removed afterwards.
    #[arg(long, value_name = "DIR", conflicts_with = "fs")]
    pub dir: Option<PathBuf>,
    /// With --dir: empty the kernel's caches where the workload wants cold ones, by
    /// /proc/sys/vm/drop_caches. Needs root.
    #[arg(long = "drop-caches", requires = "dir")]
    pub drop_caches: bool,
    /// The machine.
    #[command(flatten)]
    pub machine: Machine,
    /// Print the row as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write the output to this file.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// The kind of file system that `ordo mkfs` makes.
#[derive(Clone, Copy)]
pub enum MkfsTarget {
    /// A format, by its name.
    Format(&'static dyn Format),
    /// The format of a system, marked so that a mount uses that system by default.
    System(System),
}

impl MkfsTarget {
    /// The format that is made.
    pub fn format(&self) -> &'static dyn Format {
        match self {
            MkfsTarget::Format(format) => *format,
            MkfsTarget::System(system) => system.format(),
        }
    }
}

impl std::fmt::Debug for MkfsTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MkfsTarget::Format(format) => format.name(),
            MkfsTarget::System(system) => system.name(),
        })
    }
}

fn made(text: &str) -> Result<MkfsTarget, String> {
    let formats = ordo_systems::FORMATS;
    if let Some(format) = formats.iter().find(|format| format.name() == text) {
        return Ok(MkfsTarget::Format(*format));
    }
    System::by_name(text).map(MkfsTarget::System).ok_or_else(|| {
        let formats = formats.iter().map(|format| format.name());
        let all: Vec<_> = formats.chain(System::all().iter().map(System::name)).collect();
        format!("nothing is called '{text}'; there are {}", all.join(", "))
    })
}

/// `ordo mkfs`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A device or file that is not empty is refused, and its contents are named: file systems, swap
space, RAID and LVM members, encrypted volumes, partition tables, archives, images. Unknown bytes
that are not zero are refused too; on a terminal ordo asks. It reads the first 4 MB, the last 2 MB
and 128 samples between them, and all of a device of up to 16 MB. --force overwrites the device, and
zeroes old signatures, as wipefs does. The exit status is 1 if the device is refused.

Examples:
  ordo mkfs disk.img --size 1g
  ordo mkfs disk.img --size 1g --block-size 8k --frag-size 1k --label data
  ordo mkfs /dev/sdx1 --soft-updates
  ordo mkfs old.img --size 1g --fs ufs1 --big-endian
  ordo mkfs log.img --fs lfs --size 1g --segment-size 1m
  ordo mkfs dual.img --fs dualfs --size 4g --meta 10%
  ordo mkfs /dev/sdx --fs dualfs --meta-device /dev/nvme0n1p3")]
pub struct Mkfs {
    /// The image, created if it does not exist, or a block device.
    pub image: PathBuf,
    #[command(flatten)]
    pub shape: MakeShape,
    /// Size of the metadata device of a DualFS, at the start of the disk or in the image that
    /// --meta-device creates: bytes, or a share as in 10% [default: 10%].
    #[arg(long, value_name = "SIZE", value_parser = metadata_size)]
    pub meta: Option<MetadataSize>,
    /// Space on a DualFS's data device for a copy of the metadata, written with each checkpoint;
    /// --salvage reads files from it if the metadata device is lost: bytes, or a share of the
    /// metadata device as in 90% [default: no copy].
    #[arg(long = "meta-copy", value_name = "SIZE", value_parser = metadata_size)]
    pub meta_copy: Option<MetadataSize>,
    /// Make a DualFS on two devices: its metadata device is this image, created if it does not
    /// exist, or block device; the first path is the data device.
    #[arg(long = "meta-device", value_name = "PATH")]
    pub meta_device: Option<PathBuf>,
    /// Segment size of an LFS, or of a DualFS's metadata log [default: 1m, less on a small device].
    #[arg(long = "segment-size", value_name = "BYTES", value_parser = parse_bytes)]
    pub segment_size: Option<u64>,
    /// Write no seals (checksums of Ordo's own) on the partial segments of an LFS; NetBSD writes
    /// none.
    #[arg(long = "no-crc")]
    pub no_crc: bool,
    /// Size of the file system [default: the whole image or device].
    #[arg(long, short, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Make a log for a journal. PLACE is `file` (in a file of the file system), `behind` (behind
    /// it on the same device), or the path of another image or device.
    #[arg(long, short = 'J', value_name = "PLACE")]
    pub journal: Option<PathBuf>,
    /// Size of the log [default: a hundredth of the file system, and enough for any operation on
    /// its blocks].
    #[arg(long = "journal-size", value_name = "BYTES", value_parser = parse_bytes, requires = "journal")]
    pub journal_size: Option<u64>,
    /// Overwrite whatever the devices hold, and wipe the signatures of their old contents.
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The metadata device of a DualFS, for a command that takes the data device as its image.
#[derive(Args, Clone, Debug, Default)]
pub struct MetadataPath {
    /// The metadata device, if the image is the data device of a DualFS [default: searched beside
    /// the image].
    #[arg(long = "meta-device", value_name = "PATH")]
    pub meta_device: Option<PathBuf>,
}

/// `ordo info`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo info disk.img
  ordo info --groups disk.img       with every cylinder group, as dumpfs does
  ordo info --json disk.img
  ordo info /dev/sdx                the partitions, and the only one with UFS, LFS or DualFS
  ordo info -p 1a /dev/sdx          one of them
  ordo info disk.img.xz             a compressed image (xz, zstd, gzip): any command reads it")]
pub struct Info {
    /// The image or device.
    pub image: PathBuf,
    #[command(flatten)]
    pub metadata: MetadataPath,
    #[command(flatten)]
    pub part: PartitionChoice,
    /// Also show every cylinder group or segment.
    #[arg(long, short)]
    pub groups: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `ordo fsck`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit status, as of fsck(8): 0 no findings, 1 all findings are repaired, 4 some are left, 8 the
check failed, 16 wrong usage. Without -y or -p nothing is written.

A crash under soft updates (ordo info shows the flag) may leak space, inodes and links; such an
image can be mounted without a check. A check then clears inodes without a name instead of moving
them to lost+found, unless it finds other damage, which it calls unexpected; and -p trusts the
bitmaps: it reads only inodes that they mark as used.

The log of a journal (ordo info shows it) is replayed first if the image was not unmounted
cleanly; without -y or -p it is replayed in memory only.

Examples:
  ordo fsck disk.img                check, write nothing
  ordo fsck -y disk.img             repair everything
  ordo fsck -p disk.img             repair without any loss; skip a clean image
  ordo fsck -b 160 -y disk.img      start from the superblock's copy at sector 160
  ordo fsck -y -J log.img disk.img  with its log in another image or on another device")]
pub struct Fsck {
    /// The image or device.
    pub image: PathBuf,
    #[command(flatten)]
    pub metadata: MetadataPath,
    /// The partition of a disk, as `ordo info` lists them, or whole for the disk itself [default:
    /// the only one that holds UFS, LFS or DualFS]. Its short form means preen here, as in fsck(8).
    #[arg(long, value_name = "PART")]
    pub partition: Option<String>,
    /// Repair nothing, only check (the default).
    #[arg(short = 'n', conflicts_with_all = ["yes", "preen"])]
    pub no: bool,
    /// Repair everything.
    #[arg(short = 'y', conflicts_with = "preen")]
    pub yes: bool,
    /// Preen: repair only if no data is lost by it, otherwise write nothing. Skip an image that is
    /// marked clean.
    #[arg(short = 'p')]
    pub preen: bool,
    /// Check an image even if it is marked clean.
    #[arg(short = 'f')]
    pub force: bool,
    /// The image or device with the log, if the log is not in the same image.
    #[arg(long, short = 'J', value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Use the superblock at this sector of 512 bytes. The log is then not replayed.
    #[arg(short = 'b', value_name = "SECTOR")]
    pub superblock: Option<u64>,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar and no list of findings.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ordo completions`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo completions bash > /etc/bash_completion.d/ordo
  ordo completions zsh > ~/.zfunc/_ordo")]
pub struct Completions {
    /// The shell.
    pub shell: Shell,
}

/// The shells with completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// Bash.
    Bash,
    /// Elvish.
    Elvish,
    /// Fish.
    Fish,
    /// PowerShell.
    #[value(name = "powershell")]
    Power,
    /// Zsh.
    Zsh,
}

/// `ordo man`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  ordo man /usr/local/share/man/man1")]
pub struct Man {
    /// The directory for the pages, created if it does not exist.
    pub dir: PathBuf,
}

/// The options of a new file system, of `ordo mkfs` and of an image that `ordo import` creates.
#[derive(Args, Debug)]
pub struct MakeShape {
    /// The format, ufs2, ufs1, lfs or dualfs, or a system: its format, marked so that a mount uses
    /// that system by default.
    #[arg(long, value_name = "FORMAT", default_value = "ufs2", value_parser = made)]
    pub fs: MkfsTarget,
    /// Block size, 4k to 64k [default: 32k; for an LFS 8k; for a DualFS 4k, and at most 8k].
    #[arg(long = "block-size", short, value_name = "BYTES", value_parser = parse_bytes)]
    pub block_size: Option<u64>,
    /// Fragment size, from an eighth of the block size up to all of it [default: an eighth].
    #[arg(long = "frag-size", short = 'f', value_name = "BYTES", value_parser = parse_bytes)]
    pub frag_size: Option<u64>,
    /// Bytes of space for each inode.
    #[arg(long, short = 'i', value_name = "BYTES", value_parser = parse_bytes)]
    pub density: Option<u64>,
    /// Percentage of space that is reserved (minfree) [default: 8].
    #[arg(long = "min-free", short, value_name = "PERCENT")]
    pub min_free: Option<u8>,
    /// The volume's label.
    #[arg(long, short = 'L')]
    pub label: Option<String>,
    /// Mark the file system so that FreeBSD mounts it with soft updates.
    #[arg(long = "soft-updates", short = 'U')]
    pub soft_updates: bool,
    /// Make a big-endian file system, as on SPARC or PowerPC.
    #[arg(long = "big-endian")]
    pub big_endian: bool,
    /// Make UFS1, the format of 4.4BSD, for a system that makes UFS2 otherwise; for --fs ufs2, the
    /// same as --fs ufs1.
    #[arg(long)]
    pub ufs1: bool,
    /// Write no check-hashes on superblock, groups and inodes.
    #[arg(long = "no-check-hashes")]
    pub no_check_hashes: bool,
    /// Seed of the file system's id and of the inodes' generation numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl MakeShape {
    /// Refuses the options for an image that exists, whose file system has its own.
    ///
    /// # Errors
    /// One of the options was given.
    pub fn refuse_for(&self, image: &std::path::Path) -> anyhow::Result<()> {
        let sizes = [self.block_size, self.frag_size, self.density].iter().any(Option::is_some);
        let words = self.min_free.is_some() || self.label.is_some();
        let flags = [self.soft_updates, self.big_endian, self.ufs1, self.no_check_hashes];
        if sizes || words || flags.contains(&true) {
            anyhow::bail!("{}: exists: options of mkfs are for a new image", image.display());
        }
        Ok(())
    }
}
