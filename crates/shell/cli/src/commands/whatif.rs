//! `ordo whatif`: the predicted time of a trace for another file system or disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use ordo_annotate::input::WhichVolume;
use ordo_annotate::owners;
use ordo_block::model::Model;
use ordo_report::number::{self, parse_bytes};
use ordo_report::progress::Progress;
use ordo_report::table::{Align, Table};
use ordo_report::{json, page};
use ordo_stp::change::{self, JournalPlace, PlanChange};
use ordo_stp::predict::{Input, PredictPhase, PredictedOutcome, Predictor, Unchanged, Window};
use ordo_stp::real::Real;
use serde::Serialize;

use super::analyze;
use crate::text::put;

/// `ordo whatif`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Plays a recorded trace on the model of the disk on which it was recorded, closed loop: a request is issued when those that it
waited for are complete, and the recorded think time has passed. The unchanged trace comes first, and its error is printed;
if it is larger than --bound, nothing is predicted. Several changes are predicted one by one and all together.
Semantic trace playback: 'Analysis and Evolution of Journaling File Systems' (2005), sections 2.2 and 3.3.

Time is measured between two marks, which the command writes to $ORDO_MARK, or over the whole trace.

Examples:
  ordo trace run --fs ext3 --disk viking -o a.trace -- sh -c 'for i in 1 2 3; do date > f; sync f; done'
  ordo whatif a.trace --journal-at 50%
  ordo whatif a.trace --mode data --differential --json
  ordo whatif a.trace --journal-device nvram --html -o a.html
  ordo whatif a.trace --journal-at 50% --made moved.trace
  ordo whatif a.trace --barriers off --device /dev/sdx1")]
pub struct WhatIf {
    #[command(flatten)]
    input: analyze::Input,
    /// The disk on which the trace was recorded, if the trace does not name it. If the disk is not known, requests take
    /// the time that they took in the trace, and changes of places are refused.
    #[arg(long = "recorded-on", value_name = "MODEL", value_parser = crate::args::disk)]
    recorded_on: Option<&'static Model>,
    /// Measure from the mark with this text on.
    #[arg(long, value_name = "MARK")]
    from: Option<String>,
    /// Measure until the mark with this text.
    #[arg(long, value_name = "MARK")]
    until: Option<String>,
    #[command(flatten)]
    changes: Changes,
    /// A trace of the same command with all these changes really made. Its time is printed beside the prediction.
    #[arg(long, value_name = "TRACE")]
    made: Option<PathBuf>,
    /// Predict nothing if playback of the unchanged trace differs from the trace by more than this.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    bound: f64,
    /// Play on this block device, or in this file, in real time with io_uring: each change and the unchanged trace by
    /// turns. A file that does not exist is created, and removed afterwards.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["disk", "journal_device"])]
    device: Option<PathBuf>,
    /// With --device: overwrite what is stored there.
    #[arg(long, requires = "device")]
    force: bool,
    /// With --device: play everything this many times. The median counts; the spread is the interval.
    #[arg(long, value_name = "N", default_value = "3", requires = "device",
        value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a page with both timelines instead, for a browser without a network.
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// Write to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The changes, in the order in which they are made.
#[derive(Args, Debug)]
#[command(next_help_heading = "Changes")]
struct Changes {
    /// WhichVolume the journal elsewhere on the disk: at a part of it, or at a byte. The blocks there change places with it.
    #[arg(long = "journal-at", value_name = "PERCENT|BYTE", value_parser = place)]
    journal_at: Option<JournalPlace>,
    /// Log file data: never (ordered), always (data), or if it is not sequential (adaptive). For ext3 and ext4.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// With --mode data or adaptive: write data to its fixed location at the next sync of its file, as Linux 6 does, or
    /// by the writeback timer and when the journal is half full, as Linux 2.4 does.
    #[arg(long = "checkpoint-at", value_name = "WHEN", default_value = "sync")]
    checkpoint_at: CheckpointAt,
    /// Send the journal writes of a transaction without waiting for its data. The commit block waits for both.
    #[arg(long)]
    overlap: bool,
    /// Log the bytes that changed instead of whole blocks.
    #[arg(long)]
    differential: bool,
    /// Flush: never (off), before and after each commit block (on), or before it, with the commit block sent with FUA
    /// (fua).
    #[arg(long, value_name = "HOW")]
    barriers: Option<Barriers>,
    /// Give the journal a disk of its own, of this model.
    #[arg(long = "journal-device", value_name = "MODEL", value_parser = crate::args::disk)]
    journal_device: Option<&'static Model>,
    /// Use another disk.
    #[arg(long, value_name = "MODEL", value_parser = crate::args::disk)]
    disk: Option<&'static Model>,
    /// Set the disk's write cache: with none, every write goes to the platter.
    #[arg(long, value_name = "CACHE")]
    cache: Option<Cache>,
}

/// A mode on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Ordered,
    Data,
    Adaptive,
}

