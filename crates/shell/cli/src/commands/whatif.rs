//! `ordo whatif`: the predicted time of a trace for another file system or disk.

mod changes;
mod source;
mod ways;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use ordo_block::model::Model;
use ordo_playback::calls::{CommitOrder, ContentsPolicy, JournalPolicy};
use ordo_playback::change::{self, PlanChange};
use ordo_playback::predict::{
    Input, PredictError, PredictPhase, PredictedOutcome, Predictor, Unchanged, Window,
};
use ordo_playback::real::Real;
use ordo_report::number;
use ordo_report::progress::Progress;
use ordo_report::table::{Align, Table};
use ordo_report::{json, page};
use serde::Serialize;

use self::changes::Changes;
use self::source::PlayedTrace;
use self::ways::{Method, Ways};
use super::analyze;
use crate::text::put;

/// `ordo whatif`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Plays a recorded trace on the model of the disk that it was recorded on, closed loop: a request is
issued when those that it waited for are complete, and the recorded think time has passed. The
unchanged trace is played first, and its error is printed; if that exceeds --bound, nothing is
predicted. Several changes are predicted one by one, and all together. This is semantic trace
playback: 'Analysis and Evolution of Journaling File Systems' (2005), sections 2.2 and 3.3.

Time is measured over the recorded command, whose begin and end trace run marks, or between two
marks that it writes to $ORDO_MARK (--from, --until).

Examples:
  ordo trace run --fs ext3 --disk viking -o a.trace -- \\
    sh -c 'for i in 1 2 3; do date > f; sync f; done'
  ordo whatif a.trace --journal-at 50%
  ordo whatif a.trace --mode data --differential --json
  ordo whatif a.trace --journal-device nvram --html -o a.html
  ordo whatif a.trace --journal-at 50% --made moved.trace
  ordo whatif a.trace --barriers off --device /dev/sdx1")]
pub struct WhatIf {
    #[command(flatten)]
    input: analyze::Input,
    /// The disk on which the trace was recorded, if the trace does not name it. If the disk is not
    /// known, requests take the time that they took in the trace, and changes of places are
    /// refused.
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
    /// The output of `strace -f -ttt -T -y` for the same run, if the trace has no calls.
    #[arg(long, value_name = "FILE", requires = "mounted_at")]
    strace: Option<PathBuf>,
    /// With --strace: the directory at which the file system was mounted.
    #[arg(long = "mounted-at", value_name = "DIR", requires = "strace")]
    mounted_at: Option<PathBuf>,
    /// With --strace: the time of the trace's clock at 0, in seconds since 1970 [default: the first
    /// call was made when the first request was issued].
    #[arg(long, value_name = "SECONDS", requires = "strace")]
    clock: Option<f64>,
    /// The number of requests under way at once, if the trace has no times that show it: a log of
    /// dm-log-writes, or of fio. Flushes and writes of the same bytes keep their order.
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(1..))]
    depth: u16,
    /// Play the calls of the programs, or the requests of the trace. By default calls are played
    /// where the journal is Ordo's, or that of ext3 or ext4; on other file systems for changes that
    /// need them.
    #[arg(long, value_name = "OBJECTS")]
    play: Option<Method>,
    /// A trace of the same command with all these changes really made. Its time is printed beside
    /// the prediction. Of several such traces the median counts.
    #[arg(long, value_name = "TRACE")]
    made: Vec<PathBuf>,
    /// Predict nothing if playback of the unchanged trace differs from the trace by more than this.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    bound: f64,
    /// Play on this block device, or in this file, in real time with io_uring: each change and the
    /// unchanged trace by turns. A file that does not exist is created, and removed afterwards.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["disk", "journal_device"])]
    device: Option<PathBuf>,
    /// With --device: overwrite what is stored there.
    #[arg(long, requires = "device")]
    force: bool,
    /// With --device: play everything this many times. The median counts; the spread is the
    /// interval.
    #[arg(long, value_name = "N", default_value = "3", requires = "device",
        value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page with both timelines.
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// Write to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    match number {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number / 100.0),
        _ => Err(format!("'{text}' is not a percentage")),
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
    /// The objects that are played: `calls` of programs, or `requests`. A row may have its own.
    method: Method,
    /// The reason why calls that the trace has were not played.
    calls_refused: Option<String>,
    /// The policies of the journal that the calls and requests show.
    policy: Option<String>,
    /// Calls that were not played, by the reason.
    calls_left_out: BTreeMap<&'static str, u64>,
    /// The reason why there are no rows.
    refused: Option<String>,
    /// Changes that mean nothing by themselves, with the reasons: they are in the last row alone.
    only_together: Vec<String>,
    unchanged: First,
    /// The unchanged playback of the other objects, if some rows are of these.
    unchanged_other: Option<First>,
    rows: Vec<Row>,
}

