//! Recordings in parts: options of the recorder, and the analysis of a directory of parts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use ordo_annotate::parts::join::Found;
use ordo_annotate::parts::whole::WholeTables;
use ordo_annotate::parts::writer::WrittenParts;
use ordo_annotate::parts::{JoinedParts, Part, PartedRecording, Place, find};
use ordo_annotate::{parts, store};
use ordo_kernelfs::parts::{PartsDone, PartsOptions, PartsSlot, in_parts};
use ordo_recorder::MakeObserver;
use ordo_report::number;

use super::rotate::{Rotate, SampleTimes, limits};
use super::traffic::Results;
use crate::text::put;

/// A recording in parts that is under way.
pub(super) struct InParts {
    place: Place,
    recording: String,
    into: PartsSlot,
}

/// The time of day, in nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

impl InParts {
    /// A recording of a device with this name, in the folder `root`.
    pub(super) fn new(root: &Path, device: &str) -> InParts {
        let place = Place { root: root.to_owned(), host: host(), device: device.to_owned() };
        // The milliseconds since 1970, the process, and the device among the process's: no other
        // recording of this host has all of them.
        static DEVICES: AtomicU32 = AtomicU32::new(0);
        let mut recording = format!("{:012x}-{}", now_ns() / 1_000_000, std::process::id());
        let number = DEVICES.fetch_add(1, Ordering::Relaxed);
        if number > 0 {
            recording += &format!("-{}", number + 1);
        }
        InParts { place, recording, into: PartsSlot::default() }
    }

    /// The observer that records.
    ///
    /// # Errors
    /// There are no more threads.
    pub(super) fn observer(
        &self,
        rotate: &[Rotate],
        sample: Option<&SampleTimes>,
        with_contents: bool,
        disk: Option<&'static str>,
    ) -> Result<MakeObserver> {
        let wanted = PartsOptions {
            place: self.place.clone(),
            recording: self.recording.clone(),
            began_ns: now_ns(),
            limits: limits(rotate),
            sample: sample.map(|sample| (sample.times, sample.words.clone())),
            with_contents,
            disk,
            failed: Box::new(|error, parts| {
                eprintln!(
                    "ordo: {error}: the recording has ended, with {parts} parts; the device goes on without it"
                );
            }),
        };
        in_parts(wanted, self.into.clone()).context("starting the writer of parts")
    }

    /// The analysis of the parts; empty if there is none. Says what was written.
    ///
    /// # Errors
    /// The parts cannot be read.
    pub(super) fn reported(&self, as_json: bool) -> Result<String> {
        let done = self.into.lock().ok().and_then(|mut done| done.take());
        let Some(PartsDone { written, .. }) = done else { return Ok(String::new()) };
        eprintln!(
            "ordo: {}: recording {}: {} parts",
            self.place.root.display(),
            self.recording,
            number::count(written.parts.into()),
        );
        if written.parts == 0 {
            return Ok(String::new());
        }
        super::trace::wrote(&self.place.root, &written.all);
        let mut found = find(&self.place.root)?;
        found.recordings.retain(|recording| recording.name == self.recording);
        let Some(joined) = found.recordings.first().and_then(parts::PartedRecording::joined) else {
            eprintln!("ordo: the device had no known file system: its blocks have no names");
            return Ok(String::new());
        };
        text(&joined, as_json)
    }
}

fn text(joined: &JoinedParts, as_json: bool) -> Result<String> {
    let (analysis, files) = (&joined.analysis, &joined.files[..]);
    Results { analysis, files, calls: &[], requests: None }.text(as_json)
}

/// The only recording in a folder, as one trace.
pub(super) fn one_recording(dir: &Path) -> Result<WholeTables> {
    let found = find(dir)?;
    for aside in &found.aside {
        eprintln!("ordo: {}: not used: {}", aside.path.display(), aside.why);
    }
    match &found.recordings[..] {
        [recording] => {
            if !recording.has_end {
                eprintln!("ordo: recording {}: it has no end; its parts are used", recording.name);
            }
            Ok(WholeTables::of_parts(recording)?)
        }
        [] => bail!("{}: there is no recording in parts", dir.display()),
        several => {
            let names: Vec<&str> = several.iter().map(|recording| &*recording.name).collect();
            bail!(
                "{}: the folder has several recordings ({}); give the folder of one of them",
                dir.display(),
                names.join(", ")
            )
        }
    }
}

/// The folder of a recording whose parts these are, if they are all of its parts.
///
/// # Errors
/// They are several traces, or some of the parts of one.
pub(super) fn folder_of(traces: &[PathBuf]) -> Result<PathBuf> {
    let real = |path: &PathBuf| path.canonicalize().with_context(|| path.display().to_string());
    let given: BTreeSet<PathBuf> = traces.iter().map(real).collect::<Result<_>>()?;
    let mut names = BTreeSet::new();
    for path in &given {
        let found = find(path)?;
        names.insert(found.recordings.first().map(|recording| recording.name.clone()));
    }
    if names.len() != 1 || names.contains(&None) {
        bail!(several(traces));
    }
    let mut folder = given.first().cloned().unwrap_or_default();
    while !given.iter().all(|path| path.starts_with(&folder) && *path != folder) {
        folder.pop();
    }
    let found = find(&folder)?;
    let is_ours = |recording: &&PartedRecording| names.contains(&Some(recording.name.clone()));
    let recording = found.recordings.iter().find(is_ours);
    let all: BTreeSet<PathBuf> =
        recording.into_iter().flat_map(|recording| recording.parts.values().cloned()).collect();
    if given != all || found.recordings.len() > 1 || !found.whole.is_empty() {
        bail!(
            "{} of the {} parts of a recording: give one part, or the folder of all, {}",
            given.len(),
            all.len(),
            folder.display()
        );
    }
    Ok(folder)
}

