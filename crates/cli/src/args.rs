//! What can be asked for.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ordo_bench::compare::System;
use ordo_bench::crash::{Subject, promise, subject};
use ordo_bench::workload::Workload;
use ordo_block::model::Model;
use ordo_crash::{Model as DiskModel, Rule};
use ordo_report::number::parse_bytes;
use ordo_runtime::cpu::CpuModel;

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
    /// Explore what a crash can leave behind, and judge it.
    Crash(Crash),
    /// Say what a recorded trace of a device means: traffic by kind, the journal, transactions.
    Analyze(crate::commands::analyze::Analyze),
    /// Record what the kernel's file systems write, and look at it request by request.
    Trace(crate::commands::trace::TraceArgs),
    /// Find out a file system's policies by experiment: journaling mode, thresholds, timers, what waits for what.
    Infer(crate::commands::infer::Infer),
    /// Make an empty UFS2 file system in an image or on a device.
    Mkfs(Mkfs),
    /// Show the superblock and the cylinder groups of a UFS2 file system.
    Info(Info),
    /// Check a UFS2 file system, and repair it.
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
    System::by_name(text).ok_or_else(|| {
        let all: Vec<_> = System::ALL.iter().map(|s| s.name()).collect();
        format!("no system is called '{text}'; there are {}", all.join(", "))
    })
}

/// What is crashed.
#[derive(Clone, Copy, Debug)]
pub enum Crashed {
    /// In this process.
    Ours(System),
    /// By the kernel.
    Kernels(ordo_kernel::System),
}

impl Crashed {
    /// The name a user gives it.
    pub fn name(&self) -> &'static str {
        match self {
            Crashed::Ours(system) => system.name(),
            Crashed::Kernels(system) => system.name,
        }
    }

    /// The one with this name.
    pub fn by_name(name: &str) -> Option<Crashed> {
        let kernels = || ordo_kernel::System::by_name(name).map(Crashed::Kernels);
        System::by_name(name).map(Crashed::Ours).or_else(kernels)
    }

    /// As the explorer takes it: held to what another system promises, where that is given; `bytes` is for those
    /// in this process.
    pub fn subject(self, held_to: Option<System>, bytes: u64) -> Box<dyn Subject> {
        match self {
            Crashed::Ours(system) => subject(system, held_to, bytes),
            Crashed::Kernels(system) => {
                let held = held_to.map(|other| system.holding(promise(other)));
                Box::new(held.unwrap_or(system))
            }
        }
    }
}

fn crashed(text: &str) -> Result<Crashed, String> {
    Crashed::by_name(text).ok_or_else(|| {
        let ours = System::ALL.iter().map(|s| s.name());
        let all: Vec<_> = ours.chain(ordo_kernel::System::ALL.iter().map(|s| s.name)).collect();
        format!("no system is called '{text}'; there are {}", all.join(", "))
    })
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

Examples:
  ordo compare                       a real tree of this machine, then PostMark
  ordo compare --workload create-delete --disk cheetah --cpu pentium3-500
  ordo compare --workload tree:/usr/include --disk nvme --cpu modern --dirty 1g --memory 4g
  ordo compare --fs ffs-sync --workload micro:total=4m --json -o rows.json"))]
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
    /// Print rows as JSON.
    #[arg(long)]
    pub json: bool,
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
    /// What to run: create-delete, micro, postmark, tree:PATH, each with its parameters.
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

fn disk_model(text: &str) -> Result<DiskModel, String> {
    DiskModel::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| {
        let all = DiskModel::ALL.map(DiskModel::name).join(", ");
        format!("no model is called '{text}'; there are {all}")
    })
}

fn shard(text: &str) -> Result<(u64, u64), String> {
    let parsed = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parsed {
        Some((i, n)) if i >= 1 && i <= n => Ok((i, n)),
        _ => Err(format!("'{text}' is no part of a whole: 1/4 is the first of four")),
    }
}

fn rule(text: &str) -> Result<Rule, String> {
    text.parse::<Rule>().map_err(|e| e.to_string())
}

/// What a crash is explored with.
#[derive(Clone, Debug, PartialEq)]
pub enum CrashWorkload {
    /// Clients with random operations.
    Random {
        /// How many clients.
        clients: usize,
        /// Operations of each.
        steps: usize,
    },
    /// A workload of the comparison.
    Bench(Workload),
}

fn crash_workload(text: &str) -> Result<CrashWorkload, String> {
    let Some(rest) = text.strip_prefix("random") else {
        return workload(text).map(CrashWorkload::Bench);
    };
    let (mut clients, mut steps) = (3, 120);
    let wrong = || format!("'{text}': after random: come clients=N and steps=N, up to 100000");
    for part in rest.trim_start_matches(':').split(',').filter(|p| !p.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        let value: usize = value.parse().map_err(|_| wrong())?;
        match key {
            "clients" if (1..=40).contains(&value) => clients = value,
            "steps" if value <= 100_000 => steps = value,
            _ => return Err(wrong()),
        }
    }
    Ok(CrashWorkload::Random { clients, steps })
}

