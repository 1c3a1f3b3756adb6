//! What can be asked for.

mod crash;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ordo_bench::workload::Workload;
use ordo_block::model::Model;
use ordo_report::number::parse_bytes;
use ordo_runtime::cpu::CpuModel;
use ordo_systems::{Format, System};

pub use crash::{Crash, CrashCommand, CrashWorkload, TaskArgs};

/// Run real file systems that protect their metadata in different ways, see what they write, and what
/// that costs.
#[derive(Debug, Parser)]
#[command(name = "ordo", version, max_term_width = 100)]
#[command(after_help = "\
Start with `ordo compare`: it needs no arguments and no privileges.
`ordo COMMAND --help` shows examples. Sizes take k, m, g or t: 64k, 512m.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload on every system and show in one table what each one costs.
    Compare(Compare),
    /// Run a workload on one system, or in a directory of this machine, and show each phase.
    Bench(Bench),
    /// Measure what the papers measured: published and measured side by side.
    Reproduce(crate::commands::reproduce::Reproduce),
    /// Explore what a crash can leave behind, and judge it.
    Crash(Box<Crash>),
    /// Say what a recorded trace of a device means: traffic by kind, the journal, transactions.
    Analyze(crate::commands::analyze::Analyze),
    /// Record what the kernel's file systems write, and look at it request by request.
    Trace(crate::commands::trace::TraceArgs),
    /// Find out a file system's policies by experiment: journaling mode, thresholds, timers, what waits for what.
    Infer(crate::commands::infer::Infer),
    /// Make an empty UFS2 file system in an image or on a device.
    Mkfs(Mkfs),
    /// Show the superblock and the cylinder groups of a UFS2 file system, or the segments of an LFS.
    Info(Info),
    /// Check a UFS2 file system or an LFS, and repair it.
    Fsck(Fsck),
    /// Mount a UFS2 file system, to be read and written through the kernel.
    Mount(crate::commands::mount::Mount),
    /// Unmount what `ordo mount` mounted; returns when the disk is clean.
    Umount(crate::commands::mount::Umount),
    /// List files in an image.
    Ls(Ls),
    /// Print files of an image.
    Cat(Cat),
    /// Copy files into an image, out of one, or from one to another.
    Cp(Cp),
    /// Copy a directory into an image; the image is made if it is not there.
    Import(Import),
    /// Copy what is in an image to a directory.
    Export(Export),
    /// Make, append to, read and follow a log: a WAFS in an image or on a device.
    Log(crate::commands::log::Log),
    /// Print completions for a shell.
    Completions(Completions),
    /// Write manual pages.
    Man(Man),
}

pub(crate) fn disk(text: &str) -> Result<&'static Model, String> {
    Model::by_name(text).ok_or_else(|| {
        let all: Vec<_> = ordo_block::model::ALL.iter().map(|m| m.name).collect();
        format!("no disk model is called '{text}'; there are {}", all.join(", "))
    })
}

fn cpu(text: &str) -> Result<CpuModel, String> {
    CpuModel::by_name(text).ok_or_else(|| {
        let all: Vec<_> = CpuModel::ALL.iter().map(|m| m.name).collect();
        format!("no processor is called '{text}'; there are {}", all.join(", "))
    })
}

fn system(text: &str) -> Result<System, String> {
    match System::by_name(text) {
        Some(system) if system.is_runnable() => Ok(system),
        Some(system) => Err(system.format().cannot("mounted to be written").to_string()),
        None => {
            let all: Vec<_> = System::runnable().map(|s| s.name()).collect();
            Err(format!("no system is called '{text}'; there are {}", all.join(", ")))
        }
    }
}

fn workload(text: &str) -> Result<Workload, String> {
    text.parse::<Workload>().map_err(|e| e.to_string())
}

