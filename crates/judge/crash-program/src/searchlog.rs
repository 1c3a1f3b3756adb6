//! The log of a search: the recording and the result of each state, in a file to which lines are
//! only ever added.
//!
//! The first line holds the recording and everything on which the choice of states depends. Each
//! further line holds the results for one pick. So a search that was stopped, or killed, goes on
//! with the same recording after the last whole line.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::check::Check;
use crate::explore::Job;
use crate::judged::Judged;
use crate::record::{Recorded, RecordingPlan};
use crate::saved::{SavedRecording, fits};

/// The beginning of such a file.
pub const FORMAT: &str = "ordo search of a program, 2";

/// The longest line that is read, in bytes.
const LINE_MAX: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    /// The command, the check and the job in words, by which another search is told from this one.
    of: String,
    recording: SavedRecording,
}

/// The log of a search, open for further results.
#[derive(Debug)]
pub struct SearchLog {
    file: File,
}

/// A search that was stopped.
#[derive(Debug)]
pub struct StoppedSearch {
    /// The recording.
    pub recorded: Recorded,
    /// The results so far.
    pub done: Vec<Judged>,
}

fn wrong(path: &Path) -> impl Fn(std::io::Error) -> ProgramError {
    move |error| ProgramError::Io { what: format!("the log {}", path.display()), error }
}

/// The command, the check and the job in words.
fn words(plan: &RecordingPlan, check: &Check, job: &Job) -> String {
    let rules: Vec<String> = job.rules.iter().map(ToString::to_string).collect();
    // The number of stands is left out: it changes no result.
    format!(
        "{:?} on {} (mkfs {:?}, {} bytes, model {}), setup {:?}, neighbour {:?}, syscalls {}, fail {:?}; \
         check {:?}, times {}; states {}, seed {}, sector {}, shard {}/{}, rules {rules:?}, only {:?}, recovery-every {}, \
         recovery-depth {}",
        plan.command,
        plan.system.name(),
        plan.system.mkfs,
        plan.system.bytes,
        plan.model.name(),
        plan.setup,
        plan.neighbour,
        plan.syscalls,
        plan.fail,
        check.command,
        check.sees_times,
        job.states,
        job.seed,
        job.unit,
        job.shard.0,
        job.shard.1,
        job.manners,
        job.recovery_every,
        job.recovery_depth
    )
}

impl SearchLog {
    /// Begins the log of a search.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(
        path: &Path,
        plan: &RecordingPlan,
        recorded: &Recorded,
        check: &Check,
        job: &Job,
    ) -> Result<SearchLog, ProgramError> {
        let mut log = SearchLog { file: File::create(path).map_err(wrong(path))? };
        let of = words(plan, check, job);
        log.line(&Head { format: FORMAT.into(), of, recording: SavedRecording::new(recorded)? })
            .map_err(wrong(path))?;
        Ok(log)
    }

    /// Opens the log of a search that was stopped, to go on. `None` if the file holds no whole
    /// recording, so that the search must begin anew.
    ///
    /// # Errors
    /// The file cannot be read, or is the log of another search.
    pub fn resume(
        path: &Path,
        plan: &RecordingPlan,
        check: &Check,
        job: &Job,
    ) -> Result<Option<(SearchLog, StoppedSearch)>, ProgramError> {
        let file = File::options().read(true).write(true).open(path).map_err(wrong(path))?;
        let mut reader = BufReader::new(&file);
        let (mut end, mut line) = (0, String::new());
        let mut head: Option<Head> = None;
        let mut done: Vec<Judged> = Vec::new();
        loop {
            line.clear();
            let read = std::io::Read::take(&mut reader, LINE_MAX).read_line(&mut line);
            let len = read.map_err(wrong(path))?;
            // A line that was being written when the process died has no end.
            if !line.ends_with('\n') {
                break;
            }
            let is_whole = match &head {
                None => serde_json::from_str(&line).map(|found| head = Some(found)).is_ok(),
                Some(_) => judged(&line).map(|found| done.push(found)).is_some(),
            };
            if !is_whole {
                break;
            }
            end += len as u64;
        }
        let Some(head) = head.filter(|head| head.format == FORMAT) else { return Ok(None) };
        let of = words(plan, check, job);
        if head.of != of {
            return Err(ProgramError::Program(format!(
                "{}: another search: {}; not {of}. Remove it, or give the same arguments",
                path.display(),
                head.of
            )));
        }
        let recorded = head.recording.recorded(&plan.system)?;
        let mut log = SearchLog { file };
        log.file.set_len(end).map_err(wrong(path))?;
        log.file.seek(SeekFrom::Start(end)).map_err(wrong(path))?;
        Ok(Some((log, StoppedSearch { recorded, done })))
    }

    /// Adds the results for one pick.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, judged: &Judged) -> std::io::Result<()> {
        self.line(judged)
    }

    fn line(&mut self, value: &impl Serialize) -> std::io::Result<()> {
        let mut text = serde_json::to_string(value)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())
    }
}

/// The results of a line, if it is sound.
fn judged(line: &str) -> Option<Judged> {
    let found: Judged = serde_json::from_str(line).ok()?;
    let mut recoveries = found.recoveries.iter().flatten();
    recoveries.all(|r| fits(&r.run, &r.meanings, &r.times)).then_some(found)
}
