//! `cargo xtask campaign`: the page of a long search for broken promises, from the results in
//! `target/campaign`.
//!
//! `make crash-campaign` leaves a file of results for each system and workload,
//! `long-SYSTEM-WORKLOAD.json`, and beside it `.commit`, the commit of the program that wrote it,
//! and `.seconds`. The counts go into a table, `docs/results/campaign.tsv`, one line for each
//! system and workload. A search takes hours, so it may be made in parts and on several machines: a
//! line stays until the same system and workload are searched again. The page,
//! `docs/results/crash.md`, has one section that is written from the table. Everything else on the
//! page stays as it is. Results of searches with a rule switched off, if there are any, go to a
//! page of their own ([`mutants`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{mutants, tidy};

/// The heading of the section.
const HEADING: &str = "## Every system over the set of geometries";

const TABLE: &str = "docs/results/campaign.tsv";

/// The first line of the table.
const COLUMNS: &str = "system\tworkload\tgeometries\truns\tstates\tnested\tbroken\tseconds\tcommit";

/// The results of one system under one workload.
struct Part {
    system: String,
    workload: String,
    commit: String,
    seconds: u64,
    geometries: BTreeSet<String>,
    runs: u64,
    states: u64,
    nested: u64,
    broken: u64,
}

/// Writes the section.
///
/// # Errors
/// There are no results, or one cannot be read, in words.
pub fn run() -> Result<(), String> {
    let root = tidy::root();
    let folder = root.join("target/campaign");
    mutants::write(&root, &folder)?;
    let parts = parts(&folder)?;
    if parts.is_empty() {
        return Err("target/campaign has no results; `make crash-campaign` makes them".to_owned());
    }
    let [table, page] = [TABLE, "docs/results/crash.md"].map(|n| root.join(n));
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let earlier = if table.exists() { from_table(&read(&table)?)? } else { Vec::new() };
    let parts = merge(earlier, parts);
    let text = replace(&read(&page)?, &section(&parts));
    for (path, text) in [(&table, to_table(&parts)), (&page, text)] {
        fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// The parts of earlier searches, where no newer one has the same system and workload, and the
/// newer ones; sorted.
fn merge(earlier: Vec<Part>, newer: Vec<Part>) -> Vec<Part> {
    let key = |part: &Part| (part.system.clone(), part.workload.clone());
    let mut all: BTreeMap<_, _> = earlier.into_iter().map(|part| (key(&part), part)).collect();
    all.extend(newer.into_iter().map(|part| (key(&part), part)));
    all.into_values().collect()
}

fn to_table(parts: &[Part]) -> String {
    let mut out = format!("{COLUMNS}\n");
    for part in parts {
        let geometries = part.geometries.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let Part { system, workload, commit, seconds, runs, states, nested, broken, .. } = part;
        let _ = writeln!(
            out,
            "{system}\t{workload}\t{geometries}\t{runs}\t{states}\t{nested}\t{broken}\t{seconds}\t{commit}"
        );
    }
    out
}

fn from_table(text: &str) -> Result<Vec<Part>, String> {
    rows((TABLE, COLUMNS), text, part)
}

/// Reads the rows of a table, which has a name and a first line, by `read`.
///
/// # Errors
/// The first line is another one, or a row cannot be read, in words.
pub fn rows<T, A: FromIterator<T>>(
    (name, columns): (&str, &str),
    text: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<A, String> {
    let mut lines = text.lines().enumerate();
    if lines.next().map(|(_, line)| line) != Some(columns) {
        return Err(format!("{name}: the first line does not name the columns"));
    }
    lines
        .map(|(at, line)| read(line).ok_or_else(|| format!("{name}: line {}: '{line}'", at + 1)))
        .collect()
}

/// A line of the table.
fn part(line: &str) -> Option<Part> {
    let cells: Vec<&str> = line.split('\t').collect();
    let [system, workload, geometries, counts @ .., commit] = cells.as_slice() else { return None };
    let counts: Vec<u64> = counts.iter().map_while(|cell| cell.parse().ok()).collect();
    let &[runs, states, nested, broken, seconds] = counts.as_slice() else { return None };
    Some(Part {
        system: (*system).to_owned(),
        workload: (*workload).to_owned(),
        commit: (*commit).to_owned(),
        seconds,
        geometries: geometries.split(' ').map(str::to_owned).collect(),
        runs,
        states,
        nested,
        broken,
    })
}

fn parts(folder: &Path) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with("long-") || !name.ends_with(".json") {
            continue;
        }
        let beside = |end: &str| {
            let text = fs::read_to_string(file.with_extension(end)).unwrap_or_default();
            text.trim().to_owned()
        };
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let results: Value =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        let seconds = beside("seconds").lines().filter_map(|line| line.parse::<u64>().ok()).sum();
        parts.extend(read(&results, &beside("commit"), seconds));
    }
    Ok(parts)
}

/// The parts of one file: one for each of its systems.
fn read(results: &Value, commit: &str, seconds: u64) -> Vec<Part> {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    let blocks = &results["plan"]["cache_blocks"];
    let cache = blocks.as_u64().map_or(String::new(), |n| format!(", cache of {n} blocks"));
    for row in results["rows"].as_array().into_iter().flatten() {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        let system = word(&row["system"]);
        let part = parts.entry(system.clone()).or_insert_with(|| Part {
            system,
            workload: word(&row["workload"]) + &cache,
            commit: commit.to_owned(),
            seconds,
            geometries: BTreeSet::new(),
            runs: 0,
            states: 0,
            nested: 0,
            broken: 0,
        });
        part.geometries.insert(word(&row["geometry"]["name"]));
        part.runs += number("runs");
        part.states += number("states");
        part.nested += number("in_recovery");
        part.broken += number("promise_broken");
    }
    parts.into_values().collect()
}

/// A number with commas between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn section(parts: &[Part]) -> String {
    let workloads: BTreeSet<&str> = parts.iter().map(|part| part.workload.as_str()).collect();
    let geometries: BTreeSet<&str> =
        parts.iter().flat_map(|part| &part.geometries).map(String::as_str).collect();
    let mut out = format!("{HEADING}\n\n");
    let listed = |names: &BTreeSet<&str>| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let _ = writeln!(
        out,
        "Written by `make crash-campaign` from [campaign.tsv](campaign.tsv), which has a line for each system and \
         workload and keeps the lines of earlier searches. Seeds from 1, volatile cache, states that differ only in sectors that nothing \
         read are judged once. The goal is ten million states for each system.\n\n\
         Geometries: {}.\n\nWorkloads: {}.\n",
        listed(&geometries),
        listed(&workloads)
    );
    out.push_str(
        "| system | states | goal | with a nested crash | runs | geometries | workloads | promises broken | seconds | commit |\n\
         |---|---:|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    let systems: BTreeSet<&str> = parts.iter().map(|part| part.system.as_str()).collect();
    for system in systems {
        let of = || parts.iter().filter(move |part| part.system == system);
        let sum = |field: fn(&Part) -> u64| of().map(field).sum::<u64>();
        let names: BTreeSet<&String> = of().flat_map(|part| &part.geometries).collect();
        let commits: BTreeSet<&str> = of().map(|part| part.commit.as_str()).collect();
        let states = sum(|part| part.states);
        let goal = if states >= 10_000_000 { "met" } else { "MISSED" };
        let _ = writeln!(
            out,
            "| {system} | {} | {goal} | {} | {} | {} | {} | {} | {} | {} |",
            thousands(states),
            thousands(sum(|part| part.nested)),
            thousands(sum(|part| part.runs)),
            names.len(),
            of().count(),
            thousands(sum(|part| part.broken)),
            thousands(sum(|part| part.seconds)),
            commits.into_iter().collect::<Vec<_>>().join(", "),
        );
    }
    out.push('\n');
    out
}

/// The page with its section replaced, or put before the next one where it was missing.
fn replace(page: &str, section: &str) -> String {
    let next = |from: usize| page[from..].find("\n## ").map_or(page.len(), |at| from + at + 1);
    let (start, end) = match page.find(HEADING) {
        Some(start) => (start, next(start)),
        None => (next(0), next(0)),
    };
    format!("{}{section}{}", &page[..start], &page[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second writing of the page leaves it as it is, and no other section changes. Would catch a
    /// campaign that removes what earlier ones have found.
    #[test]
    fn the_section_is_replaced_and_the_rest_of_the_page_stays() {
        let results = serde_json::json!({ "rows": [
            { "system": "a", "workload": "w", "geometry": { "name": "8k-1k" }, "runs": 2, "states": 9_999_999,
              "in_recovery": 7, "promise_broken": 0 },
            { "system": "a", "workload": "w", "geometry": { "name": "4k-512" }, "runs": 2, "states": 1,
              "in_recovery": 0, "promise_broken": 1 },
            { "system": "b", "workload": "w", "geometry": { "name": "4k-512" }, "runs": 1, "states": 5,
              "in_recovery": 0, "promise_broken": 0 },
        ] });
        let section = section(&read(&results, "abc", 61));
        assert!(
            section.contains("| a | 10,000,000 | met | 7 | 4 | 2 | 1 | 1 | 61 | abc |"),
            "{section}"
        );
        assert!(section.contains("| b | 5 | MISSED | 0 | 1 | 1 | 1 | 0 | 61 | abc |"), "{section}");
        let once = replace("# Page\n\nintro\n\n## Earlier\n\nold\n", &section);
        assert_eq!(replace(&once, &section), once);
        assert!(
            once.starts_with("# Page\n\nintro\n\n## Every")
                && once.ends_with("\n\n## Earlier\n\nold\n")
        );
    }

    /// A newer search of one workload replaces that line of the table and leaves the others. Would
    /// catch a second part of the search that forgets the first, or counts the same states twice.
    #[test]
    fn the_table_keeps_what_was_not_searched_again() {
        let line = |workload: &str, states: u64, commit: &str| {
            format!("a\t{workload}\t4k-512 8k-1k\t5\t{states}\t7\t0\t61\t{commit}")
        };
        let table = |lines: [String; 2]| format!("{COLUMNS}\n{}\n{}\n", lines[0], lines[1]);
        let old = table([line("v", 10, "abc"), line("w", 20, "abc")]);
        let newer = from_table(&format!("{COLUMNS}\n{}\n", line("w", 30, "def"))).unwrap();
        let merged = merge(from_table(&old).unwrap(), newer);
        assert_eq!(to_table(&merged), table([line("v", 10, "abc"), line("w", 30, "def")]));
        let section = section(&merged);
        assert!(
            section.contains("| a | 40 | MISSED | 14 | 10 | 2 | 2 | 0 | 122 | abc, def |"),
            "{section}"
        );
        for bad in ["", "no columns", &format!("{COLUMNS}\na\tw\tg\t5\tx\t7\t0\t61\tabc\n")] {
            assert!(from_table(bad).is_err(), "{bad}");
        }
    }
}
