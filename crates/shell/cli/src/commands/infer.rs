//! `ordo infer`: a file system's policies, found by experiment.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use ordo_infer::{EXPERIMENTS, Effort, infer};
use ordo_kernelfs::kernel::{LiveError, LiveSystem};
use ordo_report::json;
use ordo_report::number::parse_bytes;

use super::guest::KernelOption;
use crate::interrupt;

/// `ordo infer`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Makes the file system on devices in memory, does controlled work on each, and derives its policies
from the kinds of blocks and the times of requests: the journaling mode (the device delays data;
the device is copied as in a power cut), what is logged, whether flushes protect commits, compound
transactions, overlap of journal and data, commit threshold and checkpoint trigger as shares of
the journal, timers; what waits for writes of each kind (they are delayed), and which kinds a
restart needs (they are dropped before a power cut). No answer is built in. With this
machine's kernel it needs root and some minutes; in a guest kernel neither, since time is virtual.

Examples:
  ordo infer --fs ext3 --mkfs '-J size=4' --mount-opts data=journal
  ordo infer --fs xfs --only mode,logging --json
  ordo infer --fs jfs --kernel guest")]
pub struct Infer {
    /// The file system: ext2, ext3, ext4, xfs, jfs, reiserfs, if the kernel has it.
    #[arg(long, short, value_name = "NAME")]
    fs: String,
    /// More arguments for mkfs.
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    mkfs: String,
    /// Mount options.
    #[arg(long = "mount-opts", value_name = "OPTIONS", default_value = "defaults")]
    mount_opts: String,
    /// Size of each device, which is in memory.
    #[arg(long, default_value = "512m", value_name = "BYTES", value_parser = parse_bytes)]
    size: u64,
    /// Do only these experiments: mode, logging, tangled, overlap, thresholds, timers, waits,
    /// restart.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Number of trials of each experiment.
    #[arg(long, default_value_t = 3, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=20))]
    trials: u32,
    /// Maximum seconds to wait for timers, over all trials.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    wait: u64,
    #[command(flatten)]
    kernel: KernelOption,
    /// The seed of a guest's random numbers: one seed is one result.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", help_heading = "Guest kernel")]
    seed: u64,
    /// Memory of a guest, for all that its devices hold.
    #[arg(long, default_value = "6g", value_name = "BYTES", value_parser = parse_bytes,
        help_heading = "Guest kernel")]
    memory: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the experiments and prints the policies.
///
/// # Errors
/// The file system cannot be made, mounted or watched.
pub fn run(args: &Infer) -> Result<ExitCode> {
    let known = |name: &String| EXPERIMENTS.iter().any(|(e, _)| e == name);
    if let Some(name) = args.only.iter().find(|name| !known(name)) {
        let all: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
        bail!("no experiment is called '{name}'; there are {}", all.join(", "));
    }
    let guest = args.kernel.again(("ordo infer", &args.fs), (args.seed, args.memory), || None)?;
    if let Some(status) = guest {
        return Ok(status);
    }
    let system = LiveSystem {
        name: args.fs.clone(),
        mkfs: args.mkfs.split_whitespace().map(str::to_owned).collect(),
        options: args.mount_opts.clone(),
        bytes: args.size / 4096 * 4096,
    };
    let effort = Effort { trials: args.trials, wait: Duration::from_secs(args.wait) };
    interrupt::on_each(|| {
        eprintln!("ordo: stopping; the file system under experiment is taken down first");
        ordo_infer::stop();
    })?;
    let tell = |name: &str| eprintln!("ordo: experiment: {name}");
    let all = match infer(&system, &effort, &args.only, tell) {
        Err(LiveError::Stopped) => return Ok(ExitCode::from(interrupt::INTERRUPTED)),
        all => all?,
    };
    if args.json {
        print!("{}", json(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    for finding in &all {
        println!("{}: {}", finding.question, finding.answer);
        finding.evidence.iter().for_each(|line| println!("    {line}"));
    }
    Ok(ExitCode::SUCCESS)
}
