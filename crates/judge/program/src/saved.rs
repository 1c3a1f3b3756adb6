//! A failure as one file, with which it can be repeated on any machine that has the file system.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ordo_crash::kept;
use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::calls::Syscall;
use crate::check::Check;
use crate::explain::{Explanation, explain};
use crate::explore::{Bench, JobFinding};
use crate::marks::{Mark, Promises};
use crate::record::{Meaning, Recorded};
use crate::system::ProgramSystem;

/// The beginning of such a file.
pub const FORMAT: &str = "ordo crash of a program, 1";

/// A failure, with everything that is needed to repeat it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedJob {
    /// [`FORMAT`].
    pub format: String,
    /// The command, for the reader of the file.
    pub command: Vec<String>,
    system: ProgramSystem,
    check: Check,
    unit: usize,
    explanation: Explanation,
    marks: Vec<Mark>,
    meanings: Vec<Meaning>,
    calls: Vec<Syscall>,
    times: Vec<u64>,
    began: usize,
    ended: usize,
    status: Option<i32>,
    failed: usize,
    /// The run in the form of [`kept::pack`].
    run: String,
}

fn damaged(why: impl std::fmt::Display) -> ProgramError {
    ProgramError::Program(format!("it is damaged: {why}"))
}

impl SavedJob {
    /// Saves a failure of a recording.
    ///
    /// # Errors
    /// None occurs in practice.
    pub fn new(
        recorded: &Recorded,
        check: &Check,
        unit: usize,
        command: &[String],
        explanation: &Explanation,
    ) -> Result<SavedJob, ProgramError> {
        Ok(SavedJob {
            format: FORMAT.to_owned(),
            command: command.to_vec(),
            system: recorded.system.clone(),
            check: check.clone(),
            unit,
            explanation: explanation.clone(),
            marks: recorded.marks.clone(),
            meanings: recorded.meanings.clone(),
            calls: recorded.calls.clone(),
            times: recorded.times.clone(),
            began: recorded.began,
            ended: recorded.ended,
            status: recorded.status,
            failed: recorded.failed,
            run: kept::pack(std::slice::from_ref(&recorded.run)).map_err(damaged)?,
        })
    }

    /// Whether a text is such a file, complete or not.
    pub fn is_one(text: &str) -> bool {
        text.get(..200.min(text.len())).is_some_and(|head| head.contains(FORMAT))
    }

    /// Reads a saved failure.
    ///
    /// # Errors
    /// The text is not one, or is inconsistent.
    pub fn parse(text: &str) -> Result<SavedJob, ProgramError> {
        let saved: SavedJob = serde_json::from_str(text).map_err(damaged)?;
        // The system's name decides which programs are run, so it must be a known one.
        ProgramSystem::parse(&saved.system.name())?;
        Ok(saved)
    }

    fn recorded(&self) -> Result<Recorded, ProgramError> {
        let runs = kept::unpack(&self.run).map_err(damaged)?;
        let [run] = &runs[..] else { return Err(damaged("it has no run")) };
        let fits = run.disks.len() == 1
            && run.disks[0].writes.len() == self.meanings.len()
            && run.events.len() == self.times.len();
        if !fits {
            return Err(damaged("the run in it is another one"));
        }
        Ok(Recorded {
            system: self.system.clone(),
            run: Arc::clone(run),
            meanings: self.meanings.clone(),
            marks: self.marks.clone(),
            calls: self.calls.clone(),
            times: self.times.clone(),
            began: self.began,
            ended: self.ended,
            status: self.status,
            failed: self.failed,
        })
    }

    /// The file system's name.
    pub fn system(&self) -> String {
        self.system.name()
    }

    /// Judges the state again, and explains its failure; `None` if it does not fail any more.
    ///
    /// # Errors
    /// The file is inconsistent, or there is no loop device.
    pub fn replay(&self) -> Result<Option<Explanation>, ProgramError> {
        let recorded = self.recorded()?;
        let found = {
            let bench = Bench::new(&recorded, &self.check, self.unit);
            let stand = bench.stand(0)?;
            bench.judge_pick(&stand, &self.explanation.pick)?
        };
        let Some((wrong, said)) = found else { return Ok(None) };
        let (pick, alike) = (self.explanation.pick.clone(), self.explanation.alike);
        let finding = JobFinding { pick, wrong, said, alike };
        explain(&recorded, &self.check, self.unit, &finding, false).map(Some)
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
        let seen = bench.look(&stand, pick, |work| look(work, &promises))?;
        seen.ok_or_else(|| ProgramError::Program("the state cannot be mounted".into()))
    }

    /// Writes the state as an image, with holes in place of zeros.
    ///
    /// # Errors
    /// The file is inconsistent, or the image cannot be written.
    pub fn image(&self, to: &Path) -> Result<(), ProgramError> {
        let recorded = self.recorded()?;
        let bench = Bench::new(&recorded, &self.check, self.unit);
        let wrong = |error| ProgramError::Io { what: format!("writing {}", to.display()), error };
        let file = File::create(to).map_err(wrong)?;
        let written = bench.write(&file, &self.explanation.pick);
        written.ok_or_else(|| damaged("there is no such state"))?.map_err(wrong)
    }
}
