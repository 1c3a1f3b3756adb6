//! `ordo age`: ages a file system by creating and removing files.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use ordo_block::Device;
use ordo_block::ram::RamDisk;
use ordo_report::number::parse_bytes;
use ordo_report::progress::Progress;
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};
use ordo_runtime::Executor;
use ordo_systems::{MakeOptions, MountOptions, System};
use ordo_vfs::FileSystem;
use ordo_vfs::host::HostDir;
use ordo_workload::age::{self, Aged, ChurnOptions, FileLayout, Profile};

use crate::args::system;
use crate::image::{self, real_time};
use crate::interrupt::OnInterrupt;
use crate::pair::NamedImage;
use crate::text::put;

/// Ages a file system.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ordo age                                    every system, in memory: how fragmented they become
  ordo age --fs ffs-none,lfs --util 90%       two of them, nearly full
  ordo age disk.img --profile meyer           an image of `ordo mkfs`; its files stay
  ordo age big.img --holes --overwrites 1     an image; file data are sparse on the host
  ordo age /mnt/test --overwrites 2           a mounted file system, in a new directory

Profiles: agrawal, douceur, meyer, server, or a file in TOML (docs/ageing.md).")]
pub struct Age {
    /// The image of a file system, which is not mounted, or a directory [default: systems in
    /// memory].
    #[arg(value_name = "IMAGE|DIR")]
    pub target: Option<PathBuf>,
    /// Systems to be aged in memory, separated by commas [default: all].
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', value_parser = system,
        conflicts_with = "target")]
    pub fs: Vec<System>,
    /// Size of the file systems in memory.
    #[arg(long, value_name = "BYTES", default_value = "512m", value_parser = parse_bytes)]
    pub size: u64,
    /// The files: their sizes, depths and ages.
    #[arg(long, value_name = "NAME|FILE", default_value = "agrawal")]
    pub profile: String,
    /// The share of the space that is in use while files are created and removed.
    #[arg(long, value_name = "PERCENT", default_value = "76%", value_parser = ChurnOptions::utilisation)]
    pub util: f64,
    /// The number of times that the whole space is written.
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = ChurnOptions::overwrites)]
    pub overwrites: f64,
    /// Keep file data sparse on the host: contents are zeros, and become holes of the image.
    #[arg(long, requires = "target")]
    pub holes: bool,
    /// Seed of all random choices. The same seed gives the same output.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write the output to this file.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show no progress bar.
    #[arg(long, short)]
    pub quiet: bool,
}

/// A file system that was aged.
#[derive(Clone, serde::Serialize)]
struct Row {
    /// The system, or the image or directory.
    system: String,
    profile: String,
    seed: u64,
    /// The layout score when the file system was first full to its level, from 0 to 1.
    score_before: Option<f64>,
    /// The layout score at the end.
    score_after: Option<f64>,
    #[serde(flatten)]
    aged: Aged,
}

#[derive(serde::Serialize)]
struct Rows {
    rows: Vec<Row>,
}

pub fn run(args: &Age) -> Result<()> {
    let profile = Profile::find(&args.profile)?;
    let options = ChurnOptions {
        profile,
        utilisation: args.util,
        overwrites: args.overwrites,
        seed: args.seed,
    };
    let row = |system: String, aged: Aged| Row {
        system,
        profile: options.profile.name.clone(),
        seed: args.seed,
        score_before: aged.fresh.score(),
        score_after: aged.aged.score(),
        aged,
    };
    let mut rows = Vec::new();
    let shown = |rows: &[Row]| match args.json {
        true => json(&Rows { rows: rows.to_vec() }),
        false => Ok(as_text(args, &options.profile, rows)),
    };
    match &args.target {
        Some(target) => {
            let name = target.display().to_string();
            let aged = in_place(args, target, &options).with_context(|| name.clone())?;
            rows.push(row(name, aged));
        }
        None => {
            let systems: Vec<System> =
                if args.fs.is_empty() { System::runnable().collect() } else { args.fs.clone() };
            let (interrupt, count) = (OnInterrupt::new()?, systems.len());
            for system in systems {
                let aged = in_memory(args, system, &options).with_context(|| system.name())?;
                rows.push(row(system.name().to_owned(), aged));
                let what = format!("{} of {count} file systems are shown", rows.len());
                interrupt.keep(args.output.as_deref(), shown(&rows)?, what);
            }
        }
    }
    put(args.output.as_deref(), &shown(&rows)?)
}

