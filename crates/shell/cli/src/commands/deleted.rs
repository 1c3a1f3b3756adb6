//! `ordo ls --deleted`: removed names, and files whose directory is lost.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Result;
use ordo_report::json;
use ordo_systems::rescue::{DeletedState, RescueFs};
use ordo_vfs::tree::{Visit, Walk, WalkLimits};
use ordo_vfs::{Attr, FileSystem, FileType, Ino};

use crate::text::{put, type_name};

/// A removed name, or a file without one.
#[derive(serde::Serialize)]
struct Line {
    /// Empty if the file has no name any more.
    path: String,
    ino: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    state: &'static str,
    #[serde(skip)]
    raw: Vec<u8>,
}

/// The word for the state of an inode.
fn word(state: DeletedState) -> &'static str {
    match state {
        DeletedState::Unknown => "no inode",
        DeletedState::InUse => "reused",
        DeletedState::Readable => "readable",
        DeletedState::Cleared => "cleared",
        DeletedState::Unreadable => "unreadable",
    }
}

/// Lists the removed names in a directory, and those below it if `recursive`. From the root on, the
/// files whose directory is lost follow.
///
/// # Errors
/// The output cannot be written.
pub async fn list(fs: &RescueFs, top: &Attr, recursive: bool, as_json: bool) -> Result<()> {
    let mut lines = Vec::new();
    let mut seen = BTreeSet::from([top.ino]);
    add(fs, top.ino, b"", &mut lines).await;
    if recursive {
        let mut walk = Walk::new(fs, top.ino, WalkLimits::default()).await?;
        loop {
            // Damage is in the list of what was left out.
            let Ok(visit) = walk.next().await else { continue };
            match visit {
                Some(Visit::Enter(entry)) if !seen.insert(entry.attr.ino) => walk.skip_below(),
                Some(Visit::Enter(entry)) if entry.attr.file_type == FileType::Directory => {
                    add(fs, entry.attr.ino, &entry.path, &mut lines).await;
                }
                Some(_) => {}
                None => break,
            }
        }
    }
    if recursive && top.ino == fs.root() {
        for attr in fs.orphans(&|ino| seen.contains(&ino)).await {
            let (kind, ino) = (type_name(attr.file_type), attr.ino.0);
            lines.push(Line { path: String::new(), ino, kind, state: "no name", raw: Vec::new() });
        }
    }
    if as_json {
        return put(None, &json(&lines)?);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in &lines {
        let name = ordo_shown::name(&line.raw);
        let text = format!("{:>10} {:<10} {:<7} {name}", line.ino, line.state, line.kind);
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(out.flush()?)
}

async fn add(fs: &RescueFs, dir: Ino, path: &[u8], lines: &mut Vec<Line>) {
    for entry in fs.deleted(dir).await.unwrap_or_default() {
        let between: &[u8] = if path.is_empty() { b"" } else { b"/" };
        let raw = [path, between, &entry.name].concat();
        let kind = FileType::from_mode(u16::from(entry.kind) << 12).map_or("?", type_name);
        let path = String::from_utf8_lossy(&raw).into_owned();
        lines.push(Line { path, ino: entry.ino, kind, state: word(entry.state), raw });
    }
}
