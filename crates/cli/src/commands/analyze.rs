//! `ordo analyze` and `ordo trace`: what a recorded trace means.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};
use ordo_sba::analysis::{Analysis, Spread};
use ordo_sba::{Counts, Watch};
use ordo_trace::Trace;
use ordo_trace::dm_log_writes::{Imported, import};

use crate::text::put;

/// A trace and where it starts from.
#[derive(Args, Debug)]
struct Input {
    /// The trace: the log of a dm-log-writes target, as a file or a device.
    trace: PathBuf,
    /// What the device held before the trace, as an image or a device: the file system is known from it.
    #[arg(long, short, value_name = "IMAGE")]
    start: PathBuf,
}

/// `ordo analyze`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Knows ext2, ext3, ext4, XFS, JFS and ReiserFS from their formats alone, not from their code. What nothing pointed to
when it was written is counted as what it turns out to be.

Examples:
  ordo analyze log.img --start before.img
  ordo analyze log.img --start before.img --json -o analysis.json

A trace is recorded with the kernel's device mapper:
  dmsetup create watched --table \"0 $(blockdev --getsz DISK) log-writes DISK LOG\"")]
pub struct Analyze {
    #[command(flatten)]
    input: Input,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `ordo trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Print every request of a trace with its meaning.
    Show(Show),
    /// Record what a file system of the kernel's writes while a command uses it.
    Run(super::record::Run),
}

/// Print every request.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A write of blocks that are in the journal too says which transaction is written back by it.

Example:
  ordo trace show log.img --start before.img | less")]
struct Show {
    #[command(flatten)]
    input: Input,
    /// Print a line of JSON for each part of a request.
    #[arg(long)]
    json: bool,
}

/// A part of a request, for programs.
#[derive(serde::Serialize)]
struct Line<'a> {
    request: u64,
    op: &'a str,
    offset: u64,
    len: u64,
    kind: &'static str,
    means: String,
}

fn load(input: &Input) -> Result<(Trace, Rc<Watch>)> {
    let path = &input.trace;
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let Imported { trace, cut } = import(bytes).with_context(|| format!("{}", path.display()))?;
    if let Some(cut) = cut {
        let (entry, entries) = (cut.entry, cut.entries);
        eprintln!(
            "ordo: {}: cut short: entry {entry} of {entries}, at byte {}, is not whole; the {entry} before it \
             are used",
            path.display(),
            cut.byte
        );
    }
    Ok((trace, watch(&input.start)?))
}

fn watch(start: &Path) -> Result<Rc<Watch>> {
    let file = File::open(start).with_context(|| format!("opening {}", start.display()))?;
    match Watch::over(&file) {
        Some(watch) => Ok(watch),
        None => bail!(
            "{}: no file system that is known (ext2, ext3, ext4, XFS, JFS, ReiserFS); --start takes the device as it was \
             before the trace",
            start.display()
        ),
    }
}

/// Says what a trace shows as a whole.
///
/// # Errors
/// The trace or the image cannot be read.
pub fn analyze(args: &Analyze) -> Result<()> {
    let (trace, watch) = load(&args.input)?;
    ordo_trace::replay(&trace, &watch);
    let analysis = Analysis::of(&watch);
    let text = if args.json { json(&analysis)? } else { tables(&analysis) };
    put(args.output.as_deref(), &text)
}

/// `ordo trace`.
///
/// # Errors
/// As its commands.
pub fn trace(args: &TraceArgs) -> Result<ExitCode> {
    match &args.command {
        TraceCommand::Show(args) => show_all(args).map(|()| ExitCode::SUCCESS),
        TraceCommand::Run(args) => super::record::run(args),
    }
}

fn show_all(args: &Show) -> Result<()> {
    let (trace, watch) = load(&args.input)?;
    let out = Rc::new(std::cell::RefCell::new(BufWriter::new(std::io::stdout())));
    let failed = Rc::new(std::cell::Cell::new(None));
    let (into, error, as_json) = (out.clone(), failed.clone(), args.json);
    watch.listen(move |told| {
        if let Err(e) = show(&mut *into.borrow_mut(), told, as_json) {
            error.set(Some(e));
        }
    });
    ordo_trace::replay(&trace, &watch);
    out.borrow_mut().flush()?;
    match failed.take() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

fn show(out: &mut impl Write, told: &ordo_sba::Told<'_>, as_json: bool) -> std::io::Result<()> {
    let named = told.named;
    let op = match named.op {
        ordo_block::Operation::Read => "read",
        _ => "write",
    };
    if as_json {
        for part in &named.parts {
            let (request, offset, len) = (named.id, part.offset, part.len);
            let (kind, means) = (part.class.key(), part.to_string());
            serde_json::to_writer(&mut *out, &Line { request, op, offset, len, kind, means })?;
            writeln!(out)?;
        }
        return Ok(());
    }
    write!(out, "{:6} {op} {:>12} + {:<8} {named}", named.id, named.offset, named.len)?;
    let mut homes: Vec<u64> = told.checkpoints.iter().map(|(_, id)| *id).collect();
    homes.sort_unstable();
    homes.dedup();
    for (i, id) in homes.iter().enumerate() {
        write!(out, "{}{id}", if i == 0 { " <- transaction " } else { ", " })?;
    }
    writeln!(out)
}

pub(super) fn tables(a: &Analysis) -> String {
    let mut out = format!("{}\n\n", a.system);
    for (heading, by) in [("written", &a.stats.writes), ("read", &a.stats.reads)] {
        let right = |name| (name, Align::Right);
        let mut table = Table::new(&[
            (heading, Align::Left),
            right("requests"),
            right("sequential"),
            right("blocks"),
            right("bytes"),
            right("share"),
        ]);
        let total = by.total();
        if total.bytes == 0 {
            continue;
        }
        let mut row = |name: &str, c: &Counts| {
            table.row([
                name.to_string(),
                number::count(c.requests),
                number::count(c.sequential),
                number::count(c.blocks),
                number::bytes(c.bytes),
                number::percent(c.bytes as f64, total.bytes as f64),
            ]);
        };
        for (class, counts) in by.iter().filter(|(_, c)| c.bytes > 0) {
            row(class.words(), counts);
        }
        if heading == "written" {
            row("to the journal", &a.journal);
            row("to fixed locations", &a.fixed);
        }
        row("all", &total);
        out += &format!("{table}\n");
    }
    out + &rest(a)
}

fn rest(a: &Analysis) -> String {
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right)]);
    let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
    let spread = |s: &Spread| {
        let [least, median, greatest] = [s.least, s.median, s.greatest].map(number::count);
        format!("{least} / {median} / {greatest}")
    };
    row("flushes", number::count(a.stats.flushes));
    row("discards", number::count(a.stats.discards));
    if let Some(ratio) = a.bytes_per_data_byte {
        row("bytes written for each of file data", number::figure(ratio));
    }
    let t = &a.transactions;
    if t.seen > 0 {
        row(
            "transactions, committed",
            format!("{}, {}", number::count(t.seen), number::count(t.committed)),
        );
        row("  bytes in the journal (least / median / most)", spread(&t.bytes));
        row("  copies of blocks", spread(&t.copies));
        row("  records of changes", spread(&t.records));
        row("  copies of file data", number::count(t.data_copies));
        row("  blocks taken back", number::count(t.revoked));
        row("  requests from first to commit", spread(&t.requests_to_commit));
        row("  requests from commit to last write back", spread(&t.requests_to_checkpoint));
        row("  commits without a flush before", number::count(t.unordered_commits));
        row("  wrong checksums", number::count(t.bad_checksums));
    }
    for (why, count) in &a.stats.unknown {
        row(&format!("unknown: {}", why.words()), number::count(*count));
    }
    row("blocks counted anew when a pointer passed", number::count(a.stats.settled));
    row("blocks that nothing pointed to", number::count(a.stats.unclaimed));
    row("copies without a transaction", number::count(a.strays));
    table.to_string()
}
