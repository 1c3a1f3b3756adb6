//! `ordo analyze`: the meaning of a recorded trace.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use ordo_annotate::calls::{self, StoredCall};
use ordo_annotate::counting::count;
use ordo_annotate::expect::expected;
use ordo_annotate::files::{self, FileTraffic};
use ordo_annotate::input::{Opened, WhichPart, WhichVolume, open, open_each};
use ordo_annotate::owners;
use ordo_annotate::page::page;
use ordo_annotate::parts::whole::WholeTables;
use ordo_annotate::requests::RequestNumbers;
use ordo_annotate::store::{self, is_trace};
use ordo_annotate::tables::StoredTables;
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};
use ordo_trace::RequestOp;
use ordo_trace::formats::taken;
use ordo_watcher::analysis::{Analysis, Spread};
use ordo_watcher::{TrafficCounts, Watch};

use super::traffic::Results;
use super::volumes::together;
use super::window::TraceWindow;
use super::{numbers, parts};
use crate::text::put;

/// A trace, and the state of the device at its start.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Input {
    #[arg(required = true, help = trace_help())]
    trace: Vec<PathBuf>,
    /// The image or device as it was before the trace. The file system is recognised from it. A
    /// directory of ordo trace contains it.
    #[arg(long, short, value_name = "IMAGE")]
    start: Option<PathBuf>,
    /// The partition, if the trace is that of a disk with several: a number, or a name as 'p2' or
    /// 'rest'.
    #[arg(long, value_name = "NUMBER", conflicts_with = "offset")]
    partition: Option<String>,
    /// The file system begins at this byte of the disk, where no partition table leads to it.
    #[arg(long, value_name = "BYTES", value_parser = number::parse_bytes)]
    offset: Option<u64>,
    /// The device, if the text of a tracer has requests of several: as it names them, '8,0' or
    /// 'sda'.
    #[arg(long, value_name = "DEVICE")]
    only: Option<String>,
}

/// The help for the argument of a trace.
fn trace_help() -> String {
    format!(
        "The trace: {}. ordo analyze and ordo whatif also take a folder with the parts of one recording, or all the parts",
        taken()
    )
}

/// The results that the tables of a trace have already.
struct Counted {
    analysis: Analysis,
    files: Vec<FileTraffic>,
    calls: Vec<StoredCall>,
}

impl Counted {
    fn results(&self) -> Results<'_> {
        let Counted { analysis, files, calls } = self;
        Results { analysis, files, calls, requests: None }
    }
}

impl Input {
    /// The analysis from the tables of Ordo's own trace, if the arguments and the tables allow it.
    fn counted(&self) -> Result<Option<Counted>> {
        let ([dir], None) = (&self.trace[..], &self.start) else { return Ok(None) };
        if !is_trace(dir) || !matches!(self.place(), WhichVolume::All) {
            return Ok(None);
        }
        let Some(analysis) = count(dir)? else { return Ok(None) };
        Ok(Some(Counted { analysis, files: files::read(dir)?, calls: calls::read(dir)? }))
    }

    /// The page of a trace whose contents were not kept, by the names that its blocks got when they
    /// passed; `None` for any other trace. Without contents they cannot be named again.
    fn page_of_names(&self) -> Result<Option<String>> {
        let Some(counted) = self.counted()? else { return Ok(None) };
        let dir = &self.trace[0];
        let Some(mut tables) = StoredTables::open(dir)? else { return Ok(None) };
        let mut blocks = Vec::new();
        tables.each(|_, _, _, own| blocks.extend_from_slice(own))?;
        if tables.blind() == 0 {
            return Ok(None);
        }
        let (stored, results) = (store::read(dir)?, counted.results());
        let text = (&*results.text(false)?, &results.sentences()[..]);
        Ok(Some(page(&stored.trace, &blocks, &counted.calls, &counted.analysis, text)))
    }

    /// A trace in this file or directory.
    pub(super) fn of(path: &Path) -> Input {
        Input { trace: vec![path.into()], ..Input::default() }
    }

    /// The tables of Ordo's own trace, or of all parts of a recording, with the directory, if the
    /// arguments allow it and blocks are named.
    pub(super) fn tables(&self) -> Result<Option<(PathBuf, WholeTables)>> {
        let this = self.resolved()?;
        let ([dir], None) = (&this.trace[..], &this.start) else { return Ok(None) };
        if !matches!(this.place(), WhichVolume::All) {
            return Ok(None);
        }
        let tables = match is_trace(dir) {
            true => StoredTables::open(dir)?.map(WholeTables::from),
            false if parts::is_folder(dir) => Some(parts::one_recording(dir)?),
            false => None,
        };
        Ok(tables.map(|tables| (dir.clone(), tables)))
    }

