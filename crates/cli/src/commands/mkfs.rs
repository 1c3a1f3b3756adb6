//! `ordo mkfs`.

mod lfs;

use std::path::Path;

use anyhow::{Context, Result, bail};
use ordo_bench::journaled::{Journaled, LogPlace};
use ordo_block::file::{Access, FileDisk};
use ordo_block::{BlockDevice, Device};
use ordo_ffs::mkfs::{MkfsOptions, MkfsReport, mkfs};
use ordo_ffs::mount::find_superblock;
use ordo_format::Endian;
use ordo_report::{json, number};
use ordo_runtime::Runtime;

use crate::args::{Mkfs, MkfsKind};
use crate::image::real_time;
use crate::text::put;

/// Block size unless another is given.
const BLOCK_SIZE: u64 = 32 << 10;

pub fn run(args: &Mkfs) -> Result<()> {
    if args.fs == MkfsKind::Lfs {
        return lfs::run(args);
    }
    let report = real_time(async |rt| make(&rt, args).await)?;
    put(None, &if args.json { as_json(args, &report)? } else { as_text(args, &report) })
}

/// A size that an option takes.
fn u32_of(what: &str, bytes: u64) -> Result<u32> {
    u32::try_from(bytes).with_context(|| format!("{what} {bytes} is too large"))
}

/// The device that is asked for, on which nothing is that would be lost.
async fn open(runtime: &Runtime, args: &Mkfs) -> Result<Device> {
    let path = &args.image;
    let disk = match (path.exists(), args.size) {
        (true, _) => FileDisk::open(runtime, path, Access::ReadWrite)?,
        (false, Some(size)) => FileDisk::create(runtime, path, size)?,
        (false, None) => {
            bail!("{}: not there; give --size to make it", path.display())
        }
    };
    let disk = disk.erase();
    let found = match () {
        () if args.force => return Ok(disk),
        () if find_superblock(&disk).await.is_ok() => "a UFS2 file system",
        () if ordo_lfs::superblock::probe(&disk).await? => "an LFS",
        () => return Ok(disk),
    };
    bail!("{}: holds {found}; --force makes a new one in its place", path.display());
}

async fn make(runtime: &Runtime, args: &Mkfs) -> Result<MkfsReport> {
    let path = &args.image;
    let disk = open(runtime, args).await?;
    let block_size = u32_of("block size", args.block_size.unwrap_or(BLOCK_SIZE))?;
    let options = MkfsOptions {
        block_size,
        frag_size: match args.frag_size {
            Some(bytes) => u32_of("fragment size", bytes)?,
            None => (block_size / 8).max(512),
        },
        endian: if args.big_endian { Endian::Big } else { Endian::Little },
        label: args.label.clone(),
        soft_updates: args.soft_updates,
        check_hashes: !args.no_check_hashes,
        min_free: args.min_free,
        density: args.density.map(|d| u32_of("density", d)).transpose()?,
        size: args.size.filter(|s| *s <= disk.geometry().bytes),
        seed: args.seed,
        ..MkfsOptions::default()
    };
    if let Some(size) = args.size.filter(|s| *s > disk.geometry().bytes) {
        let have = disk.geometry().bytes;
        bail!("{}: has {have} bytes, {size} were asked for", path.display());
    }
    let made = match &args.journal {
        None => mkfs(&disk, &options, runtime.wall_time().0).await.map_err(Into::into),
        Some(place) => with_log(runtime, disk, place, &options, args.journal_size).await,
    };
    made.with_context(|| path.display().to_string())
}

/// Makes a file system and its log.
async fn with_log(
    runtime: &Runtime,
    disk: Device,
    place: &Path,
    options: &MkfsOptions,
    log_bytes: Option<u64>,
) -> Result<MkfsReport> {
    let at = match place.to_str() {
        Some("file") => LogPlace::File,
        Some("behind") => LogPlace::Same,
        _ => LogPlace::Other,
    };
    let journaled = Journaled { log_bytes, ..Journaled::new(at, false, None) };
    let mut disks = vec![disk];
    if at == LogPlace::Other {
        let bytes = options.size.unwrap_or_else(|| disks[0].geometry().bytes);
        let log = match place.exists() {
            true => FileDisk::open(runtime, place, Access::ReadWrite)?,
            false => FileDisk::create(runtime, place, journaled.sizes(bytes).1)?,
        };
        let log = log.erase();
        if find_superblock(&log).await.is_ok() {
            bail!("{}: holds a UFS2 file system; name another place for the log", place.display());
        }
        disks.push(log);
    }
    Ok(journaled.make(runtime, &disks, options).await?)
}

fn as_text(args: &Mkfs, report: &MkfsReport) -> String {
    let sb = &report.superblock;
    let mut out = format!(
        "{}: {}, {} blocks of {}, fragments of {}, {} cylinder groups, {} inodes\n",
        args.image.display(),
        number::bytes(sb.byte_of(sb.size as u64)),
        number::count(sb.size as u64 / sb.frag as u64),
        number::bytes(sb.bsize as u64),
        number::bytes(sb.fsize as u64),
        sb.ncg,
        number::count(u64::from(sb.ncg) * u64::from(sb.ipg)),
    );
    if let Some(density) = report.density_changed {
        out.push_str(&format!("one inode for every {density} bytes, to fit the group headers\n"));
    }
    let sectors: Vec<String> =
        report.copies.iter().take(8).map(|at| (at / 512).to_string()).collect();
    let more = if report.copies.len() > 8 { ", ..." } else { "" };
    if let Some(place) = &args.journal {
        let place = match place.to_str() {
            Some("file") => "in the file .ordojournal".to_string(),
            Some("behind") => "behind the file system".to_string(),
            _ => format!("in {}", place.display()),
        };
        out.push_str(&format!("a log {place}\n"));
    }
    out.push_str(&format!(
        "copies of the superblock (for fsck -b) at sectors {}{more}\n",
        sectors.join(", ")
    ));
    out
}

#[derive(serde::Serialize)]
struct Made {
    image: String,
    bytes: u64,
    block_size: i32,
    frag_size: i32,
    groups: u32,
    inodes: u64,
    superblock_copies: Vec<u64>,
    writes: u64,
    bytes_written: u64,
}

fn as_json(args: &Mkfs, report: &MkfsReport) -> Result<String> {
    let sb = &report.superblock;
    Ok(json(&Made {
        image: args.image.display().to_string(),
        bytes: sb.byte_of(sb.size as u64),
        block_size: sb.bsize,
        frag_size: sb.fsize,
        groups: sb.ncg,
        inodes: u64::from(sb.ncg) * u64::from(sb.ipg),
        superblock_copies: report.copies.clone(),
        writes: report.writes,
        bytes_written: report.bytes_written,
    })?)
}
