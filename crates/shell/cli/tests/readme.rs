//! The commands of the README and of the guides, run as they show them.
//!
//! A block marked `console` has commands and the output of each. A command behind `$` is run here,
//! in one folder for all of its page, and must print exactly the lines below it; a line `...`
//! stands for any number of lines. A command goes on in the next line if it ends with a backslash.
//! `$ cat FILE` of a file that does not exist creates the file with the lines below. A command
//! behind `#` needs root, and is not run. Of any other command in a block of code, the subcommand
//! and the options must exist; [`NOT_RUN`] says why they are not run.
//!
//! Fault model: a page with output of an older Ordo, or with a command that fails.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command of a page, and the lines that it shows below the command.
struct Shown {
    line: usize,
    command: String,
    needs_root: bool,
    output: Vec<String>,
}

/// The pages with commands of Ordo outside of `console` blocks, and why those are not run.
const NOT_RUN: [(&str, &str); 16] = [
    ("README.md", "the user's own program"),
    ("docs/ageing.md", "minutes, and a mount"),
    ("docs/analysis.md", "root, and a device-mapper target"),
    ("docs/building.md", "downloads"),
    ("docs/compare.md", "minutes, and the user's own sources"),
    ("docs/crash-programs.md", "the user's own program"),
    ("docs/filebench.md", "minutes, and a mount"),
    ("docs/fleet.md", "many machines"),
    ("docs/guest.md", "its output is in docs/results/guest.md; tests/guest.rs runs the like"),
    ("docs/infer.md", "minutes"),
    ("docs/journal.md", "minutes"),
    ("docs/mount.md", "root and /dev/fuse; tests/mount.rs runs the like"),
    ("docs/reproduce.md", "hours, all together"),
    ("docs/start.md", "root"),
    ("docs/whatif.md", "minutes, and a disk that is written to"),
    ("docs/workloads.md", "minutes, and the user's own sources"),
];

/// The root of the workspace.
fn root() -> &'static Path {
    let mut folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    while !folder.join("Cargo.lock").exists() {
        folder = folder.parent().expect("the workspace has a lock file");
    }
    folder
}

/// The README and the guides, by their names from the root, and their texts.
fn pages() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(root().join("docs")).expect("the manual");
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    names.sort();
    names.insert(0, "README.md".to_owned());
    let text = |name: String| {
        let text = std::fs::read_to_string(root().join(&name)).expect("a page");
        (name, text)
    };
    names.into_iter().map(text).collect()
}

/// The commands in the blocks marked `console`, in order.
fn shown(page: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut is_console, mut is_inside) = (false, false);
    for (number, line) in (1..).zip(page.lines()) {
        if let Some(language) = line.strip_prefix("```") {
            is_inside = !is_inside;
            is_console = is_inside && language == "console";
        } else if is_console {
            let command = line.strip_prefix("$ ").or(line.strip_prefix("# "));
            match (command, all.last_mut()) {
                (Some(command), _) => all.push(Shown {
                    line: number,
                    command: command.to_owned(),
                    needs_root: line.starts_with('#'),
                    output: Vec::new(),
                }),
                (None, Some(last)) if last.command.ends_with('\\') => {
                    last.command.pop();
                    last.command.push_str(line.trim_start());
                }
                (None, last) => last.expect("a command comes first").output.push(line.to_owned()),
            }
        }
    }
    all
}

/// Whether the lines of a command are those that the page shows.
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

/// The kernel's file systems that the pages show.
const KERNELS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// The most by which a figure of theirs may differ: the guest's kernel and programs are those of
/// the machine, and another compiler, shell or path shifts its timers.
const TOLERANCE: f64 = 0.1;
/// The figures of a row that are means over all of the work, after the name. The ones behind them
/// are a median of steps, single events, and the moment of one power cut: where a timer stands to
/// the work decides them, so they are only figures.
const MEANS: std::ops::RangeInclusive<usize> = 1..=5;

/// Whether two lines are the same; in a row of one of the kernel's file systems means may differ a
/// little, and single events at will. Predictions from their traces may differ a little too.
fn alike(shown: &str, printed: &str) -> bool {
    if let Some((head, tail)) = shown.split_once(" ...").filter(|(_, tail)| tail.is_empty()) {
        return tail.is_empty() && printed.starts_with(head);
    }
    let (a, b): (Vec<&str>, Vec<&str>) =
        (shown.split_whitespace().collect(), printed.split_whitespace().collect());
    let is_prediction = shown.contains(" ms - ");
    let value = |word: &str| word.trim_matches(['*', '!']).replace(',', "").parse::<f64>().ok();
    let near = |(column, (a, b)): (usize, (&&str, &&str))| match (value(a), value(b)) {
        (Some(a), Some(b)) => {
            let is_mean = is_prediction || MEANS.contains(&column);
            !is_mean || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
        }
        _ => a == b,
    };
    let is_kernel = a.first().is_some_and(|name| KERNELS.contains(name));
    let is_row = (is_kernel || is_prediction) && a.len() == b.len();
    shown == printed || (is_row && a.iter().zip(&b).enumerate().all(near))
}