    /// The name of the trace's first file.
    pub(super) fn name(&self) -> String {
        let name = self.trace.first().and_then(|path| path.file_name());
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The wanted volumes.
    fn place(&self) -> WhichVolume<'_> {
        match (&self.partition, self.offset) {
            (Some(name), _) => WhichVolume::Named(name),
            (None, Some(offset)) => WhichVolume::At(offset),
            (None, None) => WhichVolume::All,
        }
    }

    /// The wanted part of the trace.
    fn part(&self) -> WhichPart<'_> {
        WhichPart { volume: self.place(), only: self.only.as_deref() }
    }

    /// The traces of a disk's volumes in a directory, each with its name; none if the argument is
    /// no such directory.
    fn stored_volumes(&self) -> Vec<(String, PathBuf)> {
        let ([dir], None) = (&self.trace[..], &self.start) else { return Vec::new() };
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let named = entries.map(|e| (e.file_name().to_string_lossy().into_owned(), e.path()));
        let mut all: Vec<_> = named.collect();
        // Parts of a recording have names of their own, and nothing else is among the traces of a
        // disk.
        if all.iter().any(|(name, path)| name.contains('=') || !is_trace(path)) {
            return Vec::new();
        }
        all.sort();
        all
    }

    /// The one trace that is asked for: a stored volume, if the argument is a directory of volumes,
    /// or the folder of a recording, if the arguments are all of its parts.
    fn resolved(&self) -> Result<Input> {
        if self.trace.len() > 1 && self.trace.iter().any(|path| path.is_dir()) {
            return Ok(Input { trace: vec![parts::folder_of(&self.trace)?], ..self.clone() });
        }
        let all = self.stored_volumes();
        let wanted = match (&self.partition, &all[..]) {
            (_, []) => return Ok(self.clone()),
            (None, [(_, path)]) => path,
            (None, _) => {
                let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
                bail!(
                    "{}: a directory of several traces ({}); give one of them, or --partition",
                    self.trace[0].display(),
                    names.join(", ")
                );
            }
            (Some(asked), _) => {
                let found = all.iter().find(|(name, _)| {
                    name == asked || name.strip_prefix('p') == Some(asked.as_str())
                });
                let Some((_, path)) = found else {
                    bail!("{}: there is no trace of partition {asked}", self.trace[0].display());
                };
                path
            }
        };
        Ok(Input { trace: vec![wanted.clone()], partition: None, ..self.clone() })
    }

    /// Opens the trace of one volume, and prints notes about it.
    pub(super) fn open(&self) -> Result<Opened> {
        let this = self.resolved()?;
        if let [dir] = &this.trace[..]
            && !is_trace(dir)
            && parts::is_folder(dir)
        {
            bail!("{}: a folder of parts: give one of them", dir.display());
        }
        let opened = open(&this.trace, this.start.as_deref(), this.part())?;
        opened.notes.iter().for_each(|note| eprintln!("ordo: {note}"));
        Ok(opened)
    }

    /// Opens the trace for a command that must know the file system.
    pub(super) fn known(&self) -> Result<(Opened, Rc<Watch>)> {
        let opened = self.open()?;
        let watch = opened.watch.clone().ok_or_else(|| self.not_known())?;
        Ok((opened, watch))
    }

    /// The error where no file system is known.
    fn not_known(&self) -> anyhow::Error {
        let what = self.start.as_ref().unwrap_or(&self.trace[0]).display();
        anyhow!(
            "{what}: no known file system (ext2, ext3, ext4, XFS, JFS, ReiserFS, NTFS, btrfs, NILFS2, F2FS, UFS2); --start takes \
             the device as it was before the trace, --offset the place of a file system on it"
        )
    }
}

/// `ordo analyze`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Recognises ext2, ext3, ext4, XFS, JFS, ReiserFS, NTFS, btrfs, NILFS2, F2FS and UFS2 by their
formats alone. A block to which nothing pointed when it was written is counted as the kind that it
turns out to be. In a trace of ordo trace each block was named when it passed; these names are
counted, except with --again, --start, --html and --expect.

A recording in parts (ordo trace run --rotate) is given by the folder of its parts. They are read
in parallel, and the result is that of the whole recording. Parts that are damaged are named and
set aside; the exit status is then 1.

