//! Import of fio's I/O logs, versions 1 to 3: lines of text, which have no contents and no
//! completions.
//!
//! The first line of a newer one is `fio version 2 iolog` or `fio version 3 iolog`. Each other line
//! has a file's name and an action; for `read`, `write`, `trim`, `sync` and `datasync` then an
//! offset and a length in bytes. In version 3 the time comes first, in microseconds. Lines of
//! version 2 with `wait` are passed over: a log of that version has no times. Version 1 has lines
//! of 0 (read) or 1 (write), an offset and a length, with commas between them.

use crate::listed::{ImportedList, LineFormat, ListError, Listed, import as import_lines};
use crate::request::{Flags, RequestOp};

/// The beginning of a log.
const HEAD: &str = "fio version ";

/// The reason why a log was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IologError {
    /// The first line names another version.
    #[error("an I/O log of fio of an unknown version; versions 1, 2 and 3 are read")]
    Version,
    /// A line is damaged, or the log has requests to several files.
    #[error(transparent)]
    List(#[from] ListError),
}

/// Whether a file is an I/O log of fio.
pub fn is_iolog(file: &[u8]) -> bool {
    let first = file.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = std::str::from_utf8(first).unwrap_or_default();
    first.starts_with(HEAD) || first.ends_with('\n') && of_version_1(first.trim()).is_ok()
}

/// The operation, offset and length of an action; `None` for an action that is no request.
fn operation(action: &str, rest: &[&str]) -> Result<Option<(RequestOp, u64, u64)>, &'static str> {
    let op = match action {
        "read" => RequestOp::Read,
        "write" => RequestOp::Write,
        "trim" => RequestOp::Discard,
        "sync" | "datasync" => return Ok(Some((RequestOp::Flush, 0, 0))),
        "add" | "open" | "close" | "unlink" | "wait" => return Ok(None),
        _ => return Err("an unknown action"),
    };
    let [offset, len] = rest else { return Err("a wrong number of fields") };
    match (offset.parse(), len.parse()) {
        (Ok(offset), Ok(len)) => Ok(Some((op, offset, len))),
        _ => Err("a field is no number"),
    }
}

/// A line of the versions 2 and 3.
fn of_file(line: &str, is_timed: bool) -> Result<Option<Listed<'_>>, &'static str> {
    let mut words = line.split_ascii_whitespace();
    let micros = match is_timed {
        true => words.next().and_then(|micros| micros.parse::<u64>().ok()),
        false => Some(0),
    };
    let issued = i128::from(micros.ok_or("a time is no number")?) * 1000;
    let (Some(device), Some(action)) = (words.next(), words.next()) else {
        return Err("a wrong number of fields");
    };
    let rest: Vec<&str> = words.collect();
    let (flags, took, process) = (Flags::empty(), None, None);
    let request = operation(action, &rest)?;
    Ok(request.map(|(op, offset, len)| Listed {
        device,
        op,
        flags,
        offset,
        len,
        issued,
        took,
        process,
    }))
}

/// A line of version 1.
fn of_version_1(line: &str) -> Result<Option<Listed<'_>>, &'static str> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [kind, offset, len] = fields[..] else { return Err("a wrong number of fields") };
    let op = match kind {
        "0" => RequestOp::Read,
        "1" => RequestOp::Write,
        _ => return Err("neither a read nor a write"),
    };
    let (Ok(offset), Ok(len)) = (offset.parse(), len.parse()) else {
        return Err("a field is no number");
    };
    let (flags, took, process, device, issued) = (Flags::empty(), None, None, "", 0);
    Ok(Some(Listed { device, op, flags, offset, len, issued, took, process }))
}

/// Reads a log. `wanted` is the file, where there are several.
///
/// # Errors
/// The log is of another version, has a damaged line, or requests to several files. A last line
/// without its end is no error.
pub fn import(log: &[u8], wanted: Option<&str>) -> Result<ImportedList, IologError> {
    let head = log.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let (is_timed, example) = match head {
        b"fio version 2 iolog" => (false, "/dev/sda write 4096 8192"),
        b"fio version 3 iolog" => (true, "1250 /dev/sda write 4096 8192"),
        head if head.starts_with(HEAD.as_bytes()) => return Err(IologError::Version),
        _ => (false, "1, 4096, 8192"),
    };
    let (name, from_first, at_end) = ("fio's I/O log", false, false);
    let format = LineFormat { name, example, timed: is_timed, from_first, at_end };
    let is_first = head.starts_with(HEAD.as_bytes()).then_some(1);
    Ok(import_lines(log, &format, wanted, |number, line| match is_first {
        None => of_version_1(line),
        Some(first) if number == first => Ok(None),
        Some(_) => of_file(line, is_timed),
    })?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every version, with lines that are no requests; times are microseconds.
    #[test]
    fn every_version() {
        let two = b"fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 4096 8192\n\
                    /dev/sdb wait 100 0\n/dev/sdb datasync 0 0\n/dev/sdb read 0 512\n/dev/sdb close\n";
        let three = b"fio version 3 iolog\n3 /dev/sdb add\n7 /dev/sdb write 4096 8192\n\
                      9 /dev/sdb sync 0 0\n12 /dev/sdb trim 0 512\n15 /dev/sdb wri";
        let of = |log: &[u8]| {
            let ImportedList { trace, cut } = import(log, None).unwrap();
            assert!(is_iolog(log));
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
        let one = b"0, 4096, 512\n1,0,8192\n";
        assert_eq!(of(one), (vec![(Read, 4096, 512, 0, 0), (Write, 0, 8192, 0, 0)], false, false));
        assert!(!is_iolog(b"1, 2, 3, 4\n") && !is_iolog(b"2, 4096, 512\n"));
    }

    /// Each kind of damage has its error, with the line.
    #[test]
    fn damaged_logs() {
        let read = |lines: &str, wanted: Option<&str>| {
            import(format!("fio version 2 iolog\n{lines}").as_bytes(), wanted)
        };
        let line = |lines: &str| match read(lines, None).unwrap_err() {
            IologError::List(ListError::Line { line, why, .. }) => (line, why),
            other => panic!("{other}"),
        };
        assert_eq!(line("a write 0\n"), (2, "a wrong number of fields"));
        assert_eq!(line("a add\na write 0 x\n"), (3, "a field is no number"));
        assert_eq!(line("a jump 0 1\n"), (2, "an unknown action"));
        let far = (2, "a place that no device has");
        assert_eq!(line("a write 18446744073709551615 1\n"), far);
        let two = "a write 0 1\nb write 0 1\nb write 1 1\n";
        let several = read(two, None).unwrap_err().to_string();
        assert!(several.starts_with("requests of 2 devices: b (2), a (1);"), "{several}");
        assert_eq!(read(two, Some("b")).unwrap().trace.requests().len(), 2);
        assert_eq!(import(b"fio version 4 iolog\n", None).unwrap_err(), IologError::Version);
        let back = b"fio version 3 iolog\n20000000 a write 0 1\n5 a write 0 1\n";
        let back = import(back, None).unwrap_err();
        assert_eq!(back, IologError::List(ListError::Back { line: 3, back: 19 }));
    }

    proptest! {
        #[test]
        fn hostile_logs_end(version in 2u8..4, text in "[a-z0-9 \n/-]{0,400}") {
            let _ = import(format!("fio version {version} iolog\n{text}").as_bytes(), None);
        }
    }
}
