//! `make test-xfstests`: the generic tests of xfstests on mounts of two loop devices.
//!
//! `XFSTESTS` names a built tree of xfstests. During the run `/sbin` has a `mkfs.ordo`, a
//! `mount.ordo` and a `fsck.ordo`, so each test has a new file system, and a full check follows it.
//! `TESTS` names tests to run instead of those listed here. `ORDERINGS` selects orderings, and
//! `SECONDS` is the time limit of a test. `RESULTS` names a file of earlier outcomes, which new
//! ones replace, so that a run can be made in parts. The page is written when every listed test has
//! an outcome under every ordering. A failure must be explained here, or the run fails.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LIMITS: &str = "it sets limits that the machine does not allow to be set";

/// The failures that are expected, with the reasons.
const EXPLAINED: &[(&str, &str)] = &[
    (
        "generic/003",
        "with strictatime a read that the kernel answers from its own cache is not recorded: FUSE sends no request",
    ),
    ("generic/062", "under the journal it lists the log's file, .ordojournal, too"),
    (
        "generic/079",
        "an immutable file can be opened for writing: FUSE inodes have no such flag, and the kernel sends no request to open \
         where the server has declared it needless. The writes themselves are refused. passthrough_ll has no such flags, and \
         the test does not run on it",
    ),
    (
        "generic/451",
        "a buffered read beside asynchronous direct writes sees bytes from before one of them: FUSE does not invalidate cached \
         pages when an asynchronous direct write ends. passthrough_ll with cache=always fails in the same way; a server of one \
         thread that invalidates pages itself could wait for its own reply to a read",
    ),
    (
        "generic/285",
        "UFS always maps the last block of a file, so a file that was extended ends with data, not with a hole",
    ),
    ("generic/394", LIMITS),
    ("generic/531", LIMITS),
    ("generic/564", LIMITS),
];

/// The generic tests that are run: those of names, attributes, contents, times, locks, `mmap`,
/// direct and asynchronous I/O, several programs at once. Tests of features that UFS lacks
/// (reflinks, collapsed ranges, quotas, encryption) are left out, and so are those that need
/// device-mapper, or the file system's name in a list of xfstests' own.
const LISTED: &str = "\
    001 002 003 005 006 007 010 011 013 020 023 024 025 028 029 030 035 037 053 062 067 069 070 074 075 078 079 080 \
    084 086 087 088 089 091 097 098 099 103 105 109 112 113 120 123 124 126 128 129 130 131 132 133 135 141 169 184 \
    192 193 198 207 208 209 210 211 212 214 215 221 228 236 237 239 240 241 245 246 247 248 249 257 258 263 285 286 \
    294 306 307 308 309 313 314 318 319 337 355 360 377 378 391 393 394 401 403 404 406 412 423 426 428 430 431 432 \
    433 434 436 437 438 439 443 445 446 448 450 451 452 454 460 464 465 467 469 471 478 490 504 523 524 528 531 532 \
    533 538 551 564 565 567 568 571 591 594 597 598 599 604 609 611 615 618 630 632 633 637 638 639 647 650 676 \
    683 684 685";

/// The result of a test.
enum Outcome {
    Passed,
    NotRun(String),
    Failed(String),
}

/// Runs the tests. Returns whether every failure is explained.
pub fn run(ordo: &Path) -> Result<bool, String> {
    let given = std::env::var_os("XFSTESTS").filter(|tree| !tree.is_empty());
    let Some(tree) = given.map(PathBuf::from) else {
        println!("SKIPPED: make test-xfstests XFSTESTS=/path/to/a/built/tree");
        return Ok(true);
    };
    if !tree.join("check").is_file() || !tree.join("src/lstat64").is_file() {
        println!("SKIPPED: {} is no built tree of xfstests", tree.display());
        return Ok(true);
    }
    for name in ["fsgqa", "fsgqa2", "123456-fsgqa"] {
        if shell(&format!("id {name}")).is_err() {
            println!("SKIPPED in part: there is no user {name}, which some tests need");
        }
    }
    let ordo = ordo.canonicalize().map_err(|e| format!("{}: {e}", ordo.display()))?;
    let asked = std::env::var("TESTS").ok();
    let tests: Vec<String> = match &asked {
        Some(tests) => tests.split([' ', ',']).map(str::to_owned).collect(),
        None => LISTED.split(' ').map(|number| format!("generic/{number}")).collect(),
    };
    let orderings = std::env::var("ORDERINGS").unwrap_or("soft-updates,journal".into());
    let kept = std::env::var_os("RESULTS").map(PathBuf::from);
    let mut results = kept.as_deref().map(read_results).unwrap_or_default();
    for ordering in orderings.split(',') {
        let stage = Stage::new(&ordo, ordering)?;
        for test in &tests {
            let outcome = stage.run(&tree, test);
            eprintln!("{ordering}: {test}: {outcome}");
            results.entry(ordering.to_owned()).or_default().insert(test.clone(), outcome);
            if let Some(file) = &kept {
                write_results(file, &results)?;
            }
        }
    }
    let (page, sound) = page(&results);
    print!("{page}");
    let listed = || LISTED.split(' ').map(|number| format!("generic/{number}"));
    let has_all = |outcomes: &BTreeMap<_, _>| listed().all(|test| outcomes.contains_key(&test));
    if ["soft-updates", "journal"].iter().all(|name| results.get(*name).is_some_and(has_all)) {
        let file = crate::tidy::root().join("docs/results/xfstests.md");
        fs::write(&file, page).map_err(|e| e.to_string())?;
    }
    Ok(sound)
}

