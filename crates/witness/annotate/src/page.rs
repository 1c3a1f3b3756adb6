//! A self-contained HTML page with the paper's plots, which needs no network.

mod lanes;

use std::fmt::Write;

use ordo_trace::{Flags, RequestOp, Trace};
use ordo_watcher::Class;
use ordo_watcher::analysis::Analysis;

use crate::calls::StoredCall;
use crate::rows::BlockRow;

/// The most points of a plot's line: several for each pixel of a screen, for zooming.
const POINTS: usize = 8000;
/// The most writes in the timeline. Beyond this, the page gives the number that is left out.
const MARKS: usize = 40_000;

/// The script that draws the plots. They are sent as data, so that the reader can zoom.
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// A line of a plot: its name and points.
#[derive(serde::Serialize)]
struct Line {
    name: String,
    points: Vec<[f64; 2]>,
}

/// A plot.
#[derive(serde::Serialize)]
struct Picture {
    title: &'static str,
    x: &'static str,
    y: &'static str,
    /// Whether a line keeps its height until the next point.
    steps: bool,
    lines: Vec<Line>,
}

/// A mark of a timeline: its row, start, end and number, and whether it is the journal's.
type Mark = (usize, f64, f64, u64, bool);

/// A timeline: writes by kind and system calls that waited for requests by name; transactions; or
/// files.
#[derive(serde::Serialize)]
struct Timeline {
    title: &'static str,
    /// The word for what the marks' numbers count.
    noun: &'static str,
    x: &'static str,
    rows: Vec<String>,
    /// For a call the number is that of the last request for which it waited.
    marks: Vec<Mark>,
    /// The moments of flushes.
    flushes: Vec<f64>,
    left_out: usize,
}

impl Timeline {
    /// Adds a row for each name of calls that waited for requests.
    fn add_calls(&mut self, clock: &Clock<'_>, calls: &[StoredCall]) {
        if !clock.trace.timed() {
            return;
        }
        let first = self.rows.len();
        for call in calls.iter().filter(|call| !call.waits.is_empty()) {
            let row = match self.rows[first..].iter().position(|name| *name == call.name) {
                Some(row) => first + row,
                None => {
                    self.rows.push(call.name.clone());
                    self.rows.len() - 1
                }
            };
            if self.marks.len() >= 2 * MARKS {
                self.left_out += 1;
                continue;
            }
            let last = call.waits.last().map_or(0, |wait| wait.request);
            let (began, ended) = (clock.seconds(call.began), clock.seconds(call.ended));
            self.marks.push((row, began, ended, last, false));
        }
    }
}

/// The times of issue and completion of a request, in the plot's unit.
struct Clock<'a> {
    trace: &'a Trace,
}

impl Clock<'_> {
    fn unit(&self) -> &'static str {
        if self.trace.timed() { "seconds" } else { "requests" }
    }

    fn span(&self, number: usize) -> (f64, f64) {
        let r = &self.trace.requests()[number];
        if !self.trace.timed() {
            return (number as f64, number as f64 + 1.0);
        }
        let issued = self.seconds(r.issued.as_nanos());
        (issued, r.end.map_or(issued, |end| self.seconds(end.at.as_nanos())))
    }

    /// The moments of flushes.
    fn flushes(&self) -> Vec<f64> {
        let flushes = self.trace.requests().iter().enumerate();
        let flushes =
            flushes.filter(|(_, r)| r.op == RequestOp::Flush || r.flags.contains(Flags::PREFLUSH));
        let flushes: Vec<f64> = flushes.map(|(number, _)| self.span(number).0).collect();
        let every = flushes.len().div_ceil(MARKS).max(1);
        flushes.into_iter().step_by(every).collect()
    }

    /// Seconds since the first request.
    fn seconds(&self, nanos: u64) -> f64 {
        let first = self.trace.requests().first().map_or(0, |r| r.issued.as_nanos());
        nanos.saturating_sub(first) as f64 / 1e9
    }
}

