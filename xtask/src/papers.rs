//! A check of `docs/papers.md`, which leads from a rule of a paper to its code, its test and its
//! figure: all of them must exist.
//!
//! Every text in backquotes is a name, and what it names follows from its column and its form:
//!
//! | where, or of what form | what must exist |
//! |---|---|
//! | in a column whose head begins with "Test" | exactly one test function; outside of tables a name may be one |
//! | in a column whose head begins with "FreeBSD" | the word in the sources of `crates/core/ordering` |
//! | `ordo ...`, `make ...`, `cargo xtask ...` | the command, its options; the target; the task |
//! | `--option` | an option of the command line |
//! | with a slash | a file or folder, from the root |
//! | `module::Type::member`, or part of that | exactly one item, as a search of the sources finds it |
//! | any other word, with its parts between `:`, `,` and `=` | a string literal of the sources |
//!
//! Every rule of [`RULES`] is on the page. Links lead to files and headings that exist. Tables have
//! at most [`COLUMNS_MAX`] columns, and no row without code, a test, or a word about why there is
//! none.

use std::fs;
use std::path::Path;

use crate::sources::Sources;

/// The page.
const PAGE: &str = "docs/papers.md";

/// The most columns of a table.
const COLUMNS_MAX: usize = 5;

/// Sets of rules that can be turned off, each of which must be on the page.
const RULES: [&str; 4] = ["SyncRules", "SoftRules", "JournalRules", "LogRules"];

/// All faults of the page, a line each.
pub fn check(root: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(root.join(PAGE)) else {
        return vec![format!("{PAGE}: cannot be read")];
    };
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap_or_default();
    let page = Page { root, makefile, sources: Sources::read(root) };
    let mut faults = page.faults(&text);
    faults.extend(page.missing(&text, &RULES));
    faults
}

struct Page<'r> {
    root: &'r Path,
    makefile: String,
    sources: Sources,
}

impl Page<'_> {
    fn faults(&self, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let (mut heads, mut fenced): (Vec<String>, bool) = (Vec::new(), false);
        for (number, line) in (1..).zip(text.lines()) {
            let fence = line.starts_with("```");
            fenced ^= fence;
            if fence || fenced {
                continue;
            }
            let mut fault = |what: String| faults.push(format!("{PAGE}:{number}: {what}"));
            let cells = if line.starts_with('|') { cells(line) } else { Vec::new() };
            if cells.is_empty() {
                heads.clear();
                self.names(line, "").for_each(&mut fault);
            } else if heads.is_empty() {
                if cells.len() > COLUMNS_MAX {
                    fault(format!("a table of {} columns, more than {COLUMNS_MAX}", cells.len()));
                }
                heads = cells;
            } else if !cells.iter().all(|cell| cell.starts_with("--")) {
                if cells.len() != heads.len() {
                    fault(format!("{} cells under {} heads", cells.len(), heads.len()));
                }
                for (head, cell) in heads.iter().zip(&cells) {
                    self.names(cell, head).for_each(&mut fault);
                    let must_say = head.starts_with("Test") || head.starts_with("Code");
                    if must_say && cell.is_empty() {
                        fault(format!("nothing under \"{head}\": say why"));
                    }
                }
            }
            for target in links(line) {
                self.link_fault(target).into_iter().for_each(&mut fault);
            }
        }
        faults
    }

    /// Rules that the page does not name.
    fn missing(&self, text: &str, sets: &[&str]) -> Vec<String> {
        let rules = sets.iter().flat_map(|set| {
            self.sources.constants(set).into_iter().map(move |rule| format!("{set}::{rule}"))
        });
        let absent = rules.filter(|rule| !text.contains(&format!("`{rule}`")));
        absent.map(|rule| format!("{PAGE}: `{rule}` is not on the page")).collect()
    }

    /// The faults of the names in a cell, or in a line outside of tables.
    fn names<'t>(&'t self, text: &'t str, head: &'t str) -> impl Iterator<Item = String> + 't {
        text.split('`').skip(1).step_by(2).filter_map(move |name| {
            self.name_fault(name, head).map(|fault| format!("`{name}`: {fault}"))
        })
    }

    fn name_fault(&self, name: &str, head: &str) -> Option<String> {
        let unless = |known: bool, what: &str| (!known).then(|| what.to_owned());
        if head.starts_with("Test") {
            return self.sources.test_fault(name);
        }
        if head.is_empty() && self.sources.test_fault(name).is_none() {
            return None;
        }
        if head.starts_with("FreeBSD") {
            let known = self.sources.has_word("crates/core/ordering/", name);
            return unless(known, "the sources of crates/core/ordering do not have this word");
        }
        if let Some((program, rest)) = name.split_once(' ') {
            return self.command_fault(program, rest);
        }
        if let Some(option) = name.strip_prefix("--") {
            return unless(self.sources.has_option(option), "no command has this option");
        }
        if name.contains('/') {
            return unless(self.root.join(name).exists(), "no such file");
        }
        if name.contains("::") || name.contains('_') || name.contains(|c: char| c.is_uppercase()) {
            return self.sources.item_fault(name);
        }
        let parts = || name.split([':', ',', '=']);
        if parts().all(|part| self.sources.has_literal(part)) {
            return None;
        }
        self.sources.item_fault(name)
    }

    fn command_fault(&self, program: &str, rest: &str) -> Option<String> {
        let unknown = |what: &str, word: &str| Some(format!("no {what} is called {word}"));
        let words: Vec<&str> = rest.split(' ').collect();
        match (program, &words[..]) {
            ("make", [target, ..]) => {
                let is_target = |line: &str| line.split(':').next() == Some(target);
                let known = self.makefile.lines().any(is_target);
                if known { None } else { unknown("target of make", target) }
            }
            ("cargo", ["xtask", task, ..]) => {
                let known = self.sources.has_literal(task);
                if known { None } else { unknown("task", task) }
            }
            ("ordo", [command, rest @ ..]) => {
                if !self.sources.has_command(command) {
                    return unknown("command", command);
                }
                // A command of a command, or the name of a workload, may follow.
                let word = rest.first().filter(|word| word.chars().all(|c| c.is_ascii_lowercase()));
                let known =
                    |word: &str| self.sources.has_command(word) || self.sources.has_literal(word);
                if let Some(word) = word.filter(|word| !known(word)) {
                    return unknown("command", word);
                }
                let mut options = rest.iter().filter_map(|word| word.strip_prefix("--"));
                let wrong = options.find(|option| !self.sources.has_option(option));
                wrong.and_then(|option| unknown("option", option))
            }
            _ => Some("no command, and no name has a blank".to_owned()),
        }
    }

    /// The fault of a link from the page, if it has one.
    fn link_fault(&self, target: &str) -> Option<String> {
        if target.contains("://") {
            return None;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let here = self.root.join(PAGE);
        let file = match file {
            "" => here,
            _ => here.with_file_name("").join(file),
        };
        if !file.exists() {
            return Some(format!("a link to {target}: no such file"));
        }
        let text = fs::read_to_string(&file).unwrap_or_default();
        let found = text.lines().filter(|l| l.starts_with('#')).any(|l| slug(l) == anchor);
        (!anchor.is_empty() && !found).then(|| format!("a link to {target}: no such heading"))
    }
}

