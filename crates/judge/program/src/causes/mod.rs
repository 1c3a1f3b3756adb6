//! The usual causes of losses, recognised from system calls, or guessed from lost writes.
//!
//! [`by_calls`] replays a program's calls up to a moment, and finds the contents and names that no
//! call has made durable. Among these, it reports the files in which a failing state differs.
//! [`by_writes`] knows only the lost writes, so its result is a guess.

use std::collections::{BTreeMap, BTreeSet};

use ordo_trace::strace::Syscall;
use serde::{Deserialize, Serialize};

use crate::explore::Wrong;

/// A usual mistake. Earlier ones explain more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mistake {
    /// An fsync failed, and the program continued.
    SyncErrorIgnored,
    /// A file was renamed before its contents were durable.
    RenameWithoutFileSync,
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
    /// The promise was made before any fsync.
    NoSync,
    /// A rename was not made durable by an fsync of its directory.
    RenameWithoutDirectorySync,
    /// A new name was not made durable by an fsync of its directory.
    CreateWithoutDirectorySync,
    /// A removal was not made durable by an fsync of its directory.
    RemoveWithoutDirectorySync,
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
                "give each record a length and a checksum, and cut off what does not match",
            ),
            Mistake::OrderOfFiles => (
                "two files written without fsync between them",
                "call fsync on the first before the second is written",
            ),
            Mistake::NoSync => {
                ("promised before fsync", "call fsync on the file before it is promised")
            }
            Mistake::RenameWithoutDirectorySync => (
                "rename without fsync of the directory",
                "call fsync on the directory after the rename, before it is promised",
            ),
            Mistake::CreateWithoutDirectorySync => (
                "a new name without fsync of the directory",
                "call fsync on the directory before it is promised",
            ),
            Mistake::RemoveWithoutDirectorySync => (
                "a removal without fsync of the directory",
                "call fsync on the directory before it is promised",
            ),
        }
    }
}

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

/// The facts about a file that is not durable yet.
#[derive(Clone, Debug, Default)]
struct File {
    size: u64,
    /// The size when it was last durable; `None` if it never was.
    durable: Option<u64>,
    /// The last write since then, as the index of the call.
    written: Option<usize>,
    /// The call that truncated the file since then. The next two fields are the calls that
    /// overwrote it and appended to it.
    cut: Option<usize>,
    overwritten: Option<usize>,
    appended: Option<usize>,
    ranged: Option<usize>,
    failed: Option<usize>,
    /// The call that gave the file this name while a write to it was not durable.
    renamed_unsynced: Option<usize>,
    /// The call that gave the file its present name.
    renamed: Option<usize>,
    created: Option<usize>,
    /// A sync of another file, without anything to write, after the last write.
    other_sync: Option<usize>,
}

impl File {
    fn clean(&mut self) {
        self.durable = Some(self.size);
        (self.written, self.cut, self.overwritten, self.appended) = (None, None, None, None);
        (self.ranged, self.other_sync, self.renamed_unsynced) = (None, None, None);
    }

    fn write(&mut self, n: usize, call: &Syscall) {
        let end = call.offset.unwrap_or(self.size) + call.len;
        self.written = Some(n);
        (self.other_sync, self.ranged) = (None, None);
        match call.offset {
            Some(at) if at < self.durable.unwrap_or(0) => self.overwritten = Some(n),
            _ => self.appended = Some(n),
        }
        self.size = self.size.max(end);
    }
}