/// The page; `tables` is the text that the command prints, and `summary` its sentences.
pub fn page(
    trace: &Trace,
    blocks: &[BlockRow],
    calls: &[StoredCall],
    analysis: &Analysis,
    (tables, summary): (&str, &[String]),
) -> String {
    let clock = Clock { trace };
    let mut pictures = vec![traffic(trace, blocks), bandwidth(&clock, blocks)];
    if trace.timed() {
        pictures.push(outstanding(&clock, blocks));
    }
    let mut by_kind = timeline(&clock, blocks);
    by_kind.add_calls(&clock, calls);
    let lanes = [lanes::transactions(&clock, blocks), lanes::files(&clock, blocks)];
    let timelines: Vec<Timeline> =
        std::iter::once(by_kind).chain(lanes.into_iter().flatten()).collect();
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
    let system = escape(&analysis.system);
    let _ = write!(out, "<title>{system}: what was written</title>\n<style>{STYLE}</style>\n");
    let _ = writeln!(out, "<h1>{system}</h1>");
    if !summary.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(&summary.join(" ")));
    }
    let _ = write!(out, "<p>{} requests", trace.requests().len());
    if !trace.timed() {
        out.push_str(
            " without times: each request counts as a moment, and the number of outstanding writes is unknown",
        );
    }
    out.push_str(". Drag to zoom, double-click to go back, point at something for its numbers; pictures over the same axis go together.</p>\n<div id=\"pictures\"></div>\n");
    let _ = write!(out, "<h2>Numbers</h2>\n<pre>{}</pre>\n", escape(tables));
    let _ = writeln!(out, "<script>\nconst pictures = {};", script_json(&pictures));
    let _ =
        writeln!(out, "const timelines = {};\n{SCRIPT}</script>\n</html>", script_json(&timelines));
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON in which no string can end the surrounding script element.
fn script_json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".into());
    text.replace('<', "\\u003c")
}

/// Thins out a line with too many points: of each interval the first, minimum, maximum and last
/// point stay.
fn thin(points: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    if points.len() <= POINTS {
        return points;
    }
    let mut kept = Vec::with_capacity(POINTS);
    for some in points.chunks(points.len().div_ceil(POINTS / 4)) {
        let height = |i: &usize, j: &usize| some[*i][1].total_cmp(&some[*j][1]);
        let (least, most) = ((0..some.len()).min_by(height), (0..some.len()).max_by(height));
        let mut these = [0, least.unwrap_or(0), most.unwrap_or(0), some.len() - 1];
        these.sort_unstable();
        kept.extend(these.map(|i| some[i]));
    }
    kept
}

fn line(name: &str, points: Vec<[f64; 2]>) -> Line {
    Line { name: name.into(), points: thin(points) }
}

fn written<'a>(trace: &'a Trace, blocks: &'a [BlockRow]) -> impl Iterator<Item = &'a BlockRow> {
    blocks.iter().filter(|b| {
        let op = trace.requests().get(b.request as usize).map(|r| r.op);
        matches!(op, Some(RequestOp::Write | RequestOp::WriteZeroes))
    })
}

const MB: f64 = 1e6;

/// Journal and fixed-location traffic over data written (Figures 3 to 5). Data count when they are
/// new to the device, whether they go to the journal first or to their fixed location at once.
fn traffic(trace: &Trace, blocks: &[BlockRow]) -> Picture {
    let (mut journal, mut fixed, mut data) = (0u64, 0u64, 0u64);
    let (mut journals, mut fixeds) = (Vec::new(), Vec::new());
    for block in written(trace, blocks) {
        let copy = block.home.is_some_and(|(_, class)| class == Class::FileData);
        let checkpoint = block.completes.is_some();
        // As in the table, a guess counts as the kind that the block turned out to be of.
        let kind = block.final_kind;
        match () {
            () if kind.is_journal_traffic() => journal += block.len,
            () if kind.is_journal() => {}
            () => fixed += block.len,
        }
        // A checkpoint of data that was in the journal does not count again.
        if copy || (kind == Class::FileData && !checkpoint) {
            data += block.len;
        }
        journals.push([data as f64 / MB, journal as f64 / MB]);
        fixeds.push([data as f64 / MB, fixed as f64 / MB]);
    }
    Picture {
        title: "Traffic to the journal and to fixed locations",
        x: "file data written, MB",
        y: "MB",
        steps: false,
        lines: vec![line("journal", journals), line("fixed locations", fixeds)],
    }
}

