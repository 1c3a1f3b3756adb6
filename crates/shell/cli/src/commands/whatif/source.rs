//! The trace that is played: from the tables of a stored trace, so that it may be larger than
//! memory, or named again in memory.

use std::path::Path;

use anyhow::{Result, bail};
use ordo_annotate::calls::{self, StoredCall};
use ordo_annotate::input::{Opened, blind_writes};
use ordo_annotate::parts::whole::WholeTables;
use ordo_annotate::{BlockRow, Pieces, owners};
use ordo_playback::predict::Window;
use ordo_playback::traffic::SeenTrace;
use ordo_trace::RequestContents;

use super::super::analyze;
use super::super::calls::of_strace;

/// Output of strace(1), with the directory at which the file system was mounted and the time of the
/// trace's clock at 0.
pub(super) type Strace<'a> = (&'a Path, &'a Path, Option<f64>);

/// A trace that can be played.
pub(super) struct PlayedTrace {
    from: From,
    /// The calls of the programs.
    pub(super) calls: Vec<StoredCall>,
    /// The file system's name.
    pub(super) system: String,
    /// The name of the disk model that timed the requests.
    pub(super) disk: Option<String>,
}

enum From {
    Tables(Box<WholeTables>),
    Memory(Box<Opened>),
}

impl PlayedTrace {
    /// Opens a trace, and returns it with its requests.
    pub(super) fn open(
        input: &analyze::Input,
        strace: Option<Strace<'_>>,
    ) -> Result<(PlayedTrace, SeenTrace)> {
        match input.tables()?.filter(|_| strace.is_none()) {
            Some((path, tables)) => PlayedTrace::over(&path, tables),
            None => PlayedTrace::named(input.open()?, strace),
        }
    }

    fn over(path: &Path, mut tables: WholeTables) -> Result<(PlayedTrace, SeenTrace)> {
        let calls = calls::read(path)?;
        let head = tables.head().clone();
        let mut seen = SeenTrace::new(head.timed, !calls.is_empty());
        tables.each(|number, request, text, rows| seen.add(number, request, text, rows))?;
        if let Some(note) = blind_writes(tables.blind()) {
            eprintln!("ordo: {note}");
        }
        let from = From::Tables(Box::new(tables));
        let trace = PlayedTrace { from, calls, system: head.system, disk: head.disk };
        Ok((trace, seen.finish()?))
    }

    fn named(opened: Opened, strace: Option<Strace<'_>>) -> Result<(PlayedTrace, SeenTrace)> {
        let rows = opened.watch.as_ref().map(|watch| owners::of_trace(&opened.trace, watch));
        let rows: Vec<BlockRow> = rows.unwrap_or_default();
        let calls = match strace {
            Some((file, dir, zero)) => of_strace((file, dir), zero, (&opened.trace, &rows))?,
            None => opened.calls.clone(),
        };
        let seen = SeenTrace::of(&opened.trace, &rows, &calls)?;
        let watch = opened.watch.as_ref();
        let system = watch.map_or("no known file system".into(), |w| w.system().to_string());
        let disk = opened.trace.disk().map(str::to_owned);
        Ok((PlayedTrace { from: From::Memory(Box::new(opened)), calls, system, disk }, seen))
    }

    /// The contents of its requests.
    pub(super) fn contents(&self) -> &dyn RequestContents {
        match &self.from {
            From::Tables(tables) => &**tables,
            From::Memory(opened) => &*opened.trace,
        }
    }

    /// The known pieces of the device before the trace.
    pub(super) fn start(&self) -> &Pieces {
        match &self.from {
            From::Tables(tables) => tables.start(),
            From::Memory(opened) => &opened.start,
        }
    }

    /// Fails if contents that were asked for could not be read.
    pub(super) fn check(&self) -> Result<()> {
        match &self.from {
            From::Tables(tables) => tables.damage().map_or(Ok(()), |error| Err(error.into())),
            From::Memory(_) => Ok(()),
        }
    }
}

/// The seconds between the marks of another trace; `by_calls`: from the first call between them to
/// the last one's end, if the trace has calls.
pub(super) fn seconds(path: &Path, window: &Window, by_calls: bool) -> Result<f64> {
    let (trace, seen) = PlayedTrace::open(&analyze::Input::of(path), None)?;
    let (all, window) = (seen.requests(), window.of_command(&seen));
    let mark = |text: &Option<String>, from: usize| {
        let Some(text) = text else { return Ok(None) };
        match seen.mark(text, from) {
            Some(n) => Ok(Some(n)),
            None => bail!("{}: the trace has no mark '{text}'", path.display()),
        }
    };
    let from = mark(&window.from, 0)?.unwrap_or(0);
    let until = mark(&window.until, from + 1)?;
    let last = match until {
        Some(n) => all[n].issued,
        None => all.iter().map(|one| one.completed).max().unwrap_or(0),
    };
    let marks = (all[from].issued, last);
    let calls = ordo_playback::calls::within(&trace.calls, marks);
    let span = ordo_playback::calls::span(calls).filter(|_| by_calls);
    let (first, last) = span.unwrap_or(marks);
    Ok(last.saturating_sub(first) as f64 / 1e9)
}
