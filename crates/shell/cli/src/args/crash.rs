//! The arguments of `ordo crash`.

mod program;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use ordo_compare::crash::CrashWork;
use ordo_crash::database::Database;
use ordo_crash::{CachePlan, CrashModel as DiskModel, FsGeometry, Script, ScriptManner, StateRule};
use ordo_report::number::parse_bytes;
use ordo_systems::{AnySystem, System};
use ordo_workload::Workload;

pub use program::ProgramArgs;

use super::{system, workload};

fn crashed(text: &str) -> Result<AnySystem, String> {
    match AnySystem::by_name(text) {
        Some(AnySystem::Ours(_)) => system(text).map(AnySystem::Ours),
        Some(external) => Ok(external),
        None => {
            let all: Vec<_> = AnySystem::all().map(|s| s.name()).collect();
            Err(format!("no system is called '{text}'; there are {}", all.join(", ")))
        }
    }
}

fn geometries(text: &str) -> Result<Vec<FsGeometry>, String> {
    match text {
        "all" => return Ok(FsGeometry::all()),
        "ufs1" => return Ok(FsGeometry::all_of_ufs1()),
        _ => {}
    }
    let found = text.split(',').map(|name| FsGeometry::by_name(name).ok_or(name));
    found.collect::<Result<_, _>>().map_err(|name| {
        let all: Vec<_> = FsGeometry::all().into_iter().map(|g| g.name).collect();
        format!(
            "no geometry is called '{name}'; there are {}, and all; each with ufs1- \
             before it, and ufs1 for all of these",
            all.join(", ")
        )
    })
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
        _ => Err(format!("'{text}' is not a shard; 1/4 is the first of four")),
    }
}

fn rule(text: &str) -> Result<StateRule, String> {
    text.parse::<StateRule>().map_err(|e| e.to_string())
}

/// The workload of a crash exploration.
#[derive(Clone, Debug, PartialEq)]
pub enum CrashWorkload {
    /// Clients with random operations. Distant blocks are chosen to fit the geometry's block size.
    Random(ScriptManner),
    /// Clients that take freed blocks of directories for files at once.
    Reuse(Rounds),
    /// Clients that write over few files, so that a log's cleaner has to work.
    Overwrites(Rounds),
    /// Clients that replace batches of symbolic links, so that a metadata log has to use its
    /// segments again.
    Links(Rounds),
    /// A small database. Its seed is that of the run.
    Database(Database),
    /// A workload of the comparison.
    Bench(Workload),
}

/// The extent of a script of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The number of clients.
    pub clients: usize,
    /// The rounds of each client.
    pub rounds: usize,
}

impl CrashWorkload {
    /// The work of a run with this seed.
    pub fn doing(&self, seed: u64, geometry: &FsGeometry) -> CrashWork {
        match self {
            CrashWorkload::Random(manner) => {
                let far = if manner.far == 0 { 0 } else { geometry.block_size };
                CrashWork::Script(ScriptManner { far, ..*manner }.script(seed))
            }
            CrashWorkload::Reuse(Rounds { clients, rounds }) => {
                CrashWork::Script(Script::reuse(seed, *clients, *rounds, geometry.block_size))
            }
            CrashWorkload::Overwrites(Rounds { clients, rounds }) => {
                CrashWork::Script(Script::overwrites(seed, *clients, *rounds, geometry.block_size))
            }
            CrashWorkload::Links(Rounds { clients, rounds }) => {
                CrashWork::Script(Script::links(seed, *clients, *rounds))
            }
            CrashWorkload::Database(database) => {
                CrashWork::Database(Database { seed, ..database.clone() })
            }
            CrashWorkload::Bench(workload) => CrashWork::Bench(workload.clone(), seed),
        }
    }
}

