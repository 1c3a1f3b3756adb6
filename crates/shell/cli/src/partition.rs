//! The place of a file system on a disk: the whole disk, or one of its partitions.
//!
//! [`choose`] is the one place where commands find it. A partition that the user names is taken. If
//! none is named, the only one that holds a format of Ordo's is.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, bail};
use ordo_block::file::FileDisk;
use ordo_block::partition::Partition;
use ordo_block::{BlockDevice, Device};
use ordo_format::label::{PartitionTableReader, Range, SECTOR, TablePartition};
use ordo_systems::probe;

use crate::contents;

/// An image or a device, or the partition of it that is used.
pub type Disk = Rc<Partition<Rc<FileDisk>>>;

/// The name of the whole disk, where a partition is asked for.
const WHOLE: &str = "whole";

/// The partition of an image or a device that is used.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PartitionChoice {
    /// The partition of a disk, as `ordo info` lists them, or whole for the disk itself [default:
    /// the only one that holds UFS, LFS or DualFS].
    #[arg(long, short, value_name = "PART")]
    pub partition: Option<String>,
}

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PartitionRow {
    /// The name: a number, a letter of a BSD label, or both.
    pub name: String,
    /// The first byte.
    pub start: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The type in the partition table.
    pub kind: String,
    /// The name in a GPT.
    pub label: String,
    /// The contents that were recognised: "UFS2", "an ext4 file system". Empty for a container.
    pub holds: String,
    /// Whether other partitions lie in this one.
    #[serde(skip)]
    pub contains: bool,
    /// Whether it holds a format of Ordo's.
    #[serde(skip)]
    pub is_known: bool,
    /// Whether it ends behind the end of the disk.
    #[serde(skip)]
    pub is_cut: bool,
}

impl PartitionRow {
    /// Whether this is its name; `p2` is partition 2, as in traces.
    fn is_called(&self, name: &str) -> bool {
        self.name == name || name.strip_prefix('p') == Some(&*self.name)
    }
}

/// The partitions of a disk, with those in BSD slices and in the extended one, and the faults of
/// its tables in words. There are no partitions if there is no table.
///
/// # Errors
/// The device failed.
pub async fn list(disk: &Device) -> Result<(Vec<PartitionRow>, Vec<String>)> {
    let mut reader = PartitionTableReader::new(disk.geometry().bytes);
    while let Some((at, len)) = reader.wants() {
        // A device reads whole sectors.
        let bytes = disk.read(at, len.next_multiple_of(SECTOR as usize)).await?;
        reader.give(bytes.get(..len).unwrap_or_default());
    }
    let table = reader.finish();
    let mut rows = Vec::new();
    let whole = table.partitions.into_iter().map(|partition| (partition, false));
    let all = whole.chain(table.cut.into_iter().map(|partition| (partition, true)));
    for (TablePartition { name, range, contains }, is_cut) in all {
        let Range { start, len, kind, name: label } = range;
        let part = Partition::new(disk.clone(), start, len).erase();
        let format = if contains { None } else { probe(&part).await.unwrap_or_default() };
        let holds = match (contains, format) {
            (true, _) => String::new(),
            (_, Some(format)) => format.noun().to_owned(),
            (_, None) => contents::recognised(&part).await.unwrap_or_default(),
        };
        let (bytes, kind, is_known) = (len, kind.to_string(), format.is_some());
        rows.push(PartitionRow {
            name,
            start,
            bytes,
            kind,
            label,
            holds,
            contains,
            is_known,
            is_cut,
        });
    }
    Ok((rows, table.problems.iter().map(ToString::to_string).collect()))
}

/// The partition of this name, or the only one with a format of Ordo's; the whole disk if it has
/// one itself, or no partitions. A partition whose end is missing is taken only to `rescue` it.
///
/// # Errors
/// There is no such partition; several hold a format of Ordo's, or there are several and none does;
/// or the device failed.
pub async fn choose(
    disk: Rc<FileDisk>,
    path: &Path,
    asked: Option<&str>,
    rescue: bool,
) -> Result<Disk> {
    let shown = || path.display().to_string();
    if asked == Some(WHOLE) {
        return Ok(whole(disk));
    }
    let device = disk.clone().erase();
    let (mut all, problems) = list(&device).await.with_context(shown)?;
    all.retain(|row| rescue || !row.is_cut);
    if let Some(name) = asked {
        problems.iter().for_each(|problem| eprintln!("ordo: {}: {problem}", path.display()));
        return named(disk, &all, name).with_context(shown);
    }
    let known: Vec<&PartitionRow> = all.iter().filter(|row| row.is_known).collect();
    let of_disk = match all.is_empty() {
        true => None,
        false => probe(&device).await.with_context(shown)?,
    };
    match (&known[..], of_disk) {
        // A label without slices has a partition that begins with the disk.
        ([], Some(_)) => Ok(whole(disk)),
        ([only], Some(_)) if only.start == 0 => Ok(whole(disk)),
        ([], None) if all.is_empty() => Ok(whole(disk)),
        ([only], None) => Ok(part(disk, only)),
        ([], None) => {
            problems.iter().for_each(|problem| eprintln!("ordo: {}: {problem}", path.display()));
            bail!(
                "{}: no partition holds UFS, LFS or DualFS, but {}; --partition chooses one all \
                 the same",
                shown(),
                listed(all.iter().filter(|row| !row.contains))
            )
        }
        (_, of_disk) => {
            let disk = of_disk.map(|format| format!(", and the whole disk, {}", format.noun()));
            bail!(
                "{}: holds several file systems: {}{}; choose one with --partition",
                shown(),
                listed(known.iter().copied()),
                disk.map_or_else(String::new, |it| it + " (whole)")
            )
        }
    }
}

/// The whole of an image or a device.
pub fn whole(disk: Rc<FileDisk>) -> Disk {
    let bytes = disk.geometry().bytes;
    Rc::new(Partition::new(disk, 0, bytes))
}

fn part(disk: Rc<FileDisk>, row: &PartitionRow) -> Disk {
    Rc::new(Partition::new(disk, row.start, row.bytes))
}

fn named(disk: Rc<FileDisk>, all: &[PartitionRow], name: &str) -> Result<Disk> {
    if all.is_empty() {
        bail!("the disk has no partitions that Ordo can read (GPT, MBR, BSD label)");
    }
    let found = all.iter().find(|row| row.is_called(name)).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|row| row.name.as_str()).collect();
        anyhow!("there is no partition {name}; there are {}", names.join(", "))
    })?;
    Ok(part(disk, found))
}

/// Partitions in words: "1 (a FAT file system), 2 (UFS2)".
fn listed<'r>(rows: impl Iterator<Item = &'r PartitionRow>) -> String {
    let each = rows.map(|row| match row.holds.as_str() {
        "" => format!("{} (type {})", row.name, row.kind.trim_start_matches("type ")),
        holds => format!("{} ({holds})", row.name),
    });
    each.collect::<Vec<_>>().join(", ")
}
