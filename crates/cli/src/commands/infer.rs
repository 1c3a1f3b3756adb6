//! `ordo infer`: a file system's policies, found by experiment.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use ordo_live::infer::{EXPERIMENTS, Effort, infer};
use ordo_live::kernel::System;
use ordo_report::json;
use ordo_report::number::parse_bytes;

/// `ordo infer`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Makes the file system on devices in memory, does controlled work in each, and tells from kinds of blocks and from times: the
journaling mode (data held up by the device; the device copied as a power cut would leave it), what is logged, whether
flushes protect commits, compound transactions, overlap of journal and data, commit threshold and checkpoint trigger as
shares of the journal, timers. It contains none of the answers. Needs root; takes a minute or two.

Examples:
  ordo infer --fs ext3 --mkfs '-J size=4' --mount-opts data=journal
  ordo infer --fs xfs --only mode,logging --json")]
pub struct Infer {
    /// The file system: ext2, ext3, ext4, xfs, jfs, reiserfs, as far as the kernel has it.
    #[arg(long, short, value_name = "NAME")]
    fs: String,
    /// More arguments for what makes it.
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    mkfs: String,
    /// Mount options.
    #[arg(long, value_name = "OPTIONS", default_value = "defaults")]
    mount_opts: String,
    /// Each device's size; it lies in memory.
    #[arg(long, default_value = "512m", value_name = "BYTES", value_parser = parse_bytes)]
    size: u64,
    /// Only these experiments: mode, logging, tangled, overlap, thresholds, timers.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// How often each trial is made.
    #[arg(long, default_value_t = 3, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=20))]
    trials: u32,
    /// How long timers are waited for, in seconds, all trials together.
    #[arg(long, default_value_t = 100, value_name = "SECONDS")]
    wait: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Finds out, and says so.
///
/// # Errors
/// The file system cannot be made, mounted or watched.
pub fn run(args: &Infer) -> Result<()> {
    let known = |name: &String| EXPERIMENTS.iter().any(|(e, _)| e == name);
    if let Some(name) = args.only.iter().find(|name| !known(name)) {
        let all: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
        bail!("no experiment is called '{name}'; there are {}", all.join(", "));
    }
    let system = System {
        name: args.fs.clone(),
        mkfs: args.mkfs.split_whitespace().map(str::to_owned).collect(),
        options: args.mount_opts.clone(),
        bytes: args.size / 4096 * 4096,
    };
    let effort = Effort { trials: args.trials, wait: Duration::from_secs(args.wait) };
    let all = infer(&system, &effort, &args.only, |name| eprintln!("ordo: experiment: {name}"))?;
    if args.json {
        print!("{}", json(&all)?);
        return Ok(());
    }
    for finding in &all {
        println!("{}: {}", finding.question, finding.answer);
        finding.evidence.iter().for_each(|line| println!("    {line}"));
    }
    Ok(())
}
