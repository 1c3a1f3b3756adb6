//! Mapfiles of GNU ddrescue: the parts of a copied device that could not be read.
//!
//! Comments begin with `#`. The first other line is the state of the copy, and the rest are ranges:
//! first byte, length, and a status, of which `+` means that the range was read. Numbers are
//! decimal, or hexadecimal after `0x`.

use crate::source::Unreadable;

/// The most ranges of a mapfile.
const RANGES_MAX: usize = 10_000_000;

/// A mapfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapfile {
    /// The ranges that were not read: offset and end in bytes, in order, none touching the next.
    bad: Vec<(u64, u64)>,
}

/// The fault of a line of a mapfile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not of a ddrescue mapfile: {fault}")]
pub struct MapfileError {
    /// The line, counted from 1.
    pub line: usize,
    /// The fault, in words.
    pub fault: &'static str,
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

impl Mapfile {
    /// Reads a mapfile.
    ///
    /// # Errors
    /// A line is not of this format.
    pub fn parse(text: &str) -> Result<Mapfile, MapfileError> {
        let mut ranges = Vec::new();
        let mut has_state = false;
        for (i, line) in text.lines().enumerate() {
            let wrong = |fault| MapfileError { line: i + 1, fault };
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let first = number(words[0]).ok_or(wrong("it begins with no number"))?;
            if !has_state {
                has_state = true;
                match words.get(1) {
                    Some(&("?" | "*" | "/" | "-" | "F" | "G" | "+")) => continue,
                    _ => return Err(wrong("the state of the copy is missing")),
                }
            }
            let len = words.get(1).and_then(|word| number(word)).ok_or(wrong("no length"))?;
            let end = first.checked_add(len).ok_or(wrong("the range is too long"))?;
            match words.get(2).copied() {
                Some("+") => {}
                Some("?" | "*" | "/" | "-") => ranges.push((first, end)),
                _ => return Err(wrong("an unknown status")),
            }
            if ranges.len() > RANGES_MAX {
                return Err(wrong("there are too many ranges"));
            }
        }
        match has_state {
            true => Ok(Mapfile { bad: joined(ranges) }),
            false => Err(MapfileError { line: 1, fault: "it is empty" }),
        }
    }

    /// The unreadable ranges of the `len` bytes at `origin` of the copied device.
    pub fn of_part(&self, origin: u64, len: u64) -> Unreadable {
        let end = origin.saturating_add(len);
        let inside = self.bad.iter().filter(|(from, to)| *from < end && *to > origin);
        let ranges = inside.map(|(from, to)| (from.max(&origin) - origin, to.min(&end) - origin));
        Unreadable { ranges: ranges.collect() }
    }
}

/// Ranges in order, those that touch as one.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.retain(|(from, to)| from < to);
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges {
        match out.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapfile as ddrescue 1.27 writes it. Ranges that were not tried count as unread, and a part
    /// counts its bytes from its own beginning.
    #[test]
    fn unread_ranges_of_a_part() {
        let text = "# Mapfile. Created by GNU ddrescue version 1.27\n\
                    # current_pos  current_status  current_pass\n0x00000600     +               1\n\
                    #      pos        size  status\n0x00000000  0x00000400  +\n\
                    0x00000400  0x00000200  -\n0x00000600  512  *\n0x00001000  0x1000  +\n0x2000 0x800 ?\n";
        let map = Mapfile::parse(text).unwrap();
        assert_eq!(map.bad, [(0x400, 0x800), (0x2000, 0x2800)]);
        assert_eq!(map.of_part(0x600, 0x1b00).ranges, [(0, 0x200), (0x1a00, 0x1b00)]);
        for (wrong, line) in [
            ("", 1),
            ("0 +\nx y +", 2),
            ("0 +\n0 5 =", 2),
            ("0 5 +", 1),
            ("0 -\n5 0xffffffffffffffff -", 2),
        ] {
            assert_eq!(Mapfile::parse(wrong).unwrap_err().line, line, "{wrong}");
        }
    }
}
