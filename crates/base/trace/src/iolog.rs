//! Import of fio's I/O logs, versions 2 and 3: lines of text, which have no contents and no
//! completions.
//!
//! The first line is `fio version 2 iolog` or `fio version 3 iolog`. Each other line has a file's
//! name and an action; for `read`, `write`, `trim`, `sync` and `datasync` then an offset and a
//! length in bytes. In version 3 the time comes first, in microseconds. Lines of version 2 with
//! `wait` are passed over: a log of that version has no times.

use ordo_runtime::Time;

use crate::request::{Flags, RequestEnd, RequestOp, TraceRequest};
use crate::trace::Trace;

/// The beginning of a log.
const HEAD: &[u8] = b"fio version ";
/// The size of a sector, in bytes.
const SECTOR: u32 = 512;
/// The greatest offset of a request's end: that of the largest device.
const END_MAX: u64 = 1 << 60;

/// The reason why a log was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IologError {
    /// The first line names another version.
    #[error("an I/O log of fio of an unknown version; versions 2 and 3 are read")]
    Version,
    /// A line is damaged: its number, from 1.
    #[error(
        "line {0} is no line of fio's I/O log: a field is missing, or no number, or an unknown action"
    )]
    Line(usize),
    /// The log has requests to several files.
    #[error("requests to several files ({first} and {second}); a trace is of one device")]
    Files {
        /// One of them.
        first: String,
        /// Another one.
        second: String,
    },
}

/// A log that was read.
#[derive(Debug)]
pub struct ImportedIolog {
    /// The requests. Each counts as completed when it was issued.
    pub trace: Trace,
    /// Whether the last line was cut short, and left out.
    pub cut: bool,
}

/// Whether a file is an I/O log of fio.
pub fn is_iolog(file: &[u8]) -> bool {
    file.starts_with(HEAD)
}

/// A line: the microseconds, the file, the action, and what follows it.
type Line<'a> = (u64, &'a str, &'a str, Vec<&'a str>);

fn fields(line: &[u8], is_timed: bool) -> Option<Line<'_>> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let micros = if is_timed { words.next()?.parse().ok()? } else { 0 };
    let (file, action) = (words.next()?, words.next()?);
    Some((micros, file, action, words.collect()))
}

/// The operation, offset and length of an action; `None` for an action that is no request.
fn operation(action: &str, rest: &[&str]) -> Option<Option<(RequestOp, u64, u64)>> {
    let op = match action {
        "read" => RequestOp::Read,
        "write" => RequestOp::Write,
        "trim" => RequestOp::Discard,
        "sync" | "datasync" => return Some(Some((RequestOp::Flush, 0, 0))),
        "add" | "open" | "close" | "unlink" | "wait" => return Some(None),
        _ => return None,
    };
    let [offset, len] = rest else { return None };
    let (offset, len) = (offset.parse::<u64>().ok()?, len.parse::<u64>().ok()?);
    offset.checked_add(len).filter(|end| *end <= END_MAX)?;
    Some(Some((op, offset, len)))
}

/// Reads a log.
///
/// # Errors
/// The log is of another version, has a damaged line, or requests to several files. A last line
/// that is cut short is no error.
pub fn import(log: &[u8]) -> Result<ImportedIolog, IologError> {
    let mut lines = log.split_inclusive(|byte| *byte == b'\n').enumerate();
    let head = lines.next().map_or(&[][..], |(_, line)| line.trim_ascii());
    let is_timed = match head {
        b"fio version 2 iolog" => false,
        b"fio version 3 iolog" => true,
        _ => return Err(IologError::Version),
    };
    let mut trace = Trace::new(SECTOR, is_timed);
    let (mut only, mut epoch, mut cut): (Option<&str>, u64, bool) = (None, 0, false);
    for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        let read = fields(line, is_timed)
            .and_then(|(at, file, action, rest)| Some((at, file, operation(action, &rest)?)));
        let (micros, file, request) = match read {
            Some(read) if line.ends_with(b"\n") => read,
            _ if !line.ends_with(b"\n") => {
                cut = true;
                break;
            }
            _ => return Err(IologError::Line(number + 1)),
        };
        let Some((op, offset, len)) = request else { continue };
        match only {
            Some(first) if first != file => {
                let (first, second) = (first.to_owned(), file.to_owned());
                return Err(IologError::Files { first, second });
            }
            _ => only = Some(file),
        }
        let at = Time::from_nanos(micros.saturating_mul(1000));
        let order = trace.requests().len() as u64;
        let end = Some(RequestEnd { order, at, epoch, ok: true });
        let (flags, data) = (Flags::empty(), None);
        trace.push(TraceRequest { op, flags, offset, len, issued: at, epoch, end, data });
        epoch += u64::from(op == RequestOp::Flush);
    }
    Ok(ImportedIolog { trace, cut })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both versions, with lines that are no requests; times are microseconds.
    #[test]
    fn both_versions() {
        let two = b"fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 4096 8192\n\
                    /dev/sdb wait 100 0\n/dev/sdb datasync 0 0\n/dev/sdb read 0 512\n/dev/sdb close\n";
        let three = b"fio version 3 iolog\n3 /dev/sdb add\n7 /dev/sdb write 4096 8192\n\
                      9 /dev/sdb sync 0 0\n12 /dev/sdb trim 0 512\n15 /dev/sdb wri";
        let of = |log: &[u8]| {
            let ImportedIolog { trace, cut } = import(log).unwrap();
            let each = trace.requests().iter();
            let each = each.map(|r| (r.op, r.offset, r.len, r.issued.as_nanos(), r.epoch));
            (each.collect::<Vec<_>>(), trace.timed(), cut)
        };
        use RequestOp::{Discard, Flush, Read, Write};
        let wanted = vec![(Write, 4096, 8192, 0, 0), (Flush, 0, 0, 0, 0), (Read, 0, 512, 0, 1)];
        assert_eq!(of(two), (wanted, false, false));
        let wanted = vec![
            (Write, 4096, 8192, 7000, 0),
            (Flush, 0, 0, 9000, 0),
            (Discard, 0, 512, 12_000, 1),
        ];
        assert_eq!(of(three), (wanted, true, true));
    }

    /// Each kind of damage has its error, with the line.
    #[test]
    fn damaged_logs() {
        let error =
            |lines: &str| import(format!("fio version 2 iolog\n{lines}").as_bytes()).unwrap_err();
        assert_eq!(error("a write 0\n"), IologError::Line(2));
        assert_eq!(error("a add\na write 0 x\n"), IologError::Line(3));
        assert_eq!(error("a jump 0 1\n"), IologError::Line(2));
        assert_eq!(error("a write 18446744073709551615 1\n"), IologError::Line(2));
        let (first, second) = ("a".to_owned(), "b".to_owned());
        assert_eq!(error("a write 0 1\nb write 0 1\n"), IologError::Files { first, second });
        assert_eq!(import(b"fio version 4 iolog\n").unwrap_err(), IologError::Version);
    }

    proptest! {
        #[test]
        fn hostile_logs_end(version in 2u8..4, text in "[a-z0-9 \n/-]{0,400}") {
            let _ = import(format!("fio version {version} iolog\n{text}").as_bytes());
        }
    }
}