/// The form in which the command takes it.
impl fmt::Display for CrashWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrashWorkload::Random(ScriptManner {
                clients,
                steps,
                names,
                far,
                deep,
                fsync,
                pause,
                open,
                append,
                datasync,
                dirsync,
                inodes,
                common,
            }) => {
                write!(f, "random:clients={clients},steps={steps}")?;
                let of = u16::from;
                let more = [
                    ("names", *names),
                    ("fsync", of(*fsync)),
                    ("pause", *pause),
                    ("open", of(*open)),
                    ("append", of(*append)),
                    ("datasync", of(*datasync)),
                    ("dirsync", of(*dirsync)),
                    ("inodes", of(*inodes)),
                    ("common", of(*common)),
                ];
                let more = more.into_iter().filter(|(_, n)| *n > 0);
                more.into_iter().try_for_each(|(key, n)| write!(f, ",{key}={n}"))?;
                match (*far > 0, *deep) {
                    (true, true) => write!(f, ",files=deep"),
                    (true, false) => write!(f, ",files=far"),
                    (false, _) => Ok(()),
                }
            }
            CrashWorkload::Reuse(Rounds { clients, rounds }) => {
                write!(f, "reuse:clients={clients},rounds={rounds}")
            }
            CrashWorkload::Overwrites(Rounds { clients, rounds }) => {
                write!(f, "overwrites:clients={clients},rounds={rounds}")
            }
            CrashWorkload::Links(Rounds { clients, rounds }) => {
                write!(f, "links:clients={clients},rounds={rounds}")
            }
            CrashWorkload::Database(Database { transactions, pages, pause, .. }) => {
                write!(f, "database:transactions={transactions},pages={pages},pause={pause}")
            }
            CrashWorkload::Bench(workload) => workload.fmt(f),
        }
    }
}

impl FromStr for CrashWorkload {
    type Err = String;

    fn from_str(text: &str) -> Result<CrashWorkload, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "random" => random(rest).map(CrashWorkload::Random),
            "reuse" => rounds(rest, 4).map(CrashWorkload::Reuse),
            "overwrites" => rounds(rest, 120).map(CrashWorkload::Overwrites),
            "links" => rounds(rest, 30).map(CrashWorkload::Links),
            "database" => database(rest).map(CrashWorkload::Database),
            _ => workload(text).map(CrashWorkload::Bench),
        }
    }
}

/// Splits `a=b,c=d` into pairs.
fn pairs(rest: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = rest.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// A number in a range, from the text after a workload's name.
fn within(text: &str, range: std::ops::RangeInclusive<u64>, wrong: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|n| range.contains(n));
    number.ok_or_else(|| format!("'{text}': {wrong}"))
}

fn random(rest: &str) -> Result<ScriptManner, String> {
    let wrong = "after random: come clients=N (up to 40), steps=N (100000), names=N (4096), files=far|deep, \
                 fsync=PERCENT, datasync=PERCENT, dirsync=PERCENT, inodes=PERCENT, common=PERCENT, open=PERCENT, append=PERCENT and pause=MS (60000)";
    let mut manner = ScriptManner::default();
    for (key, value) in pairs(rest) {
        let number = |range| within(value, range, wrong);
        match key {
            "clients" => manner.clients = number(1..=40)? as usize,
            "steps" => manner.steps = number(0..=100_000)? as usize,
            "names" => manner.names = number(0..=4096)? as u16,
            "fsync" => manner.fsync = number(0..=100)? as u8,
            "open" => manner.open = number(0..=100)? as u8,
            "append" => manner.append = number(0..=100)? as u8,
            "datasync" => manner.datasync = number(0..=100)? as u8,
            "dirsync" => manner.dirsync = number(0..=100)? as u8,
            "inodes" => manner.inodes = number(0..=100)? as u8,
            "common" => manner.common = number(0..=100)? as u8,
            "pause" => manner.pause = number(0..=60_000)? as u16,
            // The geometry gives the block size later.
            "files" if value == "far" => manner.far = 1,
            "files" if value == "deep" => (manner.far, manner.deep) = (1, true),
            _ => return Err(format!("'{key}={value}': {wrong}")),
        }
    }
    Ok(manner)
}

fn rounds(rest: &str, usual: usize) -> Result<Rounds, String> {
    let wrong =
        "after reuse:, overwrites: and links: come clients=N (up to 40) and rounds=N (10000)";
    let mut wanted = Rounds { clients: 2, rounds: usual };
    for (key, value) in pairs(rest) {
        let number = |range| within(value, range, wrong);
        match key {
            "clients" => wanted.clients = number(1..=40)? as usize,
            "rounds" => wanted.rounds = number(1..=10_000)? as usize,
            _ => return Err(format!("'{key}={value}': {wrong}")),
        }
    }
    Ok(wanted)
}

