//! A check of the documentation's links: each leads to a file, and each page is linked from one of
//! the two indexes, `docs/README.md` and `docs/results/README.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The pages from which every other page must be linked.
const INDEXES: [&str; 2] = ["docs/README.md", "docs/results/README.md"];

/// A fault for each link that leads nowhere, and for each page to which no index leads.
pub fn check(root: &Path) -> Vec<String> {
    let mut pages = Vec::new();
    for top in [root.to_path_buf(), root.join("docs"), root.join("docs/results")] {
        markdown(&top, &mut pages);
    }
    markdown(&root.join("docs/formats"), &mut pages);
    let mut faults = Vec::new();
    let mut indexed = BTreeSet::new();
    let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    for page in &pages {
        let (name, text) = (relative(page), fs::read_to_string(page).unwrap_or_default());
        for target in targets(&text) {
            let path = joined(page.parent().unwrap_or(root), target);
            if !path.exists() {
                faults.push(format!("{name}: a link to {target}, which does not exist"));
            } else if INDEXES.contains(&&*name) {
                indexed.insert(relative(&path));
            }
        }
    }
    for page in pages.iter().map(|page| relative(page)) {
        let is_known =
            !page.starts_with("docs/") || INDEXES.contains(&&*page) || page == "docs/SUMMARY.md";
        if !is_known && !indexed.contains(&page) {
            faults.push(format!("{page}: no index leads to it ({})", INDEXES.join(", ")));
        }
    }
    faults
}

fn markdown(folder: &Path, pages: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    found.sort();
    pages.extend(found);
}

/// The files to which a page links, as it names them.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    // Code may have brackets of its own.
    let prose = text.split("```").step_by(2);
    let links = prose.flat_map(|prose| prose.split("](").skip(1));
    links
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.contains(' '))
}

/// A path with `..` carried out, so that names can be compared.
fn joined(folder: &Path, target: &str) -> PathBuf {
    let mut out = folder.to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broken link and a page to which nothing leads are told; links to the web and within a page
    /// are none of a file.
    #[test]
    fn broken_links_and_lost_pages_are_found() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("README.md", "[web](https://example.org) [here](#a) [manual](docs/README.md)");
        put("docs/README.md", "[a](a.md#b) [results](results/README.md)\n```\n[x](none.md)\n```\n");
        put("docs/results/README.md", "[up](../../README.md)");
        put("docs/a.md", "[gone](gone.md)");
        put("docs/lost.md", "");
        assert_eq!(
            check(root.path()),
            [
                "docs/a.md: a link to gone.md, which does not exist",
                "docs/lost.md: no index leads to it (docs/README.md, docs/results/README.md)"
            ]
        );
    }
}
