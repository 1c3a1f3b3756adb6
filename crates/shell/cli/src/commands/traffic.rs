//! The files with the most traffic, as a table and as JSON.

use anyhow::Result;
use ordo_annotate::calls::Waited;
use ordo_annotate::files::FileTraffic;
use ordo_report::table::{Align, Table};
use ordo_report::{json, number};
use ordo_watcher::analysis::Analysis;

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

/// An analysis as JSON, with the files that have the most traffic.
///
/// # Errors
/// It cannot be serialized.
pub(super) fn whole(
    analysis: &Analysis,
    files: &[FileTraffic],
    waits: &[Waited],
) -> Result<String> {
    let (data_bytes, data_bytes_with_path) = named(files);
    Ok(json(&Whole { analysis, files: top(files), data_bytes, data_bytes_with_path, waits })?)
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
pub(super) fn top_files(files: &[FileTraffic]) -> String {
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