fn database(rest: &str) -> Result<Database, String> {
    let wrong = "after database: come transactions=N, pages=N (up to 100000) and pause=MS (60000)";
    let mut database = Database { seed: 0, transactions: 40, pages: 20, pause: 10 };
    for (key, value) in pairs(rest) {
        let number = |range| within(value, range, wrong);
        match key {
            "transactions" => database.transactions = number(0..=100_000)? as usize,
            "pages" => database.pages = number(1..=100_000)?,
            "pause" => database.pause = number(0..=60_000)?,
            _ => return Err(format!("'{key}={value}': {wrong}")),
        }
    }
    Ok(database)
}

fn crash_workload(text: &str) -> Result<CrashWorkload, String> {
    text.parse()
}

/// Shapes of file systems. The alias makes a list one value for the argument parser.
pub type Geometries = Vec<FsGeometry>;

/// `ordo crash`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = concat!("\
Models of the disk:
  completed   completed writes are durable; those under way may survive in part (1990s, cache off)
  volatile    any subset of the writes not flushed survives, torn at 512 bytes (today's disks)
  prefix      writes survive in order of completion up to some point (the halt button of the papers)
  lying       flushes have no effect

Rules, for states of one meaning only:
  lose KIND | keep KIND | tear KIND | KIND before KIND | eio KIND N
  KIND is superblock, cylinder_group, inode_block, directory, indirect, file_data, ..., disk0,
  text:WORDS, journal, commit (blocks that commit a transaction), or metadata (blocks that a
  checkpoint writes)

Exit status, of all these commands: 0 every promise was kept; 1 a promise was broken; 2 wrong usage
or an error; 3 nothing could be judged; 130 interrupted.

A program runs in a file system of its own: the kernel's or Ordo's. It writes a line to $ORDO_MARK
for each promise. The check finds the promises made before the power cut in $ORDO_ACKED, and those
in progress in $ORDO_PENDING. The guide is docs/crash-programs.md.

Exit status 3 then: the command was not found, failed (--allow-failure), ran out of space, or
promised nothing (--allow-no-promise); or the check does not pass after a clean end, fails itself,
or is flaky; or states could not be mounted. After 130, --resume goes on.

Examples:
  ordo crash --fs ext4,xfs --check 'sh $ORDO_ORIGIN/check.sh' --syscalls -- $PWD/my-database
  ordo crash --fs ext4:external-journal,data=journal --check 'sh $ORDO_ORIGIN/check.sh' -- $PWD/db
  ordo crash --fs ffs-soft-updates --check 'sh $ORDO_ORIGIN/check.sh' -- $PWD/my-database
  ordo crash --resume -o found.json --check 'sh $ORDO_ORIGIN/check.sh' -- $PWD/my-database
  ordo crash                                      every system, a disk with a volatile cache
  ordo crash --fs ffs-none --model prefix --json
  ordo crash --fs ext3,ext4 --states 300 --runs 1  each state is mounted and checked (root)
  ordo crash --workload postmark:files=20,transactions=50 --size 4m
  ordo crash --fs ffs-none --hold-to ffs-sync      shrinks and explains a failure
  ordo crash --fs lffs-wafs-2sync --cycles 10      recover, continue, crash again
  ordo crash --rule 'directory before inode_block' --fs ffs-none
  ordo crash --rule 'tear commit' --rule 'lose metadata' --fs lffs-wafs-1sync
  ordo crash --fs ffs-soft-updates --geometry all  blocks of 4k to 64k, little space, small groups
  ordo crash --workload random:names=200,steps=800,fsync=4 --geometry 8k-1k
  ordo crash --workload database:pause=2000 --real-ages --fs ffs-soft-updates
  ordo crash --workload overwrites --cache-blocks 12 --fs lffs-wafs-2async,lfs
  ordo crash mutants --fs ffs-sync --geometry 8k-1k,16k-16k
  ordo crash --runs 1000 --shard 2/4 -o part2.json; ordo crash merge part*.json
  ordo crash plan --runs 1000 --runs-each 5 > tasks.jsonl; ordo crash task --help
  ordo crash replay failure.json"))]
pub struct Crash {
    /// A command other than exploring.
    #[command(subcommand)]
    pub command: Option<CrashCommand>,
    /// Systems, separated by commas [default: all of Ordo's]. The kernel's, as root or with
    /// --kernel guest: ext2, ext3, ext3-journal, ext3-writeback, ext4, xfs, btrfs. For a program,
    /// with any mount options, as in ext4:data=journal,nobarrier, and with more devices:
    /// ext4:external-journal[=SIZE] (ext3 too), xfs:external-log[=SIZE], btrfs:devices=N. Ordo's
    /// own then need FUSE but no root.
    #[arg(long, short, value_name = "LIST", value_delimiter = ',')]
    pub fs: Vec<String>,
    #[command(flatten)]
    pub kernel: crate::commands::guest::KernelOption,
    /// Hold all systems to this one's promise instead of their own.
    #[arg(conflicts_with = "command", long = "hold-to", value_name = "SYSTEM", value_parser = system)]
    pub hold_to: Option<System>,
    /// Fault models of the disk: completed, volatile, prefix, lying, separated by commas.
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', default_value = "volatile",
        value_parser = disk_model)]
    pub model: Vec<DiskModel>,
    /// The workload.
    /// random[:clients=N,steps=N,names=N,files=far|deep,fsync=PERCENT,datasync=PERCENT,
    /// dirsync=PERCENT,inodes=PERCENT,common=PERCENT,open=PERCENT,append=PERCENT,pause=MS]: random
    /// operations; names= adds and removes names of all lengths, files=far uses indirect blocks,
    /// files=deep triple ones, open= removes files that are open, append= grows files at their
    /// ends, datasync= makes so many of the fsyncs an fdatasync, dirsync= an fsync of the
    /// directory, inodes= sets owners, times, flags, and permissions of directories, common= writes
    /// to files of all. reuse[:clients=N,rounds=N]: files take the blocks of directories that were
    /// just removed. overwrites[:clients=N,rounds=N]: few files are written over until a log's
    /// cleaner works. links[:clients=N,rounds=N]: symbolic links with long targets, blocks of
    /// metadata, are replaced in batches. database[:transactions=N,pages=N,pause=MS]: a small
    /// database. Or a workload of `ordo compare`.
    #[arg(conflicts_with = "command", long, short, value_name = "WORKLOAD", default_value = "random",
        value_parser = crash_workload)]
    pub workload: CrashWorkload,
    /// Seed of the first run. Later runs use seed+1, seed+2 and so on.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of runs.
    #[arg(conflicts_with = "command", long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// Crash cycles of each run. Each later cycle starts from the disks that a crash in the
    /// previous one left.
    #[arg(conflicts_with = "command", long, alias = "lives", default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub cycles: u32,
    /// The most states of each run, over all its cycles [default: 5000; for a program 1000].
    #[arg(long, value_name = "N")]
    pub states: Option<usize>,
    /// Check names and contents in every Nth state; 0: never.
    #[arg(conflicts_with = "command", long = "tree-every", default_value_t = 1, value_name = "N")]
    pub tree_every: usize,
    /// Check that the file system can be used after the crash in every Nth state; 0: never.
    #[arg(
        conflicts_with = "command",
        long = "usable-every",
        default_value_t = 50,
        value_name = "N"
    )]
    pub usable_every: usize,
    /// Depth of nested crashes: interrupt this many recoveries in a row.
    #[arg(long = "recovery-depth", default_value_t = 1, value_name = "N")]
    pub recovery_depth: u32,
    /// Crash during the recovery of every Nth state; 0: never.
    #[arg(long = "recovery-every", default_value_t = 200, value_name = "N")]
    pub recovery_every: usize,
    /// Keep blocks in the cache as long as a mounted file system does: some for 30 seconds of
    /// simulated time.
    #[arg(conflicts_with = "command", long = "real-ages")]
    pub real_ages: bool,
    /// Cache of this many blocks: with 12, nearly everything is evicted and read again, and
    /// operations wait for the disk between two changes that belong together. A cluster has a
    /// quarter as many blocks.
    #[arg(conflicts_with = "command", long = "cache-blocks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub cache_blocks: Option<u32>,
    /// Write only the changed part of a block of a file, in units of this many bytes, as a mount
    /// does (4096).
    #[arg(conflicts_with = "command", long = "write-unit", value_name = "BYTES", value_parser = clap::value_parser!(u32).range(512..=65_536))]
    pub write_unit: Option<u32>,
    /// Test only states that follow this rule. May be given more than once.
    #[arg(long, value_name = "RULE", value_parser = rule)]
    pub rule: Vec<StateRule>,
    /// Geometries of the file system, by name, or all [default: 4k-512]: block and fragment size,
    /// free space, groups. The prefix ufs1- makes it UFS1; ufs1 is all of those. An LFS has 100
    /// segments of 8 blocks; with -full, other files leave only as much space as in an FFS of that
    /// geometry; with -groups, a segment has as many blocks as a group.
    #[arg(conflicts_with = "command", long, value_name = "LIST", value_parser = geometries)]
    pub geometry: Option<Geometries>,
    /// Another block size.
    #[arg(conflicts_with_all = ["command", "geometry"], long = "block-size", value_name = "BYTES", value_parser = parse_bytes)]
    pub block_size: Option<u64>,
    /// Another fragment size [default: an eighth of a block].
    #[arg(long = "frag-size", value_name = "BYTES", value_parser = parse_bytes, requires = "block_size")]
    pub frag_size: Option<u64>,
    /// Size of the file system [default: that of the geometry; 1m for 4k-512].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Threads [default: one for each processor; for a program 16, which mostly wait for the
    /// kernel].
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub threads: usize,
    /// Do only this part of the runs: 2/4 is the second of four.
    #[arg(long, default_value = "1/1", value_name = "I/N", value_parser = shard)]
    pub shard: (u64, u64),
    /// Continue from the results in the file given by -o. For a program, also from the recording
    /// and the states of a stopped search, in FILE.search beside it.
    #[arg(long, requires = "output")]
    pub resume: bool,
    /// File for the first failure, after shrinking [default: ordo-crash-SYSTEM-SEED.json in
    /// $XDG_STATE_HOME/ordo or ~/.local/state/ordo, where no file is replaced].
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Do not shrink failures.
    #[arg(long = "no-shrink")]
    pub no_shrink: bool,
    /// Print the assumptions of the fault models, and exit.
    #[arg(long = "explain-model")]
    pub explain_model: bool,
    /// Print results as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write results as JSON to this file, after each run.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
    /// Arguments for a program.
    #[command(flatten)]
    pub program: ProgramArgs,
}

