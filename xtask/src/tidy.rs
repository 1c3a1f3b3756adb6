//! A check of style: sizes, layers, words, names ([`crate::names`]), the names of `docs/papers.md`.
//! `docs/style.md` gives the reasons.

use std::fs;
use std::path::{Path, PathBuf};

use crate::layers::{Crates, Kinds};
use crate::names::{self, Types};
use crate::wrap;

/// The most lines of a file.
const FILE_MAX: usize = 700;
/// The most lines of a function.
const FUNCTION_MAX: usize = 70;

/// Words that mean that something is not finished.
const UNFINISHED: [&str; 5] = ["todo!(", "unimplemented!(", "dbg!(", "TODO", "FIXME"];

/// Words with which a documentation comment must not begin, since its subject is then missing.
const HEADLESS: [&str; 5] = ["What", "Where", "Who", "Which", "It"];

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// All faults, a line each.
pub fn check(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let mut files = Vec::new();
    let (mut types, mut crates, mut kinds) =
        (Types::default(), Crates::default(), Kinds::default());
    let mut sources = Vec::new();
    for top in ["crates", "xtask", "fuzz"] {
        collect(&root.join(top), &mut files);
    }
    files.sort();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if name.ends_with(".rs") {
            sizes(&name, &text, &mut faults);
            words(&name, &text, &mut faults);
            headless(&name, &text, &mut faults);
            help(&name, &text, &mut faults);
            let wide = wrap::wide(&text).into_iter();
            faults.extend(wide.map(|line| {
                format!("{name}:{line}: a comment of more than 100 columns: tidy --wrap")
            }));
            faults.extend(names::retired(&name, &text));
            types.read(&name, &text);
            let code = names::code(&text);
            kinds.read(&name, &code);
            sources.push((name, code));
        } else if name.ends_with("Cargo.toml") {
            crates.read(&name, &text);
        }
    }
    faults.extend(crates.faults());
    faults.extend(sources.iter().flat_map(|(name, code)| kinds.faults(name, code)));
    faults.extend(types.faults());
    faults.extend(crate::papers::check(root));
    faults.extend(crate::links::check(root));
    faults.extend(crate::book::check(root));
    faults.extend(crate::commits::check(root));
    faults
}

/// Wraps the comments of all sources.
///
/// # Errors
/// A file cannot be read or written.
pub fn wrap_all(root: &Path) -> Result<(), String> {
    let mut files = Vec::new();
    for top in ["crates", "xtask", "fuzz"] {
        collect(&root.join(top), &mut files);
    }
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(failed)?;
        let wrapped = wrap::wrap(&text);
        if wrapped != text {
            fs::write(file, wrapped).map_err(failed)?;
        }
    }
    Ok(())
}

/// The Rust sources and manifests below a folder.
pub fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && name != "corpus" {
            collect(&path, files);
        } else if name == "Cargo.toml" || path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn sizes(name: &str, text: &str, faults: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > FILE_MAX {
        faults.push(format!("{name}: {} lines, more than {FILE_MAX}", lines.len()));
    }
    if name.ends_with("lib.rs") && !text.starts_with("//!") {
        faults.push(format!("{name}: does not open with what the crate is"));
    }
    let mut start = None;
    for (i, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if is_function(line) && !line.trim_end().ends_with(';') && start.is_none() {
            start = Some((i, indent));
        }
        let Some((first, depth)) = start else { continue };
        // In formatted code, a function ends with a brace at its own depth.
        if indent == depth && (*line).trim_end() == format!("{}}}", " ".repeat(depth)) {
            if i + 1 - first > FUNCTION_MAX {
                let length = i + 1 - first;
                faults.push(format!("{name}:{}: a function of {length} lines", first + 1));
            }
            start = None;
            continue;
        }
        let declaration = indent == depth && line.trim_end().ends_with(';');
        let one_line = i == first && line.trim_end().ends_with('}');
        if declaration || one_line {
            start = None;
        }
    }
}

fn is_function(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.by_ref().find(|w| {
        !matches!(*w, "pub" | "async" | "const" | "unsafe" | "extern" | "\"C\"")
            && !w.starts_with("pub(")
    });
    first == Some("fn")
}

fn words(name: &str, text: &str, faults: &mut Vec<String>) {
    if name.starts_with("xtask") {
        return;
    }
    for (i, line) in text.lines().enumerate() {
        for word in UNFINISHED {
            if line.contains(word) {
                faults.push(format!("{name}:{}: {word}", i + 1));
            }
        }
    }
}

/// Finds paragraphs of documentation that begin with a word of [`HEADLESS`].
fn headless(name: &str, text: &str, faults: &mut Vec<String>) {
    let documentation = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("///").or(line.strip_prefix("//!")).map(|rest| rest.trim().to_owned())
    };
    let mut goes_on = false;
    for (i, line) in text.lines().enumerate() {
        let doc = documentation(line);
        let first = doc.as_deref().and_then(|doc| doc.split(' ').next()).unwrap_or_default();
        if !goes_on && HEADLESS.contains(&first) {
            faults
                .push(format!("{name}:{}: a comment begins with {first}: name its subject", i + 1));
        }
        goes_on = doc.is_some_and(|doc| !doc.is_empty());
    }
}

/// Finds lines of a command's help that a terminal of 100 columns would wrap.
fn help(name: &str, text: &str, faults: &mut Vec<String>) {
    let mut is_help = false;
    for (i, line) in text.lines().enumerate() {
        is_help |= line.contains("after_help = ") || line.contains("after_long_help = ");
        if is_help && line.chars().count() > 100 {
            faults.push(format!("{name}:{}: a line of help of more than 100 columns", i + 1));
        }
        is_help &= !line.ends_with(")]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole repository is tidy.
    #[test]
    fn the_repository_is_tidy() {
        let faults = check(&root());
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// Each rule finds a text that breaks it.
    #[test]
    fn rules_fire() {
        let faults = |name: &str, text: &str| {
            let mut out = Vec::new();
            sizes(name, text, &mut out);
            words(name, text, &mut out);
            headless(name, text, &mut out);
            help(name, text, &mut out);
            out.len()
        };
        let long = format!("fn f() {{\n{}}}\n", "    x();\n".repeat(FUNCTION_MAX));
        assert_eq!(faults("crates/a/src/b.rs", &long), 1);
        assert_eq!(faults("crates/a/src/b.rs", "fn f() {\n}\n"), 0);
        assert_eq!(faults("crates/a/src/lib.rs", "fn f() {}\n"), 1);
        assert_eq!(faults("crates/a/src/b.rs", &"\n".repeat(FILE_MAX + 1)), 1);
        assert_eq!(faults("crates/a/src/b.rs", "    dbg!(1);\n"), 1);
        assert_eq!(faults("crates/a/src/b.rs", "/// What was made.\nstruct Made;\n"), 1);
        assert_eq!(faults("crates/a/src/b.rs", "//! The log.\n//!\n//! Where it lies.\n"), 1);
        let wide = "x".repeat(101);
        let wide_help = format!("#[command(after_long_help = \"\\\n{wide}\")]\n{wide}\n");
        assert_eq!(faults("crates/a/src/b.rs", &wide_help), 1);
        assert_eq!(faults("crates/a/src/b.rs", "/// Says in words\n/// What it is.\n"), 0);
    }
}