fn several(traces: &[PathBuf]) -> String {
    format!(
        "{} and {} are different traces; give one at a time",
        traces[0].display(),
        traces[1].display()
    )
}

/// Whether a directory is to be analysed as parts.
pub(super) fn is_folder(dir: &Path) -> bool {
    dir.is_dir() && !store::is_trace(dir)
}

/// Analyses the one recording whose parts are in a directory. The exit status is 1 if a part was
/// set aside.
///
/// # Errors
/// There is no recording, or there are several.
pub(super) fn analyze(dir: &Path, as_json: bool, output: Option<&Path>) -> Result<ExitCode> {
    let Found { recordings, whole, aside, under_way } = find(dir)?;
    let place = dir.display();
    for one in &aside {
        eprintln!("ordo: {}: set aside: {}", one.path.display(), one.why);
    }
    for path in &under_way {
        eprintln!(
            "ordo: {}: the part under way when its recorder was stopped; it is not used",
            path.display()
        );
    }
    if let Some(path) = whole.first() {
        bail!(
            "{}: a trace by itself among others; give one trace, or the parts of one recording",
            path.display()
        );
    }
    let [recording] = &recordings[..] else {
        let names: Vec<&str> = recordings.iter().map(|r| r.name.as_str()).take(10).collect();
        match names.is_empty() {
            true => bail!(
                "{place}: no parts of a recording; ordo trace run --rotate 64m -o DIRECTORY writes them"
            ),
            false => bail!(
                "{place}: {} recordings ({}); give the folder of one, or python -m ordo_trace.fleet analyze for all",
                recordings.len(),
                names.join(", ")
            ),
        }
    };
    if let Some(sample) = &recording.sample {
        eprintln!(
            "ordo: {place}: a sample, {sample}: the sums are those of the time that was recorded"
        );
    }
    if !recording.has_end {
        eprintln!(
            "ordo: {place}: the recording did not end in order: requests after part {} are missing",
            recording.parts.keys().last().copied().unwrap_or(0)
        );
    }
    let Some(joined) = recording.joined() else {
        bail!("{place}: no part can be counted: they have no known file system, or are damaged");
    };
    for one in &joined.aside {
        eprintln!("ordo: {}: set aside: {}", one.path.display(), one.why);
    }
    for part in &joined.missing {
        eprintln!("ordo: {place}: part {part} is missing");
    }
    if joined.not_carried > 0 {
        eprintln!(
            "ordo: {place}: {} blocks were too many to wait for their owners: their files are unknown",
            number::count(joined.not_carried)
        );
    }
    put(output, &text(&joined, as_json)?)?;
    let is_whole = aside.is_empty() && joined.aside.is_empty() && joined.missing.is_empty();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes an imported trace in parts.
///
/// # Errors
/// A part cannot be written.
pub(super) fn import(
    opened: &ordo_annotate::input::Opened,
    root: &Path,
    device: &str,
    rotate: &[Rotate],
) -> Result<()> {
    let place = Place { root: root.to_owned(), host: host(), device: device.to_owned() };
    let limits = limits(rotate);
    let trace = &opened.trace;
    let is_full = |trace: &ordo_trace::Trace, from: usize, to: usize| {
        let requests = &trace.requests()[from..to];
        let first = &requests[0];
        let last = &requests[requests.len() - 1];
        let bytes: u64 = requests.iter().map(|r| r.len + 128).sum();
        bytes >= limits.bytes as u64
            || limits.time.is_some_and(|time| last.issued.since(first.issued) >= time)
    };
    let name = format!("{:08x}-{}", checksum(trace), trace.requests().len());
    let mut totals = WrittenParts::default();
    let keep = |part: Part| -> Result<()> {
        totals.add(&parts::writer::write(&place, &part)?);
        Ok(())
    };
    parts::divide(trace, &opened.start, &name, is_full, keep)?;
    eprintln!("ordo: {}: recording {name}: {} parts", root.display(), totals.parts);
    super::trace::wrote(root, &totals.all);
    Ok(())
}

/// A checksum over the requests of a trace, by which an imported recording gets its name.
fn checksum(trace: &ordo_trace::Trace) -> u32 {
    trace.requests().iter().fold(0, |sum, r| {
        let words = [r.offset, r.len, r.issued.as_nanos(), r.op as u64];
        words.iter().fold(sum, |sum: u32, word| {
            let mixed = (u64::from(sum) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 32) as u32
        })
    })
}
