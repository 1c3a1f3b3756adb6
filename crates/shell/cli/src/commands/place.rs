//! `ordo where`: the file and the kind of places on a device, and the places of a file.

mod sectors;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use ordo_annotate::place::{MeantRange, meaning};
use ordo_annotate::volumes::{DiskVolume, Volumes, signatures};
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};
use ordo_watcher::Watch;
use ordo_watcher::decoder::DiskImage;
use serde::Serialize;

use self::sectors::{Span, span};
use crate::text::put;

/// The unit of sectors of the kernel, in bytes.
const SECTOR: u64 = 512;
/// The most bytes that one run looks at.
const MOST: u64 = 1 << 30;

/// `ordo where`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Sectors are those of the kernel's messages: 512 bytes, from the beginning of the disk, or of the
partition if one is given. badblocks counts blocks of 1024 bytes (--unit 1k), smartctl sectors of
the disk. The device is only read. A file system in use may have changes that are not on the device
yet; sync writes them.

Examples:
  ordo where /dev/sda 1953125 1953200-1953215
  ordo where disk.img 2048+8 --json
  ordo where /dev/sdb1 4711 --unit 4k
  ordo where disk.img --partition 2 --file /var/lib/app/data.db")]
pub struct Where {
    /// The device or the image.
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// Sectors: N, a range FROM-TO with both ends, or FROM+COUNT.
    #[arg(value_name = "SECTOR", value_parser = span, required_unless_present = "file")]
    sectors: Vec<Span>,
    /// The size of a sector in these numbers.
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = number::parse_bytes)]
    unit: u64,
    /// Show the places of this file instead, by its path from the root of its file system.
    #[arg(long, value_name = "PATH", conflicts_with = "sectors")]
    file: Option<String>,
    /// The partition: a number, or a name as 'p2'. Sectors count from its beginning.
    #[arg(long, value_name = "NUMBER", conflicts_with = "offset")]
    partition: Option<String>,
    /// The file system begins at this byte of the disk. Sectors count from there.
    #[arg(long, value_name = "BYTES", value_parser = number::parse_bytes)]
    offset: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write the output to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A range with its meaning, for programs.
#[derive(Serialize)]
struct PlaceLine {
    /// The volume, if the disk has several.
    #[serde(skip_serializing_if = "String::is_empty")]
    volume: String,
    system: &'static str,
    /// The first sector of 512 bytes, counted as those that were asked for.
    sector: u64,
    sectors: u64,
    /// The first byte, counted in the same way.
    offset: u64,
    len: u64,
    kind: &'static str,
    means: String,
    inode: Option<u64>,
    path: Option<String>,
    file_offset: Option<u64>,
    transaction: Option<u64>,
    /// For a copy in a journal, the byte of its fixed location in the volume.
    home: Option<u64>,
}

/// A volume that is looked at: its place on the disk, and its name if there are several.
struct Part {
    name: String,
    volume: Option<DiskVolume>,
    /// The disk's byte that the printed numbers count as 0.
    zero: u64,
}

/// Shows places.
///
/// # Errors
/// The device cannot be read, or has no known file system or no such place or file.
pub fn place(args: &Where) -> Result<ExitCode> {
    let shown = args.device.display();
    let disk = File::open(&args.device).with_context(|| shown.to_string())?;
    let lines = match &args.file {
        Some(path) => of_file(args, &disk, path)?,
        None => of_sectors(args, &disk)?,
    };
    put(args.output.as_deref(), &if args.json { json(&lines)? } else { table(&lines) })?;
    Ok(ExitCode::SUCCESS)
}