/// The files and names at a moment.
#[derive(Default)]
struct Replay {
    files: BTreeMap<String, File>,
    removed: BTreeMap<String, usize>,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Replay {
    /// Replays all calls that had begun by `until`. A sync counts only if it had ended.
    fn of(calls: &[Syscall], until: i64) -> Replay {
        let mut replay = Replay::default();
        for (n, call) in calls.iter().enumerate().take_while(|(_, call)| call.began <= until) {
            replay.call(n, call, call.ended <= until);
        }
        replay
    }

    fn call(&mut self, n: usize, call: &Syscall, over: bool) {
        let path = call.file.clone().unwrap_or_default();
        let failed = call.error.is_some();
        match &*call.name {
            "fsync" | "fdatasync" | "msync" if failed => {
                self.files.entry(path).or_default().failed = Some(n);
            }
            _ if failed => {}
            "open" | "creat" | "openat" => self.open(n, call, path),
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "copy_file_range"
            | "sendfile" => self.files.entry(path).or_default().write(n, call),
            "ftruncate" | "truncate" => self.cut(n, path, call.offset.unwrap_or(0)),
            "sync_file_range" => self.files.entry(path).or_default().ranged = Some(n),
            "fsync" | "fdatasync" if over => self.sync(n, &path),
            "sync" | "syncfs" if over => {
                for file in self.files.values_mut() {
                    file.clean();
                    (file.renamed, file.created) = (None, None);
                }
                self.removed.clear();
            }
            "rename" | "renameat" | "renameat2" => {
                let Some(to) = call.other.clone() else { return };
                let mut file = self.files.remove(&path).unwrap_or_default();
                file.renamed = Some(n);
                if file.written.is_some() {
                    file.renamed_unsynced = Some(n);
                }
                self.files.insert(to, file);
            }
            "link" | "linkat" => {
                let Some(to) = call.other.clone() else { return };
                let file = self.files.get(&path).cloned().unwrap_or_default();
                self.files.insert(to, File { created: Some(n), ..file });
            }
            "symlink" | "symlinkat" | "mkdir" | "mkdirat" => {
                self.files.entry(path).or_default().created = Some(n);
            }
            "unlink" | "unlinkat" | "rmdir" => {
                self.files.remove(&path);
                self.removed.insert(path, n);
            }
            _ => {}
        }
    }

    fn open(&mut self, n: usize, call: &Syscall, path: String) {
        let is_new = call.flags.contains("O_CREAT") && !self.files.contains_key(&path);
        let cuts = call.flags.contains("O_TRUNC");
        let file = self.files.entry(path.clone()).or_default();
        // A file that existed before the program counts as new only if the call creates or
        // truncates it.
        if is_new && (cuts || call.flags.contains("O_EXCL") || file.durable.is_none()) {
            file.created = Some(n);
        }
        if cuts && !is_new {
            self.cut(n, path, 0);
        } else if cuts {
            // The file may have existed before the program began.
            file.cut = Some(n);
        }
    }

    fn cut(&mut self, n: usize, path: String, size: u64) {
        let file = self.files.entry(path).or_default();
        if size < file.size.max(file.durable.unwrap_or(0)) {
            file.cut = Some(n);
        }
        file.size = size;
    }

    fn sync(&mut self, n: usize, path: &str) {
        let is_dir = self.files.keys().any(|file| parent(file) == path && file != path);
        let names = |file: &File| file.renamed.is_some() || file.created.is_some();
        let below = self.files.iter().any(|(p, file)| parent(p) == path && names(file));
        let removed = self.removed.keys().any(|p| parent(p) == path);
        let had_work = self.files.get(path).is_some_and(|file| file.written.is_some());
        if !had_work && !(is_dir && (below || removed)) {
            for (_, file) in self.files.iter_mut().filter(|(p, _)| *p != path) {
                if file.written.is_some() {
                    file.other_sync = Some(n);
                }
            }
        }
        if is_dir || !self.files.contains_key(path) {
            for (_, file) in self.files.iter_mut().filter(|(p, _)| parent(p) == path) {
                (file.renamed, file.created) = (None, None);
            }
            self.removed.retain(|p, _| parent(p) != path);
        }
        if let Some(file) = self.files.get_mut(path) {
            file.clean();
        }
    }

    /// The mistake by which a file that a promise needs is not durable, and the call that made it.
    fn not_durable(&self, path: &str) -> Option<(Mistake, usize)> {
        if let Some(n) = self.removed.get(path).filter(|_| !self.files.contains_key(path)) {
            return Some((Mistake::RemoveWithoutDirectorySync, *n));
        }
        let file = self.files.get(path)?;
        if let Some(n) = file.failed {
            return Some((Mistake::SyncErrorIgnored, n));
        }
        let unwritten = match (file.written, file.renamed_unsynced, file.ranged, file.other_sync) {
            (Some(_), Some(n), ..) => Some((Mistake::RenameWithoutFileSync, n)),
            (Some(_), _, Some(n), _) => Some((Mistake::SyncFileRange, n)),
            (Some(_), _, _, Some(n)) => Some((Mistake::WrongDescriptor, n)),
            (Some(n), ..) => Some((Mistake::NoSync, n)),
            _ => None,
        };
        unwritten
            .or(file.renamed.map(|n| (Mistake::RenameWithoutDirectorySync, n)))
            .or(file.created.map(|n| (Mistake::CreateWithoutDirectorySync, n)))
    }

    /// The mistake by which a file may be there only in part, and the call that made it.
    fn not_atomic(&self, path: &str) -> Option<(Mistake, usize)> {
        let file = self.files.get(path)?;
        if let Some(n) = file.failed {
            return Some((Mistake::SyncErrorIgnored, n));
        }
        if let (Some(_), Some(n)) = (file.written, file.renamed_unsynced) {
            return Some((Mistake::RenameWithoutFileSync, n));
        }
        let cut = file.cut.map(|n| (Mistake::TruncateInPlace, n));
        let over = file.overwritten.map(|n| (Mistake::OverwriteInPlace, n));
        let more = file.appended.map(|n| (Mistake::AppendUnchecked, n));
        // A new file is appended to, and not truncated.
        match file.durable {
            None if file.created.is_some() => more,
            _ => cut.or(over).or(more),
        }
    }
}

/// The defects of a failing state, from which a cause is to be found.
#[derive(Clone, Debug)]
pub struct CauseFailure<'a> {
    /// The kind of failure.
    pub wrong: Wrong,
    /// The paths in which the state differs from a right one.
    pub paths: &'a [String],
    /// The moment of the last promise, in nanoseconds of the calls' clock.
    pub promised: Option<i64>,
    /// The moment of the power cut, in nanoseconds of the calls' clock.
    pub cut: i64,
}

