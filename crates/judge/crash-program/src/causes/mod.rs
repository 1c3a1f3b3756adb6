//! The usual causes of losses, recognised from system calls, or guessed from lost writes.
//!
//! [`by_calls`] replays a program's calls up to a moment (`objects`), and finds the contents and
//! names that no call has made durable. Of these it reports only parts in which the failing state
//! differs from a right one (`faults`): first of files that the check's output names. Where the
//! program did everything, the file system is to blame. [`by_writes`] knows only the lost writes,
//! so its result is a guess.

mod faults;
mod objects;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use ordo_trace::strace::Syscall;
use serde::{Deserialize, Serialize};

use self::faults::{Fault, Faults};
use self::objects::Span;
use crate::explore::Wrong;

/// A usual mistake. Earlier ones explain more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mistake {
    /// An fsync failed, and the program continued.
    SyncErrorIgnored,
    /// A file was renamed before its contents were durable.
    RenameWithoutFileSync,
    /// A directory was renamed before the files in it were durable.
    DirectoryRenamedUnsynced,
    /// `sync_file_range` was taken for fsync.
    SyncFileRange,
    /// The program called fsync on a descriptor of another file.
    WrongDescriptor,
    /// A file was truncated, and rewritten in place.
    TruncateInPlace,
    /// Existing contents were overwritten in place.
    OverwriteInPlace,
    /// The program trusts appended data although only a part of it may be there.
    AppendUnchecked,
    /// A file became durable before another on which it depends.
    OrderOfFiles,
    /// Pages of a mapping were changed, and no msync waited for them.
    MappedWithoutSync,
    /// The program wrote through a ring of io_uring, and no fsync followed.
    RingWithoutSync,
    /// The promise was made before any fsync.
    NoSync,
    /// A rename was not made durable by an fsync of its directory.
    RenameWithoutDirectorySync,
    /// A new name was not made durable by an fsync of its directory.
    CreateWithoutDirectorySync,
    /// A removal was not made durable by an fsync of its directory.
    RemoveWithoutDirectorySync,
    /// The program did everything: its fsync returned, and what it synced is not there.
    FileSystem,
}

impl Mistake {
    /// The mistake in words, and its remedy.
    pub const fn advice(self) -> (&'static str, &'static str) {
        match self {
            Mistake::SyncErrorIgnored => (
                "an error of fsync ignored",
                "treat a failed fsync as lost data: write it again, or stop",
            ),
            Mistake::RenameWithoutFileSync => {
                ("rename without fsync of the file", "call fsync on the new file before the rename")
            }
            Mistake::DirectoryRenamedUnsynced => (
                "a directory renamed before its files were synced",
                "call fsync on each file, and on the directory, before renaming the directory",
            ),
            Mistake::SyncFileRange => (
                "sync_file_range instead of fsync",
                "call fsync or fdatasync: sync_file_range writes no metadata and no flush",
            ),
            Mistake::WrongDescriptor => (
                "fsync of the wrong descriptor",
                "call fsync on a descriptor of the file that was written",
            ),
            Mistake::TruncateInPlace => (
                "truncated and rewritten in place",
                "write another file, fsync it, and rename it over the old one",
            ),
            Mistake::OverwriteInPlace => (
                "overwritten in place",
                "keep the old contents until the new ones are durable: a journal, a copy, a checksum",
            ),
            Mistake::AppendUnchecked => (
                "append without a checksum",
                "store a length and a checksum with each record, and truncate at the first mismatch",
            ),
            Mistake::OrderOfFiles => (
                "two files written without fsync between them",
                "call fsync on the first before writing the second",
            ),
            Mistake::MappedWithoutSync => (
                "changed through a mapping without msync",
                "call msync with MS_SYNC on the changed pages, or fsync on the file, before promising it",
            ),
            Mistake::RingWithoutSync => (
                "written through io_uring and never synced",
                "submit an fsync when the write is done (or linked behind it), and wait for it before \
                 the promise",
            ),
            Mistake::NoSync => {
                ("promised before fsync", "call fsync on the file before promising it")
            }
            Mistake::RenameWithoutDirectorySync => (
                "rename without fsync of the directory",
                "call fsync on the directory after the rename, before promising it",
            ),
            Mistake::CreateWithoutDirectorySync => (
                "a new name without fsync of the directory",
                "call fsync on the directory before promising it",
            ),
            Mistake::RemoveWithoutDirectorySync => (
                "a removal without fsync of the directory",
                "call fsync on the directory before promising it",
            ),
            Mistake::FileSystem => (
                "the file system's fault",
                "the program did its part: report the saved failure to the file system's developers",
            ),
        }
    }
}