/// `ordo crash`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = concat!("\
Models of the disk:
  completed   what completed is durable; what was on its way may be there in part (1990s, cache off)
  volatile    what was not flushed survives in any subset, torn at 512 bytes (the disk of today)
  prefix      writes survive in order of completion up to some point (the halt button of the papers)
  lying       flushes do nothing

Rules, for states of one meaning only:
  lose KIND | keep KIND | tear KIND | KIND before KIND | eio KIND N
  KIND is superblock, cylinder_group, inode_block, directory, indirect, file_data, ..., disk0, or
  text:WORDS

Exit status: 0 every promise was kept, 1 one was broken, or an error.

Examples:
  ordo crash                                      every system, a disk with a volatile cache
  ordo crash --fs ffs-none --model prefix --json
  ordo crash --fs ext3,ext4 --states 300 --runs 1  the kernel's: each state is mounted and checked (root)
  ordo crash --workload postmark:files=20,transactions=50 --size 4m
  ordo crash --fs ffs-none --hold-to ffs-sync      where it fails, made small and explained
  ordo crash --rule 'directory before inode_block' --fs ffs-none
  ordo crash --runs 1000 --shard 2/4 -o part2.json; ordo crash merge part*.json
  ordo crash replay failure.json"))]
pub struct Crash {
    /// What else can be done.
    #[command(subcommand)]
    pub command: Option<CrashCommand>,
    /// The systems, separated by commas [default: all of Ordo's]; of the kernel's, as root: ext2, ext3, ext3-journal,
    /// ext3-writeback, ext4, xfs.
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', value_parser = crashed)]
    pub fs: Vec<Crashed>,
    /// Hold them to the promise of this system, not to their own.
    #[arg(long, value_name = "SYSTEM", value_parser = system)]
    pub hold_to: Option<System>,
    /// What the disk may lose: completed, volatile, prefix, lying, separated by commas.
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', default_value = "volatile",
        value_parser = disk_model)]
    pub model: Vec<DiskModel>,
    /// What is done: random[:clients=N,steps=N], or a workload of `ordo compare`.
    #[arg(long, short, value_name = "WORKLOAD", default_value = "random",
        value_parser = crash_workload)]
    pub workload: CrashWorkload,
    /// The seed of the first run; each run has the next.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many runs.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// States of each run at most.
    #[arg(long, default_value_t = 5000, value_name = "N")]
    pub states: usize,
    /// Judge names and contents in one of so many states; 0: in none.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub tree_every: usize,
    /// Judge use afterwards in one of so many states; 0: in none.
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub usable_every: usize,
    /// Cut off so many recoveries in a row.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub recovery_depth: u32,
    /// Cut recovery off in one of so many states; 0: in none.
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub recovery_every: usize,
    /// Only states that follow this rule; may be given more than once.
    #[arg(long, value_name = "RULE", value_parser = rule)]
    pub rule: Vec<Rule>,
    /// Size of the file system.
    #[arg(long, default_value = "1m", value_name = "BYTES", value_parser = parse_bytes)]
    pub size: u64,
    /// Threads [default: one a processor].
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub threads: usize,
    /// Only this part of the runs: 2/4 is the second of four.
    #[arg(long, default_value = "1/1", value_name = "I/N", value_parser = shard)]
    pub shard: (u64, u64),
    /// Go on with what the file given by -o holds.
    #[arg(long, requires = "output")]
    pub resume: bool,
    /// Where to save the first failure, made small [default: ordo-crash-SYSTEM-SEED.json].
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Do not make failures small.
    #[arg(long)]
    pub no_shrink: bool,
    /// Print what the models assume, and end.
    #[arg(long)]
    pub explain_model: bool,
    /// Print results as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write results as JSON to this file, after each run.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// No progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// The commands under `ordo crash`.
#[derive(Debug, Subcommand)]
pub enum CrashCommand {
    /// Repeat a failure that was saved.
    Replay {
        /// The file.
        file: PathBuf,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put the results of all shards together.
    Merge {
        /// The shards' results.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print results as JSON.
        #[arg(long)]
        json: bool,
        /// Write results as JSON to this file.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// `ordo mkfs`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo mkfs disk.img --size 1g
  ordo mkfs disk.img --size 1g --block-size 8k --frag-size 1k --label data
  ordo mkfs /dev/sdx1 --soft-updates")]
pub struct Mkfs {
    /// The image, made if it is not there, or a block device.
    pub image: PathBuf,
    /// Size of the file system; of an image that is there, or a device, all of it unless given.
    #[arg(long, short, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Block size, 4k to 64k.
    #[arg(long, short, default_value = "32k", value_name = "BYTES", value_parser = parse_bytes)]
    pub block_size: u64,
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
    #[arg(long, short = 'L', default_value = "")]
    pub label: String,
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
    /// Make it even where a UFS2 file system is.
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
    /// Show every cylinder group too.
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