/// The variables that a command sees of this process, besides the path: in a guest, each folder in
/// which a program or a library is sought in vain costs time.
const KEPT: [&str; 4] = ["HOME", "USER", "ORDO_KERNEL", "TMPDIR"];
/// The path, besides `ordo`'s folder.
const PATH: &str = "/usr/bin:/usr/sbin:/bin:/sbin";

/// Runs a command of a page in a folder, with `ordo` in the path. Returns what a terminal would
/// show. `ordo crash` ends with status 1 if it has found something.
fn run(shown: &Shown, folder: &Path) -> String {
    let ordo = PathBuf::from(env!("CARGO_BIN_EXE_ordo"));
    let path = format!("{}:{PATH}", ordo.parent().expect("a folder").display());
    let out = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{}", shown.command)])
        .current_dir(folder)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| KEPT.iter().any(|kept| name == kept)))
        .env("PATH", path)
        .env("XDG_STATE_HOME", folder.join("state"))
        .output()
        .expect("sh runs");
    let text = String::from_utf8(out.stdout).expect("text");
    let found = out.status.code() == Some(1) && shown.command.starts_with("ordo crash");
    assert!(out.status.success() || found, "line {}: {}: {text}", shown.line, shown.command);
    text
}

/// Whether this machine has all programs and kernels that a command needs. If not, the command is
/// skipped out loud, and so must be the commands after it that use its files.
fn can_run(page: &str, command: &str) -> bool {
    let needs = [("pay.sh", "sqlite3"), ("--syscalls", "strace"), ("--calls", "strace")];
    let named = needs.iter().filter(|(word, _)| command.contains(word));
    let mut named = named.map(|(_, program)| program);
    let missing = named.find(|program| Command::new(program).arg("-version").output().is_err());
    if let Some(program) = missing {
        ordo_testkit::skip(&format!("{page}: {program} is not installed"));
    }
    let is_in_guest = KERNELS.iter().any(|name| command.contains(name));
    missing.is_none() && (!is_in_guest || ordo_testkit::has_guest(env!("CARGO_BIN_EXE_ordo")))
}