/// The most bytes of a check's output in which names are looked for.
const SAID_MAX: usize = 64 << 10;

/// A mistake that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The mistake.
    pub mistake: Mistake,
    /// The file.
    pub path: String,
    /// The explanation in words.
    pub text: String,
    /// Whether system calls prove the cause; otherwise it is a guess.
    pub sure: bool,
}

impl Cause {
    /// The mistake in words, which say so if it is a guess.
    pub fn in_words(&self) -> String {
        let perhaps = if self.sure { "" } else { "perhaps " };
        format!("{perhaps}{}", self.mistake.advice().0)
    }
}

/// The way in which a state differs from a right one at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Defect {
    /// Nothing is known of it.
    #[default]
    Unknown,
    /// There is nothing of this name.
    Missing,
    /// There is something, where nothing should be.
    Extra,
    /// Its contents, mode, owner or attributes are others.
    Changed {
        /// The bytes that differ: first byte, end.
        spans: Vec<(u64, u64)>,
        /// Whether mode, owner or attributes differ.
        is_described: bool,
    },
}

/// A path in which a failing state differs.
#[derive(Clone, Debug, Default)]
pub struct Differing {
    /// The path; empty for the program's directory.
    pub path: String,
    /// The difference.
    pub defect: Defect,
}

/// The defects of a failing state, from which a cause is to be found.
#[derive(Clone, Debug)]
pub struct CauseFailure<'a> {
    /// The kind of failure.
    pub wrong: Wrong,
    /// The output of the check.
    pub said: &'a str,
    /// The paths in which the state differs from a right one.
    pub differing: &'a [Differing],
    /// All paths of the failing state.
    pub present: &'a BTreeSet<String>,
    /// The files before the program began, with their sizes; `None` for a directory.
    pub existing: &'a [(String, Option<u64>)],
    /// The moment of the last promise, in nanoseconds of the calls' clock.
    pub promised: Option<i64>,
    /// The moment of the power cut, in nanoseconds of the calls' clock.
    pub cut: i64,
    /// The moment of the right state, in nanoseconds of the calls' clock.
    pub right: Option<i64>,
}

/// How plainly a check's output tells of a path; less is plainer. Its own name or path comes
/// before one above or below it, and a path of which nothing is said comes last.
fn rank(said: &str, path: &str) -> usize {
    let own = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let up = path.match_indices('/').map(|(at, _)| &path[..at]);
    if path.is_empty() {
        return 3;
    }
    if names(said, path) {
        0
    } else if names(said, own) {
        1
    } else if up.into_iter().any(|above| names(said, above)) {
        2
    } else {
        3
    }
}

/// Whether a text has a name that is no part of another name.
fn names(said: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    said.match_indices(name).any(|(at, _)| {
        let (before, after) = (&said[..at], &said[at + name.len()..]);
        // A sentence may end behind the name.
        let after =
            after.strip_prefix('.').filter(|rest| !rest.starts_with(is_part)).unwrap_or(after);
        !before.ends_with(is_part)
            && (!before.ends_with('/') || before.ends_with("./"))
            && !after.starts_with(is_part)
    })
}

/// The causes that system calls prove, or at least show, the most likely one first.
pub fn by_calls(calls: &[Syscall], failure: &CauseFailure<'_>) -> Vec<Cause> {
    let said = failure.said.get(..SAID_MAX).unwrap_or(failure.said);
    let mut differing: Vec<(usize, &Differing)> =
        failure.differing.iter().map(|one| (rank(said, &one.path), one)).collect();
    differing.sort_by_key(|(rank, _)| *rank);
    let faults = Faults::of(calls, failure);
    let found = |(rank, one): &(usize, &Differing)| {
        let fault = match failure.wrong {
            Wrong::LostDurable => faults.not_durable(&one.path, &one.defect),
            _ => faults.not_atomic(&one.path, &one.defect),
        };
        fault.map(|fault| (*rank, fault))
    };
    let mut all: Vec<(usize, Fault)> = differing.iter().filter_map(found).collect();
    if failure.wrong == Wrong::LostDurable {
        // A file of which the check says nothing may differ rightly: it changed later.
        let best = differing.first().map_or(3, |(rank, _)| *rank);
        let blamed: Vec<&(usize, &Differing)> = differing
            .iter()
            .filter(|(rank, _)| *rank == best && (*rank < 3 || all.is_empty()))
            .collect();
        let none = |one: &Differing| all.iter().all(|(_, fault)| fault.path != one.path);
        let kept: Vec<(usize, Fault)> = blamed
            .into_iter()
            .filter(|(_, one)| none(one))
            .filter_map(|(rank, one)| Some((*rank, faults.of_file_system(one)?)))
            .collect();
        all.extend(kept);
    } else if all.is_empty() {
        all.extend(faults.order(&differing));
    }
    if all.is_empty() && failure.differing.is_empty() {
        all.extend(faults.guesses(said).into_iter().map(|fault| (3, fault)));
    }
    all.sort_by_key(|(rank, fault)| (!fault.is_sure, *rank, fault.mistake));
    if all.first().is_some_and(|(_, fault)| fault.is_sure) {
        all.retain(|(_, fault)| fault.is_sure);
    }
    let mut seen = Vec::new();
    all.retain(|(_, fault)| {
        !seen.contains(&fault.mistake) && {
            seen.push(fault.mistake);
            true
        }
    });
    all.into_iter().map(|(_, fault)| fault.cause(calls)).collect()
}