/// The outcomes by ordering and test.
type Results = BTreeMap<String, BTreeMap<String, Outcome>>;

/// The outcomes in a file: lines of ordering, test and outcome, with tabs between them.
fn read_results(file: &Path) -> Results {
    let mut results = Results::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let mut words = line.splitn(3, '\t');
        let (Some(ordering), Some(test), Some(said)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let outcome = match (said.strip_prefix("not run: "), said.strip_prefix("FAILED: ")) {
            (Some(why), _) => Outcome::NotRun(why.to_owned()),
            (_, Some(why)) => Outcome::Failed(why.to_owned()),
            _ => Outcome::Passed,
        };
        results.entry(ordering.to_owned()).or_default().insert(test.to_owned(), outcome);
    }
    results
}

fn write_results(file: &Path, results: &Results) -> Result<(), String> {
    let mut out = String::new();
    for (ordering, outcomes) in results {
        for (test, outcome) in outcomes {
            let _ = writeln!(out, "{ordering}\t{test}\t{outcome}");
        }
    }
    fs::write(file, out).map_err(|e| format!("{}: {e}", file.display()))
}

/// Two devices, their mount points, and the commands for xfstests.
struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// The size of the devices.
    const BYTES: &str = "2g";

    fn new(ordo: &Path, ordering: &str) -> Result<Stage, String> {
        let folder = std::env::temp_dir().join(format!("ordo-xfstests-{}", std::process::id()));
        let stage = Stage { folder };
        let (folder, ordo) = (stage.folder.display(), ordo.display());
        // The last argument is the device.
        let options = if ordering == "journal" { "-J file" } else { "" };
        script(
            "/sbin/mkfs.ordo".as_ref(),
            &format!("exec {ordo} mkfs --force {options} ${{@: -1}} >/dev/null"),
        )?;
        script("/sbin/fsck.ordo".as_ref(), &format!("exec {ordo} fsck -n ${{@: -1}}"))?;
        // Access times are updated as by default on Linux.
        let mount = format!(
            "exec -a mount.fuse.ordo {ordo} $1 $2 -o ordering={ordering},relatime,acl \"${{@:3}}\" >/dev/null"
        );
        script("/sbin/mount.ordo".as_ref(), &mount)?;
        shell(&format!("mkdir -p {folder}/bin {folder}/test {folder}/scratch"))?;
        // The tests know the file system by this name.
        let df = r#"/usr/bin/df "$@" | sed 's/fuseblk\.ordo/ordo/'"#;
        script(&stage.folder.join("bin/df"), df)?;
        let findmnt = "for word; do [ $word = ordo ] && word=fuseblk.ordo; words+=($word); done; \
                       /usr/bin/findmnt ${words[@]}";
        script(&stage.folder.join("bin/findmnt"), findmnt)?;
        let mut config = String::from("export FSTYP=ordo\n");
        for (variable, place, name) in
            [("TEST", "TEST_DIR", "test"), ("SCRATCH", "SCRATCH_MNT", "scratch")]
        {
            let make = format!(
                "truncate -s {} {folder}/{name}.img && losetup -f --show {folder}/{name}.img",
                Stage::BYTES
            );
            let device = shell(&make)?;
            let device = device.trim();
            let _ = writeln!(config, "export {variable}_DEV={device} {place}={folder}/{name}");
        }
        let _ = writeln!(config, "export RESULT_BASE={folder}/results");
        fs::write(stage.folder.join("config"), config).map_err(|e| e.to_string())?;
        Ok(stage)
    }

    fn run(&self, tree: &Path, test: &str) -> Outcome {
        // Files that earlier tests left would take the space of this one.
        let anew = format!(
            "for place in test scratch; do umount -q {0}/$place; \
             mkfs.ordo $(losetup -nO NAME -j {0}/$place.img) || exit; done",
            self.folder.display()
        );
        if let Err(error) = shell(&anew) {
            return Outcome::Failed(error);
        }
        let seconds = std::env::var("SECONDS").unwrap_or("600".into());
        let path = std::env::var("PATH").unwrap_or_default();
        let mut check = Command::new("timeout");
        check.args(["-k", "10", &seconds, "./check", test]).current_dir(tree);
        check.env("HOST_OPTIONS", self.folder.join("config")).stdin(Stdio::null());
        check.env("PATH", format!("{}:{path}", self.folder.join("bin").display()));
        let said = match check.output() {
            Ok(mut out) => {
                out.stdout.extend(out.stderr);
                String::from_utf8_lossy(&out.stdout).into_owned()
            }
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        if let Some((_, reason)) = said.split_once("[not run] ") {
            let reason = reason.lines().next().unwrap_or_default().trim();
            let places = [tree, &self.folder].map(|place| format!("{}/", place.display()));
            return Outcome::NotRun(reason.replace(&places[0], "").replace(&places[1], ""));
        }
        if said.contains("Passed all 1 tests") {
            return Outcome::Passed;
        }
        let places = format!("umount -l {0}/test {0}/scratch 2>/dev/null", self.folder.display());
        let _ = shell(&places);
        let _ = fs::write(self.folder.join(test.replace('/', "-")), &said);
        let mut about = said.lines().filter_map(|line| line.strip_prefix(test)).map(str::trim);
        let about = about.next().filter(|line| line.starts_with(['-', '[', '_']));
        Outcome::Failed(about.unwrap_or("did not end").to_owned())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let folder = self.folder.display();
        let _ = shell(&format!(
            "umount -q {folder}/test; umount -q {folder}/scratch; for i in test scratch; do \
             losetup -d $(losetup -nO NAME -j {folder}/$i.img); done; rm {folder}/*.img; \
             rm /sbin/mkfs.ordo /sbin/mount.ordo /sbin/fsck.ordo"
        ));
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::NotRun(why) => write!(f, "not run: {why}"),
            Outcome::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

fn script(path: &Path, body: &str) -> Result<(), String> {
    let write = || {
        fs::write(path, format!("#!/bin/bash\n{body}\n"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
    };
    write().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))
}

fn shell(script: &str) -> Result<String, String> {
    let out = Command::new("bash").args(["-c", script]).output().map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("{script}: {}", String::from_utf8_lossy(&out.stderr))),
    }
}