/// The causes that system calls prove, the most likely one first.
pub fn by_calls(calls: &[Syscall], failure: &CauseFailure<'_>) -> Vec<Cause> {
    let durable = failure.wrong == Wrong::LostDurable;
    let until = if durable { failure.promised.unwrap_or(failure.cut) } else { failure.cut };
    let replay = Replay::of(calls, until);
    let look = |path: &String| {
        let found = match durable {
            true => replay.not_durable(path),
            false => replay.not_atomic(path),
        };
        found.map(|(mistake, n)| cause(mistake, path, calls.get(n)))
    };
    let mut causes: Vec<Cause> = failure.paths.iter().filter_map(look).collect();
    if !durable {
        causes.extend(order(&replay, failure.paths, calls));
    }
    if causes.is_empty() {
        let all: BTreeSet<&String> = replay.files.keys().chain(replay.removed.keys()).collect();
        causes.extend(all.into_iter().filter_map(look));
    }
    causes.sort_by_key(|cause| cause.mistake);
    causes.dedup_by_key(|cause| cause.mistake);
    causes
}

/// Finds files that belong together, of which one may be there without the other. Only files
/// without any other mistake count.
fn order(replay: &Replay, paths: &[String], calls: &[Syscall]) -> Vec<Cause> {
    let dirty = |path: &&String| replay.not_durable(path).is_some();
    let none = paths.iter().all(|path| replay.not_atomic(path).is_none());
    let found: Vec<&String> = paths.iter().filter(dirty).collect();
    match (none, &found[..]) {
        (true, [path, ..]) => {
            let n = replay.not_durable(path).map(|(_, n)| n);
            vec![cause(Mistake::OrderOfFiles, path, n.and_then(|n| calls.get(n)))]
        }
        _ => Vec::new(),
    }
}

