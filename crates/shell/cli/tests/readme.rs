//! The README's commands, run as it shows them.
//!
//! A block marked `console` has commands and the output of each. A command behind `$` is run here,
//! in one folder for all of them, and must print exactly the lines below it; a line `...` stands
//! for any number of lines. `$ cat FILE` of a file that does not exist creates the file with the
//! lines below. A command behind `#` needs root and the kernel's file systems, and is not run.
//!
//! Fault model: a README with output of an older Ordo, or with a command that fails.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A command of the README, and the lines that it shows below the command.
struct Shown {
    line: usize,
    command: String,
    needs_root: bool,
    output: Vec<String>,
}

/// The text of the README, which is in the root of the workspace.
fn readme() -> String {
    let mut folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    while !folder.join("Cargo.lock").exists() {
        folder = folder.parent().expect("the workspace has a lock file");
    }
    std::fs::read_to_string(folder.join("README.md")).expect("a README")
}

/// The commands in the blocks marked `console`, in order.
fn shown(readme: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut is_console, mut is_inside) = (false, false);
    for (number, line) in (1..).zip(readme.lines()) {
        if let Some(language) = line.strip_prefix("```") {
            is_inside = !is_inside;
            is_console = is_inside && language == "console";
        } else if is_console {
            let command = line.strip_prefix("$ ").or(line.strip_prefix("# "));
            match command {
                Some(command) => all.push(Shown {
                    line: number,
                    command: command.to_owned(),
                    needs_root: line.starts_with('#'),
                    output: Vec::new(),
                }),
                None => all.last_mut().expect("a command comes first").output.push(line.to_owned()),
            }
        }
    }
    all
}

/// Whether the lines of a command are those that the README shows.
fn agrees(shown: &[String], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=printed.len()).any(|skipped| agrees(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, left)| alike(first, line.trim_end()) && agrees(rest, left)),
    }
}

/// The kernel's file systems that the README shows.
const KERNELS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// The most by which a figure of theirs may differ: the guest's kernel and programs are those of
/// the machine, and another compiler, shell or path shifts its timers.
const TOLERANCE: f64 = 0.1;
/// The figures of a row that are means over all of the work, after the name. The ones behind them
/// are a median of steps, single events, and the moment of one power cut: where a timer stands to
/// the work decides them, so they are only figures.
const MEANS: std::ops::RangeInclusive<usize> = 1..=5;

/// Whether two lines are the same; in a row of one of the kernel's file systems means may differ a
/// little, and single events at will.
fn alike(shown: &str, printed: &str) -> bool {
    let (a, b): (Vec<&str>, Vec<&str>) =
        (shown.split_whitespace().collect(), printed.split_whitespace().collect());
    let value = |word: &str| word.trim_matches(['*', '!']).replace(',', "").parse::<f64>().ok();
    let near = |(column, (a, b)): (usize, (&&str, &&str))| match (value(a), value(b)) {
        (Some(a), Some(b)) => {
            !MEANS.contains(&column) || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
        }
        _ => a == b,
    };
    let is_row = a.first().is_some_and(|name| KERNELS.contains(name)) && a.len() == b.len();
    shown == printed || (is_row && a.iter().zip(&b).enumerate().all(near))
}

/// Runs a command of the README in a folder, with `ordo` in the path. Returns what it prints.
fn run(shown: &Shown, folder: &Path) -> String {
    let ordo = PathBuf::from(env!("CARGO_BIN_EXE_ordo"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", ordo.parent().expect("a folder").display());
    let out = Command::new("sh")
        .args(["-c", &shown.command])
        .current_dir(folder)
        .env("PATH", path)
        .output()
        .expect("sh runs");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "README.md:{}: {}: {errors}", shown.line, shown.command);
    String::from_utf8(out.stdout).expect("text")
}

/// Each command prints what the README shows. Would catch a figure that has changed since, an
/// option that was removed, and a README whose blocks are not found.
#[test]
fn every_output_in_the_readme_is_of_today() {
    let readme = readme();
    assert!(readme.lines().count() < 200, "the README has {} lines", readme.lines().count());
    let folder = tempfile::tempdir().unwrap();
    let mut programs = 0;
    for shown in shown(&readme).iter().filter(|shown| !shown.needs_root) {
        let is_in_guest = shown.command.contains("ext4");
        if is_in_guest && !ordo_testkit::has_guest(env!("CARGO_BIN_EXE_ordo")) {
            continue;
        }
        if let Some(file) = shown.command.strip_prefix("cat ") {
            let text = shown.output.join("\n") + "\n";
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let printed = run(shown, folder.path());
        let lines: Vec<&str> = printed.lines().collect();
        let place = format!("README.md:{}: {}", shown.line, shown.command);
        assert!(agrees(&shown.output, &lines), "{place}\nprints\n{printed}");
        programs += usize::from(shown.command.starts_with("ordo "));
    }
    assert!(programs >= 7, "only {programs} commands of Ordo in the README are run");
}

/// Figures of the kernel's file systems may differ a little, and no others.
#[test]
fn only_the_kernels_rows_may_differ_and_only_a_little() {
    assert!(alike("ext4  1,000 *2.0", "ext4  1,050 !1.9"));
    assert!(alike("xfs  1,000 2 3 4 5 3.85 0.0015", "xfs  1,000 2 3 4 5 3.56 0.0025"));
    assert!(!alike("xfs  1,000 2 3 4 5 3.85 0.0015", "xfs  1,000 2 3 4 6 3.85 0.0015"));
    assert!(!alike("xfs  1,000 2 3 4 5 3.85 0.0015", "xfs  1,000 2 3 4 5 3.85 -"));
    assert!(!alike("ext4  1,000 2.0", "ext4  1,200 2.0"));
    assert!(!alike("ext4  1,000 -", "ext4  1,000 2.0"));
    assert!(!alike("lfs  1,000 2.0", "lfs  1,001 2.0"));
}

/// The comparison itself: skipped lines, a changed line, a missing one and one too many.
#[test]
fn lines_are_compared_one_by_one() {
    let shown = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (text, printed, is_right) in [
        ("a b", vec!["a", "b "], true),
        ("a b", vec!["a", "c"], false),
        ("a b", vec!["a"], false),
        ("a", vec!["a", "b"], false),
        ("... b", vec!["a", "a", "b"], true),
        ("a ... c ...", vec!["a", "c"], true),
        ("a ... c", vec!["a", "b", "c", "d"], false),
    ] {
        assert_eq!(agrees(&shown(text), &printed), is_right, "{text} {printed:?}");
    }
}
