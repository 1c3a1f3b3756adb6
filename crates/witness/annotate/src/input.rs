//! Opens a trace in any known form, with a watcher if the file system is known.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ordo_trace::blktrace::{self, BlktraceError};
use ordo_trace::dm_log_writes::{self, ImportError};
use ordo_trace::iolog::{self, IologError};
use ordo_trace::{RequestOp, Trace};
use ordo_watcher::decoder::DiskImage;
use ordo_watcher::{Watch, disk};

use crate::calls::{self, StoredCall};
use crate::image::{Learning, Pieces, TracedImage};
use crate::store::{self, StoreError};
use crate::volumes::{self, DiskVolume, NoVolume, Volumes};

/// An opened trace.
pub struct Opened {
    /// The requests.
    pub trace: Rc<Trace>,
    /// A watcher that knows the file system; `None` if it is not known.
    pub watch: Option<Rc<Watch>>,
    /// The known pieces of the device before the trace.
    pub start: Pieces,
    /// The system calls that were recorded with the trace.
    pub calls: Vec<StoredCall>,
    /// Notes for the reader of the results.
    pub notes: Vec<String>,
}

/// The volumes of a disk that are wanted.
#[derive(Clone, Copy, Debug)]
pub enum WhichVolume<'a> {
    /// All of them.
    All,
    /// The one with this name, or with this number of a partition.
    Named(&'a str),
    /// The one that begins at this byte of the disk.
    At(u64),
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
    /// There is no volume at that offset.
    #[error("{}: {error}", path.display())]
    NoVolume {
        /// The disk.
        path: PathBuf,
        /// The reason.
        error: NoVolume,
    },
    /// The disk has no volume of that name.
    #[error("{}: the disk has no partition {name}; there are: {known}", path.display())]
    NotNamed {
        /// The disk.
        path: PathBuf,
        /// The name.
        name: String,
        /// The names of all volumes.
        known: String,
    },
    /// The disk has several volumes, and one is needed.
    #[error("{}: the disk has the partitions {known}: choose one with --partition", path.display())]
    SeveralVolumes {
        /// The disk.
        path: PathBuf,
        /// The names of all volumes.
        known: String,
    },
    /// An I/O log of fio is damaged.
    #[error("{}: {error}", path.display())]
    Iolog {
        /// The file.
        path: PathBuf,
        /// The damage.
        error: IologError,
    },
    /// Several files were given, and they are not a blktrace.
    #[error("{}: only a blktrace has several files, one for each processor", path.display())]
    Several {
        /// The second file.
        path: PathBuf,
    },
}

/// A trace as it was read.
struct Read {
    trace: Trace,
    pieces: Pieces,
    calls: Vec<StoredCall>,
    notes: Vec<String>,
    /// The name of the stored trace's file system.
    system: Option<String>,
}

fn read_trace(paths: &[PathBuf]) -> Result<Read, InputError> {
    let Some(path) = paths.first() else {
        let (path, error) = (PathBuf::new(), io::ErrorKind::NotFound.into());
        return Err(InputError::Io { path, error });
    };
    let mut notes = Vec::new();
    if store::is_trace(path) {
        let stored = store::read(path)?;
        let (calls, system) = (calls::read(path)?, Some(stored.system));
        return Ok(Read { trace: stored.trace, pieces: stored.start, calls, notes, system });
    }
    let trace = recorded(paths, &mut notes)?;
    let pieces = Pieces::default();
    Ok(Read { trace, pieces, calls: Vec::new(), notes, system: None })
}

/// Opens a trace of one volume: a directory that [`store::write`] made, a log of dm-log-writes,
/// files of blktrace, or the text of blkparse or bpftrace. `start` is the device's contents before
/// the trace, in an image or on a device; a stored directory has the pieces of them that it needs.
///
/// # Errors
/// The trace cannot be read, or is in none of these forms, or the disk has several volumes.
pub fn open(
    paths: &[PathBuf],
    start: Option<&Path>,
    place: WhichVolume<'_>,
) -> Result<Opened, InputError> {
    let mut all = open_each(paths, start, place)?;
    match all.len() {
        1 => Ok(all.swap_remove(0).1),
        _ => {
            let known: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
            let path = start.or(paths.first().map(|p| &**p)).unwrap_or(Path::new("")).into();
            Err(InputError::SeveralVolumes { path, known: known.join(", ") })
        }
    }
}

/// Opens the volumes of a trace, each with its name, which is empty if the disk is one volume.
///
/// # Errors
/// The trace cannot be read, or is in no known form, or has no such volume.
pub fn open_each(
    paths: &[PathBuf],
    start: Option<&Path>,
    place: WhichVolume<'_>,
) -> Result<Vec<(String, Opened)>, InputError> {
    let read = read_trace(paths)?;
    let Some(path) = start else {
        let is_rest = read.system.as_deref() == Some(volumes::TABLES);
        let pieces = read.pieces.clone();
        let name = paths.first().map_or(Path::new(""), |path| &**path);
        if matches!(place, WhichVolume::All) || is_rest {
            return Ok(vec![(String::new(), opened(read, &pieces, None))]);
        }
        return of_volumes(read, &pieces, name, place);
    };
    let file = File::open(path).map_err(|error| InputError::Io { path: path.into(), error })?;
    of_volumes(read, &file, path, place)
}