/// The disk, the processor, the file system's sizes.
#[derive(Args, Debug)]
pub struct Machine {
    /// The disk model: viking, cheetah, ibm-9lzx, st34310a, hdd-4tb, sata-ssd, nvme, network-volume,
    /// nvram, ram.
    #[arg(long, default_value = "viking", value_name = "MODEL", value_parser = disk)]
    pub disk: &'static Model,
    /// The model of the disk that a log has to itself, nvram for instance; as --disk unless given.
    #[arg(long, value_name = "MODEL", value_parser = disk)]
    pub log_disk: Option<&'static Model>,
    /// The processor: pentium2-300, pentium3-500, modern, none.
    #[arg(long, default_value = "pentium2-300", value_name = "MODEL", value_parser = cpu)]
    pub cpu: CpuModel,
    /// Memory for the cache.
    #[arg(long, default_value = "96m", value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: u64,
    /// How much of it may be dirty; as FreeBSD 4 on 128 MB unless given.
    #[arg(long, default_value = "4352k", value_name = "BYTES", value_parser = parse_bytes)]
    pub dirty: u64,
    /// Memory that soft updates may take for dependencies; an eighth of the cache's unless given.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub dependencies: Option<u64>,
    /// Block size.
    #[arg(long, default_value = "8k", value_name = "BYTES", value_parser = parse_bytes)]
    pub block_size: u64,
    /// Fragment size.
    #[arg(long, default_value = "1k", value_name = "BYTES", value_parser = parse_bytes)]
    pub frag_size: u64,
    /// Size of the file system; the disk's, 4g at most, unless given.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Fixes every choice: the same seed gives the same output.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `ordo compare`.
#[derive(Args, Debug)]
#[command(after_long_help = concat!("\
Workloads:
  create-delete[:files=N]            empty files, each removed before the next is made
  micro[:journaling]                 files of 2 KB to 4 MB made, read, written, removed
  postmark[:small|:large]            many short-lived small files
  tree:PATH                          a directory copied in, compared, removed
  tree:seed=N[,files=N]              the same with a tree generated from a seed

Examples:
  ordo compare                       a real tree of this machine, then PostMark
  ordo compare --workload create-delete --disk cheetah --cpu pentium3-500
  ordo compare --workload tree:/usr/include --disk nvme --cpu modern --dirty 1g --memory 4g
  ordo compare --fs ffs-sync --workload micro:total=4m --json -o rows.json
  ordo compare --html page.html      the same with pictures, in one file"))]
pub struct Compare {
    /// What to run; may be given more than once [default: a tree of this machine, and postmark].
    #[arg(long, short, value_name = "WORKLOAD", value_parser = workload)]
    pub workload: Vec<Workload>,
    /// The systems, separated by commas [default: all].
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', value_parser = system)]
    pub fs: Vec<System>,
    /// The machine.
    #[command(flatten)]
    pub machine: Machine,
    /// Do not cut the power in the middle.
    #[arg(long)]
    pub no_recovery: bool,
    /// Every measure, writes by the kind of block among them, one column a system.
    #[arg(long)]
    pub wide: bool,
    /// Print rows as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write a page for a browser as well: bars, writes by kind, what a power cut left.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write to this file instead.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// No progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ordo bench`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo bench micro:total=4m --fs ffs-none
  ordo bench postmark:small --fs ffs-sync --disk cheetah --cpu pentium3-500
  ordo bench postmark --dir /mnt/test      in real time, on whatever is mounted there")]
pub struct Bench {
    /// What to run: create-delete, micro, postmark, tree:PATH, ssh-build, netnews, each with its parameters.
    #[arg(value_name = "WORKLOAD", value_parser = workload)]
    pub workload: Workload,
    /// The system.
    #[arg(long, short, default_value = "ffs-sync", value_name = "SYSTEM", value_parser = system)]
    pub fs: System,
    /// Run in this directory of the host instead, in real time, in a new directory that is removed
    /// afterwards.
    #[arg(long, value_name = "DIR", conflicts_with = "fs")]
    pub dir: Option<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: Machine,
    /// Print the row as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write to this file instead.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// No progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// What `ordo mkfs` makes.
#[derive(Clone, Copy)]
pub enum Made {
    /// A format, by its own name.
    Format(&'static dyn Format),
    /// What a system needs, so that a mount takes it by itself.
    System(System),
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Made::Format(format) => format.name(),
            Made::System(system) => system.name(),
        })
    }
}

fn made(text: &str) -> Result<Made, String> {
    let formats = ordo_systems::FORMATS;
    if let Some(format) = formats.iter().find(|format| format.name() == text) {
        return Ok(Made::Format(*format));
    }
    System::by_name(text).map(Made::System).ok_or_else(|| {
        let formats = formats.iter().map(|format| format.name());
        let all: Vec<_> = formats.chain(System::all().iter().map(System::name)).collect();
        format!("nothing is called '{text}'; there are {}", all.join(", "))
    })
}

/// `ordo mkfs`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo mkfs disk.img --size 1g
  ordo mkfs disk.img --size 1g --block-size 8k --frag-size 1k --label data
  ordo mkfs /dev/sdx1 --soft-updates
  ordo mkfs log.img --fs lfs --size 1g --segment-size 1m")]
pub struct Mkfs {
    /// The image, made if it is not there, or a block device.
    pub image: PathBuf,
    /// What to make: a format, ufs2 or lfs, or what a system needs so that a mount takes it by itself.
    #[arg(long, value_name = "FORMAT", default_value = "ufs2", value_parser = made)]
    pub fs: Made,
    /// Segment size of an LFS [default: 1m].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub segment_size: Option<u64>,
    /// No seals on the partial segments of an LFS: nothing that NetBSD would not write.
    #[arg(long)]
    pub no_crc: bool,
    /// Size of the file system; of an image that is there, or a device, all of it unless given.
    #[arg(long, short, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Block size, 4k to 64k [default: 32k; of an LFS 8k].
    #[arg(long, short, value_name = "BYTES", value_parser = parse_bytes)]
    pub block_size: Option<u64>,
    /// Fragment size, an eighth of the block size up to all of it [default: an eighth].
    #[arg(long, short = 'f', value_name = "BYTES", value_parser = parse_bytes)]
    pub frag_size: Option<u64>,
    /// Bytes of space for each inode.
    #[arg(long, short = 'i', value_name = "BYTES", value_parser = parse_bytes)]
    pub density: Option<u64>,
    /// Percentage of space kept free.
    #[arg(long, short, default_value_t = 8, value_name = "PERCENT")]
    pub min_free: u8,
    /// The volume's label.
    #[arg(long, short = 'L')]
    pub label: Option<String>,
    /// Ask for soft updates when FreeBSD mounts it.
    #[arg(long, short = 'U')]
    pub soft_updates: bool,
    /// Make a log for a journal: in a `file` of the file system, `behind` it on the same device, or in an
    /// image or on a device of its own, whose path is given.
    #[arg(long, short = 'J', value_name = "WHERE")]
    pub journal: Option<PathBuf>,
    /// Size of the log; a hundredth of the file system unless given.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "journal")]
    pub journal_size: Option<u64>,
    /// Big-endian, as on SPARC or PowerPC.
    #[arg(long)]
    pub big_endian: bool,
    /// No check-hashes on superblock, groups and inodes.
    #[arg(long)]
    pub no_check_hashes: bool,
    /// Fixes the file system's id and the inodes' generation numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Make it even where a UFS2 file system or an LFS is.
    #[arg(long)]
    pub force: bool,
    /// Print what was made as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `ordo info`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo info disk.img
  ordo info --groups disk.img       with every cylinder group, as dumpfs does
  ordo info --json disk.img
  ordo info /dev/sdx                what is on a disk; --partition 1a: a file system on it")]
pub struct Info {
    /// The image or device.
    pub image: PathBuf,
    /// Of a disk with partitions, this one: a number, a letter of a BSD label, or both. Without it they are
    /// listed.
    #[arg(long, short, value_name = "PART")]
    pub partition: Option<String>,
    /// Show every cylinder group, or segment, too.
    #[arg(long, short)]
    pub groups: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `ordo fsck`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit status, as of fsck(8): 0 nothing found, 1 all that was found is repaired, 4 something is left,
8 the check failed, 16 wrong use. Without -y or -p nothing is written.

What a crash left under soft updates (ordo info shows the flag) may hold space, inodes and links for
nothing, and can be mounted as it is. There a check clears what has no name instead of moving it to
lost+found, unless it finds damage, which is then called unexpected; and -p trusts the bitmaps: it reads
only inodes that they call used.

What has a log (ordo info shows it) and was not unmounted is replayed first; without -y or -p in memory only.

Examples:
  ordo fsck disk.img                look, write nothing
  ordo fsck -y disk.img             repair everything
  ordo fsck -p disk.img             repair what loses nothing, skip what is marked clean
  ordo fsck -b 160 -y disk.img      start from the superblock's copy at sector 160
  ordo fsck -y -J log.img disk.img  its log is in another image or on another device")]
pub struct Fsck {
    /// The image or device.
    pub image: PathBuf,
    /// Repair nothing: look only (the default).
    #[arg(short = 'n', conflicts_with_all = ["yes", "preen"])]
    pub no: bool,
    /// Repair everything.
    #[arg(short = 'y', conflicts_with = "preen")]
    pub yes: bool,
    /// Preen: repair what loses nothing, else write nothing; leave alone what is marked clean.
    #[arg(short = 'p')]
    pub preen: bool,
    /// Check even what is marked clean.
    #[arg(short = 'f')]
    pub force: bool,
    /// The image or device that holds the log, where it is not with the file system.
    #[arg(long, short = 'J', value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Use the superblock at this sector of 512 bytes; a log is then not replayed.
    #[arg(short = 'b', value_name = "SECTOR")]
    pub superblock: Option<u64>,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    /// No progress bar, and no list of findings.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ordo ls`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo ls disk.img
  ordo ls -l disk.img /etc
  ordo ls -R --json disk.img")]
pub struct Ls {
    /// The image or device.
    pub image: PathBuf,
    /// What to list.
    #[arg(default_value = "/")]
    pub path: String,
    /// Modes, owners, sizes, times.
    #[arg(short)]
    pub long: bool,
    /// All below it too.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `ordo cat`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo cat disk.img /etc/motd
  ordo cat disk.img /a /b > both")]
pub struct Cat {
    /// The image or device.
    pub image: PathBuf,
    /// The files.
    #[arg(required = true)]
    pub paths: Vec<String>,
}

/// `ordo cp`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A path in an image is written IMAGE:/path.

Examples:
  ordo cp notes.txt disk.img:/home/          into an image
  ordo cp -r disk.img:/etc ./etc-copy        out of one
  ordo cp -r old.img:/home new.img:/         from one to another")]
pub struct Cp {
    /// What to copy, and last where to.
    #[arg(required = true, num_args = 2.., value_names = ["FROM", "TO"])]
    pub paths: Vec<PathBuf>,
    /// Directories with all that is in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Print what was copied as JSON.
    #[arg(long)]
    pub json: bool,
    /// No progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ordo import`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Types, modes, owners, times to the nanosecond, hard links, holes and extended attributes are kept.
An image that is not there is made, as large as the directory needs unless --size says otherwise.

Examples:
  ordo import /usr/share/doc doc.img
  ordo import site/ disk.img --into /srv/www --size 2g")]
pub struct Import {
    /// The directory to copy.
    pub dir: PathBuf,
    /// The image.
    pub image: PathBuf,
    /// Where to in the image; made if it is not there.
    #[arg(long, default_value = "/", value_name = "PATH")]
    pub into: String,
    /// Size of an image that has to be made.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Print what was copied as JSON.
    #[arg(long)]
    pub json: bool,
    /// No progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ordo export`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Owners are set where the caller may set them (as root); the rest is kept as by import.

Examples:
  ordo export disk.img out/
  ordo export disk.img out/ --from /etc")]
pub struct Export {
    /// The image.
    pub image: PathBuf,
    /// The directory to copy to; made if it is not there.
    pub dir: PathBuf,
    /// What to copy.
    #[arg(long, default_value = "/", value_name = "PATH")]
    pub from: String,
    /// Print what was copied as JSON.
    #[arg(long)]
    pub json: bool,
    /// No progress bar.
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

/// The shells there are completions for.
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
    /// The directory to write them to; made if it is not there.
    pub dir: PathBuf,
}
