//! `make bench-building BASE=COMMIT`: what building the command costs, beside a commit of the past.
//!
//! Both are built from nothing and once more after a change of `ufs`, each in a work tree and a
//! target folder of its own below `target/building`, by `cargo build --release` as the README says.
//! Times of the processor are more reliable than the clock's where the machine is shared. Writes
//! docs/results/building.md.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tidy;

/// The seconds of one command: the clock's, and the processor's.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

/// The measurements of one commit.
struct Measured {
    from_nothing: Cost,
    after_a_change: Cost,
    /// Bytes of the command without debug information.
    binary: u64,
}

/// Builds HEAD and `base`, by turns, and writes the page.
///
/// # Errors
/// A commit cannot be checked out or built, in words.
pub fn run(base: &str) -> Result<(), String> {
    let root = tidy::root();
    let before = measure(&root, base)?;
    let now = measure(&root, "HEAD")?;
    let page = page(base, &root, &before, &now)?;
    print!("{page}");
    let path = root.join("docs/results/building.md");
    fs::write(&path, page).map_err(|e| format!("{}: {e}", path.display()))
}

fn measure(root: &Path, commit: &str) -> Result<Measured, String> {
    let hash = output(root, "git", &["rev-parse", "--short", commit])?;
    let (tree, target) = (folder(root, &hash), folder(root, &format!("{hash}-target")));
    let _ = fs::remove_dir_all(&target);
    if !tree.exists() {
        let tree = tree.to_string_lossy().into_owned();
        output(root, "git", &["worktree", "add", "--detach", &tree, &hash])?;
    }
    output(&tree, "cargo", &["fetch", "--quiet"])?;
    let from_nothing = build(&tree, &target)?;
    let ufs = output(&tree, "git", &["ls-files", "*/ufs/src/lib.rs"])?;
    output(&tree, "touch", &[&ufs])?;
    let after_a_change = build(&tree, &target)?;
    let (ordo, small) = (target.join("release/ordo"), target.join("ordo.stripped"));
    output(root, "strip", &["-o", &small.to_string_lossy(), &ordo.to_string_lossy()])?;
    let binary = fs::metadata(&small).map_err(|e| format!("{}: {e}", small.display()))?.len();
    output(root, "git", &["worktree", "remove", "--force", &tree.to_string_lossy()])?;
    let _ = fs::remove_dir_all(&target);
    Ok(Measured { from_nothing, after_a_change, binary })
}

fn folder(root: &Path, name: &str) -> PathBuf {
    root.join("target/building").join(name)
}

/// The cost of one build, as the shell's `time` says it.
fn build(tree: &Path, target: &Path) -> Result<Cost, String> {
    let script = "TIMEFORMAT='%R %U %S'; time cargo build --release --quiet";
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(tree).env("CARGO_TARGET_DIR", target);
    let done = command.output().map_err(|e| format!("bash: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let times: Vec<f64> = said
        .lines()
        .next_back()
        .unwrap_or_default()
        .split(' ')
        .filter_map(|number| number.parse().ok())
        .collect();
    match times[..] {
        [wall, user, system] if done.status.success() => Ok(Cost { wall, cpu: user + system }),
        _ => Err(format!("building in {}: {said}", tree.display())),
    }
}

fn output(folder: &Path, program: &str, arguments: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(arguments).current_dir(folder).output();
    let done = done.map_err(|e| format!("{program}: {e}"))?;
    if !done.status.success() {
        return Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr)));
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

fn page(base: &str, root: &Path, before: &Measured, now: &Measured) -> Result<String, String> {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let head = output(root, "git", &["rev-parse", "--short", "HEAD"])?;
    let lines = |commit: &str| -> Result<String, String> {
        let arguments =
            ["-c", &format!("git archive {commit} crates | tar xO --wildcards '*.rs' | wc -l")];
        output(root, "bash", &arguments)
    };
    let mut out = format!(
        "# Building the command\n\nWritten by `make bench-building BASE={base}` on {cores} cores; load afterwards {}. \
         `cargo build --release` in a clean tree, from nothing, and after a change of `ufs`.\n\n\
         | | {base} | {head} | ratio | goal | |\n|---|---:|---:|---:|---:|---|\n",
        load.join(" ")
    );
    let mut row = |name: &str, before: f64, now: f64, goal: f64| {
        let ratio = now / before;
        let verdict = if ratio <= goal { "met" } else { "MISSED" };
        let _ =
            writeln!(out, "| {name} | {before:.0} | {now:.0} | {ratio:.2} | {goal} | {verdict} |");
    };
    let (from, after) = (before.from_nothing, before.after_a_change);
    row("from nothing, seconds of the processor", from.cpu, now.from_nothing.cpu, 0.5);
    row("from nothing, seconds", from.wall, now.from_nothing.wall, 0.5);
    row("after a change of `ufs`, seconds", after.wall, now.after_a_change.wall, 0.4);
    let (mb, goal) = (|bytes: u64| bytes as f64 / 1e6, 15.0);
    let verdict = if mb(now.binary) <= goal { "met" } else { "MISSED" };
    let _ = writeln!(
        out,
        "| binary without debug information, MB | {:.1} | {:.1} | {:.2} | {goal} MB | {verdict} |",
        mb(before.binary),
        mb(now.binary),
        mb(now.binary) / mb(before.binary)
    );
    let _ = writeln!(
        out,
        "| lines of Rust, tests included | {} | {} | | | |",
        lines(base)?,
        lines("HEAD")?
    );
    Ok(out)
}