/// The time at which data in the journal is written to its fixed location, on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CheckpointAt {
    Sync,
    Timer,
}

/// Barriers on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Barriers {
    Off,
    On,
    Fua,
}

/// A cache on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cache {
    None,
}

fn place(text: &str) -> Result<JournalPlace, String> {
    match text.strip_suffix('%') {
        Some(part) => match part.parse::<f64>() {
            Ok(part) if (0.0..=100.0).contains(&part) => {
                Ok(JournalPlace::Permille((part * 10.0) as u64))
            }
            _ => Err(format!("'{text}' is not a position on a disk; use 0% to 100%")),
        },
        None => parse_bytes(text).map(JournalPlace::Byte),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    match number {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number / 100.0),
        _ => Err(format!("'{text}' is not a percentage")),
    }
}

impl Changes {
    fn list(&self) -> Vec<PlanChange> {
        let home = match self.checkpoint_at {
            CheckpointAt::Sync => change::Home::Sync,
            CheckpointAt::Timer => change::Home::Timer,
        };
        let mode = self.mode.map(|mode| match mode {
            Mode::Ordered => change::Mode::Ordered,
            Mode::Data => change::Mode::Data(home),
            Mode::Adaptive => change::Mode::Adaptive(home),
        });
        let barriers = self.barriers.map(|barriers| match barriers {
            Barriers::Off => change::Barriers::Off,
            Barriers::On => change::Barriers::On,
            Barriers::Fua => change::Barriers::Fua,
        });
        [
            mode.map(PlanChange::Mode),
            self.differential.then_some(PlanChange::Differential),
            self.overlap.then_some(PlanChange::Overlap),
            barriers.map(PlanChange::Barriers),
            self.journal_at.map(PlanChange::JournalAt),
            self.disk.map(PlanChange::Disk),
            self.journal_device.map(PlanChange::JournalDevice),
            self.cache.map(|Cache::None| PlanChange::CacheOff),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct Printed {
    recorded_on: Option<&'static str>,
    /// The real device on which the rows were played.
    played_on: Option<String>,
    file_system: String,
    journal_bytes: Option<u64>,
    bound: f64,
    /// The reason why there are no rows.
    refused: Option<String>,
    unchanged: First,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct First {
    measured_seconds: f64,
    predicted_seconds: f64,
    error: f64,
    interval: (f64, f64),
    #[serde(flatten)]
    told: TimeAndTraffic,
}

#[derive(Serialize)]
struct Row {
    change: String,
    measured_seconds: Option<f64>,
    predicted_seconds: f64,
    interval: (f64, f64),
    /// The error of the prediction, if the change was really made.
    error: Option<f64>,
    /// The time over that of the unchanged playback.
    ratio: f64,
    #[serde(flatten)]
    told: TimeAndTraffic,
}

/// The time, by its causes, and the requests sent.
#[derive(Serialize)]
struct TimeAndTraffic {
    spent_seconds: BTreeMap<&'static str, f64>,
    /// The seconds in which at least one request was under way, also where nothing waited for it.
    busy_seconds: f64,
    requests: BTreeMap<&'static str, u64>,
    bytes: BTreeMap<&'static str, u64>,
}

impl TimeAndTraffic {
    fn of(outcome: &PredictedOutcome) -> TimeAndTraffic {
        let requests = &outcome.requests;
        TimeAndTraffic {
            spent_seconds: outcome.spent.iter().map(|(what, s)| (what.key(), *s)).collect(),
            busy_seconds: outcome.busy(),
            requests: requests.iter().map(|(role, (n, _))| (role.key(), *n)).collect(),
            bytes: requests.iter().map(|(role, (_, bytes))| (role.key(), *bytes)).collect(),
        }
    }
}

/// Predicts.
///
/// # Errors
/// The trace cannot be read or played, or a change means nothing for it.
pub fn whatif(args: &WhatIf) -> Result<ExitCode> {
    let (opened, watch) = args.input.known()?;
    let rows = owners::of_trace(&opened.trace, &watch);
    let system = watch.system().to_string();
    let disk = args.recorded_on.or_else(|| opened.trace.disk().and_then(Model::by_name));
    let window = Window { from: args.from.clone(), until: args.until.clone() };
    let input = Input {
        trace: &opened.trace,
        rows: &rows,
        start: &opened.start,
        system: &system,
        bytes: opened.start.bytes,
        disk,
    };
    let predictor = Predictor::new(input, &window)?;
    let unchanged = predictor.unchanged()?;
    let far = unchanged.error.abs() > args.bound;
    let refused = far.then(|| {
        format!(
            "playback of the unchanged trace is {:+.1} % off, more than --bound {:.1} %: its time depends on something that is not in the trace, or it was not recorded on {}",
            unchanged.error * 100.0,
            args.bound * 100.0,
            disk.map_or("this disk", |model| model.name)
        )
    });
    let changes = args.changes.list();
    let alone = changes.iter().map(std::slice::from_ref).filter(|_| changes.len() > 1);
    let all = Some(&changes[..]).filter(|all| !all.is_empty());
    let sets: Vec<&[PlanChange]> = alone.chain(all).collect();
    let outcomes = match &args.device {
        _ if far => Vec::new(),
        Some(path) => on_device(args, path, &predictor, opened.start.bytes, sets)?,
        None => {
            let named = |set: &[PlanChange]| -> Result<(String, PredictedOutcome)> {
                Ok((change::name(set), predictor.changed(set, unchanged.error)?))
            };
            sets.into_iter().map(named).collect::<Result<_>>()?
        }
    };
    let made = args.made.as_ref().map(|path| made(path, &window)).transpose()?;
    let printed = Printed {
        journal_bytes: predictor.journal().map(|span| span.len()),
        played_on: args.device.as_ref().map(|path| path.display().to_string()),
        bound: args.bound,
        refused,
        ..print(disk, &system, (&unchanged, &outcomes), made.filter(|_| !changes.is_empty()))
    };
    let text = match (args.json, args.html) {
        (true, _) => json(&printed)?,
        (_, true) => timelines(&printed, &unchanged, &outcomes),
        _ => table(&printed),
    };
    put(args.output.as_deref(), &text)?;
    Ok(if far { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Plays the unchanged trace and each set of changes on a real device.
fn on_device(
    args: &WhatIf,
    path: &Path,
    predictor: &Predictor<'_>,
    bytes: u64,
    sets: Vec<&[PlanChange]>,
) -> Result<Vec<(String, PredictedOutcome)>> {
    let real = Real::open(path, bytes, args.force)?;
    let sets: Vec<&[PlanChange]> = std::iter::once(&[][..]).chain(sets).collect();
    let progress = Progress::new(args.quiet);
    let begun = std::cell::Cell::new(None);
    let follow = |doing: PredictPhase| {
        let (what, done, all) = match doing {
            PredictPhase::Preparing(done, all) => ("preparing", done, all),
            PredictPhase::Playing(done, all) => ("playing", done, all),
        };
        if begun.replace(Some(what)) != Some(what) {
            progress.begin(&path.display().to_string(), what, all);
        }
        progress.reach(done, all);
    };
    let outcomes = predictor.on_device(&real, &sets, usize::from(args.rounds), follow);
    progress.finish();
    Ok(sets.iter().map(|set| change::name(set)).zip(outcomes?).collect())
}

/// The seconds between the marks of another trace.
fn made(path: &Path, window: &Window) -> Result<f64> {
    let opened = ordo_annotate::input::open(&[path.to_path_buf()], None, WhichVolume::All)?;
    let all = opened.trace.requests();
    let mark = |text: &Option<String>, from: usize| {
        let Some(text) = text else { return Ok(None) };
        let at = all.iter().enumerate().skip(from).find(|(_, r)| {
            r.op == ordo_trace::RequestOp::Mark && opened.trace.data(r) == Some(text.as_bytes())
        });
        match at {
            Some((n, _)) => Ok(Some(n)),
            None => bail!("{}: the trace has no mark '{text}'", path.display()),
        }
    };
    let from = mark(&window.from, 0)?.unwrap_or(0);
    let until = mark(&window.until, from + 1)?;
    let Some(first) = all.get(from) else { bail!("{}: the trace has no requests", path.display()) };
    let last = match until {
        Some(n) => all[n].issued,
        None => all.iter().filter_map(|r| r.end).map(|end| end.at).max().unwrap_or(first.issued),
    };
    Ok(last.since(first.issued).as_secs_f64())
}

fn print(
    disk: Option<&'static Model>,
    system: &str,
    (unchanged, outcomes): (&Unchanged, &[(String, PredictedOutcome)]),
    made: Option<f64>,
) -> Printed {
    // On a real device, the unchanged trace was played there too, and comes first.
    let own = outcomes.first().filter(|(name, _)| name == "unchanged").map(|(_, own)| own);
    let base = own.unwrap_or(&unchanged.predicted).seconds;
    let last = outcomes.len().saturating_sub(1);
    let rows = outcomes.iter().enumerate().map(|(n, (change, outcome))| {
        // The trace with the changes really made has all of them, so it is compared with the last row.
        let measured = made.filter(|_| n == last);
        Row {
            change: change.clone(),
            measured_seconds: measured,
            predicted_seconds: outcome.seconds,
            interval: outcome.interval,
            error: measured.map(|measured| outcome.seconds / measured - 1.0),
            ratio: outcome.seconds / base,
            told: TimeAndTraffic::of(outcome),
        }
    });
    Printed {
        recorded_on: disk.map(|model| model.name),
        played_on: None,
        file_system: system.to_owned(),
        journal_bytes: None,
        bound: 0.0,
        refused: None,
        unchanged: First {
            measured_seconds: unchanged.measured,
            predicted_seconds: unchanged.predicted.seconds,
            error: unchanged.error,
            interval: unchanged.predicted.interval,
            told: TimeAndTraffic::of(&unchanged.predicted),
        },
        rows: rows.collect(),
    }
}

fn signed(x: f64) -> String {
    format!("{:+.1} %", x * 100.0)
}

/// The predictions as a table, and below it where the time goes.
fn table(printed: &Printed) -> String {
    let right = Align::Right;
    let mut rows = Table::new(&[
        (&printed.file_system, Align::Left),
        ("predicted", right),
        ("interval", right),
        ("ratio", right),
        ("measured", right),
        ("error", right),
    ]);
    let span = |(a, b): (f64, f64)| format!("{} - {}", number::seconds(a), number::seconds(b));
    let first = &printed.unchanged;
    rows.row([
        "unchanged".into(),
        number::seconds(first.predicted_seconds),
        span(first.interval),
        String::new(),
        number::seconds(first.measured_seconds),
        signed(first.error),
    ]);
    let real = printed.played_on.as_ref();
    for (n, row) in printed.rows.iter().enumerate() {
        let place = real.filter(|_| n == 0).map(|path| format!(", on {path}"));
        rows.row([
            format!("{}{}", row.change, place.unwrap_or_default()),
            number::seconds(row.predicted_seconds),
            span(row.interval),
            format!("{:.3}", row.ratio),
            row.measured_seconds.map(number::seconds).unwrap_or_default(),
            row.error.map(signed).unwrap_or_default(),
        ]);
    }
    let mut text = format!("{rows}\n");
    if let Some(refused) = &printed.refused {
        text.push_str(&format!("No prediction: {refused}.\n"));
    }
    let recorded = printed.recorded_on;
    let recorded = recorded.unwrap_or("the disk of the trace, with the times that it took there");
    let on = real.map_or(recorded, |path| path);
    text.push_str(&format!("\nWhere the time goes, on {on}:\n\n"));
    let mut columns = Vec::new();
    if real.is_none() || printed.rows.is_empty() {
        columns.push(("unchanged", &first.told));
    }
    columns.extend(printed.rows.iter().map(|row| (row.change.as_str(), &row.told)));
    text.push_str(&where_it_goes(&columns));
    text
}

fn where_it_goes(columns: &[(&str, &TimeAndTraffic)]) -> String {
    let mut table = Table::new(&[("", Align::Left)]);
    columns.iter().for_each(|(name, _)| table.column(name, Align::Right));
    let mut keys: Vec<&str> =
        columns.iter().flat_map(|(_, t)| t.spent_seconds.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let cells = columns.iter().map(|(_, told)| {
            let seconds = told.spent_seconds.get(key).copied().unwrap_or(0.0);
            let requests = told.requests.get(key).copied().unwrap_or(0);
            match requests {
                0 => number::seconds(seconds),
                n => format!("{} ({})", number::seconds(seconds), number::count(n)),
            }
        });
        table.row(std::iter::once(key.to_owned()).chain(cells));
    }
    format!("{table}\n\nSeconds on the critical path, and requests in brackets.\n")
}

/// The page: the table, and the timelines one above the other on one scale.
fn timelines(
    printed: &Printed,
    unchanged: &Unchanged,
    outcomes: &[(String, PredictedOutcome)],
) -> String {
    let mut runs = Vec::new();
    if printed.played_on.is_none() {
        runs.push(("unchanged", &unchanged.predicted));
    }
    runs.extend(outcomes.iter().map(|(name, outcome)| (name.as_str(), outcome)));
    let lanes: Vec<page::Timeline<'_>> = runs
        .iter()
        .map(|(name, outcome)| page::Timeline {
            title: name,
            seconds: outcome.seconds,
            spans: outcome.timeline.iter().map(|(role, a, b)| (role.key(), *a, *b)).collect(),
        })
        .collect();
    page::timelines("Semantic trace playback", &table(printed), &lanes)
}
