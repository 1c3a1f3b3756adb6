//! Finding the partitions of a disk, and opening one.

use std::rc::Rc;

use anyhow::{Result, anyhow, bail};
use ordo_block::file::FileDisk;
use ordo_block::partition::Partition;
use ordo_block::{BlockDevice, Device, Geometry};
use ordo_format::label::{self, Kind, Range, SECTOR};

/// The most extended partitions in a chain.
const CHAIN_MAX: u32 = 128;

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

/// The partitions of a disk, with those in BSD slices; none if there is no table.
///
/// # Errors
/// The device failed.
pub async fn list(disk: &Device) -> Result<Vec<PartitionRow>> {
    let Geometry { bytes, .. } = disk.geometry();
    let mut found: Vec<(u32, Range)> = match label::mbr(&sector(disk, 0).await?) {
        None => Vec::new(),
        Some(entries) if entries.iter().any(|(_, r)| r.kind == Kind::Protective) => {
            match gpt(disk, SECTOR).await? {
                Some(entries) => entries,
                // The GPT's copy is at the end of the disk.
                None => gpt(disk, (bytes / SECTOR).saturating_sub(1) * SECTOR)
                    .await?
                    .unwrap_or_default(),
            }
        }
        Some(entries) => with_logical(disk, entries).await?,
    };
    found.retain(|(_, r)| r.start.checked_add(r.len).is_some_and(|end| end <= bytes && r.len > 0));
    let mut out = Vec::new();
    labelled(disk, "", 0, bytes, &mut out).await?;
    for (number, range) in found {
        let name = number.to_string();
        let is_slice = range.kind == Kind::BsdSlice;
        let (start, len) = (range.start, range.len);
        out.push(partition(name.clone(), range));
        if is_slice {
            labelled(disk, &name, start, len, &mut out).await?;
        }
    }
    Ok(out)
}

fn partition(name: String, range: Range) -> PartitionRow {
    let Range { start, len, kind, name: label } = range;
    PartitionRow { name, start, bytes: len, kind: kind.to_string(), label }
}

async fn sector(disk: &Device, at: u64) -> Result<Vec<u8>> {
    if at + SECTOR > disk.geometry().bytes {
        return Ok(Vec::new());
    }
    Ok(disk.read(at, SECTOR as usize).await?.to_vec())
}

async fn gpt(disk: &Device, at: u64) -> Result<Option<Vec<(u32, Range)>>> {
    let Some(header) = label::gpt_header(&sector(disk, at).await?) else { return Ok(None) };
    let len = header.entries_len.next_multiple_of(SECTOR as usize);
    let inside = header.entries_at.checked_add(len as u64);
    if inside.is_none_or(|end| end > disk.geometry().bytes) {
        return Ok(None);
    }
    Ok(label::gpt_entries(&header, &disk.read(header.entries_at, len).await?))
}

/// The entries of an MBR, and the logical partitions in the extended one, which begin at 5.
async fn with_logical(disk: &Device, mut entries: Vec<(u32, Range)>) -> Result<Vec<(u32, Range)>> {
    let Some(outer) = entries.iter().find(|(_, r)| r.kind == Kind::Extended).map(|(_, r)| r.start)
    else {
        return Ok(entries);
    };
    let (mut at, mut number) = (outer, 5);
    while number < CHAIN_MAX {
        let Some(pair) = label::mbr(&sector(disk, at).await?) else { break };
        let mut next = None;
        for (_, mut range) in pair {
            match range.kind {
                Kind::Extended => next = outer.checked_add(range.start),
                _ => {
                    range.start += at;
                    entries.push((number, range));
                }
            }
        }
        number += 1;
        match next {
            Some(next) if next > at => at = next,
            _ => break,
        }
    }
    Ok(entries)
}

/// Adds the partitions of the BSD label in a slice, if it has one.
async fn labelled(
    disk: &Device,
    slice: &str,
    start: u64,
    len: u64,
    out: &mut Vec<PartitionRow>,
) -> Result<()> {
    let entries = label::bsd(&sector(disk, start + SECTOR).await?).unwrap_or_default();
    for (letter, mut range) in entries {
        if range.start.checked_add(range.len).is_some_and(|end| end <= len) {
            range.start += start;
            out.push(partition(format!("{slice}{letter}"), range));
        }
    }
    Ok(())
}

/// The partition of this name as a device; the whole disk if no name is given.
///
/// # Errors
/// There is no such partition, or the device failed.
pub async fn take(disk: Rc<FileDisk>, name: Option<&str>) -> Result<Partition<Rc<FileDisk>>> {
    let bytes = disk.geometry().bytes;
    let Some(name) = name else { return Ok(Partition::new(disk, 0, bytes)) };
    let all = list(&disk.clone().erase()).await?;
    if all.is_empty() {
        bail!("the disk has no partitions that Ordo can read (GPT, MBR, BSD label)");
    }
    let found = all.iter().find(|p| p.name == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        anyhow!("there is no partition {name}; there are {}", names.join(", "))
    })?;
    Ok(Partition::new(disk, found.start, found.bytes))
}