/// Ages a file system, with a progress bar.
async fn with_bar<F: FileSystem>(
    quiet: bool,
    name: &str,
    fs: &F,
    options: &ChurnOptions,
) -> Result<Aged> {
    let bar = Progress::new(quiet);
    bar.begin(name, "ageing", 0);
    let aged =
        age::age(fs, fs.root(), options, &mut |done, total| bar.reach(done >> 20, total >> 20))
            .await;
    bar.finish();
    Ok(aged?)
}

fn in_memory(args: &Age, system: System, options: &ChurnOptions) -> Result<Aged> {
    let executor = Executor::simulated(args.seed);
    let rt = executor.runtime();
    executor.block_on(async {
        let make = system.marked(MakeOptions { seed: args.seed, ..MakeOptions::default() });
        let sizes = system.devices(args.size, make.ffs_block());
        let disks: Vec<Rc<RamDisk>> =
            sizes.iter().map(|bytes| Rc::new(RamDisk::new(*bytes))).collect();
        let disks = Device::of_each(&disks);
        system.make(&rt, &disks, &make).await?;
        let mounted = system.mount(&rt, &disks, &MountOptions::default()).await?;
        let aged = with_bar(args.quiet, system.name(), mounted.fs(), options).await;
        mounted.unmount().await?;
        aged
    })?
}

/// The name of the directory that is created in a directory of the host.
const IN_DIRECTORY: &str = "ordo-age";

fn in_place(args: &Age, target: &Path, options: &ChurnOptions) -> Result<Aged> {
    if target.is_dir() {
        let place = target.join(IN_DIRECTORY);
        if let Err(error) = std::fs::create_dir(&place) {
            bail!("{}: {error}; remove what an earlier run has left there", place.display());
        }
        return real_time(async |_| {
            let fs = HostDir::open(&place)?;
            with_bar(args.quiet, "", &fs, options).await
        });
    }
    real_time(async |runtime| {
        let named = NamedImage::new(target);
        let mounted = match args.holes {
            true => image::open_with_holes(&runtime, named).await?,
            false => image::open(&runtime, named).await?,
        };
        let aged = with_bar(args.quiet, "", mounted.fs(), options).await;
        image::close(target, mounted).await?;
        aged
    })
}

fn as_text(args: &Age, profile: &Profile, rows: &[Row]) -> String {
    let mut out = format!(
        "{}: {}\n{} % full, the space written {} times, seed {}\n\n",
        profile.name,
        profile.about,
        number::figure(args.util * 100.0),
        number::figure(args.overwrites),
        args.seed
    );
    let right = |heading| (heading, Align::Right);
    let mut table = Table::new(&[
        ("file system", Align::Left),
        right("files"),
        right("made"),
        right("removed"),
        right("written"),
        right("full"),
        right("score, fresh"),
        right("aged"),
    ]);
    let score =
        |layout: &FileLayout| layout.score().map_or("-".into(), |score| format!("{score:.3}"));
    for Row { system, aged, .. } in rows {
        table.row([
            system.clone(),
            number::count(aged.files),
            number::count(aged.files_made),
            number::count(aged.files_removed),
            number::bytes(aged.bytes_written),
            number::percent(aged.utilisation, 1.0),
            score(&aged.fresh),
            score(&aged.aged),
        ]);
    }
    out.push_str(&table.to_string());
    out.push_str(
        "\nThe layout score is the share of a file's blocks that lie right behind the block before: 1 is best.\n\
         Fresh: full for the first time. Aged: at the end.\n",
    );
    out
}