/// Runs all commands of a page, and returns how many of them are Ordo's.
fn run_page(name: &str, text: &str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut programs = 0;
    let mut is_skipping = false;
    for shown in shown(text).iter().filter(|shown| !shown.needs_root) {
        let uses_trace = is_skipping && shown.command.contains(".trace");
        if uses_trace || !can_run(name, &shown.command) {
            is_skipping = true;
            continue;
        }
        if let Some(file) = shown.command.strip_prefix("cat ") {
            let text = shown.output.join("\n") + "\n";
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let printed = run(shown, folder.path());
        let lines: Vec<&str> = printed.lines().collect();
        let place = format!("{name}:{}: {}", shown.line, shown.command);
        assert!(agrees(&shown.output, &lines), "{place}\nprints\n{printed}");
        programs += usize::from(shown.command.starts_with("ordo "));
    }
    programs
}

/// Each command prints what the README shows. Would catch a figure that has changed since, an
/// option that was removed, and a README whose blocks are not found.
#[test]
fn every_output_in_the_readme_is_of_today() {
    let (name, readme) = pages().swap_remove(0);
    let lines = readme.lines().count();
    assert!(lines <= 150, "the README has {lines} lines");
    let wide = (1..).zip(readme.lines()).find(|(_, line)| line.chars().count() > 100);
    assert!(wide.is_none(), "a line of more than 100 columns: {wide:?}");
    let programs = run_page(&name, &readme);
    assert!(programs >= 5, "only {programs} commands of Ordo in the README are run");
}

/// The same for the guides.
#[test]
fn every_output_in_the_guides_is_of_today() {
    let guides = pages().into_iter().skip(1);
    let programs: usize = guides.map(|(name, text)| run_page(&name, &text)).sum();
    assert!(programs >= 5, "only {programs} commands of Ordo in the guides are run");
}

/// The lines of a page's blocks of code that call Ordo and are not in a `console` block, without
/// comments.
fn unrun(page: &str) -> Vec<(usize, String)> {
    let (mut language, mut found) = (None, Vec::new());
    for (number, line) in (1..).zip(page.lines()) {
        match (line.trim_start().strip_prefix("```"), language) {
            (Some(_), Some(_)) => language = None,
            (Some(name), None) => language = Some(name),
            (None, Some("console")) | (None, None) => {}
            (None, Some(_)) => found.extend(call(line).map(|call| (number, call))),
        }
    }
    found
}

/// The call of Ordo with which a line begins, up to a comment, a pipe or the user's own command.
fn call(line: &str) -> Option<String> {
    let line = line.trim_start().trim_start_matches("sudo ");
    let end = [" #", " | ", " -- ", "; ", " > ", " && ", "  "]
        .iter()
        .filter_map(|mark| line.find(mark))
        .min()
        .unwrap_or(line.len());
    line.starts_with("ordo ").then(|| line[..end].to_owned())
}

/// The help of each command of Ordo that has been asked for.
#[derive(Default)]
struct Helps(HashMap<String, Option<String>>);

impl Helps {
    /// The help of a command, or of its subcommand; `None` if there is no such command.
    fn of(&mut self, path: &str) -> Option<String> {
        let known = self.0.entry(path.to_owned()).or_insert_with(|| {
            let mut words: Vec<&str> = path.split(' ').collect();
            words.push("--help");
            let out = Command::new(env!("CARGO_BIN_EXE_ordo")).args(words).output().unwrap();
            out.status.success().then(|| String::from_utf8(out.stdout).unwrap())
        });
        known.clone()
    }

    /// The fault of a call of Ordo, if its subcommand or one of its options does not exist.
    fn fault(&mut self, call: &str) -> Option<String> {
        let words: Vec<&str> = call.split_whitespace().skip(1).collect();
        let first = words.first().filter(|word| !word.chars().all(|c| c.is_uppercase()))?;
        if first.starts_with('-') || *first == "help" {
            return None;
        }
        let Some(mut help) = self.of(first) else { return Some(format!("no command {first}")) };
        let is_word = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let second = words.get(1).filter(is_word).filter(|word| !word.starts_with('-'));
        if let Some(second) = second.filter(|word| help.contains(&format!("\n  {word} "))) {
            help = self.of(&format!("{first} {second}"))?;
        }
        let option = |word: &&str| {
            let word = word.trim_matches(['\'', '"', '[', ']', '(', ')', ',']);
            let end = word.find(|c: char| c != '-' && !c.is_ascii_lowercase());
            let name = &word[..end.unwrap_or(word.len())];
            let is_known = |after: &str| help.contains(&format!("{name}{after}"));
            let is_missing = !([" ", "\n", ",", "["].into_iter().any(is_known));
            (name.len() > 2 && name.starts_with("--") && is_missing).then(|| name.to_owned())
        };
        let found = words.iter().find_map(option);
        found.map(|name| format!("ordo {first} has no option {name}"))
    }
}

/// Commands that are shown and not run, in the README, the guides and the examples of `--help`,
/// have subcommands and options that exist, and a reason. Would catch an option that was renamed.
#[test]
fn every_command_in_the_manual_exists() {
    let (mut helps, mut faults, mut calls) = (Helps::default(), Vec::new(), 0);
    for (name, text) in pages() {
        let unrun = unrun(&text);
        let is_known = NOT_RUN.iter().any(|(page, _)| *page == name);
        if !unrun.is_empty() && !is_known {
            faults.push(format!("{name}: NOT_RUN does not say why its commands are not run"));
        }
        let shown = shown(&text).into_iter();
        let shown = shown.filter_map(|shown| Some((shown.line, call(&shown.command)?)));
        for (line, call) in unrun.into_iter().chain(shown) {
            calls += 1;
            faults.extend(helps.fault(&call).map(|fault| format!("{name}:{line}: {fault}")));
        }
    }
    assert!(calls >= 40, "only {calls} commands were found");
    let all = helps.of("help").unwrap_or_default();
    let names = all.lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    for name in names.filter_map(|line| line.split(' ').next()).collect::<Vec<_>>() {
        let help = helps.of(name).unwrap_or_default();
        for call in help.lines().filter(|line| line.starts_with("  ordo ")).filter_map(call) {
            faults.extend(helps.fault(&call).map(|fault| format!("ordo {name} --help: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A call is found without what is the shell's or the user's; a wrong option, and a wrong command,
/// are faults.
#[test]
fn a_call_that_does_not_exist_is_a_fault() {
    assert_eq!(call("sudo ordo ls a.img   # names").as_deref(), Some("ordo ls a.img"));
    assert_eq!(call("ordo crash --fs ext4 -- sh --bad").as_deref(), Some("ordo crash --fs ext4"));
    assert_eq!(call("echo ordo"), None);
    let mut helps = Helps::default();
    assert_eq!(helps.fault("ordo compare --fs ext4 --disk=nvme"), None);
    assert_eq!(helps.fault("ordo trace run --rotate 10min"), None);
    assert!(helps.fault("ordo trace show --rotate 10min").is_some());
    assert!(helps.fault("ordo compare --systems lfs").is_some());
    assert!(helps.fault("ordo compar").is_some());
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
    assert!(alike(
        "disk nvme  11.2 ms  11 ms - 12 ms  0.1",
        "disk nvme  11.5 ms  11 ms - 12 ms  0.1"
    ));
    assert!(!alike(
        "disk nvme  11.2 ms  11 ms - 12 ms  0.1",
        "disk nvme  13.5 ms  11 ms - 12 ms  0.1"
    ));
}

/// The comparison itself: skipped lines, a changed line, a missing one, one too many, and a line
/// that is shown up to its middle.
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
    assert!(alike("cause: no fsync ...", "cause: no fsync of a file"));
    assert!(!alike("cause: no fsync ...", "cause: no sync"));
}
