//! `ordo mkfs`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use ordo_block::file::{Access, FileDisk};
use ordo_block::{BlockDevice, Device};
use ordo_runtime::Runtime;
use ordo_systems::journaled::{Journaled, LogPlace};
use ordo_systems::{MadeReport, MakeOptions, probe};

use crate::args::{Made, Mkfs};
use crate::image::real_time;
use crate::text::put;

pub fn run(args: &Mkfs) -> Result<()> {
    let report = real_time(async |rt| make(&rt, args).await)?;
    let image = args.image.display().to_string();
    let text = match args.json {
        true => report.json(&image)?,
        false => report.text(&image) + &log_line(args),
    };
    put(None, &text)
}

/// Opens the device, if it has nothing that would be lost.
async fn open(runtime: &Runtime, args: &Mkfs) -> Result<Device> {
    let path = &args.image;
    let disk = match (path.exists(), args.size) {
        (true, _) => FileDisk::open(runtime, path, Access::ReadWrite)?,
        (false, Some(size)) => FileDisk::create(runtime, path, size)?,
        (false, None) => {
            bail!("{}: does not exist; give --size to create it", path.display())
        }
    };
    let disk = disk.erase();
    if args.force {
        return Ok(disk);
    }
    match probe(&disk).await? {
        None => Ok(disk),
        Some(found) => bail!("{}: holds {}; --force overwrites it", path.display(), found.noun()),
    }
}

fn options(args: &Mkfs) -> MakeOptions {
    let log = args.journal.as_deref().map(|place| match place.to_str() {
        Some("file") => LogPlace::File,
        Some("behind") => LogPlace::Same,
        _ => LogPlace::Other,
    });
    let options = MakeOptions {
        size: args.size,
        block_size: args.block_size,
        frag_size: args.frag_size,
        min_free: Some(args.min_free),
        seed: args.seed,
        density: args.density,
        label: args.label.clone(),
        soft_updates: args.soft_updates,
        big_endian: args.big_endian,
        no_check_hashes: args.no_check_hashes,
        no_seals: args.no_crc,
        segment_size: args.segment_size,
        metadata: args.meta,
        log,
        log_bytes: args.journal_size,
        ..MakeOptions::default()
    };
    match args.fs {
        Made::Format(_) => options,
        Made::System(system) => system.marked(options),
    }
}

async fn make(runtime: &Runtime, args: &Mkfs) -> Result<Box<dyn MadeReport>> {
    let options = options(args);
    let format = match args.fs {
        Made::Format(format) => format,
        Made::System(system) => system.format(),
    };
    if let Made::System(system) = args.fs
        && system.journal().is_none()
        && system.devices(0, 4096).len() > 1
    {
        bail!(
            "{} takes two disks; --fs {} makes both devices on one",
            system.name(),
            format.name()
        );
    }
    let mut disks = vec![open(runtime, args).await?];
    if options.log == Some(LogPlace::Other) {
        let Some(place) = &args.journal else {
            bail!("this system has its log on a second device: name it with --journal");
        };
        disks.push(open_log(runtime, place, &disks[0], &options).await?);
    }
    let made = format.make(runtime, &disks, &options).await;
    made.with_context(|| args.image.display().to_string())
}

/// Opens the device of a log, if it has no file system.
async fn open_log(
    runtime: &Runtime,
    place: &Path,
    disk: &Device,
    options: &MakeOptions,
) -> Result<Device> {
    let usual = Journaled::new(LogPlace::Other, false, None);
    let journaled = Journaled { log_bytes: options.log_bytes, ..usual };
    let bytes = options.size.unwrap_or_else(|| disk.geometry().bytes);
    let log = match place.exists() {
        true => FileDisk::open(runtime, place, Access::ReadWrite)?,
        false => FileDisk::create(runtime, place, journaled.sizes(bytes, options.ffs_block()).1)?,
    };
    let log = log.erase();
    match probe(&log).await? {
        None => Ok(log),
        Some(found) => {
            bail!("{}: holds {}; name another place for the log", place.display(), found.noun())
        }
    }
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
