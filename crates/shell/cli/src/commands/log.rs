//! `ordo log`: a stand-alone log on the command line.

use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use ordo_block::BlockDevice;
use ordo_block::file::{FileAccess, FileDisk};
use ordo_report::number::parse_bytes;
use ordo_report::{json, number};
use ordo_runtime::{Duration, Runtime};
use ordo_wafs::{
    Lsn, MkfsOptions, MountOptions, Reader, Wafs, WafsRecord, mkfs, mount::find_superblock,
};

use crate::image::real_time;
use crate::overwrite::{examine, replacing};
use crate::text::put;

/// The interval at which a follower reads.
const POLL: Duration = Duration::from_millis(100);

/// `ordo log`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A record is a line, without its line end, or a whole file. Each has a log sequence number (LSN),
which the log never uses twice. `append` returns when all records would survive a power failure.

Examples:
  ordo log create events.log --size 16m
  tail -F /var/log/messages | ordo log append events.log --each
  ordo log append events.log --whole < photo.jpg
  ordo log read events.log --from 4711
  ordo log follow events.log
  ordo log truncate events.log 4711")]
pub struct Log {
    /// The command.
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    /// Make an empty log.
    Create(Create),
    /// Append records from the standard input.
    Append(Append),
    /// Print records.
    Read(ReadLog),
    /// Print records, and then new records as others append them, until interrupted.
    Follow(Follow),
    /// Show the contents of a log.
    Stat(Stat),
    /// Remove the records before a given one.
    Truncate(Truncate),
}

/// Make an empty log.
#[derive(Args, Debug)]
struct Create {
    /// The file, created if it does not exist, or a device.
    log: PathBuf,
    /// Size of the log [default: the whole file or device].
    #[arg(long, short, value_name = "BYTES", value_parser = parse_bytes)]
    size: Option<u64>,
    /// A name of at most 32 bytes.
    #[arg(long, short = 'L', default_value = "")]
    label: String,
    /// Seed of the log's id.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Overwrite whatever the file or device holds, and wipe the signatures of its old contents.
    #[arg(long)]
    force: bool,
}

/// Append records.
#[derive(Args, Debug)]
struct Append {
    /// The log.
    log: PathBuf,
    /// Append the whole input as one record, instead of one for each line.
    #[arg(long)]
    whole: bool,
    /// Make each line durable before the next is read, instead of all at the end.
    #[arg(long, conflicts_with = "whole")]
    each: bool,
    /// Remove the oldest records when the log is full.
    #[arg(long)]
    wrap: bool,
    /// Print each record's LSN.
    #[arg(long, short)]
    verbose: bool,
}