/// The cells of a row of a table.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The targets of the links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The anchor of a heading in a link.
fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check of any text, against the repository as it is.
    fn checker(root: &Path) -> Page<'_> {
        let makefile = "bench:\n\tcargo run\n".to_owned();
        Page { root, makefile, sources: Sources::read(root) }
    }

    /// Names that exist pass, in every form. Would catch a check that finds fault with everything.
    #[test]
    fn existing_names_pass() {
        let page = "| Rule | Code | Test that fails |\n|---|---|---|\n| one | `SyncRules::INODE_BEFORE_ENTRY`, \
                    `xtask/src/papers.rs`, `ffs-sync`, `make bench`, `ordo crash mutants --fs ffs-sync` | \
                    `existing_names_pass` |\n\n[style](style.md#style), [up](../CONTRIBUTING.md)\n";
        let root = crate::tidy::root();
        assert_eq!(checker(&root).faults(page), Vec::<String>::new());
    }

    /// Each form of a wrong name, link or table is one fault. Would catch a form that is not
    /// checked.
    #[test]
    fn each_wrong_name_is_a_fault() {
        let test = "| Test that fails |\n|---|\n";
        let freebsd = "| FreeBSD |\n|---|\n";
        let wrong = [
            "`SyncRules::NO_SUCH_RULE`".to_owned(),
            "`NoSuchType`".to_owned(),
            "`ordering::no_such_module`".to_owned(),
            "`no-such-system`".to_owned(),
            "`ffs-sync:nosuchpart`".to_owned(),
            "`crates/core/ordering/src/nosuch.rs`".to_owned(),
            "`make nosuch`".to_owned(),
            "`ordo nosuch`".to_owned(),
            "`ordo crash nosuch`".to_owned(),
            "`ordo compare --no-such-option`".to_owned(),
            "`--no-such-option`".to_owned(),
            "`cargo xtask nosuch`".to_owned(),
            "[there](nosuch.md)".to_owned(),
            "[there](style.md#no-such-heading)".to_owned(),
            "| 1 | 2 | 3 | 4 | 5 | 6 |".to_owned(),
            format!("{test}| `no_such_test` |"),
            format!("{test}| `check` |"),
            "| Rule | Test |\n|---|---|\n| one |  |".to_owned(),
            "| Rule | Code |\n|---|---|\n| one |".to_owned(),
            format!("{freebsd}| `nosuchdep` |"),
        ];
        let root = crate::tidy::root();
        let page = checker(&root);
        for line in wrong {
            let faults = page.faults(&line);
            assert_eq!(faults.len(), 1, "{line}: {faults:?}");
        }
    }

    /// A rule that the page leaves out is a fault. Would catch a new switch that is missing on the
    /// page.
    #[test]
    fn a_rule_that_is_left_out_is_a_fault() {
        let root = crate::tidy::root();
        let page = checker(&root);
        let all = page.sources.constants("JournalRules");
        assert!(all.len() > 3, "{all:?}");
        let named = |rules: &[String]| -> String {
            rules.iter().map(|rule| format!("`JournalRules::{rule}` ")).collect()
        };
        assert_eq!(page.missing(&named(&all), &["JournalRules"]), Vec::<String>::new());
        assert_eq!(page.missing(&named(&all[1..]), &["JournalRules"]).len(), 1);
    }

    /// Text in a fence has no names.
    #[test]
    fn fences_are_passed_over() {
        let root = crate::tidy::root();
        let page = Page { root: &root, makefile: String::new(), sources: Sources::default() };
        assert_eq!(page.faults("```text\n`nosuch`\n```\n"), Vec::<String>::new());
        assert_eq!(page.faults("`nosuch`\n").len(), 1);
    }
}
