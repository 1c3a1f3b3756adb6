//! A check of names: words that the code has given up for those of the field, and public types of
//! one name.
//!
//! Both rules look at code alone, not at comments and strings: `retired` at identifiers and their
//! parts, [`Types`] at definitions that begin a line.

use std::collections::{BTreeMap, BTreeSet};

/// Words that no identifier may be, each with the field's word.
const RETIRED: [(&str, &str); 40] = [
    ("abreast", "buffer_unordered"),
    ("Books", "DecoderState, AllocationSummary"),
    ("books", "state, allocation"),
    ("Charged", "WithCpuCost"),
    ("contents_pass", "drop_behind"),
    ("Deferred", "DeferredFree"),
    ("Eager", "BusyPoll"),
    ("Farewell", "ShutdownReply"),
    ("Frozen", "SnapshotDevice"),
    ("give_back", "free_deferred, reclaim"),
    ("Hop", "IndirectLevel"),
    ("is_there", "is_mapped"),
    ("keeper", "checkpointer, space_provider"),
    ("lives", "cycles"),
    ("Lives", "CrashCycles"),
    ("loose", "to_free"),
    ("make_node", "mknod"),
    ("make_room", "evict"),
    ("make_unnamed", "tmpfile"),
    ("mended", "repaired"),
    ("nameless", "orphan"),
    ("Nature", "InodeMetadata"),
    ("Nearby", "ReadAround"),
    ("Notebook", "HistoryRecorder"),
    ("outlook", "write_preview"),
    ("Outlook", "WritePreview"),
    ("put_off", "deferred"),
    ("recount", "rebuild, reclassify"),
    ("ReleaseInode", "FreeInode"),
    ("ripe", "full_cluster"),
    ("room", "free_space, capacity"),
    ("story", "explain, scenario"),
    ("strays", "orphan_blocks"),
    ("stride", "skip_sectors"),
    ("take_out", "punch_hole"),
    ("unblocked", "wait_for_progress"),
    ("undone", "rolled_back"),
    ("vague", "indeterminate"),
    ("wish", "preferred"),
    ("zombies", "pinned_ranges"),
];

/// Words that no part of an identifier may be, as in `is_vague` or `KeeperState`, each with the
/// field's word.
const RETIRED_PARTS: [(&str, &str); 24] = [
    ("abreast", "buffer_unordered"),
    ("books", "state, allocation"),
    ("eager", "busy_poll"),
    ("farewell", "shutdown_reply"),
    ("frozen", "snapshot"),
    ("hop", "indirect_level"),
    ("keeper", "checkpointer, space_provider"),
    ("lived", "cycles"),
    ("loose", "to_free"),
    ("mend", "repair, rebuild"),
    ("mended", "repaired"),
    ("nameless", "orphan"),
    ("notebook", "history_recorder"),
    ("outlook", "write_preview"),
    ("recount", "rebuild, reclassify"),
    ("ripe", "full_cluster"),
    ("story", "explain, scenario"),
    ("strays", "orphan_blocks"),
    ("survey", "analysis"),
    ("unblocked", "wait_for_progress"),
    ("undone", "rolled_back"),
    ("vague", "indeterminate"),
    ("wish", "preferred"),
    ("zombies", "pinned_ranges"),
];

/// Types of which each file system or log has one of its own; users name them with its crate.
const OF_EACH: [&str; 3] = ["MkfsError", "MkfsOptions", "MountOptions"];

/// Crates whose public types may have names of other crates: `format` has a module for each on-disk
/// format, and nothing uses the types of the others.
const EXEMPT: [&str; 4] = ["cli", "format", "fuzzing", "testkit"];

/// The parts of an identifier, in lower case: `is`, `vague` of `is_vague` and of `IsVague`.
fn parts(word: &str) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    let mut part = String::new();
    let mut was_lower = false;
    for c in word.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            parts.insert(std::mem::take(&mut part));
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        part.extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    parts.insert(part);
    parts
}

/// A fault for each line of code with a retired word as an identifier, or as a part of one.
pub fn retired(name: &str, text: &str) -> Vec<String> {
    if name.starts_with("xtask") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(code(text).lines()) {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let words: BTreeSet<&str> = words.collect();
        for (word, better) in RETIRED.iter().filter(|(word, _)| words.contains(word)) {
            faults.push(format!("{name}:{number}: `{word}` is retired; the word is {better}"));
        }
        let is_retired = |word: &str| RETIRED.iter().any(|(retired, _)| *retired == word);
        for word in words.into_iter().filter(|word| !is_retired(word)) {
            let parts = parts(word);
            for (part, better) in RETIRED_PARTS.iter().filter(|(part, _)| parts.contains(*part)) {
                let fault = format!("`{part}` in `{word}` is retired; the word is {better}");
                faults.push(format!("{name}:{number}: {fault}"));
            }
        }
    }
    faults
}

/// The public types of the libraries.
#[derive(Default)]
pub struct Types(BTreeMap<String, BTreeSet<String>>);

impl Types {
    /// Reads the definitions of a file. Tests, examples and programs have none that others could
    /// confuse.
    pub fn read(&mut self, name: &str, text: &str) {
        let path = name.strip_prefix("crates/").and_then(|path| path.split_once('/'));
        let Some((_folder, path)) = path else { return };
        let own = path.split('/').next().unwrap_or_default();
        let is_library = path.starts_with(&format!("{own}/src/"))
            && !["/bin/", "/tests/", "tests.rs"].iter().any(|part| path.contains(part));
        if !is_library || EXEMPT.contains(&own) {
            return;
        }
        for line in code(text).lines() {
            let Some(rest) = line.strip_prefix("pub ") else { continue };
            let Some((kind, rest)) = rest.split_once(' ') else { continue };
            if matches!(kind, "struct" | "enum" | "trait" | "type" | "union") {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let word = rest[..end.unwrap_or(rest.len())].to_owned();
                self.0.entry(word).or_default().insert(name.to_owned());
            }
        }
    }

