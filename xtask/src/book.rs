//! The book of the manual: `docs/SUMMARY.md`, which mdBook reads, follows from the tables of
//! `docs/README.md` and `docs/results/README.md`, and is held equal to them.

use std::fs;
use std::path::Path;

const SUMMARY: &str = "docs/SUMMARY.md";

/// A fault if the summary is not the one that follows from the indexes.
pub fn check(root: &Path) -> Vec<String> {
    let now = fs::read_to_string(root.join(SUMMARY)).unwrap_or_default();
    match summary(root) == now {
        true => Vec::new(),
        false => vec![format!("{SUMMARY}: not what docs/README.md says: tidy --summary")],
    }
}

/// Writes the summary.
///
/// # Errors
/// The file cannot be written.
pub fn write(root: &Path) -> Result<(), String> {
    fs::write(root.join(SUMMARY), summary(root)).map_err(|error| format!("{SUMMARY}: {error}"))
}

/// The summary: a part for each heading of the manual's index, a chapter for each row of its
/// tables, and the pages of results below their index. Pages outside of `docs` are in no book.
fn summary(root: &Path) -> String {
    let text = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let mut out = "# Summary\n\n[The manual](README.md)\n".to_owned();
    for line in text("docs/README.md").lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            out.push_str(&format!("\n# {heading}\n\n"));
        } else if let Some((title, page)) = row(line, 0).filter(|(_, page)| !page.contains("..")) {
            out.push_str(&format!("- [{title}]({page})\n"));
        }
    }
    for line in text("docs/results/README.md").lines() {
        if let Some((title, page)) = row(line, 1) {
            out.push_str(&format!("  - [{title}](results/{page})\n"));
        }
    }
    out
}

/// The title, in the given column, and the page of a table's row that links to one.
fn row(line: &str, title: usize) -> Option<(&str, &str)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let (_, link) = cells.get(1 - title)?.split_once("](")?;
    let (page, _) = link.split_once(')')?;
    page.ends_with(".md").then_some((*cells.get(title)?, page))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that joins the index is missing in the book until the summary is written; what is
    /// outside of the manual never joins it.
    #[test]
    fn the_summary_follows_the_index() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("docs/results")).unwrap();
        let index = "## Guides\n\n| question | page |\n|---|---|\n| Why? | [a.md](a.md) |\n| New | [up](../C.md) |\n";
        fs::write(root.path().join("docs/README.md"), index).unwrap();
        let results = "| page | shows | date |\n|---|---|---|\n| [b.md](b.md) | figures | 2026 |\n";
        fs::write(root.path().join("docs/results/README.md"), results).unwrap();
        assert_eq!(check(root.path()).len(), 1);
        write(root.path()).unwrap();
        assert_eq!(check(root.path()), [""; 0]);
        let summary = fs::read_to_string(root.path().join(SUMMARY)).unwrap();
        let end = "# Guides\n\n- [Why?](a.md)\n  - [figures](results/b.md)\n";
        assert!(summary.ends_with(end), "{summary}");
    }
}
