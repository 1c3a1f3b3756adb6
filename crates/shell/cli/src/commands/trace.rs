//! `ordo trace`: recording, showing and converting traces.

use std::cell::{Cell, RefCell};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use ordo_annotate::{owners, perfetto, private, rows, store, text};
use ordo_block::Operation;
use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_report::number;
use ordo_trace::dm_log_writes;
use ordo_watcher::Watch;
use ordo_watcher::analysis::WatchFindings;

use super::analyze::Input;
use super::rotate::Rotate;

/// `ordo trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// The command.
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Print every request of a trace with its meaning.
    Show(Show),
    /// Record what a kernel file system writes while a command uses it.
    Run(Box<super::record::Run>),
    /// Record the requests to a device or an image while a command uses it.
    Attach(super::attach::AttachTo),
    /// Serve a device over NBD, and record its requests, while a command runs.
    Serve(super::record::Serve),
    /// Convert a trace of another program to Ordo's form, in Parquet.
    Import(Import),
    /// Write a trace for other programs.
    Export(Export),
    /// Take down mounts, loop devices and FUSE connections of recordings that were killed.
    Cleanup(super::cleanup::Cleanup),
}

/// Convert a trace to Ordo's form.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The trace becomes a directory of four Parquet files, which DuckDB, pandas and Spark read: a row
for each request, one for each block with its meaning, each contents once, and the needed contents
of the device before the trace.

Examples:
  ordo trace import log.img --start before.img -o build.trace
  ordo trace import sda.blktrace.* --start before.img -o build.trace
  perf script | ordo trace import - --only 8,0 --start before.img -o build.trace
  ordo trace import log.img --start before.img --rotate 64m -o traces
  duckdb -c \"select kind, sum(length) from 'build.trace/blocks.parquet' group by kind\"")]
struct Import {
    #[command(flatten)]
    input: Input,
    /// The directory to create.
    #[arg(long, short, value_name = "DIRECTORY")]
    output: PathBuf,
    /// Write the trace in parts, as ordo trace run does: each of this size or time. DIRECTORY is
    /// then the folder of all recordings.
    #[arg(long, value_name = "SIZE|TIME")]
    rotate: Vec<Rotate>,
}

/// The forms in which a trace can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// The log of the kernel's dm-log-writes, for its replay-log.
    DmLogWrites,
    /// Lines as blkparse prints them, with kinds of blocks.
    Text,
    /// JSON for ui.perfetto.dev and chrome://tracing.
    Perfetto,
}

/// Write a trace for other programs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  ordo trace export build.trace --to perfetto -o build.json
  ordo trace export build.trace --to dm-log-writes -o log.img")]