fn cause(mistake: Mistake, path: &str, call: Option<&Syscall>) -> Cause {
    let by = call.map(|call| format!(": {} by pid {}", call.text(), call.pid)).unwrap_or_default();
    let said = match mistake {
        Mistake::SyncErrorIgnored => "the fsync failed, and the program continued",
        Mistake::RenameWithoutFileSync => {
            "no fsync of the file between its last write and the rename"
        }
        Mistake::SyncFileRange => "no fsync after sync_file_range",
        Mistake::WrongDescriptor => "fsync was called on another file, which had nothing to write",
        Mistake::TruncateInPlace => "its old contents are gone before the new ones are durable",
        Mistake::OverwriteInPlace => "old contents are replaced piece by piece",
        Mistake::AppendUnchecked => "only a part of the appended data may be there",
        Mistake::OrderOfFiles => "it may be missing although another file that needs it is there",
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
    };
    Cause { mistake, path: path.to_owned(), text: format!("{path}: {said}{by}"), sure: true }
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
pub fn by_writes(wrong: Wrong, lost: &[LostWrite<'_>], paths: &[String]) -> Vec<Cause> {
    let data = lost.iter().find(|write| write.is_data);
    let mistake = match (wrong, data) {
        (Wrong::Unsound, _) => return Vec::new(),
        (Wrong::LostDurable, Some(_)) => Mistake::NoSync,
        (Wrong::LostDurable, None) if lost.is_empty() => Mistake::NoSync,
        (Wrong::LostDurable, None) => Mistake::CreateWithoutDirectorySync,
        (Wrong::NotAtomic, Some(write)) if write.torn => Mistake::OverwriteInPlace,
        (Wrong::NotAtomic, Some(_)) => Mistake::RenameWithoutFileSync,
        (Wrong::NotAtomic, None) => Mistake::OrderOfFiles,
    };
    let path = data.and_then(|write| write.path).or(paths.first().map(String::as_str));
    let cause = Cause { sure: false, ..cause(mistake, path.unwrap_or("a file"), None) };
    vec![cause]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls, a millisecond apart, from lines such as `name file [other] [offset len]`.
    fn calls(text: &str) -> Vec<Syscall> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let call = |(n, line): (usize, &str)| {
            let (line, error) = match line.strip_suffix(" EIO") {
                Some(line) => (line, Some("EIO".to_owned())),
                None => (line, None),
            };
            let words: Vec<&str> = line.split_whitespace().collect();
            let (name, flags) = words[0].split_once(':').unwrap_or((words[0], ""));
            let file = words.get(1).map(|w| if *w == "." { String::new() } else { (*w).into() });
            let number = |n: usize| words.get(n).and_then(|w| w.parse::<u64>().ok());
            let other = words.get(2).filter(|_| name == "rename").map(|w| (*w).into());
            Syscall {
                pid: 1,
                began: n as i64 * 1000,
                ended: n as i64 * 1000 + 500,
                name: name.into(),
                file,
                other,
                fd: None,
                offset: number(2),
                len: number(3).unwrap_or(0),
                flags: flags.into(),
                error,
                outcome: None,
            }
        };
        lines.enumerate().map(call).collect()
    }

    fn found(text: &str, wrong: Wrong, paths: &[&str]) -> Option<Mistake> {
        let calls = calls(text);
        let end = calls.len() as i64 * 1000;
        let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
        let failure = CauseFailure { wrong, paths: &paths, promised: Some(end), cut: end };
        by_calls(&calls, &failure).first().map(|cause| cause.mistake)
    }

    const REPLACE: &str = "openat:O_CREAT|O_TRUNC t\n write t 0 10\n";

    /// Each mistake is recognised from the missing call, and from nothing else.
    #[test]
    fn promises_that_are_not_durable() {
        let lost = |text: &str, path: &str| found(text, Wrong::LostDurable, &[path]);
        let no_file = format!("{REPLACE} rename t a\n fsync .");
        assert_eq!(lost(&no_file, "a"), Some(Mistake::RenameWithoutFileSync));
        let no_dir = format!("{REPLACE} fsync t\n rename t a");
        assert_eq!(lost(&no_dir, "a"), Some(Mistake::RenameWithoutDirectorySync));
        assert_eq!(lost(&format!("{no_dir}\n fsync ."), "a"), None);
        assert_eq!(lost(REPLACE, "t"), Some(Mistake::NoSync));
        assert_eq!(
            lost(&format!("{REPLACE} sync_file_range t"), "t"),
            Some(Mistake::SyncFileRange)
        );
        let other = "openat:O_CREAT b\n fsync b\n openat:O_CREAT a\n write a 0 5\n fsync b";
        assert_eq!(lost(other, "a"), Some(Mistake::WrongDescriptor));
        // The other file had data to write, so its sync was not meant for this one.
        let both = "openat:O_CREAT b\n openat:O_CREAT a\n write a 0 5\n write b 0 5\n fsync b";
        assert_eq!(lost(both, "a"), Some(Mistake::NoSync));
        assert_eq!(
            lost(&format!("{REPLACE} fsync t EIO\n fsync t"), "t"),
            Some(Mistake::SyncErrorIgnored)
        );
        assert_eq!(lost("mkdir d", "d"), Some(Mistake::CreateWithoutDirectorySync));
        assert_eq!(lost("mkdir d\n fsync .", "d"), None);
        assert_eq!(lost("unlink x", "x"), Some(Mistake::RemoveWithoutDirectorySync));
        assert_eq!(lost("unlink x\n syncfs", "x"), None);
    }

    /// Incomplete contents are recognised from the way in which they were written.
    #[test]
    fn incomplete_contents_are_recognised() {
        let torn = |text: &str, path: &str| found(text, Wrong::NotAtomic, &[path]);
        let base = "openat:O_CREAT a\n write a 0 9000\n fsync a\n fsync .\n";
        assert_eq!(
            torn(&format!("{base} pwrite64 a 0 9000"), "a"),
            Some(Mistake::OverwriteInPlace)
        );
        assert_eq!(torn(&format!("{base} write a 9000 10"), "a"), Some(Mistake::AppendUnchecked));
        let cut = format!("{base} openat:O_TRUNC a\n write a 0 10");
        assert_eq!(torn(&cut, "a"), Some(Mistake::TruncateInPlace));
        let renamed = format!("{base} {REPLACE} rename t a");
        assert_eq!(torn(&renamed, "a"), Some(Mistake::RenameWithoutFileSync));
        assert_eq!(torn(base, "a"), None);
    }

    /// A sync that had not ended at the power cut has made nothing durable.
    #[test]
    fn a_sync_under_way_counts_for_nothing() {
        let calls = calls("openat a\n write a 0 10\n fsync a");
        let paths = ["a".to_owned()];
        let mut failure =
            CauseFailure { wrong: Wrong::NotAtomic, paths: &paths, promised: None, cut: 2200 };
        assert_eq!(by_calls(&calls, &failure)[0].mistake, Mistake::AppendUnchecked);
        failure.cut = 2600;
        assert!(by_calls(&calls, &failure).is_empty());
    }
}