/// The volumes of the disk that are asked for, those with files first.
fn parts(args: &Where, disk: &File) -> Result<Vec<Part>> {
    let shown = args.device.display();
    let found = match args.offset {
        Some(offset) => Volumes::from(disk, offset).map_err(|error| anyhow!("{shown}: {error}"))?,
        None => Volumes::find(disk).with_context(|| shown.to_string())?,
    };
    found.problems.iter().for_each(|problem| eprintln!("ordo: {shown}: {problem}"));
    let is_wanted = |volume: &&DiskVolume| match &args.partition {
        Some(name) => volume.is_called(name),
        None => args.offset.is_none() || volume.number.is_some(),
    };
    let has_zero = args.partition.is_some() || args.offset.is_some();
    let wanted: Vec<Part> = found
        .all
        .iter()
        .filter(is_wanted)
        .map(|volume| Part {
            name: volume.name.clone(),
            zero: if has_zero { volume.origin } else { 0 },
            volume: Some(volume.clone()),
        })
        .collect();
    if wanted.is_empty() {
        if let Some(name) = &args.partition {
            let names: Vec<&str> = found.all.iter().map(|volume| &*volume.name).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            bail!("{shown}: the disk has no partition {name}; there are: {names}");
        }
        return Ok(vec![Part { name: String::new(), volume: None, zero: 0 }]);
    }
    Ok(wanted)
}

impl Part {
    /// The offset of the volume's byte 0 on the disk.
    fn origin(&self) -> u64 {
        self.volume.as_ref().map_or(0, |volume| volume.origin)
    }

    /// Calls `with` with the volume's contents, and a watcher over them if the file system is
    /// known.
    fn with<T>(
        &self,
        disk: &File,
        with: impl FnOnce(&dyn DiskImage, Option<Rc<Watch>>) -> Result<T>,
    ) -> Result<T> {
        match &self.volume {
            None => with(disk, Watch::over(disk)),
            Some(volume) => {
                let image = volume.image(disk);
                let watch = volume.watch_of_tables().or_else(|| Watch::over(&image));
                with(&image, watch)
            }
        }
    }
}

fn of_sectors(args: &Where, disk: &File) -> Result<Vec<PlaceLine>> {
    let shown = args.device.display();
    let parts = parts(args, disk)?;
    let mut wanted = Vec::new();
    let mut sum = 0u64;
    for (first, count) in &args.sectors {
        let bytes = first.checked_mul(args.unit).zip(count.checked_mul(args.unit));
        let from = bytes.and_then(|(at, len)| Some((at.checked_add(parts[0].zero)?, len)));
        let range = from.filter(|(at, len)| {
            at.checked_add(*len).is_some_and(|end| end <= disk.bytes()) && *len > 0
        });
        let Some((at, len)) = range else {
            let last = disk.bytes().saturating_sub(parts[0].zero) / args.unit.max(1);
            bail!(
                "{shown}: sector {first} lies beyond the end: there are {last} of {} bytes",
                args.unit
            );
        };
        sum = sum.saturating_add(len);
        wanted.push((at, len));
    }
    if sum > MOST {
        bail!(
            "{shown}: {} at once are too many; ask for at most {}",
            number::bytes(sum),
            number::bytes(MOST)
        );
    }
    let mut lines: Vec<Vec<PlaceLine>> = wanted.iter().map(|_| Vec::new()).collect();
    for part in &parts {
        let whole = [(0, disk.bytes())];
        let ranges = part.volume.as_ref().map_or(&whole[..], |volume| &volume.ranges[..]);
        let here: Vec<(usize, u64, u64)> = (0..)
            .zip(&wanted)
            .flat_map(|(i, (at, len))| {
                ordo_trace::cut(ranges, *at, *len).into_iter().map(move |(at, len)| (i, at, len))
            })
            .collect();
        if here.is_empty() {
            continue;
        }
        part.with(disk, |image, watch| {
            let Some(watch) = watch else { return unknown(args, part, image, &here, &mut lines) };
            watch.doubt().iter().for_each(|doubt| eprintln!("ordo: {shown}: {doubt}"));
            for (i, at, len) in &here {
                let all = meaning(image, &watch, (at - part.origin(), *len));
                let all = all.with_context(|| format!("{shown}: sector {}", at / SECTOR))?;
                lines[*i].extend(all.into_iter().map(|one| line(part, watch.system(), one)));
            }
            Ok(())
        })?;
    }
    // Of one range, the volumes' parts in the disk's order.
    lines.iter_mut().for_each(|all| all.sort_by_key(|line| line.offset));
    Ok(lines.into_iter().flatten().collect())
}

