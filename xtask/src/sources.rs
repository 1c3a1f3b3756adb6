//! Names in the workspace's sources: items, members of types, tests, texts.
//!
//! The sources are formatted, so a block ends with a brace at the depth of its first line, and a
//! definition begins its line. That is enough to find names without a parser.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Folders with sources.
const TOPS: [&str; 3] = ["crates", "xtask", "fuzz"];

/// One file.
struct File {
    path: String,
    text: String,
}

/// All sources, and their names.
#[derive(Default)]
pub struct Sources {
    files: Vec<File>,
    /// Items: the files that define them, as indices.
    items: BTreeMap<String, BTreeSet<usize>>,
    /// Tests: the paths of the files that have them.
    tests: BTreeMap<String, Vec<String>>,
    /// String literals of one line.
    literals: BTreeSet<String>,
}

impl Sources {
    /// Reads the sources below a folder.
    pub fn read(root: &Path) -> Sources {
        let mut paths = Vec::new();
        for top in TOPS {
            crate::tidy::collect(&root.join(top), &mut paths);
        }
        paths.sort();
        let mut sources = Sources::default();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
            let text = fs::read_to_string(path).unwrap_or_default();
            let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
            sources.add(name, text);
        }
        sources
    }

    /// Adds one file.
    pub fn add(&mut self, path: String, text: String) {
        let index = self.files.len();
        let mut is_test = false;
        for line in text.lines() {
            is_test |= line.trim_start().starts_with("#[test]");
            if let Some((keyword, name)) = definition(line) {
                if keyword == "fn" && std::mem::take(&mut is_test) {
                    self.tests.entry(name.to_owned()).or_default().push(path.clone());
                }
                if !is_test_file(&path) {
                    self.items.entry(name.to_owned()).or_default().insert(index);
                }
            }
            if !line.trim_start().starts_with("//") {
                self.literals.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
            }
        }
        self.files.push(File { path, text });
    }

    /// The reason why a name is not that of exactly one test, if there is one.
    pub fn test_fault(&self, name: &str) -> Option<String> {
        match self.tests.get(name).map_or(&[][..], Vec::as_slice) {
            [] => Some("no test has this name".to_owned()),
            [_] => None,
            several => Some(format!("tests of this name are in {}", several.join(", "))),
        }
    }

    /// The reason why a Rust path, `module::Type::member` or less, does not lead to exactly one
    /// place, if there is one.
    pub fn item_fault(&self, name: &str) -> Option<String> {
        let mut segments: Vec<&str> = name.split("::").collect();
        let last = segments.pop()?;
        let is_type = |segment: &&str| segment.starts_with(|c: char| c.is_ascii_uppercase());
        let owner = segments.last().copied().filter(is_type);
        let modules: Vec<&str> = segments.into_iter().filter(|s| !is_type(s)).collect();
        let within = |file: &&File| modules.iter().all(|module| is_in(&file.path, module));
        let found: BTreeSet<&str> = match owner {
            Some(owner) => self.members(owner, last).filter(within).map(|f| &*f.path).collect(),
            None => {
                let items = self.items.get(last).into_iter().flatten();
                let items = items.map(|index| &self.files[*index]).filter(within);
                let is_module = |file: &&File| {
                    is_module(&file.path, last) && within(file) && !is_test_file(&file.path)
                };
                let found: BTreeSet<&str> =
                    self.files.iter().filter(is_module).map(|f| &*f.path).collect();
                if found.is_empty() { items.map(|f| &*f.path).collect() } else { found }
            }
        };
        match found.len() {
            0 => Some("no item has this name".to_owned()),
            1 => None,
            _ => {
                let all: Vec<_> = found.into_iter().collect();
                Some(format!("items of this name are in {}", all.join(", ")))
            }
        }
    }

    /// The files in which a type has a member: those that define the type, otherwise those that
    /// implement it.
    fn members<'s>(&'s self, owner: &'s str, member: &'s str) -> impl Iterator<Item = &'s File> {
        let has = |implemented: bool| {
            let of = move |file: &&File| has_member(&file.text, (owner, implemented), member);
            self.files.iter().filter(of).collect::<Vec<_>>()
        };
        let defined = has(false);
        if defined.is_empty() { has(true) } else { defined }.into_iter()
    }

    /// The constants in the definition of a type, such as a set of flags.
    pub fn constants(&self, owner: &str) -> Vec<String> {
        let mut found = Vec::new();
        for file in &self.files {
            let opens = |line: &&str| definition(line) == Some(("struct", owner));
            let body = file.text.lines().skip_while(|line| !opens(line)).skip(1);
            let body = body.take_while(|line| line.trim() != "}").filter_map(definition);
            found.extend(body.filter(|(k, _)| *k == "const").map(|(_, name)| name.to_owned()));
        }
        found
    }

    /// Whether there is a string literal with exactly this text.
    pub fn has_literal(&self, text: &str) -> bool {
        self.literals.contains(text)
    }

    /// Whether a word occurs in files below a folder, comments included.
    pub fn has_word(&self, folder: &str, word: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let below = self.files.iter().filter(|file| file.path.starts_with(folder));
        below.flat_map(|file| file.text.split(|c| !is_word(c))).any(|w| w == word)
    }

    /// Whether an argument of the command line has this long name.
    pub fn has_option(&self, long: &str) -> bool {
        let field = format!("{}:", long.replace('-', "_"));
        let cli = self.files.iter().filter(|file| file.path.starts_with("crates/shell/cli/src"));
        cli.flat_map(|file| file.text.split("#[arg(").skip(1)).any(|argument| {
            let end = argument.find(")]").unwrap_or(argument.len());
            let name = argument[end..].lines().nth(1).unwrap_or_default().trim_start();
            let named = argument[..end].split_once("long = \"").map(|(_, rest)| rest);
            match named.and_then(|rest| rest.split('"').next()) {
                Some(named) => named == long,
                None => {
                    argument[..end].contains("long")
                        && name.strip_prefix("pub ").unwrap_or(name).starts_with(&field)
                }
            }
        })
    }

    /// Whether a command has this name, which clap derives from a variant of an enum whose name
    /// ends in `Command`.
    pub fn has_command(&self, name: &str) -> bool {
        let mut letters = name.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        let variant: String = first.into_iter().chain(letters).collect();
        let cli = self.files.iter().filter(|file| file.path.starts_with("crates/shell/cli/src"));
        let enums = |text: &str| {
            let names = text.lines().filter_map(definition).filter(|(k, _)| *k == "enum");
            names.map(|(_, name)| name.to_owned()).collect::<Vec<_>>()
        };
        cli.into_iter().any(|file| {
            let commands = enums(&file.text).into_iter().filter(|name| name.ends_with("Command"));
            commands.into_iter().any(|c| has_member(&file.text, (&c, false), &variant))
        })
    }
}