/// The wanted volumes of a trace of a disk.
fn of_volumes(
    mut read: Read,
    disk: &dyn DiskImage,
    path: &Path,
    place: WhichVolume<'_>,
) -> Result<Vec<(String, Opened)>, InputError> {
    let found = match place {
        WhichVolume::At(offset) => Volumes::from(disk, offset)
            .map_err(|error| InputError::NoVolume { path: path.into(), error })?,
        _ => Volumes::find(disk).map_err(|error| InputError::Io { path: path.into(), error })?,
    };
    read.notes
        .extend(found.problems.iter().map(|problem| format!("{}: {problem}", path.display())));
    let is_wanted = |volume: &DiskVolume| match place {
        WhichVolume::All => true,
        WhichVolume::Named(name) => volume.is_called(name),
        WhichVolume::At(_) => volume.name != volumes::REST,
    };
    let wanted: Vec<&DiskVolume> = found.all.iter().filter(|volume| is_wanted(volume)).collect();
    match (place, &wanted[..]) {
        (WhichVolume::Named(name), []) => {
            let known: Vec<&str> = found.all.iter().map(|v| &*v.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Err(InputError::NotNamed { path: path.into(), name: name.to_owned(), known })
        }
        (_, []) => Ok(vec![(String::new(), opened(read, disk, None))]),
        (_, wanted) => {
            let Read { trace, notes, .. } = &read;
            let each = wanted.iter().enumerate().map(|(i, volume)| {
                // The notes are told once.
                let notes = if i == 0 { notes.clone() } else { Vec::new() };
                let (trace, pieces) = (volume.trace(trace), Pieces::default());
                let part = Read { trace, pieces, calls: Vec::new(), notes, system: None };
                (volume.name.clone(), opened(part, &volume.image(disk), Some(volume)))
            });
            Ok(each.collect())
        }
    }
}

/// A trace with its watcher. `image` is the volume before the trace.
fn opened(read: Read, image: &dyn DiskImage, volume: Option<&DiskVolume>) -> Opened {
    let Read { trace, calls, mut notes, system, .. } = read;
    let trace = Rc::new(trace);
    let learning = Learning::new(image);
    let is_rest = system.as_deref() == Some(volumes::TABLES);
    let watch = match volume.and_then(DiskVolume::watch_of_tables) {
        None if is_rest => {
            let found = Volumes::find(&learning).unwrap_or_default();
            found.all.last().and_then(DiskVolume::watch_of_tables)
        }
        Some(watch) => {
            let _ = volumes::table(&learning);
            Some(watch)
        }
        None => watch_over(&learning, &trace),
    };
    let writes = trace.requests().iter().filter(|r| r.op == RequestOp::Write);
    notes.extend(watch.as_ref().and_then(|watch| watch.doubt()));
    notes.extend(blind_writes(writes.filter(|r| r.data.is_none()).count()));
    Opened { trace, watch, start: learning.learned(), calls, notes }
}

/// The note about writes without contents, if there are any.
pub fn blind_writes(count: usize) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "the contents of {count} writes were not recorded: they are classified by their addresses alone, from the state before the trace"
        )
    })
}

/// A watcher of a device; `None` if no known file system is on it, and none is made in the trace.
fn watch_over(image: &Learning<'_>, trace: &Rc<Trace>) -> Option<Rc<Watch>> {
    let writes = trace.requests().iter().filter(|r| r.op == RequestOp::Write);
    // Writes beyond its end show that the image is not that of the device.
    let is_the_device =
        trace.requests().iter().all(|r| r.offset.saturating_add(r.len) <= image.bytes());
    let writes = writes.filter_map(|r| Some((r.offset, trace.data(r)?)));
    if !is_the_device || !disk::is_made(image, writes) {
        return Watch::over(image);
    }
    let watch = Watch::over_any(image);
    watch.follow(Rc::new(TracedImage::new(image.known(), trace.clone())));
    Some(watch)
}

fn read(path: &Path) -> Result<Vec<u8>, InputError> {
    fs::read(path).map_err(|error| InputError::Io { path: path.into(), error })
}

/// Reads a log of dm-log-writes, files of blktrace, or an I/O log of fio.
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
    if iolog::is_iolog(&first) && paths.len() == 1 {
        let done = iolog::import(&first);
        let done = done.map_err(|error| InputError::Iolog { path: path.clone(), error })?;
        notes.push("fio's I/O log has no completions: each request counts as done at once".into());
        if done.cut {
            notes.push(format!("{}: the last line is cut short, and left out", path.display()));
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