The trace of a disk with partitions has an analysis for each: p1, p2 and so on, and 'rest' for the
tables and the space between. One of them is chosen with --partition.

Where no file system is known, requests are counted: sizes, latencies, queue, processes.

Examples:
  ordo trace run --fs ext4 -o build.trace -- make; ordo analyze build.trace
  ordo analyze log.img --start disk.img --partition 2
  ordo analyze log.img --start before.img
  ordo analyze log.img --start before.img --json -o analysis.json
  ordo analyze build.trace --html -o build.html
  ordo analyze build.trace --expect
  ordo analyze build.trace --from 2.5s --until 3s
  perf script | ordo analyze - --only 8,0
  ordo analyze /var/ordo/host=web7/device=sdb

A trace is recorded with the kernel's device mapper:
  dmsetup create watched --table \"0 $(blockdev --getsz DISK) log-writes DISK LOG\"")]
pub struct Analyze {
    #[command(flatten)]
    input: Input,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write an HTML page with plots, which needs no network.
    #[arg(long, conflicts_with_all = ["json", "expect"])]
    html: bool,
    /// Report only broken expectations, each with its requests, and exit with 1 if there are any.
    /// Expected are: the rules of write-ahead logging; durability after an fsync, if marks show its
    /// return; changed inodes of overwritten files.
    #[arg(long)]
    expect: bool,
    /// Classify every block again from the recorded contents, even if the tables of the trace have
    /// the counts.
    #[arg(long)]
    again: bool,
    /// Also count what needs no names: latencies, requests at once, processes. The blocks of a
    /// stored trace are classified again.
    #[arg(long, conflicts_with = "expect")]
    requests: bool,
    #[command(flatten)]
    window: TraceWindow,
    /// Write the output to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The choice of what is counted.
#[derive(Clone, Copy)]
struct Counting<'a> {
    window: &'a TraceWindow,
    /// Whether requests are counted beside the blocks.
    requests: bool,
}

impl Analyze {
    fn counting(&self) -> Counting<'_> {
        Counting { window: &self.window, requests: self.requests }
    }
}

