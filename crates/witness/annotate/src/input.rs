//! Opens a trace in any known form, with a watcher if the file system is known.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ordo_sba::Watch;
use ordo_trace::blktrace::{self, BlktraceError};
use ordo_trace::dm_log_writes::{self, ImportError};
use ordo_trace::{RequestOp, Trace};

use crate::calls::{self, StoredCall};
use crate::image::{Learning, Pieces};
use crate::store::{self, StoreError};

/// An opened trace.
pub struct Opened {
    /// The requests.
    pub trace: Trace,
    /// A watcher that knows the file system; `None` if it is not known.
    pub watch: Option<Rc<Watch>>,
    /// The known pieces of the device before the trace.
    pub start: Pieces,
    /// The system calls that were recorded with the trace.
    pub calls: Vec<StoredCall>,
    /// Notes for the reader of the results.
    pub notes: Vec<String>,
}

/// The reason why a trace was not opened.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The operating system refused a file operation.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A directory of Parquet files is damaged or incomplete.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A log of dm-log-writes is damaged.
    #[error("{}: {error}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The damage.
        error: ImportError,
    },
    /// The events of a blktrace are damaged.
    #[error("{}: {error}", path.display())]
    Blktrace {
        /// The first of the files.
        path: PathBuf,
        /// The damage.
        error: BlktraceError,
    },
    /// Several files were given, and they are not a blktrace.
    #[error("{}: only a blktrace has several files, one for each processor", path.display())]
    Several {
        /// The second file.
        path: PathBuf,
    },
}

/// Opens a trace: a directory that [`store::write`] made, a log of dm-log-writes, files of blktrace, or the text of blkparse or bpftrace. `start` is
/// the device's contents before the trace, in an image or on a device; a stored directory has the pieces of them
/// that it needs.
///
/// # Errors
/// The trace cannot be read, or is in none of these forms.
pub fn open(paths: &[PathBuf], start: Option<&Path>) -> Result<Opened, InputError> {
    let Some(path) = paths.first() else {
        let (path, error) = (PathBuf::new(), io::ErrorKind::NotFound.into());
        return Err(InputError::Io { path, error });
    };
    let mut notes = Vec::new();
    let (trace, mut pieces, calls) = if store::is_trace(path) {
        let stored = store::read(path)?;
        (stored.trace, stored.start, calls::read(path)?)
    } else {
        (recorded(paths, &mut notes)?, Pieces::default(), Vec::new())
    };
    let watch = match start {
        Some(path) => {
            let file = File::open(path);
            let file = file.map_err(|error| InputError::Io { path: path.into(), error })?;
            let learning = Learning::new(&file);
            let watch = Watch::over(&learning);
            pieces = learning.learned();
            watch
        }
        None => Watch::over(&pieces),
    };
    let writes = trace.requests().iter().filter(|r| r.op == RequestOp::Write);
    let blind = writes.filter(|r| r.data.is_none()).count();
    if blind > 0 {
        notes.push(format!(
            "the contents of {blind} writes were not recorded: they are classified by their addresses alone, from the state before the trace"
        ));
    }
    Ok(Opened { trace, watch, start: pieces, calls, notes })
}

fn read(path: &Path) -> Result<Vec<u8>, InputError> {
    fs::read(path).map_err(|error| InputError::Io { path: path.into(), error })
}

/// Reads a log of dm-log-writes, or files of blktrace.
fn recorded(paths: &[PathBuf], notes: &mut Vec<String>) -> Result<Trace, InputError> {
    let first = read(&paths[0])?;
    let path = paths[0].clone();
    let magic = first.get(..4).map_or([0; 4], |m| [m[0], m[1], m[2], m[3]]);
    let is_text = blktrace::is_text(&first);
    if is_text || magic[1..] == *b"tae" || magic[..3] == *b"eat" {
        let mut files = vec![first];
        for path in &paths[1..] {
            files.push(read(path)?);
        }
        let done = if is_text { blktrace::import_text(&files) } else { blktrace::import(&files) };
        let done = done.map_err(|error| InputError::Blktrace { path, error })?;
        for (file, byte) in &done.cut {
            let path = paths[*file].display();
            notes.push(format!("{path}: truncated within the event at byte {byte}"));
        }
        if done.unmatched > 0 {
            notes.push(format!("{} completions belong to no request in the trace", done.unmatched));
        }
        if done.passthrough > 0 {
            notes.push(format!("{} driver-specific commands are left out", done.passthrough));
        }
        return Ok(done.trace);
    }
    if let Some(path) = paths.get(1) {
        return Err(InputError::Several { path: path.clone() });
    }
    let done = dm_log_writes::import(first);
    let done = done.map_err(|error| InputError::Log { path: path.clone(), error })?;
    if let Some(cut) = done.cut {
        let (entry, entries, byte) = (cut.entry, cut.entries, cut.byte);
        notes.push(format!(
            "{}: truncated: entry {entry} of {entries}, at byte {byte}, is incomplete; the {entry} entries before it are used",
            path.display()
        ));
    }
    Ok(done.trace)
}
