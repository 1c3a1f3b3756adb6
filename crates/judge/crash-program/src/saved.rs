//! A failure as one file, with which it can be repeated on any machine that has the file system.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ordo_crash::{Run, kept};
use ordo_trace::strace::Syscall;
use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::bench::Bench;
use crate::check::{Check, CheckAnswer};
use crate::explain::{Explained, Explanation, explain};
use crate::explore::{JobFinding, Wrong};
use crate::judged::{RecoveryCut, StateResult};
use crate::marks::{Mark, Promises};
use crate::record::{Meaning, Recorded};
use crate::system::ProgramSystem;

/// The beginning of such a file.
pub const FORMAT: &str = "ordo crash of a program, 3";

/// A recording as text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedRecording {
    system: ProgramSystem,
    marks: Vec<Mark>,
    meanings: Vec<Vec<Meaning>>,
    calls: Vec<Syscall>,
    #[serde(default)]
    existing: Vec<(String, Option<u64>)>,
    times: Vec<u64>,
    began_at: u64,
    began: usize,
    ended: usize,
    status: Option<i32>,
    failed: usize,
    #[serde(default)]
    unfinished: usize,
    #[serde(default)]
    was_stopped: bool,
    #[serde(default)]
    was_full: bool,
    /// The run in the form of [`kept::pack`].
    run: String,
}

/// A failure, with everything that is needed to repeat it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedJob {
    /// [`FORMAT`].
    pub format: String,
    /// The command, for the reader of the file.
    pub command: Vec<String>,
    check: Check,
    unit: usize,
    explanation: Explanation,
    /// The power cuts during recoveries.
    recoveries: Vec<RecoveryCut>,
    recording: SavedRecording,
}

/// The result of a failure that was repeated.
#[derive(Debug)]
pub enum RepeatedFailure {
    /// The state fails again.
    Broken(Box<Explanation>),
    /// The check gives no answer, for this reason.
    NotJudged(String),
    /// Every promise is kept in the state now.
    Kept,
}

fn damaged(why: impl std::fmt::Display) -> ProgramError {
    ProgramError::Program(format!("it is damaged: {why}"))
}

impl SavedRecording {
    /// Saves a recording.
    ///
    /// # Errors
    /// None occurs in practice.
    pub fn new(recorded: &Recorded) -> Result<SavedRecording, ProgramError> {
        Ok(SavedRecording {
            system: recorded.system.clone(),
            marks: recorded.marks.clone(),
            meanings: recorded.meanings.clone(),
            calls: recorded.calls.clone(),
            existing: recorded.existing.clone(),
            times: recorded.times.clone(),
            began_at: recorded.began_at,
            began: recorded.began,
            ended: recorded.ended,
            status: recorded.status,
            failed: recorded.failed,
            unfinished: recorded.unfinished,
            was_stopped: recorded.was_stopped,
            was_full: recorded.was_full,
            run: kept::pack(std::slice::from_ref(&recorded.run)).map_err(damaged)?,
        })
    }

    /// The recording, which is one of this file system.
    ///
    /// # Errors
    /// The text is inconsistent, or of another file system.
    pub fn recorded(&self, system: &ProgramSystem) -> Result<Recorded, ProgramError> {
        if self.system.name() != system.name() {
            return Err(damaged(format!("it is of {}", self.system.name())));
        }
        let runs = kept::unpack(&self.run).map_err(damaged)?;
        let [run] = &runs[..] else { return Err(damaged("it has no run")) };
        let sizes = run.disks.iter().map(|disk| disk.base.len());
        if !fits(run, &self.meanings, &self.times) || !sizes.eq(system.devices()) {
            return Err(damaged("the run in it is another one"));
        }
        Ok(Recorded {
            system: system.clone(),
            run: Arc::clone(run),
            meanings: self.meanings.clone(),
            marks: self.marks.clone(),
            calls: self.calls.clone(),
            existing: self.existing.clone(),
            times: self.times.clone(),
            began_at: self.began_at,
            began: self.began,
            ended: self.ended,
            status: self.status,
            failed: self.failed,
            unfinished: self.unfinished,
            was_stopped: self.was_stopped,
            was_full: self.was_full,
        })
    }
}

/// Whether there is a meaning for each write, and a time for each event.
pub(crate) fn fits(run: &Run, meanings: &[Vec<Meaning>], times: &[u64]) -> bool {
    let mut disks = run.disks.iter().zip(meanings);
    run.disks.len() == meanings.len()
        && !run.disks.is_empty()
        && disks.all(|(disk, meanings)| disk.writes.len() == meanings.len())
        && run.events.len() == times.len()
}

impl SavedJob {
    /// Saves a failure of a recording. `recoveries` are the power cuts during recoveries that
    /// belong to it.
    ///
    /// # Errors
    /// None occurs in practice.
    pub fn new(
        recorded: &Recorded,
        check: &Check,
        unit: usize,
        command: &[String],
        explained: &Explained,
    ) -> Result<SavedJob, ProgramError> {
        Ok(SavedJob {
            format: FORMAT.to_owned(),
            command: command.to_vec(),
            check: check.clone(),
            unit,
            explanation: explained.told.clone(),
            recoveries: explained.recoveries.clone(),
            recording: SavedRecording::new(recorded)?,
        })
    }

    /// Whether a text is such a file, complete or not, of this version or another.
    pub fn is_one(text: &str) -> bool {
        let name = FORMAT.trim_end_matches(char::is_numeric);
        text.get(..200.min(text.len())).is_some_and(|head| head.contains(name))
    }