/// Print records.
#[derive(Args, Debug)]
struct ReadLog {
    /// The log.
    log: PathBuf,
    /// Start with this record.
    #[arg(long, value_name = "LSN")]
    from: Option<Lsn>,
    /// Stop before this LSN, and do not read behind it.
    #[arg(long, value_name = "LSN")]
    to: Option<Lsn>,
    /// The most records.
    #[arg(long, short, value_name = "N")]
    count: Option<usize>,
    /// Print JSON with LSNs. Bytes that are not text are printed in hexadecimal.
    #[arg(long)]
    json: bool,
    /// Print only the bytes, without line ends.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

/// Follow a log.
#[derive(Args, Debug)]
struct Follow {
    /// The log.
    log: PathBuf,
    /// Start with this record, instead of the next one that is appended.
    #[arg(long, value_name = "LSN")]
    from: Option<Lsn>,
    /// Stop after this many records.
    #[arg(long, short, value_name = "N")]
    count: Option<usize>,
}

/// Show the contents of a log.
#[derive(Args, Debug)]
struct Stat {
    /// The log.
    log: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Remove old records.
#[derive(Args, Debug)]
struct Truncate {
    /// The log.
    log: PathBuf,
    /// The first record to keep, or the end of the log.
    lsn: Lsn,
}

pub fn run(args: &Log) -> Result<()> {
    match &args.command {
        LogCommand::Create(a) => real_time(async |rt| create(&rt, a).await).context(name(&a.log)),
        LogCommand::Append(a) => real_time(async |rt| append(&rt, a).await).context(name(&a.log)),
        LogCommand::Read(a) => real_time(async |rt| read(&rt, a).await).context(name(&a.log)),
        LogCommand::Follow(a) => real_time(async |rt| follow(&rt, a).await).context(name(&a.log)),
        LogCommand::Stat(a) => real_time(async |rt| stat(&rt, a).await).context(name(&a.log)),
        LogCommand::Truncate(a) => {
            real_time(async |rt| truncate(&rt, a).await).context(name(&a.log))
        }
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

async fn open(runtime: &Runtime, path: &Path, access: FileAccess) -> Result<Wafs> {
    let disk = FileDisk::open(runtime, path, access)?;
    let read_only = access != FileAccess::ReadWrite;
    let options = MountOptions { cluster: 64 << 10, read_only, ..MountOptions::default() };
    Ok(Wafs::mount(runtime, disk, &options).await?)
}

async fn create(runtime: &Runtime, args: &Create) -> Result<()> {
    let disk = match (args.log.exists(), args.size) {
        (true, _) => FileDisk::open(runtime, &args.log, FileAccess::ReadWrite)?,
        (false, Some(size)) => FileDisk::create(runtime, &args.log, size)?,
        (false, None) => bail!("does not exist; give --size to create it"),
    };
    let disk = disk.erase();
    let target = examine(&disk, &args.log, args.force).await?;
    let options =
        MkfsOptions { label: args.label.clone(), seed: args.seed, ..MkfsOptions::default() };
    let make = async || Ok(mkfs(&disk, &options, runtime.wall_time().0).await?);
    let sb = replacing(&[target], make).await?;
    let bytes_max = number::bytes(sb.sectors * sb.payload() as u64);
    put(None, &format!("{}: a log with space for {bytes_max}\n", args.log.display()))
}

/// Appends a record. If it does not fit, removes old records, provided that this is allowed.
async fn append_one(log: &Wafs, record: &[u8], wrap: bool) -> Result<Lsn> {
    let need = record.len() as u64 + 8;
    if wrap && need > log.free_space() && need < log.capacity() / 2 {
        log.force(log.end()).await?;
        // Removes a quarter of the log at a time, since the superblock should be written seldom.
        let keep_from = log.start() + need.max(log.capacity() / 4);
        let mut reader = log.reader(log.start());
        while reader.at() < keep_from.min(log.end()) {
            if reader.next().await?.is_none() {
                break;
            }
        }
        log.truncate(reader.at());
        log.checkpoint(None).await?;
    }
    Ok(log.append(record)?.lsn)
}

async fn append(runtime: &Runtime, args: &Append) -> Result<()> {
    let log = open(runtime, &args.log, FileAccess::ReadWrite).await?;
    let mut input = std::io::stdin().lock();
    let mut out = std::io::stdout().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = if args.whole {
            input.read_to_end(&mut line)?
        } else {
            input.read_until(b'\n', &mut line)?
        };
        if n == 0 {
            break;
        }
        if !args.whole && line.last() == Some(&b'\n') {
            line.pop();
        }
        let lsn = append_one(&log, &line, args.wrap).await?;
        if args.each {
            log.force(log.end()).await?;
        }
        if args.verbose {
            writeln!(out, "{lsn}")?;
        }
    }
    Ok(log.unmount().await?)
}

#[derive(serde::Serialize)]
struct Line {
    lsn: Lsn,
    end: Lsn,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

impl Line {
    fn of(record: WafsRecord) -> Line {
        let WafsRecord { lsn, end, bytes, .. } = record;
        match String::from_utf8(bytes) {
            Ok(text) => Line { lsn, end, text: Some(text), hex: None },
            Err(e) => {
                let hex = e.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
                Line { lsn, end, text: None, hex: Some(hex) }
            }
        }
    }
}

async fn read(runtime: &Runtime, args: &ReadLog) -> Result<()> {
    let disk = FileDisk::open(runtime, &args.log, FileAccess::ReadOnly)?.erase();
    // If the end is given, the log is read without a mount, whatever its state behind that.
    let sb = find_superblock(&disk).await?;
    let log = match args.to {
        Some(_) => None,
        None => Some(open(runtime, &args.log, FileAccess::ReadOnly).await?),
    };
    let from = args.from.unwrap_or(sb.start);
    if let Some(log) = log.as_ref().filter(|log| from < log.end()) {
        log.read(from).await?;
    }
    let to = args.to.or(log.as_ref().map(Wafs::end)).unwrap_or(Lsn::MAX);
    let mut reader = Reader::on(&disk, &sb, from);
    let mut out = std::io::stdout().lock();
    let mut lines = Vec::new();
    for _ in 0..args.count.unwrap_or(usize::MAX) {
        let Some(record) = reader.next().await?.filter(|record| record.end <= to) else { break };
        if args.json {
            lines.push(Line::of(record));
        } else {
            out.write_all(&record.bytes)?;
            out.write_all(if args.raw { b"" } else { b"\n" })?;
        }
    }
    if args.json {
        out.write_all(json(&lines)?.as_bytes())?;
    }
    Ok(out.flush()?)
}

async fn follow(runtime: &Runtime, args: &Follow) -> Result<()> {
    let log = open(runtime, &args.log, FileAccess::Watch).await?;
    let mut reader = log.reader(args.from.unwrap_or(log.end()));
    let mut out = std::io::stdout().lock();
    let mut left = args.count.unwrap_or(usize::MAX);
    while left > 0 {
        match reader.next().await? {
            Some(record) => {
                out.write_all(&record.bytes)?;
                out.write_all(b"\n")?;
                left -= 1;
            }
            None => {
                out.flush()?;
                let start = find_superblock(log.device()).await?.start;
                if start > reader.at() {
                    bail!(
                        "records from {} to {start} were removed before they were read",
                        reader.at()
                    );
                }
                runtime.sleep(POLL).await;
                reader.again();
            }
        }
    }
    Ok(out.flush()?)
}

#[derive(serde::Serialize)]
struct Stats {
    log: String,
    label: String,
    sector: u32,
    capacity: u64,
    start: Lsn,
    end: Lsn,
    records: u64,
    bytes_max: u64,
    epoch: u32,
    made: i64,
    repaired_sectors: u64,
    incomplete_bytes: u64,
}

async fn stat(runtime: &Runtime, args: &Stat) -> Result<()> {
    let log = open(runtime, &args.log, FileAccess::ReadOnly).await?;
    let sb = log.superblock();
    let label = sb.label.split(|b| *b == 0).next().unwrap_or_default();
    let stats = Stats {
        log: name(&args.log),
        label: String::from_utf8_lossy(label).into_owned(),
        sector: sb.sector,
        capacity: log.capacity(),
        start: log.start(),
        end: log.end(),
        records: log.mounted().records,
        bytes_max: log.free_space(),
        epoch: sb.epoch,
        made: sb.made,
        repaired_sectors: log.mounted().repaired,
        incomplete_bytes: log.mounted().incomplete,
    };
    if args.json {
        return put(None, &json(&stats)?);
    }
    let mut text = format!(
        "{}: {} records from {} to {}, {} of {} free, mounted {} times for writing\n",
        stats.log,
        number::count(stats.records),
        stats.start,
        stats.end,
        number::bytes(stats.bytes_max),
        number::bytes(stats.capacity),
        stats.epoch,
    );
    if stats.repaired_sectors > 0 {
        text.push_str(&format!("{} sectors with a flipped bit\n", stats.repaired_sectors));
    }
    put(None, &text)
}

async fn truncate(runtime: &Runtime, args: &Truncate) -> Result<()> {
    let log = open(runtime, &args.log, FileAccess::ReadWrite).await?;
    if args.lsn != log.end() {
        log.read(args.lsn).await?;
    }
    log.truncate(args.lsn);
    Ok(log.unmount().await?)
}
