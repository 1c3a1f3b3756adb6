//! `ordo lfs`: the segments of an LFS, and cleaning them.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use ordo_block::file::FileAccess;
use ordo_block::{BlockDevice, Device};
use ordo_report::{json, number};
use ordo_runtime::Runtime;
use ordo_systems::lfs::segments;

use crate::image::real_time;
use crate::packed;
use crate::pair::when_free;
use crate::partition::{self, PartitionChoice};
use crate::text::put;

/// The segments of an LFS.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ordo lfs map disk.img                 how full each segment is
  ordo lfs map disk.img --svg -o map.svg
  ordo lfs clean disk.img               clean segments of which three quarters or less are live
  ordo lfs clean disk.img --below 95    nearly all")]
pub struct Lfs {
    /// The command.
    #[command(subcommand)]
    pub command: LfsCommand,
}

/// Commands about segments.
#[derive(Debug, clap::Subcommand)]
pub enum LfsCommand {
    /// Show how full each segment is.
    Map(Map),
    /// Move live blocks out of segments that are partly dead, so that these can be written again.
    Clean(Clean),
}

/// Shows how full each segment is.
#[derive(Debug, clap::Args)]
pub struct Map {
    /// The image or device.
    pub image: PathBuf,
    #[command(flatten)]
    pub part: PartitionChoice,
    /// Draw the map as SVG.
    #[arg(long, conflicts_with = "json")]
    pub svg: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write to this file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Cleans segments.
#[derive(Debug, clap::Args)]
pub struct Clean {
    /// The image or device. It must not be mounted.
    pub image: PathBuf,
    #[command(flatten)]
    pub part: PartitionChoice,
    /// Clean segments of which at most this percentage is live.
    #[arg(long, value_name = "PERCENT", default_value_t = 75,
        value_parser = clap::value_parser!(u64).range(1..=99))]
    pub below: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Lfs) -> Result<()> {
    match &args.command {
        LfsCommand::Map(map) => {
            let text = real_time(async |rt| show(&rt, map).await)?;
            put(map.output.as_deref(), &text)
        }
        LfsCommand::Clean(clean) => {
            let text = real_time(async |rt| move_live(&rt, clean).await)?;
            put(None, &text)
        }
    }
}

async fn open(
    rt: &Runtime,
    image: &Path,
    part: &PartitionChoice,
    access: FileAccess,
) -> Result<Device> {
    let disk = when_free(rt, || packed::open(rt, image, access)).await?;
    Ok(partition::choose(Rc::new(disk), image, part.partition.as_deref(), false).await?.erase())
}

async fn show(rt: &Runtime, args: &Map) -> Result<String> {
    let name = || args.image.display().to_string();
    let disk = open(rt, &args.image, &args.part, FileAccess::ReadOnly).await.with_context(name)?;
    let map = segments::map(&disk).await.with_context(name)?;
    Ok(match (args.svg, args.json) {
        (true, _) => map.svg(),
        (_, true) => json(&map)?,
        _ => map.text(),
    })
}

async fn move_live(rt: &Runtime, args: &Clean) -> Result<String> {
    let name = || args.image.display().to_string();
    let disk = open(rt, &args.image, &args.part, FileAccess::ReadWrite).await.with_context(name)?;
    let cleaned = segments::clean(rt, disk, args.below).await.with_context(name)?;
    Ok(match args.json {
        true => json(&cleaned)?,
        false => format!(
            "{}: {} segments cleaned, {} moved\n",
            name(),
            cleaned.segments,
            number::bytes(cleaned.moved_bytes)
        ),
    })
}