/// The default number of states of a run.
const STATES: usize = 5000;

impl Crash {
    /// The most states of each run.
    pub fn states(&self) -> usize {
        self.states.unwrap_or(STATES)
    }

    /// The cache of each run.
    pub fn cache(&self) -> CachePlan {
        let (real_ages, cache_blocks) = (self.real_ages, self.cache_blocks);
        CachePlan { real_ages, cache_blocks, write_unit: self.write_unit }
    }

    /// The systems to crash, without options.
    ///
    /// # Errors
    /// No system has this name.
    pub fn systems(&self) -> Result<Vec<AnySystem>, String> {
        // A list of options has commas itself.
        self.program_systems().iter().map(|name| crashed(name)).collect()
    }

    /// The systems on which a program is run: names with any options. A list of options has commas
    /// itself.
    pub fn program_systems(&self) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for word in &self.fs {
            let is_name =
                ordo_crash_program::ProgramSystem::is_named(word) || crashed(word).is_ok();
            match out.last_mut() {
                Some(last) if !is_name && last.contains(':') => *last += &format!(",{word}"),
                _ => out.push(word.clone()),
            }
        }
        out
    }

    /// The shapes of the file systems.
    pub fn geometries(&self) -> Vec<FsGeometry> {
        let asked = match (self.block_size, &self.geometry) {
            (Some(block), _) => {
                let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
                let frag = self.frag_size.map_or(FsGeometry::smallest_fragment(size(block)), size);
                vec![FsGeometry::of(size(block), frag)]
            }
            (None, Some(list)) => list.clone(),
            (None, None) => vec![FsGeometry::default()],
        };
        let sized = |g: FsGeometry| match self.size {
            Some(bytes) => g.sized(bytes),
            None => g,
        };
        asked.into_iter().map(sized).collect()
    }
}