/// Whether a file holds nothing but tests.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

/// Whether a file belongs to a module or crate, at any depth.
fn is_in(path: &str, module: &str) -> bool {
    path.trim_end_matches(".rs").split('/').any(|part| part == module)
}

/// Whether a file is the head of a module or crate.
fn is_module(path: &str, module: &str) -> bool {
    let path = path.trim_end_matches(".rs");
    let path = path.trim_end_matches("/mod").trim_end_matches("/src/lib");
    path.rsplit('/').next() == Some(module)
}

/// The identifier with which a text begins.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The keyword and the name of the item that a line defines.
fn definition(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let mut constant = false;
    loop {
        let word = words.next()?;
        match word {
            "pub" | "async" | "unsafe" => {}
            "const" => constant = true,
            "fn" | "struct" | "enum" | "trait" | "type" | "mod" | "static" | "union" => {
                return Some((word, identifier(words.next()?)));
            }
            _ if word.starts_with("pub(") => {}
            _ => return constant.then(|| ("const", identifier(word))),
        }
    }
}

/// The type of an `impl` line.
fn implemented(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let close = |c: char| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            depth == 0
        };
        rest = &rest[rest.find(close)? + 1..];
    }
    let owner = rest.split_once(" for ").map_or(rest, |(_, owner)| owner);
    Some(identifier(owner.trim_start()))
}