/// Places on a volume without a known file system: an error if it is the only one.
fn unknown(
    args: &Where,
    part: &Part,
    image: &dyn DiskImage,
    here: &[(usize, u64, u64)],
    lines: &mut [Vec<PlaceLine>],
) -> Result<()> {
    let holds = signatures(image);
    let holds = if holds.is_empty() { String::new() } else { format!(": {}", holds.join(", ")) };
    if part.volume.is_none() {
        bail!(
            "{}: no known file system{holds}; --partition or --offset takes the place of one, and a mapped device (LVM, \
             LUKS, md) is looked at by its own name in /dev/mapper or /dev/md",
            args.device.display()
        );
    }
    for (i, at, len) in here {
        let one = MeantRange {
            offset: at - part.origin(),
            len: *len,
            kind: ordo_watcher::Class::Unknown,
            means: format!("no known file system{holds}"),
            ino: None,
            file_offset: None,
            path: None,
            transaction: None,
            home: None,
        };
        lines[*i].push(line(part, "none", one));
    }
    Ok(())
}

fn line(part: &Part, system: &'static str, one: MeantRange) -> PlaceLine {
    let offset = one.offset + part.origin() - part.zero;
    PlaceLine {
        volume: part.name.clone(),
        system,
        sector: offset / SECTOR,
        sectors: one.len.div_ceil(SECTOR),
        offset,
        len: one.len,
        kind: one.kind.key(),
        means: one.means,
        inode: one.ino,
        path: one.path.map(|path| path.to_string()),
        file_offset: one.file_offset,
        transaction: one.transaction,
        home: one.home,
    }
}

fn of_file(args: &Where, disk: &File, path: &str) -> Result<Vec<PlaceLine>> {
    let shown = args.device.display();
    // As paths are shown: from the root, without what would steer a terminal.
    let names = path.split('/').filter(|name| !name.is_empty());
    let names: Vec<String> =
        names.map(|name| ordo_shown::name(name.as_bytes()).to_string()).collect();
    let wanted = format!("/{}", names.join("/"));
    let (mut lines, mut found, mut known) = (Vec::new(), 0, 0);
    for part in parts(args, disk)? {
        part.with(disk, |_, watch| {
            let Some(watch) = watch else { return Ok(()) };
            known += 1;
            let Some(ino) = watch.find(&wanted) else { return Ok(()) };
            found += 1;
            let mut all = watch.contents(ino);
            all.sort_by_key(|range| range.at);
            for range in all {
                let one = MeantRange {
                    offset: range.offset,
                    len: range.len,
                    kind: ordo_watcher::Class::FileData,
                    means: String::new(),
                    ino: Some(ino),
                    file_offset: Some(range.at),
                    path: Some((&*wanted).into()),
                    transaction: None,
                    home: None,
                };
                lines.push(line(&part, watch.system(), one));
            }
            Ok(())
        })?;
    }
    match (known, found) {
        (0, _) => {
            bail!("{shown}: no known file system; --partition or --offset takes the place of one")
        }
        (_, 0) => {
            bail!("{shown}: no file is called {wanted}; paths begin at the root of the file system")
        }
        _ if lines.is_empty() => {
            eprintln!(
                "ordo: {wanted} has no blocks of its own: it is empty, or inside of its inode"
            );
            Ok(lines)
        }
        _ => Ok(lines),
    }
}

fn table(lines: &[PlaceLine]) -> String {
    let right = |name| (name, Align::Right);
    let has_volumes = lines.iter().any(|line| !line.volume.is_empty());
    let mut columns =
        vec![right("sector"), right("sectors"), ("kind", Align::Left), ("file", Align::Left)];
    columns.extend([right("byte of the file"), ("means", Align::Left)]);
    if has_volumes {
        columns.insert(0, ("volume", Align::Left));
    }
    let mut table = Table::new(&columns);
    for line in lines {
        let file = match (&line.path, line.inode) {
            (Some(path), _) => path.clone(),
            (None, Some(inode)) => format!("inode {inode}"),
            (None, None) => String::new(),
        };
        let kind = ordo_watcher::Class::ALL.iter().find(|kind| kind.key() == line.kind);
        let mut row = vec![
            line.sector.to_string(),
            line.sectors.to_string(),
            kind.map_or(line.kind, |kind| kind.words()).to_owned(),
            file,
            line.file_offset.map_or_else(String::new, |at| at.to_string()),
            line.means.clone(),
        ];
        if has_volumes {
            row.insert(0, line.volume.clone());
        }
        table.row(row);
    }
    table.to_string()
}
