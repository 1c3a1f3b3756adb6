//! A check of layers: which folder of crates may use which, and what single crates must not know.
//!
//! | rule | holds for |
//! |---|---|
//! | [`FOLDERS`]: a crate uses only crates of the folders below its own | all that it reaches, directly or through others |
//! | [`STRANGERS`]: a crate knows nothing of the crates listed with it | what its manifest names |
//! | [`Kinds`]: an ordering or a layout is named by its own crate and by those that put systems together | the sources |
//!
//! Dependencies of tests do not count.

use std::collections::{BTreeMap, BTreeSet};

/// Each folder of `crates/`, lowest first, with the folders or single crates that its crates may
/// use besides those of the folder itself. Witnesses share nothing with the file systems that they
/// judge.
const FOLDERS: [(&str, &[&str]); 7] = [
    ("base", &[]),
    ("core", &["base"]),
    ("witness", &["base"]),
    ("host", &["base", "witness", "vfs"]),
    ("judge", &["base", "witness", "host", "vfs", "cache"]),
    ("shell", &["base", "core", "witness", "host", "judge"]),
    ("lab", &["base", "core", "witness", "host", "judge", "shell"]),
];

/// Crates that use more than their folder does, each with the reason.
const EXEMPT: [(&str, &[&str], &str); 1] =
    [("bgfsck", &["core"], "its steps are operations of the live file system")];

/// Crates that a crate's manifest must not name, although its folder would allow them.
const STRANGERS: [(&str, &[&str]); 27] = [
    ("format", &["runtime", "block", "trace"]),
    ("shown", &["format", "runtime", "block", "trace"]),
    ("runtime", &["format", "block", "trace"]),
    ("block", &["format", "trace"]),
    ("wafs", &["cache", "ordering", "ufs", "ffs", "vfs"]),
    ("cache", &["ordering", "ufs", "ffs", "lfs", "dualfs", "vfs", "format"]),
    ("ordering", &["ufs", "ffs", "lfs", "dualfs", "format", "vfs"]),
    ("vfs", &["cache", "ordering", "ufs", "ffs", "lfs", "dualfs", "format", "block"]),
    ("ufs", &["ffs", "lfs", "dualfs"]),
    ("ffs", &["lfs", "dualfs"]),
    ("lfs", &["ffs", "dualfs"]),
    ("dualfs", &["ffs"]),
    ("rescue", &["cache", "ordering", "ufs", "ffs", "lfs", "dualfs"]),
    ("check", &["watcher", "annotate", "playback"]),
    ("watcher", &["check", "annotate", "playback"]),
    ("annotate", &["check"]),
    ("playback", &["check"]),
    ("fuse", &["block", "watcher", "annotate", "playback", "check"]),
    ("recorder", &["watcher", "annotate", "playback", "check"]),
    ("guest", &["watcher", "annotate", "playback", "check", "kernelfs", "recorder"]),
    ("kernelfs", &["check", "infer"]),
    ("infer", &["check"]),
    ("crash", &["check", "format", "bgfsck", "crash-kernel", "crash-program"]),
    ("systems", &["workload", "compare", "cli", "watcher", "fuse"]),
    ("workload", &["format", "block", "cache", "ordering", "wafs", "systems", "annotate"]),
    ("compare", &["cli", "report", "fuse"]),
    ("cli", &["cache", "ordering", "ufs", "ffs", "lfs", "dualfs", "bgfsck"]),
];

/// The crates whose sources may name the ordering or the layout of another crate: those that put
/// systems together, and the fuzz targets, which work on one file system each.
const ASSEMBLERS: [&str; 3] = ["shell/systems", "lab/figures/src/bin", "lab/fuzzing"];

/// The manifests of the workspace: each crate with its folder and the crates of Ordo that it uses.
#[derive(Default)]
pub struct Crates(BTreeMap<String, (String, Vec<String>)>);

impl Crates {
    /// Reads the manifest at `name`, a path from the root.
    pub fn read(&mut self, name: &str, text: &str) {
        let mut path = name.split('/');
        let (Some("crates"), Some(folder), Some(own)) = (path.next(), path.next(), path.next())
        else {
            return;
        };
        let dependencies = text
            .lines()
            .skip_while(|l| *l != "[dependencies]")
            .skip(1)
            .take_while(|l| !l.starts_with('['))
            .filter_map(|line| line.strip_prefix("ordo-"));
        let is_name = |c: char| c.is_alphanumeric() || c == '-';
        let end = |name: &str| name.find(|c| !is_name(c)).unwrap_or(name.len());
        let names = dependencies.map(|name| name[..end(name)].to_owned()).collect();
        self.0.insert(own.to_owned(), (folder.to_owned(), names));
    }

    /// A fault for each layer that is crossed.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (own, (folder, direct)) in &self.0 {
            let Some((_, below)) = FOLDERS.iter().find(|(name, _)| name == folder) else {
                faults.push(format!("crates/{folder}/{own}: no layer is called {folder}"));
                continue;
            };
            let more = EXEMPT.iter().find(|(name, ..)| name == own).map_or(&[][..], |e| e.1);
            for (used, path) in self.reached(own) {
                let of = self.0.get(&used).map_or("", |(folder, _)| folder);
                let may = of == folder
                    || below.iter().chain(more).any(|allowed| *allowed == of || *allowed == used);
                if !may {
                    faults.push(format!("{folder}/{own} must not use {of}/{used} ({path})"));
                }
            }
            let strangers = STRANGERS.iter().filter(|(name, _)| name == own).flat_map(|s| s.1);
            for stranger in strangers.filter(|stranger| direct.iter().any(|d| d == *stranger)) {
                faults.push(format!("{folder}/{own} must not know {stranger}"));
            }
        }
        faults
    }

    /// All crates that a crate uses, directly or through others, each with a path to it.
    fn reached(&self, own: &str) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut next = vec![(own.to_owned(), own.to_owned())];
        while let Some((name, path)) = next.pop() {
            let Some((_, direct)) = self.0.get(&name) else { continue };
            for used in direct {
                if !found.contains_key(used) {
                    let path = format!("{path} -> {used}");
                    found.insert(used.clone(), path.clone());
                    next.push((used.clone(), path));
                }
            }
        }
        found
    }
}