/// Prints an analysis of a whole trace, or of each volume of a disk.
///
/// # Errors
/// The trace or the image cannot be read.
pub fn analyze(args: &Analyze) -> Result<ExitCode> {
    let volumes = args.input.stored_volumes();
    if !volumes.is_empty() && args.input.partition.is_none() && !args.html && !args.expect {
        return of_each_stored(args, &volumes);
    }
    let input = &args.input.resolved()?;
    if let ([dir], None) = (&input.trace[..], &input.start)
        && parts::is_folder(dir)
    {
        if args.again || args.requests || args.html || args.expect || !args.window.is_whole() {
            bail!(
                "{}: a folder of parts: --again, --requests, --html, --expect, --from and --until take one part",
                dir.display()
            );
        }
        return parts::analyze(dir, args.json, args.output.as_deref());
    }
    let is_whole = args.window.is_whole();
    let is_again = args.again || args.requests;
    if !(is_again || args.html || args.expect)
        && is_whole
        && let Some(counted) = input.counted()?
    {
        put(args.output.as_deref(), &counted.results().text(args.json)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.expect {
        let (opened, watch) = input.known()?;
        let writes = opened.trace.requests().iter().filter(|r| r.op == RequestOp::Write);
        let blind = writes.filter(|r| r.len > 0 && r.data.is_none()).count();
        if blind > 0 {
            bail!(
                "{}: {} writes without contents: whether a rule is broken cannot be seen; record again with contents",
                input.trace[0].display(),
                number::count(blind as u64)
            );
        }
        let all = expected(&opened.trace, &watch);
        let lines = all.iter().map(|b| format!("{b}\n")).collect();
        put(args.output.as_deref(), &if args.json { json(&all)? } else { lines })?;
        return Ok(if all.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if args.html {
        if let Some(page) = input.page_of_names()?.filter(|_| is_whole) {
            put(args.output.as_deref(), &page)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (opened, watch) = input.known()?;
        put(args.output.as_deref(), &named(&opened, &watch, Some(true), args.counting())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    put(args.output.as_deref(), &of_each(input, args.json, args.counting())?)?;
    Ok(ExitCode::SUCCESS)
}

/// The analyses of all volumes of a disk in a directory of their traces.
fn of_each_stored(args: &Analyze, volumes: &[(String, PathBuf)]) -> Result<ExitCode> {
    let mut texts = Vec::new();
    for (name, path) in volumes {
        let input = Input { trace: vec![path.clone()], ..args.input.clone() };
        let is_counted = !args.again && !args.requests && args.window.is_whole();
        let text = match input.counted()?.filter(|_| is_counted) {
            Some(counted) => counted.results().text(args.json)?,
            None => of_each(&input, args.json, args.counting())?,
        };
        texts.push((&**name, text));
    }
    put(args.output.as_deref(), &together(&texts, args.json)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The analyses of the volumes of a trace that is opened. A volume without a known file system has
/// the numbers that need none.
fn of_each(input: &Input, as_json: bool, how: Counting<'_>) -> Result<String> {
    let window = how.window;
    let all = open_each(&input.trace, input.start.as_deref(), input.part())?;
    let mut texts = Vec::new();
    let is_one = all.len() == 1;
    for (name, opened) in &all {
        opened.notes.iter().for_each(|note| eprintln!("ordo: {note}"));
        let text = match &opened.watch {
            Some(watch) => named(opened, watch, as_json.then_some(false), how)?,
            None => {
                match is_one {
                    true => eprintln!("ordo: {}", input.not_known()),
                    false => eprintln!("ordo: {name} has no known file system"),
                }
                let (from, until) = window.of(&opened.trace)?;
                let numbers = match window.is_whole() {
                    true => RequestNumbers::of(&opened.trace),
                    false => RequestNumbers::of(&opened.trace.part(from, until)),
                };
                numbers::without_names(opened, &numbers, as_json)?
            }
        };
        texts.push((if is_one { "" } else { &**name }, text));
    }
    together(&texts, as_json)
}

/// The analysis of a volume whose blocks are named again: as a page, as JSON, or as text.
fn named(
    opened: &Opened,
    watch: &Rc<Watch>,
    as_page: Option<bool>,
    how: Counting<'_>,
) -> Result<String> {
    let window = how.window;
    let (from, until) = window.of(&opened.trace)?;
    let mut trace = Rc::clone(&opened.trace);
    let mut calls = opened.calls.clone();
    if !window.is_whole() {
        // Everything before is learned, and not counted.
        ordo_trace::replay(&trace.part(0, from), watch);
        let _ = watch.end_part(false);
        watch.restart();
        trace = Rc::new(trace.part(from, until));
        let times = trace.requests().iter().map(|r| r.issued.as_nanos());
        let (first, last) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
        calls.retain(|call| (first..=last).contains(&call.began));
        // Their numbers of requests are those of the whole trace.
        for call in &mut calls {
            call.waits.iter_mut().for_each(|wait| wait.shift(from as u64));
        }
    }
    let (blocks, shares) = owners::with_shares(&trace, watch);
    let files = files::of(&trace, &blocks, &shares);
    let numbers = how.requests.then(|| RequestNumbers::of(&trace));
    let (analysis, requests) = (&Analysis::of(watch), numbers.as_ref());
    let results = Results { analysis, files: &files, calls: &calls, requests };
    match as_page {
        Some(true) => {
            let text = (&*results.text(false)?, &results.sentences()[..]);
            Ok(page(&trace, &blocks, &calls, analysis, text))
        }
        as_json => results.text(as_json.is_some()),
    }
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
        let mut row = |name: &str, c: &TrafficCounts| {
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
        if t.nanos_to_commit.greatest > 0 {
            row("  milliseconds from first to commit", millis(&t.nanos_to_commit));
            row("  milliseconds from commit to last write back", millis(&t.nanos_to_checkpoint));
        }
        row("  commits without a flush before", number::count(t.unordered_commits));
        row("  wrong checksums", number::count(t.bad_checksums));
    }
    for (why, count) in &a.stats.unknown {
        row(&format!("unknown: {}", why.words()), number::count(*count));
    }
    row("blocks counted again after a pointer", number::count(a.stats.settled));
    row("blocks that nothing pointed to", number::count(a.stats.unclaimed));
    if a.stats.without_contents > 0 {
        row("writes without contents", number::count(a.stats.without_contents));
    }
    row("copies without a transaction", number::count(a.orphan_blocks));
    table.to_string()
}

fn millis(s: &Spread) -> String {
    let [least, median, greatest] =
        [s.least, s.median, s.greatest].map(|n| number::figure(n as f64 / 1e6));
    format!("{least} / {median} / {greatest}")
}
