//! `ordo trace run`: a file system of the kernel's on a pseudo-device, recorded while a command uses it.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use ordo_annotate::image::Learning;
use ordo_annotate::{rows, store};
use ordo_pseudo::{Recording, Session};
use ordo_report::json;
use ordo_report::number::parse_bytes;
use ordo_sba::Watch;
use ordo_sba::analysis::Analysis;

use super::analyze::tables;
use super::trace::wrote;
use crate::text::put;

/// File systems that can be made, with what makes them.
const MAKERS: [(&str, &[&str]); 6] = [
    ("ext2", &["mke2fs", "-q", "-F", "-t", "ext2"]),
    ("ext3", &["mke2fs", "-q", "-F", "-t", "ext3"]),
    ("ext4", &["mke2fs", "-q", "-F", "-t", "ext4"]),
    ("xfs", &["mkfs.xfs", "-q", "-f"]),
    ("jfs", &["mkfs.jfs", "-q"]),
    ("reiserfs", &["mkfs.reiserfs", "-q", "-q"]),
];

/// Record what a file system of the kernel's writes while a command uses it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Makes the file system on a device in memory, mounts it, runs the command in it, unmounts it, and says what was
written. Needs root. The exit status is the command's.

Examples:
  ordo trace run --fs ext3 --mount-opts data=journal -- tar xf ~/linux.tar
  ordo trace run --fs xfs --size 1g -o three.trace -- sh -c 'for i in 1 2 3; do date >> log; sync; done'
  ordo trace show three.trace
  ordo trace export three.trace --to perfetto -o three.json")]
pub struct Run {
    /// The file system: ext2, ext3, ext4, xfs, jfs, reiserfs, as far as the kernel has it.
    #[arg(long, short, value_name = "NAME")]
    fs: String,
    /// More arguments for what makes it.
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    mkfs: String,
    /// Mount options.
    #[arg(long, value_name = "OPTIONS", default_value = "defaults")]
    mount_opts: String,
    /// The device's size; all of it may come to lie in memory, and what is written beside it.
    #[arg(long, default_value = "512m", value_name = "BYTES", value_parser = parse_bytes)]
    size: u64,
    /// Keep the trace: a directory of Parquet files.
    #[arg(long, short, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Write all that the device held before the trace to this file.
    #[arg(long, value_name = "FILE")]
    start: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn run_program(program: &str, args: &[&str]) -> Result<()> {
    let out = Command::new(program).args(args).output();
    let out = out.with_context(|| format!("running {program}: is it installed?"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{program} {}: {}", args.join(" "), said.trim());
    }
    Ok(())
}

/// Records, and says what was written.
///
/// # Errors
/// There is no device, or the file system cannot be made or mounted, or the files cannot be written.
pub fn run(args: &Run) -> Result<ExitCode> {
    let Some((_, maker)) = MAKERS.iter().find(|(name, _)| *name == args.fs) else {
        let all: Vec<_> = MAKERS.iter().map(|(name, _)| *name).collect();
        bail!("no file system is called '{}'; there are {}", args.fs, all.join(", "));
    };
    let session = Session::new(args.size / 4096 * 4096)?;
    let device = session.device().to_str().context("a device's name")?.to_owned();
    let mut words: Vec<&str> = maker[1..].to_vec();
    words.extend(args.mkfs.split_whitespace());
    words.push(&device);
    run_program(maker[0], &words)?;
    run_program("sync", &[&device])?;
    session.start()?;
    let status = in_mounted(args, &device)?;
    let recording = session.finish()?;
    let analysis = analyze(args, &recording)?;
    put(None, &if args.json { json(&analysis)? } else { tables(&analysis) })?;
    Ok(ExitCode::from(status))
}

/// Runs the command in the mounted file system; its exit status.
fn in_mounted(args: &Run, device: &str) -> Result<u8> {
    let folder = std::env::temp_dir().join(format!("ordo-run-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let dir = folder.to_str().context("a directory's name")?;
    let mounted = run_program("mount", &["-t", &args.fs, "-o", &args.mount_opts, device, dir]);
    let status = mounted.and_then(|()| {
        let status =
            Command::new(&args.command[0]).args(&args.command[1..]).current_dir(&folder).status();
        let unmounted = run_program("umount", &[dir]);
        let status = status.with_context(|| format!("running {}", args.command[0]))?;
        unmounted.map(|()| status)
    });
    let _ = std::fs::remove_dir(&folder);
    // A signal is no exit status: shells say 128 and more.
    Ok(status?.code().map_or(128, |code| code as u8))
}

/// What was recorded, named, and kept where it was asked for.
fn analyze(args: &Run, recording: &Recording) -> Result<Analysis> {
    let image = &&recording.start[..];
    let learning = Learning::new(image);
    let watch = Watch::over(&learning).context("no file system was found on the device")?;
    let trace = &recording.trace;
    if let Some(path) = &args.start {
        std::fs::write(path, &recording.start)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let Some(dir) = &args.output else {
        ordo_trace::replay(trace, &watch);
        return Ok(Analysis::of(&watch));
    };
    let start = learning.learned();
    let blocks = rows::of_trace(trace, &watch);
    let parts = store::Parts { trace, blocks: &blocks, start: &start, system: watch.system() };
    wrote(dir, &store::write(dir, &parts)?);
    Ok(Analysis::of(&watch))
}