/// The words for a mistake.
fn words(mistake: Mistake) -> &'static str {
    match mistake {
        Mistake::SyncErrorIgnored => "the fsync failed, and the program continued",
        Mistake::RenameWithoutFileSync => {
            "no fsync of the file between its last write and the rename"
        }
        Mistake::DirectoryRenamedUnsynced => {
            "no fsync of the file, or of its directory, before the directory was renamed"
        }
        Mistake::SyncFileRange => "no fsync after sync_file_range",
        Mistake::WrongDescriptor => "fsync was called on another file, which had nothing to write",
        Mistake::TruncateInPlace => "its old contents are gone before the new ones are durable",
        Mistake::OverwriteInPlace => "old contents are replaced piece by piece",
        Mistake::AppendUnchecked => "only a part of the appended data may be there",
        Mistake::OrderOfFiles => "it may be missing although another file that needs it is there",
        Mistake::MappedWithoutSync => {
            "no msync of the changed pages, nor fsync of the file, after it was mapped"
        }
        Mistake::RingWithoutSync => "no fsync of the file after it was written through the ring",
        Mistake::NoSync => "no fsync of the file after its last write",
        Mistake::RenameWithoutDirectorySync => {
            "no fsync of the directory between the rename and the promise"
        }
        Mistake::CreateWithoutDirectorySync => {
            "no fsync of the directory between the new name and the promise"
        }
        Mistake::RemoveWithoutDirectorySync => {
            "no fsync of the directory between the removal and the promise"
        }
        Mistake::FileSystem => "it was synced before the promise, and is not there",
    }
}

/// A write that a failing state has lost, or has in part.
#[derive(Clone, Debug)]
pub struct LostWrite<'a> {
    /// Whether it wrote contents of a file.
    pub is_data: bool,
    /// Whether a part of the write is there.
    pub torn: bool,
    /// The file.
    pub path: Option<&'a str>,
}

/// Guesses causes from lost writes, if there are no system calls.
pub fn by_writes(
    wrong: Wrong,
    lost: &[LostWrite<'_>],
    said: &str,
    differing: &[Differing],
) -> Vec<Cause> {
    let data = lost.iter().find(|write| write.is_data);
    let named = differing.iter().min_by_key(|one| rank(said, &one.path));
    let mistake = match (wrong, data, named.map(|one| &one.defect)) {
        (Wrong::Unsound, ..) => return Vec::new(),
        (Wrong::LostDurable, _, Some(Defect::Extra)) => Mistake::RemoveWithoutDirectorySync,
        (Wrong::LostDurable, Some(_), _) => Mistake::NoSync,
        (Wrong::LostDurable, None, _) if lost.is_empty() => Mistake::NoSync,
        (Wrong::LostDurable, None, _) => Mistake::CreateWithoutDirectorySync,
        (Wrong::NotAtomic, Some(write), _) if write.torn => Mistake::OverwriteInPlace,
        (Wrong::NotAtomic, Some(_), _) => Mistake::RenameWithoutFileSync,
        (Wrong::NotAtomic, None, _) => Mistake::OrderOfFiles,
    };
    let path = named.map(|one| &*one.path).or_else(|| data.and_then(|write| write.path));
    let path = path.map_or("a file", |path| if path.is_empty() { "." } else { path });
    let text = format!("{path}: {}", words(mistake));
    vec![Cause { mistake, path: path.to_owned(), text, sure: false }]
}
