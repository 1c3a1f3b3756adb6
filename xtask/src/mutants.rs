//! The page of the rules that were switched off: for each rule of a system and each geometry, the
//! number of states that were judged until a promise was broken.
//!
//! `make crash-mutants` leaves the rows of `ordo crash mutants --json` in
//! `target/campaign/mutants-SYSTEM.json`, and beside them `.commit`, the commit of the program.
//! [`write`] puts them into `docs/results/mutants.tsv`, one line for each system, rule and
//! geometry, and writes `docs/results/mutants.md` from the table. A line stays until the same
//! search is made again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::campaign::{rows, thousands};

const TABLE: &str = "docs/results/mutants.tsv";
const PAGE: &str = "docs/results/mutants.md";
/// The page that names the tests of each rule.
const PAPERS: &str = "docs/papers.md";

/// The first line of the table.
const COLUMNS: &str = "system\trule\tgeometry\tstates\tseed\tpromise\tcommit";

/// The name of the search in which no rule is off.
const NONE: &str = "(none)";

/// The states that `make test` judges at most for one rule.
const STATES_OF_TESTS: u64 = 25_000;

/// A search: system, rule, geometry.
type Key = (String, String, String);

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Search {
    /// The number of states judged.
    states: u64,
    /// The seed of the run that broke a promise, and the promise; `None` if all promises were kept.
    found: Option<(u64, String)>,
    commit: String,
}

/// Writes table and page, if `folder` has new results.
///
/// # Errors
/// A file cannot be read or written, in words.
pub fn write(root: &Path, folder: &Path) -> Result<(), String> {
    let fault = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let read = |path: &Path| fs::read_to_string(path).map_err(|e| fault(path, e));
    let [table, page, papers] = [TABLE, PAGE, PAPERS].map(|name| root.join(name));
    let mut all = if table.exists() { from_table(&read(&table)?)? } else { BTreeMap::new() };
    let mut is_new = false;
    for entry in fs::read_dir(folder).map_err(|e| fault(folder, e))?.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("mutants-") && name.ends_with(".json") {
            let commit = fs::read_to_string(path.with_extension("commit")).unwrap_or_default();
            let rows: Value = serde_json::from_str(&read(&path)?)
                .map_err(|e| format!("{}: {e}", path.display()))?;
            all.extend(rows_of(&rows, commit.trim()));
            is_new = true;
        }
    }
    if is_new {
        for (path, text) in [(&page, page_of(&all, &read(&papers)?)), (&table, to_table(&all))] {
            fs::write(path, text).map_err(|e| fault(path, e))?;
        }
    }
    Ok(())
}

fn rows_of(rows: &Value, commit: &str) -> Vec<(Key, Search)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| {
        let key = (word(&row["system"]), word(&row["rule"]), word(&row["geometry"]["name"]));
        let found = &row["found"];
        let found = found.is_object().then(|| {
            (found["seed"].as_u64().unwrap_or(0), word(&found["what"]).replace(['\t', '\n'], " "))
        });
        let states = row["states"].as_u64().unwrap_or(0);
        (key, Search { states, found, commit: commit.to_owned() })
    };
    rows.as_array().into_iter().flatten().map(row).collect()
}

fn to_table(all: &BTreeMap<Key, Search>) -> String {
    let mut out = format!("{COLUMNS}\n");
    for ((system, rule, geometry), search) in all {
        let (seed, promise) = match &search.found {
            Some((seed, promise)) => (seed.to_string(), promise.as_str()),
            None => ("-".to_owned(), "-"),
        };
        let Search { states, commit, .. } = search;
        let _ =
            writeln!(out, "{system}\t{rule}\t{geometry}\t{states}\t{seed}\t{promise}\t{commit}");
    }
    out
}

fn from_table(text: &str) -> Result<BTreeMap<Key, Search>, String> {
    rows((TABLE, COLUMNS), text, search_of)
}