struct Export {
    #[command(flatten)]
    input: Input,
    /// The form.
    #[arg(long, value_enum, value_name = "FORM")]
    to: Form,
    /// Write the output to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Print every request.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A write of blocks that are in the journal too shows the transaction that it writes back. Flushes
and discards stand between the requests.

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

/// `ordo trace`.
///
/// # Errors
/// As its commands.
pub fn trace(args: &TraceArgs) -> Result<ExitCode> {
    let done = match &args.command {
        TraceCommand::Run(args) => return super::record::run(args),
        TraceCommand::Attach(args) => return super::attach::attach(args),
        TraceCommand::Serve(args) => return super::record::serve(args),
        TraceCommand::Cleanup(args) => return super::cleanup::cleanup(args),
        TraceCommand::Show(args) => show_all(args),
        TraceCommand::Import(args) => import(args),
        TraceCommand::Export(args) => export(args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn import(args: &Import) -> Result<()> {
    let opened = args.input.open()?;
    if !args.rotate.is_empty() {
        return super::parts::import(&opened, &args.output, &args.input.name(), &args.rotate);
    }
    let trace = &opened.trace;
    let ((blocks, shares), system) = match &opened.watch {
        Some(watch) => (owners::with_shares(trace, watch), watch.system()),
        None => {
            eprintln!(
                "ordo: no known file system: blocks have no names; --start takes the device as it was before"
            );
            ((rows::unclassified(trace), Vec::new()), "none")
        }
    };
    let found = opened.watch.as_deref().map(WatchFindings::of);
    let parts = store::Parts {
        trace,
        blocks: &blocks,
        shares: &shares,
        calls: &[],
        start: &opened.start,
        system,
        found: found.as_ref(),
    };
    wrote(&args.output, &store::write(&args.output, &parts)?);
    Ok(())
}

/// Prints a summary of the files that were written.
pub(super) fn wrote(dir: &Path, done: &store::Written) {
    let each = done.rows_bytes as f64 / done.requests.max(1) as f64;
    eprintln!(
        "ordo: {}: {} requests, {} blocks, {}; without contents {} bytes a request",
        dir.display(),
        number::count(done.requests),
        number::count(done.blocks),
        number::bytes(done.bytes),
        number::figure(each)
    );
}

fn export(args: &Export) -> Result<()> {
    let opened = args.input.open()?;
    let trace = &opened.trace;
    let out: Box<dyn Write> = match &args.output {
        Some(path) => {
            let file = private::file(path);
            Box::new(file.with_context(|| format!("writing {}", path.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let mut out = BufWriter::new(out);
    let blocks = || match &opened.watch {
        Some(watch) => owners::of_trace(trace, watch),
        None => rows::unclassified(trace),
    };
    match args.to {
        Form::DmLogWrites => {
            let done = dm_log_writes::export(trace, &mut out)?;
            let left = done.reads + done.unfinished;
            if done.dropped > 0 {
                eprintln!(
                    "ordo: {} writes are left out, which a rule dropped: the device never had them",
                    done.dropped
                );
            }
            if left > 0 {
                eprintln!(
                    "ordo: this format has neither reads ({} left out) nor failed requests ({} left out)",
                    done.reads, done.unfinished
                );
            }
        }
        Form::Text => text::write(trace, &blocks(), &mut out)?,
        Form::Perfetto => perfetto::write(trace, &blocks(), &opened.calls, &mut out)?,
    }
    Ok(out.flush()?)
}

/// A watcher, with a function that gets the other requests: flushes and discards.
struct Beside<'w, F> {
    watch: &'w Watch,
    other: F,
}

impl<F: Fn(&Issued<'_>)> TapSink for Beside<'_, F> {
    fn issued(&self, request: &Issued<'_>) {
        if matches!(request.op, Operation::Flush | Operation::Discard) {
            (self.other)(request);
        }
        self.watch.issued(request);
    }

    fn completed(&self, request: &Completed<'_>) {
        self.watch.completed(request);
    }
}

fn show_all(args: &Show) -> Result<()> {
    let (opened, watch) = args.input.known()?;
    let (out, as_json) = (RefCell::new(BufWriter::new(std::io::stdout())), args.json);
    let out = Rc::new(out);
    let failed = Rc::new(Cell::new(None));
    let note = |error: &Cell<Option<io::Error>>, done: io::Result<()>| {
        if let Err(e) = done {
            error.set(Some(e));
        }
    };
    let (into, error) = (out.clone(), failed.clone());
    let number = Rc::new(Cell::new(0));
    let present = number.clone();
    watch.listen(move |told| note(&error, show(&mut *into.borrow_mut(), told, as_json)));
    let other = |request: &Issued<'_>| {
        let request = Issued { id: present.get(), ..*request };
        note(&failed, show_other(&mut *out.borrow_mut(), &request, as_json));
    };
    // Requests get the numbers that the trace's tables have.
    watch.number_by(number.clone());
    ordo_trace::replay_numbered(&opened.trace, &Beside { watch: &watch, other }, &number);
    out.borrow_mut().flush()?;
    match failed.take() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// A flush or a discard.
fn show_other(out: &mut impl Write, request: &Issued<'_>, as_json: bool) -> io::Result<()> {
    let Issued { id, offset, len, .. } = *request;
    let is_flush = request.op == Operation::Flush;
    let op = if is_flush { "flush" } else { "discard" };
    if as_json {
        let line = Line { request: id, op, offset, len, kind: op, means: op.into() };
        serde_json::to_writer(&mut *out, &line)?;
        return writeln!(out);
    }
    match is_flush {
        true => writeln!(out, "{id:6} {op}"),
        false => writeln!(out, "{id:6} {op} {offset:>10} + {len}"),
    }
}

fn show(
    out: &mut impl Write,
    told: &ordo_watcher::ClassifiedEvent<'_>,
    as_json: bool,
) -> std::io::Result<()> {
    let named = told.named;
    let op = match named.op {
        Operation::Read => "read",
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