/// The commands under `ordo crash`.
#[derive(Debug, Subcommand)]
pub enum CrashCommand {
    /// Repeat a saved failure. A program's failure contains a shell command, its check: ordo shows
    /// it and asks.
    Replay {
        /// The file of the failure.
        file: PathBuf,
        /// Print the failure as JSON.
        #[arg(long)]
        json: bool,
        /// For a program: start a shell in the state.
        #[arg(long)]
        shell: bool,
        /// For a program: run the file's check without asking.
        #[arg(long)]
        yes: bool,
    },
    /// Write the state in which a program failed to an image.
    #[command(after_long_help = "\
A state of several disks becomes several images: the first disk state.img, the others state.img.1,
state.img.2 and so on. Each is printed with what it is. The images are as the power cut left them:
a mount recovers them.

Example:
  ordo crash image failure.json -o state.img
  mount -o loop,journal_path=$(losetup -f --show state.img.1) state.img /mnt")]
    Image {
        /// The file of the failure.
        file: PathBuf,
        /// The image of the first disk. If there are more, their names have .1, .2 and so on after
        /// it.
        #[arg(long, short, value_name = "IMAGE")]
        output: PathBuf,
    },
    /// Switch off each rule of an ordering, in each geometry, and count the states until a promise
    /// is broken.
    Mutants {
        /// Systems, separated by commas.
        #[arg(long, short, value_name = "LIST", value_delimiter = ',',
            default_value = "ffs-sync,ffs-soft-updates", value_parser = system)]
        fs: Vec<System>,
        /// Shapes of the file system, by name, or all, or ufs1.
        #[arg(long, value_name = "LIST", default_value = "all", value_parser = geometries)]
        geometry: Geometries,
        /// Test only rules whose name contains this.
        #[arg(long, value_name = "TEXT", default_value = "")]
        rule: String,
        /// Seed of the first run. Later runs use seed+1, seed+2 and so on.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The most states of a search.
        #[arg(long, default_value_t = 20_000, value_name = "N")]
        states: u64,
        /// Threads [default: one for each processor].
        #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
        threads: usize,
        /// Print the results as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Cut a campaign into tasks for other machines, one line each.
    #[command(disable_help_flag = true)]
    Plan {
        /// Arguments of ordo crash, and the number of runs of a task.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run one task of a plan: the line on the standard input, or the given one.
    Task(TaskArgs),
    /// Merge the results of all shards, or of all tasks.
    Merge {
        /// Results of shards or of tasks, or folders with them. Missing and duplicate results are
        /// named.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print the results as JSON.
        #[arg(long)]
        json: bool,
        /// Write the results as JSON to this file.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// `ordo crash task`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A task that is run again gives the same bytes. With --into, the file's name follows from its
contents, the file is written wholly or not at all, and a task whose result exists is not run
again: retries and copies do no harm. The exit status is 0 when there is a result, even if a
promise was broken: ordo crash merge reports that.

Examples:
  ordo crash plan --fs ffs-none,ffs-sync --runs 100 --runs-each 5 > tasks.jsonl
  sed -n 7p tasks.jsonl | ordo crash task > seven.json
  xargs -a tasks.jsonl -d '\\n' -n 1 -P 2 ordo crash task --into results
  ordo crash merge results")]
pub struct TaskArgs {
    /// The line of the task [default: the standard input].
    pub line: Option<String>,
    /// Write the result to a file in this folder, named by its contents, and print the file's path.
    /// Do nothing if the result exists.
    #[arg(long, value_name = "DIRECTORY")]
    pub into: Option<PathBuf>,
    /// Threads.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
    /// Print a line about the work to the standard error.
    #[arg(long, short)]
    pub verbose: bool,
}
