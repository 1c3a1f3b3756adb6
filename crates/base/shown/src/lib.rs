//! Names from a disk or a trace, as they are shown to a person.
//!
//! A name is any bytes. On a terminal some of them move the cursor, change colours, or begin a line
//! that looks like the program's own. So names are shown in the form of `ls -b`, from which every
//! byte can be told: a backslash, a control character, and each byte that is not UTF-8 become an
//! escape of C (`\\`, `\n`, `\033`). The marks that change the direction of text are escaped too,
//! since they reorder a line. Unlike `ls -b` a space stays a space.
#![forbid(unsafe_code)]

use std::fmt::Write;

/// A name as it is shown.
///
/// ```
/// use ordo_shown::name;
/// assert_eq!(name("Grüße 1".as_bytes()), "Grüße 1");
/// assert_eq!(name(b"a\n\x1b[2J\\\xff"), r"a\n\033[2J\\\377");
/// ```
pub fn name(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            put(&mut out, c);
        }
        octal(&mut out, chunk.invalid());
    }
    out
}

/// A text of several lines as it is shown: line ends and tabs stay, and every other control
/// character is escaped.
pub fn text(text: &str) -> std::borrow::Cow<'_, str> {
    let is_plain = |c: char| matches!(c, '\n' | '\t' | '\\') || !needs_escape(c);
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            put(&mut out, c);
        }
    }
    out.into()
}

/// Whether a character is escaped: a backslash, a control character, a separator of lines, or a
/// mark of direction.
fn needs_escape(c: char) -> bool {
    c == '\\' || c.is_control() || is_direction(c)
}

/// Whether a character separates lines, or changes the direction of text.
pub fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn put(out: &mut String, c: char) {
    let short = match c {
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\u{b}' => "\\v",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        c if needs_escape(c) => return octal(out, c.encode_utf8(&mut [0; 4]).as_bytes()),
        c => return out.push(c),
    };
    out.push_str(short);
}

fn octal(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(out, "\\{byte:03o}").expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two names are never shown alike, and what is shown has no control character. Would catch a
    /// name that forges another row or hides behind another name.
    #[test]
    fn every_byte_can_be_told() {
        let mut seen = std::collections::BTreeSet::new();
        for byte in 0..=255u8 {
            for rest in [&b""[..], b"0", b"\\", b"\xa9"] {
                let bytes = [&[byte], rest].concat();
                let shown = name(&bytes);
                assert!(!shown.chars().any(char::is_control), "{shown:?}");
                assert!(seen.insert(shown.clone()), "{shown} twice");
            }
        }
        assert_eq!(name("a\u{202e}b\u{9b}".as_bytes()), r"a\342\200\256b\302\233");
    }

    #[test]
    fn a_text_keeps_its_lines() {
        assert_eq!(text("a\\b\n\tc"), "a\\b\n\tc");
        assert_eq!(text("a\x1b[1m\n"), "a\\033[1m\n");
    }
}