/// A set of changes by its name, what was played, and the result.
type PredictedSet = (String, Method, PredictedOutcome);

#[derive(Serialize)]
struct First {
    /// `null` if the trace has no times; the error is 0 then.
    measured_seconds: Option<f64>,
    predicted_seconds: f64,
    error: f64,
    interval: (f64, f64),
    #[serde(flatten)]
    told: TimeAndTraffic,
}

impl First {
    fn of(unchanged: &Unchanged) -> First {
        First {
            measured_seconds: unchanged.measured,
            predicted_seconds: unchanged.predicted.seconds,
            error: unchanged.error,
            interval: unchanged.predicted.interval,
            told: TimeAndTraffic::of(&unchanged.predicted),
        }
    }
}

#[derive(Serialize)]
struct Row {
    change: String,
    method: Method,
    /// The time with the change really made: the median of all runs.
    measured_seconds: Option<f64>,
    /// The least and the most of these runs.
    measured_interval: Option<(f64, f64)>,
    predicted_seconds: f64,
    interval: (f64, f64),
    /// The error of the prediction against the median, if the change was really made.
    error: Option<f64>,
    /// The time over that of the unchanged playback of the same objects.
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
    let strace = args.strace.as_deref().zip(args.mounted_at.as_deref());
    let strace = strace.map(|(file, dir)| (file, dir, args.clock));
    let (trace, seen) = PlayedTrace::open(&args.input, strace)?;
    let disk = args.recorded_on.or_else(|| trace.disk.as_deref().and_then(Model::by_name));
    let window = Window { from: args.from.clone(), until: args.until.clone() };
    let input = Input {
        contents: trace.contents(),
        calls: &trace.calls,
        start: trace.start(),
        system: &trace.system,
        // The device as it is known, and at least up to its last request.
        bytes: seen.end().max(trace.start().bytes),
        disk,
        depth: usize::from(args.depth),
    };
    if disk.is_none() && args.device.is_none() && !seen.has_times() {
        bail!(
            "{}: the trace has no times, and no disk on which it is played; name one with --recorded-on, or a real one with \
             --device",
            args.input.name()
        );
    }
    let predictor = Predictor::new(input, seen, &window)?;
    let printed = predict(args, &predictor, (&input, &window))?;
    trace.check()?;
    put(args.output.as_deref(), &printed.0)?;
    Ok(printed.1)
}

