//! Opens a trace in any known form, with a watcher if the file system is known.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ordo_trace::formats::FormatError;
use ordo_trace::{RequestOp, Trace, packed};
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
    /// The contents of a volume without a known file system, by its signatures: "a LUKS volume".
    pub holds: Vec<&'static str>,
}

/// The volumes of a disk that are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub enum WhichVolume<'a> {
    /// All of them.
    #[default]
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
    /// The files are in no known form, or damaged.
    #[error("{}: {error}", path.display())]
    Format {
        /// The first of the files.
        path: PathBuf,
        /// The reason.
        error: FormatError,
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
}

/// The file of a trace that stands for the standard input.
const STDIN: &str = "-";

/// The parts of a trace that are wanted: everything, where nothing is chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct WhichPart<'a> {
    /// The volumes of the disk.
    pub volume: WhichVolume<'a>,
    /// The device, where a text has requests of several.
    pub only: Option<&'a str>,
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

fn read_trace(paths: &[PathBuf], only: Option<&str>) -> Result<Read, InputError> {
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
    let trace = recorded(paths, only, &mut notes)?;
    let pieces = Pieces::default();
    Ok(Read { trace, pieces, calls: Vec::new(), notes, system: None })
}

/// Opens a trace of one volume: a directory that [`store::write`] made, or files in one of
/// [these forms](ordo_trace::formats::FORMATS). `start` is the device's contents before the trace,
/// in an image or on a device; a stored directory has the pieces of them that it needs.
///
/// # Errors
/// The trace cannot be read, or is in none of these forms, or the disk has several volumes.
pub fn open(
    paths: &[PathBuf],
    start: Option<&Path>,
    part: WhichPart<'_>,
) -> Result<Opened, InputError> {
    let mut all = open_each(paths, start, part)?;
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
    part: WhichPart<'_>,
) -> Result<Vec<(String, Opened)>, InputError> {
    let WhichPart { volume: place, only } = part;
    let read = read_trace(paths, only)?;
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
    if watch.is_some() {
        notes.extend(blind_writes(writes.filter(|r| r.data.is_none()).count()));
    }
    let holds = if watch.is_none() { volumes::signatures(image) } else { Vec::new() };
    Opened { trace, watch, start: learning.learned(), calls, notes, holds }
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

/// Reads files in one of the forms that are taken.
fn recorded(
    paths: &[PathBuf],
    only: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Trace, InputError> {
    let (mut names, mut files, mut format) = (Vec::new(), Vec::new(), None);
    for path in paths {
        let failed = |error| InputError::Format { path: path.clone(), error };
        let is_stdin = path.as_os_str() == STDIN;
        let name = if is_stdin { "standard input".into() } else { path.display().to_string() };
        let file = match is_stdin {
            true => packed::unpack(io::stdin().lock(), format),
            false => {
                let opened = File::open(path);
                let path = path.clone();
                packed::unpack(opened.map_err(|error| InputError::Io { path, error })?, format)
            }
        };
        let file = file.map_err(failed)?;
        if file.is_cut {
            notes.push(format!("{name}: the compressed file is cut short; its beginning is used"));
        }
        let first = *format.get_or_insert(file.format);
        if !std::ptr::eq(first, file.format) {
            return Err(failed(FormatError::Several));
        }
        names.push(name);
        files.push(file.bytes);
    }
    let failed = |error| InputError::Format { path: paths[0].clone(), error };
    let Some(format) = format else { return Err(failed(FormatError::Unknown)) };
    let done = format.read((&names, files), only).map_err(failed)?;
    notes.extend(done.notes);
    Ok(done.trace)
}