    /// Reads a saved failure. `find` finds a file system by its name and the size of its first
    /// device.
    ///
    /// # Errors
    /// The text is not one, or is inconsistent.
    pub fn parse(
        text: &str,
        find: impl FnOnce(&str, u64) -> Result<ProgramSystem, ProgramError>,
    ) -> Result<SavedJob, ProgramError> {
        if Self::is_one(text) && !text.get(..200.min(text.len())).unwrap_or("").contains(FORMAT) {
            let why = "another version of ordo wrote it; crash the program again";
            return Err(ProgramError::Program(why.into()));
        }
        let mut saved: SavedJob = serde_json::from_str(text).map_err(damaged)?;
        let of = &saved.recording.system;
        // The system's name decides which programs are run, so it must be a known one.
        let mut found = find(&of.name(), of.bytes)?;
        (found.mkfs, found.bytes) = (of.mkfs.clone(), of.bytes);
        saved.recording.system = found;
        let cuts = &saved.recoveries;
        if cuts.iter().any(|c| !fits(&c.recovery.run, &c.recovery.meanings, &c.recovery.times)) {
            return Err(damaged("the recovery in it is another one"));
        }
        Ok(saved)
    }

    fn recorded(&self) -> Result<Recorded, ProgramError> {
        self.recording.recorded(&self.recording.system)
    }

    /// The file system's name.
    pub fn system(&self) -> String {
        self.recording.system.name()
    }

    /// All that a replay runs or makes, each with a word for it: for the reader of a file that
    /// somebody else made.
    pub fn runs(&self) -> Vec<(&'static str, String)> {
        let system = &self.recording.system;
        let device =
            format!("{} of {} bytes, mkfs {}", system.name(), system.bytes, system.mkfs.join(" "));
        vec![
            ("check", self.check.command.clone()),
            ("in", self.check.origin.display().to_string()),
            ("image", device),
            ("program", self.command.join(" ")),
        ]
    }

    /// Whether the state is one of the kernel's file systems, which only root may mount.
    pub fn needs_root(&self) -> bool {
        self.recording.system.is_kernels()
    }

    /// Judges the state again, and explains its failure.
    ///
    /// # Errors
    /// The file is inconsistent, or there is no loop device.
    pub fn replay(&self) -> Result<RepeatedFailure, ProgramError> {
        let recorded = self.recorded()?;
        let found = {
            let bench = Bench::new(&recorded, &self.check, self.unit);
            let stand = bench.stand(0)?;
            let found = bench.result_of(&stand, &self.explanation.pick, &self.recoveries)?;
            found.ok_or_else(|| damaged("there is no such state"))?
        };
        let (wrong, said) = match found {
            StateResult::Broken(wrong, said) => (wrong, said),
            StateResult::Unsound(why) => (Wrong::Unsound, why),
            StateResult::Checked(CheckAnswer::Failed(said)) => {
                return Ok(RepeatedFailure::NotJudged(said));
            }
            StateResult::Checked(CheckAnswer::TimedOut) => {
                return Ok(RepeatedFailure::NotJudged("it did not end in time".to_owned()));
            }
            StateResult::Flaky(said) => {
                return Ok(RepeatedFailure::NotJudged(format!(
                    "it failed once, and passed then: {said}"
                )));
            }
            StateResult::Checked(_) => return Ok(RepeatedFailure::Kept),
        };
        let (pick, alike) = (self.explanation.pick.clone(), self.explanation.alike);
        let recoveries = self.recoveries.clone();
        let finding = JobFinding { pick, recoveries, wrong, said, alike };
        let explained = explain(&recorded, &self.check, self.unit, &finding, false)?;
        Ok(RepeatedFailure::Broken(Box::new(explained.told)))
    }

    /// Mounts the state, and calls `look` with the program's directory in it and the promises.
    ///
    /// # Errors
    /// The file is inconsistent, there is no loop device, or the state cannot be mounted.
    pub fn look<T>(&self, look: impl FnOnce(&Path, &Promises) -> T) -> Result<T, ProgramError> {
        let recorded = self.recorded()?;
        let bench = Bench::new(&recorded, &self.check, self.unit);
        let (stand, pick) = (bench.stand(0)?, &self.explanation.pick);
        let promises = bench.promises(pick.events);
        let seen = bench.look(&stand, pick, &self.recoveries, |work| look(work, &promises))?;
        seen.ok_or_else(|| ProgramError::Program("the state cannot be mounted".into()))
    }

    /// Writes the state as images, with holes in place of zeros: the first disk to `to`, and each
    /// further one to that name with `.1`, `.2`, and so on. Returns the files, each with the words
    /// for its disk.
    ///
    /// # Errors
    /// The failure is inconsistent, or an image cannot be written.
    pub fn image(&self, to: &Path) -> Result<Vec<(PathBuf, &'static str)>, ProgramError> {
        let recorded = self.recorded()?;
        let bench = Bench::new(&recorded, &self.check, self.unit);
        let wrong = |error| ProgramError::Io { what: format!("writing {}", to.display()), error };
        let names = (0..recorded.run.disks.len()).map(|n| image_name(to, n));
        let names: Vec<PathBuf> = names.collect();
        let files: Vec<File> =
            names.iter().map(File::create).collect::<Result<_, _>>().map_err(wrong)?;
        let written = bench.write(&files, &self.explanation.pick, &self.recoveries);
        written.ok_or_else(|| damaged("there is no such state"))?.map_err(wrong)?;
        let words = (0..).map(|n| recorded.system.device_words(n));
        Ok(names.into_iter().zip(words).collect())
    }
}

/// The name of the image of a disk, if that of the first disk is `first`.
fn image_name(first: &Path, number: usize) -> PathBuf {
    let mut name = first.as_os_str().to_owned();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name.into()
}