/// Plays the trace unchanged, and with each change and all of them. Returns the text to print.
fn predict(
    args: &WhatIf,
    predictor: &Predictor<'_>,
    (input, window): (&Input<'_>, &Window),
) -> Result<(String, ExitCode)> {
    let ways = Ways::new(predictor, args.play, args.bound)?;
    let refused = refused(args, ways.unchanged(ways.usual()), input.disk);
    let far = refused.is_some();
    let changes = args.changes.list();
    let alone = changes.iter().map(std::slice::from_ref).filter(|_| changes.len() > 1);
    let all = Some(&changes[..]).filter(|all| !all.is_empty());
    let sets: Vec<&[PlanChange]> = alone.chain(all).collect();
    let mut only_together = Vec::new();
    let outcomes = match &args.device {
        _ if far => Vec::new(),
        Some(path) => on_device(args, path, &ways, input.bytes, sets)?,
        None => in_virtual_time(&ways, &sets, &mut only_together)?,
    };
    let by_calls = ways.method(&changes) == Method::Calls;
    let made = args.made.iter().map(|path| source::seconds(path, window, by_calls));
    let mut made: Vec<f64> = made.collect::<Result<_>>()?;
    made.sort_by(f64::total_cmp);
    if changes.is_empty() {
        made.clear();
    }
    let printed = Printed {
        journal_bytes: predictor.journal().map(|span| span.len()),
        played_on: args.device.as_ref().map(|path| path.display().to_string()),
        bound: args.bound,
        refused,
        only_together,
        calls_refused: ways.why_not_calls().filter(|_| !input.calls.is_empty()).cloned(),
        ..print((input.disk, input.system), &ways, &outcomes, &made)
    };
    let text = match (args.json, args.html) {
        (true, _) => json(&printed)?,
        (_, true) => timelines(&printed, ways.unchanged(ways.usual()), &outcomes),
        _ => table(&printed),
    };
    Ok((text, if far { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
}

/// Plays sets of changes in virtual time, the last of which has all of them. A change that means
/// nothing without the others is put into `only_together`, with the reason.
fn in_virtual_time(
    ways: &Ways<'_>,
    sets: &[&[PlanChange]],
    only_together: &mut Vec<String>,
) -> Result<Vec<PredictedSet>> {
    let mut outcomes = Vec::new();
    for (n, set) in sets.iter().enumerate() {
        match ways.changed(set) {
            Ok(outcome) => outcomes.push((change::name(set), ways.method(set), outcome)),
            Err(error) => match error.downcast_ref() {
                Some(PredictError::Refused(refused)) if n + 1 < sets.len() => {
                    only_together.push(refused.to_string());
                }
                _ => return Err(error),
            },
        }
    }
    Ok(outcomes)
}

/// The largest part of the time that the recorder's clock may decide.
const CLOCK_MOST: f64 = 0.1;

/// The reason why nothing is predicted, if the unchanged playback is too far off, or agrees with
/// the trace because it is bound to the trace's clock.
fn refused(args: &WhatIf, unchanged: &Unchanged, disk: Option<&'static Model>) -> Option<String> {
    let percent = |part: f64| part * 100.0;
    if unchanged.error.abs() > args.bound {
        return Some(format!(
            "playback of the unchanged trace is {:+.1} % off, more than --bound {:.1} %: its time depends on something that is not in the trace, or it was not recorded on {}",
            percent(unchanged.error),
            percent(args.bound),
            disk.map_or("this disk", |model| model.name)
        ));
    }
    (unchanged.clock_share() > CLOCK_MOST).then(|| {
        format!(
            "the recorded clock decides {:.1} % of the time, more than {:.0} %: requests began at moments that no request and no work of the program explains, and a playback cannot move them. Measure the part that programs wait for (--from, --until), or record with --calls",
            percent(unchanged.clock_share()),
            percent(CLOCK_MOST)
        )
    })
}

/// The policies of a journal, in words.
fn policy(policy: &JournalPolicy) -> String {
    let contents = match policy.contents {
        ContentsPolicy::Writeback => "file data in place after the log",
        ContentsPolicy::Ordered => "file data in place before the log",
        ContentsPolicy::Logged => "file data in the log",
        ContentsPolicy::Adaptive => "file data in the log where it is not sequential",
    };
    let scope = if policy.tangled {
        "everything committed together"
    } else {
        "each file committed by itself"
    };
    let order = match policy.order {
        CommitOrder::Together => "one write of the log",
        CommitOrder::Apart => "the commit block by itself",
        CommitOrder::Overlap => "data and log at once, then the commit block",
    };
    format!("{contents}, {scope}, {order}")
}

/// Plays the unchanged trace and each set of changes on a real device.
fn on_device(
    args: &WhatIf,
    path: &Path,
    ways: &Ways<'_>,
    bytes: u64,
    sets: Vec<&[PlanChange]>,
) -> Result<Vec<PredictedSet>> {
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
    let played = ways.on_device(&real, &sets, usize::from(args.rounds), follow);
    progress.finish();
    let (method, outcomes) = played?;
    let named = sets.iter().map(|set| change::name(set)).zip(outcomes);
    Ok(named.map(|(name, outcome)| (name, method, outcome)).collect())
}

fn print(
    (disk, system): (Option<&'static Model>, &str),
    ways: &Ways<'_>,
    outcomes: &[PredictedSet],
    made: &[f64],
) -> Printed {
    // On a real device, the unchanged trace was played there too, and comes first.
    let own = outcomes.first().filter(|(name, ..)| name == "unchanged").map(|(.., own)| own);
    let last = outcomes.len().saturating_sub(1);
    let rows = outcomes.iter().enumerate().map(|(n, (change, method, outcome))| {
        // The trace with the changes really made has all of them, so it is compared with the last
        // row.
        let made = if n == last { made } else { &[] };
        let measured = made.get(made.len() / 2).copied();
        let base = own.unwrap_or(&ways.unchanged(*method).predicted).seconds;
        Row {
            change: change.clone(),
            method: *method,
            measured_seconds: measured,
            measured_interval: made.first().copied().zip(made.last().copied()),
            predicted_seconds: outcome.seconds,
            interval: outcome.interval,
            error: measured.map(|measured| outcome.seconds / measured - 1.0),
            ratio: outcome.seconds / base,
            told: TimeAndTraffic::of(outcome),
        }
    });
    let usual = ways.usual();
    let by_calls = outcomes.iter().any(|(_, method, _)| *method == Method::Calls);
    let world = ways.world().filter(|_| by_calls || usual == Method::Calls);
    let other = ways.other(outcomes.iter().map(|(_, method, _)| method));
    Printed {
        recorded_on: disk.map(|model| model.name),
        played_on: None,
        file_system: system.to_owned(),
        journal_bytes: None,
        bound: 0.0,
        refused: None,
        only_together: Vec::new(),
        method: usual,
        calls_refused: None,
        policy: world.map(|world| policy(&world.policy())),
        calls_left_out: world.map(|world| world.plan.left_out.clone()).unwrap_or_default(),
        unchanged: First::of(ways.unchanged(usual)),
        unchanged_other: other.map(|other| First::of(ways.unchanged(other))),
        rows: rows.collect(),
    }
}

fn signed(x: f64) -> String {
    format!("{:+.1} %", x * 100.0)
}

/// The predictions as a table, with what there is to say about them, and below it where the time
/// goes.
fn table(printed: &Printed) -> String {
    let mut text = format!("{}\n{}", predictions(printed), notes(printed));
    let recorded = printed.recorded_on;
    let recorded = recorded.unwrap_or("the disk of the trace, with the times that it took there");
    let real = printed.played_on.as_ref();
    let on = real.map_or(recorded, |path| path);
    text.push_str(&format!("\nWhere the time goes, on {on}:\n\n"));
    let mut columns = Vec::new();
    if real.is_none() || printed.rows.is_empty() {
        columns.push(("unchanged", &printed.unchanged.told));
    }
    columns.extend(printed.rows.iter().map(|row| (row.change.as_str(), &row.told)));
    text.push_str(&where_it_goes(&columns));
    text
}

fn predictions(printed: &Printed) -> Table {
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
    let mut unchanged = |name: &str, first: &First| {
        rows.row([
            name.into(),
            number::seconds(first.predicted_seconds),
            span(first.interval),
            String::new(),
            first.measured_seconds.map(number::seconds).unwrap_or_default(),
            first.measured_seconds.map(|_| signed(first.error)).unwrap_or_default(),
        ]);
    };
    if printed.played_on.is_none() || first.measured_seconds.is_some() {
        unchanged("unchanged", first);
    }
    let other = match printed.method {
        Method::Calls => " (requests)",
        Method::Requests => " (calls)",
    };
    if let Some(first) = &printed.unchanged_other {
        unchanged(&format!("unchanged{other}"), first);
    }
    let real = printed.played_on.as_ref();
    for (n, row) in printed.rows.iter().enumerate() {
        let place = real.filter(|_| n == 0).map(|path| format!(", on {path}"));
        let of = if row.method == printed.method { "" } else { other };
        rows.row([
            format!("{}{of}{}", row.change, place.unwrap_or_default()),
            number::seconds(row.predicted_seconds),
            span(row.interval),
            format!("{:.3}", row.ratio),
            row.measured_seconds.map(number::seconds).unwrap_or_default(),
            row.error.map(signed).unwrap_or_default(),
        ]);
    }
    rows
}

/// The reasons why something was not predicted or checked, and the objects that were played.
fn notes(printed: &Printed) -> String {
    let mut text = String::new();
    if printed.unchanged.measured_seconds.is_none() {
        text.push_str(
            "\nThe trace has no times: the playback cannot be checked against it, and keeps the order of flushes and of writes \
             of the same bytes.\n",
        );
    }
    if let Some(refused) = &printed.refused {
        text.push_str(&format!("No prediction: {refused}.\n"));
    }
    for why in &printed.only_together {
        text.push_str(&format!("Not by itself: {why}.\n"));
    }
    match (&printed.policy, printed.method) {
        (Some(policy), Method::Calls) => {
            let requests = match printed.unchanged_other {
                Some(_) => ", and the requests for another disk or place: one client waits at a time",
                None => "",
            };
            text.push_str(&format!(
                "\nThe programs' calls are played{requests}. The journal: {policy}.\n"
            ));
        }
        (Some(policy), Method::Requests) => text.push_str(&format!(
            "\nThe requests are played, and the programs' calls for changes that need them. The journal: {policy}.\n"
        )),
        (None, _) => {}
    }
    if let Some(why) = &printed.calls_refused {
        text.push_str(&format!("\nThe requests are played, not the calls: {why}.\n"));
    }
    for (why, count) in &printed.calls_left_out {
        text.push_str(&format!("Not played: {count} calls ({why}).\n"));
    }
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
fn timelines(printed: &Printed, unchanged: &Unchanged, outcomes: &[PredictedSet]) -> String {
    let mut runs = Vec::new();
    if printed.played_on.is_none() {
        runs.push(("unchanged", &unchanged.predicted));
    }
    runs.extend(outcomes.iter().map(|(name, _, outcome)| (name.as_str(), outcome)));
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
