//! `ordo mkfs`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use ordo_block::file::{FileAccess, FileDisk};
use ordo_block::{BlockDevice, Device};
use ordo_runtime::Runtime;
use ordo_systems::journaled::{Journaled, LogPlace};
use ordo_systems::{MadeReport, MakeOptions, metadata_size};

use crate::args::{MakeShape, Mkfs, MkfsTarget};
use crate::created::CreatedFiles;
use crate::image::{real_time, source_date};
use crate::overwrite::{Target, examine, replacing};
use crate::text::put;

pub fn run(args: &Mkfs) -> Result<()> {
    let report = real_time(async |rt| {
        source_date()?.iter().for_each(|seconds| rt.fix_wall_time(*seconds));
        make(&rt, args).await
    })?;
    let image = args.image.display().to_string();
    let text = match args.json {
        true => report.json(&image)?,
        false => report.text(&image) + &log_line(args) + &metadata_line(args),
    };
    put(None, &text)
}

/// Opens the device, if no data would be lost. `size` is that of an image to create.
async fn open(
    runtime: &Runtime,
    path: &Path,
    size: Option<u64>,
    opened: &mut OpenedDevices,
    args: &Mkfs,
) -> Result<Device> {
    let disk = match (path.exists(), size) {
        (true, _) => FileDisk::open(runtime, path, FileAccess::ReadWrite)?,
        (false, Some(size)) => {
            let disk = FileDisk::create(runtime, path, size)?;
            opened.created.add(path);
            disk
        }
        (false, None) => {
            bail!("{}: does not exist; give --size to create it", path.display())
        }
    };
    let disk = disk.erase();
    opened.targets.push(examine(&disk, path, args.force).await?);
    Ok(disk)
}

/// The devices that were opened so far.
#[derive(Default)]
struct OpenedDevices {
    targets: Vec<Target>,
    /// The images among them that were not there before.
    created: CreatedFiles,
}

/// The options of mkfs that do not depend on devices.
pub(super) fn shape_options(shape: &MakeShape) -> MakeOptions {
    let options = MakeOptions {
        block_size: shape.block_size,
        frag_size: shape.frag_size,
        min_free: Some(shape.min_free.unwrap_or(8)),
        seed: shape.seed,
        density: shape.density,
        label: shape.label.clone(),
        soft_updates: shape.soft_updates,
        big_endian: shape.big_endian,
        no_check_hashes: shape.no_check_hashes,
        ufs1: shape.ufs1,
        ..MakeOptions::default()
    };
    match shape.fs {
        MkfsTarget::Format(_) => options,
        MkfsTarget::System(system) => system.marked(options),
    }
}

fn options(args: &Mkfs) -> MakeOptions {
    let log = args.journal.as_deref().map(|place| match place.to_str() {
        Some("file") => LogPlace::File,
        Some("behind") => LogPlace::Same,
        _ => LogPlace::Other,
    });
    let shape = shape_options(&args.shape);
    MakeOptions {
        size: args.size,
        no_seals: args.no_crc,
        segment_size: args.segment_size,
        metadata: args.meta,
        metadata_copy: args.meta_copy,
        log: log.or(shape.log),
        log_bytes: args.journal_size,
        ..shape
    }
}

async fn make(runtime: &Runtime, args: &Mkfs) -> Result<Box<dyn MadeReport>> {
    let options = options(args);
    let format = args.shape.fs.format();
    if let MkfsTarget::System(system) = args.shape.fs
        && system.is_apart()
        && args.meta_device.is_none()
    {
        bail!(
            "{} takes two disks: name the metadata device with --meta-device; --fs {} makes both devices on one",
            system.name(),
            format.name()
        );
    }
    if args.meta_device.is_some() && !format.has_pairs() {
        bail!("--meta-device does not go with {}", format.noun());
    }
    let mut opened = OpenedDevices::default();
    let mut disks = vec![open(runtime, &args.image, args.size, &mut opened, args).await?];
    let mut options = options;
    if let Some(path) = &args.meta_device {
        let created = !path.exists();
        let metadata = open_metadata(runtime, path, &disks[0], &mut opened, args).await?;
        disks.insert(0, metadata);
        if created {
            // The size of the metadata device is that of its image.
            options.metadata = None;
        }
    }
    if options.log == Some(LogPlace::Other) {
        let Some(place) = &args.journal else {
            bail!("this system has its log on a second device: name it with --journal");
        };
        let bytes = options.size.unwrap_or_else(|| disks[0].geometry().bytes);
        let usual = Journaled::new(LogPlace::Other, false, None);
        let journaled = Journaled { log_bytes: options.log_bytes, ..usual };
        let bytes = journaled.sizes(bytes, options.ffs_block()).1;
        disks.push(open(runtime, place, Some(bytes), &mut opened, args).await?);
    }
    let make = async || {
        let made = format.make(runtime, &disks, &options).await;
        made.with_context(|| args.image.display().to_string())
    };
    let made = replacing(&opened.targets, make).await?;
    opened.created.keep();
    Ok(made)
}

/// Opens the metadata device of a pair, or creates it: as large as --meta says, or a tenth of the
/// data device.
async fn open_metadata(
    runtime: &Runtime,
    path: &Path,
    data: &Device,
    opened: &mut OpenedDevices,
    args: &Mkfs,
) -> Result<Device> {
    let same = |path: &Path| path.canonicalize().ok();
    if path.exists() && same(path) == same(&args.image) {
        bail!("{}: cannot be both devices; --meta makes both on one disk", path.display());
    }
    let block = args.shape.block_size.and_then(|bytes| u32::try_from(bytes).ok());
    let bytes = args.size.unwrap_or_else(|| data.geometry().bytes);
    let size = metadata_size(args.meta, bytes, block);
    open(runtime, path, Some(size), opened, args).await
}

/// The metadata device, if it is another one.
fn metadata_line(args: &Mkfs) -> String {
    let device = args.meta_device.as_ref();
    device.map_or_else(String::new, |path| format!("metadata device: {}\n", path.display()))
}

/// The place of the log, if there is one.
fn log_line(args: &Mkfs) -> String {
    match options(args).log {
        None => String::new(),
        Some(LogPlace::File) => "a log in the file .ordojournal\n".into(),
        Some(LogPlace::Same) => "a log behind the file system\n".into(),
        Some(LogPlace::Other) => {
            let place = args.journal.as_ref().map(|place| place.display().to_string());
            format!("a log in {}\n", place.unwrap_or_default())
        }
    }
}