    /// A fault for each name that several types have.
    pub fn faults(&self) -> Vec<String> {
        let several = self
            .0
            .iter()
            .filter(|(word, files)| files.len() > 1 && !OF_EACH.contains(&word.as_str()));
        several
            .map(|(word, files)| {
                let files: Vec<&str> = files.iter().map(String::as_str).collect();
                format!("{}: several public types are called `{word}`", files.join(", "))
            })
            .collect()
    }
}

/// The code of a text: comments and the contents of strings become blanks, and lines stay lines.
pub fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest).unwrap_or(0);
        if length > 0 {
            let (gone, left) = rest.split_at(length);
            out.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = left;
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// The length of the comment, string or character with which a text begins.
fn skipped(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(text.find("*/").map_or(text.len(), |end| end + 2));
    }
    if let Some(raw) = text.strip_prefix('r')
        && raw.trim_start_matches('#').starts_with('"')
    {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let close = format!("\"{}", "#".repeat(hashes));
        let inner = &raw[hashes + 1..];
        return Some(inner.find(&close).map_or(text.len(), |at| 2 + hashes + at + close.len()));
    }
    if let Some(inner) = text.strip_prefix("'") {
        // A lifetime has no closing quote behind one character.
        let inner = inner.strip_prefix('\\').map_or(inner, |escaped| escaped);
        let end = inner.char_indices().nth(1).map_or(inner.len(), |(at, _)| at);
        let is_character = inner[end..].starts_with('\'');
        return is_character.then_some(text.len() - inner.len() + end + 1);
    }
    let inner = text.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 2),
            _ => {}
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A retired word is a fault as an identifier, and neither in prose nor in a string. A part of
    /// a longer word is a fault if it is in the second list. Would catch a rule that reads
    /// comments, or one that stops behind a quotation mark.
    #[test]
    fn a_retired_word_is_a_fault_in_code_alone() {
        let faults = |text: &str| retired("crates/core/a/src/b.rs", text).len();
        for (word, _) in RETIRED {
            assert_eq!(faults(&format!("let x = self.{word};\n")), 1, "{word}");
            assert_eq!(
                faults(&format!("// {word}\nlet x = \"{word} \\\" {word}\";\n")),
                0,
                "{word}"
            );
            let refused = RETIRED_PARTS.iter().any(|(part, _)| *part == word.to_lowercase());
            let longer = format!("let {word}_x = 'a' + x_{word};\n");
            assert_eq!(faults(&longer), if refused { 2 } else { 0 }, "{word}");
        }
        for (part, _) in RETIRED_PARTS {
            let camel = format!("{}{}", part[..1].to_uppercase(), &part[1..]);
            assert_eq!(faults(&format!("let x_{part}_y = 1;\n")), 1, "{part}");
            assert_eq!(faults(&format!("struct Is{camel}Of;\n")), 1, "{part}");
            assert_eq!(faults(&format!("let x{part}y = 1;\n")), 0, "{part}");
        }
        assert_eq!(faults("let c = '\"'; let room = '\\'';\n"), 1, "behind a character");
        assert_eq!(faults("fn f<'a>(room: &'a str) {}\n"), 1, "beside a lifetime");
        assert_eq!(faults("let x = r#\"room \" room\"#; room();\n"), 1, "behind a raw string");
        assert_eq!(faults("/* room\n room */ let room = 1;\n"), 1, "behind a comment");
        assert_eq!(retired("xtask/src/names.rs", "let room = 1;\n").len(), 0);
    }

    /// Two public types of one name in libraries are a fault. Private ones, those of tests and of
    /// `format`, and those of which each file system has its own, are none.
    #[test]
    fn two_public_types_of_one_name_are_a_fault() {
        let faults = |first: (&str, &str), second: (&str, &str)| {
            let mut types = Types::default();
            types.read(first.0, first.1);
            types.read(second.0, second.1);
            types.faults().len()
        };
        let place = ("crates/core/a/src/b.rs", "pub struct Place<T> {\n");
        for kind in ["struct Place;", "enum Place {", "trait Place: Copy {", "type Place = u8;"] {
            assert_eq!(
                faults(place, ("crates/core/c/src/d.rs", &format!("pub {kind}\n"))),
                1,
                "{kind}"
            );
            assert_eq!(
                faults(place, ("crates/core/a/src/c.rs", &format!("pub {kind}\n"))),
                1,
                "{kind}"
            );
        }
        let public = "pub enum Place {\n";
        assert_eq!(faults(place, ("crates/core/c/src/d.rs", "enum Place {\n")), 0);
        assert_eq!(faults(place, ("crates/core/c/src/d.rs", "pub(crate) enum Place {\n")), 0);
        assert_eq!(
            faults(place, ("crates/core/c/src/d.rs", "// pub enum Place {\npub enum Places {\n")),
            0
        );
        assert_eq!(faults(place, ("crates/core/c/tests/d.rs", public)), 0);
        assert_eq!(faults(place, ("crates/core/c/src/bin/d.rs", public)), 0);
        assert_eq!(faults(place, ("crates/base/format/src/d.rs", public)), 0);
        let options = |name| (name, "pub struct MkfsOptions {\n");
        assert_eq!(faults(options("crates/core/a/src/b.rs"), options("crates/core/c/src/d.rs")), 0);
    }
}
