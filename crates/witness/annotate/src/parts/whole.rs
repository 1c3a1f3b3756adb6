//! All parts of a recording as one trace, read group by group.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::PathBuf;

use ordo_trace::{RequestContents, TraceRequest};

use super::{PartHead, PartedRecording};
use crate::image::Pieces;
use crate::reading::StoreError;
use crate::rows::BlockRow;
use crate::tables::{StoredTables, TableHead};

/// The reason why parts are not one trace.
#[derive(Debug, thiserror::Error)]
pub enum WholeError {
    /// A part cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part is missing.
    #[error("recording {recording}: part {part} is missing")]
    Missing {
        /// The recording.
        recording: String,
        /// The part's number.
        part: u32,
    },
    /// Not all of the time is recorded.
    #[error("recording {recording}: only {sample} of the time is recorded")]
    Sampled {
        /// The recording.
        recording: String,
        /// The part that is.
        sample: String,
    },
    /// The blocks of a part have no names.
    #[error("{}: its blocks have no names; `ordo analyze` tells why", path.display())]
    Unnamed {
        /// The part.
        path: PathBuf,
    },
}

/// A stored trace, or all parts of a recording, in the order of requests.
pub struct WholeTables {
    /// The number of each part's first request, and its tables.
    parts: Vec<(u64, StoredTables)>,
    /// The part whose contents were read last. The others have none in memory.
    last: Cell<usize>,
}

impl From<StoredTables> for WholeTables {
    fn from(tables: StoredTables) -> WholeTables {
        WholeTables { parts: vec![(0, tables)], last: Cell::new(0) }
    }
}

impl WholeTables {
    /// Opens the parts of a recording.
    ///
    /// # Errors
    /// A part is missing, cannot be read, or has no named blocks, or the recording is a sample.
    pub fn of_parts(recording: &PartedRecording) -> Result<WholeTables, WholeError> {
        let name = || recording.name.clone();
        if let Some(sample) = recording.sample.clone() {
            return Err(WholeError::Sampled { recording: name(), sample });
        }
        let mut parts = Vec::new();
        for (expected, (part, path)) in (0..).zip(&recording.parts) {
            if *part != expected {
                return Err(WholeError::Missing { recording: name(), part: expected });
            }
            let tables = StoredTables::open_as(path, parts.is_empty())?;
            let tables = tables.ok_or_else(|| WholeError::Unnamed { path: path.clone() })?;
            let first = PartHead::read(tables.requests())?.map_or(0, |head| head.first_request);
            parts.push((first, tables));
        }
        match parts.is_empty() {
            true => Err(WholeError::Missing { recording: name(), part: 0 }),
            false => Ok(WholeTables { parts, last: Cell::new(0) }),
        }
    }

    /// The header; of parts, that of the first one.
    pub fn head(&self) -> &TableHead {
        self.parts[0].1.head()
    }

    /// The known pieces of the device before the trace.
    pub fn start(&self) -> &Pieces {
        self.parts[0].1.start()
    }

    /// The number of writes whose contents were not kept, after [`each`](Self::each).
    pub fn blind(&self) -> usize {
        self.parts.iter().map(|(_, tables)| tables.blind()).sum()
    }

    /// The first failure to read contents. Such contents count as not kept.
    pub fn damage(&self) -> Option<StoreError> {
        self.parts.iter().find_map(|(_, tables)| tables.damage())
    }

    /// Shows each request, as [`StoredTables::each`], with its number in the recording.
    ///
    /// # Errors
    /// A file is damaged, or a row makes no sense.
    pub fn each(
        &mut self,
        mut show: impl FnMut(u64, &TraceRequest, Option<&[u8]>, &[BlockRow]),
    ) -> Result<(), StoreError> {
        for (first, tables) in &mut self.parts {
            tables
                .each(|number, request, text, rows| show(*first + number, request, text, rows))?;
        }
        Ok(())
    }
}

impl RequestContents for WholeTables {
    fn contents(&self, number: u64) -> Option<Cow<'_, [u8]>> {
        let part = self.parts.partition_point(|(first, _)| *first <= number).checked_sub(1)?;
        let last = self.last.replace(part);
        if last != part {
            self.parts[last].1.forget();
        }
        let (first, tables) = &self.parts[part];
        tables.contents(number - first)
    }
}
