//! Recorders of a device instead of a trace in memory: parts, or counters.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ordo_kernelfs::counters::{CounterOptions, CountersSlot, counting};
use ordo_recorder::MakeObserver;

use super::analyze::tables;
use super::parts::InParts;

/// The recorder of a device.
pub(super) enum StreamingRecorder {
    /// A trace in parts.
    Parts(InParts),
    /// Counters alone.
    Counters(Counters),
}

impl StreamingRecorder {
    /// The results as text or as JSON; empty if nothing was recorded.
    ///
    /// # Errors
    /// The parts cannot be read.
    pub(super) fn reported(&self, as_json: bool) -> Result<String> {
        match self {
            StreamingRecorder::Parts(parts) => parts.reported(as_json),
            StreamingRecorder::Counters(counters) => counters.reported(as_json),
        }
    }
}

/// Counters of a device.
pub(super) struct Counters {
    file: PathBuf,
    into: CountersSlot,
}

impl Counters {
    /// Counters in a file, which can be written.
    ///
    /// # Errors
    /// There is no folder for the file, or it cannot be written.
    pub(super) fn new(file: &Path) -> Result<Counters> {
        std::fs::write(file, "").with_context(|| format!("writing {}", file.display()))?;
        Ok(Counters { file: file.to_owned(), into: CountersSlot::default() })
    }

    /// The observer of a device with this name.
    pub(super) fn observer(&self, device: &str) -> MakeObserver {
        let path = self.file.clone();
        let failed = Box::new(move |error: &std::io::Error| {
            eprintln!("ordo: {}: {error}; counting goes on", path.display());
        });
        let (file, device) = (self.file.clone(), device.to_owned());
        counting(CounterOptions { file, device, failed }, self.into.clone())
    }

    fn reported(&self, as_json: bool) -> Result<String> {
        let Some(analysis) = self.into.lock().ok().and_then(|mut done| done.take()) else {
            return Ok(String::new());
        };
        Ok(match as_json {
            true => ordo_report::json(&analysis)?,
            false => tables(&analysis),
        })
    }
}
