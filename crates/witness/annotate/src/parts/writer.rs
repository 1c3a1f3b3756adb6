//! Writes parts on a thread of its own. A part gets its name when it is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use ordo_format::calendar::Date;

use super::join::UNDER_WAY;
use super::maker::Part;
use crate::store::{self, StoreError, Written};

/// The folders of a recording's parts: a folder for each host, device, file system and day.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder of all recordings.
    pub root: PathBuf,
    /// The host's name.
    pub host: String,
    /// The device's name.
    pub device: String,
}

/// A text as the name of a folder: characters with a meaning in paths become `_`.
fn word(text: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let word: String = text.chars().map(|c| if good(c) { c } else { '_' }).collect();
    if word.trim_matches('.').is_empty() { "none".to_owned() } else { word }
}

/// The day of a time in nanoseconds since 1970, as `2026-11-25`, in UTC.
fn day(ns: u64) -> String {
    Date::of_days((ns / 86_400_000_000_000).cast_signed()).to_string()
}

impl Place {
    /// The directory of a part.
    pub fn of(&self, part: &Part) -> PathBuf {
        let head = &part.head;
        let began = part.trace.requests().first().map_or(0, |r| r.issued.as_nanos());
        let day = day(head.began_ns.saturating_add(began));
        self.root
            .join(format!("host={}", word(&self.host)))
            .join(format!("device={}", word(&self.device)))
            .join(format!("fs={}", word(part.system)))
            .join(format!("day={day}"))
            .join(format!("{}.{:06}", word(&head.recording), head.part))
    }
}

/// Writes a part to its directory, which must not exist.
///
/// # Errors
/// A file cannot be written. What was written of the part is removed.
pub fn write(place: &Place, part: &Part) -> Result<Written, StoreError> {
    let dir = place.of(part);
    let mut under_way = dir.clone().into_os_string();
    under_way.push(UNDER_WAY);
    let under_way = PathBuf::from(under_way);
    let done = write_renamed(&under_way, &dir, part);
    if done.is_err() {
        // The part is not complete, and its space may be what is missing.
        let _ = fs::remove_dir_all(&under_way);
    }
    done
}

fn write_renamed(under_way: &Path, dir: &Path, part: &Part) -> Result<Written, StoreError> {
    let io = |error| StoreError::Io { path: dir.to_owned(), error };
    let written = store::write_part(under_way, &part.parts(), &part.head)?;
    match dir.exists() {
        true => Err(io(io::ErrorKind::AlreadyExists.into())),
        false => fs::rename(under_way, dir).map_err(io),
    }?;
    Ok(written)
}

/// The totals of the parts that were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenParts {
    /// The number of parts.
    pub parts: u32,
    /// The totals of all.
    pub all: Written,
}

/// A thread that writes parts, one at a time.
#[derive(Debug)]
pub struct PartWriter {
    give: Option<SyncSender<Part>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<(WrittenParts, Option<StoreError>)>>,
    busy: u32,
}

impl PartWriter {
    /// Starts the thread. The first error is given to `failed` at once, and nothing more is written
    /// then.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn start(
        place: Place,
        failed: impl FnOnce(&StoreError, u32) + Send + 'static,
    ) -> io::Result<PartWriter> {
        let (give, parts) = mpsc::sync_channel::<Part>(1);
        let (tell, done) = mpsc::channel();
        let run = move || {
            let (mut totals, mut error, mut failed) = (WrittenParts::default(), None, Some(failed));
            for part in parts {
                if error.is_none() {
                    match write(&place, &part) {
                        Ok(written) => totals.add(&written),
                        Err(why) => {
                            if let Some(failed) = failed.take() {
                                failed(&why, totals.parts);
                            }
                            error = Some(why);
                        }
                    }
                }
                drop(part);
                // The receiver is gone only when nobody waits.
                let _ = tell.send(());
            }
            (totals, error)
        };
        let thread = std::thread::Builder::new().name("parts".into()).spawn(run)?;
        Ok(PartWriter { give: Some(give), done, thread: Some(thread), busy: 0 })
    }

    /// Waits until nothing is being written.
    pub fn wait(&mut self) {
        while self.busy > 0 && self.done.recv().is_ok() {
            self.busy -= 1;
        }
    }

    /// Writes a part. Waits first for the part before, so that at most one is in memory here.
    pub fn write(&mut self, part: Part) {
        self.wait();
        if let Some(give) = &self.give
            && give.send(part).is_ok()
        {
            self.busy += 1;
        }
    }

    /// Waits until all is written. Returns the totals, and the error after which nothing more was
    /// written.
    pub fn finish(mut self) -> (WrittenParts, Option<StoreError>) {
        self.give = None;
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_default()
    }
}

impl WrittenParts {
    /// Adds a part.
    pub fn add(&mut self, one: &Written) {
        self.parts += 1;
        self.all.requests += one.requests;
        self.all.blocks += one.blocks;
        self.all.contents += one.contents;
        self.all.transactions += one.transactions;
        self.all.bytes += one.bytes;
        self.all.rows_bytes += one.rows_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days around leap days and at the ends of years, against the calendar; names that would leave
    /// the folder.
    #[test]
    fn folders_have_names() {
        let days = [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
            (1_735_689_600, "2025-01-01"),
            (4_107_542_400, "2100-03-01"),
        ];
        for (seconds, name) in days {
            assert_eq!(day(seconds * 1_000_000_000), name);
        }
        assert_eq!(word("../a b"), ".._a_b");
        assert_eq!((word(".."), word("")), ("none".to_owned(), "none".to_owned()));
    }
}
