//! The output of `ordo info` for a DualFS: the pair, its metadata log, its groups.

use std::fmt::Write as _;

use ordo_block::partition::Partition;
use ordo_block::{BlockDevice, Device};
use ordo_dualfs::DualError;
use ordo_dualfs::pair::{Pair, read_identity};
use ordo_format::dualfs::{GroupDescriptor, Identity, ROLE_METADATA};
use ordo_format::lfs::Superblock;
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_lfs::superblock::{VolumeKind, find_kind};
use ordo_report::{json, number};

use crate::SystemError;
use crate::options::ShowOptions;

#[derive(serde::Serialize)]
struct Group {
    group: u32,
    blocks: u64,
    free_blocks: u32,
    inodes: u32,
}

#[derive(serde::Serialize)]
struct Log {
    clean: bool,
    serial: u64,
    segment_size: u32,
    segments: u32,
    clean_segments: u32,
    files: u64,
    last_written: u64,
}

/// The copy of the metadata on a data device.
#[derive(serde::Serialize)]
struct ShownCopy {
    /// The serial number of the checkpoint that was copied.
    serial: u64,
    /// The time of that checkpoint, in seconds since 1970.
    time: u64,
    blocks: u64,
    /// The number of blocks for which the copy has space.
    slots: u64,
}

#[derive(serde::Serialize)]
struct Shown {
    image: String,
    format: &'static str,
    pair: String,
    /// The device that is shown: "metadata", "data", or "both" for the whole pair.
    role: &'static str,
    /// The image or device of the metadata, if it is another one than the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_device: Option<String>,
    generation: u64,
    block_size: u32,
    metadata_bytes: u64,
    data_bytes: u64,
    group_blocks: u32,
    groups: u32,
    data_at: Option<u64>,
    /// The last complete copy of the metadata, where one is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<ShownCopy>,
    /// The metadata log; `None` on a data device.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Log>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    per_group: Vec<Group>,
}

/// Shows one device of a pair, or both, as text or JSON.
pub(super) async fn show(disks: &[Device], options: &ShowOptions) -> Result<String, SystemError> {
    let disk = &disks[0];
    let id = match disks.len() {
        1 => {
            let found = read_identity(disk).await?;
            found.map_err(|error| DualError::Identity { device: "disk", error })?
        }
        // Two devices must belong together.
        _ => Pair::open(disks).await?.identity,
    };
    let log = match id.role {
        ROLE_METADATA => {
            let part = Partition::new(disk.clone(), 0, id.metadata_bytes).erase();
            Some(find_kind(&part, VolumeKind::Dual).await?.sb)
        }
        _ => None,
    };
    // The groups are in the metadata log, but the reader needs both devices.
    let is_whole = disks.len() > 1 || id.data_at > 0;
    let groups = match options.groups && is_whole {
        true => ordo_dualfs::mount::read(disks).await?.groups().await?,
        false => Vec::new(),
    };
    let copy = copy_of(disks, &id).await?;
    match options.json {
        true => Ok(json(&shown(&id, (log.as_ref(), copy), &groups, options))?),
        false => Ok(text(&id, (log.as_ref(), copy), options) + &group_lines(&id, &groups)),
    }
}

/// The last complete copy of the metadata, where the data device is among the disks and keeps one.
async fn copy_of(disks: &[Device], id: &Identity) -> Result<Option<ShownCopy>, SystemError> {
    let Some(area) = id.copy_area() else { return Ok(None) };
    match ordo_dualfs::salvage::copy_on(disks).await {
        Ok(found) => {
            let (serial, time, blocks) = (found.serial, found.time, found.blocks);
            Ok(Some(ShownCopy { serial, time, blocks, slots: area.slots }))
        }
        Err(DualError::Device(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

fn numbered<'g>(
    id: &'g Identity,
    groups: &'g [GroupDescriptor],
) -> impl Iterator<Item = Group> + 'g {
    (0..).zip(groups).map(|(group, found)| {
        let range = id.shape().group(group);
        let blocks = range.end - range.start;
        Group { group, blocks, free_blocks: found.free, inodes: found.inodes }
    })
}

fn shown(
    id: &Identity,
    (log, copy): (Option<&Superblock>, Option<ShownCopy>),
    groups: &[GroupDescriptor],
    options: &ShowOptions,
) -> Shown {
    Shown {
        image: options.image.clone(),
        format: "dualfs",
        pair: id.name().to_string(),
        role: if options.metadata.is_some() { "both" } else { id.role_name() },
        metadata_device: options.metadata.clone(),
        generation: id.generation,
        block_size: id.bsize,
        metadata_bytes: id.metadata_bytes,
        data_bytes: id.blocks * u64::from(id.bsize),
        group_blocks: id.group_blocks,
        groups: id.groups,
        data_at: Some(id.data_at).filter(|at| *at > 0),
        copy,
        log: log.map(|sb| Log {
            clean: sb.pflags & PF_CLEAN != 0,
            serial: sb.serial,
            segment_size: sb.ssize,
            segments: sb.nseg,
            clean_segments: sb.nclean,
            files: sb.nfiles,
            last_written: sb.tstamp,
        }),
        per_group: numbered(id, groups).collect(),
    }
}

fn text(
    id: &Identity,
    (log, copy): (Option<&Superblock>, Option<ShownCopy>),
    options: &ShowOptions,
) -> String {
    let place = match (id.role, id.data_at) {
        (ROLE_METADATA, 0) => ", on a device of its own".to_owned(),
        (ROLE_METADATA, at) => format!(", from byte {at} on"),
        _ => String::new(),
    };
    let (pair, image) = (id.name(), &options.image);
    let first = match &options.metadata {
        Some(metadata) => {
            format!("DualFS, pair {pair}\nmetadata device: {metadata}\ndata device: {image}")
        }
        None => format!("DualFS, {} device of the pair {pair}", id.role_name()),
    };
    let mut out = format!(
        "{first}\nmount {}, blocks of {}\n\
         metadata: {}\ndata: {}{place}, {} groups of {} blocks\n",
        id.generation,
        number::bytes(id.bsize.into()),
        number::bytes(id.metadata_bytes),
        number::bytes(id.blocks * u64::from(id.bsize)),
        id.groups,
        id.group_blocks,
    );
    if id.copy_area().is_some() {
        let _ = match copy {
            Some(ShownCopy { serial, blocks, slots, .. }) => {
                writeln!(
                    out,
                    "copy of the metadata: checkpoint {serial}, {blocks} blocks, space for {slots}"
                )
            }
            None => writeln!(out, "copy of the metadata: none is complete"),
        };
    }
    if let Some(sb) = log {
        let state = if sb.pflags & PF_CLEAN != 0 { "unmounted" } else { "not unmounted" };
        let _ = writeln!(
            out,
            "log: {state}, serial {}, {} segments of {}, {} clean; {} files",
            sb.serial,
            sb.nseg,
            number::bytes(sb.ssize.into()),
            sb.nclean,
            sb.nfiles,
        );
    }
    out
}

fn group_lines(id: &Identity, groups: &[GroupDescriptor]) -> String {
    let mut out = String::new();
    for Group { group, blocks, free_blocks, inodes } in numbered(id, groups) {
        let _ =
            writeln!(out, "group {group}: {free_blocks} of {blocks} blocks free, {inodes} inodes");
    }
    out
}
