//! `ordo info`.

use std::io::Write;
use std::rc::Rc;

use anyhow::{Context, Result};
use ordo_block::file::{FileAccess, FileDisk, OpenError};
use ordo_block::{BlockDevice, Device};
use ordo_report::json;
use ordo_runtime::Runtime;
use ordo_systems::ShowOptions;

use crate::args::Info;
use crate::image::real_time;
use crate::pair::{Companion, NamedImage};
use crate::partition::{self, PartitionRow};
use crate::text::put;
use crate::{contents, packed};

pub fn run(args: &Info) -> Result<()> {
    let text = real_time(async |rt| show(&rt, args).await)?;
    put(None, &text)
}

async fn show(runtime: &Runtime, args: &Info) -> Result<String> {
    let name = || args.image.display().to_string();
    let asked = args.part.partition.as_deref();
    let disk = match packed::open(runtime, &args.image, FileAccess::ReadOnly) {
        Err(e) if matches!(e.downcast_ref::<OpenError>(), Some(OpenError::Locked { .. })) => {
            eprintln!("ordo: {}: is in use: shown as it is on disk now", name());
            FileDisk::open(runtime, &args.image, FileAccess::Watch)?
        }
        opened => opened?,
    };
    let disk = Rc::new(disk);
    let (mut partitions, problems) =
        partition::list(&disk.clone().erase()).await.with_context(name)?;
    partitions.retain(|row| !row.is_cut);
    for problem in problems.iter().filter(|_| asked.is_none()) {
        let _ = writeln!(std::io::stderr(), "ordo: {}: {problem}", name());
    }
    let part = partition::choose(disk, &args.image, asked, false).await;
    if partitions.is_empty() || asked.is_some() {
        return show_one(runtime, args, part?.erase()).await;
    }
    // Without a choice the partitions are shown, and the file system if there is one only.
    let one = match part {
        Ok(part) => Some(show_one(runtime, args, part.erase()).await?),
        Err(_) => None,
    };
    if !args.json {
        let below = one.map_or_else(String::new, |text| format!("\n{text}"));
        return Ok(table(&partitions) + &below);
    }
    let mut all = serde_json::json!({ "partitions": partitions });
    if let Some(text) = one {
        all["file_system"] = serde_json::from_str(&text)?;
    }
    Ok(json(&all)?)
}

/// Shows the file system on the disk, or on a part of it.
async fn show_one(runtime: &Runtime, args: &Info, disk: Device) -> Result<String> {
    let name = || args.image.display().to_string();
    let named = NamedImage::new(&args.image).with(&args.metadata);
    let companion = match named.companion(runtime, &disk).await {
        Err(error) if named.metadata.is_some() => return Err(error),
        found => found,
    };
    let format = contents::format(&disk).await.with_context(name)?;
    let mut options = ShowOptions { image: name(), groups: args.groups, ..ShowOptions::default() };
    options.json = args.json;
    match companion {
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
        format!("{:<5} {:>14} {:>14}  {:<16} holds\n", "part", "first byte", "bytes", "type");
    for p in partitions {
        let label = if p.label.is_empty() { String::new() } else { format!(" [{}]", p.label) };
        let line = format!(
            "{:<5} {:>14} {:>14}  {:<16} {}{label}",
            p.name, p.start, p.bytes, p.kind, p.holds
        );
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push_str(
        "\nEvery command takes --partition PART; without it, the only one with UFS, LFS or DualFS.\n",
    );
    out
}