/// A line of the table.
fn search_of(line: &str) -> Option<(Key, Search)> {
    let cells: Vec<&str> = line.split('\t').collect();
    let &[system, rule, geometry, states, seed, promise, commit] = cells.as_slice() else {
        return None;
    };
    let found = match seed {
        "-" => None,
        seed => Some((seed.parse().ok()?, promise.to_owned())),
    };
    let key = (system.to_owned(), rule.to_owned(), geometry.to_owned());
    Some((key, Search { states: states.parse().ok()?, found, commit: commit.to_owned() }))
}

/// The tests that a page names in its rows about a rule.
fn tests_of(papers: &str, rule: &str) -> Vec<String> {
    let is_of = |line: &&str| {
        line.starts_with('|') && line.split(['`', ':']).any(|word| word.trim() == rule)
    };
    let cell = |line: &str| line.split(" | ").nth(3).unwrap_or_default().to_owned();
    let mut tests: Vec<String> = papers
        .lines()
        .filter(is_of)
        .flat_map(|line| {
            cell(line).split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    tests.sort();
    tests.dedup();
    tests
}

fn page_of(all: &BTreeMap<Key, Search>, papers: &str) -> String {
    let mut out = format!(
        "# Rules switched off\n\nWritten by `make crash-mutants` from [mutants.tsv](mutants.tsv), which also has the promise that was \
         broken and the seed of the run. Each rule of an ordering is switched off in each geometry, and states of runs with seeds from 1 \
         are judged until a promise is broken: the number in the table. `-`: none is broken in the most states that a search may take. \
         In some geometries a rule can have no effect: where a block has one fragment, a file's end never moves, and directories do \
         not grow within a block. `make test` judges up to {} states for one rule.\n",
        thousands(STATES_OF_TESTS)
    );
    let systems: BTreeSet<&str> = all.keys().map(|(system, ..)| system.as_str()).collect();
    for system in systems {
        section(&mut out, all, system, papers);
    }
    out
}

/// The section of a system.
fn section(out: &mut String, all: &BTreeMap<Key, Search>, system: &str, papers: &str) {
    let of = || all.iter().filter(move |((name, ..), _)| name == system);
    let geometries: BTreeSet<&str> = of().map(|((.., geometry), _)| geometry.as_str()).collect();
    let rules: BTreeSet<&str> = of().map(|((_, rule, _), _)| rule.as_str()).collect();
    let commits: BTreeSet<&str> = of().map(|(_, search)| search.commit.as_str()).collect();
    let heads: Vec<&str> = geometries.iter().copied().collect();
    let _ = writeln!(out, "\n## {system}\n\n| rule off | {} |", heads.join(" | "));
    let _ = writeln!(out, "|---|{}", "---:|".repeat(geometries.len()));
    let at = |rule: &str, geometry: &str| {
        all.get(&(system.to_owned(), rule.to_owned(), geometry.to_owned()))
    };
    let (mut never, mut most) = (Vec::new(), 0);
    for rule in &rules {
        let mut is_found = false;
        let mut cells = Vec::new();
        for geometry in &geometries {
            let search = at(rule, geometry);
            let found = search.filter(|search| search.found.is_some());
            is_found |= found.is_some();
            most = most.max(found.map_or(0, |search| search.states));
            cells.push(match search {
                None => String::new(),
                Some(search) if search.found.is_none() => "-".to_owned(),
                Some(search) => thousands(search.states),
            });
        }
        let _ = writeln!(out, "| {} | {} |", rule.to_lowercase(), cells.join(" | "));
        if !is_found && *rule != NONE {
            never.push(*rule);
        }
    }
    let limit = of().filter(|(_, search)| search.found.is_none()).map(|(_, search)| search.states);
    let verdict = if most <= STATES_OF_TESTS { "met" } else { "MISSED" };
    let _ = writeln!(
        out,
        "\nThe search for a rule ends after {} states. The most that a rule took to be found: {} (target: no more than `make test` \
         judges: {verdict}).",
        limit.max().map_or_else(|| "any number of".to_owned(), thousands),
        thousands(most)
    );
    let _ = writeln!(out, "\n{}", sound(of().filter(|((_, rule, _), _)| rule == NONE)));
    for rule in never {
        let tests = tests_of(papers, rule);
        let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
        let _ = writeln!(
            out,
            "\nThe search finds `{}` in no geometry. Its own tests: {}.",
            rule.to_lowercase(),
            if tests.is_empty() { "none".to_owned() } else { tests.join(", ") }
        );
    }
    let commits: Vec<&str> = commits.into_iter().collect();
    let _ = writeln!(out, "\nMeasured at commit {}.", commits.join(", "));
}

/// A sentence about the searches in which no rule is off.
fn sound<'a>(searches: impl Iterator<Item = (&'a Key, &'a Search)>) -> String {
    let broken = searches.filter_map(|((.., geometry), search)| {
        search.found.as_ref().map(|(seed, what)| format!("{geometry}, seed {seed}: {what}"))
    });
    let broken: Vec<String> = broken.collect();
    match broken.is_empty() {
        true => "With all rules on, no promise is broken.".to_owned(),
        false => format!("**With all rules on, a promise is broken**: {}.", broken.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Value {
        serde_json::json!([
            { "system": "s", "rule": "(none)", "geometry": { "name": "8k-1k" }, "states": 30_000, "found": null },
            { "system": "s", "rule": "LAND", "geometry": { "name": "8k-1k" }, "states": 30_000, "found": null },
            { "system": "s", "rule": "UNDO", "geometry": { "name": "8k-1k" }, "states": 26_000,
              "found": { "seed": 3, "model": "volatile", "what": "lost\tname" } },
        ])
    }

    const PAPERS: &str = "| what | `code` | `JournalRules::LAND` | `test_b`, `test_a` | |\n| x | y | `ISLAND` | `test_c` | |\n";

    /// The page shows what was found and what was not, and says so where a search took more states
    /// than the tests take. Would catch a page on which a rule that nothing finds looks as if it
    /// were found.
    #[test]
    fn the_page_tells_found_from_not_found() {
        let all: BTreeMap<Key, Search> = rows_of(&rows(), "abc").into_iter().collect();
        let page = page_of(&all, PAPERS);
        for part in [
            "| (none) | - |",
            "| land | - |",
            "| undo | 26,000 |",
            "judges: MISSED",
            "finds `land` in no geometry. Its own tests: `test_a`, `test_b`.",
            "commit abc.",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("finds `(none)`") && !page.contains("finds `undo`"), "{page}");
        assert!(page.contains("With all rules on, no promise is broken."), "{page}");
    }

    /// A promise that is broken with all rules on is a defect of the system, and the page begins no
    /// sentence as loudly as that one. Would catch a page on which it is one number among many.
    #[test]
    fn the_page_says_that_the_system_itself_is_unsound() {
        let mut rows = rows();
        rows[0]["found"] = rows[2]["found"].clone();
        let all: BTreeMap<Key, Search> = rows_of(&rows, "abc").into_iter().collect();
        let page = page_of(&all, PAPERS);
        let words = "**With all rules on, a promise is broken**: 8k-1k, seed 3: lost";
        assert!(page.contains(words), "{page}");
    }

    /// The table gives back what was put into it, and a line of another form is refused. Would
    /// catch a search that is lost when another system is searched later.
    #[test]
    fn the_table_keeps_every_search() {
        let all: BTreeMap<Key, Search> = rows_of(&rows(), "abc").into_iter().collect();
        let text = to_table(&all);
        assert_eq!(from_table(&text).unwrap(), all);
        assert!(text.contains("s\tUNDO\t8k-1k\t26000\t3\tlost name\tabc\n"), "{text}");
        for bad in ["", "no columns", &format!("{COLUMNS}\ns\tr\tg\tmany\t-\t-\tabc\n")] {
            assert!(from_table(bad).is_err(), "{bad}");
        }
    }
}
