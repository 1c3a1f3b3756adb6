//! `ordo info`.

use std::rc::Rc;

use anyhow::{Context, Result};
use ordo_block::BlockDevice;
use ordo_block::file::{Access, FileDisk};
use ordo_report::json;
use ordo_runtime::Runtime;
use ordo_systems::ShowOptions;

use crate::args::Info;
use crate::image::real_time;
use crate::partition::{self, Partition};
use crate::text::put;

pub fn run(args: &Info) -> Result<()> {
    let text = real_time(async |rt| show(&rt, args).await)?;
    put(None, &text)
}

async fn show(runtime: &Runtime, args: &Info) -> Result<String> {
    let name = || args.image.display().to_string();
    let disk = Rc::new(FileDisk::open(runtime, &args.image, Access::ReadOnly)?);
    let partitions = partition::list(&disk.clone().erase()).await.with_context(name)?;
    if !partitions.is_empty() && args.partition.is_none() {
        return match args.json {
            true => Ok(json(&serde_json::json!({ "partitions": partitions }))?),
            false => Ok(table(&partitions)),
        };
    }
    let part = partition::take(disk, args.partition.as_deref()).await.with_context(name)?;
    let disk = part.erase();
    let format = ordo_systems::format_of(&disk).await.with_context(name)?;
    let options = ShowOptions { image: name(), groups: args.groups, json: args.json };
    format.show(&disk, &options).await.with_context(name)
}

/// The table of a disk's partitions.
fn table(partitions: &[Partition]) -> String {
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
