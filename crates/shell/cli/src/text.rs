//! Texts and lines that several commands print.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use ordo_format::calendar::Date;
use ordo_vfs::{Attr, FileType, Timestamp};

/// Prints to a file, or to the standard output. Control characters, which a name may have brought,
/// are escaped on the latter. A file has all of the text, or is as it was before.
///
/// # Errors
/// The file or output cannot be written.
pub fn put(output: Option<&Path>, text: &str) -> Result<()> {
    match output {
        Some(path) => write_whole(path, text),
        None => {
            let mut out = std::io::stdout().lock();
            Ok(out.write_all(ordo_shown::text(text).as_bytes()).and_then(|()| out.flush())?)
        }
    }
}

/// Writes a file whole or not at all. What is no regular file, as a pipe or a device, is written as
/// it is.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match place.metadata() {
        Ok(old) if !old.is_file() => Ok(std::fs::write(path, text)?),
        Ok(old) => replace(&place, text, old.permissions().mode()),
        Err(_) => replace(&place, text, 0o666),
    }
}

/// Writes a new file with these permissions, less those of the process's mask, which takes the
/// place of what has its name.
///
/// # Errors
/// The file cannot be written; what has its name is as it was.
pub fn replace(path: &Path, text: &str, permissions: u32) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let permissions = Permissions::from_mode(permissions);
    let mut beside = tempfile::Builder::new();
    let beside = beside.prefix(".ordo-").permissions(permissions);
    let write = || -> std::io::Result<()> {
        let mut file = beside.tempfile_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(text.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Writes to standard output. What nobody reads any more is left out; after another error the
/// program ends.
pub fn say(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let text = text.to_string();
    match out.write_all(ordo_shown::text(&text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("ordo: writing to standard output: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}

/// Writes to standard error. What nobody reads any more is left out.
pub fn complain(text: std::fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(ordo_shown::text(&text.to_string()).as_bytes());
}

/// The mode as `ls -l` shows it: `drwxr-xr-x`.
pub fn mode(attr: &Attr) -> String {
    let kind = match attr.file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::Whiteout => 'w',
    };
    let mut out = String::from(kind);
    let p = attr.permissions;
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = p >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (p & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// The name of a type.
pub fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Whiteout => "whiteout",
    }
}

/// A time in UTC: `2000-01-31 23:59`.
pub fn date(time: Timestamp) -> String {
    let (days, seconds) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
    format!("{} {hour:02}:{minute:02}", Date::of_days(days))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| date(Timestamp { seconds, nanos: 0 });
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(951_868_799), "2000-02-29 23:59");
        assert_eq!(at(951_868_800), "2000-03-01 00:00");
        assert_eq!(at(-1), "1969-12-31 23:59");
        assert_eq!(at(4_102_444_800), "2100-01-01 00:00");
        assert!(!at(i64::MIN).is_empty() && !at(i64::MAX).is_empty());
    }
}