/// The types that implement an ordering or a layout, each with the folder and name of its crate.
#[derive(Default)]
pub struct Kinds(BTreeMap<String, String>);

impl Kinds {
    /// Reads the implementations in a source.
    pub fn read(&mut self, name: &str, code: &str) {
        let (Some(home), true) = (home(name), is_library(name)) else { return };
        for line in code.lines().filter(|line| line.starts_with("impl")) {
            let words = |part: &str| -> Vec<String> {
                let words = part.split(|c: char| !c.is_alphanumeric() && c != '_');
                words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
            };
            let Some((what, of)) = line.split_once(" for ") else { continue };
            let what = words(what);
            if what.last().is_some_and(|w| w == "OrderingPolicy" || w == "Layout")
                && let Some(name) = words(of).first()
            {
                self.0.insert(name.clone(), home.to_owned());
            }
        }
    }

    /// A fault for each line of a source that names an ordering or a layout away from home.
    pub fn faults(&self, name: &str, code: &str) -> Vec<String> {
        let Some(own) = home(name).filter(|_| is_library(name)) else { return Vec::new() };
        let path = name.strip_prefix("crates/").unwrap_or(name);
        if ASSEMBLERS.iter().any(|allowed| path.starts_with(allowed)) {
            return Vec::new();
        }
        let mut faults = Vec::new();
        let code = code.lines().take_while(|line| *line != "#[cfg(test)]");
        for (number, line) in (1..).zip(code) {
            let words: BTreeSet<&str> =
                line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            for (kind, home) in self.0.iter().filter(|(kind, _)| words.contains(kind.as_str())) {
                if home != own {
                    faults.push(format!("{name}:{number}: names {kind}, which is {home}'s"));
                }
            }
        }
        faults
    }
}

/// The folder and the name of a source's crate.
fn home(name: &str) -> Option<&str> {
    let path = name.strip_prefix("crates/")?;
    path.match_indices('/').nth(1).map(|(at, _)| &path[..at])
}

/// Whether a source is code of a library or a program, and no test or example.
fn is_library(name: &str) -> bool {
    let tests = ["/tests", "/test_", "_tests.rs"];
    name.contains("/src/") && !tests.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates(manifests: &[(&str, &str)]) -> Vec<String> {
        let mut crates = Crates::default();
        for (path, dependencies) in manifests {
            let lines: String = dependencies
                .split_whitespace()
                .map(|d| format!("ordo-{d}.workspace = true\n"))
                .collect();
            crates.read(
                &format!("crates/{path}/Cargo.toml"),
                &format!("[dependencies]\n{lines}[dev-dependencies]\nordo-ffs.workspace = true\n"),
            );
        }
        crates.faults()
    }

    /// A crate that reaches over its folder is found, also through another crate; tests may use
    /// what they like.
    #[test]
    fn crossed_layers_are_found() {
        let ffs = ("core/ffs", "ordering block");
        let ordering = ("core/ordering", "block");
        let block = ("base/block", "");
        assert_eq!(crates(&[ffs, ordering, block, ("witness/check", "block")]), [""; 0]);
        let direct = crates(&[ffs, ordering, block, ("witness/check", "ffs")]);
        assert_eq!(direct.len(), 2, "{direct:?}");
        let through =
            crates(&[ffs, ordering, ("base/block", "ordering"), ("witness/check", "block")]);
        assert!(through.iter().any(|f| f.contains("check -> block -> ordering")), "{through:?}");
        assert_eq!(crates(&[block, ("core/cache", "ordering"), ordering]).len(), 1);
        assert_eq!(crates(&[block, ("attic/old", "block")]).len(), 1);
        let judge = crates(&[block, ordering, ffs, ("judge/crash", "ordering")]);
        assert_eq!(judge.len(), 1, "{judge:?}");
        assert_eq!(crates(&[block, ordering, ffs, ("judge/bgfsck", "ffs")]), [""; 0]);
    }

    /// The types of orderings and layouts are known from their implementations, and are found
    /// elsewhere.
    #[test]
    fn types_stay_home() {
        let mut kinds = Kinds::default();
        kinds.read("crates/core/ordering/src/new.rs", "impl OrderingPolicy for NewOrder {\n");
        kinds.read("crates/core/ffs/src/layout.rs", "impl Layout for Ffs {\n");
        kinds.read("crates/core/ufs/tests/toy.rs", "impl Layout for Toy {\n");
        let faults =
            |name: &str| kinds.faults(name, "use a::{NewOrder, Ffs};\nlet x = Toy;\n").len();
        assert_eq!(faults("crates/core/ufs/src/a.rs"), 2);
        assert_eq!(faults("crates/core/ffs/src/a.rs"), 1);
        assert_eq!(faults("crates/core/ordering/src/a.rs"), 1);
        assert_eq!(faults("crates/shell/systems/src/a.rs"), 0);
        assert_eq!(faults("crates/shell/compare/src/a.rs"), 2);
        assert_eq!(faults("crates/core/ufs/tests/a.rs"), 0);
        assert_eq!(faults("crates/core/ufs/src/tests.rs"), 0);
        assert_eq!(kinds.faults("crates/core/ufs/src/a.rs", "let order = NewOrders;\n").len(), 0);
    }
}
