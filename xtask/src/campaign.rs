//! `cargo xtask campaign`: the page of a long search for broken promises, from the results in `target/campaign`.
//!
//! `make crash-campaign` leaves a file of results for each system and workload, `long-SYSTEM-WORKLOAD.json`, and beside
//! it `.commit`, the commit of the program that wrote it, and `.seconds`. The page, `docs/results/crash.md`, has one
//! section for them. Everything else on the page stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::tidy;

/// The heading of the section.
const HEADING: &str = "## Every system over the set of geometries";

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
    let parts = parts(&root.join("target/campaign"))?;
    if parts.is_empty() {
        return Err("target/campaign has no results; `make crash-campaign` makes them".to_owned());
    }
    let page = root.join("docs/results/crash.md");
    let text = fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    fs::write(&page, replace(&text, &section(&parts)))
        .map_err(|e| format!("{}: {e}", page.display()))
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
    for row in results["rows"].as_array().into_iter().flatten() {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        let system = word(&row["system"]);
        let part = parts.entry(system.clone()).or_insert_with(|| Part {
            system,
            workload: word(&row["workload"]),
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
fn thousands(number: u64) -> String {
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
        "Written by `make crash-campaign`. Seeds from 1, volatile cache, states that differ only in sectors that nothing \
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

    /// A second writing of the page leaves it as it is, and no other section changes. Would catch a campaign that
    /// removes what earlier ones have found.
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
}
