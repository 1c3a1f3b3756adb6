//! `ordo info`.

use std::io::Write;
use std::rc::Rc;

use anyhow::{Context, Result};
use ordo_block::BlockDevice;
use ordo_block::file::{FileAccess, FileDisk};
use ordo_report::json;
use ordo_runtime::Runtime;
use ordo_systems::ShowOptions;

use crate::args::Info;
use crate::image::real_time;
use crate::pair::{Companion, NamedImage};
use crate::partition::{self, PartitionRow};
use crate::text::put;

pub fn run(args: &Info) -> Result<()> {
    let text = real_time(async |rt| show(&rt, args).await)?;
    put(None, &text)
}

async fn show(runtime: &Runtime, args: &Info) -> Result<String> {
    let name = || args.image.display().to_string();
    let disk = Rc::new(FileDisk::open(runtime, &args.image, FileAccess::ReadOnly)?);
    let (partitions, problems) = partition::list(&disk.clone().erase()).await.with_context(name)?;
    for problem in problems.iter().filter(|_| args.partition.is_none()) {
        let _ = writeln!(std::io::stderr(), "ordo: {}: {problem}", name());
    }
    if !partitions.is_empty() && args.partition.is_none() {
        return match args.json {
            true => Ok(json(&serde_json::json!({ "partitions": partitions }))?),
            false => Ok(table(&partitions)),
        };
    }
    let part = partition::take(disk, args.partition.as_deref()).await.with_context(name)?;
    let disk = part.erase();
    let named = NamedImage::new(&args.image).with(&args.metadata);
    let format = ordo_systems::format_of(&disk).await.with_context(name)?;
    let mut options = ShowOptions { image: name(), groups: args.groups, ..ShowOptions::default() };
    options.json = args.json;
    match named.companion(runtime, &disk).await {
        Ok(None) => format.show(&[disk], &options).await.with_context(name),
        Ok(Some(Companion { path, is_first })) => {
            let other = FileDisk::open(runtime, &path, FileAccess::ReadOnly)?.erase();
            let other_name = path.display().to_string();
            let (disks, metadata, image) = match is_first {
                true => ([other, disk], other_name, name()),
                false => ([disk, other], name(), other_name),
            };
            let both = format!("{image}, metadata device {metadata}");
            (options.metadata, options.image) = (Some(metadata), image);
            format.show(&disks, &options).await.context(both)
        }
        Err(error) if named.metadata.is_some() => Err(error),
        // One device of a pair can be shown without the other.
        Err(error) => {
            let text = format.show(&[disk], &options).await.with_context(name)?;
            let _ = writeln!(std::io::stderr(), "ordo: {error:#}");
            Ok(text)
        }
    }
}

/// The table of a disk's partitions.
fn table(partitions: &[PartitionRow]) -> String {
    let mut out =
        format!("{:<5} {:>14} {:>14}  {:<16} label\n", "part", "first byte", "bytes", "what");
    for p in partitions {
        let line =
            format!("{:<5} {:>14} {:>14}  {:<16} {}", p.name, p.start, p.bytes, p.kind, p.label);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push_str(
        "\n--partition PART shows the file system in one; ordo mount -o partition=PART mounts it\n",
    );
    out
}