/// Bandwidth over time. Without times, each point spans a number of requests, at least one.
fn bandwidth(clock: &Clock<'_>, blocks: &[BlockRow]) -> Picture {
    const SLICES: usize = 200;
    let trace = clock.trace;
    let ends = (0..trace.requests().len()).map(|number| clock.span(number).1);
    let width = ends.fold(0.0, f64::max) / SLICES as f64;
    let width = if trace.timed() { width.max(1e-9) } else { width.ceil().max(1.0) };
    let mut sums = [vec![0.0; SLICES + 1], vec![0.0; SLICES + 1]];
    let mut last = 0;
    for block in written(trace, blocks) {
        let slice = ((clock.span(block.request as usize).0 / width) as usize).min(SLICES);
        sums[usize::from(!block.final_kind.is_journal())][slice] += block.len as f64 / MB / width;
        last = last.max(slice);
    }
    let lines = ["journal", "fixed locations"].into_iter().zip(sums).map(|(name, mut sums)| {
        sums.truncate(last + 1);
        sums.push(0.0);
        let points = sums.iter().enumerate().map(|(i, mb)| [i as f64 * width, *mb]).collect();
        line(name, points)
    });
    let y = if trace.timed() { "MB a second" } else { "MB a request" };
    Picture { title: "Bandwidth", x: clock.unit(), y, steps: true, lines: lines.collect() }
}

/// Writes outstanding over time (Figure 9).
fn outstanding(clock: &Clock<'_>, blocks: &[BlockRow]) -> Picture {
    let mut changes: [Vec<(f64, i64)>; 2] = [Vec::new(), Vec::new()];
    let mut last = None;
    for block in written(clock.trace, blocks) {
        if last == Some(block.request) {
            continue;
        }
        last = Some(block.request);
        let (from, to) = clock.span(block.request as usize);
        let of = &mut changes[usize::from(!block.final_kind.is_journal())];
        of.push((from, 1));
        of.push((to, -1));
    }
    let lines =
        ["journal", "fixed locations"].into_iter().zip(changes).map(|(name, mut changes)| {
            changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let mut now = 0;
            let step = |(at, change): (f64, i64)| {
                now += change;
                [at, now as f64]
            };
            line(name, changes.into_iter().map(step).collect())
        });
    let (title, x, y) = ("Writes outstanding", clock.unit(), "writes");
    Picture { title, x, y, steps: true, lines: lines.collect() }
}

/// Every write, in the row of its first block's kind.
fn timeline(clock: &Clock<'_>, blocks: &[BlockRow]) -> Timeline {
    let mut rows: Vec<Class> = written(clock.trace, blocks).map(|b| b.final_kind).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut marks = Vec::new();
    let mut last = None;
    for block in written(clock.trace, blocks) {
        let this = Some((block.request, block.final_kind));
        if last == this {
            continue;
        }
        last = this;
        let row = rows.binary_search(&block.final_kind).unwrap_or(0);
        let (from, to) = clock.span(block.request as usize);
        marks.push((row, from, to, block.request, block.final_kind.is_journal()));
    }
    let (marks, left_out) = thin_marks(marks);
    let rows = rows.into_iter().map(|class| class.words().to_owned()).collect();
    let (title, noun) = ("Writes by kind, and flushes", "request");
    let (x, flushes) = (clock.unit(), clock.flushes());
    Timeline { title, noun, x, rows, marks, flushes, left_out }
}

/// Leaves out marks where there are too many, evenly. Returns the number of those left out too.
fn thin_marks(marks: Vec<Mark>) -> (Vec<Mark>, usize) {
    let (all, step) = (marks.len(), marks.len().div_ceil(MARKS).max(1));
    let marks: Vec<Mark> = marks.into_iter().step_by(step).collect();
    let left_out = all - marks.len();
    (marks, left_out)
}