fn page(results: &Results) -> (String, bool) {
    let mut out = String::from(
        "# xfstests on a mount\n\nWritten by `make test-xfstests`: generic tests of xfstests, listed in `xtask/src/xfstests.rs`, each on \
         a mount of a loop device. After each the device is unmounted and a full check must find nothing.\n\n\
         | ordering | passed | not for this file system | failed |\n|---|---|---|---|\n",
    );
    let mut failures: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (ordering, outcomes) in results {
        let (mut passed, mut not_run, mut failed) = (0, 0, 0);
        for (test, outcome) in outcomes {
            match outcome {
                Outcome::Passed => passed += 1,
                Outcome::NotRun(why) => {
                    not_run += 1;
                    *reasons.entry(why).or_default() += 1;
                }
                Outcome::Failed(_) => {
                    failed += 1;
                    failures.entry(test).or_default().push(ordering);
                }
            }
        }
        let _ = writeln!(out, "| {ordering} | {passed} | {not_run} | {failed} |");
    }
    let explanation = |test: &str| EXPLAINED.iter().find(|(t, _)| *t == test).map(|(_, why)| *why);
    out.push_str("\n## What fails, and why\n\n");
    for (test, orderings) in &failures {
        let why = explanation(test).unwrap_or("NOT EXPLAINED");
        let _ = writeln!(out, "- {test} ({}): {why}", orderings.join(", "));
    }
    out.push_str("\n## What is not run, and why\n\n");
    let mut by_count: Vec<_> = reasons.into_iter().collect();
    by_count.sort_by_key(|(why, count)| (std::cmp::Reverse(*count), *why));
    for (why, count) in by_count {
        let _ = writeln!(out, "- {count} times: {why}");
    }
    for (ordering, outcomes) in results {
        let passed = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Passed));
        let numbers: Vec<&str> =
            passed.map(|(test, _)| test.trim_start_matches("generic/")).collect();
        let _ = writeln!(out, "\n## Passed under {ordering}\n");
        numbers.chunks(24).for_each(|line| out.push_str(&(line.join(", ") + "\n")));
    }
    (out, failures.keys().all(|test| explanation(test).is_some()))
}