/// The name of the field or variant in a line.
fn field(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line =
        line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(super) ")).unwrap_or(line);
    let name = identifier(line);
    let rest = &line[name.len()..];
    let is_field = rest.starts_with(": ");
    let is_variant = name.starts_with(|c: char| c.is_ascii_uppercase())
        && (rest.is_empty() || rest.starts_with([',', '(']) || rest.starts_with(" {"));
    (!name.is_empty() && (is_field || is_variant)).then_some(name)
}

/// Whether a type has a member in a text: in its definition, or in an `impl` if it is
/// `implemented`.
fn has_member(text: &str, (owner, is_implemented): (&str, bool), member: &str) -> bool {
    let opens = |line: &str| match is_implemented {
        true => implemented(line) == Some(owner),
        false => definition(line)
            .is_some_and(|(k, name)| name == owner && ["struct", "enum", "trait"].contains(&k)),
    };
    // Most files have neither name.
    if !text.contains(owner) || !text.contains(member) {
        return false;
    }
    let mut depth = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match depth {
            None if opens(line) && !line.trim_end().ends_with(['}', ';']) => depth = Some(indent),
            Some(first) if indent == first && line.trim() == "}" => depth = None,
            Some(_) if definition(line).is_some_and(|(_, name)| name == member) => return true,
            Some(_) if !is_implemented && field(line) == Some(member) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Sources {
        let mut sources = Sources::default();
        let one = "pub struct Rules: u8 {\n    const FIRST = 1;\n}\n\nimpl<P> Rules<P> {\n    pub fn on(&self) \
                   {\n    }\n}\n\npub struct Other {\n    pub size: u64,\n}\n\nfn alone() {}\n\n#[test]\nfn \
                   it_holds() {\n    run(\"ffs-sync\");\n}\n";
        let two = "pub fn alone() {}\n#[test]\nfn twice() {}\n";
        let three = "pub enum LogCommand {\n    Create(Make),\n    Follow {\n    },\n}\nstruct Make {\n    \
                     #[arg(long, short)]\n    pub log_size: u64,\n    #[arg(short)]\n    other: u8,\n    \
                     #[arg(long = \"rule\")]\n    rules: u8,\n}\n";
        sources.add("crates/a/src/rules.rs".into(), one.into());
        sources.add("crates/b/src/lib.rs".into(), two.into());
        sources.add("crates/b/tests/more.rs".into(), two.into());
        sources.add("crates/shell/cli/src/commands/log.rs".into(), three.into());
        sources
    }

    /// Names are found where they are and nowhere else. Would catch a member that is found outside
    /// of its type, and a name of several things that passes for one.
    #[test]
    fn names_are_found_in_their_places() {
        let s = sources();
        for name in
            ["Rules::FIRST", "Rules::on", "Other::size", "a::rules::alone", "rules", "Rules"]
        {
            assert_eq!(s.item_fault(name), None, "{name}");
        }
        for name in ["Rules::SECOND", "Rules::size", "Other::FIRST", "b::rules::alone", "Nothing"] {
            assert!(s.item_fault(name).is_some(), "{name}");
        }
        assert!(s.item_fault("alone").is_some_and(|fault| fault.contains("crates/b/src/lib.rs")));
    }

    /// A test is an item with the attribute, and there is one of each name. Would catch a function
    /// that passes for a test.
    #[test]
    fn tests_are_distinguished_from_functions() {
        let s = sources();
        assert_eq!(s.test_fault("it_holds"), None);
        assert!(s.test_fault("alone").is_some());
        assert!(s.test_fault("twice").is_some_and(|fault| fault.contains("more.rs")));
    }

    /// The command line is known: options with a long name, commands, and words that are only
    /// values.
    #[test]
    fn the_command_line_is_known() {
        let s = sources();
        assert!(s.has_option("log-size") && s.has_option("rule"));
        assert!(!s.has_option("other") && !s.has_option("log") && !s.has_option("rules"));
        assert!(s.has_command("create") && s.has_command("follow") && !s.has_command("make"));
        assert!(s.has_literal("ffs-sync") && !s.has_literal("ffs"));
        assert!(s.has_word("crates/a", "ffs") && !s.has_word("crates/b", "ffs"));
    }
}
