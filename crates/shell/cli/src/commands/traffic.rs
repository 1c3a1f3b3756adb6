//! Results about a trace: sentences, tables, the files with the most traffic; as text and as JSON.

use anyhow::Result;
use ordo_annotate::calls::{StoredCall, Waited, slowest, waited};
use ordo_annotate::files::FileTraffic;
use ordo_annotate::requests::RequestNumbers;
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};
use ordo_watcher::analysis::Analysis;

use super::analyze::tables;
use super::{calls, numbers, summary};

/// The number of files in the table and in the JSON. The trace's own table has all files.
const TOP: usize = 10;
/// The greatest width of a path in the table, in characters.
const PATH_MAX: usize = 40;

/// An analysis with the files that have the most traffic.
#[derive(serde::Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    analysis: &'a Analysis,
    files: &'a [FileTraffic],
    /// The number of bytes of file data that were written, and the number of those whose file has a
    /// known path.
    data_bytes: u64,
    data_bytes_with_path: u64,
    /// The time of system calls that waited for requests, by what they waited for.
    waits: &'a [Waited],
    /// The analysis in sentences.
    summary: Vec<String>,
    /// The calls that took longest, those first.
    slowest_calls: Vec<SlowCall<'a>>,
    /// Numbers that need no names.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<&'a RequestNumbers>,
}

/// A call that took long.
#[derive(serde::Serialize)]
struct SlowCall<'a> {
    name: &'a str,
    process: u64,
    path: Option<&'a str>,
    began_ns: u64,
    ns: u64,
}

/// All results about a trace.
#[derive(Clone, Copy)]
pub(super) struct Results<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) files: &'a [FileTraffic],
    pub(super) calls: &'a [StoredCall],
    /// Numbers that need no names, if they were asked for.
    pub(super) requests: Option<&'a RequestNumbers>,
}

impl Results<'_> {
    /// The sentences at the head.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut all = summary::of_traffic(self.analysis, self.files);
        all.extend(self.requests.into_iter().flat_map(summary::of_requests));
        all.extend(summary::of_calls(&waited(self.calls)));
        all
    }

    /// The results as tables with sentences at their head, or as JSON.
    ///
    /// # Errors
    /// They cannot be serialized.
    pub(super) fn text(&self, as_json: bool) -> Result<String> {
        let Results { analysis, files, calls, requests } = *self;
        let (waits, slowest) = (waited(calls), slowest(calls));
        if as_json {
            return self.json(&waits, &slowest);
        }
        let text = tables(analysis);
        let (head, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let mut lines: String = self.sentences().iter().map(|line| format!("{line}\n")).collect();
        if !lines.is_empty() {
            lines.push('\n');
        }
        let times = requests.map(numbers::times).unwrap_or_default();
        let calls = calls::waits(&waits) + &calls::slowest_calls(&slowest);
        Ok(format!("{head}\n\n{lines}{rest}{}{times}{calls}", top_files(files)))
    }

    fn json(&self, waits: &[Waited], slowest: &[StoredCall]) -> Result<String> {
        let Results { analysis, files, requests, .. } = *self;
        let (data_bytes, data_bytes_with_path) = named(files);
        let slow = slowest.iter().map(|call| SlowCall {
            name: &call.name,
            process: call.process,
            path: call.path.as_deref(),
            began_ns: call.began,
            ns: call.ended.saturating_sub(call.began),
        });
        Ok(json(&Whole {
            analysis,
            files: top(files),
            data_bytes,
            data_bytes_with_path,
            waits,
            summary: self.sentences(),
            slowest_calls: slow.collect(),
            requests,
        })?)
    }
}

/// Bytes of file data written, and the bytes among them whose file's path is known.
fn named(files: &[FileTraffic]) -> (u64, u64) {
    let data = |file: &FileTraffic| file.data.bytes;
    let with = files.iter().filter(|file| file.path.is_some());
    (files.iter().map(data).sum(), with.map(data).sum())
}

/// The files with an inode that have the most traffic.
fn top(files: &[FileTraffic]) -> &[FileTraffic] {
    &files[..files.len().min(TOP)]
}

/// The end of a path that is too long.
fn short(path: &str) -> String {
    let count = path.chars().count();
    match count.checked_sub(PATH_MAX) {
        Some(more @ 1..) => format!("...{}", path.chars().skip(more + 3).collect::<String>()),
        _ => path.to_owned(),
    }
}

/// The files with the most traffic, as a table; empty if no file is known.
fn top_files(files: &[FileTraffic]) -> String {
    if files.iter().all(|file| file.inode.is_none()) {
        return String::new();
    }
    let right = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("bytes of files", Align::Left),
        right("data"),
        right("metadata"),
        right("journal"),
        right("read"),
        right("writes"),
    ]);
    for file in top(files) {
        let name = match (&file.path, file.inode) {
            (Some(path), _) => short(path),
            (None, Some(inode)) => format!("inode {inode}"),
            (None, None) => "(no file)".to_owned(),
        };
        let writes = file.data.requests + file.metadata.requests + file.journal.requests;
        let parts = [file.data, file.metadata, file.journal, file.read];
        let [data, metadata, journal, read] = parts.map(|part| number::bytes(part.bytes));
        table.row([name, data, metadata, journal, read, number::count(writes)]);
    }
    let (all, with) = named(files);
    let share = match all {
        0 => String::new(),
        _ => format!("file data with a path: {}\n", number::percent(with as f64, all as f64)),
    };
    format!("\n{table}{share}")
}
