//! The search of one system: its recording, and the log by which it can be stopped and continued.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use ordo_crash_program::judged::Judged;
use ordo_crash_program::record::Recorded;
use ordo_crash_program::searchlog::SearchLog;
use ordo_crash_program::{Check, Job, RecordingPlan};

use crate::args::Crash;

/// A search under way.
pub(super) struct Search {
    pub recorded: Recorded,
    /// The results of the search before it was stopped.
    pub done: Vec<Judged>,
    pub log: Log,
}

/// The log, which is written only if the results are (`-o`).
pub(super) struct Log {
    path: Option<PathBuf>,
    file: Mutex<(Option<SearchLog>, Option<std::io::Error>)>,
}

impl Log {
    fn new(path: Option<PathBuf>, file: Option<SearchLog>) -> Log {
        Log { path, file: Mutex::new((file, None)) }
    }

    /// Adds the results of a pick. An error is kept for [`Log::check`].
    pub fn add(&self, judged: &Judged) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(log), None) = &mut *file else { return };
        let added = log.add(judged);
        file.1 = added.err();
    }

    /// Reports an error of writing the log.
    pub fn check(&self) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match (file.1.take(), &self.path) {
            (Some(error), Some(path)) => {
                Err(error).with_context(|| format!("writing {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Search {
    /// Continues a search that was stopped, if that is asked for and there is one, or records the
    /// command.
    pub fn begin(
        args: &Crash,
        plan: &RecordingPlan,
        check: &Check,
        job: &Job,
        stop: &AtomicBool,
    ) -> Result<Search> {
        let path = args.output.as_ref().map(|path| {
            let mut name = path.clone().into_os_string();
            name.push(".search");
            PathBuf::from(name)
        });
        if let Some(at) = path.as_ref().filter(|path| args.resume && path.exists())
            && let Some((log, stopped)) = SearchLog::resume(at, plan, check, job)?
        {
            if !args.quiet {
                let (name, done) = (plan.system.name(), stopped.done.len());
                eprintln!("{name}: continued after {done} states");
            }
            let log = Log::new(path, Some(log));
            return Ok(Search { recorded: stopped.recorded, done: stopped.done, log });
        }
        let recorded = ordo_crash_program::record(plan, stop)?;
        let begin = |path: &PathBuf| SearchLog::begin(path, plan, &recorded, check, job);
        let log = path.as_ref().map(begin).transpose()?;
        let log = Log::new(path, log);
        Ok(Search { recorded, done: Vec::new(), log })
    }

    /// Removes the log: the search is finished.
    pub fn remove(&mut self) -> Result<()> {
        match &self.log.path {
            Some(path) => {
                std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))
            }
            None => Ok(()),
        }
    }
}
