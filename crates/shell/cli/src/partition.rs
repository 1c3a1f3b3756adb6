//! Finding the partitions of a disk, and opening one.

use std::rc::Rc;

use anyhow::{Result, anyhow, bail};
use ordo_block::file::FileDisk;
use ordo_block::partition::Partition;
use ordo_block::{BlockDevice, Device};
use ordo_format::label::{PartitionTableReader, Range, SECTOR, TablePartition};

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
    let rows = table.partitions.into_iter().map(|TablePartition { name, range, .. }| {
        let Range { start, len, kind, name: label } = range;
        PartitionRow { name, start, bytes: len, kind: kind.to_string(), label }
    });
    Ok((rows.collect(), table.problems.iter().map(ToString::to_string).collect()))
}

/// The partition of this name as a device; the whole disk if no name is given.
///
/// # Errors
/// There is no such partition, or the device failed.
pub async fn take(disk: Rc<FileDisk>, name: Option<&str>) -> Result<Partition<Rc<FileDisk>>> {
    let bytes = disk.geometry().bytes;
    let Some(name) = name else { return Ok(Partition::new(disk, 0, bytes)) };
    let (all, problems) = list(&disk.clone().erase()).await?;
    problems.iter().for_each(|problem| eprintln!("ordo: {problem}"));
    if all.is_empty() {
        bail!("the disk has no partitions that Ordo can read (GPT, MBR, BSD label)");
    }
    let found = all.iter().find(|p| p.name == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        anyhow!("there is no partition {name}; there are {}", names.join(", "))
    })?;
    Ok(Partition::new(disk, found.start, found.bytes))
}
